"""Test unusual names of columns, tables in several orders, and comparisons of results by name."""

import numpy as np
import pandas as pd
import pytest
from builders import pooled, sine
from cases import every

from flower_pca import DataError, simulate
from flower_pca.data import sources

X = np.random.default_rng(1).standard_normal((60, 4)) * [4.0, 2.0, 1.0, 0.3]
REFERENCE = pooled([X])
LABELS = {  # and what they are called, in their own order
    "years": ([2001, 2002, 2003, 2004], ["2001", "2002", "2003", "2004"]),
    "levels": (pd.MultiIndex.from_product([list("ab"), list("xy")]), ["a/x", "a/y", "b/x", "b/y"]),
    "words": (["age", "bmi", "pulse", "size"], ["age", "bmi", "pulse", "size"]),
}


def labeled_sites(labels):
    north = pd.DataFrame(X[:40], columns=labels)
    south = pd.DataFrame(X[40:], columns=labels)
    return {"north": north, "south": south[list(south.columns)[::-1]]}


@every("kind", LABELS)
def test_labels_of_any_kind_are_matched(kind):
    labels, names = LABELS[kind]
    result = simulate("krylov", labeled_sites(labels), n_components=2)
    assert sine(result.components_, REFERENCE.components[:2]) < 1e-10
    assert result.feature_names_in_.tolist() == names


def test_results_are_compared_by_name():
    given = labeled_sites(["age", "bmi", "pulse", "size"])
    one = simulate("krylov", given, n_components=2)
    other = simulate("krylov", given, n_components=2, columns=["size", "pulse", "bmi", "age"])
    assert one.angle_to(other) < 1e-7


def test_whole_numbers_above_whole_numbers_are_rows(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("5,0,7\n1,2,0\n3,3,1\n")
    assert sources.table(str(path)).rows.shape == (3, 3)


def test_what_files_of_a_folder_are_like_is_said_of_the_folder(tmp_path):
    for site, part in (("north", X[:40]), ("south", X[40:])):
        lines = [";".join(["1999", "2000", "2001", "2002"]), *(";".join(f"{v:.17g}" for v in row) for row in part)]
        (tmp_path / f"{site}.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"folder\(\.\.\., header=True\)"):
        sources.table(str(tmp_path))
    table = sources.table(f"folder(path={str(tmp_path)!r}, header=True)")
    assert table.names == ("1999", "2000", "2001", "2002")
    np.testing.assert_array_equal(np.vstack(table.parts), X)
