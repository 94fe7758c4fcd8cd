"""Whether consensus_rpca knows when it is right: fresh problems on a grid of ranks, far entries, their kinds and noise.

A low-rank part is right if relL is at most 1e-5; with noise, at most 1.5 times that of an oracle who knows which
entries are far, and fits the others from the truth on. Rows and columns that the run names are left out: it claims
nothing of them. `python -m benchmarks.certain --help` says what can be chosen.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.robust_problems import CLIENTS, compare
from flower_pca import Outcome, RobustResult, simulate

SHARES = (0.05, 0.1, 0.15, 0.2, 0.25)
KINDS = ("+-80", "uniform", "+-8")
NOISES = (0.0, 1e-3, 0.05)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """What came of a problem."""

    n: int
    r: int
    far: float
    kind: str
    noise: float
    seed: int
    rel: float
    limit: float
    outcome: str
    estimated: float
    attempts: int
    messages: int

    @property
    def right(self) -> bool:
        return self.rel <= self.limit

    @property
    def converged(self) -> bool:
        return self.outcome == Outcome.CONVERGED.value


def posed(n: int, r: int, far: float, kind: str, noise: float, seed: int) -> tuple[Array, Array, Array]:
    """L, the rows, and which entries are far."""
    rng = np.random.default_rng([seed, n, r, round(1000 * far), KINDS.index(kind), round(1e6 * noise)])
    L = rng.standard_normal((n, r)) @ rng.standard_normal((r, n))
    places = np.zeros(n * n, dtype=bool)
    places[rng.choice(n * n, round(far * n * n), replace=False)] = True
    size = {"+-80": 80.0, "uniform": 80.0, "+-8": 8.0}[kind]
    S = size * (rng.uniform(-1.0, 1.0, (n, n)) if kind == "uniform" else rng.choice([-1.0, 1.0], (n, n)))
    where = places.reshape(n, n)
    return L, L + np.where(where, S, 0.0) + noise * rng.standard_normal((n, n)), where


def case(n: int, share: float, far: float, kind: str, noise: float, seed: int, clients: int = CLIENTS) -> Case:
    """One problem."""
    r = round(share * n)
    L, X, where = posed(n, r, far, kind, noise, seed)
    result = simulate("consensus_rpca", np.array_split(X, clients), n_components=r, seed=seed)
    assert isinstance(result, RobustResult)
    held = compare(L, X, ~where, result, rank=r, noise=noise)
    rel, limit = held.rel, held.limit
    outcome, messages = result.status.outcome.value, len(result.history)
    return Case(n, r, far, kind, noise, seed, rel, limit, outcome, result.noise_ or 0.0, result.attempts_, messages)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """All of them, one after the other."""
    grid = itertools.product(args.seeds, args.sizes, args.noise, args.kinds, SHARES, SHARES)
    for seed, n, noise, kind, share, far in grid:
        yield case(n, share, far, kind, noise, seed)


def summary(found: list[Case]) -> str:
    """By size, kind and noise: how many were right, converged though wrong, alarmed though right; and messages."""
    rows: list[list[object]] = []
    keys = sorted({(c.n, c.noise, KINDS.index(c.kind)) for c in found})
    for n, noise, kind in keys:
        these = [c for c in found if (c.n, c.noise, c.kind) == (n, noise, KINDS[kind])]
        once = sorted(c.messages for c in these if c.attempts == 1) or [0]
        counts = [len(these), sum(c.right for c in these), sum(c.converged and not c.right for c in these)]
        alarms = sum(c.right and not c.converged for c in these)
        all_of_them = f"{np.median([c.messages for c in these]):.0f}, {max(c.messages for c in these)}"
        rows.append([n, KINDS[kind], noise, *counts, alarms, f"{once[len(once) // 2]}, {once[-1]}", all_of_them])
    head = ["n", "far entries", "noise", "problems", "right", "wrong, converged", "right, alarm", "one attempt", "all"]
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[80, 200], help="n, of n x n problems")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="one problem of each of the 25 cells a seed")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISES)
    parser.add_argument("--out", type=Path, help="a CSV file with a line for every problem")
    args, found = parser.parse_args(), list[Case]()
    stream = open(args.out, "w", newline="", encoding="utf-8") if args.out else sys.stderr  # noqa: SIM115
    lines = csv.writer(stream)
    lines.writerow([f.name for f in fields(Case)])
    for one in cases(args):
        found.append(one)
        lines.writerow(astuple(one))
        stream.flush()
    print(summary(found))


if __name__ == "__main__":
    main()
