"""Compute the sums of a client's columns and of their squares, for counts or for logarithms of counts."""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows.measured import Measured

_MOST: Final = 300.0  # For a larger entry x, the square of expm1(x) may overflow.


def gene_sums(rows: Measured, who: str, *, undone: bool) -> tuple[Array, Array]:
    """Return the sums of y and y^2 by column, with y = expm1(x) if the logarithm is `undone`, else y = x.

    Raises
    ------
    DataError
        If an entry is too large to be the logarithm of a count.
    """
    sums, squares = np.zeros((2, rows.d))
    for piece in rows.stored_blocks():
        entries = np.asarray(piece.data if rows.sparse else piece, dtype=np.float64)
        if undone and entries.max(initial=0.0) > _MOST:
            raise DataError(
                f"The entries of {who} are not logarithms of counts, but highly_variable needs logarithms. Read the "
                "cells with normalize=1e4, log=True."
            )
        y = np.expm1(entries) if undone else entries
        if rows.sparse:
            sums += np.bincount(piece.indices, weights=y, minlength=rows.d)
            squares += np.bincount(piece.indices, weights=y**2, minlength=rows.d)
        else:
            sums += y.sum(axis=0)
            squares += np.einsum("ij,ij->j", y, y)
    return sums, squares
