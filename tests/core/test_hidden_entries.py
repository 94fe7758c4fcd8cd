"""Test hidden entries and coarse bins of sizes against numpy, whichever client holds the rows."""

import numpy as np
import pytest
from cases import every
from scipy import sparse

from flower_pca.algorithms.robust import base, sizes
from flower_pca.algorithms.robust.proof import pair_products, unpack_symmetric, weak_rows
from flower_pca.rows.local import LocalData

X = np.random.default_rng(8).standard_normal((300, 40))


def hidden_places(data, seed=1, share=0.05):
    return base.unseen_entries(data, seed=seed, share=share).hidden


def test_the_stated_share_of_entries_is_hidden_everywhere():
    mask = np.zeros(X.size, dtype=bool)
    mask[hidden_places(LocalData(X))] = True
    mask = mask.reshape(X.shape)
    assert abs(mask.mean() - 0.05) <= 4 * np.sqrt(0.05 * 0.95 / X.size)
    assert mask.sum(axis=0).max() <= 40
    assert mask.sum(axis=1).max() <= 12
    assert not np.array_equal(hidden_places(LocalData(X)), hidden_places(LocalData(X), seed=2))
    assert base.hidden_share(80, 80) == 0.02
    assert base.hidden_share(10, 10) == 0.1


@pytest.mark.parametrize("cuts", [(1, 2, 30), tuple(range(1, 300))])
def test_the_same_entries_are_hidden_however_rows_are_dealt_out(cuts):
    parts, start, found = np.split(X, cuts), 0, []
    for part in parts:
        found.append(hidden_places(LocalData(part)) + start)
        start += part.size
    np.testing.assert_array_equal(np.concatenate(found), hidden_places(LocalData(X)))


@every("kind", [sparse.csr_array, lambda A: A.astype(np.float32), lambda A: 1e8 * A, lambda A: A / 3])
def test_hidden_entries_do_not_depend_on_storage_and_units(kind):
    rows = X.astype(np.float32).astype(float)  # rounded, so that single precision gives the same numbers
    np.testing.assert_array_equal(hidden_places(LocalData(kind(rows))), hidden_places(LocalData(rows)))


def test_equal_rows_hide_other_entries():
    found = hidden_places(LocalData(np.ones((200, 40))), share=0.1)
    assert np.bincount(found % 40, minlength=40).max() <= 45


def test_gaps_are_not_hidden():
    rng = np.random.default_rng(8)
    rows = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    found = base.unseen_entries(LocalData(rows, missing=True), seed=1, share=0.05)
    np.testing.assert_array_equal(found.gaps, np.flatnonzero(np.isnan(rows)))
    assert np.intersect1d(found.gaps, found.hidden).size == 0
    gaps, of_rows = found.of_rows(10, 20)
    np.testing.assert_array_equal(gaps, np.flatnonzero(np.isnan(rows[10:20])))
    assert ((of_rows >= 0) & (of_rows < 400)).all()


@every("top", [-3, 4, 20])
@every("deviation", [1e-9, 0.03, 7.0])
def test_the_size_of_ordinary_entries_is_seen_beside_far_ones(deviation, top):
    rng = np.random.default_rng(8)
    R = deviation * 2.0**top / 16 * rng.standard_normal(20_000)
    far = np.where(rng.random(R.shape) < 0.1, 2.0**top, R) if deviation < 1.0 else R
    assert sizes.standard_deviation(sizes.count_coarsely(R, top), top) == pytest.approx(np.std(R), rel=0.03)
    assert sizes.standard_deviation(sizes.count_coarsely(far, top), top) == pytest.approx(np.std(R), rel=0.15)
    lam = 2.0 * np.std(R)
    C = np.where(np.abs(R) > 1.5 * lam, 0.0, np.clip(R, -lam, lam))
    assert sizes.clipped_squares(sizes.count_coarsely(R, top), top, lam, 1.5) == pytest.approx(np.sum(C**2), rel=0.03)


@every("top", [-40, 0, 7])
@every("dtype", [np.float32, np.float64])
def test_an_entry_has_its_bin_in_its_own_bits(dtype, top):
    rng = np.random.default_rng(8)
    R = (rng.choice([-1.0, 1.0], 5000) * 2.0 ** rng.uniform(top - 65, top + 5, 5000)).astype(dtype)
    R[:4] = 0.0, 2.0**top, 1.25 * 2.0 ** (top - 3), 2.0 ** (top - 60)
    quarters = np.outer(2.0 ** np.arange(top - 60.0, top), [1.0, 1.25, 1.5, 1.75]).ravel()
    places = np.searchsorted(quarters, np.abs(R.astype(float)), side="right")
    places[np.abs(R) >= 2.0**top] = sizes.BINS - 1
    np.testing.assert_array_equal(sizes.count_coarsely(R, top), np.bincount(places, minlength=sizes.BINS))


def test_counts_add_up_and_nothing_is_of_size_nothing():
    whole = sizes.count_coarsely(X, 4)
    np.testing.assert_array_equal(sum(sizes.count_coarsely(part, 4) for part in np.split(X, (3, 100))), whole)
    assert whole.sum() == X.size
    assert sizes.standard_deviation(np.zeros(sizes.BINS), 4) == 0.0


@pytest.mark.parametrize("r", [3, 20])
def test_rows_are_weak_where_their_least_eigenvalue_is(r):
    """Power steps, beyond 16 columns, take few of the weakest rows for determined; without them none is."""
    weakest = missed = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.standard_normal((60, r)))[0]
        W = (rng.random((50, 60)) < np.linspace(0.05, 1.0, 50)[:, None]).astype(float)
        least = np.array([np.linalg.eigvalsh((Q * w[:, None]).T @ Q)[0] for w in W])
        found = weak_rows(W, Q)
        assert found[least < 0.05].all() or r > 16
        assert not found[least > 0.11].any()
        weakest += int((least < 0.01).sum())
        missed += int((~found[least < 0.01]).sum())
    assert missed == 0 if r <= 16 else missed <= 0.02 * weakest


def test_pairs_are_halves_of_squares():
    rng = np.random.default_rng(8)
    A = rng.standard_normal((5, 4))
    np.testing.assert_array_equal(unpack_symmetric(pair_products(A), 4), A[:, :, None] * A[:, None, :])
