"""Bounds on the variances of a run with noise.

Each of N clients adds noise of deviation s / sqrt(m), where m = 1 unless the clients share the noise. So
each number in the sum of their answers, which is a d x p product or a d x d covariance, has noise of
deviation S = s sqrt(N / m). Without any data, the largest eigenvalue of a symmetric matrix of such noise
is near S sqrt(2 d) (the edge of the semicircle, with deviation S on the diagonal and S / sqrt(2)
elsewhere). With the p columns of a product, this eigenvalue is not larger. The bound is one standard deviation higher,
because the largest eigenvalue varies. Noise on the mean has a further effect: if rows are centered at a
wrong mean, the error of the mean becomes a common direction of all rows. The total variance is computed
from the moments in the answers to the first message, and contains the noise on these answers: see
`stages.private_opening`.

The bounds do not include the effect of clipping. A component's variance is that of centered and scaled rows that were
clipped to the norm `clip`, and the total variance that of raw rows clipped to `reach`. If rows are longer, a share of
the variance of the rows themselves may be outside its bounds. If no raw row is longer than `reach`, it is not below
them.

Examples
--------
>>> import numpy as np
>>> from flower_pca import DP, simulate
>>> rng = np.random.default_rng(0)
>>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
>>> dp = DP(epsilon=1e4, delta=1e-6, clip=20.0)
>>> result = simulate("covariance", sites, n_components=2, dp=dp)
>>> print(result.certainty.signal > 1.0)  # both components stand out from the noise
[ True  True]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.dp.spent import Spent
from flower_pca.names import ranges as public
from flower_pca.rows.frame import Frame
from flower_pca.settings.budget import DP

_DEVIATIONS: Final = 2.0  # number of standard deviations by which bounds allow the total variance to be wrong


@dataclass(frozen=True)
class Certainty:
    """Bounds on the variances of a run with noise.

    Attributes
    ----------
    floor : float
        The variance that noise alone can give a component.
    shares : ndarray of shape (k, 2)
        Bounds on each component's share of the total variance, within 0 and 1.
    together : ndarray of shape (k, 2)
        Bounds on the cumulative share of the first components, within 0 and 1.
    signal : ndarray of shape (k,)
        Each component's variance divided by the floor.
    left_out : ndarray of shape (2,)
        Bounds on the variance outside of the components. Divided by the number of directions outside, they are bounds
        on `noise_variance_`. If noise is stronger than this variance, the lower bound is 0, and so may be the figure
        itself.
    """

    floor: float
    shares: Array
    together: Array
    signal: Array
    left_out: Array

    __repr__ = brief

    @property
    def noise_share(self) -> Array:
        """The largest share of each component's variance that noise may cause, (k,)."""
        return np.minimum(1.0 / np.maximum(self.signal, 1.0), 1.0)

    @property
    def in_words(self) -> str:
        """The bounds on the share of the variance that all components explain together, in words."""
        return labels.share_in_words(self.together[-1]).replace("unknown", "an unknown share")

    def __str__(self) -> str:
        numbers = range(1, len(self.signal) + 1)
        clear = [j for j in numbers if self.signal[j - 1] > 1.0]
        rest = [j for j in numbers if j not in clear]
        said = [f"Privacy noise alone can give a component a variance of {self.floor:.2g}."]
        if clear:
            times = labels.join_with_and([f"{ratio:.{int(ratio < 10.0)}f}" for ratio in self.signal if ratio > 1.0])
            verb = "has" if len(clear) == 1 else "have"
            said.append(f"{_number_components(clear)} {verb} {times} times as much.")
        if rest:
            said.append(f"{_number_components(rest)} cannot be distinguished from noise.")
        said.append(
            "So shares of the variance are given as bounds. They do not include what changes when long rows are "
            "shortened to clip or reach. The number of rows is noisy, too."
        )
        return " ".join(said)


