"""Figures 2 to 13 of the LocalPower paper, by the authors' program; and Fig. 2b by this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sims.common import report
from sims.common.problems import Array
from sims.common.report import mean_std
from sims.local_power.program import ALIGNMENTS, DONE, Case, Errors, Variant, cases
from sims.local_power.sets import FINAL, benches
from sims.local_power.tables import PRINTED

STEPS: Final = (1, 2, 4, 8)
MANY_STEPS: Final = (1, 2, 4, 8, 16)  # of Figures 3c and 13
COUNTS: Final = (20, 40, 60, 80)  # of clients, as the program has them
EARLY: Final = 5  # the message at which curves are held against each other at their start
ALIGN: Final = {"OPT": "procrustes", "sign": "sign", "vanilla": "none"}
TAIL: Final = 10  # messages at the end over which a curve's swing is measured


def spec(steps: int, align: str = "OPT", *, decay: bool = False) -> str:
    """LocalPower by this package, as the paper's words have it; its decay halves p every message."""
    schedule = "halve_every=1" if decay else "decay=False"
    return (
        "ssi(oversample=0)"
        if steps == 1
        else f"local_power(oversample=0, local_steps={steps}, {schedule}, align={ALIGN[align]!r})"
    )


def _varied(title: str, align: str, *, decay: bool = False, only: str | None = None) -> Callable[..., report.Found]:
    def figure(opts: report.Options) -> report.Found:
        """The error by p, message by message."""
        rows: list[list[object]] = [["data", "p", "of", f"after {EARLY}", "at the end"]]
        panels: dict[str, dict[str, Array]] = {}
        for case in _chosen(opts, only):
            end = case.messages("decay" if decay else "steps")
            panels[case.name] = {}
            # Those of the other figures too, as they go side by side.
            others = [Variant(a, q, decay) for a in ALIGNMENTS for q in STEPS]
            for p in STEPS:
                runs = [case.run([Variant(align, p, decay), *others], seed)[0] for seed in opts.each()]
                for label, curves in _measures(runs).items():
                    cells = (mean_std(np.array([c[m - 1] for c in curves])) for m in (EARLY, end))
                    rows.append([case.name, f"p={p}", label, *cells])
                panels[case.name] |= {f"p={p}": runs[0].measured[:end]}
        note = f"The mean (and deviation) of {opts.seeds} seeds; the curves are of the first, one in the paper."
        drawing = report.Drawing(title, panels, error="sine", along="messages")
        return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)

    return figure


def _clients(title: str, align: str, only: str | None = None) -> Callable[..., report.Found]:
    def figure(opts: report.Options) -> report.Found:
        """The error by the number of clients."""
        rows: list[list[object]] = [["data", "clients", "of", "eta", "at the end"]]
        panels: dict[str, dict[str, Array]] = {}
        for case in _chosen(opts, only):
            panels[case.name] = {}
            end = case.messages("clients")
            for m in COUNTS:
                eta = mean_std(np.array([case.eta(seed, m) for seed in opts.each()]), "{:.4f}".format)
                # The other figure's too, as they go side by side.
                both = [Variant(align, 4), Variant("OPT", 4), Variant("sign", 4)]
                runs = [case.run(both, seed, m)[0] for seed in opts.each()]
                for label, curves in _measures(runs).items():
                    rows.append([case.name, m, label, eta, mean_std(np.array([c[end - 1] for c in curves]))])
                panels[case.name][f"m={m}"] = runs[0].measured[:end]
        note = f"p=4. The mean (and deviation) of {opts.seeds} seeds; the curves are of the first, one in the paper."
        drawing = report.Drawing(title, panels, error="sine", along="messages")
        return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)

    return figure


def _dependence(title: str, only: str | None = None) -> Callable[..., report.Found]:
    def figure(opts: report.Options) -> report.Found:
        """The final error by p and by the number of clients."""
        rows: list[list[object]] = [["data", "clients", "of", *(f"p={p}" for p in MANY_STEPS)]]
        panels: dict[str, dict[str, Array]] = {}
        for case in _chosen(opts, only):
            panels[case.name] = {}
            for m in COUNTS:
                measured, printed = case.finals([Variant("OPT", p) for p in MANY_STEPS], opts.each(), m)
                rows.append([case.name, m, "ours", *map(mean_std, measured)])
                rows.append([case.name, m, PRINTED, *map(mean_std, printed)])
                panels[case.name][f"m={m}"] = np.array([errors.mean() for errors in measured])
        note = f"OPT. Errors at the end: mean (and deviation) of {opts.seeds} seeds."
        drawing = report.Drawing(title, panels, error="final sine", along="p = 1, 2, 4, 8, 16")
        return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)

    return figure


