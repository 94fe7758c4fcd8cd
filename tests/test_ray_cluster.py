"""Test clusters of several machines, as two Ray nodes with different temporary folders."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import deal, synthetic
from local_superlink import free_ports
from results import assert_same_bits, assert_same_own

from flower_pca import DP, ConfigError, NotEnoughNodes, Ray, Stream, simulate, track
from flower_pca.simulation.shards import PacksInStore

ray = pytest.importorskip("ray", reason="the extra `simulation` is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray and Flower warn about their own files and processes.
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
]

SIZES = (40, 25, 30, 12, 9)
# Settings with which a lost machine is noticed soon.
SOON = {"RAY_health_check_period_ms": "1500", "RAY_health_check_initial_delay_ms": "1500"}


def five() -> list[np.ndarray]:
    return deal(synthetic(sum(SIZES), 12, 0.7 ** np.arange(12), seed=5), SIZES)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kindly, or else by force."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


@contextlib.contextmanager
def machines() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a cluster of two Ray nodes with one core each, and the process that has started the second."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    head = ["--head", f"--port={address.partition(':')[2]}", "--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    memory = [f"--object-store-memory={100 * 2**20}"]
    with contextlib.ExitStack() as stack:
        for which, words in (("first", head), ("second", [f"--address={address}", "--node-ip-address=127.0.0.1"])):
            # Ray's sockets lie there, whose paths must be short.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=which, ignore_cleanup_errors=True)))
            environment = {**os.environ, **SOON, "TMPDIR": str(folder), "RAY_max_direct_call_object_size": str(2**20)}
            log = stack.enter_context(open(folder / "log.txt", "wb"))
            output: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
            process = subprocess.Popen([*start, *words, *memory], env=environment, **output)
            stack.callback(end, process)
            deadline = time.monotonic() + 300
            while b"Ray runtime started" not in (folder / "log.txt").read_bytes():
                assert time.monotonic() < deadline, (folder / "log.txt").read_text()
                time.sleep(0.2)
        yield address, process


@pytest.fixture(scope="module")
def both_machines() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Of all tests: the one that ends the second machine is the last."""
    with machines() as started:
        yield started


@pytest.fixture
def two_machines(both_machines: tuple[str, subprocess.Popen[bytes]]) -> str:
    """Their cluster's address."""
    return both_machines[0]


