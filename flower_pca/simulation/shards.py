"""Shards in packs: what worker processes map into memory, instead of a copy with every message.

A pack holds the clients of one virtual node: one block of bytes with all their arrays, and a text that says what is
where. Rows that are memory-mapped already stay where they are, and only their place is written down; streams are
pickled. Packs lie in a folder that all workers see (`Folder`), or in Ray's object store (`Store`).
"""

from __future__ import annotations

import functools
import json
import mmap
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.names.sites import SiteRows
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

_ALIGNED: Final = 64  # bytes
_ROOM: Final = 2**28  # bytes that the clients which a process keeps ready may come to
_LEAST: Final = 2**14  # bytes of one of them at least
_STREAM: Final = 2**22  # bytes that a stream is taken to have


class Packs(ABC):
    """The shards of a simulation, by the number of their client; frozen, and light enough to go with every message."""

    each: int  # clients in a pack

    @abstractmethod
    def pack(self, number: int) -> tuple[str, Array | None]:
        """A pack: what is where, and the bytes."""

    def load(self, client: int) -> Any:
        """A client's rows, or its stream, mapped into memory and kept ready for the next message."""
        return _READY.get((self, client), lambda: self._loaded(client))

    def _loaded(self, client: int) -> Any:
        text, pack = _pack(self, client // self.each)
        entry = text["shards"][client % self.each]
        arrays = [_array(place, pack) for place in entry["arrays"]]
        if entry["kind"] == "stream":
            from ray import cloudpickle

            return cloudpickle.loads(arrays[0].tobytes())
        rows: Any = arrays[0]
        if entry["kind"] == "sparse":
            from scipy.sparse import csr_array

            rows = csr_array(tuple(np.array(a) for a in arrays), shape=tuple(entry["shape"]))
        names, words = text["names"][entry["names"]]
        named = SiteRows(
            rows, None if names is None else tuple(names), words, entry["source"], entry["site"], ids=entry["ids"]
        )
        return LocalData(named, who=f"client {client}", missing=True)


@dataclass(frozen=True)
class Folder(Packs):
    """Packs as files in a folder that all workers see."""

    path: Path
    each: int

    def save(self, shards: Sequence[Any]) -> Folder:
        """The same, with these shards in it."""
        for number, some in enumerate(_divided(shards, self.each)):
            text, arrays, _ = packed(some)
            self._text(number).write_text(text)
            with open(self._bytes(number), "wb") as file:
                for offset, a in arrays:
                    file.seek(offset)
                    a.tofile(file)
        return self

    def pack(self, number: int) -> tuple[str, Array | None]:
        """A pack: what is where, and the bytes."""
        file = self._bytes(number)
        return self._text(number).read_text(), _mapped(str(file)) if file.stat().st_size else None

    def _text(self, number: int) -> Path:
        return self.path / f"{number}.json"

    def _bytes(self, number: int) -> Path:
        return self.path / f"{number}.rows"


def packed(
    shards: Sequence[Any], *, seen: Callable[[str], bool] | None = None
) -> tuple[str, list[tuple[int, Array]], int]:
    """What is where in a pack of these shards; its arrays, each with its offset; and how many bytes they take.

    Of rows that are mapped from files which are `seen` by all workers, as all are if that is left out, only the place.
    """
    names: dict[str, int] = {}
    arrays: list[tuple[int, Array]] = []
    entries, size = [], 0
    for shard in shards:
        entry, parts = _described(shard, names)
        for a in parts:
            place = place_of(a)
            if place is None or not (seen is None or seen(place["filename"])):
                place = {"filename": None, "dtype": a.dtype.str, "offset": size, "shape": list(a.shape)}
                arrays.append((size, np.ascontiguousarray(a)))
                size += -(-a.nbytes // _ALIGNED) * _ALIGNED
            entry["arrays"].append(place)
        entries.append(entry)
    return json.dumps({"names": [json.loads(text) for text in names], "shards": entries}), arrays, size


def _described(shard: Any, names: dict[str, int]) -> tuple[dict[str, Any], list[Array]]:
    """What is said of a shard, whose names are written once for all that have the same; and its arrays."""
    if isinstance(shard, Stream):
        from ray import cloudpickle

        pickled = cloudpickle.dumps(shard)  # type: ignore[no-untyped-call]
        return {"kind": "stream", "arrays": []}, [np.frombuffer(pickled, dtype=np.uint8)]
    rows = SiteRows.of(shard)
    known = names.setdefault(json.dumps([rows.names, dict(rows.words)]), len(names))
    entry = {"kind": "dense", "arrays": [], "names": known, "source": rows.source, "site": rows.site, "ids": rows.ids}
    if not hasattr(rows.values, "tocsr"):
        return entry, [np.asanyarray(rows.values)]
    csr = rows.values.tocsr()
    return {**entry, "kind": "sparse", "shape": list(csr.shape)}, [csr.data, csr.indices, csr.indptr]


def _divided(shards: Sequence[Any], each: int) -> Iterator[Sequence[Any]]:
    return (shards[first : first + each] for first in range(0, len(shards), each))


class Ready:
    """What a process keeps ready: what was used last, as long as it takes no more room than that."""

    def __init__(self, room: int) -> None:
        self._room, self._taken = room, 0
        self._kept: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def get(self, key: object, make: Callable[[], Any]) -> Any:
        """What is kept under this key, or made for it."""
        if key not in self._kept:
            made = make()
            self._kept[key] = made, _weight(made)
            self._taken += self._kept[key][1]
            while len(self._kept) > 1 and self._taken > self._room:
                self._taken -= self._kept.popitem(last=False)[1][1]
        self._kept.move_to_end(key)
        return self._kept[key][0]


def _weight(client: Any) -> int:
    """About how many bytes a client takes: its statistics, and rows that are not mapped."""
    if not isinstance(client, LocalData):
        return _STREAM
    return _LEAST + (12 * int(client.storage.nnz) if client.sparse else 8 * client.d * min(client.n, client.d))


_READY: Final = Ready(_ROOM)


@functools.lru_cache(maxsize=64)
def _pack(packs: Packs, number: int) -> tuple[dict[str, Any], Array | None]:
    text, pack = packs.pack(number)
    return json.loads(text), pack


@functools.lru_cache(maxsize=64)
def _mapped(filename: str) -> Array:
    return np.memmap(filename, dtype=np.uint8, mode="r")


def _array(place: dict[str, Any], pack: Array | None) -> Array:
    """An array of a pack, or of the file that it was mapped from."""
    dtype, shape, offset = np.dtype(place["dtype"]), tuple(place["shape"]), int(place["offset"])
    whole = pack if place["filename"] is None else _mapped(place["filename"])
    if whole is None:  # all arrays of the pack are empty
        return np.empty(shape, dtype)
    part = whole[offset : offset + dtype.itemsize * int(np.prod(shape))]
    array: Array = part.view(dtype).reshape(shape)
    return array


def place_of(shard: Any) -> dict[str, Any] | None:
    """File, offset, dtype and shape of a memory-mapped array, or of whole rows of one."""
    mapping = getattr(shard, "_mmap", None)
    if not isinstance(shard, np.memmap) or mapping is None or not shard.flags.c_contiguous or shard.filename is None:
        return None
    start = np.frombuffer(mapping, dtype=np.uint8).__array_interface__["data"][0]
    page = shard.offset - shard.offset % mmap.ALLOCATIONGRANULARITY  # numpy maps from the page that holds the offset
    offset = page + shard.__array_interface__["data"][0] - start
    shape = list(shard.shape)
    return {"filename": str(shard.filename), "dtype": shard.dtype.str, "offset": int(offset), "shape": shape}
