"""The ledger: a record of what a node has sent about its rows over all runs, whatever the server calls these runs.

Each node has one ledger, or one ledger for the data that its operator names (`data_name`). The ledger stays
valid if rows are added, so that one more row does not start a new budget. It also stays valid if the order,
precision or storage of rows changes, or if messages come by another transport. The server cannot influence the
name of the ledger.
The ledger is read, checked and written under one lock before an answer leaves the node. An answer that could
not be sent still counts as sent.

`Account` is the node's view of the ledger. It counts a message before the node reads its rows for this message.
Before an answer leaves the node, `Account` checks it together with everything that was sent before.
"""

from __future__ import annotations

import contextlib
import copy
import functools
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
from flower_pca.clients.policy.limits import stage_asked
from flower_pca.clients.policy.refusals import OPERATOR, RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.storage import folders, marks
from flower_pca.core.kinds import Message
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE, noise
from flower_pca.masking import messages
from flower_pca.masking.messages import AdmitsGroup, SumConditions
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

_ROUNDING: Final = 1e-9  # the relative tolerance for rounding errors in sums of budgets
_KIND: Final = "ledger of a node"


@dataclass
class SummedGroup:
    """A group of other nodes with which the rows were summed under masks.

    Attributes
    ----------
    peers : frozenset of str
        The names of the members' keys, in hex.
    missing : frozenset of str
        The members that were missing from at least one sum, by the names of their keys.
    epoch : int
        The ledger's epoch at the newest sum of the group.
    """

    peers: frozenset[str]
    missing: frozenset[str] = frozenset()
    epoch: int = 0

    def absentees(self, present: frozenset[str]) -> frozenset[str]:
        """Return the members that are missing from at least one sum, including a sum with only `present` nodes."""
        return self.missing | (self.peers - present)


