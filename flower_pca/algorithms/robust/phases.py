"""The phases of an attempt: a table of transitions that decides what follows after each message.

`after_round` and `after_proof` update the attempt with the clients' answers. Then `move` looks up the
attempt's phase in the table, and checks the conditions of its rows in order. For the first condition that
holds, `move` runs the action of the row, and the attempt enters the next phase that the row names.

Let s_v and s_h be the sizes of ordinary residuals X - VU' at visible and at hidden entries. Visible
residuals are smaller than the noise, because the entries were fitted. Hidden residuals are larger by the
same factor. So the noise s is the geometric mean of s_v and s_h. If s_h stays constant while lam falls,
there is noise, and lam = 2 s from then on.
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

# With noise, the threshold is _NOISY_THRESHOLD times the noise, and an entry further than _NOISY_CUT thresholds from
# the low-rank part has no influence.
_NOISY_CUT, _NOISY_THRESHOLD = 3.0, 2.0
# There is noise if s_h still exceeds _CONSTANT_SHARE times its value _ROUNDS_BACK rounds ago, although lam has
# fallen.
_ROUNDS_BACK: Final = 10
_CONSTANT_SHARE: Final = 0.8
# The noise is estimated every _ESTIMATE_ROUNDS rounds. After _FIRST_ROUNDS rounds, a new estimate is used only if it is
# below _FALL_SHARE times the last estimate. The phase NOISY takes at least _LEAST_ROUNDS rounds.
_ESTIMATE_ROUNDS, _FIRST_ROUNDS, _FALL_SHARE, _LEAST_ROUNDS = 5, 15, 0.9, 16
# Without noise, singular values count if they exceed this many thresholds times sqrt(n) + sqrt(d).
_SPECTRUM: Final = 10.0
# With noise, singular values count if they exceed _NOISE_FACTOR times the noise times sqrt(n) + sqrt(d). If two
# successive singular values have at least the ratio _GAP, only the values before this gap count.
_NOISE_FACTOR, _GAP = 2.5, 5.0
# If the basis changes by at most this share of the noise, further rounds will not remove the remaining structure.
_CORRELATED: Final = 0.02
# While the basis still improves, less than this share of the structure is left after _ESTIMATE_ROUNDS rounds.
_STRUCTURE_SHARE: Final = 0.97
# The threshold of columns that are estimated again begins at _FIRST_LEVEL ordinary entries. It falls by the factor
# _SLOW_FACTOR per round, and below _LOW_LEVEL ordinary entries by the factor _FAST_FACTOR.
_FIRST_LEVEL, _LOW_LEVEL = 10.0, 0.1
_SLOW_FACTOR, _FAST_FACTOR = 0.93, 0.8


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
    """Return the attempt after a round, with the new basis U and the clients' sums for the last basis.

    Parameters
    ----------
    attempt, problem : Attempt, Problem
        The attempt before the round, and the problem.
    U : ndarray
        The new basis.
    G : ndarray
        The sum of V'V.
    counts : ndarray
        The counts of visible and of hidden residuals by size.
    image : ndarray or None
        C'C times the block Z, where C contains the clipped residuals, or None if the message had no block Z.
    share : float
        The share of all rows at the clients that answered.
    early : bool
        Whether it is too early for the attempt to end.
    """
    visible, hidden = (sizes.scale(c, problem.top) for c in counts)
    # Columns that are estimated again still move when all other columns have settled.
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
    """Return the attempt after one message of its proof: after another power step, or with the verdict."""
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
    """Return the attempt with the structure that the block Z has found in the residuals in this round."""
    assert now.Z is not None
    values = linalg.eigh_descending(now.Z.T @ image)[0] / (squares or np.inf)
    lefts = (*now.lefts, float(values[0]))[-_ESTIMATE_ROUNDS - 1 :]
    Z = linalg.orth(image)
    return replace(now, Z=Z, left=tuple(values.tolist()), lefts=lefts, seen=seen)


def _shows_noise(now: Attempt, problem: Problem) -> bool:
    """Return whether s_h, the size of residuals at hidden entries, stays nearly constant while lam falls."""
    if problem.noise is not None:
        return False
    # Compare s_h with its value at the threshold of _ROUNDS_BACK rounds ago. The last factor allows for rounding
    # errors, because lam is a product over the rounds.
    high = now.lam / now.gamma**_ROUNDS_BACK * (1.0 - 1e-9)
    course = (*now.course, (now.lam, now.hidden))
    before = next((s for lam, s in reversed(course) if lam >= high), np.inf)
    return now.hidden > max(_NOISY_CUT * now.lam, _CONSTANT_SHARE * before)


def _is_lost(now: Attempt, problem: Problem) -> bool:
    """Return whether the residuals show noise (see `_shows_noise`) that is too large for a proof."""
    return _shows_noise(now, problem) and now.hidden > MOST_NOISE * problem.sigma


def _is_above_its_floor(now: Attempt, problem: Problem) -> bool:
    return now.lam > _floor(problem)


def _has_given_noise(now: Attempt, problem: Problem) -> bool:
    return bool(problem.noise)


def _moves(now: Attempt, problem: Problem) -> bool:
    """Return whether the basis still changes, or the proof may not begin yet."""
    if now.phase is AttemptPhase.NOISY:
        # If too few columns are left and structure remains, all columns come back later, so the basis need not
        # settle.
        widens = now.too_narrow and now.has_structure(problem)
        rests = now.rounds >= _LEAST_ROUNDS and (widens or _keeps_structure(now, problem) or now.rests(problem))
    else:
        rests = now.rests(problem)
    return now.early or (not rests and now.rounds < problem.patience)


def _keeps_structure(now: Attempt, problem: Problem) -> bool:
    """Return whether the basis hardly moves, although structure remains in several directions.

    Correlated residuals cause such structure, and more rounds would not remove it.
    """
    if len(now.lefts) <= _ESTIMATE_ROUNDS or not now.has_correlation(problem):
        return False
    # While the basis still improves, the structure decreases.
    stays = now.lefts[-1] >= _STRUCTURE_SHARE * now.lefts[0]
    return stays and now.stop <= _CORRELATED * now.noise / problem.sigma


def _has_no_component(now: Attempt, problem: Problem) -> bool:
    """Return whether no singular value exceeds the limit of `_rank`."""
    return _rank(now, problem) == 0


def _is_as_wide_as_its_rank(now: Attempt, problem: Problem) -> bool:
    """Return whether all singular values exceed the limit of `_rank`, or no columns may be dropped.

    No columns may be dropped if the attempt has dropped columns before, or has estimated columns again.
    """
    return now.whole is not None or now.mended or _rank(now, problem) == now.p


def _is_rough(now: Attempt, problem: Problem) -> bool:
    """Return whether columns that are estimated again still have a higher threshold than the other columns."""
    return now.level * _factor(now, problem) > now.lam


def _has_noise(now: Attempt, problem: Problem) -> bool:
    return now.noise > 0.0


def _is_being_proven(now: Attempt, problem: Problem) -> bool:
    """Return whether the proof needs another message."""
    return now.verdict is None


def _can_be_mended(now: Attempt, problem: Problem) -> bool:
    """Return whether undetermined columns may be wrong only because of outliers, and were not yet estimated again."""
    verdict = now.judged
    several = not verdict.single and len(verdict.columns) <= problem.d / 2
    return several and verdict.predicted and not now.mended


def _lacks_columns(now: Attempt, problem: Problem) -> bool:
    """Return whether the attempt has dropped columns that it should have kept."""
    verdict = now.judged
    return now.whole is not None and (verdict.misses_component or (verdict.structured and now.too_narrow))


def _has_mended_some(now: Attempt, problem: Problem) -> bool:
    """Return whether there is noise, and some of the columns that were estimated again are now determined."""
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
    """Return the attempt with the noise estimated from its residuals, and the threshold for this noise."""
    return _with_noise(now, problem, min(max(_geometric_mean(now), now.lam), now.hidden))


def _take_noise(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with its noise set to the level that the user gave, and its threshold set to match."""
    return _with_noise(now, problem, now.lam)


