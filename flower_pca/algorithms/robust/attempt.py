"""The server's state of one attempt, in which the threshold falls. `phases` decides how the attempt continues."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import Verdict
from flower_pca.base import linalg
from flower_pca.base.linalg import Array


def orthonormal_moments(U: Array, G: Array) -> tuple[Array, Array]:
    """Return Z, an orthonormal basis of the span of U, and the product L'L Z, where L'L = U G U'."""
    Z, R = linalg.qr(U)
    inner = R @ ((G + G.T) / 2) @ R.T
    return Z, Z @ inner


def relative_change(old: Array, new: Array, G: Array) -> float:
    """Return the relative change of the basis: |A - ZZ'A| / |A| for A = U_new G^(1/2) and Z = orth(U_old).

    Weak components have little influence on this number.
    """
    E = linalg.complement(new, linalg.orth(old))
    whole, off = (float(np.sum((A @ G) * A)) for A in (new, E))
    if whole <= 0.0:
        return 0.0
    return float(np.sqrt(max(off, 0.0) / whole))


def position_of_gap(s: Array, least: float) -> int | None:
    """Return the number of singular values before the widest gap, or None if the ratio at the gap is below `least`."""
    s = np.maximum(s, TINY)
    ratios = s[:-1] / s[1:]
    if not len(ratios) or ratios.max() < least:
        return None
    return int(np.argmax(ratios)) + 1


@dataclass(frozen=True)
class Problem:
    """The sizes, settings and limits that are known before the first attempt.

    Attributes
    ----------
    n, d : int
        The number of rows of all clients, and the number of columns.
    sigma : float
        The size of an ordinary entry.
    top : int
        The exponent of the power of two that is the upper end of the bins by which clients count entries.
    floor : float
        The last threshold without noise, as a share of sigma.
    tol : float
        The basis has settled if its relative change in a round is at most this.
    noise : float or None
        The standard deviation of dense noise, or None to estimate it.
    ridge : float
        The ridge rho, divided by lam sqrt(max(n, d)), where lam is the threshold.
    patience : int
        The number of rounds at the last threshold after which the proof begins, even if the basis still moves.
    least_rounds, most_rounds : int
        Limits for the total number of rounds of all attempts.
    """

    n: int
    d: int
    sigma: float
    top: int
    floor: float
    tol: float
    noise: float | None
    ridge: float
    patience: int
    least_rounds: int
    most_rounds: int

    @property
    def unit_noise_norm(self) -> float:
        """The approximate norm of an n x d matrix of independent entries with standard deviation one."""
        return float(np.sqrt(self.n) + np.sqrt(self.d))


FAR: Final = 10.0  # multiple of the threshold beyond which an entry has no influence if there is no noise
EXACT: Final = 16  # maximum number of columns with which a proof asks for exact matrices
STEPS: Final = 8  # the number of power steps in a proof with more columns
_SEED: Final = 20  # the seed of the first block of these power steps
_RIDGE_FACTOR: Final = 0.1  # the factor of the ridge if there is noise
# With noise, a basis has settled if its change is at most this share of the noise relative to an ordinary entry.
_NOISE_SHARE: Final = 1e-3
# If at most _FEW_BEYOND of the entries lies beyond lam, _FEWER_STEPS inner steps are enough.
_FEW_BEYOND, _FEWER_STEPS = 0.1, 2
_SEARCH_COLUMNS: Final = 2  # the number of columns of the block that searches the residuals for structure
# The residuals have structure if their largest squared singular value exceeds the expected value for independent
# entries by this factor.
_STRUCTURE: Final = 1.8
# A missing component, or a block of outliers, leaves more than this share of all remaining squares in one
# direction.
_MOST_IN_ONE_DIRECTION: Final = 0.2


