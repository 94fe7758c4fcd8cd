"""Test columns that only one site has measured: a masked sum with them would show the site's own values."""

import numpy as np
import pandas as pd
import pytest
from dishonest import RefusedError, Sums, keys_of, signed
from fake_grid import FakeGrid, in_a_run

from flower_pca.base.errors import NotEnoughNodes
from flower_pca.clients import client_app
from flower_pca.clients.policy.rules import Rules
from flower_pca.masking import coverage
from flower_pca.masking.messages import Phase
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.strategies import PCAStrategy

D = 5
WORDS = "Fewer than 3 sites in this masked sum have measured"


def mixed_shards(sites=3, seed=0):
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((D, D))
    return [(rng.standard_normal((200 + i, D)) * [3, 2, 4, 1, 5] + 7) @ mixed for i in range(sites)]


def with_last_column(values, sites=3):
    """Of each site but the first these values in the last column; of a function, what it makes of the site's number."""
    rows = mixed_shards(sites)
    for i, X in enumerate(rows):
        if i or callable(values):
            X[:, -1] = values(i) if callable(values) else values
    return rows


ALONE = {
    "empty at the others": with_last_column(np.nan),
    "0 at the others": with_last_column(0.0),
    "the same value at the others": with_last_column(-3.25),
    "a number of the site": with_last_column(float),
    "an indicator of one site": with_last_column(lambda i: float(i == 1)),
    "a constant of one site, empty at the others": with_last_column(lambda i: 2.0 if i == 1 else np.nan),
    "measured at two of three": [X if i < 2 else with_last_column(0.0)[2] for i, X in enumerate(mixed_shards())],
}


def run_of_profile(rows, folder, *, beside=(), **options):
    """The result of an honest masked run of these sites, each with the profile and the rules `beside` it."""
    _, made = keys_of("ours", len(rows))

    def rules(context):
        i = int(context.node_config["partition-id"])
        own = {"profile": "masked", "trusted_keys": made.ca.parent, "sign_key": made.nodes[i], "memory_dir": folder}
        own |= dict(beside)
        return Rules.with_changes(None, own)

    app = client_app(lambda context: rows[int(context.node_config["partition-id"])], rules=rules)
    settings = {"n_components": D, "mask": True, "min_nodes": len(rows), "missing": "local_mean", **options}
    with in_a_run():
        return PCAStrategy("covariance", **settings).fit(FakeGrid(app, len(rows)))


@pytest.mark.parametrize("name", ALONE)
def test_a_column_of_too_few_sites_ends_a_run_before_anything_is_revealed(name, tmp_path):
    with pytest.raises(NotEnoughNodes, match=f"{WORDS} column 4, so the sum could reveal the values of a single site"):
        run_of_profile(ALONE[name], tmp_path)


@pytest.mark.parametrize("values", [4.0, 0.0], ids=["constant at all sites", "0 at all sites"])
def test_a_column_that_is_the_same_at_all_sites_is_answered(values, tmp_path):
    rows = with_last_column(lambda i: values)
    result = run_of_profile(rows, tmp_path)
    pooled = np.concatenate(rows)
    assert np.allclose(result.mean_, pooled.mean(axis=0), atol=1e-8)
    expected = np.linalg.eigvalsh(np.cov(pooled.T))[::-1]
    assert np.allclose(result.explained_variance_, expected, atol=1e-8 * expected[0])


def test_a_column_that_one_of_four_sites_lacks_is_answered(tmp_path):
    rows = mixed_shards(4)
    rows[3][:, -1] = np.nan
    assert run_of_profile(rows, tmp_path).n_samples_ == sum(map(len, rows))


def test_a_run_without_the_column_goes_through(tmp_path):
    rows = [X[:, :4] for X in ALONE["0 at the others"]]
    assert run_of_profile(rows, tmp_path, n_components=4).n_samples_ == 603


def summed_by_profile(folder, rows, **rules):
    return Sums(signed(folder, rows, profile="masked", **rules))


def test_a_server_that_keeps_letters_back_gets_no_sum(tmp_path):
    kept = summed_by_profile(tmp_path, mixed_shards())
    kept.group._columns.clear()
    with pytest.raises(RefusedError, match=f"{WORDS} column 0, column 1"):
        kept.product(np.eye(D))


def test_a_server_that_swaps_letters_gets_no_sum(tmp_path):
    swapped = summed_by_profile(tmp_path, ALONE["0 at the others"])
    letters = swapped.group._columns
    letters[1], letters[2] = {0: letters[0][1], 2: letters[1][2]}, {0: letters[0][2], 1: letters[2][1]}
    with pytest.raises(RefusedError, match="A share from another node cannot be decrypted"):
        swapped.product(np.eye(D))


def test_letters_about_other_columns_do_not_count(tmp_path):
    names = list("abcde")
    nodes = signed(tmp_path, [pd.DataFrame(X, columns=names) for X in ALONE["0 at the others"]], profile="masked")
    # All sites have measured a to d: letters about these must not stand for e, which has the place of d.

    class Renaming(Sums):
        def send(self, i, arrays, frame=None):
            asked = "abcde" if "mask.stage" in arrays else "edcba"
            return super().send(i, arrays, Frame(names=tuple(asked)))

    with pytest.raises(RefusedError, match=f"{WORDS} a, b, c, d, e"):
        Renaming(nodes).product(np.eye(D))


