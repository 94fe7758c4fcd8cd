"""Draw Gaussian noise, and add it to numbers rounded to a grid, so that no last digit reveals the number.

A float has digits far below the noise. If a number is 0 except for one row, its last digits are those
of the noise alone without the row, and others with the row. So a single message can show that a row is
missing (Mironov, "On significance of the least significant bits for differential privacy", 2012).
Therefore a client sends multiples of `step_of(deviation)`, the largest power of two of at most 2^-10 of
the deviation, for any number. `add_noise` splits the number into whole steps and a rest, neither of
which loses a digit, adds the noise to the rest, and rounds.

Cost. Rounding only processes the output of the Gaussian mechanism, so `dp.gaussian` holds unchanged,
and the step needs no share of the budget. Two differences from an ideal draw remain:

- Digits: a normal number is off by at most 2^-45 of the deviation, by the rounding of logarithm, root
and cosine. The probability of an interval of one step, which is at least 2^-11 of the deviation, then
changes by a factor of at most 1 + 2^-33, so each number sent adds at most 2^-32 to epsilon: 4e-6 for
784 x 20 numbers. - Tails: the radius comes from 192 random bits, and ends at 16.3 deviations. An ideal
draw lies beyond 14.8 deviations, where fewer than 2^34 values of the radius are left, with a
probability of 2^-158. This probability times the numbers sent is the smallest possible delta. Values
below 1e-30 are refused.

If clients share the noise of a sum, each rounds its own numbers. Next to noise of 2^10 steps, the
rounding errors of the others are independent of the numbers, up to exp(-2 pi^2 2^20), so they only add
to the noise.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.bits import Bits
from flower_pca.base.linalg import Array

FINER: Final = 10  # a step is 2 to the power of minus this, relative to the noise
# The most steps of a number, because steps are whole numbers of 64 bits
_WHOLE: Final = 2.0**62
_DRAWN: Final = 2**16  # numbers drawn at a time
_RARE: Final = 2.0**-20  # below this, a uniform number of 64 bits has too few digits
_NEVER: Final = 2.0**-193  # replaces a uniform random number of 0
_LEAST: Final = -1022  # the least exponent of a step, because smaller floats have fewer digits


def normals(shape: tuple[int, ...], bits: Bits) -> Array:
    """Draw independent N(0, 1) numbers from random bits (Box and Muller), with 192 bits for a large radius."""
    drawn: Array = np.empty(math.prod(shape))
    for i in range(0, len(drawn), _DRAWN):
        part = drawn[i : i + _DRAWN]
        part[:] = _normals(len(part), bits)
    return drawn.reshape(shape)


def _normals(count: int, bits: Bits) -> Array:
    words = bits(2 * count).reshape(2, -1)
    uniform = ~words[0] * 2.0**-64
    rare = uniform < _RARE
    more = bits(2 * int(rare.sum())).reshape(2, -1)
    uniform[rare] += more[0] * 2.0**-128 + more[1] * 2.0**-192 + _NEVER
    fraction = (words[1] >> np.uint64(11)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform))
    return np.asarray(radius * np.cos(2.0 * np.pi * fraction))


def step_of(deviation: float) -> float:
    """Return the step of the grid for noise of this deviation. For tiny noise, it is the least possible step."""
    return math.ldexp(1.0, max(math.frexp(deviation)[1] - 1 - FINER, _LEAST))


def add_noise(a: Array, deviation: float, bits: Bits) -> Array:
    """Add independent Gaussian noise of this deviation. Each result is a whole number of steps."""
    step = step_of(deviation)
    # Except for overflow, the division is exact, because the step is a power of two.
    with np.errstate(over="ignore"):
        in_steps = np.asarray(a, dtype=np.float64) / step
        steps = np.clip(in_steps, -_WHOLE, _WHOLE)
    # Noise is added to the rest, because next to 2^53 or more steps its digits would be rounded away.
    whole = np.floor(steps)
    noise = deviation / step * normals(np.shape(a), bits)
    rest = np.rint(steps - whole + noise)
    total = whole.astype(np.int64) + rest.astype(np.int64)
    return np.asarray(total * step)
