"""Test that covariance replaces krylov if the first rounds show that eigenvalues are close."""

import bisect

import numpy as np
import pytest
from builders import gone_on, interrupt_after, rotation, uneven
from cases import every
from fake_grid import FakeGrid, app_of, grid_of, is_pca_of
from results import assert_close, assert_same_bits

from flower_pca import assembly, simulate
from flower_pca.algorithms.krylov import Krylov
from flower_pca.algorithms.rehearsal import converges_within
from flower_pca.base import linalg
from flower_pca.core.drive import OnRound, drive
from flower_pca.core.model import Model
from flower_pca.simulation.in_process import Shards
from flower_pca.simulation.sites import clients_of
from flower_pca.strategies import PCAStrategy


def falling_eigenvalues(d, ratio, *, clients=3, seed=0):
    """Rows of several clients whose pooled covariance has eigenvalues ratio^j, but for a factor."""
    n = 2 * d
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((n, d))
    U = np.linalg.qr(U - U.mean(axis=0))[0]
    X = (U * ratio ** (np.arange(d) / 2)) @ rotation(d, seed).T * 10.0
    return np.split(X, np.cumsum(uneven(n, clients))[:-1])


CLOSE = falling_eigenvalues(150, 0.995)
K = 2


def bytes_of(result):
    return sum(r.bytes_up + r.bytes_down for r in result.history)


def test_close_eigenvalues_take_seven_messages_and_no_more_bytes():
    found, krylov = (simulate(name, CLOSE, n_components=K) for name in ("auto", "krylov"))
    assert [r.stage for r in found.history] == ["opening", *["krylov"] * 5, "covariance"]
    assert len(krylov.history) > 20
    assert bytes_of(found) < 1.25 * bytes_of(krylov)
    assert is_pca_of(found, CLOSE)
    assert found.rounds == 6
    assert found.algorithm == "covariance(oversample=2)"
    (words,) = found.decisions
    assert words.startswith("auto chose krylov for 5 messages, then covariance: krylov was expected to take at least ")
    assert "and covariance takes one message with 11,325 numbers (150 columns)" in words


@every(("d", "k", "ratio"), [(500, 5, 0.9), (300, 5, 0.95), (160, 2, 0.9)])
def test_eigenvalues_that_are_apart_are_left_to_krylov(d, k, ratio):
    data = falling_eigenvalues(d, ratio)
    found, krylov = (simulate(name, data, n_components=k) for name in ("auto", "krylov"))
    assert found.algorithm == "krylov"
    assert_same_bits(found, krylov)


def test_many_least_rounds_make_covariance_cheaper_also_where_krylov_needs_few():
    data = falling_eigenvalues(300, 0.98)
    krylov, few, many = (simulate("auto", data, n_components=2, min_rounds=rounds) for rounds in (0, 15, 30))
    assert len(krylov.history) > 15
    assert_same_bits(few, krylov)
    assert many.algorithm == "covariance(oversample=2)"
    assert bytes_of(many) < bytes_of(krylov) * 31 / len(krylov.history)


@every(("d", "k", "ratio"), [(500, 5, 0.99), (500, 5, 0.999), (500, 10, 0.99), (300, 2, 0.99), (800, 10, 0.999)])
def test_auto_takes_at_most_eight_messages_and_a_quarter_more_bytes(d, k, ratio):
    data = falling_eigenvalues(d, ratio, seed=1)
    found, krylov = (simulate(name, data, n_components=k) for name in ("auto", "krylov"))
    assert len(found.history) <= 8
    assert bytes_of(found) <= 1.25 * bytes_of(krylov)
    assert is_pca_of(found, data)


def test_rows_of_single_precision_count_the_bytes_that_travel():
    data = [X.astype(np.float32) for X in falling_eigenvalues(300, 0.98)]
    found, krylov = (simulate(name, data, n_components=5, tol=1e-6) for name in ("auto", "krylov"))
    assert bytes_of(found) <= 1.25 * bytes_of(krylov)


