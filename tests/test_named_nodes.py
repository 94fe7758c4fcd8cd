"""Test nodes with columns in different orders: the same bits as in process, and differences in words."""

import dataclasses

import numpy as np
import pytest
from cases import every
from fake_grid import config_of, grid_of, in_a_run, metrics_of
from test_names import NAMES, ORDERS, SORTED, SPLITS, X, is_pooled_by_name, named_batches, named_rows, named_shards

from flower_pca import NotEnoughNodes, Stream, simulate, track
from flower_pca.clients.policy.rules import Rules
from flower_pca.names.columns import Heading, digest_of_names
from flower_pca.strategies import PCAStrategy, TrackingStrategy

MORE = named_rows(np.hstack([X[50:], X[50:, :1]]), (4, 0, 1, 2, 3), (*NAMES, "dose"))
FEWER = named_rows(X[50:, :3], range(3), NAMES[:3])
WORDS = dataclasses.replace(
    named_shards()[2], words={"city": "'Bonn' in column city (line 2)"}, source="/home/ann/west.csv"
)


def fit(grid, **asked):
    with in_a_run() as lines:
        result = PCAStrategy(n_components=2, **{"min_nodes": 3, "node_timeout": 0.0, **asked}).fit(grid)
    return result, lines


def refusal_of_run(grid, **asked):
    with in_a_run() as lines, pytest.raises(NotEnoughNodes) as caught:
        PCAStrategy(n_components=2, **{"min_nodes": 3, "node_timeout": 0.0, **asked}).fit(grid)
    return "\n".join([str(caught.value), *lines])


def named_grid(parts, seed=3, **rules):
    grid = grid_of(parts, seed=seed, **rules)
    for context in grid.nodes.values():
        i = context.node_config["partition-id"]
        context.node_config = {"partition-id": i, "name": ("north", "east", "west")[i]}
    return grid


@pytest.mark.parametrize("columns", [None, ("size", "age", "weight")])
@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_match_their_columns_by_name(columns, answers, mask):
    asked = {"columns": columns, "mask": mask, "seed": 4}
    found, _ = fit(named_grid(named_shards(), answers=answers), **asked)
    is_pooled_by_name(found, columns or SORTED, 1e-9 if mask else 1e-12)
    assert found.site_names == {0: "north", 1: "east", 2: "west"}
    here = simulate("krylov", named_shards(), n_components=2, answers=answers, **asked)
    if not mask:
        np.testing.assert_array_equal(found.components_, here.components_)
        np.testing.assert_array_equal(found.explained_variance_, here.explained_variance_)


def test_messages_to_nodes_say_names_only_where_a_run_names_its_columns():
    grid = named_grid(named_shards())
    fit(grid, algorithm="ssi")
    assert not any("columns" in config_of(message) for message in grid.sent)
    assert [config_of(m)["asks_names"] for m in grid.sent][:4] == [True, True, True, False]
    grid = named_grid(named_shards())
    fit(grid, columns="age,size")
    assert all(config_of(message)["columns"] == '["age", "size"]' for message in grid.sent)


