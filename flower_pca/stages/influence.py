"""What the components would be without one client: how much each of them turns the result.

With C_i the second moments of client i's rows in the common frame, s_i their sum and n_i their
number, those of all rows but the client's, about their own mean, are

    A_-i = sum_(j != i) C_j - s s' / n,     s = sum_(j != i) s_j,     n = sum_(j != i) n_j

(without the last term where rows are not centred). A message asks every client for C_i W, with a
block W of columns orthonormal to those before. All blocks together are one basis, which the
matrices of all clients are projected on: from its Ritz vectors follow the leading components
without the client, from their residuals how sure that is, and where to look on. So N eigenproblems
share two or three messages. The first block is that of the components, and what the algorithm has
beside them.

Clients that are alike differ by chance, and small ones more. So each client is held against the
others column by column, and `beyond` says how many times the most that chance explains its means or
deviations are off: see `_oddest`.

The server sees the answers of single clients, as in any run without masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, ROWS, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge, Stack, Stage, end_if, stack
from flower_pca.rows.local import LocalData

# What is known of the result without a client, and of its columns.
COLUMNS: Final = ("rows", "angle", "doubt", "explained", "variance", "column", "times", "beyond", "chance")
LEFT: Final = "influence"  # by which name the model keeps that
KEYS: Final = "influence_keys"
MESSAGES: Final = 3  # at most
# times as many columns as components a later block has: residuals of all clients share it
WIDER: Final = 4
TURN: Final = float(np.deg2rad(10.0))  # below which no client is far off
_APART: Final = 3.0  # times the turn that clients of its size do by chance
_OTHERS: Final = 64  # clients, at most, by whose turns chance is reckoned where one may be far off
_NAMED: Final = 3  # clients that the status names
_SURE: Final = 1e-3  # the doubt at which no more are asked for
_STILL: Final = 1e-8  # of a column's mean: so little is rounding
# of a mean square: so little may be what subtracting has left of it
_CANCELLED: Final = 1e-12
# of runs over clients that are alike may have one whose columns look odd
_CHANCE: Final = 0.01
# clients from which the deviations of the others say how much they differ by chance
_FEWEST: Final = 4
# times as large as any other's, a deviation is that of other units rather than of one row
_LARGER: Final = 8.0
# n times the variance of the logarithm of a variance, of normal values
_NORMAL: Final = 2.0
_SLACK: Final = 1e-3  # by which a sum may be more than its squares allow


@dataclass(frozen=True)
class InfluenceState:
    """The components, the basis asked for so far, its newest columns, and the clients' answers.

    Of the clients by their order: rows, sums and squares of their columns, and C_i times the basis
    (N x d x q).
    """

    Z: Array
    W: Array
    newest: int
    centred: bool
    seed: int
    # where the mean of each column lies in the frame's units, to know rounding by
    origin: Array
    messages: int = 0
    clients: tuple[int, ...] = ()
    rows: Array | None = None
    sums: Array | None = None
    squares: Array | None = None
    images: Array | None = None
    found: Array | None = None
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class Influence(Stage[InfluenceState]):
    """Components and variance without each client.

    Cost: 4 n_i d (p + 1) flops and p + 1 columns of d floats, then up to twice 16 n_i d (k + 2) and
    4 k + 8 columns. The server keeps all answers at once, N d (p + 8 k + 17) floats at most.
    """

    name: ClassVar[str] = "influence"
    asks: ClassVar[Mapping[str, Ask]] = {"W": BLOCK}
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> InfluenceState:
        Z = model.columns[:, : model.k]
        known = [model.columns]
        if model.beside is not None:
            known.append(model.beside)
        W = linalg.orth(np.hstack(known))
        origin = np.full(len(W), model.frame.centre / model.frame.divisor)
        return InfluenceState(Z, W, W.shape[1], model.center, model.seed, origin)

    def broadcast(self, state: InfluenceState) -> Arrays:
        return {"W": np.ascontiguousarray(state.W[:, -state.newest :])}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        columns = Part((len(arrays["W"]),), Kind.COLUMNS)
        return {"n": ROWS, "sum": columns, "squares": columns, "Y": Part(arrays["W"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        sums, squares = data.moments().sums(data.frame)
        up = {"n": np.array(data.n), "sum": sums, "squares": squares}
        return {**up, "Y": data.matmat(arrays["W"])}, memory

    def inspect(self, state: InfluenceState, reply: Arrays) -> None:
        # no rows have larger ones: variances that clients are compared by would be below 0
        most = (1.0 + _SLACK) * float(reply["n"]) * reply["squares"]
        if (reply["squares"] < 0.0).any() or (reply["sum"] ** 2 > most + np.finfo(float).tiny).any():
            raise ProtocolError(
                "The sums of an answer", must="as its squares allow", got="larger ones", then="Check the client's data."
            )

    def merging(self, state: InfluenceState) -> Merge:
        return stack

    def server(self, state: InfluenceState, total: Stack, answered: frozenset[int]) -> InfluenceState:
        # in one order, that of the first answers
        clients = state.clients or tuple(total)
        rows, sums, squares, newest = (
            np.stack([np.asarray(total[i][name], dtype=np.float64) for i in clients])
            for name in ("n", "sum", "squares", "Y")
        )
        images = newest
        if state.images is not None:
            images = np.concatenate([state.images, newest], axis=2)
        state = replace(state, messages=state.messages + 1, clients=clients, images=images)
        state = replace(state, rows=rows, sums=sums, squares=squares)
        table = _Table(state, rows, sums, squares, images)
        found, turns = _without(table)
        block = _onward(state, turns)
        if state.messages == MESSAGES or not block.shape[1]:
            # of many eigenproblems, so only once
            return replace(state, found=_by_others(table, found), done=True)
        W = np.hstack([state.W, block])
        return replace(state, found=found, W=W, newest=block.shape[1])

    def status(self, state: InfluenceState) -> Status | None:
        return end_if(state.done)

    def finish(self, state: InfluenceState, model: Model) -> Model:
        assert state.found is not None
        keys = np.array(state.clients, dtype=np.uint64)
        left = {**model.left, LEFT: state.found, KEYS: keys}
        return replace(model, left=left, status=_judge(model.status, state))


def is_far(angle: Array | float, beyond: Array | float, chance: Array | float) -> Array:
    """Whether a client turns the components, and differs, by more than chance explains."""
    turned = angle > np.maximum(TURN, chance)
    return np.asarray((np.asarray(beyond) > 1.0) & turned)


def chances(n: Array, angles: Array) -> Array:
    """Up to which angle chance explains the turns of clients of these sizes: a few times that of the middle one.

    To take n_i of n rows away moves what is estimated from all by n_i / (n - n_i) times how far the
    estimate of the n_i rows is from it: the deviation of that goes with sqrt(n_i / (n (n - n_i))).
    """
    size = np.sqrt(n / np.maximum(n.sum() - n, 1.0))
    turns = angles / size
    others = np.array([np.median(np.delete(turns, i)) for i in range(len(n))])
    return np.asarray(_APART * (size * others))


def _judge(status: Status | None, state: InfluenceState) -> Status | None:
    """The status, which names the clients that are far off, the furthest first."""
    assert state.found is not None
    if status is None or len(state.clients) < 2:
        return status
    found = dict(zip(COLUMNS, state.found.T, strict=True))
    far = is_far(found["angle"], found["beyond"], found["chance"])
    degrees = np.rad2deg(found["angle"])
    order = [int(i) for i in np.argsort(-found["angle"]) if far[i]]
    if not order:
        return status
    named = [f"client {state.clients[i]} turns it by {degrees[i]:.2g} degrees" for i in order]
    named = named[:_NAMED]
    if len(order) > _NAMED:
        named.append(f"{len(order) - _NAMED} more clients likewise")
    words = ", ".join(named)
    return replace(status, words=f"{status.words}; {words}, more than its rows and chance explain: see influence")


def _without(table: _Table) -> tuple[Array, list[Array]]:
    """Of each client a line of `COLUMNS`; and where its Ritz vectors would still turn to, if that is not sure."""
    lines = np.full((len(table.rows), len(COLUMNS)), np.nan)
    turns = []
    lines[:, 0] = table.rows
    lines[:, 5:8] = _oddest(table)
    for i, line in enumerate(lines):
        left, image, trace = table.without(i)
        if left == 0:
            continue
        angle, doubt, explained, _, turn = _turn(table.state.W, table.state.Z, image, trace)
        variance = trace / max(left - 1, 1)
        line[1:5] = angle, doubt, explained, variance
        if doubt > _SURE:
            turns.append(turn)
    if len(lines) > 1:
        lines[:, 8] = chances(table.rows, lines[:, 1])
    return lines, turns


def _by_others(table: _Table, lines: Array) -> Array:
    """The lines with what chance explains of clients that may be far off, reckoned by what is left without them too."""
    lines = lines.copy()
    for i, line in enumerate(lines):
        # of two clients nobody is left by whom to reckon
        if len(lines) > 2 and is_far(line[1], line[7], 0.0):
            line[8] = min(line[8], _chance(table, i))
    return lines


@dataclass(frozen=True)
class _Table:
    """What the clients have answered, by their order, and what is left of it without single ones.

    Attributes:
        state: The basis, the components, and the frame's origin.
        rows: How many rows each client has, (N,).
        sums: The sums of their columns, (N, d).
        squares: The sums of their squares, (N, d).
        images: C_i times the basis, (N, d, q).
    """

    state: InfluenceState
    rows: Array
    sums: Array
    squares: Array
    images: Array

    @cached_property
    def total(self) -> tuple[Array, ...]:
        """Rows, image, sums and squares of all clients together."""
        return tuple(a.sum(axis=0) for a in (self.rows, self.images, self.sums, self.squares))

    def without(self, *gone: int) -> tuple[float, Array, float]:
        """The rows without these clients, the image of the basis, and the trace."""
        # taken off the total: to add the others up for every client takes N times as long
        n, image, sums, squares = self.total
        for i in gone:
            n = n - self.rows[i]
            image = image - self.images[i]
            sums = sums - self.sums[i]
            # what is left where others have nothing is rounding, on either side of 0
            squares = np.maximum(squares - self.squares[i], 0.0)
        if self.state.centred and n > 0:
            mean = sums / n
            image = image - np.outer(sums, mean @ self.state.W)
            squares = np.maximum(squares - n * mean**2, 0.0)
        return float(n), image, float(squares.sum())


def _chance(table: _Table, i: int) -> float:
    """Up to which angle chance explains the turn of a client that may be far off: by how others turn what is left.

    With the client itself among them their turns say nothing: it may hold the components where they
    are, or have brought a tie. Of n rows of which n' are not its own, and an error of c / sqrt(n')
    of what n' rows say, that of the difference is c sqrt(1 / n' - 1 / n).
    """
    state, rows = table.state, table.rows
    _, image, trace = table.without(i)
    *_, ritz, _ = _turn(state.W, state.Z, image, trace)
    others = np.delete(np.arange(len(rows)), i)
    found = []
    for j in others[:: -(-len(others) // _OTHERS)]:
        fewer, image, trace = table.without(i, j)
        if rows[j] > 0 and fewer > 0:
            angle, doubt, *_ = _turn(state.W, ritz, image, trace)
            share = np.sqrt(rows[j] / fewer)
            found.append((angle + doubt) / share)
    share = float(np.sqrt(rows[i] / rows.sum()))
    return _APART * share * float(np.median(found or [np.inf]))


def _turn(W: Array, Z: Array, image: Array, trace: float) -> tuple[float, float, float, Array, Array]:
    """The largest angle to components Z of a matrix with this image of the basis; how sure it is; the share of the
    trace that they have; its Ritz vectors, and the way that these would go from the basis.
    """
    k = Z.shape[1]
    values, U = linalg.eigh_descending(W.T @ image)
    ritz = W @ U[:, :k]
    residual = image @ U[:, :k] - ritz * values[:k]
    left = trace - float(values[:k].sum())
    # where no next value is known, it is no larger than all that is left
    following = values[k] if len(values) > k else max(left, 0.0)
    size = linalg.norm2(residual)
    gap = float(values[k - 1] - following)
    # of a basis of all directions Ritz vectors are eigenvectors, whatever the gap
    if W.shape[1] == len(W):
        doubt = 0.0
    elif gap <= size:
        doubt = float("inf")
    else:
        doubt = size / gap
    explained = 0.0
    if trace > 0.0:
        explained = float(np.maximum(values[:k], 0.0).sum()) / trace
    angle = float(linalg.principal_angles(Z, ritz)[-1])
    return angle, doubt, min(explained, 1.0), ritz, residual / (size or 1.0)


def _oddest(table: _Table) -> Array:
    """Of each client the column by which it differs most from the others; how many times as far out its values lie
    there as those of all others; and how many times the most that chance explains it differs.
    """
    n = table.rows[:, None]
    sums, squares = table.sums, table.squares
    rest = np.maximum(table.rows.sum() - n, 1.0)
    mean = (sums.sum(axis=0) - sums) / rest  # of the others
    others = squares.sum(axis=0) - squares
    usual = np.maximum(others / rest - mean**2, 0.0)
    rounding = (_STILL * (np.abs(mean) + np.abs(table.state.origin))) ** 2
    about = squares / n - 2.0 * mean * sums / n + mean**2
    out = np.maximum(about, 0.0)
    beyond = np.maximum(_means(table, mean, usual + rounding), _deviations(table, rounding))
    column = np.argmax(beyond, axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        divisors = np.where(usual > rounding, usual, 0.0)
        times = np.sqrt(np.where(out > rounding, out / divisors, 1.0))
    largest = [np.take_along_axis(figure, column, axis=1) for figure in (times, beyond)]
    return np.hstack([column, *largest])


def _means(table: _Table, mean: Array, variance: Array) -> Array:
    """How many times the most that chance explains a client's mean of a column is off.

    With x_r what row r differs by from the mean of the others, S = sum_r x_r and Q = sum_r x_r^2,
    chance explains

        S^2 / max(Q, n v) <= 2 log(2 N d / p)

    where v is the variance of the others. S^2 / Q is at most the number of rows that differ, so
    that a rare value in one or two rows is never much, and the bound holds whatever the tails of a
    symmetric distribution are (Efron 1969). Of few clients one that is odd moves the mean of the
    others as well: each is held against the middle one too.
    """
    n, sums = table.rows[:, None], table.sums
    size = np.maximum(n.sum() - n, 1.0)
    most = 2.0 * np.log(2.0 * sums.size / _CHANCE)
    found = []
    for middle, unsure in ((mean, 1.0 + n / size), (np.median(sums / n, axis=0), 1.0)):
        off = sums - n * middle
        about = table.squares - 2.0 * middle * sums + n * middle**2
        least = np.maximum(about, n * variance)
        positive = np.maximum(least, np.finfo(float).tiny)
        found.append(off**2 / (positive * unsure))
    return np.asarray(np.minimum(*found) / most)


def _deviations(table: _Table, rounding: Array) -> Array:
    """Likewise of how much larger a client's deviation of a column is: t of its logarithm.

    How far the others differ in it says how heavy its tails are; and since a single row may do much
    where they are, it has to be `_LARGER` times that of any other too. Where one of them has no
    deviation nothing is said.
    """
    from scipy.special import stdtrit  # late, as few runs need it

    n, count = table.rows[:, None], len(table.rows)
    variance = table.squares / n - (table.sums / n) ** 2
    if count < _FEWEST:
        return np.zeros_like(variance)
    varies = variance > np.maximum(rounding, _CANCELLED * table.squares / n)
    logs = np.log(np.where(varies, variance, 1.0))
    rest = n.sum() - n
    middle = ((n * logs).sum(axis=0) - n * logs) / rest
    others = (n * logs**2).sum(axis=0) - n * logs**2
    spread = (others - rest * middle**2) / (count - 2)
    error = np.maximum(spread, _NORMAL) * (1.0 / n + 1.0 / rest)
    t = (logs - middle) / np.sqrt(error)
    most = -stdtrit(count - 2, _CHANCE / logs.size)
    second, first = np.sort(variance, axis=0)[-2:]
    larger = first > _LARGER**2 * second
    alone = (variance == first) & larger & varies.all(axis=0)
    return np.where(alone, np.maximum(t, 0.0) / most, 0.0)


def _onward(state: InfluenceState, turns: list[Array]) -> Array:
    """The next block: what most of these residuals have in common, orthonormal to the basis; empty at the end."""
    d, q = state.W.shape
    width = min(WIDER * (state.Z.shape[1] + 2), d - q)
    if not turns or width <= 0:
        return state.W[:, :0]
    block = np.hstack(turns)
    if block.shape[1] > width:
        # of seed and message alone: a run that goes on from a checkpoint asks the same block
        rng = np.random.default_rng([state.seed, state.messages])
        block = block @ rng.standard_normal((block.shape[1], width))
    return linalg.spanning(linalg.complement(block, state.W))
