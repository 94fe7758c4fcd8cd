"""`flower-pca show` prints a result.

`flower-pca report` writes its report as a web page, for example because the server has written no report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from flower_pca.analysis.monitor import Monitor, warning_of_unknown_sites
from flower_pca.analysis.rotation import Rotation
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common, rows
from flower_pca.names.columns import enumeration
from flower_pca.results import facts
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

# Figures with these labels are printed, one per line: errors, and figures of robust and personalized runs.
_LINES: Final = (
    "mean squared error",
    "entries taken out",
    "of all entries, far off",
    "taken out beyond",
    "size of an ordinary entry",
    "own components of a client",
    "theta",
    "error with own components",
)


def add_show(commands: Any) -> None:
    """Add the command `flower-pca show` to the parser."""
    parser = common.add_command(commands, "show", "print the variances in a result, and how its run went", run_show)
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")
    common.add_rotate_option(parser)
    common.add_verbose_option(parser)


def run_show(args: argparse.Namespace) -> int:
    """Print the result."""
    result = common.any_result_of(args.result)
    rotation = common.rotation_of(args, result)
    if isinstance(result, TrackingResult) and not args.json:
        lines = [result.table(), _messages_in_words(result), *_line_of_sites(result), f"{result.status}\n"]
        sys.stdout.write("\n".join(lines))
    elif isinstance(result, TrackingResult):
        common.print_json(facts.facts_as_json(result.summary().facts))
    elif args.json:
        common.print_json(figures_as_json(result, rotation))
    else:
        print_result(result, verbose=args.verbose)
        if rotation is not None:
            heads, cells = rotation.axes_table(digits=6)
            common.print_table(heads, cells, text=(0, len(heads) - 1))
            sys.stdout.write(f"{rotation.words}\n")
    return 0


def print_result(result: PCAResult, *, verbose: bool) -> None:
    """Print a table of variances and a few lines about the run. `verbose` adds its status and automatic choices."""
    summary = result.summary(digits=6)
    sys.stdout.write("".join(f"{common.OptionWording().in_options(words)}\n" for words in summary.of_tone("bad")))
    heads, cells = summary.components
    common.print_table(heads, cells, text=(len(heads) - 1,))
    clients = labels.count(facts.number_of_clients(result.history), "client")
    lines = [
        f"{summary.size} at {clients}, by {result.algorithm}",
        _messages_in_words(result),
        *_line_of_sites(result),
        *(f"{fact.words}: {fact.text}" for fact in summary.facts if fact.words in _LINES),
        *(remark.words for remark in facts.remarks_on_left_out(result.left_out)),
        *_line_of_limits(result),
        *([] if result.privacy is None else [f"privacy: {result.privacy}", str(result.certainty)]),
        *_lines_on_ending(result, verbose=verbose),
        *(f"hint: {common.OptionWording().in_options(hint)}" for hint in result.hints),
        *([f"hint: {result.shrinkage_hint}"] if result.shrinkage_hint else []),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _lines_on_ending(result: PCAResult, *, verbose: bool) -> list[str]:
    """Return lines on how a successful run ended, with warnings about its result.

    For a failed run, return its automatic choices if `verbose`, and otherwise [].
    """
    if not result.status.ok:
        return list(result.decisions) if verbose else []
    if verbose:
        return [str(result.status), *result.decisions]
    doubts = facts.with_tones(facts.remarks_on_status(result.status), "warn")
    words = (common.OptionWording().in_options(doubt.words) for doubt in doubts)
    # Even after a successful run over columns, the reader should check how people were matched.
    matched = result.decisions if result.config.get("partitioned_by") == "columns" else ()
    return [facts.ending_in_words(result.status, result.rounds, result.left_out), *words, *matched]


def _line_of_sites(result: PCAResult | TrackingResult) -> list[str]:
    """Return a line with the names of the sites, or no line if sites have no names."""
    if not result.site_names:
        return []
    names = [result.site_names[key] for key in sorted(result.site_names)]
    return [f"{labels.pluralize(len(names), 'site')}: {enumeration(names)}"]


def _line_of_limits(result: PCAResult) -> list[str]:
    """Return a line with the limits of T2 and SPE, or no line after a run without `monitor`."""
    if result.histograms_ is None:
        return []
    return [f"limits: {Monitor(result).limits()}"]


def figures_as_json(result: PCAResult, rotation: Rotation | None = None) -> dict[str, Any]:
    """Return the figures of a result, and of its rotation, as plain values.

    Arrays with an entry for each column are only in the result's file, except for the arrays of a rotation.
    """
    figures = {
        **facts.facts_as_json(result.summary().facts),
        "limits": None if result.histograms_ is None else Monitor(result).limits().as_json(),
    }
    if rotation is not None:
        figures["rotation"] = rotation.as_json()
    return figures


def _messages_in_words(result: PCAResult | TrackingResult) -> str:
    history = result.history
    sizes = f"{history.bytes_up:,} bytes up, {history.bytes_down:,} bytes down"
    return f"{labels.count(history.count, 'message')}, {sizes}, {history.seconds:.3g} s"


def add_report(commands: Any) -> None:
    """Add the command `flower-pca report` to the parser."""
    parser = common.add_command(
        commands, "report", "write the report of a result, with pictures of the clients if rows are given", run_report
    )
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")
    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        help="the rows of the run, a path or a spec as for run; a folder must have one file per site",
    )
    rows.add_partition_option(parser)
    common.add_missing_options(parser)
    common.add_rotate_option(parser)
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: report.html in the folder of RESULT)"
    )


def run_report(args: argparse.Namespace) -> int:
    """Write the report as a web page."""
    from flower_pca import report

    path = args.out or Path(args.result).parent / "report.html"
    path = path.expanduser().absolute()
    checks.parent_exists("the report", path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"The report is a web page, so its name must end in .html, but {path.name} does not. For example, write "
            "-o report.html."
        )
    result = common.any_result_of(args.result, missing=args.missing)
    rotation = common.rotation_of(args, result)
    shards, source = None, args.result
    if args.data is not None:
        if not isinstance(result, PCAResult):
            raise ConfigError("The report of a tracking run needs no rows. Leave DATA out.")
        if result.is_by_site:
            raise ConfigError(
                "This run harmonized the sites or subtracted their means, so rows can be scored only with the local "
                "results of each site. Leave DATA out: the report.html that `flower-pca run` wrote has the pictures "
                "of the rows."
            )
        sites, _ = rows.sites_of(args, result)
        if strangers := warning_of_unknown_sites(result, sites):
            result = replace(result, hints=(*result.hints, f"{labels.capitalize(strangers)}."))
        result = _with_clients_by_position(result, list(sites))
        shards = list(sites.values())
        source = args.data
    title = f"Principal components of {common.title_of(source)}"
    report.write(result, path, title=title, shards=shards, rotation=rotation)
    if args.json:
        common.print_json({"out": str(path)})
    else:
        sys.stdout.write(f"Wrote {path}\n")
    return 0


def _with_clients_by_position(result: PCAResult, sites: Sequence[str | int]) -> PCAResult:
    """Return the result with its clients numbered in the order of these sites, instead of by the ids of their nodes."""
    position = {str(site): i for i, site in enumerate(sites)}
    moved = {key: position[name] for key, name in result.site_names.items() if name in position}
    names = {i: site for i, site in enumerate(sites) if isinstance(site, str)}
    return replace(result.with_keys(moved), site_names=names)
