"""Test partitions: each deals every row once, leaves no client empty, and depends only on its seed."""

import numpy as np
import pytest
from cases import every
from hypothesis import given, settings
from hypothesis import strategies as st

from flower_pca.data.partition import PARTITIONS, deal, label_column, make_parts, site_names, sizes_by_weight
from flower_pca.names.table import Table

SPECS = {
    "by_label": "by_label(per_client=1, seed=2)",
    "dirichlet": "dirichlet(0.3, seed=1)",
    "by_column": "by_column('site')",
    "contiguous": "contiguous",
    "iid": "iid(seed=3)",
    "by_size": "by_size(sizes={sizes})",
    "power_law": "power_law(exponent=1.7)",
}


def spec(name, n_clients):
    return SPECS[name].format(sizes=[float(i * i + 1) for i in range(n_clients)])


def test_every_partition_is_tested():
    assert set(SPECS) == set(PARTITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTITIONS)
@settings(max_examples=40)
@given(st.data())
def test_every_row_has_one_client_and_every_client_a_row(name, data):
    n_clients = data.draw(st.integers(1, 30))
    n_rows = data.draw(st.integers(n_clients, 300))
    drawn = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    labels = drawn.choice(list("abc"[: data.draw(st.integers(1, 3))]), n_rows)
    ids = np.arange(n_rows) % n_clients
    parts = make_parts(spec(name, n_clients), n_rows, n_clients, beside={"y": labels, "site": ids})
    assert len(parts) == n_clients
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(n_rows))


@every("name", PARTITIONS)
def test_a_partition_depends_only_on_its_seed(name):
    beside = {"y": np.arange(50) % 3, "site": np.arange(50) % 4}
    for a, b in zip(*(make_parts(spec(name, 4), 50, 4, beside=beside) for _ in range(2)), strict=True):
        assert np.array_equal(a, b)


def test_iid_shuffles_by_its_seed():
    first, again = make_parts("iid", 100, 4), make_parts("iid(seed=1)", 100, 4)
    assert not np.array_equal(first[0], np.arange(25))
    assert not np.array_equal(first[0], again[0])
    assert [len(part) for part in first] == [25, 25, 25, 25]


def test_contiguous_keeps_the_order_in_equal_parts():
    assert [part.tolist() for part in make_parts("contiguous", 5, 2)] == [[0, 1, 2], [3, 4]]


def test_by_size_gives_the_sizes_themselves_where_they_add_up():
    assert [len(part) for part in make_parts("by_size(sizes=[7, 2, 1])", 10, 3)] == [7, 2, 1]
    assert [len(part) for part in make_parts("by_size(sizes=[0.7, 0.2, 0.1])", 100, 3)] == [70, 20, 10]


@pytest.mark.slow
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20), st.integers(0, 200))
def test_shares_add_up_and_are_near_the_weights(weights, spare):
    n = len(weights) + spare
    sizes = sizes_by_weight(n, np.array(weights))
    assert sizes.sum() == n
    assert sizes.min() >= 1
    wanted = np.array(weights) / np.sum(weights) * n
    assert np.all(np.abs(np.cumsum(sizes) - np.cumsum(wanted)) <= len(weights))


def test_shares_of_power_law_fall():
    sizes = [len(part) for part in make_parts("power_law", 1000, 5)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 4 * sizes[4]
    assert len({len(part) for part in make_parts("power_law(exponent=0)", 1000, 5)}) == 1


LABELS = np.repeat(np.arange(10), 100)


def entropy(parts, labels):
    """The mean entropy of the labels at a client, in bits: log2 of how many labels it sees, if evenly."""
    shares = [np.bincount(labels[part], minlength=10) / max(len(part), 1) for part in parts]
    return np.mean([-(p[p > 0] * np.log2(p[p > 0])).sum() for p in shares])


def test_dirichlet_mixes_labels_the_more_the_larger_alpha():
    def mixed(alpha):
        return entropy(make_parts(f"dirichlet({alpha})", 1000, 10, beside={"y": LABELS}), LABELS)

    assert mixed(0.05) < 1.2 < mixed(0.5) < 2.9 < mixed(1e4)
    assert abs(mixed(1e6) - np.log2(10)) < 0.01


@pytest.mark.slow
def test_dirichlet_has_the_shares_of_its_law():
    """A share of Dirichlet(a, ..., a) over N clients has variance (N - 1) / (N^2 (N a + 1))."""
    shares = [
        [len(part) / 10000 for part in make_parts(f"dirichlet(0.5, seed={s})", 10000, 4, beside={"y": np.zeros(10000)})]
        for s in range(400)
    ]
    assert abs(np.var(shares) / (3 / (16 * 3)) - 1) < 0.15


def test_clients_are_empty_only_if_asked():
    beside = {"y": np.zeros(40)}
    sizes = [min(map(len, make_parts("dirichlet(0.01)", 40, 8, beside=beside))) for _ in range(3)]
    assert sizes == [1, 1, 1]
    assert min(map(len, make_parts("dirichlet(0.01, min_rows=5)", 40, 8, beside=beside))) == 5
    parts = make_parts("dirichlet(0.01, min_rows=0)", 40, 8, beside=beside)
    assert min(map(len, parts)) == 0
    table = Table(np.arange(80.0).reshape(40, 2), beside=beside)
    shards = deal(table, "dirichlet(0.01, min_rows=0)", 8)
    assert len(shards) == sum(len(part) > 0 for part in parts)
    assert sum(map(len, shards)) == 40


@every("spec", ["by_label(per_client=1)", "dirichlet(alpha=0.5, column='y')"])
@every("missing", [None, np.nan])
def test_an_empty_cell_is_a_label_of_its_own_in_every_kind_of_file(spec, missing):
    """In a file of text, it is the empty text."""
    found, reference = (
        make_parts(spec, 12, 2, beside={"y": np.array(cells * 4, dtype=object)})
        for cells in (["a", missing, "b"], ["a", "", "b"])
    )
    assert [part.tolist() for part in found] == [part.tolist() for part in reference]


@every("per_client", [1, 2, 5])
def test_by_label_gives_few_labels_to_each(per_client):
    parts = make_parts(f"by_label(per_client={per_client})", 1000, 10, beside={"y": LABELS})
    assert max(len(np.unique(LABELS[part])) for part in parts) <= per_client
    assert {len(part) for part in parts} <= set(range(98, 103))


def test_by_column_is_one_client_for_each_value():
    site_names = np.array(["Ulm", "Bonn", "Ulm", "Jena", "Bonn", "Ulm"])
    parts = make_parts("by_column('site')", 6, beside={"site": site_names})
    assert [part.tolist() for part in parts] == [[1, 4], [3], [0, 2, 5]]


@every("dtype", [int, np.float32, np.float64])
def test_a_site_of_a_column_of_numbers_is_called_without_decimals(dtype):
    parts = make_parts("by_column('site')", 4, beside={"site": np.array([10, 7, 7, 10], dtype)})
    assert site_names("by_column('site')", {"site": np.array([10, 7, 7, 10], dtype)}, parts) == ["7", "10"]


def test_the_default_number_of_clients():
    assert len(make_parts("iid", 100)) == 10
    assert len(make_parts("by_size([3, 2, 1])", 100)) == 3
    assert len(deal(Table(np.ones((50, 2))))) == 10


def test_the_column_that_a_partition_needs():
    wanted = {"iid": None, "by_label": "y", "dirichlet(0.3, column='digit')": "digit", "by_column('site')": "site"}
    assert {text: label_column(text) for text in wanted} == wanted
