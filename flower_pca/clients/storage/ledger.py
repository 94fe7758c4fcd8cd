"""The ledger: what a node has sent about its rows over all runs, whatever names the server gives them.

Each node has one ledger, or one for the data that its operator names (`data_name`). The ledger stays if
rows are added, so that one more row does not start a new budget. It also stays if the order, precision
or storage of rows changes, or the transport, because its name contains nothing from the server. It is
read, compared and written under one lock before an answer leaves the node. An answer that could not be
sent counts as sent.

`Account` is the node's view of the ledger. A message is counted before it is read. An answer is
compared with all that was sent before, before it leaves the node.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flwr.app import Context

from flower_pca import registry, wire
from flower_pca.base import files, labels
from flower_pca.base.errors import FlowerPCAError
from flower_pca.clients.policy.refusals import OPERATOR, RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.storage import folders, marks
from flower_pca.core.kinds import Message
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE, noise
from flower_pca.masking import messages
from flower_pca.masking.messages import Admit, Demands
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

_ROUNDING: Final = 1e-9  # the relative rounding error of added budgets
_KIND: Final = "ledger of a node"


@dataclass
class Group:
    """A group of other nodes with which the rows were summed under masks.

    Attributes
    ----------
    peers : frozenset of str
        The names of their keys, in hex.
    missing : frozenset of str
        Those that were missing from a sum.
    epoch : int
        The newest epoch of the ledger in which there was a sum.
    """

    peers: frozenset[str]
    missing: frozenset[str] = frozenset()
    epoch: int = 0

    def absentees(self, present: frozenset[str]) -> frozenset[str]:
        """Return which members have been missing from a sum of this group, if these nodes are in one."""
        return self.missing | (self.peers - present)


@dataclass
class Ledger:
    """A record of what was sent.

    Attributes
    ----------
    answered : int
        The number of messages, including refused ones, if they are counted.
    spent : float
        The privacy spent on answers with noise, as the sum of mu^2, mu = clip^2 / deviation (`flower_pca.dp.gaussian`).
    beyond : int
        Masked sums without an answer of this node, for example because the answer was beyond a bound. Each of them
        reveals something about this node alone.
    groups : list of Group
        The groups with which the rows were summed under masks.
    columns : int
        Columns of d numbers that have left the node.
    versions : int
        Versions of the rows that were released, if the node keeps a copy of them: see `storage.versions`.
    reopened : bool
        Whether the operator has erased the copy, so that the next rows are released.
    epoch : int
        How often people have been added to the copy.
    runs : dict
        The version with which each of the newest runs began.
    marks : list of list of int
        The marks by which the node recognizes the table: see `storage.marks`.
    left : list of str
        The names of the keys of nodes that have left for good, in hex: see `leave`.
    """

    answered: int = 0
    spent: float = 0.0
    beyond: int = 0
    groups: list[Group] = field(default_factory=list)
    columns: int = 0
    versions: int = 0
    reopened: bool = False
    epoch: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    marks: list[list[int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def packed(self) -> dict[str, Any]:
        """Return plain values."""
        groups = [[sorted(group.peers), sorted(group.missing), group.epoch] for group in self.groups]
        return {
            **vars(self),
            "groups": groups,
            "runs": dict(self.runs),
            "marks": list(self.marks),
            "left": list(self.left),
        }

    def admit(self, present: frozenset[bytes], *, most: tuple[int, int] | None, lots: bool = False) -> None:
        """Record the group of these nodes, as a new one if another group is allowed.

        Parameters
        ----------
        present : frozenset of bytes
            The names of the keys of all others in the sum.
        most : tuple or None
            The most groups, and the most members of each group that may be missing from its sums.
        lots : bool, default=False
            Whether a group other than the last one is admitted only after people have been added to the rows. Otherwise
            the difference of two sums over the same rows would be the answers of nodes in only one of the groups.
        """
        here = frozenset(name.hex() for name in present)
        groups, losses = most or (len(self.groups) + 1, self.beyond)
        if self.beyond > losses:
            raise RefusalError(
                f"{self.beyond} masked sums of this node have lost a member, but its rule max-dropouts allows "
                f"{losses}. Each such sum reveals how large the answers beyond the bounds are. The node's operator can "
                "raise max-dropouts."
            )
        gone = frozenset(self.left)
        if here & gone:
            raise RefusalError(
                "A node of this masked sum has left for good, by flower-pca leave at this node. Start the run without "
                "it, or ask the node's operator."
            )
        fits = [i for i, g in enumerate(self.groups) if here <= g.peers and len(g.absentees(here) - gone) <= losses]
        if fits:
            found = min(fits, key=lambda i: len(self.groups[i].peers - here))
            self._require_lot(lots, self.groups[found])
            self.groups[found].missing = self.groups[found].absentees(here) - gone
            self.groups[found].epoch = self.epoch
            return
        if len(self.groups) >= groups:
            count = labels.count(groups, "group")
            raise RefusalError(
                f"This node sums with at most {count} of peers, of whom at most {losses} may be lost (its rules "
                "max-groups and max-dropouts), but this is another group. Each further group, and each lost member, "
                "reveals answers of the nodes that are in only one of two sums. Start the run with the earlier nodes, "
                "or ask the operator to raise max-groups."
            )
        self._require_lot(lots, None)
        self.groups.append(Group(here, epoch=self.epoch))

    def _require_lot(self, lots: bool, own: Group | None) -> None:
        if lots and any(group.epoch == self.epoch for group in self.groups if group is not own):
            raise RefusalError(
                "This node was summed with other nodes, and nobody has been added to its rows since. The difference "
                "of two sums over the same rows would be the answers of the nodes that are in only one of them. "
                "Continue with the nodes of before, or wait until min_change people have been added at every node."
            )


@contextlib.contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """Open and lock the ledger in a file. A changed one is written at the end, unless an error occurs."""
    with folders.lock(path):
        if not path.exists():
            _require_ledgers(path.parent)
        ledger = read(path)
        before = ledger.packed()
        yield ledger
        # Unnecessary writes wear out the memory card of a small board, and masked sums open the ledger twice a
        # message.
        if ledger.packed() != before or not path.exists():
            write(path, ledger)


def same_rows(path: Path, data: LocalData) -> list[Path]:
    """Return the folder's other ledgers that know these rows or their file, and add the rows' marks to this ledger."""
    _require_key(path.parent)
    with open_ledger(path) as ledger:
        mine = marks.marks_of(data, path.parent, ledger.marks)
        ledger.marks = marks.added(mine, ledger.marks)
        every = list(ledger.marks)
    others = folders.ledgers_beside(path)
    known = ((other, read(other).marks) for other in others if other != path)
    return [other for other, theirs in known if any(marks.common(a, b) for a in every for b in theirs)]


def _require_ledgers(folder: Path) -> None:
    """Refuse a new ledger next to released rows whose own ledger is gone, because these may be the same rows."""
    for rows in sorted(folder.glob(folders.ROWS.format("*"))):
        if not (gone := folders.ledger_of(rows)).exists():
            raise RefusalError(
                f"{gone.name} of this node is missing, but the rows that it has released are still there. Its operator "
                "must put the ledger back, or run flower-pca forget --what rows --what ledger."
            )


def _require_key(folder: Path) -> None:
    """Refuse ledgers whose marks cannot be compared any more, because the same rows could get a second budget."""
    known = [path.name for path in sorted(folder.glob(folders.LEDGER.format("*"))) if read(path).marks]
    # The key is tested last, because it is written before any marks.
    if known and not marks.has_key(folder):
        raise RefusalError(
            f"{marks.KEY} of this node is missing, and without it {', '.join(known)} cannot be compared with the rows "
            "of the node. Its operator must put the file back, or run flower-pca forget --what ledger for each "
            "of these."
        )


def marks_in(path: Path) -> list[list[int]]:
    """Return the marks of the tables that a ledger knows."""
    return read(path).marks


def summed_with(path: Path, name: str) -> bool:
    """Return whether the node was summed with the node that has this key."""
    return any(name in group.peers for group in read(path).groups)


def leave(path: Path, name: str) -> None:
    """Mark a node that was summed with this one as gone for good. Its groups continue without it."""
    with open_ledger(path) as ledger:
        if name not in ledger.left:
            ledger.left = [*ledger.left, name]


def reopen(path: Path) -> None:
    """Tell a locked ledger that the copy of the rows was erased. Budgets and groups stay."""
    ledger = read(path)
    ledger.reopened, ledger.runs = True, {}
    write(path, ledger)


def write(path: Path, ledger: Ledger) -> None:
    """Write a locked ledger."""
    files.write(path, _KIND, ledger.packed(), {}, private=True)


def read(path: Path) -> Ledger:
    """Return the ledger in a file, or an empty one if there is no file."""
    try:
        header, _ = files.read(path, _KIND, private=True)
        listed = header["groups"]
        groups = [Group(frozenset(peers), frozenset(missing), int(epoch)) for peers, missing, epoch in listed]
        return Ledger(
            answered=int(header["answered"]),
            spent=float(header["spent"]),
            beyond=int(header["beyond"]),
            groups=groups,
            columns=int(header["columns"]),
            versions=int(header["versions"]),
            reopened=bool(header["reopened"]),
            epoch=int(header["epoch"]),
            marks=[[int(mark) for mark in marks] for marks in header["marks"]],
            left=[str(name) for name in header["left"]],
            runs={str(run): int(version) for run, version in header["runs"].items()},
        )
    except FileNotFoundError:
        return Ledger()
    except (
        FlowerPCAError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # treating the ledger as empty would forget what was sent
        raise RefusalError(
            f"{path.name} of this node was not written by this node, or is damaged. Its operator must check it, or "
            "run flower-pca forget --what ledger."
        ) from error


class Account:
    """The account of what a node sends, counted over all runs and checked against its rules.

    Parameters
    ----------
    rules : Rules
        The node's rules.
    context : Context or None, default=None
        Its Flower context.
    """

    def __init__(self, rules: Rules, *, context: Context | None = None) -> None:
        self._rules = rules
        data = folders.data_of(rules.data_name, folders.partition_of(context))
        self._path = folders.ledger_file(rules.memory_dir, data)
        # The ledgers in which this node counts: its own, and those that know the same rows
        self._paths = [self._path]
        self._known = False

    @property
    def path(self) -> Path:
        """The path of the node's own ledger."""
        return self._path

    def count(self) -> None:
        """Count a message over all runs, because even a refusal may reveal something."""
        if self._rules.max_messages_ever is not None:
            with self._open() as ledgers:
                self._count(ledgers)

    def know(self, data: LocalData | Stream) -> None:
        """Find the ledgers that know this node's rows under any partition-id."""
        if self._known or not self._rules.keeps_ledger or isinstance(data, Stream):
            return
        others = same_rows(self._path, data)
        self._known = True
        named = [path for path in (self._path, *others) if folders.is_named(path)]
        if others and named:
            logging.getLogger("flwr").warning(
                "%s and %s know the same rows, but count separately, because data_name names one of them. Give every "
                "node that serves these rows the same data_name.",
                self._path.name,
                ", ".join(path.name for path in others),
            )
        if folders.is_named(self._path):
            return
        unnamed = [path for path in others if path not in named]
        self._paths = sorted([self._path, *unnamed])
        if unnamed and self._rules.max_messages_ever is not None:
            with self._open(unnamed) as ledgers:
                self._count(ledgers)

    @contextlib.contextmanager
    def _open(self, paths: list[Path] | None = None) -> Iterator[list[Ledger]]:
        """Open the ledgers in which this node counts, locked in the order of their names."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(open_ledger(path)) for path in paths or self._paths]

    def _count(self, ledgers: list[Ledger]) -> None:
        most = self._rules.max_messages_ever
        assert most is not None
        for ledger in ledgers:
            if ledger.answered >= most:
                raise RefusalError(
                    f"This node has answered {labels.count(most, 'message')}, which is its max_messages_ever. "
                    f"{OPERATOR}"
                )
            ledger.answered += 1

    def demands(self, request: wire.Request) -> Demands:
        """Return what the node requires of the other nodes in a sum."""
        rules = self._rules
        named = rules.trusted_keys is not None
        admits: Admit | None = None

        def admit(present: frozenset[bytes], /, *, reveals: bool) -> None:
            with self._open() as ledgers:
                for ledger in ledgers:
                    # While the sum is not revealed yet, the ledger is only asked.
                    found = ledger if reveals else copy.deepcopy(ledger)
                    found.admit(present, most=rules.group_limits, lots=rules.min_change is not None)

        if named and rules.keeps_ledger:
            # Without trusted keys, a server can invent peers, so groups mean nothing.
            admits = admit
        # Whether a column has values may depend on a single row, which a node with a budget must not reveal.
        blind = rules.max_epsilon is not None
        return Demands(
            rules.identity,
            rules.min_peers,
            rules.max_colluders,
            admits,
            request.run,
            named,
            least_values=None if blind else rules.min_rows,
            measured=rules.masked_only and not blind,
        )

    def lose(self) -> None:
        """Count a masked sum without this node's answer, because its absence tells about this node alone."""
        if self._rules.counts_groups:
            with self._open() as ledgers:
                for ledger in ledgers:
                    ledger.beyond += 1

    def weigh(self, request: wire.Request, data: LocalData | Stream, up: Arrays) -> None:
        """Refuse an answer that would, with all earlier ones, reveal more than the node allows."""
        if not self._rules.keeps_ledger:
            return
        stage: str | None = request.stage
        if stage == messages.STAGE:
            stage = messages.inner_stage(request.arrays)
        if stage is None:
            return  # a set-up of masks and an unmasking reveal nothing about rows
        with self._open() as ledgers:
            for ledger in ledgers:
                self._weigh_noise(ledger, request)
                self._count_columns(ledger, stage, request, data, up)

    def _weigh_noise(self, ledger: Ledger, request: wire.Request) -> None:
        most = self._rules.budget
        if most is None:
            return
        ledger.spent += noise.cost(request.layers.get(NOISE, {}))
        if ledger.spent > most * (1.0 + _ROUNDING):
            raise RefusalError(
                "With this message the node would spend more on its rows than its max_epsilon allows: "
                f"{self._rules.max_epsilon:g} at delta {self._rules.max_delta:g}. {OPERATOR}"
            )

    def _count_columns(
        self, ledger: Ledger, stage: str, request: wire.Request, data: LocalData | Stream, up: Arrays
    ) -> None:
        """Count the numbers of an answer as columns of d numbers. Under masks, count those that the sum shows.

        A single whole number, such as the number of rows, does not count. One number for each column does.
        """
        if (most := self._rules.max_columns) is None:
            return
        d = data.d or _columns(stage, request, up)
        parts = registry.STAGES[stage].parts(Message(messages.plain(request.arrays)), d)
        if request.stage == messages.STAGE:
            shapes = {name: [side or 0 for side in part.shape] for name, part in parts.items()}
            sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        else:
            sizes = {name: up[name].size for name in parts}
        numbers = [size for name, size in sizes.items() if size > 1 or not parts[name].kind.whole]
        ledger.columns += -(-sum(numbers) // d)
        if ledger.columns > most:
            raise RefusalError(
                f"With this message {ledger.columns} columns of numbers would leave this node, but its max_columns is "
                f"{most}. {OPERATOR}"
            )


def _columns(stage: str, request: wire.Request, up: Arrays) -> int:
    """Return how many columns a stream's rows have, by the message or else by the answer."""
    sent, asks = messages.plain(request.arrays), registry.STAGES[stage].asks
    counts = [int(a) for name, a in sent.items() if asks[name].counts_columns]
    arrays = (*sent.values(), *messages.plain(up).values())
    blocks = [len(a) for a in arrays if a.ndim == 2]
    return max([1, *counts, *blocks])
