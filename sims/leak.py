"""What a server learns of one client, message by message: `python -m sims.leak`.

Figure 1 of Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022: the
server solves for C_1 = X_1'X_1 from the blocks it has sent and the answers it has seen. In the paper's size d = 1000,
n = 10000, p = 100. A table of all algorithms follows, with a sentence on each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from scipy.linalg import lstsq

from flower_pca import make, simulate
from flower_pca.audit import Audit, audit
from flower_pca.registry import ALGORITHMS
from sims.common import problems, report

TARGET: Final = 1e-5
PAPER: Final = (1000, 10_000, 100)  # d, n, p
SMALL: Final = (200, 2000, 20)
SIZES: Final = (100, 200, 300, 400, 500)  # columns of Fig. 1b in small size
LARGE: Final = (1000, 2000, 3000, 4000, 5000)  # and in the paper's
WIDE: Final = 3000  # columns from which on fewer messages are looked at, as each look takes minutes
CLIENTS: Final = 2
BEYOND: Final = (0, 1, 2, 5)  # messages after d / p at which the attack of Fig. 1b is looked at
CUTOFF: Final = 1e-12  # of the strongest direction of the blocks, below which one is left out
OTHER: Final = (200, 400, 600)  # columns of Fig. 1b on other rows and by other solvers
LATE, LONG = 100, 200  # and once more; and the messages after which PCA counts as far from converged
Attack: TypeAlias = Callable[[problems.Array, problems.Array], tuple[int, float]]
RANDOM: Final[Mapping[str, Callable[[np.random.Generator, tuple[int, int]], problems.Array]]] = {  # entries of rows
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform, -1 to 1": lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
    "uniform, 0 to 1": lambda rng, shape: rng.uniform(0.0, 1.0, shape),
    "-1 or 1": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
}
# Normal rows have no gap to speak of: there ssi and faps are stopped long before they converge.
FLAT: Final = (
    "ssi(oversample=0, max_rounds=40)",
    "krylov(oversample=0, tol=1e-7)",
    "faps(penalty='paper', max_rounds=40)",
)
FALLING: Final = ("ssi(oversample=0, tol=1e-6)", "krylov(oversample=0, tol=1e-7)", "faps(penalty='paper', tol=1e-5)")
SENTENCES: Final = {
    "krylov": "Every answer is C_i times a block: C_i is told when the blocks span everything, in d / p messages.",
    "sparse_pca": "As ssi; its blocks have few columns of the data each, so C_i is told on these alone.",
    "ssi": "As krylov; as its blocks turn into one another, what is told beyond d / p messages adds little.",
    "local_power": "A block of the client's own and its product: C_i on its leading space, from the first round.",
    "faps": "No equations that add up to C_i; the opening and the closing message tell C_i Z, 2 p columns.",
    "uda": "The client's own leading eigenvectors, exactly; with the opening, their eigenvalues too.",
    "wda": "The client's own leading eigenvectors and eigenvalues, exactly.",
    "dist_pca": "As uda, and as many of them as are asked for.",
    "median_pca": "As uda.",
    "dr_svd": "Two wide products: (d - k) / 4 columns of C_i each time, far more per message than ssi.",
    "covariance": "Without noise, C_i itself in one message.",
    "fed_oapm": "As ssi, where the server hears single answers; over the air it hears noisy sums only.",
    "consensus_rpca": "Products of the rows less their far entries: C_i on the common low-rank space.",
    "dcf_pca": "A block that the client has moved by its own gradient: its share of the common space.",
    "per_pca": "A block moved by C_i times it: C_i on the shared space; from start and closing, the own space.",
    "exact_per_pca": "C_i times the shared space, less what lies in the client's own; the closing tells that too.",
    "triple_pca": "The same of its rows without their far entries.",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the command line names."""
    report.main(argv, room="leak", about=__doc__ or "", experiments=EXPERIMENTS, seeds=SEEDS)


