"""The outcome of an audit: figures for each message and client, as a table, a CSV file and a picture."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flower_pca.audit.view import Convergence, Leak
from flower_pca.base import files
from flower_pca.plots import style
from flower_pca.results.pca import PCAResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit.

    Attributes
    ----------
    algorithm : str
        The algorithm's spec string.
    d : int
        The number of columns.
    clients : int
        The number of clients in the run.
    n_components : int
        The number of components, k.
    masked : bool
        Whether the server saw only sums.
    leaks : tuple of Leak
        What the server can know about each client after each message that the audit has examined.
    convergence : tuple of Convergence
        How far the components have converged after each message.
    result : PCAResult
        The result of the run itself.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.audit import audit
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> found = audit("krylov", sites, n_components=2)
    >>> found.d, found.clients, found.masked
    (6, 3, False)
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
        """Return for each message the leak about the client that the server knows best."""
        of_message = groupby(self.leaks, key=lambda leak: leak.message)
        return tuple(min(leaks, key=lambda leak: leak.error) for _, leaks in of_message)

    def messages_to(self, error: float) -> int | None:
        """Return the first examined message after which C_i of any client is known up to this error, or None."""
        return next((leak.message for leak in self.leaks if leak.error <= error), None)

    def converged_at(self, kkt: float) -> int | None:
        """Return the first message after which the components violate optimality by at most `kkt`, or None.

        See `Convergence` for the measure.
        """
        return next((point.message for point in self.convergence if point.kkt <= kkt), None)

    def table(self) -> str:
        """Return a table of the best-known client after each message, and of the convergence of the components."""
        sines = {point.message: f"{point.sine:.1e}" for point in self.convergence}
        heads = ("message", "stage", "client", "numbers", "least norm", "symmetric", "exact only", "angle", "pca sine")
        lines = ["  ".join(f"{head:>10}" for head in heads)]
        for leak in self.worst():
            known = f"{leak.numbers / leak.unknowns:.1%}"
            errors = (f"{e:.1e}" for e in (leak.minimum_norm, leak.symmetric, leak.exact, leak.angle))
            sine = sines.get(leak.message, "-")
            cells = (leak.message, leak.stage[:10], leak.client, known, *errors, sine)
            lines.append("  ".join(f"{cell:>10}" for cell in cells))
        who = "The server saw sums only." if self.masked else "The server saw every answer."
        return "\n".join([*lines, f"{who} {self._verdict()}"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all leaks to a CSV file, and return the path."""
        with files.replacing_file(path) as file, open(file.fileno(), "w", newline="", closefd=False) as text:
            writer = csv.writer(text)
            writer.writerow([f.name for f in fields(Leak)])
            writer.writerows(astuple(leak) for leak in self.leaks)
        return Path(path)

    def picture(self, path: str | os.PathLike[str]) -> Path:
        """Plot the reconstruction errors and the convergence of the components to an SVG or PNG. Return the path."""
        kind = style.suffix(path)
        drawn = style.new_figure(SIZE)
        plot_convergence(drawn.subplots(), self.worst(), self.convergence, algorithm=self.algorithm, masked=self.masked)
        style.legend_below(drawn)
        with files.replacing_file(path) as file:
            style.write(drawn, file, kind)
        return Path(path)

    def _verdict(self) -> str:
        last = self.worst()[-1]
        known = self.messages_to(1e-5)
        if known is None:
            return f"In the end, C_i of client {last.client} is known up to a relative error of {last.error:.1e}."
        after = "the first message" if known == 1 else f"{known} messages"
        return f"A client's C_i is known up to 1e-5 after {after}."


SIZE: Final = (6.4, 4.6)  # the size of the picture in inches, with space for a legend of five curves below


_CURVES: Final = (
    ("minimum_norm", "solution of least norm"),
    ("symmetric", "symmetric"),
    ("exact", "exact answers only"),
)


def plot_convergence(
    ax: Axes, worst: Sequence[Leak], convergence: Sequence[Convergence], *, algorithm: str, masked: bool
) -> None:
    """Plot the errors of the best-known client after each message, and the convergence of the components."""
    at = [leak.message for leak in worst]
    for (name, label), color in zip(_CURVES, style.COLORS, strict=False):
        errors = [max(getattr(leak, name), style.FLOOR) for leak in worst]
        style.log_curve(ax, at, errors, color=color, size=2.5, label=f"client, {label}", width=1.4)
    points = [point.message for point in convergence]
    kkt = [max(point.kkt, style.FLOOR) for point in convergence]
    ax.semilogy(points, kkt, "--", lw=1.4, color=style.INK, label="PCA, violation of optimality")
    ax.axhline(worst[-1].guess, color=style.FAINT, lw=1.0, ls=":", label="client, guessed from the sum")
    title = f"What {algorithm} reveals about a client"
    if masked:
        title += ", answers summed"
    style.label_axes(ax, title, "message", "relative error")
    ax.xaxis.set_major_locator(style.integer_locator())
