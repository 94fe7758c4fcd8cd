"""Stage: a part of a run, with methods for the server and methods for the clients. A stage object has no state.

A stage holds only hyper-parameters. The server's part consists of `start`, `broadcast`, `server`,
`status` and `finish`. The client's part is the static method `client`, which gets all instructions from
the message. The class attribute `asks` describes the arrays of a message, and the static method `parts`
describes an answer. Clients send sums and never averages, and the server divides by the number of rows
of the clients that answered, so clients of different sizes need no special code.

Every transport handles a message in this way:

    arrays = stage.broadcast(state)                         the server makes the message
    up, memory = stage.client(arrays, data, memory)         every client answers, as stage.parts(arrays, d) describes
    total = merge(total, client, up)                        answers are merged one by one by stage.merging(state)
    state = stage.server(state, total, answered)            until stage.status(state) is not None
"""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ProtocolError, safe_for_log
from flower_pca.base.history import ANSWERED, Status
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.core.kinds import BLOCK, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.names.columns import Heading
from flower_pca.rows.frame import Frame

Arrays: TypeAlias = dict[str, Array]
Stack: TypeAlias = dict[int, Arrays]
# A merge function is called as merge(total, client, answer), and returns the new total. The total is None before the
# first answer.
Merge: TypeAlias = Callable[[Any, int, Arrays], Any]

# If a stage `draws`, the client's memory for it contains a random key under this name.
KEY: Final = "key"

# Bound on the number of rows of a client. Up to this number, sums of fixed-point numbers are exact.
MOST_ROWS: Final = 2.0**32
MARGIN: Final = 2.0**10  # the factor between bounds and the usual size of entries

S = TypeVar("S")


@runtime_checkable
class NeedsColumnCount(Protocol):
    """The state of a stage that needs the number of columns in a run without an opening.

    Under masks, the number comes from the set-up of the masks.
    """

    def with_column_count(self, columns: int) -> Any:
        """Return the state for this number of columns, which all clients have."""


@runtime_checkable
class AsksAllClients(Protocol):
    """The state of a stage that asks all clients in some rounds, even if other rounds ask only a fraction of them."""

    @property
    def asks_all_clients(self) -> bool:
        """Whether the next round asks all clients."""


_nbytes_of: Final = operator.attrgetter("nbytes")


def nbytes(arrays: Mapping[str, Array]) -> int:
    """Return the size of arrays in bytes."""
    return sum(map(_nbytes_of, arrays.values()))


@dataclass(frozen=True)
class Broadcast:
    """One message with all instructions for the clients in `to`.

    Attributes
    ----------
    stage : str
        The stage that sends the message.
    number : int
        The number of the message in the run.
    arrays : Arrays
        The arrays for all clients.
    frame : Frame
        The centering and scaling of the rows.
    to : tuple of int
        The clients that get the message.
    personal : mapping
        Additional arrays for individual clients.
    layers : mapping
        The arrays of layers for all clients, by the layer's name: see `core.layer`.
    size : callable
        A function that returns the number of bytes that arrays take on the network.
    serves : str
        The stage for which the message is sent, if it is not `stage`. For example, the messages that set up masks name
        the stage whose answers the masks hide.
    rounding_allowed : float
        The largest relative rounding error in the message and its answers that does not affect the result.
    """

    stage: str
    number: int
    arrays: Arrays
    frame: Frame
    to: tuple[int, ...]
    personal: Mapping[int, Arrays] = field(default_factory=dict)
    layers: Mapping[str, Arrays] = field(default_factory=dict)
    size: Callable[[Mapping[str, Array]], int] = field(default=nbytes, compare=False)
    serves: str = ""
    rounding_allowed: float = 0.0

    __repr__ = brief

    @property
    def purpose(self) -> str:
        """The stage for which the message is sent."""
        return self.serves or self.stage

    def arrays_for(self, client: int) -> Arrays:
        """Return the arrays of the stage for one client."""
        if client in self.personal:
            return {**self.arrays, **self.personal[client]}
        return self.arrays

    @cached_property
    def addressees(self) -> frozenset[int]:
        """The clients that get the message, as a set."""
        return frozenset(self.to)

    @property
    def nbytes(self) -> int:
        """The total number of bytes that are sent to all these clients."""
        common = self.size(self.arrays | self.frame.arrays) + self.frame.bytes_of_names
        layers = sum(map(nbytes, self.layers.values()))
        personal = sum(map(nbytes, self.personal.values()))
        return len(self.to) * (common + layers) + personal


