"""How far rows lie from what the components say, and how often, over all clients' rows.

Two distances of a row x in the frame, with scores t = Z'x along k components of variances v:

    T2  = sum_j t_j^2 / v_j       how far within the span of the components (Hotelling)
    SPE = |x - Z t|^2             how far from it, the squared prediction error, Q

Where a run was asked to monitor, every client counts its own rows by both in bins of one fixed
grid: a sixteenth of an octave wide (4.4 %), from 2^-20 to 2^20 times what they are on average, k
and the variance left out. The grid is part of this file and of no message. Counts add up to the
same whoever holds the rows, so that masks go over them. From the sums follows the share of all rows
below any bin's end: `quantile`. As a mean of 1 allows a share of 2^-20 of the rows at most to lie
beyond 2^20, no quantile up to 1 - 2^-20 is out of reach.

Federated evaluation: the mean squared error of rows rebuilt from their components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base.errors import ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, POSITIVE, ROWS, VALUES, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, end_if
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class EvaluateState:
    """The wanted components and, once known, the error per row."""

    Z: Array
    mse: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluate(Stage[EvaluateState]):
    """sum ||x - ZZ'x||^2 / n over the rows that the clients hold, in the frame's units.

    Z are the components, or orthonormal axes of their span.

    Cost: 4 n_i d k flops; k columns of d floats down, two numbers up.
    """

    name: ClassVar[str] = "evaluate"
    asks: ClassVar[Mapping[str, Ask]] = {"Z": BLOCK}

    def start(self, model: Model) -> EvaluateState:
        return EvaluateState(model.axes[0])

    def broadcast(self, state: EvaluateState) -> Arrays:
        return {"Z": state.Z}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"squares": Part(kind=Kind.SQUARES), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        squares = data.squared_error(arrays["Z"])
        return {"squares": np.array(squares), "n": np.array(data.n)}, memory

    def server(self, state: EvaluateState, total: Arrays, answered: frozenset[int]) -> EvaluateState:
        return replace(state, mse=float(total["squares"]) / float(total["n"]))

    def status(self, state: EvaluateState) -> Status | None:
        return end_if(state.mse is not None)

    def metrics(self, state: EvaluateState) -> dict[str, float]:
        return {} if state.mse is None else {"mse": state.mse}

    def finish(self, state: EvaluateState, model: Model) -> Model:
        return replace(model, mse=state.mse)


FINE: Final = 16  # bins of an octave
WIDTH: Final = 2.0 ** (1.0 / FINE)  # the end of a bin over its beginning
# of the first variance, or of the total one: what is less has come of rounding
ROUNDING: Final = 1e-12
_OCTAVES: Final = 20  # below and above the mean
_BELOW: Final = _OCTAVES * FINE
# the first is for what is below all others, the last has no end
BINS: Final = 2 * _BELOW + 2


def distances(rows: Array, Z: Array, variances: Array) -> tuple[Array, Array]:
    """T2 and SPE of framed rows (n x d), by components (d x k) of these variances."""
    X = np.asarray(rows, dtype=np.float64)
    scores = X @ Z
    rest = X - scores @ Z.T
    t2 = (scores**2 / variances).sum(axis=1)
    return np.asarray(t2), np.einsum("ij,ij->i", rest, rest)


def meaningful(variances: Array) -> int:
    """How many of the variances, largest first, are more than rounding: along the others T2 would divide by nothing."""
    return int(np.sum(variances > max(ROUNDING * variances[0], 0.0)))


def count(values: Array) -> Array:
    """How many of the values, which are 1 on average, lie in each bin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.floor(FINE * np.log2(values)) + _BELOW + 1
    numbers = np.nan_to_num(places, nan=0.0)
    places = np.clip(numbers, 0, BINS - 1).astype(np.int64)
    return np.bincount(places, minlength=BINS).astype(np.float64)


def quantile(counts: Array, level: float) -> float:
    """The end of the bin in which the values reach this share: less than a `WIDTH` above the value that does."""
    place = int(np.searchsorted(np.cumsum(counts), level * counts.sum()))
    if place < BINS - 1:
        return float(2.0 ** ((place - _BELOW) / FINE))
    return float("inf")


@dataclass(frozen=True)
class HistogramsState:
    """The components, their variances and the variance left out; the counts by T2 and SPE once they are known."""

    Z: Array
    variances: Array
    rest: float
    counts: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Histograms(Stage[HistogramsState]):
    """Counts of rows by T2 / k and by SPE over the variance left out, in fixed bins.

    Rows are held against the ends of bins, so the client half compares rows: nodes serve it by its
    name only.

    Cost: 4 n_i d k flops; k columns of d floats down, two histograms up; once.
    """

    name: ClassVar[str] = "monitor"
    fixed_set: ClassVar[bool] = True  # counts are of all clients, or of none
    asks: ClassVar[Mapping[str, Ask]] = {"Z": BLOCK, "variances": VALUES, "rest": POSITIVE}
    by_row: ClassVar[bool] = True

    def start(self, model: Model) -> HistogramsState:
        (Z, values), ddof = model.axes, max(model.n - 1, 1)
        variances = values / ddof
        k, total = meaningful(variances), model.trace / ddof
        rest = total - float(variances[:k].sum())
        return HistogramsState(Z[:, :k], variances[:k], rest if rest > ROUNDING * total else 0.0)

    def broadcast(self, state: HistogramsState) -> Arrays:
        return {"Z": state.Z, "variances": state.variances, "rest": np.array(state.rest)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"counts": Part((2, BINS), Kind.DISTANCES)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        _check(arrays, data.d)
        Z = arrays["Z"].astype(np.float64)
        rest = float(arrays["rest"])
        counts = np.zeros((2, BINS))
        # a message may have a variance of 0, and numpy's own warnings would tell of the rows
        with np.errstate(all="ignore"):
            for block in data.dense():
                t2, spe = distances(block, Z, arrays["variances"])
                counts += count(t2 / Z.shape[1]), count(spe / rest if rest > 0.0 else np.zeros_like(spe))
        return {"counts": counts}, memory

    def bounds(self, state: HistogramsState, model: Model) -> Mapping[str, Array | float]:
        return {"counts": MOST_ROWS}

    def inspect(self, state: HistogramsState, reply: Arrays) -> None:
        counts = reply["counts"]
        if (counts < 0).any() or (counts != np.rint(counts)).any() or np.ptp(counts.sum(axis=1)):
            raise ProtocolError(
                "The counts of an answer",
                must="whole numbers, of as many rows by T2 as by SPE",
                got="others",
                then="Check the client's data.",
            )

    def server(self, state: HistogramsState, total: Arrays, answered: frozenset[int]) -> HistogramsState:
        return replace(state, counts=total["counts"])

    def status(self, state: HistogramsState) -> Status | None:
        return end_if(state.counts is not None)

    def finish(self, state: HistogramsState, model: Model) -> Model:
        return replace(model, histograms=state.counts)


def _check(arrays: Arrays, d: int) -> None:
    """Refuse what numpy would lay over the rows: units of its own for every row would tell each by its place."""
    Z, variances, rest = (arrays[name] for name in ("Z", "variances", "rest"))
    if Z.ndim != 2 or len(Z) != d or variances.shape != Z.shape[1:] or rest.shape:
        got = f"shapes {Z.shape}, {variances.shape} and {rest.shape}"
        raise ProtocolError(
            "A message of monitor",
            must=f"components of {d} columns, a variance of each and the variance left out",
            got=got,
            then="Check the sender.",
        )
