"""Over-air subspace tracking beside this package's numbers: `python -m sims.over_air`.

Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from incomplete and corrupted data", 2022.
Errors are sines of the largest angle to the true subspace after each batch of 60 rows. Notes say what the paper says of
its figures, which are pictures, and whether all seeds keep to the limits of a right implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from flower_pca import AirChannel, FedOAPM, RobustTracking, STMiss, Stream, simulate, track
from sims.common import report
from sims.common.problems import Watched
from sims.over_air import moving, theory, trackers
from sims.over_air.known import AIR, LIMITS, WORDS
from sims.over_air.moving import Array, Problem

CLIENTS: Final = 3
# The batches whose errors go into the tables.
SHOWN: Final = (1, 2, 3, 5, 10, 15, 20, 25, 26, 27, 29, 35, 50, 51, 55, 60, 75, 76, 85, 100)
SIGMAS: Final = (1.0, 1e-2, 1e-4, 1e-6)
GAPS: Final = (0.1, 0.2, 0.4, 0.6)
SPARSE: Final = 0.4  # missing where NORST is to be seen at a stall


@dataclass(frozen=True)
class Size:
    """n columns, r components for the central and for the federated figures, d rows, an abrupt change, NORST's K."""

    n: int
    r: int
    r_fed: int
    d: int
    change: int
    update: int


SMALL: Final = Size(n=200, r=5, r_fed=5, d=1200, change=600, update=8)
PAPER: Final = Size(n=1000, r=10, r_fed=30, d=3000, change=1500, update=25)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "Over-air subspace tracking (2022) beside this package's numbers."
    report.main(argv, room="over_air", about=about, experiments=EXPERIMENTS, seeds=SEEDS)


def _posed(size: Size, seed: int, *, r: int, rho: float = 0.1, rotating: bool = False) -> Problem:
    if rotating:
        return moving.rotating(n=size.n, r=r, d=size.d, rho=rho, seed=seed)
    return moving.piecewise(n=size.n, r=r, d=size.d, change=size.change, rho=rho, seed=seed)


def _no_det(problem: Problem) -> Array:
    report.ran("st_miss")
    return track("st_miss", problem.batches(CLIENTS), n_components=problem.r).subspace_error(problem.truth)


def _over_air(problem: Problem, sigma: float, seed: int) -> Array:
    tracker = STMiss(solver="power", products=10, first_products=60)
    report.ran("st_miss(solver='power', products=10, first_products=60)")
    air = AirChannel(noise_std=sigma, seed=seed)
    return track(tracker, problem.batches(CLIENTS), n_components=problem.r, channel=air).subspace_error(problem.truth)


def _compared(problem: Problem, size: Size, seed: int) -> dict[str, Array]:
    bases = {
        "NORST": trackers.norst(problem, update=size.update, seed=seed)[0],
        "simple PCA": trackers.simple_pca(problem),
        "GROUSE": trackers.grouse(problem, seed=seed),
        "PETRELS": trackers.petrels(problem, seed=seed),
    }
    return {"NoDet": _no_det(problem), **{name: moving.errors(b, problem.truth) for name, b in bases.items()}}


def _fig1(name: str, size: Size, opts: report.Options) -> report.Found:
    rotating = name == "fig1a"
    return _batches(name, opts, lambda seed: _compared(_posed(size, seed, r=size.r, rotating=rotating), size, seed))


def _fig2(name: str, size: Size, opts: report.Options) -> report.Found:
    cases = [(sigma, 0.1) for sigma in SIGMAS] if name == "fig2a" else [(1e-6, gaps) for gaps in GAPS]

    def curves(seed: int) -> dict[str, Array]:
        posed = {rho: _posed(size, seed, r=size.r_fed, rho=rho) for _, rho in cases}
        return {f"sigma={s:g}, missing {rho:g}": _over_air(posed[rho], s, seed) for s, rho in cases}

    return _batches(name, opts, curves)


def _fig3(name: str, size: Size, opts: report.Options) -> report.Found:
    def curves(seed: int) -> dict[str, Array]:
        problem = _posed(size, seed, r=size.r_fed, rotating=name == "fig3a")
        norst = trackers.norst(problem, update=size.update, seed=seed)[0]
        return {
            AIR: _over_air(problem, 1e-6, seed),
            "NORST": moving.errors(norst, problem.truth),
            "simple PCA": moving.errors(trackers.simple_pca(problem), problem.truth),
        }

    return _batches(name, opts, curves)


