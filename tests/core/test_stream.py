"""Test streams: where batches come from, what a stream hands back, and rows with missing values."""

import numpy as np
import pytest
from cases import every

from flower_pca.base.errors import DataError
from flower_pca.data.sources import Arrivals
from flower_pca.rows import gaps
from flower_pca.rows.stream import NO_CURSOR, Completion, Stream

X = np.arange(30.0).reshape(10, 3)
BATCHES = [X[:4], X[4:8], X[8:]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stream(X, batch=4),
        lambda: Stream(BATCHES),
        lambda: Stream(tuple(BATCHES)),
        lambda: Stream(lambda t: BATCHES[t] if t < 3 else None),
        lambda: Stream(b for b in BATCHES),
    ],
    ids=["array", "list", "tuple", "function", "iterator"],
)
def test_every_source_gives_the_same_batches_and_says_when_it_ends(make):
    stream = make()
    taken = [stream.rows_for_step(t, NO_CURSOR) for t in (0, 1, 1, 2)]
    for got, wanted in zip(taken, [BATCHES[0], BATCHES[1], BATCHES[1], BATCHES[2]], strict=True):
        assert np.array_equal(got.rows, wanted)
    assert all(got.left for got in taken[:3])
    assert stream.rows_for_step(3, NO_CURSOR).rows is None
    assert stream.rows_for_step(3, NO_CURSOR).left == 0


def test_an_iterator_cannot_go_back_but_a_new_one_can_go_on():
    stream = Stream(iter(BATCHES))
    assert np.array_equal(stream.rows_for_step(2, NO_CURSOR).rows, BATCHES[2])
    with pytest.raises(DataError, match=r"The iterator of the client cannot go back to step 1 after"):
        stream.rows_for_step(1, NO_CURSOR)
    assert not stream.repeatable
    assert Stream(BATCHES).repeatable


def test_columns_are_those_of_the_first_batch_where_the_source_does_not_tell(tmp_path):
    np.save(tmp_path / "1.npy", X[:4])
    steps = iter(BATCHES)
    for source, known in ((BATCHES, 3), (BATCHES.__getitem__, None), (steps, None), (Arrivals(tmp_path), None)):
        stream = Stream(source)
        assert (stream.d, stream.columns(), stream.columns()) == (known, 3, 3)
        assert np.array_equal(stream.rows_for_step(0, NO_CURSOR).rows, BATCHES[0])
    assert Stream(lambda t: None if t == 0 else X).columns() is None
    assert Stream([None, X]).columns() == 3


def test_a_folder_is_looked_into_again_at_every_step(tmp_path):
    stream, cursor = Stream(Arrivals(tmp_path)), NO_CURSOR
    assert stream.rows_for_step(0, cursor).rows is None
    np.save(tmp_path / "2026-01-02.npy", BATCHES[1])
    np.save(tmp_path / "2026-01-01.npy", BATCHES[0])
    (tmp_path / ".2026-01-03.npy").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("no batch")
    first = stream.rows_for_step(1, cursor)
    assert np.array_equal(first.rows, BATCHES[0])
    assert first.left == 1
    again = Stream(Arrivals(tmp_path)).rows_for_step(7, cursor)  # The cursor decides, not the step.
    assert np.array_equal(again.rows, BATCHES[0])
    second = stream.rows_for_step(2, first.cursor)
    assert np.array_equal(second.rows, BATCHES[1])
    assert stream.rows_for_step(3, second.cursor).rows is None
    (tmp_path / "2026-01-03.csv").write_text("1,nan,3\n4,5,6\n")
    third = stream.rows_for_step(4, second.cursor)
    np.testing.assert_array_equal(third.rows, [[1, np.nan, 3], [4, 5, 6]])


def test_masked_arrays_and_nan_say_the_same():
    mask = X % 7 == 0
    wanted = np.where(mask, np.nan, X)
    streams = [
        Stream(wanted, batch=10),
        Stream(np.ma.MaskedArray(X, mask), batch=10),
        Stream([np.ma.MaskedArray(X, mask)]),
    ]
    for stream in streams:
        np.testing.assert_array_equal(stream.rows_for_step(0, NO_CURSOR).rows, wanted)
    assert np.isfinite(X).all()  # The caller's rows are unchanged.


@pytest.mark.parametrize("kind", [np.int64, np.int8, bool, np.float32])
def test_masked_entries_of_every_kind_of_number_are_missing(kind):
    rows, mask = np.arange(12).reshape(4, 3).astype(kind), np.arange(12).reshape(4, 3) % 5 == 0
    for stream in (Stream(np.ma.MaskedArray(rows, mask), batch=4), Stream([np.ma.MaskedArray(rows, mask)])):
        found = stream.rows_for_step(0, NO_CURSOR).rows
        np.testing.assert_array_equal(found, np.where(mask, np.nan, rows.astype(float)))


def test_a_batch_of_few_rows_counts_as_none():
    assert Stream(BATCHES, min_rows=3).rows_for_step(2, NO_CURSOR).rows is None
    assert Stream(BATCHES, min_rows=2).rows_for_step(2, NO_CURSOR).rows is not None


