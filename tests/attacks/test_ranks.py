"""Ways around the count of directions: what the count has in view is what the answer tells."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, error_of, signed

from flower_pca.rows.frame import Frame

D = 12
RNG = np.random.default_rng(5)
SHARDS = [RNG.standard_normal((90 + 5 * i, D)) * 0.8 ** np.arange(D) + 0.1 * i for i in range(4)]
X = SHARDS[0]
CENTRED = X - X.mean(axis=0)
ONE = np.eye(D)[:, :1]
SUMMED = {"n": (), "single": (), "rows": (), "sums": (D,), "squares": (D,), "product": (D, 1)}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Flower's own place, where a ledger lies without memory_dir."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))


def recovered(ask, true, rows=D):
    """The error of what an attack solves for: from products with the columns that `ask` gives beside them."""
    found, blocks = np.zeros((rows, D)), np.eye(D)
    for j in range(D):
        try:
            blocks[:, j], found[:, j] = ask(j)
        except RefusedError:
            break
    return error_of(found @ np.linalg.inv(blocks), true)


def test_an_opening_in_a_scaled_frame_tells_no_direction_that_does_not_count():
    """The block that the frame makes the vector of ones counts once, but its products are of raw rows."""
    node, rng = Node(0, X, max_rank=1), np.random.default_rng(1)

    def ask(j):
        scale = 1.0 + 3.0 * rng.random(D)
        asked = {"peaks": False, "block": scale[:, None]}
        return scale, node.ask("opening", asked, Frame(scale=scale), algorithm="krylov")["product"][:, 0]

    assert recovered(ask, CENTRED.T @ CENTRED) > 0.5


@pytest.mark.parametrize("frame", [{"mean": np.ones(D)}, {"scale": np.full(D, 2.0)}, {"fill": np.ones(D)}])
@pytest.mark.parametrize("stage", ["opening", "summed_opening"])
def test_an_opening_is_of_raw_rows(frame, stage):
    asked = {"peaks": False, "block": ONE, **({} if stage == "opening" else {"reference": np.zeros(D)})}
    with pytest.raises(RefusedError, match=f"must be of raw rows. Got a frame with {next(iter(frame))}"):
        Node(0, X).ask(stage, asked, Frame(**frame), algorithm="krylov")


def test_a_masked_opening_is_of_raw_rows(tmp_path):
    asked = {"reference": np.zeros(D), "peaks": False, "block": ONE}
    sums, bounds = Sums(signed(tmp_path, SHARDS, max_rank=2), algorithm="krylov"), dict.fromkeys(SUMMED, 1e8)
    with pytest.raises(RefusedError, match="What an opening asks for must be of raw rows"):
        sums.sum("summed_opening", asked, SUMMED, bounds, frame=Frame(scale=np.full(D, 2.0)))
    sums = Sums(signed(tmp_path / "own", SHARDS, max_rank=2), algorithm="krylov")
    sums.sum("summed_opening", asked, SUMMED, bounds, frame=Frame(own=True))
