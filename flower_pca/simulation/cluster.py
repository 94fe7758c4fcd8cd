"""Functions that connect to a Ray cluster or start one, and run a function on each of its machines."""

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

_TIMEOUT: Final = 10.0  # the number of seconds to wait for the answer of a cluster
# The bytes that open an HTTP/2 connection, followed by an empty SETTINGS frame
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS: Final = 4  # the type of a SETTINGS frame, with which an HTTP/2 server answers
_ADDRESS: Final = re.compile(r"(?:ray://)?\[?(?P<host>[^\[\]/]+?)\]?:(?P<port>\d+)")

# Flower passes on Ray's exceptions only as text, so they are recognized by patterns.
_DIED: Final = re.compile(
    r"ray\.exceptions\."
    r"(ActorDied|ActorUnavailable|RayActor|WorkerCrashed|NodeDied|OutOfMemory)Error"
)
_ACTOR: Final = re.compile(r"\b[Aa]ctor ([0-9a-f]{8,})\b")
_ABOUT: Final = re.compile(r"\b(actor_id|pid|ip): ?([0-9a-fA-F.:]+)")


@contextlib.contextmanager
def ray_session(engine: Ray) -> Iterator[None]:
    """Provide a session of Ray: the session of this process, or else a session with the named cluster or a new one."""
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
            raise _no_cluster_error(address, str(error).partition(". ")[0]) from error
    try:
        yield
    finally:
        ray.shutdown()  # Flower's engine also shuts Ray down when it ends.


def require_cluster(address: str) -> None:
    """Raise ConfigError if no cluster answers at the address. Without this check, Ray would wait for minutes."""
    found = _ADDRESS.fullmatch(address)
    if found is None:  # Ray resolves other addresses, such as "auto", on this machine.
        return
    try:
        with socket.create_connection((found["host"], int(found["port"])), timeout=_TIMEOUT) as line:
            # With TLS, a cluster does not answer a plain message, so the check is only that the port is open.
            if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
                line.sendall(_HELLO)
                # The header of an HTTP/2 frame has nine bytes, of which the fourth is the type of the frame.
                answer = line.recv(9)
                if len(answer) < 4 or answer[3] != _SETTINGS:
                    raise OSError("another program answers at this address")
    except (OSError, OverflowError) as error:
        raise _no_cluster_error(address, str(error)) from error


def _no_cluster_error(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"No Ray cluster can be reached at {address} ({why}). Start one with ray start --head, or leave address out."
    )


def actor_count(engine: Ray) -> int:
    """Return the number of clients that can compute at the same time."""
    import ray

    found = ray.cluster_resources().get("CPU", 1.0)  # type: ignore[no-untyped-call]
    return max(1, int(found / engine.num_cpus_per_client))


def require_alive(reason: str | None) -> None:
    """Raise NotEnoughNodes, with a description of the worker, if `reason` reports that a worker of Ray has died.

    Without this check, Flower would continue to send messages to this worker, which would fail immediately.
    """
    if reason and _DIED.search(reason):
        raise NotEnoughNodes(
            f"A worker of Ray has died ({_describe_worker(reason)}), possibly because it lacked memory. Lower "
            "clients_per_node, or raise num_cpus_per_client."
        )


def _describe_worker(reason: str) -> str:
    """Return a text with the actor of a dead worker, and with its process and address if `reason` contains them."""
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
    """Return Ray's descriptions of all running machines of the cluster."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def call_on_each_machine(function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Call a function on each machine, and return the results by the machine's name and the start of its Ray id.

    The function must be defined at the top level of a module.

    Raises
    ------
    NotEnoughNodes
        If a machine has left the cluster during the call.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    tasks = {}
    for node in machines():
        # The task requests no cores, because the workers of Flower's engine may use all of them.
        task = ray.remote(function).options(
            num_cpus=0,
            # The task must run on this machine, because its result is about this machine.
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        tasks[f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})"] = task.remote(*args)
    # If a machine has left the cluster, the type of Ray's error depends on when Ray notices it.
    gone = ray.exceptions
    try:
        return dict(zip(tasks, ray.get(list(tasks.values())), strict=True))
    except (gone.TaskUnschedulableError, gone.NodeDiedError, gone.WorkerCrashedError, gone.ObjectLostError) as error:
        raise NotEnoughNodes(
            f"A machine has left the Ray cluster during the run ({type(error).__name__}). Start the run again with "
            "the remaining machines."
        ) from error
