"""A real federation for tests: a SuperLink, SuperNodes and runs of a small app, over Flower's own transport."""

import atexit
import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from forks import Forks
from local_superlink import free_ports

from flower_pca import PCAResult

BIN = Path(sys.executable).parent
MARK = "FLOWER_PCA_FEDERATION"
SHORT, LONG = 180.0, 600.0  # seconds: of a start or a stop; of a run, or of what stands still meanwhile
_NUMBERS = itertools.count()

PROJECT = """
[project]
name = "trial"
version = "1.0.0"
description = "PCA with the folders and files named by the run and the nodes"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "trial.server_app:app"
clientapp = "trial.client_app:app"

[tool.flwr.app.config]
folder = ""
"""


def wait(what, ready, *, seconds=SHORT, pause=0.05):
    """The first true value of ready(); TimeoutError after so many seconds."""
    until = time.monotonic() + seconds
    while not (value := ready()):
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not happen within {seconds:g} s")
        time.sleep(pause)
    return value


class SuperNode:
    """A SuperNode; its rows are `partition`'s."""

    def __init__(self, federation, partition, process, log, config):
        self.partition, self._federation, self.process, self.log = partition, federation, process, log
        self.config = config

    @property
    def id(self):
        """Flower's number of the node, once it is connected; None before."""
        found = re.findall(r"SuperNode ID: (\d+)", self.log.read_text())
        return int(found[-1]) if found else None

    def connected(self):
        def ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"the SuperNode of partition {self.partition} has ended:\n{self.log.read_text()}")
            return self.id

        wait(f"the connection of partition {self.partition}", ready)
        return self

    def terminate(self):
        """SIGTERM: it signs off."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SHORT)

    def kill(self):
        """kill -9 of the node and of all that it has started: it is gone without a word."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SHORT)
        wait("the end of all that the node had started", lambda: not self.processes())

    def processes(self):
        """All that write into its log: those of Flower, and of its ClientApp."""
        return self._federation.writers(self.log)

    def stand_still(self):
        """SIGSTOP of all of the node's processes."""
        for pid in self.processes():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self):
        """SIGCONT of them."""
        for pid in self.processes():
            os.kill(pid, signal.SIGCONT)

    @property
    def stall(self):
        """While this file is there, the node stops in the middle of its next message; `reached` tells."""
        return self._federation.folder / f"{self.partition}.stall"

    @property
    def dies(self):
        """While this file is there, the process of the node's ClientApp ends in every message after so many."""
        return self.stall.with_suffix(".dies")

    @property
    def table(self):
        """While this file is there, the node has its rows in place of its own, with the levels of their words."""
        return self.stall.with_suffix(".csv")

    @property
    def own(self):
        """While this folder and the table are there, the node leaves its own results in it, as with output-dir."""
        return self.stall.with_suffix(".own")

    @property
    def memory(self):
        """While this folder is there, the node keeps in it what it remembers, as with memory-dir."""
        return self.stall.with_suffix(".memory")

    def stalled(self):
        wait(f"a message at partition {self.partition}", self.stall.with_suffix(".reached").exists)


class RunThere:
    """A run of the app on the SuperLink."""

    def __init__(self, federation, identity, folder):
        self._federation, self.id, self.folder = federation, identity, folder

    def held(self):
        """Wait until the server stands still after its message number `hold`."""
        self._await("held")

    def go_on(self):
        """Let it go on."""
        (self.folder / "go").touch()

    def result(self, kind=PCAResult):
        """The result, of this class; waits for it."""
        self._await("result.npz")
        return kind.load(self.folder / "result.npz")

    def seconds(self):
        """What each round of the plain app took; waits for it."""
        self._await("seconds.json")
        return json.loads((self.folder / "seconds.json").read_text())

    def kill(self):
        """kill -9 of the ServerApp's process."""
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)

    def status(self):
        """What `flwr ls` says of it, such as "finished:completed"."""
        (run,) = json.loads(self._federation.flwr("ls", "trial", "--run-id", str(self.id), "--format", "json"))["runs"]
        return run["status"]

    def _await(self, name):
        looks = 0

        def ready():
            nonlocal looks
            looks += 1
            if (self.folder / "error").exists() and name != "error":
                raise RuntimeError((self.folder / "error").read_text())
            if looks % 200 == 0 and (status := self.status()).startswith("finished") and not ended():
                raise RuntimeError(f"run {self.id} has ended, {status}, without {name}")
            return ended()

        ended = (self.folder / name).exists
        wait(f"{name} of run {self.id}", ready, seconds=LONG)


