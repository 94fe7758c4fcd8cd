"""How many files a plain run enters: an option that is off is in nobody's way."""

import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from fake_grid import grid_of, in_a_run
from pages import text

import flower_pca
from flower_pca import simulate, strategies

PACKAGE = Path(flower_pca.__file__).parent
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((n, 8)) * np.arange(8, 0, -1) for n in (60, 40)]


def here():
    return simulate("krylov", SHARDS, n_components=2)


def masked():
    return simulate("krylov", SHARDS, n_components=2, mask=True)


def over_flower():
    with in_a_run():
        return strategies.PCAStrategy("krylov", n_components=2, min_nodes=2).fit(grid_of(SHARDS))


WALKS = {"in process": here, "over Flower": over_flower, "under masks": masked}
# Of options that these runs do not have, and what of it is entered all the same: to be turned round, never more.
OFF = ("layers/air", "layers/single", "stages/influence", "stages/histograms", "hosting/", "vertical/", "rows/gaps")
STILL = {"over Flower": ["hosting/server", "vertical/node", "vertical/split"]}


def files(run):
    """The files of the package that a run enters, in whatever thread, once all is loaded."""
    run()
    entered = set()

    def look(frame, event, _):
        place = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in place.parents:
            entered.add(place.relative_to(PACKAGE).with_suffix("").as_posix())

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


@pytest.mark.parametrize("name", WALKS)
def test_a_plain_run_enters_as_many_files_as_the_page_says_and_none_of_what_is_off(name):
    entered = files(WALKS[name])
    (line,) = [line for line in text("docs/architecture.md").splitlines() if line.startswith(f"| {name} ")]
    assert len(entered) <= int(line.split("|")[2])
    assert sorted(file for file in entered if file.startswith(OFF)) == STILL.get(name, [])
