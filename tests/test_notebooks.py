"""The notebooks run as they stand, in a kernel of their own, and print what they were saved with."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from pages import ROOT, text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("nbclient", "ipykernel", "matplotlib", "sklearn")),
        reason='it takes what runs notebooks: pip install --group dev ".[plot,sklearn]"',
    ),
]
NOTEBOOKS = sorted(path.name for path in (ROOT / "examples").glob("*.ipynb"))
RUN = "from nbclient.cli import main; main()"


def cells(path):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def printed(cell):
    """What a cell prints, without what names a folder."""
    lines = "".join("".join(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream").splitlines()
    return [line for line in lines if os.sep not in line]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_prints_what_it_was_saved_with(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, "-W", "ignore", "-c", RUN, f"--output={tmp_path / name}", "--timeout=600", name]
    run = subprocess.run(
        command, cwd=ROOT / "examples", env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    saved, now = cells(ROOT / "examples" / name), cells(tmp_path / name)
    assert [printed(cell) for cell in now] == [printed(cell) for cell in saved]
    for before, after in zip(saved, now, strict=True):
        assert not [out for out in after["outputs"] if out.get("name") == "stderr"], before["source"]
        kinds = [{kind for out in cell["outputs"] for kind in out.get("data", ())} for cell in (before, after)]
        assert kinds[0] <= kinds[1], before["source"]
    assert any("image/" in kind for cell in now for out in cell["outputs"] for kind in out.get("data", ()))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_saved_notebook_names_no_folder_of_the_machine_it_ran_on(name):
    assert "/tmp/" not in text(f"examples/{name}")
    assert f"examples/{name}" in text("README.md")
