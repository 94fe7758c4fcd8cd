"""Levels of columns of words, as indicator columns.

A column of words (ward, sex, diagnosis) becomes an indicator column for each of its levels. The column `ward=surgery`
is 1 in the rows with that level and 0 in the others. If a run names such columns, every site with the column ward
provides them, with zeros for levels that it does not have. So sites exchange levels as names of columns, and everything
that works with numeric columns works with levels.

    read_levels, plain_levels  the levels that a caller asks for, and the same as plain values
    Coding             the levels of a run: the columns that they become, and what sites agree on before
    levels_in          the levels of a column at a site
    code               a site's rows with indicators of its levels, with rare levels merged
    source_of          the column from which a column of this name is made
    expand             the columns of a run, with a column of words replaced by its indicators
    grown              the rows with all columns that a run names and the rows do not have yet

A site may hide levels of fewer than `least` rows. It then counts their rows as "other". If these are fewer than `least`
together, it counts them as the most common level. This depends on the site's rows only, and not on what a run asks for.
So whatever levels two runs name, their answers differ by sums over at least `least` rows. If a run names only some
levels and "other", the rows of all further levels count as "other". If it does not name "other", the error names the
missing level.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean, is_gap
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.names.columns import LONGEST, doubles, enumeration
from flower_pca.names.ids import as_text
from flower_pca.names.table import Table

AsGiven: TypeAlias = "str | Sequence[str] | Mapping[str, Sequence[str] | None]"
Levels: TypeAlias = tuple[
    tuple[str, tuple[str, ...] | None], ...
]  # The levels of each column of words. None means all levels that occur.

OTHER: Final = "other"
SIGN: Final = "="
# Two spellings of a level may differ by these signs, but not by the minus of -1 or Rh-, nor by the hyphen of 1-2.
_BETWEEN: Final = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=\w)|(?<=\w)[\s_-]+(?=[^\W\d_])")
_NUMBER: Final = re.compile(r"[-+\d.,'eE\s]+")  # Matches numbers of every dialect.
_EXAMPLE: Final = (
    f"Write {option('categorical', ['ward'])}, or {option('categorical', {'ward': ['surgery', 'medicine']})}."
)


def read_levels(given: Any) -> Levels | None:
    """Return the columns of words that a caller names, each with its levels or None. Return None for no columns.

    Parameters
    ----------
    given
        Names of columns, with commas between or in a list; or with the levels of each, in a mapping.
    """
    if given is None:
        return None
    pairs = _pairs(given)
    if not pairs or not all(isinstance(name, str) and name for name, _ in pairs):
        raise ConfigError(
            f"{option('categorical')} must be a list of column names, not {shown(given)}. {_EXAMPLE}",
            setting="categorical",
        )
    found = tuple((clean(name), _list_of(name, some)) for name, some in pairs)
    if twice := doubles(name for name, _ in found):
        raise ConfigError(f"{option('categorical')} has {twice}. Name each column once.", setting="categorical")
    for name, _ in found:
        if SIGN in name:
            raise ConfigError(
                f"The column {shown(name)} has {SIGN!r} in its name, which stands between a column and its level. "
                "Rename it."
            )
    return found


def _pairs(given: Any) -> list[tuple[Any, Any]]:
    if isinstance(given, str):
        return [(name, None) for name in given.split(",")]
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, list | tuple | np.ndarray):
        return [tuple(one) if isinstance(one, list | tuple) else (one, None) for one in given]
    return []


def _list_of(column: str, given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    levels: list[str | None] = []
    if isinstance(given, list | tuple | np.ndarray):
        levels = [text_of(level) for level in given]
        gaps = [level for level in given if isinstance(level, str) and is_gap(level)]
        if gaps:
            raise ConfigError(
                f"{shown(gaps[0])} stands for a missing value, so it cannot be a level of {column}. Leave it out, "
                "because such rows have no value."
            )
    if not levels or None in levels:
        raise ConfigError(f"The levels of {column} must be a list of texts, not {shown(given)}. {_EXAMPLE}")
    texts = tuple(map(str, levels))
    if twice := doubles(texts):
        raise ConfigError(f"The levels of {column} have {twice}. Name each level once.")
    return texts


def plain_levels(levels: Levels) -> dict[str, list[str] | None]:
    """Return levels as plain values for files."""
    found: dict[str, list[str] | None] = dict.fromkeys(name for name, _ in levels)
    return found | {name: list(some) for name, some in levels if some is not None}


def indicator(column: str, level: str) -> str:
    """Return the name of the indicator column of a level."""
    return f"{column}{SIGN}{level}"


def source_of(name: str) -> str:
    """Return the column of words that an indicator of this name belongs to, or "" if the name is no indicator."""
    return name[: max(name.find(SIGN), 0)]


def level_of(name: str) -> str:
    """Return the level that an indicator of this name stands for."""
    return name.partition(SIGN)[2]


def indicators(names: Iterable[str], column: str) -> list[str]:
    """Return the names that are indicators of levels of a column."""
    return [name for name in names if source_of(name) == column]


def warn_of_alike(column: str, levels: Iterable[str]) -> None:
    """Warn if two levels of a column differ only by capitals, spaces or hyphens."""
    spelt: dict[str, list[str]] = {}
    for level in levels:
        spelt.setdefault(_BETWEEN.sub("", level).casefold(), []).append(level)
    alike = next((several for several in spelt.values() if len(several) > 1), None)
    if alike:
        warnings.warn(
            f"Levels of {column}, {enumeration(alike)}, differ in capitals, spaces or hyphens only. If they mean the "
            "same, use the same spelling, and run again.",
            UserWarning,
            stacklevel=3,
        )


def in_order(levels: Iterable[str]) -> tuple[str, ...]:
    """Return levels in sorted order, with "other" last."""
    return tuple(sorted(set(levels), key=lambda level: (level == OTHER, level)))


def text_of(value: Any) -> str | None:
    """Return a cell as a level, or None if it is empty."""
    if is_gap(value):
        return None
    return clean(as_text(value)) or None  # Codes such as 1 are 1.0 in a table with missing values.


def are_few(cells: Iterable[Any]) -> bool:
    """Return whether cells are words, mostly not numbers, with at least two rows per level on average."""
    there = [cell for cell in map(text_of, cells) if cell is not None]
    words = [cell for cell in there if not _NUMBER.fullmatch(cell)]
    return 2 * len(words) > len(there) >= 2 * len(set(there))


@dataclass(frozen=True)
class Coding:
    """Columns of words to be coded as indicators: for each column its levels, or None for all that occur.

    If the run names columns, coded columns that it does not name come last.
    """

    field: ClassVar[str] = "categorical"  # the field of a configuration that asks for levels

    value: Levels

    @property
    def words(self) -> tuple[str, ...]:
        """The columns of words."""
        return tuple(name for name, _ in self.value)

    @property
    def new_columns(self) -> tuple[str, ...]:
        """The indicators of all listed levels."""
        return self.spread(())

    @property
    def is_known(self) -> bool:
        """Whether the levels of all columns are listed."""
        return all(some is not None for _, some in self.value)

    def spread(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the columns of a run whose levels are known. Each column of words becomes its indicators."""
        known = {name: [indicator(name, level) for level in some or ()] for name, some in self.value}
        found = chain.from_iterable(known.get(name, [name]) for name in (*columns, *known))
        return tuple(dict.fromkeys(found))

    def values_at(self, rows: Table, who: str) -> dict[str, tuple[str, ...]]:
        """Return the levels that a site has, by column."""
        return {name: levels_in(rows, name, who) for name in self.words}

    def values_among(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the levels that occur among names of columns, by column of words."""
        there = list(names)
        return {word: list(map(level_of, indicators(there, word))) for word in self.words}

    def union(self, sites: Sequence[Mapping[str, Iterable[str]]]) -> Coding:
        """Return the coding of a run: the levels that the caller listed, or else the levels of all sites together."""
        found: list[tuple[str, tuple[str, ...]]] = []
        for column, some in self.value:
            there = some or in_order(level for site in sites for level in site.get(column, ()))
            if not there:
                raise DataError(
                    f"No site sent levels of column {column}. Ask the sites' operators to name it in their "
                    "categorical, or leave it out."
                )
            if not some:
                warn_of_alike(column, there)
            found.append((column, tuple(there)))
        return Coding(tuple(found))

    def of(self, value: Any) -> Coding:
        """Restore a coding from a file."""
        return Coding(read_levels(value) or ())


# The rows of one site.


def texts(rows: Table, column: str, who: str = "the rows") -> list[str | None]:
    """Return the level of each row of a column, which holds words or numeric codes."""
    if column in rows.texts:
        cells = rows.texts[column]
    elif column in (rows.names or ()):
        cells = _dense(rows, [column])[:, 0]
    else:
        raise DataError(
            f"There is no column {column!r} in {rows.source or rows.site or who}. Check {option('categorical')}."
        )
    return list(map(text_of, cells.tolist()))


def _dense(rows: Table, names: Iterable[str]) -> Array:
    """Return columns of the rows as a dense array, by name."""
    known = rows.names or ()
    part = rows.values[:, [known.index(name) for name in names]]
    if hasattr(part, "toarray"):
        part = part.toarray()
    return np.asarray(part)


def levels_in(rows: Table, column: str, who: str = "the rows") -> tuple[str, ...]:
    """Return the levels of a column, sorted."""
    cells = texts(rows, column, who)
    found = in_order(cell for cell in cells if cell is not None)
    if len(found) > 1 and len(found) == len(cells):
        raise DataError(
            f"Every row has a different level in column {column} of {rows.source or rows.site or who}, which looks "
            "like an identifier. Leave it out."
        )
    if long := [level for level in found if len(indicator(column, level)) > LONGEST]:
        raise DataError(
            f"A level of column {column} is too long: {len(long[0])} characters, but {LONGEST} are possible, "
            "including the column's name. Leave the column out, or shorten its levels."
        )
    return found


def code(rows: Table, columns: Sequence[str], *, least: int, who: str = "the rows") -> Table:
    """Return the rows with an indicator for each level of at least `least` rows, and one for rarer levels together."""
    if not columns:
        return rows
    parts: dict[str, Array] = {}
    for column in columns:
        levels_in(rows, column, who)
        cells = _told_apart(texts(rows, column, who), least)
        for level in in_order(cell for cell in cells if cell is not None):
            parts[indicator(column, level)] = _ones(cells, {level})
    spare = {name: words for name, words in rows.words.items() if name not in columns}
    return replace(beside(rows.without([*columns]), parts), words=spare, texts={}, coded=tuple(columns))


def _told_apart(cells: list[str | None], least: int) -> list[str | None]:
    """Return cells with rare levels merged into "other", or into the most common level if "other" is rare, too."""
    counts = Counter(cell for cell in cells if cell is not None)
    rare = {level for level, count in counts.items() if count < least}
    if not rare:
        return cells
    into = OTHER
    # A site may have a level of its own called "other". It counts as "other", too.
    together = sum(counts[level] for level in rare | {OTHER})
    if together < least and len(rare) < len(counts):
        # Sorting breaks ties between equally common levels by name, so the order of rows does not matter.
        into = max(sorted(counts), key=counts.__getitem__)
    return [into if cell in rare else cell for cell in cells]


def _ones(cells: Iterable[str | None], levels: set[str]) -> Array:
    """Return 1 where a cell has the level, 0 where it has another level, NaN where it is missing."""
    return np.array([np.nan if cell is None else float(cell in levels) for cell in cells])


def beside(rows: Table, parts: Mapping[str, Array]) -> Table:
    """Return the rows with additional columns, which replace columns of the same name."""
    if not parts:
        return rows
    others = rows.without(parts)
    values = others.values
    more = np.column_stack(list(parts.values()))
    if values.dtype.kind == "f":
        # Otherwise all rows of single precision would become float64.
        more = more.astype(values.dtype)
    if hasattr(values, "tocsr"):
        from scipy import sparse

        both: list[Any] = [values, sparse.csr_array(more)]
        values = sparse.csr_array(sparse.hstack(both))
    else:
        values = np.hstack([values, more])
    names = (*(others.names or ()), *parts)
    return replace(others, values=values, names=names, made=rows.made | {*parts})


def new_columns(rows: Table, wanted: Sequence[str], who: str = "the rows") -> dict[str, Array]:
    """Return the wanted columns that the rows do not have: indicators, by name.

    Parameters
    ----------
    rows : Table
        Rows that are coded, or rows with columns of words.
    wanted : sequence of str
        The columns of a run.
    who : str, default="the rows"
        The owner of the rows, for messages.

    Raises
    ------
    DataError
        If a row has a level that is not among those of the run, which has no "other".
    """
    found: dict[str, Array] = {}
    for column in filter(None, dict.fromkeys(map(source_of, wanted))):
        names = indicators(wanted, column)
        if column in rows.coded:
            found |= _of_coded(rows, column, names, who)
        # A numeric column may hold codes, which become levels like words.
        elif column in rows.texts or (column in (rows.names or ()) and not set(names) <= set(rows.names or ())):
            found |= _of_texts(rows, column, names, who)
    return found


def expand(names: Iterable[str], *, known: Iterable[str], words: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a run, with each of these columns of words replaced by all columns made from it."""
    there, coded = list(known), frozenset(words)
    own = ([made for made in there if source_of(made) == name] if name in coded else [name] for name in names)
    return tuple(name for some in own for name in some)


def grown(rows: Table, names: Sequence[str], who: str) -> Table | None:
    """Return the rows with all of these columns that can be made from them, or None if nothing can be made."""
    if not any(map(source_of, names)):
        return None
    made = new_columns(rows, names, who)
    if not made:
        return None
    return replace(beside(rows, made), texts={}, coded=())


def _of_texts(rows: Table, column: str, names: list[str], who: str) -> dict[str, Array]:
    """Return indicators of a column of words."""
    levels, cells = list(map(level_of, names)), texts(rows, column, who)
    known = [(i, cell) for i, cell in enumerate(cells) if cell is not None]
    strange = [(i, cell) for i, cell in known if cell not in levels]
    if strange and OTHER not in levels:
        row, level = strange[0]
        where = rows.source or rows.site or who
        raise _unknown(f"column {column} of {where}", levels, f"{level!r} in {rows.place(row)}")
    into = {OTHER, *(str(cell) for _, cell in strange)}
    return {indicator(column, level): _ones(cells, into if level == OTHER else {level}) for level in levels}


def _of_coded(rows: Table, column: str, names: list[str], who: str) -> dict[str, Array]:
    """Return missing indicators for rows that are already coded.

    "other" includes the levels that the run does not name.

    Where a value is missing, it is missing in all indicators.
    """
    there = indicators(rows.names or (), column)
    left = [name for name in there if name not in names]
    rest = indicator(column, OTHER)
    if left and rest not in names:
        got = enumeration(map(repr, map(level_of, left)))
        raise _unknown(f"column {column} of {who}", list(map(level_of, names)), got)
    # Any indicator shows where a value is missing, because NaN times 0 is NaN.
    found = {name: _sum(rows, there[:1]) * 0.0 for name in names if name not in there}
    if left:
        found[rest] = _sum(rows, [*left, *(name for name in there if name == rest)])
    return found


def _sum(rows: Table, names: Sequence[str]) -> Array:
    if not names:  # No row has a value.
        return np.full(len(rows), np.nan)
    return np.asarray(np.sum(_dense(rows, names), axis=1, dtype=np.float64))


def _unknown(where: str, levels: Sequence[str], got: str) -> DataError:
    return DataError(
        f"The levels of {where} are {enumeration(levels)}, but its rows also have {got}. Correct the rows, or run "
        f"with the level {OTHER!r}."
    )
