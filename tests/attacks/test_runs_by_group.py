"""Test whole runs at nodes with rules on groups: what the defaults allow, and what larger limits allow."""

import numpy as np
import pytest
from builders import two_lead
from fake_grid import FakeGrid, app_of, is_pca_of, kill_when

from flower_pca import NotEnoughNodes, keys, strategies

pytestmark = pytest.mark.usefixtures("lines")
SIX = two_lead(6)
WORDS = (
    r"sums with at most {} groups? of peers, of whom at most {} may be lost \(its rules max-groups and max-dropouts\)"
)


@pytest.fixture
def signed_grid(tmp_path):
    """From rules to a grid of the first so many of six nodes that sign; ledgers stay from grid to grid."""
    made = keys.write_keys(tmp_path / "keys", nodes=6)
    common = {"trusted_keys": tmp_path / "keys", "memory_dir": tmp_path / "memory", "masked_only": True}

    def start(n=5, **rules):
        apps = [app_of(SIX, sign_key=path, **common, **rules) for path in made.nodes]
        return FakeGrid(lambda message, context: apps[context.node_config["partition-id"]](message, context), n)

    return start


def masked_run(grid, algorithm="SSI", **settings):
    return getattr(strategies, algorithm)(n_components=2, mask=True, round_timeout=2.0, **settings).fit(grid)


def refused_by_groups(groups, lost):
    return pytest.raises(NotEnoughNodes, match=WORDS.format(groups, lost))


@pytest.mark.slow
def test_one_group_is_asked_again_and_again_and_a_site_that_joins_is_another(signed_grid):
    for _ in range(2):
        assert is_pca_of(masked_run(signed_grid(max_groups=1), "Krylov"), SIX[:5])
    with refused_by_groups(1, 0):
        masked_run(signed_grid(6, max_groups=1), "Krylov")
    assert is_pca_of(masked_run(signed_grid(6, max_groups=2), "Krylov"), SIX)
    assert is_pca_of(masked_run(signed_grid(max_groups=2), "Krylov"), SIX[:5])
    with refused_by_groups(2, 0):
        masked_run(signed_grid(4, max_groups=2), "Krylov")


@pytest.mark.slow
def test_a_drop_out_ends_the_run_unless_it_is_admitted(signed_grid):
    def dying(**rules):
        there = signed_grid(max_groups=1, **rules)
        kill_when(there, [there.node(3)], lambda message: len(there.sent) > 37)
        return there

    with refused_by_groups(1, 0):
        masked_run(dying(), tol=1e-6)
    result = masked_run(dying(max_dropouts=1), tol=1e-6)
    assert is_pca_of(result, [X for i, X in enumerate(SIX[:5]) if i != 3], angle=1e-4)
    assert max(r.answered for r in result.history) == 5


@pytest.mark.slow
def test_samples_of_nodes_need_as_many_groups_as_are_drawn(signed_grid):
    with refused_by_groups(1, 0):
        masked_run(signed_grid(max_groups=1), fraction=0.6, max_rounds=3, min_rounds=3)
    settings = {"fraction": 0.6, "max_rounds": 3, "min_rounds": 3}
    result = masked_run(signed_grid(max_groups=20), **settings)
    assert result.rounds == 3
    assert {r.answered for r in result.history.of("ssi")} == {3}


@pytest.mark.slow
def test_fewer_peers_than_a_node_asks_for_end_the_run(signed_grid):
    assert is_pca_of(masked_run(signed_grid(min_peers=4), "Krylov"), SIX[:5])
    with pytest.raises(NotEnoughNodes, match="has 3 other nodes, but this node's min_peers requires at least 4"):
        masked_run(signed_grid(4, min_peers=4), "Krylov")


@pytest.mark.slow
def test_without_such_rules_groups_come_and_go(signed_grid):
    assert is_pca_of(masked_run(signed_grid(), "Krylov"), SIX[:5])
    assert is_pca_of(masked_run(signed_grid(6), "Krylov"), SIX)
    assert np.isfinite(masked_run(signed_grid(4), "Krylov").components_).all()
