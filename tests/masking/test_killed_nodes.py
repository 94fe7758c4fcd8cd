"""Nodes that are killed in a masked run over Flower, at every step of it: one table for all kinds of masked runs."""

import pytest
from builders import leading, three_lead, two_lead
from cases import in_turn, paired
from fake_grid import FakeGrid, arrays_in, grid_of, is_pca_of, kill_when
from masked import parts_without, step_of
from stepwise import changing_problem, problem_batches

from flower_pca import DP, Stream, make, simulate, strategies
from flower_pca.clients import client_app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("lines")]
FIVE = two_lead(5)
WHEN = ["before", "after"]


@pytest.mark.parametrize(("step", "who", "when"), in_turn([(0, -1), (1, -1), (2, 2), (3, 2)], [(2,), (0, 3)], WHEN))
def test_a_node_is_killed_at_each_step_of_a_sum(step, who, when):
    """In the set-up and in the third sum."""
    grid = grid_of(FIVE)
    kill_when(grid, [grid.node(i) for i in who], lambda message: step_of(message) == step, when=when)
    result = strategies.SSI(n_components=2, tol=1e-5, mask=True).fit(grid)
    assert is_pca_of(result, parts_without(FIVE, *who), angle=1e-4)


@pytest.mark.parametrize("when", WHEN)
def test_in_sums_without_self_masks(when):
    grid, told = grid_of(FIVE, single_masks=True), []
    kill_when(grid, [grid.node(3)], lambda message: step_of(message) == (2, 2), when=when)
    change = grid.tamper or (lambda message, reply: reply)

    def look(message, reply):
        if reply.has_content():
            told.append(set(arrays_in(reply)))
        return change(message, reply)

    grid.tamper = look
    result = strategies.SSI(n_components=2, tol=1e-6, mask="masks(self_masks=False)").fit(grid)
    assert is_pca_of(result, parts_without(FIVE, 3), angle=1e-4)
    assert len(result.history.of("mask.sum")) == (when == "before")
    if when == "after":
        assert all("mask.selves" not in names for names in told)


@pytest.mark.parametrize(("step", "when"), paired([(0, -1), (1, -1), (2, 4), (3, 4)], WHEN))
def test_in_the_steps_of_a_tracker(step, when):
    """In the set-up and in a later sum."""
    streams = [Stream(own) for own in problem_batches(5)]
    grid = FakeGrid(client_app(lambda c: streams[int(c.node_config["partition-id"])], allow=["st_miss"]), 5)
    dead = grid.node(2)
    kill_when(grid, [dead], lambda message: step_of(message) == step, when=when)
    result = strategies.STMiss(n_components=3, first_products=4, products=2, min_nodes=3, mask=True).fit(grid)
    assert dead not in grid.nodes
    assert result.rows_.tolist()[2:] == [48, 48]
    assert result.subspace_error(changing_problem(5).truth[-1])[3] < 0.2


@pytest.mark.filterwarnings("ignore:theta is")  # Clients as similar as these have almost no own components.
def test_in_the_closing_of_a_personalized_run(tmp_path):
    own, settings = {"local_components": 2, "start_rounds": 1, "tol": 1e-2}, {"n_components": 2, "mask": True}
    last = len(simulate(make("exact_per_pca", **own), FIVE, **settings).history) - 2
    grid = grid_of(FIVE, output_dir=tmp_path)
    kill_when(grid, [grid.node(3)], lambda message: message.metadata.group_id == str(last))
    result = strategies.ExactPerPCA(**own, **settings).fit(grid)
    assert result.status.ok
    assert result.n_samples_ == sum(map(len, parts_without(FIVE, 3)))


def test_a_killed_node_does_not_reduce_shared_noise():
    parts = three_lead(5, n=20_000)
    grid = grid_of(parts)
    dead = grid.node(2)
    kill_when(grid, [dead], lambda message: len(grid.sent) > 27)
    dp = DP(epsilon=50.0, delta=1e-6, clip=6.0)
    found = strategies.SSI(n_components=3, max_rounds=4, dp=dp, mask=True).fit(grid)
    assert dead not in grid.nodes
    assert found.rounds == 4
    assert found.angle_to(leading(parts, 3)) < 0.1
