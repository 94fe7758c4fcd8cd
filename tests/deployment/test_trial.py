"""The trial of a page, terminal by terminal as it stands there; only ports and folders are this test's."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from local_superlink import end_all, free_ports
from pages import ROOT, blocks, text

from flower_pca import PCAResult, simulate

BIN = Path(sys.executable).parent
PATIENCE = 600.0  # seconds for the whole of it

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="it finds the processes to end in /proc"),
]


def section(page, heading):
    """The shell blocks and the settings of the page's section on one machine."""
    part = re.search(rf"^## {heading}\n(.*?)^## ", text(page), re.DOTALL | re.MULTILINE)[1]
    mine = {kind: [block for block in blocks(page, kind) if block in part] for kind in ("sh", "toml")}
    *terminals, last = mine["sh"]
    return terminals, last, *mine["toml"]


@pytest.fixture
def terminal(tmp_path):
    """Starts a shell block in a terminal of its own, with ports and folders of this test; ends all in the end."""
    home, started = tmp_path / "home", []
    home.mkdir()
    ports = dict(zip(("8000", "8001", "8002", "8003"), map(str, free_ports(4)), strict=True))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FLWR_")},
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }

    def moved(block):
        for there, here in ports.items():
            block = re.sub(rf"\b{there}\b", here, block)
        return block.replace("/tmp/pca", str(tmp_path / "pca"))

    def start(block, cwd=tmp_path):
        log = (tmp_path / f"terminal-{len(started)}.log").open("wb")
        process = subprocess.Popen(
            ["sh", "-ec", moved(block)], cwd=cwd, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        started.append(process)
        return process, Path(log.name)

    start.moved, start.home = moved, home
    yield start
    end_all(home)
    for process in started:
        process.wait(180)


def wait_for_words(log, words, until):
    while not re.search(words, log.read_text(errors="replace")):
        assert time.monotonic() < until, f"no {words!r} in:\n{log.read_text(errors='replace')}"
        time.sleep(0.1)


def test_the_federation_on_one_machine_is_the_pca_of_three_hospitals(terminal, tmp_path):
    until = time.monotonic() + PATIENCE
    (setup, *terminals), last, settings = section("docs/federation.md", "Start it")
    write = next(line for line in setup.splitlines() if line.startswith("python examples/"))
    process, log = terminal(write.replace("examples/", f"{ROOT}/examples/"))
    assert process.wait(180) == 0, log.read_text()
    (terminal.home / "config.toml").write_text(terminal.moved(settings))
    for block, ready in zip(terminals, ("Starting Flower SuperLink", *3 * ["SuperNode ID"]), strict=True):
        wait_for_words(terminal(block)[1], ready, until)
    process, log = terminal(last, cwd=ROOT)
    assert process.wait(until - time.monotonic()) == 0, log.read_text()
    assert "finished:completed" in log.read_text()
    assert "930 rows x 10 columns at 3 clients" in log.read_text()
    result = PCAResult.load(tmp_path / "pca/result.npz")
    folder = tmp_path / "three-hospitals/hospitals"
    asked = {"n_components": 3, "scale": "std", "missing": "local_mean", "columns": list(result.feature_names_in_)}
    files = [pd.read_csv(path) for path in sorted(folder.iterdir())]
    here = simulate("auto(oversample='auto')", files, answers="fixed", **asked)
    assert result.components_.tobytes() == here.components_.tobytes()
    X = pd.concat([rows.fillna(rows.mean()) for rows in files])[list(result.feature_names_in_)]
    assert set(result.site_names.values()) == {"bonn", "jena", "trier"}
    assert result.angle_to(np.linalg.svd((X - X.mean()) / X.std(), full_matrices=False)[2][:3]) < 1e-6
