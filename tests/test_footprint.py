"""Test the memory of a ClientApp's process on a small board."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import falling
from fake_grid import grid_of, request_of

from flower_pca.strategies import PCAStrategy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it takes Linux's account of memory"),
]

# MB that are the process's own: what it maps of files, libraries and rows, is not counted. Flower's transport, which is
# not in here, takes about 30 MB more.
MOST = 90.0

# Answers messages as flwr-clientapp does: one after another, and prints the most anonymous memory on the way.
NODE = """
import pickle, re, resource, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
path, messages, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
import flwr.supernode.runtime.run_clientapp
import numpy as np
from flwr.app import Context, RecordDict
from flower_pca import app
from flower_pca.clients import PCAClient

def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"Anonymous: +([0-9]+) kB", file.read())[1]) / 1024

if limit:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
seen, done = [imported := anonymous()], threading.Event()
def watch():
    while not done.wait(0.005):
        seen.append(anonymous())
threading.Thread(target=watch, daemon=True).start()
client = PCAClient(np.load(path, mmap_mode="r"), context=Context(1, 1, {"partition-id": 0}, RecordDict(), {}))
for parameters, config in pickle.load(open(messages, "rb")):
    arrays, n, answer = client.fit(parameters, config)
    assert "refusal" not in answer, answer["refusal"]
done.set()
print(imported, max(seen), n)
"""


def messages_to_one(rows, algorithm, k):
    """The messages of a run over these rows to one of its nodes."""
    grid, sent = grid_of([rows, rows + 1.0]), []

    def record(message, reply):
        if message.metadata.dst_node_id == grid.node(0):
            sent.append(request_of(message))
        return reply

    grid.tamper = record
    PCAStrategy(algorithm, n_components=k, max_rounds=2, min_rounds=1).fit(grid)
    return [(parameters, config) for parameters, config in sent if config["stage"] != "ritz"]


def footprint(path, messages, folder, *, limit=0):
    """Megabytes of anonymous memory after the imports, and at most; and the rows that were answered from."""
    packed = folder / "messages.pickle"
    packed.write_bytes(pickle.dumps(messages))
    command = [sys.executable, "-c", NODE, str(path), str(packed), str(limit)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    imported, most, n = run.stdout.split()
    return float(imported), float(most), int(n)


@pytest.mark.usefixtures("lines")
def test_a_client_of_the_subspace_family_has_less_than_so_many_megabytes_of_its_own(tmp_path, monkeypatch):
    """One process after another algorithm: what they leave behind counts too."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in the systemd unit of a node
    rows = falling(2000, 784, seed=0, ratio=1.01)
    np.save(tmp_path / "rows.npy", rows)
    family = ("krylov", "ssi", "faps", "local_power")
    messages = [message for algorithm in family for message in messages_to_one(rows, algorithm, 20)]
    imported, most, n = footprint(tmp_path / "rows.npy", messages, tmp_path)
    assert n == 2000
    assert imported <= most < MOST, (imported, most)


@pytest.mark.usefixtures("lines")
def test_rows_of_half_a_gigabyte_are_mapped_and_fit_a_node_of_half_as_much(tmp_path, monkeypatch):
    """RLIMIT_DATA bounds what a process has of its own; the file is full of holes, and takes no room on the disk."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    n, d = 2**20, 64
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float64, (n, d))
    few = falling(2000, d, seed=1)
    rows[:2000] = few
    rows.flush()
    assert rows.nbytes == 2**29
    _, most, answered = footprint(tmp_path / "rows.npy", messages_to_one(few, "krylov", 5), tmp_path, limit=2**28)
    assert answered == n
    assert most < MOST
