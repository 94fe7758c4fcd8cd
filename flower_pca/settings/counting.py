"""The words that `n_components` accepts. Each word names a stage that finds the number of components."""

from __future__ import annotations

from typing import Final

COUNTED: Final = {"signal": "the components above noise", "shared": "the components that most clients share"}
COUNTING: Final = tuple(COUNTED)
