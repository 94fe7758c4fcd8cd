"""The files in a node's folders: its memory, its own result, the statistics of its rows, and the ledger.

Only the node's user can read the files. They are locked while they are read and written, so that two
processes of one node can neither answer from the same secrets nor spend the same budget twice.

`RunMemory` is what a client keeps between the rounds of a run. It is stored in Flower's context or in a file of
the node.

Each run has its own memory, so that simultaneous runs at one node do not affect each other. Flower gives each
run its own context. In a node's folder, each run has its own file. If there are more than `MOST_RUNS` files,
the oldest one is removed.
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
from flower_pca.base.errors import ConfigError, DataError, marked_private
from flower_pca.base.shown import brief
from flower_pca.core.stage import Arrays
from flower_pca.wire import records

# The memory of a run between its rounds, in memory_dir
MEMORY: Final = "flower_pca-{}-run-{}.npz"
# The ledger of everything that was sent about the rows, in memory_dir or in HOME
LEDGER: Final = "flower_pca-ledger-{}.npz"
# The newest released version of the rows, next to the ledger
ROWS: Final = "flower_pca-rows-{}.npz"
# The statistics of the rows from which answers are computed, in memory_dir
FIXED: Final = "flower_pca-fixed-{}.npz"
# The list of columns that reveal few people, in memory_dir
CELLS: Final = "flower_pca-cells-{}.npz"
# The digests of the rows with which the newest runs began, in memory_dir
BEGAN: Final = "flower_pca-began-{}.npz"
_BEGAN: Final = "rows that runs began with"  # the kind of content that this file declares
# The folder in the home of the node's user, which contains the ledger if there is no memory_dir
HOME: Final = ".flower_pca"
# The node's own result, in output_dir
OWN: Final = "flower_pca-local-{}.npz"


def ledger_file(folder: str | os.PathLike[str] | None, data: str) -> Path:
    """Return the path of the ledger for this data. Without a folder, the ledger is in the user's home."""
    return _file_path(folder, LEDGER, data)


def ledgers_beside(path: Path) -> list[Path]:
    """Return the paths of all ledgers in the folder of this ledger."""
    return sorted(path.parent.glob(LEDGER.format("*")))


def rows_file(folder: str | os.PathLike[str] | None, data: str) -> Path:
    """Return the path of the released rows. It is in the same folder as their ledger."""
    return _file_path(folder, ROWS, data)


def rows_beside(ledger: Path) -> Path:
    """Return the path of the rows that belong to a ledger."""
    return _renamed(ledger, LEDGER, ROWS)


def ledger_of(rows: Path) -> Path:
    """Return the path of the ledger that belongs to released rows."""
    return _renamed(rows, ROWS, LEDGER)


def _renamed(path: Path, pattern: str, other: str) -> Path:
    """Return the path of another file about the same rows, beside one whose name follows a pattern."""
    start, _, end = pattern.partition("{}")
    return path.with_name(other.format(path.name.removeprefix(start).removesuffix(end)))


def fixed_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the statistics of the node's rows."""
    return _file_path(folder, FIXED, key)


def cells_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the file that lists the columns that reveal few people."""
    return _file_path(folder, CELLS, key)


def rows_at_start_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the file that stores a digest of the rows at the start of each run."""
    return _file_path(folder, BEGAN, key)


def rows_at_start(path: Path) -> dict[str, str]:
    """Return the digests of the rows at the start of runs, by digests of the runs' names."""
    try:
        return {str(run): str(mark) for run, mark in files.read(path, _BEGAN, private=True)[0]["runs"].items()}
    except (FileNotFoundError, DataError, KeyError, AttributeError):
        return {}  # If the file is missing or damaged, it counts as empty.


def save_rows_at_start(path: Path, runs: dict[str, str]) -> None:
    """Save the digests of the rows at the start of runs."""
    with lock_file(path):
        files.write(path, _BEGAN, {"runs": runs}, {}, private=True)


def local_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Return the path of the node's own result."""
    return _file_path(folder, OWN, key)


