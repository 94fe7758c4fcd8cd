"""`flower-pca list`: every algorithm, as its own docstring and fields describe it."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from dataclasses import fields
from typing import Any

from flower_pca import registry
from flower_pca.commands import common
from flower_pca.core import compatible
from flower_pca.core.stage import Stage


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "list every algorithm with its parameters, the cost of a round, when to prefer it, and what goes with it"
    common.parser(commands, "list", words, run)


def run(given: argparse.Namespace) -> int:
    """Print the list."""
    every = [described(stage) for stage in registry.shown().values()]
    if given.json:
        common.print_json(every)
        return 0
    for one in every:
        parameters = ", ".join(f"{name}={value!r}" for name, value in one["parameters"].items())
        lines = [one["algorithm"], f"  {one['what']}", f"  parameters: {parameters}"]
        lines += [f"  {head}: {one[key]}" for head, key in (("cost", "cost"), ("prefer it", "prefer"))]
        lines += [f"  goes with: {', '.join(one['takes']) or 'neither mask nor dp, in its default form'}"]
        sys.stdout.write("\n".join(lines) + "\n\n")
    return 0


def described(stage: type[Stage[Any]]) -> dict[str, Any]:
    """An algorithm's name, first line, parameters, cost of a round, when to prefer it, and what goes with it.

    Parameters are given with their defaults; mask, dp and channel go with it in its default form at least.
    """
    text, made = inspect.getdoc(stage) or "", stage()
    return {
        "algorithm": stage.name,
        "what": text.splitlines()[0],
        "parameters": {field.name: field.default for field in fields(stage)},
        "cost": _paragraph(text, r"Cost(?: per round| per step)?"),
        "prefer": _paragraph(text, r"Prefer it"),
        "takes": [what for what in ("mask", "dp", "channel") if not compatible.missing(made, what)],
    }


def _paragraph(text: str, head: str) -> str:
    """What follows a heading such as "Cost per round:", up to the next one or an empty line, in one line."""
    found = re.search(rf"^{head}:(.*?)(?=^\S[\w ,]*:|^\s*$|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""
