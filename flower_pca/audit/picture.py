"""What an audit has found: how well the server knows a client's second moments, message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flower_pca.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flower_pca.audit.report import Audit

SIZE: Final = (6.4, 4.0)  # inches: a legend of five lines beside the curves

_CURVES: Final = (
    ("minimum_norm", "solution of least norm"),
    ("symmetric", "symmetric"),
    ("exact", "exact answers only"),
)


def course(ax: Axes, found: Audit) -> None:
    """Errors of the client known best after each message, with the convergence of the components beside them."""
    worst = found.worst()
    at = [leak.message for leak in worst]
    for (name, label), colour in zip(_CURVES, style.COLOURS, strict=False):
        errors = [max(getattr(leak, name), style.FLOOR) for leak in worst]
        ax.semilogy(at, errors, "o-", ms=2.5, lw=1.4, color=colour, label=f"client, {label}")
    points = [point.message for point in found.convergence]
    kkt = [max(point.kkt, style.FLOOR) for point in found.convergence]
    ax.semilogy(points, kkt, "--", lw=1.4, color=style.INK, label="PCA, violation of optimality")
    ax.axhline(worst[-1].guess, color=style.FAINT, lw=1.0, ls=":", label="client, guessed from the sum")
    masked = ", answers summed" if found.masked else ""
    style.tidy(ax, f"What {found.algorithm} tells about a client{masked}", "message", "relative error")
    ax.legend(frameon=False, fontsize=8, labelcolor=style.INK)
