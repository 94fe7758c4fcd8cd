"""What a run of steps has found so far, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from flower_pca.base.linalg import Array
from flower_pca.tracking.solver import Solver

_PROBES: Final = 15  # products of the power method on what lies outside the old subspace


@dataclass(frozen=True)
class Step:
    """What a finished step leaves: its basis, the Ritz values of the sum, and figures of the batch."""

    basis: Array
    values: Array
    rows: int
    residual: float
    deficient: int
    outliers: int
    statistic: float | None = None
    changed: bool = False


@dataclass(frozen=True)
class TrackState:
    """Where a run of steps stands.

    Attributes:
        r, seed: What is wanted, and the seed of random columns.
        steps: Steps to take; None for as many as there is data for.
        step, lap: The step under way, and how often its batch has been completed before.
        P: The basis that the batch is completed with; None before the first.
        solver: The eigenvectors of the completed batch so far; None before the first answer of a first step.
        probe: The power method on what lies outside P, where the step asks for it.
        summed: Whether nothing but sums can be had, as under masks: clients are then told how many columns there are.
        d: Columns, where clients are told them with the first message of a first step; else 0.
        sums: Counts of the batch, once it has been answered for.
        clients: Who answered the newest message.
        record: The finished steps.
        detecting: Whether a change is looked for.
        since: Steps since the last change, or the start.
        statistic: Of the step under way, where it is known.
        ended: Whether there is nothing left to do.
        closing: Whether the last message, which brings clients the last basis, is due or answered.
    """

    r: int
    seed: int
    steps: int | None = None
    step: int = 0
    lap: int = 0
    P: Array | None = None
    solver: Solver | None = None
    probe: Solver | None = None
    summed: bool = False
    d: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    record: tuple[Step, ...] = ()
    detecting: bool = False
    since: int = 0
    statistic: float | None = None
    ended: bool = False
    closing: bool = False


def probed(state: TrackState, probe: Solver) -> TrackState:
    """The statistic is the largest Ritz value outside P, divided by the rows, once the probe has had its messages."""
    if probe.products < _PROBES:
        return replace(state, probe=probe)
    assert probe.values is not None
    return replace(state, probe=None, statistic=float(probe.values[0]) / state.sums["rows"])


def required(solver: Solver | None) -> Solver:
    """The solver, where there must be one."""
    assert solver is not None
    return solver
