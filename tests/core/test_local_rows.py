"""Test LocalData's promises about memory, bits, precision and refusals."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from builders import peak_memory
from cases import every

from flower_pca.base import linalg
from flower_pca.base.errors import DataError
from flower_pca.blocks import adapters, source
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame, Moments, merge_moments
from flower_pca.rows.local import LocalData

OPERATIONS = {
    "matmat by the Gram matrix": lambda data: data.matmat(linalg.random_basis(data.d, 4, 1), reuse=1000),
    "matmat without": lambda data: data.matmat(linalg.random_basis(data.d, 4, 1), reuse=0),
    "scores": lambda data: data.scores(linalg.random_basis(data.d, 1, 1)),
    "adjoint": lambda data: data.adjoint(linalg.random_block(data.n, 1, 2)),
    "gram": lambda data: data.gram(),
    "top": lambda data: data.leading_eigenpairs(3),
    "norm2": lambda data: data.norm2(),
    "moments": lambda data: (lambda m: (m.mean, m.m2))(data.moments()),
    "largest_absolute": lambda data: data.largest_absolute(),
    "squared_error": lambda data: data.squared_error(linalg.random_basis(data.d, 2, 1)),
}


def rows_of_type(n, d, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * 20 + rng.uniform(20, 90, d)).astype(dtype)


def saved_and_mapped(X, path):
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def frames_of(d):
    mean, scale = np.linspace(30, 60, d), np.linspace(1, 5, d)
    return {"none": Frame(), "mean": Frame(mean), "mean and scale": Frame(mean, scale)}


@pytest.mark.slow
@every("frame", ["none", "mean", "mean and scale"])
@every("dtype", ["float64", "float32", "uint8"])
@every("shape", [(100, 7), (5000, 20), (30, 600)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_memory_mapped_rows_give_the_very_bits_of_rows_in_memory(name, shape, dtype, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_BLOCK", 2**14)
    X, at = rows_of_type(*shape, dtype), frames_of(shape[1])[frame]
    on_disk = saved_and_mapped(X, tmp_path / "rows.npy")
    assert isinstance(on_disk, np.memmap)
    here, there = (OPERATIONS[name](LocalData(A).in_frame(at)) for A in (X, on_disk))
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (here, there)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "frame"), [("float64", "mean and scale"), ("uint8", "none")])
@every("name", ["open", *OPERATIONS])
def test_memory_of_a_pass_over_mapped_rows_is_bounded_by_the_block(name, dtype, frame, tmp_path, monkeypatch):
    d, n = 32, 2**15
    monkeypatch.setattr(source, "_BLOCK", 2**13)
    block = 8 * source._BLOCK
    X = saved_and_mapped(rows_of_type(n, d, dtype), tmp_path / "rows.npy")
    assert n * d > 100 * source._BLOCK
    data = LocalData(X).in_frame(frames_of(d)[frame])
    linalg.random_block(n, 1, 2), linalg.random_basis(d, 4, 1)  # The operands stay unchanged.
    with peak_memory() as peak:
        LocalData(X) if name == "open" else OPERATIONS[name](data)
    result = 2 * 8 * n if name == "scores" else 0
    # The newest block with what is being computed of it, the block before; and a few d x d matrices.
    assert peak() <= 6 * block + result + 8 * 8 * d * d


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("block", [2**20, 64])
def test_moments_are_exact_where_the_mean_dwarfs_the_deviation(kind, block, monkeypatch):
    monkeypatch.setattr(source, "_BLOCK", block)
    rng = np.random.default_rng(3)
    sd = np.array([1.0, 1e-3, 1e3, 1.0])
    X = rng.standard_normal((1000, 4)) * sd + np.array([1e5, -1e2, 1e8, 0.0])
    exact = X.astype(np.longdouble)
    mean = exact.mean(axis=0)
    m2 = ((exact - mean) ** 2).sum(axis=0)
    moments = LocalData(kind(X)).moments()
    # The mean is a float64: it is known to eps |mean|, which is 1e5 eps deviations.
    np.testing.assert_allclose(moments.mean, mean.astype(float), rtol=4 * np.finfo(float).eps, atol=1e-15)
    np.testing.assert_allclose(moments.m2, m2.astype(float), rtol=1e-10 if block == 64 else 1e-13)


def test_merged_moments_are_those_of_all_rows_in_exact_arithmetic():
    values = [[Fraction(v) for v in part] for part in ([3, 1, 4, 1], [5, 9], [2])]
    parts = []
    for part in values:
        mean = sum(part) / len(part)
        m2 = sum((v - mean) ** 2 for v in part)
        parts.append(Moments(len(part), np.array([float(mean)]), np.array([float(m2)])))
    everything = [v for part in values for v in part]
    mean = sum(everything) / len(everything)
    m2 = sum((v - mean) ** 2 for v in everything)
    a, b, c = parts
    for merged in (
        merge_moments(merge_moments(a, b), c),
        merge_moments(a, merge_moments(b, c)),
        merge_moments(c, merge_moments(b, a)),
    ):
        assert merged.n == 7
        assert merged.mean[0] == pytest.approx(float(mean), rel=1e-15)
        assert merged.m2[0] == pytest.approx(float(m2), rel=1e-15)


def with_entries(*entries, n=50, d=4):
    X = rows_of_type(n, d, "float64")
    for index, value in entries:
        X[index] = value
    return X


def test_entries_that_are_not_finite_are_counted_over_all_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(source, "_BLOCK", 64)
    X = with_entries(((0, 0), np.nan), ((30, 2), np.nan), ((49, 3), -np.inf))
    for kept in (X, saved_and_mapped(X, tmp_path / "rows.npy")):
        with pytest.raises(DataError, match=r"2 missing values \(NaN\) and 1 infinite value\."):
            LocalData(kept)


def test_huge_finite_entries_are_no_infinities():
    data = LocalData(np.full((4, 2), 1e308))
    np.testing.assert_array_equal(data.largest_absolute(), [1e308, 1e308])


@pytest.mark.parametrize("frame", ["none", "mean", "mean and scale"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("block", [48, 2**20])
def test_single_precision_rows_are_summed_in_double_precision(block, frame, kind, monkeypatch):
    monkeypatch.setattr(source, "_BLOCK", block)
    n = 2**16
    X = np.repeat(np.array([[70.0, 40.0, 50.0]]), n, axis=0).astype(np.float32)
    X[: n // 2] += np.float32(16.0)
    at = frames_of(3)[frame]
    Y = (X.astype(float) - (0.0 if at.mean is None else at.mean)) / (1.0 if at.scale is None else at.scale)
    product = LocalData(kind(X)).in_frame(at).matmat(np.eye(3), reuse=0)
    assert product.dtype == np.float32
    bound = 8 * np.finfo(np.float32).eps * (np.abs(Y).T @ np.abs(Y))  # The terms of a sum may cancel each other.
    assert (np.abs(product - Y.T @ Y) <= bound).all()


@every("dtype", [">f8", ">f4", ">i4", "<f8", "u1"])
def test_all_rows_at_once_are_a_copy_in_the_machines_own_order_of_bytes(dtype, tmp_path):
    X = np.arange(12).reshape(4, 3).astype(dtype)
    np.save(tmp_path / "rows.npy", np.asfortranarray(X))
    for given in (X, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        rows = LocalData(given).stored_array()
        assert type(rows) is np.ndarray
        assert rows.dtype == np.dtype(dtype).newbyteorder("=")
        assert rows.dtype.isnative
        assert rows.flags.writeable
        np.testing.assert_array_equal(rows, X)


@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_that_are_not_sorted_are_not_moved_before_a_run_asks_for_them(order, monkeypatch):
    """A frame keeps its order, and its mean has the bits of the mean of its array."""
    X = np.array(rows_of_type(3000, 12, np.float64), order=order)
    names = tuple(f"x{j}" for j in range(12))
    bare = LocalData(X).measured.approximate_mean
    moved = []
    monkeypatch.setattr(adapters, "columns_of_block", lambda block, columns: moved.append(1) or block[:, columns])
    sorted_rows = LocalData(Table(X, names))
    assert sorted_rows.names == tuple(sorted(names))
    assert np.array_equal(sorted_rows.arrange(names).measured.approximate_mean, bare)
    assert not moved
    assert np.allclose(sorted_rows.measured.approximate_mean, bare[np.argsort(names)], rtol=1e-14)
    X[1700, 3] = np.inf
    with pytest.raises(DataError, match="column x3"):
        LocalData(Table(X, names))
