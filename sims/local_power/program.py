"""LocalPower as its authors' public program runs it, where the paper is silent or says something else.

The program is github.com/lx10077/LocalPower, commit ec3b99e. This file takes facts from it and no code. The readings:

- Each column is scaled to 0 .. 1 by its minimum and maximum. The paper says "between -1 and 1".
- Five columns are iterated. The error is the spectral norm of (I - V V') times the first four of them, V being the true
  five. The paper writes sin theta(Z, U_5), which has all five. The errors of UDA, WDA and DR-SVD are the Frobenius norm
  with all five columns, which can be more than 1.
- A client's matrix is A_i'A_i, not divided by its rows. Parts have ceil(n / m) rows, m = max(ceil(n / 1000), 3).
- A client makes p products, with a QR factorisation after each but the last one, and sends the last product. The turn
  (or the signs) comes from the bases before the last product, against that of the first client.
- QR is LAPACK's, whose R has diagonal entries of either sign. A client's columns so change their signs from message to
  message, which is what makes the variant without alignment unstable.
- The number of messages T is a list by data set; p is halved after every message if it decays.

All methods know the rows by A_i'A_i only, so a problem is a stack of these matrices, and one product is one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

from sims.common import report
from sims.common.problems import Array
from sims.local_power.sets import loaded

MEASURED: Final = 4  # columns whose error the program measures
COLUMNS: Final = 5  # columns that it iterates
ALIGNMENTS: Final = ("OPT", "sign", "vanilla")
DONE: Final = ("DR-SVD", "UDA", "WDA")
OTHERWISE: Final = 30  # messages on a set that the program does not have
# Messages T: of the tables (one-shot.py), of Figs. 5 to 7 (plot_p.py), 8 to 10 (plot_decay.py), 11 and 12 (plot_m.py).
_NAMES: Final = (
    "a9a", "abalone", "acoustic", "aloi", "combined", "connect4", "covtype", "housing", "ijcnn1", "mnist", "poker",
    "space-ga", "splice", "w8a", "msd",
)  # fmt: skip
MESSAGES: Final = {
    name: dict(zip(_NAMES, counts, strict=True))
    for name, counts in {
        "tables": (30, 15, 30, 30, 40, 40, 30, 15, 70, 30, 20, 15, 30, 20, 20),
        "steps": (30, 20, 30, 40, 40, 40, 30, 20, 100, 30, 20, 20, 40, 20, 20),
        "decay": (30, 15, 30, 30, 40, 40, 30, 15, 90, 30, 20, 15, 30, 20, 20),
        "clients": (30, 20, 30, 30, 40, 40, 30, 20, 70, 30, 20, 20, 30, 20, 20),
    }.items()
}
WIDE: Final = 200  # columns from which a few eigenvectors of many are found faster by Lanczos' method
NARROW: Final = 60  # columns up to which all eigenvalues of a matrix are found as fast as its largest
MOST: Final = 2 * 2**30  # bytes of clients' matrices that a set keeps at a time


@dataclass(frozen=True, eq=False)
class Posed:
    """The matrices A_i'A_i of all clients (m x d x d), their sum, its leading eigenvectors, and the common start."""

    grams: Array
    whole: Array
    true: Array
    start: Array


@dataclass(frozen=True)
class Errors:
    """Before each message: as the program measures, and by all columns, as the paper has it; a single one at the end of
    a one-shot method.
    """

    measured: Array
    printed: Array


@dataclass(frozen=True)
class Variant:
    """LocalPower with one alignment, p local steps, and p halved after every message or not."""

    align: str
    p: int
    decay: bool = False

    @property
    def known(self) -> Variant:
        """Itself, or of those with the same course one: with single steps there is nothing to align or to halve."""
        return self if self.p > 1 else Variant("OPT", 1)


