"""Find ledgers of the same rows in other folders of the same user.

A ledger does not include the counts of a ledger in another folder, and a node cannot search all folders of its
machine. Instead, every node adds the folder of its ledgers to a list in its user's home, and reads the ledgers
in the other folders of this list. The node thereby notices a ledger of the same file or of exactly the same
rows. It does not notice ledgers of rows that have changed, nor ledgers of other users, on other machines, or in
containers with their own home.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flwr.app import Context

from flower_pca.base import files
from flower_pca.base.errors import FlowerPCAError
from flower_pca.clients.storage import folders, ledger, marks
from flower_pca.rows.local import LocalData
from flower_pca.wire import records

_LIST: Final = "folders.txt"  # a file in the user's home, with a folder of ledgers on each line
# The name of the record in a node's state that marks other folders as checked in this run
_LOOKED: Final = "flower_pca.elsewhere"
_MOST: Final = 200  # the maximum number of folders that are checked


def warn_of_other_ledgers(path: Path, data: LocalData, context: Context) -> None:
    """Warn in the node's log, once per run, if ledgers in other folders also cover this node's rows."""
    if records.values_in(context.state, _LOOKED):
        return
    if found := ledgers_elsewhere(path.parent, data):
        logging.getLogger("flwr").warning(
            "A ledger in another folder, %s, also covers the rows of this node, but the node's own ledger %s does not "
            "include its counts. Give every node that serves these rows the same memory_dir.",
            ", ".join(map(str, found)),
            path,
        )
    records.put_values(context.state, _LOOKED, {"ledgers": len(found)})


def ledgers_elsewhere(folder: Path, data: LocalData) -> list[Path]:
    """Return the paths of the ledgers in other known folders that cover these rows or their file.

    Also add `folder` to the user's list of known folders.
    """
    found = []
    for other in _other_folders(folder.absolute()):
        for path in sorted(other.glob(folders.LEDGER.format("*"))):
            # A ledger that is damaged, or that this user may not read, is skipped.
            with contextlib.suppress(OSError, FlowerPCAError):
                if marks.is_known_in(other, data, ledger.marks_in(path)):
                    found.append(path)
    return found


def _other_folders(folder: Path) -> Iterator[Path]:
    """Yield the other folders in the list, after adding this folder to the list."""
    # If the user has no home, or cannot write there, there is no list.
    with contextlib.suppress(OSError, RuntimeError, UnicodeDecodeError, FlowerPCAError):
        path = Path.home() / folders.HOME / _LIST
        with folders.lock_file(path):
            listed: list[str] = []
            if path.exists():
                with open(path, encoding="utf-8", opener=files.opener) as file:
                    listed = file.read().splitlines()
            if str(folder) not in listed and len(listed) < _MOST:
                with files.replacing_file(path, private=True) as stream:
                    stream.write("".join(f"{line}\n" for line in [*listed, str(folder)]).encode())
        yield from (Path(line) for line in listed[:_MOST] if line and Path(line) != folder and Path(line).is_dir())
