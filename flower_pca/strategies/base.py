"""FlowerStrategy, which runs an algorithm over the nodes of a grid as a Flower Strategy.

`fit` and `start` drive a run over `Nodes` to its end. All mathematics is in the stages of the run. The
four hooks, `configure_train`, `aggregate_train`, `configure_evaluate` and `aggregate_evaluate`, perform
single steps of a run. Flower's loop calls them, and so do `fit` and `start` if a subclass overrides at
least one of them.

Every message of a run is a round, and the opening is round 1. The closing evaluation is a separate
round without training.
"""

from __future__ import annotations

import inspect
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flower_pca import registry, wire
from flower_pca.assembly import AnyRun
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import Round
from flower_pca.base.linalg import fix_signs
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.drive import Driven, OnRound, Watcher, drive
from flower_pca.core.model import Model
from flower_pca.core.stage import Broadcast, Failure, Reply, Sum
from flower_pca.hints.repeats import without_repeated_hints
from flower_pca.hints.units import hints_by_moments
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import Scaling
from flower_pca.results.start import Start, StartComponents
from flower_pca.results.steps import TrackingResult
from flower_pca.stages.opening import SITE_DEVIATIONS, SITE_KEYS, SITE_MEANS, SITE_ROWS
from flower_pca.strategies.exchange import log
from flower_pca.strategies.node_settings import NodeSettings, take_fixed_parameters
from flower_pca.strategies.nodes import Nodes, StoppedError, is_pca_message, kind_of
from flower_pca.vertical.result import ColumnsResult
from flower_pca.wire import records
from flower_pca.wire.records import ArrayRecord, ConfigRecord, MetricRecord

# The key of a metric of each round, which is 1 if the components are in their final order and 0 if not
IN_ORDER: Final = "in_order"
_BUDGET: Final = "dp(epsilon=1.0, delta=1e-6, clip=10.0)"
HOOKS: Final = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")

EvaluateFn: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]
ShouldStop: TypeAlias = Callable[[int, Result], bool]

R = TypeVar("R", PCAResult, TrackingResult, Scaling)
T = TypeVar("T")


