"""Test problems with a known answer, how their rows are dealt to clients, and the course of a run on them.

Counting. One message of the server to all clients, answered, is one round here, and all tables count the same thing:
messages that carried a product with C, the opening included, the closing Rayleigh-Ritz message not (it changes no
subspace). The error after m messages is that of the basis a run would return if it ended there. SSI, and LocalPower
once it takes single steps, return the block whose product they have just received; the power step that this product
allows shows one message later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from flower_pca import DRSVD, UDA, WDA, DataError, History, make, simulate
from sims.common import report

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = Any  # n x d: a numpy array of real numbers, or a scipy sparse one
Measure: TypeAlias = Callable[["Problem", Array], float]

_WIDEST: Final = 5000  # columns up to which the reference forms d x d matrices


@dataclass(frozen=True, eq=False)
class Problem:
    """The rows of each client with what is asked of them, and the answer by LAPACK.

    Attributes
    ----------
    shards : list of array-like
        The rows of each client.
    k : int
        How many components are wanted.
    center, scale
        The frame, as `flower_pca.simulate` takes it.
    C : ndarray
        X'X of all rows in that frame, d x d.
    values : ndarray
        All its eigenvalues, largest first.
    basis : ndarray
        The eigenvectors of the first k, d x k.
    sizes : list of int
        The rows that each client had before `pose` condensed them.
    """

    shards: list[Rows]
    k: int
    center: bool
    scale: str | None
    C: Array
    values: Array
    basis: Array
    sizes: list[int]

    @property
    def n(self) -> int:
        """Rows of all clients together."""
        return sum(self.sizes)

    @property
    def d(self) -> int:
        """Columns."""
        return len(self.C)

    def condensed(self) -> Problem:
        """The same problem with each client's rows as the R of their QR factors: the same X'X, in less time.

        Only in the frame that rows come in: centring and scaling need the rows themselves.
        """
        if self.center or self.scale is not None:
            raise ValueError("rows to be centred or scaled cannot be condensed")
        dense = (np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64) for X in self.shards)
        shards = [np.linalg.qr(X, mode="r") if X.shape[0] > X.shape[1] else X for X in dense]
        return replace(self, shards=shards)

    def pooled(self) -> Problem:
        """The same problem on one client: for algorithms whose messages are sums, in less time."""
        whole = replace(self, shards=[np.vstack([X.toarray() if hasattr(X, "toarray") else X for X in self.shards])])
        return whole.condensed()


def pose(shards: Sequence[Rows], *, k: int, center: bool = False, scale: str | None = None) -> Problem:
    """The problem with these shards, solved."""
    d = shards[0].shape[1]
    if not k < d <= _WIDEST:
        raise DataError(f"The columns must be more than k={k}, at most {_WIDEST}. Got {d}. Choose other data.")
    C = sum(_grams(shards, center, scale), np.zeros((d, d)))
    values, V = np.linalg.eigh(C)
    sizes = [X.shape[0] for X in shards]
    return Problem(list(shards), k, center, scale, C, values[::-1], V[:, : -k - 1 : -1], sizes)


def heterogeneity(problem: Problem) -> float:
    """How far a client's covariance is from that of all: eta = max_i ||C_i / n_i - C / n||_2 / ||C / n||_2."""
    whole = problem.C / problem.n
    grams = _grams(problem.shards, problem.center, problem.scale)
    apart = (np.abs(np.linalg.eigvalsh(C / n - whole)).max() for C, n in zip(grams, problem.sizes, strict=True))
    return float(max(apart)) * problem.n / float(problem.values[0])


def geometric(d: int, xi: float) -> Array:
    """s_j = xi^(1-j): singular values that fall by the same factor."""
    return np.asarray(xi ** -np.arange(d, dtype=np.float64))


def arithmetic(d: int, kappa: float) -> Array:
    """s_j = 1 - (j-1)/(d-1) (1 - 1/kappa): singular values that fall by the same amount, from 1 to 1/kappa."""
    return np.linspace(1.0, 1.0 / kappa, d)


def synthetic(n: int, spectrum: Array, seed: int) -> Array:
    """The rows of (U diag(s) V')', n x d, U and V orthonormalised matrices of uniform(-1, 1) numbers."""
    rng, d = np.random.default_rng(seed), len(spectrum)
    U = np.linalg.qr(rng.uniform(-1.0, 1.0, (d, d)))[0]
    V = np.linalg.qr(rng.uniform(-1.0, 1.0, (n, d)))[0]
    return np.asarray((V * spectrum) @ U.T)


