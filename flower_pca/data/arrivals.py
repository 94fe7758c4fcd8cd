"""A folder as a queue of batches: every step looks into it again and takes the oldest file not yet taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flower_pca.base.errors import DataError
from flower_pca.data import sources


class Arrivals:
    """The files of a folder, one batch each, in the order of their names. Files may arrive while the run goes on.

    A file counts once its name ends in one of the endings of `sources`; write it under another name and rename it, so
    that it is never read half-written. Names must grow (a date, a number with leading zeros): a file whose name comes
    before the newest one taken is never looked at.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser().absolute()
        if not self._path.is_dir():
            remedy = "Make it first; files may arrive later."
            raise DataError("The folder of a stream", must="there", got=f"none at {self._path}", then=remedy)

    def after(self, cursor: bytes) -> tuple[Any, bytes, int]:
        """The batch in the first file whose name comes after the cursor, that name, and how many more there are."""
        names = sorted(p.name.encode() for p in self._path.iterdir() if self._counts(p))
        waiting = [name for name in names if name > cursor]
        if not waiting:
            return None, cursor, 0
        return sources.make(str(self._path / waiting[0].decode())), waiting[0], len(waiting) - 1

    @staticmethod
    def _counts(path: Path) -> bool:
        return path.suffix.lower() in sources.ENDINGS and not path.name.startswith(".")
