"""Follow an inbox: a folder in which files keep arriving, read as endless streams, one per site.

A step of the run takes the next file of every site that has a new file. All streams of an inbox share one scan of the
folder. So a step begins as soon as any site has rows, and the run does not wait for a silent site.

| file | what happens |
| --------------------------------- | ------------------------------------------------------------------------ |
| Its name has no ending of a table, or begins with a dot. | It is ignored. Write files like this, then rename. |
| It grows, or has just changed.    | The inbox waits until two scans find the same size and time of change.   |
| It cannot be read, or has other columns. | It is reported once and ignored until it changes. Other files are read. |
| It holds -999, or a line of totals. | It is read, with a hint that names the line.                           |
| It disappears before it is read.  | It is forgotten.                                                         |
| It has been read.                 | It is never read again, even if it changes.                              |

`ReadFiles` records which files have been read. The record is part of the state of each client, so a checkpoint of the
run contains it. Files are neither moved nor written, so several runs may follow the same folder.
"""

from __future__ import annotations

import hashlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import DataError, FlowerPCAError, safe_for_log
from flower_pca.base.options import Sentence
from flower_pca.base.shown import brief
from flower_pca.data import sources
from flower_pca.data.reading import no_rows_error
from flower_pca.hints import faults
from flower_pca.names.columns import ColumnNames, Heading
from flower_pca.names.table import Table
from flower_pca.rows.gaps import rows_with_gaps
from flower_pca.rows.stream import UNTOLD, Stream

_DIGEST: Final = 8  # number of bytes of the digest of a file name
_REMEMBERED: Final = 2**15  # Files that no longer exist are forgotten only if the record holds more files than this.

State = tuple[int, int]  # the size of a file in bytes, and its modification time in nanoseconds


@dataclass(frozen=True)
class ReadFiles:
    """A record of the files that have been read: a digest of their columns, and digests of their names in order."""

    columns: bytes = b""
    files: tuple[bytes, ...] = ()

    @classmethod
    def from_cursor(cls, cursor: bytes) -> Self:
        """Return the record that a cursor encodes."""
        places = range(_DIGEST, len(cursor), _DIGEST)
        digests = tuple(cursor[i : i + _DIGEST] for i in places)
        return cls(cursor[:_DIGEST], digests)

    def cursor(self) -> bytes:
        """Encode the record as bytes."""
        return b"".join((self.columns, *self.files))

    def add(self, heading: Heading, names: Sequence[str], existing: Sequence[str]) -> Self:
        """Return the record with these files added. A long record drops its oldest files that no longer exist.

        `existing` lists the files that exist.
        """
        files = (*self.files, *map(_digest, names))
        if len(files) > _REMEMBERED:
            known = set(map(_digest, existing))
            over = len(files) - _REMEMBERED
            before = [one for one in files[:over] if one in known]
            files = (*before, *files[over:])
        return replace(self, columns=_digest_of_columns(heading), files=files)


