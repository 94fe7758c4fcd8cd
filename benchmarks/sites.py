"""Sites that differ: hints by chance, scanners found, bad sites named: `python -m benchmarks.sites [seed]`.

The rules are called with what a server knows of the rows: no message is sent.
"""

import sys

import numpy as np

from benchmarks import table
from flower_pca.stages import outlying_sites
from flower_pca.stages.site_share import exceeds_chance

NULL_RUNS, K = 300, 5
DRAWS = 100
SITES, COLUMNS = 20, 8
SPREAD = np.linspace(2.0, 8.0, COLUMNS)


def hinted(parts, k):
    """Whether the rule says that a component differs between sites, by the components of LAPACK."""
    pooled = np.vstack(parts)
    centered = pooled - pooled.mean(axis=0)
    scores = centered @ np.linalg.svd(centered, full_matrices=False)[2][:k].T
    ends = np.cumsum([len(rows) for rows in parts])[:-1]
    between = sum(len(own) * own.mean(axis=0) ** 2 for own in np.split(scores, ends))
    return bool(exceeds_chance(between / (scores**2).sum(axis=0), len(parts), len(pooled)).any())


ALIKE = {
    "2 sites, 600 rows, 40 columns": lambda rng: np.split(rng.standard_normal((600, 40)), 2),
    "3 sites, 90 rows, 2,000 columns": lambda rng: np.split(rng.standard_normal((90, 2000)), 3),
    "30 sites of 10 rows": lambda rng: np.split(rng.standard_normal((300, 8)), 30),
    "100 sites of 3 rows": lambda rng: np.split(rng.standard_normal((300, 8)), 100),
    "sites of 5 to 300 rows": lambda rng: np.split(rng.standard_normal((405, 10)), [5, 35, 105]),
    "t(2.5) rows": lambda rng: np.split(rng.standard_t(2.5, (300, 8)), 3),
    "t(2.5) rows, a site of 4": lambda rng: np.split(rng.standard_t(2.5, (300, 8)), [4, 150]),
    "lognormal rows": lambda rng: np.split(np.exp(rng.standard_normal((300, 8))), 3),
    "rare 0/1 entries": lambda rng: np.split((rng.random((300, 20)) < 0.05).astype(float), 3),
    "2 sites of 6 rows": lambda rng: np.split(rng.standard_normal((12, 6)), 2),
}


def scanners(rng, rows):
    """Two scanners: the second lies 1.2 deviations off in every fourth column, and spreads 1.3 times as much."""
    first, second = rng.standard_normal((2, rows, 20))
    return [first, 1.3 * second + 1.2 * (np.arange(20) % 4 == 0)]


def hospitals(rng, sites, rows, means):
    """Rows of sites that differ by chance and by a little in their means."""
    mix = np.linalg.cholesky(0.4 + 0.6 * np.eye(COLUMNS)).T * SPREAD
    return [rng.standard_normal((rows, COLUMNS)) @ mix + means + rng.standard_normal(COLUMNS) for _ in range(sites)]


def accused(rng, parts):
    """The sites that the rule names, by what an opening tells of them."""
    block = rng.standard_normal((parts[0].shape[1], 6))
    own = [rows - rows.mean(axis=0) for rows in parts]
    found = outlying_sites.find_outlying(
        np.array([len(rows) for rows in parts]),
        np.array([rows.mean(axis=0) for rows in parts]),
        np.array([rows.std(axis=0) for rows in parts]),
        block,
        np.array([rows.T @ (rows @ block) for rows in own]),
    )
    return sorted(one.site for one in found)


def along_a_column(factor):
    """A fault: a column times a factor."""

    def fault(rows):
        rows[:, 3] *= factor

    return fault


def permuted(rows):
    """A fault: columns in another order."""
    rows[:] = np.roll(rows, 3, axis=1)


def constant(rows):
    """A fault: one row again and again."""
    rows[:] = rows[0]


def turned(rows):
    """A fault: the sign of a column turned about its mean, so that no mean says so."""
    rows[:, 3] = 100.0 - rows[:, 3]


ONE_MEAN, OWN_MEANS = 50.0, np.linspace(50.0, 120.0, COLUMNS)
FAULTS = {
    "a column times 10": (along_a_column(10.0), 100, ONE_MEAN),
    "a column times 100": (along_a_column(100.0), 100, ONE_MEAN),
    "a column in other units (1 / 18.016)": (along_a_column(1.0 / 18.016), 100, ONE_MEAN),
    "constant rows": (constant, 100, ONE_MEAN),
    "columns permuted, each with a mean of its own": (permuted, 100, OWN_MEANS),
    "a sign turned, with the mean": (along_a_column(-1.0), 100, ONE_MEAN),
    "columns permuted, all with the same mean": (permuted, 600, ONE_MEAN),
    "a sign turned about the mean": (turned, 600, ONE_MEAN),
}
LAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape),
    "lognormal": lambda rng, shape: np.exp(rng.standard_normal(shape)),
    "t(5)": lambda rng, shape: rng.standard_t(5, shape),
    "rare 0/1 entries": lambda rng, shape: (rng.random(shape) < 0.05).astype(float),
}


def named(rng, fault, rows, means, bad):
    """Of all draws, those in which the bad sites are named, and nobody else."""
    right = 0
    for _ in range(DRAWS):
        parts = hospitals(rng, SITES, rows, means)
        for own in parts[:bad]:
            fault(own)
        right += accused(rng, parts) == list(range(bad))
    return right


def schools(rng):
    """139 sites of 20 to 60 rows, whose means differ as much as their rows do."""
    return [
        rng.standard_normal((int(rng.integers(20, 60)), COLUMNS)) * np.exp(0.3 * rng.standard_normal(COLUMNS))
        + rng.standard_normal(COLUMNS)
        for _ in range(139)
    ]


def main(seed=0):
    """Print all tables."""
    rng = np.random.default_rng(seed)
    lines = [[kind, sum(hinted(draw(rng), K) for _ in range(NULL_RUNS))] for kind, draw in ALIKE.items()]
    lines.append(["all", sum(hints for _, hints in lines)])
    print(table(["sites that are alike", f"hints in {NULL_RUNS} runs"], lines), end="\n\n")
    found = [[rows, sum(hinted(scanners(rng, rows), 3) for _ in range(DRAWS))] for rows in (300, 30)]
    print(table(["rows of each of two scanners", f"found in {DRAWS} draws"], found), end="\n\n")
    lines = []
    for fault, (change, rows, means) in FAULTS.items():
        right = [named(rng, change, rows, means, bad) for bad in (2, 4, 6, 8)]
        lines.append([fault, rows, *right])
    print(table(["fault", "rows of a site", *(f"{bad} of {SITES} bad" for bad in (2, 4, 6, 8))], lines), end="\n\n")
    lines = []
    for law, draw in LAWS.items():
        runs = [
            sum(
                bool(accused(rng, np.split(draw(rng, (rows * sites, COLUMNS)), sites)))
                for rows in (25, 100)
                for _ in range(DRAWS)
            )
            for sites in (3, 6, 20)
        ]
        lines.append([law, *runs])
    print(table(["sites that are alike", "3 sites", "6 sites", "20 sites"], lines), end="\n\n")
    print(f"139 schools: {sum(bool(accused(rng, schools(rng))) for _ in range(DRAWS))} of {DRAWS} draws name one")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