def shuffled(X: Rows, seed: int) -> Rows:
    """The rows in an order drawn by the seed."""
    return X[np.random.default_rng(seed).permutation(X.shape[0])]


def deal(X: Rows, sizes: Sequence[int]) -> list[Rows]:
    """The rows in order, so many to each client."""
    ends = np.cumsum(sizes)
    return [X[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def evenly(X: Rows, clients: int) -> list[Rows]:
    """The rows in order, dealt to so many clients as evenly as can be."""
    base, rest = divmod(X.shape[0], clients)
    return deal(X, [base + (i < rest) for i in range(clients)])


def sin_theta(problem: Problem, Z: Array) -> float:
    """||(I - ZZ')U||_2, the sine of the largest angle to the true space."""
    U = problem.basis
    return min(float(np.linalg.norm(U - Z @ (Z.T @ U), 2)), 1.0)


def rel_sv(problem: Problem, Z: Array) -> float:
    """||s(Z) - s||_2 / ||s||_2, s(Z) the square roots of the eigenvalues of Z'CZ, s the true singular values."""
    s = np.sqrt(np.maximum(np.linalg.eigvalsh(Z.T @ problem.C @ Z)[::-1][: problem.k], 0.0))
    true = np.sqrt(problem.values[: problem.k])
    return float(np.linalg.norm(s - true) / np.linalg.norm(true))


def trace(
    algorithm: str, problem: Problem, *, measure: Measure, seed: int, messages: int, target: float = 0.0
) -> Array:
    """The error after each message, up to `messages` of them or until it is at most `target`.

    An algorithm that comes to an end of its own before that (an invariant space, residuals at rounding, one shot)
    leaves a shorter curve.
    """
    errors: list[float] = []

    def watch(session: Watched) -> None:
        Z = session.estimate()
        if session.history[-1].stage == "ritz" or Z is None:
            raise EnoughError
        errors.append(measure(problem, Z))
        if errors[-1] <= target or len(errors) >= messages:
            raise EnoughError

    chosen = make(algorithm)
    report.ran(algorithm)
    if not isinstance(chosen, UDA | WDA | DRSVD):
        chosen = make(chosen, tol=0.0, patience=10 * messages, max_rounds=10 * messages)
    with suppress(EnoughError):
        simulate(
            chosen,
            problem.shards,
            n_components=problem.k,
            center=problem.center,
            scale=problem.scale,
            seed=seed,
            on_round=watch,
        )
    return np.array(errors)


def rounds_to(curve: Array, target: float) -> int | None:
    """Messages until the error is at most the target; None if it never is."""
    reached = np.flatnonzero(curve <= target)
    return int(reached[0]) + 1 if len(reached) else None


class Watched(Protocol):
    """What `flower_pca.simulate` hands to its callback, as far as it is looked at here."""

    @property
    def history(self) -> History:
        """The rounds so far."""
        ...

    def estimate(self) -> Array | None:
        """The basis as it stands."""
        ...


class EnoughError(Exception):
    """Leaves a run from its callback: all that was to be seen of it has been seen."""


def _grams(shards: Sequence[Rows], center: bool, scale: str | None) -> Iterator[Array]:
    """Each client's X'X in the common frame; scale is None or "max_abs"."""
    n = sum(X.shape[0] for X in shards)
    mean = sum(np.asarray(X.sum(axis=0, dtype=np.float64)).ravel() for X in shards) / n if center else None
    peak = np.max([_peak(X) for X in shards], axis=0) if scale == "max_abs" else np.ones(shards[0].shape[1])
    divisor = np.where(peak > 0.0, peak, 1.0)
    for X in shards:
        if isinstance(X, np.ndarray):
            rows = X.astype(np.float64)
            rows = (rows if mean is None else rows - mean) / divisor
            yield rows.T @ rows
        else:
            S = X.astype(np.float64)
            gram = np.asarray((S.T @ S).toarray())
            if mean is not None:
                sums = np.asarray(S.sum(axis=0)).ravel()
                gram += X.shape[0] * np.outer(mean, mean) - np.outer(sums, mean) - np.outer(mean, sums)
            yield gram / np.outer(divisor, divisor)


def _peak(X: Rows) -> Array:
    low, high = X.min(axis=0), X.max(axis=0)
    if not isinstance(X, np.ndarray):
        low, high = low.toarray().ravel(), high.toarray().ravel()  # one-dimensional only of a sparse array
    return np.asarray(np.maximum(high.astype(np.float64), -low.astype(np.float64)))
