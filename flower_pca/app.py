"""The ServerApp and the ClientApp that `flwr run` starts, both in simulations and in deployments.

The run-config determines what is computed (`run_config`). A node's own node-config determines its rows (data or
data-path; for trackers a folder of batches, or a table that is split into batches) and what it allows: the rules of
`flower_pca.clients.Rules`, with hyphens in their names. A key that nearly matches the name of a rule is refused.

A node whose node-config names no rows uses its share of the run's rows. In Flower's simulation engine, these are the
rows that the run-config names. On a real SuperNode, they can only be random rows from a seed, so that no run can
choose one of the node's files.
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
from flower_pca.base.errors import ConfigError, marked_private, marked_public
from flower_pca.clients.policy.rules import Rules, rules_of_simulation
from flower_pca.data import partition, sources
from flower_pca.data.sources import Arrivals
from flower_pca.hosting import EACH
from flower_pca.names import columns
from flower_pca.rows.stream import Stream
from flower_pca.run_config import settings_of

# A node with one of these settings must not use random rows, because the user of the run knows all random rows, and
# the other nodes of a masked sum rely on this node.
_GUARDED: Final = ("sign-key", "trusted-keys", "masked-only", "profile")
_LARGEST: Final = 10**7  # the maximum number of random entries that a run may ask a real node to draw

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategy that the run-config describes, and save its result as result.npz."""
    from flower_pca.strategies.app import run  # Imported here because no node needs it.

    run(grid, context)


def _load_rows(context: Context) -> Any:
    """Return the node's own rows, or its share of the rows that the run-config names.

    For a tracker, and for rows that are split into batches, return a stream.
    """
    node, config = context.node_config, _settings_of_run(context)
    data = _own_rows(node)
    if data is not None:
        if registry.is_tracker(str(config.get("algorithm", ""))) and Path(data).expanduser().is_dir():
            return Stream(Arrivals(data), who=checks.NODE)
        with marked_private():
            own = Rules.of_node_config(node)
        words = (*own.text_columns, *sources.words_among(data, own.covariate_names))
        rows = sources.make(data, words=tuple(dict.fromkeys(words)), ids=own.id_column)
        if own.max_epsilon is not None and getattr(rows, "words", None):
            # With max_epsilon, a column with text counts as numeric, so its cells are read, too.
            rows = sources.make(data, words=tuple(rows.words))
        if "batch" in node:
            return Stream(rows, batch=int(node["batch"]), who=checks.NODE)
        return rows
    spec = str(config["data"])
    _check_shared_rows(node, spec)
    wanted = str(config.get("columns", "")) or None
    if config.get("partitioned-by") == "columns":
        with marked_public():
            every = _tables_of_parties(
                spec, str(config.get("ids", "")) or None, int(node["num-partitions"]) * _clients_per_node(context)
            )
            return every[int(node["partition-id"])]
    free = Rules.with_changes(None, rules_of_simulation(config))
    words, beside = free.text_columns, free.covariate_names
    with marked_public():  # The run has named these rows, so errors about them may be sent to the server.
        number = int(node["num-partitions"]) * _clients_per_node(context)
        shards = _rows_of_client(spec, str(config["partition"]), number, wanted, words, beside)
        own = shards(int(node["partition-id"]))
    batch = int(config.get("batch", 0))
    if batch:
        return Stream(own, batch=batch, who=f"client {node['partition-id']}")
    return own


def _settings_of_run(context: Context) -> dict[str, Any]:
    """Return the settings of the run. Errors about them are public, because they come from the user of the run."""
    with marked_public():
        return settings_of(context.run_config)


def _own_rows(node: Mapping[str, Any]) -> str | None:
    """Return the source of the node's own rows: its `data`, its `data-path` (as in other Flower apps), or None."""
    data, path = node.get("data"), node.get("data-path")
    with marked_private():
        if data is not None and path is not None and data != path:
            raise ConfigError(
                f"The node-config names its rows twice: data={str(data)!r} and data-path={str(path)!r}. Remove one of "
                "them."
            )
    if data is None and path is None:
        return None
    return str(path if data is None else data)


