"""The promises of a node's profile, and the promises that the node's own rules give up."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from flwr.app import Context

from flower_pca import registry
from flower_pca.clients.policy.profiles import SETS
from flower_pca.clients.policy.rules import TELLS, Rules
from flower_pca.wire import records

_ANNOUNCED: Final = "flower_pca.profile"
PROMISES: Final[Mapping[str, str]] = {
    "open": "A server can learn of this node's rows how many there are, their means, C, the names, where values are "
    "missing at all, and the largest value of each column; what does not follow from these it cannot learn.",
    "masked": "No answer of this node is seen but in a sum with {min_peers} others at least of its own list, always "
    "the same ones until people have been added to its rows or its operator lets a site leave. Its rows stay as they "
    "were when it first answered; people are added {min_change} at a time or more. It answers only for columns that "
    "{min_peers} of the others have measured too, by what these tell it; a combination of columns that is the same in "
    "all of their rows is told as this node's own.",
    "private": "Of any single row, all answers that this node's ledger counts together tell no more than epsilon "
    "{max_epsilon} at delta {max_delta} says; beside them only how many columns there are, and a digest of their "
    "names. Nothing that is read from the rows decides whether, of which columns or in which words the node answers.",
}
# What a rule leaves open if it is weaker than in the profile.
_OPEN: Final[Mapping[str, str]] = {
    **{f.name: f.metadata[TELLS].replace("{", "").replace("}", "") for f in fields(Rules) if TELLS in f.metadata},
    "allow": "single rows, by algorithms that compare rows",
    "min_rows": "rows and columns of fewer people",
    "allow_sparse_columns": "the carriers of rare values",
    "min_change": "rows that come, go or change, as the difference of two runs",
    "on_small_change": "that rows have come or gone, be it one",
    "allow_noise": "single rows, by many runs with little noise each",
    "masked_only": "its own answers",
    "single_masks": "an answer, to a server that lies about who dropped out",
    "min_peers": "an answer, to the other of two",
    "max_groups": "its own answers, as differences of sums over other groups",
    "max_dropouts": "members that sums have lost, and how large answers are",
    "max_colluders": "less noise than is said, where peers are in league with the server",
    "max_epsilon": "more of single rows",
    "max_delta": "more of single rows",
    "share_names": "the names of its columns and its own",
    "share_own": "its own components",
    "split_columns": "the scores of each person",
    "answers": "single rows, by how products are rounded",
    "missing": "the sum of the rows with a gap in a column",
    "noise_seed": "all noise, to whoever knows the seed",
}
_RISING: Final = ("min_rows", "min_change", "min_peers", "max_colluders")  # Larger values of these rules promise more.
# Rules about the rows themselves, which change no answer if there is max_epsilon.
_COVERED: Final = ("min_rows", "allow_sparse_columns", "min_change", "on_small_change")
_FALLING: Final = ("max_groups", "max_dropouts", "max_epsilon", "max_delta")


def promise(rules: Rules) -> str:
    """Return the profile's promise, with the numbers of the rules."""
    if rules.profile:
        return PROMISES[rules.profile].format(**vars(rules))
    return ""


def weaker(rules: Rules) -> dict[str, str]:
    """Return what rules that are weaker than the profile's leave open, by rule. Without a profile, return nothing."""
    if not rules.profile:
        return {}
    found = {}
    for name, words in _OPEN.items():
        if rules.max_epsilon is not None and name in _COVERED:
            continue
        own = getattr(rules, name)
        set_by = SETS[rules.profile].get(name, getattr(Rules, name))
        if own != set_by and not _stricter(name, own, set_by):
            found[name] = f"{name}={own} in place of {set_by} leaves open {words}."
    return found


def announce(rules: Rules, context: Context | None) -> None:
    """Log the profile and what the rules leave open, once per run."""
    if context is not None:
        # Flower starts a process for every message, so the run's state records that this was logged.
        if records.values_in(context.state, _ANNOUNCED):
            return
        records.put_values(context.state, _ANNOUNCED, {"profile": rules.profile})
    log = logging.getLogger("flwr")
    log.info("This node runs the profile %s. %s", rules.profile, promise(rules))
    for words in weaker(rules).values():
        log.warning("Of the profile %s, %s", rules.profile, words)


def _stricter(name: str, own: Any, set_by: Any) -> bool:
    if name == "allow":
        return not comparing(own)
    if name in ("share_names", "allow_noise", "allow_sparse_columns"):
        return own is False
    if name == "masked_only":
        return own is True
    if own is None:
        return False
    rises = name in _RISING and own > (set_by or 0)
    return rises or (name in _FALLING and (set_by is None or own < set_by))


def comparing(names: Any) -> bool:
    """Return whether one of these algorithms compares rows."""
    listed = names
    if isinstance(names, str):
        listed = [names]
    return any(registry.STAGES[name].by_row for name in listed)
