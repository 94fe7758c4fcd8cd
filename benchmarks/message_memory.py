"""The memory that large messages take in each process of a deployment: a SuperLink and two SuperNodes on this machine.

A message is a block of so many MB each way. The table has the largest resident memory of each kind of process (VmHWM),
and what it is in blocks beyond the 140 MB or so that each process has without a run. `barest` is an app that sends the
same arrays with Flower's own `send_and_receive`, multiplies, adds and orthonormalizes them, and keeps nothing else.

    python benchmarks/message_memory.py [--megabytes 100] [--columns-of-a-block 8] [--rows 15] [--rounds 3]
        [--algorithms SSI Krylov barest] [--environment MALLOC_MMAP_THRESHOLD_=1000000]

`--environment` has variables for all processes.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from federation import Federation, wait

PROCESSES = {
    "ServerApp": "flwr-serverapp",
    "ClientApp": "flwr-clientapp",
    "SuperLink": "flower-superlink",
    "SuperNode": "flower-supernode",
}


class Peaks:
    """The largest resident memory of each kind of process in MB, looked at ten times a second."""

    def __init__(self, federation):
        self._federation, self._ended, self.of = federation, threading.Event(), {}
        self._thread = threading.Thread(target=self._look_again_and_again)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()

    def _look_again_and_again(self):
        known, looked = [], 0.0
        while not self._ended.wait(0.1):
            if time.monotonic() - looked > 1.0:  # Finding processes takes longer than looking at them.
                known, looked = self._federation.strays(), time.monotonic()
            for pid in known:
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:3]
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue  # The process has ended.
                for name, program in PROCESSES.items():
                    if any(word.endswith(program.encode()) for word in words) and "VmHWM" in status:
                        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
                        self.of[name] = max(self.of.get(name, 0.0), peak)


def measured(algorithm, given, folder):
    """The peaks of one run, the seconds that it took, and what its log says of memory."""
    p = given.columns_of_a_block
    d = round(given.megabytes * 1e6 / 8 / p)
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((given.rows, d)) for _ in range(2)]
    environment = dict(each.split("=", 1) for each in given.environment)
    with Federation(folder, shards, environment=environment) as federation:
        del shards
        federation.present(0, 1)
        with Peaks(federation) as peaks:
            began = time.monotonic()
            if algorithm == "barest":
                run, last = federation.run(None, shape=[d, p], rounds=given.rounds), "seconds.json"
            else:
                limits = {"oversample": 1, "tol": 0.0, "max_rounds": given.rounds - 1, "round_timeout": 1200.0}
                run, last = federation.run(algorithm, n_components=p - 1, **limits), "result.npz"
            wait(
                f"the end of {algorithm}",
                lambda: any(map(Path.exists, (run.folder / last, run.folder / "error"))),
                seconds=1800,
            )
            seconds = time.monotonic() - began
        log = (federation.folder / "superlink.log").read_text()
    return peaks.of, seconds, [line for line in log.splitlines() if "of memory" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--columns-of-a-block", type=int, default=8)
    parser.add_argument("--rows", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--algorithms", nargs="*", default=["SSI", "Krylov", "barest"])
    parser.add_argument("--environment", nargs="*", default=[])
    given = parser.parse_args()
    for algorithm in given.algorithms:
        with tempfile.TemporaryDirectory() as folder:
            peaks, seconds, said = measured(algorithm, given, folder)
        of_all = ", ".join(
            f"{name} {peaks[name]:,.0f} MB ({(peaks[name] - 140) * 1.048576 / given.megabytes:.1f})"
            for name in PROCESSES
            if name in peaks
        )
        print(f"{algorithm}, {given.megabytes:g} MB a message, {given.rounds} messages, {seconds:.0f} s: {of_all}")
        print(*said, sep="\n", flush=True)


if __name__ == "__main__":
    main()
