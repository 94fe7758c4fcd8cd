"""Proof: whether the low-rank part of an attempt is right, from clients' answers about sums.

What is asked of a basis at rest (clean: within the cut of the low-rank part): (a) predicted: as
large a share of hidden entries is clean as of visible ones, and half of these at least; (b)
determined: the clean entries of every row and of every column determine it: the least eigenvalue of
sum P_i P_i'
    over them, P an orthonormal basis of the column space of VU', is not far below 1 (likewise for
      rows);
    rows and columns that fail are named, and those rows among them counted that are bad as a whole;
(c) no structure: with noise, the largest singular value of what is left is that of independent
entries. Rows are for each client to look at. For columns clients send sum v_i v_i' over clean
entries while that is short, else what power steps need: x <- G^-1 (G - F_j) x, in which the largest
eigenvalue is 1 less the least of G^-1 F_j.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from flower_pca.algorithms.robust import huber, sizes
from flower_pca.algorithms.robust.attempt import EXACT, STEPS, Attempt, Problem
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import CLEAN, MOST_NOISE, SMALL, Verdict
from flower_pca.base import linalg
from flower_pca.base.errors import ASK_SERVER, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import ROWS, Kind, Part

# eigenvalues below which a row or column is not determined; of power steps
# A limit of 0.03 has let wrong answers pass. Power steps find an eigenvalue no less than it is, so
# theirs is wider.
LEAST, LEAST_BOUND = 0.06, 0.1
# share of clean entries of a row below which these may be clean by chance
BAD: Final = 0.3
SEED: Final = 20
# The length of a row of V below which its squares are no longer normal numbers
_SHORTEST: Final = float(np.sqrt(TINY))


def weak_rows(W: Array, Q: Array) -> Array:
    """Which rows their clean entries, 1 in W, do not determine."""
    r = Q.shape[1]
    if r <= EXACT:
        matrices = symmetric(W @ pairs(Q), r)
        return np.asarray(np.linalg.eigvalsh(matrices)[:, 0] < LEAST)
    x = np.repeat(linalg.random_block(1, r, SEED), len(W), axis=0)
    value = np.zeros(len(W))
    others = 1.0 - W
    along = np.empty_like(W)
    for _ in range(STEPS):
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), TINY)
        np.multiply(others, np.matmul(x, Q.T, out=along), out=along)
        image = along @ Q
        value, x = np.sum(x * image, axis=1), image
    return np.asarray(1.0 - value < LEAST_BOUND)


def bad_rows(W: Array, seen: Array, share: float = 0.5) -> Array:
    """Which rows have a smaller share of clean entries, 1 in W, among those `seen`."""
    return np.asarray(W.sum(axis=1) < share * seen)


def unsound_rows(W: Array, Q: Array, seen: Array) -> Array:
    """Which rows clean entries do not determine, or so few that they may be clean by chance."""
    return weak_rows(W, Q) | bad_rows(W, seen, BAD)


def find_undetermined(off: Array, Q: Array, far: float, gaps: Array) -> tuple[Array, Array]:
    """The rows that entries within `far`, but for gaps, do not determine; those bad as a whole.

    `off` is how far entries lie from the low-rank part, Q an orthonormal basis of its rows.
    """
    clean = off <= far
    clean.reshape(-1)[gaps] = False
    W = clean.astype(np.float64)
    lacking = np.bincount(gaps // len(Q), minlength=len(off))
    seen = len(Q) - lacking
    weak = unsound_rows(W, Q, seen)
    return np.flatnonzero(weak), np.flatnonzero(weak & bad_rows(W, seen))


def once_more(X: Array, V: Array, U: Array, out: Array, *, lam: float, rho: float, cut: float) -> tuple[Array, Array]:
    """V and X - VU', rows that clean entries do not determine found anew from their threshold.

    While U was on its way such a row may have been taken in by its far entries, as large ones among
    smaller rows are. `out` are the places of entries that do not count. There is no ridge in that
    search: it goes with the threshold, and would hold a large row at 0. Of a U that the ridge has
    taken to 0 nothing is found.
    """
    R = X - V @ U.T
    if rho >= np.sum(U**2):
        return V, R
    there = np.ones(X.shape, dtype=bool)
    there.reshape(-1)[out] = False
    clean = there & (np.abs(R) <= cut * lam)
    basis, seen = linalg.orth(U), there.sum(axis=1)
    weak = unsound_rows(clean.astype(np.float64), basis, seen)
    rows = np.flatnonzero(weak & there.any(axis=1))
    if not len(rows):
        return V, R
    X, there = X[rows], there[rows]
    start = float(np.abs(X[there]).max())
    out = np.flatnonzero(~there)
    anew = huber.recover(X, U, start=start, lam=lam, rho=0.0, cut=cut, out=out)
    left = X - anew @ U.T
    sizes = (np.where(there, np.abs(E), np.nan) for E in (R[rows], left))
    before, after = (np.nanmedian(size, axis=1) for size in sizes)
    better = after < before
    V, R = V.copy(), R.copy()
    V[rows[better]], R[rows[better]] = anew[better], left[better]
    return V, R


def pairs(A: Array) -> Array:
    """a_i a_j of every row, i <= j, one after the other."""
    products = [A[:, i : i + 1] * A[:, i:] for i in range(A.shape[1])]
    return np.concatenate(products, axis=1)


def symmetric(packed: Array, r: int) -> Array:
    """The symmetric matrices that `pairs` are the upper halves of."""
    place = np.zeros((r, r), dtype=np.int64)
    place[np.triu_indices(r)] = np.arange(packed.shape[1])
    return packed.take(np.maximum(place, place.T), axis=1)


# shares of rows and of columns that may be left undetermined
_FEW_ROWS, _FEW_COLUMNS = 0.3, 0.25
# share of columns that are named without a search of their own, which takes as long for one
_SINGLE: Final = 0.002
_SLACK, _DEVIATIONS = 0.05, 3.0  # Fewer hidden entries may be clean, by this share and so many deviations.
# Freedoms of a low-rank part over clean entries: beyond that it fits far entries too, beside noise
# that is not small.
_FREE: Final = 0.4


def parts(d: int, r: int, stepwise: bool) -> Mapping[str, Part]:
    """What a message about a basis of r columns is answered by, beside counts."""
    if stepwise:
        about = {"image": Part((d, r), Kind.ESTIMATE)}
    else:
        about = {"F": Part((d, r * (r + 1) // 2), Kind.SCORES)}
    square = Part((r, r), Kind.SCORES)
    return {"n": ROWS, "G": square, "M": square, "count": Part((4,), Kind.COUNT), **about}


def answer(
    V: Array, Q: Array, clean: Array, *, rested: Array, hidden: Array, seen: Array, x: Array | None, even: bool
) -> dict[str, Array]:
    """What a client says of a block of rows: V, an orthonormal basis Q of span(U), and what is clean and not hidden.

    Columns are judged by M = V'V of rows as they are, or `even`: of rows of length 1. For without
    noise a small row says as much of a column as a large one does. Rows are judged by what is clean
    of the columns that V rests on, `rested`. `hidden` says of each hidden entry whether it is
    clean, `seen` of each row how many entries count.
    """
    if x is None and V.shape[1] > EXACT:
        raise ProtocolError(f"The message of a proof has no block, which more than {EXACT} columns need. {ASK_SERVER}")
    W = clean.astype(np.float64)
    rest = (clean & rested).astype(np.float64)
    weak = unsound_rows(rest, Q, seen)
    bad = weak & bad_rows(rest, seen)
    counts = [clean.sum(), hidden.sum(), weak.sum(), bad.sum()]
    count = np.array(counts, dtype=np.float64)
    # What such a row has for V follows from its far entries: it would outweigh the others, and
    # columns would be taken for undetermined where they have nothing but it to lack.
    V = np.where(weak[:, None], 0.0, V)
    G = V.T @ V
    if even:
        lengths = np.linalg.norm(V, axis=1, keepdims=True)
        # A row that is so short that its squares underflow has no direction, and counts as 0.
        V = np.where(lengths > _SHORTEST, V, 0.0) / np.maximum(lengths, TINY)
    sums = {"count": count, "G": G, "M": V.T @ V}
    if x is None:
        return {**sums, "F": W.T @ pairs(V)}
    return {**sums, "image": ((1.0 - W) * (V @ x.T)).T @ V}


def weak_columns(G: Array, F: Array) -> Array:
    """Which columns their clean entries do not determine, from matrices."""
    root = np.linalg.cholesky(_regular(G))
    half = np.linalg.solve(root, symmetric(F, len(G)))
    values = np.linalg.eigvalsh(np.linalg.solve(root, np.swapaxes(half, 1, 2)))
    return np.asarray(values[:, 0] < LEAST)


def power_step(G: Array, x: Array, image: Array) -> tuple[Array, Array]:
    """A power step for every column, and which ones are not determined as far as it can be told."""
    G = _regular(G)
    # A column whose entries are all clean is 0 after a step: nothing of it is undetermined.
    seen = np.maximum(np.sum(x * (x @ G), axis=1), TINY)
    weak = 1.0 - np.sum(x * image, axis=1) / seen < LEAST_BOUND
    after = np.linalg.solve(G, image.T).T
    squares = np.sum(after * (after @ G), axis=1, keepdims=True)
    return after / np.sqrt(np.maximum(squares, TINY)), weak


def verdict(attempt: Attempt, problem: Problem, *, total: Mapping[str, Array], weak: Array) -> Verdict:
    """What the last message of a proof comes to."""
    error = sizes.scale(total["counts"][1], problem.top)  # how far hidden entries are off
    seen, unseen = (float(c.sum()) for c in total["counts"])
    clean, clean_hidden, rows, bad = (float(c) for c in total["count"])
    columns = tuple(int(j) for j in np.flatnonzero(weak))
    share = clean / max(seen, 1.0)
    deviation = np.sqrt(share * (1.0 - share) / max(unseen, 1.0))
    slack = _SLACK + _DEVIATIONS * deviation
    # With more noise than that everything is clean, hidden entries too, whatever the low-rank part.
    loud = problem.noise is None and attempt.noise > MOST_NOISE * problem.sigma
    near = error <= MOST_NOISE * problem.sigma and not loud
    predicted = near and share >= CLEAN and clean_hidden >= (share - slack) * unseen
    several = error <= SMALL * problem.sigma and attempt.has_correlation(problem)
    freedoms = attempt.p * (problem.n + problem.d - attempt.p)
    structure = 0.0
    if attempt.noise > 0.0:
        structure = attempt.left[0]
    return Verdict(
        rank=attempt.p,
        error=error / problem.sigma,
        predicted=bool(predicted),
        clean=share,
        structured=attempt.has_structure(problem),
        correlated=several,
        structure=structure,
        columns=columns,
        rows=round(rows),
        bad_rows=round(bad),
        few=rows <= _FEW_ROWS * problem.n and len(columns) <= _FEW_COLUMNS * problem.d,
        single=len(columns) <= _SINGLE * problem.d,
        free=attempt.noise > SMALL * problem.sigma and freedoms > _FREE * clean,
        # Neither what is correlated nor a column that is not determined ever comes to rest.
        rest=attempt.rests(problem) or several or bool(columns),
    )


def _regular(G: Array) -> Array:
    # Of a V that is short of rank G has no Cholesky factor.
    least = huber.EPS * float(np.trace(G)) + TINY
    ridge = least * np.eye(len(G))
    return np.asarray((G + G.T) / 2.0 + ridge)
