"""Whether consensus_rpca knows when it is right, by how far entries lie together: scattered, in blocks, in half rows.

Fresh problems of every kind, with noise and with gaps. A low-rank part is right if relL is at most 1e-5; with noise, at
most 1.5 times that of an oracle that knows which entries are far. Rows and columns whose clean entries do not determine
them are left out of both, and so are those that the run names: it claims nothing of them, and the table says how many
it has named that could have been determined. `python -m benchmarks.robust_problems --help`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks import table
from flower_pca import Outcome, RobustResult, simulate
from sims.robust.pooled import ialm

NOISES, GAPS = (0.0, 1e-3, 0.05), (0.0, 0.1, 0.3)
N, D, RANK, CLIENTS, STEPS = 100, 80, 7, 8, 60
DETERMINED, UNSURE = 0.02, 0.15  # least eigenvalues over clean entries: below, nothing is; above, it certainly is
Array = np.ndarray[Any, Any]


def scattered(rng: np.random.Generator) -> Array:
    """5 to 20 % of all entries."""
    return rng.random((N, D)) < rng.uniform(0.05, 0.2)


def blocks(rng: np.random.Generator) -> Array:
    """Four blocks of 20 x 16."""
    far = np.zeros((N, D), dtype=bool)
    for _ in range(4):
        i, j = rng.integers(N - 20), rng.integers(D - 16)
        far[i : i + 20, j : j + 16] = True
    return far


def half_rows(rng: np.random.Generator) -> Array:
    """Half the entries of every fifth row."""
    far = np.zeros((N, D), dtype=bool)
    rows = rng.choice(N, N // 5, replace=False)
    far[rows] = rng.random((len(rows), D)) < 0.5
    return far


def half_columns(rng: np.random.Generator) -> Array:
    """Half the entries of every fifth column."""
    far = np.zeros((N, D), dtype=bool)
    columns = rng.choice(D, D // 5, replace=False)
    far[:, columns] = rng.random((N, len(columns))) < 0.5
    return far


def stuck(rng: np.random.Generator) -> Array:
    """One column from some row on, and a twentieth of the others."""
    far = rng.random((N, D)) < 0.05
    far[rng.integers(N) :, rng.integers(D)] = True
    return far


def bad_rows(rng: np.random.Generator) -> Array:
    """Every fifth row, as a whole."""
    far = np.zeros((N, D), dtype=bool)
    far[rng.choice(N, N // 5, replace=False)] = True
    return far


def someone(rng: np.random.Generator) -> Array:
    """The rows of one client of eight."""
    return np.array_split(np.arange(N), CLIENTS)[rng.integers(CLIENTS)]


def bad_client(rng: np.random.Generator) -> Array:
    """All rows of one client of eight."""
    far = np.zeros((N, D), dtype=bool)
    far[someone(rng)] = True
    return far


def one_client(rng: np.random.Generator) -> Array:
    """40 % of the entries of one client of eight."""
    far, rows = np.zeros((N, D), dtype=bool), someone(rng)
    far[rows] = rng.random((len(rows), D)) < 0.4
    return far


KINDS: dict[str, Callable[[np.random.Generator], Array]] = {
    "scattered": scattered,
    "blocks": blocks,
    "mixed blocks": blocks,
    "half rows": half_rows,
    "half columns": half_columns,
    "stuck sensor": stuck,
    "one client": one_client,
    "bad rows": bad_rows,
    "bad client": bad_client,
}

NOTHING_LEFT = ("stuck sensor", "bad rows", "bad client")  # far entries in place of the others, not added to them
MIXED = ("scattered", "mixed blocks")  # of both signs
EITHER = ("half rows", "half columns", "one client")  # of one sign where the seed is even


@dataclass(frozen=True)
class Case:
    """What came of a problem; `spent` and `pooled` are processor times, of the run and of IALM on the pooled rows."""

    kind: str
    noise: float
    gaps: float
    seed: int
    rel: float
    limit: float
    named: int
    wrongly: int
    outcome: str
    attempts: int
    messages: int
    spent: float
    pooled: float
    words: str

    @property
    def right(self) -> bool:
        return self.rel <= self.limit

    @property
    def converged(self) -> bool:
        return self.outcome == Outcome.CONVERGED.value


def posed(kind: str, noise: float, gaps: float, seed: int) -> tuple[Array, Array, Array]:
    """L, the rows, and which entries count: neither far nor gaps."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), round(1e6 * noise), round(100 * gaps)])
    L = rng.standard_normal((N, RANK)) @ rng.standard_normal((RANK, D))
    far, size = KINDS[kind](rng), np.full((N, D), 20.0)
    if kind in MIXED or (kind in EITHER and seed % 2):
        size *= rng.choice([-1.0, 1.0], size.shape)
    clean = L + noise * rng.standard_normal(L.shape)
    if kind.startswith("bad"):  # nothing of these is left, so no sign would make a space of them
        size *= rng.standard_normal(size.shape)
    X = np.where(far, size if kind in NOTHING_LEFT else clean + size, clean)
    missing = rng.random(L.shape) < gaps
    return L, np.where(missing, np.nan, X), ~far & ~missing


def determined(W: Array, Q: Array) -> Array:
    """The least eigenvalue of the sum of Q_j Q_j' over the clean entries of each row."""
    return np.asarray(np.linalg.eigvalsh(np.einsum("ij,ja,jb->iab", W.astype(float), Q, Q, optimize=True))[:, 0])


