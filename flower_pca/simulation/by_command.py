"""Flower's simulation engine by the command `flwr run`, for versions of Flower without run_simulation.

The command starts a SuperLink in simulation mode for one run, at a free port of this machine and with
its own home folder. The SuperLink gets an app of one file, whose components are the two objects of this
module. They read what to run from a file in the folder of the simulation, which other users can neither
read nor write, and the server writes its result there.

While a simulation runs, other users of this machine can reach that port, as they can reach the local
SuperLink that `flwr run` starts itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

_ORDERS, _RETURNED = "orders.pickle", "returned.pickle"
_FOLDER: Final = "folder"  # the key of the run-config that names the folder of these files
_LINK: Final = "here"  # the name of the SuperLink in Flower's configuration
_BEGINNING, _ENDING = 120.0, 10.0  # seconds for the SuperLink to start, and to end after a signal
_LOOK: Final = 0.1  # seconds between two checks for the result
_LOOKS: Final = 300  # checks after which Flower is asked whether the run still goes on, which starts a process
_PROJECT: Final = f"""
[project]
name = "flower-pca-simulation"
version = "1.0.0"
description = "A simulation of flower_pca"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "flower-pca"

[tool.flwr.app.components]
serverapp = "{__name__}:server_app"
clientapp = "{__name__}:client_app"

[tool.flwr.app.config]
{_FOLDER} = ""
"""


def run(serve: Callable[[Any], Any], client: ClientApp, nodes: int, cores: int, folder: Path, cluster: str) -> Any:
    """Return what `serve` returns for a grid of `nodes` virtual nodes with this ClientApp, or raise its error.

    Parameters
    ----------
    serve : callable
        The server. It runs in another process.
    client : ClientApp
        The ClientApp of all nodes, likewise.
    nodes : int
        How many virtual nodes there are.
    cores : int
        How many cores each of them takes.
    folder : path
        A folder that only this user can read and write.
    cluster : str
        The address of the Ray cluster.
    """
    from ray import cloudpickle

    (folder / _ORDERS).write_bytes(cloudpickle.dumps((serve, client)))  # type: ignore[no-untyped-call]
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    with _superlink(folder, cluster) as environment:
        federation = f"num-supernodes={nodes} client-resources-num-cpus={cores}"
        words = ["run", str(app), _LINK, "--run-config", f'{_FOLDER}="{folder}"', "--federation-config", federation]
        started = json.loads(_flwr([*words, "--format", "json"], environment))
        returned = folder / _RETURNED
        looks = 0
        while not returned.exists():
            looks += 1
            if looks % _LOOKS == 0 and (end := _end(started["run-id"], environment)) and not returned.exists():
                raise RuntimeError(f"the simulation ended without a result: {end}")
            time.sleep(_LOOK)
    found, error = cloudpickle.loads(returned.read_bytes())
    if error is not None:
        raise error
    return found


@contextlib.contextmanager
def _superlink(folder: Path, cluster: str) -> Iterator[dict[str, str]]:
    """Run a SuperLink for simulations, and yield the environment in which Flower's command finds it."""
    home, port = folder / "home", _free_port()
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.{_LINK}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n', encoding="utf-8"
    )
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_ADDRESS": cluster,
        # Flower starts its own commands by name, and these import this package.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH", "")])),
    }
    command = [_command("flower-superlink"), "--simulation", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "superlink.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
        )
        try:
            _await(process, port, log)
            yield environment
        finally:
            _stop(process)


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the SuperLink can be reached."""
    until = time.monotonic() + _BEGINNING
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_LOOK)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise RuntimeError(f"Flower's SuperLink did not start within {_BEGINNING:g} s: {''.join(last)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the SuperLink and the processes it has started, by SIGTERM and then by SIGKILL."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING)


def _flwr(words: list[str], environment: dict[str, str]) -> str:
    """Run Flower's command, and return what it prints."""
    done = subprocess.run(
        [_command("flwr"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(f"`flwr {words[0]}` has failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _end(identity: str, environment: dict[str, str]) -> str:
    """Return how a run has ended, in Flower's words, or "" as long as it goes on."""
    (row,) = json.loads(_flwr(["ls", _LINK, "--run-id", identity, "--format", "json"], environment))["runs"]
    if not str(row["status"]).startswith("finished"):
        return ""
    return f"{row['status']} {row['status-details']}".strip()


def _command(name: str) -> str:
    """Return the path of Flower's command in this environment, which need not be on PATH, or else its name."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# The functions below run in the processes that Flower starts.


@lru_cache(maxsize=1)
def _orders(folder: str) -> tuple[Callable[[Any], Any], ClientApp]:
    from ray import cloudpickle

    orders: tuple[Callable[[Any], Any], ClientApp] = cloudpickle.loads((Path(folder) / _ORDERS).read_bytes())
    return orders


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the server, and write what it returns or raises to a file."""
    from ray import cloudpickle

    folder = str(context.run_config[_FOLDER])
    found, raised = None, None
    try:
        found = _orders(folder)[0](grid)
    except Exception as error:
        raised = error
    place = Path(folder) / _RETURNED
    written = place.with_suffix(".part")
    written.write_bytes(cloudpickle.dumps((found, raised)))  # type: ignore[no-untyped-call]
    written.replace(place)  # Replace the file in one step, so that nobody reads half of it.


class _AsOrdered(ClientApp):
    """The ClientApp that the file of the simulation holds."""

    def __call__(self, message: Any, context: Context) -> Any:
        """Return the answer of that ClientApp."""
        return _orders(str(context.run_config[_FOLDER]))[1](message, context)


client_app = _AsOrdered()
