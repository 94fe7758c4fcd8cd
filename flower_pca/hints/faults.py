"""Faults: what files hold by mistake, and a PCA takes for measurements without a word.

A value that stands for a gap, a line of totals, the same rows twice, a date in digits, one site in
other units: each leaves a table of finite numbers, and components that are wrong. Here they are
looked for where rows are at hand, and each becomes a sentence that names line or column. They are
hints: only the owner of the rows knows whether it is one. So each kind is bounded by what ordinary
rows do by accident, as far as that can be said.

`find` goes through the kinds over all sites together. A site's columns are sorted once, and a
`Look` has what most kinds read off that, for all of them.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.options import in_words, option
from flower_pca.base.shown import brief
from flower_pca.hints import shapes
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

MOST: Final = 2**26  # entries of all sites that are looked at in full
CHEAP: Final = 2**21  # likewise, where nobody has asked for a look
BARE: Final = 2**18  # likewise, of arrays without names, as programs hand them over again and again
_SAMPLED: Final = (
    1 / 8
)  # of the entries that are looked at in full, those of a sample of more: it is copied some ten times
_ENDS: Final = 8  # rows at each end of a site that are in its sample
_SAID: Final = 3  # sentences of one kind
_FEW: Final = 3  # rows of a site that hide nobody
_LEAST: Final = 5  # values from which something can be said of a column at a site
# different values of a column that measures, and does not only tell kinds apart
_MANY: Final = 10
# the chance at which ordinary rows may look like a line of totals, in a whole run
_RARE: Final = 1e-3
# codes below are measurements as well: they have to be there twice, or to be alone in being
# negative
_OFTEN: Final = 900.0
_NEARER: Final = 0.25  # of the spread of the others, which only one negative value that is there again is away from
_SITES: Final = 30  # beyond them one site hardly changes the median of all
_AS_MEAN: Final = f" and use {option('missing', 'mean')}"
_LISTED: Final = option("columns", ["..."])
_REPEATED: Final = [sign * digit * (10.0**k - 1) / 9 for digit in (7, 8, 9) for k in range(2, 7) for sign in (1, -1)]
# that files write for a gap
_CODES: Final = np.array([*np.rint(_REPEATED), -1.0, -9.0, 99.9, 999.9, -99.9, -32768.0, 2.0**31 - 1])
_TIME: Final = re.compile(
    r"dat(e|um)|time|zeit|\btag\b|\bday\b|birth|geburt|admission|admitted|aufnahme|dob", re.IGNORECASE
)
# columns beyond which they are wave lengths, genes or pixels, and some look odd by accident
_WIDE: Final = 500
_CELSIUS: Final = 60.0  # degrees at most of what is measured in either scale
# of the spread: how far a median may lie from that of the other sites in another unit
_APART: Final = 0.25
_TENTH: Final = 1.2816  # deviations from the mean to nine tenths of normal values
# what chance adds to both, times the root of n: a deviation of the median, and of the spread, of
# normal values
_APART_BY_CHANCE: Final = 0.49
_WIDER_BY_CHANCE: Final = 0.89
_WIDER: Final = 1.6  # how far a spread may differ from theirs
# between nine tenths of the smaller and a tenth of the larger: no other people, whatever the unit
# is
_FAR: Final = 10.0
_GLUCOSE: Final = "as between mg/dl and mmol/l of glucose, or umol/l of bilirubin"
_UNITS: Final = (  # a factor and what is added: how one unit becomes another
    (10.0, 0.0, "a factor of 10"),
    (100.0, 0.0, "a factor of 100"),
    (1000.0, 0.0, "a factor of 1000"),
    (18.016, 0.0, _GLUCOSE),
    (38.67, 0.0, "as between mg/dl and mmol/l of cholesterol"),
    (88.5, 0.0, "as between mg/dl and umol/l of creatinine, or mmol/l of triglycerides"),
    (17.1, 0.0, _GLUCOSE),
    (59.48, 0.0, "as between mg/dl and umol/l of uric acid"),
    (6.006, 0.0, "as between mg/dl and mmol/l of urea"),
    (2.20462, 0.0, "as between pounds and kilograms"),
    (2.54, 0.0, "as between inches and centimetres"),
    (7.50062, 0.0, "as between mmHg and kPa"),
    (1.8, 32.0, "as between Fahrenheit and Celsius"),
    (1.0, 273.15, "as between Kelvin and Celsius"),
)


@dataclass(frozen=True, eq=False)
class Site:
    """The rows of one site.

    Attributes
    ----------
    who : str
        What it is called.
    rows : ndarray
        The rows, n x d, with NaN in gaps.
    place : callable
        Where a row is, in words.
    """

    who: str
    rows: Array
    place: Callable[[int], str]

    __repr__ = brief

    @classmethod
    def of(cls, site: Table | LocalData, who: str) -> Site:
        """From rows as a source gives them, or as a client holds them."""
        if isinstance(site, LocalData):
            rows = site.plain().astype(np.float64)
        else:
            rows = np.asarray(site.values, dtype=np.float64)
        return cls(site.site or who, rows, (site.table if isinstance(site, LocalData) else site).place)

    @classmethod
    def sampled(cls, site: LocalData, who: str, most: int) -> Site:
        """A sample of so many of its rows, from all over it, with the first and the last ones."""
        spread = np.linspace(0, site.n - 1, max(most, 4 * _ENDS)).astype(np.int64)
        ends = np.arange(_ENDS)
        rows = np.unique(np.concatenate([spread, ends, site.n - 1 - ends]).clip(0, site.n - 1))
        values = np.asarray(site.measured.some(rows), dtype=np.float64)
        return cls(site.site or who, values, lambda i: site.table.place(int(rows[i])))

    def first(self, n: int) -> Site:
        """The first n rows of it."""
        return replace(self, rows=self.rows[:n])

    @functools.cached_property
    def marks(self) -> Array:
        """A number for each row, alike for rows that are alike."""
        # 0 and -0 are alike, and so are all NaN, but not in their bits.
        numbers = np.where(np.isnan(self.rows), np.nan, self.rows + 0.0)
        bits = np.ascontiguousarray(numbers).view(np.uint64)
        # Whole numbers end in zero bits, and so do products: higher bits are mixed in before.
        mixed = (bits ^ (bits >> np.uint64(29))) * _odd(self.rows.shape[1])
        return np.asarray(mixed.sum(axis=1, dtype=np.uint64))


@functools.lru_cache(maxsize=1)
def _odd(d: int) -> Array:
    """So many odd numbers, drawn once."""
    drawn = np.random.default_rng(0).integers(2**62, size=d, dtype=np.uint64)
    # Times an odd number, modulo 2^64, different numbers stay different.
    return np.asarray(drawn * np.uint64(2) + np.uint64(1))


@dataclass(frozen=True, eq=False)
class Look:
    """All sites, and what several kinds of faults are read off.

    Attributes
    ----------
    sites : sequence of Site
        The sites.
    columns : sequence of str
        What their columns are called.
    sampled : bool
        Whether there are more rows than those that are looked at.
    """

    sites: Sequence[Site]
    columns: Sequence[str]
    sampled: bool = False

    @classmethod
    def of(cls, tables: Sequence[Table | LocalData], names: Sequence[str] | None) -> Look:
        """A look at the rows of these sites; an empty batch of a stream has none to look at."""
        every = enumerate(tables)
        sites = [site for i, table in every if len((site := Site.of(table, f"client {i}")).rows)]
        return cls.at(sites, names)

    @classmethod
    def at(cls, sites: Sequence[Site], names: Sequence[str] | None, *, sampled: bool = False) -> Look:
        """A look at the rows of these sites."""
        if names is None:
            columns = list(map("column {}".format, range(sites[0].rows.shape[1])))
        else:
            columns = [f"column {str(name).removeprefix('column ')}" for name in names]
        return cls(sites, columns, sampled)

    @functools.cached_property
    def in_order(self) -> list[Array]:
        """Of each site the values of each column, ascending, gaps last."""
        return [np.sort(site.rows, axis=0) for site in self.sites]

    @functools.cached_property
    def seen(self) -> Array:
        """How many values each column has at each site, sites x d."""
        return np.stack([len(values) - np.isnan(values).sum(axis=0) for values in self.in_order])

    @functools.cached_property
    def low(self) -> Array:
        """The smallest value of each column."""
        return np.asarray(np.nanmin([values[0] for values in self.in_order], axis=0))

    @functools.cached_property
    def high(self) -> Array:
        """The largest value of each column."""
        last = np.maximum(self.seen - 1, 0)[:, None]
        columns = zip(self.in_order, last, strict=True)
        highest = [np.take_along_axis(a, n, axis=0)[0] for a, n in columns]
        return np.asarray(np.nanmax(highest, axis=0))

    @functools.cached_property
    def different(self) -> Array:
        """How many different values each column has at each site, sites x d."""
        steps = [(np.diff(values, axis=0) > 0.0).sum(axis=0) for values in self.in_order]
        return np.asarray(np.stack(steps) + (self.seen > 0))

    @functools.cached_property
    def levels(self) -> Array:
        """A tenth, the median and nine tenths of each column at each site, sites x 3 x d."""
        shares = np.multiply.outer([0.1, 0.5, 0.9], np.maximum(self.seen - 1, 0))
        places = np.rint(shares).astype(int)
        ordered = enumerate(self.in_order)
        return np.stack([np.take_along_axis(values, places[:, i], axis=0) for i, values in ordered])

    def title(self, j: int) -> str:
        """What a column is called at the beginning of a sentence."""
        return _capital(self.columns[j])

    def is_whole(self, j: int) -> bool:
        """Whether a column holds whole numbers only."""
        values = self.values(j)
        return bool((values == np.rint(values)).all())

    def where(self, j: int, value: float) -> tuple[Site, int]:
        """The first site and row that have a value in a column."""
        found = ((site, np.flatnonzero(site.rows[:, j] == value)) for site in self.sites)
        return next((site, int(rows[0])) for site, rows in found if len(rows))

    def no_measurement(self, j: int, value: float, why: str) -> str:
        """What is said of a value in a column that stands for a gap, as it seems."""
        return _no_measurement(self, j, value, why)

    def values(self, j: int) -> Array:
        """The values of a column at all sites, one site after the other."""
        parts = zip(self.in_order, self.seen[:, j], strict=True)
        return np.concatenate([values[:count, j] for values, count in parts])


def find(
    tables: Sequence[Table | LocalData], names: Sequence[str] | None = None, *, most: int = MOST
) -> tuple[str, ...]:
    """Hints about these sites, whose columns are the same; of more than `most` entries only about
    their sizes.

    Parameters
    ----------
    tables : sequence of Table or LocalData
        The rows of each site.
    names : sequence of str or None, default=None
        Names of the columns; those of the first site, if left out.
    most : int, default=67108864
        How many entries are looked at.
    """
    shapes = [_shape_of(table) for table in tables]
    found = [_few(tables, shapes)]
    if _can_be_looked_at(shapes, most):
        look = Look.of(tables, tables[0].names if names is None else names)
        found += _of_kinds(look, _OF_ROWS, _OF_COLUMNS)
    elif whole := _can_be_sampled(tables, shapes):
        found += _of_sample(whole, tables[0].names if names is None else names, most)
    return tuple(chain.from_iterable(map(_shorten, filter(None, found))))


def _can_be_sampled(tables: Sequence[Table | LocalData], shapes: Sequence[_Shape]) -> list[LocalData]:
    """The clients, if they hold more dense rows than can be looked at in full; else none."""
    held = [table for table in tables if isinstance(table, LocalData)]
    if len(held) < len(tables) or any(sparse or not n * d for n, d, sparse in shapes):
        return []
    return held


def _of_sample(clients: Sequence[LocalData], names: Sequence[str] | None, most: int) -> list[list[str]]:
    """What a sample of the rows shows, and sums over all of them; of doubles and of constant columns it shows nothing.

    Sums cost a pass over the rows at most. Totals are at the end, so only the last lines are looked at for these.
    """
    entries = sum(client.n * client.d for client in clients)
    sampled = max(most // 8, _SAMPLED)
    share = min(sampled / entries, 1.0)
    if sum(min(client.n, 4 * _ENDS) * client.d for client in clients) > 2 * sampled:
        return []  # so many sites that a few rows of each are too many
    sites = [Site.sampled(client, f"client {i}", int(client.n * share)) for i, client in enumerate(clients)]
    look = Look.at(sites, names, sampled=True)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        totals = list(_totals_by_sums(look, clients))
    if totals:
        look = replace(look, sites=[site.first(len(site.rows) - 2) for site in sites])
    return [totals, *_of_kinds(look, (), _OF_SAMPLES)]


def _totals_by_sums(look: Look, clients: Sequence[LocalData]) -> Iterator[str]:
    """Last lines that are the sum or the mean of all those above them, by the sums of columns."""
    for site, client in zip(look.sites, clients, strict=True):
        observed = client.observed()
        seen = np.asarray(observed.seen, dtype=np.float64)
        total = observed.mean * seen
        rows = site.rows
        for below in (0, 1):
            last, above = rows[len(rows) - 1 - below], rows[: len(rows) - 1 - below]
            left = rows[len(rows) - 1 - below :]
            sums = total - np.nansum(left, axis=0)
            count = seen - np.sum(~np.isnan(left), axis=0)
            if what := _sum_or_mean(last, above, 2 * len(clients), sums=sums, count=count):
                place = _capital(client.table.place(client.n - 1 - below))
                yield f"{place} is the {what} of the lines above it, and no row of its own. Take it out."
                break


def find_in_stream(tables: Sequence[Table]) -> tuple[str, ...]:
    """Hints about rows of a stream: an empty cell is a gap there, and columns may stand still.

    So they are about values that stand for a gap, and lines of totals.
    """
    if not _can_be_looked_at([_shape_of(table) for table in tables], CHEAP):
        return ()
    found = _of_kinds(Look.of(tables, tables[0].names), (_totals,), (_sentinels, _zeros))
    shortened = chain.from_iterable(map(_shorten, filter(None, found)))
    # Only the command line follows streams of files.
    return tuple(
        in_words(hint.replace(_AS_MEAN, ""), lambda advice: f"with --gaps={advice[2][0]}") for hint in shortened
    )


def _can_be_looked_at(shapes: Sequence[_Shape], most: int) -> bool:
    """Whether all rows are dense, and have at least one entry together and at most so many."""
    entries = 0
    for n, d, sparse in shapes:
        if sparse:
            return False
        entries += n * d
    return 0 < entries <= most


def _of_kinds(look: Look, of_rows: Sequence[_Kind], of_columns: Sequence[_Kind]) -> list[list[str]]:
    """The sentences of each kind; those about columns leave out rows named already."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # what cannot be told of a column compares NaN, which is false
        warnings.simplefilter("ignore", RuntimeWarning)
        found = [list(kind(look)) for kind in of_rows]
        if len(look.columns) <= _WIDE:
            if any(found):
                look = Look(_rest(look.sites), look.columns)
            found += [list(kind(look)) for kind in of_columns]
    return found


