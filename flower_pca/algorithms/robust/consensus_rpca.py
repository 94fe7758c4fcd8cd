"""ConsensusRPCA: robust PCA by the normal equations of all clients, with a falling threshold and a proof of the result.

Unless sigma is given, a run first counts entries by their size. Then the run makes attempts (`attempts`).
In the rounds of an attempt, the threshold falls to the level of noise or rounding errors (`attempt`). In
the one or eight messages of a proof, all clients check whether the low-rank part predicts hidden entries,
and whether the clean entries determine the low-rank part (`proof`). The first attempt that passes its
proof is the answer. A client keeps V from round to round (`Task`). The server keeps U. Once a client has
missed a round, the server also keeps the last answer of each client.

A client processes its rows block by block. The client keeps V of its rows, the threshold, and the number
(tag) of the basis to which V belongs. If the tag of a message differs, the client rotates V by the matrix
in the message, or computes V again if the message has no such matrix. If a basis has fewer columns than
before, the client also keeps V of all columns, because the dropped columns may come back.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.robust import attempts, base, huber, proof, sizes
from flower_pca.algorithms.robust.attempt import Problem, orthonormal_moments
from flower_pca.algorithms.robust.attempts import AttemptLog, ConsensusState
from flower_pca.algorithms.robust.base import (
    COUNTING,
    COUNTS,
    Robust,
    counts_message,
    counts_reply,
    ordinary_size,
    root_mean_square,
    start_block,
)
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief, shown
from flower_pca.core.algorithm import Progress
from flower_pca.core.kinds import (
    BLOCK,
    FLAG,
    MATRIX,
    POSITIVE,
    ROWS,
    SEED,
    STEPS,
    VECTOR,
    ArrayRule,
    Kind,
    Part,
    index_rule,
)
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, MOST_ROWS, Arrays, Merge, add_answer
from flower_pca.rows.local import LocalData

# If the threshold is at most this share of the first threshold, outliers stand out even if V is inaccurate.
_LOW_THRESHOLD: Final = 0.1
# A block has at most this many entries, so that the block and its residuals fit into a processor's cache.
_BLOCK_ENTRIES: Final = 2**17
# These are the keys of a client's memory, and the prefix of the same keys for an earlier basis with more columns.
_REMEMBERED: Final = ("V", "tag", "lam")
_BEFORE_PREFIX: Final = "before_"


@dataclass(frozen=True)
class RowBlock:
    """A block of rows, with the V from which the steps start.

    Attributes
    ----------
    X, V : ndarray
        The rows, and their V.
    out, gaps, hidden : ndarray
        The flat positions of all entries to ignore, of the missing entries, and of the hidden entries. `out` includes
        the other two.
    """

    X: Array
    V: Array
    out: Array
    gaps: Array
    hidden: Array

    __repr__ = brief

    @property
    def seen_per_row(self) -> Array:
        """The number of entries in each row that are not ignored."""
        there = np.ones(self.X.shape, dtype=bool)
        there.reshape(-1)[self.out] = False
        return np.asarray(there.sum(axis=1, dtype=np.int32))

    @property
    def unseen_mask(self) -> Array:
        """A mask of the entries that are missing or hidden."""
        found = np.zeros(self.X.shape, dtype=bool)
        flat = found.reshape(-1)
        flat[self.gaps] = flat[self.hidden] = True
        return found

    def count_residuals(self, R: Array, top: int) -> Array:
        """Return the counts of residuals R by size, with one row for visible and one row for hidden entries."""
        flat = R.reshape(-1)
        counts = np.empty((2, sizes.BINS))
        counts[1] = sizes.count_coarsely(flat[self.hidden], top)
        counts[0] = sizes.count_coarsely(flat, top) - counts[1]
        if len(self.gaps):
            counts[0] -= sizes.count_coarsely(flat[self.gaps], top)
        return counts


@dataclass(frozen=True)
class Task:
    """A client's task for one message: the arrays of the message, and the client's rows and memory."""

    arrays: Arrays
    data: LocalData
    memory: Arrays

    __repr__ = brief

    def number(self, name: str) -> float:
        """Return the number with this name in the message."""
        return float(self.arrays[name])

    @property
    def is_proving(self) -> bool:
        """Whether the message belongs to a proof."""
        return bool(self.arrays["proof"])

    def answer(self) -> tuple[Arrays, Arrays]:
        """Return the client's answer and its new memory."""
        # After the first message of a proof, the number of steps is 0.
        U, steps = self.arrays["U"], int(self.arrays["inner_steps"])
        lam, rho, cut = (self.number(name) for name in ("lam", "rho", "cut"))
        regression = Regression(U, lam, rho, cut)
        resting = np.where(self.column_thresholds[:, None] == 0.0, U, 0.0)
        Q = linalg.orth(resting)
        sums: Arrays = {}
        found = []
        for block in self.blocks():
            if self.is_proving and steps:
                V = regression.minimize(block.X, block.V, block.out)
                V, _ = regression.take_steps(block.X, V, steps, block.out)
                V, _ = proof.refit_undetermined(block.X, V, resting, block.out, lam=lam, rho=rho, cut=cut)
                R = block.X - V @ U.T
            else:
                V, R = regression.take_steps(block.X, block.V, steps, block.out)
            part = {"counts": block.count_residuals(R, int(self.arrays["top"]))}
            if self.is_proving:
                part |= self._proof_sums(block, V, R, Q)
            else:
                part |= self._round_sums(block, V, R, regression)
            sums = add_answer(sums or None, 0, part)
            found.append(V)
        if not self.is_proving:
            sums["B"] = U @ sums["G"] + sums.pop("rest")  # X - S = VU' + C, where C are the clipped residuals
        memory = {"tag": np.array(int(self.arrays["tag"])), "lam": np.array(lam)}
        sums["n"] = np.array(self.data.n)
        return sums, {"V": np.concatenate(found), **memory, **self._memory_before_drop()}

    def _round_sums(self, block: RowBlock, V: Array, R: Array, regression: Regression) -> Arrays:
        """Return the sums of a round for one block. Bad rows, in which most entries are outliers, are left out."""
        near = regression.is_within_cut(R)
        if self.number("lam") <= _LOW_THRESHOLD * self.number("start"):
            clean = near.copy()
            clean.reshape(-1)[block.out] = False
            bad = proof.bad_rows(clean, block.seen_per_row, proof.BAD)
            if bad.any():
                V = np.where(bad[:, None], 0.0, V)
        C = self._clipped(block, R, near, regression)
        rest = C.T @ V.astype(C.dtype, copy=False)
        sums: Arrays = {"G": V.T @ V, "rest": rest}
        if "Z" in self.arrays:
            Z = self.arrays["Z"].astype(C.dtype, copy=False)
            sums["image"] = C.T @ (C @ Z)
        return sums

    def _clipped(self, block: RowBlock, R: Array, near: Array, regression: Regression) -> Array:
        """Return the clipped residuals C, which overwrite R.

        Columns that are estimated again have a separate threshold. As long as this threshold is above the
        message's threshold, these columns have no cut. Without a cut, Huber's function is convex, so the result
        does not depend on the first guess.
        """
        columns, level = self.reestimated_columns
        if not len(columns):
            return regression.clip_in_place(R, block.out, near)
        # Indexing with an array makes a copy, which is needed because `clip` overwrites R.
        anew = R[:, columns]
        unseen = block.unseen_mask[:, columns]
        if level <= self.number("lam"):
            unseen |= np.abs(anew) > self.number("cut") * level
        C = regression.clip_in_place(R, block.out, near)
        clipped = np.clip(anew, -level, level)
        C[:, columns] = np.where(unseen, 0.0, clipped)
        return C

    @functools.cached_property
    def reestimated_columns(self) -> tuple[Array, float]:
        """The columns that are estimated again, and their threshold. V is not computed from these columns."""
        return np.flatnonzero(self.column_thresholds), float(self.column_thresholds.max(initial=0.0))

    @property
    def column_thresholds(self) -> Array:
        """The threshold of each column that is estimated again, and 0 for all other columns."""
        return self.arrays.get("again", np.zeros(len(self.arrays["U"])))

    def _proof_sums(self, block: RowBlock, V: Array, R: Array, Q: Array) -> Arrays:
        """Return the sums of a proof for one block."""
        clean = np.abs(R) <= self.number("cut") * self.number("lam")
        of_hidden = clean.reshape(-1)[block.hidden]
        clean &= ~block.unseen_mask
        return proof.proof_sums(
            V,
            Q,
            clean,
            rested=self.column_thresholds == 0.0,
            hidden=of_hidden,
            seen=block.seen_per_row,
            x=self.arrays.get("block"),
            even=bool(self.arrays["even"]),
        )

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows block by block, with the V from which the steps start."""
        U, V, start = self.arrays["U"], self._recalled_V(), 0
        beginning, lam, rho, cut = (self.number(name) for name in ("start", "lam", "rho", "cut"))
        seed, share = int(self.arrays["seed"]), self.number("share")
        unseen = base.unseen_entries(self.data, seed=seed, share=share)
        for X in row_blocks(self.data):
            stop = start + len(X)
            gaps, places = unseen.in_rows(start, stop)
            rows_begin = np.arange(len(X))[:, None] * X.shape[1]
            out = np.concatenate([gaps, places, (rows_begin + self.reestimated_columns[0]).ravel()])
            if V is not None:
                first = V[start:stop]
            elif lam >= beginning:  # An attempt begins.
                first = np.zeros((len(X), U.shape[1]))
            else:  # The client joins late, so its threshold must fall from the first threshold.
                first = huber.recover(X, U, start=beginning, lam=lam, rho=rho, cut=cut, left_out=out)
            yield RowBlock(X, first, out, gaps, places)
            start = stop

    def _recalled_V(self) -> Array | None:
        """Return the V in the client's memory, rotated to this basis if necessary.

        Return None if there is no V, if V was computed with a much higher threshold, or if V belongs to another
        basis and the message has no rotation for that basis.
        """
        n, p = self.data.n, self.arrays["U"].shape[1]
        turn, origin = self.arrays.get("turn"), int(self.arrays["origin"])
        late = huber.LATE * self.number("lam")
        for place in ("", _BEFORE_PREFIX):
            V, tag, lam = (self.memory.get(place + name) for name in _REMEMBERED)
            if V is None or tag is None or lam is None or len(V) != n or float(lam) > late:
                continue
            if tag == int(self.arrays["tag"]) and V.shape[1] == p:
                return V
            if turn is not None and tag == origin and turn.shape == (V.shape[1], p):
                return np.asarray(V @ turn)
        return None

    def _memory_before_drop(self) -> Arrays:
        """Return the memory of the basis before columns were dropped, or {} if the client has none.

        The dropped columns may come back.
        """
        origin = int(self.arrays["origin"])
        for place in ("", _BEFORE_PREFIX):
            if "turn" in self.arrays and int(self.memory.get(place + "tag", -1)) == origin:
                return {_BEFORE_PREFIX + name: self.memory[place + name] for name in _REMEMBERED}
        return {}


def row_blocks(data: LocalData) -> Iterator[Array]:
    """Yield blocks of rows with at most `_BLOCK_ENTRIES` entries."""
    rows = max(1, _BLOCK_ENTRIES // max(1, data.d))
    for X in data.dense():
        for start in range(0, len(X), rows):
            yield X[start : start + rows]


# Without noise, the threshold stops falling at this multiple of sigma, or at tol times sigma if tol is smaller.
_FLOOR: Final = 1e-6
# The threshold never falls below this multiple of the data's eps, because smaller residuals are rounding errors.
_EPS: Final = 32.0


@dataclass(frozen=True, kw_only=True)
class ConsensusRPCA(Robust[ConsensusState]):
    """Compute the PCA of rows in which individual values are outliers, and find these values.

    Each client's rows are V_i U' + S_i plus noise, with a common low-rank factor U and a sparse S_i.
    The method needs only sums over clients and no step size, and it proves its result.

    The method minimizes, over U, V_i and S_i, sum 1/2 ||V_i U' + S_i - X_i||^2 + rho/2 ||V_i||^2 +
    lambda ||S_i||_1, plus rho/2 ||U||^2. As an exception, an entry further than 10 lambda from VU'
    costs no more than an entry at 10 lambda.

    In the first message, clients count entries by |x|. sigma is 1.4826 times the median of |x|, with an
    error of at most 2 %, and lambda starts at sigma. Let C be clip(X - VU', lambda), but 0 for hidden
    entries and entries beyond 10 lambda. In each round
      each client computes V <- V + (CU - rho V)(U'U + rho I)^-1, `inner_steps` times,
        or at most twice if lambda still falls and at most a tenth of the entries lie beyond lambda,
        and sends B_i = (VU' + C)'V, G_i = V'V, and counts of |X - VU'| by size, of visible and hidden entries;
      the server computes U <- (sum B_i)(sum G_i + rho I)^-1 and lambda <- max(gamma lambda, floor).

    rho = ridge lambda sqrt(max(n, d)), or a tenth of this value if there is noise. Usually, two percent
    of the entries are hidden. If lambda falls below a third of the residuals at hidden entries, these
    residuals are dense noise with standard deviation s. From then on lambda = 2 s, and entries
    beyond 6 s have no influence. The rank is the number of singular values of VU' above the noise, at
    most n_components + oversample. When the basis has settled, clients prove the result: see `proof`. If
    the proof fails, another attempt follows: see `attempts`.

    If a client misses a round, its last answer is used, and lambda is multiplied only by gamma^a, where a
    is the share of the rows at the clients that answered. Proofs and the closing message go to
    all clients. Under masks, the server has no individual answers. In this case, the sums over the clients
    that answered are scaled up to all rows, and if a client misses the last round, the run repeats the
    opening. Missing values are treated like hidden entries.

    Reference: this method is the package's own. The problem is from Chu, "DCF-PCA": see `DCFPCA`.
    Cost per round: 4 (inner_steps + 1) n_i d p flops on a client, and 2 d p^2 flops on the server. The
    server sends p d floats, and each client sends p d + p^2. An attempt takes about ln(1e-6) / ln(gamma)
    rounds, for example 132 for gamma=0.9, and one or eight messages for the proof.
    Prefer it: if individual values are outliers, for example because of typing errors, wrong units or
    failing sensors. If a client has only one row, its answers reveal the clean part of the row up to scale.

    Parameters
    ----------
    gamma : float, default=0.9
        The factor by which lambda falls in a round of the first attempt. 0.7 is enough for easy problems.
    ridge : float, default=0.3
        The ridge rho, divided by lambda sqrt(max(n, d)).
    noise : float or "auto", default="auto"
        The standard deviation of dense noise in the rows after centering and scaling. "auto" estimates it, and 0.0
        means no noise.
    restarts : int, default=1
        Maximum number of attempts after the first, if its proof fails. In addition, an attempt with more columns may
        follow the second attempt.
    inner_steps : int, default=3
        Maximum number of steps for the inner problem.
    sigma : float or None, default=None
        The size of an ordinary entry, if it is known. If sigma is given, clients do not count their entries.
    oversample : int, default=0
        Columns that the algorithm iterates beyond `n_components`.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=1000
        Maximum number of rounds of all attempts together.
    patience : int, default=300
        The number of rounds at the last threshold after which the proof begins even if the basis still moves.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import ConsensusRPCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> mixing = rng.standard_normal((2, 6))
    >>> sites = [rng.standard_normal((60, 2)) @ mixing for _ in range(3)]
    >>> sites[0][3, 4] = 100.0  # a typing error
    >>> result = simulate(ConsensusRPCA(gamma=0.7), sites, n_components=2)
    >>> print(result.removed_share_.argmax())  # the column of the error
    4
    """

    name: ClassVar[str] = "consensus_rpca"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        **COUNTING,
        "U": BLOCK,
        **dict.fromkeys(("lam", "rho", "cut", "start", "share"), POSITIVE),
        "inner_steps": STEPS,
        "seed": SEED,
        **dict.fromkeys(("tag", "origin"), index_rule(2**53, least=-1)),
        **dict.fromkeys(("proof", "even"), FLAG),
        "turn": MATRIX,
        "block": BLOCK,
        "Z": BLOCK,
        "again": VECTOR,
    }

    gamma: float = attempts.GAMMA
    ridge: float = 0.3
    noise: float | str = "auto"
    restarts: int = attempts.RESTARTS
    patience: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.noise, str):
            checks.number("noise of consensus_rpca", self.noise, least=0.0)
        elif self.noise != "auto":
            raise ConfigError(
                f'noise of consensus_rpca is {shown(self.noise)}, but it must be "auto" or a number of at least 0. '
                "Leave the parameter out to estimate the noise.",
                setting="noise",
                value=self.noise,
            )
        checks.integer("restarts of consensus_rpca", self.restarts)
        checks.number("gamma of consensus_rpca", self.gamma, least=0.01, most=0.999, remedy="Try 0.9.")
        checks.number("ridge of consensus_rpca", self.ridge, least=1e-6, remedy="Try 0.3.")

    def start(self, model: Model) -> ConsensusState:
        rms, p = root_mean_square(model), model.columns.shape[1]
        progress = Progress.begin(self.tol, model)
        problem = Problem(
            n=model.n,
            d=model.d,
            sigma=self.sigma or 0.0,
            top=sizes.top_exponent(rms),
            floor=max(min(_FLOOR, self.tol), _EPS * model.eps),
            tol=progress.tol,
            noise=None if isinstance(self.noise, str) else self.noise,
            ridge=self.ridge,
            patience=self.patience,
            least_rounds=self.min_rounds,
            most_rounds=self.max_rounds,
        )
        log = AttemptLog(k=p, p=p, gamma=self.gamma, restarts=self.restarts)
        cache = CachedSums(model.n, summed=model.summed)
        state = ConsensusState(problem, self.sigma, rms, model.seed, start_block(model), cache, progress, log)
        if self.sigma is None:
            return state
        return state.next_attempt()

    def broadcast(self, state: ConsensusState) -> Arrays:
        if state.attempt is None:
            return counts_message(state.rms)
        attempt, problem = state.attempt, state.problem
        numbers = {
            "lam": attempt.lam, "rho": attempt.rho(problem), "cut": attempt.cut, "start": attempt.start,
            "share": base.hidden_share(problem.n, problem.d), "top": problem.top, "seed": state.seed,
            "inner_steps": attempt.inner_steps(self.inner_steps), "tag": attempt.tag, "origin": attempt.origin,
            "proof": state.is_proving, "even": attempt.noise == 0.0,
        }  # fmt: skip
        blocks = {"turn": attempt.turn, "block": attempt.proof_block, "Z": None if state.is_proving else attempt.Z}
        if attempt.again:
            levels = np.zeros(problem.d)
            levels[list(attempt.again)] = max(attempt.level, attempt.lam, TINY)
            blocks["again"] = levels
        sent = {name: np.asarray(a) for name, a in {**numbers, **blocks}.items() if a is not None}
        return {"U": attempt.U, **sent}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "U" not in arrays:
            return COUNTS
        d, p = arrays["U"].shape
        counts = Part((2, sizes.BINS), Kind.COUNT)
        if arrays["proof"]:
            return {"counts": counts, **proof.proof_parts(d, p, "block" in arrays)}
        B = Part((d, p), Kind.ESTIMATE)
        G = Part((p, p), Kind.SCORES)
        known = {"n": ROWS, "B": B, "G": G, "counts": counts}
        if "Z" in arrays:
            known["image"] = Part(arrays["Z"].shape, Kind.ESTIMATE)
        return known

    def merging(self, state: ConsensusState) -> Merge:
        if state.attempt is None or state.is_proving:
            return add_answer
        return state.cache.merging

    @property
    def additive(self) -> bool:
        # Sums are enough. The server keeps individual answers only to replace the answers of clients that miss a round.
        return True

    def bounds(self, state: ConsensusState, model: Model) -> Mapping[str, Array | float]:
        if state.attempt is None:
            return super().bounds(state, model)
        # A step maps V to (VU' + C)U(U'U + rho I)^-1 with |C| <= lambda, so V grows by at most |C| times the
        # norm of U(U'U + rho I)^-1.
        attempt = state.attempt
        s = attempt.singular_values
        ridge = attempt.rho(state.problem)
        inverse = float(np.max(s / np.maximum(s**2 + ridge, TINY)))
        entries = float(np.sqrt(model.n * model.d))
        C = max(attempt.lam, attempt.level) * entries
        V = float(s @ s if attempt.G is None else np.trace(attempt.G)) ** 0.5 + self.inner_steps * C * inverse
        image, M = C**2, V**2
        if attempt.noise == 0.0:
            M = float(model.n)
        if attempt.proof_block is not None:
            image = M * float(linalg.column_norms(attempt.proof_block.T).max())
        B = V * (V * float(s[0]) + C)
        sums = {"G": V**2, "B": B, "F": M, "M": M, "image": image}
        counted = dict.fromkeys(("counts", "count"), float(model.n * model.d))
        most = {name: MARGIN * size for name, size in {**sums, **counted}.items()}
        bounds = {"n": MOST_ROWS, **most}
        return {name: bounds[name] for name in self.parts(self.broadcast(state), model.d)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if "U" not in arrays:
            return counts_reply(arrays, data), memory
        return Task(arrays, data, memory).answer()

    def server(self, state: ConsensusState, total: Any, answered: frozenset[int]) -> ConsensusState:
        if state.attempt is None:
            return state.with_sigma(ordinary_size(total["counts"], state.rms))
        if state.is_proving:
            return state.after_proof(total)
        return state.after_round(total)

    def status(self, state: ConsensusState) -> Status | None:
        return state.verdict

    def metrics(self, state: ConsensusState) -> dict[str, float]:
        if state.attempt is None:
            return {}
        hidden = state.attempt.hidden / state.problem.sigma
        figures = {"error": state.progress.error, "hidden": hidden, "lambda": state.attempt.lam}
        return {name: figure for name, figure in figures.items() if np.isfinite(figure)}

    def finish(self, state: ConsensusState, model: Model) -> Model:
        best = state.log.best
        attempt = best if state.verdict is not None and best is not None else state.attempt
        if attempt is None:
            # The run has ended before its first attempt.
            nothing = {name: np.zeros(()) for name in ("lam", "rho", "sigma")}
            return replace(model, left={"U": state.first, **nothing})
        ended = best is not None and attempt is best
        U = attempt.U.copy()
        if best is not None and ended and best.known_verdict.passes_with_exceptions:
            # The proof does not cover undetermined columns, and they would distort rows in which their entries are
            # outliers.
            U[list(best.known_verdict.columns)] = 0.0
        Z = linalg.orth(U)
        if attempt.G is not None:
            Z = linalg.rayleigh_ritz(*orthonormal_moments(U, attempt.G))[1]
        numbers: dict[str, Any] = {
            "lam": attempt.lam, "rho": attempt.rho(state.problem), "sigma": state.problem.sigma, "cut": attempt.cut,
            "tag": attempt.tag, "noise": attempt.noise, "attempts": state.log.count,
            "hidden": attempt.hidden / state.problem.sigma, "rank": attempt.p,
        }  # fmt: skip
        if best is not None and ended:
            columns = np.array(best.known_verdict.columns, dtype=np.int64)
            numbers |= {"columns": columns, "hidden": best.known_verdict.error, "rank": best.known_verdict.rank}
        left = {"U": U, **{name: np.array(value) for name, value in numbers.items()}}
        k = min(model.k, Z.shape[1])
        return replace(model, basis=Z, product=None, n_components=k, left=left)
