"""Test the structure of the package: its rooms, their order, and the imports between them."""

import ast
import functools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "flower_pca"

# From the ground up. Rooms on one floor do not know each other; a room knows those of the floors below.
FLOORS = (
    ("base",),
    ("blocks",),
    ("names",),
    ("settings",),
    ("rows", "keys", "run_config"),
    ("hints",),
    ("dp",),
    ("core",),
    ("layers",),
    ("stages",),
    ("algorithms", "tracking"),
    ("wire", "data"),
    ("results", "hosting"),
    ("vertical",),
    ("registry",),
    ("masking", "analysis"),
    ("plots",),
    ("client_half", "assembly", "report"),
    ("strategies", "clients"),
    ("simulation",),
    ("comparison",),
    ("audit",),
    ("commands", "app", "estimator"),
    ("cli", "flower_pca"),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# A result draws itself: this import comes late, by one name.
EXCEPTIONS = {("flower_pca.results.drawn", "flower_pca.plots")}

# What a room may import from outside the package, beside the standard library, numpy and scipy.
GUESTS = {
    "keys": {"cryptography"},
    "analysis": {"sklearn"},
    "masking": {"cryptography"},
    "plots": {"matplotlib"},
    "audit": {"matplotlib"},
    "wire": {"flwr"},
    "hosting": {"flwr"},
    "data": {"h5py", "zarr", "python_calamine", "pyreadstat", "sklearn", "pyarrow", "flwr_datasets", "datasets"},
    "strategies": {"flwr"},
    "clients": {"flwr"},
    "simulation": {"flwr", "ray", "IPython"},
    "commands": {"rich"},
    "app": {"flwr"},
    "estimator": {"sklearn"},
}


def module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room(name: str) -> str:
    return [*name.split("."), "flower_pca"][1]


ASKED_FOR = (ast.Module, ast.Import, ast.ImportFrom, ast.Call, ast.Constant)
PLACE = re.compile(r"([\w.]+):[A-Za-z]\w*")  # the form in which the registry names the place of a class


@functools.cache
def syntax(name: str) -> list[ast.AST]:
    """What the rules ask of a module's syntax tree, its module first, read once for all of them."""
    return [node for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, ASKED_FOR)]


def imported(name: str) -> Iterator[str]:
    """All that a module imports, wherever it does so: type-only imports are included, and modules that a text names."""
    for node in syntax(name):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = PLACE.fullmatch(node.value)
            whole = f"flower_pca.{place[1]}" if place else node.value
            if "." in whole and whole in MODULES:
                yield whole
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def arrows(name: str) -> set[str]:
    """The package's modules that a module imports."""
    inside = {target for target in imported(name) if target.partition(".")[0] == "flower_pca"}
    return {target for target in inside if (name, target) not in EXCEPTIONS}


def test_every_room_is_on_a_floor():
    assert {room(name) for name in MODULES} == {*FLOOR}


def test_no_import_runs_back_up():
    up = set()
    for name in MODULES:
        for target in arrows(name):
            here, there = room(name), room(target)
            if here != there and "flower_pca" not in (here, there) and FLOOR[there] >= FLOOR[here]:
                up.add((name, target))
    assert up == set()


def test_no_two_modules_import_each_other():
    left = {name: arrows(name) - {name} for name in MODULES}
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    assert sorted(left) == []


# Forks of one process that has Flower and nothing of the package.
EACH_FIRST = """
import importlib, os, sys, warnings
warnings.simplefilter("ignore")
import flwr.app, flwr.clientapp, flwr.serverapp, numpy, scipy.linalg
assert "flower_pca" not in sys.modules
for name in sys.argv[1:]:
    fork = os.fork()
    if not fork:
        importlib.import_module(name)
        os._exit(0)
    assert os.waitpid(fork, 0)[1] == 0, name
"""


@pytest.mark.slow
def test_each_file_about_parties_and_hosts_can_be_the_first_that_is_imported():
    first = [name for name in MODULES if room(name) in ("vertical", "hosting")]
    run = subprocess.run([sys.executable, "-c", EACH_FIRST, *first], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_third_party_packages_are_imported_only_in_named_folders():
    strangers = {}
    for name in MODULES:
        tops = {target.partition(".")[0] for target in imported(name)} - {"flower_pca"}
        if found := tops - {*sys.stdlib_module_names, "numpy", "scipy"} - GUESTS.get(room(name), set()):
            strangers[name] = found
    assert strangers == {}


RECORDS = {"ArrayRecord", "ConfigRecord", "MetricRecord", "RecordDict"}


def test_records_of_flower_are_known_by_wire_alone():
    """Others go through its functions; Flower's own signatures may name a kind of record, but nobody makes one."""
    strangers = set()
    for name in MODULES:
        if room(name) == "wire":
            continue
        for node in syntax(name):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "flwr":
                strangers |= {(name, alias.name) for alias in node.names} & {(name, record) for record in RECORDS}
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in RECORDS:
                strangers.add((name, "makes one"))
    assert strangers == set()


def test_listed_exceptions_are_late_imports():
    for module, target in sorted(EXCEPTIONS):
        home, _, name = target.rpartition(".")
        tree = syntax(module)[0]
        assert isinstance(tree, ast.Module)
        top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert target in imported(module), (module, target)
        assert all(node.module != home or name not in {a.name for a in node.names} for node in top), (module, target)


def test_a_helper_of_tests_is_defined_once():
    """What several files need is imported; what only sounds alike has a name of its own."""
    places = defaultdict(list)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        for name in re.findall(r"^(?:def|class) (?!test|Test)(\w+)", path.read_text(), re.MULTILINE):
            places[name].append(path.name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
