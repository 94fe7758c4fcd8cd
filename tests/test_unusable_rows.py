"""Rows that no components can be found of: a sentence says so, and no run ends well with wrong components."""

import numpy as np
import pytest
from builders import pooled, rows, sine
from cases import every
from fake_grid import grid_of

from flower_pca import DataError, simulate
from flower_pca.strategies import PCAStrategy

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
ALIKE = r"The rows of all clients together must be different from one another\. Got the same row everywhere\. Check the"
pytestmark = pytest.mark.usefixtures("lines")


@pytest.mark.parametrize("settings", [{}, {"mask": True}, {"answers": "fixed"}, {"scale": "max_abs"}], ids=str)
@pytest.mark.parametrize("row", [[5.0, 5.0, 5.0], [0.1, 1e7 / 3, -3.3]])
def test_a_table_of_one_row_over_and_over_is_refused(row, settings):
    table = np.tile(row, (40, 1))
    with pytest.raises(DataError, match=ALIKE):
        simulate("krylov", [table[:25], table[25:]], n_components=1, **settings)


@pytest.mark.parametrize("center", [True, False])
def test_a_table_of_zeros_is_refused(center):
    with pytest.raises(DataError, match=r"from one another\. Got zeros only, or numbers whose squares"):
        simulate("krylov", [np.zeros((9, 3))], n_components=1, center=center)
    assert simulate("krylov", [np.ones((9, 3))], n_components=1, center=False).total_variance_ == pytest.approx(27 / 8)


@every("scale", [None, "std", "max_abs"])
@every("size", [1e-140, 1e-100, 1e60])
def test_rows_of_all_other_sizes_have_their_components(size, scale):
    reference = pooled([GOOD], scale=scale)
    result = simulate("krylov", np.array_split(GOOD * size, 3), n_components=2, scale=scale)
    assert sine(result.components_, reference.components[:2]) <= 1e-6


@pytest.mark.parametrize("scale", ["std", "max_abs"])
def test_a_column_that_is_too_small_to_be_scaled_is_named(scale):
    table = GOOD * [1.0, 1.0, 1e-160, 1.0, 1e-155]
    with pytest.raises(DataError, match=r"must be 1e-145 at least\. Got smaller columns 2, 4\. Scale them first\."):
        simulate("krylov", [table], n_components=1, scale=scale)
    assert simulate("krylov", [table], n_components=1).status.ok


HUGE = (
    r"The data of {} must be of usual size, at most 1e\+65, or 1e\+16 in single precision\. "
    r"Got a larger one in column 2\."
)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("settings", [{}, {"mask": True}, {"answers": "fixed"}], ids=str)
def test_entries_whose_squares_overflow_are_refused_with_whose_they_are(dense, settings):
    from scipy import sparse

    table = GOOD.copy()
    table[3, 2] = 1e300
    shards = [GOOD, table if dense else sparse.csr_array(table)]
    with pytest.raises(DataError, match=HUGE.format("client 1")):
        simulate("krylov", shards, n_components=1, **settings)


def test_a_node_says_so_and_the_others_go_on():
    table = GOOD.copy()
    table[3, 2] = -1e300
    strategy = PCAStrategy("krylov", n_components=1, min_nodes=2)
    grid = grid_of([GOOD, GOOD + 1.0, table])
    result = strategy.fit(grid)
    assert result.n_samples_ == 120
    (reason,) = {why for record in result.history for why in record.failures.values()}
    assert "must be of usual size, at most 1e+65, or 1e+16 in single precision. Got a larger one in column 2." in reason


@every("size", [1e-17, 1e-10, 1e15])
def test_single_precision_is_no_reason_to_refuse(size):
    result = simulate("krylov", [(GOOD * size).astype(np.float32)], n_components=2)
    assert sine(result.components_, pooled([GOOD]).components[:2]) <= 1e-5


def test_the_first_entry_that_is_no_number_is_named():
    table = GOOD.copy()
    table[17, 4] = table[30, 1] = np.nan
    with pytest.raises(
        DataError, match=r"2 NaN and 0 infinite entries\. The first is in row 17 \(from 0 on\), column 4\. I"
    ):
        simulate("krylov", [GOOD, table], n_components=1)
