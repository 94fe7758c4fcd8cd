"""Test that fixed statistics are about as accurate as products of rows, against LAPACK."""

import numpy as np
import pytest
from builders import few_rows, pooled, rotation, rows, sine, three_clients
from cases import paired
from scipy import sparse

from flower_pca import simulate

NOTHING = 2e-14  # sine that is rounding in either way


def units(seed):
    """Columns in units that differ by 1e9."""
    scale = 10.0 ** np.linspace(-4.5, 4.5, 12)
    return [rows(n, 4.0 * 0.7 ** np.arange(12), seed=seed + n) * scale for n in (200, 100, 40)]


def one_hot(seed):
    rng = np.random.default_rng(seed)
    shares = 0.5 ** np.arange(1, 13)
    return [np.eye(12)[rng.choice(12, n, p=shares / shares.sum())] for n in (300, 200, 80)]


def far_means(seed):
    """Means 1e6 deviations from zero."""
    return [rows(n, 3.0 * 0.6 ** np.arange(10), seed=seed + n) + 1e6 for n in (300, 200, 50)]


def thin(seed):
    rng = np.random.default_rng(seed)
    parts = [rows(n, 3.0 * 0.6 ** np.arange(20), seed=seed + n) * (rng.random((n, 20)) < 0.2) for n in (300, 200, 50)]
    return [sparse.csr_array(X) for X in parts]


def wide(seed):
    """Fewer rows than columns at every client."""
    basis = rotation(120, seed)[:25]
    return [rows(n, 3.0 * 0.7 ** np.arange(25), seed=seed + n) @ basis for n in (40, 30, 25)]


CASES = {
    "unlike clients": (lambda s: three_clients(s).shards, {}),
    "units": (units, {}),
    "units, scaled": (units, {"scale": "std"}),
    "one-hot": (one_hot, {}),
    "far": (far_means, {}),
    "float32": (lambda s: [X.astype(np.float32) for X in three_clients(s).shards], {}),
    "sparse": (thin, {}),
    "n < d": (wide, {}),
    "few rows": (lambda s: few_rows(s).shards, {}),
}


def lapack(shards, **settings):
    dense = [np.asarray(X.todense() if sparse.issparse(X) else X, dtype=np.float64) for X in shards]
    return pooled(dense, scale=settings.get("scale"))


def one_rounding(shards, **settings):
    """The angle by which a rounding of C alone may turn the components: its size over the gap (Davis and Kahan)."""
    values = lapack(shards, **settings).variances
    return float(np.finfo(np.float64).eps * values[0] / (values[2] - values[3]))


def errors(shards, answers, **settings):
    reference = lapack(shards, **settings)
    result = simulate("krylov", shards, n_components=3, tol=1e-12, answers=answers, **settings)
    return sine(result.components_, reference.components[:3])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "seed"), paired(CASES, range(3)))
def test_the_angle_to_lapack_is_no_wider(case, seed):
    make, settings = CASES[case]
    shards = make(seed)
    before = errors(shards, "rows", **settings)
    nothing = max(NOTHING, one_rounding(shards, **settings))
    assert errors(shards, "fixed", **settings) <= max(2.0 * before, nothing)


def test_memory_mapped_rows_give_the_bits_of_those_in_memory(tmp_path):
    shards = three_clients(0).shards
    mapped = []
    for i, X in enumerate(shards):
        np.save(tmp_path / f"{i}.npy", X)
        mapped.append(np.load(tmp_path / f"{i}.npy", mmap_mode="r"))
    one, other = (simulate("krylov", given, n_components=3, answers="fixed") for given in (shards, mapped))
    np.testing.assert_array_equal(one.components_, other.components_)
