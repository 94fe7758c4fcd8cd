"""How many components there are: those that lie above what the table shows with the signs of its entries flipped.

A table whose entries have their signs flipped at random, each by itself, has the same size of every
entry and nothing that columns have in common: its largest eigenvalue is what noise alone would
give, be it unequal by column or by row. A component counts while its eigenvalue is above the
largest that is to be expected of such tables: the mean over draws and three deviations of them,
which noise reaches in about one of a hundred. The first that is not above it ends the count
(parallel analysis: Horn 1965; by signs: Hong, Sheng, Dobriban, "Selecting the number of components
in PCA via random signflips", 2020).

What a strong component gives to the entries is flipped too, and would shadow weak ones. So those
that count are taken out before the next is looked for (deflation: Dobriban, Owen 2019). What is
taken out has noise of its own, which has to be given back. With noise of variance psi_c in column
c, as principal factors tell it of C (the diagonal of C less its k leading factors), rows are
weighed by w_c = sqrt(min psi / psi_c), which makes noise equal; of X diag(w) the k leading
directions W are taken out, and in the flipped tables' second moments column c is divided by w_c
sqrt(1 - |W_c|^2): of the noise in a column, |W_c|^2 went with the directions. The factor
n / (n - 1 - k) is for the rows: the rows have lost the mean and k directions, and flips spread what
was lost. For one long row this is the same share of its square, 1/n, which all other rows have had
to take up when the mean was taken out.

If few columns are left, a component is itself a large part of the entries that are flipped, so it
raises the threshold that it is held against. Therefore the first component that is not above its
threshold gets a second test: it still counts if its eigenvalue is above a threshold from tables
that the component itself was taken out of. The direction that was taken out is the largest one, so
noise whose edge is t in m directions has lost more than its share. The threshold is given back
(1 - 1/m) / (1 - t/m), with t in means of the eigenvalues, and a margin of a tenth.

In the second test, a single row must not hold most of the component. If a few rows are much longer
than the others, the largest direction of noise is along such a row, and lies far above tables
without it. How long a row can be follows from the flipped tables: the square of an entry (c, e)
beside the diagonal is, on average over the flips, the sum over rows of x_c^2 x_e^2. Divided by
(C_cc C_ee + 2 C_ce^2) / n and summed over all pairs of columns, this is 1 for rows of a normal law,
and 1 + n p^2 at least if one row has the share p of the trace. So the eigenvalue must also be three times
the largest square that a row can have. Of many columns, a component is a small part of the entries,
so there is no second test by products.

A component of which more than half lies in one column is not a component that columns share.

One message asks for the flipped tables of several ranks, as many as go into `ROOM` numbers: few
columns need two, one for C and rank 0, one for all others. The clients' flips are their own:
whoever knows them can solve for the rows.

Where the columns are too many for tables, above 316, each table is asked for by its products with a
block, in a few messages for one or two ranks, and clients keep their flips for as long. What few
products tell of the largest eigenvalues lies below them (`stages.lanczos`). So the table itself is
looked at in the same way, with as many columns in as many messages, beside the components that
count already: of noise alone all these tables are alike, and so is what is told of them, while
components above noise come out sooner than noise does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.bits import signs
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.algorithm import scaled_up
from flower_pca.core.kinds import BLOCK, ROWS, Ask, Kind, Part, index
from flower_pca.core.model import Model
from flower_pca.core.stage import KEY, Arrays, Stage, end_if
from flower_pca.names.levels import source_of
from flower_pca.rows.local import LocalData
from flower_pca.stages.factors import Known, Span, Whole, give_back, weighed_basis
from flower_pca.stages.lanczos import Lanczos, join

SIGNAL: Final = "signal"  # the number of components that asks for it
THRESHOLDS: Final = "noise_thresholds"  # The key in the model, for sums of squares.
DRAWS: Final = 20
DEVIATIONS: Final = 3.0
ROOM: Final = 2**16  # numbers of a message that may be of several ranks
MOST: Final = 2**20  # numbers of a message at all
WIDE: Final = 1000  # columns of a block that nodes take of any rows
_RANKS: Final = 2  # Ranks in each message by products. The first message has one.
_PASSING: Final = 1.4  # A component a fifth above noise lies here, if noise lies between -1 and 1.
_ENOUGH: Final = 0.34  # The share that the last product has to bring out of a random block.
_MOST_RANKS: Final = 1000
_MOST_DRAWS: Final = 1000
_ROUNDED: Final = 2.0**-50  # A smaller share of the largest eigenvalue, for each column, is rounding.
_MARGIN: Final = 1.1  # above the threshold of tables that a component itself was taken out of
_ALONE: Final = 0.5  # The share of a direction in one column.
_OF_ONE_ROW: Final = 3.0  # times what one row holds at most, so that no row is most of the component
_MOST_LOST: Final = 0.9  # The share of the noise that its largest direction has.
_ABOVE: Final = 1.0 + 1e-9  # times the threshold, as of columns that are orthogonal no flip changes anything
_SIGNS, _TABLES = "signs", "sign_tables"  # The keys in a client's memory of its signs, and of the tables they are for.

FLIPPED: Final = Kind(
    "flipped",
    "all of C at once, and the second moments of its rows with random signs, by themselves and less components",
    size=lambda a: np.sqrt(np.einsum("ij,ij->i", a, a)),
    bound=lambda reach: reach.squares,
    square=True,
)
FLIPPED_PRODUCT: Final = replace(
    Kind.PRODUCT,
    name="flipped product",
    tells="C Z, and the same of its rows with random signs and less components, for any blocks Z of the server's",
    rounded=False,
)
FLIPPED_SQUARES: Final = Kind(
    "flipped squares",
    "sums of squares of each column, less components of the server's",
    size=lambda a: a.sum(axis=1),
    bound=lambda reach: reach.squares,
    within_trace=True,
)


@dataclass(frozen=True)
class SignalState:
    """The next question, for ranks from `first` on, the thresholds so far, and C with its eigenpairs once it is known.

    `counted` is the number of components so far, and `found` says that it is final. `short` is the
    threshold that the next component has missed, if any. This component may still count, unless the
    `longest` row holds much of it. With more columns than tables can have, there is a `search` by
    products, and C is known by its `diagonal` and its products CV.
    """

    n: int
    sources: Array  # The sign of which row each column takes.
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
    search: Lanczos | None = None
    diagonal: Array | None = None
    CV: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Signal(Stage[SignalState]):
    """Compute second moments of the rows, and of `DRAWS` tables with flipped signs for each requested rank.

    Cost: n_i d^2 flops for each draw; d (d + 1) / 2 floats up for each; mostly one or two messages,
    of more columns one for each time that components come to light behind stronger ones. O(d^3)
    flops on the server for each draw.

    By products, above 316 columns: 4 n_i d p flops for each draw, p d floats each way, with all of
    them in at most `MOST` numbers; two or three messages, of more than some 1,700 columns one or
    two more, for each time.
    """

    name: ClassVar[str] = SIGNAL
    asks: ClassVar[Mapping[str, Ask]] = {
        "weights": BLOCK,
        "W": BLOCK,
        "first": index(_MOST_RANKS),
        "draws": index(_MOST_DRAWS, least=1),
        "Z": BLOCK,
    }
    by_row: ClassVar[bool] = True
    draws: ClassVar[bool] = True

    def start(self, model: Model) -> SignalState:
        d, none = model.d, np.empty((model.d, 0))
        sources, _ = _sources(model.feature_names, d)
        found = THRESHOLDS in model.left
        weights = np.ones((d, 1))
        state = SignalState(model.n, sources, weights, none, found=found, seed=model.seed)
        if (DRAWS + 1) * _pairs(d) <= MOST:
            return state
        if not _width(d, _RANKS):
            most = MOST // _tables(_RANKS)
            raise DataError(
                f"{option('n_components', 'signal')} is possible for at most {most} columns here, and there are {d}. "
                "Name a number of components, or a share of the variance.",
                setting="n_components",
            )
        return _searching(state)

    def broadcast(self, state: SignalState) -> Arrays:
        numbers = {"first": np.array(state.first), "draws": np.array(DRAWS)}
        message = {"weights": state.weights, "W": state.W, **numbers}
        if state.search is None:
            return message
        # what gives noise back is on both sides of a table: here, and on the products in `_search`
        blocks = state.search.block * _back_of(state)
        return {**message, "Z": np.hstack(list(blocks))}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        d, ranks = arrays["weights"].shape
        if "Z" in arrays:
            products = Part(arrays["Z"].shape, FLIPPED_PRODUCT, of="Z")
            return {"products": products, "squares": Part((ranks, d), FLIPPED_SQUARES), "n": ROWS}
        tables = ranks * int(arrays["draws"]) + int(arrays["first"] == 0)
        return {"tables": Part((tables, _pairs(d)), FLIPPED), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        bases = _bases(arrays, data.d)
        if "Z" in arrays:
            return _products(arrays, bases, data, memory)
        draws = int(arrays["draws"])
        known = int(arrays["first"] != 0)  # the rows as they are have been asked for before
        sums = np.zeros((1 - known + len(bases) * draws, data.d, data.d))
        for table, F in _flips(bases, draws, data, key=memory[KEY].tobytes()):
            if table >= known:
                sums[table - known] += F.T @ F
        tables = sums[:, *np.triu_indices(data.d)]
        return {"tables": tables, "n": np.array(data.n)}, memory

    def server(self, state: SignalState, total: Arrays, answered: frozenset[int]) -> SignalState:
        state = replace(state, messages=state.messages + 1)
        if state.search is not None:
            return _search(state, state.search, total)
        tables = scaled_up(total, "tables", state.n)
        if state.values is None:
            C = _symmetric(tables[0], len(state.weights))
            values, V = linalg.eigh_descending(C)
            state = replace(state, C=C, values=values, V=V)
            tables = tables[1:]

        def noise(j: int, weights: Array, W: Array) -> _Noise:
            own = tables[j * DRAWS : (j + 1) * DRAWS]
            return _Noise.of_tables(own, weights, W, state)

        return _asking(_count(state, noise))

    def status(self, state: SignalState) -> Status | None:
        return end_if(state.found)

    def finish(self, state: SignalState, model: Model) -> Model:
        if state.values is None:  # the number was found before the set of clients changed
            return model
        assert state.V is not None
        assert state.thresholds is not None
        k, ddof = state.counted, max(model.n - 1, 1)
        said = _sentence(state.values / ddof, state.thresholds / ddof, k)
        if not k:
            raise DataError(
                f"No component stands out from noise: {said}. Name a number of components to see them all the same."
            )
        wide = model.columns.shape[1]  # one, and those that the algorithm iterates beside the components
        V = np.ascontiguousarray(state.V[:, : k + wide - 1])
        Y = _covariance(state).product(V)
        values = state.values[: V.shape[1]]
        if state.CV is not None:  # The components that do not count were looked for beside the others.
            values = np.sum(V * Y, axis=0)
        left = {**model.left, THRESHOLDS: state.thresholds}
        messages = labels.count(state.messages, "message")
        decisions = {**model.decisions, "components": f"{said} ({messages})"}
        residuals = linalg.column_norms(Y - V * values)
        return replace(model, n_components=k, basis=V, product=Y, residuals=residuals, left=left, decisions=decisions)


def _sources(names: Sequence[str] | None, d: int) -> tuple[Array, int]:
    """Return the sign of a row that each column uses, and the number of signs.

    Columns made from one text column use the same sign. That a row has only one of them is not
    something that columns share.
    """
    if names is None:
        return np.arange(d), d
    words = [source_of(name) or name for name in names]
    place = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([place[word] for word in words]), len(place)


def _flips(
    bases: Sequence[tuple[Array, Array]], draws: int, data: LocalData, *, key: bytes
) -> Iterator[tuple[int, Array]]:
    """Yield blocks of rows for each table: unchanged for the first, and flipped for every draw of each rank."""
    sources, width = _sources(data.names, data.d)
    for number, block in enumerate(data.dense()):
        X = np.asarray(block, dtype=np.float64)
        yield 0, X
        for j, (weights, W) in enumerate(bases):
            E = X * weights
            E -= (E @ W) @ W.T
            for draw in range(j * draws, (j + 1) * draws):
                drawn = signs(key + f"{number} {draw}".encode(), (len(E), width))
                yield 1 + draw, E * (drawn if width == data.d else drawn[:, sources])


def _pairs(d: int) -> int:
    return d * (d + 1) // 2


def _symmetric(vector: Array, d: int) -> Array:
    """Return the symmetric matrix with this upper triangle."""
    C = np.zeros((d, d))
    C[np.triu_indices(d)] = vector
    return C + np.triu(C, 1).T


def _bases(arrays: Arrays, d: int) -> list[tuple[Array, Array]]:
    """Return the columns' weights and the directions to remove, for each rank in the message."""
    weights = arrays["weights"].astype(np.float64)
    W = arrays["W"].astype(np.float64)
    first = int(arrays["first"])
    ranks = range(first, first + weights.shape[1])
    if len(weights) != d or len(W) != d or W.shape[1] != sum(ranks):
        raise ProtocolError(
            f"A message of signal needs weights of {labels.count(d, 'column')}, and as many directions as its ranks "
            f"say. It has shapes {weights.shape} and {W.shape}. Check the sender."
        )
    ends = np.cumsum([0, *ranks])
    places = [slice(*ends[j : j + 2]) for j in range(len(ranks))]
    return [(weights[:, j], W[:, place]) for j, place in enumerate(places)]


