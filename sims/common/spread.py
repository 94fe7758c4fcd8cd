"""How far the numbers of a table swing from seeds to other seeds, and whether a second run keeps within that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from math import inf, log, sqrt
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

Array: TypeAlias = npt.NDArray[np.float64]
Table: TypeAlias = Sequence[Sequence[str]]  # the header first
Draws: TypeAlias = Sequence[Mapping[str, Sequence[float]]]  # of each row, by column, the numbers behind a mean

LEVEL: Final = 0.999  # at which the means and deviations of two runs have to agree
LEAST: Final = 3  # draws of which the deviation can be tested
ROUNDING: Final = 1e-12  # errors below it are rounding, and alike
SKEWED: Final = 0.5  # of a mean, the deviation from which on neither t nor F holds
ONE: Final = "one seed"  # instead of a swing, for a row whose column "seeds" says 1
SIMILAR: Final = 1.05  # a factor that two printed digits do not tell from none
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_MEAN: Final = re.compile(r"(\S+) \((\S+)\)")
_END: Final = r"(-|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_SPAN: Final = re.compile(rf"{_END}\.\.{_END}")
_MORE: Final = re.compile(r"> (\d+)")  # messages in which something has not come
_LABEL: Final = re.compile(r"draw|seeds?|s( to \S+)?|s: .*|seconds")  # of a row, or made by a machine's load


@dataclass(frozen=True)
class Off:
    """A number that a second run has elsewhere: its row's first cells, its column, what is printed, what came."""

    row: str
    column: str
    printed: str
    again: str


@dataclass
class Checked:
    """How many numbers a second run has, of how many the page states no spread, and those beyond theirs."""

    numbers: int = 0
    unstated: int = 0
    off: list[Off] = field(default_factory=list)


def factor(a: str, b: str) -> float:
    """By what one printed number is larger than the other; 1 if they are a last digit apart.

    Infinite where that says nothing, as of numbers of other signs.
    """
    x, y = _number(a), _number(b)
    if x == y or max(abs(x), abs(y)) <= ROUNDING:
        return 1.0
    if inf in (x, y) or abs(x - y) <= 1.01 * max(_unit(a), _unit(b)):
        return inf if inf in (x, y) else 1.0
    low, high = sorted(max(abs(value), ROUNDING, _unit(text)) for value, text in ((x, a), (y, b)))
    return inf if x * y < 0.0 else high / low


def swings(table: Table, singles: Sequence[Table]) -> list[str]:
    """Of each row, the factor within which the numbers of single seeds lie; "-" if nothing in it swings.

    Cells with a deviation or a span of their own are left out, but for means whose deviation says little as it is of
    their size: one seed of ten may have made it. Empty if single seeds make other rows.
    """
    if not singles or any(len(single) != len(table) for single in singles):
        return []
    header, *rows = table
    found = []
    for i, row in enumerate(rows, start=1):
        if dict(zip(header, row, strict=True)).get("seeds") == "1":
            found.append(ONE)
            continue
        cells = [cell for single in singles for cell in zip(header, row, single[i], strict=True)]
        factors = [_apart(printed, other) for name, printed, other in cells if _counts(name, printed)]
        found.append(_spelt(max(factors, default=1.0)))
    return found


def swings_of_draws(table: Table, draws: Draws) -> list[str]:
    """The same of a table that states all its spreads: of means whose deviation says little, from their draws."""
    header, *rows = table
    found = []
    for row, drawn in zip(rows, draws, strict=True):
        cells = {name: cell for name, cell in zip(header, row, strict=True) if name in drawn and _counts(name, cell)}
        numbers = ((cell, x) for name, cell in cells.items() for x in drawn[name])
        found.append(_spelt(max((factor(_texts(cell)[0], f"{x:.1e}") for cell, x in numbers), default=1.0)))
    return found


def joined(table: Table, further: Table) -> list[list[str]]:
    """The table of one run and of a further run's seeds, both with all numbers as the least..the most of their seeds.

    Raises ValueError, with the row and the column, if a cell states its numbers in another way.
    """
    header, *rows = table
    if len(further) != len(table) or list(further[0]) != list(header):
        raise ValueError("other rows or columns")
    found = [list(header)]
    for row, other in zip(rows, further[1:], strict=True):
        cells = [_joined(a, b) for a, b in zip(row, other, strict=True)]
        if None in cells:
            name = header[cells.index(None)]
            raise ValueError(f"{', '.join(row[:2])}: {name}: no span")
        found.append([cell for cell in cells if cell is not None])
    return found


