"""The checkpoint of a run. It is written with every message, and synced to the disk every few seconds.

A sync to the disk may take longer than the message. Most messages are therefore written without a
sync to a second file, NAME.newest, which survives the end of the process. If the machine stops, this
file may be damaged, and the run continues from NAME, a few seconds behind. Nodes write what they must
not forget (ledgers, budgets, secrets of masks) to their own disks before every answer. They refuse or
charge a message that is asked again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from flower_pca.base import files
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

_EVERY: Final = 2.0  # seconds of a run that are lost at most if the machine stops
_MARK, _COUNT = "mark", "count"


class Checkpoint:
    """The two files of a run's checkpoint.

    Parameters
    ----------
    path : path
        The file that is on the disk for certain.
    kind : str
        What it is called.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind
        self._newest = path.with_name(f"{path.name}.newest")
        self._mark, self._count = secrets.token_hex(8), 0
        self._synced: float | None = None

    def read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Return the header and arrays of the newest complete message, or None if there is no checkpoint.

        Raises
        ------
        DataError
            If the file is of another kind, or damaged.
        """
        if not self._path.exists():
            return None
        found = self._read(self._path)
        try:
            newest = self._read(self._newest)
        except (DataError, FileNotFoundError):
            newest = found  # There is none, or the machine has stopped before all of it was on the disk.
        if newest[0].get(_MARK) == found[0].get(_MARK) and newest[0].get(_COUNT, 0) > found[0].get(_COUNT, 0):
            found = newest
        self._mark, self._count = str(found[0].get(_MARK)), int(found[0].get(_COUNT, 0))
        return found

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
        # Its owner's alone, as it holds what single clients have answered, and in a simulation what they remember.
        return files.read(path, self._kind, private=True)

    def write(self, header: Mapping[str, Any], arrays: dict[str, Array], *, sync: bool = False) -> None:
        """Write the state after a message. Wait for the disk if `sync` is set, or the last sync is some time ago."""
        due = sync or self._synced is None or time.monotonic() - self._synced >= _EVERY
        self._count += 1
        whole = {**header, _MARK: self._mark, _COUNT: self._count}
        files.write(self._path if due else self._newest, self._kind, whole, arrays, private=True, sync=due)
        if due:
            self._synced = time.monotonic()

    def remove(self) -> None:
        """Remove both files, because the run is over."""
        self._path.unlink(missing_ok=True)
        self._newest.unlink(missing_ok=True)
