"""The clients in the common components: where their rows lie, and how well they are rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.names.sites import SiteRows
from flower_pca.plots import letters, style
from flower_pca.results.pca import PCAResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS: Final = 6000  # rows that a cloud shows; more hide one another
_VECTOR: Final = 600  # points up to which an SVG holds each as a shape
NAMED: Final = 20  # clients up to which each has its name; of more that have names of their own, some do


def scores(drawn: Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """Rows along the first two components, coloured by client; of a single component, one strip per client."""
    step = -(-sum(rows(shards)) // _POINTS)
    parts = [result.transform(SiteRows.of(shard)[::step])[:, :2] for shard in shards]
    points, client = np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    flat = points.shape[1] == 1
    if flat:
        points = np.column_stack([points, client + np.random.default_rng(1).uniform(-0.3, 0.3, len(points))])
    order = np.random.default_rng(0).permutation(len(points))  # no client lies on top of the others
    names = named(result, len(parts))
    few = 0 < len(names) <= NAMED
    if flat and few:
        drawn.set_size_inches(style.SINGLE[0], max(style.SINGLE[1], 1.2 + 0.26 * len(names)))
    ax = drawn.subplots()
    _cloud(ax, points[order], client[order], len(parts), bar=None if flat else names)
    everything = sum(rows(shards))
    shown = "Scores" if everything == len(points) else f"Scores of {len(points):,} of {everything:,} rows"
    across = ("" if names else "client") if flat else "component 2"
    style.tidy(ax, shown, "component 1", across, grid="both")
    if flat and few:
        style.named(ax, names)
    elif flat:
        style.numbered(ax, len(parts), first=0, axis="y", names=names)


def errors(drawn: Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """A bar for each client, and a line for all rows together."""
    each = measured(result, shards)
    overall = float(np.average(each, weights=rows(shards)))
    words = "mean squared error of a row"
    names = named(result, len(each))
    ax = bars(drawn, each, names, title="Reconstruction error", words=words)
    line = ax.axvline if 0 < len(names) <= NAMED else ax.axhline
    line(overall, color=style.COLOURS[1], lw=1.4, label=f"all rows {overall:.3g}")
    style.legend(ax)


def bars(drawn: Figure, values: np.ndarray[Any, Any], names: list[str], *, title: str, words: str) -> Axes:
    """A bar for each client: along x with its name, while they are few; else upright, some with names, or by number."""
    reach = 1.12 * float(values.max()) or 1.0
    if 0 < len(names) <= NAMED:
        drawn.set_size_inches(style.SINGLE[0], max(2.2, 1.1 + 0.26 * len(names)))
        ax = drawn.subplots()
        ax.barh(range(len(values)), values, height=0.62, color=style.BAR)
        ax.set_xlim(0.0, reach)
        style.tidy(ax, title, words, "", grid="x")
        style.named(ax, names)
        return ax
    ax = drawn.subplots()
    ax.bar(range(len(values)), values, width=0.62 if len(values) <= style.DENSE else 0.9, color=style.BAR)
    ax.set_ylim(0.0, reach)
    style.numbered(ax, len(values), first=0, names=names)
    style.tidy(ax, title, "" if names else "client", words)
    return ax


def pairs(
    drawn: Figure, values: Mapping[str, np.ndarray[Any, Any]], names: list[str], *, title: str, words: str
) -> None:
    """Two bars for each client, one above the other, or side by side where clients have no room for names."""
    count = len(next(iter(values.values())))
    few = 0 < len(names) <= NAMED
    if few:
        drawn.set_size_inches(style.SINGLE[0], max(2.4, 1.4 + 0.4 * count))
    ax, place = drawn.subplots(), np.arange(count)
    for (word, each), shift, colour in zip(values.items(), (-0.19, 0.19), (style.BAR, style.MINUS), strict=True):
        if few:
            ax.barh(place + shift, each, height=0.36, color=colour, label=word)
        else:
            ax.bar(place + shift, each, width=0.36, color=colour, label=word)
    below = "" if names else "client"
    style.tidy(ax, title, words if few else below, "" if few else words, grid="x" if few else "y")
    if few:
        style.named(ax, names)
    else:
        style.numbered(ax, count, first=0, names=names)
    style.key(drawn)


def named(result: PCAResult, clients: int) -> list[str]:
    """What each client is called, where they have names of their own, or are few; else none: they go by number."""
    if clients > NAMED and not result.site_names:
        return []
    return [labels.client_name(result.site_names, i) for i in range(clients)]


def measured(result: PCAResult, shards: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The mean squared reconstruction error of a row, for each client."""
    return np.array([result.reconstruction_error(shard) for shard in shards])


def rows(shards: Sequence[Any]) -> list[int]:
    """How many rows each client has."""
    return [shard.shape[0] if hasattr(shard, "shape") else len(shard) for shard in shards]


def _cloud(
    ax: Axes, points: np.ndarray[Any, Any], client: np.ndarray[Any, Any], count: int, *, bar: list[str] | None
) -> None:
    """Points in the colours of their clients; with a bar that says which these are, by name or by number."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    many = len(points) > _VECTOR
    size, alpha = (6, 0.6) if many else (14, 0.8)
    few = count <= NAMED
    colours = ListedColormap(style.curves(count)) if few else style.scale("course")
    norm = Normalize(-0.5, count - 0.5) if few else Normalize(0, count - 1)
    x, y = points.T
    ax.scatter(x, y, s=size, alpha=alpha, lw=0, c=client, cmap=colours, norm=norm, rasterized=many)
    if bar is None:
        return
    drawn = style.colorbar(ax, ScalarMappable(norm, colours), "" if bar else "client")
    if bar:
        places, words = (range(count), [style.name_of(name) for name in bar]) if few else style.thinned(bar)
        drawn.set_ticks(places, labels=words, fontfamily=letters.family("".join(words)))
        drawn.ax.tick_params(length=0)
        drawn.ax.invert_yaxis()
    else:
        drawn.ax.yaxis.set_major_locator(style.integers())
