"""The two backends of a simulation: a loop in this process, and Flower's Ray engine with its settings.

In this process, clients answer without Flower: `Shards` for rows at rest, `InProcess` for streams.

A run in progress writes lines at INFO to the log "flower_pca", and shows a progress bar in a notebook.
The bar is HTML that IPython displays and updates. It shows how far the error has come from 1 to the
tolerance, on a logarithmic scale.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Final

from flower_pca import client_half
from flower_pca.base import checks
from flower_pca.base.bits import Bits, system_bits
from flower_pca.base.errors import ConfigError
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.core.algorithm import Iterative
from flower_pca.core.drive import Driven, Watcher
from flower_pca.core.layer import Who
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.masking.dither import seeded_dither
from flower_pca.results.pca import PCAResult
from flower_pca.results.start import Start
from flower_pca.rows.local import LocalData, View
from flower_pca.rows.stream import Stream
from flower_pca.tracking import batch

if TYPE_CHECKING:
    from flower_pca.results.steps import TrackingResult
    from flower_pca.rows.fixed import FixedData

_LOG: Final = logging.getLogger("flower_pca")
_EVERY: Final = 0.2  # the least number of seconds between two updates of the bar


class Watch(Watcher):
    """An observer of a run that writes the log, moves the bar, and calls the user's function.

    Parameters
    ----------
    on_round : callable or None
        The user's function, called with the run after every message; None for none.
    """

    def __init__(self, on_round: Callable[[Driven], None] | None) -> None:
        self._on_round = on_round
        self._bar = Bar() if in_notebook() else None

    def begin(self, what: Callable[[], str]) -> None:
        """Log what is run, before the first message; `what` is called only if the log is written."""
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("Starting %s", what())

    def after_message(self, run: Driven) -> None:
        """Log the message, move the bar, and call the user's function."""
        if self._bar is not None or _LOG.isEnabledFor(logging.INFO):
            words = str(run.history[-1])
            _LOG.info("%s", words)
            if self._bar is not None:
                self._bar.show(share(run) or 0.0, words)
        if self._on_round is not None:
            self._on_round(run)

    def end(self, result: PCAResult | TrackingResult) -> None:
        """Log the status, the decisions and the hints of the result."""
        for words in (result.status, *((*result.decisions, *result.hints) if isinstance(result, PCAResult) else ())):
            _LOG.info("%s", words)
        if self._bar is not None:
            self._bar.show(1.0, str(result.status))


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    # IPython is not imported here: a kernel has imported it already, and others need not wait for that.
    there = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return there is not None and type(there()).__name__ == "ZMQInteractiveShell"


def share(run: Driven) -> float | None:
    """Return how far the error has come to the tolerance, in [0, 1], or None if the stage at work has no error."""
    stage, metrics = run.algorithm, run.history[-1].metrics
    at_it = not run.is_finished and run.position.stage is stage
    if not (at_it and isinstance(stage, Iterative) and "error" in metrics and 0.0 < stage.tolerance < 1.0):
        return None
    error = max(metrics["error"], stage.tolerance)
    return min(max(math.log(min(error, 1.0)) / math.log(stage.tolerance), 0.0), 1.0)


class Bar:
    """A line with a progress bar in a notebook."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown, self._reached = 0.0, 0.0

    def show(self, reached: float, words: str) -> None:
        """Show how far a run has come, and the words beside the bar, at most five times a second."""
        now = time.monotonic()
        if self._handle is not None and now - self._shown < _EVERY and reached < 1.0:
            return
        self._shown, self._reached = now, max(self._reached, reached)
        page = _Html(_line(self._reached, words))
        if self._handle is None:
            display: Any = importlib.import_module("IPython.display")
            self._handle = display.display(page, display_id=True)
        else:
            self._handle.update(page)


@dataclass(frozen=True)
class _Html:
    """A text that a notebook shows as HTML."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


def _line(reached: float, words: str) -> str:
    bar = f'<progress value="{reached:.3f}" max="1" style="width: 12em"></progress>'
    return f'<div style="font-family: monospace">{bar} {escape(words)}</div>'


