"""Attempt: one way down with the threshold, at the server; where it stands, how a round moves it.

Theory of operation. s_v and s_h are the sizes of ordinary entries of X - VU', of visible ones and
of hidden ones.

| phase   | lam              | a round leads to                                                                     |
| ------- | ---------------- | ------------------------------------------------------------------------------------ |
| FALLING | falls by gamma   | NOISY, where s_h stays while lam falls: that is noise. LOST, if s_h is too large     |
|         | at its floor     | PROVING, once the basis is at rest: there is no noise                                |
| NOISY   | 2 s, s estimated | PROVING, once the basis is at rest; with fewer columns NOISY once more               |
| PROVING | as it was        | a verdict (`proof`); with all columns again, if structure has been left without them |
| LOST    |                  | the next attempt (`attempts`)                                                        |

A proof may name columns that far entries have taken in. These are found anew once, V resting on the
others: `mend`.

Visible errors are too small by what is fitted, hidden ones too large by as much: s is their
geometric mean.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.algorithms.robust import sizes
from flower_pca.algorithms.robust.sizes import TINY
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


# thresholds beyond which an entry pulls no more, where there is no noise
FAR: Final = 10.0
MOST_NOISE: Final = 0.4  # The largest error at hidden entries, as a share of an ordinary entry.
_NEAR, _WIDE = 3.0, 2.0  # the same with noise, and thresholds over noise
_SOFTER: Final = 0.1  # The share of the ridge that is left if there is noise.
_BACK: Final = 10  # rounds in which s_h would fall with lam
_STAYS: Final = 0.8
# when noise is estimated anew, and when it may end
_EVERY, _AT_FIRST, _FALLS, _AT_LEAST = 5, 15, 0.9, 16
# A basis counts as at rest below this share of the noise over an ordinary entry.
_ROUGH: Final = 1e-3
# thresholds times sqrt(n) + sqrt(d) below which a singular value is none
_SPECTRUM: Final = 10.0
# noise times that, and the ratio of singular values that counts as a gap
_OF_NOISE, _GAP = 2.5, 5.0
_RARE, _FEWER = 0.1, 2  # the share of entries beyond lam up to which so many steps do
_LOOKING: Final = 2  # columns of the block that looks for structure in what is left
# square of the largest singular value of what is left, over that of independent entries
_STRUCTURE: Final = 1.8
# The same, for a basis that is at rest beside structure that stays.
_CORRELATED: Final = 0.02
# All columns tell more than a few do if they leave at most this share of the error at hidden entries.
_BETTER: Final = 0.9
# A component or a block leaves more than this share of all remaining squares in one direction.
_MOST_LEFT: Final = 0.2
# A basis on its way leaves less than this share of the structure after _EVERY rounds.
_STAYS_LEFT: Final = 0.97
# the threshold of columns found anew over an ordinary entry, and where these are found out
_HIGH, _LOW = 10.0, 0.1
_SLOWLY, _FAST = 0.93, 0.8  # The threshold falls by the first factor until then, and by the second from there.
# times tol: hidden entries nearer than that say nothing of structure
_AT_REST: Final = 10.0


class AttemptPhase(enum.StrEnum):
    """Where an attempt stands."""

    FALLING, NOISY, PROVING, LOST = "falling", "noisy", "proving", "lost"


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
    rowwise : bool
        Whether rows are divided by the size of their own entries; `units`: whether they ever were.
    probe : bool
        Whether it has more columns than were asked for.
    tag : int
        What V at the clients belongs to; `origin`: the tag of a V that `turn` leads from to this one.
    rounds : int
        In this phase, at the floor, or of this noise.
    stop : float
        The change of the basis in the newest round.
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
    """

    U: Array
    lam: float
    start: float
    gamma: float
    phase: AttemptPhase = AttemptPhase.FALLING
    cut: float = FAR
    rowwise: bool = False
    units: bool = False
    probe: bool = False
    tag: int = 0
    origin: int = -1
    turn: Array | None = None
    G: Array | None = None
    rounds: int = 0
    stop: float = np.inf
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

    @property
    def p(self) -> int:
        """Columns."""
        return int(self.U.shape[1])

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

    def unit(self, problem: Problem) -> float:
        """The size of an ordinary entry, as rows are seen now."""
        if self.rowwise:
            return 1.0
        return problem.sigma

    def steps(self, most: int) -> int:
        """Steps of a client's inner problem, of so many.

        One leaves of V's error about the share of entries beyond lam: where these are few, two do
        while lam falls.
        """
        if self.phase is AttemptPhase.FALLING and self.pulled <= _RARE:
            return min(most, _FEWER)
        return most

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
    def spectrum(self) -> Array:
        """The singular values of VU', largest first."""
        values = linalg.rayleigh_ritz(*moments(self.U, self.gram))[0]
        return np.asarray(np.sqrt(np.maximum(values, 0.0)))

    def apart(self, other: Attempt) -> float:
        """How far the low-rank parts are apart: the other's share off these columns, or of the singular values."""
        s, t = self.spectrum, other.spectrum
        width = max(len(s), len(t))
        s, t = (np.pad(values, (0, width - len(values))) for values in (s, t))
        size = np.linalg.norm(s) or 1.0
        moved = float(np.linalg.norm(s - t) / size)
        return max(change(self.U, other.U, other.gram), moved)


