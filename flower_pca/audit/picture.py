"""What an audit has found: how well the server knows a client's second moments, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from flower_pca.audit.leak import Convergence, Leak
from flower_pca.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        look: dict[str, Any] = {"color": colour, "label": f"client, {label}", "clip_on": False}
        ax.semilogy(at, errors, "o-", ms=2.5, lw=1.4, **look)
    points = [point.message for point in convergence]
    kkt = [max(point.kkt, style.FLOOR) for point in convergence]
    ax.semilogy(points, kkt, "--", lw=1.4, color=style.INK, label="PCA, violation of optimality")
    ax.axhline(worst[-1].guess, color=style.FAINT, lw=1.0, ls=":", label="client, guessed from the sum")
    summed = ", answers summed" if masked else ""
    style.tidy(ax, f"What {algorithm} tells about a client{summed}", "message", "relative error")
    ax.xaxis.set_major_locator(style.integers())
