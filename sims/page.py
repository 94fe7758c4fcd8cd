"""docs/papers, a page for each paper and an index, made from the catalogue, the cards and the results alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from sims import claims, lot
from sims.cards import Card, Paper
from sims.catalogue import ITEMS, PAPERS, Item
from sims.claimed import PAGES
from sims.common import record, report
from sims.common.record import Record
from sims.judged import AGREEMENTS, APART, JUDGED, Judgement

UNRUN, NOTHING, CURVES = "not run yet", "nothing to run", "curves"
FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "papers"
PICTURES: Final = FOLDER / "pictures"
MARKS: Final = ("data", "size", "algorithm", "repetitions")  # in which a run may be the paper's
PROVED: Final = ("Theorem", "Lemma", "Prop.", "Corollary", "Assumption", "Appendix")  # what an item's name begins with
MADE: Final = "<!-- Made by `python -m sims --page` from the files in sims/results: change those, not this page. -->"

UNMEASURED: Final = "How far single seeds swing has not been measured: numbers that print no spread have none."
INDEX: Final = """# The papers, run again

This package implements the algorithms of five papers. We repeated the experiments of each paper with this package. For
each paper, a page says whether the paper's claims held, and shows our numbers next to the paper's. *Items* are the
paper's tables, figures and theorems. How a verdict such as *same* is found is explained
[below](#how-to-read-the-pages).

"""

WORDS: Final = """## How to read the pages

Each claim and each item has one of these verdicts:

| verdict | meaning |
|---|---|
| *same* | Our numbers are as near to the paper's as runs are to each other, or what the paper says holds. |
| *same order* | The methods rank as in the paper, although the numbers differ. |
| *in part* | Only some of it holds. |
| *differs* | It does not hold. |

If a verdict is not *same*, the page names the cause:

| cause | meaning |
|---|---|
| our choice | This package deliberately differs from the paper. |
| a reading | The paper does not say what was done, and the number depends on it. |
| the data | The paper's data are not published or not available. |
| the paper | The paper's words do not lead to its numbers, or its statement does not hold for its problem. |

**Messages.** We count messages of the server that all clients answer. One message is what the papers call an iteration
or a communication round.

**Numbers.** Most numbers come from five or ten seeds. The line below a table names its seeds. The spread over the seeds
is shown in one of three ways:

- *3..7* is the smallest and the largest number of all seeds. If all seeds agree, there is a single number.
- *3 (0.2)* is the mean over the seeds, with the standard deviation in brackets. If the deviation is as large as the
  mean, the numbers of the seeds lie over powers of ten, and the mean is mostly that of the largest.
- In a table with a column *swing*, the number of a single seed is at most this factor larger or smaller than the number
  in its row. A *-* means that seeds differ in the last digit at most. *One seed* means that the spread is not known.

Spans and swings are those of the seeds that ran. A further seed lies outside of the numbers of five seeds in one of
three cases, and outside of those of ten in one of six. What the same number of further seeds gives is compared
[by rules that allow for that](#drawn-by-lot-and-run-again).

**The column "as the paper's"** lists what our run has in common with the paper: data, size, algorithm, repetitions.
*All that can be had* means that only the data differ, because the paper's data are not published or not available.

**Ticks and crosses** below some tables show statements that a program has checked against the table.

## How to run it again

```sh
python -m sims --list                                     # every item, its program, and its minutes
python -m sims --check local_power/table6 --first 5000    # compare fresh seeds with the recorded spread; writes nothing
python -m sims --paper local_power/table6 --again         # run an item and replace its record
python -m sims --paper leak/fig1a --more 2                # run two more seeds and join them to the record
python -m sims --page                                     # write these pages from the records
```

`sims/README.md` in the repository describes the programs.

"""


def judgement(item: Item) -> Judgement | None:
    """How an item is judged: by itself if it is a statement apart from those of the same program."""
    return APART.get((item.paper, item.name)) or JUDGED.get(item.program or "")


def marks(item: Item) -> tuple[str, ...]:
    """In which of MARKS a recorded run is the paper's."""
    found, judged = record.read(item.program) if item.program else None, judgement(item)
    if found is None or judged is None:
        return ()
    _, _, repetitions = item.experiment()
    held = (
        not (judged.data or _sets(item, found)),
        found.size == "paper" and not judged.size,
        not judged.algorithm,
        not found.seeds or len(found.seeds) >= repetitions,  # Nothing to repeat if nothing is drawn.
    )
    return tuple(mark for mark, holds in zip(MARKS, held, strict=True) if holds)


def possible(item: Item) -> tuple[str, ...]:
    """Those of MARKS that a run could have here: not the paper's data, where these cannot be had."""
    judged, found = judgement(item), record.read(item.program) if item.program else None
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
    found, judged = record.read(item.program), judgement(item)
    if found is None or judged is None:
        return UNRUN
    return judged.agreement if found.size == "paper" else f"{judged.agreement}, in small size"


def why(item: Item) -> str:
    """What differs, and why, where it has been run; and why it has not been run at the paper's size."""
    judged, found = judgement(item), record.read(item.program) if item.program else None
    words = []
    if judged is not None and found is not None:
        words = [_sets(item, found), judged.data, judged.size, judged.algorithm, judged.why]
    if item.program and (found is None or found.size != "paper"):
        words.append(f"At the paper's size it would take about {item.minutes:g} minutes of one core.")
    return " ".join(filter(None, words))


def _sets(item: Item, found: Record) -> str:
    """Of an item over many data sets, how many of the paper's the record has; "" for all."""
    if item.sets == 0:
        return ""
    there = {row["data"] for row in found.table}
    return f"{len(there)} of {item.sets} sets." if len(there) < item.sets else ""


def cause(item: Item) -> str:
    """Why an item is not the same, in one of four words."""
    judged = judgement(item)
    return judged.cause if judged and record.read(str(item.program)) else ""


def texts() -> dict[str, str]:
    """All pages by the names of their files."""
    return {"index.md": _index(), **{f"{PAGES[key].file}.md": _page(key) for key in PAPERS}}


def write() -> None:
    """The pages and their pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for key, page in PAGES.items():
        for number, card in enumerate(page.cards, start=1):
            if drawn_from(card):
                card.draw(card_picture(key, number))
    for item in {item.program for item in ITEMS if item.program}:
        found = record.read(item)
        drawing = found.picture() if found else None
        if drawing is not None:
            report.draw(picture(item), drawing)


def picture(item: str) -> Path:
    """Where the curves of an item lie."""
    return PICTURES / f"{item.replace('/', '_')}.png"


def card_picture(key: str, number: int) -> Path:
    """Where the picture of a card lies."""
    return PICTURES / f"claim_{key}_{number}.png"


def drawn_from(card: Card) -> bool:
    """Does the card have a picture of its own?"""
    return card.kept is not None and card.dots is not None


def _index() -> str:
    lines = ["| paper | can it be reproduced? | same |", "|---|---|---|"]
    for key, (title, _) in PAPERS.items():
        page = PAGES[key]
        items = [item for item in ITEMS if item.paper == key and item.program and not item.beside]
        same = sum(agreement(item) == "same" for item in items)
        held = sum(card.verdict == "same" for card in page.cards)
        link = f"[{title}]({page.file}.md)"
        counted = f"{held} of {len(page.cards)} claims, {same} of {len(items)} items"
        lines.append(f"| {link} | {page.answer} | {counted} |")
    return f"{INDEX}{MADE}\n\n" + "\n".join([*lines, "", _summary(), WORDS + lot.section()]).rstrip() + "\n"


def _page(key: str) -> str:
    title, citation = PAPERS[key]
    page, items = PAGES[key], [item for item in ITEMS if item.paper == key]
    experiments = [item for item in items if not item.beside and not item.name.startswith(PROVED)]
    proved = [item for item in items if not item.beside and item.name.startswith(PROVED)]
    others = [item for item in items if item.beside]
    counted = [item for item in items if item.program and not item.beside]
    parts = [
        f"# {title}: can its experiments be reproduced?\n",
        MADE,
        f"\n{page.answer} {page.more}\n",
        _claims(page),
        _counts(page, counted),
    ]
    parts += ["## The claims, one by one\n", *(_card(key, n, card) for n, card in enumerate(page.cards, start=1))]
    if page.readings:
        parts += [f"## What the paper does not say\n\n{_readings(page)}"]
    parts += [f"## Every table and figure\n\n{_overview(experiments)}"]
    parts += [f"## Theorems\n\n{_overview(proved)}"] if proved else []
    parts += [f"## Additional experiments\n\n{_overview(others)}"] if others else []
    parts += ["## All numbers\n", f"{citation}. Figures of the paper are cited; ours come from recorded runs.\n"]
    shown: set[str] = set()
    for item in [*experiments, *proved, *others]:
        found = record.read(item.program) if item.program and item.program not in shown else None
        if found is not None:
            shown.add(found.item)
            parts.append(_section(item, [i.name for i in items if i.program == item.program], found))
    return "\n".join(parts)


def _counts(page: Paper, items: list[Item]) -> str:
    """Return how many claims hold and how many items have each verdict, in a sentence each."""
    held = sum(card.verdict == "same" for card in page.cards)
    found = Counter(map(agreement, items))
    how = ", ".join(f"{found[name]} *{name}*" for name in (*AGREEMENTS, UNRUN) if found[name])
    return (
        f"{held} of {len(page.cards)} claims hold as in the paper. Our programs repeat {len(items)} of its tables, "
        f"figures and theorems: {how}. The [index](index.md#how-to-read-the-pages) says what these words mean.\n"
    )


def _claims(page: Paper) -> str:
    lines = ["| claim of the paper | ours / paper | verdict |", "|---|---|---|"]
    for n, card in enumerate(page.cards, start=1):
        verdict = f"**{card.verdict}**" + (f": {card.cause}" if card.cause else "")
        lines.append(_row([f"{n}. {card.quote}", card.ratio or CURVES, verdict]))
    note = (
        "*Ours / paper* compares the numbers in a claim's picture: the median ratio, and the smallest and the largest"
    )
    note += f". *{CURVES}*: the paper prints no numbers for it." if any(not c.ratio for c in page.cards) else "."
    note += " A *message* is one communication round."
    return "\n".join([*lines, "", note, ""])


def _card(key: str, number: int, card: Card) -> str:
    found = card.found if card.kept else f"Not run yet: `python -m sims --paper {card.program}`."
    verdict = f"{card.verdict} ({card.cause})" if card.cause else card.verdict
    lines = [f"### Claim {number}: {verdict}", "", f"> {card.quote}", "", f"*{card.place}.* {found}", ""]
    file = card_picture(key, number) if card.dots else picture(card.program)
    if card.kept is not None and (card.dots is not None or card.kept.drawing is not None):
        words = card.kept.title
        if card.dots:
            dots = card.dots(card.kept)
            hollow = dots.hollow or "the paper's numbers"
            words = f"{hollow} as hollow marks, ours as full marks" if dots.compared else "our numbers"
        lines += [f"![Claim {number}: {words}]({file.relative_to(FOLDER).as_posix()})", ""]
    if card.kept is not None and card.ratio:
        lines += [f"Ours / paper: {card.ratio}.", ""]
    return "\n".join(lines)


def _readings(page: Paper) -> str:
    lines = ["| question | the paper's words | taken here | the number that it moves |", "|---|---|---|---|"]
    lines += [_row([r.config, r.words, r.taken, r.moves]) for r in page.readings]
    return "\n".join(lines) + "\n"


def _summary() -> str:
    runnable = [item for item in ITEMS if item.program and not item.beside]
    found = [item for item in runnable if record.read(str(item.program)) is not None]
    counted = Counter(agreement(item) for item in ITEMS if not item.beside)
    whole = sum(1 for item in runnable if len(marks(item)) == len(MARKS))
    had = [item for item in runnable if marked(item).startswith("all")]
    words = ", ".join(f"*{how}* for {counted[how]}" for how in (*AGREEMENTS, UNRUN) if counted[how])
    every = "all" if len(found) == len(runnable) else f"{len(found)} of"
    first = f"We ran {every} {len(runnable)} items. {whole} runs match the paper in data, size, algorithm and "
    first += f"repetitions. In {len(had) - whole} more, only the data differ, because the paper's data are "
    first += "not published or not available."
    return f"{first} The verdict is {words}.\n"


def _overview(items: list[Item]) -> str:
    lines = ["| item | shows | as the paper's | verdict | cause | evidence |", "|---|---|---|---|---|---|"]
    lines += [_row([i.name, i.about, marked(i), agreement(i), cause(i), why(i)]) for i in items]
    return "\n".join(lines) + "\n"


def _section(item: Item, names: list[str], found: Record) -> str:
    header, *rows = _with_swings(found)
    name = f"{PAPERS[item.paper][0]}, {' and '.join(names)}"
    lines = ['<details markdown="1">', f"<summary>{name}: {agreement(item)}</summary>", "", f"{found.title}.", ""]
    lines += [_row(header), "|" + "---|" * len(header), *map(_row, rows), ""]
    lines += [f"{found.note}\n"] if found.note else []
    lines += [f"{UNMEASURED}\n"] if found.swings is None else []
    for claim in claims.CLAIMS.get(found.item, ()):
        lines += [f"- {'✓' if claim.holds(found.table) else '✗'} {claim.words}"]
    lines += [""] if claims.CLAIMS.get(found.item) else []
    if found.drawing is not None:
        lines += [f"![{found.title}]({picture(found.item).relative_to(FOLDER).as_posix()})", ""]
    size = "At the paper's size" if found.size == "paper" else "In small size"
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lines.append(f"*{size}, {drawn(found.seeds)}, {found.date}, {found.minutes:g} minutes of one core; {versions}.*\n")
    return "\n".join([*lines, "</details>", ""])


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
