"""PCAStrategy: a configuration, asked of the nodes of a Flower grid.

Standardize: means and deviations of the columns of all nodes together, for pipelines that need no
PCA. TrackingStrategy: a tracker's steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from logging import WARNING
from typing import Any, Final, Unpack, cast

from flower_pca import assembly, registry
from flower_pca.assembly import AnyRun, AskedScaling, TrackingOptions
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.signatures import defaults, with_signature
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.config import COMPONENTS, PCAConfig, PCAConfigOptions, SimulationOptions
from flower_pca.core.drive import Watcher
from flower_pca.results import start as starts
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import Scaling
from flower_pca.results.record import Following, StepRecord
from flower_pca.results.start import Start
from flower_pca.results.steps import TrackingResult
from flower_pca.stages.opening import ScalingOnly
from flower_pca.strategies.base import FlowerStrategy, GrowingResult
from flower_pca.strategies.exchange import log
from flower_pca.strategies.nodes import Nodes
from flower_pca.strategies.waits import NODE_DEFAULTS, NodeKeywords, Waits, take_out
from flower_pca.tracking.tracker import Tracker


class ScalingKeywords(NodeKeywords, AskedScaling, total=False):
    """What the strategy takes: see `Standardize`."""


class Standardize(FlowerStrategy[Scaling]):
    """Measure the mean and deviation of each column over all nodes: one message, or two under masks.

    The result is a `Scaling`: `to_record` sends it to the nodes with the messages of a later step,
    where `Scaling.from_record(record).transform(rows)` standardizes their rows.

    Parameters
    ----------
    **keywords
        How nodes are waited for and asked, min_nodes (2 if left out), node_timeout, round_timeout, action, hosted,
        max_rows and checkpoint: see `PCAStrategy`. And what is asked, missing, columns and mask: see `PCAConfig`.

    Examples
    --------
    >>> from flwr.app import ArrayRecord, ConfigRecord
    >>> from flwr.serverapp import ServerApp
    >>> from flwr.serverapp.strategy import FedAvg
    >>> from flower_pca.strategies import Standardize
    >>> app = ServerApp()
    >>> @app.main()
    ... def main(grid, context):
    ...     scaling = Standardize().fit(grid)
    ...     train_config = ConfigRecord({"lr": 0.1, **scaling.to_record()})
    ...     FedAvg().start(grid, ArrayRecord([]), train_config=train_config)
    """

    @with_signature(ScalingKeywords, {**NODE_DEFAULTS, **defaults(assembly.standardizing)})
    def __init__(self, **keywords: Unpack[ScalingKeywords]) -> None:
        self._check_keywords(keywords, ScalingKeywords.__annotations__)
        nodes = take_out(keywords)
        self._asked = cast(AskedScaling, keywords)  # what is left are settings of scaling alone
        super().__init__(Waits.of(nodes), nodes.get("checkpoint"))
        self._check_run()

    @property
    def algorithm(self) -> ScalingOnly:
        """The stage that the run is named after."""
        return ScalingOnly()

    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        return assembly.standardizing(min_nodes=self._waits.min_nodes, **self._asked)


class PCAKeywords(NodeKeywords, PCAConfigOptions, total=False):
    """What a strategy takes beside its algorithm: see `PCAStrategy`."""

    init: Start | None
    fraction: float
    fraction_train: float | None


_OWN: Final = {"init": None, "fraction_train": None}
PCA_DEFAULTS: Final = {**NODE_DEFAULTS, **defaults(PCAConfig), **_OWN}


class PCAStrategy(FlowerStrategy[PCAResult]):
    """Run a federated PCA over the nodes of a Flower grid, as a Flower Strategy.

    Parameters
    ----------
    algorithm : str, Algorithm or PCAConfig, default="auto(oversample='auto')"
        "auto", which is krylov, or covariance where that costs less; by default with oversample="auto", by which
        krylov's blocks are wide. Another name, a spec string such as "faps(inner_steps=5)", or an instance; or a whole
        `PCAConfig`.
    min_nodes : int or None, default=1
        Nodes (or clients that they host) to wait for, and to keep. If left out, 2; of a PCAConfig, its min_nodes.
    node_timeout : float, default=60.0
        Seconds to wait for them; then NotEnoughNodes is raised.
    round_timeout : float, default=600.0
        Seconds to wait for the answers of a round; nodes that have not answered are left out of it.
    action : str or None, default=None
        Flower's name of the nodes' functions, where they were added by `clients.register`.
    hosted : str or None, default=None
        "stacked" in simulations whose virtual nodes host many clients each: the answers of a node's clients come back
        in one message. None if each node is a client.
    max_rows : int or None, default=None
        The most rows that one node may say it has; a node that says more is left out. Under masks and with noise only
        their sum is seen, so there the run ends with a DataError if it is more than so many rows for each node. None
        for no such limit.
    checkpoint : str or path or None, default=None
        File to keep the state of the run in after every round. If it is there at the start, the run goes on from it; a
        finished run removes it.
    min_available_nodes, min_train_nodes, min_evaluate_nodes : int or None, default=None
        Flower's names of `min_nodes`. The largest of them holds.
    init : PCAResult, path or array-like, or None, default=None
        Components to begin with, for an algorithm that iterates: an earlier result, its file, or components as rows.
    fraction_train : float or None, default=None
        What Flower calls `fraction`.
    **keywords
        These, and what is asked, where `algorithm` is not a PCAConfig: n_components (2 if left out), and what else
        `PCAConfig` names, such as center, scale, seed, mask=True or dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)". For an
        algorithm that iterates, tol, min_rounds, max_rounds and patience are its own: see `make`.

    Examples
    --------
    >>> from flwr.serverapp import ServerApp
    >>> from flower_pca.strategies import PCAStrategy
    >>> app = ServerApp()
    >>> @app.main()
    ... def main(grid, context):
    ...     result = PCAStrategy("krylov", n_components=5).fit(grid)  # as `simulate` returns it
    ...     result.save("/tmp/components.npz")
    """

    @with_signature(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self, algorithm: str | Algorithm[Any] | PCAConfig = "auto(oversample='auto')", **keywords: Unpack[PCAKeywords]
    ) -> None:
        self._check_keywords(keywords, {**PCAKeywords.__annotations__, **SimulationOptions.__annotations__})
        nodes, init = take_out(keywords), keywords.pop("init", None)
        fraction = keywords.pop("fraction_train", None)
        if fraction is not None:
            if "fraction" in keywords:
                raise ConfigError(
                    "fraction and fraction_train are two names of one setting, and both are given. Keep one of them."
                )
            keywords["fraction"] = fraction
        least = Waits.min_nodes
        if isinstance(algorithm, PCAConfig):
            least = algorithm.min_nodes
        config = assembly.config(algorithm, **keywords)
        waits = Waits.of(nodes, min_nodes=least)
        self.config = config = replace(config, min_nodes=waits.min_nodes)
        if (checkpoint := nodes.get("checkpoint")) is not None:
            config.check_checkpoint(checkpoint)
        if config.dp is not None and config.dp.noise_seed is not None:
            raise ConfigError(
                f"noise_seed of dp is {config.dp.noise_seed}, and nodes draw their noise from their operating system, "
                "never from a seed. Leave noise_seed out.",
                setting="noise_seed",
                value=config.dp.noise_seed,
            )
        super().__init__(waits, checkpoint)
        self._start: Start | None = None
        if init is not None:
            starts.refuse_setting(config.algorithm, init)
            self._start = starts.read(init)
        self._check_run()

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm."""
        return self.config.algorithm

    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        config = self.config
        if num_rounds and isinstance(config.algorithm, Iterative):
            # the opening is the first of them
            config = replace(config, algorithm=registry.make(config.algorithm, max_rounds=max(num_rounds - 1, 1)))
        return assembly.run(config, init=self._start if init is None else init)


