"""Test the memory of a run besides its rows: no framed copies, and exact products."""

import tracemalloc

import numpy as np
import pytest
from builders import peak_memory, sparse_random
from cases import every

from flower_pca import assembly, simulate
from flower_pca.algorithms.covariance import Covariance, pack_triangle
from flower_pca.blocks import source
from flower_pca.core.drive import drive
from flower_pca.names.table import Table
from flower_pca.rows import gram, local
from flower_pca.rows.frame import Frame, gram_saves_time
from flower_pca.rows.local import LocalData
from flower_pca.rows.measured import Measured
from flower_pca.simulation.backend import Shards

WIDE, TALL = (12, 1200, 300), (12, 9000, 40)  # shapes for which X'X does not pay, and does


def large_shards(shape, dtype, *, mean=1.0):
    clients, n, d = shape
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((n, d)) * np.linspace(3.0, 0.3, d) + 4.0 * mean) for _ in range(clients)]
    return [(np.clip(8.0 * X, 0, 255) if np.dtype(dtype).kind == "u" else X).astype(dtype) for X in rows]


def peak_of(run):
    run()  # Load what is imported on first use.
    with peak_memory() as peak:
        run()
    return peak()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [WIDE, TALL], ids=["wide", "tall"])
@pytest.mark.parametrize("mean", [0.1, 1e4])
def test_a_run_on_rows_in_double_precision_holds_a_seventh_of_them_more_at_most(shape, mean):
    parts = large_shards(shape, np.float64, mean=mean)
    size = sum(X.nbytes for X in parts)
    assert peak_of(lambda: simulate("krylov", parts, n_components=2, max_rounds=4)) <= 0.15 * size


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_a_run_on_other_rows_holds_a_few_blocks_of_them_framed(dtype):
    parts = large_shards(WIDE, dtype)
    block = 8 * source._BLOCK
    assert (
        peak_of(lambda: simulate("krylov", parts, n_components=2, max_rounds=4))
        <= 2 * block + 0.05 * 8 * 12 * 1200 * 300
    )


@every("far", [0.0, 1.0, 1e8])
@every("scaled", [False, True])
def test_products_are_right_whether_the_mean_is_taken_off_them_or_off_the_rows(far, scaled):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((700, 120)) + far
    scale = np.linspace(0.5, 2.0, 120) if scaled else None
    frame = Frame(mean=X.mean(axis=0) + 0.25, scale=scale)
    data = LocalData(X).in_frame(frame)
    assert data._frame_is_implicit == (far < 1e8)
    whole = (X - frame.mean) / (1.0 if scale is None else scale)
    Z = np.linalg.qr(rng.standard_normal((120, 3)))[0]
    size = np.linalg.norm(whole) ** 2
    assert np.allclose(data.matmat(Z, reuse=1), whole.T @ (whole @ Z), rtol=0, atol=1e-14 * size)
    assert np.allclose(data.scores(Z), whole @ Z, rtol=0, atol=1e-14 * np.sqrt(size))
    assert np.allclose(data.adjoint(whole @ Z), whole.T @ (whole @ Z), rtol=0, atol=1e-14 * size)


def test_a_few_rows_far_out_do_not_hide_that_the_mean_is_far_from_most():
    X = np.full((640, 100), 1e6) + np.random.default_rng(2).standard_normal((640, 100))
    X[::10] *= 1e9
    assert not local.is_near_mean(Frame(mean=np.full(100, 1e6)), X)


@pytest.mark.parametrize("far", [1.0, 1e8])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_gram_matrix_about_the_own_mean_serves_every_frame(far, scaled, monkeypatch):
    monkeypatch.setattr(source, "_BLOCK", 200)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((900, 6)) + far
    scale = np.linspace(0.5, 2.0, 6) if scaled else None
    frame = Frame(mean=X.mean(axis=0) + 0.25, scale=scale)
    data = LocalData(X).in_frame(frame)
    whole = (X - frame.mean) / (1.0 if scale is None else scale)
    Z = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    assert np.allclose(data.matmat(Z), whole.T @ (whole @ Z), rtol=1e-12, atol=1e-13 * far)
    assert np.allclose(data.gram(), whole.T @ whole, rtol=1e-12, atol=1e-13 * far)


def test_tall_rows_are_passed_over_once_after_they_are_checked(monkeypatch):
    passes = []
    blocks = Measured.stored_blocks
    monkeypatch.setattr(Measured, "stored_blocks", lambda self: passes.append(self) or blocks(self))
    run = assembly.run(assembly.config("krylov", n_components=2))
    result = drive(run, Shards([LocalData(X) for X in large_shards((3, 2000, 20), np.float64)]))
    assert len(result.history) > 2
    assert len(passes) == 2 * 3


