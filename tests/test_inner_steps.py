"""What a round of consensus_rpca costs a client: counts off the bits, one inverse a basis, as few steps as do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import every

from flower_pca import simulate
from flower_pca.algorithms.robust import huber, sizes
from flower_pca.algorithms.robust.consensus_rpca import ConsensusRPCA
from flower_pca.rows.local import LocalData


@every("dtype", [np.float32, np.float64])
@every("top", [-3, 0, 7])
def test_counts_read_off_the_bits_are_those_of_a_histogram(dtype: type, top: int) -> None:
    rng = np.random.default_rng(40)
    spread = rng.standard_normal(3000) * 2.0 ** rng.integers(-80, 20, 3000)
    R: Any = np.concatenate([spread, [0.0, -0.0, 1.0, -1.0, 1.25, 1e-40, 1e30]]).astype(dtype).reshape(1, -1)
    octaves = (2.0 ** np.arange(-60, 0)[:, None] * (1.0, 1.25, 1.5, 1.75)).ravel() * 2.0**top
    edges = np.concatenate([[0.0], octaves, [2.0**top, np.inf]])
    expected = np.histogram(np.abs(R.astype(np.float64)), edges)[0]
    expected = np.concatenate([expected[:240], [expected[240] + expected[241]]])
    found = sizes.count_coarsely(R, top)
    assert found.shape == (sizes.BINS,)
    np.testing.assert_array_equal(found, expected)
    share = np.mean(np.abs(R.astype(np.float64)) > 2.0 ** (top - 5))
    assert sizes.share_above(found, top, 2.0 ** (top - 5)) == pytest.approx(share, abs=1e-9)
    assert sizes.share_above(np.zeros(sizes.BINS), top, 1.0) == 0.0


@pytest.mark.slow
def test_clients_take_fewer_inner_steps_where_few_entries_are_far() -> None:
    rng = np.random.default_rng(41)
    L = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 60))
    asked: dict[float, set[int]] = {}
    for share in (0.03, 0.25):
        X = L + 60.0 * (rng.random(L.shape) < share) * rng.choice([-1.0, 1.0], L.shape)
        steps: list[int] = []
        client = ConsensusRPCA.client

        def seen(arrays: Any, data: Any, memory: Any, steps: list[int] = steps, client: Any = client) -> Any:
            if "U" in arrays and not arrays["proof"]:
                steps.append(int(arrays["inner_steps"]))
            return client(arrays, data, memory)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConsensusRPCA, "client", staticmethod(seen))
            result = simulate("consensus_rpca", np.array_split(X, 3), n_components=3, seed=1)
        assert result.status.outcome.value == "converged"
        asked[share] = set(steps[-30:])
    assert asked == {0.03: {2}, 0.25: {3}}


def test_the_inverse_of_a_basis_is_found_once_for_all_clients_and_anew_for_another() -> None:
    rng = np.random.default_rng(42)
    U = rng.standard_normal((9, 3))
    for basis, rho in ((U, 0.5), (U, 0.5), (U, 0.7), (U.copy(), 0.7), (2.0 * U, 0.7)):
        X, V = rng.standard_normal((4, 9)), rng.standard_normal((4, 3))
        found = huber.Regression(basis, 0.3, rho).steps(X, V, 1)[0]
        C = np.clip(X - V @ basis.T, -0.3, 0.3)
        expected = V + (C @ basis - rho * V) @ np.linalg.inv(basis.T @ basis + rho * np.eye(3))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_columns_that_come_back_find_their_scores_where_they_were_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a third of the messages' work went into finding them anew."""
    rng = np.random.default_rng(43)
    U, noise = rng.standard_normal((30, 3)), 0.1 * rng.standard_normal((20, 30))
    data = LocalData(rng.standard_normal((20, 3)) @ U.T + noise)
    sent: dict[str, Any] = {
        "U": U, "lam": 0.2, "rho": 0.1, "cut": 1e3, "start": 0.2, "share": 0.02, "top": 4, "seed": 1, "tag": 4,
        "inner_steps": 300, "origin": -1, "proof": False, "even": False,
    }  # fmt: skip
    client = ConsensusRPCA.client
    found, memory = client({name: np.array(a) for name, a in sent.items()}, data, {})
    fewer = sent | {"U": U[:, :2], "turn": np.eye(3)[:, :2], "tag": 5, "origin": 4, "start": 5.0}
    for _ in range(2):
        memory = client({name: np.array(a) for name, a in fewer.items()}, data, memory)[1]
        assert memory["V"].shape == (20, 2)
    monkeypatch.setattr(huber, "recover", None)  # No row is computed again.
    back = sent | {"turn": np.eye(3), "tag": 6, "origin": 4, "start": 5.0}
    again = client({name: np.array(a) for name, a in back.items()}, data, memory)[0]
    np.testing.assert_allclose(again["G"], found["G"], rtol=1e-6)
    following = sent | {"tag": 7, "start": 0.2}
    assert set(client({name: np.array(a) for name, a in following.items()}, data, memory)[1]) == {"V", "tag", "lam"}
