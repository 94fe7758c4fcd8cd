"""Epsilon grows faster than the change that noise has to hide."""

import numpy as np
import pytest

from flower_pca.dp.gaussian import epsilon_of


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("factor", [np.sqrt(2.0), 2.0, 5.0, 20.0], ids="{:.3g}".format)
def test_a_change_that_is_so_many_times_as_large_costs_more_than_so_many_times_the_epsilon(factor, delta):
    for mu in np.geomspace(1e-2, 20.0, 15):
        assert epsilon_of(factor * mu, delta) > factor * epsilon_of(mu, delta) > 0.0
