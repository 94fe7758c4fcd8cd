"""PCAStrategy: Flower's server side. It carries the messages of a Session; all mathematics is in the stages."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flower_pca import assembly, registry, wire
from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError, NotEnoughNodes, ProtocolError, harmless
from flower_pca.base.history import Round
from flower_pca.base.linalg import fix_signs
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.channel import AirChannel
from flower_pca.core.result import PCAResult
from flower_pca.core.session import Session
from flower_pca.core.stage import Broadcast, Failure, Reply
from flower_pca.dp.plan import DP, undisturbed
from flower_pca.masking import MaskedSums
from flower_pca.strategies.exchange import exchange
from flower_pca.strategies.log import log
from flower_pca.tracking.result import TrackingResult

_POLL = 0.2  # seconds between two looks for nodes
_SILENCES = 2  # in a row, after which a node is asked no more: every one of them costs the round's timeout
_UNKNOWN = 2**63  # a node's key before its first answer: after all partition ids


class PCAStrategy(Strategy):
    """Federated PCA as a Flower Strategy.

    Args:
        algorithm: A name ("krylov"), a spec string ("faps(inner_steps=5)") or an instance.
        n_components: How many components, or the fraction of the total variance in (0, 1) that they shall exceed.
        center: Whether to subtract the mean of all rows; the algorithm's own default if left out.
        scale: None, "std" (unit variance) or "max_abs" (each column divided by its largest absolute value).
        missing: "error", or "mean": NaN then stands for a missing value, in whose place comes the mean of those that
            its column has at all nodes.
        seed: Seed of everything random.
        evaluate: Whether to measure the reconstruction error on the nodes at the end.
        mask: Whether the nodes' answers are masked, so that the server learns nothing but their sums; or how:
            a MaskedSums, or a string such as "masks(neighbours=20)".
        fraction: Share of the nodes that each round of the algorithm goes to.
        min_nodes: Nodes to wait for, and to keep.
        node_timeout: Seconds to wait for them; then NotEnoughNodes is raised.
        round_timeout: Seconds to wait for the answers of a round; nodes that have not answered are left out of it.
        action: Flower's name of the nodes' functions, where they were added by `clients.register`.
        dp: The privacy budget, `DP(epsilon=1.0, delta=1e-6, clip=10.0)` or the like as a string; for ssi, krylov and
            noisy_covariance. The nodes then clip their rows and add noise: each in full, or in shares under `mask`.
        checkpoint: File to keep the state of the run in after every round. If it is there at the start, the run goes
            on from it; a finished run removes it.
        channel: What the sums of the answers are heard through; None for an ideal one.

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     result = PCAStrategy("krylov", n_components=5).fit(grid)
        ...     result.save("/tmp/components.npz")
    """

    def __init__(
        self,
        algorithm: str | Algorithm[Any] = "krylov",
        *,
        n_components: int | float = 2,
        center: bool | None = None,
        scale: str | None = None,
        missing: str = "error",
        seed: int = 0,
        evaluate: bool = False,
        mask: bool | MaskedSums | str | None = False,
        fraction: float = 1.0,
        min_nodes: int = 2,
        node_timeout: float = 60.0,
        round_timeout: float = 600.0,
        action: str | None = None,
        dp: DP | str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        channel: AirChannel | None = None,
    ) -> None:
        dp = DP.of(dp)
        undisturbed(dp, checkpoint)
        if dp is not None and dp.noise_seed is not None:
            remedy = "Leave it out; each node draws its noise from its operating system."
            raise ConfigError("noise_seed of dp at nodes", must="None", got=dp.noise_seed, then=remedy)
        new = partial(
            assembly.session,
            mask=MaskedSums.of(mask),
            n_components=n_components,
            center=center,
            scale=scale,
            missing=missing,
            seed=seed,
            fraction=fraction,
            evaluate=evaluate,
            min_clients=min_nodes,
            channel=channel,
            dp=dp,
        )
        self._carry(registry.make(algorithm), new, min_nodes, node_timeout, round_timeout, action, checkpoint)

    def _carry(
        self,
        algorithm: Any,
        new: Callable[[Any], Any],
        min_nodes: int,
        node_timeout: float,
        round_timeout: float,
        action: str | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        """Take what the messages need, and open the first session."""
        checks.number("node_timeout", node_timeout, least=0.0, remedy="Give seconds.")
        checks.number("round_timeout", round_timeout, least=0.1, remedy="Give seconds.")
        if action is not None and not action.isidentifier():
            raise ConfigError("action", must="a Python identifier", got=repr(action), then='Use "pca".')
        if checkpoint is not None:
            checks.parent("the checkpoint", checkpoint)
        self._algorithm, self._new = algorithm, new
        self._min_nodes, self._node_timeout, self._round_timeout = min_nodes, node_timeout, round_timeout
        self._action = action
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._begin(self._algorithm, {})

    def fit(self, grid: Grid, *, on_round: Callable[[Session], None] | None = None) -> PCAResult:
        """Run to the end and return the components.

        Args:
            grid: The grid.
            on_round: Called with the session after every round.

        Raises:
            NotEnoughNodes: If fewer than min_nodes nodes are there within node_timeout, or answer.
            DataError: If the rows of all nodes together cannot be used.
        """
        self._begin(self._algorithm, {})
        return self._run(grid, self._round_timeout, on_round)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run as Flower's strategies do, but end on convergence.

        Args:
            grid: The grid.
            initial_arrays: Not used by PCA: leave it out, or pass an empty record.
            num_rounds: At most so many rounds of the algorithm; 0 leaves that to the algorithm.
            timeout: Seconds to wait for the answers of a round; round_timeout if left out.
            train_config: Sent to the nodes beside our own configuration.
            evaluate_config: Likewise, with an evaluation.
            evaluate_fn: Called with the number of the message and the components after it.

        Returns:
            Flower's Result: arrays are those of `arrays_of`, metrics those of the history, by round.
        """
        if initial_arrays:
            remedy = "Leave it out."
            raise ConfigError("initial_arrays", must="empty", got=f"{len(initial_arrays)} arrays", then=remedy)
        outcome = Result()

        def after(session: Session) -> None:
            record = session.history[-1]
            if record.metrics:
                metrics = outcome.evaluate_metrics_clientapp if record.stage == wire.EVALUATE else None
                metrics = outcome.train_metrics_clientapp if metrics is None else metrics
                metrics[record.number] = MetricRecord(dict(record.metrics))
            arrays = _components(session)
            if evaluate_fn is not None and arrays is not None:
                told = evaluate_fn(record.number, arrays)
                if told is not None:
                    outcome.evaluate_metrics_serverapp[record.number] = told

        algorithm = self._algorithm
        if num_rounds and isinstance(algorithm, Iterative):
            algorithm = registry.make(algorithm, max_rounds=num_rounds)
        self._begin(algorithm, {"train": train_config or {}, wire.EVALUATE: evaluate_config or {}})
        result = self._run(grid, self._round_timeout if timeout is None else timeout, after)
        outcome.arrays = arrays_of(result)
        return outcome

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the coming round; none if it is an evaluation, or if the run has ended."""
        return self._configure(config, grid, "train")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the closing evaluation; none before it."""
        return self._configure(config, grid, wire.EVALUATE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The components after a round, and its figures; nothing if no round was configured."""
        record = self._aggregate(replies, "train")
        return (None, None) if record is None else (_components(self._session), MetricRecord(dict(record.metrics)))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The figures of the closing evaluation; nothing before it."""
        record = self._aggregate(replies, wire.EVALUATE)
        return None if record is None else MetricRecord(dict(record.metrics))

    def summary(self) -> None:
        """Log what the run is about to do."""
        log(INFO, "\t├── Algorithm: %s", self._algorithm.spec)
        log(INFO, "\t├── Nodes: at least %d, waited for %g s", self._min_nodes, self._node_timeout)
        log(INFO, "\t└── Answers: waited for %g s a round", self._round_timeout)

    def _begin(self, algorithm: Any, configs: Mapping[str, Mapping[str, Any]]) -> None:
        self._session: Any = self._new(algorithm)  # a Session, or what is driven like one
        self._configs = dict(configs)  # the caller's own, by the kind of the message
        self._name = uuid.uuid4().hex  # of the run, by which nodes tell its memory from that of another
        self._keys: dict[int, int] = {}
        self._silent: dict[int, int] = {}  # how often in a row a node has not answered
        self._asked: Broadcast | None = None

    def _run(self, grid: Grid, timeout: float, on_round: Callable[[Session], None] | None) -> PCAResult:
        log(INFO, "Starting %s strategy:", type(self).__name__)
        self.summary()
        if self._checkpoint is not None and self._checkpoint.exists():
            self._resume(self._checkpoint)
        while (message := self._session.pending(self._nodes(grid))) is not None:
            record = self._session.advance(self._replies(grid, message, timeout))
            self._report(record)
            if self._checkpoint is not None:
                header, arrays = self._session.checkpoint()
                own = {"name": self._name, "keys": {str(node): key for node, key in self._keys.items()}}
                archive.write(self._checkpoint, "server checkpoint", {**header, **own}, arrays)
            if on_round is not None:
                on_round(self._session)
        if self._checkpoint is not None:
            self._checkpoint.unlink(missing_ok=True)
        result: PCAResult = self._session.result()
        log(INFO, "%s", result.status)
        for line in result.table().splitlines():
            log(INFO, "\t%s", line)
        return result

    def _resume(self, path: Path) -> None:
        header, arrays = archive.read(path, "server checkpoint")
        self._session.restore(header, arrays)
        self._name = str(header["name"])
        self._keys = {int(node): key for node, key in header["keys"].items()}
        log(INFO, "Going on from %s after %d messages", path, len(self._session.history))

    def _nodes(self, grid: Grid) -> list[int]:
        """The nodes that can be asked now, in the order of their keys; waits until there are enough.

        It does not wait where all that are connected are left out: the session then says why.
        """
        deadline = time.monotonic() + self._node_timeout
        while not self._session.finished:
            connected = set(grid.get_node_ids())
            nodes = sorted(connected - self._session.banned, key=self._order)
            late, crowd = time.monotonic() >= deadline, len(connected) >= self._min_nodes
            if len(nodes) >= self._min_nodes or (crowd and (late or not nodes)):
                return nodes
            if late:
                got = f"{len(connected)} after {self._node_timeout:g} s"
                remedy = "Start more nodes, or lower min_nodes."
                raise NotEnoughNodes("The nodes connected", must=f"at least {self._min_nodes}", got=got, then=remedy)
            time.sleep(min(_POLL, max(deadline - time.monotonic(), 0.0)))
        return []

    def _order(self, node: int) -> tuple[int, int]:
        return self._keys.get(node, _UNKNOWN), node

    def _replies(self, grid: Grid, message: Broadcast, timeout: float) -> Iterator[Reply | Failure]:
        """Answers in the order of the clients' keys, whatever the order they came in."""
        ordered = exchange(grid, message.to, self._composer(message, timeout), timeout=timeout)
        answers = (self._read(node, reply) for node, reply in ordered)
        if all(node in self._keys for node in message.to):
            yield from answers
        else:  # keys come with the first answer, so these wait for one another
            yield from sorted(answers, key=lambda answer: self._order(answer.client))

    def _composer(self, message: Broadcast, ttl: float) -> Callable[[int], Message]:
        """From a node to its message. What all nodes get alike is written once."""
        kind = wire.kind(message.stage)
        write = partial(
            wire.write_request,
            message,
            algorithm=self._algorithm.name,
            run=self._name,
            extra=self._configs.get(kind, {}),
        )
        common = None if message.personal else write(message.to[0])
        kind = kind if self._action is None else f"{kind}.{self._action}"

        def compose(node: int) -> Message:
            return Message(common or write(node), node, kind, ttl=ttl, group_id=str(message.number))

        return compose

    def _read(self, node: int, reply: Message | str) -> Reply | Failure:
        self._keys.setdefault(node, _UNKNOWN)  # until it says its own, so that one that never does is not waited for
        if isinstance(reply, str):
            self._silent[node] = self._silent.get(node, 0) + 1
            return Failure(node, reply, lasting=self._silent[node] >= _SILENCES)
        self._silent.pop(node, None)
        if reply.has_error():
            lines = (reply.error.reason or "").strip().splitlines() or ["no reason given"]
            return Failure(node, f"error {reply.error.code}: {harmless(lines[-1])}")
        try:
            answer = wire.read_reply(reply.content, reply.metadata.message_type.split(".")[0])
        except ProtocolError as error:
            return Failure(node, str(error), lasting=True)
        if answer.key != wire.NO_KEY:
            self._keys[node] = answer.key
        if answer.refusal is not None:
            return Failure(node, answer.refusal, lasting=True)
        return Reply(node, answer.number, answer.arrays)

    def _report(self, record: Round) -> None:
        log(INFO, "%s", record)
        for node, reason in record.failures.items():
            log(WARNING, "\tnode %s was left out: %s", node, reason)

    def _configure(self, config: ConfigRecord, grid: Grid, kind: str) -> list[Message]:
        if self._asked is None:
            self._asked = self._session.pending(self._nodes(grid))
        message = self._asked
        if message is None or wire.kind(message.stage) != kind:
            return []
        self._configs[kind] = dict(config)
        compose = self._composer(message, self._round_timeout)
        return [compose(node) for node in message.to]

    def _aggregate(self, replies: Iterable[Message], kind: str) -> Round | None:
        if self._asked is None or wire.kind(self._asked.stage) != kind:
            return None
        came = {reply.metadata.src_node_id: reply for reply in replies}
        answers = [self._read(node, came.get(node, "no answer")) for node in self._asked.to]
        self._asked = None
        record: Round = self._session.advance(sorted(answers, key=lambda answer: self._order(answer.client)))
        self._report(record)
        return record


def _components(session: Any) -> ArrayRecord | None:
    """The components as they stand, as rows."""
    Z = session.estimate()
    return None if Z is None else ArrayRecord({"components": FlowerArray(np.ascontiguousarray(fix_signs(Z).T))})


def arrays_of(result: PCAResult | TrackingResult) -> ArrayRecord:
    """A result as Flower's arrays: components, explained_variance, mean and, under a scale, scale.

    Of a run of steps: components and values of each, and changes.
    """
    if isinstance(result, TrackingResult):
        steps = {"components": result.components_, "values": result.values_, "changes": result.changes_}
        return ArrayRecord({name: FlowerArray(a) for name, a in steps.items()})
    arrays = {
        "components": result.components_,
        "explained_variance": result.explained_variance_,
        "mean": result.mean_,
        **({} if result.scale_ is None else {"scale": result.scale_}),
    }
    return ArrayRecord({name: FlowerArray(a) for name, a in arrays.items()})
