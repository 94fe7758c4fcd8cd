"""Test whole runs under masks, in process and over Flower: the unmasked result, and drop-outs at every step."""

import re
import subprocess
import sys

import numpy as np
import pytest
from builders import gone_on, interrupt_after, leading, two_lead
from cases import every, in_turn, paired
from fake_grid import examples_of, grid_of, is_pca_of, listen_to
from masked import gone, parts_without, step_of

from flower_pca import MaskedSums, NotEnoughNodes, simulate, strategies

FIVE = two_lead(5)


@pytest.mark.slow
def test_rounds_that_go_to_a_share_of_the_clients():
    settings = {"n_components": 2, "fraction": 0.5, "max_rounds": 4, "min_rounds": 4, "seed": 3}
    result = simulate("ssi", two_lead(6), mask=True, **settings)
    assert [r.answered for r in result.history.of("ssi")] == [3] * result.rounds
    assert result.n_samples_ == sum(map(len, two_lead(6)))
    assert result.angle_to(leading(two_lead(6))) < 0.2


# At each step of the set-up, of both openings, and of a sum; one client or two.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "at", "clients"), in_turn(["krylov", "ssi"], range(1, 9), [(2,), (0, 4)]))
def test_clients_that_drop_out_for_good_at_any_step(name, at, clients):
    result = simulate(name, FIVE, n_components=2, mask=True, fraction=gone(*clients, at=at))
    assert result.status.ok
    if result.n_samples_ != sum(map(len, FIVE)):  # Otherwise the run had everything it needed earlier.
        assert is_pca_of(result, parts_without(FIVE, *clients), angle=1e-4)
    else:
        assert is_pca_of(result, FIVE, angle=1e-4)
        assert at >= len(result.history) - 1
    assert len(result.history.of("mask.keys")) == 1  # The remaining clients need no new keys.


