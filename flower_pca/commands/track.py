"""`flower-pca track`: follow the subspace of the rows of a file, dealt to clients, and draw how it moves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flower_pca.commands import common

_EPILOG = """\
examples:
  flower-pca track rows.npy --batch 60 --rank 5
  flower-pca track rows.csv --batch 24 --rank 3 --clients 4 --detect --threshold 0.5
  flower-pca track rows.npy --batch 60 --rank 5 --clients 6 --mask
  flower-pca track frames.npy --batch 20 --rank 8 --algorithm "robust_tracking(smallest_outlier=40)"
"""


def add(commands: Any) -> None:
    """Add the subcommand to those of the parser."""
    words = "follow the subspace of rows over time, through gaps and outliers"
    parser = commands.add_parser(
        "track",
        help=words,
        description=f"{words[0].upper()}{words[1:]}: a table of its movement, a picture, a report, and the bases.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", metavar="DATA", help="rows in the order of time: a path or a spec; NaN is missing")
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="rows of a step, of all clients together")
    text = "components to follow, the columns of the basis"
    parser.add_argument("--components", "--rank", dest="rank", type=int, required=True, metavar="R", help=text)
    text = 'a tracker: st_miss, or a spec such as "robust_tracking(smallest_outlier=15)" (default: st_miss)'
    parser.add_argument("--algorithm", default="st_miss", metavar="SPEC", help=text)
    parser.add_argument("--clients", type=int, default=1, metavar="K", help="to whom the rows of a step are dealt")
    parser.add_argument("--detect", action="store_true", help="look for changes")
    text = "the statistic that is a change (default: learnt from the rows)"
    parser.add_argument("--threshold", type=float, metavar="W", help=text)
    text = "alarms in a quiet step, where the threshold is learnt (default: 1e-3)"
    parser.add_argument("--alarm-rate", type=float, metavar="P", help=text)
    common.argument_of_masks(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the server (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to (default: out)"
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table, and where basis and picture are."""
    from flower_pca import registry, report
    from flower_pca.base import checks
    from flower_pca.data import sources
    from flower_pca.data.reading import no_rows
    from flower_pca.masking import MaskedSums
    from flower_pca.simulation import track

    checks.integer("--batch", given.batch, least=1)
    checks.integer("--clients", given.clients, least=1, most=given.batch)
    place, mask = common.folder(given.out), MaskedSums.of(given.mask)
    common.enough(mask, given.clients)
    changes = {name: getattr(given, name) for name in ("threshold", "alarm_rate") if getattr(given, name) is not None}
    tracker = registry.tracker(given.algorithm, **({"detect": True} if given.detect else {}), **changes)
    table = sources.table(given.data).whole()
    rows = table.site_rows(table.rows)
    if not len(rows):
        raise no_rows(given.data)
    streams, settings = deal(rows, given.batch, given.clients), {"n_components": given.rank, "seed": given.seed}
    with common.progress("starting") as on_round:
        result = track(tracker, streams, **settings, mask=mask, on_round=on_round)
    lines = [result.table(), str(result.status)]
    if tracker.detect:
        lines.append(f"changes at steps  {', '.join(map(str, result.changes_)) or 'none'}")
    with common.writing(place) as draft:
        lines.append(f"bases             {place / result.save(draft / 'tracking.npz').name}")
        lines.append(_picture(result, draft / "tracking.png", place))
        report.write(result, draft / "report.html", title=f"The subspace of {common.title(given.data)}")
        lines.append(f"report            {place / 'report.html'}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def deal(rows: Any, batch: int, clients: int) -> list[list[Any]]:
    """The batches of every client: of each `batch` rows, every client gets an equal part in turn."""
    steps = range(0, len(rows), batch)
    return [[part if len(part) else None for part in (rows[s : s + batch][k::clients] for s in steps)]
            for k in range(clients)]  # fmt: skip


def _picture(result: Any, path: Path, place: Path) -> str:
    from flower_pca.base.errors import ConfigError
    from flower_pca.plots.tracking import movement

    try:
        return f"picture           {place / movement(result, path).name}"
    except ConfigError as error:  # everything else has been done without matplotlib
        return f"no picture: {error}"
