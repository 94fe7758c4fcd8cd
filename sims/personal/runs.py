"""Runs of personalized PCA as the simulations look at them: finished ones, and round by round."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flower_pca import PersonalResult, make, simulate
from sims.common import report, stepwise
from sims.personal import methods
from sims.personal.problems import Array

ENDLESS = {"tol": 0.0, "max_rounds": 10**6, "patience": 10**6}


def fit(algorithm: str, shards: Sequence[Any], r1: int, *, seed: int, **settings: Any) -> tuple[Array, list[Array]]:
    """U (d x r1) and every client's V_i (d x r2) at the end of a run."""
    report.ran(algorithm)
    with warnings.catch_warnings():  # some experiments ask for too many components on purpose
        warnings.filterwarnings("ignore", message="theta is", category=UserWarning)
        result = simulate(algorithm, list(shards), n_components=r1, seed=seed, center=False, **settings)
    assert isinstance(result, PersonalResult)
    return result.components_.T, [result.local_components_of(i).T for i in range(len(shards))]


def trace(algorithm: str, shards: Sequence[Any], r1: int, *, seed: int) -> Iterator[tuple[Array, list[Array]]]:
    """U and all V_i after each round, without end; the start does not count as rounds.

    V_i of PerPCA is the client's own, made orthogonal to the new U; that of ExactPerPCA is the best beside it.
    """
    report.ran(algorithm)
    stage, S = make(algorithm, **ENDLESS), methods.covariances(shards)
    for step in stepwise.steps(stage, shards, n_components=r1, seed=seed):
        U = step.run.estimate()
        if U is not None and step.message.stage == stage.name and "U" in step.message.arrays:
            own = zip(step.memories, S, strict=True)
            yield U, [_beside(U, m["V"]) if "V" in m else methods.own(C, U, stage.local_components) for m, C in own]


def _beside(U: Array, V: Array) -> Array:
    return np.linalg.qr(V - U @ (U.T @ V))[0]
