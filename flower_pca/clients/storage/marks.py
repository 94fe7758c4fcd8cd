"""Marks of a table, by which a node recognizes that two ledgers belong to the same rows.

A ledger is named after the partition-id, which differs between federations. Every ledger in a folder therefore
stores marks of the tables that the node has answered from: marks of their rows and of their file. The marks of
rows do not depend on the order, names or storage of columns. A node counts its answers in every ledger whose
marks overlap with the marks of the node's own table.

The marks of a table's rows are the smallest digests of its rows. If two tables have most rows in common, they
share most of these marks. The digests use a key that stays in the folder, so that nobody else can guess rows
from the marks.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

import numpy as np

from flower_pca.base import files
from flower_pca.base.linalg import Array
from flower_pca.clients.storage import folders
from flower_pca.rows.local import LocalData

_KIND: Final = "key of the marks of tables"
KEY: Final = "flower_pca-marks.npz"
_FEW: Final = 64  # the number of row digests that are kept for a table
_TABLES: Final = 8  # the number of tables that a ledger remembers: the first one and the newest ones
# Two tables count as related if they share more than this fraction of their digests. This corresponds to about one
# common row in three.
_SHARED: Final = 1 / 4
PLACE: Final = "place"  # the cache key under which a table keeps a digest of its file's path


def marks_of(data: LocalData, folder: Path, earlier_marks: list[list[int]]) -> list[int]:
    """Return the marks of a table: the mark of its file (or 0), of the whole table, and of its rows.

    If one of `earlier_marks` has the same mark of the whole table, the function returns it. A restarted node
    therefore reads its rows only once, for the fingerprint.
    """
    table = data.all_columns

    def made() -> list[int]:
        key, place = _key(folder), table.measured.cached(PLACE, lambda: 0)
        whole = _mark_of_table(table, key)
        known = [marks for marks in earlier_marks if marks[:2] == [place, whole]]
        return known[0] if known else [place, whole, *_marks_of_rows(table, key)]

    return table.measured.cached("marks", made)


def is_known_in(folder: Path, data: LocalData, earlier_marks: list[list[int]]) -> bool:
    """Return whether a ledger in another folder, with these earlier marks, is for this file or exactly these rows."""
    table = data.all_columns
    place = table.measured.cached(PLACE, lambda: 0)
    # If the other folder has lost its key, no new key is made here, because that folder's node must notice the loss.
    whole = _mark_of_table(table, _key(folder)) if earlier_marks and has_key(folder) else 0
    return any((place and place == known[0]) or whole == known[1] for known in earlier_marks)


def _mark_of_table(table: LocalData, key: bytes) -> int:
    about = f"{table.fingerprint():x} {table.n} {table.d}".encode()
    return int.from_bytes(hashlib.blake2b(about, digest_size=6, key=key).digest(), "big")


def have_common_rows(marks: list[int], others: list[int]) -> bool:
    """Return whether two lists of marks belong to the same file, or to tables with many rows in common."""
    if marks[0] and marks[0] == others[0]:
        return True
    fewest = min(len(marks), len(others)) - 2
    return len(set(marks[2:]) & set(others[2:])) > _SHARED * fewest


def with_table(marks: list[int], earlier_marks: list[list[int]]) -> list[list[int]]:
    """Return the marks of a ledger's tables after adding a table. Only the first and the newest tables are kept."""
    if marks in earlier_marks:
        return earlier_marks
    return [*earlier_marks[:1], *earlier_marks[1:][-_TABLES + 2 :], marks]


def digest_of_path(path: str | os.PathLike[str]) -> int:
    """Return a digest of a file's path."""
    whole = str(Path(path).expanduser().absolute())
    return int.from_bytes(hashlib.blake2b(whole.encode(), digest_size=7).digest(), "big")


def _marks_of_rows(data: LocalData, key: bytes) -> list[int]:
    rows = np.concatenate([_row_digests(as_single_precision(block), key) for block in data.blocks()])
    different = np.unique(rows)
    if 2 * len(different) <= len(rows):
        # If many rows are equal, they probably consist of a few codes and also occur at other sites. Only the whole
        # table can then distinguish sites.
        whole = hashlib.blake2b(np.sort(rows).tobytes(), digest_size=7, key=key).digest()
        return [int.from_bytes(whole, "big")]
    found: list[int] = different[:_FEW].tolist()
    return found


def _row_digests(rows: Array, key: bytes) -> Array:
    """Return a digest of each row that does not depend on the order of the columns."""
    start = np.frombuffer(key, dtype=np.uint64)
    cells = rows.view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mix_bits(cells ^ start[0]).sum(axis=1, dtype=np.uint64)
        found = _mix_bits(mixed ^ start[1])
    # JSON supports whole numbers of 53 bits.
    return np.asarray(found >> np.uint64(11))


def as_single_precision(block: Array) -> Array:
    """Return the values in single precision, with a unique bit pattern for each value."""
    with np.errstate(over="ignore"):
        # Adding 0 makes all zeros positive.
        rows = np.ascontiguousarray(block, dtype=np.float32) + np.float32(0.0)
    # NaN has many bit patterns, so all of them are replaced by the same one.
    rows[np.isnan(rows)] = np.nan
    return rows


def _mix_bits(x: Array) -> Array:
    """Return the bits mixed by the finisher of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def has_key(folder: Path) -> bool:
    """Return whether the folder has a key. Without the key, the marks in its ledgers cannot be compared with rows."""
    return (folder / KEY).exists()


def _key(folder: Path) -> bytes:
    """Return the key of the folder. If there is none, make a new one."""
    path = folder / KEY
    with folders.lock_file(path):
        try:
            header, _ = files.read(path, _KIND, private=True)
        except FileNotFoundError:
            header = {"key": secrets.token_bytes(16).hex()}
            files.write(path, _KIND, header, {}, private=True)
    return bytes.fromhex(header["key"])
