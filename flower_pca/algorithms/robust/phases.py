"""The phases of an attempt: a table of transitions that decides what follows after each message.

`after_round` and `after_proof` update the attempt with the clients' answers. Then `next_attempt` looks up the
attempt's phase in the table, and checks the conditions of its rows in order. For the first condition that
holds, `next_attempt` runs the action of the row, and the attempt enters the next phase that the row names.

Let s_v and s_h be the sizes of ordinary residuals X - VU' at visible and at hidden entries. Visible
residuals are smaller than the noise, because the entries were fitted. Hidden residuals are larger by the
same factor. So the noise s is the geometric mean of s_v and s_h. If lam falls below a third of s_h,
there is noise, and lam = 2 s from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.algorithms.robust import proof, sizes
from flower_pca.algorithms.robust.attempt import Attempt, AttemptPhase, Problem, position_of_gap, relative_change
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import MOST_NOISE
from flower_pca.base import linalg
from flower_pca.base.linalg import Array

# With noise, the threshold is _NOISY_THRESHOLD times the noise, and an entry further than _NOISY_CUT thresholds from
# the low-rank part has no influence.
_NOISY_CUT, _NOISY_THRESHOLD = 3.0, 2.0
# The noise is estimated every _ESTIMATE_ROUNDS rounds. After _FIRST_ROUNDS rounds, a new estimate is used only if it is
# below _FALL_SHARE times the last estimate. The phase NOISY takes at least _LEAST_ROUNDS rounds.
_ESTIMATE_ROUNDS, _FIRST_ROUNDS, _FALL_SHARE, _LEAST_ROUNDS = 5, 15, 0.9, 16
# Without noise, singular values count if they exceed this many thresholds times sqrt(n) + sqrt(d).
_SPECTRUM: Final = 10.0
# With noise, singular values count if they exceed _NOISE_FACTOR times the noise times sqrt(n) + sqrt(d). If two
# successive singular values have at least the ratio _GAP, only the values before this gap count.
_NOISE_FACTOR, _GAP = 2.5, 5.0
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
    visible, hidden = (sizes.standard_deviation(c, problem.top) for c in counts)
    # Columns that are estimated again still move when all other columns have settled.
    others = np.setdiff1d(np.arange(problem.d), attempt.again)
    now = replace(
        attempt,
        U=U,
        G=G,
        visible=visible,
        hidden=hidden,
        stop=relative_change(attempt.U[others], U[others], G) / share,
        share=share,
        early=early,
        pulled=sizes.share_above(counts[0], problem.top, attempt.lam),
        rounds=attempt.rounds + 1,
    )
    if image is not None:
        squares = sizes.clipped_squares(counts[0], problem.top, attempt.lam, attempt.cut)
        now = _with_structure(now, image, squares, seen=float(counts[0].sum()))
    return next_attempt(now, problem)


def after_proof(attempt: Attempt, problem: Problem, total: Mapping[str, Array]) -> Attempt:
    """Return the attempt after one message of its proof: after another power step, or with the verdict."""
    now = replace(attempt, G=total["G"], steps=attempt.steps + 1)
    if attempt.proof_block is None:
        seen = float(total["counts"][0].sum()) / (problem.n * problem.d)
        weak = proof.weak_columns(total["M"], total["F"], seen)
    else:
        x, weak = proof.power_step(total["M"], attempt.proof_block, total["image"])
        now = replace(now, x=x)
    if attempt.is_last_message:
        now = replace(now, verdict=proof.judge(now, problem, total=total, weak=weak), x=None, steps=0)
    return next_attempt(now, problem)


def _with_structure(attempt: Attempt, image: Array, squares: float, *, seen: float) -> Attempt:
    """Return the attempt with the structure that the block Z has found in the residuals in this round."""
    assert attempt.Z is not None
    values = linalg.eigh_descending(attempt.Z.T @ image)[0] / (squares or np.inf)
    return replace(attempt, Z=linalg.orth(image), left=tuple(values.tolist()), seen=seen)


def _shows_noise(attempt: Attempt, problem: Problem) -> bool:
    """Return whether lam has fallen far below s_h, the size of residuals at hidden entries."""
    return problem.noise is None and attempt.hidden > _NOISY_CUT * attempt.lam


def _is_lost(attempt: Attempt, problem: Problem) -> bool:
    """Return whether the residuals show noise (see `_shows_noise`) that is too large for a proof."""
    return _shows_noise(attempt, problem) and attempt.hidden > MOST_NOISE * problem.sigma


def _threshold_can_fall(attempt: Attempt, problem: Problem) -> bool:
    return attempt.lam > _lowest_threshold(problem)


def _has_given_noise(attempt: Attempt, problem: Problem) -> bool:
    return bool(problem.noise)


def _still_moves(attempt: Attempt, problem: Problem) -> bool:
    """Return whether the basis still changes, or the proof may not begin yet."""
    if attempt.phase is AttemptPhase.NOISY:
        # More rounds would not remove the structure that correlated residuals cause.
        rests = attempt.rounds >= _LEAST_ROUNDS and (attempt.has_correlation(problem) or attempt.has_settled(problem))
    else:
        rests = attempt.has_settled(problem)
    return attempt.early or (not rests and attempt.rounds < problem.patience)


def _has_no_component(attempt: Attempt, problem: Problem) -> bool:
    """Return whether no singular value exceeds the limit of `_count_components`."""
    return _count_components(attempt, problem) == 0


def _is_as_wide_as_its_rank(attempt: Attempt, problem: Problem) -> bool:
    """Return whether all singular values exceed the limit of `_count_components`, or no columns may be dropped.

    No columns may be dropped if the attempt has dropped columns before, or has estimated columns again.
    """
    return attempt.whole is not None or attempt.mended or _count_components(attempt, problem) == attempt.p


def _has_higher_column_threshold(attempt: Attempt, problem: Problem) -> bool:
    """Return whether columns that are estimated again still have a higher threshold than the other columns."""
    return attempt.level * _threshold_factor(attempt, problem) > attempt.lam


def _has_noise(attempt: Attempt, problem: Problem) -> bool:
    return attempt.noise > 0.0


def _is_being_proven(attempt: Attempt, problem: Problem) -> bool:
    """Return whether the proof needs another message."""
    return attempt.verdict is None


def _can_reestimate_columns(attempt: Attempt, problem: Problem) -> bool:
    """Return whether undetermined columns may be wrong only because of outliers, and were not yet estimated again."""
    verdict = attempt.known_verdict
    several = not verdict.single and len(verdict.columns) <= problem.d / 2
    return several and verdict.predicted and not attempt.mended


def _has_dropped_too_many(attempt: Attempt, problem: Problem) -> bool:
    """Return whether the attempt has dropped columns that it should have kept.

    A wide attempt has more columns than requested, and with all of them it fits correlated residuals.
    """
    return attempt.whole is not None and not attempt.wide and attempt.known_verdict.misses_component


def _has_reestimated_some(attempt: Attempt, problem: Problem) -> bool:
    """Return whether there is noise, and some of the columns that were estimated again are now determined."""
    return attempt.noise > 0.0 and len(attempt.known_verdict.columns) < len(attempt.again)


def _always(attempt: Attempt, problem: Problem) -> bool:
    return True


def _unchanged(attempt: Attempt, problem: Problem) -> Attempt:
    return attempt


def _lower_threshold(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with a lower threshold."""
    lam = max(_lowest_threshold(problem), attempt.lam * attempt.gamma**attempt.share)
    return replace(attempt, lam=lam, rounds=0)


