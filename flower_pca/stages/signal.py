"""The number of components that stand out from noise, found by comparison with randomly flipped tables.

If the signs of the entries of a table are flipped at random, the sizes of the entries stay the same, but
the columns no longer have anything in common. The largest eigenvalue of a flipped table therefore shows
what noise alone would give, even if the noise differs by column or by row. A component counts if its
eigenvalue exceeds a threshold: the mean over the largest eigenvalues of flipped tables plus three
standard deviations. Noise exceeds this threshold in about one of a hundred cases. Counting stops at the
first component below its threshold (parallel analysis: Horn 1965; by signs: Hong, Sheng, Dobriban,
"Selecting the number of components in PCA via random signflips", 2020).

Deflation. A strong component contributes to the flipped entries, and would hide weak components. The
components that count are therefore removed before the next test (Dobriban, Owen 2019). They also contain
noise, which must be restored. Let psi_c be the variance of the noise in column c. It is computed from C
by principal factors (the diagonal of C minus the part of its k leading factors). Rows are weighted by
w_c = sqrt(min psi / psi_c), which makes the noise equal in all columns. The k leading directions W of X
diag(w) are removed. In the second moments of the flipped tables, column c is divided by w_c sqrt(1 -
|W_c|^2), because the share |W_c|^2 of the noise in the column was removed with the directions. The
factor n / (n - 1 - k) is a correction for the rows, which have lost the mean and k directions. Flips
spread this loss over the table. A single long row loses the same share of its square, 1/n, which all
other rows have taken up when the mean was removed.

Second test. If there are few columns, a component is itself a large part of the flipped entries, so it
raises its own threshold. The first component below its threshold therefore gets a second test. It still
counts if its eigenvalue is above a threshold from tables without this component. The removed direction is
the one with the largest eigenvalue, so noise loses more than its share with this direction. Let t be the
edge of the noise in m directions, as a multiple of the mean eigenvalue. The threshold is then multiplied
by (1 - 1/m) / (1 - t/m), and by a margin of a tenth.

Long rows. In the second test, a single row must not make up most of the component. If a few rows are much
longer than all other rows, the largest direction of noise is along one of them, and its eigenvalue is far
above those of tables without this direction. The flipped tables show how long a row can be. On average
over the flips, the square of an off-diagonal entry (c, e) is the sum over rows of x_c^2 x_e^2. Divided by
(C_cc C_ee + 2 C_ce^2) / n and summed over all pairs of columns, it is 1 for normally distributed rows, and
at least 1 + n p^2 if one row has the share p of the trace. The eigenvalue must therefore also exceed three
times the largest square that a row can have according to this bound. With many columns, a component is a
small part of the entries, so there is no second test by products.

In the second test, a component with more than half of its squares in one column does not count, because
columns do not share it.

One message asks for the flipped tables of several ranks, as many as fit into `ROOM` numbers. With few
columns, two messages are enough: one for C and rank 0, and one for all other ranks. Each client draws
its own flips, because the rows could be computed from the tables if the flips were known.

Above 316 columns, the tables are too large. Each table is then used only through its products with a
block, in a few messages for one or two ranks. Clients keep their flips during these messages. Few
products underestimate the largest eigenvalues (see `stages.lanczos`). The unflipped table, without the
components that already count, is therefore treated in the same way, with the same number of columns and
messages. For noise alone, all these tables have similar eigenvalues and similar errors, whereas
components above noise converge faster than noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.bits import random_signs
from flower_pca.base.errors import OTHER_SERVER, DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.algorithm import scale_up_to_all_rows
from flower_pca.core.kinds import BLOCK, ROWS, ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import KEY, Arrays, Stage, status_when
from flower_pca.names.levels import source_of
from flower_pca.rows.local import LocalData
from flower_pca.stages.factors import (
    CovarianceOnSpan,
    CovarianceSource,
    WholeCovariance,
    restoring_factors,
    weighted_basis,
)
from flower_pca.stages.lanczos import BatchedLanczos, ritz_of_both

SIGNAL: Final = "signal"  # the value of n_components that requests this stage
THRESHOLDS: Final = "noise_thresholds"  # the key of the thresholds in the model, as sums of squares
DRAWS: Final = 20  # the number of flipped tables for each rank
DEVIATIONS: Final = 3.0  # the number of standard deviations between the mean and the threshold
ROOM: Final = 2**16  # the maximum number of numbers in an answer about several ranks
MOST: Final = 2**20  # the maximum number of numbers in any answer
WIDE: Final = 1000  # the number of columns up to which nodes always accept a block
_RANKS: Final = 2  # the number of ranks in each message by products, except the first message with one rank
# the position of an eigenvalue a fifth above the noise, if the interval from 0 to the noise is mapped to [-1, 1]
_POSITION: Final = 1.4
_ENOUGH: Final = 0.34  # A component has emerged from a random block when its size in the block reaches this share.
_MOST_RANKS: Final = 1000
_MOST_DRAWS: Final = 1000
_ROUNDED: Final = 2.0**-50  # the relative rounding error of eigenvalues for each column
_MARGIN: Final = 1.1  # the factor of the threshold in the second test
_ALONE: Final = 0.5  # Columns do not share a component if a larger share of its squares is in one column.
_OF_ONE_ROW: Final = 3.0  # A component must exceed this multiple of the largest square that a row can have.
_MOST_LOST: Final = 0.9  # the maximum share of the noise along its largest direction
_ABOVE: Final = 1.0 + 1e-9  # a margin for rounding errors, which matters if flips do not change C (orthogonal columns)
_SIGNS, _TABLES = "signs", "sign_tables"  # the keys of the signs and of their tables in a client's memory

FLIPPED: Final = Kind(
    "flipped",
    "all of C at once, and the second moments of the rows with random signs, with and without components",
    size=lambda a: np.sqrt(np.einsum("ij,ij->i", a, a)),
    bound=lambda reach: reach.squares,
    square=True,
)
FLIPPED_PRODUCT: Final = replace(
    Kind.PRODUCT,
    name="flipped product",
    tells="C Z, and the same products for the rows with random signs, without components",
    rounded=False,
)
FLIPPED_SQUARES: Final = Kind(
    "flipped squares",
    "the sum of squares of each column, without components that the server chooses",
    size=lambda a: a.sum(axis=1),
    bound=lambda reach: reach.squares,
    within_trace=True,
)


@dataclass(frozen=True)
class SignalState:
    """The server's thresholds so far, C with its eigenpairs, and the next message, about ranks from `first` on.

    `counted` is the number of components so far, and `found` is True if this number is final. `short` is the
    threshold that the next component has missed, or 0. In a second test, this component may still count if
    it exceeds the bound that follows from the `longest` row. If there are more columns than tables can have,
    there is a `search` by products, and the server knows only the `diagonal` of C and its products CV.
    """

    n: int
    sources: Array  # for each column, the index of the sign that it uses
    weights: Array
    W: Array
    first: int = 0
    counted: int = 0
    found: bool = False
    short: float = 0.0
    longest: float = 0.0
    messages: int = 0
    thresholds: Array | None = None
    C: Array | None = None
    values: Array | None = None
    V: Array | None = None
    seed: int = 0
    search: BatchedLanczos | None = None
    diagonal: Array | None = None
    CV: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Signal(Stage[SignalState]):
    """A stage that counts the components above noise.

    It uses the second moments of the rows, and of `DRAWS` flipped tables for each rank.

    Cost: with tables, a client needs n_i d^2 flops for each draw, and sends d (d + 1) / 2 floats for
    each draw. Usually, one or two messages are enough. Each time that weaker components appear after the
    removal of stronger ones, another message follows. The server needs O(d^3) flops for each draw.

    By products, above 316 columns, a client needs 4 n_i d p flops for each draw, and p d floats travel
    each way, with all draws in at most `MOST` numbers. Each step takes two or three messages, and one
    or two more above about 1,700 columns.
    """

    name: ClassVar[str] = SIGNAL
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "weights": BLOCK,
        "W": BLOCK,
        "first": index_rule(_MOST_RANKS),
        "draws": index_rule(_MOST_DRAWS, least=1),
        "Z": BLOCK,
    }
    by_row: ClassVar[bool] = True
    draws: ClassVar[bool] = True

    def start(self, model: Model) -> SignalState:
        d, none = model.d, np.empty((model.d, 0))
        sources, _ = _sign_indices(model.feature_names, d)
        found = THRESHOLDS in model.left
        weights = np.ones((d, 1))
        state = SignalState(model.n, sources, weights, none, found=found, seed=model.seed)
        if (DRAWS + 1) * _count_of_pairs(d) <= MOST:
            return state
        if not _block_width(d, _RANKS):
            most = MOST // _number_of_tables(_RANKS)
            raise DataError(
                f"{option('n_components', 'signal')} is possible for at most {most} columns here, but there are {d}. "
                "Name a number of components, or a share of the variance.",
                setting="n_components",
            )
        return _begin_search(state)

    def broadcast(self, state: SignalState) -> Arrays:
        numbers = {"first": np.array(state.first), "draws": np.array(DRAWS)}
        message = {"weights": state.weights, "W": state.W, **numbers}
        if state.search is None:
            return message
        # The factors that restore the noise apply to both sides of a table: to the right side here, and to the left
        # side in `_continue_search`.
        blocks = state.search.block * _noise_factors(state)
        return {**message, "Z": np.hstack(list(blocks))}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        d, ranks = arrays["weights"].shape
        if "Z" in arrays:
            products = Part(arrays["Z"].shape, FLIPPED_PRODUCT, of="Z")
            return {"products": products, "squares": Part((ranks, d), FLIPPED_SQUARES), "n": ROWS}
        tables = ranks * int(arrays["draws"]) + int(arrays["first"] == 0)
        return {"tables": Part((tables, _count_of_pairs(d)), FLIPPED), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        bases = _bases_of_message(arrays, data.d)
        if "Z" in arrays:
            return _products_of_tables(arrays, bases, data, memory)
        draws = int(arrays["draws"])
        known = int(arrays["first"] != 0)  # Only the first message asks for the unflipped rows.
        sums = np.zeros((1 - known + len(bases) * draws, data.d, data.d))
        for table, F in _flipped_blocks(bases, draws, data, key=memory[KEY].tobytes()):
            if table >= known:
                sums[table - known] += F.T @ F
        tables = sums[:, *np.triu_indices(data.d)]
        return {"tables": tables, "n": np.array(data.n)}, memory

    def server(self, state: SignalState, total: Arrays, answered: frozenset[int]) -> SignalState:
        state = replace(state, messages=state.messages + 1)
        if state.search is not None:
            return _continue_search(state, state.search, total)
        tables = scale_up_to_all_rows(total, "tables", state.n)
        if state.values is None:
            C = _unpack_symmetric(tables[0], len(state.weights))
            values, V = linalg.eigh_descending(C)
            state = replace(state, C=C, values=values, V=V)
            tables = tables[1:]

        def noise(j: int, weights: Array, W: Array) -> _NoiseThreshold:
            own = tables[j * DRAWS : (j + 1) * DRAWS]
            return _NoiseThreshold.from_tables(own, weights, W, state)

        return _with_next_message(_count_components(state, noise))

    def status(self, state: SignalState) -> Status | None:
        return status_when(state.found)

    def finish(self, state: SignalState, model: Model) -> Model:
        if state.values is None:  # The number of components was found before the set of clients changed.
            return model
        assert state.V is not None
        assert state.thresholds is not None
        k, ddof = state.counted, max(model.n - 1, 1)
        said = _sentence_on_count(state.values / ddof, state.thresholds / ddof, k)
        if not k:
            raise DataError(
                f"No component stands out from noise: {said}. For example, use "
                f"{option('n_components', 2)} to see two components anyway."
            )
        wide = model.columns.shape[1]  # the width of a basis for one component
        V = np.ascontiguousarray(state.V[:, : k + wide - 1])
        Y = _known_covariance(state).product(V)
        values = state.values[: V.shape[1]]
        # After a search, the values beyond the counted components belong to other vectors than V.
        if state.CV is not None:
            values = np.sum(V * Y, axis=0)
        left = {**model.left, THRESHOLDS: state.thresholds}
        messages = labels.count(state.messages, "message")
        residuals = linalg.column_norms(Y - V * values)
        model = replace(model, basis=V, product=Y, opening_errors=None).with_decision(
            "components", f"{said} ({messages})"
        )
        return replace(model, n_components=k, residuals=residuals, left=left)


def _sign_indices(names: Sequence[str] | None, d: int) -> tuple[Array, int]:
    """Return the index of the sign that each column uses, and the number of signs.

    Columns made from one text column use the same sign. Each row has a 1 in only one of these columns, and
    this dependence must not count as something that columns have in common.
    """
    if names is None:
        return np.arange(d), d
    words = [source_of(name) or name for name in names]
    place = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([place[word] for word in words]), len(place)


def _flipped_blocks(
    bases: Sequence[tuple[Array, Array]], draws: int, data: LocalData, *, key: bytes
) -> Iterator[tuple[int, Array]]:
    """Yield pairs of a table's index and a block of its rows.

    The rows of table 0 are unchanged. One more table follows for every draw of each rank, with flipped rows.
    """
    sources, width = _sign_indices(data.names, data.d)
    for number, block in enumerate(data.dense()):
        X = np.asarray(block, dtype=np.float64)
        yield 0, X
        for j, (weights, W) in enumerate(bases):
            E = X * weights
            E -= (E @ W) @ W.T
            for draw in range(j * draws, (j + 1) * draws):
                drawn = random_signs(key + f"{number} {draw}".encode(), (len(E), width))
                yield 1 + draw, E * (drawn if width == data.d else drawn[:, sources])


def _count_of_pairs(d: int) -> int:
    return d * (d + 1) // 2


def _unpack_symmetric(vector: Array, d: int) -> Array:
    """Return the symmetric matrix whose upper triangle has the entries of `vector`."""
    C = np.zeros((d, d))
    C[np.triu_indices(d)] = vector
    return C + np.triu(C, 1).T


def _bases_of_message(arrays: Arrays, d: int) -> list[tuple[Array, Array]]:
    """Return the weights of the columns and the directions to remove, for each rank in the message.

    Raise ProtocolError if their shapes do not fit the ranks and the number d of columns.
    """
    weights = arrays["weights"].astype(np.float64)
    W = arrays["W"].astype(np.float64)
    first = int(arrays["first"])
    ranks = range(first, first + weights.shape[1])
    if len(weights) != d or len(W) != d or W.shape[1] != sum(ranks):
        raise ProtocolError(
            f"A message for signal needs weights of {labels.count(d, 'column')}, and as many directions as its ranks "
            f"add up to. It has shapes {weights.shape} and {W.shape}. {OTHER_SERVER}"
        )
    ends = np.cumsum([0, *ranks])
    places = [slice(*ends[j : j + 2]) for j in range(len(ranks))]
    return [(weights[:, j], W[:, place]) for j, place in enumerate(places)]


def _bases_of_state(state: SignalState) -> list[tuple[Array, Array]]:
    """Return the weights and directions of the pending message."""
    message = {"weights": state.weights, "W": state.W, "first": np.array(state.first)}
    return _bases_of_message(message, len(state.weights))


def _count_components(state: SignalState, noise_of: Callable[[int, Array, Array], _NoiseThreshold]) -> SignalState:
    """Return the state with the number of components above noise, from the flipped tables for the message's ranks."""
    assert state.values is not None
    k, short, values = state.counted, state.short, state.values
    nothing = len(state.weights) * _ROUNDED * float(values[0])
    before = np.empty(0) if state.thresholds is None else state.thresholds
    for j, (weights, W) in enumerate(_bases_of_state(state)):
        rank = state.first + j
        if rank < k + bool(short):  # The component already counts.
            continue
        noise = noise_of(j, weights, W)
        if short:
            assert state.V is not None
            itself = np.column_stack([W[:, -1], state.V[:, k]])
            own = max(noise.threshold_without(rank, len(W)), _OF_ONE_ROW * state.longest, nothing)
            if _has_lone_column(itself, state.sources) or state.search is not None:
                own = np.inf
            if values[k] <= own:
                return replace(state, counted=k, thresholds=np.append(before[:k], short), found=True)
            k, short, before = rank, 0.0, np.append(before[:k], own)
        least = max(_ABOVE * noise.threshold, nothing)
        more = max(k, int(np.sum(values > least)))
        before = np.append(before, np.full(more - k, noise.threshold))
        if more == k:
            short = max(noise.threshold, nothing)
            state = replace(state, longest=noise.longest)
        k = more
    return replace(state, counted=k, short=short, thresholds=before)


