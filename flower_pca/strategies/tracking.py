"""TrackingStrategy: Flower's server side of a run of steps, carried by the same loop as every other run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.serverapp import Grid

from flower_pca import assembly, registry
from flower_pca.base import checks
from flower_pca.base.linalg import Array
from flower_pca.core.channel import AirChannel
from flower_pca.core.result import PCAResult
from flower_pca.masking import MaskedSums
from flower_pca.strategies.base import PCAStrategy
from flower_pca.tracking.result import TrackingResult
from flower_pca.tracking.session import TrackingSession
from flower_pca.tracking.tracker import Tracker


class TrackingStrategy(PCAStrategy):
    """A subspace followed over time, as a Flower Strategy. Nodes serve a `Stream`.

    Args:
        tracker: A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
        n_components: Columns of the basis.
        steps: Steps to take; if left out, until no node has more rows.
        start: A basis to start from, one component per row; or a result.
        seed: Seed of everything random on the server.
        interval: Seconds from the start of a step to that of the next, at least: the pace at which batches arrive.
        mask: Whether the nodes' answers are masked, so that the server learns nothing but their sums; or how:
            a MaskedSums, or a string such as "masks(neighbours=20)".
        min_nodes: Nodes to wait for, and to keep.
        node_timeout: Seconds to wait for them; then NotEnoughNodes is raised.
        round_timeout: Seconds to wait for the answers to a message; nodes that have not answered are left out of it.
        action: Flower's name of the nodes' functions, where they were added by `clients.register`.
        checkpoint: File to keep the state of the run in after every message. If it is there at the start, the run goes
            on from it; a finished run removes it.
        channel: What the sums of the answers are heard through; None for an ideal one.

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     result = TrackingStrategy("st_miss", n_components=5, steps=24, interval=3600).fit(grid)
        ...     result.save("/tmp/day.npz")
    """

    def __init__(
        self,
        tracker: str | Tracker = "st_miss",
        *,
        n_components: int = 2,
        steps: int | None = None,
        start: Array | PCAResult | TrackingResult | None = None,
        seed: int = 0,
        interval: float = 0.0,
        mask: bool | MaskedSums | str | None = False,
        min_nodes: int = 2,
        node_timeout: float = 60.0,
        round_timeout: float = 600.0,
        action: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        channel: AirChannel | None = None,
    ) -> None:
        checks.number("interval", interval, least=0.0, remedy="Give seconds.")
        self._interval, self._step, self._began = interval, -1, 0.0
        new = partial(
            assembly.tracking,
            mask=MaskedSums.of(mask),
            n_components=n_components,
            steps=steps,
            start=start,
            seed=seed,
            channel=channel,
            min_clients=min_nodes,
        )
        self._carry(registry.tracker(tracker), new, min_nodes, node_timeout, round_timeout, action, checkpoint)

    def fit(  # type: ignore[override]
        self, grid: Grid, *, on_round: Callable[[TrackingSession], None] | None = None
    ) -> TrackingResult:
        """Run to the end and return the subspace of every step.

        Args:
            grid: The grid.
            on_round: Called with the session after every message.
        """
        self._step = -1
        result: Any = super().fit(grid, on_round=on_round)  # type: ignore[arg-type]
        assert isinstance(result, TrackingResult)
        return result

    def _nodes(self, grid: Grid) -> list[int]:
        """The nodes connected now, once the step under way is due."""
        step = self._session.step
        if step != self._step:
            if self._step >= 0 and not self._session.finished:
                time.sleep(max(0.0, self._began + self._interval - time.monotonic()))
            self._step, self._began = step, time.monotonic()
        return super()._nodes(grid)
