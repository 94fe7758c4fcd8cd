"""Problems with a known answer for tests and benchmarks, and LAPACK's answer to each."""

from __future__ import annotations

import errno
import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import ndtr

Array = np.ndarray[Any, Any]
Shards = list[Array]
EPS = float(np.finfo(np.float64).eps)


class StopError(Exception):
    """Raised in the middle of a run, as a power cut would."""


def stop_after(*messages: int | None, error: type[BaseException] = StopError) -> Callable[[Any], None]:
    """For `on_round`: what raises the error after each of these messages of a run."""

    def stop(session: Any) -> None:
        if session.history.count in messages:
            raise error

    return stop


def interrupt_after(*messages: int) -> Callable[[Any], None]:
    """For `on_round`: Ctrl-C after each of these messages of a run."""
    return stop_after(*messages, error=KeyboardInterrupt)


def stop_at_step(step: int) -> Callable[[Any], None]:
    """For `on_round` of a tracker: what ends the run in this step."""

    def stop(session: Any) -> None:
        if session.position.state.step == step:
            raise StopError

    return stop


def gone_on(
    run: Callable[..., Any], *given: Any, path: Any, stop: Sequence[int] | Callable[[Any], None], **asked: Any
) -> Any:
    """What a run comes to that goes on from its checkpoint: stopped after these messages, or by a function."""
    for on_round in [stop] if callable(stop) else map(stop_after, stop):
        try:
            run(*given, checkpoint=path, on_round=on_round, **asked)
        except StopError:
            continue
        raise AssertionError("The run has come to its end without a stop.")
    return run(*given, checkpoint=path, **asked)


def write_to_full_disk(*given: Any, **more: Any) -> None:
    """Fail as a write to a full disk fails. The error names no file."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Yields what tells the most memory that this block has taken so far, in bytes."""
    found: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: found[0] if found else tracemalloc.get_traced_memory()[1]
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def least_peak(run: Callable[[], object], times: int = 2) -> int:
    """Return the most memory that a run takes, in bytes, as the least of several runs.

    Python keeps names in one table for the whole process, zarr's path of each chunk among them. The table grows in one
    step when it is full, by many megabytes where a process has imported much, and hardly in two runs in a row.
    """
    peaks = []
    for _ in range(times):
        with peak_memory() as peak:
            run()
        peaks.append(peak())
    return min(peaks)


SPECTRUM = np.concatenate([[5.0, 4.0, 3.0], 1.5 * 0.9 ** np.arange(27)])  # deviations with a clear gap after three


@dataclass(frozen=True)
class Problem:
    """The rows of each client, and how many components are wanted of them."""

    shards: Shards
    k: int


@dataclass(frozen=True)
class Pooled:
    """The PCA of all rows together: all components (rows), all d variances (ddof 1), and the frame."""

    components: Array
    variances: Array
    total: float
    n: int
    mean: Array
    scale: Array | None

    def signed(self, k: int) -> Array:
        """The first k components, the largest entry of each positive."""
        V = self.components[:k]
        return V * np.sign(V[np.arange(k), np.abs(V).argmax(axis=1)])[:, None]

    def gap(self, k: int) -> float:
        """(lambda_k - lambda_{k+1}) / lambda_1."""
        following = self.variances[k] if k < len(self.variances) else 0.0
        return float((self.variances[k - 1] - following) / self.variances[0])


def pooled(shards: Sequence[Any], center: bool = True, scale: str | None = None) -> Pooled:
    """The reference: LAPACK's full SVD of the stacked rows."""
    X = np.vstack([np.asarray(s.toarray() if hasattr(s, "toarray") else s, dtype=np.float64) for s in shards])
    n, d = X.shape
    mean = X.mean(axis=0)
    mean = mean + (X - mean).mean(axis=0)
    divisor = {None: None, "std": (X - mean).std(axis=0), "max_abs": np.abs(X).max(axis=0)}[scale]
    F = X - mean if center else X
    F = F if divisor is None else F / divisor
    _, s, Vt = np.linalg.svd(F, full_matrices=n < d)
    variances = np.zeros(d)
    variances[: len(s)] = s**2 / max(n - 1, 1)
    shown = mean if center else np.zeros(d)
    return Pooled(Vt, variances, float(np.sum(F**2) / max(n - 1, 1)), n, shown, divisor)


