"""Test what a node may refuse by name: messages without masks, too many messages, too many numbers."""

import stat

import numpy as np
import pytest
from builders import unequal
from fake_grid import FakeGrid, context, grid_of, is_pca_of

from flower_pca import strategies, wire
from flower_pca.base import files
from flower_pca.clients import PCAClient, client_app
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.rows.stream import Stream

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()
REFUSED = 2
OTHERS = [X for i, X in enumerate(SHARDS) if i != REFUSED]


def grid_with_strict(rules, shards=SHARDS):
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


@pytest.mark.slow
def test_a_node_that_answers_in_masks_only():
    grid = grid_with_strict({"masked_only": True})
    result = strategies.Krylov(n_components=2).fit(grid)
    ((stage, number, words),) = refusals(grid, result)
    assert (stage, number) == ("opening", 0)
    assert "This node answers masked messages only, because its rule masked-only is set." in words
    assert is_pca_of(result, OTHERS)
    masked = strategies.Krylov(n_components=2, mask=True).fit(grid)
    assert is_pca_of(masked, SHARDS)


@pytest.mark.slow
def test_a_node_that_answers_so_many_messages_in_a_run():
    grid = grid_with_strict({"max_messages": 3})
    result = strategies.SSI(n_components=2, min_rounds=6).fit(grid)
    ((stage, number, words),) = refusals(grid, result)
    assert (stage, number) == ("ssi", 3)
    assert "This node answers at most 3 messages in a run (its rule max-messages)." in words
    assert is_pca_of(result, OTHERS, angle=1e-4)


def ask_client(node, stage, arrays, *, algorithm=None, frame=None):
    """A node's answer by name, or its refusal."""
    given = Broadcast(stage, 0, {name: np.asarray(a) for name, a in arrays.items()}, frame or Frame(), (1,))
    sent = wire.write_request(given, 1, algorithm=algorithm or stage, run="r", extra={})
    arrays, _, metrics = node.fit(*wire.open_request(sent, "train"))
    return metrics.get("refusal") or dict(zip(metrics["names"].split(","), arrays, strict=True))


X = SHARDS[REFUSED]
I = np.eye(X.shape[1])


@pytest.mark.slow
def test_under_masks_a_refusal_does_not_tell_the_number_of_rows():
    grid = grid_with_strict({"min_rows": 1000})
    result = strategies.Krylov(n_components=2, mask=True).fit(grid)
    ((stage, _, words),) = refusals(grid, result)
    assert stage == "mask.keys"
    assert "This node has fewer rows than its min_rows, 1000." in words
    assert is_pca_of(result, OTHERS)


def test_a_name_of_the_masks_is_nothing_in_a_message_without_them():
    node = PCAClient(SHARDS[0])
    words = ask_client(node, "ssi", {"Z": I[:, :2], "mask.x": np.ones(3)})
    assert "A message for ssi has the array mask.x, but should have only Z" in words


COLUMNS = [  # a message and how many columns of ten numbers its answer has
    ("ssi", {"Z": I[:, :3]}, "ssi", 3),
    ("opening", {"peaks": False, "seed": 1, "width": 2}, "krylov", 5),  # mean, squares, the product, and a figure
    ("covariance", {"columns": 10}, "covariance", 6),
    ("wda", {"rank": 6, "weighted": True}, "wda", 7),
    ("local_power", {"Z": I[:, :1], "steps": 4, "aligned": True}, "local_power", 2),
]


@pytest.mark.parametrize(("stage", "asked", "algorithm", "columns"), COLUMNS)
def test_columns_that_leave_are_counted_as_they_leave(stage, asked, algorithm, columns, tmp_path):
    def node(most):
        return PCAClient(X, context=context(), max_columns=most, memory_dir=tmp_path)

    if columns > 1:
        words = str(ask_client(node(columns - 1), stage, asked, algorithm=algorithm))
        sent = f"{columns} columns of numbers would have left this node over all runs"
        assert f"{sent}, but its max_columns is {columns - 1}" in words
    said = [
        ask_client(node(2 * columns), stage, asked, algorithm=algorithm) for _ in range(3)
    ]  # The same message again counts again.
    assert [isinstance(answer, dict) for answer in said] == [True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_columns_are_counted_over_runs_plain_or_masked(mask, tmp_path):
    """An opening of 2 + 2 columns and a figure, under masks of 2 + 4, and a round of 2."""
    used = 8 if mask else 7
    rules = {"max_columns": 2 * used, "memory_dir": tmp_path}

    def run():
        grid = grid_with_strict(rules)
        return refusals(grid, strategies.SSI(n_components=2, oversample=0, max_rounds=1, mask=mask).fit(grid))

    assert run() == run() == []
    (path,) = tmp_path.glob("flower_pca-ledger-*.npz")
    assert files.read(path, "ledger of a node", private=True)[0]["columns"] == 2 * used
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "but its max_columns is" in run()[0][2]


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_columns_of_a_stream_that_does_not_know_them_are_those_of_its_batches(mask, tmp_path):
    def columns(streams, folder):
        app = client_app(
            lambda context: streams[context.node_config["partition-id"]],
            max_columns=99,
            memory_dir=folder,
            allow=["st_miss"],
        )
        strategies.TrackingStrategy("st_miss", n_components=1, steps=2, mask=mask).fit(FakeGrid(app, len(streams)))
        return [
            files.read(p, "ledger of a node", private=True)[0]["columns"] for p in sorted(folder.glob("*ledger*.npz"))
        ]

    batches = [[X[20 * i : 20 * i + 20] for i in range(2)] for X in SHARDS[:2]]
    known = columns([Stream(of) for of in batches], tmp_path / "known")
    unknown = columns([Stream(lambda t, of=of: of[t]) for of in batches], tmp_path / "unknown")
    assert unknown == known
