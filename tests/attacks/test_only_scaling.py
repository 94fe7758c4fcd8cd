"""Test that a node that serves only means and deviations reveals nothing else."""

import numpy as np
import pytest
from cases import every
from dishonest import Node, RefusedError, Sums

from flower_pca.rows.frame import Frame

D = 5
X = np.random.default_rng(2).standard_normal((60, D)) * np.arange(1.0, 1.0 + D)
U = np.eye(D)[:, :2]
NO_BLOCK = {"seed": 0, "width": 0, "peaks": False}
TEXT = "standardize may ask nodes only for counts, means and deviations"
MORE = {
    "width": ("opening", {**NO_BLOCK, "width": D}),
    "block": ("opening", {"block": np.eye(D), "peaks": False}),
    "both": ("opening", {**NO_BLOCK, "block": np.eye(D)}),
    "ritz": ("ritz", {"Z": U}),
    "evaluate": ("evaluate", {"Z": U}),
}


@every("asked", MORE)
@every("allow", ["standardize", None])
def test_a_node_that_serves_only_scaling_reveals_no_product(asked, allow):
    stage, arrays = MORE[asked]
    node = Node(0, X, **({} if allow is None else {"allow": allow}))
    assert node.ask("opening", NO_BLOCK, algorithm="standardize")["product"].shape == (D, 0)
    with pytest.raises(RefusedError, match=TEXT):
        node.ask(stage, arrays, Frame(), algorithm="standardize")


REFERENCE = {"reference": np.zeros(D), "peaks": np.array(False), "seed": np.array(0), "width": np.array(D)}


@pytest.mark.parametrize(("stage", "arrays"), [("summed_opening", REFERENCE), ("ritz", {"Z": U})])
def test_a_node_that_serves_only_scaling_reveals_no_product_under_masks(stage, arrays):
    sums = Sums([Node(i, X + i, allow="standardize") for i in range(3)], algorithm="standardize")
    parts = {"Y": (D, 2)}
    with pytest.raises(RefusedError, match=TEXT):
        sums.sum(stage, arrays, parts, dict.fromkeys(parts, 1e6))