def _stall(name: str, size: Size, opts: report.Options) -> report.Found:
    """Fig. 1b with an interval twice as long and more missing, so that NORST's updates end before it is at rounding."""
    longer = replace(size, d=2 * size.d, change=2 * size.change)

    def curves(seed: int) -> dict[str, Array]:
        problem = _posed(longer, seed, r=size.r_fed, rho=SPARSE)
        norst = trackers.norst(problem, update=size.update, seed=seed)[0]
        return {"NoDet": _no_det(problem), "NORST": moving.errors(norst, problem.truth)}

    return _batches(name, opts, curves)


def _batches(name: str, opts: report.Options, curves: Callable[[int], dict[str, Array]]) -> report.Found:
    """A table of the errors after some batches, and the curves."""
    found: list[dict[str, Array]] = []
    for seed in opts.each():
        report.progress(f"{name}, seed {seed}")
        found.append(curves(seed))
    median = {label: np.median([f[label] for f in found], axis=0) for label in found[0]}
    batches = [b for b in SHOWN if b <= len(next(iter(median.values())))]
    rows: list[list[object]] = [["method", *(f"b{b}" for b in batches)]]
    rows += [[label, *(report.drawn(f[label][b - 1] for f in found) for b in batches)] for label in median]
    note = f"Paper: {WORDS[name]}"
    for label, bounds in (LIMITS.get(name, {}) if opts.paper else {}).items():
        worst = {b: max(float(f[label][b - 1]) for f in found) for b in bounds}
        broken = [f"b{b} {worst[b]:.1e} of {bound:g}" for b, bound in bounds.items() if worst[b] >= bound]
        note += f". Limits of {label}, all seeds: {'BROKEN, ' + ', '.join(broken) if broken else 'kept'}"
    title = f"{_words(name)}; median of {opts.seeds} seed(s)"
    drawing = report.Drawing(title, {name: median}, error="SE", along="batch")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def _fig4(name: str, size: Size, opts: report.Options) -> report.Found:
    """FedOAPM on rows of singular values s, r times, and 1: the error that can be read after each product."""
    paper = size is PAPER
    n, r, products = (1000, 50, 500) if paper else (200, 8, 300)
    a = [(1.1, sigma, eta) for sigma in (1e-4, 1e-6, 1e-8) for eta in (1, 10, 50)]
    b = [(s, 1e-8, eta) for s in (1.1, 3.3) for eta in (1, 10)]
    rows: list[list[object]] = [["case", "end", "floor", "end / floor"]]
    shown: dict[str, Array] = {}
    for s, sigma, eta in a if name == "fig4a" else b:
        label = f"s={s}, sigma={sigma:g}, eta={eta}"
        ends, curve = [], np.empty(0)
        for seed in opts.each():
            run = partial(_power, n, r, s, sigma, eta, products, seed)
            curve = opts.once(f"{name}, {label}, seed {seed}", run)
            ends.append(curve[-1])
        floor = sigma * (np.sqrt(n - r) + np.sqrt(r)) / s ** (2 * eta)
        shares = report.drawn((end / floor for end in ends), "{:.2f}".format)
        rows.append([label, report.drawn(ends), report.number(floor), shares])
        shown[label] = curve
    note = f"Paper: {WORDS[name]}. Floor: sigma (sqrt(n - r) + sqrt(r)) / s^(2 eta)."
    title = f"{_words(name)}; n={n}, r={r}"
    drawing = report.Drawing(title, {name: shown}, error="SE", along="product")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def _power(n: int, r: int, s: float, sigma: float, eta: int, products: int, seed: int) -> Array:
    X, U = moving.low_rank(n=n, r=r, s=s, seed=seed)
    errors: list[float] = []

    def keep(session: Watched) -> None:
        Z = session.estimate()
        if Z is not None:
            errors.append(moving.se(Z, U))

    algorithm = FedOAPM(qr_every=eta, max_rounds=products, patience=10**6, tol=0.0)
    report.ran(f"fed_oapm(qr_every={eta})")
    air = AirChannel(noise_std=sigma, seed=seed)
    shards = np.array_split(X, CLIENTS)
    simulate(algorithm, shards, n_components=r, center=False, seed=seed, channel=air, on_round=keep)
    return np.array(errors)


