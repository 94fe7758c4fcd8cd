"""Look for mistakes in rows that are too many to be sorted: in a sample, and in one pass over all rows.

The pass finds the smallest and the largest value of each column, one number for each row that is equal for equal rows,
and rows that are large enough to be totals. If they raise a suspicion, the columns or rows in question are examined in
full, by the same functions as in small tables. So a hint means the same in tables of any size, and ordinary rows cost
little more than the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.hints import missing, shapes
from flower_pca.hints.doubles import doubles, least_repeated
from flower_pca.hints.sites import ENDS, AllSites, Site
from flower_pca.rows.local import LocalData

ROWS: Final = 2**21  # maximum number of rows of all sites for which numbers and a few columns are kept (some 200 MB)
_HELD: Final = 2**18  # maximum number of entries of suspicious columns that are examined at a time (2 MB)
_TOGETHER: Final = 4  # number of suspicious columns that are examined together at least, because each look is a pass
_FOLDED: Final = 16  # number of rows that are compared at once, because numpy is slow along short rows
_FEW: Final = 3  # number of columns that rule out most rows as sums of other rows
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
    """

    lowest: Array
    highest: Array
    marks: Array
    large: Array
    empty: Array


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
    cut: list[int]
    sums: list[list[int]]
    left_out: dict[str, str]

    @classmethod
    def of(cls, clients: Sequence[LocalData], sample: AllSites, *, columns: bool) -> LargeTables:
        """Pass over the rows. The extremes of columns are found only if `columns` is true."""
        made = cls(clients, sample, [], [0] * len(clients), [[] for _ in clients], {})
        n = sum(client.n for client in clients)
        if n > ROWS:
            because = f"there are more than {ROWS:,} rows"
            made.left_out = {_TOTALS: because, _REPEATS: because, "single wrong values": because}
        else:
            weights = _weights(sample)
            made.passes = [
                _pass_over(client, site, _telling_columns(sample, site), weights, extremes=columns)
                for client, site in zip(clients, sample.sites, strict=True)
            ]
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

    def hints_of_statistics(self) -> Iterator[str]:
        """Yield hints about last lines that hold statistics of the lines above them."""
        telling = self.sample.most_varied_columns
        for i, (client, site, found) in enumerate(zip(self.clients, self.sample.sites, self.passes, strict=False)):
            columns = telling[(found.lowest < found.highest)[telling]][: max(_HELD // max(client.n, 1), 2)]
            if client.n <= 2 * ENDS or len(columns) < 2:
                continue
            means, seen = client.measured.approximate_means()
            totals = (means * seen)[columns]
            if not _may_be_statistics(site.rows[:, columns], self.sample.levels[i, 1, columns], totals, found, columns):
                continue
            rows = _columns_of(client, columns)
            if said := shapes.statistics_below(rows):
                self.cut[i] = max(self.cut[i], len(said))
                yield shapes.hint_of_statistics(client.table.place, client.n, said)

    def hints_of_sums(self) -> Iterator[str]:
        """Yield hints about rows that are the sum of rows before them, or of all other rows."""
        for i, (client, site, found) in enumerate(zip(self.clients, self.sample.sites, self.passes, strict=False)):
            if not len(found.large):
                continue
            telling, large = _telling_columns(self.sample, site), found.large
            few = len(large) <= shapes.MOST_SUMS
            # A sum is a sum in any two columns, which rule out most large rows.
            if few and not shapes.sums_among(_columns_without_gaps(client, telling[:2]), large):
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
        lowest, highest = [], []
        for site, found, cut in zip(self.sample.sites, self.passes, self.cut, strict=True):
            last = site.rows[-ENDS:][: len(site.rows[-ENDS:]) - cut]
            lowest.append(np.fmin.reduce(np.concatenate([found.lowest[None], last])))
            highest.append(np.fmax.reduce(np.concatenate([found.highest[None], last])))
        return np.stack(lowest), np.stack(highest)


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


def _pass_over(client: LocalData, site: Site, telling: Array, weights: Array, *, extremes: bool) -> Pass:
    """Pass once over the rows of a client."""
    lowest, highest = _Extremes(np.fmin, client.d), _Extremes(np.fmax, client.d)
    marks = np.empty(client.n)
    large: list[Array] = []
    empty: list[Array] = []
    sizes = np.abs(np.nan_to_num(site.rows[:, telling]))
    limits = 1.5 * np.median(sizes, axis=0)
    positive = np.nanmin(site.rows[:, telling], axis=0, initial=np.inf) >= 0.0
    # A sum of rows must be large only in columns without negative values. In others, it may be close to 0.
    if positive.sum() >= _FEW:
        telling, limits, positive = telling[positive], limits[positive], positive[positive]
    start, body = 0, client.n - ENDS
    for block in client.blocks():
        stop = start + len(block)
        if extremes and start < body:
            for found in (lowest, highest):
                found.add(block[: body - start])
        filled = block
        if client.missing:
            blank = np.flatnonzero(np.isnan(block[:, 0]))
            empty.append(start + blank[np.isnan(block[blank]).all(axis=1)])
            filled = np.nan_to_num(block, nan=_GAP)
        marks[start:stop] = filled @ weights
        if len(telling) > 1:
            large.append(start + _large_rows(block, telling, limits, positive))
        start = stop
    ends = lowest.by_column, highest.by_column
    return Pass(*ends, marks, *(np.concatenate([np.array([], dtype=int), *some]) for some in (large, empty)))


class _Extremes:
    """The smallest or the largest value of each column, NaN for none. The ufunc `of` is np.fmin or np.fmax.

    Several rows that lie one after the other in memory are compared as one row, because numpy is slow along short rows.
    """

    def __init__(self, of: np.ufunc, d: int) -> None:
        self._of = of
        self._folded, self._others = np.full((_FOLDED, d), np.nan), np.full(d, np.nan)

    def add(self, block: Array) -> None:
        """Add a block of rows."""
        whole = len(block) // _FOLDED * _FOLDED if block.flags.c_contiguous else 0
        if whole:
            some = self._of.reduce(block[:whole].reshape(-1, self._folded.size), axis=0)
            self._of(self._folded, some.reshape(self._folded.shape), out=self._folded)
        if whole < len(block):
            self._of(self._others, self._of.reduce(block[whole:], axis=0), out=self._others)

    @property
    def by_column(self) -> Array:
        """The extremes of the blocks so far."""
        return np.asarray(self._of(self._others, self._of.reduce(self._folded, axis=0)))


def _large_rows(block: Array, columns: Array, limits: Array, positive: Array) -> Array:
    """Return the positions of rows whose absolute values are so large in some columns that the rows may be sums.

    In columns without negative values, a sum of at least three rows exceeds the sum of the three rows before it.
    """
    rows: Array = np.flatnonzero(np.abs(block[:, columns[0]]) > limits[0])
    for j, limit in zip(columns[1:].tolist(), limits[1:].tolist(), strict=True):
        rows = rows[np.abs(block[rows, j]) > limit]
    some = columns[positive]
    if not len(rows) or not len(some):
        return rows
    # The first three rows of a block are kept, because the rows before them are in another block.
    first, later = rows[rows <= 2], rows[rows > 2]
    three = sum(np.nan_to_num(block[np.ix_(later - back, some)]) for back in (1, 2, 3))
    return np.concatenate([first, later[(block[np.ix_(later, some)] >= three * (1.0 - 1e-9)).all(axis=1)]])


def _are_sums_by_chance(rows: Array, large: Array) -> bool:
    """Return whether large rows would also be sums of other rows if they stood in each other's places.

    In tables of few columns with small whole numbers, some of a million rows are sums of rows before them by accident.
    """
    turns = range(1, min(len(large), _TURNS + 1))
    return any(shapes.sums_among(rows, large, values=rows[np.roll(large, turn)]) for turn in turns)


def _telling_columns(sample: AllSites, site: Site) -> Array:
    """Return the columns in which sums of rows are looked for at a site."""
    columns = sample.most_varied_columns[: shapes.COLUMNS]
    return np.asarray(columns[shapes.varied_columns(np.nan_to_num(site.rows[:, columns]))])


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


def _weights(sample: AllSites) -> Array:
    """Return a random weight for each column. Sums with these weights differ between different rows."""
    drawn = np.random.default_rng(0).uniform(0.5, 1.5, len(sample.columns))
    return np.asarray(drawn / _typical_sizes(sample)[1])


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
    starts = _starts_of_groups(every, rounding)
    sizes = np.diff(starts, append=len(every))
    if sizes.max() < shapes.OFTEN and len(every) - len(starts) < min(least_repeated(client.n) for client in clients):
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
    every = np.concatenate(marks)
    far = np.flatnonzero(np.abs(every) > _FAR / np.finfo(np.float64).eps * rounding)
    every[far] = np.abs(every[far]).max(initial=0.0) * np.arange(2, len(far) + 2)
    return every


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


def _may_be_statistics(rows: Array, median: Array, totals: Array, found: Pass, columns: Array) -> bool:
    """Return whether one of the last lines of a sample may hold a statistic of the lines above them.

    `totals` are the sums of these columns over all rows.
    """
    above, below = rows[:-ENDS], rows[-_LINES:]
    n = len(found.marks)
    deviation = np.nanstd(above, axis=0)
    near = _NEAR * deviation + 0.01
    mean = np.nanmean(above, axis=0)
    # The columns of centered rows have small sums, so an estimate from the sample would fit every line.
    sums = totals - np.cumsum(np.nan_to_num(below)[::-1], axis=0)[::-1]
    known: list[tuple[Any, Any]] = [
        (mean, near), (median, near), (deviation, near), (n - ENDS, ENDS), (sums, near + _SUM_ERROR * np.abs(totals)),
        (found.lowest[columns], near), (found.highest[columns], near),
    ]  # fmt: skip
    fits = ((np.abs(below - of) <= slack) | np.isnan(below) for of, slack in known)
    return any(bool(some.all(axis=1).any()) for some in fits)
