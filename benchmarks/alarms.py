"""How often a tracker raises an alarm in a quiet stream, and how soon after a change: counts over seeded streams.

`python -m benchmarks.alarms`, about half an hour; `--streams 3 --steps 200` for a glance, `--first 100` for others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks import table
from flower_pca import STMiss, TrackingResult, track
from flower_pca.base.linalg import Array

COLUMNS, RANK, ROWS, SIZES = 30, 3, 40, (9.0, 8.0, 7.0)
CHANGE = 100  # the step at which something happens

Batch = Callable[[np.random.Generator, Array, int], Array]  # of a basis of all columns, and the step


def plain(rng: np.random.Generator, Q: Array, step: int, *, basis: Array | None = None) -> Array:
    """Gaussian rows of three sizes in a plane, with noise of 0.3, and 5 % missing."""
    U = Q[:, :RANK] if basis is None else basis
    rows = (rng.standard_normal((ROWS, RANK)) * SIZES) @ U.T + 0.3 * rng.standard_normal((ROWS, COLUMNS))
    return np.where(rng.random(rows.shape) < 0.05, np.nan, rows)


def loud(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Log-normal: every row times exp(N(0, 1))."""
    return plain(rng, Q, step) * np.exp(rng.standard_normal((ROWS, 1)))


