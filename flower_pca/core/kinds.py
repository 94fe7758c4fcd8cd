"""Part: what an array of an answer is; what masks, rules and the audit know of an algorithm.

A stage says it once, in `Stage.parts(arrays, d)`: for a message with these arrays, and rows of d
columns, what an answer holds, by name. It needs the message only, so server and client work out the
same:

- the server refuses an answer of other names or shapes (`core.replies`), and takes the bounds of
  fixed point from the kinds (`Stage.bounds`);
- masks cover as many numbers as the shapes have, so under masks no side may be open;
- a node holds back what is its own (`clients.base`), and counts the numbers that leave it
  (`clients.storage`);
- the audit reads an answer as what its kind says (`audit.view`).

Whatever anybody has to know of a kind stands in its row of the table below, as a property. No other
code asks which kind it is; so a stage may bring a kind of its own.

Ask: what an array of a message is, and what a node requires of it before it works on it.

A stage says it once, in `Stage.asks`, by the names that its messages use. A node holds every
message against the stage of its own package (`clients.policy.limits`), and refuses what that does
not name: so no array has a name that means something by itself, and none is worked on whose size or
range nobody has looked at.

    BLOCK     d x p, multiplied with the rows
    BASIS     the same, of at least one column
    VECTOR    one number for each column of the rows
    MATRIX    p x q, small
    VALUES    numbers that are not negative, and may be divided by
    WIDTH     how many columns the node shall make of its own
    COLUMNS   how many columns the rows of the run have
    STEPS     how often the node repeats its work
    ROUNDS    the same, once at least
    SEED      of random numbers that both sides make
    FLAG      true or false
    number    any other number, in a range
    index     a whole number: which step, which attempt, which row of a table
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Final, TypeAlias

import numpy as np

from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array

MOST_STEPS: Final = 10_000  # products in a message at most, whatever loops it asks for
# The smallest number that may be divided by. Zero itself stands for none.
SMALLEST: Final = 1e-150
_SHAPES: Final = ("one number", "a vector", "a matrix")
_SHOWN: Final = 50  # characters of a number that is refused


class Message(dict[str, Array]):
    """The arrays of a message at a node: one that is needed and is not there is a refusal, by name.

    Which ones a message needs hangs on what else is in it; so no list says it, but the stage that
    reads them.
    """

    def __missing__(self, name: str) -> Array:
        raise ProtocolError(f"A message lacks the array {name}. Install the same flower_pca everywhere.")


@dataclass(frozen=True)
class Ask:
    """What an array of a message is.

    Attributes
    ----------
    dimensions : int
        How many it has.
    least : float
        Of its entries, the least.
    most : float
        And the largest.
    whole : bool
        Whether they are whole numbers.
    divides : bool
        Whether they may be divided by: they are 0, or not next to 0, and never negative.
    by_column : bool
        Whether its first side is as long as the rows have columns.
    filled : bool
        Whether it has columns.
    makes_columns : bool
        Whether it says how many columns the node shall make of its own.
    of_rows : bool
        Of these, whether there are never more than the node has rows.
    own : bool
        Of these, whether they are own components, which take more memory.
    counts_columns : bool
        Whether it says how many columns the rows of the run have.
    repeats : bool
        Whether it says how often the node repeats its work.
    each : bool
        Whether single clients may be asked for another number than all others.
    """

    dimensions: int = 0
    least: float = -math.inf
    most: float = math.inf
    whole: bool = False
    divides: bool = False
    by_column: bool = False
    filled: bool = False
    makes_columns: bool = False
    of_rows: bool = False
    own: bool = False
    counts_columns: bool = False
    repeats: bool = False
    each: bool = False

    def fault(self, a: Array) -> tuple[str, str] | None:
        """Return the rule that an array of a message breaks, and what the array is, or None."""
        if a.ndim != self.dimensions:
            return _SHAPES[self.dimensions], f"shape {a.shape}"
        # a product of whole numbers would wrap
        if self.by_column and a.dtype.kind != "f":
            return "floating-point numbers", f"{a.dtype}"
        if self.filled and not a.shape[-1]:
            return "of at least one column", f"shape {a.shape}"
        if a.ndim and a.dtype.kind == "b":  # numpy adds booleans up in a way of its own.
            return "numbers", "true and false"
        if self.divides and not ((a == 0.0) | (a >= SMALLEST)).all():
            return f"0 or at least {SMALLEST:g}", f"{a}"[:_SHOWN]
        # NaN ends here too, even where any number would do: no comparison with it holds
        if a.size and not self.least <= float(a.min()) <= float(a.max()) <= self.most:
            rule = f"at least {self.least:g}" if math.isinf(self.most) else f"from {self.least} to {self.most}"
            return rule, f"{a}"[:_SHOWN]
        if self.whole and not (np.asarray(a) == np.rint(a)).all():
            return "whole", f"{a}"[:_SHOWN]
        return None

    @property
    def by_client(self) -> Ask:
        """The same kind of array, for messages that send different numbers to different clients."""
        return replace(self, each=True)


BLOCK: Final = Ask(dimensions=2, by_column=True)
BASIS: Final = replace(BLOCK, filled=True)
VECTOR: Final = Ask(dimensions=1, by_column=True)
MATRIX: Final = Ask(dimensions=2)
VALUES: Final = Ask(dimensions=1, divides=True)
WIDTH: Final = Ask(least=0, whole=True, makes_columns=True)
COLUMNS: Final = Ask(least=0, most=2**53, whole=True, counts_columns=True)
# MOST_STEPS at most, of a whole message
STEPS: Final = Ask(least=0, whole=True, repeats=True)
ROUNDS: Final = replace(STEPS, least=1)
SEED: Final = Ask(least=0, most=2**64 - 1, whole=True)
FLAG: Final = Ask(least=0, most=1, whole=True)
OWN_WIDTH: Final = replace(WIDTH, own=True)  # The width of a node's own components.
# The width of arrays that have at most as many columns as there are rows.
ROW_WIDTH: Final = replace(WIDTH, of_rows=True)
POSITIVE: Final = Ask(divides=True)  # a number that is divided by, or 0 for none


def number(least: float = -math.inf, most: float = math.inf) -> Ask:
    """Describe any other number, in a range."""
    return Ask(least=least, most=most)


def index(most: int, *, least: int = 0) -> Ask:
    """Describe a whole number: a step, an attempt or a row of a table."""
    return Ask(least=least, most=most, whole=True)


Shape: TypeAlias = tuple[int | None, ...]

_LARGEST: Final = 1e140  # beyond which sums of squares overflow
_ORDINARY: Final = 1e270  # No entry is near the limit if the sum of squares is below this.
_MOST_ROWS: Final = 10**12


@dataclass(frozen=True)
class Reach:
    """How large an answer can be, by what a client has said of its rows and by the columns it is made with.

    Attributes
    ----------
    n : int
        Its rows, or how many it may have.
    least : int
        Rows that it has at least.
    squares : float
        t, the sum of squares of its rows in the frame.
    d : int
        The columns of the rows.
    lengths : callable
        |z| of every column z that the part is made with: see `Part.of`.
    """

    n: int
    least: int
    squares: float
    d: int
    lengths: Callable[[], Array | float]


Size: TypeAlias = Callable[[Array], Array]  # From an array to the size that is held against a bound.
Bound: TypeAlias = Callable[[Reach], Array | float]


def _lengths(a: Array) -> Array:
    # no entry is so large that its square overflows
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", a, a)))


def _squares(reach: Reach) -> float:
    return reach.squares


def _of_columns(reach: Reach) -> float:
    return max(reach.squares, float(np.sqrt(reach.n * reach.squares)))


class AttackReading(Enum):
    """How an observer can read C_i times a block from an answer, for an attack."""

    CENTRED = "C_i times the block of the opening, about the client's own mean"
    PRODUCT = "C_i times the array that the part is made with"
    EIGENVECTORS = "vectors v, for which C_i v = lambda v"
    FACTOR = "the triangular factor of X_i times a block, without which LIFTED cannot be read"
    LIFTED = "X_i' times the orthonormal factor that belongs to it"
    WHOLE = "C_i itself, packed"


@dataclass(frozen=True)
class Kind:
    """A kind of quantity, in terms of a client's framed rows X_i, and of C_i = X_i'X_i.

    Attributes
    ----------
    name : str
        What it is called.
    tells : str
        What the answers of a node bring out by it, in words for its operator.
    size : Size
        What of an array of this kind is held against a bound: a number, or one for each column.
    bound : Bound or None
        What that is at most, by Cauchy and Schwarz, for a client that has said so much of its rows; None where only the
        stage itself can say so: see `Stage.bounds`.
    counts_rows : bool
        Whether it is the number of rows, as in the opening; under noise it is 1, and counts clients.
    whole : bool
        Whether its entries are whole numbers, which stay exact under masks, and none of floating point.
    by_column : bool
        Whether it has one number for each column of the rows, so that its length says how many there are.
    product : bool
        Whether it is a product with C_i, whose size under masks follows from the opening.
    own_block : bool
        Whether the columns that it is made with are of the client's choosing, and of length one.
    within_trace : bool
        Whether its entries are at most trace(C), of whatever client, where blocks are orthonormal.
    single : bool
        Whether it makes sense by itself only, and no sum of it does.
    square : bool
        Whether it is as large as C_i.
    rounded : bool
        Whether it is made of products, and may have fewer bits: see `layers.precision`.
    reading : AttackReading or None
        How it brings out C_i times a block; None if it does not, by a formula.
    """

    name: str
    tells: str
    size: Size = np.abs
    bound: Bound | None = lambda reach: np.inf
    counts_rows: bool = False
    whole: bool = False
    by_column: bool = False
    product: bool = False
    own_block: bool = False
    within_trace: bool = False
    single: bool = False
    square: bool = False
    rounded: bool = False
    reading: AttackReading | None = None

    ROWS: ClassVar[Kind]
    COUNT: ClassVar[Kind]
    DISTANCES: ClassVar[Kind]
    NUMBER: ClassVar[Kind]
    SQUARES: ClassVar[Kind]
    MEAN_SQUARES: ClassVar[Kind]
    COLUMNS: ClassVar[Kind]
    PEAKS: ClassVar[Kind]
    MOMENTS: ClassVar[Kind]
    PRODUCT: ClassVar[Kind]
    LOCAL_PRODUCT: ClassVar[Kind]
    BLOCK: ClassVar[Kind]
    IMAGE: ClassVar[Kind]
    GRAM: ClassVar[Kind]
    EIGENVECTORS: ClassVar[Kind]
    EIGENVALUES: ClassVar[Kind]
    FACTOR: ClassVar[Kind]
    LIFTED: ClassVar[Kind]
    ESTIMATE: ClassVar[Kind]
    SCORES: ClassVar[Kind]
    COMPONENTS: ClassVar[Kind]


_TABLE: Final = {
    # How many rows there are, above 0, always named n.
    "ROWS": Kind("rows", "how many rows it has", counts_rows=True, whole=True),
    # How many there are of something else: entries, outliers, clients.
    "COUNT": Kind(
        "count",
        "counts of clients, or of entries of some size",
        size=lambda a: np.where(a >= 0.0, a, np.inf),
        bound=lambda reach: max(1.0, float(reach.n) * reach.d),
        whole=True,
    ),
    # How many rows lie how far from the components of the message, in bins.
    "DISTANCES": Kind(
        "distances",
        "how many of its rows lie how far from a basis of the server's",
        size=lambda a: np.where((a >= 0.0).all(axis=-1), a.sum(axis=-1), np.inf),
        bound=lambda reach: float(reach.n),
        whole=True,
    ),
    # A single figure: a weight, a step, an objective.
    "NUMBER": Kind("number", "single figures, as a weight or a step", bound=None),
    # A sum of squares of the rows, or of what is left of them.
    "SQUARES": Kind(
        "squares",
        "how much of its rows lies outside a basis of the server's, as one sum of squares",
        bound=_squares,
        within_trace=True,
    ),
    # Squares of the rows, or of their coordinates in a basis, over the number of rows; maybe weighted.
    "MEAN_SQUARES": Kind(
        "mean squares", "a mean of squares of its rows, or of what a basis leaves of them", bound=_squares
    ),
    # One number for each column of the rows: sums, and sums of squares. The opening, which has means
    # and squared deviations, is held against its own squares.
    "COLUMNS": Kind(
        "columns", "of each column the mean and the sum of squared deviations", bound=_of_columns, by_column=True
    ),
    # The largest |x| of each column: an entry of a row, which no other figure says anything of.
    "PEAKS": Kind("peaks", "one true entry of each column", bound=_of_columns, by_column=True, single=True),
    # Count, sums and squares of clipped rows in one vector.
    "MOMENTS": Kind("moments", "the count, sums and squares of clipped rows"),
    # C_i Z, with Z the array that the part names as the one that it is made with.
    "PRODUCT": Kind(
        "product",
        "C Z for any block Z of the server's",
        size=_lengths,
        bound=lambda reach: reach.squares * reach.lengths(),
        product=True,
        within_trace=True,
        rounded=True,
        reading=AttackReading.PRODUCT,
    ),
    # The same of rows centered at the client's own mean, which is sent beside it as n and mean.
    "LOCAL_PRODUCT": Kind(
        "local product",
        "C Z for any block Z of the server's, about its own mean",
        product=True,
        rounded=True,
        reading=AttackReading.CENTRED,
    ),
    # A block that the client has chosen, and multiplied: its columns are of length one.
    "BLOCK": Kind(
        "block",
        "a basis near its own leading eigenvectors",
        size=_lengths,
        bound=lambda reach: 1.0,
        single=True,
        rounded=True,
    ),
    # C_i times a block that the client has chosen, and keeps.
    "IMAGE": Kind(
        "image",
        "C times a basis near its own leading eigenvectors",
        size=_lengths,
        bound=_squares,
        product=True,
        own_block=True,
        within_trace=True,
        rounded=True,
    ),
    # C_i itself, packed as covariance does.
    "GRAM": Kind(
        "gram",
        "all of C at once",
        size=lambda a: np.asarray(np.linalg.norm(a)),
        bound=_squares,
        square=True,
        rounded=True,
        reading=AttackReading.WHOLE,
    ),
    # Leading eigenvectors of C_i, orthonormal as one_shot sees to.
    "EIGENVECTORS": Kind(
        "eigenvectors", "the leading eigenvectors of C", single=True, rounded=True, reading=AttackReading.EIGENVECTORS
    ),
    # Their eigenvalues, over the number of rows.
    "EIGENVALUES": Kind(
        "eigenvalues",
        "the leading eigenvalues of C",
        size=lambda a: np.asarray(np.abs(a).sum()),
        bound=lambda reach: reach.squares / reach.least,
        single=True,
    ),
    # The triangular factor R of X_i Z, for a block Z of the message.
    "FACTOR": Kind(
        "factor",
        "Z'CZ for any block Z of the server's",
        size=_lengths,
        bound=lambda reach: np.sqrt(reach.squares) * reach.lengths(),
        single=True,
        rounded=True,
        reading=AttackReading.FACTOR,
    ),
    # X_i'Q T, with Q the orthonormal factor that belongs to R, and T the message's part for this
    # client.
    "LIFTED": Kind(
        "lifted",
        "C on all directions of such a Z",
        size=_lengths,
        bound=lambda reach: np.sqrt(reach.squares) * reach.lengths(),
        single=True,
        rounded=True,
        reading=AttackReading.LIFTED,
    ),
    # d x p, of which the server makes the next basis; no product with C_i, but as large as one of them.
    "ESTIMATE": Kind(
        "estimate", "a d x p matrix made of C or of its rows, step by step", bound=None, within_trace=True, rounded=True
    ),
    # p x p, second moments of coordinates in the basis.
    "SCORES": Kind("scores", "second moments of its rows' coordinates in a basis of the server's", bound=None),
    # A client's own components, beside those that all share.
    "COMPONENTS": Kind(
        "components",
        "its own components, or the answers in their space",
        size=_lengths,
        bound=lambda reach: max(1.0, np.sqrt(reach.n), np.sqrt(reach.squares)),
        rounded=True,
    ),
}
for _name, _kind in _TABLE.items():
    setattr(Kind, _name, _kind)

KINDS: Final = tuple(_TABLE.values())


@dataclass(frozen=True)
class Part:
    """One array of an answer.

    Attributes
    ----------
    shape : Shape
        Its sides; None for one that only the client knows, and for d where that is not known yet.
    kind : Kind
        What quantity it is.
    of : str
        The array that it is made with: of the message; or of the answer, where the client has chosen it. Left out, the
        first of the message that has its shape.
    own : bool
        Whether it shows a node's own results, beside those that all share. A node that does not agree to that sends
        zeros; where a side is open, a matrix without columns. A masked sum may have own parts of a shape that is known,
        since nobody sees them alone.
    """

    shape: Shape = ()
    kind: Kind = Kind.NUMBER
    own: bool = False
    of: str = ""

    @property
    def open(self) -> bool:
        """Whether only the client knows one of the part's sides."""
        return None in self.shape

    def block(self, sent: Mapping[str, Array]) -> Array:
        """Return the array of the message that the part is made with."""
        if self.of in sent:
            return sent[self.of]
        return next(Z for Z in sent.values() if Z.shape == self.shape)


