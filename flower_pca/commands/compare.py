"""`flower-pca compare`: several algorithms on the same clients, against the pooled answer."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from typing import Any, Final

from flower_pca.base import checks, extras, labels
from flower_pca.commands import common

_DEFAULT: Final = "krylov,faps,ssi,local_power,uda"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "run several algorithms on the same rows; write comparison.csv, .json and a picture"
    parser = common.parser(commands, "compare", words, run)
    common.arguments_of_data(parser)
    text = f'names or specs between commas: "krylov,faps(inner_steps=5),ssi" (default: {_DEFAULT}, without those'
    text += " that would take a thousand rounds or more on these rows)"
    parser.add_argument("--algorithms", metavar="SPECS", help=text)
    common.argument_of_output(parser)


def run(given: argparse.Namespace) -> int:
    """Compare, write the files, print the table."""
    from flower_pca import registry
    from flower_pca.simulation import compare

    place = common.folder(given.out)
    specs = specs_in(_DEFAULT if given.algorithms is None else given.algorithms)
    for spec in specs:
        registry.make(spec)  # before the data is read, which may take long
    checks.components(given.components)
    shards = common.clients_of(given)
    settings = {**common.settings(given), "center": given.center is not False}  # one frame for all
    left = {} if given.algorithms is not None else _left_out(shards, specs, settings)
    specs = [spec for spec in specs if spec not in left]
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
    said = ", ".join(f"{spec} (about {labels.count(rounds, 'round')})" for spec, rounds in left.items())
    why = (
        f"Left out, as eigenvalues here are so close: {said}. Name them in --algorithms to run them.\n" if left else ""
    )
    if given.json:
        common.print_json(figures)
        sys.stderr.write(why)
        return 0
    head = ["algorithm", "rounds", "messages", "bytes up", "bytes down", "seconds", "angle to pooled", "ended"]
    rows = [[*_row(course)] for course in figures]
    common.table(head, rows, text=(0, 7))
    picture = "and comparison.svg" if drawn else f"and no picture ({extras.lacking('matplotlib', 'to draw')})"
    sys.stdout.write(f"{why}Wrote comparison.csv, comparison.json {picture} to {place}\n")
    return 0


def _left_out(shards: list[Any], specs: list[str], settings: dict[str, Any]) -> dict[str, int]:
    """Those that would take thousands of rounds, and about how many."""
    from flower_pca.simulation import lengthy

    asked = {name: settings[name] for name in ("n_components", "center", "scale", "missing", "tol")}
    return lengthy(shards, algorithms=specs, **asked)


def specs_in(text: str) -> list[str]:
    """The specs between those commas that are outside brackets and quotes."""
    parts = re.findall(r"(?:[^,(]|\([^)]*\))+", text)
    return [part.strip() for part in parts if part.strip()]


def _row(course: dict[str, Any]) -> list[str]:
    counts = [f"{course[name]:,}" for name in ("rounds", "messages", "bytes_up", "bytes_down")]
    return [course["algorithm"], *counts, f"{course['seconds']:.3g}", f"{course['angle']:.2e}", course["outcome"]]
