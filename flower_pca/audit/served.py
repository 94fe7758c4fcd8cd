"""Find what a server can request from a node under its rules, and the kinds of parts in the node's answers.

The kinds follow from the stages alone. `Stage.asks` describes the arrays that a message of a stage may contain,
and `Stage.parts` describes the answer to these arrays. This module tries every choice of arrays that makes a
difference to `parts`, so it needs no run. It thereby covers all messages that a server could send, whether or not
the server of this package would send them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from flower_pca import registry
from flower_pca.base.linalg import Array
from flower_pca.clients.policy import limits
from flower_pca.clients.policy.rules import Rules, allowed_names
from flower_pca.core.kinds import ArrayRule, Kind, Part
from flower_pca.core.stage import Stage
from flower_pca.stages.opening import Opening

_TRIAL_COLUMNS: Final = 6  # the number of columns of the rows in a trial
_BLOCK_COLUMNS: Final = 2  # the number of columns of a block in a trial
_NUMBERS: Final = 8  # If a whole number has at most this many possible values, all of them are tried.


def reason_not_served(rules: Rules, name: str) -> str:
    """Return the reason why a node with these rules does not serve an algorithm, or "" if it does."""
    if name not in rules.served_algorithms:
        if rules.allow is None:
            return "Answers compare single rows, so the rule allow must name the algorithm."
        return "The rule allow does not permit this."
    if rules.masked_only and not limits.has_additive_answers(name):
        return "Answers cannot be summed, and masked_only requires sums."
    if has_noise(rules) and not registry.STAGES[name].bounded:
        return "Noise cannot cover the answers, and the rules require noise."
    return ""


def has_noise(rules: Rules) -> bool:
    """Return whether a node with these rules answers only runs with noise."""
    return rules.floor is not None


def kinds_of_answers(rules: Rules, name: str) -> frozenset[Kind]:
    """Return the kinds of parts that answers to an algorithm's messages can have, from opening to closing stage."""
    asked_of = kinds_in_run(name, masked=rules.masked_only, noised=has_noise(rules))
    found = frozenset(kind for kind, shows_own in asked_of if not shows_own or rules.share_local or rules.masked_only)
    if has_noise(rules):  # Under noise, clients report 1 in place of their number of rows.
        return frozenset(kind for kind in found if not kind.counts_rows)
    return found


@functools.cache
def kinds_in_run(name: str, *, masked: bool = False, noised: bool = False) -> frozenset[tuple[Kind, bool]]:
    """Return a pair for each kind of part that a server can request in a run of this algorithm.

    The pair states the kind, and whether the part shows a node's own results.
    """
    found = set[tuple[Kind, bool]]()
    for stage in _stages_of_run(name, masked, noised):
        for arrays, parts in _possible_answers(stage):
            if masked and limits.has_no_meaning_in_sum(stage.name, arrays):
                continue  # A node refuses this under masks.
            if name in registry.OPENING_ONLY and _requests_products(stage, arrays):
                continue  # A node refuses products in runs without an algorithm.
            found |= {(part.kind, part.own) for part in parts.values() if 0 not in part.shape}
    return frozenset(found)


def _stages_of_run(name: str, masked: bool, noised: bool) -> list[type[Stage[Any]]]:
    """Return the stages in a run of an algorithm, or the single stage of a tracker or an extra stage."""
    if name in registry.EXTRA_STAGES or name in registry.TRACKERS:
        return [registry.STAGES[name]]
    entry = registry.TABLE.get(name)
    opening: type[Stage[Any]] = Opening if entry is None else entry.opening
    if noised:
        opening = registry.STAGES["private_opening"]
    elif masked:
        opening = registry.STAGES["summed_opening"]
    if entry is None:
        return [opening]
    last = [] if noised else [registry.STAGES["evaluate"]]
    return [opening, entry.algorithm, entry.closing, *last]


class _Undecided(Exception):  # noqa: N818
    """A signal that `parts` has read an array, or tested its presence, before the trial has chosen a value for it."""

    def __init__(self, name: str, *, needed: bool) -> None:
        super().__init__(name)
        self.name, self.needed = name, needed


class _Trial(dict[str, Array]):
    """The arrays of a message in a trial, as far as they have been chosen. None stands for an array that is missing."""

    def __init__(self, decided: Mapping[str, Array | None]) -> None:
        super().__init__({name: a for name, a in decided.items() if a is not None})
        self._decided = decided

    def __missing__(self, name: str) -> Array:
        if name in self._decided:
            raise KeyError(name)
        raise _Undecided(name, needed=True)

    def __contains__(self, name: object) -> bool:
        if name not in self._decided:
            raise _Undecided(str(name), needed=False)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401, because its fix would call this method again


def _possible_answers(stage: type[Stage[Any]]) -> Iterator[tuple[dict[str, Array], Mapping[str, Part]]]:
    """Yield possible arrays of a message, and the parts of the answer to them.

    All choices of the arrays that the method `parts` of the stage reads are tried.
    """
    open_choices: list[dict[str, Array | None]] = [{}]
    while open_choices:
        decided = open_choices.pop()
        try:
            parts = stage.parts(_Trial(decided), _TRIAL_COLUMNS)
        except _Undecided as asked:
            values: list[Array | None] = [*_values_to_try(stage.asks[asked.name])]
            if not asked.needed:
                values.append(None)
            open_choices += [{**decided, asked.name: value} for value in values]
        except KeyError:  # `parts` needs an array that this choice lacks, so the choice is no valid message.
            continue
        else:
            yield {name: a for name, a in decided.items() if a is not None}, parts


def _values_to_try(ask: ArrayRule) -> list[Array]:
    """Return the arrays to try for an entry of `asks`: all values that can affect the kinds of an answer."""
    if ask.dimensions:
        first = _TRIAL_COLUMNS if ask.by_column else _BLOCK_COLUMNS
        return [np.ones((first, _BLOCK_COLUMNS)[: ask.dimensions])]
    if ask.counts_columns:
        return [np.array(_TRIAL_COLUMNS)]
    if not ask.whole:
        return [np.array(max(ask.least, 0.0)), np.array(min(ask.most, 1.0))]
    least = int(max(ask.least, 0.0))
    most = ask.most if ask.most < least + _NUMBERS else least + 2
    return [np.array(number) for number in range(least, int(most) + 1)]


def _requests_products(stage: type[Stage[Any]], arrays: Mapping[str, Array]) -> bool:
    """Return whether a message asks for products, by a block or by the width of a block."""
    asks = {name: stage.asks[name] for name in arrays}
    return any(ask.by_column or (ask.makes_columns and arrays[name] > 0) for name, ask in asks.items())


def allows_peaks(rules: Rules) -> bool:
    """Return whether a server can request the largest values of columns, which masks and noise do not support."""
    seed = np.array(0)
    parts = Opening.parts({"peaks": np.array(True), "seed": seed, "width": np.array(1)}, 1)
    return "peak" in parts and not rules.masked_only and not has_noise(rules)


def served_row_comparers(rules: Rules) -> list[str]:
    """Return the algorithms that the node serves and that compare rows."""
    return [name for name in allowed_names() if registry.STAGES[name].by_row and not reason_not_served(rules, name)]
