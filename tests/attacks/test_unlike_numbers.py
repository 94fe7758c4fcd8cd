"""Test numbers that differ by client in a masked message: the sum must not reveal one client.

Of exact_per_pca a client without own components answers with all of S_i U, one with d - r of them with nothing outside
of U; so the sum over all tells the one that is asked for another number than the rest.
"""

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, error_of, signed

from flower_pca import ProtocolError
from flower_pca.core.layer import flatten_layers
from flower_pca.layers import single
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

D, R, VICTIM = 8, 2, 1
RNG = np.random.default_rng(0)
ROWS = [RNG.standard_normal((60, D)) * 0.8 ** np.arange(D) + 0.1 * i for i in range(4)]


def single_numbers(name, numbers):
    """Numbers for single clients, as they travel."""
    return flatten_layers({"single": single.table_arrays(name, numbers)})


U = np.linalg.qr(RNG.standard_normal((D, R)))[0]
B = np.eye(D)[:, :1]
SHAPES = {"w": (), "Vb": (D, 1), "probed": (), "n": (), "Z": (D, R), "f": ()}
BOUNDS = {"w": 9.0, "Vb": 2.0, "probed": 1.0, "n": 1e6, "Z": 1e3, "f": 1e3}
ROUND = {"U": U, "b": B, "samples": False, "steps": 0}
REFUSED = r"has different values of a setting for different clients|of the server's message must be (one number|whole)"
X = ROWS[VICTIM]
OF_ONE = X.T @ (X @ U) / len(X)
OF_ONE -= U @ (U.T @ OF_ONE)


def outside(folder, numbers, **rules):
    """What a sum of a round has outside of U."""
    sums = Sums(signed(folder, ROWS, **rules), algorithm="exact_per_pca")
    Z = sums.sum("exact_per_pca", {**ROUND, **numbers}, SHAPES, BOUNDS)["Z"]
    return Z - U @ (U.T @ Z)


TABLES = {
    "own components": single_numbers("own", {VICTIM: 0, "others": D - R}),
    "one more": single_numbers("own", {VICTIM: 2, "others": 1}),
    "by name": single_numbers("own", {"Bonn": 2, "others": 1}),
    "nobody else": single_numbers("own", {VICTIM: 2, 0: 1, 2: 1, 3: 1}),
    "steps": {"own": 1, **single_numbers("steps", {VICTIM: 3, "others": 0})},
    "a matrix": {**single_numbers("own", {0: 1, VICTIM: 2}), "single.own": np.array([[1, 1, 2]])},
    "halves": {**single_numbers("own", {0: 1, VICTIM: 1, "others": 1}), "single.own": np.array([1.0, 1.5, 1.0])},
}


@pytest.mark.parametrize("what", TABLES)
def test_numbers_that_differ_are_refused(what, tmp_path):
    with pytest.raises(RefusedError, match=REFUSED):
        outside(tmp_path, TABLES[what])


@pytest.mark.slow
def test_a_table_of_one_number_is_that_number(tmp_path):
    one, same = outside(tmp_path, {"own": 2}), outside(tmp_path / "b", single_numbers("own", {0: 2, "others": 2}))
    assert error_of(one, same) < 1e-9
    assert error_of(one, OF_ONE) > 0.5


@pytest.mark.slow
def test_fewer_rows_than_columns_among_nodes_of_more_tell_their_space(tmp_path):
    """What docs say that masks cannot hide: asked for all of space, only such a node has less."""
    few = [rows[: D - 3] if i == VICTIM else rows for i, rows in enumerate(ROWS)]
    sums = Sums(signed(tmp_path, few), algorithm="exact_per_pca")
    asked = {"k": D, "B": np.eye(D), "samples": False}
    told = sums.sum("exact_per_pca", asked, {"w": (), "P": (D, D)}, {"w": 9.0, "P": 9.0})["P"]
    assert error_of(told - (len(few) - 1) * np.eye(D), np.linalg.pinv(few[VICTIM]) @ few[VICTIM]) < 1e-9


def test_without_masks_a_node_answers_by_itself():
    answer = Node(VICTIM, X).ask("exact_per_pca", {**ROUND, **TABLES["own components"]})
    assert error_of(answer["Z"] - U @ (U.T @ answer["Z"]), OF_ONE) < 1e-9


class OneFrame(Sums):
    """Sums in which one client gets the frame in numbers of another kind: of the same values."""

    kind = "f2"

    def send(self, i, arrays, frame=None):
        if frame is not None and i == VICTIM:
            frame = Frame(frame.mean, frame.scale.astype(self.kind))
        return super().send(i, arrays, frame)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_a_frame_of_other_numbers_is_the_same_frame(kind, tmp_path):
    """Squares in units of few bits would be rounded otherwise at one client: two sums differ by its own."""
    scale = (1.0 + RNG.random(D)).astype("f2").astype(float)
    asked = ("ritz", {"Z": B}, {"Y": (D, 1)}, {"Y": 1e4})
    told = []
    for each in ("f8", kind):
        sums = OneFrame(signed(tmp_path / each, ROWS), algorithm="krylov")
        sums.kind = each
        told.append(sums.sum(*asked, frame=Frame(None, scale))["Y"])
    assert np.abs(told[1] - told[0]).max() < 1e-8


@pytest.mark.slow
def test_a_block_that_lies_otherwise_in_memory_is_another(tmp_path):
    """Its products round otherwise: two sums would differ by the last digits of one answer, which masks hide."""
    sums = Sums(signed(tmp_path, ROWS), algorithm="ssi")
    assert error_of(sums.product(U), sum(rows.T @ (rows @ U) for rows in ROWS)) < 1e-9
    with pytest.raises(ProtocolError, match="noise"):
        sums.product(U, told={VICTIM: {"Z": np.asfortranarray(U)}})
