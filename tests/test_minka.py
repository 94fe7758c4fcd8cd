"""Minka's estimate of the number of components is scikit-learn's, in any units."""

import numpy as np
import pytest
from cases import every
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import _pca

from flower_pca.analysis.likelihood import evidence, minka


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(0, 200))
def test_the_evidence_is_scikit_learns(seed, d, more):
    values = np.sort(np.random.default_rng(seed).uniform(0.1, 1.0, d) ** 3)[::-1]
    values /= values[0]
    for k in range(1, d):
        assert evidence(values, k, d + more) == pytest.approx(_pca._assess_dimension(values, k, d + more), rel=1e-9)


@every("unit", [1e-30, 1e-8, 1.0, 1e30])
def test_units_do_not_matter(unit):
    values = np.array([9.0, 5.0, 1.3, 1.0, 0.7])
    assert minka(unit * values, 100) == _pca._infer_dimension(values, 100)
    assert minka(unit * np.append(values, 0.0), 100) == 5  # Zero noise fits best.


def test_tied_variances_are_no_error():
    assert minka(np.array([4.0, 4.0, 1.0, 1.0, 1.0]), 50) == 2
    assert minka(np.zeros(4), 50) == 1
