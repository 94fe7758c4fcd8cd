"""Test messages to virtual nodes that list clients wrongly."""

import pytest
from builders import unequal
from fake_grid import hosts_of, in_a_run

from flower_pca import NotEnoughNodes, strategies
from flower_pca.rows.local import LocalData

NAMED = [[0, 0], [0, 0, 0, 1], [1, 0, 1], [0.0, 1.0], [False, True], ["0", "1"], [0, 7], [-1, 0], [0, 2**62]]


@pytest.mark.parametrize("named", NAMED)
def test_clients_of_a_message_are_hosted_ones_each_once(named, monkeypatch):
    """One that is named twice would answer twice from what it kept before: two noises, say, and one message counted."""
    monkeypatch.setattr(LocalData, "local_product", None)
    monkeypatch.setattr(LocalData, "moments", None)

    def changed(message):
        if "hosted" in message.content.config_records:
            message.content.config_records["hosted"]["clients"] = named

    with in_a_run() as lines:
        grid = hosts_of(unequal()[:4], each=2, max_messages=1)
        grid.on_push = changed
        with pytest.raises(NotEnoughNodes):
            strategies.PCAStrategy("ssi(max_rounds=2)", n_components=2, hosted="stacked").fit(grid)
    said = "\n".join(lines)
    assert "twice, or this client is not among the 2 clients of this virtual node." in said
    assert not any(context.state for context in grid.nodes.values())
