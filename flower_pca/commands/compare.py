"""`flower-pca compare`: several algorithms on the same clients, against the pooled answer."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from typing import Any

from flower_pca.base import checks, extras
from flower_pca.commands import common


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "run several algorithms on the same rows; write comparison.csv, .json and a picture"
    parser = common.parser(commands, "compare", words, run)
    common.arguments_of_data(parser)
    text = 'names or specs between commas: "krylov,faps(inner_steps=5),ssi" (default: %(default)s)'
    parser.add_argument("--algorithms", default="krylov,faps,ssi,local_power,uda", metavar="SPECS", help=text)
    common.argument_of_output(parser)


def run(given: argparse.Namespace) -> int:
    """Compare, write the files, print the table."""
    from flower_pca import registry
    from flower_pca.simulation import compare

    place = common.folder(given.out)
    specs = specs_in(given.algorithms)
    for spec in specs:
        registry.make(spec)  # before the data is read, which may take long
    checks.components(given.components)
    shards = common.clients_of(given)
    settings = {**common.settings(given), "center": given.center is not False}  # one frame for all
    with common.progress("starting") as on_round:
        courses = compare(shards, algorithms=specs, on_round=on_round, **settings)
    figures = [course.to_json() for course in courses]
    drawn = extras.there("matplotlib")
    with common.writing(place) as draft:
        (draft / "comparison.json").write_text(json.dumps(figures, indent=2), encoding="utf-8")
        plain = [name for name, value in figures[0].items() if not isinstance(value, list)]
        with (draft / "comparison.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(plain)
            writer.writerows([course[name] for name in plain] for course in figures)
        if drawn:
            from flower_pca.plots import comparison

            comparison.draw(courses, draft / "comparison.svg")
    if given.json:
        common.print_json(figures)
        return 0
    head = ["algorithm", "rounds", "messages", "bytes up", "bytes down", "seconds", "angle to pooled", "ended"]
    rows = [[*_row(course)] for course in figures]
    common.table(head, rows, text=(0, 7))
    picture = "and comparison.svg" if drawn else f"and no picture ({extras.lacking('matplotlib', 'to draw')})"
    sys.stdout.write(f"Wrote comparison.csv, comparison.json {picture} to {place}\n")
    return 0


def specs_in(text: str) -> list[str]:
    """The specs between those commas that are outside brackets and quotes."""
    parts = re.findall(r"(?:[^,(]|\([^)]*\))+", text)
    return [part.strip() for part in parts if part.strip()]


def _row(course: dict[str, Any]) -> list[str]:
    counts = [f"{course[name]:,}" for name in ("rounds", "messages", "bytes_up", "bytes_down")]
    return [course["algorithm"], *counts, f"{course['seconds']:.3g}", f"{course['angle']:.2e}", course["outcome"]]
