"""The words that `n_components` may be. Each of them names a stage that finds the number of components."""

from __future__ import annotations

from typing import Final

COUNTED: Final = {"signal": "those above what noise alone would give", "shared": "those that most clients have"}
COUNTING: Final = tuple(COUNTED)
