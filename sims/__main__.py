"""The reproduction of five papers: `python -m sims --list`, `--paper`, `--check`, `--page`."""

from __future__ import annotations

import argparse
import shelve
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from flower_pca import DataError
from sims import catalogue, lot, page
from sims.common import data, record, report

CHANGES: Final = 12  # of a replaced record, cells that are printed


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
    verb("--check", help="run with fresh seeds and compare with the record; writes nothing")
    verbs.add_argument("--lot", type=int, metavar="N", help="draw N items by lot and run them again with other seeds")
    verb("--page", help="make docs/papers and its pictures from the results")
    add("--again", action="store_true", help="run also what has been run, and say what moved in each record replaced")
    text = "with --paper, run so many further seeds of each ITEM that is recorded, and join them to its record"
    add("--more", type=int, default=0, metavar="N", help=text)
    text = f"the first of the fresh seeds of --check and --lot (default: {lot.FIRST})"
    add("--first", type=int, default=lot.FIRST, help=text)
    text = "folder in which --paper keeps single runs, and takes them from after it was stopped; delete it afterwards"
    add("--points", type=Path, metavar="FOLDER", help=text)
    add("--seed", type=int, default=0, help="by which --lot draws")
    add("--data-dir", type=Path, default=data.folder(), help="folder of the papers' data sets, as npz")
    given = parser.parse_args(argv)
    known = set(catalogue.minutes())
    chosen = [p for p in known if not given.items or p in given.items or p.partition("/")[0] in given.items]
    if unknown := [name for name in given.items if name not in known | {p.partition("/")[0] for p in known}]:
        parser.error(f"Every ITEM must be one that --list names. Got {', '.join(unknown)}.")
    if given.check and not given.items:
        parser.error("--check runs what is named. Name an item or a paper, for example local_power/table6.")
    if given.more and not (given.paper and given.items):
        parser.error("--more joins further seeds to what is recorded. Name an item, and --paper.")
    if given.list:
        show()
    elif given.check:
        check(sorted(chosen), first=given.first, data_dir=given.data_dir)
    elif given.page:
        page.write()
    elif given.more:
        extend(sorted(chosen), given.more, data_dir=given.data_dir, points=given.points)
    elif given.lot is not None:
        lot.write(lot.run(given.lot, given.seed, given.data_dir, given.first))
    else:
        run(sorted(chosen), paper=given.paper, again=given.again, data_dir=given.data_dir, points=given.points)


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


def check(programs: Sequence[str], *, first: int, data_dir: Path) -> None:
    """Run recorded programs with fresh seeds, and print how their numbers lie to the recorded spread."""
    kept = {program: record.read(program) for program in programs}
    minutes = sum(lot.alone(found) for found in kept.values() if found)
    print(f"{len(programs)} to check with seeds from {first} on: about {minutes:.0f} minutes of one core.", flush=True)
    rows: list[list[object]] = [["program", "seeds", "numbers", "within", "no spread", "outside"]]
    outside: list[list[object]] = [["program", "row", "column", "recorded", "now"]]
    for program in programs:
        try:
            again = lot.again(program, first, data_dir)
        except DataError as error:
            print(f"left out: {error}", flush=True)
            continue
        within = again.numbers - again.unstated - len(again.off)
        rows.append([program, len(again.seeds), again.numbers, within, again.unstated, len(again.off)])
        outside += [[program, off["row"], off["column"], off["printed"], off["again"]] for off in again.off]
    if len(rows) > 1:
        print("\n".join(report.lines(rows)))
    if len(outside) > 1:
        print("\n" + "\n".join(report.lines(outside)))


