"""Shards in packs, which worker processes map into memory instead of copying them with every message.

A pack holds the clients of one virtual node: one block of bytes with all their arrays, and a JSON text
with the place of each array. Rows that are memory-mapped already stay where they are, and only their
place is written. The same holds for genotypes in .bed files. Rows of other files are copied piece by
piece, because most readers of files cannot go to another process. Streams are pickled. Packs are files
in the folder for temporary files (`Folder`). If machines do not share that folder, packs go through
Ray's object store (`Store`), except for rows that are mapped from files on all machines, and the files
that clients write on other machines are copied to this one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.cache import Cache
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters, source
from flower_pca.blocks.adapters import place_of
from flower_pca.blocks.bed import Bed
from flower_pca.blocks.compressed import Compressed
from flower_pca.blocks.source import Blocks, Place, is_sparse
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.simulation.cluster import everywhere, machines

_ALIGNED: Final = 64  # bytes
_ROOM: Final = 2**28  # the most bytes of the clients that a process keeps in memory
_LEAST: Final = 2**14  # the bytes that every client is counted with beside its arrays
_STREAM: Final = 2**22  # the number of bytes that a stream is counted with
_PREFIX: Final = "flower_pca-"
_OWN: Final = "own"  # the folder for the files of clients
_HERE: Final = "here"  # a file that tells other machines that a folder is this machine's


class Packs(ABC):
    """The shards of a simulation by the number of the client, in a form small enough to go with every message."""

    each: int  # the number of clients in a pack

    @abstractmethod
    def pack(self, number: int) -> tuple[str, Array | None]:
        """Return the JSON text of a pack, and its bytes."""

    def load(self, client: int) -> Any:
        """Return a client's rows or stream, mapped into memory and kept for the next message."""
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
        elif entry["kind"] == "genotypes":
            rows = pickle.loads(arrays[0].tobytes())
        elif entry["kind"] == "compressed":
            data, indices, indptr = arrays
            rows = Compressed({"data": data, "indices": indices}, np.array(indptr), entry["shape"][1])
        names, words = text["names"][entry["names"]]
        named = Table(
            rows, None if names is None else tuple(names), words, entry["source"], entry["site"], ids=entry["ids"]
        )
        return LocalData(named, who=f"client {client}", missing=True, empty=True)


@dataclass(frozen=True)
class Folder(Packs):
    """Packs as files in a folder that all workers share."""

    path: Path
    each: int

    def save(self, shards: Sequence[Any]) -> Folder:
        """Write these shards to the folder, and return it."""
        for number, first in enumerate(range(0, len(shards), self.each)):
            text, arrays, _ = pack_of(shards[first : first + self.each])
            (self.path / f"{number}.json").write_text(text)
            with open(self.path / f"{number}.rows", "wb") as file:
                for offset, parts in arrays:
                    file.seek(offset)
                    for part in parts:
                        part.tofile(file)
        return self

    def pack(self, number: int) -> tuple[str, Array | None]:
        """Return the JSON text of a pack, and its bytes, mapped into memory."""
        file = self.path / f"{number}.rows"
        text = file.with_suffix(".json").read_text()
        # An empty file cannot be mapped.
        return text, np.memmap(file, dtype=np.uint8, mode="r") if file.stat().st_size else None


@dataclass(frozen=True)
class Store(Packs):
    """Packs in Ray's object store."""

    # a reference to the list of references of all packs, so that a message carries only one
    index: Any
    each: int

    @classmethod
    def of(cls, shards: Sequence[Any], each: int, *, seen: Callable[[str], bool]) -> Store:
        """Store these shards; of rows mapped from files for which `seen` is true, store only the place."""
        import ray

        packs = []
        for first in range(0, len(shards), each):
            text, arrays, size = pack_of(shards[first : first + each], seen=seen)
            block = np.zeros(size, dtype=np.uint8)
            for offset, parts in arrays:
                for part in parts:
                    block[offset : offset + part.nbytes] = part.reshape(-1).view(np.uint8)
                    offset += part.nbytes
            packs.append(ray.put((text, block)))
        return cls(ray.put(packs), each)

    def pack(self, number: int) -> tuple[str, Array | None]:
        """Return the JSON text of a pack, and its bytes, which Ray has mapped into memory."""
        import ray

        try:
            text, block = ray.get(ray.get(self.index)[number])
        except OSError as error:  # The machine of this worker has left the cluster, so end this process.
            raise SystemExit("Ray's object store is gone") from error
        return text, block