def _shape_of(table: Table | LocalData) -> _Shape:
    """Rows and columns of a site, and whether it is a sparse matrix, whose zeros nobody wrote."""
    if isinstance(table, LocalData):
        return table.n, table.d, table.sparse
    return len(table), table.shape[1], hasattr(table.values, "tocsr")


def _shorten(sentences: list[str]) -> list[str]:
    beyond = len(sentences) - _SAID
    if beyond <= 0:
        return sentences
    first = sentences[_SAID - 1]
    more = labels.count(beyond, "more hint")
    return [*sentences[: _SAID - 1], f"{first} And {more} of this kind."]


def _few(tables: Sequence[Table | LocalData], shapes: Sequence[_Shape]) -> list[str]:
    """Sites of so few rows that their sums are nearly the rows themselves."""
    few: list[str] = []
    for i, (table, (n, _, _)) in enumerate(zip(tables, shapes, strict=True)):
        if n <= _FEW:
            who = table.site or f"client {i}"
            few.append(f"{who} has {labels.count(n, 'row')}")
    if not few or len(tables) < 2:
        return []
    if len(few) > _SAID:
        more = len(few) - _SAID + 1
        few = [*few[: _SAID - 1], f"{more} more have as few"]
    return [f"{_capital(', '.join(few))}: what they send is nearly the rows themselves. Join them to other sites."]


