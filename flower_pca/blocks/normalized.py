"""Normalize counts, such as the molecules of each gene in a cell, so that rows can be compared.

On request, each row is divided by its sum and multiplied by a target, and each entry x is replaced by log(1 + x). The
result depends on the row only, so a site can normalize its rows without other sites. Zeros stay zeros, so sparse rows
stay sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters
from flower_pca.blocks.source import Blocks, Stored, all_rows, is_sparse, rows_between


def normalized(rows: Any, who: str, *, normalize: float | None = None, log: bool = False) -> Any:
    """Return the rows, scaled to a common sum if `normalize` is given, and with log1p of entries if `log` is true.

    The result is in memory if the given rows are in memory, and otherwise a source.

    Parameters
    ----------
    rows : array-like
        The counts.
    who : str
        The owner of the counts, for messages.
    normalize : float or None, default=None
        The sum to which each row is scaled, such as 1e4. By default, rows are not scaled. A row of zeros is never
        changed.
    log : bool, default=False
        Whether each entry x is replaced by log(1 + x) after scaling.
    """
    if normalize is not None:
        checks.number("normalize", normalize, least=1e-9, most=1e15, remedy="Write normalize=1e4.")
    checks.choice("log", log, (True, False))
    if normalize is None and not log:
        return rows
    source = NormalizedRows(adapters.as_blocks(rows, who), who, normalize, log)
    return source if adapters.is_stored(rows) else all_rows(source)


class NormalizedRows(Stored):
    """The rows of a source, which are normalized while they are read."""

    def __init__(self, source: Blocks, who: str, target: float | None, log: bool) -> None:
        self._source, self._who, self._target, self._log = source, who, target, log
        self.shape, self.sparse = source.shape, is_sparse(source)
        self.dtype = source.dtype if source.dtype.kind == "f" else np.dtype(np.float64)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the source's entries, or 0 if it is unknown."""
        return getattr(self._source, "nbytes", 0)

    def rows_between(self, start: int, stop: int) -> NormalizedRows | None:
        """Return the rows from `start` up to, but not including, `stop`.

        Return None if the source cannot read these rows without the rows before them.
        """
        stretch = rows_between(self._source, start, stop)
        return None if stretch is None else NormalizedRows(stretch, self._who, self._target, self._log)

    def pieces(self) -> Iterator[Any]:
        """Yield the pieces of the source with normalized entries."""
        for piece in self._source.pieces():
            entries = piece.data if self.sparse else piece
            if not (entries >= 0).all():
                raise DataError(
                    f"Some entries of {self._who} are negative or missing, so they are not counts. Name the layer "
                    "that has the counts, or run without normalize and log."
                )
            if not self.sparse:
                yield self._normalize_entries(piece, piece.sum(axis=1, dtype=np.float64)[:, None])
                continue
            sums = np.asarray(piece.sum(axis=1, dtype=np.float64)).reshape(-1)
            data = self._normalize_entries(entries, np.repeat(sums, np.diff(piece.indptr)))
            yield type(piece)((data, piece.indices, piece.indptr), shape=piece.shape)

    def _normalize_entries(self, entries: Array, sums: Array) -> Array:
        """Return the normalized entries, given the sums of their rows."""
        if self._target is not None:
            entries = entries * (self._target / np.where(sums > 0.0, sums, self._target))
        return (np.log1p(entries) if self._log else entries).astype(self.dtype, copy=False)
