"""Test that a plain run executes no code of options that are off."""

import re
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fake_grid import grid_of, in_a_run

import flower_pca
from flower_pca import simulate, strategies

PACKAGE = Path(flower_pca.__file__).parent
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((n, 8)) * np.arange(8, 0, -1) for n in (60, 40)]


def run_here():
    return simulate("krylov", SHARDS, n_components=2)


def run_masked():
    return simulate("krylov", SHARDS, n_components=2, mask=True)


def over_flower():
    with in_a_run():
        return strategies.PCAStrategy("krylov", n_components=2, min_nodes=2).fit(grid_of(SHARDS))


WALKS = {"in process": run_here, "over Flower": over_flower, "under masks": run_masked}
# Of options that these runs do not have.
OFF = (
    *("layers/", "stages/histograms", "stages/standard_errors", "hosting/", "vertical/", "rows/gaps"),
    *("stages/explained", "stages/adjusted_opening", "stages/harmonized_opening", "rows/adjusted", "rows/covariates"),
    *("rows/combat", "rows/moves"),
)
OFF_WORDS = re.compile(r"gaps|noise|noisy|monitor|histogram|host(ed|s\b)|part(y|ies)|coding|checkpoint|flat\b")
MASKS = "masking/"


def calls_by_function(run):
    """How often a run calls each of the package's functions, by file and name, in any thread, once all is loaded."""
    run()
    entered = Counter()

    def look(frame, event, _):
        place = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in place.parents:
            entered[place.relative_to(PACKAGE).with_suffix("").as_posix(), frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return entered


@pytest.mark.slow
@pytest.mark.parametrize("name", WALKS)
def test_a_plain_run_enters_no_file_and_no_function_of_an_option_that_is_off(name):
    entered = calls_by_function(WALKS[name])
    files = {file for file, _ in entered}
    assert [file for file in files if file.startswith(OFF)] == []
    assert [function for _, function in entered if OFF_WORDS.search(function.lower())] == []
    assert name == "under masks" or [file for file in files if file.startswith(MASKS)] == []
