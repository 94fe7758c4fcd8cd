"""The definitions that both halves of masked sums share: phases, names of arrays in messages, and contexts of keys.

The context of a key is a text that enters the key's derivation, so that a key serves only one purpose. `SumConditions`
contains a node's conditions for the other nodes of a sum, which apply whatever the server says about the group.

A client's masks are bound to its course. The course is a digest of the messages on which its memory depends.

Without this digest, a server could send one client a different message than all other clients, in a sum that
fails, and then send the same message to all clients. The memory of this one client would differ, and the sum would
reveal the client. A client with memory for its stage therefore keeps a digest of all messages that it has answered
since its memory began, in their order. Messages without an answer are left out. Masks of clients with different
digests do not cancel. Clients send the digest with their keys and with every upload. The digest depends only on
the messages from the server.

The server may lose a sum after its clients have answered, for example if it is killed before it has unmasked the
sum. It then repeats the message after a new set-up. Therefore, a client also keeps the memory and the digest from
before its newest answer, and returns to them if the set-up names this digest.

| what happens                                   | the new digest                        | the new memory              |
| ---------------------------------------------- | ------------------------------------- | --------------------------- |
| The client keeps no memory.                    | `NOTHING`                             | none                        |
| It answers a stage of an algorithm.            | `next_course` of old digest, message  | determined by the stage     |
| It answers a stage of every run (evaluation).  | the same, as only rows are used       | the same                    |
| A set-up names the digest before the answer.   | that digest                           | the memory before           |
| A set-up names any other digest.               | `NOTHING`                             | only what rows determine    |
| A message comes without masks, or the secrets  | `NOTHING`                             | only what rows determine    |
| were lost.                                     |                                       |                             |
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
from flower_pca.core.kinds import FLAG, ArrayRule, index_rule
from flower_pca.core.stage import Arrays
from flower_pca.rows.frame import Frame
from flower_pca.tracking import batch

# The import is only for types, because every run imports this module, but only masks need the package cryptography.
if TYPE_CHECKING:
    from flower_pca.masking.identity import NodeIdentity

DIGEST: Final = 32  # the size of a SHA-256 digest in bytes
NOTHING: Final = bytes(DIGEST)  # the course of a client whose memory depends on no message


def next_course(course: bytes, digest: bytes, stage: str) -> bytes:
    """Return the course (the digest of all answered messages) after the answer to one more message of a stage."""
    return sha256(b"flower_pca masks: answered" + (course if answers_from_memory(stage) else NOTHING) + digest).digest()


def stage_memory(memory: Arrays, course: bytes, stage: str) -> Arrays:
    """Return the part of a client's memory that a stage may use.

    If the client has a course, or if the stage does not answer from its memory, this is all of the memory. Otherwise,
    it is only the part that depends on rows alone.
    """
    if course != NOTHING or not answers_from_memory(stage):
        return memory
    rest = _memory_of_stage(memory)
    counted = {name: a for name, a in memory.items() if name not in rest}
    if stage in registry.TRACKERS:
        counted |= batch.memory_to_save(rest)
    return counted


def course_after_answer(memory: Arrays, course: bytes, newest: bytes, stage: str) -> bytes:
    """Return the course that belongs to a client's memory after the client has answered a message of a stage."""
    if not _memory_of_stage(memory):
        return NOTHING
    if answers_from_memory(stage):
        return newest
    return course


def with_previous_memory(memory: Arrays, previous: Arrays) -> Arrays:
    """Return a client's memory together with its memory from before the newest answer."""
    return {**memory, **{f"{BEFORE}{name}": a for name, a in previous.items()}}


def previous_memory(memory: Arrays) -> Arrays:
    """Return the memory before the newest answer, which `with_previous_memory` has stored in a client's memory."""
    return {name.removeprefix(BEFORE): a for name, a in memory.items() if name.startswith(BEFORE)}


def restore_previous_memory(memory: Arrays, previous: Arrays) -> Arrays:
    """Return a client's memory from before its newest answer.

    What layers have spent, and the batches that were taken from a stream, remain unchanged.
    """
    rest = _memory_of_stage(memory)
    layers = {name: a for name, a in memory.items() if name not in rest}
    return {**layers, **previous, **batch.memory_to_save(rest)}


def memory_for_repeat(memory: Arrays, stage: str) -> Arrays:
    """Return the part of a client's memory that it needs to answer the same message of a stage again."""
    # A tracker's step cannot be answered again, so that no batch is used twice.
    return {} if stage in registry.TRACKERS else _memory_of_stage(memory)


