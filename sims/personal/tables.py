"""Personalized PCA beside others, with ranks too large, and clients in groups: Tables 2 and 3, Fig. 7 to 9."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from flower_pca.analysis.groups import clusters, distances
from sims.common import report
from sims.personal import methods, problems
from sims.personal.problems import Array, Setting, Split
from sims.personal.runs import fit, trace

EXACT: Final = "exact_per_pca(local_components={r2})"
TABLE2: Final = Setting(r1=4, r2=1, noise=0.15, shared=0.10, own=0.62)  # fitted to the figures that the paper prints
TABLE2_ROWS: Final = (10, 100)  # of a client, as the paper says
TABLE2_PAPER: Final = {  # sparse, rich
    "indivPCA": ("1.87", "1.80"),
    "CPCA": ("2.07", "2.10"),
    "distPCA k=r1": ("1.91", "1.88"),
    "distPCA k=r1+r2": ("-", "-"),
    "distPCA, weighted": ("-", "-"),
    "distPCA, by variances": ("-", "-"),
    "PerPCA": ("1.68", "1.52"),
    "ExactPerPCA": ("-", "-"),
    "truth": ("1.50", "1.50"),
}
FOUND: Final = 1e-3  # the squared distance below which the shared component counts as found
TABLE3: Final = {0: ".90", 1: ".69", 2: ".36", 3: ".19", 4: "1.8e-4", 6: "2.5e-9"}
GROUPS: Final = Setting(r2=3, axes=10)
CLUSTERED: Final = {
    "choice 1, eta=0.1": "per_pca(local_components=3, init='qu', local_init='random', eta=0.1)",
    "choice 1, eta=1": "per_pca(local_components=3, init='qu', local_init='random', eta=1.0)",
    "choice 2, eta=10": "per_pca(local_components=3, init='qu', local_init='random', choice=2, eta=10.0)",
    "exact": "exact_per_pca(local_components=3, init='qu')",
}


def table2_errors(seed: int) -> dict[str, tuple[float, float]]:
    """Test error of each method: clients with few rows, with many."""
    s, sizes = TABLE2, [TABLE2_ROWS[0]] * 50 + [TABLE2_ROWS[1]] * 50
    split, test = s.draw(sizes, seed, test=100)
    S, k = methods.covariances(split.shards), s.r1 + s.r2
    run = f"per_pca(local_components={s.r2}, local_init='random', step=0.5, max_rounds=100, tol=0.0)"
    bases = {
        "indivPCA": methods.indiv_pca(S, k),
        "CPCA": methods.cpca(S, sizes, k),
        "distPCA k=r1": methods.joined(*methods.dist_pca(S, s.r1, s.r2, s.r1)),
        "distPCA k=r1+r2": methods.joined(*methods.dist_pca(S, s.r1, s.r2, k)),
        "distPCA, weighted": methods.joined(*methods.qu_pca(S, s.r1, s.r2)),
        "distPCA, by variances": methods.joined(*methods.qu_pca(S, s.r1, s.r2, power=1.0)),
        "PerPCA": methods.joined(*fit(run, split.shards, s.r1, seed=seed + 500)),
        "ExactPerPCA": methods.joined(*fit(EXACT.format(r2=s.r2), split.shards, s.r1, seed=seed + 500)),
        "truth": methods.joined(split.U, split.V),
    }
    errors = {name: methods.rebuilt(test, basis) for name, basis in bases.items()}
    return {name: (float(e[:50].mean()), float(e[50:].mean())) for name, e in errors.items()}


def table2(opts: report.Options) -> report.Found:
    """Test error of every method."""
    found = [opts.once(f"table2, seed {seed}", partial(table2_errors, seed)) for seed in opts.each()]
    rows: list[list[object]] = [["method", "sparse", "rich", "sparse, paper", "rich, paper"]]
    for name, known in TABLE2_PAPER.items():
        errors = np.array([f[name] for f in found])
        rows.append([name, *(report.mean_std(column, "{:.2f}".format) for column in errors.T), *known])
    note = (
        "The mean (and deviation) of the seeds; the paper's deviations are .01, and .02 of PerPCA, sparse. d=15, r1=4, "
        "r2=1, variances: noise .15, shared .10, own .62, fitted to the paper's figures, which names none of them. "
        "distPCA, weighted: r1 + r2 components scaled by their deviations; by variances: by these."
    )
    few, many = TABLE2_ROWS
    return report.Found(f"Table 2: test error, clients of {few} rows and of {many}", rows, note, stated=opts.seeds > 1)


def own_rank(extra: int, init: str, seed: int) -> tuple[float, float, float]:
    """theta, ||P_U - P||_F^2 and reconstruction error with `extra` own components too many."""
    setting = Setting(d=30, r1=1, r2=1, clients=20, noise=0.0, axes=10)
    split, _ = setting.draw(1000, seed)
    run = trace(
        f"per_pca(local_components={1 + extra}, init={init!r}, local_init='random', eta=0.1)",
        split.shards,
        1,
        seed=seed + 500,
    )
    # a run ends before where nothing is left to move
    U, V = deque(islice(run, 300), maxlen=1)[0]
    error = float(np.mean(methods.rebuilt(split.shards, methods.joined(U, V))))
    return problems.theta(V), problems.error(Split(split.shards, split.U, split.V), U, split.V)[0], error


def as_printed(extra: int, seed: int, rounds: int = 300) -> tuple[float, float]:
    """Theta and the distance to the true shared component, by the paper's Algorithm 1 as printed."""
    setting = Setting(d=30, r1=1, r2=1, clients=20, noise=0.0, axes=10)
    split, _ = setting.draw(1000, seed)
    run = methods.printed(methods.covariances(split.shards), 1, 1 + extra, eta=0.1, seed=seed + 500)
    U, V = next(islice(run, rounds - 1, None))
    return problems.theta(V), problems.error(Split(split.shards, split.U, split.V), U, split.V)[0]


