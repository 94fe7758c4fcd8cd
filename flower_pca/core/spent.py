"""What a run has cost in privacy, and what can then be said of its variances.

N clients add noise of deviation s / sqrt(m) each, m = 1 unless it is shared: S = s sqrt(N / m) on each number of their
sum, a d x p product or a d x d covariance. The largest eigenvalue that a symmetric matrix of such noise has by itself
is near S sqrt(2 d) (the edge of the semicircle, with S on the diagonal and S / sqrt(2) beside it), and that of the p
columns of a product is no larger. One deviation more covers what it varies by. Noise on the mean comes on top: rows
that are centred beside it have the step between as a direction of its own. The total variance comes out of the
message before, with the noise of that: see `stages.private_opening`, whose moments these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.core.settings import DP
from flower_pca.dp.outlook import longest
from flower_pca.names import ranges

_DEVIATIONS: Final = 2.0  # of the total variance, that a share allows for


@dataclass(frozen=True)
class Spent:
    """What a run has cost in privacy.

    Attributes:
        epsilon, delta: What holds for every row, against a server that sees all that it is sent.
        clip: The norm to which rows were clipped.
        noise: The deviation of the noise on each number that the server sees: at least so much.
        messages: Answered messages, that of the frame included.
        shared: Whether the clients had it together, on sums that were masked; else each has added it alone. Then
            epsilon is that of the sums, and holds if no more clients collude than the run allowed for.
        among: How many clients alone have all of that noise together: one, where it is not shared.
        frame_noise: The deviation of the noise on each number of the message that measured mean, scale and count.
    """

    epsilon: float
    delta: float
    clip: float
    noise: float
    messages: int
    shared: bool = False
    among: int = 1
    frame_noise: float = 0.0

    def __str__(self) -> str:
        where = "each answer"
        if self.shared:
            where = "each sum, shared among clients"
        noise = f"noise of deviation {self.noise:.4g} on {where}"
        return f"epsilon {self.epsilon:.4g}, delta {self.delta:g}; {noise}"


@dataclass(frozen=True)
class Certainty:
    """What can be said of the variances of a run with noise.

    Attributes:
        floor: The variance that noise alone can give a component.
        shares: Bounds on each component's share of the total variance, (k, 2), within 0 and 1.
        together: Bounds on the share of the first components together, (k, 2), likewise.
        signal: How many times the floor each component's variance is, (k,).
    """

    floor: float
    shares: Array
    together: Array
    signal: Array

    @property
    def noise_share(self) -> Array:
        """How much of each component's variance noise alone can be, (k,)."""
        return np.minimum(1.0 / np.maximum(self.signal, 1.0), 1.0)

    @property
    def in_words(self) -> str:
        """The share of all components together, for a sentence."""
        share = labels.bounds(self.together[-1])
        if share == "unknown":
            return "an unknown share"
        return share

    def __str__(self) -> str:
        numbers = range(1, len(self.signal) + 1)
        clear = [j for j in numbers if self.signal[j - 1] > 1.0]
        rest = [j for j in numbers if j not in clear]
        said = ["There is noise on what the server has seen."]
        said.append(f"Alone it can give a component a variance of {self.floor:.2g}.")
        if clear:
            times = labels.series([_number(self.signal[j - 1]) for j in clear])
            said.append(f"{_components(clear)} {'has' if len(clear) == 1 else 'have'} {times} times as much.")
        if rest:
            said.append(f"{_components(rest)} cannot be told from noise.")
        said.append("So shares of the variance are said as bounds; the number of rows has noise on it as well.")
        return " ".join(said)


def certainty(result: Any) -> Certainty | None:
    """What can be said of the variances of a `PCAResult`; None of a run without noise."""
    if result.privacy is None:
        return None
    spent, rows = result.privacy, max(result.n_samples_ - 1, 1)
    added = np.sqrt(max(record.answered for record in result.history) / spent.among)
    floor = float(added * spent.noise * (np.sqrt(2.0 * result.n_features_in_) + 1.0) / rows)
    floor += _off_centre(result, added * spent.frame_noise)
    doubt = _DEVIATIONS * _total_noise(result, added * spent.frame_noise) / rows
    values, total = result.explained_variance_, result.total_variance_
    number = np.arange(1, len(values) + 1)
    return Certainty(
        floor=floor,
        shares=_bounds(values, floor, total, doubt),
        together=_bounds(values.cumsum(), floor * number, total, doubt),
        signal=values / floor,
    )


def _bounds(values: Array, floor: float | Array, total: float, doubt: float) -> Array:
    """The least and the largest share, if values are off by `floor` and their total by `doubt`."""
    low = np.maximum(values - floor, 0.0) / max(total + doubt, float(values.max()))
    rest, high = total - doubt, np.ones(len(values))
    if rest > 0.0:
        high = np.minimum((values + floor) / rest, 1.0)
    return np.stack([np.minimum(low, 1.0), np.maximum(high, low)], axis=1)


def _off_centre(result: Any, deviation: float) -> float:
    """What noise on the mean alone gives a component: all rows stand beside it by the same step."""
    if not result.centered:
        return 0.0
    dp = DP.of(result.asked.get("dp"))
    reach = (None if dp is None else dp.reach) or result.privacy.clip
    scale = np.ones(result.n_features_in_)
    if result.scale_ is not None and not (dp is not None and dp.known):
        scale = result.scale_
    step = np.sqrt(3.0) * deviation / (reach * max(result.n_samples_ - 1, 1))
    return float((step * longest(len(scale))) ** 2 * np.mean(scale**-2.0))


def _total_noise(result: Any, deviation: float) -> float:
    """The deviation of the sum of squares in the frame, from that of the numbers of the first message."""
    spent, dp = result.privacy, DP.of(result.asked.get("dp"))
    assert spent is not None
    ranged = dp is not None and bool(dp.known)
    scaled = result.scale_ is not None and not ranged
    sums = result.centered or scaled
    reach, d = (None if dp is None else dp.reach) or spent.clip, result.n_features_in_
    # on a number of the moments, times reach squared
    unit = deviation * np.sqrt(3.0 if sums else 2.0)
    if scaled:
        columns = 1.0 / result.scale_**2
    else:
        columns = np.ones(d)
    if scaled or not sums:
        squares = float(np.linalg.norm(columns))
    else:
        squares = 1.0
    if result.centered:
        mean = float(np.linalg.norm(_measured_mean(result, dp) * columns))
    else:
        mean = 0.0
    return float(unit * np.hypot(squares, 2.0 * mean / reach))


def _measured_mean(result: Any, dp: DP | None) -> Array:
    """The mean in the units in which it was measured."""
    if dp is None or not dp.known:
        return np.asarray(result.mean_)
    middles, halves = ranges.halves(dp.known, [str(name) for name in result.feature_names_in_])
    return np.asarray((result.mean_ - middles) / halves)


def _components(numbers: list[int]) -> str:
    plural = "s" * (len(numbers) > 1)
    return f"Component{plural} {labels.series([str(j) for j in numbers])}"


def _number(ratio: float) -> str:
    return f"{ratio:.{int(ratio < 10.0)}f}"