@pytest.mark.slow
def test_masked_runs_switch_to_covariance():
    found = simulate("auto", CLOSE, n_components=K, mask=True)
    assert found.algorithm == "covariance(oversample=2)"
    assert_close(found, simulate("auto", CLOSE, n_components=K), within=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_a_client_that_is_lost_at_the_change_is_left_out(mask):
    """The run begins again with those that stay. Krylov is not tried again if covariance was known to cost less."""
    lost = 8 if mask else 6  # The setting up of masks takes messages too.
    here = {True: [0, 2], False: [0, 1, 2]}
    result = simulate("auto", CLOSE, n_components=K, mask=mask, fraction=lambda m: here[m >= lost])
    rest = [CLOSE[0], CLOSE[2]]
    assert result.status.ok
    assert result.algorithm == "covariance(oversample=2)"
    assert len(result.history.of("krylov")) <= 7
    assert is_pca_of(result, rest, angle=1e-4)


@pytest.mark.usefixtures("lines")
@every("rules", [{"allow": ("krylov", "ssi")}, {"max_columns": 149}])
def test_nodes_that_decline_covariance_are_not_asked_later(rules, tmp_path):
    found = PCAStrategy("auto", n_components=K).fit(grid_of(CLOSE, memory_dir=tmp_path, **rules))
    assert found.algorithm == "krylov"
    assert not any(record.failures for record in found.history)
    assert is_pca_of(found, CLOSE)


@pytest.mark.usefixtures("lines")
def test_no_more_leaves_a_node_than_its_number_of_columns(tmp_path):
    found = PCAStrategy("auto", n_components=K).fit(FakeGrid(app_of(CLOSE, max_columns=150, memory_dir=tmp_path), 3))
    assert found.algorithm == "covariance(oversample=2)"
    assert not any(record.failures for record in found.history)


@pytest.mark.slow
@pytest.mark.parametrize("messages", range(1, 8))
def test_a_checkpoint_of_any_message_gives_the_same_bits(messages, tmp_path):
    whole = simulate("auto", CLOSE, n_components=K)
    found = gone_on(simulate, "auto", CLOSE, path=tmp_path / "run.ckpt", stop=[messages], n_components=K)
    assert_same_bits(found, whole)
    assert (found.algorithm, found.decisions) == (whole.algorithm, whole.decisions)


def test_a_checkpoint_that_is_written_after_the_change_keeps_it():
    first, again = (assembly.run(assembly.config("auto", n_components=K)) for _ in range(2))
    there = Shards(clients_of(CLOSE, missing=False))

    with pytest.raises(KeyboardInterrupt):
        drive(first, there, watchers=[OnRound(interrupt_after(6))])
    assert first.pending(range(3)).stage == "covariance"
    again.restore(*first.checkpoint())
    assert again.position.stage.name == "covariance"
    assert again.position.model.decisions == first.position.model.decisions
    assert_same_bits(drive(again, there), simulate("auto", CLOSE, n_components=K))


@every(
    ("d", "k", "values"),
    [
        (300, 5, lambda d: 0.97 ** np.arange(d)),
        (500, 5, lambda d: 0.99 ** np.arange(d)),
        (500, 10, lambda d: (1.0 + np.arange(d)) ** -0.5),
        (500, 20, lambda d: np.linspace(1.0, 0.5, d) ** 4),
        (500, 5, lambda d: np.linalg.eigvalsh(np.cov(np.random.default_rng(0).standard_normal((d, 3 * d))))[::-1]),
    ],
)
def test_the_rounds_are_foretold_to_a_fifth(d, k, values):
    """Against the run itself, on a diagonal matrix with these eigenvalues."""
    eigenvalues = values(d)[:, None]
    algorithm = Krylov()
    block = linalg.orth(linalg.random_block(d, algorithm.width(k), 0))
    model = Model(
        n_components=k,
        center=True,
        scale=None,
        seed=0,
        n=10 * d,
        d=d,
        trace=float(eigenvalues.sum()),
        basis=block,
        product=eigenvalues * block,
    )
    state, after = algorithm.start(model), None
    while algorithm.status(state) is None:
        if len(state.errors) == 6:
            after = state
        state = algorithm.server(state, {"S": eigenvalues * state.block}, frozenset())
    more = bisect.bisect_left(range(1000), True, key=lambda rounds: converges_within(rounds, after))
    expected = more + len(after.errors)
    assert abs(expected - len(state.errors)) <= 0.2 * len(state.errors)
