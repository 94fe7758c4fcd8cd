"""Stage: a part of a run, with a server half and a client half. A stage object has no state.

A stage holds only hyper-parameters. The server half consists of `start`, `broadcast`, `server`,
`status` and `finish`. The client half is the static method `client`, which gets everything from the
message. The static `asks` describes the arrays of a message, and the static method `parts` describes an
answer. Clients send sums and never averages, and the server divides by the rows that arrived, so
clients of different sizes need no special code.

Every transport handles a message in this way:

    arrays = stage.broadcast(state)                         the server asks
    up, memory = stage.client(arrays, data, memory)         every client answers, as stage.parts(arrays, d) says
    total = merge(total, client, up)                        one by one, with merge = stage.merging(state)
    state = stage.server(state, total, answered)            until stage.status(state) says why the stage ends
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

from flower_pca.base.errors import ProtocolError, harmless
from flower_pca.base.history import ANSWERED, Status
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.core.kinds import BLOCK, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.names.columns import Heading
from flower_pca.rows.frame import Frame

Arrays: TypeAlias = dict[str, Array]
Stack: TypeAlias = dict[int, Arrays]
# merge(total, client, answer). The total is None before the first answer.
Merge: TypeAlias = Callable[[Any, int, Arrays], Any]

# The name of the random key in the memory of a stage's client half, if the stage `draws`
KEY: Final = "key"

# A bound on the number of rows of a client. Up to this number, sums in fixed point are exact.
MOST_ROWS: Final = 2.0**32
MARGIN: Final = 2.0**10  # the factor between bounds and the usual size of entries

S = TypeVar("S")


@runtime_checkable
class NeedsColumnCount(Protocol):
    """The state of a stage without an opening, which gets the number of columns from the set-up of the masks."""

    def of_columns(self, columns: int) -> Any:
        """Return the state for this number of columns, which all clients have."""


@runtime_checkable
class AsksAllClients(Protocol):
    """The state of a stage with rounds for all clients, even if other rounds ask a fraction of them."""

    @property
    def everyone(self) -> bool:
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
        Additional arrays for single clients.
    layers : mapping
        The arrays of layers for all clients, by the layer's name: see `core.layer`.
    size : callable
        Returns the bytes that arrays take on the network.
    serves : str
        The stage for which the message is sent, if it is not `stage`. A message of masks names the stage whose answers
        the masks hide.
    room : float
        The largest relative error of numbers in the message and its answers that does no harm.
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
    room: float = 0.0

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
        """The named clients as a set, for look-ups."""
        return frozenset(self.to)

    @property
    def nbytes(self) -> int:
        """The bytes of the message to all named clients."""
        common = self.size(self.arrays | self.frame.arrays) + self.frame.length
        layers = sum(map(nbytes, self.layers.values()))
        personal = sum(map(nbytes, self.personal.values()))
        return len(self.to) * (common + layers) + personal


@dataclass(frozen=True)
class Traffic:
    """The bytes of a message and of its reply on the network."""

    down: int = 0
    up: int = 0


@dataclass(frozen=True)
class Reply:
    """One client's answer, with its columns and name if it sends them, and the reason if it `declines`.

    `forgot` says that the client has lost its state of the run. `traffic` is None within one process,
    because nothing is sent.
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
    """The sum of several answers under masks. `declined` is the reason of the first client that declines, or ""."""

    clients: tuple[int, ...]
    number: int
    arrays: Arrays
    declined: str = ""
    traffic: Traffic | None = None

    __repr__ = brief


@dataclass(frozen=True)
class Failure:
    """A client without a usable answer, and the reason as a short text. `lasting` failures exclude it for good.

    `unasked` says that the caller has chosen not to ask this client, so the client has not failed.
    """

    client: int
    reason: str
    lasting: bool = False
    unasked: bool = False
    traffic: Traffic | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", harmless(self.reason))


AnswerT = TypeVar("AnswerT", bound=Reply | Sum | Failure)


def carried(answer: AnswerT, traffic: Traffic) -> AnswerT:
    """Return the same answer with its traffic."""
    found = copy.copy(answer)
    object.__setattr__(found, "traffic", traffic)  # `replace` would process the reason a second time
    return found