@dataclass(frozen=True)
class _NoiseThreshold:
    """The largest eigenvalues to expect from noise alone, and the `threshold` that follows from them.

    `edge` is the mean largest eigenvalue, divided by the mean of all eigenvalues. `longest` is a bound
    on the square of the longest row, or 0 if flipped tables are used only through products.
    """

    threshold: float
    edge: float
    longest: float = 0.0

    @classmethod
    def from_tables(cls, tables: Array, weights: Array, W: Array, state: SignalState) -> _NoiseThreshold:
        """Return the noise, computed from flipped tables without the directions W."""
        d, rank = W.shape
        assert state.C is not None
        back = restoring_factors(weights, W)
        whole = [_unpack_symmetric(table, d) * np.outer(back, back) for table in tables]
        largest = np.array([linalg.eigh_leading(table, 1)[0][0] for table in whole])
        trace = float(np.mean([np.trace(table) for table in whole]))
        noise = cls.from_eigenvalues(largest, trace / d, rank, state.n)
        without = np.eye(d) - W @ W.T
        C = without @ (state.C * np.outer(weights, weights)) @ without
        excess = max(_inequality_of_lengths(tables, C, state) - 1.0, 0.0)
        return replace(noise, longest=trace * float(np.sqrt(excess / state.n)))

    @classmethod
    def from_eigenvalues(cls, largest: Array, usual: float, rank: int, n: int) -> _NoiseThreshold:
        """Return the noise, from the largest eigenvalues of flipped tables and the mean `usual` of all eigenvalues."""
        mean = float(np.mean(largest))
        level = mean + DEVIATIONS * float(np.std(largest, ddof=1))
        edge = mean / max(usual, np.finfo(np.float64).tiny)
        return cls(level * n / max(n - 1 - rank, 1), edge)

    def threshold_without(self, rank: int, d: int) -> float:
        """Return the threshold of the second test of direction number `rank`.

        This threshold uses flipped tables from which this direction, too, was removed.
        """
        there = d - rank + 1
        loss = min(self.edge / there, _MOST_LOST)
        above = _MARGIN * self.threshold * (1.0 - 1.0 / there)
        return float(above / (1.0 - loss))


