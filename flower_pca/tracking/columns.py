"""Statistics of single columns and directions, in addition to the statistic of the subspace.

The setting `monitor` turns these statistics on. With the first message of a step, clients then send three sums over the
rows of their batch for each of the d columns: the number of observed entries, their sum and their sum of squares. These
are 3 d numbers per step, for any number of rows, in addition to the d (r + 2) numbers of every message. Directions need
no additional numbers, because they are computed from the products. All figures are sums, so masks hide the figures of
single clients.

| statistic | of          | in batch t, compared with step s                                               |
| --------- | ----------- | ------------------------------------------------------------------------------ |
| up, down  | column j    | log v(t, j) / v(s, j), with v the variance within the batch. A stuck sensor    |
|           |             | has v = 0, and a different unit changes v.                                     |
| lost,     | direction a | log a'P'C(t)Pa / n(t) against log a'La, with P the basis of step s and L its   |
| louder    | of basis s  | values per row, where it is farthest below, or above: Hotelling's T2           |

In the table, C(t) is the sum of l l' over the completed rows l of batch t, and n(t) is the number of these rows. As for
the subspace, batches t - 1 and t are compared with steps t - 2 and t - 3 in all four pairs, and the smallest value
counts. So a single outlying batch is not a change, and neither is a slow drift or a slow oscillation. A column that
alternates is not a change either: once a column has returned twice to a variance that it had in two consecutive batches
before, variances within the range of its earlier variances cause no alarm. A repaired sensor returns only once. The
range of earlier variances shrinks by 2 % per step. The variation that few rows cause is subtracted first.

A change names the columns with the largest values of its kind. For SPE, these are the columns with the largest
residuals of both batches outside an earlier basis. If the server sees single clients, the change also names the clients
whose figures have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.tracking.batch import COUNTS
from flower_pca.tracking.solver import SubspaceSolver

NAMED: Final = 5  # maximum number of columns that a change names for each kind, and of sites
FIGURES: Final = 4 * NAMED  # number of entries for the columns of each kind and the sites, padded with -1
RISE: Final = float(np.log(4.0))  # smallest logarithm of a rise that is reported
FALL: Final = float(np.log(10.0))  # smallest logarithm of a fall that is reported
_BEFORE: Final = 3  # number of earlier steps that are kept for comparisons
_EXACT: Final = 1e-12  # Rounding errors leave up to this share of a column's mean square in a variance that is 0.
_PART: Final = 0.5  # A column is named if its value is at least this share of the largest value.
_WORTH: Final = np.log(1.5)  # A site is named only if the logarithm of one of its figures changes by at least this.
_RETURNS: Final = 2  # A column that has returned this often to an earlier variance counts as alternating.
_FORGET: Final = 0.02  # The range of a column's logarithms shrinks by this much at both ends per step.
_TINY: Final = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class ColumnsSeen:
    """The figures of columns and directions in the newest steps. Tuples over steps have the newest step first.

    Attributes
    ----------
    columns : tuple of ndarray
        For each earlier step, the logarithm of the variance v and the number of entries of each column, (2, d).
    been : ndarray of shape (2, d)
        The range of each column's logarithm of v over pairs of consecutive steps.
    returns : ndarray of shape (d,)
        The number of times that each column has returned to an earlier variance.
    sizes : tuple of ndarray
        The eigenvalues of these steps, per row.
    rows : tuple of int
        The number of rows of these steps.
    sites : tuple of ndarray
        For each of these steps, a line for each client with its position in `clients`, its misfit and its energy per
        row, (clients, 3).
    clients : tuple of int
        All clients that have answered so far.
    falls, rises : tuple of float
        How far, in logarithms, the previous step was below and above the eigenvalues of each earlier step.
    outside : ndarray of shape (d,)
        The squared residuals of each column in the previous step outside the basis two steps earlier, per row.
    """

    columns: tuple[Array, ...] = ()
    been: Array = field(default_factory=lambda: np.zeros((2, 0)))
    returns: Array = field(default_factory=lambda: np.zeros(0))
    sizes: tuple[Array, ...] = ()
    rows: tuple[int, ...] = ()
    sites: tuple[Array, ...] = ()
    clients: tuple[int, ...] = ()
    falls: tuple[float, ...] = ()
    rises: tuple[float, ...] = ()
    outside: Array = field(default_factory=lambda: np.zeros(0))

    def without_basis_before(self, known: ColumnsSeen) -> ColumnsSeen:
        """Return these figures without the basis that completed the step. `known` are the figures before the step."""
        return replace(self, sizes=(*self.sizes[:1], *known.sizes[1:]), falls=self.falls[1:], rises=self.rises[1:])


@dataclass(frozen=True, kw_only=True)
class BatchFigures:
    """The figures of the batch of a step.

    Attributes
    ----------
    seen, sums, squares : ndarray of shape (d,)
        Number, sum and sum of squares of the observed entries of each column.
    solver : SubspaceSolver
        The solver of the step, which has products with C, the sum of l l' over the completed rows l of all clients.
    bases : tuple of ndarray
        The bases of the previous steps, newest first.
    values : ndarray
        The eigenvalues of C.
    rows : int
        The number of rows of the batch.
    each : mapping
        The counts of each client, in the order of `COUNTS`. {} if only sums are available.
    """

    seen: Array
    sums: Array
    squares: Array
    solver: SubspaceSolver
    bases: tuple[Array, ...]
    values: Array
    rows: int
    each: Mapping[int, tuple[float, ...]]

    def column_variances(self) -> Array:
        """Return the logarithm of the variance of each column, and its number of entries, (2, d)."""
        count = np.maximum(self.seen, 1.0)
        mean_square = np.maximum(self.squares, 0.0) / count
        variance = mean_square - (self.sums / count) ** 2
        least = _EXACT * mean_square
        return np.stack([np.log(np.maximum(variance, least) + _TINY), self.seen])

    def client_figures(self, clients: tuple[int, ...]) -> Array:
        """Return the position, the misfit per row and the energy per row of each client with rows, (clients, 3)."""
        rows, misfit, energy = (COUNTS.index(name) for name in ("rows", "misfit", "energy"))
        lines = [
            (clients.index(client), counts[misfit] / counts[rows], counts[energy] / counts[rows])
            for client, counts in self.each.items()
            if counts[rows] > 0.0
        ]
        return np.array(lines).reshape(-1, 3)


def column_statistics(earlier: ColumnsSeen, batch: BatchFigures) -> tuple[dict[str, float], Array, ColumnsSeen]:
    """Return the statistics of a step, the columns and sites that a change would name, and the figures to keep."""
    clients = (*earlier.clients, *sorted(batch.each.keys() - set(earlier.clients)))
    columns, sites, returns = batch.column_variances(), batch.client_figures(clients), earlier.returns
    found, named = dict[str, float](), unnamed()
    parts = [_factor_and_coordinates(batch, P) for P in batch.bases]
    pairs = zip(parts, earlier.sizes, strict=False)
    inside = [_extremes_inside(coordinates, size, batch.rows) for (_, coordinates), size in pairs]
    falls = tuple(one[0] for one in inside)
    rises = tuple(one[1] for one in inside)
    left = [_squares_outside(*one, P) / batch.rows for one, P in zip(parts, batch.bases, strict=True)]
    if min(len(earlier.columns), len(earlier.falls) + 1, len(inside)) >= _BEFORE:
        up, down, returns = _rises_and_falls(columns, earlier)
        few = min(batch.rows, *earlier.rows)
        # The maximum avoids the logarithm of 0 if there are no more rows than components.
        rough = -2.0 * np.log(max(1.0 - np.sqrt(len(batch.values) / few), 0.1))
        fall, rise = (min(*old[:2], *new[1:]) - rough for old, new in ((earlier.falls, falls), (earlier.rises, rises)))
        found = {"up": float(up.max()), "down": float(down.max()), "lost": fall, "louder": rise}
        direction = inside[1][2 + int(rise > fall)]
        of_each_kind = [
            _largest_columns(np.minimum(left[2], earlier.outside)),
            _largest_columns(np.maximum(up, down)),
            _largest_columns(np.abs(batch.bases[1] @ direction)),
            _moving_sites(sites, earlier.sites),
        ]
        named = np.concatenate(of_each_kind)
    return (
        found,
        named,
        ColumnsSeen(
            columns=(columns, *earlier.columns)[:_BEFORE],
            been=_earlier_range(earlier),
            returns=returns,
            sizes=(batch.values / batch.rows, *earlier.sizes)[:_BEFORE],
            rows=(batch.rows, *earlier.rows)[:_BEFORE],
            sites=(sites, *earlier.sites)[:_BEFORE],
            clients=clients,
            falls=falls,
            rises=rises,
            outside=next(iter(left[1:]), np.zeros(0)),
        ),
    )


def _factor_and_coordinates(batch: BatchFigures, P: Array) -> tuple[Array, Array]:
    """Return F and P'F, where F F' approximates C, the sum of L'L over the completed rows L of all clients."""
    vectors, values = batch.solver.ritz_pairs
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return scaled, P.T @ scaled