@dataclass(frozen=True)
class Traffic:
    """The number of bytes that a message (`down`) and its answer (`up`) take on the network."""

    down: int = 0
    up: int = 0


@dataclass(frozen=True)
class Reply:
    """The answer of one client.

    Attributes
    ----------
    client, number : int
        The client, and the number of the message that it answers.
    arrays : Arrays
        The arrays of the answer.
    heading : Heading or None
        The columns of the client, if it sends them.
    site : str
        The name of the client's site, or "" if it does not send the name.
    declines : str
        The reason if the client declines the alternative algorithm, or "".
    forgot : bool
        Whether the client has lost the state that it keeps for the run.
    traffic : Traffic or None
        The bytes on the network, or None within one process, because nothing is sent.
    """

    client: int
    number: int
    arrays: Arrays
    heading: Heading | None = None
    site: str = ""
    declines: str = ""
    forgot: bool = False
    traffic: Traffic | None = None

    __repr__ = brief


@dataclass(frozen=True)
class Sum:
    """The sum of several answers under masks.

    `declined` is the reason of the first client that declines the alternative algorithm, or "".
    """

    clients: tuple[int, ...]
    number: int
    arrays: Arrays
    declined: str = ""
    traffic: Traffic | None = None

    __repr__ = brief


@dataclass(frozen=True)
class Failure:
    """A client without a usable answer, and the reason as a short text.

    After a `lasting` failure, the client is excluded from the run. If `unasked` is True, the caller has
    chosen not to ask this client, so the client has not failed.
    """

    client: int
    reason: str
    lasting: bool = False
    unasked: bool = False
    traffic: Traffic | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", safe_for_log(self.reason))


AnswerT = TypeVar("AnswerT", bound=Reply | Sum | Failure)


def with_traffic(answer: AnswerT, traffic: Traffic) -> AnswerT:
    """Return a copy of an answer, with its traffic added."""
    found = copy.copy(answer)
    object.__setattr__(found, "traffic", traffic)  # `replace` would process the reason a second time.
    return found


@dataclass
class TrafficMeter:
    """A counter of the bytes of a message and its answers. It uses the figures from the transport if they are known."""

    _down: int | None = None
    _up: int = 0

    def count(self, answer: Reply | Sum | Failure, size: int) -> None:
        """Count an answer whose arrays have this size in bytes."""
        if answer.traffic is None:
            self._up += size
        else:
            self._down = (self._down or 0) + answer.traffic.down
            self._up += answer.traffic.up

    def read(self, sent: Broadcast) -> tuple[int, int]:
        """Return the number of bytes sent to all clients, and the number of bytes that the clients sent."""
        return sent.nbytes if self._down is None else self._down, self._up


