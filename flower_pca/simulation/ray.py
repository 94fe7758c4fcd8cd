"""Simulations on Flower's Ray engine, which run the strategies and clients of a deployment in worker processes."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flower_pca.base import errors, files, labels
from flower_pca.base.errors import ConfigError, NotEnoughNodes
from flower_pca.base.options import option
from flower_pca.core.config import PCAConfig
from flower_pca.core.drive import Driven
from flower_pca.core.stage import Arrays
from flower_pca.results.left_out import LeftOut
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult
from flower_pca.rows.stream import Stream
from flower_pca.simulation.backend import Ray, SimulationSettings
from flower_pca.simulation.cluster import actor_count, ray_session, require_alive
from flower_pca.simulation.shards import SimulationPlaces, place_shards

if TYPE_CHECKING:
    from flower_pca.strategies import TrackingStrategy
    from flower_pca.strategies.base import FlowerStrategy, R

B = TypeVar("B")  # the type of what the function `back` returns: see `_simulate`

_START_TIME: Final = 300.0  # the number of seconds in which all virtual nodes must register


def run_pca(
    config: PCAConfig,
    sites: Sequence[Any],
    public: Collection[int],
    conduct: SimulationSettings,
    *,
    left_out: Mapping[int, str] = MappingProxyType({}),
) -> PCAResult:
    """Run a PCAStrategy with the sites that are not in `left_out`, and return its result.

    `left_out` gives the reasons why sites are left out. The result has the local results of the `public` sites.
    """
    assert conduct.engine is not None
    _require_ray()
    from flower_pca.clients.storage.folders import local_file
    from flower_pca.strategies import PCAStrategy

    there = [i for i in range(len(sites)) if i not in left_out]

    def back(output: Path) -> dict[int, Arrays]:
        written = [(i, local_file(output, node)) for node, i in enumerate(there) if i in public]
        return {i: files.read(path, "own result")[1] for i, path in written if path.exists()}

    strategy = PCAStrategy(
        config,
        min_nodes=len(there),
        node_timeout=_START_TIME,
        hosted=conduct.engine.hosted,
        checkpoint=conduct.checkpoint,
        init=conduct.init,
    )
    rules: dict[str, Any] = {"answers": conduct.answers, "noise_seed": config.seed}
    shards = [sites[i] for i in there]
    found, own = _simulate(strategy, shards, back, conduct.engine, conduct.on_round, rules)
    names = {there[node]: name for node, name in found.site_names.items()}
    left = {there[node]: site for node, site in found.left_out.items()}
    left |= {i: LeftOut(sites[i].site or labels.client_name({}, i), why) for i, why in left_out.items()}
    return replace(found, local=own, site_names=names, left_out=dict(sorted(left.items())))


def run_tracker(
    strategy: Callable[..., TrackingStrategy],
    streams: Sequence[Stream],
    *,
    engine: Ray,
    on_round: Callable[[Driven], None] | None,
    seed: int,
) -> TrackingResult:
    """Run a TrackingStrategy with the streams in worker processes, and return its result.

    At the end, the streams in this process take over the final state of their copies in the workers. `strategy` is
    a function that creates the strategy from the keywords about nodes.
    """
    _require_ray()
    if not all(stream.repeatable for stream in streams):
        raise ConfigError(
            "The worker processes of Ray cannot read a stream that is an iterator of this process. Give a list of "
            "batches or a function instead."
        )
    from flower_pca.clients.storage.folders import local_file

    def back(output: Path) -> None:
        for i, stream in enumerate(streams):
            stream.take_over(local_file(output, i).with_suffix(""))

    made = strategy(min_nodes=len(streams), node_timeout=_START_TIME, hosted=engine.hosted)
    return _simulate(made, streams, back, engine, on_round, {"noise_seed": seed})[0]


def _require_ray() -> None:
    if not errors.is_installed("Ray"):
        raise errors.not_installed("Ray", f"for {option('backend', 'ray')}")


def _simulate(
    strategy: FlowerStrategy[R],
    shards: Sequence[Any],
    read_back: Callable[[Path], B],
    engine: Ray,
    on_round: Callable[[Any], None] | None,
    rules: dict[str, Any],
) -> tuple[R, B]:
    """Run the strategy, and then call `read_back` with the folder of the clients' files. Return both results."""
    # The environment is set before the session, because Ray reads it when it starts.
    with _without_deprecation_warning(), _environment(), ray_session(engine):
        each = engine.clients_per_actor(len(shards), actor_count(engine))
        with place_shards(shards, each) as where:
            results = _run_strategy(strategy, len(shards), where, engine, on_round, rules)
            # Flower catches a SystemExit of the server, and returns as if the run had ended normally.
            if not results:
                raise RuntimeError("The simulation was stopped before it had a result. The log shows the reason.")
            return results[0], read_back(where.output())


