"""What the robust algorithms share: rows = low-rank part + sparse part, the size of an entry, and how a run ends.

`Robust` holds parameters and the verdict on a run; `LowRank` is its closing message, after which every client keeps its
low-rank and sparse part. The functions below are the pieces that both algorithms put together: the first block, the
message that counts entries by size, from which the size of an ordinary one follows, and the walk over blocks of rows
with what is remembered of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeVar

import numpy as np

from flower_pca.algorithms.robust import hidden, huber, median
from flower_pca.algorithms.robust.determined import undetermined
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.algorithms.robust.spectra import moments
from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Iterating, Iterative
from flower_pca.core.model import Model
from flower_pca.core.parts import ROWS, Kind, Part
from flower_pca.core.stage import MARGIN, MOST_ROWS, Arrays, Stage
from flower_pca.rows.local import LocalData

S = TypeVar("S", bound=Iterating)

NORMAL: Final = 1.4826  # a normal entry's deviation over the median of its absolute value
_STREAM: Final = 2**62
_FAR: Final = 10.0  # thresholds from the low-rank part beyond which an entry counts as an outlier
_NOTHING: Final = 1e-6  # of the squares of ordinary entries, below which a low-rank part is none


@dataclass(frozen=True)
class LowRankState:
    """The basis U with the threshold, ridge and cut it was found for, and the size of an entry; the sums of the end.

    `tag` says which V at the clients belongs to U; `told` is what the result says beside.
    """

    U: Array
    lam: float
    rho: float
    sigma: float
    cut: float = np.inf
    tag: int = -1
    total: Arrays | None = None
    told: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LowRank(Stage[LowRankState]):
    """The closing message of a robust run: every client solves V_i for the last U, and keeps its L_i = V_i U' and S_i.

    It sends V_i'V_i, from which the server has L'L = U (sum V_i'V_i) U', and how many entries of each column lie far
    from L_i.

    Cost: some 8 n_i d p flops, a step of the regression; d x p numbers down, p^2 + d up; once.
    """

    name: ClassVar[str] = "low_rank"
    by_row: ClassVar[bool] = True
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> LowRankState:
        Z = model.columns
        U = Z @ (Z.T @ model.left["U"])  # U itself, but for the last rounding, unless the frame has changed since
        left = dict(model.left)
        lam, rho, sigma = (float(left.pop(name)) for name in ("lam", "rho", "sigma"))
        cut, tag = float(left.pop("cut", np.inf)), int(left.pop("tag", -1))
        del left["U"]
        return LowRankState(U, lam, rho, sigma, cut, tag, told=left)

    def broadcast(self, state: LowRankState) -> Arrays:
        names = ("lam", "rho", "sigma", *(("cut", "tag") if np.isfinite(state.cut) else ()))
        return {"U": state.U, **{name: np.array(getattr(state, name)) for name in names}}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        p = arrays["U"].shape[1]
        return {"n": ROWS, "G": Part((p, p), Kind.SCORES), "far": Part((len(arrays["U"]),), Kind.COUNT)}

    def bounds(self, state: LowRankState, model: Model) -> Mapping[str, Array | float]:
        return {"n": MOST_ROWS, "G": 0.0, "far": 0.0}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        U, lam, rho, sigma = arrays["U"], *(float(arrays[name]) for name in ("lam", "rho", "sigma"))
        cut, parts, start = float(arrays.get("cut", np.inf)), [], 0
        regression, beyond = Regression(U, lam, rho, cut), lam * min(cut, _FAR)
        far = np.zeros(len(U), dtype=np.int64)
        unseen = hidden.unseen(data, seed=0, share=0.0)
        late = float(memory.get("lam", lam)) > huber.LATE * lam
        before = None if late or int(memory.get("tag", -1)) != int(arrays.get("tag", -1)) else memory.get("V")
        for X, V in rows_with(before, data, U.shape[1]):
            gaps = unseen.of_rows(start, start + len(X))[0]
            if V is None:  # a node that has been started anew has none to start from
                V = huber.recover(X, U, start=sigma, lam=lam, rho=rho, cut=cut, out=gaps)
            else:
                V = regression.settle(X, V, gaps)
            parts.append(V)
            off = np.abs(X - V @ U.T) > beyond
            off.reshape(-1)[gaps] = False
            far += np.sum(off, axis=0)
            start += len(X)
        V = np.concatenate(parts)
        kept = {"V": V, "U": U, "lam": np.array(lam)}
        kept |= {"cut": arrays["cut"]} if "cut" in arrays else {}
        return {"n": np.array(data.n), "G": V.T @ V, "far": far}, kept

    @staticmethod
    def own(memory: Arrays, data: LocalData) -> Arrays:
        if "U" not in memory:  # a client that was gone before the end
            return {}
        V, U, lam, cut = memory["V"], memory["U"], float(memory["lam"]), float(memory.get("cut", np.inf))
        mean, scale = data.frame.mean, data.frame.scale
        L, gaps = V @ U.T, hidden.unseen(data, seed=0, share=0.0).gaps
        R = np.concatenate(list(data.dense())) - L
        R.reshape(-1)[gaps] = 0.0  # there is nothing to be told from the low-rank part
        found = {} if np.isinf(cut) else {"undetermined": undetermined(R, U, lam * cut, gaps)}
        sparse = huber.sparse(R, lam, cut)
        L, sparse = (L, sparse) if scale is None else (L * scale, sparse * scale)
        return {"V": V, "L": L if mean is None else L + mean, "S": sparse, **found}

    def server(self, state: LowRankState, total: Arrays, answered: frozenset[int]) -> LowRankState:
        return replace(state, total=total)

    def status(self, state: LowRankState) -> Status | None:
        return None if state.total is None else Status.done()

    def finish(self, state: LowRankState, model: Model) -> Model:
        assert state.total is not None
        total, n = state.total, int(state.total["n"])
        values, Z, Y, residuals = linalg.rayleigh_ritz(*moments(state.U, total["G"]))
        values = np.maximum(values, 0.0)
        told = {"lam": state.lam, "sigma": state.sigma, **state.told, "outliers": total["far"].sum() / (n * model.d)}
        told["far"] = total["far"] / n
        told |= {"cut": state.cut} if np.isfinite(state.cut) else {}
        return replace(
            model,
            n=n,
            basis=Z,
            product=Y,
            values=values,
            residuals=residuals,
            trace=float(values.sum()),
            next_value=float(values[model.k]) if model.k < len(values) else None,
            left={name: np.array(value) for name, value in told.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Robust(Iterative[S]):
    """A low-rank part in a sea of far entries. Uncentred unless asked for: far entries would move the mean."""

    quantity: ClassVar[str] = "change of the basis in a round relative to its norm"
    centers: ClassVar[bool] = False
    caches: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    inner_steps: int = 3
    sigma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer(f"inner_steps of {self.name}", self.inner_steps, least=1)
        if self.sigma is not None:
            least = float(np.finfo(np.float64).tiny)
            checks.number(f"sigma of {self.name}", self.sigma, least=least, remedy="Give the size of an entry.")

    def width(self, n_components: int | float) -> int:
        if not isinstance(n_components, int):
            rule, remedy = "a whole number, the rank of the low-rank part", "Ask for a rank."
            raise ConfigError(f"n_components of {self.name}", must=rule, got=n_components, then=remedy)
        return super().width(n_components)

    def verify(self, model: Model) -> Status | None:
        sigma = float(model.left["sigma"])
        if model.trace <= _NOTHING * sigma**2 * model.n * model.d and sigma > 0.0:
            words = "the low-rank part has collapsed to zero: the ridge rho is above the spectral norm of the rows"
            return Status(Outcome.STALLED, f"{words} clipped at the threshold. Lower the ridge.")
        return model.status


def start_block(model: Model) -> Array:
    """N(0, 1) entries, of another stream than the opening's block; after a restart what is known, as long."""
    d, p = model.columns.shape
    return model.columns * np.sqrt(d) if model.restarts else np.array(linalg.random_block(d, p, model.seed + _STREAM))


def sized(U: Array, sigma: float) -> Array:
    """U at first, in proportion to the root of the entries' size, as V will be: then no unit is better than another.

    sigma is near sqrt(p) for factors of N(0, 1) entries, which keep their U so.
    """
    return np.asarray(U * np.sqrt(sigma / np.sqrt(U.shape[1])))


def root_mean_square(model: Model) -> float:
    """The size of an entry, if far ones count in full."""
    return float(np.sqrt(model.trace / (model.n * model.d)))


def asked_counts(rms: float) -> Arrays:
    """The message that asks clients to count their entries by size."""
    return {"top": np.array(median.top(rms))}


def counts_parts() -> Mapping[str, Part]:
    """What it is answered by."""
    return {"counts": Part((median.BINS,), Kind.COUNT)}


def counts_bounds(model: Model) -> Mapping[str, Array | float]:
    """How large the counts can be, of a client that has come later too."""
    return {"counts": MARGIN * model.n * model.d}


def counts_reply(arrays: Arrays, data: LocalData) -> Arrays:
    """A client's answer."""
    return {"counts": median.counted(data, int(arrays["top"]))}


def spread(counts: Array, rms: float) -> float:
    """The size of an ordinary entry: 1.4826 times the median of |x| over all entries that were counted."""
    sigma = NORMAL * median.median(counts, median.top(rms))
    if sigma == 0.0 < rms:
        got = "0, or too small beside the root mean square to be told from it, as most entries are"
        raise DataError(
            "The median of |x|", must="above 0", got=got, then="Give sigma, the size of an entry of the low-rank part."
        )
    return sigma


def rows_with(V: Array | None, data: LocalData, p: int) -> Iterator[tuple[Array, Array | None]]:
    """The blocks of rows, each with its part of V; with None where there is no V of the right shape."""
    known, start = V is not None and V.shape == (data.n, p), 0
    for X in data.dense():
        yield X, V[start : start + len(X)] if known and V is not None else None
        start += len(X)
