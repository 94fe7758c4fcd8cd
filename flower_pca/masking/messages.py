"""What both halves of masked sums agree on: steps, names of arrays in messages, and contexts of keys.

`Demands` holds a node's conditions for the nodes that it is summed with, whatever the server says of the
group.

A client's masks are bound to the course of messages behind its memory.

A server could send one client a different message than the others, in a sum that fails, and then send all
of them the same message. Their memories would differ, and the sum would reveal that client. A client with
memory for its stage therefore keeps a digest of all messages that it has answered since its memory began,
in their order. Messages without an answer are not in it. Masks of clients with different digests do not
cancel. Clients send the digest with their keys and with every upload. It depends only on what the server
has asked.

The server may lose a sum after its clients have answered, for example if it is killed before it has
unmasked the sum. It then repeats the message after a new set-up. So a client also keeps what it had before
its newest answer, with the digest of that time, and goes back to it if the set-up names this digest.

| what happens                              | the digest                                 | what is kept        |
| ----------------------------------------- | ------------------------------------------ | ------------------- |
| nothing is kept                           | `NOTHING`                                  |                     |
| an answer of a stage of an algorithm      | `course` of the old one and the message    | what the stage says |
| of a stage of every run, as an evaluation | stays: the answer is made of rows alone    | stays               |
| a set-up asks for the course before       | that one                                   | what belongs to it  |
| a set-up asks for any other course        | `NOTHING`                                  | what rows alone say |
| a message without masks, lost secrets     | `NOTHING`: what is kept counts for nothing | likewise            |
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from flower_pca import registry
from flower_pca.base import labels
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, Ask, index
from flower_pca.core.stage import Arrays
from flower_pca.rows.frame import Frame
from flower_pca.tracking import batch

# Imported for types alone: every run imports this file, and only masks need cryptography.
if TYPE_CHECKING:
    from flower_pca.masking.identity import Identity

DIGEST: Final = 32  # bytes of SHA-256
NOTHING: Final = bytes(DIGEST)


def course(past: bytes, said: bytes, stage: str) -> bytes:
    """Extend a course by a message to this stage, whose digest is `said`."""
    return sha256(b"flower_pca masks: answered" + (past if remembers(stage) else NOTHING) + said).digest()


def counting(own: Arrays, past: bytes, stage: str) -> Arrays:
    """Return the part of a client's memory that a stage may see: all with a course, else what rows alone give."""
    if past != NOTHING or not remembers(stage):
        return own
    rest = _of_stage(own)
    counted = {name: a for name, a in own.items() if name not in rest}
    if stage in registry.TRACKERS:
        counted |= batch.lasting(rest)
    return counted


def onwards(own: Arrays, past: bytes, newest: bytes, stage: str) -> bytes:
    """Return the course of the messages behind what a client keeps after it has answered a stage."""
    if not _of_stage(own):
        return NOTHING
    if remembers(stage):
        return newest
    return past


def with_before(own: Arrays, before: Arrays) -> Arrays:
    """Return a client's memory with what it has kept before its newest answer."""
    return {**own, **{f"{BEFORE}{name}": a for name, a in before.items()}}


def before_of(memory: Arrays) -> Arrays:
    """Return what a client has kept before its newest answer."""
    return {name.removeprefix(BEFORE): a for name, a in memory.items() if name.startswith(BEFORE)}


def gone_back(own: Arrays, before: Arrays) -> Arrays:
    """Return a client's memory without its newest answer. What layers have spent, and batches that were taken, stay."""
    rest = _of_stage(own)
    layers = {name: a for name, a in own.items() if name not in rest}
    return {**layers, **before, **batch.lasting(rest)}


def kept(own: Arrays, stage: str) -> Arrays:
    """Return what a client must keep of its memory before it answers a stage, to answer the same message again."""
    # The batch of a tracker's step stays, so that it is not taken twice.
    return {} if stage in registry.TRACKERS else _of_stage(own)