# the number of nodes that each worker answers for in a round, so that no worker waits long for the last one
_TURNS: Final = 4
# the most clients of a node, whose answers are in memory at the same time
_MOST: Final = 64


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Run a simulation on Flower's simulation engine, with these settings.

    `backend="ray"` stands for the defaults.

    Parameters
    ----------
    clients_per_node : int or "auto", default="auto"
        How many clients a virtual node hosts. The engine handles every message on its own, so that one for many clients
        costs little more than one for one: all of a node's get one message, and their answers come back together. 1 for
        a message per client, as in a deployment; "auto" for several nodes for each core.
    num_cpus_per_client : float, default=1.0
        The cores that one client at work takes.
    address : str or None, default=None
        The cluster to use. If left out, that of this process, or a new one on this machine. Rows go through Ray's
        object store where its machines do not share the folder for temporary files; those that are memory-mapped from
        files which all machines see stay where they are.
    entry : {"auto", "run_simulation", "flwr_run"}, default="auto"
        How the engine is started. "run_simulation" calls the function of this name, which Flower calls deprecated.
        "flwr_run" starts a SuperLink for the time of the simulation and gives it an app by the command `flwr run`: the
        server is then another process, so `on_round` is not called. "auto" takes run_simulation as long as Flower has
        it.

    Examples
    --------
    >>> from flower_pca import Ray
    >>> backend = Ray(clients_per_node=20)  # then simulate(..., backend=backend)
    >>> backend.clients_per_node
    20
    """

    clients_per_node: int | str = "auto"
    num_cpus_per_client: float = 1.0
    address: str | None = None
    entry: str = "auto"

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.clients_per_node != "auto":
            checks.integer(
                "clients_per_node", self.clients_per_node, least=1, remedy='Use "auto", or 1 for a message per client.'
            )
        if self.address is not None and not isinstance(self.address, str):
            raise ConfigError(f"address of Ray must be text, not {shown(self.address)}.")
        checks.number("num_cpus_per_client", self.num_cpus_per_client, least=0.01, remedy="Use 1.")
        checks.choice("entry", self.entry, ("auto", "run_simulation", "flwr_run"))
        if self.entry == "flwr_run" and self.num_cpus_per_client % 1:
            raise ConfigError("`flwr run` takes whole cores only. Use num_cpus_per_client=1 with entry='flwr_run'.")

    def each(self, clients: int, actors: int) -> int:
        """Return how many clients a node hosts if `actors` clients can be at work at the same time."""
        if isinstance(self.clients_per_node, int):
            return self.clients_per_node
        return min(max(1, -(-clients // (_TURNS * actors))), _MOST)

    @property
    def hosted(self) -> str | None:
        """The value of `hosted` for a strategy: "stacked", or None where each client is a node."""
        if self.clients_per_node == 1:
            return None
        return "stacked"

    @classmethod
    def of(cls, backend: str | Ray) -> Ray | None:
        """Return the settings that `backend` stands for, or None for "in_process", a loop without Flower."""
        if isinstance(backend, cls):
            return backend
        if not isinstance(backend, str):
            raise ConfigError(
                f"{option('backend')} is {shown(backend)}, but it must be 'in_process', 'ray' or a Ray(...). Use "
                "Ray(num_cpus_per_client=2) for settings.",
                setting="backend",
                value=backend,
            )
        checks.choice("backend", backend, ("in_process", "ray"))
        if backend == "ray":
            return cls()
        return None


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """The settings of a simulation that do not depend on what it computes: see `simulate`.

    Parameters
    ----------
    engine : Ray or None
        The settings of Flower's engine; None for a loop in this process.
    answers : {"rows", "fixed"}
        How clients compute their answers.
    init : Start or None
        The components that an iterative algorithm begins with.
    checkpoint : str or path or None
        The file with the state of the run.
    on_round : callable or None
        The user's function, called after every message.
    """

    engine: Ray | None
    answers: str
    init: Start | None
    checkpoint: str | os.PathLike[str] | None
    on_round: Callable[[Driven], None] | None

    def __post_init__(self) -> None:
        checks.choice("answers", self.answers, ("rows", "fixed"))


_MEMORY: Final = "memory."


class InProcess:
    """The clients of a simulation in this process, with the memory of each from one message to the next.

    Parameters
    ----------
    clients : sequence of LocalData or Stream
        The rows or streams of the clients.
    present : callable or None, default=None
        Returns the clients that the message with a number can reach; None for all.
    bits : sequence of Bits or None, default=None
        The source of each client's noise; None for the operating system.
    seed : int, default=0
        Seed of the noise that hides the rounding under masks.
    source : callable or None, default=None
        Makes the fixed statistics that a client answers from; None for clients that multiply rows.
    """

    kind: ClassVar[str] = "tracking checkpoint"

    def __init__(
        self,
        clients: Sequence[LocalData | Stream],
        *,
        present: Callable[[int], Iterable[int]] | None = None,
        bits: Sequence[Bits] | None = None,
        seed: int = 0,
        source: Callable[[LocalData], FixedData] | None = None,
    ) -> None:
        self.clients = clients
        self.memories: list[Arrays] = [{} for _ in clients]
        self._present = present
        self._bits = bits
        self._seed = seed
        self._source = source
        self._number = 0  # the number of the next message

    def present(self) -> Iterable[int]:
        """Return the clients that the next message can reach."""
        if self._present is None:
            return range(len(self.clients))
        return self._present(self._number)

    def ask(self, message: Broadcast) -> Iterator[Reply]:
        """Yield the answers of the clients, one at a time."""
        self._number = message.number + 1
        for i in message.to:
            client = self.clients[i]
            yield Reply(i, message.number, self.answer(i, message), client.heading, client.site)

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """Return a client's answer, and update its memory."""
        return self._answer(i, message, self.clients[i].select(message.frame.names))

    def _answer(self, i: int, message: Broadcast, data: LocalData | Stream) -> Arrays:
        arrays = message.arrays
        if message.personal:
            arrays = message.arrays_for(i)
        up, self.memories[i] = client_half.answer(
            message.stage,
            arrays,
            data,
            self.memories[i],
            layers=message.layers,
            bits=self._bits[i] if self._bits else system_bits,
            fixed=self._source,
            dither=partial(seeded_dither, self._seed, i),
            who=Who(i, getattr(self.clients[i], "site", "")),
        )
        return up

    def keep(self) -> tuple[dict[str, Any], Arrays]:
        """Return the description of the clients and their memories, for a checkpoint."""
        memories = {f"{_MEMORY}{i}.{name}": a for i, m in enumerate(self.memories) for name, a in m.items()}
        return {"clients": self._marks(), "number": self._number}, memories

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Restore the memories of a checkpoint, or raise a ConfigError if they belong to other clients."""
        self._require(header.get("clients"))
        self._number = header["number"]
        self.memories = [{} for _ in self.clients]
        for name, array in arrays.items():
            if name.startswith(_MEMORY):
                _, position, key = name.split(".", 2)
                self.memories[int(position)][key] = array
        for i, client in enumerate(self.clients):
            if isinstance(client, Stream):
                self.memories[i] = batch.resume(self.memories[i], client)

    def _marks(self) -> Any:
        """Return what a checkpoint compares to recognize the clients."""
        return len(self.clients)

    def _require(self, marks: Any) -> None:
        if marks != self._marks():
            raise ConfigError(
                f"The checkpoint belongs to a run of {shown(marks)} streams, but this run has {self._marks()}. Give "
                "the streams of that run, or choose another checkpoint."
            )


# Up to this many entries of all rows together (4 MB), clients keep a centered copy. Larger tables
# are worked through in blocks, which took .8 to 1.1 of the time with a copy.
_ROOM: Final = 2**19


class Shards(InProcess):
    """The clients of a simulation in this process that hold rows, not streams."""

    kind: ClassVar[str] = "checkpoint"
    clients: Sequence[LocalData]

    def __init__(self, clients: Sequence[LocalData], **settings: Any) -> None:
        super().__init__(clients, **settings)
        copy = sum(client.n * client.d for client in clients) <= _ROOM
        self._views = [View(client, copy=copy) for client in clients]

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """Return a client's answer; an error gets a note that names the client and the message."""
        data = self._views[i].in_frame(message.frame)
        try:
            return self._answer(i, message, data)
        except Exception as error:
            sent = {name: array.shape for name, array in message.arrays_for(i).items()}
            where = f"at client {i} ({data.n} x {data.d}), stage {message.stage}, message {message.number}"
            error.add_note(f"{where}: {sent}")
            raise

    def _marks(self) -> Any:
        return [[client.n, client.d, client.fingerprint()] for client in self.clients]

    def _require(self, marks: Any) -> None:
        if marks != self._marks():
            raise ConfigError(
                "The checkpoint belongs to a run with other rows. Give the shards of that run, or choose another "
                "checkpoint."
            )
