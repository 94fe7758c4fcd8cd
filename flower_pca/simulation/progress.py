"""What a run in progress shows: lines at INFO in the log "flower_pca", and a bar where there is a notebook.

The bar is HTML that IPython displays and updates; a notebook has IPython, and nothing else is needed. It shows how far
the error has come, on its way from 1 down to the tolerance on a logarithmic scale; of what does not iterate, the stage.
"""

from __future__ import annotations

import importlib
import logging
import math
import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any, Final

from flower_pca.core.algorithm import Iterative
from flower_pca.core.drive import Driven, Watcher
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

_LOG: Final = logging.getLogger("flower_pca")
_EVERY: Final = 0.2  # seconds between two pictures of the bar
_KERNEL: Final = "ZMQInteractiveShell"  # IPython's shell behind a notebook


class Watch(Watcher):
    """Watches a run, and is called with its result: the log and the bar, then the caller's own function.

    Args:
        on_round: The caller's own; None for none.
    """

    def __init__(self, on_round: Callable[[Driven], None] | None) -> None:
        self._on_round = on_round
        self._bar = Bar() if in_notebook() else None

    def begin(self, what: Callable[[], str]) -> None:
        """Before the first message: what is run, which is put into words where the log is read."""
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("Starting %s", what())

    def after_message(self, run: Driven) -> None:
        """Log the message, move the bar."""
        _LOG.info("%s", run.history[-1])
        if self._bar is not None:
            self._bar.show(share(run) or 0.0, str(run.history[-1]))
        if self._on_round is not None:
            self._on_round(run)

    def end(self, result: PCAResult | TrackingResult) -> None:
        """At the end: its status, what the run has chosen, and hints if there are any."""
        for words in (result.status, *((*result.choices, *result.hints) if isinstance(result, PCAResult) else ())):
            _LOG.info("%s", words)
        if self._bar is not None:
            self._bar.show(1.0, str(result.status))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == _KERNEL


def share(run: Driven) -> float | None:
    """How far the algorithm's error has come to its tolerance, in [0, 1]; None where that says nothing."""
    stage, metrics = run.algorithm, run.history[-1].metrics
    if run.is_finished or run.standing.stage is not stage or not isinstance(stage, Iterative) or "error" not in metrics:
        return None
    if not 0.0 < stage.tol < 1.0:
        return None
    error = max(metrics["error"], stage.tol)
    return min(max(math.log(min(error, 1.0)) / math.log(stage.tol), 0.0), 1.0)


class Bar:
    """One line of a notebook, which moves with a run."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown, self._reached = 0.0, 0.0

    def show(self, reached: float, words: str) -> None:
        """Show how far a run has come, and in words, though not more than a few times a second."""
        now = time.monotonic()
        if self._handle is not None and now - self._shown < _EVERY and reached < 1.0:
            return
        self._shown, self._reached = now, max(self._reached, reached)
        page = _Html(_line(self._reached, words))
        if self._handle is None:
            display: Any = importlib.import_module("IPython.display")
            self._handle = display.display(page, display_id=True)
        else:
            self._handle.update(page)


class _Html:
    """Text that a notebook shows as HTML."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


def _line(reached: float, words: str) -> str:
    bar = f'<progress value="{reached:.3f}" max="1" style="width: 12em"></progress>'
    return f'<div style="font-family: monospace">{bar} {escape(words)}</div>'
