"""Remove hints that repeat what another hint says about the same column and site."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_UNITS: Final = re.compile(r"(?:column )?(?P<column>.+) looks as if (?P<site>.+) had other units: ", re.IGNORECASE)
_FAR: Final = re.compile(r"The (?:mean|standard deviation) of column (?P<column>.+) at (?P<site>.+?) (?:lies|is) \d")


def without_repeated_hints(hints: Iterable[str]) -> tuple[str, ...]:
    """Return the hints, except for hints about a mean or standard deviation that a hint about units explains."""
    every = tuple(hints)
    units = {_column_and_site(found) for found in map(_UNITS.match, every) if found}
    far = {hint: _column_and_site(found) for hint in every if (found := _FAR.match(hint))}
    return tuple(hint for hint in every if far.get(hint) not in units)


def _column_and_site(hint: re.Match[str]) -> tuple[str, str]:
    return hint["column"].casefold(), hint["site"]
