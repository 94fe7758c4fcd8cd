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


def test_all_of_the_sum_of_c_counts_under_masks(tmp_path):
    """What covariance sends has no block, and tells every direction."""
    asked, shapes = {"columns": D}, {"C": (D * (D + 1) // 2,), "n": ()}
    for most in (1, D - 1, D):
        nodes = signed(tmp_path / str(most), SHARDS, max_rank=most)
        sums = Sums(nodes, algorithm="covariance")
        if most < D:
            with pytest.raises(RefusedError, match=rf"at most {most}: that is its max_rank\. Got {D} with this"):
                sums.sum("covariance", asked, shapes, dict.fromkeys(shapes, 1e6))
        else:
            assert np.isclose(sums.sum("covariance", asked, shapes, dict.fromkeys(shapes, 1e6))["n"], 4 * 97.5)


def test_steps_of_a_nodes_own_count_under_masks(tmp_path):
    """The sum of many own power steps has next to nothing of the block in it, and all of the leading direction."""
    asked, shapes = {"Z": ONE, "steps": 50, "aligned": False}, {"Y": (D, 1), "n": ()}
    sums = Sums(signed(tmp_path, SHARDS, max_rank=1), algorithm="local_power")
    with pytest.raises(RefusedError, match=r"at most 1: that is its max_rank\. Got 2 with this message"):
        sums.sum("local_power", asked, shapes, dict.fromkeys(shapes, 1e6))


@pytest.mark.parametrize(
    ("stage", "asked", "shapes"),
    [
        ("uda", {"rank": 2, "weighted": False}, {"V": (D, 2)}),
        ("wda", {"rank": 2, "weighted": True}, {"V": (D, 2), "S": (2,)}),
        ("dr_svd", {"step": 1, "block": ONE}, {"R": (1, 1)}),
        ("dr_svd", {"step": 2, "block": ONE, "part": np.eye(1)}, {"B": (D, 1)}),
        ("local_power", {"Z": ONE, "steps": 5, "aligned": True}, {"Y": (D, 1), "n": (), "X": (D, 1)}),
        ("per_pca", {"measure": True}, {"norm": ()}),
    ],
)
def test_what_is_no_sum_is_refused_under_masks(stage, asked, shapes, tmp_path):
    """No strategy of ours asks for it, and with a rank to count it could be counted by nobody."""
    sums = Sums(signed(tmp_path, SHARDS, allow=[stage]), algorithm=stage)
    with pytest.raises(RefusedError, match=f"a sum that shows nothing of a node's own results. Got {stage}"):
        sums.sum(stage, asked, shapes, dict.fromkeys(shapes, 1e6))


def tiny(node, stage, named, extra, key, algorithm):
    """The columns of C_i but the first, from parts of a block that are too short to count."""
    sizes, found = np.sqrt(np.sum(CENTRED**2, axis=0)), np.zeros((D, D))
    for j in range(D):
        t = 0.9e-13 * sizes[0] / sizes[j]
        z = ONE[:, 0] + (t if j else 0.0) * np.eye(D)[j]
        answer = node.ask(stage, {named: z[:, None], **extra}, algorithm=algorithm)[key].reshape(D)
        found[:, j] = (answer - found[:, 0]) / t if j else answer
    return found[:, 1:]


WAYS = [
    ("ssi", "Z", {}, "Y"),
    ("ritz", "Z", {}, "Y"),
    ("krylov", "B", {}, "S"),
    ("opening", "block", {"peaks": False}, "product"),
]
JUNK = [{}, {"junk": np.zeros(D)}, {"junk": np.zeros((D, 3))}, {"a": np.zeros((D, 1))}, {"seed": 0, "width": 0}]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(("stage", "named", "extra", "key"), WAYS)
def test_arrays_beside_the_block_take_no_veil_off(stage, named, extra, key, junk):
    node, true = Node(0, X, max_rank=1), (CENTRED if stage == "opening" else X)
    algorithm = stage if stage in ("ssi", "krylov") else "krylov"
    asked = {**junk, **extra}
    assert error_of(tiny(node, stage, named, asked, key, algorithm), (true.T @ true)[:, 1:]) > 0.5


@pytest.mark.parametrize("junk", [{}, {"junk": np.zeros((D, D))}])
def test_nor_does_a_block_that_is_a_vector(junk):
    with pytest.raises(RefusedError, match=r"one whose products have shape \(12,\)\. Got shape \(12, 12\)"):
        Node(0, X, max_rank=1).ask("ssi", {"Z": ONE[:, 0], **junk})
    found = np.zeros((D, D))
    node, sizes = Node(0, X, max_rank=1), np.sqrt(np.sum(CENTRED**2, axis=0))
    for j in range(D):
        t = 0.9e-13 * sizes[0] / sizes[j]
        asked = {"peaks": False, "block": ONE[:, 0] + (t if j else 0.0) * np.eye(D)[j], **junk}
        answer = node.ask("opening", asked, algorithm="krylov")["product"]
        found[:, j] = (answer - found[:, 0]) / t if j else answer
    assert error_of(found[:, 1:], (CENTRED.T @ CENTRED)[:, 1:]) > 0.5


@pytest.mark.parametrize("size", [1e60, 1e75, 1e139])
@pytest.mark.parametrize(("stage", "named", "extra", "key"), WAYS)
def test_no_refusal_compares_a_product_with_a_number_of_the_server(stage, named, extra, key, size):
    """A node of another size says the same: what is refused is the message, not what it makes of the rows."""
    algorithm, said = stage if stage in ("ssi", "krylov") else "krylov", set()
    for rows in (X, 1e12 * X, 1e-12 * X):
        node = Node(0, rows, max_rank=1)
        try:
            node.ask(stage, {named: size * ONE, **extra}, algorithm=algorithm)
            said.add("answered")
        except RefusedError as error:
            said.add(str(error))
    if size > 1e60:
        assert said == {f"{named} of a message must be at most 1e+60 in size. Got larger entries. Check the sender."}
    else:
        assert said == {"answered"}


def test_what_is_told_of_rows_too_large_is_no_number_of_theirs():
    rows = X.copy()
    rows[3, 2] = 1.2345e80
    with pytest.raises(RefusedError, match=r"of usual size, at most 1e\+65.* Got a larger one in column 2\. Scale"):
        Node(0, rows).ask("opening", {"peaks": False, "block": ONE}, algorithm="krylov")
