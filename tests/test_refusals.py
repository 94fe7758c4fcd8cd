"""Test that every entry point refuses with the right sentence. The tables are in tests/refused."""

import importlib
from pathlib import Path

import pytest
from fake_grid import in_a_run

from flower_pca import ConfigError, DataError, FlowerPCAError

NAMES = sorted(path.stem for path in (Path(__file__).parent / "refused").glob("[a-z]*.py"))
MODULES = [importlib.import_module(f"refused.{name}") for name in NAMES]
DOORS = {door: of for module in MODULES for door, of in module.DOORS.items()}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("door", DOORS)
def test_what_is_refused_is_said_in_this_sentence(door):
    opened, table = DOORS[door]
    with in_a_run():
        faults = [fault for refused in table if (fault := refused.fault(opened))]
    assert not faults, "\n".join(faults)


def test_entry_points_are_unique():
    assert len(DOORS) == sum(len(module.DOORS) for module in MODULES)


def test_refusals_of_data_and_of_settings_are_value_errors():
    for error in (ConfigError, DataError):
        assert issubclass(error, FlowerPCAError)
        assert issubclass(error, ValueError)
