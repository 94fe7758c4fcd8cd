"""Patience: which nodes that fail are asked again, and which are left out until they are back.

Two things in a row leave a node out: two silences, every one of which costs the timeout of a round; and two failures of
whatever kind at the work of a run, as each of them may send all others back to the opening. To answer an opening, or
the set-up of masks, is no sign that a node can do that work: less memory is needed there. In a run without an opening,
as of a tracker, a failure that comes at once costs nobody anything, and does not count.

Whoever has said nothing at all in a run is known too: a node that has fallen silent is another matter than one whose
processes never begin.

A node that is left out so is asked again once it has been away, or has been started anew: Flower says since when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_IN_A_ROW: Final = 2


@dataclass
class Patience:
    """How often nodes have failed in a row, and who is left out for it."""

    # nodes that have said anything: an answer, a refusal, an error
    speakers: set[int] = field(default_factory=set)
    _silences: dict[int, int] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)  # at the work of a run
    # when those that are connected were started
    _since: Mapping[int, str] = field(default_factory=dict)
    # when those that are left out were started
    _left: dict[int, str] = field(default_factory=dict)
    # those of them that have been disconnected since
    _away: set[int] = field(default_factory=set)

    def fail(self, node: int, *, silent: bool, counts: bool) -> bool:
        """Whether a node is left out after a failure; `counts` where that was at the work of a run."""
        if silent:
            self._silences[node] = self._silences.get(node, 0) + 1
        else:
            self.speakers.add(node)
            self._silences[node] = 0
        if counts:
            self._failures[node] = self._failures.get(node, 0) + 1
        enough = max(self._silences[node], self._failures.get(node, 0)) >= _IN_A_ROW
        if enough:
            self._left[node] = self._since.get(node, "")
        return enough

    def hear(self, node: int, *, counts: bool) -> None:
        """A node has answered; `counts` where that was at the work of a run."""
        self.speakers.add(node)
        self._silences.pop(node, None)
        if counts:
            self._failures.pop(node, None)

    def back(self, connected: Mapping[int, str]) -> frozenset[int]:
        """Of those connected, and when they were started, the nodes that are to be asked again."""
        self._since = connected
        self._away |= self._left.keys() - connected.keys()
        back = frozenset(n for n, since in self._left.items() if n in connected and self._anew(n, since))
        for node in back:
            del self._left[node]
            self._away.discard(node)
            self._silences.pop(node, None)
            self._failures.pop(node, None)
        return back

    def _anew(self, node: int, since: str) -> bool:
        return node in self._away or self._since[node] != since
