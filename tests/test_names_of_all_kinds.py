"""Test unusual names of columns, tables in several orders, and comparisons of results by name."""

import numpy as np
import pandas as pd
import pytest
from builders import pooled, sine
from cases import every

from flower_pca import DataError, FederatedPCA, simulate
from flower_pca.data import sources

X = np.random.default_rng(1).standard_normal((60, 4)) * [4.0, 2.0, 1.0, 0.3]
REFERENCE = pooled([X])
LABELS = {
    "years": [2001, 2002, 2003, 2004],
    "levels": pd.MultiIndex.from_tuples([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]),
    "words": ["age", "bmi", "pulse", "size"],
}


def labeled_sites(labels):
    north = pd.DataFrame(X[:40], columns=labels)
    south = pd.DataFrame(X[40:], columns=labels)
    return {"north": north, "south": south[list(south.columns)[::-1]]}


@every("kind", LABELS)
def test_labels_of_any_kind_are_matched(kind):
    result = simulate("krylov", labeled_sites(LABELS[kind]), n_components=2)
    assert sine(result.components_, REFERENCE.components[:2]) < 1e-10
    assert len(result.feature_names_in_) == 4


def test_the_estimator_matches_tables_by_name():
    given = labeled_sites(LABELS["words"])
    found = FederatedPCA(n_components=2).fit(given)
    assert sine(found.components_, REFERENCE.components[:2]) < 1e-10


def test_results_are_compared_by_name():
    given = labeled_sites(LABELS["words"])
    one = simulate("krylov", given, n_components=2)
    other = simulate("krylov", given, n_components=2, columns=["size", "pulse", "bmi", "age"])
    assert one.angle_to(other) < 1e-7


@pytest.mark.parametrize("head", ["2001,2002,2003,2004", "0,1,2,3", "1,2,3,4"])
def test_a_first_line_of_numbers_is_names_only_where_that_is_said(head, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([head, *(",".join(f"{value:.17g}" for value in row) for row in X)]))
    with pytest.raises(DataError, match=r"may be names or values: .*header=True\) or header=False"):
        sources.table(str(path))
    named = sources.table(f"csv(path={str(path)!r}, header=True)")
    assert named.names == tuple(head.split(","))
    assert named.rows.shape == X.shape
    assert sources.table(f"csv(path={str(path)!r}, header=False)").rows.shape == (61, 4)


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
