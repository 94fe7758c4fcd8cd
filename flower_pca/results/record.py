"""Records of tracking steps for callbacks that follow the run, and a file of these records.

`StepReporter` watches a run. It is called after every message, before the state of the run is saved. Once a step is
over, `StepReporter` passes on a `StepRecord`. Because the state is saved last, a run that is killed and resumed may
report its newest step twice, with the same figures, but it never skips a step.

`Events` writes each step as a line of JSON as soon as the step is over. The line is on the disk before the run
continues. If the machine stops in the middle of a line, the resumed run removes the partial line. A step that is
reported twice gets one line. So the file contains every step exactly once, in complete lines.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
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
from flower_pca.results.steps import Cause, TrackingResult, cause_in_words, cause_of
from flower_pca.tracking.batch import COUNTS
from flower_pca.tracking.panel import SPE
from flower_pca.tracking.state import TrackedStep, TrackState

# A step has these figures both for all rows and for the rows of each client.
_FIGURES: Final = ("rows", "missing_share", "outlier_share", "residual")


@dataclass(frozen=True, kw_only=True)
class ClientStep:
    """The figures of one client in a step, if the server sees the answers of single clients.

    A client that did not answer has no rows and no shares.

    Attributes
    ----------
    rows : int
        Number of rows in the client's batch.
    missing_share : float or None
        The share of entries in these rows that were missing. None without rows.
    outlier_share : float or None
        The share of observed entries that count as outliers. None without observed entries.
    residual : float or None
        The norm of the residual of the fit in the previous basis, at observed entries that are no outliers, relative to
        the norm of all observed entries. None without observed entries.
    site : str
        The name of the client, or "".

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import track
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> records = []
    >>> result = track("st_miss", streams, batch=30, n_components=2, on_step=records.append)
    >>> [client.rows for client in records[0].clients.values()]
    [30, 30, 30]
    """

    rows: int
    missing_share: float | None
    outlier_share: float | None
    residual: float | None
    site: str = ""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """The record of a completed tracking step.

    Attributes
    ----------
    step : int
        The number of the step, as in the result of the run.
    batch : int
        The number of the step's batch in the files that clients keep. Unlike `step`, it also counts the steps before
        any client had rows.
    rows : int
        Number of rows at all clients together.
    statistic : float or None
        The test statistic of a change. None if it is not known.
    level : float or None
        The alarm level of the statistic. None if the step was not tested.
    change : str or None
        Sentences about the changes that were declared, or None.
    cause : Cause or None
        With `monitor`, the cause of the newest declared change, as in `TrackingResult.causes_`, or None.
    subspace_change : float or None
        The sine of the largest angle between the basis of the step and the previous basis. None for the first basis.
    missing_share : float or None
        The share of entries that were missing. None without rows.
    outlier_share : float or None
        The share of observed entries that count as outliers. None without observed entries.
    residual : float or None
        The residual of the step, as in `TrackingResult.residuals_`. None without rows.
    deficient : int
        Number of rows with fewer independent observed entries than components.
    clients : mapping
        The figures of each client, by key. Empty with masks, because the server then sees only sums.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import track
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> records = []
    >>> result = track("st_miss", streams, batch=30, n_components=2, on_step=records.append)
    >>> [(record.step, record.rows) for record in records]
    [(0, 90), (1, 90), (2, 90)]
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
        """Return the result of all steps that have been completed at the time of the call."""
        sites = {key: own.site for key, own in self.clients.items() if own.site}
        return replace(cast(TrackingResult, self._run.result_so_far()), site_names=sites)

    def to_json(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        clients = {str(key): dict(vars(own)) for key, own in self.clients.items()}
        plain = {**vars(self), "clients": clients}
        del plain["_run"]
        return plain


class StepReporter(Watcher):
    """A watcher that passes on the record of each step once the step is over.

    Parameters
    ----------
    on_step : callable
        A function that is called with each record.
    known_as : callable or None, default=None
        A function that takes the number of a client in the run, and returns the client's permanent key and its name. By
        default, the key is the number, and the name is "".
    """

    def __init__(
        self, on_step: Callable[[StepRecord], None], known_as: Callable[[int], tuple[int, str]] | None = None
    ) -> None:
        self._on_step, self._known_as = on_step, known_as or (lambda client: (client, ""))
        self._newest = -1
        self._basis: Array | None = None

    def before_saving(self, run: Driven) -> None:
        """Pass on the record of the newest completed step, unless it was passed on before."""
        state: TrackState = run.position.state
        if state.over <= self._newest:
            return
        self._newest, newest = state.over, state.record[-1]
        before = state.record[-2].basis if len(state.record) > 1 else self._basis
        self._basis = newest.basis
        self._on_step(_record_of(run, state, newest, before, self._known_as))


def _record_of(
    run: Driven,
    state: TrackState,
    step: TrackedStep,
    previous: Array | None,
    known_as: Callable[[int], tuple[int, str]],
) -> StepRecord:
    d = len(step.basis)
    known = {i: known_as(i) for i in state.each}
    counts = {i: dict(zip(COUNTS, each, strict=True)) for i, each in state.each.items()}
    clients = {key: ClientStep(**_shares_of_counts(counts[i], d), site=site) for i, (key, site) in known.items()}
    changes, cause = _changes_declared_in(state, step), None
    names = labels.column_names(run.position.model.feature_names, d)
    sites = {client: site or f"client {key}" for client, (key, site) in known.items()}
    causes = [_cause_of_step(state, one) for _, one in changes]
    if causes and causes[-1] is not None:
        places = [known_as(site)[0] for site in causes[-1]["sites"]]
        cause = {**causes[-1], "sites": places}
    said = [_change_in_words(*one, of, names, sites) for one, of in zip(changes, causes, strict=True)]
    if came_back := [season.period for season in state.panel.seasons if season.period and state.over in season.alarms]:
        said.append(f"These alarms recur every {came_back[0]} steps, so each later step is compared with its phase.")
    statistic, level = (value if np.isfinite(value) else None for value in (step.statistic, step.level))
    return StepRecord(
        step=state.over,
        batch=state.step - 1,
        statistic=statistic,
        level=level,
        change=" ".join(said) or None,
        cause=cause,
        subspace_change=None if previous is None else linalg.sin_theta(previous, step.basis),
        deficient=step.deficient,
        clients=dict(sorted(clients.items())),
        **_shares_of_counts({**vars(step), "misfit": step.residual**2, "energy": 1.0}, d),
        _run=run,
    )


def _cause_of_step(state: TrackState, step: TrackedStep) -> Cause | None:
    if state.panel.columns is None:
        return None
    return cause_of(step.kind, step.named, state.panel.columns.clients)


def _shares_of_counts(counts: Mapping[str, float], d: int) -> dict[str, Any]:
    """Return the number of rows, the shares of missing and outlying entries, and the relative residual."""
    rows, missing = int(counts["rows"]), counts["missing"]
    seen, energy, residual = rows * d - missing, counts["energy"], None
    # If a client sends impossible numbers, its residual is unknown.
    if seen and energy and 0.0 <= counts["misfit"] / energy < np.inf:
        residual = float(np.sqrt(counts["misfit"] / energy))
    shares = (missing / (rows * d) if rows else None, counts["outliers"] / seen if seen else None, residual)
    return dict(zip(_FIGURES, (rows, *shares), strict=True))


def _changes_declared_in(state: TrackState, step: TrackedStep) -> list[tuple[int, TrackedStep]]:
    """Return the changes that were declared in a step, oldest first.

    A change can be at the step itself. When the first alarm level becomes known, changes at earlier steps are declared,
    too.
    """
    seen, shown = state.panel.hindsight, list[tuple[int, TrackedStep]]()
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


def _change_in_words(
    number: int, step: TrackedStep, cause: Cause | None, names: Sequence[str], sites: Mapping[int, str]
) -> str:
    """Describe a change and its cause in a sentence."""
    said = f"The subspace has changed at step {number}"
    if cause is None or step.kind & SPE:
        said += f": the statistic is {step.statistic:.3g}, and an alarm begins at {step.level:.3g}"
    if cause is None:
        return f"{said}."
    return f"{said}; {cause_in_words(cause, names, sites)}"


_LINE_START: Final = b'{"time"'  # the first bytes of each line
# These figures are exactly equal if a step is reported twice, with or without masks.
_REPEATED: Final = ("rows", "missing_share")


class Events:
    """A file of JSON lines. A call with a `StepRecord` appends a line with the record and the current time.

    Parameters
    ----------
    path : str or path
        The file. It may be a pipe, unless a run is resumed.
    resume : bool, default=False
        Whether the file may contain steps of a run that is resumed from a checkpoint. Otherwise the file must be new or
        empty.

    Raises
    ------
    ConfigError
        If the file has lines although `resume` is False, or cannot be written.
    DataError
        If the lines of the file do not belong to the run that is resumed.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import track
    >>> from pathlib import Path
    >>> from flower_pca.results.record import Events
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = track("st_miss", streams, batch=30, n_components=2, on_step=Events("steps.jsonl"))
    >>> len(Path("steps.jsonl").read_text(encoding="utf-8").splitlines())  # one line for each step
    3
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._handle = os.open(self._path, flags | files.no_follow_flag(self._path), 0o666)
            # The caller does not know when the last step is over, so the file is closed when this object is deleted.
            weakref.finalize(self, os.close, self._handle)
            self._regular = self._path.is_file()
            size = os.fstat(self._handle).st_size
        except OSError as error:
            raise ConfigError(
                f"The event file {self._path} cannot be written: {error.strerror}. Name another file."
            ) from error
        if size and not resume:
            raise ConfigError(
                f"The event file {self._path} already has events. Choose another file, or use "
                f"{option('resume', True)} to continue it."
            )
        # The last step in the file, and how many bytes of the file have been compared with steps.
        self._newest, self._compared = -1, 0
        if size:
            self._newest = self._cut_partial_line()

    def __call__(self, record: StepRecord) -> None:
        """Append the record of a completed step."""
        if record.step <= self._newest:  # The step already has a line, which must have the same figures.
            event = self._next_event(record.step)
            if any(event.get(name) != getattr(record, name) for name in _REPEATED):
                raise self._not_this_run(f"has a different step {record.step}")
            return
        if self._newest >= 0 and record.step > self._newest + 1:
            raise self._not_this_run(f"ends with step {self._newest}, before step {record.step}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, **record.to_json()}, allow_nan=False).encode() + b"\n"
        with files.naming_file_in_errors(self._path):
            # A write to a pipe may take only part of the line.
            while line:
                line = line[os.write(self._handle, line) :]
            # A pipe cannot be synchronized: fsync would fail.
            if self._regular:
                os.fsync(self._handle)
        self._newest = record.step

    def _cut_partial_line(self) -> int:
        """Truncate the file after its last complete line, and return the step of this line."""
        whole, step = 0, -1
        with self._path.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    # A partial line that does not begin like an event is not removed, because the file may belong to
                    # another program.
                    if line[: len(_LINE_START)] != _LINE_START[: len(line)]:
                        raise self._not_this_run("has a line that is not a step")
                    break
                whole += len(line)
                step = int(self._read(line)["step"])
            file.truncate(whole)
        return step

    def _next_event(self, step: int) -> dict[str, Any]:
        """Return the event of this step, which comes after all events returned before, or {} if there is none."""
        with self._path.open("rb") as file:
            file.seek(self._compared)
            for line in file:
                self._compared += len(line)
                event: dict[str, Any] = self._read(line)
                if event["step"] == step:
                    return event
        return {}

    def _read(self, line: bytes) -> Any:
        try:
            event = json.loads(line)
            int(event["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_this_run("has a line that is not a step") from error
        return event

    def _not_this_run(self, what: str) -> DataError:
        return DataError(f"{self._path} is not the event file of this run: it {what}. Name another file.")
