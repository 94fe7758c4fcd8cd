"""How long a round takes over Flower's own transport: ours against the barest app, on one federation, in one run.

The barest app multiplies X'(XZ) in a plain `train` function, sums, takes one QR, and waits with Flower's own
`send_and_receive`. Ours is SSI: the same product and the same shapes, and the opening message. Runs of both
take turns. The ratio is of the means of all rounds, which is that of what whole runs take: a node that has answered
looks for work every three seconds, and so does the barest app for replies, whose rounds therefore take three seconds or
six. A median of these says what none of its runs takes. With `--settings`, federations with other settings of Flower's
follow, one after another: a shorter interval between two looks for work, and a database in a file. With
`--round-trips` all nodes of a federation are so many milliseconds, there and back, from the SuperLink, by a proxy that
holds back every chunk: one federation for each. Processes of single messages are then forks of one that has imported
Flower, so that links are measured rather than imports.

    python benchmarks/deployment_rounds.py [--rounds 10] [--turns 2] [--features 784] [--components 20] [--rows 2000]
        [--settings] [--round-trips 0 50 200]
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path
from statistics import mean

import numpy as np
from delaying import Link

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from federation import Federation

OFTEN = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}
STAY = ("flower-superlink", "flower-supernode", "flower-superexec")
IN_FILE = ["--database", "{folder}/state.db"]
SETTINGS = (("looking for work every 0.05 s", OFTEN, []), ("with a database", {}, IN_FILE), ("both", OFTEN, IN_FILE))


def spread(seconds):
    low, middle, high = np.percentile(seconds, [10, 50, 90])
    some = f"median {middle:.2f}, 10 % below {low:.2f}, 10 % above {high:.2f}"
    return f"mean {mean(seconds):.2f} s, {some}, of {len(seconds)}"


def measured(shards, given, folder, *, bare, environment=None, superlink=(), round_trip=None):
    """Seconds of the rounds of ours, and of the barest app's if it is to run too."""
    d, p = given.features, given.components
    seconds = {"ours": [], "barest": []}
    with contextlib.ExitStack() as open_:
        forks = {} if round_trip is None else {"forked": (), "anew": STAY}
        federation = Federation(folder, shards, environment=environment, superlink=superlink, **forks)
        open_.enter_context(federation)
        if round_trip is not None:
            federation.door = open_.enter_context(Link(federation.port, round_trip / 1000)).port
        federation.present(0, 1)
        for _ in range(given.turns):
            if bare:
                seconds["barest"] += federation.run(None, shape=[d, p], rounds=given.rounds).seconds()
            ssi = {"oversample": 0, "tol": 0.0, "max_rounds": given.rounds - 1, "center": False}
            result = federation.run("SSI", n_components=p, **ssi).result()
            seconds["ours"] += [r.seconds for r in result.history]
    return seconds


def report(seconds):
    """Print what was measured of both, and the ratio."""
    for name in ("barest", "ours"):
        print(f"{name}, Flower's own settings: {spread(seconds[name])}")
    print(f"ratio {mean(seconds['ours']) / mean(seconds['barest']):.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rounds", 10), ("turns", 2), ("features", 784), ("components", 20), ("rows", 2000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--round-trips", type=float, nargs="*", default=())
    given = parser.parse_args()
    d, p = given.features, given.components
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((given.rows, d)) * 0.99 ** np.arange(d) for _ in range(2)]
    print(f"2 nodes of {given.rows} x {d}, {d} x {p} each way")
    for round_trip in given.round_trips:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{round_trip:g} ms there and back:")
            report(measured(shards, given, folder, bare=True, round_trip=round_trip))
    if given.round_trips:
        return
    with tempfile.TemporaryDirectory() as folder:
        first = measured(shards, given, folder, bare=True)
    report(first)
    for name, environment, words in SETTINGS if given.settings else ():
        with tempfile.TemporaryDirectory() as folder:
            words = [word.format(folder=folder) for word in words]
            ours = measured(shards, given, folder, bare=False, environment=environment, superlink=words)["ours"]
        print(f"ours, {name}: {spread(ours)}; {mean(ours) / mean(first['ours']):.2f} of ours with Flower's own")


if __name__ == "__main__":
    main()
