"""Settings of masks and of a privacy budget, as plain numbers (see `masking` and `dp`).

`Spent`: what a run has cost in privacy, and what can then be said of its variances.

N clients add noise of deviation s / sqrt(m) each, m = 1 unless it is shared: S = s sqrt(N / m) on
each number of their sum, a d x p product or a d x d covariance. The largest eigenvalue that a
symmetric matrix of such noise has by itself is near S sqrt(2 d) (the edge of the semicircle, with S
on the diagonal and S / sqrt(2) beside it), and that of the p columns of a product is no larger. One
deviation more covers what it varies by. Noise on the mean comes on top: rows that are centred
beside it have the step between as a direction of its own. The total variance comes out of the
message before, with the noise of that: see `stages.summed_opening`, whose moments these are.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels, spec
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.dp import gaussian
from flower_pca.names import ranges as public
from flower_pca.rows.frame import Frame

BITS: Final = {"float64": 64, "float32": 32, "float16": 16}
WIRES: Final = ("auto", *BITS)
# the least tolerance that goes with so many bits
FLOORS: Final = {64: 0.0, 32: 1e-7, 16: 1e-3}
# what n_components may be in words, each a stage that finds the number of
COUNTED: Final = {"signal": "those above what noise alone would give", "shared": "those that most clients have"}
COUNTING: Final = tuple(COUNTED)
_ALL: Final = 100  # clients up to which every two of them share a mask
# beyond, one of so many may collude with the server, or drop out,
_COLLUDING: Final = 5
# and the chance that this exposes any client, or costs the sum, is at most 2^-20
_SECURITY: Final = 20


def fewest(tol: float) -> int:
    """The fewest bits that go with a tolerance."""
    return min(bits for bits, least in FLOORS.items() if tol >= least)


def why_bits(bits: int, tol: float | None) -> str:
    """What is said of the bits that "auto" has taken."""
    if tol is None:
        return f"wire took float{bits}, as there is no tolerance that fewer bits would go with"
    return f"wire took float{bits}, the fewest bits that go with tol={tol:g}"


@dataclass(frozen=True, kw_only=True)
class MaskedSums:
    """Settings of masked sums; `mask=True` stands for the defaults.

    Args:
        threshold: The sum can be computed if, of every client and its neighbours together, more
            than this share answer; at least one half, below which a server that lies about
            drop-outs could see an answer.
        bound: The largest entry, in absolute value, that any client may have to send after the
            opening. Left out, it follows from the sums that the opening has brought. A client with
            a larger one sends nothing, and says so.
        neighbours: With how many others a client shares masks; an even number. Left out, with all
            others up to 100 clients; beyond with the fewest of whom a majority colludes, at any
            client, with a chance of at most 2^-20, where a fifth of all clients collude: 48 of 200,
            72 of 1000.
        self_masks: Whether a client adds a mask of its own to those that it shares with others.
            Without them a sum takes one message while nobody drops out, not two; but a server that
            lies about drop-outs could unmask an upload, and one that is only curious, an upload
            that comes late. Nodes have to agree, by `single_masks`.
    """

    threshold: float = 0.5
    bound: float | None = None
    neighbours: int | None = None
    self_masks: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", checks.share(self.threshold))
        checks.number("threshold of the masks", self.threshold, least=0.5, most=0.99, remedy="Use 0.5.")
        if self.bound is not None:
            checks.number("bound of the masks", self.bound, least=1e-300, remedy="Leave it out.")
        if self.neighbours is not None:
            checks.integer("neighbours of the masks", self.neighbours, least=2, remedy="Leave it out.")
            if self.neighbours % 2:
                raise ConfigError(
                    "neighbours of the masks", must="even", got=self.neighbours, then=f"Use {self.neighbours + 1}."
                )
        checks.choice("self_masks of the masks", self.self_masks, (True, False))

    @classmethod
    def of(cls, mask: bool | MaskedSums | str | None) -> MaskedSums | None:
        """The settings that `mask` stands for, such as "masks(neighbours=20)"; None: no masks."""
        if isinstance(mask, MaskedSums):
            return mask
        # as a configuration may have them
        if isinstance(mask, str) and mask.lower() in ("true", "false"):
            mask = mask.lower() == "true"
        if mask is None or isinstance(mask, bool | np.bool_):
            return cls() if mask else None
        return spec.bind(
            mask,
            {"masks": cls, "MaskedSums": cls},
            what="mask",
            rule='True, False, a MaskedSums, or a string such as "masks(neighbours=20)"',
        )()

    def degree(self, clients: int) -> int:
        """Neighbours of each of so many clients."""
        if self.neighbours is not None:
            return min(self.neighbours, clients - 1)
        if clients <= _ALL:
            return clients - 1
        return _fewest(clients)

    def quorum(self, group: int) -> int:
        """How many of a client and its neighbours, together so many, have to survive."""
        return min(group, math.floor(self.threshold * group) + 1)


@functools.cache
def _fewest(clients: int) -> int:
    """The least even number of neighbours in a random ring that keeps to the stated level of security (Bell 2020).

    Of k neighbours, drawn from the others, more than half collude by the tail of a hypergeometric
    distribution; the chance that it happens to any client is at most the sum over all.
    """
    others, colluding = clients - 1, -(-clients // _COLLUDING)
    for k in range(2, others, 2):
        worst = range(k // 2 + 1, min(k, colluding) + 1)
        ways = {c: math.comb(colluding, c) for c in worst}
        draws = sum(many * math.comb(others - colluding, k - c) for c, many in ways.items())
        if clients * draws << _SECURITY <= math.comb(others, k):
            return k
    return others


@dataclass(frozen=True, kw_only=True)
class DP:
    """Differential privacy of single rows: to add or remove one changes no probability of what the server sees by more
    than exp(epsilon), but for events of probability delta.

    Every client scales each of its rows, in the common frame, down to norm `clip` where it is
    longer, and adds Gaussian noise of deviation s clip^2 to every number it sends. s follows from
    epsilon, delta and the number of messages. Where sums are masked, each adds a share, so that the
    fewest survivors, less the colluding ones, have that much.

    Args:
        epsilon: The bound on the logarithm of probabilities.
        delta: The probability beyond the bound; well below one over the number of rows.
        clip: The norm to which rows are clipped in the common frame. Choose it without looking at
            the rows; left out, it follows from `ranges`.
        reach: The norm to which raw rows are clipped when mean and scale are measured; `clip` if
            left out, which a scale forbids.
        ranges: Between which values each column lies, from what is public and not from the rows,
            such as {"age": (18, 100)}, "age=18..100,weight=30..200", or a file of lines age,18,100.
            Columns are then counted from the middle of their range, in halves of it; they are those
            of the run, and no `scale` is needed.
        frame_share: The share of the budget that mean, scale and count may take.
        noise_seed: For simulations in process only: a seed that makes the noise the same every
            time. Whoever knows it can take the noise off.
        colluding: Under masks, how many clients may collude with the server: their shares of the
            noise do not count, and those of the others are larger. Without masks each client adds
            all of it, whoever colludes.
    """

    epsilon: float
    delta: float
    clip: float = 0.0
    reach: float | None = None
    ranges: public.AsGiven | None = None
    frame_share: float = 0.1
    noise_seed: int | None = None
    colluding: int = 0

    def __post_init__(self) -> None:
        if self.ranges is not None:
            object.__setattr__(self, "ranges", public.of(self.ranges))
            object.__setattr__(self, "clip", self.clip or gaussian.usual_clip(len(self.public_ranges)))
        if self.clip == 0.0:
            raise ConfigError(
                "dp needs a bound on the length of a row. Give public ranges of the columns, "
                'as in DP(..., ranges="age=18..100"), or the bound itself, as in "dp(..., clip=10.0)".',
                setting="clip",
            )
        checks.number("clip of dp", self.clip, least=1e-9)
        for name in ("epsilon", *([] if self.reach is None else ["reach"])):
            checks.number(f"{name} of dp", getattr(self, name), least=1e-9)
        checks.number("delta of dp", self.delta, least=1e-30)
        object.__setattr__(self, "frame_share", checks.share(self.frame_share))
        checks.proportion("frame_share of dp", self.frame_share)
        if self.delta >= 1.0 or self.frame_share >= 1.0:
            raise ConfigError(
                "delta and frame_share of dp",
                must="below 1",
                got=f"delta={self.delta!r}, frame_share={self.frame_share!r}",
                then="Try 1e-6 and 0.1.",
            )
        if self.noise_seed is not None:
            checks.integer("noise_seed of dp", self.noise_seed)
        checks.integer("colluding of dp", self.colluding)

    @property
    def public_ranges(self) -> public.Ranges:
        """The ranges, each with the name of its column; none where there are none."""
        if self.ranges is None:
            return ()
        return public.of(self.ranges)

    @classmethod
    def of(cls, given: object, **more: Any) -> DP | None:
        """From an instance, or a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)" with `more`; None for None."""
        if given is None or isinstance(given, cls):
            return given
        return spec.bind(
            given,
            {"dp": cls, "DP": cls},
            what="dp",
            rule='a DP, or a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)"',
        )(**more)