def strays(answers: Mapping[int, Arrays], course: bytes | None = None) -> tuple[int, ...]:
    """Return the clients that cannot answer from a course, or if it is None, those that differ from most clients."""
    courses = {client: arrays["mask.past"].tobytes() for client, arrays in answers.items()}
    if course is not None:
        return tuple(i for i, past in courses.items() if course not in (past, answers[i]["mask.earlier"].tobytes()))
    votes = Counter(courses.values())
    most = max(votes, key=votes.__getitem__, default=NOTHING)
    return tuple(client for client, course in courses.items() if course != most)


def why(client: int, then: str) -> str:
    """Describe a client that has strayed."""
    return f"Client {client} received other messages of this run than most clients, or in another order. {then}"


def why_all(client: int, then: str) -> str:
    """Describe a client if all clients have strayed."""
    return f"Client {client}, like all others, does not have the state that this run continues from. {then}"


def remembers(stage: str) -> bool:
    """Return whether a stage answers from its memory, as those of algorithms do."""
    return bool(registry.owners(stage))


def _of_stage(own: Arrays) -> Arrays:
    """Return the part of a client's memory that its stage has kept, and no layer."""
    layers = registry.LAYERS
    return {name: a for name, a in own.items() if name.partition(".")[0] not in layers}


STAGE: Final = "masked"  # The stage that every message of a masked run names, whatever stage it carries.
# The prefix of everything that is not the stage's own, in messages and in a client's memory.
PREFIX: Final = "mask."
BOUND: Final = "mask.bound."
BEFORE: Final = "mask.before."  # The prefix of what a client has kept before its newest answer.
ASK_SERVER: Final = "This node has sent nothing. Ask the operator of the server."
# The size in bytes of a signature: the SHA-256 of its key, and the two numbers of ECDSA on any curve.
SIGNATURE: Final = 164
_TEXT: Final = Ask(dimensions=1, least=0, most=255, whole=True)  # bytes
# texts of equal length, as `rows` joins them
_TEXTS: Final = Ask(dimensions=2, least=0, most=255, whole=True)
_MOST: Final = 2**53  # Up to here, every kind of number holds whole numbers exactly.
_CLIENTS: Final = Ask(dimensions=1, least=0, most=_MOST, whole=True)

# Everything that a server sends in addition to the bounds of fixed point.
SENT: Final[Mapping[str, Ask]] = {
    f"{PREFIX}{name}": ask
    for ask, names in (
        (index(3), ("step",)),
        (index(_MOST), ("number", "d", "needed", "position", "clients")),
        (FLAG, ("single",)),
        (_TEXT, ("setup", "stage", "course")),
        (_TEXTS, ("exchanges", "signatures", "firsts", "members", "keys", "shares", "agreed", "columns")),
        (_CLIENTS, ("peers", "survived", "dropped")),
    )
    for name in names
}


class SpentError(DataError):
    """The error of a client whose rows allow no answer. It reveals something, so the client keeps this `memory`."""

    def __init__(self, reason: str, memory: Arrays) -> None:
        super().__init__(reason)
        self.memory = memory


class Phase(enum.IntEnum):
    """The messages of the protocol: two for a set-up, and then two for each sum, or mostly one without self-masks."""

    KEYS, SHARES, UPLOAD, UNMASK = range(4)


def raw(text: bytes) -> Array:
    """Convert bytes into an array."""
    return np.frombuffer(text, dtype=np.uint8)


def rows(texts: list[bytes], width: int) -> Array:
    """Convert texts of equal length into the rows of an array."""
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, width)


def texts(a: Array) -> list[bytes]:
    """Return the texts that `rows` has put together."""
    return list(map(np.ndarray.tobytes, a))


def plain(arrays: Mapping[str, Array]) -> Arrays:
    """Return the stage's own arrays in a message or a memory."""
    return {name: a for name, a in arrays.items() if not name.startswith(PREFIX)}