def compared(
    table: Table, again: Table, seeds: int, swing: Sequence[str] | None, drawn: tuple[Draws, Draws] | None = None
) -> Checked:
    """A second run of as many other seeds beside the first, and the swing of its rows, if that is known.

    A table with a row for each seed says its spread by these rows: there a number is held against its column. Means
    whose draws both runs have kept are held against each other by the logarithms of these.
    """
    header, *rows = table
    others, checked = again[1:], Checked()
    alike = [all(row[j] == other[j] for row, other in zip(rows, others, strict=True)) for j in range(len(header))]
    columns = dict(_columns(table))
    for i, (row, other) in enumerate(zip(rows, others, strict=True)):
        for j, (printed, came) in enumerate(zip(row, other, strict=True)):
            if row == other or alike[j] or _LABEL.fullmatch(header[j]):  # the paper's rows, and labels
                continue
            checked.numbers += 1
            unstated = swing is None or (bool(swing) and swing[i] == ONE)
            pair = [run[i].get(header[j], ()) for run in drawn or ()]
            if pair and all(len(numbers) >= LEAST and min(numbers) > 0.0 for numbers in pair):
                near = alike_in_logs(*pair)
            elif unstated and _counts(header[j], printed) and not _MEAN.fullmatch(printed) and printed != came:
                checked.unstated += 1
                near = True
            elif swing == []:
                near = _between(came, columns[_kind(row), header[j]])
            else:
                near = _within(printed, came, seeds, swing[i] if swing and not unstated else "-")
            if not near:
                checked.off.append(Off(", ".join(row[:2]), header[j], printed, came))
    return checked


def _joined(cell: str, other: str) -> str | None:
    """The least..the most of two cells, each a span or a number; None of other cells, unless they are the same."""
    if cell == other:
        return cell
    waits = [_MORE.fullmatch(text) for text in (cell, other)]
    if all(waits):
        return min(cell, other, key=lambda text: int(text[2:]))
    spans = [_SPAN.fullmatch(text) or re.fullmatch(_END, text) for text in (cell, other)]
    if any(waits) or not all(spans):
        return None
    ends = [end for span in spans if span for end in span.groups()]
    least, most = min(ends, key=_number), max(ends, key=_number)
    return least if least == most else f"{least}..{most}"


def _spelt(most: float) -> str:
    if most == inf:
        return "any"
    return "-" if most <= SIMILAR else f"{most:.2g}" if most < 100.0 else f"{most:.0e}"


def _counts(name: str, cell: str) -> bool:
    """Is its spread not told by the cell itself?"""
    told = _SPAN.fullmatch(cell) or (_MEAN.fullmatch(cell) and not _skewed(cell))
    return not (_LABEL.fullmatch(name) or told)


def _skewed(cell: str) -> bool:
    """Is it a mean whose deviation is of its size, as of errors over several powers of ten?"""
    mean = _MEAN.fullmatch(cell)
    return mean is not None and _number(mean[2]) > SKEWED * abs(_number(mean[1]))


def _apart(printed: str, other: str) -> float:
    """The largest factor between the numbers of two cells, of their means if they have; infinite of other words."""
    if printed == other:
        return 1.0
    if _skewed(printed):
        return factor(_texts(printed)[0], [*_texts(other), "-"][0])
    ones, others = _texts(printed), _texts(other)
    if len(ones) != len(others) or not ones or _NUMBER.sub("", printed) != _NUMBER.sub("", other):
        return inf
    return max(factor(a, b) for a, b in zip(ones, others, strict=True))


def _within(printed: str, came: str, seeds: int, swing: str) -> bool:
    most = inf if swing == "any" else 1.05 * float(swing) if swing != "-" else SIMILAR  # printed in two digits
    if _MEAN.fullmatch(printed) and _MEAN.fullmatch(came):
        agree = _agree(_texts(printed), _texts(came), seeds)
        return agree or (_skewed(printed) and _apart(printed, came) <= most)
    if ".." in printed + came:
        return _widened(_ends(printed), _ends(came), most)
    return _apart(printed, came) <= most