def run(programs: Sequence[str], *, paper: bool, again: bool, data_dir: Path, points: Path | None = None) -> None:
    """Run what is not there yet, the quickest first, and keep each result as it comes.

    With a folder for `points`, a program that was stopped goes on from the single runs that it has kept there.
    """
    if points:
        points.mkdir(parents=True, exist_ok=True)
    items = {item.program: item for item in catalogue.ITEMS if item.program}
    kept = {program: record.read(program) for program in programs}
    waiting = [p for p in programs if again or not (old := kept[p]) or (paper and old.size != "paper")]
    waiting.sort(key=lambda program: items[program].minutes)
    whole = sum(items[program].minutes for program in waiting)
    print(f"{len(programs) - len(waiting)} of {len(programs)} are recorded and stay as they are.")
    if waiting:
        about = f"about {whole:.0f} minutes of one core" if paper else "in small size"
        print(f"{len(waiting)} to run, {about}; the spread of single seeds can take as long again.")
    for program in waiting:
        if old := kept[program]:
            print(f"  replaces the record of {program}: {old.date}, {page.drawn(old.seeds)}, {old.size} size")
    done = 0.0
    for number, program in enumerate(waiting, start=1):
        minutes = items[program].minutes
        left = f"about {minutes:g} minutes; {done:.0f} of {whole:.0f} are done" if paper else "in small size"
        print(f"[{number}/{len(waiting)}] {program}, {left}", flush=True)
        done += minutes
        old = kept[program]
        if old and old.size == "paper" and not paper:
            print(f"kept: the record is at the paper's size. To replace it, delete {record.path(program)}.")
            continue
        try:
            made = _made(items[program], paper, data_dir, points)
        except DataError as error:
            print(f"left out: {error}")
            continue
        record.write(made)
        if old:
            print("\n".join(moved(old, made)), flush=True)


def extend(programs: Sequence[str], more: int, *, data_dir: Path, points: Path | None = None) -> None:
    """Run further seeds of recorded programs, and join them to the records whose numbers are spans of their seeds."""
    if points:
        points.mkdir(parents=True, exist_ok=True)
    items = {item.program: item for item in catalogue.ITEMS if item.program}
    for program in programs:
        old = record.read(program)
        if old is None or old.size != "paper" or not old.seeds:
            print(
                f"left out: {program} has no record of seeds at the paper's size. Run: python -m sims --paper {program}"
            )
            continue
        if not record.of_spans(old):
            print(f"left out: not all numbers of {program} are spans. To run all seeds anew, use --again, not --more.")
            continue
        first, minutes = max(old.seeds) + 1, more * lot.alone(old) / len(old.seeds)
        print(f"{program}, {more} seeds from {first} on, about {minutes:.0f} minutes of one core", flush=True)
        experiments, name, _ = items[program].experiment()
        with _points(program, points) as found:
            opts = report.Options((name,), Path("out"), (), data_dir, more, True, first=first, points=found)
            try:
                made = record.joined(old, record.made(program, experiments[name], opts))
            except (DataError, ValueError) as error:
                print(f"left out: {error}. To run all seeds anew, use --again instead of --more.")
                continue
        record.write(made)
        print("\n".join(moved(old, made)), flush=True)


@contextmanager
def _points(program: str, folder: Path | None) -> Iterator[MutableMapping[str, report.Point]]:
    """The single runs of a program that are kept in the folder, if there is one."""
    if folder is None:
        yield {}
        return
    with shelve.open(str(folder / program.replace("/", "_"))) as points:
        yield points


def _made(item: catalogue.Item, paper: bool, data_dir: Path, kept: Path | None) -> record.Record:
    experiments, name, seeds = item.experiment()
    assert item.program is not None
    with _points(item.program, kept) as points:
        opts = report.Options((name,), Path("out"), (), data_dir, seeds if paper else 1, paper, points=points)
        made = record.made(item.program, experiments[name], opts)
        # A record of few seeds needs runs of five for its swings, and that many may take hours.
        costly = len(made.seeds) < record.FEW and made.minutes > lot.MINUTES
        return record.swung(made, experiments[name], opts) if paper and not costly else made


def moved(old: record.Record, new: record.Record) -> list[str]:
    """What a record that replaces another has that the other had not."""
    if old.rows[0] != new.rows[0] or len(old.rows) != len(new.rows):
        return [f"  its table had {len(old.rows) - 1} rows and has {len(new.rows) - 1}; no cells are compared"]
    changes = [
        f"  {', '.join(before[:2])}: {name}: {was}, now {now}"
        for before, after in zip(old.rows[1:], new.rows[1:], strict=True)
        for name, was, now in zip(old.rows[0], before, after, strict=True)
        if was != now
    ]
    more = [f"  and {len(changes) - CHANGES} more"] if len(changes) > CHANGES else []
    return [f"  {len(changes)} cells moved" + (":" if changes else ""), *changes[:CHANGES], *more]


if __name__ == "__main__":
    main()
