"""Part: what an array of a client's answer is; what masks, a node's rules and the audit know of an algorithm.

A stage says it once, in `Stage.parts(arrays, d)`: for a message with these arrays, and rows of d columns, what an
answer holds, by name. It needs the message only, so server and client work out the same:

- the server refuses an answer of other names or shapes (`core.replies`), and takes the bounds of fixed point from the
  kinds (`Stage.bounds`);
- masks cover as many numbers as the shapes have, so under masks no side may be open;
- a node holds back what is its own (`clients.base`), and counts what an answer tells of C_i (`clients.policy`);
- the audit reads an answer as what its kind says (`audit.view`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

Shape: TypeAlias = tuple[int | None, ...]

_LARGEST: Final = 1e140  # beyond which sums of squares overflow
_ORDINARY: Final = 1e270  # of a sum of squares, below which no entry is near that
_MOST_ROWS: Final = 10**12


class Kind(Enum):
    """The kinds of quantity, in terms of a client's rows X_i in the common frame, and of C_i = X_i'X_i.

    ROWS          how many rows there are, above 0, always named n; under noise it is 1, and counts clients
    COUNT         how many there are of something else: entries, outliers, clients
    DISTANCES     how many rows lie how far from the components of the message, in bins
    NUMBER        a single figure: a weight, a step, an objective
    SQUARES       a sum of squares of the rows, or of what is left of them
    MEAN_SQUARES  squares of the rows, or of their coordinates in a basis, over the number of rows; maybe weighted
    COLUMNS       one number for each column of the rows: means, squared deviations, counts
    MOMENTS       count, sums and squares of clipped rows in one vector
    PRODUCT       C_i Z, with Z the BLOCK sent beside it, or else the first block of the message that has its shape
    LOCAL_PRODUCT the same of rows centred at the client's own mean, which is sent beside it as n and mean
    BLOCK         a block that the client has chosen, and multiplied
    IMAGE         C_i times a block that the client has chosen, and keeps
    GRAM          C_i itself, packed as covariance does
    EIGENVECTORS  leading eigenvectors of C_i
    EIGENVALUES   their eigenvalues, over the number of rows
    FACTOR        the triangular factor R of X_i Z, for the block Z of the message
    LIFTED        X_i'Q T, with Q the orthonormal factor that belongs to R, and T the message's part for this client
    ESTIMATE      d x p, of which the server makes the next basis; no product with C_i, but as large as one of them
    SCORES        p x p, second moments of coordinates in the basis
    COMPONENTS    a client's own components, beside those that all share
    """

    ROWS = "rows"
    COUNT = "count"
    DISTANCES = "distances"
    NUMBER = "number"
    SQUARES = "squares"
    MEAN_SQUARES = "mean squares"
    COLUMNS = "columns"
    MOMENTS = "moments"
    PRODUCT = "product"
    LOCAL_PRODUCT = "local product"
    BLOCK = "block"
    IMAGE = "image"
    GRAM = "gram"
    EIGENVECTORS = "eigenvectors"
    EIGENVALUES = "eigenvalues"
    FACTOR = "factor"
    LIFTED = "lifted"
    ESTIMATE = "estimate"
    SCORES = "scores"
    COMPONENTS = "components"


# Kinds whose entries are at most trace(C), of whatever client, where blocks are orthonormal.
AS_LARGE_AS_TRACE: Final = frozenset({Kind.PRODUCT, Kind.IMAGE, Kind.ESTIMATE, Kind.SQUARES})
# Kinds that are counts: whole numbers, and no floating-point ones.
WHOLE: Final = frozenset({Kind.ROWS, Kind.COUNT, Kind.DISTANCES})
# Kinds that are made of products, and may have fewer bits: see `rows.precision`.
ROUNDED: Final = frozenset({
    Kind.PRODUCT, Kind.LOCAL_PRODUCT, Kind.ESTIMATE, Kind.EIGENVECTORS, Kind.FACTOR, Kind.BLOCK, Kind.IMAGE, Kind.GRAM,
    Kind.LIFTED, Kind.COMPONENTS,
})  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One array of an answer.

    Attributes:
        shape: Its sides; None for one that only the client knows, and for d where that is not known yet.
        kind: What quantity it is.
        own: Whether it shows a node's own results, beside those that all share. A node that does not agree to that
            sends zeros; where a side is open, a matrix without columns. A masked sum may have own parts of a shape
            that is known, since nobody sees them alone.
    """

    shape: Shape = ()
    kind: Kind = Kind.NUMBER
    own: bool = False

    @property
    def open(self) -> bool:
        """Whether a side of it is known to the client only."""
        return None in self.shape


ROWS: Final = Part(kind=Kind.ROWS)
COUNT: Final = Part(kind=Kind.COUNT)
NUMBER: Final = Part(kind=Kind.NUMBER)
MEAN_SQUARES: Final = Part(kind=Kind.MEAN_SQUARES)


def fault(a: Array, part: Part) -> tuple[str, str] | None:
    """What is wrong with an array that should be this part: the rule, and what it is instead; None for nothing."""
    if not _fits(a.shape, part.shape) or a.dtype.kind not in "fiu" or a.dtype.itemsize > 8:
        rule = f"a real array of shape {tuple('any' if s is None else s for s in part.shape)}"
        return rule, f"shape {a.shape} and dtype {a.dtype}"
    if a.ndim and _ordinary(a):
        return None
    largest = abs(float(a)) if a.ndim == 0 else max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))  # or NaN
    if not math.isfinite(largest):
        return "finite", f"{int(a.size - np.isfinite(a).sum())} NaN or infinite entries"
    if largest > _LARGEST:
        return f"at most {_LARGEST:g} in size", f"{largest:g}"
    if part.kind is Kind.ROWS and (a.dtype.kind not in "iu" or not 1 <= a <= _MOST_ROWS):
        return f"a whole number between 1 and {_MOST_ROWS:g}", f"{a}"
    return None


def _ordinary(a: Array) -> bool:
    """Whether the sum of squares says so much of an array: in one pass, and without memory."""
    if a.dtype != np.float64 or not a.flags.forc:
        return False
    flat = a.ravel("K")
    return bool(np.vdot(flat, flat) < _ORDINARY)  # which NaN is not; vdot warns of nothing


def require_finite(answer: Mapping[str, Array]) -> None:
    """Raise DataError, in words that tell nothing of it, unless an answer can be sent."""
    if not all(np.isfinite(a).all() for a in answer.values()):
        remedy = "Check the frame and the block."
        raise DataError("The answer of this node", must="finite", got="others", then=remedy)


def _fits(found: tuple[int, ...], shape: Shape) -> bool:
    if found == shape:
        return True
    return len(found) == len(shape) and all(s in (None, t) for s, t in zip(shape, found, strict=True))
