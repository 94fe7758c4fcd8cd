"""StoredRows: one client's rows as they are at rest, in blocks; what is known of them before any frame."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows import deviations
from flower_pca.rows.frame import Frame, Moments, filled, merge, sparse_moments, stored
from flower_pca.rows.implicit import ImplicitRows

_BLOCK: Final = 2**17  # entries of a block of rows, which a processor's own memory holds while it is worked on
_FEWEST: Final = 64  # rows of it, however long they are
_SAMPLE: Final = 2**14  # entries to judge all of them by, of
_MOST: Final = 64  # rows, or of
_LEAST: Final = 9  # however long they are
_SINGLE: Final = 128  # rows whose sums single precision may hold, before they are added in double


class StoredRows:
    """The rows (n x d) of one client, stored dense, sparse or memory-mapped. They are passed over in the same blocks.

    With `missing`, NaN stands for a value that is missing; `missing` is then the number of these. Where `places` are
    given, these are the columns, in this order. `sparse` says whether the rows are a scipy sparse array, `dtype` in
    which precision products are computed.
    """

    def __init__(self, X: Any, *, who: str, missing: bool, places: Array | None = None) -> None:
        self._X, self.who = stored(X, who), who
        self.sparse = not isinstance(self._X, np.ndarray)
        single = self._X.dtype.itemsize <= 4 and self._X.dtype.kind == "f"
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if single else np.float64)
        self._places: Array | None = None
        if self._X.ndim == 2 and places is not None:
            self._arrange(places)
        self.n, self.d = int(self._X.shape[0]), int(self._X.shape[1]) if self._places is None else len(self._places)
        if self.n == 0 or self.d == 0:
            what = f"The data of {who}{f', {self.source},' if self.source else ''}"
            raise DataError(what, must="at least one row and one column", got=self._X.shape, then="Leave it out.")
        self.known: dict[Any, Any] = {}  # what follows from the stored rows alone, for all their views
        self.missing = self._gaps(allowed=missing)

    @property
    def stored(self) -> Any:
        """The rows as they are kept: an array, a memory-mapped one, or CSR."""
        return self._X

    def some(self, rows: Array) -> StoredRows:
        """Some of the rows, in memory, without names."""
        return StoredRows(self._X[rows], who=self.who, missing=bool(self.missing), places=self._places)

    def plain(self) -> Any:
        """All rows as one array, dense or sparse."""
        return self._X if self.sparse else np.concatenate(list(self._stored()))

    def blocks(self) -> Iterator[Array]:
        """Blocks of stored rows as arrays, of sparse rows too."""
        if self.sparse:
            starts = range(0, self.n, self._block_rows)
            yield from (self._X[i : i + self._block_rows].toarray() for i in starts)
        else:
            yield from self._stored()

    def sample(self) -> Array:
        """A few stored rows, dense ones, from all over the table."""
        few = min(max(_SAMPLE // self.d, _LEAST), _MOST)
        rows = np.asarray(self._X[:: -(-self.n // few)])
        return rows if self._places is None else rows[:, self._places]

    def there(self) -> Moments:
        """The moments of the values that are there."""
        if "moments" not in self.known:
            self.known["moments"] = self._moments(own=False)
        found: Moments = self.known["moments"]
        return found

    def peak(self) -> Array:
        """The largest |x| of each stored column."""
        largest = np.zeros(self.d)
        for block in self._stored():
            if self.sparse:
                np.fmax.at(largest, block.indices, np.abs(block.data))  # which passes over missing values
                continue
            low, high = np.fmin.reduce(block, axis=0), np.fmax.reduce(block, axis=0)
            largest = np.fmax(largest, np.fmax(high.astype(np.float64), -low.astype(np.float64)))
        return largest

    def fingerprint(self) -> int:
        """A checksum of the stored rows."""
        if "fingerprint" not in self.known:
            total = 0
            for block in self._stored():
                for part in (block.data, block.indices, block.indptr) if self.sparse else (block,):
                    total = zlib.crc32(np.ascontiguousarray(part).data, total)
            self.known["fingerprint"] = total
        return int(self.known["fingerprint"])

    def own_fill(self) -> Array:
        """What stands for missing values where these are the rows' own: their mean; 0 in a column without any."""
        return self.there().mean

    @property
    def _mean(self) -> Array:
        """The means of the columns of dense rows, to a few roundings."""
        if "mean" not in self.known:
            if self.missing:
                return self._measured_there()
            self.known["mean"] = deviations.sums(self._stored(), self.d) / self.n
        found: Array = self.known["mean"]
        return found

    def _measured_there(self) -> Array:
        """The means of the values that are there; how many these are is known with them."""
        total, self.known["count"] = deviations.sums_there(self._stored(), self.d)
        self.known["mean"] = mean = total / np.maximum(self.known["count"], 1)
        return np.asarray(mean)

    def _deviations(self) -> tuple[Iterator[Array], int, Array]:
        """Blocks of dense rows less that mean, each in the memory of the one before; the number of rows; that mean."""
        return deviations.about(self._stored(), self._mean, 0.0 if self.missing else None), self.n, self._mean

    @property
    def _count(self) -> Array | None:
        """How many values each column of dense rows has, where some are missing."""
        return self.known["count"] if self.missing and self._mean is not None else None

    def _moments(self, *, own: bool) -> Moments:
        """The moments of the values that are there, or of all rows with their `own` means in the gaps."""
        if self.sparse:
            return functools.reduce(merge, (moments for moments, _ in self._about_means(own=own)))
        found = deviations.moments(*self._deviations(), self._count)
        return self._whole(found) if own else found

    def _whole(self, moments: Moments) -> Moments:
        """The moments of rows that are filled with their own means, but for columns of which no value is there."""
        seen = self.there().seen
        return replace(moments, count=None if np.all(seen > 0) else np.where(seen > 0, moments.n, 0))

    def _about_means(self, *, own: bool) -> Iterator[tuple[Moments, Any]]:
        """Sparse rows: their moments, and the rows less their own mean; with it in their gaps, if `own`."""
        S = filled(self._X, self.own_fill()) if own else self._X
        moments = sparse_moments(S)
        S = filled(S, moments.mean) if self.missing and not own else S
        yield self._whole(moments) if own else moments, ImplicitRows(S, Frame(moments.mean))

    def _arrange(self, places: Array) -> None:
        """Take these columns, in this order; memory-mapped rows stay where they are, and are arranged as they pass."""
        if isinstance(self._X, np.memmap):
            self._places = places if self._places is None else self._places[places]
        elif self.sparse:
            self._X = self._X[:, places]
        else:
            self._X = np.ascontiguousarray(self._X[:, places])

    def _gaps(self, *, allowed: bool) -> int:
        """How many values are missing."""
        if not self.sparse and self._X.dtype.kind != "f":
            return 0
        if not self.sparse:
            mean = deviations.sums(self._stored(), self.d) / self.n
            if np.isfinite(mean).all():
                self.known["mean"] = mean
                return 0
            if allowed and np.isfinite(self._measured_there()).all():
                return self.n * self.d - int(self.known["count"].sum())
        blocks = (block.data if self.sparse else block for block in self._stored())
        place = self.place if self.located or not allowed else None  # nodes, which allow gaps, tell no places
        return checks.finite(self.who, blocks, missing=allowed, names=self.names, place=place)

    def require_whole(self, *, new: bool = False) -> None:
        """Raise DataError if values are missing: where the first one is, and what to do in a run, or of `new` rows."""
        if self.missing:
            blocks = (block.data if self.sparse else block for block in self._stored())
            checks.finite(self.who, blocks, names=self.names, place=self.place, new=new)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, in their order; None where they go by position."""
        return None

    @property
    def source(self) -> str:
        """The file that the rows are from; "" if they are from none."""
        return ""

    @property
    def located(self) -> bool:
        """Whether it is known of each row where it is from: not at nodes."""
        return False

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {row} (from 0 on)"

    @property
    def _block_rows(self) -> int:
        rows = max(_FEWEST, _BLOCK // self.d)
        return rows if self.dtype == np.float64 else min(rows, _SINGLE)

    def _stored(self) -> Iterator[Any]:
        if self.sparse:
            yield self._X
            return
        step = self._block_rows
        for i in range(0, self.n, step):
            block = np.asarray(self._X[i : i + step])
            yield block if self._places is None else np.ascontiguousarray(block[:, self._places])