@pytest.mark.parametrize("mask", [False, True])
def test_a_thousand_names_travel_compressed_to_the_same_result(mask):
    rng = np.random.default_rng(7)
    names = tuple(f"measurement {i:04d}" for i in range(1_000))
    rows = rng.standard_normal((60, 1_000))
    shards = [named_rows(rows[i : i + 20], rng.permutation(1_000), names) for i in (0, 20, 40)]
    grid = named_grid(shards)
    found, _ = fit(grid, columns=names, mask=mask)
    asked = [config for config in map(config_of, grid.sent) if "stage" in config]
    assert all(isinstance(config["columns"], bytes) for config in asked)
    assert found.feature_names_in_.tolist() == list(names)
    _, _, V = np.linalg.svd(rows - rows.mean(axis=0))
    assert np.linalg.norm(found.components_ - (found.components_ @ V[:2].T) @ V[:2]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_a_node_may_keep_names_to_itself(mask):
    grid, told = named_grid(named_shards(), share_names=False), []
    grid.tamper = lambda message, reply: told.append(metrics_of(reply)) or reply
    result, _ = fit(grid, mask=mask)
    assert result.feature_names_in_ is None
    assert result.site_names == {}
    assert not any("columns" in metrics or "site" in metrics for metrics in told)
    assert (
        {metrics["columns.digest_of_names"] for metrics in told} == {digest_of_names(NAMES)} == {result.feature_digest}
    )
    scores = simulate("krylov", named_shards(), n_components=2).transform(named_shards()[1])
    np.testing.assert_allclose(np.abs(result.transform(named_shards()[1])), np.abs(scores), atol=1e-5)
    named_, _ = fit(named_grid(named_shards(), share_names=False), columns=NAMES, mask=mask)
    is_pooled_by_name(named_, NAMES, 1e-9)


@every("columns", [["age"], ["hiv"], [*NAMES[:-1], "hiv"], [*NAMES, "city"], [*NAMES[:-1]]])
def test_a_node_that_keeps_names_to_itself_confirms_no_guess(columns):
    text = refusal_of_run(named_grid([*named_shards()[:2], WORDS], share_names=False), columns=columns)
    rule = "this node does not share its column names, so a run can use either all of its columns by name or none"
    assert f"{rule}. This run names {len(columns)}, but this node has 4. Name all of them, or none" in text
    said = text.replace("this node's operator", "")
    assert not any(repr(name) in said or f"column {name}" in said for name in (*NAMES, "hiv", "city"))


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_a_node_with_other_columns_is_left_out_and_told_why(mask):
    text = refusal_of_run(named_grid([*named_shards()[:2], MORE]), mask=mask)
    assert (
        "(west) do not fit: there are 5, with 'dose' in addition, instead of the 4 of the run. Name the columns" in text
    )
    text = refusal_of_run(named_grid([*named_shards()[:2], FEWER]), mask=mask)
    fault = "(west) do not fit: there are 3, without 'beat', instead of the 4 of the run. "
    assert f"{fault}Give all files the same columns." in text
    text = refusal_of_run(named_grid([*named_shards()[:2], X[50:]]), mask=mask)
    assert (
        "(west) do not fit: there are 4 without names instead of the 4 of the run, which have names. Give "
        "column names at all clients, or at none of them." in text
    )
    text = refusal_of_run(named_grid([*named_shards()[:2], MORE], share_names=False), mask=mask)
    assert (
        "do not fit: there are 5 with other names instead of the 4 of the run. Give all clients the same columns."
        in text
    )
    assert "west" not in text
    found, lines = fit(named_grid([*named_shards()[:2], FEWER]), mask=mask, min_nodes=2)
    assert found.n_samples_ == 50
    assert found.feature_names_in_.tolist() == list(SORTED)
    assert any("was left out: The columns of client" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_the_columns_of_a_run_are_picked_by_nodes(mask):
    for part in (MORE, WORDS):
        is_pooled_by_name(fit(named_grid([*named_shards()[:2], part]), columns=NAMES, mask=mask)[0], NAMES, 1e-9)
    text = refusal_of_run(named_grid([*named_shards()[:2], FEWER]), columns=NAMES, mask=mask)
    rule = "west: The columns of this node lack 'beat', which the run needs."
    assert rule in text
    text = refusal_of_run(named_grid([*named_shards()[:2], X[50:]]), columns=NAMES, mask=mask)
    assert "west: The run names its columns, but the 4 columns of this node have no names." in text


def test_a_node_that_has_a_column_twice_is_left_out():
    text = refusal_of_run(named_grid([*named_shards()[:2], named_rows(X[50:], range(4), (*NAMES[:3], "age"))]))
    assert "The columns of this node have the same name: 'age' more than once." in text


def test_words_cannot_be_asked_for():
    text = refusal_of_run(named_grid([*named_shards()[:2], WORDS]), columns=["age", "city"])
    assert "west: This node has text in column city, but a PCA needs numbers. Name other columns." in text


def test_no_cell_and_no_path_of_a_file_gets_out():
    text = refusal_of_run(named_grid([*named_shards()[:2], WORDS]))
    assert "must hold numbers, but there is text in column city." in text
    assert "Bonn" not in text
    assert "ann" not in text
    text = refusal_of_run(named_grid([*named_shards()[:2], WORDS], share_names=False))
    assert "1 column of this node contains text, which a PCA cannot use." in text
    assert "city" not in text


def test_a_node_that_joins_later_is_compared_too():
    grid = grid_of([*named_shards()[:2], X[50:]], 2)
    grid.on_push = lambda message: grid.add() if len(grid.sent) == 4 else None
    _, lines = fit(grid, algorithm="ssi(tol=1e-9)", min_nodes=2)
    assert any(
        "do not fit: there are 4 without names instead of the 4 of the run, which have names." in line for line in lines
    )


def test_statistics_are_measured_once_for_all_orders(tmp_path):
    rules = {"answers": "fixed", "memory_dir": tmp_path}
    first, _ = fit(named_grid(named_shards(), **rules))
    files = {path: path.read_bytes() for path in tmp_path.glob("flower_pca-fixed-*.npz")}
    assert len(files) == 3
    fit(named_grid(named_shards(), **rules), columns=("size", "age"))
    again, _ = fit(named_grid([named_rows(X[part], (1, 0, 3, 2)) for part in SPLITS], **rules))
    assert {path: path.read_bytes() for path in files} == files
    np.testing.assert_array_equal(first.components_, again.components_)


@pytest.mark.slow
def test_a_heading_that_cannot_be_is_refused():
    def tampered(**changes):
        def tamper(message, reply):
            if grid.nodes[message.metadata.dst_node_id].node_config["partition-id"] == 2:
                if "site" in changes:
                    del metrics_of(reply)["columns"]
                metrics_of(reply).update(changes)
            return reply

        grid = named_grid(named_shards())
        grid.tamper = tamper
        return refusal_of_run(grid)

    for changes in (
        {"columns": '["a", "b", "c", "d"]'},
        {"columns.count": -1},
        {"columns.digest_of_names": "x" * 1000},
    ):
        assert "The columns of an answer do not match its digest." in tampered(**changes)
    for names in ("{}", '["a", "a"]', "[", '[""]', f'["{"a" * 201}"]'):
        text = tampered(columns=names)
        assert "The columns of an answer need different names of at most 200 characters. The client" in text
    assert "(a\\nb" in tampered(**{"site": "a\nb" * 200, "columns.digest_of_names": "other"})


def test_messages_of_other_servers_name_columns_rightly():
    grid = named_grid(named_shards())

    def push(message):
        config_of(message)["columns"] = '["age", "age"]'

    grid.on_push = push
    assert (
        "The columns of a message need different names of at most 200 characters. The server may run another version "
        "of flower_pca. Install the same version everywhere." in refusal_of_run(grid)
    )


def test_a_resumed_run_knows_its_columns(tmp_path):
    path, copy = tmp_path / "run", tmp_path / "copy"
    ask = {"algorithm": "ssi", "columns": NAMES, "min_nodes": 3, "n_components": 2, "checkpoint": path}
    grid = named_grid(named_shards())
    with in_a_run():
        whole = PCAStrategy(**ask).fit(grid, on_round=lambda _: copy.write_bytes(path.read_bytes()))
    copy.replace(path)
    with in_a_run():
        again = PCAStrategy(**ask).fit(grid)
    np.testing.assert_array_equal(again.components_, whole.components_)
    assert again.feature_names_in_.tolist() == list(NAMES)
    assert again.site_names == whole.site_names == {0: "north", 1: "east", 2: "west"}


def test_private_runs_match_by_name_too():
    asked = {"algorithm": "ssi(max_rounds=5)", "dp": "dp(epsilon=50.0, delta=1e-6, clip=300.0)"}
    found, _ = fit(named_grid(named_shards()), **asked)
    assert found.feature_names_in_.tolist() == list(SORTED)
    text = refusal_of_run(
        named_grid([*named_shards()[:2], named_rows(X[50:], range(4), (*NAMES[:3], "pulse"))]), **asked
    )
    assert "there are 4, without 'beat' and with 'pulse' in addition" in text


@pytest.mark.slow
def test_streams_at_nodes_match_by_name():
    rows = np.random.default_rng(3).standard_normal((60, 2)) @ np.random.default_rng(4).standard_normal((2, 4))
    parts = [named_batches(order, rows=rows + 0.01 * i) for i, order in enumerate(ORDERS)]
    here = track("st_miss", parts, n_components=2)
    for mask in (False, True):
        with in_a_run():
            found = TrackingStrategy("st_miss", n_components=2, min_nodes=3, mask=mask).fit(
                named_grid([Stream(part) for part in parts])
            )
        assert found.feature_names_in_.tolist() == list(SORTED)
        assert found.site_names == {0: "north", 1: "east", 2: "west"}
        np.testing.assert_allclose(found.components_, here.components_, atol=1e-6)
    with in_a_run():
        wanted = TrackingStrategy("st_miss", n_components=2, min_nodes=3, columns="size,age,beat").fit(
            named_grid([Stream(part) for part in parts])
        )
    picked = track("st_miss", parts, n_components=2, columns=["size", "age", "beat"])
    np.testing.assert_array_equal(wanted.components_, picked.components_)
    assert wanted.feature_names_in_.tolist() == ["size", "age", "beat"]
    parts[2] = [rows[:15]] * 4
    with in_a_run(), pytest.raises(NotEnoughNodes, match=r"\(west\) do not fit: there are 4 without"):
        TrackingStrategy("st_miss", n_components=2, min_nodes=3, node_timeout=0.0).fit(
            named_grid([Stream(part) for part in parts])
        )


def test_headings_travel_as_plain_values():
    for heading in (Heading(4, digest_of_names(NAMES), SORTED), Heading(4, digest_of_names(NAMES)), Heading(4)):
        assert Heading.from_plain(heading.to_plain()) == heading
    assert Heading.from_plain({}) is None


def test_share_names_is_a_rule():
    assert Rules.of_node_config({"share-names": False}).share_names is False
    assert Rules().share_names
