"""How fast personalized PCA converges, and how its error falls with rows, features and clients: Fig. 3 to 6."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from sims.common import report
from sims.personal import batched, methods, problems
from sims.personal.problems import Array, Setting, Split
from sims.personal.runs import fit, trace

THETAS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
FIG3: Final = {  # the algorithm, and its rounds
    "choice 1, eta=0.1": ("per_pca(init='random', eta=0.1)", 600),
    "choice 2, eta=1": ("per_pca(init='random', choice=2, eta=1.0)", 100),
}
GRID: Final = (300, 1000, 3000, 10_000, 100_000)
WIDTHS: Final = (20, 30, 40, 60)
RUNS: Final = {  # the paper's algorithm under its name, and ours
    "PerPCA": "per_pca(local_init='random', max_rounds=2000, tol=1e-6",
    "ExactPerPCA": "exact_per_pca(tol=1e-8",
}
UNLIKE: Final = Setting(own=100.0)  # Fig. 4 and 5: own deviations are ten times the shared ones
OWN: Final = (1.0, 100.0)  # own variances over shared ones


def slope(split: Split, algorithm: str, rounds: int, seed: int) -> tuple[float, Array]:
    """The slope of log10(reconstruction error) over the second half of the rounds, and the errors."""
    runs = islice(trace(algorithm, split.shards, split.U.shape[1], seed=seed), rounds)
    errors = np.array([np.mean(methods.rebuilt(split.shards, methods.joined(U, V))) for U, V in runs])
    late = np.arange(rounds // 2, rounds)
    return float(np.polyfit(late, np.log10(np.maximum(errors[late], 1e-32)), 1)[0]), errors


def fig3(opts: report.Options) -> report.Found:
    """Linear convergence, at a rate that is proportional to theta."""
    rows: list[list[object]] = [["method", "theta", "slope", "slope / theta", "log10 error at 100"]]
    curves: dict[str, dict[str, Array]] = {}
    for label, (algorithm, rounds) in FIG3.items():
        for theta in THETAS:
            report.progress(f"fig3, {label}, theta={theta}")
            found = [slope(problems.two_planes(theta, seed), algorithm, rounds, seed + 500) for seed in opts.each()]
            slopes = np.array([s for s, _ in found])
            at100 = np.mean([np.log10(max(errors[99], 1e-32)) for _, errors in found])
            rows.append([label, theta, f"{slopes.mean():.4f}", f"{slopes.mean() / theta:.4f}", f"{at100:.1f}"])
            curves.setdefault(label, {})[f"theta={theta}"] = found[0][1]
    drawing = report.Drawing("PerPCA, first seed", curves, error="reconstruction error", along="round")
    note = "Theory, choice 1: -2 eta lambda_g theta / ln 10 = -0.0869 theta. Paper: linear, slope prop. to theta."
    return report.Found("Fig. 3: linear convergence; d=3, 2 clients, no noise, random start", rows, note, drawing)


def statistical(setting: Setting, n: int, seed: int, weights: str = "equal") -> dict[str, float]:
    """Total subspace error of each method on rows of half the clients n, half n // 10."""
    sizes = problems.halves(setting.clients, n)
    split = setting.draw(sizes, seed)[0] if weights == "samples" else setting.summaries(sizes, seed)
    S, r1, r2 = methods.covariances(split.shards), setting.r1, setting.r2
    if weights == "samples":
        equal, samples = (
            fit(f"exact_per_pca(local_components={r2}, weights={kind!r}, tol=1e-8)", split.shards, r1, seed=seed + 500)
            for kind in ("equal", "samples")
        )
        return {"equal": sum(problems.error(split, *equal)), "samples": sum(problems.error(split, *samples))}
    found = {
        name: _fit(f"{algorithm}, local_components={r2})", split.shards, r1, seed=seed + 500)
        for name, algorithm in RUNS.items()
    }
    found["distPCA k=r1"] = methods.dist_pca(S, r1, r2, r1)
    found["distPCA, weighted"] = methods.qu_pca(S, r1, r2)
    found["distPCA k=r1+r2"] = methods.dist_pca(S, r1, r2, r1 + r2)
    return {name: sum(problems.error(split, U, V)) for name, (U, V) in found.items()}


def fig4(opts: report.Options) -> report.Found:
    """The statistical error falls as 1 / n."""
    grid = GRID if opts.paper else GRID[:-1]
    means: dict[str, list[float]] = {}
    for n in grid:
        found = [opts.once(f"fig4, n={n}, seed {s}", partial(statistical, UNLIKE, n, s)) for s in opts.each()]
        for name in found[0]:
            means.setdefault(name, []).append(float(np.mean([f[name] for f in found])))
    rows: list[list[object]] = [["method", *(f"n={n}" for n in grid), "slope from 1000"]]
    for name, values in means.items():
        fitted = np.polyfit(np.log10(grid[1:]), np.log10(values[1:]), 1)[0]
        rows.append([name, *map(report.number, values), f"{fitted:.2f}"])
    note = (
        "Paper: PerPCA slope -1; distPCA not consistent. That holds if clients send r1 + r2 components weighted by "
        "their deviations, or r1 of them, and not if r1 + r2 components weigh alike."
    )
    return report.Found(
        "Fig. 4: subspace error and n; own deviations 10 times the shared ones, r1=2, r2=10", rows, note
    )