def _bases_of(state: SignalState) -> list[tuple[Array, Array]]:
    """Return the same for the pending question."""
    message = {"weights": state.weights, "W": state.W, "first": np.array(state.first)}
    return _bases(message, len(state.weights))


def _count(state: SignalState, noise_of: Callable[[int, Array, Array], _Noise]) -> SignalState:
    """Count the components that lie above the flipped tables of the ranks in the message."""
    assert state.values is not None
    k, short, values = state.counted, state.short, state.values
    nothing = len(state.weights) * _ROUNDED * float(values[0])
    before = np.empty(0) if state.thresholds is None else state.thresholds
    for j, (weights, W) in enumerate(_bases_of(state)):
        rank = state.first + j
        if rank < k + bool(short):  # a stronger one has let this one count as well
            continue
        noise = noise_of(j, weights, W)
        if short:
            assert state.V is not None
            itself = np.column_stack([W[:, -1], state.V[:, k]])
            own = max(noise.without(rank, len(W)), _OF_ONE_ROW * state.longest, nothing)
            if _alone(itself, state.sources) or state.search is not None:
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
class _Noise:
    """The expected result of noise alone: the `threshold` of its largest eigenvalue.

    The `edge` is the mean of that one, in means of all eigenvalues. The `longest` row has a square
    of at most this, as far as flipped tables are known.
    """

    threshold: float
    edge: float
    longest: float = 0.0

    @classmethod
    def of_tables(cls, tables: Array, weights: Array, W: Array, state: SignalState) -> _Noise:
        """Compute the noise from flipped tables without these directions."""
        d, rank = W.shape
        assert state.C is not None
        back = give_back(weights, W)
        whole = [_symmetric(table, d) * np.outer(back, back) for table in tables]
        largest = np.array([linalg.eigh_leading(table, 1)[0][0] for table in whole])
        trace = float(np.mean([np.trace(table) for table in whole]))
        noise = cls.of(largest, trace / d, rank, state.n)
        without = np.eye(d) - W @ W.T
        C = without @ (state.C * np.outer(weights, weights)) @ without
        excess = max(_unequal(tables, C, state) - 1.0, 0.0)
        return replace(noise, longest=trace * float(np.sqrt(excess / state.n)))

    @classmethod
    def of(cls, largest: Array, usual: float, rank: int, n: int) -> _Noise:
        """Compute the noise from the largest eigenvalues of flipped tables, and the mean of all eigenvalues."""
        mean = float(np.mean(largest))
        level = mean + DEVIATIONS * float(np.std(largest, ddof=1))
        edge = mean / max(usual, np.finfo(np.float64).tiny)
        return cls(level * n / max(n - 1 - rank, 1), edge)

    def without(self, rank: int, d: int) -> float:
        """Return the threshold for the last of these directions, which has itself been removed."""
        there = d - rank + 1
        loss = min(self.edge / there, _MOST_LOST)
        above = _MARGIN * self.threshold * (1.0 - 1.0 / there)
        return float(above / (1.0 - loss))


