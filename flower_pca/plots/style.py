"""The style of all pictures. matplotlib is imported when a picture is drawn. pyplot and its global state are not used.

A picture is drawn once, for a light page. An SVG picture has a style sheet for dark pages, which replaces INK, GRID and
WHITE by their dark counterparts. The colors of data do not change, because they are visible on light and dark pages.
Color maps are transparent at zero, so that the page shows through.

`draw_heat_map` draws a heat map with a number for each column of the data and each component or client.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import numpy as np

from flower_pca.base import errors, files, labels
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown

if TYPE_CHECKING:
    # These names are imported with "as" because other modules use style.Axes and style.Figure.
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure as Figure
    from matplotlib.ticker import Locator

INK: Final = "#2b303a"
FAINT: Final = "#8a919e"
GRID: Final = "#e6e8ec"
WHITE: Final = "#ffffff"
BAR: Final = "#7fa6d6"
# On a dark page, each key of this mapping is replaced by its value.
DARK: Final = {WHITE: "#171b22", INK: "#e4e7ec", GRID: "#343b47"}
# These are the colors of Okabe and Ito, which color-blind people can distinguish. Yellow is left out, as it is faint.
COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b7280")
PLUS, MINUS = COLORS[0], COLORS[1]
# This is the size of a single picture in inches. At this size, its text is still readable on a phone.
SINGLE: Final = (4.8, 3.4)
DENSE: Final = 30  # If there are more marks than this, they are drawn small.
FLOOR: Final = 1e-17  # the height at which an error of zero is drawn

_FORMATS: Final = ("svg", "png")
_MOST_LABELS: Final = 12  # maximum number of marks on an axis that are all labeled
_NAME: Final = 18  # maximum number of characters of a name in a picture
# These are the font size of a legend, the length of its marks, and the space between mark and text.
_SMALL, _HANDLE, _PAD = 9, 1.1, 0.4
_DARK_STYLES: Final = "\n".join(
    ["@media screen and (prefers-color-scheme: dark) {"]
    + [f'[style*="fill: {light}"] {{ fill: {dark} !important }}' for light, dark in DARK.items()]
    + [f'[style*="stroke: {light}"] {{ stroke: {dark} !important }}' for light, dark in DARK.items()]
    + ["}"]
)


def suffix(path: str | os.PathLike[str]) -> str:
    """Return the format of a picture from the suffix of its file name, "svg" or "png"."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in _FORMATS:
        raise errors.ConfigError(
            f"A picture is saved as .svg or .png, not as {shown(str(path))}. Choose a name that ends in .svg."
        )
    return ending


