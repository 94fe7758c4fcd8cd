"""The data sets of the LocalPower paper, and runs of this package on them by the paper's words, each made once.

`program` has the runs by the authors' program. Here columns are divided by their largest |x| over all clients, nothing
is centred, k = 5; the rows, shuffled by the seed, are dealt evenly to max(n // 1000, 3) clients. Every client's rows
are condensed to as many as columns, which changes no result: all these algorithms know the rows by X'X only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final

import numpy as np

from flower_pca import LocalPower, make
from sims.common import data, problems, report
from sims.common.problems import Array, Problem
from sims.local_power.known import ABALONE_UNITS, SETS, SIZES

K: Final = 5
FINAL: Final = 60  # messages after which an error counts as final
SMALL_ROWS: Final = 20_000  # so many at most in small size
MOST: Final = 3 * 2**30  # bytes of condensed rows that are kept at a time


@dataclass(eq=False)
class Bench:
    """A data set and all that has been measured on it."""

    name: str
    X: Array
    _problems: dict[tuple[int, int], Problem] = field(default_factory=dict)
    _eta: dict[tuple[int, int], float] = field(default_factory=dict)
    _curves: dict[tuple[str, int, int, int, float], Array] = field(default_factory=dict)

    @property
    def clients(self) -> int:
        """The paper's number of clients for so many rows."""
        return max(len(self.X) // 1000, 3)

    def problem(self, seed: int, clients: int) -> Problem:
        """The rows shuffled by the seed, and dealt."""
        if (seed, clients) not in self._problems:
            size = 8 * clients * self.X.shape[1] ** 2
            while self._problems and size * (len(self._problems) + 1) > MOST:
                del self._problems[next(iter(self._problems))]
            self._problems[seed, clients] = self._posed(seed, clients).condensed()
        return self._problems[seed, clients]

    def eta(self, seed: int, clients: int) -> float:
        """max_i ||M_i - M|| / ||M||."""
        if (seed, clients) not in self._eta:
            self._eta[seed, clients] = problems.heterogeneity(self._posed(seed, clients))
        return self._eta[seed, clients]

    def _posed(self, seed: int, clients: int) -> Problem:
        return problems.pose(problems.evenly(problems.shuffled(self.X, seed), clients), k=K)

    def curve(
        self, algorithm: str, seed: int, *, clients: int | None = None, messages: int = FINAL, target: float = 0.0
    ) -> Array:
        """The error after each message, until it is at most the target."""
        report.ran(algorithm)
        run = (algorithm, seed, clients or self.clients)
        known = [curve for key, curve in self._curves.items() if key[:3] == run and target and min(curve) <= target]
        if known:
            return known[0][: problems.rounds_to(known[0], target)]
        key = (*run, messages, target)
        if key not in self._curves:
            report.progress(f"{self.name}, {key[2]} clients, seed {seed}: {algorithm}")
            problem = self.problem(seed, key[2])
            if algorithm.startswith("ssi"):  # what it sends is a sum: whose rows are whose makes no difference
                problem = problem.pooled()
            self._curves[key] = traced(algorithm, problem, seed, messages, target)
        return self._curves[key]

    def finals(
        self, algorithm: str, seeds: Iterable[int], *, clients: int | None = None, messages: int = FINAL
    ) -> Array:
        """The final error of every seed."""
        return np.array([self.curve(algorithm, s, clients=clients, messages=messages)[-1] for s in seeds])


def traced(algorithm: str, problem: Problem, seed: int, messages: int, target: float = 0.0) -> Array:
    """The error after each message; once LocalPower takes single steps, by C: what is sent then is a sum, as SSI's."""
    blocks: list[Array] = []

    def measure(problem: Problem, Z: Array) -> float:
        blocks[:] = [Z]
        return problems.sin_theta(problem, Z)

    chosen = make(algorithm)
    decays = isinstance(chosen, LocalPower) and chosen.decay
    # the opening, the rounds of several steps, and one more: from there on an answer is C times the last one
    several = 2 + chosen.halve_every * (chosen.local_steps.bit_length() - 1) if decays else messages
    first = min(several, messages)
    errors = problems.trace(algorithm, problem, measure=measure, seed=seed, messages=first, target=target).tolist()
    while first <= len(errors) < messages and errors[-1] > target:
        errors.append(measure(problem, np.linalg.qr(problem.C @ blocks[0])[0]))
    return np.array(errors)


def benches(opts: report.Options) -> list[Bench]:
    """The user's files, or the paper's sets where they are found, or else a synthetic one."""
    found = []
    for name, X in loaded(opts):
        known = _BENCHES.get((name, id(X)))
        peak = np.abs(X).max(axis=0)
        found.append(known or _BENCHES.setdefault((name, id(X)), Bench(name, X / np.where(peak > 0.0, peak, 1.0))))
    return found


_BENCHES: Final[dict[tuple[str, int], Bench]] = {}  # the sets are kept for good by `_rows`, so an id stays what it is


def loaded(opts: report.Options) -> list[tuple[str, Array]]:
    """The rows of the user's files, or of the paper's sets where they are found, or else of a synthetic one."""
    if opts.data:
        return [(data.located(s)[0].stem, _rows(data.located(s)[0].stem, s, opts.paper)) for s in opts.data]
    files = {name: opts.data_dir / f"{name.replace('-', '_')}.npz" for name in SETS}
    found = [(name, file) for name, file in files.items() if file.is_file()]
    if not found:
        report.progress(
            f"No data sets in {opts.data_dir}: a synthetic one takes their place. Use --data or --data-dir."
        )
        return [("synthetic", _synthetic())]
    return [(name, _rows(name, str(path), opts.paper)) for name, path in found]


@cache
def _rows(name: str, source: str, paper: bool) -> Array:
    X = data.read(source)
    # Of abalone and connect-4 the paper has the first 2,114 and 7,990 rows: a random part of as many rows has other
    # errors, and the last one-hot column of connect-4 is empty in these rows, which makes the paper's d of 125.
    X = X[: SIZES[name][0]] if name in SIZES else X
    if not paper and X.shape[0] > SMALL_ROWS:
        X = problems.shuffled(X, seed=2021)[:SMALL_ROWS]
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    if name == "space-ga":
        X = X[:, 1:]  # its first column is what the others are to tell
    if name == "abalone":  # in its units eta and the errors of one-shot methods are the paper's, scaled they are not
        least, most = np.array(ABALONE_UNITS)
        X = least + (X + 1.0) / 2.0 * (most - least)
    return np.asarray(X)


@lru_cache(maxsize=1)
def _synthetic() -> Array:
    return problems.synthetic(6000, problems.geometric(40, 1.1), seed=0)