@dataclass(frozen=True, kw_only=True)
class Stage(ABC, Generic[S]):
    """One part of a run. Subclasses are frozen dataclasses, which check their parameters when they are created.

    Attributes
    ----------
    name : str
        The unique name of the stage in messages.
    asks : mapping
        Descriptions of the arrays of the stage's messages, by name. A node accepts no other arrays.
    State : type
        The class of the state, which is needed to read a saved state. It is the type argument S of the base class.
    fixed_set : bool
        Whether the state belongs to one fixed set of clients, because it combines products from several messages. A
        member that misses a message is asked once more. If a member is gone for good, the run starts again.
    bounded : bool
        Whether differential privacy can use the stage. Its answer must consist of the number of rows and of numbers
        that a row of norm R changes by at most R^2 in total (in Frobenius norm), if the matrices of the message have
        norm 1. The method `client` must work on clipped rows: it may use `n`, `d`, `rows`, `matmat` and `gram` of its
        data, and must not keep anything that would change the answer to another message.
    by_row : bool
        Whether `client` compares rows, for example because it treats large entries differently. In this case, `client`
        gets rows even at a node that answers from fixed statistics. Such a node serves the stage only if the node's
        rules name the stage.
    draws : bool
        Whether `client` draws random numbers. If so, its memory contains a random key under the name `KEY`. The key is
        new for every message and not known to anybody else. In simulations, the key is derived from the seed.
    products_only : bool
        Whether `client` uses only `n`, `d`, `matmat` and `gram` of its data.
    remembers : bool
        Whether an answer is useless if the client has lost its state, so that clients must keep it between messages.
    needs_rows : bool
        Whether every site must have rows, because sites are compared with each other. Otherwise, a site without rows
        adds zeros to a masked sum.
    measured : bool
        Whether the components describe a row completely, and the closing message measures them.
    orthonormal : bool
        Whether the components are orthonormal.
    pooled : bool
        Whether the components estimate the eigenvectors of the covariance of all rows. If not, a result has no
        residuals and no sine, and `finish` must return exactly the wanted columns, because a Rayleigh-Ritz step would
        select other directions from a wider basis.
    by_medians : bool
        Whether the clients' answers are combined by medians. If so, `max_share` limits the number of rows by which a
        client is weighted.
    caches : bool
        Whether the last answer of a client still counts if the client misses a round.
    shares : bool
        Whether clients have shared and local components, so that n_components="shared" can find the number of shared
        components.
    chooses : bool
        Whether the stage selects, from a wider basis, the directions along which all rows vary most, as a Rayleigh-Ritz
        step does.
    basic : bool
        Whether the stage works only with the basic options: center, scale, missing, columns, categorical, fraction,
        reconstruction_error, checkpoint, answers and, if it iterates, init.
    over_air : bool
        Whether the stage works with the air channel: its answers are sums of matrices, and the algorithm has been
        studied under the noise of the channel.
    tolerant : bool
        Whether answers may be rounded, because rounding errors do not accumulate in the state of clients.
    additive_with : str
        Parameters, for example "eta=0.1", with which answers can be summed, if this is impossible with the defaults.
    """

    name: ClassVar[str]
    asks: ClassVar[Mapping[str, ArrayRule]] = {}
    State: ClassVar[type]
    fixed_set: ClassVar[bool] = False
    bounded: ClassVar[bool] = False
    by_row: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    products_only: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    needs_rows: ClassVar[bool] = False
    measured: ClassVar[bool] = True
    orthonormal: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    by_medians: ClassVar[bool] = False
    caches: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    chooses: ClassVar[bool] = False
    basic: ClassVar[bool] = False
    over_air: ClassVar[bool] = False
    tolerant: ClassVar[bool] = True
    additive_with: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in vars(cls).get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type):
                    cls.State = argument

    @abstractmethod
    def start(self, model: Model) -> S:
        """Return the state before the first round."""

    @abstractmethod
    def broadcast(self, state: S) -> Arrays:
        """Return the arrays of the next message that all clients get."""

    @staticmethod
    @abstractmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        """Return descriptions of the arrays of an answer, by name.

        `arrays` are the arrays of the message, and `d` is the number of columns, or None if it is unknown.
        """

    @staticmethod
    @abstractmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        """Return a client's answer to one message, and the memory that the client keeps until the next message.

        `data` are the centered and scaled rows: a LocalData, or a FixedData, which has only fixed statistics. A
        `by_row` stage always gets a LocalData, and a tracker gets a Stream.
        """

    @staticmethod
    def local_results(memory: Arrays, data: Any) -> Arrays:
        """Return the client's local result, from its memory after this stage. The result never leaves the client."""
        return {}

    def without_past(self, state: S, total: Any) -> S:
        """Return the state without large arrays that `server` does not need to process this total.

        The run releases the former state before it calls `server`, which then needs less memory.
        """
        return state

    @abstractmethod
    def server(self, state: S, total: Any, answered: frozenset[int]) -> S:
        """Return the state after a round, from the merged answers and the clients that have answered."""

    @abstractmethod
    def status(self, state: S) -> Status | None:
        """Return the status with which the stage ends, or None if the stage continues."""

    @abstractmethod
    def finish(self, state: S, model: Model) -> Model:
        """Return the model with the results of the stage added."""

    def merging(self, state: S) -> Merge:
        """Return the function that merges the answers of the next round, such as `add_answer` or `stack_answer`."""
        return add_answer

    def bounds(self, state: S, model: Model) -> Mapping[str, Array | float]:
        """Return a bound on the entries of each array of an answer, or 0 if no bound is known.

        Masks need bounds for fixed-point numbers. A bound may be an array that broadcasts to the shape of the
        answer. A client does not send an answer that exceeds its bound.
        """
        parts = self.parts(self.broadcast(state), model.d or None)
        return {name: _bound_for_kind(part.kind, model) for name, part in parts.items()}

    def inspect(self, state: S, reply: Arrays) -> None:
        """Raise ProtocolError if a reply with correct names and shapes has impossible values."""

    def personal(self, state: S) -> Mapping[int, Arrays]:
        """Return the arrays that individual clients get in addition to the common arrays, by client."""
        return {}

    def rounding_allowed(self, state: S) -> float:
        """Return the largest relative rounding error in the next message and its answers that is harmless.

        0 means that numbers are sent in full precision.
        """
        return 0.0

    def metrics(self, state: S) -> dict[str, float]:
        """Return figures about the latest round for the history, by name."""
        return {}

    @property
    def additive(self) -> bool:
        """Whether sums of the answers suffice for every message, so that masks can hide individual answers."""
        return type(self).merging is Stage.merging

    @property
    def recomputes(self) -> bool:
        """Whether a client that has lost its state computes the same answers again, so the loss changes nothing."""
        return False

    @property
    def spec(self) -> str:
        """The text form of the stage with its parameters, from which `registry.make` makes the same stage.

        Fields that are hidden from `repr` are left out.
        """
        changed = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.repr and value != f.default:
                # The repr of a numpy number is, for example, np.float64(0.1), which `registry.make` cannot read.
                changed.append(f"{f.name}={checks.python_number(value)!r}")
        if changed:
            return f"{self.name}({', '.join(changed)})"
        return self.name


