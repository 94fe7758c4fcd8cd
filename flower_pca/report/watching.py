"""What is done with every step of a run that is watched from a shell: a line of events, and a live page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from flower_pca.report.live import Live
from flower_pca.results.events import Events
from flower_pca.results.record import StepRecord

OnStep = Callable[[StepRecord], None]


@contextmanager
def watching(*, events: Path | None, live: Path | None, title: str, resume: bool) -> Iterator[OnStep]:
    """A function for `on_step` that writes what is asked for; at the end the page says that the run has ended.

    Args:
        events: Where the lines of events go; None for none.
        live: Where the page is drawn; None for none.
        title: What it is headed by.
        resume: Whether the run may go on from a checkpoint, and the events with it.
    """
    watchers: list[OnStep] = [] if events is None else [Events(events, resume=resume)]

    def after(record: StepRecord) -> None:
        for watcher in watchers:
            watcher(record)

    with nullcontext() if live is None else Live(live, title=title) as page:
        watchers += [] if page is None else [page]
        yield after
