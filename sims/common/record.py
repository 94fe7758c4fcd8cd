"""What a run of an experiment leaves behind: a small JSON with its table and curves, versions, seeds and date."""

from __future__ import annotations

import datetime
import json
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
import scipy

import flower_pca
from sims.common import report, spread

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
FEW: Final = 5  # seeds from which a swing can be told
_POINTS: Final = 80  # of a curve, at most


@dataclass(frozen=True)
class Record:
    """A run, as the file of an item keeps it.

    Attributes
    ----------
    item : str
        room/experiment.
    size : str
        "paper" or "small".
    seeds : list of int
        Those that have run.
    algorithms : list of str
        Those that have run, as they are made; none in a record of before they were noted.
    date : str
        The day of the run.
    minutes : float
        Of one core, those of runs that were kept from a program that was stopped included; of what another item of
        the same run had left for it, none.
    versions : dict
        Of flower_pca, numpy, scipy and Python.
    title, rows, note
        The table, its header first.
    drawing : dict or None
        The title of the curves, their axes, and by panel and label every so many points of each.
    draws : list of dict or None
        For each row, by column, the numbers of the seeds behind a mean or a median; None in a record of before they
        were kept, or without such numbers.
    swings : list of str or None
        For each row, the factor within which the numbers of single seeds lie; "-" if none of them does, or if each
        number states its own spread; empty if rows are of single seeds; None if it has not been measured.
    """

    item: str
    size: str
    seeds: list[int]
    algorithms: list[str]
    date: str
    minutes: float
    versions: dict[str, str]
    title: str
    rows: list[list[str]]
    note: str
    drawing: dict[str, Any] | None
    swings: list[str] | None = None
    draws: list[dict[str, list[float]]] | None = None

    @property
    def table(self) -> list[dict[str, str]]:
        """The rows by the names of their columns."""
        header, *rows = self.rows
        return [dict(zip(header, row, strict=True)) for row in rows]

    def picture(self) -> report.Drawing | None:
        """The curves, to be drawn."""
        if self.drawing is None:
            return None
        panels = {
            panel: {label: _spread(curve) for label, curve in curves.items()}
            for panel, curves in self.drawing["panels"].items()
        }
        return report.Drawing(self.drawing["title"], panels, self.drawing["error"], self.drawing["along"])


def path(item: str) -> Path:
    """Where the record of an item lies."""
    return RESULTS / f"{item}.json"


def read(item: str) -> Record | None:
    """The record of an item, if there is one."""
    file = path(item)
    return Record(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def made(item: str, experiment: Any, opts: report.Options) -> Record:
    """Run an experiment and record it."""
    begun, kept = process_time(), set(opts.points)
    report.RAN.clear()
    found = experiment(opts)
    seconds = process_time() - begun + sum(opts.points[name].seconds for name in opts.used & kept)
    drawing = found.drawing and {
        "title": found.drawing.title,
        "error": found.drawing.error,
        "along": found.drawing.along,
        "panels": {p: {label: _thin(c) for label, c in lines.items()} for p, lines in found.drawing.panels.items()},
    }
    rows, draws = _printed(found.rows), _draws(found.rows)
    return Record(
        item=item,
        size="paper" if opts.paper else "small",
        seeds=sorted(opts.drawn),
        algorithms=sorted(report.RAN),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        minutes=round(seconds / 60.0, 1),
        versions=versions(),
        title=found.title,
        rows=rows,
        note=found.note,
        drawing=drawing,
        swings=spread.swings_of_draws(rows, draws) if found.stated else None,
        draws=draws if any(draws) else None,
    )


def swung(record: Record, experiment: Any, opts: report.Options) -> Record:
    """The record with how far single seeds lie from it: its own, or five if it has fewer."""
    if record.swings is not None:
        return record
    if not record.seeds:
        return replace(record, swings=[report.NONE] * (len(record.rows) - 1))
    enough = len(record.seeds) >= FEW
    seeds, whole = (record.seeds, opts.first) if enough else (range(opts.first, opts.first + FEW), None)
    found = [experiment(replace(opts, first=seed, seeds=1, drawn=set(), whole=whole)).rows for seed in seeds]
    return replace(record, swings=spread.swings(record.rows, [_printed(rows) for rows in found]))


def of_spans(record: Record) -> bool:
    """May further seeds be joined to it: is no number a mean, or one whose spread is told by the swing of its row?"""
    return record.swings is not None and set(record.swings) <= {report.NONE} and not record.draws


def joined(record: Record, further: Record) -> Record:
    """One record of the seeds of both, whose numbers are the least..the most of them; the curves are the first's.

    Raises ValueError, if a number is stated in another way.
    """
    if set(record.seeds) & set(further.seeds) or record.size != further.size:
        raise ValueError("the same seeds, or other sizes")
    if further.swings is None or further.draws:
        raise ValueError("means, which are no spans")
    rows = spread.joined(record.rows, further.rows)
    seeds = sorted({*record.seeds, *further.seeds})
    return replace(
        further,
        seeds=seeds,
        note=re.sub(rf"\b{len(further.seeds)} (seeds|starts)\b", rf"{len(seeds)} \1", further.note),
        algorithms=sorted({*record.algorithms, *further.algorithms}),
        minutes=round(record.minutes + further.minutes, 1),
        rows=rows,
        drawing=record.drawing,
        swings=[report.NONE] * (len(rows) - 1),
    )


def write(record: Record) -> None:
    """Keep it."""
    file = path(record.item)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"  {json.dumps(name)}: {_json(name, value)}" for name, value in vars(record).items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """Of what the figures hang on."""
    return {
        "flower_pca": flower_pca.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def _printed(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in rows]


def _draws(rows: Sequence[Sequence[object]]) -> list[dict[str, list[float]]]:
    """The numbers of the seeds behind each row's means and medians, in three digits."""
    header = list(map(str, rows[0]))
    return [
        {
            name: [float(f"{x:.3g}") for x in cell.draws]
            for name, cell in zip(header, row, strict=True)
            if isinstance(cell, report.Drawn)
        }
        for row in rows[1:]
    ]


def _json(name: str, value: Any) -> str:
    """One row a line, so that a change can be read."""
    if name not in ("rows", "draws") or not value:
        return json.dumps(value)
    return "[\n" + ",\n".join(f"    {json.dumps(row)}" for row in value) + "\n  ]"


def _thin(curve: Any) -> dict[str, Any]:
    every = -(-len(curve) // _POINTS)
    return {"every": every, "errors": [float(f"{e:.3g}") for e in np.asarray(curve, dtype=float)[::every]]}


def _spread(curve: dict[str, Any]) -> Any:
    """As many points as there were, those between the kept ones on straight lines of the logarithm."""
    errors, every = np.log(np.maximum(curve["errors"], 1e-16)), curve["every"]
    at = np.arange(len(errors)) * every
    return np.exp(np.interp(np.arange(at[-1] + 1), at, errors)) if len(errors) else np.array([])
