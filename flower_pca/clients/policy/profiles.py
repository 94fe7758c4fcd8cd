"""Profiles: named sets of a node's rules. Each set has every rule that its promise needs.

A rule that the operator sets replaces the profile's rule, except for rules that the profile requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flower_pca.base import checks

# the smallest number of rows that are revealed only together
LOT: Final = 20
_COMMON: Final = {"min_rows": LOT, "share_names": False}
SETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Without max_epsilon, a server can average the noise away over many runs.
    "open": {**_COMMON, "share_names": True, "allow_noise": False},
    "masked": {
        **_COMMON,
        "min_change": LOT,
        "allow_noise": False,
        "masked_only": True,
        # In a sum of two nodes, the other node learns this node's answer by subtracting its own.
        "min_peers": 2,
        "max_groups": 1,
        "max_dropouts": 0,
    },
    # Noise protects any number of rows and every column. The rows stay as they were at the first answer.
    "private": {"share_names": False, "max_epsilon": 1.0, "max_delta": 1e-6},
}


def chosen(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile's rules, with the given rules in their place."""
    checks.choice("profile", name, tuple(SETS))
    found = {**SETS[name], **given}
    least = found.get("min_rows")
    if "min_change" in SETS[name] and "min_change" not in given and isinstance(least, int):
        found["min_change"] = max(LOT, least)
    return found
