"""Faults: what files hold by mistake, and a PCA takes for measurements without a word.

A value that stands for a gap, a line of totals, the same rows twice, a date in digits, one site in
other units: each leaves a table of finite numbers, and components that are wrong. Here they are
looked for where rows are at hand, and each becomes a sentence that names line or column. They are
hints: only the owner of the rows knows whether it is one. So each kind is bounded by what ordinary
rows do by accident, as far as that can be said.

`find` goes through the kinds over all sites together: those of this file, of `missing`, `totals`, `doubles`, `units`
and `shapes`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.options import in_words, option
from flower_pca.hints import shapes
from flower_pca.hints.doubles import doubles
from flower_pca.hints.missing import sentinels, zeros
from flower_pca.hints.sentences import AS_MEAN, SAID, capital, shorten
from flower_pca.hints.sites import ENDS, FEW, LEAST, MANY, Look, Site
from flower_pca.hints.totals import lines_of_totals, totals, totals_by_sums
from flower_pca.hints.units import SITES, WIDE, units
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

MOST: Final = 2**26  # entries of all sites that are looked at in full
CHEAP: Final = 2**21  # The same, if nobody has asked for a look.
BARE: Final = 2**18  # The same, for arrays without names, which programs pass over and over again.
_SAMPLED: Final = 8  # A sample of more has so many times fewer entries, because it is copied some ten times.
_LISTED: Final = option("columns", ["..."])
_TIME: Final = re.compile(
    r"dat(e|um)|time|zeit|\btag\b|\bday\b|birth|geburt|admission|admitted|aufnahme|dob", re.IGNORECASE
)
_FROM, _UNTIL = 32_874, 51_136  # 1990 and 2040 as Excel counts days
_DAYS: Final = 50  # different ones: of so many other numbers, one in 20 million lots avoids two days of the week


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
    return tuple(chain.from_iterable(map(shorten, filter(None, found))))


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
    sampled = most // _SAMPLED
    share = min(sampled / entries, 1.0)
    if sum(min(client.n, 4 * ENDS) * client.d for client in clients) > 2 * sampled:
        return []  # With so many sites, a few rows of each are too many.
    sites = [Site.sampled(client, f"client {i}", int(client.n * share)) for i, client in enumerate(clients)]
    look = Look.at(sites, names, sampled=True)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ends = list(totals_by_sums(look, clients))
    if ends:
        look = replace(look, sites=[site.first(len(site.rows) - 2) for site in sites])
    return [ends, *_of_kinds(look, (), _OF_SAMPLES)]


def find_in_stream(tables: Sequence[Table]) -> tuple[str, ...]:
    """Hints about rows of a stream: an empty cell is a gap there, and columns may stand still.

    So they are about values that stand for a gap, and lines of totals.
    """
    if not _can_be_looked_at([_shape_of(table) for table in tables], CHEAP):
        return ()
    found = _of_kinds(Look.of(tables, tables[0].names), (totals,), (sentinels, zeros))
    shortened = chain.from_iterable(map(shorten, filter(None, found)))
    # Only the command line follows streams of files.
    return tuple(
        in_words(hint.replace(AS_MEAN, ""), lambda advice: f"with --gaps={advice[2][0]}") for hint in shortened
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
        if len(look.columns) <= WIDE:
            if any(found):
                look = Look(_rest(look.sites), look.columns)
            found += [list(kind(look)) for kind in of_columns]
    return found


def _shape_of(table: Table | LocalData) -> _Shape:
    """Rows and columns of a site, and whether it is a sparse matrix, whose zeros nobody wrote."""
    if isinstance(table, LocalData):
        return table.n, table.d, table.sparse
    return len(table), table.shape[1], hasattr(table.values, "tocsr")


def _few(tables: Sequence[Table | LocalData], shapes: Sequence[_Shape]) -> list[str]:
    """Sites of so few rows that their sums are nearly the rows themselves."""
    few: list[str] = []
    for i, (table, (n, _, _)) in enumerate(zip(tables, shapes, strict=True)):
        if n <= FEW:
            who = table.site or f"client {i}"
            few.append(f"{who} has {labels.count(n, 'row')}")
    if not few or len(tables) < 2:
        return []
    if len(few) > SAID:
        more = len(few) - SAID + 1
        few = [*few[: SAID - 1], f"{more} more have as few"]
    return [f"{capital(', '.join(few))}: what they send is nearly the rows themselves. Join them to other sites."]


def _empty(look: Look) -> Iterator[str]:
    """Rows without any value, which become patients of nothing but means; and columns that a site does not have."""
    for site, seen in zip(look.sites, look.seen, strict=True):
        n = len(site.rows)
        if (seen == n).all():
            continue
        rows = np.flatnonzero(np.isnan(site.rows).all(axis=1))
        if len(rows):
            what = f"{capital(site.place(int(rows[0])))} holds no value"
            if len(rows) > 1:
                what += f", and so do {len(rows) - 1} more"
            yield f"{what}. Take it out: it would become a row of means."
        missing = np.flatnonzero(seen == 0).tolist()
        if n <= FEW or len(missing) == len(look.columns):
            continue
        for j in missing:
            yield f"{capital(look.columns[j])} has no value at {site.who}. Leave it out, or leave out the site."


def _dates(look: Look) -> Iterator[str]:
    """Columns of days as numbers: 20240131, Excel's days since 1900, seconds since 1970."""
    least, most, columns = look.low, look.high, look.columns
    varies = (most > least) & (look.seen.sum(axis=0) >= LEAST)
    for j in np.flatnonzero(varies & (least >= 18000101) & (most <= 21001231)).tolist():
        values = np.concatenate([site.rows[:, j] for site in look.sites])
        values = values[~np.isnan(values)]
        month, day = values // 100 % 100, values % 100
        if (values == np.rint(values)).all() and ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all():
            yield _date(columns[j], f"dates such as {values[0]:.0f}")
    for j in np.flatnonzero(varies & (least >= 15000) & (most <= 60000)).tolist():
        if _TIME.search(columns[j].removeprefix("column ")) or _are_working_days(look.values(j)):
            yield _date(columns[j], "days as Excel counts them")
    for j in np.flatnonzero(varies & (least >= 9.4e8) & (most <= 2.2e9)).tolist():
        values = look.values(j)
        if (values == np.rint(values)).all():
            yield _date(columns[j], "times in seconds since 1970")


