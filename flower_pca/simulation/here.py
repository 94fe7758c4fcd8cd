"""simulate(): a whole federation on this machine; and clients in this process as a transport, without Flower."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Final, TypeAlias, Unpack

from flower_pca import assembly, registry
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.base.signature import spelt_out
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.drive import Driven, drive
from flower_pca.core.question import AskedHere, Question
from flower_pca.core.result import PCAResult
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.dp.draw import Bits, seeded_bits, system_bits
from flower_pca.masking.grain import seeded_grain
from flower_pca.rows.fixed import FixedData, fixed
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.simulation.backend import Ray
from flower_pca.simulation.progress import Watch
from flower_pca.simulation.sites import clients_of, looked_at, sites_of

Participation: TypeAlias = float | Callable[[int], Iterable[int]]

_OWN: Final = ("tol", "min_rounds", "max_rounds", "patience")  # of an algorithm: its own values if left out
_DEFAULTS: Final = {**{f.name: f.default for f in fields(Question)[2:]}, **dict.fromkeys(_OWN)}

_MEMORY: Final = "memory."


@spelt_out(AskedHere, _DEFAULTS)
def simulate(
    algorithm: str | Algorithm[Any] | Question,
    shards: Sequence[Any] | Mapping[str, Any],
    *,
    participation: Participation | None = None,
    private: Collection[int] = (),
    answers: str = "rows",
    checkpoint: str | os.PathLike[str] | None = None,
    on_round: Callable[[Driven], None] | None = None,
    backend: str | Ray = "in_process",
    **asked: Unpack[AskedHere],
) -> PCAResult:
    """Principal components of the rows of all shards together, by a federated algorithm.

    Args:
        algorithm: A name ("krylov"), a spec string ("faps(inner_steps=5)") or an instance; or a whole `Question`.
        shards: One two-dimensional array per client: dense, scipy sparse or memory-mapped; rows are samples. Data
            frames and what `from_frame` and `sources.make` give are matched by the names of their columns; a mapping
            names the sites.
        participation: A function from the number of a message to the clients (by position) that can be reached then;
            or a share of the clients, which is another word for `fraction`.
        private: Clients, by position, whose own results are not handed over in `own` of the result.
        answers: "rows": clients multiply rows, or X'X where that takes fewer operations; "fixed" or "exact": they
            answer as nodes in a deployment do, with the same bits. See `Rules`.
        checkpoint: File to keep the state of the run in after every round. If it is there at the start, the run goes
            on from it, in process bit for bit; a finished run removes it.
        on_round: Called with the run after every round. Rounds are logged to "flower_pca" at INFO as well, and a
            notebook shows a bar.
        backend: "in_process", a plain loop without Flower; or "ray", Flower's simulation engine, with virtual nodes
            that host many clients; or Ray(clients_per_node=1) for settings of it. The components are the same to the
            last bit.
        **asked: What is asked, where `algorithm` is not a Question: n_components, and what else `Question` names, such
            as center, scale, seed, mask=True or dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)". For an algorithm that
            iterates, tol, min_rounds, max_rounds and patience are its own: see `make`.

    Returns:
        The components with their variances, why the run ended, and its history.

    Raises:
        ConfigError: If a parameter is not valid.
        DataError: If a shard cannot be used; the message names the client.
        NotEnoughNodes: If fewer clients are present, or answer, than the run needs.
    """
    engine = None if backend == "in_process" else Ray.of(backend)
    question = assembly.question(algorithm, **asked)
    if participation is not None and not callable(participation):
        question = replace(question, fraction=participation)
    question.check_checkpoint(checkpoint)
    checks.choice("answers", answers, ("rows", "fixed", "exact"))
    clients = clients_of(shards, missing=question.missing != "error", columns=question.columns)
    checks.at_most(question.n_components, sum(c.n for c in clients), clients[0].d)
    public = _public(private, len(clients))
    rows, columns = labels.count(sum(c.n for c in clients), "row"), labels.count(clients[0].d, "column")
    words = f"{question.algorithm.spec} of {rows} x {columns} at {labels.count(len(clients), 'client')}"
    watch = Watch(on_round, words)
    if engine is not None:
        if callable(participation):
            remedy = "Use a fraction, or the backend in_process."
            raise ConfigError("participation with Ray", must="a fraction", got="a function", then=remedy)
        from flower_pca.simulation import ray

        backed: Any = {"engine": engine, "checkpoint": checkpoint, "on_round": watch, "answers": answers}
        result = ray.run(question, sites_of(shards), public, **backed)
        watch.end(result)
        return result
    seed = None if question.dp is None else question.dp.noise_seed
    bits = None if seed is None else [seeded_bits(seed, i) for i in range(len(clients))]
    present = _presence(participation, len(clients)) if callable(participation) else None
    gaps = question.missing == "mean"
    source = None if answers == "rows" else functools.partial(fixed, exactly=answers == "exact", gaps=gaps)
    there = Shards(clients, present=present, bits=bits, seed=question.seed, source=source)
    result = drive(assembly.run(question, judged=False), there, checkpoint=checkpoint, on_round=watch)
    stage = registry.closing(question.algorithm).name
    frame = replace(result.frame, own=question.missing == "own_mean", names=question.columns)
    own = {i: registry.own(stage, there.memories[i], clients[i].framed(frame)) for i in public}
    sites = {i: client.site for i, client in enumerate(clients) if client.site}
    result = replace(result, own={i: arrays for i, arrays in own.items() if arrays}, site_names=sites)
    result = looked_at(result, [client.framed(frame, keep=False) for client in clients])
    watch.end(result)
    return result


def _presence(participation: Callable[[int], Iterable[int]], n_clients: int) -> Callable[[int], list[int]]:
    """The caller's function, checked at every message."""

    def present(number: int) -> list[int]:
        named: Any = participation(number)
        if not isinstance(named, Iterable):
            remedy = "Return positions in shards."
            raise ConfigError("What participation returns", must="clients", got=repr(named), then=remedy)
        here = list(dict.fromkeys(int(client) for client in named))
        for client in here:
            if not 0 <= client < n_clients:
                rule, remedy = f"between 0 and {n_clients - 1}", "Return positions in shards."
                raise ConfigError("Every client that participation names", must=rule, got=client, then=remedy)
        return here

    return present


