"""What the personalized PCA paper states, measured: Theorem 1 and its lemma, Corollary 3, Theorem 8."""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy as np

from sims.common import report
from sims.personal import methods, problems
from sims.personal.problems import Array, Setting, Split
from sims.personal.runs import fit, trace

ALIKE: Final = (0, 3, 12)  # own components among so many axes, or none in common: theta from small to large
ROWS: Final = (100, 1000, 10_000)
SOLVED: Final = "exact_per_pca(local_components={r2}, tol=1e-10)"
ROUNDS: Final = (10, 100, 1000)
REST: Final = 200  # rounds after which the error is the statistical one
STARTED: Final = "per_pca(init='random', eta=0.1, local_components={r2})"
FROM_QU: Final = "per_pca(init='qu', local_init='random', eta=0.1, local_components={r2})"


def bound(opts: report.Options) -> report.Found:
    """Theorem 1: the error of the optimum by theta, the eigengap and the mean squared error of the covariances."""
    rows: list[list[object]] = [
        ["theta", "n", "error", "8 / (theta delta^2) mean ||S - Sigma||^2", "share", "Lemma 13"]
    ]
    for axes in ALIKE:
        setting = Setting(d=15, r1=2, r2=2, clients=30, own=2.0, axes=axes or None)
        for n in ROWS:
            found = np.array([_bounded(setting, n, seed) for seed in opts.each()])
            theta, error, most, _ = found.mean(axis=0)
            worst = float((found[:, 1] / found[:, 2]).max())
            cells = [report.number(float(v)) for v in (error, most)]
            rows.append([f"{theta:.3f}", n, *cells, f"{worst:.4f}", f"{found[:, 3].min():.2f}"])
    note = (
        "The objective's optimum as exact_per_pca finds it. Share: the largest of error over bound. Lemma 13: the "
        "least of its left side over its right side, where nothing is below 1 if it holds. 8: from (34) and (36)."
    )
    return report.Found("Theorem 1: the error and its bound", rows, note)


def least(opts: report.Options) -> report.Found:
    """Theorem 2: the error is at least in proportion to (1 / theta + 1 / delta^2) times the covariances' errors."""
    rows: list[list[object]] = [["theta", "n", "error over mean ||S - Sigma||^2", "over (1 / theta + 1 / delta^2) too"]]
    for axes in ALIKE:
        setting = Setting(d=15, r1=2, r2=2, clients=30, own=2.0, axes=axes or None)
        for n in ROWS:
            found = np.array([_bounded(setting, n, seed) for seed in opts.each()])
            theta, gap = found[:, 0], min(setting.shared, setting.own)
            apart = found[:, 2] * theta * gap**2 / 8.0
            shares = (found[:, 1] / apart, found[:, 1] / apart / (1.0 / theta + 1.0 / gap**2))
            cells = (report.span(sorted(column), "{:.4f}".format) for column in shares)
            rows.append([f"{theta.mean():.3f}", n, *cells])
    note = (
        "The optimum of the objective, delta = 1, the least..the most of the seeds. The theorem says that for some "
        "true components of these theta and delta the last column stays above a constant however many rows there are."
    )
    return report.Found("Theorem 2: the least error", rows, note)


def rounds(opts: report.Options) -> report.Found:
    """Corollary 11: rounds until the error is the statistical one grow as the logarithm of the rows."""
    setting = Setting(d=15, r1=2, r2=2, clients=30, own=2.0)
    rows: list[list[object]] = [["rows of a client", "rounds to twice the error", "error", "rounds over log n"]]
    for n in (*ROWS, 100_000):
        counts, ends = [], []
        for seed in opts.each():
            split = setting.summaries([n] * setting.clients, seed)
            spec = FROM_QU.format(r2=setting.r2)
            run = islice(trace(spec, split.shards, setting.r1, seed=seed + 500), REST)
            errors = np.array([sum(problems.error(split, U, V)) for U, V in run])
            ends.append(float(errors[-1]))
            counts.append(int(np.flatnonzero(errors <= 2.0 * errors[-1])[0]) + 1)
        shares = sorted(count / float(np.log(n)) for count in counts)
        spans = report.span(counts), report.span(sorted(ends), report.number), report.span(shares, "{:.1f}".format)
        rows.append([n, *spans])
    note = f"Choice 1, eta=0.1, from Qu's start; the error after {REST} rounds. Least..most of the seeds."
    return report.Found("Corollary 11: rounds to the statistical error", rows, note)


