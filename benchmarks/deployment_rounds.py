"""How long a round takes over Flower's own transport: ours against the barest app, on one federation, in one run.

The barest app multiplies X'(XZ) in a plain `train` function, sums, takes one QR, and waits with Flower's own
`send_and_receive`. Ours is SSI: the same product and the same shapes, and the opening message. Runs of both
take turns; the ratio is of the medians of all rounds.

    python benchmarks/deployment_rounds.py [--rounds 10] [--turns 2] [--features 784] [--components 20] [--rows 2000]
"""

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from federation import Federation


def spread(seconds):
    low, middle, high = np.percentile(seconds, [10, 50, 90])
    return f"median {middle:.2f} s, 10 % below {low:.2f}, 10 % above {high:.2f}, of {len(seconds)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rounds", 10), ("turns", 2), ("features", 784), ("components", 20), ("rows", 2000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    d, p = given.features, given.components
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((given.rows, d)) * 0.99 ** np.arange(d) for _ in range(2)]
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as folder, Federation(folder, shards) as federation:
        federation.present(0, 1)
        for _ in range(given.turns):
            run = federation.run(None, shape=[d, p], rounds=given.rounds)
            bare += run.seconds()
            ssi = {"oversample": 0, "tol": 0.0, "max_rounds": given.rounds - 1, "center": False}
            result = federation.run("SSI", n_components=p, **ssi).result()
            ours += [r.seconds for r in result.history]
    print(f"2 nodes of {given.rows} x {d}, {d} x {p} each way")
    print(f"barest  {spread(bare)}")
    print(f"ours    {spread(ours)}")
    print(f"ratio   {median(ours) / median(bare):.2f}")


if __name__ == "__main__":
    main()