def bounds(arrays: Mapping[str, Array]) -> Arrays:
    """Return the bounds in a message, by the names of what they bound."""
    return {name.removeprefix(BOUND): a for name, a in arrays.items() if name.startswith(BOUND)}


def strange(arrays: Mapping[str, Array]) -> list[str]:
    """Return names in the message that look like names of masks, but are not."""
    ours = [n for n in arrays if n.startswith(PREFIX) and n not in SENT]
    return sorted(n for n in ours if not n.startswith(BOUND))


def inner_stage(arrays: Mapping[str, Array]) -> str | None:
    """Return the name of the stage inside a masked message, if it has one."""
    if "mask.stage" not in arrays:
        return None
    # Bytes that are not text cannot name a stage.
    return arrays["mask.stage"].tobytes().decode(errors="replace")


def single(arrays: Mapping[str, Array]) -> bool:
    """Return whether a message asks for a set-up without self-masks."""
    return bool(np.any(arrays.get("mask.single", False)))


def publication(setup: bytes, exchange: bytes, key: bytes) -> bytes:
    """Return what a node signs of a set-up: the set-up's name, and the node's own public keys."""
    return b"flower_pca masks: set-up" + setup + exchange + key


def group(setup: bytes, run: str, needed: int, members: Iterable[bytes]) -> bytes:
    """Return what a node signs of a group: run, threshold, and the members' public keys in order."""
    # Both have the same length, so that no two groups are signed as the same text.
    name = sha256(run.encode()).digest()
    keys = sha256(b"".join(sorted(members))).digest()
    return b"flower_pca masks: group" + setup + _numbers(needed) + name + keys


def letters(sender: bytes, receiver: bytes) -> bytes:
    """Return the context of the secret for letters from one client to another: their public keys."""
    return b"flower_pca masks: letters" + sender + receiver


def statement(arrays: Mapping[str, Array], frame: Frame) -> bytes:
    """Return a digest of the common part of a message to all clients of a sum, with frame and fixed point.

    What only one client gets is not in it. This is keys alone, because no stage under masks has anything
    `personal`. The memory layout of arrays is in it, because it affects rounding, and sums would differ by
    the last digits of one client's answer.
    """
    # The steps of fixed point depend on the number of clients. With other steps, answers do not add up.
    alike = {"mask.stage", "mask.clients", *plain(arrays)}
    # Bounds are included: with bounds that round all other answers to 0, one client's answer would remain.
    content = {name: a for name, a in arrays.items() if name in alike or name.startswith(BOUND)}
    # The frame is included: with another mean or a huge scale, the answers of all others would be known.
    for f in fields(frame):
        if f.name == "names":
            content["frame.names"] = raw(json.dumps(frame.names).encode())
        elif f.name == "split" and frame.split is not None:  # The salt of the split serves the digest of ids only.
            split = replace(frame.split, salt="").plain()
            content["frame.split"] = raw(json.dumps(split).encode())
        elif f.name == "covariates" and frame.covariates is not None:
            content["frame.covariates"] = raw(frame.covariates.plain().encode())
            content |= {f"frame.{name}": a + 0.0 for name, a in frame.covariates.arrays.items()}
        elif (a := getattr(frame, f.name)) is not None:  # Frames that are equal by Frame.same have the same digest.
            content[f"frame.{f.name}"] = np.asarray(a, dtype=np.float64) + 0.0
    total = sha256()
    for name, given in sorted(content.items()):
        a = np.asarray(given)
        # Only this order is sent.
        by_columns = a.flags.f_contiguous and not a.flags.c_contiguous
        about = f"{name} {a.dtype.str} {a.shape} {by_columns}"
        total.update(sha256(about.encode()).digest())
        total.update(sha256(np.ascontiguousarray(a).data).digest())
    return total.digest()


def pair(setup: bytes, course: bytes, number: int, low: int, high: int) -> bytes:
    """Return the bytes to which the mask between two clients in a sum is bound.

    They contain `course`, the digest of all messages so far. The masks of two clients therefore
    cancel only if both clients have received the same messages.
    """
    return b"flower_pca masks: pair" + setup + course + _numbers(number, low, high)


