"""How many own components a client takes by itself (local_components="auto"), from held-out rows.

A client's rows are in five parts, by a lot that never changes (`rows.folds`), and of each part it
has statistics that were fixed before the first message. Each part in turn is held out: directions
are found from the other four, largest first, and the mean square of the held-out rows along each is
set beside the mean of what is left of these rows in a direction that is not taken, and beside the
noise of the columns that it lies in (`noise`). The last one that holds more than twice of both, by
a standard error over the five parts, ends the count. Of the shared ones a client sees those that
hold more than twice of what is left then, likewise. It takes as many own components as directions
count beyond the shared ones that it sees. What counts is found once in a run, what is seen anew
when U has moved: both hardly hang on how good a U is yet.

The noise that own components are told from: of an average direction, and of each column by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.base import labels, linalg
from flower_pca.base.errors import ASK_SERVER, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, OWN_WIDTH, Ask, Kind, Part
from flower_pca.core.stage import Arrays
from flower_pca.rows import fixed, folds
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData

_CLEAR: Final = 2.0  # times the noise
_ROUNDS: Final = 8  # Rounds in which the noise of columns and the number of directions settle.
_SETTLED: Final = 0.05  # The noise has settled if the last round moves that of every column by at most this share.
# columns, of which as many are regressed on the others at most
_REGRESSED: Final = 4096
# columns for each row, of which as many are: a quarter of the rows is left to tell noise by
_ENOUGH: Final = 0.75
# A share of each column's variance, which stays as noise in columns that are sums of others.
_RIDGE: Final = 1e-9
_ALONE: Final = 0.05  # Directions are taken to leave at least this share of a column free.


def clear(along: Array, noise: Array) -> Array:
    """Which directions (columns; a row for each part) hold more than twice the noise, by a standard error of parts."""
    margin = along - _CLEAR * noise
    error = margin.std(axis=0, ddof=1) / np.sqrt(len(margin))
    return np.asarray(margin.mean(axis=0) > error)


def last(found: Array) -> int:
    """How many directions there are up to the last clear one."""
    return int(np.flatnonzero(found).max(initial=-1)) + 1


def directions(parts: Sequence[Any], most: int) -> list[tuple[Any, Array]]:
    """Each part, held out, and leading directions of the others: so many, or half of all."""
    d = parts[0].d
    none = np.empty((d, 0))
    most = min(most, d // 2)
    return [(part, deflation.own_basis(rest, none, most)) for part, rest in folds.splits(parts)]


def residuals(found: Sequence[tuple[Any, Array]]) -> tuple[Array, Array]:
    """Of each part and its `directions`: the mean square along each, and what is left beside.

    The second is the mean squared residual of the part's rows after that direction, over the
    directions not yet taken.
    """
    along, left = [], []
    for part, V in found:
        squares = np.sum(V * part.matmat(V), axis=0) / part.n
        along.append(squares)
        residual = part.squares().sum() / part.n - np.cumsum(squares)
        columns_left = part.d - 1 - np.arange(len(squares))
        left.append(residual / columns_left)
    return _cut(along), _cut(left)


def noise_along(found: Sequence[tuple[Any, Array]], columns: Array) -> Array:
    """What noise of such a variance in each column puts along the directions of each part."""
    return _cut([columns @ V**2 for _, V in found])


def by_column(parts: Sequence[FixedData], most: int) -> Array:
    """The variance of noise in each column: what none of at most so many directions explains.

    With rows enough the first guess is what is left of each column after a regression on all
    others, else its variance. The directions that count in columns of equal noise say what is
    noise, which says which directions count.
    """
    noise = _guess(parts)
    for _ in range(_ROUNDS):
        even = [_WeightedRows(part, _inverse(np.sqrt(noise))) for part in parts]
        found = directions(even, most)
        before = noise
        noise = noise * _beside(found, last(clear(*residuals(found))))
        if np.allclose(noise, before, rtol=_SETTLED):
            break
    return np.asarray(noise)


def _guess(parts: Sequence[FixedData]) -> Array:
    n = sum(part.n for part in parts)
    d = parts[0].d
    variances = np.sum([part.squares() for part in parts], axis=0) / n
    if d > min(_ENOUGH * n, _REGRESSED):
        return np.asarray(variances)
    scale = _inverse(np.sqrt(variances))
    C = folds.Together(parts).gram() / n
    S = C * scale * scale[:, None] + _RIDGE * np.eye(d)
    constant = np.diag(1.0 * (scale == 0.0))
    # What is left of each column after its regression on all others.
    left = variances / np.diag(np.linalg.inv(S + constant))
    # The regressions have fitted d of the n freedoms, and leave less than there is.
    return np.asarray(left * n / (n - d))


def _beside(found: Sequence[tuple[Any, Array]], r: int) -> Array:
    """The mean square of each column, held out, beside the first r directions."""
    beside = []
    for part, most in found:
        V = most[:, :r]
        SV = part.matmat(V) / part.n
        across = 2.0 * SV - V @ (V.T @ SV)
        explained = np.sum(across * V, axis=1)
        squares = part.squares() / part.n - explained
        free = np.maximum(1.0 - np.sum(V**2, axis=1), _ALONE)
        beside.append(np.maximum(squares, _RIDGE) / free)
    return np.asarray(np.mean(beside, axis=0))


class _WeightedRows:
    """Rows of which each column is multiplied by a weight."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    def __init__(self, data: FixedData, weights: Array) -> None:
        self._data, self._weights = data, weights
        self.n, self.d = data.n, data.d

    def matmat(self, Z: Array, *, reuse: int = 4) -> Array:
        """X'(XZ)."""
        weights = self._weights[:, None]
        return np.asarray(weights * self._data.matmat(weights * Z, reuse=reuse))

    def gram(self) -> Array:
        """X'X."""
        weights = self._weights
        return np.asarray(weights[:, None] * self._data.gram() * weights)

    def root(self) -> Array:
        """A with A'A = X'X."""
        return np.asarray(self._data.root() * self._weights)

    def squares(self) -> Array:
        """The sum of squares of each column."""
        return np.asarray(self._data.squares() * self._weights**2)


