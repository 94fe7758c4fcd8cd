"""Test what sums with and without a member reveal in an honest run, and that `max_dropouts` ends it."""

import numpy as np
import pytest
from builders import shards
from fake_grid import FakeGrid, in_a_run, is_pca_of

from flower_pca import NotEnoughNodes, keys, strategies
from flower_pca.clients import Rules, client_app
from flower_pca.core.run import Run
from flower_pca.core.stage import Sum

SHARDS = shards((90, 80, 70, 60, 50), 3.0 * 0.8 ** np.arange(10), shift=0.4)
LOST = 4
X = SHARDS[LOST]


@pytest.fixture
def sums(monkeypatch):
    """All sums that a server sees: the stage, whose they are, and the sums."""
    seen, advance = [], Run.advance

    def noting(run, replies):
        came = list(replies)
        seen.extend((run._sent.stage, r.clients, r.arrays) for r in came if isinstance(r, Sum))
        return advance(run, came)

    monkeypatch.setattr(Run, "advance", noting)
    return seen


def grid_that_loses(folder, **rules):
    """Five nodes with signed keys, of which one is gone once the run has its first product."""
    made = keys.write_keys(folder / "keys", nodes=len(SHARDS))

    def own(context):
        key = made.nodes[context.node_config["partition-id"]]
        return Rules(
            masked_only=True, sign_key=key, trusted_keys=folder / "keys", memory_dir=folder / "memory", **rules
        )

    app = client_app(lambda context: SHARDS[context.node_config["partition-id"]], rules=own)
    grid, after = FakeGrid(app, len(SHARDS)), 7 * len(SHARDS)

    def lose(message):
        if len(grid.sent) > after and any(position == LOST for position in positions(grid)):
            grid.kill(grid.node(LOST))

    grid.on_push = lose
    return grid


def positions(grid):
    return [context.node_config["partition-id"] for context in grid.nodes.values()]


@pytest.mark.slow
def test_by_default_a_loss_tells_the_rows_mean_and_squares_of_the_one_that_left(sums, tmp_path):
    """As docs/masked-sums.md says, of a run that loses a member between two openings."""
    with in_a_run():
        result = strategies.Krylov(n_components=2, mask=True).fit(grid_that_loses(tmp_path))
    assert is_pca_of(result, SHARDS[:LOST], angle=1e-5)
    firsts = [(len(who), total) for stage, who, total in sums if stage == "summed_opening" and "product" not in total]
    with_it, without = next(t for n, t in firsts if n == 5), next(t for n, t in firsts if n == 4)
    assert with_it["n"] - without["n"] == len(X)
    np.testing.assert_allclose((with_it["sums"] - without["sums"]) / len(X), X.mean(axis=0), rtol=0, atol=1e-8)
    np.testing.assert_allclose(with_it["squares"] - without["squares"], np.sum(X**2, axis=0), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"max_groups": 1}, "at most 1 group of peers"),
        ({"max_dropouts": 0}, "at most 0 may be lost"),
        ({"min_peers": 4}, "min_peers requires at least 4"),
    ],
)
def test_by_its_rules_no_sum_is_told_without_a_member(rules, why, sums, tmp_path):
    with in_a_run(), pytest.raises(NotEnoughNodes, match=why):
        strategies.Krylov(n_components=2, mask=True).fit(grid_that_loses(tmp_path, **rules))
    assert sums
    assert {len(who) for _, who, _ in sums} == {len(SHARDS)}


@pytest.mark.slow
def test_one_loss_that_is_admitted_is_one(sums, tmp_path):
    with in_a_run():
        result = strategies.Krylov(n_components=2, mask=True).fit(grid_that_loses(tmp_path, max_dropouts=1))
    assert is_pca_of(result, SHARDS[:LOST], angle=1e-5)