def _check_shared_rows(node: Mapping[str, Any], spec: str) -> None:
    """Refuse to use the run's rows on a node, unless it is simulated or the rows are drawn from a seed."""
    parts = {"partition-id", "num-partitions"} <= node.keys()
    if not parts or not (_in_simulation() or sources.is_random(spec)):
        raise ConfigError(
            "This node has no data. Start the SuperNode with --node-config 'data=\"/path/x.npy\"'. Only if the run "
            "draws its rows from a seed, set partition-id and num-partitions instead."
        )
    if not _in_simulation():
        if guarded := [rule for rule in _GUARDED if node.get(rule)]:
            raise ConfigError(
                f"The node-config of this node has {guarded[0]}, but no data. Add the node's own data, because whoever "
                "sends the run knows all random rows that the node would draw."
            )
        if (size := sources.largest_drawn_size(spec)) > _LARGEST:
            raise ConfigError(
                f"A node draws at most {_LARGEST:,} random entries (n d for the rows, and d d for each client), but "
                f"this run asks for {size:,}. Ask for fewer rows or columns."
            )
        logging.getLogger("flwr").warning(
            "This node has no data of its own: it draws the rows of client %s of %s.", node["partition-id"], spec
        )


def _in_simulation() -> bool:
    """Return whether this is a virtual node of Flower's simulation engine, which runs in a Ray actor."""
    ray: Any = sys.modules.get("ray")
    if ray is None or "flwr.simulation.ray_transport.ray_actor" not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


def _clients_per_node(context: Context) -> int:
    """Return the number of clients of a node: the number in the run-config for a virtual node, else 1."""
    given = int(_settings_of_run(context)[EACH])
    if given > 1 and _in_simulation() and _own_rows(context.node_config) is None:
        return given
    return 1


def _hosted_clients(context: Context) -> range:
    """Return the numbers of the clients that a node hosts, or an empty range if the node is itself a client."""
    each = _clients_per_node(context)
    if each > 1:
        first = int(context.node_config["partition-id"]) * each
        return range(first, first + each)
    return range(0)


@lru_cache(maxsize=1)
def _rows_of_client(
    data: str, deal: str, clients: int, wanted: str | None, words: tuple[str, ...], covariates: tuple[str, ...]
) -> Callable[[int], Any]:
    """Return a function that takes a client's number and returns the client's rows.

    The data are read once in each process, because a worker of a simulation runs many nodes.
    """
    needed, names = partition.label_column(deal), columns.split_names(wanted)
    beside = () if needed is None else (needed,)
    if names is not None:
        names = tuple(dict.fromkeys([*names, *covariates]))
    every = tuple(dict.fromkeys([*words, *sources.words_among(data, covariates)]))
    table = sources.table(data, beside=beside, columns=names, words=every)
    parts = partition.make_parts(deal, len(table), clients, beside=table.beside)
    sites = partition.site_names(deal, table.beside, parts)
    return lambda i: table.take(parts[i], sites[i]).bare()


@lru_cache(maxsize=1)
def _tables_of_parties(data: str, ids: str | None, clients: int) -> list[Any]:
    """Return the tables of clients with different columns of the same people. They are read once in each process."""
    return sources.parties(data, ids=ids, clients=clients)


def _rules_of_node(context: Context) -> Rules:
    """Return the rules in the node-config. For a node that uses the run's rows, add the rules of a simulation."""
    with marked_private():
        given = Rules.of_node_config(context.node_config)
    if _own_rows(context.node_config) is not None:
        return given
    return Rules.with_changes(given, rules_of_simulation(_settings_of_run(context)))


client_app = clients.client_app(_load_rows, rules=_rules_of_node, hosts=_hosted_clients)