def _bounded(setting: Setting, n: int, seed: int) -> tuple[float, float, float, float]:
    """theta, the error, its bound, and by how much Lemma 13 holds."""
    split = setting.draw(n, seed)[0]
    U, V = fit(SOLVED.format(r2=setting.r2), split.shards, setting.r1, seed=seed + 500)
    error, theta = sum(problems.error(split, U, V)), split.theta
    noise = setting.noise * np.eye(setting.d)
    apart = [
        np.linalg.norm(S - setting.shared * split.U @ split.U.T - setting.own * v @ v.T - noise) ** 2
        for S, v in zip(methods.covariances(split.shards), split.V, strict=True)
    ]
    gap = min(setting.shared, setting.own)
    return theta, error, 8.0 / (theta * gap**2) * float(np.mean(apart)), _lemma(split, U, V) / (theta / 4.0 * error)


def _lemma(split: Split, U: Array, V: list[Array]) -> float:
    """The mean over clients of r1 + r2 - <P_U + P_Vi, Pi_g + Pi_i>."""
    joined = (np.hstack([U, v]).T @ np.hstack([split.U, true]) for v, true in zip(V, split.V, strict=True))
    return float(np.mean([len(A) - np.linalg.norm(A) ** 2 for A in joined]))


def consistency(opts: report.Options) -> report.Found:
    """Corollary 3: the error falls as the mean of 1 / n_i, and poor clients borrow from rich ones."""
    setting = Setting(d=15, r1=2, r2=2, clients=30, own=2.0)
    rows: list[list[object]] = [
        ["rows of a client", "mean 1 / n_i", "error", "error / mean", "shared, of poor clients", "alone"]
    ]
    for label, sizes in _dealt(setting.clients):
        weight = float(np.mean(1.0 / np.array(sizes)))
        found = np.array([_shared(setting, sizes, seed) for seed in opts.each()]).mean(axis=0)
        cells = [report.number(float(v)) for v in (weight, found[0], found[0] / weight, found[1], found[2])]
        rows.append([label, *cells])
    note = (
        "Shared, alone: the squared error of the shared directions of the poorer half of the clients, by all together,"
        " and as each finds them nearest to the true ones among its own leading r1 + r2."
    )
    return report.Found("Corollary 3: the error by the rows of clients", rows, note)


def _dealt(clients: int) -> list[tuple[str, list[int]]]:
    alike = [(str(n), [n] * clients) for n in (300, 1000, 3000, 10_000)]
    return [*alike, *((f"{n} and {n // 10}", problems.halves(clients, n)) for n in (3000, 10_000))]


def _shared(setting: Setting, sizes: list[int], seed: int) -> tuple[float, float, float]:
    """The error of all, of what is shared, and of what the second half of the clients find of it alone."""
    split = setting.draw(sizes, seed)[0]
    U, V = fit(SOLVED.format(r2=setting.r2), split.shards, setting.r1, seed=seed + 500)
    shared, own = problems.error(split, U, V)
    leading = methods.indiv_pca(methods.covariances(split.shards), setting.r1 + setting.r2)
    alone = [2.0 * (setting.r1 - np.linalg.norm(B.T @ split.U) ** 2) for B in leading[setting.clients // 2 :]]
    return shared + own, shared, float(np.mean(alone))


def stationary(opts: report.Options) -> report.Found:
    """Theorem 8: from any start the least violation of (24) in T rounds falls as 1 / T at least."""
    setting = Setting(d=15, r1=2, r2=2, clients=20, own=2.0)
    rows: list[list[object]] = [["seed", *(f"T min, T={T}" for T in ROUNDS), "least at the end"]]
    last = ROUNDS[-1] if opts.paper else ROUNDS[-2]
    for seed in opts.each():
        split = setting.draw(1000, seed)[0]
        S = methods.covariances(split.shards)
        run = trace(STARTED.format(r2=setting.r2), split.shards, setting.r1, seed=seed + 500)
        least = np.minimum.accumulate([_violation(S, U, V) for U, V in islice(run, last)])
        # a run that has come to rest stays as it is
        cells = [report.number(float(T * least[: min(T, last)][-1])) for T in ROUNDS]
        rows.append([seed, *cells, report.number(float(least[-1]))])
    note = "Choice 1 with a constant step, eta=0.1, random starts. The violation: both sums of the theorem."
    return report.Found("Theorem 8: T times the least violation of T rounds", rows, note)


def _violation(S: list[Array], U: Array, V: list[Array]) -> float:
    outside = [np.eye(len(U)) - U @ U.T - v @ v.T for v in V]
    common = sum(Q @ C @ U for Q, C in zip(outside, S, strict=True))
    own = sum(np.linalg.norm(Q @ C @ v) ** 2 for Q, C, v in zip(outside, S, V, strict=True))
    return float(np.linalg.norm(common) ** 2 + own)