def _are_working_days(values: Array) -> bool:
    """Whether whole numbers are days from 1990 to 2039 as Excel counts them, none of them a Saturday or a Sunday."""
    days = np.unique(values)
    among = len(days) >= _DAYS and days[0] >= _FROM and days[-1] < _UNTIL and bool((days == np.rint(days)).all())
    return among and bool((days % 7 > 1).all())


def _date(column: str, what: str) -> str:
    return f"{capital(column)} holds {what}, as numbers. Leave it out: name the others with {_LISTED}."


def _twins(look: Look) -> Iterator[str]:
    """Columns that are the same, or the same in another unit."""
    measures = np.flatnonzero(look.different.max(axis=0) > MANY)
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
        yield f"{capital(one)} {what} {other}. Leave one of them out: together they count twice."


def _rest(sites: Sequence[Site]) -> list[Site]:
    """The sites less the lines and doubles named already, which would hide other faults."""
    ends = lines_of_totals(sites)
    # So that of sites which are alike the first one stays.
    last_first = reversed([*enumerate(sites)])
    alone = {site.marks.tobytes(): i for i, site in last_first}
    places = sorted(alone.values())
    return [sites[i].first(ends[i][0]) if i in ends else sites[i] for i in places]


def _beside_others(look: Look) -> Iterator[str]:
    """Columns whose sign is turned at one site, and columns that are swapped there."""
    if len(look.sites) > SITES:
        return
    whose = [site.who for site in look.sites]
    yield from shapes.turned_signs(whose, look.levels, look.seen, look.columns)
    yield from shapes.swapped(whose, look.levels, look.seen, look.columns)


def _constants(look: Look) -> Iterator[str]:
    """Columns of one value at a site that others hardly have: a default, another meaning."""
    if len(look.sites) < 2:
        return
    still = (look.different == 1) & (look.seen >= LEAST)
    for i in np.flatnonzero(still.any(axis=1)).tolist():
        columns = np.flatnonzero(still[i]).tolist()
        odd = [j for j in columns if _seldom_elsewhere(look, i, j)]
        if len(odd) > max(2, len(look.columns) // 4):
            continue  # rows of another kind, such as those of one district
        for j in odd:
            what = f"{capital(look.columns[j])} is {look.in_order[i][0, j]:g} in all rows of {look.sites[i].who}"
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


_Kind = Callable[[Look], Iterable[str]]
_Shape = tuple[int, int, bool]  # rows, columns, whether a sparse matrix
_OF_ROWS: Final[tuple[_Kind, ...]] = (
    *(_empty, totals, shapes.lines_of_statistics, shapes.totals_anywhere, doubles, shapes.repeated),
)
_OF_COLUMNS: Final[tuple[_Kind, ...]] = (
    *(sentinels, shapes.fills, zeros, shapes.shifted_points, _twins, _dates, shapes.dates, shapes.codes),
    *(units, _beside_others, shapes.other_codes, _constants),
)
# What a sample shows as all rows do: no column is said to be constant, and no row to be there twice.
_OF_SAMPLES: Final[tuple[_Kind, ...]] = tuple(
    kind for kind in _OF_COLUMNS if kind not in (_constants, shapes.other_codes)
)
