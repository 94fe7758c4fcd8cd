"""Test X'X of dense and sparse rows of every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from builders import peak_memory, sparse_random

from flower_pca.rows import gram
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData


def exact_gram(rows: Any, frame: Frame) -> Any:
    """X'X by extended precision, for rows without missing values."""
    X = (np.asarray(rows, dtype=np.longdouble) - frame.column_centers) / frame.column_divisors
    return np.asarray(X.T @ X, dtype=np.float64)


def sparse_rows(n: int, d: int, share: float, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(d)
    return sparse_random(rng, n, d, share).astype(dtype)


def some_frames(rows: Any) -> list[Frame]:
    """No frame at all, the own mean, and the mean of other rows far away, with a scale."""
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).reshape(-1)
    scale = np.linspace(1.0, 3.0, len(mean))
    return [Frame(), Frame(mean), Frame(mean + 2.0, scale)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "d"), [(30, 3), (40, 255), (500, 257), (90, 700)])
def test_the_gram_matrix_of_dense_rows_is_right(n: int, d: int, dtype: Any) -> None:
    rows = np.random.default_rng(d).standard_normal((n, d)).astype(dtype)
    for frame in some_frames(rows):
        found, right = LocalData(rows).in_frame(frame).gram(), exact_gram(rows, frame)
        assert np.abs(found - right).max() <= 32 * np.finfo(dtype).eps * right.max()


@pytest.mark.parametrize("n", [1, 90, 500])
def test_rows_that_are_stored_by_columns_are_multiplied_without_a_copy(n: int) -> None:
    d = 300
    rows = np.random.default_rng(d).standard_normal((n, d))
    by_rows, by_columns = gram.GramSum(d, rows.dtype), gram.GramSum(d, rows.dtype)
    stored = np.asfortranarray(rows)
    with peak_memory() as peak:
        by_columns.add(stored)
    by_rows.add(rows)
    assert peak() < max(rows.nbytes / 4, 8 * d * 2)
    right = exact_gram(rows, Frame())
    assert np.abs(by_columns.gram() - right).max() <= 32 * np.finfo(rows.dtype).eps * right.max()
    np.testing.assert_array_equal(by_columns.gram(), by_rows.gram())


def test_rows_are_multiplied_once_for_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((30, 3))
    data, frame = LocalData(rows), Frame(np.ones(3))
    data.gram()
    monkeypatch.setattr(gram.GramSum, "add", None)
    np.testing.assert_allclose(data.in_frame(frame).gram(), exact_gram(rows, frame), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("share", [0.002, 0.03, 0.06, 0.5])
@pytest.mark.parametrize(("n", "d"), [(300, 40), (40, 300), (700, 270)])
def test_the_gram_matrix_of_sparse_rows_is_that_of_the_same_rows_as_a_full_array(
    n: int, d: int, share: float, dtype: Any
) -> None:
    S = sparse_rows(n, d, share, dtype)
    for frame in some_frames(S):
        found, right = LocalData(S).in_frame(frame).gram(), exact_gram(S.toarray(), frame)
        # Entries that are not stored are the same number in each row, so roundings of a sum of n of them have one sign.
        assert np.abs(found - right).max() <= max(32, n / 4) * np.finfo(dtype).eps * right.max()


def test_sparse_rows_are_multiplied_piece_by_piece_to_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    S = sparse_rows(200, 50, 0.04)
    S = sp.vstack([S, sp.csr_array((3, 50)), sp.csr_array(np.ones((1, 50)))], format="csr")
    mean = np.asarray(S.mean(axis=0)).reshape(-1)
    right = exact_gram(S.toarray(), Frame(mean))
    monkeypatch.setattr(gram, "_PER_PIECE", 0)
    for products in (1, 37, 10**6):
        monkeypatch.setattr(gram, "_PRODUCTS", products)
        found = gram.sparse_gram([S], S.shape[0], mean, about=mean)
        assert np.abs(found - right).max() <= 1e-14 * right.max()


@pytest.mark.parametrize("stored_per_stripe", [1, 2, 5, 1000])
def test_a_product_without_zeros_is_formed_in_stripes_with_the_bits_of_the_whole_product(
    stored_per_stripe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    S = sparse_rows(900, 67, 0.2)
    pieces = [S, S[:20]]  # The product of only 20 rows has zeros, so that it is formed whole.
    dense = np.vstack([piece.toarray() for piece in pieces])
    monkeypatch.setattr(gram, "_PRODUCTS", 70_000)  # The first piece is multiplied in three parts.
    monkeypatch.setattr(gram, "_PER_PIECE", 0)
    monkeypatch.setattr(gram, "_PER_STRIPE", stored_per_stripe)
    found = gram.sum_of_sparse_products(pieces, 67)
    assert np.abs(found - dense.T @ dense).max() <= len(dense) * np.finfo(float).eps * np.abs(found).max()
    monkeypatch.setattr(gram, "_stripes", lambda S: 1)
    assert np.array_equal(found, gram.sum_of_sparse_products(pieces, 67))


def test_sparse_rows_without_columns_have_an_empty_gram_matrix() -> None:
    assert gram.sum_of_sparse_products([sp.csr_array((3, 0))], 0).shape == (0, 0)


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_missing_values_of_sparse_rows_are_filled_before_they_are_multiplied(share: float) -> None:
    S = sparse_rows(400, 60, share)
    S.data[::7] = np.nan
    fill, filled = np.linspace(-1.0, 1.0, 60), S.toarray()
    frame = Frame(np.full(60, 0.1), fill=fill)
    right = exact_gram(np.where(np.isnan(filled), fill, filled), Frame(frame.mean))
    found = LocalData(S, missing=True).in_frame(frame).gram()
    assert np.abs(found - right).max() <= 1e-13 * right.max()
