"""STMiss and RobustTracking: follow a moving subspace despite missing entries, or also despite sparse outliers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import POSITIVE, ArrayRule
from flower_pca.core.stage import Arrays
from flower_pca.rows import gaps
from flower_pca.rows.stream import Stream
from flower_pca.tracking.batch import CompletedBatch, respond, sums_by_column
from flower_pca.tracking.state import TrackState
from flower_pca.tracking.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class STMiss(Tracker):
    """Follow the subspace of rows that keep arriving, with missing values.

    P_j = the r leading left singular vectors of batch j, completed with the basis before it.

    With the observed entries Om_t of row y_t and the rest T_t, and P = P_{j-1}, a client takes
      a_t = argmin ||(y_t - P a) on Om_t||,  l_t = y_t on Om_t and P a_t on T_t,
    which is the least-squares solution z_t of Psi_T z = Psi y, Psi = I - PP'. The first batch is
    completed with zeros. Then server and clients find the leading eigenvectors of sum l_t l_t' over
    all clients, in a few messages. The algorithm never stops adapting and keeps no older batches, so
    after an abrupt change the error decreases geometrically again.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from
    incomplete and corrupted data", 2022, Algorithm 1, and 5 and 6 for `detect`.
    Cost per step: n_i d r^2 flops on a client, and 4 n_i d p more for each message. Each message has p
    columns of d floats each way. The server also sends P.
    Prefer it: for rows that keep arriving and whose subspace changes, with missing values but without
    outliers.

    Parameters
    ----------
    refine : bool, default=False
        Whether clients complete a batch once more with the basis found from it, one step later.
    reuse : int, default=0
        How often the batch is completed with its own basis and used again.
    detect, threshold, alarm_rate, update_length
        See `Tracker`.
    solver, products, first_products, qr_every, tol, oversample, keep
        See `Tracker`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import STMiss, track
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> streams[0][::7, 2] = np.nan
    >>> result = track(STMiss(), streams, batch=30, n_components=2)
    >>> result.components_.shape  # one basis for each of three steps
    (3, 2, 6)
    """

    name: ClassVar[str] = "st_miss"

    @staticmethod
    def client(arrays: Arrays, data: Stream, memory: Arrays) -> tuple[Arrays, Arrays]:
        return respond(arrays, data, memory, fill_missing)


def fill_missing(
    arrays: Arrays, Y: Array, missing_positions: Array, P: Array, outliers: Array | None
) -> CompletedBatch:
    """Fill the missing entries of rows in place from the span of P. Outliers that `outliers` marks count as missing."""
    if outliers is not None:
        Y[outliers] = 0.0
        # `gaps.fit_rows` needs positions in ascending order, and `union1d` returns sorted positions.
        missing_positions = np.union1d(missing_positions, np.flatnonzero(outliers))
    columns = sums_by_column(Y, missing_positions) if "columns" in arrays else None
    A, deficient = gaps.fit_rows(P, Y, missing_positions)
    rows = A @ P.T
    Y.ravel()[missing_positions] = rows.ravel()[missing_positions]
    left = np.subtract(Y, rows, out=rows)  # residual, which is zero at missing entries
    return CompletedBatch(
        rows=Y,
        found=np.zeros(Y.shape, dtype=bool) if outliers is None else outliers,
        misfit=float(np.vdot(left, left)),
        deficient=deficient,
        columns=columns,
    )


_PENALTY: Final = 50.0  # penalty of the ADMM, for rows that are scaled to a largest projected entry of 1
# A row has converged if s and its dual change by at most this much, relative to the norm of the row's projection.
_CONVERGED: Final = 1e-4
_STEPS: Final = 400  # maximum number of iterations
_TEST_EVERY: Final = 5  # number of iterations between two tests for convergence


def modified_cs(P: Array, Y: Array, seen: Array, xi: Array | float) -> Array:
    """Return the s that minimizes ||s on the seen entries||_1 subject to ||Psi (y - s)||_2 <= xi, for every row y.

    Psi is I - PP'.

    With e = Psi(y - s), the problem is to minimize ||s||_1 subject to s + e + Pa = Psi y and ||e|| <= xi. ADMM
    alternates between s, which is a soft threshold except on missing entries, and (e, a), which have a closed form.
    With the scaled dual variable u, t = Psi y - s + u and q = Psi t,

        g = s + max(0, 1 - xi / ||q||) q;  u = clip(g, +-1 / penalty);  s = g - u.

    So an iteration costs two thin products for all rows together. Rows that have converged are removed from the batch.
    Only the support of s is used. The values of s are accurate to about 1e-4 of the largest entry.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy 2022, Algorithm 4; Vaswani and Lu 2010.
    """
    target = np.where(seen, Y, 0.0)
    target -= (target @ P) @ P.T
    size = np.abs(target).max(axis=1, initial=0.0)
    S = np.zeros_like(target)
    rows = np.flatnonzero(size > 0.0)
    y = target[rows] / size[rows, None]
    limit = seen[rows] / _PENALTY
    every = np.broadcast_to(np.asarray(xi, dtype=np.float64), size.shape)
    radius = every[rows] / size[rows]
    close = _CONVERGED * _row_norms(y)
    across = np.ascontiguousarray(P.T)
    s, u, t = np.zeros_like(y), np.zeros_like(y), y.copy()
    for k in range(1, _STEPS + 1):
        g = (t @ P) @ across
        np.subtract(t, g, out=g)
        # The maximum avoids a division by 0 if a row is within the span of P.
        lengths = np.maximum(_row_norms(g), np.finfo(float).tiny)
        g *= np.maximum(0.0, 1.0 - radius / lengths)[:, None]
        g += s
        clipped = np.maximum(np.minimum(g, limit), -limit)
        g -= clipped
        done = np.zeros(len(rows), dtype=bool)
        if k % _TEST_EVERY == 0:
            moved = np.maximum(_row_norms(clipped - u), _row_norms(g - s))
            done = moved <= close
        s, u = g, clipped
        if done.any():
            ended = rows[done]
            S[ended] = s[done] * size[ended, None]
            rows, radius, close = rows[~done], radius[~done], close[~done]
            y, limit, s, u, t = y[~done], limit[~done], s[~done], u[~done], t[~done]
            if len(rows) == 0:
                break
        np.subtract(y, s, out=t)
        t += u
    S[rows] = s * size[rows, None]
    return S


def _row_norms(E: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", E, E)))


# By default, the smallest outlier has this size, in multiples of a row's root mean square.
_DEFAULT_SIZE: Final = 1.8
# According to the paper, the error of s is at most 7 xi, which is 7 / 15 of the smallest outlier. This is less than
# half, so the support is exact.
_SUPPORT: Final = 1.0 / 2.0  # threshold of |s| for an outlier, as a share of the smallest outlier
_RADIUS: Final = 1.0 / 15.0  # xi, as a share of the smallest outlier


@dataclass(frozen=True, kw_only=True)
class RobustTracking(Tracker):
    """Follow the subspace of rows that keep arriving, with missing values and outlying entries.

    This is STMiss for rows with a sparse, unknown set of corrupted entries: y_t = l_t + g_t where observed.

    With P = P_{j-1}, Psi = I - PP' and the smallest outlier s_min, a client computes for every row
      s = argmin ||s on Om||_1 subject to ||Psi y - Psi s|| <= s_min / 15      (projected modified-CS),
      T = missing entries and those with |s_i| > s_min / 2,
      a = argmin ||(y - P a) outside T||,  l = y outside T and P a on T        (least-squares debias).
    P_j is found from the completed rows as in STMiss. The support is exact as long as
    ||Psi l|| <= s_min / 15 and a row has far more ordinary entries than components, so the start must be
    accurate: give a basis, or a first batch without outliers.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from
    incomplete and corrupted data", 2022, Algorithms 3 and 4, and 5 and 6 for `detect`.
    Cost per step: the same as STMiss, and about 30 to 60 times 4 n_i d r flops on a client.
    Prefer it: for rows that keep arriving with outliers that are far larger than the distance of rows
    from the subspace, for example moving objects in video or failing sensors.

    Parameters
    ----------
    smallest_outlier : float or None, default=None
        The size of the smallest outlier, s_min, in the units of the data. By default, s_min of each row is 1.8 times
        the root mean square of its observed entries, which is the authors' setting for centered video.
    refine : bool, default=False
        Whether clients complete a batch once more with the basis found from it, one step later.
    reuse : int, default=0
        How often the batch is completed with its own basis and used again.
    detect, threshold, alarm_rate, update_length
        See `Tracker`.
    solver, products, first_products, qr_every, tol, oversample, keep
        See `Tracker`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import RobustTracking, track
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 2)) @ rng.standard_normal((2, 12)) for _ in range(3)]
    >>> streams[0][50, 5] += 200.0
    >>> result = track(RobustTracking(smallest_outlier=50.0), streams, batch=30, n_components=2)
    >>> result.components_.shape  # one basis for each of three steps
    (3, 2, 12)
    """

    name: ClassVar[str] = "robust_tracking"
    asks: ClassVar[Mapping[str, ArrayRule]] = {**Tracker.asks, "smallest": POSITIVE}

    smallest_outlier: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smallest_outlier is not None:
            checks.number(
                "smallest_outlier of robust_tracking",
                self.smallest_outlier,
                least=1e-300,
                remedy="Give the size of the smallest outlier in the units of the data.",
            )

    def broadcast(self, state: TrackState) -> Arrays:
        sent = super().broadcast(state)
        if self.smallest_outlier is not None:
            sent["smallest"] = np.array(float(self.smallest_outlier))
        return sent

    @staticmethod
    def client(arrays: Arrays, data: Stream, memory: Arrays) -> tuple[Arrays, Arrays]:
        return respond(arrays, data, memory, complete_without_outliers)


def complete_without_outliers(
    arrays: Arrays, Y: Array, missing_positions: Array, P: Array, outliers: Array | None
) -> CompletedBatch:
    """Replace missing entries and outliers of rows in place. If `outliers` is None, find the outliers first."""
    if outliers is None:
        seen = gaps.observed_weights(Y, missing_positions) > 0.0
        if "smallest" in arrays:
            smallest = np.full(len(Y), float(arrays["smallest"]))
        else:
            counts = np.maximum(seen.sum(axis=1), 1)
            smallest = _DEFAULT_SIZE * np.sqrt(np.sum(Y**2, axis=1) / counts)
        S = modified_cs(P, Y, seen, _RADIUS * smallest)
        outliers = seen & (np.abs(S) > _SUPPORT * smallest[:, None])
    return fill_missing(arrays, Y, missing_positions, P, outliers)