class StepKeywords(NodeKeywords, TrackingOptions, total=False):
    """What a strategy takes beside its tracker: see `TrackingStrategy`."""

    interval: float
    on_step: Callable[[StepRecord], None] | None


_OF_STEPS: Final = {"n_components": COMPONENTS, "interval": 0.0, "on_step": None}
STEP_DEFAULTS: Final = {**NODE_DEFAULTS, **defaults(assembly.tracking), **_OF_STEPS}


class TrackingStrategy(FlowerStrategy[TrackingResult]):
    """Follow a subspace over time over the nodes of a Flower grid, as a Flower Strategy.

    Nodes serve a `Stream`.

    Parameters
    ----------
    tracker : str or Tracker, default="st_miss"
        A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
    interval : float, default=0.0
        Seconds from the start of a step to that of the next, at least: the pace at which batches arrive.
    on_step : callable or None, default=None
        Called with the `StepRecord` of every step as soon as it is over, before the checkpoint is written: a run that
        goes on from there may tell its newest step once more. Clients go by their partition-ids, or by node ids if they
        have none. Changes are logged as warnings in any case.
    **keywords
        These two; how nodes are waited for and asked, min_nodes (2 if left out), node_timeout, round_timeout, action,
        hosted, max_rows (of a step) and checkpoint: see `PCAStrategy`; and what is asked, n_components (2 if left out),
        steps, init, columns, seed, mask, channel: see `assembly.tracking`.

    Examples
    --------
    >>> from flwr.serverapp import ServerApp
    >>> from flower_pca.strategies import TrackingStrategy
    >>> app = ServerApp()
    >>> @app.main()
    ... def main(grid, context):
    ...     result = TrackingStrategy("st_miss", n_components=5, steps=24, interval=3600).fit(grid)
    ...     result.save("/tmp/day.npz")
    """

    @with_signature(StepKeywords, STEP_DEFAULTS)
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
        # what is left are settings of tracking alone
        others = cast(dict[str, Any], keywords)
        self._steps = partial(assembly.tracking, self._tracker, min_nodes=waits.min_nodes, **others)
        self._check_run()

    def result_so_far(self) -> TrackingResult | None:
        """The result of those steps of the newest run that are over; None before one is. While the run goes on, or
        after it has been interrupted.
        """
        if self._newest is None or (found := self._newest.run.result_so_far()) is None:
            return None
        result = replace(cast(TrackingResult, found), **self._newest.of_sites())
        return result.with_keys(self._newest.lasting_keys)

    def _run(self, nodes: Nodes, watcher: Watcher, growing: GrowingResult) -> TrackingResult:
        return super()._run(nodes, watcher, growing).with_keys(nodes.lasting_keys)

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

    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        if init is None:
            return self._steps()
        return self._steps(init=init)
