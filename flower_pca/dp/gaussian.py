"""The cost of a Gaussian mechanism: epsilon and delta as exact functions of mu = sensitivity / deviation.

delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu), where Phi is the normal
distribution function: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML
2018, theorem 8. A sequence of mechanisms, each of which may depend on the earlier answers, costs as much as
one mechanism with mu^2 = sum mu_t^2: Dong, Roth, Su, "Gaussian differential privacy", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

_HALVINGS: Final = 200  # maximum number of halvings, more than enough for all bits of a float


def delta_of(mu: float, epsilon: float) -> float:
    """Return delta for this mu and epsilon.

    Let a = mu/2 - epsilon/mu and b = -mu/2 - epsilon/mu, and let phi be the normal density. Because phi(a) =
    exp(epsilon) phi(b), delta = phi(a) (M(-a) - M(-b)) with Mills' ratio M(x) = Phi(-x) / phi(x). This form
    avoids cancellation if delta is tiny.
    """
    from scipy.special import erfcx, ndtr

    if mu == 0.0:
        return 0.0
    a = mu / 2.0 - epsilon / mu
    b = -mu / 2.0 - epsilon / mu
    density = math.exp(-a * a / 2.0)
    second = erfcx(-b / math.sqrt(2.0)) / 2.0
    # For large a, Mills' ratio M(-a) overflows, and the density underflows.
    if a > 0.0:
        return max(float(ndtr(a) - density * second), 0.0)
    first = erfcx(-a / math.sqrt(2.0)) / 2.0
    return float(density * (first - second))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 for which a mechanism with this mu is (epsilon, delta)-private."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    return _smallest_holding(lambda epsilon: delta_of(mu, epsilon) <= delta)


def noise_of(epsilon: float, delta: float) -> float:
    """Return the largest mu for which a mechanism is (epsilon, delta)-private."""
    return 1.0 / _smallest_holding(lambda multiplier: delta_of(1.0 / multiplier, epsilon) <= delta)


def _smallest_holding(holds: Callable[[float], bool]) -> float:
    """Return the smallest positive number for which a condition holds, rounded up to the next float.

    The condition must also hold for all larger numbers.
    """
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
