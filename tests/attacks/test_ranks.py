"""Ways around the count of directions: what the count has in view is what the answer tells."""

import numpy as np
import pytest
from cases import PLAIN_OR_MASKED
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_steps_of_a_nodes_own_count_under_masks(tmp_path):
    """The sum of many own power steps has next to nothing of the block in it, and all of the leading direction."""
    asked, shapes = {"Z": ONE, "steps": 50, "aligned": False}, {"Y": (D, 1), "n": ()}
    sums = Sums(signed(tmp_path, SHARDS, max_rank=1), algorithm="local_power")
    sums.sum("local_power", asked, shapes, dict.fromkeys(shapes, 1e6))
    with pytest.raises(RefusedError, match=r"at most 1: that is its max_rank\. Got 2 with this message"):
        sums.sum("local_power", {**asked, "steps": 49}, shapes, dict.fromkeys(shapes, 1e6))


def faps(Z, steps):
    return {"Z": Z, "inner_steps": steps, "inner_tol": 0.0}


def own_parts(Z):
    return {"U": Z, "b": ONE, "own": 2, "samples": False}


def refused(node, *given, **named):
    """Why a node refuses, in a word; "" if it answers."""
    try:
        node.ask(*given, **named)
    except RefusedError as error:
        return next(word for word in ("max_rank", "finite") if word in str(error))
    return ""


# What is no product with a block of the message: from a block of one column to a message, and how many directions more
# an answer counts for.
BESIDE = {
    "faps without steps": ("faps", lambda Z: faps(Z, 0), 1),
    "faps with one": ("faps", lambda Z: faps(Z, 1), 1),
    "faps with ten": ("faps", lambda Z: faps(Z, 10), 1),
    "faps, measured": ("faps", lambda Z: {**faps(Z, 1), "guard": 0.0}, 1),
    "local steps": ("local_power", lambda Z: {"Z": Z, "steps": 2, "aligned": False}, 1),
    "local steps and their basis": ("local_power", lambda Z: {"Z": Z, "steps": 2, "aligned": True}, 2),
    "lifted": ("dr_svd", lambda Z: {"step": 2, "block": Z, "part": np.eye(1)}, 1),
    "gradients": ("per_pca", lambda Z: {**own_parts(Z), "eta": 0.1, "choice": 1, "polar": True, "seed": 0}, 1),
    "deflated": ("exact_per_pca", lambda Z: {**own_parts(Z), "steps": 0}, 1),
}


@pytest.mark.parametrize("memory", ["as it was", "as it goes on"])
@pytest.mark.parametrize("how", BESIDE)
def test_what_is_no_product_is_told_by_no_differences(how, memory):
    """Of answers to blocks that differ by parts too small to count: each counts."""
    stage, asked, count = BESIDE[how]
    sizes, node = np.sqrt(np.sum(CENTRED**2, axis=0)), Node(0, X, max_rank=3)

    def ask(j):
        Z = ONE + 0.5e-13 * sizes[0] / sizes[j] * np.eye(D)[:, [j]]
        return refused(node, stage, asked(Z), number=0 if memory == "as it was" else j)

    assert [ask(j) for j in range(1, D)] == ["" if j <= 3 // count else "max_rank" for j in range(1, D)]


@pytest.mark.parametrize(("stage", "asked"), [
    ("uda", {"rank": 1, "weighted": False}), ("wda", {"rank": 1, "weighted": True}), ("per_pca", {"measure": True}),
])  # fmt: skip
def test_nor_by_units_that_differ_as_little(stage, asked):
    node = Node(0, X, max_rank=3)
    said = [refused(node, stage, asked, Frame(scale=1.0 + 1e-9 * np.eye(D)[j])) for j in range(D)]
    assert said == [""] * 3 + ["max_rank"] * (D - 3)


def test_the_factor_of_a_block_tells_nothing_of_parts_too_small_to_count():
    """R'R = Z'CZ: with a column beside, differences would tell entries of C one by one."""
    node, sizes, found = Node(0, X, max_rank=2), np.sqrt(np.sum(X**2, axis=0)), np.zeros((2, D))
    for j in range(D):
        t = 0.5e-13 * sizes[:2] / sizes[j] * (j > 1)
        Z = np.eye(D)[:, :2] + np.outer(np.eye(D)[j], t)
        R = node.ask("dr_svd", {"step": 1, "block": Z})["R"]
        product = R.T @ R
        if j == 0:
            first = product
        elif j > 1:
            found[:, j] = (product - first)[[0, 1], [1, 0]] / t[[1, 0]]
    assert error_of(found[:, 2:], (X.T @ X)[:2, 2:]) > 0.5


OVERFLOWS = {"ssi": ("Z", {"Y": (D, 1), "n": ()}), "krylov": ("B", {"S": (D, 1)}), "ritz": ("Z", {"Y": (D, 1)})}


@pytest.mark.parametrize("stage", OVERFLOWS)
@pytest.mark.parametrize("masked", PLAIN_OR_MASKED)
def test_whether_numbers_overflow_is_told_no_more_often_than_directions(stage, masked, tmp_path):
    """A scale takes an answer beyond all numbers, or just not: that compares it with a number of the server."""
    (name, shapes), low, high = OVERFLOWS[stage], -150.0, 0.0
    algorithm = "krylov" if stage == "ritz" else stage
    nodes = signed(tmp_path, SHARDS, max_rank=3) if masked else [Node(0, X, max_rank=3)]

    class Whole:
        """All nodes by a sum, or the only one by itself."""

        def ask(self, frame):
            if not masked:
                return nodes[0].ask(stage, {name: 1e60 * ONE}, frame, algorithm=algorithm)
            sums = Sums(nodes, algorithm=algorithm)
            return sums.sum(stage, {name: ONE}, shapes, dict.fromkeys(shapes, 0.0), frame=frame)

    said = []
    for _ in range(16):
        middle = (low + high) / 2.0
        said.append(refused(Whole(), Frame(scale=np.full(D, 10.0**middle))))
        low, high = (middle, high) if said[-1] else (low, middle)
    assert 1 <= said.count("finite") <= 4
    assert said[-6:] == ["max_rank"] * 6
    assert refused(Whole(), Frame()) == "max_rank"  # whatever is asked from then on


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