def _unequal(tables: Array, C: Array, state: SignalState) -> float:
    """Measure how unequal the lengths of the rows are, from second moments C and flipped tables.

    The measure is about 1 for normally distributed rows.
    """
    upper = np.triu_indices(len(C))
    pairs = state.sources[upper[0]] != state.sources[upper[1]]
    products = np.multiply.outer(np.diagonal(C), np.diagonal(C)) + 2.0 * C**2
    expected = float(products[upper][pairs].sum())
    if expected <= 0.0:  # the columns have nothing to share
        return 1.0
    found = float(np.mean(tables[:, pairs] ** 2, axis=0).sum())
    return state.n * found / expected


def _alone(directions: Array, sources: Array) -> bool:
    """Return whether one of the directions lies mostly in one column, or in the columns of one source."""
    shares = (np.bincount(sources, v**2) for v in directions.T)
    return any(float(np.max(share)) > _ALONE for share in shares)


def _asking(state: SignalState) -> SignalState:
    """Ask about the ranks from the present count on."""
    if state.found:
        return state
    d = len(state.weights)
    first = state.counted + bool(state.short)
    most = min(d, state.n) - 1
    if state.short and first >= most:
        assert state.thresholds is not None
        thresholds = np.append(state.thresholds[: state.counted], state.short)
        return replace(state, thresholds=thresholds, found=True)
    if first >= most:  # there is no room for noise beside them
        return replace(state, counted=max(most, 1), found=True)
    room = _RANKS
    if state.search is None:
        room = max(1, ROOM // (DRAWS * _pairs(d)))
    ranks = range(first, first + min(room, most - first))
    C = _covariance(state)
    made = [weighed_basis(C, rank) for rank in ranks]
    weights, W = (np.column_stack([pair[side] for pair in made]) for side in (0, 1))
    state = replace(state, first=first, weights=weights, W=np.ascontiguousarray(W))
    if state.search is None:
        return state
    return _searching(state)


def _covariance(state: SignalState) -> Known:
    """Return what is known of C."""
    if state.C is not None:
        return Whole(state.C)
    assert state.V is not None
    assert state.CV is not None
    assert state.diagonal is not None
    return Span(state.V, state.CV, state.diagonal)


def _sentence(variances: Array, thresholds: Array, k: int) -> str:
    """Say how many components count, and why the next one does not."""
    following = f"{np.append(variances, 0.0)[k]:.3g}"
    noise = f"{np.append(thresholds, np.inf)[k]:.3g}"
    if not k:
        return f"a first variance of {following}, where tables with flipped signs reach {noise}"
    counted = f"{labels.count(k, 'component')} above what noise alone would give"
    variance, threshold = variances[k - 1], thresholds[k - 1]
    last = f"the last has a variance of {variance:.3g} against {threshold:.3g}"
    return f"{counted}: {last}, the next {following} against {noise}"


# Of more columns than go into tables: the same by products.


def _tables(ranks: int) -> int:
    """Return the number of tables, unchanged and flipped, of a message about this many ranks."""
    return 1 + ranks * DRAWS


def _width(d: int, ranks: int) -> int:
    """Return the columns of each table's block, as many as the message and the nodes' limits allow."""
    return min(max(d, WIDE), MOST // d) // _tables(ranks)


def _rounds(d: int, width: int) -> int:
    """Return after how many messages a component above noise has surely emerged from random blocks.

    After m of them it has grown by the Chebyshev polynomial of degree m - 1, from sqrt(width / d).
    """
    growth = max(_ENOUGH * np.sqrt(d / width), 1.0)
    steps = np.arccosh(growth) / np.arccosh(_PASSING)
    return 1 + max(1, int(np.ceil(steps)))


def _searching(state: SignalState) -> SignalState:
    """Begin the search with the first message about these ranks."""
    d, ranks = state.weights.shape
    away = np.empty((d, 0)) if state.V is None else state.V[:, : state.counted]
    seed = state.seed + state.messages + 1
    return replace(state, search=Lanczos.begin(_tables(ranks), _width(d, ranks), away, seed))


def _back_of(state: SignalState) -> Array:
    """Return what blocks and products of each table are multiplied by, (tables, d, 1): 1 for plain rows."""
    backs = [give_back(*pair) for pair in _bases_of(state)]
    ones = np.ones(len(state.weights))
    repeated = np.repeat(backs, DRAWS, axis=0)
    return np.stack([ones, *repeated])[:, :, None]


def _search(state: SignalState, search: Lanczos, total: Arrays) -> SignalState:
    """Continue the search after an answer by products, or finish it."""
    products = scaled_up(total, "products", state.n)
    back, d = _back_of(state), len(products)
    by_table = products.reshape(d, len(back), search.width).transpose(1, 0, 2)
    rounds = search.Q.shape[2] // search.width
    more = rounds < _rounds(d, search.width)
    search = search.take(by_table * back, more=more)
    if more:
        return replace(state, search=search)
    squares, found = scaled_up(total, "squares", state.n), search.values()
    state = _with_search(replace(state, search=search), search, squares, found[0])
    largest = found[1:, 0].reshape(-1, DRAWS)

    def noise(j: int, weights: Array, W: Array) -> _Noise:
        usual = float(squares[j] @ give_back(weights, W) ** 2) / d
        return _Noise.of(largest[j], usual, W.shape[1], state.n)

    return _asking(_count(state, noise))


def _with_search(state: SignalState, search: Lanczos, squares: Array, beside: Array) -> SignalState:
    """Add what a search shows of C. `beside` are eigenvalues other than those of counted components."""
    if state.V is None or state.CV is None:
        values, V, CV, _ = linalg.rayleigh_ritz(search.Q[0], search.Y[0])
        # So many are kept that the directions of the next ranks are there.
        return replace(state, values=values[:-_RANKS], V=V, CV=CV, diagonal=squares[0])
    block, image = search.Q[0], search.Y[0]
    values, V, CV = join(state.V, state.CV, block, image)
    joined = np.append(values[: state.counted], beside)
    values = joined[: V.shape[1] - _RANKS]
    return replace(state, values=values, V=V, CV=CV)


def _products(
    arrays: Arrays, bases: list[tuple[Array, Array]], data: LocalData, memory: Arrays
) -> tuple[Arrays, Arrays]:
    """Return a client's products of all tables with their blocks, with the flips kept for these tables."""
    memory = _with_signs(arrays, memory)
    key, draws = memory[_SIGNS].tobytes(), int(arrays["draws"])
    tables = 1 + len(bases) * draws
    Z = arrays["Z"].astype(np.float64)
    if Z.shape[1] % tables:
        raise ProtocolError(
            f"The block of a message of signal has {labels.count(Z.shape[1], 'column')}, which {tables} tables do "
            "not share equally. Check the sender."
        )
    blocks = np.split(Z, tables, axis=1)
    products = [np.zeros(block.shape) for block in blocks]
    squares = np.zeros((len(bases), data.d))
    for table, F in _flips(bases, draws, data, key=key):
        products[table] += F.T @ (F @ blocks[table])
        rank, draw = divmod(table - 1, draws)
        if table and not draw:  # whatever the signs
            squares[rank] += np.sum(F**2, axis=0)
    return {"products": np.hstack(products), "squares": squares, "n": np.array(data.n)}, memory


def _with_signs(arrays: Arrays, memory: Arrays) -> Arrays:
    """Add the key of the flips for these tables to the memory: the kept one, or else that of the message.

    Tables with other weights and directions get other flips, so that no two of them share flips.
    """
    hasher = hashlib.blake2b(digest_size=32)
    for name in ("weights", "W", "first", "draws"):
        hasher.update(f"{arrays[name].shape}".encode() + arrays[name].tobytes())
    tables = np.frombuffer(hasher.digest(), dtype=np.uint64)
    if _SIGNS in memory and np.array_equal(memory.get(_TABLES, tables[:0]), tables):
        return memory
    return {**memory, _SIGNS: memory[KEY], _TABLES: tables}
