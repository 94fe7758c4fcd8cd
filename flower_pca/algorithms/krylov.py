"""Krylov: federated block Lanczos with Rayleigh-Ritz, the default algorithm. The method is this package's own.

The server keeps a basis Q, and a small matrix H that represents the products of C with Q. After every
message, `_state_after_product` extends Q and H, solves the small eigenproblem, calls `_wanted_count_and_residual` for
the number of components and their error, and computes the next block. Two methods handle special cases. `_is_certain`
decides whether an eigenvalue may still be hidden. `_next_block` adds random columns if such an eigenvalue is possible,
or if the Krylov space cannot grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from flower_pca.base import checks, files, labels, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Algorithm, Iterative, Progress
from flower_pca.core.hidden import LARGER, random_overlap
from flower_pca.core.kinds import BLOCK, ArrayRule, Kind, Part
from flower_pca.core.model import Model, fraction_rank
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData
from flower_pca.settings.bits import ROUNDING, fewest_bits_within

AUTO: Final = "auto"
# With oversample="auto", the opening sends this many additional columns, because d is not known yet.
_NARROW: Final = 2
# A basis may always have _CHEAP columns, because their eigenproblem takes little time, and always _BLOCKS blocks.
_CHEAP, _BLOCKS = 600, 16
# With more than _WIDE columns of data, reading the basis takes long, so a basis has fewer columns. On six spectra, runs
# with 336 instead of 480 columns needed up to one message more or less, and 0.8 to 1.0 of the time.
_WIDE, _CHEAP_IF_WIDE = 50_000, 336
# A basis may take up to _BYTES bytes, but it may always have _FEWEST blocks. On four spectra, runs with eight blocks
# needed up to a sixth more messages than runs with an unlimited basis, and runs with six blocks up to half more.
_BYTES, _FEWEST = 2**29, 8
_ROWS: Final = 512  # the number of rows of a block that are copied at a time
_LARGE: Final = 2**20  # the number of entries of a product after which a run looks for its end before it forms a block
# Over a real network, messages of up to this many bytes take about the same time, whatever their size.
MESSAGE: Final = 2**19
# With tol="auto", _SMALLEST_TOL is the smallest residual that is required, and _SAMPLING_SHARE is the share of a
# component's sampling error that is negligible.
_SMALLEST_TOL, _SAMPLING_SHARE = 1e-6, 0.05
_DEFAULT_TOL: Final = 1e-8  # the default of tol
# A new block need not be exactly orthogonal to older columns: its part along them may be up to _SKEW times tol.
# Residuals do not include this part, and the eigenvalues of T change only by its square.
_SKEW: Final = 1e-5
_ROUNDING_SHARE: Final = 0.2  # the share of tol that the rounding errors of one message may take
_MANY_COLUMNS: Final = 20_000  # above this many columns, the default of tol is "auto"


@dataclass(frozen=True)
class Basis:
    """Orthonormal columns, (d, m), with memory reserved for more, so that adding a block copies only that block."""

    columns: Array = field(metadata={files.GROWS: True})

    def __post_init__(self) -> None:
        # The memory layout affects the rounding of products, so columns from a checkpoint get the same layout.
        object.__setattr__(self, "columns", np.asfortranarray(self.columns))

    def add(self, block: Array, max_columns: int) -> Basis:
        """Return the basis extended by a block. `max_columns` is the maximum number of columns of a basis."""
        d, m = self.columns.shape
        end = m + block.shape[1]
        reserved = self.__dict__.get("reserved")
        # If this basis was extended before, the memory after its last column is already in use.
        if reserved is None or reserved.used != m or end > reserved.array.shape[1]:
            reserved = _Reserved(np.empty((d, max(end, max_columns)), order="F"))
            reserved.array[:, :m] = self.columns
        # The copy converts row order to column order. A few rows at a time fit into the processor's cache.
        for i in range(0, d, _ROWS):
            reserved.array[i : i + _ROWS, m:end] = block[i : i + _ROWS]
        reserved.used = end
        longer = Basis(reserved.array[:, :end])
        # The reserved memory is not a field, because a checkpoint keeps only the columns.
        object.__setattr__(longer, "reserved", reserved)
        return longer

    def copy_next_to_columns(self, S: Array) -> Array:
        """Return a copy of S in column order that is valid until a block is added.

        If possible, the copy uses memory reserved for later columns, because allocation takes longer than copying.
        """
        reserved, m = self.__dict__.get("reserved"), self.columns.shape[1]
        if reserved is None or reserved.used != m or m + S.shape[1] > reserved.array.shape[1]:
            return np.array(S, dtype=np.float64, order="F")
        copy: Array = reserved.array[:, m : m + S.shape[1]]
        copy[:] = S
        return copy

    def rotated(self, W: Array) -> Basis:
        """Return the basis with the columns Q W, where Q are the columns of this basis."""
        return Basis(linalg.product_in_memory_order(self.columns, W))


@dataclass
class _Reserved:
    """An array with memory reserved for further columns, and the number of columns in use."""

    array: Array
    used: int = 0


@dataclass(frozen=True)
class KrylovState:
    """The state of the server: Q, the next block B, H with CQ = [Q, B] H, T = Q'CQ, and the progress of the run.

    Attributes
    ----------
    warm : bool
        Whether the first block contained known components, so that larger eigenvalues may still be hidden.
    lost : ndarray
        For each column of Q, the length of the part of its product with C that H does not contain, because this part
        was only rounding error.
    converged : int
        The number of leading Ritz values that have converged, if a fraction of the variance is wanted.
    probe : tuple
        k and the k-th eigenvalue at the time when the server last sent random columns to find hidden eigenvalues.
    errors : tuple of float
        The error after each product, beginning with the opening. `Auto` uses these errors to decide whether another
        algorithm would cost less.
    random : ndarray of shape (m, p)
        In a warm start, the random columns that were sent with the components, in the coordinates of Q. In other
        runs, and after the basis was cut, the array has no columns.
    sampling : float
        The largest residual that a component may have, relative to its eigenvalue, if `tol` depends on the sampling
        error. Otherwise 0.
    reach : float
        An estimate of how far a relative error of the latest product moves a component, relative to the first
        eigenvalue. It is inf if all messages have the same number of bits, because nothing depends on it then.
    coarse : float
        The same for the rounding errors of all messages with fewer bits than `tol` would need without `reach`.
    """

    Q: Basis
    H: Array
    T: Array
    lost: Array
    block: Array
    progress: Progress
    warm: bool
    fraction: float | None
    k: int
    trace: float
    seed: int
    converged: int = 0
    probe: tuple[float, float] = (0.0, 0.0)
    errors: tuple[float, ...] = ()
    random: Array = field(default_factory=lambda: np.empty((0, 0)))
    sampling: float = 0.0
    reach: float = np.inf
    coarse: float = 0.0

    @property
    def size(self) -> int:
        """The number m of columns of Q."""
        return int(self.Q.columns.shape[1])

    def with_block(self, block: Array) -> KrylovState:
        """Return the state that sends this block next. H already has rows for the block's first columns."""
        more = self.size + block.shape[1] - len(self.H)
        return replace(self, block=block, H=np.pad(self.H, ((0, more), (0, 0))))

    def product(self, W: Array) -> Array:
        """Return C Q W, which is known from H without a message."""
        turned = self.H @ W
        product = linalg.product_in_memory_order(self.Q.columns, turned[: self.size])
        product += self.block @ turned[self.size :]
        return np.ascontiguousarray(product)

    def residuals(self, values: Array, W: Array) -> Array:
        """Return ||C Q w - theta Q w|| for Ritz pairs (theta, w). H is enough, because [Q, B] is orthonormal."""
        off = self.H @ W
        off[: self.size] -= W * values
        return linalg.column_norms(np.vstack([off, self.lost[:, None] * W]))

    def relative_to_sampling_error(self, residuals: Array, values: Array) -> Array:
        """Return the residuals, scaled so that a residual within the sampling error is at most tol."""
        if not self.sampling or not values[0] > 0.0:
            return residuals
        may_be = self.sampling * np.maximum(values[: len(residuals)], 0.0) / (self.progress.tol * float(values[0]))
        return np.asarray(residuals / np.maximum(may_be, 1.0))

    def thick_restart(self, values: Array, W: Array) -> KrylovState:
        """Return the state whose basis is Q W (thick restart). B stays, because it is orthogonal to all of Q."""
        off = self.H @ W
        ends = off[self.size :]
        off[: self.size] -= W * values
        # T w equals theta w up to rounding errors, which the new H does not contain.
        lost = linalg.column_norms(np.vstack([off[: self.size], self.lost[:, None] * W]))
        T = np.diag(values)
        # The random columns are dropped, because their part outside the new basis is unknown. They no longer matter
        # after the many rounds that precede a cut.
        random = np.empty((len(T), 0))
        return replace(self, Q=self.Q.rotated(W), H=np.vstack([T, ends]), T=T, lost=lost, random=random)

    def may_hide_eigenvalue(self, values: Array, W: Array) -> bool:
        """Return whether T's eigenvectors may have missed an eigenvalue of C above the k-th Ritz value.

        For an eigenvector v of C with eigenvalue a and a Ritz pair (theta, u), v'(C u - theta u) = (a -
        theta) v'u. The left side is v'B times entries of H W, where B is the next block and v'B has at
        most length 1. This bounds v'u, and therefore v'Z for the random columns Z. But v'Z has at least
        the length `overlap` for every v, so a bound below `overlap` proves that no v has been missed.
        """
        if not self.random.shape[1]:
            return False
        a, k = LARGER * float(values[self.k - 1]), self.k
        off = np.vstack([(self.H @ W)[self.size :], self.lost[:, None] * W])[:, k:]
        known = (off / (a - values[k:])) @ (W[:, k:].T @ self.random)
        d, p = len(self.block), self.random.shape[1]
        return float(np.linalg.norm(known, 2)) >= random_overlap(d, p) if known.size else False


