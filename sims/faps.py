"""The experiments of FAPS beside this package's numbers: `python -m sims.faps`.

Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022.
The paper's letters are turned: its n is our d (columns), its m our n (rows), its p our k, its d the number of clients.
Every algorithm is watched message by message (see `sims.common.problems` for what counts as one) until two things have
come: the relative error of the leading singular values is at most 1.1e-7, which is what the paper's tables print, and
the paper's stopping rule (27), a relative change of ||A'Z||^2 by at most 1e-10. The two do not go together: where the
rule stops, the error is some thirty times smaller than the paper prints (`rule`). Only the first start of a draw goes
on to the rule.

Synthetic problems are run on their leading columns. The paper's V is made of uniform numbers by Gram-Schmidt, so its
first D columns are those of the problem with D columns, and a client's covariance there is that of the whole problem.
The columns beyond have less than a hundredth of the first one's variance (of the flattest spectrum 4 hundredths) and
are gone from a block after a few messages: on twice as many columns, counts lie within what draws and starts differ by,
or 5 % above (`leading`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any, Final, TypeAlias

import numpy as np

from flower_pca import FAPS, DataError, LocalPower, make, simulate
from sims import batched, faps_theory
from sims.common import data, problems, report
from sims.common.problems import Array

TARGET: Final = 1.1e-7
RULE: Final = 1e-10  # the paper's (27)
METHODS: Final = {
    "SSI": "ssi(oversample=0)",
    "LocalPower": "local_power(oversample=0, local_steps=8, halve_every=1)",
    "FAPS": "faps(penalty='paper')",
    "Krylov": "krylov(oversample=0)",
}
MEASURED: Final = {"FAPS, measured": "faps(penalty='measured')"}  # by this package's rule, beside the paper's
ONLY_SUMS: Final = ("SSI", "Krylov")  # what they send is a sum: whose rows are whose makes no difference
NEGLECTED: Final = 0.083  # of the first singular value: where columns that fall geometrically are cut off
WIDEST: Final = 500  # and where they are in any case: for xi=1.0032 at 0.21
IMAGES: Final = ("fashion_mnist", "mnist")  # of the paper's four sets; those of CIFAR are not at hand
IMAGE_CLIENTS, IMAGE_K, IMAGE_ROWS = 16, 5, 3200  # so many rows in small size
IMAGE_MESSAGES: Final = 500  # and at most so many messages, seven times what SSI takes
LIMITS: Final = {False: 800, True: 3000}  # messages, in small size and in the paper's


@dataclass(frozen=True)
class Size:
    """A synthetic problem: n x d rows with singular values xi^(1-j), on so many clients."""

    d: int
    n: int
    k: int
    xi: float = 1.01
    clients: int = 128

    @property
    def label(self) -> str:
        """In words."""
        return f"d={self.d}, n={self.n}, k={self.k}, xi={self.xi:.5g}"

    def cut(self, by: int) -> Size:
        """With so many times fewer clients: each has as many rows as in the paper, beside the same gap."""
        return replace(self, n=self.n // by, clients=max(self.clients // by, 2))

    @property
    def leading(self) -> int:
        """The columns that count, WIDEST at most."""
        return min(self.d, WIDEST, max(round(np.log(1.0 / NEGLECTED) / np.log(self.xi)), 2 * self.k))

    @property
    def counted(self) -> Size:
        """The same with no more columns than count: problems with as many of these are one."""
        return replace(self, d=min(self.d, self.leading))

    def pose(self, seed: int, *, times: int = 1) -> problems.Problem:
        """The leading columns of the problem, or so many times as many, its rows dealt evenly in order."""
        spectrum = problems.geometric(min(self.d, times * self.leading), self.xi)
        X = problems.synthetic(self.n, spectrum, seed)
        return problems.pose(problems.evenly(X, self.clients), k=self.k).condensed()


TABLE1: Final = Size(d=2000, n=128_000, k=20)
TABLE1_PAPER: Final = {"SSI": ("207", "1.09e-07"), "FAPS": ("42", "8.04e-08")}
GRID: Final = {  # of Fig. 2
    "d": tuple(Size(d=1000 + 1000 * j, n=128_000, k=20) for j in (1, 2, 3, 4)),
    "n": tuple(Size(d=2000, n=128_000 + 32_000 * j, k=10) for j in (1, 2, 3, 4)),
    "k": tuple(Size(d=1000, n=128_000, k=10 * j) for j in (1, 2, 3, 4)),
    "xi": tuple(Size(d=1000, n=256_000, k=10, xi=1 + 10 ** (-(1 + j) / 2)) for j in (1, 2, 3, 4)),
}
TABLE2_PAPER: Final = {  # scaled KKT violation, relative error: SSI, LocalPower, FAPS
    "d": ("1.94e-06, 1.06e-07", "1.89e-06, 9.56e-08", "1.87e-06, 8.69e-08"),
    "n": ("1.95e-06, 1.07e-07", "1.92e-06, 1.02e-07", "1.90e-06, 9.97e-08"),
    "k": ("1.95e-06, 8.30e-08", "1.91e-06, 9.18e-08", "1.92e-06, 1.15e-07"),
    "xi": ("4.09e-06, 3.15e-07", "3.94e-06, 3.08e-07", "3.87e-06, 2.99e-07"),
}
FIG4: Final = Size(d=1000, n=160_000, k=10)
FIG4_LEADING: Final = 200  # in small size: another problem, as a client's rows tell the columns beyond no less
FIG4_MESSAGES: Final = 2400  # in the paper's size: SSI is there before
TABLE4: Final = Size(d=1000, n=36_000, k=10, clients=8)
TABLE4_PAPER: Final = {"SSI": "337", "LocalPower": "164", "FAPS": "55"}
CUTS: Final = {"table1": 8, "table2": 32, "fig4": 8, "table4": 4}  # in small size
STARTS: Final = 3  # of each draw
PATIENCE: Final = 10**6  # messages without progress after which a run is given up: never, as curves are looked at


@dataclass(frozen=True)
class Course:
    """A run, message by message.

    Attributes
    ----------
    errors : ndarray
        Of the leading k singular values, relative.
    kkt : ndarray
        ||(I - ZZ')CZ||_F / trace(C), as the paper scales it.
    sums : ndarray
        trace(Z'CZ), what the paper's rule looks at.
    seconds : ndarray
        Of a core, so far.
    """

    errors: Array
    kkt: Array
    sums: Array
    seconds: Array

    @property
    def to_target(self) -> int | None:
        """Messages to the error."""
        return problems.rounds_to(self.errors, TARGET)

    @property
    def moved(self) -> Array:
        """The relative change of the sum with each message, as the paper's rule has it."""
        return np.append([np.inf], np.abs(np.diff(self.sums)) / self.sums[1:])

    @property
    def by_rule(self) -> int | None:
        """Messages until the paper's rule stops.

        It has to hold twice: when LocalPower begins its single steps, the same block is measured once more.
        """
        return problems.rounds_to(np.maximum(self.moved, np.append([np.inf], self.moved[:-1])), RULE)


def course(
    algorithm: str | FAPS | LocalPower,
    problem: problems.Problem,
    *,
    seed: int,
    messages: int,
    to_rule: bool = True,
    share: float = 1.0,
    patience: int = PATIENCE,
) -> Course:
    """Watch a run, of this share of the clients in each round, until the error is reached, and with `to_rule` (27)."""
    points: list[tuple[float, float, float, float]] = []
    total, true = float(problem.values.sum()), np.sqrt(problem.values[: problem.k])
    spent, begun = 0.0, process_time()

    def watch(session: problems.Watched) -> None:
        nonlocal spent, begun
        spent += process_time() - begun
        Z = session.estimate()
        if session.history[-1].stage == "ritz" or Z is None:
            raise problems.EnoughError
        Y = problem.C @ Z
        T = Z.T @ Y
        s = np.sqrt(np.maximum(np.linalg.eigvalsh(T)[::-1][: problem.k], 0.0))
        error = float(np.linalg.norm(s - true) / np.linalg.norm(true))
        points.append((error, float(np.linalg.norm(Y - Z @ T)) / total, float(np.trace(T)), spent))
        stopped = not to_rule or Course(*map(np.array, zip(*points[-3:], strict=True))).by_rule is not None
        if (error <= TARGET and stopped) or len(points) >= messages:
            raise problems.EnoughError
        begun = process_time()

    chosen = make(algorithm, tol=0.0, patience=patience, max_rounds=10 * messages)
    with suppress(problems.EnoughError):
        asked = {"fraction": share} if share < 1.0 else {}
        simulate(chosen, problem.shards, n_components=problem.k, center=False, seed=seed, on_round=watch, **asked)
    return Course(*(np.array(column) for column in zip(*points, strict=True)))


def table1(opts: report.Options) -> report.Found:
    """One problem, with the errors at its end."""
    size = TABLE1 if opts.paper else TABLE1.cut(CUTS["table1"])
    rows: list[list[object]] = [
        ["algorithm", "messages", "messages, paper", "by rule (27)", "error then", "error, paper", "KKT then", "s"]
    ]
    found = _courses("table1", size.pose, opts)
    for method, courses in found.items():
        known = TABLE1_PAPER.get(method, (report.NONE, report.NONE))
        ends = _at_rule(courses, "errors"), known[1], _at_rule(courses, "kkt"), f"{courses[0].seconds[-1]:.0f}"
        rows.append([method, _span(courses), known[0], _span(courses, rule=True), *ends])
    title = f"Table 1: {size.label}, {size.clients} clients"
    note = f"{_counted(opts, size)}; {_ENDS}; seconds of the first."
    return report.Found(title, rows, note, _drawing(title, {size.label: found}), stated=opts.seeds > 1)


def table2(opts: report.Options) -> report.Found:
    """Table 2 and Fig. 2: d, n, k and xi varied."""
    rows: list[list[object]] = [
        ["varied", "problem", *METHODS, "KKT: SSI", "KKT: LocalPower", "KKT: FAPS", "error: FAPS"]
    ]
    known: dict[Size, dict[str, list[Course]]] = {}
    for name, sizes in GRID.items():
        for whole in sizes:
            size = whole if opts.paper else whole.cut(CUTS["table2"])
            if size.counted not in known:
                known[size.counted] = _courses(f"table2, {size.label}", size.pose, opts)
            found = known[size.counted]
            kkt = [_at_rule(found[method], "kkt") for method in ("SSI", "LocalPower", "FAPS")]
            error = _at_rule(found["FAPS"], "errors")
            rows.append([name, size.label, *(_span(courses) for courses in found.values()), *kkt, error])
        for method, cell in zip(("SSI", "LocalPower", "FAPS"), TABLE2_PAPER[name], strict=True):
            blank = [report.NONE] * (len(rows[0]) - 3)
            rows.append([name, f"paper, {method}: KKT, error, mean of 4", cell, *blank])
    note = f"{_counted(opts)}; {_ENDS}."
    return report.Found("Table 2 and Fig. 2: one of d, n, k, xi varied", rows, note, stated=opts.seeds > 1)


def table3(opts: report.Options) -> report.Found:
    """Table 3 and Fig. 3: pictures as rows, shuffled by the seed; a part of them in small size."""
    cached = [opts.data_dir / f"{name}.npz" for name in IMAGES]
    sources = [*(str(path) for path in cached if path.is_file()), *opts.data]
    if not sources:
        raise DataError(f"no {' or '.join(path.name for path in cached)} in {opts.data_dir}. Use --data or --data-dir.")
    rows: list[list[object]] = [["pictures", "frame", *METHODS, "KKT then", "error then"]]
    panels: dict[str, dict[str, list[Course]]] = {}
    most = min(IMAGE_MESSAGES, LIMITS[opts.paper])
    for source in sources:
        X = data.read(source)
        n, name = X.shape[0] if opts.paper else min(X.shape[0], IMAGE_ROWS), data.located(source)[0].stem
        for frame, center in (("as they are", False), ("centred", True)):
            found: dict[str, list[Course]] = {method: [] for method in METHODS}
            for seed in opts.each():
                # Whose row is whose makes little difference: each draw has a start of its own.
                courses = _starts(
                    f"table3, {name}, {frame}", _pictures(X, n, center, seed), seed, opts, starts=(seed,), messages=most
                )
                for method in METHODS:
                    found[method] += courses[method]
            ends = _at_rule(found["FAPS"], "kkt"), _at_rule(found["FAPS"], "errors")
            rows.append([f"{name}, {n} of {X.shape[0]} x {X.shape[1]}", frame, *map(_span, found.values()), *ends])
            panels[f"{name}, {frame}"] = found
    rows.append(["paper, mean of 4 sets", "not said", *["-"] * len(METHODS), "4.42e-06", "5.06e-08"])
    note = (
        f"Messages to an error of {TARGET:g}, {report.NONE} if not in {most}: the least..the most of the draws, each "
        "with a start of its own. KKT violation and error then: of FAPS where rule (27) stops."
    )
    title = f"Table 3 and Fig. 3: pictures, k={IMAGE_K}, {IMAGE_CLIENTS} clients"
    return report.Found(title, rows, note, _drawing(title, panels), stated=opts.seeds > 1)


def _pictures(X: Any, n: int, center: bool, seed: int) -> problems.Problem:
    part = problems.shuffled(X, seed)[:n].astype(np.float64) / 255.0
    part -= part.mean(axis=0) if center else 0.0
    return problems.pose(problems.evenly(part, IMAGE_CLIENTS), k=IMAGE_K).condensed()


def fig4(opts: report.Options) -> report.Found:
    """Arithmetic spectra, on all columns in the paper's size."""
    size = FIG4 if opts.paper else FIG4.cut(CUTS["fig4"])
    methods, most = METHODS | MEASURED, FIG4_MESSAGES if opts.paper else LIMITS[False]
    rows: list[list[object]] = [["kappa", *methods, *(f"rate: {method}" for method in methods)]]
    panels: dict[str, dict[str, list[Course]]] = {}
    for kappa in (10, 100, 1000):
        found: dict[str, list[Course]] = {method: [] for method in methods}
        for seed in opts.each(1 if opts.paper else None):
            what = f"fig4, kappa={kappa}, draw {seed}"
            problem = _falling(size, kappa, seed, columns=size.d if opts.paper else FIG4_LEADING)
            pooled, joined = problem.pooled(), batched.joined(problem)
            for method, courses in found.items():
                posed = pooled if method in ONLY_SUMS else joined
                courses.append(_course(what, method, posed, 0, opts, to_rule=False, messages=most))
        rates = (f"{_rate(courses[0]):.4f}" for courses in found.values())
        rows.append([kappa, *map(_span, found.values()), *rates])
        panels[f"kappa={kappa}"] = found
    note = (
        f"Messages to an error of {TARGET:g}, one start of each draw, {most} at most; rate: the factor by which KKT "
        "falls a message, late."
    )
    title = f"Fig. 4: arithmetic spectra, d={size.d}, n={size.n}, k={size.k}, {size.clients} clients"
    return report.Found(title, rows, note, _drawing(title, panels))


def _falling(size: Size, kappa: float, seed: int, *, columns: int = FIG4_LEADING) -> problems.Problem:
    X = problems.synthetic(size.n, problems.arithmetic(size.d, kappa)[:columns], seed)
    return problems.pose(problems.evenly(X, size.clients), k=size.k).condensed()


def _counted(opts: report.Options, size: Size | None = None) -> str:
    """What is counted, how often, and on how many columns."""
    starts = f"{STARTS if opts.paper else 1} start(s) of each draw"
    columns = "the leading columns" if size is None else f"the leading {size.leading} of {size.d} columns"
    return f"Messages to an error of {TARGET:g} on {columns}, {starts}"


def _rate(seen: Course) -> float:
    half = len(seen.kkt) // 2
    late = np.log(np.maximum(seen.kkt[half:], 1e-300))
    return float(np.exp(np.polyfit(np.arange(len(late)), late, 1)[0])) if len(late) > 1 else float("nan")


def table4(opts: report.Options) -> report.Found:
    """Client i of 8 holds d i rows; draws of the data apart from starts."""
    size = TABLE4 if opts.paper else TABLE4.cut(CUTS["table4"])
    rows: list[list[object]] = [["of", *METHODS, "error then: FAPS"]]
    rows.append(["paper", *(TABLE4_PAPER.get(method, report.NONE) for method in METHODS), "7.67e-08"])
    found = _courses("table4", partial(_uneven, size), opts)
    rows.append(["ours", *map(_span, found.values()), _at_rule(found["FAPS"], "errors")])
    title = f"Table 4: uneven clients, {size.label}, n_i = {size.d} i"
    note = f"{_counted(opts, size)}; {_ENDS}."
    return report.Found(title, rows, note, _drawing(title, {"first draw": found}), stated=opts.seeds > 1)


def leading(opts: report.Options) -> report.Found:
    """The problems of Tables 1 and 4 on their leading columns, and on twice as many."""
    rows: list[list[object]] = [["problem", "columns", *METHODS, "error of FAPS after 40"]]
    for name, whole in (("Table 1", TABLE1), ("Table 4", TABLE4)):
        size = whole if opts.paper else whole.cut(CUTS["table1"])
        for times in (1, 2):
            pose, columns = partial(size.pose, times=times), min(size.d, times * size.leading)
            found = _courses(f"leading, {name}, {columns} columns", pose, opts, to_rule=False)
            late = report.span(sorted(float(course.errors[:40][-1]) for course in found["FAPS"]), report.number)
            rows.append([name, columns, *map(_span, found.values()), late])
    note = f"Messages to an error of {TARGET:g}, the least..the most of draws and starts; clients alike in size."
    return report.Found("The leading columns, and twice as many", rows, note, stated=True)


def rule(opts: report.Options) -> report.Found:
    """Where rule (27) stops SSI, and where SSI has the errors that the paper prints."""
    size = TABLE4 if opts.paper else TABLE4.cut(CUTS["table4"])
    rows: list[list[object]] = [["of", "draw", "looked at", "messages", "error", "KKT", "change of ||A'Z||^2"]]
    rows.append(["paper, Table 4", "-", "the end", "337", "1.06e-07", "1.94e-06", f"at most {RULE:g}, says (27)"])
    for seed in opts.each():
        seen = _course(f"rule, draw {seed}", "SSI", _uneven(size, seed), 0, opts)
        for where, message in ((f"error at {TARGET:g}", seen.to_target), ("(27) stops", seen.by_rule)):
            at = slice(message and message - 1, message)
            values = (report.number(float(v[at][-1])) for v in (seen.errors, seen.kkt, seen.moved))
            rows.append(["ours", seed, where, message or report.NONE, *values])
    note = f"SSI on the problem of Table 4, {size.label}."
    return report.Found("Rule (27) beside the errors that are printed", rows, note)


def penalties(opts: report.Options) -> report.Found:
    """The paper's penalties and measured ones, on the page's problems and where the paper's do better."""
    rows: list[list[object]] = [["problem", "of", "paper's", "measured", "measured / paper's"]]
    runs = {"paper's": METHODS["FAPS"], **MEASURED}
    for name, of, pose, share in _penalized(opts):
        counts = []
        for seed in opts.each():
            run = partial(_of_draw, pose, tuple(runs.values()), share, opts, seed)
            counts.append(opts.once(f"penalties, {name}, draw {seed}", run))
        shares = [b / a for a, b in counts if a < np.inf]
        rows.append([name, of, *(_range(column, ".0f") for column in zip(*counts, strict=True)), _range(shares, ".2f")])
    note = (
        f"Messages to an error of {TARGET:g}, the least..the most of the draws, one start of each; {report.NONE}: not "
        f"in {LIMITS[opts.paper]}. Fig. 4 in small size. Apart: no problem of the paper's; clients with the same rows, "
        "of whom some are asked in each round, and three clients of three rows."
    )
    return report.Found("Penalties of FAPS: the paper's, and measured from the rows", rows, note, stated=opts.seeds > 1)


def _of_draw(
    pose: Callable[[int], problems.Problem], specs: Sequence[str], share: float, opts: report.Options, seed: int
) -> list[float]:
    """The messages that each takes on the draw of the seed."""
    posed = pose(seed)
    return [_to_target(spec, posed, share, opts) for spec in specs]


def _to_target(spec: str, posed: problems.Problem, share: float, opts: report.Options) -> float:
    """Messages to the error, infinite for never; runs go over to the paper's penalties, or give up, as for users."""
    patience, limit = FAPS().patience, LIMITS[opts.paper]
    report.ran(spec)
    seen = course(spec, posed, seed=0, messages=limit, to_rule=False, share=share, patience=patience)
    return float(seen.to_target or np.inf)


def _range(found: Sequence[float], spell: str) -> str:
    """The least..the most."""
    return report.span([x if x < np.inf else None for x in found] or [None], lambda x: format(x, spell))


Penalized: TypeAlias = tuple[str, str, Callable[[int], problems.Problem], float]


def _penalized(opts: report.Options) -> list[Penalized]:
    """The problems: name, whose it is, how it is posed, and the share of the clients that is asked in each round."""
    whole, uneven, flat = TABLE1, TABLE4, FIG4.cut(CUTS["fig4"])
    if not opts.paper:
        whole, uneven, flat = whole.cut(32), uneven.cut(CUTS["table4"]), FIG4.cut(32)
    found: list[Penalized] = [
        ("Table 1", "the page", whole.pose, 1.0),
        ("Table 4", "the page", partial(_uneven, uneven), 1.0),
        *((f"Fig. 4, kappa={kappa}", "the page", partial(_falling, flat, kappa), 1.0) for kappa in (10, 100, 1000)),
        ("8 with the same rows, all asked", "apart", partial(_alike, 8), 1.0),
        ("8 with the same rows, half asked", "apart", partial(_alike, 8), 0.5),
        ("8 with the same rows, a quarter asked", "apart", partial(_alike, 8), 0.25),
        ("4 with the same rows, a quarter asked", "apart", partial(_alike, 4), 0.25),
        ("three clients of three rows", "apart", _few, 1.0),
    ]
    cached = opts.data_dir / f"{IMAGES[0]}.npz"
    if cached.is_file():
        X = data.read(str(cached))
        n = X.shape[0] if opts.paper else IMAGE_ROWS
        found.insert(2, ("Fashion-MNIST, centred", "the page", partial(_pictures, X, n, True), 1.0))
    return found


def _alike(clients: int, seed: int) -> problems.Problem:
    """Clients with the same rows."""
    return problems.pose([problems.synthetic(1000, problems.geometric(20, 1.1), seed)] * clients, k=3).condensed()


def _few(seed: int) -> problems.Problem:
    X = np.random.default_rng([77, seed]).standard_normal((9, 6)) * problems.geometric(6, 1.5)
    return problems.pose(problems.evenly(X, 3), k=2)


def _uneven(size: Size, seed: int) -> problems.Problem:
    X = problems.synthetic(size.n, problems.geometric(size.leading, size.xi), seed)
    share = size.n // sum(range(1, size.clients + 1))
    return problems.pose(problems.deal(X, [share * i for i in range(1, size.clients + 1)]), k=size.k).condensed()


def _courses(
    what: str, pose: Callable[[int], problems.Problem], opts: report.Options, *, to_rule: bool = True
) -> dict[str, list[Course]]:
    """Every method on the draw of each seed, from several starts: those of the first draw first."""
    found: dict[str, list[Course]] = {method: [] for method in METHODS}
    for seed in opts.each():
        for method, courses in _starts(what, pose(seed), seed, opts, to_rule=to_rule).items():
            found[method] += courses
    return found


def _starts(
    what: str,
    problem: problems.Problem,
    draw: int,
    opts: report.Options,
    *,
    starts: Sequence[int] = (),
    messages: int | None = None,
    to_rule: bool = True,
) -> dict[str, list[Course]]:
    """Every method from each start; with `to_rule` the first of them goes on to the paper's rule."""
    starts = starts or range(STARTS if opts.paper else 1)
    pooled, joined = problem.pooled(), batched.joined(problem)
    found: dict[str, list[Course]] = {}
    for method in METHODS:
        posed = pooled if method in ONLY_SUMS else joined
        found[method] = [
            _course(
                f"{what}, draw {draw}, start {i}",
                method,
                posed,
                i,
                opts,
                to_rule=to_rule and i == starts[0],
                messages=messages,
            )
            for i in starts
        ]
    return found


def _course(
    what: str,
    method: str,
    problem: problems.Problem,
    start: int,
    opts: report.Options,
    *,
    to_rule: bool = True,
    messages: int | None = None,
) -> Course:
    """A run; of what sends more than sums, all clients are in one."""
    algorithm, most = (METHODS | MEASURED)[method], messages or LIMITS[opts.paper]

    def run() -> Course:
        report.ran(algorithm)
        if method in ONLY_SUMS:
            return course(algorithm, problem, seed=start, messages=most, to_rule=to_rule)
        with batched.known(algorithm) as joined:
            return course(joined, problem, seed=start, messages=most, to_rule=to_rule)

    return opts.once(f"{what}: {method}", run)


def _span(courses: Sequence[Course], *, rule: bool = False) -> str:
    """The least..the most; of the rule, of the starts that went on to it."""
    counts = [c.by_rule for c in courses if c.by_rule] if rule else [c.to_target for c in courses]
    return report.span(counts or [None])


def _at_rule(courses: Sequence[Course], what: str) -> str:
    """The least..the most of a figure where the rule stops."""
    found = [float(getattr(c, what)[c.by_rule - 1]) for c in courses if c.by_rule]
    return report.span(sorted(found), report.number) if found else report.NONE


def _drawing(title: str, panels: dict[str, dict[str, list[Course]]]) -> report.Drawing:
    curves = {
        panel: {method: found[0].errors for method, found in courses.items()} for panel, courses in panels.items()
    }
    return report.Drawing(f"{title}; first draw", curves, error="relative error of singular values")


_ENDS: Final = (
    "the least..the most of draws and starts; KKT violation and error where rule (27) stops, of the runs that go on to "
    "it, the first start of each draw"
)
SEEDS: Final = (1, 5)  # in small size, in the paper's
EXPERIMENTS: Final[report.Experiments] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "fig4": fig4,
    "table4": table4,
    "rule": rule,
    "leading": leading,
    "penalties": penalties,
    "proposition2": faps_theory.recovered,
    "proposition3": faps_theory.multipliers,
    "proposition5": faps_theory.mask,
    "theorem8": faps_theory.worst_case,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of FAPS (2022) beside this package's numbers."
    report.main(argv, room="faps", about=about, experiments=EXPERIMENTS, seeds=SEEDS)


if __name__ == "__main__":
    report.command(main)
