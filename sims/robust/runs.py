"""Runs of robust PCA as the simulations look at them: whole ones, round by round, and as the paper ends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import process_time
from typing import Final

import numpy as np

from flower_pca import RobustResult, make, registry, simulate
from sims.common import report, stepwise
from sims.robust import pooled
from sims.robust.pooled import Array, Mixed

CLIENTS: Final = 10


def solved(algorithm: str, problem: Mixed, p: int, seed: int, clients: int = CLIENTS) -> tuple[RobustResult, Array]:
    """A whole run: its result, and L of all clients."""
    report.ran(algorithm)
    result = simulate(make(algorithm), np.array_split(problem.M, clients), n_components=p, seed=seed)
    assert isinstance(result, RobustResult)
    return result, np.vstack([result.local[i]["L"] for i in range(clients)])


def course(algorithm: str, problem: Mixed, p: int, seed: int, clients: int = CLIENTS) -> Iterator[list[float]]:
    """err, relL and seconds so far after each round of the algorithm, and at the very end.

    L after a round is VU' of the V that clients keep of it and the U that the next message brings: both are there
    anyway. Only at the end V is solved anew, by the closing message.
    """
    report.ran(algorithm)
    chosen, V, rows = make(algorithm), None, list[list[float]]()
    seconds, then, begun = 0.0, 0.0, process_time()
    for step in stepwise.steps(chosen, np.array_split(problem.M, clients), n_components=p, seed=seed):
        seconds += process_time() - begun
        arrays = step.message.arrays
        if V is not None:
            rows.append([*_errors(problem, _carried(V, arrays), arrays["U"], float(arrays["lam"])), then])
        then, iterates = seconds, step.message.stage == chosen.name and "U" in arrays and not arrays.get("proof")
        V = np.vstack([memory["V"] for memory in step.memories]) if iterates else None
        begun = process_time()
    V = np.vstack([memory["V"] for memory in step.memories])
    yield from [*rows[:-1], [*_errors(problem, V, arrays["U"], float(arrays["lam"])), seconds]]


def _carried(V: Array, arrays: Mapping[str, Array]) -> Array:
    """V as the next round starts from it: turned where U has lost columns, nothing in a new attempt."""
    if "turn" in arrays:
        return np.asarray(V @ arrays["turn"])
    return np.zeros((len(V), arrays["U"].shape[1])) if "start" in arrays and arrays["lam"] >= arrays["start"] else V


def _errors(problem: Mixed, V: Array, U: Array, lam: float) -> tuple[float, float]:
    L = V @ U.T
    return problem.errors(L, pooled.soft(problem.M - L, lam))


def as_published(algorithm: str, problem: Mixed, p: int, seed: int, clients: int = CLIENTS) -> float:
    """Err at the end, with V as the last round has left it at the clients, and not solved anew for the last U."""
    report.ran(algorithm)
    chosen, V = make(algorithm), [np.zeros((0, p))]
    for step in stepwise.steps(chosen, np.array_split(problem.M, clients), n_components=p, seed=seed):
        if step.message.stage == registry.closing_of(chosen).name:
            L = np.vstack(V) @ step.message.arrays["U"].T
            return problem.errors(L, pooled.soft(problem.M - L, float(step.message.arrays["lam"])))[0]
        V = [memory["V"] for memory in step.memories if "V" in memory]
    raise AssertionError("dcf_pca closes with a message of its own")


def halted(algorithm: str, M: Array, p: int, seed: int, *, rounds: int) -> Array:
    """L after so many rounds of DCF-PCA, with V as the clients have it then: nothing more is solved."""
    report.ran(algorithm)
    for step in stepwise.steps(make(algorithm), np.array_split(M, CLIENTS), n_components=p, seed=seed):
        state = step.run.position.state
        if all("V" in memory for memory in step.memories) and state.progress.rounds == rounds:
            return np.asarray(np.vstack([memory["V"] for memory in step.memories]) @ state.U.T)
    raise AssertionError(f"it ended before round {rounds}")