def table3(opts: report.Options) -> report.Found:
    """More own components than there are."""
    heads = (
        "paper", "theta, as printed", "U off, as printed", "U found, as printed", "theta, random", "least", "most",
        "theta, qu", "U off, qu", "rebuilt, qu",
    )  # fmt: skip
    rows: list[list[object]] = [["own ranks", *heads]]
    for extra, paper in TABLE3.items():
        report.progress(f"table3, own rank +{extra}")
        random = np.array([own_rank(extra, "random", seed)[0] for seed in opts.each()])
        theta, shared, rebuilt = np.mean([own_rank(extra, "qu", seed) for seed in opts.each()], axis=0)
        spread = (f"{theta:.2g}" for theta in (random.mean(), random.min(), random.max()))
        printed = [as_printed(extra, seed) for seed in opts.each()]
        cells = [
            paper,
            *(report.span(sorted(column), "{:.2g}".format) for column in zip(*printed, strict=True)),
            f"{sum(off < FOUND for _, off in printed)} of {len(printed)}",
            *spread,
            f"{theta:.3f}",
            report.number(shared),
            report.number(rebuilt),
        ]
        rows.append([f"r2+{extra}" if extra else "r2", *cells])
    return report.Found(
        "Table 3: theta with too large own ranks",
        rows,
        "300 rounds, eta=0.1. As printed: Algorithm 1 of the paper, from random starts, least..most. The others: "
        "choice 1 of this package, whose own components keep to the span of a client's rows, from random starts and "
        "from Qu's.",
    )


