"""Proof: whether the low-rank part of an attempt is the right one, from clients' answers about sums.

What is asked of a basis at rest (clean: within the cut of the low-rank part):
(a) predicted: as large a share of hidden entries is clean as of visible ones, and half of these at least;
(b) determined: the clean entries of every row and of every column determine it: the least eigenvalue of sum P_i P_i'
    over them, P an orthonormal basis of the column space of VU', is not far below 1 (likewise for rows);
(c) no structure: with noise, the largest singular value of what is left is that of independent entries.
Rows are for each client to look at. For columns clients send sum v_i v_i' over clean entries while that is short, else
what power steps need: x <- G^-1 (G - F_j) x, in which the largest eigenvalue is 1 less the least of G^-1 F_j.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.algorithms.robust.attempt import MOST_NOISE, Attempt
from flower_pca.algorithms.robust.determined import EXACT, LEAST, LEAST_BOUND, SEED, pairs, squared, weak_rows
from flower_pca.algorithms.robust.problem import Problem
from flower_pca.base import linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import ROWS, Kind, Part

_CLEAN: Final = 0.5  # share of visible entries
_SLACK, _DEVIATIONS = 0.05, 3.0  # by which fewer hidden entries may be clean
_STRUCTURE: Final = 1.8  # square of the largest singular value of what is left, over that of independent entries


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the proof of an attempt has come to.

    Attributes:
        rank: Of its low-rank part.
        error: What hidden entries are off by, over an ordinary entry.
        predicted: Whether it says of hidden entries what it says of others.
        structured: Whether dense noise leaves more in one direction than independent entries would.
        structure: The share of the squares of what is left that lies in it.
        columns: Those that clean entries do not determine; `rows`: how many rows.
        rest: Whether the basis was at rest.
    """

    rank: int
    error: float
    predicted: bool = False
    structured: bool = False
    structure: float = 0.0
    columns: tuple[int, ...] = ()
    rows: int = 0
    rest: bool = True

    @property
    def determined(self) -> bool:
        """Whether clean entries determine every row and column."""
        return not self.columns and not self.rows

    @property
    def passes(self) -> bool:
        """Whether nothing speaks against the low-rank part."""
        return self.predicted and self.determined and not self.structured

    @property
    def order(self) -> tuple[bool, bool, int, float]:
        """The smaller, the better."""
        return not self.predicted, self.structured, len(self.columns) + self.rows, self.error


def block(attempt: Attempt) -> Array | None:
    """What power steps begin with; None where matrices are sent."""
    d, r = attempt.U.shape
    return np.array(linalg.random_block(d, r, SEED)) if r > EXACT else None


def parts(d: int, r: int, stepwise: bool) -> Mapping[str, Part]:
    """What a message about a basis of r columns is answered by, beside counts."""
    about = {"image": Part((d, r), Kind.ESTIMATE)} if stepwise else {"F": Part((d, r * (r + 1) // 2), Kind.SCORES)}
    return {"n": ROWS, "G": Part((r, r), Kind.SCORES), "count": Part((3,), Kind.COUNT), **about}


def told(V: Array, Q: Array | None, clean: Array, hidden: Array, x: Array | None) -> dict[str, Array]:
    """What a client says of a block of rows: V, an orthonormal basis Q of span(U), and what is clean and not hidden.

    Q is None where rows are not asked for, as before the last message.
    `hidden` says of each hidden entry whether it is clean.
    """
    if x is None and V.shape[1] > EXACT:
        rule, got = f"a block for more than {EXACT} columns", "none"
        raise ProtocolError("The message of a proof", must=rule, got=got, then="Check the sender.")
    W = clean.astype(np.float64)
    count = np.array([clean.sum(), hidden.sum(), 0 if Q is None else weak_rows(W, Q).sum()], dtype=np.float64)
    if x is None:
        return {"count": count, "F": W.T @ pairs(V)}
    return {"count": count, "image": ((1.0 - W) * (V @ x.T)).T @ V}


def weak_columns(G: Array, F: Array) -> Array:
    """Which columns their clean entries do not determine, from matrices."""
    r = len(G)
    root = np.linalg.cholesky(_regular(G))
    half = np.linalg.solve(root, squared(F, r))
    values = np.linalg.eigvalsh(np.linalg.solve(root, np.swapaxes(half, 1, 2)))
    return np.asarray(values[:, 0] < LEAST)


def stepped(G: Array, x: Array, image: Array) -> tuple[Array, Array]:
    """A power step for every column, and which ones are not determined as far as it can be told."""
    G = _regular(G)
    whole, not_clean = np.sum(x * (x @ G), axis=1), np.sum(x * image, axis=1)
    # A column whose entries are all clean is 0 after a step: nothing of it is undetermined.
    weak = 1.0 - not_clean / np.maximum(whole, np.finfo(np.float64).tiny) < LEAST_BOUND
    after = np.linalg.solve(G, image.T).T
    length = np.sqrt(np.maximum(np.sum(after * (after @ G), axis=1, keepdims=True), np.finfo(np.float64).tiny))
    return after / length, weak


def verdict(
    attempt: Attempt, problem: Problem, *, total: Mapping[str, Array], weak: Array, error: float, rest: bool
) -> Verdict:
    """What the last message of a proof comes to; `error` is the size of what hidden entries are off by."""
    seen, unseen = (float(c.sum()) for c in total["counts"])
    clean, clean_hidden, rows = (float(c) for c in total["count"])
    share = clean / max(seen, 1.0)
    slack = _SLACK + _DEVIATIONS * np.sqrt(share * (1.0 - share) / max(unseen, 1.0))
    predicted = share >= _CLEAN and clean_hidden >= (share - slack) * unseen and error <= MOST_NOISE * problem.sigma
    independent = attempt.squares / max(seen, 1.0) * problem.edge**2
    noisy = attempt.noise > 0.0 and independent > 0.0
    return Verdict(
        rank=attempt.p,
        error=error / problem.sigma,
        predicted=bool(predicted),
        structured=bool(noisy and attempt.left > _STRUCTURE * independent),
        structure=attempt.left / attempt.squares if noisy else 0.0,
        columns=tuple(int(j) for j in np.flatnonzero(weak)),
        rows=round(rows),
        rest=rest,
    )


def _regular(G: Array) -> Array:
    numbers = np.finfo(np.float64)
    least = float(numbers.eps) * float(np.trace(G)) + float(numbers.tiny)
    return np.asarray((G + G.T) / 2.0 + least * np.eye(len(G)))
