"""Fixtures of attacks: genuine messages, which attackers modify."""

import pytest


@pytest.fixture(scope="session")
def genuine_messages():
    from test_mutated import genuine

    return genuine()
