"""What a node under its rules can be made to tell, in plain words, for its operator and its data protection officer.

Nothing is listed by hand that the package knows: which algorithms are served follows from the `Rules`, what a message
of theirs brings out from the kinds of the parts of its answer (`served`). What each rule grants, and what its absence
leaves open, is said rule by rule in `sentences`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from flower_pca import registry
from flower_pca.audit.sentences import LASTING, SEEN
from flower_pca.audit.served import kinds, why_not
from flower_pca.clients.policy.offered import everything
from flower_pca.clients.policy.rules import Rules
from flower_pca.core.kinds import KINDS, Kind

_WHOLE: Final = "C = X'X of its rows in a frame of the server's"
_APP: Final = (
    "The app that comes with a run can read what the node's user can read: no rule holds against it. Let only trusted "
    "entities start runs."
)


@dataclass(frozen=True)
class Telling:
    """What a node can be made to tell.

    Attributes:
        rules: Those that are not left at their defaults.
        seen: What the server sees of an answer.
        served: What a run of each algorithm that is served brings out; first what all of them do.
        refused: The algorithms that are not served, and why.
        lasting: What all messages together can tell, and what bounds it.
        open: What these rules do not prevent, and the rule that would.
    """

    rules: dict[str, str]
    seen: tuple[str, ...]
    served: dict[str, str]
    refused: dict[str, str]
    lasting: tuple[str, ...]
    open: tuple[str, ...]

    def text(self) -> str:
        """As a page."""
        own = ", ".join(f"{name}={value}" for name, value in self.rules.items()) or "all at their defaults"
        blocks = [f"Rules: {own}"]
        for head, lines in (
            ("What the server sees", self.seen),
            (f"What runs of these algorithms can bring out, with {_WHOLE}", _listed(self.served)),
            ("Not served", _listed(self.refused)),
            ("What all messages together tell", self.lasting),
            ("What these rules leave open", self.open),
        ):
            if lines:
                blocks.append("\n".join([head, *(f"  - {line}" for line in lines)]))
        return "\n\n".join(blocks) + "\n"


def _listed(named: dict[str, str]) -> tuple[str, ...]:
    """Names that have the same words come together."""
    alike: dict[str, list[str]] = {}
    for name, words in named.items():
        alike.setdefault(words, []).append(name)
    return tuple(f"{', '.join(names)}: {words}" for words, names in alike.items())


def _words(found: frozenset[Kind]) -> str:
    return "; ".join(kind.tells for kind in sorted(found, key=_place))


def _place(kind: Kind) -> int:
    """Where a kind stands in the table; one that a stage has brought, at its end."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def telling(rules: Rules) -> Telling:
    """What a node under these rules can be made to tell."""
    every = everything()
    refused = {name: why for name in every if (why := why_not(rules, name))}
    told = {name: kinds(rules, name) for name in every if name not in refused}
    runs = [found for name, found in told.items() if name in registry.ALGORITHMS]  # which have an opening in common
    common = frozenset.intersection(*runs) if len(runs) > 1 else frozenset()
    beside = {name: found - common if name in registry.ALGORITHMS else found for name, found in told.items()}
    served = {name: _words(found) or "nothing beside" for name, found in beside.items()}
    served = {"any algorithm": _words(common), **served} if common else served
    lines = [line for line in SEEN + LASTING if line.applies(rules)]
    given = {f.name: getattr(rules, f.name) for f in fields(rules) if getattr(rules, f.name) != f.default}
    return Telling(
        rules={name: str(value) for name, value in given.items()},
        seen=tuple(line.says(rules) for line in lines if line in SEEN and not line.left_open),
        served=served,
        refused=refused,
        lasting=tuple(line.says(rules) for line in lines if line in LASTING and not line.left_open),
        open=(*(line.says(rules) for line in lines if line.left_open), _APP),
    )
