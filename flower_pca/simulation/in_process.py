"""The functions `simulate` and `track`, which run a whole federation on this machine."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from flower_pca import assembly, client_half, registry
from flower_pca.assembly import STOPPING, TrackingOptions
from flower_pca.base import checks, labels
from flower_pca.base.bits import seeded_bits
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.options import option
from flower_pca.base.shown import shown, with_article
from flower_pca.base.signatures import defaults, with_signature
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.config import COMPONENTS, PCAConfig, SimulationOptions
from flower_pca.core.drive import Driven, Watcher, drive
from flower_pca.core.stage import Arrays
from flower_pca.names.columns import Heading, split_names
from flower_pca.names.table import Table
from flower_pca.results.left_out import site_fields
from flower_pca.results.pca import PCAResult
from flower_pca.results.start import Start
from flower_pca.rows.adjusted import hints_of_constant_columns, local_adjustment
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.simulation.backend import InProcessTransport, Ray, RunWatch, Shards, SimulationSettings
from flower_pca.simulation.sites import (
    clients_of_tables,
    clients_with_results,
    common_column_order,
    sites_of,
    with_agreed_columns,
    with_all_columns,
    with_hints,
)

if TYPE_CHECKING:
    from flower_pca.results.record import StepRecord
    from flower_pca.results.steps import TrackingResult
    from flower_pca.tracking.tracker import Tracker

_LOG: Final = logging.getLogger("flower_pca")


@with_signature(SimulationOptions, {**defaults(PCAConfig), **dict.fromkeys(STOPPING)})
def simulate(
    algorithm: str | Algorithm[Any] | PCAConfig,
    shards: Sequence[Any] | Mapping[str, Any],
    *,
    hide_local: Collection[int] = (),
    answers: str = "rows",
    init: Start | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    on_round: Callable[[Driven], None] | None = None,
    backend: str | Ray = "in_process",
    **settings: Unpack[SimulationOptions],
) -> PCAResult:
    """Compute the PCA of the rows of all shards together, with a federated algorithm on this machine.

    Parameters
    ----------
    algorithm : str, Algorithm or PCAConfig
        A name such as "krylov", a spec string such as "faps(inner_steps=5)", an instance, or a whole `PCAConfig`.
    shards : sequence or mapping
        One two-dimensional array for each client, whose rows are samples. It can be dense, scipy sparse or
        memory-mapped. Data frames, and tables from `from_frame` and `sources.make`, are matched by the names of their
        columns. The keys of a mapping are the names of the sites. With partitioned_by="columns", rows are matched
        instead, by the index of a data frame or by the ids in a file, if there are any.
    hide_local : collection of int, default=()
        The positions of clients whose local results are left out of `local` in the result.
    answers : {"rows", "fixed"}, default="rows"
        With "rows", clients multiply rows, or X'X if this takes fewer operations. With "fixed", the answers of clients
        are identical to the answers of nodes in a deployment. See `Rules`.
    init : PCAResult, path or array-like, or None, default=None
        Components to start from, for an iterative algorithm: an earlier result, its file, or components as rows. If
        they come from nearly the same rows, fewer messages are needed. The result is the PCA of the given shards.
    checkpoint : str or path or None, default=None
        The file in which the state of the run is saved after every round. If the file exists at the start, the run
        continues from this state. With backend="in_process", the result is then identical to the result of a run
        without interruption. A finished run removes the file.
    on_round : callable or None, default=None
        A function that is called with the run after every round. Rounds are also logged to "flower_pca" at the level
        INFO, and a notebook shows a progress bar.
    backend : {"in_process", "ray"} or Ray, default="in_process"
        "in_process" is a plain loop without Flower. "ray" is Flower's simulation engine, with virtual nodes that host
        many clients. To change its settings, give a `Ray` such as Ray(clients_per_node=1). Both backends give identical
        components.
    **settings
        The settings of the run, unless `algorithm` is a PCAConfig: n_components and all other fields of `PCAConfig`,
        such as center, scale, seed, mask=True or dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)". For an iterative
        algorithm, also tol, min_rounds, max_rounds and patience (see `make`). In a simulation, `fraction` can also be a
        function that takes the number of a message and returns the positions of the clients that it can reach.

    Returns
    -------
    PCAResult
        The components with their variances, the reason why the run ended, and its history. A run over columns returns a
        `ColumnsResult`, which also has the scores.

    Raises
    ------
    ConfigError
        If a parameter is not valid.
    DataError
        If a shard cannot be used. The message names the client.
    NotEnoughNodes
        If fewer clients are present or answer than the run needs.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("auto", sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    >>> result.transform(sites[0]).shape
    (60, 2)
    """
    _require_order("simulate", "shards", algorithm, shards, (Algorithm, PCAConfig))
    conduct = SimulationSettings(
        engine=Ray.of(backend), answers=answers, init=init, checkpoint=checkpoint, on_round=on_round
    )
    _require_called_here(conduct.engine, on_round)
    fraction, present = settings.get("fraction"), None
    if callable(fraction):
        present = fraction
        del settings["fraction"]
    config = assembly.config(algorithm, **settings)
    if checkpoint is not None:
        config.check_checkpoint(checkpoint)
    if config.partitioned_by == "columns":
        if present is not None:
            raise ConfigError(
                f"With {option('partitioned_by', 'columns')} all clients must be present, because no other client has "
                "the columns of an absent client. Leave fraction out.",
                setting="fraction",
            )
        from flower_pca.simulation import parties

        return parties.simulate(config, shards, conduct, hide_local=hide_local)
    config, sites = _with_columns_of_run(config, sites_of(shards))
    clients = _require_clients(config, sites)
    public = clients_with_results(hide_local, len(clients))
    watch = RunWatch(on_round)
    watch.begin(functools.partial(_description, config, clients))
    if conduct.engine is None:
        del sites  # This saves memory, because the tables are no longer needed: the clients hold the rows.
        result = _in_process(config, clients, public, conduct, present, watch)
    else:
        if present is not None:
            raise ConfigError(
                f"On Ray, fraction cannot be a function. Give a number, or use {option('backend', 'in_process')}.",
                setting="fraction",
            )
        from flower_pca.simulation import ray

        out = _without_rows(config, clients)
        result = ray.run_pca(config, sites, public, replace(conduct, on_round=watch.after_message), left_out=out)
    if config.covariates is not None and config.columns is not None:
        # The hints below are only about features, so covariates are left out.
        clients = [client.arrange(config.columns) for client in clients]
    if (config.variants or config.highly_variable) is not None and result.feature_names_in_ is not None:
        clients = [client.arrange(tuple(result.feature_names_in_)) for client in clients]
    frame = functools.partial(_client_frame, result, config)
    result = with_hints(result, [client for client in clients if client.n], frame)
    watch.end(result)
    return result


def _require_called_here(engine: Ray | None, on_round: object) -> None:
    """Raise ConfigError if `on_round` is given although the server runs in another process."""
    if engine is not None and engine.entry == "flwr_run" and on_round is not None:
        raise ConfigError(
            "on_round is not called with entry='flwr_run', because the server runs in another process. Leave on_round "
            "out."
        )


def _require_order(function: str, data: str, first: object, second: object, kinds: tuple[type[Any], ...]) -> None:
    """Raise ConfigError if the data are the first argument and the algorithm or tracker is the second argument."""
    names: tuple[type[Any], ...] = (str, *kinds)
    if isinstance(second, names) and not isinstance(first, names):
        noun, example = ("tracker", "st_miss") if function == "track" else ("algorithm", "krylov")
        call = f'{function}("{example}", {data}, n_components=2)'
        raise ConfigError(f"The {noun} comes first, then the data: {call}.")


def _in_process(
    config: PCAConfig,
    clients: Sequence[LocalData],
    public: Collection[int],
    conduct: SimulationSettings,
    present: Callable[[int], Iterable[int]] | None,
    watch: RunWatch,
) -> PCAResult:
    """Run the algorithm in a loop over the clients, and return its result.

    The result contains the local results of the clients in `public`.
    """
    bits, here, source = None, None, None
    out = _without_rows(config, clients)
    if config.dp is not None and config.dp.noise_seed is not None:
        bits = [seeded_bits(config.dp.noise_seed, i) for i in range(len(clients))]
    if present is not None:
        here = _with_checked_clients(present, len(clients))
    if out:
        here = functools.partial(_present_without, out, here or (lambda _: list(range(len(clients)))))
    if conduct.answers == "fixed":
        from flower_pca.rows.fixed import FixedData

        source = functools.partial(FixedData.of_rows, gaps=config.missing == "mean")
    there = Shards(clients, present=here, bits=bits, seed=config.seed, source=source)
    # All clients run in this process, so their answers need no checks against dishonest clients.
    run = assembly.run(config, judged=False, init=conduct.init)
    result = cast(PCAResult, drive(run, there, checkpoint=conduct.checkpoint, watchers=[watch]))
    own: dict[int, Arrays] = {}
    hints: list[str] = []
    if any(there.memories) and registry.has_local_results(config.algorithm):
        stage, frame = registry.closing_of(config.algorithm).name, _client_frame(result, config)
        for i in public:
            if arrays := client_half.local_results(stage, there.memories[i], clients[i].in_frame(frame)):
                own[i] = arrays
    if config.harmonize is not None or (config.covariates is not None and config.covariates.within):
        for i in [i for i in public if clients[i].n]:
            rows = clients[i].in_frame(result.frame)
            own[i] = {**own.get(i, {}), **local_adjustment(rows)}
            if config.mask is not None:  # Without masks, the result already has these hints.
                hints += hints_of_constant_columns(rows)
    names = {i: client.site for i, client in enumerate(clients) if client.site}
    if own or hints:
        result = replace(result, local=own, hints=(*result.hints, *hints))
    if names or len(run.roll.contributors) < len(clients):
        result = replace(result, **_site_fields(names, len(clients), run, out))
    return result.with_names({}) if names else result


def _with_columns_of_run(config: PCAConfig, sites: list[Table]) -> tuple[PCAConfig, list[Table]]:
    """Return the configuration and the sites, both with the columns of the run.

    Text columns of the sites are converted to numbers. If the configuration names no columns, and all sites have
    their columns in a common order, the names in this order are added to the configuration.
    """
    if config.categorical is not None:
        config, sites = with_agreed_columns(config, config.coding, sites)
    covariates = config.covariates
    if covariates is not None and (covariates.names or all(site.names for site in sites)):
        return with_all_columns(config, sites)
    if config.columns is None and (order := common_column_order(sites)) is not None:
        return replace(config, columns=order), sites
    return config, sites


def _require_clients(config: PCAConfig, sites: Sequence[Table]) -> list[LocalData]:
    """Return the clients, or raise an error if their rows do not allow the requested run."""
    # The opening of a harmonized run refuses missing values with its own error, because nothing may fill them.
    missing = config.missing != "error" or config.harmonize is not None
    # A result with noise has no hints. If a run leaves out some of its named columns, hints look at the others later.
    chosen = config.variants or config.highly_variable or (config.covariates and config.covariates.names)
    hinted = config.dp is None and not (chosen and sites[0].names)
    clients = clients_of_tables(sites, missing=missing, columns=config.columns_and_covariates, hinted=hinted)
    rows = sum([client.n for client in clients])
    d = clients[0].d
    if config.covariates is not None:
        d -= len(config.covariates.names)
    checks.components_available(config.n_components, rows, d)
    algorithm = config.algorithm
    if algorithm.numbers_by_client is not None:
        from flower_pca.layers import single

        single.require_all_clients(
            f"local_components of {algorithm.name}", algorithm.numbers_by_client, [client.site for client in clients]
        )
    if config.dp is not None:
        # If noise would hide all components, the run is refused before it spends any of the privacy budget.
        seen = assembly.noise_forecast(config, rows=rows, columns=d, clients=len(clients))
        assert seen is not None
        seen.require()
        _LOG.info("%s", seen)
    return clients


def _description(config: PCAConfig, clients: Sequence[LocalData]) -> str:
    """Return a description of the algorithm, the size of the data and the number of clients, for the log."""
    rows = labels.count(sum(client.n for client in clients), "row")
    d = clients[0].d if config.columns is None else len(config.columns)
    columns = labels.count(d, "column")
    return f"{config.algorithm.spec} of {rows} x {columns} at {labels.count(len(clients), 'client')}"


def _client_frame(result: PCAResult, config: PCAConfig) -> Frame:
    """Return the frame of the result in the form in which it applies to the rows of the clients."""
    chosen = config.variants is not None or config.highly_variable is not None
    names = result.frame.names if chosen else config.columns
    return replace(result.frame, own=config.missing == "local_mean", names=names)


def _with_checked_clients(fraction: Callable[[int], Iterable[int]], n_clients: int) -> Callable[[int], list[int]]:
    """Return a function that calls the caller's `fraction` and checks the clients that it returns."""

    def checked_clients(number: int) -> list[int]:
        named: Any = fraction(number)
        if not isinstance(named, Iterable):
            raise ConfigError(
                f"The function given as fraction returned {shown(named)}. It must return positions in shards, such as "
                "[0, 2].",
                setting="fraction",
            )
        here = list(dict.fromkeys(int(client) for client in named))
        for client in here:
            if not 0 <= client < n_clients:
                raise ConfigError(
                    f"The function given as fraction returned client {client}, but the clients are numbered from 0 to "
                    f"{n_clients - 1}. It must return positions in shards.",
                    setting="fraction",
                )
        return here

    return checked_clients


@with_signature(TrackingOptions, defaults(assembly.tracking))
def track(
    tracker: str | Tracker,
    streams: Sequence[Any],
    *,
    batch: int | None = None,
    min_nodes: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    on_round: Callable[[Driven], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    backend: str | Ray = "in_process",
    **settings: Unpack[TrackingOptions],
) -> TrackingResult:
    """Track the subspace of the rows of all streams together over time.

    Parameters
    ----------
    tracker : str or Tracker
        A name such as "st_miss", a spec string such as "robust_tracking(smallest_outlier=15)", or an instance.
    streams : sequence
        One stream for each client. This is a `Stream`, or an object from which a `Stream` can be created: an array, a
        list of batches, an iterator, or a function that takes the number of a step and returns a batch. Rows are
        samples, and NaN is a missing value.
    batch : int or None, default=None
        The number of rows of a batch, for streams that are arrays.
    min_nodes : int, default=1
        The number of clients that must be present.
    checkpoint : str or path or None, default=None
        The file in which the state of the run is saved after every message. If the file exists at the start, the run
        continues from this state, and its result is identical to the result of a run without interruption. A finished
        run removes the file. A stream that is an iterator must start from its beginning again.
    on_round : callable or None, default=None
        A function that is called with the run after every message.
    on_step : callable or None, default=None
        A function that is called with the `StepRecord` of every step at the end of the step, before the checkpoint is
        written. A run that continues from the checkpoint may therefore report its newest step twice.
    backend : {"in_process", "ray"} or Ray, default="in_process"
        "in_process" is a plain loop without Flower. "ray" is Flower's simulation engine, with virtual nodes that host
        many clients. To change its settings, give a `Ray` such as Ray(clients_per_node=1). Both backends give identical
        components.
    **settings
        The settings of the run: n_components, steps, init, columns, seed, mask and channel. See `assembly.tracking`.

    Returns
    -------
    TrackingResult
        The basis of each step, the changes, the statistics of every batch, and the history.

    Raises
    ------
    ConfigError
        If a parameter is not valid.
    DataError
        If a batch cannot be used. The message names the client and the step.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import track
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = track("st_miss", streams, batch=30, n_components=2)
    >>> result.components_.shape  # one basis for each of three steps
    (3, 2, 6)
    """
    from flower_pca.results.record import StepReporter
    from flower_pca.tracking.tracker import Tracker

    _require_order("track", "streams", tracker, streams, (Tracker,))
    checks.parameters("track", settings, TrackingOptions.__annotations__)
    engine = Ray.of(backend)
    _require_called_here(engine, on_round)
    if checkpoint is not None:
        checks.parent_exists("the checkpoint", checkpoint)
    chosen = registry.tracker(tracker)
    run = assembly.tracking(chosen, min_nodes=min_nodes, **settings)
    clients = [client.select(split_names(settings.get("columns"))) for client in _streams_of(streams, batch)]
    _check_columns(clients, settings.get("n_components", COMPONENTS))
    if engine is not None:
        from flower_pca.simulation import ray
        from flower_pca.strategies import TrackingStrategy

        strategy = functools.partial(TrackingStrategy, chosen, checkpoint=checkpoint, on_step=on_step, **settings)
        return ray.run_tracker(strategy, clients, engine=engine, on_round=on_round, seed=int(settings.get("seed", 0)))
    there = InProcessTransport(clients, seed=int(settings.get("seed", 0)))
    watch = RunWatch(on_round)
    watch.begin(lambda: f"{run.algorithm.spec} of {labels.count(len(clients), 'client')}")
    watchers: list[Watcher] = [watch]
    if on_step is not None:
        watchers.append(StepReporter(on_step, lambda i: (i, clients[i].site)))
    result = cast("TrackingResult", drive(run, there, checkpoint=checkpoint, watchers=watchers))
    watch.end(result)
    names = {i: client.site for i, client in enumerate(clients) if client.site}
    return replace(result, **_site_fields(names, len(clients), run))


def _without_rows(config: PCAConfig, clients: Sequence[LocalData]) -> dict[int, str]:
    """Return the reason for each client that is left out because it has no rows, by the client's position.

    Under masks, no client is left out. Clients without rows send zeros instead, so that the server does not
    learn that they have no rows.
    """
    if config.mask is not None:
        return {}
    return {i: "it has no rows" for i, client in enumerate(clients) if not client.n}


def _present_without(left_out: Mapping[int, str], present: Callable[[int], Iterable[int]], number: int) -> list[int]:
    """Return the clients that message `number` can reach, except those in `left_out`."""
    return [client for client in present(number) if client not in left_out]


def _site_fields(
    names: Mapping[int, str], clients: int, run: Driven, left_out: Mapping[int, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the fields `site_names` and `left_out` of a result. The clients in `left_out` were not part of the run."""
    fraction = "fraction left it out"
    return site_fields(names, range(clients), run.roll.contributors, run.history, otherwise=fraction, unasked=left_out)


def _streams_of(streams: Any, batch: int | None) -> list[Stream]:
    if not isinstance(streams, list | tuple) or len(streams) == 0:
        got = "is empty" if isinstance(streams, list | tuple) else f"is {with_article(type(streams).__name__)}"
        raise DataError(f"streams {got}. Give a list with one stream for each client, such as [X] for one client.")
    made = []
    for i, source in enumerate(streams):
        if isinstance(source, Stream):
            if source.who == Stream.WHO:
                source.who = f"client {i}"
            made.append(source)
        else:
            length = batch if hasattr(source, "shape") else None
            made.append(Stream(source, batch=length, who=f"client {i}"))
    return made


def _check_columns(clients: list[Stream], n_components: int) -> None:
    """Raise an error if the columns of the streams differ or are too few. Streams with unknown columns are skipped."""
    numbered = enumerate(clients)
    known = [(i, client.d) for i, client in numbered if client.d is not None]
    first = next((client.heading for client in clients if client.heading is not None), None)
    for i, client in enumerate(clients):
        if first is not None and (own := client.heading) is not None and own.digest != first.digest:
            raise own.mismatch(f"client {i}", first, "the clients before it").error(DataError)
    for i, d in known:
        if n_components > d:
            raise ConfigError(
                f"Client {i} has only {labels.count(d, 'column')}, too few for "
                f"{option('n_components', n_components)}. Ask for fewer components.",
                setting="n_components",
                value=n_components,
            )
        if d != known[0][1]:
            raise Heading(d).mismatch(f"client {i}", Heading(known[0][1]), "the clients before it").error(DataError)
