"""The app of the form of Flower's quickstart examples, once over a real SuperLink with TLS and keys."""

import json
import re

import numpy as np
import pytest
from builders import leading
from federation import LONG
from pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]


def run_of_quickstart(federation, config):
    """Run the app with this run-config: its status, and the log."""
    federation.present(0, 1, 2)
    app = str(ROOT / "tests/deployment/quickstart")
    log = federation.flwr("run", app, "trial", "--run-config", config, "--stream", seconds=LONG)
    identity = re.search(r"Successfully started run (\d+)", log)[1]
    (found,) = json.loads(federation.flwr("ls", "--run-id", identity, "--format", "json", "trial"))["runs"]
    return found["status"], log


def test_pca_and_training_in_one_run_over_flowers_transport(federation, tmp_path):
    output = tmp_path / "said.json"
    status, log = run_of_quickstart(federation, f'output="{output}"')
    assert status == "finished:completed", log
    said = json.loads(output.read_text())
    turned = np.array(said["components"]) @ leading(federation.shards).T
    np.testing.assert_allclose(np.abs(np.linalg.det(turned)), 1.0, atol=1e-9)
    assert said["rounds"] == list(range(1, len(said["rounds"]) + 1))
    assert list(said["accuracy"]) == ["1", "2", "3"]
    assert said["rows"] == sum(map(len, federation.shards))  # Each message went to two of three nodes.
    assert said["errors"]["replies"] == 3
    assert "[ROUND 1]" in log
    assert "[ROUND 1/3]" in log


def test_the_sentence_of_a_failed_run_of_an_app_of_ones_own_stands_last_and_alone(federation):
    status, log = run_of_quickstart(federation, 'action="pcaa"')
    assert status == "finished:failed", log
    assert "Traceback" not in log
    *_, sentence, code = (line for line in log.splitlines() if "ERROR" in line)
    why = "the first because its ClientApp has PCA under the action 'pca', not 'pcaa'. Give the strategy action='pca'."
    assert sentence.endswith(f"have no function for this run, {why}")
    assert "Exit Code" in code  # Flower prints this last.
