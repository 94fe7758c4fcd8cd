"""`flower-pca track`: follow the subspace of rows over time, from a file or from a folder that receives files."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flower_pca import registry
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common
from flower_pca.names.columns import split_names
from flower_pca.results import saved

if TYPE_CHECKING:
    from flower_pca.data.inbox import Inbox
    from flower_pca.results.record import StepRecord
    from flower_pca.results.steps import TrackingResult
    from flower_pca.tracking.tracker import Tracker

_EPILOG = """\
examples:
  flower-pca track rows.npy --batch 60 --components 5
  flower-pca track rows.csv --batch 24 --components 3 --clients 4 --detect --threshold 0.5
  flower-pca track rows.npy --batch 60 --components 5 --clients 6 --mask
  flower-pca track rows.npy --batch 60 --components 5 --detect --events steps.jsonl --checkpoint run.npz --resume
  flower-pca track rows.npy --batch 60 --components 5 --detect --live live.html
  flower-pca track incoming --follow --interval 60 --components 5 --detect --checkpoint run.npz --resume
  flower-pca track frames.npy --batch 20 --components 8 --algorithm "robust_tracking(smallest_outlier=40)"
"""


def add_track(commands: Any) -> None:
    """Add the command `flower-pca track` to the parser."""
    words = "follow the subspace of rows over time, even with missing values and outliers"
    parser = commands.add_parser(
        "track",
        help=words,
        description=f"{labels.capitalize(words)}. Print a table, and write a picture, a report and the bases.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_row_options(parser)
    common.add_column_options(parser)
    parser.add_argument(
        "--components", type=int, default=2, metavar="K", help="number of components to follow (default: 2)"
    )
    parser.add_argument(
        "--algorithm",
        default="st_miss",
        metavar="SPEC",
        help='a tracker: st_miss, or a spec such as "robust_tracking(smallest_outlier=15)" (default: st_miss)',
    )
    parser.add_argument(
        "--clients",
        type=int,
        metavar="K",
        help="number of clients that share the rows of a step (default: a folder's files, else 1)",
    )
    _add_detection_options(parser)
    common.add_mask_option(parser)
    _add_file_options(parser)
    common.add_settings(parser, "seed")
    parser.set_defaults(run=run_track)


def _add_row_options(parser: argparse.ArgumentParser) -> None:
    """Add DATA, and the options about the rows of a step and the number of steps."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="rows in the order of time: a path, a folder of one file per client, or a spec; NaN is missing",
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="rows of a step at all clients together; with --follow, the minimum number of rows (default: 1)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help=(
            "follow a folder until interrupted: each file that arrives is a batch of its site, by folders of sites "
            "or by file names"
        ),
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="S",
        help="with --follow, seconds between two checks of the folder (default: 60)",
    )
    parser.add_argument(
        "--sites",
        metavar="NAMES",
        help="with --follow, names of all sites, separated by commas (default: the sites in the folder at the start)",
    )
    parser.add_argument("--steps", type=int, metavar="T", help="largest number of steps (default: until the rows end)")


def _add_detection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about the detection of changes."""
    parser.add_argument("--detect", action="store_true", help="look for changes")
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="W",
        help="the value of the statistic above which a step counts as a change (default: learned from the rows)",
    )
    parser.add_argument(
        "--alarm-rate",
        type=float,
        metavar="P",
        help="rate of false alarms per step without a change, if the threshold is learned (default: 1e-3)",
    )
    parser.add_argument(
        "--monitor",
        action="store_true",
        help="name the columns and clients that cause a change, and also test each direction and column",
    )


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about files: events, the live page, the checkpoint, and the result."""
    parser.add_argument(
        "--events", type=Path, metavar="FILE", help="append a line of JSON to this file after each step"
    )
    parser.add_argument(
        "--live",
        type=Path,
        metavar="FILE",
        help=("write the state of the run to this page, FILE.html, every few seconds; a browser reloads it by itself"),
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="keep the state in this file after every message; the run removes the file when it ends",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue from the checkpoint, and append to the events; if there is no checkpoint yet, start a new run",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to (default: out)"
    )


def run_track(args: argparse.Namespace) -> int:
    """Track the subspace, write the files, and print the table and where the files are."""
    _refuse_conflicts(args)
    if args.steps is not None:
        checks.integer("--steps", args.steps, least=1)
    place, checkpoint = common.writable_folder(args.out, data=args.data), _checkpoint_path(args)
    tracker = _tracker_of(args)
    title = f"The subspace of {common.title_of(args.data)}"
    _write_files(_run_tracker(args, tracker, checkpoint, title), tracker, place, title)
    return 0


