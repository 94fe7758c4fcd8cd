"""StepRecord: what is known of a step as soon as it is over, for whoever watches a run.

`Following` watches a run, hears of every message before the run's state is kept, and hands on a
record once a step is over. So a run that is killed and resumed may tell its newest step again, with
the same figures, but leaves none out.

Events: the steps of a run as lines of JSON in a file, each as soon as the step is over.

A line is written at once and lies on the disk when the run goes on. What the machine stops in the
midst of is cut off when the run is resumed; a step that is told again has its line already. So a
file has every step once, in whole lines.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from flower_pca.base import files, labels, linalg
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief
from flower_pca.core.drive import Driven, Watcher
from flower_pca.results.steps import Cause, TrackingResult, cause_of, in_words
from flower_pca.tracking.batch import COUNTS
from flower_pca.tracking.panel import SPE
from flower_pca.tracking.state import Step, TrackState

# The figures of all rows, and of a client's own.
_FIGURES: Final = ("rows", "missing_share", "outlier_share", "residual")


@dataclass(frozen=True, kw_only=True)
class ClientStep:
    """What a client has had in a step, where its answers are seen. A client in an outage has no
    rows, and no shares.

    Attributes
    ----------
    rows : int
        Rows of its batch.
    missing_share : float or None
        Entries that were missing, of all entries of these rows; None without rows.
    outlier_share : float or None
        Entries that were taken for outliers, of those that were observed; None without any.
    residual : float or None
        The norm of what the basis before has left of the observed entries that are no outliers, relative to that of all
        observed ones; None without any.
    site : str
        What the client is called, if it says so; else "".
    """

    rows: int
    missing_share: float | None
    outlier_share: float | None
    residual: float | None
    site: str = ""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A step that is over.

    Attributes
    ----------
    step : int
        Its number, as in the result of the run.
    batch : int
        The number of its batch at the clients, as in the files that they keep: it counts the steps before the first
        rows of any client too.
    rows : int
        Rows at all clients together.
    statistic : float or None
        The statistic of a change; None where it is not known.
    level : float or None
        What it was held against; None where no change was looked for.
    change : str or None
        In words, the change that was declared; None where none was.
    cause : Cause or None
        With `monitor`, what the newest of these changes is of, as `TrackingResult.causes_`; None where there is none.
    subspace_change : float or None
        The sine of the largest angle between its basis and the one before; None where there is none.
    missing_share : float or None
        Entries that were missing, of all entries of these rows; None without rows.
    outlier_share : float or None
        Entries that were taken for outliers, of those that were observed; None without any.
    residual : float or None
        As `TrackingResult.residuals_`; None without rows.
    deficient : int
        Rows with fewer independent observed entries than components.
    clients : mapping
        The share of each client, by key; under masks none, as nothing but sums is seen.
    """

    step: int
    batch: int
    rows: int
    statistic: float | None
    level: float | None
    change: str | None
    cause: Cause | None
    subspace_change: float | None
    missing_share: float | None
    outlier_share: float | None
    residual: float | None
    deficient: int
    clients: Mapping[int, ClientStep]
    _run: Driven = field(repr=False, compare=False)

    __repr__ = brief

    def result_so_far(self) -> TrackingResult:
        """The result of the steps that are over when it is asked for."""
        sites = {key: own.site for key, own in self.clients.items() if own.site}
        return replace(cast(TrackingResult, self._run.result_so_far()), site_names=sites)

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values."""
        clients = {str(key): dict(vars(own)) for key, own in self.clients.items()}
        plain = {**vars(self), "clients": clients}
        del plain["_run"]
        return plain


class Following(Watcher):
    """Watches a run of steps, and hands on the record of a step once it is over.

    Parameters
    ----------
    on_step : callable
        Called with the record.
    known_as : callable or None, default=None
        From a client of the run to its lasting key and its name; as it is, without a name, if left out.
    """

    def __init__(
        self, on_step: Callable[[StepRecord], None], known_as: Callable[[int], tuple[int, str]] | None = None
    ) -> None:
        self._on_step, self._known_as = on_step, known_as or (lambda client: (client, ""))
        self._newest = -1
        self._basis: Array | None = None

    def before_keeping(self, run: Driven) -> None:
        """Hand on the newest step, if it is over."""
        state: TrackState = run.standing.state
        if state.over <= self._newest:
            return
        self._newest, newest = state.over, state.record[-1]
        before = state.record[-2].basis if len(state.record) > 1 else self._basis
        self._basis = newest.basis
        self._on_step(_record(run, state, newest, before, self._known_as))


def _record(
    run: Driven, state: TrackState, step: Step, before: Array | None, known_as: Callable[[int], tuple[int, str]]
) -> StepRecord:
    d = len(step.basis)
    known = {i: known_as(i) for i in state.each}
    counts = {i: dict(zip(COUNTS, each, strict=True)) for i, each in state.each.items()}
    clients = {key: ClientStep(**_shares(counts[i], d), site=site) for i, (key, site) in known.items()}
    changes, cause = _changes(state, step), None
    names = labels.column_names(run.standing.model.feature_names, d)
    sites = {client: site or f"client {key}" for client, (key, site) in known.items()}
    causes = [_cause(state, one) for _, one in changes]
    if causes and causes[-1] is not None:
        places = [known_as(site)[0] for site in causes[-1]["sites"]]
        cause = {**causes[-1], "sites": places}
    said = [_words(*one, of, names, sites) for one, of in zip(changes, causes, strict=True)]
    if came_back := [season.period for season in state.seasons if season.period and state.over in season.alarms]:
        said.append(f"These alarms come every {came_back[0]} steps, so the next ones are held against them.")
    statistic, level = (value if np.isfinite(value) else None for value in (step.statistic, step.level))
    return StepRecord(
        step=state.over,
        batch=state.step - 1,
        statistic=statistic,
        level=level,
        change=" ".join(said) or None,
        cause=cause,
        subspace_change=None if before is None else linalg.sin_theta(before, step.basis),
        deficient=step.deficient,
        clients=dict(sorted(clients.items())),
        **_shares({**vars(step), "misfit": step.residual**2, "energy": 1.0}, d),
        _run=run,
    )


def _cause(state: TrackState, step: Step) -> Cause | None:
    if state.panel is None:
        return None
    return cause_of(step.kind, step.named, state.panel.clients)


def _shares(counts: Mapping[str, float], d: int) -> dict[str, Any]:
    """Rows, and shares of their entries."""
    rows, missing = int(counts["rows"]), counts["missing"]
    seen, energy, residual = rows * d - missing, counts["energy"], None
    # A client that reports nonsense has no such figure.
    if seen and energy and 0.0 <= counts["misfit"] / energy < np.inf:
        residual = float(np.sqrt(counts["misfit"] / energy))
    shares = (missing / (rows * d) if rows else None, counts["outliers"] / seen if seen else None, residual)
    return dict(zip(_FIGURES, (rows, *shares), strict=True))


def _changes(state: TrackState, step: Step) -> list[tuple[int, Step]]:
    """The changes that a step has shown, oldest first: at this one or, with a first level, at steps before it."""
    seen, shown = state.hindsight, list[tuple[int, Step]]()
    if seen.number == state.over:
        kinds = dict(zip(seen.changes, seen.kinds, strict=True))
        shown = [
            (number, replace(state.record[number - state.gone], level=seen.level, kind=kinds[number]))
            for number in seen.new
            if number >= state.gone
        ]
    if step.changed:
        shown.append((state.over, step))
    return shown


def _words(number: int, step: Step, cause: Cause | None, names: Sequence[str], sites: Mapping[int, str]) -> str:
    """A change in a sentence, and what it is of."""
    said = f"The subspace has changed at step {number}"
    if cause is None or step.kind & SPE:
        said += f": the statistic is {step.statistic:.3g}, and an alarm begins at {step.level:.3g}"
    if cause is None:
        return f"{said}."
    return f"{said}; {in_words(cause, names, sites)}"


_BEGIN: Final = b'{"time"'  # How each line begins.
# alike to the last bit in a step that is told again, masks or none
_SAME: Final = ("rows", "missing_share")


class Events:
    """Called with the `StepRecord` of every step: appends it to a file as a line of JSON, with the
    time of day.

    Parameters
    ----------
    path : str or path
        The file. Pipes and the like will do, if not to go on from.
    resume : bool, default=False
        Whether the file may have the steps of the run that goes on from a checkpoint; else it must be new or empty.

    Raises
    ------
    ConfigError
        If the file has lines, or cannot be written.
    DataError
        If its lines are none of the run that goes on.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._handle = os.open(self._path, flags | files.not_through_links(self._path), 0o666)
            # Whoever calls it for each step closes nothing at the end.
            weakref.finalize(self, os.close, self._handle)
            self._regular = self._path.is_file()
            size = os.fstat(self._handle).st_size
        except OSError as error:
            raise ConfigError(
                f"The file of events {self._path} cannot be written: {error.strerror}. Name another file."
            ) from error
        if size and not resume:
            raise ConfigError(
                f"The file of events {self._path} has some already. Name another; with {option('resume', True)} a run "
                "goes on with it."
            )
        self._newest = -1
        self._events: Iterator[Any] = iter(())
        if size:
            self._newest, self._events = self._cut(), self._lines()

    def __call__(self, record: StepRecord) -> None:
        """After a step."""
        if record.step <= self._newest:  # the step's line must be that of the same step
            same = (event for event in self._events if event["step"] == record.step)
            event: dict[str, Any] = next(same, {})
            if any(event.get(name) != getattr(record, name) for name in _SAME):
                raise self._strange(f"has another step {record.step}")
            return
        if self._newest >= 0 and record.step > self._newest + 1:
            raise self._strange(f"ends with step {self._newest}, before step {record.step}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, **record.to_json()}, allow_nan=False).encode() + b"\n"
        with files.naming(self._path):
            # A pipe may take a part of a line at a time.
            while line:
                line = line[os.write(self._handle, line) :]
            # A pipe is on no disk, and to force it there is an error.
            if self._regular:
                os.fsync(self._handle)
        self._newest = record.step

    def _cut(self) -> int:
        """The step of the last whole line, behind which the file now ends."""
        whole, step = 0, -1
        with self._path.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    # What no run has begun to write is not ours to cut: the file may be somebody's.
                    if line[: len(_BEGIN)] != _BEGIN[: len(line)]:
                        raise self._strange("has a line that is no step")
                    break
                whole += len(line)
                step = int(self._read(line)["step"])
            file.truncate(whole)
        return step

    def _lines(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            yield from map(self._read, file)

    def _read(self, line: bytes) -> Any:
        try:
            event = json.loads(line)
            int(event["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._strange("has a line that is no step") from error
        return event

    def _strange(self, what: str) -> DataError:
        return DataError(
            f"{self._path} is not the file of events of the run that goes on: it {what}. Name another file."
        )
