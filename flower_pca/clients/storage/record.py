"""The record of runs, with one line for each run. It is meant for the person responsible for the data.

Each month has its own CSV file, which people and spreadsheets can read, so that old months can be removed as
files. The record contains no numbers that were computed from rows, only how many bytes were sent.

Flower tells a node the number of a run, but not who has started it. Only the SuperLink can look this person up
by the number. The column `asked` therefore contains what the server says about the run: its run-config.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from flwr.app import Context

from flower_pca.base import files
from flower_pca.base.errors import safe_for_log
from flower_pca.base.shown import shown_as_text
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.storage import folders
from flower_pca.core.stage import Arrays, nbytes
from flower_pca.layers import NOISE
from flower_pca.masking import messages

FIELDS: Final = (
    "began",
    "last_message",
    "flower_run",
    "run",
    "algorithm",
    "asked",
    "protection",
    "columns",
    "stages",
    "messages",
    "refused",
    "bytes_sent",
    "ended",
)
_FILE: Final = "flower_pca-record-{}-{}.csv"  # The file name contains the data's name and the month.
_MOST: Final = 5000  # the maximum number of runs in a month that get their own line
_REST: Final = "more runs of this month"


class RunRecord:
    """The record of runs of one node.

    Parameters
    ----------
    rules : Rules
        The node's rules, which determine whether there is a record, where it is stored, and for how many days.
    context : Context or None, default=None
        The node's Flower context. Without a context, nothing is recorded.
    """

    def __init__(self, rules: Rules, *, context: Context | None = None) -> None:
        self._folder = folder_of(rules) if context is not None else None
        self._days, self._name, self._context = rules.record_days, rules.data_name, context

    @property
    def _data(self) -> str:
        return folders.data_name_of(self._name, folders.partition_of(self._context))

    def record_answer(self, config: Mapping[str, Any], d: int | None, stage: str, answer: Arrays) -> None:
        """Record a message that the node is about to answer."""
        if self._folder is not None:
            self._update_line_of_run(config, d, stage, size=nbytes(answer), ended=f"answered {stage}")

    def record_refusal(self, config: Mapping[str, Any], words: str) -> None:
        """Record a refused message. If the record cannot be written, log this and raise no error."""
        if self._folder is None:
            return
        try:
            self._update_line_of_run(
                config, None, str(config.get("stage", "")), size=0, ended=f"refused: {words}", refusals=1
            )
        except Exception as error:
            logging.getLogger("flwr").error(
                "The record of runs in %s cannot be written (%s). Set run-record to a folder that this user may write "
                "to.",
                self._folder,
                safe_for_log(str(error)),
            )

    def _update_line_of_run(
        self, config: Mapping[str, Any], d: int | None, stage: str, *, size: int, ended: str, refusals: int = 0
    ) -> None:
        assert self._folder is not None
        assert self._context is not None
        now = datetime.now(UTC)
        path = self._folder / _FILE.format(self._data, f"{now:%Y-%m}")
        key = (str(self._context.run_id), safe_for_log(str(config.get("run", ""))))
        with folders.lock_file(path):
            lines = _read(path)
            fresh = not lines
            places = {(line["flower_run"], line["run"].removeprefix("'")): i for i, line in enumerate(lines)}
            if key not in places and len(lines) >= _MOST:
                key = ("", _REST)
            if key in places:
                line = lines[places[key]]
            else:
                line = dict.fromkeys(FIELDS, "") | {"began": _time(now), "flower_run": key[0], "run": key[1]}
                line |= {
                    "asked": _run_config_as_text(self._context.run_config),
                    "messages": "0",
                    "refused": "0",
                    "bytes_sent": "0",
                }
                lines.append(line)
            line["last_message"], line["ended"] = _time(now), safe_for_log(ended)
            for name, more in (("messages", 1), ("refused", refusals), ("bytes_sent", size)):
                line[name] = str(_count_in_cell(line[name]) + more)
            line["algorithm"] = _with_name(line["algorithm"], str(config.get("algorithm", "")))
            line["stages"] = _with_name(line["stages"], stage)
            if not refusals:
                line["protection"] = _with_name(line["protection"], _protection(config))
                line["columns"] = line["columns"] if d is None else str(d)
            _write(path, lines)
            if fresh:
                self._remove_old_months(now)

    def _remove_old_months(self, now: datetime) -> None:
        """Remove the files of months that are older than `record_days`."""
        assert self._folder is not None
        oldest = f"{now - timedelta(days=self._days):%Y-%m}"
        for path in files_of_months(self._folder, self._data):
            if path.stem[-7:] < oldest:
                folders.remove_file(path)


def folder_of(rules: Rules) -> Path | None:
    """Return the folder of the record for a node with these rules, or None if the node keeps no record."""
    given = rules.run_record
    if given is False:
        return None
    if given is None or given is True:
        # A node that stores nothing else keeps no record, unless the operator asks for one.
        keeps = given or rules.memory_dir is not None or rules.keeps_ledger or rules.keeps_rows
        return folders.ledger_file(rules.memory_dir, "").parent if keeps else None
    return Path(given).expanduser()


def files_of_months(folder: Path, data: str) -> Iterator[Path]:
    """Return an iterator over the files of a record, the oldest first."""
    return iter(sorted(folder.glob(file_pattern(data))))


def file_pattern(data: str) -> str:
    """Return the glob pattern that the names of a record's files match."""
    return _FILE.format(data, "????-??")


def _protection(config: Mapping[str, Any]) -> str:
    names = str(config.get("names", "")).split(",")
    found = ["masks"] if config.get("stage") == messages.STAGE else []
    if any(name.startswith(f"{NOISE}.") for name in names):
        found.append("noise")
    return " and ".join(found) or "none"


def _run_config_as_text(run_config: Mapping[str, Any]) -> str:
    """Return the run-config as text, for the column `asked`."""
    return safe_for_log(json.dumps(dict(run_config), default=str)) if run_config else ""


def _with_name(names: str, name: str) -> str:
    """Return a comma-separated list with one more name, unless the list already contains it."""
    there = names.removeprefix("'").split(", ") if names else []
    cleaned = safe_for_log(name)
    return ", ".join([*there, cleaned] if cleaned and cleaned not in there else there)


def _time(now: datetime) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S} UTC"


def _count_in_cell(cell: str) -> int:
    """Return the count in a cell, or 0 if the cell is not a whole number. Somebody may have edited the file."""
    return int(cell) if cell.isdigit() else 0


def _read(path: Path) -> list[dict[str, str]]:
    """Return the lines in the file of a month, or an empty list if there is no file yet."""
    try:
        with open(path, encoding="utf-8", newline="", opener=files.opener) as file:
            return [dict(zip(FIELDS, cells, strict=False)) for cells in list(csv.reader(file))[1:] if cells]
    except FileNotFoundError:
        return []


def _write(path: Path, lines: list[dict[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(FIELDS)
    writer.writerows([shown_as_text(line.get(name, "")) for name in FIELDS] for line in lines)
    with files.replacing_file(path, private=True) as file:
        file.write(text.getvalue().encode())
