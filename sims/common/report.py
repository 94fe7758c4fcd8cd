"""What the simulations hand over: tables on the screen and as CSV, curves as PNG and CSV, progress on stderr."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from flower_pca import DataError
from sims.common import data

Curves: TypeAlias = Mapping[str, npt.NDArray[Any]]
T = TypeVar("T")

NONE: Final = "-"  # a number that is not known, or a target that is never reached
RAN: Final[set[str]] = set()  # the algorithms of the experiment under way
_ACROSS: Final = 3  # panels in a row
_COLOURS: Final = (
    "#1f5fa8", "#d9772b", "#2f8f6b", "#a3508f", "#6b7280", "#b8a13a", "#4fb0c6", "#8a4b2d", "#c23b5a",
    "#5b53a6", "#98b84a", "#2e2e2e",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One run of an experiment: what it found, which algorithms ran, and the seconds of a core that it took."""

    found: Any
    algorithms: frozenset[str]
    seconds: float


@dataclass(frozen=True)
class Options:
    """What the command line says, the same for every simulation; and which seeds a program has really taken.

    An experiment draws its seeds by `each`, so that a record can say which ran, whatever was asked for; and it says
    by `ran` which algorithms have run. What takes long it runs by `once`: the whole table and the tables of single
    seeds then share their runs, and a program that was stopped goes on from the runs that it has kept.

    Attributes
    ----------
    first : int
        The first seed.
    whole : int or None
        For the table of a single seed: the first seed of the table that it is part of.
    points : MutableMapping
        The runs so far, by their names.
    used : set of str
        The names of those that the table is made of.
    """

    only: tuple[str, ...]
    out: Path
    data: tuple[str, ...]
    data_dir: Path
    seeds: int
    paper: bool
    first: int = 0
    drawn: set[int] = field(default_factory=set, compare=False)
    whole: int | None = None
    points: MutableMapping[str, Point] = field(default_factory=dict, compare=False)
    used: set[str] = field(default_factory=set, compare=False)

    def each(self, most: int | None = None) -> Iterator[int]:
        """The seeds, `most` of them, from `first` on; each counts as one that has run once it is drawn.

        A row of fewer seeds than the table stays the same in the tables of all single seeds.
        """
        first = self.first
        if most is not None and self.whole is not None and first >= self.whole + most:
            first = self.whole
        for seed in range(first, first + self.seeds)[:most]:
            self.drawn.add(seed)
            yield seed

    def once(self, point: str, run: Callable[[], T]) -> T:
        """What the run of this name finds, or has found before."""
        self.used.add(point)
        if point not in self.points:
            progress(point)
            before, begun = set(RAN), process_time()
            RAN.clear()
            found = run()
            self.points[point] = Point(found, frozenset(RAN), process_time() - begun)
            RAN.update(before)
        kept = self.points[point]
        RAN.update(kept.algorithms)
        answer: T = kept.found
        return answer

    def one(self) -> int:
        """The first seed, where a program has but one."""
        return next(self.each(1))


class Drawn(str):
    """What is printed of several seeds, their mean and deviation or their median, say, and the number of each seed."""

    draws: tuple[float, ...]

    def __new__(cls, text: str, draws: Iterable[float]) -> Drawn:
        """Take the printed text and the numbers."""
        found = super().__new__(cls, text)
        found.draws = tuple(map(float, draws))
        return found


@dataclass(frozen=True)
class Drawing:
    """Curves of errors, panels of them side by side."""

    title: str
    panels: Mapping[str, Curves]
    error: str
    along: str = "messages with a product"


@dataclass(frozen=True)
class Found:
    """What an experiment has found: a table, its rows with the header first, and curves if it has any.

    `stated` says that each number is given with its spread: as the least..the most of the seeds, which is one number if
    they agree, as a mean with its deviation, or as what is `Drawn`: a median, or a mean whose deviation can be of its
    size.
    """

    title: str
    rows: list[list[object]]
    note: str = ""
    drawing: Drawing | None = None
    stated: bool = False


Experiments: TypeAlias = Mapping[str, Callable[["Options"], Found]]


