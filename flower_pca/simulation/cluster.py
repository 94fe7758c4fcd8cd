"""The machines of a Ray cluster: how to reach or start it, and how to run a function on each machine."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from flower_pca.base.errors import ConfigError, NotEnoughNodes
from flower_pca.simulation.backend import Ray

_PATIENCE: Final = 10.0  # seconds for a cluster to answer
# the beginning of an HTTP/2 connection, with its settings
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS: Final = 4  # the type of the frame that answers it
_ADDRESS: Final = re.compile(r"(?:ray://)?\[?(?P<host>[^\[\]/]+?)\]?:(?P<port>\d+)")

# Flower passes on the exceptions of Ray as text only.
_DIED: Final = re.compile(
    r"ray\.exceptions\."
    r"(ActorDied|ActorUnavailable|RayActor|WorkerCrashed|NodeDied|OutOfMemory)Error"
)
_ACTOR: Final = re.compile(r"\b[Aa]ctor ([0-9a-f]{8,})\b")
_ABOUT: Final = re.compile(r"\b(actor_id|pid|ip): ?([0-9a-fA-F.:]+)")


@contextlib.contextmanager
def session(engine: Ray) -> Iterator[None]:
    """Run within a session of Ray: of this process, of the cluster that is named, or a new one."""
    import ray

    if not ray.is_initialized():
        address = engine.address or os.environ.get("RAY_ADDRESS")
        if address is not None:
            require_cluster(address)
        pythonpath = os.pathsep.join([*sys.path, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"env_vars": {"PYTHONPATH": pythonpath}}
        try:
            ray.init(address=engine.address, include_dashboard=False, runtime_env=environment)
        except (ValueError, ConnectionError) as error:
            if address is None:
                raise
            raise _no_cluster(address, str(error).partition(". ")[0]) from error
    try:
        yield
    finally:
        ray.shutdown()  # Flower's engine does the same when it ends.


def require_cluster(address: str) -> None:
    """Raise a ConfigError if no cluster answers at the address, for which Ray itself would wait for minutes."""
    found = _ADDRESS.fullmatch(address)
    if found is None:  # addresses such as "auto", which Ray looks up on this machine
        return
    try:
        with socket.create_connection((found["host"], int(found["port"])), timeout=_PATIENCE) as line:
            # Under TLS, nothing answers a plain message, so check only that the port is open.
            if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
                line.sendall(_HELLO)
                # The header of an HTTP/2 frame has nine bytes; the fourth is the type of the frame.
                answer = line.recv(9)
                if len(answer) < 4 or answer[3] != _SETTINGS:
                    raise OSError("something else answers there")
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"No Ray cluster can be reached at {address} ({why}). Start one with ray start --head, or leave address out."
    )


def actors(engine: Ray) -> int:
    """Return how many clients can be at work at the same time."""
    import ray

    found = ray.cluster_resources().get("CPU", 1.0)  # type: ignore[no-untyped-call]
    return max(1, int(found / engine.num_cpus_per_client))


def require_alive(reason: str | None) -> None:
    """Raise NotEnoughNodes, naming the worker, if the error text says that a worker of Ray has died.

    Otherwise Flower would go on to send messages to this worker, which would fail at once.
    """
    if reason and _DIED.search(reason):
        raise NotEnoughNodes(
            f"A worker of Ray has died ({_worker(reason)}), possibly because it lacked memory. Lower "
            "clients_per_node, or raise num_cpus_per_client."
        )


def _worker(reason: str) -> str:
    """Return what the error text tells about a worker: its actor, process and address, as far as they are known."""
    known = dict(_ABOUT.findall(reason))
    named = _ACTOR.search(reason)
    if "actor_id" not in known and named is not None:
        known["actor_id"] = named[1]
    words = f"actor {known.get('actor_id', 'unknown')}"
    if "pid" in known:
        words += f", process {known['pid']}"
    if "ip" in known:
        words += f" on {known['ip']}"
    return words


def machines() -> list[dict[str, Any]]:
    """Return the machines of the cluster that are alive, as Ray describes them."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def everywhere(function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Call a module's function on each machine, and return the results by the machine's name and Ray's number of it.

    Raises
    ------
    NotEnoughNodes
        If a machine has left the cluster meanwhile.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    tasks = {}
    for node in machines():
        # The workers of Flower's engine may use all cores, so ask for none.
        task = ray.remote(function).options(
            num_cpus=0,
            # On another machine, the result would be about that machine.
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        tasks[f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})"] = task.remote(*args)
    # Ray raises different errors for a machine that has left, depending on when it notices.
    gone = ray.exceptions
    try:
        return dict(zip(tasks, ray.get(list(tasks.values())), strict=True))
    except (gone.TaskUnschedulableError, gone.NodeDiedError, gone.WorkerCrashedError, gone.ObjectLostError) as error:
        raise NotEnoughNodes(
            f"A machine has left the Ray cluster during the run ({type(error).__name__}). Start the run again with "
            "the remaining machines."
        ) from error
