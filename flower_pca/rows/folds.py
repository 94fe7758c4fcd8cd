"""Split a client's rows into five random parts (folds), to hold out one part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.measured import Measured

PARTS: Final = 5
FEWEST: Final = 4 * PARTS  # With fewer rows, some part would have fewer than four rows.
# With a fixed seed, every process forms the same parts, and so makes the same choices from them.
_LOT: Final = 20221122


def positions_of_parts(n: int) -> list[Array]:
    """Return the positions of the rows in each part, for n rows."""
    order = np.random.default_rng(_LOT).permutation(n)
    return [np.sort(order[i::PARTS]) for i in range(PARTS)]


def parts_of_rows(data: Measured) -> Iterator[Measured]:
    """Yield the parts of stored rows one at a time, so that only one copy is in memory."""
    return (data.select_rows(chosen) for chosen in positions_of_parts(data.n))


class UnionOfRows:
    """The union X of several sets of rows, with the products of X that the estimation of local components needs."""

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


def leave_one_out(parts: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return pairs of a part and the union of all other parts, one pair for each part."""
    places = range(len(parts))
    others = ([part for j, part in enumerate(parts) if j != i] for i in places)
    return [(part, UnionOfRows(rest)) for part, rest in zip(parts, others, strict=True)]