def strayed_clients(answers: Mapping[int, Arrays], course: bytes | None = None) -> tuple[int, ...]:
    """Return the clients that have strayed, because their memory does not allow them to continue from this course.

    If `course` is None, these are the clients whose course differs from the course of most clients.
    """
    courses = {client: arrays["mask.past"].tobytes() for client, arrays in answers.items()}
    if course is not None:
        return tuple(i for i, past in courses.items() if course not in (past, answers[i]["mask.earlier"].tobytes()))
    votes = Counter(courses.values())
    most = max(votes, key=votes.__getitem__, default=NOTHING)
    return tuple(client for client, course in courses.items() if course != most)


def reason_of_straying(client: int, consequence: str) -> str:
    """Return the reason why a client has strayed, followed by the consequence."""
    return f"Client {client} received other messages of this run than most clients, or in another order. {consequence}"


def reason_if_all_strayed(client: int, consequence: str) -> str:
    """Return the text that replaces the text from `reason_of_straying` if all clients have strayed."""
    return f"Client {client}, like all others, does not have the state that this run continues from. {consequence}"


def answers_from_memory(stage: str) -> bool:
    """Return whether a stage answers from its memory, as the stages of algorithms do."""
    return bool(registry.algorithms_of_stage(stage))


def _memory_of_stage(memory: Arrays) -> Arrays:
    """Return the part of a client's memory that belongs to its stage, without the parts of layers."""
    layers = registry.LAYERS
    return {name: a for name, a in memory.items() if name.partition(".")[0] not in layers}


STAGE: Final = "masked"  # the stage that every message of a masked run names, whatever its inner stage
# The prefix of the arrays of masks, in messages and in a client's memory. Arrays of the inner stage have no prefix.
PREFIX: Final = "mask."
BOUND: Final = "mask.bound."  # the prefix of the bounds of fixed point
BEFORE: Final = "mask.before."  # the prefix of a client's memory from before its newest answer
ASK_SERVER: Final = "This node has sent nothing. Ask the operator of the server."
# The size of a signature in bytes: the SHA-256 digest of its key, and the two numbers of ECDSA on any curve
SIGNATURE: Final = 164
_TEXT: Final = ArrayRule(dimensions=1, least=0, most=255, whole=True)  # an array of bytes
# Texts of equal length, in the form in which `texts_as_rows` joins them
_TEXTS: Final = ArrayRule(dimensions=2, least=0, most=255, whole=True)
_MOST: Final = 2**53  # the largest number up to which floats represent all whole numbers exactly
_CLIENTS: Final = ArrayRule(dimensions=1, least=0, most=_MOST, whole=True)

# All arrays that a server sends for masks, except the bounds of fixed point
SENT: Final[Mapping[str, ArrayRule]] = {
    f"{PREFIX}{name}": ask
    for ask, names in (
        (index_rule(3), ("step",)),
        (index_rule(_MOST), ("number", "d", "needed", "position", "clients")),
        (FLAG, ("single",)),
        (_TEXT, ("setup", "stage", "course")),
        (_TEXTS, ("exchanges", "signatures", "firsts", "members", "keys", "shares", "agreed", "columns")),
        (_CLIENTS, ("peers", "survived", "dropped")),
    )
    for name in names
}


class SpentError(DataError):
    """An error that a client raises if it cannot answer from its rows.

    The missing answer reveals something about the client. Therefore, the client deletes the secrets of the set-up and
    keeps only `memory`.
    """

    def __init__(self, reason: str, memory: Arrays) -> None:
        super().__init__(reason)
        self.memory = memory


class Phase(enum.IntEnum):
    """The phases of the protocol: two for a set-up, and two for each sum.

    Without self-masks, a sum needs no UNMASK phase unless a client drops out.
    """

    KEYS, SHARES, UPLOAD, UNMASK = range(4)


def bytes_as_array(text: bytes) -> Array:
    """Return bytes as an array."""
    return np.frombuffer(text, dtype=np.uint8)


def texts_as_rows(texts: list[bytes], width: int) -> Array:
    """Return texts of equal length as the rows of an array."""
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, width)


def rows_as_texts(a: Array) -> list[bytes]:
    """Return the texts in the rows of an array that `texts_as_rows` has made."""
    return list(map(np.ndarray.tobytes, a))


def stage_arrays(arrays: Mapping[str, Array]) -> Arrays:
    """Return the inner stage's own arrays in a message or a memory, without the arrays of masks."""
    return {name: a for name, a in arrays.items() if not name.startswith(PREFIX)}


