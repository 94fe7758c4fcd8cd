"""Descriptions of arrays: `ArrayRule` for the arrays of a message, `Part` and `Kind` for the arrays of an answer.

`Part` describes an array of an answer for all code that uses answers: masks, rules and the audit. A
stage defines its answer once, in `Stage.parts(arrays, d)`. This method returns the arrays by name, for
this message and rows with d columns. It depends on the message only, so server and client get the same
result:

- The server refuses an answer with other names or shapes (`core.replies`), and derives the bounds for fixed-point
  numbers from the kinds (`Stage.bounds`).
- Masks cover all numbers in arrays of these shapes, so under masks the length of every side must be known.
- A node withholds its local results (`clients.base`), and counts the numbers that it sends (`clients.storage`).
- The audit interprets an answer by its kinds (`audit.view`).

All properties of a kind are in its row of the table below. No other code tests for a certain kind, so a
stage may define a new kind.

`ArrayRule` describes an array of a message, and the checks that a node makes before it uses the array. A stage
defines its messages once, in `Stage.asks`, by the names of the arrays. A node compares every message
with the stage in its own copy of the package (`clients.policy.limits`), and refuses arrays that the
stage does not name. So every array that a node uses is checked for size and range.

    BLOCK     d x p, multiplied with the rows
    BASIS     a BLOCK with at least one column
    VECTOR    one number for each column of the rows
    MATRIX    p x q, small
    VALUES    numbers that are not negative, and by which the node may divide
    WIDTH     the number of columns that the node computes
    COLUMNS   the number of columns of the rows of the run
    STEPS     the number of times that the node repeats its work
    ROUNDS    the same as STEPS, but at least one
    SEED      the seed of random numbers that server and node both draw
    FLAG      true or false
    number    any other number, in a range
    index     a whole number: a step, an attempt, or a row of a table
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

MOST_STEPS: Final = 10_000  # maximum number of products that a node computes for one message
SMALLEST: Final = 1e-150  # the smallest divisor, except for 0, which means "no divisor"
_SHAPES: Final = ("one number", "a vector", "a matrix")
_SHOWN: Final = 50  # maximum number of characters of a refused number in an error


class Message(dict[str, Array]):
    """The arrays of a message at a node. Access to a missing array raises an error that names the array.

    The other arrays of a message determine which arrays it needs. So a missing array is noticed only when
    the stage reads it.
    """

    def __missing__(self, name: str) -> Array:
        raise ProtocolError(f"A message lacks the array {name}. Install the same version of flower_pca everywhere.")


@dataclass(frozen=True)
class ArrayRule:
    """A description of an array of a message.

    Attributes
    ----------
    dimensions : int
        The number of dimensions.
    least : float
        The smallest allowed entry.
    most : float
        The largest allowed entry.
    whole : bool
        Whether entries are whole numbers.
    divides : bool
        Whether entries are divisors: never negative, and either 0 or not close to 0.
    by_column : bool
        Whether the array has one entry or one row for each column of the client's rows.
    filled : bool
        Whether the array must have at least one column.
    makes_columns : bool
        Whether the number is the number of columns that the node computes.
    of_rows : bool
        Whether the node computes at most as many columns as it has rows.
    own : bool
        Whether these columns are local components, which take more memory.
    counts_columns : bool
        Whether the number is the number of columns of the client's rows.
    repeats : bool
        Whether the number is the number of times that the node repeats its work.
    each : bool
        Whether the number may differ between clients.
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
        """Return the rule that an array of a message breaks, and a description of the fault, or None if it is valid.

        For example, the rule is "a vector", and the fault is "has shape (2, 2)".
        """
        if a.ndim != self.dimensions:
            return _SHAPES[self.dimensions], f"has shape {a.shape}"
        # Products of whole numbers could overflow.
        if self.by_column and a.dtype.kind != "f":
            return "floating-point numbers", f"has dtype {a.dtype}"
        if self.filled and not a.shape[-1]:
            return "a matrix with at least one column", f"has shape {a.shape}"
        if a.ndim and a.dtype.kind == "b":  # numpy adds two booleans with a logical or.
            return "numbers", "has booleans"
        if self.divides and not ((a == 0.0) | (a >= SMALLEST)).all():
            return f"0 or at least {SMALLEST:g}", f"is {a}"[:_SHOWN]
        # This condition also refuses NaN, because every comparison with NaN is false.
        if a.size and not self.least <= float(a.min()) <= float(a.max()) <= self.most:
            rule = f"at least {self.least:g}" if math.isinf(self.most) else f"from {self.least} to {self.most}"
            return rule, f"is {a}"[:_SHOWN]
        if self.whole and not (np.asarray(a) == np.rint(a)).all():
            return "whole", f"is {a}"[:_SHOWN]
        return None

    @property
    def by_client(self) -> ArrayRule:
        """The description of the same number, if it may differ between clients."""
        return replace(self, each=True)


