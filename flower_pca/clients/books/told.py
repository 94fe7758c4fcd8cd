"""Told: how many directions of C_i answers have told. What counts is what is learnt, not how blocks look.

A product C_i z tells C_i on one direction. Columns of the rows are scaled to unit size first, w = s z with s_a the root
of the a-th sum of squares about the mean, as entries of C_i are of size s_a s_b: a column of the rows that never varies
then has no part in w, and one that is small beside others counts as they do. Then w is scaled to length one.

Of w there counts what is new: its part outside the directions known. If that is longer than `TOLERANCE` it is one more.
Blocks that are sent again, rotated or orthonormalised anew, have such parts of some 1e-16. All shorter parts are kept,
and when they are as long as the tolerance together, in one direction, that direction counts too. What they could have
told until then is hidden by noise on the answer, ten times as large as the tolerance: see `veil`. So whatever is asked,
a direction that does not count is known with an error of ten times its size.

An answer that is no product of C_i with a block of the message (`OWN`: eigenvectors, local steps, estimates) tells d
numbers for each of its columns: so it counts as that many directions, however little it differs from one before, and
wherever it lies. The very same one counts once. Single figures of this kind count as one, and so does a refusal that
hangs on numbers of the rows and of the message together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np

from flower_pca import registry, wire
from flower_pca.base import linalg
from flower_pca.base.bits import Bits
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import TELLING, Kind, Part
from flower_pca.core.stage import Arrays
from flower_pca.dp.draw import normals
from flower_pca.masking import messages
from flower_pca.stages.opening import drawn
from flower_pca.vertical.rows import TurnedData

TOLERANCE: Final = 1e-13  # of the length of a column: a thousand roundings of double precision
VEILED: Final = frozenset({Kind.PRODUCT, Kind.LOCAL_PRODUCT, Kind.SQUARES, Kind.FACTOR})  # what noise hides parts of
OWN: Final = TELLING | {Kind.ESTIMATE}  # what is made of blocks that the message does not hold
_VEIL: Final = 10.0 * TOLERANCE  # deviation of the noise on a product, of the size of its entries
_LEFT: Final = 32  # directions in which parts too short to count are kept
_FEW: Final = 4  # columns that are worked on at a time
_ASKED: Final = VEILED | {Kind.DISTANCES, Kind.MOMENTS, Kind.SCORES}  # what tells of the blocks in a message
_FIGURES: Final = frozenset({Kind.EIGENVALUES, Kind.MEAN_SQUARES})


@dataclass(frozen=True)
class Told:
    """What was told of d columns.

    Attributes:
        known: An orthonormal basis of the known directions (d x r).
        rest: What was left of columns, in a few directions.
        short: How long it may be in any other direction.
        beside: How many directions more were told, by answers of which nobody knows on which.
        answers: Digests of these answers.
    """

    known: Array
    rest: Array
    short: float = 0.0
    beside: int = 0
    answers: frozenset[str] = frozenset()

    @classmethod
    def nothing(cls, d: int) -> Told:
        """Of d columns, before the first message."""
        return cls(np.empty((d, 0)), np.empty((0, d)))

    @property
    def rank(self) -> int:
        """How many directions are known: all, at most."""
        return min(int(self.known.shape[1]) + self.beside, len(self.known))

    def with_one_more(self) -> Told:
        """After one of which nobody knows which."""
        return replace(self, beside=self.beside + 1)

    def with_own(self, mark: str, count: int) -> Told:
        """After an answer of this digest that tells so many directions, nobody knows which."""
        if mark in self.answers:
            return self
        return replace(self, beside=self.beside + count, answers=self.answers | {mark})

    def with_products(self, Z: Array, size: Array) -> Told:
        """After products with these columns, of rows whose columns have these sizes."""
        found = self
        for part in _few(Z):
            W = linalg.complement(_units(part * size[:, None]), found.known)
            found = found._with(linalg.independent(W, TOLERANCE))._counted(W)
        return found

    def _with(self, new: Array) -> Told:
        if not new.shape[1]:
            return self
        # Short columns are known roughly only: they are made orthogonal once more.
        known = np.hstack([self.known, linalg.orth(linalg.complement(new, self.known))])
        return replace(self, known=known[:, : len(known)])

    def _counted(self, left: Array) -> Told:
        """Count the directions in which what was left of all columns, these among them, has become long together.

        Of shorter ones `_LEFT` are kept apart; the others make all directions longer, so that none is forgotten.
        """
        rest = linalg.complement(np.vstack([self.rest, left.T]).T, self.known).T / TOLERANCE
        values, turned = linalg.eigh_descending(rest @ rest.T)
        lengths, rest = np.sqrt(np.maximum(values, 0.0)), turned.T @ rest
        long = np.hypot(lengths, self.short / TOLERANCE) > 1.0
        short = np.hypot(self.short, TOLERANCE * lengths[_LEFT] if len(lengths) > _LEFT else 0.0)
        told = self._with(linalg.orth(rest[long].T))
        kept = TOLERANCE * rest[:_LEFT]
        return replace(told, rest=linalg.complement(kept.T, told.known).T if long.any() else kept, short=float(short))


def key(group: str, data: object) -> str:
    """By what a ledger knows what is told in a group: of rows, or of columns that are prepared in one way."""
    if not isinstance(data, TurnedData):
        return group
    split = data.split
    return f"people.{group}.{split.scale if split.scale else 'raw'}{'-centred' * split.center}"


def veil(answer: Array, part: Part, arrays: Arrays, size: Array, scale: Array | None, bits: Bits) -> Array:
    """An answer with noise that hides what does not count: a product C_i Z of rows in the frame, the factor of XZ, or a
    sum of squares.

    An entry of a product is of size s_a |w| / scale_a, with w of its column of Z; its noise is 1e-12 of that. Which
    block of the message is its Z, a message may try to hide: it is taken to be the longest of those of its shape. One
    of the factor is of size |w|. Squares are those of the rows and of their products.
    """
    d, size = len(size), size if scale is None else size / scale
    if part.kind is Kind.FACTOR:
        lengths = _lengths(arrays["block"], size)
        return np.asarray(answer + np.triu(_VEIL * lengths * normals(answer.shape, bits)))
    if answer.shape != part.shape:  # of a block that is a vector, say
        rule, got = f"one whose products have shape {part.shape}", f"shape {answer.shape}"
        raise ProtocolError("A message", must=rule, got=got, then="Check the sender.")
    if answer.ndim:
        alike = [a.reshape(d, -1) for a in _blocks(arrays, d) if a.shape == answer.shape]
        if not alike:
            rule, remedy = "with a block of as many columns", "Check the sender."
            raise ProtocolError("Products of a message", must=rule, got=f"shape {answer.shape}", then=remedy)
        lengths = np.max([_lengths(a, size) for a in alike], axis=0)
        hidden = np.array(answer, dtype=np.float64).reshape(d, -1)
        for columns, own in zip(_few(hidden), _few(lengths[None]), strict=True):
            columns += _VEIL * np.outer(size, own[0]) * normals(columns.shape, bits)
        return hidden.reshape(answer.shape)
    Z = blocks(arrays, d)
    lengths = _lengths(Z, size)
    squares = float(size @ size + (lengths @ lengths) * (1.0 + np.sum(Z * Z)))
    return np.asarray(answer + _VEIL * squares * normals((), bits))


def kinds(stage: str, arrays: Arrays, d: int) -> dict[str, Part]:
    """What an answer is made of, where a product with a block of the node's own is such a block itself."""
    parts = dict(registry.STAGES[stage].parts(arrays, d))
    if any(part.kind is Kind.BLOCK for part in parts.values()):
        return {name: replace(p, kind=Kind.IMAGE) if p.kind is Kind.PRODUCT else p for name, p in parts.items()}
    return parts


