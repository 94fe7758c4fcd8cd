"""Test data frames of polars: names, missing values and words are treated as for pandas."""

import numpy as np
import polars as pl
from builders import pooled, sine

from flower_pca import from_frame, simulate

X = np.random.default_rng(0).standard_normal((60, 3)) * [3.0, 1.0, 0.2]
NAMES = ["age", "bmi", "pulse"]
NORTH = pl.DataFrame(X[:30], schema=NAMES)
SOUTH = pl.DataFrame(X[30:], schema=NAMES).select("pulse", "age", "bmi")


def test_sites_with_columns_in_two_orders_give_the_pooled_components():
    result = simulate("krylov", {"north": NORTH, "south": SOUTH}, n_components=2)
    assert result.feature_names_in_.tolist() == NAMES
    assert result.site_names == {0: "north", 1: "south"}
    reference = pooled([X])
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:2], rtol=1e-12)
    assert sine(result.components_, reference.components[:2]) < 1e-12
    scores = (X[30:] - X.mean(axis=0)) @ result.components_.T
    np.testing.assert_allclose(result.transform(SOUTH), scores, rtol=0, atol=1e-12)


def test_nulls_are_missing_values():
    gaps = NORTH.with_columns(pl.when(pl.col("age") > 0.0).then(pl.col("age")).alias("age"))
    rows = X.copy()
    rows[:30, 0][rows[:30, 0] <= 0.0] = np.nan
    result = simulate("krylov", [gaps, SOUTH], n_components=2, missing="mean")
    reference = simulate("krylov", [rows[:30], rows[30:]], n_components=2, missing="mean")
    np.testing.assert_allclose(result.components_, reference.components_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.fill_, np.nanmean(rows, axis=0), rtol=1e-12)


def test_lazy_frames_are_collected():
    eager = simulate("krylov", {"north": NORTH, "south": SOUTH}, n_components=2)
    lazy = simulate("krylov", {"north": NORTH.lazy(), "south": SOUTH.lazy()}, n_components=2)
    np.testing.assert_array_equal(lazy.components_, eager.components_)
    np.testing.assert_array_equal(lazy.transform(SOUTH.lazy()), eager.transform(SOUTH))
    table = pl.DataFrame(X, schema=NAMES).with_columns(site=pl.Series(["n"] * 25 + ["s"] * 35))
    assert [part.site for part in from_frame(table.lazy(), by="site")] == ["n", "s"]
