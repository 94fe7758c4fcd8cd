"""The course of messages that a client's memory has come from, to which its masks are bound.

A server could ask one client another thing than the others, in a sum that comes to nothing, and then all of them the
same: their memories differ, and the sum tells of that one. So a client that keeps anything for its stage keeps a digest
beside it, of all that it has answered since it keeps anything, in that order. What it has not answered is not in it.
Masks of clients whose digests differ do not cancel. They tell them when they make keys, and with every upload: they say
no more than what the server has asked.

| what happens                              | the digest                                 | what is kept        |
| ----------------------------------------- | ------------------------------------------ | ------------------- |
| nothing is kept                           | `NOTHING`                                  |                     |
| an answer of a stage of an algorithm      | `course` of the old one and the message    | what the stage says |
| of a stage of every run, as an evaluation | stays: the answer is made of rows alone    | stays               |
| a client is told to begin afresh          | `NOTHING`                                  | what rows alone say |
| a message without masks, lost secrets     | `NOTHING`: what is kept counts for nothing | likewise            |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from flower_pca import registry
from flower_pca.base.errors import sentence
from flower_pca.core.stage import Arrays
from flower_pca.tracking import batch

DIGEST: Final = 32  # bytes of SHA-256
NOTHING: Final = bytes(DIGEST)


def course(past: bytes, said: bytes, stage: str) -> bytes:
    """The course that ends with a message to this stage, `said` being a digest of it."""
    return sha256(b"flower_pca masks: answered" + (past if _remembers(stage) else NOTHING) + said).digest()


def counting(own: Arrays, past: bytes, stage: str) -> Arrays:
    """What of a client's memory a stage may see: all if it has a course, else what follows from rows alone."""
    if past != NOTHING or not _remembers(stage):
        return own
    rest = _of_stage(own)
    layers = {name: a for name, a in own.items() if name not in rest}
    if stage not in registry.TRACKERS:
        return layers
    return {**layers, **batch.lasting(rest)}


def onwards(own: Arrays, past: bytes, newest: bytes, stage: str) -> bytes:
    """The course of what a client keeps after it has answered a stage, the newest message included."""
    if not _of_stage(own):
        return NOTHING
    if _remembers(stage):
        return newest
    return past


def strays(answers: Mapping[int, Arrays]) -> tuple[int, ...]:
    """The clients that tell another course than most."""
    courses = {client: arrays["mask.past"].tobytes() for client, arrays in answers.items()}
    votes = Counter(courses.values())
    most = max(votes, key=votes.__getitem__, default=NOTHING)
    return tuple(client for client, told in courses.items() if told != most)


def why(client: int, then: str) -> str:
    """What is said of a client that has strayed."""
    what = f"What client {client} keeps of this run"
    return sentence(what, "from the same messages, in the same order, as that of the others", "another course", then)


def _remembers(stage: str) -> bool:
    """Whether a stage answers from what is kept: one of an algorithm, and none that every run has."""
    return bool(registry.owners(stage))


def _of_stage(own: Arrays) -> Arrays:
    """What of a client's memory its stage has kept, and no layer."""
    return {name: a for name, a in own.items() if name.partition(".")[0] not in registry.LAYERS}
