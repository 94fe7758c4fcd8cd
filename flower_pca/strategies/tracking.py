"""TrackingStrategy: a tracker's steps, asked of the nodes of a Flower grid."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from logging import WARNING
from typing import Final, Unpack

from flower_pca import assembly, registry
from flower_pca.assembly import AnyRun, AskedSteps
from flower_pca.base import checks
from flower_pca.base.signature import spelt_out
from flower_pca.core.drive import Driven
from flower_pca.hosting.server import require_sums
from flower_pca.results.record import Following, StepRecord
from flower_pca.results.start import Start
from flower_pca.results.steps import TrackingResult
from flower_pca.strategies.base import FlowerStrategy
from flower_pca.strategies.log import log
from flower_pca.strategies.nodes import Nodes
from flower_pca.strategies.waits import SUMMED, Waits
from flower_pca.tracking.tracker import Tracker

_DEFAULTS: Final[AskedSteps] = {**assembly.STEPS, "n_components": 2}


class TrackingStrategy(FlowerStrategy[TrackingResult]):
    """A subspace followed over time, as a Flower Strategy. Nodes serve a `Stream`.

    Args:
        tracker: A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
        interval: Seconds from the start of a step to that of the next, at least: the pace at which batches arrive.
        min_nodes: Nodes (or clients that they host) to wait for, and to keep.
        node_timeout: Seconds to wait for them; then NotEnoughNodes is raised.
        round_timeout: Seconds to wait for the answers to a message; nodes that have not answered are left out of it.
        action: Flower's name of the nodes' functions, where they were added by `clients.register`.
        hosted: In simulations whose virtual nodes host many clients, how these answer: "stacked", each for itself in
            one message. None where each node is a client.
        checkpoint: File to keep the state of the run in after every message. If it is there at the start, the run goes
            on from it; a finished run removes it.
        on_step: Called with the `StepRecord` of every step as soon as it is over, before the checkpoint is written: a
            run that goes on from there may tell its newest step once more. Clients go by their partition-ids, or by
            node ids if they have none. Changes are logged as warnings in any case.
        **asked: What is asked: n_components (2 if left out), steps, start, columns, seed, mask, channel: see
            `assembly.tracking`.

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     result = TrackingStrategy("st_miss", n_components=5, steps=24, interval=3600).fit(grid)
        ...     result.save("/tmp/day.npz")
    """

    @spelt_out(AskedSteps, _DEFAULTS)
    def __init__(
        self,
        tracker: str | Tracker = "st_miss",
        *,
        interval: float = 0.0,
        min_nodes: int = 2,
        node_timeout: float = 60.0,
        round_timeout: float = 600.0,
        action: str | None = None,
        hosted: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
        **asked: Unpack[AskedSteps],
    ) -> None:
        self._tracker = registry.tracker(tracker)
        self._asked_for: AskedSteps = {**_DEFAULTS, **asked}
        self._on_step = on_step
        self._newest: Nodes | None = None
        waits = Waits(
            min_nodes=min_nodes,
            node_timeout=node_timeout,
            round_timeout=round_timeout,
            interval=interval,
            action=action,
            hosted=hosted,
        )
        if checkpoint is not None:
            checks.parent("the checkpoint", checkpoint)
        super().__init__(waits, checkpoint)
        made = self._made()  # which checks what is asked
        if hosted == SUMMED:
            require_sums(made, asked.get("channel"))

    def result_so_far(self) -> TrackingResult | None:
        """The result of those steps of the newest run that are over; None before one is. While the run goes on, or
        after it has been interrupted.
        """
        if self._newest is None or (found := self._newest.run.result_so_far()) is None:
            return None
        result: TrackingResult = replace(found, site_names=self._newest.named)
        return result

    @property
    def algorithm(self) -> Tracker:
        """The tracker."""
        return self._tracker

    def _follow(self, nodes: Nodes) -> Callable[[Driven], None]:
        self._newest = nodes
        return Following(self._tell, lambda node: (nodes.known.get(node, node), nodes.sites.get(node, "")))

    def _tell(self, record: StepRecord) -> None:
        if record.change is not None:
            log(WARNING, "%s", record.change)
        if self._on_step is not None:
            self._on_step(record)

    def _made(self, *, num_rounds: int = 0, start: Start | None = None) -> AnyRun:
        asked = self._asked_for if start is None else {**self._asked_for, "start": start}
        return assembly.tracking(self._tracker, min_clients=self._waits.min_nodes, **asked)
