"""The ServerApp and the ClientApp that `flwr run` starts, in simulation and in deployment alike.

The run-config says what to compute (`run_config`); a node's own node-config says which rows it
has (data, or data-path; for trackers a folder of batches, or rows that are cut by batch) and what
it allows: the rules of `flower_pca.clients.Rules`, with hyphens in their names. A key that is
nearly one of a rule is refused.

A node that names no rows plays its part of the run's: of whatever the run-config names, inside
Flower's simulation engine; of rows that are drawn from a seed, on a real SuperNode, so that no run
can choose one of its files.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flower_pca import clients, registry
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, private, public
from flower_pca.clients.policy.rules import Rules, rules_of_simulation
from flower_pca.data import partition, sources
from flower_pca.data.sources import Arrivals
from flower_pca.hosting import EACH
from flower_pca.names import columns
from flower_pca.rows.stream import Stream
from flower_pca.run_config import settings

# rules that others count on to have rows
_GUARDED: Final = ("sign-key", "trusted-keys", "masked-only", "profile")
_LARGEST: Final = 10**7  # entries that a run may have a real node draw

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategy that the run-config describes, and save its result as result.npz."""
    from flower_pca.strategies.app import run  # Imported here because no node needs it.

    run(grid, context)


def _load(context: Context) -> Any:
    """The node's own rows, or its part of those that the run-config names; as a stream, where they are cut by batch."""
    node, config = context.node_config, _settings(context)
    data = _own_rows(node)
    if data is not None:
        if registry.tracks(str(config.get("algorithm", ""))) and Path(data).expanduser().is_dir():
            return Stream(Arrivals(data), who=checks.NODE)
        with private():
            own = Rules.of_node_config(node)
        words = (*own.columns_of_words, *sources.words_among(data, own.covariate_names))
        rows = sources.make(data, words=tuple(dict.fromkeys(words)), ids=own.id_column)
        if own.max_epsilon is not None and getattr(rows, "words", None):
            # A column with text in one cell is a column of numbers there, so its cells are needed.
            rows = sources.make(data, words=tuple(rows.words))
        if "batch" in node:
            return Stream(rows, batch=int(node["batch"]), who=checks.NODE)
        return rows
    spec = str(config["data"])
    _check_dealt(node, spec)
    wanted = str(config.get("columns", "")) or None
    if config.get("partitioned-by") == "columns":
        with public():
            every = _parties(spec, str(config.get("ids", "")) or None, int(node["num-partitions"]) * _each(context))
            return every[int(node["partition-id"])]
    free = Rules.of(None, rules_of_simulation(config))
    words, beside = free.columns_of_words, free.covariate_names
    with public():  # the run has named them
        number = int(node["num-partitions"]) * _each(context)
        shards = _whole(spec, str(config["partition"]), number, wanted, words, beside)
        own = shards(int(node["partition-id"]))
    batch = int(config.get("batch", 0))
    if batch:
        return Stream(own, batch=batch, who=f"client {node['partition-id']}")
    return own


def _settings(context: Context) -> dict[str, Any]:
    """The settings of the run, as whoever starts it has given them: none of them is of this machine."""
    with public():
        return settings(context.run_config)


def _own_rows(node: Mapping[str, Any]) -> str | None:
    """Where the node's own rows are: its `data`, or `data-path`, as other Flower apps call it."""
    data, path = node.get("data"), node.get("data-path")
    with private():
        if data is not None and path is not None and data != path:
            raise ConfigError(
                f"The node-config names its rows twice: data={str(data)!r} and data-path={str(path)!r}. Keep one of "
                "them."
            )
    if data is None and path is None:
        return None
    return str(path if data is None else data)


def _check_dealt(node: Mapping[str, Any], spec: str) -> None:
    """Whether a node may play its part of the run's rows. A real one has files of its own."""
    parts = {"partition-id", "num-partitions"} <= node.keys()
    if not parts or not (_in_simulation() or sources.is_random(spec)):
        raise ConfigError(
            "This node has no data. Start the SuperNode with --node-config 'data=\"/path/x.npy\"', or name "
            "partition-id and num-partitions for rows that are drawn from a seed."
        )
    if not _in_simulation():
        if guarded := [rule for rule in _GUARDED if node.get(rule)]:
            raise ConfigError(
                f"This node has {guarded[0]}, but its node-config names no data. Name the node's own data, because "
                "whoever sends the run knows all rows that the node would draw."
            )
        if (size := sources.size_drawn(spec)) > _LARGEST:
            raise ConfigError(
                f"A node draws at most {_LARGEST:,} entries (n d for the rows, and d d for each client), but this run "
                f"asks for {size:,}. Ask for fewer rows or columns."
            )
        logging.getLogger("flwr").warning(
            "This node has no data of its own: it draws the rows of client %s of %s.", node["partition-id"], spec
        )


def _in_simulation() -> bool:
    """Whether this is a virtual node of Flower's simulation engine. They live in an actor of Ray; no SuperNode does."""
    ray: Any = sys.modules.get("ray")
    if ray is None or "flwr.simulation.ray_transport.ray_actor" not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


def _each(context: Context) -> int:
    """How many clients a node hosts: what the run-config says of a virtual one, else itself."""
    given = int(_settings(context)[EACH])
    if given > 1 and _in_simulation() and _own_rows(context.node_config) is None:
        return given
    return 1


def _hosts(context: Context) -> range:
    """The clients that a node hosts, by number; none if it is one itself."""
    each = _each(context)
    if each > 1:
        first = int(context.node_config["partition-id"]) * each
        return range(first, first + each)
    return range(0)


@lru_cache(maxsize=1)
def _whole(
    data: str, deal: str, clients: int, wanted: str | None, words: tuple[str, ...], covariates: tuple[str, ...]
) -> Callable[[int], Any]:
    """From a client to its rows; made once a process, as a simulation's worker plays many nodes."""
    needed, names = partition.column(deal), columns.names_in(wanted)
    beside = () if needed is None else (needed,)
    if names is not None:
        names = tuple(dict.fromkeys([*names, *covariates]))
    every = tuple(dict.fromkeys([*words, *sources.words_among(data, covariates)]))
    table = sources.table(data, beside=beside, columns=names, words=every)
    parts = partition.make(deal, len(table), clients, beside=table.beside)
    sites = partition.sites(deal, table.beside, parts)
    return lambda i: table.take(parts[i], sites[i]).bare()


@lru_cache(maxsize=1)
def _parties(data: str, ids: str | None, clients: int) -> list[Any]:
    """The tables of clients with different columns of the same people; read once a process."""
    return sources.parties(data, ids=ids, clients=clients)


def _rules(context: Context) -> Rules:
    """The rules in the node-config. Nodes with the run's own rows are simulated: no foe there."""
    with private():
        given = Rules.of_node_config(context.node_config)
    if _own_rows(context.node_config) is not None:
        return given
    return Rules.of(given, rules_of_simulation(_settings(context)))


client_app = clients.client_app(_load, rules=_rules, hosts=_hosts)
