"""Columns in which few rows have a value, or another than most: an honest sum is then one over these few."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, signed
from scipy import sparse

from flower_pca.names.sites import SiteRows

pytestmark = pytest.mark.usefixtures("home")

D, N = 6, 200
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
NAMES = tuple("abcdef")
LEAST = {"min_rows": 50}


def with_third_column(values):
    rows = X.copy()
    rows[:, 2] = values
    return rows


def first(count, value=1.0, others=0.0):
    return np.where(np.arange(N) < count, value, others)


COLUMNS = {  # what is in a column, and whether it tells of fewer than 50 rows
    "a constant": (first(0), False),
    "a rare code": (first(1), True),
    "a code of 49": (first(49), True),
    "a code of 50": (first(50), False),
    "half of them": (first(100), False),
    "all but one": (first(N - 1), True),
    "one value": (first(1, 7.25, np.nan), True),
    "no value": (first(0, 1.0, np.nan), False),
    "fifty values": (np.where(np.arange(N) < 50, RNG.standard_normal(N), np.nan), False),
    "three far from a constant": (first(3, 1e6, 5.0), True),
    "many values": (RNG.integers(0, 9, N).astype(float), False),
}


@pytest.mark.parametrize("how", COLUMNS)
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("at", [0, 1])
def test_a_column_that_tells_of_few_rows_is_refused_by_name_to_the_operator_alone(how, store, at, caplog):
    values, rare = COLUMNS[how]
    rows = with_third_column(values)[:: (1, -1)[at]]
    asked = {"stage": "opening", "arrays": {"peaks": False, "seed": 1, "width": 1, "gaps": False}}
    asked |= {"algorithm": "krylov"}
    asked["arrays"].pop("gaps")
    node = Node(0, SiteRows(store(rows), NAMES) if at else store(rows), **LEAST)
    if not rare:
        if np.isfinite(values).all():
            assert node.ask(**asked)["n"] == N
        return
    with pytest.raises(RefusedError, match="The columns of this node must be ones in which at least min_rows") as said:
        node.ask(**asked)
    assert "column c" not in str(said.value)
    assert "column 2" not in str(said.value)
    assert ("c" if at else "column 2") in caplog.text
    Node(0, rows, min_rows=50, rare_columns=True).client.get_properties({})


def test_the_carrier_of_a_rare_code_is_not_told_under_masks(tmp_path):
    parts = [with_third_column(first(0)) for _ in "123"]
    parts[2] = with_third_column(first(1))
    nodes = signed(tmp_path, parts, min_peers=2, **LEAST)
    with pytest.raises(RefusedError, match="The columns of this node must be ones"):
        Sums(nodes).product(np.eye(D)[:, 2:3])


def test_columns_that_the_operator_allows_are_answered_of():
    rows = SiteRows(with_third_column(first(1)), NAMES)
    for allowed in ("c", "a, c", ["c"], True):
        assert Node(0, rows, rare_columns=allowed, **LEAST).ask("ssi", {"Z": np.eye(D)})["Y"].shape == (D, D)
    with pytest.raises(RefusedError, match="The columns of this node"):
        Node(0, rows, rare_columns="a", **LEAST).ask("ssi", {"Z": np.eye(D)})
