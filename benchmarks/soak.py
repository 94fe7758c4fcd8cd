"""Whether processes and folders of a federation grow: runs one after another at one SuperLink with three nodes.

The app is the one of `flwr run`, and the nodes have a memory-dir. At three points, after as many runs each, it prints
of every process that stays its memory, its open files and its threads, and of every folder how many files it has and
how large they are. What grows from the second point to the third goes on growing. Processes of single messages, runs
and commands are forks of one that has imported Flower, so that 200 runs take an hour; those that stay are not.

    python benchmarks/soak.py [--runs 200] [--algorithm covariance]
"""

import argparse
import contextlib
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from federation import Federation, wait

ROOT = Path(__file__).parents[1]
POINTS = 3
LONG = 1800.0  # seconds of a run on a machine that has much else to do
STAY = ("flower-superlink", "flower-supernode", "flower-superexec")
OFTEN = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}


def processes(federation):
    """MB of memory, open files and threads of each process that stays, by what it is."""
    found = {}
    for pid in sorted(federation.strays()):
        place = Path(f"/proc/{pid}")
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
            status, files = (place / "status").read_text(), len(list((place / "fd").iterdir()))
        except OSError:  # it was a run's, and has ended
            continue
        name = next((Path(word).name for word in words if re.search(r"/flower-\w+$", word)), "")
        if name:
            memory, threads = (int(re.search(rf"{what}:\s+(\d+)", status)[1]) for what in ("VmRSS", "Threads"))
            found[f"{name} {pid}"] = (memory / 1024, files, threads)
    return found


def folders(federation):
    """How many files each folder has, and kB in all."""
    found = {}
    for place in sorted(federation.folder.iterdir()):
        files = [path for path in [place, *place.rglob("*")] if path.is_file()]
        found[place.name] = (len(files), sum(path.stat().st_size for path in files) / 1024)
    return found


def one_run(federation, algorithm, number):
    """A run of the app, to its end."""
    output = federation.folder / "results" / str(number)
    config = f'algorithm="{algorithm}" n-components=2 min-nodes=3 output="{output}"'
    words = ("run", str(ROOT / "hub"), "trial", "--run-config", config, "--format", "json")
    said = json.loads(federation.flwr(*words))
    assert said["success"], said
    wait(f"run {number}", lambda: (output / "result.npz").exists(), seconds=LONG)

    def ended():
        (run,) = json.loads(federation.flwr("ls", "trial", "--run-id", str(said["run-id"]), "--format", "json"))["runs"]
        return run["status"].startswith("finished") and run["status"]

    status = wait(f"the end of run {number}", ended, seconds=LONG, pause=0.5)
    assert status == "finished:completed", status


def table(what, points, columns):
    """A table: a line for each name that is there at all points."""
    print(f"{what}, after {', '.join(str(runs) for runs, _ in points)} runs: {columns}")
    for name in points[-1][1]:
        print(
            f"  {name}: "
            + "; ".join(" / ".join(f"{x:.0f}" for x in at[name]) if name in at else "-" for _, at in points)
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--algorithm", default="covariance")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((500, 20)) * 0.8 ** np.arange(20) for _ in range(3)]
    stops = [round(given.runs * (i + 1) / POINTS) for i in range(POINTS)]
    alive, left = [], []
    with contextlib.ExitStack() as open_:
        folder = open_.enter_context(tempfile.TemporaryDirectory())
        federation = open_.enter_context(Federation(folder, shards, environment=OFTEN, forked=(), anew=STAY))
        for partition in range(3):
            federation.start_node(partition, **{"memory-dir": str(federation.folder / f"memory-{partition}")})
        for node in federation.nodes:
            node.connected()
        for number in range(1, given.runs + 1):
            one_run(federation, given.algorithm, number)
            if number in stops:
                alive.append((number, processes(federation)))
                left.append((number, folders(federation)))
                table("Processes", alive, "MB of memory / open files / threads")
                table("Folders", left, "files / kB")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
