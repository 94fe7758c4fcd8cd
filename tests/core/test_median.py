"""Test the median from counts against numpy's median of all entries."""

import numpy as np
import pytest
from cases import every
from scipy import sparse

from flower_pca.algorithms.robust import sizes
from flower_pca.rows.local import LocalData

RNG = np.random.default_rng(5)
ROWS = {
    "normal": RNG.standard_normal((400, 20)),
    "heavy tails": RNG.standard_t(1.2, (400, 20)),
    "pixels": RNG.integers(0, 256, (400, 20)).astype(float),
    "far entries": np.where(RNG.random((400, 20)) < 0.05, 1e9, RNG.standard_normal((400, 20))),
    "all alike": np.full((30, 4), -7.3),
    "a third zeros": np.where(RNG.random((400, 20)) < 0.33, 0.0, RNG.standard_normal((400, 20))),
}
DEALT = ((), (1, 3, 20), tuple(range(1, 30)))


def median_found(parts):
    rms = np.sqrt(sum(np.sum(X**2) for X in parts) / sum(X.size for X in parts))
    top = sizes.top_exponent(rms)
    return sizes.median_of_counts(sum(sizes.count_finely(LocalData(X), top) for X in parts), top)


@every("scale", [1e-140, 1e-6, 1.0, 3e6, 1e140])
@every("name", ROWS)
def test_the_median_is_exact_up_to_the_width_of_a_bin(name, scale):
    X = scale * ROWS[name]
    true = np.median(np.abs(X))
    assert abs(np.log2(median_found([X]) / true)) <= 1 / 32
    if name in ("normal", "heavy tails", "far entries"):
        assert abs(median_found([X]) / true - 1) <= 2e-3  # interpolated within the bin


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ROWS)
def test_the_median_does_not_depend_on_who_holds_the_rows(name, kind):
    X, top = ROWS[name], sizes.top_exponent(np.sqrt(np.mean(ROWS[name] ** 2)))
    whole = sizes.count_finely(LocalData(X), top)
    assert whole.sum() == X.size
    for cuts in DEALT:
        counts = sum(sizes.count_finely(LocalData(kind(part)), top) for part in np.split(X, cuts))
        np.testing.assert_array_equal(counts, whole)


def test_single_precision_is_counted_as_it_is():
    X = ROWS["normal"].astype(np.float32)
    double = LocalData(X.astype(float))
    np.testing.assert_array_equal(sizes.count_finely(LocalData(X), 4), sizes.count_finely(double, 4))


def test_the_median_is_zero_if_most_entries_are_zero():
    X = np.zeros((9, 4))
    X[0] = 1.0
    assert median_found([X]) == 0.0
    X[1:5] = 1e-3
    assert median_found([X]) > 0.0
    assert median_found([np.zeros((3, 2))]) == 0.0


def test_no_median_is_above_the_bins_even_if_others_answer_than_were_counted_on():
    """Half of the entries at the median alone make up half of its square in the mean square."""
    X = np.where(RNG.random((40, 20)) < 0.6, 5.0, 0.0)
    for rms in (np.sqrt(np.mean(X**2)), 0.1 * np.sqrt(np.mean(X**2))):
        top = sizes.top_exponent(rms)
        counts = sizes.count_finely(LocalData(X), top)
        assert abs(np.log2(sizes.median_of_counts(counts, top) / 5.0)) <= 1 / 32