def _with_noise(now: Attempt, problem: Problem, s: float) -> Attempt:
    return replace(
        now, noise=s, lam=_NOISY_THRESHOLD * s, cut=_NOISY_CUT, rounds=0, Z=now.start_looking(problem), lefts=()
    )


def _estimate_again(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt. In every fifth round, its noise is estimated again."""
    s = now.noise
    if problem.noise is None and now.rounds % _ESTIMATE_ROUNDS == 0:
        newer = _geometric_mean(now)
        # When s was fixed after the first rounds, wrong answers passed the proof.
        if newer > 0.0 and (now.rounds <= _FIRST_ROUNDS or newer < _FALL_SHARE * s):
            s = newer
    return replace(now, noise=s, lam=_NOISY_THRESHOLD * s)


def _narrow(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with only the leading components that exceed the limit of `_rank`."""
    return _narrow_to(now, _rank(now, problem))


def _narrow_beside_noise(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with only the leading components. `_widen` can restore all columns later."""
    return replace(_narrow(now, problem), rounds=0, lefts=(), whole=now)


def _widen(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with all columns restored, for a proof with the V that clients have kept."""
    whole = now.whole
    assert whole is not None
    return replace(whole, tag=now.tag + 1, origin=whole.tag, turn=np.eye(whole.p))


def _mend(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with undetermined columns set to 0, to estimate them again from a high threshold.

    Outliers may have spoiled these columns while the low-rank part was still inaccurate.
    """
    columns = now.judged.columns
    U = now.U.copy()
    U[list(columns)] = 0.0
    level = max(_FIRST_LEVEL * problem.sigma, now.lam)
    return replace(now, U=U, again=columns, level=level, mended=True, rounds=0, lefts=(), verdict=None)


def _lower_level(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with a lower threshold for the columns that are estimated again."""
    return replace(now, level=now.level * _factor(now, problem))


def _drop_level(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt without the separate threshold of the columns that are estimated again."""
    return replace(now, level=0.0, rounds=0)


def _release(now: Attempt, problem: Problem) -> Attempt:
    """Return the attempt in which V is computed from all columns except those that are still undetermined."""
    return replace(now, again=now.judged.columns, rounds=0, lefts=(), verdict=None)


@dataclass(frozen=True)
class Transition:
    """A row of the table. If the condition holds, the action is run and the attempt enters the next phase."""

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
        Transition(_has_no_component, _keep, _P.LOST),
        Transition(_always, _narrow, _P.PROVING),
    ),
    _P.NOISY: (
        Transition(_moves, _estimate_again, _P.NOISY),
        Transition(_is_as_wide_as_its_rank, _keep, _P.PROVING),
        Transition(_has_no_component, _keep, _P.LOST),
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
    """Return the number of singular values that exceed the limit for noise or rounding errors."""
    if now.noise == 0.0:
        return int(np.sum(now.spectrum > _SPECTRUM * now.lam * problem.edge))
    values = now.spectrum
    above = int(np.sum(values > _NOISE_FACTOR * now.noise * problem.edge))
    # Without the check for a gap, wrong answers passed if far more columns were requested than the rank.
    return min(above, gap(values, _GAP) or now.p)


def _narrow_to(now: Attempt, r: int) -> Attempt:
    """Return the attempt with its r leading components and balanced factors.

    With U = QR, the new factors are QW sqrt(s) and V R'W / sqrt(s).
    """
    if r == now.p:
        return now
    Q, R = linalg.qr(now.U)
    values, W = linalg.eigh_descending(R @ now.gram @ R.T)
    # Both factors get the square root of the singular values, so that neither step nor ridge favors one factor.
    root = np.sqrt(np.sqrt(np.maximum(values[:r], TINY)))
    W = W[:, :r]
    U, G, turn = Q @ W * root, np.diag(root**2), R.T @ W / root
    return replace(now, U=U, G=G, turn=turn, origin=now.tag, tag=now.tag + 1)


def _factor(now: Attempt, problem: Problem) -> float:
    """Return the factor by which this round lowers the threshold of columns that are estimated again."""
    factor = _FAST_FACTOR if now.level <= _LOW_LEVEL * problem.sigma else _SLOW_FACTOR
    return float(factor**now.share)


def _geometric_mean(now: Attempt) -> float:
    return min(float(np.sqrt(now.visible * now.hidden)), now.hidden)


def _floor(problem: Problem) -> float:
    """Return the value of lam at which the threshold stops falling."""
    return max(problem.noise or 0.0, problem.floor * problem.sigma)
