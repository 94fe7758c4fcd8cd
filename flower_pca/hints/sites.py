"""Hold the rows of all sites, with statistics that several kinds of hints need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.hints.sentences import AS_MEAN, gaps_option
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

ENDS: Final = 8  # number of first rows and of last rows that the sample of a site always contains
FEW: Final = 3  # If a site has at most this many rows, its sums nearly reveal the rows.
LEAST: Final = 5  # smallest number of values of a column at a site that a hint can rely on
# A column with more different values than this is a measurement. A column with fewer values may hold categories.
MANY: Final = 10
_CACHED: Final = 2**15  # number of entries in a block of 256 kB, which fits into the processor cache
_TELLING: Final = 16  # number of columns that are examined first, because they rule out most suspicions


@dataclass(frozen=True, eq=False)
class Site:
    """The rows of one site, with their places in its files.

    Attributes
    ----------
    who : str
        The name of the site in hints.
    rows : ndarray
        The rows, n x d, with NaN for missing values.
    place : callable
        A function that describes the place of row i, such as its file and line.
    marks : ndarray or None
        If `rows` are only a sample, numbers that are equal for equal rows, one for each row of the site, or None if
        they are not known. `place` then describes the place of row i of all rows.
    """

    who: str
    rows: Array
    place: Callable[[int], str]
    marks: Array | None = None

    __repr__ = brief

    @classmethod
    def of_table(cls, site: Table | LocalData, who: str) -> Site:
        """Return the site with the rows of a table, or with the rows that a client holds."""
        if not isinstance(site, LocalData):
            return cls(site.site or who, np.asarray(site.values, dtype=np.float64), site.place)
        return cls(site.site or who, rows_of_client(site), site.table.place)

    @classmethod
    def sampled(cls, site: Table | LocalData, who: str, most: int) -> Site:
        """Return the site with about `most` evenly spaced rows of a client or an array, and its first and last rows."""
        if isinstance(site, LocalData):
            rows = _spread_rows(site.n, max(most, 4 * ENDS))
            values, table = site.measured.rows_at(rows), site.table
        else:
            rows = _spread_rows(len(site), max(most, 4 * ENDS))
            values, table = site.values[rows], site
        return cls(site.site or who, np.asarray(values, dtype=np.float64), lambda i: table.place(int(rows[i])))

    def first_rows(self, n: int) -> Site:
        """Return this site with its first n rows only."""
        return replace(self, rows=self.rows[:n])

    @functools.cached_property
    def row_hashes(self) -> Array:
        """A hash of each row (n,). Equal rows have equal hashes."""
        if self.marks is not None:
            return self.marks
        n, d = self.rows.shape
        marks, odd = np.empty(n, dtype=np.uint64), _odd_numbers(d)
        # Computing block by block in the cache takes half the time of several passes over all rows.
        step = max(_CACHED // d, 1)
        for i in range(0, n, step):
            # 0 and -0 are equal but have different bits, and NaN has several bit patterns.
            numbers = self.rows[i : i + step] + 0.0
            numbers[np.isnan(numbers)] = np.nan
            bits = numbers.view(np.uint64)
            # The low bits of whole numbers and of their products are zero, so higher bits are mixed in first.
            bits ^= bits >> np.uint64(29)
            bits *= odd
            marks[i : i + step] = bits.sum(axis=1, dtype=np.uint64)
        return marks


def rows_of_client(client: LocalData) -> Array:
    """Return all rows of a client in double precision. Rows that are stored as one such array are not copied."""
    rows = client.measured.only
    if rows is None:
        blocks = list(client.blocks()) or [client.stored_array()]
        rows = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    return np.asarray(rows, dtype=np.float64)


@functools.lru_cache(maxsize=1)  # Most sites of a simulation have as many rows as the one before.
def _spread_rows(n: int, most: int) -> Array:
    """Return the ascending positions of about `most` evenly spaced rows of n rows, and of the first and last rows."""
    ends = np.arange(ENDS)
    rows = np.concatenate([np.linspace(0, n - 1, most).astype(np.int64), ends, n - 1 - ends]).clip(0, n - 1)
    rows.sort()  # This takes a fraction of the time of `np.unique`.
    return np.asarray(rows[np.append(True, rows[1:] > rows[:-1])])


@functools.lru_cache(maxsize=1)
def _odd_numbers(d: int) -> Array:
    """Return d odd random numbers, which are the same in every call."""
    drawn = np.random.default_rng(0).integers(2**62, size=d, dtype=np.uint64)
    # Multiplication by an odd number modulo 2^64 keeps different numbers different.
    return np.asarray(drawn * np.uint64(2) + np.uint64(1))


@dataclass(frozen=True, eq=False)
class Stack:
    """Sites with equal numbers of rows, which are examined together.

    This saves time if a thousand sites have a few rows each. A site with many rows forms a stack alone.

    Attributes
    ----------
    places : list of int
        The positions of the sites.
    tables : list of ndarray
        The rows of each site.
    """

    places: list[int]
    tables: list[Array]

    __repr__ = brief

    @property
    def rows(self) -> Array:
        """The rows, s x n x d. The rows of several sites are copied, so they should not be kept."""
        return self.tables[0][None] if len(self.tables) == 1 else np.stack(self.tables)

    @functools.cached_property
    def ordered(self) -> Array:
        """The values of each column at each site, in ascending order with NaN last, s x n x d."""
        # Each column is stored contiguously, because most kinds of hints go through the values of a column.
        columns = np.array(self.rows.swapaxes(1, 2), order="C")
        columns.sort(axis=2)
        return columns.swapaxes(1, 2)

    @functools.cached_property
    def value_counts(self) -> Array:
        """The number of values of each column at each site, s x d."""
        seen = np.full((len(self.places), self.ordered.shape[2]), self.ordered.shape[1])
        gaps = np.isnan(self.ordered[:, -1])
        if gaps.any():
            seen[gaps] -= np.isnan(self.ordered.swapaxes(1, 2)[gaps]).sum(axis=1)
        return seen

    @functools.cached_property
    def is_complete(self) -> bool:
        """Whether no value is missing."""
        return not np.isnan(self.ordered[:, -1]).any()

    def two_largest(self) -> Array:
        """Return the two largest values of each column at each site, s x 2 x d, with NaN if there are fewer."""
        if self.is_complete:
            return self.ordered[:, -2:]
        places = np.stack([self.value_counts - 2, self.value_counts - 1], axis=1)
        return np.where(places < 0, np.nan, np.take_along_axis(self.ordered, np.maximum(places, 0), axis=1))

    def distinct_counts(self) -> Array:
        """Return the number of different values of each column at each site, s x d."""
        steps = (np.diff(self.ordered, axis=1) > 0.0).sum(axis=1)
        return np.asarray(steps + (self.value_counts > 0))

    def median_sizes(self, columns: Array) -> Array:
        """Return the medians of the absolute values of some columns at each site, s x c. No value may be missing."""
        values = self.ordered.swapaxes(1, 2)[:, columns]
        n = values.shape[2]
        found = []
        for k in (n - 1) // 2, n // 2:
            # The interval [-t, t] with k + 1 values holds neighbors in ascending order.
            found.append(np.maximum(-values[..., : n - k], values[..., k:]).min(axis=2))
        return np.asarray(found[0] / 2.0 + found[1] / 2.0)

    def levels(self) -> Array:
        """Return the tenth, fiftieth and ninetieth percentile of each column at each site, s x 3 x d."""
        shares = np.multiply.outer([0.1, 0.5, 0.9], np.maximum(self.value_counts - 1, 0))
        return np.take_along_axis(self.ordered, np.rint(shares).astype(int).swapaxes(0, 1), axis=1)


@dataclass(frozen=True, eq=False)
class AllSites:
    """The rows of all sites, with statistics that several kinds of hints need.

    Attributes
    ----------
    sites : sequence of Site
        The sites.
    columns : sequence of str
        The names of the columns in hints.
    sampled : bool
        Whether `sites` hold only a sample of the rows.
    width : int
        The number of columns of the tables, if `sites` hold only some of the columns. 0 if they hold all columns.
    """

    sites: Sequence[Site]
    columns: Sequence[str]
    sampled: bool = False
    width: int = 0

    @classmethod
    def of_tables(cls, tables: Sequence[Table | LocalData], names: Sequence[str] | None) -> AllSites:
        """Return the rows of these tables. Tables without rows, such as an empty batch of a stream, are left out."""
        every = enumerate(tables)
        sites = [site for i, table in every if len((site := Site.of_table(table, f"client {i}")).rows)]
        return cls.of_sites(sites, names)

    @classmethod
    def of_sites(cls, sites: Sequence[Site], names: Sequence[str] | None, *, sampled: bool = False) -> AllSites:
        """Return these sites with the names of their columns in hints, such as "column age" or "column 3"."""
        if names is None:
            columns = list(map("column {}".format, range(sites[0].rows.shape[1])))
        else:
            columns = [f"column {str(name).removeprefix('column ')}" for name in names]
        return cls(sites, columns, sampled)

    @functools.cached_property
    def stacks(self) -> list[Stack]:
        """All sites, of which sites with equal numbers of rows are examined together."""
        by_length: dict[int, list[int]] = {}
        for i, site in enumerate(self.sites):
            by_length.setdefault(len(site.rows), []).append(i)
        found = []
        for n, places in by_length.items():
            several = max(_CACHED // max(n * len(self.columns), 1), 1)
            for start in range(0, len(places), several):
                some = places[start : start + several]
                found.append(Stack(some, [self.sites[i].rows for i in some]))
        return found

    @functools.cached_property
    def _order(self) -> Array:
        """The position among the sites of all stacks of each site."""
        return np.argsort([i for stack in self.stacks for i in stack.places])

    def by_site(self, parts: Sequence[Array]) -> Array:
        """Return arrays that hold a part for each site of a stack as one array, in the order of the sites."""
        if len(parts) == 1:
            return parts[0]
        return np.asarray(np.concatenate(parts)[self._order])

    @functools.cached_property
    def sorted_values(self) -> list[Array]:
        """The values of each column at each site (n x d), in ascending order with NaN last."""
        found = [values for stack in self.stacks for values in stack.ordered]
        return [found[k] for k in self._order.tolist()]

    @functools.cached_property
    def value_counts(self) -> Array:
        """The number of values of each column at each site, sites x d."""
        return self.by_site([stack.value_counts for stack in self.stacks])

    @functools.cached_property
    def two_smallest(self) -> Array:
        """The two smallest values of each column, 2 x d, with NaN if there are fewer."""
        return _two_smallest([stack.ordered[:, :2] for stack in self.stacks])

    @functools.cached_property
    def two_largest(self) -> Array:
        """The two largest values of each column, 2 x d, with NaN if there are fewer."""
        return -_two_smallest([-stack.two_largest() for stack in self.stacks])

    @functools.cached_property
    def has_equal_rows(self) -> bool:
        """Whether any two rows have equal hashes."""
        hashes = np.sort(np.concatenate([site.row_hashes for site in self.sites]))
        return bool((hashes[1:] == hashes[:-1]).any())

    @functools.cached_property
    def smallest(self) -> Array:
        """The smallest value of each column."""
        return np.asarray(self.two_smallest[0])

    @functools.cached_property
    def largest(self) -> Array:
        """The largest value of each column."""
        return np.asarray(self.two_largest[0])

    @functools.cached_property
    def distinct_counts(self) -> Array:
        """The number of different values of each column at each site, sites x d."""
        return self.by_site([stack.distinct_counts() for stack in self.stacks])

    @functools.cached_property
    def most_varied_columns(self) -> Array:
        """The positions of the columns with the most different values, which rule out most suspicions cheaply."""
        return np.asarray(np.argsort(-self.distinct_counts.sum(axis=0), kind="stable")[:_TELLING])

    @functools.cached_property
    def levels(self) -> Array:
        """The tenth, fiftieth and ninetieth percentile of each column at each site, sites x 3 x d."""
        return self.by_site([stack.levels() for stack in self.stacks])

    def column_title(self, j: int) -> str:
        """Return the name of a column for the beginning of a sentence."""
        return labels.capitalize(self.columns[j])

    def is_whole(self, j: int) -> bool:
        """Return whether a column holds whole numbers only."""
        values = self.values_of(j)
        return bool((values == np.rint(values)).all())

    def find_value(self, j: int, value: float) -> tuple[Site, int]:
        """Return the first site at which column j contains `value`, and its first row with this value."""
        found = ((site, np.flatnonzero(site.rows[:, j] == value)) for site in self.sites)
        return next((site, int(rows[0])) for site, rows in found if len(rows))

    def hint_of_code(self, j: int, value: float, why: str) -> str:
        """Return the hint that a number in a column may stand for a missing value. `why` is the reason in words."""
        where = [(site, np.flatnonzero(site.rows[:, j] == value)) for site in self.sites]
        site, rows = next((site, rows) for site, rows in where if len(rows))
        first = site.place(int(rows[0]))
        count = labels.count(sum(len(rows) for _, rows in where), "time")
        if self.sampled:
            count = f"at least {count}"
        what = f"{self.column_title(j)} holds {value:g} {count}, {why}"
        return (
            f"{what}: the first is {first}. If it stands for a missing value, read the data "
            f"{gaps_option(value)}{AS_MEAN}."
        )

    def values_of(self, j: int) -> Array:
        """Return the values of a column at all sites, in one array."""
        parts = zip(self.sorted_values, self.value_counts[:, j], strict=True)
        return np.concatenate([values[:count, j] for values, count in parts])


def _two_smallest(parts: Sequence[Array]) -> Array:
    """Return the two smallest values of each column in parts (s x n x d) of the values, 2 x d."""
    d = parts[0].shape[2]
    every = np.concatenate([part.reshape(-1, d) for part in parts] + [np.full((1, d), np.nan)])
    return np.asarray(np.sort(every, axis=0)[:2])