def _inequality_of_lengths(tables: Array, C: Array, state: SignalState) -> float:
    """Measure how unequal the lengths of the rows are, from second moments C and flipped tables.

    The measure is about 1 for normally distributed rows.
    """
    upper = np.triu_indices(len(C))
    pairs = state.sources[upper[0]] != state.sources[upper[1]]
    products = np.multiply.outer(np.diagonal(C), np.diagonal(C)) + 2.0 * C**2
    expected = float(products[upper][pairs].sum())
    if expected <= 0.0:  # All products of different columns are 0.
        return 1.0
    found = float(np.mean(tables[:, pairs] ** 2, axis=0).sum())
    return state.n * found / expected


def _has_lone_column(directions: Array, sources: Array) -> bool:
    """Return whether one of the directions has most of its squares in one column or one text column.

    `sources` groups the columns made from one text column.
    """
    shares = (np.bincount(sources, v**2) for v in directions.T)
    return any(float(np.max(share)) > _ALONE for share in shares)


def _with_next_message(state: SignalState) -> SignalState:
    """Return the state with the next message, about the ranks from the current count on, or the final state."""
    if state.found:
        return state
    d = len(state.weights)
    first = state.counted + bool(state.short)
    most = min(d, state.n) - 1
    if state.short and first >= most:
        assert state.thresholds is not None
        thresholds = np.append(state.thresholds[: state.counted], state.short)
        return replace(state, thresholds=thresholds, found=True)
    if first >= most:  # No directions are left for noise.
        return replace(state, counted=max(most, 1), found=True)
    room = max(1, ROOM // (DRAWS * _count_of_pairs(d))) if state.search is None else _RANKS
    ranks = range(first, first + min(room, most - first))
    C = _known_covariance(state)
    made = [weighted_basis(C, rank) for rank in ranks]
    weights, W = (np.column_stack([pair[side] for pair in made]) for side in (0, 1))
    state = replace(state, first=first, weights=weights, W=np.ascontiguousarray(W))
    if state.search is None:
        return state
    return _begin_search(state)


def _known_covariance(state: SignalState) -> CovarianceSource:
    """Return the known part of C: all of it, or Ritz vectors and their products."""
    if state.C is not None:
        return WholeCovariance(state.C)
    assert state.V is not None
    assert state.CV is not None
    assert state.diagonal is not None
    return CovarianceOnSpan(state.V, state.CV, state.diagonal)


def _sentence_on_count(variances: Array, thresholds: Array, k: int) -> str:
    """Return a text with the number of components that count, and the reason why the next component does not."""
    following = f"{np.append(variances, 0.0)[k]:.3g}"
    noise = f"{np.append(thresholds, np.inf)[k]:.3g}"
    if not k:
        return f"the first variance is {following}, and noise reaches {noise}"
    counted = f"{labels.count(k, 'component')} above noise"
    variance, threshold = variances[k - 1], thresholds[k - 1]
    last = f"component {k} has variance {variance:.3g} (noise: {threshold:.3g})"
    return f"{counted}: {last}, component {k + 1} has variance {following} (noise: {noise})"


# The following functions use products, because there are too many columns for tables.


def _number_of_tables(ranks: int) -> int:
    """Return the number of unflipped and flipped tables in a message about `ranks` ranks."""
    return 1 + ranks * DRAWS


def _block_width(d: int, ranks: int) -> int:
    """Return the largest number of columns in each table's block that message size and nodes' limits allow."""
    return min(max(d, WIDE), MOST // d) // _number_of_tables(ranks)


def _number_of_messages(d: int, width: int) -> int:
    """Return the number of messages after which a component above noise reliably emerges from random blocks.

    In a random block, the component has a size of sqrt(width / d). After m messages, it has grown by the
    Chebyshev polynomial of degree m - 1.
    """
    growth = max(_ENOUGH * np.sqrt(d / width), 1.0)
    steps = np.arccosh(growth) / np.arccosh(_POSITION)
    return 1 + max(1, int(np.ceil(steps)))


def _begin_search(state: SignalState) -> SignalState:
    """Return the state at the start of a search by products about the current ranks."""
    d, ranks = state.weights.shape
    away = np.empty((d, 0)) if state.V is None else state.V[:, : state.counted]
    seed = state.seed + state.messages + 1
    return replace(state, search=BatchedLanczos.begin(_number_of_tables(ranks), _block_width(d, ranks), away, seed))


def _noise_factors(state: SignalState) -> Array:
    """Return the factors that restore the noise of each table, (tables, d, 1). They are 1 for the unflipped rows."""
    backs = [restoring_factors(*pair) for pair in _bases_of_state(state)]
    ones = np.ones(len(state.weights))
    repeated = np.repeat(backs, DRAWS, axis=0)
    return np.stack([ones, *repeated])[:, :, None]


def _continue_search(state: SignalState, search: BatchedLanczos, total: Arrays) -> SignalState:
    """Return the state after an answer by products: the search continues, or its components are counted."""
    products = scale_up_to_all_rows(total, "products", state.n)
    back, d = _noise_factors(state), len(products)
    by_table = products.reshape(d, len(back), search.width).transpose(1, 0, 2)
    rounds = search.Q.shape[2] // search.width
    more = rounds < _number_of_messages(d, search.width)
    search = search.with_products(by_table * back, more=more)
    if more:
        return replace(state, search=search)
    squares, found = scale_up_to_all_rows(total, "squares", state.n), search.ritz_values()
    state = _with_search(replace(state, search=search), search, squares, found[0])
    largest = found[1:, 0].reshape(-1, DRAWS)

    def noise(j: int, weights: Array, W: Array) -> _NoiseThreshold:
        usual = float(squares[j] @ restoring_factors(weights, W) ** 2) / d
        return _NoiseThreshold.from_eigenvalues(largest[j], usual, W.shape[1], state.n)

    return _with_next_message(_count_components(state, noise))


def _with_search(state: SignalState, search: BatchedLanczos, squares: Array, other_values: Array) -> SignalState:
    """Return the state with what is new about C. `other_values` holds the eigenvalues without counted components."""
    if state.V is None or state.CV is None:
        values, V, CV, _ = linalg.rayleigh_ritz(search.Q[0], search.Y[0])
        # The last values are dropped, but their vectors are kept for the directions of the next ranks.
        return replace(state, values=values[:-_RANKS], V=V, CV=CV, diagonal=squares[0])
    block, image = search.Q[0], search.Y[0]
    values, V, CV = ritz_of_both(state.V, state.CV, block, image)
    joined = np.append(values[: state.counted], other_values)
    values = joined[: V.shape[1] - _RANKS]
    return replace(state, values=values, V=V, CV=CV)


def _products_of_tables(
    arrays: Arrays, bases: list[tuple[Array, Array]], data: LocalData, memory: Arrays
) -> tuple[Arrays, Arrays]:
    """Return a client's products of all tables with their blocks, and the memory with the key of the tables' flips.

    Raise ProtocolError if the columns of Z cannot be divided equally among the tables.
    """
    memory = _memory_with_key(arrays, memory)
    key, draws = memory[_SIGNS].tobytes(), int(arrays["draws"])
    tables = 1 + len(bases) * draws
    Z = arrays["Z"].astype(np.float64)
    if Z.shape[1] % tables:
        raise ProtocolError(
            f"The array Z of the server's message has {labels.count(Z.shape[1], 'column')}, but needs a multiple of "
            f"{tables}. {OTHER_SERVER}"
        )
    blocks = np.split(Z, tables, axis=1)
    products = [np.zeros(block.shape) for block in blocks]
    squares = np.zeros((len(bases), data.d))
    for table, F in _flipped_blocks(bases, draws, data, key=key):
        products[table] += F.T @ (F @ blocks[table])
        rank, draw = divmod(table - 1, draws)
        if table and not draw:  # Squares do not depend on the signs, so one draw is enough.
            squares[rank] += np.sum(F**2, axis=0)
    return {"products": np.hstack(products), "squares": squares, "n": np.array(data.n)}, memory


def _memory_with_key(arrays: Arrays, memory: Arrays) -> Arrays:
    """Return the memory with the key of the flips for the tables of this message.

    If the memory already has a key for the same tables, this key stays. Otherwise, the key of this message is
    used, so that tables with different weights or directions never share flips.
    """
    hasher = hashlib.blake2b(digest_size=32)
    for name in ("weights", "W", "first", "draws"):
        hasher.update(f"{arrays[name].shape}".encode() + arrays[name].tobytes())
    tables = np.frombuffer(hasher.digest(), dtype=np.uint64)
    if _SIGNS in memory and np.array_equal(memory.get(_TABLES, tables[:0]), tables):
        return memory
    return {**memory, _SIGNS: memory[KEY], _TABLES: tables}
