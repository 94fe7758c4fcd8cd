"""What the theorems of the LocalPower paper say, measured: rounds by p, local drift by p, eta and kappa, r > k."""

from __future__ import annotations

from typing import Final

import numpy as np

from sims.common import problems, report
from sims.common.problems import Array, Problem
from sims.local_power.figures import spec
from sims.local_power.sets import K, benches

TARGETS: Final = (0.5, 0.2, 0.1)
STEPS: Final = (1, 2, 4, 8)
WIDER: Final = (0, 2, 5)  # columns beyond k


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
        problem = bench.problem(opts.one(), bench.clients)
        starts = {
            "random": _random(problem.d),
            "the true space, turned": problem.basis @ np.linalg.qr(_random(K)[:K])[0],
        }
        for label, Z in starts.items():
            apart = drifts(problem, Z, max(steps))
            for name, column in (("with", 0), ("without", 1)):
                rows.append([bench.name, label, name, *(report.number(apart[p - 1][column]) for p in steps)])
    return report.Found("Theorem 2: rho after p local steps", rows, "The first seed. Orthonormal blocks: 2 at most.")


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
        values = bench.problem(opts.one(), bench.clients).values
        eta, kappa = bench.eta(opts.one(), bench.clients), values[0] / values[values > 1e-12 * values[0]][-1]
        bound = 1.0 / (3.0 * kappa)
        rows.append(
            [bench.name, f"{eta:.4f}", report.number(kappa), report.number(bound), "yes" if eta <= bound else "no"]
        )
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


def _random(d: int) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(0).standard_normal((d, K)))[0])


def _positive_qr(Y: Array) -> Array:
    Q, R = np.linalg.qr(Y)
    return np.asarray(Q * np.where(np.diag(R) < 0.0, -1.0, 1.0))


def _procrustes(B: Array, base: Array) -> Array:
    W, _, Vt = np.linalg.svd(B.T @ base)
    return np.asarray(W @ Vt)
