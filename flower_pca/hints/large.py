"""Look for mistakes in rows that are too many to be sorted: in a sample, and in one pass over all rows.

The pass finds the smallest and the largest value of each column, one number for each row that is equal for equal rows,
and rows that are large enough to be totals. If they raise a suspicion, the columns or rows in question are examined in
full, by the same functions as in small tables. So a hint means the same in tables of any size, and ordinary rows cost
little more than the pass. A simulation with large arrays, or with large tables whose columns are stored in the order of
the run, needs no pass of its own for hints: each block is looked at in the pass in which clients check their rows,
while it is in the processor's cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.hints import missing, shapes
from flower_pca.hints.doubles import doubles, least_repeated
from flower_pca.hints.sites import ENDS, AllSites, Site, rows_of_client
from flower_pca.hints.totals import SumsOfSites
from flower_pca.hints.units import WIDE
from flower_pca.rows.local import LocalData

ROWS: Final = 2**21  # maximum number of rows of all sites for which numbers and a few columns are kept (some 200 MB)
_HELD: Final = 2**18  # maximum number of entries of suspicious columns that are examined at a time (2 MB)
_TOGETHER: Final = 4  # number of suspicious columns that are examined together at least, because each look is a pass
_STACKED: Final = 2**17  # number of entries of sites of equal length that are passed over together (1 MB)
_FOLDED: Final = 1024  # number of entries of rows that are compared at once, because numpy is slow along short rows
_LONG: Final = 100  # number of columns from which a single column of a site's rows is kept
_LINES: Final = 7  # the maximum number of lines of statistics below a table
_GAP: Final = 0.618033988749895  # A row with missing values differs from a row with 0 in their place.
_TURNS: Final = 20  # The test for chance has 20 times as many opportunities as the search itself.
_CHECKED: Final = 16  # number of groups of rows with equal numbers that are compared entry by entry
_FAR: Final = 16.0  # Rows whose number is this many times as large as usual are not compared.
_SUM_ERROR: Final = 1e-5  # The error of a sum of numbers in single precision is smaller than this share.
_NEAR: Final = 0.1  # A line is examined if it is this close to a statistic, in standard deviations.
_TOTALS, _REPEATS = "totals and statistics among the rows", "repeated rows"

Kind = Callable[[AllSites], Iterable[str]]


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over all rows of a site has found.

    Attributes
    ----------
    lowest, highest : ndarray
        The smallest and the largest value of each column in all rows except for the last `ENDS` rows, NaN for none.
    marks : ndarray
        A number for each row. The numbers of equal rows differ only by rounding.
    large : ndarray
        The positions of rows that may be the sum of other rows.
    empty : ndarray
        The positions of rows without any value.
    column : ndarray or None
        The values of the first column in which sums of rows of the site are looked for, or None if they were not kept.
    """

    lowest: Array
    highest: Array
    marks: Array
    large: Array
    empty: Array
    column: Array | None


@dataclass(frozen=True, eq=False)
class Preview:
    """A sample of the rows of all sites, which says what to look for in all rows.

    Attributes
    ----------
    sample : AllSites
        A sample of the rows of each site, with its first and last rows.
    names : sequence of str or None
        The names of the columns, or None if they have none.
    most : int
        The number of entries beyond which only a sample is taken.
    """

    sample: AllSites
    names: Sequence[str] | None
    most: int

    @functools.cached_property
    def telling(self) -> Telling:
        """The columns in which sums of rows are looked for."""
        return Telling.of(self.sample)

    @functools.cached_property
    def weights(self) -> Array:
        """A random weight for each column. Sums with these weights differ between different rows."""
        drawn = np.random.default_rng(0).uniform(0.5, 1.5, len(self.sample.columns))
        return np.asarray(drawn / _typical_sizes(self.sample)[1])

    @property
    def narrow(self) -> bool:
        """Whether the extremes of columns are looked at."""
        return len(self.sample.columns) <= WIDE

    @classmethod
    def before(cls, clients: Sequence[LocalData], names: Sequence[str] | None, most: int) -> Preview | None:
        """Return the preview that was made before the first pass over the rows of these clients, if there is one."""
        watches = [client.measured.watch for client in clients]
        seen = [(i, watch) for i, watch in enumerate(watches) if isinstance(watch, SeenRows)]
        if not seen:
            return None
        found = seen[0][1].preview
        if (found.names, found.most, len(found.sample.sites)) != (names, most, len(clients)):
            return None
        return found if all(watch.preview is found and watch.places == [i] for i, watch in seen) else None


