"""Define `Covariates`: columns that describe rows but are not features, such as age, and their use in a run.

A run names covariates to explain components by them, or to remove the part of the features that they explain. They are
columns of the same table as the features. With slopes, a row x with covariates a becomes x - slopes'(a - mean). This is
the residual of a least-squares fit over the rows of all clients. If the mean of each site is removed, the means of the
site are first subtracted from x and a, so the slopes describe the relation within sites.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names.levels import source_of
from flower_pca.rows.combat import SiteEffect

NAME: Final = "covariates"  # the key of the covariates in a message
ADJUSTED: Final = "adjusted"  # the key in a model for the degrees of freedom that removed covariates take
INVERSE: Final = "covariate_inverse"  # the key in a model for the pseudo-inverse of the products of these covariates
SITE: Final = "site"  # the name that stands for the site of a row in a list of covariates
_TIED: Final = 1e-10  # Eigenvalues of the correlations below this share of the largest one are rounding errors.
_REMEDY: Final = "Install the same version of flower_pca everywhere."


@dataclass(frozen=True)
class Covariates:
    """The covariates of a run, and the parameters of the adjustment for some or all of them.

    Attributes
    ----------
    names : tuple of str
        The names of the covariates. The covariates for which rows are adjusted come first.
    adjusted : int
        The number of covariates for which rows are adjusted.
    within : bool
        Whether each site's own means are subtracted from its rows and covariates.
    mean : ndarray of shape (q,) or None
        The mean of the adjusting covariates over all rows. None before it is known.
    slopes : ndarray of shape (q, d) or None
        The change of each feature with each of the adjusting covariates. None before the slopes are known.
    grand, sigma : ndarray of shape (d,) or None
        If sites are harmonized, the grand mean of each feature without covariates, and its standard deviation about the
        part that sites and covariates explain. Otherwise, and before they are known, None.
    effect : SiteEffect or None
        The difference of a site from all sites, if new rows of this site are harmonized. No message contains it.
    """

    names: tuple[str, ...]
    adjusted: int = 0
    within: bool = False
    mean: Array | None = None
    slopes: Array | None = None
    grand: Array | None = None
    sigma: Array | None = None
    effect: SiteEffect | None = None

    __repr__ = brief

    @property
    def adjusted_names(self) -> tuple[str, ...]:
        """The names of the covariates for which rows are adjusted."""
        return self.names[: self.adjusted]

    @property
    def names_in_result(self) -> tuple[str, ...]:
        """The names that a result lists for the adjustment: the covariates, and "site" for the site's own means."""
        return (*self.adjusted_names, *([SITE] if self.within else []))

    @property
    def changes_rows(self) -> bool:
        """Whether features change, because slopes or the parameters for harmonizing are known, or `within` is set."""
        return self.within or self.slopes is not None or self.sigma is not None

    @property
    def without_arrays(self) -> Covariates:
        """The covariates without the arrays that a run computes for them."""
        return replace(self, mean=None, slopes=None, grand=None, sigma=None)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays of the adjustment in a message, by name."""
        every = {"covariate_mean": self.mean, "slopes": self.slopes, "grand": self.grand, "sigma": self.sigma}
        return {name: a for name, a in every.items() if a is not None}

    def changes_rows_alike(self, other: Covariates) -> bool:
        """Return whether both objects change every row in the same way."""
        if (self.names, self.adjusted, self.within) != (other.names, other.adjusted, other.within):
            return False
        if self.effect is not other.effect:
            return False
        for a, b in zip(self._arrays_in_order, other._arrays_in_order, strict=True):
            if a is not b and (a is None or b is None or not np.array_equal(a, b)):
                return False
        return True

    @property
    def _arrays_in_order(self) -> tuple[Array | None, ...]:
        return self.mean, self.slopes, self.grand, self.sigma

    def features_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the features of a table: all names except covariates and their indicators."""
        words = {*self.names, *filter(None, map(source_of, self.names))}
        return tuple(name for name in names if name not in words and source_of(name) not in words)

    def to_text(self) -> str:
        """Return the names and the kind of adjustment as text for a message."""
        return json.dumps({"names": self.names, "adjusted": self.adjusted, "within": self.within})

    @classmethod
    def from_text(cls, text: str, arrays: Mapping[str, Array]) -> Covariates:
        """Restore covariates from the text of `to_text` and the arrays of `arrays`.

        Raises
        ------
        ProtocolError
            If the text or the arrays are invalid.
        """
        try:
            said: Any = json.loads(text)
            names, adjusted, within = said["names"], said["adjusted"], said["within"]
        except (ValueError, TypeError, KeyError):
            names, adjusted, within = None, 0, False
        right = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
        if not right or not isinstance(adjusted, int) or not 0 <= adjusted <= len(names) or len({*names}) != len(names):
            raise ProtocolError(
                "The covariates of a message are malformed. A message must name each covariate once, and give the "
                f"number of covariates for which rows are adjusted. {_REMEDY}"
            )
        mean, slopes, grand, sigma = (arrays.get(name) for name in ("covariate_mean", "slopes", "grand", "sigma"))
        return cls(tuple(names), adjusted, bool(within), mean, slopes, grand, sigma)


def count_independent(products: Array) -> int:
    """Return how many covariates are linearly independent, given the products A'A of the matrix A of covariates."""
    return int(np.linalg.matrix_rank(pseudo_inverse(products), hermitian=True)) if products.size else 0


def pseudo_inverse(products: Array) -> Array:
    """Return the pseudo-inverse (q x q) of the products A'A, where A has a column for each of q covariates.

    It is computed from the correlations of the covariates. They may be linearly dependent, so all levels of a column of
    words may be among them.
    """
    if not products.size:
        return products
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    units = np.where(lengths > 0.0, lengths, 1.0)
    values, V = np.linalg.eigh(products / np.outer(units, units))
    kept = values > _TIED * max(float(values[-1]), 0.0) if len(values) else np.zeros(0, dtype=bool)
    V = V[:, kept] / units[:, None]
    return np.asarray((V / values[kept]) @ V.T)
