"""Read rows from the batches of a loader such as torch's DataLoader, which is iterated again at each pass."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored
from flower_pca.blocks.tensors import is_tensor, tensor_as_array


def is_loader(X: Any) -> bool:
    """Return whether X yields batches of a data set."""
    return hasattr(X, "__iter__") and hasattr(X, "dataset") and not hasattr(X, "shape")


class LoaderRows(Stored):
    """The rows in the batches of a loader, which must yield all rows of its data set in the same order at each pass.

    If a batch has several arrays, such as rows and labels, the first array holds the rows.
    """

    def __init__(self, loader: Any, who: str = "the rows") -> None:
        self._loader, self._who = loader, who
        if not hasattr(loader.dataset, "__len__"):
            raise DataError(
                f"The data set of the DataLoader of {who} has no length, so nobody can tell whether all of its rows "
                "arrive. Give the data set a method __len__."
            )
        self._require_every_row_once()
        first = next(self._batches(), None)
        if first is None:
            raise DataError(f"The DataLoader of {who} yields no batches. Make it yield every row of its data set.")
        self.shape = (len(loader.dataset), first.shape[1])
        self.dtype = first.dtype
        self._checksum_of_first, self._checksum_of_all = _checksum(first), -1

    def pieces(self) -> Iterator[Array]:
        """Yield the batches. Raise a DataError if rows are missing, or differ from those of an earlier pass."""
        n, checksum, i = 0, 0, -1
        for i, batch in enumerate(self._batches()):
            if batch.shape[1] != self.shape[1]:
                raise DataError(
                    f"The DataLoader of {self._who} yields a batch with {labels.count(batch.shape[1], 'column')} after "
                    f"batches with {self.shape[1]:,}. Make all batches have the same columns."
                )
            n, checksum = n + len(batch), _checksum(batch, checksum)
            if i == 0 and checksum != self._checksum_of_first:
                raise self._changed_error("other rows")
            yield batch
        first_pass = self._checksum_of_all < 0
        if n != self.shape[0] and first_pass:
            forms_batches = getattr(self._loader, "batch_sampler", None) is not None
            if not forms_batches and i + 1 == self.shape[0]:
                raise DataError(
                    f"The data set of the DataLoader of {self._who} has {labels.count(self.shape[0], 'item')} with "
                    f"{labels.count(n, 'row')}, so an item is a batch of rows. Make its method __len__ return the "
                    "number of rows, or make each item a single row."
                )
            raise DataError(
                f"The DataLoader of {self._who} yields {labels.count(n, 'row')}, but its data set has "
                f"{self.shape[0]:,}. Make it yield every row once. The workers of an iterable data set must share its "
                "rows among them."
            )
        if n != self.shape[0]:
            raise self._changed_error(f"{n:,} rows instead of {self.shape[0]:,}")
        if not first_pass and checksum != self._checksum_of_all:
            raise self._changed_error("other rows")
        self._checksum_of_all = checksum

    def _require_every_row_once(self) -> None:
        """Raise a DataError if the samplers of the loader leave out or repeat rows, or are random."""
        loader, n = self._loader, len(self._loader.dataset)
        sampler, batches = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
        if any(map(_is_random, (sampler, batches, getattr(batches, "sampler", None)))):
            raise DataError(
                f"The DataLoader of {self._who} gives its rows in a different order at each pass. Build it with "
                "shuffle=False and without a random sampler."
            )
        if sampler is None:
            return
        # A sampler gives lists of positions if the loader forms no batches.
        drawn: Iterable[Any] = sampler if batches is None else batches
        singles = chain.from_iterable(some if isinstance(some, list) else [some] for some in drawn)
        first = list(islice(singles, 1))
        if any(position is None or isinstance(position, tuple) for position in first):
            # An iterable data set has no positions, and positions of several numbers are not compared. Rows are counted
            # in the first pass.
            return
        # Samplers may be endless, so at most one position too many is read.
        rest = islice(singles, n)
        # As objects, positions would take four times as much memory.
        if all(hasattr(position, "__index__") for position in first):
            positions = np.fromiter(chain(first, rest), dtype=np.int64)
        else:
            positions = np.asarray([*first, *rest])
        given = len(np.unique(positions))
        if given < len(positions):
            raise DataError(
                f"The sampler of the DataLoader of {self._who} repeats rows, which would count more than once. Build "
                "the DataLoader without a sampler."
            )
        if given < n:
            cause, remedy = "The sampler of the DataLoader", "Build the DataLoader without a sampler"
            if getattr(loader, "drop_last", False) or getattr(batches, "drop_last", False):
                cause, remedy = "The DataLoader", "Build it with drop_last=False"
            raise DataError(
                f"{cause} of {self._who} leaves out {n - given:,} of {labels.count(n, 'row')}. {remedy}. To use only "
                "some rows, give it a torch.utils.data.Subset of the data set."
            )

    def _batches(self) -> Iterator[Array]:
        for batch in self._loader:
            rows = self._rows_of_batch(batch)
            array = tensor_as_array(rows, self._who) if is_tensor(rows) else np.asarray(rows)
            if array.dtype.kind not in "fiub":
                raise DataError(
                    f"The DataLoader of {self._who} yields batches of the type {array.dtype}. Make it yield real "
                    "numbers."
                )
            if array.ndim != 2:
                raise DataError(
                    f"The DataLoader of {self._who} yields batches with {labels.count(array.ndim, 'dimension')}. Make "
                    "it yield two-dimensional arrays of numbers with one row per sample."
                )
            yield array

    def _rows_of_batch(self, batch: Any) -> Any:
        """Return the rows of a batch, or raise a DataError if it is not clear which of its arrays holds them."""
        if isinstance(batch, Mapping):
            keys = labels.join_with_and([str(key) for key in batch])
            raise DataError(
                f"The DataLoader of {self._who} yields dictionaries with {keys}. Make it yield arrays of rows: pass a "
                "collate_fn that puts the columns side by side."
            )
        if not isinstance(batch, list | tuple):
            return batch
        tables = [part for part in batch if len(getattr(part, "shape", ())) > 1 and part.shape[1] > 1]
        if len(tables) > 1:
            raise DataError(
                f"The DataLoader of {self._who} yields batches with {len(tables)} tables each, so it is not clear "
                "which of them has the rows. Make it yield one: pass a collate_fn that returns only the rows."
            )
        return batch[0] if batch else np.empty((0, 0))

    def _changed_error(self, what: str) -> DataError:
        return DataError(
            f"The DataLoader of {self._who} gave {what} in a later pass. Make it yield the same rows in the same order "
            "in each pass, without random changes."
        )


def _is_random(sampler: Any) -> bool:
    """Return whether a sampler is random: whether it has a generator, or its `shuffle` is true."""
    return hasattr(sampler, "generator") or bool(getattr(sampler, "shuffle", False))


def _checksum(batch: Array, before: int = 0) -> int:
    """Return the checksum of a batch, or of a batch and the batches before it."""
    return zlib.crc32(np.ascontiguousarray(batch).data, before)