class Federation:
    """A SuperLink of its own home, ports and app; a context manager that leaves no process behind.

    Args:
        folder: A folder for everything.
        shards: The rows, one array per partition.
        keys: Certificates and keys (flower_pca.keys); insecure without.
        superlink: Further words for the SuperLink's command line.
        environment: Variables for all processes, beside those that they have anyway.
        forked: What Flower's commands have imported beforehand that are forked from one process (forks.py); None to
            start them anew.
        anew: Those of Flower's commands that are started anew all the same.
    """

    def __init__(self, folder, shards, *, keys=None, superlink=(), environment=None, forked=None, anew=()):
        self.folder, self.shards, self.keys, self.words = Path(folder), shards, keys, superlink
        self._bin, self._forked, self._forks, self._anew = BIN, forked, None, anew
        self.nodes, self._processes, self._runs, self.superlink = [], [], 0, None
        self.door = None  # the port at which nodes reach the SuperLink: its own port, unless a test sets another
        self.mark = f"{os.getpid()}-{next(_NUMBERS)}"
        self.environment = {
            **os.environ,
            MARK: self.mark,
            "PATH": _first(BIN, os.environ.get("PATH", "")),  # a SuperNode starts its helpers by name
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PYTHONUNBUFFERED": "1",
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            **(environment or {}),
        }

    def __enter__(self):
        atexit.register(self.close)
        try:
            self._write()
            if self._forked is not None:
                self._forks = Forks(self.environment, self._forked)
                self._bin = self._forks.bin
                for name in self._anew:  # The program is then found in the folder of the environment.
                    (self._bin / name).unlink()
                self.environment["PATH"] = _first(self._bin, self.environment["PATH"])
            self._start_superlink()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, traceback):
        self.close()

    def close(self):
        """End all processes: kindly, then by force, then those that left their group."""
        atexit.unregister(self.close)
        for process in reversed(self._processes):
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + 5
        while time.monotonic() < until and any(process.poll() is None for process in self._processes):
            time.sleep(0.05)
        for process in self._processes:
            _signal(process, signal.SIGKILL)
            process.wait(SHORT)
        if self._forks is not None:
            self._forks.close()
        for pid in self.strays():
            os.kill(pid, signal.SIGKILL)

    def strays(self):
        """The processes of this federation that still run, whoever their parent is."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in place.read_bytes().split(b"\0"):
                    found.append(int(place.parent.name))
            except OSError:  # gone, or another user's
                continue
        return [pid for pid in found if pid != os.getpid()]

    def writers(self, log):
        """Those of them that write into this file."""
        return [pid for pid in self.strays() if _written(pid) == log]

    def fail_power_of_superlink(self):
        """kill -9 of the SuperLink and of all that it has started, a ServerApp too; then it is started again."""
        os.killpg(self.superlink.pid, signal.SIGKILL)
        self.superlink.wait(SHORT)
        log = self.folder / "superlink.log"
        wait("the end of all that the SuperLink had started", lambda: not self.writers(log))  # Its port is free then.
        self._start_superlink()

    def start_node(self, partition, *, key=None, options=(), **config):
        """Start a SuperNode; `key` is its private key, of those of `keys` the partition's own if left out.

        `options` are further words for its command line.
        """
        config = {"partition-id": partition, "data": str(self._shard(partition)), **config}
        config["stall"] = str(self.folder / f"{partition}.stall")
        safe = ["--insecure"]
        if self.keys is not None:
            key = self.keys.nodes[partition] if key is None else key
            safe = ["--root-certificates", str(self.keys.ca), "--auth-supernode-private-key", str(key)]
        (port,) = free_ports(1)
        given = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        superlink = f"127.0.0.1:{self.door or self.port}"
        words = ["flower-supernode", *safe, "--superlink", superlink, "--port", str(port), "--node-config", given]
        words += options
        log = self.folder / f"node-{partition}-{len(self._processes)}.log"
        node = SuperNode(self, partition, self._start(words, log), log, config)
        self.nodes.append(node)
        return node

    def present(self, *partitions):
        """Start the nodes that are missing, sign off those that are not named, and wait until that is so.

        No node stalls in its next message, even if a test that failed before had asked for it.
        """
        for left in self.folder.glob("*.stall"):
            left.unlink()
        for node in self.nodes:
            if node.process.poll() is None and node.partition not in partitions:
                node.terminate()
        for partition in partitions:
            if self.node(partition) is None:
                self.start_node(partition)
        for partition in partitions:
            self.node(partition).connected()

    def node(self, partition):
        """The node of a partition that runs; None if there is none."""
        return next((n for n in self.nodes if n.partition == partition and n.process.poll() is None), None)

    def register(self, public):
        """Admit the node of this public key."""
        self.flwr("supernode", "register", str(public), "trial")

    def is_offline(self, node):
        """Whether the SuperLink takes a node for gone."""
        said = json.loads(self.flwr("supernode", "list", "trial", "--format", "json"))
        (status,) = (listed["status"] for listed in said["nodes"] if listed["node-id"] == str(node.id))
        return status == "offline"

    @property
    def app(self):
        """The folder of the app."""
        return self.folder / "app"

    def run(self, strategy, *, hold=None, batch=None, app=None, **parameters):
        """Start a run of the app: a strategy of flower_pca with these parameters; the barest app if it is None.

        After its message number `hold` (from 1) the server stands still until `Run.go_on`. With `batch` the nodes' rows
        are streams of so many at a step. `app` is another name of the app, as for `flwr run`.
        """
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        folder.mkdir()
        orders = {"strategy": strategy, "hold": hold, "batch": batch, "parameters": parameters}
        (folder / "orders.json").write_text(json.dumps(orders))
        config = f'folder="{folder}"'
        said = json.loads(self.flwr("run", app or str(self.app), "trial", "--run-config", config, "--format", "json"))
        if not said["success"]:
            raise RuntimeError(f"flwr run failed: {said}")
        return RunThere(self, said["run-id"], folder)

    def flwr(self, *words, seconds=SHORT):
        """What Flower's command line prints."""
        return self._call([str(self._bin / "flwr"), *words], seconds)

    def logs(self):
        """Everything that SuperLink, ServerApps and nodes have said."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"---- {file.name}\n{file.read_text(errors='replace')[-6000:]}" for file in files)

    def _write(self):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(__file__).parent / "deployment/trial", self.app / "trial", ignore=ignored)
        (self.app / "pyproject.toml").write_text(PROJECT)
        for partition, rows in enumerate(self.shards):
            np.save(self._shard(partition), rows)
        home = self.folder / "home"
        home.mkdir()
        (self.port,) = free_ports(1)
        safe = "insecure = true" if self.keys is None else f'root-certificates = "{self.keys.ca}"'
        (home / "config.toml").write_text(f'[superlink.trial]\naddress = "127.0.0.1:{self.port}"\n{safe}\n')

    def _start_superlink(self):
        safe = ["--insecure"]
        if self.keys is not None:
            safe = ["--ssl-ca-certfile", str(self.keys.ca), "--ssl-certfile", str(self.keys.certificate)]
            safe += ["--ssl-keyfile", str(self.keys.key), "--enable-supernode-auth"]
        log = self.folder / "superlink.log"
        words = ["flower-superlink", *safe, "--host", "127.0.0.1", "--port", str(self.port), *self.words]
        process = self.superlink = self._start(words, log)

        def answers():
            if process.poll() is not None:
                raise RuntimeError(f"the SuperLink has ended:\n{log.read_text()}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait("the start of the SuperLink", answers)

    def _start(self, words, log):
        command = [shutil.which(words[0], path=self.environment["PATH"]), *words[1:]]
        with log.open("a") as file:
            file.write(shlex.join(words) + "\n")
            file.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _call(self, words, seconds):
        done = subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{shlex.join(words)} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _shard(self, partition):
        return self.folder / f"shard-{partition}.npy"


def _first(folder, path):
    return f"{folder}{os.pathsep}{path}"


def _written(pid):
    """What a process writes to; None where it has ended."""
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/1"))
    except OSError:
        return None


def _signal(process, number):
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
