"""What the server accepts as an answer: the right message, names, shapes, and finite numbers; and what it adds up.

`Tally` takes the answers to one message as they come. Each is checked (whose it is, what its parts
say, how large it is beside what its client has said of its rows, what the stage itself can tell),
and merged at once, so that memory does not grow with the clients, but for two columns of each in
the opening. A wrong answer becomes a failure with a reason, never an exception: the others go on.
The reduction and the failures make a `Collected`.

Claims: what a client has said of its own rows in the opening, and how large its later answers can
be by that.

By Cauchy-Schwarz |C_i z| <= t_i |z|, with t_i the sum of squares of client i's rows in the common
frame, and likewise for all that is made of products with C_i: an answer beyond that is of other
rows, or of none. So a client that has gone wrong, or wants to ruin the run, is named and left out,
whatever the others hold. Which bound an answer is held against, the table of kinds says
(`core.kinds`); where that leaves it to the stage, it is `MARGIN` times the stage's own bound, for
rows of n_i and t_i only.

The opening, which t_i comes from, is held against its own squares by `check_opening`. A stage that
knows no bound of a part has none here either: dcf_pca of its factor, low_rank of its moments.
Nothing is known under masks, where no answer is seen alone, nor with noise. A client without a
claim, as one that came later, is given `MARGIN` times all rows together.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import DataError, ProtocolError, sentence
from flower_pca.base.history import Round
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Part, Reach, fault
from flower_pca.core.layer import Layer
from flower_pca.core.model import Claim, Model
from flower_pca.core.stage import MARGIN, Arrays, Broadcast, Failure, Meter, Reply, Stage, Sum
from flower_pca.names.columns import Heading
from flower_pca.rows.frame import Frame, Moments

_SLACK: Final = 1e-3  # by which sums in single precision may be off
# of the largest number of a column, by which others may be off that have 16 bits
# float16 has no step finer than 2^-24, and a column's largest is 2^14 at least there
_COARSE: Final = 2.0**-38
# roundings of the squares of raw rows, which frames take away again
_ROUNDED: Final = 8.0
_REMEDY: Final = "Check the client's data."


def claim(said: Arrays, frame: Frame) -> Claim:
    """What a client's answer to the opening comes to in a frame: rows, and sum of squares.

    Its gaps are filled as the frame says. What rounding may add is added, at the precision that the
    client has named.
    """
    n = int(said["n"])
    mean = said["mean"]
    centre = 0.0 if frame.mean is None else frame.mean
    moments = Moments(n, mean, said["m2"], said.get("count"))
    rounded = _ROUNDED * float(said["eps"]) * n * (mean**2 + np.square(centre))
    if frame.scale is not None:
        rounded = rounded / frame.scale**2
    return Claim(n, float(np.sum(moments.sums(frame)[1] + rounded)))


def check_opening(said: Arrays, block: Array, *, bits: int = 64) -> None:
    """Require of an answer to the opening what its own moments allow of its product with a block, and of its peaks.

    By Cauchy-Schwarz |x_a'Xb| <= |x_a| sum_j |x_j| |b_j|. The largest |x| of a column is no less
    than the root of its mean square, and no further from its mean than the root of its squared
    deviations. Columns that never vary have products all the same, of what rounding has left in
    their means. Where numbers travel with 16 bits, what is small beside the largest of its column
    is off by more than its own rounding.
    """
    size = np.sqrt(said["m2"].astype(np.float64))
    eps = float(said["eps"])
    means = said["mean"].astype(np.float64)
    of_means = 4.0 * np.finfo(np.float64).eps * means
    rounded = float(said["n"]) * of_means**2
    own = np.sqrt(size**2 + rounded)
    most = np.outer(own, own @ np.abs(block))
    limit = (1.0 + _SLACK) * most + eps * np.max(most, initial=0.0)
    if bits == 16:
        limit = limit + _COARSE * np.max(most, axis=0, initial=0.0)
    if (np.abs(said["product"]) > limit).any():
        raise ProtocolError(
            "The product of an answer to the opening",
            must="as small as the squared deviations beside it say",
            got="larger entries",
            then="Check the client.",
        )
    # all rows are divided by the largest of these: a false one would ruin every client's scale
    if "peak" in said:
        seen = np.asarray(said.get("count", said["n"]))
        mean = np.abs(said["mean"])
        variances = said["m2"] / np.maximum(seen, 1)
        least = (1.0 - _SLACK) * np.sqrt(variances + mean**2)
        furthest = (1.0 + _SLACK) * (mean + size) + _ROUNDED * eps * mean
        fits = (said["peak"] >= least) & (said["peak"] <= furthest)
        # a column without a single value at this client has no mean to hold a peak against
        if not (fits | (seen == 0)).all():
            raise ProtocolError(
                "The peaks of an answer to the opening",
                must="as far out as the means and squared deviations beside them say",
                got="others",
                then="Check the client.",
            )


@dataclass(frozen=True)
class Judge:
    """Holds answers to one message against what clients have said of their rows.

    Args:
        stage: The stage that asks.
        state: Its state.
        model: What is known, claims among it.
    """

    stage: Stage[Any]
    state: Any
    model: Model
    # lengths of the message's columns, by array
    _known: dict[int, Array] = field(default_factory=dict, repr=False)

    def check(self, client: int, up: Arrays, parts: Mapping[str, Part], sent: Arrays) -> None:
        """Raise ProtocolError, naming the client, unless its answer can be of the rows it told of.

        Args:
            client: Who has answered.
            up: What.
            parts: What the answer is made of.
            sent: The message that it has got.
        """
        known = self.model.claims.get(client)
        if known is None:
            own = Claim(int(MARGIN * self.model.n), MARGIN * self.model.trace)
            # of an unknown number of rows the fewest, by which bounds of eigenvalues are divided
            least = 1
            rows = f"{MARGIN:g} times all rows together"
        else:
            own, least, rows = known, known.n, "its own rows"
        of_stage: dict[str, Any] | None = None
        for name, part in parts.items():
            if part.kind.counts_rows:
                if known is not None and int(up[name]) != own.n:
                    what = f"The answer of client {client}, {name},"
                    raise ProtocolError(
                        what, must=f"{own.n}, as in its answer to the opening", got=f"{up[name]}", then=_REMEDY
                    )
                continue
            size = part.kind.size(np.asarray(up[name], dtype=np.float64))
            if part.kind.bound is not None:
                lengths = functools.partial(self._lengths, part, sent, parts)
                most = part.kind.bound(Reach(own.n, least, own.squares, self.model.d, lengths))
            else:
                if of_stage is None:
                    of_stage = self._of_stage(own)
                most = of_stage.get(name, np.inf)
            if (size > (1.0 + _SLACK) * most).any():
                raise ProtocolError(
                    f"The answer of client {client}, {name},",
                    must=f"as small as {rows} allow",
                    got="larger entries",
                    then=_REMEDY,
                )

    def _of_stage(self, own: Claim) -> dict[str, Any]:
        """What parts are at most by the stage's bounds for these rows alone; inf without one."""
        alone = replace(self.model, n=own.n, trace=own.squares)
        named = self.stage.bounds(self.state, alone).items()
        bounds = {name: np.asarray(bound) for name, bound in named}
        return {name: np.where(bound > 0.0, MARGIN * bound, np.inf) for name, bound in bounds.items()}

    def _lengths(self, part: Part, sent: Arrays, parts: Mapping[str, Part]) -> Array | float:
        """Of the columns that a part is made with, mostly alike for all; of a client's own, 1."""
        if part.of in parts:
            return 1.0
        Z = part.block(sent)
        # by id: the message that is being answered keeps its arrays alive for as long as this judge
        if id(Z) not in self._known:
            self._known[id(Z)] = linalg.column_norms(Z)
        return self._known[id(Z)]


