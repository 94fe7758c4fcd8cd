"""Layer: an addition to a run's messages and answers, with its server and client halves in one class.

A run lists its layers. The code of a layer that is not listed is never run, and clients do not import
it. A message contains the arrays of its layers separately from the stage's arrays, under the layers'
names: `Broadcast.layers`. A layer has four hooks:

| hook | where  | when                               | returns                                               |
| ---- | ------ | ---------------------------------- | ----------------------------------------------------- |
| ask  | server | after the stage has made a message | the message, with the layer's arrays                  |
| read | client | before the stage's client half     | the work as the client half should see it             |
| seal | client | after the client half              | the answer as it may leave the client                 |
| open | server | after answers were checked         | the answer, or at the end the sum, as the server uses it |

The layers also add to the status and the result of a run. By default they add nothing. Masks are no
layer: they are a run around a run.
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

# The arrays of layers in a message, by the layer's name
Sayings: TypeAlias = Mapping[str, Arrays]


class Who(NamedTuple):
    """A client in a message: its position or partition-id, or -1 if it has none, and the name of its site."""

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
        The arrays of the message.
    data
        The client's rows, in the message's frame.
    memory : Arrays
        The state that the client keeps for the stage.
    who : Who
        The identity of the client, if the message has different numbers for different clients.
    bits : Bits
        The source of the client's noise.
    summed : int
        The least number of answers in a sum, if the server sees only sums, and otherwise 1.
    masked : bool
        Whether the answer will be masked.
    trusts : bool
        Whether the client relies on the noise of other clients in the sum.
    keeps : Arrays
        The state that layers keep at the client in addition to the stage's state.
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
    """The base class of layers. Subclasses are frozen dataclasses of settings, and override the methods that they need.

    Attributes
    ----------
    name : str
        The name in messages. In records, the names of its arrays begin with this name and a dot.
    binding : bool
        Whether the number of messages is fixed before the run begins.
    by_row : bool
        Whether its client half needs rows, even if a client answers from fixed statistics.
    """

    name: ClassVar[str]
    binding: ClassVar[bool] = False
    by_row: ClassVar[bool] = False

    # The four hooks

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
        """Decode the answer to message `number` of the client at `position`, or the sum if `position` is None."""
        return arrays

    def count(self, arrays: Arrays, client: int, model: Model) -> Arrays:
        """Return the answer of this client with the weight that it has in a sum."""
        return arrays

    # Additions to the status and the result of a run

    @property
    def mark(self) -> str:
        """A text that must be the same in a checkpoint and in a run that continues from it, or "" if there is none."""
        return ""

    def deviation_of_one(self, *, opening: bool) -> float:
        """Return the standard deviation of the noise that each client adds to its answer."""
        return 0.0

    def divide(self, needed: int) -> Self:
        """Return the layer for a masked sum that needs the answers of this many clients."""
        return self

    def inform(self, state: Any) -> Any:
        """Return the state of a stage with what the stage must know about the layer."""
        return state

    def write_off(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Self, Algorithm[Any]]:
        """Return the layer and the allowed algorithm after a sum of answers to this stage was lost."""
        return self, algorithm

    def reopen(self) -> None:
        """Refuse to repeat the opening if the configuration does not allow it."""

    def end(self, model: Model) -> Model:
        """Return the model at the end of the algorithm, with the additions of the layer."""
        return model

    def measure(self, model: Model) -> Model:
        """Return the model after the closing. A binding layer sets the status in place of the algorithm."""
        return model

    def with_privacy(self, result: Result, stages: Sequence[str], *, shared: bool) -> Result:
        """Return the result with the privacy spent, for a run in which messages of these stages were answered."""
        return result


is_binding: Final = operator.attrgetter("binding")


def flat(layers: Sayings) -> Arrays:
    """Return the arrays of all layers in one table, whose keys are the layer's name, a dot, and the array's name."""
    return {f"{layer}.{name}": a for layer, arrays in layers.items() for name, a in arrays.items()}


def split(arrays: Arrays, names: Sequence[str]) -> tuple[Arrays, dict[str, Arrays]]:
    """Split such a table into the stage's own arrays and the arrays of these layers."""
    own, layers = dict(arrays), dict[str, Arrays]()
    for full in arrays:
        layer, dot, name = full.partition(".")
        if dot and layer in names:
            layers.setdefault(layer, {})[name] = own.pop(full)
    return own, {name: layers[name] for name in names if name in layers}
