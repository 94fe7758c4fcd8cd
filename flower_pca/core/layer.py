"""Layer: what a run may lay over its messages and answers, with both of its halves in one class.

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
    """A client as a message may name it: its position, or partition-id, if it is not negative; the name of its site."""

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
    """A layer; subclasses are frozen dataclasses of settings, and override what they say.

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
        """The message as it goes out."""
        return message

    @staticmethod
    def read(says: Arrays, work: Work) -> Work:
        """The work as the stage's half, or the layer behind this one, is to see it."""
        return work

    @staticmethod
    def seal(says: Arrays, work: Work, up: Arrays) -> Arrays:
        """The answer to that work as it may leave the client."""
        return up

    def open(self, arrays: Arrays, *, number: int, position: int | None) -> Arrays:
        """The answer to the message with this number as it was heard, of the client in this place; the sum if None."""
        return arrays

    def count(self, arrays: Arrays, client: int, model: Model) -> Arrays:
        """The answer of this client as it counts in a sum."""
        return arrays

    # What is said of the run.

    @property
    def mark(self) -> str:
        """What a checkpoint and the run that goes on from it must share; "" if that is nothing."""
        return ""

    def deviation_of_one(self, *, opening: bool) -> float:
        """The deviation of the noise that each client adds to its answer."""
        return 0.0

    def divide(self, needed: int) -> Self:
        """The layer over a sum under masks that cannot do without so many clients."""
        return self

    def inform(self, state: Any) -> Any:
        """The state of a stage that has to know of the layer."""
        return state

    def write_off(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Self, Algorithm[Any]]:
        """After answers to this stage without a sum: the layer, and the algorithm still allowed."""
        return self, algorithm

    def reopen(self) -> None:
        """Refuse to hold the opening again, where that is out of the configuration."""

    def end(self, model: Model) -> Model:
        """What is known of an algorithm that has ended, in the light of the layer."""
        return model

    def measure(self, model: Model) -> Model:
        """What is known after the closing; where a layer is binding, the algorithm is no judge."""
        return model

    def with_privacy(self, result: Result, stages: Sequence[str], *, shared: bool) -> Result:
        """The result of a run in which messages of these stages were answered."""
        return result


is_binding: Final = operator.attrgetter("binding")


def flat(layers: Sayings) -> Arrays:
    """What layers say, in one table: the layer's name, a dot, and the array's."""
    return {f"{layer}.{name}": a for layer, arrays in layers.items() for name, a in arrays.items()}


def split(arrays: Arrays, names: Sequence[str]) -> tuple[Arrays, dict[str, Arrays]]:
    """A stage's own arrays, and what layers of these names say, of a table that `flat` made."""
    own, layers = dict(arrays), dict[str, Arrays]()
    for full in arrays:
        layer, dot, name = full.partition(".")
        if dot and layer in names:
            layers.setdefault(layer, {})[name] = own.pop(full)
    return own, {name: layers[name] for name in names if name in layers}
