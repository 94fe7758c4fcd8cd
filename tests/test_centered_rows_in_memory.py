"""Test that a small simulation keeps centered rows in memory while it runs: the same bits, and freed afterwards."""

import gc
import weakref

import numpy as np
import pytest

from flower_pca import simulate
from flower_pca.rows import local
from flower_pca.simulation import backend

RNG = np.random.default_rng(0)
# clients from whose rows the mean is subtracted
FAR = [10.0 + RNG.standard_normal((30, 80)) * 0.9 ** np.arange(80) for _ in range(3)]
GAPS = [np.where(np.random.default_rng(i).random(X.shape) < 0.1, np.nan, X) for i, X in enumerate(FAR)]


@pytest.fixture
def kept(monkeypatch):
    """Of what is taken off rows: whether the rest is kept."""
    seen, made = [], local.CenteredBlocks.__init__

    def noting(less, *given, keep):
        made(less, *given, keep=keep)
        seen.append((keep, weakref.ref(less)))

    monkeypatch.setattr(local.CenteredBlocks, "__init__", noting)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("shards", "asked"), [(FAR, {}), (GAPS, {"missing": "mean"}), (FAR, {"scale": "std"})])
def test_rows_that_are_kept_give_the_bits_of_rows_that_are_not(shards, asked, single, kept, monkeypatch):
    shards = [X.astype(np.float32 if single else np.float64) for X in shards]
    few = simulate("krylov", shards, n_components=3, **asked)
    monkeypatch.setattr(backend, "_ROOM", 0)
    many = simulate("krylov", shards, n_components=3, **asked)
    assert {way for way, _ in kept} == {True, False}
    np.testing.assert_array_equal(few.components_, many.components_)
    np.testing.assert_array_equal(few.explained_variance_, many.explained_variance_)


def test_nothing_of_them_is_left_once_the_run_is_over(kept):
    gc.disable()
    try:
        simulate("krylov", FAR, n_components=3)
        assert kept
        assert [less() for way, less in kept if way] == [None] * len(kept)
    finally:
        gc.enable()