def fig1a(given: report.Options) -> report.Found:
    """The attack beside the convergence of PCA, message by message."""
    d, n, p = PAPER if given.paper else SMALL
    rows: list[list[object]] = [
        ["data", "algorithm", "messages", "C_1 to 1e-5", "PCA to 1e-5", "C_1 at the end", "outside, at the end"]
    ]
    panels: dict[str, report.Curves] = {}
    seeds = list(given.each())
    for kind, algorithms in (("normal", FLAT), ("geometric", FALLING)):
        for algorithm in algorithms:
            report.ran(algorithm)
            audits = []
            for seed in seeds:
                run = partial(_drawn, algorithm, kind, (d, n, p), seed)
                audits.append(given.once(f"fig1a: {kind}, {algorithm}, draw {seed}", run))
            rows.append([kind, algorithm, *_cells(algorithm, audits)])
            panels[f"{kind}: {algorithm}"] = curves(audits[0])
    note = (
        "Messages, the opening included: the least and the most of the draws, of errors likewise. PCA: "
        "||(I - ZZ')CZ||_F / ||CZ||_F. Outside: error of (I - ZZ')C_1 Z. Curves are those of the first draw."
    )
    title = f"Fig. 1a: d={d}, n={n}, p={p}, {CLIENTS} clients"
    drawing = report.Drawing(title, panels, error="relative error", along="message")
    return report.Found(title, rows, note, drawing, stated=given.seeds > 1)


def _rows(kind: str, n: int, d: int, seed: int) -> problems.Array:
    if kind == "normal":
        return np.random.default_rng(seed).standard_normal((n, d))
    return problems.synthetic(n, problems.geometric(d, 1.01), seed=seed)


def _drawn(algorithm: str, kind: str, size: tuple[int, int, int], seed: int) -> Audit:
    """What the server learns of the first client in one draw."""
    d, n, p = size
    return audited(algorithm, _rows(kind, n, d, seed), p)


def audited(algorithm: str, X: problems.Array, p: int) -> Audit:
    """What the server learns of the first client."""
    return audit(algorithm, problems.evenly(X, CLIENTS), n_components=p, center=False, clients=(0,))


def _cells(algorithm: str, audits: Sequence[Audit]) -> list[str]:
    """Over the draws: messages, those until either is done, and what is told at the end."""
    name = make(algorithm).name
    messages = [len(seen.result.history) for seen in audits]
    outside = [next(leak.outside for leak in reversed(seen.leaks) if leak.stage == name) for seen in audits]
    return [
        report.span(messages),
        _until([seen.messages_to(TARGET) for seen in audits], min(messages)),
        _until([seen.converged_at(TARGET) for seen in audits], min(messages)),
        report.span([seen.leaks[-1].error for seen in audits], report.number),
        report.span(outside, report.number),
    ]


def _until(reached: Sequence[int | None], messages: int) -> str:
    """The messages until then, of all draws; where one has not come so far, more than it has taken."""
    return f"> {messages}" if None in reached else report.span(reached)


