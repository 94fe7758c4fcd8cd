"""The clients in the common components: where their rows lie, and how well they are rebuilt.

A picture of monitored rows: SPE against T2, with their limits; the rows beyond in the colours of
their sites.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from flower_pca.analysis import sites
from flower_pca.analysis.monitor import Limits, RowScores
from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.names.table import Table
from flower_pca.plots import style
from flower_pca.results import facts
from flower_pca.results.pca import PCAResult

_SIZE: Final = (6.4, 4.4)
_POINTS: Final = 6000  # rows that a cloud shows; more hide one another
_VECTOR: Final = 600  # points up to which an SVG holds each as a shape
_LOWEST: Final = 1e-3  # of a limit: rows that are nearer are drawn there


def spe_against_t2(scored: Mapping[Any, RowScores], limits: Limits, path: str | os.PathLike[str]) -> Path:
    """Draw the rows of each site into an SVG or PNG file.

    Args:
        scored: T2 and SPE of each site's rows, by the name of the site.
        limits: Where rows begin to be beyond.
        path: The file to write. Either the whole new picture is there afterwards, or the old file
            untouched.

    Raises:
        ConfigError: If matplotlib is not installed.
    """
    style.suffix(path)
    figure = style.figure(_SIZE)
    ax = figure.subplots()
    points = {site: np.column_stack([_clip(s.t2, limits.t2), _clip(s.spe, limits.spe)]) for site, s in scored.items()}
    beyond = {site: s.beyond(limits) for site, s in scored.items()}
    near = [points[site][~far] for site, far in beyond.items()]
    _within(ax, np.concatenate(near))
    far = {site: points[site][rows] for site, rows in beyond.items() if rows.any()}
    named = len(far) <= len(style.COLOURS)
    colours = style.COLOURS if named else style.COLOURS[1:2] * len(far)
    for (site, places), colour in zip(far.items(), colours, strict=False):
        ax.scatter(
            places[:, 0], places[:, 1], s=16, lw=0, alpha=0.85, c=colour, label=str(site) if named else None, zorder=3
        )
    for along, limit in ((ax.axvline, limits.t2), (ax.axhline, limits.spe)):
        along(limit, color=style.INK, lw=1.0, ls="--", zorder=2)
    ax.set(xscale="log", yscale="log")
    count = sum(int(rows.sum()) for rows in beyond.values())
    style.tidy(
        ax,
        f"{count:,} of {labels.count(sum(map(len, beyond.values())), 'row')} beyond a limit",
        "T² (within the components)",
        "SPE (beside them)",
    )
    ax.grid(visible=True, axis="both", color=style.GRID, lw=0.8)
    if len(scored) > 1 and far and named:
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, labelcolor=style.INK)
    return style.save(figure, path)


def _within(ax: style.Axes, points: Any) -> None:
    step = max(1, -(-len(points) // _POINTS))
    many = len(points) > _VECTOR
    x, y = points[::step].T
    ax.scatter(x, y, s=8, lw=0, alpha=0.7, c=style.BAR, rasterized=many, zorder=1)


def _clip(values: Any, limit: float) -> Any:
    return np.maximum(values, _LOWEST * limit)


_ARROWS: Final = 6  # columns that have an arrow among the scores
# of the rows lie nearer to the middle, along either axis, than the longest arrow ends
_ARROW: Final = 0.9
_PANELS: Final = (3, 4)  # clients down and across, where they are too many for colours
_MAPPED: Final = 24  # clients whose means are shown
# clients up to which each has its name; of more that have names of their own, some do
NAMED: Final = 20


def own_scores(result: PCAResult) -> Array | None:
    """The scores that a result has itself, as one of columns at different places, whose rows nobody has whole."""
    found: Array | None = getattr(result, "scores_", None)
    return found


def scores(drawn: style.Figure, result: PCAResult, shards: Sequence[Any] | None) -> None:
    """Rows along the first two components: in the colours of their clients, with the columns that
    pull them; of many clients those furthest off, each before all rows. Of a single component, one
    strip per client.
    """
    own = own_scores(result)
    if own is None:
        every = sum(rows(shards or ()))
        some = [Table.of(shard)[:: -(-every // _POINTS)] for shard in shards or ()]
        parts = [result.transform(rows)[:, :2] for rows in some]
    else:
        every = len(own)
        parts = [own[:: -(-every // _POINTS), :2]]
    count, title = sum(map(len, parts)), "Scores"
    if count < every:
        title = f"Scores of {count:,} of {every:,} rows"
    if result.shrinkage_in_words:
        title = f"{result.shrinkage_in_words}\n{title}"
    if result.n_components_ == 1:
        _strips(drawn, result, parts, title)
    elif len(parts) > NAMED:
        _facets(drawn, result, parts, title)
    else:
        _biplot(drawn, result, parts, title)


def _biplot(drawn: style.Figure, result: PCAResult, parts: list[Array], title: str) -> None:
    """All rows in one cloud, and arrows for the columns that weigh most."""
    points, client = _shuffle(parts)
    ax = drawn.subplots()
    bar = names_of(result, range(len(parts))) if len(parts) > 1 else None
    _cloud(ax, points, client, len(parts), bar=bar)
    style.tidy(ax, title, "component 1", "component 2", grid="both")
    weights, columns = result.components_[:2].T, facts.names_of(result)
    lengths = np.abs(weights).max(axis=0, initial=0.0)
    # each axis has a scale of its own
    ends = weights / np.maximum(lengths, np.finfo(float).tiny)
    ends = ends * np.quantile(np.abs(points), _ARROW, axis=0)
    for j in labels.leading(np.linalg.norm(weights, axis=1), _ARROWS):
        x, y = ends[j]
        ax.annotate("", (x, y), (0.0, 0.0), arrowprops={"arrowstyle": "-|>", "color": style.INK, "lw": 0.9})
        # a name must not leave the picture
        inwards = abs(x) > 0.5 * np.abs(points[:, 0]).max()
        side = "left" if (x >= 0.0) != inwards else "right"
        name = style.name_of(columns[j])
        family = style.family(name)
        ax.text(x, y, name, fontsize=7.5, color=style.INK, ha=side, va="center", fontfamily=family)


def _facets(drawn: style.Figure, result: PCAResult, parts: list[Array], title: str) -> None:
    """A panel for each of the clients whose middle lies furthest off, before those of all."""
    every = np.concatenate(parts)
    spread = every.std(axis=0)
    divisors = np.where(spread > 0.0, spread, 1.0)
    middles = np.array([part.mean(axis=0) for part in parts]) / divisors
    descending = np.argsort(-np.linalg.norm(middles, axis=1), kind="stable")
    furthest = np.sort(descending[: _PANELS[0] * _PANELS[1]])
    drawn.set_size_inches(style.SINGLE[0], 4.6)
    panels = drawn.subplots(*_PANELS, sharex=True, sharey=True)
    for ax, i in zip(panels.flat, furthest, strict=False):
        ax.scatter(*every.T, s=2, lw=0, alpha=0.35, c=style.FAINT, rasterized=True)
        many = len(parts[i]) > _VECTOR
        ax.scatter(*parts[i].T, s=6, lw=0, c=style.MINUS, rasterized=many)
        style.tidy(ax, "", "", "", grid="")
        name = style.name_of(labels.client_name(result.site_names, int(i)))
        ax.set_title(name, loc="left", fontsize=8, color=style.INK, pad=3, fontfamily=style.family(name))
        ax.tick_params(labelsize=7)
    words = f"{title}: the {len(furthest)} clients furthest off, of {len(parts):,}"
    drawn.suptitle(words, x=0.012, ha="left", fontsize=11, color=style.INK)
    drawn.supxlabel("component 1", fontsize=9.5, color=style.INK)
    drawn.supylabel("component 2", fontsize=9.5, color=style.INK)


def _strips(drawn: style.Figure, result: PCAResult, parts: list[Array], title: str) -> None:
    """A strip for each client."""
    score, client = _shuffle(parts)
    height = client + np.random.default_rng(1).uniform(-0.3, 0.3, len(client))
    names = names_of(result, range(len(parts)))
    tall = max(style.SINGLE[1], 1.2 + 0.26 * len(names))
    ax, _, side = start(drawn, names, tall=tall)
    points = np.column_stack([score[:, 0], height])
    _cloud(ax, points, client, len(parts), bar=None)
    style.tidy(ax, title, "component 1", _beside(names), grid="both")
    if side == "x":
        style.name_ticks(ax, names)
    else:
        style.number_ticks(ax, len(parts), first=0, axis="y", names=names)


def _shuffle(parts: list[Array]) -> tuple[Array, Array]:
    """All rows and whose they are, in an order in which no client lies on top of the others."""
    points = np.concatenate(parts)
    client = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.random.default_rng(0).permutation(len(points))
    return points[order], client[order]


def means(drawn: style.Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """How far each client's mean of a column lies from that of all, in deviations of all."""
    found = sites.of(result, shards, few=_MAPPED)
    shown = found.order[:_MAPPED]
    style.draw(
        drawn,
        found.off[shown],
        columns=result.feature_names_in_,
        others=[labels.client_name(result.site_names, int(i)) for i in shown],
        title=facts.heading("Means of the clients", len(shown), len(found.order), "furthest off"),
        label="deviations of all rows",
        kind="signed",
    )


