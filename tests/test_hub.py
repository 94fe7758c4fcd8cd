"""The thin app for Flower's hub: it builds as its strict format wants it, and has the run-config of the package."""

import io
import tomllib
import zipfile

import pytest
from pages import ROOT

HUB = ROOT / "hub"


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower's own imports
def test_it_builds_in_the_strict_format():
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, missing = load_and_validate(HUB / "pyproject.toml")
    assert not missing
    assert config["tool"]["flwr"]["app"]["fab-format-version"] == 1
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(HUB))) as bundle:
        names = set(bundle.namelist()) - {".info/CONTENT"}
    package = {f"federated_pca/{name}.py" for name in ("__init__", "server_app", "client_app")}
    assert names == {"pyproject.toml", "LICENSE", "README.md"} | package


def test_it_says_of_a_run_what_the_package_says():
    mine, whole = project(HUB), project(ROOT)
    keys = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if " = " in line]
    lines = (HUB / "pyproject.toml").read_text().splitlines()
    assert mine["tool"]["flwr"]["app"]["config"] == whole["tool"]["flwr"]["app"]["config"]
    assert set(lines[lines.index("[tool.flwr.app.config]") + 1 :]) <= set(keys)  # the words on them, too
    assert (HUB / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert mine["project"]["version"] == whole["project"]["version"]
    (bound,) = [each for each in whole["project"]["dependencies"] if each.startswith("flwr")]
    assert mine["project"]["dependencies"][0] == bound.replace("flwr", "flwr[simulation]", 1)
