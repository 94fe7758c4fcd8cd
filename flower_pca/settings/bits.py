"""The number of bits of blocks and products on the network, and the tolerances that they allow."""

from __future__ import annotations

from typing import Final

BITS: Final = {"float64": 64, "float32": 32, "float16": 16}
# For each number of bits, this table gives the smallest tolerance for which the number is accurate enough.
FLOORS: Final = {64: 0.0, 32: 1e-7, 16: 1e-3}
# For each number of bits, this table gives the largest relative rounding error of a number.
ROUNDING: Final = {64: 0.0, 32: 2.0**-25, 16: 2.0**-12}


def fewest_bits(tol: float) -> int:
    """Return the smallest number of bits that is accurate enough for a tolerance."""
    return min(bits for bits, least in FLOORS.items() if tol >= least)


def fewest_bits_within(allowed: float) -> int:
    """Return the smallest number of bits with a relative rounding error of at most `allowed`."""
    return min(bits for bits, error in ROUNDING.items() if error <= allowed)


def why_bits(bits: int, tol: float | None) -> str:
    """Return a text about the number of bits that `wire="auto"` has chosen, with the reason."""
    if tol is None:
        return f"wire uses float{bits}, because without a tolerance fewer bits cannot be justified"
    fewer = "" if bits == min(FLOORS) else ", and still fewer in messages with more room for rounding"
    return f"wire uses float{bits}, the fewest bits that allow tol={tol:g}{fewer}"
