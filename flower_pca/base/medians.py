"""Medians: what the middle of several clients' own figures is, whatever a minority of them says.

Weights count a client as so many; without them each counts once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_HALF: Final = 1e-9  # of all weights, by which half of them may be missed
_STEPS: Final = 1000
# the change of all coefficients together at which they have settled
_STILL: Final = 1e-12
_APART: Final = 1e-12  # of a length, the least distance that is divided by


def median(values: Array, weights: Array) -> Array:
    """The median over the first axis, entry by entry: the mean of the lower and the upper one, as `np.median` has it.

    Args:
        values: (N, ...).
        weights: (N,), or (N, ...) for each entry its own; 0 leaves a value out.
    """
    order = np.argsort(values, axis=0)
    values = np.take_along_axis(values, order, axis=0)
    by_client = weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
    by_entry = np.broadcast_to(by_client, values.shape)
    passed = np.cumsum(np.take_along_axis(by_entry, order, axis=0), axis=0)
    half = passed[-1:] / 2.0
    slack = _HALF * half
    lower = np.argmax(passed >= half - slack, axis=0)[None]
    upper = np.argmax((passed > half + slack) | (passed == passed[-1:]), axis=0)[None]
    both = (np.take_along_axis(values, place, axis=0)[0] for place in (lower, upper))
    return np.asarray(sum(both) / 2.0)


def weiszfeld(G: Array, weights: Array) -> Array:
    """Coefficients a, which add up to 1, of the geometric median sum_i a_i P_i of points with the Gram matrix G.

    It is the point m with the least sum of w_i |P_i - m|. Weiszfeld's steps set a_i to w_i / |P_i - m|, until they
    settle, and |P_i - m|^2 = G_ii - 2 (G a)_i + a'G a: the points themselves are never touched.

    Args:
        G: <P_i, P_j>, (N, N).
        weights: w, (N,).
    """
    a = weights / weights.sum()
    least = _APART**2 * float(np.max(np.diag(G), initial=0.0)) or 1.0
    for _ in range(_STEPS):
        squares = np.diag(G) - 2.0 * (G @ a) + a @ G @ a
        pulls = weights / np.sqrt(np.maximum(squares, least))
        before, a = a, pulls / pulls.sum()
        if np.abs(a - before).sum() <= _STILL:
            break
    return np.asarray(a)
