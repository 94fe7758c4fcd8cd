"""Streams as files: what the worker processes of a simulation load, once each, instead of with every message."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from flower_pca.rows.stream import Stream

_READY: Final = 8  # streams that a process keeps ready


def save(folder: Path, index: int, stream: Stream) -> None:
    """Leave stream `index` in the folder; functions travel by value."""
    from ray import cloudpickle

    with open(folder / f"{index}.pkl", "wb") as file:
        cloudpickle.dump(stream, file)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=_READY)
def load(folder: Path, index: int) -> Stream:
    """Stream `index` of the folder, kept ready for the next message."""
    from ray import cloudpickle

    with open(folder / f"{index}.pkl", "rb") as file:
        stream: Stream = cloudpickle.load(file)
    return stream