def leading(shards: Sequence[Any], k: int = 2) -> Array:
    """The first components of all rows together."""
    return pooled(shards).components[:k]


def framed(X: Array, *, center: bool = True, scale: str | None = None) -> Array:
    """The pooled rows in the frame that a run asks for."""
    scales = {None: lambda: 1.0, "std": lambda: X.std(axis=0), "max_abs": lambda: np.abs(X).max(axis=0)}
    return np.asarray((X - (X.mean(axis=0) if center else 0.0)) / scales[scale]())


def dense(X: Any) -> Array:
    """Rows that may be sparse, as an array of double precision."""
    return np.asarray(X.todense() if hasattr(X, "todense") else X, dtype=np.float64)


def clipped(X: Array, clip: float, mean: Any = 0.0, scale: Any = 1.0) -> Array:
    """The rows in a frame, none of them longer than `clip`."""
    F = (X - mean) / scale
    norms = np.linalg.norm(F, axis=1, keepdims=True)
    return np.asarray(F * np.minimum(1.0, clip / np.where(norms > 0, norms, 1.0)))


def svd(X: Array) -> tuple[Array, Array]:
    """Singular values and right singular vectors (as columns), by LAPACK."""
    _, s, Vt = np.linalg.svd(X, full_matrices=False)
    return s, Vt.T


def sine(A: Array, B: Array) -> float:
    """The sine of the largest angle between the spans of equally many rows."""
    A, B = (np.linalg.qr(rows.T)[0].T for rows in (A, B))
    return min(1.0, float(np.linalg.norm(A - (A @ B.T) @ B, 2)))


def share_between_sites(scores: Sequence[Array]) -> Array:
    """Eta squared by an analysis of variance: the share of each column's variance that lies between the sites."""
    whole = np.vstack(scores)
    mean = whole.mean(axis=0)
    between = sum(len(own) * (own.mean(axis=0) - mean) ** 2 for own in scores)
    return np.asarray(between / ((whole - mean) ** 2).sum(axis=0))


