"""Statistics of single columns and directions, in addition to the subspace.

The setting `monitor` turns them on. With the first message of a step, clients then send three sums over the rows of
their batch for each of the d columns: the number of observed entries, their sum and their squares. These are 3 d
numbers per step, for any number of rows, in addition to the d (r + 2) of every message. Directions cost nothing,
because the products already describe them. All figures are sums, so masks hide those of single clients.

| statistic | of          | in batch t, compared with step s                                               |
| --------- | ----------- | ------------------------------------------------------------------------------ |
| up, down  | column j    | log v(t, j) / v(s, j), with v the variance within the batch. A stuck sensor    |
|           |             | has v = 0, and another unit changes v.                                         |
| lost,     | direction a | log a'P'C(t)Pa / n(t) against log a'La, with P the basis of step s and L its   |
| louder    | of basis s  | values per row, where it is farthest below, or above: Hotelling's T2           |

As for the subspace, batches t - 1 and t are compared with steps t - 2 and t - 3 in all four pairs, and the smallest
value counts. So a single wild batch is no change, and neither is a slow drift or swing. A column that alternates is no
change either: a variance that it has had in two batches before is ignored once the column has returned to such a
variance twice. A sensor that is repaired returns only once. Earlier variances are forgotten by 2 % per step. The
variation that few rows cause is subtracted first.

A change names the columns with the largest values of its kind. For SPE, these are the columns of what both batches have
outside the basis before them. If single clients are seen, it names the clients whose own figures have moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.tracking.batch import COUNTS
from flower_pca.tracking.solver import Solver

NAMED: Final = 5  # columns that are named for each kind, and sites
FIGURES: Final = 4 * NAMED  # The named columns by kind, and the named sites of a step, padded with -1.
RISE: Final = float(np.log(4.0))  # The smallest logarithms of a change that is worth reporting.
FALL: Final = float(np.log(10.0))
_BEFORE: Final = 3  # steps that a batch is compared with, including the previous one
_EXACT: Final = 1e-12  # Rounding leaves this share of a column's mean square in a variance that is 0.
_PART: Final = 0.5  # A column with this share of the largest value is named, too.
_WORTH: Final = np.log(1.5)  # A site is named if its figures move by at least this much.
_RETURNS: Final = 2  # A column that has returned so often to an earlier variance is known to alternate.
_FORGET: Final = 0.02  # The bounds of a column's logarithms move inwards by this share per step.
_TINY: Final = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class ColumnsSeen:
    """What is known about columns and directions, newest first.

    Attributes
    ----------
    columns : tuple of ndarray
        For each earlier step, the logarithm of v and the number of entries of each column, (2, d).
    been : ndarray of shape (2, d)
        The range of each column's logarithm of v over pairs of steps in a row.
    returns : ndarray of shape (d,)
        How often each column has jumped back to an earlier variance.
    sizes : tuple of ndarray
        The values of the bases of these steps, per row.
    rows : tuple of int
        The number of rows of these steps.
    sites : tuple of ndarray
        For each client its position in `clients`, its misfit and its energy per row, (clients, 3).
    clients : tuple of int
        All clients seen so far.
    falls, rises : tuple of float
        How far the previous step was below and above the values of the bases before it.
    outside : ndarray of shape (d,)
        The squares of each column that the previous step had outside the basis two steps earlier, per row.
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


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What is known about the batch of a step.

    Attributes
    ----------
    seen, sums, squares : ndarray of shape (d,)
        Number, sum and sum of squares of the observed entries of each column.
    solver : Solver
        The solver, which knows products of C.
    bases : tuple of ndarray
        The bases of the previous steps, newest first.
    values : ndarray
        The eigenvalues of C.
    rows : int
        The number of rows of the batch.
    each : mapping
        The counts of single clients.
    """

    seen: Array
    sums: Array
    squares: Array
    solver: Solver
    bases: tuple[Array, ...]
    values: Array
    rows: int
    each: Mapping[int, tuple[float, ...]]

    def columns(self) -> Array:
        """Return the logarithm of the variance of each column, and its number of entries, (2, d)."""
        count = np.maximum(self.seen, 1.0)
        mean_square = np.maximum(self.squares, 0.0) / count
        variance = mean_square - (self.sums / count) ** 2
        least = _EXACT * mean_square
        return np.stack([np.log(np.maximum(variance, least) + _TINY), self.seen])

    def sites(self, clients: tuple[int, ...]) -> Array:
        """Return for each client with rows its position, its misfit and its energy per row, (clients, 3)."""
        rows, misfit, energy = (COUNTS.index(name) for name in ("rows", "misfit", "energy"))
        lines = [
            (clients.index(client), counts[misfit] / counts[rows], counts[energy] / counts[rows])
            for client, counts in self.each.items()
            if counts[rows] > 0.0
        ]
        return np.array(lines).reshape(-1, 3)


def look(known: ColumnsSeen, batch: Batch) -> tuple[dict[str, float], Array, ColumnsSeen]:
    """Return the statistics of a step, the columns and sites that it would name, and what is known after it."""
    clients = (*known.clients, *sorted(batch.each.keys() - set(known.clients)))
    columns, sites, returns = batch.columns(), batch.sites(clients), known.returns
    found, named = dict[str, float](), nobody()
    parts = [_parts(batch, P) for P in batch.bases]
    pairs = zip(parts, known.sizes, strict=False)
    inside = [_inside(*one, size, batch.rows) for one, size in pairs]
    falls = tuple(one[0] for one in inside)
    rises = tuple(one[1] for one in inside)
    left = [_squares_outside(*one, P) / batch.rows for one, P in zip(parts, batch.bases, strict=True)]
    if min(len(known.columns), len(known.falls), len(inside)) == _BEFORE:
        up, down, returns = _apart(columns, known)
        few = min(batch.rows, *known.rows)
        # With as few rows as components, or fewer, some logarithm would be of 0.
        rough = -2.0 * np.log(max(1.0 - np.sqrt(len(batch.values) / few), 0.1))
        fall, rise = (min(*old[:2], *new[1:]) - rough for old, new in ((known.falls, falls), (known.rises, rises)))
        found = {"up": float(up.max()), "down": float(down.max()), "lost": fall, "louder": rise}
        direction = inside[1][2 + int(rise > fall)]
        of_each_kind = [
            _most(np.minimum(left[2], known.outside)),
            _most(np.maximum(up, down)),
            _most(np.abs(batch.bases[1] @ direction)),
            _moving_sites(sites, known.sites),
        ]
        named = np.concatenate(of_each_kind)
    return (
        found,
        named,
        ColumnsSeen(
            columns=(columns, *known.columns)[:_BEFORE],
            been=_been(known),
            returns=returns,
            sizes=(batch.values / batch.rows, *known.sizes)[:_BEFORE],
            rows=(batch.rows, *known.rows)[:_BEFORE],
            sites=(sites, *known.sites)[:_BEFORE],
            clients=clients,
            falls=falls,
            rises=rises,
            outside=next(iter(left[1:]), np.zeros(0)),
        ),
    )


def _parts(batch: Batch, P: Array) -> tuple[Array, Array]:
    """Return F with C = F F', as far as it is known, and P'F."""
    vectors, values = batch.solver.ritz_pairs()
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return scaled, P.T @ scaled


def _squares_outside(scaled: Array, inside: Array, P: Array) -> Array:
    """Return the diagonal of (I - PP')C(I - PP')."""
    rest = scaled - P @ inside
    return np.asarray(np.einsum("ij,ij->i", rest, rest))


def _inside(scaled: Array, inside: Array, size: Array, rows: int) -> tuple[float, float, Array, Array]:
    """Return how far P'CP is below and above the values of P, in logarithms, and in which directions."""
    root = np.sqrt(np.maximum(size, _TINY))
    half = inside / root[:, None] / np.sqrt(rows)
    values, W = linalg.eigh_descending(half @ half.T)
    logs = np.log(np.maximum(values, _EXACT))
    return -float(logs[-1]), float(logs[0]), W[:, -1] / root, W[:, 0] / root


