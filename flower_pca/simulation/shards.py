"""Shards as files: what the worker processes of a simulation map into memory, instead of a copy with every message."""

from __future__ import annotations

import json
import mmap
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.rows.local import LocalData
from flower_pca.rows.named import SiteRows

_READY: Final = 8  # shards that a process keeps ready


def save(folder: Path, index: int, shard: Any) -> None:
    """Leave shard `index` in the folder, with its names; of a memory-mapped one, only where it lies."""
    rows = SiteRows.of(shard)
    names = {name: getattr(rows, name) for name in ("names", "words", "source", "site")}
    (folder / f"{index}.names.json").write_text(json.dumps({**names, "words": dict(rows.words)}))
    shard = rows.values
    place = _mapped(shard)
    if place is not None:
        (folder / f"{index}.json").write_text(json.dumps(place))
    elif hasattr(shard, "tocsr"):
        from scipy.sparse import save_npz

        save_npz(folder / f"{index}.npz", shard.tocsr(), compressed=False)
    else:
        np.save(folder / f"{index}.npy", np.ascontiguousarray(shard), allow_pickle=False)


@lru_cache(maxsize=_READY)
def load(folder: Path, index: int) -> LocalData:
    """Shard `index` of the folder, mapped into memory and kept ready for the next message."""
    place = folder / f"{index}.json"
    if place.exists():
        where = json.loads(place.read_text())
        rows: Any = np.memmap(**{**where, "shape": tuple(where["shape"]), "mode": "r"})
    elif (folder / f"{index}.npz").exists():
        from scipy.sparse import load_npz

        rows = load_npz(folder / f"{index}.npz")
    else:
        rows = np.load(folder / f"{index}.npy", mmap_mode="r", allow_pickle=False)
    named = json.loads((folder / f"{index}.names.json").read_text())
    named["names"] = None if named["names"] is None else tuple(named["names"])
    return LocalData(SiteRows(rows, **named), who=f"client {index}", missing=True)


def _mapped(shard: Any) -> dict[str, Any] | None:
    """File, offset, dtype and shape of a memory-mapped array, or of whole rows of one."""
    mapping = getattr(shard, "_mmap", None)
    if not isinstance(shard, np.memmap) or mapping is None or not shard.flags.c_contiguous or shard.filename is None:
        return None
    start = np.frombuffer(mapping, dtype=np.uint8).__array_interface__["data"][0]
    page = shard.offset - shard.offset % mmap.ALLOCATIONGRANULARITY  # numpy maps from the page that holds the offset
    offset = page + shard.__array_interface__["data"][0] - start
    shape = list(shard.shape)
    return {"filename": str(shard.filename), "dtype": shard.dtype.str, "offset": int(offset), "shape": shape}
