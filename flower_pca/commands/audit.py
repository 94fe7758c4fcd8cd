"""`flower-pca audit`: what the server of a run learns about a single client."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from flower_pca.base import extras
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "measure what the server of a run learns about each client; write leaks.csv and a picture"
    parser = common.parser(commands, "audit", words, run)
    common.arguments_of_data(parser)
    common.argument_of_algorithm(parser)
    parser.add_argument("--masked", action="store_true", help="the server sees only sums, as under masks")
    common.argument_of_output(parser)


def run(given: argparse.Namespace) -> int:
    """Run the audit, write the files, print the table."""
    from flower_pca import registry
    from flower_pca.audit import audit

    place = common.folder(given.out)
    registry.make(given.algorithm)  # before the data is read, which may take long
    settings = common.settings(given)
    if settings.pop("missing") != "error":
        remedy = "Impute before the audit."
        raise ConfigError("missing in an audit", must='"error"', got=repr(given.missing), then=remedy)
    with common.progress("starting") as on_round:
        found = audit(given.algorithm, common.clients_of(given), masked=given.masked, on_round=on_round, **settings)
    drawn = extras.there("matplotlib")
    with common.writing(place) as draft:
        found.save(draft / "leaks.csv")
        if drawn:
            found.picture(draft / "leak.svg")
    if given.json:
        worst = [asdict(leak) for leak in found.worst()]
        course = [asdict(point) for point in found.convergence]
        common.print_json({"algorithm": found.algorithm, "masked": found.masked, "leaks": worst, "convergence": course})
        return 0
    picture = "and leak.svg" if drawn else f"and no picture ({extras.lacking('matplotlib', 'to draw')})"
    sys.stdout.write(f"{found.table()}\nWrote leaks.csv {picture} to {place}\n")
    return 0