def _apart(columns: Array, known: ColumnsSeen) -> tuple[Array, Array, Array]:
    """Return the smallest rise and fall of each column over the four comparisons, and its number of returns.

    The variation that few entries cause is subtracted. A column that has returned often enough is compared with all
    variances that it has had.
    """
    newer = np.stack([columns, known.columns[0]])
    older = np.stack(known.columns[1:])
    entries = np.concatenate([newer, older])[:, 1].min(axis=0)
    # A single entry has no variance.
    deviation = np.sqrt(2.0 / np.maximum(entries, 1.0))
    slack = np.where(entries > 1.0, 2.0 * deviation, np.inf)
    lowest = newer[:, 0].min(axis=0)
    highest = newer[:, 0].max(axis=0)
    rise = lowest - older[:, 0].max(axis=0) - slack
    fall = older[:, 0].min(axis=0) - highest - slack
    rise_of_all = np.fmin(rise, lowest - known.been[1] - slack)
    fall_of_all = np.fmin(fall, known.been[0] - highest - slack)
    back = (rise > RISE) & (rise_of_all <= RISE)
    back |= (fall > FALL) & (fall_of_all <= FALL)
    returns = np.zeros(len(rise))
    if len(known.returns):
        returns = known.returns
    often = returns >= _RETURNS
    rises = np.where(often, rise_of_all, rise)
    falls = np.where(often, fall_of_all, fall)
    return rises, falls, returns + back


