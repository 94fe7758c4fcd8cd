"""The closing message of a robust run: clients keep their low-rank and sparse parts, and count the outliers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.robust import base, huber
from flower_pca.algorithms.robust.attempt import orthonormal_moments
from flower_pca.algorithms.robust.base import in_data_units, row_blocks_with
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.algorithms.robust.proof import find_undetermined, refit_undetermined
from flower_pca.base import linalg
from flower_pca.base.history import ANSWERED, Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BASIS, POSITIVE, ROWS, ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Merge, Stage, add_answer
from flower_pca.rows.local import LocalData

# An entry counts as an outlier if it is further than this many thresholds from the low-rank part.
FAR: Final = 10.0
_KEYS, _CLIENTS = "keys", "clients"  # the names of the arrays with the clients' keys, and with figures for each client


@dataclass(frozen=True)
class LowRankState:
    """The state of the closing message.

    Attributes
    ----------
    U : ndarray
        The basis, one column for each component.
    lam, rho, cut : float
        The threshold, the ridge and the cut with which U was found. An entry further than `cut` thresholds from the
        low-rank part has no influence.
    sigma : float
        The size of an ordinary entry.
    tag : int
        The number of the basis, by which clients recognize the V of this basis.
    total : dict or None
        The sums of the answers, or None until clients have answered.
    summed : bool
        Whether the server sees only sums of answers.
    figures : dict
        Further figures for the result.
    """

    U: Array
    lam: float
    rho: float
    sigma: float
    cut: float = np.inf
    tag: int = -1
    total: Arrays | None = None
    summed: bool = False
    figures: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LowRank(Stage[LowRankState]):
    """Close a robust run: every client computes V_i for the last U, and keeps L_i = V_i U' and the sparse part S_i.

    Each client sends V_i'V_i, from which the server computes L'L = U (sum V_i'V_i) U'. For every column,
    each client also sends two counts: the entries that were removed because they differ from L_i by more
    than the threshold, and the outliers. If the server sees individual answers, it keeps these counts for
    each client.

    Cost: about 8 n_i d p flops on a client for p components, as in one step of the regression. The server
    sends d p floats, and each client sends p^2 + 2 d floats, once.
    """

    name: ClassVar[str] = "low_rank"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "U": BASIS,
        **dict.fromkeys(("lam", "rho", "sigma", "cut"), POSITIVE),
        "tag": index_rule(2**53, least=-1),
    }
    by_row: ClassVar[bool] = True
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> LowRankState:
        Z, left = model.columns, dict(model.left)
        # Up to rounding errors, the projection is U itself, unless the center or the scale of the rows has changed.
        U = Z @ (Z.T @ left.pop("U"))
        lam, rho, sigma = (float(left.pop(name)) for name in ("lam", "rho", "sigma"))
        cut = float(left.pop("cut", np.inf))
        tag = int(left.pop("tag", -1))
        return LowRankState(U, lam, rho, sigma, cut, tag, summed=model.summed, figures=left)

    def broadcast(self, state: LowRankState) -> Arrays:
        names = ("lam", "rho", "sigma", *(("cut", "tag") if np.isfinite(state.cut) else ()))
        return {"U": state.U, **{name: np.array(getattr(state, name)) for name in names}}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        wide, p = arrays["U"].shape
        columns = Part((wide,), Kind.COUNT)
        # The array "weak" contains the numbers of undetermined rows and of bad rows.
        weak = {}
        if "cut" in arrays:
            weak["weak"] = Part((2,), Kind.COUNT)
        return {"n": ROWS, **weak, "G": Part((p, p), Kind.SCORES), "far": columns, "taken": columns}

    def bounds(self, state: LowRankState, model: Model) -> Mapping[str, Array | float]:
        known = {"n": MOST_ROWS, "G": 0.0, "far": 0.0, "taken": 0.0}
        if np.isfinite(state.cut):
            return {**known, "weak": MOST_ROWS}
        return known

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        U, lam = arrays["U"], float(arrays["lam"])
        cut = float(arrays.get("cut", np.inf))
        unseen, Q = base.unseen_entries(data, seed=0, share=0.0), linalg.orth(U)
        far, taken = np.zeros((2, len(U)), dtype=np.int64)
        G = np.zeros((U.shape[1], U.shape[1]))
        weak = np.zeros(2)
        found = []
        start = 0
        for X, before in row_blocks_with(_recalled_V(arrays, memory), data, U.shape[1]):
            gaps = unseen.in_rows(start, start + len(X))[0]
            V = _solve_for_V(arrays, X, before, gaps)
            off = np.abs(X - V @ U.T)
            off.reshape(-1)[gaps] = 0.0
            far += np.sum(off > lam * min(cut, FAR), axis=0)
            taken += np.sum(off > lam, axis=0)
            sound = V
            # The V of an undetermined row depends on the row's outliers, and could outweigh other rows.
            if np.isfinite(cut):
                out, bad = find_undetermined(off, Q, lam * cut, gaps)
                weak += len(out), len(bad)
                sound = np.delete(V, out, axis=0)
            G += sound.T @ sound
            found.append(V)
            start += len(X)
        memory = {"V": np.concatenate(found), "U": U, "lam": np.array(lam)}
        sums = {"n": np.array(data.n), "G": G, "far": far, "taken": taken}
        if "cut" in arrays:
            memory["cut"], sums["weak"] = arrays["cut"], weak
        return sums, memory

    @staticmethod
    def local_results(memory: Arrays, data: LocalData) -> Arrays:
        if "U" not in memory:  # The client did not receive the closing message.
            return {}
        U, lam = memory["U"], float(memory["lam"])
        cut = float(memory.get("cut", np.inf))
        L = memory["V"] @ U.T
        gaps = base.unseen_entries(data, seed=0, share=0.0).gaps
        R = np.concatenate(list(data.dense())) - L
        R.reshape(-1)[gaps] = 0.0  # Missing values have no residual.
        found = {}
        if np.isfinite(cut):
            basis = linalg.orth(U)
            weak, bad = find_undetermined(np.abs(R), basis, lam * cut, gaps)
            found = {"undetermined": weak, "bad_rows": bad}
        S = huber.sparse_part(R, lam, cut)
        return {"V": memory["V"], **in_data_units(L, S, data.frame), **found}

    def merging(self, state: LowRankState) -> Merge:
        if state.summed:
            return add_answer
        return _add_with_counts

    @property
    def additive(self) -> bool:
        return True

    def server(self, state: LowRankState, total: Arrays, answered: frozenset[int]) -> LowRankState:
        return replace(state, total=total)

    def status(self, state: LowRankState) -> Status | None:
        if state.total is None:
            return None
        return ANSWERED

    def finish(self, state: LowRankState, model: Model) -> Model:
        assert state.total is not None
        total, n = state.total, int(state.total["n"])
        G = total["G"]
        weak = float(total.get("weak", np.zeros(2))[0])
        # Undetermined rows are missing from G, so G is scaled up as if they were average rows.
        if 0.0 < weak < n:
            G = G * (n / (n - weak))
        values, Z, Y, residuals = linalg.rayleigh_ritz(*orthonormal_moments(state.U, G))
        values = np.maximum(values, 0.0)
        outliers = total["far"].sum() / (n * model.d)
        figures = {"lam": state.lam, "sigma": state.sigma, **state.figures, "outliers": outliers}
        figures |= {"far": total["far"] / n, "taken": total["taken"] / n}
        figures |= _figures_by_client(total, model.d)
        if np.isfinite(state.cut):
            figures |= {"cut": state.cut, "weak": total["weak"]}
        left = {name: np.array(value) for name, value in figures.items()}
        following: float | None = None
        if model.k < len(values):
            following = float(values[model.k])
        return replace(
            model,
            n=n,
            basis=Z,
            product=Y,
            values=values,
            residuals=residuals,
            trace=float(values.sum()),
            next_value=following,
            left=left,
        )


def _recalled_V(arrays: Arrays, memory: Arrays) -> Array | None:
    """Return the V in a client's memory, or None if it belongs to another basis or to a much higher threshold."""
    lam = float(arrays["lam"])
    late = float(memory.get("lam", lam)) > huber.LATE * lam
    if late or int(memory.get("tag", -1)) != int(arrays.get("tag", -1)):
        return None
    return memory.get("V")


def _solve_for_V(arrays: Arrays, X: Array, V: Array | None, gaps: Array) -> Array:
    """Return V of the rows X for the last basis. If V is None, V is computed without a first guess."""
    U, cut = arrays["U"], float(arrays.get("cut", np.inf))
    lam, rho, start = (float(arrays[name]) for name in ("lam", "rho", "sigma"))
    if V is None:
        V = huber.recover(X, U, start=start, lam=lam, rho=rho, cut=cut, left_out=gaps)
    else:
        V = Regression(U, lam, rho, cut).minimize(X, V, gaps)
    if np.isfinite(cut):
        return refit_undetermined(X, V, U, gaps, lam=lam, rho=rho, cut=cut)[0]
    return V


def _add_with_counts(total: Arrays | None, client: int, reply: Arrays) -> Arrays:
    """Add an answer to the sums, and keep the client's key and its numbers of rows, removed entries and outliers."""
    sums = add_answer(total, client, reply)
    counts = [reply["n"], np.sum(reply["taken"]), np.sum(reply["far"])]
    keys = np.append(sums.get(_KEYS, np.empty(0, np.uint64)), np.uint64(client))
    lines = np.vstack([sums.get(_CLIENTS, np.empty((0, 3))), np.array(counts, np.float64)])
    return {**sums, _KEYS: keys, _CLIENTS: lines}


def _figures_by_client(total: Arrays, d: int) -> Arrays:
    """Return the figures for each client in the order of the clients' keys, with counts of entries as shares.

    The result is empty if the server has seen only sums.
    """
    if _KEYS not in total:
        return {}
    # Answers were added in the random order in which they arrived.
    order, lines = np.argsort(total[_KEYS]), total[_CLIENTS]
    entries = lines[:, :1] * d
    shares = np.hstack([lines[:, :1], lines[:, 1:] / entries])
    return {_KEYS: total[_KEYS][order], _CLIENTS: shares[order]}
