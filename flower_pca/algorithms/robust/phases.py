"""Phases: what an attempt does after each message, as a table of transitions.

`after_round` and `after_proof` update the attempt with the clients' answers. Then `move` takes the
first row of the attempt's phase whose condition holds, runs its action and enters its next phase.

s_v and s_h are the sizes of ordinary entries of X - VU', visible and hidden ones. Visible residuals are
too small because they were fitted, and hidden residuals are too large by the same factor. So the noise
s is their geometric mean. If s_h stays while lam falls, there is noise, and lam = 2 s from then on.
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

# With noise: an entry further than _NEAR thresholds has no influence, and the threshold is _WIDE times the
# noise.
_NEAR, _WIDE = 3.0, 2.0
_BACK: Final = 10  # the number of rounds in which s_h should fall with lam
_STAYS: Final = 0.8
# The noise is estimated every _EVERY rounds. After _AT_FIRST rounds, a new estimate counts only if it is below
# _FALLS times the last one. The phase takes at least _AT_LEAST rounds.
_EVERY, _AT_FIRST, _FALLS, _AT_LEAST = 5, 15, 0.9, 16
# The least singular value that counts without noise, in thresholds times sqrt(n) + sqrt(d)
_SPECTRUM: Final = 10.0
# The least one with noise, in multiples of the noise, and the least ratio of singular values at a gap
_OF_NOISE, _GAP = 2.5, 5.0
# The change of a basis, relative to the noise, below which remaining structure stays
_CORRELATED: Final = 0.02
# If the basis still improves, less than this share of the structure is left after _EVERY rounds.
_STAYS_LEFT: Final = 0.97
# The first threshold of columns that are found anew, relative to an ordinary entry, and where it begins to fall
# faster
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
    """Return the attempt after a round, with the new basis U and what clients sent about the last one.

    `counts` are the counts of visible and of hidden entries, `image` is C'C times the block Z, and
    `share` is the share of rows that answered. With `early`, the attempt may not end yet.
    """
    visible, hidden = (sizes.scale(c, problem.top) for c in counts)
    # Columns that are found anew still move when all others are at rest.
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
    """Return the attempt after a message of a proof: one power step further, or with its verdict."""
    now = replace(attempt, G=total["G"], steps=attempt.steps + 1)
    if attempt.block is None:
        seen = float(total["counts"][0].sum()) / (problem.n * problem.d)
        weak = proof.weak_columns(total["M"], total["F"], seen)
    else:
        x, weak = proof.power_step(total["M"], attempt.block, total["image"])
        now = replace(now, x=x)
    if attempt.last:
        now = replace(now, verdict=proof.verdict(now, problem, total=total, weak=weak), x=None, steps=0)
    return move(now, problem)


def _look(now: Attempt, image: Array, squares: float, *, seen: float) -> Attempt:
    """Return the attempt with the structure that this step of the block has found in the residuals."""
    assert now.Z is not None
    values = linalg.eigh_descending(now.Z.T @ image)[0] / (squares or np.inf)
    lefts = (*now.lefts, float(values[0]))[-_EVERY - 1 :]
    Z = linalg.orth(image)
    return replace(now, Z=Z, left=tuple(values.tolist()), lefts=lefts, seen=seen)


def _shows_noise(now: Attempt, problem: Problem) -> bool:
    """Return whether s_h stays while lam falls."""
    if problem.noise is not None:
        return False
    # Compare with s_h from when the threshold was _BACK rounds higher. The factor allows for the rounding of
    # lam, which is a product over the rounds.
    high = now.lam / now.gamma**_BACK * (1.0 - 1e-9)
    course = (*now.course, (now.lam, now.hidden))
    before = next((s for lam, s in reversed(course) if lam >= high), np.inf)
    return now.hidden > max(_NEAR * now.lam, _STAYS * before)


def _is_lost(now: Attempt, problem: Problem) -> bool:
    """Return whether s_h stays while lam falls, at a size that shows too much noise for a proof."""
    return _shows_noise(now, problem) and now.hidden > MOST_NOISE * problem.sigma


def _is_above_its_floor(now: Attempt, problem: Problem) -> bool:
    return now.lam > _floor(problem)


def _has_given_noise(now: Attempt, problem: Problem) -> bool:
    return bool(problem.noise)


def _moves(now: Attempt, problem: Problem) -> bool:
    """Return whether the basis still changes, or may not be proven yet."""
    if now.phase is AttemptPhase.NOISY:
        # If too few columns are left and structure remains, all columns come back anyway, so the basis need not
        # rest.
        widens = now.too_narrow and now.has_structure(problem)
        rests = now.rounds >= _AT_LEAST and (widens or _keeps_structure(now, problem) or now.rests(problem))
    else:
        rests = now.rests(problem)
    return now.early or (not rests and now.rounds < problem.patience)


def _keeps_structure(now: Attempt, problem: Problem) -> bool:
    """Return whether the basis hardly moves and structure in several directions stays.

    Correlated residuals cause this, and more rounds would not change it.
    """
    if len(now.lefts) <= _EVERY or not now.has_correlation(problem):
        return False
    # While the basis still improves, the structure decreases.
    stays = now.lefts[-1] >= _STAYS_LEFT * now.lefts[0]
    return stays and now.stop <= _CORRELATED * now.noise / problem.sigma


def _is_nothing(now: Attempt, problem: Problem) -> bool:
    """Return whether no singular value stands out."""
    return _rank(now, problem) == 0


def _is_as_wide_as_its_rank(now: Attempt, problem: Problem) -> bool:
    """Return whether all columns have singular values that stand out, or the columns were already checked."""
    return now.whole is not None or now.mended or _rank(now, problem) == now.p


def _is_rough(now: Attempt, problem: Problem) -> bool:
    """Return whether columns that are found anew still have a higher threshold than the others after this round."""
    return now.level * _factor(now, problem) > now.lam


def _has_noise(now: Attempt, problem: Problem) -> bool:
    return now.noise > 0.0


def _is_being_proven(now: Attempt, problem: Problem) -> bool:
    """Return whether more messages of the proof follow."""
    return now.verdict is None


def _can_be_mended(now: Attempt, problem: Problem) -> bool:
    """Return whether far entries may have spoiled the columns that clean entries do not determine."""
    verdict = now.judged
    several = not verdict.single and len(verdict.columns) <= problem.d / 2
    return several and verdict.predicted and not now.mended


def _lacks_columns(now: Attempt, problem: Problem) -> bool:
    """Return whether the attempt has dropped columns that it should have kept."""
    verdict = now.judged
    return now.whole is not None and (verdict.misses_component or (verdict.structured and now.too_narrow))


def _has_mended_some(now: Attempt, problem: Problem) -> bool:
    """Return whether there is noise and V could use some of the columns that were found anew."""
    return now.noise > 0.0 and len(now.judged.columns) < len(now.again)


def _always(now: Attempt, problem: Problem) -> bool:
    return True


def _keep(now: Attempt, problem: Problem) -> Attempt:
    return now


def _lower(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with a lower threshold."""
    lam = max(_floor(problem), now.lam * now.gamma**now.share)
    return replace(now, lam=lam, course=(*now.course, (now.lam, now.hidden)), rounds=0)