def _empty(look: Look) -> Iterator[str]:
    """Rows without any value, which become patients of nothing but means; and columns that a site does not have."""
    for site, seen in zip(look.sites, look.seen, strict=True):
        n = len(site.rows)
        if (seen == n).all():
            continue
        rows = np.flatnonzero(np.isnan(site.rows).all(axis=1))
        if len(rows):
            what = f"{_capital(site.place(int(rows[0])))} holds no value"
            if len(rows) > 1:
                what += f", and so do {len(rows) - 1} more"
            yield f"{what}. Take it out: it would become a row of means."
        missing = np.flatnonzero(seen == 0).tolist()
        if n <= _FEW or len(missing) == len(look.columns):
            continue
        for j in missing:
            yield f"{_capital(look.columns[j])} has no value at {site.who}. Leave it out, or leave out the site."


def _sentinels(look: Look) -> Iterator[str]:
    """Values such as -999, further from all others of their column than these are apart."""
    for j in np.flatnonzero(np.isin(look.low, _CODES) | np.isin(look.high, _CODES)).tolist():
        for code in _codes_of(np.sort(look.values(j))):
            yield _no_measurement(look, j, code, "far from all other values")


def _no_measurement(look: Look, j: int, value: float, why: str) -> str:
    """What is said of a value in a column that stands for a gap, as it seems."""
    where = [(site, np.flatnonzero(site.rows[:, j] == value)) for site in look.sites]
    site, rows = next((site, rows) for site, rows in where if len(rows))
    first = site.place(int(rows[0]))
    count = labels.count(sum(len(rows) for _, rows in where), "time")
    if look.sampled:
        count = f"at least {count}"
    what = f"{_capital(look.columns[j])} holds {value:g} {count}, {why}"
    return f"{what}: the first is {first}. If it stands for a gap, read the data {shapes.gaps_of(value)}{_AS_MEAN}."


