"""Completed: a batch of a stream as its client keeps it for itself, with marks of what was not observed like that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from flower_pca.base import archive, files
from flower_pca.base.linalg import Array

_KIND: Final = "completed batch"
_BATCH: Final = "batch-"


@dataclass(frozen=True)
class Completed:
    """A batch as its client keeps it.

    Attributes:
        rows: Its rows, completed, (n, d). In a first step without a start zeros stand in the gaps.
        outliers: What was taken out of them, (n, d); zeros elsewhere.
        found: True where that was, (n, d): the entry in `rows` stands for an outlier.
        missing: True where nothing was observed, (n, d): the entry in `rows` fills a gap.
    """

    rows: Array
    outliers: Array
    found: Array
    missing: Array

    @property
    def imputed(self) -> Array:
        """True where the entry in `rows` is not one that was observed, (n, d): `found` or `missing`."""
        return np.asarray(self.found | self.missing)

    def write(self, folder: Path, step: int, columns: Sequence[str] | None) -> None:
        """Write it to a folder of its owner's, one npz per step, for its owner only; its header names the columns."""
        files.make_folder(folder)
        header = {"step": step, "columns": None if columns is None else list(columns)}
        archive.write(folder / f"{_BATCH}{step:06d}.npz", _KIND, header, dict(vars(self)), private=True)


def written(folder: Path) -> Iterator[tuple[int, Completed]]:
    """The batches in a folder, each with the number of its step."""
    for path in sorted(folder.glob(f"{_BATCH}*.npz")):
        header, arrays = archive.read(path, _KIND)
        yield int(header["step"]), Completed(**arrays)
