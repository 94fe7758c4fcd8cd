"""The contents of uploads, and the answers that the server accepts in the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, cast

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import ConfigError, NotEnoughNodes, ProtocolError
from flower_pca.base.history import Round
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.kinds import Kind, Part, Shape
from flower_pca.core.replies import UnawaitedError, check_arrays, declined_by, name_of
from flower_pca.core.replies import check as check_reply
from flower_pca.core.run import Run
from flower_pca.core.stage import Arrays, Broadcast, Failure, Meter, Reply, Sum, nbytes
from flower_pca.masking import coverage, fixed, messages
from flower_pca.masking.group import MaskingGroup
from flower_pca.masking.messages import DIGEST, SIGNATURE, Phase, raw, strays, why, why_all
from flower_pca.masking.primitives import KEY
from flower_pca.names.columns import Heading, majority
from flower_pca.settings.masks import MaskedSums

# A bound on products with rows of the opening, in multiples of the trace, by Cauchy and Schwarz.
_TIGHT: Final = 2.0
_KINDS: Final = {"mask.y": np.uint64, "mask.d": np.int64}  # all other arrays are bytes


@dataclass(frozen=True)
class Layout:
    """The arrays of one client's answer by name, and the largest number of clients in their sum.

    Attributes
    ----------
    shapes : mapping
        Their shapes.
    bounds : mapping
        The largest size of their entries; 0 where that is not known.
    whole : frozenset of str
        The names of those of whole numbers.
    clients : int
        The clients that the sum has begun with.
    noise : float
        How far the noise of fixed point moves C z in norm, for a vector z of length 1. It is 0 without products.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bounds: Mapping[str, Array] = field(default_factory=dict)
    clients: int = 0
    whole: frozenset[str] = frozenset()
    noise: float = 0.0

    @classmethod
    def of(cls, run: Run, masks: MaskedSums, message: Broadcast, columns: int, clients: int, *, heard: bool) -> Layout:
        """Return the layout of this many clients' answers to the run's message, for rows with this many columns.

        With noise, the bounds follow from the noise. Otherwise they follow from what the run knows, or from the caller.
        `heard`: whether all clients have answered the message before, by the same set-up.
        """
        position = run.position
        parts = position.stage.parts(message.arrays, columns)
        shapes = hidden_shapes(parts)
        bounds = position.bounds(heard=heard)
        if share := run.deviation_of_one:
            bounds = fixed.bounds_with_noise(parts, share, clients)
        elif masks.bound is not None and not position.opening:
            # A caller can judge the entries of products, but nobody can judge counts or the figures of a batch.
            unsure = {n: p for n, p in parts.items() if not p.kind.whole}
            sized = {n for n, p in unsure.items() if position.opens or p.shape}
            bounds = {**bounds, **dict.fromkeys(sized, masks.bound)}
        elif _knows_squares(run, message):
            bounds = {**bounds, **_tight(run, message, parts)}
        limits = {name: np.array(bounds[name], dtype=np.float64) for name in shapes}
        whole = frozenset(name for name, part in parts.items() if part.kind.whole)
        of_products = [limits[name] for name, part in parts.items() if part.kind is Kind.GRAM or part.kind.product]
        of_entry = max((fixed.noise_of_sum(bound, clients) for bound in of_products), default=0.0)
        return cls(shapes, limits, clients, whole, float(np.sqrt(columns)) * of_entry)

    @property
    def size(self) -> int:
        """The number of integers mod 2^64 in an upload."""
        return fixed.size(self.shapes, self.bounds)

    def limits(self) -> Arrays:
        """Return the bounds in the form of a message."""
        return {f"{messages.BOUND}{name}": bound for name, bound in self.bounds.items()}

    def sums(self, total: Array) -> Arrays:
        """Return the sums of the answers from the unmasked total of the uploads."""
        return fixed.decode(total, self.shapes, self.bounds, self.clients, self.whole)


def _knows_squares(run: Run, message: Broadcast) -> bool:
    """Return whether the opening contained the squares of all values. Filling with own means adds to them."""
    position = run.position
    if not position.opens or position.opening or position.model.missing != "error":
        return False
    return run.roll.members.issuperset(message.to)


