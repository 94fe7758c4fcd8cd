"""`flower-pca show`: what is in a result."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from flower_pca.commands import common, speech


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(commands, "show", "print the variances in a result, and how its run went", run)
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")


def run(given: argparse.Namespace) -> int:
    """Print the result."""
    result = common.result_of(given.result)
    if given.json:
        common.print_json(as_json(result))
    else:
        print_result(result)
    return 0


def print_result(result: Any) -> None:
    """The table of variances, and a few lines about the run."""
    ratio = result.explained_variance_ratio_
    columns = zip(result.explained_variance_, ratio, ratio.cumsum(), result.residuals_, strict=True)
    rows = [[f"{j}", f"{v:.6g}", f"{r:.2%}", f"{c:.2%}", f"{e:.1e}"] for j, (v, r, c, e) in enumerate(columns, 1)]
    common.table(["component", "variance", "share", "together", "residual"], rows)
    history = result.history
    clients = max((record.answered for record in history), default=0)
    lines = [
        f"{result.n_samples_:,} rows x {result.n_features_in_:,} columns at {clients:,} clients, by {result.algorithm}",
        f"{len(history)} messages, {history.bytes_up:,} bytes up, {history.bytes_down:,} bytes down, "
        f"{sum(record.seconds for record in history):.3g} s",
        *([] if result.mse_ is None else [f"mean squared error of a row: {result.mse_:.6g}"]),
        *([] if result.privacy is None else [f"privacy: {result.privacy}"]),
        f"{result.status}",
        *(f"hint: {speech.spoken(hint)}" for hint in result.hints),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def as_json(result: Any) -> dict[str, Any]:
    """The figures of a result, as plain values; its arrays of d numbers stay in the file."""
    history = result.history
    return {
        "algorithm": result.algorithm,
        "outcome": result.status.outcome.value,
        "status": result.status.words,
        "n_samples": result.n_samples_,
        "n_features": result.n_features_in_,
        "n_components": result.n_components_,
        "explained_variance": result.explained_variance_.tolist(),
        "explained_variance_ratio": result.explained_variance_ratio_.tolist(),
        "total_variance": result.total_variance_,
        "residuals": result.residuals_.tolist(),
        "mse": result.mse_,
        "privacy": None if result.privacy is None else asdict(result.privacy),
        "hints": list(result.hints),
        "rounds": result.rounds,
        "messages": len(history),
        "bytes_up": history.bytes_up,
        "bytes_down": history.bytes_down,
        "seconds": sum(record.seconds for record in history),
        "centered": result.centered,
        "seed": result.seed,
    }
