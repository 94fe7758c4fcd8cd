"""`flower-pca transform`: the coordinates of rows along the components of a result."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common, own


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(commands, "transform", "write the coordinates of rows along the components of a run", run)
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run; or the own file of a party")
    parser.add_argument("data", metavar="DATA", help="a path or a spec, as for run")
    text = "also along the own components in this file, of a personalized run: as run --own, or a node, has written it"
    parser.add_argument("--own", metavar="FILE", help=text)
    common.argument_of_gaps(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="a .npy or a .csv file")


def run(given: argparse.Namespace) -> int:
    """Write the scores."""
    from flower_pca.data import sources

    path = given.out.expanduser().absolute()
    checks.parent("the scores", path)
    kind = path.suffix.lower()
    if kind not in (".npy", ".csv"):
        rule = "one that ends in .npy or .csv"
        raise ConfigError("The file for the scores", must=rule, got=path.name, then="Write -o scores.npy.")
    result: Any = _part(given) or common.result_of(given.result, missing=given.missing)
    rows = sources.make(given.data, result.feature_names_in_)
    client, site = (None, "") if given.own is None else own.components(given.own, result)
    scores = result.transform(rows) if client is None else result.transform(rows, client=client)
    with archive.replacing(path) as file:
        if kind == ".npy":
            np.save(file, scores)
        else:
            names = [f"component_{j + 1}" for j in range(result.n_components_)]
            names += [f"own_{j + 1}" for j in range(scores.shape[1] - len(names))]
            np.savetxt(file, scores, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    n, k = scores.shape
    if given.json:
        common.print_json({"rows": n, "components": k, "own_components": k - result.n_components_, "out": str(path)})
    else:
        sys.stdout.write(f"Wrote {n:,} x {k} scores to {path}{_whose(result, given.own, site)}\n")
    return 0


def _part(given: argparse.Namespace) -> Any:
    """What a party of a run over columns projects by, where its own file is given; else None."""
    from flower_pca.vertical.result import ColumnsResult

    with suppress(FileNotFoundError):  # of which another reader speaks
        return ColumnsResult.part(given.result) if archive.kind(given.result) == "own result" else None
    return None


def _whose(result: Any, file: str | None, site: str) -> str:
    """Whose components they are along, where some are shared by all clients and others are a client's own."""
    from flower_pca.results.personal import PersonalResult

    if not isinstance(result, PersonalResult):
        return ""
    k = result.n_components_
    shared = f": along the {'component' if k == 1 else f'{k:,} components'} that all clients share"
    if file is None:
        return f"{shared}; --own FILE adds those of a client"
    own_ones = f"the own ones of {site}" if site else "a client's own"
    return f"{shared}, and {own_ones} in {file}"