def asked(stage: str, request: wire.Request, d: int) -> Array:
    """The columns of a message whose products with C_i an answer tells, in the rows' own units.

    Those of all its blocks, whatever they are for.
    """
    arrays = messages.plain(request.arrays)
    tells = any(part.kind in _ASKED for part in kinds(stage, arrays, d).values())
    found = blocks(arrays, d) if tells else np.empty((d, 0))
    return found if request.frame.scale is None else found / request.frame.scale[:, None]


def own(stage: str, request: wire.Request, d: int, up: Arrays) -> Iterator[tuple[str, int]]:
    """What an answer tells of itself: the digest of each part, and how many directions that is worth."""
    parts = kinds(stage, messages.plain(request.arrays), d)
    said = {name: a for name, a in up.items() if a.any()}
    blocks = [a for name, a in said.items() if parts[name].kind in OWN]
    for a in blocks:
        yield _mark(a), a.shape[1] if a.ndim == 2 and len(a) == d else d
    for name, a in said.items():
        if not blocks and parts[name].kind in _FIGURES:
            yield _mark(a), 1


def _mark(a: Array) -> str:
    return sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:32]


def blocks(arrays: Arrays, d: int) -> Array:
    """All that can stand for columns in a message, side by side."""
    found = [a.reshape(d, -1) for a in _blocks(arrays, d)] or [np.empty((d, 0))]
    return (found[0] if len(found) == 1 else np.hstack(found)).astype(np.float64, copy=False)


def _blocks(arrays: Arrays, d: int) -> list[Array]:
    found = [a for a in arrays.values() if a.ndim and len(a) == d]
    if "seed" in arrays and "width" in arrays:
        found.append(drawn(d, int(arrays["width"]), int(arrays["seed"])))
    return found


def _few(Z: Array) -> list[Array]:
    """A few columns at a time, which keeps what is made of them small beside the block."""
    return [Z[:, i : i + _FEW] for i in range(0, Z.shape[1], _FEW)]


def _lengths(Z: Array, size: Array) -> Array:
    """The lengths of the columns of a block, in units of the rows' columns."""
    return np.concatenate([np.empty(0), *(linalg.column_norms(part * size[:, None]) for part in _few(Z))])


def _units(columns: Array) -> Array:
    """Columns of length one, without those of zeros. The largest entry goes first: squares of small ones are none."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    columns = columns[:, largest > 0.0] / largest[largest > 0.0]
    return np.asarray(columns / linalg.column_norms(columns))