_DEVIATIONS: Final = 2.0  # of the total variance, that a share allows for


@dataclass(frozen=True)
class Spent:
    """What a run has cost in privacy.

    Attributes:
        epsilon, delta: What holds for every row, against a server that sees all that it is sent.
        clip: The norm to which rows were clipped.
        noise: The deviation of the noise on each number that the server sees: at least so much.
        messages: Answered messages, that of the frame included.
        shared: Whether the clients had it together, on sums that were masked; else each has added
            it alone. Then epsilon is that of the sums, and holds if no more clients collude than
            the run allowed for.
        among: How many clients alone have all of that noise together: one, where it is not shared.
        frame_noise: The deviation of the noise on each number of the message that measured mean,
            scale and count.
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
        where = "each sum, shared among clients" if self.shared else "each answer"
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

    __repr__ = brief

    @property
    def noise_share(self) -> Array:
        """How much of each component's variance noise alone can be, (k,)."""
        return np.minimum(1.0 / np.maximum(self.signal, 1.0), 1.0)

    @property
    def in_words(self) -> str:
        """The share of all components together, for a sentence."""
        return labels.bounds(self.together[-1]).replace("unknown", "an unknown share")

    def __str__(self) -> str:
        numbers = range(1, len(self.signal) + 1)
        clear = [j for j in numbers if self.signal[j - 1] > 1.0]
        rest = [j for j in numbers if j not in clear]
        said = [
            "There is noise on what the server has seen.",
            f"Alone it can give a component a variance of {self.floor:.2g}.",
        ]
        if clear:
            times = labels.series([f"{ratio:.{int(ratio < 10.0)}f}" for ratio in self.signal if ratio > 1.0])
            verb = "has" if len(clear) == 1 else "have"
            said.append(f"{_components(clear)} {verb} {times} times as much.")
        if rest:
            said.append(f"{_components(rest)} cannot be told from noise.")
        said.append("So shares of the variance are said as bounds; the number of rows has noise on it as well.")
        return " ".join(said)


