"""What the papers claim, a card each: the claim quoted, their numbers beside ours in one picture, and the verdict.

Pictures and ratios are made from the records. A card whose record is not there says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from sims.common import record, report
from sims.common.record import Record
from sims.judged import JUDGED

_NUMBER: Final = re.compile(r"-?\d*\.?\d+(?:e[+-]?\d+)?")
_COLOURS: Final = ("#1f5fa8", "#d9772b", "#2f8f6b", "#a3508f", "#6b7280", "#b8a13a")


@dataclass(frozen=True)
class Value:
    """A number with the ends of its spread; both the number itself where none is stated."""

    at: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """Of one method, the paper's number and ours at each label; None where there is none."""

    name: str
    paper: Sequence[Value | None]
    ours: Sequence[Value | None]


@dataclass(frozen=True)
class Dots:
    """The paper's numbers as hollow marks, ours as full ones. `hollow` says what hollow marks show if not these."""

    labels: Sequence[str]
    series: Sequence[Series]
    what: str
    log: bool = True
    along: str = ""
    hollow: str = ""

    @property
    def compared(self) -> bool:
        """Are there hollow marks?"""
        return any(paper is not None for series in self.series for paper in series.paper)


@dataclass(frozen=True)
class Card:
    """A claim.

    Attributes
    ----------
    quote : str
        In the paper's words.
    place : str
        Where it stands.
    program : str
        Whose record answers it; its verdict is the card's.
    found : str
        What the record shows, in a sentence.
    dots : callable or None
        The picture, from the record; the record's curves where it is None.
    agreement : str
        How the claim came out, if not as the numbers of its program did.
    reason : str
        The cause of this `agreement`, one of CAUSES.
    """

    quote: str
    place: str
    program: str
    found: str
    dots: Callable[[Record], Dots] | None = None
    agreement: str = ""
    reason: str = ""

    @property
    def kept(self) -> Record | None:
        """The record, if there is one."""
        return record.read(self.program)

    @property
    def verdict(self) -> str:
        """How it came out."""
        if not self.kept or self.program not in JUDGED:
            return "not run yet"
        return self.agreement or JUDGED[self.program].agreement

    @property
    def cause(self) -> str:
        """Why it is not the same, in one of four words; "" if it is."""
        if not self.kept or self.program not in JUDGED:
            return ""
        return self.reason if self.agreement else JUDGED[self.program].cause

    @property
    def ratio(self) -> str:
        """Ours over the paper's: the median of all pairs, and the least and the most; "" if none are the claim's."""
        if self.kept is None:
            return report.NONE
        if self.dots is None or (dots := self.dots(self.kept)).hollow:
            return ""
        pairs = [
            (a.at, b.at)
            for series in dots.series
            for a, b in zip(series.paper, series.ours, strict=True)
            if a and b and a.at != 0.0
        ]
        ratios = sorted(b / a for a, b in pairs)
        if not ratios:
            return ""
        spread = f" ({ratios[0]:.2g} to {ratios[-1]:.2g})" if len(ratios) > 1 else ""
        return f"{median(ratios):.2g}{spread}"

    def draw(self, path: Path) -> bool:
        """Draw it, if there is something to draw."""
        if self.kept is None:
            return False
        if self.dots is not None:
            marks(path, self.dots(self.kept))
            return True
        drawing = self.kept.picture()
        if drawing is not None:
            report.draw(path, drawing)
        return drawing is not None


@dataclass(frozen=True)
class Reading:
    """Something that a paper does not say: the question, its words, what is taken, and the number that it moves."""

    config: str
    words: str
    taken: str
    moves: str


@dataclass(frozen=True)
class Paper:
    """A page: the answer in a sentence or two, for the index too, what else there is to say, the cards and readings."""

    file: str
    answer: str
    more: str
    cards: Sequence[Card]
    readings: Sequence[Reading] = field(default=())


