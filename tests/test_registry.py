"""Test make(): by name, spec string and instance, and its errors about unknown names and parameters."""

import dataclasses

import numpy as np
import pytest
from cases import every
from checks import beside, other_values

from flower_pca import Krylov, ProtocolError, make
from flower_pca.client_half import answer
from flower_pca.registry import ALGORITHMS, STAGES, TABLE, TRACKERS
from flower_pca.rows.local import LocalData

# a QR, the paper's numbers, or no secants go with that only
TOGETHER = {
    "per_pca": {"choice": 1},
    "faps": {"penalty": "paper"},
    "exact_per_pca": {"gain_tol": 0.0},
    "triple_pca": {"gain_tol": 0.0},
}


def test_another_value_is_found_for_every_parameter_of_every_algorithm():
    for name, kind in ALGORITHMS.items():
        values, default = other_values(name), make(name)
        assert set(values) == {f.name for f in dataclasses.fields(kind) if f.repr}
        assert all(getattr(default, parameter) != value for parameter, value in values.items())


@every("name", ALGORITHMS)
def test_an_algorithm_is_made_by_its_name(name):
    algorithm = make(name)
    assert type(algorithm) is ALGORITHMS[name]
    assert algorithm.name == algorithm.spec == name
    assert make(f"  {name} ") == make(f"{name}()") == algorithm


@every("name", ALGORITHMS)
def test_the_spec_of_every_value_reads_back_as_the_same_algorithm(name):
    values = other_values(name)
    for parameter, value in values.items():
        changes = {**beside(name, parameter), parameter: value}
        changes |= {"max_rounds": 3} if parameter == "min_rounds" else {}
        one = make(name, **changes)
        assert f"{parameter}={value!r}" in one.spec
        assert make(one.spec) == one
    full = make(name, **{**values, **TOGETHER.get(name, {})})
    assert make(full.spec) == full
    assert make(full.spec).spec == full.spec


@every(
    ("name", "values"),
    [
        ("ssi", {"tol": np.float64(1e-3)}),
        ("ssi", {"tol": np.float32(0.5)}),
        ("krylov", {"max_basis": np.int64(9)}),
        ("dr_svd", {"rank": np.int32(9)}),
        ("local_power", {"decay": np.bool_(False)}),
    ],
)
def test_the_spec_of_a_numpy_number_reads_back_too(name, values):
    algorithm = make(name, **values)
    assert make(algorithm.spec) == algorithm


def test_parameters_beside_a_spec_win_over_those_in_it():
    assert make("ssi(tol=0.5, patience=3)", tol=0.25) == make("ssi", tol=0.25, patience=3)


def test_an_instance_is_taken_as_it_is_or_changed_in_a_copy():
    algorithm = Krylov(tol=1e-4)
    assert make(algorithm) == algorithm
    changed = make(algorithm, max_basis=7)
    assert changed == Krylov(tol=1e-4, max_basis=7)
    assert algorithm.max_basis == 40


def test_every_stage_answers_under_its_own_name_and_others_are_refused():
    assert all(stage.name == name for name, stage in STAGES.items())
    assert set(STAGES) == {
        *ALGORITHMS,
        *TRACKERS,
        "opening",
        "private_opening",
        "summed_opening",
        "harmonized_opening",
        "harmonized_summed_opening",
        "adjusted_opening",
        "adjusted_summed_opening",
        "explain",
        *(entry.closing.name for entry in TABLE.values()),
        "standardize",
        "names",
        "gene_sums",
        "hardy_weinberg",
        "evaluate",
        "monitor",
        "standard_errors",
        "signal",
        "shared",
        "columns_opening",
        "loadings",
    }
    X = np.arange(6.0).reshape(3, 2)
    up, memory = answer("ritz", {"Z": np.eye(2)}, LocalData(X), {"kept": np.ones(1)})
    np.testing.assert_array_equal(up["Y"], X.T @ X)
    assert set(memory) == {"kept"}
    with pytest.raises(ProtocolError) as caught:
        answer("ritzy", {}, LocalData(X), {})
    assert str(caught.value) == (
        "This version of flower_pca has no stage named 'ritzy'. Install the same version everywhere."
    )
