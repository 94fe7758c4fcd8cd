"""Labels: what columns, clients and counts are called, to be compared and to be read.

The same letter may be one character or two (é), and a table from a spreadsheet has blanks and line
ends in its names. So names are brought into one form when they are read, at every door: what looks
alike is alike, and what still differs is shown so that one sees it. What steers a terminal is
written out. What has no name of its own gets one here.

Hints are sentences about columns that make components other than the ones a reader may think of. A
PCA follows variance. So a column that numbers the rows, or is measured in small units, becomes the
first component whatever the others do. From the totals of the opening the server knows every
column's deviation: `hints_of_sizes` speaks of these. Where rows are at hand, `find_identifiers`
looks for columns that number rows or people, whatever their size. They hold whole numbers of which
no two are alike, and go up by one, over each client's rows or over all of them together, in
whatever order rows are; or the column is called as such a one is: id, patient_nr, MRN. Ages, counts
and codes have gaps or come twice.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.options import option

# what stands where a value is missing: as pandas prints it, and as R, Excel and databases write it
GAPS: Final = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None"}
)  # fmt: skip
INDEX: Final = "column 1 without a name (it looks like the index that pandas writes)"


def clean(name: str) -> str:
    """The name in normal form (NFC), single blanks within it, and nothing unprintable."""
    if name.isascii() and name.isprintable() and "  " not in name and name == name.strip():
        return str(name)  # Most names are clean, and a table may have a million of them.
    line = " ".join(unicodedata.normalize("NFC", name).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def is_gap(value: Any) -> bool:
    """Whether what stands in a cell says that there is no value."""
    return value is None or str(value).strip() in GAPS


def nameless(places: Sequence[int], count: int) -> str:
    """What is wrong with columns that have no name, by their places among all."""
    if list(places) == [0] and count > 1:
        return INDEX
    if len(places) == 1:
        some = "column"
    else:
        some = "columns"
    return f"{some} {', '.join(str(j + 1) for j in places)} without a name"


def double(name: str) -> str:
    """What is wrong with columns of one name."""
    return f"{name!r} more than once"


def unlike(lacking: Iterable[str], beyond: Iterable[str]) -> str:
    """How names that are nearly those that are lacking differ from these, as a sentence; "" where none are near."""
    near = {_outline(name): name for name in beyond}
    pairs = [(name, near[_outline(name)]) for name in lacking if _outline(name) in near]
    if not pairs:
        return ""
    one, other = pairs[0]
    if one.lower() == other.lower():
        return f"{one!r} and {other!r} differ only by case"
    parts = (f"{name!r} has {_points(name, than)}" for name, than in ((one, other), (other, one)))
    return f"{one!r} and {other!r} only look alike: {', '.join(parts)}"


def _outline(name: str) -> str:
    """What a name looks like: without case, and letters of all scripts by what they are called."""
    return "".join(map(_letter, unicodedata.normalize("NFKC", name).casefold()))


def _letter(c: str) -> str:
    _, known, letter = unicodedata.name(c, c).partition(" SMALL LETTER ")
    if known:
        return letter.lower()
    return c


def _points(name: str, than: str) -> str:
    own = [c for c in name if c not in than] or list(name)
    return " ".join(f"U+{ord(c):04X}" for c in own[:4])


_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def column_names(names: Iterable[Any] | None, count: int) -> list[str]:
    """The name of each of `count` columns; "column 0" and so on where they have none."""
    if names is None:
        return [f"column {j}" for j in range(count)]
    return [str(name) for name in names]


def texts(names: Sequence[str]) -> Array:
    """Names as scikit-learn has them, an array of objects."""
    return np.array(list(names), dtype=object)


def tuple_of(names: Array | None) -> tuple[str, ...] | None:
    """Names of columns as `array_of` was given them."""
    if names is None:
        return None
    return tuple(names.tolist())


def array_of(names: Sequence[str] | None) -> Array | None:
    """Names of columns as such an array, where there are any."""
    if names is None:
        return None
    return texts(names)


def client_name(names: Mapping[int, str], key: int) -> str:
    """The name of a client; "client 0" and so on where it has none."""
    return names.get(key, f"client {key}")


def range_of(what: str, numbers: Sequence[int]) -> str:
    """Numbers that follow each other, with what they are of: "component 3", "components 2 to 4"."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"{what} {first}"
    if last == first + 1:
        between = "and"
    else:
        between = "to"
    return f"{what}s {first} {between} {last}"


