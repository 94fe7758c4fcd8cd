"""Columns of words over nodes: which levels are told, by whose rules, and the result of the rows as they count."""

import numpy as np
import pandas as pd
import pytest
from builders import StopError, sine, stop_after
from fake_grid import config_of, examples_of, grid_of, hosts_of, listen_to, metrics_of
from test_categorical import EVERY, NUMBERS, ROWS, TABLES, WORDS, coded, is_pooled_coded

from flower_pca import NotEnoughNodes, Table, simulate
from flower_pca.clients import Rules
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")
SHARDS = list(TABLES.values())
ASK = {"n_components": 3, "categorical": "ward,sex", "scale": "std", "min_nodes": 3}
WARDS = ["ward=eye", "ward=icu", "ward=medicine", "ward=surgery"]


def fitted_with_levels(grid, algorithm="covariance", **asked):
    return PCAStrategy(algorithm, **{**ASK, "node_timeout": 0.1, **asked}).fit(grid)


def rare(site, level, rows):
    """The tables, in which these rows of a site have another ward."""
    tables = {name: rows.copy() for name, rows in TABLES.items()}
    tables[site].loc[rows, "ward"] = level
    return tables


def coded_and_pooled(tables):
    """The reference: coded rows, whose levels are those that are in them."""
    rows = pd.concat(tables.values(), ignore_index=True)
    parts = [(rows[c] - rows[c].mean()) / rows[c].std(ddof=0) for c in NUMBERS]
    for word in WORDS:
        for level in sorted(set(rows[word]), key=lambda level: (level == "other", level)):
            share = np.mean(rows[word] == level)
            parts.append(((rows[word] == level) - share) / np.sqrt(share))
    return np.column_stack(parts)


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_agree_on_the_levels_of_all(mask, answers):
    rules = {"categorical": "ward,sex", "answers": answers, "allow": ["covariance"]}
    grid = grid_of(SHARDS, **rules)  # With masked_only, a level of a single site would be refused.
    result = fitted_with_levels(grid, mask=mask)
    is_pooled_coded(result, coded(ROWS, EVERY), 1e-10 if mask else 1e-12)
    assert result.feature_names_in_.tolist() == [*NUMBERS, *WARDS, "sex=f", "sex=m"]
    assert result.config["categorical"] == {"ward": EVERY["ward"], "sex": ["f", "m"]}
    first, *others = result.history
    assert (first.stage, first.number, first.answered) == ("names", 0, 3)
    assert [record.number for record in others] == list(range(1, len(others) + 1))
    alone = simulate("covariance", SHARDS, n_components=3, categorical="ward,sex", scale="std", mask=mask)
    assert len(result.history) == len(alone.history) + 1
    np.testing.assert_allclose(result.components_, alone.components_, atol=1e-12)


def test_a_run_may_name_columns_of_words_among_others():
    grid = grid_of(SHARDS, categorical=["ward", "sex"])
    result = fitted_with_levels(grid, columns="weight,ward,age", categorical="ward")
    assert result.feature_names_in_.tolist() == ["weight", *WARDS, "age"]
    Z = coded(ROWS, EVERY, words=["ward"], numbers=["weight", "age"])
    is_pooled_coded(result, Z[:, [0, 2, 3, 4, 5, 1]])


def test_words_alone_over_nodes():
    shards = [rows[list(WORDS)] for rows in SHARDS]
    result = fitted_with_levels(grid_of(shards, categorical="ward,sex", answers="fixed"))
    is_pooled_coded(result, coded(ROWS, EVERY, numbers=[]))


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_a_level_of_few_rows_is_not_told_and_counts_as_other(mask):
    tables = rare("north", "burns", [0, 3, 5])
    tables["north"].loc[[7, 9], "ward"] = "eye"  # a level that another site reports
    grid, said = grid_of(list(tables.values()), categorical="ward,sex", min_rows=5), []

    def listen(message, reply):
        said.append(str((dict(config_of(message)), dict(metrics_of(reply)))))
        return reply

    grid.tamper = listen
    result = fitted_with_levels(grid, mask=mask)
    assert result.feature_names_in_.tolist() == [*NUMBERS, *WARDS, "ward=other", "sex=f", "sex=m"]
    tables["north"].loc[[0, 3, 5, 7, 9], "ward"] = "other"
    is_pooled_coded(result, coded_and_pooled(tables), 1e-10 if mask else 1e-12)
    assert said
    assert not any("burns" in one for one in said)


def test_too_few_rows_for_an_other_go_with_the_commonest_level():
    tables = rare("west", "burns", [0, 3])
    result = fitted_with_levels(grid_of(list(tables.values()), categorical="ward,sex", min_rows=5))
    assert "ward=other" not in result.feature_names_in_
    tables["west"].loc[[0, 3], "ward"] = tables["west"]["ward"].value_counts().index[0]
    is_pooled_coded(result, coded_and_pooled(tables))


