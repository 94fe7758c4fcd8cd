"""L-BFGS on the Grassmann manifold: how an ascent goes on from what its last steps have shown of the curvature.

The plain step of `ExactPerPCA`, polar(Z), is U + G(U'Z)^(-1) but for a rotation, G = (I - UU')Z the gradient: it
takes U'Z for the curvature in all directions, which is too much, so that it never overshoots and is short where the
objective is flat. Two points and their gradients say what the curvature between them is. The inverse of it that
`Secants.ahead` multiplies G by agrees with the last such pairs, and is a multiple of that of the plain step beyond
them (Nocedal 1980). Pairs are carried from point to point by rotation and projection.

Pairs along which the gradient grows say nothing of where a maximum is; they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_PAIRS: Final = 10
_BENT: Final = 1e-10  # the least cosine between a step and what the gradient lost along it
_LONGEST: Final = 1.0  # tangent of the largest angle by which a step turns the subspace
_VANISHED: Final = 1e-12  # of the plain step's largest curvature, below which there is none


@dataclass(frozen=True)
class Secant:
    """A step s, and the part y of the gradient that was lost along it: d x r both, tangent at the newest point."""

    s: Array
    y: Array

    @property
    def bent(self) -> bool:
        """Whether the gradient falls along the step, as on the way to a maximum."""
        least = _BENT * float(np.linalg.norm(self.s) * np.linalg.norm(self.y))
        return float(np.sum(self.s * self.y)) > least


@dataclass(frozen=True)
class Secants:
    """The newest point U, the gradient G = (I - UU')Z there, and up to ten pairs, oldest first."""

    U: Array
    G: Array
    pairs: tuple[Secant, ...] = ()

    @classmethod
    def begin(cls, U: Array, Z: Array) -> Secants:
        """At the first point."""
        return cls(U, linalg.complement(Z, U))

    def moved(self, U: Array, Z: Array) -> Secants:
        """At the next point, with the pair that led there."""
        turn, here = linalg.procrustes(self.U, U), Secants.begin(U, Z)
        carried = [Secant(here.tangent(pair.s @ turn), here.tangent(pair.y @ turn)) for pair in self.pairs]
        step = here.tangent(U - self.U @ turn)
        return here.joined([*carried, Secant(step, here.tangent(self.G @ turn) - here.G)])

    def tried(self, U: Array, Z: Array) -> Secants:
        """At the same point, with the pair that leads to one which was tried and given up."""
        turn, there = linalg.procrustes(U, self.U), Secants.begin(U, Z)
        step = self.tangent(U @ turn - self.U)
        return self.joined([*self.pairs, Secant(step, self.G - self.tangent(there.G @ turn))])

    def ahead(self, Z: Array) -> Array | None:
        """Where to go next; None if no pair says anything."""
        if not self.pairs:
            return None
        values, Q = linalg.eigh_descending(self.U.T @ Z)
        values = np.maximum(values, _VANISHED * values[0])
        step, passed = self.G, []
        for pair in reversed(self.pairs):
            along = float(np.sum(pair.s * step) / np.sum(pair.s * pair.y))
            step = step - along * pair.y
            passed.append((pair, along))
        newest = self.pairs[-1]
        plain = ((newest.y @ Q) / values) @ Q.T
        # Never shorter than the plain step, which is sure of its ground.
        longer = max(float(np.sum(newest.s * newest.y) / np.sum(newest.y * plain)), 1.0)
        step = longer * (((step @ Q) / values) @ Q.T)
        for pair, along in reversed(passed):
            step = step + (along - float(np.sum(pair.y * step) / np.sum(pair.s * pair.y))) * pair.s
        return linalg.polar(self.U + step * min(1.0, _LONGEST / linalg.norm2(step)))

    def tangent(self, A: Array) -> Array:
        """(I - UU')A."""
        return np.asarray(A - self.U @ (self.U.T @ A))

    def joined(self, pairs: list[Secant]) -> Secants:
        """With the newest of these pairs."""
        return Secants(self.U, self.G, tuple(pair for pair in pairs if pair.bent)[-_PAIRS:])
