"""How often 95 % intervals of loadings and variances hold the truth: `python -m benchmarks.errors [draws] [seed]`.

Three sites are unlike: in their means and in what varies there. The truth is that of their mixture, whose eigenvalues
are known. Loadings are those of components 1 and 2; the third lies close to the fourth, as it may.
`python -m benchmarks.errors few [draws] [seed]` has few rows, and the intervals of `analysis.intervals`.
"""

import itertools
import sys

import numpy as np

from benchmarks import table
from flower_pca import simulate
from flower_pca.analysis.intervals import intervals

DRAWS, K, WIDE = 500, 2, 1.96
SHARES = (0.5, 0.3, 0.2)
BOOTSTRAP = 1000


def gaussian(rng, shape):
    return rng.standard_normal(shape)


def student(rng, shape):
    return rng.standard_t(5, shape) / np.sqrt(5.0 / 3.0)


def heavy(rng, shape):
    return rng.standard_t(3, shape) / np.sqrt(3.0)


def population(d):
    """For each site a mean and a matrix that its rows are made with, and the covariance of all."""
    rng = np.random.default_rng(d)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = np.concatenate([[12.0, 6.0, 2.8, 2.4], np.linspace(1.2, 0.5, d - 4)])
    factors = 1.0 + 0.3 * rng.uniform(-1.0, 1.0, (len(SHARES), d))
    means = 0.3 * rng.standard_normal((len(SHARES), d)) * np.sqrt(values)
    means -= np.array(SHARES) @ means
    made = [(Q @ mean, Q * np.sqrt(values * own)) for mean, own in zip(means, factors, strict=True)]
    return made, sum(share * (A @ A.T + np.outer(m, m)) for share, (m, A) in zip(SHARES, made, strict=True))


def drawn(draw, made, n, rng):
    """The rows of each site."""
    sizes = [round(share * n) for share in SHARES]
    return [m + draw(rng, (size, len(m))) @ A.T for size, (m, A) in zip(sizes, made, strict=True)]


def coverage(draw, n, d, *, draws=DRAWS, algorithm="krylov", scale=None, seed=0):
    """How often the intervals of loadings and of variances hold the truth."""
    made, C = population(d)
    if scale is not None:
        C = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    values, V = np.linalg.eigh(C)
    values, truth = values[::-1][:K], V[:, ::-1][:, :K].T
    rng = np.random.default_rng([seed, n, d])
    loadings, variances = [], []
    for _ in range(draws):
        found = simulate(algorithm, drawn(draw, made, n, rng), n_components=K, scale=scale, standard_errors=True)
        sign = np.sign((found.components_ * truth).sum(axis=1))[:, None]
        loadings.append(np.abs(found.components_ * sign - truth) < WIDE * found.loading_errors_)
        variances.append(np.abs(found.explained_variance_ - values) < WIDE * found.variance_errors_)
    return float(np.mean(loadings)), float(np.mean(variances))


def by_intervals(draw, n, d, *, draws=DRAWS, seed=1):
    """How often `intervals` hold loadings and variances, and runs that say that errors are too small."""
    made, C = population(d)
    values, V = np.linalg.eigh(C)
    values, truth = values[::-1][:K], V[:, ::-1][:, :K].T
    rng = np.random.default_rng([seed, n, d])
    loadings, variances, said = [], [], []
    for _ in range(draws):
        found = simulate("krylov", drawn(draw, made, n, rng), n_components=K, standard_errors=True)
        same = truth * np.sign((found.components_ * truth).sum(axis=1))[:, None]
        low, high = (intervals(found).loadings[side] for side in (0, 1))
        loadings.append((low < same) & (same < high))
        low, high = (intervals(found).variances[side] for side in (0, 1))
        variances.append((low < values) & (values < high))
        said.append("too small" in found.status.words)
    return tuple(float(np.mean(held)) for held in (loadings, variances, said))


def of_few(draws=DRAWS, seed=1):
    lines = []
    for draw in (gaussian, student, heavy):
        for n in (15, 30, 40, 100, 300):
            found = by_intervals(draw, n, 10, draws=draws, seed=seed)
            lines.append([draw.__name__, n, *(f"{share:.1%}" for share in found)])
            print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["rows", "n", "loadings", "variances", "said to be too small"], lines))


def against_bootstrap(draw, n, d, *, times=BOOTSTRAP, seed=0):
    """The errors over those of a bootstrap of the rows within sites, and of the pooled rows: root mean squares."""
    made, _ = population(d)
    rng = np.random.default_rng([seed, n, d, 1])
    shards = drawn(draw, made, n, rng)
    found = simulate("krylov", shards, n_components=K, standard_errors=True)
    X = np.vstack(shards)
    ends = np.cumsum([0, *(len(S) for S in shards)])
    ways = {
        "sites": lambda: np.concatenate([rng.integers(a, b, b - a) for a, b in itertools.pairwise(ends)]),
        "pooled": lambda: rng.integers(0, n, n),
    }
    ratios = []
    for which in ways.values():
        others = []
        for _ in range(times):
            V = np.linalg.eigh(np.cov(X[which()].T))[1][:, ::-1][:, :K].T
            others.append(V * np.sign((V * found.components_).sum(axis=1))[:, None])
        ratios.append(np.sqrt(np.mean(found.loading_errors_**2) / np.mean(np.var(others, axis=0))))
    return ratios


def main(draws=DRAWS, seed=0):
    lines = []
    for draw in (gaussian, student):
        for n in (300, 3000):
            for d in (10, 50):
                loadings, variances = coverage(draw, n, d, draws=draws, seed=seed)
                inside, pooled = against_bootstrap(draw, n, d, times=min(draws, BOOTSTRAP), seed=seed)
                lines.append(
                    [draw.__name__, n, d, f"{loadings:.1%}", f"{variances:.1%}", f"{inside:.2f}", f"{pooled:.2f}"]
                )
    head = ["rows", "n", "columns", "loadings", "variances", "over bootstrap within sites", "over pooled bootstrap"]
    print(table(head, lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["few"]:
        of_few(*(int(given) for given in sys.argv[2:]))
    else:
        main(*(int(given) for given in sys.argv[1:]))
