"""sims/reproduction.md, made from the catalogue and the results and from nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from sims import claims, lot
from sims.catalogue import ITEMS, PAPERS, Item
from sims.common import record, report
from sims.common.record import Record
from sims.judged import JUDGED

UNRUN, NOTHING = "not run yet", "nothing to run"
PAGE: Final = Path(__file__).with_name("reproduction.md")
PICTURES: Final = PAGE.with_name("pictures")
MARKS: Final = ("data", "size", "algorithm", "repetitions")  # in which a run may be the paper's

HEAD: Final = """# The papers' tables and figures, run again

<!-- Made by `python -m sims --page` from the files in sims/results: change those, not this. -->

Five papers are behind this package. Every table and figure of theirs has a row here, with what came out when this
package ran it: at the paper's size, or smaller where that says so. Figures of the papers are cited; ours come from
recorded runs with seeds, versions and dates. `python -m sims --list` prints the catalogue, and `python -m sims --paper`
runs it again, all of it or what is named behind it. `sims/README.md` tells more of the single programs.

An item is *the same* if the figures agree within what shuffles and starts make them swing, or if a figure shows what
the paper says it shows; *same order* if methods rank as in the paper but figures differ; *in part* if some of it holds;
*differs* if not. A statement with a tick or a cross is checked by a program on the recorded numbers.

*Swing* is the factor within which the numbers of single seeds lie off those of their row, spans apart, and means with a
deviation of up to half of them in brackets: a *-* stands where nothing in a row swings by more than its last digit.

*As the paper's* names in what a run is the paper's: its data, its size, its algorithm, its repetitions. Only a run with
all four can be held against the paper number by number. Repetitions are those that ran, as the program counted them.
*All that can be had* is said where only the data are not the paper's, and the paper's cannot be had here: they are not
published, or not at hand.
"""


def marks(item: Item) -> tuple[str, ...]:
    """In which of MARKS a recorded run is the paper's."""
    found, judged = record.read(item.program) if item.program else None, JUDGED.get(item.program or "")
    if found is None or judged is None:
        return ()
    _, _, repetitions = item.experiment()
    held = (
        not (judged.data or _sets(item, found)),
        found.size == "paper",
        not judged.algorithm,
        len(found.seeds) >= repetitions,
    )
    return tuple(mark for mark, holds in zip(MARKS, held, strict=True) if holds)


def possible(item: Item) -> tuple[str, ...]:
    """Those of MARKS that a run could have here: not the paper's data, where these cannot be had."""
    judged, found = JUDGED.get(item.program or ""), record.read(item.program) if item.program else None
    if judged is None or found is None:
        return MARKS
    few = bool(item.sets) and item.had < item.sets and len({row["data"] for row in found.table}) >= item.had
    elsewhere = (bool(judged.data) and not judged.more) or (few and not judged.data)
    return MARKS[1:] if elsewhere else MARKS


def marked(item: Item) -> str:
    """The same in words."""
    held = marks(item)
    if len(held) == len(MARKS):
        return "all"
    if held and set(possible(item)) <= set(held):
        return f"all that can be had: {', '.join(held)}"
    return ", ".join(held) or report.NONE


def agreement(item: Item) -> str:
    """What --list and the page say of an item: how it came out, if it has been run."""
    if item.program is None:
        return NOTHING
    found, judged = record.read(item.program), JUDGED.get(item.program)
    if found is None or judged is None:
        return UNRUN
    return judged.agreement if found.size == "paper" else f"{judged.agreement}, in small size"


def why(item: Item) -> str:
    """What differs, and why, where it has been run; and why it has not been run at the paper's size."""
    judged, found = JUDGED.get(item.program or ""), record.read(item.program) if item.program else None
    words = []
    if judged is not None and found is not None:
        words = [_sets(item, found), judged.data, judged.algorithm, judged.why]
    if item.program and (found is None or found.size != "paper"):
        words.append(f"At the paper's size it would take about {item.minutes:g} minutes of one core.")
    return " ".join(filter(None, words))


