"""Simulations with the command `flwr run`, for versions of Flower without the function run_simulation.

For each run, a SuperLink in simulation mode is started, at a free port of this machine and with its own
home folder. The SuperLink gets an app of one file, whose components are the objects `server_app` and
`client_app` of this module. They read the server function and the ClientApp from a file in the folder of
the simulation, and the server writes its result to this folder. Other users can neither read nor write
the folder.

While a simulation runs, other users of this machine can connect to the port of the SuperLink. The same
holds for the local SuperLink that `flwr run` starts by default.
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

_TASK, _RETURNED = "orders.pickle", "returned.pickle"  # the files with the input and the result of the server
_FOLDER: Final = "folder"  # the key in the run-config for the path of the folder with these files
_LINK: Final = "here"  # the name of the SuperLink in Flower's configuration
_START_TIME, _STOP_TIME = 120.0, 10.0  # the seconds in which the SuperLink must start, and stop after a signal
_POLL: Final = 0.1  # the number of seconds between two checks for the result
_POLLS_PER_STATUS: Final = 300  # the number of checks after which a command asks Flower for the status of the run
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


def run_by_command(
    serve: Callable[[Any], Any], client: ClientApp, nodes: int, cores: int, folder: Path, cluster: str
) -> Any:
    """Call `serve` with a grid of virtual nodes, and return its result or raise its error.

    Parameters
    ----------
    serve : callable
        The function of the server, which is called in another process.
    client : ClientApp
        The ClientApp of all nodes, which runs in other processes.
    nodes : int
        The number of virtual nodes.
    cores : int
        The number of cores that each node needs.
    folder : path
        A folder that only this user can read and write.
    cluster : str
        The address of the Ray cluster.
    """
    from ray import cloudpickle

    (folder / _TASK).write_bytes(cloudpickle.dumps((serve, client)))  # type: ignore[no-untyped-call]
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    with _superlink(folder, cluster) as environment:
        federation = f"num-supernodes={nodes} client-resources-num-cpus={cores}"
        words = ["run", str(app), _LINK, "--run-config", f'{_FOLDER}="{folder}"', "--federation-config", federation]
        started = json.loads(_run_flwr([*words, "--format", "json"], environment))
        returned = folder / _RETURNED
        looks = 0
        while not returned.exists():
            looks += 1
            if (
                looks % _POLLS_PER_STATUS == 0
                and (end := _final_status(started["run-id"], environment))
                and not returned.exists()
            ):
                raise RuntimeError(
                    f"The simulation ended without a result ({end}). To run it without Flower, use "
                    'backend="in_process".'
                )
            time.sleep(_POLL)
    found, error = cloudpickle.loads(returned.read_bytes())
    if error is not None:
        raise error
    return found


@contextlib.contextmanager
def _superlink(folder: Path, cluster: str) -> Iterator[dict[str, str]]:
    """Run a SuperLink for simulations, and yield environment variables that let the command `flwr` find it."""
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
        # Flower finds its own commands on PATH, and these commands import this package.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH", "")])),
    }
    command = [
        _path_of_command("flower-superlink"),
        "--simulation",
        "--insecure",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = folder / "superlink.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
        )
        try:
            _wait_until_reachable(process, port, log)
            yield environment
        finally:
            _stop_superlink(process)


def _wait_until_reachable(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the SuperLink accepts connections, or raise RuntimeError if it does not."""
    until = time.monotonic() + _START_TIME
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_POLL)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise RuntimeError(
        f"Flower's SuperLink did not start within {_START_TIME:g} s: {''.join(last) or 'its log is empty'}. To run the "
        'simulation without Flower, use backend="in_process".'
    )


def _stop_superlink(process: subprocess.Popen[bytes]) -> None:
    """Stop the SuperLink and the processes that it has started, first with SIGTERM and then with SIGKILL."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIME)


def _run_flwr(words: list[str], environment: dict[str, str]) -> str:
    """Run Flower's command `flwr`, and return its output."""
    done = subprocess.run(
        [_path_of_command("flwr"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(
            f'`flwr {words[0]}` has failed. To run the simulation without Flower, use backend="in_process". The output '
            f"of the command ends with: {(done.stderr or done.stdout).strip()[-500:]}"
        )
    return done.stdout


def _final_status(identity: str, environment: dict[str, str]) -> str:
    """Return Flower's status of a run that has ended, or an empty string if the run has not ended."""
    (row,) = json.loads(_run_flwr(["ls", _LINK, "--run-id", identity, "--format", "json"], environment))["runs"]
    if not str(row["status"]).startswith("finished"):
        return ""
    return f"{row['status']} {row['status-details']}".strip()


def _path_of_command(name: str) -> str:
    """Return the path of a command in this Python environment, or its name if the environment does not have it.

    The environment does not need to be on PATH.
    """
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# The functions below run in the processes that Flower starts.


@lru_cache(maxsize=1)
def _read_task(folder: str) -> tuple[Callable[[Any], Any], ClientApp]:
    from ray import cloudpickle

    orders: tuple[Callable[[Any], Any], ClientApp] = cloudpickle.loads((Path(folder) / _TASK).read_bytes())
    return orders


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Call the function of the server, and write its result or its error to a file."""
    from ray import cloudpickle

    folder = str(context.run_config[_FOLDER])
    found, raised = None, None
    try:
        found = _read_task(folder)[0](grid)
    except Exception as error:
        raised = error
    place = Path(folder) / _RETURNED
    written = place.with_suffix(".part")
    written.write_bytes(cloudpickle.dumps((found, raised)))  # type: ignore[no-untyped-call]
    written.replace(place)  # The file is created in one step, so that its reader never sees a part of it.


class _StoredClientApp(ClientApp):
    """A ClientApp that delegates to the ClientApp in the file of the simulation."""

    def __call__(self, message: Any, context: Context) -> Any:
        """Return the answer of the stored ClientApp."""
        return _read_task(str(context.run_config[_FOLDER]))[1](message, context)


client_app = _StoredClientApp()