def _estimate_noise(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with the noise that its residuals show, and the threshold for it."""
    return _with_noise(now, problem, min(max(_between(now), now.lam), now.hidden))


def _take_noise(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with the noise that was given, and the threshold for it."""
    return _with_noise(now, problem, now.lam)


def _with_noise(now: Attempt, problem: Problem, s: float) -> Attempt:
    return replace(now, noise=s, lam=_WIDE * s, cut=_NEAR, rounds=0, Z=now.start_looking(problem), lefts=())


def _estimate_again(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with a new estimate of the noise, if it is due."""
    s = now.noise
    if problem.noise is None and now.rounds % _EVERY == 0:
        newer = _between(now)
        # With s fixed after the first rounds, wrong answers have passed the proof.
        if newer > 0.0 and (now.rounds <= _AT_FIRST or newer < _FALLS * s):
            s = newer
    return replace(now, noise=s, lam=_WIDE * s)


def _narrow(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with only the leading components that stand out."""
    return _narrow_to(now, _rank(now, problem))


def _narrow_beside_noise(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with only the leading components. All columns may come back: see `_widen`."""
    return replace(_narrow(now, problem), rounds=0, lefts=(), whole=now)


def _widen(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with all its columns back, to prove them with the V that clients have kept."""
    whole = now.whole
    assert whole is not None
    return replace(whole, tag=now.tag + 1, origin=whole.tag, turn=np.eye(whole.p))


def _mend(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with these columns set to 0, to find them anew with a high threshold.

    Far entries may have spoiled the columns while all else was rough.
    """
    columns = now.judged.columns
    U = now.U.copy()
    U[list(columns)] = 0.0
    level = max(_HIGH * problem.sigma, now.lam)
    return replace(now, U=U, again=columns, level=level, mended=True, rounds=0, lefts=(), verdict=None)


def _lower_level(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with a lower threshold for columns that are found anew."""
    return replace(now, level=now.level * _factor(now, problem))


def _drop_level(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with the common threshold for columns that are found anew."""
    return replace(now, level=0.0, rounds=0)


def _release(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with V computed from all columns again, except those that are still not determined."""
    return replace(now, again=now.judged.columns, rounds=0, lefts=(), verdict=None)


@dataclass(frozen=True)
class Transition:
    """A row of the table: if the condition holds, run the action and enter the next phase."""

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
    """Return the attempt after the first transition of its phase whose condition holds."""
    row = next(row for row in TABLE[now.phase] if row.condition(now, problem))
    return replace(row.action(now, problem), phase=row.next)


def _rank(now: Attempt, problem: Problem) -> int:
    """Return how many singular values stand out."""
    if now.noise == 0.0:
        return int(np.sum(now.spectrum > _SPECTRUM * now.lam * problem.edge))
    values = now.spectrum
    above = int(np.sum(values > _OF_NOISE * now.noise * problem.edge))
    # Without the gap, wrong answers have passed if far more columns were requested than the rank.
    return min(above, gap(values, _GAP) or now.p)


def _narrow_to(now: Attempt, r: int) -> Attempt:
    """Return the attempt with its r leading components, balanced: U = QR <- QW sqrt(s), V <- V R'W / sqrt(s)."""
    if r == now.p:
        return now
    Q, R = linalg.qr(now.U)
    values, W = linalg.eigh_descending(R @ now.gram @ R.T)
    # The factors share the singular values, so that neither step nor ridge favors one of them.
    root = np.sqrt(np.sqrt(np.maximum(values[:r], TINY)))
    W = W[:, :r]
    U, G, turn = Q @ W * root, np.diag(root**2), R.T @ W / root
    return replace(now, U=U, G=G, turn=turn, origin=now.tag, tag=now.tag + 1)


def _factor(now: Attempt, problem: Problem) -> float:
    """Return the factor of the threshold of columns that are found anew, for the newest round."""
    factor = _SLOWLY
    if now.level <= _LOW * problem.sigma:
        factor = _FAST
    return float(factor**now.share)


def _between(now: Attempt) -> float:
    return min(float(np.sqrt(now.visible * now.hidden)), now.hidden)


def _floor(problem: Problem) -> float:
    """Return the last value of lam."""
    return max(problem.noise or 0.0, problem.floor * problem.sigma)
