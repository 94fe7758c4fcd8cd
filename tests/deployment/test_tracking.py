"""A tracker over Flower's own transport: the bits of track(), with the memory of a step in the nodes' contexts."""

import numpy as np
import pytest
from federation import wait

from flower_pca import TrackingResult, track

pytestmark = pytest.mark.transport


def test_steps_over_the_network_are_those_in_process(pair):
    cut = pair.folder / "batch"
    cut.write_text("200")
    try:
        run = pair.run("STMiss", n_components=2, steps=2, products=2, first_products=4)
        run._await("result.npz")
    finally:
        cut.unlink()
    result = TrackingResult.load(run.folder / "result.npz")
    tracker = "st_miss(products=2, first_products=4)"
    reference = track(tracker, pair.shards, n_components=2, batch=200, steps=2)
    assert np.array_equal(result.components_, reference.components_)
    assert result.rows_.tolist() == [400, 400]
    wait("the run to end", lambda: run.status() == "finished:completed")
