"""Test that a server cannot combine runs over columns with runs over rows, or two ways of scaling."""

import numpy as np
import pytest
from builders import peak_memory
from dishonest import Node, RefusedError, Sums, error_of, request

from flower_pca import Table, wire
from flower_pca.clients import Rules
from flower_pca.clients import parties as node_columns
from flower_pca.names import ids
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation
from flower_pca.vertical import rows

N, D = 60, 4
RNG = np.random.default_rng(3)
X = RNG.gamma(2.0, 1.0, (N, D)) * [1.0, 3.0, 10.0, 30.0] + [1.0, 5.0, 0.0, 2.0]
OTHERS = [RNG.standard_normal((N, 2)) * [0.4, 7.0] for _ in range(2)]
OPENING = {"block": np.eye(D), "peaks": False}


def product_of_people(node, **split):
    """X_p X_p' for all people, as a server asks for it."""
    return node.ask("ssi", {"Z": np.eye(N)}, Frame(split=ColumnPreparation(**split)))["Y"]


def half(G):
    """Y with YY' = G: the columns up to a rotation."""
    values, U = np.linalg.eigh(G)
    kept = values > 1e-9 * values.max()
    return U[:, kept] * np.sqrt(values[kept])


def by_two_scales(raw, scaled):
    """The columns, up to sign and order: X = Y1 R1' and X D^-1 = Y2 R2', so R1'D^-1 R2 = Y1^+ Y2."""
    Y = half(raw)
    return Y @ np.linalg.svd(np.linalg.pinv(Y) @ half(scaled))[0]


def by_both_kinds(people, mean, moments):
    """The rows: directions of XX' and of X'X, and the signs by the sums of the columns."""
    Y = half(people)
    along = Y @ np.linalg.eigh(Y.T @ Y)[1]
    V = np.linalg.eigh(moments)[1]
    return (along * np.sign(along.sum(axis=0) * (mean @ V))) @ V.T


def test_two_ways_of_scaling_would_tell_the_columns():
    centered = X - X.mean(axis=0)
    found = by_two_scales(centered @ centered.T, (centered / X.std(axis=0)) @ (centered / X.std(axis=0)).T)
    sizes = np.sort(np.abs(found).sum(axis=0))
    np.testing.assert_allclose(sizes, np.sort(np.abs(centered).sum(axis=0)), rtol=1e-6)
    assert error_of(by_both_kinds(X @ X.T, X.mean(axis=0), X.T @ X), X) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "other"), [(True, "std"), (True, "max_abs"), ("std", None), ("max_abs", "std")])
def test_a_node_scales_its_columns_as_its_rule_says_and_in_no_other_way(rule, other):
    node = Node(0, X, split_columns=rule)
    product_of_people(node, scale=None if rule is True else rule)
    product_of_people(node, scale=None if rule is True else rule, center=False)
    with pytest.raises(RefusedError) as error:
        product_of_people(node, scale=other)
    assert str(error.value) == (
        f"The run asks for scale={other}, but the rule split_columns of this node allows only "
        f"{None if rule is True else rule}, because answers with two scales together would reveal its columns. "
        "Ask the node's operator."
    )


def test_a_masked_run_has_one_scale():
    nodes = [Node(i, table, split_columns=True) for i, table in enumerate([X, *OTHERS])]
    sums = Sums(nodes)
    total = sums.product(np.eye(N), frame=Frame(split=ColumnPreparation()))
    centered = np.hstack([table - table.mean(axis=0) for table in [X, *OTHERS]])
    assert error_of(total, centered @ centered.T) < 1e-9
    with pytest.raises(RefusedError, match="the rule split_columns of this node allows only None"):
        Sums(nodes).product(np.eye(N), frame=Frame(split=ColumnPreparation(scale="std")))


def test_a_node_that_serves_columns_serves_no_rows():
    node = Node(0, X, split_columns=True)
    product_of_people(node, center=False)
    text = "This node takes part only in runs over columns, because its split_columns is set"
    for stage, arrays in [("opening", OPENING), ("krylov", {"B": np.eye(D)}), ("covariance", {})]:
        with pytest.raises(RefusedError, match=text):
            node.ask(stage, arrays, algorithm="covariance" if stage == "covariance" else "krylov")
    nodes = [Node(i, X + i, split_columns=True) for i in range(3)]
    with pytest.raises(RefusedError, match=text):
        Sums(nodes).product(np.eye(D))
    assert node.client.get_properties({})["n_features"] == 0


@pytest.mark.slow
def test_whoever_trusts_the_server_may_have_both():
    node = Node(0, X, split_columns="any")
    opening = node.ask("opening", OPENING, algorithm="krylov")
    moments = opening["product"] + N * np.outer(opening["mean"], opening["mean"])
    assert error_of(by_both_kinds(product_of_people(node, center=False), opening["mean"], moments), X) < 1e-6
    product_of_people(node, scale="std")
    assert Node(0, X).client.get_properties({})["n_features"] == D


def test_noise_that_hides_a_column_is_not_taken_for_noise_that_hides_a_person():
    """Rows are clipped under noise: over columns these are columns, and no person is hidden."""
    noised = {"Z": np.eye(N)[:, :2], "dp.clip": 1.0, "dp.noise": 10.0, "dp.budget": 1.0}
    for given in ({}, {"min_noise": 1.0}):
        with pytest.raises(RefusedError, match="about columns asks for noise, but noise does not hide people"):
            Node(0, X, split_columns=True, **given).ask("ssi", noised, Frame(split=ColumnPreparation()))


def test_a_rule_on_columns_is_one_that_there_is():
    assert Rules.of_node_config({"split-columns": "std"}).split_columns == "std"


@pytest.mark.slow
def test_columns_take_no_memory_beyond_the_rows_taken_twice():
    """In whatever ways they are prepared, one after another."""
    table, Q = np.random.default_rng(1).standard_normal((8_000, 300)), np.eye(8_000, 2)
    node, ways = Node(0, table, split_columns="any"), [{}, {"scale": "std"}, {"center": False}, {"scale": "max_abs"}]
    node.client._data_of_node()
    with peak_memory() as peak:
        for number, way in enumerate(ways):
            for salt in "ab":
                node.ask("ssi", {"Z": Q}, Frame(split=ColumnPreparation(**way, salt=f"{number}{salt}")))
        assert peak() <= 2 * table.nbytes + 1e8


@pytest.mark.slow
def test_another_salt_means_another_digest_and_no_other_work(monkeypatch):
    node = Node(0, Table(X, ids=tuple(f"P{i}" for i in range(N))), split_columns=True)
    first = node_columns.rows_or_columns(node.client._data_of_node(), asked_with("a"))
    monkeypatch.setattr(rows, "_column_frame", None)
    second = node_columns.rows_or_columns(node.client._data_of_node(), asked_with("b"))
    assert second is node_columns.rows_or_columns(node.client._data_of_node(), asked_with("b"))
    assert second.heading.digest != first.heading.digest
    assert second.heading.digest == ids.digest_of_ids(first.row_ids, "b")
    assert second.measured is first.measured


def asked_with(salt):
    return wire.read_request(*request("ssi", {"Z": np.eye(N)}, Frame(split=ColumnPreparation(salt=salt))))
