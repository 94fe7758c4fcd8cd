"""Gaussian noise on numbers that are rounded to a grid, so that the last digits of the sum reveal nothing.

A float has digits far below the noise. Suppose that a number is 0 without a certain row. Without the
row, the last digits of the sum are those of the noise alone. With the row, they differ. So a single
message can show whether the row is in the data (Mironov, "On significance of the least significant bits
for differential privacy", 2012).
Therefore a client sends only multiples of `step_of(deviation)`, the largest power of two that is at most
2^-10 of the deviation. `add_noise` splits each number into whole steps and a rest without losing a
digit, adds the noise to the rest, and rounds.

Rounding only processes the output of the Gaussian mechanism, so `dp.gaussian` holds unchanged, and
rounding costs no part of the budget. Two differences from an ideal draw remain:

- Digits: a normal number has an error of at most 2^-45 of the deviation, from rounding of logarithm, root
  and cosine. The probability of an interval of one step, which is at least 2^-11 of the deviation, then
  changes by a factor of at most 1 + 2^-33, so each number sent adds at most 2^-32 to epsilon: 4e-6 for
  784 x 20 numbers.
- Tails: the radius comes from 192 random bits, and ends at 16.3 deviations. Beyond 14.8 deviations, fewer
  than 2^34 values of the radius are left. An ideal draw is beyond 14.8 deviations with a probability of
  2^-158. This probability times the number of numbers sent is the smallest possible delta. `DP` refuses a
  delta below 1e-30.

If clients share the noise of a sum, each client rounds its own numbers. With noise of 2^10 steps, the
rounding errors of the other clients are independent of the numbers, up to exp(-2 pi^2 2^20), so they
only add to the noise.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.bits import Bits
from flower_pca.base.linalg import Array

FINER: Final = 10  # the step of the grid is at most 2^-FINER of the deviation of the noise
# The most steps of a number, because the number of steps is a 64-bit integer
_WHOLE: Final = 2.0**62
_DRAWN: Final = 2**16  # numbers drawn at a time
_SMALL_UNIFORM: Final = 2.0**-20  # below this, a uniform number of 64 bits has too few digits
_SMALLEST_UNIFORM: Final = 2.0**-193  # replaces a uniform random number of 0
_LEAST: Final = -1022  # the least exponent of a step, because smaller floats have fewer digits


def normals(shape: tuple[int, ...], bits: Bits) -> Array:
    """Return independent N(0, 1) numbers from random bits (Box and Muller), with 192 bits for a large radius."""
    drawn: Array = np.empty(math.prod(shape))
    for i in range(0, len(drawn), _DRAWN):
        part = drawn[i : i + _DRAWN]
        part[:] = _normals(len(part), bits)
    return drawn.reshape(shape)


def _normals(count: int, bits: Bits) -> Array:
    words = bits(2 * count).reshape(2, -1)
    uniform = ~words[0] * 2.0**-64
    rare = uniform < _SMALL_UNIFORM
    more = bits(2 * int(rare.sum())).reshape(2, -1)
    uniform[rare] += more[0] * 2.0**-128 + more[1] * 2.0**-192 + _SMALLEST_UNIFORM
    fraction = (words[1] >> np.uint64(11)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform))
    return np.asarray(radius * np.cos(2.0 * np.pi * fraction))


def step_of(deviation: float) -> float:
    """Return the step of the grid for noise of this deviation. For tiny noise, it is the smallest allowed step."""
    return math.ldexp(1.0, max(math.frexp(deviation)[1] - 1 - FINER, _LEAST))


def add_noise(a: Array, deviation: float, bits: Bits) -> Array:
    """Return an array plus independent Gaussian noise of this deviation. Each result is a whole number of steps."""
    step = step_of(deviation)
    # Except for overflow, the division is exact, because the step is a power of two.
    with np.errstate(over="ignore"):
        in_steps = np.asarray(a, dtype=np.float64) / step
        steps = np.clip(in_steps, -_WHOLE, _WHOLE)
    # Noise is added to the rest, because a sum of 2^53 or more steps would lose the digits of the noise.
    whole = np.floor(steps)
    noise = deviation / step * normals(np.shape(a), bits)
    rest = np.rint(steps - whole + noise)
    total = whole.astype(np.int64) + rest.astype(np.int64)
    return np.asarray(total * step)