@dataclass
class Ledger:
    """A record of what a node has sent about its rows.

    Attributes
    ----------
    answered : int
        The number of messages, including refused ones. They are counted only if a rule limits them.
    spent : float
        The privacy budget spent on answers with noise: the sum of mu^2, where mu = clip^2 / deviation
        (`flower_pca.dp.gaussian`).
    beyond : int
        The number of masked sums without an answer from this node, for example because the answer exceeded a bound.
        Each such sum reveals something about this node alone.
    groups : list of SummedGroup
        The groups with which the rows were summed under masks.
    columns : int
        The number of columns of d numbers that have left the node.
    versions : int
        The number of versions of the rows that were released, if the node keeps a copy: see `storage.versions`.
    reopened : bool
        Whether the operator has erased the copy, so that the present rows may be released.
    epoch : int
        The number of times that people were added to the copy.
    runs : dict
        The version of the rows with which each of the most recent runs began, by a digest of the run's name.
    marks : list of list of int
        The marks by which the node recognizes its tables: see `storage.marks`.
    left : list of str
        The names of the keys of nodes that have left for good, in hex: see `record_departure`.
    """

    answered: int = 0
    spent: float = 0.0
    beyond: int = 0
    groups: list[SummedGroup] = field(default_factory=list)
    columns: int = 0
    versions: int = 0
    reopened: bool = False
    epoch: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    marks: list[list[int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the ledger's values in a form that JSON can store."""
        groups = [[sorted(group.peers), sorted(group.missing), group.epoch] for group in self.groups]
        return {
            **vars(self),
            "groups": groups,
            "runs": dict(self.runs),
            "marks": list(self.marks),
            "left": list(self.left),
        }

    def admit(self, present: frozenset[bytes], *, most: tuple[int, int] | None, allowed_lots: bool = False) -> None:
        """Record a sum with these nodes: in a group that contains them, or in a new group if the limits allow one.

        Parameters
        ----------
        present : frozenset of bytes
            The names of the keys of all other nodes in the sum.
        most : tuple or None
            The maximum number of groups, and of members of each group that may be missing from its sums. None sets no
            limit.
        allowed_lots : bool, default=False
            Whether a different group is admitted only after people have been added to the rows, as under `min_change`.
            Otherwise, the difference of two sums over the same rows would reveal the answers of nodes that are in only
            one of the groups.

        Raises
        ------
        RefusalError
            If the limits do not allow the sum.
        """
        here = frozenset(name.hex() for name in present)
        groups, losses = most or (len(self.groups) + 1, self.beyond)
        if self.beyond > losses:
            raise RefusalError(
                f"{labels.count(self.beyond, 'masked sum')} had to be formed without an answer from this node, but its "
                f"rule max-dropouts allows only {losses}. Each such sum reveals how large the node's answer is. Ask "
                "the node's operator to raise max-dropouts."
            )
        gone = frozenset(self.left)
        if here & gone:
            raise RefusalError(
                "A node of this masked sum has left for good, as recorded by flower-pca leave at this node. Start the "
                "run without the node that has left, or ask this node's operator."
            )
        fits = [i for i, g in enumerate(self.groups) if here <= g.peers and len(g.absentees(here) - gone) <= losses]
        if fits:
            found = min(fits, key=lambda i: len(self.groups[i].peers - here))
            self._require_allowed_lot(allowed_lots, self.groups[found])
            self.groups[found].missing = self.groups[found].absentees(here) - gone
            self.groups[found].epoch = self.epoch
            return
        if len(self.groups) >= groups:
            count = labels.count(groups, "group")
            raise RefusalError(
                f"This node sums with at most {count} of peers, of whom at most {losses} may be lost (its rules "
                "max-groups and max-dropouts), but this sum has another group. Each further group, and each lost "
                "member, reveals answers of the nodes that are in only one of two sums. Start the run with the same "
                "nodes as before, or ask the node's operator to raise max-groups."
            )
        self._require_allowed_lot(allowed_lots, None)
        self.groups.append(SummedGroup(here, epoch=self.epoch))

    def _require_allowed_lot(self, allowed_lots: bool, peers: SummedGroup | None) -> None:
        if allowed_lots and any(group.epoch == self.epoch for group in self.groups if group is not peers):
            raise RefusalError(
                "This node has already taken part in sums with other nodes, and nobody has been added to its rows "
                "since. The difference of two sums over the same rows would reveal the answers of the nodes that are "
                "in only one of these sums. Continue with the same nodes as before, or wait until min_change people "
                "have been added at every node."
            )


@contextlib.contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """Lock the ledger in a file and yield it. At the end, write it if it has changed and no error has occurred."""
    with folders.lock_file(path):
        if not path.exists():
            _require_ledgers(path.parent)
        ledger = read(path)
        before = ledger.to_json()
        yield ledger
        # An unchanged ledger is not written, because masked sums open the ledger twice for each message, and frequent
        # writing wears out memory cards.
        if ledger.to_json() != before or not path.exists():
            write(path, ledger)


def ledgers_of_same_rows(path: Path, data: LocalData) -> list[Path]:
    """Return the other ledgers of these rows, or of their file, in the folder. Also add the rows' marks to `path`."""
    _require_key(path.parent)
    with open_ledger(path) as ledger:
        mine = marks.marks_of(data, path.parent, ledger.marks)
        ledger.marks = marks.with_table(mine, ledger.marks)
        every = list(ledger.marks)
    others = folders.ledgers_beside(path)
    known = ((other, read(other).marks) for other in others if other != path)
    return [other for other, theirs in known if any(marks.have_common_rows(a, b) for a in every for b in theirs)]


def _require_ledgers(folder: Path) -> None:
    """Refuse to make a new ledger if the ledger of released rows in the folder is missing.

    The new ledger could be for the same rows, and would give them a second budget.
    """
    for rows in sorted(folder.glob(folders.ROWS.format("*"))):
        if not (gone := folders.ledger_of(rows)).exists():
            raise RefusalError(
                f"The ledger {gone.name} of this node is missing, but the rows that the node has released still exist. "
                "Its operator must restore the ledger, or run flower-pca forget --what rows --what ledger."
            )


def _require_key(folder: Path) -> None:
    """Raise RefusalError if the key is missing with which the marks in the folder's ledgers were made.

    Without the key, marks cannot be compared, and the same rows could get a second budget.
    """
    known = [path.name for path in sorted(folder.glob(folders.LEDGER.format("*"))) if read(path).marks]
    # Another process writes the key before any marks, so the key must be looked up after the marks.
    if known and not marks.has_key(folder):
        raise RefusalError(
            f"The file {marks.KEY} of this node is missing. Without it, {', '.join(known)} cannot be compared with the "
            "rows of the node. Its operator must restore the file, or run flower-pca forget --what ledger for each of "
            "these ledgers."
        )


def marks_in(path: Path) -> list[list[int]]:
    """Return the marks of the tables for which a ledger has counted."""
    return read(path).marks


def has_summed_with(path: Path, name: str) -> bool:
    """Return whether the node has taken part in a sum with the node whose key has this name."""
    return any(name in group.peers for group in read(path).groups)


def record_departure(path: Path, name: str) -> None:
    """Record that the node whose key has this name has left for good. Groups with this node continue without it."""
    with open_ledger(path) as ledger:
        if name not in ledger.left:
            ledger.left = [*ledger.left, name]


def reopen(path: Path) -> None:
    """Record in a locked ledger that the copy of the rows was erased. Budgets and groups remain."""
    ledger = read(path)
    ledger.reopened, ledger.runs = True, {}
    write(path, ledger)


def write(path: Path, ledger: Ledger) -> None:
    """Write a ledger to its file, which the caller has locked."""
    files.write(path, _KIND, ledger.to_json(), {}, private=True)


def read(path: Path) -> Ledger:
    """Return the ledger in a file, or an empty one if there is no file."""
    try:
        header, _ = files.read(path, _KIND, private=True)
        listed = header["groups"]
        groups = [SummedGroup(frozenset(peers), frozenset(missing), int(epoch)) for peers, missing, epoch in listed]
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
    except (FlowerPCAError, AttributeError, KeyError, TypeError, ValueError) as error:
        # A damaged ledger must not count as empty, because the node would then forget what it has sent.
        raise RefusalError(
            f"The ledger {path.name} of this node is damaged, or another program wrote it. Its operator must restore "
            "it, or run flower-pca forget --what ledger."
        ) from error


class Account:
    """A view of a node's ledgers that checks and counts each message and answer according to the node's rules.

    Parameters
    ----------
    rules : Rules
        The node's rules.
    context : Context or None, default=None
        The node's Flower context.
    """

    def __init__(self, rules: Rules, *, context: Context | None = None) -> None:
        self._rules, self._context = rules, context
        # The other ledgers of the same rows, in which the node counts its answers, too
        self._others: list[Path] = []
        self._known = False

    @functools.cached_property
    def path(self) -> Path:
        """The path of the node's own ledger."""
        data = folders.data_name_of(self._rules.data_name, folders.partition_of(self._context))
        return folders.ledger_file(self._rules.memory_dir, data)

    def count_message(self) -> None:
        """Count a message over all runs, if a rule limits their number. Refused messages count, too."""
        if self._rules.max_messages_ever is not None:
            with self._open_ledgers() as ledgers:
                self._count_message_in(ledgers)

    def find_ledgers(self, data: LocalData | Stream) -> None:
        """Find all ledgers of this node's rows in the folder, so that the node counts in each of them."""
        if self._known or not self._rules.keeps_ledger or isinstance(data, Stream):
            return
        others = ledgers_of_same_rows(self.path, data)
        self._known = True
        named = [path for path in (self.path, *others) if folders.is_named(path)]
        if others and named:
            logging.getLogger("flwr").warning(
                "The ledgers %s and %s are for the same rows, but count separately, because data_name names at least "
                "one of them. Give every node that serves these rows the same data_name.",
                self.path.name,
                ", ".join(path.name for path in others),
            )
        if folders.is_named(self.path):
            return
        unnamed = [path for path in others if path not in named]
        self._others = unnamed
        if unnamed and self._rules.max_messages_ever is not None:
            with self._open_ledgers(unnamed) as ledgers:
                self._count_message_in(ledgers)

    @contextlib.contextmanager
    def _open_ledgers(self, paths: list[Path] | None = None) -> Iterator[list[Ledger]]:
        """Open and lock the ledgers in which this node counts its answers, in the order of their names."""
        with contextlib.ExitStack() as stack:
            every = paths or sorted([self.path, *self._others])
            yield [stack.enter_context(open_ledger(path)) for path in every]

    def _count_message_in(self, ledgers: list[Ledger]) -> None:
        most = self._rules.max_messages_ever
        assert most is not None
        for ledger in ledgers:
            if ledger.answered >= most:
                raise RefusalError(
                    f"This node has answered {labels.count(most, 'message')}, which is its max_messages_ever. "
                    f"{OPERATOR}"
                )
            ledger.answered += 1

    def demands(self, request: wire.ServerRequest) -> SumConditions:
        """Return the conditions under which the node takes part in a masked sum."""
        rules = self._rules
        named = rules.trusted_keys is not None
        admits: AdmitsGroup | None = None

        def admit(present: frozenset[bytes], /, *, reveals: bool) -> None:
            with self._open_ledgers() as ledgers:
                for ledger in ledgers:
                    # As long as the server cannot learn the sum, the check uses a copy, so that nothing is recorded.
                    found = ledger if reveals else copy.deepcopy(ledger)
                    found.admit(present, most=rules.group_limits, allowed_lots=rules.min_change is not None)

        if named and rules.keeps_ledger:
            # Groups are checked only with trusted keys. Otherwise, a server could invent the peers of a group.
            admits = admit
        # A node with a privacy budget does not tell its peers which columns have values, because this may depend on a
        # single row.
        blind = rules.max_epsilon is not None
        return SumConditions(
            rules.identity,
            rules.min_peers,
            rules.max_colluders,
            admits,
            request.run,
            named,
            least_values=None if blind else rules.min_rows,
            measured=rules.masked_only and not blind,
        )

    def count_lost_sum(self) -> None:
        """Count a masked sum without this node's answer, because a missing answer reveals something about this node."""
        if self._rules.limits_groups:
            with self._open_ledgers() as ledgers:
                for ledger in ledgers:
                    ledger.beyond += 1

    def count_answer(self, request: wire.ServerRequest, data: LocalData | Stream, answer: Arrays) -> None:
        """Count an answer in the ledgers. Refuse it if, with all earlier answers, it would reveal more than allowed."""
        if not self._rules.keeps_ledger:
            return
        stage = stage_asked(request)
        if stage is None:
            return  # Setting up masks and removing them sends nothing about rows.
        with self._open_ledgers() as ledgers:
            for ledger in ledgers:
                self._count_noise(ledger, request)
                self._count_columns(ledger, stage, request, data, answer)

    def _count_noise(self, ledger: Ledger, request: wire.ServerRequest) -> None:
        most = self._rules.total_budget
        if most is None:
            return
        ledger.spent += noise.privacy_cost(request.layers.get(NOISE, {}))
        if ledger.spent > most * (1.0 + _ROUNDING):
            raise RefusalError(
                "With this message, the node would spend more privacy budget than its max_epsilon allows: "
                f"{self._rules.max_epsilon:g} at delta {self._rules.max_delta:g}. {OPERATOR}"
            )

    def _count_columns(
        self, ledger: Ledger, stage: str, request: wire.ServerRequest, data: LocalData | Stream, answer: Arrays
    ) -> None:
        """Count the numbers in an answer, as columns of d numbers. Under masks, count the numbers in the sum.

        A single whole number, such as the number of rows, does not count. An array with one number for each column
        counts, even if the numbers are whole.
        """
        if (most := self._rules.max_columns) is None:
            return
        d = data.d or _stream_columns(stage, request, answer)
        parts = registry.STAGES[stage].parts(Message(messages.stage_arrays(request.arrays)), d)
        if request.stage == messages.STAGE:
            shapes = {name: [side or 0 for side in part.shape] for name, part in parts.items()}
            sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        else:
            sizes = {name: answer[name].size for name in parts}
        numbers = [size for name, size in sizes.items() if size > 1 or not parts[name].kind.whole]
        ledger.columns += -(-sum(numbers) // d)
        if ledger.columns > most:
            raise RefusalError(
                f"With this message, {labels.count(ledger.columns, 'column')} of numbers would have left this node "
                f"over all runs, but its max_columns is {most}. {OPERATOR}"
            )


def _stream_columns(stage: str, request: wire.ServerRequest, answer: Arrays) -> int:
    """Return the number of columns of a stream's rows, inferred from the arrays of the message and of the answer."""
    sent, asks = messages.stage_arrays(request.arrays), registry.STAGES[stage].asks
    counts = [int(a) for name, a in sent.items() if asks[name].counts_columns]
    arrays = (*sent.values(), *messages.stage_arrays(answer).values())
    blocks = [len(a) for a in arrays if a.ndim == 2]
    return max([1, *counts, *blocks])
