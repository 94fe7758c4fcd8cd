"""Run: stages, a roll of clients and layers, as a state machine without input or output.

The owner of a transport repeats three steps: call `pending(present)` for the message, send the message to
the clients that it names, and pass their answers to `advance`. When `pending` returns None, `result()` is
ready. `drive` is this loop. The state of a run consists of three frozen values, which their modules
explain: `Position` (the current stage and its state), `Roll` (the clients that count), and the layers of
its messages. The run updates the position and the roll:

| event                                         | position                  | roll                               |
| --------------------------------------------- | ------------------------- | ---------------------------------- |
| `pending`, if the stage is done               | the next stage            |                                    |
| `pending`, if there are clients to ask        |                           | lists the clients to ask           |
| `pending`, if an opening or a stage after the |                           | the answers so far complete the    |
| closing is partly answered, and no further    |                           | message                            |
| client can be asked                           |                           |                                    |
| `pending`, if no client is left to ask        |                           | lost                               |
| `pending`, after a loss                       | back at the opening       | reopened                           |
| `advance`, with all answers                   | updated by the stage's    | COMPLETE                           |
|                                               | method `server`           |                                    |
| `advance`, if some answers are missing        |                           | AGAIN, and the sum so far is kept  |
| `advance`, if a client is gone for good       |                           | LOST                               |

Masks drive a run in the same way. In addition, they read from `position` the contents and the size of an
answer, and whether sums suffice. They also call `settled_message`, `write_off` and `mark_loss`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.files import Recorder
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.layer import Layer, is_binding
from flower_pca.core.model import Model, Result, ResultClass
from flower_pca.core.position import NEWEST, Position, Role, shortened_history
from flower_pca.core.replies import unusable_sums_error
from flower_pca.core.roll import Attendance, Audience, Roll
from flower_pca.core.stage import Broadcast, Failure, NeedsColumnCount, Reply, Stage, Sum
from flower_pca.core.tally import AnswerCollector
from flower_pca.names.columns import Heading

LAYOUT: Final = 22  # version of the layout of checkpoints, increased by every change of the layout
_IDENTITY: Final = ("n_components", "center", "scale", "missing", "seed")


@final
class Run:
    """A run of stages, as a state machine: `pending` returns the next message, and `advance` processes the answers.

    Parameters
    ----------
    stages : sequence of Stage
        The opening, the algorithm, its closing stage and any later stages, or a tracker alone. See `assembly`.
    model : Model
        The model with the settings of the run, before anything is known about the rows.
    roll : Roll
        The roll of clients, which contains the rules that decide which clients count.
    result : ResultClass
        The class of the run's result.
    layers : sequence of Layer, default=()
        The layers of messages and answers, in the order in which the server applies them.
    config : mapping or None, default=None
        The configuration as plain values, which is stored in checkpoints and in the result.

    Attributes
    ----------
    position : Position
        The current stage and its state.
    roll : Roll
        The clients that count.
    layers : sequence of Layer
        The layers of messages and answers.
    history : History
        The rounds so far.
    """

    def __init__(
        self,
        stages: Sequence[Stage[Any]],
        *,
        model: Model,
        roll: Roll,
        result: ResultClass,
        layers: Sequence[Layer] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        place, state = int(roll.opens), stages[0].start(model)
        while place + 1 < len(stages) and not isinstance(stages[place], Algorithm):
            place += 1
        self.position = Position(stages=tuple(stages), model=model, state=state, place=place, opens=roll.opens)
        self.roll, self.layers = roll, tuple(layers)
        self._config = dict(config or {})
        self._result = result
        self._model = model
        self.history, self._began = History(limit=None if roll.opens else NEWEST), 0.0
        self._sent: Broadcast | None = None
        self._total: Any = None  # the sum of the answers to a message that is sent again to some clients

    @property
    def algorithm(self) -> Any:
        """The Algorithm or tracker whose name the run has."""
        return self.position.algorithm

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""
        return self.position.is_finished

    def estimate(self) -> Array | None:
        """Return the basis that the run would return if it ended now, or None before the first basis."""
        return self.position.estimate(is_complete=self._is_round_complete)

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """Return the message to send now, or None at the end of the run.

        `present` are the clients that can be reached now, in the order of their keys. With a fraction, this
        order determines which clients are asked.
        """
        if self.position.is_finished:
            return None
        # If a stage could not be started in an earlier call, this raises the same error again.
        self.position = self.position.started()
        here, fraction = self.roll.present_clients(present), self.roll.fraction
        while not (now := self.position).is_finished:
            if (
                self.roll.loss
                and (former := now.with_result_kept(self.layers, is_complete=self._is_round_complete)) is not None
            ):
                self.position, self.roll = former, self.roll.before_opening()
            elif self.roll.loss:
                for layer in self.layers:
                    layer.require_reopening()
                self.position = now.at_restart(self.roll, is_complete=self._is_round_complete)
                self.roll = self.roll.before_opening()
            elif (status := now.stage.status(now.state)) is not None:
                self.position = now = now.at_next_stage(status, here, self.roll, self.layers)
                self.position = now.started()
            elif now.chooser is not None and (other := now.reconsider(is_complete=self._is_round_complete)) is not now:
                self.position = other
            elif to := self.roll.addressees_of(
                now.audience(fraction=fraction),
                here,
                # Counting messages reads the whole history, so they are counted only if samples need the number.
                number=len(self.history.of(now.stage.name)) if fraction < 1.0 else 0,
            ):
                self._sent, self._began = self._message_to(to), time.perf_counter()
                return self._sent
            elif self.roll.awaited and (now.is_opening or now.audience(fraction=fraction) is Audience.COUNTED):
                # The clients that have not answered the message cannot be asked again.
                came = self.roll.came
                self.roll = self.roll.after_complete_round(now.audience(fraction=fraction), came)
                self._complete_round(self._total, came)
            else:
                self.roll = self.roll.after_loss()
        return None

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Process the answers to the pending message, and return the round for the history.

        Answers are read one by one, in the order in which they are summed. If a transport produces answers on
        demand, only one answer is in memory at a time, so memory does not grow with the number of clients.
        """
        if (sent := self._sent) is None:
            raise RuntimeError("No message is waiting for answers. Call pending() before advance().")
        now = self.position
        call = now.audience(fraction=self.roll.fraction)
        tally = AnswerCollector(now.stage, now.state, sent, now.model, layers=self.layers)
        if self.roll.awaited:
            tally.resume(self._total, self.roll.came)
        got = tally.collect(replies)
        self.position = now.with_heading(got.heading, got.declined)
        if got.notes:
            self.mark_loss()
        # Clients are banned before the roll processes the answers, because the run is lost if a member is banned, and
        # must not wait for this member.
        if got.failures or got.banned:
            self.roll = self.roll.with_banned(got.banned, got.why)
        # Under masks, an opening asks each client only once. A client that missed it is asked by the next opening.
        spare = now.model.summed and now.model.restarts == 0
        unasked = got.unasked
        if sampling := bool(unasked) and now.may_sample:
            got = got.for_sample()
        self.roll, attendance = self.roll.after_answers(
            call, got.answered, addressees=sent.to, may_miss=spare, unasked=unasked, sampling=sampling
        )
        self._total = got.total if attendance is Attendance.AGAIN else None
        metrics: dict[str, float] = {}
        if attendance is Attendance.COMPLETE:
            self.position = self.position.without_past(got.total)
            del now, tally  # They hold the whole former state.
            try:
                self._complete_round(got.total, got.answered)
                # The metrics belong to the state of this stage, so they are read before the position changes.
                if not self.position.lacks_answers(self.roll):
                    metrics = self.position.stage.metrics(self.position.state)
                # After the last message, the run ends without another call of `pending`, because clients may leave.
                if (status := self.position.final_status) is not None:
                    self.position = self.position.at_next_stage(status, (), self.roll, self.layers).started()
            except np.linalg.LinAlgError as error:
                raise unusable_sums_error(error) from error
        record = got.record(sent, seconds=time.perf_counter() - self._began, metrics=metrics)
        self.history, self._sent = self.history.add(record), None
        return record

    def readmit(self, clients: Iterable[int]) -> None:
        """Let these clients take part again although they were excluded, because they have been restarted."""
        self.roll = self.roll.readmit(clients)

    def skip(self) -> None:
        """Skip the pending message of a stage after the closing. The stage's figure is then missing from the result."""
        self.position, self.roll = self.position.without_stage(), self.roll.before_opening()
        self._total = self._sent = None

    def result(self) -> Result:
        """Return the result of a finished run, as an object of the run's result class."""
        if not self.position.is_finished:
            raise RuntimeError("The run is not finished. Send messages until pending() returns None.")
        return self._result_of(self.position.model)

    def result_so_far(self) -> Result | None:
        """Return the result of the finished steps. Return None before the first step, or if the run has no steps."""
        if self.is_finished:
            return self.result()
        if not isinstance(state := self.position.state, Recorder) or not state.record:
            return None
        return self._result_of(replace(self.position.current_model(is_complete=True), left=state.figures()))

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the header and arrays from which a new run with the same arguments can continue.

        With `steps`, the arrays include the steps of a tracker. Otherwise, a `files.Trail` stores the steps.
        """
        arrays: dict[str, Array] = {}
        state, history = self.position.state, shortened_history(self.history)
        if steps and isinstance(state, Recorder) and state.record:
            arrays["steps"] = state.lines(len(state.record))
        header = {"layout": LAYOUT, "run": self._identity(), "config": self._config, "history": history}
        return {**header, "roll": self.roll.to_json(), **self.position.to_json(arrays)}, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a `checkpoint`. If a round was only partly answered, all its clients are asked again.

        Raise ConfigError if the checkpoint belongs to another run or to an earlier version.
        """
        if header.get("layout") != LAYOUT:
            raise ConfigError("The checkpoint was written by an earlier version. Delete it, and start the run again.")
        if header["run"] != (run := self._identity()):
            others = _different_settings(header["config"], self._config) or _different_settings(header["run"], run)
            raise ConfigError(
                f"The checkpoint belongs to another run, with {', '.join(others)}. Repeat that run's arguments, or "
                "choose another checkpoint."
            )
        there = self.position.restore(header, arrays)
        if isinstance(there.state, Recorder):
            # The number of steps does not identify a run, because a run may continue to more steps.
            model = replace(there.model, steps=self.position.model.steps)
            state, steps = there.state.with_last_step(model.steps), arrays.get("steps")
            if steps is not None:
                state = state.with_steps(steps)
            there = replace(there, state=state, model=model)
        self.history = replace(History.from_json(header["history"]), limit=self.history.limit)
        self.position, self.roll = there, self.roll.restore(header["roll"])
        self._total = self._sent = None

    # Only masks call the following methods.

    @property
    def deviation_of_one(self) -> float:
        """The standard deviation of the noise that each client adds to its answer, or 0."""
        opening = self.position.is_opening
        return max((layer.deviation_of_one(opening=opening) for layer in self.layers), default=0.0)

    def settled_message(self, *, heading: Heading, needed: int) -> Broadcast:
        """Return the pending message, completed for clients with the columns of `heading`.

        A masked sum needs the answers of `needed` clients.
        """
        assert self._sent is not None
        self.position = self.position.with_heading(heading if heading.count else None)
        state = self.position.state
        if isinstance(state, NeedsColumnCount):
            state = state.with_column_count(heading.count)
        self.layers = tuple(layer.divide_noise(needed) for layer in self.layers)
        # The layers are informed first, because a private opening must know how many clients share its noise.
        for layer in self.layers:
            state = layer.complete_state(state)
        self.position = replace(self.position, state=state)
        self._sent = self._message_to(self._sent.to)
        return self._sent

    def mark_loss(self) -> None:
        """Record that clients have lost the state that they keep for the run."""
        self.position = self.position.after_loss()

    def count_dither(self, noise: float) -> None:
        """Record the length of the error of C z that the noise of a masked sum causes, for a vector z of length 1."""
        if self.position.role in (Role.ALGORITHM, Role.CLOSING):
            model = self.position.model
            self.position = replace(self.position, model=replace(model, mask_noise=max(model.mask_noise, noise)))

    def write_off(self, why: str) -> None:
        """Record that clients have answered the message, but the sum of their answers is lost."""
        assert self._sent is not None
        left, allowed = list[Layer](), self.algorithm
        for layer in self.layers:
            layer, allowed = layer.after_lost_sum(self._sent.stage, allowed, why)
            left.append(layer)
        before = self.position.stages
        stages = tuple(allowed if stage is self.algorithm else stage for stage in before)
        self.position, self.layers = replace(self.position, stages=stages), tuple(left)

    def _result_of(self, model: Model) -> Result:
        spec = self.position.algorithm.spec
        result = self._result.of(model, algorithm=spec, history=self.history, config=self._config)
        for layer in self.layers:
            stages = [r.stage for r in self.history if r.answered]
            result = layer.with_privacy(result, stages, shared=self.roll.summed)
        return result

    def _identity(self) -> dict[str, Any]:
        """Return the settings that must be equal in a checkpoint and in a run that continues from it."""
        now, model, roll = self.position, self._model, self.roll
        stages: list[Any] = list(now.stages)
        if now.chooser is not None:
            stages[now.place] = now.chooser
        return {
            "stages": [stage.spec for stage in stages],
            "fraction": roll.fraction,
            "layers": [layer.mark for layer in self.layers if layer.mark],
            "masked": roll.summed,
            "init": model.warm,
            **{name: getattr(model, name) for name in _IDENTITY},
            "wanted": None if model.wanted is None else list(model.wanted),
        }

    @property
    def _is_round_complete(self) -> bool:
        """Whether the latest round counts as complete. With a privacy budget, every round does."""
        return self.roll.whole or any(map(is_binding, self.layers))

    def _message_to(self, clients: tuple[int, ...]) -> Broadcast:
        """Return the pending message for these clients, with all layers applied."""
        now = self.position
        model, stage, opening = now.model, now.stage, now.is_opening
        # An opening uses raw rows, or rows scaled by public ranges, because it asks for the statistics of the frame.
        frame = replace(model.public, own=model.missing == "local_mean") if opening else model.frame
        personal = stage.personal(now.state)
        if personal:
            personal = {client: personal[client] for client in clients if client in personal}
        arrays = stage.broadcast(now.state)
        frame = frame.with_names(model.wanted, model.split)
        if frame.covariates is not model.covariates and frame.covariates is None:
            frame = replace(frame, covariates=model.covariates)
        message = Broadcast(
            stage.name,
            self.history.count,
            arrays,
            frame,
            clients,
            personal,
            rounding_allowed=stage.rounding_allowed(now.state),
        )
        for layer in self.layers:
            message = layer.change_message(message, model, opening=opening)
        return message

    def _complete_round(self, total: Any, answered: frozenset[int]) -> None:
        """Pass a completed round to the stage."""
        self.position = self.position.after_answers(total, answered)
        if self.roll.summed and not self.roll.whole and not self.position.sums_suffice:
            # The stage needs individual answers to continue without some clients, but it has only a sum.
            self.roll = self.roll.after_loss()
        elif self.roll.has_settled and self.position.may_repeat_opening and not any(map(is_binding, self.layers)):
            # Mean and totals still belong to the members, so further rounds with other clients would be wasted.
            self.roll = self.roll.after_loss()


def _different_settings(earlier: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return the settings of an earlier run that differ from the present settings, with their earlier values."""
    return [option(name, value) for name, value in earlier.items() if present.get(name) != value]
