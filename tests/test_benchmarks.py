"""Test that what the benchmarks use of the package still exists."""

import ast
import importlib
import sys
import types
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "__init__")


def lacking(path):
    """What a program names of our modules that they do not have."""
    tree = ast.parse(path.read_text())
    modules, missing = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "flower_pca":
            for alias in node.names:
                try:
                    found = getattr(importlib.import_module(node.module), alias.name, None)
                    found = found or importlib.import_module(f"{node.module}.{alias.name}")
                except ImportError:
                    missing.append(f"{node.module}.{alias.name}")
                    continue
                if isinstance(found, types.ModuleType):
                    modules[alias.asname or alias.name] = found
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    for module, name in ((modules.get(node.value.id), node.attr) for node in used):
        if module is not None and not hasattr(module, name):
            missing.append(f"{module.__name__}.{name}")
    return missing


def test_no_program_hides_a_module_of_the_standard_library():
    """A program's own folder is the first that Python looks in for what it imports."""
    assert not {path.stem for path in PROGRAMS} & sys.stdlib_module_names


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_a_benchmark_uses_is_there(path):
    assert lacking(path) == []


def test_what_is_gone_would_be_found(tmp_path):
    program = tmp_path / "old.py"
    program.write_text(
        "from flower_pca.rows import statistics, nowhere\nstatistics.gone.clear()\nstatistics.measure_statistics\n"
    )
    assert lacking(program) == ["flower_pca.rows.nowhere", "flower_pca.rows.statistics.gone"]
