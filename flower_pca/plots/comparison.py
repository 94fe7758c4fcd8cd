"""Several algorithms in one picture: their angle to the pooled answer against messages and against bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flower_pca.base import archive
from flower_pca.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Measured(Protocol):
    """One algorithm's course, as `flower_pca.simulation.compare` returns it."""

    @property
    def algorithm(self) -> str:
        """Its spec string."""

    @property
    def messages(self) -> tuple[int, ...]:
        """The messages after which the angle was known."""

    @property
    def traffic(self) -> tuple[int, ...]:
        """The bytes sent and received by then."""

    @property
    def angles(self) -> tuple[float, ...]:
        """The angles, in radians."""


def draw(courses: Sequence[Measured], path: str | os.PathLike[str]) -> Path:
    """Draw them into an SVG or PNG file, as the path's suffix says; whole, or not at all."""
    from matplotlib.ticker import EngFormatter

    kind = style.suffix(path)
    figure = style.figure((9.6, 3.9))
    left, right = figure.subplots(1, 2, sharey=True)
    for index, (course, colour) in enumerate(zip(courses, style.curves(len(courses)), strict=True)):
        angles, dash = np.maximum(np.array(course.angles), style.FLOOR), ("-", "--", ":")[index % 3]
        look = {"color": colour, "ls": dash if len(courses) > len(style.COLOURS) else "-", "label": course.algorithm}
        _line(left, np.array(course.messages), angles, look)
        _line(right, np.array(course.traffic), angles, look)
    every = np.concatenate([np.maximum(np.array(course.angles), style.FLOOR) for course in courses])
    style.decades(left, every)
    for ax in (left, right):
        ax.set_xscale("log")
    left.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
    right.xaxis.set_major_formatter(EngFormatter("B"))
    style.tidy(left, "Error against messages", "message", "angle to the pooled answer (radians)")
    style.tidy(right, "Error against bytes", "sent so far, by all, both ways", "")
    style.key(figure, ncols=5)
    with archive.replacing(path) as file:
        style.write(figure, file, kind)
    return Path(path)


def _line(ax: Axes, place: Any, angles: Any, look: dict[str, Any]) -> None:
    size = 4.0 if len(angles) <= style.DENSE else 0.0
    ax.semilogy(place, angles, lw=1.7, marker="o", ms=size, clip_on=False, **look)