def _tight(run: Run, message: Broadcast, parts: Mapping[str, Part]) -> dict[str, float]:
    """Return bounds for C_i, and for its products with blocks: the trace times the block's longest column."""
    bounds = {}
    for name, part in parts.items():
        if part.kind is Kind.GRAM:  # an entry of C_i is at most its trace
            bounds[name] = _TIGHT * run.position.model.trace
        elif part.kind.product:
            bounds[name] = _TIGHT * run.position.model.trace
            if not part.kind.own_block:  # The columns of other blocks have length 1.
                block = np.asarray(part.block(message.arrays), dtype=np.float64)
                bounds[name] *= float(linalg.column_norms(block).max(initial=0.0)) or 1.0
    return bounds


def hidden_shapes(parts: Mapping[str, Part]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an answer, without unknown sides, as masks need it."""
    opened = [name for name, part in parts.items() if part.open]
    if opened:
        raise ConfigError(
            f"Masks need answers whose size every client knows, but the size of {', '.join(opened)} differs between "
            f"clients. Run with {option('mask', False)}."
        )
    return {name: cast(tuple[int, ...], part.shape) for name, part in parts.items()}


def require_sum(run: Run, message: Broadcast) -> None:
    """Refuse a message that no sum can answer, or to more clients than fixed point has room for."""
    if not run.position.sums_suffice or message.personal:
        wrong = "needs the separate answer of each client, but under masks the server sees only sums"
        if message.personal:
            wrong = "sends each client a different message, but masked sums need the same message for all"
        raise ConfigError(
            f"{run.algorithm.spec} {wrong}. Choose settings that need only sums, or run with {option('mask', False)}."
        )
    if len(message.to) > fixed.MOST_CLIENTS:
        raise ConfigError(
            f"Masks allow at most {fixed.MOST_CLIENTS:,} clients in a sum, but this message goes to "
            f"{len(message.to):,}. Send each message to fewer clients."
        )


@dataclass
class Acceptance:
    """The accepted answers, reasons for the others, the bytes of all, and the columns that won the vote.

    `notes` describe clients with good answers that have strayed. `declined` is the reason of the first client
    that declines.
    """

    answers: dict[int, Arrays] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    heading: Heading = field(default_factory=partial(Heading, 0))
    declined: str = ""

    def explain(self, error: NotEnoughNodes) -> NotEnoughNodes:
        """Return the error for too few answers, which names the first missing client."""
        first = next(iter(self.failures.values()), None)
        if first is None:
            return NotEnoughNodes(str(error))
        return NotEnoughNodes(f"{error} The first that is missing, {first.client}: {first.reason}")

    def record(self, sent: Broadcast, stage: str, *, seconds: float, metrics: dict[str, float]) -> Round:
        """Return the entry for the history."""
        down, up = self.meter.read(sent)
        return Round(
            number=sent.number,
            stage=stage,
            asked=len(sent.to),
            answered=len(self.answers),
            failures={str(client): failure.reason for client, failure in self.failures.items()},
            notes={str(client): note for client, note in self.notes.items()},
            bytes_down=down,
            bytes_up=up,
            seconds=seconds,
            metrics=metrics,
        )


def accept(
    sent: Broadcast,
    replies: Iterable[Reply | Sum | Failure],
    *,
    group: MaskingGroup | None,
    phase: Phase,
    length: int,
    heading: Heading,
    course: bytes | None,
) -> Acceptance:
    """Separate the good answers from the others.

    Parameters
    ----------
    sent : Broadcast
        The message.
    replies : iterable of Reply, Sum or Failure
        The answers.
    group : MaskingGroup or None
        The set-up; None if these are the answers that it begins with.
    phase : Phase
        What was asked for.
    length : int
        The numbers of an upload.
    heading : Heading
        The columns of the run, where they are known; else 0 of them.
    course : bytes or None
        The course of the newest sum that counts, or None before the first one.
    """
    got, replied = Acceptance(), {}
    for reply in replies:
        if isinstance(reply, Failure):
            got.meter.count(reply, 0)
            got.failures[reply.client] = reply
        elif isinstance(reply, Reply):
            got.meter.count(reply, nbytes(reply.arrays))
            replied[reply.client] = reply
            try:
                _check(reply, sent, got.answers, group, phase, length)
                got.answers[reply.client] = reply.arrays
                got.declined = got.declined or declined_by(reply)
            except UnawaitedError as error:
                # A late or second answer does not correct a permanent failure.
                got.failures.setdefault(reply.client, Failure(reply.client, str(error)))
            except ProtocolError as error:
                got.failures[reply.client] = Failure(reply.client, str(error), lasting=True)
    if group is None and got.answers:
        got.heading, odd = outvote([replied[client] for client in got.answers], heading)
        for client, reason in odd.items():
            del got.answers[client]
            got.failures[client] = Failure(client, reason, lasting=True)
        strayed = strays(got.answers, course)
        words = why if len(strayed) < len(got.answers) else why_all
        got.notes = {client: words(client, "All clients begin again.") for client in strayed}
    if phase == Phase.UPLOAD:
        # Their masks do not cancel. Like those of a client that drops out, they are computed again.
        for client in strays(got.answers):
            del got.answers[client]
            reason = why(client, "This sum continues without it, and all clients begin again.")
            got.failures[client] = Failure(client, reason)
    return got


def _check(
    reply: Reply, sent: Broadcast, answers: Mapping[int, Arrays], group: MaskingGroup | None, phase: Phase, length: int
) -> None:
    """Raise ProtocolError, which names the client, unless this is its only answer to the message sent."""
    if reply.number == sent.number and "mask.lost" in reply.arrays:
        raise UnawaitedError(
            f"Client {reply.client} has lost its secrets for this masked sum, or has secrets of an older set-up. "
            "Wait: the run begins a new set-up."
        )
    # A client that does not sign sends no signature.
    width = SIGNATURE if reply.arrays.get("mask.signature", raw(b"")).size else 0
    shapes: dict[str, Shape] = {
        "mask.exchange": (KEY,),
        "mask.key": (KEY,),
        "mask.d": (),
        "mask.past": (DIGEST,),
        "mask.earlier": (DIGEST,),
        "mask.signature": (width,),
    }
    # A client that was not asked may have no position in the group. It is refused for that below.
    if group is not None and reply.client in sent.addressees:
        shapes = {**group.answer_shapes(phase, reply.client, length)}
        # A client that tells its peers nothing about its columns writes no letters.
        if phase == Phase.SHARES and coverage.LETTERS in reply.arrays:
            beside = sent.frame.covariates
            columns = group.columns + (0 if beside is None else len(beside.names))
            shapes[coverage.LETTERS] = (group.letters_of(reply.client), coverage.width(columns))
    check_reply(reply, sent, answers)
    check_arrays(reply, {name: Part(shape) for name, shape in shapes.items()})
    for name, a in reply.arrays.items():
        # check_arrays accepts real numbers of any type, but only integers wrap mod 2^64, as masks require.
        kind = np.dtype(_KINDS.get(name, np.uint8))
        if a.dtype != kind:
            raise ProtocolError(
                f"Client {reply.client} sent {name} as {a.dtype}, but masked sums need {kind}. Install the same "
                "version of flower_pca everywhere."
            )


def outvote(replies: Iterable[Reply], known: Heading) -> tuple[Heading, dict[int, str]]:
    """Return the run's columns, `known` or those of most clients, and why other clients are excluded.

    A client that has no rows yet has 0 columns and no vote. If this holds for all clients, so it does for the run.
    """
    came = {reply.client: reply for reply in replies if int(reply.arrays["mask.d"])}
    counts = {i: int(reply.arrays["mask.d"]) for i, reply in came.items()}
    said = {i: replace(reply.heading or Heading(0), count=counts[i]) for i, reply in came.items()}
    run = known if known.count else majority(said.values())
    others = {i: heading for i, heading in said.items() if not heading.like(run)}
    return run, {i: str(heading.mismatch(name_of(came[i]), run)) for i, heading in others.items()}
