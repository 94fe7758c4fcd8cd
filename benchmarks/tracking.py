"""Trackers against loops over single rows, at the paper's size: ratios of times taken in one run.

`python -m benchmarks.tracking`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks import table
from flower_pca import track
from flower_pca.tracking.st_miss import modified_cs
from sims.over_air import moving, trackers
from sims.over_air.moving import Array

REPEATS = 9
RANKS = (10, 20, 30, 50)


def _ratio(ours: Callable[[], object], theirs: Callable[[], object], repeats: int = REPEATS) -> float:
    """Of processor times, one run after the other: the median of the ratios, on a machine that others use as well."""
    ratios = []
    for _ in range(repeats):
        times = []
        for f in (ours, theirs):
            began = time.process_time()
            f()
            times.append(time.process_time() - began)
        ratios.append(times[0] / times[1])
    return float(np.median(ratios))


def _lstsq(problem: moving.Problem) -> None:
    """The same loop with LAPACK's least squares for every row."""
    bases: list[Array] = []
    for Y in problem.batches()[0]:
        if not bases:
            L = np.nan_to_num(Y)
        else:
            seen = ~np.isnan(Y)
            A = [np.linalg.lstsq(bases[-1][s], y[s], rcond=None)[0] for y, s in zip(Y, seen, strict=True)]
            L = np.where(seen, Y, np.array(A) @ bases[-1].T)
        bases.append(np.linalg.svd(L, full_matrices=False)[2][: problem.r].T)


def st_miss() -> list[list[object]]:
    """A whole run, all messages included, over the loops; n=1000, 3000 rows, batches of 60, two subspaces."""
    rows: list[list[object]] = []
    for r in RANKS:
        problem = moving.piecewise(n=1000, r=r, d=3000, change=1500, rho=0.1, seed=0)
        ours = partial(track, "st_miss", [problem.Y], n_components=r, batch=60)
        messages = len(ours().history)
        rows.append(
            [r, messages, *(f"{_ratio(ours, partial(f, problem)):.2f}" for f in (trackers.closed_form, _lstsq))]
        )
    return rows


def _textbook(P: Array, y: Array, seen: Array, xi: float) -> Array:
    """ADMM with the two splittings z = s and v = Psi s - Psi y, for one row; the same penalty and stopping rule."""
    target = y - P @ (P.T @ y)
    size = np.abs(target).max()
    target, xi, limit = target / size, xi / size, seen / 50.0
    z, v, u, w = (np.zeros(len(y)) for _ in range(4))
    close = 1e-4 * np.linalg.norm(target)
    for _ in range(400):
        b = target + v - w
        b = z - u + b - P @ (P.T @ b)
        s = 0.5 * (b + P @ (P.T @ b))
        inside = s - P @ (P.T @ s)
        old_z, old_v = z, v
        z = np.sign(s + u) * np.maximum(np.abs(s + u) - limit, 0.0)
        gap = inside - target + w
        v = gap * min(1.0, xi / np.linalg.norm(gap))
        u, w = u + s - z, w + inside - target - v
        primal = max(np.linalg.norm(s - z), np.linalg.norm(inside - target - v))
        if max(primal, np.linalg.norm(z - old_z), np.linalg.norm(v - old_v)) <= close:
            break
    return z * size


def modified() -> list[list[object]]:
    """Modified-CS of 60 rows: the textbook's ADMM one row after the other, and ours likewise, over ours at once."""
    rows: list[list[object]] = []
    for n, r in ((200, 5), (1000, 10), (1000, 30)):
        clean = moving.piecewise(n=n, r=r, d=60, change=60, rho=0.1, seed=0)
        problem = moving.corrupted(clean, seed=0)
        P, seen = moving.is_within_cut(clean.truth[0].T, 0.054, 0), ~np.isnan(problem.Y)
        Y = np.nan_to_num(problem.Y)
        ours = partial(modified_cs, P, Y, seen, 1.0)
        theirs = partial(_each, partial(_textbook, P), Y, seen)
        single = partial(_each, lambda y, s, xi, P=P: modified_cs(P, y[None], s[None], xi), Y, seen)
        rows.append([f"n={n}, r={r}", *(f"{_ratio(f, ours, 3):.1f}" for f in (theirs, single))])
    return rows


def _each(solve: Callable[[Array, Array, float], Array], Y: Array, seen: Array) -> None:
    for y, s in zip(Y, seen, strict=True):
        solve(y, s, 1.0)


if __name__ == "__main__":
    print(table(["r", "messages", "over a loop of normal equations", "of least squares"], st_miss()))
    print(table(["row by row over a batch at once", "ADMM", "ours"], modified()))
