"""Stage: the one abstraction. A pair of halves, server and client, with all state passed in and out.

A stage holds hyper-parameters only. The server half is `start`, `broadcast`, `server`, `finish`; the client half is the
static `client`, which finds everything it needs in the message. Clients send sums, never averages; the server divides
by what arrived, so that unequal sizes and drop-outs need no code of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.model import Model
from flower_pca.rows.frame import Frame

Arrays: TypeAlias = dict[str, Array]
Stack: TypeAlias = dict[int, Arrays]
Shape: TypeAlias = tuple[int | None, ...]
Reduction: TypeAlias = Literal["sum", "stack", "own"]

ROWS: Final = 2.0**32  # a bound on the rows of a client: in fixed point, sums of so many are exact
MARGIN: Final = 2.0**10  # of a bound above what entries mostly are

S = TypeVar("S")


@dataclass(frozen=True)
class Broadcast:
    """One message of the server: the whole instruction, for the clients named in `to`.

    `personal` holds what only one client gets beside the common `arrays`.
    """

    stage: str
    number: int
    arrays: Arrays
    frame: Frame
    to: tuple[int, ...]
    personal: Mapping[int, Arrays] = field(default_factory=dict)

    def arrays_for(self, client: int) -> Arrays:
        """What one client gets."""
        return {**self.arrays, **self.personal.get(client, {})}

    @property
    def nbytes(self) -> int:
        """What all clients named get together."""
        common = sum(a.nbytes for a in self.arrays.values()) + self.frame.nbytes
        return len(self.to) * common + sum(a.nbytes for own in self.personal.values() for a in own.values())


@dataclass(frozen=True)
class Reply:
    """One client's answer to the message with the same number."""

    client: int
    number: int
    arrays: Arrays


@dataclass(frozen=True)
class Sum:
    """What several clients answered to the message with the same number, already added up."""

    clients: tuple[int, ...]
    number: int
    arrays: Arrays


@dataclass(frozen=True)
class Failure:
    """A client that was asked and gave no usable answer; `lasting` if it is not to be asked again."""

    client: int
    reason: str
    lasting: bool = False


