"""The ServerApp and the ClientApp that `flwr run` starts, in simulation and in deployment alike.

The run-config of pyproject.toml says what to compute; a node's own node-config says which rows it has (data, or
data-path; for trackers a folder of batches, or rows that are cut by batch) and what it allows: the rules of
`flower_pca.clients.Rules`, with hyphens in their names. A key that is nearly one of a rule is refused.

A node that names no rows plays its part of the run's: of whatever the run-config names, inside Flower's simulation
engine; of rows that are drawn from a seed, on a real SuperNode, so that no run can choose one of its files.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain, count
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Final

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flower_pca import clients, registry
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, private
from flower_pca.clients.policy.rules import Rules, everything
from flower_pca.data import partition, sources
from flower_pca.data.sources import Arrivals
from flower_pca.data.table import take
from flower_pca.names import columns
from flower_pca.results.pca import PCAResult
from flower_pca.results.record import StepRecord
from flower_pca.results.steps import TrackingResult
from flower_pca.rows.stream import Stream
from flower_pca.strategies import PCAStrategy, TrackingStrategy
from flower_pca.strategies.log import log

server_app = ServerApp()

_EACH: Final = "shards-per-node"
_GUARDED: Final = (
    "sign-key",
    "trusted-keys",
    "masked-only",
    "profile",
)  # rules of a node that others count on to have rows
_WATCHED: Final = ("events", "live")  # files of the output folder that a tracker's steps are written to
_LARGEST: Final = 10**7  # entries that a run may have a real node draw


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategy that the run-config describes, and save its result as result.npz in the output folder."""
    wanted = Path(str(context.run_config["output"])).expanduser()
    folder = _free(wanted)
    settings = _settings(context)
    folder.mkdir(parents=True, exist_ok=True)
    if settings.get("checkpoint"):
        settings["checkpoint"] = folder / settings["checkpoint"]
    result: PCAResult | TrackingResult
    if _tracks(context.run_config):
        result = _tracked(grid, settings, context, folder)
    else:
        _require_steps(context.run_config)
        result = PCAStrategy(**settings).fit(grid)
    if (folder / "result.npz").exists():  # of a run that has ended meanwhile
        folder = _free(wanted)
        folder.mkdir(parents=True, exist_ok=True)
    log(INFO, "Components saved in %s", result.save(folder / "result.npz"))


def _free(wanted: Path) -> Path:
    """The output folder: where a relative path already has a result, the next one of that name with a number.

    Whoever names an absolute path has chosen the place. A run that was interrupted has left no result, so its
    checkpoint is found again.
    """
    if wanted.is_absolute():
        return wanted.resolve()
    numbered = (wanted.with_name(f"{wanted.name}-{n}") for n in count(2))
    return next(folder.resolve() for folder in chain([wanted], numbered) if not (folder / "result.npz").exists())


def _load(context: Context) -> Any:
    """The node's own rows, or its part of those that the run-config names; as a stream, where they are cut by batch."""
    node, config = context.node_config, context.run_config
    data = _own(node)
    if data is not None:
        if _tracks(config) and Path(data).expanduser().is_dir():
            return Stream(Arrivals(data), who=checks.NODE)
        rows = sources.make(data)
        if "batch" in node:
            return Stream(rows, batch=int(node["batch"]), who=checks.NODE)
        return rows
    asked = str(config["data"])
    _check_dealt(node, asked)
    wanted = str(config.get("columns", "")) or None
    if config.get("split") == "columns":
        with private(hold=False):
            every = _parties(asked, str(config.get("ids", "")) or None, int(node["num-partitions"]) * _each(context))
            return every[int(node["partition-id"])]
    with private(hold=False):  # the run has named them
        shards = _whole(asked, str(config["partition"]), int(node["num-partitions"]) * _each(context), wanted)
        own = shards(int(node["partition-id"]))
    batch = int(config.get("batch", 0))
    if batch:
        return Stream(own, batch=batch, who=f"client {node['partition-id']}")
    return own


def _own(node: Mapping[str, Any]) -> str | None:
    """Where the node's own rows are: its `data`, or `data-path`, as other Flower apps call it."""
    data, path = node.get("data"), node.get("data-path")
    with private():
        if data is not None and path is not None and data != path:
            got = f"data={str(data)!r} and data-path={str(path)!r}"
            raise ConfigError("The rows of this node", must="named once, as data", got=got, then="Keep one of them.")
    if data is None and path is None:
        return None
    return str(path if data is None else data)


def _check_dealt(node: Mapping[str, Any], asked: str) -> None:
    """Whether a node may play its part of the run's rows. A real one has files, which no run may choose from."""
    parts = {"partition-id", "num-partitions"} <= node.keys()
    if not parts or not (_simulated() or sources.drawn(asked)):
        names = "data, or partition-id and num-partitions of rows that are drawn from a seed"
        remedy = "Start the SuperNode with --node-config 'data=\"/path/x.npy\"'."
        raise ConfigError("The node-config of this node", must=f"one with {names}", got="neither", then=remedy)
    if not _simulated():
        if guarded := [rule for rule in _GUARDED if node.get(rule)]:
            remedy = "Name its data in its node-config: whoever sends the run knows all rows that it draws."
            raise ConfigError("The rows of a node with " + guarded[0], must="its own", got="none", then=remedy)
        if (size := sources.size_drawn(asked)) > _LARGEST:
            rule = f"of at most {_LARGEST:,} entries, n d of the rows and d d of each client"
            raise ConfigError("Rows that a node draws", must=rule, got=f"{size:,}", then="Ask for fewer.")
        log(WARNING, "This node has no data of its own: it plays part %s of %s.", node["partition-id"], asked)