_DATA = "Check the client's data."


class UnawaitedError(ProtocolError):
    """An answer that nobody waits for: discarded, and not held against its client."""


@dataclass(frozen=True)
class Reduction:
    """The answers to one message: their reduction, who gave them, who failed, why, for good."""

    total: Any
    answered: frozenset[int]
    count: int
    meter: Meter
    failures: dict[str, str]
    banned: frozenset[int]
    heading: Heading | None = None
    declined: str = ""
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """The first failure."""
        return next(iter(self.failures.values()), "")

    def record(self, sent: Broadcast, *, seconds: float, metrics: dict[str, float]) -> Round:
        """The entry of the history."""
        down, up = self.meter.read(sent)
        return Round(
            number=sent.number,
            stage=sent.stage,
            asked=len(sent.to),
            answered=self.count,
            failures=self.failures,
            bytes_down=down,
            bytes_up=up,
            seconds=seconds,
            metrics=metrics,
            notes=self.notes,
        )


class Tally:
    """The answers to one message: each is checked, heard through the layers, and merged.

    Where nobody has said yet how many columns the rows have, each answer says so by its moments,
    one for each column, and by its heading what they are called. Answers come together apart for
    each kind of columns then; that of most clients counts, of the first one if equally many have
    another, and the others are left out for good. Once the heading of the run is known, others are
    left out at once. Whatever a client answers is held against what it has said of its rows.

    Args:
        stage: The stage that asks.
        state: Its state.
        sent: The message.
        model: What is known before it.
        layers: What lies over the answers.
    """

    def __init__(
        self, stage: Stage[Any], state: Any, sent: Broadcast, model: Model, *, layers: Sequence[Layer] = ()
    ) -> None:
        self._stage = stage
        self._state = state
        self._sent = sent
        self._layers = layers
        self._model = model
        self._d, self._heading = model.d or None, model.heading
        # there are no claims where answers are noisy, summed, or our own
        self._judge: Judge | None = None
        if model.claims:
            self._judge = Judge(stage, state, model)
        self._merge = stage.merging(state)
        self._common: Mapping[str, Part] = {}
        # by how many columns an answer speaks of, where nobody knows yet
        self._parts: dict[int, Mapping[str, Part]] = {}
        if not sent.personal:
            self._common = stage.parts(sent.arrays, self._d)
        self._telling: list[str] = []
        if self._d is None:
            self._telling = telling(self._common)
        self._groups: dict[tuple[int, str], _Group] = {}
        # clients that have answered it already
        self._before: frozenset[int] = frozenset()
        self._answered: set[int] = set()
        self._failures: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._banned: set[int] = set()
        self._meter, self._declined = Meter(), ""

    def resume(self, total: Any, answered: frozenset[int]) -> None:
        """Go on with what the answers of these clients have come together to."""
        self._before, self._answered = answered, set(answered)
        if total is not None:
            columns = columns_of(self._telling, total, self._d)
            self._groups[columns, ""] = _Group(total, list(answered))

    def collect(self, replies: Iterable[Reply | Sum | Failure]) -> Reduction:
        """Take the answers in order: what they come to, and who has given none that counts."""
        for position, reply in enumerate(replies):
            if isinstance(reply, Sum):
                self._add(reply)
            elif isinstance(reply, Reply):
                self._check_in(reply, position)
            else:
                self._meter.count(reply, 0)
                self._leave_out(reply)
        best = self._vote()
        total = best.total
        count = len(self._answered - self._banned - self._before)
        if count:
            for layer in self._layers:
                total = layer.open(total, number=self._sent.number, position=None)
        return Reduction(
            total,
            frozenset(self._answered - self._banned),
            count,
            self._meter,
            self._failures,
            frozenset(self._banned),
            self._heading or best.heading,
            self._declined,
            self._notes,
        )

    def _add(self, reply: Sum) -> None:
        """A sum: whoever has made it has checked what is in it."""
        columns = columns_of(self._telling, reply.arrays, self._d)
        group = self._groups.setdefault((columns, ""), _Group())
        group.total = self._merge(group.total, reply.clients[0], reply.arrays)
        group.clients.extend(reply.clients)
        self._meter.count(reply, 0)
        self._answered.update(reply.clients)
        self._declined = self._declined or reply.declined

    def _check_in(self, reply: Reply, position: int) -> None:
        """One client's answer; a wrong one is a failure with a reason, and the others go on."""
        # what is refused has travelled all the same
        self._meter.count(reply, self._sent.size(reply.arrays))
        try:
            self._accept(reply, position)
        except ProtocolError as error:
            self._leave_out(Failure(reply.client, str(error), lasting=not isinstance(error, UnawaitedError)))
            return
        self._answered.add(reply.client)
        if reply.declines and not self._declined:
            self._declined = declined_by(reply)
        if reply.forgot:
            self._notes[str(reply.client)] = sentence(
                f"What {name_of(reply)} keeps of this run",
                "there until its end",
                "lost",
                "It begins afresh. Look at its memory-dir, and whether it was restarted.",
            )

    def _accept(self, reply: Reply, position: int) -> None:
        check(reply, self._sent, self._answered)
        known = self._heading
        # before shapes are looked at: an error of these would name no column that is another
        if known is not None and reply.heading is not None and not reply.heading.like(known):
            raise reply.heading.mismatch(name_of(reply), known).error(ProtocolError)
        columns = self._d or 0
        if self._telling:
            columns = columns_of(self._telling, reply.arrays, self._d)
        message, parts = self._sent.arrays, self._common
        if self._sent.personal:
            message = self._sent.arrays_for(reply.client)
            parts = self._stage.parts(message, columns or None)
        elif columns != (self._d or 0):
            if columns not in self._parts:
                self._parts[columns] = self._stage.parts(message, columns)
            parts = self._parts[columns]
        check_arrays(reply, parts)
        # before layers count it for less: what its client has said is of whole rows
        if self._judge is not None:
            self._judge.check(reply.client, reply.arrays, parts, message)
        self._stage.inspect(self._state, reply.arrays)
        arrays = reply.arrays
        for layer in self._layers:
            arrays = layer.open(arrays, number=self._sent.number, position=position)
            arrays = layer.count(arrays, reply.client, self._model)
        # Before the columns are known they are voted on; else the first that says what they are
        # called is believed.
        voted = self._d is None and columns > 0 and known is None
        digest = ""
        if voted and reply.heading is not None:
            digest = reply.heading.digest
        group = self._groups.get((columns, digest)) or _Group()
        group.hear(self._merge(group.total, reply.client, arrays), reply)
        # only now that it is merged: an answer that cannot be added leaves no group of nobody
        self._groups[columns, digest] = group
        if not voted:
            self._heading = known or reply.heading

    def _leave_out(self, failure: Failure) -> None:
        self._failures[str(failure.client)] = failure.reason
        if failure.lasting:
            self._banned.add(failure.client)

    def _vote(self) -> _Group:
        """The answers that speak of most clients' columns; the others are left out for good."""
        if not self._groups:
            return _Group()
        if len(self._groups) == 1:
            return self._groups.popitem()[1]
        most = max(self._groups, key=lambda kind: len(self._groups[kind].clients))
        best = self._groups.pop(most)
        for kind, group in self._groups.items():
            for client in group.clients:
                who = _title(client, group.sites.get(client, ""))
                odd = group.header(kind).mismatch(who, best.header(most))
                self._failures[str(client)] = str(odd)
                self._banned.add(client)
        return best


