"""Test `flwr run` as in the README: the saved components are those of the pooled rows, and a crash is visible."""

import importlib
import os
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import test_categorical
from local_superlink import ROOT, LocalSuperLink, needed

from flower_pca import PCAResult
from flower_pca.data import sources

EXAMPLES, HUB = ROOT / "examples", ROOT / "hub"

pytestmark = [needed, pytest.mark.slow, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def superlink(tmp_path_factory, cluster):
    link = LocalSuperLink(tmp_path_factory.mktemp("flwr"), cluster)
    yield link
    link.close()


def components(X, k):
    V = np.linalg.svd(X, full_matrices=False)[2][:k]
    return V * np.sign(V[np.arange(k), np.abs(V).argmax(axis=1)])[:, None]


def test_with_its_defaults_it_saves_the_components_of_the_pooled_rows(superlink):
    run = superlink.run(HUB, 3)
    assert run.status == "finished:completed", run
    path = superlink.folder / "flower-pca-out/result.npz"
    assert f"Components saved in {path}" in run.log
    result = PCAResult.load(path)
    config = tomllib.loads((HUB / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    X = sources.make(config["data"])
    assert result.status.ok
    assert result.n_samples_ == len(X)
    assert np.allclose(result.mean_, X.mean(axis=0))
    assert np.linalg.norm(result.components_ - components(X - X.mean(axis=0), config["n-components"])) < 1e-6


def test_it_takes_what_the_run_config_says(superlink):
    test_categorical.ROWS.to_csv(superlink.folder / "patients.csv", index=False)
    config = (
        f"data=\"csv(path='{superlink.folder}/patients.csv')\" algorithm='ssi(tol=1e-11)' n-components=0.9 scale='std' "
        f"output='{superlink.folder}/given' min-nodes=6 options=\"partition=iid(seed=3), categorical='ward,sex', "
        'reconstruction-error=true, checkpoint=run.ckpt, clients-per-node=3"'
    )
    run = superlink.run(HUB, 2, config)
    assert run.status == "finished:completed", run
    result = PCAResult.load(superlink.folder / "given/result.npz")
    Z = test_categorical.coded(test_categorical.ROWS, test_categorical.EVERY)
    values = np.linalg.svd(Z, compute_uv=False) ** 2
    k = int(np.searchsorted(np.cumsum(values) / values.sum(), 0.9)) + 1
    assert result.algorithm.startswith("ssi(")
    assert len(result.components_) == k
    assert np.linalg.norm(result.components_ - components(Z, k)) < 1e-6
    assert result.mse_ is not None
    assert [place.name for place in (superlink.folder / "given").iterdir()] == ["result.npz"]


def test_a_crash_is_seen(superlink):
    run = superlink.run(HUB, 2, f"data='{superlink.folder}/none.npy' output='{superlink.folder}/crashed'")
    assert run.status == "finished:failed", run
    assert "needs 2 usable answers, but got none in 3 successive rounds, the first because: " in run.details
    assert f"No file or folder named '{superlink.folder}/none.npy'." in run.log
    assert not list((superlink.folder / "crashed").iterdir())
    assert "Traceback" not in run.log
    *_, sentence, code = (line for line in run.log.splitlines() if "ERROR" in line)
    assert "A message needs 2 usable answers" in sentence
    assert "Exit Code" in code  # Flower prints this last.


def test_pipeline_trains_on_the_components(superlink, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES / "pipeline")
    task = importlib.import_module("pipeline.task")
    run = superlink.run(EXAMPLES / "pipeline", 3, f"output='{tmp_path}/pipeline.npz'")
    assert run.status == "finished:completed", run
    with np.load(tmp_path / "pipeline.npz") as saved:
        weights, components, mean = saved["weights"], saved["components"], saved["mean"]
    parts = [task.load(i) for i in range(3)]
    X = np.vstack([rows for rows, _ in parts])
    truth = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][: len(components)]
    assert np.allclose(mean, X.mean(axis=0))
    assert np.allclose(np.abs(np.linalg.det(components @ truth.T)), 1.0, atol=1e-9)
    unseen, y = task.load(99)
    assert task.accuracy(weights, (unseen - mean) @ components.T, y) > 0.85


def script(name, cluster):
    """What an example prints that is run on Flower's engine."""
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_ADDRESS": cluster,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_numpy_client_finds_the_pooled_components(cluster):
    assert float(re.search(r"Angle to the PCA of the pooled rows: (\S+)", script("numpy_client.py", cluster))[1]) < 1e-7


def test_an_older_app_trains_after_pca(cluster):
    assert float(re.search(r"Mean squared error with 3 weights: (\S+)", script("older_app.py", cluster))[1]) < 0.5
