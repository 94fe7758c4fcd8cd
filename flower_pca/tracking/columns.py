"""What each batch says of single columns and directions, beside that of the subspace.

Asked for by `monitor`. With the first message of a step clients then send three sums over the rows
of their batch for each of the d columns: how many entries were observed, their sum, and their
squares. That is 3 d numbers a step beside the d (r + 2) of every message, for any number of rows.
What is of directions the products tell at no cost. All are sums: masks hide those of single
clients.

| statistic | of          | in batch t, compared with step s                                               |
| --------- | ----------- | ------------------------------------------------------------------------------ |
| up, down  | column j    | log v(t, j) / v(s, j), with v the variance within the batch: a stuck sensor's  |
|           |             | is 0, that of one in another unit is some other                                |
| lost,     | direction a | log a'P'C(t)Pa / n(t) against log a'La, with P the basis of step s and L its   |
| louder    | of basis s  | values by the row, where it is furthest below, or above: Hotelling's T2        |

As of the whole subspace, batches t - 1 and t are compared with steps t - 2 and t - 3, all four
ways, and the least of these counts: one batch by itself is no change, and what drifts or swings
slowly is none either. Nor is a variance that a column has had in two batches before, once it has
come back to such a one twice: what is rare is in some batches and not in others, while a sensor
that is mended has come back once. What has been is forgotten by 2 % a step. What few rows vary by is
taken off before.

Named are the columns of which a change of each kind is most, for SPE those of what both batches have
outside of the basis before them; and, where single clients are known, those whose own figures have
moved.
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

NAMED: Final = 5  # columns of one kind that are named, and sites
FIGURES: Final = 4 * NAMED  # The figures of a step: columns by kind of change, and sites. -1 stands for none.
RISE: Final = float(np.log(4.0))  # The least logarithms of a change that is worth a word.
FALL: Final = float(np.log(10.0))
_BEFORE: Final = 3  # steps that a batch is compared with, the one before included
_EXACT: Final = 1e-12  # Rounding leaves this share of a column's mean square in a variance that is 0.
_PART: Final = 0.5  # What has this share of the largest figure is named beside it.
_WORTH: Final = np.log(1.5)  # The figures of a site have to move by this much for it to be named.
_RETURNS: Final = 2  # From so many returns to an earlier variance on, a column is known to come and go.
_FORGET: Final = 0.02  # The logarithms between which a column has been move inwards by this share with a step.
_TINY: Final = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Columns:
    """What is known of columns and directions; of each of these the newest first.

    Attributes
    ----------
    columns : tuple of ndarray
        Of the steps before, the logarithm of v and the entries of each column, (2, d).
    been : ndarray of shape (2, d)
        Between what each column's logarithm of v has been in two steps in a row.
    returns : ndarray of shape (d,)
        How often each column has leapt to where it had been.
    sizes : tuple of ndarray
        The values of their bases, by the row.
    rows : tuple of int
        How many rows these are from.
    sites : tuple of ndarray
        The place in `clients`, the misfit and the energy by the row of each client, (clients, 3).
    clients : tuple of int
        All that have been seen.
    falls, rises : tuple of float
        How far the step before was below and above the values of the bases before it.
    outside : ndarray of shape (d,)
        The squares of each column that it had outside of the basis two steps before it, by the row.
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
    """What is known of the batch of a step.

    Attributes
    ----------
    seen, sums, squares : ndarray of shape (d,)
        Of the entries of each column.
    solver : Solver
        What is known of C.
    bases : tuple of ndarray
        Those of the steps before, newest first.
    values : ndarray
        The eigenvalues of C.
    rows : int
        Those of the batch.
    each : mapping
        What single clients have counted.
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
        """The logarithm of the variance of each column, and its entries, (2, d)."""
        count = np.maximum(self.seen, 1.0)
        mean_square = np.maximum(self.squares, 0.0) / count
        variance = mean_square - (self.sums / count) ** 2
        least = _EXACT * mean_square
        return np.stack([np.log(np.maximum(variance, least) + _TINY), self.seen])

    def sites(self, clients: tuple[int, ...]) -> Array:
        """The place among these, the misfit and the energy by the row of each client that has rows, (clients, 3)."""
        rows, misfit, energy = (COUNTS.index(name) for name in ("rows", "misfit", "energy"))
        lines = [
            (clients.index(client), counts[misfit] / counts[rows], counts[energy] / counts[rows])
            for client, counts in self.each.items()
            if counts[rows] > 0.0
        ]
        return np.array(lines).reshape(-1, 3)


def look(known: Columns, batch: Batch) -> tuple[dict[str, float], Array, Columns]:
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
        # Of as few rows as components, or fewer, no logarithm could be taken.
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
        Columns(
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
    """F with C = F F' as far as it is known, and P'F."""
    vectors, values = batch.solver.ritz_pairs()
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return scaled, P.T @ scaled


def _squares_outside(scaled: Array, inside: Array, P: Array) -> Array:
    """The diagonal of (I - PP')C(I - PP')."""
    rest = scaled - P @ inside
    return np.asarray(np.einsum("ij,ij->i", rest, rest))


def _inside(scaled: Array, inside: Array, size: Array, rows: int) -> tuple[float, float, Array, Array]:
    """How far P'CP is below and above the values of P, in logarithms, and where."""
    root = np.sqrt(np.maximum(size, _TINY))
    half = inside / root[:, None] / np.sqrt(rows)
    values, W = linalg.eigh_descending(half @ half.T)
    logs = np.log(np.maximum(values, _EXACT))
    return -float(logs[-1]), float(logs[0]), W[:, -1] / root, W[:, 0] / root


def _apart(columns: Array, known: Columns) -> tuple[Array, Array, Array]:
    """The least rise and the least fall of each column over the four comparisons, less what few entries vary by.

    A column that has returned often enough rises and falls from all that it has been. Last, how
    often each has.
    """
    newer = np.stack([columns, known.columns[0]])
    older = np.stack(known.columns[1:])
    entries = np.concatenate([newer, older])[:, 1].min(axis=0)
    # there is no variance of one entry
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


def _been(known: Columns) -> Array:
    """Between what each column's logarithm of v has been for two steps, those before this step the newest."""
    if len(known.columns) < 2:
        return known.been
    logs, entries = np.stack(known.columns[:2], axis=1)
    ends = [logs.max(axis=0), logs.min(axis=0)]
    pair = np.where(entries.min(axis=0) > 1.0, ends, np.nan)
    if not known.been.size:
        return pair
    # `fmin` and `fmax` pass over the NaN of steps that have no variance.
    return np.stack([np.fmin(pair[0], known.been[0] + _FORGET), np.fmax(pair[1], known.been[1] - _FORGET)])


def _most(sizes: Array) -> Array:
    """The columns of which there is most, largest first, -1 after the last."""
    order = np.argsort(-sizes, kind="stable")[:NAMED]
    least = _PART * sizes[order[0]]
    return _in_line(order[sizes[order] >= least])


def _moving_sites(sites: Array, before: tuple[Array, ...]) -> Array:
    """The places of the clients whose misfit or energy has moved most, the same way in all four comparisons."""
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
