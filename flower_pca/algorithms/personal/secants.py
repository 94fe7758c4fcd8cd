"""L-BFGS on the Grassmann manifold: how an ascent goes on from the curvature its last steps show.

The plain step of `ExactPerPCA`, polar(Z), is U + G(U'Z)^(-1) but for a rotation, G = (I - UU')Z the
gradient: it takes U'Z for the curvature in all directions, which is too much, so that it never
overshoots and is short where the objective is flat. Two points and their gradients say what the
curvature between them is. The inverse of it that `Secants.ahead` multiplies G by agrees with the
last such pairs, and is a multiple of that of the plain step beyond them (Nocedal 1980). Pairs are
carried from point to point by rotation and projection.

Pairs along which the gradient grows say nothing of where a maximum is; a step is taken without
them. But they show that there is none yet: `Secants.curvature` is the largest there is along the
last steps, above 0 on a saddle.

The rule that ends a run by its objective: no more to be had, and no saddle.

An objective that hardly rises may be that of a saddle, from which it rises again: there the
curvature along the last steps is above 0, or on its way there. At a maximum it is below, and stays
what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_ROUNDS: Final = 10  # in which the objective is to have hardly risen
_LATEST: Final = 4  # curvatures that are to agree
_AGREED: Final = 0.2  # of the newest one


@dataclass(frozen=True)
class Gains:
    """The objective after each of the last rounds, and the curvatures that were seen in them.

    Attributes:
        promise: By how much the next step is to raise the objective.
        sine: Of the largest angle by which that step turns the subspace.
    """

    objectives: tuple[float, ...] = ()
    curvatures: tuple[float, ...] = ()
    promise: float = np.inf
    sine: float = np.inf

    def add(self, objective: float, curvature: float, promise: float, sine: float) -> Gains:
        """After a round."""
        objectives = (*self.objectives, objective)[-_ROUNDS - 1 :]
        return Gains(objectives, (*self.curvatures, curvature)[-_LATEST:], promise, sine)

    def without(self) -> Gains:
        """After a round whose step was given up."""
        return replace(self, objectives=(*self.objectives, *self.objectives[-1:])[-_ROUNDS - 1 :])

    def reason_to_end(self, tol: float) -> str:
        """Why there is no more to be had than this share of the objective; empty while there is."""
        if len(self.objectives) <= _ROUNDS or len(self.curvatures) < _LATEST:
            return ""
        best, largest = self.objectives[-1], max(self.curvatures)
        gained = best - self.objectives[0]
        agreed = largest - min(self.curvatures) <= _AGREED * abs(self.curvatures[-1])
        if max(gained, self.promise) > tol * abs(best) or largest >= 0.0 or not agreed:
            return ""
        rise = f"{gained / abs(best):.2g} of itself in {_ROUNDS} rounds, at most gain_tol={tol:.2g}"
        left = f"the next step would turn the shared components by a sine of {self.sine:.2g}"
        return f"the objective has gained {rise}, and bends down along all steps in them; {left}"


_PAIRS: Final = 10
# the least cosine between a step and what the gradient lost along it
_BENT: Final = 1e-10
_LONGEST: Final = 1.0  # tangent of the largest angle by which a step turns the subspace
# of the plain step's largest curvature, below which there is none
_VANISHED: Final = 1e-12
# singular value of ten steps of length one, below which a direction is no step of its own
_ALIKE: Final = 1e-2


@dataclass(frozen=True)
class Secant:
    """A step s, and the part y of the gradient that was lost along it: d x r both, tangent at the newest point."""

    s: Array
    y: Array

    @property
    def bent(self) -> bool:
        """Whether the gradient falls along the step, as on the way to a maximum."""
        sizes = np.linalg.norm(self.s) * np.linalg.norm(self.y)
        return float(np.sum(self.s * self.y)) > _BENT * float(sizes)


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

    def at_next(self, here: Secants) -> Secants:
        """At the next point, with the pair that led there."""
        turn = linalg.procrustes(self.U, here.U)
        carried = [Secant(here.tangent(pair.s @ turn), here.tangent(pair.y @ turn)) for pair in self.pairs]
        step = here.tangent(here.U - self.U @ turn)
        newest = Secant(step, here.tangent(self.G @ turn) - here.G)
        return here.with_pairs([*carried, newest])

    def with_try(self, there: Secants) -> Secants:
        """At the same point, with the pair that leads to one which was tried and given up."""
        turn = linalg.procrustes(there.U, self.U)
        step = self.tangent(there.U @ turn - self.U)
        newest = Secant(step, self.G - self.tangent(there.G @ turn))
        return self.with_pairs([*self.pairs, newest])

    def ahead(self, Z: Array) -> tuple[Array, float] | None:
        """Where to go next, and how much the objective is to rise; None if no pair says so."""
        bent = [pair for pair in self.pairs if pair.bent]
        if not bent:
            return None
        values, Q = self._plain(Z)
        step, passed = self.G, []
        for pair in reversed(bent):
            along = float(np.sum(pair.s * step) / np.sum(pair.s * pair.y))
            step = step - along * pair.y
            passed.append((pair, along))
        newest = bent[-1]
        plain = ((newest.y @ Q) / values) @ Q.T
        # Never shorter than the plain step, which is sure of its ground.
        longer = max(float(np.sum(newest.s * newest.y) / np.sum(newest.y * plain)), 1.0)
        step = longer * (((step @ Q) / values) @ Q.T)
        for pair, along in reversed(passed):
            off = float(np.sum(pair.y * step) / np.sum(pair.s * pair.y))
            step = step + (along - off) * pair.s
        step = step * min(1.0, _LONGEST / linalg.norm2(step))
        return linalg.polar(self.U + step), float(np.sum(step * self.G))

    def curvature(self, Z: Array) -> float:
        """The largest curvature of the objective along the last steps, in those of a plain step.

        It is below 0 near a maximum, as far as these steps can tell: the largest Ritz value of the
        Hessian.
        """
        values, Q = self._plain(Z)
        lengths = [float(np.linalg.norm((pair.s @ Q) * np.sqrt(values))) for pair in self.pairs]
        steps = [((p.s @ Q) * np.sqrt(values) / size).ravel() for p, size in zip(self.pairs, lengths, strict=True)]
        fallen = [((p.y @ Q) / np.sqrt(values) / size).ravel() for p, size in zip(self.pairs, lengths, strict=True)]
        left, sizes, right = np.linalg.svd(np.stack(steps, axis=1), full_matrices=False)
        apart = sizes > _ALIKE
        # where they are not, rounding may leave a size of 0
        H = -(left.T @ np.stack(fallen, axis=1) @ right.T / np.where(apart, sizes, 1.0))[np.ix_(apart, apart)]
        return float(np.linalg.eigvalsh((H + H.T) / 2.0)[-1])

    def _plain(self, Z: Array) -> tuple[Array, Array]:
        """The eigenvalues and eigenvectors of U'Z, a plain step's curvature in all directions."""
        values, Q = linalg.eigh_descending(self.U.T @ Z)
        return np.maximum(values, _VANISHED * values[0]), Q

    def tangent(self, A: Array) -> Array:
        """(I - UU')A."""
        return np.asarray(A - self.U @ (self.U.T @ A))

    def with_pairs(self, pairs: list[Secant]) -> Secants:
        """With the newest of these pairs, but for steps of no length."""
        bent = tuple(pair for pair in pairs if np.any(pair.s))
        return replace(self, pairs=bent[-_PAIRS:])