def _estimate_noise(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with the noise estimated from its residuals, and the threshold for this noise."""
    return _with_noise(attempt, problem, min(max(_mean_singular_value(attempt), attempt.lam), attempt.hidden))


def _use_given_noise(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with its noise set to the level that the user gave, and its threshold set to match."""
    return _with_noise(attempt, problem, attempt.lam)


def _with_noise(attempt: Attempt, problem: Problem, s: float) -> Attempt:
    return replace(
        attempt, noise=s, lam=_NOISY_THRESHOLD * s, cut=_NOISY_CUT, rounds=0, Z=attempt.block_for_structure(problem)
    )


def _estimate_noise_again(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt. In every fifth round, its noise is estimated again."""
    s = attempt.noise
    if problem.noise is None and attempt.rounds % _ESTIMATE_ROUNDS == 0:
        newer = _mean_singular_value(attempt)
        # When s was fixed after the first rounds, wrong answers passed the proof.
        if newer > 0.0 and (attempt.rounds <= _FIRST_ROUNDS or newer < _FALL_SHARE * s):
            s = newer
    return replace(attempt, noise=s, lam=_NOISY_THRESHOLD * s)


def _drop_columns(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with only the leading components that exceed the limit of `_count_components`."""
    return _keep_components(attempt, _count_components(attempt, problem))


def _drop_columns_for_now(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with only the leading components. `_restore_columns` can restore all columns later."""
    return replace(_drop_columns(attempt, problem), rounds=0, whole=attempt)


def _restore_columns(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with all columns restored, for a proof with the V that clients have kept."""
    whole = attempt.whole
    assert whole is not None
    return replace(whole, tag=attempt.tag + 1, origin=whole.tag, turn=np.eye(whole.p))


def _reestimate_columns(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with undetermined columns set to 0, to estimate them again from a high threshold.

    Outliers may have spoiled these columns while the low-rank part was still inaccurate.
    """
    columns = attempt.known_verdict.columns
    U = attempt.U.copy()
    U[list(columns)] = 0.0
    level = max(_FIRST_LEVEL * problem.sigma, attempt.lam)
    return replace(attempt, U=U, again=columns, level=level, mended=True, rounds=0, verdict=None)


def _lower_column_threshold(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt with a lower threshold for the columns that are estimated again."""
    return replace(attempt, level=attempt.level * _threshold_factor(attempt, problem))


def _drop_column_threshold(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt without the separate threshold of the columns that are estimated again."""
    return replace(attempt, level=0.0, rounds=0)


def _use_determined_columns(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt in which V is computed from all columns except those that are still undetermined."""
    return replace(attempt, again=attempt.known_verdict.columns, rounds=0, verdict=None)


@dataclass(frozen=True)
class Transition:
    """A row of the table. If the condition holds, the action is run and the attempt enters the next phase."""

    condition: Callable[[Attempt, Problem], bool]
    action: Callable[[Attempt, Problem], Attempt]
    next: AttemptPhase


_P: Final = AttemptPhase
TABLE: Final[Mapping[AttemptPhase, tuple[Transition, ...]]] = {
    _P.FALLING: (
        Transition(_is_lost, _unchanged, _P.LOST),
        Transition(_shows_noise, _estimate_noise, _P.NOISY),
        Transition(_threshold_can_fall, _lower_threshold, _P.FALLING),
        Transition(_has_given_noise, _use_given_noise, _P.NOISY),
        Transition(_still_moves, _unchanged, _P.FALLING),
        Transition(_has_no_component, _unchanged, _P.LOST),
        Transition(_always, _drop_columns, _P.PROVING),
    ),
    _P.NOISY: (
        Transition(_still_moves, _estimate_noise_again, _P.NOISY),
        Transition(_is_as_wide_as_its_rank, _unchanged, _P.PROVING),
        Transition(_has_no_component, _unchanged, _P.LOST),
        Transition(_always, _drop_columns_for_now, _P.NOISY),
    ),
    _P.MENDING: (
        Transition(_has_higher_column_threshold, _lower_column_threshold, _P.MENDING),
        Transition(_has_noise, _drop_column_threshold, _P.NOISY),
        Transition(_always, _drop_column_threshold, _P.FALLING),
    ),
    _P.PROVING: (
        Transition(_is_being_proven, _unchanged, _P.PROVING),
        Transition(_can_reestimate_columns, _reestimate_columns, _P.MENDING),
        Transition(_has_reestimated_some, _use_determined_columns, _P.NOISY),
        Transition(_has_dropped_too_many, _restore_columns, _P.PROVING),
        Transition(_always, _unchanged, _P.PROVEN),
    ),
}


def next_attempt(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt after the first transition of its phase whose condition holds."""
    row = next(row for row in TABLE[attempt.phase] if row.condition(attempt, problem))
    return replace(row.action(attempt, problem), phase=row.next)


def _count_components(attempt: Attempt, problem: Problem) -> int:
    """Return the number of singular values that exceed the limit for noise or rounding errors."""
    if attempt.noise == 0.0:
        return int(np.sum(attempt.spectrum > _SPECTRUM * attempt.lam * problem.unit_noise_norm))
    values = attempt.spectrum
    above = int(np.sum(values > _NOISE_FACTOR * attempt.noise * problem.unit_noise_norm))
    # Without the check for a gap, wrong answers passed if far more columns were requested than the rank.
    return min(above, position_of_gap(values, _GAP) or attempt.p)


def _keep_components(attempt: Attempt, r: int) -> Attempt:
    """Return the attempt with its r leading components and balanced factors.

    With U = QR, the new factors are QW sqrt(s) and V R'W / sqrt(s).
    """
    if r == attempt.p:
        return attempt
    Q, R = linalg.qr(attempt.U)
    values, W = linalg.eigh_descending(R @ attempt.known_gram @ R.T)
    # Both factors get the square root of the singular values, so that neither step nor ridge favors one factor.
    root = np.sqrt(np.sqrt(np.maximum(values[:r], TINY)))
    W = W[:, :r]
    U, G, turn = Q @ W * root, np.diag(root**2), R.T @ W / root
    return replace(attempt, U=U, G=G, turn=turn, origin=attempt.tag, tag=attempt.tag + 1)


def _threshold_factor(attempt: Attempt, problem: Problem) -> float:
    """Return the factor by which this round lowers the threshold of columns that are estimated again."""
    factor = _FAST_FACTOR if attempt.level <= _LOW_LEVEL * problem.sigma else _SLOW_FACTOR
    return float(factor**attempt.share)


def _mean_singular_value(attempt: Attempt) -> float:
    return min(float(np.sqrt(attempt.visible * attempt.hidden)), attempt.hidden)


def _lowest_threshold(problem: Problem) -> float:
    """Return the value of lam at which the threshold stops falling."""
    return max(problem.noise or 0.0, problem.floor * problem.sigma)
