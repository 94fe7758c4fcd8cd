"""The two kinds of messages in a run: Flower's "train", and Flower's "evaluate" for the final evaluation."""

from __future__ import annotations

from typing import Final, TypeAlias

Scalar: TypeAlias = bool | bytes | float | int | str
Config: TypeAlias = dict[str, Scalar]

# The stage whose messages are sent as "evaluate" messages. The messages of all other stages are sent as "train".
EVALUATE: Final = "evaluate"


def message_kind(stage: str) -> str:
    """Return the type of a stage's messages in Flower: "train" or "evaluate"."""
    if stage == EVALUATE:
        return EVALUATE
    return "train"


def fit_or_evaluate(kind: str) -> str:
    """Return the verb, "fit" or "evaluate", with which Flower names the records of a message of this kind."""
    if kind == EVALUATE:
        return EVALUATE
    return "fit"
