"""Runs of personalized PCA as the simulations look at them: finished ones, and round by round."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flower_pca import PersonalResult, assembly, make, simulate
from flower_pca.core.stage import Arrays, Reply
from flower_pca.rows.local import LocalData
from sims.personal import methods
from sims.personal.problems import Array

ENDLESS = {"tol": 0.0, "max_rounds": 10**6, "patience": 10**6}


def fit(algorithm: str, shards: Sequence[Any], r1: int, *, seed: int, **settings: Any) -> tuple[Array, list[Array]]:
    """U (d x r1) and every client's V_i (d x r2) at the end of a run."""
    with warnings.catch_warnings():  # some experiments ask for too many components on purpose
        warnings.filterwarnings("ignore", message="theta must be", category=UserWarning)
        result = simulate(algorithm, list(shards), n_components=r1, seed=seed, **settings)
    assert isinstance(result, PersonalResult)
    return result.components_.T, [result.own_components(i).T for i in range(len(shards))]


def trace(algorithm: str, shards: Sequence[Any], r1: int, *, seed: int) -> Iterator[tuple[Array, list[Array]]]:
    """U and all V_i after each round, without end; the start does not count as rounds.

    V_i of PerPCA is the client's own, made orthogonal to the new U; that of ExactPerPCA is the best beside it.
    """
    stage = make(algorithm, **ENDLESS)
    session, clients = assembly.session(stage, n_components=r1, seed=seed), [LocalData(X) for X in shards]
    S, memory = methods.covariances(shards), [Arrays() for _ in shards]
    while (message := session.pending(range(len(clients)))) is not None:
        replies = []
        for i in message.to:
            up, memory[i] = assembly.answer(message.stage, message.arrays_for(i), clients[i], memory[i])
            replies.append(Reply(i, message.number, up))
        session.advance(replies)
        U = session.estimate()
        if U is not None and message.stage == stage.name and "U" in message.arrays:
            r2 = stage.local_components
            yield U, [_beside(U, m["V"]) if "V" in m else methods.own(C, U, r2) for m, C in zip(memory, S, strict=True)]


def _beside(U: Array, V: Array) -> Array:
    return np.linalg.qr(V - U @ (U.T @ V))[0]
