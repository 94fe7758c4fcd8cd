"""The loop that carries a run's messages over any transport: `drive` returns the result, `rounds` yields messages.

A transport has two main methods: `present` and `ask`. A loop in one process, Flower's grid and the
script of a test are transports. A `Run` and a `MaskedRun` are driven in the same way. If a transport
has a state (for example a client's memory or a node's key), it also returns this state for the checkpoint.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from flower_pca.base import files
from flower_pca.base.checkpoint import Checkpoint
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.core.model import Result
from flower_pca.core.position import Position
from flower_pca.core.roll import Roll
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum


class Transport(Protocol):
    """A way to carry messages, with the methods `present` and `ask`. The other methods are for checkpoints."""

    kind: ClassVar[str]  # the kind of checkpoint that this transport writes, as a name

    def present(self) -> Iterable[int]:
        """Return the clients that can be reached now, in the order of their keys."""

    def ask(self, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """Send a message, and yield the answers of the clients that the message names, in the same order."""

    def checkpoint_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state of the transport for a checkpoint: plain values and arrays."""

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Restore the state that `checkpoint_state` returned, from a checkpoint that also contains the run's state."""


class Driven(Protocol):
    """A run, or a `WrappedRun` around a run. `Run` documents the methods."""

    @property
    def algorithm(self) -> Any:
        """The algorithm or tracker that gives the run its name."""

    @property
    def position(self) -> Position:
        """The current stage and its state."""

    @property
    def roll(self) -> Roll:
        """The roll of clients."""

    @property
    @abstractmethod
    def history(self) -> History:
        """All messages so far, including messages that a wrapping run has added."""

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""

    def estimate(self) -> Array | None:
        """Return the basis that the run would return if it ended now, or None before the first basis."""

    @abstractmethod
    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """Return the message to send, or None at the end."""

    @abstractmethod
    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Process the answers to the pending message, and return the round for the history."""

    def readmit(self, clients: Iterable[int]) -> None:
        """Let these clients take part again although they were excluded, because they have been restarted."""

    def skip(self) -> None:
        """Skip the pending message of a stage after the closing. The stage's figure is then missing from the result."""

    def result(self) -> Result:
        """Return the result of a finished run."""

    def result_so_far(self) -> Result | None:
        """Return the result of the finished steps, or None if the run has no steps."""

    @abstractmethod
    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the header and arrays from which a new run with the same arguments can continue."""

    @abstractmethod
    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a `checkpoint`."""


class WrappedRun(Driven):
    """A run that wraps another run. For its driver it is an ordinary run, and most methods call the inner run."""

    @property
    @abstractmethod
    def inner_run(self) -> Driven:
        """The inner run in its present state."""

    @property
    def algorithm(self) -> Any:
        """The algorithm or tracker that gives the run its name."""
        return self.inner_run.algorithm

    @property
    def position(self) -> Position:
        """The current stage and its state."""
        return self.inner_run.position

    @property
    def roll(self) -> Roll:
        """The roll of clients."""
        return self.inner_run.roll

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""
        return self.inner_run.is_finished

    def estimate(self) -> Array | None:
        """Return the basis that the run would return if it ended now, or None before the first basis."""
        return self.inner_run.estimate()

    def readmit(self, clients: Iterable[int]) -> None:
        """Let these clients take part again although they were excluded, because they have been restarted."""
        self.inner_run.readmit(clients)

    def skip(self) -> None:
        """Skip the pending message of a stage after the closing. The stage's figure is then missing from the result."""
        self.inner_run.skip()

    def result(self) -> Result:
        """Return the result of a finished run, with all messages."""
        return replace(self.inner_run.result(), history=self.history)

    def result_so_far(self) -> Result | None:
        """Return the result of the finished steps, or None if the run has no steps."""
        return (found := self.inner_run.result_so_far()) and replace(found, history=self.history)


