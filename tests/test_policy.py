"""What a node may refuse: messages without masks, too many of them, blocks beyond a rank. It says so by name."""

import re
import stat

import numpy as np
import pytest
from builders import unequal
from fake_grid import grid_of, is_pca_of
from flwr.app import Context, RecordDict

from flower_pca import strategies, wire
from flower_pca.base import archive
from flower_pca.base.errors import ConfigError, NotEnoughNodes
from flower_pca.clients import PCAClient, client_app
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()
REFUSED = 2
OTHERS = [X for i, X in enumerate(SHARDS) if i != REFUSED]


def grid_with(rules, shards=SHARDS):
    """A grid of which one node has rules of its own."""
    grid = grid_of(shards)
    plain = grid.app
    strict = client_app(lambda context: shards[REFUSED], **rules)
    grid.app = lambda message, context: (strict if context.node_config["partition-id"] == REFUSED else plain)(
        message, context
    )
    return grid


def refusals(grid, result):
    """By round: the stage, and what the node has said."""
    node = str(grid.node(REFUSED))
    return [(r.stage, r.number, r.failures[node]) for r in result.history if node in r.failures]


def test_a_node_that_answers_in_masks_only():
    grid = grid_with({"masked_only": True})
    result = strategies.Krylov(n_components=2).fit(grid)
    ((stage, number, words),) = refusals(grid, result)
    assert (stage, number) == ("opening", 0)
    assert "A message to this node must be masked: masked_only is set. Got one without masks." in words
    assert is_pca_of(result, OTHERS)
    masked = strategies.Krylov(n_components=2, mask=True).fit(grid)
    assert is_pca_of(masked, SHARDS)


def test_a_node_that_answers_so_many_messages_in_a_run():
    grid = grid_with({"max_messages": 3})
    result = strategies.SSI(n_components=2, min_rounds=6).fit(grid)
    ((stage, number, words),) = refusals(grid, result)
    assert (stage, number) == ("ssi", 3)
    assert "The messages to this node in a run must be at most 3: that is its max_messages. Got one more." in words
    assert is_pca_of(result, OTHERS, angle=1e-4)


@pytest.mark.parametrize(("most", "round_"), [(3, 1), (4, 2), (7, 3), (10, None)])
def test_a_node_refuses_in_the_round_that_would_pass_its_rank(most, round_, tmp_path):
    """Two columns a round, of ten: the opening's two, then two new ones with every round of Krylov."""
    grid = grid_with({"max_rank": most, "memory_dir": tmp_path})
    seen = []

    def look(message, reply):
        if message.metadata.dst_node_id == grid.node(REFUSED):
            arrays = [a.numpy() for a in message.content["fitins.parameters"].values()]
            seen.append([a for a in arrays if a.shape == (10, 2)])
        return reply

    grid.tamper = look
    result = strategies.Krylov(n_components=2, oversample=0, min_rounds=3).fit(grid)
    said = refusals(grid, result)
    blocks = [b for message in seen for b in message]
    if round_ is None:
        assert said == []
        return
    ((stage, number, words),) = said
    assert (stage, number) == ("krylov", round_)
    told = 2 + np.linalg.matrix_rank(np.hstack(blocks[:round_]))
    assert f"must be at most {most}: that is its max_rank. Got {told} with this message" in words
    assert is_pca_of(result, OTHERS, angle=1e-4)


def test_what_was_told_is_remembered_from_run_to_run_until_the_rows_change(tmp_path):
    rules = {"max_rank": 7, "memory_dir": tmp_path}
    first = grid_with(rules)
    assert refusals(first, strategies.UDA(n_components=2).fit(first)) == []
    (path,) = tmp_path.glob("flower_pca-ledger-*.npz")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = grid_with(rules)
    again = strategies.UDA(n_components=2).fit(second)  # the same block and the same answer: nothing is told anew
    assert refusals(second, again) == []
    third = grid_with(rules)
    ((stage, number, words),) = refusals(third, strategies.UDA(n_components=2, seed=5).fit(third))
    assert (stage, number) == ("opening", 0)
    assert "max_rank" in words
    changed = [X + (i == REFUSED) for i, X in enumerate(SHARDS)]
    fourth = grid_with(rules, changed)
    assert refusals(fourth, strategies.UDA(n_components=2, seed=5).fit(fourth)) == []


