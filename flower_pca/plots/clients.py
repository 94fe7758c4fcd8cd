"""The clients in the common components: where their rows lie, and how well they are rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca.core.result import PCAResult
from flower_pca.plots import style
from flower_pca.rows.named import SiteRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize

_POINTS: Final = 6000  # rows that a cloud shows; more hide one another
_VECTOR: Final = 600  # points up to which an SVG holds each as a shape


def scores(ax: Axes, result: PCAResult, shards: Sequence[Any]) -> None:
    """Rows along the first two components, coloured by client; of a single component, one strip per client."""
    from matplotlib.cm import ScalarMappable

    parts = [result.transform(part)[:, :2] for part in _thinned(shards)]
    points, client = np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    flat, ratio = points.shape[1] == 1, result.explained_variance_ratio_
    if flat:
        points = np.column_stack([points, client + np.random.default_rng(1).uniform(-0.3, 0.3, len(points))])
    order = np.random.default_rng(0).permutation(len(points))  # no client lies on top of the others
    many, (colours, norm) = len(points) > _VECTOR, _colours(len(parts))
    size, alpha = (6, 0.6) if many else (14, 0.8)
    x, y = points[order].T
    ax.scatter(x, y, s=size, alpha=alpha, lw=0, c=client[order], cmap=colours, norm=norm, rasterized=many)
    everything = sum(rows(shards))
    shown = "Scores" if everything == len(points) else f"Scores of {len(points):,} of {everything:,} rows"
    across = "client" if flat else f"component 2 ({ratio[1]:.1%})"
    style.tidy(ax, shown, f"component 1 ({ratio[0]:.1%})", across)
    ax.grid(visible=True, axis="both", color=style.GRID, lw=0.8)
    if flat:
        style.numbered(ax, len(parts), first=0, axis="y")
        return
    bar = style.colorbar(ax, ScalarMappable(norm, colours), "client")
    bar.ax.yaxis.set_major_locator(style.integers())


def errors(ax: Axes, result: PCAResult, shards: Sequence[Any]) -> None:
    """A bar for each client, and a line for all rows together."""
    each = measured(result, shards)
    sizes = rows(shards)
    overall = float(np.average(each, weights=sizes))
    ax.bar(np.arange(len(each)), each, width=0.62 if len(each) <= style.DENSE else 0.9, color=style.BAR)
    ax.axhline(overall, color=style.COLOURS[1], lw=1.4, label=f"all rows {overall:.3g}")
    ax.set_ylim(0.0, 1.12 * float(each.max()) or 1.0)
    style.numbered(ax, len(each), first=0)
    style.tidy(ax, "Reconstruction error", "client", "mean squared error of a row")
    style.legend(ax)


def measured(result: PCAResult, shards: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The mean squared reconstruction error of a row, for each client."""
    return np.array([result.reconstruction_error(shard) for shard in shards])


def rows(shards: Sequence[Any]) -> list[int]:
    """How many rows each client has."""
    return [shard.shape[0] if hasattr(shard, "shape") else len(shard) for shard in shards]


def _thinned(shards: Sequence[Any]) -> list[Any]:
    """Every so many rows of each client, the first one always."""
    tables = [SiteRows.of(shard) for shard in shards]
    step = -(-sum(rows(shards)) // _POINTS)
    return [table[::step] for table in tables]


def _colours(clients: int) -> tuple[Colormap, Normalize]:
    """A colour for each client; of many, from blue to green, without the end that is faint on white."""
    import matplotlib
    from matplotlib.colors import ListedColormap, Normalize

    if clients <= len(style.COLOURS):
        return ListedColormap(style.COLOURS[:clients]), Normalize(-0.5, clients - 0.5)
    return ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, 256))), Normalize(0, clients - 1)
