"""Test the release: a source archive, the wheel built from it, and the wheel at work in a clean folder."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser

import pytest
from pages import ROOT

import flower_pca
from flower_pca import registry

pytestmark = pytest.mark.slow

USE = """
import numpy as np, flower_pca
from flower_pca.app import client_app, server_app
shards = [np.random.default_rng(i).standard_normal((30, 4)) for i in range(3)]
result = flower_pca.simulate("krylov", shards, n_components=2)
print(flower_pca.__file__, result.status.ok, np.abs(result.mean_ - np.vstack(shards).mean(axis=0)).max() < 1e-14)
"""


def python_from(*words, folder, **environment):
    """What Python prints that is called with these words, from a folder."""
    run = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The unpacked source archive, and the wheel made from nothing else."""
    folder = tmp_path_factory.mktemp("built")
    build = ("-m", "hatchling", "build", "--directory", folder)
    python_from(*build, "--target", "sdist", folder=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        # Python 3.11.2, which Debian 12 has, knows no filters.
        opened.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    source = folder / archive.name.removesuffix(".tar.gz")
    python_from(*build, "--target", "wheel", folder=source)
    (wheel,) = folder.glob("*.whl")
    return source, wheel


def test_the_wheel_has_the_package_and_nothing_else(built):
    source, wheel = built
    with zipfile.ZipFile(wheel) as opened:
        files = {name for name in opened.namelist() if ".dist-info/" not in name}
        (place,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        said = HeaderParser().parsestr(opened.read(place).decode())
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "flower_pca").rglob("*.py")}
    assert files == package | {"flower_pca/py.typed"}
    assert (said["Name"], said["License-Expression"], said["Requires-Python"]) == ("flower-pca", "Apache-2.0", ">=3.11")
    assert said["Description-Content-Type"] == "text/markdown"
    page = said.get_payload()
    assert page.startswith("# flower_pca")
    # A package index shows this page alone.
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)\)", page))
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert namespace["result"].status.ok  # type: ignore[attr-defined]
    extras = {"simulation", "plot", "sklearn", "parquet", "datasets", "all"}
    extras |= {"hdf5", "zarr", "anndata", "excel", "statistics-files"}
    assert extras == set(said.get_all("Provides-Extra"))
    pages = ("README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "CITATION.cff", "docs/index.md", "hub/README.md")
    for name in (*pages, "examples/quickstart.py"):
        assert (source / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_source_archive_has_the_folders_that_its_documentation_is_built_with(built):
    source, _ = built
    folders = re.findall(r"^ *custom_\w+: (\S+)$", (source / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(folders) == 2
    for folder in folders:
        files = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files
        assert all((source / file).read_bytes() == (ROOT / file).read_bytes() for file in files)


def test_the_wheel_works_where_it_is_installed(built, tmp_path):
    _, wheel = built
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    python_from(*pip, "--target", tmp_path / "here", wheel, folder=tmp_path)
    said = python_from("-c", USE, folder=tmp_path, PYTHONPATH=str(tmp_path / "here"))
    assert said.split() == [str(tmp_path / "here/flower_pca/__init__.py"), "True", "True"]
    command = "import sys; from flower_pca.cli import console; sys.argv = ['flower-pca', '--version']; console()"
    assert "0.1.0" in python_from("-c", command, folder=tmp_path, PYTHONPATH=str(tmp_path / "here"))


def test_an_index_would_take_both(built):
    pytest.importorskip("twine", reason="twine is not installed")
    _, wheel = built
    archives = sorted(str(path) for path in wheel.parent.iterdir() if path.is_file())
    assert len(archives) == 2
    said = python_from("-m", "twine", "--no-color", "check", "--strict", *archives, folder=wheel.parent)
    assert said.count("PASSED") == 2


BUILD = """
import io, sys, warnings, zipfile
warnings.simplefilter("ignore")
from pathlib import Path
from flwr.cli.build import build_fab_from_disk
with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(Path(sys.argv[1])))) as bundle:
    bundle.extractall("bundle")
sys.path.insert(0, "bundle")
import flower_pca
from federated_pca import client_app, server_app
print(flower_pca.__file__, type(client_app.app).__name__, type(server_app.app).__name__)
"""


def test_the_hub_app_of_the_archive_goes_with_the_wheel(built, tmp_path):
    """Its bundle is built from the source archive, and answers by the package that the wheel has installed."""
    source, wheel = built
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    python_from(*pip, "--target", tmp_path / "here", wheel, folder=tmp_path)
    said = python_from("-c", BUILD, source / "hub", folder=tmp_path, PYTHONPATH=str(tmp_path / "here"))
    assert said.split()[-3:] == [str(tmp_path / "here/flower_pca/__init__.py"), "ClientApp", "ServerApp"]
    assert sorted(path.name for path in (tmp_path / "bundle/federated_pca").glob("*.py")) == [
        "__init__.py",
        "client_app.py",
        "server_app.py",
    ]


def test_the_citation_names_this_version_and_the_five_papers():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (\S+)$", citation, re.MULTILINE)[1] == flower_pca.__version__
    cited = re.findall(r'^    title: "(.*)"$', citation, re.MULTILINE)
    assert len(cited) == len(set(cited)) == 5
    named = {word for notes in re.findall(r'notes: "(.*)"', citation) for word in re.findall(r"\w+", notes)}
    assert {"faps", "local_power", "dcf_pca", "per_pca", "exact_per_pca", "st_miss"} <= named & {*registry.STAGES}


def test_the_commands_for_a_lock_have_options_that_there_are(tmp_path):
    """Those of CONTRIBUTING, with hashes and without addresses, for a package that needs nothing: no network."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = [re.search(rf"`({start} [^`]+)`", page).group(1) for start in ("uv pip compile", "pip install")]
    assert "--generate-hashes --no-emit-index-url" in commands[0]
    assert "--require-hashes" in commands[1]
    pytest.importorskip("uv")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "nothing"\nversion = "1"\n', encoding="utf-8")
    for command, beside in zip(commands, (["--offline"], ["--dry-run", "--no-index"]), strict=True):
        python_from("-m", *command.split(), *beside, folder=tmp_path)
    assert "://" not in (tmp_path / "lock.txt").read_text(encoding="utf-8")
