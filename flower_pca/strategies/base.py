"""FlowerStrategy: a run as a Flower Strategy. Flower's verbs over the nodes of a grid; all mathematics is in stages.

`fit` and `start` drive a run over `Nodes` to its end. The four hooks, `configure_train`,
`aggregate_train`, `configure_evaluate` and `aggregate_evaluate`, take single steps of a run. Flower's
own loop calls them, and so do `fit` and `start` if a subclass overrides one of them.

Every message of a run is a round, and the opening is round 1. The closing evaluation is a round of its
own, in which nothing is trained.
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
from flower_pca.hints.repeats import without_repeats
from flower_pca.hints.units import units_by_moments
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import Scaling
from flower_pca.results.start import Components, Start
from flower_pca.results.steps import TrackingResult
from flower_pca.stages.opening import SITE_DEVIATIONS, SITE_KEYS, SITE_MEANS, SITE_ROWS
from flower_pca.strategies.exchange import log
from flower_pca.strategies.nodes import Nodes, StoppedError, is_ours, kind_of
from flower_pca.strategies.waits import Waits, take_fixed
from flower_pca.vertical.result import ColumnsResult
from flower_pca.wire import records
from flower_pca.wire.records import ArrayRecord, ConfigRecord, MetricRecord

# The key of a round's figures that says whether the components after it have their order.
IN_ORDER: Final = "in_order"
_BUDGET: Final = "dp(epsilon=1.0, delta=1e-6, clip=10.0)"
HOOKS: Final = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")

EvaluateFn: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]
ShouldStop: TypeAlias = Callable[[int, Result], bool]

R = TypeVar("R", PCAResult, TrackingResult, Scaling)
T = TypeVar("T")


class FlowerStrategy(Strategy, Generic[R]):
    """A run as a Flower Strategy; see `PCAStrategy` and `TrackingStrategy`, which say what is run.

    Parameters
    ----------
    waits : Waits
        How nodes are waited for and asked.
    checkpoint : str or path or None
        File to keep the state of the run in after every message.
    """

    def __init__(self, waits: Waits, checkpoint: str | os.PathLike[str] | None) -> None:
        self._waits = waits
        self._checkpoint: Path | None = None
        if checkpoint is not None:
            self._checkpoint = Path(checkpoint)
        self._ready: AnyRun | None = None  # the first to be driven
        self._nodes: Nodes | None = None  # The nodes of the steps that a caller takes by hand.
        self._message: Broadcast | None = None
        self._watching: list[Watcher] = []  # The watchers of the steps that a caller takes by hand.
        self._returned: ArrayRecord | None = None  # What the last `aggregate_train` returned.
        self._driven = False  # whether `fit` or `start` calls the hooks, and not a loop of Flower's
        self._trained = 0  # the round of Flower's loop that the newest message of training was in

    def _check_keywords(self, keywords: Mapping[str, object], known: Iterable[str]) -> None:
        """Refuse keywords that are neither in `known` nor parameters of the strategy's algorithm."""
        take_fixed(keywords)
        stage = registry.STAGES.get(getattr(self, "name", ""))
        own: list[str] = []
        if stage:
            own = [f.name for f in fields(stage)]
        for name in keywords:
            if name not in (names := [*known, *own]):
                public = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__.startswith("flower_pca."))
                remedy = checks.did_you_mean(name, names, otherwise=f"See help(flower_pca.strategies.{public}).")
                raise ConfigError(f"{type(self).__name__} has no parameter {shown(name)}. {remedy}")

    @abstractmethod
    def _new_run(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        """A new run; of so many rounds of the algorithm at most, if that is not 0; from these components, if given."""

    def _check_run(self) -> None:
        """Refuse now what cannot be asked, by making the run that is driven first."""
        self._ready = self._new_run()

    def _begin(self, *, num_rounds: int = 0, init: Start | None = None) -> AnyRun:
        """The run made already, if it is the one, and nobody has driven it; else a new one."""
        ready, self._ready = self._ready, None
        if ready is None or num_rounds or init is not None:
            return self._new_run(num_rounds=num_rounds, init=init)
        return ready

    @property
    @abstractmethod
    def algorithm(self) -> Any:
        """The algorithm, or the tracker."""

    def fit(self, grid: Grid, *, on_round: Callable[[Driven], None] | None = None) -> R:
        """Run to the end and return the result.

        Parameters
        ----------
        grid : Grid
            The grid.
        on_round : callable or None, default=None
            Called with the run after every message.

        Raises
        ------
        NotEnoughNodes
            If fewer than min_nodes nodes are there within node_timeout, or answer.
        DataError
            If the rows of all nodes together cannot be used.
        """
        return self._run(_nodes(grid, self._begin(), self._waits), OnRound(on_round), GrowingResult())

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
        """Run as Flower's strategies do, but end on convergence.

        Parameters
        ----------
        grid : Grid
            The grid.
        initial_arrays : ArrayRecord or None, default=None
            Components to begin with, as rows, named components: what `arrays_of` makes of an earlier result, say.
            Others are left aside, with a warning.
        num_rounds : int, default=0
            The opening and at most so many rounds less one of the algorithm; 0 leaves that to the algorithm. An
            algorithm that needs a closing message, and an evaluation, take a round more each.
        timeout : float or None, default=None
            Seconds to wait for the answers of a round; round_timeout if left out.
        train_config : ConfigRecord or None, default=None
            Sent to the nodes beside our own configuration.
        evaluate_config : ConfigRecord or None, default=None
            Likewise, with an evaluation.
        evaluate_fn : EvaluateFn or None, default=None
            Called with the number of the round and the arrays after it; before the first round too, with 0, if
            `initial_arrays` has components.
        should_stop : ShouldStop or None, default=None
            Called after each round with its number and the Result so far. If it returns True, no further message is
            sent, and the Result has the components as they are.

        Returns
        -------
        Result
            Flower's Result: arrays are those of `arrays_of`, metrics those of the history, by round.
        """
        began = time.monotonic()
        checks.integer("num_rounds", num_rounds, remedy="Use 0 to leave it to the algorithm.")
        init = _start_of(initial_arrays)
        _require_callable("evaluate_fn", evaluate_fn, "server_round, arrays")
        _require_callable("should_stop", should_stop, "server_round, result")
        for name, given in (("train_config", train_config), ("evaluate_config", evaluate_config)):
            if given is not None and not isinstance(given, Mapping):
                raise ConfigError(f"{name} is {shown(given)} and no ConfigRecord of Flower. Give one, or leave it out.")
        growing = GrowingResult(evaluate_fn, should_stop)
        made = self._begin(num_rounds=num_rounds, init=init)
        waits = self._waits
        if timeout is not None:
            checks.number("timeout", timeout, least=0.1, remedy="Give seconds.")
            waits = replace(waits, round_timeout=timeout)
        configs: dict[str, Mapping[str, Any]] = {"train": train_config or {}, wire.EVALUATE: evaluate_config or {}}
        if init is not None and initial_arrays is not None:
            growing.arrays = initial_arrays
            growing.evaluate(0)
        nodes = _nodes(grid, made, waits, configs)
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
        """The messages of the coming round; none of an evaluation, or once the run has ended."""
        self._trained = 0
        if server_round == 1 and not self._driven and self._nodes is not None and self._nodes.run.is_finished:
            self._nodes = None  # a loop of Flower's begins once more
        messages = self._configure(arrays, config, grid, "train")
        if messages:
            self._trained = server_round
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the closing evaluation; none before it, nor in a round in which something was trained."""
        if self._trained == server_round:
            return []
        return self._configure(arrays, config, grid, wire.EVALUATE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The components after a round, and its figures; nothing if no round was configured.

        `in_order` among the figures is 1 where the components are those that the run would end
        with, by falling variance; 0 where they span the same, but no message has yet measured which
        of them is the first.
        """
        done = self._aggregate(replies, "train")
        if done is None:
            return None, None
        run, record = done
        self._returned = _arrays_so_far(run)
        return self._returned, _figures_of(run, record)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The figures of the closing evaluation; nothing before it."""
        done = self._aggregate(replies, wire.EVALUATE)
        if done is None:
            return None
        return records.figures(done[1].metrics) if done[1].metrics else None

    def summary(self) -> None:
        """Log what the run is about to do."""
        log(INFO, "\t├── Algorithm: %s", self.algorithm.spec)
        log(INFO, "\t├── Nodes: at least %d, waited for %g s", self._waits.min_nodes, self._waits.node_timeout)
        log(INFO, "\t└── Answers: waited for %g s a round", self._waits.round_timeout)

    def _watchers(self, nodes: Nodes) -> list[Watcher]:
        """Who watches the run of these nodes, whoever drives it."""
        return []

    def _run(self, nodes: Nodes, watcher: Watcher, growing: GrowingResult) -> R:
        if self._driven:  # what its hooks work on is kept in the strategy
            raise ConfigError(
                f"{type(self).__name__} is in the middle of another run, and its hooks can work on one at a time only. "
                "Make one for each run."
            )
        log(INFO, "Starting %s strategy:", type(self).__name__)
        self.summary()
        self._nodes = self._message = None
        nodes.checkpoint = self._checkpoint
        step = None
        if any(getattr(type(self), hook) is not getattr(FlowerStrategy, hook) or hook in vars(self) for hook in HOOKS):
            train, evaluate = (records.config(nodes.configs.get(kind, {})) for kind in ("train", wire.EVALUATE))
            step = partial(self._step, nodes, growing, train, evaluate)

        report = OnRound(lambda run: nodes.report(run.history[-1]))
        watchers = [report, *self._watchers(nodes), watcher]
        self._driven = step is not None
        try:
            result: R = cast(R, drive(nodes.run, nodes, checkpoint=self._checkpoint, watchers=watchers, step=step))
        finally:
            self._nodes, self._message, self._driven = None, None, False
        result = replace(result, **nodes.of_sites())
        if isinstance(result, PCAResult):
            units: list[str] = _other_units(nodes.run.standing.model, nodes.site_names)
            result = replace(result, hints=(*result.hints, *units, *nodes.hints, *nodes.remarks))
            result = result.with_keys(nodes.lasting_keys).with_names(nodes.lasting_keys)
            result = replace(result, hints=without_repeats(result.hints))
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
        """One round of the run, through the hooks as Flower's own loop calls them; whether the run has advanced."""
        nodes.begin(message)
        self._nodes, self._message = nodes, message
        number, grid = message.number + 1, nodes.grid
        asked = self._require_messages("configure_train", self.configure_train(number, growing.arrays, train, grid))
        self._require_ours(asked)
        evaluates = nodes.purpose == wire.EVALUATE
        replies = nodes.deliver(asked)
        arrays, figures = self._require_two(
            self._require_returned("aggregate_train", self.aggregate_train(number, replies))
        )
        self._require_taken(due=not evaluates)
        if arrays is not None:
            growing.arrays, growing.changed = arrays, arrays is not self._returned
        asked = self._require_messages(
            "configure_evaluate", self.configure_evaluate(number, growing.arrays, evaluate, grid)
        )
        replies, why = nodes.deliver(asked), ""
        # Some nodes may have answered already, and the hook does not ask the others.
        if evaluates and not any(map(is_ours, asked)) and not nodes.run.roll.awaited:
            self._message, why = None, "configure_evaluate has not asked for it"
        growing.told = figures, self.aggregate_evaluate(number, replies)
        if self._message is not None:
            self._message, why = None, "aggregate_evaluate has not handed the replies on to super().aggregate_evaluate"
        if why:
            nodes.remarks.append(f"The reconstruction error was not measured: {type(self).__name__}.{why}.")
            nodes.run.skip()
        return not why

    def _require_returned(self, hook: str, returned: T | None) -> T:
        """Require of a hook that it returns something: a forgotten `return` is the commonest fault of one."""
        if returned is None:
            name = type(self).__name__
            raise ConfigError(
                f"{name}.{hook} has returned nothing. End it by returning what super().{hook}(...) returns."
            )
        return returned

    def _require_messages(self, hook: str, returned: Iterable[Message] | None) -> list[Message]:
        """Require of a hook that what it returns are messages."""
        messages = self._require_returned(hook, returned)
        asked: list[Any] = list(messages) if isinstance(messages, Iterable) else [messages]
        for message in asked:
            if not isinstance(message, Message):
                raise ConfigError(
                    f"{type(self).__name__}.{hook} has returned {shown(message)} as a message. Return messages alone, "
                    f"as super().{hook}(...) does."
                )
        return asked

    def _require_two(self, returned: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Require of `aggregate_train` that it returns arrays and figures: one record could be taken apart too."""
        if isinstance(returned, tuple | list) and len(returned) == 2:
            arrays, figures = returned
            if isinstance(arrays, ArrayRecord | None) and isinstance(figures, Mapping | None):
                return arrays, cast(MetricRecord | None, figures)
            name, found = type(self).__name__, arrays if figures is None or isinstance(figures, Mapping) else figures
            raise ConfigError(
                f"{name}.aggregate_train has returned {shown(found)}, which is no record. Return arrays as an "
                "ArrayRecord and figures as a MetricRecord; None in place of one that you leave out."
            )
        raise ConfigError(
            f"{type(self).__name__}.aggregate_train has returned {shown(returned)} instead of two things, arrays and "
            "figures. Return both, as super().aggregate_train(...) does; None in place of one that you leave out."
        )

    def _require_ours(self, asked: Sequence[Message]) -> None:
        """Require of `configure_train` that it hands on messages of the run, beside which it may send its own."""
        if asked and not any(map(is_ours, asked)):
            name = type(self).__name__
            raise ConfigError(
                f"{name}.configure_train has returned messages of its own only, which ask for no step of the run. Call "
                f"super().configure_train(server_round, arrays, config, grid) in it, and return its messages too."
            )

    def _require_taken(self, *, due: bool) -> None:
        """Require that the answers to a message of training have reached the run: else it would ask for ever."""
        if due and self._message is not None:
            raise ConfigError(
                f"{type(self).__name__}.aggregate_train has not handed the replies on, so the run cannot go on. Call "
                "super().aggregate_train(server_round, replies) in it, and return what that returns."
            )

    def _configure(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, kind: str) -> list[Message]:
        if self._nodes is None:
            _require_unwrapped()
            self._nodes = _nodes(grid, self._begin(init=_start_of(arrays)), self._waits)
            self._watching = self._watchers(self._nodes)
        nodes = self._nodes
        nodes.grid = grid
        if self._message is None and not self._driven:
            self._message = nodes.run.pending(nodes.present())
        if self._message is None or wire.kind(self._message.purpose) != kind:
            return []
        nodes.purpose = kind
        nodes.configs[kind] = dict(config)
        nodes.log_sample(self._message)
        return nodes.compose(self._message)

    def _aggregate(self, replies: Iterable[Message], kind: str) -> tuple[Driven, Round] | None:
        nodes, message = self._nodes, self._message
        if nodes is None or message is None or wire.kind(message.purpose) != kind:
            return None
        came = dict[int, Message]()
        for reply in replies:
            node = reply.metadata.src_node_id
            # A hook may have asked the node for something of its own beside.
            if node not in came or (reply.has_content() and wire.is_reply(reply.content, kind_of(reply))):
                came[node] = reply
        answers = list[Reply | Sum | Failure]()
        for carrier in nodes.carriers(message):
            if carrier in came:
                answers += nodes.counted(carrier, came[carrier], message)
            elif self._driven:
                answers += nodes.missing(carrier, message)
            else:
                answers += nodes.missing_in_loop(carrier, message)
        self._message = None
        record = nodes.run.advance(nodes.in_order(answers))
        if not self._driven:
            nodes.report(record)
            for watcher in self._watching:
                watcher.before_keeping(nodes.run)
        return nodes.run, record


@dataclass
class GrowingResult(Watcher):
    """Flower's Result of a run, which grows with every message.

    Parameters
    ----------
    evaluate_fn : EvaluateFn or None, default=None
        The caller's, called with the arrays after every message.
    should_stop : ShouldStop or None, default=None
        The caller's, called with the Result after every message.

    Attributes
    ----------
    result : Result
        The Result.
    nodes : Nodes or None
        The nodes of the run.
    arrays : ArrayRecord
        The newest arrays: as the run has them, or as a subclass's hook has returned them.
    told : tuple or None
        The figures that a subclass's hooks have returned for the newest message; None if no hook is called.
    changed : bool
        Whether a subclass's hook has returned other arrays than the run has.
    """

    evaluate_fn: EvaluateFn | None = None
    should_stop: ShouldStop | None = None
    result: Result = field(default_factory=Result)
    nodes: Nodes | None = None
    arrays: ArrayRecord = field(default_factory=ArrayRecord)
    told: tuple[MetricRecord | None, MetricRecord | None] | None = None
    changed: bool = False

    def after_message(self, run: Driven) -> None:
        """Take the figures and arrays of the message in, and ask the caller's functions about them."""
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
            if record.metrics:  # If masks make several messages of one, only the last has metrics.
                metrics[number] = records.figures(record.metrics)
        else:
            trained[number] = _figures_of(run, record)
        if self.evaluate_fn is None and self.should_stop is None:
            return
        if self.told is None and (arrays := _arrays_so_far(run)) is not None:
            self.arrays = arrays
        self.result.arrays = self.arrays
        self.evaluate(number)
        if self.should_stop is not None and self.should_stop(number, self.result) and self.nodes:
            self.nodes.stopped = True

    def evaluate(self, number: int) -> None:
        """Have the caller evaluate the arrays, if there are some, after the round of this number."""
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


def _nodes(grid: Grid, run: AnyRun, waits: Waits, configs: Mapping[str, Mapping[str, Any]] | None = None) -> Nodes:
    """The nodes of a grid, each of them a client, or a host of many."""
    if waits.hosted is None:
        return Nodes(grid, run, waits, dict(configs or {}))
    from flower_pca.strategies.hosting import Hosts

    return Hosts(grid, run, waits, dict(configs or {}))


def _require_callable(name: str, function: Any, parameters: str) -> None:
    """Require of what a caller gives as a function that it can be called as Flower does, before the first message."""
    if function is None:
        return
    if not callable(function):
        raise ConfigError(f"{name} is {shown(function)} and no function. Give a function, or leave it out.")
    try:
        inspect.signature(function).bind(*parameters.split(", "))
    except ValueError:  # some functions in C do not tell what they take
        return
    except TypeError as error:
        raise ConfigError(
            f"{name} cannot be called as Flower does, by {name}({parameters}): {error}. Give it these two parameters."
        ) from None


def _require_unwrapped() -> None:
    """Refuse a loop of Flower's that drives the strategy through a wrapper which clips answers and adds noise.

    A wrapper does not tell the strategy within of itself, so it is looked for among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        for kind in type(frame.f_locals.get("self")).__mro__:
            if kind.__module__.startswith("flwr.") and kind.__name__.startswith("DifferentialPrivacy"):
                raise ConfigError(
                    f"{kind.__name__} clips the arrays of answers or adds noise to them, and PCA cannot use arrays so "
                    f"changed. Start the strategy within it. For noise, give the strategy {option('dp', _BUDGET)}."
                )
        frame = frame.f_back


def _start_of(arrays: ArrayRecord | None) -> Components | None:
    """The components among the arrays that a caller begins with; None where there are none, as in a model's weights."""
    if arrays is not None and not isinstance(arrays, ArrayRecord):
        raise ConfigError(
            f"initial_arrays is not an ArrayRecord of Flower but of the type {type(arrays).__name__}. Give "
            f"arrays_of(result) of an earlier result, or leave it out."
        )
    if not arrays:
        return None
    if "components" not in arrays:
        log(WARNING, "initial_arrays are left aside: PCA begins with components alone, and none is named so.")
        return None
    known = records.singles(arrays)
    return Components(known["components"], known.get("scale"))


def _arrays_so_far(run: Driven) -> ArrayRecord | None:
    """The components as they are, as rows, with mean and scale: what `arrays_of` gives of a result, as far as known.

    There are as many components as are wanted, which may not be the best of their span yet.
    """
    Z = run.estimate()
    if Z is None:
        return None
    arrays = {"components": np.ascontiguousarray(fix_signs(Z[:, : run.standing.model.k]).T)}
    model = run.standing.model_now(whole=run.roll.whole)
    if run.standing.opens and model.split is None:
        arrays["mean"] = np.zeros(model.d) if model.frame.mean is None else model.frame.mean
        if model.frame.scale is not None:
            arrays["scale"] = model.frame.scale
    return records.with_names(arrays)


_FEWEST_ROWS: Final = 20  # The fewest rows of a site whose mean is compared.


def _other_units(model: Model, names: Mapping[int, str]) -> list[str]:
    """Sites with columns as if in other units, where means and deviations are seen."""
    if SITE_MEANS not in model.sites:
        return []
    enough = model.sites[SITE_ROWS] >= _FEWEST_ROWS
    sites = [labels.client_name(names, int(key)) for key in model.sites[SITE_KEYS][enough]]
    columns = model.feature_names or [f"column {j}" for j in range(model.d)]
    rows, means, deviations = (model.sites[name][enough] for name in (SITE_ROWS, SITE_MEANS, SITE_DEVIATIONS))
    return units_by_moments(sites, rows, means, deviations, columns)


def _figures_of(run: Driven, record: Round) -> MetricRecord:
    """The figures of a round of training: the same whether a hook returns them, or `start` alone takes them."""
    return records.figures({**record.metrics, IN_ORDER: int(_in_order(run))})


def _in_order(run: Driven) -> bool:
    """Whether these have an order: it takes the product C Z with them, or a run that has ended."""
    known = run.standing.model_now(whole=run.roll.whole)
    return run.is_finished or known.product is not None or known.values is not None


def arrays_of(result: PCAResult | TrackingResult | Scaling) -> ArrayRecord:
    """Convert a result to Flower's arrays: components, explained_variance, mean and, under a scale, scale; of columns,
    scores.

    Of a run of steps: components and values of each, and changes. Of a scaling: mean and scale.

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
        return records.with_names({"mean": result.mean_, "scale": result.scale_})
    if isinstance(result, TrackingResult):
        return records.with_names(
            {"components": result.components_, "values": result.values_, "changes": result.changes_}
        )
    arrays = {"components": result.components_, "explained_variance": result.explained_variance_, "mean": result.mean_}
    if isinstance(result, ColumnsResult):
        arrays["scores"] = result.scores_
    if result.scale_ is not None:
        arrays["scale"] = result.scale_
    return records.with_names(arrays)
