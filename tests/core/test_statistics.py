"""Test fixed statistics against numpy's products, exact fractions, and Python's integers."""

from dataclasses import astuple
from fractions import Fraction

import numpy as np
import pytest
from builders import peak_memory
from cases import every
from scipy import sparse

from flower_pca.base.errors import DataError
from flower_pca.blocks.source import Stored
from flower_pca.rows import statistics, whole_numbers
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.whole_numbers import GridRows

KINDS = {
    "dense": np.asarray,
    "single": lambda X: X.astype(np.float32),
    "sparse": sparse.csr_array,
    "fortran": np.asfortranarray,
}


def table_with_gaps(n, d=8, seed=0, gaps=0.0):
    rng = np.random.default_rng([seed, n])
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal(d)) + rng.standard_normal(d)
    X[rng.random((n, d)) < 0.3] = 0.0
    X = X.astype(np.float32).astype(np.float64)
    X[rng.random((n, d)) < gaps] = np.nan
    if gaps:
        X[:, 2] = np.nan
    return X


FRAMES = {"none": lambda r, d: Frame(), "both": lambda r, d: Frame(r.standard_normal(d), np.exp(r.standard_normal(d)))}


@pytest.mark.slow
@every("frame", FRAMES)
@every("n", [1, 2, 5, 7, 8, 9, 200])
@every("kind", KINDS)
def test_what_is_asked_of_statistics_is_what_rows_say(kind, n, frame):
    X, rng = table_with_gaps(n), np.random.default_rng(1)
    d, frame = X.shape[1], FRAMES[frame](rng, X.shape[1])
    F = (X - (0.0 if frame.mean is None else frame.mean)) / (1.0 if frame.scale is None else frame.scale)
    data = FixedData.of_rows(LocalData(KINDS[kind](X)).in_frame(frame))
    Z = np.linalg.qr(rng.standard_normal((d, 3)))[0]
    size = np.linalg.norm(F) ** 2 + 1e-300
    bound = {"rtol": 0, "atol": 1e-14 * size}
    np.testing.assert_allclose(data.matmat(Z), F.T @ (F @ Z), **bound)
    np.testing.assert_allclose(data.gram(), F.T @ F, **bound)
    np.testing.assert_allclose(data.root().T @ data.root(), F.T @ F, **bound)
    np.testing.assert_allclose(data.squared_error(Z), np.sum((F - F @ Z @ Z.T) ** 2), **bound)
    along, adjoint = data.sketch(Z)
    np.testing.assert_allclose(along.T @ along, Z.T @ F.T @ F @ Z, **bound)
    np.testing.assert_allclose(adjoint(along), F.T @ (F @ Z), **bound)
    V, values = data.leading_eigenpairs(3)
    # Beyond the rank there may be rounding errors.
    known = np.append(np.linalg.svd(F, compute_uv=False) ** 2, np.zeros(3))
    np.testing.assert_allclose(values, known[: len(values)], **bound)
    np.testing.assert_allclose(data.gram() @ V, V * values, rtol=0, atol=1e-11 * size)
    assert 0.9 * values[0] <= data.norm2() <= np.linalg.norm(F, 2) ** 2 * (1 + 1e-12) + bound["atol"]
    moments, pair = data.moments(), data.local_product(Z)
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(moments.m2, np.sum((X - X.mean(axis=0)) ** 2, axis=0), rtol=1e-10, atol=1e-11)
    about = X - X.mean(axis=0)
    np.testing.assert_allclose(pair[1], about.T @ (about @ Z), rtol=0, atol=1e-11 * (1 + np.linalg.norm(X)) ** 2)
    np.testing.assert_array_equal(data.largest_absolute(), np.abs(X).max(axis=0))


@pytest.mark.parametrize("own", [False, True], ids=["mean", "local_mean"])
@pytest.mark.parametrize("n", [5, 12, 60])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_gaps_are_filled_as_the_frame_says(kind, n, own):
    X, rng = table_with_gaps(n, gaps=0.2), np.random.default_rng(2)
    d = X.shape[1]
    frame = Frame(rng.standard_normal(d), np.exp(rng.standard_normal(d)), rng.standard_normal(d), own)
    there = ~np.isnan(X)
    mean = np.where(there, X, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    fill = np.where(there.any(axis=0), mean, frame.fill) if own else frame.fill
    F = (np.where(there, X, fill) - frame.mean) / frame.scale
    rows = LocalData(KINDS[kind](X), missing=True).in_frame(frame)
    Z = np.linalg.qr(rng.standard_normal((d, 3)))[0]
    for data in (rows, FixedData.of_rows(rows, gaps=not own)):
        size = np.linalg.norm(F) ** 2
        np.testing.assert_allclose(data.matmat(Z), F.T @ (F @ Z), rtol=0, atol=1e-12 * size)
        np.testing.assert_allclose(data.squared_error(Z), np.sum((F - F @ Z @ Z.T) ** 2), rtol=0, atol=1e-12 * size)
        np.testing.assert_allclose(data.root().T @ data.root(), F.T @ F, rtol=0, atol=1e-12 * size)
        moments = data.moments()
        seen = np.where(there.any(axis=0), n, 0) if own else there.sum(axis=0)
        np.testing.assert_array_equal(np.broadcast_to(moments.value_counts, d), seen)
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-12, atol=1e-13)


