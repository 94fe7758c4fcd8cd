"""Measurements that the docs quote: `python -m benchmarks.exactness`, `.rounds`, `.real`, `.choose`, `.auto`, `.cost`,
`.tracking`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # for the builders that the tests use


def table(head: Sequence[object], rows: list[list[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
