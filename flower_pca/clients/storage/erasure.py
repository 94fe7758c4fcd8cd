"""Find and erase the files that a node keeps in its folders, for the command `flower-pca forget`.

The ledger and the record of runs are erased only on request, because every budget would begin again without
the ledger. If the released rows are erased, the ledger records this, so that the node may release its present
rows at its next answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flower_pca.base import files
from flower_pca.base.errors import ConfigError
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.storage import folders, ledger, record

# The kinds of files that a node keeps, and their contents
HOLDS: Final = {
    "runs": "the memory of runs",
    "statistics": "the statistics of the rows",
    "local": "the local results",
    "rows": "the rows from which the node last answered",
    "ledger": "the ledger of what was sent about the rows",
    "record": "the record of runs",
}
USUAL: Final = tuple(kind for kind in HOLDS if kind not in ("ledger", "record"))


@dataclass(frozen=True)
class StoredFile:
    """A file that a node keeps, or a folder of files.

    Attributes
    ----------
    kind : str
        The kind of the file, a key of `HOLDS`.
    path : path
        The path of the file or folder.
    """

    kind: str
    path: Path

    @property
    def size(self) -> int:
        """The size of the file, or of all files in the folder, in bytes."""
        inside = (path for path in self.path.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in (self.path, *inside))

    def __str__(self) -> str:
        return f"{self.path}: {HOLDS[self.kind]}, {self.size:,} bytes"


@dataclass(frozen=True)
class NodeFiles:
    """The folders in which a node keeps its files.

    Attributes
    ----------
    rules : Rules
        The node's rules, which name the folders and the data.
    partition : int or None
        The node's partition-id. If it is None, all files in the folders belong to the node.
    """

    rules: Rules
    partition: int | None = None

    @property
    def data(self) -> str:
        """The name of the node's data in its file names."""
        return folders.data_name_of(self.rules.data_name, self.partition)

    @property
    def ledger(self) -> Path:
        """The path of the node's ledger."""
        return folders.ledger_file(self.rules.memory_dir, self.data)

    def items(self, kinds: Sequence[str] = USUAL) -> list[StoredFile]:
        """Return the existing files of these kinds."""
        return [StoredFile(kind, path) for kind in kinds for path in self._paths(kind)]

    def erase(self, kinds: Sequence[str] = USUAL) -> None:
        """Erase all files of these kinds, unless a run is using one of them.

        Raises
        ------
        ConfigError
            If a run is using one of the files or the ledger.
        """
        items = self.items(kinds)
        with ExitStack() as locks:
            # The ledger is locked as well, because a node holds its lock while it reads its rows.
            for path in {self.ledger, *(item.path for item in items)}:
                if path.is_file():
                    _lock_file(locks, path)
            # The ledger is changed before the rows are erased, because a ledger whose rows are missing is an error.
            if "rows" in kinds and "ledger" not in kinds and self.ledger.exists():
                ledger.reopen(self.ledger)
            for path in (item.path for item in items):
                # rmtree raises an error for links, and the target of a link does not belong to the node.
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def _paths(self, kind: str) -> Iterator[Path]:
        rules, key = self.rules, "*" if self.partition is None else self.partition
        rows = folders.rows_file(rules.memory_dir, self.data)
        own = folders.OWN.format(key)
        # The second pattern is for results of other algorithms, and the third for the steps of a stream.
        owns = (own, folders.OWN.format(f"{key}-*"), Path(own).stem)
        places = {
            "runs": (rules.memory_dir, [folders.MEMORY.format(key, "*"), folders.BEGAN.format(key)]),
            "statistics": (rules.memory_dir, [folders.FIXED.format(key), folders.CELLS.format(key)]),
            "local": (rules.output_dir, owns),
            "rows": (rows.parent, [rows.name]),
            "ledger": (self.ledger.parent, [self.ledger.name]),
            "record": (record.folder_of(rules), [record.file_pattern(self.data)]),
        }
        folder, patterns = places[kind]
        if folder is not None:
            for pattern in patterns:
                yield from sorted(Path(folder).expanduser().glob(pattern))


def _lock_file(locks: ExitStack, path: Path) -> None:
    """Lock a file, or raise ConfigError if a process of the node has locked it."""
    try:
        locks.enter_context(files.lock(path, wait=False))
    except ConfigError as error:
        raise ConfigError(
            f"A run is using {path.name} of this node. Stop the node or wait until the run has ended, then try again."
        ) from error
