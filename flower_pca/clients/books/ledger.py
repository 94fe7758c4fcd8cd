"""The ledger: what a node has told of its rows as they are, over all runs, whatever the server calls them.

One file for each version of the rows, named by their mark; rows that change, if only by one, begin a new one. A ledger
is read, weighed against and written under one lock, before an answer leaves the node: what could not be sent in the end
counts as told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flower_pca.base import archive, labels
from flower_pca.base.errors import FlowerPCAError
from flower_pca.clients.books import kept
from flower_pca.clients.policy.refusals import RefusalError

_KIND: Final = "ledger of a node"


@dataclass
class Group:
    """Others that the rows were summed with under masks, by the names of their keys in hex, and who was missing."""

    peers: frozenset[str]
    missing: frozenset[str] = frozenset()

    def lost(self, present: frozenset[str]) -> frozenset[str]:
        """Who has been missing from a sum of this group, if these are in one."""
        return self.missing | (self.peers - present)


@dataclass
class Ledger:
    """What was told.

    Attributes:
        answered: Messages that came, if they are counted, refused ones too.
        spent: Privacy spent on noised answers, as the sum of mu^2, mu = clip^2 / deviation (`flower_pca.dp.gaussian`).
        beyond: Masked sums that it gave no answer to, as that was beyond a bound, say: each tells of this node alone.
        groups: Those with whom the rows were summed under masks.
        columns: Columns of d numbers that have left the node.
    """

    answered: int = 0
    spent: float = 0.0
    beyond: int = 0
    groups: list[Group] = field(default_factory=list)
    columns: int = 0

    def admit(self, present: frozenset[bytes], *, most: tuple[int, int] | None) -> None:
        """Note the group in which these others are summed with; a new one, if there may be one more.

        Args:
            present: The names of the keys of all others in the sum.
            most: How many groups there may be, and how many members of each may be missing from its sums.
        """
        here = frozenset(name.hex() for name in present)
        groups, lost = most or (len(self.groups) + 1, self.beyond)
        if self.beyond > lost:
            rule = f"at most {lost}: that is its max_lost"
            remedy = "Ask the node's operator: each tells how large they are."
            raise RefusalError("The answers beyond bounds of masked sums", must=rule, got=self.beyond, then=remedy)
        fits = [i for i, g in enumerate(self.groups) if here <= g.peers and len(g.lost(here)) <= lost]
        if fits:
            found = min(fits, key=lambda i: len(self.groups[i].peers - here))
            self.groups[found].missing = self.groups[found].lost(here)
            return
        if len(self.groups) >= groups:
            count = labels.count(groups, "group")
            rule = f"in one of at most {count}, of whom at most {lost} may be lost: its max_groups and max_lost"
            remedy = "Ask the node's operator: each group more, and each loss, tells what the members do not share."
            raise RefusalError("The peers of this node in a masked sum", must=rule, got="others", then=remedy)
        self.groups.append(Group(here))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """The ledger in a file, locked. It is written again at the end, unless that is an error."""
    with kept.locked(path):
        ledger = _read(path)
        yield ledger
        groups = [[sorted(group.peers), sorted(group.missing)] for group in ledger.groups]
        archive.write(path, _KIND, {**vars(ledger), "groups": groups}, {}, private=True)


def _read(path: Path) -> Ledger:
    try:
        header, _ = archive.read(path, _KIND, private=True)
        groups = [Group(frozenset(peers), frozenset(missing)) for peers, missing in header["groups"]]
        spent, columns = float(header["spent"]), int(header["columns"])
        return Ledger(int(header["answered"]), spent, int(header["beyond"]), groups, columns)
    except FileNotFoundError:
        return Ledger()
    except (FlowerPCAError, KeyError, TypeError, ValueError) as error:  # to take it for none would forget what was told
        rule, got = "one that this node has written", "another"
        remedy = "Its operator has to look at it, or to remove it."
        raise RefusalError(f"{path.name} of this node", must=rule, got=got, then=remedy) from error