@dataclass
class Meter:
    """A counter of the bytes of a message and its answers. It uses the transport's figures if these are known."""

    _down: int | None = None
    _up: int = 0

    def count(self, answer: Reply | Sum | Failure, size: int) -> None:
        """Add an answer whose arrays have this size."""
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
        The name in messages, which no other stage has.
    asks : mapping
        Descriptions of the arrays of the stage's messages, by name. A node accepts no other arrays.
    State : type
        The class of the state, for reading a saved state: the type argument S of a subclass's base.
    fixed_set : bool
        Whether the state belongs to one fixed set of clients, because it mixes products of several messages. A member
        that misses a message is asked once more. If a member is gone for good, the run starts anew.
    bounded : bool
        Whether differential privacy can use the stage. Its answer consists of the number of rows and of numbers that a
        row of norm R changes by at most R^2 in all (in Frobenius norm), as long as the matrices of the message have
        norm 1. The client half must work on clipped rows: it may use `n`, `d`, `rows`, `matmat` and `gram` of its data,
        and must keep nothing that would change the answer to another message.
    by_row : bool
        Whether the client half compares rows, for example because it treats large entries differently. Then it gets
        rows even at a node that answers from fixed statistics, and such a node serves the stage only if its rules name
        it.
    draws : bool
        Whether the client half draws random numbers. If so, its memory contains a random key under the name `KEY`. The
        key is new for every message and known to nobody else. In simulations, it follows from the seed.
    products_only : bool
        Whether the client half uses only `n`, `d`, `matmat` and `gram` of its data.
    remembers : bool
        Whether an answer is useless if the client has lost its state, so that clients must keep it between messages.
    needs_rows : bool
        Whether a site without rows cannot add zeros to a masked sum, because sites are compared with each other.
    measured : bool
        Whether the components describe a row completely, and the closing message measures them.
    orthonormal : bool
        Whether the components are orthonormal.
    pooled : bool
        Whether the components estimate the eigenvectors of the covariance of all rows. If not, a result has no
        residuals and no sine, and `finish` returns exactly the wanted columns, because a Rayleigh-Ritz step would
        select others from a wider basis.
    by_medians : bool
        Whether the clients' answers are combined by medians. Then `max_share` limits the number of rows that a client
        counts for.
    caches : bool
        Whether a client that misses a round still counts, with its last answer.
    shares : bool
        Whether clients have local components beside shared ones, whose number n_components="shared" can find.
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
        Parameters, as in a spec, with which answers can be summed, if they cannot with the default parameters.
    """

    name: ClassVar[str]
    asks: ClassVar[Mapping[str, Ask]] = {}
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
        """Return the arrays that all clients get."""

    @staticmethod
    @abstractmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        """Return the parts of an answer by name. `d` is the number of columns, or None if the number is unknown."""

    @staticmethod
    @abstractmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        """Return a client's answer to one message, and the state that the client keeps.

        `data` are the rows in the frame: a LocalData, or a FixedData, which has no rows. A `by_row` stage
        always gets a LocalData, and a tracker a Stream.
        """

    @staticmethod
    def local_results(memory: Arrays, data: Any) -> Arrays:
        """Return the client's local result from its state after this stage. This result never leaves the client."""
        return {}

    @abstractmethod
    def server(self, state: S, total: Any, answered: frozenset[int]) -> S:
        """Return the state after a round, from the merged answers and the clients that have answered."""

    @abstractmethod
    def status(self, state: S) -> Status | None:
        """Return None while the stage continues, or the status with which it ends."""

    @abstractmethod
    def finish(self, state: S, model: Model) -> Model:
        """Return the model with the results of the stage."""

    def merging(self, state: S) -> Merge:
        """Return how the next round's answers are merged: by `add`, `stack` or the stage's own function."""
        return add

    def bounds(self, state: S, model: Model) -> Mapping[str, Array | float]:
        """Return bounds on the entries of an answer by name, for fixed point under masks, or 0 if unknown.

        A bound may be an array that broadcasts to the shape of the answer. A client does not send an answer that
        exceeds its bound.
        """
        parts = self.parts(self.broadcast(state), model.d or None)
        return {name: _bound(part.kind, model) for name, part in parts.items()}

    def inspect(self, state: S, reply: Arrays) -> None:
        """Raise ProtocolError for a reply with correct names and shapes whose values are impossible."""

    def personal(self, state: S) -> Mapping[int, Arrays]:
        """Return the arrays that single clients get in addition to the common ones."""
        return {}

    def room(self, state: S) -> float:
        """Return the largest relative error of numbers in the next message and its answers that does no harm, or 0."""
        return 0.0

    def metrics(self, state: S) -> dict[str, float]:
        """Return figures of the newest round for the history, by name."""
        return {}

    @property
    def additive(self) -> bool:
        """Whether sums of the answers suffice for every message, so that masks can hide single answers."""
        return type(self).merging is Stage.merging

    @property
    def spec(self) -> str:
        """The stage as a spec string that `registry.make` can read, without fields that are hidden from `repr`."""
        changed = []
        for f in fields(self):
            given = getattr(self, f.name)
            # numpy writes np.float64(0.1), which a spec cannot contain.
            value = given.item() if isinstance(given, np.generic) else given
            if f.repr and value != f.default:
                changed.append(f"{f.name}={value!r}")
        if changed:
            return f"{self.name}({', '.join(changed)})"
        return self.name


class AsksForProduct:
    """The client half of stages whose message is a block Z and whose answer is the product C Z."""

    asks: ClassVar[Mapping[str, Ask]] = {"Z": BLOCK}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        """Return the parts of an answer: see `Stage.parts`."""
        return {"Y": Part(arrays["Z"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        """Return the answer of a client, which keeps nothing new: see `Stage.client`."""
        return {"Y": data.matmat(arrays["Z"])}, memory


def end_if(answered: bool) -> Status | None:
    """Return the status of a stage that ends once all its messages have been answered."""
    if answered:
        return ANSWERED
    return None


def _bound(kind: Kind, model: Model) -> float:
    """Return a bound on the entries of an answer of this kind, which holds for every client."""
    if kind.counts_rows:
        return MOST_ROWS
    if kind.whole:  # The bound does not depend on the size of rows, so that counts stay exact.
        return MARGIN * float(model.n) * max(model.d, 1)
    if kind.within_trace and model.trace:
        return MARGIN * model.trace
    return MARGIN * max(model.trace, float(model.n))


def add(total: Arrays | None, client: int, reply: Arrays) -> Arrays:
    """Add up answers in double precision."""
    if total is None:
        # A copy, because later answers are added in place.
        return {name: np.array(a, dtype=np.float64) for name, a in reply.items()}
    for name, a in reply.items():
        # All shapes are checked before the first sum, so that no part of a refused answer enters the total.
        if a.shape != total[name].shape:  # only clients know one side of the shape
            raise ProtocolError(
                f"The array {name} of this client has shape {a.shape}, but earlier clients sent {total[name].shape}. "
                "Give all clients the same columns."
            )
    for name, a in reply.items():
        total[name] += a
    return total


def stack(total: Stack | None, client: int, reply: Arrays) -> Stack:
    """Collect the single answers by client, in the order of their arrival."""
    if total is None:
        return {client: reply}
    total[client] = reply
    return total
