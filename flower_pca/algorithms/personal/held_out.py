"""The number of local components that a client chooses from held-out rows (local_components="auto").

A fixed random draw splits a client's rows into five parts (`rows.folds`). The statistics of each part
are fixed before the first message. Each part is held out in turn, and the leading directions of the
other four parts are computed. The mean square of the held-out rows along each direction is compared
with two numbers: the mean square per remaining direction, and the noise of the columns in the direction
(`noise_along`). A direction is clear if its mean square exceeds twice the larger number by more than a
standard error over the five parts. The client counts all directions up to the last clear one.

In the same way, a client checks how many directions of U are clear in its held-out rows. The number of
local components is the number of counted directions minus the number of clear directions of U. A client
counts once in a run, and repeats the check of U if U has moved. Both results hardly depend on the
precision of U.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.base import labels, linalg
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, OWN_WIDTH, ArrayRule, Kind, Part
from flower_pca.core.stage import Arrays
from flower_pca.rows import fixed, folds
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData

_NOISE_FACTOR: Final = 2.0  # multiple of the noise that the mean square of a direction must exceed
_ROUNDS: Final = 8  # maximum number of iterations that alternate between the noise and the number of directions
_SETTLED: Final = 0.05  # maximum relative change of every column's noise after which the noise has settled
_MOST_REGRESSED: Final = 4096  # maximum number of columns that are regressed on each other
# These regressions require a ratio of columns to rows of at most this, so that a quarter of the rows is left to
# estimate the noise.
_COLUMNS_PER_ROW: Final = 0.75
# At least this share of a column's variance counts as noise, even if the column is a sum of other columns.
_RIDGE: Final = 1e-9
# The directions are assumed to leave at least this share of a column unexplained.
_LEAST_UNEXPLAINED: Final = 0.05


def clear_directions(along: Array, noise: Array) -> Array:
    """Return a mask of the clear directions: those that exceed twice the noise by more than a standard error.

    `along` and `noise` have a row for each part of the rows and a column for each direction. The standard
    error is computed over the parts.
    """
    margin = along - _NOISE_FACTOR * noise
    error = margin.std(axis=0, ddof=1) / np.sqrt(len(margin))
    return np.asarray(margin.mean(axis=0) > error)


def count_up_to_last_clear(is_clear: Array) -> int:
    """Return the number of directions up to and including the last clear one, or 0 if no direction is clear."""
    return int(np.flatnonzero(is_clear).max(initial=-1)) + 1


def directions_of_other_parts(parts: Sequence[Any], most: int) -> list[tuple[Any, Array]]:
    """Return a list of pairs: each part, and the leading directions of the other parts.

    The number of directions is at most `most`, and at most half the number of columns.
    """
    d = parts[0].d
    none = np.empty((d, 0))
    most = min(most, d // 2)
    return [(part, deflation.local_basis(rest, none, most)) for part, rest in folds.leave_one_out(parts)]


def mean_squares_by_direction(parts_and_directions: Sequence[tuple[Any, Array]]) -> tuple[Array, Array]:
    """Return for each part the mean square along each direction, and the mean square per remaining direction.

    Both arrays have a row for each part and a column for each direction. The second array contains the mean
    squared residual of the part's rows after this and all earlier directions are removed, divided by the
    number of remaining directions.
    """
    along, left = [], []
    for part, V in parts_and_directions:
        squares = np.sum(V * part.matmat(V), axis=0) / part.n
        along.append(squares)
        residual = part.squares().sum() / part.n - np.cumsum(squares)
        columns_left = part.d - 1 - np.arange(len(squares))
        left.append(residual / columns_left)
    return _cut_to_shortest(along), _cut_to_shortest(left)


def noise_along(parts_and_directions: Sequence[tuple[Any, Array]], columns: Array) -> Array:
    """Return the noise variance along each part's directions, given the noise variance of each column."""
    return _cut_to_shortest([columns @ V**2 for _, V in parts_and_directions])


def noise_by_column(parts: Sequence[FixedData], most: int) -> Array:
    """Return the variance of each column's noise: the part that at most `most` directions do not explain.

    If there are enough rows, the first guess is the residual variance of each column after a regression on
    all other columns. Otherwise the first guess is the variance of the column. Then two steps alternate.
    The first step scales columns to equal noise, and finds the directions that count. The second step
    estimates the noise, given these directions.
    """
    noise = _first_guess_of_noise(parts)
    for _ in range(_ROUNDS):
        even = [_WeightedRows(part, _inverse(np.sqrt(noise))) for part in parts]
        found = directions_of_other_parts(even, most)
        before = noise
        noise = noise * _noise_beyond(
            found, count_up_to_last_clear(clear_directions(*mean_squares_by_direction(found)))
        )
        if np.allclose(noise, before, rtol=_SETTLED):
            break
    return np.asarray(noise)


