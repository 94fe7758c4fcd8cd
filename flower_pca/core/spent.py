"""Spent: what a run has cost in privacy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    """What a run has cost in privacy.

    Attributes:
        epsilon, delta: What holds for every row, by the noise that each client has added alone.
        clip: The norm to which rows were clipped.
        noise: The deviation of the noise that a client has added to each number of an answer.
        messages: Answered messages, that of the frame included.
    """

    epsilon: float
    delta: float
    clip: float
    noise: float
    messages: int
