"""Test runs over columns at nodes: the rule that allows them, ids by digest, loadings in local files."""

import re

import numpy as np
import pandas as pd
import pytest
from builders import interrupt_after
from cases import every
from fake_grid import (
    arrays_in,
    config_of,
    examples_of,
    grid_of,
    kill_when,
    listen_to,
    metrics_of,
    request_of,
    with_arrays,
)
from people import PARTS, PEOPLE, K, X, changed, frames, reference

from flower_pca import ColumnsResult, NotEnoughNodes, Ray, Table, simulate
from flower_pca.base import files
from flower_pca.clients import Rules
from flower_pca.strategies import PCAStrategy
from flower_pca.wire import read_request

pytestmark = pytest.mark.usefixtures("lines")


def rows_of_sites(tables):
    return [Table.of(table, site=site) for site, table in tables.items()]


def fitted_by_columns(shards, *, algorithm="krylov", rules=None, grid=None, **asked):
    rules = {"split_columns": True, **(rules or {})}
    grid = grid or grid_of(shards, **rules)
    return PCAStrategy(algorithm, n_components=K, partitioned_by="columns", min_nodes=len(shards), **asked).fit(grid)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("algorithm", ["krylov", "auto", "covariance"])
def test_nodes_give_the_bits_of_a_simulation(algorithm, mask):
    result = fitted_by_columns(PARTS, algorithm=algorithm, mask=mask)
    alone = simulate(algorithm, PARTS, n_components=K, partitioned_by="columns", mask=mask)
    np.testing.assert_array_equal(result.scores_, alone.scores_)
    np.testing.assert_array_equal(result.explained_variance_, alone.explained_variance_)
    assert isinstance(result, ColumnsResult)
    assert result.components_.shape == (K, 0)
    assert not result.whole
    assert result.parties_ == 3


@pytest.mark.slow
def test_nodes_that_answer_from_fixed_statistics_keep_them_apart(tmp_path):
    rules = {"answers": "fixed", "memory_dir": tmp_path, "missing": "local_mean"}
    for _ in range(2):
        result = fitted_by_columns(PARTS, rules=rules)
        np.testing.assert_allclose(result.scores_, reference(X)[0][:, :K], atol=1e-7)
    assert result.answers == "fixed"
    kept = {path.name for path in tmp_path.glob("*fixed*.npz")}
    assert kept == {f"flower_pca-fixed-{i}-columns.npz" for i in range(3)}


def test_a_node_takes_part_by_its_own_rule_only():
    text = (
        "This node does not take part in runs whose parties hold different columns, because its split_columns is not "
        "set. "
        "Ask the node's operator"
    )
    with pytest.raises(NotEnoughNodes, match="A run over columns needs all parties until its end") as error:
        fitted_by_columns(PARTS, rules={"split_columns": False})
    assert text in str(error.value)
    assert Rules.of_node_config({"split-columns": True}).split_columns
    assert not Rules().split_columns


@pytest.mark.slow
def test_ids_are_told_by_a_digest_of_the_run_and_never_themselves(tmp_path):
    shards, grid = rows_of_sites(frames()), None
    seen = []

    def listen(message, reply):
        seen.append((config_of(message), metrics_of(reply)))
        return reply

    for mask in (False, True):
        grid = grid_of(shards, split_columns=True, output_dir=tmp_path / str(mask))
        grid.tamper = listen
        result = fitted_by_columns(shards, grid=grid, mask=mask)
        assert result.row_ids_ is None
        assert not any("position" in choice for choice in result.decisions)
        order = [*sorted(frames()["hospital"].columns), *sorted(frames()["lab"].columns)]
        pooled = frames()["hospital"].join(frames()["lab"])[order].to_numpy()
        np.testing.assert_allclose(result.scores_, reference(pooled)[0][:, :K], atol=1e-6)
    said = str(seen)
    assert "P007" not in said
    assert "gene" not in said
    assert "weight" not in said
    digests = {metrics.get("columns.digest_of_names") for _, metrics in seen}
    assert len(digests - {None}) == 2  # one digest for each run


