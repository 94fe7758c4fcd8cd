"""The experiments of FAPS with clients that are alike: all A_iA_i' equal but for a factor.

The paper does not say how its columns are dealt. Its numbers of rounds are those of clients whose covariances are equal
up to a factor, as if V_i were orthonormalised on each rank by itself: 337 steps of SSI are (337 - 12) / 2 + 2 = 164.5
rounds of 8, 4, 2, 2, ... steps, and the paper prints 164 for LocalPower. With clients that differ by sampling
(`sims.faps`) two steps a round come to rest far above the paper's error. Free choices here: 20 inner steps of FAPS, and
that LocalPower keeps two steps.

Alike clients send equal messages, so one client stands for all of them: `tests/test_sims.py` holds it against eight.
In the eigenvectors of the common covariance the rows are a diagonal, and a random start is as random there; so these
runs have all columns of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy import sparse

from flower_pca import FAPS, make
from sims import faps
from sims.common import problems, report, stepwise
from sims.common.problems import Array

METHODS: Final = {"SSI": "ssi(oversample=0)", "FAPS": "faps(penalty='paper', inner_steps=20)"}
INNER: Final = (10, 20, 40)  # inner steps of FAPS, of which the paper says nothing but a rule
SCHEDULE: Final = (8, 4, 2)  # LocalPower's steps a message; the last is kept
NEAR: Final = 0.05  # of the paper's messages of SSI, within which a start counts as like the paper's
SLOW: Final = (  # of Table 2's problems, those on which FAPS with 20 inner steps is not first from every start
    faps.Size(d=1000, n=0, k=20), faps.Size(d=2000, n=0, k=20), *(replace(faps.GRID["xi"][j], n=0) for j in (0, 3)),
)  # fmt: skip
BETA: Final = FAPS.beta_0  # of the paper's penalties
KKT: Final = 1e-2  # to which Fig. 4 goes
MESSAGES: Final = 2000


def posed(spectrum: Array, k: int, clients: int = 1) -> problems.Problem:
    """Clients with these singular values of all rows together, alike."""
    d = len(spectrum)
    part = sparse.csr_array(sparse.diags_array(spectrum / np.sqrt(clients)))
    C = sparse.csr_array(sparse.diags_array(spectrum**2))
    return problems.Problem([part] * clients, k, False, None, C, spectrum**2, np.eye(d, k), [d] * clients)


def run(method: str, spectrum: Array, k: int, seed: int, *, kkt: float = 0.0) -> faps.Course:
    """One start, until the errors are the paper's; with `kkt` until the KKT violation is."""
    report.progress(f"alike, d={len(spectrum)}, k={k}, start {seed}: {method}")
    messages = MESSAGES
    if method == "LocalPower":
        report.ran("local_power")
        return powered(spectrum, k, seed, messages)
    algorithm = METHODS.get(method, method)
    report.ran(algorithm)
    return faps.course(algorithm, posed(spectrum, k), seed=seed, messages=messages, to_rule=False)


def powered(spectrum: Array, k: int, seed: int, messages: int, schedule: tuple[int, ...] = SCHEDULE) -> faps.Course:
    """LocalPower of alike clients, from the start of SSI: so many power steps a message."""
    values, points = spectrum**2, []
    Z = started(spectrum, k, seed)
    true = spectrum[:k]
    for message in range(messages):  # the first one asks for the opening product, and counts as it does for SSI
        for _ in range(schedule[min(message - 1, len(schedule) - 1)] if message else 0):
            Z = np.linalg.qr(values[:, None] * Z)[0]
        Y = values[:, None] * Z
        T = Z.T @ Y
        s = np.sqrt(np.maximum(np.linalg.eigvalsh(T)[::-1], 0.0))
        error = float(np.linalg.norm(s - true) / np.linalg.norm(true))
        points.append((error, float(np.linalg.norm(Y - Z @ T)) / float(values.sum()), float(np.trace(T)), 0.0))
        if error <= faps.TARGET:
            break
    return faps.Course(*(np.array(column) for column in zip(*points, strict=True)))


def started(spectrum: Array, k: int, seed: int) -> Array:
    """The block of SSI's first message."""
    steps = stepwise.steps(make(METHODS["SSI"]), posed(spectrum, k).shards, n_components=k, seed=seed)
    return np.asarray(next(step.message.arrays["Z"] for step in steps if "Z" in step.message.arrays))


def table1(opts: report.Options) -> report.Found:
    """Table 1."""
    size = faps.TABLE1 if opts.paper else faps.Size(d=200, n=0, k=20)
    known = {method: cells[0] for method, cells in faps.TABLE1_PAPER.items()}
    return _compared(f"Table 1 with alike clients: d={size.d}, k={size.k}", size, known, opts)


