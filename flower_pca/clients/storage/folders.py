"""The files in a node's folders: its memory, its own result, the statistics of its rows, and the ledger.

Only the node's user can read the files. They are locked while they are read and written, so that two
processes of one node can neither answer from the same secrets nor spend the same budget.

`Memory` is what a client keeps between the rounds of a run, in Flower's context or in a file of the node.

Each run has its own memory, so that simultaneous runs at one node do not affect each other. Flower gives
each run its own context. In a node's folder, each run has a file, and the oldest file is removed if there
are more than `MOST_RUNS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flwr.app import Context

from flower_pca.base import files
from flower_pca.base.errors import ConfigError, DataError, private
from flower_pca.base.shown import brief
from flower_pca.core.stage import Arrays
from flower_pca.wire import records

# The memory of a run between its rounds, in memory_dir
MEMORY: Final = "flower_pca-{}-run-{}.npz"
# The ledger of what was sent about any rows, in memory_dir or in HOME
LEDGER: Final = "flower_pca-ledger-{}.npz"
# The newest released version of the rows, next to the ledger
ROWS: Final = "flower_pca-rows-{}.npz"
# The statistics of the rows from which answers are computed, in memory_dir
FIXED: Final = "flower_pca-fixed-{}.npz"
# The list of columns that reveal few people, in memory_dir
CELLS: Final = "flower_pca-cells-{}.npz"
# The digests of the rows with which the newest runs began, in memory_dir
BEGAN: Final = "flower_pca-began-{}.npz"
_BEGAN: Final = "rows that runs began with"
# The folder in the home of the node's user that contains the ledger if there is no memory_dir
HOME: Final = ".flower_pca"
# The node's own result, in output_dir
OWN: Final = "flower_pca-local-{}.npz"


def ledger_file(folder: str | os.PathLike[str] | None, data: str) -> Path:
    """Return the path of the ledger for this data, in the user's home if there is no folder."""
    return _place(folder, LEDGER, data)


def ledgers_beside(path: Path) -> list[Path]:
    """Return the paths of all ledgers in the folder of this ledger."""
    return sorted(path.parent.glob(LEDGER.format("*")))


def rows_file(folder: str | os.PathLike[str] | None, data: str) -> Path:
    """Return the path of the released rows, which is next to their ledger."""
    return _place(folder, ROWS, data)


def rows_beside(ledger: Path) -> Path:
    """Return the path of the rows that belong to a ledger."""
    start, _, end = LEDGER.partition("{}")
    data = ledger.name.removeprefix(start).removesuffix(end)
    return ledger.with_name(ROWS.format(data))


def ledger_of(rows: Path) -> Path:
    """Return the path of the ledger that belongs to released rows."""
    start, _, end = ROWS.partition("{}")
    data = rows.name.removeprefix(start).removesuffix(end)
    return rows.with_name(LEDGER.format(data))


def fixed_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the statistics of the node's rows."""
    return _place(folder, FIXED, key)


def cells_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the file that lists columns revealing few people."""
    return _place(folder, CELLS, key)


def began_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the file with the digests of the rows with which runs began."""
    return _place(folder, BEGAN, key)


def began(path: Path) -> dict[str, str]:
    """Return the digests of the rows with which each run began, by the digests of the runs' names."""
    try:
        return {str(run): str(mark) for run, mark in files.read(path, _BEGAN, private=True)[0]["runs"].items()}
    except (FileNotFoundError, DataError, KeyError, AttributeError):
        return {}  # without the folder, there are no such digests


def note_began(path: Path, runs: dict[str, str]) -> None:
    """Save these digests."""
    with lock(path):
        files.write(path, _BEGAN, {"runs": runs}, {}, private=True)


def local_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the node's own result."""
    return _place(folder, OWN, key)


