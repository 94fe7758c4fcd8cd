"""What a Gaussian mechanism costs: epsilon and delta as exact functions of mu.

delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu): Balle and Wang,
"Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8. Several
mechanisms one after the other, each chosen in the light of the answers before, are one with
mu^2 = sum mu_t^2: Dong, Roth, Su, "Gaussian differential privacy", 2022.

Gaussian noise, and numbers with it: rounded to a grid, so that no last digit tells what was there
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

What a budget leaves to be seen, told before any of it is spent, from sizes that the rows do not
change.

A component is seen where it has more variance than noise alone can give one: see `core.settings`.
The noise on the mean is a part of that: rows that are centred beside their mean all have the same
step to it, a direction of its own.

Rows in halves of their public ranges have a variance of about a ninth in each column: a measurement
spreads over its range by three deviations to either side, where the range is what textbooks say. So
much is a usual column.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.bits import Bits
from flower_pca.base.errors import DataError, Setting, Words
from flower_pca.base.linalg import Array

USUAL: Final = 1.0 / 9.0  # the variance of a usual column, in halves of its range
# times the norm of a usual row, to which rows are clipped: few are as long
SLACK: Final = 1.5


def usual_clip(columns: int) -> float:
    """The norm to which rows in halves of their ranges are clipped, unless another is named."""
    return SLACK * math.sqrt(columns * USUAL)


def longest(columns: int) -> float:
    """The length that a step of so many independent normal numbers hardly passes: by two deviations of its square."""
    return math.sqrt(columns + 2.0 * math.sqrt(2.0 * columns))


@dataclass(frozen=True)
class Outlook:
    """What noise alone can give a component, beside what columns can have.

    Attributes:
        rows, columns, clients: Of the table.
        noise: The sum of squares that noise alone can give a component, in the units of the frame.
        off: Rows times the length of what noise does to their mean, in the same units.
        ranged: Whether columns are counted in halves of their ranges.
    """

    rows: int
    columns: int
    clients: int
    noise: float
    off: float
    ranged: bool

    @property
    def floor(self) -> float:
        """The variance that noise alone can give a component."""
        n = max(self.rows - 1, 1)
        return self.noise / n + (self.off / n) ** 2

    @property
    def moving(self) -> float:
        """As many usual columns have to move as one to be seen."""
        return self.floor / USUAL

    def require(self) -> None:
        """Refuse a budget under which nothing could be seen, though all columns moved as one."""
        if not self.ranged or self.moving < self.columns:
            return
        # noise / n + (off / n)^2 is less from the larger root on
        most = self.columns * USUAL
        root = math.hypot(self.noise, 2.0 * self.off * math.sqrt(most))
        # One row more as the floor has to be below, not at it; and one as variances are over n - 1.
        least = math.ceil((self.noise + root) / (2.0 * most)) + 2
        sizes = f"{labels.count(self.columns, 'column')} at {labels.count(self.clients, 'client')}"
        rule = f"at least {least:,} for {sizes}, as noise else hides all components"
        raise DataError(
            "The rows under this budget",
            must=rule,
            got=f"{self.rows:,}",
            then=Words("Take more rows or a larger epsilon, or share the noise out with ", Setting("mask", True), "."),
        )

    def __str__(self) -> str:
        alone = f"noise alone can give a component a variance of {self.floor:.2g}"
        if not self.ranged:
            return f"With this budget and {labels.count(self.rows, 'row')} {alone}."
        seen = f"so a component shows where it moves {self.moving:.2g} of the {self.columns} columns, or more, as one"
        usual = f"one column that spreads by a sixth of its range has {USUAL:.2g}"
        return f"With this budget and {labels.count(self.rows, 'row')} {alone}, in halves of ranges; {usual}: {seen}."


FINER: Final = 10  # bits by which a step is finer than the deviation of the noise
# steps that a number is cut off at; they are whole numbers of 64 bits
_WHOLE: Final = 2.0**62
_DRAWN: Final = 2**16  # numbers that are drawn at a time
_RARE: Final = 2.0**-20  # below it a uniform number of 64 bits has too few digits
_NEVER: Final = 2.0**-193  # in place of a uniform number of 0
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


_HALVINGS: Final = 200  # more than a float has bits


def delta_of(mu: float, epsilon: float) -> float:
    """delta, given epsilon.

    As phi(a) = exp(epsilon) phi(b) for the two arguments a and b, delta = phi(a) (M(-a) - M(-b))
    with Mills' ratio M(x) = Phi(-x) / phi(x): no large numbers are subtracted where delta is tiny.
    """
    from scipy.special import erfcx, ndtr

    if mu == 0.0:
        return 0.0
    a = mu / 2.0 - epsilon / mu
    b = -mu / 2.0 - epsilon / mu
    density = math.exp(-a * a / 2.0)
    second = erfcx(-b / math.sqrt(2.0)) / 2.0
    # Mills' ratio of -a grows beyond all floats, while the density beside it vanishes.
    if a > 0.0:
        return max(float(ndtr(a) - density * second), 0.0)
    first = erfcx(-a / math.sqrt(2.0)) / 2.0
    return float(density * (first - second))


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon >= 0 with this delta."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    return _least(lambda epsilon: delta_of(mu, epsilon) <= delta)


def noise_of(epsilon: float, delta: float) -> float:
    """The largest mu that keeps to (epsilon, delta)."""
    return 1.0 / _least(lambda multiplier: delta_of(1.0 / multiplier, epsilon) <= delta)


def _least(holds: Callable[[float], bool]) -> float:
    """The least positive number from which on a condition holds; never below it."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
