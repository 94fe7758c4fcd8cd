"""Test what replaces missing values at a node: its own means, or the run's choice if the rule allows it."""

import numpy as np
import pytest
from builders import mixed_with_gaps, pooled, sine
from cases import every
from dishonest import Node, RefusedError, Sums
from fake_grid import FakeGrid, app_of, in_a_run
from scipy import sparse

from flower_pca import simulate
from flower_pca.names.table import Table
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame
from flower_pca.strategies import PCAStrategy

D, GAP = 10, 4
REST = [c for c in range(D) if c != GAP]


def rows_with_gaps(gaps, n=80, seed=0):
    X = np.random.default_rng([seed, n]).standard_normal((n, D)) + 1.0
    whole = X.copy()
    X[:gaps, GAP] = np.nan
    return X, whole


def told_of_gaps(ask, fills):
    """C e_GAP under two fills: where the server chooses them, their difference is the sum of the rows with a gap."""
    one, other = (ask(Frame(fill=fill * np.eye(D)[GAP]), np.eye(D)[:, [GAP]]) for fill in fills)
    return ((other - one) / (fills[1] - fills[0]))[REST, 0]


def products_of(node):
    return lambda frame, Z: node.ask("ssi", {"Z": Z}, frame)["Y"]


@pytest.mark.parametrize("fills", [(0.0, 1.0), (0.0, 1e12)])
def test_two_fills_chosen_by_a_server_reveal_rows_with_gaps(fills):
    X, whole = rows_with_gaps(1)
    open_to_it = told_of_gaps(products_of(Node(0, X, missing="mean")), fills)
    assert np.abs(open_to_it - whole[0, REST]).max() <= 1e-3
    with pytest.raises(RefusedError) as refusal:
        told_of_gaps(products_of(Node(0, X)), fills)
    assert str(refusal.value) == (
        'This node fills missing values with its own means only, but the run asks for missing="mean". Run with '
        'missing="local_mean", or ask the node\'s operator.'
    )


@every("answers", ["fixed", "rows"])
@every("own", [True, False])
def test_own_means_are_not_the_servers_to_choose(own, answers):
    X, _ = rows_with_gaps(3)
    node = Node(0, X, answers=answers)
    block = np.eye(D)[:, [GAP]]
    if not own:
        for frame in (Frame(fill=np.ones(D)), Frame(np.zeros(D), None, np.zeros(D))):
            with pytest.raises(RefusedError, match="fills missing values with its own means only"):
                node.ask("ssi", {"Z": block}, frame)
        asked = {"peaks": np.array(False), "gaps": np.array(True), "block": block}
        with pytest.raises(RefusedError, match="fills missing values with its own means only"):
            node.ask("opening", asked, algorithm="krylov")
        with pytest.raises(RefusedError, match=r"has [\d,]+ missing value"):
            node.ask("ssi", {"Z": block}, Frame(np.zeros(D)))
        return
    answers = [node.ask("ssi", {"Z": block}, Frame(None, None, f * np.ones(D), own=True))["Y"] for f in (0.0, 1e12)]
    np.testing.assert_array_equal(*answers)


@every("answers", ["fixed", "rows"])
@every("gaps", [1, 4, 5, 12])
def test_covariates_of_rows_with_gaps_are_told_as_sums_of_min_rows_of_them(gaps, answers):
    X, _ = rows_with_gaps(gaps)
    age = np.random.default_rng(1).normal(60.0, 9.0, len(X))
    names = tuple(f"x{j}" for j in range(D))
    frame = Frame(names=names, covariates=Covariates(("age",), 1))
    asked = {"peaks": np.array(False), "gaps": np.array(True), "seed": np.array(0), "width": np.array(2)}
    asked |= {"covariates": np.array(1), "common_fill": np.array(True)}
    table = Table(np.column_stack([X, age]), (*names, "age"))

    def told(min_rows):
        node = Node(0, table, missing="mean", min_rows=min_rows, covariates="age", answers=answers)
        return node.ask("adjusted_opening", asked, frame, algorithm="ssi")["covariate_sums_where_seen"][:, 0]

    expected = np.zeros(D)
    expected[GAP] = -np.sum(age[:gaps] - age.mean())  # with one gap, the age of this person
    np.testing.assert_allclose(told(1), expected, atol=1e-9)
    if gaps >= 5:
        np.testing.assert_allclose(told(5), expected, atol=1e-9)
        return
    with pytest.raises(RefusedError, match="fewer than 5 missing values"):
        told(5)


