"""Noise under masks: shared out among the clients of a sum, with bounds that follow from it, and what a loss costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from flower_pca.base.errors import NotEnoughNodes
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.dp.noise import noise_share
from flower_pca.dp.plan import Plan
from flower_pca.masking import fixed


def sharers(plan: Plan, needed: int) -> int:
    """How many clients shall have the whole noise: those that a sum cannot do without, less those that may collude."""
    colluding = plan.dp.colluding
    if needed <= colluding:
        rule, remedy = f"more than the {colluding} that may collude", "Start more, or lower colluding."
        raise NotEnoughNodes("The fewest clients of a masked sum", must=rule, got=needed, then=remedy)
    return needed - colluding


def bounds(plan: Plan, names: Iterable[str], *, opening: bool, among: int, clients: int) -> dict[str, Array]:
    """The bounds of an answer with noise, as its clients compute them too."""
    return fixed.bounds_with_noise(names, noise_share(plan.deviation(opening=opening), among), clients)


def shortened(plan: Plan, algorithm: Algorithm[Any], wasted: Sequence[str], why: str) -> Algorithm[Any]:
    """The algorithm in as many rounds as are left when answers of these stages have given no sum: they are told."""
    rounds = plan.rounds_beside(wasted)
    if rounds < 1 or algorithm.fixed_set:
        rule, remedy = "had when it is first asked for", "Start a new run with a budget of its own."
        raise NotEnoughNodes("A sum that costs privacy", must=rule, got=why.rstrip("."), then=remedy)
    return replace(algorithm, min_rounds=rounds, max_rounds=rounds) if isinstance(algorithm, Iterative) else algorithm
