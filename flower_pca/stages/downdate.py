"""Downdating: the distances of rows from the components that a run would have found without these rows.

The components are pulled towards every row in the fit, so a fitted row is closer to the components than
a new row. To estimate the distances of new rows, each row is compared with the components, the mean and
the deviations of all other rows. No second fit is needed. Let W be the p Ritz vectors of C at the end of
a run, theta their sums of squares, and x a row in the frame. Without this row, and about the mean of the
other rows, C becomes C - c x x'. In the basis of W and the direction of the row's residual from W, this
matrix is

    M = diag(theta_1, ..., theta_p, bar) - c u u',    u = (W'x, |x - WW'x|),

if all directions beyond W have the same sum of squares `bar`. The k leading eigenpairs (mu_j, q_j) of M
belong to the components without the row:

    T2  = c^2 sum_j (u'q_j)^2 (n - 2) / mu_j
    SPE = c^2 (|x|^2 - sum_j (u'q_j)^2)

with c = n / (n - 1) if the run is centered, and c = 1 if not. If columns were divided by the deviations
of the same rows, each entry x_i is first divided by the deviation of its column without the row,
which is sqrt((n - c x_i^2) / (n - 1)) in the frame. Columns made from text columns keep their scale.

If a regression on covariates was removed, c = 1 / (1 - h) with the leverage h of the row in the
regression on the mean and the covariates, and n - 2 is reduced by the degrees of freedom of the
covariates. A row with h = 1 is fitted by its own covariates alone, so its distance from a fit to the
other rows is undefined. The leverages are the diagonal of the hat matrix H = F F', where F has a line
for each row. Without covariates, each line is 1 / sqrt(n).

Rows can depend on each other, for example because they follow each other in time or belong to one
person. Then a row's neighbors resemble the row, and are left out with it. The autocorrelation of the
scores over the rows of one node, in their order, determines how many neighbors are left out (see
`dependent_neighbors`). Let J be the rows at most b places from row i, R their residuals from W, RR' = YY', U =
[X_J W, Y] the rows in the basis of W and of their residuals, and K = (I - F_J F_J')^-1 = I + F_J (I -
F_J'F_J)^-1 F_J' for their lines of F. Then

    M   = diag(theta_1, ..., theta_p, bar, ..., bar) - U'K U
    u   = the line of K U for row i
    T2  = sum_j (u'q_j)^2 (n - |J| - 1) / mu_j
    SPE = (K X_J X_J' K)_ii - sum_j (u'q_j)^2

which equals the formulas above for b = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

ROUNDING: Final = 1e-12  # variances below this share of the first or of the total variance are rounding errors
_NUMBERS: Final = 2**20  # the maximum number of entries in matrices that are decomposed together
_ROWS: Final = 256  # the maximum number of rows whose products are computed together
_MOST_NEIGHBORS: Final = 50
_ROWS_PER_NEIGHBOR: Final = 8  # the minimum number of rows for each neighbor that is left out
_DEPENDENT: Final = 0.2  # the autocorrelation at lag 1 from which neighboring rows count as dependent
_DEVIATIONS: Final = 4.0  # the number of standard deviations by which an autocorrelation must exceed chance
_INDEPENDENT: Final = 0.15  # the autocorrelation below which rows at this lag count as independent
_SAME: Final = 1e-10  # a residual square below this share of the largest one counts as 0
_ALONE: Final = 1e-9  # If 1 minus the leverage of a row is at most this, the row is fitted by its covariates alone.


@dataclass(frozen=True)
class LeaveOneOut:
    """The components of a run, prepared for comparing each row with a fit to all other rows.

    Attributes
    ----------
    W : ndarray of shape (d, p)
        The Ritz vectors of C, orthonormal, largest first.
    values : ndarray of shape (p,)
        Their sums of squares.
    k : int
        The number of leading Ritz vectors that are components.
    mean_rest : float
        `bar`, the mean sum of squares along each direction beyond W.
    n : int
        The number of rows of all sites together.
    centered : bool
        Whether the mean of all rows was subtracted.
    rescaled : ndarray of shape (d,) or None
        A mask of the columns that were divided by the deviation of all rows, or None if there are no such columns.
    hat : ndarray of shape (rows, f) or None
        The lines of F for the compared rows, if a regression on covariates was removed.
    removed : int
        The degrees of freedom used by covariates and sites.
    """

    W: Array
    values: Array
    k: int
    mean_rest: float
    n: int
    centered: bool
    rescaled: Array | None = None
    hat: Array | None = None
    removed: int = 0

    def distances(self, blocks: Iterator[Array], around: int) -> Iterator[tuple[Array, Array]]:
        """Yield T2 and SPE of the rows, each from a fit without the row and its `around` neighbors on both sides.

        Both are NaN for a row that cannot be left out because its covariates alone fit it.
        """
        done = 0
        if not around:
            for block in blocks:
                for rows in self._split_block(block, len(self.values) + 1):
                    yield self._distances_without_row(rows, self._rows_of_F(done, len(rows)))
                    done += len(rows)
            return
        most = min(self._rows_at_once(len(self.values) + 2 * around + 1), _ROWS)
        for rows, first, last in _windows(blocks, around, most):
            yield self._distances_without_neighbors(rows, self._rows_of_F(done - first, len(rows)), first, last, around)
            done += last - first

    def scores(self, block: Array) -> Array:
        """Return the scores of rows along the components, (rows, k), for `dependent_neighbors`."""
        return np.asarray(block, dtype=np.float64) @ self.W[:, : self.k]

    def _rows_at_once(self, size: int) -> int:
        return max(1, _NUMBERS // size**2)

    def _split_block(self, block: Array, size: int) -> Iterator[Array]:
        step = self._rows_at_once(size)
        for i in range(0, len(block), step):
            yield np.asarray(block[i : i + step], dtype=np.float64)

    def _rows_of_F(self, start: int, count: int) -> Array:
        """Return the rows of F for `count` rows of the table from `start` on. F is a root of the hat matrix."""
        if self.hat is not None:
            return self.hat[start : start + count]
        return np.full((count, int(self.centered)), 1.0 / np.sqrt(self.n))

    def _scale_without_row(self, X: Array, c: Array) -> Array:
        """Return the rows X, each divided by the deviations of the columns without this row."""
        if self.rescaled is None:
            return X
        left = (self.n - c[:, None] * X**2) / (self.n - 1)
        # If a column is constant in the other rows, it keeps its scale.
        usable = self.rescaled & (left > ROUNDING)
        return np.where(usable, X / np.sqrt(np.where(usable, left, 1.0)), X)

    def _distances_without_row(self, X: Array, F: Array) -> tuple[Array, Array]:
        """Return T2 and SPE of rows, each from a fit without the row."""
        c, known = _row_factors(F)
        X = self._scale_without_row(X, c)
        T = X @ self.W
        rest = X - T @ self.W.T
        u = np.column_stack([T, np.sqrt(np.einsum("ij,ij->i", rest, rest))])
        M = np.diag(np.append(self.values, self.mean_rest)) - (c[:, None] * u)[:, :, None] * u[:, None, :]
        inside, t2 = self._squares_along(M, u, self.n - 2 - self.removed)
        squares = np.einsum("ij,ij->i", X, X)
        spe = np.maximum(c**2 * (squares - inside), 0.0)
        return np.where(known, c**2 * t2, np.nan), np.where(known, spe, np.nan)

    def _distances_without_neighbors(self, X: Array, F: Array, first: int, last: int, b: int) -> tuple[Array, Array]:
        """Return T2 and SPE of the rows `first` to `last` - 1, each from a fit without the row and b neighbors."""
        X = self._scale_without_row(X, _row_factors(F)[0])
        T = X @ self.W
        rest = X - T @ self.W.T
        products, all_products = rest @ rest.T, X @ X.T
        t2, spe = np.empty(last - first), np.empty(last - first)
        places = np.arange(first, last)
        starts, ends = np.maximum(places - b, 0), np.minimum(places + b + 1, len(X))
        # Rows are grouped by their number of neighbors, which is smaller only for the first and last rows.
        for size in np.unique(ends - starts):
            which = np.flatnonzero(ends - starts == size)
            J = starts[which, None] + np.arange(size)
            own = places[which] - starts[which]
            squares = all_products[J[:, :, None], J[:, None, :]]
            t2[which], spe[which] = self._distances_without_groups(
                T[J], products[J[:, :, None], J[:, None, :]], squares, F[J], own, int(size)
            )
        return t2, spe

    def _distances_without_groups(
        self, T: Array, products: Array, squares: Array, F: Array, left_out: Array, size: int
    ) -> tuple[Array, Array]:
        """Return T2 and SPE of the row `left_out` of each group, from a fit without the group.

        T holds the scores of the rows along W, `products` the inner products of their residuals, `squares`
        the inner products of the rows, and F their lines of F, each of shape (groups, size, ...).
        """
        values, vectors = np.linalg.eigh(products)
        kept = values > _SAME * np.maximum(values[:, -1:], np.finfo(np.float64).tiny)
        Y = vectors * np.sqrt(np.where(kept, values, 0.0))[:, None, :]
        U = np.concatenate([T, Y], axis=2)
        groups, left = np.arange(len(U)), self.n - size
        across = F.transpose(0, 2, 1)
        inner = np.eye(F.shape[2]) - across @ F
        known = np.linalg.eigvalsh(inner).min(axis=1, initial=1.0) > _ALONE
        inner[~known] = np.eye(F.shape[2])
        inverse = np.linalg.inv(inner)
        weights = np.einsum("gf,gfe->ge", F[groups, left_out], inverse)
        g, crossed = across @ U, across @ squares
        M = -U.transpose(0, 2, 1) @ U - g.transpose(0, 2, 1) @ inverse @ g
        u = U[groups, left_out] + np.einsum("gf,gfr->gr", weights, g)
        lengths = squares[groups, left_out, left_out] + 2.0 * np.einsum(
            "gf,gf->g", weights, crossed[groups, :, left_out]
        )
        lengths += np.einsum("gf,gfe,ge->g", weights, crossed @ F, weights)
        p = len(self.values)
        M[:, range(p), range(p)] += self.values
        beyond = range(p, M.shape[1])
        M[:, beyond, beyond] += np.where(kept, self.mean_rest, 0.0)
        inside, t2 = self._squares_along(M, u, left - 1 - self.removed)
        return np.where(known, t2, np.nan), np.where(known, np.maximum(lengths - inside, 0.0), np.nan)

    def _squares_along(self, M: Array, u: Array, ddof: int) -> tuple[Array, Array]:
        """Return the sum of squares of u along the k leading eigenvectors of M, and this sum weighted for T2."""
        if not np.isfinite(M).all():  # Numbers in the server's message can be so large that M overflows.
            M = np.zeros(M.shape)
        mu, Q = np.linalg.eigh(M)
        mu, Q = mu[:, -self.k :], Q[:, :, -self.k :]
        squares = np.einsum("ij,ijk->ik", u, Q) ** 2
        least = ROUNDING * max(float(self.values[0]), np.finfo(np.float64).tiny)
        # If a row varies along a direction in which no other row varies, it is infinitely far away.
        far = np.where(squares > least, np.inf, 0.0)
        shares = np.divide(squares, mu, out=far, where=mu > least)
        return squares.sum(axis=1), shares.sum(axis=1) * ddof


def _row_factors(F: Array) -> tuple[Array, Array]:
    """Return the factor c of each row from its line of F, and whether the row can be left out.

    If a row cannot be left out, its factor is 1.
    """
    left = 1.0 - np.einsum("ij,ij->i", F, F)
    known = left > _ALONE
    return 1.0 / np.where(known, left, 1.0), known


def dependent_neighbors(scores: Array) -> int:
    """Return the estimated number of rows on each side of a row that depend on this row, from scores (rows, k).

    The estimate is 0 if the largest autocorrelation at lag 1 is small or explained by chance. Otherwise it is
    the first lag at which the largest autocorrelation is small.
    """
    n = len(scores)
    if n < 2:
        return 0
    T = scores - scores.mean(axis=0)
    squares = np.sum(T**2, axis=0)
    T, squares = T[:, squares > 0.0], squares[squares > 0.0]

    def correlation(lag: int) -> float:
        return float(np.max(np.sum(T[:-lag] * T[lag:], axis=0) / squares, initial=-1.0))

    if correlation(1) < max(_DEVIATIONS / np.sqrt(n), _DEPENDENT):
        return 0
    most = int(min(_MOST_NEIGHBORS, n / _ROWS_PER_NEIGHBOR))
    return next((lag for lag in range(1, most) if correlation(lag) < _INDEPENDENT), most)


def _windows(blocks: Iterator[Array], b: int, most: int) -> Iterator[tuple[Array, int, int]]:
    """Yield windows of rows, each with the first and last + 1 positions of the rows to process.

    A processed row has up to b neighbors on each side in its window. Every row is processed exactly once,
    and at most `most` rows are added to a window at a time.
    """
    kept, before = np.empty((0, 0)), 0  # the rows in memory, and how many of them have been processed
    for block in blocks:
        for i in range(0, len(block), most):
            piece = np.asarray(block[i : i + most], dtype=np.float64)
            kept = np.vstack([kept, piece]) if kept.size else piece
            after = len(kept) - b
            if after > before:
                yield kept, before, after
                kept, before = kept[max(after - b, 0) :], min(after, b)
    if len(kept) > before:
        yield kept, before, len(kept)
