"""What a node keeps in folders of its own, by name: its memory, its own result, the statistics of its rows, and the
blocks it has answered.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MEMORY: Final = "flower_pca-{}.npz"  # of a run, between its rounds; in memory_dir
TOLD: Final = "flower_pca-told-{}.npz"  # the blocks answered while the rows stay the same; in memory_dir
FIXED: Final = "flower_pca-fixed-{}.npz"  # the statistics of the rows that answers come from; in memory_dir
OWN: Final = "flower_pca-own-{}.npz"  # what an algorithm gives the node itself; in output_dir


def memory_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where the node with this partition-id (or node id, if it has none) keeps what it has to remember."""
    return _place(folder, MEMORY, key)


def told_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where it keeps which blocks it has answered."""
    return _place(folder, TOLD, key)


def fixed_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where it keeps the statistics of its rows."""
    return _place(folder, FIXED, key)


def own_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where it leaves its own result."""
    return _place(folder, OWN, key)


def _place(folder: str | os.PathLike[str], name: str, key: int) -> Path:
    return Path(folder).expanduser() / name.format(key)
