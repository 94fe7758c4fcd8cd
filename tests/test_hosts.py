"""Test virtual nodes with many clients: one message per node, and the same bits as with single clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fake_grid
import numpy as np
import pytest
from builders import interrupt_after, pooled, synthetic
from flwr.app import ArrayRecord, ConfigRecord, Error, Message
from results import assert_same_bits, assert_same_steps

from flower_pca import Stream, assembly, simulate, track, wire
from flower_pca.hosting import messages as hosted
from flower_pca.strategies import PCAStrategy, TrackingStrategy

pytestmark = pytest.mark.usefixtures("lines")

N = 10


def uneven_shards(dtype: Any = np.float64, apart: float = 0.1) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    sizes = rng.integers(5, 40, N)
    X = synthetic(int(sizes.sum()), 12, 0.7 ** np.arange(12), seed=3)
    return [(part + apart * i).astype(dtype) for i, part in enumerate(np.split(X, np.cumsum(sizes)[:-1]))]


def fitted_over_hosts(algorithm: str, grid: fake_grid.FakeGrid, *, n: int = N, **settings: Any) -> Any:
    return PCAStrategy(algorithm, n_components=3, min_nodes=n, hosted="stacked", **settings).fit(grid)


@pytest.mark.slow
def test_float32_rows_keep_their_bits() -> None:
    assert_same_bits(
        fitted_over_hosts("krylov", fake_grid.hosts_of(uneven_shards(np.float32))),
        simulate("krylov", uneven_shards(np.float32), n_components=3),
    )


@pytest.mark.slow
def test_noise_of_a_budget_comes_from_every_client() -> None:
    result = fitted_over_hosts(
        "ssi(max_rounds=2)", fake_grid.hosts_of(uneven_shards()), dp="dp(epsilon=50.0, delta=1e-6, clip=10.0)"
    )
    assert result.privacy is not None
    assert result.n_samples_ > 0


@pytest.mark.slow
def test_streams_are_followed_to_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    batches = [[rng.standard_normal((6, 8)) for _ in range(3)] for _ in range(5)]
    grid = fake_grid.hosts_of([Stream(b) for b in batches], each=2)
    there = TrackingStrategy("st_miss", n_components=2, min_nodes=5, hosted="stacked").fit(grid)
    assert_same_steps(there, track("st_miss", [Stream(b) for b in batches], n_components=2))


@pytest.mark.slow
def test_each_client_keeps_a_state_and_a_ledger_of_its_own(tmp_path: Any) -> None:
    grid = fake_grid.hosts_of(uneven_shards(), memory_dir=tmp_path, max_messages_ever=2)
    with pytest.raises(Exception, match="which is its max_messages_ever"):
        fitted_over_hosts("krylov", grid)
    assert len(list(tmp_path.glob("flower_pca-ledger-*.npz"))) == N


def test_a_client_that_fails_is_one_client_by_its_name(lines: list[str]) -> None:
    rows = uneven_shards()
    rows[5][0, 0] = np.nan
    result = PCAStrategy("krylov", n_components=3, min_nodes=2, hosted="stacked").fit(fake_grid.hosts_of(rows))
    assert result.n_samples_ == sum(len(X) for i, X in enumerate(rows) if i != 5)
    assert any("client 5 was left out" in line and "missing value" in line for line in lines)
    assert set(result.history[0].failures) == {"5"}


def test_a_node_that_fails_is_all_its_clients() -> None:
    grid = fake_grid.hosts_of(uneven_shards())
    ill = grid.node(1)

    def crashed(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == ill and message.metadata.message_type == "train":
            return Message(Error(code=2, reason="no more memory"), reply_to=message)
        return reply

    grid.tamper = crashed
    result = PCAStrategy("krylov", n_components=3, min_nodes=2, hosted="stacked").fit(grid)
    assert result.n_samples_ == sum(len(X) for i, X in enumerate(uneven_shards()) if i not in range(4, 8))
    assert set(result.history[0].failures) == {"4", "5", "6", "7"}


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_the_same_clients(tmp_path: Any) -> None:
    path = tmp_path / "run.ckpt"

    strategy = PCAStrategy("krylov", n_components=3, min_nodes=N, hosted="stacked", checkpoint=path)
    with pytest.raises(KeyboardInterrupt):
        strategy.fit(fake_grid.hosts_of(uneven_shards()), on_round=interrupt_after(3))
    resumed = strategy.fit(fake_grid.hosts_of(uneven_shards()))  # a new simulation, whose nodes have other ids
    assert_same_bits(resumed, simulate("krylov", uneven_shards(), n_components=3))


@pytest.mark.slow
def test_the_steps_of_a_caller_reach_hosted_clients() -> None:
    grid, strategy = (
        fake_grid.hosts_of(uneven_shards()),
        PCAStrategy("krylov", n_components=3, min_nodes=N, hosted="stacked"),
    )
    for number in range(1, 40):
        sent = list(strategy.configure_train(number, ArrayRecord(), ConfigRecord(), grid))
        if not sent:
            break
        assert len(sent) == len(grid.nodes)
        arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(sent))
    here = simulate("krylov", uneven_shards(), n_components=3)
    assert arrays is not None
    np.testing.assert_array_equal(arrays["components"].numpy(), here.components_)


@pytest.mark.slow
def test_a_wrong_answer_of_one_client_leaves_that_client_out(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from flower_pca.clients import PCAClient

    fit = PCAClient.fit

    def wrong(self: PCAClient, parameters: Any, config: Any) -> Any:
        arrays, n, metrics = fit(self, parameters, config)
        if self._key == 6 and config["stage"] == "krylov":
            arrays = [a * np.inf for a in arrays]
        return arrays, n, metrics

    monkeypatch.setattr(PCAClient, "fit", wrong)
    result = PCAStrategy("krylov", n_components=3, min_nodes=2, hosted="stacked").fit(
        fake_grid.hosts_of(uneven_shards())
    )
    assert result.n_samples_ == sum(len(X) for i, X in enumerate(uneven_shards()) if i != 6)
    assert any("client 6 was left out" in line and "NaN or infinite" in line for line in lines)


@pytest.mark.slow
def test_clients_with_names_are_named_too() -> None:
    from flower_pca.names.table import Table

    names = tuple(f"column {j:02d}" for j in range(12))
    rows = [Table(X, names, site=f"site {i}") for i, X in enumerate(uneven_shards())]
    result = fitted_over_hosts("krylov", fake_grid.hosts_of(rows))
    assert result.feature_names_in_ is not None
    assert tuple(result.feature_names_in_) == names
    assert result.site_names == {i: f"site {i}" for i in range(N)}


def test_every_client_of_a_message_gets_the_arrays_for_it_alone() -> None:
    run = assembly.run(assembly.config("krylov", n_components=2))
    message = replace(run.pending(range(4)), personal={i: {"own": np.full(2, i)} for i in (0, 1, 3)})
    content = hosted.HostedMessageWriter(message, algorithm="krylov", run="", extra={}).request([0, 2, 3])
    found = {}
    for client, arrays, config in hosted.read_request(content, wire.message_kind(message.purpose)):
        found[client] = dict(zip(config["names"].split(","), arrays, strict=True)).get("own")
    assert {client: own if own is None else own.tolist() for client, own in found.items()} == {
        0: [0, 0],
        2: None,
        3: [3, 3],
    }


@pytest.mark.slow
def test_masks_over_so_many_clients_are_those_of_one_by_one() -> None:
    """So many that each shares masks with some of the others only; against LAPACK on all rows."""
    rng = np.random.default_rng(5)
    rows = [rng.standard_normal((4, 12)) * 0.6 ** np.arange(12) + 0.1 * (i % 7) for i in range(30)]
    masks = "masks(neighbors=12)"
    result = fitted_over_hosts("krylov(tol=1e-12)", fake_grid.hosts_of(rows, each=10), n=30, mask=masks)
    truth = pooled(rows)
    assert result.angle_to(truth.components[:3]) < 1e-9
    np.testing.assert_allclose(result.explained_variance_, truth.variances[:3], rtol=1e-9)
    assert {record.answered for record in result.history} == {30}