def wild(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Log-normal noise in every entry, 0.3 exp(N(0, 1))."""
    return plain(rng, Q, step) + 0.3 * np.exp(rng.standard_normal((ROWS, COLUMNS)))


def skewed(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Log-normal through and through: exp of rows of which three directions stand out."""
    return np.exp(0.1 * plain(rng, Q, step))


def students(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Student's t with three degrees of freedom, scores and noise."""
    scores = rng.standard_t(3, (ROWS, RANK)) * SIZES
    rows = scores @ Q[:, :RANK].T + 0.3 * rng.standard_t(3, (ROWS, COLUMNS))
    return np.where(rng.random(rows.shape) < 0.05, np.nan, rows)


def away(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Without rows in a tenth of the steps."""
    rows = plain(rng, Q, step)
    return rows[:0] if step and rng.random() < 0.1 else rows


def irregular(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Batches of 4 to 40 rows."""
    return plain(rng, Q, step)[: int(rng.integers(4, ROWS + 1))]


def seasonal(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Variances and noise that swing, by factors of 4 and 2.7, with other periods."""
    scores = np.exp(0.7 * np.sin(2 * np.pi * step / 50)) * rng.standard_normal((ROWS, RANK)) * SIZES
    noise = 0.3 * np.exp(0.5 * np.sin(2 * np.pi * step / 37)) * rng.standard_normal((ROWS, COLUMNS))
    rows = scores @ Q[:, :RANK].T + noise
    return np.where(rng.random(rows.shape) < 0.05, np.nan, rows)


def swaying(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """A mean that swings outside of the plane."""
    return plain(rng, Q, step) + 3.0 * np.sin(2 * np.pi * step / 40) * Q[:, -2]


def persistent(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Scores that keep .95 of what they were in the row before, in each batch anew."""
    scores = rng.standard_normal((ROWS, RANK))
    for i in range(1, ROWS):
        scores[i] = 0.95 * scores[i - 1] + np.sqrt(1.0 - 0.95**2) * scores[i]
    rows = (scores * SIZES) @ Q[:, :RANK].T + 0.3 * rng.standard_normal((ROWS, COLUMNS))
    return np.where(rng.random(rows.shape) < 0.05, np.nan, rows)


def wild_rows(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """One row of every twentieth batch is wild."""
    rows = plain(rng, Q, step)
    if step % 20 == 19:
        rows[rng.integers(ROWS)] += 50.0 * rng.standard_normal(COLUMNS)
    return rows


def loud_weekends(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Noise three times as large in two steps of seven."""
    rows = plain(rng, Q, step)
    return rows + 0.3 * np.sqrt(8.0) * rng.standard_normal(rows.shape) if step % 7 > 4 else rows


def turned_weekends(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """One direction turned by .15 in two steps of seven."""
    by, U = 0.15 * (step % 7 > 4), Q[:, :RANK].copy()
    U[:, -1] = np.cos(by) * U[:, -1] + np.sin(by) * Q[:, RANK]
    return plain(rng, Q, step, basis=U)


def turned(angle: float, *at: int) -> Batch:
    """Turned as a whole by this angle, from each of these steps on by as much more."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        by = angle * sum(step >= change for change in at)
        return plain(rng, Q, step, basis=Q[:, :RANK] * np.cos(by) + Q[:, RANK : 2 * RANK] * np.sin(by))

    return batch


def joined(at: int = CHANGE) -> Batch:
    """From a step on with a direction more, of size 2, less than any that is followed."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        rows, more = plain(rng, Q, step), 2.0 * rng.standard_normal((ROWS, 1)) * Q[:, -1]
        return rows + more if step >= at else rows

    return batch


def louder(at: int = CHANGE) -> Batch:
    """From a step on with a column times ten."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        rows = plain(rng, Q, step)
        rows[:, 4] *= 10.0 if step >= at else 1.0
        return rows

    return batch


def stuck(at: int = CHANGE) -> Batch:
    """From a step on with a column that is 7."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        rows = plain(rng, Q, step)
        if step >= at:
            rows[:, 4] = 7.0
        return rows

    return batch


def dead(at: int = CHANGE) -> Batch:
    """From a step on with a column that stays near its mean, .3 of noise off: what the plane has of it is gone."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        rows = plain(rng, Q, step)
        if step >= at:
            rows[:, 4] = 0.3
        return rows

    return batch


def drifting(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Turning by .01 in every step from the first on."""
    by = 0.01 * step
    return plain(rng, Q, step, basis=Q[:, :RANK] * np.cos(by) + Q[:, RANK : 2 * RANK] * np.sin(by))


def fallen(at: int = CHANGE) -> Batch:
    """From a step on without the third direction."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        U = Q[:, :RANK] * ([1.0, 1.0, 0.0] if step >= at else [1.0, 1.0, 1.0])
        return plain(rng, Q, step, basis=U)

    return batch


QUIET: dict[str, Batch] = {
    "Gaussian": plain,
    "Student's t": students,
    "log-normal rows": loud,
    "log-normal noise": wild,
    "log-normal": skewed,
    "outages": away,
    "irregular batches": irregular,
    "seasonal": seasonal,
    "a swaying mean": swaying,
    "persistent scores": persistent,
    "a wild row in every 20th batch": wild_rows,
}
SEASONS: dict[str, Batch] = {"loud weekends": loud_weekends, "turned weekends": turned_weekends}
SINGLE: dict[str, Callable[[int], Batch]] = {  # by the step from which on it is there
    "a turn by .1": lambda at: turned(0.1, at),
    "a turn by .3": lambda at: turned(0.3, at),
    "another subspace": lambda at: turned(np.pi / 2, at),
    "a new direction": joined,
    "a column times ten": louder,
    "a stuck column": stuck,
    "a dead column": dead,
    "a lost direction": fallen,
}
STEPS = (12, 20, CHANGE)
CHANGES: dict[str, tuple[Batch, tuple[int, ...]]] = {
    **{f"{name}, step {at}": (make(at), (at,)) for name, make in SINGLE.items() for at in STEPS},
    **{f"turns by .3, steps {a} and {b}": (turned(0.3, a, b), (a, b)) for a, b in ((12, 60), (20, 40), (100, 130))},
    "slow drift": (drifting, ()),
}


BAD: dict[str, Callable[[Array], Array]] = {  # how much of a change each column has, by the basis of all columns
    "a turn": lambda Q: (Q[:, RANK : 2 * RANK] * SIZES) ** 2 @ np.ones(RANK),
    "another subspace": lambda Q: (Q[:, RANK : 2 * RANK] * SIZES) ** 2 @ np.ones(RANK),
    "turns": lambda Q: (Q[:, RANK : 2 * RANK] * SIZES) ** 2 @ np.ones(RANK),
    "a new direction": lambda Q: Q[:, -1] ** 2,
    "a lost direction": lambda Q: Q[:, RANK - 1] ** 2,
    "a column times ten": lambda Q: np.eye(COLUMNS)[4],
    "a stuck column": lambda Q: np.eye(COLUMNS)[4],
    "a dead column": lambda Q: np.eye(COLUMNS)[4],
}
BAD_SITE, SITES = 1, 3


def axes(steps: int, seed: int) -> tuple[np.random.Generator, Array]:
    """The random numbers of a stream, and its basis of all columns."""
    rng = np.random.default_rng([seed, steps])
    return rng, np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))[0]


def stream(batch: Batch, steps: int, seed: int) -> Iterator[Array]:
    """The batches of one stream."""
    rng, Q = axes(steps, seed)
    return (batch(rng, Q, step) for step in range(steps))


def at_sites(batch: Batch, steps: int, seed: int) -> list[list[Array]]:
    """The batches of three sites, at one of which alone something happens."""
    quiet, loud = list(stream(plain, steps, seed)), list(stream(batch, steps, seed))
    return [[rows[site::SITES] for rows in (loud if site == BAD_SITE else quiet)] for site in range(SITES)]


def run_of(clients: list[Any], seed: int, *, monitor: bool = True) -> TrackingResult:
    """A run with changes looked for."""
    return track(STMiss(detect=True, monitor=monitor), clients, n_components=RANK, seed=seed)


def alarms(batch: Batch, steps: int, seed: int, *, monitor: bool = False) -> list[int]:
    """The steps at which a change was declared."""
    result = run_of([stream(batch, steps, seed)], seed, monitor=monitor)
    return [int(step) for step in result.changes_]


def names_one(name: str, Q: Array, columns: list[int]) -> bool:
    """Whether the columns that a change is said to be of include one of the two that have most of it."""
    share = next(of(Q) for kind, of in BAD.items() if name.startswith(kind))
    most = {int(j) for j in np.argsort(-share)[:2] if share[j] > 0.0}
    return bool(most & set(columns))


def quiet(seeds: range, steps: int, kinds: Iterable[str], *, monitor: bool = True) -> Iterator[list[object]]:
    """False alarms of all streams together."""
    for name in kinds:
        results = [run_of([stream(QUIET[name], steps, seed)], seed, monitor=monitor) for seed in seeds]
        found = [result.totals_["changed"] for result in results]
        print(f"{name}: {found}", file=sys.stderr, flush=True)
        yield [name, sum(found), f"{sum(found) / (len(seeds) * steps):.1e}", max(found)]


def seasons(seeds: range, steps: int, *, monitor: bool = True) -> Iterator[list[object]]:
    """Alarms in streams with a week, the steps that were judged, and changes in these streams that were declared."""
    for name, batch in SEASONS.items():
        found, judged, period, hit = [], [], 0, 0
        for seed in seeds:
            result = run_of([stream(batch, steps, seed)], seed, monitor=monitor)
            found.append(result.totals_["changed"])
            # A long stream keeps its newest steps alone.
            judged.append(len(result.levels_) / (steps - result.first_))
            period += "every 7 steps" in result.status.words
            hit += _change_in(batch, seed, monitor=monitor)
        yield [name, *(f"{value:.3g}" for value in (np.mean(found), max(found), np.mean(judged))), period, hit]


def _change_in(batch: Batch, seed: int, *, monitor: bool) -> bool:
    """Whether a turn by .3 at a step in the midst is declared by its second batch, beside the season."""
    at = CHANGE + seed % 7
    rng, Q = axes(at + 20, seed)
    turn = Q @ _rotation(0.3) @ Q.T
    made = (batch(rng, Q if step < at else turn @ Q, step) for step in range(at + 20))
    result = run_of([made], seed, monitor=monitor)
    return bool({at, at + 1} & {int(step) for step in result.changes_})


def _rotation(angle: float) -> Array:
    """The first directions turned towards the next as many."""
    R = np.eye(COLUMNS)
    for j in range(RANK):
        i = 2 * RANK + j
        R[[j, i], [j, i]] = np.cos(angle)
        R[i, j], R[j, i] = np.sin(angle), -np.sin(angle)
    return R


def changes(seeds: range, *, monitor: bool = True) -> Iterator[list[object]]:
    """Streams in which every change was declared by its second batch, and with its columns; and alarms elsewhere."""
    for name, (batch, at) in CHANGES.items():
        hit, right, other = 0, 0, 0
        for seed in seeds:
            steps = max(*at, 30, 0) + 30
            result = run_of([stream(batch, steps, seed)], seed, monitor=monitor)
            found = [int(step) for step in result.changes_]
            alarms_at = [[j for j in (step, step + 1) if j in found] for step in at]
            hit += all(alarms_at)
            if monitor and all(alarms_at):
                Q = axes(steps, seed)[1]
                right += all(names_one(name, Q, result.causes_[one[0]]["columns"]) for one in alarms_at)
            other += sum(not {step, step - 1} & set(at) for step in found)
        declared, named = "", ""
        if at:
            declared = f"{hit} of {len(seeds)}"
        if at and monitor:
            named = f"{right} of {hit}"
        yield [name, declared, named, other]


def one_site(seeds: range) -> Iterator[list[object]]:
    """Streams of three sites in which what has happened at one was declared, and with this one."""
    for name, make in SINGLE.items():
        hit, columns, sites = 0, 0, 0
        for seed in seeds:
            result = run_of(at_sites(make(20), 30, seed), seed)
            steps = [j for j in (20, 21) if j in result.causes_]
            if steps:
                cause = result.causes_[steps[0]]
                hit += 1
                columns += names_one(name, axes(30, seed)[1], cause["columns"])
                sites += cause["sites"] == [BAD_SITE]
        yield [name, f"{hit} of {len(seeds)}", f"{columns} of {hit}", f"{sites} of {hit}"]


def show(head: list[str], rows: Iterator[list[object]]) -> None:
    """A table, each row of it as soon as it is there."""
    print(table(head, []), flush=True)
    for row in rows:
        print(table(row, []).splitlines()[0], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", help="quiet, changes, sites or seasons")
    parser.add_argument("--kind", action="append", choices=list(QUIET), help="of quiet streams")
    parser.add_argument("--plain", action="store_true", help="without `monitor`")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.streams)
    if given.only in (None, "changes"):
        heads = ["a change", "declared by its second batch", "its columns named", "alarms elsewhere"]
        show(heads, changes(seeds, monitor=not given.plain))
    if given.only in (None, "sites"):
        heads = ["at one of three sites", "declared by its second batch", "its columns named", "its site alone named"]
        show(heads, one_site(seeds))
    if given.only in (None, "seasons"):
        heads = ["a week", "alarms, mean", "at most", "judged", "told every 7 steps", "a turn by .3 declared"]
        show(heads, seasons(seeds, given.steps, monitor=not given.plain))
    if given.only in (None, "quiet"):
        kinds = given.kind or list(QUIET)
        heads = ["a quiet stream", "alarms", "by step", "most in one"]
        show(heads, quiet(seeds, given.steps, kinds, monitor=not given.plain))