def fig7(opts: report.Options) -> report.Found:
    """More own components than there are: errors round by round."""
    rounds = 1000 if opts.paper else 200
    rows: list[list[object]] = [["own ranks", "error", *(f"round {r}" for r in (10, rounds // 5, rounds))]]
    panels: dict[str, dict[str, Array]] = {"shared": {}, "own": {}, "rebuilt": {}}
    for extra in TABLE3:
        run = partial(_parted, extra, rounds)
        found = [opts.once(f"fig7, own rank +{extra}, seed {s}", partial(run, s)) for s in opts.each()]
        for label, each in zip((f"r2+{extra}", f"r2+{extra}, as printed"), zip(*found, strict=True), strict=True):
            for i, name in enumerate(panels):
                panels[name][label] = each[0][:, i]
                ends = ([float(e[min(r, len(e)) - 1, i]) for e in each] for r in (10, rounds // 5, rounds))
                rows.append([label, name, *(report.span(sorted(end), report.number) for end in ends)])
    note = (
        "Shared, own: the mean squared distance of a row's part to the true one. Choice 1, eta=0.1, random starts: the "
        "least..the most. The curves are of the first."
    )
    title = "Fig. 7: too large own ranks"
    drawing = report.Drawing(title, panels, error="squared error", along="round")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def _parted(extra: int, rounds: int, seed: int) -> tuple[Array, Array]:
    """The errors of Fig. 7 after each round, with `extra` own components too many: by this package, and as printed."""
    split, _ = Setting(d=30, r1=1, r2=1, clients=20, noise=0.0, axes=10).draw(1000, seed)
    roots = [np.linalg.qr(X, mode="r") / np.sqrt(len(X)) for X in split.shards]
    ours = trace(f"per_pca(local_components={1 + extra}, init='random', eta=0.1)", split.shards, 1, seed=seed + 500)
    printed = methods.printed(methods.covariances(split.shards), 1, 1 + extra, eta=0.1, seed=seed + 500)
    first, second = (np.array([_parts(split, roots, U, V) for U, V in islice(r, rounds)]) for r in (ours, printed))
    return first, second


def _parts(split: Split, roots: list[Array], U: Array, V: list[Array]) -> tuple[float, float, float]:
    """The errors of Fig. 7: of the rows' shared parts, of their own parts, and of both together.

    `roots` are R of each client's rows X = QR over the root of their number: lengths of RA are those of XA.
    """
    shared, own, rebuilt = [], [], []
    for R, v, true in zip(roots, V, split.V, strict=True):
        shared.append(np.sum((R @ U @ U.T - R @ split.U @ split.U.T) ** 2))
        own.append(np.sum((R @ v @ v.T - R @ true @ true.T) ** 2))
        rebuilt.append(np.sum((R - R @ U @ U.T - R @ v @ v.T) ** 2))
    return float(np.mean(shared)), float(np.mean(own)), float(np.mean(rebuilt))


def fig8(opts: report.Options) -> report.Found:
    """More shared components than there are."""
    rows: list[list[object]] = [["shared ranks", "own error", "rebuilt"]]
    setting = Setting(d=30, r1=1, r2=1, clients=20, noise=0.0, axes=10)
    for extra in range(4):
        run = partial(_own_error, setting, extra)
        found = [opts.once(f"fig8, shared rank +{extra}, seed {s}", partial(run, s)) for s in opts.each()]
        own, rebuilt = np.mean(found, axis=0)
        rows.append([f"r1+{extra}", f"{own:.2f}", report.number(rebuilt)])
    note = "Shared components then take own directions; rows are rebuilt all the same."
    return report.Found("Fig. 8: too large shared ranks", rows, note)


def _own_error(setting: Setting, extra: int, seed: int) -> tuple[float, float]:
    """The error of own components and of rebuilt rows, with `extra` shared components too many."""
    split, _ = setting.draw(1000, seed)
    U, V = fit(
        "per_pca(init='qu', local_init='random', eta=0.1, max_rounds=2000)", split.shards, 1 + extra, seed=seed + 500
    )
    rebuilt = float(np.mean(methods.rebuilt(split.shards, methods.joined(U, V))))
    return problems.error(split, split.U, V)[1], rebuilt


def agreement(algorithm: str, seed: int) -> dict[int, float]:
    """Adjusted Rand index between the ten true groups and those found, after some rounds."""
    from sklearn.metrics import adjusted_rand_score

    split, _ = GROUPS.draw(100, seed)
    true, found = np.arange(GROUPS.clients) % 10, {}
    runs = [V for _, V in islice(trace(algorithm, split.shards, GROUPS.r1, seed=seed + 500), 30)]
    for number in (1, 5, 30):
        V = runs[min(number, len(runs)) - 1]  # a run that is over stays as it is
        found[number] = float(adjusted_rand_score(true, clusters(distances([v.T for v in V]), 10)))
    return found


def fig9(opts: report.Options) -> report.Found:
    """Ten groups of clients, found from their own components."""
    rows: list[list[object]] = [["method", "1 round", "5 rounds", "30 rounds"]]
    for label, algorithm in CLUSTERED.items():
        run = partial(agreement, algorithm)
        found = [opts.once(f"fig9, {label}, seed {seed}", partial(run, seed)) for seed in opts.each()]
        cells = [f"{np.mean([f[t] for f in found]):.2f} (least {min(f[t] for f in found):.2f})" for t in (1, 5, 30)]
        rows.append([label, *cells])
    return report.Found(
        "Fig. 9: adjusted Rand index of the clustering into 10 groups", rows, "Before the first round: 0 by chance."
    )
