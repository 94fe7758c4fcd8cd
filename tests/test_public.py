"""Test the public interface: names, docstrings, and the imports of an edge device."""

import ast
import doctest
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import every

import flower_pca
from flower_pca import registry

PACKAGE = Path(flower_pca.__file__).parent
OTHERS = {
    "AirChannel", "ColumnsResult", "ConfigError", "DP", "DataError", "FederatedPCA", "FlowerPCAError", "History",
    "MaskedSums", "NotEnoughNodes", "Outcome", "PCAConfig", "PCAResult", "PersonalResult", "Projection",
    "ProtocolError", "Ray", "RobustResult", "Round", "Scaling", "Spent", "Status", "Stream", "Table", "TrackingResult",
    "TripleResult", "__version__", "cells", "from_frame", "make", "simulate", "to_sklearn", "track",
}  # fmt: skip


def order(name):
    """Constants, then classes, then functions, each by the alphabet: ruff's order of __all__."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


NAMES = sorted({*OTHERS, *registry.public_classes()}, key=order)


def loaded_by(*statements):
    """The names of all modules that are loaded once each of these statements has run in one fresh interpreter."""
    code = "import sys\n" + "".join(f"{statement}\nprint(*sys.modules)\n" for statement in statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_the_public_names_are_these_in_order():
    assert flower_pca.__all__ == NAMES
    assert {"Krylov", "STMiss", "UDA"} <= set(NAMES) - OTHERS
    assert all(hasattr(flower_pca, name) for name in NAMES)


def test_nothing_else_is_imported_by_a_star():
    names: dict[str, object] = {}
    exec("from flower_pca import *", names)
    assert set(names) - {"__builtins__"} == set(NAMES)
    assert set(NAMES) <= set(dir(flower_pca))


def test_the_version_is_that_of_the_distribution():
    metadata = pytest.importorskip("importlib.metadata")
    assert metadata.version("flower-pca") == flower_pca.__version__


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy():
    first, loaded = loaded_by("import flower_pca", "from flower_pca import Krylov, simulate")
    assert "numpy" not in first  # Names are imported when they are used.
    assert "flower_pca.core.run" in loaded
    for heavy in ("flwr", "ray", "matplotlib", "sklearn", "pandas", "grpc", "scipy.sparse", "scipy.linalg"):
        assert heavy not in loaded


@pytest.mark.slow
def test_a_node_loads_nothing_that_its_first_answer_does_not_need():
    """Under process isolation, the process of a node begins anew with every message."""
    before, after = loaded_by("import flwr.app, flwr.clientapp", "import flower_pca.app")
    for heavy in ("scipy.special", "scipy.sparse", "scipy.linalg", "numpy.f2py", "numpy.ma", "flwr.simulation", "ray"):
        assert heavy not in after - before, heavy


@pytest.mark.slow
def test_an_algorithm_is_imported_when_it_is_first_asked_for():
    def of(*statements):
        return [
            {name.removeprefix("flower_pca.") for name in loaded if name.startswith("flower_pca.")}
            for loaded in loaded_by(*statements)
        ]

    shown = "from flower_pca import registry, simulate; registry.make('krylov'); 'PerPCA' in registry.public_classes()"
    node = "from flower_pca.clients import Rules; import flower_pca.masking.client; "
    node += "assert 'krylov' in Rules().served_algorithms"
    (at_a_node,), (here, asked_for) = of(node), of(shown, "from flower_pca import FAPS")
    for loaded in (here, at_a_node):
        assert "algorithms.krylov" in loaded
        assert loaded.isdisjoint({"algorithms.faps", "algorithms.personal.base", "algorithms.robust.base"})
        assert not any(name.startswith("algorithms.robust") for name in loaded)
    assert at_a_node.isdisjoint({"tracking.tracker", "core.run", "core.roll", "core.question"})  # a server's
    assert "algorithms.faps" in asked_for


CORE = [path.stem for path in sorted((PACKAGE / "core").glob("*.py")) if path.stem != "__init__"]


@pytest.mark.slow
def test_core_loads_numpy_and_scipy_only():
    rooms = "\n".join(f"import flower_pca.core.{name}" for name in CORE)
    first, loaded = loaded_by("import numpy, scipy", rooms)
    assert {f"flower_pca.core.{name}" for name in CORE} <= loaded
    outside = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    plain = {name.partition(".")[0] for name in first}
    assert {"flwr", "ray"}.isdisjoint(outside)
    assert outside <= plain | {"flower_pca"}


def test_every_public_method_has_a_docstring_of_its_own_or_of_its_base():
    bare = []
    for name in NAMES:
        thing = getattr(flower_pca, name)
        members = inspect.getmembers(thing) if inspect.isclass(thing) else []
        for member, value in [(name, thing), *members]:
            described = inspect.isroutine(value) or isinstance(value, property) or value is thing
            if described and not member.startswith("_") and not inspect.getdoc(value):
                bare.append(f"{name}: {member}")
    assert bare == []


def public(name):
    """A public object by its name, with that of its package if it is one of Flower's side."""
    package, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"flower_pca.{package}" if package else "flower_pca"), last)


