"""Find mistakes in files that a PCA would treat as measurements without raising an error.

Examples are a number that stands for a missing value, a line of totals, rows that occur twice, dates stored as numbers,
and a site that measures in other units. Each of these gives a table of finite numbers, and wrong components. If the
rows can be read, each suspicion becomes a hint that names the line or the column. Only the owner of the rows can decide
whether a hint is right, so the thresholds of each kind are chosen such that ordinary rows seldom cause a hint.

`find_hints` looks for mistakes of all kinds at all sites together: the kinds of this module and of `missing`, `totals`,
`doubles`, `units` and `shapes`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.options import option, with_advice_written
from flower_pca.hints import shapes
from flower_pca.hints.doubles import doubles
from flower_pca.hints.large import (
    ROWS,
    LargeTables,
    Preview,
    SeenRows,
    columns_with_few_values,
    columns_with_odd_extremes,
    passes_alone,
)
from flower_pca.hints.missing import codes_for_missing, empty_rows_and_columns, suspicious_zeros
from flower_pca.hints.sentences import AS_MEAN, SAID, not_looked_for, shorten_hints
from flower_pca.hints.sites import ENDS, FEW, LEAST, MANY, AllSites, Site
from flower_pca.hints.totals import SumsOfSites, lines_of_totals, lines_of_totals_hints, totals_by_sums
from flower_pca.hints.units import SITES, WIDE, columns_in_other_units, mixed_units
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

MOST: Final = 2**26  # All rows are examined if they have at most this many entries.
CHEAP: Final = 2**21  # maximum number of entries that are examined if the user has not asked for hints
# This is the maximum number for arrays without column names, because programs may pass such arrays many times.
BARE: Final = 2**18
# A sample of larger data has at most 1/16 of the maximum number of entries, because the sample is copied ten times.
_SAMPLED: Final = 16
_LISTED: Final = option("columns", ["..."])
_TIME: Final = re.compile(
    r"dat(e|um)|time|zeit|\btag\b|\bday\b|birth|geburt|admission|admitted|aufnahme|dob", re.IGNORECASE
)
_FROM, _UNTIL = 32_874, 51_136  # the first days of 1990 and of 2040 in Excel's numbering of days
# The probability that this many different numbers all avoid weekends is 1 in 20 million if the numbers are not days.
_DAYS: Final = 50


def most_unasked(names: Sequence[str] | None) -> int:
    """Return the maximum number of entries that are examined if the user has not asked for hints."""
    return BARE if names is None else CHEAP


def find_hints(
    tables: Sequence[Table | LocalData], names: Sequence[str] | None = None, *, most: int = MOST
) -> tuple[str, ...]:
    """Return hints about the rows of these sites, which have the same columns.

    If the rows have more than `most` entries, a sample and one pass over all rows raise suspicions, and suspicious
    columns are examined in full: see `large`. This needs clients that hold all rows, and dense rows. The last hint says
    what was not looked for.

    Parameters
    ----------
    tables : sequence of Table or LocalData
        The rows of each site.
    names : sequence of str or None, default=None
        Names of the columns. By default, the names at the first site.
    most : int, default=67108864
        The maximum number of entries for which all rows are examined.
    """
    shapes = [_shape_of(table) for table in tables]
    found = [_hint_of_few_rows(tables, shapes)]
    if _can_be_looked_at(shapes, most):
        data = AllSites.of_tables(tables, tables[0].names if names is None else names)
        found += _hints_by_kind(data, _OF_ROWS, _OF_COLUMNS)
    elif whole := _clients_to_sample(tables, shapes):
        some, left_out = _hints_of_large_tables(whole, tables[0].names if names is None else names, most)
        found += [*some, not_looked_for(left_out)]
    else:
        found.append(not_looked_for(_left_out_of_all(tables, shapes)))
    return tuple(chain.from_iterable(map(shorten_hints, filter(None, found))))


def _left_out_of_all(tables: Sequence[Table | LocalData], shapes: Sequence[_Shape]) -> dict[str, str]:
    """Return what was not looked for in rows of which not even a sample was examined, with the reason."""
    if not any(n * d for n, d, _ in shapes):
        return {}
    what = "codes for missing values, totals, repeated rows and similar mistakes"
    if any(sparse for _, _, sparse in shapes):
        return {what: "the rows are sparse"}
    return {what: "there are too many rows"}


def _clients_to_sample(tables: Sequence[Table | LocalData], shapes: Sequence[_Shape]) -> list[LocalData]:
    """Return the tables if all of them are held by clients and have dense rows, or else an empty list."""
    held = [table for table in tables if isinstance(table, LocalData)]
    if len(held) < len(tables) or any(sparse or not n * d for n, d, sparse in shapes):
        return []
    return held


def _hints_of_large_tables(
    clients: Sequence[LocalData], names: Sequence[str] | None, most: int
) -> tuple[list[list[str]], dict[str, str]]:
    """Return the lists of hints of each kind, and what was not looked for, with the reason.

    The hints follow from a sample of the rows, and from one pass over all rows.
    """
    if not _may_be_sampled([client.n for client in clients], clients[0].d, most):
        because = "there are too many columns"
        if len(clients) > clients[0].d:
            because = "there are too many sites for a look at each of them"
        return [], {"mistakes in single rows and columns": because}
    preview = Preview.before(clients, names, most) or _preview_of(clients, names, most)
    sample = preview.sample
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        tables = LargeTables.of(clients, preview)
        found = [list(tables.hints_of_empty_rows())]
        sums = SumsOfSites.of(clients)
        ends = totals_by_sums(sample, clients, sums)
        tables.cut = [ends[i][0] if i in ends else 0 for i in range(len(clients))]
        found += [[hint for _, hint in ends.values()], list(tables.hints_of_statistics(sums))]
        found += [list(tables.hints_of_sums()), list(tables.hints_of_repeats())]
        if preview.narrow:
            found += tables.hints_by_extremes(columns_with_odd_extremes, _OF_EXTREMES)
            found += _hints_by_kind(tables.sample_of_rows, (), _OF_SAMPLES)
            found += tables.hints_by_extremes(columns_with_few_values, _OF_FEW_VALUES)
    return found, tables.left_out


def _may_be_sampled(sizes: Sequence[int], d: int, most: int) -> bool:
    """Return whether sites with these numbers of rows of d entries have so few rows at their ends that each is read."""
    return sum(min(n, 4 * ENDS) * d for n in sizes) <= most // 4


def _preview_of(tables: Sequence[Table | LocalData], names: Sequence[str] | None, most: int) -> Preview:
    """Return a preview of large tables from a sample of their rows."""
    sizes = [_shape_of(table) for table in tables]
    share = min(max(most // _SAMPLED, BARE // 8) / sum(n * d for n, d, _ in sizes), 1.0)
    sites = [Site.sampled(table, f"client {i}", int(sizes[i][0] * share)) for i, table in enumerate(tables)]
    return Preview(AllSites.of_sites(sites, names, sampled=True), names, most)


def watches_of(tables: Sequence[Table], columns: Sequence[str] | None = None) -> list[SeenRows | None]:
    """Return for each table what is to get the blocks of the first pass over its rows, or None.

    Then `find_hints` needs no other pass over the rows of large tables, because `LocalData` passes over them in any
    case. That pass reads columns in the order in which they are stored, so each table must have the columns of the run
    in its order: `columns`, or sorted names by default.
    """
    none: list[SeenRows | None] = [None] * len(tables)
    sizes, d, names = [], 0, tables[0].names
    if names is not None and list(names) != (sorted(names) if columns is None else list(columns)):
        return none
    for table in tables:
        X = table.values
        if table.names != names or not isinstance(X, np.ndarray) or X.ndim != 2:
            return none
        d = d or X.shape[1]
        if X.dtype != np.float64 or not X.size or X.shape[1] != d:
            return none
        sizes.append(len(X))
    many, most = sum(sizes), most_unasked(names)
    # If the longest site is passed over together with others, all are.
    if many * d <= most or many > ROWS or not passes_alone(max(sizes), d) or not _may_be_sampled(sizes, d, most):
        return none
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        preview = _preview_of(tables, names, most)
        return [SeenRows(n, preview, [i]) if passes_alone(n, d) else None for i, n in enumerate(sizes)]


def find_in_stream(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return hints about batches of a stream: numbers that stand for missing values, and lines of totals.

    Hints of other kinds do not apply, because a batch may have missing values and constant columns.
    """
    if not _can_be_looked_at([_shape_of(table) for table in tables], CHEAP):
        return ()
    found = _hints_by_kind(
        AllSites.of_tables(tables, tables[0].names), (lines_of_totals_hints,), (codes_for_missing, suspicious_zeros)
    )
    shortened = chain.from_iterable(map(shorten_hints, filter(None, found)))
    # Only the command line follows streams of files, so the hints name its options.
    return tuple(
        with_advice_written(hint.replace(AS_MEAN, ""), lambda advice: f"with --gaps={advice[2][0]}")
        for hint in shortened
    )