def free_result_path(path: Path, algorithm: str) -> Path:
    """Return `path`, or a path with the algorithm's name if `path` contains the result of another algorithm."""
    if not path.exists() or _header_of_result(path).get("algorithm") == algorithm:
        return path
    return path.with_name(f"{path.stem}-{algorithm}{path.suffix}")


def is_result_of_run(path: Path, run: Any) -> bool:
    """Return whether the saved result is from this run."""
    return path.exists() and bool(_header_of_result(path).get("run") == run)


def _header_of_result(path: Path) -> Mapping[str, Any]:
    try:
        return files.read(path, "own result", private=True)[0]
    except DataError:
        return {}


def key_of(context: Context) -> int:
    """Return the node's number for file names: its partition-id, or its node id if it has no partition-id."""
    return int(context.node_config.get("partition-id", context.node_id))


def partition_of(context: Context | None) -> int | None:
    """Return the partition-id of a node, or None if it has none."""
    if context is None or "partition-id" not in context.node_config:
        return None
    return int(context.node_config["partition-id"])


def data_name_of(name: str | None, partition: int | None) -> str:
    """Return the name of a node's data for files that cover all runs. The server cannot influence this name.

    The result contains `name`, which the operator has given, or else the partition-id. The node id is not used,
    because the server chooses it. Therefore, a node without a name and a partition-id must be the only node that
    keeps files in its folder.
    """
    if name is not None:
        return f"data-{name}"
    if partition is None:
        return "node"
    return str(partition)


def is_named(ledger: Path) -> bool:
    """Return whether a ledger is named after the operator's name for the data, data_name."""
    return ledger.name.startswith(LEDGER.format("data-").removesuffix(".npz"))


def make_folder_of(path: Path) -> None:
    """Make the folder of a file if it does not exist. Only its owner has access to a new folder.

    Raises
    ------
    ConfigError
        If the folder cannot be made, or if every user may write to it.
    """
    try:
        files.make_folder(path.parent)
    except OSError as error:
        with marked_private():
            raise ConfigError(
                f"This node cannot make the folder {path.parent} for its files ({error.strerror}). Name another "
                "folder, or give the user of this process permission to make this one."
            ) from error
    # If every user may write to the folder, any of them could move the ledger away.
    if files.is_writable_by_all(path.parent):
        with marked_private():
            raise ConfigError(
                f"Every user may write to {path.parent}, so a node cannot safely keep its files there. Name a new "
                "folder inside it, which the node then makes for its owner only."
            )


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Lock a file against other processes within the `with` block."""
    if files.fcntl is None:
        raise ConfigError(
            f"This system ({os.name}) cannot lock files, but a node must lock the files in its folders. Leave out "
            "memory_dir, output_dir and all rules that need a ledger, or run the node on another system."
        )
    make_folder_of(path)
    with files.lock(path):
        yield


def remove_file(path: Path) -> None:
    """Remove a file and its lock, unless a process of the node is using it."""
    with contextlib.suppress(ConfigError, DataError, OSError), files.lock(path, wait=False):
        path.unlink()


def _file_path(folder: str | os.PathLike[str] | None, name: str, *keys: object) -> Path:
    """Return the path of a file in the node's folder, or in its user's home if there is no folder."""
    if folder is None:
        folder = Path.home() / HOME
    return Path(folder).expanduser() / name.format(*keys)


_ARRAYS: Final = "flower_pca.memory"
_HEADER: Final = "flower_pca.memory.of"
_PARTS: Final = ("before", "after")
MOST_RUNS: Final = 16  # the maximum number of runs whose memory a node keeps in its folder


@dataclass(frozen=True)
class RunMemory:
    """The memory of a client before and after the newest message of a run.

    Both are kept, so that the client gives the same answer if the server repeats the message after a restart.
    """

    run: str = ""
    number: int = -1
    before: Arrays | None = None
    after: Arrays | None = None

    __repr__ = brief

    def before_message(self, run: str, number: int) -> Arrays:
        """Return the client's memory before message `number` of `run`, or an empty dict if it is not known."""
        if run != self.run or number < self.number:
            return {}
        return dict((self.before if number == self.number else self.after) or {})

    def newest_of(self, run: str) -> Arrays:
        """Return the newest memory of a run, or an empty dict if this is the memory of another run."""
        if run == self.run:
            return dict(self.after or {})
        return {}

    def to_header(self) -> dict[str, Any]:
        """Return the run and the number of its newest message, for the header of a file."""
        return {"run": self.run, "number": self.number}

    def to_arrays(self) -> Arrays:
        """Return the arrays before and after the newest message, with the prefixes "before." and "after."."""
        return {
            f"{part}.{name}": a
            for part, arrays in zip(_PARTS, (self.before, self.after), strict=True)
            for name, a in (arrays or {}).items()
        }

    @classmethod
    def from_header(cls, run: str, number: int, arrays: Arrays) -> RunMemory:
        """Return the memory of a run, from the values that `to_header` and `to_arrays` have returned."""
        parts: dict[str, Arrays] = {part: {} for part in _PARTS}
        for name, array in arrays.items():
            part, rest = name.split(".", 1)
            parts[part][rest] = array
        return cls(run, number, parts["before"], parts["after"])


