"""The two kinds of message that a run has: Flower's "train", and its "evaluate" for the closing evaluation."""

from __future__ import annotations

from typing import Final, TypeAlias

Scalar: TypeAlias = bool | bytes | float | int | str
Config: TypeAlias = dict[str, Scalar]

# The stage that is sent as Flower's evaluate. All others are sent as train.
EVALUATE: Final = "evaluate"


def kind(stage: str) -> str:
    """Return Flower's type of the messages of a stage: "train" or "evaluate"."""
    if stage == EVALUATE:
        return EVALUATE
    return "train"


def verb(kind: str) -> str:
    """Return Flower's word for the work of such a message in the names of its records."""
    if kind == EVALUATE:
        return EVALUATE
    return "fit"
