"""The layout of uploads, and the checks of the clients' answers in the protocol of masked sums."""

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
from flower_pca.core.replies import check_first_reply as check_reply
from flower_pca.core.run import Run
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum, TrafficMeter, nbytes
from flower_pca.masking import coverage, fixed, messages
from flower_pca.masking.group import MaskingGroup
from flower_pca.masking.messages import (
    DIGEST,
    SIGNATURE,
    Phase,
    bytes_as_array,
    reason_if_all_strayed,
    reason_of_straying,
    strayed_clients,
)
from flower_pca.masking.primitives import KEY
from flower_pca.names.columns import Heading, majority_heading
from flower_pca.settings.masks import MaskedSums

# The bound on the entries of C_i, and of its products with vectors of length 1, as a multiple of the trace
_TIGHT: Final = 2.0
_KINDS: Final = {"mask.y": np.uint64, "mask.d": np.int64}  # the types of the arrays that are not bytes


@dataclass(frozen=True)
class UploadLayout:
    """The shapes and bounds of the arrays in one client's answer, and the maximum number of clients in a sum.

    Attributes
    ----------
    shapes : mapping
        The shape of each array.
    bounds : mapping
        The largest absolute value of the entries of each array, or 0 if no bound is known.
    clients : int
        The number of clients with which the sum has begun.
    whole : frozenset of str
        The names of the arrays that contain whole numbers.
    noise : float
        The usual norm of the error that the noise of fixed point adds to C z, for a vector z of length 1. It is 0 if
        the answer has no products.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bounds: Mapping[str, Array] = field(default_factory=dict)
    clients: int = 0
    whole: frozenset[str] = frozenset()
    noise: float = 0.0

    @classmethod
    def for_message(
        cls, run: Run, masks: MaskedSums, message: Broadcast, columns: int, clients: int, *, heard: bool
    ) -> UploadLayout:
        """Return the layout of the answers to a message, for this number of clients and of columns.

        With noise, the bounds follow from the noise. Otherwise, they are the bound in `masks`, or follow from earlier
        sums. `heard` states whether all clients were in the previous sum of the same set-up.
        """
        position = run.position
        parts = position.stage.parts(message.arrays, columns)
        shapes = hidden_shapes(parts)
        bounds = position.bounds(heard=heard)
        if share := run.deviation_of_one:
            bounds = fixed.bounds_with_noise(parts, share, clients)
        elif masks.bound is not None and not position.is_opening:
            # The caller's bound applies only to products. The caller can know the size of products, but not the size of
            # counts or of statistics of a batch.
            unsure = {n: p for n, p in parts.items() if not p.kind.whole}
            sized = {n for n, p in unsure.items() if position.opens or p.shape}
            bounds = {**bounds, **dict.fromkeys(sized, masks.bound)}
        elif _knows_squares(run, message):
            bounds = {**bounds, **_bounds_by_trace(run, message, parts)}
        limits = {name: np.array(bounds[name], dtype=np.float64) for name in shapes}
        whole = frozenset(name for name, part in parts.items() if part.kind.whole)
        of_products = [limits[name] for name, part in parts.items() if part.kind is Kind.GRAM or part.kind.product]
        of_entry = max((fixed.dither_of_sum(bound, clients) for bound in of_products), default=0.0)
        return cls(shapes, limits, clients, whole, float(np.sqrt(columns)) * of_entry)

    @property
    def size(self) -> int:
        """The number of integers mod 2^64 in an upload."""
        return fixed.encoded_size(self.shapes, self.bounds)

    def bound_arrays(self) -> Arrays:
        """Return the bounds as arrays of a message."""
        return {f"{messages.BOUND}{name}": bound for name, bound in self.bounds.items()}

    def decode_sums(self, total: Array) -> Arrays:
        """Return the sums of the answers, decoded from the unmasked total of the uploads."""
        return fixed.decode(total, self.shapes, self.bounds, self.clients, self.whole)


def _knows_squares(run: Run, message: Broadcast) -> bool:
    """Return whether the trace of the summed C_i bounds the answers.

    The trace is known if the opening has summed the squares of all values of the clients that get this message.

    If missing values are replaced, the trace is no bound, because the replacements add to the squares.
    """
    position = run.position
    if not position.opens or position.is_opening or position.model.missing != "error":
        return False
    return run.roll.members.issuperset(message.to)


def _bounds_by_trace(run: Run, message: Broadcast, parts: Mapping[str, Part]) -> dict[str, float]:
    """Return the bounds for C_i and its products with blocks: twice the trace, times the block's longest column."""
    bounds = {}
    for name, part in parts.items():
        if part.kind is Kind.GRAM:  # An entry of C_i is at most the trace of C_i.
            bounds[name] = _TIGHT * run.position.model.trace
        elif part.kind.product:
            bounds[name] = _TIGHT * run.position.model.trace
            if not part.kind.own_block:  # The columns of other blocks have length 1.
                block = np.asarray(part.block(message.arrays), dtype=np.float64)
                bounds[name] *= float(linalg.column_norms(block).max(initial=0.0)) or 1.0
    return bounds