def test_a_sum_that_loses_who_has_measured_a_column_is_not_unmasked(tmp_path):
    rows = mixed_shards(4)
    rows[3][:, -1] = 0.0
    lossy = summed_by_profile(tmp_path, rows, max_dropouts=1)
    with pytest.raises(RefusedError, match=f"{WORDS} column 4"):
        lossy.product(np.eye(D), lost=[2])


def test_the_next_sum_of_a_set_up_is_held_to_the_same_letters(tmp_path):
    again = summed_by_profile(tmp_path, mixed_shards())
    first = again.product(np.eye(D))
    assert np.allclose(again.product(np.eye(D)), first)
    again.group.begin_sum(range(3))
    assert all(coverage.LETTERS not in again.group.upload_message(i) for i in range(3))


def test_every_node_refuses_in_the_same_words_whether_or_not_it_has_measured(tmp_path):
    nodes = signed(tmp_path, ALONE["0 at the others"], profile="masked")
    asked = Sums(nodes)
    said = set()
    asked.group.begin_sum(range(3))
    for i in range(3):
        about = {"mask.stage": np.frombuffer(b"ssi", np.uint8), "mask.clients": 3, "mask.number": 0, "Z": np.eye(D)}
        with pytest.raises(RefusedError) as refusal:
            asked.send(i, {"mask.step": int(Phase.UPLOAD), **about, **asked.group.upload_message(i)})
        said.add(str(refusal.value))
    assert len(said) == 1


def test_a_node_with_a_budget_tells_its_peers_nothing_of_its_columns(tmp_path):
    own = {"trusted_keys": keys_of("ours", 3)[1].ca.parent, "max_epsilon": 1.0, "max_delta": 1e-6}
    nodes = signed(tmp_path, ALONE["0 at the others"], **own)
    assert not Sums(nodes).group._columns


def test_few_values_of_a_column_do_not_count_as_measured():
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[19:, 1], X[:, 2] = np.nan, 7.1
    states = coverage.column_states(LocalData(X, missing=True), 20)
    assert states[0] == coverage.MEASURED
    assert states[1] == 1
    assert states[2] > 1
    assert states[2] == coverage.column_states(LocalData(X[:11], missing=True), 2)[2]


@pytest.mark.parametrize("measured", [1, 3])
def test_a_covariate_that_one_site_has_measured_is_refused_like_any_column(measured, tmp_path):
    rows = [X if i < measured else with_last_column(0.0)[2] for i, X in enumerate(mixed_shards())]
    _, made = keys_of("ours", 3)

    def rules(context):
        i = int(context.node_config["partition-id"])
        own = {"trusted_keys": made.ca.parent, "sign_key": made.nodes[i], "memory_dir": tmp_path}
        return Rules.with_changes(None, {"profile": "masked", "share_names": True, "covariates": "e", **own})

    app = client_app(lambda context: Table(rows[int(context.node_config["partition-id"])], tuple("abcde")), rules=rules)
    strategy = PCAStrategy("covariance", n_components=2, mask=True, min_nodes=3, adjust="e")
    with in_a_run():
        if measured == 3:
            assert strategy.fit(FakeGrid(app, 3)).n_samples_ == 603
            return
        with pytest.raises(NotEnoughNodes, match=f"{WORDS} e, so the sum"):
            strategy.fit(FakeGrid(app, 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"b": np.nan}, f"{WORDS} b, so"), ({"age": 50.0}, f"{WORDS} age, so")],
    ids=["a column of one site", "a covariate that varies at one site"],
)
def test_no_sum_of_a_single_site_is_told_of_filled_and_adjusted_rows(change, words, tmp_path):
    rng = np.random.default_rng(1)
    tables = [pd.DataFrame(X, columns=list("abcde")).assign(age=rng.normal(50, 9, len(X))) for X in mixed_shards()]
    beside = {"covariates": "age", "missing": "mean"}
    asked = {"adjust": "age", "missing": "mean", "n_components": 2, "beside": beside}
    assert run_of_profile(tables, tmp_path / "whole", **asked).n_samples_ == 603
    for i in (0, 2):
        tables[i] = tables[i].assign(**change)
    with pytest.raises(NotEnoughNodes, match=words):
        run_of_profile(tables, tmp_path / "alone", **asked)


@pytest.mark.parametrize("gaps", [19, 20])
def test_ages_are_told_as_sums_over_min_rows_rows_with_gaps_only(gaps, tmp_path, caplog):
    rng = np.random.default_rng(2)
    tables = [pd.DataFrame(X, columns=list("abcde")).assign(age=rng.normal(50, 9, len(X))) for X in mixed_shards()]
    tables[1].loc[: gaps - 1, "b"] = np.nan
    beside = {"covariates": "age", "missing": "mean"}
    asked = {"adjust": "age", "missing": "mean", "n_components": 2, "beside": beside}
    if gaps == 20:
        assert run_of_profile(tables, tmp_path, **asked).n_samples_ == 603
        return
    with pytest.raises(NotEnoughNodes):
        run_of_profile(tables, tmp_path, **asked)
    assert "A column of this node has fewer than 20 missing values (its min_rows)" in caplog.text
