"""The checkpoint of a run. It is written with every message, and synced to the disk every few seconds.

A sync to the disk may take longer than the message. So after most messages, the checkpoint is written without a sync
to a second file, NAME.newest, which survives the end of the process. If the machine stops, this file may be damaged,
and the run continues from NAME, which is a few seconds older. A basis that grows with every message is in a third
file, NAME.columns, to which each message adds its columns. Before every answer, nodes write all data that they must
not lose (ledgers, budgets, secrets of masks) to their own disks. If a message is sent again, the nodes refuse it, or
charge its cost again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import files
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

_EVERY: Final = 2.0  # maximum number of seconds of a run that are lost if the machine stops
_MARK, _COUNT, _COLUMNS = "mark", "count", "columns"


class Checkpoint:
    """The files of a run's checkpoint.

    Parameters
    ----------
    path : path
        The file that is always synced to the disk.
    kind : str
        The kind of file, which is stored in the file's header, for example `Transport.kind`.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind
        self._newest = path.with_name(f"{path.name}.newest")
        self._columns = _AppendedColumns(path.with_name(f"{path.name}.columns"))
        self._mark, self._count = secrets.token_hex(8), 0
        self._synced: float | None = None

    def read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Return the header and arrays of the latest complete checkpoint, or None if no checkpoint exists.

        Raises
        ------
        DataError
            If the file is not a checkpoint of this kind, or is damaged.
        """
        if not self._path.exists():
            return None
        certain = self._read(self._path)
        self._mark = str(certain[0].get(_MARK))
        with contextlib.suppress(DataError, FileNotFoundError):
            newest = self._read(self._newest)
            if newest[0].get(_MARK) == self._mark and newest[0].get(_COUNT, 0) > certain[0].get(_COUNT, 0):
                return self._with_columns_file(*newest)
        # The newest file does not exist, belongs to another run, or was not completely on the disk when the machine
        # stopped. It is removed, because the run now overwrites the columns to which that file refers.
        self._newest.unlink(missing_ok=True)
        return self._with_columns_file(*certain)

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
        # A private file must belong to this user. Checkpoints are private, because they contain answers from
        # individual clients, and in a simulation the clients' states.
        return files.read(path, self._kind, private=True)

    def _with_columns_file(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the header and all arrays, including the array in the file NAME.columns."""
        for name, place in header.get(_COLUMNS, {}).items():
            arrays[name] = self._columns.read(**place)
        self._count = int(header.get(_COUNT, 0))
        return header, arrays

    def write(self, header: Mapping[str, Any], arrays: dict[str, Array], *, sync: bool = False) -> None:
        """Write the state after a message.

        The file is synced to the disk if `sync` is True, if the last sync was at least two seconds ago, or if a
        new array replaces the array in the file NAME.columns.
        """
        growing = next((name for name in arrays if name.endswith(files.GROWS)), None)
        due = sync or self._synced is None or time.monotonic() - self._synced >= _EVERY
        self._count += 1
        whole = {**header, _MARK: self._mark, _COUNT: self._count}
        if growing is not None:
            Q = arrays[growing]
            # If a new array replaces the old array, later columns may overwrite the columns to which the synced file
            # refers.
            due = due or not self._columns.has_begun(Q)
            whole[_COLUMNS] = {growing: self._columns.write(Q, sync=due)}
            arrays = {name: a for name, a in arrays.items() if name != growing}
        files.write(self._path if due else self._newest, self._kind, whole, arrays, private=True, sync=due)
        if due:
            self._synced = time.monotonic()

    def remove(self) -> None:
        """Remove all files, because the run is over."""
        self._path.unlink(missing_ok=True)
        self._newest.unlink(missing_ok=True)
        self._columns.remove()


class _AppendedColumns:
    """A file with an array that grows by columns. Only new columns are written.

    If a new array replaces the old array, it is written before or behind the old array, wherever there is room, because
    the checkpoint on the disk refers to the old array until the next checkpoint is written.

    Parameters
    ----------
    path : path
        The path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._array, self._start, self._check = np.empty((0, 0)), 0, 0

    def has_begun(self, Q: Array) -> bool:
        """Return whether the array in the file has columns, and these are the first columns of Q."""
        d, m = self._array.shape
        first = Q[:, :m]
        if first.shape != (d, m) or not m:
            return False
        return first.ctypes.data == self._array.ctypes.data or np.array_equal(first, self._array)

    def write(self, Q: Array, *, sync: bool) -> dict[str, Any]:
        """Write the new columns of Q, and return the array's position in the file, its shape and its checksum."""
        known = self._array.nbytes
        if not known:
            self.remove()  # An existing file belongs to another run, or is a link that somebody else has created.
        new = Q[:, self._array.shape[1] :]
        if not self.has_begun(Q):
            self._start = 0 if Q.nbytes <= self._start else self._start + known
            new, known, self._check = Q, 0, 0
        packed = np.ascontiguousarray(new.T).data
        with files.naming_file_in_errors(self._path), open(self._path, "r+b", opener=files.open_for_writing) as file:
            file.seek(self._start + known)
            file.write(packed)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        self._array, self._check = Q, zlib.crc32(packed, self._check)
        return {"start": self._start, "shape": Q.shape, "check": self._check}

    def read(self, start: int, shape: tuple[int, int], check: int) -> Array:
        """Return the array in the file. Raise DataError if it is incomplete or does not belong to the checkpoint."""
        d, m = shape
        packed = b""
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb", opener=files.opener) as file:
            file.seek(start)
            packed = file.read(8 * d * m)
        if len(packed) != 8 * d * m or zlib.crc32(packed) != check:
            raise DataError(
                f"The file {self._path} is missing or incomplete, or does not belong to the checkpoint. Delete the "
                "checkpoint, and start the run again."
            )
        self._array, self._start, self._check = np.frombuffer(packed).reshape(m, d).T, start, check
        return self._array

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
