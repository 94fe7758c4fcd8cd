"""Layers, which are additions to a run's messages and answers. Server part and client part are in one class.

Every run has a list of its layers. If a layer is not in the list, its code is never run, and clients do
not import it. A message contains the arrays of its layers separately from the stage's arrays, under the
layers' names: `Broadcast.layers`. A layer has four hooks:

| hook | where  | when                               | returns                                                  |
| ---- | ------ | ---------------------------------- | -------------------------------------------------------- |
| ask  | server | after the stage has made a message | the message, with the layer's arrays                     |
| read | client | before the stage's client part     | the work as the client part should see it                |
| seal | client | after the stage's client part      | the answer as it may leave the client                    |
| open | server | after answers were checked         | the answer, or at the end the sum, as the server uses it |

Layers may also add to the status and the result of a run. By default they add nothing. Masks are not a
layer: they are a run that wraps another run.
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

# `Sayings` holds the arrays of the layers in a message, by the name of the layer.
Sayings: TypeAlias = Mapping[str, Arrays]


class ClientIdentity(NamedTuple):
    """The identity of a client: its position or partition-id, or -1 if it has none, and the name of its site."""

    position: int = -1
    name: str = ""


NOBODY: Final = ClientIdentity()


@dataclass(frozen=True)
class Work:
    """The work of one client for one message, as the layers and the stage see it.

    Attributes
    ----------
    stage : type
        The stage to which the message belongs.
    arrays : Arrays
        The arrays of the message.
    data
        The client's rows, centered and scaled by the frame of the message.
    memory : Arrays
        The state that the client keeps for the stage.
    who : ClientIdentity
        The identity of the client, if the message has different numbers for different clients.
    bits : Bits
        The source of the client's noise.
    summed : int
        The minimum number of answers in a sum, if the server sees only sums, and otherwise 1.
    masked : bool
        Whether the answer will be masked.
    trusts : bool
        Whether the client relies on the noise of other clients in the sum.
    keeps : Arrays
        The state that the client keeps for the layers, in addition to the state for the stage.
    """

    stage: type[Stage[Any]]
    arrays: Arrays
    data: Any
    memory: Arrays
    who: ClientIdentity = NOBODY
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
        The name of the layer in messages. In records, the names of its arrays begin with this name and a dot.
    binding : bool
        Whether the layer fixes the number of messages before the run begins.
    by_row : bool
        Whether the layer's client part needs rows even if a client answers from fixed statistics.
    """

    name: ClassVar[str]
    binding: ClassVar[bool] = False
    by_row: ClassVar[bool] = False

    # The next four methods are the hooks.

    def change_message(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        """Return the message as the server sends it."""
        return message

    @staticmethod
    def read_message(instructions: Arrays, work: Work) -> Work:
        """Return the work as the next layer, or the stage's client part, should see it."""
        return work

    @staticmethod
    def seal_answer(instructions: Arrays, work: Work, answer: Arrays) -> Arrays:
        """Return the answer as it may leave the client."""
        return answer

    def open_answer(self, arrays: Arrays, *, number: int, position: int | None) -> Arrays:
        """Return the decoded answer from the client at `position` to message `number`.

        If `position` is None, `arrays` is the sum of all answers.
        """
        return arrays

    def weigh_answer(self, arrays: Arrays, client: int, model: Model) -> Arrays:
        """Return the client's answer, multiplied by the weight of this client in the sum."""
        return arrays

    # The following methods add to the status and the result of a run.

    @property
    def mark(self) -> str:
        """A string that must be equal in a checkpoint and in a run that continues from it, or "" for no requirement."""
        return ""

    def deviation_of_one(self, *, opening: bool) -> float:
        """Return the standard deviation of the noise that each client adds to its answer."""
        return 0.0

    def divide_noise(self, needed: int) -> Self:
        """Return the layer for masked sums that each need answers from `needed` clients."""
        return self

    def complete_state(self, state: Any) -> Any:
        """Return the state of a stage, completed by the facts about the layer that the stage needs."""
        return state

    def after_lost_sum(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Self, Algorithm[Any]]:
        """Return the layer and the algorithm with which the run continues after a sum of this stage was lost."""
        return self, algorithm

    def require_reopening(self) -> None:
        """Raise an error if the run must not repeat the opening."""

    def finish_algorithm(self, model: Model) -> Model:
        """Return the model at the end of the algorithm, with the figures that the layer adds."""
        return model

    def finish_closing(self, model: Model) -> Model:
        """Return the model after the closing. A binding layer sets the run's status in place of the algorithm."""
        return model

    def with_privacy(self, result: Result, stages: Sequence[str], *, shared: bool) -> Result:
        """Return the result with the privacy budget that the run has spent on answers to messages from these stages."""
        return result


is_binding: Final = operator.attrgetter("binding")


def flatten_layers(layers: Sayings) -> Arrays:
    """Return the arrays of all layers in one dictionary. A key is the layer's name, a dot, and the array's name."""
    return {f"{layer}.{name}": a for layer, arrays in layers.items() for name, a in arrays.items()}


def split_layers(arrays: Arrays, names: Sequence[str]) -> tuple[Arrays, dict[str, Arrays]]:
    """Return the stage's arrays, and the arrays of each of these layers, from a dictionary with all arrays.

    `flatten_layers` has made the keys of the layers' arrays.
    """
    own, layers = dict(arrays), dict[str, Arrays]()
    for full in arrays:
        layer, dot, name = full.partition(".")
        if dot and layer in names:
            layers.setdefault(layer, {})[name] = own.pop(full)
    return own, {name: layers[name] for name in names if name in layers}