def _run_tracker(args: argparse.Namespace, tracker: Tracker, checkpoint: Path | None, title: str) -> TrackingResult:
    """Return the result of the run. If a run with --follow is interrupted, the result covers the completed steps."""
    from flower_pca.masking import MaskedSums
    from flower_pca.report.live import watching
    from flower_pca.simulation import track

    newest: list[StepRecord] = []
    mask = MaskedSums.of(args.mask)  # This reports a wrong option before the data is read.
    inbox = _inbox_of(args) if args.follow else None
    streams = _streams_of(args) if inbox is None else inbox.streams()
    common.require_two_clients(mask, len(streams))
    try:
        with (
            watching(events=args.events, live=args.live, title=title, resume=args.resume) as watchers,
            common.showing_progress() as on_round,
            _end_on_signal() if args.follow else nullcontext(),
        ):
            if inbox is not None:
                inbox.on_wait = watchers.rest
            return track(
                tracker,
                streams,
                n_components=args.components,
                seed=args.seed,
                mask=mask,
                checkpoint=checkpoint,
                steps=args.steps,
                on_round=on_round,
                on_step=_printing_changes(watchers, newest),
            )
    except (KeyboardInterrupt, OSError) as error:
        remedy = _how_to_resume(checkpoint)
        if isinstance(error, OSError):
            error.add_note(f"Correct this error first. {remedy}".rstrip())
            raise
        if args.follow and newest:
            sys.stderr.write(f"flower-pca: Ended after step {newest[-1].step}. {remedy}\n")
            return newest[-1].result_so_far()
        if not remedy:
            raise
        raise KeyboardInterrupt(remedy) from None


def _write_files(result: TrackingResult, tracker: Tracker, folder: Path, title: str) -> None:
    """Write the files of a result, and print the table and the paths of the files."""
    from flower_pca import report

    lines = [result.table(), str(result.status)]
    if tracker.detect:
        lines.append(_changes_in_words(result, tracker))
    with saved.saving_on_failure(result), common.writing_folder(folder) as draft:
        lines.append(f"bases             {folder / result.save(draft / 'tracking.npz').name}")
        lines.append(_write_picture(result, draft / "tracking.png", folder))
        report.write(result, draft / "report.html", title=title)
        lines.append(f"report            {folder / 'report.html'}")
    sys.stdout.write("\n".join(lines) + "\n")


def _refuse_conflicts(args: argparse.Namespace) -> None:
    """Raise a ConfigError if options do not work together."""
    if args.batch is None and not args.follow:
        raise ConfigError("Give --batch, the number of rows of a step at all clients together, such as --batch 60.")
    if args.batch is not None:
        checks.integer("--batch", args.batch, least=1)
    if args.clients is not None and args.follow:
        raise ConfigError("With --follow, each site of the folder is a client. Leave --clients out.")
    if args.clients is not None:
        checks.integer("--clients", args.clients, least=1, most=args.batch)
    for what, value in (("--interval", args.interval), ("--sites", args.sites)):
        if value is not None and not args.follow:
            raise ConfigError(f"{what} is for --follow. Add --follow, or leave {what} out.")


def _tracker_of(args: argparse.Namespace) -> Tracker:
    tracker = registry.tracker(args.algorithm)
    tracker = replace(tracker, detect=tracker.detect or args.detect)
    of_changes = {
        "--threshold": args.threshold is not None,
        "--alarm-rate": args.alarm_rate is not None,
        "--monitor": args.monitor,
    }
    if any(of_changes.values()) and not tracker.detect:
        raise ConfigError(
            f"{' and '.join(option for option, there in of_changes.items() if there)} works only with --detect. Add "
            "--detect."
        )
    if args.threshold is not None:
        tracker = replace(tracker, threshold=args.threshold)
    if args.alarm_rate is not None:
        tracker = replace(tracker, alarm_rate=args.alarm_rate)
    return replace(tracker, monitor=tracker.monitor or args.monitor)


def _inbox_of(args: argparse.Namespace) -> Inbox:
    """Return the inbox of the folder to follow, which prints remarks about the folder's files to stderr."""
    from flower_pca.data.inbox import Inbox

    interval = args.interval if args.interval is not None else 60.0
    return Inbox(
        args.data,
        interval=interval,
        batch=args.batch or 1,
        sites=split_names(args.sites) or (),
        columns=split_names(args.columns),
        drop=args.drop,
        gaps=common.gaps_by_column(args),
        report=_print_remark,
    )