def hidden_shapes(parts: Mapping[str, Part]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parts of an answer.

    Raises
    ------
    ConfigError
        If the size of a part differs between clients.
    """
    opened = [name for name, part in parts.items() if part.open]
    if opened:
        raise ConfigError(
            f"Masks need answers of the same size from all clients, but the size of {', '.join(opened)} differs "
            f"between clients. Run with {option('mask', False)}."
        )
    return {name: cast(tuple[int, ...], part.shape) for name, part in parts.items()}


def require_sum(run: Run, message: Broadcast) -> None:
    """Refuse a message if the run needs more than sums, or if it goes to more clients than fixed point supports."""
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
class AcceptedAnswers:
    """The outcome of a phase: the accepted answers, the failures, the bytes of all replies, and the run's columns.

    `notes` maps each client that has strayed (see `messages.strayed_clients`), but whose answer is accepted, to an
    explanation. `declined` is the reason given by the first client that declines the alternative algorithm, or an empty
    string.
    """

    answers: dict[int, Arrays] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    meter: TrafficMeter = field(default_factory=TrafficMeter)
    heading: Heading = field(default_factory=partial(Heading, 0))
    declined: str = ""

    def error_of_missing(self, error: NotEnoughNodes) -> NotEnoughNodes:
        """Return the error about too few answers, with the number of the first missing client and the reason."""
        first = next(iter(self.failures.values()), None)
        if first is None:
            return NotEnoughNodes(str(error))
        return NotEnoughNodes(f"{error} The first missing client is {first.client}: {first.reason}")

    def record(self, sent: Broadcast, stage: str, *, seconds: float, metrics: dict[str, float]) -> Round:
        """Return the entry of this phase for the run's history."""
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


def check_phase(
    sent: Broadcast,
    replies: Iterable[Reply | Sum | Failure],
    *,
    group: MaskingGroup | None,
    phase: Phase,
    length: int,
    heading: Heading,
    course: bytes | None,
) -> AcceptedAnswers:
    """Check the replies of a phase, and return the accepted answers and the failures.

    Parameters
    ----------
    sent : Broadcast
        The message of the protocol.
    replies : iterable of Reply, Sum or Failure
        The replies to this message.
    group : MaskingGroup or None
        The set-up, or None if these are the replies to the first message of a set-up.
    phase : Phase
        The phase of the message.
    length : int
        The number of integers in an upload.
    heading : Heading
        The columns of the run, or a heading with 0 columns if they are not known yet.
    course : bytes or None
        The course after the last valid sum (see `messages.next_course`), or None before the first valid sum.
    """
    got, replied = AcceptedAnswers(), {}
    for reply in replies:
        if isinstance(reply, Failure):
            got.meter.count(reply, 0)
            got.failures[reply.client] = reply
        elif isinstance(reply, Reply):
            got.meter.count(reply, nbytes(reply.arrays))
            replied[reply.client] = reply
            try:
                _check_reply(reply, sent, got.answers, group, phase, length)
                got.answers[reply.client] = reply.arrays
                got.declined = got.declined or declined_by(reply)
            except UnawaitedError as error:
                # A late or second answer does not replace a failure that was recorded before.
                got.failures.setdefault(reply.client, Failure(reply.client, str(error)))
            except ProtocolError as error:
                got.failures[reply.client] = Failure(reply.client, str(error), lasting=True)
    if group is None and got.answers:
        got.heading, odd = majority_columns([replied[client] for client in got.answers], heading)
        for client, reason in odd.items():
            del got.answers[client]
            got.failures[client] = Failure(client, reason, lasting=True)
        strayed = strayed_clients(got.answers, course)
        words = reason_of_straying if len(strayed) < len(got.answers) else reason_if_all_strayed
        got.notes = {client: words(client, "All clients begin again.") for client in strayed}
    if phase == Phase.UPLOAD:
        # The masks of a client that has strayed do not cancel. The client counts as dropped out, so the other clients
        # help to remove its masks.
        for client in strayed_clients(got.answers):
            del got.answers[client]
            reason = reason_of_straying(client, "This sum continues without it, and all clients begin again.")
            got.failures[client] = Failure(client, reason)
    return got


def _check_reply(
    reply: Reply, sent: Broadcast, answers: Mapping[int, Arrays], group: MaskingGroup | None, phase: Phase, length: int
) -> None:
    """Raise ProtocolError unless this reply is the client's only answer to the message, with the expected arrays."""
    if reply.number == sent.number and "mask.lost" in reply.arrays:
        raise UnawaitedError(
            f"Client {reply.client} has lost its secrets for this masked sum, or has secrets of an older set-up. You "
            "need not do anything, because the run begins a new set-up."
        )
    # A client that does not sign sends no signature.
    width = SIGNATURE if reply.arrays.get("mask.signature", bytes_as_array(b"")).size else 0
    shapes: dict[str, Shape] = {
        "mask.exchange": (KEY,),
        "mask.key": (KEY,),
        "mask.d": (),
        "mask.past": (DIGEST,),
        "mask.earlier": (DIGEST,),
        "mask.signature": (width,),
    }
    # A client to which the message was not sent may have no position in the group. `check_reply` refuses its reply.
    if group is not None and reply.client in sent.addressees:
        shapes = {**group.answer_shapes(phase, reply.client, length)}
        # Letters about columns are optional.
        if phase == Phase.SHARES and coverage.LETTERS in reply.arrays:
            beside = sent.frame.covariates
            columns = group.columns + (0 if beside is None else len(beside.names))
            shapes[coverage.LETTERS] = (group.letter_count(reply.client), coverage.letter_size(columns))
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


def majority_columns(replies: Iterable[Reply], known_heading: Heading) -> tuple[Heading, dict[int, str]]:
    """Return the run's columns, and for each client with other columns the reason why it is excluded.

    If the run's columns are not known yet, the majority of clients decides. A client without rows reports 0 columns and
    has no vote. If no client has rows, the run has 0 columns.
    """
    came = {reply.client: reply for reply in replies if int(reply.arrays["mask.d"])}
    counts = {i: int(reply.arrays["mask.d"]) for i, reply in came.items()}
    said = {i: replace(reply.heading or Heading(0), count=counts[i]) for i, reply in came.items()}
    run = known_heading if known_heading.count else majority_heading(said.values())
    others = {i: heading for i, heading in said.items() if not heading.has_same_columns(run)}
    return run, {i: str(heading.mismatch(name_of(came[i]), run)) for i, heading in others.items()}