BLOCK: Final = ArrayRule(dimensions=2, by_column=True)
BASIS: Final = replace(BLOCK, filled=True)
VECTOR: Final = ArrayRule(dimensions=1, by_column=True)
MATRIX: Final = ArrayRule(dimensions=2)
VALUES: Final = ArrayRule(dimensions=1, divides=True)
WIDTH: Final = ArrayRule(least=0, whole=True, makes_columns=True)
COLUMNS: Final = ArrayRule(least=0, most=2**53, whole=True, counts_columns=True)
# One message may ask for at most MOST_STEPS repetitions in total.
STEPS: Final = ArrayRule(least=0, whole=True, repeats=True)
ROUNDS: Final = replace(STEPS, least=1)
SEED: Final = ArrayRule(least=0, most=2**64 - 1, whole=True)
FLAG: Final = ArrayRule(least=0, most=1, whole=True)
OWN_WIDTH: Final = replace(WIDTH, own=True)  # the number of a node's local components
ROW_WIDTH: Final = replace(WIDTH, of_rows=True)  # a WIDTH that the node limits to its number of rows
POSITIVE: Final = ArrayRule(divides=True)  # a divisor, or 0 for "no divisor"


def number_rule(least: float = -math.inf, most: float = math.inf) -> ArrayRule:
    """Return the description of a number with a minimum and a maximum."""
    return ArrayRule(least=least, most=most)


def index_rule(most: int, *, least: int = 0) -> ArrayRule:
    """Return the description of a whole number with a minimum and a maximum, such as the number of a step."""
    return ArrayRule(least=least, most=most, whole=True)


Shape: TypeAlias = tuple[int | None, ...]

_LARGEST: Final = 1e140  # maximum entry of an answer, because sums of squares of larger numbers overflow
_ORDINARY: Final = 1e270  # a sum of squares below this shows that no entry is near _LARGEST
_MOST_ROWS: Final = 10**12  # maximum number of rows that a client can report


@dataclass(frozen=True)
class BoundInputs:
    """The quantities from which the bound on an answer follows.

    Attributes
    ----------
    n : int
        The number of rows of the client, or the largest possible number if it is unknown.
    least : int
        The smallest possible number of rows.
    squares : float
        t, the sum of squares of the rows in the frame.
    d : int
        The number of columns of the rows.
    lengths : callable
        A function that returns the length |z| of every column z with which the rows are multiplied: see `Part.of`.
    """

    n: int
    least: int
    squares: float
    d: int
    lengths: Callable[[], Array | float]


Size: TypeAlias = Callable[[Array], Array]  # a function that maps an array to the size that is compared with a bound
Bound: TypeAlias = Callable[[BoundInputs], Array | float]


def _column_lengths(a: Array) -> Array:
    # The squares cannot overflow, because no entry exceeds _LARGEST.
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", a, a)))


def _bound_of_squares(reach: BoundInputs) -> float:
    return reach.squares


