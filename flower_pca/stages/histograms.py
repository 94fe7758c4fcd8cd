"""Histograms of the distances of all clients' rows from the components.

A row x in the frame, with scores t = Z'x along k components of variances v, has two distances:

    T2  = sum_j t_j^2 / v_j       the distance within the span of the components (Hotelling)
    SPE = |x - Z t|^2             the distance from the span, the squared prediction error, also called Q

In a run with `monitor`, every client counts its own rows by both distances. Each row is compared with
the components of the other rows, as `stages.downdate` explains, so the counts show the distances to
expect for new rows. This requires components that are eigenvectors of the matrix of all rows. If they are
not, or have not converged, rows are compared with the components that were fitted to them, and the
result reports this.

The bins are a sixteenth of an octave wide (4.4 %). They range from 2^-20 to 2^20 times the average
distance, which is k for T2 and the residual variance for SPE. With more than `FEW` columns, the
distances of rows differ little, so bins are finer near the average (see `BinGrid`). The grid depends only
on the number of columns, so messages do not contain it. The total counts do not depend on which client
holds which row, so masks can hide the counts of single clients. Relative to the average, distances have
a mean of 1. At most a share of 2^-20 of the rows can therefore lie beyond 2^20, so all quantiles up to 1
- 2^-20 are within the bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, FLAG, MATRIX, POSITIVE, VALUES, ArrayRule, Kind, Part, number_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, status_when
from flower_pca.names.levels import source_of
from flower_pca.rows.adjusted import hat_root
from flower_pca.rows.covariates import ADJUSTED, INVERSE
from flower_pca.rows.local import LocalData
from flower_pca.stages.downdate import ROUNDING, LeaveOneOut, dependent_neighbors

NEIGHBORS: Final = Kind(
    "neighbors",
    "how many rows resemble the rows before and after them",
    size=lambda a: np.where(a >= 0.0, a, np.inf),
    bound=lambda reach: float(reach.n),
    whole=True,
)
FEW: Final = 100  # the largest number of columns for which all bins have the same width
LEFT_OUT: Final = "left out"  # Each row was compared with components that were fitted without this row.
ROWS: Final = "rows"  # Rows were compared with components that were fitted to them.
_COARSE: Final = 16  # the number of bins per octave
_FINE: Final = 256  # the number of bins per octave near the average, if there are many columns
_OCTAVES: Final = 20  # the number of octaves that the bins cover on each side of the average
_NEAR: Final = 2  # the number of octaves with fine bins on each side of the average
_SLACK: Final = 1e-6  # the amount by which a leverage may exceed 1 because of rounding
_LEAST_ROWS: Final = 3  # With fewer rows, removing a row and the mean leaves no components.


@dataclass(frozen=True)
class BinGrid:
    """A grid of bins for distances, in multiples of the average.

    The first bin has no lower end, and the last bin has no upper end.
    """

    fine: bool

    @classmethod
    def for_column_count(cls, d: int) -> BinGrid:
        """Return the grid for rows with d columns."""
        return cls(d > FEW)

    @classmethod
    def from_counts(cls, counts: Array) -> BinGrid:
        """Return the grid of a histogram, according to the number of its bins."""
        return cls(counts.shape[-1] != cls(False).bins)

    @cached_property
    def edges(self) -> Array:
        """The boundaries between bins, which are powers of two with fractional exponents."""
        coarse = np.arange(-_OCTAVES * _COARSE, _OCTAVES * _COARSE + 1) / _COARSE
        if not self.fine:
            return np.asarray(np.exp2(coarse))
        near = np.arange(-_NEAR * _FINE, _NEAR * _FINE + 1) / _FINE
        return np.asarray(np.exp2(np.concatenate([coarse[coarse < -_NEAR], near, coarse[coarse > _NEAR]])))

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) + 1

    def count_values(self, values: Array) -> Array:
        """Return the number of values in each bin."""
        known = np.nan_to_num(values, nan=0.0, posinf=np.inf)
        places = np.searchsorted(self.edges, known, side="right")
        return np.bincount(places, minlength=self.bins).astype(np.float64)


def distances(rows: Array, Z: Array, variances: Array) -> tuple[Array, Array]:
    """Return T2 and SPE of rows in the frame (n x d), for components (d x k) with these variances."""
    X = np.asarray(rows, dtype=np.float64)
    scores = X @ Z
    rest = X - scores @ Z.T
    t2 = (scores**2 / variances).sum(axis=1)
    return np.asarray(t2), np.einsum("ij,ij->i", rest, rest)


def count_meaningful(variances: Array) -> int:
    """Return the number of variances above rounding errors. T2 divides only by these variances.

    The variances are sorted, largest first.
    """
    return int(np.sum(variances > max(ROUNDING * variances[0], 0.0)))


def rescaled_columns(names: tuple[str, ...] | None, d: int) -> Array:
    """Return a boolean mask of the columns divided by their deviation: all but those made from text columns."""
    if names is None:
        return np.ones(d, dtype=bool)
    return np.array([not source_of(name) for name in names])


@dataclass(frozen=True)
class HistogramsState:
    """The components that rows are compared with and, once all clients have answered, the counts of rows by T2 and SPE.

    Attributes
    ----------
    Z : ndarray of shape (d, p)
        The Ritz vectors, the components first. If rows cannot be left out of the fit, Z has only the
        components.
    variances : ndarray of shape (k,)
        The variances of the components.
    rest : float
        The variance that the components leave out.
    values : ndarray of shape (p,)
        The sums of squares along Z, or an empty array if rows cannot be left out.
    mean_rest : float
        The mean sum of squares along each direction beyond Z.
    rows : int
        The number of rows of all clients together.
    centered, deviation : bool
        Whether the mean of all rows was subtracted, and whether columns were divided by the deviations of all rows.
    counts : ndarray of shape (2, bins) or None
        The number of rows in each bin.
    neighbors : int
        The number of rows that were left out together with their neighbors.
    removed : int
        The degrees of freedom used by covariates and sites, if a regression on covariates was removed.
    inverse : ndarray of shape (q, q) or None
        The pseudo-inverse of the products of the covariates, if a regression on covariates was removed.
    """

    Z: Array
    variances: Array
    rest: float
    values: Array
    mean_rest: float
    rows: int
    centered: bool
    deviation: bool
    counts: Array | None = None
    neighbors: int = 0
    removed: int = 0
    inverse: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Histograms(Stage[HistogramsState]):
    """A stage that counts rows in fixed bins, by T2 / k and by SPE divided by the variance left out.

    Each row is compared with a fit to the other rows. The client half compares single rows with the edges of
    bins, so nodes serve this stage only if their rules name it.

    Cost: a client needs 4 n_i d p flops, and an eigendecomposition of p + 1 columns for each row. The
    server sends p columns of d floats, and each client sends two histograms, once.
    """

    name: ClassVar[str] = "monitor"
    fixed_set: ClassVar[bool] = True  # Counts must come from all clients.
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "Z": BLOCK,
        "variances": VALUES,
        "rest": POSITIVE,
        "values": VALUES,
        "mean_rest": POSITIVE,
        "rows": number_rule(1.0, MOST_ROWS),
        "centered": FLAG,
        "deviation": FLAG,
        "removed": number_rule(0.0, MOST_ROWS),
        "inverse": MATRIX,
    }
    by_row: ClassVar[bool] = True

    def start(self, model: Model) -> HistogramsState:
        removed = int(model.left.get(ADJUSTED, 0))
        (axes, squares), ddof = model.orthonormal_axes, max(model.n - 1 - removed, 1)
        variances = squares / ddof
        k, total = count_meaningful(variances), model.trace / ddof
        rest = total - float(variances[:k].sum())
        Z, values, beyond = axes[:, :k], np.empty(0), 0.0
        if "cross" not in model.left and model.has_small_angle and model.n >= _LEAST_ROWS + removed:
            assert model.values is not None
            Z = model.columns
            values = np.where(model.values > ROUNDING * model.values[0], model.values, 0.0)
            beyond = mean_rest(model.trace, values, model.n - int(model.center) - removed, model.d)
        return HistogramsState(
            Z=Z,
            variances=variances[:k],
            rest=rest if rest > ROUNDING * total else 0.0,
            values=values,
            mean_rest=beyond,
            rows=model.n,
            centered=model.center,
            deviation=model.scale == "std" and model.center,
            removed=removed,
            inverse=model.left.get(INVERSE),
        )

    def broadcast(self, state: HistogramsState) -> Arrays:
        sent = {
            "Z": state.Z,
            "variances": state.variances,
            "rest": np.array(state.rest),
            "values": state.values,
            "mean_rest": np.array(state.mean_rest),
            "rows": np.array(state.rows),
            "centered": np.array(float(state.centered)),
            "deviation": np.array(float(state.deviation)),
        }
        if state.inverse is not None:
            sent |= {"removed": np.array(float(state.removed)), "inverse": state.inverse}
        return sent

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        bins = BinGrid.for_column_count(len(arrays["Z"])).bins
        return {"counts": Part((2, bins), Kind.DISTANCES), "neighbors": Part(kind=NEIGHBORS)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        _require_shapes(arrays, data)
        k, rest = len(arrays["variances"]), float(arrays["rest"])
        grid = BinGrid.for_column_count(data.d)
        counts = np.zeros((2, grid.bins))
        # If a message contains a variance of 0, numpy's warnings would reveal something about the rows.
        with np.errstate(all="ignore"):
            pairs, around = _distances_by_block(arrays, data)
            for t2, spe in pairs:
                if "inverse" in arrays:  # Rows that cannot be left out have no distances.
                    t2, spe = t2[~np.isnan(t2)], spe[~np.isnan(t2)]
                counts += grid.count_values(t2 / k), grid.count_values(spe / rest if rest > 0.0 else np.zeros_like(spe))
        return {"counts": counts, "neighbors": np.array(float(counts[0].sum() if around else 0))}, memory

    def bounds(self, state: HistogramsState, model: Model) -> Mapping[str, Array | float]:
        return {"counts": MOST_ROWS, "neighbors": MOST_ROWS}

    def inspect(self, state: HistogramsState, reply: Arrays) -> None:
        counts, grouped = reply["counts"], float(reply["neighbors"])
        whole = (counts >= 0).all() and (counts == np.rint(counts)).all() and not np.ptp(counts.sum(axis=1))
        if not whole or grouped not in (0.0, float(counts[0].sum())):
            raise ProtocolError(
                "The counts of an answer are not whole numbers, or they cover different numbers of rows by T2 and by "
                "SPE. Install the same version of flower_pca at the client and at the server."
            )

    def server(self, state: HistogramsState, total: Arrays, answered: frozenset[int]) -> HistogramsState:
        return replace(state, counts=total["counts"], neighbors=int(total["neighbors"]))

    def status(self, state: HistogramsState) -> Status | None:
        return status_when(state.counts is not None)

    def finish(self, state: HistogramsState, model: Model) -> Model:
        of = LEFT_OUT if len(state.values) else ROWS
        if state.neighbors:
            model = model.with_decision(
                "monitor",
                f"{labels.count(state.neighbors, 'row')} resemble the rows before and after them, so limits come from "
                "rows that were scored without these neighbors",
            )
        return replace(model, histograms=state.counts, histograms_of=of)


def mean_rest(trace: float, values: Array, rows: int, d: int) -> float:
    """Return the mean sum of squares along the directions other than those with the given values, or 0 if none is left.

    `rows` is the number of rows, minus one if their mean was subtracted.
    """
    directions = min(rows, d) - len(values)
    left = trace - float(values.sum())
    if directions <= 0 or left <= ROUNDING * trace:
        return 0.0
    return left / directions


def _distances_by_block(arrays: Arrays, data: LocalData) -> tuple[Iterator[tuple[Array, Array]], int]:
    """Return an iterator over T2 and SPE of all rows by blocks, and the number of neighbors left out on each side."""
    Z = arrays["Z"].astype(np.float64)
    variances = arrays["variances"]
    if not len(arrays["values"]):
        return (distances(block, Z, variances) for block in data.dense()), 0
    rescaled = rescaled_columns(data.names, data.d) if arrays["deviation"] else None
    without = LeaveOneOut(
        W=Z,
        values=arrays["values"].astype(np.float64),
        k=len(variances),
        mean_rest=float(arrays["mean_rest"]),
        n=int(arrays["rows"]),
        centered=bool(arrays["centered"]),
        rescaled=rescaled,
        hat=_rows_of_hat_root(arrays, data),
        removed=int(arrays.get("removed", 0)),
    )
    around = dependent_neighbors(np.concatenate([without.scores(block) for block in data.dense()]))
    return without.distances(data.dense(), around), around


def _rows_of_hat_root(arrays: Arrays, data: LocalData) -> Array | None:
    """Return the rows of F, a root of the hat matrix of the removed regression, or None if no regression was removed.

    F has one row for each of the client's rows: see `stages.downdate`.

    Raise ProtocolError if the message implies a leverage above 1.
    """
    known = data.frame.covariates
    if "inverse" not in arrays or known is None:
        return None
    rows = data.n if known.within else int(arrays["rows"])
    hat = hat_root(data, arrays["inverse"].astype(np.float64), rows)
    if not (np.einsum("ij,ij->i", hat, hat) <= 1.0 + _SLACK).all():
        raise ProtocolError(f"A message for monitor gives rows a leverage above 1, which is impossible. {OTHER_SERVER}")
    return hat


def _require_shapes(arrays: Arrays, data: LocalData) -> None:
    """Raise ProtocolError for arrays of wrong shapes, which numpy might broadcast over the rows.

    With a different number for each row, a message could single out rows by their position.
    """
    Z, variances, values = (arrays[name] for name in ("Z", "variances", "values"))
    d, rows = data.d, float(arrays["rows"])
    known, inverse = data.frame.covariates, arrays.get("inverse")
    q = 0 if known is None or not known.changes_rows else known.adjusted
    if inverse is not None and inverse.shape != (q, q):
        raise ProtocolError(
            f"The array inverse of a message for monitor has the shape {inverse.shape}, but with "
            f"{labels.count(q, 'covariate')} it must have the shape ({q}, {q}). {OTHER_SERVER}"
        )
    alone = len(values) == 0 and variances.shape == Z.shape[1:]
    left_out = values.shape == Z.shape[1:] and 0 < len(variances) <= len(values) and rows >= max(_LEAST_ROWS, data.n)
    if Z.ndim != 2 or len(Z) != d or not (alone or left_out):
        got = f"shapes {Z.shape}, {variances.shape} and {values.shape}, of {rows:g} rows"
        raise ProtocolError(
            f"A message for monitor needs components of {labels.count(d, 'column')}, a variance of each, and sums of "
            f"squares of all rows or none. It has {got}. {OTHER_SERVER}"
        )
