"""Pictures of the scores of rows along the components, in the colors of their clients or of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.names.levels import source_of
from flower_pca.names.table import Table
from flower_pca.plots import clients, style
from flower_pca.results import facts
from flower_pca.results.pca import PCAResult
from flower_pca.results.site import result_at_position

_POINTS: Final = 6000  # maximum number of points in a scatter plot, because more points hide each other
_VECTOR: Final = 600  # maximum number of points that an SVG file stores as separate shapes
_ARROWS: Final = 6  # maximum number of columns with an arrow
# The longest arrow along each axis ends at this quantile of the absolute scores.
_ARROW: Final = 0.9
_PANELS_BY_COLUMN: Final = 4  # maximum number of panels, each with rows colored by a column
_PANELS: Final = (3, 4)  # rows and columns of panels if there are too many clients for colors


def scores_in_result(result: PCAResult) -> Array | None:
    """Return the scores that the result of a run over columns contains, or None for other results."""
    found: Array | None = getattr(result, "scores_", None)
    return found


def draw_scores(fig: style.Figure, result: PCAResult, shards: Sequence[Any] | None) -> None:
    """Draw rows along the first two components.

    Each client has a color, and arrows show the columns with the largest weights. If there are too many clients for
    colors, the clients farthest from the center have a panel each, with all rows in the background. With a single
    component, each client has a strip.
    """
    own = scores_in_result(result)
    if own is None:
        every, some = _thinned_rows(shards or ())
        parts = _scores_of(result, some)
    else:
        every = len(own)
        parts = [own[:: -(-every // _POINTS), :2]]
    title = _title(sum(map(len, parts)), every)
    if result.shrinkage_in_words:
        title = f"{result.shrinkage_in_words}\n{title}"
    if result.n_components_ == 1:
        _draw_strips(fig, result, parts, title)
    elif len(parts) > clients.NAMED:
        _draw_facets(fig, result, parts, title)
    else:
        _draw_biplot(fig, result, parts, title)


def draw_scores_by_column(fig: style.Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """Draw rows along the first two components, in one panel per column of `coloring_columns`, colored by it."""
    every, some = _thinned_rows(shards)
    names = coloring_columns(result, shards)[:_PANELS_BY_COLUMN]
    points = np.concatenate(_scores_of(result, some))
    order = np.random.default_rng(0).permutation(len(points))
    across = min(len(names), 2)
    down = -(-len(names) // across)
    fig.set_size_inches(style.SINGLE[0], style.SINGLE[1] if down == 1 else 5.2)
    panels = fig.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
    for ax, name in zip(panels, names, strict=False):
        _draw_cloud_colored_by(
            ax, points[order], np.concatenate([_cells_of_column(rows, name) for rows in some])[order]
        )
        style.label_axes(ax, "", "", "", grid="both")
        title = style.displayable_name(name)
        ax.set_title(title, loc="left", fontsize=9.5, color=style.INK, pad=4, fontfamily=style.font_families(title))
    for ax in panels[len(names) :]:
        ax.set_axis_off()
    fig.suptitle(_title(len(points), every), x=0.012, ha="left", fontsize=11, color=style.INK)
    fig.supxlabel("component 1", fontsize=9.5, color=style.INK)
    fig.supylabel("component 2", fontsize=9.5, color=style.INK)


def coloring_columns(result: PCAResult, shards: Sequence[Any]) -> list[str]:
    """Return the columns of `explain`, `adjust` and `keep` that all shards have, by the names that the shards use."""
    wanted = [*result.explained_by_, *result.adjusted_by_, *result.kept_]
    tables = [Table.of(shard) for shard in shards]
    columns = [{*(table.names or ()), *table.texts} for table in tables]
    common = set.intersection(*columns) if columns else set()
    called = [name if name in common else source_of(name) for name in wanted]
    return list(dict.fromkeys(name for name in called if name in common))


def _cells_of_column(rows: Table, name: str) -> Array:
    """Return the cells of a column in a table, as numbers or as texts."""
    if name in rows.texts:
        return np.asarray(rows.texts[name])
    values = rows.pick([name]).whole().rows
    return np.asarray(values.todense() if hasattr(values, "todense") else values).ravel()


def _thinned_rows(shards: Sequence[Any]) -> tuple[int, list[Table]]:
    """Return the total number of rows, and the rows of each client that a scatter plot shows."""
    every = sum(clients.row_counts(shards))
    return every, [Table.of(shard)[:: -(-every // _POINTS)] for shard in shards]


def _scores_of(result: PCAResult, tables: Sequence[Table]) -> list[Array]:
    """Return the scores of the rows of each client along at most two components."""
    return [result_at_position(result, i).transform(rows)[:, :2] for i, rows in enumerate(tables)]


def _title(count: int, total: int) -> str:
    """Return the title of a picture that shows `count` of `total` rows."""
    return f"Scores of {count:,} of {total:,} rows" if count < total else "Scores"


def _draw_biplot(fig: style.Figure, result: PCAResult, parts: list[Array], title: str) -> None:
    """Draw all rows as one scatter plot, with arrows for the columns with the largest weights."""
    points, client = _shuffled_points(parts)
    ax = fig.subplots()
    bar = clients.client_names(result, range(len(parts))) if len(parts) > 1 else None
    _draw_cloud(ax, points, client, len(parts), bar=bar)
    style.label_axes(ax, title, "component 1", "component 2", grid="both")
    # Arrows begin at the center of all rows, which lies outside of the picture if the rows that draw it away are not
    # among the shown rows.
    if (points.min(axis=0) <= 0.0).all() and (points.max(axis=0) >= 0.0).all():
        _draw_arrows(ax, result, points)


def _draw_arrows(ax: style.Axes, result: PCAResult, points: Array) -> None:
    """Draw an arrow with a name for each of the columns with the largest weights."""
    weights, columns = result.components_[:2].T, facts.column_names(result)
    lengths = np.abs(weights).max(axis=0, initial=0.0)
    # Arrows are scaled separately along each axis.
    ends = weights / np.maximum(lengths, np.finfo(float).tiny)
    ends = ends * np.quantile(np.abs(points), _ARROW, axis=0)
    for j in labels.largest_positions(np.linalg.norm(weights, axis=1), _ARROWS):
        x, y = ends[j]
        ax.annotate("", (x, y), (0.0, 0.0), arrowprops={"arrowstyle": "-|>", "color": style.INK, "lw": 0.9})
        # The name of a long arrow is written towards the center, so that it stays within the picture.
        inwards = abs(x) > 0.5 * np.abs(points[:, 0]).max()
        side = "left" if (x >= 0.0) != inwards else "right"
        name = style.displayable_name(columns[j])
        family = style.font_families(name)
        ax.text(x, y, name, fontsize=7.5, color=style.INK, ha=side, va="center", fontfamily=family)


def _draw_facets(fig: style.Figure, result: PCAResult, parts: list[Array], title: str) -> None:
    """Draw a panel for each of the clients farthest from the center, with all rows in the background."""
    every = np.concatenate(parts)
    spread = every.std(axis=0)
    divisors = np.where(spread > 0.0, spread, 1.0)
    middles = np.array([part.mean(axis=0) for part in parts]) / divisors
    descending = np.argsort(-np.linalg.norm(middles, axis=1), kind="stable")
    furthest = np.sort(descending[: _PANELS[0] * _PANELS[1]])
    fig.set_size_inches(style.SINGLE[0], 4.6)
    panels = fig.subplots(*_PANELS, sharex=True, sharey=True)
    for ax, i in zip(panels.flat, furthest, strict=False):
        ax.scatter(*every.T, s=2, lw=0, alpha=0.35, c=style.FAINT, rasterized=True)
        many = len(parts[i]) > _VECTOR
        ax.scatter(*parts[i].T, s=6, lw=0, c=style.MINUS, rasterized=many)
        style.label_axes(ax, "", "", "", grid="")
        name = style.displayable_name(labels.client_name(result.site_names, int(i)))
        ax.set_title(name, loc="left", fontsize=8, color=style.INK, pad=3, fontfamily=style.font_families(name))
        ax.tick_params(labelsize=7)
    words = f"{title}: the {len(furthest)} clients furthest off, of {len(parts):,}"
    fig.suptitle(words, x=0.012, ha="left", fontsize=11, color=style.INK)
    fig.supxlabel("component 1", fontsize=9.5, color=style.INK)
    fig.supylabel("component 2", fontsize=9.5, color=style.INK)


def _draw_strips(fig: style.Figure, result: PCAResult, parts: list[Array], title: str) -> None:
    """Draw a strip of points for each client, along a single component."""
    score, client = _shuffled_points(parts)
    height = client + np.random.default_rng(1).uniform(-0.3, 0.3, len(client))
    names = clients.client_names(result, range(len(parts)))
    tall = max(style.SINGLE[1], 1.2 + 0.26 * len(names))
    ax, _, side = clients.empty_bar_axes(fig, names, tall=tall)
    points = np.column_stack([score[:, 0], height])
    _draw_cloud(ax, points, client, len(parts), bar=None)
    style.label_axes(ax, title, "component 1", clients.axis_label(names), grid="both")
    if side == "x":
        style.name_ticks(ax, names)
    else:
        style.number_ticks(ax, len(parts), first=0, axis="y", names=names)


def _shuffled_points(parts: list[Array]) -> tuple[Array, Array]:
    """Return all points and their clients in random order, so that no client covers the other clients."""
    points = np.concatenate(parts)
    client = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.random.default_rng(0).permutation(len(points))
    return points[order], client[order]


def _draw_cloud_colored_by(ax: style.Axes, points: Array, cells: Array) -> None:
    """Draw points colored by a column: a color for each different text, or a color scale for numbers."""
    if cells.dtype.kind in "OUST":
        words, level = np.unique(cells.astype(str), return_inverse=True)
        _draw_cloud(ax, points, level, len(words), bar=[str(word) for word in words])
        return
    many = len(points) > _VECTOR
    drawn = ax.scatter(
        points[:, 0], points[:, 1], s=6, alpha=0.8, lw=0, c=cells, cmap=style.color_map("course"), rasterized=many
    )
    style.colorbar(ax, drawn, "")


def _draw_cloud(ax: style.Axes, points: Array, client: Array, count: int, *, bar: list[str] | None) -> None:
    """Draw points in the colors of their clients or groups.

    A bar explains the colors by the names in `bar`, or by numbers if `bar` is empty. With None, there is no bar.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    size, alpha, many = 14, 0.8, len(points) > _VECTOR
    if many:
        size, alpha = 6, 0.6
    few = count <= clients.NAMED
    colors, norm = style.color_map("course"), Normalize(0, count - 1)
    if few:
        colors = ListedColormap(style.curve_colors(count))
        norm = Normalize(-0.5, count - 0.5)
    ax.scatter(points[:, 0], points[:, 1], s=size, alpha=alpha, lw=0, c=client, cmap=colors, norm=norm, rasterized=many)
    if bar is None:
        return
    drawn = style.colorbar(ax, ScalarMappable(norm, colors), clients.axis_label(bar))
    if bar:
        places, words = (range(count), [style.displayable_name(name) for name in bar]) if few else style.thin_names(bar)
        drawn.set_ticks(places, labels=words, fontfamily=style.font_families("".join(words)))
        drawn.ax.tick_params(length=0)
        drawn.ax.invert_yaxis()
    else:
        drawn.ax.yaxis.set_major_locator(style.integer_locator())
