"""The picture in docs/personal.md: `python -m sims.personal.figure docs/personal.png`."""

from __future__ import annotations

import sys
from pathlib import Path

from flower_pca import PersonalResult, simulate
from flower_pca.plots.personal import pictures
from sims.personal.pictures import SIDE, textured


def draw(path: str | Path) -> Path:
    """Three of twelve drawn pictures, taken apart."""
    drawn = textured(7)
    result = simulate("exact_per_pca(local_components=4)", drawn.shards, n_components=4, seed=500, center=False)
    assert isinstance(result, PersonalResult)
    parts = [result.split(drawn.shards[i], client=i) for i in range(3)]
    return pictures(parts, path, shape=(SIDE, SIDE))


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1 else "personal.png")