def _simulated() -> bool:
    """Whether this is a virtual node of Flower's simulation engine. They live in an actor of Ray; no SuperNode does."""
    ray: Any = sys.modules.get("ray")
    if ray is None or "flwr.simulation.ray_transport.ray_actor" not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


def _each(context: Context) -> int:
    """How many clients a node hosts: what the run-config says at a virtual one, else it is one itself."""
    given = int(context.run_config.get(_EACH, 1))
    if given > 1 and _simulated() and _own(context.node_config) is None:
        return given
    return 1


def _hosts(context: Context) -> range:
    """The clients that a node hosts, by number; none if it is one itself."""
    each = _each(context)
    if each > 1:
        first = int(context.node_config["partition-id"]) * each
    else:
        first = 0
    if each > 1:
        return range(first, first + each)
    return range(0)


@lru_cache(maxsize=1)
def _whole(data: str, deal: str, clients: int, wanted: str | None) -> Callable[[int], Any]:
    """From a client to its rows; made once per process, as a worker of a simulation plays many nodes."""
    needed, names = partition.column(deal), columns.wanted(wanted)
    table = sources.table(data, beside=() if needed is None else (needed,), columns=names)
    rows = table.rows
    parts = partition.make(deal, int(rows.shape[0]), clients, beside=table.beside)
    sites = partition.sites(deal, table.beside, parts)
    return lambda i: table.site_rows(take(rows, parts[i]), parts[i], sites[i])


@lru_cache(maxsize=1)
def _parties(data: str, ids: str | None, clients: int) -> list[Any]:
    """The tables of clients that hold different columns of the same people; read once per process."""
    return sources.parties(data, ids=ids, clients=clients)


def _tracks(config: Mapping[str, Any]) -> bool:
    return str(config.get("algorithm", "")).split("(")[0].strip() in registry.TRACKERS


def _tracked(grid: Grid, settings: dict[str, Any], context: Context, folder: Path) -> TrackingResult:
    """The result of a tracker's run, whose steps are written into files of the output folder as the run-config says."""
    from flower_pca.report.live import watching

    given = {what: str(context.run_config.get(what, "")) for what in _WATCHED}
    files = {what: folder / name if name else None for what, name in given.items()}
    resume = bool(settings.get("checkpoint")) and Path(settings["checkpoint"]).exists()
    with watching(**files, title=f"Steps of {settings['algorithm']}", resume=resume) as on_step:
        return _tracking(settings, context, on_step).fit(grid)


def _require_steps(config: Mapping[str, Any]) -> None:
    """Require that nothing is asked for that only a run of steps has."""
    for what in _WATCHED:
        if config.get(what):
            remedy = "It is written of the steps of a tracker: leave it out."
            rule = f"left out with {config['algorithm']}"
            raise ConfigError(what, must=rule, got=repr(config[what]), then=remedy)


def _tracking(settings: dict[str, Any], context: Context, on_step: Callable[[StepRecord], None]) -> TrackingStrategy:
    """The strategy of a tracker, which has fewer parameters than PCAStrategy, and steps at an interval."""
    config = context.run_config
    names, plain = inspect.signature(TrackingStrategy).parameters, inspect.signature(PCAStrategy).parameters
    for name, value in settings.items():
        if name not in names and name != "algorithm" and value not in (None, False, plain[name].default):
            key = name.replace("_", "-")
            remedy = "A tracker has no such setting: leave it out."
            raise ConfigError(f"{key} with a tracker", must=f"{plain[name].default}", got=repr(value), then=remedy)
    given = {name: value for name, value in settings.items() if name in names}
    steps, interval = int(config.get("steps", 0)), float(config.get("interval", 0.0))
    return TrackingStrategy(settings["algorithm"], **given, steps=steps or None, interval=interval, on_step=on_step)


def _settings(context: Context) -> dict[str, Any]:
    """The parameters of PCAStrategy in the run-config, which has hyphens in their names and "" for None."""
    names = {name.replace("_", "-"): name for name in inspect.signature(PCAStrategy).parameters}
    given = {names[key]: value for key, value in context.run_config.items() if key in names}
    each = context.run_config.get(_EACH, 1)
    checks.integer(_EACH, each, least=1, remedy="Use 1 for a client in each node.")
    if int(each) > 1:
        hosted = {"hosted": context.run_config.get("shard-answers", "stacked")}
    else:
        hosted = {}
    return {**{name: None if value == "" else value for name, value in given.items()}, **hosted}


def _rules(context: Context) -> Rules:
    """The rules in the node-config. Nodes whose rows are the run's own are simulated, and have no foe."""
    with private():
        given = Rules.of_node_config(context.node_config)
    if _own(context.node_config) is not None:
        return given
    seed = int(context.run_config.get("seed", 0) or 0)
    free = {"allow": everything(), "answers": "rows", "missing": "mean", "split_columns": "any"}
    return Rules.of(given, {**free, "noise_seed": seed})


client_app = clients.client_app(_load, rules=_rules, hosts=_hosts)
