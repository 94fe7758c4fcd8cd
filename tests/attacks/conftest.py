"""What attacks share: genuine messages, of which foes make others."""

import pytest


@pytest.fixture(scope="session")
def genuine_messages():
    from test_mutated import genuine

    return genuine()