def oracle(L: Array, X: Array, clean: Array, r: int) -> Array:
    """The best fit of rank r to the clean entries, by alternating least squares from the truth."""
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    A, B, W, X = U[:, :r] * s[:r], Vt[:r].T, clean.astype(float), np.nan_to_num(X)
    ridge = 1e-9 * np.eye(r)
    for _ in range(STEPS):
        G = np.einsum("ij,ja,jb->iab", W, B, B, optimize=True) + ridge
        A = np.linalg.solve(G, ((W * X) @ B)[:, :, None])[:, :, 0]
        G = np.einsum("ij,ia,ib->jab", W, A, A, optimize=True) + ridge
        B = np.linalg.solve(G, ((W * X).T @ A)[:, :, None])[:, :, 0]
    return A @ B.T


def case(kind: str, noise: float, gaps: float, seed: int, clients: int = CLIENTS) -> Case:
    """One problem."""
    L, X, clean = posed(kind, noise, gaps, seed)
    missing = "mean" if gaps else "error"
    began = process_time()
    result = simulate("consensus_rpca", np.array_split(X, clients), n_components=RANK, seed=seed, missing=missing)
    spent, began = process_time() - began, process_time()
    deque(ialm(np.nan_to_num(X)), maxlen=0)  # a gap is one more far entry to it
    pooled = process_time() - began
    assert isinstance(result, RobustResult)
    held = compare(L, X, clean, result, rank=RANK, noise=noise)
    status = result.status
    return Case(
        kind, noise, gaps, seed, held.rel, held.limit, held.named, held.wrongly,
        status.outcome.value, result.attempts_, len(result.history), spent, pooled, status.words,
    )  # fmt: skip


@dataclass(frozen=True)
class Held:
    """A low-rank part beside the true one, but for rows and columns that are not determined or that the run names.

    Attributes
    ----------
    rel : float
        How far it is off, relative to the true one.
    limit : float
        Up to where that is right.
    named : int
        How many rows and columns the run names.
    wrongly : int
        How many of these could have been determined.
    """

    rel: float
    limit: float
    named: int
    wrongly: int


def compare(L: Array, X: Array, clean: Array, result: RobustResult, *, rank: int, noise: float) -> Held:
    """The low-rank part of a run over clients of about as many rows each beside L."""
    clients = range(len(result.local))
    found = np.vstack([result.local[i]["L"] for i in clients])
    starts = np.cumsum([0, *(len(part) for part in np.array_split(X, len(clients)))])
    no_rows = np.concatenate([result.local[i]["undetermined"] + starts[i] for i in clients]).astype(int)
    no_columns = result.undetermined_columns_
    U, _, Vt = np.linalg.svd(L, full_matrices=False)
    of_rows, of_columns = determined(clean, Vt[:rank].T), determined(clean.T, U[:, :rank])
    wrongly = int(np.sum(of_rows[no_rows] > UNSURE) + np.sum(of_columns[no_columns] > UNSURE))
    rows, columns = of_rows > DETERMINED, of_columns > DETERMINED
    rows[no_rows], columns[no_columns] = False, False
    here = np.ix_(rows, columns)
    size = float(np.linalg.norm(L[here])) or np.inf  # where all is named, nothing is claimed
    rel = float(np.linalg.norm((found - L)[here]) / size)
    limit = 1e-5
    if noise:
        limit = 1.5 * float(np.linalg.norm((oracle(L, X, clean, rank) - L)[here]) / size)
    return Held(rel, limit, len(no_rows) + len(no_columns), wrongly)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """All of them, one after the other."""
    for seed, noise, gaps, kind in itertools.product(args.seeds, args.noise, args.gaps, args.kinds):
        yield case(kind, noise, gaps, seed)


def summary(found: list[Case]) -> str:
    """By kind: how many were right, converged though wrong, called else though right; and messages."""
    lines: list[list[object]] = []
    for kind in [*dict.fromkeys(c.kind for c in found), "all"]:
        these = [c for c in found if kind in (c.kind, "all")]
        wrong = sum(c.converged and not c.right for c in these)
        alarms = sum(c.right and not c.converged for c in these)
        messages = [c.messages for c in these]
        spent = f"{np.median(messages):.0f}, {np.quantile(messages, 0.9):.0f}, {max(messages)}"
        wrongly = sum(c.wrongly for c in these if c.converged)
        times = f"{np.median([c.spent / c.pooled for c in these]):.1f}"
        lines.append([kind, len(these), sum(c.right for c in these), wrong, alarms, wrongly, spent, times])
    head = ["far entries", "problems", "right", "wrong, converged", "right, called else", "named for nothing"]
    head += ["messages: median, 90 %, most", "times IALM"]
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="81 problems each")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISES)
    parser.add_argument("--gaps", type=float, nargs="+", default=GAPS)
    parser.add_argument("--out", type=Path, help="a file of comma-separated values, a line a problem")
    args = parser.parse_args()
    found = []
    with (args.out or Path(os.devnull)).open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow([field.name for field in fields(Case)])
        for c in cases(args):
            found.append(c)
            lines.writerow(astuple(c))
            file.flush()
            if c.right != c.converged:
                print(c, file=sys.stderr, flush=True)
    print(summary(found))


if __name__ == "__main__":
    main()