def _codes_of(values: Array) -> list[float]:
    """Those at the ends of sorted values that stand far from the rest."""
    codes: list[float] = []
    # Each end twice: beside one code there may be another.
    for end in (0, -1, 0, -1):
        code = values[end]
        rest = values[values != code]
        if code in _CODES and len(rest) >= _LEAST and _is_far(code, rest, again=len(values) - len(rest) > 1):
            codes.append(float(code))
            values = rest
    return codes


def _is_far(code: float, rest: Array, *, again: bool) -> bool:
    """Whether a code stands so far from the rest, which is sorted, that it is none of it; `again`: more than once."""
    gap = min(abs(rest[0] - code), abs(rest[-1] - code))
    spread = rest[-1] - rest[0]
    alone = code < 0.0 <= rest[0]
    large = abs(code) > _OFTEN
    if gap > max(spread, 1.0):
        far = again or alone or large
    else:  # nearer only as the one negative value, if it is a large one or there again
        lonely = again and gap > max(_NEARER * spread, 1.0)
        far = alone and (large or lonely)
    # of few kinds -1 is one of them
    return bool(far) and (code != -1.0 or len(np.unique(rest)) >= _MANY)


def _zeros(look: Look) -> Iterator[str]:
    """Zeros in a column whose other values lie together, far from 0: no blood pressure is 0."""
    for j in np.flatnonzero(look.low == 0.0).tolist():
        values = look.values(j)
        rest = values[values != 0.0]
        if len(rest) < max(2 * _LEAST, len(values) / 2) or len(np.unique(rest)) < _MANY:
            continue
        lower, middle, upper = np.quantile(rest, [0.25, 0.5, 0.75])
        if rest.min() > max(0.3 * middle, upper - lower):
            yield _no_measurement(look, j, 0.0, f"and no other value below {rest.min():g}")


