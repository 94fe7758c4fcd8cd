"""Layer: an addition to a run's messages and answers, with its server and client halves in one class.

A run lists the layers that are on. One that is off is in no list: its code is not entered, and a
client does not import it. A message names the layers that it was made under, and brings what each
of them says to the clients beside the arrays of the stage, under the layer's name:
`Broadcast.layers`. Four hooks carry it:

| hook | where  | when                                    | gives                                             |
| ---- | ------ | --------------------------------------- | ------------------------------------------------- |
| ask  | server | the stage has said what to send         | the message, with what the layer says beside it   |
| read | client | before the stage's half                 | the work as that half is to see it                |
| seal | client | after it                                | the answer as it may leave the client             |
| open | server | answers have been checked               | the answer, or at the end the sum, as it was heard |

What is said of a run as a whole (why it ended, what it has cost) passes through its layers too; by
default a layer has nothing to say. Masks are no layer: they are a run around a run.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias

from flower_pca.base.bits import Bits, system_bits
from flower_pca.base.shown import brief
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.model import Model, Result
from flower_pca.core.stage import Arrays, Broadcast, Stage

# what layers say to the clients, by the layer's name
Sayings: TypeAlias = Mapping[str, Arrays]


class Who(NamedTuple):
    """A client as a message names it: its position, or its partition-id if not negative, and its site's name."""

    position: int = -1
    name: str = ""


NOBODY: Final = Who()


@dataclass(frozen=True)
class Work:
    """One client's half of one message, as the layers and the stage see it.

    Attributes
    ----------
    stage : type
        The stage that asks.
    arrays : Arrays
        What it asks.
    data
        The client's rows, in the message's frame.
    memory : Arrays
        What the client has kept for the stage.
    who : Who
        The client, where a message has numbers for each.
    bits : Bits
        Where the client's noise comes from.
    summed : int
        Nobody sees the answer but in a sum of at least so many.
    masked : bool
        Whether masks are laid over the answer.
    trusts : bool
        Whether others of the sum are counted on, where all share what hides a row.
    keeps : Arrays
        What layers keep beside the stage's memory.
    """

    stage: type[Stage[Any]]
    arrays: Arrays
    data: Any
    memory: Arrays
    who: Who = NOBODY
    bits: Bits = system_bits
    summed: int = 1
    masked: bool = False
    trusts: bool = True
    keeps: Arrays = field(default_factory=dict)

    __repr__ = brief


class Layer:
    """A layer. Subclasses are frozen dataclasses of settings, and override the methods that they need.

    Attributes
    ----------
    name : str
        What messages call it by; its arrays are called so in records, with a dot behind.
    binding : bool
        Whether the run may ask no more often than was settled before it began.
    by_row : bool
        Whether its client half needs the rows themselves, where a client answers from fixed statistics.
    """

    name: ClassVar[str]
    binding: ClassVar[bool] = False
    by_row: ClassVar[bool] = False

    # The four hooks.

    def ask(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        """Return the message as it is sent."""
        return message

    @staticmethod
    def read(says: Arrays, work: Work) -> Work:
        """Return the work as the stage's client half, or the next layer, should see it."""
        return work

    @staticmethod
    def seal(says: Arrays, work: Work, up: Arrays) -> Arrays:
        """Return the answer as it may leave the client."""
        return up

    def open(self, arrays: Arrays, *, number: int, position: int | None) -> Arrays:
        """Decode the answer of the client at this place to the message of this number, or the sum if it is None."""
        return arrays

    def count(self, arrays: Arrays, client: int, model: Model) -> Arrays:
        """Return the answer of this client as it enters a sum."""
        return arrays

    # What is said of the run.

    @property
    def mark(self) -> str:
        """Return what a checkpoint and the run that continues from it must share, or "" if nothing."""
        return ""

    def deviation_of_one(self, *, opening: bool) -> float:
        """Return the standard deviation of the noise that each client adds to its answer."""
        return 0.0

    def divide(self, needed: int) -> Self:
        """Return the layer for a masked sum that needs the answers of this many clients."""
        return self

    def inform(self, state: Any) -> Any:
        """Return the state of a stage that has to know of the layer."""
        return state

    def write_off(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Self, Algorithm[Any]]:
        """Return the layer and the allowed algorithm after answers to this stage that gave no sum."""
        return self, algorithm

    def reopen(self) -> None:
        """Refuse to repeat the opening if the configuration does not allow it."""

    def end(self, model: Model) -> Model:
        """Return the model after the algorithm has ended, with what the layer adds."""
        return model

    def measure(self, model: Model) -> Model:
        """Return the model after the closing. A binding layer decides in place of the algorithm."""
        return model

    def with_privacy(self, result: Result, stages: Sequence[str], *, shared: bool) -> Result:
        """Return the result with the privacy spent, for a run in which messages of these stages were answered."""
        return result


is_binding: Final = operator.attrgetter("binding")


def flat(layers: Sayings) -> Arrays:
    """Put what layers say into one table. Its keys are the layer's name, a dot, and the array's name."""
    return {f"{layer}.{name}": a for layer, arrays in layers.items() for name, a in arrays.items()}


def split(arrays: Arrays, names: Sequence[str]) -> tuple[Arrays, dict[str, Arrays]]:
    """Split such a table into the stage's own arrays and what these layers say."""
    own, layers = dict(arrays), dict[str, Arrays]()
    for full in arrays:
        layer, dot, name = full.partition(".")
        if dot and layer in names:
            layers.setdefault(layer, {})[name] = own.pop(full)
    return own, {name: layers[name] for name in names if name in layers}
