"""What somebody can do who has nothing but the address of a SuperLink, and where a run leaves its result."""

import json
import re
import subprocess

import pytest
from federation import LONG
from pages import ROOT

from flower_pca import PCAResult, keys

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]


@pytest.fixture
def command_of_a_stranger(federation, tmp_path):
    """Calls `flwr` in a folder and with a home of its own, which has the address and the public certificate only."""
    home = tmp_path / "home"
    home.mkdir()
    settings = f'address = "127.0.0.1:{federation.port}"\nroot-certificates = "{federation.keys.ca}"'
    (home / "config.toml").write_text(f"[superlink.pca]\n{settings}\n")

    def call(*words):
        environment = {**federation.environment, "FLWR_HOME": str(home)}
        command = [str(federation._bin / "flwr"), *words]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def test_whoever_reaches_the_port_registers_a_node(federation, command_of_a_stranger, tmp_path):
    made = keys.write_keys(tmp_path / "keys", nodes=1)
    federation.present()
    said = json.loads(command_of_a_stranger("supernode", "register", str(made.publics[0]), "pca", "--format", "json"))
    try:
        node = federation.start_node(0, key=made.nodes[0]).connected()
        assert node.id == int(said["node-id"])
        node.terminate()
    finally:
        command_of_a_stranger("supernode", "unregister", str(said["node-id"]), "pca")


def test_the_result_is_written_where_the_superlink_runs_for_whoever_starts_a_run(
    federation, command_of_a_stranger, tmp_path
):
    """A relative path is one of the SuperLink's folder, and not of the folder in which `flwr run` was called."""
    federation.present(0, 1)
    asked = 'output="of-a-stranger" n-components=2 min-nodes=2'
    said = command_of_a_stranger("run", str(ROOT / "hub"), "pca", "--run-config", asked, "--stream")
    identity = re.search(r"Successfully started run (\d+)", said)[1]
    (run,) = json.loads(command_of_a_stranger("ls", "--run-id", identity, "--format", "json", "pca"))["runs"]
    assert run["status"] == "finished:completed", said
    result = PCAResult.load(federation.folder / "of-a-stranger/result.npz")
    assert result.n_samples_ == sum(len(federation.shards[i]) for i in range(2))
    assert not [*tmp_path.rglob("*.npz")]