@pytest.mark.slow
def test_fifty_clients_of_which_a_tenth_is_lost():
    """Against LAPACK on the rows of those that stay, in rings of forty neighbors; they are lost in the algorithm."""
    at = 6
    rng, clients = np.random.default_rng(2), 50
    parts = [rng.standard_normal((8, 6)) * 0.5 ** np.arange(6) + 0.3 * rng.standard_normal(6) for _ in range(clients)]
    lost = set(rng.choice(clients, 5, replace=False).tolist())
    here = [i for i in range(clients) if i not in lost]
    result = simulate(
        "krylov", parts, n_components=2, mask=True, fraction=lambda m: here if m >= at else range(clients)
    )
    rows = np.vstack([parts[i] for i in here])
    _, s, V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    assert result.status.ok
    assert max(r.answered for r in result.history) == clients
    assert result.n_samples_ == len(rows)
    V = V[:2] * np.sign(np.sum(V[:2] * result.components_, axis=1))[:, None]
    np.testing.assert_allclose(result.components_, V, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(result.explained_variance_, s[:2] ** 2 / (len(rows) - 1), rtol=1e-9)
    np.testing.assert_allclose(result.mean_, rows.mean(axis=0), rtol=0.0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("at", "name"), paired([1, 2, 3, 4, 6, 7], ["krylov", "ssi"]))
def test_clients_that_come_back(name, at):
    result = simulate(name, FIVE, n_components=2, mask=True, fraction=gone(1, 3, at=at, back=at + 1))
    assert result.status.ok
    assert is_pca_of(result, FIVE, angle=1e-3)
    assert result.history.of("mask.keys")[-1].answered == 5


@pytest.mark.slow
@every("at", [1, 2, 3, 6, 7])
def test_below_the_threshold_the_run_ends(at):
    with pytest.raises(NotEnoughNodes, match=r"^Too few clients .*: 2, but at least 3 are needed, counting a client"):
        simulate("ssi(min_rounds=5)", FIVE, n_components=2, mask=True, fraction=gone(0, 1, 2, at=at))


def test_with_two_clients_no_dropout_is_possible():
    with pytest.raises(NotEnoughNodes, match="Too few clients are ready for a masked sum: 1, but at least 2"):
        simulate("ssi", FIVE[:2], n_components=2, mask=True, fraction=lambda m: [0] if m == 4 else [0, 1])


@every("option", [{"reconstruction_error": True}, {"explain": "site"}, {"standard_errors": True}])
def test_a_figure_after_the_closing_that_a_client_misses_is_not_reported(option):
    """No message is sent again, as the difference of two sums would reveal the answer of the client."""
    whole = simulate("krylov", FIVE, n_components=2, mask=True, **option)
    last = whole.history[-2].number  # the upload of the last sum
    result = simulate("krylov", FIVE, n_components=2, mask=True, fraction=gone(2, at=last), **option)
    assert result.mse_ is result.sites_ is result.variance_errors_ is None
    assert is_pca_of(result, FIVE)
    assert " got no answer from client 2, so the result lacks " in result.status.words
    assert len(result.history) == len(whole.history)
    np.testing.assert_allclose(result.left_out_variance_, whole.left_out_variance_, rtol=1e-9)


@pytest.mark.slow
def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    asked, path = {"n_components": 2, "mask": True}, tmp_path / "run.ckpt"
    whole = simulate("ssi", FIVE, **asked)
    resumed = gone_on(simulate, "ssi", FIVE, path=path, stop=[3, 7, 12], **asked)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert not path.exists()


@pytest.mark.slow
def test_bytes_are_those_of_the_unmasked_run_and_the_keys():
    """40 columns of 300 features: the words of the first message are all that masks add to the numbers themselves."""
    parts = two_lead(4, d=300)
    settings = {"n_components": 40, "max_rounds": 3}
    plain, masked = (simulate("ssi", parts, mask=mask, **settings).history for mask in (False, True))
    keys = sum(
        r.bytes_up + r.bytes_down for stage in ("mask.keys", "mask.shares", "mask.sum") for r in masked.of(stage)
    )
    sealed = 2 * 4 * len(masked.of("mask.sum")) * 3 * (32 + 80 + 8)  # for each peer, in both directions
    told = masked.bytes_up + masked.bytes_down - keys - sealed
    assert told <= 1.2 * (plain.bytes_up + plain.bytes_down)


@pytest.mark.slow
def test_an_unmasked_run_does_not_import_cryptography():
    code = (
        "import sys, numpy; from flower_pca import MaskedSums, simulate; MaskedSums(); "
        "rows = [numpy.eye(4), numpy.eye(4) + 1]; simulate('krylov', rows, n_components=1); "
        "print(*(name for name in sys.modules if name.split('.')[0] == 'cryptography'), 'end'); "
        "simulate('krylov', rows, n_components=1, mask=True); print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["end", "True"]


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_over_flower_no_reply_tells_a_number_of_rows():
    grid = grid_of(FIVE)
    told = listen_to(grid, examples_of)
    strategies.SSI(n_components=2, mask=True).fit(grid)
    assert set(told) == {0}


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_a_restarted_node_comes_back_with_a_new_set_up():
    grid = grid_of(FIVE)
    node = grid.node(1)

    def restart(message):
        if message.metadata.dst_node_id == node and step_of(message) == (2, 2):
            grid.forget(node)
            grid.on_push = None

    grid.on_push = restart
    result = strategies.SSI(n_components=2, mask=True).fit(grid)
    assert is_pca_of(result, FIVE, angle=1e-4)
    assert len(result.history.of("mask.keys")) == 2


@pytest.mark.slow
def test_over_flower_a_value_beyond_the_bound_is_named_and_the_run_goes_on_without_the_node(lines):
    parts = [X * (100.0 if i == 3 else 1.0) for i, X in enumerate(FIVE)]
    grid = grid_of(parts)
    result = strategies.SSI(n_components=2, center=False, mask=MaskedSums(bound=2e3)).fit(grid)
    assert result.n_samples_ == sum(map(len, parts_without(parts, 3)))
    assert result.status.ok
    left_out = (
        f"node {grid.node(3)} (partition-id 3) was left out: This node cannot answer from its rows, and its own log"
    )
    assert any(left_out in line for line in lines)
    assert any("Y of this client has an entry that is not finite or exceeds 2e+03" in line for line in lines)


@pytest.mark.usefixtures("lines")
@pytest.mark.slow
@pytest.mark.parametrize("answered", [2, 5])
@pytest.mark.parametrize("name", ["faps", "dcf_pca", "consensus_rpca"])
def test_a_server_killed_while_nodes_answer_goes_on_to_the_same_bits(name, answered, tmp_path):
    """Nodes that have answered the message, and nodes that have not, are asked it again."""
    settings = {"n_components": 2, "mask": True, "max_rounds": 4, "min_nodes": 5}

    def grid_in(folder):
        return grid_of(FIVE, memory_dir=tmp_path / folder, noise_seed=0)

    whole = strategies.PCAStrategy(name, **settings).fit(grid_in("whole"))
    third, grid = whole.history.of(name)[2].number, grid_in("killed")

    def kill(message):
        # The messages of a round go out one by one, and each is answered before the next one goes out.
        if len(grid.sent) == 5 * third + answered + 1:
            grid.on_push = None
            raise KeyboardInterrupt

    grid.on_push = kill
    strategy = strategies.PCAStrategy(name, **settings, checkpoint=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        strategy.fit(grid)
    resumed = strategies.PCAStrategy(name, **settings, checkpoint=tmp_path / "run").fit(grid)
    assert len(resumed.history) > len(whole.history)
    assert resumed.status == whole.status
    assert not any(r.notes for r in resumed.history)
    np.testing.assert_array_equal(resumed.components_, whole.components_)


@pytest.mark.usefixtures("lines")
@pytest.mark.slow
def test_a_server_killed_in_a_sum_goes_on_with_a_new_set_up(tmp_path):
    path, grid = tmp_path / "run.ckpt", grid_of(FIVE)
    whole = strategies.SSI(n_components=2, mask=True).fit(grid_of(FIVE))

    with pytest.raises(KeyboardInterrupt):
        strategies.SSI(n_components=2, mask=True, checkpoint=path).fit(grid, on_round=interrupt_after(9))
    resumed = strategies.SSI(n_components=2, mask=True, checkpoint=path).fit(grid)
    np.testing.assert_array_equal(resumed.components_, whole.components_)


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_columns_that_differ_are_named_at_the_set_up():
    parts = [X[:, :7] if i == 2 else X for i, X in enumerate(FIVE)]
    grid = grid_of(parts)
    result = strategies.Krylov(n_components=2, mask=True).fit(grid)
    (reason,) = [r.failures[str(grid.node(2))] for r in result.history if r.failures]
    assert re.search(r"The columns of client \d+ do not fit: there are 7 instead of the 8 of the run\.", reason)
    assert is_pca_of(result, parts_without(parts, 2))
