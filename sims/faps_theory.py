"""What the FAPS paper states, measured.

Clients' halves are called one by one here, so that penalties may be as large as Assumption 6 has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca import FAPS, SSI
from sims.common import report, stepwise
from sims.common.problems import Array

CLIENTS: Final = 2
SPECTRUM: Final = np.array([1.0, 0.8, 0.3, 0.2, 0.1, 0.1, 0.05, 0.05])  # of C, of which k are wanted
K: Final = 2
ROUNDS: Final = (10, 100, 1000, 3000)
INNER: Final = 10


@dataclass(frozen=True)
class Round:
    """A round: Z before it, what each client has sent, and what each keeps after it."""

    Z: Array
    answers: list[Array]
    memories: list[dict[str, Array]]


def course(shards: list[Array], k: int, *, seed: int, beta_0: float = 0.15) -> Iterator[Round]:
    """FAPS as the paper starts it, without end: X_i = Z drawn at random. beta_0 is of each ||C_i||_2."""
    clients, memories = [stepwise.client_of(FAPS, X) for X in shards], [{} for _ in shards]
    report.ran(FAPS)
    Z = np.linalg.qr(np.random.default_rng(seed).uniform(-1.0, 1.0, (shards[0].shape[1], k)))[0]
    numbers = {"inner_steps": INNER, "inner_tol": 0.0, "beta_0": beta_0, "theta": 0.0}
    while True:
        arrays = {"Z": Z, **{name: np.array(value) for name, value in numbers.items()}}
        both = [client(arrays, memory) for client, memory in zip(clients, memories, strict=True)]
        answers, memories = [up["Y"] for up, _ in both], [dict(memory) for _, memory in both]
        yield Round(Z, answers, memories)
        Z = np.linalg.qr(sum(answers))[0]


def drawn(seed: int) -> list[Array]:
    """Clients whose rows are normal about the same covariance: they differ by sampling."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((400, len(SPECTRUM))) * np.sqrt(SPECTRUM)
    return list(np.array_split(rows / np.sqrt(len(rows)), CLIENTS))


def recovered(opts: report.Options) -> report.Found:
    """Proposition 2: C_1 from the answers of SSI, once its blocks span everything."""
    rows: list[list[object]] = [["seed", "message", "rank of the blocks", "error of C_1"]]
    for seed in opts.each():
        shards, blocks, answers = drawn(seed), list[Array](), list[Array]()
        clients, d = [stepwise.client_of(SSI, X) for X in shards], len(SPECTRUM)
        Z = np.linalg.qr(np.random.default_rng(seed).uniform(-1.0, 1.0, (d, K)))[0]
        report.ran(SSI)
        while len(blocks) <= d // K:
            both = [client({"Z": Z}, {})[0]["Y"] for client in clients]
            blocks, answers = [*blocks, Z], [*answers, both[0]]
            every, C = np.hstack(blocks), shards[0].T @ shards[0]
            guess = np.hstack(answers) @ np.linalg.pinv(every)
            error = float(np.linalg.norm(guess - C) / np.linalg.norm(C))
            rows.append([seed, len(blocks), int(np.linalg.matrix_rank(every)), report.number(error)])
            Z = np.linalg.qr(sum(both))[0]
    note = f"{CLIENTS} clients, {len(SPECTRUM)} columns, p={K}: the blocks span everything after four messages."
    return report.Found("Proposition 2: C_1 from the answers of SSI", rows, note)


def multipliers(opts: report.Options) -> report.Found:
    """Proposition 3: where FAPS ends, (7) holds with the multipliers of (8); elsewhere it does not."""
    rows: list[list[object]] = [
        ["seed", "messages", "sum of multipliers Z", "of the clients' equations", "rank of (8)"]
    ]
    for seed in opts.each():
        shards = drawn(seed)
        for messages in (1, 300):
            *_, last = (step for step, _ in zip(course(shards, K, seed=seed), range(messages), strict=False))
            cells = [report.number(value) for value in _conditions(shards, last)]
            rank = max(int(np.linalg.matrix_rank(_multiplier(X, m["X"]), tol=1e-9)) for X, m in _kept(shards, last))
            rows.append([seed, messages, *cells, rank])
    note = f"Norms of what (7) sets to 0, relative to the covariance; X_i of the clients for Z. 2 p = {2 * K}."
    return report.Found("Proposition 3: low-rank multipliers", rows, note)


def _kept(shards: list[Array], step: Round) -> list[tuple[Array, dict[str, Array]]]:
    return list(zip(shards, step.memories, strict=True))


def _multiplier(shard: Array, X: Array) -> Array:
    """(8): -PC(I - P) - (I - P)CP."""
    C, P = shard.T @ shard, X @ X.T
    N = np.eye(len(C)) - P
    return np.asarray(-P @ C @ N - N @ C @ P)


