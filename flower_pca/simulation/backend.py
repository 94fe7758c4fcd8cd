"""The two backends of a simulation: a loop in this process, and Flower's Ray engine with its settings.

In the loop, clients answer without Flower. The clients of `Shards` have fixed rows, and the clients of
`InProcessTransport` may also have streams.

A run logs its progress to "flower_pca" at the level INFO, and shows a progress bar in a notebook. The bar
is HTML that IPython displays and updates. It shows the progress of the error from 1 to the tolerance, on
a logarithmic scale.
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
from flower_pca.core.layer import ClientIdentity
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.masking.dither import seeded_dither
from flower_pca.results.pca import PCAResult
from flower_pca.results.start import Start
from flower_pca.rows.local import FrameView, LocalData
from flower_pca.rows.stream import Stream
from flower_pca.tracking import batch

if TYPE_CHECKING:
    from flower_pca.results.steps import TrackingResult
    from flower_pca.rows.fixed import FixedData

_LOG: Final = logging.getLogger("flower_pca")
_EVERY: Final = 0.2  # the minimum number of seconds between two updates of the bar


class RunWatch(Watcher):
    """A watcher of a run that writes the log, updates the progress bar, and calls the user's function.

    Parameters
    ----------
    on_round : callable or None
        The user's function, which is called with the run after every message. None if the user gives no function.
    """

    def __init__(self, on_round: Callable[[Driven], None] | None) -> None:
        self._on_round = on_round
        self._bar = NotebookBar() if in_notebook() else None

    def begin(self, what: Callable[[], str]) -> None:
        """Log the description of the run that `what` returns. `what` is called only if this log level is enabled."""
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("Starting %s", what())

    def after_message(self, run: Driven) -> None:
        """Log the message, update the progress bar, and call the user's function."""
        if self._bar is not None or _LOG.isEnabledFor(logging.INFO):
            words = str(run.history[-1])
            _LOG.info("%s", words)
            if self._bar is not None:
                self._bar.show(progress_share(run) or 0.0, words)
        if self._on_round is not None:
            self._on_round(run)

    def end(self, result: PCAResult | TrackingResult) -> None:
        """Log the status, the decisions and the hints of the result, and complete the progress bar."""
        for words in (result.status, *((*result.decisions, *result.hints) if isinstance(result, PCAResult) else ())):
            _LOG.info("%s", words)
        if self._bar is not None:
            self._bar.show(1.0, str(result.status))


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    # IPython is not imported here, because a kernel has imported it already, and other processes do not need it.
    there = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return there is not None and type(there()).__name__ == "ZMQInteractiveShell"


def progress_share(run: Driven) -> float | None:
    """Return the progress of the error towards the tolerance, in [0, 1], or None if the current stage has no error."""
    stage, metrics = run.algorithm, run.history[-1].metrics
    at_it = not run.is_finished and run.position.stage is stage
    if not (at_it and isinstance(stage, Iterative) and "error" in metrics and 0.0 < stage.tolerance < 1.0):
        return None
    error = max(metrics["error"], stage.tolerance)
    return min(max(math.log(min(error, 1.0)) / math.log(stage.tolerance), 0.0), 1.0)


class NotebookBar:
    """A progress bar in a notebook, with a text on the same line."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown, self._reached = 0.0, 0.0

    def show(self, reached: float, words: str) -> None:
        """Show the progress of a run and a text next to the bar, at most five times per second."""
        now = time.monotonic()
        if self._handle is not None and now - self._shown < _EVERY and reached < 1.0:
            return
        self._shown, self._reached = now, max(self._reached, reached)
        page = _Html(_status_line(self._reached, words))
        if self._handle is None:
            display: Any = importlib.import_module("IPython.display")
            self._handle = display.display(page, display_id=True)
        else:
            self._handle.update(page)


@dataclass(frozen=True)
class _Html:
    """A text that a notebook displays as HTML."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


def _status_line(reached: float, words: str) -> str:
    bar = f'<progress value="{reached:.3f}" max="1" style="width: 12em"></progress>'
    return f'<div style="font-family: monospace">{bar} {escape(words)}</div>'


