"""track(): a whole federation of streams in this process or on Flower's Ray engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from flower_pca import assembly, registry
from flower_pca.assembly import STEPS, AskedSteps
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.spec import spelt_out
from flower_pca.core.drive import Driven, Watcher, drive
from flower_pca.names.columns import Heading, names_in
from flower_pca.results.record import Following, StepRecord
from flower_pca.results.steps import TrackingResult
from flower_pca.rows.stream import Stream
from flower_pca.simulation.backend import InProcess, Ray, Watch
from flower_pca.tracking.tracker import Tracker


@spelt_out(AskedSteps, STEPS)
def track(
    tracker: str | Tracker,
    streams: Sequence[Any],
    *,
    batch: int | None = None,
    min_clients: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    on_round: Callable[[Driven], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    backend: str | Ray = "in_process",
    **asked: Unpack[AskedSteps],
) -> TrackingResult:
    """The subspace of the rows of all streams together, followed over time.

    Args:
        tracker: A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
        streams: One per client: a `Stream`, or what one is made of (an array, a list of batches, a function from the
            number of a step to a batch, an iterator). Rows are samples, NaN is a missing entry.
        batch: Rows of a batch, for streams that are arrays.
        min_clients: Clients that must be present.
        checkpoint: File to keep the state of the run in after every message. If it is there at the start, the run goes
            on from it, bit for bit; a finished run removes it. Not for iterators that do not begin anew.
        on_round: Called with the run after every message.
        on_step: Called with the `StepRecord` of every step as soon as it is over, before the checkpoint is written: a
            run that goes on from there may tell its newest step once more.
        backend: "in_process", a plain loop without Flower; or "ray", Flower's simulation engine, with virtual nodes
            that host many clients; or Ray(clients_per_node=1) for settings of it. The components are the same to the
            last bit.
        **asked: What is asked: n_components, steps, start, columns, seed, mask, channel. See `assembly.tracking`.

    Returns:
        The basis of each step, changes, figures of every batch, and the history.

    Raises:
        ConfigError: If a parameter is not valid.
        DataError: If a batch cannot be used; the message names the client and the step.
    """
    engine = Ray.of(backend)
    if checkpoint is not None:
        checks.parent("the checkpoint", checkpoint)
    chosen = registry.tracker(tracker)
    run = assembly.tracking(chosen, min_clients=min_clients, **asked)
    clients = [client.select(names_in(asked.get("columns"))) for client in _clients(streams, batch)]
    _check_columns(clients, asked["n_components"])
    if engine is not None:
        from flower_pca.simulation import ray
        from flower_pca.strategies import TrackingStrategy

        strategy = partial(TrackingStrategy, chosen, checkpoint=checkpoint, on_step=on_step, **asked)
        return ray.track(strategy, clients, engine=engine, on_round=on_round, seed=int(asked.get("seed", 0)))
    there = InProcess(clients, seed=int(asked.get("seed", 0)))
    watch = Watch(on_round)
    watch.begin(lambda: f"{run.algorithm.spec} of {labels.count(len(clients), 'client')}")
    watchers: list[Watcher] = [watch]
    if on_step is not None:
        watchers.append(Following(on_step, lambda i: (i, clients[i].site)))
    result: TrackingResult = drive(run, there, checkpoint=checkpoint, watchers=watchers)
    watch.end(result)
    return replace(result, site_names={i: client.site for i, client in enumerate(clients) if client.site})


def _clients(streams: Any, batch: int | None) -> list[Stream]:
    if not isinstance(streams, list | tuple) or len(streams) == 0:
        if not isinstance(streams, list | tuple):
            got = f"a {type(streams).__name__}"
        else:
            got = "none"
        raise DataError("streams", must="a list, one per client", got=got, then="Use [X] for one client.")
    made = []
    for i, source in enumerate(streams):
        if isinstance(source, Stream):
            if source.who == Stream.WHO:
                source.who = f"client {i}"
            made.append(source)
        else:
            if hasattr(source, "shape"):
                length = batch
            else:
                length = None
            made.append(Stream(source, batch=length, who=f"client {i}"))
    return made


def _check_columns(clients: list[Stream], n_components: int) -> None:
    """Refuse before the first message what is known to be wrong by then."""
    known = [(i, client.d) for i, client in enumerate(clients) if client.d is not None]
    first = next((client.heading for client in clients if client.heading is not None), None)
    for i, client in enumerate(clients):
        if first is not None and (own := client.heading) is not None and own.digest != first.digest:
            raise own.mismatch(f"client {i}", first, "the clients before it").error(DataError)
    for i, d in known:
        if n_components > d:
            rule = f"at most the columns of client {i}, {d}"
            raise ConfigError("n_components", must=rule, got=n_components, then="Ask for fewer components.")
        if d != known[0][1]:
            raise Heading(d).mismatch(f"client {i}", Heading(known[0][1]), "the clients before it").error(DataError)
