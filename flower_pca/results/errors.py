"""Standard errors in words: what a table says of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flower_pca.base import labels
from flower_pca.base.linalg import Array

INTERVAL: Final = 1.96  # errors to either side, which hold 95 % of estimates


def weights_with_errors(row: Array, errors: Array, names: Sequence[str], *, most: int = 3) -> str:
    """The largest weights with their errors and columns: "+0.71 ± 0.02 glucose"."""
    heaviest = labels.leading(row, most)
    return ", ".join(f"{row[j]:+.2f} ± {errors[j]:.1g} {names[j]}" for j in heaviest)


def beside(figures: Sequence[str], errors: Array) -> list[str]:
    """Figures, each with its error: "3.281 ± 0.15"."""
    return [f"{figure} ± {error:.2g}" for figure, error in zip(figures, errors, strict=True)]