@pytest.mark.parametrize("gap", [False, True])
def test_columns_in_any_order_are_passed_over_as_often_as_sorted_ones(gap, monkeypatch):
    passes = []
    blocks = Measured.stored_blocks
    monkeypatch.setattr(Measured, "stored_blocks", lambda self: passes.append(self) or blocks(self))
    rows = large_shards((1, 2000, 20), np.float64)[0]
    if gap:
        rows[7, 3] = np.nan

    def passes_of(names):
        passes.clear()
        data = LocalData(Table(rows, names), missing=True).arrange(names)
        assert np.allclose(data.moments().mean, np.nanmean(rows, axis=0), rtol=1e-12, atol=0.0)
        return len(passes), data.missing

    names = tuple(f"c{j:02d}" for j in range(20))
    assert passes_of(names) == passes_of(names[::-1]) == (2 + gap, gap)


@pytest.mark.slow
@every("dtype", [np.float64, np.float32, np.int32])
@every("far", [0.0, 1e6, 1e8])
@every("reuse", [0, 1000])
def test_products_of_rows_far_from_zero_keep_the_digits_of_their_deviations(reuse, far, dtype):
    far, room = (far, 1e-13) if dtype != np.float32 else (far * 1e-4, 1e-6)
    X = (32.0 * np.random.default_rng(4).standard_normal((3000, 30)) + far).astype(dtype)
    whole = X.astype(np.longdouble)
    mean = whole.mean(axis=0).astype(np.float64) + 0.5
    data = LocalData(X).in_frame(Frame(mean=mean))
    Z = np.linalg.qr(np.random.default_rng(5).standard_normal((30, 4)))[0].astype(data.dtype)
    exact = ((whole - mean).T @ ((whole - mean) @ Z)).astype(np.float64)
    assert np.abs(data.matmat(Z, reuse=reuse) - exact).max() <= room * np.abs(exact).max()
    moments, product = data.local_product(Z)
    about = (whole - whole.mean(axis=0)).astype(np.float64)
    assert np.abs(product - about.T @ (about @ Z)).max() <= room * np.abs(exact).max()
    assert np.allclose(moments.m2, (about**2).sum(axis=0), rtol=1e-13, atol=0.0)


def test_the_gram_matrix_is_small_beside_the_rows_or_in_any_case():
    for n, d in [(400, 50), (1_000, 120), (1_700, 200), (2_000, 100), (900, 150), (60, 60), (448, 224)]:
        assert not gram_saves_time(n, d, 7, 4) or d * d <= max(n * d / 2, 2**14)
    assert gram_saves_time(25_000, 50, 7, 4)
    assert gram_saves_time(3_750, 200, 7, 4)
    assert not gram_saves_time(1_250, 784, 7, 4)
    assert gram_saves_time(1_250, 784, 52, 8)
    assert not gram_saves_time(780, 784, 52, 8)
    assert not gram_saves_time(100, 101, 7, 1000)


def test_the_gram_matrix_of_a_frame_is_not_kept_beside_that_about_the_own_mean():
    n, d = 1200, 1000
    data = LocalData(np.random.default_rng(0).standard_normal((n, d))).in_frame(Frame(np.ones(d)))
    data.measured.scatter()
    tracemalloc.start()
    try:
        data.gram()
        assert tracemalloc.get_traced_memory()[0] < 8 * d * d
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("share", [0.01, 0.06])
def test_the_gram_matrix_of_sparse_rows_takes_no_memory_for_entries_that_are_not_stored(share):
    n, d = 40_000, 300
    rows = sparse_random(np.random.default_rng(0), n, d, share)
    stored_bytes = 12 * rows.nnz
    most = peak_of(lambda: LocalData(rows).gram())
    assert most <= 8 * 2 * d * d + 4 * stored_bytes + 2 * gram._PRODUCTS < 8 * n * d


def test_a_client_keeps_no_gram_matrix_of_sparse_rows_after_the_message_of_covariance():
    n, d = 2_000, 300
    rows = sparse_random(np.random.default_rng(0), n, d, 0.01)
    arrays = {"columns": np.array(d)}
    before, _ = Covariance.client(arrays, LocalData(rows), {})
    data = LocalData(rows)
    tracemalloc.start()
    try:
        Covariance.client(arrays, data, {})
        assert tracemalloc.get_traced_memory()[0] < d * d
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(before["C"], pack_triangle(data.gram()))


def test_the_gram_matrix_of_dense_rows_takes_no_square_matrix_for_each_block():
    n, d = 1200, 1000
    rows = np.random.default_rng(0).standard_normal((n, d))
    one = 8 * d * d
    assert one <= peak_of(lambda: LocalData(rows).in_frame(Frame()).gram()) <= 2.2 * one


@pytest.mark.parametrize("algorithm", ["auto", "covariance"])
def test_sites_of_fewer_rows_than_columns_keep_no_square_matrix(algorithm):
    sites, n, d = 400, 20, 100
    parts = list(np.random.default_rng(0).standard_normal((sites, n, d)) * np.linspace(3.0, 0.3, d))
    more = peak_of(lambda: simulate(algorithm, parts, n_components=2))
    assert more <= sites * 8 * d * d / 6
