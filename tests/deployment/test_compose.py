"""docker/compose.yaml without containers: its services' own words as processes, by TLS; and a SuperLink that is killed.

Paths of a container become those of its volumes, and names of hosts this machine: nothing else is changed.
"""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from forks import Forks
from local_superlink import end_all, free_ports
from pages import ROOT, blocks, text

from flower_pca import PCAResult, keys, simulate

DOCKER = ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
NODES = [name for name in SERVICES if name.startswith("node-")]
PATIENCE = 600.0  # seconds to wait for an event
MEASURED = "node-0"  # Its processes are not forks, which would share memory.
MOST = 120.0  # MB of a node's ClientApp that are its own

processes = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="it finds the processes to end in /proc")


def dockerfile(name):
    """The instructions of a Dockerfile: a word and the rest, lines put together."""
    text = re.sub(r"\\\n\s*", "", (ROOT / name).read_text())
    return [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]


def dockerfile_of(name):
    """The Dockerfile of a service."""
    return dockerfile(SERVICES["superlink" if name == "run" else name]["build"]["dockerfile"])


def said_with(instructions, word):
    return [rest for first, rest in instructions if first == word]


class Containers:
    """The services as processes of an environment's programs."""

    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        self.port, *ports = free_ports(1 + len(NODES))
        self.ports = dict(zip(NODES, ports, strict=True))
        self.running = {}
        for line in said_with(dockerfile_of("run"), "COPY"):  # files of the image besides its environment
            source, target = line.split()[-2:]
            if target.startswith("/opt/app"):
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, folder / "run" / target.removeprefix("/opt/"))

    def here(self, name, word):
        """A word of a service's command on this machine."""
        volumes = [
            *SERVICES[name]["volumes"],
            *(["superlink:/var/lib/pca", "run/app:/opt/app"] if name == "run" else ()),
        ]
        for volume in volumes:
            source, target = volume.split(":")[:2]
            word = word.replace(target, str(self.folder / source))
        word = word.replace("superlink:8000", f"127.0.0.1:{self.port}").replace("--host=0.0.0.0", "--host=127.0.0.1")
        return word.replace("--port=8000", f"--port={self.port}")

    def home(self, name):
        return self.folder / name / "flwr"

    def start(self, name):
        instructions, service = dockerfile_of(name), SERVICES[name]
        programs = Path(sys.executable).parent if name == MEASURED else self.programs
        (program,) = service.get("entrypoint", [])[:1] or [yaml.safe_load(said_with(instructions, "ENTRYPOINT")[0])[0]]
        words = [program, *service.get("entrypoint", [])[1:], *service["command"]]
        words = [self.here(name, word) for word in words]
        words += [f"--port={self.ports[name]}"] if name in NODES else []  # Each container has its own port.
        given = dict(pair.split("=", 1) for pair in shlex.split(said_with(instructions, "ENV")[-1]))
        given |= {"HOME": str(self.folder / name), "FLWR_HOME": str(self.home(name))}
        given["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.home(name).mkdir(parents=True, exist_ok=True)
        log = (self.folder / f"{name}.log").open("ab")
        place = self.folder / name
        # variables such as those of BLAS
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLWR_")}
        process = subprocess.Popen(
            words if os.sep in words[0] else [str(programs / words[0]), *words[1:]],
            env={**kept, **given, "COLUMNS": "200", "NO_COLOR": "1"},
            cwd=place,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.running[name] = process
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def await_words(self, name, words, times=1):
        """Wait until a service has said something so many times."""
        self.until(lambda: len(re.findall(words, self.log(name))) >= times, f"{words!r} of {name}")

    def until(self, ready, what):
        end = time.monotonic() + PATIENCE
        while not ready():
            logs = "\n".join(self.log(name) for name in self.running)
            assert not any(process.poll() for process in self.running.values()), f"one has ended before {what}:\n{logs}"
            assert time.monotonic() < end, f"no {what}:\n{logs}"
            time.sleep(0.1)

    def own_megabytes(self, name, program):
        """Megabytes of memory of its own that a service's program has now; 0 where it does not run."""
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, TypeError):
                mine = f"FLWR_HOME={self.home(name)}\0".encode() in (place / "environ").read_bytes()
                if mine and program.encode() in (place / "cmdline").read_bytes():
                    return int(re.search(r"Anonymous: +(\d+) kB", (place / "smaps_rollup").read_text())[1]) / 1024
        return 0.0

    def end(self, name, *, kindly=True):
        """End all that a service has started."""
        end_all(self.home(name), kindly=kindly)
        self.running.pop(name).wait(180)

    def close(self):
        for name in list(self.running):
            self.end(name)


@pytest.fixture
def containers(tmp_path):
    with contextlib.closing(Forks(dict(os.environ))) as forks:
        made = prepared(tmp_path, forks.bin)
        yield made
        made.close()


def prepared(folder, programs):
    """The services, none of them started, with keys and rows where the compose file has them."""
    write_inputs(folder)
    return Containers(folder, programs)


def write_inputs(folder):
    """Keys and rows where the compose file has them."""
    keys.write_keys(folder / "keys", nodes=len(NODES), hosts=["superlink"])
    (folder / "data").mkdir()
    rng = np.random.default_rng(0)
    for i in range(len(NODES)):
        np.save(folder / f"data/rows-{i}.npy", rng.standard_normal((500, 20)) * 0.8 ** np.arange(20))


@processes
@pytest.mark.slow
@pytest.mark.xdist_group("compose")
def test_the_federation_of_the_compose_file_goes_on_where_its_superlink_was_killed(containers, tmp_path):
    containers.start("superlink")
    containers.await_words("superlink", "Uvicorn running")
    containers.start("run")
    containers.await_words("run", "registered successfully", len(NODES))  # Wait until the nodes are registered.
    for name in NODES:
        containers.start(name)
    checkpoint = tmp_path / "superlink/out/run.ckpt"
    containers.until(checkpoint.exists, "checkpoint")
    containers.end("superlink", kindly=False)  # as if power failed, and the ServerApp with it: no message follows
    containers.end("run")
    assert checkpoint.exists()

    containers.start("superlink")  # restart: always
    containers.await_words("superlink", "Uvicorn running", times=2)
    run, own = containers.start("run"), 0.0
    while run.poll() is None:
        own = max(own, containers.own_megabytes(MEASURED, "flwr-clientapp"))
        time.sleep(0.2)
    assert run.returncode == 0
    assert all(containers.running[name].poll() is None for name in NODES)
    assert 0.0 < own < MOST
    assert "finished:completed" in containers.log("run")
    assert "Continuing from" in containers.log("run")
    shards = [np.load(tmp_path / f"data/rows-{i}.npy") for i in range(len(NODES))]
    reference = simulate("auto(oversample='auto')", shards, n_components=3, answers="fixed")
    result = PCAResult.load(tmp_path / "superlink/out/result.npz")
    assert result.components_.tobytes() == reference.components_.tobytes()
    assert not checkpoint.exists()


@pytest.mark.parametrize("name", ["node", "server"])
def test_an_image_is_of_the_wheel_and_of_files_that_are_there(name):
    instructions = dockerfile(f"docker/{name}.Dockerfile")
    for line in said_with(instructions, "COPY"):
        if not line.startswith("--from"):
            assert all((ROOT / source).exists() for source in line.split()[:-1])
    (install,) = [line for line in said_with(instructions, "RUN") if "pip" in line]
    assert "pip wheel" in install
    assert install.endswith("--only-binary :all: /wheels/*.whl")  # Otherwise a small board would compile for hours.
    assert said_with(instructions, "ARG") == ["BASE=python:3.11-slim"]
    assert said_with(instructions, "FROM") == ["${BASE} AS build", "${BASE}"]
    assert said_with(instructions, "USER") == ["1000:1000"]


def build_context(folder):
    """What a build of an image gets of the repository: all that .dockerignore lets through."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    assert (rules[0], rules[-1]) == ("*", "**/__pycache__")
    for rule in rules[1:-1]:
        source, target = ROOT / rule.removeprefix("!"), folder / rule.removeprefix("!")
        assert rule.startswith("!")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node", "server"])
def test_the_wheel_can_be_made_of_what_an_image_copies(name, tmp_path):
    there, source = build_context(tmp_path / "context"), tmp_path / "src"
    source.mkdir()
    for line in said_with(dockerfile(f"docker/{name}.Dockerfile"), "COPY"):
        *given, target = line.split()
        if line.startswith("--from"):
            break  # The second image begins here. It has no source.
        for path in given:
            if (there / path).is_dir():
                shutil.copytree(there / path, source / target)
            else:
                shutil.copy(there / path, source / target)
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    made = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        files = {name for name in opened.namelist() if ".dist-info/" not in name}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "flower_pca").rglob("*.py")}
    assert files == package | {"flower_pca/py.typed"}


def test_what_the_page_does_with_containers_can_be_done():
    lines = "\n".join(blocks("docs/deployment.md", "sh")).splitlines()
    words = [line.split() for line in lines if "docker " in line]
    assert {command[1] for command in words} == {"compose", "build", "run"}
    for command in words:
        for option, given in itertools.pairwise(command):
            if option == "--file":
                assert said_with(dockerfile(given), "ENTRYPOINT") == ['["flower-supernode"]']
            if option == "cp":
                service, path = given.split(":")
                assert path.startswith(SERVICES[service]["volumes"][-1].split(":")[1])
            if (command[1], option) == ("compose", "--rm"):
                assert given in SERVICES
    assert "--host superlink" in text("docs/deployment.md")  # the name by which nodes reach the SuperLink


def test_the_services_are_restarted_and_have_what_their_words_name():
    for name, service in SERVICES.items():
        if name != "run":
            assert service["restart"] == "always"
        targets = [volume.split(":")[1] for volume in service["volumes"]]
        named = re.findall(r"/(?:etc|srv|var)/[\w./-]+", " ".join(service["command"] + service.get("entrypoint", [])))
        elsewhere = {"/var/lib/pca/out"} if name == "run" else set()  # at the SuperLink
        assert all(any(path.startswith(target) for target in targets) for path in {*named} - elsewhere)
    volumes = {v.split(":")[0] for s in SERVICES.values() for v in s["volumes"] if not v.startswith(".")}
    assert volumes == set(COMPOSE["volumes"])
