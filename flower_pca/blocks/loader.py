"""Rows that come as batches from a loader such as torch's DataLoader, which is read anew at each pass."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored
from flower_pca.blocks.tensors import in_memory, is_tensor


def is_loader(X: Any) -> bool:
    """Return whether X gives batches, any number of times, of a data set with a known length."""
    return hasattr(X, "__iter__") and hasattr(getattr(X, "dataset", None), "__len__")


class Loader(Stored):
    """The rows in the batches of a loader. In a batch of several arrays, such as rows and labels, the
    first one has the rows.
    """

    def __init__(self, loader: Any, who: str = "the rows") -> None:
        self._loader, self._who = loader, who
        if _shuffles(loader):
            raise DataError(
                f"The DataLoader of {who} gives its rows in a different order at each pass. Build it with "
                "shuffle=False."
            )
        first = next(self._batches(), None)
        if first is None or first.ndim != 2:
            got = "no row" if first is None else labels.count(first.ndim, "dimension")
            raise DataError(
                f"The DataLoader of {who} gives batches of {got}. Let it give rows of numbers, one per sample."
            )
        self._mark = zlib.crc32(np.ascontiguousarray(first).data)
        self.shape = (_rows(loader, len(first)), first.shape[1])
        self.dtype = first.dtype

    def pieces(self) -> Iterator[Array]:
        """Yield the batches, and raise a DataError if they differ from those of the first pass."""
        n = 0
        for batch in self._batches():
            if n == 0 and zlib.crc32(np.ascontiguousarray(batch).data) != self._mark:
                raise self._changed("other rows")
            n += len(batch)
            yield batch
        if n != self.shape[0]:
            raise self._changed(f"{n:,} rows instead of {self.shape[0]:,}")

    def _batches(self) -> Iterator[Array]:
        for batch in self._loader:
            rows = batch[0] if isinstance(batch, list | tuple) else batch
            array = in_memory(rows, self._who) if is_tensor(rows) else np.asarray(rows)
            if array.dtype.kind not in "fiub":
                raise DataError(
                    f"The DataLoader of {self._who} gives batches of the type {array.dtype}. Let it give real numbers."
                )
            yield array

    def _changed(self, what: str) -> DataError:
        return DataError(
            f"The DataLoader of {self._who} gave {what} in a later pass. Let it give the same rows in the same order "
            "each time, without random changes."
        )


def _shuffles(loader: Any) -> bool:
    """Return whether the loader's sampler draws at random, that is, has a generator or a true `shuffle`."""
    sampler = getattr(loader, "sampler", None)
    return hasattr(sampler, "generator") or bool(getattr(sampler, "shuffle", False))


def _rows(loader: Any, batch: int) -> int:
    """Return the number of rows, without a last batch that is dropped because it is shorter."""
    given = getattr(loader, "sampler", None)
    n = len(loader.dataset if given is None else given)
    if getattr(loader, "drop_last", False):
        n -= n % batch
    return n
