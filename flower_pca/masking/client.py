"""The client's half of masked sums: a state machine whose state lies in the client's memory.

Nothing is done twice: a set-up begins with new secrets, every sum of it is uploaded once and unmasked once, and of a
peer either share is given away, never both. The last secrets of a sum are gone when it is unmasked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np

from flower_pca.core import checks
from flower_pca.core.errors import ProtocolError
from flower_pca.core.linalg import Array
from flower_pca.core.local import LocalData
from flower_pca.core.stage import Arrays
from flower_pca.core.stream import Stream
from flower_pca.masking import fixed, messages, primitives
from flower_pca.masking.messages import Step, raw, rows, texts
from flower_pca.masking.primitives import KEY, SEALED, SEED

Answer: TypeAlias = Callable[[str, Arrays, LocalData | Stream, Arrays], tuple[Arrays, Arrays]]


@dataclass(frozen=True)
class Secrets:
    """What a client keeps of a set-up: all arrays, so that any driver can keep it.

    `common` is what the client's own exchange key and those of its peers agree on, for shares to be sealed with.
    `own` and `coming` are the seed of the self-mask, that of the mask key, and the client's shares of both, for the sum
    `number` and for the next one; `held` are the shares of the peers named in `holders`, for the sum `number`.
    """

    setup: Array
    exchange: Array
    step: Array
    number: Array
    own: Array
    needed: Array
    position: Array
    peers: Array
    common: Array
    coming: Array
    holders: Array
    held: Array

    @classmethod
    def of(cls, memory: Arrays) -> Secrets | None:
        """The secrets in a client's memory, if there are any."""
        found = {f.name: memory.get(messages.PREFIX + f.name) for f in fields(cls)}
        return None if any(a is None for a in found.values()) else cls(**found)  # type: ignore[arg-type]

    def stored(self) -> Arrays:
        """As parts of a client's memory."""
        return {messages.PREFIX + f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}


def answer(arrays: Arrays, data: LocalData | Stream, memory: Arrays, stage: Answer) -> tuple[Arrays, Arrays]:
    """What a client returns and keeps; `stage` gives its half of the stage that an upload is of."""
    own, secrets = messages.plain(memory), Secrets.of(memory)
    step = Step(int(arrays["mask.step"]))
    if step == Step.KEYS:
        up, secrets = _keys(arrays, data)
        return up, {**own, **secrets.stored()}
    if secrets is None or secrets.setup.tobytes() != arrays["mask.setup"].tobytes():
        return {"mask.lost": np.array(1)}, memory
    if step == Step.SHARES:
        up, secrets = _shares(arrays, secrets)
    elif step == Step.UPLOAD:
        secrets = _admitted(arrays, secrets)
        up, own = stage(messages.inner_stage(arrays) or "", messages.plain(arrays), data, own)
        up, secrets = _upload(arrays, secrets, up)
    else:
        up, secrets = _unmask(arrays, secrets)
    return up, {**own, **secrets.stored()}


def _keys(arrays: Arrays, data: LocalData | Stream) -> tuple[Arrays, Secrets]:
    exchange, own = primitives.fresh(), primitives.fresh() + primitives.fresh()
    # A stream is looked into only if the server does not know: later on its first batch may be gone.
    d = data.columns() if isinstance(data, Stream) and "mask.d" not in arrays else data.d
    up = {
        "mask.exchange": raw(primitives.public(exchange)),
        "mask.key": raw(primitives.public(own[SEED:])),
        "mask.d": np.array(d or 0, dtype=np.int64),
    }
    none = np.empty(0, dtype=np.uint8)
    zero = np.array(0)
    made = (raw(exchange), np.array(int(Step.SHARES)), zero, raw(own), zero, zero, none, none, none, none, none)
    return up, Secrets(arrays["mask.setup"], *made)


def _shares(arrays: Arrays, secrets: Secrets) -> tuple[Arrays, Secrets]:
    _expect(secrets, int(secrets.step) == Step.SHARES)
    position, peers = int(arrays["mask.position"]), _distinct(arrays["mask.peers"])
    exchange, mine = primitives.private(secrets.exchange.tobytes()), primitives.public(secrets.exchange.tobytes())
    keys, needed = texts(arrays["mask.exchanges"]), int(arrays["mask.needed"])
    group = len(peers) + 1
    others = len({*keys, mine}) == group == len(keys) + 1
    _require("The clients of a set-up", "different ones, at least two", others and position not in peers and group > 1)
    _require("The survivors needed", "more than half, at most all", 2 * needed > group >= needed)
    secrets = replace(
        secrets,
        needed=np.array(needed),
        position=np.array(position),
        peers=arrays["mask.peers"],
        exchange=np.empty(0, dtype=np.uint8),
        common=rows([primitives.agree(exchange, key) for key in keys], KEY),
        step=np.array(int(Step.UPLOAD)),
    )
    sealed, own = _deal(secrets, 0, secrets.own.tobytes(), peers)
    return {"mask.shares": sealed}, replace(secrets, own=raw(own))


def _admitted(arrays: Arrays, secrets: Secrets) -> Secrets:
    """The secrets for an upload, with what peers have sent for it, if the message is the one that is due."""
    number = int(arrays["mask.number"])
    if int(secrets.step) == Step.UNMASK:  # the last sum was unmasked without this client
        secrets = _onwards(secrets)
    _expect(secrets, int(secrets.step) == Step.UPLOAD and number == int(secrets.number))
    peers, keys = _distinct(arrays["mask.peers"]), texts(arrays["mask.keys"])
    enough = len(peers) + 1 >= int(secrets.needed) and set(peers) <= set(secrets.peers.tolist())
    _require("The clients of a sum", f"at least {int(secrets.needed)}, of its set-up", enough)
    mine = primitives.public(secrets.own.tobytes()[SEED : 2 * SEED])
    different = len({*keys, mine}) == len(peers) + 1 == len(keys) + 1
    _require("The keys of a sum", "different, one of each client", different)
    _require("An upload", "one of a stage", messages.inner_stage(arrays) not in (None, messages.STAGE))
    held = rows(_opened(secrets, number, peers, keys, arrays["mask.shares"]), 2 * SEED)
    return replace(secrets, holders=arrays["mask.peers"], held=held)


