"""An estimate of the components that stay visible under a privacy budget, from sizes that do not depend on the rows.

The estimate needs no message. A component is visible if its variance exceeds the variance that noise alone
can give a component: see `dp.certainty`. The estimate includes noise on the mean. If rows are centered at a
wrong mean, the error of the mean becomes a common direction of all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.options import option
from flower_pca.settings.budget import USUAL


@dataclass(frozen=True)
class Outlook:
    """The variance that noise alone can give a component, for a table of this size.

    Attributes
    ----------
    rows, columns, clients : int
        The total number of rows, and the numbers of columns and clients.
    noise : float
        The sum of squares that noise on the products alone can give a component, in the units of the scaled rows.
    off : float
        The number of rows times the length of the error of the mean, in the same units.
    ranged : bool
        Whether the unit of each column is half the width of its public range.
    """

    rows: int
    columns: int
    clients: int
    noise: float
    off: float
    ranged: bool

    @property
    def floor(self) -> float:
        """The variance that noise alone can give a component."""
        n = max(self.rows - 1, 1)
        return self.noise / n + (self.off / n) ** 2

    @property
    def moving(self) -> float:
        """The number of usual columns (see `settings.budget`) that must vary together to be visible."""
        return self.floor / USUAL

    def require(self) -> None:
        """Raise a DataError if noise would hide all components even if all columns varied together."""
        if not self.ranged or self.moving < self.columns:
            return
        # noise / n + (off / n)^2 is small enough if n is at least the larger root of a quadratic equation.
        most = self.columns * USUAL
        root = math.hypot(self.noise, 2.0 * self.off * math.sqrt(most))
        # One more row is needed because the floor must be below the limit, and another row because variances divide
        # by n - 1.
        least = math.ceil((self.noise + root) / (2.0 * most)) + 2
        sizes = f"{labels.count(self.columns, 'column')} at {labels.count(self.clients, 'client')}"
        raise DataError(
            f"Under this budget, noise hides all components of {self.rows:,} rows: {sizes} need at least {least:,} "
            "rows. Use more rows or a larger epsilon, or divide the noise among the clients with "
            f"{option('mask', True)}."
        )

    def __str__(self) -> str:
        alone = f"noise alone can give a component a variance of {self.floor:.2g}"
        if not self.ranged:
            return f"With this budget and {labels.count(self.rows, 'row')}, {alone}."
        seen = f"so at least {self.moving:.2g} of the {self.columns} columns must vary together for a visible component"
        usual = f"A column with a standard deviation of a sixth of its range has a variance of {USUAL:.2g}"
        return (
            f"With this budget and {labels.count(self.rows, 'row')}, {alone}, in squared half widths of ranges. "
            f"{usual}, {seen}."
        )