def _bound_of_columns(reach: BoundInputs) -> float:
    return max(reach.squares, float(np.sqrt(reach.n * reach.squares)))


class AttackReading(Enum):
    """A way in which an attacker can compute the product of C_i and a block from an answer."""

    CENTERED = "C_i times the block of the opening, about the client's own mean"
    PRODUCT = "C_i times the array that the part is made with"
    EIGENVECTORS = "vectors v, for which C_i v = lambda v"
    FACTOR = "the triangular factor of X_i times a block, without which LIFTED cannot be read"
    LIFTED = "X_i' times the orthonormal factor that belongs to it"
    WHOLE = "C_i itself, packed"


@dataclass(frozen=True)
class Kind:
    """A kind of quantity in an answer. It is computed from X_i, the centered and scaled rows, or from C_i = X_i'X_i.

    Attributes
    ----------
    name : str
        The name of the kind.
    tells : str
        A description of what the quantity reveals about the rows of a node, for the node's operator.
    size : Size
        A function that returns the size that is compared with the bound: one number, or one number for each column.
    bound : Bound or None
        A function that returns an upper bound on the size, by Cauchy-Schwarz, from the client's report about its rows.
        It is None if only the stage knows a bound: see `Stage.bounds`.
    counts_rows : bool
        Whether the quantity is the number of rows, as in the opening. Under noise it is always 1, so its sum counts
        clients.
    whole : bool
        Whether the entries are whole numbers, which stay exact under masks.
    by_column : bool
        Whether there is one number for each column of the rows, so that the length shows the number of columns.
    product : bool
        Whether the quantity is a product with C_i, whose size under masks follows from the opening.
    own_block : bool
        Whether the quantity is a product with columns that the client chooses, which have length one.
    within_trace : bool
        Whether the entries are at most trace(C) for every client if blocks are orthonormal.
    single : bool
        Whether sums over clients have no meaning.
    square : bool
        Whether the quantity has as many numbers as C_i.
    rounded : bool
        Whether the quantity consists of products, so that it may be sent in fewer bits: see `layers.precision`.
    reading : AttackReading or None
        The way in which an observer can compute C_i times a block, or None if no formula is known.
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
    # This is the number of rows, at least 1. Its array is always named "n".
    "ROWS": Kind("rows", "the number of rows", counts_rows=True, whole=True),
    # This is a number of things other than rows, for example of entries, outliers or clients.
    "COUNT": Kind(
        "count",
        "numbers of clients, or of entries that meet a condition",
        size=lambda a: np.where(a >= 0.0, a, np.inf),
        bound=lambda reach: max(1.0, float(reach.n) * reach.d),
        whole=True,
    ),
    # This is a histogram of the distances of rows from the components in the message.
    "DISTANCES": Kind(
        "distances",
        "the number of rows at each distance from a basis that the server chooses",
        size=lambda a: np.where((a >= 0.0).all(axis=-1), a.sum(axis=-1), np.inf),
        bound=lambda reach: float(reach.n),
        whole=True,
    ),
    # This is a single number, for example a weight, a step size or an objective.
    "NUMBER": Kind("number", "single numbers such as a weight or a step size", bound=None),
    # This is a sum of squares of the rows, or of their residuals.
    "SQUARES": Kind(
        "squares",
        "the sum of squares of the rows outside a basis that the server chooses",
        bound=_bound_of_squares,
        within_trace=True,
    ),
    # These are mean squares of the rows, or of their coordinates in a basis, and they may be weighted.
    "MEAN_SQUARES": Kind(
        "mean squares",
        "a mean of squares of the rows, or of their parts outside the span of a basis",
        bound=_bound_of_squares,
    ),
    # These are sums and sums of squares, one for each column of the rows. In an answer to the opening,
    # `core.claims.check_opening` compares them with the product and the peaks of the same answer.
    "COLUMNS": Kind(
        "columns", "the mean and the sum of squared deviations of each column", bound=_bound_of_columns, by_column=True
    ),
    # This is the largest |x| of each column, which is an entry of a row.
    "PEAKS": Kind(
        "peaks",
        "the largest absolute value of each column, which is one true entry",
        bound=_bound_of_columns,
        by_column=True,
        single=True,
    ),
    # This is one vector: the number of clipped rows, and the sum and the sum of squares of each of their columns.
    "MOMENTS": Kind("moments", "the number, the sums and the squares of clipped rows"),
    # This is C_i Z. `Part.of` is the name of Z.
    "PRODUCT": Kind(
        "product",
        "C Z",
        size=_column_lengths,
        bound=lambda reach: reach.squares * reach.lengths(),
        product=True,
        within_trace=True,
        rounded=True,
        reading=AttackReading.PRODUCT,
    ),
    # This is C_i Z with the rows centered at the client's own mean. The answer also contains the mean and n.
    "LOCAL_PRODUCT": Kind(
        "local product",
        "C Z with the rows centered at the node's own mean",
        product=True,
        rounded=True,
        reading=AttackReading.CENTERED,
    ),
    # This is a block that the client chooses, with columns of length one. The answer also has its product with C_i.
    "BLOCK": Kind(
        "block",
        "a basis near the leading eigenvectors of C",
        size=_column_lengths,
        bound=lambda reach: 1.0,
        single=True,
        rounded=True,
    ),
    # This is C_i times a block that the client chooses and does not send.
    "IMAGE": Kind(
        "image",
        "C times a basis near the leading eigenvectors of C",
        size=_column_lengths,
        bound=_bound_of_squares,
        product=True,
        own_block=True,
        within_trace=True,
        rounded=True,
    ),
    # This is C_i itself, packed as in `algorithms.covariance`.
    "GRAM": Kind(
        "gram",
        "all of C at once",
        size=lambda a: np.asarray(np.linalg.norm(a)),
        bound=_bound_of_squares,
        within_trace=True,
        square=True,
        rounded=True,
        reading=AttackReading.WHOLE,
    ),
    # These are the leading eigenvectors of C_i. `algorithms.one_shot` checks that they are orthonormal.
    "EIGENVECTORS": Kind(
        "eigenvectors", "the leading eigenvectors of C", single=True, rounded=True, reading=AttackReading.EIGENVECTORS
    ),
    # These are the leading eigenvalues of C_i, divided by the number of rows.
    "EIGENVALUES": Kind(
        "eigenvalues",
        "the leading eigenvalues of C",
        size=lambda a: np.asarray(np.abs(a).sum()),
        bound=lambda reach: reach.squares / reach.least,
        single=True,
    ),
    # This is the triangular factor R of X_i Z, for a block Z in the message.
    "FACTOR": Kind(
        "factor",
        "Z'CZ",
        size=_column_lengths,
        bound=lambda reach: np.sqrt(reach.squares) * reach.lengths(),
        single=True,
        rounded=True,
        reading=AttackReading.FACTOR,
    ),
    # This is X_i'Q T, where Q is the orthonormal factor that belongs to R, and T is the array that the server sends to
    # this client.
    "LIFTED": Kind(
        "lifted",
        "C times the directions that Z spans",
        size=_column_lengths,
        bound=lambda reach: np.sqrt(reach.squares) * reach.lengths(),
        single=True,
        rounded=True,
        reading=AttackReading.LIFTED,
    ),
    # This is a d x p matrix from which the server computes the next basis. It is as large as a product with C_i.
    "ESTIMATE": Kind(
        "estimate",
        "a matrix with a row for each column, computed step by step from C or from the rows",
        bound=None,
        within_trace=True,
        rounded=True,
    ),
    # This is a p x p matrix of second moments of coordinates in the basis.
    "SCORES": Kind(
        "scores", "second moments of the coordinates of the rows in a basis that the server chooses", bound=None
    ),
    # These are a client's local components, or products in their span.
    "COMPONENTS": Kind(
        "components",
        "the node's own components, or answers in their space",
        size=_column_lengths,
        bound=lambda reach: max(1.0, np.sqrt(reach.n), np.sqrt(reach.squares)),
        rounded=True,
    ),
}
for _name, _kind in _TABLE.items():
    setattr(Kind, _name, _kind)

KINDS: Final = tuple(_TABLE.values())


@dataclass(frozen=True)
class Part:
    """A description of one array of an answer.

    Attributes
    ----------
    shape : Shape
        The length of each dimension, or None for a length that only the client knows, or for d while d is not known.
    kind : Kind
        The kind of quantity.
    of : str
        The name of the array by which the rows are multiplied. The array is in the message, or in the answer if the
        client chooses it. By default, it is the first array of the message with this shape.
    own : bool
        Whether the array contains a node's local results. A node that does not share them sends zeros, or a matrix with
        no columns if only the client knows a length. If all lengths are known, a masked sum may contain the array,
        because nobody sees the array of an individual node.
    """

    shape: Shape = ()
    kind: Kind = Kind.NUMBER
    own: bool = False
    of: str = ""

    @property
    def open(self) -> bool:
        """Whether only the client knows the length of at least one dimension."""
        return None in self.shape

    def block(self, sent: Mapping[str, Array]) -> Array:
        """Return the array of the message with which the client multiplies its rows."""
        if self.of in sent:
            return sent[self.of]
        return next(Z for Z in sent.values() if Z.shape == self.shape)


ROWS: Final = Part(kind=Kind.ROWS)
COUNT: Final = Part(kind=Kind.COUNT)
NUMBER: Final = Part(kind=Kind.NUMBER)
MEAN_SQUARES: Final = Part(kind=Kind.MEAN_SQUARES)


def first_fault(arrays: Mapping[str, Array], parts: Mapping[str, Part]) -> tuple[str, str, str] | None:
    """Return the first fault in the arrays of an answer, or None if all arrays are valid.

    A fault consists of the name of the array, the rule that it breaks, and a description of the fault.
    """
    for name, part in parts.items():
        a = arrays[name]
        fits = a.shape == part.shape or _fits_shape(a.shape, part.shape)
        # Floats of 80 bits, which some machines have, are refused, because LAPACK does not support them.
        if not fits or a.dtype.kind not in "fiu" or a.dtype.itemsize > 8:
            rule = f"a real array of shape {tuple('any' if s is None else s for s in part.shape)}"
            return name, rule, f"has shape {a.shape} and dtype {a.dtype}"
        # The sum of squares usually shows at once that all entries are valid, without additional memory. If an entry is
        # NaN, the comparison is false, and vdot emits no warnings.
        if a.ndim and a.dtype == np.float64 and a.flags.forc and np.vdot(flat := a.ravel("K"), flat) < _ORDINARY:
            continue
        # If an entry is NaN, the largest entry is NaN, too.
        largest = abs(float(a)) if a.ndim == 0 else max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))
        if not math.isfinite(largest):
            return name, "finite", f"has {int(a.size - np.isfinite(a).sum())} NaN or infinite entries"
        if largest > _LARGEST:
            return name, f"at most {_LARGEST:g} in size", f"reaches {largest:g}"
        if part.kind.counts_rows and (a.dtype.kind not in "iu" or not 1 <= a <= _MOST_ROWS):
            return name, f"a whole number from 1 to {_MOST_ROWS:g}", f"is {a}"
    return None


def require_finite(answer: Mapping[str, Array]) -> None:
    """Raise DataError if an answer is not finite. The error reveals nothing about the answer."""
    if not all(np.isfinite(a).all() for a in answer.values()):
        raise DataError(
            "The answer of this node is not finite, so it is not sent. Run flower-pca check on the node's rows."
        )


def _fits_shape(shape_found: tuple[int, ...], shape: Shape) -> bool:
    return len(shape_found) == len(shape) and all(s in (None, t) for s, t in zip(shape, shape_found, strict=True))
