"""Rows that are made up, by a seed: with a given spectrum, or of clients that differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.data.partition import sizes_by_weight
from flower_pca.data.table import Table


def geometric(*, n: int = 2000, d: int = 100, xi: float = 1.01, seed: int = 0) -> Table:
    """Rows whose singular values fall by one factor: s_j = xi^(1-j)."""
    checks.number("xi", xi, least=1.0, most=1e3, remedy="Use 1.01.")
    return _with(n, d, lambda j: float(xi) ** -j, seed)


def arithmetic(*, n: int = 2000, d: int = 100, kappa: float = 100.0, seed: int = 0) -> Table:
    """Rows whose singular values fall by one amount, from 1 to 1/kappa: s_j = 1 - (j-1)/(d-1) (1 - 1/kappa)."""
    checks.number("kappa", kappa, least=1.0, most=1e15, remedy="Use 100.")
    return _with(n, d, lambda j: 1.0 - j / max(d - 1, 1) * (1.0 - 1.0 / kappa), seed)


def synthetic(
    *,
    n: int = 2000,
    d: int = 30,
    clients: int = 10,
    means: float = 0.5,
    sizes: float = 1.0,
    spectra: float = 0.3,
    tilt: float = 0.1,
    seed: int = 0,
) -> Table:
    """Rows of unlike clients, a part for each; whose a row is goes beside, as client.

    Like measured data: variances fall as a power law, and a few strong directions are common to all clients.

    Args:
        n: Rows of all clients together.
        d: Columns.
        clients: Clients.
        means: How far a client's mean lies from the others', in standard deviations; 0: all means are equal.
        sizes: Client i has a share of (i + 1)^-sizes of the rows; 0: all have equally many.
        spectra: A client's variances fall with an exponent between 1 - spectra and 1 + spectra; 0: all alike.
        tilt: How far a client's directions are turned from the common ones; 0: not at all.
        seed: The seed.
    """
    for what, value in {"n": n, "d": d, "clients": clients}.items():
        checks.integer(what, value, least=1)
    checks.integer("seed", seed)
    for what, amount, most in (("means", means, 1e6), ("sizes", sizes, 20.0), ("spectra", spectra, 1.0)):
        checks.number(what, amount, least=0.0, most=most, remedy="Use 0 for clients that are alike.")
    checks.number("tilt", tilt, least=0.0, most=1e6, remedy="Use 0 for clients that are alike.")
    if n < clients:
        remedy = "Use fewer clients."
        raise ConfigError("n", must=f"at least {clients}, one row for each client", got=n, then=remedy)
    rng = np.random.default_rng(seed)
    common = np.linalg.qr(rng.standard_normal((d, d)))[0]
    counts = sizes_by_weight(n, 1.0 / np.arange(1, clients + 1) ** float(sizes))
    parts = []
    for count in counts:
        deviations = np.arange(1, d + 1) ** -rng.uniform(1.0 - spectra, 1.0 + spectra)
        turn = np.linalg.qr(np.eye(d) + tilt / np.sqrt(d) * rng.standard_normal((d, d)))[0]
        mean = common @ (means * deviations * rng.standard_normal(d))
        noise = 0.02 * rng.standard_normal((count, d))
        parts.append(mean + (rng.standard_normal((count, d)) * deviations) @ (common @ turn).T + noise)
    return Table(tuple(parts), beside={"client": np.repeat(np.arange(clients), counts)})


def _with(n: int, d: int, law: Callable[[Array], Array], seed: int) -> Table:
    """V diag(s) U' with U (d x d) and V (n x d) orthonormalised matrices of uniform(-1, 1) numbers."""
    checks.integer("d", d, least=1)
    checks.integer("n", n, least=d, remedy="Use at least as many rows as columns.")
    checks.integer("seed", seed)
    spectrum: Array = np.asarray(law(np.arange(d, dtype=np.float64)))
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.uniform(-1.0, 1.0, (d, d)))[0]
    V = np.linalg.qr(rng.uniform(-1.0, 1.0, (n, d)))[0]
    return Table(((V * spectrum) @ U.T,))
