"""The selection of the most variable genes relative to their mean, as in scanpy, from sums over all sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, spec
from flower_pca.base.errors import DataError
from flower_pca.base.labels import count
from flower_pca.base.linalg import Array

_BINS: Final = 20  # the number of bins of means, within which dispersions are compared
_NORMAL: Final = 0.6744897501960817  # the median of |z| of a standard normal z
_TINY: Final = 1e-12  # the number that replaces a mean of 0


@dataclass(frozen=True)
class HighlyVariable:
    """A number of highly variable genes, and the rule that selects them.

    Parameters
    ----------
    flavor : str, default="seurat"
        The rule: "seurat" or "cell_ranger", as in scanpy's highly_variable_genes.
    genes : int, default=2000
        The number of genes.
    """

    flavor: str = "seurat"
    genes: int = 2000

    def __post_init__(self) -> None:
        checks.use_python_numbers(self)
        checks.choice("The flavor of highly_variable", self.flavor, ("seurat", "cell_ranger"))
        checks.integer(
            "highly_variable (the number of genes)", self.genes, least=1, remedy='For example, "seurat(2000)".'
        )

    @classmethod
    def of(cls, value: object) -> HighlyVariable | None:
        """Return the setting from an instance or a string such as "seurat(2000)". Return None for None."""
        if value is None or isinstance(value, cls):
            return value

        def seurat(*, genes: int = 2000) -> HighlyVariable:
            return cls("seurat", genes)

        def cell_ranger(*, genes: int = 2000) -> HighlyVariable:
            return cls("cell_ranger", genes)

        kinds = {"seurat": seurat, "cell_ranger": cell_ranger}
        return spec.bind(value, kinds, what="highly_variable", rule='a string such as "seurat(2000)"')()

    @property
    def of_counts(self) -> bool:
        """Whether the rule uses counts. The entries are logarithms of counts, and expm1 recovers the counts."""
        return self.flavor == "seurat"

    def select_genes(self, n: int, mean: Array, variance: Array, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Return the selected genes, and a sentence with the number of genes that are left out, or "".

        Parameters
        ----------
        n : int
            The number of cells at all sites.
        mean : ndarray
            The mean of each gene.
        variance : ndarray
            The variance of each gene, with divisor n - 1.
        names : sequence of str
            The names of the genes.
        """
        if n < 2:
            raise DataError(f"highly_variable={self} needs at least two cells. Give more cells, or leave it out.")
        found = self._normalized_dispersion(mean, variance)
        there = np.sort(found[~np.isnan(found)])[::-1]
        if not len(there):
            raise DataError(f"highly_variable={self} finds no gene that varies. Check the counts, or leave it out.")
        cutoff = there[min(self.genes, len(there)) - 1]
        left = np.nan_to_num(found, nan=-np.inf) >= cutoff
        chosen = tuple(name for name, keep in zip(names, left, strict=True) if keep)
        out = len(names) - len(chosen)
        return chosen, f"{out:,} of {count(len(names), 'gene')} were left out by {self}" if out else ""

    def _normalized_dispersion(self, mean: Array, variance: Array) -> Array:
        """Return the dispersion of each gene relative to genes with about the same mean, or NaN for constant genes."""
        mean = np.where(mean == 0.0, _TINY, mean)
        dispersion = variance / mean
        if self.flavor == "cell_ranger":
            edges = np.percentile(mean, np.arange(10, 105, 5))
            return _relative_to_bin(dispersion, np.searchsorted(edges, mean, side="left"), _median, _deviation)
        with np.errstate(divide="ignore"):
            dispersion = np.where(dispersion == 0.0, np.nan, np.log(dispersion))
        mean = np.log1p(mean)
        edges = np.linspace(mean.min(), mean.max(), _BINS + 1)
        bins = np.searchsorted(edges[1:-1], mean, side="left")
        return _relative_to_bin(dispersion, bins, _mean, partial(np.std, ddof=1))

    def __str__(self) -> str:
        return f"{self.flavor}({self.genes})"


def _mean(values: Array) -> float:
    # If a gene is alone in its bin, 0 in place of the mean gives it a normalized dispersion of 1.
    return float(values.mean()) if len(values) > 1 else 0.0


def _median(values: Array) -> float:
    return float(np.median(values))


def _deviation(values: Array) -> float:
    return float(np.median(np.abs(values - np.median(values)))) / _NORMAL


def _relative_to_bin(
    dispersion: Array, bins: Array, middle: Callable[[Array], float], spread: Callable[[Array], Any]
) -> Array:
    """Return each dispersion minus the middle of its bin, divided by the spread of the bin."""
    found = np.full(len(dispersion), np.nan)
    for j in np.unique(bins):
        here = (bins == j) & ~np.isnan(dispersion)
        values = dispersion[here]
        if not len(values):
            continue
        alone = len(values) == 1 and middle is _mean
        with np.errstate(divide="ignore", invalid="ignore"):
            found[here] = (values - middle(values)) / (values[0] if alone else spread(values))
    return found
