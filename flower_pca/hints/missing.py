"""Numbers that stand for a missing value: codes such as -999, and zeros among values far from 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.hints.sites import LEAST, MANY, Look

# codes below are measurements as well: they have to be there twice, or to be alone in being
# negative
_OFTEN: Final = 900.0
# A share of the others' spread: a single negative value that is repeated lies further away than this.
_NEARER: Final = 0.25
_REPEATED: Final = [sign * digit * (10.0**k - 1) / 9 for digit in (7, 8, 9) for k in range(2, 7) for sign in (1, -1)]
# Codes that files use for missing values.
_CODES: Final = np.array([*np.rint(_REPEATED), -1.0, -9.0, 99.9, 999.9, -99.9, -32768.0, 2.0**31 - 1])


def sentinels(look: Look) -> Iterator[str]:
    """Values such as -999, further from all others of their column than these are apart."""
    for j in np.flatnonzero(np.isin(look.low, _CODES) | np.isin(look.high, _CODES)).tolist():
        for code in _codes_of(np.sort(look.values(j))):
            yield look.no_measurement(j, code, "far from all other values")


def _codes_of(values: Array) -> list[float]:
    """Those at the ends of sorted values that stand far from the rest."""
    codes: list[float] = []
    # Each end twice: beside one code there may be another.
    for end in (0, -1, 0, -1):
        code = values[end]
        rest = values[values != code]
        if code in _CODES and len(rest) >= LEAST and _is_far(code, rest, again=len(values) - len(rest) > 1):
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
    # In a column of few different values, -1 may be one of them.
    return bool(far) and (code != -1.0 or len(np.unique(rest)) >= MANY)


def zeros(look: Look) -> Iterator[str]:
    """Zeros in a column whose other values lie together, far from 0: no blood pressure is 0."""
    for j in np.flatnonzero(look.low == 0.0).tolist():
        values = look.values(j)
        rest = values[values != 0.0]
        if len(rest) < max(2 * LEAST, len(values) / 2) or len(np.unique(rest)) < MANY:
            continue
        lower, middle, upper = np.quantile(rest, [0.25, 0.5, 0.75])
        if rest.min() > max(0.3 * middle, upper - lower):
            yield look.no_measurement(j, 0.0, f"and no other value below {rest.min():g}")
