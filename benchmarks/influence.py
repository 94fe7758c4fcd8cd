"""Who is named that should not be, and who should be: `python -m benchmarks.influence [seed]`.

Clients whose rows are all drawn alike are not to be named, whatever the columns are: normal ones, rare values of a
category as columns of 0 and 1, heavy tails. One whose file is in other units is.
"""

import sys

import numpy as np

from benchmarks import table
from flower_pca import simulate
from flower_pca.analysis.influence import warnings

RUNS, FOUND = 200, 20


def normal(rng, n):
    """Correlated columns with means, as measurements have."""
    turned = np.linalg.qr(np.random.default_rng(99).standard_normal((6, 6)))[0]
    return (rng.standard_normal((n, 6)) * [5.0, 4.0, 3.0, 2.0, 1.0, 0.7]) @ turned + 8.0


def one_hot(rng, n, levels=24):
    """A category as columns of 0 and 1, most of which are rare."""
    share = 0.5 ** np.arange(levels)
    return np.eye(levels)[rng.choice(levels, size=n, p=share / share.sum())]


def mixed(rng, n):
    return np.hstack([normal(rng, n), one_hot(rng, n)])


def rare(rng, n):
    """Answers of yes and no of which some are hardly ever given."""
    return (rng.random((n, 40)) < np.geomspace(0.5, 0.001, 40)).astype(float)


def lognormal(rng, n):
    return np.exp(normal(rng, n) / 5.0)


def heavy(rng, n):
    return rng.standard_t(3, (n, 6)) + 2.0


def equal(rng):
    return [40] * 10


def unequal(rng):
    return rng.integers(5, 400, 12).tolist()


def many(rng):
    return rng.integers(3, 60, 60).tolist()


def three(rng):
    return [60, 45, 80]


def named(draw, sizes, seed, *, scale, units=1.0):
    """The clients that are named in one run; the columns of the last one's file may be in other units."""
    rng = np.random.default_rng(seed)
    shards = [draw(rng, n) for n in sizes(rng)]
    shards[-1][:, 2] *= units
    varying = np.ptp(np.vstack(shards), axis=0) > 0.0
    shards = [X[:, varying] for X in shards]
    result = simulate("covariance", shards, n_components=2, scale=scale, influence=True)
    return [words.split(" is far off")[0] for words in warnings(result)], f"client {len(shards) - 1}"


def accusing(draw, sizes, *, scale, seed=0, runs=RUNS):
    """In how many runs over clients that are alike one is named."""
    return sum(bool(named(draw, sizes, seed + run, scale=scale)[0]) for run in range(runs))


def found(draw, sizes, *, seed=0, runs=FOUND):
    """In how many runs the one whose file is in other units is named, and no other."""
    outcomes = (named(draw, sizes, seed + run, scale=None, units=18.0) for run in range(runs))
    return sum(names == [odd] for names, odd in outcomes)


def main(seed):
    sizes = (equal, unequal, many, three)
    rows = [
        [draw.__name__, scale or "as it is", *(accusing(draw, of, scale=scale, seed=seed) for of in sizes)]
        for draw in (normal, one_hot, mixed, rare, lognormal, heavy)
        for scale in (None, "std")
    ]
    print(f"Runs of {RUNS} in which a client is named although all are alike, from seed {seed}\n")
    print(table(["columns", "scale", *(of.__name__ for of in sizes)], rows))
    rows = [[draw.__name__, *(found(draw, of, seed=seed) for of in sizes)] for draw in (normal, mixed, lognormal)]
    print(f"\nRuns of {FOUND} in which the one in other units is named, and no other\n")
    print(table(["columns", *(of.__name__ for of in sizes)], rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
