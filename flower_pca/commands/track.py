"""`flower-pca track`: follow the subspace of the rows of a file, dealt to clients, and draw how it moves."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flower_pca.base import labels
from flower_pca.commands import common

if TYPE_CHECKING:
    from flower_pca.data.table import Table
    from flower_pca.results.record import StepRecord
    from flower_pca.results.steps import TrackingResult
    from flower_pca.tracking.tracker import Tracker

_EPILOG = """\
examples:
  flower-pca track rows.npy --batch 60 --rank 5
  flower-pca track rows.csv --batch 24 --rank 3 --clients 4 --detect --threshold 0.5
  flower-pca track rows.npy --batch 60 --rank 5 --clients 6 --mask
  flower-pca track rows.npy --batch 60 --rank 5 --detect --events steps.jsonl --checkpoint run.npz --resume
  flower-pca track rows.npy --batch 60 --rank 5 --detect --live live.html
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
    text = "rows in the order of time: a path, a folder of one file per client, or a spec; NaN is missing"
    parser.add_argument("data", metavar="DATA", help=text)
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="rows of a step, of all clients together")
    text = "components to follow, the columns of the basis"
    parser.add_argument("--components", "--rank", dest="rank", type=int, required=True, metavar="R", help=text)
    text = 'a tracker: st_miss, or a spec such as "robust_tracking(smallest_outlier=15)" (default: st_miss)'
    parser.add_argument("--algorithm", default="st_miss", metavar="SPEC", help=text)
    text = "to whom the rows of a step are dealt (default: a folder's files, else 1)"
    parser.add_argument("--clients", type=int, metavar="K", help=text)
    parser.add_argument("--detect", action="store_true", help="look for changes")
    text = "the statistic that is a change (default: learnt from the rows)"
    parser.add_argument("--threshold", type=float, metavar="W", help=text)
    text = "alarms in a quiet step, where the threshold is learnt (default: 1e-3)"
    parser.add_argument("--alarm-rate", type=float, metavar="P", help=text)
    common.argument_of_masks(parser)
    text = "append a line of JSON to this file once a step is over"
    parser.add_argument("--events", type=Path, metavar="FILE", help=text)
    text = "draw where the run stands into this page, FILE.html, every few seconds; a browser loads it again by itself"
    parser.add_argument("--live", type=Path, metavar="FILE", help=text)
    text = "keep the state in this file after every message; a run that has come to its end removes it"
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help=text)
    text = "go on from the checkpoint, and append to the events; where there is no checkpoint yet, begin"
    parser.add_argument("--resume", action="store_true", help=text)
    parser.add_argument("--seed", type=int, default=0, help="seed of the server (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to (default: out)"
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table, and where basis and picture are."""
    from flower_pca import registry, report
    from flower_pca.base import checks
    from flower_pca.base.errors import ConfigError
    from flower_pca.data import sources
    from flower_pca.masking import MaskedSums
    from flower_pca.report.live import watching
    from flower_pca.simulation import track

    checks.integer("--batch", given.batch, least=1)
    if given.clients is not None:
        checks.integer("--clients", given.clients, least=1, most=given.batch)
    place, mask, checkpoint = common.folder(given.out), MaskedSums.of(given.mask), _checkpoint(given)
    changes = {name: getattr(given, name) for name in ("threshold", "alarm_rate") if getattr(given, name) is not None}
    tracker = registry.tracker(given.algorithm, **({"detect": True} if given.detect else {}), **changes)
    if changes and not tracker.detect:
        what = " and ".join(f"--{name.replace('_', '-')}" for name in changes)
        raise ConfigError(what, must="given with --detect", got="no --detect", then="Add it: no change is looked for.")
    streams = _streams(sources.table(given.data).whole(), given)
    common.enough(mask, len(streams))
    settings: dict[str, Any] = {"n_components": given.rank, "seed": given.seed}
    settings |= {"mask": mask, "checkpoint": checkpoint}
    title = f"The subspace of {common.title(given.data)}"
    try:
        with (
            watching(events=given.events, live=given.live, title=title, resume=given.resume) as on_step,
            common.progress("starting") as on_round,
        ):
            result = track(tracker, streams, **settings, on_round=on_round, on_step=_aloud(on_step))
    except KeyboardInterrupt:
        if checkpoint is None or not checkpoint.exists():
            raise
        words = f"The state of the run is in {checkpoint}; the same command with --resume goes on from it."
        raise KeyboardInterrupt(words) from None
    lines = [result.table(), str(result.status)]
    if tracker.detect:
        lines.append(_changes(result, tracker))
    with common.writing(place) as draft:
        lines.append(f"bases             {place / result.save(draft / 'tracking.npz').name}")
        lines.append(_picture(result, draft / "tracking.png", place))
        report.write(result, draft / "report.html", title=title)
        lines.append(f"report            {place / 'report.html'}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _streams(table: Table, given: argparse.Namespace) -> list[Any]:
    """A stream of every file of a folder, each with an equal part of a step; else what `deal` makes."""
    from flower_pca.base.errors import ConfigError
    from flower_pca.data import partition
    from flower_pca.data.reading import no_rows
    from flower_pca.rows.stream import Stream

    count = len(table.parts)
    if count == 1:
        rows = table.site_rows(table.rows)
        if not len(rows):
            raise no_rows(given.data)
        return deal(rows, given.batch, given.clients or 1)
    if given.clients not in (None, count):
        raise ConfigError(
            "--clients", must=f"{count}, as many as the data has", got=given.clients, then="Leave it out."
        )
    if given.batch % count:
        rule = f"a multiple of {count}, as each client has as many rows in a step"
        raise ConfigError("--batch", must=rule, got=given.batch, then="Choose another one.")
    return [Stream(rows, batch=given.batch // count) for rows in partition.deal(table)]


def deal(rows: Any, batch: int, clients: int) -> list[list[Any]]:
    """The batches of every client: of each `batch` rows, every client gets an equal part in turn."""
    steps = range(0, len(rows), batch)
    return [[part if len(part) else None for part in (rows[s : s + batch][k::clients] for s in steps)]
            for k in range(clients)]  # fmt: skip


def _checkpoint(given: argparse.Namespace) -> Path | None:
    """Where the state is kept, if anywhere; nothing is begun over one that is there, and none goes on by mistake."""
    from flower_pca.base import checks
    from flower_pca.base.errors import ConfigError

    if given.checkpoint is None:
        if given.resume:
            raise ConfigError("--resume", must="given with --checkpoint", got="it alone", then="Add --checkpoint FILE.")
        return None
    path: Path = given.checkpoint.expanduser().absolute()
    checks.parent("the checkpoint", path)
    if path.exists() and not given.resume:
        remedy = "Add --resume to go on from it, or name another."
        raise ConfigError("The checkpoint", must="a new file", got=f"{path}, which is there", then=remedy)
    if given.resume and not path.exists():
        sys.stderr.write(f"flower-pca: There is no checkpoint {path}: the run begins with the first step.\n")
    return path


def _changes(result: TrackingResult, tracker: Tracker) -> str:
    steps = result.changes_.tolist()
    if steps:
        return f"{'change at step' if len(steps) == 1 else 'changes at steps'} {', '.join(map(str, steps))}"
    if not result.levels_:
        learnt = "" if tracker.threshold is not None else ", and after 20 quiet ones without --threshold"
        first = labels.count(tracker.update_length, "step")
        return f"no change was looked for in so few steps: that begins after {first}{learnt}"
    return "no change"


def _aloud(on_step: Callable[[StepRecord], None]) -> Callable[[StepRecord], None]:
    """`on_step`, and a sentence on standard error where a change is declared."""

    def after(record: StepRecord) -> None:
        on_step(record)
        if record.change is not None:
            sys.stderr.write(f"flower-pca: {record.change}\n")
            sys.stderr.flush()

    return after


def _picture(result: Any, path: Path, place: Path) -> str:
    from flower_pca.base.errors import ConfigError
    from flower_pca.plots.tracking import movement

    try:
        return f"picture           {place / movement(result, path).name}"
    except ConfigError as error:  # everything else has been done without matplotlib
        return f"no picture: {error}"
