"""Medians: what the middle of several clients' own figures is, whatever a minority of them says.

Weights count a client as so many; without them each counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def weiszfeld(product: Callable[[Array], Array], squares: Array, weights: Array) -> Array:
    """Coefficients a, which add up to 1, of the geometric median sum_i a_i P_i of points.

    It is the point m with the least sum of w_i |P_i - m|. Weiszfeld's steps set a_i to w_i / |P_i - m|, until they
    settle, and |P_i - m|^2 = |P_i|^2 - 2 <P_i, m> + |m|^2: the points themselves are never touched.

    Args:
        product: <P_i, sum_j a_j P_j> of coefficients a, (N,).
        squares: |P_i|^2, (N,).
        weights: w, (N,).
    """
    a = weights / weights.sum()
    least = _APART**2 * float(np.max(squares, initial=0.0)) or 1.0
    for _ in range(_STEPS):
        along = product(a)
        apart = squares - 2.0 * along + a @ along
        pulls = weights / np.sqrt(np.maximum(apart, least))
        before, a = a, pulls / pulls.sum()
        if np.abs(a - before).sum() <= _STILL:
            break
    return np.asarray(a)


def of_points(P: Array, weights: Array) -> Array:
    """The coefficients of the geometric median of the rows of P; what it keeps is never larger than P."""
    squares = np.einsum("ij,ij->i", P, P)
    if len(P) > P.shape[1]:
        return weiszfeld(lambda a: P @ (a @ P), squares, weights)
    G = P @ P.T
    return weiszfeld(lambda a: G @ a, squares, weights)


def of_spans(bases: Sequence[Array], weights: Array) -> Array:
    """The coefficients of the geometric median of the projections V_i V_i' on the spans of these (d, p_i).

    The inner products are ||V_i'V_j||_F^2. Of more than d spans they are taken with the sum of projections, which is
    d x d, and so what it keeps is never larger than the bases.
    """
    columns = np.hstack(bases).T
    owner = np.repeat(np.arange(len(bases)), [V.shape[1] for V in bases])

    def by_span(values: Array) -> Array:
        return np.bincount(owner, values, minlength=len(bases))

    def product(a: Array) -> Array:
        M = columns.T @ (a[owner, None] * columns)
        return by_span(np.einsum("ij,ij->i", columns @ M, columns))

    squares = np.array([np.sum((V.T @ V) ** 2) for V in bases])
    if len(bases) > columns.shape[1]:
        return weiszfeld(product, squares, weights)
    G = np.stack([by_span(np.sum((columns @ V) ** 2, axis=1)) for V in bases])
    return weiszfeld(lambda a: G @ a, squares, weights)
