"""Test that a node that claims far more rows than it has outweighs the others, unless `max_share` limits it."""

import numpy as np
import pytest
from fake_grid import FakeGrid, arrays_in, grid_of, hosts_of, in_a_run, with_arrays

from flower_pca import DataError, Stream
from flower_pca.strategies import PCAStrategy, Standardize, TrackingStrategy

pytestmark = pytest.mark.usefixtures("lines")
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((60 + i, 5)) * [5, 4, 3, 2, 1] for i in range(4)]
CLAIMED = 10**9
WHY = "it reports 1,000,000,000 rows, but max_rows allows 100"


def claiming() -> FakeGrid:
    """Four nodes, of which the second says that it has a thousand million rows."""
    grid = grid_of(SHARDS)

    def tamper(message, reply):
        arrays = arrays_in(reply)
        if message.metadata.dst_node_id != grid.node(1) or "n" not in arrays:
            return reply
        return with_arrays(reply, {**arrays, "n": np.array(CLAIMED)})

    grid.tamper = tamper
    return grid


def fitted_to(grid, strategy=PCAStrategy, **asked):
    with in_a_run():
        return strategy(min_nodes=2, node_timeout=0.1, **asked).fit(grid)


@pytest.mark.parametrize("algorithm", ["krylov", "covariance", "median_pca"])
def test_a_node_that_claims_more_rows_than_one_may_have_is_left_out(algorithm):
    assert fitted_to(claiming(), algorithm=algorithm).n_samples_ > CLAIMED
    result = fitted_to(claiming(), algorithm=algorithm, max_rows=100)
    assert result.n_samples_ == sum(len(X) for i, X in enumerate(SHARDS) if i != 1)
    assert result.left_out[1].why == WHY


def test_a_scaling_and_a_tracker_leave_out_a_node_that_claims_too_many_rows():
    assert fitted_to(claiming(), Standardize, max_rows=100).left_out[1].why == WHY
    streams = [Stream(X, batch=30 if i == 1 else 10) for i, X in enumerate(SHARDS)]
    steps = fitted_to(grid_of(streams), TrackingStrategy, n_components=2, steps=2, max_rows=10)
    assert [out.why for out in steps.left_out.values()] == ["it reports 30 rows, but max_rows allows 10"]


def test_a_hosted_client_that_claims_too_many_rows_is_left_out():
    shards = [*SHARDS[:3], RNG.standard_normal((200, 5))]
    result = fitted_to(hosts_of(shards, each=2), algorithm="krylov", hosted="stacked", max_rows=100)
    assert result.n_samples_ == sum(map(len, SHARDS[:3]))


@pytest.mark.parametrize(
    "asked",
    [
        {"algorithm": "krylov", "mask": True},
        {"algorithm": "covariance", "dp": "dp(epsilon=5.0, delta=1e-6, clip=50.0)"},
    ],
    ids=["masks", "noise"],
)
def test_a_sum_of_too_many_rows_ends_the_run_where_nobody_can_say_whose_they_are(asked):
    """The last node says so, or has so many rows: nobody can tell."""
    grid = grid_of([*SHARDS[:3], np.vstack([SHARDS[3]] * 1000)])
    with pytest.raises(
        DataError, match=r"4 nodes of this run together report 6\d,\d\d\d rows.* allows only 1,000 each"
    ):
        fitted_to(grid, max_rows=1000, **asked)
    assert fitted_to(grid_of(SHARDS), max_rows=1000, **asked).n_samples_ < 1000