def _been(known: ColumnsSeen) -> Array:
    """Return the range of each column's logarithm of v over pairs of earlier steps."""
    if len(known.columns) < 2:
        return known.been
    logs, entries = np.stack(known.columns[:2], axis=1)
    ends = [logs.max(axis=0), logs.min(axis=0)]
    pair = np.where(entries.min(axis=0) > 1.0, ends, np.nan)
    if not known.been.size:
        return pair
    # `fmin` and `fmax` ignore the NaN of steps without a variance.
    return np.stack([np.fmin(pair[0], known.been[0] + _FORGET), np.fmax(pair[1], known.been[1] - _FORGET)])


def _most(sizes: Array) -> Array:
    """Return the columns with the largest values, largest first, padded with -1."""
    order = np.argsort(-sizes, kind="stable")[:NAMED]
    least = _PART * sizes[order[0]]
    return _in_line(order[sizes[order] >= least])


def _moving_sites(sites: Array, before: tuple[Array, ...]) -> Array:
    """Return the clients whose misfit or energy has moved most, in the same direction in all four comparisons."""
    tables = [{int(line[0]): np.log(line[1:] + _TINY) for line in step} for step in (sites, *before)]
    there = [client for client in tables[0] if all(client in table for table in tables)]
    if not there:
        return _in_line(np.zeros(0))
    of = [np.stack([table[client] for client in there]) for table in tables]
    pairs = [(new, old) for new in of[:2] for old in of[2:]]
    steps = np.stack([new - old for new, old in pairs])
    up, down = steps.min(axis=0), -steps.max(axis=0)
    moves = np.maximum(up, down).max(axis=1)
    order = np.argsort(-moves, kind="stable")[:NAMED]
    least = max(_WORTH, _PART * float(moves[order[0]]))
    return _in_line(np.array(there)[order[moves[order] >= least]])


def nobody() -> Array:
    """Return the figures of a step that names no columns and no sites."""
    return np.full(FIGURES, -1.0)


def _in_line(numbers: Array) -> Array:
    filled = np.full(NAMED, -1.0)
    filled[: len(numbers)] = numbers
    return filled