@pytest.mark.slow
def test_how_many_columns_a_node_has_is_not_told():
    shards = rows_of_sites(frames())
    grid = grid_of(shards, split_columns=True)
    counts = listen_to(
        grid, lambda reply: (int(arrays_in(reply).get("n", 1)), examples_of(reply), metrics_of(reply)["columns.count"])
    )
    fitted_by_columns(shards, grid=grid, algorithm="ssi")
    assert set(counts) == {(1, 90, 90)}


@pytest.mark.slow
def test_each_node_writes_its_loadings_with_the_names_of_its_columns_and_people(tmp_path):
    tables = frames()
    result = fitted_by_columns(
        rows_of_sites(tables), rules={"output_dir": tmp_path, "split_columns": "std"}, scale="std", mask=True
    )
    pooled = simulate("krylov", tables, n_components=K, partitioned_by="columns", scale="std", mask=True)
    for i, table in enumerate(tables.values()):
        header, arrays = files.read(tmp_path / f"flower_pca-local-{i}.npz", "own result")
        assert header["columns"] == sorted(table.columns)
        assert header["rows"] == list(table.index)
        np.testing.assert_array_equal(arrays["components"], pooled.local[i]["components"])
        np.testing.assert_array_equal(arrays["mean"], pooled.local[i]["mean"])
        own = pd.DataFrame(arrays["scores"], index=header["rows"]).loc[PEOPLE].to_numpy()
        np.testing.assert_array_equal(own, result.scores_)
    assert result.site_names == {0: "hospital", 1: "lab"}


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (
            changed("lab", lambda t: t.rename(index={"P007": "P999"})),
            r"The people of client \d+ \((lab|hospital)\) differ from the people of the run: there are 90 with other "
            r"ids, but the run has 90 with ids\. Keep the rows of the same people at every party, with the same "
            r"spelling of ids",
        ),
        (
            changed("lab", lambda t: t.iloc[:80]),
            r"there are (90|80) with ids, but the run has (90|80) with ids\. Keep the rows of the same people",
        ),
        (
            changed("lab", lambda t: t.reset_index(drop=True)),
            r"the run has 90 (with|without) ids\. Give all parties ids of their rows, or none",
        ),
    ],
)
def test_other_people_are_named_with_what_to_do(tables, text, mask):
    with pytest.raises(NotEnoughNodes, match=text):
        fitted_by_columns(rows_of_sites(tables), mask=mask)


@pytest.mark.slow
def test_the_rows_of_an_id_that_is_there_twice_stay_in_the_nodes_own_log(lines):
    with pytest.raises(NotEnoughNodes, match="This node cannot read its rows or its rules") as error:
        fitted_by_columns(rows_of_sites(changed("lab", lambda t: t.rename(index={"P007": "P008"}))))
    assert "the same id" not in str(error.value)
    assert any(re.search(r"rows \d+ and \d+ \(from 0 on\) have the same id", line) for line in lines)
    assert not any("P008" in line for line in [str(error.value), *lines])


@pytest.mark.parametrize("stage", ["columns_opening", "krylov", "loadings"])
@pytest.mark.parametrize("mask", [False, True])
def test_a_party_that_is_gone_ends_the_run(stage, mask):
    grid = grid_of(PARTS, split_columns=True)

    def due(message):
        request = read_request(*request_of(message))
        return stage == request.stage or (mask and "krylov" in request.algorithm)

    kill_when(grid, [grid.node(1)], due)
    with pytest.raises(NotEnoughNodes, match=r"^A run over columns needs all parties until its end"):
        PCAStrategy("krylov", n_components=K, partitioned_by="columns", min_nodes=2, node_timeout=0.1, mask=mask).fit(
            grid
        )