class FlowerStrategy(Strategy, Generic[R]):
    """The base class of all strategies. It drives the runs that its subclasses create.

    Parameters
    ----------
    node_settings : NodeSettings
        The settings for waiting for nodes and sending them messages.
    checkpoint : str or path or None
        The file in which the state of the run is saved after every message, or None for no checkpoint.
    """

    def __init__(self, node_settings: NodeSettings, checkpoint: str | os.PathLike[str] | None) -> None:
        self._node_settings = node_settings
        self._checkpoint: Path | None = None
        if checkpoint is not None:
            self._checkpoint = Path(checkpoint)
        self._ready: AnyRun | None = None  # the run that `_check_run` has created and that is driven first
        self._nodes: Nodes | None = None  # the nodes of the run that the hooks advance
        self._message: Broadcast | None = None  # the message that waits for its answers while hooks are called
        self._watching: list[Watcher] = []  # the watchers of the run that the hooks advance
        self._returned: ArrayRecord | None = None  # the arrays that the last `aggregate_train` returned
        self._driven = False  # whether `fit` or `start` calls the hooks instead of Flower's loop
        self._trained = 0  # the round of the last `configure_train` call, or 0 if the call returned no messages

    def _check_keywords(self, keywords: Mapping[str, object], allowed: Iterable[str]) -> None:
        """Raise ConfigError for keywords that are neither in `allowed` nor parameters of the strategy's algorithm."""
        take_fixed_parameters(keywords)
        stage = registry.STAGES.get(getattr(self, "name", ""))
        own: list[str] = []
        if stage:
            own = [f.name for f in fields(stage)]
        for name in keywords:
            if name not in (names := [*allowed, *own]):
                public = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__.startswith("flower_pca."))
                remedy = checks.did_you_mean(name, names, otherwise=f"See help(flower_pca.strategies.{public}).")
                raise ConfigError(f"{type(self).__name__} has no parameter {shown(name)}. {remedy}")

    @abstractmethod
    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        """Return a new run. It has at most `num_rounds` rounds (0 for no limit), and starts from `init` if given."""

    def _check_run(self) -> None:
        """Create the first run now, so that wrong settings are refused early."""
        self._ready = self._new_run()

    def _run_to_drive(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        """Return the run that `_check_run` created if it is unused and has these settings, or else a new run."""
        ready, self._ready = self._ready, None
        if ready is None or num_rounds or init is not None:
            return self._new_run(num_rounds=num_rounds, init=init)
        return ready

    @property
    @abstractmethod
    def algorithm(self) -> Any:
        """The algorithm or the tracker of the run."""

    def fit(self, grid: Grid, *, on_round: Callable[[Driven], None] | None = None) -> R:
        """Run the algorithm to its end and return the result.

        Parameters
        ----------
        grid : Grid
            The grid of nodes.
        on_round : callable or None, default=None
            A function that is called with the run after every message.

        Raises
        ------
        NotEnoughNodes
            If fewer than min_nodes nodes connect within node_timeout, or fewer than min_nodes nodes answer.
        DataError
            If the rows of all nodes together cannot be used.
        """
        return self._run(
            _transport_of_grid(grid, self._run_to_drive(), self._node_settings), OnRound(on_round), GrowingResult()
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        should_stop: ShouldStop | None = None,
    ) -> Result:
        """Run like Flower's strategies, but end when the algorithm has converged.

        Parameters
        ----------
        grid : Grid
            The grid of nodes.
        initial_arrays : ArrayRecord or None, default=None
            Components to start from, as rows of an array with the name components, for example from `arrays_of` for an
            earlier result. Arrays without components are ignored, with a warning.
        num_rounds : int, default=0
            The maximum number of rounds: the opening and num_rounds - 1 rounds of the algorithm. With 0, the algorithm
            determines the number. A closing message, if the algorithm needs one, and an evaluation take one more round
            each.
        timeout : float or None, default=None
            The number of seconds to wait for the answers of a round. The default is round_timeout.
        train_config : ConfigRecord or None, default=None
            Values that the nodes get with each message, in addition to the values of the strategy.
        evaluate_config : ConfigRecord or None, default=None
            Values that the nodes get with the message of an evaluation.
        evaluate_fn : EvaluateFn or None, default=None
            A function that is called after each round with the number of the round and the current arrays. If
            `initial_arrays` has components, the function is also called with 0 before the first round.
        should_stop : ShouldStop or None, default=None
            A function that is called after each round with the number of the round and the Result so far. If it returns
            True, no further message is sent, and the Result has the current components.

        Returns
        -------
        Result
            Flower's Result, with the arrays of `arrays_of` and the metrics of each round.
        """
        began = time.monotonic()
        checks.integer("num_rounds", num_rounds, remedy="Use 0 to leave it to the algorithm.")
        init = _start_in_arrays(initial_arrays)
        _require_callable("evaluate_fn", evaluate_fn, "server_round, arrays")
        _require_callable("should_stop", should_stop, "server_round, result")
        for name, given in (("train_config", train_config), ("evaluate_config", evaluate_config)):
            if given is not None and not isinstance(given, Mapping):
                raise ConfigError(
                    f"{name} is {shown(given)}, which is not a ConfigRecord of Flower. Give a ConfigRecord, or leave "
                    "it out."
                )
        growing = GrowingResult(evaluate_fn, should_stop)
        made = self._run_to_drive(num_rounds=num_rounds, init=init)
        node_settings = self._node_settings
        if timeout is not None:
            checks.number("timeout", timeout, least=0.1, remedy="Give seconds.")
            node_settings = replace(node_settings, round_timeout=timeout)
        configs: dict[str, Mapping[str, Any]] = {"train": train_config or {}, wire.EVALUATE: evaluate_config or {}}
        if init is not None and initial_arrays is not None:
            growing.arrays = initial_arrays
            growing.evaluate(0)
        nodes = _transport_of_grid(grid, made, node_settings, configs)
        nodes.num_rounds, growing.nodes = num_rounds, nodes
        try:
            arrays = arrays_of(self._run(nodes, growing, growing))
            growing.result.arrays = growing.arrays if growing.changed else arrays
        except StoppedError:
            log(INFO, "should_stop has ended the run after round %d.", nodes.run.history[-1].number + 1)
        log(INFO, "")
        log(INFO, "Strategy execution finished in %.2fs", time.monotonic() - began)
        log(INFO, "")
        log(INFO, "Final results:")
        log(INFO, "")
        for line in str(growing.result).splitlines():
            log(INFO, "\t%s", line)
        log(INFO, "")
        return growing.result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the next round, or an empty list if it is an evaluation or the run has ended."""
        self._trained = 0
        if server_round == 1 and not self._driven and self._nodes is not None and self._nodes.run.is_finished:
            self._nodes = None  # Flower's loop starts a new run.
        messages = self._configure(arrays, config, grid, "train")
        if messages:
            self._trained = server_round
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the closing evaluation, or an empty list if this round has no evaluation."""
        if self._trained == server_round:
            return []
        return self._configure(arrays, config, grid, wire.EVALUATE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the components and the metrics after a round, or (None, None) if no round was configured.

        The metric `in_order` is 1 if the components are in their final order, by decreasing variance. It is 0 if
        no message has measured their order yet. In this case, they only span the same space as the ordered
        components.
        """
        done = self._aggregate(replies, "train")
        if done is None:
            return None, None
        run, record = done
        self._returned = _arrays_so_far(run)
        return self._returned, _metrics_of(run, record)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics of the closing evaluation, or None if this round has no evaluation."""
        done = self._aggregate(replies, wire.EVALUATE)
        if done is None:
            return None
        return records.metric_record(done[1].metrics) if done[1].metrics else None

    def summary(self) -> None:
        """Log the settings of the run."""
        log(INFO, "\t├── Algorithm: %s", self.algorithm.spec)
        log(
            INFO,
            "\t├── Nodes: at least %d, waited for %g s",
            self._node_settings.min_nodes,
            self._node_settings.node_timeout,
        )
        log(INFO, "\t└── Answers: waited for %g s a round", self._node_settings.round_timeout)

    def _watchers(self, nodes: Nodes) -> list[Watcher]:
        """Return the watchers of the run over these nodes."""
        return []

    def _run(self, nodes: Nodes, watcher: Watcher, growing: GrowingResult) -> R:
        if self._driven:  # The state of the hooks belongs to the strategy, so the strategy can serve only one run.
            raise ConfigError(
                f"{type(self).__name__} is in the middle of another run, but its hooks can serve only one run at a "
                "time. Create one strategy for each run."
            )
        log(INFO, "Starting %s strategy:", type(self).__name__)
        self.summary()
        self._nodes = self._message = None
        nodes.checkpoint = self._checkpoint
        step = None
        if any(getattr(type(self), hook) is not getattr(FlowerStrategy, hook) or hook in vars(self) for hook in HOOKS):
            train, evaluate = (records.config_record(nodes.configs.get(kind, {})) for kind in ("train", wire.EVALUATE))
            step = partial(self._step, nodes, growing, train, evaluate)

        report = OnRound(lambda run: nodes.log_answers(run.history[-1]))
        watchers = [report, *self._watchers(nodes), watcher]
        self._driven = step is not None
        try:
            result: R = cast(R, drive(nodes.run, nodes, checkpoint=self._checkpoint, watchers=watchers, step=step))
        finally:
            self._nodes, self._message, self._driven = None, None, False
        result = replace(result, **nodes.site_fields())
        if isinstance(result, PCAResult):
            units: list[str] = _hints_of_units(nodes.run.position.model, nodes.site_names)
            result = replace(result, hints=(*result.hints, *units, *nodes.hints, *nodes.remarks))
            result = result.with_keys(nodes.lasting_keys).with_names(nodes.lasting_keys)
            result = replace(result, hints=without_repeated_hints(result.hints))
        if result.status is not None:
            log(INFO, "%s: %s", result.status.outcome.value, result.status.words)
        for line in result.table().splitlines():
            log(INFO, "\t%s", line)
        if isinstance(result, PCAResult):
            for choice in result.decisions:
                log(INFO, "%s", choice)
            for hint in result.hints:
                log(WARNING, "%s", hint)
        return result

    def _step(
        self, nodes: Nodes, growing: GrowingResult, train: ConfigRecord, evaluate: ConfigRecord, message: Broadcast
    ) -> bool:
        """Perform one round by calling the hooks like Flower's loop. Return whether the run has advanced."""
        nodes.log_begin(message)
        self._nodes, self._message = nodes, message
        number, grid = message.number + 1, nodes.grid
        asked = self._require_messages("configure_train", self.configure_train(number, growing.arrays, train, grid))
        self._require_own_messages(asked)
        evaluates = nodes.purpose == wire.EVALUATE
        replies = nodes.send_and_receive(asked)
        arrays, figures = self._require_two(
            self._require_returned("aggregate_train", self.aggregate_train(number, replies))
        )
        self._require_answers_passed(due=not evaluates)
        if arrays is not None:
            growing.arrays, growing.changed = arrays, arrays is not self._returned
        asked = self._require_messages(
            "configure_evaluate", self.configure_evaluate(number, growing.arrays, evaluate, grid)
        )
        replies, why = nodes.send_and_receive(asked), ""
        # If some nodes have answered the evaluation already, the hook may leave out the remaining nodes.
        if evaluates and not any(map(is_pca_message, asked)) and not nodes.run.roll.awaited:
            self._message, why = None, "configure_evaluate did not request it"
        growing.told = figures, self.aggregate_evaluate(number, replies)
        if self._message is not None:
            self._message, why = None, "aggregate_evaluate did not pass the replies to super().aggregate_evaluate"
        if why:
            nodes.remarks.append(f"The reconstruction error was not measured: {type(self).__name__}.{why}.")
            nodes.run.skip()
        return not why

    def _require_returned(self, hook: str, returned: T | None) -> T:
        """Return what a hook returned, and raise ConfigError if this is None.

        A missing `return` statement is the most frequent mistake in hooks.
        """
        if returned is None:
            name = type(self).__name__
            raise ConfigError(
                f"{name}.{hook} has returned nothing. At its end, return what super().{hook}(...) returns."
            )
        return returned

    def _require_messages(self, hook: str, returned: Iterable[Message] | None) -> list[Message]:
        """Return the messages that a hook returned, and raise ConfigError if it returned anything else."""
        messages = self._require_returned(hook, returned)
        asked: list[Any] = list(messages) if isinstance(messages, Iterable) else [messages]
        for message in asked:
            if not isinstance(message, Message):
                raise ConfigError(
                    f"{type(self).__name__}.{hook} has returned {shown(message)} as a message. Return only messages, "
                    f"like super().{hook}(...)."
                )
        return asked

    def _require_two(self, returned: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the arrays and metrics from `aggregate_train`, and raise ConfigError if it returned anything else.

        A single record must not be unpacked into two values by mistake.
        """
        if isinstance(returned, tuple | list) and len(returned) == 2:
            arrays, figures = returned
            if isinstance(arrays, ArrayRecord | None) and isinstance(figures, Mapping | None):
                return arrays, cast(MetricRecord | None, figures)
            name, found = type(self).__name__, arrays if figures is None or isinstance(figures, Mapping) else figures
            raise ConfigError(
                f"{name}.aggregate_train has returned {shown(found)}, which is not a record. Return arrays as an "
                "ArrayRecord and metrics as a MetricRecord, or None instead of either of them."
            )
        raise ConfigError(
            f"{type(self).__name__}.aggregate_train has returned {shown(returned)} instead of two things, arrays and "
            "metrics. Return both, like super().aggregate_train(...), or None instead of either of them."
        )

    def _require_own_messages(self, messages: Sequence[Message]) -> None:
        """Raise ConfigError if none of the messages from `configure_train` belongs to the run.

        The hook may add its own messages to those of the run.
        """
        if messages and not any(map(is_pca_message, messages)):
            name = type(self).__name__
            raise ConfigError(
                f"{name}.configure_train has returned only its own messages, without any message of the run. Call "
                f"super().configure_train(server_round, arrays, config, grid) in it, and return its messages too."
            )

    def _require_answers_passed(self, *, due: bool) -> None:
        """Raise ConfigError if `aggregate_train` did not pass on the answers, because the run would then never end."""
        if due and self._message is not None:
            raise ConfigError(
                f"{type(self).__name__}.aggregate_train did not pass on the replies, so the run cannot continue. Call "
                "super().aggregate_train(server_round, replies) in it, and return its result."
            )

    def _configure(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, kind: str) -> list[Message]:
        if self._nodes is None:
            _require_unwrapped()
            self._nodes = _transport_of_grid(
                grid, self._run_to_drive(init=_start_in_arrays(arrays)), self._node_settings
            )
            self._watching = self._watchers(self._nodes)
        nodes = self._nodes
        nodes.grid = grid
        if self._message is None and not self._driven:
            self._message = nodes.run.pending(nodes.present())
        if self._message is None or wire.message_kind(self._message.purpose) != kind:
            return []
        nodes.purpose = kind
        nodes.configs[kind] = dict(config)
        nodes.log_sample(self._message)
        return nodes.compose(self._message)

    def _aggregate(self, replies: Iterable[Message], kind: str) -> tuple[Driven, Round] | None:
        nodes, message = self._nodes, self._message
        if nodes is None or message is None or wire.message_kind(message.purpose) != kind:
            return None
        came = dict[int, Message]()
        for reply in replies:
            node = reply.metadata.src_node_id
            # A hook may have sent its own message to the node, so the node can have two replies.
            if node not in came or (reply.has_content() and wire.is_reply(reply.content, kind_of(reply))):
                came[node] = reply
        answers = list[Reply | Sum | Failure]()
        for carrier in nodes.nodes_for(message):
            if carrier in came:
                answers += nodes.answers_with_bytes(carrier, came[carrier], message)
            elif self._driven:
                answers += nodes.failures_from_hook(carrier, message)
            else:
                answers += nodes.failures_from_loop(carrier, message)
        self._message = None
        record = nodes.run.advance(nodes.in_order_of_keys(answers))
        if not self._driven:
            nodes.log_answers(record)
            for watcher in self._watching:
                watcher.before_saving(nodes.run)
        return nodes.run, record


@dataclass
class GrowingResult(Watcher):
    """A watcher that adds every message of a run to Flower's Result.

    Parameters
    ----------
    evaluate_fn : EvaluateFn or None, default=None
        The caller's function, which is called with the arrays after every message.
    should_stop : ShouldStop or None, default=None
        The caller's function, which is called with the Result after every message.

    Attributes
    ----------
    result : Result
        Flower's Result so far.
    nodes : Nodes or None
        The nodes of the run.
    arrays : ArrayRecord
        The newest arrays, either from the run or from a subclass's hook.
    told : tuple or None
        The metrics that a subclass's hooks have returned for the newest message, or None if hooks are not called.
    changed : bool
        Whether a subclass's hook has returned different arrays than the run.
    """

    evaluate_fn: EvaluateFn | None = None
    should_stop: ShouldStop | None = None
    result: Result = field(default_factory=Result)
    nodes: Nodes | None = None
    arrays: ArrayRecord = field(default_factory=ArrayRecord)
    told: tuple[MetricRecord | None, MetricRecord | None] | None = None
    changed: bool = False

    def after_message(self, run: Driven) -> None:
        """Add the metrics and arrays of the message to the Result, and call the caller's functions."""
        record = run.history[-1]
        number = record.number + 1
        metrics, trained = self.result.evaluate_metrics_clientapp, self.result.train_metrics_clientapp
        if self.told is not None:
            figures, errors = self.told
            if figures is not None:
                trained[number] = figures
            if errors is not None:
                metrics[number] = errors
        elif self.nodes is not None and self.nodes.purpose == wire.EVALUATE:
            if record.metrics:  # If masks split a message into several messages, only the last one has metrics.
                metrics[number] = records.metric_record(record.metrics)
        else:
            trained[number] = _metrics_of(run, record)
        if self.evaluate_fn is None and self.should_stop is None:
            return
        if self.told is None and (arrays := _arrays_so_far(run)) is not None:
            self.arrays = arrays
        self.result.arrays = self.arrays
        self.evaluate(number)
        if self.should_stop is not None and self.should_stop(number, self.result) and self.nodes:
            self.nodes.stopped = True

    def evaluate(self, number: int) -> None:
        """Call `evaluate_fn` after round `number` and store the metrics, if there are arrays to evaluate."""
        if self.evaluate_fn is None or not self.arrays:
            return
        figures = self.evaluate_fn(number, self.arrays)
        if number:
            log(INFO, "Global evaluation")
            log(INFO, "\t└──> MetricRecord: %s", figures)
        else:
            log(INFO, "Initial global evaluation results: %s", figures)
        if figures is not None:
            self.result.evaluate_metrics_serverapp[number] = figures


def _transport_of_grid(
    grid: Grid, run: AnyRun, node_settings: NodeSettings, configs: Mapping[str, Mapping[str, Any]] | None = None
) -> Nodes:
    """Return the transport for the nodes of a grid. It is a `HostingNodes` if each node hosts many clients."""
    if node_settings.hosted is None:
        return Nodes(grid, run, node_settings, dict(configs or {}))
    from flower_pca.strategies.hosting import HostingNodes

    return HostingNodes(grid, run, node_settings, dict(configs or {}))


def _require_callable(name: str, function: Any, parameters: str) -> None:
    """Raise ConfigError if a caller's function cannot be called with the parameters that Flower passes."""
    if function is None:
        return
    if not callable(function):
        raise ConfigError(f"{name} is {shown(function)}, which is not a function. Give a function, or leave it out.")
    try:
        inspect.signature(function).bind(*parameters.split(", "))
    except ValueError:  # Some functions written in C have no signature.
        return
    except TypeError as error:
        raise ConfigError(
            f"{name} cannot be called as {name}({parameters}), which is how Flower calls it: {error}. Give it these "
            "two parameters."
        ) from None


def _require_unwrapped() -> None:
    """Raise ConfigError if the strategy is inside a wrapper of Flower that clips answers and adds noise.

    The strategy has no reference to such a wrapper, so this function looks for it on the call stack.
    """
    frame = inspect.currentframe()
    while frame is not None:
        for kind in type(frame.f_locals.get("self")).__mro__:
            if kind.__module__.startswith("flwr.") and kind.__name__.startswith("DifferentialPrivacy"):
                raise ConfigError(
                    f"{kind.__name__} clips the arrays of answers or adds noise to them, but PCA cannot use changed "
                    f"arrays. Start the inner strategy directly. For noise, give it {option('dp', _BUDGET)}."
                )
        frame = frame.f_back


def _start_in_arrays(arrays: ArrayRecord | None) -> StartComponents | None:
    """Return the components in a caller's initial arrays, or None if the arrays have no components.

    For example, the weights of a neural network have no components.
    """
    if arrays is not None and not isinstance(arrays, ArrayRecord):
        raise ConfigError(
            f"initial_arrays is not an ArrayRecord of Flower but has the type {type(arrays).__name__}. Give "
            f"arrays_of(result) for an earlier result, or leave it out."
        )
    if not arrays:
        return None
    if "components" not in arrays:
        log(WARNING, "initial_arrays are ignored, because PCA starts only from an array with the name components.")
        return None
    known = records.arrays_of_record(arrays)
    return StartComponents(known["components"], known.get("scale"))


def _arrays_so_far(run: Driven) -> ArrayRecord | None:
    """Return the current components in the form of `arrays_of`, or None if there are no components yet.

    Mean and scale are included if they are known. The number of components is the requested number, but the
    components may not be the best directions within their span yet.
    """
    Z = run.estimate()
    if Z is None:
        return None
    arrays = {"components": np.ascontiguousarray(fix_signs(Z[:, : run.position.model.k]).T)}
    model = run.position.current_model(is_complete=run.roll.whole)
    if run.position.opens and model.split is None:
        arrays["mean"] = np.zeros(model.d) if model.frame.mean is None else model.frame.mean
        if model.frame.scale is not None:
            arrays["scale"] = model.frame.scale
    return records.named_array_record(arrays)


_FEWEST_ROWS: Final = 20  # Sites with fewer rows are not searched for columns in other units.


def _hints_of_units(model: Model, names: Mapping[int, str]) -> list[str]:
    """Return hints about sites whose columns seem to be in other units, if the server sees means and deviations."""
    if SITE_MEANS not in model.sites:
        return []
    enough = model.sites[SITE_ROWS] >= _FEWEST_ROWS
    sites = [labels.client_name(names, int(key)) for key in model.sites[SITE_KEYS][enough]]
    columns = model.feature_names or [f"column {j}" for j in range(model.d)]
    rows, means, deviations = (model.sites[name][enough] for name in (SITE_ROWS, SITE_MEANS, SITE_DEVIATIONS))
    return hints_by_moments(sites, rows, means, deviations, columns)


def _metrics_of(run: Driven, record: Round) -> MetricRecord:
    """Return the metrics of a round of training, in the same form for hooks and for `start`."""
    return records.metric_record({**record.metrics, IN_ORDER: int(_has_final_order(run))})


def _has_final_order(run: Driven) -> bool:
    """Return whether the components are in their final order.

    This is the case if the run has ended, if the variances are known, or if the product of the covariance matrix and
    the components is known.
    """
    known = run.position.current_model(is_complete=run.roll.whole)
    return run.is_finished or known.product is not None or known.values is not None


def arrays_of(result: PCAResult | TrackingResult | Scaling) -> ArrayRecord:
    """Convert a result to an ArrayRecord of Flower.

    The arrays of a PCA are components, explained_variance, mean and, if columns were scaled, scale. If the
    parties held different columns, scores are included. The arrays of a tracker's result are components and
    values, with one entry for each step, and changes. The arrays of a `Scaling` are mean and scale.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> from flower_pca.strategies import arrays_of
    >>> rows = np.random.default_rng(0).standard_normal((60, 6))
    >>> sorted(arrays_of(simulate("krylov", [rows], n_components=2)))
    ['components', 'explained_variance', 'mean']
    """
    if isinstance(result, Scaling):
        return records.named_array_record({"mean": result.mean_, "scale": result.scale_})
    if isinstance(result, TrackingResult):
        return records.named_array_record(
            {"components": result.components_, "values": result.values_, "changes": result.changes_}
        )
    arrays = {"components": result.components_, "explained_variance": result.explained_variance_, "mean": result.mean_}
    if isinstance(result, ColumnsResult):
        arrays["scores"] = result.scores_
    if result.scale_ is not None:
        arrays["scale"] = result.scale_
    return records.named_array_record(arrays)
