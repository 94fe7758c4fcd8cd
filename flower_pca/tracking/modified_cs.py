"""Projected modified-CS: the sparse part of many rows at once, where part of its support is known."""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_PENALTY: Final = 50.0  # of the ADMM, for rows whose largest projected entry is 1
_CLOSE: Final = 1e-4  # change of s and of its dual at which a row is done, relative to the norm of its projection
_STEPS: Final = 400
_LOOK: Final = 5  # iterations between two looks at that change


def modified_cs(P: Array, Y: Array, seen: Array, xi: Array | float) -> Array:
    """Argmin ||s on the seen entries||_1 subject to ||Psi y - Psi s||_2 <= xi, with Psi = I - PP', for every row y.

    With e = Psi(y - s) it is the least ||s||_1 under s + e + Pa = Psi y and ||e|| <= xi. ADMM alternates s (a soft
    threshold, none on missing entries) with (e, a), which have a closed form: with t = Psi y - s + u and q = Psi t,
      g = s + max(0, 1 - xi / ||q||) q;  u = clip(g, +-1 / penalty);  s = g - u.
    So an iteration is two thin products for all rows together. A row that is done leaves the batch. Only the support of
    s is of use; s itself is accurate to about 1e-4 of its largest entry.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy 2022, Algorithm 4; Vaswani and Lu 2010.
    """
    target = np.where(seen, Y, 0.0)
    target -= (target @ P) @ P.T
    size = np.abs(target).max(axis=1, initial=0.0)
    S = np.zeros_like(target)
    rows = np.flatnonzero(size > 0.0)
    y = target[rows] / size[rows, None]
    limit = seen[rows] / _PENALTY
    radius = np.broadcast_to(np.asarray(xi, dtype=np.float64), size.shape)[rows] / size[rows]
    close = _CLOSE * _norms(y)
    across = np.ascontiguousarray(P.T)
    s, u, t = np.zeros_like(y), np.zeros_like(y), y.copy()
    for k in range(1, _STEPS + 1):
        g = (t @ P) @ across
        np.subtract(t, g, out=g)
        g *= np.maximum(0.0, 1.0 - radius / np.maximum(_norms(g), np.finfo(float).tiny))[:, None]
        g += s
        clipped = np.maximum(np.minimum(g, limit), -limit)
        g -= clipped
        done = np.zeros(len(rows), dtype=bool)
        if k % _LOOK == 0:
            done = np.maximum(_norms(clipped - u), _norms(g - s)) <= close
        s, u = g, clipped
        if done.any():
            S[rows[done]] = s[done] * size[rows[done], None]
            rows, radius, close = rows[~done], radius[~done], close[~done]
            y, limit, s, u, t = y[~done], limit[~done], s[~done], u[~done], t[~done]
            if len(rows) == 0:
                break
        np.subtract(y, s, out=t)
        t += u
    S[rows] = s * size[rows, None]
    return S


def _norms(E: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", E, E)))
