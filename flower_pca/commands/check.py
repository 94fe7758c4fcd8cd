"""`flower-pca check`: what in the files of sites a PCA would take for measurements by mistake."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flower_pca.base import labels
from flower_pca.base.errors import FlowerPCAError
from flower_pca.base.options import Sentence
from flower_pca.commands import common
from flower_pca.hints.words import hints_of_words
from flower_pca.names.columns import enumeration, is_nameless, names_in, no_numbers
from flower_pca.rows.local import LocalData

if TYPE_CHECKING:
    from flower_pca.names.table import Table

_EPILOG = """\
exit codes: 0 nothing was found; 1 hints; 2 a file cannot be used as it is

examples:
  flower-pca check hospitals
  flower-pca check hospitals --drop patient_id,note --without trier
  flower-pca check patients.csv --partition "by_column('site')"
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "look into the files of sites for gaps in disguise, totals, doubles, dates, other units and the like"
    parser = common.parser(commands, "check", words, run)
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    common.arguments_of_rows(parser)


def run(given: argparse.Namespace) -> int:
    """Print what was found; 1 if there are hints, 2 if there are errors."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        read = _read(given)
    found = common.warned(said)
    sites: list[LocalData] = []
    for i, shard in enumerate(read.shards):
        try:
            sites.append(LocalData(shard, who=f"client {i}", missing=True))
        except FlowerPCAError as error:
            read.leave_out(getattr(shard, "site", "") or f"client {i}", error)
    found += _hints(sites)
    wording = common.Wording(given.data, drops=True)
    errors = [wording.of(error) for error in read.errors]
    found = [wording.of(hint) for hint in dict.fromkeys(found)]
    if given.json:
        common.print_json({"sites": len(sites), "left_out": read.left_out, "errors": errors, "hints": found})
    else:
        lines = [*(f"error: {error}" for error in errors), *(f"hint: {hint}" for hint in found)]
        bad = labels.count(len(errors), "error")
        odd = labels.count(len(found), "hint")
        counts = f"{bad} and {odd}"
        rows = labels.count(sum(site.n for site in sites), "row")
        lines.append(f"{counts} about {rows} at {labels.count(len(sites), 'site')}")
        if read.left_out:
            lines[-1] += f"; not among them: {enumeration(read.left_out)}"
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if errors:
        return 2
    return int(bool(found))


@dataclass
class _Read:
    """What has been read: the rows of each site that can be used, and of the others why not.

    Attributes:
        shards: The rows of each site.
        errors: What is wrong with files, whether or not something of them can be used.
        left_out: The sites that are not among the shards.
    """

    shards: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, site: str, error: FlowerPCAError) -> None:
        """A site that cannot be used."""
        self.errors.append(error.words)
        self.left_out.append(site)


def _read(given: argparse.Namespace) -> _Read:
    """The rows of each site, each by itself where they are files."""
    if Path(given.data).expanduser().is_dir() and given.partition is None:
        return _of_files(given)
    if given.partition is None and Path(given.data).expanduser().is_file():
        # it is looked into as it lies there, dealt out to nobody
        given.clients = given.clients or 1
    try:
        return _Read(common.clients_of(given))
    except FlowerPCAError as error:
        try:
            return _Read(_without_words(given), [error.words])
        except FlowerPCAError:
            return _Read([], [error.words])


def _without_words(given: argparse.Namespace) -> list[Any]:
    """The rows of each site less the columns that hold no numbers, if there are others."""
    from flower_pca.data import partition, sources

    beside: tuple[str, ...] = ()
    if given.partition is not None and (needed := partition.column(given.partition)) is not None:
        beside = (needed,)
    columns = names_in(given.columns)
    table = sources.table(given.data, beside=beside, columns=columns, drop=given.drop)
    if not table.words:
        return []
    _warn_of_words(given.data, {given.data: table})
    if not table.names:
        return []
    left_out = [*given.drop, *map(escape, table.words)]
    return common.clients_of(argparse.Namespace(**{**vars(given), "drop": left_out}))


def _of_files(given: argparse.Namespace) -> _Read:
    from flower_pca.data import sources
    from flower_pca.data.reading import matching, require_matches

    _, files = sources.files_of(given.data, "*", given.without)
    tables, read = {}, _Read()
    for file in files:
        try:
            tables[file] = sources.table(str(file), columns=names_in(given.columns))
        except FlowerPCAError as error:
            read.leave_out(file.stem, error)
    require_matches("The columns to leave out", [n for table in tables.values() for n in table.columns], given.drop)
    dropped = {file: matching(table.columns, given.drop) for file, table in tables.items()}
    tables = {file: table.without(dropped[file]) for file, table in tables.items()}
    without = {file: table for file, table in tables.items() if table.words}
    read.errors += [no_numbers(file, table.words).words for file, table in without.items()]
    _warn_of_words(given.data, {str(file): table for file, table in tables.items()})
    # what is no number at one site is left out of all, so that the rest can be compared
    unfit = {name for table in tables.values() for name in table.words}
    tables = {file: table.without(unfit) for file, table in tables.items()}
    read.left_out += [file.stem for file, table in tables.items() if unfit and not table.names]
    tables = {file: table for file, table in tables.items() if table.names or not unfit}
    if not tables:
        return read
    usual = [*tables][sources.usual_table([*tables.values()])]
    for file, table in tables.items():
        try:
            alike = sources.like(tables[usual], table, usual, file)
            read.shards.append(replace(alike, site=file.stem))
        except FlowerPCAError as error:
            read.leave_out(file.stem, error)
    return read


def _warn_of_words(data: str, tables: Mapping[str, Table]) -> None:
    """Name the columns of words that a run can use."""
    from flower_pca.data import sources

    cells: dict[str, list[Any]] = {}
    for spec, table in tables.items():
        named = table.words.items()
        there = [name for name, bad in named if not is_nameless(name, bad)]
        if not there:
            continue
        for name, found in sources.table(spec, words=there).texts.items():
            cells.setdefault(name, []).extend(found.tolist())
    for hint in hints_of_words(cells, data):
        warnings.warn(Sentence(hint), stacklevel=2)


def _hints(sites: Sequence[LocalData]) -> list[str]:
    from flower_pca import hints

    return list(hints.of(sites))
