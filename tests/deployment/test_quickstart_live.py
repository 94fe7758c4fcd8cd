"""The app of the form of Flower's quickstart examples, once over a real SuperLink with TLS and keys."""

import json
import re

import numpy as np
import pytest
from builders import leading
from federation import LONG
from pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]


def test_pca_and_training_in_one_run_over_flowers_transport(federation, tmp_path):
    federation.present(0, 1, 2)
    output = tmp_path / "said.json"
    app = str(ROOT / "tests/deployment/quickstart")
    log = federation.flwr("run", app, "trial", "--run-config", f'output="{output}"', "--stream", seconds=LONG)
    identity = re.search(r"Successfully started run (\d+)", log)[1]
    (found,) = json.loads(federation.flwr("ls", "--run-id", identity, "--format", "json", "trial"))["runs"]
    assert found["status"] == "finished:completed", log
    said = json.loads(output.read_text())
    turned = np.array(said["components"]) @ leading(federation.shards).T
    np.testing.assert_allclose(np.abs(np.linalg.det(turned)), 1.0, atol=1e-9)
    assert said["rounds"] == list(range(1, len(said["rounds"]) + 1))
    assert list(said["accuracy"]) == ["1", "2", "3"]
    assert "[ROUND 1]" in log
    assert "[ROUND 1/3]" in log
