"""The reproduction of five papers: `python -m sims --list`, `--paper`, `--page`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flower_pca import DataError
from sims import catalogue, lot, page
from sims.common import data, record, report


def main(argv: Sequence[str] | None = None) -> None:
    """List what there is, run it and keep the results, or make the page from them."""
    parser = argparse.ArgumentParser(prog="python -m sims", description=__doc__)
    add = parser.add_argument
    text = "local_power/table6, say, or local_power; if left out, all, which takes a night: see --list"
    add("items", nargs="*", metavar="ITEM", help=text)
    verbs = parser.add_mutually_exclusive_group(required=True)
    verb = partial(verbs.add_argument, action="store_true")
    verb("--list", help="every table and figure, a row each")
    verb("--paper", help="run at the paper's size and keep the results; what has been run is not run again")
    verb("--small", help="the same in small size, where neither has been run")
    verbs.add_argument("--lot", type=int, metavar="N", help="draw N items by lot and run them again with other seeds")
    verb("--page", help="make sims/reproduction.md and its pictures from the results")
    add("--again", action="store_true", help="run also what has been run")
    add("--seed", type=int, default=0, help="by which --lot draws")
    add("--data-dir", type=Path, default=data.folder(), help="folder of the papers' data sets, as npz")
    given = parser.parse_args(argv)
    known = set(catalogue.minutes())
    chosen = [p for p in known if not given.items or p in given.items or p.partition("/")[0] in given.items]
    if unknown := [name for name in given.items if name not in known | {p.partition("/")[0] for p in known}]:
        parser.error(f"Every ITEM must be one that --list names. Got {', '.join(unknown)}.")
    if given.list:
        show()
    elif given.page:
        page.write()
    elif given.lot is not None:
        lot.write(lot.run(given.lot, given.seed, given.data_dir))
    else:
        run(sorted(chosen), paper=given.paper, again=given.again, data_dir=given.data_dir)


def show() -> None:
    """Print the catalogue."""
    rows: list[list[object]] = [["paper", "item", "program", "size", "minutes", "as the paper's", "agreement"]]
    for item in catalogue.ITEMS:
        title, minutes = catalogue.PAPERS[item.paper][0], f"{item.minutes:g}" if item.program else report.NONE
        program, agreement = item.program or report.NONE, page.agreement(item)
        rows.append([title, item.name, program, item.size or report.NONE, minutes, page.marked(item), agreement])
    print("\n".join(report.lines(rows)))
    minutes = catalogue.minutes()
    print(f"\n{len(minutes)} programs: about {sum(minutes.values()):.0f} minutes of one core.")


def run(programs: Sequence[str], *, paper: bool, again: bool, data_dir: Path) -> None:
    """Run what is not there yet, the quickest first, and keep each result as it comes."""
    items = {item.program: item for item in catalogue.ITEMS if item.program}
    waiting = [p for p in programs if again or not (old := record.read(p)) or (paper and old.size != "paper")]
    waiting.sort(key=lambda program: items[program].minutes)
    print(f"{len(programs) - len(waiting)} of {len(programs)} are there.")
    for number, program in enumerate(waiting, start=1):
        experiments, name, seeds = items[program].experiment()
        about = f"about {items[program].minutes:g} minutes" if paper else "in small size"
        print(f"[{number}/{len(waiting)}] {program}, {about}", flush=True)
        opts = report.Options((name,), Path("out"), (), data_dir, seeds if paper else 1, paper)
        try:
            made = record.made(program, experiments[name], opts)
            record.write(made)
            if paper and made.minutes <= lot.MINUTES:
                record.write(record.swung(made, experiments[name], opts))
        except DataError as error:
            print(f"left out: {error}")


if __name__ == "__main__":
    main()