@every("gaps", [1, 4, 5, 0])
def test_a_column_with_few_gaps_is_never_filled_by_others(gaps):
    X, _ = rows_with_gaps(gaps)
    X[:20, 0] = np.nan
    node = Node(0, X, missing="mean", min_rows=5)
    given = {"Z": np.eye(D)[:, [GAP]]}, Frame(fill=np.ones(D))
    if gaps in (0, 5):
        assert "Y" in node.ask("ssi", *given)
        return
    with pytest.raises(RefusedError) as refusal:
        node.ask("ssi", *given)
    assert str(refusal.value) == (
        "A column of this node has fewer than 5 missing values (its min_rows), so an answer with the means of all "
        'nodes in their place could reveal single rows. Run with missing="local_mean", or ask the node\'s operator.'
    )


@pytest.mark.slow
def test_fills_chosen_by_a_server_are_stopped_by_the_rule_not_by_masks():
    tables = [rows_with_gaps(1 if i == 2 else 0, seed=i) for i in range(4)]

    def recovered(rule):
        nodes = [Node(i, X, masked_only=True, missing=rule) for i, (X, _) in enumerate(tables)]
        shapes, bounds = {"Y": (D, 1), "n": ()}, {"Y": 1e6, "n": 2.0**32}
        masks = Sums(nodes, run="gaps")
        return told_of_gaps(lambda frame, Z: masks.sum("ssi", {"Z": Z}, shapes, bounds, frame=frame)["Y"], (0.0, 1.0))

    assert np.abs(recovered("mean") - tables[2][1][0, REST]).max() <= 1e-6
    with pytest.raises(RefusedError, match="fills missing values with its own means only"):
        recovered("local_mean")


def filled_by_own(shards):
    there = [~np.isnan(X) for X in shards]
    means = [np.where(t, X, 0.0).sum(axis=0) / np.maximum(t.sum(axis=0), 1) for X, t in zip(shards, there, strict=True)]
    weights = np.array([len(X) * t.any(axis=0) for X, t in zip(shards, there, strict=True)])
    common = (weights * means).sum(axis=0) / weights.sum(axis=0)
    fills = [np.where(t.any(axis=0), m, common) for t, m in zip(there, means, strict=True)]
    return [np.where(t, X, fill) for X, t, fill in zip(shards, there, fills, strict=True)], common


@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("center", "scale", "mask"),  # no mask with max_abs, because peaks are not sums
    [(True, None, False), (True, None, True), (False, None, False), (False, None, True), (True, "max_abs", False)],
)
def test_own_means_give_the_pca_of_rows_filled_so(center, scale, mask, kind, answers):
    shards = mixed_with_gaps(2)
    whole, common = filled_by_own(shards)
    settings = {"n_components": 3, "center": center, "scale": scale, "tol": 1e-10, "answers": answers, "mask": mask}
    result = simulate("krylov", [kind(X) for X in shards], missing="local_mean", **settings)
    reference = pooled(whole, center=center, scale=scale)
    assert sine(result.components_, reference.components[:3]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:3], rtol=1e-9)
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-9)
    np.testing.assert_allclose(result.fill_, common, rtol=1e-10)
    assert result.config["missing"] == "local_mean"


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["mean", "local_mean"])
def test_nodes_answer_as_a_simulation_does(missing):
    shards = mixed_with_gaps(2)
    wanted = simulate("krylov", shards, n_components=3, missing=missing, answers="fixed")
    with in_a_run():
        grid = FakeGrid(app_of(shards, answers="fixed", missing=missing), 3)
        result = PCAStrategy("krylov", n_components=3, missing=missing).fit(grid)
        assert result.components_.tobytes() == wanted.components_.tobytes()
        assert (result.config["missing"], result.answers) == (missing, "fixed")
        if missing == "mean":  # Nodes that do not agree are left out.
            grid = FakeGrid(app_of(shards, answers="fixed", missing="local_mean"), 3)
            alone = PCAStrategy("krylov", n_components=3, missing="mean", min_nodes=1).fit(grid)
            assert alone.n_samples_ == len(shards[2])
