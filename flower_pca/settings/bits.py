"""With how many bits blocks and products travel, and the tolerances that so many bits go with."""

from __future__ import annotations

from typing import Final

BITS: Final = {"float64": 64, "float32": 32, "float16": 16}
# The least tolerance that goes with so many bits.
FLOORS: Final = {64: 0.0, 32: 1e-7, 16: 1e-3}


def fewest(tol: float) -> int:
    """The fewest bits that go with a tolerance."""
    return min(bits for bits, least in FLOORS.items() if tol >= least)


def why_bits(bits: int, tol: float | None) -> str:
    """What is said of the bits that "auto" has taken."""
    if tol is None:
        return f"wire took float{bits}, as there is no tolerance that fewer bits would go with"
    return f"wire took float{bits}, the fewest bits that go with tol={tol:g}"