def table4(opts: report.Options) -> report.Found:
    """Table 4: clients of different sizes, which alike clients do not notice."""
    size = faps.TABLE4 if opts.paper else faps.Size(d=100, n=0, k=10)
    return _compared(f"Table 4 with alike clients: d={size.d}, k={size.k}", size, faps.TABLE4_PAPER, opts)


def _compared(title: str, size: faps.Size, known: dict[str, str], opts: report.Options) -> report.Found:
    spectrum = problems.geometric(size.d, size.xi)
    runs = {f"faps(penalty='paper', inner_steps={steps})": f"FAPS, {steps} inner steps" for steps in INNER}
    methods = {"SSI": "SSI", "LocalPower": "LocalPower", **runs}
    found = {method: [run(method, spectrum, size.k, seed) for seed in opts.each()] for method in methods}
    ssi = int(known["SSI"])
    like = [i for i, c in enumerate(found["SSI"]) if abs((c.to_target or 0) - ssi) <= NEAR * ssi]
    rows: list[list[object]] = [["algorithm", "messages", "of starts like the paper's", "paper", "KKT then"]]
    for method, label in methods.items():
        counts = [c.to_target for c in found[method]]
        near = report.span([counts[i] for i in like]) if like else report.NONE
        kkt = report.span(sorted(float(c.kkt[(c.to_target or 1) - 1]) for c in found[method]), report.number)
        paper = known.get(label.partition(",")[0], report.NONE)
        rows.append([label, report.span(counts), near, paper, kkt])
    note = (
        f"Messages to an error of {faps.TARGET:g}: least..most of {opts.seeds} starts, and of the {len(like)} in "
        f"which SSI takes the paper's {ssi} to {NEAR:.0%}. One client stands for all, with all {size.d} columns."
    )
    curves = {label: found[method][0].errors for method, label in methods.items()}
    drawing = report.Drawing(title, {"first start": curves}, error="relative error")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def table2(opts: report.Options) -> report.Found:
    """Table 2 and Fig. 2: d, n, k and xi varied; n makes no difference to alike clients."""
    names = ("SSI", "LocalPower", "FAPS")
    ratios = [f"FAPS / {m}" for m in names[:-1]]
    rows: list[list[object]] = [["varied", "problem", *names, *(f"KKT: {m}" for m in names), *ratios]]
    known: dict[tuple[int, int, float], list[object]] = {}
    for name, sizes in faps.GRID.items():
        for key in dict.fromkeys((size.d if opts.paper else 100, size.k, size.xi) for size in sizes):
            d, k, xi = key
            if key not in known:
                spectrum = problems.geometric(d, xi)
                found = {method: [run(method, spectrum, k, seed) for seed in opts.each()] for method in names}
                counts = {method: [c.to_target for c in courses] for method, courses in found.items()}
                kkt = [report.mean_std(np.array([c.kkt[-1] for c in courses])) for courses in found.values()]
                spans = [report.span(column) for column in counts.values()]
                shares = [_shares(counts["FAPS"], counts[other]) for other in names[:-1]]
                known[key] = [*spans, *kkt, *shares]
            rows.append([name, f"d={d}, k={k}, xi={xi:.5g}", *known[key]])
        blank = [report.NONE] * len(names)
        printed = (cell.split(", ")[0] for cell in faps.TABLE2_PAPER[name])
        rows.append([name, "paper, mean of 4", *blank, *printed, *[report.NONE] * len(ratios)])
    note = (
        f"Messages to an error of {faps.TARGET:g}: the least..the most of {opts.seeds} starts; the mean KKT violation "
        "then (and deviation). The paper's messages are a picture. Its four sizes n are one row here: alike clients do "
        "not notice n."
    )
    title = "Table 2 and Fig. 2 with alike clients: one of d, n, k, xi varied"
    return report.Found(title, rows, note, stated=opts.seeds > 1)


def _shares(counts: Sequence[int | None], others: Sequence[int | None]) -> str:
    """The least..the most of the messages of one method over those of another from the same start."""
    return report.span([a / b if a and b else None for a, b in zip(counts, others, strict=True)], "{:.2f}".format)


