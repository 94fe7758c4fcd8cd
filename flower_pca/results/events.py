"""Events: the steps of a run as lines of JSON in a file, each as soon as the step is over.

A line is written at once and lies on the disk when the run goes on. What the machine stops in the
midst of is cut off when the run is resumed; a step that is told again has its line already. So a
file has every step once, in whole lines.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from flower_pca.base import files
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.results.record import StepRecord

_BEGIN: Final = b'{"time"'  # of a line
# alike to the last bit in a step that is told again, masks or none
_SAME: Final = ("rows", "missing_share")


class Events:
    """Called with the `StepRecord` of every step: appends it to a file as a line of JSON, with the
    time of day.

    Args:
        path: The file. Pipes and the like will do, if not to go on from.
        resume: Whether the file may have the steps of the run that goes on from a checkpoint; else
            it must be new or empty.

    Raises:
        ConfigError: If the file has lines, or cannot be written.
        DataError: If its lines are none of the run that goes on.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._handle = os.open(self._path, flags | files.not_through_links(self._path), 0o666)
            weakref.finalize(self, os.close, self._handle)
            self._regular = self._path.is_file()
            if self._regular:
                size = self._path.stat().st_size
            else:
                size = 0
        except OSError as error:
            got = f"{self._path} ({error.strerror})"
            raise ConfigError("The file of events", must="writable", got=got, then="Name another.") from error
        if size and not resume:
            remedy = "Name another; with resume=True a run goes on with it."
            raise ConfigError(
                "The file of events", must="new or empty", got=f"{self._path}, which has some", then=remedy
            )
        if size:
            self._newest = self._cut()
        else:
            self._newest = -1
        if size:
            self._told: Iterator[Any] = self._lines()
        else:
            self._told = iter(())

    def __call__(self, record: StepRecord) -> None:
        """After a step."""
        if record.step <= self._newest:
            self._require_told(record)
            return
        if self._newest >= 0 and record.step > self._newest + 1:
            raise self._strange(f"up to step {self._newest}, before step {record.step}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, **record.to_json()}, allow_nan=False).encode() + b"\n"
        while line:
            line = line[os.write(self._handle, line) :]
        if self._regular:
            os.fsync(self._handle)
        self._newest = record.step

    def _cut(self) -> int:
        """The step of the last whole line, behind which the file now ends."""
        whole, step = 0, -1
        with self._path.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    if line[: len(_BEGIN)] != _BEGIN[: len(line)]:
                        raise self._strange("a line that is no step")
                    break
                whole, step = whole + len(line), int(self._read(line)["step"])
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
            raise self._strange("a line that is no step") from error
        return event

    def _require_told(self, record: StepRecord) -> None:
        """Require that the step's line is that of the same step."""
        event: dict[str, Any] = next((event for event in self._told if event["step"] == record.step), {})
        if any(event.get(name) != getattr(record, name) for name in _SAME):
            raise self._strange(f"another step {record.step}")

    def _strange(self, got: str) -> DataError:
        rule = "one of the run that goes on"
        return DataError("The file of events", must=rule, got=f"{got}, in {self._path}", then="Name another.")