def fig1b(given: report.Options) -> report.Found:
    """Messages until either is done, as columns grow in number."""
    _, n, p = PAPER if given.paper else SMALL
    sizes = LARGE if given.paper else SIZES
    heads = [f"{what} after {m}" for m in (f"d / p + {BEYOND[-1]}", LATE) for what in ("rank", "error")]
    rows: list[list[object]] = [["d", "d / p", "C_1 to 1e-5", *heads, "PCA to 1e-5"]]
    seeds = list(given.each())
    for d in sizes:
        looks = sorted({*(d // p + beyond for beyond in BEYOND[-1 if d > WIDE else 0 :]), LATE})
        messages = LATE if d > WIDE else LONG
        runs = []
        for seed in seeds:
            run = partial(_watched, (d, n, p), looks, messages, seed)
            runs.append(given.once(f"fig1b: d={d}, draw {seed}", run))
        cells = [_known([told for told, _ in runs], looks)]
        for m in (d // p + BEYOND[-1], LATE):
            cells.append(report.span([told[m][0] for told, _ in runs]))
            cells.append(report.span([told[m][1] for told, _ in runs], report.number))
        rows.append([d, d // p, *cells, _until([done for _, done in runs], messages)])
    note = (
        f"SSI on normal rows; messages, the opening included, and errors: the least and the most of the draws. C_1 by "
        f"least norm, looked at after d / p + {BEYOND} and after {LATE}, of more than {WIDE} columns only after "
        f"d / p + {BEYOND[-1]} and {LATE}; rank: of all blocks so far, without directions fainter than 1e-12 of the "
        "strongest."
    )
    return report.Found(f"Fig. 1b: n={n}, p={p}", rows, note, stated=given.seeds > 1)


def _known(draws: Sequence[dict[int, tuple[int, float]]], looks: Sequence[int]) -> str:
    """After which messages C_1 is known, of all draws; it may have been at one before that was not looked at."""
    found = [next((m for m in looks if told[m][1] <= TARGET), None) for told in draws]
    if None in found:
        return f"> {looks[-1]}"
    reached = {m for m in found if m}
    before = (max((m for m in looks if m < first), default=first - 1) for first in reached)
    return report.span([min(before) + 1, max(reached)])


def others(given: report.Options) -> report.Found:
    """Fig. 1b on rows that are random in other ways, and by other solvers of the same equations."""
    _, n, p = SMALL
    solvers: dict[str, Attack] = {
        f"least norm, to {CUTOFF:g}": attacked,
        "least norm, to 3e-16": partial(attacked, cutoff=3e-16),
        "Prop. 2 as printed": printed,
    }
    first, *rest = solvers
    cases = [*((kind, first) for kind in RANDOM), *(("normal", solver) for solver in rest)]
    heads = [f"{what} after {m}" for m in (f"d / p + {BEYOND[-1]}", LATE) for what in ("rank", "error")]
    rows: list[list[object]] = [["entries", "solver", "d", "d / p", *heads]]
    for kind, solver in cases:
        for d in OTHER if given.paper else OTHER[:-1]:
            looks, found = [d // p + BEYOND[-1], LATE], []
            for seed in given.each():
                shards = problems.evenly(RANDOM[kind](np.random.default_rng(seed), (n, d)), CLIENTS)
                found.append(watched(shards, p, looks=looks, messages=LATE, attack=solvers[solver])[0])
            cells = []
            for m in looks:
                cells.append(report.span([told[m][0] for told in found]))
                cells.append(report.span([told[m][1] for told in found], report.number))
            rows.append([kind, solver, d, d // p, *cells])
    note = (
        "SSI; ranks of the blocks and errors of C_1: the least and the most of the draws. Least norm, to 1e-12: "
        "without directions of the blocks that are fainter than this part of the strongest. Prop. 2 as printed: "
        "YZ'(ZZ')^-1, with all blocks in Z and all answers in Y."
    )
    title = f"Fig. 1b by other rows and solvers: n={n}, p={p}"
    return report.Found(title, rows, note, stated=given.seeds > 1)


def watched(
    shards: Sequence[problems.Array], p: int, *, looks: Sequence[int], messages: int, attack: Attack | None = None
) -> tuple[dict[int, tuple[int, float]], int | None]:
    """A run of SSI: what is told of C_1 after the messages to be looked at, and the one with PCA at 1e-5, if any."""
    C, blocks, told, done = sum(X.T @ X for X in shards), list[problems.Array](), dict[int, tuple[int, float]](), []

    def watch(session: problems.Watched) -> None:
        Z, m = session.estimate(), len(session.history)
        if Z is None:
            return
        Y = C @ Z
        if not done and np.linalg.norm(Y - Z @ (Z.T @ Y)) <= TARGET * np.linalg.norm(Y):
            done.append(m)
        if m <= looks[-1]:
            blocks.append(Z)
        if m in looks:
            told[m] = (attack or attacked)(np.hstack(blocks), shards[0])
        if done and m >= looks[-1]:
            raise problems.EnoughError

    with suppress(problems.EnoughError):
        report.ran("ssi(oversample=0)")
        chosen = make("ssi(oversample=0)", tol=0.0, max_rounds=messages, patience=messages)
        simulate(chosen, shards, n_components=p, center=False, on_round=watch)
    return told, done[0] if done else None


def _watched(
    size: tuple[int, int, int], looks: Sequence[int], messages: int, seed: int
) -> tuple[dict[int, tuple[int, float]], int | None]:
    """The same of normal rows drawn by the seed."""
    d, n, p = size
    shards = problems.evenly(np.random.default_rng(seed).standard_normal((n, d)), CLIENTS)
    return watched(shards, p, looks=looks, messages=messages)


def attacked(Z: problems.Array, X: problems.Array, cutoff: float = CUTOFF) -> tuple[int, float]:
    """The rank of the blocks, and the error of the Phi of least norm with Phi Z = X'XZ, as a guess of X'X."""
    Phi, _, rank, _ = lstsq(Z.T, (X.T @ (X @ Z)).T, cond=cutoff, lapack_driver="gelsy", check_finite=False)
    C = X.T @ X
    return int(rank), float(np.linalg.norm(Phi - C) / np.linalg.norm(C))


def printed(Z: problems.Array, X: problems.Array) -> tuple[int, float]:
    """The rank of ZZ', and the error of the guess by the formula of Proposition 2."""
    C = X.T @ X
    Phi = np.linalg.solve(Z @ Z.T, Z @ (C @ Z).T)
    return int(np.linalg.matrix_rank(Z @ Z.T)), float(np.linalg.norm(Phi - C) / np.linalg.norm(C))


def table(given: report.Options) -> report.Found:
    """All algorithms on one small problem."""
    X = problems.synthetic(1600, problems.geometric(60, 1.05), seed=0)
    shards = [S + 0.01 * np.random.default_rng([1, i]).standard_normal(60) for i, S in enumerate(problems.evenly(X, 4))]
    heads = ["algorithm", "messages", "told", "error of C_i", "angle", "C_i to 1e-5", "in one sentence"]
    rows: list[list[object]] = [list(heads)]
    for name in ALGORITHMS:
        seen = audit(name, shards, n_components=4, center=True)
        last = seen.worst()[-1]
        told, known = f"{last.numbers / last.unknowns:.0%}", seen.messages_to(TARGET)
        figures = (len(seen.result.history), told, report.number(last.error), report.number(last.angle))
        rows.append([name, *figures, known or report.NONE, SENTENCES.get(name, report.NONE)])
    problem = "d=60, k=4, 4 clients of 400 rows, centred"
    note = f"{problem}. Told: of the d(d+1)/2 numbers. Guessing C / N errs by {last.guess:.2f}."
    return report.Found("What the server knows of the client it knows best", rows, note)


def curves(seen: Audit) -> report.Curves:
    """Errors after every message; where the attack was not mounted, those of the message looked at before."""
    messages = len(seen.result.history)
    errors = {leak.message: leak for leak in seen.worst()}
    lines: dict[str, list[float]] = {"C_1 by least norm": [], "C_1 by symmetry": [], "C_1 by exact answers only": []}
    newest = seen.worst()[0]
    for message in range(1, messages + 1):
        newest = errors.get(message, newest)
        for line, value in zip(lines.values(), (newest.minimum_norm, newest.symmetric, newest.exact), strict=True):
            line.append(value)
    kkt = np.array([point.kkt for point in seen.convergence])
    return {**{name: np.array(line) for name, line in lines.items()}, "PCA (KKT violation)": kkt}


SEEDS: Final = (1, 5)  # draws
EXPERIMENTS: Final[report.Experiments] = {"fig1a": fig1a, "fig1b": fig1b, "others": others, "table": table}

if __name__ == "__main__":
    report.command(main)
