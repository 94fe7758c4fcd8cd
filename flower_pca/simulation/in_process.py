"""Clients in this process as a transport, without Flower: those with rows at rest, and those with streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from flower_pca import answering
from flower_pca.base import labels
from flower_pca.base.bits import Bits, system_bits
from flower_pca.base.errors import ConfigError
from flower_pca.core.layer import Who
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.masking.grain import seeded_grain
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.tracking import batch

_MEMORY: Final = "memory."


class InProcess:
    """Clients by position, with what each keeps from message to message.

    Args:
        clients: Their rows, or their streams.
        present: From the number of a message to the clients that can be reached then; all of them if left out.
        bits: Where each client's noise comes from; the operating system if left out.
        seed: Seed of the noise under masks.
        source: What gives clients that answer from fixed statistics theirs; None for those that multiply rows.
    """

    kind: ClassVar[str] = "tracking checkpoint"

    def __init__(
        self,
        clients: Sequence[LocalData | Stream],
        *,
        present: Callable[[int], Iterable[int]] | None = None,
        bits: Sequence[Bits] | None = None,
        seed: int = 0,
        source: Callable[[LocalData], FixedData] | None = None,
    ) -> None:
        self.clients = clients
        self.memories: list[Arrays] = [{} for _ in clients]
        self._present = present
        self._bits = bits
        self._seed = seed
        self._source = source
        self._number = 0  # of the coming message

    def present(self) -> Iterable[int]:
        """The clients that can be reached now."""
        if self._present is None:
            return range(len(self.clients))
        return self._present(self._number)

    def ask(self, message: Broadcast) -> Iterator[Reply]:
        """Their answers, one at a time."""
        self._number = message.number + 1
        for i in message.to:
            client = self.clients[i]
            yield Reply(i, message.number, self.answer(i, message), client.heading, client.site)

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """One client's answer; its memory moves on."""
        return self._answer(i, message, self.clients[i].select(message.frame.names))

    def _answer(self, i: int, message: Broadcast, data: LocalData | Stream) -> Arrays:
        up, self.memories[i] = answering.answer(
            message.stage,
            message.arrays_for(i),
            data,
            self.memories[i],
            layers=message.layers,
            bits=self._bits[i] if self._bits else system_bits,
            fixed=self._source,
            grain=partial(seeded_grain, self._seed, i),
            who=Who(i, getattr(self.clients[i], "site", "")),
        )
        return up

    def keep(self) -> tuple[dict[str, Any], Arrays]:
        """Whose memories these are, and the memories."""
        memories = {f"{_MEMORY}{i}.{name}": a for i, m in enumerate(self.memories) for name, a in m.items()}
        return {"clients": self._marks(), "number": self._number}, memories

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Go on with these memories, if they are of the same clients."""
        self._require(header.get("clients"))
        self._number = header["number"]
        self.memories = [{} for _ in self.clients]
        for name, array in arrays.items():
            if name.startswith(_MEMORY):
                _, position, key = name.split(".", 2)
                self.memories[int(position)][key] = array
        for i, client in enumerate(self.clients):
            if isinstance(client, Stream):
                self.memories[i] = batch.resume(self.memories[i], client)

    def _marks(self) -> Any:
        """What tells these clients from others."""
        return len(self.clients)

    def _require(self, marks: Any) -> None:
        if marks != self._marks():
            rule, remedy = f"one of {labels.count(self._marks(), 'stream')}", "Choose another checkpoint."
            raise ConfigError("The checkpoint", must=rule, got=marks, then=remedy)


class Shards(InProcess):
    """Clients with rows at rest, which answer in the frame that a message brings."""

    kind: ClassVar[str] = "checkpoint"
    clients: Sequence[LocalData]

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """One client's answer; where it fails, the error says at which client, and what it was sent."""
        data = self.clients[i].in_frame(message.frame)
        try:
            return self._answer(i, message, data)
        except Exception as error:
            sent = {name: array.shape for name, array in message.arrays_for(i).items()}
            where = f"at client {i} ({data.n} x {data.d}), stage {message.stage}, message {message.number}"
            error.add_note(f"{where}: {sent}")
            raise

    def _marks(self) -> Any:
        return [[client.n, client.d, client.fingerprint()] for client in self.clients]

    def _require(self, marks: Any) -> None:
        if marks != self._marks():
            remedy = "Give the shards of that run, or choose another checkpoint."
            raise ConfigError("The checkpoint", must="one of these very shards", got="one of other rows", then=remedy)
