"""The functions `simulate` and `track`: a whole federation on this machine, of rows or of streams."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from flower_pca import assembly, client_half, registry
from flower_pca.assembly import TrackingOptions
from flower_pca.base import checks, labels
from flower_pca.base.bits import seeded_bits
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.options import option
from flower_pca.base.shown import shown, with_article
from flower_pca.base.signatures import defaults, with_signature
from flower_pca.core.algorithm import Algorithm, HasNumbersByClient
from flower_pca.core.config import COMPONENTS, PCAConfig, SimulationOptions
from flower_pca.core.drive import Driven, Watcher, drive
from flower_pca.core.stage import Arrays
from flower_pca.names.columns import Heading, names_in
from flower_pca.names.table import Table
from flower_pca.results.left_out import parted
from flower_pca.results.pca import PCAResult
from flower_pca.results.start import Start
from flower_pca.rows.adjusted import hints_of_constant_columns, of_site
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.simulation.backend import InProcess, Ray, Shards, SimulationSettings, Watch
from flower_pca.simulation.sites import clients_with_results, common_order, rows_of, sites_of, with_hints

if TYPE_CHECKING:
    from flower_pca.results.record import StepRecord
    from flower_pca.results.steps import TrackingResult
    from flower_pca.tracking.tracker import Tracker

# parameters of an iterative algorithm, which have other defaults in each algorithm
_OWN: Final = ("tol", "min_rounds", "max_rounds", "patience")
_LOG: Final = logging.getLogger("flower_pca")


@with_signature(SimulationOptions, {**defaults(PCAConfig), **dict.fromkeys(_OWN)})
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
    """Compute the PCA of the rows of all shards together, by a federated algorithm in this process.

    Parameters
    ----------
    algorithm : str, Algorithm or PCAConfig
        A name ("krylov"), a spec string ("faps(inner_steps=5)") or an instance; or a whole `PCAConfig`.
    shards : sequence or mapping
        One two-dimensional array per client: dense, scipy sparse or memory-mapped; rows are samples. Data frames and
        what `from_frame` and `sources.make` give are matched by the names of their columns; a mapping names the sites.
        With partitioned_by="columns" their rows are matched instead, by the index of a data frame or the ids of a file
        where these are given.
    hide_local : collection of int, default=()
        Clients, by position, whose own results are not handed over in `local` of the result.
    answers : {"rows", "fixed"}, default="rows"
        "rows": clients multiply rows, or X'X where that takes fewer operations; "fixed": they answer as nodes in a
        deployment do, with the same bits. See `Rules`.
    init : PCAResult, path or array-like, or None, default=None
        Components to begin with, for an algorithm that iterates: an earlier result, its file, or components as rows.
        Over nearly the same rows that saves messages; the answer is that of these rows.
    checkpoint : str or path or None, default=None
        File to keep the state of the run in after every round. If it is there at the start, the run goes on from it, in
        process bit for bit; a finished run removes it.
    on_round : callable or None, default=None
        Called with the run after every round. Rounds are logged to "flower_pca" at INFO as well, and a notebook shows a
        bar.
    backend : {"in_process", "ray"} or Ray, default="in_process"
        "in_process", a plain loop without Flower; or "ray", Flower's simulation engine, with virtual nodes that host
        many clients; or Ray(clients_per_node=1) for settings of it. The components are the same to the last bit.
    **settings
        What is asked, where `algorithm` is not a PCAConfig: n_components, and what else `PCAConfig` names, such as
        center, scale, seed, mask=True or dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)". For an algorithm that iterates,
        tol, min_rounds, max_rounds and patience are its own: see `make`. Here `fraction` may also be a function from
        the number of a message to the positions of the clients that can be reached then.

    Returns
    -------
    PCAResult
        The components with their variances, why the run ended, and its history; of a run over columns a
        `ColumnsResult`, which has the scores as well.

    Raises
    ------
    ConfigError
        If a parameter is not valid.
    DataError
        If a shard cannot be used; the message names the client.
    NotEnoughNodes
        If fewer clients are present, or answer, than the run needs.

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
    config, sites = _in_order(config, sites_of(shards))
    clients = _require_clients(config, sites)
    public = clients_with_results(hide_local, len(clients))
    watch = Watch(on_round)
    watch.begin(functools.partial(_words, config, clients))
    if conduct.engine is None:
        del sites  # The clients hold the rows now; ten thousand tables beside them would take memory.
        result = _in_process(config, clients, public, conduct, present, watch)
    else:
        if present is not None:
            raise ConfigError(
                f"On Ray, fraction cannot be a function. Give a number, or use {option('backend', 'in_process')}.",
                setting="fraction",
            )
        from flower_pca.simulation import ray

        out = _without_rows(config, clients)
        result = ray.run(config, sites, public, replace(conduct, on_round=watch.after_message), out=out)
    if config.covariates is not None and config.columns is not None:
        # Hints are about features only, so leave out covariates.
        clients = [client.arrange(config.columns) for client in clients]
    if (config.variants or config.highly_variable) is not None and result.feature_names_in_ is not None:
        clients = [client.arrange(tuple(result.feature_names_in_)) for client in clients]
    result = with_hints(result, [client for client in clients if client.n], _frame(result, config))
    watch.end(result)
    return result