@dataclass(eq=False)
class LargeTables:
    """The rows of all sites, as a sample and as what one pass over them has found.

    Attributes
    ----------
    clients : sequence of LocalData
        The rows.
    sample : AllSites
        A sample of the rows of each site, with its first and last rows.
    passes : list of Pass
        What a pass over the rows of each site has found. Empty if there are too many rows.
    telling : Telling or None
        The columns in which sums of rows are looked for. None if there are too many rows.
    cut : list of int
        The number of last lines of each site that hold totals or statistics.
    sums : list of list of int
        The positions of rows of each site that are the sum of other rows.
    left_out : dict
        What was not looked for, with the reason.
    """

    clients: Sequence[LocalData]
    sample: AllSites
    passes: list[Pass]
    telling: Telling | None
    cut: list[int]
    sums: list[list[int]]
    left_out: dict[str, str]

    @classmethod
    def of(cls, clients: Sequence[LocalData], preview: Preview) -> LargeTables:
        """Pass over the rows, unless they were looked at in an earlier pass."""
        made = cls(clients, preview.sample, [], None, [0] * len(clients), [[] for _ in clients], {})
        n = sum(client.n for client in clients)
        if n > ROWS:
            because = f"there are more than {ROWS:,} rows"
            made.left_out = {_TOTALS: because, _REPEATS: because, "single wrong values": because}
        else:
            made.telling = preview.telling
            made.passes = _passes(clients, preview)
        return made

    @property
    def sample_of_rows(self) -> AllSites:
        """The sample without last lines that hold totals or statistics."""
        if not any(self.cut):
            return self.sample
        whole = zip(self.sample.sites, self.cut, strict=True)
        return replace(self.sample, sites=[site.first_rows(max(len(site.rows) - cut, 1)) for site, cut in whole])

    def hints_of_empty_rows(self) -> Iterator[str]:
        """Yield hints about rows without any value."""
        for client, site, found in zip(self.clients, self.sample.sites, self.passes, strict=False):
            if len(found.empty):
                yield missing.hint_of_empty_rows(client.table.place, found.empty)
            if client.missing:
                seen = np.broadcast_to(client.measured.approximate_means()[1], client.d)
                yield from missing.hints_of_empty_columns(site.who, client.n, np.asarray(seen), self.sample.columns)

    def hints_of_statistics(self, sums: SumsOfSites) -> Iterator[str]:
        """Yield hints about last lines that hold statistics of the lines above them. `sums` are those of all rows."""
        if not self.passes:
            return
        telling = self.sample.most_varied_columns
        ends = np.array([(found.lowest[telling], found.highest[telling]) for found in self.passes])
        varied = ends[:, 0] < ends[:, 1]
        most = [max(_HELD // max(client.n, 1), 2) for client in self.clients]
        looked = varied & (np.cumsum(varied, axis=1) <= np.array(most)[:, None])
        looked[[client.n <= 2 * ENDS for client in self.clients]] = False
        looked[looked.sum(axis=1) < 2] = False
        fits = np.asarray(looked.any(axis=1))
        for few in (shapes.FEW, len(telling)):  # A few columns rule out most tables.
            if not fits.any():
                return
            some = telling[:few]
            fits = _may_be_statistics(self, fits, some, looked[:, :few], ends[:, :, :few], sums.totals[:, some])
        for i in np.flatnonzero(fits).tolist():
            client = self.clients[i]
            if said := shapes.statistics_below(_columns_of(client, telling[looked[i]])):
                self.cut[i] = max(self.cut[i], len(said))
                yield shapes.hint_of_statistics(client.table.place, client.n, said)

    def hints_of_sums(self) -> Iterator[str]:
        """Yield hints about rows that are the sum of rows before them, or of all other rows."""
        for i, (client, found) in enumerate(zip(self.clients, self.passes, strict=False)):
            if not len(found.large) or self.telling is None:
                continue
            telling, large = self.telling.columns[self.telling.varied[i]], found.large
            few = len(large) <= shapes.MOST_SUMS
            # A sum is a sum in any column, which rules out most large rows.
            if few:
                one = _columns_of(client, telling[:1]) if found.column is None else found.column[:, None]
                if not shapes.sums_among(np.nan_to_num(one) if client.missing else one, large):
                    continue
            rows = _columns_without_gaps(client, telling[: max(_HELD // max(client.n, 1), 2)])
            if not few:  # Sums are among the largest rows.
                sizes = np.abs(rows[large]).sum(axis=1)
                large = np.sort(large[np.argpartition(-sizes, shapes.MOST_SUMS)[: shapes.MOST_SUMS]])
            sums = shapes.sums_among(rows, large)
            if sums and _are_sums_by_chance(rows, large):
                sums = [row for row in sums if np.allclose(2.0 * rows[row], rows.sum(axis=0), rtol=1e-9)]
            self.sums[i] = sums
            if sums:
                yield shapes.hint_of_sums(client.table.place, sums)

    def hints_of_repeats(self) -> Iterator[str]:
        """Yield hints about rows that occur at two sites, or more than once at one site."""
        if not self.passes:
            return
        marks = _equal_rows(self.clients, [found.marks for found in self.passes], _rounding(self.sample))
        if marks is None:
            return
        if not marks:
            self.left_out[_REPEATS] = "some columns have values of very different sizes"
            return
        sites = []
        for site, some, client in zip(self.sample.sites, marks, self.clients, strict=True):
            _, once = np.unique(site.row_hashes, return_index=True)
            sites.append(replace(site, rows=site.rows[once], marks=some, place=client.table.place))
        data = AllSites.of_sites(sites, None, sampled=True)
        yield from doubles(data)
        yield from shapes.repeated_row(data)

    def hints_by_extremes(
        self, suspects: Callable[[LargeTables, Array, Array], Array], kinds: Sequence[Kind]
    ) -> list[list[str]]:
        """Return the hints of each kind about the columns that `suspects` returns, which are examined in full.

        `suspects` gets the smallest and the largest value of each column at each site.
        """
        said: list[list[str]] = [[] for _ in kinds]
        if not self.passes:
            return said
        columns = suspects(self, *self._extremes())
        rows = sum(client.n for client in self.clients)
        step = max(_HELD // max(rows, 1), _TOGETHER)
        for start in range(0, len(columns), step):
            some = columns[start : start + step]
            sites = [
                Site(site.who, self._columns_of_rows(i, some), self.clients[i].table.place)
                for i, site in enumerate(self.sample.sites)
            ]
            names = [self.sample.columns[j] for j in some]
            data = AllSites(sites, names, width=len(self.sample.columns))
            for found, kind in zip(said, kinds, strict=True):
                found.extend(kind(data))
        return said

    def _columns_of_rows(self, i: int, columns: Array) -> Array:
        """Return some columns of site i without last lines that are no rows, and with NaN in rows that are sums."""
        found = _columns_of(self.clients[i], columns)[: self.clients[i].n - self.cut[i]]
        found[[row for row in self.sums[i] if row < len(found)]] = np.nan
        return found

    def _extremes(self) -> tuple[Array, Array]:
        """Return the smallest and the largest value of each column at each site, both sites x d."""
        last = np.full((len(self.clients), ENDS, len(self.sample.columns)), np.nan)
        for some, site, cut in zip(last, self.sample.sites, self.cut, strict=True):
            rows = site.rows[-ENDS:]
            some[: len(rows) - cut] = rows[: len(rows) - cut]
        lowest = np.fmin([found.lowest for found in self.passes], np.fmin.reduce(last, axis=1))
        highest = np.fmax([found.highest for found in self.passes], np.fmax.reduce(last, axis=1))
        return np.asarray(lowest), np.asarray(highest)


def columns_with_odd_extremes(tables: LargeTables, lowest: Array, highest: Array) -> Array:
    """Return the columns whose smallest or largest value may be a code, a fill value or a typing error."""
    sample = tables.sample_of_rows
    low, high = np.fmin.reduce(lowest), np.fmax.reduce(highest)
    (first, second), (last, last_but_one) = sample.two_smallest, sample.two_largest
    # If single values are wrong, the other values of the sample are between these two.
    after, before = np.where(first > low, first, second), np.where(last < high, last, last_but_one)
    codes = np.any(missing.may_be_codes(np.stack([low, high])), axis=0)
    # A column of two values is no measurement.
    zeros = (low == 0.0) & (sample.distinct_counts > 2).any(axis=0)
    sure = np.maximum(np.abs(low), np.abs(high)) >= shapes.FILLS
    sure |= shapes.may_have_shifted_points(sample, low, high, after, before)
    found = []
    for j in np.flatnonzero((sure | codes | zeros) & (high > low)).tolist():
        if not sure[j]:
            values = np.sort(sample.values_of(j))
            of_zeros = zeros[j] and missing.may_have_suspicious_zeros(values)
            if not of_zeros and not (codes[j] and missing.may_hold_codes(low[j], high[j], values)):
                continue
        found.append(j)
    return np.array(found, dtype=int)


def columns_with_few_values(tables: LargeTables, lowest: Array, highest: Array) -> Array:
    """Return the columns that hold a single value at some sites only, or two values that differ between sites."""
    if len(lowest) < 2:
        return np.array([], dtype=int)
    still = lowest == highest
    constant = still.any(axis=0) & ~still.all(axis=0)
    two = (tables.sample.distinct_counts == 2).all(axis=0)
    differ = (np.ptp(lowest, axis=0) > 0.0) | (np.ptp(highest, axis=0) > 0.0)
    return np.flatnonzero(constant | (two & differ))


@dataclass(frozen=True, eq=False)
class Telling:
    """The columns in which sums of rows are looked for, and how large the values of a sum are.

    Attributes
    ----------
    columns : ndarray
        The positions of c columns with the most different values.
    varied : ndarray
        Whether a column has several values at a site, sites x c.
    limits : ndarray
        The absolute values of a sum exceed these limits, sites x c. They are infinite at sites without sums.
    limited : ndarray
        Whether the limit of a column is to be exceeded at a site, sites x c.
    positive : ndarray
        Whether in addition the column has no negative values in the sample of a site, sites x c.
    shares : ndarray
        The share of rows of the sample of a site that exceed the limit, sites x c.
    """

    columns: Array
    varied: Array
    limits: Array
    limited: Array
    positive: Array
    shares: Array

    @classmethod
    def of(cls, sample: AllSites) -> Telling:
        """Choose the columns from a sample of the rows of all sites."""
        columns = sample.most_varied_columns[: shapes.COLUMNS]
        parts = []
        for stack in sample.stacks:
            rows = stack.rows[:, :, columns]
            low = np.fmin.reduce(rows, axis=1, initial=np.inf)
            if stack.is_complete:
                sizes, medians = np.abs(rows), stack.median_sizes(columns)
            else:
                rows = np.nan_to_num(rows)
                sizes = np.abs(rows)
                medians = linalg.median_of_few(sizes.swapaxes(0, 1))
            limits = 1.5 * medians
            shares = (sizes > limits[:, None]).mean(axis=1)
            parts.append((shapes.varied_columns(rows), limits, low >= 0.0, shares))
        varied, limits, positive, shares = map(sample.by_site, zip(*parts, strict=True))
        # A sum of rows must be large only in columns without negative values. In others, it may be close to 0.
        positive = positive & varied
        limited = np.where(positive.sum(axis=1, keepdims=True) >= shapes.FEW, positive, varied)
        none = limited.sum(axis=1, keepdims=True) < 2
        return cls(columns, varied, np.where(none, np.inf, limits), limited | none, positive, shares)

    def first_column(self, place: int) -> int | None:
        """Return the first column that has several values at a site, or None."""
        columns = self.columns[self.varied[place]]
        return int(columns[0]) if len(columns) else None

    def at(self, places: Sequence[int]) -> Telling:
        """Return what holds for the sites at these positions, with the columns first that fewest rows exceed."""
        order = np.argsort(np.where(self.limited, self.shares, 1.0)[places].mean(axis=0), kind="stable")
        sides = (self.varied, self.limits, self.limited, self.positive, self.shares)
        return Telling(self.columns[order], *(side[places][:, order] for side in sides))

    def large_rows(self, rows: Array) -> Array:
        """Return the positions of rows whose absolute values are so large that the rows may be sums of other rows.

        The sites take turns in `rows`: the first row of each of them comes first. In columns without negative values,
        a sum of at least three rows exceeds the sum of the three rows before it.
        """
        sites = len(self.limits)
        (first, most, fixed), *others = self._tests
        fits = np.abs(rows[:, first].reshape(-1, sites)) > most
        found = np.flatnonzero(fits if fixed is None else fits | fixed)
        for j, most, fixed in others:
            if not len(found):
                return found
            fits = np.abs(rows[found, j]) > (most if sites == 1 else most[found % sites])
            found = found[fits if fixed is None else fits | fixed[found % sites]]
        # The first three rows of a block are kept, because the rows before them are in another block.
        kept, later = found[found < 3 * sites], found[found >= 3 * sites]
        for j, positive in self._sums:
            if not len(later):
                break
            three = np.nan_to_num(rows[later[:, None] - sites * np.arange(1, 4), j]).sum(axis=1)
            later = later[(rows[later, j] >= three * (1.0 - 1e-9)) | ~positive[later % sites]]
        return np.concatenate([kept, later])

    @functools.cached_property
    def _tests(self) -> list[tuple[int, Array, Array | None]]:
        """The columns whose limits are to be exceeded, with these limits and the sites where any value is enough."""
        columns = zip(self.columns.tolist(), self.limits.T, self.limited.T, strict=True)
        return [(j, most, None if limited.all() else ~limited) for j, most, limited in columns if limited.any()]

    @functools.cached_property
    def _sums(self) -> list[tuple[int, Array]]:
        """The columns in which sums of three rows are compared, with the sites where they are."""
        return [(j, some) for j, some in zip(self.columns.tolist(), self.positive.T, strict=True) if some.any()]


def passes_alone(n: int, d: int) -> bool:
    """Return whether a site with n rows of d entries is not passed over together with other sites of its length."""
    return 2 * n * d > _STACKED


def _passes(clients: Sequence[LocalData], preview: Preview) -> list[Pass]:
    """Pass once over the rows of all clients. Small clients of equal length are passed over together."""
    by_length: dict[int, list[int]] = {}
    for i, client in enumerate(clients):
        by_length.setdefault(client.n, []).append(i)
    d = len(preview.sample.columns)
    passes: dict[int, Pass] = {}
    for n, places in by_length.items():
        several = 1 if passes_alone(n, d) else max(_STACKED // max(n * d, 1), 1)
        for start in range(0, len(places), several):
            some = places[start : start + several]
            seen = clients[some[0]].measured.watch
            if not isinstance(seen, SeenRows) or not seen.is_of(preview, some):
                seen = SeenRows(n, preview, some)
                for block in _blocks_side_by_side([clients[i] for i in some]):
                    seen(block)
            passes.update(zip(some, seen.passes, strict=True))
    return [passes[i] for i in range(len(clients))]


def _blocks_side_by_side(clients: Sequence[LocalData]) -> Iterator[Array]:
    """Yield blocks of rows of a client, or one block with the rows of several clients of equal length side by side."""
    if len(clients) == 1:
        return clients[0].blocks()
    # Long rows are compared faster than short ones.
    rows = np.stack([rows_of_client(client) for client in clients], axis=1)
    return iter([rows.reshape(len(rows), -1)])


class SeenRows:
    """What is found while the rows of some sites of n rows each pass by, in blocks with the sites side by side.

    `passes` holds what was found at each site, as soon as all rows have passed by.
    """

    def __init__(self, n: int, preview: Preview, places: list[int]) -> None:
        self.preview, self.places = preview, places
        self.passes: list[Pass] = []
        self._n = n
        self._telling, self._weights = preview.telling.at(places), preview.weights
        self._sites = len(places)
        width = self._sites * len(self._weights)
        self._ends = [_Extremes(of, width) for of in (np.fmin, np.fmax)]
        self._body = n - ENDS if preview.narrow else 0
        self._start = 0
        self._marks = np.empty((n, self._sites))
        # Reading one column of long rows later would take as long as reading all columns. One column of short rows is a
        # large part of them, so it is not kept.
        kept = len(places) == 1 and len(self._weights) >= _LONG
        self._first = preview.telling.first_column(places[0]) if kept else None
        self._column = None if self._first is None else np.empty(n)
        self._large: list[Array] = []
        self._empty: list[Array] = []

    def __call__(self, block: Array) -> None:
        """Look at the next rows."""
        start, stop = self._start, self._start + len(block)
        rows = block.reshape(-1, len(self._weights))
        # The first look reads the block from memory. numpy does this faster if the block is stored by rows, and BLAS
        # does if it is stored by columns.
        by_columns, body = block.strides[0] < block.strides[1], block[: max(self._body - start, 0)]
        if not by_columns:
            self._compare(body)
        marks = rows @ self._weights
        if by_columns:
            self._compare(body)
        if (gaps := np.flatnonzero(np.isnan(marks))).size:
            some = rows[gaps]
            blank = np.isnan(some)
            marks[gaps] = np.where(blank, _GAP, some) @ self._weights
            self._empty.append(start * self._sites + gaps[blank.all(axis=1)])
        if self._column is not None:
            self._column[start:stop] = rows[:, self._first]
        self._marks[start:stop] = marks.reshape(-1, self._sites)
        self._large.append(start * self._sites + self._telling.large_rows(rows))
        self._start = stop
        if stop == self._n:
            self._finish()

    def _compare(self, block: Array) -> None:
        for ends in self._ends:
            ends.add(block)

    def is_of(self, preview: Preview, places: list[int]) -> bool:
        """Return whether all rows of these sites have been looked at for this preview."""
        return self.preview is preview and self.places == places and bool(self.passes)

    def _finish(self) -> None:
        lowest, highest = (ends.by_column.reshape(self._sites, -1) for ends in self._ends)
        large, empty = (self._by_site(some) for some in (self._large, self._empty))
        marks, column = self._marks.T, self._column
        self.passes = [Pass(lowest[k], highest[k], marks[k], large[k], empty[k], column) for k in range(self._sites)]
        # What was found is kept until the run ends. Nothing else is needed any more.
        del self._ends, self._large, self._empty, self._marks, self._column, self._telling

    def _by_site(self, found: list[Array]) -> list[Array]:
        """Return the positions of rows at each site, from their positions among the rows of all sites side by side."""
        every = np.concatenate([np.array([], dtype=int), *found])
        if not len(every):
            return [every] * self._sites
        rows, whose = np.divmod(every, self._sites)
        return [rows[whose == k] for k in range(self._sites)]


class _Extremes:
    """The smallest or the largest value of each column, NaN for none. The ufunc `of` is np.fmin or np.fmax.

    Several rows that lie one after the other in memory are compared as one row, because numpy is slow along short rows.
    """

    def __init__(self, of: np.ufunc, d: int) -> None:
        self._of = of
        self._folded, self._others = np.full((max(_FOLDED // d, 1), d), np.nan), np.full(d, np.nan)

    def add(self, block: Array) -> None:
        """Add a block of rows."""
        rows = len(self._folded)
        if len(block) < rows or not block.flags.c_contiguous:
            if len(block):
                self._of(self._others, self._of.reduce(block, axis=0), out=self._others)
            return
        whole = len(block) // rows * rows
        some = self._of.reduce(block[:whole].reshape(-1, self._folded.size), axis=0).reshape(self._folded.shape)
        self._of(self._folded, some, out=self._folded)
        if whole < len(block):  # The last rows may be compared twice.
            self._of(self._folded, block[-rows:], out=self._folded)

    @property
    def by_column(self) -> Array:
        """The extremes of the blocks so far."""
        return np.asarray(self._of(self._others, self._of.reduce(self._folded, axis=0)))


def _are_sums_by_chance(rows: Array, large: Array) -> bool:
    """Return whether large rows would also be sums of other rows if they stood in each other's places.

    In tables of few columns with small whole numbers, some of a million rows are sums of rows before them by accident.
    """
    turns = range(1, min(len(large), _TURNS + 1))
    return any(shapes.sums_among(rows, large, values=rows[np.roll(large, turn)]) for turn in turns)


def _columns_of(client: LocalData, columns: Array) -> Array:
    """Return some columns of all rows in double precision."""
    found, start = np.empty((client.n, len(columns))), 0
    for block in client.blocks():
        found[start : start + len(block)] = block[:, columns]
        start += len(block)
    return found


def _columns_without_gaps(client: LocalData, columns: Array) -> Array:
    """Return some columns of all rows, with 0 for missing values."""
    rows = _columns_of(client, columns)
    return np.nan_to_num(rows, copy=False) if client.missing else rows


def _typical_sizes(sample: AllSites) -> tuple[Array, Array]:
    """Return of each column a size that most values do not exceed, and the distance between its deciles, or 1."""
    levels = sample.levels
    low, high = np.fmin.reduce(levels[:, 0]), np.fmax.reduce(levels[:, 2])
    spread = high - low
    return np.fmax(np.abs(low), np.abs(high)), np.where(spread > 0.0, spread, 1.0)


def _rounding(sample: AllSites) -> float:
    """Return by how much rounding may change the number of a row."""
    sizes, spread = _typical_sizes(sample)
    return float(16.0 * np.finfo(np.float64).eps * np.nansum(1.5 * sizes / spread + 1.0))


def _equal_rows(clients: Sequence[LocalData], marks: Sequence[Array], rounding: float) -> list[Array] | None:
    """Return whole numbers that are equal for equal rows, for the rows of each site.

    Return None if hardly any rows are equal. Return [] if rows with equal numbers turn out to be different.
    """
    every = _comparable_numbers(marks, rounding)
    every.sort()  # In place: the order of the rows takes much more memory, and is needed only for equal rows.
    equal, least = _count_equal(every, rounding), min(least_repeated(client.n) for client in clients)
    if equal < min(least, shapes.OFTEN - 1):
        return None
    starts = _starts_of_groups(every, rounding)
    sizes = np.diff(starts, append=len(every))
    if sizes.max() < shapes.OFTEN and equal < least:
        return None  # So few rows cause no hint. Among millions, a few numbers are equal by accident.
    order = np.argsort(_comparable_numbers(marks, rounding), kind="stable")
    found = np.empty(len(every), dtype=np.int64)
    found[order] = np.repeat(np.arange(len(starts)), sizes)
    several = starts[sizes > 1]
    checked = several[np.unique(np.linspace(0, len(several) - 1, _CHECKED).astype(int))]
    differ = _differ(clients, order[checked], order[checked + 1])
    if 2 * differ.sum() > len(checked):
        return []
    return np.split(found, np.cumsum([len(some) for some in marks])[:-1])


def _comparable_numbers(marks: Sequence[Array], rounding: float) -> Array:
    """Return the numbers of the rows of all sites in one array.

    A fill value such as 1e20 hides the other values of its row, so such rows get different numbers.
    """
    every, most = np.concatenate(marks), _FAR / np.finfo(np.float64).eps * rounding
    if -most <= every.min(initial=0.0) and every.max(initial=0.0) <= most:
        return every
    far = np.flatnonzero(np.abs(every) > most)
    every[far] = np.abs(every[far]).max(initial=0.0) * np.arange(2, len(far) + 2)
    return every


def _count_equal(ordered: Array, rounding: float) -> int:
    """Return how many sorted numbers differ from the number before them by rounding only."""
    pieces = range(1, len(ordered), _HELD)
    new = (np.count_nonzero(np.diff(ordered[start - 1 : start + _HELD]) > rounding) for start in pieces)
    return len(ordered) - 1 - int(sum(new))


def _starts_of_groups(ordered: Array, rounding: float) -> Array:
    """Return the positions at which sorted numbers differ from the number before them by more than rounding."""
    pieces = range(1, len(ordered), _HELD)  # Differences of all numbers at once would take much memory.
    found = [np.array([0], dtype=np.int32)]
    for start in pieces:
        new = np.flatnonzero(np.diff(ordered[start - 1 : start + _HELD]) > rounding)
        found.append((start + new).astype(np.int32))
    return np.concatenate(found)


def _differ(clients: Sequence[LocalData], some: Array, others: Array) -> Array:
    """Return for each pair of rows whether they differ. Rows are counted over all sites."""
    firsts = np.cumsum([0, *(client.n for client in clients)])
    rows: dict[int, Array] = {}
    for i, client in enumerate(clients):
        wanted = np.unique(np.concatenate([some, others]))
        wanted = wanted[(wanted >= firsts[i]) & (wanted < firsts[i + 1])]
        if len(wanted):
            read = np.asarray(client.measured.rows_at(wanted - firsts[i]))
            rows.update(zip(wanted.tolist(), read, strict=True))
    pairs = zip(some.tolist(), others.tolist(), strict=True)
    return np.array([not np.array_equal(rows[a], rows[b], equal_nan=True) for a, b in pairs])


def _may_be_statistics(
    tables: LargeTables, sites: Array, columns: Array, looked: Array, ends: Array, totals: Array
) -> Array:
    """Return for each site whether one of the last lines may hold a statistic of the lines above them.

    Of the sample, only these sites and columns are read, and at each site only the columns that are `looked` at
    (sites x c). `ends` (sites x 2 x c) are their extremes, and `totals` (sites x c) their sums over all rows.
    """
    found = np.zeros(len(tables.clients), dtype=bool)
    for stack in tables.sample.stacks:
        some = np.flatnonzero(sites[stack.places]).tolist()
        if not some:
            continue
        places, rows = [stack.places[k] for k in some], np.stack([stack.tables[k][:, columns] for k in some])
        above, below = rows[:, :-ENDS], rows[:, -_LINES:]
        n = np.array([[[tables.clients[i].n]] for i in places])
        std, mean_of = (np.std, np.mean) if stack.is_complete else (np.nanstd, np.nanmean)
        deviation, mean = std(above, axis=1)[:, None], mean_of(above, axis=1)[:, None]
        median = tables.sample.levels[places, 1][:, None, columns]
        near = _NEAR * deviation + 0.01
        # The columns of centered rows have small sums, so an estimate from the sample would fit every line.
        total = totals[places][:, None]
        sums = total - np.cumsum(np.nan_to_num(below)[:, ::-1], axis=1)[:, ::-1]
        known: list[tuple[Any, Any]] = [
            (mean, near), (median, near), (deviation, near), (n - ENDS, ENDS),
            (sums, near + _SUM_ERROR * np.abs(total)), (ends[places, :1], near), (ends[places, 1:], near),
        ]  # fmt: skip
        left_out = np.isnan(below) | ~looked[places][:, None]
        fits = (((np.abs(below - of) <= slack) | left_out).all(axis=2).any(axis=1) for of, slack in known)
        found[places] = np.any(list(fits), axis=0)
    return found
