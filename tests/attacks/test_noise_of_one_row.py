"""Test that noise hides one row, even if missing values spread its effect or peers are invented."""

import itertools

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, signed
from test_profiles import BOUNDED, algorithm_of, noise_known, of_the_first
from test_profiles import D as WIDTH

from flower_pca.core.kinds import ROWS, Kind, Part
from flower_pca.dp.gaussian import noise_of
from flower_pca.layers import noise
from flower_pca.masking import fixed
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

D, BUDGET = 5, noise_of(1.0, 1e-6) ** 2
STD = 1.0001 / np.sqrt(BUDGET)
DP = {"dp.clip": np.array(1.0), "dp.noise": np.array(STD), "dp.budget": np.array(BUDGET)}
RULES = {"max_epsilon": 1.0, "max_delta": 1e-6, "min_noise": 1.0, "max_clip": 1.0}
ASKED = {"Z": np.eye(D)[:, :1], **DP}
PARTS = {"Y": (D, 1), "n": ()}
FOLDERS = itertools.count()
RNG = np.random.default_rng(0)
GAPS = RNG.standard_normal((400, D))
GAPS[:300, 0] = np.nan
ONE = np.zeros((1, D))
ONE[0, 0] = 1e6  # This value would move the mean of the column, and with it all 300 rows.
OWN = Frame(np.zeros(D), np.r_[1.0, np.full(D - 1, 1e9)], own=True)


def fresh_node(folder, rows, key=0, **rules):
    """A node that has told nothing yet."""
    return Node(key, rows, memory_dir=folder / str(next(FOLDERS)), **RULES, **rules)


@pytest.mark.parametrize("frame", [OWN, Frame(), Frame(fill=np.zeros(D))], ids=["own means", "none", "the server's"])
@pytest.mark.parametrize("rows", [GAPS, np.vstack([GAPS, ONE])], ids=["without", "with"])
def test_a_node_with_missing_values_refuses_noise(rows, frame):
    """Without max_epsilon; with it a refusal would tell that there are any."""
    with pytest.raises(RefusedError, match="A run with noise cannot fill the missing values of this node"):
        Node(0, rows, min_noise=1.0, max_clip=1.0).ask("ssi", ASKED, frame)


@pytest.mark.parametrize("frame", [OWN, Frame(), Frame(fill=np.zeros(D))], ids=["own means", "none", "the server's"])
def test_with_a_budget_over_all_runs_a_row_with_a_gap_counts_as_zeros(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "add_noise", lambda a, deviation, bits: np.array(a, dtype=np.float64))
    told = [fresh_node(tmp_path, rows).ask("ssi", ASKED, frame)["Y"] for rows in (GAPS, GAPS[300:])]
    np.testing.assert_allclose(*told, rtol=1e-12)


@pytest.mark.slow
def test_constants_of_the_node_replace_missing_values_whatever_the_server_asks(tmp_path):
    """Then a row moves the answer by clip squared at most: at epsilon 1 it was the sum of 300 rows, 62 against 358."""
    told = []
    for rows in (GAPS, np.vstack([GAPS, ONE])):
        nodes = [fresh_node(tmp_path, rows, gap_values=0.0) for _ in range(30)]
        told.append(np.mean([node.ask("ssi", ASKED, OWN)["Y"][0, 0] for node in nodes]))
    assert abs(told[1] - told[0]) < 1.0 + 6.0 * STD * np.sqrt(2 / 30)
    named = Node(0, GAPS, min_noise=1.0, max_clip=1.0, gap_values="age=50, weight=70")
    with pytest.raises(RefusedError, match="its gap_values has no constant"):
        named.ask("ssi", ASKED, OWN)


@pytest.mark.slow
def test_constants_of_the_node_replace_missing_values_under_masks(tmp_path):
    shards = [GAPS, *(RNG.standard_normal((60, D)) for _ in range(3))]
    share = STD / np.sqrt(3)
    bounds = fixed.bounds_with_noise({"Y": Part((D, 1), Kind.PRODUCT), "n": ROWS}, share, 4)
    beside = {"dp.among": np.array(3)}
    nodes = signed(tmp_path / "refused", shards, min_noise=0.1, max_clip=1.0)
    sums = Sums(nodes)
    with pytest.raises(RefusedError, match="A run with noise cannot fill the missing values of this node"):
        sums.sum("ssi", ASKED, PARTS, bounds, frame=OWN, beside=beside)
    nodes = signed(tmp_path / "constants", shards, gap_values=0.0, **RULES)
    got = Sums(nodes).sum("ssi", ASKED, PARTS, bounds, frame=OWN, beside=beside)
    assert got["n"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("peers", [3, 19])
def test_peers_that_a_server_invents_take_no_noise_away(peers, tmp_path):
    """Without trusted keys the node adds all of it: with 19 of them epsilon of one message was 3.7."""
    X = 0.1 * RNG.standard_normal((200, D))
    left = []
    for _ in range(6):
        invented = [Node(i, np.zeros((2, D)), noise_seed=i) for i in range(1, peers + 1)]
        left.append(
            of_the_first([fresh_node(tmp_path, X), *invented], ASKED, STD, peers // 2 + 1) - X.T @ (X @ ASKED["Z"])
        )
    assert np.std(left) > 0.6 * STD


@pytest.mark.slow
def test_among_trusted_peers_the_noise_is_shared(tmp_path):
    """And each adds its share of it, less those that the node does not count on."""
    shards = [0.1 * RNG.standard_normal((60, D)) for _ in range(5)]
    left = []
    for attempt in range(6):
        nodes = signed(tmp_path / f"{attempt}", shards, max_colluders=1, **RULES)
        left.append(of_the_first(nodes, ASKED, STD, 2) - shards[0].T @ (shards[0] @ ASKED["Z"]))
    assert 0.4 * STD < np.std(left) < 1.1 * STD / np.sqrt(2) + 0.3 * STD
    with pytest.raises(RefusedError, match="divides its noise among"):
        of_the_first(signed(tmp_path / "more", shards, max_colluders=1, **RULES), ASKED, STD, 3)


def test_rules_about_gaps_are_numbers():
    for wrong in ("age", "age=x", float("nan"), {"age": float("inf")}):
        with pytest.raises(Exception, match="gap_values must be a number, or a number for each column by name"):
            Node(0, GAPS, gap_values=wrong)


@pytest.mark.parametrize("stage", BOUNDED)
def test_a_replaced_row_moves_an_answer_by_the_root_of_two_clips_at_most(stage, tmp_path):
    rng = np.random.default_rng(0)
    others, row = rng.standard_normal((40, WIDTH)), 3.0 * rng.standard_normal(WIDTH)
    told = []
    for i, one in enumerate((row, -row, np.roll(row, 1), 3.0 * np.eye(WIDTH)[0], -3.0 * np.eye(WIDTH)[1])):
        node = Node(0, np.vstack([others, one]), memory_dir=tmp_path / f"{i}")
        with noise_known():
            answer = node.ask(stage, {**BOUNDED[stage], **DP}, algorithm=algorithm_of(stage))
        told.append(np.concatenate([np.ravel(np.asarray(a, dtype=float)) for a in answer.values()]))
    moved = [np.linalg.norm(one - other) for one in told for other in told]
    assert 0.5 < max(moved) <= np.sqrt(2.0) + 1e-9
