"""What the LocalPower paper does not say: which number moves if one reading of the authors' program is exchanged."""

from __future__ import annotations

from typing import Final

import numpy as np

from sims.common import report
from sims.common.report import mean_std
from sims.local_power.known import TABLE6
from sims.local_power.program import ALIGNMENTS, Case, Posed, Variant, averaged, by_peaks, cases, pose, run

SETS: Final = ("a9a", "covtype", "poker", "w8a")
LONGER: Final = 2  # times the program's messages
VARIANTS: Final = tuple(Variant(align, 4) for align in ALIGNMENTS)


def readings(opts: report.Options) -> report.Found:
    """Table 6 by the program, and with one of its readings exchanged at a time."""
    rows: list[list[object]] = [["data", "reading", *ALIGNMENTS, "UDA"]]
    for case in [case for case in cases(opts) if case.name in SETS] or cases(opts):
        if case.name in TABLE6:
            rows.append([case.name, "paper, Table 6", *(TABLE6[case.name][m] for m in (*ALIGNMENTS, "UDA"))])
        found: dict[str, list[list[float]]] = {}
        for seed in opts.each():
            report.progress(f"readings, {case.name}, seed {seed}")
            for label, errors in _exchanged(case, seed).items():
                found.setdefault(label, []).append(errors)
        for label, errors in found.items():
            cells = (report.NONE if np.isnan(column).any() else mean_std(column) for column in np.array(errors).T)
            rows.append([case.name, label, *cells])
    note = (
        f"p=4, the mean (and deviation) of {opts.seeds} seeds. Each row exchanges one reading; {report.NONE}: it says "
        "nothing of that method."
    )
    return report.Found("Readings of LocalPower, exchanged one at a time", rows, note, stated=opts.seeds > 1)


def _exchanged(case: Case, seed: int) -> dict[str, list[float]]:
    """The final errors of OPT, sign-fixing, vanilla and UDA by each reading."""
    none, end, posed = float("nan"), case.messages("tables") - 1, case.posed(seed)
    uda = case.one_shot("UDA", seed)
    peaks = pose(by_peaks(case.X), case.clients, seed)
    fewer = pose(case.rows, max(case.clients // 2, 2), seed)
    longer = run(posed, VARIANTS, LONGER * (end + 1))
    by_peak, positive = run(peaks, VARIANTS, end + 1), run(posed, VARIANTS, end + 1, positive=True)
    halved = run(fewer, VARIANTS, end + 1)
    return {
        "the program": [*(e.measured[end] for e in longer), float(uda.measured[0])],
        "all five columns, spectral norm": [*(e.printed[end] for e in longer), float(uda.printed[0])],
        "columns over their largest |x|": [*(e.measured[-1] for e in by_peak), _uda(peaks)],
        "R with a positive diagonal": [*(e.measured[-1] for e in positive), none],
        "twice the messages": [*(e.measured[-1] for e in longer), none],
        "half the clients": [*(e.measured[-1] for e in halved), _uda(fewer)],
    }


def _uda(posed: Posed) -> float:
    found = averaged(posed)[0]
    return float(np.linalg.norm(found - posed.true @ (posed.true.T @ found)))