def new_figure(size: tuple[float, float] = SINGLE) -> Figure:
    """Return an empty figure of this size in inches."""
    with errors.requiring("matplotlib", "to draw"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    empty = Figure(figsize=size, dpi=200, layout="constrained", facecolor=WHITE)
    empty.get_layout_engine().set(w_pad=0.1, h_pad=0.1, wspace=0.04)  # type: ignore[union-attr, call-arg]
    FigureCanvasAgg(empty)
    return empty


def write(fig: Figure, file: IO[bytes], kind: str) -> None:
    """Write the figure to a file as "svg" or "png". The same figure always gives the same bytes."""
    import matplotlib

    settings: dict[Any, Any] = {"svg.hashsalt": "flower_pca", "svg.fonttype": "path"}
    with matplotlib.rc_context(settings):
        if (layout := fig.get_layout_engine()) is not None:
            layout.execute(fig)
            # The layout is finished. With the engine, savefig would draw everything again to compute the layout.
            fig.set_layout_engine(None)
        if kind != "svg":
            fig.savefig(file, format=kind)
            return
        stream = io.BytesIO()
        fig.savefig(stream, format=kind, metadata={"Date": None})
        file.write(stream.getvalue().replace(b"</style>", f"\n{_DARK_STYLES}</style>".encode(), 1))


def save(fig: Figure, path: str | os.PathLike[str]) -> Path:
    """Write the figure into an SVG or PNG file, and return its path. If writing fails, an old file is not changed."""
    with files.replacing_file(path) as file:
        write(fig, file, suffix(path))
    return Path(path)


def label_axes(ax: Axes, title: str, xlabel: str, ylabel: str, *, grid: Literal["x", "y", "both", ""] = "y") -> None:
    """Set the title and the labels of axes, and draw a light grid."""
    ax.set_title(title, loc="left", fontsize=11, color=INK, pad=9)
    ax.set_xlabel(xlabel, fontsize=9.5, color=INK)
    ax.set_ylabel(ylabel, fontsize=9.5, color=INK)
    ax.tick_params(which="both", labelsize=9, color=GRID, labelcolor=INK)
    ax.yaxis.get_offset_text().set(fontsize=9, color=INK)
    ax.set_facecolor("none")
    if grid:
        ax.grid(visible=True, axis=grid, color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.minorticks_off()


def log_curve(
    ax: Axes, x: Any, y: Any, *, color: Any, size: float, label: str = "", width: float = 1.6, dash: str = "-"
) -> None:
    """Draw a curve with a mark at each point, on a logarithmic axis."""
    ax.semilogy(x, y, color=color, lw=width, ls=dash, marker="o", ms=size, clip_on=False, label=label or None)


def draw_events(ax: Axes, places: Any, word: str | None) -> None:
    """Draw a dashed vertical line at each place, with the label `word` on the first line."""
    for place in places:
        ax.axvline(place, color=FAINT, lw=1.0, ls=(0, (4, 3)), label=word)
        word = None


def legend(ax: Axes) -> None:
    """Draw a short legend next to the title, where it covers no data."""
    ax.legend(
        ncols=len(COLORS),
        columnspacing=0.9,
        frameon=False,
        fontsize=_SMALL,
        labelcolor=INK,
        handlelength=_HANDLE,
        handletextpad=_PAD,
        loc="lower right",
        bbox_to_anchor=(1.015, 1.0),
        borderaxespad=0.2,
    )


def legend_below(fig: Figure, *, ncols: int = 2) -> None:
    """Draw a legend for curves with long names below the picture, where it covers no data."""
    every = {word: mark for ax in fig.axes for mark, word in zip(*ax.get_legend_handles_labels(), strict=True)}
    fig.legend(
        list(every.values()),
        list(every),
        loc="outside lower center",
        ncols=min(ncols, len(every)),
        frameon=False,
        fontsize=_SMALL,
        labelcolor=INK,
        handlelength=_HANDLE,
        handletextpad=_PAD,
    )


def curve_colors(count: int) -> list[Any]:
    """Return `count` different colors for curves."""
    if count <= len(COLORS):
        return list(COLORS[:count])
    return [tuple(color) for color in color_map("course")(np.linspace(0.0, 1.0, count))]


@cache
def color_map(kind: Literal["signed", "share", "course"]) -> Colormap:
    """Return a color map for light and dark pages.

    "signed" is transparent in the middle, and "share" is transparent at zero. "course" is nowhere transparent.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    if kind == "course":
        return LinearSegmentedColormap.from_list(kind, [COLORS[j] for j in (0, 4, 2, 5, 1)])
    plus, minus = to_rgb(PLUS), to_rgb(MINUS)
    if kind == "share":
        return LinearSegmentedColormap.from_list(kind, [(*minus, 0.0), (*minus, 1.0)])
    ends = [(0.0, (*minus, 1.0)), (0.5, (*minus, 0.0)), (0.5, (*plus, 0.0)), (1.0, (*plus, 1.0))]
    return LinearSegmentedColormap.from_list(kind, ends)


def limit_to_decades(ax: Axes, values: np.ndarray[Any, Any]) -> None:
    """Set the limits of the y axis to whole powers of ten around the values."""
    low = np.floor(np.log10(values.min()) - 0.1)
    high = np.ceil(np.log10(values.max()) + 0.1)
    ax.set_ylim(10.0**low, 10.0**high)


def number_ticks(
    ax: Axes, count: int, *, first: int = 1, axis: Literal["x", "y"] = "x", names: Sequence[str] = ()
) -> None:
    """Set the limits and ticks of an axis with `count` marks. Label ticks with names if given, else with numbers."""
    ax.set(**{f"{axis}lim": (first - 0.65, first + count - 0.35)})
    if names:
        places, words = thin_names(names)
        _write_ticks(ax, axis, [first + i for i in places], words, upright=axis == "x")
    elif count <= _MOST_LABELS:
        _axis_of(ax, axis).set_ticks(range(first, first + count))
    else:
        _axis_of(ax, axis).set_major_locator(integer_locator())


def name_ticks(ax: Axes, names: Sequence[str], *, axis: Literal["x", "y"] = "y") -> None:
    """Label the marks at 0, 1 and so on with their names. On the y axis, the first mark is at the top."""
    words = [displayable_name(name) for name in names]
    upright = axis == "x" and max(map(len, words), default=0) > 3
    _write_ticks(ax, axis, range(len(words)), words, upright=upright)
    if axis == "y":
        ax.set_ylim(len(words) - 0.4, -0.6)
    ax.tick_params(axis=axis, length=0)


def _axis_of(ax: Axes, axis: Literal["x", "y"]) -> Axis:
    return {"x": ax.xaxis, "y": ax.yaxis}[axis]


def _write_ticks(
    ax: Axes, axis: Literal["x", "y"], places: Sequence[int], words: Sequence[str], *, upright: bool
) -> None:
    """Set ticks with these texts, rotated by 90 degrees if `upright`, in fonts that have all letters of the texts."""
    _axis_of(ax, axis).set_ticks(places, words, fontfamily=font_families("".join(words)))
    if upright:
        ax.tick_params(axis=axis, labelrotation=90)


def mark_size(count: int, few: float, many: float) -> float:
    """Return the size of marks: `few` if there are few marks next to each other, else `many`."""
    if count <= DENSE:
        return few
    return many


def thin_names(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the positions and texts of at most 12 evenly spaced names."""
    places = list(range(0, len(names), -(-len(names) // _MOST_LABELS)))
    return places, [displayable_name(names[i]) for i in places]


def displayable_name(name: str) -> str:
    """Return a name for use in a picture: shortened, not parsed as a formula, and without letters that no font has."""
    return with_known_letters(labels.shorten(name, _NAME)).replace("$", r"\$")


def integer_locator() -> Locator:
    """Return a locator for ticks at round whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])


def show_percent(ax: Axes, *, axis: Literal["x", "y"] = "y") -> None:
    """Show shares along an axis as percentages."""
    _axis_of(ax, axis).set_major_formatter(lambda share, _: f"{100.0 * share:g}%")


def colorbar(ax: Axes, mappable: Any, label: str) -> Any:
    """Draw a light color bar next to the axes."""
    bar = ax.figure.colorbar(mappable, ax=ax, fraction=0.04, pad=0.015)
    bar.outline.set_visible(False)
    bar.ax.set_facecolor("none")
    bar.ax.tick_params(labelsize=8.5, color=FAINT, labelcolor=INK)
    bar.set_label(label, fontsize=9.5, color=INK)
    return bar


_FALLBACK_FONT: Final = "last resort"  # part of the name of a font that shows every letter as a box


def with_known_letters(text: str) -> str:
    """Return the text with a question mark in place of each letter that no font on this machine has."""
    drawable = (c if ord(c) in _default_letters() or _font_with(c) else "?" for c in text)
    return "".join(drawable)


def font_families(text: str) -> list[str]:
    """Return the names of the fonts that a text needs, with matplotlib's default fonts first."""
    import matplotlib

    others = {_font_with(c) for c in text if ord(c) not in _default_letters()} - {None}
    return [*matplotlib.rcParams["font.family"], *sorted(name for name in others if name)]


@cache
def _font_with(letter: str) -> str | None:
    """Return the name of a font that has this letter, preferably of normal weight, or None if no font has it."""
    from matplotlib.font_manager import fontManager, get_font

    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.weight != 400, entry.name, entry.fname)):
        plain = _FALLBACK_FONT not in entry.name.lower() and entry.style == "normal"
        if plain and ord(letter) in get_font(entry.fname).get_charmap():
            return str(entry.name)
    return None


@cache
def _default_letters() -> frozenset[int]:
    """Return the code points of the characters in matplotlib's default font."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())


_COLUMNS: Final = 40  # maximum number of columns that are labeled with names
_OTHERS: Final = 30  # maximum number of components or clients in a heat map


def draw_heat_map(
    fig: Figure,
    values: Array,
    *,
    columns: Array | None,
    others: Sequence[str] = (),
    word: str = "",
    title: str,
    label: str,
    kind: Literal["signed", "share"],
) -> None:
    """Draw a heat map with a value for each component or client and each column.

    If there are many columns with names, only the columns with the largest values are shown. If there are many columns
    without names, all are shown in order from left to right, because they may be the pixels of an image or the channels
    of a spectrum.

    Parameters
    ----------
    fig : Figure
        An empty figure.
    values : ndarray
        The values, with a row for each component or client and a column for each column of the data.
    columns : ndarray or None
        The names of the columns, or None.
    others : sequence of str, default=()
        The names of the components or clients. Without names, they are numbered from 1.
    word : str, default=""
        The label of the axis of components or clients.
    title : str
        The title of the picture.
    label : str
        The label of the color bar.
    kind : {'signed', 'share'}
        Whether values have both signs, or are shares from 0 on.
    """
    shown, d = values[:_OTHERS], values.shape[1]
    if len(shown) < len(values):
        title = f"{title}, the first {len(shown)} of {len(values)}"
    reach = float(np.abs(shown).max()) or 1.0
    if d > _COLUMNS and columns is None:
        ax = fig.subplots()
        image = _draw_across(ax, shown, others[: len(shown)], word)
    else:
        order = np.argsort(-np.abs(shown).max(axis=0), kind="stable")
        chosen = np.sort(order[:_COLUMNS])
        if len(chosen) < d:
            title = f"{title}: {len(chosen)} of {d:,} columns"
        fig.set_size_inches(SINGLE[0], max(SINGLE[1], 1.3 + 0.165 * len(chosen)))
        ax = fig.subplots()
        names = labels.column_names(columns, d)
        words = [names[j] for j in chosen]
        image = _draw_down(ax, shown[:, chosen], words, others[: len(shown)], word)
    image.set(cmap=color_map(kind), clim=(-reach if kind == "signed" else 0.0, reach))
    ax.set_title(title, loc="left", fontsize=11, color=INK, pad=9)
    bar = colorbar(ax, image, label)
    if kind == "share":
        show_percent(bar.ax)


def _draw_across(ax: Axes, shown: Array, others: Sequence[str], word: str) -> Any:
    d, first = shown.shape[1], 0 if others else 1
    image = ax.imshow(
        shown,
        aspect="auto",
        interpolation="nearest" if d <= 400 else "antialiased",
        extent=(-0.5, d - 0.5, len(shown) + first - 0.5, first - 0.5),
    )
    label_axes(ax, "", "column", word, grid="")
    ax.xaxis.set_major_locator(integer_locator())
    if others:
        name_ticks(ax, others)
        ax.set_ylim(len(shown) - 0.5, -0.5)
    else:
        ax.yaxis.set_major_locator(integer_locator())
    return image


def _draw_down(ax: Axes, shown: Array, names: list[str], others: Sequence[str], word: str) -> Any:
    first = 0 if others else 1
    extent = (first - 0.5, len(shown) + first - 0.5, len(names) - 0.5, -0.5)
    image = ax.imshow(shown.T, interpolation="nearest", extent=extent, aspect="auto")
    label_axes(ax, "", word, "", grid="")
    name_ticks(ax, names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", labelsize=8)
    if others:
        name_ticks(ax, others, axis="x")
    else:
        number_ticks(ax, len(shown))
        ax.set_xlim(0.5, len(shown) + 0.5)
    return image
