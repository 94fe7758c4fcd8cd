"""What the over-air paper states, measured: Lemma 4.1, and Theorems 3.7 and 3.9.

The text at hand has lost the formulas of the paper; what its sentences say of them is checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca import AirChannel, FedOAPM, simulate, track
from sims.common import report
from sims.common.problems import Watched
from sims.over_air import moving, trackers
from sims.over_air.moving import Array

CLIENTS: Final = 3
COLUMNS, RANK = 100, 5
SIGMAS: Final = (1e-2, 1e-4, 1e-6)
GAPS: Final = (1.05, 1.1, 1.5)  # the wanted singular values, beside the next one of 1
PRODUCTS: Final = 400
SIZE: Final = {"n": 200, "r": 5, "d": 1800, "change": 900, "rho": 0.1}
TURNS: Final = (1e-5, 1e-4, 3e-4)  # of a rotating subspace, each row


def powered(opts: report.Options) -> report.Found:
    """Lemma 4.1: the error that is left is in proportion to the noise over the gap, after log(n / error) products."""
    rows: list[list[object]] = [["gap", "sigma", "error at the end", "of sigma sqrt(n) / gap", "products", "of log"]]
    for s in GAPS:
        for sigma in SIGMAS:
            found = np.array([_ended(s, sigma, seed) for seed in opts.each()])
            gap, (ends, products) = s**2 - 1.0, found.T
            shares = report.drawn(ends / (sigma * np.sqrt(COLUMNS) / gap), "{:.2f}".format, np.max)
            steps = products / (np.log(COLUMNS / ends) / np.log(s**2))
            counted = [report.drawn(products, "{:.0f}".format), report.drawn(steps, "{:.2f}".format)]
            rows.append([f"{gap:.3f}", f"{sigma:g}", report.drawn(ends), shares, *counted])
    note = (
        f"n={COLUMNS}, r={RANK}, random starts; gap: lambda_r - lambda_(r+1), the latter 1. Of sigma sqrt(n) / gap: "
        "the most of the seeds; products until twice the error at the end, beside log(n / error) / log(lambda_r)."
    )
    return report.Found("Lemma 4.1: the power method over the air", rows, note, stated=opts.seeds > 1)


def largest(opts: report.Options) -> report.Found:
    """Lemma 4.2: the largest eigenvalue comes out of noisy products, off by about the noise."""
    rows: list[list[object]] = [["gap", "sigma", "off, relative", "off over sigma sqrt(n)"]]
    for s in GAPS:
        for sigma in SIGMAS:
            off = np.array([_eigenvalue(s, sigma, seed) for seed in opts.each()])
            spans = (sorted(column) for column in (off, off * s**2 / (sigma * np.sqrt(COLUMNS))))
            rows.append([f"{s**2 - 1.0:.3f}", f"{sigma:g}", *(report.span(c, report.number) for c in spans)])
    note = (
        f"n={COLUMNS}, r={RANK}, {PRODUCTS} products over the air and one more, whose largest singular value is taken; "
        f"the least..the most of {opts.seeds} seeds."
    )
    return report.Found("Lemma 4.2: the largest eigenvalue over the air", rows, note, stated=opts.seeds > 1)


def _eigenvalue(s: float, sigma: float, seed: int) -> float:
    """How far the largest singular value of one noisy product with the last block is from the largest eigenvalue."""
    X, _ = moving.low_rank(n=COLUMNS, r=RANK, s=s, seed=seed)
    report.ran("fed_oapm")
    algorithm = FedOAPM(max_rounds=PRODUCTS, patience=10**6, tol=0.0)
    air, shards = AirChannel(noise_std=sigma, seed=seed), np.array_split(X, CLIENTS)
    found = simulate(algorithm, shards, n_components=RANK, center=False, seed=seed, channel=air)
    C, Z = X.T @ X, found.components_.T
    noise = sigma * np.random.default_rng([seed, 42]).standard_normal(Z.shape)
    true = float(np.linalg.eigvalsh(C)[-1])
    return abs(float(np.linalg.norm(C @ Z + noise, 2)) - true) / true


def _ended(s: float, sigma: float, seed: int) -> tuple[float, float]:
    """The median error of the last products, and how many it took to twice that."""
    X, U = moving.low_rank(n=COLUMNS, r=RANK, s=s, seed=seed)
    errors: list[float] = []

    def keep(session: Watched) -> None:
        Z = session.estimate()
        if Z is not None:
            errors.append(moving.se(Z, U))

    report.ran("fed_oapm")
    algorithm = FedOAPM(max_rounds=PRODUCTS, patience=10**6, tol=0.0)
    air, shards = AirChannel(noise_std=sigma, seed=seed), np.array_split(X, CLIENTS)
    simulate(algorithm, shards, n_components=RANK, center=False, seed=seed, channel=air, on_round=keep)
    end = float(np.median(errors[-50:]))
    return end, next(i for i, e in enumerate(errors, start=1) if e <= 2.0 * end)


def recovery(opts: report.Options) -> report.Found:
    """Theorem 3.9: after a change of any size the error falls exponentially, as at the start."""
    rows: list[list[object]] = [["interval", "error at first", "least factor a batch", "most", "after ten"]]
    runs = []
    for seed in opts.each():
        problem = moving.piecewise(**SIZE, seed=seed)
        report.ran("st_miss")
        runs.append(track("st_miss", problem.batches(CLIENTS), n_components=problem.r).subspace_error(problem.truth))
    change = SIZE["change"] // moving.ALPHA
    for label, part in (("the first", slice(0, change)), ("after the change", slice(change, None))):
        ends = np.array([curve[part][:10] for curve in runs])
        factors = (ends[:, 9] / ends[:, 1]) ** 0.125
        shown = ((ends[:, 0], np.min), (factors, np.min), (factors, np.max), (ends[:, 9], np.max))
        rows.append([label, *(report.drawn(values, of=of) for values, of in shown)])
    note = "NoDet, 10 % missing, no noise. Factors: of the second to the tenth batch, the mean of each seed."
    return report.Found("Theorem 3.9: a subspace that changes at once", rows, note, stated=opts.seeds > 1)


def simple(opts: report.Options) -> report.Found:
    """Theorems 3.6 and 3.7: the slower the subspace turns, the lower NoDet's error; simple PCA's stays."""
    rows: list[list[object]] = [["turn of a batch", "NoDet", "simple PCA", "NoDet / turn"]]
    for delta in TURNS:
        turn, ours, theirs = np.array([_both(delta, seed) for seed in opts.each()]).T
        cells = [report.drawn(values, of=np.mean) for values in (turn, ours, theirs)]
        rows.append([*cells, report.drawn(ours / turn, "{:.2f}".format, np.mean)])
    note = (
        "10 % missing, no noise; the sine between the subspaces of successive batches, and errors of batches 6 to 15."
    )
    return report.Found("Theorems 3.6 and 3.7: a subspace that turns slowly", rows, note, stated=opts.seeds > 1)


def _both(delta: float, seed: int) -> Array:
    problem = moving.rotating(n=SIZE["n"], r=SIZE["r"], d=900, rho=0.1, seed=seed, delta=delta)
    report.ran("st_miss")
    ours = track("st_miss", problem.batches(CLIENTS), n_components=problem.r).subspace_error(problem.truth)
    theirs = moving.errors(trackers.simple_pca(problem), problem.truth)
    turns = [moving.se(a.T, b.T) for a, b in zip(problem.truth, problem.truth[1:], strict=False)]
    return np.array([np.mean(turns), np.mean(ours[5:15]), np.mean(theirs[5:15])])
