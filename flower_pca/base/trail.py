"""Trail: the finished steps of a tracker's run beside its checkpoint, so that a message costs the same at every step.

A checkpoint is written anew with every message; the bases of all steps that are kept would make it ever longer. They
lie in a file of lines of equal length beside it, in which a step takes the place of the oldest one. There is one line
more than are kept: should the machine stop between the line and the checkpoint, none is lacking.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np

from flower_pca.base import places
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

_HEAD: Final = 2  # numbers before a line: the step, and the mark of the run


@runtime_checkable
class Recorded(Protocol):
    """The state of a stage that keeps a record of its newest steps, as lines of numbers."""

    keep: int
    gone: int
    record: tuple[Any, ...]

    def lines(self, newest: int) -> Array:
        """The newest steps, one by row."""

    def figures(self) -> dict[str, Array]:
        """What a result needs of them, and the totals of all steps."""

    def until(self, steps: int | None) -> Self:
        """With so many steps to take, which may be others than before; None for as many as there is data for."""

    def recalled(self, lines: Array) -> Self:
        """With the steps that `lines` has written."""


class Trail:
    """The lines beside a checkpoint.

    Args:
        checkpoint: The file that they lie beside, under its name with .steps behind.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint.with_name(f"{checkpoint.name}.steps")
        self._done, self._mark = 0, float(secrets.randbelow(2**52))

    def add(self, state: Any) -> dict[str, Any]:
        """Write the steps that are new, and say what the checkpoint needs to find them."""
        if not isinstance(state, Recorded) or not state.record:
            return {}
        count, slots = state.gone + len(state.record), state.keep + 1
        lines = state.lines(min(count - self._done, len(state.record)))
        if len(lines):
            if not self._done:  # what lies there is of another run, or a link that somebody has laid
                self.remove()
            with open(self._path, "r+b", opener=_opened) as file:
                for number, line in enumerate(lines, count - len(lines)):
                    whole = np.concatenate([[number, self._mark], line])
                    file.seek(number % slots * whole.nbytes)
                    file.write(whole.tobytes())
                file.flush()
                os.fsync(file.fileno())
            self._done = count
        width = _HEAD + state.lines(1).shape[1]
        return {"steps": {"count": count, "kept": len(state.record), "width": width, "mark": self._mark}}

    def read(self, header: Mapping[str, Any], keep: int) -> dict[str, Array]:
        """The steps that a checkpoint speaks of."""
        if "steps" not in header:
            return {}
        told = header["steps"]
        count, width, kept = int(told["count"]), int(told["width"]), int(told["kept"])
        if not (0 <= kept <= min(keep, count) and width > _HEAD):
            raise ValueError("more steps than are kept")
        numbers, found = range(count - kept, count), []
        if self._path.is_symlink():
            raise self._others("a link")
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb", opener=places.opener) as file:
            for number in numbers:
                file.seek(number % (keep + 1) * width * 8)
                found.append(np.frombuffer(file.read(width * 8)))
        if [line[:_HEAD].tolist() for line in found] != [[number, told["mark"]] for number in numbers]:
            raise self._others("others")
        self._done, self._mark = count, float(told["mark"])
        return {"steps": np.stack(found)[:, _HEAD:]}

    def remove(self) -> None:
        """There is nothing to go on from any more."""
        self._path.unlink(missing_ok=True)

    def _others(self, got: str) -> DataError:
        remedy = "Delete the checkpoint, and start the run again."
        return DataError(f"The steps in {self._path}", must="those of the checkpoint", got=got, then=remedy)


def _opened(path: str, flags: int) -> int:
    """A file of its owner's, and never one elsewhere that a link leads to."""
    return places.opener(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0))
