"""Test that tests that share a cluster, a SuperLink, a browser or a file run in one worker."""

import os

import pytest

GROUPS = {"ray": "cluster", "browser": "tab", "federation": "federation"}  # the resource that each group shares


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process for all tests")
@pytest.mark.parametrize("group", [pytest.param("browser", marks=pytest.mark.xdist_group("browser")), "test_workers"])
def test_a_group_is_told_by_the_end_of_a_tests_name(request, group):
    """By which pytest-xdist hands it out."""
    assert request.node.nodeid.endswith(f"]@{group}")


def test_whatever_shares_is_in_a_group(request):
    """As far as the tests of this run go."""
    for item in request.session.items:
        mark = item.get_closest_marker("xdist_group")
        for group, shared in GROUPS.items():
            if shared in getattr(item, "fixturenames", ()):
                assert mark is not None, item.nodeid
                assert mark.args == (group,) or shared == "federation", item.nodeid
