"""docs/reproduction.md, made from the catalogue and the results and from nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from sims import claims
from sims.catalogue import ITEMS, PAPERS, Item
from sims.common import record, report
from sims.common.record import Record
from sims.judged import JUDGED

UNRUN, NOTHING = "not run yet", "nothing to run"
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reproduction.md"
PICTURES: Final = PAGE.parent / "reproduction"

HEAD: Final = """# The papers' tables and figures, run again

<!-- Made by `python -m sims --page` from the files in sims/results: change those, not this. -->

Five papers are behind this package. Every table and figure of theirs has a row here, with what came out when this
package ran it: at the paper's size, or smaller where that says so. Figures of the papers are cited; ours come from
recorded runs with seeds, versions and dates. `python -m sims --list` prints the catalogue, and `python -m sims --paper`
runs it again, all of it or what is named behind it. `sims/README.md` tells more of the single programs.

An item is *the same* if the figures agree within what shuffles and starts make them swing, or if a figure shows what
the paper says it shows; *same order* if methods rank as in the paper but figures differ; *in part* if some of it holds;
*differs* if not. A statement with a tick or a cross is checked by a program on the recorded numbers.
"""


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
    words = [judged.why] if judged is not None and agreement(item) != UNRUN else []
    if item.program and (found is None or found.size != "paper"):
        reason = f": {item.apart}" if item.apart else ""
        words.append(f"At the paper's size it would take about {item.minutes:g} minutes of one core{reason}.")
    return " ".join(filter(None, words))


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
    return "\n".join(parts)


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
    runnable = [item for item in ITEMS if item.program]
    found = [record.read(str(item.program)) for item in runnable]
    counted = Counter(agreement(item) for item in ITEMS)
    at_size = sum(1 for r in found if r is not None and r.size == "paper")
    words = "; ".join(f"{how}: {count}" for how, count in sorted(counted.items()))
    return f"{len(ITEMS)} items, {at_size} of them run at the paper's size. {words[:1].upper()}{words[1:]}.\n"


def _overview(items: list[Item]) -> str:
    lines = ["| item | shows | the paper's size | ours | why |", "|---|---|---|---|---|"]
    lines += [f"| {i.name} | {i.about} | {i.size} | {agreement(i)} | {why(i)} |" for i in items]
    return "\n".join(lines) + "\n"


def _section(item: Item, names: list[str], found: Record) -> str:
    header, *rows = found.rows
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
    seeds = f"{found.seeds} seed{'s' if found.seeds > 1 else ''}"
    lines.append(f"*{size}, {seeds}, {found.date}, {found.minutes:g} minutes of one core; {versions}.*\n")
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
