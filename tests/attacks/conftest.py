"""What attacks share: a place of their own for what a node keeps."""

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The node's user's own place, where a ledger lies without memory_dir."""
    monkeypatch.setenv("HOME", str(tmp_path))