def value(cell: str) -> Value | None:
    """The number of a cell with its spread: "4.1e-03 (4.2e-04)", "3..7", or a number alone; None of words."""
    found = [float(text) for end in cell.split("..") for text in _NUMBER.findall(end)]
    if not found or cell.startswith(">"):
        return None
    if ".." in cell:
        low, high = min(found), max(found)
        return Value(float(np.sqrt(low * high)) if low > 0.0 else (low + high) / 2.0, low, high)
    if "(" in cell and len(found) > 1:
        return Value(found[0], max(found[0] - found[1], 0.0), found[0] + found[1])
    return Value(found[0], found[0], found[0])


def by_set(*methods: str, what: str = "final error", log: bool = True) -> Callable[[Record], Dots]:
    """Of a table with rows of the paper and of ours for each set, these columns."""

    def dots(kept: Record) -> Dots:
        names = list(dict.fromkeys(row["data"] for row in kept.table))
        cells = {(row["data"], row["of"]): row for row in kept.table}
        series = [
            Series(
                method,
                [value(cells[name, "paper"].get(method, "-")) if (name, "paper") in cells else None for name in names],
                [value(cells[name, "ours"].get(method, "-")) for name in names],
            )
            for method in methods
        ]
        return Dots(names, series, what, log)

    return dots


def by_row(
    label: str, ours: str, paper: str, *, what: str, log: bool = True, most: int | None = None
) -> Callable[[Record], Dots]:
    """Of a table with a row for each label, the column that is ours and the paper's."""

    def dots(kept: Record) -> Dots:
        rows = kept.table[:most]
        found = [value(row[ours]) for row in rows]
        series = [Series(ours, [value(row[paper]) for row in rows], found)]
        return Dots([row[label] for row in rows], series, what, log, label)

    return dots


def beside(label: str, columns: Sequence[str], *, what: str, paper: Sequence[str] = (), log: bool = True,
           only: Callable[[dict[str, str]], bool] = lambda row: True) -> Callable[[Record], Dots]:  # fmt: skip
    """Of a table without the paper's numbers, these columns; `paper` are numbers that its text has for the first."""

    def dots(kept: Record) -> Dots:
        rows = [row for row in kept.table if only(row)]
        none = [None] * len(rows)
        known = [value(cell) for cell in paper] if paper else none
        series = [
            Series(name, known if i == 0 else none, [value(row[name]) for row in rows])
            for i, name in enumerate(columns)
        ]
        return Dots([row[label] for row in rows], series, what, log, label)

    return dots


def marks(path: Path, dots: Dots) -> None:
    """Draw hollow marks for the paper's numbers, and full ones with their spread for ours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7.2, 3.2), dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    width = 0.7 / len(dots.series)
    for j, series in enumerate(dots.series):
        for i, (paper, ours) in enumerate(zip(series.paper, series.ours, strict=True)):
            x, colour = i + (j - (len(dots.series) - 1) / 2.0) * width, _COLOURS[j]
            if ours is not None:
                low = max(ours.low, ours.at / 30.0) if dots.log else ours.low
                ax.plot([x, x], [low, ours.high], color=colour, lw=1.5)
                ax.plot([x], [ours.at], "o", color=colour, ms=5)
            if paper is not None:
                ax.plot([x], [paper.at], "o", mfc="none", mec=colour, ms=9, mew=1.3)
    if dots.log:
        ax.set_yscale("log")
    else:  # from 0 on, so that a small difference looks small
        ends = [0.0, *(1.05 * end for end in ax.get_ylim())]
        ax.set_ylim(min(ends), max(ends))
    ax.set_xlabel(dots.along, fontsize=9)
    ax.set_xticks(range(len(dots.labels)), dots.labels, fontsize=8, rotation=20 if len(dots.labels) > 6 else 0)
    ax.set_ylabel(dots.what, fontsize=9)
    ax.grid(color="#e6e8ec", axis="y")
    ax.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], color=_COLOURS[j], marker="o", ls="", label=s.name) for j, s in enumerate(dots.series)]
    if dots.compared:
        handles.append(Line2D([], [], mfc="none", mec="black", marker="o", ms=9, ls="", label=dots.hollow or "paper"))
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
