"""Runs of robust PCA as the simulations look at them: whole ones, round by round, and as the paper ends them."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any, Final

import numpy as np

from flower_pca import RobustResult, make, registry, simulate
from sims.common import stepwise
from sims.robust import pooled
from sims.robust.pooled import Array, Mixed

CLIENTS: Final = 10


def solved(algorithm: str, problem: Mixed, p: int, seed: int, clients: int = CLIENTS) -> tuple[RobustResult, Array]:
    """A whole run: its result, and L of all clients."""
    result = simulate(make(algorithm), np.array_split(problem.M, clients), n_components=p, seed=seed)
    assert isinstance(result, RobustResult)
    return result, np.vstack([result.own[i]["L"] for i in range(clients)])


def course(algorithm: str, problem: Mixed, p: int, seed: int, clients: int = CLIENTS) -> Iterator[list[float]]:
    """err, relL and seconds so far after each round of the algorithm, V solved anew for its U; and at the very end."""
    chosen, V, seconds, rows = make(algorithm), np.zeros((len(problem.M), p)), 0.0, list[list[float]]()
    M, begun = problem.M, process_time()

    def watch(run: Any) -> None:
        nonlocal V, seconds, begun
        seconds += process_time() - begun
        if run.history[-1].stage == chosen.name and run.history[-1].number >= 2:
            state = run.standing.state
            if state.progress.rounds > len(rows):  # not a message that proves what was found
                look(getattr(state, "attempt", state))
        begun = process_time()

    def look(state: Any) -> None:
        nonlocal V
        U, lam = state.U, getattr(state, "lam", None) or chosen.threshold * state.sigma  # type: ignore[attr-defined]
        rho = (chosen.ridge or 0.3) * lam * np.sqrt(max(M.shape))  # type: ignore[attr-defined]
        inverse = np.linalg.inv(U.T @ U + rho * np.eye(p))
        for _ in range(8):
            V = (M - pooled.soft(M - V @ U.T, lam)) @ U @ inverse
        rows.append([*problem.errors(V @ U.T, pooled.soft(M - V @ U.T, lam)), seconds])

    result = simulate(chosen, np.array_split(M, clients), n_components=p, seed=seed, on_round=watch)
    L, S = (np.vstack([result.own[i][name] for i in range(clients)]) for name in ("L", "S"))
    yield from [*rows[:-1], [*problem.errors(L, S), seconds]]


def as_published(algorithm: str, problem: Mixed, p: int, seed: int, clients: int = CLIENTS) -> float:
    """Err at the end, with V as the last round has left it at the clients, and not solved anew for the last U."""
    chosen, V = make(algorithm), [np.zeros((0, p))]
    for step in stepwise.steps(chosen, np.array_split(problem.M, clients), n_components=p, seed=seed):
        if step.message.stage == registry.closing(chosen).name:
            L = np.vstack(V) @ step.message.arrays["U"].T
            return problem.errors(L, pooled.soft(problem.M - L, float(step.message.arrays["lam"])))[0]
        V = [memory["V"] for memory in step.memories if "V" in memory]
    raise AssertionError("dcf_pca closes with a message of its own")


def halted(algorithm: str, M: Array, p: int, seed: int, *, rounds: int) -> Array:
    """L after so many rounds of DCF-PCA, with V as the clients have it then: nothing more is solved."""
    for step in stepwise.steps(make(algorithm), np.array_split(M, CLIENTS), n_components=p, seed=seed):
        state = step.run.standing.state
        if all("V" in memory for memory in step.memories) and state.progress.rounds == rounds:
            return np.asarray(np.vstack([memory["V"] for memory in step.memories]) @ state.U.T)
    raise AssertionError(f"it ended before round {rounds}")