def _squares_outside(scaled: Array, inside: Array, P: Array) -> Array:
    """Return the diagonal of (I - PP')C(I - PP') from F and P'F."""
    rest = scaled - P @ inside
    return np.asarray(np.einsum("ij,ij->i", rest, rest))


def _extremes_inside(inside: Array, size: Array, rows: int) -> tuple[float, float, Array, Array]:
    """Return the largest fall and rise of P'CP along a direction of P, in logarithms, and these two directions.

    The arguments are P'F from `_factor_and_coordinates`, the eigenvalues of P per row (`size`), and the number of rows.
    The fall and the rise are relative to these eigenvalues.
    """
    root = np.sqrt(np.maximum(size, _TINY))
    half = inside / root[:, None] / np.sqrt(rows)
    values, W = linalg.eigh_descending(half @ half.T)
    logs = np.log(np.maximum(values, _EXACT))
    return -float(logs[-1]), float(logs[0]), W[:, -1] / root, W[:, 0] / root


def _rises_and_falls(columns: Array, earlier: ColumnsSeen) -> tuple[Array, Array, Array]:
    """Return the smallest rise and fall of each column's variance since the earlier steps, and its number of returns.

    The variation that few entries cause is subtracted. A column that has returned often enough is compared with the
    range of all its earlier variances.
    """
    newer = np.stack([columns, earlier.columns[0]])
    older = np.stack(earlier.columns[1:])
    entries = np.concatenate([newer, older])[:, 1].min(axis=0)
    # The variance of a single entry is unknown, so its slack is infinite.
    deviation = np.sqrt(2.0 / np.maximum(entries, 1.0))
    slack = np.where(entries > 1.0, 2.0 * deviation, np.inf)
    lowest = newer[:, 0].min(axis=0)
    highest = newer[:, 0].max(axis=0)
    rise = lowest - older[:, 0].max(axis=0) - slack
    fall = older[:, 0].min(axis=0) - highest - slack
    rise_of_all = np.fmin(rise, lowest - earlier.been[1] - slack)
    fall_of_all = np.fmin(fall, earlier.been[0] - highest - slack)
    back = (rise > RISE) & (rise_of_all <= RISE)
    back |= (fall > FALL) & (fall_of_all <= FALL)
    returns = earlier.returns if len(earlier.returns) else np.zeros(len(rise))
    often = returns >= _RETURNS
    rises = np.where(often, rise_of_all, rise)
    falls = np.where(often, fall_of_all, fall)
    return rises, falls, returns + back


