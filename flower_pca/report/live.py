"""A page that shows the state of a tracking run while it continues.

The file is replaced every few seconds, and the browser reloads the page at the same interval, so that a page on a disk
needs no server. The page shows the newest step first, and then the parts of a report. Drawing takes at most a fifth of
the run's time. The last version of the page says how the run has ended, and is not reloaded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flower_pca.base import checks, files
from flower_pca.base.errors import ConfigError, FlowerPCAError
from flower_pca.base.version import __version__
from flower_pca.report import html, page, pages
from flower_pca.results.facts import Fact
from flower_pca.results.record import ClientStep, Events, StepRecord

_SHARE: Final = 4.0  # minimum pause after writing the page, as a multiple of the time that writing took
_ENDINGS: Final = (".html", ".htm")
_ALARMS: Final = 20  # maximum number of alarms on the page, newest first
_CLIENTS: Final = ("client", "rows", "missing", "outliers", "residual")


class Live:
    """A live page of a tracking run. Open it in a `with` statement, and pass it to the run as `on_step`.

    Parameters
    ----------
    path : str or path
        The file, which ends in .html. It is written as soon as the `with` block begins.
    title : str
        The heading of the page, such as the name of the data.
    every : float, default=5.0
        Minimum number of seconds between two versions of the page. The browser reloads the page after this time,
        rounded to whole seconds.

    Raises
    ------
    ConfigError
        If the file cannot be written, or its name does not end in .html.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import track
    >>> from flower_pca.report.live import Live
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> with Live("live.html", title="Three sensors") as live:
    ...     result = track("st_miss", streams, batch=30, n_components=2, on_step=live)
    """

    def __init__(self, path: str | os.PathLike[str], *, title: str, every: float = 5.0) -> None:
        self._path, self._title = Path(path).expanduser().absolute(), title
        checks.number("every", every, least=0.1, remedy="Try 5.")
        if self._path.suffix.lower() not in _ENDINGS:
            raise ConfigError(
                f"The live page is a web page, so its name must end in .html, but {self._path} does not. Name it "
                "live.html."
            )
        checks.parent_exists("the live page", self._path)
        self._every, self._due = every, 0.0
        self._reloads = max(round(every), 1)
        self._newest: StepRecord | None = None
        self._alarms: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._write_page("The run has started. No step is over yet.", self._reloads)
        except OSError as error:
            raise ConfigError(
                f"The live page {self._path} cannot be written: {error.strerror}. Name another file."
            ) from error
        return self

    def __call__(self, record: StepRecord) -> None:
        """Update the page after a step."""
        self._newest = record
        if record.change is not None:
            self._alarms = [record.change, *self._alarms][:_ALARMS]
        began = time.monotonic()
        if began >= self._due:
            self._write_page(f"The run continues. Step {record.step} is over.", self._reloads)
            done = time.monotonic()
            self._due = done + max(self._every, _SHARE * (done - began))

    def rest(self) -> None:
        """Update the page before a wait for rows, because the wait may be long."""
        newest = self._newest
        before = "No step is over yet." if newest is None else f"Step {newest.step} is over."
        self._write_page(f"The run waits for rows. {before}", self._reloads)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # If the run ends in an error, for example because the disk is full, an error here would hide the first error.
        unwritable = () if error is None else (OSError,)
        with suppress(*unwritable):
            self._write_page(_sentence_on_ending(self._newest, error), None, well=error is None)

    def _write_page(self, words: str, reloads: int | None, *, well: bool = True) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        again = "" if reloads is None else f" It is loaded again every {reloads} s."
        parts = [
            html.paragraph(words, "ended ok" if well else "ended"),
            html.paragraph(f"This page was written at {now}.{again}", "how"),
            *([] if self._newest is None else _parts_of_page(self._newest, self._alarms)),
            f"<footer>flower_pca {__version__}</footer>\n",
        ]
        with files.replacing_file(self._path, private=True) as file:
            file.write(html.page(self._title, parts, reloads=reloads))


class StepWatchers:
    """A callback for `on_step` that writes the file of events and the live page of a run, if they were requested.

    Parameters
    ----------
    events : Events or None
        The file of events, or None.
    page : Live or None
        The live page, or None.
    """

    def __init__(self, events: Events | None, page: Live | None) -> None:
        self._events, self._page = events, page

    def __call__(self, record: StepRecord) -> None:
        """Add the step to the file of events, and update the page."""
        if self._events is not None:
            self._events(record)
        if self._page is not None:
            self._page(record)

    def rest(self) -> None:
        """Update the page before a wait for rows."""
        if self._page is not None:
            self._page.rest()


@contextmanager
def watching(*, events: Path | None, live: Path | None, title: str, resume: bool) -> Iterator[StepWatchers]:
    """Yield a callback for `on_step` that writes the requested files. At the end, the page says how the run has ended.

    Parameters
    ----------
    events : path or None
        The file to which events are appended, or None.
    live : path or None
        The file of the live page, or None.
    title : str
        The heading of the page.
    resume : bool
        Whether the run may continue from a checkpoint, so that its file of events may already exist.
    """
    log = None if events is None else Events(events, resume=resume)
    with nullcontext() if live is None else Live(live, title=title) as page:
        yield StepWatchers(log, page)


def _sentence_on_ending(newest: StepRecord | None, error: BaseException | None) -> str:
    if error is None:
        if newest is None:
            return "The run has ended."
        return f"The run has ended: {newest.result_so_far().status.words}."
    last = "before a step was over" if newest is None else f"after step {newest.step}"
    if isinstance(error, FlowerPCAError):
        return f"The run has ended {last}. {error}"
    if isinstance(error, KeyboardInterrupt):
        return f"The run has ended {last}: it was interrupted."
    return f"The run has ended {last}: {type(error).__name__}: {error}."


def _parts_of_page(record: StepRecord, alarms: Sequence[str]) -> list[str]:
    """Return the parts of the page about the newest step and its clients, and a report on all kept steps."""
    result = record.result_so_far()
    summary = result.summary()
    newest = [("rows of this step", f"{record.rows:,}"), *zip(_CLIENTS[2:4], _shares_as_texts(record), strict=True)]
    shown = {"statistic": ".3g", "level": ".3g", "subspace_change": ".1e", "residual": ".1e"}
    newest += [(name, html.number_text(getattr(record, name), form, "none")) for name, form in shown.items()]
    return [
        html.facts_table(Fact("", words, None, text) for words, text in newest),
        html.section("Alarms", *(html.paragraph(words, "ended") for words in alarms)),
        html.section("Pictures", page.pictures_as_html(result, None)),
        _client_table(record),
        html.section("All steps", html.facts_table(summary.facts), html.paragraph(" ".join(summary.findings), "said")),
        *pages.tables_of_steps(result),
    ]


def _client_table(record: StepRecord) -> str:
    if not record.clients:
        return html.paragraph("The figures of single clients are not known, because only sums are seen.", "said")
    rows = [
        [
            own.site or f"client {key}",
            f"{own.rows:,}",
            *_shares_as_texts(own),
            html.number_text(own.residual, ".1e", "none"),
        ]
        # Clients without rows come first, because a long table shows its first and last rows.
        for key, own in sorted(record.clients.items(), key=lambda client: (client[1].rows > 0, client[0]))
    ]
    return html.table(f"Clients in step {record.step}", _CLIENTS, rows, words=[0])


def _shares_as_texts(record: StepRecord | ClientStep) -> list[str]:
    """Return the shares of missing entries and of outliers, as texts."""
    return [html.number_text(share, ".2%", "none") for share in (record.missing_share, record.outlier_share)]
