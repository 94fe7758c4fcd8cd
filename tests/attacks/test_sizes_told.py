"""Test that memory limits and refusals do not reveal how many rows a node has."""

import numpy as np
import pytest
from dishonest import NUMBERS, Node, RefusedError
from fake_grid import Context  # noqa: F401  # imports Flower and suppresses its warnings

from flower_pca.masking import messages
from flower_pca.masking.group import new_setup_id
from flower_pca.masking.messages import Phase
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation

D = 3000
RNG = np.random.default_rng(4)
KEYS = {"mask.step": int(Phase.KEYS), "mask.single": False}
NOISE = {"dp.clip": 1.0, "dp.noise": 10.0, "dp.budget": 1.0}


def words_of_node(rows, stage, arrays, *, split=None, **rules):
    """What a node says to a message, if it is no answer."""
    node = Node(0, rows, **rules)
    try:
        node.ask(stage, arrays, Frame(split=split), run="sizes", number=next(NUMBERS), algorithm="krylov")
    except RefusedError as error:
        return str(error)
    return ""


def all_said(n, stage, arrays, **more):
    """What nodes of so many rows, or columns of so many, say to widths from 1 to D."""
    table = np.random.default_rng(n).standard_normal((D, n) if more.get("split") else (n, D))
    return [words_of_node(table, stage, {**arrays, "width": w}, **more) for w in (1, 500, 600, 700, 900, 1100, 2000, D)]


@pytest.mark.parametrize(("few", "many"), [(33, 63), (129, 250)])
def test_under_masks_a_node_of_more_rows_says_the_same(few, many):
    stage = {"mask.step": 2, "mask.setup": new_setup_id(), "mask.stage": messages.bytes_as_array(b"summed_opening")}
    asked = {**stage, "reference": np.zeros(D), "peaks": False, "seed": 1}
    told = all_said(few, messages.STAGE, asked)
    assert "whose memory limit depends on its number of rows" in told[-1]
    assert told == all_said(many, messages.STAGE, asked)


def test_over_columns_a_party_of_more_columns_says_the_same():
    more = {"split": ColumnPreparation(), "split_columns": True}
    few, many = (np.random.default_rng(n).standard_normal((D, n)) for n in (9, 15))
    told = words_of_node(few, "covariance", {"columns": D}, **more)
    assert "for which this node has too little memory" in told
    assert told == words_of_node(many, "covariance", {"columns": D}, **more)


def test_under_noise_a_node_of_any_rows_says_the_same():
    few, many = (np.random.default_rng(n).standard_normal((n, D)) for n in (20, 260))
    told = words_of_node(few, "covariance", {"columns": D, **NOISE})
    assert "for which this node has too little memory" in told
    assert told == words_of_node(many, "covariance", {"columns": D, **NOISE})
