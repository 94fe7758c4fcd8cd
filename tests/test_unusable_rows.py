"""Test rows without usable components: an error says so, and no run ends well with wrong components."""

import numpy as np
import pytest
from builders import pooled, rows, sine
from cases import every
from fake_grid import grid_of

from flower_pca import DataError, simulate
from flower_pca.strategies import PCAStrategy

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
pytestmark = pytest.mark.usefixtures("lines")


def test_rows_that_are_all_alike_have_a_component_where_nothing_is_centered():
    assert simulate("krylov", [np.ones((9, 3))], n_components=1, center=False).total_variance_ == pytest.approx(27 / 8)


@pytest.mark.slow
@every("scale", [None, "std", "max_abs"])
@every("size", [1e-140, 1e-100, 1e60])
def test_rows_of_all_other_sizes_have_their_components(size, scale):
    reference = pooled([GOOD], scale=scale)
    result = simulate("krylov", np.array_split(GOOD * size, 3), n_components=2, scale=scale)
    assert sine(result.components_, reference.components[:2]) <= 1e-6


def test_a_column_may_be_too_small_to_be_scaled_where_none_is():
    assert simulate("krylov", [GOOD * [1.0, 1.0, 1e-160, 1.0, 1e-155]], n_components=1).status.ok


def test_a_node_says_so_and_the_others_go_on():
    table = GOOD.copy()
    table[3, 2] = -1e300
    strategy = PCAStrategy("krylov", n_components=1, min_nodes=2)
    grid = grid_of([GOOD, GOOD + 1.0, table])
    result = strategy.fit(grid)
    assert result.n_samples_ == 120
    (reason,) = {why for record in result.history for why in record.failures.values()}
    assert "has a number that is too large in column 2: at most 1e+65 is possible" in reason


@every("size", [1e75, 1e139, 1e150])
def test_sites_of_one_row_say_so_too(size):
    """They have no squares about their own mean."""
    with pytest.raises(DataError, match="The data of client 0 has a number that is too large in column"):
        simulate("krylov", list(GOOD[:6, None] * size), n_components=1)


@every("size", [1e-17, 1e-10, 1e15])
def test_single_precision_is_no_reason_to_refuse(size):
    result = simulate("krylov", [(GOOD * size).astype(np.float32)], n_components=2)
    assert sine(result.components_, pooled([GOOD]).components[:2]) <= 1e-5