@dataclass
class _Group:
    """What the answers that speak of the same columns have come together to, and whose they are."""

    total: Any = None
    clients: list[int] = field(default_factory=list)
    heading: Heading | None = None
    sites: dict[int, str] = field(default_factory=dict)

    def hear(self, total: Any, reply: Reply) -> None:
        self.total = total
        self.clients.append(reply.client)
        if self.heading is None:
            self.heading = reply.heading
        else:
            self.heading = self.heading.fuller(reply.heading)
        if reply.site:
            self.sites[reply.client] = reply.site

    def header(self, kind: tuple[int, str]) -> Heading:
        return self.heading or Heading(kind[0])


def name_of(reply: Reply) -> str:
    """A client, by its own name too if it has one."""
    return _title(reply.client, reply.site)


def declined_by(reply: Reply) -> str:
    """That a client declines what the run may go on with instead, and why."""
    if reply.declines:
        return f"{name_of(reply)}: {reply.declines}"
    return ""


def _title(client: int, site: str) -> str:
    if site:
        return f"client {client} ({site})"
    return f"client {client}"


def telling(parts: Mapping[str, Part]) -> list[str]:
    """The parts of an answer as long as its columns are many, where that is not known yet."""
    return [name for name, part in parts.items() if part.kind.by_column and part.open]


