"""Test steps that no tracker asks for: before the first, far ahead, and of rows with too many columns."""

import itertools

import numpy as np
import pytest
from builders import peak_memory
from cases import every
from dishonest import Node, RefusedError, error_of

from flower_pca import DataError, Stream, wire
from flower_pca.clients.policy import limits
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

D, BATCH = 6, 20
X = np.random.default_rng(0).standard_normal((4 * BATCH + 1, D))
MESSAGE = {"step": 0, "lap": 0, "refine": False, "width": D, "seed": 0}
TRACKERS = ("st_miss", "robust_tracking")


def node(tracker, source, **how):
    return Node(0, Stream(source, **how), allow=tracker)


@every("tracker", TRACKERS)
@every("step", [-1, -2, -5, 2.0**54, 1e149])
def test_batches_begin_where_the_stream_begins(tracker, step):
    """Backwards, batches of an array would lie one row off: two sums then tell the rows at their ends."""
    taken = node(tracker, X, batch=BATCH)
    with pytest.raises(RefusedError, match="step of the server's message must be from 0 to "):
        taken.ask(tracker, {**MESSAGE, "step": step})
    whole = taken.ask(tracker, {**MESSAGE, "step": 3, "block": np.eye(D)})["S"]
    shifted = X[-2 * BATCH : -BATCH]
    assert error_of(whole - shifted.T @ shifted, np.outer(X[60], X[60]) - np.outer(X[40], X[40])) > 0.5


@every("step", [10_000, 2**31, 2**53])
def test_a_stream_without_an_end_is_not_read_through(step):
    taken = []
    batches = (taken.append(i) or X[:BATCH] for i in itertools.count())
    endless = node("st_miss", batches)
    with pytest.raises(RefusedError, match="more than 10,000 steps ahead of the iterator of"):
        endless.ask("st_miss", {**MESSAGE, "step": step})
    assert len(taken) <= 1
    assert endless.ask("st_miss", {**MESSAGE, "step": 3})["rows"] == BATCH


@every("source", [[None, X], lambda step: None, iter(())])
@every("length", [10**6, 2**31, 2**52])
def test_a_node_without_rows_makes_no_product_longer_than_its_rows_could_be(source, length):
    asked = {**MESSAGE, "width": 20, "d": length}
    words = r"A run with .* columns of data asks for|The rows of the client have .*, but the run has had"
    with pytest.raises(RefusedError, match=words):
        node("st_miss", source).ask("st_miss", asked)
    with pytest.raises(RefusedError, match=words):
        node("st_miss", source).ask("st_miss", {**asked, "width": 1, "block": np.zeros((3, 1000))})


def test_rows_of_another_length_than_the_runs_are_refused_alike_before_a_batch_is_taken_and_by_the_batch():
    said = []
    for source, how in ((X, {"batch": BATCH}), (lambda step: X[:BATCH], {})):
        with pytest.raises(
            RefusedError, match=r"have 6 columns, but the run has had 7 so far\. Give all clients"
        ) as refused:
            node("st_miss", source, **how).ask("st_miss", {**MESSAGE, "d": 7})
        said.append(str(refused.value))
    assert len(set(said)) == 1
    request = wire.ServerRequest("st_miss", "st_miss", "r", 0, {"d": np.array(7)}, Frame())
    with pytest.raises(DataError, match=r"The rows of the client have 6 columns, but the run has had 7 so far\."):
        limits.check_sizes(request, D)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["array", "function", "iterator"])
def test_a_few_bytes_take_no_memory_beyond_the_rows_taken_twice(how):
    """As many random columns as rows are long, of a batch whose length the node may not know before it has it."""
    rows = np.random.default_rng(1).standard_normal((20, 4000))
    given = {"array": lambda: (rows, {"batch": 20}), "function": lambda: (lambda step: rows, {})}
    source, cut = given.get(how, lambda: (iter([rows] * 3), {}))()
    taken = node("st_miss", source, **cut)
    with peak_memory() as peak:
        asked = {**MESSAGE, "width": 4000 if cut else 1000}
        with pytest.raises(RefusedError, match="only memory in proportion to its batch, which has too few rows"):
            taken.ask("st_miss", asked)
        assert peak() <= 2 * rows.nbytes + 1e8
        assert taken.ask("st_miss", {**asked, "width": 300})["S"].shape == (4000, 300)
        assert peak() <= 2 * rows.nbytes + 1e8


@pytest.mark.slow
def test_a_wide_basis_takes_no_memory_beyond_the_rows_taken_twice():
    """Equations of r^2 numbers for each row, for all rows at once, would be 200 MB."""
    rng = np.random.default_rng(2)
    rows = np.where(rng.random((800, 100)) < 0.1, np.nan, rng.standard_normal((800, 100)))
    asked = {**MESSAGE, "P": np.linalg.qr(rng.standard_normal((100, 80)))[0], "block": np.eye(100)[:, :1]}
    with peak_memory() as peak:
        answer = node("st_miss", rows, batch=800).ask("st_miss", asked)
        assert peak() <= 2 * rows.nbytes + 1e8
    L = np.vstack([filled_by_span(y, asked["P"]) for y in rows])
    np.testing.assert_allclose(answer["S"], L.T @ (L @ asked["block"]), rtol=1e-6)


def filled_by_span(y, P):
    """A row whose gaps are filled from the span of P, by itself."""
    seen = ~np.isnan(y)
    return np.where(seen, y, P @ np.linalg.lstsq(P[seen], y[seen], rcond=None)[0])


def test_a_node_that_is_away_answers_in_the_length_of_the_run():
    """An outage before the first rows of a node: the others have said how long rows are."""
    assert node("st_miss", lambda step: None).ask("st_miss", {**MESSAGE, "d": D})["S"].shape == (D, D)
