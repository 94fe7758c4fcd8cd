"""Test nodes that allow monitoring against a server that asks for other distances of every row."""

import numpy as np
import pytest
from cases import every
from dishonest import Node, RefusedError

X = np.random.default_rng(0).standard_normal((60, 6))
Z = np.eye(6)[:, :2]
ASKED = {
    "Z": Z,
    "variances": np.ones(2),
    "rest": np.array(1.0),
    "values": np.empty(0),
    "mean_rest": np.array(1.0),
    "rows": np.array(60.0),
    "centered": np.array(1.0),
    "deviation": np.array(0.0),
}
WITHOUT_EACH = {**ASKED, "values": np.full(2, 60.0)}
BY_ROW = np.full((60, 2), 1e30)
BY_ROW[17] = 1.0  # All other rows are tiny, so anything counted further out is this row.


@every(
    "changed",
    [
        {"variances": BY_ROW},
        {"variances": BY_ROW[:, :1]},
        {"variances": np.ones(1)},
        {"variances": np.array(1.0)},
        {"variances": np.ones((1, 2))},
        {"rest": BY_ROW[:, 0]},
        {"Z": Z[:, 0], "variances": np.array(1.0)},
        {"Z": Z[:4]},
        {"values": BY_ROW},
        {"values": BY_ROW[:, 0]},
        {"mean_rest": BY_ROW[:, 0]},
        {"rows": BY_ROW[:, 0]},
        {"values": np.full(2, 60.0), "rows": np.array(59.0)},
    ],
)
def test_a_unit_is_of_a_component_and_never_of_a_row(changed):
    node = Node(0, X, allow=["krylov", "monitor"])
    for asked in (ASKED, WITHOUT_EACH):
        assert node.ask("monitor", asked, algorithm="krylov+monitor")["counts"].sum() == 2 * len(X)
    shapes = "must be a vector|must be one number|must be a matrix|of the server's message is for 4"
    with pytest.raises(RefusedError, match=rf"a variance of each, and sums of squares|{shapes}"):
        node.ask("monitor", {**ASKED, **changed}, algorithm="krylov+monitor")


def test_numbers_near_the_largest_ones_are_no_error_that_tells_of_rows():
    node = Node(0, X, allow=["krylov", "monitor"])
    for changed in ({"values": np.full(2, 1e149)}, {"Z": 1e59 * Z}, {"mean_rest": np.array(1e149)}):
        counts = node.ask("monitor", {**WITHOUT_EACH, **changed}, algorithm="krylov+monitor")["counts"]
        assert counts.sum() == 2 * len(X)