def weights(opts: report.Options) -> report.Found:
    """Clients weighted by their rows, where half of them have a tenth of the others'."""
    rows: list[list[object]] = [["n", "equal", "samples", "ratio"]]
    for n in (1000, 10_000):
        report.progress(f"weights, n={n}")
        found = [statistical(UNLIKE, n, seed, "samples") for seed in opts.each()]
        equal, samples = (float(np.mean([f[kind] for f in found])) for kind in ("equal", "samples"))
        rows.append([n, report.number(equal), report.number(samples), f"{samples / equal:.2f}"])
    return report.Found("Weights: subspace error of ExactPerPCA, clients equal or by their rows", rows)


def fig5(opts: report.Options) -> report.Found:
    """The error and the number of features."""
    means: dict[str, list[float]] = {}
    for d in WIDTHS:
        setting = Setting(d=d, own=100.0)
        found = [opts.once(f"fig5, d={d}, seed {s}", partial(statistical, setting, 10_000, s)) for s in opts.each()]
        for name in found[0]:
            means.setdefault(name, []).append(float(np.mean([f[name] for f in found])))
    rows: list[list[object]] = [["method", *(f"d={d}" for d in WIDTHS), "slope"]]
    for name, values in means.items():
        fitted = np.polyfit(np.log(WIDTHS), np.log(values), 1)[0]
        rows.append([name, *map(report.number, values), f"{fitted:.2f}"])
    note = "Paper: PerPCA below distPCA for every d; the error grows almost as d squared, as its upper bound does."
    return report.Found("Fig. 5: subspace error and d; n=10000", rows, note)


def fig6(opts: report.Options) -> report.Found:
    """The error and the number of clients."""
    rows: list[list[object]] = [["method", "clients", "shared", "total"]]
    counts = (10, 30, 100, 300, 1000) if opts.paper else (10, 30, 100, 300)
    for name, algorithm in RUNS.items():
        parts = []
        for clients in counts:
            run = partial(_fitted, f"{algorithm}, local_components=10)", Setting(clients=clients, own=100.0))
            found = [opts.once(f"fig6, {name}, {clients} clients, seed {s}", partial(run, s)) for s in opts.each()]
            parts.append(np.mean(found, axis=0))
            rows.append([name, clients, report.number(parts[-1][0]), report.number(parts[-1].sum())])
        P, x = np.array(parts), np.log(counts)
        slopes = [np.polyfit(x, np.log(y), 1)[0] for y in (P[:, 0], P.sum(axis=1))]
        rows.append([name, "slope", *(f"{s:.2f}" for s in slopes)])
    note = (
        "Shared: the squared error of the shared space; total: and the mean one of own spaces. "
        "Paper: both fall with the clients, the shared one faster."
    )
    return report.Found("Fig. 6: subspace error and the number of clients", rows, note)


def _fitted(algorithm: str, setting: Setting, seed: int) -> tuple[float, float]:
    """The squared error of the shared space and the mean one of own spaces, with 10,000 rows in half of the clients."""
    split = setting.summaries(problems.halves(setting.clients, 10_000), seed)
    return problems.error(split, *_fit(algorithm, split.shards, setting.r1, seed=seed + 500))


def _fit(algorithm: str, shards: Sequence[Array], r1: int, *, seed: int) -> tuple[Array, list[Array]]:
    """A run, of PerPCA with all clients' rounds at once: it takes hundreds of them."""
    return (batched.fit if algorithm.startswith("per_pca") else fit)(algorithm, shards, r1, seed=seed)


def deviations(opts: report.Options) -> report.Found:
    """How the slopes of Fig. 5 and 6 depend on the size of own deviations."""
    rows: list[list[object]] = [["own / shared variance", "total by d", "total by clients", "shared by clients"]]
    few, many = (10, 20, 40), (10, 30, 100)
    counts, clients = (many, 100) if opts.paper else (few, 20)
    exact = f"{RUNS['ExactPerPCA']}, local_components=10)"
    for own in OWN:
        found = []
        for seed in opts.each():
            report.progress(f"deviations, {own:g}, seed {seed}")
            by_d = np.array([_fitted(exact, Setting(d=d, own=own, clients=clients), seed) for d in WIDTHS])
            by_clients = np.array([_fitted(exact, Setting(own=own, clients=count), seed) for count in counts])
            pairs = (WIDTHS, by_d.sum(axis=1)), (counts, by_clients.sum(axis=1)), (counts, by_clients[:, 0])
            found.append([np.polyfit(np.log(x), np.log(y), 1)[0] for x, y in pairs])
        rows.append([f"{own:g}", *(report.mean_std(column, "{:.2f}".format) for column in np.array(found).T)])
    note = (
        f"ExactPerPCA. The mean (and deviation) of {opts.seeds} seeds. Paper: the total error grows almost as the "
        "square of d, and decreases slowly with clients."
    )
    return report.Found("Slopes of log error in Figs. 5 and 6, by own deviations", rows, note, stated=opts.seeds > 1)
