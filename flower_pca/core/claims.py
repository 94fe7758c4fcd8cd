"""Claims: what a client has said of its own rows in the opening, and how large its later answers can be by that.

By Cauchy-Schwarz |C_i z| <= t_i |z|, with t_i the sum of squares of client i's rows in the common frame, and likewise
for all that is made of products with C_i: an answer beyond that is of other rows, or of none. So a client that has gone
wrong, or wants to ruin the run, is named and left out, whatever the others hold. `Judge` has a rule for each kind of
quantity:

| kind                        | is held against                                                    |
| --------------------------- | ------------------------------------------------------------------ |
| ROWS                        | n_i itself                                                         |
| COUNT                       | 0, and n_i d                                                       |
| DISTANCES                   | n_i, all bins together                                             |
| PRODUCT                     | t_i times the lengths of the columns that are multiplied           |
| IMAGE, BLOCK                | t_i, and 1: the columns that a client chooses are of length one    |
| SQUARES, MEAN_SQUARES, GRAM | t_i                                                                |
| EIGENVALUES                 | t_i / n_i, all of them together                                    |
| FACTOR, LIFTED              | the root of t_i, times the lengths of the columns in the message   |
| COMPONENTS                  | the roots of n_i and t_i, or 1, whichever is most                  |
| ESTIMATE, SCORES, NUMBER    | `MARGIN` times the stage's own bound, for rows of n_i and t_i only |

The opening, which t_i comes from, is held against its own squares by `check_opening`. EIGENVECTORS are orthonormal, as
one_shot sees to. A stage that knows no bound of a part has none here either: dcf_pca of its factor, low_rank of its
moments. Nothing is known under masks, where no answer is seen alone, nor with noise. A client without a claim, as one
that came later, is given `MARGIN` times all rows together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Kind, Part
from flower_pca.core.model import Claim, Model
from flower_pca.core.stage import MARGIN, Arrays, Stage
from flower_pca.rows.frame import Frame, Moments

_SLACK: Final = 1e-3  # by which sums in single precision may be off
_COARSE: Final = 2.0**-38  # of the largest number of a column, by which others may be off that have 16 bits
_ROUNDED: Final = 8.0  # roundings of the squares of raw rows, which frames take away again
_JUDGED: Final = frozenset({Kind.ESTIMATE, Kind.SCORES, Kind.NUMBER})
_REMEDY: Final = "Check the client's data."


def claim(said: Arrays, frame: Frame) -> Claim:
    """What a client's answer to the opening comes to in a frame: its rows, and their sum of squares.

    Its gaps are filled as the frame says. What rounding may add is added, at the precision that the client has named.
    """
    n, mean, centre = int(said["n"]), said["mean"], 0.0 if frame.mean is None else frame.mean
    squares = Moments(n, mean, said["m2"], said.get("count")).sums(frame)[1]
    rounded = _ROUNDED * float(said["eps"]) * n * (mean**2 + np.square(centre))
    return Claim(n, float(np.sum(squares + (rounded if frame.scale is None else rounded / frame.scale**2))))


def check_opening(said: Arrays, block: Array, *, bits: int = 64) -> None:
    """Require of an answer to the opening what its own moments allow of its product with a block, and of its peaks.

    By Cauchy-Schwarz |x_a'Xb| <= |x_a| sum_j |x_j| |b_j|. The largest |x| of a column is no less than the root of its
    mean square, and no further from its mean than the root of its squared deviations. Columns that never vary have
    products all the same, of what rounding has left in their means. Where numbers travel with 16 bits, what is small
    beside the largest of its column is off by more than its own rounding.
    """
    size, eps = np.sqrt(said["m2"].astype(np.float64)), float(said["eps"])
    rounded = float(said["n"]) * (4.0 * np.finfo(np.float64).eps * said["mean"].astype(np.float64)) ** 2
    own = np.sqrt(size**2 + rounded)
    most = np.outer(own, own @ np.abs(block))
    limit = (1.0 + _SLACK) * most + eps * np.max(most, initial=0.0)
    if bits == 16:
        limit = limit + _COARSE * np.max(most, axis=0, initial=0.0)
    if (np.abs(said["product"]) > limit).any():
        rule, got = "as small as the squared deviations beside it say", "larger entries"
        raise ProtocolError("The product of an answer to the opening", must=rule, got=got, then="Check the client.")
    if "peak" in said:
        seen, mean = np.asarray(said.get("count", said["n"])), np.abs(said["mean"])
        least = (1.0 - _SLACK) * np.sqrt(said["m2"] / np.maximum(seen, 1) + mean**2)
        fits = (said["peak"] >= least) & (said["peak"] <= (1.0 + _SLACK) * (mean + size) + _ROUNDED * eps * mean)
        if not (fits | (seen == 0)).all():
            rule = "as far out as the means and squared deviations beside them say"
            raise ProtocolError(
                "The peaks of an answer to the opening", must=rule, got="others", then="Check the client."
            )


@dataclass(frozen=True)
class Judge:
    """Holds answers to one message against what clients have said of their rows.

    Args:
        stage: The stage that asks.
        state: Its state.
        model: What is known; without claims nothing is checked.
    """

    stage: Stage[Any]
    state: Any
    model: Model
    _known: dict[int, Array] = field(default_factory=dict, repr=False)  # lengths of the message's columns, by array

    def check(self, client: int, up: Arrays, parts: Mapping[str, Part], sent: Arrays) -> None:
        """Raise ProtocolError, naming the client, unless its answer can be of the rows that it has told of.

        Args:
            client: Who has answered.
            up: What.
            parts: What the answer is made of.
            sent: The message that it has got.
        """
        model = self.model
        if not model.claims:
            return
        known = model.claims.get(client)
        own = known or Claim(int(MARGIN * model.n), MARGIN * model.trace)
        for name, part in parts.items():
            if part.kind is Kind.ROWS:
                if known is not None and int(up[name]) != own.n:
                    rule, got = f"{own.n}, as in its answer to the opening", f"{up[name]}"
                    raise ProtocolError(f"The answer of client {client}, {name},", must=rule, got=got, then=_REMEDY)
                continue
            size = _size(part.kind, up[name])
            if part.kind in _JUDGED:
                most = self._judged(name, own)
            else:
                most = self._most(part, sent, parts, own, least=1 if known is None else own.n)
            if (size > (1.0 + _SLACK) * most).any():
                rows = "its own rows" if known is not None else f"{MARGIN:g} times all rows together"
                what = f"The answer of client {client}, {name},"
                raise ProtocolError(what, must=f"as small as {rows} allow", got="larger entries", then=_REMEDY)

    def _judged(self, name: str, own: Claim) -> Any:
        """The stage's own bound of one client's answer, as if there were these rows only; inf where it knows none."""
        alone = replace(self.model, n=own.n, trace=own.squares)
        bound = np.asarray(self.stage.bounds(self.state, alone).get(name, 0.0))
        return np.where(bound > 0.0, MARGIN * bound, np.inf)

    def _most(self, part: Part, sent: Arrays, parts: Mapping[str, Part], own: Claim, *, least: int) -> Any:
        """How large that can be by Cauchy-Schwarz, of `least` rows at least; infinite where it says nothing."""
        t = own.squares
        match part.kind:
            case Kind.PRODUCT:
                chosen = any(p.kind is Kind.BLOCK for p in parts.values())
                return t if chosen else t * self._lengths(block_like(sent, part))
            case Kind.IMAGE | Kind.SQUARES | Kind.MEAN_SQUARES | Kind.GRAM:
                return t
            case Kind.EIGENVALUES:
                return t / least
            case Kind.BLOCK:
                return 1.0
            case Kind.FACTOR:
                return np.sqrt(t) * self._lengths(sent["block"])
            case Kind.LIFTED:
                return np.sqrt(t) * self._lengths(sent["part"])
            case Kind.COMPONENTS:
                return max(1.0, np.sqrt(own.n), np.sqrt(t))
            case Kind.COUNT:
                return max(1.0, float(own.n) * self.model.d)
            case Kind.DISTANCES:
                return float(own.n)
        return np.inf

    def _lengths(self, Z: Array) -> Array:
        """Of the columns of an array of the message, which most clients have got alike."""
        if id(Z) not in self._known:
            self._known[id(Z)] = linalg.column_norms(Z)
        return self._known[id(Z)]


def _size(kind: Kind, a: Array) -> Array:
    """What of an array is held against its bound."""
    a = np.asarray(a, dtype=np.float64)
    match kind:
        case Kind.PRODUCT | Kind.IMAGE | Kind.BLOCK | Kind.FACTOR | Kind.LIFTED | Kind.COMPONENTS:
            return np.asarray(np.sqrt(np.einsum("ij,ij->j", a, a)))  # no entry is so large that its square overflows
        case Kind.GRAM:
            return np.asarray(np.linalg.norm(a))
        case Kind.EIGENVALUES:
            return np.asarray(np.abs(a).sum())
        case Kind.COUNT:
            return np.asarray(np.where(a >= 0.0, a, np.inf))
        case Kind.DISTANCES:
            return np.where((a >= 0.0).all(axis=-1), a.sum(axis=-1), np.inf)
    return np.abs(a)


def block_like(sent: Arrays, part: Part) -> Array:
    """The first block of a message that has the shape of this part."""
    return next(Z for Z in sent.values() if Z.shape == part.shape)
