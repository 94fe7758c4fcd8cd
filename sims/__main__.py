"""The reproduction of five papers: `python -m sims --list`, `--paper`, `--page`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flower_pca import DataError
from sims import catalogue, page
from sims.common import data, record, report


def main(argv: Sequence[str] | None = None) -> None:
    """List what there is, run it and keep the results, or make the page from them."""
    parser = argparse.ArgumentParser(prog="python -m sims", description=__doc__)
    add = parser.add_argument
    add("items", nargs="*", metavar="ITEM", help="local_power/table6, say, or local_power; all if left out")
    verbs = parser.add_mutually_exclusive_group(required=True)
    verb = partial(verbs.add_argument, action="store_true")
    verb("--list", help="every table and figure, a row each")
    verb("--paper", help="run at the paper's size and keep the results; what has been run is not run again")
    verb("--small", help="the same in small size, where neither has been run")
    verb("--page", help="make docs/reproduction.md and its pictures from the results")
    add("--again", action="store_true", help="run also what has been run")
    add("--data-dir", type=Path, default=data.folder(), help="folder of the papers' data sets, as npz")
    given = parser.parse_args(argv)
    known = {item.program for item in catalogue.ITEMS if item.program}
    chosen = [p for p in known if not given.items or p in given.items or p.partition("/")[0] in given.items]
    if unknown := [name for name in given.items if name not in known | {p.partition("/")[0] for p in known}]:
        parser.error(f"Every ITEM must be one that --list names. Got {', '.join(unknown)}.")
    if given.list:
        show()
    elif given.page:
        page.write()
    else:
        run(sorted(chosen), paper=given.paper, again=given.again, data_dir=given.data_dir)


def show() -> None:
    """Print the catalogue."""
    rows: list[list[object]] = [["paper", "item", "program", "size", "minutes", "agreement"]]
    for item in catalogue.ITEMS:
        title, minutes = catalogue.PAPERS[item.paper][0], f"{item.minutes:g}" if item.program else report.NONE
        program, agreement = item.program or report.NONE, page.agreement(item)
        rows.append([title, item.name, program, item.size or report.NONE, minutes, agreement])
    print("\n".join(report.lines(rows)))


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
            record.write(record.made(program, experiments[name], opts))
        except DataError as error:
            print(f"left out: {error}")


if __name__ == "__main__":
    main()
