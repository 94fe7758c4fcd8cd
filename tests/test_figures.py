"""Every figure of a result against LAPACK on the pooled rows, for every algorithm of the table."""

from __future__ import annotations

import numpy as np
import pytest
from builders import evenly, framed, rotation

from flower_pca import make, registry, simulate
from flower_pca.core import compatible

# The algorithms whose components are closed by a Rayleigh-Ritz step.
SUBSPACE = [name for name, entry in registry.TABLE.items() if entry.closing.name == "ritz"]
ITERATING = [name for name in SUBSPACE if compatible.ITERATES.holds(make(name))]
STOPPED = [f"{name}(max_rounds={rounds})" for name in ITERATING for rounds in (1, 3)]


def rows_of_two_sizes() -> np.ndarray:
    """Five columns of deviation 1 and five of .01, turned a little, so that each client has its own directions."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 10)) * np.r_[np.ones(5), np.full(5, 0.01)]


def rows_of_a_falling_spectrum() -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.standard_normal((90, 12)) * 0.8 ** np.arange(12) @ rotation(12, 1) + 0.5


ROWS = {"two sizes": rows_of_two_sizes(), "falling": rows_of_a_falling_spectrum()}


@pytest.mark.parametrize("name", [*SUBSPACE, *STOPPED])
@pytest.mark.parametrize("rows", ROWS)
def test_what_components_leave_out_is_what_the_rows_have_outside_of_their_span(rows: str, name: str) -> None:
    """The components of a one-shot algorithm, and those of an early round, span no invariant space of C."""
    X = ROWS[rows]
    for k in (1, 4, 5):
        result = simulate(name, evenly(X, 6), n_components=k)
        F = framed(X)
        Z = result.components_.T
        left = float(np.sum((F - F @ Z @ Z.T) ** 2)) / (len(F) - 1)
        assert result.left_out_variance_ == pytest.approx(left, rel=1e-9), k