def _run_strategy(
    strategy: FlowerStrategy[R],
    clients: int,
    places: SimulationPlaces,
    engine: Ray,
    on_round: Callable[[Any], None] | None,
    rules: dict[str, Any],
) -> list[R]:
    """Run the strategy, and return a list with its result, or an empty list if it has no result."""
    nodes, app = -(-clients // places.packs.each), _app_of_nodes(places, clients, engine, rules)
    if _runs_by_command(engine):
        return [_run_by_command(strategy, nodes, places, engine, app)]
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    # Flower's simulation does not return what its server computes, so the server stores its result in this list.
    results: list[R] = []
    stopped = threading.Event()
    server = ServerApp()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        until: Any = _InterruptibleGrid(stopped, grid)
        try:
            results.append(strategy.fit(until, on_round=on_round))
        except BaseException:
            # If a machine has left the cluster, its error must not hide the error that ended the run.
            if not stopped.is_set():
                with contextlib.suppress(NotEnoughNodes):
                    places.bring_back()
            raise
        if not stopped.is_set():
            places.bring_back()

    try:
        resources = {"num_cpus": engine.num_cpus_per_client, "num_gpus": 0.0}
        config: Any = {"client_resources": resources}
        run_simulation(server, app, nodes, backend_config=config)
    except BaseException:
        # Ctrl-C does not interrupt the server, because the server runs in another thread.
        stopped.set()
        raise
    return results


def _runs_by_command(engine: Ray) -> bool:
    """Return whether the engine is started with `flwr run`."""
    if engine.entry == "auto":
        import flwr.simulation

        return not hasattr(flwr.simulation, "run_simulation")
    return engine.entry == "flwr_run"


def _run_by_command(strategy: FlowerStrategy[R], nodes: int, places: SimulationPlaces, engine: Ray, app: Any) -> R:
    """Run the strategy in a process that Flower starts, and return its result."""
    import ray

    from flower_pca.simulation import by_command

    if places.shared is None:
        raise ConfigError(
            "The machines of the cluster do not share the folder for temporary files, which entry='flwr_run' needs. "
            "Leave entry out."
        )
    cluster = ray.get_runtime_context().gcs_address
    cores = int(engine.num_cpus_per_client)
    found: R = by_command.run_by_command(
        functools.partial(_fit, strategy), app, nodes, cores, Path(places.shared), cluster
    )
    return found


def _fit(strategy: FlowerStrategy[R], grid: Any) -> R:
    """Run the strategy, and end if a worker dies."""
    until: Any = _InterruptibleGrid(threading.Event(), grid)
    return strategy.fit(until)


def _app_of_nodes(places: SimulationPlaces, clients: int, engine: Ray, rules: dict[str, Any]) -> Any:
    """Return the ClientApp of all virtual nodes. Its rules allow everything, because a simulation has no real sites."""
    from flower_pca.clients import Rules, client_app
    from flower_pca.clients.policy.rules import allowed_names

    each, packs, hosting = places.packs.each, places.packs, engine.hosted is not None
    free = Rules.with_changes(
        None, {"allow": allowed_names(), "missing": "mean", "split_columns": "any", "covariates": "any", **rules}
    )

    def hosts(context: Any) -> Sequence[int]:
        first = int(context.node_config["partition-id"]) * each
        if hosting:
            return range(first, min(first + each, clients))
        return ()

    def load(context: Any) -> Any:
        return packs.load(int(context.node_config["partition-id"]))

    if places.shared is not None:
        return client_app(load, hosts=hosts, rules=replace(free, output_dir=places.output()))
    # A client's files are on the machine of its worker, so the worker determines the folder.
    return client_app(load, hosts=hosts, rules=lambda context: replace(free, output_dir=places.output()))


class _InterruptibleGrid:
    """A grid whose calls end the server's thread if the simulation is interrupted or a worker has died."""

    def __init__(self, stopped: threading.Event, grid: Any) -> None:
        self._stopped, self._grid = stopped, grid

    def __getattr__(self, name: str) -> Any:
        if self._stopped.is_set():  # The nodes will not answer any more.
            raise SystemExit
        return getattr(self._grid, name)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """Return the replies that have arrived, or raise NotEnoughNodes if a worker has died."""
        came = list(self.__getattr__("pull_messages")(message_ids))
        for reply in came:
            require_alive(reply.error.reason if reply.has_error() else "")
        return came


@contextlib.contextmanager
def _without_deprecation_warning() -> Iterator[None]:
    """Suppress Flower's warning that its entry point is deprecated, because users of this package do not call it."""

    def relevant(record: logging.LogRecord) -> bool:
        return "DEPRECATED FEATURE" not in record.getMessage()

    logger = logging.getLogger("flwr")
    logger.addFilter(relevant)
    try:
        yield
    finally:
        logger.removeFilter(relevant)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Let Ray pass messages of up to 1 MB directly between processes, and restore the environment afterwards."""
    before = dict(os.environ)
    # Larger messages are sent through Ray's object store.
    os.environ.setdefault("RAY_max_direct_call_object_size", str(2**20))
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
