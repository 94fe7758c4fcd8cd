"""Test that under `max_epsilon` only noise tells a table from one with an additional row.

Every option of a node, and every place where something changes with a row: few rows, no rows, rare values, text, gaps,
infinity. The answers have the same shapes and words, and with the noise known they differ by the clip squared at most.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
from dishonest import Node, request, signed
from fake_grid import Context, RecordDict
from test_profiles import BOUNDED, BUDGET, D, algorithm_of, every_question, noise_known

from flower_pca import registry
from flower_pca.app import _load_rows, _rules_of_node
from flower_pca.clients import Rules, app
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

RNG = np.random.default_rng(0)
NAMES = [*"abcdef"]
X = pd.DataFrame(RNG.standard_normal((60, D)) * 2.0, columns=NAMES)


def with_one_more(table, **cells):
    """The table with one row more, of which these cells are as said."""
    row = {**dict.fromkeys(table.columns, 0.5), **cells}
    return pd.concat([table.astype(object), pd.DataFrame([row]).astype(object)], ignore_index=True)


def with_carriers(count):
    """A column in which so many rows have another value than most."""
    return X.assign(f=(np.arange(len(X)) < count) * 1.0)


NEIGHBORS = {
    "an ordinary row": (X, with_one_more(X)),
    "a row that is far out": (X, with_one_more(X, a=1e9)),
    "a row beyond all squares": (X, with_one_more(X, a=1e300)),
    "text in a cell": (X, with_one_more(X, b="unknown")),
    "an empty cell": (X, with_one_more(X, b=None)),
    "a cell that is infinite": (X, with_one_more(X, b=np.inf)),
    "a number that is written as text": (X, with_one_more(X, b="7.5")),
    "the first row of all": (X.iloc[:0], X.iloc[:1]),
    "as many rows as columns": (X.iloc[: D - 1], X.iloc[:D]),
    "more rows than columns": (X.iloc[:D], X.iloc[: D + 1]),
    "as many rows as min_rows": (X.iloc[:19], X.iloc[:20]),
    "as many rows as a large min_rows": (X.iloc[:59], X),
    "the first carrier of a code": (with_carriers(0), with_one_more(with_carriers(0), f=1.0)),
    "as many carriers as min_rows": (with_carriers(19), with_one_more(with_carriers(19), f=1.0)),
    "the only person in whom two codes differ": (
        with_carriers(30).assign(e=(np.arange(60) < 30) * 1.0),
        with_one_more(with_carriers(30).assign(e=(np.arange(60) < 30) * 1.0), e=1.0, f=0.0),
    ),
    "the first value of a column": (X.assign(c=np.nan), with_one_more(X.assign(c=np.nan), c=1.0)),
    "the only text in a column of words": (X.assign(c="word"), with_one_more(X.assign(c="word"), c=1.0)),
}
OPTIONS = {
    "none": {},
    "the profile": {"profile": "private"},
    "rows": {"min_rows": 20},
    "many rows": {"min_rows": 60},
    "rare columns": {"min_rows": 20, "allow_sparse_columns": "f"},
    "any rare column": {"min_rows": 20, "allow_sparse_columns": True},
    "on_small_change": {"on_small_change": "refuse"},
    "constants": {"gap_values": 1.0},
    "constants by name": {"gap_values": "b=1.0,c=2.0"},
    "names": {"share_names": False},
    "own": {"share_local": True},
    "columns": {"max_columns": 10**6},
    "messages": {"max_messages": 100, "max_messages_ever": 100},
    "a name": {"data_name": "cohort"},
    "a record": {"run_record": True, "record_days": 30},
    "missing": {"missing": "mean"},
    "rows in place of statistics": {"answers": "rows"},
    "noise": {"min_noise": 1.0, "max_clip": 2.0},
}


def test_the_table_has_every_option_of_a_node():
    given = {name for rules in OPTIONS.values() for name in rules}
    elsewhere = {"max_epsilon", "max_delta", "memory_dir", "output_dir", "allow"}
    under_masks = {
        "masked_only",
        "single_masks",
        "sign_key",
        "trusted_keys",
        "max_colluders",
        "min_peers",
        "max_groups",
    }
    refused_beside = {"covariates", "categorical", "min_change", "id_column", "split_columns"}
    none_here = {"max_dropouts", "noise_seed", "allow_noise"}
    assert given | elsewhere | under_masks | refused_beside | none_here == {*Rules.__dataclass_fields__}


FRAMES = {
    "none": None,
    "of the server's": Frame(np.ones(D), np.full(D, 2.0)),
    "with fills": Frame(fill=np.full(D, 1e6)),
    "with own means": Frame(own=True),
}


def told_of(table, folder, rules, frame):
    """What a new node says to all that can be asked with noise: numbers, and all else."""
    numbers, words = [], []
    for stage, arrays in BOUNDED.items():
        node = Node(0, table, memory_dir=folder / stage, max_epsilon=9.0, max_delta=1e-6, **rules)
        framed = None if "opening" in stage else frame
        asked = request(stage, {**arrays, **BUDGET}, framed, "r", 0, algorithm_of(stage))
        answer, n, metrics = node.client.fit(*asked)
        assert "refusal" not in metrics, metrics
        numbers.append(np.concatenate([np.ravel(np.asarray(a, dtype=float)) for a in answer]))
        words.append((stage, n, [np.shape(a) for a in answer], {name: str(value) for name, value in metrics.items()}))
        words.append(str(node.client.get_properties({})))
    return numbers, words


@pytest.mark.slow
@pytest.mark.parametrize("rules", OPTIONS)
def test_one_row_more_changes_no_word_and_no_number_by_more_than_the_clip(rules, tmp_path):
    """Every option with every pair of neighbors, in frames that take turns."""
    turns = itertools.cycle(FRAMES)
    for place, (how, frame) in enumerate(zip(NEIGHBORS, itertools.islice(turns, len(rules), None), strict=False)):
        with noise_known():
            one, other = (
                told_of(table, tmp_path / f"{place}-{i}", OPTIONS[rules], FRAMES[frame])
                for i, table in enumerate(NEIGHBORS[how])
            )
        assert one[1] == other[1], how
        for a, b in zip(one[0], other[0], strict=True):
            assert np.isfinite(a).all(), how
            assert np.linalg.norm(a - b) <= 1.0 + 1e-6, (how, frame)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["text in a cell", "as many rows as min_rows", "the first carrier of a code"])
def test_one_row_more_in_a_file_that_is_read_again_changes_nothing_else(how, tmp_path):
    """The file of a node of the app, as `flwr run` starts it."""
    said = []
    for i, table in enumerate(NEIGHBORS[how]):
        table.to_csv(path := tmp_path / f"{i}.csv", index=False)
        config = {"data": str(path), "profile": "private", "memory-dir": str(tmp_path / f"of {i}"), "partition-id": 0}
        context = Context(1, 7, config, RecordDict(), {"algorithm": "ssi"})
        asked = request("ssi", {"Z": np.eye(D)[:, :1], **BUDGET}, None, "r", 0, "ssi")
        with noise_known():
            answer, n, metrics = app.NodeClients(_load_rows, _rules_of_node, {}).answer("fit", *asked, context)
        said.append((n, {name: str(value) for name, value in metrics.items()}, np.asarray(answer[0])))
    assert said[0][:2] == said[1][:2]
    assert np.linalg.norm(said[0][2] - said[1][2]) <= 1.0 + 1e-6


@pytest.mark.slow
def test_under_masks_a_table_that_cannot_be_used_says_the_same_as_one_that_can(tmp_path):
    """The set-up of masks, and the answer to it, are those of any table."""
    found = []
    for how in ("an ordinary row", "text in a cell", "the first row of all"):
        nodes = signed(tmp_path / how, [NEIGHBORS[how][1], X, X], max_epsilon=9.0, max_delta=1e-6)
        found.append(nodes[0].client.get_properties({}))
    assert found[0] == found[1] == found[2]


ANYTHING = (*registry.ALGORITHMS, *registry.TRACKERS, *registry.EXTRA_STAGES)
WITH_COVARIATES = (None, Frame(names=tuple("abcde"), covariates=Covariates(names=("f",))))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["text in a cell", "as many rows as min_rows", "the first carrier of a code"])
def test_no_other_message_is_answered_or_refused_otherwise_for_one_row_more(how, tmp_path):
    """Adjusting or harmonizing openings, standard errors, counts, gaps, names: every stage, with noise and without."""
    said = []
    for i, table in enumerate(NEIGHBORS[how]):
        rules = {"memory_dir": tmp_path / str(i), "max_epsilon": 9.0, "max_delta": 1e-6, "allow": ANYTHING}
        node, words = Node(0, table, min_rows=20, missing="mean", **rules), []
        for stage, arrays in every_question(D).items():
            for noised, frame in itertools.product(({}, BUDGET), WITH_COVARIATES):
                algorithm = algorithm_of(stage)
                asked = request(stage, {**arrays, **noised}, frame, f"{stage}", len(words), algorithm)
                answer, n, metrics = node.client.fit(*asked)
                words.append((stage, n, [np.shape(a) for a in answer], metrics.get("refusal")))
        said.append(words)
    assert said[0] == said[1]
    answered = {stage for stage, _, answer, _ in said[0] if answer}
    assert "ssi" in answered
    assert answered <= {*BOUNDED}