def bounds_in_message(arrays: Mapping[str, Array]) -> Arrays:
    """Return the bounds in a message, by the names of the arrays that they bound."""
    return {name.removeprefix(BOUND): a for name, a in arrays.items() if name.startswith(BOUND)}


def unknown_mask_arrays(arrays: Mapping[str, Array]) -> list[str]:
    """Return the names in a message that have the prefix of masks, but that no server of this package sends."""
    ours = [n for n in arrays if n.startswith(PREFIX) and n not in SENT]
    return sorted(n for n in ours if not n.startswith(BOUND))


def inner_stage(arrays: Mapping[str, Array]) -> str | None:
    """Return the name of the stage inside a masked message, or None if there is no such stage."""
    if "mask.stage" not in arrays:
        return None
    # Bytes that are not text cannot name a stage.
    return arrays["mask.stage"].tobytes().decode(errors="replace")


def has_no_self_masks(arrays: Mapping[str, Array]) -> bool:
    """Return whether a message asks for a set-up without self-masks."""
    return bool(np.any(arrays.get("mask.single", False)))


def text_of_publication(setup: bytes, exchange: bytes, key: bytes) -> bytes:
    """Return the text that a node signs about its keys: the set-up's name, and the node's own public keys."""
    return b"flower_pca masks: set-up" + setup + exchange + key


def text_of_group(setup: bytes, run: str, needed: int, members: Iterable[bytes]) -> bytes:
    """Return the text that a node signs about a group: the set-up, threshold, run, and the members' sorted keys."""
    # Digests have a fixed length, so two different groups cannot have the same text.
    name = sha256(run.encode()).digest()
    keys = sha256(b"".join(sorted(members))).digest()
    return b"flower_pca masks: group" + setup + _numbers_as_bytes(needed) + name + keys


def context_of_letters(sender: bytes, receiver: bytes) -> bytes:
    """Return the context of the secret for letters from one client to another, which contains their public keys."""
    return b"flower_pca masks: letters" + sender + receiver


def digest_of_message(arrays: Mapping[str, Array], frame: Frame) -> bytes:
    """Return a digest of the part of a message that all clients of a sum get, with the frame and the fixed point.

    Arrays that differ between clients are left out. These are only keys and letters, because no stage under masks
    sends `personal` arrays. The digest includes the memory layout of arrays, because the layout affects rounding, and
    the sum would then reveal one client's answer by its last digits.
    """
    # The steps of fixed point depend on the number of clients. Answers with different steps cannot be summed.
    alike = {"mask.stage", "mask.clients", *stage_arrays(arrays)}
    # Bounds are included. Otherwise, a server could send all clients but one bounds that round their answers to 0, so
    # that the sum would reveal the answer of this one client.
    content = {name: a for name, a in arrays.items() if name in alike or name.startswith(BOUND)}
    # The frame is included. Otherwise, a server could send all clients but one a huge scale, and then know their
    # answers.
    for f in fields(frame):
        if f.name == "names":
            content["frame.names"] = bytes_as_array(json.dumps(frame.names).encode())
        elif f.name == "split" and frame.split is not None:  # The salt only affects the digest of ids, not the answer.
            split = replace(frame.split, salt="").to_text()
            content["frame.split"] = bytes_as_array(json.dumps(split).encode())
        elif f.name == "covariates" and frame.covariates is not None:
            content["frame.covariates"] = bytes_as_array(frame.covariates.to_text().encode())
            content |= {f"frame.{name}": a + 0.0 for name, a in frame.covariates.arrays.items()}
        # With this conversion, frames that are equal by Frame.same have the same digest.
        elif (a := getattr(frame, f.name)) is not None:
            content[f"frame.{f.name}"] = np.asarray(a, dtype=np.float64) + 0.0
    total = sha256()
    for name, given in sorted(content.items()):
        a = np.asarray(given)
        # The digest includes whether entries are stored by columns, because this part of the memory layout is sent.
        by_columns = a.flags.f_contiguous and not a.flags.c_contiguous
        about = f"{name} {a.dtype.str} {a.shape} {by_columns}"
        total.update(sha256(about.encode()).digest())
        total.update(sha256(np.ascontiguousarray(a).data).digest())
    return total.digest()


