"""`flower-pca show`: what is in a result."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from typing import Any, Final

from flower_pca.analysis.influence import Influence, influence, measured, warnings
from flower_pca.analysis.monitor import Monitor
from flower_pca.base import labels
from flower_pca.commands import common
from flower_pca.names.columns import listed

_TURNING: Final = 5  # clients whose influence is listed
_WEIGHTS: Final = 10  # columns that are listed for each component


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(commands, "show", "print the variances in a result, and how its run went", run)
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")


def run(given: argparse.Namespace) -> int:
    """Print the result."""
    from flower_pca.results.steps import TrackingResult

    result = common.result_of(given.result, steps=True)
    if isinstance(result, TrackingResult):
        _steps(result, json=given.json)
    elif given.json:
        common.print_json(as_json(result))
    else:
        print_result(result)
    return 0


def print_result(result: Any) -> None:
    """The table of variances, and a few lines about the run."""
    sys.stdout.write("".join(f"{words}\n" for words in labels.unfinished(result)))
    heads, cells = labels.listing(result, digits=6)
    common.table(heads, cells, text=(len(heads) - 1,))
    clients = labels.count(max((record.answered for record in result.history), default=0), "client")
    size = f"{labels.rows(result)} rows x {labels.columns(result)}"
    lines = [
        f"{size} at {clients}, by {result.algorithm}",
        _traffic(result),
        *_sites(result),
        *([] if result.mse_ is None else [f"mean squared error of a row: {result.mse_:.6g}"]),
        *_limits(result),
        *_influence(result),
        *([] if result.privacy is None else [f"privacy: {result.privacy}", str(result.certainty)]),
        *(f"{words}: {value:.6g}" for words, value in _family(result).items() if value is not None),
        *([str(result.status)] if result.status.ok else []),
        *result.choices,
        *(f"hint: {common.spoken(hint)}" for hint in result.hints),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _sites(result: Any) -> list[str]:
    """What the clients are called, where they have names."""
    names = [result.site_names[key] for key in sorted(result.site_names)]
    return [f"{labels.noun(len(names), 'site')}: {listed(names)}"] if names else []


def _limits(result: Any) -> list[str]:
    """What T2 and SPE of a row stay below, if the run was asked to monitor."""
    return [] if result.histograms_ is None else [f"limits: {Monitor(result).limits()}"]


def _influence(result: Any) -> list[str]:
    """How far each client turns the components, if the run was asked for it; and who is far off."""
    if not measured(result):
        return []
    found = influence(result)
    most = ", ".join(f"{one.name} {one.degrees}" for one in found[:_TURNING])
    more = f", and {len(found) - _TURNING} less" if len(found) > _TURNING else ""
    return [f"influence: without it the components turn by: {most}{more}", *warnings(result)]


def _plain(one: Influence) -> dict[str, Any]:
    """What a client does, with None for what is infinite."""
    figures = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(one).items()}
    return {**figures, "far": one.far}


def as_json(result: Any) -> dict[str, Any]:
    """The figures of a result, as plain values; its arrays of d numbers stay in the file."""
    known = result.certainty
    return {
        "kind": type(result).__name__,
        "algorithm": result.algorithm,
        "outcome": result.status.outcome.value,
        "status": result.status.words,
        "n_samples": result.n_samples_,
        "n_features": result.n_features_in_,
        **_names(result),
        "n_components": result.n_components_,
        "explained_variance": result.explained_variance_.tolist(),
        "explained_variance_ratio": result.explained_variance_ratio_.tolist() if known is None else None,
        "bounds_of_ratio": None if known is None else known.shares.tolist(),
        "bounds_together": None if known is None else known.together.tolist(),
        "noise_alone": None if known is None else known.floor,
        "largest_weights": _weights(result, result.components_),
        "total_variance": result.total_variance_,
        "residuals": result.residuals_.tolist(),
        "mse": result.mse_,
        "privacy": None if result.privacy is None else asdict(result.privacy),
        **{words.replace(" ", "_"): value for words, value in _family(result).items()},
        "limits": None if result.histograms_ is None else asdict(Monitor(result).limits()),
        "influence": [_plain(one) for one in influence(result)] if measured(result) else None,
        "choices": list(result.choices),
        "hints": list(result.hints),
        "rounds": result.rounds,
        **_messages(result),
        "centered": result.centered,
        "seed": result.seed,
    }


def _steps(result: Any, *, json: bool) -> None:
    """A run of steps: its table, or its figures as plain values."""
    if not json:
        sys.stdout.write("\n".join([result.table(), _traffic(result), *_sites(result), f"{result.status}\n"]))
        return
    figures = ("rows", "movement", "residuals", "deficient", "outliers", "changes")
    common.print_json(
        {
            "kind": type(result).__name__,
            "algorithm": result.algorithm,
            "outcome": result.status.outcome.value,
            "status": result.status.words,
            "n_features": result.n_features_in_,
            **_names(result),
            "n_components": result.n_components_,
            "steps": result.steps,
            **{name: getattr(result, f"{name}_").tolist() for name in figures},
            "largest_weights": _weights(result, result.components_[-1]),
            **_messages(result),
            "seed": result.seed,
        }
    )


def _names(result: Any) -> dict[str, Any]:
    names = result.feature_names_in_
    return {
        "feature_names": None if names is None else [str(name) for name in names],
        "site_names": {str(key): name for key, name in result.site_names.items()},
    }


def _weights(result: Any, components: Any) -> list[list[dict[str, Any]]]:
    """The columns that weigh most in each component, largest first."""
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    return [
        [{"column": names[j], "weight": float(row[j])} for j in labels.leading(row, _WEIGHTS)] for row in components
    ]


def _family(result: Any) -> dict[str, Any]:
    """Figures that only robust, or only personalized runs have, by what they are; one that is not a number is None."""
    from flower_pca.results.personal import PersonalResult
    from flower_pca.results.robust import RobustResult

    if isinstance(result, RobustResult):
        return {
            "share of entries taken out": float(result.taken_share_.mean()),
            "share of far entries": result.outlier_share_,
            "taken out beyond": result.threshold_,
            "size of an ordinary entry": result.spread_,
        }
    if isinstance(result, PersonalResult):
        theta = None if math.isnan(result.theta_) else result.theta_
        return {
            "own components of a client": result.local_components,
            "theta": theta,
            "error with own components": result.error_,
        }
    return {}


def _traffic(result: Any) -> str:
    sizes = f"{result.history.bytes_up:,} bytes up, {result.history.bytes_down:,} bytes down"
    return f"{labels.count(result.history.count, 'message')}, {sizes}, {_seconds(result):.3g} s"


def _messages(result: Any) -> dict[str, Any]:
    history = result.history
    sizes = {"messages": history.count, "bytes_up": history.bytes_up, "bytes_down": history.bytes_down}
    return {**sizes, "seconds": _seconds(result)}


def _seconds(result: Any) -> float:
    return float(result.history.seconds)
