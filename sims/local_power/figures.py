"""Figures 2 to 13 of the LocalPower paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sims.common import report
from sims.local_power.sets import FINAL, Bench, benches, mean_std
from sims.local_power.tables import TABLE6_SPECS

STEPS: Final = (1, 2, 4, 8)
MANY_STEPS: Final = (1, 2, 4, 8, 16)  # of Figures 3c and 13
COUNTS: Final = (20, 60, 100)  # of clients
LONG: Final = 500  # messages in which single steps converge, too
EARLY: Final = 5  # the message at which curves are held against each other at their start
ALIGN: Final = {"OPT": "procrustes", "sign": "sign", "vanilla": "none"}


def spec(steps: int, align: str = "OPT", *, decay: bool = False) -> str:
    """LocalPower as the paper runs it; its decay halves p every round."""
    schedule = "halve_every=1" if decay else "decay=False"
    return (
        "ssi(oversample=0)"
        if steps == 1
        else f"local_power(oversample=0, local_steps={steps}, {schedule}, align={ALIGN[align]!r})"
    )


def _varied(title: str, align: str, *, decay: bool = False, only: str | None = None) -> Callable[..., report.Found]:
    def figure(opts: report.Options) -> report.Found:
        """The error by p, message by message."""
        rows: list[list[object]] = [["data", "p", f"after {EARLY}", "after 20", f"after {FINAL}"]]
        panels: dict[str, report.Curves] = {}
        for bench in _chosen(opts, only):
            specs = {f"p={p}": spec(p, align, decay=decay) for p in STEPS}
            for label, algorithm in specs.items():
                curves = [bench.curve(algorithm, seed) for seed in opts.each()]
                cells = (mean_std(np.array([_at(c, m) for c in curves])) for m in (EARLY, 20, FINAL))
                rows.append([bench.name, label, *cells])
            panels[bench.name] = {label: bench.curve(algorithm, opts.first) for label, algorithm in specs.items()}
        note = f"Sines, the mean (and deviation) of {opts.seeds} seeds; the curves are of the first."
        return report.Found(title, rows, note, report.Drawing(title, panels, error="sine"))

    return figure


def _clients(title: str, align: str, only: str | None = None) -> Callable[..., report.Found]:
    def figure(opts: report.Options) -> report.Found:
        """The error by the number of clients."""
        rows: list[list[object]] = [["data", "clients", "eta", f"after {FINAL}"]]
        panels: dict[str, dict[str, report.Curves]] = {}
        for bench in _chosen(opts, only):
            panels[bench.name] = {}
            for m in COUNTS:
                finals = mean_std(bench.finals(spec(4, align), opts.each(), clients=m))
                rows.append([bench.name, m, f"{bench.eta(opts.first, m):.4f}", finals])
                panels[bench.name][f"m={m}"] = bench.curve(spec(4, align), opts.first, clients=m)
        note = f"p=4. Sines, the mean (and deviation) of {opts.seeds} seeds; the curves are of the first."
        return report.Found(title, rows, note, report.Drawing(title, panels, error="sine"))

    return figure


def _dependence(title: str, only: str | None = None) -> Callable[..., report.Found]:
    def figure(opts: report.Options) -> report.Found:
        """The final error by p and by the number of clients."""
        rows: list[list[object]] = [["data", "clients", *(f"p={p}" for p in MANY_STEPS)]]
        panels: dict[str, dict[str, report.Curves]] = {}
        for bench in _chosen(opts, only):
            panels[bench.name] = {}
            for m in COUNTS:
                found = [bench.finals(spec(1), opts.each(), clients=m, messages=LONG)]
                found += [bench.finals(spec(p), opts.each(), clients=m) for p in MANY_STEPS[1:]]
                rows.append([bench.name, m, *map(mean_std, found)])
                panels[bench.name][f"m={m}"] = np.array([errors.mean() for errors in found])
        note = f"OPT. Sines after {FINAL} messages, p=1 after {LONG}: mean (and deviation) of {opts.seeds} seeds."
        drawing = report.Drawing(title, panels, error="final sine", along="p = 1, 2, 4, 8, 16")
        return report.Found(title, rows, note, drawing)

    return figure


def fig2b(opts: report.Options) -> report.Found:
    """How far a curve still swings once it has come down: the stability of the three alignments."""
    rows: list[list[object]] = [["data", "p", "alignment", "largest of the last 30", "smallest", "ratio"]]
    panels: dict[str, dict[str, report.Curves]] = {}
    for bench in _chosen(opts, "a9a"):
        panels[bench.name] = {}
        for label, algorithm in {
            **{f"{p}, {name}": spec(p, name) for p in (4, 8) for name in ALIGN},
            "8, vanilla, decay": spec(8, "vanilla", decay=True),
        }.items():
            tails = [bench.curve(algorithm, seed)[-30:] for seed in opts.each()]
            most, least = (float(np.median([f(t) for t in tails])) for f in (np.max, np.min))
            p, alignment = label.split(", ", 1)
            rows.append([bench.name, p, alignment, report.number(most), report.number(least), f"{most / least:.1f}"])
            panels[bench.name][label] = bench.curve(algorithm, opts.first)
    title = "Fig. 2b: stability"
    note = f"The median of {opts.seeds} seeds, {FINAL} messages."
    return report.Found(title, rows, note, report.Drawing(title, panels, error="sine"))


def fig4(opts: report.Options) -> report.Found:
    """The spread of Table 6 over its runs."""
    rows: list[list[object]] = [["data", "method", "least", "lower quartile", "median", "upper quartile", "most"]]
    for bench in benches(opts):
        for method, algorithm in TABLE6_SPECS.items():
            finals = bench.finals(algorithm, opts.each())
            rows.append([bench.name, method, *map(report.number, np.quantile(finals, (0, 0.25, 0.5, 0.75, 1)))])
    return report.Found("Fig. 4: the spread of Table 6", rows, f"{opts.seeds} seeds.")


def _chosen(opts: report.Options, only: str | None) -> list[Bench]:
    """The one set that a figure shows, or all; whatever there is if that one is not at hand."""
    all_of_them = benches(opts)
    return [bench for bench in all_of_them if bench.name == only] or all_of_them


def _at(curve: np.ndarray, message: int) -> float:
    return float(curve[min(message, len(curve)) - 1])


FIGURES: Final = {
    "fig2a": _varied("Fig. 2a: p, on covtype", "OPT", only="covtype"),
    "fig2b": fig2b,
    "fig3a": _varied("Fig. 3a: decay, on covtype", "OPT", decay=True, only="covtype"),
    "fig3b": _clients("Fig. 3b: the number of clients, on covtype", "OPT", only="covtype"),
    "fig3c": _dependence("Fig. 3c: the error by p and m, on covtype", only="covtype"),
    "fig4": fig4,
    "fig5": _varied("Fig. 5: p with OPT", "OPT"),
    "fig6": _varied("Fig. 6: p with sign-fixing", "sign"),
    "fig7": _varied("Fig. 7: p, vanilla", "vanilla"),
    "fig8": _varied("Fig. 8: decay with OPT", "OPT", decay=True),
    "fig9": _varied("Fig. 9: decay with sign-fixing", "sign", decay=True),
    "fig10": _varied("Fig. 10: decay, vanilla", "vanilla", decay=True),
    "fig11": _clients("Fig. 11: the number of clients, OPT", "OPT"),
    "fig12": _clients("Fig. 12: the number of clients, sign-fixing", "sign"),
    "fig13": _dependence("Fig. 13: the error by p and m"),
}
