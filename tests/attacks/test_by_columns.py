"""Test runs over columns of the same people against a server that asks for more than a run does."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, error_of, signed

from flower_pca import ProtocolError
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation

pytestmark = pytest.mark.usefixtures("home")

N, D = 20, 3
X = np.random.default_rng(0).standard_normal((N, D)) * [1.0, 2.0, 5.0] + [3.0, 0.0, -1.0]
ABOUT = Frame(split=ColumnPreparation())
Q = np.linalg.qr(np.random.default_rng(1).standard_normal((N, 6)))[0]


def split_frame(**split):
    return Frame(split=ColumnPreparation(**split))


def test_the_answer_is_that_of_the_columns_alone():
    Xc = X - X.mean(axis=0)
    there = Node(0, X, split_columns=True).ask("ssi", {"Z": Q}, ABOUT)["Y"]
    assert np.linalg.norm(there - Xc @ (Xc.T @ Q)) <= 1e-12 * np.linalg.norm(there)


def test_two_scales_are_refused_and_rows_beside():
    node = Node(0, X, split_columns="std")
    node.ask("ssi", {"Z": Q}, split_frame(scale="std"))
    for other in (split_frame(), split_frame(scale="max_abs")):
        with pytest.raises(RefusedError, match="two scales together would reveal its columns"):
            node.ask("ssi", {"Z": Q}, other)
    with pytest.raises(RefusedError, match="about columns together would reveal rows"):
        node.ask("ssi", {"Z": np.eye(D)[:, :2]})


class OtherWay(Sums):
    """Sums in which one party is to prepare its columns in another way."""

    ways: tuple[ColumnPreparation, ...] = ()

    def send(self, i, arrays, frame=None):
        return super().send(i, arrays, None if frame is None else Frame(split=self.ways[i == 1]))


@pytest.mark.slow
@pytest.mark.parametrize("other", [ColumnPreparation(center=False), ColumnPreparation(scale="std")])
def test_columns_that_one_party_prepares_otherwise_give_noise(other, tmp_path):
    """Else the difference of two sums is that party's own: what centering takes from its columns, say."""
    parts = [X, X[:, ::-1] * 2.0, X**2]
    sums = OtherWay(signed(tmp_path, parts, split_columns="any"), algorithm="ssi")
    sums.ways = (ColumnPreparation(),) * 2
    whole = sum((P - P.mean(axis=0)) @ ((P - P.mean(axis=0)).T @ Q) for P in parts)
    given = {"shapes": {"Y": Q.shape, "n": ()}, "bounds": {"Y": 1e6, "n": 1e6}}
    assert error_of(sums.sum("ssi", {"Z": Q}, **given)["Y"], whole) < 1e-9
    sums.ways = (ColumnPreparation(), other)
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum("ssi", {"Z": Q}, **given)