def _require_called_here(engine: Ray | None, on_round: object) -> None:
    """Raise a ConfigError if `on_round` is given although the server is another process."""
    if engine is not None and engine.entry == "flwr_run" and on_round is not None:
        raise ConfigError(
            "on_round is not called with entry='flwr_run', because the server is another process. "
            "Leave one of them out."
        )


def _require_order(function: str, data: str, first: object, second: object, kinds: tuple[type[Any], ...]) -> None:
    """Raise a ConfigError if data come first and the algorithm second, as in functions of scikit-learn."""
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
    watch: Watch,
) -> PCAResult:
    """Run the algorithm in a loop over the clients, and return the result with the own results of `public` clients."""
    bits, here, source = None, None, None
    out = _without_rows(config, clients)
    if config.dp is not None and config.dp.noise_seed is not None:
        bits = [seeded_bits(config.dp.noise_seed, i) for i in range(len(clients))]
    if present is not None:
        here = _presence(present, len(clients))
    if out:
        here = functools.partial(_others, out, here or (lambda _: list(range(len(clients)))))
    if conduct.answers == "fixed":
        from flower_pca.rows.fixed import FixedData

        source = functools.partial(FixedData.of, gaps=config.missing == "mean")
    there = Shards(clients, present=here, bits=bits, seed=config.seed, source=source)
    # All clients run in this process, so their answers need no checks against dishonest clients.
    run = assembly.run(config, judged=False, init=conduct.init)
    result = cast(PCAResult, drive(run, there, checkpoint=conduct.checkpoint, watchers=[watch]))
    own: dict[int, Arrays] = {}
    hints: list[str] = []
    if any(there.memories) and registry.has_local_results(config.algorithm):
        stage, frame = registry.closing(config.algorithm).name, _frame(result, config)
        for i in public:
            if arrays := client_half.local_results(stage, there.memories[i], clients[i].in_frame(frame)):
                own[i] = arrays
    if config.harmonize is not None or (config.covariates is not None and config.covariates.within):
        for i in [i for i in public if clients[i].n]:
            rows = clients[i].in_frame(result.frame)
            own[i] = {**own.get(i, {}), **of_site(rows)}
            if config.mask is not None:  # Without masks, the run itself gives these hints.
                hints += hints_of_constant_columns(rows)
    names = {i: client.site for i, client in enumerate(clients) if client.site}
    found = replace(result, local=own, hints=(*result.hints, *hints), **_sites(names, len(clients), run, out))
    if names:
        return found.with_names({})
    return found