@dataclass(frozen=True, kw_only=True)
class Stage(ABC, Generic[S]):
    """One part of a run. Subclasses are frozen dataclasses of hyper-parameters, validated at construction."""

    name: ClassVar[str]
    State: ClassVar[type]  # S at run time, for a saved state to be read back
    fixed_set: ClassVar[bool] = False  # whether the state belongs to one fixed set of clients
    bounded: ClassVar[bool] = False  # whether a row of norm R changes an answer by at most R^2, if blocks have norm 1
    bears_noise: ClassVar[bool] = True  # whether sums that arrive with noise on them, as over the air, will do
    product_names: ClassVar[tuple[str, ...]] = ()  # arrays of an answer that are C_i times orthonormal columns
    by_row: ClassVar[bool] = False  # whether its client's half compares rows; else it never gets any
    hides: ClassVar[tuple[str, ...]] = ()  # arrays that a node which shares nothing of its own sends as zeros, if alone

    @abstractmethod
    def start(self, model: Model) -> S:
        """The state before the first round."""

    @abstractmethod
    def broadcast(self, state: S) -> Arrays:
        """What all clients get."""

    @abstractmethod
    def expects(self, state: S) -> Mapping[str, Shape]:
        """Names and shapes of what a client returns; None leaves a side open."""

    @staticmethod
    @abstractmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        """One client's half: what it returns and what it keeps. `data` is of the rows in the frame.

        A LocalData, or a FixedData, which has no rows; of a `by_row` stage a LocalData, of a tracker a Stream.
        """

    @staticmethod
    def own(memory: Arrays, data: Any) -> Arrays:
        """What the client's memory amounts to after this stage as a result of the client's own; it never leaves it."""
        return {}

    @staticmethod
    def reveals(arrays: Arrays) -> tuple[str, ...]:
        """What of the answer to this message shows the client's own results, by name: matrices with a column for each.

        A node that does not agree to that sends them without a column.
        """
        return ()

    @staticmethod
    def tells(arrays: Arrays) -> tuple[str, ...]:
        """What of the answer to this message tells of more directions of C_i than those of its blocks, by name.

        Matrices with a column for each direction; arrays of another shape count as all directions.
        """
        return ()

    @abstractmethod
    def server(self, state: S, total: Any) -> S:
        """The state after a round: from the sum of the replies, their stack by client, or their merge."""

    @abstractmethod
    def status(self, state: S) -> Status | None:
        """None while the stage goes on; else why it ends."""

    @abstractmethod
    def finish(self, state: S, model: Model) -> Model:
        """What is known after the stage."""

    def reduction(self, state: S) -> Reduction:
        """How the replies of a round come together."""
        return "sum"

    def shapes(self, state: S, d: int) -> Mapping[str, tuple[int, ...]]:
        """`expects` where the number of columns is known: masks cover numbers of which nothing is open."""
        return {name: tuple(d if s is None else s for s in shape) for name, shape in self.expects(state).items()}

    def bounds(self, state: S, model: Model) -> Mapping[str, Array | float]:
        """How large the entries of one client's answer can be, by name, for fixed point under masks; 0 if unknown.

        A bound may be an array that broadcasts to the answer's. An answer beyond it is not sent.
        """
        largest = MARGIN * max(model.trace, float(model.n))
        named = dict.fromkeys(self.product_names, MARGIN * model.trace)
        return {name: ROWS if name == "n" else named.get(name) or largest for name in self.expects(state)}

    def inspect(self, state: S, reply: Arrays) -> None:
        """Raise ProtocolError for a reply of the right names and shapes that still cannot be right."""

    def outvoted(self, state: S, total: Any) -> Mapping[int, str]:
        """Clients whose replies do not fit those of the others, and why; `server` has to leave them out of `total`."""
        return {}

    def personal(self, state: S) -> Mapping[int, Arrays]:
        """What single clients get beside the broadcast."""
        return {}

    def everyone(self, state: S) -> bool:
        """Whether the coming round is for all clients, even where a fraction of them is sampled."""
        return False

    def metrics(self, state: S) -> dict[str, float]:
        """Figures of the newest round."""
        return {}

    @property
    def summed(self) -> bool:
        """Whether sums of the replies will do at every message, so that masks can hide single ones."""
        return type(self).reduction is Stage.reduction

    @property
    def sums_remedy(self) -> str:
        """What to do to have replies that are only summed, where they are not."""
        return "Use krylov, ssi or faps, or leave the masks out."

    def heard(self, total: Any, listen: Callable[[Arrays], Arrays]) -> Any:
        """The reduction as a receiver gets it that hears sums through `listen`. Overridden where it holds more."""
        return listen(total)

    def whole(self, clients: tuple[int, ...], arrays: Arrays) -> Any:
        """The reduction where the replies of these clients come added up. Overridden where it holds more."""
        return arrays

    @property
    def spec(self) -> str:
        """The stage as a string that `registry.make` reads back, but for fields that have no place in a repr."""
        given = [(f.name, getattr(self, f.name), f.default) for f in fields(self) if f.repr]
        plain = [(name, v.item() if isinstance(v, np.generic) else v, default) for name, v, default in given]
        changed = ", ".join(f"{name}={value!r}" for name, value, default in plain if value != default)
        return f"{self.name}({changed})" if changed else self.name

    def fold(self, state: S, total: Any, client: int, reply: Arrays) -> Any:
        """The reduction with one reply more; `total` is None before the first. Overridden for an own reduction."""
        return _stacked(total, client, reply) if self.reduction(state) == "stack" else _added(total, reply)


def _stacked(total: Stack | None, client: int, reply: Arrays) -> Stack:
    total = {} if total is None else total
    total[client] = reply
    return total


def _added(total: Arrays | None, reply: Arrays) -> Arrays:
    if total is None:
        return {name: np.array(a, dtype=np.float64) for name, a in reply.items()}
    for name, a in reply.items():
        total[name] += a
    return total