@dataclass(frozen=True)
class _Written:
    """An array that is written part by part, so that it need not be in memory as a whole."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[Array]  # arrays in the order of their entries in memory, which together have this shape
    place: Place | None = None  # the file that the array is mapped from
    by_columns: bool = False

    @classmethod
    def of(cls, a: Array) -> _Written:
        """Keep the order of the entries of an array in memory, so that results have the same bits."""
        by_columns = a.ndim == 2 and abs(a.strides[0]) < abs(a.strides[1])
        parts = [np.ascontiguousarray(a.T if by_columns else a)]
        return cls(a.dtype, a.shape, parts, place_of(a), by_columns)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def at(self, offset: int) -> Place:
        """Return the place of the array if it is written to the pack from this byte on."""
        sizes = self.shape[::-1] if self.by_columns else self.shape
        strides = tuple(self.dtype.itemsize * int(np.prod(sizes[i + 1 :])) for i in range(len(sizes)))
        return Place("", self.dtype.str, offset, self.shape, strides[::-1] if self.by_columns else strides)


def pack_of(
    shards: Sequence[Any], *, seen: Callable[[str], bool] | None = None
) -> tuple[str, list[tuple[int, Iterable[Array]]], int]:
    """Return the JSON text of a pack of these shards, its arrays as parts with their offsets, and its number of bytes.

    Rows that are mapped from a file for which `seen` is true, or any file if it is None, are written as places only.
    """
    names: dict[str, int] = {}
    arrays: list[tuple[int, Iterable[Array]]] = []
    entries, size = [], 0
    for shard in shards:
        entry, written = _describe(shard, names, seen)
        for a in written:
            place = a.place
            if place is None or not (seen is None or seen(place.file)):
                place = a.at(size)
                arrays.append((size, a.parts))
                size += -(-a.nbytes // _ALIGNED) * _ALIGNED
            entry["arrays"].append(asdict(place))
        entries.append(entry)
    return json.dumps({"names": [json.loads(text) for text in names], "shards": entries}), arrays, size


def _describe(
    shard: Any, names: dict[str, int], seen: Callable[[str], bool] | None
) -> tuple[dict[str, Any], list[_Written]]:
    """Return the entry of a shard in the JSON text, and its arrays; equal names of columns are written once."""
    if isinstance(shard, Stream):
        from ray import cloudpickle

        pickled = cloudpickle.dumps(shard)  # type: ignore[no-untyped-call]
        return {"kind": "stream", "arrays": []}, [_Written.of(np.frombuffer(pickled, dtype=np.uint8))]
    rows = Table.of(shard)
    known = names.setdefault(json.dumps([rows.names, dict(rows.words)]), len(names))
    entry = {"kind": "dense", "arrays": [], "names": known, "source": rows.source, "site": rows.site, "ids": rows.ids}
    stored = adapters.is_stored(rows.values)
    found = adapters.of(rows.values)
    if isinstance(found, Bed) and (seen is None or seen(found.file)):
        pickled = np.frombuffer(pickle.dumps(found), dtype=np.uint8)
        return {**entry, "kind": "genotypes"}, [_Written.of(pickled)]
    if stored and is_sparse(found):
        return {**entry, "kind": "compressed", "shape": list(found.shape)}, _compressed(found)
    if stored:
        return entry, [_Written(found.dtype, found.shape, _pieces(found))]
    whole = source.whole(found)
    if not hasattr(whole, "tocsr"):
        return entry, [_Written.of(whole)]
    arrays = [_Written.of(a) for a in (whole.data, whole.indices, whole.indptr)]
    return {**entry, "kind": "sparse", "shape": list(whole.shape)}, arrays


def _pieces(rows: Blocks) -> Iterator[Array]:
    """Yield the rows of a source as they are written."""
    for piece in rows.pieces():
        yield np.ascontiguousarray(piece, dtype=rows.dtype)


def _compressed(rows: Blocks) -> list[_Written]:
    """Return the three arrays of CSR that is read once for each of them, so that only the ends of rows are held."""
    ends = [np.zeros(1, dtype=np.int64)]
    for piece in rows.pieces():
        ends.append(ends[-1][-1] + piece.indptr[1:].astype(np.int64))
    indptr = np.concatenate(ends)
    data = (np.ascontiguousarray(piece.data, dtype=rows.dtype) for piece in rows.pieces())
    kind = np.dtype(np.int32 if rows.shape[1] < 2**31 else np.int64)
    indices = (np.ascontiguousarray(piece.indices, dtype=kind) for piece in rows.pieces())
    stored = (int(indptr[-1]),)
    return [_Written(rows.dtype, stored, data), _Written(kind, stored, indices), _Written.of(indptr)]


def weight(client: Any) -> int:
    """Return about how many bytes a client takes: its statistics, and rows that are not mapped."""
    if not isinstance(client, LocalData):
        return _STREAM
    if isinstance(client.measured.rows, Compressed):
        return _LEAST + 8 * client.n  # Its entries are mapped, so only the ends of its rows are in memory.
    # The statistics are X'X or its factor, whichever is smaller. A sparse entry takes 8 bytes, and 4 for its index.
    return _LEAST + (12 * int(client.measured.csr.nnz) if client.sparse else 8 * client.d * min(client.n, client.d))


# The clients of this worker process. This cache and that of packs below belong to the module, because each
# message is a separate task of Ray, and only modules last from one task to the next.
_READY: Final = Cache(_ROOM, weight)


@functools.lru_cache(maxsize=64)
def _pack(packs: Packs, number: int) -> tuple[dict[str, Any], Array | None]:
    text, pack = packs.pack(number)
    return json.loads(text), pack


def _open(place: Place, pack: Array | None) -> Array:
    """Return an array of a pack, or of the file that it was mapped from."""
    if place.file or pack is None:  # All arrays of an empty pack are empty.
        return place.open()
    return np.ndarray(place.shape, np.dtype(place.dtype), pack, place.offset, place.strides)


@dataclass(frozen=True)
class Where:
    """The places of the shards and of the files that clients write.

    Parameters
    ----------
    packs : Packs
        The shards.
    name : str
        The name of the folder for the files of clients, among the temporary files of each machine.
    shared : str or None
        The path of that folder if all machines share it.
    """

    packs: Packs
    name: str
    shared: str | None

    def output(self) -> Path:
        """Return the folder for the files of clients, on the machine that calls this."""
        if self.shared is None:
            return _output(self.name)
        return Path(self.shared) / _OWN

    def bring_back(self) -> None:
        """Copy the files that clients have written on other machines to this machine, the newest file of each name."""
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
    """Keep the shards where all machines can read them, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as place:
        # The folder alone is no proof of sharing: other machines make one of that name for the files of
        # clients.
        (Path(place) / _HERE).touch()
        if len(machines()) == 1 or all(everywhere(_sees, place).values()):
            yield Where(Folder(Path(place), each).save(shards), Path(place).name, place)
            return
        rows = (Table.of(shard).values for shard in shards if not isinstance(shard, Stream))
        files = {file: _mark(file) for file in map(_file_of, map(adapters.of, rows)) if file is not None}
        common = set(files).intersection(*everywhere(_same, files).values())
        yield Where(Store.of(shards, each, seen=common.__contains__), Path(place).name, None)


def _file_of(rows: Blocks) -> str | None:
    """Return the file that other processes can read the rows from as they are, or None."""
    if isinstance(rows, Bed):
        return rows.file
    place = rows.place()
    return None if place is None else place.file


def _mark(file: str) -> tuple[int, int] | None:
    """Return the size and time of change of a file, by which machines compare files; None if it does not exist."""
    try:
        there = os.stat(file)
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns


# What follows runs on every machine of the cluster.


def _sees(place: str) -> bool:
    """Return whether a machine has this folder among its own temporary files."""
    return Path(tempfile.gettempdir()) == Path(place).parent and (Path(place) / _HERE).is_file()


def _same(files: Mapping[str, Any]) -> set[str]:
    """Return those of the files that a machine has too."""
    return {file for file, mark in files.items() if _mark(file) == mark}


def _output(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name / _OWN


def _leftovers(name: str) -> dict[str, tuple[int, bytes]]:
    """Return the files that clients have written on a machine, with times of change and bytes, and delete them."""
    folder = _output(name)
    paths = [path for path in folder.rglob("*.npz") if path.is_file()]
    left = {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    # On the machine of the simulation, `place_shards` deletes the folder.
    if not (folder.parent / _HERE).exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
    return left