def _conditions(shards: list[Array], step: Round) -> tuple[float, float]:
    """||sum of multipliers times Z||, with Theta = 0, and the largest of the clients' equations at X_i for Z."""
    size = float(np.linalg.norm(sum(X.T @ X for X in shards)))
    pairs = _kept(shards, step)
    total = sum(_multiplier(X, memory["X"]) for X, memory in pairs) @ step.Z
    each = []
    for X, _ in pairs:
        C, Z = X.T @ X, step.Z
        each.append(float(np.linalg.norm(C @ Z - Z @ (Z.T @ C @ Z) + _multiplier(X, Z) @ Z)))
    return float(np.linalg.norm(total)) / size, max(each) / size


def mask(opts: report.Options) -> report.Found:
    """Proposition 5: what a client has sent, from its rows and from what it keeps."""
    rows: list[list[object]] = [
        ["seed", "messages", "of (20), relative", "X told by the server", "C_1 from all answers"]
    ]
    messages = 40 if opts.paper else 20
    for seed in opts.each():
        shards, worst, known = drawn(seed), 0.0, []
        for number, step in enumerate(course(shards, K, seed=seed)):
            if number == messages:
                break
            for X, Y, memory in zip(shards, step.answers, step.memories, strict=True):
                worst = max(worst, _apart(X.T @ X, step.Z, Y, memory))
            known.append((step.Z, step.answers[0], step.memories[0]["X"]))
        C = shards[0].T @ shards[0]
        rows.append([seed, messages, report.number(worst), *_guesses(C, known)])
    note = (
        "(20) is met to rounding. Whoever takes answers for C_1 Z, which they are not, errs by what the"
        " last column says;"
        " the one before is the sine between X_1 and the Z that the server knows, in the last message."
    )
    return report.Found("Proposition 5: what an answer of FAPS is", rows, note)


def _apart(C: Array, Z: Array, Y: Array, memory: dict[str, Array]) -> float:
    """How far Y is from (beta P + (I - P) C P + P C (I - P)) Z, relative to it, with P of the client's X."""
    P = memory["X"] @ memory["X"].T
    N = np.eye(len(C)) - P
    said = (float(memory["beta"]) * P + N @ C @ P + P @ C @ N) @ Z
    return float(np.linalg.norm(Y - said) / np.linalg.norm(said))


def _guesses(C: Array, known: list[tuple[Array, Array, Array]]) -> list[str]:
    Z, _, X = known[-1]
    blocks, answers = (np.hstack([seen[i] for seen in known]) for i in (0, 1))
    guess = answers @ np.linalg.pinv(blocks, rcond=1e-10)
    errors = np.linalg.norm(X - Z @ (Z.T @ X), 2), np.linalg.norm(guess - C) / np.linalg.norm(C)
    return [report.number(float(e)) for e in errors]


def worst_case(opts: report.Options) -> report.Found:
    """Theorem 8: N times the least violation of N rounds is bounded, by penalties as in Assumption 6."""
    counts = ROUNDS
    rows: list[list[object]] = [["penalty", "seed", *(f"N min, N={n}" for n in counts), "sine at the end"]]
    for label, large in (("0.15 ||C_i||", False), ("16 rho d sqrt(p) ||A||^2", True)):
        for seed in opts.each():
            shards = drawn(seed)
            sums, sines = _violations(shards, large, seed, counts[-1])
            least = np.minimum.accumulate(sums)
            cells = [report.number(float(n * least[n - 1])) for n in counts]
            rows.append([label, seed, *cells, report.number(sines)])
    note = (
        f"{CLIENTS} clients, p={K}, the gap half of the first eigenvalue; SSI takes about 20 messages to 1e-6. rho is"
        " the ratio of penalties, d the number of clients. Assumption 6 has larger terms still, with constants that the"
        " paper does not give as numbers."
    )
    return report.Found("Theorem 8: N times the least violation of N rounds", rows, note)


def _violations(shards: list[Array], large: bool, seed: int, rounds: int) -> tuple[Array, float]:
    """||(I - ZZ')CZ||_F^2 + the mean of d_i^2 before each round, and the sine that is left."""
    C, norms = sum(X.T @ X for X in shards), [float(np.linalg.norm(X, 2)) ** 2 for X in shards]
    rho = max(norms) / min(norms)
    beta_0 = 16.0 * rho * CLIENTS * np.sqrt(K) * float(np.trace(C)) / min(norms) if large else 0.15
    U = np.linalg.eigh(C)[1][:, -K:]
    found, Xs, Z = [], None, U
    for step in course(shards, K, seed=seed, beta_0=beta_0):
        Z = step.Z
        CZ = C @ Z
        apart = 0.0 if Xs is None else float(np.mean([np.linalg.norm(X @ X.T - Z @ Z.T) ** 2 for X in Xs]))
        found.append(float(np.linalg.norm(CZ - Z @ (Z.T @ CZ))) ** 2 + apart)
        Xs = [memory["X"] for memory in step.memories]
        if len(found) == rounds:
            break
    return np.array(found), float(np.linalg.norm(U - Z @ (Z.T @ U), 2))