class StateStore:
    """A store of a run's memory in `context.state`, which Flower keeps as long as the node and the run exist."""

    def __init__(self, state: records.Content) -> None:
        self._state = state

    def locked(self, run: str) -> AbstractContextManager[None]:
        """Return a context manager that locks nothing, because Flower gives a node one message of a run at a time."""
        return nullcontext()

    def load(self, run: str) -> RunMemory:
        """Return the newest memory, or an empty one if there is none."""
        header = records.values_in(self._state, _HEADER)
        arrays = records.named_in(self._state, _ARRAYS)
        if not header or arrays is None:
            return RunMemory()
        return RunMemory.from_header(str(header["run"]), int(header["number"]), arrays)

    def save(self, memory: RunMemory) -> None:
        """Replace the memory."""
        records.put_named(self._state, _ARRAYS, memory.to_arrays())
        records.put_values(self._state, _HEADER, memory.to_header())


class FileStore:
    """A store of the memory of runs in files, one for each run. The files survive restarts of node and server.

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
        """Return the path of a run's memory. The path contains a digest of the run's name, which the server chooses."""
        digest = hashlib.blake2s(run.encode(), digest_size=8).hexdigest()
        return _file_path(self._folder, MEMORY, self._node, digest)

    def locked(self, run: str) -> AbstractContextManager[None]:
        """Return a context manager that locks this run's memory against other processes of the node."""
        return lock_file(self.file(run))

    def load(self, run: str) -> RunMemory:
        """Return the memory of a run, or an empty one if there is no valid file."""
        try:
            header, arrays = files.read(self.file(run), "memory", private=True)
            return RunMemory.from_header(header["run"], header["number"], arrays)
        # Lost memory is no error, unlike a lost ledger: the node reports the loss, and the run can continue.
        except (FileNotFoundError, KeyError, ValueError):
            return RunMemory()

    def save(self, memory: RunMemory) -> None:
        """Replace the run's file. The files of the oldest runs are removed if there are too many."""
        path = self.file(memory.run)
        fresh = not path.exists()
        files.write(path, "memory", memory.to_header(), memory.to_arrays(), private=True)
        ages = self._times_written()
        age = ages.pop(path, 0)
        newest = max(ages.values(), default=0)
        # If the clock was set back, the file of the current run gets the latest time of all files, so that it is not
        # removed as the oldest one.
        if age <= newest:
            os.utime(path, ns=(newest + 1, newest + 1))
        if fresh:
            # `ages` does not contain the current run's file, so only MOST_RUNS - 1 other files may remain.
            for oldest in sorted(ages, key=ages.__getitem__, reverse=True)[MOST_RUNS - 1 :]:
                remove_file(oldest)

    def _times_written(self) -> dict[Path, int]:
        """Return the time when the file of each run was written, in nanoseconds of the machine's clock."""
        ages: dict[Path, int] = {}
        for path in self._folder.glob(MEMORY.format(self._node, "*")):
            # Another process may have removed the file in the meantime.
            with contextlib.suppress(FileNotFoundError):
                ages[path] = path.stat().st_mtime_ns
        return ages
