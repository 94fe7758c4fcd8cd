"""Rotate the components of a result to axes that each consist of few columns, so that they are easier to interpret.

The loadings of k components are A = Z diag(v)^(1/2), (d, k), with the components Z and their variances v. A row x, in
the frame, has the scores f = diag(v)^(-1/2) Z'x, each with variance 1, and Z Z'x = A f. For any invertible R, (k, k),
the loadings A R and the scores R^(-1) f give the same product: the axes change, but not the rows, the span, the
reconstruction or the variance of each column. A rotation chooses R so that most loadings are either large or small:

    varimax   R = T is orthonormal and maximizes the variance of the squared loadings of each component (Kaiser 1958):
              sum over j of [ sum_i b_ij^4 - (sum_i b_ij^2)^2 / d ] with b = A T.
    promax    R = T U, where U is the least squares solution that brings A T closest to the `power`-th powers of its
              entries, with their signs (Hendrickson and White 1964). Columns of U are scaled so that scores keep the
              variance 1.

With `kaiser`, the rows of A are scaled to length 1 while T is computed, so that all columns of the data have the same
weight.

Varimax turns two axes at a time, in their plane, to the maximum of the criterion. The angle has a closed form, so the
criterion never decreases. A sweep over all planes costs about 12 d k^2 flops. If components have a pattern, about ten
sweeps are enough. Dozens of components of noise have no pattern, and hundreds of sweeps may not be enough. As in all
programs of this kind, the result is a local maximum, and usually there is only one.

After the rotation, the scores of varimax are uncorrelated, and the scores of promax have the correlations
`correlations`. The loadings are no longer orthogonal, and no axis is the direction of largest variance. Only all axes
together explain as much as the components.

References
----------
Kaiser, "The varimax criterion for analytic rotation in factor analysis", Psychometrika 23, 1958.

Hendrickson, White, "Promax: a quick method for rotation to oblique simple structure", Br. J. Stat. Psychol. 17, 1964.

Jolliffe, "Rotation of principal components: choice of normalization constraints", J. Appl. Stat. 22, 1995, on why
components are scaled by their standard deviations before the rotation.

Examples
--------
>>> import numpy as np
>>> from flower_pca import simulate
>>> from flower_pca.analysis.rotation import rotate
>>> rng = np.random.default_rng(0)
>>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
>>> rotated = rotate(simulate("krylov", sites, n_components=2), "varimax")
>>> rotated.transform(sites[0]).shape
(60, 2)
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
from flower_pca.results.facts import Listing, names_for_json
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

SWEEPS: Final = 300  # maximum number of sweeps over all planes
_STILL: Final = 1e-12  # A slope below this share of the sum of squares in a plane counts as rounding error.
# This is the largest power of promax. With larger powers, the target has a few large entries, and the rest are 0.
_POWER: Final = 16.0
_FLAT: Final = 1e-13  # A variance below this share of the largest variance counts as rounding error.
_PAIRS: Final = 3  # maximum number of correlations that a sentence names
_DIVISORS: Final = {
    "std": "their deviations",
    "max_abs": "their largest values",
    "genotype": "the deviations of their frequencies",
}


def varimax(A: Array, *, kaiser: bool = True) -> Array:
    """Return the orthonormal T, (k, k), that maximizes the variance of the squares in each column of A T.

    Parameters
    ----------
    A : ndarray of shape (d, k)
        The loadings.
    kaiser : bool, default=True
        Whether the rows of A are scaled to length 1, so that all columns of the data have the same weight.
    """
    checks.choice("kaiser", kaiser, (True, False))
    # The loadings are scaled, because the criterion has fourth powers, which might overflow in the columns' units.
    Z = A.T / np.abs(A).max()
    T = np.eye(A.shape[1])
    if kaiser:
        lengths = np.linalg.norm(Z, axis=0)
        Z = Z / np.where(lengths > 0.0, lengths, 1.0)
    rounds = _rounds_of_pairs(len(T))
    for _ in range(SWEEPS):
        furthest = max(_rotate_pair(Z, T, i, j) for i, j in rounds)
        if furthest == 0.0:
            return T.T
    left = f"varimax still turns by {np.rad2deg(furthest):.1g} degrees after {SWEEPS} sweeps"
    warnings.warn(
        f"The rotation has not settled, so the loadings are not reliable: {left}. Rotate fewer components.",
        stacklevel=2,
    )
    return T.T


def _rounds_of_pairs(k: int) -> list[tuple[Array, Array]]:
    """Return all pairs i, j of k axes, in rounds in which no axis occurs twice, as in a round-robin tournament."""
    ring = list(range(k + k % 2))
    half, rounds = len(ring) // 2, []
    for _ in ring[1:]:
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        i, j = np.array([pair for pair in pairs if max(pair) < k]).T
        rounds.append((i, j))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def _rotate_pair(Z: Array, T: Array, i: Array, j: Array) -> float:
    """Turn rows i and j of Z, (k, d), and of T in place, to the maximum of the criterion in their planes.

    Return the largest angle in radians.
    """
    x, y = Z[i], Z[j]
    u = x**2 - y**2
    v = 2.0 * x * y
    sums, others = u.sum(axis=1), v.sum(axis=1)
    uu, vv, uv = (np.einsum("ij,ij->i", *pair) for pair in ((u, u), (v, v), (u, v)))
    # After a rotation by t, the criterion is a constant plus a multiple of cos(4 t - arctan2(slope, bend)).
    slope = 2.0 * (uv - sums * others / Z.shape[1])
    bend = uu - vv - (sums**2 - others**2) / Z.shape[1]
    rounding = _STILL * (uu + vv)
    # If the slope is 0 but the bend is negative, the criterion is at its minimum, so the plane must be turned.
    is_maximal = (np.abs(slope) <= rounding) & (bend >= -rounding)
    angles = np.where(is_maximal, 0.0, np.arctan2(slope, bend) / 4.0)
    cos = np.cos(angles)[:, None]
    sin = np.sin(angles)[:, None]
    for rows in (Z, T):
        first, second = rows[i], rows[j]
        rows[i], rows[j] = cos * first + sin * second, cos * second - sin * first
    return float(np.abs(angles).max())


def promax(A: Array, *, kaiser: bool = True, power: float = 4.0) -> Array:
    """Return the R = T U, (k, k), for which A R is closest to powers of A T, with scores of variance 1.

    Parameters
    ----------
    A : ndarray of shape (d, k)
        The loadings.
    kaiser : bool, default=True
        Whether the rows of A are scaled to length 1 for `varimax`, which is computed first.
    power : float, default=4.0
        The exponent that turns loadings into the target, usually 2 to 4. With a higher power, scores correlate more.
    """
    checks.number("power", power, least=1.0, most=_POWER)
    T = varimax(A, kaiser=kaiser)
    B = A @ T
    # The loadings are scaled, because powers up to the 16th might overflow in the columns' units.
    B = B / np.abs(B).max()
    U = np.linalg.lstsq(B, B * np.abs(B) ** (power - 1.0), rcond=None)[0]
    return np.asarray(T @ U * np.linalg.norm(np.linalg.inv(U), axis=1))


METHODS: Final[Mapping[str, Callable[..., Array]]] = {"varimax": varimax, "promax": promax}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotation:
    """The components of a result along the rotated axes rc1, rc2 and so on, largest variance first.

    Attributes
    ----------
    method : str
        The spec of the rotation method.
    loadings : ndarray of shape (d, k)
        The rotated loadings. Rows in the frame are approximately `loadings` times scores. With scale="std", the
        loadings of varimax are the correlations of columns and scores. The largest loading of each axis is positive.
    matrix : ndarray of shape (k, k)
        The matrix R, by which the loadings of the components, Z diag(v)^(1/2), are multiplied.
    correlations : ndarray of shape (k, k)
        The correlations of the scores. For varimax, the identity matrix.
    explained_variance : ndarray of shape (k,)
        The part of the components' variance that each axis explains.
    explained_variance_ratio : ndarray of shape (k,)
        The same parts, as shares of the total variance.
    feature_names : ndarray of shape (d,) or None
        Names of the columns. None if columns are matched by position.
    result : PCAResult
        The result whose components were rotated.
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
        """Return the scores of rows along the rotated axes, (n, k). Over the run's rows, each score has variance 1.

        Parameters
        ----------
        X : array-like
            The rows, as for `PCAResult.transform`.
        """
        deviations = np.sqrt(self.result.explained_variance_)
        return np.asarray(self.result.transform(X) / deviations @ np.linalg.inv(self.matrix).T)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of `transform`: rc1, rc2 and so on. `input_features` is ignored."""
        return np.array([f"rc{j + 1}" for j in range(len(self.matrix))], dtype=object)

    @property
    def oblique(self) -> bool:
        """Whether the scores along the rotated axes are correlated."""
        return bool(np.abs(self.correlations - np.eye(len(self.matrix))).max() > 1e-8)

    @property
    def words(self) -> str:
        """A few sentences that explain the rotated axes to a reader."""
        scores = "Their scores are uncorrelated and have variance 1."
        if self.oblique:
            scores = f"Their scores correlate: {self._largest_correlations()}."
        return (
            f"Rotated by {self.method}: together they span the same space as the components, but none of them is the "
            f"direction of most variance. {scores} {self._sentence_on_units()}"
        )

    def _sentence_on_units(self) -> str:
        """Return a sentence about the units of the loadings."""
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

    def _largest_correlations(self) -> str:
        """Return the largest correlations of scores, as text."""
        names = self.get_feature_names_out()
        pairs = list(combinations(range(len(self.matrix)), 2))
        largest = sorted(pairs, key=lambda pair: -abs(self.correlations[pair]))[:_PAIRS]
        return ", ".join(f"{names[i]} and {names[j]} by {self.correlations[i, j]:+.2f}" for i, j in largest)

    def axes_table(self, *, digits: int = 4) -> Listing:
        """Return a table with a line for each axis, and with variances rounded to this number of significant digits."""
        checks.integer("digits", digits, least=1, most=17)
        names = labels.column_names(self.feature_names, len(self.loadings))
        shares = self.explained_variance_ratio
        columns = (self.get_feature_names_out(), self.explained_variance, shares, shares.cumsum(), self.loadings.T)
        lines = [
            [name, f"{variance:.{digits}g}", f"{share:.2%}", f"{together:.2%}", labels.weights_in_words(weights, names)]
            for name, variance, share, together, weights in zip(*columns, strict=True)
        ]
        return Listing(["rotated", "variance", "share", "together", "largest loadings"], lines)

    def all_loadings(self) -> Listing:
        """Return a table of the loadings of all columns, grouped by the axis with the largest loading of a column."""
        names = labels.column_names(self.feature_names, len(self.loadings))
        sizes = np.abs(self.loadings)
        order = np.lexsort((-sizes.max(axis=1), sizes.argmax(axis=1)))
        lines = [[names[i], *(f"{loading:+.2f}" for loading in self.loadings[i])] for i in order]
        return Listing(["column", *self.get_feature_names_out()], lines)

    def table(self) -> str:
        """Return the variances and the largest loadings as a plain text table, with an explanation."""
        return f"{labels.text_table(*self.axes_table())}\n{self.words}"

    def as_json(self) -> dict[str, Any]:
        """Return all attributes except `result` as plain values."""
        return {
            "method": self.method,
            "names": self.get_feature_names_out().tolist(),
            "feature_names": names_for_json(self.result),
            "loadings": self.loadings.tolist(),
            "matrix": self.matrix.tolist(),
            "correlations": self.correlations.tolist(),
            "explained_variance": self.explained_variance.tolist(),
            "explained_variance_ratio": self.explained_variance_ratio.tolist(),
        }


def rotate(result: PCAResult | TrackingResult, method: str = "varimax") -> Rotation:
    """Rotate the components of a result to axes that consist of few columns each, without messages and without rows.

    Parameters
    ----------
    result : PCAResult or TrackingResult
        The result of a run. Its components must be eigenvectors of the covariance of all rows, so the result of a
        tracking run is refused.
    method : str, default="varimax"
        "varimax" or "promax", with settings if needed: "varimax(kaiser=False)", "promax(power=3)".

    Raises
    ------
    ConfigError
        If the result has fewer than two components, or if its components are not orthonormal components of all rows
        with known, positive variances.
    """
    turn = spec.bind(method, METHODS, what="The rotation", rule='a spec such as "varimax" or "promax(power=3)"')
    result = _rotatable(result)
    A = result.components_.T * np.sqrt(result.explained_variance_)
    R = turn(A)
    inverse = np.linalg.inv(R)
    # These variances are the diagonal of P L'L, with the correlations P and the rotated loadings L. Their sum equals
    # the sum of squares of A.
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


def _rotatable(result: PCAResult | TrackingResult) -> PCAResult:
    """Return the result if its components can be rotated, or else raise a ConfigError.

    The result must have at least two orthonormal components of all rows, with exact, positive variances.
    """
    if isinstance(result, TrackingResult) or not result.is_pooled:
        raise ConfigError(
            f"Only orthonormal components of the covariance of all rows can be rotated, but {result.algorithm} has "
            "other components. Use the result of a run with krylov."
        )
    if result.privacy is not None:
        raise ConfigError(
            "The components of a run with dp cannot be rotated, because their variances have noise. Use the "
            "components without a rotation."
        )
    if result.n_components_ < 2:
        raise ConfigError(
            f"A rotation needs at least 2 components, but this result has {result.n_components_}. Run with more "
            "components."
        )
    _ = result.frame  # Reading the frame raises an error if the parties of the run keep their loadings.
    variances = result.explained_variance_
    if variances.min() <= _FLAT * variances.max():
        raise ConfigError(
            f"Components without variance cannot be rotated, but the smallest variance is {variances.min():.2g}. Run "
            "with fewer components."
        )
    return result
