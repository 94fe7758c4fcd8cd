"""PCAStrategy, which runs a configured PCA over the nodes of a Flower grid, and two related strategies.

Standardize computes the means and deviations of columns over all nodes together, for pipelines without a
PCA. TrackingStrategy runs the steps of a tracker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from logging import WARNING
from typing import Any, Final, Unpack, cast

from flower_pca import assembly, registry
from flower_pca.assembly import AnyRun, ScalingOptions, TrackingOptions
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.signatures import defaults, with_signature
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.config import COMPONENTS, PCAConfig, PCAConfigOptions, SimulationOptions
from flower_pca.core.drive import Watcher
from flower_pca.results import start as starts
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import Scaling
from flower_pca.results.record import StepRecord, StepReporter
from flower_pca.results.start import Start
from flower_pca.results.steps import TrackingResult
from flower_pca.stages.opening import ScalingOnly
from flower_pca.strategies.base import FlowerStrategy, GrowingResult
from flower_pca.strategies.exchange import log
from flower_pca.strategies.node_settings import NODE_DEFAULTS, NodeKeywords, NodeSettings, take_node_keywords
from flower_pca.strategies.nodes import Nodes
from flower_pca.tracking.tracker import Tracker


class ScalingKeywords(NodeKeywords, ScalingOptions, total=False):
    """The keywords of `Standardize`."""


class Standardize(FlowerStrategy[Scaling]):
    """A strategy that computes the mean and standard deviation of each column over all nodes.

    This takes one message, or two under masks. The result is a `Scaling`. To standardize the rows of the
    nodes in a later step, send `scaling.to_record()` with the messages of this step, and call
    `Scaling.from_record(record).transform(rows)` at the nodes.

    Parameters
    ----------
    **keywords
        min_nodes (2 by default), node_timeout, round_timeout, action, hosted, max_rows and checkpoint, as in
        `PCAStrategy`, and missing, columns and mask, as in `PCAConfig`.

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

    @with_signature(ScalingKeywords, {**NODE_DEFAULTS, **defaults(assembly.standardizing), "min_nodes": None})
    def __init__(self, **keywords: Unpack[ScalingKeywords]) -> None:
        self._check_keywords(keywords, ScalingKeywords.__annotations__)
        nodes = take_node_keywords(keywords)
        self._asked = cast(ScalingOptions, keywords)  # The remaining keywords are settings of the scaling.
        super().__init__(NodeSettings.of(nodes), nodes.get("checkpoint"))
        self._check_run()

    @property
    def algorithm(self) -> ScalingOnly:
        """The stage that gives the run its name."""
        return ScalingOnly()

    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        return assembly.standardizing(min_nodes=self._node_settings.min_nodes, **self._asked)


class PCAKeywords(NodeKeywords, PCAConfigOptions, total=False):
    """The keywords of `PCAStrategy` except the algorithm."""

    init: Start | None
    fraction: float
    fraction_train: float | None


_OWN: Final = {"init": None, "fraction_train": None}
PCA_DEFAULTS: Final = {**NODE_DEFAULTS, **defaults(PCAConfig), **_OWN, "min_nodes": None}


