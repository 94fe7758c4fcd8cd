"""Drawn pictures with a shared background and a foreground of each client's own; clients are pictures, rows samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIDE: Final = 96
_GROUND, _FIGURE = 21, 22  # the random streams


@dataclass(frozen=True)
class Pictures:
    """N pictures (side x side): a background that all share, and foregrounds."""

    background: Array
    foreground: Array  # N x side x side
    masks: Array  # of the foregrounds

    @property
    def shards(self) -> list[Array]:
        """The pictures, one to a client, their rows as samples."""
        return [self.background + part for part in self.foreground]

    @property
    def stacked(self) -> Array:
        """The pictures as columns, as Robust PCA wants them."""
        return np.stack([X.ravel() for X in self.shards], axis=1)


def textured(seed: int, *, clients: int = 12, cover: float = 0.45) -> Pictures:
    """A smooth texture of rank 4 behind, and a tile in every quadrant before it, woven of two waves."""
    background, rng = _background(seed), np.random.default_rng([_FIGURE, seed])
    foreground, masks = np.zeros((2, clients, SIDE, SIDE))
    half = SIDE // 2
    for i in range(clients):
        for corner in ((0, 0), (0, half), (half, 0), (half, half)):
            height = rng.uniform(cover, 1.0) * half
            shape = np.array([height, cover * half**2 / height]).round().astype(int)
            top, left = corner + (rng.random(2) * (half + 1 - shape)).astype(int)
            tile = slice(top, top + shape[0]), slice(left, left + shape[1])
            foreground[i][tile] = np.outer(_wave(rng), _wave(rng))[tile]
            masks[i][tile] = 1.0
    return Pictures(background, foreground, masks > 0)


def discs(seed: int, *, clients: int = 12, regions: int = 4, cover: float = 0.45) -> Pictures:
    """As `textured`, with discs: their rows are cut off at ever other places, which no few directions span."""
    background, rng = _background(seed), np.random.default_rng([_FIGURE, seed])
    radius = SIDE * np.sqrt(cover / (regions * np.pi)) * 1.08
    foreground, masks = np.zeros((2, clients, SIDE, SIDE))
    for i in range(clients):
        for centre in rng.uniform(radius * 0.8, SIDE - radius * 0.8, (regions, 2)):
            y, x = np.indices((SIDE, SIDE)) - centre[:, None, None]
            disc = np.hypot(y, x) <= radius
            foreground[i][disc] = np.outer(_wave(rng), _wave(rng))[disc]
            masks[i][disc] = 1.0
    return Pictures(background, foreground, masks > 0)


def icons(seed: int, *, clients: int = 12) -> Pictures:
    """The same background, and one flat grey icon before it: a disc, a square, a cross or a ring."""
    background, rng = _background(seed), np.random.default_rng([_FIGURE, seed])
    foreground = np.zeros((clients, SIDE, SIDE))
    for i in range(clients):
        r = rng.uniform(9.0, 14.0)
        y, x = np.indices((SIDE, SIDE)) - rng.uniform(16.0, SIDE - 16.0, 2)[:, None, None]
        round_ = np.hypot(y, x)
        shapes = (
            round_ <= r,
            np.maximum(abs(y), abs(x)) <= r,
            (np.maximum(abs(y), abs(x)) <= r) & (np.minimum(abs(y), abs(x)) <= r / 3),
            (round_ <= r) & (round_ >= r / 2),
        )
        foreground[i][shapes[i % 4]] = 2.0
    return Pictures(background, foreground, foreground != 0.0)


def foreground_error(pictures: Pictures, found: Array) -> float:
    """||found - true||_F / ||true||_F over all pictures."""
    return float(np.linalg.norm(found - pictures.foreground) / np.linalg.norm(pictures.foreground))


def auc(pictures: Pictures, found: Array) -> float:
    """How well |found| tells foreground pixels from the others: the area under the ROC curve, 0.5 by chance."""
    from scipy.stats import rankdata

    ranks, true = rankdata(np.abs(found).ravel()), pictures.masks.ravel()
    inside = int(true.sum())
    return float((ranks[true].sum() - inside * (inside + 1) / 2) / (inside * (true.size - inside)))


def _background(seed: int) -> Array:
    rng, t = np.random.default_rng([_GROUND, seed]), np.linspace(0.0, 1.0, SIDE)
    waves = [np.cos(2.0 * np.pi * (f * t + p)) for f, p in zip(rng.uniform(0.5, 4.0, 8), rng.random(8), strict=True)]
    return np.asarray(sum(np.outer(waves[2 * j], waves[2 * j + 1]) for j in range(4)))


def _wave(rng: np.random.Generator) -> Array:
    return np.sqrt(2.0) * np.sin(2.0 * np.pi * (rng.uniform(5.0, 20.0) * np.linspace(0.0, 1.0, SIDE) + rng.random()))