@every("far", [0.0, 1e3, 1e9])
def test_sparse_columns_that_would_cancel_are_centered_first(far):
    rng = np.random.default_rng(3)
    X = rng.integers(-3, 4, (300, 6)) * (rng.random((300, 6)) < 0.4).astype(float)
    X[:, 1] += far
    X[:, 4] = 7.0
    C = statistics.measure_statistics(LocalData(sparse.csr_array(X)).measured).scatter
    about = X - X.mean(axis=0)
    np.testing.assert_allclose(C, about.T @ about, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(C, C.T)


# ---- whole numbers


def in_whole_numbers(rows):
    """The rows on the grid of 2^-26, and its units, in Python's whole numbers."""
    units = np.frexp(np.abs(rows).max(axis=0))[1] - 26
    return [[round(Fraction(x) / Fraction(2) ** int(u)) for x, u in zip(r, units, strict=True)] for r in rows], units


@every("shape", [(40, 7), (3, 30), (1, 1), (300, 2)])
def test_products_of_large_sparse_rows_are_those_of_whole_numbers(shape):
    rng = np.random.default_rng(shape)
    X = np.where(rng.random(shape) < 0.6, rng.standard_normal(shape) * 10.0 ** rng.integers(-5, 5, shape[1]), 0.0)
    X[0] = 1.0
    S, units = in_whole_numbers(X)
    rows = GridRows(LocalData(sparse.csr_array(X)).measured, np.zeros(shape[1]), "the client")
    W = rng.integers(-(2**52), 2**52, (shape[1], 2))
    W[0, 0], W[-1, -1] = 2**52, -(2**52)
    words = rows.product_of_integers(W)
    entries = [(j, c) for j in range(shape[1]) for c in range(2)]
    found = [sum(int(w[place]) << (rows._bits * k) for k, w in enumerate(words)) for place in entries]
    across = [[sum(s * int(w) for s, w in zip(r, W[:, c], strict=True)) for c in range(2)] for r in S]
    assert found == [sum(S[i][j] * across[i][c] for i in range(len(S))) for j, c in entries]
    Z = rng.standard_normal((shape[1], 2)) * 10.0 ** rng.integers(-3, 3, (shape[1], 1))
    grid = np.array(S, dtype=np.float64) * 2.0**units
    wanted = grid.T @ (grid @ Z)
    np.testing.assert_allclose(rows.scatter_product(Z), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    np.testing.assert_allclose(rows.mean, grid.mean(axis=0), rtol=1e-15)
    squares = [float(sum(r[j] ** 2 for r in S)) for j in range(shape[1])]
    np.testing.assert_array_equal(rows.squares, squares * 2.0 ** (2 * units))


@pytest.mark.slow
@pytest.mark.parametrize("ones", [2**10, 2**20])
def test_nothing_wraps_at_the_limits_of_the_limbs(ones):
    """Every entry, of rows and of the block, as large as it can be, in as long a column."""
    S = sparse.csr_array(np.ones((ones, 1)))
    rows = GridRows(LocalData(S).measured, np.zeros(1), "the client")
    words = rows.product_of_integers(np.array([[2**52]]))
    total = sum(int(w[0, 0]) << (rows._bits * k) for k, w in enumerate(words))
    assert total == ones * (2**25) ** 2 * 2**52  # 1 is half of the power of two above it
    np.testing.assert_array_equal(rows.scatter_product(np.array([[3.0]])), [[3.0 * ones]])


def test_limbs_that_do_not_fit_are_refused_in_words(monkeypatch):
    monkeypatch.setattr(whole_numbers, "_SUM", whole_numbers._ENTRY + 3)
    with pytest.raises(DataError) as caught:
        GridRows(LocalData(sparse.csr_array(np.ones((9, 2)))).measured, np.zeros(2), "this node")
    wanted = "The table of this node is too large for exact products: one row or column has 9 entries. "
    assert str(caught.value).startswith(wanted)


class SparseFile(Stored):
    """Sparse rows of which one piece at a time is in memory. `far` is the mean of a column without zeros."""

    sparse, shape, dtype, count = True, (60_000, 50), np.dtype(np.float64), 60

    def __init__(self, far=0.0):
        self.far = far

    def pieces(self):
        n, d = self.shape[0] // self.count, self.shape[1]
        for seed in range(self.count):
            rng = np.random.default_rng(seed)
            rows = np.where(rng.random((n, d)) < 0.2, rng.standard_normal((n, d)), 0.0)
            if self.far:
                rows[:, 3] = self.far + rng.standard_normal(n)
            yield sparse.csr_array(rows)


@pytest.mark.parametrize("largest", [statistics._LARGEST, 10], ids=["scatter", "whole numbers"])
@every("far", [0.0, 1e6])
def test_statistics_of_sparse_rows_in_a_file_hold_one_piece_of_them_at_a_time(far, largest, monkeypatch):
    monkeypatch.setattr(statistics, "_LARGEST", largest)
    file = SparseFile(far)
    whole = sparse.csr_array(sparse.vstack(list(file.pieces())))
    Z = np.random.default_rng(1).standard_normal((50, 2))
    with peak_memory() as peak:
        found = FixedData.of_rows(LocalData(file)).matmat(Z)
    assert peak() < 0.4 * (whole.data.nbytes + whole.indices.nbytes)
    X = whole.toarray()
    np.testing.assert_allclose(found, X.T @ (X @ Z), rtol=0, atol=1e-6 * np.linalg.norm(X) ** 2)
    in_memory = FixedData.of_rows(LocalData(whole))
    if largest == 10:
        np.testing.assert_array_equal(found, in_memory.matmat(Z))
    else:
        assert in_memory._T.scatter is not None
        size = np.sqrt(np.diagonal(in_memory._T.scatter))
        between = np.abs(FixedData.of_rows(LocalData(file))._T.scatter - in_memory._T.scatter)
        assert (between <= 1e-13 * np.outer(size, size)).all()


@pytest.mark.parametrize("frame", FRAMES)
def test_large_sparse_rows_answer_as_small_ones_do(frame, monkeypatch):
    X, rng = table_with_gaps(90, seed=7), np.random.default_rng(8)
    rows, frame = LocalData(sparse.csr_array(X)), FRAMES[frame](rng, 8)
    small = FixedData.of_rows(rows.in_frame(frame))
    monkeypatch.setattr(statistics, "_LARGEST", 10)
    big = FixedData.of_rows(LocalData(sparse.csr_array(X)).in_frame(frame))
    assert big._whole is not None
    Z = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    size = np.linalg.norm(small.matmat(Z))
    for of in (lambda data: data.matmat(Z), lambda data: data.squared_error(Z),
               lambda data: data.leading_eigenpairs(3)[1],
               lambda data: data.norm2(), lambda data: data.moments().m2, lambda data: data.local_product(Z)[1],
               lambda data: data.sketch(Z)[1](data.sketch(Z)[0])):  # fmt: skip
        np.testing.assert_allclose(of(big), of(small), rtol=0, atol=1e-6 * size)
    with pytest.raises(DataError, match=r"The 90 rows and 8 columns of the client are too many for this"):
        big.gram()


@pytest.mark.parametrize(("n", "d"), [(12, 200_000), (150, 40_000)])
def test_statistics_of_wide_rows_take_the_memory_of_the_rows_once_more(n, d):
    data = LocalData(np.random.default_rng(0).standard_normal((n, d))).measured
    data.observed_moments()
    with peak_memory() as peak:
        statistics.measure_statistics(data)
        assert peak() < (n + 8) * d * 8 + 2**24


def test_pieces_without_rows_change_nothing():
    X = np.random.default_rng(3).standard_normal((20, 4))

    class Cut(Stored):
        sparse, shape, dtype = True, X.shape, X.dtype

        def pieces(self):
            return (sparse.csr_array(X[start:end]) for start, end in ((0, 0), (0, 0), (0, 20), (20, 20)))

    def measured(rows):
        return astuple(statistics.measure_statistics(LocalData(rows).measured))

    for found, wanted in zip(*map(measured, (Cut(), sparse.csr_array(X))), strict=True):
        np.testing.assert_array_equal(found, wanted)
