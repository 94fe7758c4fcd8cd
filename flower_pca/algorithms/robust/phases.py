"""Phases: what an attempt does after each message, as a table that `move` goes by.

The clients answer a message, `after_round` or `after_proof` keeps what they say, and `move` takes the
first row of the attempt's phase whose condition holds: its action is done, and its phase follows.

s_v and s_h are the sizes of ordinary entries of X - VU', of visible ones and of hidden ones. Visible
errors are too small by what is fitted, hidden ones too large by as much: the noise s is their
geometric mean. Where s_h stays while lam falls, there is noise, and lam = 2 s from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.algorithms.robust import proof, sizes
from flower_pca.algorithms.robust.attempt import Attempt, AttemptPhase, Problem, change, gap
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import MOST_NOISE
from flower_pca.base import linalg
from flower_pca.base.linalg import Array

# thresholds beyond which an entry pulls no more, with noise, and thresholds over noise
_NEAR, _WIDE = 3.0, 2.0
_BACK: Final = 10  # rounds in which s_h would fall with lam
_STAYS: Final = 0.8
# when noise is estimated anew, and when it may end
_EVERY, _AT_FIRST, _FALLS, _AT_LEAST = 5, 15, 0.9, 16
# thresholds times sqrt(n) + sqrt(d) below which a singular value is none
_SPECTRUM: Final = 10.0
# noise times that, and the ratio of singular values that counts as a gap
_OF_NOISE, _GAP = 2.5, 5.0
# The same, for a basis that is at rest beside structure that stays.
_CORRELATED: Final = 0.02
# A basis on its way leaves less than this share of the structure after _EVERY rounds.
_STAYS_LEFT: Final = 0.97
# the threshold of columns found anew over an ordinary entry, and where these are found out
_HIGH, _LOW = 10.0, 0.1
_SLOWLY, _FAST = 0.93, 0.8  # The threshold falls by the first factor until then, and by the second from there.


def after_round(
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
        share=share,
        early=early,
        pulled=sizes.beyond(counts[0], problem.top, attempt.lam),
        rounds=attempt.rounds + 1,
    )
    if image is not None:
        squares = sizes.squares(counts[0], problem.top, attempt.lam, attempt.cut)
        now = _look(now, image, squares, seen=float(counts[0].sum()))
    return move(now, problem)


def after_proof(attempt: Attempt, problem: Problem, total: Mapping[str, Array]) -> Attempt:
    """After a message of a proof: a power step, or the verdict."""
    now = replace(attempt, G=total["G"], steps=attempt.steps + 1)
    if attempt.block is None:
        weak = proof.weak_columns(total["M"], total["F"])
    else:
        x, weak = proof.power_step(total["M"], attempt.block, total["image"])
        now = replace(now, x=x)
    if attempt.last:
        now = replace(now, verdict=proof.verdict(now, problem, total=total, weak=weak), x=None, steps=0)
    return move(now, problem)


def _look(now: Attempt, image: Array, squares: float, *, seen: float) -> Attempt:
    """With what a step of the block has found of structure in what is left."""
    assert now.Z is not None
    values = linalg.eigh_descending(now.Z.T @ image)[0] / (squares or np.inf)
    lefts = (*now.lefts, float(values[0]))[-_EVERY - 1 :]
    Z = linalg.orth(image)
    return replace(now, Z=Z, left=tuple(values.tolist()), lefts=lefts, seen=seen)


def _shows_noise(now: Attempt, problem: Problem) -> bool:
    """Whether s_h stays while lam falls."""
    if problem.noise is not None:
        return False
    # s_h when the threshold was so many rounds higher
    # lam is a product of so many rounds, each of which has rounded it.
    high = now.lam / now.gamma**_BACK * (1.0 - 1e-9)
    course = (*now.course, (now.lam, now.hidden))
    before = next((s for lam, s in reversed(course) if lam >= high), np.inf)
    return now.hidden > max(_NEAR * now.lam, _STAYS * before)


def _is_lost(now: Attempt, problem: Problem) -> bool:
    """Whether that noise is too large."""
    return _shows_noise(now, problem) and now.hidden > MOST_NOISE * problem.sigma


def _is_above_its_floor(now: Attempt, problem: Problem) -> bool:
    return now.lam > _floor(problem)


def _has_given_noise(now: Attempt, problem: Problem) -> bool:
    return bool(problem.noise)


def _moves(now: Attempt, problem: Problem) -> bool:
    """Whether the basis still changes, or may not be proven yet."""
    if now.phase is AttemptPhase.NOISY:
        # Where fewer columns tell less and leave structure, all of them come back whatever else
        # these would do.
        widens = now.too_narrow and now.has_structure(problem)
        rests = now.rounds >= _AT_LEAST and (widens or _keeps_structure(now, problem) or now.rests(problem))
    else:
        rests = now.rests(problem)
    return now.early or (not rests and now.rounds < problem.patience)


def _keeps_structure(now: Attempt, problem: Problem) -> bool:
    """Whether structure in several directions stays while the basis hardly moves beside noise.

    That is what correlated residuals leave, and more rounds would leave as much.
    """
    if len(now.lefts) <= _EVERY or not now.has_correlation(problem):
        return False
    # A basis that is still on its way takes structure in as it goes.
    stays = now.lefts[-1] >= _STAYS_LEFT * now.lefts[0]
    return stays and now.stop <= _CORRELATED * now.noise / problem.sigma


def _is_nothing(now: Attempt, problem: Problem) -> bool:
    """Whether no singular value stands out."""
    return _rank(now, problem) == 0


def _is_as_wide_as_its_rank(now: Attempt, problem: Problem) -> bool:
    """Whether it has no more columns than singular values stand out, or has been looked at for that before."""
    return now.whole is not None or now.mended or _rank(now, problem) == now.p


def _is_rough(now: Attempt, problem: Problem) -> bool:
    """Whether the threshold of columns that are found anew is above that of the others, after this round as well."""
    return now.level * _factor(now, problem) > now.lam


def _has_noise(now: Attempt, problem: Problem) -> bool:
    return now.noise > 0.0


def _is_being_proven(now: Attempt, problem: Problem) -> bool:
    """Whether more messages of the proof follow."""
    return now.verdict is None


def _can_be_mended(now: Attempt, problem: Problem) -> bool:
    """Whether columns that clean entries do not determine may have been taken in by far ones on the way."""
    verdict = now.judged
    several = not verdict.single and len(verdict.columns) <= problem.d / 2
    return several and verdict.predicted and not now.mended


def _lacks_columns(now: Attempt, problem: Problem) -> bool:
    """Whether it has left columns out that it should have kept."""
    verdict = now.judged
    return now.whole is not None and (verdict.lacking or (verdict.structured and now.too_narrow))


def _has_mended_some(now: Attempt, problem: Problem) -> bool:
    """Whether noise is left in V that rests on fewer columns than it could."""
    return now.noise > 0.0 and len(now.judged.columns) < len(now.again)


def _always(now: Attempt, problem: Problem) -> bool:
    return True


def _keep(now: Attempt, problem: Problem) -> Attempt:
    return now


def _lower(now: Attempt, problem: Problem) -> Attempt:
    """With a lower threshold."""
    lam = max(_floor(problem), now.lam * now.gamma**now.share)
    return replace(now, lam=lam, course=(*now.course, (now.lam, now.hidden)), rounds=0)


def _estimate_noise(now: Attempt, problem: Problem) -> Attempt:
    """On the threshold of the noise that shows."""
    return _with_noise(now, problem, min(max(_between(now), now.lam), now.hidden))


def _take_noise(now: Attempt, problem: Problem) -> Attempt:
    """On the threshold of the noise that was given."""
    return _with_noise(now, problem, now.lam)


def _with_noise(now: Attempt, problem: Problem, s: float) -> Attempt:
    return replace(now, noise=s, lam=_WIDE * s, cut=_NEAR, rounds=0, Z=now.start_looking(problem), lefts=())


def _estimate_again(now: Attempt, problem: Problem) -> Attempt:
    """With the noise estimated anew, every so many rounds."""
    s = now.noise
    if problem.noise is None and now.rounds % _EVERY == 0:
        newer = _between(now)
        # An s that was fixed after its first rounds has let wrong answers pass.
        if newer > 0.0 and (now.rounds <= _AT_FIRST or newer < _FALLS * s):
            s = newer
    return replace(now, noise=s, lam=_WIDE * s)


def _narrow(now: Attempt, problem: Problem) -> Attempt:
    """On its leading components, as many as stand out."""
    return _narrow_to(now, _rank(now, problem))


def _narrow_beside_noise(now: Attempt, problem: Problem) -> Attempt:
    """The same, but all columns may come back: see `_widen`."""
    return replace(_narrow(now, problem), rounds=0, lefts=(), whole=now)


def _widen(now: Attempt, problem: Problem) -> Attempt:
    """With all columns back, to be proven so, from the V that clients have kept of them."""
    whole = now.whole
    assert whole is not None
    return replace(whole, tag=now.tag + 1, origin=whole.tag, turn=np.eye(whole.p))


def _mend(now: Attempt, problem: Problem) -> Attempt:
    """On the way to find these columns anew: they may have been taken in by far entries while all else was rough."""
    columns = now.judged.columns
    U = now.U.copy()
    U[list(columns)] = 0.0
    level = max(_HIGH * problem.sigma, now.lam)
    return replace(now, U=U, again=columns, level=level, mended=True, rounds=0, lefts=(), verdict=None)


def _lower_level(now: Attempt, problem: Problem) -> Attempt:
    """With a lower threshold of columns that are found anew."""
    return replace(now, level=now.level * _factor(now, problem))


def _drop_level(now: Attempt, problem: Problem) -> Attempt:
    """With the threshold of all others for columns that are found anew."""
    return replace(now, level=0.0, rounds=0)


def _release(now: Attempt, problem: Problem) -> Attempt:
    """With V resting on all columns again but those that were not found."""
    return replace(now, again=now.judged.columns, rounds=0, lefts=(), verdict=None)


@dataclass(frozen=True)
class Transition:
    """A row of the table."""

    condition: Callable[[Attempt, Problem], bool]
    action: Callable[[Attempt, Problem], Attempt]
    next: AttemptPhase


_P: Final = AttemptPhase
TABLE: Final[Mapping[AttemptPhase, tuple[Transition, ...]]] = {
    _P.FALLING: (
        Transition(_is_lost, _keep, _P.LOST),
        Transition(_shows_noise, _estimate_noise, _P.NOISY),
        Transition(_is_above_its_floor, _lower, _P.FALLING),
        Transition(_has_given_noise, _take_noise, _P.NOISY),
        Transition(_moves, _keep, _P.FALLING),
        Transition(_is_nothing, _keep, _P.LOST),
        Transition(_always, _narrow, _P.PROVING),
    ),
    _P.NOISY: (
        Transition(_moves, _estimate_again, _P.NOISY),
        Transition(_is_as_wide_as_its_rank, _keep, _P.PROVING),
        Transition(_is_nothing, _keep, _P.LOST),
        Transition(_always, _narrow_beside_noise, _P.NOISY),
    ),
    _P.MENDING: (
        Transition(_is_rough, _lower_level, _P.MENDING),
        Transition(_has_noise, _drop_level, _P.NOISY),
        Transition(_always, _drop_level, _P.FALLING),
    ),
    _P.PROVING: (
        Transition(_is_being_proven, _keep, _P.PROVING),
        Transition(_can_be_mended, _mend, _P.MENDING),
        Transition(_has_mended_some, _release, _P.NOISY),
        Transition(_lacks_columns, _widen, _P.PROVING),
        Transition(_always, _keep, _P.PROVEN),
    ),
}


def move(now: Attempt, problem: Problem) -> Attempt:
    """By the first row of its phase whose condition holds."""
    row = next(row for row in TABLE[now.phase] if row.condition(now, problem))
    return replace(row.action(now, problem), phase=row.next)


def _rank(now: Attempt, problem: Problem) -> int:
    """How many singular values stand out."""
    if now.noise == 0.0:
        return int(np.sum(now.spectrum > _SPECTRUM * now.lam * problem.edge))
    values = now.spectrum
    above = int(np.sum(values > _OF_NOISE * now.noise * problem.edge))
    # Without the gap wrong answers have passed where far more columns were asked for than there
    # are.
    return min(above, gap(values, _GAP) or now.p)


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


def _factor(now: Attempt, problem: Problem) -> float:
    """By which the threshold of columns that are found anew falls in the newest round."""
    factor = _SLOWLY
    if now.level <= _LOW * problem.sigma:
        factor = _FAST
    return float(factor**now.share)


def _between(now: Attempt) -> float:
    return min(float(np.sqrt(now.visible * now.hidden)), now.hidden)


def _floor(problem: Problem) -> float:
    """Where lam ends."""
    return max(problem.noise or 0.0, problem.floor * problem.sigma)
