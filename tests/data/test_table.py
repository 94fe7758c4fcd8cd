"""Test Table: selecting, reordering and dropping keep all that is known of the rows."""

import numpy as np
import pytest
from builders import dense
from cases import every
from scipy import sparse

from flower_pca import Table
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.names.origin import FileRows, Origin

N, NAMES = 12, ("weight", "age", "size")
X = np.random.default_rng(0).standard_normal((N, 3))


def of_trier(values=X, **more):
    given = {
        "words": {"ward": "a text of 5 letters in column ward"},
        "source": "patients.csv",
        "site": "Trier",
        "origin": Origin.of_file("patients.csv", N, lambda row: row + 2),
        "ids": tuple(f"P{i}" for i in range(N)),
        "texts": {"ward": np.array([f"w{i}" for i in range(N)], dtype=object)},
        "beside": {"y": np.arange(N)},
    }
    return Table(values, NAMES, **{**given, **more})


def in_a_file(folder):
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


KINDS = {
    "array": lambda folder: X,
    "by columns": lambda folder: np.asfortranarray(X),
    "mapped": in_a_file,
    "sparse": lambda folder: sparse.csr_array(X),
}


@pytest.mark.parametrize("kind", KINDS)
@every("rows", [slice(3, 9), np.array([5, 0, 11]), np.array([4, 5, 6]), np.arange(N) % 3 == 0, np.array([], dtype=int)])
def test_rows_that_are_taken_keep_what_is_known_of_each(kind, rows, tmp_path):
    table = of_trier(KINDS[kind](tmp_path))
    some, which = table.take(rows, site="Bonn"), np.arange(N)[rows]
    assert np.array_equal(dense(some.values), X[which])
    assert (some.names, some.words, some.site, table.site) == (NAMES, table.words, "Bonn", "Trier")
    assert some.ids == tuple(f"P{i}" for i in which)
    assert some.texts["ward"].tolist() == [f"w{i}" for i in which]
    assert some.beside["y"].tolist() == which.tolist()
    assert [some.place(i) for i in range(len(which))] == [f"line {i + 2} of patients.csv" for i in which]
    assert len(table) == N


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_picked_are_in_the_order_of_their_names_and_no_others_are(kind, tmp_path):
    table = of_trier(KINDS[kind](tmp_path))
    some = table.pick(["size", "weight"])
    assert np.array_equal(dense(some.values), X[:, [2, 0]])
    assert (some.names, some.words, some.ids, some.origin) == (("size", "weight"), {}, table.ids, table.origin)
    assert table.pick(NAMES).values is table.values
    assert table.pick(NAMES).words == {}
    if kind != "sparse":
        together = 0 if kind == "by columns" else 1
        assert some.values.strides[together] == 8
    with pytest.raises(DataError, match="height"):
        table.pick(["height"])
    with pytest.raises(DataError, match="a text of 5 letters in column ward"):
        table.pick(["ward"])
    with pytest.raises(ConfigError, match="but the data has no column names"):
        Table(X).pick(["age"])


def test_columns_are_left_out_whether_they_hold_numbers_or_not():
    table = of_trier()
    assert table.without(["age"]).columns == ("weight", "size", "ward")
    assert table.without(["ward", "weight"]).columns == ("age", "size")
    assert np.array_equal(table.without(["ward", "weight"]).values, X[:, 1:])
    assert table.without(["none"]) is table


def test_a_quiet_table_has_its_numbers_and_names_and_nothing_that_no_message_may_tell():
    quiet = of_trier().quiet()
    assert quiet.values is X
    assert (quiet.names, quiet.site, quiet.words) == (NAMES, "Trier", {"ward": "text in column ward"})
    assert (quiet.source, quiet.origin, quiet.texts, quiet.beside) == ("", None, {}, {})


def test_joined_tables_are_selected_like_one_table():
    parts = [of_trier().take(slice(0, 5), "a"), of_trier().take(slice(5, N), "b")]
    both = Table.together([part.without(["ward"]) for part in parts], {"y": np.arange(N)})
    assert both.shape == X.shape
    assert both.sites == ("a", "b")
    assert np.array_equal(both.rows, X)
    some = both.pick(("size", "age"))
    assert np.array_equal(some.rows, X[:, [2, 1]])
    assert [part.names for part in some.parts] == [("size", "age")] * 2
    across = some.take(np.array([4, 5]))
    assert np.array_equal(across.values, X[4:6][:, [2, 1]])
    assert across.parts == ()
    assert across.place(1) == "line 7 of patients.csv"
    assert np.array_equal(both.joined().values, X)


@every(
    ("rows", "file"), [([3, 6], "b.csv"), (range(3, 7), "b.csv"), ([0, 2], "a.csv"), ([2, 3], ""), ([7, 8], "c.csv")]
)
def test_rows_of_one_file_have_this_file_and_rows_of_two_have_none(rows, file):
    files = tuple(FileRows(name, n) for name, n in (("a.csv", 3), ("b.csv", 4), ("c.csv", 2)))
    assert Origin(files, rows if isinstance(rows, range) else np.array(rows)).file == file