def ask(node, stage, arrays, *, algorithm=None, frame=None):
    """A node's answer by name, or its refusal."""
    given = Broadcast(stage, 0, {name: np.asarray(a) for name, a in arrays.items()}, frame or Frame(), (1,))
    sent = wire.write_request(given, 1, algorithm=algorithm or stage, run="r", extra={})
    arrays, _, metrics = node.fit(*wire.open_request(sent, "train"))
    return metrics.get("refusal") or dict(zip(metrics["names"].split(","), arrays, strict=True))


X = SHARDS[REFUSED]
I = np.eye(X.shape[1])
JUNK = {"junk": I[:, :1]}
PERSONAL = {"U": I[:, :1], "b": I[:, :1], "own": 4, "exact": True, "steps": 0, "collect": True}
TOLD = [  # a message with a single block of one column, and how many directions of C_i the answer tells
    ("covariance", {"columns": 10}, "covariance", 10),
    ("covariance", {"columns": 10, **JUNK}, "covariance", 10),
    ("uda", {"rank": 6, "weighted": False, **JUNK}, "uda", 6),
    ("wda", {"rank": 6, "weighted": True, **JUNK}, "wda", 6),
    ("dist_pca", {"rank": 6, "weighted": False, **JUNK}, "dist_pca", 6),
    ("local_power", {"Z": I[:, :1], "steps": 4, "aligned": True}, "local_power", 2),
    ("local_power", {"Z": I[:, :1], "steps": 4, "aligned": False}, "local_power", 1),
    ("local_power", {"Z": I[:, :1], "steps": 1, "aligned": False}, "local_power", 1),
    ("faps", {"Z": I[:, :2], "inner_steps": 1, "inner_tol": 0.0}, "faps", 2),
    ("dr_svd", {"step": 1, "block": I[:, :2]}, "dr_svd", 2),
    ("dr_svd", {"step": 2, "block": I[:, :2], "part": np.ones((2, 2))}, "dr_svd", 2),
    ("per_pca", {"measure": True}, "per_pca", 1),
    ("per_pca", {"k": 5, "scaled": True, "samples": True, **JUNK}, "per_pca", 5),
    ("personal", {**PERSONAL}, "per_pca", 6),  # of U, of the probe, and four of its own
    ("opening", {"block": I[0], "peaks": False}, "krylov", 1),
    ("ssi", {"Z": I * np.logspace(0, -200, 10)}, "ssi", 10),
]


@pytest.mark.parametrize(("stage", "asked", "algorithm", "told"), TOLD)
def test_what_an_answer_tells_counts_beside_the_blocks(stage, asked, algorithm, told, tmp_path):
    rules = {"memory_dir": tmp_path, "share_own": True}
    if told > 1:
        node = PCAClient(X, context=context(), max_rank=told - 1, **rules)
        answer = ask(node, stage, asked, algorithm=algorithm)
        assert f"must be at most {told - 1}: that is its max_rank. Got {told} with this message" in str(answer)
    assert isinstance(
        ask(PCAClient(X, context=context(), max_rank=told, **rules), stage, asked, algorithm=algorithm), dict
    )
    (file,) = tmp_path.glob("flower_pca-ledger-*.npz")
    header, arrays = archive.read(file, "ledger of a node")
    assert arrays["known."].shape[1] + header["beside"][""] == told or told == 10


def test_the_very_same_answer_counts_once_and_any_other_as_what_it_is(tmp_path):
    """However little it differs from one before, and wherever it lies."""
    node = PCAClient(X, context=context(), max_rank=3, memory_dir=tmp_path)
    asked = {"Z": I[:, :1], "steps": 3, "aligned": False}
    for _ in range(5):
        first = ask(node, "local_power", asked)["Y"]
    for size in (1e-13, 1e-9):
        assert np.allclose(ask(node, "local_power", {**asked, "Z": I[:, :1] + size * I[:, 1:2]})["Y"], first)
    assert "max_rank. Got 4" in ask(node, "local_power", {**asked, "Z": I[:, :1] + 1e-12 * I[:, 1:2]})
    assert isinstance(ask(node, "local_power", asked), dict)
    assert "max_rank. Got 4" in ask(node, "ssi", {"Z": first})  # a product with what was told is not told with it


def test_own_components_that_are_not_sent_do_not_count(tmp_path):
    """U does, and the error of a row as a figure."""
    node = PCAClient(X, context=context(), max_rank=2, memory_dir=tmp_path)
    assert ask(node, "personal", PERSONAL, algorithm="per_pca")["V"].shape == (10, 0)


