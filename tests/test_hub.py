"""The app: it builds as the strict format of Flower's Hub wants it, and goes with the package."""

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
def test_the_app_builds_in_the_strict_format():
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, missing = load_and_validate(HUB / "pyproject.toml")
    assert not missing
    assert config["tool"]["flwr"]["app"]["fab-format-version"] == 1
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(HUB))) as bundle:
        names = set(bundle.namelist()) - {".info/CONTENT"}
    package = {f"federated_pca/{name}.py" for name in ("__init__", "server_app", "client_app")}
    assert names == {"pyproject.toml", "LICENSE", "README.md"} | package


def test_the_app_has_license_version_and_bounds_of_the_package():
    mine, whole = project(HUB), project(ROOT)
    assert (HUB / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert mine["project"]["version"] == whole["project"]["version"]
    (bound,) = [each for each in whole["project"]["dependencies"] if each.startswith("flwr")]
    assert mine["project"]["dependencies"][0] == bound.replace("flwr", "flwr[simulation]", 1)
