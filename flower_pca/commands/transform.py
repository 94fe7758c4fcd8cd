"""`flower-pca transform`: the coordinates of rows along the components of a result."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(commands, "transform", "write the coordinates of rows along the components of a run", run)
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")
    parser.add_argument("data", metavar="DATA", help="a path or a spec, as for run")
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
    result, rows = common.result_of(given.result), sources.make(given.data)
    with common.speaking():
        scores = result.transform(rows)
    with archive.replacing(path) as file:
        if kind == ".npy":
            np.save(file, scores)
        else:
            names = ",".join(f"component_{j + 1}" for j in range(scores.shape[1]))
            np.savetxt(file, scores, delimiter=",", header=names, comments="", fmt="%.17g")
    n, k = scores.shape
    if given.json:
        common.print_json({"rows": n, "components": k, "out": str(path)})
    else:
        sys.stdout.write(f"Wrote {n:,} x {k} scores to {path}\n")
    return 0
