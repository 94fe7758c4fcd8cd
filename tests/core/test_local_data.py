"""Test LocalData against plain numpy: every operation, every kind of rows, every frame."""

import numpy as np
import pytest
import scipy.sparse as sp
from builders import dense
from cases import every

from flower_pca.base import linalg
from flower_pca.blocks import source
from flower_pca.rows import local
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.measured import Measured

N, D = 137, 9


def counts(seed, n, d, high=200):
    """Whole numbers, three quarters of them zero: exact in every type, and a fair sparse matrix."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, high, (n, d)) * (rng.random((n, d)) < 0.25)


def reals(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, d) + rng.uniform(-2, 2, d)


def mapped(X, path, order="C"):
    file = np.memmap(path, dtype=X.dtype, mode="w+", shape=X.shape, order=order)
    file[:] = X
    file.flush()
    return np.memmap(path, dtype=X.dtype, mode="r", shape=X.shape, order=order)


KINDS = {
    "float64": lambda p: reals(1, N, D),
    "fortran": lambda p: np.asfortranarray(reals(1, N, D)),
    "strided": lambda p: reals(1, 2 * N, 2 * D)[::2, ::2],
    "big endian": lambda p: reals(1, N, D).astype(">f8"),
    "float32": lambda p: reals(1, N, D).astype(np.float32),
    "float16": lambda p: reals(1, N, D).astype(np.float16),
    "uint8": lambda p: counts(1, N, D).astype(np.uint8),
    "int16": lambda p: (counts(1, N, D) - 100).astype(np.int16),
    "int64": lambda p: counts(1, N, D) - 100,
    "bool": lambda p: counts(1, N, D) > 0,
    "list": lambda p: reals(1, N, D).tolist(),
    "memmap": lambda p: mapped(reals(1, N, D), p),
    "memmap fortran": lambda p: mapped(reals(1, N, D), p, order="F"),
    "memmap float32": lambda p: mapped(reals(1, N, D).astype(np.float32), p),
    "memmap uint8": lambda p: mapped(counts(1, N, D).astype(np.uint8), p),
    "csr_matrix": lambda p: sp.csr_matrix(counts(1, N, D).astype(float)),
    "csc_matrix": lambda p: sp.csc_matrix(counts(1, N, D).astype(float)),
    "coo_matrix": lambda p: sp.coo_matrix(counts(1, N, D).astype(float)),
    "csr_array": lambda p: sp.csr_array(counts(1, N, D).astype(float)),
    "csc_array": lambda p: sp.csc_array(counts(1, N, D).astype(float)),
    "coo_array": lambda p: sp.coo_array(counts(1, N, D).astype(float)),
    "csr float32": lambda p: sp.csr_array(counts(1, N, D).astype(np.float32)),
    "csr int16": lambda p: sp.csr_array(counts(1, N, D).astype(np.int16)),
    "csr bool": lambda p: sp.csr_matrix(counts(1, N, D) > 0),
    "csr unsorted twice": lambda p: twice(counts(1, N, D).astype(float)),
}
SINGLE = {"float32", "float16", "memmap float32", "csr float32"}


def twice(X):
    """A csr matrix that is not canonical: every entry is stored as two halves."""
    half = sp.coo_array(X / 2)
    parts = [np.concatenate([a, a[::-1]]) for a in (half.data, *half.coords)]
    order = np.argsort(parts[1], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(parts[1], minlength=len(X)))])
    return sp.csr_array((parts[0][order], parts[2][order], starts), shape=X.shape)


FRAMES = ["none", "mean", "scale", "mean and scale"]


def frame_of(name, X):
    """A frame near that of the rows, but not exactly theirs, as it is of all clients together."""
    rng = np.random.default_rng(2)
    mean = X.mean(axis=0) + 0.1 * rng.standard_normal(X.shape[1])
    scale = X.std(axis=0) * rng.uniform(0.5, 2.0, X.shape[1])
    return Frame(mean if "mean" in name else None, scale if "scale" in name else None)


def in_frame_of(X, frame):
    return (X - (0.0 if frame.mean is None else frame.mean)) / (1.0 if frame.scale is None else frame.scale)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=["one block", "many blocks", "kept"])
def blockwise(request, monkeypatch):
    """Rows in one block and copied anew, in blocks of 16, and in blocks of 16 of a kept copy."""
    if request.param != "one block":
        monkeypatch.setattr(source, "_BLOCK", 16 * D)
    if request.param == "kept":
        monkeypatch.setattr(local, "_SMALL", 0)


def assert_rounded(got, expected, size, eps):
    np.testing.assert_allclose(got, expected, rtol=0, atol=16 * eps * size)


@every("frame_name", FRAMES)
def test_every_operation_agrees_with_dense_numpy(kind, frame_name, blockwise, tmp_path):
    stored = KINDS[kind](tmp_path / "rows")
    raw = dense(stored)
    frame = frame_of(frame_name, raw)
    X, data = in_frame_of(raw, frame), LocalData(stored).in_frame(frame)
    eps = float(np.finfo(np.float32 if kind in SINGLE else np.float64).eps)
    rng = np.random.default_rng(3)
    Z, Y = np.linalg.qr(rng.standard_normal((D, 4)))[0], rng.standard_normal((N, 3))
    # Implicit centering of sparse rows cancels as far as the uncentered rows are longer.
    size = max(np.linalg.norm(X), np.linalg.norm(in_frame_of(raw, Frame(None, frame.scale))))

    assert (data.n, data.d) == (N, D)
    assert data.sparse == sp.issparse(stored)
    assert data.dtype == (np.float32 if kind in SINGLE else np.float64)
    for reuse in (0, 100):
        product = data.matmat(Z, reuse=reuse)
        assert product.dtype == data.dtype
        assert_rounded(product, X.T @ (X @ Z), size**2, eps)
    assert_rounded(data.scores(Z), X @ Z, size, eps)
    assert_rounded(data.adjoint(Y), X.T @ Y, size * np.linalg.norm(Y), eps)
    assert_rounded(data.gram(), X.T @ X, size**2, eps)
    assert_rounded(data.squared_error(Z), np.linalg.norm(X - X @ Z @ Z.T) ** 2, size**2, eps)
    V, values = data.leading_eigenpairs(4)
    assert_rounded(values, np.linalg.svd(X, compute_uv=False)[:4] ** 2, size**2, eps)
    assert_rounded(X.T @ (X @ V), V * values, size**2, eps)
    assert_rounded(V.T @ V, np.eye(4), 1.0, 16 * eps)
    assert values[0] * 0.9 <= data.norm2() <= np.linalg.norm(X, 2) ** 2 * (1 + 16 * eps)


def test_moments_and_peak_are_those_of_the_stored_rows(kind, blockwise, tmp_path):
    stored = KINDS[kind](tmp_path / "rows")
    X = dense(stored)
    for data in (LocalData(stored), LocalData(stored).in_frame(frame_of("mean and scale", X))):
        moments = data.moments()
        assert moments.n == N
        np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-13, atol=1e-15 * np.abs(X).max())
        np.testing.assert_allclose(moments.m2, ((X - X.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-13)
        np.testing.assert_array_equal(data.largest_absolute(), np.abs(X).max(axis=0))


@pytest.mark.parametrize("shape", [(5, 5000), (400, 7)])
def test_gram_matrix_is_formed_only_where_it_saves_work(shape, monkeypatch):
    data = LocalData(reals(6, *shape))
    formed, spread = [], Measured.scatter
    monkeypatch.setattr(Measured, "scatter", lambda self: formed.append(shape) or spread(self))
    data.matmat(np.ones((shape[1], 2)), reuse=50)
    assert bool(formed) == (shape[1] == 7)


@pytest.mark.parametrize("frame_name", FRAMES)
def test_sparse_rows_are_never_densified(frame_name, monkeypatch):
    raw = counts(7, N, D).astype(float)
    rows = [sp.csr_matrix(raw), sp.csc_matrix(raw), sp.csr_array(raw), sp.coo_array(raw)]
    frame = frame_of(frame_name, raw)
    # So that the rows are several blocks.
    monkeypatch.setattr(Measured, "block_rows", 16)

    for kind in {c for S in rows for c in (type(S), type(S.tocsr()))}:
        for name in ("toarray", "todense"):
            original = getattr(kind, name)

            def refuse(self, *args, original=original, **kwargs):
                whole = self.ndim == 2 and min(self.shape) > 1 and N in self.shape
                assert not whole, "a whole sparse matrix was densified"
                return original(self, *args, **kwargs)

            monkeypatch.setattr(kind, name, refuse)
    with pytest.raises(AssertionError, match="densified"):
        rows[0].toarray()
    Z = linalg.random_basis(D, 3, 8)
    for S in rows:
        data = LocalData(S).in_frame(frame)
        results = [data.matmat(Z), data.scores(Z), data.adjoint(data.scores(Z)), data.gram(), data.largest_absolute()]
        assert all(
            np.isfinite(a).all() for a in [*results, *data.leading_eigenpairs(3), data.squared_error(Z), data.norm2()]
        )


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("direct", [True, False])
def test_top_stops_at_the_rank_of_the_rows(shape, sparse, direct, monkeypatch):
    if not direct:
        monkeypatch.setattr(local, "DIRECT", 4)
    rng = np.random.default_rng(9)
    X = rng.integers(-3, 4, (shape[0], 3)) @ rng.integers(-3, 4, (3, shape[1])).astype(float)
    V, values = LocalData(sp.csr_array(X) if sparse else X).leading_eigenpairs(6)
    assert V.shape == (shape[1], 3)
    np.testing.assert_allclose(values, np.linalg.svd(X, compute_uv=False)[:3] ** 2, rtol=1e-12)
    np.testing.assert_allclose(X @ V @ V.T, X, atol=1e-12 * np.linalg.norm(X))


def test_top_of_zero_rows_is_empty():
    V, values = LocalData(np.zeros((4, 3))).leading_eigenpairs(2)
    assert V.shape == (3, 0)
    assert values.shape == (0,)


@every("k", [1, 8, 9, 20])
@every("sparse", [False, True])
def test_top_takes_any_number_of_components(k, sparse):
    X = counts(10, 40, 9).astype(float)
    V, values = LocalData(sp.csr_array(X) if sparse else X).leading_eigenpairs(k)
    assert V.shape == (9, min(k, 9))
    np.testing.assert_allclose(values, np.linalg.svd(X, compute_uv=False)[:k] ** 2, rtol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-13)


@every("shape", [(50, 6), (6, 50)])
@every("shift", [0.0, 3.0])
def test_norm2_converges_to_the_largest_eigenvalue_from_below(shape, shift):
    rng = np.random.default_rng(11)
    U, V = (np.linalg.qr(rng.standard_normal((side, 5)))[0] for side in shape)
    X = U * np.array([10.0, 9.9, 3.0, 2.0, 1.0]) @ V.T + shift
    exact = np.linalg.norm(X, 2) ** 2
    assert LocalData(X).norm2() == pytest.approx(exact, rel=1e-10)  # (3rd or 5th / first)^(2 * 19), at the least
    assert LocalData(X).norm2(steps=1) <= exact


def test_framed_rows_are_kept_for_the_newest_frame_only():
    view = local.FrameView(LocalData(reals(12, 30, 4)))
    first, second = Frame(np.ones(4)), Frame(np.zeros(4))
    framed = view.in_frame(first)
    assert view.in_frame(Frame(np.ones(4))) is framed
    assert view.in_frame(second) is not framed
    assert view.in_frame(first) is not framed
    assert list(Frame(np.ones(4)).arrays) == ["mean"]
    assert not first.maps_rows_alike(Frame())


def test_a_frame_changes_nothing_of_the_rows_that_are_seen_in_it():
    data, frame = LocalData(reals(12, 30, 4)), Frame(np.ones(4))
    before = dict(vars(data))
    for _ in range(2):
        seen = data.in_frame(frame, copy=True)
        seen.matmat(np.eye(4), reuse=0)
        seen.gram()
        assert data.in_frame(frame) is not seen
    assert vars(data).keys() == before.keys()
    assert all(vars(data)[name] is before[name] for name in before)
    assert data.frame.maps_rows_alike(Frame())


def test_rows_given_are_not_written_to():
    X = reals(13, 60, 5)
    before = X.copy()
    X.flags.writeable = False
    data = LocalData(X).in_frame(Frame(X.mean(axis=0), X.std(axis=0)))
    for act in (
        data.gram,
        data.moments,
        data.largest_absolute,
        data.norm2,
        lambda: data.matmat(np.eye(5)),
        lambda: data.leading_eigenpairs(2),
    ):
        act()
    np.testing.assert_array_equal(X, before)
