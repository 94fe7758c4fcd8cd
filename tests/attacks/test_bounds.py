"""Test that a client's refusal of a bound does not reveal the size of its answer.

Under masks the bounds of fixed point are the server's. What it asks costs a set-up, and where a node counts losses, it
says so once and no more.
"""

import numpy as np
import pytest
from dishonest import RefusedError, Sums, signed

from flower_pca.base import labels
from flower_pca.rows.frame import Frame

D = 8
RNG = np.random.default_rng(5)
SHARDS = [RNG.standard_normal((60, D)) * size for size in (1.0, 3.0, 2.0)]
ONE = np.eye(D)[:, :1]
LARGEST = 1  # The first node to reach a bound
TRUE = float(np.abs(SHARDS[LARGEST].T @ (SHARDS[LARGEST] @ ONE)).max())


def keeps_to(nodes, bound):
    """Whether all nodes have kept to a bound, by a set-up of its own; the node that has not says so by name."""
    sums, shapes = Sums(nodes), {"Y": (D, 1), "n": ()}
    try:
        sums.sum("ssi", {"Z": ONE}, shapes, {"Y": bound, "n": 1e6})
    except RefusedError as error:
        if "This node cannot answer from its rows" not in str(error):
            raise
        return False
    return True


def bisected(nodes, questions):
    low, high = 0.0, 1e6
    for _ in range(questions):
        middle = (low + high) / 2.0
        low, high = (low, middle) if keeps_to(nodes, middle) else (middle, high)
    return (low + high) / 2.0


@pytest.mark.slow
def test_by_default_halving_finds_the_size_of_an_entry(tmp_path):
    """What docs/masked-sums.md says of it, and that it takes a set-up for each question."""
    nodes = signed(tmp_path, SHARDS)
    assert abs(bisected(nodes, 19) / TRUE - 1.0) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 2])
def test_max_dropouts_ends_a_search_by_halving(lost, tmp_path):
    nodes, refused = signed(tmp_path, SHARDS, max_groups=1, max_dropouts=lost), 0
    assert keeps_to(nodes, 1e6)
    words = ""
    while not words:
        try:
            assert not keeps_to(nodes, 1e-3)
            refused += 1
        except RefusedError as error:
            words = str(error)
        for node in nodes:
            node.start()  # A new run of Flower changes nothing.
    assert refused == lost + 1
    assert words == (
        f"{labels.count(refused, 'masked sum')} had to be formed without an answer from this node, but its rule "
        f"max-dropouts allows only {lost}. Each such sum reveals how large the node's answer is. Ask the node's "
        "operator to raise max-dropouts."
    )
    with pytest.raises(RefusedError, match="had to be formed without an answer from this node"):
        keeps_to(nodes, 1e6)  # The node could keep to this bound.


@pytest.mark.slow
@pytest.mark.parametrize("frame", [Frame(scale=np.full(D, 1e-150)), Frame(mean=np.full(D, 1e150))])
def test_an_answer_that_overflows_counts_as_a_dropout(frame, tmp_path):
    """A scale or a mean that sends one client beyond all numbers, and others not, compares them as a bound does."""
    nodes = signed(tmp_path, SHARDS, max_groups=1)
    sums, shapes = Sums(nodes), {"Y": (D, 1), "n": ()}
    asked = {"bounds": {"Y": 0.0, "n": 1e6}, "frame": frame}
    with pytest.raises(RefusedError, match="This node cannot answer from its rows, and its own log says why"):
        sums.sum("ssi", {"Z": 1e60 * ONE}, shapes, **asked)
    assert sums.send(0, {"mask.step": 2, "mask.number": 0}).keys() == {"mask.lost"}
    with pytest.raises(RefusedError, match="max-dropouts"):
        Sums(nodes)