@dataclass(frozen=True, kw_only=True)
class Krylov(Iterative[KrylovState]):
    """Compute the exact PCA of all rows in few rounds, by block Krylov iteration.

    In each round, the clients send their products with one block, and the server receives the sum. The
    server also uses the sums of earlier rounds.

    Let C be the sum of the clients' covariance matrices C_i. The server keeps Q = [Q_1 ... Q_j]. In a
    round, the server sends the latest block Q_j and receives S = sum C_i Q_j.
    The next block is Q_{j+1} = orth((I - QQ')S), so S = [Q, Q_{j+1}] h with a small matrix h. All
    matrices h together form H, with C Q = [Q, Q_{j+1}] H, so C Q itself is not stored. The Ritz pairs
    of T = Q'CQ are the estimate, and H yields their residuals ||C z - theta z||. Columns that vanish
    are dropped. If no column is left, the space is invariant and the result is exact.

    A basis belongs to one set of clients. If this set changes permanently, the run repeats the opening
    with a block of the components and random columns. Under masks, this block has only random columns.

    Reference: Golub and Underwood 1977 (block Lanczos). The thick restart follows Wu and Simon 2000.

    Cost per round: 4 n_i d p flops on a client, and p columns of d floats each way. If Q has m
    columns, the server needs 2 to 4 d m p flops, and at least (4/3) m^3 flops for the k leading
    eigenvectors of an m x m matrix. m grows by p in each round up to max(600, 16 p), so the cost of
    a round is bounded. In our measurements, this bound on m increased the number of messages by at
    most a thirtieth. With more than 50,000 columns of data, 600 becomes 336, and Q has at most as many
    columns as fit into 512 MB, but at least 8 p. With at most 336 columns, runs needed up to one
    message more or less, and with 8 p columns up to a sixth more messages.
    Prefer it: by default, unless different clients answer in each round, or a rough answer after
    two rounds is enough.

    Parameters
    ----------
    oversample : int or "auto", default=2
        Columns that the algorithm iterates beyond `n_components`. "auto" means 2 in the opening, and then as many as
        fit into a message of 512 kB. Blocks stay narrow if a node's `max_columns` forbids wide ones, and in runs with
        `dp` or a channel.
    max_basis : int, default=40
        Maximum number of blocks that the server keeps before it restarts from the leading half of the Ritz vectors.
        The server keeps fewer blocks, but at least 16, if they would have more than 600 columns in total, or
        more than 336 if the data have more than 50,000 columns. It keeps still fewer, but at least 8, if they would
        take more than 512 MB. If `n_components` is a fraction of the variance, the only limit is 512 MB. This limit is
        raised if twice the number of components found does not fit.
    tol : float, "auto" or None, default=None
        The largest residual, relative to the first eigenvalue, at which a run has converged. "auto" means 1e-6, or, if
        larger, a twentieth of the sampling error of each component's eigenvalue. The sampling error is sqrt(2 / n)
        times the eigenvalue. The default is 1e-8 up to 20,000 columns, and "auto" above.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=1000
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Krylov, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(Krylov(tol=1e-10), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "krylov"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"B": BLOCK}
    over_air: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    fixed_set: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    keeps_product: ClassVar[bool] = True

    oversample: Any = 2  # a whole number, or AUTO
    max_basis: int = 40
    tol: Any = None  # a number, AUTO, or None for the default, which depends on the number of columns

    def __post_init__(self) -> None:
        checks.integer("max_basis of krylov", self.max_basis, least=4, remedy="Use 40.")
        if self.tol is None or self.tol == AUTO:
            _ = replace(self, tol=_SMALLEST_TOL)  # This checks the other parameters.
            return
        if self.oversample == AUTO:
            _ = self.with_narrow_blocks  # This checks the other parameters.
        elif isinstance(got := self.oversample, str):
            raise ConfigError(
                f'oversample of krylov is {shown(got)}, but it must be a whole number or "{AUTO}". Use 2.',
                setting="oversample",
                value=got,
            )
        else:
            super().__post_init__()

    @property
    def tolerance(self) -> float:
        if self.tol is None:
            return _DEFAULT_TOL
        if self.tol == AUTO:
            return _SMALLEST_TOL
        return float(self.tol)

    def with_column_count(self, d: int) -> Self:
        """Return the algorithm with the `tol` that it uses for this many columns."""
        if self.tol is None and d > _MANY_COLUMNS:
            return replace(self, tol=AUTO)
        return self

    def verify(self, model: Model) -> Status | None:
        return super(Krylov, self.with_column_count(model.d)).verify(model)

    def allowed_residuals(self, model: Model) -> Array:
        bounds = super().allowed_residuals(model)
        if self.tol != AUTO or model.values is None:
            return bounds
        values = np.maximum(model.values[: model.k], 0.0)
        first = max(float(model.values[0]), np.finfo(float).tiny)
        return np.asarray(np.maximum(bounds, _sampling_error(model) * values / first))

    @property
    def with_narrow_blocks(self) -> Krylov:
        """The algorithm with blocks as narrow as in the opening."""
        if self.oversample != AUTO:
            return self
        return replace(self, oversample=_NARROW)

    def under_noise(self, *, private: bool, over_air: bool, columns_known: bool) -> tuple[Algorithm[Any], str]:
        """Return the algorithm with narrow blocks, and the reason, or "" if its blocks are already narrow.

        Wide blocks would carry more noise.
        """
        if self.with_narrow_blocks is self:
            return self, ""
        return self.with_narrow_blocks, f"krylov uses narrow blocks, as always {source_of_noise(private)}"

    @property
    def alternative(self) -> str:
        """The name of this algorithm if its blocks are wide, or else "".

        Nodes must allow wide blocks, because these blocks may reveal nearly all of C_i.
        """
        if self.oversample != AUTO:
            return ""
        return self.name

    def width(self, n_components: int | float) -> int:
        if self.oversample == AUTO:
            return self.with_narrow_blocks.width(n_components)
        return super().width(n_components)

    def choose_algorithm(self, model: Model) -> tuple[Krylov, str]:
        """Return the algorithm with the block width that d columns allow, and a note on this width, or ""."""
        if self.oversample != AUTO:
            return self, ""
        own = self.width(model.n_components)
        if model.declined:
            return self.with_narrow_blocks, (
                f"krylov uses blocks of {labels.count(own, 'column')}, because a client declines wider blocks. "
                f"{model.declined}"
            )
        p = max(own, min(model.d, MESSAGE // (8 * model.d)))
        words = (
            f"krylov uses blocks of {labels.count(p, 'column')}, the widest that fit into a message of "
            f"{MESSAGE // 1024} kB"
        )
        given: Any = {f.name: getattr(self, f.name) for f in fields(Krylov)}
        return WideKrylov(**{**given, "oversample": _NARROW + p - own}), words

    def start(self, model: Model) -> KrylovState:
        Z, k = model.columns, model.n_components
        fraction: float | None = None
        if not isinstance(k, int):
            k, fraction = Z.shape[1], k
        # Under masks, the block after a restart is completely random.
        warm = model.may_miss_directions and not (model.restarts > 0 and model.summed)
        algorithm = self.with_column_count(model.d)
        state = KrylovState(
            Q=Basis(np.empty((model.d, 0))),
            H=np.empty((Z.shape[1], 0)),
            T=np.empty((0, 0)),
            lost=np.empty(0),
            block=Z,
            progress=Progress.begin(algorithm.tolerance, model),
            warm=warm,
            fraction=fraction,
            k=k,
            trace=model.trace,
            seed=model.seed,
            random=np.eye(Z.shape[1])[:, k:] if warm and fraction is None else np.empty((Z.shape[1], 0)),
            sampling=_sampling_error(model) if algorithm.tol == AUTO else 0.0,
        )
        if model.product is None:
            return state
        return self._state_after_product(state, model.product, rounds=0)

    def broadcast(self, state: KrylovState) -> Arrays:
        return {"B": state.block}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"S": Part(arrays["B"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"S": data.matmat(arrays["B"])}, memory

    def server(self, state: KrylovState, total: Arrays, answered: frozenset[int]) -> KrylovState:
        after = self._state_after_product(state, total["S"], rounds=1)
        if not state.progress.bits:  # All messages have the same number of bits.
            return after
        bits = fewest_bits_within(self.rounding_allowed(state))
        if bits >= state.progress.bits:
            return after
        return replace(after, coarse=float(np.hypot(state.coarse, ROUNDING[bits] * after.reach)))

    def rounding_allowed(self, state: KrylovState) -> float:
        # No rounding error is allowed while random columns must reveal hidden directions. The eigenvalues of these
        # directions may be small compared with the first eigenvalue.
        if state.warm or state.fraction is not None or not state.reach > 0.0:
            return 0.0
        return _ROUNDING_SHARE * state.progress.tol / state.reach

    def status(self, state: KrylovState) -> Status | None:
        # Without a next block, the space is invariant, and the remaining residual is rounding error.
        if state.block.shape[1] == 0:
            tol = max(state.progress.tol, state.progress.error)
            state = replace(state, progress=replace(state.progress, tol=tol))
        status = super(Krylov, self.with_column_count(len(state.block))).status(state)
        if status is None or status.outcome is not Outcome.CONVERGED or not state.sampling:
            return status
        finer = option("tol", 1e-8)
        rounds = labels.count(state.progress.rounds, "round")
        words = f"errors are a twentieth of the sampling error after {rounds}"
        return replace(status, words=f"{words}; use {finer} for more precision")

    def finish(self, state: KrylovState, model: Model) -> Model:
        if state.size == 0:
            return model
        # For a small matrix, `eigh_leading` returns all eigenvectors.
        values, W = linalg.eigh_leading(state.T, state.k + self.oversample)
        W = W[:, : state.k + self.oversample]
        basis, turn = linalg.newton_orthonormalized_qr(linalg.product_in_memory_order(state.Q.columns, W))
        product = state.product(np.linalg.solve(turn.T, W.T).T)
        if state.coarse:
            # Columns behind the first k have large parts in the newest blocks, whose products have few bits. In the
            # closing step, the errors of these products would turn the components. T does not contain these errors.
            off = (state.H[: state.size] - state.T) @ W[:, state.k :]
            product[:, state.k :] -= linalg.product_in_memory_order(state.Q.columns, off)
        coarse = state.coarse * max(float(values[0]), 0.0)
        return replace(model, basis=np.ascontiguousarray(basis), product=product, coarse=coarse)

    def restart(self, model: Model) -> Array:
        d, p = model.columns.shape
        noise = linalg.random_block(d, p, model.seed + model.restarts + 1)
        # If the server sees only sums, the new block is random. The difference of two sums for the same block, one with
        # a client and one without this client, would reveal the client's answer.
        if model.summed:
            return noise
        # Without random columns, a direction orthogonal to all known directions would stay hidden. Random columns
        # are scaled to about length 1, so that they have the same weight as the components.
        known = model.columns[:, : model.k]
        return np.hstack([known, noise / np.sqrt(model.d)])

    def _state_after_product(self, state: KrylovState, S: Array, *, rounds: int) -> KrylovState:
        widest, before = self._widest_basis(state), state.size
        basis = state.Q.add(state.block, widest)
        Q = basis.columns
        # C is symmetric, so H already contains the part of S along the older columns, up to rounding.
        known = state.H[before:].T
        own = state.block.T @ S
        T = linalg.block_matrix(state.T, known, known.T, own)
        # If a fraction of the variance is wanted, all converged values are needed. After a warm start, eigenvalues
        # behind the first k may turn out to be larger.
        behind = state.warm or state.fraction is not None
        some = state.k
        if Q.shape[1] + S.shape[1] > widest:
            some = widest // 2  # the number of columns that remain if the basis is cut below
        values, W = linalg.eigh_leading(T, len(T) if behind else some)
        # The first eigenvalue is 0 if all entries of T are 0.
        first = max(float(values[0]), np.finfo(float).tiny)
        since = int(np.argmax(np.append(known.any(axis=1), True)))
        # The copy has column order like the basis, because BLAS is then faster.
        rest = basis.copy_next_to_columns(S)
        linalg.subtract(rest, Q[:, since:], np.vstack([known[since:], own]))
        inside = np.vstack([known, own])
        ends = None
        if S.size >= _LARGE and not behind and state.progress.rounds + rounds >= self.min_rounds:

            def ends(R: Array) -> bool:
                """Return whether the run ends with this product, so that the next block is never sent."""
                H = linalg.block_matrix(state.H, inside, np.zeros((len(R), before)), R)
                newest = replace(state, Q=basis, H=H, lost=np.append(state.lost, np.zeros(S.shape[1])))
                residuals = newest.residuals(values[: state.k], W[:, : state.k])
                return self._wanted_count_and_residual(newest, values, residuals)[1] <= state.progress.tol * first

        block, off, along = linalg.next_block(rest, Q, first, skew=_SKEW * state.progress.tol, T=T, ends=ends)
        # `off` is an error in the answer, mostly a rounding error. If `off` were added to the symmetric matrix T, it
        # would move all Ritz vectors. In H, `off` moves only Ritz vectors that have a part in the newest block, and
        # these parts become smaller from round to round.
        inside = inside + off
        lost = np.zeros(S.shape[1])
        if block.shape[1] < S.shape[1]:
            lost = linalg.column_norms(rest - Q @ off - block @ along)
        block = np.ascontiguousarray(block)
        del rest  # While the basis is cut, two bases are in memory, so other large arrays are freed first.
        H = linalg.block_matrix(state.H, inside, np.zeros((len(along), before)), along)
        random = state.random
        if random.shape[1]:
            random = np.vstack([random, np.zeros((Q.shape[1] - len(random), random.shape[1]))])
        state = replace(state, Q=basis, H=H, T=T, lost=np.append(state.lost, lost), block=block, random=random)
        looked_at = len(values) if behind else state.k
        residuals = state.residuals(values[:looked_at], W[:, :looked_at])
        if state.fraction is not None:
            bound = state.progress.tol * max(float(values[0]), 0.0)
            small = state.relative_to_sampling_error(residuals, values) <= bound
            state = replace(state, converged=int(np.argmin(np.append(small, False))))
            widest = self._widest_basis(state)
            some = widest // 2
        k, error = self._wanted_count_and_residual(state, values, residuals)
        reach = state.reach
        if state.progress.bits:
            p = S.shape[1]
            # The direction of an error in the block is arbitrary. So C changes the size of the error about as much as
            # the size of a random block, for example of the first block.
            answered = linalg.column_norms(np.vstack([H[:, H.shape[1] - p :], lost]))
            sizes = (linalg.frobenius_norm(H[:, :p]) / np.sqrt(max(p, 1)), answered.max(initial=0.0))
            reach = float(linalg.column_norms(W[Q.shape[1] - p :, :k]).max(initial=0.0) * max(sizes) / first)
        if error <= state.progress.tol * first and not self._is_certain(state, values, k):
            error = np.inf
            last = float(values[k - 1])
            # The random columns may find an eigenvalue that belongs to the first k. So from now on (warm=True), the
            # residuals behind the first k are checked, too.
            state = replace(state, warm=True, probe=(float(k), last))
            state = state.with_block(self._next_block(state, state.k + 2))
        # Here the space is invariant, but it does not contain the wanted fraction of the variance.
        elif block.shape[1] == 0 and not np.isfinite(error):
            state = state.with_block(self._next_block(state, state.k + 2))
        # This check needs all Ritz vectors of T, so it must precede the cut.
        hides = state.warm and state.fraction is None and state.may_hide_eigenvalue(values, W)
        if Q.shape[1] + state.block.shape[1] > widest:
            state = state.thick_restart(values[:some], W[:, :some])
        gain = float(values[:k].sum())
        progress = replace(state.progress.step(error / first, gain=gain, rounds=rounds), sure=not hides)
        return replace(state, progress=progress, k=k, errors=(*state.errors, progress.error), reach=reach)

    def _widest_basis(self, state: KrylovState) -> int:
        """Return the maximum number of columns of the basis."""
        d, k = len(state.block), state.k
        width, bytes_allow = k + self.oversample, _BYTES // (8 * d)
        if state.fraction is None:
            cheap = _CHEAP_IF_WIDE if d > _WIDE else _CHEAP
            blocks = max(min(max(cheap // width, _BLOCKS), bytes_allow // width), _FEWEST)
            return int(min(self.max_basis, blocks) * width)
        # For a fraction, the number of components is unknown until they are found. A restart keeps half of the
        # basis, so the basis must have room for twice the components found, and for some more blocks.
        found, more = max(state.converged, k), 4 * self.width(state.fraction)
        return int(min(max(bytes_allow, _FEWEST * width, 2 * found + more), d))

    @staticmethod
    def _is_certain(state: KrylovState, values: Array, k: int) -> bool:
        """Return whether no eigenvalue above the k-th can be hidden from Q.

        A block of p columns finds p copies of a multiple eigenvalue, which is enough for k <= p. If a
        fraction of the variance is wanted, k may exceed p, and further copies may be missing. No copy is
        missing if the rest of the trace is smaller than the k-th eigenvalue, or if new random columns have
        changed neither k nor the k-th eigenvalue.
        """
        # A basis of all d columns hides nothing.
        if state.fraction is None or len(values) == len(state.block):
            return True
        last = float(values[k - 1])
        moved = abs(state.probe[1] - last)
        bound = state.progress.tol * float(values[0])
        same = state.probe[0] == k and moved <= bound
        return same or state.trace - float(values.sum()) <= last

    @staticmethod
    def _next_block(state: KrylovState, most: int) -> Array:
        """Return the next block, extended by up to `most` random columns that are orthogonal to all known columns."""
        Q, block = state.Q.columns, state.block
        known = Q.shape[1] + block.shape[1]
        # The seed depends on the size of the basis, because the same seed would repeat an earlier random block.
        random = linalg.random_block(len(Q), min(most, len(Q) - known), state.seed + known)

        def less(Y: Array) -> Array:
            for _ in range(2):
                Y = Y - Q @ (Q.T @ Y)
                Y = Y - block @ (block.T @ Y)
            return Y

        # `orth` scales short columns up to length 1, together with their rounding errors. Therefore the part along
        # the known columns is removed a second time.
        return np.hstack([block, linalg.orth(less(linalg.orth(less(random))))])

    @staticmethod
    def _wanted_count_and_residual(state: KrylovState, values: Array, residuals: Array) -> tuple[int, float]:
        """Return the number of wanted components, and the largest residual that matters."""
        k = state.k
        if state.fraction is not None:
            # A value that has not converged could still rise, and then fewer components would be enough.
            found = fraction_rank(values[: state.converged], state.trace, state.fraction)
            if found is None and len(values) < len(state.block):
                return k, np.inf
            k = found or len(values)
        sizes = state.relative_to_sampling_error(residuals, values)
        if not state.warm:
            return k, float(sizes[:k].max())
        # After a warm start, an eigenvalue within theta_j +- residual_j may belong to the first k.
        least = values[min(k, len(values)) - 1]
        upper = values[k : len(residuals)] + residuals[k:]
        rivals = sizes[k:][upper > least]
        return k, float(np.append(sizes[:k], rivals).max())


@dataclass(frozen=True, kw_only=True)
class WideKrylov(Krylov):
    """The Krylov algorithm with blocks wider than in the opening. Random columns fill up the first block."""

    @property
    def spec(self) -> str:
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return Krylov(**{**own, "oversample": AUTO}).spec

    def start(self, model: Model) -> KrylovState:
        state = super().start(model)
        more = self.width(model.n_components) - state.block.shape[1]
        # If the block is empty, the space is already invariant.
        if more <= 0 or state.block.shape[1] == 0:
            return state
        return state.with_block(self._next_block(state, more))


def _sampling_error(model: Model) -> float:
    """Return the relative error below which an eigenvalue counts as exact, because its sampling error is larger."""
    return _SAMPLING_SHARE * float(np.sqrt(2.0 / max(model.n, 1)))


def source_of_noise(private: bool) -> str:
    """Return words that name the source of the noise on answers."""
    if private:
        return "with dp, because the budget is divided before columns are known"
    return "over a channel"
