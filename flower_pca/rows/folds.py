"""Folds: a client's rows in five parts by a fixed random draw, to hold out one part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.measured import Measured

PARTS: Final = 5
FEWEST: Final = 4 * PARTS  # With fewer rows, a part would have fewer than four.
# All clients use the same draw, because a choice by parts must be the same everywhere.
_LOT: Final = 20221122


def rows(n: int) -> list[Array]:
    """Return which of n rows are in each part."""
    order = np.random.default_rng(_LOT).permutation(n)
    return [np.sort(order[i::PARTS]) for i in range(PARTS)]


def parts(data: Measured) -> Iterator[Measured]:
    """Yield the parts of stored rows one by one, so that only one copy exists at a time."""
    return (data.part(chosen) for chosen in rows(data.n))


class Together:
    """Several sets of rows as one, by their statistics, as far as own components need."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    def __init__(self, sets: Sequence[Any]) -> None:
        self._sets = sets
        self.n = sum(data.n for data in sets)
        self.d = sets[0].d

    def matmat(self, Z: Array, *, reuse: int = 4) -> Array:
        """Return X'(XZ)."""
        return np.asarray(sum(data.matmat(Z, reuse=reuse) for data in self._sets))

    def gram(self) -> Array:
        """Return X'X."""
        return np.asarray(sum(data.gram() for data in self._sets))

    def root(self) -> Array:
        """Return A with A'A = X'X."""
        return np.vstack([data.root() for data in self._sets])


def splits(parts: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Yield each part, and the other parts together."""
    places = range(len(parts))
    others = ([part for j, part in enumerate(parts) if j != i] for i in places)
    return [(part, Together(rest)) for part, rest in zip(parts, others, strict=True)]
