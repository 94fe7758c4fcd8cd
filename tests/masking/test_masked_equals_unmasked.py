"""Test that masks change nothing but rounding, for one table of runs and every kind of masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from builders import two_lead
from cases import paired
from masked import gappy
from results import assert_close, assert_close_own
from spoilt import ROWS

from flower_pca import ExactPerPCA, make, simulate

pytestmark = pytest.mark.filterwarnings("ignore:theta is")  # Clients as similar as these have almost no own components.
FIVE, LOW = two_lead(5), np.array_split(ROWS, 3)
ROBUST_OWN, PERSONAL_OWN = ("L", "S"), ("components", "variances")
OWN = {"consensus_rpca": ROBUST_OWN, "dcf_pca": ROBUST_OWN, "exact_per_pca": PERSONAL_OWN, "per_pca": PERSONAL_OWN}
OWN["triple_pca"] = (*PERSONAL_OWN, "L", "S")
ROUNDS = {"krylov": 2, "ssi": 2, "faps": 1}
SPECS = {
    "consensus_rpca": "consensus_rpca(gamma=0.7)",
    "dcf_pca": "dcf_pca(step='scaled')",
    "exact_per_pca": "exact_per_pca(local_components=2)",
    "per_pca": "per_pca(local_components=2, eta=0.02)",
}


@dataclass(frozen=True)
class Case:
    """A run; `ends` says that it has to come to its end well, `own` which own results are to be the same."""

    spec: Any
    shards: Any = field(default_factory=lambda: FIVE)
    k: int | float = 2
    masks: Any = True
    ends: bool = False
    own: bool = True
    within: float = 1e-8
    settings: Any = field(default_factory=dict)


CASES: dict[str, Case] = {}
for name, rounds in ROUNDS.items():
    few = {"max_rounds": rounds, "reconstruction_error": True}
    for n in (2, 5) if name == "faps" else (2, 12):
        CASES[f"{name}, {n} clients"] = Case(name, two_lead(n), settings=few)
ring: dict[str, Any] = {"shards": two_lead(24, rows=5), "settings": {"max_rounds": 1}}
CASES["ssi, in a ring"] = Case("ssi", masks="masks(neighbors=4)", **ring)
CASES["krylov, in a ring, without self-masks"] = Case("krylov", masks="masks(neighbors=4, self_masks=False)", **ring)
for name in ("krylov", "ssi"):
    CASES[f"{name}, to its end"] = Case(name, ends=True)
CASES["ssi, with a bound above all entries"] = Case("ssi", masks="masks(bound=1e4)", ends=True)
for i, (name, spec) in enumerate(SPECS.items()):
    few = {"max_rounds": 8, **({"start_rounds": 1} if "per_pca" in name else {})}
    n = (5, 2)[i % 2]
    CASES[f"{name}, {n} clients"] = Case(make(spec, **few), two_lead(n), settings={"reconstruction_error": True})
few = {"max_rounds": 3}
CASES["exact_per_pca, 12 clients"] = Case(
    make(SPECS["exact_per_pca"], **few, start_rounds=1), two_lead(12), settings={"reconstruction_error": True}
)
CASES["consensus_rpca, in a ring"] = Case(
    make(SPECS["consensus_rpca"], **few), two_lead(12, rows=2), masks="masks(neighbors=4)"
)

# Units: whatever the rows are measured in, and however much clients differ in it.
UNITS = {
    "scaled": (two_lead(5), lambda X: X * 10.0 ** np.arange(-4, 4), {"scale": "std"}),
    "not centered": (FIVE, lambda X: X + 1.0, {"center": False}),
    "tiny": (FIVE, lambda X: 1e-9 * X, {}),
    "huge": (FIVE, lambda X: 1e9 * X, {}),
    "a constant column": (FIVE, lambda X: np.hstack([X, np.full((len(X), 1), 0.1)]), {}),
    # Here the unmasked runs of two machines differ as much:
    "far from zero": (FIVE, lambda X: X + 1e4, {"within": 1e-7}),
    "single precision": (FIVE, lambda X: X.astype(np.float32), {"within": 1e-5}),
}
for unit, (rows, change, settings) in UNITS.items():
    within = settings.pop("within", 1e-8)
    CASES[f"krylov, {unit}"] = Case("krylov", [change(X) for X in rows], ends=True, within=within, settings=settings)
CASES["krylov, a fraction"] = Case("krylov", k=0.9, ends=True)
for name in ("consensus_rpca", "exact_per_pca", "dcf_pca"):
    rows, k = (FIVE, 2) if name == "exact_per_pca" else (LOW, 5)
    size = 1e6 if name == "exact_per_pca" else 1e-6
    case = Case(make(SPECS[name], max_rounds=45), [size * X for X in rows], k, ends=name != "dcf_pca", own=False)
    CASES[f"{name}, {size:g} times as large"] = case
for name, size in (("consensus_rpca", 1e-3), ("exact_per_pca", 1e3), ("exact_per_pca(weights='samples')", 1e-3)):
    rows = [X * (size if i == 1 else 1.0) for i, X in enumerate(FIVE)]
    CASES[f"{name}, one client {size:g} times as large"] = Case(make(name, max_rounds=8), rows, own=False)

# To the end: every way to begin, to weigh and to find a rank.
CASES |= {
    "a rank to be found": Case("consensus_rpca(gamma=0.7)", LOW, 8, ends=True),
    "sigma is given": Case("consensus_rpca(gamma=0.7, sigma=2.0)", LOW, 5, ends=True),
    "triple": Case("triple_pca(local_components=2, max_rounds=20)", LOW, 2),
    "personal": Case("exact_per_pca(local_components=2)", ends=True),
    "personal, by rows": Case("exact_per_pca(local_components=2, weights='samples')", ends=True),
    "personal, given": Case(ExactPerPCA(local_components=2, given=np.eye(8)[:, :2]), ends=True),
}

# Gaps.
for n, scale in ((2, None), (5, "std"), (12, None)):
    rows, settings = gappy(two_lead(n), seed=n), {"missing": "mean", "scale": scale}
    CASES[f"gaps, {n} clients, scale {scale}"] = Case("krylov", rows, settings=settings)
for size in (1e-6, 1e6):
    rows = [(1e3 if i == 2 else 1.0) * size * X for i, X in enumerate(gappy(FIVE))]
    CASES[f"gaps, {size:g} times as large"] = Case("krylov", rows, settings={"missing": "mean"})


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_masked_equals_unmasked(case: Case) -> None:
    plain, masked = (
        simulate(case.spec, case.shards, n_components=case.k, mask=mask, **case.settings)
        for mask in (False, case.masks)
    )
    if case.ends:
        assert plain.status.ok
    assert_close(masked, plain, case.within)
    if case.own and plain.local:
        assert_close_own(masked, plain, OWN[make(case.spec).name], case.within)


@pytest.mark.slow
@pytest.mark.parametrize(("n_clients", "name"), paired([2, 5, 12], ROUNDS))
def test_without_self_masks_it_is_the_same_in_half_the_messages(name: str, n_clients: int) -> None:
    settings = {"n_components": 2, "max_rounds": ROUNDS[name], "reconstruction_error": True}
    both, single = (
        simulate(name, two_lead(n_clients), mask=f"masks(self_masks={self_masks})", **settings)
        for self_masks in (True, False)
    )
    np.testing.assert_array_equal(single.components_, both.components_)
    sums = len(both.history.of("mask.sum"))
    assert len(both.history) == 2 + 2 * sums
    assert len(single.history) == 2 + sums
    assert [r.stage for r in single.history] == [r.stage for r in both.history if r.stage != "mask.sum"]
    assert single.history[-1].metrics == both.history[-1].metrics


@pytest.mark.slow
@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca", "dcf_pca"])
def test_single_precision_of_the_robust_and_the_personal(name: str) -> None:
    rows, k = (FIVE, 2) if name == "exact_per_pca" else (LOW, 5)
    rows = [X.astype(np.float32) for X in rows]
    algorithm = make(SPECS[name], max_rounds=20)
    plain, masked = (simulate(algorithm, rows, n_components=k, center=False, mask=mask) for mask in (False, True))
    assert np.abs(masked.components_ - plain.components_).max() < 1e-5
    np.testing.assert_allclose(masked.explained_variance_, plain.explained_variance_, rtol=1e-5)
    assert masked.status.outcome is plain.status.outcome
