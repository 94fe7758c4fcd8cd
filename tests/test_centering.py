"""Test the default of centering: the first component of a scaled run is never the mean of all rows."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import slow_if

from flower_pca import make, registry, simulate

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_hospitals.py"
COLUMNS = "age,weight,systolic,glucose,hba1c,heart_rate,temperature,crp,creatinine,urea"
FEW = {"exact_per_pca": {"local_components": 1}, "per_pca": {"local_components": 1, "max_rounds": 30}}


@pytest.fixture(scope="module")
def three_hospitals(tmp_path_factory):
    """The patients of docs/three-hospitals.md."""
    folder = tmp_path_factory.mktemp("three")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [str(EXAMPLE), "--out", str(folder)])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    return {file.stem: pd.read_csv(file) for file in (folder / "hospitals").iterdir()}


@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize("name", slow_if(registry.ALGORITHMS, "consensus_rpca", "triple_pca"))
def test_the_first_component_of_scaled_columns_is_not_the_mean(name, three_hospitals):
    algorithm = make(name, **FEW.get(name, {}))
    found = simulate(algorithm, three_hospitals, n_components=2, scale="std", missing="mean", columns=COLUMNS)
    assert found.centered
    mean = found.mean_ / found.scale_
    assert abs(found.components_[0] @ mean) <= 0.7 * np.linalg.norm(mean)
    assert not any("not centered" in hint for hint in found.hints)


SHIFTED = [np.random.default_rng(i).standard_normal((60, 4)) * [3.0, 2.0, 1.0, 0.5] + 20.0 for i in range(3)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize(
    ("name", "scale"), [("krylov", None), ("krylov", "std"), ("exact_per_pca", "max_abs"), ("consensus_rpca", None)]
)
def test_a_run_whose_mean_outweighs_the_first_component_says_so(name, scale):
    algorithm = make(name, **FEW.get(name, {}))
    found = simulate(algorithm, SHIFTED, n_components=1, scale=scale, center=False)
    assert "Rows were not centered, and their mean makes up " in found.hints[0]
    assert found.hints[0].endswith("of component 1, which then hides differences between rows. Use center=True.")
    about_zero = [X - np.vstack(SHIFTED).mean(axis=0) for X in SHIFTED]
    assert simulate(algorithm, about_zero, n_components=1, scale=scale, center=False).hints == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
def test_who_is_asked_to_centre_by_themselves_does():
    centered = {name: simulate(make(name, **FEW.get(name, {})), SHIFTED, n_components=1).centered for name in FEW}
    assert centered == dict.fromkeys(FEW, True)
    assert not simulate("consensus_rpca", SHIFTED, n_components=1).centered  # An outlier moves the mean.
    assert simulate("consensus_rpca", SHIFTED, n_components=1, scale="std").centered
    assert not simulate("consensus_rpca", SHIFTED, n_components=1, scale="std", center=False).centered
