"""FAPS with two measured penalties, for clients that are unlike: a client's round.

The paper has one penalty beta for two things: how firmly a client's subspace is held to the consensus, and how long its
step is. Clients whose own directions outweigh the common ones need a firm hold, which makes short steps. Here, with d
the largest eigenvalue of C_i outside of span(Z), Z'C_iZ = Q diag(a) Q' and A = X'C_iX,

  delta = max(0, 1 - min(a) / d) says how unlike the client is, t = .15 + .6 delta, kappa = 2 + 2 delta;
  the hold is B = Q diag(max(t a, kappa (d - a))) Q', so that Z leads in C_i + ZBZ';
  the step is t A.

At consensus sum Y_i = Z sum t A_i + (I - ZZ') C Z: the pooled subspace is a fixed point. A guard phi in [0, 1) from the
server, 0 where it is not needed, takes t to 1 and kappa to infinity: then a round is one of SSI.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

_STEP, _STEP_UNLIKE = 0.15, 0.6
_HOLD, _HOLD_UNLIKE = 2.0, 2.0
_OUTSIDE, _POWERS = 4, 3  # columns that look for d, and their power steps in a round
# rounds after which the guard may rise, when, and to what
_EVERY, _STUCK, _MOST = 20, 0.9, 0.99


def answer(Z: Array, data: LocalData, memory: Arrays, *, steps: int, tol: float, guard: float) -> tuple[Arrays, Arrays]:
    """What a client sends, and keeps: X_i, W_i, and the columns that look for d."""

    def product(V: Array) -> Array:
        return data.matmat(V, reuse=4 * (steps + 1)).astype(np.float64)

    # a newcomer, or a node that has lost its memory
    if memory.get("X", Z[:, :0]).shape != Z.shape:
        CZ, width = product(Z), min(_OUTSIDE, len(Z) - Z.shape[1])
        if width:
            v = linalg.random_basis(len(Z), width, seed=0)
        else:
            v = Z[:, :0]
        memory = {"X": Z, "W": Z @ (Z.T @ CZ) - CZ, "v": v}
    X, W = memory["X"], memory["W"]
    d, v = _outside(product, Z, memory["v"])
    a, Q = linalg.eigh_descending(Z.T @ product(Z))
    a = np.maximum(a, 0.0)
    unlike = 0.0
    if d > 0.0:
        unlike = max(0.0, 1.0 - float(a[-1]) / d)
    t = _STEP + _STEP_UNLIKE * unlike
    t += guard * (1.0 - t)
    hold = (_HOLD + _HOLD_UNLIKE * unlike) / (1.0 - guard)
    B = (Q * np.maximum(t * a, hold * (d - a))) @ Q.T
    V = X
    for _ in range(steps):
        H = product(V) + X @ (W.T @ V)
        H = H + W @ (X.T @ V) + Z @ (B @ (Z.T @ V))
        V, before = linalg.orth(H), V
        if tol > 0.0 and linalg.sin_theta(before, V) <= tol:
            break
    CV = product(V)
    A = V.T @ CV
    W = V @ A - CV
    Y = t * (V @ (A @ (V.T @ Z))) - V @ (W.T @ Z) - W @ (V.T @ Z)
    return {"Y": Y}, {"X": V, "W": W, "v": v}


def next_guard(guard: float, sines: tuple[float, ...], rounds: int) -> float:
    """The guard after so many rounds, from the sines of the newest steps: it rises while these no longer fall."""
    if rounds % _EVERY or len(sines) < 2 * _EVERY:
        return guard
    before, now = min(sines[-2 * _EVERY : -_EVERY]), min(sines[-_EVERY:])
    if now <= _STUCK * before:
        return guard
    return min(_MOST, guard + (1.0 - guard) / 4.0)


def newest(sines: tuple[float, ...], sine: float) -> tuple[float, ...]:
    """With one step more, as many as the guard looks at."""
    return (*sines, sine)[-2 * _EVERY :]


def _outside(product: Callable[[Array], Array], Z: Array, v: Array) -> tuple[float, Array]:
    """d, by a few block power steps from v: never above the true one."""
    if not v.shape[1]:
        return 0.0, v
    v = linalg.orth(linalg.complement(v, Z))
    for _ in range(_POWERS - 1):
        v = linalg.orth(linalg.complement(product(linalg.complement(v, Z)), Z))
    v = linalg.complement(v, Z)
    image = linalg.complement(product(v), Z)
    values, ritz = linalg.eigh_descending(v.T @ image)
    if image.any():
        v = linalg.orth(image @ ritz)
    return max(float(values[0]), 0.0), v
