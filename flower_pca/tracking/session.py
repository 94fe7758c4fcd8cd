"""TrackingSession: a run of steps as a state machine without I/O, driven by the same loops as `Session`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base import archive, checks, linalg
from flower_pca.base.errors import ConfigError, NotEnoughNodes
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.core.channel import AirChannel
from flower_pca.core.model import Model
from flower_pca.core.replies import collect, require_any, unusable
from flower_pca.core.result import PCAResult
from flower_pca.core.run import Run
from flower_pca.core.stage import Broadcast, Failure, Reply, Sum
from flower_pca.rows.frame import Frame
from flower_pca.tracking.result import TrackingResult
from flower_pca.tracking.state import TrackState
from flower_pca.tracking.tracker import Tracker

_RERUN: Final = "Repeat that run's arguments, or choose another checkpoint."


class TrackingSession(Run):
    """A run: steps of a tracker, without an opening, since nothing is centred.

    The owner of the transport does as with `Session`: `pending`, `advance`, and at the end `result`.

    Args:
        tracker: The stage.
        n_components: Columns of the basis.
        seed: Seed of everything random on the server.
        steps: Steps to take; None for as many as there is data for.
        start: A basis to start from, as rows; or a result.
        channel: What the sums of the replies are heard through; None for an ideal one.
        min_clients: Clients that must be present.
    """

    def __init__(
        self,
        tracker: Tracker,
        *,
        n_components: int,
        seed: int = 0,
        steps: int | None = None,
        start: Array | PCAResult | TrackingResult | None = None,
        channel: AirChannel | None = None,
        min_clients: int = 1,
    ) -> None:
        checks.integer("n_components", n_components, least=1)
        checks.integer("seed", seed, most=2**62)
        checks.integer("min_clients", min_clients, least=1)
        if steps is not None:
            checks.integer("steps", steps, least=1)
        self._tracker, self._channel, self._min_clients = tracker, channel, min_clients
        basis = None if start is None else _columns(start, int(n_components))
        self._model = Model(
            n_components=int(n_components), center=False, scale=None, seed=int(seed), summed=self.summed, basis=basis
        )
        self._seed, self._steps = int(seed), steps
        self._state: TrackState = replace(tracker.start(self._model), steps=steps)
        self._history = History()
        self._sent: Broadcast | None = None
        self._began = 0.0
        self._banned: frozenset[int] = frozenset()
        self._empty = 0
        self._why = ""

    @property
    def algorithm(self) -> Tracker:
        """The tracker."""
        return self._tracker

    @property
    def step(self) -> int:
        """The step under way."""
        return self._state.step

    @property
    def finished(self) -> bool:
        """Whether the result is ready."""
        return self._state.ended

    def estimate(self) -> Array | None:
        """The newest basis (d x r); None before the first."""
        return self._state.P

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """The message to send to clients among `present`, those that can be reached now; None at the end."""
        if self.finished:
            return None
        here = tuple(client for client in present if client not in self._banned)
        if len(here) < self._min_clients:
            got = f"{len(here)}" + (f", the first left out because: {self._why.rstrip('.')}" if self._banned else "")
            rule = f"at least {self._min_clients}"
            raise NotEnoughNodes("The clients present", must=rule, got=got, then="Start more, or lower the minimum.")
        arrays = self._tracker.broadcast(self._state)
        self._sent = Broadcast(self._tracker.name, len(self._history), arrays, Frame(), here)
        self._began = time.perf_counter()
        return self._sent

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take the answers to the pending message, in the order in which they shall be summed, and move on."""
        if self._sent is None:
            raise RuntimeError("advance() takes the answers to a message of pending()")
        tracker, state, sent = self._tracker, self._state, self._sent
        got = collect(tracker, state, sent, replies, d=None, total=None, answered=frozenset(), channel=self._channel)
        self._why, self._banned = self._why or got.why, self._banned | got.banned
        self._empty = 0 if got.count else self._empty + 1
        require_any(self._empty, self._why)
        if got.count:
            try:
                self._state = tracker.server(state, got.total, got.answered)
            except np.linalg.LinAlgError as error:
                raise unusable(error) from error
        seconds = time.perf_counter() - self._began
        record = got.record(sent, seconds=seconds, metrics=tracker.metrics(self._state) if got.count else {})
        self._history, self._sent = self._history.add(record), None
        return record

    def result(self) -> TrackingResult:
        """The result of a finished run."""
        status = self._tracker.status(self._state)
        if status is None:
            raise RuntimeError("the run is not finished: pending() still returns messages")
        spec = self._tracker.spec
        return TrackingResult.of(
            self._state.record, status=status, algorithm=spec, seed=self._seed, history=self._history
        )

    def checkpoint(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that a new session of the same arguments needs to go on: a JSON header, and arrays."""
        arrays: dict[str, Array] = {}
        header = {
            "run": self._identity,
            "banned": sorted(self._banned),
            "empty": self._empty,
            "state": archive.pack(self._state, arrays, "state"),
            "history": self._history.to_json(),
        }
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken."""
        if header["run"] != self._identity:
            got = "one of " + ", ".join(f"{k}={v!r}" for k, v in header["run"].items() if self._identity.get(k) != v)
            raise ConfigError("The checkpoint", must="one of this very run", got=got, then=_RERUN)
        self._banned, self._empty = frozenset(header["banned"]), header["empty"]
        self._state = archive.unpack(TrackState, header["state"], arrays)
        self._history, self._sent = History.from_json(header["history"]), None

    @property
    def _stage(self) -> Tracker:
        return self._tracker

    @property
    def _identity(self) -> dict[str, Any]:
        air = archive.pack(self._channel, {}, "channel")
        run = {"n_components": self._state.r, "seed": self._seed, "steps": self._steps}
        return {"tracker": self._tracker.spec, "channel": air, "masked": self.summed, **run}


def _columns(start: Array | PCAResult | TrackingResult, r: int) -> Array:
    """The basis to start from as orthonormal columns."""
    given = start.components_ if isinstance(start, PCAResult | TrackingResult) else np.asarray(start, dtype=np.float64)
    rows = given[-1] if given.ndim == 3 else given
    if rows.ndim != 2 or rows.shape[0] != r or rows.shape[1] < r or not np.isfinite(rows).all():
        rule = f"n_components={r} finite rows"
        got = f"shape {rows.shape}"
        raise ConfigError("The basis to start from", must=rule, got=got, then="Give one component per row.")
    return linalg.orth(rows.T)
