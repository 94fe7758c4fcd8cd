"""Profiles: named sets of rules for a node. Each set contains every rule that the profile's promises need.

A rule that the operator sets replaces the profile's rule, unless it would break the promise of the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flower_pca.base import checks

# The profiles "open" and "masked" set min_rows to this number, and the profile "masked" also sets min_change to it.
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
        # In a sum over two nodes, each node learns the other's answer by subtracting its own.
        "min_peers": 2,
        "max_groups": 1,
        "max_dropouts": 0,
    },
    # This profile needs no min_rows and no min_change: noise protects any number of rows and every column, and the rows
    # stay as they were at the first answer.
    "private": {"share_names": False, "max_epsilon": 1.0, "max_delta": 1e-6},
}


def rules_of_profile(name: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of a profile. The given rules replace the profile's rules of the same names."""
    checks.choice("profile", name, tuple(SETS))
    found = {**SETS[name], **rules}
    least = found.get("min_rows")
    if "min_change" in SETS[name] and "min_change" not in rules and isinstance(least, int):
        found["min_change"] = max(LOT, least)
    return found
