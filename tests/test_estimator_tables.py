"""Test FederatedPCA with all kinds of tables: names reach the result, and errors name the column."""

import numpy as np
import pytest
from cases import every

from flower_pca import from_frame

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from sklearn.pipeline import make_pipeline  # noqa: E402

from flower_pca import FederatedPCA  # noqa: E402

NAMES = ["pulse", "age", "bmi", "hb"]
ROWS = np.random.default_rng(0).standard_normal((60, 4)) * [4.0, 3.0, 2.0, 1.0]
TABLE = pd.DataFrame(ROWS, columns=NAMES)
SITES = np.repeat(["north", "east", "west"], [30, 20, 10])
WHOLE = TABLE.assign(site=SITES, note="x")


def pca(**settings):
    return FederatedPCA(2, **settings)


def is_the_same(found, names=NAMES):
    reference = pca().fit(ROWS, sites=SITES)
    assert found.result_.feature_names_in_.tolist() == list(names)
    assert found.result_.site_names == {0: "east", 1: "north", 2: "west"}
    np.testing.assert_allclose(found.components_, reference.components_, atol=1e-9)


def test_hints_and_tables_have_the_names_of_columns_and_sites():
    fitted = pca().fit(TABLE * [1.0, 1.0, 1e4, 1.0], sites=SITES)
    assert [hint.split(" alone")[0] for hint in fitted.result_.hints] == ["Column bmi"]
    assert "bmi" in fitted.result_.table().splitlines()[1]
    is_the_same(pca().fit(TABLE, sites=SITES))


def test_columns_are_chosen_by_name():
    fitted = pca(columns=NAMES).fit(WHOLE, sites=WHOLE["site"])
    is_the_same(fitted)
    assert fitted.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(fitted.transform(WHOLE), fitted.transform(TABLE))
    np.testing.assert_array_equal(fitted.transform(WHOLE[WHOLE.columns[::-1]]), fitted.transform(TABLE))
    several = dict(iter(WHOLE.groupby("site")))
    is_the_same(pca(columns="pulse,age,bmi,hb").fit(several))
    framed = make_pipeline(pca(columns=NAMES)).set_output(transform="pandas").fit_transform(WHOLE)
    assert framed.columns.tolist() == ["federatedpca0", "federatedpca1"]


def test_what_from_frame_has_made_keeps_its_names():
    parts = from_frame(TABLE.assign(site=SITES), by="site")
    fitted = pca().fit(parts)
    is_the_same(fitted)
    assert fitted.feature_names_in_.tolist() == NAMES
    turned = [type(part)(part.values[:, ::-1], part.names[::-1], site=part.site) for part in parts]
    np.testing.assert_array_equal(fitted.transform(turned), fitted.transform(parts))
    np.testing.assert_allclose(fitted.transform(parts), fitted.transform(TABLE.iloc[np.argsort(SITES, kind="stable")]))
    is_the_same(pca(columns=NAMES).fit(from_frame(WHOLE, by="site")))


def test_labels_that_are_not_text_become_text():
    levels = TABLE.set_axis(pd.MultiIndex.from_product([["a", "b"], ["x", "y"]]), axis=1)
    is_the_same(pca().fit(levels, sites=SITES), ["a/x", "a/y", "b/x", "b/y"])
    years = TABLE.set_axis(range(2019, 2023), axis=1)
    is_the_same(pca().fit(years, sites=SITES), ["2019", "2020", "2021", "2022"])
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        pca().fit(years).transform(years[years.columns[::-1]])
    assert pca().fit(TABLE.set_axis(range(4), axis=1)).result_.feature_names_in_ is None


KINDS = {
    "whole numbers that may be missing": pd.array(range(60), dtype="Int64"),
    "categories that are numbers": pd.Categorical([1, 2, 5] * 20),
    "true and false": [True, False] * 30,
    "numbers among objects": pd.Series([1, 2.5] * 30, dtype=object),
    "single precision": np.arange(60, dtype=np.float32),
}


@every("kind", KINDS)
def test_columns_of_many_kinds_are_numbers(kind):
    table = TABLE.assign(age=KINDS[kind])
    values = table.astype(float).to_numpy()
    np.testing.assert_allclose(pca().fit(table).components_, pca().fit(values).components_, atol=1e-9)


def test_sparse_columns_that_are_filled_are_numbers():
    thin = TABLE.astype(pd.SparseDtype(float))
    is_the_same(pca().fit(thin.sparse.to_dense(), sites=SITES))


def test_frames_of_polars_keep_names_and_name_bad_columns():
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({name: WHOLE[name].to_numpy() for name in WHOLE})
    is_the_same(pca(columns=NAMES).fit(table, sites=SITES))