def _dates(look: Look) -> Iterator[str]:
    """Columns of days as numbers: 20240131, Excel's days since 1900, seconds since 1970."""
    least, most, columns = look.low, look.high, look.columns
    varies = (most > least) & (look.seen.sum(axis=0) >= _LEAST)
    for j in np.flatnonzero(varies & (least >= 18000101) & (most <= 21001231)).tolist():
        values = np.concatenate([site.rows[:, j] for site in look.sites])
        values = values[~np.isnan(values)]
        month, day = values // 100 % 100, values % 100
        if (values == np.rint(values)).all() and ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all():
            yield _date(columns[j], f"dates such as {values[0]:.0f}")
    for j in np.flatnonzero(varies & (least >= 15000) & (most <= 60000)).tolist():
        if _TIME.search(columns[j].removeprefix("column ")):
            yield _date(columns[j], "days as Excel counts them")
    for j in np.flatnonzero(varies & (least >= 9.4e8) & (most <= 2.2e9)).tolist():
        values = look.values(j)
        if (values == np.rint(values)).all():
            yield _date(columns[j], "times in seconds since 1970")


def _date(column: str, what: str) -> str:
    return f"{_capital(column)} holds {what}, as numbers. Leave it out: name the others with {_LISTED}."


def _twins(look: Look) -> Iterator[str]:
    """Columns that are the same, or the same in another unit."""
    measures = np.flatnonzero(look.different.max(axis=0) > _MANY)
    if len(measures) < 2:
        return
    rows = np.concatenate([site.rows[:, measures] for site in look.sites])
    few = rows[:: -(-len(rows) // 2000)]
    centred = few - few.mean(axis=0)
    scaled = centred / np.sqrt((centred**2).sum(axis=0))
    alike = np.abs(scaled.T @ scaled) > 1.0 - 1e-12
    for i, j in np.argwhere(np.triu(alike, 1)).tolist():
        what = "is the same, in another unit, as"
        if np.array_equal(rows[:, i], rows[:, j]):
            what = "holds the same values as"
        one = look.columns[measures[j]]
        other = look.columns[measures[i]]
        yield f"{_capital(one)} {what} {other}. Leave one of them out: together they count twice."


def _totals(look: Look) -> Iterator[str]:
    """A last line that is the sum or the mean of those above, as spreadsheets have it."""
    for i, (n, what) in _lines_of_totals(look.sites).items():
        place = _capital(look.sites[i].place(n))
        yield f"{place} is the {what} of the lines above it, and no row of its own. Take it out."


def _lines_of_totals(sites: Sequence[Site]) -> dict[int, tuple[int, str]]:
    """By the site how many lines stand above its totals', and what it is."""
    found: dict[int, tuple[int, str]] = {}
    # Below a line of sums there may be one of means: then the last but one is looked at too.
    ends = [
        (i, site.rows[: len(site.rows) - below])
        for below in (0, 1)
        for i, site in enumerate(sites)
        if len(site.rows) - below > _LEAST
    ]
    if not ends:
        return found
    whose, tables = zip(*ends, strict=True)
    # A rough look at all sites at once, as there may be a thousand; a close one at the few left.
    for k in np.flatnonzero(_look_like_totals(tables)).tolist():
        i, rows = whose[k], tables[k]
        if what := _sum_or_mean(rows[-1], rows[:-1], 2 * len(sites)):
            found[i] = (len(rows) - 1, what)
    return dict(sorted(found.items()))


def _rest(sites: Sequence[Site]) -> list[Site]:
    """The sites less the lines and doubles named already, which would hide other faults."""
    ends = _lines_of_totals(sites)
    # So that of sites which are alike the first one stays.
    last_first = reversed([*enumerate(sites)])
    alone = {site.marks.tobytes(): i for i, site in last_first}
    places = sorted(alone.values())
    return [sites[i].first(ends[i][0]) if i in ends else sites[i] for i in places]


def _look_like_totals(tables: Sequence[Array]) -> Array:
    """Whether the last line of each has a number that is the sum or mean of those above it."""
    last = np.stack([rows[-1] for rows in tables])
    above = [rows[:-1] for rows in tables]
    total = np.stack([np.nansum(rows, axis=0) for rows in above])
    counts = [np.sum(~np.isnan(rows), axis=0) for rows in above]
    mean = total / np.maximum(counts, 1)
    sizes = np.array(list(map(len, tables)))[:, None]
    first = np.stack([rows[:_LEAST] for rows in tables])
    rounding = _rounding(last) + _off(first, sizes)
    slack = rounding + 1e-8 * np.abs(total)
    near = (np.abs(last - total) <= slack) | (np.abs(last - mean) <= slack)
    return np.asarray(near.any(axis=1))


def _sum_or_mean(
    last: Array, above: Array, several: int, *, sums: Array | None = None, count: Array | None = None
) -> str:
    """Whether a line is the sum or the mean of those above it; `above` may be a sample, with the `sums` of all."""
    n = len(above) if count is None else np.maximum(count, 1.0)
    off = _off(above, n)
    close = _rounding(last) / 2.0 * (1.0 + 1e-9)
    varies = np.nanmax(above, axis=0) > np.nanmin(above, axis=0)
    there = ~np.isnan(last) & varies
    total, mean = np.nansum(above, axis=0), np.nanmean(above, axis=0)
    if sums is not None:
        total, mean = sums, sums / n
    largest = np.nanmax(np.abs(above), axis=0)
    far = there & (np.abs(total) > 1.5 * largest)
    if far.any() and (np.abs(last - total) <= close + off + 1e-9 * np.abs(total))[far].all():
        return "sum"
    close += off / n
    if there.any() and (np.abs(last - mean) <= close + 1e-12 * np.abs(mean))[there].all():
        # Columns that follow from others hit their means together: that is one accident.
        spread = _spread_given_others(above[:, there])
        # A normal value lies so close to a place with 2 close / (sqrt(2 pi) spread) at most.
        chance = np.prod(np.minimum(0.8 * close[there] / spread, 1.0))
        if chance * several < _RARE:
            return "mean"
    return ""


def _off(rows: Array, n: Any) -> Array:
    """How far the sum of n such numbers may lie from that before rounding, by column.

    Whole numbers are counts and codes, which nobody has rounded.
    """
    steps = _rounding(rows).min(axis=-2)
    # Rounding has the deviation steps / sqrt(12), and a sum sqrt(n) times that: four of these.
    rounded = 4.0 * np.sqrt(n / 12.0) * steps
    return np.where(steps < 1.0, rounded, 0.0)


def _rounding(values: Array) -> Array:
    """The last decimal place of each number: .01 of 3.14, 1 of 7."""
    steps, sizes = np.full(values.shape, 1e-12), np.abs(values)
    # Arrays of this size are written eleven times, so in the same memory.
    rest, slack = np.empty((2, *values.shape), dtype=np.result_type(values, 1.0))
    for places in range(10, -1, -1):
        step = 10.0**-places
        np.rint(np.divide(values, step, out=rest), out=rest)
        rest *= step
        np.abs(np.subtract(values, rest, out=rest), out=rest)
        np.maximum(sizes, step, out=slack)
        slack *= 1e-9
        np.copyto(steps, step, where=rest <= slack)
    return steps


def _spread_given_others(rows: Array) -> Array:
    """The deviation of each column about what those before it say of it; 0 where they say all."""
    whole = rows[~np.isnan(rows).any(axis=1)][:, : 2**6]
    if len(whole) <= whole.shape[1] + 1:
        return np.zeros(rows.shape[1])
    upper = np.linalg.qr(whole - whole.mean(axis=0), mode="r")
    spread = np.abs(np.diag(upper)) / np.sqrt(len(whole) - 1)
    none = np.zeros(rows.shape[1] - len(spread))
    return np.concatenate([spread, none])


def _doubles(look: Look) -> Iterator[str]:
    """The same rows at two sites, or twice at one."""
    sites = look.sites
    every = [site.marks for site in sites]
    whose = np.repeat(np.arange(len(sites)), list(map(len, every)))
    marks = np.concatenate(every)
    # Stable, as a pair has to name its first site first.
    order = np.argsort(marks, kind="stable")
    ordered = marks[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(again):
        return
    looked_at = zip(sites, look.different, strict=True)
    telling = [_tells_rows_apart(site, different) for site, different in looked_at]
    owners = whose[order]
    pairs = Counter(zip(owners[again].tolist(), owners[again + 1].tolist(), strict=True))
    for (i, j), count in pairs.items():
        one, other = sites[i], sites[j]
        if i != j and np.array_equal(one.marks, other.marks) and len(np.unique(one.marks)) > _FEW:
            yield f"{other.who} holds the same rows as {one.who}. Leave one of them out."
        elif telling[i] and telling[j] and count >= max(_FEW, 0.05 * min(len(one.rows), len(other.rows))):
            row = int(np.flatnonzero(np.isin(other.marks, one.marks))[0])
            where = f"of {other.who} are rows of {one.who} as well, and are"
            if i == j:
                _, first = np.unique(one.marks, return_index=True)
                row = int(np.setdiff1d(np.arange(len(one.marks)), first)[0])
                where = f"of {other.who} are"
            yield f"{labels.count(count, 'row')} {where} there twice: the first is {other.place(row)}. Take them out."


def _tells_rows_apart(site: Site, different: Array) -> bool:
    """Whether two rows of a site are hardly alike by accident, by how values come again.

    Rows that are there twice are looked at once: they would make every value come again.
    """
    measures = np.flatnonzero(different > _MANY)
    if len(measures) < 2:
        return False
    _, once = np.unique(site.marks, return_index=True)
    # The logarithm of how many pairs of rows independent columns make alike by accident.
    again = 2.0 * np.log(max(len(once), 2))
    for j in measures[:64]:
        values = site.rows[once, j]
        _, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        # of pairs of two rows, and one pair more, as none may have been alike yet
        alike = np.sum(counts * (counts - 1.0)) / 2.0 + 1.0
        pairs = counts.sum() * (counts.sum() - 1.0) / 2.0 + 1.0
        again += float(np.log(alike / pairs))
    return bool(again < np.log(0.01))


def _units(look: Look) -> Iterator[str]:
    """Columns that lie at one site where those of all the others would lie in another unit."""
    measured = [i for i, values in enumerate(look.in_order) if len(values) >= _LEAST]
    if len(measured) < 2:
        return
    seen = look.seen[measured]
    shares = np.multiply.outer([0.1, 0.5, 0.9], np.maximum(seen - 1, 0))
    places = np.rint(shares).astype(int)
    numbered = enumerate(measured)
    levels = np.stack([np.take_along_axis(look.in_order[i], places[:, k], axis=0) for k, i in numbered])
    several = look.different[measured] > _LEAST
    whose = [look.sites[i].who for i in measured]
    yield from _odd_units(whose, levels, seen * several, look.columns, middle="median")


def of_moments(sites: Sequence[str], rows: Array, means: Array, deviations: Array, columns: Sequence[str]) -> list[str]:
    """Columns that lie at one site where those of the others would lie in another unit, by means and deviations alone.

    For who does not see the rows: a tenth and nine tenths are taken to lie as those of normal
    values do.
    """
    if len(sites) < 2 or len(columns) > _WIDE:
        return []
    # a site without values of a column, or with a single one, is no other to compare by
    deviations = np.where(deviations > 0.0, deviations, np.nan)
    tenths = np.array([-_TENTH, 0.0, _TENTH])
    levels = means[:, None] + tenths[:, None] * deviations[:, None]
    with warnings.catch_warnings():  # where no other site has values there is no median of theirs
        warnings.simplefilter("ignore", RuntimeWarning)
        seen = rows[:, None] * (deviations > 0.0)
        return _shorten(list(_odd_units(sites, levels, seen, columns, middle="mean")))


def _odd_units(
    sites: Sequence[str], levels: Array, seen: Array, columns: Sequence[str], *, middle: str
) -> Iterator[str]:
    """Of the levels of all sites (sites x 3 x d), of one in another unit; `seen`: of how many values, 0 for few."""
    alone = _alone(levels) & (seen > 0)
    # of the one and of all others, relative to the root of one value's
    others_seen = np.maximum(seen.sum(axis=0) - seen, 1)
    error = np.sqrt(1.0 / np.maximum(seen, 1) + 1.0 / others_seen)
    yield from _two_units(sites, levels, seen, columns, middle=middle)
    others, looked = "the other sites", np.flatnonzero(alone.any(axis=1)).tolist()
    if len(sites) == 2:  # either may be the odd one: one sentence is enough
        others, looked = sites[1], [i for i in looked if i == 0]
    for i in looked:
        usual = _of_others(levels, i)
        steady = usual[2] > usual[0]
        columns_alone = np.flatnonzero(alone[i] & steady).tolist()
        units = {j: _unit(levels[i, :, j], usual[:, j], error[i, j]) for j in columns_alone}
        odd = {j: words for j, words in units.items() if words}
        if len(odd) > max(2, len(columns) // 4) and len(set(odd.values())) > 1:
            continue  # other people, who differ in most of what is measured
        for j, words in odd.items():
            here = levels[i, 1, j]
            there = usual[1, j]
            place = f"its {middle} is {here:.4g}, against {there:.4g} at {others}, {words}"
            yield f"{_capital(columns[j])} looks as if {sites[i]} had other units: {place}. Convert it."


def _two_units(
    sites: Sequence[str], levels: Array, seen: Array, columns: Sequence[str], *, middle: str
) -> Iterator[str]:
    """Columns in which half of four sites or more lie where the other half would lie in another known unit."""
    if not 4 <= len(levels) <= _SITES:
        return
    pairs = _pairs_apart(levels)
    for j in range(levels.shape[2]):
        here = np.flatnonzero(seen[:, j] > 0)
        order = here[np.argsort(levels[here, 1, j], kind="stable")]
        low, high = order[: len(order) // 2], order[len(order) // 2 :]
        if len(low) < 2 or len(low) != len(high) or not pairs[np.ix_(low, high)][:, :, j].all():
            continue
        if pairs[np.ix_(low, low)][:, :, j].any() or pairs[np.ix_(high, high)][:, :, j].any():
            continue
        below, above = (np.nanmedian(levels[side][:, :, j], axis=0) for side in (low, high))
        error = float(np.sqrt(sum(1.0 / seen[side, j].sum() for side in (low, high))))
        words = _unit(above, below, error)
        if above[2] > above[0] and below[2] > below[0] and words and "about" not in words:
            names = [labels.series([sites[i] for i in sorted(side)]) for side in (low, high)]
            yield (
                f"{_capital(columns[j])} looks as if {names[0]} had other units than {names[1]}: its {middle} is "
                f"{below[1]:.4g} there and {above[1]:.4g} here, {words}. Convert one half."
            )


def _alone(levels: Array) -> Array:
    """Which columns lie at a site apart from most sites, which lie together, sites x d.

    The sites that lie apart are fewer than half, so the median over all sites is that of the others:
    two sites in other units do not hide each other.
    """
    usual = np.nanmedian(levels, axis=0)
    apart = (levels[:, 0] > usual[2]) | (levels[:, 2] < usual[0])
    here = ~np.isnan(levels[:, 1])
    if len(levels) > _SITES:
        return np.asarray(apart & (2 * apart.sum(axis=0) < here.sum(axis=0)))
    if len(levels) == 2:
        return np.asarray(_pairs_apart(levels).any(axis=0) & here.all(axis=0) & np.ones_like(apart))
    pairs = _pairs_apart(levels)
    most = here & ~apart
    # the others lie together, and each odd site lies apart from all of them
    together = ~(pairs & most[:, None] & most[None, :]).any(axis=(0, 1))
    from_all = (pairs | ~most[None, :]).all(axis=1)
    few = (2 * apart.sum(axis=0) < here.sum(axis=0)) & (here.sum(axis=0) > 2)
    return np.asarray(apart & from_all & together & few)


def _pairs_apart(levels: Array) -> Array:
    """Which columns of two sites lie apart, sites x sites x d: a tenth of the one above nine tenths of the other."""
    above = levels[:, None, 0] > levels[None, :, 2]
    return np.asarray(above | above.swapaxes(0, 1))


def _of_others(levels: Array, i: int) -> Array:
    """The levels of the sites but one; of many sites those of all, which one does not change."""
    if len(levels) <= _SITES:
        levels = np.delete(levels, i, axis=0)
    return np.asarray(np.nanmedian(levels, axis=0))


def _unit(here: Array, usual: Array, error: float) -> str:
    """Which unit makes the one of the other, in words; "" for none.

    Both are of few values, whose median and spread are off by chance: by `error`, relative to the
    spread of one.
    """
    best, words = _APART + _APART_BY_CHANCE * error, ""
    wider = _WIDER * np.exp(_WIDER_BY_CHANCE * error)
    for factor, shift, what in _UNITS:
        for to, since in ((here, usual), (usual, here)):
            as_to = since * factor + shift
            span = as_to[2] - as_to[0]
            off = abs(to[1] - as_to[1]) / span
            wide = (to[2] - to[0]) / span
            if shift:
                likely = abs(since[1]) < _CELSIUS
            else:
                likely = min(here[0], usual[0]) > 0.0
            if likely and off < best and 1.0 / wider < wide < wider:
                best, words = off, what
    low, high = sorted((here, usual), key=lambda levels: float(levels[1]))
    if not words and low[0] > 0.0 and high[0] > _FAR * low[2]:
        return f"a factor of about {high[1] / low[1]:.0f}"
    return words


def _beside_others(look: Look) -> Iterator[str]:
    """Columns whose sign is turned at one site, and columns that are swapped there."""
    if len(look.sites) > _SITES:
        return
    whose = [site.who for site in look.sites]
    yield from shapes.turned_signs(whose, look.levels, look.seen, look.columns)
    yield from shapes.swapped(whose, look.levels, look.seen, look.columns)


def _constants(look: Look) -> Iterator[str]:
    """Columns of one value at a site that others hardly have: a default, another meaning."""
    if len(look.sites) < 2:
        return
    still = (look.different == 1) & (look.seen >= _LEAST)
    for i in np.flatnonzero(still.any(axis=1)).tolist():
        columns = np.flatnonzero(still[i]).tolist()
        odd = [j for j in columns if _seldom_elsewhere(look, i, j)]
        if len(odd) > max(2, len(look.columns) // 4):
            continue  # rows of another kind, such as those of one district
        for j in odd:
            what = f"{_capital(look.columns[j])} is {look.in_order[i][0, j]:g} in all rows of {look.sites[i].who}"
            yield f"{what}, and hardly ever elsewhere. Check that file."


def _seldom_elsewhere(look: Look, i: int, j: int) -> bool:
    """Whether the one value of a column at a site is so rare at others that it is no accident."""
    elsewhere = [other.rows[:, j] for k, other in enumerate(look.sites) if k != i]
    others = np.concatenate(elsewhere)
    others = others[~np.isnan(others)]
    if not len(others) or others.min() == others.max():
        return False
    share = float((others == look.in_order[i][0, j]).mean())
    chance = float(look.seen[i, j]) * np.log(max(share, 1e-300))
    return share <= 0.5 and chance < np.log(1e-6)


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


_Kind = Callable[[Look], Iterable[str]]
_Shape = tuple[int, int, bool]  # rows, columns, whether a sparse matrix
_OF_ROWS: Final[tuple[_Kind, ...]] = (
    *(_empty, _totals, shapes.lines_of_statistics, shapes.totals_anywhere, _doubles, shapes.repeated),
)
_OF_COLUMNS: Final[tuple[_Kind, ...]] = (
    *(_sentinels, shapes.fills, _zeros, shapes.shifted_points, _twins, _dates, shapes.dates, shapes.codes),
    *(_units, _beside_others, shapes.other_codes, _constants),
)
# What a sample shows as all rows do: no column is said to be constant, and no row to be there twice.
_OF_SAMPLES: Final[tuple[_Kind, ...]] = tuple(
    kind for kind in _OF_COLUMNS if kind not in (_constants, shapes.other_codes)
)