@dataclass
class GatheredStep:
    """The rows that have been gathered for a step: the tables of each site, and the names of their files."""

    ledger: ReadFiles
    heading: Heading | None = None
    rows: dict[str, list[Table]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    __repr__ = brief

    @property
    def size(self) -> int:
        """The number of rows at all sites together."""
        return sum(len(part) for parts in self.rows.values() for part in parts)

    def add(self, site: str, name: str, rows: Table) -> None:
        """Add the rows of a file, and raise a DataError if its columns differ from the columns of earlier files."""
        heading = Heading.of_names(rows.names, rows.shape[1])
        before = self.heading
        if before is not None and not heading.has_same_columns(before):
            raise heading.mismatch(name, before, "the files before").error(DataError)
        if self.ledger.columns not in (b"", _digest_of_columns(heading)):
            raise DataError(
                f"The {heading.count} columns of {name} differ from the columns of earlier files. Correct the file, "
                "or follow such files in another run.",
                place=name,
            )
        self.heading = heading
        self.rows.setdefault(site, []).append(rows)
        self.names.append(name)

    def rows_of_site(self, site: str) -> Table | None:
        """Return the rows of a site, with columns in the order of its first file. Return None if it has no rows."""
        parts = self.rows.get(site, [])
        if len(parts) < 2:
            return next(iter(parts), None)
        names = parts[0].names
        values = [np.asarray(part.values) for part in parts]
        if names is not None:
            places = [ColumnNames(part.names or names).positions_of(names) for part in parts]
            values = [rows[:, place] for rows, place in zip(values, places, strict=True)]
        return replace(parts[0], values=np.vstack(values))


class Inbox:
    """A folder that is scanned repeatedly, with a subfolder or files for each site.

    For a file in the folder itself, the site is the part of the name before the first underscore. For example,
    north_2026-11-23.csv belongs to the site north. If this part has no letter, the file belongs to no site.

    Parameters
    ----------
    path : str or path
        The folder.
    interval : float, default=60.0
        The time between two scans in seconds while there is nothing to read.
    batch : int, default=1
        The smallest number of rows in a step, over all sites. With fewer rows, the step waits for further files.
    sites : sequence of str, default=()
        Names of the sites. By default, the sites that have a folder or a file when the run begins.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all columns are used.
    drop : sequence of str, default=()
        Names of columns to leave out, or patterns such as "lab_*".
    gaps : default=None
        Values that stand for a missing value: see `delimited.csv`.
    report : callable or None, default=None
        A function that is called with a sentence about a file that is ignored or looks wrong. By default, the sentence
        becomes a warning.
    on_wait : callable or None, default=None
        A function that is called before every wait of `interval` seconds.

    Examples
    --------
    >>> inbox = Inbox("incoming", interval=60)
    >>> track("st_miss", inbox.streams(), n_components=3, checkpoint="run.npz")

    Raises
    ------
    DataError
        If the folder does not exist, or if it is empty and `sites` is not given.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        interval: float = 60.0,
        batch: int = 1,
        sites: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        gaps: Any = None,
        report: Callable[[str], None] | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self._path = Path(path).expanduser().absolute()
        checks.number("interval", interval, least=0.01, remedy="Try 60.")
        checks.integer("The rows of a batch", batch, least=1)
        if not self._path.is_dir():
            raise DataError(
                f"There is no folder {self._path} to follow. Create it first. Files may arrive later.",
                place=str(self._path),
            )
        self._interval, self._batch = interval, batch
        self._columns, self._drop, self._gaps = columns, tuple(drop), gaps
        self._say, self.on_wait = report or _warn, on_wait
        self._looked: dict[str, State] = {}
        self._refused: dict[str, State] = {}
        self._said: set[str] = set()
        self._heading: Heading | None = None
        self._newest: tuple[bytes, GatheredStep, bytes] | None = None
        # Setting this event ends a wait for the folder at once.
        self._closed = threading.Event()
        self._named = bool(sites)
        self.sites = tuple(sites) or self._sites_present()

    def streams(self) -> list[Stream]:
        """Return one stream per site, in the order of `sites`, for a single run in this process."""
        return [_stream_of_site(self, site) for site in self.sites]

    def close(self) -> None:
        """End the streams, because no more files will arrive. A run that is waiting for files ends, too."""
        self._closed.set()

    def batch_after(self, cursor: bytes) -> tuple[GatheredStep, bytes, int]:
        """Wait for the batch after a cursor, and return the batch, the next cursor, and the number of further steps.

        The number of further steps is `UNTOLD` because it is unknown. If the inbox is closed while it waits, the batch
        is empty, the cursor stays the same, and the number is 0.
        """
        if self._newest is None or self._newest[0] != cursor:
            batch = self._gather(ReadFiles.from_cursor(cursor))
            if not batch.names or batch.heading is None:
                return batch, cursor, 0
            after = batch.ledger.add(batch.heading, batch.names, list(self._looked))
            self._newest = (cursor, batch, after.cursor())
        return self._newest[1], self._newest[2], UNTOLD

    def _gather(self, ledger: ReadFiles) -> GatheredStep:
        """Read files, one per site at a time, until they have enough rows for a batch."""
        batch, known = GatheredStep(ledger, self._heading), set(ledger.files)
        while not self._closed.is_set():
            ready = self._ready_files(known)
            for site, file in ready.items():
                if self._add_file(batch, site, file):
                    known.add(_digest(self._name_of(file)))
            if batch.size >= self._batch:
                self._heading = batch.heading
                return batch
            if not ready:
                if self.on_wait is not None:
                    self.on_wait()
                self._closed.wait(self._interval)
        # No client has seen the gathered rows, so a resumed run reads these files again.
        return GatheredStep(ledger)

    def _add_file(self, batch: GatheredStep, site: str, file: Path) -> bool:
        """Add a file to the batch, and return whether this succeeded. If it failed, report the error."""
        name = self._name_of(file)
        try:
            batch.add(site, name, self._table_in(file))
        except (FlowerPCAError, OSError, MemoryError) as error:
            if file.exists():
                self._refused[name] = self._looked[name]
                self._say(f"{name} is ignored until it changes. {error}")
            return False
        return True

    def _table_in(self, file: Path) -> Table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = sources.table(str(file), columns=self._columns, drop=self._drop, gaps=self._gaps).whole()
            if not len(found):
                raise no_rows_error(file)
            # The rows are copied, so later changes of the file have no effect.
            values = rows_with_gaps(found.rows, str(file))
        for hint in faults.find_in_stream([replace(found, values=values, names=found.names or None, parts=())]):
            self._say(f"hint: {hint}")
        return Table(values, found.names or None)

    def _ready_files(self, read_files: set[bytes]) -> dict[str, Path]:
        """Return the next unread file of each site, unless it is still changing."""
        now, looked, ready = time.time(), dict[str, State](), dict[str, Path]()
        for site, file in self._files():
            name = self._name_of(file)
            try:
                found = file.stat()
            except OSError:  # The file has disappeared since the folder was listed.
                continue
            state = (found.st_size, found.st_mtime_ns)
            looked[name] = state
            if _digest(name) in read_files or self._refused.get(name) == state:
                continue
            if site not in self.sites:
                why = "is not among the sites that were named" if self._named else "did not exist when the run began"
                strange = f"belongs to {site}, which {why}, so it is ignored. Start another run to include this site."
                if not site:
                    strange = (
                        "names no site, unlike the files at the start of the run, so it is ignored. Begin its name "
                        "with a site and an underscore."
                    )
                self._say_once(f"{name} {strange}", site)
            # A file that has not changed for at least one interval is read without a second scan.
            elif self._looked.get(name) == state or found.st_mtime + self._interval < now:
                ready.setdefault(site, file)
        self._looked = looked
        refused = self._refused.items()
        self._refused = {name: state for name, state in refused if name in looked}
        return ready

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield each file that may be read with its site, ordered by name."""
        try:
            for place in sorted(self._path.iterdir(), key=sources.natural_sort_key):
                if place.name.startswith("."):
                    continue
                if place.is_dir():
                    inside = sorted(place.iterdir(), key=sources.natural_sort_key)
                    yield from ((place.name, file) for file in inside if _is_table_file(file))
                elif _is_table_file(place):
                    yield _site_of(place), place
        except OSError as error:  # A network share may be unavailable for a while.
            self._say_once(
                f"The folder {self._path} cannot be read: {error.strerror}. The run waits for it.", str(self._path)
            )

    def _sites_present(self) -> tuple[str, ...]:
        places = [p for p in self._path.iterdir() if p.is_dir()]
        folders = [p.name for p in places if not p.name.startswith(".")]
        with_files = {site for site, _ in self._files()}
        sites = tuple(sorted({*folders, *with_files}))
        if not sites:
            raise DataError(
                f"The folder {self._path} is empty. Make a folder for each site in it, or name the sites.",
                place=str(self._path),
            )
        return sites

    def _say_once(self, words: str, about: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._say(words)

    def _name_of(self, file: Path) -> str:
        return safe_for_log(file.relative_to(self._path).as_posix())


@dataclass(frozen=True)
class SiteQueue:
    """The stream of one site, read with a cursor that all sites of the inbox share."""

    inbox: Inbox
    site: str
    repeatable: bool = False

    def after(self, cursor: bytes) -> tuple[Any, bytes, int]:
        """Return the rows of the site after the cursor, the next cursor, and the number of further steps.

        If the site has no new rows in this step, None takes the place of the rows.
        """
        batch, following, left = self.inbox.batch_after(cursor)
        return batch.rows_of_site(self.site), following, left


def _stream_of_site(inbox: Inbox, site: str) -> Stream:
    stream = Stream(SiteQueue(inbox, site))
    stream.site = site
    stream.who = site or stream.who
    return stream


def _site_of(file: Path) -> str:
    before, between, _ = file.stem.partition("_")
    if between and any(map(str.isalpha, before)):
        return before
    return ""


def _is_table_file(file: Path) -> bool:
    return sources.is_table(file) and file.is_file()


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:_DIGEST]


def _digest_of_columns(heading: Heading) -> bytes:
    return _digest(f"{heading.count} {heading.digest}")


def _warn(words: str) -> None:
    warnings.warn(Sentence(words), UserWarning, stacklevel=2)
