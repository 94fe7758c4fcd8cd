"""Test which unit of bytes and which columns a picture shows."""

import numpy as np
import pytest

from flower_pca.plots import style
from flower_pca.plots.course import _unit_of_bytes


@pytest.mark.parametrize(
    ("largest", "unit"), [(1, "bytes"), (999, "bytes"), (1000, "kB"), (2.5e6, "MB"), (1e9, "GB"), (1e13, "GB")]
)
def test_the_unit_of_bytes_is_the_largest_that_gives_at_least_one(largest, unit):
    size = {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    assert _unit_of_bytes(largest) == (size, unit)


def test_a_heat_map_has_the_40_columns_with_the_largest_weights_in_any_component():
    weights = np.random.default_rng(0).standard_normal((2, 60))
    names = np.array([f"column {j}" for j in range(60)])
    fig = style.new_figure()
    style.draw_heat_map(fig, weights, columns=names, title="Weights", label="weight", kind="signed")
    smallest = set(np.argsort(np.abs(weights).max(axis=0))[:20])
    assert [text.get_text() for text in fig.axes[0].get_yticklabels()] == [
        name for j, name in enumerate(names) if j not in smallest
    ]
    assert fig.axes[0].get_title(loc="left") == "Weights: 40 of 60 columns"
