"""`flower-pca run`: compute the principal components of rows that are dealt out to simulated clients."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.settings import SETTINGS
from flower_pca.commands import common, output
from flower_pca.commands.results import figures_as_json, print_result
from flower_pca.core.config import PCAConfig
from flower_pca.names import ranges
from flower_pca.results import saved
from flower_pca.results.pca import PCAResult
from flower_pca.rows.covariates import SITE
from flower_pca.settings.budget import DP


def add_run(commands: Any) -> None:
    """Add the command `flower-pca run` to the parser."""
    parser = common.add_command(
        commands, "run", "simulate a federation on one machine; write result.npz, history.csv and report.html", run_pca
    )
    add_config_options(parser)
    _add_execution_options(parser)
    common.add_out_option(parser)
    common.add_verbose_option(parser)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that define a run, for the commands `run` and `check`."""
    common.add_data_options(parser)
    common.add_algorithm_option(parser)
    common.add_settings(
        parser, "reconstruction_error", "monitor", "standard_errors", "explain", "adjust", "harmonize", "keep"
    )
    common.add_settings(parser, "max_share", "variants", "highly_variable", "categorical", "dp")
    parser.add_argument(
        "--ranges",
        metavar="RANGES",
        help=(
            'with --dp, public ranges of the columns: "age=18..100,weight=30..200", or a '
            "file of lines age,18,100; only columns with a range are used"
        ),
    )
    common.add_mask_option(parser)
    common.add_partitioned_by_option(parser)


def _add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add options about the execution of a run: messages, backend, checkpoint, initial components, local results."""
    common.add_settings(parser, "wire")
    parser.add_argument(
        "--backend",
        choices=("in_process", "ray"),
        default="in_process",
        help="a simple loop in this process, or Flower's engine with a virtual node per client (default: in_process)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="keep the state here after every round; the same command then continues after an interruption",
    )
    parser.add_argument(
        "--init",
        type=Path,
        metavar="RESULT",
        help="begin with the components of an earlier result, which saves messages if the rows are nearly the same",
    )
    parser.add_argument(
        "--save-local",
        action="store_true",
        help="also write a file with the local results of each client: low-rank and sparse part, own components, "
        "means with --adjust site, or location and scale with --harmonize",
    )


def run_pca(args: argparse.Namespace) -> int:
    """Run, write the files, and print the variances. Return 1 if the run did not reach its goal."""
    from flower_pca import assembly
    from flower_pca.simulation import simulate

    place = common.writable_folder(args.out, data=args.data)
    config = config_of(args)  # Wrong options are reported before data are read, because reading may take long.
    if args.save_local:
        by_site = config.harmonize is not None or SITE in config.adjust
        output.require_local_results(config.algorithm, args.partitioned_by, by_site=by_site)
    args.columns, args.words, args.covariates = config.columns, config.text_columns, config.covariate_columns
    checkpoint = args.checkpoint and args.checkpoint.expanduser().absolute()
    if checkpoint is not None:
        checks.parent_exists("the checkpoint", checkpoint)
    init = args.init and PCAResult.load(args.init)
    shards = common.clients_of(args)
    common.require_two_clients(config.mask, len(shards))
    rows = sum(shard.shape[0] for shard in shards)
    columns = shards[0].shape[1]
    seen = assembly.noise_forecast(config, rows=rows, columns=columns, clients=len(shards))
    if seen is not None:
        seen.require()
        sys.stderr.write(f"{seen}\n")
    with common.showing_progress() as on_round, _naming_checkpoint(checkpoint):
        result = simulate(config, shards, on_round=on_round, backend=args.backend, checkpoint=checkpoint, init=init)
    *files, last = _write_files(result, shards, place, args)
    if others := output.leftover_files(place, [*files, last]):
        sys.stderr.write(
            f"flower-pca: not changed, because an earlier run wrote them: {', '.join(others)} in {place}\n"
        )
    if args.json:
        common.print_json({**figures_as_json(result), "clients": len(shards), "out": str(place)})
    else:
        print_result(result, verbose=args.verbose)
        sys.stdout.write(f"Wrote {', '.join(files)} and {last} to {place}\n")
    return int(not result.status.ok)


@contextmanager
def _naming_checkpoint(checkpoint: Path | None) -> Iterator[None]:
    """Add the path of the checkpoint to the error if the run is interrupted or a file cannot be written."""
    try:
        yield
    except (KeyboardInterrupt, OSError) as error:
        if checkpoint is None or not checkpoint.exists():
            raise
        words = f"The state of the run is in {checkpoint}; the same command continues from it."
        if isinstance(error, OSError):
            error.add_note(f"Correct this error first. {words}")
            raise
        raise KeyboardInterrupt(words) from None


def _write_files(result: PCAResult, shards: list[Any], folder: Path, args: argparse.Namespace) -> list[str]:
    """Write the files of a result, and return their names."""
    from flower_pca import report
    from flower_pca.vertical.result import ColumnsResult

    names = ["result.npz", "loadings.csv", "history.csv", "report.html"]
    with saved.saving_on_failure(result), common.writing_folder(folder) as draft:
        result.save(draft / "result.npz")
        output.write_loadings(result, draft / "loadings.csv")
        if isinstance(result, ColumnsResult):
            names += output.write_scores(result, draft)
        if args.save_local:
            names += output.write_local_results(result, draft, shards)
        _write_history(result, draft / "history.csv")
        title = f"Principal components of {common.title_of(args.data)}"
        rows = shards if args.partitioned_by == "rows" else None
        report.write(result, draft / "report.html", title=title, shards=rows)
    return names


def config_of(args: argparse.Namespace) -> PCAConfig:
    """Return the configuration of the run. If --dp has no clip, the clip follows from --ranges."""
    from flower_pca import assembly

    if args.ranges is None:
        budget = _budget_without_ranges(args.dp)
    elif args.dp is None:
        raise ConfigError('--ranges works only with --dp. Add --dp "dp(epsilon=1.0, delta=1e-6)".')
    else:
        budget = DP.of(args.dp, ranges=ranges.read_ranges(args.ranges))
    asked = {name: value for name, value in vars(args).items() if name in SETTINGS}
    asked |= {"n_components": args.components, "tol": args.tol, "max_rounds": args.max_rounds, "dp": budget}
    return assembly.config(args.algorithm, **asked)


def _budget_without_ranges(text: str | None) -> DP | None:
    """Return the privacy budget of a run without --ranges.

    If the length of rows has no bound, the error names an option that sets a bound.
    """
    try:
        return DP.of(text)
    except ConfigError as error:
        if error.setting != "clip":
            raise
        raise ConfigError(
            "--dp needs a bound on the length of a row. Add --ranges FILE, with the public range of each column, "
            'or clip=... in the spec, as in --dp "dp(epsilon=1.0, delta=1e-6, clip=10.0)".',
            setting="clip",
        ) from None


def _write_history(result: PCAResult, path: Path) -> None:
    """Write a csv file with a line for each message, and a column for each metric that any stage reports."""
    records = result.history.to_json()
    metrics = list(dict.fromkeys(name for record in records for name in record["metrics"]))
    plain = ("number", "stage", "asked", "answered", "bytes_down", "bytes_up", "seconds")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*plain, "failed", *metrics])
        for record in records:
            numbers = [record["metrics"].get(name, "") for name in metrics]
            named = [record[name] for name in plain]
            writer.writerow([*named, len(record["failures"]), *numbers])