def _earlier_range(earlier: ColumnsSeen) -> Array:
    """Return the range of each column's logarithm of the variance over pairs of consecutive earlier steps."""
    if len(earlier.columns) < 2:
        return earlier.been
    logs, entries = np.stack(earlier.columns[:2], axis=1)
    ends = [logs.max(axis=0), logs.min(axis=0)]
    pair = np.where(entries.min(axis=0) > 1.0, ends, np.nan)
    if not earlier.been.size:
        return pair
    # The values are NaN for steps without a variance, and `fmin` and `fmax` ignore NaN.
    return np.stack([np.fmin(pair[0], earlier.been[0] + _FORGET), np.fmax(pair[1], earlier.been[1] - _FORGET)])


def _largest_columns(sizes: Array) -> Array:
    """Return the positions of the columns with the largest values, largest first, padded with -1.

    A value below half of the largest value is left out.
    """
    order = np.argsort(-sizes, kind="stable")[:NAMED]
    least = _PART * sizes[order[0]]
    return _pad_with_minus_one(order[sizes[order] >= least])


def _moving_sites(sites: Array, before: tuple[Array, ...]) -> Array:
    """Return the positions of the clients whose misfit or energy has changed most, padded with -1.

    A figure counts as changed if it has changed in the same direction in all four comparisons.
    """
    tables = [{int(line[0]): np.log(line[1:] + _TINY) for line in step} for step in (sites, *before)]
    present = [client for client in tables[0] if all(client in table for table in tables)]
    if not present:
        return _pad_with_minus_one(np.zeros(0))
    figures = [np.stack([table[client] for client in present]) for table in tables]
    pairs = [(new, old) for new in figures[:2] for old in figures[2:]]
    steps = np.stack([new - old for new, old in pairs])
    up, down = steps.min(axis=0), -steps.max(axis=0)
    moves = np.maximum(up, down).max(axis=1)
    order = np.argsort(-moves, kind="stable")[:NAMED]
    least = max(_WORTH, _PART * float(moves[order[0]]))
    return _pad_with_minus_one(np.array(present)[order[moves[order] >= least]])


def unnamed() -> Array:
    """Return the positions of columns and sites for a step that names none: an array of -1."""
    return np.full(FIGURES, -1.0)


def _pad_with_minus_one(numbers: Array) -> Array:
    filled = np.full(NAMED, -1.0)
    filled[: len(numbers)] = numbers
    return filled
