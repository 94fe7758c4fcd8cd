"""Code columns of words (categorical columns) as indicator columns, one for each level.

A column of words such as ward, sex or diagnosis becomes an indicator column for each of its levels. The column
`ward=surgery` is 1 in rows with the level surgery and 0 in all other rows. If a run names indicator columns of ward,
every site with the column ward provides them, with zeros for levels that the site does not have. So sites exchange
levels as names of columns, and everything that works with numeric columns works with levels.

    read_levels        checks the levels that a caller gives
    plain_levels       returns levels as plain values that can be written to a file
    Coding             holds the levels of a run, and the indicator columns that they become
    levels_in          returns the levels of a column at a site
    code               adds the indicators of a site's levels to its rows, and merges rare levels
    source_of          returns the column of words from which an indicator is made
    expand             replaces each column of words in the columns of a run by its indicators
    grown              adds the columns that a run names and that the rows do not have yet

A site may hide levels of fewer than `least` rows. It then counts the rows of these levels as "other". If all of these
rows together are fewer than `least`, it counts them as the most common level. The result depends only on the rows of
the site, and not on the run. So whatever levels two runs name, their answers differ by sums over at least `least` rows.
If a run names only some levels and "other", the rows of all further levels count as "other". If it does not name
"other", an error names the missing level.
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
from flower_pca.base.labels import clean_name, is_missing
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import kind_of_cell, reads_as_number, shown
from flower_pca.names.columns import LONGEST, describe_duplicates, enumeration
from flower_pca.names.ids import as_text
from flower_pca.names.table import Table

AsGiven: TypeAlias = "str | Sequence[str] | Mapping[str, Sequence[str] | None]"
Levels: TypeAlias = tuple[
    tuple[str, tuple[str, ...] | None], ...
]  # The levels of each column of words. None means all levels that occur.

OTHER: Final = "other"
SIGN: Final = "="
# Spaces, hyphens and underscores beside a letter and between word characters may differ between two spellings of the
# same level. The minus of -1 or Rh- and the hyphen of 1-2 do not match.
_BETWEEN: Final = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=\w)|(?<=\w)[\s_-]+(?=[^\W\d_])")
# A column of True and False is read as numbers at a site where no cell is missing.
_TRUTH: Final = {"true": "1", "false": "0"}
_NUMBER: Final = re.compile(r"[-+\d.,'eE\s]+")  # This pattern matches numbers of every dialect.
_EXAMPLE: Final = (
    f"Write {option('categorical', ['ward'])}, or {option('categorical', {'ward': ['surgery', 'medicine']})}."
)


def read_levels(levels: Any) -> Levels | None:
    """Return the columns of words that a caller names, each with its levels or None. Return None if `levels` is None.

    Parameters
    ----------
    levels
        The names of the columns, as a list or a text with commas, or a mapping from each name to its levels or None.
    """
    if levels is None:
        return None
    pairs = _columns_and_levels(levels)
    if not pairs or not all(isinstance(name, str) and name for name, _ in pairs):
        raise ConfigError(
            f"{option('categorical')} must be a list of column names, not {shown(levels)}. {_EXAMPLE}",
            setting="categorical",
        )
    found = tuple((clean_name(name), _levels_of(name, some)) for name, some in pairs)
    if twice := describe_duplicates(name for name, _ in found):
        raise ConfigError(f"{option('categorical')} has {twice}. Name each column once.", setting="categorical")
    for name, _ in found:
        if SIGN in name:
            raise ConfigError(
                f"The name of the column {shown(name)} contains {SIGN!r}, which separates a column from its level. "
                "Rename the column."
            )
    return found


def _columns_and_levels(levels: Any) -> list[tuple[Any, Any]]:
    if isinstance(levels, str):
        return [(name, None) for name in levels.split(",")]
    if isinstance(levels, Mapping):
        return list(levels.items())
    if isinstance(levels, list | tuple | np.ndarray):
        return [tuple(one) if isinstance(one, list | tuple) else (one, None) for one in levels]
    return []


def _levels_of(column: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    levels: list[str | None] = []
    if isinstance(value, list | tuple | np.ndarray):
        levels = [cell_as_level(level) for level in value]
        gaps = [level for level in value if isinstance(level, str) and is_missing(level)]
        if gaps:
            raise ConfigError(
                f"{shown(gaps[0])} stands for a missing value, so it cannot be a level of {column}. Leave it out of "
                "the levels."
            )
    if not levels or None in levels:
        raise ConfigError(f"The levels of {column} must be a list of texts, not {shown(value)}. {_EXAMPLE}")
    texts = tuple(map(str, levels))
    if twice := describe_duplicates(texts):
        raise ConfigError(f"The list of levels of {column} has {twice}. Name each level once.")
    return texts


def plain_levels(levels: Levels) -> dict[str, list[str] | None]:
    """Return a dictionary from columns to levels, whose plain values can be written to a file."""
    found: dict[str, list[str] | None] = dict.fromkeys(name for name, _ in levels)
    return found | {name: list(some) for name, some in levels if some is not None}


def indicator_name(column: str, level: str) -> str:
    """Return the name of the indicator column of a level."""
    return f"{column}{SIGN}{level}"


def source_of(name: str) -> str:
    """Return the column of words to which this indicator belongs, or "" if the column is not an indicator."""
    return name[: max(name.find(SIGN), 0)]


def level_of(name: str) -> str:
    """Return the level that this indicator represents."""
    return name.partition(SIGN)[2]


def _level_in_cells(name: str) -> str:
    """Return the level that this indicator represents, as `cell_as_level` returns it: 1 for v=1.0 and for sex=True."""
    level = level_of(name)
    return cell_as_level(level) or level


def indicators_of(names: Iterable[str], column: str) -> list[str]:
    """Return the names of the indicators that belong to a column of words."""
    return [name for name in names if source_of(name) == column]


def warn_of_alike(column: str, levels: Iterable[str]) -> None:
    """Warn if two levels of a column differ only in capitals, spaces, hyphens or underscores."""
    spelt: dict[str, list[str]] = {}
    for level in levels:
        spelt.setdefault(_BETWEEN.sub("", level).casefold(), []).append(level)
    alike = next((several for several in spelt.values() if len(several) > 1), None)
    if alike:
        warnings.warn(
            f"The levels {enumeration(alike)} of {column} differ only in capitals, spaces or hyphens. If they mean the "
            "same, use the same spelling, and run again.",
            UserWarning,
            stacklevel=3,
        )


def sorted_levels(levels: Iterable[str]) -> tuple[str, ...]:
    """Return levels in sorted order, with "other" last."""
    return tuple(sorted(set(levels), key=lambda level: (level == OTHER, level)))


def cell_as_level(value: Any) -> str | None:
    """Return a cell as a level, or None for a missing value."""
    text = _text_of_cell(value)
    return text and _TRUTH.get(text.lower(), text)


def _text_of_cell(value: Any) -> str | None:
    if is_missing(value):
        return None
    return clean_name(as_text(value)) or None  # `as_text` turns 1.0 into 1, because missing values make codes floats.


def are_few(cells: Iterable[Any]) -> bool:
    """Return whether most cells are words, and each level occurs in at least two rows on average."""
    there = [cell for cell in map(_text_of_cell, cells) if cell is not None]
    words = [cell for cell in there if not _NUMBER.fullmatch(cell)]
    return 2 * len(words) > len(there) >= 2 * len(set(there))


@dataclass(frozen=True)
class Coding:
    """The columns of words that a run codes as indicators, each with its levels, or None for all levels that occur."""

    field: ClassVar[str] = "categorical"  # the setting that names the columns of words

    value: Levels

    @property
    def words(self) -> tuple[str, ...]:
        """The names of the columns of words."""
        return tuple(name for name, _ in self.value)

    @property
    def new_columns(self) -> tuple[str, ...]:
        """The names of the indicators of all listed levels."""
        return self.with_indicators(())

    @property
    def is_known(self) -> bool:
        """Whether the levels of all columns are listed."""
        return all(some is not None for _, some in self.value)

    def with_indicators(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the columns of a run, with each column of words replaced by the indicators of its listed levels.

        The indicators of columns of words that are not among `columns` come last.
        """
        known = {name: [indicator_name(name, level) for level in some or ()] for name, some in self.value}
        named = (
            indicator_name(word, _level_in_cells(name)) if (word := source_of(name)) in known else name
            for name in columns
        )
        found = chain.from_iterable(known.get(name, [name]) for name in (*named, *known))
        return tuple(dict.fromkeys(found))

    def levels_at_site(self, rows: Table, who: str) -> dict[str, tuple[str, ...]]:
        """Return the levels that occur at a site, by column of words."""
        return {name: levels_in(rows, name, who) for name in self.words}

    def levels_among(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the levels that have indicators among these names of columns, by column of words."""
        there = list(names)
        return {word: list(map(level_of, indicators_of(there, word))) for word in self.words}

    def with_levels_of_sites(self, sites: Sequence[Mapping[str, Iterable[str]]]) -> Coding:
        """Return the coding of a run. A column for which the caller listed no levels gets the levels of all sites.

        Raises
        ------
        DataError
            If the caller listed no levels of a column, and no site sent levels of this column.
        """
        found: list[tuple[str, tuple[str, ...]]] = []
        for column, some in self.value:
            there = some or sorted_levels(level for site in sites for level in site.get(column, ()))
            if not there:
                raise DataError(
                    f"No site sent levels of column {column}. Ask the operators of the sites to add the column to "
                    "their rule categorical, or leave the column out."
                )
            if not some:
                warn_of_alike(column, there)
            found.append((column, tuple(there)))
        return Coding(tuple(found))

    def with_plain_values(self, value: Any) -> Coding:
        """Return the coding with these plain values, which were read from a file."""
        return Coding(read_levels(value) or ())


# The following functions work on the rows of one site.


def levels_of_rows(rows: Table, column: str, who: str = "the rows") -> list[str | None]:
    """Return the level of each row in a column of words or numeric codes, or None for a missing value."""
    if column in rows.texts:
        cells = rows.texts[column]
    elif column in (rows.names or ()):
        cells = _dense_columns(rows, [column])[:, 0]
    else:
        raise DataError(
            f"There is no column {column!r} in {rows.source or rows.site or who}. Check {option('categorical')}."
        )
    return list(map(cell_as_level, cells.tolist()))


def _dense_columns(rows: Table, names: Iterable[str]) -> Array:
    """Return the columns with these names as a dense array."""
    known = rows.names or ()
    part = rows.values[:, [known.index(name) for name in names]]
    if hasattr(part, "toarray"):
        part = part.toarray()
    return np.asarray(part)


def levels_in(rows: Table, column: str, who: str = "the rows") -> tuple[str, ...]:
    """Return the levels of a column in sorted order, with "other" last.

    Raises
    ------
    DataError
        If every row has a different level, or if a level is too long to be sent.
    """
    cells = levels_of_rows(rows, column, who)
    found = sorted_levels(cell for cell in cells if cell is not None)
    if len(found) > 1 and len(found) == len(cells):
        raise DataError(
            f"Every row has a different level in column {column} of {rows.source or rows.site or who}, which looks "
            "like an identifier. Leave it out."
        )
    if long := [level for level in found if len(indicator_name(column, level)) > LONGEST]:
        raise DataError(
            f"A level of column {column} has {len(long[0])} characters, but the name of the column and the level may "
            f"have at most {LONGEST} characters together. Leave the column out, or shorten its levels."
        )
    return found


def code_columns(rows: Table, columns: Sequence[str], *, least: int, who: str = "the rows") -> Table:
    """Return the rows with an indicator column for each level. Levels of fewer than `least` rows are merged."""
    if not columns:
        return rows
    parts: dict[str, Array] = {}
    for column in columns:
        levels_in(rows, column, who)
        cells = _merge_rare_levels(levels_of_rows(rows, column, who), least)
        for level in sorted_levels(cell for cell in cells if cell is not None):
            parts[indicator_name(column, level)] = _indicator_values(cells, {level})
    spare = {name: words for name, words in rows.words.items() if name not in columns}
    return replace(with_columns(rows.without([*columns]), parts), words=spare, texts={}, coded=tuple(columns))


def _merge_rare_levels(cells: list[str | None], least: int) -> list[str | None]:
    """Return the cells with rare levels merged into "other", or into the most common level if "other" is rare, too."""
    counts = Counter(cell for cell in cells if cell is not None)
    rare = {level for level, count in counts.items() if count < least}
    if not rare:
        return cells
    into = OTHER
    # If a site already has a level called "other", its rows count as "other", too.
    together = sum(counts[level] for level in rare | {OTHER})
    if together < least and len(rare) < len(counts):
        # Sorting breaks ties between equally common levels by name, so the order of rows does not matter.
        into = max(sorted(counts), key=counts.__getitem__)
    return [into if cell in rare else cell for cell in cells]


def _indicator_values(cells: Iterable[str | None], levels: set[str]) -> Array:
    """Return 1 for cells with one of these levels, 0 for cells with another level, and NaN for missing values."""
    return np.array([np.nan if cell is None else float(cell in levels) for cell in cells])


def with_columns(rows: Table, columns: Mapping[str, Array]) -> Table:
    """Return the rows with additional columns, which replace columns of the same name."""
    if not columns:
        return rows
    others = rows.without(columns)
    values = others.values
    more = np.column_stack(list(columns.values()))
    if values.dtype.kind == "f":
        # Use the same precision, because stacking would convert rows of single precision to double precision.
        more = more.astype(values.dtype)
    if hasattr(values, "tocsr"):
        from scipy import sparse

        both: list[Any] = [values, sparse.csr_array(more)]
        values = sparse.csr_array(sparse.hstack(both))
    else:
        values = np.hstack([values, more])
    names = (*(others.names or ()), *columns)
    return replace(others, values=values, names=names, made=rows.made | {*columns})


def missing_indicators(rows: Table, wanted: Sequence[str], who: str = "the rows") -> dict[str, Array]:
    """Return the values of the wanted indicators that the rows do not have as columns, by name.

    Parameters
    ----------
    rows : Table
        Rows that have been coded, or rows with columns of words.
    wanted : sequence of str
        The columns of a run.
    who : str, default="the rows"
        The owner of the rows, for messages.

    Raises
    ------
    DataError
        If a row has a level that the run does not have, and the run has no level "other".
    """
    found: dict[str, Array] = {}
    for column in filter(None, dict.fromkeys(map(source_of, wanted))):
        names = indicators_of(wanted, column)
        if column in rows.coded:
            found |= _indicators_of_coded_rows(rows, column, names, who)
        # A numeric column may hold codes, which become levels like words.
        elif column in rows.texts or (column in (rows.names or ()) and not set(names) <= set(rows.names or ())):
            found |= _indicators_of_words(rows, column, names, who)
    return found


def expand_columns(names: Iterable[str], *, names_in_data: Iterable[str], words: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a run, with each column of words replaced by its indicators in the data."""
    there, coded = list(names_in_data), frozenset(words)
    groups = ([made for made in there if source_of(made) == name] if name in coded else [name] for name in names)
    return tuple(name for group in groups for name in group)


def with_needed_indicators(rows: Table, names: Sequence[str], who: str) -> Table | None:
    """Return the rows with the indicators among these columns added, or None if no column can be added."""
    if not any(map(source_of, names)):
        return None
    made = missing_indicators(rows, names, who)
    if not made:
        return None
    return replace(with_columns(rows, made), texts={}, coded=())


def _indicators_of_words(rows: Table, column: str, names: list[str], who: str) -> dict[str, Array]:
    """Return the values of the indicators with these names, from the words in a column."""
    levels, cells = list(map(_level_in_cells, names)), levels_of_rows(rows, column, who)
    known = [(i, cell) for i, cell in enumerate(cells) if cell is not None]
    strange = [(i, cell) for i, cell in known if cell not in levels]
    if strange and OTHER not in levels:
        row, level = strange[0]
        where = rows.source or rows.site or who
        kind = "a number" if reads_as_number(level) else kind_of_cell(level)
        raise _unknown_level_error(f"column {column} of {where}", levels, f"{kind} in {rows.place(row)}")
    into = {OTHER, *(str(cell) for _, cell in strange)}
    return {
        name: _indicator_values(cells, into if level == OTHER else {level})
        for name, level in zip(names, levels, strict=True)
    }


def _indicators_of_coded_rows(rows: Table, column: str, names: list[str], who: str) -> dict[str, Array]:
    """Return the missing indicators for rows that have already been coded.

    The indicator of "other" includes the levels that the run does not name. If a row has a missing value, all of its
    indicators are missing. A node refuses columns by name, so a column has no second spelling here.
    """
    there = indicators_of(rows.names or (), column)
    left = [name for name in there if name not in names]
    rest = indicator_name(column, OTHER)
    if left and rest not in names:
        got = enumeration(map(repr, map(level_of, left)))
        raise _unknown_level_error(f"column {column} of {who}", list(map(level_of, names)), got)
    # A missing value is NaN in every indicator, and NaN times 0 is NaN.
    found = {name: _sum_of_columns(rows, there[:1]) * 0.0 for name in names if name not in there}
    if left:
        found[rest] = _sum_of_columns(rows, [*left, *(name for name in there if name == rest)])
    return found


def _sum_of_columns(rows: Table, names: Sequence[str]) -> Array:
    if not names:  # The site has no levels, because all values of the column are missing.
        return np.full(len(rows), np.nan)
    return np.asarray(np.sum(_dense_columns(rows, names), axis=1, dtype=np.float64))


def _unknown_level_error(where: str, levels: Sequence[str], got: str) -> DataError:
    return DataError(
        f"In this run, the levels of {where} are {enumeration(levels)}, but its rows also have {got}. Correct the "
        f"rows, or add the level {OTHER!r} to the run."
    )
