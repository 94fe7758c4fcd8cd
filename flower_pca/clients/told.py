"""Told: how many directions of C_i products with it have told. What counts is what is learnt, not how blocks look.

A product C_i z tells C_i on one direction. Columns of the rows are scaled to unit size first, w = s z with s_a the root
of the a-th sum of squares about the mean, as entries of C_i are of size s_a s_b: a column of the rows that never varies
then has no part in w, and one that is small beside others counts as they do. Then w is scaled to length one.

Of w there counts what is new: its part outside the directions known. If that is longer than `TOLERANCE` it is one more.
Blocks that are sent again, rotated or orthonormalised anew, have such parts of some 1e-16. All shorter parts are kept,
and when they are as long as the tolerance together, in one direction, that direction counts too. What they could have
told until then is hidden by noise on the answer, ten times as large as the tolerance: see `veil`. So whatever is asked,
a direction that does not count is known with an error of ten times its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca import registry, wire
from flower_pca.base import linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.parts import TELLING, Part
from flower_pca.core.stage import Arrays
from flower_pca.dp.draw import Bits, normals
from flower_pca.masking import messages
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.turned import TurnedData
from flower_pca.stages.opening import drawn

TOLERANCE: Final = 1e-13  # of the length of a column: a thousand roundings of double precision
_VEIL: Final = 10.0 * TOLERANCE  # deviation of the noise on a product, of the size of its entries


@dataclass(frozen=True)
class Told:
    """An orthonormal basis of the known directions (d x r), and the triangular factor of what was left of columns."""

    known: Array
    rest: Array

    @classmethod
    def nothing(cls, d: int) -> Told:
        """Of d columns, before the first message."""
        return cls(np.empty((d, 0)), np.empty((0, d)))

    @property
    def rank(self) -> int:
        """How many directions are known."""
        return int(self.known.shape[1])

    def with_products(self, Z: Array, size: Array) -> Told:
        """After products with these columns, of rows whose columns have these sizes."""
        W = _units(Z * size[:, None])
        new = linalg.independent(linalg.complement(W, self.known), TOLERANCE)
        told = self._with(new)
        rest = np.vstack([self.rest, linalg.complement(W, self.known).T])
        return told._counted(rest)

    def _with(self, new: Array) -> Told:
        # Short columns are known roughly only: they are made orthogonal once more.
        known = np.hstack([self.known, linalg.orth(linalg.complement(new, self.known))])
        return Told(known[:, : len(known)], self.rest)

    def _counted(self, rest: Array) -> Told:
        """Count the directions in which what was left of all columns has become long together."""
        rest = linalg.complement(rest.T, self.known).T
        factor = np.asarray(np.linalg.qr(rest, mode="r"))
        _, lengths, V = np.linalg.svd(factor, full_matrices=False)
        long = lengths > TOLERANCE
        if not long.any():
            return Told(self.known, factor)
        told = self._with(V[long].T)
        return Told(told.known, linalg.complement(factor.T, told.known).T)


def sizes(data: LocalData, fixed: Callable[[LocalData], FixedData] | None) -> Array:
    """The roots of the columns' sums of squares about their means; from the statistics that answers come from."""
    if isinstance(data, TurnedData):  # of which products are asked as they are
        return np.asarray(np.sqrt(data.squares))
    return np.asarray(np.sqrt((data if fixed is None else fixed(data)).moments().m2))


def key(group: str, data: object) -> str:
    """By what a ledger knows what is told in a group: of rows, or of columns that are prepared in one way."""
    if not isinstance(data, TurnedData):
        return group
    split = data.split
    return f"people.{group}.{split.scale if split.scale else 'raw'}{'-centred' * split.center}"


def veil(answer: Array, part: Part, arrays: Arrays, size: Array, scale: Array | None, bits: Bits) -> Array:
    """An answer with noise that hides what does not count: a product C_i Z of rows in the frame, or a sum of squares.

    An entry of a product is of size s_a |w| / scale_a, with w of its column of Z; its noise is 1e-12 of that. Which
    block of the message is its Z, a message may try to hide: it is taken to be the longest of those of its shape.
    Squares are those of the rows and of their products.
    """
    d, size = len(size), size if scale is None else size / scale
    if answer.shape != part.shape:  # of a block that is a vector, say
        rule, got = f"one whose products have shape {part.shape}", f"shape {answer.shape}"
        raise ProtocolError("A message", must=rule, got=got, then="Check the sender.")
    if answer.ndim:
        alike = [a.reshape(d, -1) for a in _blocks(arrays, d) if a.shape == answer.shape]
        if not alike:
            rule, remedy = "with a block of as many columns", "Check the sender."
            raise ProtocolError("Products of a message", must=rule, got=f"shape {answer.shape}", then=remedy)
        lengths = np.max([linalg.column_norms(a * size[:, None]) for a in alike], axis=0)
        noise = np.outer(size, lengths) * normals((d, len(lengths)), bits)
        return np.asarray(answer + _VEIL * noise.reshape(answer.shape))
    Z = blocks(arrays, d)
    lengths = linalg.column_norms(Z * size[:, None])
    squares = float(size @ size + (lengths @ lengths) * (1.0 + np.sum(Z * Z)))
    return np.asarray(answer + _VEIL * squares * normals((), bits))


def columns(stage: str, request: wire.Request, d: int, up: Arrays) -> Array:
    """The columns whose products with C_i an answer tells, in the rows' own units.

    Those of the blocks in the message, whatever they are for, and directions of C_i that the answer itself brings.
    """
    arrays = messages.plain(request.arrays)
    parts = registry.STAGES[stage].parts(arrays, d)
    shown = [a for name, a in up.items() if parts[name].kind in TELLING]
    own = [a if a.ndim == 2 and len(a) == d else np.eye(d) for a in shown]
    found = np.hstack([blocks(arrays, d), *own]).astype(np.float64)
    return found if request.frame.scale is None else found / request.frame.scale[:, None]


def blocks(arrays: Arrays, d: int) -> Array:
    """All that can stand for columns in a message, side by side."""
    return np.hstack([np.empty((d, 0)), *(a.reshape(d, -1) for a in _blocks(arrays, d))]).astype(np.float64)


def _blocks(arrays: Arrays, d: int) -> list[Array]:
    found = [a for a in arrays.values() if a.ndim and len(a) == d]
    if "seed" in arrays and "width" in arrays:
        found.append(drawn(d, int(arrays["width"]), int(arrays["seed"])))
    return found


def _units(columns: Array) -> Array:
    """Columns of length one, without those of zeros. The largest entry goes first: squares of small ones are none."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    columns = columns[:, largest > 0.0] / largest[largest > 0.0]
    return np.asarray(columns / linalg.column_norms(columns))
