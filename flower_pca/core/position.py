"""Position: the current stage of a run with its state, and all results so far.

A run moves through its stages by their roles. The table shows how the run continues when a stage is done:

| from      | condition                                   | to                                                     |
| --------- | ------------------------------------------- | ------------------------------------------------------ |
| OPENING   | if this opening was the `last`              | CLOSING                                                |
|           | otherwise                                   | a stage BEFORE the algorithm, or ALGORITHM             |
| BEFORE    | always                                      | the next such stage, or ALGORITHM                      |
| ALGORITHM | its rounds show that another algorithm      | ALGORITHM, with the other algorithm                    |
|           | costs less, and the run may choose          |                                                        |
|           | the set of clients has changed              | OPENING, with the block of `Algorithm.restart`         |
|           | otherwise                                   | CLOSING, or the end if there is none                   |
| CLOSING   | a variance fraction needs more components   | OPENING, with twice as many columns                    |
|           | otherwise                                   | AFTER, for example an evaluation, or the end           |
| AFTER     | always                                      | the next such stage, or the end                        |
| any       | a client on which the state depends is lost | OPENING; after the fifth time it is the `last` one     |

A run of a tracker consists only of its ALGORITHM. `to_json` stores the position in a checkpoint, and
`restore` reads it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from flower_pca.base import files, labels, linalg
from flower_pca.base.errors import NotEnoughNodes
from flower_pca.base.history import History, Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.core.algorithm import Algorithm, ChoosesAlgorithm, Iterative, ReconsidersChoice
from flower_pca.core.layer import Layer, is_binding
from flower_pca.core.model import Model, fraction_rank
from flower_pca.core.roll import Audience, Roll
from flower_pca.core.stage import AsksAllClients, Stage, add_answer
from flower_pca.names.columns import Heading

MAX_RESTARTS: Final = 5  # maximum number of repeated openings after changes to the set of clients
_FEW_RESTARTS: Final = 3  # number of restarts up to which a run may repeat the opening while its algorithm still runs
_NOT_STARTED: Final = object()  # the state of a stage that `Position.started` starts
# A checkpoint stores these fields as plain values, in addition to the model and the state.
_PLAIN_FIELDS: Final = {"index": int, "halfway": bool, "last": bool, "disturbed": bool, "changed": bool}
_DIFFER: Final = (
    "differ from an undisturbed run, because clients had lost their state. Start the run again, and give every node a "
    "memory-dir"
)
_LOST_AT_END: Final = (
    "; clients had lost their state before the last message, so the parts of their rows, and variances, may differ "
    "from those of an undisturbed run. Give every node a memory-dir"
)
_ROUNDS_LOST: Final = (
    ", but some of these rounds are lost, because a masked run starts again when clients change. Raise max_rounds"
)
_FORMER: Final = (
    "clients have changed, but fewer rounds are left than a masked run needs to start again, so the components are "
    "from the rows before the change. Raise max_rounds"
)
_BEGAN_AGAIN: Final = (
    "; clients had lost their state and began again, which may cost rounds: give every node a memory-dir"
)


class Role(enum.IntEnum):
    """The purpose of a stage in the run."""

    OPENING, BEFORE, ALGORITHM, CLOSING, AFTER = range(5)


@dataclass(frozen=True, kw_only=True)
class Position:
    """The position of a run: its current stage and state, and all results so far.

    Attributes
    ----------
    stages : tuple of Stage
        All stages of the run, in their order.
    model : Model
        The model before the current stage.
    state
        The state of the current stage, or of the last stage if the run is finished.
    index : int
        The index of the current stage.
    place : int
        The index of the algorithm, which follows the opening and the stages BEFORE it.
    opens : bool
        Whether the first stage is an opening.
    halfway : bool
        Whether the first of the two messages of an opening has been answered.
    last : bool
        Whether the closing stage follows the current opening directly, because clients keep changing.
    disturbed : bool
        Whether a client has lost its state for the algorithm since the opening.
    changed : bool
        Whether the chooser has replaced the algorithm that it chose first, after some rounds.
    chooser : ChoosesAlgorithm or None
        The algorithm, such as `Auto`, that has chosen the present algorithm, and chooses again after another opening.
        None if the configuration names the present algorithm.
    """

    stages: tuple[Stage[Any], ...]
    model: Model
    state: Any
    index: int = 0
    place: int = 1
    opens: bool = True
    halfway: bool = False
    last: bool = False
    disturbed: bool = False
    changed: bool = False
    chooser: ChoosesAlgorithm | None = None

    __repr__ = brief

    @property
    def alternative(self) -> str:
        """The name of the algorithm for which the opening asks nodes whether they decline to serve it, usually ""."""
        chooser = self.chooser or self.algorithm
        if self.is_opening and isinstance(chooser, ChoosesAlgorithm):
            return chooser.alternative
        return ""

    @cached_property
    def role(self) -> Role:
        """The purpose of the current stage."""
        if self.opens and self.index < self.place:
            return Role(min(self.index, Role.BEFORE))
        return Role(min(Role.ALGORITHM + self.index - self.place, Role.AFTER))

    @cached_property
    def stage(self) -> Stage[Any]:
        """The current stage."""
        return self.stages[self.index]

    @cached_property
    def algorithm(self) -> Any:
        """The Algorithm or tracker whose name the run has."""
        return self.stages[self.place]

    @property
    def required_algorithms(self) -> str:
        """The names of the stages that nodes must allow, joined by plus signs.

        The first name is the algorithm. The others are stages that compare rows.
        """
        others = (*self.stages[1 : self.place], *self.stages[self.place + 2 :])
        beside = (stage.name for stage in others if stage.by_row)
        return "+".join((self.algorithm.name, *beside))

    @cached_property
    def is_finished(self) -> bool:
        """Whether all stages are done."""
        return self.index == len(self.stages)

    @cached_property
    def is_opening(self) -> bool:
        """Whether the current stage is the opening."""
        return self.opens and self.index == 0

    @property
    def columns(self) -> int:
        """The number of columns, or 0 as long as it is unknown."""
        return self.model.d or self.current_model(is_complete=True).d

    @property
    def sums_suffice(self) -> bool:
        """Whether the sum of the clients' answers suffices for the next message."""
        return self.stage.merging(self.state) is add_answer

    def bounds(self, *, heard: bool) -> Mapping[str, Array | float]:
        """Return bounds on the entries of each array of an answer, or 0 if a bound is unknown.

        `heard` is True if all clients that are asked answered the last message with the same rows. Without an
        opening, bounds are known only in this case, because the rows of streams change.
        """
        bounds = self.stage.bounds(self.state, self.model)
        if self.opens or heard:
            return bounds
        return dict.fromkeys(bounds, 0.0)

    @property
    def final_status(self) -> Status | None:
        """The status with which the run ends, whatever clients are present, or None if the run may continue."""
        if self.index + 1 < len(self.stages) or (self.opens and self.role is Role.ALGORITHM):
            return None
        return self.stage.status(self.state)

    def audience(self, *, fraction: float) -> Audience:
        """Return the audience of the next message."""
        if self.is_opening:
            if self.halfway:
                return Audience.OPENED
            return Audience.OPENING
        if self.stage.fixed_set:
            return Audience.MEMBERS
        if self.role is Role.AFTER:
            return Audience.COUNTED
        if fraction >= 1.0 or self.role is not Role.ALGORITHM:
            return Audience.ANYONE
        if isinstance(self.state, AsksAllClients) and self.state.asks_all_clients:
            return Audience.ANYONE
        return Audience.SAMPLE

    def current_model(self, *, is_complete: bool) -> Model:
        """Return the current model. The product C Z is left out if the round was not complete."""
        if self.is_finished:
            return self.model
        if self.role is not Role.ALGORITHM and self.stage.status(self.state) is None:
            return self.model
        return self._finish(is_complete=is_complete)

    def _finish(self, *, is_complete: bool) -> Model:
        """Return the model with the result of the current stage. The stage is done, or it is the algorithm."""
        model = self.stage.finish(self.state, self.model)
        if self.role is Role.ALGORITHM and not is_complete:
            return replace(model, product=None, opening_errors=None)
        return model

    def _with_unsent_basis(self, model: Model) -> Model:
        """Return the model with a basis that was never sent to a client, if the server sees only sums.

        This basis is the algorithm's next block. If there is no such block, the model is unchanged.
        """
        if not model.summed or self.role is not Role.ALGORITHM:
            return model
        block = self.algorithm.unsent(self.state)
        return model if block is None else replace(model, basis=block, product=None, opening_errors=None)

    def estimate(self, *, is_complete: bool) -> Array | None:
        """Return the current estimate of the components, as k columns, or None before the first basis.

        Without a product, it is unknown which k directions of the basis are wanted, so all columns are returned.
        """
        model = self.current_model(is_complete=is_complete)
        if model.basis is None:
            return None
        if model.product is None and model.values is None:
            return model.basis
        if not self.algorithm.orthonormal or model.values is not None:
            return model.basis[:, : model.k]
        assert model.product is not None
        return linalg.rayleigh_ritz(model.basis, model.product)[1][:, : model.k]

    def with_heading(self, heading: Heading | None, declined: str = "") -> Position:
        """Return the position with the clients' columns, if they were unknown so far.

        `declined` is the reason of a client that declines the alternative algorithm, or "".
        """
        if (model := self.model).heading is not None and not declined:
            return self
        model = replace(model, heading=model.heading or heading, declined=model.declined or declined)
        return replace(self, model=model)

    def without_past(self, total: Any) -> Position:
        """Return the position without the parts of the state that the stage does not need to process `total`."""
        state = self.stage.without_past(self.state, total)
        return self if state is self.state else replace(self, state=state)

    def after_answers(self, total: Any, clients: frozenset[int]) -> Position:
        """Return the position after a complete round: `total` are the merged answers of `clients`."""
        state = self.stage.server(self.state, total, clients)
        return replace(self, state=state, halfway=self.is_opening and self.stage.status(state) is None)

    def after_loss(self) -> Position:
        """Return the position after clients have lost their state.

        The loss matters during the algorithm, and in the closing message if clients take their rows apart in it.
        """
        status = self.model.status
        if self.role is Role.CLOSING and not self.algorithm.measured and not self.algorithm.recomputes and status:
            if _LOST_AT_END in status.words:
                return self
            return replace(self, model=replace(self.model, status=status.followed_by(_LOST_AT_END)))
        lost = self.role is Role.ALGORITHM and not self.algorithm.recomputes
        return replace(self, disturbed=self.disturbed or lost)

    def at_next_stage(self, status: Status, clients: tuple[int, ...], roll: Roll, layers: Sequence[Layer]) -> Position:
        """Return the position at the next stage, or at the opening if the result is not good enough yet.

        `status` is the status with which the stage ends, `clients` lists the clients that are present, and
        `layers` are the layers of the run. The next stage may still have to be started: see `started`.
        """
        # With a binding layer, no further round or opening can correct a round in which clients were missing.
        binding = any(map(is_binding, layers))
        if self.lacks_answers(roll):
            return self._without_figure(roll)._before_next()
        now = replace(self, model=self._finish(is_complete=roll.whole or binding))
        if self.role is Role.AFTER and not roll.whole:
            now = replace(now, model=replace(now.model, rest=self.model.rest))  # The result is about all members.
        if self.index < self.place:
            now = now.with_chosen_algorithm()
        elif self.role is Role.ALGORITHM:
            now = now._after_algorithm(status, layers)
            if binding and self.opens and not (roll.whole or roll.chosen or roll.fraction < 1.0):
                assert now.model.status is not None
                noted = now.model.status.with_notes([_of_other_rows(roll)])
                now = replace(now, model=replace(now.model, status=noted))
            # In some algorithms, the last answers of absent members still count.
            if (
                self.opens
                and not binding
                and roll.has_changed(clients, counted=self.algorithm.caches and not roll.summed)
            ):
                # The difference of two masked sums for the same columns, one with a client and one without this
                # client, would reveal the client's answer. So under masks, the columns always change.
                if self._keeps_result(now.model):
                    return replace(
                        now, model=replace(now.model, status=Status(Outcome.MAX_ROUNDS, _FORMER))
                    )._before_next()
                now = replace(now, model=now._with_unsent_basis(now.model))
                if now._is_spent and (not now.model.summed or self.algorithm.unsent(self.state) is not None):
                    return now._at_measuring_opening(roll)
                return now.at_opening(self.algorithm.restart(now.model), roll)
        elif self.role is Role.CLOSING:
            if now._has_too_few_components:
                return now._with_more_columns(roll)
            now = now._with_true_residuals(layers, binding=binding)
        return now._before_next()

    def lacks_answers(self, roll: Roll) -> bool:
        """Return whether members have failed to answer a stage after the closing, so that its figure must be left out.

        If the caller chose not to ask these members, it wants a figure about the others.
        """
        return self.role is Role.AFTER and not (roll.whole or roll.chosen)

    def _without_figure(self, roll: Roll) -> Position:
        """Return the position without the figure of this stage, because some members have not answered.

        The other figures of the result are about all members, so a figure about some of them would mislead.
        """
        model = self.model
        assert model.status is not None
        words = (
            f"the message {self.stage.name} got no answer from {_missing_in_words(roll)}, so the result lacks what "
            "this message asks for. Start the run again if you need it"
        )
        return replace(self, model=replace(model, status=model.status.with_notes([words])))

    def reconsider(self, *, is_complete: bool) -> Position:
        """Return the position with the other algorithm if the rounds so far show that it costs less."""
        chooser = self.chooser
        if chooser is None or self.changed or self.role is not Role.ALGORITHM:
            return self
        if not isinstance(chooser, ReconsidersChoice):
            return self
        if not (why := chooser.reconsider(self.algorithm, self.state, self.model)):
            return self
        # The count of rounds continues, as it does after an opening.
        known = replace(self._finish(is_complete=is_complete), rounds=self.algorithm.rounds(self.state))
        now = replace(self, model=known.with_decision("algorithm", why), changed=True).with_algorithm(
            chooser.alternative_algorithm
        )
        return replace(now, state=now.stage.start(now.model))

    def with_algorithm(self, algorithm: Algorithm[Any]) -> Position:
        """Return the position with its algorithm replaced by the given algorithm."""
        return replace(self, stages=(*self.stages[: self.place], algorithm, *self.stages[self.place + 1 :]))

    @property
    def may_sample(self) -> bool:
        """Whether a round may ask only a part of the connected clients, which may differ from round to round."""
        if self.role is not Role.ALGORITHM or self.stage.fixed_set:
            return False
        return isinstance(self.stage, Iterative) or not self.opens

    @property
    def may_repeat_opening(self) -> bool:
        """Whether the run may repeat the opening now, because the algorithm loses nothing by this."""
        algorithm = self.algorithm
        if not self.opens or self.role is not Role.ALGORITHM or self.stage.status(self.state) is not None:
            return False
        return algorithm.by_power and self.model.restarts < _FEW_RESTARTS

    @property
    def _is_spent(self) -> bool:
        """Whether the algorithm has no rounds left."""
        algorithm = self.algorithm
        return isinstance(algorithm, Iterative) and self.model.rounds >= algorithm.max_rounds

    def _at_measuring_opening(self, roll: Roll) -> Position:
        """Return the position at an opening that only measures the components on the present clients.

        The closing stage follows directly. No round is left to remove the random part of a restart, or to find
        new directions of new clients.
        """
        model = self.model
        assert model.status is not None
        status = model.status
        if status.outcome is not Outcome.MAX_ROUNDS:
            words = ", but not for the clients present at the end, and no round is left"
            status = status.followed_by(words, Outcome.MAX_ROUNDS)
        again = replace(self, model=replace(model, status=status)).at_opening(model.columns, roll)
        return replace(again, last=True)

    def _after_algorithm(self, status: Status, layers: Iterable[Layer], *, anew: bool = True) -> Position:
        """Return the position after the algorithm, with warnings added to its status.

        Unless `anew`, the warning about rounds that were lost when clients changed is left out.
        """
        algorithm = self.algorithm
        # If the closing message measures the components, it detects wrong components.
        if self.disturbed and algorithm.measured:
            status = status.followed_by(_BEGAN_AGAIN)
        elif self.disturbed and status.outcome is Outcome.CONVERGED:
            status = status.followed_by(f", but the result may {_DIFFER}", Outcome.STALLED)
        elif self.disturbed:
            status = status.with_notes([f"the result may also {_DIFFER}"])
        begun_anew = self.model.summed and self.model.restarts > 0 and algorithm.fixed_set
        if anew and begun_anew and status.outcome is Outcome.MAX_ROUNDS:
            status = status.followed_by(_ROUNDS_LOST)
        model = replace(self.model, status=status, rounds=algorithm.rounds(self.state), pooled=algorithm.pooled)
        basis, product = model.basis, model.product
        if basis is not None and product is not None and basis.shape != product.shape:
            raise RuntimeError(
                f"finish() of {algorithm.name} left a product of shape {product.shape}, but a basis of shape "
                f"{basis.shape}. Set product to C times this basis, or to None."
            )
        if basis is not None and not algorithm.pooled and self._closing_chooses:
            chosen = (
                "The closing stage would keep the columns along which all rows vary most, but the class sets pooled"
            )
            if not isinstance(model.n_components, int):
                raise RuntimeError(
                    f"finish() of {algorithm.name} left a basis for n_components={model.n_components:g}. {chosen} = "
                    "False. Close the run with a stage that keeps the order of the columns, such as oblique, or refuse "
                    "a fraction."
                )
            if basis.shape[1] > model.k:
                raise RuntimeError(
                    f"finish() of {algorithm.name} left a basis of {basis.shape[1]} columns for {model.k} components. "
                    f"{chosen} = False. Return {model.k} columns."
                )
        for layer in layers:
            model = layer.finish_algorithm(model)
        return replace(self, model=model)

    @property
    def _closing_chooses(self) -> bool:
        return any(stage.chooses for stage in self.stages[self.place + 1 : self.place + 2])

    def _with_true_residuals(self, layers: Iterable[Layer], *, binding: bool) -> Position:
        """Return the position with the true residuals, and with the figures of the layers."""
        # With a privacy budget, residuals measure the noise and not the remaining error.
        model = self.model
        if not binding and (status := self.algorithm.verify(model)) is not model.status:
            model = replace(model, status=status)
        for layer in layers:
            model = layer.finish_closing(model)
        return self if model is self.model else replace(self, model=model)

    def _at_next(self) -> Position:
        return self._before_next().started()

    def _before_next(self) -> Position:
        """Return the position at the next stage, which has not been started yet, or at the end of the run."""
        index = (self.place if self.last else self.index) + 1
        if index == len(self.stages):
            return replace(self, index=index, last=False)
        return replace(self, index=index, state=_NOT_STARTED, last=False)

    def started(self) -> Position:
        """Return the position with the current stage started.

        This is a step of its own, so that the state of the former stage, which may be large, can be released before.
        """
        if self.state is not _NOT_STARTED:
            return self
        stage, model = self.stage, self.model
        state = stage.start(model)
        # The product takes as much memory as a message. With residuals, it may decide which algorithm a run continues
        # with after a checkpoint.
        if isinstance(stage, Algorithm) and stage.keeps_product and model.residuals is None:
            model = replace(model, product=None)
        return replace(self, state=state, model=model)

    def without_stage(self) -> Position:
        """Return the position at the next stage. Only a stage after the closing can be skipped."""
        if self.role is not Role.AFTER:
            raise RuntimeError(f"The run cannot skip stage {self.stage.name}, because later stages need its result.")
        return self._at_next()

    def _keeps_result(self, present: Model) -> bool:
        """Return whether to keep the result for the former clients, because a new start would probably be worse.

        Under masks, columns that the former clients were sent must not be sent to other clients, so a new start
        cannot use earlier results. The result must be complete without another message.
        """
        algorithm = self.algorithm
        if not (present.summed and self.role is Role.ALGORITHM and isinstance(algorithm, Iterative)):
            return False
        if not algorithm.fixed_set or present.product is None or self.place + 2 < len(self.stages):
            return False
        rounds = algorithm.rounds(self.state)
        return algorithm.max_rounds - rounds < rounds - self.model.rounds

    def with_result_kept(self, layers: Sequence[Layer], *, is_complete: bool) -> Position | None:
        """Return the position at the closing with the result for the former clients, or None to start the run again."""
        if not self._keeps_result(self.current_model(is_complete=is_complete)):
            return None
        now = replace(self, model=self._finish(is_complete=is_complete))
        return now._after_algorithm(Status(Outcome.MAX_ROUNDS, _FORMER), layers, anew=False)._at_next()

    def at_restart(self, roll: Roll, *, is_complete: bool) -> Position:
        """Return the position at the opening, with the block from which the algorithm restarts."""
        known = self._with_unsent_basis(self.current_model(is_complete=is_complete))
        # Before the opening is answered, the same block is sent again.
        begun = known.basis is None or not known.d
        return self.at_opening(known.basis if begun else self.algorithm.restart(known), roll)

    def at_opening(self, block: Array | None, roll: Roll) -> Position:
        """Return the position at the opening, with this block or, if it is None, without a block.

        The block refers to columns that are scaled by the old frame. Raise NotEnoughNodes if the set of clients changes
        too often for this algorithm.
        """
        model, algorithm, last = self.model, self.algorithm, self.last
        assert isinstance(algorithm, Algorithm)
        # The new start continues the count, so that max_rounds limits all restarts together.
        if self.role is Role.ALGORITHM:
            model = replace(model, rounds=algorithm.rounds(self.state))
        if model.restarts >= MAX_RESTARTS:
            tried = model.status is not None and model.status.outcome is Outcome.CLIENTS_CHANGED
            tried = tried or self.role is Role.BEFORE  # The last opening would skip the stage before the algorithm.
            if algorithm.fixed_set or model.basis is None or tried:
                raise NotEnoughNodes(
                    f"The set of clients changed for the {model.restarts + 1}th time{roll.reason_in_words}. Use ssi, "
                    "local_power or faps, which continue while clients come and go."
                )
            # After one more message to the present clients, frame, product and variances refer to the same
            # clients.
            words = f"the set of clients kept changing, and {MAX_RESTARTS} restarts did not help"
            model = replace(model, status=Status(Outcome.CLIENTS_CHANGED, words))
            block, last = model.columns, True
        if block is not None:
            # A widened block may have more columns than there are directions.
            block = block[:, : model.d or None]
            # The opening multiplies raw rows, and scales the block itself once the scale is known.
            if model.frame.scale is not None:
                block = block / model.frame.scale[:, None]
        # The claims of clients belong to the old frame, so the opening collects new claims.
        model = replace(model, basis=block, product=None, opening_errors=None, claims={}, counted=None, declined="")
        model = replace(model, restarts=model.restarts + 1)
        state = self.stages[0].start(model)
        return replace(self, model=model, state=state, index=0, halfway=False, last=last, disturbed=False)

    def with_chosen_algorithm(self) -> Position:
        """Return the position with the algorithm that the chooser selects after the opening, if there is a chooser."""
        chooser = self.chooser or self.algorithm
        # The choice depends on the number of components, which a stage BEFORE the algorithm may find.
        if not isinstance(chooser, ChoosesAlgorithm) or self.index + 1 < self.place:
            return self
        chosen, why = chooser.choose_algorithm(self.model)
        if self.chooser is None and chosen is self.algorithm:  # The run keeps the algorithm of its configuration.
            return self
        model = self.model
        # If the chooser has changed the algorithm, another opening does not undo this, because the change depends on
        # the spectrum, which is the same.
        changed = self.changed and not model.declined
        if changed and isinstance(chooser, ReconsidersChoice):
            return replace(self, chooser=chooser).with_algorithm(chooser.alternative_algorithm)
        if why:
            model = model.with_decision("algorithm", why)
        return replace(self, chooser=chooser, model=model, changed=changed).with_algorithm(chosen)

    def to_json(self, arrays: dict[str, Array]) -> dict[str, Any]:
        """Return the position as plain values, and add its arrays to `arrays`."""
        packed = {name: files.pack_value(getattr(self, name), arrays, name) for name in ("model", "state")}
        return packed | {name: getattr(self, name) for name in _PLAIN_FIELDS}

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> Position:
        """Return the position that `to_json` has stored, for a run with the same stages.

        If the configuration does not name the algorithm, the algorithm is chosen again.
        """
        there = replace(
            self, **{name: files.unpack_value(kind, header[name], {}) for name, kind in _PLAIN_FIELDS.items()}
        )
        if not 0 <= there.index <= len(there.stages):
            raise ValueError(f"the run is at stage {there.index}, but has only {len(there.stages)} stages")
        model = files.unpack_value(Model, header["model"], arrays)
        if not isinstance(model.n_components, int | float):
            raise ValueError("n_components is not a number")
        there = replace(there, model=model)
        if there.role > Role.BEFORE:
            there = there.with_chosen_algorithm()
        # The chosen algorithm decides the class of the state.
        stage = there.stages[min(there.index, len(there.stages) - 1)]
        return replace(there, state=files.unpack_value(stage.State, header["state"], arrays))

    @property
    def _has_too_few_components(self) -> bool:
        """Whether the closing has found too few components to explain the requested fraction of the variance."""
        model = self.model
        assert model.values is not None
        spent = model.status is not None and model.status.outcome is Outcome.MAX_ROUNDS
        # The count of rounds continues after another opening. If no round is left, a wider block would not help.
        if spent or isinstance(model.n_components, int) or len(model.values) >= min(model.n, model.d):
            return False
        return fraction_rank(model.values, model.trace, model.n_components) is None

    def _with_more_columns(self, roll: Roll) -> Position:
        """Return the position at the opening, with twice as many columns.

        This does not count as a restart, because the clients are the same.
        """
        Z = self.model.columns
        noise = linalg.random_block(len(Z), Z.shape[1], self.model.seed + 1)
        model = replace(self.model, restarts=self.model.restarts - 1)
        return replace(self, model=model).at_opening(np.hstack([Z, noise]), roll)


NEWEST: Final = 1000  # the number of latest messages that the history of an endless run keeps
_MESSAGES: Final = 64  # maximum number of messages in the checkpoint of an endless run


def _missing_in_words(roll: Roll) -> str:
    """Return the members that have not answered the last round, as "client 2" or "3 clients"."""
    missing = sorted(roll.members - roll.others)
    return f"client {missing[0]}" if len(missing) == 1 else labels.count(len(missing), "client")


def _of_other_rows(roll: Roll) -> str:
    """Return the note of a run with privacy noise whose last round was answered by other clients than its opening.

    Without noise, the run would return to the opening.
    """
    if roll.members <= roll.others:
        return (
            "the last round was answered by clients that joined after the opening, too, so the components are partly "
            "of their rows, which the means, the number of rows and the bounds of the variances do not count"
        )
    return (
        f"the last round got no answer from {_missing_in_words(roll)}, so the components are mostly of the rows of the "
        "others, and the variances and their bounds are of neither these rows nor all rows"
    )


def shortened_history(history: History) -> list[dict[str, Any]]:
    """Return the rounds as plain dictionaries. For an endless run, return the latest rounds and earlier totals."""
    return (history if history.limit is None else history.newest(_MESSAGES)).to_json()
