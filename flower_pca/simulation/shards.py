"""Packs of shards, which worker processes map into memory instead of copying them with every message.

A pack holds the clients of one virtual node. It consists of a block of bytes with all arrays of these
clients, and of a JSON text with the position of each array. Memory-mapped rows are not copied, because
the JSON text only names their position in their own file. The same holds for genotypes in .bed files.
Rows of other files are copied piece by piece, because most file readers cannot be sent to another
process. Streams are pickled.

Packs are files in the folder for temporary files (`PacksInFolder`). If machines do not share this folder, packs
are sent through Ray's object store (`PacksInStore`), except for rows that are mapped from files on all machines.
The files that clients write on other machines are then copied to this machine.
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
from flower_pca.blocks.compressed import CompressedRows
from flower_pca.blocks.source import Blocks, Place, is_sparse
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.simulation.cluster import call_on_each_machine, machines

_ALIGNED: Final = 64  # Each array starts at a multiple of this number of bytes.
_ROOM: Final = 2**28  # the maximum number of bytes of the clients that a process keeps in memory
_LEAST: Final = 2**14  # the number of bytes that are counted for each client in addition to its arrays
_STREAM: Final = 2**22  # the number of bytes that are counted for a stream
_PREFIX: Final = "flower_pca-"
_CLIENT_FILES: Final = "own"  # the folder for the files that clients write
_MARKER: Final = "here"  # a file that marks the folder of the machine that runs the simulation


class PackedShards(ABC):
    """A reference to the packed shards of a simulation. It is small enough to be sent with every message."""

    each: int  # the number of clients in a pack

    @abstractmethod
    def read_pack(self, number: int) -> tuple[str, Array | None]:
        """Return the JSON text of a pack, and its bytes, or None instead of the bytes if the pack has none."""

    def load(self, client: int) -> Any:
        """Return a client's rows or stream. They are kept in memory for the next message."""
        return _LOADED.get((self, client), lambda: self._load(client))

    def _load(self, client: int) -> Any:
        text, pack = _read_pack(self, client // self.each)
        entry = text["shards"][client % self.each]
        arrays = [_open_array(Place(**place), pack) for place in entry["arrays"]]
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
            rows = CompressedRows({"data": data, "indices": indices}, np.array(indptr), entry["shape"][1])
        names, words = text["names"][entry["names"]]
        named = Table(
            rows, None if names is None else tuple(names), words, entry["source"], entry["site"], ids=entry["ids"]
        )
        return LocalData(named, who=f"client {client}", missing=True, empty=True)


@dataclass(frozen=True)
class PacksInFolder(PackedShards):
    """Packs in files, in a folder that all workers share."""

    path: Path
    each: int

    def save(self, shards: Sequence[Any]) -> PacksInFolder:
        """Write the shards to the folder, and return this object."""
        for number, first in enumerate(range(0, len(shards), self.each)):
            text, arrays, _ = pack_of(shards[first : first + self.each])
            (self.path / f"{number}.json").write_text(text)
            with open(self.path / f"{number}.rows", "wb") as file:
                for offset, parts in arrays:
                    file.seek(offset)
                    for part in parts:
                        part.tofile(file)
        return self

    def read_pack(self, number: int) -> tuple[str, Array | None]:
        """Return the JSON text of a pack, and its bytes as a memory map, or None if the pack has no bytes."""
        file = self.path / f"{number}.rows"
        text = file.with_suffix(".json").read_text()
        # An empty file cannot be mapped.
        return text, np.memmap(file, dtype=np.uint8, mode="r") if file.stat().st_size else None


@dataclass(frozen=True)
class PacksInStore(PackedShards):
    """Packs in Ray's object store."""

    # The reference to a list of the references to all packs, so that a message contains only one reference
    index: Any
    each: int

    @classmethod
    def store(cls, shards: Sequence[Any], each: int, *, seen: Callable[[str], bool]) -> PacksInStore:
        """Store the shards in packs of `each` clients.

        If rows are mapped from a file for which `seen` returns True, only their position is stored.
        """
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

    def read_pack(self, number: int) -> tuple[str, Array | None]:
        """Return the JSON text of a pack, and its bytes, which Ray maps into the memory of this process."""
        import ray

        try:
            text, block = ray.get(ray.get(self.index)[number])
        except OSError as error:  # The machine of this worker has left the cluster, so this process must end.
            raise SystemExit("Ray's object store is gone") from error
        return text, block


@dataclass(frozen=True)
class _WrittenArray:
    """An array that is written part by part, so that it does not have to be in memory as a whole."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[Array]  # arrays that together have this shape, in the order of the entries in memory
    place: Place | None = None  # the position in a file, if the array is mapped from one
    by_columns: bool = False  # whether the entries of a column, instead of a row, are contiguous

    @classmethod
    def from_array(cls, a: Array) -> _WrittenArray:
        """Return this array in the form for writing. The order of its entries in memory is preserved.

        Otherwise, rounding errors would differ, and so would the results.
        """
        by_columns = a.ndim == 2 and abs(a.strides[0]) < abs(a.strides[1])
        parts = [np.ascontiguousarray(a.T if by_columns else a)]
        return cls(a.dtype, a.shape, parts, place_of(a), by_columns)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the array."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def place_at(self, offset: int) -> Place:
        """Return the position of the array in a pack if its first byte is at `offset`."""
        sizes = self.shape[::-1] if self.by_columns else self.shape
        strides = tuple(self.dtype.itemsize * int(np.prod(sizes[i + 1 :])) for i in range(len(sizes)))
        return Place("", self.dtype.str, offset, self.shape, strides[::-1] if self.by_columns else strides)


def pack_of(
    shards: Sequence[Any], *, seen: Callable[[str], bool] | None = None
) -> tuple[str, list[tuple[int, Iterable[Array]]], int]:
    """Return the JSON text of a pack, its arrays (offsets and parts), and its number of bytes.

    If rows are mapped from a file for which `seen` returns True, the pack contains only their position. If
    `seen` is None, this applies to all files.
    """
    names: dict[str, int] = {}
    arrays: list[tuple[int, Iterable[Array]]] = []
    entries, size = [], 0
    for shard in shards:
        entry, written = _describe(shard, names, seen)
        for a in written:
            place = a.place
            if place is None or not (seen is None or seen(place.file)):
                place = a.place_at(size)
                arrays.append((size, a.parts))
                size += -(-a.nbytes // _ALIGNED) * _ALIGNED
            entry["arrays"].append(asdict(place))
        entries.append(entry)
    return json.dumps({"names": [json.loads(text) for text in names], "shards": entries}), arrays, size


def _describe(
    shard: Any, names: dict[str, int], seen: Callable[[str], bool] | None
) -> tuple[dict[str, Any], list[_WrittenArray]]:
    """Return the entry of a shard in the JSON text, and its arrays. Shards with equal column names share one list."""
    if isinstance(shard, Stream):
        from ray import cloudpickle

        pickled = cloudpickle.dumps(shard)  # type: ignore[no-untyped-call]
        return {"kind": "stream", "arrays": []}, [_WrittenArray.from_array(np.frombuffer(pickled, dtype=np.uint8))]
    rows = Table.of(shard)
    known = names.setdefault(json.dumps([rows.names, dict(rows.words)]), len(names))
    entry = {"kind": "dense", "arrays": [], "names": known, "source": rows.source, "site": rows.site, "ids": rows.ids}
    stored = adapters.is_stored(rows.values)
    found = adapters.as_blocks(rows.values)
    if isinstance(found, Bed) and (seen is None or seen(found.file)):
        pickled = np.frombuffer(pickle.dumps(found), dtype=np.uint8)
        return {**entry, "kind": "genotypes"}, [_WrittenArray.from_array(pickled)]
    if stored and is_sparse(found):
        return {**entry, "kind": "compressed", "shape": list(found.shape)}, _csr_arrays(found)
    if stored:
        return entry, [_WrittenArray(found.dtype, found.shape, _contiguous_pieces(found))]
    whole = source.all_rows(found)
    if not hasattr(whole, "tocsr"):
        return entry, [_WrittenArray.from_array(whole)]
    arrays = [_WrittenArray.from_array(a) for a in (whole.data, whole.indices, whole.indptr)]
    return {**entry, "kind": "sparse", "shape": list(whole.shape)}, arrays


def _contiguous_pieces(rows: Blocks) -> Iterator[Array]:
    """Yield the rows of a source in contiguous pieces, as a pack stores them."""
    for piece in source.complete_pieces(rows):
        yield np.ascontiguousarray(piece, dtype=rows.dtype)


def _csr_arrays(rows: Blocks) -> list[_WrittenArray]:
    """Return the three arrays of rows in CSR format.

    The source is read once for each array, so that only the row pointers (indptr) are in memory.
    """
    ends = [np.zeros(1, dtype=np.int64)]
    for piece in source.complete_pieces(rows):
        ends.append(ends[-1][-1] + piece.indptr[1:].astype(np.int64))
    indptr = np.concatenate(ends)
    data = (np.ascontiguousarray(piece.data, dtype=rows.dtype) for piece in rows.pieces())
    kind = np.dtype(np.int32 if rows.shape[1] < 2**31 else np.int64)
    indices = (np.ascontiguousarray(piece.indices, dtype=kind) for piece in rows.pieces())
    stored = (int(indptr[-1]),)
    return [
        _WrittenArray(rows.dtype, stored, data),
        _WrittenArray(kind, stored, indices),
        _WrittenArray.from_array(indptr),
    ]


def bytes_of_client(client: Any) -> int:
    """Return the approximate number of bytes of a client's statistics, and of its rows if they are not mapped."""
    if not isinstance(client, LocalData):
        return _STREAM
    if isinstance(client.measured.rows, CompressedRows):
        return _LEAST + 8 * client.n  # The entries are mapped, so only the row pointers (indptr) are in memory.
    # The statistics are X'X or its factor, whichever is smaller. A sparse entry takes 8 bytes, and 4 for its index.
    return _LEAST + (
        12 * int(client.measured.csr_matrix.nnz) if client.sparse else 8 * client.d * min(client.n, client.d)
    )


# The clients that this worker process has loaded. This cache and the cache of packs belong to the module, because
# each message is a separate task of Ray, and only modules persist from one task to the next.
_LOADED: Final = Cache(_ROOM, bytes_of_client)


@functools.lru_cache(maxsize=64)
def _read_pack(packs: PackedShards, number: int) -> tuple[dict[str, Any], Array | None]:
    text, pack = packs.read_pack(number)
    return json.loads(text), pack


def _open_array(place: Place, pack: Array | None) -> Array:
    """Return an array from a pack, or from the file from which it was mapped."""
    if place.file or pack is None:  # All arrays of an empty pack are empty.
        return place.open()
    return np.ndarray(place.shape, np.dtype(place.dtype), pack, place.offset, place.strides)


@dataclass(frozen=True)
class SimulationPlaces:
    """The locations of the shards and of the files that clients write.

    Parameters
    ----------
    packs : PackedShards
        The shards.
    name : str
        The name of the simulation's folder in the folder for temporary files of each machine.
    shared : str or None
        The path of this folder if all machines share it, or None if they do not.
    """

    packs: PackedShards
    name: str
    shared: str | None

    def output(self) -> Path:
        """Return the folder for the files of clients, on the machine that calls this method."""
        if self.shared is None:
            return _output_folder(self.name)
        return Path(self.shared) / _CLIENT_FILES

    def bring_back(self) -> None:
        """Copy the files that clients have written on other machines to this machine.

        If several machines have a file of the same name, the newest file is copied.
        """
        if self.shared is not None:
            return
        newest: dict[str, tuple[int, bytes]] = {}
        for left in call_on_each_machine(_take_files, self.name).values():
            newest |= {name: file for name, file in left.items() if name not in newest or file > newest[name]}
        for name, (_, content) in newest.items():
            path = self.output() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@contextlib.contextmanager
def place_shards(shards: Sequence[Any], each: int) -> Iterator[SimulationPlaces]:
    """Store the shards where all machines can read them, until the end of the context."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as place:
        # The folder alone does not prove that it is shared, because other machines create a folder of the same name
        # for the files of clients.
        (Path(place) / _MARKER).touch()
        if len(machines()) == 1 or all(call_on_each_machine(_has_folder, place).values()):
            yield SimulationPlaces(PacksInFolder(Path(place), each).save(shards), Path(place).name, place)
            return
        rows = (Table.of(shard).values for shard in shards if not isinstance(shard, Stream))
        files = {
            file: _size_and_time(file) for file in map(_file_of, map(adapters.as_blocks, rows)) if file is not None
        }
        common = set(files).intersection(*call_on_each_machine(_same_files, files).values())
        yield SimulationPlaces(PacksInStore.store(shards, each, seen=common.__contains__), Path(place).name, None)


def _file_of(rows: Blocks) -> str | None:
    """Return the file from which other processes can read the rows directly, or None if there is no such file."""
    if isinstance(rows, Bed):
        return rows.file
    place = rows.place()
    return None if place is None else place.file


def _size_and_time(file: str) -> tuple[int, int] | None:
    """Return the size and the modification time of a file, or None if the file is missing.

    Two machines have the same file if both values are equal.
    """
    try:
        there = os.stat(file)
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns


# The following functions run on every machine of the cluster.


def _has_folder(place: str) -> bool:
    """Return whether this machine has the simulation's folder in its folder for temporary files."""
    return Path(tempfile.gettempdir()) == Path(place).parent and (Path(place) / _MARKER).is_file()


def _same_files(files: Mapping[str, Any]) -> set[str]:
    """Return the files that this machine has with the same size and modification time."""
    return {file for file, mark in files.items() if _size_and_time(file) == mark}


def _output_folder(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name / _CLIENT_FILES


def _take_files(name: str) -> dict[str, tuple[int, bytes]]:
    """Return the modification times and bytes of the files that clients wrote on this machine, and delete the files.

    On the machine of the simulation, the files are deleted later, by `place_shards`.
    """
    folder = _output_folder(name)
    paths = [path for path in folder.rglob("*.npz") if path.is_file()]
    left = {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    if not (folder.parent / _MARKER).exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
    return left