def own_place(path: Path, algorithm: str) -> Path:
    """Return where to save the result. It replaces only a result of the same algorithm."""
    if not path.exists() or _header_of_own(path).get("algorithm") == algorithm:
        return path
    return path.with_name(f"{path.stem}-{algorithm}{path.suffix}")


def is_of_run(place: Path, run: Any) -> bool:
    """Return whether the saved result is from this run."""
    return place.exists() and bool(_header_of_own(place).get("run") == run)


def _header_of_own(path: Path) -> Mapping[str, Any]:
    try:
        return files.read(path, "own result", private=True)[0]
    except DataError:
        return {}


def key_of(context: Context) -> int:
    """Return the node's number in file names: its partition-id, or its node id if it has none."""
    return int(context.node_config.get("partition-id", context.node_id))


def partition_of(context: Context | None) -> int | None:
    """Return the partition-id of a node, or None."""
    if context is None or "partition-id" not in context.node_config:
        return None
    return int(context.node_config["partition-id"])


def data_of(name: str | None, partition: int | None) -> str:
    """Return the name of a node's data in files about all runs. No server chooses it.

    It is the name that its operator gives, or its partition-id. The server chooses the node id, so a node
    without a partition-id must be the only one that keeps files in its folder.
    """
    if name is not None:
        return f"data-{name}"
    if partition is None:
        return "node"
    return str(partition)


def is_named(ledger: Path) -> bool:
    """Return whether a ledger is named by its operator's name for the data."""
    return ledger.name.startswith(LEDGER.format("data-").removesuffix(".npz"))


def folder_of(path: Path) -> None:
    """Make the folder of a file for its owner only, if it does not exist."""
    try:
        files.make_folder(path.parent)
    except OSError as error:
        with private():
            raise ConfigError(
                f"This node cannot keep anything in {path.parent} ({error.strerror}). Name another folder, or let "
                "the user of this process make it."
            ) from error
    # In a folder that every user may write to, somebody could move the ledger away.
    if files.free_for_all(path.parent):
        with private():
            raise ConfigError(
                f"Every user may write to {path.parent}, so a node cannot keep anything there. Name a new folder in "
                "it, which the node then makes for its owner alone."
            )


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keep other processes from this file until the end."""
    if files.fcntl is None:
        raise ConfigError(
            f"This system ({os.name}) cannot lock files, which a node needs to keep a memory. Leave memory_dir, "
            "output_dir and rules that need a ledger out, or run the node on another system."
        )
    folder_of(path)
    with files.lock(path):
        yield


def remove(path: Path) -> None:
    """Remove a file and its lock, unless a process of the node is using it."""
    with contextlib.suppress(ConfigError, DataError, OSError), files.lock(path, wait=False):
        path.unlink()


def _place(folder: str | os.PathLike[str] | None, name: str, *keys: object) -> Path:
    """Return a path in the node's folder, or in its user's home, independent of Flower's own state."""
    if folder is None:
        folder = Path.home() / HOME
    return Path(folder).expanduser() / name.format(*keys)


_ARRAYS: Final = "flower_pca.memory"
_HEADER: Final = "flower_pca.memory.of"
_PARTS: Final = ("before", "after")
MOST_RUNS: Final = 16  # the most runs whose memory a node keeps in its folder


