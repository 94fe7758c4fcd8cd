"""The promises of a node's profile, and the consequences if other rules of the node weaken them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from flwr.app import Context

from flower_pca import registry
from flower_pca.base import labels
from flower_pca.clients.policy.profiles import SETS
from flower_pca.clients.policy.rules import TELLS, Rules
from flower_pca.wire import records

_ANNOUNCED: Final = "flower_pca.profile"
PROMISES: Final[Mapping[str, tuple[str, ...]]] = {
    "open": (
        "The server can learn only what follows from the number of rows, their means, C (the sums of products of every "
        "two columns), the largest absolute value of each column, the names of the columns and of this node, and which "
        "columns have missing values.",
    ),
    "masked": (
        "The server sees answers of this node only in sums with at least {peers} from its own list. These are always "
        "the same nodes, unless its operator lets a site leave.",
        "The rows of this node stay as they were when it first answered, and people can be added only {min_change} or "
        "more at a time.",
        "This node answers only for columns that at least {peers} measured, as far as these tell the truth, or that "
        "have the same value everywhere. If a combination of columns has the same value in all rows of every other "
        "node, a sum shows this combination for this node alone.",
    ),
    "private": (
        "All answers that the ledger of this node counts reveal together no more about any single row than epsilon "
        "{max_epsilon} at delta {max_delta} allows. Apart from this, the server learns only the number of columns and "
        "a digest of their names.",
        "Nothing that this node reads from its rows decides whether it answers, about which columns, or in which "
        "words.",
    ),
}
# For each rule, a clause that says what a server can learn if the rule is weaker than in the profile
_WEAKER: Final[Mapping[str, str]] = {
    **{
        f.name: f"the server sees {f.metadata[TELLS]}".replace("{", "").replace("}", "")
        for f in fields(Rules)
        if TELLS in f.metadata
    },
    "allow": "the server can learn single rows from algorithms that compare rows",
    "min_rows": "the server can learn about fewer rows, and about columns of fewer people",
    "allow_sparse_columns": "the server can learn about the carriers of rare values",
    "min_change": "the difference of two runs can reveal rows that are added, removed or changed",
    "on_small_change": "the server learns when rows of the file have changed, even a single one",
    "allow_noise": "the server can average away the noise of many runs, and learn single rows",
    "masked_only": "the server can see this node's own answers",
    "single_masks": "a server that lies about who dropped out can see an answer",
    "min_peers": "each node of a sum over two nodes learns what the other has answered",
    "max_groups": "the server can compute this node's own answers as differences of sums over other groups",
    "max_dropouts": "the server can learn about members that sums have lost, and how large answers are",
    "max_colluders": "the noise is less than stated if other nodes collude with the server",
    "max_epsilon": "the answers can reveal more about single rows",
    "max_delta": "the answers can reveal more about single rows",
    "share_names": "the server sees the names of the columns and of this node",
    "share_local": "the server can see this node's own components",
    "split_columns": "the server and all parties can see the scores of each person",
    "answers": "the server can learn single rows from the rounding of products",
    "missing": "the server can compute the sum of the rows with a missing value in a column",
    "noise_seed": "whoever knows the seed can remove all noise",
}
_RISING: Final = ("min_rows", "min_change", "min_peers", "max_colluders")  # rules that are stricter with larger values
# Rules that change no answer if max_epsilon is set, because noise protects the rows
_COVERED: Final = ("min_rows", "allow_sparse_columns", "min_change", "on_small_change")
_FALLING: Final = ("max_groups", "max_dropouts", "max_epsilon", "max_delta")  # rules that are stricter if smaller


def promises_of(rules: Rules) -> tuple[str, ...]:
    """Return the profile's promises with the numbers from the rules, or an empty tuple without a profile."""
    if not rules.profile:
        return ()
    named = {**vars(rules), "peers": labels.count(rules.min_peers, "other node")}
    return tuple(words.format_map(named) for words in PROMISES[rules.profile])


def weaker_rules(rules: Rules) -> dict[str, str]:
    """Return, for each rule that is weaker than in the profile, a sentence about what the server can therefore learn.

    Without a profile, the dict is empty.
    """
    if not rules.profile:
        return {}
    found = {}
    for name, words in _WEAKER.items():
        if rules.max_epsilon is not None and name in _COVERED:
            continue
        own = getattr(rules, name)
        set_by = SETS[rules.profile].get(name, getattr(Rules, name))
        if own != set_by and not _is_stricter(name, own, set_by):
            found[name] = f"With {name}={own} instead of {set_by}, {words}."
    return found


def log_profile(rules: Rules, context: Context | None) -> None:
    """Log the profile and the rules that weaken its promises, once per run."""
    if context is not None:
        # Flower starts a process for every message, so the node's state remembers what was logged.
        if records.values_in(context.state, _ANNOUNCED):
            return
        records.put_values(context.state, _ANNOUNCED, {"profile": rules.profile})
    log = logging.getLogger("flwr")
    log.info("This node runs the profile %s. %s", rules.profile, " ".join(promises_of(rules)))
    for words in weaker_rules(rules).values():
        log.warning("The rules of this node are weaker than the profile %s. %s", rules.profile, words)


def _is_stricter(name: str, value: Any, set_by: Any) -> bool:
    if name == "allow":
        return not any_compares_rows(value)
    if name in ("share_names", "allow_noise", "allow_sparse_columns"):
        return value is False
    if name == "masked_only":
        return value is True
    if value is None:
        return False
    rises = name in _RISING and value > (set_by or 0)
    return rises or (name in _FALLING and (set_by is None or value < set_by))


def any_compares_rows(names: Any) -> bool:
    """Return whether at least one of these algorithms compares rows."""
    listed = [names] if isinstance(names, str) else names
    return any(registry.STAGES[name].by_row for name in listed)
