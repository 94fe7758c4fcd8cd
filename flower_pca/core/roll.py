"""Roll: the list of a run's clients, which decides which clients count. It holds no arrays, messages or clock.

A client is in one of four states. The last column shows when a state begins:

| state   | what it means                            | is asked by                | begins when                       |
| ------- | ---------------------------------------- | -------------------------- | --------------------------------- |
| unknown | no opening has asked the client yet      | openings and ANYONE        | the run begins, or readmits it    |
| member  | mean, scale and totals include its rows  | all messages               | an opening is complete with it    |
| unfit   | it did not answer the latest opening     | the next opening           | an opening is complete without it |
| banned  | its answer was wrong, a rule of its node | no message, until it is    | it has a lasting failure          |
|         | refuses the run, or it failed too often  | readmitted                 |                                   |

A message goes to one of six audiences (`Audience`):

| call    | goes to these clients among those present                                        |
| ------- | -------------------------------------------------------------------------------- |
| OPENING | all clients that are not banned                                                  |
| OPENED  | the clients that answered the first of two messages of an opening                |
| MEMBERS | the members, who must all answer, because the state belongs to them              |
| COUNTED | the members, for a figure about their rows that the result can do without        |
| ANYONE  | all clients that are neither banned nor unfit                                    |
| SAMPLE  | a share of ANYONE, drawn from random orders so that all clients get equal turns  |

The clients that answered decide how the run continues (`Attendance`):

| call            | answered by                   | attendance                                                      |
| --------------- | ----------------------------- | --------------------------------------------------------------- |
| OPENING, OPENED | all clients that were asked   | COMPLETE: they become the members                               |
|                 | some of them, the first time  | AGAIN: only the others are asked. COMPLETE if answers come as   |
|                 |                               | sums                                                            |
|                 | some of them, the second time | COMPLETE: the others become unfit                               |
| MEMBERS         | all members                   | COMPLETE                                                        |
|                 | some of them, the first time  | AGAIN: only the others are asked. LOST if answers come as sums, |
|                 |                               | or if a member is banned                                        |
|                 | some of them, the second time | LOST: the run repeats the opening                               |
| COUNTED         | all members                   | COMPLETE                                                        |
|                 | some of them, the first time  | AGAIN: only the others are asked. COMPLETE if answers come as   |
|                 |                               | sums                                                            |
|                 | some of them, the second time | COMPLETE, but not `whole`                                       |
| ANYONE, SAMPLE  | at least one client           | COMPLETE, and `whole` if exactly the members answered           |
| any             | fewer than the minimum number | AGAIN, or an error the third time in a row                      |

The minimum number is min_nodes, or the size of the sample if that is smaller.

If the caller chooses not to ask a client, the client has not failed. If the call allows missing clients,
the round is COMPLETE without such a client. Otherwise the attendance is AGAIN, as long as the caller
asks some of the missing clients within three messages.

A run is also lost if no client that a message needs can be reached. A run without an opening asks all
clients every time: it calls ANYONE, has no members, and is never lost.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import files, labels
from flower_pca.base.errors import NotEnoughNodes

_MOST_SILENT: Final = 3  # number of messages in a row without enough answers after which a run ends with an error
_NOBODY: Final[frozenset[int]] = frozenset()
# If the same clients have answered this many rounds in a row, the run no longer waits for the other members, and
# repeats the opening. So a client may miss up to three rounds, for example because it restarts.
_SETTLED: Final = 4
_KEPT: Final = ("whole", "loss", "silent", "times", "why")
_SAVED_SETS: Final = ("members", "unfit", "banned", "addressees", "contributors", "others")


class Audience(enum.Enum):
    """The audience of a message."""

    OPENING = "opening"
    OPENED = "opened"
    MEMBERS = "members"
    COUNTED = "counted"
    ANYONE = "anyone"
    SAMPLE = "sample"


_OPENINGS: Final = (Audience.OPENING, Audience.OPENED)


class Attendance(enum.Enum):
    """The way in which a run continues after the answers to a message."""

    COMPLETE = "complete"
    AGAIN = "again"
    LOST = "lost"


@dataclass(frozen=True, kw_only=True)
class Roll:
    """The clients of a run with their states, and the rules by which a client changes its state.

    Attributes
    ----------
    opens : bool
        Whether the run has an opening, which makes members. Without an opening, all clients are asked every time.
    min_nodes : int
        The minimum number of clients.
    fraction : float
        The share of the present clients in a SAMPLE.
    seed : int
        The seed of samples. A sample also depends on the number of the message in its stage.
    summed : bool
        Whether answers come as sums, so that a message cannot be repeated for some clients only.
    everyone : bool
        Whether the run needs all clients that were ever asked, because each holds columns that no other client has.
    members, unfit, banned : frozenset of int
        The clients in these states.
    addressees : frozenset of int
        The clients to which the current opening was first sent.
    contributors : frozenset of int
        The clients whose answers are in the state: the clients that answered since the latest opening, or since the
        latest round of exactly the members. Without an opening, all clients that have ever answered.
    came : frozenset of int
        The clients that have answered a message that is repeated for other clients.
    awaited : frozenset of int
        The clients for which this message is repeated. It is empty if no message is repeated.
    whole : bool
        Whether exactly the members answered in the latest round.
    others : frozenset of int
        The clients that answered in the latest round, if they are not exactly the members.
    times : int
        The number of rounds in a row that exactly these `others` have answered.
    heard : frozenset of int
        The clients that have answered since the caller first chose not to ask some clients.
    chosen : bool
        Whether the caller chose not to ask the clients that are missing in the latest round.
    loss : bool
        Whether the run must repeat the opening, because it has lost a client on which its state depends.
    silent : int
        The number of messages in a row that too few clients have answered.
    why : str
        The reason of the first failure, which an error at the end of the run quotes.
    """

    opens: bool = True
    min_nodes: int = 1
    fraction: float = 1.0
    seed: int = 0
    summed: bool = False
    everyone: bool = False
    members: frozenset[int] = _NOBODY
    unfit: frozenset[int] = _NOBODY
    banned: frozenset[int] = _NOBODY
    addressees: frozenset[int] = _NOBODY
    contributors: frozenset[int] = _NOBODY
    came: frozenset[int] = _NOBODY
    awaited: frozenset[int] = _NOBODY
    whole: bool = True
    others: frozenset[int] = _NOBODY
    times: int = 0
    heard: frozenset[int] = _NOBODY
    chosen: bool = False
    loss: bool = False
    silent: int = 0
    why: str = ""

    def present_clients(self, clients: Iterable[int]) -> tuple[int, ...]:
        """Return the clients that can be asked, in order. Raise NotEnoughNodes if there are too few."""
        here = tuple(clients)
        if self.banned:
            here = tuple(client for client in here if client not in self.banned)
        if len(here) < self.min_nodes:
            out = len(self.banned)
            got = f"{len(here)} {'is' if len(here) == 1 else 'are'} present" + (
                f", and the run has excluded {out}{self.reason_in_words}" if out else ""
            )
            raise NotEnoughNodes(
                f"The run needs {labels.count(self.min_nodes, 'client')}, but {got}. Start more clients, or lower "
                "min_nodes."
            )
        return here

    @property
    def reason_in_words(self) -> str:
        """The reason of the first failure, as the end of a sentence, or "" if no client has failed."""
        if self.why:
            return f", the first because: {self.why.rstrip('.')}"
        return ""

    def addressees_of(self, call: Audience, present: tuple[int, ...], *, number: int) -> tuple[int, ...]:
        """Return the clients to which the next message is sent, or an empty tuple if no suitable client is present."""
        if self.awaited:
            return tuple(client for client in present if client in self.awaited)
        if call is Audience.OPENING:
            return present
        if call in (Audience.OPENED, Audience.MEMBERS, Audience.COUNTED):
            if self.members.issuperset(present):
                return present
            return tuple([client for client in present if client in self.members])
        fit = tuple(client for client in present if client not in self.unfit)
        if call is Audience.SAMPLE and fit:
            size = max(1, round(self.fraction * len(fit)))
            # The samples are consecutive parts of a random order of the clients. After `times` messages, every client
            # was in equally many samples, and a new order is drawn.
            samples = len(fit) // math.gcd(len(fit), size)
            # The order depends only on seed and number. So a run that continues from a checkpoint asks the same
            # clients.
            order = np.random.default_rng([self.seed, number // samples]).permutation(len(fit))
            first = number % samples * size
            turn = order.take(range(first, first + size), mode="wrap")
            # Answers are summed in the order of the clients' keys.
            return tuple(fit[i] for i in sorted(turn))
        return fit

    def with_banned(self, banned: Collection[int], why: str) -> Roll:
        """Return the roll after these clients were banned. `why` is the reason of the first failure, or "".

        Raise NotEnoughNodes if the run needs all clients, and one of them is banned.
        """
        if not banned and not why:
            return self
        failed = replace(self, banned=self.banned.union(banned), why=self.why or why)
        if self.everyone and failed.banned:
            raise failed._lost_columns_error(failed.banned)
        return failed

    def readmit(self, clients: Iterable[int]) -> Roll:
        """Return the roll in which these clients are no longer banned, because they have been restarted."""
        return replace(self, banned=self.banned.difference(clients))

    def after_answers(
        self,
        call: Audience,
        answered: frozenset[int],
        *,
        addressees: Iterable[int],
        may_miss: bool = False,
        unasked: frozenset[int] = _NOBODY,
        sampling: bool = False,
    ) -> tuple[Roll, Attendance]:
        """Return the roll after the answers to a message, and the way in which the run continues.

        Raise NotEnoughNodes after three messages in a row without enough answers, or if the run needs all clients and
        one is lost.

        Parameters
        ----------
        call : Call
            The audience of the message.
        answered : frozenset of int
            The clients that have answered.
        addressees : iterable of int
            The clients to which the message was sent.
        may_miss : bool
            Whether clients that have not answered an opening keep their state.
        unasked : frozenset of int
            The clients that the caller chose not to ask.
        sampling : bool
            Whether the stage allows rounds without some clients.
        """
        if (
            unasked
            and not sampling
            and (waiting := self._waiting_for_unasked(call, answered, addressees=addressees, unasked=unasked))
        ):
            return waiting, Attendance.AGAIN
        second = bool(self.awaited)
        if call is Audience.MEMBERS and self.members - answered:
            if second or self.summed or self.members & self.banned:
                return self.after_loss(), Attendance.LOST
            return replace(self, came=answered, awaited=self.members - answered), Attendance.AGAIN
        once_more = call is Audience.COUNTED and bool(answered) and not (second or self.summed)
        if once_more and (uncounted := self.members - answered - self.banned):
            return replace(self, came=answered, awaited=uncounted), Attendance.AGAIN
        roll = self
        if call in _OPENINGS and not second:
            roll = self._with_addressees(call, addressees)
            missing = roll.addressees - answered
            # If no client has answered, all clients are asked again, and the message counts as silent.
            if answered and missing and not self.summed:
                return replace(roll, came=answered, awaited=missing), Attendance.AGAIN
        least = min(self.min_nodes, len(answered.union(addressees) - unasked))
        if len(answered) < max(least, 1):
            return roll._after_too_few_answers(len(answered), least), Attendance.AGAIN
        return roll.after_complete_round(call, answered, may_miss=may_miss, unasked=unasked), Attendance.COMPLETE

    def _waiting_for_unasked(
        self, call: Audience, answered: frozenset[int], *, addressees: Iterable[int], unasked: frozenset[int]
    ) -> Roll | None:
        """Return the roll that waits for clients that the caller has not asked yet.

        Return None if waiting is useless: answers come as sums, no client has answered, no unasked client is
        missing, or three messages in a row have brought no further answer.
        """
        awaited = (self.awaited or frozenset(addressees)) - answered - self.banned
        silent = 0 if answered > self.came else self.silent + 1
        if self.summed or not answered or not awaited & unasked or silent >= _MOST_SILENT:
            return None
        roll = self._with_addressees(call, addressees) if call in _OPENINGS and not self.awaited else self
        return replace(roll, came=answered, awaited=awaited, silent=silent)

    def _with_addressees(self, call: Audience, addressees: Iterable[int]) -> Roll:
        """Return the roll with the clients that an opening asks. Banned clients are not asked again.

        Unfit clients are asked by the next opening.
        """
        first = frozenset(addressees) if call is Audience.OPENING else self.addressees
        return replace(self, addressees=first - self.banned)

    def after_complete_round(
        self, call: Audience, answered: frozenset[int], *, may_miss: bool = False, unasked: frozenset[int] = _NOBODY
    ) -> Roll:
        """Return the roll after a complete message. `answered` are the clients that have answered."""
        members, unfit, contributors = self.members, self.unfit, self.contributors | answered
        if self.everyone and (gone := (self.members | self.addressees) - answered):
            raise self._lost_columns_error(gone)
        heard, chosen = _NOBODY, False
        if call in _OPENINGS:
            members = contributors = answered
            unfit = _NOBODY if may_miss else self.addressees - answered
        elif unasked or self.heard:
            heard, chosen = self.heard | answered, unasked >= members - answered
        whole = answered == members or not self.opens
        if self.opens and whole:
            # A client that answered an earlier round, but no opening, is in no figure of the result.
            contributors = members
        others, times = (_NOBODY, 0) if whole else (answered, 1)
        if others and others == self.others:
            times = self.times + 1
        return replace(
            self,
            members=members,
            unfit=unfit,
            contributors=contributors,
            came=_NOBODY,
            awaited=_NOBODY,
            whole=whole,
            others=others,
            times=times,
            heard=heard,
            chosen=chosen,
            silent=0,
        )

    @property
    def takes_turns(self) -> bool:
        """Whether each round asks only some of the members, and the members take turns."""
        return self.fraction < 1.0 or (self.chosen and self.heard >= self.members)

    @property
    def has_settled(self) -> bool:
        """Whether the same clients have answered several rounds in a row, although they are not the members.

        This does not apply to samples, which go to different clients each time.
        """
        return self.times >= _SETTLED and not self.takes_turns

    def after_loss(self) -> Roll:
        """Return the roll of a run that has lost a client on which its state depends."""
        return replace(self, came=_NOBODY, awaited=_NOBODY, loss=True)

    def before_opening(self) -> Roll:
        """Return the roll before another opening, which makes new members."""
        return replace(self, came=_NOBODY, awaited=_NOBODY, loss=False, others=_NOBODY, times=0)

    def has_changed(self, present: Iterable[int], *, counted: bool) -> bool:
        """Return whether the present clients differ from the members, so that the latest round proves nothing.

        If `counted` is True, the last answer of an absent member still counts.
        """
        now = frozenset(present)
        # A client that failed in the latest opening does not count as new. Otherwise the run would go back to the
        # opening each time it is about to end.
        joined = now - self.unfit - self.members
        gone = self.members - now
        # Samples leave out members on purpose, so missing members do not count then.
        missed = not self.takes_turns and not counted
        return bool(joined) or (not self.whole and (bool(gone) or missed))

    def to_json(self) -> dict[str, Any]:
        """Return the changes since the run began, as plain values.

        A message that is only partly answered is left out, because a restored run repeats it.
        """
        clients = {name: sorted(getattr(self, name)) for name in _SAVED_SETS}
        return {**clients, **{name: getattr(self, name) for name in _KEPT}}

    def restore(self, header: Mapping[str, Any]) -> Roll:
        """Return the roll that `to_json` has stored, with the rules of this roll."""

        def clients(name: str) -> frozenset[int]:
            return frozenset(files.unpack_value(tuple[int, ...], header[name], {}))

        return replace(
            self,
            members=clients("members"),
            unfit=clients("unfit"),
            banned=clients("banned"),
            addressees=clients("addressees"),
            contributors=clients("contributors"),
            came=_NOBODY,
            awaited=_NOBODY,
            whole=files.unpack_value(bool, header["whole"], {}),
            others=clients("others"),
            times=files.unpack_value(int, header["times"], {}),
            loss=files.unpack_value(bool, header["loss"], {}),
            silent=files.unpack_value(int, header["silent"], {}),
            why=files.unpack_value(str, header["why"], {}),
        )

    def _lost_columns_error(self, lost: Iterable[int]) -> NotEnoughNodes:
        """Return the error for lost clients whose columns no other client has."""
        got = f"no usable answer from {', '.join(f'client {i}' for i in sorted(lost))}"
        if self.why:
            got = f"{got}: {self.why.rstrip('.')}"
        return NotEnoughNodes(
            f"A run over columns needs all parties until its end, but it got {got}. Look at the log of each missing "
            "party, and start the run again."
        )

    def _after_too_few_answers(self, count: int, least: int) -> Roll:
        """Return the roll after a message that too few clients have answered. Raise NotEnoughNodes the third time."""
        silent = self.silent + 1
        if silent >= _MOST_SILENT:
            got = f"{count or 'none'} in {silent} successive rounds{self.reason_in_words}"
            raise NotEnoughNodes(
                f"A message needs {labels.count(max(least, 1), 'usable answer')}, but got {got}. Look at the logs of "
                "these clients."
            )
        return replace(self, silent=silent)