class AttemptPhase(enum.StrEnum):
    """The phase of an attempt. The table in `phases` defines the transitions between phases."""

    FALLING = "falling"  # The threshold falls to its floor, where the basis settles. No noise has been found.
    NOISY = "noisy"  # The threshold stays at twice the noise.
    MENDING = "mending"  # Some columns are estimated again, with their own threshold.
    PROVING = "proving"  # The messages belong to the proof.
    PROVEN = "proven"  # The attempt has a verdict.
    LOST = "lost"  # The attempt has ended without a proof.


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The state of an attempt.

    The rows are modeled as V U' plus outliers and noise. Each client keeps its part of V.

    Attributes
    ----------
    U : ndarray
        The basis, one column for each component.
    lam, start : float
        The present threshold, and the first threshold.
    gamma : float
        The factor by which the threshold falls.
    phase : AttemptPhase
        The present phase.
    cut : float
        An entry further than this many thresholds from the low-rank part has no influence.
    wide : bool
        Whether the attempt has more columns than requested.
    tag : int
        The number of the basis, by which clients recognize the V of this basis.
    origin : int
        The tag of the earlier basis to which `turn` belongs.
    turn : ndarray or None
        The matrix that maps V of the basis `origin` to V of this basis.
    G : ndarray or None
        The latest sum of V'V, or None before the first answers.
    rounds : int
        The number of rounds at the last threshold, or since the noise was found.
    stop : float
        The change of the basis in the latest round.
    share : float
        The share of all rows at the clients that answered in the latest round.
    early : bool
        Whether it is too early for the run to end.
    noise : float
        The standard deviation s of dense noise, or 0 if there is no noise.
    visible, hidden : float
        s_v and s_h, the sizes of residuals at visible and at hidden entries.
    Z : ndarray or None
        The block that searches the residuals for structure.
    left : tuple of float
        The squared residuals along each direction of the block Z, largest first, as shares of all squared residuals.
    seen : float
        The number of visible entries.
    pulled : float
        The share of visible entries that lie beyond lam.
    again : tuple of int
        Columns that are estimated again. V does not depend on them.
    level : float
        The threshold of the columns that are estimated again.
    mended : bool
        Whether columns were already estimated again.
    whole : Attempt or None
        The attempt before columns were dropped.
    x : ndarray or None
        The block of a proof's power steps.
    steps : int
        The number of power steps so far.
    verdict : Verdict or None
        The result of the latest proof.
    """

    U: Array
    lam: float
    start: float
    gamma: float
    phase: AttemptPhase = AttemptPhase.FALLING
    cut: float = FAR
    wide: bool = False
    tag: int = 0
    origin: int = -1
    turn: Array | None = None
    G: Array | None = None
    rounds: int = 0
    stop: float = np.inf
    share: float = 1.0
    early: bool = False
    noise: float = 0.0
    visible: float = np.inf
    hidden: float = np.inf
    Z: Array | None = None
    left: tuple[float, ...] = (0.0,)
    seen: float = 0.0
    pulled: float = 1.0
    again: tuple[int, ...] = ()
    level: float = 0.0
    mended: bool = False
    whole: Attempt | None = None
    x: Array | None = None
    steps: int = 0
    verdict: Verdict | None = None

    @property
    def p(self) -> int:
        """The number of columns of the basis."""
        return int(self.U.shape[1])

    @property
    def is_proving(self) -> bool:
        """Whether the next message belongs to the attempt's proof."""
        return self.phase is AttemptPhase.PROVING

    @property
    def proof_block(self) -> Array | None:
        """The block of the proof's next power step, or None outside a proof and in a proof with exact matrices."""
        if not self.is_proving or self.p <= EXACT:
            return None
        return np.array(linalg.random_block(len(self.U), self.p, _SEED)) if self.x is None else self.x

    @property
    def is_last_message(self) -> bool:
        """Whether the next message is the last one of the proof."""
        return self.is_proving and (self.p <= EXACT or self.steps + 1 >= STEPS)

    @functools.cached_property
    def singular_values(self) -> Array:
        """The singular values of U, largest first. Small values are inexact, because they are roots of eigenvalues."""
        squares = np.linalg.eigvalsh(self.U.T @ self.U)[::-1]
        return np.sqrt(np.maximum(squares, 0.0))

    def rho(self, problem: Problem) -> float:
        """Return the ridge rho for the present threshold."""
        longer = float(np.sqrt(max(problem.n, problem.d)))
        rho = problem.ridge * self.lam * longer
        if self.noise > 0.0:
            return rho * _RIDGE_FACTOR
        return rho

    def inner_steps(self, most: int) -> int:
        """Return the number of steps for a client's inner problem, at most `most`.

        The number is 0 after the first power step of a proof, because V stays fixed there. One step multiplies
        the error of V by about the share of entries beyond lam. If this share is small, two steps are enough
        while lam falls.
        """
        if self.steps:
            return 0
        if self.phase is AttemptPhase.FALLING and self.pulled <= _FEW_BEYOND:
            return min(most, _FEWER_STEPS)
        return most

    def has_settled(self, problem: Problem) -> bool:
        """Return whether the basis has settled."""
        return self.stop <= max(problem.tol, _NOISE_SHARE * self.noise / problem.sigma)

    def has_structure(self, problem: Problem, *, directions: int = 1) -> bool:
        """Return whether the residuals have a larger variance in this many directions than independent entries."""
        if self.seen == 0.0 or len(self.left) < directions:  # No entry was seen, or there are too few directions.
            return False
        least = _STRUCTURE * problem.unit_noise_norm**2 / self.seen
        return self.left[directions - 1] > least

    def has_correlation(self, problem: Problem) -> bool:
        """Return whether residuals are correlated: they have structure in several directions, not mainly in one."""
        return self.left[0] <= _MOST_IN_ONE_DIRECTION and self.has_structure(problem, directions=_SEARCH_COLUMNS)

    @property
    def known_gram(self) -> Array:
        """The matrix G, which exists once clients have answered."""
        assert self.G is not None
        return self.G

    @property
    def known_verdict(self) -> Verdict:
        """The verdict, which exists once the proof has ended."""
        assert self.verdict is not None
        return self.verdict

    @property
    def spectrum(self) -> Array:
        """The singular values of VU', largest first."""
        values = linalg.rayleigh_ritz(*orthonormal_moments(self.U, self.known_gram))[0]
        return np.asarray(np.sqrt(np.maximum(values, 0.0)))

    def block_for_structure(self, problem: Problem) -> Array:
        """Return a random block that searches the residuals for structure."""
        return linalg.random_basis(problem.d, min(_SEARCH_COLUMNS, problem.d), seed=self.tag)

    def distance_to(self, other: Attempt) -> float:
        """Return the relative distance between the low-rank parts of two attempts.

        The distance is the larger of two numbers: the share of the other low-rank part outside the span of U,
        and the relative difference of the singular values.
        """
        s, t = self.spectrum, other.spectrum
        width = max(len(s), len(t))
        s, t = (np.pad(values, (0, width - len(values))) for values in (s, t))
        size = np.linalg.norm(s) or 1.0
        moved = float(np.linalg.norm(s - t) / size)
        return max(relative_change(self.U, other.U, other.known_gram), moved)
