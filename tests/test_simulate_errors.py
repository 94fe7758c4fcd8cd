"""The errors of the in-process call, word by word: what must be so, what was got, what to do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from builders import rows
from cases import every

from flower_pca import ConfigError, DataError, FlowerPCAError, make, simulate
from flower_pca.registry import ALGORITHMS

GOOD = rows(20, [3.0, 2.0, 1.0, 0.5, 0.2], seed=0)


def spoilt(*entries: tuple[int, int, float]) -> np.ndarray[Any, Any]:
    X = GOOD.copy()
    for i, j, value in entries:
        X[i, j] = value
    return X


def constant(value: float, *columns: int) -> np.ndarray[Any, Any]:
    X = GOOD.copy()
    X[:, columns] = value
    return X


def on(*shards: Any, **options: Any) -> dict[str, Any]:
    return {"shards": list(shards), **options}


DATA_ERRORS = {
    "columns": (
        on(GOOD, GOOD[:, :4]),
        "The columns of client 1 must be 5, as those of client 0. Got 4. Align the features first.",
    ),
    "nan": (
        on(GOOD, spoilt((0, 0, np.nan), (3, 2, np.nan), (4, 4, -np.inf))),
        "The data of client 1 must be finite. Got 2 NaN and 1 infinite entries. The first is in row 0 "
        "(from 0 on), column 0. Impute or drop these entries before "
        'the run, or use missing="mean".',
    ),
    "infinities that cancel": (
        on(spoilt((0, 0, np.inf), (1, 0, -np.inf))),
        "The data of client 0 must be finite. Got 0 NaN and 2 infinite entries.",
    ),
    "nan in float32": (
        on(GOOD, GOOD, spoilt((1, 1, np.nan)).astype(np.float32)),
        "The data of client 2 must be finite. Got 1 NaN and 0 infinite entries.",
    ),
    "nan in sparse": (
        on(GOOD, scipy.sparse.csr_array(spoilt((1, 1, np.nan)))),
        "The data of client 1 must be finite. Got 1 NaN and 0 infinite entries.",
    ),
    "masked": (
        on(GOOD, np.ma.masked_greater(GOOD, 1.0)),
        f"The data of client 1 must be whole. Got {int((GOOD > 1.0).sum())} masked entries. Fill them before the run.",
    ),
    "no rows": (
        on(GOOD, GOOD[:0]),
        "The data of client 1 must be at least one row and one column. Got (0, 5). Leave it out.",
    ),
    "no columns": (
        on(GOOD[:, :0]),
        "The data of client 0 must be at least one row and one column. Got (20, 0). Leave it out.",
    ),
    "a vector": (
        on(GOOD, GOOD[:, 0]),
        "The data of client 1 must be a two-dimensional array of real numbers, one row per sample. Got 1 dimension of "
        "dtype float64. Convert it first; a vector becomes x[:, None].",
    ),
    "words": (
        on(np.array([["a", "b"]])),
        "The data of client 0 must be a two-dimensional array of real numbers, one row per sample. Got 2 dimensions of "
        "dtype <U1.",
    ),
    "complex": (on(GOOD * 1j), "Got 2 dimensions of dtype complex128."),
    "no shards": (on(), "shards must be a list of arrays, one per client. Got none. Use [X] for one client."),
    "one array": (
        {"shards": GOOD},
        "shards must be a list of arrays, one per client. Got ndarray of shape (20, 5). Use [X] for one client.",
    ),
    "one sparse array": ({"shards": scipy.sparse.csr_array(GOOD)}, "Got csr_array of shape (20, 5). Use [X]"),
    "a path": ({"shards": "data.npy"}, "shards must be a list of arrays, one per client. Got str."),
    "a number": (
        {"shards": 3},
        "shards must be a list of arrays, one per client. Got int. Use [X] for one client.",
    ),
    "a constant column": (
        on(constant(0.0, 3), constant(0.0, 3), scale="std"),
        'Every column under scale="std" must be varying. Got constant column 3. Drop it, or use scale=None.',
    ),
    "constant columns": (
        on(constant(1e7 / 3, 0, 4), constant(1e7 / 3, 0, 4)[:7], scale="std"),
        'Every column under scale="std" must be varying. Got constant columns 0, 4.',
    ),
}
CONFIG_ERRORS = {
    "misspelt": (
        {"algorithm": "kryov"},
        f"The algorithm must be one of {', '.join(ALGORITHMS)}, auto. Got 'kryov'. Did you mean 'krylov'?",
    ),
    "case": ({"algorithm": "FAPS"}, "Did you mean 'faps'?"),
    "no algorithm": ({"algorithm": "xyz"}, "Got 'xyz'. Choose one of these."),
    "no spec": ({"algorithm": "ssi(3)"}, "Got 'ssi(3)'. Give parameters by name, as plain values."),
    "code": ({"algorithm": "ssi(tol=open('x'))"}, "Give parameters by name, as plain values."),
    "a class": ({"algorithm": type(make("ssi"))}, "The algorithm must be a name, an instance, or a spec such as"),
    "parameter of the spec": (
        {"algorithm": "krylov(tool=1e-3)"},
        "Every parameter of krylov must be among oversample, tol, min_rounds, max_rounds, patience, max_basis. Got "
        "'tool'. Did you mean 'tol'?",
    ),
    "parameter of the call": (
        {"algorithm": "uda", "tol": 1e-3},
        "Every parameter of uda must be among oversample. Got 'tol'.",
    ),
    "tol": ({"tol": -1.0}, "tol of krylov must be a finite number of at least 0. Got -1.0."),
    "not a number": ({"tol": float("nan")}, "tol of krylov must be a finite number of at least 0. Got nan."),
    "rounds": ({"max_rounds": 0}, "max_rounds of krylov must be a whole number of at least 1. Got 0."),
    "more than most": (
        {"min_rounds": 5, "max_rounds": 3},
        "max_rounds of krylov must be a whole number of at least 5. Got 3.",
    ),
    "too many components": (
        {"n_components": 6},
        "n_components must be at most min(n_samples, n_features) = min(20, 5) = 5. Got 6. Ask for fewer components.",
    ),
    "more than rows": (
        {"n_components": 4, **on(GOOD[:2], GOOD[2:3])},
        "n_components must be at most min(n_samples, n_features) = min(3, 5) = 3. Got 4.",
    ),
    "no components": ({"n_components": 0}, "n_components must be a whole number of at least 1, or a fraction"),
    "all the variance": ({"n_components": 1.0}, 'strictly between 0 and 1, or "signal", or "shared". Got 1.0.'),
    "true": ({"n_components": True}, "n_components must be a whole number of at least 1, or a fraction"),
    "scale": ({"scale": "sd"}, "scale must be one of None, 'std', 'max_abs'. Got 'sd'. Did you mean 'std'?"),
    "center": ({"center": "yes"}, "center must be one of True, False, None. Got 'yes'."),
    "seed": ({"seed": -1}, "seed must be a whole number of at least 0 and at most 4611686018427387904. Got -1."),
    "min_clients": ({"min_clients": 0}, "min_clients must be a whole number of at least 1. Got 0."),
    "no participation": (
        {"algorithm": "ssi", "participation": 0.0},
        "The fraction of clients must be above 0 and at most 1. Got 0.0.",
    ),
    "participation": ({"algorithm": "ssi", "participation": 1.5}, "and at most 1. Got 1.5. Use 1.0 for all of them."),
    "participation in words": ({"algorithm": "ssi", "participation": "all"}, "Got 'all'. Use 1.0 for all of them."),
    "nobody": ({"participation": lambda m: None}, "What participation returns must be clients. Got None."),
    "a lost checkpoint": (
        {"checkpoint": "/none/such/run.ckpt"},
        "The folder of the checkpoint must be there. Got none at /none/such. Make it first.",
    ),
    "a stranger": (
        {"participation": lambda m: [0, 1]},
        "Every client that participation names must be between 0 and 0. Got 1. Return positions in shards.",
    ),
}


def call(algorithm: Any = "krylov", shards: Any = (GOOD,), n_components: Any = 2, **options: Any) -> Any:
    return simulate(algorithm, shards, n_components=n_components, **options)


@every("case", DATA_ERRORS)
def test_bad_data_is_refused_in_words(case: str) -> None:
    options, text = DATA_ERRORS[case]
    with pytest.raises(DataError, match=re.escape(text)) as info:
        call(**options)
    assert isinstance(info.value, FlowerPCAError)
    assert isinstance(info.value, ValueError)


@every("case", CONFIG_ERRORS)
def test_bad_parameters_are_refused_in_words(case: str) -> None:
    options, text = CONFIG_ERRORS[case]
    with pytest.raises(ConfigError, match=re.escape(text)) as info:
        call(**options)
    assert isinstance(info.value, ValueError)


def test_a_failure_names_client_stage_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(arrays: Any, data: Any, memory: Any) -> Any:
        raise FloatingPointError("broken")

    monkeypatch.setattr(ALGORITHMS["ssi"], "client", staticmethod(broken))
    with pytest.raises(FloatingPointError) as info:
        simulate("ssi", [GOOD, GOOD], n_components=2)
    assert info.value.__notes__ == ["at client 0 (20 x 5), stage ssi, message 1: {'Z': (5, 3)}"]