def deal(X: Array, sizes: Sequence[int]) -> Shards:
    """The rows in order, so many to each client."""
    ends = np.cumsum(sizes)
    if ends[-1] != len(X):
        raise ValueError(f"sizes must add up to {len(X)} rows. Got {ends[-1]}.")
    return [X[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def evenly(X: Array, clients: int) -> Shards:
    """The rows in order, dealt to so many clients as evenly as can be."""
    return np.array_split(X, clients)


def rotation(d: int, seed: int) -> Array:
    """A random orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def rows(n: int, deviations: Sequence[float] | Array, seed: int) -> Array:
    """n normal rows with these standard deviations along the axes of a random basis."""
    s = np.asarray(deviations, dtype=float)
    return (np.random.default_rng([seed, 1]).standard_normal((n, len(s))) * s) @ rotation(len(s), seed).T


def shards(sizes: Sequence[int], deviations: Sequence[float] | Array, *, seed: int = 0, shift: float = 0.3) -> Shards:
    """For each client so many normal rows with these deviations by column, about a mean of its own: shift x N(0, 1)."""
    s, rng = np.asarray(deviations, dtype=float), np.random.default_rng([seed, len(sizes)])
    return [rng.standard_normal((n, len(s))) * s + shift * rng.standard_normal(len(s)) for n in sizes]


def two_lead(clients: int, d: int = 8, rows: int = 40) -> Shards:
    """So many clients with about as many rows each, of which two directions stand out."""
    return shards(range(rows, rows + clients), [4.0, 3.0, *(0.5 * 0.9 ** np.arange(d - 2))])


def three_lead(clients: int, n: int = 4000, d: int = 12) -> Shards:
    """n rows of one distribution, dealt evenly, of which three directions stand out: clipping takes little."""
    return evenly(rows(n, [1.5, 1.2, 1.0, *(0.25 * 0.9 ** np.arange(d - 3))], seed=0) + 0.2, clients)


def unequal(clients: int = 5, d: int = 10) -> Shards:
    """Clients of 20 to 60 rows with different means; every deviation is half of the one before."""
    sizes = np.random.default_rng(0).integers(20, 60, clients)
    return [X @ rotation(d, 0) for X in shards([int(n) for n in sizes], 0.5 ** np.arange(d), shift=0.1)]


def falling(n: int, d: int, *, seed: int, ratio: float = 1.6) -> Array:
    """Rows about a mean that is not zero, whose singular values fall by `ratio`: single components are comparable."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((side, d)))[0] for side in (n, d))
    return np.asarray(U * (10.0 * ratio ** -np.arange(d)) @ V.T + rng.uniform(-1, 1, d))


def three_clients(seed: int) -> Problem:
    """Clients of 2000, 200 and 50 rows, each with a spectrum and axes of its own, their means shifted by 10 N(0, 1)."""
    rng, d = np.random.default_rng([seed, 2]), 30
    shards = []
    for i, (n, decay, size) in enumerate(((2000, 0.80, 4.0), (200, 0.70, 6.0), (50, 0.90, 2.0))):
        X = rows(n, size * decay ** np.arange(d), seed=1000 * seed + i)
        shards.append(X + 10.0 * rng.standard_normal(d))
    return Problem(shards, 3)


def equal_clients(seed: int) -> Problem:
    """Equal means (exactly zero) and sizes, one spectrum."""
    shards = [rows(200, SPECTRUM, seed=seed + 10 * i) for i in range(3)]
    return Problem([X - X.mean(axis=0) for X in shards], 3)


def shifted_clients(seed: int) -> Problem:
    """One spectrum, the clients' means shifted by 10 N(0, 1)."""
    rng = np.random.default_rng([seed, 3])
    shards = evenly(rows(600, SPECTRUM, seed=seed), 3)
    return Problem([X + 10.0 * rng.standard_normal(30) for X in shards], 3)


def sign_flipped(seed: int) -> Problem:
    """X on one client and -X on the other."""
    X = rows(150, SPECTRUM, seed=seed) + 1.0
    return Problem([X, -X], 3)


def few_rows(seed: int) -> Problem:
    """A client with fewer rows than there are components, and one with a single row."""
    X = rows(303, SPECTRUM, seed=seed)
    return Problem(deal(X, (200, 100, 2, 1)), 3)


def one_client(seed: int) -> Problem:
    """Everything in one place."""
    return Problem([rows(250, SPECTRUM, seed=seed) + 2.0], 3)


def one_row_clients(seed: int) -> Problem:
    """As many clients as rows."""
    return Problem(evenly(rows(10, [6.0, 5.0, 1.0, 0.8, 0.5, 0.3, 0.2, 0.1], seed=seed), 10), 2)


def mixed(seed: int) -> Problem:
    """Small and uneven, with means that differ and a clear gap: what every algorithm can do in a few rounds."""
    rng = np.random.default_rng([seed, 4])
    X = deal(rows(150, [8.0, 6.0, 4.5, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], seed=seed), (80, 50, 20))
    return Problem([S + 0.5 * rng.standard_normal(12) for S in X], 3)


def mixed_with_gaps(seed: int = 0, share: float = 0.15) -> Shards:
    """Clients with gaps of their own; the first has no value at all in one column, and the last has no gap."""
    rng = np.random.default_rng([seed, 7])
    shards = [X.copy() for X in mixed(seed).shards]
    for X in shards[:-1]:
        X[rng.random(X.shape) < share] = np.nan
    shards[0][:, 5] = np.nan
    return shards


def separated(seed: int) -> Problem:
    """Standard deviations that halve: components can be compared one by one."""
    return Problem(deal(rows(400, 16.0 * 0.5 ** np.arange(10), seed=seed) + 1.0, (200, 150, 50)), 3)


def iid_clients(seed: int) -> Problem:
    """Four clients of 2000 rows of one distribution: what the one-shot averages are made for."""
    return Problem(evenly(rows(8000, [4.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0], seed=seed), 4), 3)


def rank_deficient(seed: int) -> Problem:
    """Rank 3 exactly, up to rounding, in 12 columns; three clients."""
    rng = np.random.default_rng([seed, 5])
    X = (rng.standard_normal((120, 3)) * [5.0, 3.0, 2.0]) @ rotation(12, seed)[:3]
    return Problem(deal(X, (60, 40, 20)), 3)


def diagonal(deviations: Sequence[float], k: int, clients: int = 3) -> Problem:
    """Rows +s_j e_j and -s_j e_j: mean zero and eigenvalues 2 s_j^2, both without any rounding; ties are exact."""
    half = np.diag(np.asarray(deviations, dtype=float))
    return Problem(evenly(np.vstack([half, -half]), clients), k)


def tied_across(seed: int = 0) -> Problem:
    """Eigenvalues 2 and 3 are equal, and 2 components are wanted: no single subspace is the right one."""
    return diagonal([4.0, 2.0, 2.0, 1.0, 0.5, 0.5, 0.25, 0.25], 2)


def tied_within(seed: int = 0) -> Problem:
    """Eigenvalues 1 to 3 are equal, and 3 components are wanted."""
    return diagonal([4.0, 4.0, 4.0, 1.0, 0.5, 0.5, 0.25, 0.25], 3)


def disjoint(seed: int) -> Problem:
    """Clients that have no feature in common: each is zero where the others are not. One direction of each leads."""
    shards = []
    for i, (n, top) in enumerate(((60, 3.0), (50, 5.0), (40, 9.0))):
        X = np.zeros((n, 12))
        X[:, 4 * i : 4 * i + 4] = rows(n, [top, 0.4, 0.3, 0.2], seed=seed + 10 * i)
        shards.append(X)
    return Problem(shards, 2)


def geometric(n: int, d: int, *, ratio: float, seed: int) -> Array:
    """The n x d matrix of the papers with singular values ratio^(1-j)."""
    return synthetic(n, d, float(ratio) ** -np.arange(d), seed=seed)


def arithmetic(n: int, d: int, *, condition: float, seed: int) -> Array:
    """The n x d matrix of the papers with singular values from 1 to 1 / condition in equal steps."""
    return synthetic(n, d, 1.0 - np.arange(d) / (d - 1) * (1.0 - 1.0 / condition), seed=seed)


def synthetic(n: int, d: int, singular: Array, *, seed: int) -> Array:
    """(U diag(s) V')' with U (d x d) and V (n x d) orthonormalized uniform(-1, 1) matrices."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.uniform(-1.0, 1.0, (side, d)))[0] for side in (d, n))
    return np.ascontiguousarray((V * singular) @ U.T)


def uneven(n: int, clients: int) -> list[int]:
    """Sizes in proportion 1 : 2 : ... : N, as in the papers; they add up to n."""
    ends = np.round(n * np.cumsum(np.arange(1, clients + 1)) / (clients * (clients + 1) / 2)).astype(int)
    return [int(size) for size in np.diff(ends, prepend=0)]


PEERS: dict[str, Callable[[int], Problem]] = {
    "equal": equal_clients,
    "shifted": shifted_clients,
    "sizes": three_clients,
    "few_rows": few_rows,
    "one_client": one_client,
    "sign_flipped": sign_flipped,
}


def loss(epsilon: float, mu: float) -> float:
    """delta of a Gaussian mechanism by the textbook form of the formula, which is accurate for moderate numbers."""
    return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def imputed(shards: Shards, fill: Array | None = None) -> Shards:
    """Gaps are the mean of their column over all clients, or what is given for each."""
    means = np.nanmean(np.vstack(shards), axis=0) if fill is None else fill
    return [np.where(np.isnan(X), means, X) for X in shards]


def turned_shards(sizes: Sequence[int], d: int, ratio: float) -> Shards:
    """Clients of such sizes whose deviations fall by `ratio`, along the axes of a random basis."""
    return [X @ rotation(d, 0) for X in shards(sizes, ratio ** np.arange(d), shift=0.1)]


def sparse_random(rng, n, d, share):
    """Sparse rows of which about this share of the entries is stored, with every version of SciPy."""
    stored = np.unique(rng.integers(0, n * d, size=round(share * n * d)))
    return scipy.sparse.csr_array((rng.random(len(stored)), (stored // d, stored % d)), shape=(n, d))