def errors(drawn: style.Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """A bar for each client, and a line for all rows together."""
    each = errors_of(result, shards)
    overall = float(np.average(each, weights=rows(shards)))
    names = names_of(result, range(len(each)))
    ax = bars(drawn, each, names, title="Reconstruction error", words="mean squared error of a row")
    line = {"x": ax.axvline, "y": ax.axhline}[side_of(names)]
    line(overall, color=style.COLOURS[1], lw=1.4, label=f"all rows {overall:.3g}")
    style.legend(ax)


def side_of(names: Sequence[str]) -> Literal["x", "y"]:
    """Along which axis the bars of clients of these names lie: along x while there is room for each name."""
    return "x" if 0 < len(names) <= NAMED else "y"


def start(
    drawn: style.Figure, names: Sequence[str], *, tall: float
) -> tuple[style.Axes, Callable[..., Any], Literal["x", "y"]]:
    """Axes for a bar of each client, what draws such bars, and along which axis; so tall where each has its name."""
    side = side_of(names)
    if side == "x":
        drawn.set_size_inches(style.SINGLE[0], tall)
    ax = drawn.subplots()
    return ax, ax.barh if side == "x" else ax.bar, side


def tidy(ax: style.Axes, count: int, names: Sequence[str], *, title: str, words: str) -> None:
    """What so many bars are of: each with its name while they are few; else some with names, or by number."""
    if side_of(names) == "x":
        style.tidy(ax, title, words, "", grid="x")
        style.name_ticks(ax, names)
    else:
        style.tidy(ax, title, _beside(names), words)
        style.number_ticks(ax, count, first=0, names=names)


def _beside(names: Sequence[str]) -> str:
    return "" if names else "client"


def bars(drawn: style.Figure, values: Array, names: list[str], *, title: str, words: str) -> style.Axes:
    """A bar for each client."""
    tall = max(2.2, 1.1 + 0.26 * len(names))
    ax, bar, side = start(drawn, names, tall=tall)
    bar(range(len(values)), values, style.sized(len(values), 0.62, 0.9), color=style.BAR)
    ax.set(**{f"{side}lim": (0.0, 1.12 * float(values.max()) or 1.0)})
    tidy(ax, len(values), names, title=title, words=words)
    return ax


def pairs(drawn: style.Figure, values: Mapping[str, Array], names: list[str], *, title: str, words: str) -> None:
    """Two bars for each client, one above the other, or side by side without room for names."""
    count = len(next(iter(values.values())))
    tall = max(2.4, 1.4 + 0.4 * count)
    ax, bar, _ = start(drawn, names, tall=tall)
    for (word, each), shift, colour in zip(values.items(), (-0.19, 0.19), (style.BAR, style.MINUS), strict=True):
        bar(np.arange(count) + shift, each, 0.36, color=colour, label=word)
    tidy(ax, count, names, title=title, words=words)
    style.key(drawn)


def names_of(result: PCAResult, keys: Sequence[int]) -> list[str]:
    """What each client is called, where they have names of their own, or are few; else none: they go by number."""
    if len(keys) > NAMED and not result.site_names:
        return []
    return [labels.client_name(result.site_names, key) for key in keys]


def errors_of(result: PCAResult, shards: Sequence[Any]) -> Array:
    """The mean squared reconstruction error of a row, for each client."""
    return np.array([result.reconstruction_error(shard) for shard in shards])


def rows(shards: Sequence[Any]) -> list[int]:
    """How many rows each client has."""
    return [shard.shape[0] if hasattr(shard, "shape") else len(shard) for shard in shards]


def _cloud(ax: style.Axes, points: Array, client: Array, count: int, *, bar: list[str] | None) -> None:
    """Points in their clients' colours; with a bar of which these are, by name or number."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    size, alpha, many = 14, 0.8, len(points) > _VECTOR
    if many:
        size, alpha = 6, 0.6
    few = count <= NAMED
    colours, norm = style.scale("course"), Normalize(0, count - 1)
    if few:
        colours = ListedColormap(style.curves(count))
        norm = Normalize(-0.5, count - 0.5)
    ax.scatter(
        points[:, 0], points[:, 1], s=size, alpha=alpha, lw=0, c=client, cmap=colours, norm=norm, rasterized=many
    )
    if bar is None:
        return
    drawn = style.colorbar(ax, ScalarMappable(norm, colours), _beside(bar))
    if bar:
        places, words = (range(count), [style.name_of(name) for name in bar]) if few else style.thin(bar)
        drawn.set_ticks(places, labels=words, fontfamily=style.family("".join(words)))
        drawn.ax.tick_params(length=0)
        drawn.ax.invert_yaxis()
    else:
        drawn.ax.yaxis.set_major_locator(style.integers())