def _public(private: Collection[int], n_clients: int) -> list[int]:
    for client in private:
        checks.integer("Every client in private", client, most=n_clients - 1, remedy="Give positions in shards.")
    hidden = frozenset(private)
    return [client for client in range(n_clients) if client not in hidden]


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
        self._present, self._bits, self._seed, self._source = present, bits, seed, source
        self._number = 0  # of the coming message

    def present(self) -> Iterable[int]:
        """The clients that can be reached now."""
        return range(len(self.clients)) if self._present is None else self._present(self._number)

    def ask(self, message: Broadcast) -> Iterator[Reply]:
        """Their answers, one at a time."""
        self._number = message.number + 1
        for i in message.to:
            client = self.clients[i]
            yield Reply(i, message.number, self.answer(i, message), client.heading, client.site)

    def answer(self, i: int, message: Broadcast) -> Arrays:
        """One client's answer; its memory moves on."""
        return self._answered(i, message, self.clients[i].asked(message.frame.names))

    def _answered(self, i: int, message: Broadcast, data: LocalData | Stream) -> Arrays:
        bits = self._bits[i] if self._bits else system_bits
        given: Any = {"bits": bits, "grain": seeded_grain(self._seed, i), "fixed": self._source}
        arrays = message.arrays_for(i)
        up, self.memories[i] = assembly.answer(message.stage, arrays, data, self.memories[i], **given)
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
                _, client, key = name.split(".", 2)
                self.memories[int(client)][key] = array

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
        data = self.clients[i].framed(message.frame)
        try:
            return self._answered(i, message, data)
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