@pytest.mark.parametrize("apart", [5e-9, 1e-11])
def test_columns_that_only_look_alike_count(apart, tmp_path):
    """In double precision C_i z and C_i (z + apart e_j) tell C_i e_j."""
    node = PCAClient(X, context=context(), max_rank=4, memory_dir=tmp_path)
    z = I[:, :1]
    answers = [ask(node, "ssi", {"Z": z + apart * I[:, j : j + 1]}) for j in range(1, 6)]
    assert [isinstance(answer, dict) for answer in answers] == [True] * 4 + [False]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_block_that_comes_again_in_another_basis_does_not_count(dtype, tmp_path):
    rng = np.random.default_rng(4)
    node = PCAClient(X.astype(dtype), context=context(), max_rank=4, memory_dir=tmp_path)
    Z = np.linalg.qr(rng.standard_normal((10, 4)))[0]
    scale = Frame(None, np.exp(rng.standard_normal(10)))
    for frame in (Frame(), Frame(rng.standard_normal(10)), scale):
        block = Z if frame is not scale else Z * scale.scale[:, None]
        for _ in range(5):
            turned = block @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
            assert isinstance(ask(node, "ssi", {"Z": turned}, frame=frame), dict)


def test_the_blocks_remembered_stay_orthonormal(tmp_path):
    """Directions that were told by tiny differences are known roughly only; the next ones are measured against them."""
    node = PCAClient(X, context=context(), max_rank=10, memory_dir=tmp_path)
    rng = np.random.default_rng(5)
    z = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    for size in (0.0, 1e-13, 1e-12, 1e-10, 1e-6, 1.0):
        assert isinstance(ask(node, "ssi", {"Z": z + size * rng.standard_normal((10, 2))}), dict)
    with np.load(next(tmp_path.glob("flower_pca-ledger-*.npz"))) as file:
        told = file["known."]
    assert told.shape == (10, 10)
    assert np.allclose(told.T @ told, I, atol=1e-12)


@pytest.mark.parametrize(("most", "refused"), [(4, True), (5, False)])
def test_under_masks_the_rank_is_that_of_what_the_group_tells(most, refused, tmp_path):
    """The opening's two columns, the two of one round, and of the two that close the run the one that is new."""
    grid = grid_with({"max_rank": most, "memory_dir": tmp_path})
    result = strategies.SSI(n_components=2, oversample=0, max_rounds=1, mask=True).fit(grid)
    said = refusals(grid, result)
    assert bool(said) == refused
    assert all("must be at most 4: that is its max_rank. Got 5 with this message" in words for _, _, words in said)


def test_the_rank_is_that_of_blocks_in_the_units_of_the_rows(tmp_path):
    """Under a scale a block Z asks for the product with Z / scale: columns that only look alike count twice."""
    grid = grid_with({"max_rank": 10, "memory_dir": tmp_path})
    strategies.SSI(n_components=2, scale="std").fit(grid)
    with np.load(next(tmp_path.glob("flower_pca-ledger-*.npz"))) as file:
        told = file["known."]
    assert np.allclose(told.T @ told, np.eye(told.shape[1]), atol=1e-12)
    assert 2 < told.shape[1] <= 10


def test_under_masks_a_refusal_does_not_tell_the_number_of_rows():
    grid = grid_with({"min_rows": 1000})
    result = strategies.Krylov(n_components=2, mask=True).fit(grid)
    ((stage, _, words),) = refusals(grid, result)
    assert stage == "mask.keys"
    assert "must be at least 1000. Got fewer." in words
    assert is_pca_of(result, OTHERS)


def test_too_many_refusals_end_the_run():
    with pytest.raises(NotEnoughNodes, match="masked_only is set"):
        strategies.Krylov(n_components=2).fit(grid_of(SHARDS, masked_only=True))


def context():
    return Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"max_messages": 0}, "max_messages must be a whole number of at least 1. Got 0."),
        ({"max_messages": 3}, "max_messages must be used with the node's context. Got no context."),
        ({"max_rank": 0}, "max_rank must be a whole number of at least 1. Got 0."),
        ({"masked_only": "yes"}, "masked_only must be one of True, False. Got 'yes'."),
        ({"share_own": "false"}, "share_own must be one of True, False. Got 'false'. Choose one of these, without"),
    ],
)
def test_wrong_rules_are_refused_at_construction(rules, words):
    rules = {name: value() if name == "context" else value for name, value in rules.items()}
    with pytest.raises(ConfigError, match=re.escape(words)):
        PCAClient(SHARDS[0], **rules)
