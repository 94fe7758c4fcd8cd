"""Draw a result. Only this module of `results` imports `plots`, and does so late, because `plots` imports `results`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def draw_result(result: Any, what: str, path: str | os.PathLike[str], *, shards: Any = None) -> Path:
    """Draw a picture of a result into a file, and return its path. See `flower_pca.plots.draw`."""
    from flower_pca import plots

    return plots.draw(result, what, path, shards=shards)