def inner(opts: report.Options) -> report.Found:
    """The problems of Table 2 on which FAPS with 20 inner steps is not first, with fewer and with more of them."""
    runs = {f"FAPS, {steps} inner steps": f"faps(penalty='paper', inner_steps={steps})" for steps in INNER}
    shares = [f"{steps}: FAPS / LocalPower" for steps in INNER]
    rows: list[list[object]] = [["problem", "SSI", "LocalPower", *runs, *shares, "late rate: FAPS / SSI"]]
    for whole in SLOW:
        size = whole if opts.paper else replace(whole, d=100)
        spectrum = problems.geometric(size.d, size.xi)
        methods = {"SSI": "SSI", "LocalPower": "LocalPower", **runs}
        found = {
            label: [run(method, spectrum, size.k, seed).to_target or np.inf for seed in opts.each()]
            for label, method in methods.items()
        }
        counts = [report.span([None if m == np.inf else m for m in column]) for column in found.values()]
        parts = [
            report.span(sorted(a / b for a, b in zip(found[label], found["LocalPower"], strict=True)), "{:.2f}".format)
            for label in runs
        ]
        rows.append([f"d={size.d}, k={size.k}, xi={size.xi:.5g}", *counts, *parts, f"{late(spectrum, size.k):.2f}"])
    note = (
        f"Messages to an error of {faps.TARGET:g}: the least..the most of {opts.seeds} starts. Late rate: by how much "
        "faster than SSI's the error of FAPS falls near the end, by theory: ln(1 + g / b) / ln(l_k / l_k+1), "
        f"g = l_k - l_k+1, b = {BETA:g} l_1."
    )
    return report.Found("Fig. 2 with alike clients, by inner steps", rows, note, stated=opts.seeds > 1)


def late(spectrum: Array, k: int) -> float:
    """By how much faster than SSI's the error of FAPS falls near its end, with alike clients, by theory."""
    l = spectrum**2
    return float(np.log1p((l[k - 1] - l[k]) / (BETA * l[0])) / np.log(l[k - 1] / l[k]))


def fig4(opts: report.Options) -> report.Found:
    """Fig. 4: arithmetic spectra, to a KKT violation of 1e-2 as it is, not scaled by the trace."""
    size = faps.FIG4 if opts.paper else faps.Size(d=100, n=0, k=10)
    names = ("SSI", "LocalPower", "FAPS")
    rows: list[list[object]] = [["kappa", *names, *(f"rate: {m}" for m in names)]]
    panels: dict[str, dict[str, Array]] = {}
    for kappa in (10, 100, 1000):
        spectrum = problems.arithmetic(size.d, kappa)
        counts: dict[str, list[int | None]] = {m: [] for m in names}
        rates: dict[str, list[float]] = {m: [] for m in names}
        panels[f"kappa={kappa}"] = {}
        for seed in opts.each():
            for method in names:
                kkt = violation(method, spectrum, size.k, seed)
                counts[method].append(problems.rounds_to(kkt, KKT))
                half = np.log(kkt[len(kkt) // 2 :])
                rates[method].append(float(np.exp(np.polyfit(np.arange(len(half)), half, 1)[0])))
                panels[f"kappa={kappa}"].setdefault(method, kkt)
        spans = [report.span(column) for column in counts.values()]
        rows.append([kappa, *spans, *(report.span(sorted(r), "{:.3f}".format) for r in rates.values())])
    note = (
        f"Messages to a KKT violation ||(I - ZZ')CZ|| of {KKT:g}, least..most of {opts.seeds} starts; rate: the "
        "factor by which it falls a message in the second half. The paper shows pictures and says: linear, FAPS first."
    )
    title = f"Fig. 4 with alike clients: arithmetic spectra, d={size.d}, k={size.k}"
    drawing = report.Drawing(title, panels, error="KKT violation")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def violation(method: str, spectrum: Array, k: int, seed: int) -> Array:
    """The KKT violation after each message, to a tenth of KKT at least."""
    report.progress(f"alike, d={len(spectrum)}, k={k}, start {seed}: {method}")
    total = float((spectrum**2).sum())
    if method == "LocalPower":
        report.ran("local_power")
        found = powered(spectrum, k, seed, 150)
    else:
        report.ran(METHODS[method])
        most = {"SSI": 300, "FAPS": 75}[method]
        found = faps.course(METHODS[method], posed(spectrum, k), seed=seed, messages=most, to_rule=False)
    return np.asarray(found.kkt * total)


SEEDS: Final = (2, 10)  # starts in small size, in the paper's
EXPERIMENTS: Final[report.Experiments] = {
    "table1": table1, "table2": table2, "inner": inner, "fig4": fig4, "table4": table4,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of FAPS (2022) with clients that are alike."
    report.main(argv, room="faps_alike", about=about, experiments=EXPERIMENTS, seeds=SEEDS)


if __name__ == "__main__":
    report.command(main)
