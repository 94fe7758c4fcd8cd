"""Profiles: sets of a node's rules by name, each with every rule set that its one promise needs.

What a node's operator sets beside takes the place of the profile's own, but for what the profile cannot do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError

LOT: Final = 20  # rows that are told of together, at least
_COMMON: Final = {"min_rows": LOT, "share_names": False}
_LOTS: Final = {**_COMMON, "min_change": LOT}
SETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "open": {**_COMMON, "share_names": True, "allow_noise": False},
    "masked": {
        **_LOTS,
        "allow_noise": False,
        "masked_only": True,
        "min_peers": 2,
        "max_groups": 1,
        "max_lost": 0,
    },
    # Under noise a column that few rows have tells no more of one of them than any other.
    "private": {**_LOTS, "max_epsilon": 1.0, "max_delta": 1e-6, "rare_columns": True},
}


def chosen(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of a profile, with those that are given in place of its own."""
    checks.choice("profile", name, tuple(SETS))
    found = {**SETS[name], **given}
    least = found["min_rows"]
    if "min_change" in SETS[name] and "min_change" not in given and isinstance(least, int):
        found["min_change"] = max(LOT, least)
    return found


def check(name: str, *, min_rows: object, min_change: object, trusted: bool) -> None:
    """Refuse rules that are no such profile."""
    if name == "masked" and not trusted:
        remedy = "Give trusted_keys: without them a server can take part as another node, and unmask what this sends."
        raise ConfigError("The profile masked", must="used with trusted_keys", got="none", then=remedy)
    if name in ("masked", "private"):
        for rule, value in (("min_rows", min_rows), ("min_change", min_change)):
            checks.integer(f"{rule} in the profile {name}", value, least=LOT)