def alone(setup: bytes, number: int, position: int) -> bytes:
    """Return the bytes to which a client's own mask in one sum is bound."""
    return b"flower_pca masks: self" + setup + _numbers(number, position)


def envelope(setup: bytes, number: int, sender: int, receiver: int) -> bytes:
    """Return the bytes to which the shares from one client to another for one sum are bound."""
    return b"flower_pca masks: shares" + setup + _numbers(number, sender, receiver)


def about_columns(setup: bytes, sender: int, receiver: int) -> bytes:
    """Return the bytes to which a client's letter to another about its columns is bound."""
    return b"flower_pca masks: columns" + setup + _numbers(sender, receiver)


def _numbers(*numbers: int) -> bytes:
    return b"".join([int(number).to_bytes(8, "big") for number in numbers])  # A message may bring 3 as 3.0.


class Admit(Protocol):
    """A function that raises an error if the node may not be in a sum with these nodes.

    `reveals` is as in `Demands.check_group`.
    """

    def __call__(self, present: frozenset[bytes], /, *, reveals: bool) -> None:
        """Return if the node may be in the sum, else raise an error."""


@dataclass(frozen=True)
class Demands:
    """The conditions of a node for a group.

    Parameters
    ----------
    identity : Identity or None, default=None
        What the node signs its keys with, and whose signatures it asks for.
    min_peers : int, default=1
        How many others must be in a sum, when shares are made and when survivors are named.
    run : str, default=""
        The name of the run that it is asked in.
    shares : bool, default=True
        Whether it counts on others for their share of the noise. A node without a list of trusted keys must not: a
        server can invent the others, and take their shares off.
    colluders : int, default=0
        How many of those that share the noise of a sum may be in league with the server.
    admit : Admit or None, default=None
        Asked for every sum whose peers have names, that is signed keys.
    least_values : int or None, default=None
        As many values in a column count as having measured it, in what the node tells its peers; None: it tells them
        nothing.
    measured : bool, default=False
        Whether it answers only for columns that as many of its peers have measured as must be in a sum: see
        `masking.coverage`.
    """

    identity: Identity | None = None
    min_peers: int = 1
    colluders: int = 0
    admit: Admit | None = None
    run: str = ""
    shares: bool = True
    least_values: int | None = None
    measured: bool = False

    def sign(self, text: bytes) -> bytes:
        """Return the node's signature, or nothing for a node without an identity."""
        if self.identity is None:
            return b""
        return self.identity.sign(text)

    def check_peers(self, peers: Iterable[int]) -> None:
        """Require enough other nodes."""
        if (count := len(set(peers))) < self.min_peers:
            raise ProtocolError(
                f"This masked sum has {labels.count(count, 'peer')} of this node, but the node's min_peers requires "
                f"at least {self.min_peers}. Ask the node's operator to lower min_peers, or run with more clients."
            )

    def check_group(self, names: Iterable[bytes], *, reveals: bool = False) -> None:
        """Require that a sum with the nodes of these names is allowed. Nameless nodes do not count.

        `reveals`: the server learns this sum from the node's next answer.
        """
        present = frozenset(filter(any, names))
        if self.admit is not None and present:
            self.admit(present, reveals=reveals)

    def sharers(self, summed: int) -> int:
        """Return how many clients may share a sum's noise in a message, if this many answer for certain."""
        if not self.shares:
            return summed
        if summed <= self.colluders:
            raise ProtocolError(
                f"A sum with noise that needs no more than {labels.count(summed, 'client')} is refused, because "
                f"{self.colluders} may collude by this node's max_colluders. Ask the node's operator to lower "
                "max_colluders, or run with more clients."
            )
        return summed - self.colluders


def require(holds: bool, fault: str) -> None:
    """Refuse a message that no server of ours sends. The `fault` reveals nothing of what the client knows."""
    if not holds:
        raise ProtocolError(f"{fault} {ASK_SERVER}")
