"""Test missing optional packages: the rest can be imported, and one sentence says what to install."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import every

import flower_pca
from flower_pca.base import errors

WITHOUT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {absent!r} else find(name, package)
"""
MODULES = {module for module, _ in errors.EXTRAS.values()}


def printed_without(absent, code):
    """What a fresh process prints that has none of these packages."""
    whole = WITHOUT.format(absent=set(absent)) + code
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_star_import_needs_no_extra():
    names = printed_without(MODULES, "from flower_pca import *\nprint(*[n for n in dir() if n[0].isupper()])").split()
    assert {"PCAResult", "Krylov", "PCAConfig"} <= set(names)
    assert not {"FederatedPCA", "to_sklearn"} & set(names)
    assert {"FederatedPCA", "to_sklearn"} <= set(flower_pca.__all__)  # if scikit-learn is installed


USES = {
    "an estimator": ("from flower_pca import FederatedPCA", "scikit-learn", "for FederatedPCA"),
    "a picture": ("from flower_pca.plots import style; style.new_figure()", "matplotlib", "to draw"),
    "groups": (
        "import numpy as np; from flower_pca.analysis import groups; groups.clusters(np.zeros((3, 3)), 2)",
        "scikit-learn",
        "to cluster",
    ),
    "Ray": (
        "import numpy as np; from flower_pca import simulate; "
        "simulate('krylov', [np.eye(3)], n_components=1, backend='ray')",
        "Ray",
        'for backend="ray"',
    ),
    "parquet": ("from flower_pca.data import sources; sources.make('x.parquet')", "pyarrow", "to read this"),
    "a data set": (
        "from flower_pca.data import sources; sources.make(\"sklearn('digits')\")",
        "scikit-learn",
        "to read this",
    ),
    "Hugging Face": (
        "from flower_pca.data import sources; sources.make(\"hugging_face('mnist')\")",
        "flwr-datasets",
        "to read this",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def without_extras():
    """What each use prints without any extra, in one process for all of them."""
    tries = []
    for code, _, _ in USES.values():
        indented = "\n".join(f"    {line}" for line in code.splitlines())
        tries.append(f"try:\n{indented}\nexcept Exception as error:\n    print(type(error).__name__, error)")
    return dict(zip(USES, printed_without(MODULES, "\n".join(tries)).splitlines(), strict=True))


@pytest.mark.slow
@every("case", USES)
def test_what_needs_an_extra_says_which_in_the_same_words(case, without_extras):
    _, package, purpose = USES[case]
    extra = errors.EXTRAS[package][1]
    sentence = f'{package} is needed {purpose}, but is not installed. Run: pip install "flower-pca[{extra}]"'
    assert without_extras[case] == f"ConfigError {sentence}"


def test_no_other_place_names_an_extra():
    here = Path(flower_pca.__file__).parent
    spelt = [p.relative_to(here).as_posix() for p in here.rglob("*.py") if re.search(r"flower-pca\[", p.read_text())]
    assert spelt == ["base/errors.py"]
