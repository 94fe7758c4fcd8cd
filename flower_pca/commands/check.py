"""`flower-pca check`: find errors in the sites' files, which a PCA would treat as measurements."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flower_pca.base import labels, large
from flower_pca.base.errors import FlowerPCAError
from flower_pca.base.options import Sentence
from flower_pca.commands import common
from flower_pca.commands import run as runs
from flower_pca.core.config import COMPONENTS, PCAConfig
from flower_pca.hints import hints_of
from flower_pca.hints.words import columns_of_few_words, hints_of_words
from flower_pca.names.columns import enumeration, has_unusable_name, split_names, unusable_columns_error
from flower_pca.rows.local import LocalData

if TYPE_CHECKING:
    from flower_pca.names.table import Table

_EPILOG = """\
This command takes the options of `flower-pca run`. It tries the run without writing files, and prints the errors and
hints of the run. As in the run, missing values without --missing and columns of words are errors. The other checks are
done nevertheless.

exit codes: 0 nothing was found; 1 hints; 2 a file cannot be used unchanged, or the run would end in an error

examples:
  flower-pca check hospitals
  flower-pca check hospitals --drop patient_id,note --without trier
  flower-pca check hospitals --categorical ward --scale std --missing error
  flower-pca check patients.csv --partition "by_column('site')"
