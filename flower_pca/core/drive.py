"""drive: the one loop that carries a run's messages over a transport, whatever that is; `rounds` takes it in steps.

A transport has two verbs: who is there, and ask. A loop in process, Flower's grid and a test's
script are transports; a `Run` and a `Masked` run are driven alike. A transport that keeps something
of its own from message to message (a client's memory, a node's key) also says what a checkpoint has
to hold of it.
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
from flower_pca.core.roll import Roll
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum
from flower_pca.core.standing import Standing


class Transport(Protocol):
    """How messages travel: `present` and `ask`. The rest is for checkpoints."""

    kind: ClassVar[str]  # what its checkpoints are called

    def present(self) -> Iterable[int]:
        """The clients that can be reached now, in the order of their keys."""

    def ask(self, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """The answers of the clients that the message names, in that order, as they are needed."""

    def keep(self) -> tuple[dict[str, Any], Arrays]:
        """What a checkpoint has to hold of it: plain values, and arrays."""

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Go on with what `keep` has said, which lies among what the run itself has kept."""


class Driven(Protocol):
    """A run, or one `WrappedRun` another. See `Run` for all of this."""

    @property
    def algorithm(self) -> Any:
        """The stage that the run is named after."""

    @property
    def standing(self) -> Standing:
        """The stage under way, and its state."""

    @property
    def roll(self) -> Roll:
        """Who counts."""

    @property
    @abstractmethod
    def history(self) -> History:
        """The messages so far, those of a run around another among them."""

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""

    def estimate(self) -> Array | None:
        """The basis that the run would return if it ended now."""

    @abstractmethod
    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """The message to send; None at the end."""

    @abstractmethod
    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take the answers to it."""

    def readmit(self, clients: Iterable[int]) -> None:
        """Ask these again although they were left out: they have been started anew."""

    def skip(self) -> None:
        """Go on without the pending message of a stage after the closing one, whose figure is then missing."""

    def result(self) -> Result:
        """The result of a finished run."""

    def result_so_far(self) -> Result | None:
        """Of a run of steps, the result of those that are over."""

    @abstractmethod
    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that a new run of the same arguments needs to go on."""

    @abstractmethod
    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken."""


class WrappedRun(Driven):
    """A run around another: to its driver a run like any other. What it does not say itself, the one within says."""

    @property
    @abstractmethod
    def within(self) -> Driven:
        """The run that it is around, as it is now."""

    @property
    def algorithm(self) -> Any:
        """The stage that the run is named after."""
        return self.within.algorithm

    @property
    def standing(self) -> Standing:
        """The stage under way, and its state."""
        return self.within.standing

    @property
    def roll(self) -> Roll:
        """Who counts."""
        return self.within.roll

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""
        return self.within.is_finished

    def estimate(self) -> Array | None:
        """The basis that the run would return if it ended now."""
        return self.within.estimate()

    def readmit(self, clients: Iterable[int]) -> None:
        """Ask these again although they were left out: they have been started anew."""
        self.within.readmit(clients)

    def skip(self) -> None:
        """Go on without the pending message of a stage after the closing one, whose figure is then missing."""
        self.within.skip()

    def result(self) -> Result:
        """The result of a finished run, with all messages."""
        return replace(self.within.result(), history=self.history)

    def result_so_far(self) -> Result | None:
        """Of a run of steps, the result of those that are over."""
        return (found := self.within.result_so_far()) and replace(found, history=self.history)


class ContinuedRun(WrappedRun):
    """A run whose first message says what the rest is about: the run of that message, and then another one.

    Parameters
    ----------
    first : Driven
        The run of the first message.
    """

    def __init__(self, first: Driven) -> None:
        self._first = first
        self._run: Driven | None = None
        # the first message; of a run that goes on from a checkpoint it is in another run's history
        self._earlier: History | None = None

    @abstractmethod
    def _rest(self) -> Driven:
        """The run that follows, made once the first message has been answered."""

    @property
    def within(self) -> Driven:
        """The run of the first message; then the one that follows."""
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
        """The message to send; None at the end."""
        here = list(present)
        if self._run is None and (message := self._first.pending(here)) is not None:
            return message
        return self._rest().pending(here)

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that a new run of the same arguments needs to go on."""
        header, arrays = self.within.checkpoint(steps=steps)
        earlier = self._earlier or self._first.history
        return {**header, "first": earlier.to_json(), "settled": self._run is not None}, arrays

    def _restore(self, run: Driven | None, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken: in this run, or in that of the first message."""
        (run or self._first).restore(header, arrays)
        if run is not None:
            self._run, self._earlier = run, History.from_json(header["first"])


class Watcher:
    """Hears of a run as it goes on. Each kind of watcher overrides what it wants to hear."""

    def before_keeping(self, run: Driven) -> None:
        """After a message, before the checkpoint is written: who hears it here hears it again rather than never."""

    def after_message(self, run: Driven) -> None:
        """After a message, once it is in the checkpoint."""


@dataclass(frozen=True)
class OnRound(Watcher):
    """Calls a function with the run after every message, if there is one."""

    function: Callable[[Any], None] | None

    def after_message(self, run: Driven) -> None:
        """Call it."""
        if self.function is not None:
            self.function(run)


Step: TypeAlias = Callable[[Broadcast], bool]


def rounds(run: Driven, transport: Transport, step: Step | None = None) -> Iterator[Broadcast]:
    """Carry a run's messages one by one: each comes out once its answers are taken.

    Parameters
    ----------
    run : Driven
        The run.
    transport : Transport
        How messages travel.
    step : Step or None, default=None
        Sends a message and has the run advance, in place of the transport's `ask`.
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
    """Carry a run's messages to its end, and return its result.

    Parameters
    ----------
    run : Driven
        The run.
    transport : Transport
        How messages travel.
    checkpoint : str or path or None, default=None
        File to keep the state of run and transport in after every message. If it is there at the start, the run goes on
        from it; a finished run removes it. Another run at the same file is refused meanwhile.
    watchers : sequence of Watcher, default=()
        Who hears of every message, in their order.
    step : Step or None, default=None
        See `rounds`.
    """
    if checkpoint is None:
        for _ in rounds(run, transport, step):
            for watcher in watchers:
                watcher.before_keeping(run)
            for watcher in watchers:
                watcher.after_message(run)
        return run.result()
    path = Path(checkpoint)
    with files.lock(path, wait=False):
        return _drive_with_checkpoint(run, transport, path, watchers, step)


def _drive_with_checkpoint(
    run: Driven, transport: Transport, path: Path, watchers: Sequence[Watcher], step: Step | None
) -> Result:
    """Likewise, with the state of run and transport in a file until the run is finished."""
    trail, checkpoint = files.Trail(path), Checkpoint(path, transport.kind)
    if (found := checkpoint.read()) is not None:
        header, arrays = found
        state = run.standing.state
        with files.refuse_others(path, transport.kind):
            if isinstance(state, files.Recorder):
                arrays |= trail.read(header, state.keep)
            transport.resume(header, arrays)
            run.restore(header, arrays)
    for _ in rounds(run, transport, step):
        for watcher in watchers:
            watcher.before_keeping(run)
        # before the checkpoint, which speaks of them
        steps = trail.add(run.standing.state)
        header, arrays = run.checkpoint(steps=False)
        own, beside = transport.keep()
        # Lines of older steps make room for new ones, so their checkpoint has to be as new as they are.
        checkpoint.write({**header, **own, **steps}, {**arrays, **beside}, sync=bool(steps))
        for watcher in watchers:
            watcher.after_message(run)
    # before the steps, without which a checkpoint that was left behind could not be gone on from
    checkpoint.remove()
    trail.remove()
    return run.result()