class PCAStrategy(FlowerStrategy[PCAResult]):
    """A Flower Strategy that runs a federated PCA over the nodes of a grid.

    Parameters
    ----------
    algorithm : str, Algorithm or PCAConfig, default="auto(oversample='auto')"
        A name, a spec string such as "faps(inner_steps=5)", an instance, or a whole `PCAConfig`. "auto" chooses krylov,
        or covariance if it costs less. With oversample="auto", krylov uses wide blocks.
    min_nodes : int or None, default=None
        The minimum number of nodes, or of clients that nodes host. The strategy waits for them, and needs them in every
        round. If this keyword is left out or None, the number is 2, or the min_nodes of a PCAConfig.
    node_timeout : float, default=60.0
        The number of seconds to wait for these nodes. After this time, NotEnoughNodes is raised.
    round_timeout : float, default=600.0
        The number of seconds to wait for the answers of a round. Nodes that have not answered are left out of the
        round.
    action : str or None, default=None
        Flower's name of the action under which `clients.register` has added the nodes' functions, or None if there is
        no action.
    hosted : str or None, default=None
        "stacked" for simulations whose virtual nodes host many clients each, so that the answers of a node's clients
        come in one message. None if each node is a client.
    max_rows : int or None, default=None
        The maximum number of rows that a node may report, or None for no limit. A node that reports more rows is left
        out. Under masks and with noise, only the sum is visible, so the run ends with a DataError if the sum exceeds
        max_rows times the number of nodes.
    checkpoint : str or path or None, default=None
        The file in which the state of the run is saved after every round. If the file exists at the start, the run
        continues from this state. A finished run removes the file.
    min_available_nodes, min_train_nodes, min_evaluate_nodes : int or None, default=None
        Flower's names for `min_nodes`. The largest of these values applies.
    init : PCAResult, path or array-like, or None, default=None
        Components to start from, for an iterative algorithm: an earlier result, its file, or components as rows.
    fraction_train : float or None, default=None
        Flower's name for `fraction`.
    **keywords
        The settings of the run, unless `algorithm` is a PCAConfig: n_components (2 by default) and all other fields of
        `PCAConfig`, such as center, scale, seed, mask=True or dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)". For an
        iterative algorithm, also tol, min_rounds, max_rounds and patience (see `make`).

    Examples
    --------
    >>> from flwr.serverapp import ServerApp
    >>> from flower_pca.strategies import PCAStrategy
    >>> app = ServerApp()
    >>> @app.main()
    ... def main(grid, context):
    ...     result = PCAStrategy("krylov", n_components=5).fit(grid)  # the same kind of result as from `simulate`
    ...     result.save("/tmp/components.npz")
    """

    @with_signature(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self, algorithm: str | Algorithm[Any] | PCAConfig = "auto(oversample='auto')", **keywords: Unpack[PCAKeywords]
    ) -> None:
        self._check_keywords(keywords, {**PCAKeywords.__annotations__, **SimulationOptions.__annotations__})
        nodes, init = take_node_keywords(keywords), keywords.pop("init", None)
        fraction = keywords.pop("fraction_train", None)
        if fraction is not None:
            if "fraction" in keywords:
                raise ConfigError(
                    "fraction and fraction_train are two names for one setting, but both are given. Keep one of them."
                )
            keywords["fraction"] = fraction
        least = algorithm.min_nodes if isinstance(algorithm, PCAConfig) else NodeSettings.min_nodes
        config = assembly.config(algorithm, **keywords)
        node_settings = NodeSettings.of(nodes, min_nodes=least)
        self.config = config = replace(config, min_nodes=node_settings.min_nodes)
        if (checkpoint := nodes.get("checkpoint")) is not None:
            config.check_checkpoint(checkpoint)
        if config.dp is not None and config.dp.noise_seed is not None:
            raise ConfigError(
                f"noise_seed of dp is {config.dp.noise_seed}, but nodes draw their noise from their operating system, "
                "never from a seed. Leave noise_seed out.",
                setting="noise_seed",
                value=config.dp.noise_seed,
            )
        super().__init__(node_settings, checkpoint)
        self._start: Start | None = None
        if init is not None:
            starts.refuse_setting(config.algorithm, init)
            self._start = starts.read_start(init)
        self._check_run()

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm."""
        return self.config.algorithm

    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        config = self.config
        if num_rounds and isinstance(config.algorithm, Iterative):
            # The opening counts as the first round.
            config = replace(config, algorithm=registry.make(config.algorithm, max_rounds=max(num_rounds - 1, 1)))
        return assembly.run(config, init=self._start if init is None else init)


class StepKeywords(NodeKeywords, TrackingOptions, total=False):
    """The keywords of `TrackingStrategy` except the tracker."""

    interval: float
    on_step: Callable[[StepRecord], None] | None


_OF_STEPS: Final = {"n_components": COMPONENTS, "interval": 0.0, "on_step": None}
STEP_DEFAULTS: Final = {**NODE_DEFAULTS, **defaults(assembly.tracking), **_OF_STEPS, "min_nodes": None}


class TrackingStrategy(FlowerStrategy[TrackingResult]):
    """A Flower Strategy that tracks a subspace over time from batches of rows at the nodes.

    The nodes serve a `Stream`.

    Parameters
    ----------
    tracker : str or Tracker, default="st_miss"
        A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
    interval : float, default=0.0
        The minimum number of seconds from the start of one step to the start of the next step. Set it to the interval
        at which batches arrive.
    on_step : callable or None, default=None
        A function that is called with the `StepRecord` of every step at the end of the step, before the checkpoint is
        written. A run that continues from the checkpoint may therefore report its newest step twice. Clients are named
        by their partition-ids, or by node ids if they have none. Changes are always logged as warnings.
    **keywords
        min_nodes (2 by default), node_timeout, round_timeout, action, hosted, max_rows (for each step) and checkpoint,
        as in `PCAStrategy`, and n_components (2 by default), steps, init, columns, seed, mask and channel, as in
        `assembly.tracking`.

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
        nodes, interval = take_node_keywords(keywords), keywords.pop("interval", 0.0)
        self._on_step = keywords.pop("on_step", None)
        self._newest: Nodes | None = None
        checkpoint = nodes.get("checkpoint")
        if checkpoint is not None:
            checks.parent_exists("the checkpoint", checkpoint)
        node_settings = NodeSettings.of(nodes, interval=interval)
        super().__init__(node_settings, checkpoint)
        self._tracker = registry.tracker(tracker)
        # The remaining keywords are settings of the tracking.
        others = cast(dict[str, Any], keywords)
        self._steps = partial(assembly.tracking, self._tracker, min_nodes=node_settings.min_nodes, **others)
        self._check_run()

    def result_so_far(self) -> TrackingResult | None:
        """Return the result of the finished steps of the newest run, or None before the first step is finished.

        This method can be called while the run continues, and after the run was interrupted.
        """
        if self._newest is None or (found := self._newest.run.result_so_far()) is None:
            return None
        result = replace(cast(TrackingResult, found), **self._newest.site_fields())
        return result.with_keys(self._newest.lasting_keys)

    def _run(self, nodes: Nodes, watcher: Watcher, growing: GrowingResult) -> TrackingResult:
        return super()._run(nodes, watcher, growing).with_keys(nodes.lasting_keys)

    @property
    def algorithm(self) -> Tracker:
        """The tracker."""
        return self._tracker

    def _watchers(self, nodes: Nodes) -> list[Watcher]:
        self._newest = nodes
        return [
            StepReporter(
                self._pass_on_record, lambda node: (nodes.lasting_keys.get(node, node), nodes.sites.get(node, ""))
            )
        ]

    def _pass_on_record(self, record: StepRecord) -> None:
        if record.change is not None:
            log(WARNING, "%s", record.change)
        if self._on_step is not None:
            self._on_step(record)

    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        if init is None:
            return self._steps()
        return self._steps(init=init)
