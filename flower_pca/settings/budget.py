"""The privacy budget of a run with differential privacy: see `dp`.

If columns have public ranges, the unit of each column is half the width of its range. A range in a textbook
usually extends three standard deviations to both sides of the mean. A column with such a range has a
variance of 1/9, and is called a usual column here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from flower_pca.base import checks, spec
from flower_pca.base.errors import ConfigError
from flower_pca.names import ranges as public

USUAL: Final = 1.0 / 9.0  # the variance of a usual column, in squared half widths of its range
# Rows are clipped to this multiple of the norm of a usual row, because few rows are longer.
SLACK: Final = 1.5


@dataclass(frozen=True, kw_only=True)
class DP:
    """A budget of differential privacy, which hides whether any individual row is in the data.

    If one row is added or removed, the probability of anything that the server sees changes by at most a
    factor of exp(epsilon), except for events of probability delta.

    Every client centers and scales its rows with the statistics of all clients, clips them to the norm
    `clip`, and adds Gaussian noise with standard deviation s clip^2 to every number that it sends. s is
    determined by epsilon, delta and the number of messages. If sums are masked, each client adds only a share
    of the noise. The shares are so large that the smallest possible number of remaining honest clients
    together adds noise of this deviation.

    Parameters
    ----------
    epsilon : float
        The bound on the logarithm of the factor by which one row can change a probability.
    delta : float
        The probability that this bound does not hold. It should be far below one divided by the number of rows.
    clip : float, default=0.0
        The norm to which centered and scaled rows are clipped. Choose it without looking at the rows. By default, it
        is computed from `ranges`.
    reach : float or None, default=None
        The norm to which raw rows are clipped when mean and scale are computed. The default is `clip`. If the run has
        a `scale`, `reach` must be given.
    ranges : AsGiven or None, default=None
        The range of each column, from public knowledge and not from the rows, such as {"age": (18, 100)},
        "age=18..100,weight=30..200", or a file with lines such as age,18,100. The middle of its range is subtracted
        from each column, and the column is divided by half the width of its range. The run uses exactly these columns,
        and does not need `scale`.
    frame_share : float, default=0.1
        The share of the budget for mean, scale and count.
    noise_seed : int or None, default=None
        A seed for reproducible noise, only for simulations in one process. Anyone who knows the seed can remove the
        noise.
    colluding : int, default=0
        Under masks, the number of clients that may collude with the server. The noise of colluding clients does not
        count, so the shares of all clients are larger. Without masks, each client adds all of the noise.

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
        checks.use_python_numbers(self)
        if self.ranges is not None:
            object.__setattr__(self, "ranges", public.read_ranges(self.ranges))
            object.__setattr__(self, "clip", self.clip or usual_clip(len(self.public_ranges)))
        if self.clip == 0.0:
            raise ConfigError(
                "dp needs a bound on the length of a row. Give public ranges of the columns, for example "
                'DP(..., ranges="age=18..100"), or give the bound itself, for example "dp(..., clip=10.0)".',
                setting="clip",
            )
        checks.number("clip of dp", self.clip, least=1e-9)
        for name in ("epsilon", *([] if self.reach is None else ["reach"])):
            checks.number(f"{name} of dp", getattr(self, name), least=1e-9)
        checks.number("delta of dp", self.delta, least=1e-30)
        object.__setattr__(self, "frame_share", checks.parse_share(self.frame_share))
        checks.proportion("frame_share of dp", self.frame_share)
        if self.delta >= 1.0 or self.frame_share >= 1.0:
            raise ConfigError(
                f"delta and frame_share of dp must be below 1, but they are delta={self.delta!r} and "
                f"frame_share={self.frame_share!r}. Try 1e-6 and 0.1."
            )
        if self.noise_seed is not None:
            checks.integer("noise_seed of dp", self.noise_seed)
        checks.integer("colluding of dp", self.colluding)

    @property
    def public_ranges(self) -> public.Ranges:
        """The ranges with the names of their columns, or an empty tuple."""
        if self.ranges is None:
            return ()
        return public.read_ranges(self.ranges)

    @classmethod
    def of(cls, given: object, **more: Any) -> DP | None:
        """Return the budget from an instance or a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)".

        Return None for None. `more` are settings in addition to the settings in the string.
        """
        rule = 'a DP, or a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)"'
        return spec.instance(cls, given, "dp", rule, **more)


def usual_clip(columns: int) -> float:
    """Return the default norm to which rows are clipped, for this number of columns with public ranges."""
    return SLACK * math.sqrt(columns * USUAL)
