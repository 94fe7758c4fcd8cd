"""What the LocalPower paper proves, measured.

Rounds by p, local drift by p, eta and kappa, r > k: by this package. Messages of the power method, eta and the error
by the number of clients: by the authors' program, as those of Figs. 11 to 13.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sims.common import problems, report
from sims.common.problems import Array, Problem
from sims.common.report import mean_std
from sims.local_power.figures import spec
from sims.local_power.program import Case, Variant, cases, run
from sims.local_power.sets import K, benches

TARGETS: Final = (0.5, 0.2, 0.1)
STEPS: Final = (1, 2, 4, 8)
WIDER: Final = (0, 2, 5)  # columns beyond k
EPSILONS: Final = (1e-2, 1e-4, 1e-6)  # of Lemma 1
MOST: Final = 20_000  # messages of a power method that are waited for
DELTA: Final = 0.1  # the probability with which Lemma 2 may fail
COUNTS: Final = (20, 40, 60, 80)  # of clients
SINGLE: Final = Variant("OPT", 1)
WITH_OPT: Final = tuple(Variant("OPT", p) for p in (4, 8, 16))


def rounds(opts: report.Options) -> report.Found:
    """Theorem 1: messages to a coarse target fall by the factor p."""
    rows: list[list[object]] = [["data", "p", *(f"to {t:g}" for t in TARGETS), *(f"{t:g}, saved" for t in TARGETS)]]
    for bench in benches(opts):
        alone = np.array([])
        for p in STEPS:
            curves = [bench.curve(spec(p), seed, messages=200, target=TARGETS[-1]) for seed in opts.each()]
            counts = [[problems.rounds_to(c, t) for c in curves] for t in TARGETS]
            median = np.array([np.median([np.inf if n is None else n for n in found]) for found in counts])
            alone = median if p == 1 else alone
            cells = [f"{m:g}" if np.isfinite(m) else report.NONE for m in median]
            saved = [f"{a / m:.1f}" if np.isfinite(m) else report.NONE for a, m in zip(alone, median, strict=True)]
            rows.append([bench.name, p, *cells, *saved])
    note = f"The median of {opts.seeds} seeds; saved: the messages of p=1 over those of p, at best p."
    return report.Found("Theorem 1: messages by p, OPT", rows, note)


def drift(opts: report.Options) -> report.Found:
    """Theorem 2: rho, how far local blocks are apart after p local steps, with and without OPT."""
    steps = (1, 2, 4, 8, 16)
    rows: list[list[object]] = [["data", "start", "OPT", *(f"p={p}" for p in steps)]]
    for bench in benches(opts):
        found: dict[str, list[list[tuple[float, float]]]] = {}
        for seed in opts.each():
            problem = bench.problem(seed, bench.clients)
            turned = problem.basis @ np.linalg.qr(_random(K, seed)[:K])[0]
            for label, Z in {"random": _random(problem.d, seed), "the true space, turned": turned}.items():
                found.setdefault(label, []).append(drifts(problem, Z, max(steps)))
        for label, runs in found.items():
            for column, name in enumerate(("with", "without")):
                cells = (mean_std(np.array([apart[p - 1][column] for apart in runs])) for p in steps)
                rows.append([bench.name, label, name, *cells])
    note = f"The mean (and deviation) of {opts.seeds} seeds. Orthonormal blocks: 2 at most."
    return report.Found("Theorem 2: rho after p local steps", rows, note, stated=opts.seeds > 1)


def drifts(problem: Problem, Z: Array, steps: int) -> list[tuple[float, float]]:
    """Rho after 1, 2, ... local steps from Z: with OPT, and without."""
    blocks, found = [Z] * len(problem.shards), []
    for _ in range(steps):
        blocks = [_positive_qr(X.T @ (X @ B)) for X, B in zip(problem.shards, blocks, strict=True)]
        base = blocks[0]
        plain = max(np.linalg.norm(B - base, 2) for B in blocks)
        turned = max(np.linalg.norm(B @ _procrustes(B, base) - base, 2) for B in blocks)
        found.append((float(turned), float(plain)))
    return found


def smallness(opts: report.Options) -> report.Found:
    """Assumption 1: eta against 1 / (3 kappa)."""
    rows: list[list[object]] = [["data", "eta", "kappa", "1 / (3 kappa)", "met"]]
    for bench in benches(opts):
        values = bench.problem(opts.first, bench.clients).values
        etas = np.array([bench.eta(seed, bench.clients) for seed in opts.each()])
        kappa = values[0] / values[values > 1e-12 * values[0]][-1]
        bound, eta = 1.0 / (3.0 * kappa), mean_std(etas, "{:.4f}".format)
        met = "yes" if etas.max() <= bound else "no"
        rows.append([bench.name, eta, report.number(kappa), report.number(bound), met])
    note = "LocalPower works all the same; the paper says in its discussion that the bound is too stringent."
    return report.Found("Assumption 1: eta and kappa", rows, note)


def wider(opts: report.Options) -> report.Found:
    """Appendix C: more columns than components need fewer messages."""
    rows: list[list[object]] = [["data", "r", "to 0.1", "to 0.01", "after 60"]]
    for bench in benches(opts):
        for extra in WIDER:
            if K + extra >= bench.X.shape[1]:
                continue
            name = f"local_power(local_steps=4, decay=False, oversample={extra})"
            curves = [bench.curve(name, seed) for seed in opts.each()]
            counts = [report.span([problems.rounds_to(c, t) for c in curves]) for t in (0.1, 0.01)]
            rows.append([bench.name, K + extra, *counts, report.number(float(np.mean([c[-1] for c in curves])))])
    return report.Found("r > k: messages by the number of columns, p=4, OPT", rows, f"{opts.seeds} seeds.")


def power(opts: report.Options) -> report.Found:
    """Lemma 1: messages of the power method are in proportion to log(d / epsilon) over the relative gap."""
    heads = (f"messages to {epsilon:g}" for epsilon in EPSILONS)
    rows: list[list[object]] = [["data", "1 / gap", *heads, *(f"over (3), {epsilon:g}" for epsilon in EPSILONS)]]
    for case in cases(opts):
        shares: list[list[float]] = []
        counts: list[list[int | None]] = []
        factor = 0.0
        for seed in opts.each():
            factor, d = _factor(case, seed), case.X.shape[1]
            errors = run(case.posed(seed), [SINGLE], _enough(factor, d))[0].printed
            counts.append([problems.rounds_to(errors, epsilon) for epsilon in EPSILONS])
            bounds = [factor * np.log(d / epsilon) for epsilon in EPSILONS]
            shares.append([np.inf if n is None else n / b for n, b in zip(counts[-1], bounds, strict=True)])
        spans = [report.span(column) for column in zip(*counts, strict=True)]
        rows.append([case.name, f"{factor:.1f}", *spans, *(mean_std(c, "{:.2f}".format) for c in np.array(shares).T)])
    note = f"(3) with 1 for its constant. {opts.seeds} seeds: the least..the most, and the mean (and deviation)."
    return report.Found("Lemma 1: messages of the power method, p=1", rows, note, stated=opts.seeds > 1)


def _enough(factor: float, d: int) -> int:
    return int(min(MOST, 10 + 1.2 * factor * np.log(d / EPSILONS[-1])))


def sampled(opts: report.Options) -> report.Found:
    """Lemma 2: eta is at most what the rows of a client allow, and grows as the root of the number of clients."""
    rows: list[list[object]] = [["data", "eta, m=20", "bound, m=20", "slope of log eta by log m"]]
    for case in cases(opts):
        etas = np.array([[case.eta(seed, m) for m in COUNTS] for seed in opts.each()])
        slopes = np.array([np.polyfit(np.log(COUNTS), np.log(eta), 1)[0] for eta in etas])
        bound = _bound(case, opts.first)
        rows.append([case.name, mean_std(etas[:, 0]), report.number(bound), mean_std(slopes, "{:.2f}".format)])
    note = (
        f"The bound is epsilon of Lemma 2 with delta={DELTA:g} and the smallest client's rows. If eta falls as one "
        f"over the root of a client's rows, the slope is .5. m = 20 to 80, mean (and deviation) of {opts.seeds} seeds."
    )
    return report.Found("Lemma 2: eta by the rows of a client", rows, note)


def _bound(case: Case, seed: int) -> float:
    """Epsilon = sqrt(3 mu rho / s log(rho m / delta)), with mu the row coherence and rho the rank."""
    posed, m = case.posed(seed, COUNTS[0]), COUNTS[0]
    values, V = np.linalg.eigh(posed.whole)
    kept = values > 1e-10 * values[-1]
    root = V[:, kept] / np.sqrt(values[kept])
    X, rank = case.rows, int(kept.sum())
    leverage = max(float(np.sum((X[i : i + 10_000] @ root) ** 2, axis=1).max()) for i in range(0, len(X), 10_000))
    size = len(X) - (m - 1) * -(-len(X) // m)
    coherence = len(X) / X.shape[1] * leverage
    return float(np.sqrt(3.0 * coherence * rank / size * np.log(rank * m / DELTA)))


def dependence(opts: report.Options) -> report.Found:
    """Corollary 1: the final error is at most a constant times sqrt(m / n), and stops growing with p."""
    rows: list[list[object]] = [["data", *(f"m={m}" for m in COUNTS), "slope by log m", "p=16 over p=8", "p=1"]]
    for case in cases(opts):
        found = np.array([case.finals(WITH_OPT, opts.each(), m)[1][0] for m in COUNTS])
        scaled_errors = found / np.sqrt(np.array(COUNTS) / len(case.X))[:, None]
        slopes = np.array([np.polyfit(np.log(COUNTS), np.log(column), 1)[0] for column in found.T])
        _, less, more = case.finals(WITH_OPT, opts.each(), COUNTS[1])[1]
        end = _enough(_factor(case, opts.first), case.X.shape[1])
        single = run(case.posed(opts.first), [SINGLE], end)[0].printed[-1]
        cells = [
            *map(mean_std, scaled_errors),
            mean_std(slopes, "{:.2f}".format),
            mean_std(more / less, "{:.2f}".format),
        ]
        rows.append([case.name, *cells, report.number(float(single))])
    note = (
        f"The error of all five columns over sqrt(m / n), OPT, p=4; slope: of the logarithm of the error by that of m; "
        f"p=16 over p=8 at m={COUNTS[1]}; p=1: the error where Lemma 1 has the power method at {EPSILONS[-1]:g}. The "
        f"mean (and deviation) of {opts.seeds} seeds."
    )
    return report.Found("Corollary 1: the final error over sqrt(m / n)", rows, note)


def _factor(case: Case, seed: int) -> float:
    values = np.linalg.eigvalsh(case.posed(seed).whole)[::-1]
    return float(values[K - 1] / (values[K - 1] - values[K]))


def _random(d: int, seed: int) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((d, K)))[0])


def _positive_qr(Y: Array) -> Array:
    Q, R = np.linalg.qr(Y)
    return np.asarray(Q * np.where(np.diag(R) < 0.0, -1.0, 1.0))


def _procrustes(B: Array, base: Array) -> Array:
    W, _, Vt = np.linalg.svd(B.T @ base)
    return np.asarray(W @ Vt)
