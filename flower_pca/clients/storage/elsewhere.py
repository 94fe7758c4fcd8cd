"""Find ledgers in other folders that know the same rows, as far as a node can see them.

A ledger does not count what a ledger in another folder counts. A node cannot search all folders of its
machine. But every node lists the places of its ledgers in its user's home, and reads the ledgers that
other nodes have listed there. It thereby notices the same file, or exactly the same rows. It does not
notice folders of other users, other machines or containers with their own home, nor changed rows.
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
# the record of a node's state which says that the run has checked other folders
_LOOKED: Final = "flower_pca.elsewhere"
_MOST: Final = 200  # the most folders that are checked


def warn(path: Path, data: LocalData, context: Context) -> None:
    """Log on the node, once a run, which ledgers of other folders know the rows counted in this one."""
    if records.values_in(context.state, _LOOKED):
        return
    if found := knowing(path.parent, data):
        logging.getLogger("flwr").warning(
            "%s in another folder also knows the rows of this node, but %s does not include what it counts. Give "
            "every node that serves these rows the same memory_dir.",
            ", ".join(map(str, found)),
            path,
        )
    records.put_values(context.state, _LOOKED, {"ledgers": len(found)})


def knowing(folder: Path, data: LocalData) -> list[Path]:
    """Return ledgers of other folders that know these rows or their file, and list this folder from now on."""
    found = []
    for other in _others(folder.absolute()):
        for path in sorted(other.glob(folders.LEDGER.format("*"))):
            # Another ledger may be damaged, or this user may not read it.
            with contextlib.suppress(OSError, FlowerPCAError):
                if marks.known_in(other, data, ledger.marks_in(path)):
                    found.append(path)
    return found


def _others(folder: Path) -> Iterator[Path]:
    """Return the other folders in the list, and add this one."""
    # There is no list if the user has no home, or must not write there.
    with contextlib.suppress(OSError, RuntimeError, UnicodeDecodeError, FlowerPCAError):
        path = Path.home() / folders.HOME / _LIST
        with folders.lock(path):
            listed: list[str] = []
            if path.exists():
                with open(path, encoding="utf-8", opener=files.opener) as file:
                    listed = file.read().splitlines()
            if str(folder) not in listed and len(listed) < _MOST:
                with files.replacing(path, private=True) as stream:
                    stream.write("".join(f"{line}\n" for line in [*listed, str(folder)]).encode())
        yield from (Path(line) for line in listed[:_MOST] if line and Path(line) != folder and Path(line).is_dir())