@dataclass(eq=False)
class Case:
    """A data set and all that the program has run on it."""

    name: str
    X: Array
    _posed: dict[tuple[int, int], Posed] = field(default_factory=dict)
    _known: dict[tuple[Variant, int, int], Errors] = field(default_factory=dict)
    _once: dict[tuple[str, int], Errors] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Array:
        """The rows as the program scales them."""
        return scaled(self.X)

    @property
    def clients(self) -> int:
        """The program's number of clients."""
        return max(-(-len(self.X) // 1000), 3)

    def messages(self, of: str) -> int:
        """How many messages the program sends on this set."""
        return MESSAGES[of].get(self.name, OTHERWISE)

    def posed(self, seed: int, clients: int | None = None) -> Posed:
        """The rows scaled, shuffled by the seed and dealt."""
        key = (seed, clients or self.clients)
        if key not in self._posed:
            size = 8 * key[1] * self.X.shape[1] ** 2
            while self._posed and size * (len(self._posed) + 1) > MOST:
                del self._posed[next(iter(self._posed))]
            self._posed[key] = pose(self.rows, key[1], seed)
        return self._posed[key]

    def run(self, variants: Sequence[Variant], seed: int, clients: int | None = None) -> list[Errors]:
        """The errors of each before each message; those that have not run yet run side by side."""
        count = clients or self.clients
        waiting = [v for v in dict.fromkeys(v.known for v in variants) if (v, seed, count) not in self._known]
        for variant in variants:
            report.ran(f"program: {variant.align}")
        if waiting:
            report.progress(f"{self.name}, seed {seed}, {count} clients: {len(waiting)} variants")
            messages = max(self.messages(of) for of in MESSAGES)
            found = run(self.posed(seed, count), waiting, messages)
            self._known |= {(v, seed, count): errors for v, errors in zip(waiting, found, strict=True)}
        return [self._known[v.known, seed, count] for v in variants]

    def finals(
        self, variants: Sequence[Variant], seeds: Iterable[int], clients: int | None = None
    ) -> tuple[list[Array], list[Array]]:
        """The final errors of each in every seed: as the program measures, and by all columns."""
        at = self.messages("tables") - 1
        found = [self.run(variants, seed, clients) for seed in seeds]
        columns = list(zip(*found, strict=True))
        return (
            [np.array([errors.measured[at] for errors in column]) for column in columns],
            [np.array([errors.printed[at] for errors in column]) for column in columns],
        )

    def one_shot(self, method: str, seed: int) -> Errors:
        """The error of DR-SVD, UDA or WDA."""
        report.ran(f"program: {method}")
        if (method, seed) not in self._once:
            report.progress(f"{self.name}, seed {seed}: {method}")
            posed = self.posed(seed)
            if method == "DR-SVD":
                found = {method: reduced(posed.whole, np.random.default_rng([seed, 1]))}
            else:
                found = dict(zip(("UDA", "WDA"), averaged(posed), strict=True))
            for name, V in found.items():
                outside = V - posed.true @ (posed.true.T @ V)
                errors = np.linalg.norm(outside), np.linalg.norm(outside, 2)
                self._once[name, seed] = Errors(*(np.array([error]) for error in errors))
        return self._once[method, seed]

    def eta(self, seed: int, clients: int) -> float:
        """max_i ||M_i - M|| / ||M||, M_i = A_i'A_i / n_i."""
        posed = self.posed(seed, clients)
        sizes, n = part_sizes(len(self.X), clients), len(self.X)
        whole = posed.whole / n
        apart = [_norm(C / size - whole) for C, size in zip(posed.grams, sizes, strict=True) if size]
        return max(apart) / _norm(whole)


def cases(opts: report.Options) -> list[Case]:
    """The user's files, or the paper's sets where they are found, or else a synthetic one."""
    found = []
    for name, X in loaded(opts):
        known = _CASES.get((name, id(X)))
        found.append(known or _CASES.setdefault((name, id(X)), Case(name, X)))
    return found


_CASES: Final[dict[tuple[str, int], Case]] = {}  # the sets are kept for good by `loaded`, so an id stays what it is


def scaled(X: Array) -> Array:
    """Each column to 0 .. 1 by its minimum and maximum, a constant one to 0."""
    low, width = X.min(axis=0), np.ptp(X, axis=0)
    return np.asarray((X - low) / np.where(width > 0.0, width, 1.0))


def by_peaks(X: Array) -> Array:
    """Each column divided by its largest |x|: between -1 and 1, as the paper says."""
    peak = np.abs(X).max(axis=0)
    return np.asarray(X / np.where(peak > 0.0, peak, 1.0))


def part_sizes(n: int, clients: int) -> list[int]:
    """Parts of ceil(n / m) rows in order: the last ones are smaller, or empty."""
    size = -(-n // clients)
    return [max(0, min(size, n - i * size)) for i in range(clients)]


def pose(X: Array, clients: int, seed: int) -> Posed:
    """The rows shuffled by the seed and dealt, and the true answer."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    start = np.linalg.qr(rng.standard_normal((X.shape[1], COLUMNS)))[0]
    ends = np.cumsum(part_sizes(len(X), clients))
    grams = np.empty((clients, X.shape[1], X.shape[1]))
    for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        part = X[order[begin:end]]
        grams[i] = part.T @ part
    whole = grams.sum(axis=0)
    return Posed(grams, whole, _leading(whole)[1], start)


def run(posed: Posed, variants: Sequence[Variant], messages: int, *, positive: bool = False) -> list[Errors]:
    """The errors before each of so many messages; with `positive` every R has a positive diagonal.

    All variants go message by message together: then one pass over the clients' matrices serves all of them.
    """
    blocks, steps = [posed.start] * len(variants), [v.p for v in variants]
    found: list[list[tuple[float, float]]] = [[] for _ in variants]
    for _ in range(messages):
        for errors, Z in zip(found, blocks, strict=True):
            outside = Z - posed.true @ (posed.true.T @ Z)
            errors.append((float(np.linalg.norm(outside[:, :MEASURED], 2)), float(np.linalg.norm(outside, 2))))
        answers = _answers(posed, blocks, steps, [v.align for v in variants], positive)
        blocks = [orth(Y, positive) for Y in answers]
        steps = [max(1, p // 2) if v.decay else p for v, p in zip(variants, steps, strict=True)]
    return [Errors(*np.array(errors).T) for errors in found]


def _answers(
    posed: Posed, blocks: Sequence[Array], steps: Sequence[int], aligns: Sequence[str], positive: bool
) -> list[Array]:
    """What all clients send together: the sum of their last products, aligned by the bases before it."""
    answers = [posed.whole @ Z if p == 1 else Z for Z, p in zip(blocks, steps, strict=True)]
    several = [i for i, p in enumerate(steps) if p > 1]
    bases = {i: np.broadcast_to(blocks[i], (len(posed.grams), *blocks[i].shape)) for i in several}
    for step in range(1, max(steps) + 1):
        at_work = [i for i in several if steps[i] >= step]
        if not at_work:
            break
        products = np.split(posed.grams @ np.concatenate([bases[i] for i in at_work], axis=2), len(at_work), axis=2)
        for i, Y in zip(at_work, products, strict=True):
            if step < steps[i]:
                bases[i] = orth(Y, positive)
            else:
                answers[i] = aligned(Y, bases[i], aligns[i]).sum(axis=0)
    return answers


def aligned(products: Array, bases: Array, align: str) -> Array:
    """Each client's last product, turned as its basis before it has to be turned to the first client's."""
    if align == "OPT":
        U, _, Vt = np.linalg.svd(bases.transpose(0, 2, 1) @ bases[0])
        return np.asarray(products @ (U @ Vt))
    if align == "sign":
        return np.asarray(products * np.sign(np.einsum("dk,mdk->mk", bases[0], bases))[:, None, :])
    return products


def averaged(posed: Posed) -> tuple[Array, Array]:
    """UDA: the leading eigenvectors of the sum of the clients' projections; WDA: weighted by their eigenvalues."""
    plain, weighted = np.zeros_like(posed.whole), np.zeros_like(posed.whole)
    for C in posed.grams:
        values, V = _leading(C)
        plain += V @ V.T
        weighted += (V * values) @ V.T
    return _leading(plain)[1], _leading(weighted)[1]


def reduced(whole: Array, rng: np.random.Generator) -> Array:
    """DR-SVD: a power iteration of k + (d - k) // 4 random columns, and the leading directions of the rows in them."""
    d = len(whole)
    values, V = np.linalg.eigh(whole)
    rows = np.sqrt(np.maximum(values, 0.0))[:, None] * V.T  # as good as the rows themselves: the same A'A
    Y = rows @ rng.standard_normal((d, MEASURED + (d - MEASURED) // 4))
    Q = np.linalg.qr(rows @ (rows.T @ Y))[0]
    return np.asarray(np.linalg.svd(Q.T @ rows)[2][:COLUMNS].T)  # all of V: of fewer than five columns any fill up


def orth(Y: Array, positive: bool = False) -> Array:
    """The Q of each block by Householder's reflections, with the signs of LAPACK; or those of a positive diagonal of R.

    `numpy.linalg.qr` takes one block after the other, most of the time for its calls: here all go at once.
    """
    if Y.ndim == 2:
        return np.asarray(orth(Y[None], positive)[0])
    R, (m, d, k) = Y.copy(), Y.shape
    vectors, weights, signs = np.zeros((k, m, d)), np.zeros((k, m)), np.ones((m, k))
    for j in range(k):
        x = R[:, j:, j]
        rest = np.einsum("md,md->m", x[:, 1:], x[:, 1:])
        first = x[:, 0]
        beta = np.where(rest > 0.0, -np.copysign(np.sqrt(first**2 + rest), first), first)
        lead = np.where(rest > 0.0, first - beta, 1.0)
        v = x / lead[:, None]
        v[:, 0] = 1.0
        weights[j] = np.where(rest > 0.0, -lead / np.where(beta == 0.0, 1.0, beta), 0.0)
        vectors[j, :, j:] = v
        signs[:, j] = np.where(beta < 0.0, -1.0, 1.0)
        R[:, j:, j:] -= (weights[j, :, None] * v)[:, :, None] * (v[:, None, :] @ R[:, j:, j:])
    Q = np.zeros((m, d, k))
    Q[:, range(k), range(k)] = 1.0
    for j in reversed(range(k)):
        v = vectors[j]
        Q -= (weights[j, :, None] * v)[:, :, None] * (v[:, None, :] @ Q)
    return np.asarray(Q * signs[:, None, :]) if positive else Q


def _leading(C: Array) -> tuple[Array, Array]:
    """The leading eigenvalues and eigenvectors, largest first."""
    if len(C) <= WIDE:
        values, V = eigh(C, subset_by_index=(len(C) - COLUMNS, len(C) - 1))
    else:
        values, V = eigsh(C, k=COLUMNS, which="LA", v0=np.ones(len(C)))
    order = np.argsort(values)[::-1]
    return values[order], V[:, order]


def _norm(C: Array) -> float:
    """The spectral norm of a symmetric matrix, to all digits that are printed."""
    if len(C) <= NARROW:
        return float(np.abs(np.linalg.eigvalsh(C)).max())
    return float(abs(eigsh(C, k=1, which="LM", v0=np.ones(len(C)), tol=1e-8, return_eigenvectors=False)[0]))