def columns_of(telling: Iterable[str], arrays: Arrays, d: int | None) -> int:
    """How many columns an answer speaks of; 0 where neither it nor the run says so."""
    for name in telling:
        if np.ndim(arrays.get(name, 0.0)) == 1:
            return len(arrays[name])
    return d or 0


def unusable(error: np.linalg.LinAlgError) -> DataError:
    """What to say of sums of which LAPACK cannot make anything."""
    return DataError(
        "The sums of a round", must="of usual size", got=f"ones on which LAPACK fails ({error})", then="Scale the data."
    )


def check(reply: Reply, sent: Broadcast, answered: Collection[int]) -> None:
    """Raise ProtocolError, naming the client, unless this is its one answer to the message sent."""
    what = f"The answer of client {reply.client}"
    if reply.client not in sent.addressees:
        raise UnawaitedError(what, must="asked for", got="one of a client not asked", then="It was not counted.")
    if reply.number != sent.number:
        raise UnawaitedError(
            what, must=f"one to message {sent.number}", got=f"one to message {reply.number}", then="It came late."
        )
    if reply.client in answered:
        raise UnawaitedError(what, must="a single one", got="another one", then="It was not counted.")


def check_arrays(reply: Reply, expected: Mapping[str, Part]) -> None:
    """Raise ProtocolError, naming the client, unless its answer is these parts, all finite."""
    if reply.arrays.keys() != expected.keys():
        rule = f"made of {', '.join(sorted(expected))}"
        got = ", ".join(sorted(reply.arrays)) or "nothing"
        raise ProtocolError(
            f"The answer of client {reply.client}", must=rule, got=got, then="Install the same flower_pca everywhere."
        )
    if wrong := fault(reply.arrays, expected):
        name, rule, got = wrong
        raise ProtocolError(f"The answer of client {reply.client}, {name},", must=rule, got=got, then=_DATA)