def certainty(
    spent: Spent, dp: DP | None, frame: Frame, *, rows: int, columns: int, answered: int, variances: Array, total: float
) -> Certainty:
    """What can be said of the variances of a run with noise.

    Args:
        spent: What the run has cost.
        dp: Its budget, where that is known.
        frame: Mean and scale of its result.
        rows: How many it was of.
        columns: Likewise.
        answered: How many clients have answered together, at most.
        variances: Of each component.
        total: Of all columns.
    """
    degrees = max(rows - 1, 1)
    added = np.sqrt(answered / spent.among)
    reach = (None if dp is None else dp.reach) or spent.clip
    frame = _as_measured(frame, dp)
    floor = float(added * spent.noise * (np.sqrt(2.0 * columns) + 1.0) / degrees)
    if frame.mean is not None:
        floor += _off_centre(frame.scale, added * spent.frame_noise, reach * degrees, columns)
    doubt = _DEVIATIONS * _total_noise(frame, added * spent.frame_noise, reach, columns) / degrees
    number = np.arange(1, len(variances) + 1)
    return Certainty(
        floor=floor,
        shares=_bounds(variances, floor, total, doubt),
        together=_bounds(variances.cumsum(), floor * number, total, doubt),
        signal=variances / floor,
    )


def _bounds(values: Array, floor: float | Array, total: float, doubt: float) -> Array:
    """The least and the largest share, if values are off by `floor` and their total by `doubt`."""
    most = max(total + doubt, float(values.max()))
    low = np.maximum(values - floor, 0.0) / most
    rest, high = total - doubt, np.ones(len(values))
    if rest > 0.0:
        high = np.minimum((values + floor) / rest, 1.0)
    return np.stack([np.minimum(low, 1.0), np.maximum(high, low)], axis=1)


def _as_measured(frame: Frame, dp: DP | None) -> Frame:
    """The frame in the units in which it was measured; halves of public ranges nobody has measured."""
    if dp is None or not dp.public_ranges:
        return frame
    assert frame.mean is not None
    assert frame.names is not None
    middles, halves = public.halves(dp.public_ranges, frame.names)
    return replace(frame, mean=(frame.mean - middles) / halves, scale=None)


def _off_centre(scale: Array | None, deviation: float, reach: float, d: int) -> float:
    """What noise on the mean alone gives a component: all rows stand beside it by the same step.

    `reach`: how far all of them together reach.
    """
    step = np.sqrt(3.0) * deviation / reach
    turned = (step * gaussian.longest(d)) ** 2
    return float(turned if scale is None else turned * np.mean(scale**-2.0))


def _total_noise(frame: Frame, deviation: float, reach: float, d: int) -> float:
    """The deviation of the sum of squares in the frame, from that of the first numbers."""
    sums = frame.mean is not None or frame.scale is not None
    columns, squares, mean = np.ones(d), 1.0, 0.0
    if frame.scale is not None:
        columns = 1.0 / frame.scale**2
    if frame.scale is not None or not sums:
        squares = float(np.linalg.norm(columns))
    if frame.mean is not None:
        mean = float(np.linalg.norm(frame.mean * columns))
    # on a number of the moments, times reach squared
    unit = deviation * np.sqrt(3.0 if sums else 2.0)
    return float(unit * np.hypot(squares, 2.0 * mean / reach))


def _components(numbers: list[int]) -> str:
    word = labels.noun(len(numbers), "Component")
    return f"{word} {labels.series([str(j) for j in numbers])}"