def flowers_side():
    """The public names of the strategies and the clients."""
    for package in ("strategies", "clients"):
        yield from (f"{package}.{name}" for name in importlib.import_module(f"flower_pca.{package}").__all__)


DESCRIBED = [*(name for name in NAMES if name != "__version__"), *flowers_side()]


def run_examples(name, thing):
    """Run what the docstring shows after `>>>`, and compare what it prints."""
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), {}, name, None, None)
    assert examples.examples, name
    said = []
    doctest.DocTestRunner().run(examples, out=said.append)
    assert said == [], "".join(said)


@pytest.mark.slow
@every("name", DESCRIBED)
def test_every_public_name_has_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(name, public(name))


# Everything else that has a page of its own in the reference
OF_THE_REFERENCE = [
    path
    for path in re.findall(r"\(api/([\w.]+)[.]md\)", (PACKAGE.parent / "docs/reference.md").read_text(encoding="utf-8"))
    if path.removeprefix("flower_pca.") not in [*DESCRIBED, "strategies", "clients"]
]


@pytest.mark.slow
@every("path", OF_THE_REFERENCE)
def test_every_page_of_the_reference_has_an_example_that_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(path, pydoc.locate(path))


@every("name", DESCRIBED)
def test_the_defaults_in_docstrings_are_those_of_the_signature(name):
    thing = public(name)
    parameters = inspect.signature(thing).parameters if callable(thing) else {}
    said = re.findall(r"^(\w[\w, ]*) : .*\bdefault=(.+)$", inspect.getdoc(thing), re.MULTILINE)
    for names, default in said:
        for one in names.split(", "):
            assert eval(default) == parameters[one].default, f"{name}: {one}"


def described(path):
    """Each function of a file, and each class by its `__init__`: the docstring, and the names of the parameters.

    Those that take any keyword are left out.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        function = node
        if isinstance(node, ast.ClassDef):
            function = next((one for one in node.body if getattr(one, "name", "") == "__init__"), None)
        if isinstance(function, ast.FunctionDef) and function.args.kwarg is None:
            given = function.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, [given.vararg])]
            yield node.name, ast.get_docstring(node) or "", {one.arg for one in every}


def test_docstrings_describe_the_parameters_of_the_signature():
    """Of what is not public, too: a parameter that has a new name keeps its old one in no docstring."""
    seen, faults = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, words, parameters in described(path):
            section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", words, re.DOTALL | re.MULTILINE)
            if section is None:
                continue
            lines = re.findall(r"^(\*{0,2}\w[\w, *]*?)(?: : .*)?$", section[1], re.MULTILINE)
            told = {one.strip().lstrip("*") for line in lines for one in line.split(",")}
            seen += 1
            faults += [f"{path.relative_to(PACKAGE)}: {name} has no {one}" for one in sorted(told - parameters)]
    assert seen > 50
    assert faults == []