def _inverse(a: Array) -> Array:
    """1 / a, and 0 where a is."""
    return np.divide(1.0, a, out=np.zeros_like(a), where=a > 0.0)


def _cut(parts: Sequence[Array]) -> Array:
    """As many of each as all have."""
    least = min(map(len, parts))
    return np.array([a[:least] for a in parts])


AUTO: Final = "auto"
ASKS: Final[Mapping[str, Ask]] = {"own": OWN_WIDTH.by_client, AUTO: FLAG}
CHOSEN: Final = "chosen"  # The key of the number in a client's memory, and in its last answer.
SHARED: Final = "shared_block"  # The key in the model, if a count of the shared components lets the algorithm begin.
MOST: Final = 10  # own components that a client takes by itself
FEW: Final = 1  # what one with too few rows to hold some out takes
# sine of the angle from the U that a number was chosen beside, at which it is chosen anew
_MOVED: Final = 0.01
_TIMES: Final = 20  # The most times, so that a run comes to its end.


def number(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[int, Arrays]:
    """How many own components a client takes beside the message's U, and what it remembers of having chosen them."""
    components = int(arrays["own"])
    if AUTO not in arrays:
        return components, {}
    require_all_numbers(components)
    if data.n < folds.FEWEST:
        return min(FEW, components), {CHOSEN: np.array(-1)}
    U = arrays["U"]
    choice = {name: memory[name] for name in _KEPT if name in memory}
    if len(choice) < len(_KEPT) or choice["beside"].shape != U.shape:
        most = min(U.shape[1] + components, data.d)
        counted, known = count(data, most)
        choice = {"counted": np.array(counted), **known, "times": np.array(0)}
    if "beside" not in choice or (choice["times"] < _TIMES and linalg.sin_theta(choice["beside"], U) > _MOVED):
        own = int(choice["counted"]) - seen(data, U, choice)
        choice |= {CHOSEN: np.array(min(max(own, 0), components)), "beside": U}
        choice["times"] = np.array(choice["times"] + 1)
    return int(choice[CHOSEN]), choice


def require_all_numbers(own: int, *, full: bool = False) -> None:
    """Refuse to choose from fewer numbers than there are: two sums would tell of those that have chosen larger ones.

    `full` says that there are no more columns.
    """
    if own != MOST and not (full and 0 <= own < MOST):
        raise ProtocolError(
            f"A message lets this client choose among up to {own} own components, and clients choose among up to "
            f"{MOST}. {ASK_SERVER}"
        )


def leading(arrays: Arrays, data: LocalData) -> int:
    """How many directions of its own rows a client starts from: those that count, and no fewer than are shared."""
    most = int(arrays["k"])
    if AUTO not in arrays:
        return most
    shared = most - int(arrays["own"])
    require_all_numbers(int(arrays["own"]), full=most >= data.d)
    if data.n < folds.FEWEST:
        return min(shared + FEW, most)
    return max(count(data, most)[0], shared)


def count(data: LocalData, most: int) -> tuple[int, dict[str, Array]]:
    """The directions that count, so many at most; the noise beside them, by part and column."""
    parts = fixed.parts(data)
    columns = by_column(parts, most)
    found = directions(parts, most)
    along, left = residuals(found)
    if r := last(clear(along, np.maximum(left, noise_along(found, columns)))):
        return r, {"noise": left[:, r - 1], "columns": columns}
    whole = [part.squares().sum() / part.n / part.d for part in parts]
    return 0, {"noise": np.array(whole), "columns": columns}


def seen(data: LocalData, U: Array, beside: Mapping[str, Array]) -> int:
    """How many directions of U the held-out rows hold more of than the noise of `count`."""
    along, below = [], []
    for part, rest in folds.splits(fixed.parts(data)):
        Z = U @ linalg.eigh_descending(U.T @ rest.matmat(U))[1]
        squares = np.sum(Z * part.matmat(Z), axis=0)
        along.append(squares / part.n)
        below.append(beside["columns"] @ Z**2)
    least = np.maximum(beside["noise"][:, None], below)
    return int(np.sum(clear(np.array(along), least)))


TOLD: Final = Part((MOST + 2,), Kind.COUNT, own=True)  # what `answer` is


def answer(chosen: Arrays) -> Array:
    """A one at the number chosen, the last place for too few rows: sums of these count clients by their numbers."""
    places = np.zeros(MOST + 2)
    places[int(chosen[CHOSEN])] = 1.0
    return places


def words(counts: Array) -> str:
    """What the sum of all answers says."""
    said = "Own components: chosen by each client from held-out parts of its rows"
    *clients, few = (int(n) for n in np.rint(counts))
    found = [f"{r} at {labels.count(n, 'client')}" for r, n in enumerate(clients) if n >= 1]
    if few:
        have = {1: "has"}.get(few, "have")
        lacking = f"{labels.count(few, 'client')} that {have} fewer than {folds.FEWEST} rows"
        found.append(f"{FEW} at {lacking}, too few to hold some out")
    if found:
        return f"{said}: {', '.join(found)}"
    return f"{said}; how many is told by nodes that agree by share_own, or under masks"


def largest(counts: Array) -> int:
    """The largest number that is known to have been chosen; what was allowed where none is."""
    chosen = [*range(len(counts) - 1), FEW]
    pairs = zip(chosen, counts, strict=True)
    there = [number for number, clients in pairs if round(clients) >= 1]
    return max(there, default=len(counts) - 2)


_KEPT: Final[tuple[str, ...]] = (CHOSEN, "counted", "noise", "columns", "beside", "times")
