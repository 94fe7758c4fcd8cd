"""Standardize: means and deviations of the columns of all nodes together, for pipelines that need no PCA."""

from __future__ import annotations

from typing import Unpack

from flower_pca import assembly
from flower_pca.assembly import AnyRun, AskedScaling
from flower_pca.base.signature import spelt_out
from flower_pca.core import compatible
from flower_pca.results.scaling import Scaling
from flower_pca.results.start import Start
from flower_pca.stages.standardize import Standardize as Stage
from flower_pca.strategies.base import FlowerStrategy
from flower_pca.strategies.waits import NODE_DEFAULTS, SUMMED, NodeKeywords, Waits


class ScalingKeywords(NodeKeywords, AskedScaling, total=False):
    """What the strategy takes: see `Standardize`."""


class Standardize(FlowerStrategy[Scaling]):
    """Federated scaling as a Flower Strategy: one message, or two under masks.

    The result is a `Scaling`: `to_record` sends it to the nodes with the messages of a later step, where
    `Scaling.from_record(record).transform(rows)` standardizes their rows.

    Args:
        **keywords: How nodes are waited for and asked, min_nodes (2 if left out), node_timeout, round_timeout, action,
            hosted and checkpoint: see `PCAStrategy`. And what is asked, missing, columns and mask: see `Question`.

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     scaling = Standardize().fit(grid)
        ...     FedAvg().start(grid, arrays, train_config=ConfigRecord({"lr": 0.1, **scaling.to_record()}))
    """

    @spelt_out(ScalingKeywords, {**NODE_DEFAULTS, **assembly.SCALING})
    def __init__(self, **keywords: Unpack[ScalingKeywords]) -> None:
        self._check_keywords(keywords, ScalingKeywords.__annotations__)
        self._mask, self._columns = keywords.get("mask", False), keywords.get("columns")
        self._missing = keywords.get("missing", "error")
        super().__init__(Waits.of(keywords), keywords.get("checkpoint"))
        self._new_run()  # which checks what is asked
        if self._waits.hosted == SUMMED and self._mask:
            compatible.check_options({"hosted": SUMMED, "mask": self._mask})

    @property
    def algorithm(self) -> Stage:
        """The stage that the run is named after."""
        return Stage()

    def _new_run(self, *, num_rounds: int = 0, start: Start | None = None) -> AnyRun:
        return assembly.standardizing(
            missing=self._missing,
            columns=self._columns,
            min_clients=self._waits.min_nodes,
            mask=self._mask,
            judged=self._waits.hosted != SUMMED,
        )