def _first_guess_of_noise(parts: Sequence[FixedData]) -> Array:
    n = sum(part.n for part in parts)
    d = parts[0].d
    variances = np.sum([part.squares() for part in parts], axis=0) / n
    if d > min(_COLUMNS_PER_ROW * n, _MOST_REGRESSED):
        return np.asarray(variances)
    scale = _inverse(np.sqrt(variances))
    C = folds.UnionOfRows(parts).gram() / n
    S = C * scale * scale[:, None] + _RIDGE * np.eye(d)
    constant = np.diag(1.0 * (scale == 0.0))
    # `left` is the residual variance of each column after a regression on all other columns.
    left = variances / np.diag(np.linalg.inv(S + constant))
    # The regressions have used d of n degrees of freedom, so the residuals are too small.
    return np.asarray(left * n / (n - d))


def _noise_beyond(parts_and_directions: Sequence[tuple[Any, Array]], r: int) -> Array:
    """Return the noise variance of each column, estimated from held-out rows.

    The mean square that remains after the first r directions are removed is divided by the share of the
    column's unit vector that lies outside these directions.
    """
    beside = []
    for part, most in parts_and_directions:
        V = most[:, :r]
        SV = part.matmat(V) / part.n
        across = 2.0 * SV - V @ (V.T @ SV)
        explained = np.sum(across * V, axis=1)
        squares = part.squares() / part.n - explained
        free = np.maximum(1.0 - np.sum(V**2, axis=1), _LEAST_UNEXPLAINED)
        beside.append(np.maximum(squares, _RIDGE) / free)
    return np.asarray(np.mean(beside, axis=0))


class _WeightedRows:
    """A view of rows in which each column is multiplied by the weight of this column."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    def __init__(self, data: FixedData, weights: Array) -> None:
        self._data, self._weights = data, weights
        self.n, self.d = data.n, data.d

    def matmat(self, Z: Array, *, reuse: int = 4) -> Array:
        """Return X'(XZ) for the weighted rows X."""
        weights = self._weights[:, None]
        return np.asarray(weights * self._data.matmat(weights * Z, reuse=reuse))

    def gram(self) -> Array:
        """Return X'X for the weighted rows X."""
        weights = self._weights
        return np.asarray(weights[:, None] * self._data.gram() * weights)

    def root(self) -> Array:
        """Return a matrix A with A'A = X'X for the weighted rows X."""
        return np.asarray(self._data.root() * self._weights)

    def squares(self) -> Array:
        """Return the sum of squares of each column."""
        return np.asarray(self._data.squares() * self._weights**2)


def _inverse(a: Array) -> Array:
    """Return 1 / a, and 0 for entries that are 0."""
    return np.divide(1.0, a, out=np.zeros_like(a), where=a > 0.0)


def _cut_to_shortest(parts: Sequence[Array]) -> Array:
    """Return the arrays as rows of one array, cut to the length of the shortest."""
    least = min(map(len, parts))
    return np.array([a[:least] for a in parts])


AUTO: Final = "auto"
ASKS: Final[Mapping[str, ArrayRule]] = {"own": OWN_WIDTH.by_client, AUTO: FLAG}
CHOSEN: Final = "chosen"  # the key of the chosen number in a client's memory, and in its last answer
SHARED: Final = "shared_block"  # the key in `Model.left` of the block that `shared` found and the algorithm starts from
MOST: Final = 10  # maximum number of local components that a client can choose
FEW: Final = 1  # the number of local components of a client with too few rows to hold some out
# If U has turned by an angle with a larger sine since the last choice, the client chooses again.
_MOST_MOVED: Final = 0.01
_MOST_CHOICES: Final = 20  # maximum number of choices, which ensures that a run ends


