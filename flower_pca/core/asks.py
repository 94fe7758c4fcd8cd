"""Ask: what an array of a message is, and what a node requires of it before it works on it.

A stage says it once, in `Stage.asks`, by the names that its messages use. A node holds every message against the stage
of its own package (`clients.policy.limits`), and refuses what that does not name: so no array has a name that means
something by itself, and none is worked on whose size or range nobody has looked at.

    BLOCK     d x p, multiplied with the rows
    VECTOR    one number for each column of the rows
    MATRIX    p x q, small
    VALUES    numbers that are not negative, and may be divided by
    WIDTH     how many columns the node shall make of its own
    COLUMNS   how many columns the rows of the run have
    STEPS     how often the node repeats its work
    SEED      of random numbers that both sides make
    FLAG      true or false
    number    any other number, in a range
    index     a whole number: which step, which attempt, which row of a table
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array

MOST_STEPS: Final = 10_000  # products in a message at most, whatever loops it asks for
# of numbers that may be divided by, but for 0 itself, which stands for none
SMALLEST: Final = 1e-150
_SHAPES: Final = ("one number", "a vector", "a matrix")
_SHOWN: Final = 50  # characters of a number that is refused


class Message(dict[str, Array]):
    """The arrays of a message at a node: one that is needed and is not there is a refusal, by name.

    Which ones a message needs hangs on what else is in it; so no list says it, but the stage that reads them.
    """

    def __missing__(self, name: str) -> Array:
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError("The arrays of a message", must=f"with {name}", got="none", then=remedy)


@dataclass(frozen=True)
class Ask:
    """What an array of a message is.

    Attributes:
        dimensions: How many it has.
        least: Of its entries, the least.
        most: And the largest.
        whole: Whether they are whole numbers.
        divides: Whether they may be divided by: they are 0, or not next to 0, and never negative.
        by_column: Whether its first side is as long as the rows have columns.
        makes_columns: Whether it says how many columns the node shall make of its own.
        of_rows: Of these, whether there are never more than the node has rows.
        own: Of these, whether they are own components, which take more memory.
        counts_columns: Whether it says how many columns the rows of the run have.
        repeats: Whether it says how often the node repeats its work.
        each: Whether single clients may be asked for another number than all others.
    """

    dimensions: int = 0
    least: float = -math.inf
    most: float = math.inf
    whole: bool = False
    divides: bool = False
    by_column: bool = False
    makes_columns: bool = False
    of_rows: bool = False
    own: bool = False
    counts_columns: bool = False
    repeats: bool = False
    each: bool = False

    def fault(self, a: Array) -> tuple[str, str] | None:
        """What is wrong with an array that is asked with: the rule, and what it is instead; None for nothing."""
        if a.ndim != self.dimensions:
            return _SHAPES[self.dimensions], f"shape {a.shape}"
        # a product of whole numbers would wrap
        if self.by_column and a.dtype.kind != "f":
            return "floating-point numbers", f"{a.dtype}"
        if a.ndim and a.dtype.kind == "b":  # which numpy adds up in a way of its own
            return "numbers", "true and false"
        if self.divides and not ((a == 0.0) | (a >= SMALLEST)).all():
            return f"0 or at least {SMALLEST:g}", f"{a}"[:_SHOWN]
        if a.size and not self.least <= float(a.min()) <= float(a.max()) <= self.most:
            if math.isinf(self.most):
                rule = f"at least {self.least:g}"
            else:
                rule = f"from {self.least} to {self.most}"
            return rule, f"{a}"[:_SHOWN]
        if self.whole and not (np.asarray(a) == np.rint(a)).all():
            return "whole", f"{a}"[:_SHOWN]
        return None

    @property
    def by_client(self) -> Ask:
        """The same, where single clients may be asked for other numbers."""
        return replace(self, each=True)


BLOCK: Final = Ask(dimensions=2, by_column=True)
VECTOR: Final = Ask(dimensions=1, by_column=True)
MATRIX: Final = Ask(dimensions=2)
VALUES: Final = Ask(dimensions=1, divides=True)
WIDTH: Final = Ask(least=0, whole=True, makes_columns=True)
COLUMNS: Final = Ask(least=0, most=2**53, whole=True, counts_columns=True)
# MOST_STEPS at most, of a whole message
STEPS: Final = Ask(least=0, whole=True, repeats=True)
SEED: Final = Ask(least=0, most=2**64 - 1, whole=True)
FLAG: Final = Ask(least=0, most=1, whole=True)
OWN_WIDTH: Final = replace(WIDTH, own=True)  # of own components
# of what is no more than the rows are many
ROW_WIDTH: Final = replace(WIDTH, of_rows=True)
POSITIVE: Final = Ask(divides=True)  # a number that is divided by, or 0 for none


def number(least: float = -math.inf, most: float = math.inf) -> Ask:
    """Any other number, in a range."""
    return Ask(least=least, most=most)


def index(most: int, *, least: int = 0) -> Ask:
    """A whole number: which step, which attempt, which row of a table."""
    return Ask(least=least, most=most, whole=True)
