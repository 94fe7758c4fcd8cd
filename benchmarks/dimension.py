"""How often n_components="signal" finds as many components as are planted: `python -m benchmarks.dimension [draws]`.

`python -m benchmarks.dimension noise [draws] [seed]` measures how often it finds a component in rows without any;
half as many draws if there are more than 200 columns.

Three sites share the rows. A draw is in where each planted eigenvalue is at least 1.2 times the threshold it is held
against (a pooled one: that of tables with flipped signs less the planted components before it) and at most ten times
the next: planted ones are drawn with up to four times the next; with a third argument, up to so many times. The second
argument restricts the run to sizes with this number of columns (0 for all sizes), and the fourth is the seed.
"""

import sys

import numpy as np
import scipy.linalg

from benchmarks import table
from flower_pca import simulate
from flower_pca.base.errors import DataError

DRAWS, PASSES, MOST, STEEP = 100, 1.2, 10.0, 4.0
RANKS = tuple(range(9))
SIZES = ((200, 20), (2000, 20), (200, 300), (2000, 300), (2000, 1000))
FLIPS = 20


def equal(rng, n, d):
    return rng.standard_normal((n, d))


def by_column(rng, n, d):
    """Deviations from a half to two."""
    return rng.standard_normal((n, d)) * np.geomspace(0.5, 2.0, d)


def by_site(rng, n, d):
    """Deviations of 0.7, 1 and 1.4 at the three sites, and by column at each of its own."""
    sites = np.repeat([0, 1, 2], [n - 2 * (n // 3), n // 3, n // 3])
    own = np.array([[0.7], [1.0], [1.4]]) * np.exp(0.2 * rng.standard_normal((3, d)))
    return rng.standard_normal((n, d)) * own[sites]


def heavy(rng, n, d):
    return rng.standard_t(5, (n, d)) / np.sqrt(5.0 / 3.0)


def elliptical(freedom):
    """Rows of Student's law: normal ones, each divided by a length of its own."""

    def student(rng, n, d):
        return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(freedom, (n, 1)) / freedom)

    return student


def scaled(spread):
    """Normal rows, each multiplied by exp(spread z)."""

    def rows(rng, n, d):
        return rng.standard_normal((n, d)) * np.exp(spread * rng.standard_normal((n, 1)))

    return rows


def entries(rng, n, d):
    """Entries of Student's law with three degrees of freedom."""
    return rng.standard_t(3, (n, d))


def contaminated(rng, n, d):
    """One row of twenty is five times as long as the others."""
    return rng.standard_normal((n, d)) * np.where(rng.random((n, 1)) < 0.05, 5.0, 1.0)


NOISE = {
    "Gaussian": equal,
    "elliptical t, 3 degrees": elliptical(3),
    "elliptical t, 5 degrees": elliptical(5),
    "elliptical t, 8 degrees": elliptical(8),
    "rows times exp(.3 z)": scaled(0.3),
    "rows times exp(z)": scaled(1.0),
    "entries t, 3 degrees": entries,
    "contaminated": contaminated,
}
NOISE_SIZES = ((60, 10), (60, 100), (2000, 20), (200, 300), (120, 400))


def edge(X):
    """The largest eigenvalue."""
    C = X.T @ X if X.shape[0] > X.shape[1] else X @ X.T
    last = len(C) - 1
    return float(scipy.linalg.eigvalsh(C, subset_by_index=(last, last))[0])


def planted(noise, n, d, k, rng, steep=STEEP):
    """Rows with k directions beside the noise, and the noise by itself, both about their means."""
    E = noise(rng, n, d)
    X = E.copy()
    if k:
        ratios = rng.uniform(1.0, steep, k)
        sizes = edge(E) / n * rng.uniform(1.0, 3.0) * np.cumprod(ratios)[::-1] / ratios[-1]
        Q = np.linalg.qr(rng.standard_normal((d, k)))[0]
        X += (rng.standard_normal((n, k)) * np.sqrt(sizes)) @ Q.T
    return X, E - E.mean(axis=0)


def admitted(X, E, k, rng):
    """Whether each planted eigenvalue passes the threshold of flipped noise as it should, and the ratios are right."""
    if k == 0:
        return True
    Y = X - X.mean(axis=0)
    values = scipy.linalg.eigvalsh(Y.T @ Y)[::-1][: k + 1]
    drawn = [edge(E * rng.choice([-1.0, 1.0], E.shape)) for _ in range(FLIPS)]
    threshold = np.mean(drawn) + 3.0 * np.std(drawn, ddof=1)
    return bool(values[k - 1] >= PASSES * threshold and (values[: k - 1] <= MOST * values[1:k]).all())


def counted(X, seed):
    """How many components are found, and in how many messages beside the opening."""
    try:
        found = simulate("krylov", np.array_split(X, 3), n_components="signal", seed=seed)
    except DataError:
        return 0, 1
    return found.n_components_, sum(r.stage == "signal" for r in found.history)


def share(noise, n, d, k, *, draws=DRAWS, seed=0, steep=STEEP):
    """Draws that are in, those with the right number, with more, with two more and beyond; messages, mean and most."""
    rng = np.random.default_rng([seed, n, d, k])
    differences, messages = [], []
    for draw in range(20 * draws):
        X, E = planted(noise, n, d, k, rng, steep)
        if not admitted(X, E, k, rng):
            continue
        found, asked = counted(X, draw)
        differences.append(found - k)
        messages.append(asked)
        if len(differences) == draws:
            break
    off = np.array(differences)
    return len(off), int(np.sum(off == 0)), int(np.sum(off > 0)), int(np.sum(off > 1)), np.mean(messages), max(messages)


def false_components(noise, n, d, *, draws=DRAWS, seed=0):
    """The share of draws of rows without components in which one is found."""
    rng = np.random.default_rng([seed, n, d])
    return float(np.mean([counted(noise(rng, n, d), draw)[0] > 0 for draw in range(draws)]))


def of_noise(draws=DRAWS, seed=0):
    lines = []
    for name, noise in NOISE.items():
        shares = [
            false_components(noise, n, d, draws=draws if d < 200 else draws // 2, seed=seed) for n, d in NOISE_SIZES
        ]
        lines.append([name, *(f"{share:.1%}" for share in shares)])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["rows", *(f"{n:,} x {d}" for n, d in NOISE_SIZES)], lines))


def main(draws=DRAWS, columns=0, steep=STEEP, seed=0):
    lines = []
    for noise in (equal, by_column, by_site, heavy):
        for n, d in SIZES:
            if columns not in (0, d):
                continue
            for k in RANKS:
                drawn, right, more, beyond, mean, most = share(noise, n, d, k, draws=draws, seed=seed, steep=steep)
                lines.append([noise.__name__, n, d, k, drawn, right, more, beyond, f"{mean:.1f}", most])
                print(*lines[-1], file=sys.stderr, flush=True)
    head = ["noise", "n", "columns", "planted", "draws", "right", "more", "two more", "messages", "at most"]
    print(table(head, lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["noise"]:
        of_noise(*(int(given) for given in sys.argv[2:]))
    else:
        main(*(int(given) for given in sys.argv[1:]))
