"""The closing message of a robust run: every client keeps its low-rank and sparse part, and counts what it took out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.robust import hidden, huber
from flower_pca.algorithms.robust.base import rows_with
from flower_pca.algorithms.robust.determined import undetermined
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.algorithms.robust.spectra import moments
from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.asks import BLOCK, POSITIVE, Ask, index
from flower_pca.core.kinds import ROWS, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Merge, Stage, add
from flower_pca.rows.local import LocalData

FAR: Final = 10.0  # thresholds from the low-rank part beyond which an entry counts as an outlier
_KEYS, _CLIENTS = "keys", "clients"  # what is known of single clients, beside the sums


@dataclass(frozen=True)
class LowRankState:
    """The basis U with the threshold, ridge and cut it was found for, and the size of an entry; the sums of the end.

    `tag` says which V at the clients belongs to U; `told` is what the result says beside. `summed`: whether the server
    sees sums of answers only.
    """

    U: Array
    lam: float
    rho: float
    sigma: float
    cut: float = np.inf
    tag: int = -1
    total: Arrays | None = None
    summed: bool = False
    told: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LowRank(Stage[LowRankState]):
    """The closing message of a robust run: every client solves V_i for the last U, and keeps its L_i = V_i U' and S_i.

    It sends V_i'V_i, from which the server has L'L = U (sum V_i'V_i) U', and how many entries of each column were taken
    out, which lie beyond the threshold from L_i, and how many lie far from it. Where the server sees single answers it
    keeps these two of each client as well.

    Cost: some 8 n_i d p flops, a step of the regression; d x p numbers down, p^2 + 2 d up; once.
    """

    name: ClassVar[str] = "low_rank"
    asks: ClassVar[Mapping[str, Ask]] = {
        "U": BLOCK,
        **dict.fromkeys(("lam", "rho", "sigma", "cut"), POSITIVE),
        "tag": index(2**53, least=-1),
    }
    by_row: ClassVar[bool] = True
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> LowRankState:
        Z = model.columns
        U = Z @ (Z.T @ model.left["U"])  # U itself, but for the last rounding, unless the frame has changed since
        left = dict(model.left)
        lam, rho, sigma = (float(left.pop(name)) for name in ("lam", "rho", "sigma"))
        cut, tag = float(left.pop("cut", np.inf)), int(left.pop("tag", -1))
        del left["U"]
        return LowRankState(U, lam, rho, sigma, cut, tag, summed=model.summed, told=left)

    def broadcast(self, state: LowRankState) -> Arrays:
        names = ("lam", "rho", "sigma", *(("cut", "tag") if np.isfinite(state.cut) else ()))
        return {"U": state.U, **{name: np.array(getattr(state, name)) for name in names}}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        wide, p = arrays["U"].shape
        columns = Part((wide,), Kind.COUNT)
        return {"n": ROWS, "G": Part((p, p), Kind.SCORES), "far": columns, "taken": columns}

    def bounds(self, state: LowRankState, model: Model) -> Mapping[str, Array | float]:
        return {"n": MOST_ROWS, "G": 0.0, "far": 0.0, "taken": 0.0}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        U, lam, rho, sigma = arrays["U"], *(float(arrays[name]) for name in ("lam", "rho", "sigma"))
        cut, parts, start = float(arrays.get("cut", np.inf)), [], 0
        regression, beyond = Regression(U, lam, rho, cut), lam * min(cut, FAR)
        far, taken = np.zeros((2, len(U)), dtype=np.int64)
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
            off = np.abs(X - V @ U.T)
            off.reshape(-1)[gaps] = 0.0
            far += np.sum(off > beyond, axis=0)
            taken += np.sum(off > lam, axis=0)
            start += len(X)
        V = np.concatenate(parts)
        kept = {"V": V, "U": U, "lam": np.array(lam)}
        kept |= {"cut": arrays["cut"]} if "cut" in arrays else {}
        return {"n": np.array(data.n), "G": V.T @ V, "far": far, "taken": taken}, kept

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

    def merging(self, state: LowRankState) -> Merge:
        return add if state.summed else _kept

    @property
    def additive(self) -> bool:
        return True

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
        told |= {"far": total["far"] / n, "taken": total["taken"] / n}
        told |= _by_client(total, model.d)
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


def _kept(total: Arrays | None, client: int, reply: Arrays) -> Arrays:
    """The sum of the answers; beside it the key of each client, its rows, entries taken out, and far ones."""
    line = np.array([[reply["n"], np.sum(reply["taken"]), np.sum(reply["far"])]], dtype=np.float64)
    keys = np.empty(0, dtype=np.uint64) if total is None else total.pop(_KEYS)
    lines = np.empty((0, 3)) if total is None else total.pop(_CLIENTS)
    beside = {_KEYS: np.append(keys, np.uint64(client)), _CLIENTS: np.vstack([lines, line])}
    return {**add(total, client, reply), **beside}


def _by_client(total: Arrays, d: int) -> Arrays:
    """The same with shares of a client's entries in place of their numbers, in the order of the keys."""
    if _KEYS not in total:
        return {}
    order, lines = np.argsort(total[_KEYS]), total[_CLIENTS]
    shares = np.hstack([lines[:, :1], lines[:, 1:] / (lines[:, :1] * d)])
    return {_KEYS: total[_KEYS][order], _CLIENTS: shares[order]}
