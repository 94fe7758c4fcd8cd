"""Attempt: one way down with the threshold, at the server: where it stands. How it moves on is in `phases`."""

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


def moments(U: Array, G: Array) -> tuple[Array, Array]:
    """An orthonormal basis Z of span(U), and L'L Z for L'L = U G U'."""
    Z, R = linalg.qr(U)
    inner = R @ ((G + G.T) / 2) @ R.T
    return Z, Z @ inner


def change(old: Array, new: Array, G: Array) -> float:
    """|A - ZZ'A| / |A| for A = U_new G^(1/2), Z = orth(U_old): weak components weigh little."""
    E = linalg.complement(new, linalg.orth(old))
    whole, off = (float(np.sum((A @ G) * A)) for A in (new, E))
    if whole <= 0.0:
        return 0.0
    return float(np.sqrt(max(off, 0.0) / whole))


def gap(s: Array, least: float) -> int | None:
    """How many singular values come before the widest gap, if that is a ratio of `least`."""
    s = np.maximum(s, TINY)
    ratios = s[:-1] / s[1:]
    if not len(ratios) or ratios.max() < least:
        return None
    return int(np.argmax(ratios)) + 1


@dataclass(frozen=True)
class Problem:
    """What is known before the first attempt, and what was asked for.

    Attributes
    ----------
    n, d : int
        Rows of all clients, and columns.
    sigma : float
        The size of an ordinary entry.
    top : int
        Where bins of entries by size end, as a power of two.
    floor : float
        Of sigma: where lam ends without noise.
    tol : float
        At which change of the basis it counts as at rest.
    noise : float or None
        The deviation of dense noise; None if it is to be estimated.
    ridge : float
        rho / (lam sqrt(max(n, d))).
    patience : int
        Rounds at the end of an attempt, in which the basis should come to rest.
    least_rounds, most_rounds : int
        Of all attempts together.
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
    def edge(self) -> float:
        """sqrt(n) + sqrt(d): the norm of so many independent entries of deviation one."""
        return float(np.sqrt(self.n) + np.sqrt(self.d))


FAR: Final = 10.0  # thresholds beyond which an entry pulls no more, where there is no noise
EXACT: Final = 16  # columns up to which a proof asks for matrices
STEPS: Final = 8  # power steps of a proof, where there are more
_SEED: Final = 20
_SOFTER: Final = 0.1  # The share of the ridge that is left if there is noise.
# A basis counts as at rest below this share of the noise over an ordinary entry.
_ROUGH: Final = 1e-3
# The share of entries beyond lam up to which so many steps do.
_RARE, _FEWER = 0.1, 2
_LOOKING: Final = 2  # columns of the block that looks for structure in what is left
# square of the largest singular value of what is left, over that of independent entries
_STRUCTURE: Final = 1.8
# All columns tell more than a few do if they leave at most this share of the error at hidden entries.
_BETTER: Final = 0.9
# A component or a block leaves more than this share of all remaining squares in one direction.
_MOST_LEFT: Final = 0.2
# times tol: hidden entries nearer than that say nothing of structure
_AT_REST: Final = 10.0


class AttemptPhase(enum.StrEnum):
    """Where an attempt stands. What leads from one to the next is the table in `phases`."""

    FALLING = "falling"  # the threshold falls to its floor, and the basis comes to rest there: no noise
    NOISY = "noisy"  # the threshold stays at twice the noise
    MENDING = "mending"  # some columns are found anew, from a threshold of their own
    PROVING = "proving"
    PROVEN = "proven"  # there is a verdict
    LOST = "lost"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Where an attempt stands.

    Attributes
    ----------
    U, G
        The basis, and the newest sum of V'V, None before there is one.
    lam : float
        The threshold; start: the first one.
    gamma : float
        By which it falls.
    phase : AttemptPhase
        See above.
    cut : float
        Thresholds beyond which an entry pulls no more.
    wide : bool
        Whether it has more columns than were asked for.
    tag : int
        What V at the clients belongs to; `origin`: the tag of a V that `turn` leads from to this one.
    rounds : int
        At the floor, or of this noise.
    stop : float
        The change of the basis in the newest round.
    share : float
        The share of the rows that answered it.
    early : bool
        Whether it was too early for an end.
    course : tuple of tuple
        lam and s_h of the newest rounds.
    noise : float
        s; 0 for none. visible, hidden: s_v and s_h.
    Z : ndarray or None
        The block that looks for structure in what is left, and `left`, the squares of what it has found, largest first,
        as shares of all squares that are left; `lefts`: the first of them in the newest rounds.
    seen : float
        How many entries are visible.
    again : tuple of int
        Columns that are found anew, from their own threshold `level`: no V rests on these.
    mended : bool
        Whether some were.
    pulled : float
        The share of visible entries that lay beyond lam.
    whole : Attempt or None
        Where it stood with all its columns, if it has fewer now.
    x : ndarray or None
        Of a proof by power steps, where they have led to; `steps`: how many there were.
    verdict : Verdict or None
        What the newest proof has come to.
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
    course: tuple[tuple[float, float], ...] = ()
    noise: float = 0.0
    visible: float = np.inf
    hidden: float = np.inf
    Z: Array | None = None
    left: tuple[float, ...] = (0.0,)
    lefts: tuple[float, ...] = ()
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
        """Columns."""
        return int(self.U.shape[1])

    @property
    def proving(self) -> bool:
        """Whether the coming message is one of its proof."""
        return self.phase is AttemptPhase.PROVING

    @property
    def block(self) -> Array | None:
        """What the coming power step of its proof begins with; None where matrices are sent."""
        if not self.proving or self.p <= EXACT:
            return None
        return np.array(linalg.random_block(len(self.U), self.p, _SEED)) if self.x is None else self.x

    @property
    def last(self) -> bool:
        """Whether the coming message is the last one of its proof."""
        return self.proving and (self.p <= EXACT or self.steps + 1 >= STEPS)

    @functools.cached_property
    def lengths(self) -> Array:
        """The singular values of U, largest first, up to rounding of its squares."""
        squares = np.linalg.eigvalsh(self.U.T @ self.U)[::-1]
        return np.sqrt(np.maximum(squares, 0.0))

    def rho(self, problem: Problem) -> float:
        """The ridge."""
        longer = float(np.sqrt(max(problem.n, problem.d)))
        rho = problem.ridge * self.lam * longer
        if self.noise > 0.0:
            return rho * _SOFTER
        return rho

    def inner_steps(self, most: int) -> int:
        """Steps of a client's inner problem, of so many.

        V stays while it is proven. One step leaves of its error about the share of entries beyond
        lam: where these are few, two do while lam falls.
        """
        if self.steps:
            return 0
        if self.phase is AttemptPhase.FALLING and self.pulled <= _RARE:
            return min(most, _FEWER)
        return most

    def rests(self, problem: Problem) -> bool:
        """Whether the basis is at rest."""
        return self.stop <= max(problem.tol, _ROUGH * self.noise / problem.sigma)

    def has_structure(self, problem: Problem, *, directions: int = 1) -> bool:
        """Whether dense noise leaves more in so many directions than independent entries would."""
        if self.seen == 0.0 or self.hidden <= _AT_REST * problem.tol * problem.sigma or len(self.left) < directions:
            # there is no noise, or none that a basis at rest to tol could be told from
            return False
        least = _STRUCTURE * problem.edge**2 / self.seen
        return self.left[directions - 1] > least

    def has_correlation(self, problem: Problem) -> bool:
        """Whether what is left is structured as correlated residuals are: in several directions, not mostly in one."""
        return self.left[0] <= _MOST_LEFT and self.has_structure(problem, directions=_LOOKING)

    @property
    def too_narrow(self) -> bool:
        """Whether all its columns have told more of hidden entries than those that it has left."""
        return self.whole is not None and self.whole.hidden < _BETTER * self.hidden

    @property
    def gram(self) -> Array:
        """G, which there is once clients have answered."""
        assert self.G is not None
        return self.G

    @property
    def judged(self) -> Verdict:
        """The verdict, which there is once its proof has ended."""
        assert self.verdict is not None
        return self.verdict

    @property
    def spectrum(self) -> Array:
        """The singular values of VU', largest first."""
        values = linalg.rayleigh_ritz(*moments(self.U, self.gram))[0]
        return np.asarray(np.sqrt(np.maximum(values, 0.0)))

    def start_looking(self, problem: Problem) -> Array:
        """A block that looks for structure in what is left."""
        return linalg.random_basis(problem.d, min(_LOOKING, problem.d), seed=self.tag)

    def apart(self, other: Attempt) -> float:
        """How far the low-rank parts are apart: the other's share off these columns, or of the singular values."""
        s, t = self.spectrum, other.spectrum
        width = max(len(s), len(t))
        s, t = (np.pad(values, (0, width - len(values))) for values in (s, t))
        size = np.linalg.norm(s) or 1.0
        moved = float(np.linalg.norm(s - t) / size)
        return max(change(self.U, other.U, other.gram), moved)
