"""Public ranges of columns: between which values each lies, by common knowledge and not by the
rows.

They are written "age=18..100,weight=30..200", or stand in a file, a line "age,18,100" for each
column. A run with noise counts each column in halves of its range from the middle on, so that units
need no look at the rows.
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
from flower_pca.base.labels import clean, shorten
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown, with_article

Ranges: TypeAlias = tuple[tuple[str, float, float], ...]
AsGiven: TypeAlias = "Mapping[str, Sequence[float]] | Iterable[Sequence[Any]] | str | os.PathLike[str]"

_HOW: Final = 'Write "age=18..100,weight=30..200", {"age": (18, 100)}, or the name of a file of lines age,18,100.'


def of(given: AsGiven) -> Ranges:
    """Names with lower and upper ends, from a mapping, from text, or from a file."""
    found = []
    for name, *ends in _lines(given):
        try:
            low, high = map(float, ends)
        except (TypeError, ValueError):
            raise _wrong(name, ends) from None
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise _wrong(name, ends)
        found.append((clean(str(name)), low, high))
    names = [name for name, *_ in found]
    if not names or len(set(names)) < len(names):
        fault = "A column has two ranges." if names else "No column has a range."
        raise ConfigError(f"{fault} {_HOW}")
    return tuple(found)


def halves(ranges: Ranges, columns: Sequence[str]) -> tuple[Array, Array]:
    """The middle of each column's range, and half its length."""
    ends = {name: (low, high) for name, low, high in ranges}
    low, high = np.array([ends[name] for name in columns]).T
    return (low + high) / 2.0, (high - low) / 2.0


def _lines(given: AsGiven) -> Iterator[Sequence[Any]]:
    if isinstance(given, Mapping):
        yield from ((name, *ends) for name, ends in given.items())
    elif isinstance(given, str) and "=" in given:
        for part in given.split(","):
            # The last one: a column that is made of words has one in its name, ward=surgery.
            name, _, ends = part.rpartition("=")
            yield name.strip(), *ends.split("..")
    elif isinstance(given, str | os.PathLike):
        checks.path_of("the ranges", given)
        yield from _of_file(Path(given).expanduser())
    else:
        yield from given


def _of_file(path: Path) -> Sequence[Sequence[str]]:
    try:
        # Excel writes a byte-order mark, which would belong to the first name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The ranges cannot be read from {path}: {error}. {_HOW}") from None
    if lines and lines[0][1:] == ["low", "high"]:  # a heading, as a table has it
        return lines[1:]
    return lines


def _wrong(name: object, ends: Sequence[object]) -> ConfigError:
    if not isinstance(name, str):
        return ConfigError(
            f"Each range of a column needs the name of the column, not {with_article(type(name).__name__)}. {_HOW}"
        )
    got = "..".join(end.strip() if isinstance(end, str) else shown(end) for end in ends) or "nothing"
    if len(ends) > 2:  # Such a text may be a row of data.
        got = f"{len(ends)} values"
    return ConfigError(
        f"The range of column {shorten(name, 60)} must be two numbers, the lower first. Got {got}. {_HOW}"
    )
