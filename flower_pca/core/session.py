"""Session: a run as a state machine without I/O, driven alike by a loop in process, by Flower and by a test."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base import archive, checks, linalg
from flower_pca.base.errors import ConfigError, NotEnoughNodes
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.channel import AirChannel
from flower_pca.core.model import Model, fraction_rank
from flower_pca.core.replies import collect, require_any, unusable
from flower_pca.core.result import PCAResult
from flower_pca.core.run import Run
from flower_pca.core.stage import Broadcast, Failure, Reply, Stage, Sum, add
from flower_pca.rows.frame import Frame

SCALES: Final = (None, "std", "max_abs")
MISSING: Final = ("error", "own_mean", "mean")
_OPENING, _ALGORITHM, _CLOSING = range(3)
MAX_RESTARTS: Final = 5  # returns to the opening because the set of clients changed


class Session(Run):
    """A run: opening, algorithm, its closing stage (mostly Rayleigh-Ritz), and an evaluation if asked for.

    The owner of the transport repeats: ask `pending(present)` for the message, send it to the clients it names, hand
    their replies to `advance`. When `pending` returns None, `result()` is ready.

    Args:
        stages: The opening, the algorithm, its closing stage, and what may follow. See `assembly`.
        n_components: Number of components, or the fraction of the total variance that decides it.
        center: Whether to subtract the mean of all rows; the algorithm's own default if None.
        scale: None, "std" (unit variance) or "max_abs" (each column divided by its largest absolute value).
        missing: "error"; "own_mean": NaN stands for a missing value, in whose place comes the mean of what the client
            has in that column; or "mean": of what all clients have.
        seed: Seed of everything random on the server.
        fraction: Share of the clients present that each round of the algorithm goes to.
        min_clients: Clients that must be present.
        channel: What the sums of the replies are heard through; None for an ideal one.
        plan: How a privacy budget is dealt out; None without one.
        result: What the result is.
    """

    def __init__(
        self,
        stages: Sequence[Stage[Any]],
        *,
        n_components: int | float,
        center: bool | None = None,
        scale: str | None = None,
        missing: str = "error",
        seed: int = 0,
        fraction: float = 1.0,
        min_clients: int = 1,
        channel: AirChannel | None = None,
        plan: Any = None,
        result: type[PCAResult] = PCAResult,
    ) -> None:
        n_components = checks.components(n_components)
        checks.choice("center", center, (True, False, None))
        checks.choice("scale", scale, SCALES)
        checks.choice("missing", missing, MISSING)
        checks.integer("seed", seed, most=2**62)
        checks.proportion("The fraction of clients", fraction)
        checks.integer("min_clients", min_clients, least=1)
        algorithm = stages[_ALGORITHM]
        assert isinstance(algorithm, Algorithm)
        if fraction < 1.0 and algorithm.fixed_set:
            remedy = "Use ssi, local_power or faps to sample clients."
            raise ConfigError(f"The fraction of clients for {algorithm.name}", must="1.0", got=fraction, then=remedy)
        self._stages, self._plan, self._algorithm, self._result = tuple(stages), plan, algorithm, result
        self._channel = channel
        self._fraction, self._min_clients = float(fraction), min_clients
        center = algorithm.centers if center is None else bool(center)
        given: dict[str, Any] = {"center": center, "scale": scale, "missing": missing, "seed": int(seed)}
        self._model = Model(n_components=n_components, summed=self.summed, **given)
        self._asked_for = n_components  # an algorithm may find that there are fewer
        self._index = _OPENING
        self._state: Any = self._stages[_OPENING].start(self._model)
        self._history = History()
        self._sent: Broadcast | None = None
        self._began = 0.0
        self._members: frozenset[int] = frozenset()  # answered the opening
        self._unfit: frozenset[int] = frozenset()  # were asked and did not
        self._banned: frozenset[int] = frozenset()  # never asked again
        self._partial: tuple[Any, frozenset[int]] | None = None  # of a fixed set, some have answered
        self._asked: frozenset[int] = frozenset()  # by the opening, this time or when it was sent first
        self._lost = False  # a fixed set has lost a member for good
        self._whole = True  # the newest round of the algorithm was one of all members, and of nobody else
        self._closing = False  # the opening under way is the last message: clients keep changing
        self._begun = False  # the opening has been answered, and asks once more
        self._empty = 0
        self._why = ""  # the first failure, for the error that a run may end with

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm's stage."""
        return self._algorithm

    @property
    def finished(self) -> bool:
        """Whether the result is ready."""
        return self._index == len(self._stages)

    def estimate(self) -> Array | None:
        """The basis (d x k) that the run would return if it ended now; None before the opening is held.

        While C Z is not known to the server, the columns are in no particular order.
        """
        model = self._known()
        if model.basis is None:
            return None
        if model.product is None or model.values is not None:
            return model.basis[:, : model.k]
        return linalg.rayleigh_ritz(model.basis, model.product)[1][:, : model.k]

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """The message to send to clients among `present`, those that can be reached now; None at the end.

        The order of `present` is the order of the clients' keys: it decides which ones a fraction samples.
        """
        here = tuple(client for client in present if client not in self._banned)
        if not self.finished and len(here) < self._min_clients:
            rule, out = f"at least {self._min_clients}", len(self._banned)
            got = f"{len(here)}" + (f", and {out} left out, the first because: {self._why.rstrip('.')}" if out else "")
            raise NotEnoughNodes("The clients present", must=rule, got=got, then="Start more, or lower the minimum.")
        while not self.finished:
            if self._lost:
                self._reopen(self._algorithm.restart(self._known()))
            elif (status := self._stage.status(self._state)) is not None:
                self._leave(status, here)
            elif to := self._audience(here):
                return self._message(to)
            elif self._partial is not None and self._index == _OPENING:
                self._complete(*self._partial)  # those that failed it are not there to be asked again
            else:
                self._lost = True
        return None

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take the answers to the pending message, in the order in which they shall be summed, and move on."""
        if self._sent is None:
            raise RuntimeError("advance() takes the answers to a message of pending()")
        sent, stage, state = self._sent, self._stage, self._state
        total, answered = self._partial or (None, frozenset())
        d = self._model.d or None
        got = collect(stage, state, sent, replies, d=d, total=total, answered=answered, channel=self._channel)
        total, answered = got.total, got.answered
        self._why = self._why or got.why
        self._banned |= got.banned
        try:
            moved = self._take(total, answered)
        except np.linalg.LinAlgError as error:
            raise unusable(error) from error
        seconds = time.perf_counter() - self._began
        record = got.record(sent, seconds=seconds, metrics=stage.metrics(self._state) if moved else {})
        self._history, self._sent = self._history.add(record), None
        return record

    def result(self) -> PCAResult:
        """The result of a finished run."""
        if not self.finished:
            raise RuntimeError("the run is not finished: pending() still returns messages")
        return self._result.of(
            self._model,
            algorithm=self._algorithm.spec,
            history=self._history,
            privacy=None if self._plan is None else self._plan.spent(self._told, shared=self.summed),
        )

    def checkpoint(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that a new Session of the same arguments needs to go on: a JSON header, and arrays."""
        arrays: dict[str, Array] = {}
        header = {
            "run": self._identity,
            "index": self._index,
            "empty": self._empty,
            "lost": self._lost,
            "whole": self._whole,
            "closing": self._closing,
            "begun": self._begun,
            "members": sorted(self._members),
            "unfit": sorted(self._unfit),
            "banned": sorted(self._banned),
            "model": archive.pack(self._model, arrays, "model"),
            "state": archive.pack(self._state, arrays, "state"),
            "history": self._history.to_json(),
        }
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken. A half-answered round is asked again as a whole."""
        if header["run"] != self._identity:
            got = "one of " + ", ".join(f"{k}={v!r}" for k, v in header["run"].items() if self._identity.get(k) != v)
            remedy = "Repeat that run's arguments, or choose another checkpoint."
            raise ConfigError("The checkpoint", must="one of this very run", got=got, then=remedy)
        self._index, self._empty, self._lost = header["index"], header["empty"], header["lost"]
        self._whole, self._closing, self._begun = header["whole"], header["closing"], header["begun"]
        self._members, self._unfit, self._banned = (frozenset(header[k]) for k in ("members", "unfit", "banned"))
        self._model = archive.unpack(Model, header["model"], arrays)
        if not self.finished:
            self._state = archive.unpack(self._stage.State, header["state"], arrays)
        self._history = History.from_json(header["history"])
        self._partial = self._sent = None

    @property
    def _identity(self) -> dict[str, Any]:
        m = self._model
        run = {name: getattr(m, name) for name in ("center", "scale", "missing", "seed")}
        air = archive.pack(self._channel, {}, "channel")
        return {
            "stages": [stage.spec for stage in self._stages],
            "fraction": self._fraction,
            "channel": air,
            "n_components": self._asked_for,
            **run,
        }

    @property
    def _stage(self) -> Stage[Any]:
        return self._stages[self._index]

    @property
    def _told(self) -> list[str]:
        """The stages of all messages that clients have answered."""
        return [record.stage for record in self._history if record.answered]

    @property
    def _halfway(self) -> bool:
        """Whether the opening takes two messages, and the first has been answered: newcomers have to wait."""
        return self._index == _OPENING and self._begun

    def _known(self) -> Model:
        if self.finished:
            return self._model
        done = self._index == _ALGORITHM or self._stage.status(self._state) is not None
        model = self._stage.finish(self._state, self._model) if done else self._model
        return (
            replace(model, product=None)
            if self._index == _ALGORITHM and not self._whole and self._plan is None
            else model
        )

    def _audience(self, here: tuple[int, ...]) -> tuple[int, ...]:
        """Whom to ask; nobody if those that the stage depends on are gone for good."""
        if self._partial is not None:
            awaited = (self._asked if self._index == _OPENING else self._members) - self._partial[1]
            return tuple(client for client in here if client in awaited)
        if self._index == _OPENING:
            return tuple(client for client in here if client in self._members) if self._halfway else here
        if self._stage.fixed_set:
            return tuple(client for client in here if client in self._members)
        here = tuple(client for client in here if client not in self._unfit)
        if self._index == _ALGORITHM and self._fraction < 1.0 and not self._stage.everyone(self._state):
            size = max(1, round(self._fraction * len(here)))
            rng = np.random.default_rng([self._model.seed, len(self._history)])
            return tuple(here[i] for i in sorted(rng.choice(len(here), size=size, replace=False)))
        return here

    def _message(self, to: tuple[int, ...]) -> Broadcast:
        stage, state = self._stage, self._state
        own = {client: arrays for client, arrays in stage.personal(state).items() if client in to}
        # The opening speaks of raw rows: the frame is what it asks for.
        frame = Frame(own=self._model.missing == "own_mean") if self._index == _OPENING else self._model.frame
        arrays = stage.broadcast(state)
        if self._plan is not None:
            arrays = {**arrays, **self._plan.arrays(opening=self._index == _OPENING)}
        self._sent = Broadcast(stage.name, len(self._history), arrays, frame, to, own)
        self._began = time.perf_counter()
        return self._sent

    def _take(self, total: Any, answered: frozenset[int]) -> bool:
        """Move the state on, if the round is complete; whether it was."""
        asked_twice = self._partial is not None
        if self._stage.fixed_set and self._members - answered:
            self._lost = asked_twice or self.summed or bool(self._members & self._banned)
            self._partial = None if self._lost else (total, answered)
            return False
        if self._index == _OPENING and not asked_twice:
            assert self._sent is not None
            self._asked = (self._asked if self._halfway else frozenset(self._sent.to)) - self._banned
            if answered and self._asked - answered and not self.summed:
                self._partial = (total, answered)
                return False
        self._empty = 0 if total is not None else self._empty + 1
        require_any(self._empty, self._why)
        if total is None:
            return False
        self._complete(total, answered)
        return True

    def _complete(self, total: Any, answered: frozenset[int]) -> None:
        """Hand a round that nobody is awaited for any more to the stage."""
        self._partial = None
        if self._index == _OPENING:
            # Where they are asked once only, those that miss the first opening get another chance by the next one.
            spared = self.summed and self._model.restarts == 0
            self._members, self._unfit = answered, frozenset() if spared else self._asked - answered
        self._whole = answered == self._members
        self._state = self._stage.server(self._state, total, answered)
        self._begun = self._index == _OPENING and self._stage.status(self._state) is None
        if self.summed and not self._whole and self._stage.merging(self._state) is not add:
            self._lost = True  # it could go on without some clients, but not by sums

    def _leave(self, status: Status, here: tuple[int, ...]) -> None:
        """From one stage to the next, or back to the opening where the answer is not yet the one asked for."""
        self._model = model = self._known()
        if self._index == _ALGORITHM:
            self._model = model = replace(model, status=status, rounds=self._algorithm.rounds(self._state))
            joined = frozenset(here) - self._unfit - self._members
            gone = self._members - frozenset(here)
            missed = self._fraction == 1.0 and (self.summed or not self._algorithm.caches)
            if self._plan is not None:  # a message more is not in the budget
                self._model = replace(model, status=self._plan.status(status, model.rounds))
            elif joined or (not self._whole and (gone or missed)):
                self._reopen(self._algorithm.restart(model))
                return
        elif self._index == _CLOSING:
            if self._too_narrow(model):
                self._model = replace(model, restarts=model.restarts - 1)  # wider, not because clients changed
                self._reopen(np.hstack([model.columns, linalg.random_block(*model.columns.shape, seed=model.seed + 1)]))
                return
            self._model = model if self._plan is not None else replace(model, status=self._algorithm.verify(model))
        self._index = _CLOSING if self._closing else self._index + 1
        self._closing = False
        if not self.finished:
            self._state = self._stage.start(self._model)

    @staticmethod
    def _too_narrow(model: Model) -> bool:
        assert model.values is not None
        spent = model.status is not None and model.status.outcome is Outcome.MAX_ROUNDS
        if spent or isinstance(model.n_components, int) or len(model.values) >= min(model.n, model.d):
            return False
        return fraction_rank(model.values, model.trace, model.n_components) is None

    def _reopen(self, block: Array) -> None:
        """Back to the opening, with this block in the coordinates of the old frame."""
        if self._plan is not None:
            rule, remedy = (
                "stable while the privacy budget is spent",
                "Use ssi, which carries on with those that remain.",
            )
            raise NotEnoughNodes("The set of clients", must=rule, got="one that lost a member", then=remedy)
        model = self._model
        if self._index == _ALGORITHM:
            model = replace(model, rounds=self._algorithm.rounds(self._state))
        if model.restarts >= MAX_RESTARTS:
            tried = model.status is not None and model.status.outcome is Outcome.CLIENTS_CHANGED
            if self._algorithm.fixed_set or model.basis is None or tried:
                got = f"one that changed for the {model.restarts + 1}th time"
                remedy = "Use ssi, local_power or faps, which carry on while clients come and go."
                raise NotEnoughNodes("The set of clients", must="stable", got=got, then=remedy)
            # One more message to those present makes frame, product and variances speak of one and the same set.
            words = f"the set of clients kept changing, {MAX_RESTARTS} restarts did not help"
            model = replace(model, status=Status(Outcome.CLIENTS_CHANGED, words))
            block, self._closing = model.columns, True
        if model.frame.scale is not None:
            block = block / model.frame.scale[:, None]
        self._model = replace(model, basis=block[:, : model.d], product=None, restarts=model.restarts + 1)
        self._index, self._partial, self._lost, self._begun = _OPENING, None, False, False
        self._state = self._stage.start(self._model)
