"""Rotation: the span of a result along other axes, each made of few columns, for reading.

The loadings of k components are A = Z diag(v)^(1/2), (d, k): Z the components, v their variances. A
row x, in the frame, has the scores f = diag(v)^(-1/2) Z'x, of variance 1 each, and Z Z'x = A f. Any
invertible R, (k, k), writes the same as A R and R^(-1) f: other axes, and the same rows, span,
reconstruction and variance of each column. A rotation chooses the R that makes loadings large or
small, and few in between:

    varimax   R = T orthonormal, where the squared loadings of each component differ most (Kaiser 1958):
              sum over j of [ sum_i b_ij^4 - (sum_i b_ij^2)^2 / d ], b = A T, largest.
    promax    R = T U, where U brings A T nearest to its own entries' `power`-th powers, signs kept, by least squares
              (Hendrickson and White 1964); its columns are such that scores keep the variance 1.

With `kaiser` the rows of A have length 1 while T is looked for, so that each column of the data
counts alike.

Varimax turns two axes at a time, in their plane to where the criterion is largest: there the angle
has a closed form, so that the criterion never falls. A sweep over all planes costs about 12 d k^2
flops. Where components have a pattern, some ten sweeps do; dozens of components that are noise have
none, and hundreds may not. As in all such programs the end is a local maximum, mostly the only one.

After it the scores of varimax do not correlate, and those of promax do, by `correlations`. The
loadings are orthogonal no more, and no axis is the direction of most variance: only all of them
together hold what the components hold.

References
----------
Kaiser, "The varimax criterion for analytic rotation in factor analysis", Psychometrika 23, 1958.

Hendrickson, White, "Promax: a quick method for rotation to oblique simple structure", Br. J. Stat. Psychol. 17, 1964.

Jolliffe, "Rotation of principal components: choice of normalization constraints", J. Appl. Stat. 22, 1995, on why the
loadings that are rotated have the length of the deviations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels, spec
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names.levels import source_of
from flower_pca.results.facts import Listing, plain_names
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

SWEEPS: Final = 300  # over all planes, at most
_STILL: Final = 1e-12  # A slope below this share of a plane's squares is rounding.
# The largest power of promax. With a larger power, the target has a few large entries, and 0 elsewhere.
_POWER: Final = 16.0
_FLAT: Final = 1e-13  # Below this share of the largest variance, nothing but rounding is left.
_PAIRS: Final = 3  # correlations of scores that a sentence names
_DIVISORS: Final = {
    "std": "their deviations",
    "max_abs": "their largest values",
    "genotype": "the deviations of their frequencies",
}


def varimax(A: Array, *, kaiser: bool = True) -> Array:
    """Return the orthonormal T, (k, k), that makes the squares in each column of A T differ most.

    Parameters
    ----------
    A : ndarray of shape (d, k)
        Loadings.
    kaiser : bool, default=True
        Whether the rows of A count alike, as if of length 1.
    """
    checks.choice("kaiser", kaiser, (True, False))
    # The criterion has fourth powers, which may overflow in the columns' own units.
    Z = A.T / np.abs(A).max()
    T = np.eye(A.shape[1])
    if kaiser:
        lengths = np.linalg.norm(Z, axis=0)
        Z = Z / np.where(lengths > 0.0, lengths, 1.0)
    rounds = _rounds(len(T))
    for _ in range(SWEEPS):
        furthest = max(_turn(Z, T, i, j) for i, j in rounds)
        if furthest == 0.0:
            return T.T
    left = f"varimax still turns by {np.rad2deg(furthest):.1g} degrees after {SWEEPS} sweeps"
    warnings.warn(
        f"The rotation has not settled, so the loadings are not reliable: {left}. Rotate fewer components.",
        stacklevel=2,
    )
    return T.T


def _rounds(k: int) -> list[tuple[Array, Array]]:
    """Return all pairs of k axes, i and j, in rounds in which no axis occurs twice, as in a tournament."""
    ring = list(range(k + k % 2))
    half, rounds = len(ring) // 2, []
    for _ in ring[1:]:
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        i, j = np.array([pair for pair in pairs if max(pair) < k]).T
        rounds.append((i, j))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def _turn(Z: Array, T: Array, i: Array, j: Array) -> float:
    """Turn rows i and j of Z, (k, d), and of T in their planes to the maximum of the criterion.

    Return the largest angle.
    """
    x, y = Z[i], Z[j]
    u = x**2 - y**2
    v = 2.0 * x * y
    sums, others = u.sum(axis=1), v.sum(axis=1)
    uu, vv, uv = (np.einsum("ij,ij->i", *pair) for pair in ((u, u), (v, v), (u, v)))
    # After a turn by t, the criterion is constant + |(s, b)| cos(4 t - angle).
    slope = 2.0 * (uv - sums * others / Z.shape[1])
    bend = uu - vv - (sums**2 - others**2) / Z.shape[1]
    rounding = _STILL * (uu + vv)
    # If the slope is 0 and the bend is negative, the criterion is at its minimum, so the plane must be turned.
    there = (np.abs(slope) <= rounding) & (bend >= -rounding)
    angles = np.where(there, 0.0, np.arctan2(slope, bend) / 4.0)
    cos = np.cos(angles)[:, None]
    sin = np.sin(angles)[:, None]
    for rows in (Z, T):
        first, second = rows[i], rows[j]
        rows[i], rows[j] = cos * first + sin * second, cos * second - sin * first
    return float(np.abs(angles).max())


def promax(A: Array, *, kaiser: bool = True, power: float = 4.0) -> Array:
    """Return R = T U, (k, k), that brings A R closest to the powers of A T, with scores of variance 1.

    Parameters
    ----------
    A : ndarray of shape (d, k)
        Loadings.
    kaiser : bool, default=True
        As for varimax, which is done first.
    power : float, default=4.0
        What each entry of the target is the power of; 2 to 4 as a rule. The higher, the more scores correlate.
    """
    checks.number("power", power, least=1.0, most=_POWER)
    T = varimax(A, kaiser=kaiser)
    B = A @ T
    # Powers up to the 16th follow, which must not overflow in any unit.
    B = B / np.abs(B).max()
    U = np.linalg.lstsq(B, B * np.abs(B) ** (power - 1.0), rcond=None)[0]
    return np.asarray(T @ U * np.linalg.norm(np.linalg.inv(U), axis=1))


METHODS: Final[Mapping[str, Callable[..., Array]]] = {"varimax": varimax, "promax": promax}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotation:
    """The components of a result along rotated axes rc1, rc2, ..., largest variance first.

    Attributes
    ----------
    method : str
        What turned them, a spec.
    loadings : ndarray
        (d, k): the frame's rows are `loadings` times scores, but for what the components leave out. With scale="std"
        those of varimax are the correlations of columns and scores. Each one's largest is positive.
    matrix : ndarray of shape (k, k)
        R, by which the loadings of the components, Z diag(v)^(1/2), are multiplied.
    correlations : ndarray of shape (k, k)
        Of the scores; the identity of varimax.
    explained_variance : ndarray of shape (k,)
        What each adds to the variance that the components explain.
    explained_variance_ratio : ndarray of shape (k,)
        Likewise, as a share of all variance.
    feature_names : ndarray of shape (d,) or None
        Names of the columns. None if columns are matched by position.
    result : PCAResult
        What has been rotated.
    """

    method: str
    loadings: Array
    matrix: Array
    correlations: Array
    explained_variance: Array
    explained_variance_ratio: Array
    feature_names: Array | None
    result: PCAResult = field(repr=False)

    __repr__ = brief

    def transform(self, X: Any) -> Array:
        """Return scores of rows along the rotated axes, (n, k). They have variance 1 over the rows of the run.

        Parameters
        ----------
        X : array-like
            The rows, as for `PCAResult.transform`.
        """
        deviations = np.sqrt(self.result.explained_variance_)
        return np.asarray(self.result.transform(X) / deviations @ np.linalg.inv(self.matrix).T)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of `transform`: rc1, rc2, ...; `input_features` is ignored."""
        return np.array([f"rc{j + 1}" for j in range(len(self.matrix))], dtype=object)

    @property
    def oblique(self) -> bool:
        """Whether scores are correlated."""
        return bool(np.abs(self.correlations - np.eye(len(self.matrix))).max() > 1e-8)

    @property
    def words(self) -> str:
        """What a reader should know about the axes, in a few sentences."""
        scores = "Their scores are uncorrelated and have variance 1."
        if self.oblique:
            scores = f"Their scores correlate: {self._pairs()}."
        return (
            f"Rotated by {self.method}: together they span the same space as the components, but none of them is the "
            f"direction of most variance. {scores} {self._units()}"
        )

    def _units(self) -> str:
        """Return the unit of columns that these loadings refer to."""
        scale = self.result.config.get("scale")
        if self.feature_names is not None and any(map(source_of, map(str, self.feature_names))):
            return (
                "Loadings refer to columns as the run has scaled them. Columns made of words are scaled by their "
                "shares."
            )
        if scale == "std" and self.result.centered and not self.oblique:
            return "Loadings are correlations of columns and scores, as columns have variance 1."
        if scale is not None:
            return f"Loadings refer to columns divided by {_DIVISORS[scale]}."
        return "Loadings are in the units of the columns."

    def _pairs(self) -> str:
        """Return the largest correlations of scores, in words."""
        names = self.get_feature_names_out()
        pairs = list(combinations(range(len(self.matrix)), 2))
        largest = sorted(pairs, key=lambda pair: -abs(self.correlations[pair]))[:_PAIRS]
        return ", ".join(f"{names[i]} and {names[j]} by {self.correlations[i, j]:+.2f}" for i, j in largest)

    def listing(self, *, digits: int = 4) -> Listing:
        """Return a table with a line for each axis, with so many digits of its variance."""
        checks.integer("digits", digits, least=1, most=17)
        names = labels.column_names(self.feature_names, len(self.loadings))
        shares = self.explained_variance_ratio
        columns = (self.get_feature_names_out(), self.explained_variance, shares, shares.cumsum(), self.loadings.T)
        lines = [
            [name, f"{variance:.{digits}g}", f"{share:.2%}", f"{together:.2%}", labels.in_words(weights, names)]
            for name, variance, share, together, weights in zip(*columns, strict=True)
        ]
        return Listing(["rotated", "variance", "share", "together", "largest loadings"], lines)

    def every(self) -> Listing:
        """Return a table with the loadings of each column, grouped by the axis of their largest loading."""
        names = labels.column_names(self.feature_names, len(self.loadings))
        sizes = np.abs(self.loadings)
        order = np.lexsort((-sizes.max(axis=1), sizes.argmax(axis=1)))
        lines = [[names[i], *(f"{loading:+.2f}" for loading in self.loadings[i])] for i in order]
        return Listing(["column", *self.get_feature_names_out()], lines)

    def table(self) -> str:
        """Write variances and largest loadings as plain text."""
        return f"{labels.in_columns(*self.listing())}\n{self.words}"

    def as_json(self) -> dict[str, Any]:
        """Return everything except the result as plain values."""
        return {
            "method": self.method,
            "names": self.get_feature_names_out().tolist(),
            "feature_names": plain_names(self.result),
            "loadings": self.loadings.tolist(),
            "matrix": self.matrix.tolist(),
            "correlations": self.correlations.tolist(),
            "explained_variance": self.explained_variance.tolist(),
            "explained_variance_ratio": self.explained_variance_ratio.tolist(),
        }


