"""Test adapters of sources: the same rows and blocks as numpy, without reading them whole."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from cases import every

from flower_pca import simulate
from flower_pca.base.errors import DataError
from flower_pca.blocks import adapters, source
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

N, D = 300, 7
X = np.random.default_rng(0).standard_normal((N, D)) * np.arange(D, 0, -1) + 0.5


class Dataset:
    """What a dataset of an HDF5 file can do: slices of rows, and no more. It notes what is read."""

    def __init__(self, rows, chunk=None):
        self._rows, self.shape, self.dtype, self.ndim = rows, rows.shape, rows.dtype, rows.ndim
        self.chunks = chunk and (chunk, rows.shape[1])
        self.read = []

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.read.append((rows.start, rows.stop))
        return self._rows[rows]

    def __array__(self, *_, **__):
        raise AssertionError("the rows were read whole")


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(source, "_PIECE", 50 * D * 8)
    monkeypatch.setattr(source, "_BLOCK", 64 * D)


def whole(blocks):
    pieces = list(blocks.pieces())
    return sp.vstack(pieces).toarray() if sp.issparse(pieces[0]) else np.concatenate(pieces)


@every("lengths", [(300,), (64, 64, 172), (1, 1, 1, 297), (63, 2, 235), (10, 200, 90), (128, 0, 172)])
@every("rows", [1, 64, 299, 300, 400])
def test_blocks_begin_at_the_same_rows_whatever_the_pieces_are(lengths, rows):
    ends = np.cumsum(lengths)
    pieces = [X[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    blocks = list(source.cut_into_blocks(pieces, rows))
    expected = [X[i : i + rows] for i in range(0, N, rows)]
    assert [len(block) for block in blocks] == [len(block) for block in expected]
    assert all(np.array_equal(a, b) for a, b in zip(blocks, expected, strict=True))


class InPieces(source.Stored):
    """A source of these pieces, which are made only when they are read."""

    def __init__(self, *pieces):
        self._pieces = pieces
        self.shape, self.dtype = (sum(map(len, pieces)), D), pieces[0].dtype

    def pieces(self):
        return (piece.copy("K") for piece in self._pieces)


@every(
    "pieces",
    [
        [X],
        [X[:0], X[:120], X[120:]],
        [X[:1], X[1:2], X[2:]],
        [np.asfortranarray(X[:100]), np.asfortranarray(X[100:])],
        [X[:100].astype(">f8"), X[100:].astype(">f8")],
        [X[:100].astype(np.int16), X[100:200].astype(np.float32), X[200:]],
        [X[:100], X[100:].astype(np.int8)],
    ],
)
def test_all_rows_are_what_numpy_joins(pieces):
    found, expected = source.all_rows(InPieces(*pieces)), np.concatenate(pieces)
    assert found.dtype == expected.dtype
    assert found.strides == expected.strides
    np.testing.assert_array_equal(found, expected)


def test_all_rows_are_in_memory_once():
    pieces = np.array_split(np.ones((40_000, D)), 20)
    rows = InPieces(*pieces)
    tracemalloc.start()
    try:
        assert source.all_rows(rows).shape == rows.shape
        size = 40_000 * D * 8
        assert tracemalloc.get_traced_memory()[1] < 1.2 * size
    finally:
        tracemalloc.stop()


@every("chunk", [None, 20, 64, 1000])
@every("dtype", [np.float64, np.float32, np.int16, np.dtype(">f8"), np.float16])
def test_rows_by_slices_give_the_bits_of_the_array_in_memory(small_pieces, chunk, dtype):
    shards = [(8 * part).astype(dtype) for part in (X[:180], X[180:])]
    datasets = [Dataset(rows, chunk) for rows in shards]
    here, there = (simulate("krylov", rows, n_components=2) for rows in (shards, datasets))
    assert np.array_equal(here.components_, there.components_)
    assert np.array_equal(here.explained_variance_, there.explained_variance_)
    for start, stop in datasets[0].read:
        assert start % (chunk or 1) == 0
        assert stop - start <= max(400, chunk or 0)


def test_a_chunk_that_is_larger_than_a_piece_is_read_as_one(small_pieces):
    data = Dataset(X, 120)
    assert np.array_equal(whole(adapters.as_blocks(data)), X)
    assert data.read == [(0, 120), (120, 240), (240, 300)]


KINDS = {
    "array": lambda: X,
    "by columns": lambda: np.asfortranarray(X),
    "dataset": lambda: Dataset(X, 40),
    "sparse": lambda: sp.csr_array(np.where(X > 0, X, 0.0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_columns_are_picked_as_numpy_picks_them(small_pieces, kind):
    rows, made = adapters.as_blocks(KINDS[kind]()), KINDS[kind]()
    expected = made.toarray() if sp.issparse(made) else X
    columns, some = np.array([5, 0, 3]), np.array([0, 1, 49, 50, 51, 200, 299])
    assert np.array_equal(whole(rows), expected)
    assert np.array_equal(whole(adapters.rows_of_source(rows, some)), expected[some])
    assert adapters.rows_of_source(rows, some).shape == (7, D)
    both = adapters.JoinedRows((rows, adapters.rows_of_source(rows, some)))
    assert np.array_equal(whole(both), np.concatenate([expected, expected[some]]))
    assert both.shape == (N + 7, D)
    assert both.place() is None
    if kind != "sparse":
        chosen = adapters.with_columns(adapters.with_columns(rows, columns), np.array([2, 0]))
        assert chosen.shape == (N, 2)
        assert np.array_equal(whole(chosen), expected[:, [3, 5]])
        assert np.array_equal(whole(adapters.rows_of_source(chosen, some)), expected[some][:, [3, 5]])


VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[11:90],
    "every other row": lambda a: a[::2],
    "columns": lambda a: a[:, 2:5],
    "of a plain array": lambda a: np.asarray(a)[3:50, 1:],
}


@pytest.mark.parametrize("view", VIEWS)
@every("dtype", [np.float64, np.float32, np.uint8])
@every("order", ["C", "F"])
def test_mapped_rows_are_opened_from_their_place(view, dtype, order, tmp_path):
    np.save(tmp_path / "rows.npy", np.asarray((9 * X + 90).astype(dtype), order=order))
    rows = VIEWS[view](np.load(tmp_path / "rows.npy", mmap_mode="r"))
    place = adapters.as_blocks(rows).place()
    assert place.file == str(tmp_path / "rows.npy")
    assert np.array_equal(place.open(), rows)
    assert place.open().strides == rows.strides


def test_columns_that_are_picked_back_into_their_own_order_are_the_rows_themselves():
    rows = adapters.as_blocks(np.arange(12.0).reshape(3, 4))
    turned = np.array([2, 0, 3, 1])
    assert adapters.with_columns(adapters.with_columns(rows, turned), np.argsort(turned)) is rows
    assert adapters.with_columns(adapters.with_columns(rows, turned), np.array([1, 3])) is not rows


def test_rows_in_memory_have_no_place():
    for rows in (X, X.tolist(), sp.csr_array(X), Dataset(X), X[::-1]):
        assert adapters.as_blocks(rows).place() is None


def test_tables_in_column_order_are_not_copied_but_wide_ones_are():
    tall, wide = np.asfortranarray(X), np.asfortranarray(np.ones((20, 700)))
    assert np.shares_memory(next(adapters.as_blocks(tall).pieces()), tall)
    assert next(adapters.as_blocks(wide).pieces()).flags.c_contiguous


@every("frame", [Frame(), Frame(X.mean(axis=0)), Frame(X.mean(axis=0), np.arange(1.0, D + 1))])
@every("kind", [np.float64, np.float32, np.int16])
def test_rows_in_column_order_keep_it_and_give_the_same_products(frame, kind, monkeypatch, tmp_path):
    monkeypatch.setattr(source, "_BLOCK", 64 * D)
    monkeypatch.setattr(adapters, "_STRETCH", 1)
    rows = (4 * X).astype(kind)
    columns = np.asfortranarray(rows)
    np.save(tmp_path / "rows.npy", columns)
    Z = np.linalg.qr(np.random.default_rng(1).standard_normal((D, 3)))[0]
    by_row, by_column, mapped = (
        LocalData(given).in_frame(frame) for given in (rows, columns, np.load(tmp_path / "rows.npy", mmap_mode="r"))
    )
    size = np.linalg.norm(by_row.gram())
    room = 64 * np.finfo(by_row.dtype).eps * size
    for reuse in (0, 100):
        product = by_column.matmat(Z, reuse=reuse)
        np.testing.assert_allclose(product, by_row.matmat(Z, reuse=reuse), rtol=0, atol=room)
        assert np.array_equal(product, mapped.matmat(Z, reuse=reuse))
    assert all(block.strides[0] < block.strides[1] for block in by_column.blocks() if len(block) > 1)


@pytest.mark.parametrize("rows", [np.zeros(3), np.zeros((2, 2, 2)), np.array([["a", "b"]]), [[1j]]])
def test_what_is_no_table_of_real_numbers_is_refused(rows):
    with pytest.raises(DataError, match="two-dimensional array of real numbers"):
        adapters.as_blocks(rows)
