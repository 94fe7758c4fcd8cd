"""The rooms of the package, their order, and what may be imported where."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "flower_pca"

# From the ground up. Rooms on one floor do not know each other; a room knows those of the floors below.
FLOORS = (
    ("base",),
    ("rows", "keys"),
    ("core",),
    ("stages",),
    ("algorithms", "tracking", "dp"),
    ("registry", "analysis"),
    ("masking", "plots"),
    ("answering", "assembly", "report"),
    ("wire", "data"),
    ("hosted",),
    ("strategies", "clients"),
    ("simulation",),
    ("audit",),
    ("commands", "app", "estimator"),
    ("cli", "flower_pca"),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# A result draws itself, reads the files that it is given, and what it projects by makes a record of Flower's: these
# imports come late, by one name each.
EXCEPTIONS = {
    ("flower_pca.core.result", "flower_pca.plots"),
    ("flower_pca.tracking.result", "flower_pca.plots"),
    ("flower_pca.rows.matching", "flower_pca.data.sources"),
    ("flower_pca.rows.packed", "flower_pca.wire"),
}

# What a room may import from outside the package, beside the standard library, numpy and scipy.
GUESTS = {
    "keys": {"cryptography"},
    "analysis": {"sklearn"},
    "masking": {"cryptography"},
    "plots": {"matplotlib"},
    "audit": {"matplotlib"},
    "wire": {"flwr"},
    "hosted": {"flwr"},
    "data": {"sklearn", "pyarrow", "flwr_datasets", "datasets"},
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


def imported(name: str) -> Iterator[str]:
    """All that a module imports, wherever it does so, type-only imports included."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
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
    assert {room(name) for name in MODULES} == set(FLOOR)


@pytest.mark.parametrize("name", MODULES)
def test_no_import_runs_back_up(name):
    up = [target for target in arrows(name) if room(target) != room(name) and FLOOR[room(target)] >= FLOOR[room(name)]]
    if name != "flower_pca":
        assert up == []


def test_no_circle():
    left = {name: arrows(name) - {name} for name in MODULES}
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    assert sorted(left) == []


@pytest.mark.parametrize("name", MODULES)
def test_guests_come_to_the_rooms_that_need_them_only(name):
    tops = {target.partition(".")[0] for target in imported(name)} - {"flower_pca"}
    assert tops - {*sys.stdlib_module_names, "numpy", "scipy"} - GUESTS.get(room(name), set()) == set()


@pytest.mark.parametrize(("module", "target"), sorted(EXCEPTIONS))
def test_the_exceptions_are_such(module, target):
    home, _, name = target.rpartition(".")
    top = [node for node in ast.parse(MODULES[module].read_text()).body if isinstance(node, ast.ImportFrom)]
    assert target in imported(module)
    assert all(node.module != home or name not in {a.name for a in node.names} for node in top)


def test_core_is_small():
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    core = [name for name in MODULES if room(name) == "core"]
    assert len(core) <= 18 + 1  # and its __init__
    assert sum(lines[name] for name in core) <= 0.2 * sum(lines.values())


@pytest.mark.parametrize("name", MODULES)
def test_a_file_is_a_page_or_three(name):
    assert len(MODULES[name].read_text().splitlines()) <= 250
