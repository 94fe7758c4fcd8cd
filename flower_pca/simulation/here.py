"""simulate(): a whole federation in this process, without Flower. The loop drives the same Session as Flower does."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from flower_pca import assembly, registry
from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.channel import AirChannel
from flower_pca.core.result import PCAResult
from flower_pca.core.session import Session
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.dp.noise import Bits, seeded_bits, system_bits
from flower_pca.dp.plan import DP, undisturbed
from flower_pca.masking import MaskedSums
from flower_pca.masking.fixed import seeded_grain
from flower_pca.rows.fixed import FixedData, fixed
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Ray

Participation: TypeAlias = float | Callable[[int], Iterable[int]]


def simulate(
    algorithm: str | Algorithm[Any],
    shards: Sequence[Any],
    *,
    n_components: int | float,
    center: bool | None = None,
    scale: str | None = None,
    missing: str = "error",
    seed: int = 0,
    tol: float | None = None,
    min_rounds: int | None = None,
    max_rounds: int | None = None,
    patience: int | None = None,
    participation: Participation = 1.0,
    min_clients: int = 1,
    evaluate: bool = False,
    dp: DP | str | None = None,
    mask: bool | MaskedSums | str | None = False,
    checkpoint: str | os.PathLike[str] | None = None,
    on_round: Callable[[Session], None] | None = None,
    channel: AirChannel | None = None,
    private: Collection[int] = (),
    answers: str = "rows",
    backend: str | Ray = "in_process",
) -> PCAResult:
    """Principal components of the rows of all shards together, by a federated algorithm.

    Args:
        algorithm: A name ("krylov"), a spec string ("faps(inner_steps=5)") or an instance.
        shards: One two-dimensional array per client: dense, scipy sparse or memory-mapped; rows are samples.
        n_components: How many components, or the fraction of the total variance in (0, 1) that they shall exceed.
        center: Whether to subtract the mean of all rows; the algorithm's own default if left out.
        scale: None, "std" (unit variance) or "max_abs" (each column divided by its largest absolute value).
        missing: "error", "own_mean" or "mean": NaN then stands for a missing value, in whose place comes the mean of
            those that its column has at the same client, or at all clients.
        seed: Seed of everything random.
        tol: The error at which an iterative algorithm has converged; its own value if left out.
        min_rounds: Rounds it takes at least.
        max_rounds: Rounds it takes at most.
        patience: Rounds without progress after which it gives up.
        participation: The share of clients that each round goes to, or a function from the number of a message to the
            clients (by position) that can be reached then.
        min_clients: Clients that must be present in every round.
        evaluate: Whether to measure the reconstruction error on the clients at the end.
        dp: The privacy budget, `DP(epsilon=1.0, delta=1e-6, clip=10.0)` or the like as a string; for ssi, krylov and
            noisy_covariance. Clients then clip their rows and add noise: each in full, or in shares under `mask`.
        mask: Whether the clients' answers are masked, so that the server learns nothing but their sums; or how:
            a MaskedSums, or a string such as "masks(neighbours=20)".
        checkpoint: File to keep the state of the run in after every round. If it is there at the start, the run goes
            on from it, in process bit for bit; a finished run removes it.
        on_round: Called with the session after every round.
        channel: What the server hears the sums of the replies through; None for an ideal one.
        private: Clients, by position, whose own results are not handed over in `own` of the result.
        answers: "rows": clients multiply rows, or X'X where that takes fewer operations; "fixed" or "exact": they
            answer as nodes in a deployment do, with the same bits. See `Rules`.
        backend: "in_process", a plain loop without Flower; or "ray", Flower's simulation engine with one virtual node
            per shard; or Ray(num_cpus_per_client=2) for settings of it. The components are the same to the last bit.

    Returns:
        The components with their variances, why the run ended, and its history.

    Raises:
        ConfigError: If a parameter is not valid.
        DataError: If a shard cannot be used; the message names the client.
        NotEnoughNodes: If fewer clients are present, or answer, than the run needs.
    """
    engine = Ray.of(backend)
    if checkpoint is not None:
        checks.parent("the checkpoint", checkpoint)
    dp = DP.of(dp)
    undisturbed(dp, checkpoint)
    stopping = {"tol": tol, "min_rounds": min_rounds, "max_rounds": max_rounds, "patience": patience}
    settings: dict[str, Any] = {
        "algorithm": registry.make(algorithm, **{name: value for name, value in stopping.items() if value is not None}),
        "n_components": n_components,
        "center": center,
        "scale": scale,
        "missing": missing,
        "seed": seed,
        "evaluate": evaluate,
        "dp": dp,
        "fraction": 1.0 if callable(participation) else participation,
        "channel": channel,
    }
    session = assembly.session(**settings, mask=mask, min_clients=min_clients)
    checks.choice("answers", answers, ("rows", "fixed", "exact"))
    clients = clients_of(shards, missing=missing != "error")
    checks.at_most(checks.components(n_components), sum(c.n for c in clients), clients[0].d)
    public = _public(private, len(clients))
    if engine is not None:
        if callable(participation):
            remedy = "Use a fraction, or the backend in_process."
            raise ConfigError("participation with Ray", must="a fraction", got="a function", then=remedy)
        from flower_pca.simulation import ray

        settings |= {"checkpoint": checkpoint, "mask": mask}
        return ray.run(settings, shards, public, engine=engine, on_round=on_round, answers=answers)
    memories: list[Arrays] = [{} for _ in clients]
    gaps = missing == "mean"
    source = None if answers == "rows" else functools.partial(fixed, exactly=answers == "exact", gaps=gaps)
    seed_of_noise = None if dp is None else dp.noise_seed
    bits = [system_bits if seed_of_noise is None else seeded_bits(seed_of_noise, i) for i in range(len(clients))]
    marks = [[c.n, c.d, c.fingerprint()] for c in clients] if checkpoint is not None else []
    if checkpoint is not None and Path(checkpoint).exists():
        memories = _resume(session, checkpoint, marks)
    while (message := session.pending(_present(participation, len(session.history), len(clients)))) is not None:
        session.advance(_replies(message, clients, memories, bits, source, seed))
        if checkpoint is not None:
            _keep(session, checkpoint, marks, memories)
        if on_round is not None:
            on_round(session)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    result, stage = session.result(), registry.closing(settings["algorithm"]).name
    frame = replace(result.frame, own=missing == "own_mean")
    own = {i: registry.own(stage, memories[i], clients[i].framed(frame)) for i in public}
    return replace(result, own={i: arrays for i, arrays in own.items() if arrays})


def clients_of(shards: Any, *, missing: bool) -> list[LocalData]:
    """The shards as the clients see them, all with the same columns."""
    several = isinstance(shards, list | tuple) or (isinstance(shards, np.ndarray) and shards.ndim == 3)
    if not several or len(shards) == 0:
        got = type(shards).__name__ + (f" of shape {shards.shape}" if hasattr(shards, "shape") else "")
        got = "none" if several else got
        raise DataError("shards", must="a list of arrays, one per client", got=got, then="Use [X] for one client.")
    clients = [LocalData(X, who=f"client {i}", missing=missing) for i, X in enumerate(shards)]
    d = clients[0].d
    for i, client in enumerate(clients):
        if client.d != d:
            rule = f"{d}, as at client 0"
            raise DataError(f"The columns of client {i}", must=rule, got=client.d, then="Align the features first.")
    return clients


def _present(participation: Participation, number: int, n_clients: int) -> list[int]:
    if not callable(participation):
        return list(range(n_clients))
    named: Any = participation(number)
    if not isinstance(named, Iterable):
        remedy = "Return positions in shards."
        raise ConfigError("What participation returns", must="clients", got=repr(named), then=remedy)
    present = list(dict.fromkeys(int(client) for client in named))
    for client in present:
        if not 0 <= client < n_clients:
            rule = f"between 0 and {n_clients - 1}"
            remedy = "Return positions in shards."
            raise ConfigError("Every client that participation names", must=rule, got=client, then=remedy)
    return present


def _public(private: Collection[int], n_clients: int) -> list[int]:
    for client in private:
        checks.integer("Every client in private", client, most=n_clients - 1, remedy="Give positions in shards.")
    return [client for client in range(n_clients) if client not in private]


def _replies(
    message: Broadcast,
    clients: list[LocalData],
    memories: list[Arrays],
    bits: list[Bits],
    source: Callable[[LocalData], FixedData] | None,
    seed: int,
) -> Iterator[Reply]:
    for i in message.to:
        data = clients[i].framed(message.frame)
        try:
            arrays = message.arrays_for(i)
            drawn: Any = {"bits": bits[i], "grain": seeded_grain(seed, i)}
            up, memories[i] = assembly.answer(message.stage, arrays, data, memories[i], fixed=source, **drawn)
        except Exception as error:
            sent = {name: array.shape for name, array in message.arrays_for(i).items()}
            error.add_note(
                f"at client {i} ({data.n} x {data.d}), stage {message.stage}, message {message.number}: {sent}"
            )
            raise
        yield Reply(i, message.number, up)


def _keep(session: Session, path: str | os.PathLike[str], marks: list[list[int]], memories: list[Arrays]) -> None:
    header, arrays = session.checkpoint()
    archive.write(path, "checkpoint", {**header, "shards": marks}, {**arrays, **packed(memories)})


def _resume(session: Session, path: str | os.PathLike[str], marks: list[list[int]]) -> list[Arrays]:
    header, arrays = archive.read(path, "checkpoint")
    if header["shards"] != marks:
        remedy = "Give the shards of that run, or choose another checkpoint."
        raise ConfigError("The checkpoint", must="one of these very shards", got="one of other rows", then=remedy)
    session.restore(header, arrays)
    return unpacked(arrays, len(marks))


def packed(memories: list[Arrays]) -> Arrays:
    """The clients' memories as arrays of a checkpoint."""
    return {f"memory.{i}.{name}": a for i, m in enumerate(memories) for name, a in m.items()}


def unpacked(arrays: Arrays, n_clients: int) -> list[Arrays]:
    """The memories in the arrays of a checkpoint."""
    memories: list[Arrays] = [{} for _ in range(n_clients)]
    for name, array in arrays.items():
        if name.startswith("memory."):
            _, client, key = name.split(".", 2)
            memories[int(client)][key] = array
    return memories
