"""How often a tracker raises an alarm in a quiet stream, and how soon after a change: counts over seeded streams.

`python -m benchmarks.alarms`, about ten minutes; `--streams 3 --steps 200` for a glance.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import table
from flower_pca import STMiss, track
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


def turned(angle: float) -> Batch:
    """From the change on turned as a whole by this angle."""

    def batch(rng: np.random.Generator, Q: Array, step: int) -> Array:
        by = angle if step >= CHANGE else 0.0
        return plain(rng, Q, step, basis=Q[:, :RANK] * np.cos(by) + Q[:, RANK : 2 * RANK] * np.sin(by))

    return batch


def joined(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """From the change on with a direction more, of size 2, less than any that is followed."""
    rows, more = plain(rng, Q, step), 2.0 * rng.standard_normal((ROWS, 1)) * Q[:, -1]
    return rows + more if step >= CHANGE else rows


def drifting(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """Turning by .01 in every step from the first on."""
    by = 0.01 * step
    return plain(rng, Q, step, basis=Q[:, :RANK] * np.cos(by) + Q[:, RANK : 2 * RANK] * np.sin(by))


def fallen(rng: np.random.Generator, Q: Array, step: int) -> Array:
    """From the change on without the third direction."""
    U = Q[:, :RANK] * ([1.0, 1.0, 0.0] if step >= CHANGE else [1.0, 1.0, 1.0])
    return plain(rng, Q, step, basis=U)


QUIET: dict[str, Batch] = {"Gaussian": plain, "log-normal rows": loud, "log-normal noise": wild, "log-normal": skewed}
CHANGES: dict[str, Batch] = {
    "a turn by .1": turned(0.1),
    "a turn by .3": turned(0.3),
    "a new direction": joined,
    "slow drift": drifting,
    "a lost direction": fallen,
}


def stream(batch: Batch, steps: int, seed: int) -> Iterator[Array]:
    """The batches of one stream."""
    rng = np.random.default_rng([seed, steps])
    Q = np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))[0]
    return (batch(rng, Q, step) for step in range(steps))


def alarms(batch: Batch, steps: int, seed: int) -> list[int]:
    """The steps at which a change was declared."""
    result = track(STMiss(detect=True), [stream(batch, steps, seed)], n_components=RANK, seed=seed)
    return [int(step) for step in result.changes_]


def quiet(streams: int, steps: int) -> list[list[object]]:
    """False alarms of all streams together."""
    rows: list[list[object]] = []
    for name, batch in QUIET.items():
        found = [len(alarms(batch, steps, seed)) for seed in range(streams)]
        rows.append([name, sum(found), f"{sum(found) / (streams * steps):.1e}", max(found)])
    return rows


def changes(streams: int, steps: int) -> list[list[object]]:
    """Streams in which the change was declared by its second batch, and alarms elsewhere."""
    rows: list[list[object]] = []
    for name, batch in CHANGES.items():
        found = [alarms(batch, steps, seed) for seed in range(streams)]
        hit = sum(any(step - CHANGE in (0, 1) for step in own) for own in found)
        other = sum(step - CHANGE not in (0, 1) for own in found for step in own)
        rows.append([name, f"{hit} of {streams}", other])
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    print(table(["a quiet stream", "alarms", "by step", "most in one"], quiet(given.streams, given.steps)))
    print(table(["from step 100 on", "declared by step 101", "elsewhere"], changes(given.streams, 160)))
