"""Flower's local SuperLink for tests: a home and ports of its own, and no process is left when the tests end."""

import importlib.util
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest
from forks import Forks

needed = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None or not Path("/proc/self/environ").exists(),
    reason="it takes Ray (the extra simulation), and a /proc in which the processes of a run are found",
)
ROOT = Path(__file__).parents[1]
LONG = 600.0  # seconds for one run

# below those of callers, above those of Ray's workers
_FIRST, _LAST = 20_000, 32_000
_PORTS = itertools.cycle(sorted(range(_FIRST, _LAST), key=lambda port: (port - 97 * os.getpid()) % (_LAST - _FIRST)))

Run = namedtuple("Run", "log status details")


def end_all(home, *, kindly=True):
    """End every process that was started with this FLWR_HOME, by its id, until there is none."""
    mark = f"FLWR_HOME={home}\0".encode()
    for how in [signal.SIGTERM] * 20 * kindly + [signal.SIGKILL] * 200:
        found = []
        for place in Path("/proc").iterdir():
            try:
                if place.name.isdigit() and int(place.name) != os.getpid() and mark in (place / "environ").read_bytes():
                    found.append(int(place.name))
                    os.kill(found[-1], how)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # The process has ended, or belongs to another user.
        if not found:
            return
        time.sleep(0.25)
    raise RuntimeError(f"processes {found} are still there")


class LocalSuperLink:
    """What `flwr run` needs, and what it leaves behind; its simulations run on the Ray cluster at an address."""

    def __init__(self, folder, cluster):
        self.folder, self._home = folder, folder / "flwr-home"
        http, control = free_ports(2)
        self._environment = {
            **os.environ,
            "FLWR_HOME": str(self._home),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
            "FLWR_LOCAL_CONTROL_API_PORT": str(control),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_ADDRESS": cluster,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        self._forks = Forks(self._environment)
        self._environment["PATH"] = os.pathsep.join([str(self._forks.bin), os.environ["PATH"]])
        # Another process does the cleaning: it finds its input closed even when this one is killed.
        self._cleaner = subprocess.Popen(
            [sys.executable, __file__, str(self._home)], stdin=subprocess.PIPE, start_new_session=True
        )

    def run(self, app, nodes, config=""):
        """`flwr run` with so many nodes, to its end."""
        federation = f"num-supernodes={nodes} client-resources-num-cpus=1"
        options = ["--stream", "--federation-config", federation, *(["--run-config", config] if config else [])]
        for _ in range(3):  # Flower waits 15 s for its daemon, which is little on a busy machine
            log = self._flwr("run", str(app), *options)
            if "Failed to start local SuperLink" not in log:
                break
        found = re.search(r"Successfully started run (\d+)", log)
        assert found, log
        (row,) = json.loads(self._flwr("ls", "--run-id", found[1], "--format", "json"))["runs"]
        return Run(log, row["status"], row["status-details"])

    def close(self):
        """End every process."""
        self._cleaner.communicate(timeout=300)
        self._forks.close()
        assert self._cleaner.returncode == 0

    def _flwr(self, *arguments):
        return subprocess.run(
            [self._forks.bin / "flwr", *arguments],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONG,
            check=False,
        ).stdout


def free_ports(n):
    """So many ports of this machine that nobody listens on, and that it gives to nobody who calls another one.

    Every process looks from another port on, and goes on from there, so that two do not find the same.
    """
    found = []
    for port in _PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                found.append(port)
        if len(found) == n:
            return found
    raise AssertionError("the ports do not end")


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
