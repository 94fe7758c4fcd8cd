"""Gaussian noise, and numbers with it: rounded to a grid, so that no last digit tells what was there
before.

A float has digits far below the noise. Of a number that is 0 but for one row they are those of the
noise alone, and with the row they are not: one message can show that a row is missing (Mironov, "On
significance of the least significant bits for differential privacy", 2012). So what leaves a client
is a multiple of `step_of(deviation)`, the largest power of two of at most 2^-10 of the deviation,
whatever the number is: `add_noise` splits it into whole steps and a rest, neither of which loses a
digit, adds the noise to the rest, and rounds.

What that costs. To round is to process what the Gaussian mechanism has given, so `dp.gaussian`
holds as it stands, and the step needs no share of the budget. What is left are two ways in which a
draw here is no ideal one:

- its digits: a normal number is off by at most 2^-45 of the deviation, by the roundings of
  logarithm, root and cosine. An interval of a step, 2^-11 of the deviation at least, is then more
  or less likely by a factor of 1 + 2^-33 at most, so that a number sent adds at most 2^-32 to
  epsilon: 4e-6 for 784 x 20 numbers;
- its tails: the radius comes from 192 random bits, and ends at 16.3 deviations. Beyond 14.8, where
  fewer than 2^34 of its values are left, an ideal draw is found with a probability of 2^-158: this,
  times the numbers sent, is what delta cannot be below. Nobody is let ask for less than 1e-30.

Where clients share the noise of a sum, each rounds its own numbers. Next to noise of 2^10 steps the
roundings of the others are independent of all they are added to, but for exp(-2 pi^2 2^20), so they
only add to the noise.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.bits import Bits
from flower_pca.base.linalg import Array

FINER: Final = 10  # bits by which a step is finer than the deviation of the noise
# The steps that a number is cut off at, because steps are whole numbers of 64 bits.
_WHOLE: Final = 2.0**62
_DRAWN: Final = 2**16  # numbers that are drawn at a time
_RARE: Final = 2.0**-20  # below it a uniform number of 64 bits has too few digits
_NEVER: Final = 2.0**-193  # Stands for a uniform random number of 0.
_LEAST: Final = -1022  # exponent of a step; below it a float has fewer digits


def normals(shape: tuple[int, ...], bits: Bits) -> Array:
    """Independent N(0, 1) numbers from random bits (Box and Muller); 192 for a large radius."""
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
    """The step of the grid for numbers with noise of this deviation; of noise below all numbers, the least one."""
    return math.ldexp(1.0, max(math.frexp(deviation)[1] - 1 - FINER, _LEAST))


def add_noise(a: Array, deviation: float, bits: Bits) -> Array:
    """Numbers with independent Gaussian noise of this deviation, each a whole number of steps."""
    step = step_of(deviation)
    # exact but for that, as the step is a power of two
    with np.errstate(over="ignore"):
        in_steps = np.asarray(a, dtype=np.float64) / step
        steps = np.clip(in_steps, -_WHOLE, _WHOLE)
    # Noise is added to the rest: beside 2^53 steps or more its own digits would be rounded away.
    whole = np.floor(steps)
    noise = deviation / step * normals(np.shape(a), bits)
    rest = np.rint(steps - whole + noise)
    total = whole.astype(np.int64) + rest.astype(np.int64)
    return np.asarray(total * step)