"""


def add_check(commands: Any) -> None:
    """Add the command `flower-pca check` to the parser."""
    words = (
        "check the files of sites for disguised missing values, totals, duplicate rows, dates, different units and "
        "similar errors"
    )
    parser = common.add_command(commands, "check", words, run_check)
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    runs.add_config_options(parser)
    parser.set_defaults(components=None, missing=None)


def run_check(args: argparse.Namespace) -> int:
    """Print errors and hints. Return 2 if there are errors, 1 if there are only hints, and otherwise 0."""
    config = _config(args, n_components=2)
    args.words, args.covariates = config.text_columns, config.covariate_columns
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        read = _read_sites(args)
    found = common.texts_of_warnings(said)
    sites: list[LocalData] = []
    # A run over rows continues without sites that have no rows.
    some = args.partitioned_by == "rows" and any(shard.shape[0] for shard in read.shards)
    for i, shard in enumerate(read.shards):
        who = getattr(shard, "site", "") or f"client {i}"
        try:
            site = LocalData(shard, who=f"client {i}", missing=True, empty=some)
        except FlowerPCAError as error:
            read.leave_out(who, error)
            continue
        if site.n:
            sites.append(site)
        else:
            found.append(f"{who} has no rows, so it adds nothing to the result. Leave this site out, or add its rows.")
            read.left_out.append(who)
    hints = _hints_of_parties(sites) if args.partitioned_by == "columns" else list(hints_of(sites))
    missing = _error_about_gaps(args, read.shards)
    read.refused += missing
    if sites and not read.errors:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            hints = _trial_run(args, read, sites, hints, fills=bool(missing))
        hints += common.texts_of_warnings(said)
    found += hints
    wording = common.OptionWording.of_command(args)
    errors = [*dict.fromkeys(wording.in_options(error) for error in (*read.errors, *read.refused))]
    found = [*dict.fromkeys(map(wording.in_options, found))]
    if args.json:
        common.print_json({"sites": len(sites), "left_out": read.left_out, "errors": errors, "hints": found})
    else:
        lines = [*(f"error: {error}" for error in errors), *(f"hint: {hint}" for hint in found)]
        bad = labels.count(len(errors), "error")
        odd = labels.count(len(found), "hint")
        counts = f"{bad} and {odd}"
        lines += _lines_about_memory(args, sites)
        rows = labels.count(sum(site.n for site in sites), "row")
        lines.append(f"{counts} about {rows} at {labels.count(len(sites), 'site')}")
        if read.left_out:
            lines[-1] += f"; left out: {enumeration(read.left_out)}"
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if errors:
        return 2
    return int(bool(found))


def _trial_run(
    args: argparse.Namespace, read: _ReadSites, sites: Sequence[LocalData], hints: list[str], *, fills: bool
) -> list[str]:
    """Try the requested run without writing files. Return these hints together with the hints of the run.

    `fills` says whether the trial run fills missing values although the user has not set --missing. If the run ends in
    an error, add the error to `read.errors`, and return only these hints.
    """
    from flower_pca.hints.repeats import without_repeated_hints
    from flower_pca.simulation import simulate

    columns = sites[0].d + len(args.words)
    try:
        config = _config(args, n_components=max(min(2, columns, sum(site.n for site in sites)), 1), fills=fills)
        common.require_two_clients(config.mask, len(read.shards))
        result = simulate(config, read.shards)
    except FlowerPCAError as error:
        read.errors.append(error.words)
        return hints
    found = [*without_repeated_hints((*result.hints, *hints))]
    if not result.status.ok:
        found.append(f"The run would not reach its goal: {result.status}.")
    return found


def _lines_about_memory(args: argparse.Namespace, sites: Sequence[LocalData]) -> list[str]:
    """Return a line about the memory of a message in a deployment if its blocks are large, and otherwise []."""
    components = COMPONENTS if args.components is None else args.components
    if not sites or not isinstance(components, int):
        return []
    from flower_pca.algorithms.krylov import Krylov

    size = 8 * sites[0].d * (components + Krylov.oversample)
    if size <= large.BYTES:
        return []
    # This import loads Flower, which takes a second, so it is made only if it is needed.
    from flower_pca.strategies.memory import memory_in_words

    return [f"memory in a deployment: {memory_in_words(size, len(sites))}"]


def _config(args: argparse.Namespace, *, n_components: int, fills: bool = True) -> PCAConfig:
    """Return the configuration of the trial run, with `n_components` if the user has not set --components.

    If `fills` is True, the run fills missing values even if the user has not set --missing. A run that fills values
    does not compare the correlations of sites, so `fills` is True only if there are missing values.
    """
    usual = {"missing": args.missing or (_default_missing(args) if fills else "error")}
    components = n_components if args.components is None else args.components
    return runs.config_of(argparse.Namespace(**{**vars(args), **usual, "components": components}))


def _error_about_gaps(args: argparse.Namespace, shards: Sequence[Any]) -> list[str]:
    """Return a list with the error about missing values that the run would raise without --missing, or []."""
    if (
        args.missing is not None or _default_missing(args) == "error"
    ):  # In this case, the trial run reports missing values.
        return []
    for i, shard in enumerate(shards):
        try:
            LocalData(shard, who=f"client {i}", empty=True)
        except FlowerPCAError as error:
            return [error.words]
    return []


def _default_missing(args: argparse.Namespace) -> str:
    """Return a value of --missing that the other options allow, for a trial run if the user has not set --missing."""
    components = 1 if args.components is None else args.components
    for missing in ("mean", "local_mean"):
        with suppress(FlowerPCAError):
            runs.config_of(argparse.Namespace(**{**vars(args), "missing": missing, "components": components}))
            return missing
    return "error"


@dataclass
class _ReadSites:
    """The rows of each site that can be used, and the errors about other sites.

    Attributes
    ----------
    shards : list
        The rows of each site.
    errors : list of str
        Errors in files, whether or not a part of the file can be used.
    refused : list of str
        Errors that the run would raise, but that do not prevent checks of the other columns.
    left_out : list of str
        The names of the sites that are not in `shards`.
    """

    shards: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, site: str, error: FlowerPCAError) -> None:
        """Record a site that cannot be used."""
        self.errors.append(error.words)
        self.left_out.append(site)


def _read_sites(args: argparse.Namespace) -> _ReadSites:
    """Read the rows of each site. If each site has a file, read each file separately, to find the errors of all files.

    An error in a file does not prevent checks of other files.
    """
    if Path(args.data).expanduser().is_dir() and args.partition is None and args.partitioned_by == "rows":
        return _read_files(args)
    if args.partition is None and Path(args.data).expanduser().is_file():
        # A single table is checked as a whole instead of being dealt out to clients.
        args.clients = args.clients or 1
    try:
        return _ReadSites(common.clients_of(args))
    except FlowerPCAError as error:
        try:
            shards, few = _rows_without_words(args)
            return _ReadSites(shards, [] if few else [error.words], few)
        except FlowerPCAError:
            return _ReadSites([], [error.words])


def _rows_without_words(args: argparse.Namespace) -> tuple[list[Any], list[str]]:
    """Return the rows of each site without columns of words, and the errors if all these columns could be coded."""
    from flower_pca.data import partition, sources

    beside: tuple[str, ...] = ()
    if args.partition is not None and (needed := partition.label_column(args.partition)) is not None:
        beside = (needed,)
    columns = split_names(args.columns)
    table = sources.table(args.data, beside=beside, columns=columns, drop=args.drop, gaps=common.gaps_by_column(args))
    if not table.words:
        return [], []
    few = _errors_about_words(args.data, {args.data: table})
    if not table.names:
        return [], []
    left_out = [*args.drop, *map(escape, table.words)]
    return common.clients_of(argparse.Namespace(**{**vars(args), "drop": left_out})), few


def _read_files(args: argparse.Namespace) -> _ReadSites:
    from flower_pca.data import partition, sources
    from flower_pca.data.reading import file_stem, names_matching, no_rows_error, require_matches
    from flower_pca.names.table import with_variants_of_all_sites

    common.require_options_of_rows(args)
    place, files = sources.files_of(args.data, "*", args.without)
    sources.warn_of_subfolders(place, "*")
    partition.require_clients(len(files), args.clients, files=True)
    columns = split_names(args.columns)
    if columns is not None:
        columns = tuple(dict.fromkeys([*columns, *args.covariates]))
    tables, read = {}, _ReadSites()
    for file in files:
        try:
            gaps = common.gaps_by_column(args)
            words = tuple(dict.fromkeys([*args.words, *sources.words_among(str(file), args.covariates, gaps=gaps)]))
            found = sources.table(str(file), columns=columns, words=words, gaps=gaps)
            if not (len(found) or found.columns):
                raise no_rows_error(file)
            tables[file] = found
        except FlowerPCAError as error:
            read.leave_out(file_stem(file), error)
    require_matches(sources.DROPPED, [n for table in tables.values() for n in table.columns], args.drop)
    dropped = {file: names_matching(table.columns, args.drop) for file, table in tables.items()}
    tables = {file: table.without(dropped[file]) for file, table in tables.items()}
    without = {file: table for file, table in tables.items() if table.words}
    read.refused += _errors_about_words(args.data, {str(file): table for file, table in tables.items()})
    if not read.refused:
        read.errors += [unusable_columns_error(file, table.words).words for file, table in without.items()]
    # A column that is not numeric at one site is left out at all sites, so that sites keep the same columns.
    unfit = {name for table in tables.values() for name in table.words}
    tables = {file: table.without(unfit) for file, table in tables.items()}
    read.left_out += [file_stem(file) for file, table in tables.items() if unfit and not table.names]
    tables = {file: table for file, table in tables.items() if table.names or not unfit}
    if not tables:
        return read
    tables = dict(zip(tables, with_variants_of_all_sites([*tables.values()]), strict=True))
    usual = [*tables][sources.position_of_usual_table([*tables.values()])]
    for file, table in tables.items():
        try:
            alike = sources.with_columns_of(tables[usual], table, usual, file)
            read.shards.append(replace(alike, site=file_stem(file)))
        except FlowerPCAError as error:
            read.leave_out(file_stem(file), error)
    return read


def _errors_about_words(data: str, tables: Mapping[str, Table]) -> list[str]:
    """Return the errors about columns of words if all of these columns have so few words that a run could code them.

    Otherwise, return [], and issue the errors about columns with few words as warnings, which become hints.
    """
    from flower_pca.data import sources

    cells: dict[str, list[Any]] = {}
    all_named = True
    for spec, table in tables.items():
        named = table.words.items()
        there = [name for name, bad in named if not has_unusable_name(name, bad)]
        all_named &= len(there) == len(named)
        if not there:
            continue
        for name, found in sources.table(spec, words=there).texts.items():
            cells.setdefault(name, []).extend(found.tolist())
    advice = hints_of_words(cells, data)
    numbers = {name for table in tables.values() for name in table.names or ()}
    if all_named and len(columns_of_few_words(cells)) == len(cells) and not numbers & cells.keys():
        return advice
    for hint in advice:
        warnings.warn(Sentence(hint), stacklevel=2)
    return []


def _hints_of_parties(parties: Sequence[LocalData]) -> list[str]:
    """Return hints about the rows of parties with different columns, worded as in the hints of their run."""
    from flower_pca.hints.look import hints_of_first_lines, hints_of_party

    found = (hint for party in parties for hint in hints_of_party(party))
    return [*hints_of_first_lines(file for party in parties for file in party.table.headerless), *found]
