"""Shards in packs: what worker processes map into memory, instead of a copy with every message; and where they lie.

A pack holds the clients of one virtual node: one block of bytes with all their arrays, and a text
that says what is where. Rows that are memory-mapped already stay where they are, and only their
place is written down; streams are pickled. Packs lie in the folder for temporary files (`Folder`).
Where machines do not share that, they go through Ray's object store (`Store`), but for rows that
are mapped from files which all machines see; and what clients leave in the folder of their own
machine comes back to this one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.cache import Cache
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters, source
from flower_pca.blocks.adapters import place_of
from flower_pca.blocks.source import Place
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.simulation.cluster import everywhere, machines

_ALIGNED: Final = 64  # bytes
_ROOM: Final = 2**28  # bytes that the clients which a process keeps ready may come to
_LEAST: Final = 2**14  # bytes of one of them at least
_STREAM: Final = 2**22  # bytes that a stream is taken to have
_PREFIX: Final = "flower_pca-"
_OWN: Final = "own"  # the folder for what clients leave
_HERE: Final = "here"  # a file by which a machine knows this machine's folder


class Packs(ABC):
    """The shards of a simulation, by the number of their client; frozen, and light enough to go with every message."""

    each: int  # clients in a pack

    @abstractmethod
    def pack(self, number: int) -> tuple[str, Array | None]:
        """A pack: what is where, and the bytes."""

    def load(self, client: int) -> Any:
        """A client's rows, or its stream, mapped into memory and kept for the next message."""
        return _READY.get((self, client), lambda: self._load(client))

    def _load(self, client: int) -> Any:
        text, pack = _pack(self, client // self.each)
        entry = text["shards"][client % self.each]
        arrays = [_open(Place(**place), pack) for place in entry["arrays"]]
        if entry["kind"] == "stream":
            from ray import cloudpickle

            return cloudpickle.loads(arrays[0].tobytes())
        rows: Any = arrays[0]
        if entry["kind"] == "sparse":
            from scipy.sparse import csr_array

            shape = tuple(entry["shape"])
            rows = csr_array(tuple(np.array(a) for a in arrays), shape=shape)
        names, words = text["names"][entry["names"]]
        named = Table(
            rows, None if names is None else tuple(names), words, entry["source"], entry["site"], ids=entry["ids"]
        )
        return LocalData(named, who=f"client {client}", missing=True, empty=True)


@dataclass(frozen=True)
class Folder(Packs):
    """Packs as files in a folder that all workers see."""

    path: Path
    each: int

    def save(self, shards: Sequence[Any]) -> Folder:
        """The same, with these shards in it."""
        for number, first in enumerate(range(0, len(shards), self.each)):
            text, arrays, _ = pack_of(shards[first : first + self.each])
            (self.path / f"{number}.json").write_text(text)
            with open(self.path / f"{number}.rows", "wb") as file:
                for offset, a in arrays:
                    file.seek(offset)
                    a.tofile(file)
        return self

    def pack(self, number: int) -> tuple[str, Array | None]:
        """A pack: what is where, and the bytes."""
        file = self.path / f"{number}.rows"
        text = file.with_suffix(".json").read_text()
        # A file without a byte cannot be mapped.
        return text, np.memmap(file, dtype=np.uint8, mode="r") if file.stat().st_size else None


@dataclass(frozen=True)
class Store(Packs):
    """Packs in Ray's object store."""

    # a reference to the references of all packs: one alone goes with every message
    index: Any
    each: int

    @classmethod
    def of(cls, shards: Sequence[Any], each: int, *, seen: Callable[[str], bool]) -> Store:
        """These shards; of files that are `seen` by all machines, only the places."""
        import ray

        packs = []
        for first in range(0, len(shards), each):
            text, arrays, size = pack_of(shards[first : first + each], seen=seen)
            block = np.zeros(size, dtype=np.uint8)
            for offset, a in arrays:
                block[offset : offset + a.nbytes] = a.reshape(-1).view(np.uint8)
            packs.append(ray.put((text, block)))
        return cls(ray.put(packs), each)

    def pack(self, number: int) -> tuple[str, Array | None]:
        """A pack: what is where, and the bytes, which Ray has mapped into memory."""
        import ray

        try:
            text, block = ray.get(ray.get(self.index)[number])
        except OSError as error:  # its machine has left the cluster: end, as the other workers there will
            raise SystemExit("Ray's object store is gone") from error
        return text, block


def pack_of(
    shards: Sequence[Any], *, seen: Callable[[str], bool] | None = None
) -> tuple[str, list[tuple[int, Array]], int]:
    """What is where in a pack of these shards; its arrays, each with its offset; its bytes.

    Of rows that are mapped from files which are `seen` by all workers, as all are if that is left
    out, only the place.
    """
    names: dict[str, int] = {}
    arrays: list[tuple[int, Array]] = []
    entries, size = [], 0
    for shard in shards:
        entry, parts = _describe(shard, names)
        for a in parts:
            place = place_of(a)
            if place is None or not (seen is None or seen(place.file)):
                packed, place = _packed(a, size)
                arrays.append((size, packed))
                size += -(-a.nbytes // _ALIGNED) * _ALIGNED
            entry["arrays"].append(asdict(place))
        entries.append(entry)
    return json.dumps({"names": [json.loads(text) for text in names], "shards": entries}), arrays, size


def _packed(a: Array, offset: int) -> tuple[Array, Place]:
    """An array as it is written, in its own order so that results keep their bits; and the place to read it from."""
    by_columns = a.ndim == 2 and abs(a.strides[0]) < abs(a.strides[1])
    packed = np.ascontiguousarray(a.T if by_columns else a)
    there = packed.T if by_columns else packed
    return packed, Place("", a.dtype.str, offset, there.shape, there.strides)


def _describe(shard: Any, names: dict[str, int]) -> tuple[dict[str, Any], list[Array]]:
    """What is said of a shard, with names written once for all that share them; its arrays."""
    if isinstance(shard, Stream):
        from ray import cloudpickle

        pickled = cloudpickle.dumps(shard)  # type: ignore[no-untyped-call]
        return {"kind": "stream", "arrays": []}, [np.frombuffer(pickled, dtype=np.uint8)]
    rows = Table.of(shard)
    whole = source.whole(adapters.of(rows.values))
    known = names.setdefault(json.dumps([rows.names, dict(rows.words)]), len(names))
    entry = {"kind": "dense", "arrays": [], "names": known, "source": rows.source, "site": rows.site, "ids": rows.ids}
    if not hasattr(whole, "tocsr"):
        return entry, [whole]
    return {**entry, "kind": "sparse", "shape": list(whole.shape)}, [whole.data, whole.indices, whole.indptr]


def weight(client: Any) -> int:
    """About how many bytes a client takes: its statistics, and rows that are not mapped."""
    if not isinstance(client, LocalData):
        return _STREAM
    # Statistics are X'X or a root of it, the smaller one; an entry of a sparse matrix is 8 bytes
    # and 4 of its place.
    return _LEAST + (12 * int(client.measured.csr.nnz) if client.sparse else 8 * client.d * min(client.n, client.d))


# The clients of this worker process, and its open packs below. Both belong to the module, because every message is a
# task of its own in a worker of Ray, and of one task nothing but the modules is left for the next one.
_READY: Final = Cache(_ROOM, weight)


@functools.lru_cache(maxsize=64)
def _pack(packs: Packs, number: int) -> tuple[dict[str, Any], Array | None]:
    text, pack = packs.pack(number)
    return json.loads(text), pack


def _open(place: Place, pack: Array | None) -> Array:
    """An array of a pack, or of the file that it was mapped from."""
    if place.file or pack is None:  # All arrays of a pack without a byte are empty.
        return place.open()
    return np.ndarray(place.shape, np.dtype(place.dtype), pack, place.offset, place.strides)


@dataclass(frozen=True)
class Where:
    """Where the shards are, and what clients keep.

    Parameters
    ----------
    packs : Packs
        The shards.
    name : str
        Of the folder for what clients leave, among the temporary files of each machine.
    shared : str or None
        That folder, if all machines see it.
    """

    packs: Packs
    name: str
    shared: str | None

    def output(self) -> Path:
        """The folder for what clients leave, on the machine that asks."""
        if self.shared is None:
            return _output(self.name)
        return Path(self.shared) / _OWN

    def bring_back(self) -> None:
        """Have all that clients have left on other machines in this one's folder; of two files of a name, the newer."""
        if self.shared is not None:
            return
        newest: dict[str, tuple[int, bytes]] = {}
        for left in everywhere(_leftovers, self.name).values():
            newest |= {name: file for name, file in left.items() if name not in newest or file > newest[name]}
        for name, (_, content) in newest.items():
            path = self.output() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@contextlib.contextmanager
def place_shards(shards: Sequence[Any], each: int) -> Iterator[Where]:
    """Shards where all machines can see them, until the end."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as place:
        # A folder of that name is no sign: a machine makes one itself for what its clients leave.
        (Path(place) / _HERE).touch()
        if len(machines()) == 1 or all(everywhere(_sees, place).values()):
            yield Where(Folder(Path(place), each).save(shards), Path(place).name, place)
            return
        rows = (Table.of(shard).values for shard in shards if not isinstance(shard, Stream))
        mapped = filter(None, (adapters.of(values).place() for values in rows))
        files = {there.file: _mark(there.file) for there in mapped}
        common = set(files).intersection(*everywhere(_same, files).values())
        yield Where(Store.of(shards, each, seen=common.__contains__), Path(place).name, None)


def _mark(file: str) -> tuple[int, int] | None:
    """What tells a file from another of its name on another machine."""
    try:
        there = os.stat(file)
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns


# What follows runs on every machine of the cluster.


def _sees(place: str) -> bool:
    """Whether a machine has this folder among its own temporary files."""
    return Path(tempfile.gettempdir()) == Path(place).parent and (Path(place) / _HERE).is_file()


def _same(files: Mapping[str, Any]) -> set[str]:
    """Those of the files that a machine has too."""
    return {file for file, mark in files.items() if _mark(file) == mark}


def _output(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name / _OWN


def _leftovers(name: str) -> dict[str, tuple[int, bytes]]:
    """What clients have left on a machine, which it keeps no longer: when, and the bytes, by the name of the file."""
    folder = _output(name)
    paths = [path for path in folder.rglob("*.npz") if path.is_file()]
    left = {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    # On this machine the folder is taken away by `place_shards`.
    if not (folder.parent / _HERE).exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
    return left