def _robust(name: str, size: Size, opts: report.Options) -> report.Found:
    """Outliers on 5 % of the entries, and a moving object on 10 % of the columns; starts given and by AltProj."""
    rows: list[list[object]] = [["outliers, start", "wrong", "b1", "b3", "b5", "b10", "oracle b5", "ignored b10"]]
    for kind in ("random, given", "object, given", "random, AltProj"):
        found = []
        for seed in opts.each():
            report.progress(f"{name}, {kind}, seed {seed}")
            found.append(_separated(size, kind, seed))
        wrong, *errors = zip(*found, strict=True)
        rows.append([kind, int(max(wrong)), *map(report.drawn, errors)])
    title = f"Theorem 4.4: outliers, over the air; sines after some batches, median of {opts.seeds} seeds"
    note = (
        "Wrong: entries taken for outliers that are none, and outliers missed, the most of all seeds. Oracle: NoDet "
        "that knows where the outliers are. Ignored: NoDet that takes outliers for data. The paper has no such figure."
    )
    return report.Found(title, rows, note, stated=opts.seeds > 1)


def _separated(size: Size, kind: str, seed: int) -> list[float]:
    clean = moving.piecewise(n=size.n, r=size.r, d=600, change=600, rho=0.1, seed=seed)
    problem = moving.corrupted(clean, seed=seed, moving=size.n // 10 if "object" in kind else 0)
    true = clean.truth[0].T
    P = trackers.alt_proj(problem.Y[:240], r=size.r) if "AltProj" in kind else moving.near(true, 0.04, seed)
    air = AirChannel(noise_std=1e-6, seed=seed)
    streams = [Stream(batches, keep=True) for batches in problem.batches(CLIENTS)]
    tracker = RobustTracking(smallest_outlier=15.0, solver="power")
    result = track(tracker, streams, n_components=size.r, init=P.T, channel=air)
    wrong = sum(
        int((stream.completed[j].found != problem.outliers[60 * j : 60 * j + 60][k::CLIENTS]).sum())
        for k, stream in enumerate(streams)
        for j in range(10)
    )
    known = np.where(problem.outliers, np.nan, problem.Y)
    oracle = track("st_miss", [known], n_components=size.r, batch=60, init=P.T).subspace_error(problem.truth)
    ignored = track("st_miss", [problem.Y], n_components=size.r, batch=60, init=P.T).subspace_error(problem.truth)
    errors = result.subspace_error(problem.truth)
    return [float(wrong), *(float(errors[b - 1]) for b in (1, 3, 5, 10)), float(oracle[4]), float(ignored[9])]


def _detect(name: str, size: Size, opts: report.Options) -> report.Found:
    """Changes declared by Algorithm 5 (a Krylov space, silent) and 6 (the power method over the air)."""
    wanted = size.change // 60
    rows: list[list[object]] = [["solver, sigma", "change at", "declared at, by seed"]]
    for solver, sigma in (("krylov", 0.0), ("power", 0.0), ("power", 1e-4), ("power", 1e-2)):
        declared = []
        for seed in opts.each():
            report.progress(f"{name}, {solver}, {sigma:g}, seed {seed}")
            problem = _posed(size, seed, r=size.r)
            tracker = STMiss(detect=True, threshold=7.5961e-4, solver=solver, update_length=6)
            air = AirChannel(noise_std=sigma, seed=seed)
            result = track(tracker, problem.batches(CLIENTS), n_components=size.r, channel=air)
            declared.append(str(result.changes_.tolist()))
        rows.append([f"{solver}, {sigma:g}", wanted, " ".join(declared)])
    return report.Found("Changes and when they are declared; not in the paper", rows, "Steps count from 0.")


def _words(name: str) -> str:
    return f"Fig. {name[3:]}" if name.startswith("fig") else TITLES.get(name, name)


def _sized(figure: Callable[[str, Size, report.Options], report.Found], name: str) -> report.Experiments:
    return {name: lambda opts: figure(name, PAPER if opts.paper else SMALL, opts)}


TITLES: Final = {"stall": f"Fig. 1b, a longer interval, {100 * SPARSE:g} % missing"}
SEEDS: Final = (1, 10)  # in small size, in the paper's
EXPERIMENTS: Final[report.Experiments] = {
    **_sized(_fig1, "fig1a"),
    **_sized(_fig1, "fig1b"),
    **_sized(_stall, "stall"),
    **_sized(_fig2, "fig2a"),
    **_sized(_fig2, "fig2b"),
    **_sized(_fig3, "fig3a"),
    **_sized(_fig3, "fig3b"),
    **_sized(_fig4, "fig4a"),
    **_sized(_fig4, "fig4b"),
    **_sized(_robust, "robust"),
    **_sized(_detect, "detect"),
    "lemma41": theory.powered,
    "lemma42": theory.largest,
    "theorem36": theory.simple,
    "theorem39": theory.recovery,
}
