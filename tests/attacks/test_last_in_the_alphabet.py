"""Of columns in a combination, no run gets the one whose name comes last, wherever it is in the file."""

import itertools

import numpy as np
import pytest
from test_rare_columns import HALF, THIRD, X, but_for

from flower_pca.clients import Rules
from flower_pca.clients.policy import small_cells
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

COLUMNS = {"pair": (HALF, but_for(1, HALF)), "three": (HALF, THIRD, but_for(1, HALF + THIRD))}


@pytest.mark.parametrize("names", [("dia", "ins", "zoo"), ("Zoo", "dia", "ins"), ("10", "9", "a"), ("2nd", "B", "a")])
@pytest.mark.parametrize("how", COLUMNS)
def test_the_last_by_name_is_the_one_that_no_run_gets(how, names):
    """In the alphabet digits come first, then capital letters, then small ones."""
    codes = COLUMNS[how]
    names = names[: len(codes)]
    for order in itertools.permutations(names):
        rows = Table(np.column_stack([X[:, :1], *codes]), ("age", *order))
        assert set(small_cells.revealing_columns(LocalData(rows), Rules(min_rows=20))) == {names[-1]}
