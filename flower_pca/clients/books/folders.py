"""What a node keeps in folders of its own, by name: its memory, its own result, the statistics of its rows, and the
ledger of what it has told.

All of it is readable by the node's own user only, and locked while it is read and written: two processes of one node
can neither answer from the same secrets nor spend the same budget.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flwr.app import Context

from flower_pca.base import archive, files
from flower_pca.base.errors import ConfigError, DataError, private

# of a run, between its rounds; in memory_dir
MEMORY: Final = "flower_pca-{}-run-{}.npz"
# what was told, of whichever rows; in memory_dir, or in HOME
LEDGER: Final = "flower_pca-ledger-{}.npz"
# the newest version of the rows that was released; beside the ledger
ROWS: Final = "flower_pca-rows-{}.npz"
# the statistics of the rows that answers come from; in memory_dir
FIXED: Final = "flower_pca-fixed-{}.npz"
# in the home of the node's user: where a ledger is without memory_dir
HOME: Final = ".flower_pca"
# what an algorithm gives the node itself; in output_dir
OWN: Final = "flower_pca-own-{}.npz"


def memory_file(folder: str | os.PathLike[str], key: int, run: str) -> Path:
    """Where the node with this partition-id (or node id, if it has none) keeps what it has to remember of a run."""
    return Path(folder).expanduser() / MEMORY.format(key, run)


def ledger_file(folder: str | os.PathLike[str] | None, data: str) -> Path:
    """Where a node keeps what it has told of this data; without a folder, in the home of its user."""
    return _place(home() if folder is None else folder, LEDGER, data)


def rows_file(folder: str | os.PathLike[str] | None, data: str) -> Path:
    """Where it keeps the rows that it has released, which are beside their ledger."""
    return _place(home() if folder is None else folder, ROWS, data)


def fixed_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where it keeps the statistics of its rows."""
    return _place(folder, FIXED, key)


def own_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where it leaves its own result."""
    return _place(folder, OWN, key)


def own_place(path: Path, algorithm: str) -> Path:
    """Where it is left if that file may be there already: beside one of another algorithm, in place of its own."""
    if not path.exists():
        return path
    try:
        header, _ = archive.read(path, "own result", private=True)
    except DataError:
        header = {}
    beside = path.with_name(f"{path.stem}-{algorithm}{path.suffix}")
    if header.get("algorithm") == algorithm:
        return path
    return beside


def key_of(context: Context) -> int:
    """The number of a node that its files bear: its partition-id, or its node id if it has none."""
    partition = context.node_config.get("partition-id")
    return int(context.node_id if partition is None else partition)


def data_of(name: str | None, context: Context | None) -> str:
    """What the data of a node is called in the names of files about all runs: nothing of it comes from a server.

    By the name that its operator gives, else by its partition-id. The node id is the server's to choose, and so a node
    without a partition-id is the only one that keeps files in its folder.
    """
    if name is not None:
        return f"data-{name}"
    if context is None:
        partition = None
    else:
        partition = context.node_config.get("partition-id")
    if partition is None:
        return "node"
    return str(int(partition))


def folder_of(path: Path) -> None:
    """Make the folder of a file, if there is none, for its owner only."""
    try:
        files.make_folder(path.parent)
    except OSError as error:
        got, remedy = f"{path.parent} ({error.strerror})", "Name another, or let the user of this process make it."
        with private():
            raise ConfigError("The folder of what a node keeps", must="possible", got=got, then=remedy) from error
    # a ledger that somebody puts aside has told nothing
    if files.free_for_all(path.parent):
        rule, remedy = "one that not all users may write to", "Name a folder in it, which is then made for its owner."
        with private():
            raise ConfigError("The folder of what a node keeps", must=rule, got=f"{path.parent}", then=remedy)


@contextlib.contextmanager
def lock(path: Path | None) -> Iterator[None]:
    """Keep other processes from this file until the end; None stands for no file."""
    if path is None:
        yield
        return
    if files.fcntl is None:
        remedy = "Leave memory_dir, output_dir and rules that need a ledger out, or run the node on another system."
        raise ConfigError("What a node keeps", must="on a system that can lock files", got=os.name, then=remedy)
    folder_of(path)
    with files.lock(path):
        yield


def remove(path: Path) -> None:
    """Remove a file and its lock, if no process of the node is at it; another time, then."""
    with contextlib.suppress(ConfigError, DataError, OSError), files.lock(path, wait=False):
        path.unlink()


def home() -> Path:
    """Where a node without memory_dir keeps its ledger, whatever place Flower has for its own state."""
    return Path.home() / HOME


def _place(folder: str | os.PathLike[str], name: str, key: object) -> Path:
    return Path(folder).expanduser() / name.format(key)