@dataclass(frozen=True)
class Memory:
    """The memory before and after the newest message of a run.

    Both are kept, so that a message that comes again after a restart of the server gets the same answer.
    """

    run: str = ""
    number: int = -1
    before: Arrays | None = None
    after: Arrays | None = None

    __repr__ = brief

    def at(self, run: str, number: int) -> Arrays:
        """Return what the client knew when message `number` of `run` was first sent, if that is known."""
        if run != self.run or number < self.number:
            return {}
        return dict((self.before if number == self.number else self.after) or {})

    def newest(self, run: str) -> Arrays:
        """Return what the client knows of a run for any message, if it shows what is due."""
        if run == self.run:
            return dict(self.after or {})
        return {}

    def to_header(self) -> dict[str, Any]:
        """Return run and number."""
        return {"run": self.run, "number": self.number}

    def to_arrays(self) -> Arrays:
        """Return both generations, by prefixed names."""
        return {
            f"{part}.{name}": a
            for part, arrays in zip(_PARTS, (self.before, self.after), strict=True)
            for name, a in (arrays or {}).items()
        }

    @classmethod
    def of(cls, run: str, number: int, arrays: Arrays) -> Memory:
        """Rebuild the memory that `to_header` and `to_arrays` took apart."""
        parts: dict[str, Arrays] = {part: {} for part in _PARTS}
        for name, array in arrays.items():
            part, rest = name.split(".", 1)
            parts[part][rest] = array
        return cls(run, number, parts["before"], parts["after"])


class StateStore:
    """The memory in `context.state`, which Flower keeps while the node and its run live."""

    def __init__(self, state: records.Content) -> None:
        self._state = state

    def alone(self, run: str) -> AbstractContextManager[None]:
        """Do nothing, because Flower gives a node one message of a run at a time."""
        return nullcontext()

    def load(self, run: str) -> Memory:
        """Return the newest memory, which is empty if there is none."""
        header = records.values_in(self._state, _HEADER)
        arrays = records.named_in(self._state, _ARRAYS)
        if not header or arrays is None:
            return Memory()
        return Memory.of(str(header["run"]), int(header["number"]), arrays)

    def save(self, memory: Memory) -> None:
        """Replace the memory."""
        records.put_named(self._state, _ARRAYS, memory.to_arrays())
        records.put_values(self._state, _HEADER, memory.to_header())


class FileStore:
    """The memory in the node's files, one for each run. It survives restarts of the node and the server.

    Parameters
    ----------
    folder : str or path
        The folder of the files.
    node : int
        The node's number in the names of the files.
    """

    def __init__(self, folder: str | os.PathLike[str], node: int) -> None:
        self._folder, self._node = Path(folder).expanduser(), node

    def file(self, run: str) -> Path:
        """Return the path of a run's memory. The server chooses the run's name, so the path does not contain it."""
        digest = hashlib.blake2s(run.encode(), digest_size=8).hexdigest()
        return _place(self._folder, MEMORY, self._node, digest)

    def alone(self, run: str) -> AbstractContextManager[None]:
        """Keep other processes of the node from this run's memory until the end."""
        return lock(self.file(run))

    def load(self, run: str) -> Memory:
        """Return the memory of a run, which is empty if there is no valid file."""
        try:
            header, arrays = files.read(self.file(run), "memory", private=True)
            return Memory.of(header["run"], header["number"], arrays)
        # A node reports that its memory is lost, and the run can continue. A lost ledger would be an error.
        except (FileNotFoundError, KeyError, ValueError):
            return Memory()

    def save(self, memory: Memory) -> None:
        """Replace the run's file. The files of the oldest runs are removed if there are too many."""
        path = self.file(memory.run)
        fresh = not path.exists()
        files.write(path, "memory", memory.to_header(), memory.to_arrays(), private=True)
        ages = self._ages()
        age = ages.pop(path, 0)
        newest = max(ages.values(), default=0)
        # A clock that was set back must not make the file of the current run the oldest one.
        if age <= newest:
            os.utime(path, ns=(newest + 1, newest + 1))
        if fresh:
            # `ages` does not contain the run's own file.
            for oldest in sorted(ages, key=ages.__getitem__, reverse=True)[MOST_RUNS - 1 :]:
                remove(oldest)

    def _ages(self) -> dict[Path, int]:
        """Return when the file of each run was written, in nanoseconds of the machine's clock."""
        ages: dict[Path, int] = {}
        for path in self._folder.glob(MEMORY.format(self._node, "*")):
            # another process may have removed the file
            with contextlib.suppress(FileNotFoundError):
                ages[path] = path.stat().st_mtime_ns
        return ages
