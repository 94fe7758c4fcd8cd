"""The experiments of FAPS beside this package's numbers: `python -m sims.faps`.

Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022.
Rounds until the relative error of the leading k singular values is at most 1.1e-7, nothing centred, for the synthetic
problems; see `sims.common.problems` for what counts as a round. "Expected" are this project's own earlier figures, of
the paper's size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sims.common import data, problems, report

TARGET: Final = 1.1e-7
METHODS: Final = {"SSI": "ssi", "LocalPower": "local_power", "FAPS": "faps", "Krylov": "krylov(oversample=0)"}
IMAGES: Final = "fashion_mnist"
IMAGE_CLIENTS, IMAGE_K, IMAGE_ROWS = 16, 5, 3200  # so many rows in small size

PAPER: Final = {"table1": "SSI 207, FAPS 42", "table4": "SSI 337, LocalPower 164, FAPS 55"}
EXPECTED: Final = {
    "xi=1.001": "SSI > 1500, Krylov 29",
    "xi=1.01": "SSI 239..318, Krylov 11",
    "xi=1.1": "SSI 30..38, Krylov 5",
    "kappa=10": "SSI > 1500, Krylov 32",
    "kappa=100": "SSI > 1500, Krylov 31",
    "kappa=1000": "SSI > 1500, Krylov 31",
    "uneven": "SSI 239..340, FAPS 79..97",
}


@dataclass(frozen=True)
class Size:
    """A synthetic problem: n x d rows with singular values xi^(1-j), on so many clients."""

    d: int
    n: int
    k: int = 10
    xi: float = 1.01
    clients: int = 8

    def pose(self, seed: int) -> problems.Problem:
        """The problem, its rows dealt evenly in order."""
        X = problems.synthetic(self.n, problems.geometric(self.d, self.xi), seed)
        return problems.pose(problems.evenly(X, self.clients), k=self.k)


SMALL, FULL = Size(d=160, n=11520), Size(d=1000, n=72000)  # nine times as many rows as columns at a client
LIMITS: Final = {False: 400, True: 1500}  # messages, in small size and in the paper's

NOTES: Final = {
    "table1": "The paper's size for this table is not at hand; ours is the first line.",
    "table2": "The paper's own figures for this table are not at hand.",
    "table3": f"k={IMAGE_K}, {IMAGE_CLIENTS} clients, centred. The paper's own figures for this table are not at hand.",
    "fig4": "The paper's own figures for this picture are not at hand.",
    "table4": "LocalPower: 8 local steps, halved every 3 messages; the paper's schedule is not at hand.",
}


@dataclass(frozen=True)
class Case:
    """A line of a table: a problem in words, what to look up in EXPECTED, and the problem of a seed."""

    label: str
    key: str
    pose: Callable[[int], problems.Problem]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of FAPS (2022) beside this package's numbers."
    opts = report.options(argv, about=about, known=tuple(CASES), seeds=(1, 3))
    limit = LIMITS[opts.paper]
    print(f"Messages that carried a product, opening included, until rel_sv <= {TARGET:g}; {opts.seeds} seed(s).")
    print(f"{report.NONE}: not within {limit}. Expected: at d=1000, k=10. Paper: at the paper's size.")
    for name in opts.only:
        title, cases = CASES[name]
        rows: list[list[object]] = [["problem", *METHODS, "expected", "paper"]]
        panels: dict[str, report.Curves] = {}
        for case in cases(opts):
            traces = _traces(f"{name}, {case.label}", case, opts.seeds, limit)
            spans = (report.span([problems.rounds_to(c, TARGET) for c in found]) for found in traces.values())
            cells = [least if least == most else f"{least}..{most}" for least, most in spans]
            known = EXPECTED.get(case.key, report.NONE), PAPER.get(name, report.NONE)
            rows.append([case.label, *cells, *known])
            panels[case.label] = {method: found[0] for method, found in traces.items()}
        if not panels:
            report.progress(f"{name} is left out: no {IMAGES}.npz in {opts.data_dir}. Use --data or --data-dir.")
            continue
        report.table(opts.out, f"faps_{name}", (title, rows, NOTES[name]))
        report.curves(opts.out, f"faps_{name}_curves", f"{title}; first seed", panels, error="rel_sv")
    print(f"\nCSV and PNG are in {opts.out}")


def _traces(what: str, case: Case, seeds: int, limit: int) -> dict[str, list[problems.Array]]:
    found: dict[str, list[problems.Array]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        problem = case.pose(seed)
        for method, algorithm in METHODS.items():
            report.progress(f"{what}, seed {seed}: {method}")
            found[method].append(
                problems.trace(algorithm, problem, measure=problems.rel_sv, seed=seed, messages=limit, target=TARGET)
            )
    return found


def _case(size: Size) -> Case:
    label = f"d={size.d}, n={size.n}, k={size.k}, xi={size.xi:g}, N={size.clients}"
    like_expected = size.k == Size.k and size.d in (SMALL.d, FULL.d)
    return Case(label, f"xi={size.xi:g}" if like_expected else "", size.pose)


def _base(opts: report.Options) -> list[Case]:
    return [_case(FULL if opts.paper else SMALL)]


def _varied(opts: report.Options) -> list[Case]:
    """One of d, n, k, xi at a time away from the base."""
    base = FULL if opts.paper else SMALL
    sizes = [base, replace(base, d=base.d // 2), replace(base, d=2 * base.d)]
    sizes += [replace(base, n=base.n // 2), replace(base, n=2 * base.n)]
    sizes += [replace(base, k=k) for k in (5, 20)]
    sizes += [replace(base, xi=xi) for xi in (1.001, 1.1)]
    return [_case(size) for size in sizes]


def _images(opts: report.Options) -> list[Case]:
    """Pictures as rows, shuffled by the seed; a part of them in small size."""
    cached = opts.data_dir / f"{IMAGES}.npz"
    sources = [*([str(cached)] if cached.is_file() else []), *opts.data]
    cases = []
    for source in sources:
        X = data.read(source)
        rows = X.shape[0] if opts.paper else min(X.shape[0], IMAGE_ROWS)
        label = f"{data.located(source)[0].stem}, {rows} of {X.shape[0]} x {X.shape[1]}"
        cases.append(Case(label, "", partial(_image_problem, X, rows)))
    return cases


def _image_problem(X: Any, rows: int, seed: int) -> problems.Problem:
    part = problems.shuffled(X, seed)[:rows]
    return problems.pose(problems.evenly(part, IMAGE_CLIENTS), k=IMAGE_K, center=True)


def _arithmetic(opts: report.Options) -> list[Case]:
    base = FULL if opts.paper else SMALL
    return [Case(f"kappa={kappa}", f"kappa={kappa}", partial(_falling, base, kappa)) for kappa in (10, 100, 1000)]


def _falling(size: Size, kappa: float, seed: int) -> problems.Problem:
    X = problems.synthetic(size.n, problems.arithmetic(size.d, kappa), seed)
    return problems.pose(problems.evenly(X, size.clients), k=size.k)


def _uneven(opts: report.Options) -> list[Case]:
    """Client i of 8 holds d i rows."""
    base = FULL if opts.paper else SMALL
    sizes = [base.d * i for i in range(1, 9)]

    def pose(seed: int) -> problems.Problem:
        X = problems.synthetic(sum(sizes), problems.geometric(base.d, base.xi), seed)
        return problems.pose(problems.deal(X, sizes), k=base.k)

    return [Case(f"d={base.d}, n={sum(sizes)}, k={base.k}, xi={base.xi:g}, n_i={sizes[0]} i", "uneven", pose)]


CASES: Final[dict[str, tuple[str, Callable[[report.Options], list[Case]]]]] = {
    "table1": ("Table 1: a geometric spectrum, even clients", _base),
    "table2": ("Table 2 and Fig. 2: d, n, k and xi varied", _varied),
    "table3": ("Table 3 and Fig. 3: pictures", _images),
    "fig4": ("Fig. 4: arithmetic spectra", _arithmetic),
    "table4": ("Table 4: uneven clients", _uneven),
}

if __name__ == "__main__":
    report.command(main)
