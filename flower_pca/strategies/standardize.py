"""Standardize: means and deviations of the columns of all nodes together, for pipelines that need no PCA."""

from __future__ import annotations

import os
from typing import Any, Unpack

from flower_pca import assembly
from flower_pca.assembly import AnyRun, AskedScaling
from flower_pca.base.signature import spelt_out
from flower_pca.core import compatible
from flower_pca.results.scaling import Scaling
from flower_pca.results.start import Start
from flower_pca.stages.standardize import Standardize as Stage
from flower_pca.strategies.base import FlowerStrategy
from flower_pca.strategies.waits import SUMMED, Waits


class Standardize(FlowerStrategy[Scaling]):
    """Federated scaling as a Flower Strategy: one message, or two under masks.

    The result is a `Scaling`: `to_record` sends it to the nodes with the messages of a later step, where
    `Scaling.from_record(record).transform(rows)` standardizes their rows.

    Args:
        min_nodes: Nodes (or clients that they host) to wait for, and to keep.
        node_timeout: Seconds to wait for them; then NotEnoughNodes is raised.
        round_timeout: Seconds to wait for the answers to a message; nodes that have not answered are left out of it.
        action: Flower's name of the nodes' functions, where they were added by `clients.register`.
        hosted: In simulations whose virtual nodes host many clients, how these answer: "stacked" or "summed"; see
            `PCAStrategy`.
        checkpoint: File to keep the state of the run in after every message.
        **asked: What is asked: missing, columns, mask: see `Question`.

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     scaling = Standardize().fit(grid)
        ...     FedAvg().start(grid, arrays, train_config=ConfigRecord({"lr": 0.1, **scaling.to_record()}))
    """

    @spelt_out(AskedScaling, assembly.SCALING)
    def __init__(
        self,
        *,
        min_nodes: int = 2,
        node_timeout: float = 60.0,
        round_timeout: float = 600.0,
        action: str | None = None,
        hosted: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **asked: Unpack[AskedScaling],
    ) -> None:
        self._asked_for: AskedScaling = {**assembly.SCALING, **asked}
        times: Any = {"node_timeout": node_timeout, "round_timeout": round_timeout}
        super().__init__(Waits(min_nodes=min_nodes, action=action, hosted=hosted, **times), checkpoint)
        self._made()  # which checks what is asked
        if hosted == SUMMED and self._asked_for.get("mask"):
            compatible.check_options({"hosted": hosted, "mask": self._asked_for["mask"]})

    @property
    def algorithm(self) -> Stage:
        """The stage that the run is named after."""
        return Stage()

    def _made(self, *, num_rounds: int = 0, start: Start | None = None) -> AnyRun:
        judged, least = self._waits.hosted is None, self._waits.min_nodes
        return assembly.standardizing(judged=judged, min_clients=least, **self._asked_for)