def leading(weights: Array, most: int) -> Array:
    """The positions of the `most` largest weights in size, largest first; zero ones never."""
    order = np.argsort(-np.abs(weights), kind="stable")[:most]
    return np.asarray(order[np.abs(weights[order]) > 0.0])


def in_words(weights: Array, names: Sequence[str], *, most: int = 3) -> str:
    """The largest weights with their columns: "+0.71 glucose, -0.50 age"."""
    return ", ".join(f"{weights[j]:+.2f} {names[j]}" for j in leading(weights, most))


def shorten(text: str, most: int) -> str:
    """The text on one line, without its middle where it is longer than `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= most:
        return line
    tail = (most - 1) // 3
    return f"{line[: most - 1 - tail]}…{line[len(line) - tail :]}"


def count(number: int, what: str) -> str:
    """So many things: "1 message", "2,000 messages"."""
    return f"{number:,} {noun(number, what)}"


def noun(number: int, what: str) -> str:
    """The word for one of these things, or for several."""
    if number == 1:
        return what
    if what.endswith("ry"):
        return f"{what[:-1]}ies"
    return f"{what}s"


def size(number: float) -> str:
    """So many bytes: "606 B", "35.2 kB"."""
    power = 0
    # In three digits, as it is shown: 999.9 would be 1e+03.
    while float(f"{number:.3g}") >= 1000.0 and power < len(_UNITS) - 1:
        number, power = number / 1000.0, power + 1
    return f"{number:.3g} {_UNITS[power]}"


def bounds(share: Array) -> str:
    """A share that is known within bounds."""
    low, high = (round(100.0 * float(end)) for end in share)
    if low == 0 and high == 100:
        return "unknown"
    if low == high:
        return f"about {low}%"
    return f"{low}% to {high}%"


def series(words: Sequence[str]) -> str:
    """A list in a sentence: "1, 2 and 3"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def in_columns(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A plain text table, numbers to the right, whose last column is words."""
    widths = [max(10, len(head)) for head in heads[:-1]]
    every = [zip(line[:-1], widths, strict=True) for line in (heads, *lines)]
    texts = [" ".join(f"{cell:>{width}}" for cell, width in cells) for cells in every]
    ends = [line[-1] for line in (heads, *lines)]
    pairs = zip(texts, ends, strict=True)
    return "\n".join(f"{text}  {end}" for text, end in pairs)


_ALONE: Final = 0.99  # of the total variance: then one column is the first component
# of what component 1 explains: above, it is the mean more than anything else
_MEAN: Final = 0.5
# a deviation over that of the lower quarter, from which columns differ by their units
_APART: Final = 100.0
# rows from which whole numbers that are all different are no accident
_FEWEST: Final = 20
_LOOK: Final = 64  # rows of each client that tell most columns from an identifier
_STD: Final = option("scale", "std")
_SCALE_IT: Final = f"Leave it out if it numbers the rows, or use {_STD} if it is measured in other units than the rest."
_OUT: Final = f"Leave it out if it numbers the rows: name the others with {option('columns', ['...'])}."
_NUMBERS: Final = "It holds whole numbers, no two alike, as an identifier does: leave it out."
_LAST_WORDS: Final = {  # of a name that says so by itself
    *("id", "ids", "idx", "index", "key", "mrn", "pid", "uid", "uuid", "identifier", "pseudonym", "unnamed"),
    *("recordid", "patientid", "patid", "patnr", "patientennummer", "fallnr", "fallnummer", "kennung"),
}
_WHOSE: Final = {
    *("patient", "subject", "person", "participant", "case", "encounter"),
    *("record", "row", "sample", "study", "visit"),
}
_NUMBER: Final = {"id", "nr", "no", "num", "number", "nummer", "code", "key", "index"}


def hints_of_sizes(sizes: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Hints about columns of these sizes (d,), roots of mean squares, if nobody has scaled."""
    if column_alone(sizes) is not None:
        return (_alone(sizes, names, _SCALE_IT),)
    varying = np.sort(sizes[sizes > 0.0])
    if len(varying) < 2:
        return ()
    low = float(np.quantile(varying, 0.25))
    high = float(varying[-1])
    if high < _APART * low:
        return ()
    j = int(np.argmax(sizes))
    i = int(np.argmin(np.where(sizes >= low, sizes, np.inf)))
    larger = f"column {_label(j, names)} has a deviation of {high:.3g}"
    smaller = f"column {_label(i, names)} one of {sizes[i]:.3g}"
    differ = f"Columns differ much in size: {larger}, {smaller}."
    return (f"{differ} Use {_STD} if they are measured in different units.",)


def hints_of_mean(offset: float, first: float) -> tuple[str, ...]:
    """A hint where rows were not centred, and their mean is over half of what component 1 explains.

    Args:
        offset: n times the squared length of the mean.
        first: The sum of squares along component 1.
    """
    if offset <= _MEAN * first:
        return ()
    if offset > first:
        weight = "more than all"
    else:
        weight = f"{offset / first:.0%}"
    words = f"Rows were not centred, and their mean weighs {weight} of component 1, which then shows no differences"
    return (f"{words} between rows. Use {option('center', True)}.",)


def column_alone(sizes: Array) -> int | None:
    """The column that has nearly all of the variance, if one has."""
    squares = sizes**2
    j = int(np.argmax(squares))
    if len(sizes) > 1 and squares[j] >= _ALONE * squares.sum():
        return j
    return None


def hints_of_first_lines(files: Iterable[str]) -> tuple[str, ...]:
    """A hint about text files whose first line was taken for a row, as it is all numbers."""
    first, *more = dict.fromkeys(files) or ("",)
    if not first:
        return ()
    if more:
        others = f", and of {count(len(more), 'more file')},"
    else:
        others = ""
    return (f"The first line of {first}{others} was taken for a row of numbers; header=True makes it names.",)


def hints_of_largest(sizes: Array, names: Sequence[str] | None, tables: Iterable[Any]) -> tuple[str, ...]:
    """A hint about a column that has nearly all variance, and numbers these clients' rows as far as one can see."""
    j = column_alone(sizes)
    if j is None or not all(_numbers(table, j) for table in tables):
        return ()
    return (_alone(sizes, names, _NUMBERS),)


def hints_of_identifiers(
    columns: Mapping[int, bool], names: Sequence[str] | None, but: int | None = None
) -> tuple[str, ...]:
    """Hints about what `find_identifiers` has found, but for a column named already."""
    if not columns:
        return ()
    why = {True: "which go up by one", False: "and is called as an identifier is"}
    others = {j: counts for j, counts in columns.items() if j != but}
    start = "holds whole numbers, no two alike,"
    return tuple(f"Column {_label(j, names)} {start} {why[counts]}. {_OUT}" for j, counts in others.items())


def is_called_identifier(name: str) -> bool:
    """Whether a column is called as an identifier is."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words:
        return False
    whose = any(word in _WHOSE for word in words)
    numbers = len(words) == 1 or words[-1] in _NUMBER
    return words[-1] in _LAST_WORDS or (whose and numbers) or words in (["nr"], ["index", "level"])


def find_identifiers(tables: Sequence[Any], names: Sequence[str] | None) -> dict[int, bool]:
    """The columns of these clients' stored rows that are identifiers: whether they go up by one, or are called so only.

    Args:
        tables: What has its rows in `blocks()`, and says whether they are `sparse`.
        names: Names of the columns, where they have any.
    """
    sizes = np.array([0 if table.sparse else table.n for table in tables])
    if not sizes.all() or sizes.sum() < _FEWEST:
        return {}
    columns = _candidates(tables)
    if not len(columns):
        return {}
    by_name = {int(j) for j in columns if names is not None and is_called_identifier(str(names[j]))}
    ranges = [_range(table, columns) for table in tables]
    low, high, whole = (np.array(side) for side in zip(*ranges, strict=True))
    each = (high - low + 1.0 == sizes[:, None]).all(axis=0) & (sizes.max() >= _FEWEST)
    together = high.max(axis=0) - low.min(axis=0) + 1.0 == sizes.sum()
    identifiers: dict[int, bool] = {}
    for i, j in enumerate(map(int, columns)):
        counts = bool(each[i] or together[i])
        if whole[:, i].all() and (counts or j in by_name) and _different(tables, j, together=bool(together[i])):
            identifiers[j] = counts
    return identifiers


def _candidates(tables: Sequence[Any]) -> Array:
    """The columns that may be identifiers by a few rows of each client."""
    columns = np.arange(tables[0].d)
    for table in tables:
        block = next(iter(table.blocks()))
        # one row tells columns of whole numbers from most others
        for few in (1, _LOOK):
            columns = columns[_unlike(block[:few, columns])]
        if not len(columns):
            break
    return columns


def _unlike(block: Array) -> Array:
    """Which columns hold whole numbers, no two of them alike."""
    if block.dtype.kind not in "fiu":
        return np.zeros(block.shape[1], dtype=bool)
    steps = np.diff(np.sort(block, axis=0), axis=0)
    return np.asarray(_whole(block) & (steps != 0).all(axis=0))


def _whole(block: Array) -> Array:
    """Which columns hold nothing but whole numbers, and gaps."""
    with np.errstate(invalid="ignore"):
        whole = (np.rint(block) == block) & ~np.isinf(block)
        return np.asarray((whole | np.isnan(block)).all(axis=0))


def _range(table: Any, columns: Array) -> tuple[Array, Array, Array]:
    """The least and the largest value of each column, and whether all are whole."""
    low = np.inf
    high = -np.inf
    whole = np.ones(len(columns), dtype=bool)
    for block in table.blocks():
        part = block[:, columns].astype(np.float64)
        low = np.fmin(low, np.fmin.reduce(part))
        high = np.fmax(high, np.fmax.reduce(part))
        whole &= _whole(part)
    return np.asarray(low), np.asarray(high), whole


def _different(tables: Sequence[Any], j: int, *, together: bool) -> bool:
    """Whether no two values of a column are alike, at each client or at all of them."""
    parts = [_column(table, j) for table in tables]
    if together:
        parts = [np.concatenate(parts)]
    parts = [part[part == part] for part in parts]
    return any(map(len, parts)) and all(len(np.unique(part)) == len(part) for part in parts)


def _numbers(table: Any, j: int) -> bool:
    """Whether a column of a client's stored rows has whole numbers of which no two are alike."""
    values = _column(table, j)
    return len(values) >= _FEWEST and bool(np.all(values == np.rint(values))) and len(np.unique(values)) == len(values)


def _column(table: Any, j: int) -> Array:
    return np.concatenate([block[:, j] for block in table.blocks()])


def _alone(sizes: Array, names: Sequence[str] | None, remedy: str) -> str:
    j = int(np.argmax(sizes))
    share = sizes[j] ** 2 / np.sum(sizes**2)
    # From there on it would be shown as 100.00%, which it is not.
    if share < 0.99995:
        shown = f"{share:.2%}"
    else:
        shown = "all but 0.01%"
    words = f"Column {_label(j, names)} alone has {shown} of the variance, so component 1 is that column. "
    return words + remedy


def _label(j: int, names: Sequence[str] | None) -> str:
    return str(j if names is None else names[j])
