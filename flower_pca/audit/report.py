"""What an audit has found: figures by message and client, as a table, a CSV file and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flower_pca.audit.attack import Convergence, Leak
from flower_pca.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

import csv
import os
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from flower_pca.base import archive
from flower_pca.results.pca import PCAResult


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit.

    Attributes:
        algorithm: The algorithm's spec string.
        d: Columns.
        clients: Number of clients in the run.
        n_components: k.
        masked: Whether the server saw only sums.
        leaks: By message and client.
        convergence: By message.
        result: What the run itself has returned.
    """

    algorithm: str
    d: int
    clients: int
    n_components: int
    masked: bool
    leaks: tuple[Leak, ...]
    convergence: tuple[Convergence, ...]
    result: PCAResult

    def worst(self) -> tuple[Leak, ...]:
        """Of every message, the client that is known best."""
        best: dict[int, Leak] = {}
        for leak in self.leaks:
            if leak.message not in best or leak.error < best[leak.message].error:
                best[leak.message] = leak
        return tuple(best.values())

    def messages_to(self, error: float) -> int | None:
        """The first message looked at after which some client's C_i is known up to this error; None if never."""
        return next((leak.message for leak in self.leaks if leak.error <= error), None)

    def converged_at(self, kkt: float) -> int | None:
        """The first message after which the components violate the optimality conditions by at most `kkt`."""
        return next((point.message for point in self.convergence if point.kkt <= kkt), None)

    def table(self) -> str:
        """The client known best after each message, and the convergence of the components, as plain text."""
        course = {point.message: point for point in self.convergence}
        heads = ("message", "stage", "client", "numbers", "least norm", "symmetric", "exact only", "angle", "pca sine")
        lines = ["  ".join(f"{head:>10}" for head in heads)]
        for leak in self.worst():
            known = f"{leak.numbers / leak.unknowns:.1%}"
            errors = (leak.minimum_norm, leak.symmetric, leak.exact, leak.angle)
            if leak.message in course:
                sine = f"{course[leak.message].sine:.1e}"
            else:
                sine = "-"
            cells = (leak.message, leak.stage[:10], leak.client, known, *(f"{e:.1e}" for e in errors), sine)
            lines.append("  ".join(f"{cell:>10}" for cell in cells))
        if self.masked:
            who = "The server saw sums only."
        else:
            who = "The server saw every answer."
        return "\n".join([*lines, f"{who} {self._verdict()}"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all leaks to a CSV file; returns the path."""
        with archive.replacing(path) as file, open(file.fileno(), "w", newline="", closefd=False) as text:
            writer = csv.writer(text)
            writer.writerow([f.name for f in fields(Leak)])
            writer.writerows(astuple(leak) for leak in self.leaks)
        return Path(path)

    def picture(self, path: str | os.PathLike[str]) -> Path:
        """Draw errors of the reconstruction and convergence of the components into an SVG or PNG; returns the path."""
        kind = style.suffix(path)
        drawn = style.figure(SIZE)
        course(drawn.subplots(), self.worst(), self.convergence, algorithm=self.algorithm, masked=self.masked)
        style.key(drawn)
        with archive.replacing(path) as file:
            style.write(drawn, file, kind)
        return Path(path)

    def _verdict(self) -> str:
        last = self.worst()[-1]
        known = self.messages_to(1e-5)
        if known is None:
            return f"In the end C_i of client {last.client} is known up to a relative error of {last.error:.1e}."
        if known == 1:
            after = "the first message"
        else:
            after = f"{known} messages"
        return f"A client's C_i is known up to 1e-5 after {after}."


SIZE: Final = (6.4, 4.6)  # inches: a key of five curves has room below

_CURVES: Final = (
    ("minimum_norm", "solution of least norm"),
    ("symmetric", "symmetric"),
    ("exact", "exact answers only"),
)


def course(
    ax: Axes, worst: Sequence[Leak], convergence: Sequence[Convergence], *, algorithm: str, masked: bool
) -> None:
    """Errors of the client known best after each message, with the convergence of the components beside them."""
    at = [leak.message for leak in worst]
    for (name, label), colour in zip(_CURVES, style.COLOURS, strict=False):
        errors = [max(getattr(leak, name), style.FLOOR) for leak in worst]
        style.log_curve(ax, at, errors, colour=colour, size=2.5, label=f"client, {label}", width=1.4)
    points = [point.message for point in convergence]
    kkt = [max(point.kkt, style.FLOOR) for point in convergence]
    ax.semilogy(points, kkt, "--", lw=1.4, color=style.INK, label="PCA, violation of optimality")
    ax.axhline(worst[-1].guess, color=style.FAINT, lw=1.0, ls=":", label="client, guessed from the sum")
    if masked:
        summed = ", answers summed"
    else:
        summed = ""
    style.tidy(ax, f"What {algorithm} tells about a client{summed}", "message", "relative error")
    ax.xaxis.set_major_locator(style.integers())
