"""Bed: genotypes of a .bed file of PLINK, two bits an entry, decoded as they pass. An entry counts copies of an allele.

The file has one variant after another, and in each the people, four to a byte. A lookup decodes the four people of a
byte. Blocks of columns fit the processor's cache and are the fast way to multiply; blocks of rows are for all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored, rows_of_a_block

HEAD: Final = b"\x6c\x1b\x01"  # how a file with one variant after another begins
EACH: Final = 4  # people in a byte
_LOOKED_UP: Final = 2**15  # bytes that are decoded at a time, so that their places stay in the processor's cache
_PIECE: Final = 2**22  # bytes of the file in a piece
_ENTRIES: Final = 2**18  # Entries in a block of columns.
_PEOPLE: Final = 2**12  # People in a block of columns, whose products may be added up in single precision.
_OTHER: Final = 256  # From here on, the lines of a table count the second allele.
_GONE: Final = 0b01010101  # a byte of missing values
_BITS: Final = 20  # Bits of a tally, because people of a block count at most 16 each.
# What the four codes stand for: two copies of the first allele, a missing value, one copy, no copy.
_COPIES: Final = np.array([2.0, np.nan, 1.0, 0.0])


def bytes_of_a_variant(people: int) -> int:
    """How many bytes a variant takes in a file of so many people."""
    return -(-people // EACH)


def _table() -> Array:
    """The copies of four people, for each byte; then the same for the second allele."""
    codes = (np.arange(_OTHER)[:, None] >> np.arange(0, 2 * EACH, 2)) & 3
    copies = _COPIES[codes]
    return np.concatenate([copies, 2.0 - copies])


class Bed(Stored):
    """The people of a .bed file as rows, and its variants, or some of them in another order, as columns.

    Parameters
    ----------
    file : path
        The file, whose size fits the numbers of people and variants.
    people : int
        How many people it has.
    variants : ndarray
        Which of its variants are the columns.
    other : ndarray
        Of these columns those that count copies of the second allele of the file.
    dtype
        The type of the entries: single or double precision.
    start : int, default=0
        The first of the people that are rows.
    stop : int or None, default=None
        The first one after them; None for all.
    """

    def __init__(
        self,
        file: Path,
        people: int,
        variants: Array,
        other: Array,
        dtype: Any = np.float32,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self._file, self._people, self._variants, self._other = file, people, variants, other
        self._start, self._stop = start, people if stop is None else stop
        self.shape = (self._stop - start, len(variants))
        self.dtype = np.dtype(dtype)
        self._copies = _table().astype(self.dtype)

    def _packed(self) -> Array:
        """The bytes of the file, a row for each variant."""
        entries: Array = np.memmap(self._file, dtype=np.uint8, mode="r", offset=len(HEAD))
        return np.asarray(entries).reshape(-1, bytes_of_a_variant(self._people))

    def of_columns(self, columns: Array) -> Bed:
        """These columns, in this order: no others are decoded."""
        variants, other = self._variants[columns], self._other[columns]
        return Bed(self._file, self._people, variants, other, self.dtype, self._start, self._stop)

    def between(self, start: int, stop: int) -> Bed:
        """The rows from `start` on and before `stop`."""
        first, last = self._start + start, self._start + stop
        return Bed(self._file, self._people, self._variants, self._other, self.dtype, first, last)

    def pieces(self) -> Iterator[Array]:
        """Blocks of people, in which the entries of a variant lie together in memory."""
        d, packed = self.shape[1], self._packed()
        people = -(-rows_of_a_block(d, self.dtype) // EACH) * EACH
        at_once = max(_PIECE * EACH // max(d, 1) // people, 1) * people
        for first, last in self._stretches(at_once):
            begin = first // EACH
            stretch = packed[self._variants, begin : bytes_of_a_variant(last)]
            for a in range(begin * EACH, last, people):
                b = min(a + people, last)
                rows = self._decoded(stretch[:, a // EACH - begin : bytes_of_a_variant(b) - begin])
                yield rows[max(first - a, 0) : b - a]

    def _stretches(self, at_once: int) -> Iterator[tuple[int, int]]:
        """People from which and before which to read, in pieces that begin with a byte of the file."""
        first = self._start
        while first < self._stop:
            last = min((first // EACH) * EACH + at_once, self._stop)
            yield first, last
            first = last

    def _decoded(self, packed: Array) -> Array:
        """The people in these bytes of all columns, as rows."""
        d, width = packed.shape
        room = np.empty((d, width, EACH), dtype=self.dtype)
        step = max(_LOOKED_UP // max(width, 1), 1)
        for j in range(0, d, step):
            self._look_up(packed[j : j + step], slice(j, j + step), room[j : j + step])
        return room.reshape(d, -1).T

    def _look_up(self, packed: Array, columns: slice, room: Array) -> None:
        places = packed + np.where(self._other[columns, None], _OTHER, 0)
        # Every place is in the table: numpy need not look.
        np.take(self._copies, places, axis=0, mode="clip", out=room)

    def _blocks(self) -> Iterator[tuple[slice, slice, Array]]:
        """Blocks of columns as bytes: which columns and rows they are of. Entries of no row are missing values."""
        d, packed = self.shape[1], self._packed()
        for first, last in self._stretches(_PEOPLE):
            begin, end = first // EACH, bytes_of_a_variant(last)
            step = max(_ENTRIES // (EACH * (end - begin)), 1)
            for j in range(0, d, step):
                columns = slice(j, min(j + step, d))
                entries = packed[self._variants[columns], begin:end]
                # People before the first one have the low bits of a byte, those after the last one the high bits.
                before = (1 << 2 * (first - begin * EACH)) - 1
                after = 255 ^ (255 >> 2 * (end * EACH - last))
                for byte, bits in ((0, before), (-1, after)):
                    entries[:, byte] = (entries[:, byte] & (255 ^ bits)) | (_GONE & bits)
                yield columns, slice(begin * EACH - self._start, end * EACH - self._start), entries

    def column_blocks(self) -> Iterator[tuple[slice, slice, Array]]:
        """Blocks of columns: which columns and rows they are of, and their entries, a line for each column.

        They fit the processor's cache, and each lies in the memory of the one before.
        """
        room = np.empty(0, dtype=self.dtype)
        for columns, rows, packed in self._blocks():
            size = packed.size * EACH
            if room.size < size:
                room = np.empty(size, dtype=self.dtype)
            entries = room[:size].reshape(*packed.shape, EACH)
            self._look_up(packed, columns, entries)
            first, last = max(rows.start, 0), min(rows.stop, self.shape[0])
            block = entries.reshape(len(packed), -1)
            yield columns, slice(first, last), block[:, first - rows.start : last - rows.start]

    def tallies(self) -> tuple[Array, Array, Array]:
        """Of each column, in whole numbers: how many values are there, their sum, and the sum of their squares."""
        copies = _table()
        there = ~np.isnan(copies)
        counts = np.where(there, copies, 0).astype(np.int64)
        # One number holds all three, so that one lookup finds them.
        table = (there + (counts << _BITS) + (counts**2 << 2 * _BITS)).sum(axis=1)
        total = np.zeros((3, self.shape[1]), dtype=np.int64)
        for columns, _, packed in self._blocks():
            sums = table[packed + np.where(self._other[columns, None], _OTHER, 0)].sum(axis=1)
            for k in range(3):
                total[k, columns] += (sums >> k * _BITS) & (2**_BITS - 1)
        return total[0], total[1], total[2]

    def digest(self) -> int:
        """A digest of the entries, from the bytes that hold them."""
        found = hashlib.blake2b(digest_size=16)
        found.update(np.packbits(self._other).data)
        for _, _, packed in self._blocks():
            found.update(np.ascontiguousarray(packed).data)
        return int.from_bytes(found.digest(), "big")