# With several nodes for each worker, no worker has to wait long until the last one has finished a round.
_NODES_PER_WORKER: Final = 4
# The number of clients of a node is limited, because their answers are in memory at the same time.
_MOST: Final = 64


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Settings for running a simulation on Flower's simulation engine, which uses Ray.

    `backend="ray"` uses the default settings.

    Parameters
    ----------
    clients_per_node : int or "auto", default="auto"
        The number of clients that a virtual node hosts. All clients of a node get one message and send their answers
        together, because a message for many clients takes the engine little more time than a message for one client.
        With 1, each client gets its own message, as in a deployment. With "auto", there are several nodes for each
        core.
    num_cpus_per_client : float, default=1.0
        The number of cores that a client needs while it computes an answer.
    address : str or None, default=None
        The address of the Ray cluster. If left out, the cluster of this process is used, or a new one on this machine.
        If the machines of the cluster do not share the folder for temporary files, rows are sent through Ray's object
        store. Memory-mapped rows are not sent if all machines have their file.
    entry : {"auto", "run_simulation", "flwr_run"}, default="auto"
        How the engine is started. "run_simulation" calls Flower's function of this name, which is deprecated.
        "flwr_run" starts a SuperLink for the duration of the simulation, and an app with the command `flwr run`. The
        server is then another process, so `on_round` cannot be used. "auto" uses run_simulation as long as Flower has
        this function.

    Examples
    --------
    >>> from flower_pca import Ray
    >>> backend = Ray(clients_per_node=20)  # for simulate(..., backend=backend)
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
            raise ConfigError(
                f"address of Ray must be text, but it is {shown(self.address)}. Give an address such as "
                '"10.0.0.1:6379", or leave it out.'
            )
        checks.number("num_cpus_per_client", self.num_cpus_per_client, least=0.01, remedy="Use 1.")
        checks.choice("entry", self.entry, ("auto", "run_simulation", "flwr_run"))
        if self.entry == "flwr_run" and self.num_cpus_per_client % 1:
            raise ConfigError("`flwr run` takes whole cores only. Use num_cpus_per_client=1 with entry='flwr_run'.")

    def clients_per_actor(self, clients: int, actors: int) -> int:
        """Return the number of clients that a node hosts if `actors` clients can compute at the same time."""
        if isinstance(self.clients_per_node, int):
            return self.clients_per_node
        return min(max(1, -(-clients // (_NODES_PER_WORKER * actors))), _MOST)

    @property
    def hosted(self) -> str | None:
        """The value of `hosted` for a strategy: None if each client is a node, and "stacked" otherwise."""
        if self.clients_per_node == 1:
            return None
        return "stacked"

    @classmethod
    def of(cls, backend: str | Ray) -> Ray | None:
        """Return the engine's settings for a value of the parameter `backend`, or None for "in_process"."""
        if isinstance(backend, cls):
            return backend
        if not isinstance(backend, str):
            raise ConfigError(
                f"{option('backend')} is {shown(backend)}, but it must be 'in_process', 'ray' or a Ray(...). For "
                "settings, use for example Ray(num_cpus_per_client=2).",
                setting="backend",
                value=backend,
            )
        checks.choice("backend", backend, ("in_process", "ray"))
        if backend == "ray":
            return cls()
        return None


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """The settings of `simulate` that do not affect what it computes.

    Parameters
    ----------
    engine : Ray or None
        The settings of Flower's engine, or None for a loop in this process.
    answers : {"rows", "fixed"}
        How clients compute their answers.
    init : Start or None
        The components from which an iterative algorithm starts.
    checkpoint : str or path or None
        The file in which the state of the run is saved.
    on_round : callable or None
        The user's function, which is called after every message.
    """

    engine: Ray | None
    answers: str
    init: Start | None
    checkpoint: str | os.PathLike[str] | None
    on_round: Callable[[Driven], None] | None

    def __post_init__(self) -> None:
        checks.choice("answers", self.answers, ("rows", "fixed"))


_MEMORY: Final = "memory."


class InProcessTransport:
    """The clients of a simulation in this process, with the memory that each client keeps between messages.

    Parameters
    ----------
    clients : sequence of LocalData or Stream
        The rows or streams of the clients.
    present : callable or None, default=None
        A function that takes the number of a message and returns the clients that it can reach, or None if every
        message can reach all clients.
    bits : sequence of Bits or None, default=None
        The source of each client's random bits, or None for the operating system.
    seed : int, default=0
        The seed of the noise that hides rounding under masks.
    source : callable or None, default=None
        A function that takes a client's rows and returns its fixed statistics, from which it then answers. None if
        clients answer from their rows.
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
        self._identities = [ClientIdentity(i, client.site) for i, client in enumerate(clients)]
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
        """Yield the clients' answers to a message, one at a time."""
        self._number = message.number + 1
        for i in message.to:
            yield Reply(i, message.number, self.answer(i, message), self.clients[i].heading, self._identities[i].name)

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """Return a client's answer to a message, and update the client's memory."""
        return self._answer(i, message, self.clients[i].select(message.frame.names))

    def _answer(self, i: int, message: Broadcast, data: LocalData | Stream) -> Arrays:
        arrays = message.arrays_for(i) if message.personal else message.arrays
        up, self.memories[i] = client_half.answer(
            message.stage,
            arrays,
            data,
            self.memories[i],
            layers=message.layers,
            bits=self._bits[i] if self._bits else system_bits,
            fixed=self._source,
            dither=partial(seeded_dither, self._seed, i),
            who=self._identities[i],
        )
        return up

    def checkpoint_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the clients' state for a checkpoint: a header that describes the clients, and their memories."""
        memories = {f"{_MEMORY}{i}.{name}": a for i, m in enumerate(self.memories) for name, a in m.items()}
        return {"clients": self._description_of_clients(), "number": self._number}, memories

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Restore the memories of a checkpoint, or raise ConfigError if they belong to other clients."""
        self._require_same_clients(header.get("clients"))
        self._number = header["number"]
        self.memories = [{} for _ in self.clients]
        for name, array in arrays.items():
            if name.startswith(_MEMORY):
                _, position, key = name.split(".", 2)
                self.memories[int(position)][key] = array
        for i, client in enumerate(self.clients):
            if isinstance(client, Stream):
                self.memories[i] = batch.resumed_memory(self.memories[i], client)

    def _description_of_clients(self) -> Any:
        """Return a description of the clients, which must be the same when a run continues from a checkpoint."""
        return len(self.clients)

    def _require_same_clients(self, marks: Any) -> None:
        if marks != self._description_of_clients():
            raise ConfigError(
                f"The checkpoint belongs to a run of {shown(marks)} streams, but this run has "
                f"{self._description_of_clients()}. "
                "Give the streams of that run, or choose another checkpoint."
            )


# If all rows together have at most this many entries (4 MB), clients keep a centered copy. Larger tables are
# processed in blocks. In measurements, blocks took 0.8 to 1.1 times as long as a copy.
_ROOM: Final = 2**19


class Shards(InProcessTransport):
    """The clients of a simulation in this process if all of them hold rows instead of streams."""

    kind: ClassVar[str] = "checkpoint"
    clients: Sequence[LocalData]

    def __init__(self, clients: Sequence[LocalData], **settings: Any) -> None:
        super().__init__(clients, **settings)
        copy = sum(client.n * client.d for client in clients) <= _ROOM
        self._views = [FrameView(client, copy=copy) for client in clients]

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """Return a client's answer to a message, and update its memory. Errors get a note with client and message."""
        data = self._views[i].in_frame(message.frame)
        try:
            return self._answer(i, message, data)
        except Exception as error:
            sent = {name: array.shape for name, array in message.arrays_for(i).items()}
            where = f"at client {i} ({data.n} x {data.d}), stage {message.stage}, message {message.number}"
            error.add_note(f"{where}: {sent}")
            raise

    def _description_of_clients(self) -> Any:
        return [[client.n, client.d, client.fingerprint()] for client in self.clients]

    def _require_same_clients(self, marks: Any) -> None:
        if marks != self._description_of_clients():
            raise ConfigError(
                "The checkpoint belongs to a run with other rows. Give the shards of that run, or choose another "
                "checkpoint."
            )
