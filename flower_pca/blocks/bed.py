"""Decode genotypes while a PLINK .bed file is read. The file stores two bits per entry.

An entry is the number of copies of an allele. The file stores one variant after another, with four people per byte, and
a lookup table decodes the four people of a byte. Products use blocks of columns, which are fast because they fit the
processor's cache. All other code uses blocks of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored, rows_of_a_block

HEAD: Final = b"\x6c\x1b\x01"  # the first bytes of a file that stores one variant after another
EACH: Final = 4  # number of people in a byte
_LOOKED_UP: Final = 2**15  # number of bytes decoded at a time, whose indices fit the processor's cache
_PIECE: Final = 2**22  # number of bytes of the file in a piece
_ENTRIES: Final = 2**18  # number of entries in a block of columns
_PEOPLE: Final = 2**12  # maximum number of people in a block, so that single precision is enough to sum products
_OTHER: Final = 256  # The lookup table counts the second allele in the rows from this position on.
_GONE: Final = np.uint8(0b01010101)  # the byte of four missing values
_CODE: Final = np.uint8(0b11)  # a mask of the bits of one person
_ALL: Final = np.uint8(255)  # a mask of the bits of all four people in a byte
_PLACES: Final = np.array([0, 2, 4, 6], dtype=np.uint8)  # the first bit of each of the four people in a byte
# For each byte of `_positions_of_gaps`, these say which of the four people have a missing value, how many have one, and
# the places of these people.
_IS_GAP: Final = (np.arange(256)[:, None] >> _PLACES) & 1
_GAPS_OF_BYTE: Final = _IS_GAP.sum(axis=1)
_PLACES_OF_GAPS: Final = np.argsort(1 - _IS_GAP, axis=1, kind="stable")
_BITS: Final = 20  # number of bits for each of three tallies that share one integer
# These are the numbers of copies of the first allele for the four codes. The second code is a missing value.
_COPIES: Final = np.array([2.0, np.nan, 1.0, 0.0])


def bytes_of_a_variant(people: int) -> int:
    """Return the number of bytes that a variant takes in a file of this many people."""
    return -(-people // EACH)


def _lookup_table() -> Array:
    """Return the lookup table with the counts of four people for each byte: of the first allele, then of the second."""
    codes = (np.arange(_OTHER)[:, None] >> np.arange(0, 2 * EACH, 2)) & 3
    copies = _COPIES[codes]
    return np.concatenate([copies, 2.0 - copies])


class Bed(Stored):
    """A table of a .bed file, with people as rows and some or all variants, in any order, as columns.

    Parameters
    ----------
    file : path
        The file, whose size must match the numbers of people and variants.
    people : int
        The number of people in the file.
    variants : ndarray
        The positions in the file of the variants that are the columns.
    other : ndarray
        Whether each column counts copies of the second allele in the file.
    dtype
        The type of the entries: single or double precision.
    rows : ndarray or None, default=None
        The positions in the file of the people that are the rows, in increasing order. None for all people.
    """

    axis = 1

    def __init__(
        self, file: Path, people: int, variants: Array, other: Array, dtype: Any = np.float32, rows: Array | None = None
    ) -> None:
        # The path is made absolute, because another process may have another working directory.
        self._file, self._people, self._variants, self._other = file.absolute(), people, variants, other
        self._rows = np.arange(people) if rows is None else rows
        self.shape = (len(self._rows), len(variants))
        self.dtype = np.dtype(dtype)
        self._copies = _lookup_table().astype(self.dtype)
        # These are added to the bytes of a column, and give positions in the lookup table.
        self._offsets = np.where(other, _OTHER, 0).astype(np.uint16)[:, None]
        # In this mask, the bits of the people whose rows are used are set.
        kept = np.zeros(bytes_of_a_variant(people) * EACH, dtype=np.uint8)
        kept[self._rows] = _CODE
        self._kept = np.bitwise_or.reduce(kept.reshape(-1, EACH) << _PLACES, axis=1)

    @property
    def file(self) -> str:
        """The path of the file."""
        return str(self._file)

    def _packed_bytes(self) -> Array:
        """Return the bytes of the file, with a row for each variant."""
        entries: Array = np.memmap(self._file, dtype=np.uint8, mode="r", offset=len(HEAD))
        return np.asarray(entries).reshape(-1, bytes_of_a_variant(self._people))

    def select_columns(self, columns: Array) -> Bed:
        """Return these columns in this order. Other columns are not decoded."""
        variants, other = self._variants[columns], self._other[columns]
        return Bed(self._file, self._people, variants, other, self.dtype, self._rows)

    def count_other_allele(self, columns: Array) -> Bed:
        """Return the genotypes with the copies of the other allele in these columns."""
        other = self._other.copy()
        other[columns] = ~other[columns]
        return Bed(self._file, self._people, self._variants, other, self.dtype, self._rows)

    def select_rows(self, rows: Array) -> Bed:
        """Return the rows with these increasing indices."""
        return Bed(self._file, self._people, self._variants, self._other, self.dtype, self._rows[rows])

    def rows_between(self, start: int, stop: int) -> Bed:
        """Return the rows from `start` up to, but not including, `stop`."""
        return self.select_rows(np.arange(start, stop))

    def pieces(self) -> Iterator[Array]:
        """Yield blocks of rows, which are stored by columns."""
        d, packed = self.shape[1], self._packed_bytes()
        people = -(-rows_of_a_block(d, self.dtype) // EACH) * EACH
        at_once = max(_PIECE * EACH // max(d, 1) // people, 1) * people
        for first, last in self._person_ranges(at_once):
            begin = first // EACH
            stretch = packed[self._variants, begin : bytes_of_a_variant(last)]
            for a in range(first, last, people):
                b = min(a + people, last)
                rows, places = self._slice_and_positions(a, b)
                if rows.start < rows.stop:
                    decoded = self._decode_people(stretch[:, a // EACH - begin : bytes_of_a_variant(b) - begin])
                    yield decoded[places]

    def _person_ranges(self, at_once: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of people to read at once, as pairs (first, last + 1).

        The data of each first person begin at the start of a byte.
        """
        if len(self._rows):
            end = int(self._rows[-1]) + 1
            for first in range(int(self._rows[0]) // EACH * EACH, end, at_once):
                yield first, min(first + at_once, end)

    def _slice_and_positions(self, first: int, last: int) -> tuple[slice, Any]:
        """Return the slice of rows for the people `first` to `last` - 1, and their positions relative to `first`."""
        a, b = map(int, np.searchsorted(self._rows, (first, last)))
        places = self._rows[a:b] - first
        if a < b and places[-1] - places[0] == b - 1 - a:
            return slice(a, b), slice(int(places[0]), int(places[-1]) + 1)
        return slice(a, b), places

    def _decode_people(self, packed: Array) -> Array:
        """Return decoded rows, one per person, from bytes with one line per column."""
        d, width = packed.shape
        room = np.empty((d, width, EACH), dtype=self.dtype)
        step = max(_LOOKED_UP // max(width, 1), 1)
        for j in range(0, d, step):
            self._decode_into(self._copies, packed[j : j + step], slice(j, j + step), room[j : j + step])
        return room.reshape(d, -1).T

    def _decode_into(self, copies: Array, packed: Array, columns: slice, room: Array) -> None:
        # Every index is valid, and mode="clip" is faster because it skips the check for invalid indices.
        np.take(copies, packed + self._offsets[columns], axis=0, mode="clip", out=room)

    def _packed_blocks(self) -> Iterator[tuple[slice, int, int, Array]]:
        """Yield blocks of columns: the slice of columns, the first person, the person after the last, and the bytes.

        The bytes also hold the entries of people that are not rows.
        """
        d, packed = self.shape[1], self._packed_bytes()
        # Lines that follow each other in the file are not copied.
        in_order = bool((np.diff(self._variants) == 1).all())
        for first, last in self._person_ranges(_PEOPLE):
            begin, end = first // EACH, bytes_of_a_variant(last)
            step = max(_ENTRIES // (EACH * (end - begin)), 1)
            for j in range(0, d, step):
                columns = slice(j, min(j + step, d))
                lines = self._variants[columns]
                chosen = slice(int(lines[0]), int(lines[-1]) + 1) if in_order else lines
                yield columns, first, last, packed[chosen, begin:end]

    def _packed_rows(self) -> Iterator[tuple[slice, Array]]:
        """Yield the columns and the bytes of `_packed_blocks`. The entries of people that are not rows are missing."""
        for columns, first, last, entries in self._packed_blocks():
            kept = self._kept[first // EACH : bytes_of_a_variant(last)]
            yield columns, entries if (kept == _ALL).all() else (entries & kept) | (_GONE & ~kept)

    def column_blocks(self, *, gaps: bool = False) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the columns and the rows of each block as slices, and its entries with one line per column.

        Missing values are 0. If `gaps` is true, they are 1, and all other entries are 0. Blocks fit the processor's
        cache. Each block overwrites the previous block.
        """
        copies = np.isnan(self._copies).astype(self.dtype) if gaps else np.nan_to_num(self._copies)
        for columns, first, last, entries, _ in self._decoded_blocks(copies):
            rows, places = self._slice_and_positions(first, last)
            yield columns, rows, entries[:, places]

    def gap_positions(self) -> Iterator[tuple[slice, slice, tuple[Array, Array]]]:
        """Yield the columns and the rows of each block as slices, and the positions of its missing values.

        The positions are sorted by column.
        """
        for columns, first, last, packed in self._packed_blocks():
            rows, places = self._slice_and_positions(first, last)
            yield columns, rows, self._positions_of_gaps(packed, first, places)

    def count_blocks(self) -> Iterator[tuple[slice, slice, Array, tuple[Array, Array]]]:
        """Yield the blocks of `column_blocks` in double precision, and the positions of the missing values.

        The missing values are 0 in the blocks.
        """
        for columns, first, last, entries, packed in self._decoded_blocks(np.nan_to_num(_lookup_table())):
            rows, places = self._slice_and_positions(first, last)
            yield columns, rows, entries[:, places], self._positions_of_gaps(packed, first, places)

    def _positions_of_gaps(self, packed: Array, first: int, places: Any) -> tuple[Array, Array]:
        """Return the lines and the rows of the missing values in a block of `_packed_blocks`, relative to the block.

        `places` are the positions of the block's rows among its people.
        """
        # A missing value has only the lower of its two bits set. Most bytes hold no missing value.
        gone = np.right_shift(packed, 1)
        np.invert(gone, out=gone)
        gone &= packed
        gone &= self._kept[first // EACH :][: packed.shape[1]] & _GONE
        where = np.flatnonzero(gone != 0)
        found = gone.reshape(-1)[where]
        number = _GAPS_OF_BYTE[found]
        ends = np.cumsum(number)
        of_byte = np.repeat(np.arange(len(where)), number)
        # The first, second, third or fourth missing value of its byte.
        which = np.arange(len(of_byte)) - (ends - number)[of_byte]
        lines = where // gone.shape[1]
        people = EACH * (where - lines * gone.shape[1])[of_byte] + _PLACES_OF_GAPS[found[of_byte], which]
        if isinstance(places, slice):
            return lines[of_byte], people - places.start
        return lines[of_byte], np.searchsorted(places, people)

    def _decoded_blocks(self, copies: Array) -> Iterator[tuple[slice, int, int, Array, Array]]:
        """Yield the values of `_packed_blocks`, with decoded entries before the bytes. `copies` is the lookup table."""
        room = np.empty(0, dtype=copies.dtype)
        for columns, first, last, packed in self._packed_blocks():
            size = packed.size * EACH
            if room.size < size:
                room = np.empty(size, dtype=copies.dtype)
            entries = room[:size].reshape(*packed.shape, EACH)
            self._decode_into(copies, packed, columns, entries)
            yield columns, first, last, entries.reshape(len(packed), -1), packed

    def tallies(self) -> tuple[Array, Array, Array]:
        """Return the number, the sum, and the sum of squares of the values in each column, as integers."""
        copies = _lookup_table()
        there = ~np.isnan(copies)
        counts = np.where(there, copies, 0).astype(np.int64)
        # A single number holds all three tallies, so a single lookup is enough.
        table = (there + (counts << _BITS) + (counts**2 << 2 * _BITS)).sum(axis=1)
        total = np.zeros((3, self.shape[1]), dtype=np.int64)
        for columns, packed in self._packed_rows():
            sums = table[packed + self._offsets[columns]].sum(axis=1)
            for k in range(3):
                total[k, columns] += (sums >> k * _BITS) & (2**_BITS - 1)
        return total[0], total[1], total[2]

    def digest(self) -> int:
        """Return a digest of the entries, which is computed from their bytes in the file."""
        found = hashlib.blake2b(digest_size=16)
        found.update(np.packbits(self._other).data)
        for _, packed in self._packed_rows():
            found.update(np.ascontiguousarray(packed).data)
        return int.from_bytes(found.digest(), "big")
