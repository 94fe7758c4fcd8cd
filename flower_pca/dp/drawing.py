"""Gaussian noise on numbers that are rounded to a grid, so that their low-order bits reveal nothing.

The low-order bits of a float are far smaller than the noise. Suppose that a number is 0 without a certain
row. Without the row, the low-order bits of number plus noise come from the noise alone. With the row, they
can be different. So a single message can show whether the row is in the data (Mironov, "On significance
of the least significant bits for differential privacy", 2012).
Therefore a client sends only multiples of `step_of(deviation)`, the largest power of two that is at most
2^-10 of the deviation. `add_noise` splits each number exactly into whole steps and a rest, adds the noise
to the rest, and rounds.

Rounding only processes the output of the Gaussian mechanism, so `dp.gaussian` holds unchanged, and
rounding costs no part of the budget. Two differences from an ideal draw remain:

- Rounding: the error of a normal number is at most 2^-45 of the deviation, because logarithm, root and
  cosine are rounded. The probability of an interval of one step, which is at least 2^-11 of the deviation,
  then changes by a factor of at most 1 + 2^-33. So each number that is sent adds at most 2^-32 to epsilon,
  for example 4e-6 for 784 x 20 numbers.
- Tails: the radius is computed from 192 random bits, and is at most 16.3 deviations. Above 14.8 deviations,
  fewer than 2^34 values of the radius are possible. The probability that an ideal draw exceeds 14.8
  deviations is 2^-158. This probability times the number of numbers sent is the smallest possible delta.
  `DP` refuses a delta below 1e-30.

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

FINER: Final = 10  # The step of the grid is at most 2^-FINER of the deviation of the noise.
_WHOLE: Final = 2.0**62  # maximum number of steps in a number, because it is stored as a 64-bit integer
_DRAWN: Final = 2**16  # the number of numbers that are drawn at a time
_SMALL_UNIFORM: Final = 2.0**-20  # uniform number below which 64 random bits are not precise enough
_SMALLEST_UNIFORM: Final = 2.0**-193  # a number that is added so that no uniform number is 0
_LEAST: Final = -1022  # minimum exponent of a step, because smaller floats are less precise


def draw_normals(shape: tuple[int, ...], bits: Bits) -> Array:
    """Return independent N(0, 1) numbers, computed from random bits by the Box-Muller method.

    A large radius is computed from 192 bits.
    """
    drawn: Array = np.empty(math.prod(shape))
    for i in range(0, len(drawn), _DRAWN):
        part = drawn[i : i + _DRAWN]
        part[:] = _box_muller(len(part), bits)
    return drawn.reshape(shape)


def _box_muller(count: int, bits: Bits) -> Array:
    words = bits(2 * count).reshape(2, -1)
    uniform = ~words[0] * 2.0**-64
    rare = uniform < _SMALL_UNIFORM
    more = bits(2 * int(rare.sum())).reshape(2, -1)
    uniform[rare] += more[0] * 2.0**-128 + more[1] * 2.0**-192 + _SMALLEST_UNIFORM
    fraction = (words[1] >> np.uint64(11)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform))
    return np.asarray(radius * np.cos(2.0 * np.pi * fraction))


def step_of(deviation: float) -> float:
    """Return the step of the grid for noise of this deviation, but at least the smallest allowed step."""
    return math.ldexp(1.0, max(math.frexp(deviation)[1] - 1 - FINER, _LEAST))


def add_noise(a: Array, deviation: float, bits: Bits) -> Array:
    """Return an array plus independent Gaussian noise of this deviation. Each result is a whole number of steps."""
    step = step_of(deviation)
    # The division is exact unless it overflows, because the step is a power of two.
    with np.errstate(over="ignore"):
        in_steps = np.asarray(a, dtype=np.float64) / step
        steps = np.clip(in_steps, -_WHOLE, _WHOLE)
    # Noise is added to the rest, because a float of 2^53 or more steps cannot represent single steps of the noise.
    whole = np.floor(steps)
    noise = deviation / step * draw_normals(np.shape(a), bits)
    rest = np.rint(steps - whole + noise)
    total = whole.astype(np.int64) + rest.astype(np.int64)
    return np.asarray(total * step)
