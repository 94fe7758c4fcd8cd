"""The questions for every transport: algorithms with settings and rows. See tests/test_transports.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from builders import two_lead, unequal

from flower_pca import MaskedSums, Table, make, registry, strategies

NAMED = {s.name: s for s in (getattr(strategies, n) for n in strategies.__all__) if hasattr(s, "name")}
SHORT: dict[str, dict[str, Any]] = {
    "faps": {"max_rounds": 7, "inner_steps": 3},  # more than its window of five
    "local_power": {"max_rounds": 5},
    "ssi": {"max_rounds": 5},
    "dcf_pca": {"max_rounds": 3, "step": "scaled"},
    "consensus_rpca": {"max_rounds": 3},
    "exact_per_pca": {"max_rounds": 6},
    "per_pca": {"max_rounds": 6},
    "triple_pca": {"max_rounds": 6},
}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "not centered": {"center": False},
    "scaled": {"scale": "std", "reconstruction_error": True},
    "by the largest": {"scale": "max_abs", "seed": 3},
}
COLUMNS = tuple(f"column {j}" for j in range(10))


@dataclass(frozen=True)
class Asked:
    """An algorithm with its parameters, the clients' rows, and the settings of the run."""

    name: str
    shards: list[Any]
    settings: dict[str, Any]
    given: dict[str, Any]

    @property
    def algorithm(self) -> Any:
        return make(self.name, **self.given)


def asked(name: str, shards: list[Any] | None = None, /, **settings: Any) -> Asked:
    """With two components, and few rounds."""
    rows = unequal() if shards is None else shards
    return Asked(name, rows, {"n_components": 2, **settings}, SHORT.get(name, {}))


def named() -> list[Table]:
    """Three sites with their columns in three orders."""
    orders = [np.random.default_rng(i).permutation(10) for i in range(3)]
    return [
        Table(X[:, order], tuple(COLUMNS[j] for j in order), site=f"site {i}")
        for i, (X, order) in enumerate(zip(unequal(3), orders, strict=True))
    ]


# Every algorithm in two frames: scaled, and the others in turn.
OTHERS = [words for words in RUNS if words != "scaled"]
FRAMES = [(name, words) for i, name in enumerate(registry.ALGORITHMS) for words in ("scaled", OTHERS[i % len(OTHERS)])]
FRAMES += [("krylov", words) for words in OTHERS] + [("faps", "by the largest")]
FRAMES += [(name, "plain") for name in ("dr_svd", "uda")]  # stages that virtual nodes answer
MASKS = {"reconstruction_error": True, "mask": MaskedSums(threshold=0.6)}
QUESTIONS = {
    **{f"{name}, {words}": asked(name, **RUNS[words]) for name, words in FRAMES},
    "krylov, masked": asked("krylov", two_lead(5), **MASKS),
    "faps, masked": asked("faps", two_lead(5), **MASKS),
    "krylov, counted by distance": asked("krylov", reconstruction_error=True, monitor=True),
    "krylov, with errors": asked("krylov", standard_errors=True),
    "krylov, by name": asked("krylov", named()),
    "krylov, some columns": asked("krylov", named(), columns=COLUMNS[::-1][:5]),
    "ssi, sampled": asked("ssi", fraction=0.5, scale="std"),
}
