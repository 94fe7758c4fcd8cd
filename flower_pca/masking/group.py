"""The server's half of masked sums: one set-up of a fixed group of clients, and its sums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flower_pca.base.errors import NotEnoughNodes, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.masking import coverage, messages, primitives
from flower_pca.masking.messages import (
    DIGEST,
    NOTHING,
    SIGNATURE,
    Phase,
    bytes_as_array,
    rows_as_texts,
    strayed_clients,
    texts_as_rows,
)
from flower_pca.masking.primitives import KEY, SEED
from flower_pca.settings.masks import MaskedSums


@dataclass(frozen=True)
class PublishedKey:
    """A client's public mask key for a sum. `shares` maps each receiver to the client's sealed shares for it."""

    key: bytes
    shares: Mapping[int, bytes] = field(default_factory=dict)


class MaskingGroup:
    """A group of clients with a common set-up. Clients know each other by their positions in the group.

    A client that drops out cannot return before the next set-up.

    Parameters
    ----------
    masks : MaskedSums
        The settings of the masks.
    setup : bytes
        The name of the set-up.
    audience : int
        The number of clients that were asked to take part.
    answers : mapping
        The answers with keys, by client. Their order determines the clients' positions.
    course : bytes or None, default=None
        The course after the last valid sum (see `messages.next_course`), or None before the first valid sum.
    """

    def __init__(
        self, masks: MaskedSums, setup: bytes, audience: int, answers: Mapping[int, Arrays], course: bytes | None = None
    ) -> None:
        least = max(2, masks.quorum(audience))
        if len(answers) < least:
            raise NotEnoughNodes(
                f"A masked sum needs at least {least} clients, but {len(answers)} of the {audience} clients answered. "
                "Start more clients."
            )
        self.setup, self.number = setup, 0
        self.clients = tuple(answers)
        self.position = {client: i for i, client in enumerate(self.clients)}
        self._neighbors = neighbor_graph(len(answers), masks.neighbor_count(len(answers)))
        self._needed = masks.quorum(len(self._neighbors[0]) + 1)
        # For each sum, a client holds this number of shares from each peer.
        self._shares = 1 + bool(masks.self_masks)
        self._letter = primitives.encrypted_size(self._shares)  # the size in bytes of a letter with shares
        # Letters about columns describe this number of columns.
        self.columns = max(int(a["mask.d"]) for a in answers.values())
        self._signatures = [a["mask.signature"].tobytes() for a in answers.values()]
        # The members' signatures of the text about the group are delivered with the first sum.
        self._agreed: dict[int, bytes] = {}
        # The optional letters about columns, by sender and receiver, are delivered with the first sum.
        self._columns: dict[int, dict[int, bytes]] = {}
        self._exchange = [a["mask.exchange"].tobytes() for a in answers.values()]
        keys = [a["mask.key"].tobytes() for a in answers.values()]
        self._next = {i: PublishedKey(key) for i, key in enumerate(keys)}
        self._now: dict[int, PublishedKey] = {}
        self._peers: dict[int, list[int]] = {}
        # Each client of a sum has one list of peers that have survived, and one of peers that have dropped out.
        self._survivors_and_dropped: dict[int, tuple[list[int], list[int]]] = {}
        self._uploads: dict[int, Array] = {}
        self._course = b""
        # The clients begin with this course. If their courses differ, all clients begin again without memory.
        self._begin_with = NOTHING
        if not strayed_clients(answers, course):
            self._begin_with = next(a["mask.past"].tobytes() for a in answers.values()) if course is None else course
        # The clients' memory has this course after a sum.
        self.kept = NOTHING

    @property
    def clients_ready(self) -> frozenset[int]:
        """The clients whose keys and shares for the next sum have arrived."""
        dealt = [i for i, published in self._next.items() if published.shares]
        return frozenset([self.clients[i] for i in dealt])

    @property
    def needed_uploads(self) -> int:
        """The minimum number of uploads from a client and its neighbors, which every client of a sum needs."""
        return self._needed

    @property
    def uploaded_clients(self) -> tuple[int, ...]:
        """The clients whose uploads are in the sum."""
        return tuple([self.clients[i] for i in sorted(self._uploads)])

    @property
    def can_sum_directly(self) -> bool:
        """Whether the uploads can be summed directly: there are no self-masks, and no client has dropped out."""
        return self._shares == 1 and set(self._uploads) == set(self._now)

    def has_too_few_neighbors(self, clients: Iterable[int]) -> bool:
        """Return whether any client would have too few neighbors in a sum over these clients."""
        return self._fewest_neighbors({self.position[client] for client in clients}) < self._needed

    def shares_message(self, client: int) -> Arrays:
        """Return the second message of the set-up: the peers to which a client sends shares, and their keys."""
        i = self.position[client]
        peers = self._neighbors[i]
        signed: Arrays = {}
        if any(self._signatures):
            signatures = [self._signatures[peer] or bytes(SIGNATURE) for peer in peers]
            signed["mask.signatures"] = texts_as_rows(signatures, SIGNATURE)
            signed["mask.firsts"] = texts_as_rows([self._next[peer].key for peer in peers], KEY)
            if len(peers) + 1 < len(self.clients):
                signed["mask.members"] = texts_as_rows(self._exchange, KEY)
        return {
            "mask.needed": np.array(self._needed),
            "mask.course": bytes_as_array(self._begin_with),
            "mask.position": np.array(i),
            "mask.peers": np.array(peers, dtype=np.int64),
            "mask.exchanges": texts_as_rows([self._exchange[peer] for peer in peers], KEY),
            **signed,
        }

    def take_shares(self, answers: Mapping[int, Arrays]) -> None:
        """Store the answers with shares. A client that has sent no shares leaves the set-up."""
        published, self._next = self._next, {}
        for client, arrays in answers.items():
            i = self.position[client]
            key = published[i].key
            self._store_key(i, key, self._neighbors[i], arrays["mask.shares"])
            self._agreed[i] = arrays["mask.agreed"].tobytes()
            if coverage.LETTERS in arrays:
                self._columns[i] = dict(zip(self._neighbors[i], rows_as_texts(arrays[coverage.LETTERS]), strict=True))

    def begin_sum(self, clients: Iterable[int]) -> None:
        """Begin a sum over these clients. All of them must be in `clients_ready`."""
        members = [self.position[client] for client in clients]
        self._now = {i: self._next[i] for i in members}
        self._next, self._uploads = {}, {}
        self._peers = {i: [j for j in self._neighbors[i] if j in self._now] for i in self._now}
        self._require_neighbors("are ready for a masked sum", self._now)

    def upload_message(self, client: int) -> Arrays:
        """Return the arrays that a client needs for its upload, in addition to the stage's own arrays."""
        i = self.position[client]
        peers = self._peers[i]
        return {
            "mask.peers": np.array(peers, dtype=np.int64),
            "mask.keys": texts_as_rows([self._now[peer].key for peer in peers], KEY),
            "mask.shares": texts_as_rows([self._now[peer].shares[i] for peer in peers], self._letter),
            **self._signatures_of(peers),
            **self._column_letters_for(i, peers),
        }

    def take_uploads(self, answers: Mapping[int, Arrays]) -> None:
        """Store the uploads of a sum, and the keys and shares of their clients for the next sum.

        All uploads must have the same course.
        """
        for client, arrays in answers.items():
            i = self.position[client]
            self._uploads[i] = arrays["mask.y"]
            self._course, self.kept = arrays["mask.past"].tobytes(), arrays["mask.kept"].tobytes()
            key = arrays["mask.key"].tobytes()
            self._store_key(i, key, self._peers[i], arrays["mask.shares"])
        self._require_neighbors("uploaded their part of a masked sum", self._uploads)
        self._survivors_and_dropped = {}
        for i, peers in self._peers.items():
            survived = [j for j in peers if j in self._uploads]
            dropped = [j for j in peers if j not in self._uploads]
            self._survivors_and_dropped[i] = survived, dropped

    def unmask_message(self, client: int) -> Arrays:
        """Return the message that tells a client which of its peers have survived and which have dropped out."""
        survived, dropped = self._survivors_and_dropped[self.position[client]]
        return {"mask.survived": np.array(survived, dtype=np.int64), "mask.dropped": np.array(dropped, dtype=np.int64)}

    def answer_shapes(self, step: Phase, client: int, length: int) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the arrays in a client's answer. `length` is the length of an upload."""
        i, letter = self.position[client], self._letter
        if step == Phase.SHARES:
            signature = (len(self._signatures[i]),)
            return {"mask.shares": (len(self._neighbors[i]), letter), "mask.agreed": signature}
        if step == Phase.UPLOAD:
            letters = {"mask.shares": (len(self._peers[i]), letter)}
            courses = {"mask.past": (DIGEST,), "mask.kept": (DIGEST,)}
            return {"mask.y": (length,), "mask.key": (KEY,), **courses, **letters}
        return {f"mask.{kind}": (len(owners), SEED) for kind, owners in self._owners_to_restore(i).items()}

    def unmasked_sum(self, answers: Mapping[int, Arrays]) -> Array:
        """Return the sum of the uploads without its masks, mod 2^64."""
        shares: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        groups = {owner: sorted([*published.shares, owner]) for owner, published in self._now.items()}
        ranks = {owner: {j: rank for rank, j in enumerate(group)} for owner, group in groups.items()}
        for client, arrays in answers.items():
            i = self.position[client]
            for kind, owners in self._owners_to_restore(i).items():
                for owner, share in zip(owners, rows_as_texts(arrays[f"mask.{kind}"]), strict=True):
                    point = (ranks[owner][i], share)
                    shares.setdefault((kind, owner), []).append(point)
        total = np.zeros_like(next(iter(self._uploads.values())))
        for upload in self._uploads.values():
            total = total + upload
        # With a wrong share, the sum looks like noise, which `fixed.decode` detects.
        if self._shares == 2:
            for i in self._uploads:
                alone = messages.context_of_self_mask(self.setup, self.number, i)
                key = primitives.derive_key(self._restored_secret(shares, "selves", i), alone)
                total = total - primitives.mask_of_key(key, len(total))
        for i in set(self._now) - set(self._uploads):
            if survivors := [j for j in self._peers[i] if j in self._uploads]:
                seed = self._restored_secret(shares, "keys", i)
                total = total - self._uncanceled_masks(i, seed, survivors, len(total))
        return total

    def end_sum(self) -> None:
        """End the sum, and increase the number for the next sum."""
        self.number += 1
        self._now, self._peers, self._uploads = {}, {}, {}

    def _signatures_of(self, peers: list[int]) -> Arrays:
        """Return the peers' signatures of the text about the group, or no arrays after the first sum of the set-up."""
        if self.number or not any(self._agreed.values()):
            return {}
        signatures = [self._agreed[peer] or bytes(SIGNATURE) for peer in peers]
        return {"mask.agreed": texts_as_rows(signatures, SIGNATURE)}

    def _column_letters_for(self, i: int, peers: list[int]) -> Arrays:
        """Return the letters about columns from a client's peers, or no arrays after the first sum of the set-up."""
        letters = [self._columns.get(peer, {}).get(i, b"") for peer in peers]
        length = max(map(len, letters), default=0)
        if self.number or not length:
            return {}
        return {coverage.LETTERS: texts_as_rows([letter.ljust(length, bytes(1)) for letter in letters], length)}

    def letter_count(self, client: int) -> int:
        """Return how many sealed letters a client sends in the set-up: one to each neighbor."""
        return len(self._neighbors[self.position[client]])

    def _uncanceled_masks(self, i: int, seed: bytes, survivors: list[int], length: int) -> Array:
        """Return the sum of the masks that do not cancel, because survivors share them with a dropped client."""
        if primitives.public_key(seed) != self._now[i].key:
            raise ProtocolError(
                "The key of a client that dropped out, restored from its shares, differs from the key that it had "
                "published, so at least one client sent wrong shares. Check that all clients run the same flower_pca, "
                "and start the run again."
            )
        private, rest = primitives.private_key(seed), np.zeros(length, dtype=np.uint64)
        for j in survivors:
            pair = sorted((i, j))
            context = messages.context_of_pair_mask(self.setup, self._course, self.number, *pair)
            common = primitives.shared_secret(private, self._now[j].key)
            mask = primitives.mask_of_key(primitives.derive_key(common, context), length)
            (np.add if i > j else np.subtract)(rest, mask, out=rest)
        return rest

    def _restored_secret(self, shares: Mapping[tuple[str, int], list[tuple[int, bytes]]], kind: str, i: int) -> bytes:
        there = shares.get((kind, i), [])
        if len(there) < self._needed:
            raise _too_few_error("answered for a mask", self._needed, len(there))
        return primitives.restore_secret(sorted(there)[: self._needed])

    def _store_key(self, i: int, key: bytes, peers: list[int], sealed: Array) -> None:
        letters = dict(zip(peers, rows_as_texts(sealed), strict=True))
        self._next[i] = PublishedKey(key, letters)

    def _owners_to_restore(self, i: int) -> dict[str, list[int]]:
        """Return the clients whose self-masks, and those whose mask keys, are restored with shares of this client."""
        survived, dropped = self._survivors_and_dropped[i]
        if self._shares == 1:
            return {"keys": dropped}
        return {"selves": [i, *survived], "keys": dropped}

    def _require_neighbors(self, doing: str, alive: Iterable[int]) -> None:
        """Require that every client in `alive` has enough neighbors in `alive`."""
        fewest = self._fewest_neighbors(set(alive))
        if fewest < self._needed:
            raise _too_few_error(doing, self._needed, fewest)

    def _fewest_neighbors(self, clients: set[int]) -> int:
        sizes = [1 + len(clients.intersection(self._neighbors[i])) for i in clients]
        return min(sizes, default=0)


def neighbor_graph(clients: int, degree: int) -> list[list[int]]:
    """Return the neighbors of each client: all other clients, or the `degree` nearest on a random ring (Bell 2020)."""
    if degree >= clients - 1:
        return [[j for j in range(clients) if j != i] for i in range(clients)]
    order = np.random.default_rng(list(os.urandom(32))).permutation(clients)
    half = degree // 2
    near = [step for step in range(-half, half + 1) if step]
    neighbors: list[list[int]] = [[]] * clients
    for place, i in enumerate(order):
        places = [(place + step) % clients for step in near]
        neighbors[i] = sorted(order[places].tolist())
    return neighbors


def new_setup_id() -> Array:
    """Return a new random identifier for a set-up."""
    return bytes_as_array(os.urandom(SEED))


def _too_few_error(doing: str, needed: int, got: int) -> NotEnoughNodes:
    return NotEnoughNodes(
        f"Too few clients {doing}: {got}, but at least {needed} are needed, counting a client and its neighbors. By "
        "design, the masks of a sum over so few clients cannot be removed. Start the run again."
    )
