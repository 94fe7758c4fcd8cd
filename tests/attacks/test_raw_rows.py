"""Test what every node prevents: products of raw rows, parts that reveal one row, and numbers that compare rows."""

import numpy as np
import pytest
from cases import every
from dishonest import Node, RefusedError, Sums, signed

from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

D = 12
RNG = np.random.default_rng(5)
SHARDS = [RNG.standard_normal((90 + 5 * i, D)) * 0.8 ** np.arange(D) + 0.1 * i for i in range(4)]
X = SHARDS[0]
ONE = np.eye(D)[:, :1]
SUMMED = {"n": (), "single": (), "rows": (), "sums": (D,), "squares": (D,), "product": (D, 1)}


@pytest.mark.slow
def test_a_masked_opening_is_of_raw_rows(tmp_path):
    asked = {"reference": np.zeros(D), "peaks": False, "block": ONE}
    sums, bounds = Sums(signed(tmp_path, SHARDS), algorithm="krylov"), dict.fromkeys(SUMMED, 1e8)
    with pytest.raises(RefusedError, match="The opening of a run needs raw rows"):
        sums.sum("summed_opening", asked, SUMMED, bounds, frame=Frame(scale=np.full(D, 2.0)))
    sums = Sums(signed(tmp_path / "own", SHARDS), algorithm="krylov")
    sums.sum("summed_opening", asked, SUMMED, bounds, frame=Frame(own=True))


# What is no product with a block of the message: from a block of one column to a message, and how many directions more
# an answer counts for.


@pytest.mark.parametrize(
    ("stage", "asked", "shapes"),
    [
        ("uda", {"rank": 2, "weighted": False}, {"V": (D, 2)}),
        ("wda", {"rank": 2, "weighted": True}, {"V": (D, 2), "S": (2,)}),
        ("dr_svd", {"step": 1, "block": ONE}, {"R": (1, 1)}),
        ("dr_svd", {"step": 2, "block": ONE, "part": np.eye(1)}, {"B": (D, 1)}),
        ("local_power", {"Z": ONE, "steps": 5, "aligned": True}, {"Y": (D, 1), "n": (), "X": (D, 1)}),
        ("per_pca", {"measure": True}, {"norm": ()}),
    ],
)
def test_what_is_no_sum_is_refused_under_masks(stage, asked, shapes, tmp_path):
    """No strategy of ours asks for it."""
    sums = Sums(signed(tmp_path, SHARDS, allow=[stage]), algorithm=stage)
    with pytest.raises(RefusedError, match=f"A masked {stage} with these arrays would reveal a node's own results"):
        sums.sum(stage, asked, shapes, dict.fromkeys(shapes, 1e6))


WAYS = [
    ("ssi", "Z", {}, "Y"),
    ("ritz", "Z", {}, "Y"),
    ("krylov", "B", {}, "S"),
    ("opening", "block", {"peaks": False}, "product"),
]


@every("size", [1e60, 1e75, 1e139])
@every(("stage", "named", "extra", "key"), WAYS)
def test_no_refusal_compares_a_product_with_a_number_of_the_server(stage, named, extra, key, size):
    """A node of another size says the same: what is refused is the message, not what it makes of the rows."""
    algorithm, said = stage if stage in ("ssi", "krylov") else "krylov", set()
    for rows in (X, 1e12 * X, 1e-12 * X):
        node = Node(0, rows)
        try:
            node.ask(stage, {named: size * ONE, **extra}, algorithm=algorithm)
            said.add("answered")
        except RefusedError as error:
            said.add(str(error))
    if size > 1e60:
        assert said == {
            f"The array {named} of the server's message has entries above 1e+60. The server may run another version "
            "of flower_pca. "
            "Install the same version everywhere."
        }
    else:
        assert said == {"answered"}