def rotate(result: PCAResult | TrackingResult, method: str = "varimax") -> Rotation:
    """Rotate the components of a result to axes made of few columns each, without any message or rows.

    Parameters
    ----------
    result : PCAResult or TrackingResult
        What a run has returned, whose components are those of the covariance of all rows.
    method : str, default="varimax"
        "varimax" or "promax", with settings if need be: "varimax(kaiser=False)", "promax(power=3)".

    Raises
    ------
    ConfigError
        If there is nothing to rotate, or rotating would not keep what the components hold.
    """
    turn = spec.bind(method, METHODS, what="The rotation", rule='a spec such as "varimax" or "promax(power=3)"')
    result = _with_axes(result)
    A = result.components_.T * np.sqrt(result.explained_variance_)
    R = turn(A)
    inverse = np.linalg.inv(R)
    # This is diag(P L'L) with the correlations P. Its sum equals that of A.
    variances = np.sum(A @ R * (A @ inverse.T), axis=0)
    order = np.argsort(-variances, kind="stable")
    R, inverse = R[:, order], inverse[order]
    B = A @ R
    signs = np.sign(B[np.abs(B).argmax(axis=0), np.arange(len(R))])
    return Rotation(
        method=method,
        loadings=B * signs,
        matrix=R * signs,
        correlations=inverse @ inverse.T * np.outer(signs, signs),
        explained_variance=variances[order],
        explained_variance_ratio=variances[order] / (result.total_variance_ or 1.0),
        feature_names=result.feature_names_in_,
        result=result,
    )


def _with_axes(result: PCAResult | TrackingResult) -> PCAResult:
    """Return the result, and require orthonormal components of all rows with known, positive variances."""
    if isinstance(result, TrackingResult) or not result.is_pooled:
        raise ConfigError(
            f"Only orthonormal components of the covariance of all rows can be rotated, but {result.algorithm} has "
            "other components. Use krylov."
        )
    if result.privacy is not None:
        raise ConfigError(
            "The components of a run with dp cannot be rotated, because their variances have noise. Use the "
            "components as they are."
        )
    if result.n_components_ < 2:
        raise ConfigError(
            f"A rotation needs at least 2 components, but this result has {result.n_components_}. Ask for more "
            "components."
        )
    _ = result.frame  # This raises an error if loadings stay with their parties.
    variances = result.explained_variance_
    if variances.min() <= _FLAT * variances.max():
        raise ConfigError(
            f"Components without variance cannot be rotated, but the smallest variance is {variances.min():.2g}. Ask "
            "for fewer components."
        )
    return result