class AsksForProduct:
    """A base class with the client's part of stages whose message is a block Z and whose answer is the product C Z."""

    asks: ClassVar[Mapping[str, ArrayRule]] = {"Z": BLOCK}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        """Return descriptions of the arrays of an answer: see `Stage.parts`."""
        return {"Y": Part(arrays["Z"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        """Return a client's answer, and its memory unchanged: see `Stage.client`."""
        return {"Y": data.matmat(arrays["Z"])}, memory


def status_when(answered: bool) -> Status | None:
    """Return the status of a stage if all its messages have been answered, or None if the stage continues."""
    if answered:
        return ANSWERED
    return None


def _bound_for_kind(kind: Kind, model: Model) -> float:
    """Return a bound on the entries of an answer of this kind, which holds for every client."""
    if kind.counts_rows:
        return MOST_ROWS
    if kind.whole:  # The bound does not depend on the size of rows, so that counts stay exact.
        return MARGIN * float(model.n) * max(model.d, 1)
    if kind.within_trace and model.trace:
        return MARGIN * model.trace
    return MARGIN * max(model.trace, float(model.n))


def add_answer(total: Arrays | None, client: int, reply: Arrays) -> Arrays:
    """Return the sum of the total and a client's answer, in double precision.

    Raise ProtocolError if their shapes differ.
    """
    if total is None:
        # The arrays are copied, because later answers are added in place.
        return {name: np.array(a, dtype=np.float64) for name, a in reply.items()}
    for name, a in reply.items():
        # All shapes are checked before the first sum, so that no part of a refused answer enters the total.
        if a.shape != total[name].shape:  # This is possible if only clients know the length of a side.
            raise ProtocolError(
                f"The array {name} of this client has shape {a.shape}, but earlier clients sent {total[name].shape}. "
                "Give all clients the same columns."
            )
    for name, a in reply.items():
        total[name] += a
    return total


def stack_answer(total: Stack | None, client: int, reply: Arrays) -> Stack:
    """Return the total with one more answer. The total holds the individual answers by client, in order of arrival."""
    if total is None:
        return {client: reply}
    total[client] = reply
    return total
