"""Test that a discreet node refuses without saying what was found in its rows, or where."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, request
from test_profiles import algorithm_of, every_question

from flower_pca import wire
from flower_pca.base.errors import DataError
from flower_pca.clients.policy.refusals import words_for_server
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame

D = 6
RNG = np.random.default_rng(8)
ROWS = RNG.standard_normal((60, D))
NAMES = ("viral load", "body mass", "years", "income", "postcode", "smoker")
FRAMES = {"none": None, "names": Frame(names=NAMES), "fills": Frame(fill=np.zeros(D)), "own": Frame(own=True)}


def spoilt_at(places, value):
    rows = ROWS.copy()
    for i, j in places:
        rows[i, j] = value
    return rows


# Two tables that are wrong in the same way, at other places, and in other numbers of cells.
ALIKE = {
    "gaps": (spoilt_at([(3, 1)], np.nan), spoilt_at([(40, 4), (41, 4), (2, 0)], np.nan)),
    "infinite": (spoilt_at([(3, 1)], np.inf), spoilt_at([(40, 4), (2, 0)], -np.inf)),
    "huge": (spoilt_at([(3, 1)], 1e90), spoilt_at([(40, 4), (2, 0)], -3e120)),
    "empty columns": (spoilt_at([(i, 1) for i in range(60)], np.nan), spoilt_at([(i, 4) for i in range(60)], np.nan)),
    "constant columns": (spoilt_at([(i, 1) for i in range(60)], 2.5), spoilt_at([(i, 4) for i in range(60)], 7.0)),
    "the same row": (np.tile(ROWS[:1], (60, 1)), np.tile(ROWS[5:6], (41, 1))),
    "zeros": (np.zeros((60, D)), np.zeros((33, D))),
    "one row": (ROWS[:1], ROWS[7:8]),
}


def errors_of(rows):
    """What goes wrong at a node that serves everything, by stage and frame, before words are chosen for the server."""
    found = {}
    node = Node(0, Table(rows, NAMES), allow=allowed_names(), missing="mean")
    for stage, arrays in every_question(D).items():
        for how, frame in FRAMES.items():
            try:
                asked = wire.read_request(*request(stage, arrays, frame, "r", 0, algorithm_of(stage)))
                node.start()
                node.client._answer(asked)
            except Exception as error:
                found[stage, how] = error
    return found


@pytest.mark.parametrize("how", ALIKE)
def test_words_about_rows_are_the_same_whichever_rows_are_spoilt(how):
    first, second = map(errors_of, ALIKE[how])
    assert first.keys() == second.keys()
    for asked, error in first.items():
        one, other = words_for_server(error, hides_reasons=True), words_for_server(second[asked], hides_reasons=True)
        assert one == other, asked
        if isinstance(error, DataError):
            assert not [name for name in NAMES if name in one], asked


def test_only_a_discreet_node_keeps_details_of_rows_to_itself():
    errors = [error for how in ALIKE for error in errors_of(ALIKE[how][0]).values() if isinstance(error, DataError)]
    assert len(errors) > 20
    assert any(words_for_server(e, hides_reasons=False) != words_for_server(e, hides_reasons=True) for e in errors)


@pytest.mark.parametrize(
    ("rule", "value", "only"),
    [
        ("masked_only", True, "masked messages only"),
        ("min_noise", 1.0, "only with noise"),
        ("max_clip", 1.0, "only with noise"),
    ],
)
def test_a_node_with_such_a_rule_is_discreet(rule, value, only):
    node = Node(0, Table(ALIKE["gaps"][0], NAMES), **{rule: value})
    free = node.client._refusal(DataError("Row 3 has no value in column viral load."), {})
    assert "viral load" not in free["refusal"]
    assert "its own log says why" in free["refusal"]
    with pytest.raises(RefusedError, match=f"^This node answers {only}"):
        node.ask("ssi", {"Z": np.eye(D)[:, :1]})