def advance(
    attempt: Attempt,
    problem: Problem,
    *,
    U: Array,
    G: Array,
    counts: Array,
    image: Array | None,
    share: float,
    early: bool = False,
) -> Attempt:
    """After a round, answered by this share of the rows: the new basis, and what the clients have said of the last.

    `counts` are of visible and of hidden entries, `image` is C'C times the block Z. An attempt does
    not end `early`.
    """
    visible, hidden = (sizes.scale(c, problem.top) for c in counts)
    # Columns that are found anew go on moving while all else is at rest.
    others = np.setdiff1d(np.arange(problem.d), attempt.again)
    now = replace(
        attempt,
        U=U,
        G=G,
        visible=visible,
        hidden=hidden,
        stop=change(attempt.U[others], U[others], G) / share,
        pulled=sizes.beyond(counts[0], problem.top, attempt.lam),
    )
    if image is not None:
        squares = sizes.squares(counts[0], problem.top, attempt.lam, attempt.cut)
        now = _look(now, image, squares, seen=float(counts[0].sum()))
    if now.again and now.level > now.lam:
        factor = _SLOWLY
        if now.level <= _LOW * problem.sigma:
            factor = _FAST
        return replace(now, level=max(now.level * factor**share, now.lam))
    if now.phase is AttemptPhase.NOISY:
        return _settle(now, problem, early)
    return _fall(now, problem, share, early)


def _look(now: Attempt, image: Array, squares: float, *, seen: float) -> Attempt:
    """With what a step of the block has found of structure in what is left."""
    assert now.Z is not None
    values = linalg.eigh_descending(now.Z.T @ image)[0] / (squares or np.inf)
    lefts = (*now.lefts, float(values[0]))[-_EVERY - 1 :]
    Z = linalg.orth(image)
    return replace(now, Z=Z, left=tuple(values.tolist()), lefts=lefts, seen=seen)


def mend(now: Attempt, problem: Problem, columns: tuple[int, ...]) -> Attempt:
    """On the way to find these columns anew: they may have been taken in by far entries while all else was rough."""
    U = now.U.copy()
    U[list(columns)] = 0.0
    phase = AttemptPhase.FALLING
    if now.noise > 0.0:
        phase = AttemptPhase.NOISY
    level = max(_HIGH * problem.sigma, now.lam)
    return replace(now, U=U, phase=phase, again=columns, level=level, mended=True, rounds=0, lefts=())


def release(now: Attempt, columns: tuple[int, ...]) -> Attempt:
    """With V resting on all columns again but these, which were not found."""
    return replace(now, again=columns, phase=AttemptPhase.NOISY, rounds=0, lefts=())


def _fall(now: Attempt, problem: Problem, share: float, early: bool) -> Attempt:
    course = (*now.course, (now.lam, now.hidden))
    floor = _floor(now, problem)
    # s_h when the threshold was so many rounds higher
    # lam is a product of so many rounds, each of which has rounded it.
    high = now.lam / now.gamma**_BACK * (1.0 - 1e-9)
    before = next((s for lam, s in reversed(course) if lam >= high), np.inf)
    if problem.noise is None and now.hidden > max(_NEAR * now.lam, _STAYS * before):
        if now.hidden > MOST_NOISE * now.unit(problem):
            return replace(now, phase=AttemptPhase.LOST)
        return _with_noise(now, problem, max(_between(now), now.lam))
    if now.lam > floor:
        lam = max(floor, now.lam * now.gamma**share)
        return replace(now, lam=lam, course=course)
    if problem.noise:
        return _with_noise(now, problem, now.lam)
    rounds = now.rounds + 1
    if early or (not rests(now, problem) and rounds < problem.patience):
        return replace(now, rounds=rounds)
    if now.rowwise:  # once more in the rows' own units
        own = replace(now, rowwise=False, rounds=0)
        return replace(own, lam=_floor(own, problem))
    least = _SPECTRUM * now.lam * problem.edge
    r = int(np.sum(now.spectrum > least))
    if r == 0:
        return replace(now, phase=AttemptPhase.LOST)
    return replace(_narrow_to(now, r), phase=AttemptPhase.PROVING)