def _in_order(config: PCAConfig, sites: list[Table]) -> tuple[PCAConfig, list[Table]]:
    """Return the configuration and the sites with columns that all sites agree on, and columns of words as numbers.

    If the configuration names no columns, it gets the order that all sites have, if there is one.
    """
    if config.categorical is not None:
        from flower_pca.simulation.sites import by_agreement

        config, sites = by_agreement(config, config.coding, sites)
    covariates = config.covariates
    if covariates is not None and (covariates.names or all(site.names for site in sites)):
        from flower_pca.simulation.sites import beside_covariates

        return beside_covariates(config, sites)
    if config.columns is None and (order := common_order(sites)) is not None:
        return replace(config, columns=order), sites
    return config, sites


def _require_clients(config: PCAConfig, sites: Sequence[Table]) -> list[LocalData]:
    """Return the clients, or raise an error if their rows do not allow what the configuration asks for."""
    # The opening of a harmonized run refuses missing values with its own message, because nothing may fill
    # them.
    missing = config.missing != "error" or config.harmonize is not None
    clients = rows_of(sites, missing=missing, columns=config.columns_and_covariates)
    rows = sum([client.n for client in clients])
    d = clients[0].d
    if config.covariates is not None:
        d -= len(config.covariates.names)
    checks.at_most(config.n_components, rows, d)
    algorithm = config.algorithm
    if isinstance(algorithm, HasNumbersByClient) and algorithm.by_client is not None:
        from flower_pca.layers import single

        single.require(
            f"local_components of {algorithm.name}", algorithm.by_client, [client.site for client in clients]
        )
    if config.dp is not None:
        # Refuse a privacy budget under which noise hides all components, before any of it is spent.
        seen = assembly.outlook(config, rows=rows, columns=d, clients=len(clients))
        assert seen is not None
        seen.require()
        _LOG.info("%s", seen)
    return clients


def _words(config: PCAConfig, clients: Sequence[LocalData]) -> str:
    """Return the algorithm, the size of the data and the number of clients in words, for the log."""
    rows = labels.count(sum(client.n for client in clients), "row")
    d = clients[0].d if config.columns is None else len(config.columns)
    columns = labels.count(d, "column")
    return f"{config.algorithm.spec} of {rows} x {columns} at {labels.count(len(clients), 'client')}"


def _frame(result: PCAResult, config: PCAConfig) -> Frame:
    """Return the frame of the result for the rows of the clients."""
    chosen = config.variants is not None or config.highly_variable is not None
    names = result.frame.names if chosen else config.columns
    return replace(result.frame, own=config.missing == "local_mean", names=names)