def alike_in_logs(first: Sequence[float], second: Sequence[float]) -> bool:
    """Do the logarithms of two runs' numbers agree in mean and deviation, each by Student's t at LEVEL?

    Errors of single seeds lie within a factor of one another, not within a difference: their logarithms are nearly
    normal, and they themselves are not. The deviations are tested by Miller's jackknife, because an F-test, too, calls
    two runs different for one rare seed. Of the errors of LocalPower's Fig. 8, t and F of the numbers themselves
    call 8 percent different between two runs of five seeds, and 16 percent between two of ten; these tests call .3 and
    .5 percent.
    """
    x, y = (np.log(np.maximum(numbers, ROUNDING)) for numbers in (first, second))
    least = log(SIMILAR)
    narrow = max(x.std(ddof=1), y.std(ddof=1)) <= least
    return _near(x, y, least) and (narrow or _near(_left_out(x), _left_out(y)))


def _near(x: Array, y: Array, least: float = 0.0) -> bool:
    """Are two means apart by `least` at most, or by what Student's t allows at LEVEL?"""
    free = len(x) + len(y) - 2
    squares = sum(float(np.sum((z - z.mean()) ** 2)) for z in (x, y))
    error = sqrt(squares / free * (1.0 / len(x) + 1.0 / len(y)))
    return abs(float(x.mean() - y.mean())) <= max(error * _student(free), least)


@cache
def _student(free: int) -> float:
    """By how many of its errors a difference may lie off, at LEVEL."""
    return float(stats.t.ppf((1.0 + LEVEL) / 2.0, free))


def _left_out(x: Array) -> Array:
    """What each number adds to the logarithm of the variance, by leaving it out."""
    parts = [x, *(np.delete(x, i) for i in range(len(x)))]
    whole, *rest = (log(max(float(part.var(ddof=1)), ROUNDING)) for part in parts)
    return np.array([len(x) * whole - (len(x) - 1) * other for other in rest])


def _agree(first: list[str], second: list[str], seeds: int) -> bool:
    """Do two means of as many seeds agree, and their deviations: by Student's t and by F, at LEVEL."""
    (a, s), (b, t) = (list(map(_number, texts)) for texts in (first, second))
    free = max(seeds - 1, 1)
    apart = sqrt((s * s + t * t) / seeds) * _student(2 * free)
    most = sqrt(float(stats.f.ppf((1.0 + LEVEL) / 2.0, free, free)))
    near = abs(a - b) <= apart or factor(first[0], second[0]) <= SIMILAR
    return near and factor(first[1], second[1]) <= most * SIMILAR


def _ends(cell: str) -> tuple[float, ...]:
    """The ends of a span, or the numbers of another cell."""
    span = _SPAN.fullmatch(cell)
    return tuple(map(_number, span.groups() if span else _texts(cell)))


def _widened(printed: tuple[float, ...], came: tuple[float, ...], most: float = SIMILAR) -> bool:
    """Does the second lie within the first, widened at either end by its own width, and if they are counts by one?"""
    low, high = min(printed), max(printed)
    one = float(all(value == inf or value.is_integer() for value in (*printed, *came)))
    width = max(high / low if 0.0 < low < inf else inf, most)
    return min(came) >= low / width - one and max(came) <= high * width + one


def _columns(table: Table) -> Iterator[tuple[tuple[str, str], list[float]]]:
    """All numbers of a column in rows of one kind: those of a table with a row for each seed."""
    header, *rows = table
    kinds = dict.fromkeys(map(_kind, rows))
    for kind in kinds:
        alike = [row for row in rows if _kind(row) == kind]
        for j, name in enumerate(header):
            yield (kind, name), list(chain.from_iterable(_ends(row[j]) for row in alike))


def _kind(row: Sequence[str]) -> str:
    """What tells rows that count other things: their words."""
    return " ".join(cell for cell in row if not _NUMBER.search(cell) and cell not in ("", "-"))


def _between(cell: str, numbers: Sequence[float]) -> bool:
    """Is a number among those of its column, widened by as much as these are apart?"""
    found = _ends(cell)
    if not found or not numbers:
        return not found and not numbers
    low, high = min(numbers), max(numbers)
    if low > 0.0:
        return _widened((low, high), found)
    return 2.0 * low - high <= min(found) and max(found) <= 2.0 * high - low


def _texts(cell: str) -> list[str]:
    """The numbers of a cell, as printed; of one that says never, infinity's sign."""
    return [cell] if cell == "-" else _NUMBER.findall(cell)


def _number(text: str) -> float:
    return inf if text == "-" else float(text)


def _unit(text: str) -> float:
    """One of the last digit that is printed."""
    digits, _, power = text.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