def _settle(now: Attempt, problem: Problem, early: bool) -> Attempt:
    rounds, s = now.rounds + 1, now.noise
    stays = _stays(now, problem)
    if problem.noise is None and rounds % _EVERY == 0:
        newer = _between(now)
        # An s that was fixed after its first rounds has let wrong answers pass.
        if newer > 0.0 and (rounds <= _AT_FIRST or newer < _FALLS * s):
            s = newer
    now = replace(now, rounds=rounds, noise=s, lam=_WIDE * s)
    # Where fewer columns tell less and leave structure, all of them come back whatever else these
    # would do.
    widens = now.too_narrow and now.has_structure(problem)
    rest = rounds >= _AT_LEAST and (stays or widens or rests(now, problem))
    if early or (not rest and rounds < problem.patience):
        return now
    # Attempts that ended with rows divided have let wrong answers pass.
    if now.rowwise:
        s *= problem.sigma
        return replace(now, rowwise=False, rounds=0, noise=s, lam=_WIDE * s)
    if now.whole is not None or now.mended:
        return replace(now, phase=AttemptPhase.PROVING)
    values = now.spectrum
    above = int(np.sum(values > _OF_NOISE * s * problem.edge))
    # Without the gap wrong answers have passed where far more columns were asked for than there
    # are.
    r = min(above, gap(values, _GAP) or now.p)
    if r == 0:
        return replace(now, phase=AttemptPhase.LOST)
    if r == now.p:
        return replace(now, phase=AttemptPhase.PROVING)
    return replace(_narrow_to(now, r), rounds=0, lefts=(), whole=now)


def rests(now: Attempt, problem: Problem) -> bool:
    """Whether the basis is at rest."""
    rough = _ROUGH * now.noise / now.unit(problem)
    return now.stop <= max(problem.tol, rough)


def _stays(now: Attempt, problem: Problem) -> bool:
    """Whether structure in several directions stays while the basis hardly moves beside noise.

    That is what correlated residuals leave, and more rounds would leave as much.
    """
    if now.rowwise or len(now.lefts) <= _EVERY or not now.has_correlation(problem):
        return False
    # A basis that is still on its way takes structure in as it goes.
    stays = now.lefts[-1] >= _STAYS_LEFT * now.lefts[0]
    return stays and now.stop <= _CORRELATED * now.noise / problem.sigma


def widen(now: Attempt) -> Attempt:
    """With all columns back, to be proven so, from the V that clients have kept of them."""
    whole = now.whole
    assert whole is not None
    turn = np.eye(whole.p)
    return replace(whole, tag=now.tag + 1, origin=whole.tag, turn=turn, phase=AttemptPhase.PROVING)


def _with_noise(now: Attempt, problem: Problem, s: float) -> Attempt:
    if problem.noise is None:
        s = min(s, now.hidden)
    Z = linalg.random_basis(problem.d, min(_LOOKING, problem.d), seed=now.tag)
    lam = _WIDE * s
    return replace(now, phase=AttemptPhase.NOISY, noise=s, lam=lam, cut=_NEAR, rounds=0, Z=Z, lefts=())


def _narrow_to(now: Attempt, r: int) -> Attempt:
    """On the r leading components if it has more, U and V balanced: U = QR <- QW sqrt(s), V <- V R'W / sqrt(s)."""
    if r == now.p:
        return now
    Q, R = linalg.qr(now.U)
    values, W = linalg.eigh_descending(R @ now.gram @ R.T)
    # The factors share the singular values, so that neither step nor ridge favours one of them.
    root = np.sqrt(np.sqrt(np.maximum(values[:r], TINY)))
    W = W[:, :r]
    U, G, turn = Q @ W * root, np.diag(root**2), R.T @ W / root
    return replace(now, U=U, G=G, turn=turn, origin=now.tag, tag=now.tag + 1)


def _between(now: Attempt) -> float:
    return min(float(np.sqrt(now.visible * now.hidden)), now.hidden)


def _floor(now: Attempt, problem: Problem) -> float:
    """Where lam ends."""
    least = max(problem.noise or 0.0, problem.floor * problem.sigma)
    return least / problem.sigma * now.unit(problem)
