"""The two kinds of message that a run has: Flower's "train", and its "evaluate" for the closing evaluation."""

from __future__ import annotations

from typing import Final, TypeAlias

Scalar: TypeAlias = bool | bytes | float | int | str
Config: TypeAlias = dict[str, Scalar]

# the stage that travels as Flower's evaluate; all others travel as train
EVALUATE: Final = "evaluate"


def kind(stage: str) -> str:
    """Flower's type of the messages of a stage: "train" or "evaluate"."""
    if stage == EVALUATE:
        return EVALUATE
    return "train"


def verb(kind: str) -> str:
    """What Flower calls the work of such a message in the names of its records."""
    if kind == EVALUATE:
        return EVALUATE
    return "fit"
