"""How many components there are: those that lie above what the table shows with the signs of its entries flipped.

A table whose entries have their signs flipped at random, each by itself, has the same size of every entry and nothing
that columns have in common: its largest eigenvalue is what noise alone would give, be it unequal by column or by row.
A component counts while its eigenvalue is above the largest that is to be expected of such tables: the mean over draws
and three deviations of them, which noise reaches in about one of a hundred. The first that is not above it ends the
count (parallel analysis: Horn 1965; by signs: Hong, Sheng, Dobriban, "Selecting the number of components in PCA via
random signflips", 2020).

What a strong component gives to the entries is flipped too, and would shadow weak ones. So those that count are taken
out before the next is looked for (deflation: Dobriban, Owen 2019). What is taken out has noise of its own, which has to
be given back. With noise of variance psi_c in column c, as principal factors tell it of C (the diagonal of C less its k
leading factors), rows are weighed by w_c = sqrt(min psi / psi_c), which makes noise equal; of X diag(w) the k leading
directions W are taken out, and in the flipped tables' second moments column c is divided by w_c sqrt(1 - |W_c|^2): of
the noise in a column, |W_c|^2 went with the directions. The factor n / (n - k) is for the rows.

A component in few columns is itself a large part of what is flipped, and would shadow itself. So the first that is not
above counts all the same, if it is above what is to be expected of tables that it has been taken out of, too. As the
direction that is taken out is the largest, noise that has had the edge t in m directions has lost more than its share:
the threshold is given back (1 - 1/m) / (1 - t/m), with t in means of its eigenvalues, and a margin. One that lies by
more than half in one column is none that columns share.

One message asks for the flipped tables of several ranks, as many as go into `ROOM` numbers: few columns need two, one
for C and rank 0, one for all others. The clients' flips are their own: whoever knows them can solve for the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.bits import signs
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.algorithm import scaled_up
from flower_pca.core.kinds import BLOCK, ROWS, Ask, Kind, Part, index
from flower_pca.core.model import Model
from flower_pca.core.stage import KEY, Arrays, Stage
from flower_pca.names.coding import source_of
from flower_pca.rows.local import LocalData

SIGNAL: Final = "signal"  # the number of components that asks for it
THRESHOLDS: Final = "noise_thresholds"  # in the model, as sums of squares
DRAWS: Final = 20
DEVIATIONS: Final = 3.0
ROOM: Final = 2**16  # numbers of a message that may be of several ranks
MOST: Final = 2**20  # numbers of a message at all, from which follows how many columns there may be
_MOST_RANKS: Final = 1000
_MOST_DRAWS: Final = 1000
_LEAST: Final = 0.02  # of what is left of a column's variance beside the leading directions, that is noise
_ROUNDED: Final = 2.0**-50  # for each column, of the largest eigenvalue: what is smaller is rounding
_TINY: Final = 1e-12  # of a column's variance, where nothing is left
_SETTLED: Final = 1e-3  # of it, a step that is none
_STEPS: Final = 60
_MARGIN: Final = 1.1  # above the threshold of tables that a component itself was taken out of
_ALONE: Final = 0.5  # of a direction, in one column
_MOST_LOST: Final = 0.9  # of noise, that its largest direction has
_ABOVE: Final = 1.0 + 1e-9  # times the threshold, as of columns that are orthogonal no flip changes anything

FLIPPED: Final = Kind(
    "flipped",
    "all of C at once, and the second moments of its rows with random signs, by themselves and less components",
    size=lambda a: np.sqrt(np.einsum("ij,ij->i", a, a)),
    bound=lambda reach: reach.squares,
    square=True,
)


@dataclass(frozen=True)
class SignalState:
    """What is asked next, for ranks from `first` on; the thresholds so far; C with its eigenpairs, once it is known.

    `counted` components count so far; `found` once that is all of them. The next is `short` of this threshold, if it is
    any, and may count all the same.
    """

    n: int
    sources: Array  # by which sign of a row each column goes
    weights: Array
    W: Array
    first: int = 0
    counted: int = 0
    found: bool = False
    short: float = 0.0
    messages: int = 0
    thresholds: Array | None = None
    C: Array | None = None
    values: Array | None = None
    V: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Signal(Stage[SignalState]):
    """Second moments of the rows, and of `DRAWS` tables with flipped signs for each rank that is looked at.

    Cost: n_i d^2 flops for each draw; d (d + 1) / 2 floats up for each; mostly one or two messages, of more columns one
    for each time that components come to light behind stronger ones. O(d^3) flops on the server for each draw.
    """

    name: ClassVar[str] = SIGNAL
    asks: ClassVar[Mapping[str, Ask]] = {
        "weights": BLOCK,
        "W": BLOCK,
        "first": index(_MOST_RANKS),
        "draws": index(_MOST_DRAWS, least=1),
    }
    by_row: ClassVar[bool] = True
    draws: ClassVar[bool] = True

    def start(self, model: Model) -> SignalState:
        d, none = model.d, np.empty((model.d, 0))
        if (DRAWS + 1) * _pairs(d) > MOST:
            most = int(np.sqrt(2.0 * MOST / (DRAWS + 1)))
            remedy = "Name a number of components, or a share of the variance."
            raise DataError('The columns for n_components="signal"', must=f"at most {most}", got=d, then=remedy)
        sources, _ = _sources(model.feature_names, d)
        return SignalState(model.n, sources, np.ones((d, 1)), none, found=THRESHOLDS in model.left)

    def broadcast(self, state: SignalState) -> Arrays:
        numbers = {"first": np.array(state.first), "draws": np.array(DRAWS)}
        return {"weights": state.weights, "W": state.W, **numbers}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        d, ranks = arrays["weights"].shape
        tables = ranks * int(arrays["draws"]) + int(arrays["first"] == 0)
        return {"tables": Part((tables, _pairs(d)), FLIPPED), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        bases = _bases(arrays, data.d)
        key, draws, whole = memory[KEY].tobytes(), int(arrays["draws"]), int(arrays["first"] == 0)
        sums = np.zeros((whole + len(bases) * draws, data.d, data.d))
        sources, width = _sources(data.names, data.d)
        for number, block in enumerate(data.dense()):
            X = np.asarray(block, dtype=np.float64)
            if whole:
                sums[0] += X.T @ X
            for j, (weights, W) in enumerate(bases):
                E = X * weights
                E -= (E @ W) @ W.T
                for draw in range(j * draws, (j + 1) * draws):
                    F = E * signs(key + f"{number} {draw}".encode(), (len(E), width))[:, sources]
                    sums[whole + draw] += F.T @ F
        return {"tables": sums[:, *np.triu_indices(data.d)], "n": np.array(data.n)}, memory

    def server(self, state: SignalState, total: Arrays, answered: frozenset[int]) -> SignalState:
        tables = scaled_up(total, "tables", state.n)
        state = replace(state, messages=state.messages + 1)
        if state.values is None:
            C = _unpacked(tables[0], len(state.weights))
            values, V = linalg.eigh_descending(C)
            state, tables = replace(state, C=C, values=values, V=V), tables[1:]
        return _asking(_counted(state, tables))

    def status(self, state: SignalState) -> Status | None:
        if state.found:
            return Status.done()
        return None

    def finish(self, state: SignalState, model: Model) -> Model:
        if state.values is None:  # the number was found before the set of clients changed
            return model
        assert state.C is not None
        assert state.V is not None
        assert state.thresholds is not None
        k, ddof = state.counted, max(model.n - 1, 1)
        said = _said(state.values / ddof, state.thresholds / ddof, k)
        if not k:
            remedy = "Name a number of components to see them all the same."
            raise DataError("The components", must="above what noise alone would give", got=said, then=remedy)
        wide = model.columns.shape[1]  # one, and those that the algorithm iterates beside the components
        V = np.ascontiguousarray(state.V[:, : k + wide - 1])
        Y = state.C @ V
        return replace(
            model,
            n_components=k,
            basis=V,
            product=Y,
            residuals=linalg.column_norms(Y - V * state.values[: V.shape[1]]),
            left={**model.left, THRESHOLDS: state.thresholds},
            choices={**model.choices, "components": f"{said} ({labels.count(state.messages, 'message')})"},
        )


def _sources(names: Sequence[str] | None, d: int) -> tuple[Array, int]:
    """By which sign of a row each column goes, and how many signs there are.

    Columns made of one of words go by one: that no two of them are in a row is nothing that columns have in common.
    """
    if names is None:
        return np.arange(d), d
    words = [source_of(name) or name for name in names]
    place = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([place[word] for word in words]), len(place)


def _pairs(d: int) -> int:
    return d * (d + 1) // 2


def _unpacked(vector: Array, d: int) -> Array:
    """The symmetric matrix with this upper triangle."""
    C = np.zeros((d, d))
    C[np.triu_indices(d)] = vector
    return C + np.triu(C, 1).T


def _bases(arrays: Arrays, d: int) -> list[tuple[Array, Array]]:
    """Of each rank that the message asks about, the weights of the columns, and the directions to take out."""
    weights, W, first = arrays["weights"].astype(np.float64), arrays["W"].astype(np.float64), int(arrays["first"])
    ranks = range(first, first + weights.shape[1])
    if len(weights) != d or len(W) != d or W.shape[1] != sum(ranks):
        rule = f"weights of {d} columns, and as many directions as the ranks say"
        got = f"shapes {weights.shape} and {W.shape}"
        raise ProtocolError("A message of signal", must=rule, got=got, then="Check the sender.")
    ends = np.cumsum([0, *ranks])
    return [(weights[:, j], W[:, ends[j] : ends[j + 1]]) for j in range(len(ranks))]


def _counted(state: SignalState, tables: Array) -> SignalState:
    """With the components that lie above the flipped tables of the ranks that were asked about."""
    assert state.values is not None
    d, first, values = len(state.weights), state.first, state.values
    k, short, nothing = state.counted, state.short, d * _ROUNDED * float(values[0])
    bases = _bases({"weights": state.weights, "W": state.W, "first": np.array(first)}, d)
    if state.thresholds is None:
        before = np.empty(0)
    else:
        before = state.thresholds
    for j, (weights, W) in enumerate(bases):
        rank = first + j
        if rank < k + bool(short):  # a stronger one has let this one count as well
            continue
        noise = _Noise.of(tables[j * DRAWS : (j + 1) * DRAWS], weights, W, state.n)
        if short:
            assert state.V is not None
            itself = np.column_stack([W[:, -1], state.V[:, k]])
            own = max(noise.without(rank, len(W)), nothing)
            if _alone(itself, state.sources):
                own = np.inf
            if values[k] <= own:
                return replace(state, counted=k, thresholds=np.append(before[:k], short), found=True)
            k, short, before = rank, 0.0, np.append(before[:k], own)
        more = max(k, int(np.sum(values > max(_ABOVE * noise.threshold, nothing))))
        before = np.append(before, np.full(more - k, noise.threshold))
        if more == k:
            short = max(noise.threshold, nothing)
        k = more
    return replace(state, counted=k, short=short, thresholds=before)


@dataclass(frozen=True)
class _Noise:
    """What is to be expected of noise alone: the `threshold` of its largest eigenvalue.

    The `edge` is the mean of that one, in means of all eigenvalues.
    """

    threshold: float
    edge: float

    @classmethod
    def of(cls, tables: Array, weights: Array, W: Array, n: int) -> _Noise:
        """From flipped tables without these directions."""
        d, rank = W.shape
        kept = np.maximum(1.0 - np.sum(W**2, axis=1), 1.0 / d)
        back = 1.0 / (weights * np.sqrt(kept))
        whole = [_unpacked(table, d) * np.outer(back, back) for table in tables]
        largest = [linalg.eigh_leading(table, 1)[0][0] for table in whole]
        level = float(np.mean(largest)) + DEVIATIONS * float(np.std(largest, ddof=1))
        usual = float(np.mean([np.trace(table) for table in whole])) / d
        return cls(level * n / max(n - rank, 1), float(np.mean(largest)) / max(usual, np.finfo(np.float64).tiny))

    def without(self, rank: int, d: int) -> float:
        """The threshold for the last of so many directions, which has been taken out itself."""
        there = d - rank + 1
        lost = min(self.edge / there, _MOST_LOST)
        return float(_MARGIN * self.threshold * (1.0 - 1.0 / there) / (1.0 - lost))


def _alone(directions: Array, sources: Array) -> bool:
    """Whether one of the directions lies mostly in one column, or in those of one source."""
    return any(float(np.max(np.bincount(sources, v**2))) > _ALONE for v in directions.T)


def _asking(state: SignalState) -> SignalState:
    """With what is asked about the ranks from the one on that is counted so far."""
    assert state.C is not None
    if state.found:
        return state
    d, first = len(state.C), state.counted + bool(state.short)
    most = min(d, state.n) - 1
    if state.short and first >= most:
        assert state.thresholds is not None
        return replace(state, thresholds=np.append(state.thresholds[: state.counted], state.short), found=True)
    if first >= most:  # there is no room for noise beside them
        return replace(state, counted=max(most, 1), found=True)
    ranks = max(1, min(ROOM // (DRAWS * _pairs(d)), most - first))
    made = [_basis(state.C, rank) for rank in range(first, first + ranks)]
    weights, W = (np.column_stack([pair[side] for pair in made]) for side in (0, 1))
    return replace(state, first=first, weights=weights, W=np.ascontiguousarray(W))


def _basis(C: Array, rank: int) -> tuple[Array, Array]:
    """Weights that make the noise beside so many factors equal, and the leading directions of the weighed rows."""
    noise = _noise(C, rank)
    least = float(noise[noise > 0.0].min())
    weights = np.where(noise > 0.0, np.sqrt(least / np.where(noise > 0.0, noise, least)), 1.0)
    _, W = linalg.eigh_leading(C * np.outer(weights, weights), rank)
    return weights, W[:, :rank]


def _noise(C: Array, rank: int) -> Array:
    """What of the diagonal of C the leading factors do not explain (principal factors, iterated)."""
    all_of_it = np.diagonal(C)
    values, V = linalg.eigh_leading(C, rank)
    beside = np.maximum(1.0 - np.sum(V[:, :rank] ** 2, axis=1), 1.0 / len(C))
    left = (all_of_it - V[:, :rank] ** 2 @ values[:rank]) / beside
    least = np.maximum(_LEAST * left, _TINY * all_of_it)
    noise = np.clip(left, least, all_of_it)
    scale = np.where(noise > 0.0, noise, 1.0)
    for _ in range(_STEPS):
        values, V = linalg.eigh_leading(C - np.diag(noise), rank)
        explained = V[:, :rank] ** 2 @ np.maximum(values[:rank], 0.0)
        before, noise = noise, np.clip(all_of_it - explained, least, all_of_it)
        if float(np.max(np.abs(noise - before) / scale)) < _SETTLED:
            break
    return np.asarray(noise)


def _said(variances: Array, thresholds: Array, k: int) -> str:
    """What counts, and what the first that does not is short of."""
    following = f"{np.append(variances, 0.0)[k]:.3g}"
    noise = f"{np.append(thresholds, np.inf)[k]:.3g}"
    if not k:
        return f"a first variance of {following}, where tables with flipped signs reach {noise}"
    counted = f"{labels.count(k, 'component')} above what noise alone would give"
    last = f"the last has a variance of {variances[k - 1]:.3g} against {thresholds[k - 1]:.3g}"
    return f"{counted}: {last}, the next {following} against {noise}"
