"""Test how one table becomes the rows of sites, and the refusal of unsuitable tables."""

import numpy as np
import pytest
from cases import every

from flower_pca import FederatedPCA, from_frame, simulate
from flower_pca.data.partition import make_parts, site_names

pd = pytest.importorskip("pandas")

SITES = ["north"] * 4 + ["east"] * 4 + ["west"]
ROWS = np.random.default_rng(0).standard_normal((9, 3))
BARE = pd.DataFrame(ROWS, columns=["age", "bmi", "pulse"])
TABLE = BARE.assign(site=SITES)


def is_dealt(parts, names=("age", "bmi", "pulse")):
    assert [part.site for part in parts] == ["east", "north", "west"]
    assert all(part.names == names for part in parts)
    for part, own in zip(parts, (ROWS[4:8], ROWS[:4], ROWS[8:]), strict=True):
        np.testing.assert_array_equal(part.values, own)


WAYS = {
    "a column": (TABLE, "site"),
    "the column itself": (TABLE, TABLE["site"]),
    "a series beside": (BARE, TABLE["site"]),
    "an array": (BARE, np.array(SITES)),
    "a list": (BARE, SITES),
    "an index": (BARE, pd.Index(SITES)),
    "categories, some empty": (TABLE.astype({"site": pd.CategoricalDtype(["west", "none", "north", "east"])}), "site"),
    "the index": (TABLE.set_index("site"), "site"),
    "a level of the index": (TABLE.set_index(["site", TABLE.index]), "site"),
}


@every("way", WAYS)
def test_each_way_to_say_whose_a_row_is(way):
    frame, by = WAYS[way]
    parts = from_frame(frame, by=by)
    is_dealt(parts)
    result = simulate("krylov", parts, n_components=2)  # one site has one row
    assert result.site_names == {0: "east", 1: "north", 2: "west"}


def test_a_site_that_is_written_as_7_and_as_7_0_is_one_site():
    mixed = pd.Series([7, 7.0, "7", "7.0", 10, "10.0", 10.0, "10,0", "7"], dtype=object)
    parts = from_frame(BARE.assign(site=mixed), by="site")
    assert [part.site for part in parts] == ["10", "7"]
    assert [len(part) for part in parts] == [4, 5]
    beside = {"site": mixed.astype(str).to_numpy()}
    dealt = make_parts("by_column('site')", 9, beside=beside)
    assert site_names("by_column('site')", beside, dealt) == ["10", "7"]
    fitted = FederatedPCA(n_components=2).fit(ROWS, sites=mixed.to_numpy())
    assert fitted.result_.site_names == {0: "10", 1: "7"}
    texts = mixed.astype(str).map(np.str_).to_numpy(dtype=object)
    assert FederatedPCA(n_components=2).fit(ROWS, sites=texts).result_.site_names == {0: "10", 1: "7"}


def test_tables_without_names():
    is_dealt(from_frame(ROWS, by=SITES), names=None)
    numbered = TABLE.set_axis(range(4), axis=1)
    is_dealt(from_frame(numbered, by=3), names=None)


def test_labels_of_several_levels():
    frame = TABLE.set_axis(pd.MultiIndex.from_tuples([("a", "x"), ("a", "y"), ("b", "x"), ("b", "site")]), axis=1)
    is_dealt(from_frame(frame, by=("b", "site")), names=("a/x", "a/y", "b/x"))


def test_a_frame_of_polars_is_split_by_site():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({name: TABLE[name].to_numpy() for name in TABLE})
    is_dealt(from_frame(frame, by="site"))
    is_dealt(from_frame(frame, by=frame["site"]))
    is_dealt(from_frame(frame.drop("site"), by=frame["site"]))
    is_dealt(from_frame(frame.with_columns(pl.col("site").cast(pl.Categorical)), by="site"))
