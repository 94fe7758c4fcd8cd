"""simulate() of clients that hold different columns of the same people."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from typing import Any

from flower_pca import answering, assembly
from flower_pca.base import labels
from flower_pca.core.drive import Driven, drive
from flower_pca.core.question import Question
from flower_pca.results.start import Start
from flower_pca.rows.fixed import fixed
from flower_pca.simulation.backend import Ray
from flower_pca.simulation.in_process import Shards
from flower_pca.simulation.progress import Watch
from flower_pca.simulation.sites import handed_over, sites_of
from flower_pca.vertical.parties import Parties
from flower_pca.vertical.result import ColumnsResult
from flower_pca.vertical.stages import Loadings


def simulate(
    question: Question,
    shards: Any,
    *,
    private: Collection[int],
    engine: Ray | None,
    answers: str,
    start: Start | None,
    checkpoint: str | os.PathLike[str] | None,
    on_round: Callable[[Driven], None] | None,
) -> ColumnsResult:
    """Scores of the people of all shards, and the loadings of those clients that hand theirs over."""
    parties = Parties.of(shards, question)
    public = handed_over(private, len(parties.turned))
    sizes = f"{labels.count(parties.people, 'row')} x {labels.count(parties.columns, 'column')}"
    clients = labels.count(len(parties.turned), "client")
    watch = Watch(on_round, f"{question.algorithm.spec} of {sizes}, of which {clients} have some columns each")
    result: Any
    if engine is not None:
        from flower_pca.simulation import ray

        given: Any = {"engine": engine, "checkpoint": checkpoint, "on_round": watch, "answers": answers, "start": start}
        result = ray.run(question, sites_of(shards), public, **given)
        own = result.own
    else:
        source = None if answers == "rows" else functools.partial(fixed, exactly=answers == "exact")
        there = Shards(parties.turned, seed=question.seed, source=source)
        run = assembly.run(question, judged=False, start=start)
        result = drive(run, there, checkpoint=checkpoint, on_round=watch)
        own = {i: answering.own(Loadings.name, there.memories[i], parties.turned[i]) for i in public}
    result = parties.handed_over(result, dict(own))
    watch.end(result)
    found: ColumnsResult = result
    return found