def _can_be_looked_at(shapes: Sequence[_Shape], most: int) -> bool:
    """Return whether the rows of all sites are dense and have between 1 and `most` entries together."""
    entries = 0
    for n, d, sparse in shapes:
        if sparse:
            return False
        entries += n * d
    return 0 < entries <= most


def _hints_by_kind(data: AllSites, of_rows: Sequence[_Kind], of_columns: Sequence[_Kind]) -> list[list[str]]:
    """Return the hints of each kind.

    If there is a hint about rows, lines of totals and repeated sites are left out of the search in columns.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # numpy warns about columns without values. They cause no hint, because comparisons with NaN are false.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = [list(kind(data)) for kind in of_rows]
        if len(data.columns) <= WIDE:
            if any(found):
                data = AllSites(_sites_without_totals(data), data.columns)
            found += [list(kind(data)) for kind in of_columns]
    return found


def _shape_of(table: Table | LocalData) -> _Shape:
    """Return the numbers of rows and columns of a site, and whether its rows are a sparse matrix."""
    if isinstance(table, LocalData):
        return table.n, table.d, table.sparse
    return len(table), table.shape[1], hasattr(table.values, "tocsr")


def _hint_of_few_rows(tables: Sequence[Table | LocalData], shapes: Sequence[_Shape]) -> list[str]:
    """Return a hint about sites with so few rows that sums over their rows nearly reveal single rows."""
    few: list[str] = []
    for i, (table, (n, _, _)) in enumerate(zip(tables, shapes, strict=True)):
        if n <= FEW:
            who = table.site or f"client {i}"
            few.append(f"{who} has {labels.count(n, 'row')}")
    if not few or len(tables) < 2:
        return []
    if len(few) > SAID:
        more = len(few) - SAID + 1
        few = [*few[: SAID - 1], f"{more} more sites have at most {FEW}"]
    return [
        f"{labels.capitalize(', '.join(few))}: their answers nearly reveal their rows. Combine them with other sites."
    ]


def _dates_as_numbers(data: AllSites) -> Iterator[str]:
    """Yield hints about dates stored as numbers: 20240131, Excel's numbers of days, and seconds since 1970."""
    least, most, columns = data.smallest, data.largest, data.columns
    varies = (most > least) & (data.value_counts.sum(axis=0) >= LEAST)
    for j in np.flatnonzero(varies & (least >= 18000101) & (most <= 21001231)).tolist():
        values = np.concatenate([site.rows[:, j] for site in data.sites])
        values = values[~np.isnan(values)]
        month, day = values // 100 % 100, values % 100
        if (values == np.rint(values)).all() and ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all():
            yield _hint_of_dates(columns[j], "dates of eight digits, such as 20240131")
    for j in np.flatnonzero(varies & (least >= 15000) & (most <= 60000)).tolist():
        if _TIME.search(columns[j].removeprefix("column ")) or _are_working_days(data.values_of(j)):
            yield _hint_of_dates(columns[j], "dates in Excel's numbering of days")
    for j in np.flatnonzero(varies & (least >= 9.4e8) & (most <= 2.2e9)).tolist():
        values = data.values_of(j)
        if (values == np.rint(values)).all():
            yield _hint_of_dates(columns[j], "times in seconds since 1970")


