"""How every picture looks. matplotlib is imported only when one is drawn; pyplot and its global state never."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import numpy as np

from flower_pca.base import extras
from flower_pca.base.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

INK: Final = "#2b303a"
FAINT: Final = "#8a919e"
GRID: Final = "#e6e8ec"
BAR: Final = "#7fa6d6"
# Okabe and Ito's colours, which colour-blind eyes tell apart too, without their yellow, which is faint on white.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b7280")
SINGLE: Final = (4.8, 3.4)  # inches of one picture: its letters are still read at the width of a phone
DENSE: Final = 30  # marks in a row from which they are drawn small
FLOOR: Final = 1e-17  # what an error of zero is drawn at

_FORMATS: Final = ("svg", "png")
_TICKED: Final = 12  # bars up to which every one has its number


def suffix(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in _FORMATS:
        rule = "one that ends in .svg or .png"
        raise ConfigError("The name of a picture", must=rule, got=repr(str(path)), then="Write scree.svg.")
    return ending


def figure(size: tuple[float, float] = SINGLE) -> Figure:
    """An empty figure of this many inches."""
    with extras.needing("matplotlib", "to draw"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    empty = Figure(figsize=size, dpi=200, layout="constrained", facecolor="white")
    empty.get_layout_engine().set(w_pad=0.1, h_pad=0.1, wspace=0.04)  # type: ignore[union-attr, call-arg]
    FigureCanvasAgg(empty)
    return empty


def write(drawn: Figure, file: IO[bytes], kind: str) -> None:
    """Write the figure as "svg" or "png", with the same bytes every time."""
    import matplotlib

    settings: dict[Any, Any] = {"svg.hashsalt": "flower_pca", "svg.fonttype": "path"}
    with matplotlib.rc_context(settings):
        if (layout := drawn.get_layout_engine()) is not None:
            layout.execute(drawn)
            drawn.set_layout_engine(None)  # else savefig draws everything once more, for the layout's sake
        drawn.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)


def tidy(ax: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title, labels and a quiet grid."""
    ax.set_title(title, loc="left", fontsize=11, color=INK, pad=9)
    ax.set_xlabel(xlabel, fontsize=9.5, color=INK)
    ax.set_ylabel(ylabel, fontsize=9.5, color=INK)
    ax.tick_params(which="both", labelsize=9, color=GRID, labelcolor=INK)
    ax.yaxis.get_offset_text().set(fontsize=9, color=INK)
    ax.grid(visible=True, axis="y", color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.minorticks_off()


def legend(ax: Axes) -> None:
    """Beside the title, where it hides nothing."""
    ax.legend(
        loc="lower right",
        bbox_to_anchor=(1.015, 0.985),
        ncols=len(COLOURS),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.1,
        handletextpad=0.4,
        columnspacing=0.9,
        borderaxespad=0.2,
    )


def decades(ax: Axes, values: np.ndarray[Any, Any]) -> None:
    """Whole powers of ten around the values."""
    low, high = np.floor(np.log10(values.min()) - 0.1), np.ceil(np.log10(values.max()) + 0.1)
    ax.set_ylim(10.0**low, 10.0**high)


def numbered(ax: Axes, count: int, *, first: int = 1, axis: Literal["x", "y"] = "x") -> None:
    """Room for `count` marks along an axis; each with its number while they are few."""
    low, high = first - 0.65, first + count - 0.35
    limits, along = (ax.set_xlim, ax.xaxis) if axis == "x" else (ax.set_ylim, ax.yaxis)
    limits(low, high)
    if count <= _TICKED:
        along.set_ticks(range(first, first + count))
    else:
        along.set_major_locator(integers())


def integers() -> Locator:
    """Ticks at round whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])


def percent(ax: Axes) -> None:
    """Shares along y, as percentages."""
    ax.yaxis.set_major_formatter(lambda share, _: f"{100.0 * share:g}%")


def colorbar(ax: Axes, mappable: Any, label: str) -> Any:
    """A quiet colour bar beside the axes."""
    bar = ax.figure.colorbar(mappable, ax=ax, fraction=0.04, pad=0.015)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5, color=FAINT, labelcolor=INK)
    bar.set_label(label, fontsize=9.5, color=INK)
    return bar
