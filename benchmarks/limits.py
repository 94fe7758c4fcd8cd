"""How often ordinary new rows lie beyond the limits: `python -m benchmarks.limits [draws] [new rows] [seed]`.

Three components are real. A draw fits them to the rows of three sites, and scores rows that had no part in the fit.
`python -m benchmarks.limits time [draws]` has rows that follow each other in time, or belong to persons.
`python -m benchmarks.limits scores [draws]` measures by how much scores of new rows are smaller, before and after
`project`.
"""

import sys

import numpy as np

from benchmarks import table
from flower_pca import simulate
from flower_pca.analysis.monitor import Monitor

DRAWS, NEW, K = 50, 2000, 3
LEVELS = (0.95, 0.99, 0.999)
STRENGTHS = (15.0, 7.0, 3.5)  # of the components, times the largest eigenvalue of noise


def gaussian(rng, n, d, scale):
    return rng.standard_normal((n, d)) * scale


def student(rng, n, d, scale):
    """Rows of Student's law with five degrees of freedom."""
    return gaussian(rng, n, d, scale) / np.sqrt(rng.chisquare(5, (n, 1)) / 5.0)


class Rows:
    """A law that rows come from: components in noise, which may be of a slow spectrum, or at sites that differ."""

    def __init__(self, rng, n, d, *, draw=gaussian, slow=False, unlike=False):
        self.rng, self.d, self.draw, self.unlike = rng, d, draw, unlike
        self.scale = np.arange(1, d + 1) ** -0.35 if slow else np.ones(d)
        edge = np.mean(self.scale**2) * (1.0 + np.sqrt(d / n)) ** 2
        Q = np.linalg.qr(rng.standard_normal((d, K)))[0]
        self.mixing = (Q * np.sqrt(edge * np.array(STRENGTHS))).T
        self.means = 0.5 * rng.standard_normal((3, d)) if unlike else np.zeros((3, d))
        self.spreads = np.array([0.8, 1.0, 1.25]) if unlike else np.ones(3)

    def site(self, site, n):
        """Rows of a site, with the same length for scores and noise."""
        drawn = self.draw(self.rng, n, self.d + K, np.concatenate([self.scale, np.ones(K)]))
        return self.means[site] + self.spreads[site] * (drawn[:, : self.d] + drawn[:, self.d :] @ self.mixing)

    def sites(self, n):
        return [self.site(i, len(part)) for i, part in enumerate(np.array_split(np.arange(n), 3))]


SHAPES = {
    "12 x 800": (12, 800, {}, {}),
    "60 x 200": (60, 200, {}, {}),
    "200 x 200": (200, 200, {}, {}),
    "500 x 150": (500, 150, {}, {}),
    "2,000 x 90": (2000, 90, {}, {}),
    "1,000 x 1,000": (1000, 1000, {}, {}),
    "50 x 20": (50, 20, {}, {}),
    "60 x 300, t(5) rows": (60, 300, {"draw": student}, {}),
    "60 x 300, sites that differ": (60, 300, {"unlike": True}, {}),
    "1,000 x 200, slow spectrum": (1000, 200, {"slow": True}, {}),
    "2,000 x 90, t(5) rows": (2000, 90, {"draw": student}, {}),
    "200 x 200, std": (200, 200, {}, {"scale": "std"}),
    "20 x 50, std": (20, 50, {}, {"scale": "std"}),
}


def beyond(shards, new, given):
    """The share of new rows beyond the limits by SPE and T2 at each level."""
    monitor = Monitor(simulate("krylov", shards, n_components=K, monitor=True, **given))
    scored = monitor.score(np.vstack(new))
    limits = [monitor.limits(level) for level in LEVELS]
    return [[np.mean(scored.spe > one.spe), np.mean(scored.t2 > one.t2)] for one in limits]


def of_shape(d, n, law, given, *, draws=DRAWS, new=NEW, seed=0):
    found = []
    for draw in range(draws):
        rows = Rows(np.random.default_rng([seed, d, n, draw]), n, d, **law)
        found.append(beyond(rows.sites(n), rows.sites(new), given))
    return np.mean(found, axis=0)


def in_time(correlation):
    """Rows of a stationary autoregression, scores and noise alike."""

    def rows(rng, n, mixing):
        X = rng.standard_normal((n, mixing.shape[1] + K))
        for i in range(1, n):
            X[i] = correlation * X[i - 1] + np.sqrt(1.0 - correlation**2) * X[i]
        return X[:, K:] + X[:, :K] @ mixing

    return rows


def of_persons(rng, n, mixing):
    """Five rows of each person, whose own mean is as large as what varies within."""
    X = (
        rng.standard_normal((n, mixing.shape[1] + K))
        + np.repeat(rng.standard_normal((-(-n // 5), mixing.shape[1] + K)), 5, axis=0)[:n]
    )
    return (X[:, K:] + X[:, :K] @ mixing) / np.sqrt(2.0)


TIMES = {
    "independent rows": in_time(0.0),
    "autocorrelation 0.5": in_time(0.5),
    "autocorrelation 0.8": in_time(0.8),
    "autocorrelation 0.9": in_time(0.9),
    "five rows per person": of_persons,
}


def of_time(draws=20):
    lines = []
    for name, made in TIMES.items():
        shares = []
        for draw in range(draws):
            rng = np.random.default_rng([draw, len(name)])
            mixing = Rows(rng, 300, 60).mixing
            # all rows are at one site: with fewer at each, fewer neighbors can be left out
            shards = [made(rng, 300, mixing)]
            shares.append(beyond(shards, [made(rng, 2000, mixing)], {})[1])
        spe, t2 = np.mean(shares, axis=0)
        lines.append([name, f"{spe:.2%}", f"{t2:.2%}"])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["rows at 60 x 300", "SPE", "T2"], lines))


SCORED = ("12 x 800", "200 x 200", "500 x 150", "2,000 x 90", "50 x 20", "1,000 x 200, slow spectrum", "200 x 200, std")


def of_scores(draws=30):
    lines = []
    for name in SCORED:
        d, n, law, given = SHAPES[name]
        plain, divided = [], []
        for draw in range(draws):
            rows = Rows(np.random.default_rng([draw, d, n, 7]), n, d, **law)
            shards, new = rows.sites(n), np.vstack(rows.sites(500))
            result = simulate("krylov", shards, n_components=K, **given)
            spread = result.transform(np.vstack(shards)).std(axis=0)
            plain.append(result.transform(new).std(axis=0) / spread)
            divided.append(result.project(new).std(axis=0) / spread)
        cells = [" ".join(f"{ratio:.2f}" for ratio in np.mean(found, axis=0)) for found in (plain, divided)]
        lines.append([name, *cells])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["columns x rows", "transform", "project"], lines))


def main(draws=DRAWS, new=NEW, seed=0):
    lines = []
    for name, (d, n, law, given) in SHAPES.items():
        found = of_shape(d, n, law, given, draws=draws, new=new, seed=seed)
        lines.append([name, *(f"{spe:.2%} / {t2:.2%}" for spe, t2 in found)])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["columns x rows", *(f"SPE / T2 at {level:g}" for level in LEVELS)], lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["time"]:
        of_time(*(int(given) for given in sys.argv[2:]))
    elif sys.argv[1:2] == ["scores"]:
        of_scores(*(int(given) for given in sys.argv[2:]))
    else:
        main(*(int(given) for given in sys.argv[1:]))
