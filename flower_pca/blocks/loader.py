"""Read rows from the batches of a loader such as torch's DataLoader, which is iterated again at each pass."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored
from flower_pca.blocks.tensors import is_tensor, tensor_as_array


def is_loader(X: Any) -> bool:
    """Return whether X yields batches of a data set of known length, and can be iterated more than once."""
    return hasattr(X, "__iter__") and hasattr(getattr(X, "dataset", None), "__len__")


class LoaderRows(Stored):
    """The rows in the batches of a loader.

    If a batch has several arrays, such as rows and labels, the first array holds the rows.
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
            got = "no batches"
            if first is not None:
                got = f"batches with {labels.count(first.ndim, 'dimension')}"
            raise DataError(
                f"The DataLoader of {who} yields {got}. Make it yield two-dimensional arrays of numbers "
                "with one row per sample."
            )
        self._mark = zlib.crc32(np.ascontiguousarray(first).data)
        self.shape = (_number_of_rows(loader, len(first)), first.shape[1])
        self.dtype = first.dtype

    def pieces(self) -> Iterator[Array]:
        """Yield the batches. Raise a DataError if the first batch or the number of rows has changed."""
        n = 0
        for batch in self._batches():
            if n == 0 and zlib.crc32(np.ascontiguousarray(batch).data) != self._mark:
                raise self._changed_error("other rows")
            n += len(batch)
            yield batch
        if n != self.shape[0]:
            raise self._changed_error(f"{n:,} rows instead of {self.shape[0]:,}")

    def _batches(self) -> Iterator[Array]:
        for batch in self._loader:
            rows = batch[0] if isinstance(batch, list | tuple) else batch
            array = tensor_as_array(rows, self._who) if is_tensor(rows) else np.asarray(rows)
            if array.dtype.kind not in "fiub":
                raise DataError(
                    f"The DataLoader of {self._who} yields batches of the type {array.dtype}. Make it yield real "
                    "numbers."
                )
            yield array

    def _changed_error(self, what: str) -> DataError:
        return DataError(
            f"The DataLoader of {self._who} gave {what} in a later pass. Make it yield the same rows in the same order "
            "in each pass, without random changes."
        )


def _shuffles(loader: Any) -> bool:
    """Return whether the sampler of a loader is random: whether it has a generator, or its `shuffle` is true."""
    sampler = getattr(loader, "sampler", None)
    return hasattr(sampler, "generator") or bool(getattr(sampler, "shuffle", False))


def _number_of_rows(loader: Any, batch: int) -> int:
    """Return the number of rows, not counting a shorter last batch if the loader drops it."""
    given = getattr(loader, "sampler", None)
    n = len(loader.dataset if given is None else given)
    if getattr(loader, "drop_last", False):
        n -= n % batch
    return n