def _streams_of(args: argparse.Namespace) -> list[Any]:
    """Return the stream of each client.

    In a folder, each file is the stream of one client, and a step has equally many rows of each file. The rows of a
    single table are dealt out to the clients.
    """
    from flower_pca.data import partition, sources
    from flower_pca.data.reading import no_rows_error
    from flower_pca.hints import faults
    from flower_pca.rows.stream import Stream

    table = sources.table(
        args.data, columns=split_names(args.columns), drop=args.drop, gaps=common.gaps_by_column(args)
    ).whole()
    count = max(len(table.parts), 1)
    if table.names:
        for hint in faults.find_in_stream(partition.deal(table, n_clients=count)):
            _print_remark(f"hint: {hint}")
    if count == 1:
        rows = table.joined().bare()
        if not len(rows):
            raise no_rows_error(args.data)
        return deal_batches(rows, args.batch, args.clients or 1)
    if args.clients not in (None, count):
        raise ConfigError(f"The data has {count} clients, not {args.clients}. Leave --clients out.")
    if args.batch % count:
        raise ConfigError(
            f"--batch must be divisible by the number of clients ({count}), but {args.batch} is not. Choose another "
            "number."
        )
    return [Stream(rows, batch=args.batch // count) for rows in partition.deal(table)]


@contextmanager
def _end_on_signal() -> Iterator[None]:
    """Treat SIGTERM, with which a service manager ends a run, like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Only the main thread may set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _how_to_resume(checkpoint: Path | None) -> str:
    if checkpoint is None or not checkpoint.exists():
        return ""
    return f"The state of the run is in {checkpoint}; the same command with --resume continues from it."


def _print_remark(words: str) -> None:
    sys.stderr.write(f"flower-pca: {words}\n")
    sys.stderr.flush()


def deal_batches(rows: Any, batch: int, clients: int) -> list[list[Any]]:
    """Split rows into batches of `batch` rows, and each batch into equal parts, one for each client."""
    steps = range(0, len(rows), batch)
    return [[part if len(part) else None for part in (rows[s : s + batch][k::clients] for s in steps)]
            for k in range(clients)]  # fmt: skip


def _checkpoint_path(args: argparse.Namespace) -> Path | None:
    """Return the path of the checkpoint, or None without a checkpoint.

    An existing checkpoint without --resume is an error.
    """
    if args.checkpoint is None:
        if args.resume:
            raise ConfigError("--resume needs the file to continue from. Add --checkpoint FILE.")
        return None
    path: Path = args.checkpoint.expanduser().absolute()
    checks.parent_exists("the checkpoint", path)
    if path.exists() and not args.resume:
        raise ConfigError(f"The checkpoint {path} exists. Add --resume to continue from it, or name another file.")
    if args.resume and not path.exists():
        sys.stderr.write(f"flower-pca: There is no checkpoint {path}, so the run begins with the first step.\n")
    return path


def _changes_in_words(result: TrackingResult, tracker: Tracker) -> str:
    if steps := result.changes_.tolist():
        changes = labels.pluralize(len(steps), "change")
        at = labels.pluralize(len(steps), "step")
        return f"{changes} at {at} {', '.join(map(str, steps))}"
    if result.levels_:
        return "no change"
    from flower_pca.tracking.change import STEPS_NEEDED

    needed = tracker.update_length if tracker.threshold is not None else max(tracker.update_length, STEPS_NEEDED)
    return f"too few steps to detect changes: detection starts after about {labels.count(needed, 'step')}"


def _printing_changes(on_step: Callable[[StepRecord], None], newest: list[StepRecord]) -> Callable[[StepRecord], None]:
    """Return a callback that keeps the record in `newest`, calls `on_step`, and prints declared changes to stderr."""

    def after_step(record: StepRecord) -> None:
        newest[:] = [record]
        on_step(record)
        if record.change is not None:
            _print_remark(record.change)

    return after_step


def _write_picture(result: TrackingResult, path: Path, folder: Path) -> str:
    from flower_pca.plots.tracking import subspace_change

    try:
        return f"picture           {folder / subspace_change(result, path).name}"
    except ConfigError as error:  # Everything else works without matplotlib.
        return f"no picture: {error}"