def _upload(arrays: Arrays, secrets: Secrets, up: Arrays) -> tuple[Arrays, Secrets]:
    number, peers, bounds = int(secrets.number), secrets.holders.tolist(), messages.bounds(arrays)
    if set(bounds) != set(up):
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError(checks.sentence("The bounds of a sum", f"those of {', '.join(up)}", list(bounds), remedy))
    y = fixed.encode(up, bounds, int(arrays["mask.clients"]))
    y = _masked(y, secrets, number, peers, texts(arrays["mask.keys"]))
    coming = primitives.fresh() + primitives.fresh()
    sealed, kept = _deal(secrets, number + 1, coming, peers)
    secrets = replace(secrets, step=np.array(int(Step.UNMASK)), coming=raw(kept))
    return {"mask.y": y, "mask.key": raw(primitives.public(coming[SEED:])), "mask.shares": sealed}, secrets


def _unmask(arrays: Arrays, secrets: Secrets) -> tuple[Arrays, Secrets]:
    _expect(secrets, int(secrets.step) == Step.UNMASK and int(arrays["mask.number"]) == int(secrets.number))
    survived, dropped = _distinct(arrays["mask.survived"]), _distinct(arrays["mask.dropped"])
    whole = sorted(survived + dropped) == sorted(secrets.holders.tolist())
    _require("Survivors and dropped clients", "together those of the sum, each once", whole)
    _require("The survivors of a sum", f"at least {int(secrets.needed)}", len(survived) + 1 >= int(secrets.needed))
    held = dict(zip(secrets.holders.tolist(), texts(secrets.held), strict=True))
    own = secrets.own.tobytes()[2 * SEED :]
    selves = [own[:SEED], *(held[peer][:SEED] for peer in survived)]
    keys = [held[peer][SEED:] for peer in dropped]
    return {"mask.selves": rows(selves, SEED), "mask.keys": rows(keys, SEED)}, _onwards(secrets)


def _onwards(secrets: Secrets) -> Secrets:
    """After a sum: its secrets are gone, those of the next take their place."""
    none = np.empty(0, dtype=np.uint8)
    step, number = np.array(int(Step.UPLOAD)), np.array(int(secrets.number) + 1)
    return replace(secrets, step=step, number=number, own=secrets.coming, coming=none, holders=none, held=none)


def _deal(secrets: Secrets, number: int, seeds: bytes, peers: list[int]) -> tuple[Array, bytes]:
    """Shares of both seeds and the public key, sealed for each peer; and the seeds with the client's own shares."""
    position, setup, key = int(secrets.position), secrets.setup.tobytes(), primitives.public(seeds[SEED:])
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    group = sorted([*peers, position])
    halves = (primitives.split(part, int(secrets.needed), len(group)) for part in (seeds[:SEED], seeds[SEED:]))
    both = {member: a + b for member, a, b in zip(group, *halves, strict=True)}
    sealed = []
    for peer in peers:
        context = messages.envelope(setup, number, position, peer)
        sealed.append(primitives.seal(primitives.derive(common[peer], context), both[peer] + key, context))
    return rows(sealed, SEALED), seeds + both[position]


def _opened(secrets: Secrets, number: int, peers: list[int], keys: list[bytes], sealed: Array) -> list[bytes]:
    """The shares that peers have sent this client for a sum; each must be whole, and come with the key that is used."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    held = []
    for peer, public, text in zip(peers, keys, texts(sealed), strict=True):
        context = messages.envelope(setup, number, peer, position)
        key = primitives.derive(common[peer], context)
        opened = primitives.unseal(key, text, context)
        _require("The key of a peer for a sum", "the one that it has sealed", opened[2 * SEED :] == public)
        held.append(opened[: 2 * SEED])
    return held


def _masked(y: Array, secrets: Secrets, number: int, peers: list[int], keys: list[bytes]) -> Array:
    """Y + PRG(b) + sum of PRG(k_ij) over later clients - sum over earlier ones, mod 2^64."""
    position, setup, seed = int(secrets.position), secrets.setup.tobytes(), secrets.own.tobytes()
    y = y + primitives.stream(primitives.derive(seed[:SEED], messages.alone(setup, number, position)), len(y))
    private = primitives.private(seed[SEED : 2 * SEED])
    for peer, key in zip(peers, keys, strict=True):
        context = messages.pair(setup, number, *sorted((position, peer)))
        mask = primitives.stream(primitives.derive(primitives.agree(private, key), context), len(y))
        y = y + mask if peer > position else y - mask
    return y


def _distinct(a: Array) -> list[int]:
    numbers = [int(number) for number in a]
    _require("The clients that a message names", "different ones", len(set(numbers)) == len(numbers))
    return numbers


def _expect(secrets: Secrets, expected: bool) -> None:
    if not expected:
        rule = f"the next one of its set-up, {Step(int(secrets.step)).name.lower()} of sum {int(secrets.number)}"
        got = "another one, or one that came before"
        raise ProtocolError(checks.sentence("A masked message", rule, got, "Nothing was sent in return."))


def _require(what: str, rule: str, holds: bool) -> None:
    if not holds:
        raise ProtocolError(checks.sentence(what, rule, "others", "Nothing was sent in return."))
