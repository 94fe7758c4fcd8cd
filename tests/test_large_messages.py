"""Test the memory of large messages: what is freed goes back to the operating system, and is not held twice."""

import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from flwr.app import RecordDict

from flower_pca import SSI, Krylov, simulate, wire
from flower_pca.base import large
from flower_pca.cli import main
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame

# Blocks of 4 MB with small ones between them, as Flower leaves them behind. What remains of 200 MB is printed in MB.
_BLOCKS = """
import threading
from pathlib import Path
from flower_pca.base import large

def resident():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

def fill_and_free(kept):
    blocks = []
    for _ in range(50):
        blocks.append(b"\\1" * 4_000_000)
        kept.append(bytes(1000))
    del blocks

bytes(30_000_000)  # Its end lets glibc keep all smaller blocks.
before, kept = resident(), []
if FIRST:
    large.release_memory()
for _ in range(2):
    thread = threading.Thread(target=fill_and_free, args=(kept,))
    thread.start()
    thread.join()
if not FIRST:
    large.release_memory()
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the memory of a process on Linux only")
@pytest.mark.parametrize("first", [True, False])
def test_freed_blocks_go_back_to_the_operating_system(first):
    program = f"FIRST = {first}\n{_BLOCKS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no glibc")
def test_limits_of_malloc_in_the_environment_are_kept(monkeypatch):
    library = mock.Mock()
    monkeypatch.setattr(large.ctypes, "CDLL", lambda name: library)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "67108864")
    large.release_memory()
    assert library.mallopt.call_args_list == [mock.call(large._TRIM_THRESHOLD, large._RETURNED)]
    library.malloc_trim.assert_called_once_with(0)


def test_a_message_in_both_layouts_is_serialized_once():
    block = np.arange(12.0).reshape(6, 2)
    message = Broadcast("ssi", 1, {"Z": block}, Frame(), (0,))
    content = wire.write_request(message, 0, algorithm="ssi", run="r", extra={}, layouts=wire.BOTH)
    assert isinstance(content, RecordDict)
    first, second = (list(record.values()) for record in content.array_records.values())
    assert first[0].data is second[0].data
    parameters, config = wire.open_request(content, "train")
    assert np.array_equal(wire.read_request(parameters, config).arrays["Z"], block)


@pytest.mark.parametrize("algorithm", [SSI(max_rounds=3), Krylov(max_rounds=3)])
def test_a_run_does_not_keep_the_product_of_its_opening(algorithm):
    """The state of the algorithm has what it needs of the product, which takes as much memory as a message."""
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((40, 12)) * np.arange(12, 0, -1) for _ in range(2)]
    held = []

    def look(run):
        if run.position.stage.name == algorithm.name:
            held.append(run.position.model.product is not None)

    simulate(algorithm, shards, n_components=2, on_round=look)
    assert len(held) >= 2
    assert not any(held)


@pytest.mark.parametrize("options", [[], ["--components", "3"]])
def test_check_says_the_memory_of_large_messages(options, tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(1)
    for site in ("jena", "trier"):
        np.save(tmp_path / f"{site}.npy", rng.standard_normal((30, 6)))
    words = ["check", str(tmp_path), *options]
    assert main(words) == 0
    assert "memory" not in capsys.readouterr().out
    monkeypatch.setattr(large, "BYTES", 8 * 6 * 4 - 1)
    assert main(words) == 0
    line = "memory in a deployment: A message takes 0 MB. For messages to 2 sites, the ServerApp needs about "
    assert line in capsys.readouterr().out
