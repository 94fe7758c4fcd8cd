"""What a node under its rules can be asked, and the kinds of parts that its answers are then made of.

The kinds follow from the stages alone. `Stage.asks` says what arrays a message of a stage may bring,
and `Stage.parts` says what an answer to these arrays holds. So every choice of arrays that makes a
difference to `parts` is tried, and no run is needed. These are all messages that a server could
send, whether or not the server of this package would send them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from flower_pca import registry
from flower_pca.base.linalg import Array
from flower_pca.clients.policy import limits
from flower_pca.clients.policy.rules import Rules, everything
from flower_pca.core.kinds import Ask, Kind, Part
from flower_pca.core.stage import Stage
from flower_pca.stages.opening import Opening

_ROWS_HAVE: Final = 6  # columns
_BLOCKS_HAVE: Final = 2  # columns
_NUMBERS: Final = 8  # the most values of a whole number that are all tried


def why_not(rules: Rules, name: str) -> str:
    """Why an algorithm is not served; "" if it is."""
    if name not in rules.services:
        if rules.allow is None:
            return "Answers compare rows, which only the rule allow can permit."
        return "The rule allow does not permit this."
    if rules.masked_only and not limits.adds_up(name):
        return "Answers cannot be summed, and masked_only requires sums."
    if has_noise(rules) and not registry.STAGES[name].bounded:
        return "Noise cannot cover the answers, and the rules require noise."
    return ""


def has_noise(rules: Rules) -> bool:
    """Whether the node answers runs with noise only."""
    return rules.floor is not None


def kinds(rules: Rules, name: str) -> frozenset[Kind]:
    """The kinds that answers to an algorithm's messages can be made of, from opening to closing."""
    asked_of = kinds_asked_of(name, masked=rules.masked_only, noised=has_noise(rules))
    found = frozenset(kind for kind, shows_own in asked_of if not shows_own or rules.share_local or rules.masked_only)
    if has_noise(rules):  # the number of rows then counts clients
        return frozenset(kind for kind in found if not kind.counts_rows)
    return found


@functools.cache
def kinds_asked_of(name: str, *, masked: bool = False, noised: bool = False) -> frozenset[tuple[Kind, bool]]:
    """The kinds of parts that a server can ask for by this name, and whether they show a node's own results."""
    found = set[tuple[Kind, bool]]()
    for stage in _stages(name, masked, noised):
        for arrays, parts in _answers(stage):
            if masked and limits.bare(stage.name, arrays):
                continue  # A node refuses this under masks.
            if name in registry.OPENING_ONLY and _brings_a_block(stage, arrays):
                continue  # A node refuses this too if it has no algorithm.
            found |= {(part.kind, part.own) for part in parts.values() if 0 not in part.shape}
    return frozenset(found)


def _stages(name: str, masked: bool, noised: bool) -> list[type[Stage[Any]]]:
    """The stages that answer to messages of an algorithm, of a tracker or of a stage beside them."""
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
    """`parts` has asked for an array, or whether there is one, that is not decided yet."""

    def __init__(self, name: str, *, needed: bool) -> None:
        super().__init__(name)
        self.name, self.needed = name, needed


class _Trial(dict[str, Array]):
    """The arrays of a message, as far as they are decided: an array, or None if there is none of this name."""

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
        return self[name] if name in self else default  # noqa: SIM401, which would call this method


def _answers(stage: type[Stage[Any]]) -> Iterator[tuple[dict[str, Array], Mapping[str, Part]]]:
    """What `parts` makes of every choice of those arrays that it looks at, with the arrays."""
    open_choices: list[dict[str, Array | None]] = [{}]
    while open_choices:
        decided = open_choices.pop()
        try:
            parts = stage.parts(_Trial(decided), _ROWS_HAVE)
        except _Undecided as asked:
            values: list[Array | None] = [*_values(stage.asks[asked.name])]
            if not asked.needed:
                values.append(None)
            open_choices += [{**decided, asked.name: value} for value in values]
        except KeyError:  # This message would have to bring an array that is not there.
            continue
        else:
            yield {name: a for name, a in decided.items() if a is not None}, parts


def _values(ask: Ask) -> list[Array]:
    """Arrays that a message may bring for this, of all values that can make a difference to the kinds of an answer."""
    if ask.dimensions:
        first = _ROWS_HAVE if ask.by_column else _BLOCKS_HAVE
        return [np.ones((first, _BLOCKS_HAVE)[: ask.dimensions])]
    if ask.counts_columns:
        return [np.array(_ROWS_HAVE)]
    if not ask.whole:
        return [np.array(max(ask.least, 0.0)), np.array(min(ask.most, 1.0))]
    least = int(max(ask.least, 0.0))
    most = ask.most if ask.most < least + _NUMBERS else least + 2
    return [np.array(number) for number in range(least, int(most) + 1)]


def _brings_a_block(stage: type[Stage[Any]], arrays: Mapping[str, Array]) -> bool:
    """Whether a message asks for products, by a block or by the width of one."""
    asks = {name: stage.asks[name] for name in arrays}
    return any(ask.by_column or (ask.makes_columns and arrays[name] > 0) for name, ask in asks.items())


def peaks(rules: Rules) -> bool:
    """Whether an opening can be asked for peaks, which masks and noise do not carry."""
    seed = np.array(0)
    parts = Opening.parts({"peaks": np.array(True), "seed": seed, "width": np.array(1)}, 1)
    return "peak" in parts and not rules.masked_only and not has_noise(rules)


def comparing(rules: Rules) -> list[str]:
    """The algorithms that are served and compare rows, but for the budget's, whose noise covers that."""
    return [name for name in everything() if registry.STAGES[name].by_row and not why_not(rules, name)]