def _are_working_days(values: Array) -> bool:
    """Return whether the values are Excel's numbers of days from 1990 to 2039, without Saturdays and Sundays."""
    days = np.unique(values)
    in_range = len(days) >= _DAYS and days[0] >= _FROM and days[-1] < _UNTIL and bool((days == np.rint(days)).all())
    return in_range and bool((days % 7 > 1).all())


def _hint_of_dates(column: str, what: str) -> str:
    column = labels.capitalize(column)
    return f"{column} holds {what}, stored as numbers. To leave it out, name the other columns with {_LISTED}."


def _twin_columns(data: AllSites) -> Iterator[str]:
    """Yield hints about two columns that hold the same values, or the same values in two units."""
    measures = np.flatnonzero(data.distinct_counts.max(axis=0) > MANY)
    if len(measures) < 2:
        return
    firsts = np.cumsum([0, *(len(site.rows) for site in data.sites)])
    step = -(-int(firsts[-1]) // 2000)
    few = np.concatenate(
        [site.rows[-first % step :: step] for site, first in zip(data.sites, firsts[:-1].tolist(), strict=True)]
    )
    if len(measures) < len(data.columns):
        few = few[:, measures]
    centered = few - few.mean(axis=0)
    for i, j in _parallel_pairs(centered / np.sqrt((centered**2).sum(axis=0))):
        what = "holds the same measurement, in another unit, as"
        pair = measures[[i, j]]
        if all(np.array_equal(*site.rows[:, pair].T) for site in data.sites):
            what = "holds the same values as"
        one = data.columns[measures[j]]
        other = data.columns[measures[i]]
        yield f"{labels.capitalize(one)} {what} {other}. Leave one of them out, because together they count twice."


def _parallel_pairs(columns: Array) -> list[tuple[int, int]]:
    """Return the pairs of columns that are equal up to their sign and rounding. All columns have length 1."""
    # Equal columns have nearly equal products with a random direction. So sort by this product, and compare only
    # columns whose products are close.
    direction = np.random.default_rng(0).standard_normal(len(columns))
    along = np.abs(direction @ columns)
    close = 1e-5 * float(np.linalg.norm(direction))
    order = np.argsort(along)
    order = order[: len(along) - int(np.isnan(along).sum())]
    ends = np.searchsorted(along[order], along[order] + close, side="right")
    pairs = [tuple(sorted((order[a], order[b]))) for a, end in enumerate(ends.tolist()) for b in range(a + 1, end)]
    return sorted((int(i), int(j)) for i, j in pairs if abs(columns[:, i] @ columns[:, j]) > 1.0 - 1e-12)


def _sites_without_totals(data: AllSites) -> list[Site]:
    """Return the sites without lines of totals, and only the first of several sites with equal rows.

    Totals and repeated sites would hide other faults.
    """
    ends, sites = lines_of_totals(data), data.sites
    # Go through the sites in reversed order, so that the first of several equal sites is kept.
    last_first = reversed([*enumerate(sites)])
    alone = {site.row_hashes.tobytes(): i for i, site in last_first}
    places = sorted(alone.values())
    return [sites[i].first_rows(ends[i][0]) if i in ends else sites[i] for i in places]


def _signs_and_swaps(data: AllSites) -> Iterator[str]:
    """Yield hints about columns that have the opposite sign at one site, and about columns that one site swaps."""
    if len(data.sites) > SITES:
        return
    whose = [site.who for site in data.sites]
    yield from shapes.turned_signs(whose, data.levels, data.value_counts, data.columns)
    yield from shapes.swapped_columns(whose, data.levels, data.value_counts, data.columns)


def _constant_columns(data: AllSites) -> Iterator[str]:
    """Yield hints about columns that hold a single value, such as a default, at one site, but rarely elsewhere."""
    if len(data.sites) < 2:
        return
    still = (data.distinct_counts == 1) & (data.value_counts >= LEAST)
    for i in np.flatnonzero(still.any(axis=1)).tolist():
        columns = np.flatnonzero(still[i]).tolist()
        odd = [j for j in columns if _is_constant_rare_elsewhere(data, i, j)]
        if len(odd) > max(2, (data.width or len(data.columns)) // 4):
            continue  # The site has rows of another kind, such as the rows of one district.
        for j in odd:
            what = (
                f"{labels.capitalize(data.columns[j])} is {data.sorted_values[i][0, j]:g} in all rows of "
                f"{data.sites[i].who}"
            )
            yield f"{what}, but rarely at other sites. Check the file of {data.sites[i].who}."


def _is_constant_rare_elsewhere(data: AllSites, i: int, j: int) -> bool:
    """Return whether the single value of a column at site i is too rare at other sites to occur there by chance."""
    elsewhere = [other.rows[:, j] for k, other in enumerate(data.sites) if k != i]
    others = np.concatenate(elsewhere)
    others = others[~np.isnan(others)]
    if not len(others) or others.min() == others.max():
        return False
    share = float((others == data.sorted_values[i][0, j]).mean())
    chance = float(data.value_counts[i, j]) * np.log(max(share, 1e-300))
    return share <= 0.5 and chance < np.log(1e-6)


_Kind = Callable[[AllSites], Iterable[str]]
_Shape = tuple[int, int, bool]  # the numbers of rows and columns, and whether the rows are a sparse matrix
_OF_ROWS: Final[tuple[_Kind, ...]] = (
    empty_rows_and_columns,
    lines_of_totals_hints,
    shapes.lines_of_statistics,
    shapes.totals_anywhere,
    doubles,
    shapes.repeated_row,
)
_OF_COLUMNS: Final[tuple[_Kind, ...]] = (
    codes_for_missing,
    shapes.fill_values,
    suspicious_zeros,
    shapes.shifted_decimal_points,
    _twin_columns,
    _dates_as_numbers,
    shapes.dates_in_columns,
    shapes.columns_of_codes,
    columns_in_other_units,
    mixed_units,
    _signs_and_swaps,
    shapes.other_codes,
    _constant_columns,
)
# In large tables, hints of these kinds follow from columns that are examined in full if their extremes are suspicious.
_OF_EXTREMES: Final[tuple[_Kind, ...]] = (
    codes_for_missing,
    shapes.fill_values,
    suspicious_zeros,
    shapes.shifted_decimal_points,
)
_OF_FEW_VALUES: Final[tuple[_Kind, ...]] = (shapes.other_codes, _constant_columns)
# If a hint of these kinds is true of a sample, it is also true of all rows.
_OF_SAMPLES: Final[tuple[_Kind, ...]] = tuple(
    kind for kind in _OF_COLUMNS if kind not in (*_OF_EXTREMES, *_OF_FEW_VALUES)
)
