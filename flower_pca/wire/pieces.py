"""Large arrays in pieces of bytes, which Flower holds in memory only once while a message arrives.

Flower cuts an array of an ArrayRecord by itself. While a message arrives, it keeps all parts of its arrays, joins them
in a buffer, and copies this buffer, so that a large array takes three times its size. It keeps the bytes in a
ConfigRecord as they are. The numbers of a large array are therefore sent in ConfigRecords of a few megabytes. In the
ArrayRecord, only the header of the array in numpy's format takes its place, under a name of its own for the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Final

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from flower_pca.base import files, large
from flower_pca.base.linalg import Array

HEADER_ONLY: Final = "flower_pca.pieces"  # the format of an array whose numbers are in pieces
_SIZE: Final = 2**22  # the bytes of a piece
_RETURNED: Final = 2**25  # after so many bytes, the memory of pieces that were removed goes back
_BYTES: Final = "bytes"  # the name of the entry with the bytes of a piece


def put_in_pieces(content: RecordDict, name: str, arrays: Mapping[str, Array]) -> None:
    """Store arrays, with their names, in the record of this name, and the numbers of large ones in further records."""
    record = ArrayRecord()
    for key, array in arrays.items():
        if array.nbytes <= large.BYTES:
            record[key] = FlowerArray(array)
            continue
        by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
        numbers = array.T if by_columns else np.ascontiguousarray(array)
        header = BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": by_columns, "shape": array.shape},
        )
        record[key] = FlowerArray(str(array.dtype), tuple(array.shape), HEADER_ONLY, header.getvalue())
        flat = numbers.reshape(-1).view(np.uint8)
        for number, i in enumerate(range(0, len(flat), _SIZE)):
            content.config_records[_name(name, key, number)] = ConfigRecord({_BYTES: flat[i : i + _SIZE].tobytes()})
    content.array_records[name] = record


def join_pieces(content: RecordDict, name: str, key: str, header: bytes, *, release: bool) -> Array:
    """Return the array `key` of the record `name`, whose numbers are in pieces.

    With `release`, the bytes of each piece are removed from the content as soon as they are copied.

    Raises
    ------
    ValueError
        If the pieces do not have the bytes that the header describes, or if it describes a pickle.
    """
    names, size = list[str](), 0
    while (piece := content.config_records.get(_name(name, key, len(names)))) is not None:
        part = piece[_BYTES]
        if not isinstance(part, bytes):
            raise ValueError("a piece of an array has no bytes")
        names.append(_name(name, key, len(names)))
        size += len(part)
        del piece, part
    shape, by_columns, dtype = files.check_npy(BytesIO(header), size)
    if not names or int(np.prod(shape, dtype=object)) * dtype.itemsize != size:
        raise ValueError("the pieces of an array have fewer or more bytes than its header says")
    joined, at, returned = np.empty(size, dtype=np.uint8), 0, 0
    for each in names:
        record = content.config_records[each]
        # Flower's records are reference cycles, so the bytes must leave the record to be freed at once.
        part = record.pop(_BYTES) if release else record[_BYTES]
        assert isinstance(part, bytes)
        joined[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
        at += len(part)
        del part
        if release and at - returned >= _RETURNED:
            large.return_freed_blocks()
            returned = at
    return joined.view(dtype).reshape(shape, order="F" if by_columns else "C")


def _name(name: str, key: str, number: int) -> str:
    return f"{name}.{key}.{number}"
