"""TrackingStrategy: a tracker's steps, asked of the nodes of a Flower grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from logging import WARNING
from typing import Final, Unpack

from flower_pca import assembly, registry
from flower_pca.assembly import AnyRun, AskedSteps
from flower_pca.base import checks
from flower_pca.base.spec import spelt_out
from flower_pca.core import compatible
from flower_pca.core.drive import Watcher
from flower_pca.results.record import Following, StepRecord
from flower_pca.results.start import Start
from flower_pca.results.steps import TrackingResult
from flower_pca.strategies.base import FlowerStrategy
from flower_pca.strategies.exchange import log
from flower_pca.strategies.nodes import Nodes
from flower_pca.strategies.waits import COMPONENTS, NODE_DEFAULTS, SUMMED, NodeKeywords, Waits, take_out
from flower_pca.tracking.tracker import Tracker


class StepKeywords(NodeKeywords, AskedSteps, total=False):
    """What a strategy takes beside its tracker: see `TrackingStrategy`."""

    interval: float
    on_step: Callable[[StepRecord], None] | None


_OWN: Final = {"n_components": COMPONENTS, "interval": 0.0, "on_step": None}
STEP_DEFAULTS: Final = {**NODE_DEFAULTS, **assembly.STEPS, **_OWN}


class TrackingStrategy(FlowerStrategy[TrackingResult]):
    """A subspace followed over time, as a Flower Strategy. Nodes serve a `Stream`.

    Args:
        tracker: A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an
            instance.
        interval: Seconds from the start of a step to that of the next, at least: the pace at which
            batches arrive.
        on_step: Called with the `StepRecord` of every step as soon as it is over, before the
            checkpoint is written: a run that goes on from there may tell its newest step once more.
            Clients go by their partition-ids, or by node ids if they have none. Changes are logged
            as warnings in any case.
        **keywords: These two; how nodes are waited for and asked, min_nodes (2 if left out),
            node_timeout, round_timeout, action, hosted and checkpoint: see `PCAStrategy`; and what
            is asked, n_components (2 if left out), steps, start, columns, seed, mask, channel: see
            `assembly.tracking`.

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     result = TrackingStrategy("st_miss", n_components=5, steps=24, interval=3600).fit(grid)
        ...     result.save("/tmp/day.npz")
    """

    @spelt_out(StepKeywords, STEP_DEFAULTS)
    def __init__(self, tracker: str | Tracker = "st_miss", **keywords: Unpack[StepKeywords]) -> None:
        self._check_keywords(keywords, StepKeywords.__annotations__)
        nodes, interval = take_out(keywords), keywords.pop("interval", 0.0)
        self._on_step = keywords.pop("on_step", None)
        self._newest: Nodes | None = None
        checkpoint = nodes.get("checkpoint")
        if checkpoint is not None:
            checks.parent("the checkpoint", checkpoint)
        waits = Waits.of(nodes, interval=interval)
        super().__init__(waits, checkpoint)
        self._tracker = registry.tracker(tracker)
        keywords.setdefault("n_components", COMPONENTS)
        # what is left are settings of tracking alone
        self._steps = partial(  # type: ignore[misc]
            assembly.tracking,
            self._tracker,
            min_clients=waits.min_nodes,
            **keywords,
        )
        self._check_run()
        if self._waits.hosted == SUMMED:
            compatible.check(self._tracker, {"hosted": SUMMED}, registry.TRACKERS)

    def result_so_far(self) -> TrackingResult | None:
        """The result of those steps of the newest run that are over; None before one is. While the run goes on, or
        after it has been interrupted.
        """
        if self._newest is None or (found := self._newest.run.result_so_far()) is None:
            return None
        result: TrackingResult = replace(found, site_names=self._newest.site_names)
        return result.with_keys(self._newest.lasting_keys)

    def _run(self, nodes: Nodes, watcher: Watcher) -> TrackingResult:
        return super()._run(nodes, watcher).with_keys(nodes.lasting_keys)

    @property
    def algorithm(self) -> Tracker:
        """The tracker."""
        return self._tracker

    def _watchers(self, nodes: Nodes) -> list[Watcher]:
        self._newest = nodes
        return [Following(self._tell, lambda node: (nodes.lasting_keys.get(node, node), nodes.sites.get(node, "")))]

    def _tell(self, record: StepRecord) -> None:
        if record.change is not None:
            log(WARNING, "%s", record.change)
        if self._on_step is not None:
            self._on_step(record)

    def _new_run(self, *, num_rounds: int = 0, start: Start | None = None) -> AnyRun:
        if start is None:
            return self._steps()
        return self._steps(start=start)