def options(argv: Sequence[str] | None, *, about: str, known: Sequence[str], seeds: tuple[int, int]) -> Options:
    """The options; `seeds` are the numbers of seeds in small size and in the paper's."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--only", default=",".join(known), help=f"which of {', '.join(known)}, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for PNG and CSV (default: out)")
    parser.add_argument("--data", nargs="+", default=[], metavar="PATH[:KEY]", help="your own svmlight or npz files")
    told = f"folder of the papers' data sets, as npz (default: what {data.VARIABLE} names, else ./data)"
    parser.add_argument("--data-dir", type=Path, default=data.folder(), help=told)
    parser.add_argument("--seeds", type=int, help=f"repetitions (default: {seeds[0]}; with --paper {seeds[1]})")
    parser.add_argument("--paper", action="store_true", help="the paper's size instead of a small one")
    given = parser.parse_args(argv)
    only = tuple(name.strip() for name in given.only.split(","))
    if unknown := [name for name in only if name not in known]:
        parser.error(f"--only must name some of {', '.join(known)}. Got {', '.join(unknown)}.")
    repetitions = seeds[given.paper] if given.seeds is None else given.seeds
    if repetitions < 1:
        parser.error(f"--seeds must be at least 1. Got {repetitions}.")
    return Options(only, given.out, tuple(given.data), given.data_dir, repetitions, given.paper)


def main(
    argv: Sequence[str] | None, *, room: str, about: str, experiments: Experiments, seeds: tuple[int, int]
) -> None:
    """What every room's command does: measure, print, draw; an experiment whose data are not there is left out."""
    opts = options(argv, about=about, known=tuple(experiments), seeds=seeds)
    for name in opts.only:
        try:
            found = experiments[name](opts)
        except DataError as error:
            progress(f"{name} is left out: {error}")
        else:
            show(opts.out, f"{room}_{name}", found)
    print(f"\nCSV and PNG are in {opts.out}")


def command(main: Callable[[], None]) -> None:
    """Run it as a command: what is wrong with the data is an answer, not a traceback."""
    try:
        main()
    except DataError as error:
        raise SystemExit(str(error)) from None


def ran(algorithm: object) -> None:
    """Note that an algorithm runs: its name, or the words that it is made of."""
    RAN.add(str(getattr(algorithm, "name", algorithm)))


def progress(text: str) -> None:
    """Tell on stderr where the work stands."""
    print(text, file=sys.stderr, flush=True)


def lines(rows: Sequence[Sequence[object]]) -> list[str]:
    """A table in columns, a rule under its header."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    ruled = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in ruled]


def show(out: Path, name: str, found: Found) -> None:
    """Print the table, write its rows to NAME.csv, and curves to NAME_curves.csv and NAME_curves.png."""
    print(f"\n{found.title}\n" + "\n".join(lines(found.rows)) + (f"\n{found.note}" if found.note else ""))
    _write(out, f"{name}.csv", [[str(cell) for cell in row] for row in found.rows])
    if found.drawing is not None:
        rows: list[list[str]] = [["panel", "curve", "at", "error"]]
        for panel, curves in found.drawing.panels.items():
            for label, curve in curves.items():
                rows += [[panel, label, str(m), repr(float(e))] for m, e in enumerate(curve, start=1)]
        _write(out, f"{name}_curves.csv", rows)
        draw(out / f"{name}_curves.png", found.drawing)


def draw(path: Path, drawing: Drawing) -> None:
    """Draw the curves, if matplotlib is there."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        progress(f'{path.name} is not drawn: that needs matplotlib. Run: pip install "flower-pca[plot]"')
        return
    panels = drawing.panels
    down, across = -(-len(panels) // _ACROSS), min(len(panels), _ACROSS)
    size = (1.5 + 4.2 * across, 0.6 + 3.6 * down)
    figure = Figure(figsize=size, dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for ax, (panel, lines) in zip(axes, panels.items(), strict=False):
        for j, (label, curve) in enumerate(lines.items()):
            style = "--" if "decay" in label else "-"
            shown = np.maximum(curve, 1e-16)  # a logarithm has to exist
            ax.semilogy(np.arange(1, len(curve) + 1), shown, style, color=_COLOURS[j], lw=1.5, label=label)
        ax.set(xlabel=drawing.along)
        ax.set_title(panel, fontsize=9)
        ax.grid(color="#e6e8ec")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(drawing.error)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(drawing.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def number(value: float | None) -> str:
    """An error in two digits."""
    return NONE if value is None else f"{value:.1e}"


def mean_std(values: npt.NDArray[np.float64], spell: Callable[[float], str] = number) -> str:
    """The mean of the seeds and, in brackets, their deviation; of one seed its number."""
    if len(values) == 1:
        return spell(float(values[0]))
    return Drawn(f"{spell(float(values.mean()))} ({spell(float(values.std(ddof=1)))})", values)


def drawn(
    values: Iterable[float],
    spell: Callable[[float], str] = number,
    of: Callable[[npt.NDArray[np.float64]], Any] = np.median,
) -> str:
    """The median of the seeds, or what else is wanted of their numbers; of one seed its number."""
    found = np.array(list(values), dtype=np.float64)
    printed = spell(float(of(found)))
    return Drawn(printed, found) if len(found) > 1 else printed


def span(found: Sequence[float | None], spell: Callable[[float], str] = str) -> str:
    """The least..the most that several seeds have found; None, never, is more than any number."""
    told = sorted(value for value in found if value is not None)
    words = [*map(spell, told), *[NONE] * (len(found) - len(told))]
    return words[0] if words[0] == words[-1] else f"{words[0]}..{words[-1]}"


def _write(out: Path, name: str, rows: Iterable[Sequence[str]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with open(out / name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
