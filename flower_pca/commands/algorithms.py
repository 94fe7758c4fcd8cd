"""`flower-pca compare` runs several algorithms on the same rows. `flower-pca list` shows their costs and parameters."""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flower_pca import registry
from flower_pca.base import checks, errors, labels
from flower_pca.commands import common, output
from flower_pca.core import compatible
from flower_pca.core.stage import Stage

if TYPE_CHECKING:
    from flower_pca.comparison.algorithms import Comparison

_DEFAULT: Final = "krylov,faps,ssi,local_power,uda"


def add_compare(commands: Any) -> None:
    """Add the command `flower-pca compare` to the parser."""
    parser = common.add_command(
        commands,
        "compare",
        "run several algorithms on the same rows; write comparison.csv, .json and a picture",
        run_compare,
    )
    common.add_data_options(parser, counts=False)
    parser.add_argument(
        "--algorithms",
        metavar="SPECS",
        help=(
            f'names or specs, separated by commas: "krylov,faps(inner_steps=5),ssi" (default: {_DEFAULT}, without '
            "algorithms that would take a thousand rounds or more on these rows)"
        ),
    )
    common.add_out_option(parser)


def run_compare(args: argparse.Namespace) -> int:
    """Run the algorithms, write the files, and print the table."""
    place = common.writable_folder(args.out, data=args.data)
    specs = specs_in(_DEFAULT if args.algorithms is None else args.algorithms)
    for spec in specs:
        registry.make(spec)  # A wrong spec is reported before data are read, because reading may take long.
    checks.components(args.components)
    shards = common.clients_of(args)
    common.name_sites_without_rows(common.by_site(shards))
    courses, left = _run_each(shards, specs, args)
    figures = [course.to_json() for course in courses]
    _write_comparison(courses, figures, place)
    why = ""
    if left:
        each = [f"{spec} (about {labels.count(rounds, 'round')})" for spec, rounds in left.items()]
        names = ", ".join(each)
        why = (
            f"Not run, because eigenvalues of these rows are close together: {names}. To run these algorithms anyway, "
            "name them in --algorithms.\n"
        )
    if args.json:
        common.print_json(figures)
        sys.stderr.write(why)
        return 0
    head = ["algorithm", "rounds", "messages", "bytes up", "bytes down", "seconds", "angle to pooled", "ended"]
    common.print_table(head, list(map(_row_of_comparison, figures)), text=(0, 7))
    picture = output.picture_in_list("comparison.svg")
    sys.stdout.write(f"{why}Wrote comparison.csv, comparison.json {picture} to {place}\n")
    return 0


def _write_comparison(courses: Sequence[Any], figures: list[dict[str, Any]], folder: Path) -> None:
    """Write comparison.json, comparison.csv and, if matplotlib is installed, a picture."""
    with common.writing_folder(folder) as draft:
        (draft / "comparison.json").write_text(json.dumps(figures, indent=2), encoding="utf-8")
        plain = [name for name, value in figures[0].items() if not isinstance(value, list)]
        with (draft / "comparison.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(plain)
            writer.writerows([course[name] for name in plain] for course in figures)
        if errors.is_installed("matplotlib"):
            from flower_pca.plots import course

            course.draw_comparison(courses, draft / "comparison.svg")


def _run_each(
    shards: list[Any], specs: list[str], args: argparse.Namespace
) -> tuple[tuple[Comparison, ...], dict[str, int]]:
    """Return the comparisons of the algorithms, and the expected number of rounds of the algorithms that were skipped.

    An algorithm is skipped if the user has not named it and it would take a thousand rounds or more.
    """
    from flower_pca.comparison import compare, slow

    center = args.center is not False  # By default, all algorithms center, so that their results are comparable.
    left: dict[str, int] = {}
    if args.algorithms is None:
        left = slow(
            shards,
            algorithms=specs,
            n_components=args.components,
            center=center,
            scale=args.scale,
            missing=args.missing,
            tol=args.tol,
        )
    with common.showing_progress() as on_round:
        courses = compare(
            shards,
            algorithms=[spec for spec in specs if spec not in left],
            n_components=args.components,
            center=center,
            scale=args.scale,
            missing=args.missing,
            seed=args.seed,
            tol=args.tol,
            max_rounds=args.max_rounds,
            on_round=on_round,
        )
    return courses, left


def specs_in(text: str) -> list[str]:
    """Split text into specs at the commas outside parentheses."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\))+", text) if part.strip()]


def _row_of_comparison(course: dict[str, Any]) -> list[str]:
    counts = [f"{course[name]:,}" for name in ("rounds", "messages", "bytes_up", "bytes_down")]
    return [course["algorithm"], *counts, f"{course['seconds']:.3g}", f"{course['angle']:.2e}", course["outcome"]]


def add_listing(commands: Any) -> None:
    """Add the command `flower-pca list` to the parser."""
    common.add_command(
        commands,
        "list",
        "list every algorithm with its parameters, the cost of a round, when to prefer it, and compatible options",
        run_listing,
    )


def run_listing(args: argparse.Namespace) -> int:
    """Print the description of each algorithm."""
    every = [describe(stage) for stage in registry.public_classes().values()]
    if args.json:
        common.print_json(every)
        return 0
    for about in every:
        parameters = ", ".join(f"{name}={value!r}" for name, value in about["parameters"].items())
        goes_with = ", ".join(about["takes"]) or "neither mask nor dp in its default form"
        sys.stdout.write(f"{about['algorithm']}\n  {about['what']}\n  parameters: {parameters}\n")
        sys.stdout.write(f"  cost: {about['cost']}\n  prefer it: {about['prefer']}\n  goes with: {goes_with}\n\n")
    return 0


def describe(stage: type[Stage[Any]]) -> dict[str, Any]:
    """Return the description of an algorithm for `flower-pca list`, from its class and its docstring."""
    text, made = inspect.getdoc(stage) or "", stage()
    return {
        "algorithm": stage.name,
        "what": text.splitlines()[0],
        "parameters": {field.name: field.default for field in fields(stage)},
        "cost": _paragraph_under(text, r"Cost(?: per round| per step)?"),
        "prefer": _paragraph_under(text, r"Prefer it"),
        "takes": [what for what in ("mask", "dp", "channel") if not compatible.missing_properties(made, what)],
    }


def _paragraph_under(text: str, head: str) -> str:
    """Return the text between a heading such as "Cost per round:" and the next heading, in one line."""
    found = re.search(rf"^{head}:(.*?)(?=^(?:Cost|Prefer it)[\w ,]*:|^\s*$|\Z)", text, re.DOTALL | re.MULTILINE)
    if found:
        return " ".join(found.group(1).split())
    return ""