def test_min_rows_counts_people():
    result = fitted_by_columns(PARTS, rules={"min_rows": 90})
    assert result.status.ok
    with pytest.raises(NotEnoughNodes, match=r"This node has fewer rows than its min_rows, 91\."):
        fitted_by_columns(PARTS, rules={"min_rows": 91})


@pytest.mark.slow
def test_max_columns_counts_over_runs_and_over_what_is_done_to_columns(tmp_path):
    rules = {"max_columns": 25, "memory_dir": tmp_path, "split_columns": "any"}
    assert fitted_by_columns(PARTS, rules=rules, algorithm="krylov(max_rounds=3)").status
    with pytest.raises(NotEnoughNodes, match="but its max_columns is 25"):
        fitted_by_columns(PARTS, rules=rules, algorithm="krylov(max_rounds=3)", scale="std")


@pytest.mark.slow
@every(
    ("change", "text"),
    [
        ({"stage": "opening"}, "A message about columns cannot ask for the stage"),
        ({"split": '{"center": 1}'}, "A message has malformed settings for a run over columns"),
        ({"split": '{"scale": "other"}'}, "A message has malformed settings for a run over columns"),
        ({"split": "[" * 10000}, "A message has malformed settings for a run over columns"),
        ({"split": '{"salt": "' + "x" * 100 + '"}'}, "A message has malformed settings for a run over columns"),
        ({"columns": '["age"]'}, "The server sent a center or a scale in a run over columns, but each"),
        ({"split": None}, "A message for columns_opening must be about columns, but this one is about rows"),
    ],
)
def test_a_server_that_asks_for_something_else_is_refused(change, text):
    shards = rows_of_sites(frames())
    grid = grid_of(shards, split_columns=True)

    def lie(message):
        config = config_of(message)
        for name, value in change.items():
            config.pop(name, None)
            if value is not None:
                config[name] = value

    grid.on_push = lie
    with pytest.raises(NotEnoughNodes, match=text):
        fitted_by_columns(shards, grid=grid)


@pytest.mark.parametrize(
    ("name", "times", "text"),
    [
        ("S", 1e6, r"S in the answer of client .* has entries that are larger than its own rows allow"),
        ("squares", -1.0, "An answer has a negative sum of squares"),
    ],
)
def test_an_answer_with_impossible_sizes_is_refused(name, times, text):
    """They are beyond what a party has said of its own, or below 0."""
    grid = grid_of(PARTS, split_columns=True)

    def tamper(message, reply):
        arrays = arrays_in(reply)
        if name in arrays and message.metadata.dst_node_id == grid.node(2):
            return with_arrays(reply, {**arrays, name: times * arrays[name]})
        return reply

    grid.tamper = tamper
    with pytest.raises(NotEnoughNodes, match=text):
        fitted_by_columns(PARTS, grid=grid)


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint_with_the_same_digests(tmp_path):
    shards = rows_of_sites(frames())
    grid = grid_of(shards, split_columns=True)
    strategy = PCAStrategy("krylov", n_components=K, partitioned_by="columns", checkpoint=tmp_path / "c.npz")

    with pytest.raises(KeyboardInterrupt):
        strategy.fit(grid, on_round=interrupt_after(3))
    again = strategy.fit(grid)
    np.testing.assert_array_equal(again.scores_, fitted_by_columns(shards).scores_)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray and Flower warn about their own files and processes.
@pytest.mark.xdist_group("ray")
def test_ray_gives_the_same_bits_and_the_loadings(cluster):
    given = {"n_components": K, "partitioned_by": "columns", "mask": True}
    alone = simulate("krylov", frames(), **given)
    result = simulate("krylov", frames(), backend=Ray(address=cluster), **given)
    np.testing.assert_array_equal(result.scores_, alone.scores_)
    np.testing.assert_array_equal(result.components_, alone.components_)
    assert result.row_ids_ == alone.row_ids_
    assert list(result.feature_names_in_) == list(alone.feature_names_in_)