def _sets(item: Item, found: Record) -> str:
    """Of an item over many data sets, how many of the paper's the record has; "" for all."""
    if item.sets == 0:
        return ""
    there = {row["data"] for row in found.table}
    return f"{len(there)} of {item.sets} sets." if len(there) < item.sets else ""


def text() -> str:
    """The whole page."""
    parts = [HEAD, _summary()]
    for key, (title, citation) in PAPERS.items():
        items = [item for item in ITEMS if item.paper == key]
        parts += [f"## {title}\n\n{citation}.\n", _overview(items)]
        shown: set[str] = set()
        for item in items:
            found = record.read(item.program) if item.program and item.program not in shown else None
            if found is not None:
                shown.add(found.item)
                parts.append(_section(item, [i.name for i in items if i.program == item.program], found))
    return "\n".join([*parts, *filter(None, [lot.section()])])


def write() -> None:
    """The page and its pictures."""
    PAGE.write_text(text(), encoding="utf-8")
    for item in {item.program for item in ITEMS if item.program}:
        found = record.read(item)
        drawing = found.picture() if found else None
        if drawing is not None:
            report.draw(picture(item), drawing)


def picture(item: str) -> Path:
    """Where the picture of an item lies."""
    return PICTURES / f"{item.replace('/', '_')}.png"


def _summary() -> str:
    runnable = [item for item in ITEMS if item.program and not item.beside]
    found = [item for item in runnable if record.read(str(item.program)) is not None]
    counted = Counter(agreement(item) for item in ITEMS)
    whole = sum(1 for item in runnable if len(marks(item)) == len(MARKS))
    had = [item for item in runnable if marked(item).startswith("all")]
    words = "; ".join(f"{how}: {count}" for how, count in sorted(counted.items()))
    first = f"{len(runnable)} items to run, {whole} of them with all four marks, {len(had)} with all that can be had."
    first += f" {len(found)} recorded."
    return f"{first} {words[:1].upper()}{words[1:]}.\n"


def _overview(items: list[Item]) -> str:
    lines = ["| item | shows | the paper's size | as the paper's | ours | why |", "|---|---|---|---|---|---|"]
    lines += [f"| {i.name} | {i.about} | {i.size} | {marked(i)} | {agreement(i)} | {why(i)} |" for i in items]
    return "\n".join(lines) + "\n"


def _section(item: Item, names: list[str], found: Record) -> str:
    header, *rows = _with_swings(found)
    lines = [f"### {PAPERS[item.paper][0]}, {' and '.join(names)}", "", f"{found.title}.", ""]
    lines += [_row(header), "|" + "---|" * len(header), *map(_row, rows), ""]
    lines += [f"{found.note}\n"] if found.note else []
    for claim in claims.CLAIMS.get(found.item, ()):
        lines += [f"- {'✓' if claim.holds(found.table) else '✗'} {claim.words}"]
    lines += [""] if claims.CLAIMS.get(found.item) else []
    if found.drawing is not None:
        file = picture(found.item)
        lines += [f"![{found.title}]({file.relative_to(PAGE.parent).as_posix()})", ""]
    size = "At the paper's size" if found.size == "paper" else "In small size"
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lines.append(f"*{size}, {drawn(found.seeds)}, {found.date}, {found.minutes:g} minutes of one core; {versions}.*\n")
    return "\n".join(lines)


def _with_swings(found: Record) -> list[list[str]]:
    """The rows, and behind them by how much single seeds swing, where any do."""
    if not found.swings or set(found.swings) == {report.NONE}:
        return found.rows
    return [[*row, swing] for row, swing in zip(found.rows, ["swing", *found.swings], strict=True)]


def drawn(seeds: list[int]) -> str:
    """The seeds that ran, in words."""
    if not seeds:
        return "nothing drawn"
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds, {', '.join(map(str, seeds))}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
