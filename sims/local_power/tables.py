"""The experiments of LocalPower beside this package's numbers: `python -m sims.local_power`.

Li, Wang, Chen, Zhang, "Communication-efficient distributed SVD via local power iterations", ICML 2021.
Features are divided by the largest |x| of their column over all clients, nothing is centred, k = 5, a client holds
about 1000 rows (at most 60 clients) of the rows shuffled by the seed. The error is the sine of the largest angle to the
true leading eigenspace. "Expected" are this project's own earlier figures for this setting, three seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from sims.common import data, problems, report
from sims.local_power.known import (
    EXPECTED,
    EXPECTED_DECAY,
    EXPECTED_ROUNDS,
    PAPER,
    PAPER_DECAY,
    SETS,
    TARGETS,
)

K: Final = 5
FINAL: Final = 60  # messages after which an error counts as final
LONG: Final = 200  # messages after which a target counts as never reached
OPT, DECAY = "local_power(local_steps=4, decay=False)", "local_power"
TABLE6: Final = {
    "OPT": OPT,
    "sign": "local_power(local_steps=4, decay=False, align='sign')",
    "vanilla": "local_power(local_steps=4, decay=False, align='none')",
    "UDA": "uda",
    "WDA": "wda",
    "DR-SVD": "dr_svd",
}
TABLE7: Final = {"OPT": DECAY, "sign": "local_power(align='sign')", "vanilla": "local_power(align='none')"}
CURVES: Final = {
    "q=1": "ssi",
    "q=2": "local_power(local_steps=2, decay=False)",
    "q=4": OPT,
    "q=8": "local_power(local_steps=8, decay=False)",
    "q=2, decay": "local_power(local_steps=2)",
    "q=4, decay": "local_power(local_steps=4)",
    "q=8, decay": DECAY,
}
ROUNDS: Final = {
    "SSI": "ssi",
    "LocalPower q=4": OPT,
    "LocalPower q=8, decay": DECAY,
    "Krylov": "krylov(oversample=0)",
}
NEEDS: Final = {
    "table1": (),
    "table2": (),
    "table3": tuple(CURVES.values()),
    "table6": tuple(TABLE6.values()),
    "table7": (*(TABLE6[label] for label in TABLE7), *TABLE7.values()),
    "rounds": tuple(ROUNDS.values()),
    "curves": tuple(CURVES.values()),
}
SHARES: Final = (0.25, 0.5, 1.0, 2.0)  # of the usual number of clients, in table 2
NOT_AT_HAND: Final = "The paper's own figures for this table are not at hand; these are ours alone."


@dataclass
class Measured:
    """One data set: its size, and what was measured for each seed."""

    n: int
    d: int
    clients: int
    ratio: float = np.nan
    eta: list[float] = field(default_factory=list)
    by_clients: dict[int, tuple[float, float]] = field(default_factory=dict)  # eta, final error; first seed
    traces: dict[str, list[problems.Array]] = field(default_factory=dict)

    def final(self, algorithm: str) -> float:
        """The median over seeds of the error after FINAL messages, or at the end of a shorter run."""
        return float(np.median([curve[:FINAL][-1] for curve in self.traces[algorithm]]))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of LocalPower (ICML 2021) beside this package's numbers."
    opts = report.options(argv, about=about, known=tuple(NEEDS), seeds=(3, 10))
    needed = list(dict.fromkeys(algorithm for name in opts.only for algorithm in NEEDS[name]))
    results = {}
    for name, X in _sets(opts):
        results[name] = measure(name, X, needed, opts)
    print(f"k={K}, {opts.seeds} seed(s), medians; final: after {FINAL} messages that carried a product, or at the end.")
    for name in opts.only:
        if name == "curves":
            panels = {s: {label: m.traces[a][0][:FINAL] for label, a in CURVES.items()} for s, m in results.items()}
            report.curves(opts.out, "local_power_curves", "LocalPower, first seed", panels, error="sin theta")
        else:
            report.table(opts.out, f"local_power_{name}", TABLES[name](results))
    print(f"\nCSV and PNG are in {opts.out}")


def measure(name: str, X: Any, algorithms: Sequence[str], opts: report.Options) -> Measured:
    """All runs on one data set."""
    n, d = X.shape
    clients = max(2, min(60, n // 1000))
    result = Measured(n, d, clients)
    for seed in range(opts.seeds):
        rows = problems.shuffled(X, seed)
        problem = _pose(rows, clients)
        result.ratio = float(problem.values[K] / problem.values[K - 1])
        result.eta.append(problems.heterogeneity(problem))
        for algorithm in algorithms:
            report.progress(f"{name} {n} x {d}, seed {seed}: {algorithm}")
            result.traces.setdefault(algorithm, []).append(_trace(algorithm, problem, seed))
        if "table2" in opts.only and seed == 0:
            for m in sorted({max(2, round(share * clients)) for share in SHARES}):
                report.progress(f"{name} {n} x {d}, seed {seed}: {m} clients")
                split = problem if m == clients else _pose(rows, m)
                floor = float(_trace(OPT, split, seed)[:FINAL][-1])
                result.by_clients[m] = problems.heterogeneity(split), floor
    return result


def _sets(opts: report.Options) -> list[tuple[str, Any]]:
    if opts.data:
        return [(data.located(source)[0].stem, data.read(source)) for source in opts.data]
    found = [(name, opts.data_dir / f"{name}.npz") for name in SETS if (opts.data_dir / f"{name}.npz").is_file()]
    if found:
        return [(name, data.read(path)) for name, path in found]
    report.progress(f"No data sets in {opts.data_dir}: a synthetic one takes their place. Use --data or --data-dir.")
    return [("synthetic", problems.synthetic(6000, problems.geometric(40, 1.1), seed=0))]


def _pose(rows: Any, clients: int) -> problems.Problem:
    return problems.pose(problems.evenly(rows, clients), k=K, scale="max_abs")


def _trace(algorithm: str, problem: problems.Problem, seed: int) -> problems.Array:
    messages = LONG if algorithm in ROUNDS.values() else FINAL
    return problems.trace(algorithm, problem, measure=problems.sin_theta, seed=seed, messages=messages)


def _table1(results: dict[str, Measured]) -> report.Table:
    rows: list[list[object]] = [["data", "n", "d", "clients", "rows each", "lambda_6/lambda_5", "eta"]]
    for name, m in results.items():
        rows.append([name, m.n, m.d, m.clients, m.n // m.clients, f"{m.ratio:.4f}", report.number(np.median(m.eta))])
    return "Table 1: the data sets and how much clients differ (eta)", rows, NOT_AT_HAND


def _table2(results: dict[str, Measured]) -> report.Table:
    rows: list[list[object]] = [["data", "clients", "rows each", "eta", "final error, OPT q=4"]]
    for name, m in results.items():
        for clients, (eta, floor) in m.by_clients.items():
            rows.append([name, clients, m.n // clients, report.number(eta), report.number(floor)])
    return "Table 2: more clients, fewer rows each (first seed)", rows, NOT_AT_HAND


def _table3(results: dict[str, Measured]) -> report.Table:
    rows: list[list[object]] = [["data", *CURVES]]
    for name, m in results.items():
        rows.append([name, *(report.number(m.final(algorithm)) for algorithm in CURVES.values())])
    return "Table 3: final error by local steps q, OPT; decay halves q every 3 messages", rows, NOT_AT_HAND


def _table6(results: dict[str, Measured]) -> report.Table:
    rows: list[list[object]] = [["data", "method", "ours", "expected", "paper"]]
    for name, m in results.items():
        for label, algorithm in TABLE6.items():
            errors = m.final(algorithm), EXPECTED.get((name, label)), PAPER.get((name, label))
            rows.append([name, label, *map(report.number, errors)])
    note = (
        "Paper: its Table 6, 10 runs, as far as its figures are at hand. LocalPower takes q=4 without decay here.\n"
        "This package's QR factors have a positive diagonal at every client, so that vanilla comes close to sign."
    )
    return "Table 6: final error of LocalPower and of one-shot methods", rows, note


def _table7(results: dict[str, Measured]) -> report.Table:
    rows: list[list[object]] = [["data", "method", "no decay, q=4", "decay, ours", "expected", "paper"]]
    for name, m in results.items():
        for label, algorithm in TABLE7.items():
            known = name if label == "OPT" else ""
            errors = m.final(TABLE6[label]), m.final(algorithm), EXPECTED_DECAY.get(known), PAPER_DECAY.get(known)
            rows.append([name, label, *map(report.number, errors)])
    note = "Decay from q=8, halved every 3 messages. Alignment and schedule behind the paper's figures are not at hand."
    return "Table 7: final error with decay", rows, note


def _rounds(results: dict[str, Measured]) -> report.Table:
    header = "/".join(f"{target:g}" for target in TARGETS)
    rows: list[list[object]] = [["data", "method", "messages, ours", "expected"]]
    for name, m in results.items():
        for label, algorithm in ROUNDS.items():
            counts = [[problems.rounds_to(c, target) for c in m.traces[algorithm]] for target in TARGETS]
            least, most = zip(*map(report.span, counts), strict=True)
            ours = "/".join(least) + " .. " + "/".join(most)
            rows.append([name, label, ours, EXPECTED_ROUNDS.get((name, label), report.NONE)])
    note = f"The least .. the most over seeds. {report.NONE}: not within {LONG} messages, or never."
    return f"Messages with a product until sin theta is {header}", rows, note


TABLES: Final = {
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "table6": _table6,
    "table7": _table7,
    "rounds": _rounds,
}