def test_what_is_completed_is_kept_and_written_where_asked(tmp_path):
    batch = Completion(X, X * 0, X > 3, X < -3)
    kept, plain = Stream(BATCHES, keep=True, out=tmp_path / "out"), Stream(BATCHES)
    for stream in (kept, plain):
        stream.hand_back(1, batch)
    assert kept.completed == {1: batch}
    assert plain.completed == {}
    with np.load(tmp_path / "out/batch-000001.npz") as file:
        assert np.array_equal(file["rows"], X)
        assert np.array_equal(file["found"], X > 3)
        assert np.array_equal(file["missing"], X < -3)
    other = Stream(BATCHES, keep=True)
    other.take_over(tmp_path / "out")
    assert np.array_equal(other.completed[1].rows, X)
    assert np.array_equal(other.completed[1].imputed, np.abs(X) > 3)
    kept.write_to(tmp_path / "later")
    kept.hand_back(2, batch)
    assert not (tmp_path / "later").exists()  # The folder that was given first is used.


@pytest.mark.parametrize("order", ["C", "F"])
def test_gaps_are_taken_out_of_a_copy_of_rows(order):
    rows = np.array([[1.0, np.nan, 3.0], [np.nan, -0.0, np.nan]], order=order)
    given = rows.copy()
    filled, gone = gaps.without_gaps(rows)
    np.testing.assert_array_equal(filled, [[1, 0, 3], [0, 0, 0]])
    assert gone.tolist() == [1, 3, 5]  # read row by row
    np.testing.assert_array_equal(rows, given)


@every("share", [0.05, 0.5, 0.93])
def test_fits_are_lapacks_least_squares_of_minimum_norm(share):
    rng = np.random.default_rng(int(100 * share))
    P = np.linalg.qr(rng.standard_normal((40, 6)))[0]
    Y, seen = rng.standard_normal((50, 40)), rng.random((50, 40)) > share
    A, deficient = gaps.fit_rows(P, np.where(seen, Y, 0.0), np.flatnonzero(~seen))
    exact = [np.linalg.lstsq(P[s], y[s], rcond=None) for y, s in zip(Y, seen, strict=True)]
    np.testing.assert_allclose(A, [e[0] for e in exact], atol=1e-9 * max(1.0, np.abs(A).max()))
    assert deficient == sum(int(e[2] < 6) for e in exact)


@every(("d", "r", "share"), [(900, 20, 0.1), (300, 30, 0.05), (1500, 48, 0.6), (3000, 5, 0.3)])
def test_fits_are_least_squares_of_many_columns_along_many_directions(d, r, share):
    rng = np.random.default_rng(r)
    P = np.linalg.qr(rng.standard_normal((d, r)))[0]
    Y, seen = rng.standard_normal((12, d)), rng.random((12, d)) > share
    seen[0] = True
    A, deficient = gaps.fit_rows(P, np.where(seen, Y, 0.0), np.flatnonzero(~seen))
    exact = [np.linalg.lstsq(P[s], y[s], rcond=None)[0] for y, s in zip(Y, seen, strict=True)]
    np.testing.assert_allclose(A, exact, atol=1e-13 * d)
    assert deficient == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_fits_are_the_same_however_many_rows_are_looked_at_at_a_time(share, monkeypatch):
    rng = np.random.default_rng(3)
    P = np.linalg.qr(rng.standard_normal((900, 12)))[0]
    Y = np.where(rng.random((11, 900)) < share, np.nan, rng.standard_normal((11, 900)))
    whole = gaps.fit_rows(P, *gaps.without_gaps(Y))
    monkeypatch.setattr(gaps, "_PAIRS", 3 * P.size)
    np.testing.assert_allclose(gaps.fit_rows(P, *gaps.without_gaps(Y))[0], whole[0], atol=1e-14)


def test_fits_where_a_direction_is_not_seen_at_all():
    P = np.eye(8)[:, :3]
    Y, seen = np.arange(16.0).reshape(2, 8), np.ones((2, 8), dtype=bool)
    seen[:, 1] = False  # enough entries, but none along the second direction
    A, deficient = gaps.fit_rows(P, np.where(seen, Y, 0.0), np.flatnonzero(~seen))
    np.testing.assert_allclose(A, [[0, 0, 2], [8, 0, 10]], atol=1e-12)
    assert deficient == 2


@every("small", [1e-1, 1e-2, 1e-4])
def test_fits_where_little_is_seen_of_a_direction_are_least_squares_all_the_same(small):
    P = np.linalg.qr(np.random.default_rng(5).standard_normal((60, 4)))[0]
    P[0], P[1:, 1] = 0.0, small * P[1:, 1]
    P[0, 1] = np.sqrt(1.0 - small**2)
    P = np.linalg.qr(P)[0]
    seen = np.ones((3, 60), dtype=bool)
    seen[1, 0] = False  # nearly all of the second direction
    truth = np.random.default_rng(6).standard_normal((3, 4))
    A, deficient = gaps.fit_rows(P, np.where(seen, truth @ P.T, 0.0), np.flatnonzero(~seen))
    np.testing.assert_allclose(A, truth, atol=1e-13 / small)
    assert deficient == 0