class ContinuedRun(WrappedRun):
    """A run of two parts. The first run sends one message, and the answers to this message determine the second run.

    Parameters
    ----------
    first : Driven
        The run that sends the first message.
    """

    def __init__(self, first: Driven) -> None:
        self._first = first
        self._run: Driven | None = None
        # A run that continues from a checkpoint takes the history of the first message from the checkpoint.
        self._earlier: History | None = None

    @abstractmethod
    def _second_run(self) -> Driven:
        """Return the second run, which is made when the first message has been answered."""

    @property
    def inner_run(self) -> Driven:
        """The present run: the first run, or later the second run."""
        return self._run or self._first

    @property
    def history(self) -> History:
        """All messages so far."""
        whole = self._earlier or self._first.history
        if self._run is not None:
            before = whole.count
            for record in self._run.history:
                whole = whole.add(replace(record, number=record.number + before))
        return whole

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""
        return self._run is not None and self._run.is_finished

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """Return the message to send, or None at the end."""
        here = list(present)
        if self._run is None and (message := self._first.pending(here)) is not None:
            return message
        return self._second_run().pending(here)

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Process the answers to the pending message, and return the round for the history."""
        self.inner_run.advance(replies)
        return self.history[-1]

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the header and arrays from which a new run with the same arguments can continue."""
        header, arrays = self.inner_run.checkpoint(steps=steps)
        earlier = self._earlier or self._first.history
        return {**header, "first": earlier.to_json(), "settled": self._run is not None}, arrays

    def _restore(self, run: Driven | None, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a `checkpoint` with `run` as the second run, or with the first run if `run` is None."""
        (run or self._first).restore(header, arrays)
        if run is not None:
            self._run, self._earlier = run, History.from_json(header["first"])


class Watcher:
    """The base class of objects that `drive` calls after every message. Subclasses override the methods they need."""

    def before_saving(self, run: Driven) -> None:
        """React to a message before its checkpoint is written. After a restart, the call may be repeated."""

    def after_message(self, run: Driven) -> None:
        """React to a message after its checkpoint is written."""


@dataclass(frozen=True)
class OnRound(Watcher):
    """A watcher that calls a function, if there is one, with the run after every message."""

    function: Callable[[Any], None] | None

    def after_message(self, run: Driven) -> None:
        """Call the function with the run."""
        if self.function is not None:
            self.function(run)


Step: TypeAlias = Callable[[Broadcast], bool]


def rounds(run: Driven, transport: Transport, step: Step | None = None) -> Iterator[Broadcast]:
    """Send a run's messages one by one, and yield each message after the run has used its answers.

    Parameters
    ----------
    run : Driven
        The run.
    transport : Transport
        The transport that carries the messages.
    step : Step or None, default=None
        A function that sends a message and passes the answers to the run, in place of the transport's `ask`. It
        returns whether the run has advanced.
    """
    while (message := run.pending(transport.present())) is not None:
        if step is None:
            run.advance(transport.ask(message))
        elif not step(message):
            continue
        yield message


def drive(
    run: Driven,
    transport: Transport,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    watchers: Sequence[Watcher] = (),
    step: Step | None = None,
) -> Result:
    """Send all messages of a run, and return its result.

    Parameters
    ----------
    run : Driven
        The run.
    transport : Transport
        The transport that carries the messages.
    checkpoint : str or path or None, default=None
        The file in which the state of run and transport is saved after every message. If the file exists at the start,
        the run continues from it. While the run is in progress, no other run can use the file. A finished run removes
        it.
    watchers : sequence of Watcher, default=()
        The objects that are called after every message, in this order.
    step : Step or None, default=None
        A function that sends a message and passes the answers to the run: see `rounds`.
    """
    if checkpoint is None:
        for message in rounds(run, transport, step):
            del message  # Its arrays must not stay in memory while the next message is made.
            for watcher in watchers:
                watcher.before_saving(run)
            for watcher in watchers:
                watcher.after_message(run)
        return run.result()
    path = Path(checkpoint)
    with files.lock(path, wait=False):
        return _drive_with_checkpoint(run, transport, path, watchers, step)


def _drive_with_checkpoint(
    run: Driven, transport: Transport, path: Path, watchers: Sequence[Watcher], step: Step | None
) -> Result:
    """Send all messages of a run with a checkpoint in the file `path`, and return its result."""
    trail, checkpoint = files.Trail(path), Checkpoint(path, transport.kind)
    if (found := checkpoint.read()) is not None:
        header, arrays = found
        state = run.position.state
        with files.refusing_malformed(path, transport.kind):
            if isinstance(state, files.Recorder):
                arrays |= trail.read(header, state.keep)
            transport.resume(header, arrays)
            run.restore(header, arrays)
    for message in rounds(run, transport, step):
        del message
        for watcher in watchers:
            watcher.before_saving(run)
        # The steps are written first, because the checkpoint refers to them.
        steps = trail.add(run.position.state)
        header, arrays = run.checkpoint(steps=False)
        own, beside = transport.checkpoint_state()
        # New steps overwrite old steps on the disk, so the checkpoint is synced whenever there are steps.
        checkpoint.write({**header, **own, **steps}, {**arrays, **beside}, sync=bool(steps))
        for watcher in watchers:
            watcher.after_message(run)
    # The checkpoint is removed first, because it would be useless without the steps.
    checkpoint.remove()
    trail.remove()
    return run.result()
