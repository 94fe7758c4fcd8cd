"""Items drawn by lot and run again with other seeds: do their numbers keep within the spread that the page states?"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from flower_pca import DataError
from sims.catalogue import ITEMS, minutes
from sims.common import record, report, spread

KEPT: Final = Path(__file__).with_name("lot.json")
MINUTES: Final = 5.0  # of a core that an item may take, by its record
FIRST: Final = 1000  # of the other seeds


@dataclass(frozen=True)
class Again:
    """A program run again: its seeds, how many numbers, of how many no spread is stated, and those beyond theirs."""

    program: str
    seeds: list[int]
    numbers: int
    unstated: int
    off: list[dict[str, str]]


@dataclass(frozen=True)
class Lot:
    """What was drawn, of how many, by which seed, when, and what came; and what a reader has to know of how.

    `left` are the programs that were drawn and not run.
    """

    seed: int
    of: int
    date: str
    runs: list[Again]
    note: str = ""
    left: list[str] = field(default_factory=list)


def eligible() -> list[str]:
    """The programs that draw seeds, are recorded at the paper's size, and do not take too long."""
    found = (record.read(program) for program in sorted({item.program for item in ITEMS if item.program}))
    return [kept.item for kept in found if kept and kept.size == "paper" and kept.seeds and alone(kept) <= MINUTES]


def alone(kept: record.Record) -> float:
    """The minutes of a program that is run by itself: its record has none for what another one had left for it."""
    return max(kept.minutes, minutes()[kept.item])


def drawn(count: int, seed: int) -> list[str]:
    """So many of them, each as likely as any other."""
    names = eligible()
    return sorted(np.random.default_rng(seed).choice(names, min(count, len(names)), replace=False).tolist())


def run(count: int, seed: int, data_dir: Path, first: int = FIRST) -> Lot:
    """Draw, run each with as many other seeds as its record has, from `first` on, and compare."""
    runs, left = list[Again](), list[str]()
    for program in drawn(count, seed):
        kept = record.read(program)
        assert kept is not None
        print(f"{program}, about {alone(kept):g} minutes", flush=True)
        try:
            runs.append(again(program, first, data_dir))
        except DataError as error:
            print(f"left out: {error}")
            left.append(program)
            continue
        print("\n".join(told(runs[-1])), flush=True)
    return Lot(seed, len(eligible()), datetime.datetime.now(datetime.UTC).date().isoformat(), runs, left=left)


def again(program: str, first: int, data_dir: Path) -> Again:
    """A recorded program run with as many other seeds, from `first` on, and compared with its record."""
    items = {item.program: item for item in ITEMS if item.program}
    kept = record.read(program)
    if kept is None:
        raise DataError(f"{program} has no record to compare with. Run: python -m sims --paper {program}")
    if first in kept.seeds:
        raise DataError(f"The record of {program} has seed {first}. Choose another with --first.")
    experiments, name, _ = items[program].experiment()
    opts = report.Options(
        (name,), Path("out"), (), data_dir, max(len(kept.seeds), 1), kept.size == "paper", first=first
    )
    made = record.made(program, experiments[name], opts)
    if len(made.rows) != len(kept.rows) or made.rows[0] != kept.rows[0]:
        raise DataError(
            f"{program} now makes other rows than its record. Run: python -m sims --paper --again {program}"
        )
    drawn = (kept.draws, made.draws) if kept.draws and made.draws else None
    found = spread.compared(kept.rows, made.rows, len(kept.seeds), kept.swings, drawn)
    return Again(program, made.seeds, found.numbers, found.unstated, [asdict(off) for off in found.off])


def told(again: Again) -> list[str]:
    """An item's outcome in words, and a line for each number that is elsewhere."""
    inside = again.numbers - again.unstated - len(again.off)
    first = f"{again.program}: {inside} of {again.numbers - again.unstated} numbers within the spread stated"
    first += f", {again.unstated} more without one" if again.unstated else ""
    return [first, *(f"  {off['row']}: {off['column']}: {off['printed']}, now {off['again']}" for off in again.off)]


def write(lot: Lot) -> None:
    """Keep it for the page."""
    KEPT.write_text(json.dumps(asdict(lot), indent=1) + "\n", encoding="utf-8")


def read() -> Lot | None:
    """The newest lot, if there is one."""
    if not KEPT.is_file():
        return None
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return Lot(**{**kept, "runs": [Again(**again) for again in kept["runs"]]})


def section() -> str:
    """What the page says of it."""
    lot = read()
    if lot is None:
        return ""
    lines = ["## Drawn by lot, and run again", ""]
    left = f", except {' and '.join(lot.left)}" if lot.left else ""
    lines += [
        "Do the recorded numbers depend on the seeds? "
        f"On {lot.date}, we drew {len(lot.runs) + len(lot.left)} of the {lot.of} programs that take at most "
        f"{MINUTES:g} minutes (seed {lot.seed}) and ran them with new seeds{left}. The column *within* says how many "
        "of the new numbers agree with the recorded numbers:",
        "",
        "- A mean agrees if the logarithms of the numbers of its seeds agree with the recorded ones in mean and in "
        f"standard deviation, each by Student's t-test at {spread.LEVEL:.1%}; for the deviations, by Miller's "
        "jackknife. Two runs that are alike so differ in about 2 of 1000 means. Where a record does not have the "
        f"numbers of its seeds, Student's t-test and an F-test at {spread.LEVEL:.1%} hold means and deviations "
        "against each other.",
        "- A span such as *3..7* agrees if it lies within the recorded span, widened by its own width on both sides. "
        "Of runs that are alike, this holds for 90 percent of the spans of five seeds and for 98 percent of those of "
        "ten, if the logarithms of the numbers are normal.",
        "- All other numbers, and means without their seeds' numbers whose standard deviation is more than half of "
        "the mean, agree if they differ by no more than the *swing* of their row.",
        "- Numbers without a recorded spread are not counted.",
        "",
        " ".join(filter(None, [_summed(lot), lot.note])),
        "",
        "| program | seeds | numbers | within | outside (row, column: recorded, new) |",
        "|---|---|---|---|---|",
    ]
    for again in lot.runs:
        stated = again.numbers - again.unstated
        off = "; ".join(f"{o['row']}, {o['column']}: {o['printed']}, {o['again']}" for o in again.off)
        within = f"{stated - len(again.off)} of {stated}"
        elsewhere = off.replace("|", "\\|") or "-"
        lines.append(f"| {again.program} | {_seeds(again.seeds)} | {again.numbers} | {within} | {elsewhere} |")
    return "\n".join([*lines, ""])


def _summed(lot: Lot) -> str:
    """How many of all numbers are within, and why those that are not are seldom alone."""
    stated = sum(again.numbers - again.unstated for again in lot.runs)
    off = sum(len(again.off) for again in lot.runs)
    alone = " Rows of one data set share draws and starts, so one rare draw moves many numbers at once." if off else ""
    return f"{stated - off} of {stated} numbers are within.{alone}"


def _seeds(seeds: list[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