def certainty(
    spent: Spent, dp: DP | None, frame: Frame, *, rows: int, columns: int, answered: int, variances: Array, total: float
) -> Certainty:
    """Return bounds on the variances of a run with noise.

    Parameters
    ----------
    spent : Spent
        The privacy cost of the run.
    dp : DP or None
        The budget of the run, or None if it is unknown.
    frame : Frame
        The mean and scale of the run's result.
    rows : int
        The number of rows.
    columns : int
        The number of columns.
    answered : int
        The largest number of clients that answered the same message.
    variances : ndarray
        The variance of each component.
    total : float
        The total variance of all columns.
    """
    degrees = max(rows - 1, 1)
    added = np.sqrt(answered / spent.among)
    reach = (None if dp is None else dp.reach) or spent.clip
    frame = _as_measured(frame, dp)
    floor = float(added * spent.noise * (np.sqrt(2.0 * columns) + 1.0) / degrees)
    moved = 0.0
    if frame.mean is not None:
        moved = _variance_from_mean_noise(frame.scale, added * spent.frame_noise, reach * degrees, columns)
    floor += moved
    doubt = _DEVIATIONS * _total_noise(frame, added * spent.frame_noise, reach, columns) / degrees
    number, explained = np.arange(1, len(variances) + 1), float(variances.sum())
    off = floor * len(variances)
    # The square of the noisy mean was subtracted from the total, and noise makes this square larger.
    outside = [total - doubt - (explained + off), total + doubt + moved - max(explained - off, 0.0)]
    return Certainty(
        floor=floor,
        shares=_share_bounds(variances, floor, total, doubt),
        together=_share_bounds(variances.cumsum(), floor * number, total, doubt),
        signal=variances / floor,
        left_out=np.maximum(outside, 0.0),
    )


def _share_bounds(values: Array, floor: float | Array, total: float, doubt: float) -> Array:
    """Return lower and upper bounds on shares of the total, one row for each value.

    The error of the values is at most `floor`, and the error of the total is at most `doubt`.
    """
    most = max(total + doubt, float(values.max()))
    low = np.maximum(values - floor, 0.0) / most
    rest, high = total - doubt, np.ones(len(values))
    if rest > 0.0:
        high = np.minimum((values + floor) / rest, 1.0)
    return np.stack([np.minimum(low, 1.0), np.maximum(high, low)], axis=1)


def _as_measured(frame: Frame, dp: DP | None) -> Frame:
    """Return the frame in the units that clients use. With public ranges, the unit is half the width of a range."""
    if dp is None or not dp.public_ranges:
        return frame
    assert frame.mean is not None
    assert frame.names is not None
    middles, halves = public.middles_and_half_lengths(dp.public_ranges, frame.names)
    return replace(frame, mean=(frame.mean - middles) / halves, scale=None)


def _variance_from_mean_noise(scale: Array | None, deviation: float, reach: float, d: int) -> float:
    """Return the variance that noise on the mean alone can give a component, because all rows get the same error.

    `reach` is the norm to which rows are clipped, times the degrees of freedom.
    """
    step = np.sqrt(3.0) * deviation / reach
    turned = (step * longest_normal_vector(d)) ** 2
    return float(turned if scale is None else turned * np.mean(scale**-2.0))


def _total_noise(frame: Frame, deviation: float, reach: float, d: int) -> float:
    """Return the standard deviation of the total sum of squares in the frame, due to noise on the first message."""
    sums = frame.mean is not None or frame.scale is not None
    columns, squares, mean = np.ones(d), 1.0, 0.0
    if frame.scale is not None:
        columns = 1.0 / frame.scale**2
    if frame.scale is not None or not sums:
        squares = float(np.linalg.norm(columns))
    if frame.mean is not None:
        mean = float(np.linalg.norm(frame.mean * columns))
    # `unit` is the standard deviation of the noise on each sum of squares. The noise on each sum is smaller by the
    # factor `reach`.
    unit = deviation * np.sqrt(3.0 if sums else 2.0)
    return float(unit * np.hypot(squares, 2.0 * mean / reach))


def _number_components(numbers: list[int]) -> str:
    word = labels.pluralize(len(numbers), "Component")
    return f"{word} {labels.join_with_and([str(j) for j in numbers])}"


def longest_normal_vector(columns: int) -> float:
    """Return a length that a vector of this many independent N(0, 1) numbers rarely exceeds.

    The square of this length is two standard deviations above the mean of the vector's squared length.
    """
    return math.sqrt(columns + 2.0 * math.sqrt(2.0 * columns))
