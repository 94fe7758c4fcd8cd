"""Read public ranges of columns: lower and upper limits that are common knowledge and do not come from the rows.

Ranges are written as "age=18..100,weight=30..200", or in a file with a line "age,18,100" for each column. A run with
differential privacy subtracts the middle of its range from each column and divides by half the length of the range. So
it can balance units without using the rows.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import clean_name, shorten
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown, with_article

Ranges: TypeAlias = tuple[tuple[str, float, float], ...]
AsGiven: TypeAlias = "Mapping[str, Sequence[float]] | Iterable[Sequence[Any]] | str | os.PathLike[str]"

_HOW: Final = (
    'For example, write "age=18..100,weight=30..200" or {"age": (18, 100)}, or name a file with lines such as '
    "age,18,100."
)


def read_ranges(ranges: AsGiven) -> Ranges:
    """Return the names of columns with the lower and upper ends of their ranges, from a mapping, a text or a file.

    Raises
    ------
    ConfigError
        If a range is invalid, if a column has two ranges, or if there is no range.
    """
    found = []
    for name, *ends in _lines_of(ranges):
        try:
            low, high = map(float, ends)
        except (TypeError, ValueError):
            raise _invalid_range(name, ends) from None
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise _invalid_range(name, ends)
        found.append((clean_name(str(name)), low, high))
    names = [name for name, *_ in found]
    if not names or len(set(names)) < len(names):
        fault = "A column has two ranges." if names else "No column has a range."
        raise ConfigError(f"{fault} {_HOW}")
    return tuple(found)


def middles_and_half_lengths(ranges: Ranges, columns: Sequence[str]) -> tuple[Array, Array]:
    """Return the middle and half the length of each column's range."""
    ends = {name: (low, high) for name, low, high in ranges}
    low, high = np.array([ends[name] for name in columns]).T
    return (low + high) / 2.0, (high - low) / 2.0


def _lines_of(ranges: AsGiven) -> Iterator[Sequence[Any]]:
    if isinstance(ranges, Mapping):
        yield from ((name, *ends) for name, ends in ranges.items())
    elif isinstance(ranges, str) and "=" in ranges:
        for part in ranges.split(","):
            # Split at the last =, because the name of an indicator column such as ward=surgery contains a =.
            name, _, ends = part.rpartition("=")
            yield name.strip(), *ends.split("..")
    elif isinstance(ranges, str | os.PathLike):
        checks.require_path("the ranges", ranges)
        yield from _lines_of_file(Path(ranges).expanduser())
    else:
        yield from ranges


def _lines_of_file(path: Path) -> Sequence[Sequence[str]]:
    try:
        # Excel writes a byte-order mark, which must not become part of the first name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The ranges cannot be read from {path}: {error}. {_HOW}") from None
    if lines and lines[0][1:] == ["low", "high"]:  # The first line is a heading.
        return lines[1:]
    return lines


def _invalid_range(name: object, ends: Sequence[object]) -> ConfigError:
    if not isinstance(name, str):
        return ConfigError(
            f"Each range of a column needs the name of the column, not {with_article(type(name).__name__)}. {_HOW}"
        )
    got = "..".join(end.strip() if isinstance(end, str) else shown(end) for end in ends) or "nothing"
    if len(ends) > 2:  # The values may be a row of data, which a message must not show.
        got = f"{len(ends)} values"
    return ConfigError(
        f"The range of column {shorten(name, 60)} must be two numbers, the lower first, not {got}. {_HOW}"
    )
