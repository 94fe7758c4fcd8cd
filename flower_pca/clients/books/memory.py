"""What a client keeps between the rounds of a run, in Flower's context or in a file of the node's own.

Each run has a memory to itself: runs at the same time at one node do not know of each other. Flower gives every run of
its own a context; in a node's folder every run has a file, and the oldest goes once there are more than `MOST_RUNS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flower_pca.base import archive
from flower_pca.clients.books import folders
from flower_pca.core.stage import Arrays
from flower_pca.wire import records

_ARRAYS: Final = "flower_pca.memory"
_HEADER: Final = "flower_pca.memory.of"
_PARTS: Final = ("before", "after")
MOST_RUNS: Final = 16  # whose memory a node keeps in its folder


@dataclass(frozen=True)
class Memory:
    """The memory before and after the newest message of a run.

    Both are kept, so that a message which comes again, because the server was restarted, is answered alike.
    """

    run: str = ""
    number: int = -1
    before: Arrays | None = None
    after: Arrays | None = None

    def at(self, run: str, number: int) -> Arrays:
        """What the client knew when message `number` of `run` was first sent; nothing if that is not known."""
        if run != self.run or number < self.number:
            return {}
        return dict((self.before if number == self.number else self.after) or {})

    def newest(self, run: str) -> Arrays:
        """What the client knows of a run, whichever message comes: for one that tells by itself what is due."""
        if run == self.run:
            return dict(self.after or {})
        return {}

    def to_header(self) -> dict[str, Any]:
        """Run and number."""
        return {"run": self.run, "number": self.number}

    def to_arrays(self) -> Arrays:
        """Both generations, by prefixed names."""
        return {
            f"{part}.{name}": a
            for part, arrays in zip(_PARTS, (self.before, self.after), strict=True)
            for name, a in (arrays or {}).items()
        }

    @classmethod
    def of(cls, run: str, number: int, arrays: Arrays) -> Memory:
        """The memory that `to_header` and `to_arrays` took apart."""
        parts: dict[str, Arrays] = {part: {} for part in _PARTS}
        for name, array in arrays.items():
            part, rest = name.split(".", 1)
            parts[part][rest] = array
        return cls(run, number, parts["before"], parts["after"])


class StateStore:
    """Memory in `context.state`: kept by Flower while the node and its run live."""

    def __init__(self, state: records.Content) -> None:
        self._state = state

    def alone(self, run: str) -> AbstractContextManager[None]:
        """Flower gives a node one message of a run at a time."""
        return nullcontext()

    def load(self, run: str) -> Memory:
        """The newest memory, empty if there is none."""
        header, arrays = records.values_in(self._state, _HEADER), records.named_in(self._state, _ARRAYS)
        if not header or arrays is None:
            return Memory()
        return Memory.of(str(header["run"]), int(header["number"]), arrays)

    def save(self, memory: Memory) -> None:
        """Replace the memory."""
        records.put_named(self._state, _ARRAYS, memory.to_arrays())
        records.put_values(self._state, _HEADER, memory.to_header())


class FileStore:
    """Memory in files of the node's own, one for each run: it outlives the node's process, and a restart of the server.

    Args:
        folder: Where the files are.
        node: The number of the node that they bear.
    """

    def __init__(self, folder: str | os.PathLike[str], node: int) -> None:
        self._folder, self._node = folder, node

    def file(self, run: str) -> Path:
        """Where the memory of a run is. Its name is the server's, and so is no name of a file."""
        return folders.memory_file(self._folder, self._node, hashlib.blake2s(run.encode(), digest_size=8).hexdigest())

    def alone(self, run: str) -> AbstractContextManager[None]:
        """Until the end, no other process of the node loads or saves the memory of this run."""
        return folders.lock(self.file(run))

    def load(self, run: str) -> Memory:
        """The memory of a run, empty if there is none or if the file is not one."""
        try:
            header, arrays = archive.read(self.file(run), "memory", private=True)
            return Memory.of(header["run"], header["number"], arrays)
        except (FileNotFoundError, KeyError, ValueError):
            return Memory()

    def save(self, memory: Memory) -> None:
        """Replace the file of the memory's run; the files of the oldest runs go, where there are too many."""
        path = self.file(memory.run)
        fresh = not path.exists()
        archive.write(path, "memory", memory.to_header(), memory.to_arrays(), private=True)
        ages = self._ages()
        age = ages.pop(path, 0)
        newest = max(ages.values(), default=0)
        # a clock that was set back must not make the file of a run under way the oldest
        if age <= newest:
            os.utime(path, ns=(newest + 1, newest + 1))
        if fresh:
            for oldest in sorted(ages, key=ages.__getitem__, reverse=True)[MOST_RUNS - 1 :]:
                folders.remove(oldest)

    def _ages(self) -> dict[Path, int]:
        """When the file of each run was written, in nanoseconds of the machine's clock."""
        folder = folders.memory_file(self._folder, self._node, "").parent
        ages: dict[Path, int] = {}
        for path in folder.glob(folders.MEMORY.format(self._node, "*")):
            # another process has removed it
            with contextlib.suppress(FileNotFoundError):
                ages[path] = path.stat().st_mtime_ns
        return ages