def choose_number(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[int, Arrays]:
    """Return the client's number of local components, and the arrays about this choice that the client keeps.

    Without "auto", the message itself contains the number, and there are no arrays.
    """
    components = int(arrays["own"])
    if AUTO not in arrays:
        return components, {}
    require_all_numbers(components)
    if data.n < folds.FEWEST:
        return min(FEW, components), {CHOSEN: np.array(-1)}
    U = arrays["U"]
    choice = {name: memory[name] for name in _CHOICE_KEYS if name in memory}
    if len(choice) < len(_CHOICE_KEYS) or choice["beside"].shape != U.shape:
        most = min(U.shape[1] + components, data.d)
        counted, known = count_directions(data, most)
        choice = {"counted": np.array(counted), **known, "times": np.array(0)}
    if "beside" not in choice or (
        choice["times"] < _MOST_CHOICES and linalg.sin_theta(choice["beside"], U) > _MOST_MOVED
    ):
        own = int(choice["counted"]) - count_clear_directions(data, U, choice)
        choice |= {CHOSEN: np.array(min(max(own, 0), components)), "beside": U}
        choice["times"] = np.array(choice["times"] + 1)
    return int(choice[CHOSEN]), choice


def require_all_numbers(most: int, *, full: bool = False) -> None:
    """Raise ProtocolError if `most`, the server's limit on the number of local components, is not `MOST`.

    If limits could vary, the server could compare sums under two limits, and would learn which clients
    chose larger numbers. If `full` is True, U and the local components span all columns, so the limit may be
    smaller.
    """
    if most != MOST and not (full and 0 <= most < MOST):
        raise ProtocolError(
            f"The server limits this client to {most} local components, but the limit must be {MOST}. {OTHER_SERVER}"
        )


def directions_to_send(arrays: Arrays, data: LocalData) -> int:
    """Return the number of directions that a client sends in the first phase.

    With "auto", this is the number of counted directions, but at least the number of shared components.
    """
    most = int(arrays["k"])
    if AUTO not in arrays:
        return most
    shared = most - int(arrays["own"])
    require_all_numbers(int(arrays["own"]), full=most >= data.d)
    if data.n < folds.FEWEST:
        return min(shared + FEW, most)
    return max(count_directions(data, most)[0], shared)


def count_directions(data: LocalData, most: int) -> tuple[int, dict[str, Array]]:
    """Return the number of directions that stand out from the noise, at most `most`, and the noise.

    The second result holds the noise of each part ("noise") and of each column ("columns").
    """
    parts = fixed.fixed_parts(data)
    columns = noise_by_column(parts, most)
    found = directions_of_other_parts(parts, most)
    along, left = mean_squares_by_direction(found)
    if r := count_up_to_last_clear(clear_directions(along, np.maximum(left, noise_along(found, columns)))):
        return r, {"noise": left[:, r - 1], "columns": columns}
    whole = [part.squares().sum() / part.n / part.d for part in parts]
    return 0, {"noise": np.array(whole), "columns": columns}


def count_clear_directions(data: LocalData, U: Array, noise: Mapping[str, Array]) -> int:
    """Return the number of directions of U that are clear in held-out rows, given the noise from `count_directions`."""
    along, below = [], []
    for part, rest in folds.leave_one_out(fixed.fixed_parts(data)):
        Z = U @ linalg.eigh_descending(U.T @ rest.matmat(U))[1]
        squares = np.sum(Z * part.matmat(Z), axis=0)
        along.append(squares / part.n)
        below.append(noise["columns"] @ Z**2)
    least = np.maximum(noise["noise"][:, None], below)
    return int(np.sum(clear_directions(np.array(along), least)))


TOLD: Final = Part((MOST + 2,), Kind.COUNT, own=True)  # the shape and kind of `one_hot_answer`


def one_hot_answer(chosen: Arrays) -> Array:
    """Return an array of zeros with a 1 at the position of the chosen number.

    Summed over clients, it gives the number of clients that have chosen each number. The last entry is for
    clients with too few rows to choose.
    """
    places = np.zeros(MOST + 2)
    places[int(chosen[CHOSEN])] = 1.0
    return places


def sentence_on_numbers(counts: Array) -> str:
    """Return a sentence about the numbers that clients have chosen, given the sum of all answers."""
    said = "Local components: chosen by each client from held-out parts of its rows"
    *clients, few = (int(n) for n in np.rint(counts))
    found = [f"{r} at {labels.count(n, 'client')}" for r, n in enumerate(clients) if n >= 1]
    if few:
        have = {1: "has"}.get(few, "have")
        lacking = f"{labels.count(few, 'client')} that {have} fewer than {folds.FEWEST} rows"
        found.append(f"{FEW} at {lacking}, too few to hold any out")
    if found:
        return f"{said}: {', '.join(found)}"
    return f"{said}; the numbers are reported only with share_local at the nodes, or with masks"


def largest_choice(counts: Array) -> int:
    """Return the largest number that a client has chosen, or the maximum number if no choice is known."""
    chosen = [*range(len(counts) - 1), FEW]
    there = [number for number, clients in zip(chosen, counts, strict=True) if round(clients) >= 1]
    return max(there, default=len(counts) - 2)


_CHOICE_KEYS: Final[tuple[str, ...]] = (CHOSEN, "counted", "noise", "columns", "beside", "times")