@pytest.mark.slow
def test_a_run_may_list_the_levels_and_no_list_parts_what_a_node_has_put_together():
    tables = rare("north", "burns", [0, 3, 5])
    rules = {"categorical": "ward,sex", "min_rows": 5, "answers": "fixed"}
    columns = [*NUMBERS, "ward", "sex"]
    found = {"ward": ["medicine", "other"], "sex": ["f", "m"]}
    result = fitted_with_levels(grid_of(list(tables.values()), **rules), columns=columns, categorical=found)
    assert result.history[0].stage == "opening"  # No node had to be asked.
    north = tables["north"]["ward"]
    tables["north"]["ward"] = north.where(north != "burns", north.value_counts().index[0])
    for rows in tables.values():
        rows["ward"] = rows["ward"].where(rows["ward"] == "medicine", "other")
    is_pooled_coded(result, coded_and_pooled(tables))
    with pytest.raises(
        NotEnoughNodes, match=r"column ward of this node are medicine, but its rows also have 'surgery'"
    ):
        fitted_with_levels(grid_of(SHARDS, **rules), columns=columns, categorical={**found, "ward": ["medicine"]})


def test_a_node_tells_the_levels_that_its_operator_has_named_and_no_others():
    with pytest.raises(NotEnoughNodes, match="must hold numbers"):
        fitted_with_levels(grid_of(SHARDS))
    with pytest.raises(NotEnoughNodes, match="must hold numbers"):
        fitted_with_levels(grid_of(SHARDS, categorical="sex"))
    with pytest.raises(NotEnoughNodes, match="has text in column ward"):
        fitted_with_levels(grid_of(SHARDS, categorical="sex"), columns="age,ward", categorical="ward")
    assert Rules.of_node_config({"categorical": "ward, sex"}).text_columns == ("ward", "sex")
    numbers = [rows[NUMBERS] for rows in SHARDS]
    with pytest.raises(NotEnoughNodes, match="lack 'ward'"):
        fitted_with_levels(grid_of(numbers), columns="age,ward", categorical="ward")


@pytest.mark.parametrize("name", ["age=50.0", "ward=icu", "ward", "age="])
def test_a_server_cannot_code_a_column_that_the_operator_has_not_named(name):
    shards = [Table.of(rows, site=site) for site, rows in TABLES.items()]
    for rules in ({}, {"categorical": "sex"}):
        columns, listed = ["weight", name], {"sex": ["f", "m"]}
        with pytest.raises(NotEnoughNodes, match=r"lack '|text in column ward"):
            fitted_with_levels(grid_of(shards, **rules), columns=columns, categorical=listed, n_components=1)


def test_nodes_that_insist_on_noise_tell_no_levels():
    rules = {"categorical": "ward,sex", "min_noise": 0.1, "max_clip": 5.0}
    with pytest.raises(NotEnoughNodes, match="answers only with noise"):
        fitted_with_levels(grid_of(SHARDS, **rules))


@pytest.mark.slow
def test_the_message_about_levels_tells_no_number_of_rows():
    grid = grid_of(SHARDS, categorical="ward,sex")
    counts = listen_to(grid, examples_of)
    fitted_with_levels(grid, mask=True)
    assert set(counts) == {0}


@pytest.mark.slow
@pytest.mark.parametrize(("after", "mask"), [(1, True), (2, False), (4, True)])
def test_a_run_goes_on_from_its_checkpoint(tmp_path, after, mask):
    asked = {**ASK, "mask": mask, "checkpoint": tmp_path / "run.npz"}
    grid = grid_of(SHARDS, categorical="ward,sex")
    whole = PCAStrategy("krylov(tol=1e-12)", **ASK, mask=mask).fit(grid_of(SHARDS, categorical="ward,sex"))
    left = after

    def stop(run):
        nonlocal left
        left -= 1
        if not left:
            raise StopError

    if after < len(whole.history):
        with pytest.raises(StopError):
            PCAStrategy("krylov(tol=1e-12)", **asked).fit(grid, on_round=stop)
    result = PCAStrategy("krylov(tol=1e-12)", **asked).fit(grid)
    np.testing.assert_allclose(result.components_, whole.components_, atol=1e-13)
    assert result.history[0].stage == "names"
    if not mask:
        assert len(result.history) == len(whole.history)


@pytest.mark.slow
def test_a_run_that_is_interrupted_twice_keeps_its_first_message(tmp_path):
    asked = {**ASK, "checkpoint": tmp_path / "run.npz"}

    for count in (3, 5):
        with pytest.raises(StopError):
            PCAStrategy("ssi(tol=1e-12)", **asked).fit(
                grid_of(SHARDS, categorical="ward,sex"), on_round=stop_after(count)
            )
    result = PCAStrategy("ssi(tol=1e-12)", **asked).fit(grid_of(SHARDS, categorical="ward,sex"))
    assert [record.number for record in result.history] == list(range(len(result.history)))
    assert result.history[0].stage == "names"


def test_nodes_that_host_clients():
    result = fitted_with_levels(hosts_of(SHARDS, 2, categorical="ward,sex"), hosted="stacked")
    is_pooled_coded(result, coded(ROWS, EVERY))


@pytest.mark.slow
def test_released_versions_keep_their_levels(tmp_path):
    rules = {"categorical": "ward,sex", "min_rows": 5, "min_change": 5, "memory_dir": tmp_path}
    first = fitted_with_levels(grid_of(SHARDS, **rules))
    fewer = [SHARDS[0].iloc[1:], *SHARDS[1:]]  # One row has gone, which is fewer than min_change.
    again = fitted_with_levels(grid_of(fewer, **rules))
    assert sine(first.components_, again.components_) == pytest.approx(0.0, abs=1e-12)
    assert again.n_samples_ == first.n_samples_