def context_of_pair_mask(setup: bytes, course: bytes, number: int, low: int, high: int) -> bytes:
    """Return the context of the mask that two clients share in a sum.

    The context contains `course`, the digest of all messages so far. The masks of two clients therefore cancel only if
    both clients have received the same messages.
    """
    return b"flower_pca masks: pair" + setup + course + _numbers_as_bytes(number, low, high)


def context_of_self_mask(setup: bytes, number: int, position: int) -> bytes:
    """Return the context of a client's self-mask in a sum."""
    return b"flower_pca masks: self" + setup + _numbers_as_bytes(number, position)


def context_of_shares(setup: bytes, number: int, sender: int, receiver: int) -> bytes:
    """Return the context for sealing the shares that one client sends to another for a sum."""
    return b"flower_pca masks: shares" + setup + _numbers_as_bytes(number, sender, receiver)


def context_of_column_letter(setup: bytes, sender: int, receiver: int) -> bytes:
    """Return the context for sealing the letter that one client sends to another about its columns."""
    return b"flower_pca masks: columns" + setup + _numbers_as_bytes(sender, receiver)


def _numbers_as_bytes(*numbers: int) -> bytes:
    # A message may contain 3.0 instead of 3, so numbers are converted to int.
    return b"".join([int(number).to_bytes(8, "big") for number in numbers])


class AdmitsGroup(Protocol):
    """A function that raises an error if the node may not take part in a sum with these nodes.

    `reveals` is the same as in `SumConditions.check_group`.
    """

    def __call__(self, present: frozenset[bytes], /, *, reveals: bool) -> None:
        """Raise an error unless the node may take part in the sum."""


@dataclass(frozen=True)
class SumConditions:
    """The conditions under which a node takes part in a masked sum.

    Parameters
    ----------
    identity : NodeIdentity or None, default=None
        The key with which the node signs its own keys, and the keys whose signatures it requires.
    min_peers : int, default=1
        The smallest number of other nodes in a sum, when shares are made and when survivors are named.
    colluders : int, default=0
        The number of nodes that share the noise of a sum and may collude with the server.
    admit : AdmitsGroup or None, default=None
        A function that is called before every sum with peers that have signed their keys. It may refuse the sum.
    run : str, default=""
        The name of the run to which the message belongs.
    shares : bool, default=True
        Whether the node relies on other nodes for their share of the noise. Without a list of trusted keys, a node must
        not do so, because a server can invent the other nodes and subtract their shares.
    least_values : int or None, default=None
        The smallest number of values with which a column counts as measured in the letters to peers. If it is None, the
        node sends no letters.
    measured : bool, default=False
        Whether the node answers only for columns that at least `min_peers` of its peers have measured: see
        `masking.coverage`.
    """

    identity: NodeIdentity | None = None
    min_peers: int = 1
    colluders: int = 0
    admit: AdmitsGroup | None = None
    run: str = ""
    shares: bool = True
    least_values: int | None = None
    measured: bool = False

    def sign(self, text: bytes) -> bytes:
        """Return the node's signature of a text, or empty bytes for a node without an identity."""
        if self.identity is None:
            return b""
        return self.identity.sign(text)

    def check_peers(self, peers: Iterable[int]) -> None:
        """Require at least `min_peers` other nodes in a sum."""
        if (count := len(set(peers))) < self.min_peers:
            raise ProtocolError(
                f"This masked sum has {labels.count(count, 'other node')}, but this node's min_peers requires at least "
                f"{self.min_peers}. Ask the node's operator to lower min_peers, or run with more clients."
            )

    def check_group(self, names: Iterable[bytes], *, reveals: bool = False) -> None:
        """Require that the node may take part in a sum with the nodes of these names. Nodes without names do not count.

        `reveals` states whether the server learns this sum from the node's next answer.
        """
        present = frozenset(filter(any, names))
        if self.admit is not None and present:
            self.admit(present, reveals=reveals)

    def max_noise_sharers(self, summed: int) -> int:
        """Return the largest number of clients among which the noise of a sum of `summed` answers may be divided."""
        if not self.shares:
            return summed
        if summed <= self.colluders:
            raise ProtocolError(
                f"A sum with noise over only {labels.count(summed, 'client')} is refused, because {self.colluders} may "
                "collude with the server according to this node's max_colluders. Ask the node's operator to lower "
                "max_colluders, or run with more clients."
            )
        return summed - self.colluders


def require_valid_message(holds: bool, fault: str) -> None:
    """Refuse a message that no server of this package sends. `fault` must reveal nothing about the client's secrets."""
    if not holds:
        raise ProtocolError(f"{fault} {ASK_SERVER}")