ROWS: Final = Part(kind=Kind.ROWS)
COUNT: Final = Part(kind=Kind.COUNT)
NUMBER: Final = Part(kind=Kind.NUMBER)
MEAN_SQUARES: Final = Part(kind=Kind.MEAN_SQUARES)


def fault(arrays: Mapping[str, Array], parts: Mapping[str, Part]) -> tuple[str, str, str] | None:
    """Return the first part that these arrays do not match, its rule and the actual array, or None."""
    for name, part in parts.items():
        a = arrays[name]
        fits = a.shape == part.shape or _fits(a.shape, part.shape)
        # floats of 80 bits are of some nodes' machines, and LAPACK does not know them
        if not fits or a.dtype.kind not in "fiu" or a.dtype.itemsize > 8:
            rule = f"a real array of shape {tuple('any' if s is None else s for s in part.shape)}"
            return name, rule, f"shape {a.shape} and dtype {a.dtype}"
        # The sum of squares says at once that all is well, without memory: NaN is not below, and
        # vdot warns of nothing.
        if a.ndim and a.dtype == np.float64 and a.flags.forc and np.vdot(flat := a.ravel("K"), flat) < _ORDINARY:
            continue
        # The largest entry may also be NaN.
        largest = abs(float(a)) if a.ndim == 0 else max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))
        if not math.isfinite(largest):
            return name, "finite", f"{int(a.size - np.isfinite(a).sum())} NaN or infinite entries"
        if largest > _LARGEST:
            return name, f"at most {_LARGEST:g} in size", f"{largest:g}"
        if part.kind.counts_rows and (a.dtype.kind not in "iu" or not 1 <= a <= _MOST_ROWS):
            return name, f"a whole number between 1 and {_MOST_ROWS:g}", f"{a}"
    return None


def require_finite(answer: Mapping[str, Array]) -> None:
    """Raise DataError if an answer is not finite. The error reveals nothing of the answer."""
    if not all(np.isfinite(a).all() for a in answer.values()):
        raise DataError("The answer of this node is not finite, so it is not sent. Check the frame and the block.")


def _fits(found: tuple[int, ...], shape: Shape) -> bool:
    return len(found) == len(shape) and all(s in (None, t) for s, t in zip(shape, found, strict=True))