def _presence(fraction: Callable[[int], Iterable[int]], n_clients: int) -> Callable[[int], list[int]]:
    """Return the caller's function with a check of the clients that it returns."""

    def present(number: int) -> list[int]:
        named: Any = fraction(number)
        if not isinstance(named, Iterable):
            raise ConfigError(
                f"The function given as fraction returned {shown(named)}. Let it return positions in shards, such as "
                "[0, 2].",
                setting="fraction",
            )
        here = list(dict.fromkeys(int(client) for client in named))
        for client in here:
            if not 0 <= client < n_clients:
                raise ConfigError(
                    f"The function given as fraction named client {client}, but the clients are numbered from 0 to "
                    f"{n_clients - 1}. Let it return positions in shards.",
                    setting="fraction",
                )
        return here

    return present


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
    """Follow the subspace of the rows of all streams together over time.

    Parameters
    ----------
    tracker : str or Tracker
        A name ("st_miss"), a spec string ("robust_tracking(smallest_outlier=15)") or an instance.
    streams : sequence
        One per client: a `Stream`, or what one is made of (an array, a list of batches, a function from the number of a
        step to a batch, an iterator). Rows are samples, NaN is a missing entry.
    batch : int or None, default=None
        Rows of a batch, for streams that are arrays.
    min_nodes : int, default=1
        Clients that must be present.
    checkpoint : str or path or None, default=None
        File to keep the state of the run in after every message. If it is there at the start, the run goes on from it,
        bit for bit; a finished run removes it. Not for iterators that do not begin anew.
    on_round : callable or None, default=None
        Called with the run after every message.
    on_step : callable or None, default=None
        Called with the `StepRecord` of every step as soon as it is over, before the checkpoint is written: a run that
        goes on from there may tell its newest step once more.
    backend : {"in_process", "ray"} or Ray, default="in_process"
        "in_process", a plain loop without Flower; or "ray", Flower's simulation engine, with virtual nodes that host
        many clients; or Ray(clients_per_node=1) for settings of it. The components are the same to the last bit.
    **settings
        What is asked: n_components, steps, init, columns, seed, mask, channel. See `assembly.tracking`.

    Returns
    -------
    TrackingResult
        The basis of each step, changes, figures of every batch, and the history.

    Raises
    ------
    ConfigError
        If a parameter is not valid.
    DataError
        If a batch cannot be used; the message names the client and the step.

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
    from flower_pca.results.record import Following
    from flower_pca.tracking.tracker import Tracker

    _require_order("track", "streams", tracker, streams, (Tracker,))
    checks.parameters("track", settings, TrackingOptions.__annotations__)
    engine = Ray.of(backend)
    _require_called_here(engine, on_round)
    if checkpoint is not None:
        checks.parent("the checkpoint", checkpoint)
    chosen = registry.tracker(tracker)
    run = assembly.tracking(chosen, min_nodes=min_nodes, **settings)
    clients = [client.select(names_in(settings.get("columns"))) for client in _streams(streams, batch)]
    _check_columns(clients, settings.get("n_components", COMPONENTS))
    if engine is not None:
        from flower_pca.simulation import ray
        from flower_pca.strategies import TrackingStrategy

        strategy = functools.partial(TrackingStrategy, chosen, checkpoint=checkpoint, on_step=on_step, **settings)
        return ray.track(strategy, clients, engine=engine, on_round=on_round, seed=int(settings.get("seed", 0)))
    there = InProcess(clients, seed=int(settings.get("seed", 0)))
    watch = Watch(on_round)
    watch.begin(lambda: f"{run.algorithm.spec} of {labels.count(len(clients), 'client')}")
    watchers: list[Watcher] = [watch]
    if on_step is not None:
        watchers.append(Following(on_step, lambda i: (i, clients[i].site)))
    result = cast("TrackingResult", drive(run, there, checkpoint=checkpoint, watchers=watchers))
    watch.end(result)
    names = {i: client.site for i, client in enumerate(clients) if client.site}
    return replace(result, **_sites(names, len(clients), run))


def _without_rows(config: PCAConfig, clients: Sequence[LocalData]) -> dict[int, str]:
    """Return, by client, why clients without rows are left out.

    Under masks none is left out: they send zeros, so that the server does not learn that they have no rows.
    """
    if config.mask is not None:
        return {}
    return {i: "it has no rows" for i, client in enumerate(clients) if not client.n}


def _others(out: Mapping[int, str], present: Callable[[int], Iterable[int]], number: int) -> list[int]:
    """Return the clients that the message with this number can reach, without those in `out`."""
    return [client for client in present(number) if client not in out]


def _sites(
    names: Mapping[int, str], clients: int, run: Driven, out: Mapping[int, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the fields `site_names` and `left_out` of a result, for a run of `clients` clients; those in
    `out` were not asked.
    """
    fraction = "fraction left it out"
    return parted(names, range(clients), run.roll.contributors, run.history, otherwise=fraction, unasked=out)


def _streams(streams: Any, batch: int | None) -> list[Stream]:
    if not isinstance(streams, list | tuple) or len(streams) == 0:
        got = "is empty" if isinstance(streams, list | tuple) else f"is {with_article(type(streams).__name__)}"
        raise DataError(f"streams {got}. Give a list with one stream for each client; for one client, [X].")
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
    """Raise an error about columns that can be known to be wrong before the first message."""
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
