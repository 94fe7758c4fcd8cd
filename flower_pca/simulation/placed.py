"""Where the shards of a simulation lie, and where its clients leave what they keep.

Both is a folder that every machine sees: that for temporary files, or one that is named. Where machines do not share
one, shards travel through Ray's object store, but for rows that are mapped from files which all machines see; and what
clients leave in the folder of their own machine comes back to this one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.simulation.backend import Ray
from flower_pca.simulation.cluster import everywhere, machines
from flower_pca.simulation.shards import Folder, Packs, packed, place_of

_PREFIX: Final = "flower_pca-"
_OWN: Final = "own"
_HERE: Final = "here"  # a file by which a machine knows this machine's folder


@dataclass(frozen=True)
class Store(Packs):
    """Packs in Ray's object store."""

    index: Any  # a reference to the references of all packs: one alone goes with every message
    each: int

    @classmethod
    def of(cls, shards: Sequence[Any], each: int, *, seen: Callable[[str], bool]) -> Store:
        """These shards; of files that are `seen` by all machines, only the places."""
        import ray

        packs = []
        for first in range(0, len(shards), each):
            text, arrays, size = packed(shards[first : first + each], seen=seen)
            block = np.zeros(size, dtype=np.uint8)
            for offset, a in arrays:
                block[offset : offset + a.nbytes] = a.reshape(-1).view(np.uint8)
            packs.append(ray.put((text, block)))
        return cls(ray.put(packs), each)

    def pack(self, number: int) -> tuple[str, Array | None]:
        """A pack: what is where, and the bytes, which Ray has mapped into memory."""
        import ray

        text, block = ray.get(ray.get(self.index)[number])
        return text, block.view(np.memmap)  # so that rows are worked on where they lie, block by block


@dataclass(frozen=True)
class Placed:
    """Where the shards are, and what clients keep.

    Args:
        packs: The shards.
        name: Of the folder for what clients leave, among the temporary files of each machine.
        shared: That folder, if all machines see it.
    """

    packs: Packs
    name: str
    shared: str | None

    def output(self) -> Path:
        """The folder for what clients leave, on the machine that asks."""
        return _output(self.name) if self.shared is None else Path(self.shared) / _OWN

    def bring_back(self) -> None:
        """Have all that clients have left on other machines in this one's folder; of two files of a name, the newer."""
        if self.shared is not None:
            return
        newest: dict[str, tuple[int, bytes]] = {}
        for left in everywhere(_left, self.name).values():
            newest |= {name: file for name, file in left.items() if name not in newest or file > newest[name]}
        for name, (_, content) in newest.items():
            path = self.output() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@contextlib.contextmanager
def placed(shards: Sequence[Any], each: int, engine: Ray) -> Iterator[Placed]:
    """Shards where all machines can see them, until the end."""
    if engine.folder is not None and not Path(engine.folder).is_dir():
        raise ConfigError("folder", must="a folder that is there", got=str(engine.folder), then="Make it first.")
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=engine.folder) as place:
        (Path(place) / _HERE).touch()
        several = len(machines()) > 1
        found = everywhere(_sees, place, engine.folder is not None) if several else {}
        blind = [machine for machine, sees in found.items() if not sees]
        if not blind:
            yield Placed(Folder(Path(place), each).save(shards), Path(place).name, place)
            return
        if engine.folder is not None:
            rule, remedy = "one that all machines of the cluster see", "Name another, or leave it out."
            got = f"{engine.folder}, which {blind[0]} does not see"
            raise ConfigError("folder", must=rule, got=got, then=remedy)
        files = {file: _mark(file) for shard in shards if (file := _file(shard)) is not None}
        common = set(files).intersection(*everywhere(_same, files).values())
        yield Placed(Store.of(shards, each, seen=common.__contains__), Path(place).name, None)


def _file(shard: Any) -> str | None:
    """The file that a shard is mapped from."""
    place = place_of(getattr(shard, "values", shard))
    return None if place is None else str(place["filename"])


def _mark(file: str) -> tuple[int, int] | None:
    """What tells a file from another of its name on another machine."""
    try:
        there = os.stat(file)
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns


# What follows runs on every machine of the cluster.


def _sees(place: str, named: bool) -> bool:
    """Whether a machine sees this folder; one that is not named, among its own temporary files."""
    mine = named or Path(tempfile.gettempdir()) == Path(place).parent
    return mine and (Path(place) / _HERE).is_file()


def _same(files: Mapping[str, Any]) -> set[str]:
    """Those of the files that a machine has too."""
    return {file for file, mark in files.items() if _mark(file) == mark}


def _output(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name / _OWN


def _left(name: str) -> dict[str, tuple[int, bytes]]:
    """What clients have left on a machine, which it keeps no longer: when, and the bytes, by the name of the file."""
    folder = _output(name)
    paths = [path for path in folder.rglob("*.npz") if path.is_file()]
    left = {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    if not (folder.parent / _HERE).exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
    return left
