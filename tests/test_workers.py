"""Tests that share a cluster, a SuperLink or a browser are one worker's: two of each would take twice as long."""

import os

import pytest

GROUPS = {"ray": "cluster", "browser": "tab", "federation": "federation"}  # what a group shares


@pytest.mark.xdist_group("browser")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process for all tests")
def test_a_group_is_told_by_the_end_of_a_tests_name(request):
    """By which pytest-xdist hands it out."""
    assert request.node.nodeid.endswith("@browser")


def test_whatever_shares_is_in_a_group(request):
    """As far as the tests of this run go."""
    for item in request.session.items:
        mark = item.get_closest_marker("xdist_group")
        for group, shared in GROUPS.items():
            if shared in getattr(item, "fixturenames", ()):
                assert mark is not None, item.nodeid
                assert mark.args == (group,) or shared == "federation", item.nodeid
