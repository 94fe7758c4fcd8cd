"""track(): a whole federation of streams in this process or on Flower's Ray engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flower_pca import assembly, registry
from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.core.channel import AirChannel
from flower_pca.core.result import PCAResult
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.masking import MaskedSums
from flower_pca.masking.fixed import seeded_grain
from flower_pca.rows.stream import Stream
from flower_pca.simulation.backend import Ray
from flower_pca.simulation.here import packed, unpacked
from flower_pca.tracking.result import TrackingResult
from flower_pca.tracking.session import TrackingSession
from flower_pca.tracking.tracker import Tracker


def track(
    tracker: str | Tracker,
    streams: Sequence[Any],
    *,
    n_components: int,
    batch: int | None = None,
    steps: int | None = None,
    start: Array | PCAResult | TrackingResult | None = None,
    seed: int = 0,
    channel: AirChannel | None = None,
    min_clients: int = 1,
    mask: bool | MaskedSums | str | None = False,
    checkpoint: str | os.PathLike[str] | None = None,
    on_round: Callable[[TrackingSession], None] | None = None,
    backend: str | Ray = "in_process",
) -> TrackingResult:
    """The subspace of the rows of all streams together, followed over time.

    Args:
        tracker: A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
        streams: One per client: a `Stream`, or what one is made of (an array, a list of batches, a function from the
            number of a step to a batch, an iterator). Rows are samples, NaN is a missing entry.
        n_components: Columns of the basis.
        batch: Rows of a batch, for streams that are arrays.
        steps: Steps to take; if left out, until no stream has more rows.
        start: A basis to start from, one component per row; or a result. If left out, that of the first batch with
            zeros for missing entries.
        seed: Seed of everything random on the server.
        channel: What the server hears the sums of the replies through; None for an ideal one.
        min_clients: Clients that must be present.
        mask: Whether the clients' answers are masked, so that the server learns nothing but their sums; or how:
            a MaskedSums, or a string such as "masks(neighbours=20)".
        checkpoint: File to keep the state of the run in after every message. If it is there at the start, the run goes
            on from it, bit for bit; a finished run removes it. Not for iterators that do not begin anew.
        on_round: Called with the session after every message.
        backend: "in_process", a plain loop without Flower; or "ray", Flower's simulation engine with one virtual node
            per stream; or Ray(num_cpus_per_client=2) for settings of it. The components are the same to the last bit.

    Returns:
        The basis of each step, changes, figures of every batch, and the history.

    Raises:
        ConfigError: If a parameter is not valid.
        DataError: If a batch cannot be used; the message names the client and the step.
    """
    engine = Ray.of(backend)
    if checkpoint is not None:
        checks.parent("the checkpoint", checkpoint)
    settings: dict[str, Any] = {
        "tracker": registry.tracker(tracker),
        "n_components": n_components,
        "steps": steps,
        "start": start,
        "seed": seed,
        "channel": channel,
    }
    session = assembly.tracking(**settings, mask=mask, min_clients=min_clients)
    clients = _clients(streams, batch)
    _check_columns(clients, n_components)
    if engine is not None:
        from flower_pca.simulation import ray

        settings |= {"checkpoint": checkpoint, "mask": mask}
        return ray.track(settings, clients, engine=engine, on_round=on_round)
    memories: list[Arrays] = [{} for _ in clients]
    if checkpoint is not None and Path(checkpoint).exists():
        memories = _resume(session, checkpoint, len(clients))
    while (message := session.pending(range(len(clients)))) is not None:
        session.advance(_replies(message, clients, memories, seed))
        if checkpoint is not None:
            _keep(session, checkpoint, memories)
        if on_round is not None:
            on_round(session)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return session.result()


def _clients(streams: Any, batch: int | None) -> list[Stream]:
    if not isinstance(streams, list | tuple) or len(streams) == 0:
        got = f"a {type(streams).__name__}" if not isinstance(streams, list | tuple) else "none"
        raise DataError("streams", must="a list, one per client", got=got, then="Use [X] for one client.")
    made = []
    for i, source in enumerate(streams):
        if isinstance(source, Stream):
            source.who = f"client {i}" if source.who == Stream.WHO else source.who
            made.append(source)
        else:
            length = batch if isinstance(source, np.ndarray) else None
            made.append(Stream(source, batch=length, who=f"client {i}"))
    return made


def _check_columns(clients: list[Stream], n_components: int) -> None:
    """Refuse before the first message what is known to be wrong by then."""
    known = [(i, client.d) for i, client in enumerate(clients) if client.d is not None]
    for i, d in known:
        if n_components > d:
            rule = f"at most the columns of client {i}, {d}"
            raise ConfigError("n_components", must=rule, got=n_components, then="Ask for fewer components.")
        if d != known[0][1]:
            rule = f"{known[0][1]}, as at the clients before it"
            raise DataError(f"The columns of client {i}", must=rule, got=d, then="Align the features first.")


def _replies(message: Broadcast, clients: list[Stream], memories: list[Arrays], seed: int) -> Iterator[Reply]:
    for i in message.to:
        grain, arrays = seeded_grain(seed, i), message.arrays_for(i)
        up, memories[i] = assembly.answer(message.stage, arrays, clients[i], memories[i], grain=grain)
        yield Reply(i, message.number, up)


def _keep(session: TrackingSession, path: str | os.PathLike[str], memories: list[Arrays]) -> None:
    header, arrays = session.checkpoint()
    archive.write(path, "tracking checkpoint", {**header, "streams": len(memories)}, {**arrays, **packed(memories)})


def _resume(session: TrackingSession, path: str | os.PathLike[str], n_clients: int) -> list[Arrays]:
    header, arrays = archive.read(path, "tracking checkpoint")
    if header["streams"] != n_clients:
        rule, got = f"one of {n_clients} streams", header["streams"]
        raise ConfigError("The checkpoint", must=rule, got=got, then="Choose another checkpoint.")
    session.restore(header, arrays)
    return unpacked(arrays, n_clients)
