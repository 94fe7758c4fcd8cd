"""`flower-pca report`: the page of a result, as of a deployed run whose server wrote no page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flower_pca.analysis import influence
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common, rows
from flower_pca.results.pca import PCAResult
from flower_pca.results.saved import with_keys


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(
        commands,
        "report",
        "write the report of a result, with its clients where their rows are given",
        run,
    )
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")
    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        help="the rows of the run, a path or a spec as for run; a folder is one of a file per site",
    )
    rows.argument_of_sites(parser)
    common.argument_of_gaps(parser)
    common.argument_of_rotation(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default: report.html beside RESULT)",
    )


def run(given: argparse.Namespace) -> int:
    """Write the page."""
    from flower_pca import report

    path = given.out or Path(given.result).parent / "report.html"
    path = path.expanduser().absolute()
    checks.parent("the report", path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            "The file for the report",
            must="one that ends in .html",
            got=path.name,
            then="Name it so.",
        )
    result = common.result_of(given.result, steps=True, missing=given.missing)
    rotation = common.rotation_of(given, result)
    shards, source = None, given.result
    if given.data is not None:
        if not isinstance(result, PCAResult):
            raise ConfigError(
                "DATA",
                must="left out of a run of steps, whose rows have gone by",
                got=given.data,
                then="Leave it out.",
            )
        sites, _ = rows.sites_of(given, result)
        result = _by_position(result, list(sites))
        shards = list(sites.values())
        source = given.data
        if result.influence_ is None and influence.cheap(result, len(shards)):
            result = influence.of_rows(result, shards)
    title = f"Principal components of {common.title(source)}"
    report.write(result, path, title=title, shards=shards, rotation=rotation)
    if given.json:
        common.print_json({"out": str(path)})
    else:
        sys.stdout.write(f"Wrote {path}\n")
    return 0


def _by_position(result: PCAResult, sites: Sequence[str | int]) -> PCAResult:
    """The result with its clients under the positions of these sites: nodes of a deployment have ids of their own."""
    position = {str(site): i for i, site in enumerate(sites)}
    moved = {key: position[name] for key, name in result.site_names.items() if name in position}
    names = {i: site for i, site in enumerate(sites) if isinstance(site, str)}
    return replace(with_keys(result, moved), site_names=names)