def raylet_of(process: subprocess.Popen[bytes]) -> int:
    """The process by which a machine belongs to its cluster: a child of the one that has started it there."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process has ended meanwhile.
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and b"raylet/raylet" in (place / "cmdline").read_bytes().split(b"\0")[0]:
                return int(place.name)
    raise AssertionError("no raylet")


def test_a_worker_ends_whose_object_store_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(reference: object) -> None:
        raise BrokenPipeError("as where the machine has left the cluster")

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(SystemExit, match="Ray's object store is gone"):
        PacksInStore(index=None, each=1).read_pack(0)


def test_machines_that_share_no_folder_give_the_same_bits(
    two_machines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[set[str]] = []
    of = PacksInStore.store

    def watched(shards: Any, each: int, *, seen: Any) -> PacksInStore:
        stored.append({path for path in (str(tmp_path / "rows.npy"), "/none") if seen(path)})
        return of(shards, each, seen=seen)

    monkeypatch.setattr(PacksInStore, "store", watched)
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(mine))
    np.save(tmp_path / "rows.npy", five()[0])
    shards = [np.load(tmp_path / "rows.npy", mmap_mode="r"), *five()[1:]]
    settings: dict[str, Any] = {"n_components": 2, "scale": "std"}
    algorithm = "consensus_rpca(max_rounds=2)"
    there = simulate(algorithm, shards, backend=Ray(clients_per_node=2, address=two_machines), **settings)
    here = simulate(algorithm, five(), **settings)
    assert_same_bits(there, here)
    assert_same_own(there, here)
    assert len(here.local) == 5
    assert stored == [{str(tmp_path / "rows.npy")}]  # Both machines see this file.
    assert not list(mine.iterdir())  # No file is left behind.


def test_masks_and_noise_need_no_folder_that_machines_share(
    two_machines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    algorithm = "consensus_rpca(max_rounds=1)"
    backend = Ray(clients_per_node=2, address=two_machines)
    there = simulate(algorithm, five(), n_components=2, mask=True, backend=backend)
    here = simulate(algorithm, five(), n_components=2, mask=True)
    assert_same_bits(there, here)
    assert_same_own(there, here)
    assert len(here.local) == 5
    dp = DP(epsilon=1e9, delta=1e-6, clip=4.0, reach=4.0)  # drawn by the operating system: no bits to compare
    noised: dict[str, Any] = {"n_components": 2, "dp": dp}
    found = simulate("ssi(max_rounds=4)", five(), backend=Ray(clients_per_node=1, address=two_machines), **noised)
    same = simulate("ssi(max_rounds=4)", five(), n_components=2)
    assert found.privacy is not None
    assert found.privacy.epsilon <= 1e9
    assert found.angle_to(same.components_) < 0.3
    assert not list(tmp_path.iterdir())


def test_an_address_where_nothing_answers_is_tried_once() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    rule = rf"No Ray cluster can be reached at {address} \(.*refused.*\)\. Start one with"
    with pytest.raises(ConfigError, match=rule):
        simulate("krylov", five(), n_components=2, backend=Ray(address=address))
    assert not ray.is_initialized()


@pytest.mark.parametrize("address", ["nonsense", "auto"])
def test_an_address_that_is_none_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing: Any = lambda **settings: (_ for _ in ()).throw(ConnectionError("No running Ray. Start one"))  # noqa: E731
    if address == "auto":  # if no cluster runs on this machine
        monkeypatch.setattr(ray, "init", failing)
    rule = rf"No Ray cluster can be reached at {address} \((Invalid|No running Ray\). Start)"
    with pytest.raises(ConfigError, match=rule):
        simulate("krylov", five(), n_components=2, backend=Ray(address=address))


def test_an_address_where_something_else_answers_is_refused() -> None:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        line.listen()

        def greet() -> None:
            other, _ = line.accept()
            with other:
                other.recv(64)
                other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        address = f"127.0.0.1:{line.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=rf"reached at {address} \(another program answers at this address\)\. Start one"
        ):
            simulate("krylov", five(), n_components=2, backend=Ray(address=address))
        thread.join()


def test_a_worker_that_dies_ends_the_run_at_once_by_its_name(cluster: str) -> None:
    class Fatal:
        """Rows that kill the process which counts them."""

        def __call__(self, step: int) -> Any:
            if step == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return np.ones((4, 6)) * (step + 1)

    streams = [Stream([np.random.default_rng(i).standard_normal((6, 6)) for _ in range(3)]) for i in range(3)]
    streams.append(Stream(Fatal()))
    rule = (
        r"A worker of Ray has died \(actor [0-9a-f]+, process [0-9]+ on [0-9.]+\), possibly because it lacked memory\."
    )
    with pytest.raises(NotEnoughNodes, match=rule):
        track("st_miss", streams, n_components=2, backend=Ray(clients_per_node=2, address=cluster))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it finds the process to end in /proc")
def test_a_machine_that_leaves_the_cluster_in_mid_run_ends_it_in_a_sentence(
    both_machines: tuple[str, subprocess.Popen[bytes]],
) -> None:
    address, second = both_machines
    killed: list[int] = []

    def kill(session: Any) -> None:
        if len(session.history) == 2:
            killed.append(raylet_of(second))
            os.kill(killed[0], signal.SIGKILL)

    # Ray may have missed the machine's workers before, or the machine itself
    worker = r"A worker of Ray has died \(.*\), possibly because it lacked memory\. Lower"
    machine = r"A machine has left the Ray cluster during the run \(.*\)\. Start the run again"
    rule = f"{worker}|{machine}"
    backend = Ray(clients_per_node=1, address=address)
    with pytest.raises(NotEnoughNodes, match=rule):
        simulate("ssi(max_rounds=50)", five(), n_components=2, backend=backend, on_round=kill)
    assert killed
    assert not ray.is_initialized()
