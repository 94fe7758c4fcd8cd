"""The budget of differential privacy that a run is given: see `dp`.

Rows in halves of their public ranges have a variance of about a ninth in each column: a measurement
spreads over its range by three deviations to either side if the range is what textbooks say. This
is a usual column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from flower_pca.base import checks, spec
from flower_pca.base.errors import ConfigError
from flower_pca.names import ranges as public

USUAL: Final = 1.0 / 9.0  # the variance of a usual column, in halves of its range
# Rows are clipped to so many times the norm of a usual row, because few rows are longer.
SLACK: Final = 1.5


@dataclass(frozen=True, kw_only=True)
class DP:
    """Set a budget of differential privacy, which hides whether any single row is among the rows.

    To add or remove one row changes no probability of what the server sees by more than a factor of exp(epsilon),
    except for events of probability delta.

    Every client scales each of its rows, in the common frame, down to norm `clip` where it is
    longer, and adds Gaussian noise of deviation s clip^2 to every number it sends. s follows from
    epsilon, delta and the number of messages. Where sums are masked, each adds a share, so that the
    fewest survivors, less the colluding ones, have that much.

    Parameters
    ----------
    epsilon : float
        The bound on the logarithm of probabilities.
    delta : float
        The probability beyond the bound; well below one over the number of rows.
    clip : float, default=0.0
        The norm to which rows are clipped in the common frame. Choose it without looking at the rows; left out, it
        follows from `ranges`.
    reach : float or None, default=None
        The norm to which raw rows are clipped when mean and scale are measured; `clip` if left out, which a scale
        forbids.
    ranges : AsGiven or None, default=None
        Between which values each column lies, from what is public and not from the rows, such as {"age": (18, 100)},
        "age=18..100,weight=30..200", or a file of lines age,18,100. Columns are then counted from the middle of their
        range, in halves of it; they are those of the run, and no `scale` is needed.
    frame_share : float, default=0.1
        The share of the budget that mean, scale and count may take.
    noise_seed : int or None, default=None
        For simulations in process only: a seed that makes the noise the same every time. Whoever knows it can take the
        noise off.
    colluding : int, default=0
        Under masks, how many clients may collude with the server: their shares of the noise do not count, and those of
        the others are larger. Without masks each client adds all of it, whoever colludes.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import DP, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("covariance", sites, n_components=2, dp=DP(epsilon=1.0, delta=1e-6, clip=20.0))
    >>> print(result.privacy)
    epsilon 1, delta 1e-06; noise of deviation 1781 on each answer
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
            object.__setattr__(self, "clip", self.clip or usual_clip(len(self.public_ranges)))
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
                f"delta and frame_share of dp must be below 1. Got delta={self.delta!r}, "
                f"frame_share={self.frame_share!r}. Try 1e-6 and 0.1."
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
        rule = 'a DP, or a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)"'
        return spec.instance(cls, given, "dp", rule, **more)


def usual_clip(columns: int) -> float:
    """The norm to which rows in halves of their ranges are clipped, unless another is named."""
    return SLACK * math.sqrt(columns * USUAL)
