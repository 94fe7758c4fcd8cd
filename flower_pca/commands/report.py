"""`flower-pca report`: the page of a result, as of a deployed run whose server wrote no page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common, rows
from flower_pca.results.pca import PCAResult
from flower_pca.results.saved import with_keys


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "write the report of a result, with its clients where their rows are given"
    parser = common.parser(commands, "report", words, run)
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")
    text = "the rows of the run, a path or a spec as for run; a folder is one of a file per site"
    parser.add_argument("data", metavar="DATA", nargs="?", help=text)
    text = "whose row is whose: \"by_column('site')\", say (default: a folder's files, or a column of sites)"
    parser.add_argument("--partition", metavar="SPEC", help=text)
    common.argument_of_gaps(parser)
    common.argument_of_rotation(parser)
    text = "the page (default: report.html beside RESULT)"
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help=text)


def run(given: argparse.Namespace) -> int:
    """Write the page."""
    from flower_pca import report
    from flower_pca.analysis import influence

    path = given.out or Path(given.result).parent / "report.html"
    path = path.expanduser().absolute()
    checks.parent("the report", path)
    if path.suffix.lower() not in (".html", ".htm"):
        rule = "one that ends in .html"
        raise ConfigError("The file for the report", must=rule, got=path.name, then="Name it so.")
    result = common.result_of(given.result, steps=True, missing=given.missing)
    rotation = common.rotation_of(given, result)
    shards, source = None, given.result
    if given.data is not None:
        if not isinstance(result, PCAResult):
            rule, remedy = "left out of a run of steps, whose rows have gone by", "Leave it out."
            raise ConfigError("DATA", must=rule, got=given.data, then=remedy)
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
    known = {key: name for key, name in result.site_names.items() if name in position}
    moved = {key: position[name] for key, name in known.items()}
    names = {i: site for i, site in enumerate(sites) if isinstance(site, str)}
    return replace(with_keys(result, moved), site_names=names)