def fig2b(opts: report.Options) -> report.Found:
    """How far a curve still swings at its end: the stability of the three alignments."""
    rows: list[list[object]] = [["data", "p", "alignment", f"largest of the last {TAIL}", "smallest", "ratio"]]
    panels: dict[str, dict[str, Array]] = {}
    for case in _chosen(opts, "a9a"):
        panels[case.name] = {}
        end = case.messages("steps")
        for p, align, decay in [*((p, a, False) for p in (4, 8) for a in ALIGNMENTS), (8, "vanilla", True)]:
            runs = [case.run([Variant(align, p, decay)], seed)[0] for seed in opts.each()]
            curves = [errors.measured[:end] for errors in runs]
            most, least = (np.array([f(c[-TAIL:]) for c in curves]) for f in (np.max, np.min))
            label = f"{align}, decay" if decay else align
            rows.append([case.name, p, label, mean_std(most), mean_std(least), mean_std(most / least, "{:.1f}".format)])
            panels[case.name][f"{p}, {label}"] = curves[0]
    title = "Fig. 2b: stability"
    note = f"The mean (and deviation) of {opts.seeds} seeds."
    drawing = report.Drawing(title, panels, error="sine", along="messages")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def packaged2b(opts: report.Options) -> report.Found:
    """Fig. 2b by this package, whose QR factors have a positive diagonal."""
    rows: list[list[object]] = [["data", "p", "alignment", "largest of the last 30", "smallest", "ratio"]]
    panels: dict[str, dict[str, Array]] = {}
    for bench in [bench for bench in benches(opts) if bench.name == "a9a"] or benches(opts):
        panels[bench.name] = {}
        for label, algorithm in {
            **{f"{p}, {name}": spec(p, name) for p in (4, 8) for name in ALIGN},
            "8, vanilla, decay": spec(8, "vanilla", decay=True),
        }.items():
            tails = [bench.curve(algorithm, seed)[-30:] for seed in opts.each()]
            most, least = (np.array([f(t) for t in tails]) for f in (np.max, np.min))
            p, alignment = label.split(", ", 1)
            cells = [report.drawn(most), report.drawn(least), report.drawn(most / least, "{:.1f}".format)]
            rows.append([bench.name, p, alignment, *cells])
            panels[bench.name][label] = bench.curve(algorithm, opts.first)
    title = "Fig. 2b by this package: stability"
    note = f"The median of {opts.seeds} seeds, {FINAL} messages."
    drawing = report.Drawing(title, panels, error="sine")
    return report.Found(title, rows, note, drawing, stated=opts.seeds > 1)


def fig4(opts: report.Options) -> report.Found:
    """The spread of Table 6 over its runs."""
    rows: list[list[object]] = [["data", "method", "least", "lower quartile", "median", "upper quartile", "most"]]
    for case in cases(opts):
        finals, _ = case.finals([Variant(align, 4) for align in ALIGNMENTS], opts.each())
        finals += [np.array([case.one_shot(m, seed).measured[0] for seed in opts.each()]) for m in DONE]
        for method, errors in zip((*ALIGNMENTS, *DONE), finals, strict=True):
            rows.append([case.name, method, *map(report.number, np.quantile(errors, (0, 0.25, 0.5, 0.75, 1)))])
    return report.Found("Fig. 4: the spread of Table 6", rows, f"{opts.seeds} seeds.")


def _measures(runs: list[Errors]) -> dict[str, list[Array]]:
    """The curves as the program measures, and as the paper defines the error."""
    return {"ours": [run.measured for run in runs], PRINTED: [run.printed for run in runs]}


def _chosen(opts: report.Options, only: str | None) -> list[Case]:
    """The one set that a figure shows, or all; whatever there is if that one is not at hand."""
    all_of_them = cases(opts)
    return [case for case in all_of_them if case.name == only] or all_of_them


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
