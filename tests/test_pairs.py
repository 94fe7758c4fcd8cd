"""Test every algorithm with every option and every two options: correct, or refused with the missing property.

Right is what LAPACK says of all rows together, prepared by hand, where the algorithm finds that; else what the
algorithm's own plain run says of the rows of each client, prepared likewise.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas
import pytest
from builders import Array, StopError, gone_on, sine, stop_after
from cases import every, slow_if

from flower_pca import ConfigError, PersonalResult, make, registry, simulate, track
from flower_pca.algorithms.one_shot import Average
from flower_pca.core import compatible
from flower_pca.core.algorithm import Iterative
from flower_pca.core.stage import Stage
from flower_pca.names.levels import read_levels

pytestmark = [pytest.mark.usefixtures("lines"), pytest.mark.filterwarnings("ignore:theta is")]

K = 2
SENTENCE = re.compile(r"^.+ does not support .+\. (Use|No algorithm supports) .+\.$", re.DOTALL)
RULE = re.compile(
    r"^(.+ cannot be combined with .+: .+|With .+ all clients must be present, because .+)\. .+\.$", re.DOTALL
)


def rows_of_two_causes(n: int, seed: int) -> Array:
    """Two causes, one of them in all columns and one in half of them; their own noise; and a mean."""
    rng = np.random.default_rng(seed)
    causes = np.array([[2.0, 1.5, -1.0, 1.0, 1.2, -1.4], [0.0, 0.0, 1.1, -1.0, 0.0, 0.8]])
    return np.asarray(rng.standard_normal((n, 2)) * [3.0, 1.5] @ causes + 0.1 * rng.standard_normal((n, 6)) + 3.0)


UNLIKE = [rows_of_two_causes(30, 1), rows_of_two_causes(24, 2), rows_of_two_causes(20, 3)]
ALIKE = [rows_of_two_causes(24, 1)] * 3  # identical clients, so each of them stands for all
GAPPY = [X.copy() for X in UNLIKE]
for _i, _X in enumerate(GAPPY):
    _X[_i::7, 2 + _i] = np.nan


NAMES = [*"abcdef", "kind=high", "kind=low"]


def with_words(shards: list[Array]) -> list[Any]:
    """Tables with a column of words, which the first cause decides."""
    found = []
    for X in shards:
        middle = 3.0 if np.nanmax(X) > 2.0 else 1.0
        kinds = np.where(np.nan_to_num(X[:, 0], nan=middle) > middle, "high", "low")
        found.append(pandas.DataFrame(X, columns=list("abcdef")).assign(kind=kinds))
    return found


def with_indicators(shards: list[Array]) -> list[Array]:
    """The same as numbers, by hand."""
    tables = zip(shards, with_words(shards), strict=True)
    return [np.column_stack([X, *((rows["kind"] == kind) * 1.0 for kind in ("high", "low"))]) for X, rows in tables]


def as_counts(shards: list[Array]) -> list[Array]:
    """Counts of alleles, which the same causes decide."""
    return [np.where(np.isnan(X), np.nan, (X > 1.0) * 1.0 + (X > 5.0)) for X in shards]


def with_names(shards: list[Array], name: str) -> list[Any]:
    """Tables with named columns, and one more that is to be left out, because it does not vary."""
    names = [name.format(1000 + j) for j in range(7)]
    return [pandas.DataFrame(np.hstack([X, np.zeros((len(X), 1))]), columns=names) for X in shards]


def gaps_filled(shards: list[Array], missing: str) -> list[Array]:
    if missing == "local_mean":
        return [np.where(np.isnan(X), np.nanmean(X, axis=0), X) for X in shards]
    mean = np.nanmean(np.vstack(shards), axis=0)
    return [np.where(np.isnan(X), mean, X) for X in shards]


@dataclass(frozen=True)
class Option:
    """An option: what is asked, under which name `compatible` knows it, and how near an answer is to be.

    `same`: how near to that of the same run without it, wherever the two end, if it changes nothing that a client has.
    """

    on: str
    asked: dict[str, Any] = field(default_factory=dict)
    near: float = 1e-4
    shards: list[Array] | None = None
    same: float | None = None


OPTIONS = {
    "mask": Option("mask", {"mask": True}, same=1e-9),
    "dp": Option("dp", {"dp": "dp(epsilon=1e12, delta=1e-6, clip=60.0, reach=60.0, noise_seed=3)"}, 1e-2),
    "float32": Option("wire", {"wire": "float32"}, 1e-4),
    "float16": Option("wire", {"wire": "float16"}, 3e-2),
    "auto bits": Option("", {"wire": "auto"}, 3e-2, same=1e-9),  # float64, where rounding builds up
    "channel": Option("channel", {"channel": "air(noise_std=1e-7)"}, 1e-4),
    "columns apart": Option("partitioned_by", {"partitioned_by": "columns"}),
    "local_mean": Option("missing", {"missing": "local_mean"}, shards=GAPPY),
    "mean": Option("missing", {"missing": "mean"}, shards=GAPPY),
    "std": Option("scale", {"scale": "std"}),
    "max_abs": Option("scale", {"scale": "max_abs"}),
    "genotype": Option("scale", {"scale": "genotype"}),
    "variants": Option("variants", {"variants": "variants(maf=0.05, call=0)"}),
    "highly_variable": Option("highly_variable", {"highly_variable": "seurat(6)"}),
    "fraction": Option("fraction", {"fraction": 0.6}, 1e-4, ALIKE),
    "away": Option("", {"fraction": lambda number: [0, 2] if number == 2 else [0, 1, 2]}, 1e-4, ALIKE),
    "fixed answers": Option("", {"answers": "fixed"}, same=1e-2),  # Steps of per_pca depend on a last digit.
    "monitor": Option("monitor", {"monitor": True}),
    "standard_errors": Option("standard_errors", {"standard_errors": True}),
    "max_share": Option("max_share", {"max_share": 0.6}),
    "init": Option("init", {"init": np.eye(6)[:K] + 0.1}),
    "reconstruction_error": Option("reconstruction_error", {"reconstruction_error": True}, same=1e-9),
    "signal": Option("signal", {"n_components": "signal"}),
    "shared": Option("shared", {"n_components": "shared"}),
    "categorical": Option("categorical", {"categorical": {"kind": ["high", "low"]}}),
    "checkpoint": Option("checkpoint", {"checkpoint": True}, same=1e-9),
}
FEW = {
    "consensus_rpca": {"max_rounds": 400},
    "dcf_pca": {"tol": 2e-3, "max_rounds": 300},
    "per_pca": {"local_components": 1, "max_rounds": 600, "eta": 0.01, "tol": 1e-4},
    "exact_per_pca": {"local_components": 1, "max_rounds": 60},
    "triple_pca": {"local_components": 1, "max_rounds": 12},
    "faps": {"tol": 1e-5, "inner_steps": 3},
    "sparse_pca": {"cardinality": 3},
    "dr_svd": {"rank": 6},
    "local_power": {"align": "none"},
}


def precise_enough(name: str, options: tuple[str, ...]) -> Any:
    """As precise as the options leave room for, and of few rounds under a budget."""
    own = dict(FEW.get(name, {}))
    if "categorical" in options and "rank" in own:
        own["rank"] = 7
    if name == "per_pca" and "fixed answers" in options:  # After many rounds, a last digit decides where it stops.
        own |= {"eta": 0.002, "max_rounds": 30}
    if issubclass(registry.ALGORITHMS[name], Iterative):
        own["tol"] = 1e-3 if {"float16", "auto bits"} & set(options) else own.get("tol", 1e-6)
        if "dp" in options:
            own["max_rounds"] = 12
    return make(name, **own)


def finds_what_lapack_does(stage: Stage[Any]) -> bool:
    """Whether it finds what LAPACK does."""
    return stage.measured and stage.orthonormal and not stage.by_medians and not isinstance(stage, Average)


def run(stage: Any, shards: list[Array], asked: dict[str, Any], folder: Any) -> Any:
    asked = {"n_components": K, **asked}
    if asked.get("partitioned_by") == "columns":
        shards = [np.hstack(shards_of) for shards_of in _columns(shards)]
    if "categorical" in asked and asked.get("partitioned_by") != "columns":
        shards = with_words(shards)
        asked |= {"init": np.eye(8)[:K] + 0.1} if "init" in asked else {}
    elif "variants" in asked and asked.get("partitioned_by") != "columns":
        shards = with_names(shards, "1:{}:A:G")
    elif "highly_variable" in asked and asked.get("partitioned_by") != "columns":
        shards = with_names(shards, "gene {}")
    path = folder / f"{len(list(folder.iterdir()))}.npz" if asked.pop("checkpoint", False) else None
    if path is None:
        return simulate(stage, shards, **asked)

    try:
        return simulate(stage, shards, checkpoint=path, on_round=stop_after(2), **asked)
    except StopError:
        return simulate(stage, shards, checkpoint=path, **asked)


def _columns(shards: list[Array]) -> list[list[Array]]:
    X = np.vstack(shards)
    return [[X[:, :3]], [X[:, 3:5]], [X[:, 5:]]]


def check(name: str, options: tuple[str, ...], folder: Any) -> None:
    """Right or refused, and refused if and only if a property is missing or a rule says so."""
    chosen = [OPTIONS[option] for option in options]
    asked: dict[str, Any] = {key: value for option in chosen for key, value in option.asked.items()}
    shards = next((option.shards for option in chosen if option.shards is not None), UNLIKE)
    if any(option.shards is ALIKE for option in chosen):
        shards = [shards[0]] * 3
    if {"genotype", "variants"} & set(options):
        shards = as_counts(shards)
    elif "highly_variable" in options:
        shards = [np.abs(X) / 8.0 for X in shards]
    stage = precise_enough(name, options)
    lacking = compatible.missing_properties(stage, *(option.on for option in chosen))
    found, refusal = result_or_why(stage, shards, asked, folder)
    if lacking:
        assert SENTENCE.match(refusal)
        assert lacking[0] is compatible.RICH or lacking[0].brief in refusal
    elif refusal:
        assert RULE.match(refusal)
        assert ruled_out(chosen, asked), refusal
    else:
        assert not ruled_out(chosen, asked)
        assert_right(found, stage, shards, asked, max(option.near for option in chosen))
        if not stage.measured:
            assert_as_without(found, stage, [option.same for option in chosen])


def ruled_out(chosen: list[Option], asked: dict[str, Any]) -> bool:
    """Whether a rule says that these options do not go together."""
    on = {option.on: asked.get(option.on, True) for option in chosen if option.on}
    on |= {name: asked[name] for name in ("n_components", "fraction") if name in asked}
    if "categorical" in on:
        on["categorical"] = read_levels(on["categorical"])
    if {"partitioned_by", "fraction"} <= on.keys():  # a function that only the loop in this process can take
        return True
    return any({r.option, r.beside} <= on.keys() and not r.fits(on[r.option]) for r in compatible.RULES)


def result_or_why(stage: Any, shards: list[Array], asked: dict[str, Any], folder: Any) -> tuple[Any, str]:
    """The result, or why there is none."""
    try:
        return run(stage, shards, asked, folder), ""
    except ConfigError as error:
        return None, str(error)


def medians(shards: list[Array], asked: dict[str, Any]) -> tuple[Array, Any]:
    """Centre and scale as medians of the clients' own, who count by their rows where a share limits these."""
    counts = [len(X) if "max_share" in asked else 1 for X in shards]
    middle = {None: lambda X: np.ones(X.shape[1]), "std": lambda X: np.nanstd(X, axis=0)}
    middle["max_abs"] = lambda X: np.nanmax(np.abs(X), axis=0)
    middle["genotype"] = lambda X: np.nanmean(X, axis=0)  # The divisor of counts follows from their mean.
    square = 2.0 if asked.get("scale") == "std" else 1.0  # the median of variances, of an even number too
    sizes = [middle[asked.get("scale")](X) ** square for X in shards]
    means = [np.nanmean(X, axis=0) for X in shards]
    centre, size = (np.median(np.repeat(of, counts, axis=0), axis=0) for of in (means, sizes))
    if asked.get("scale") == "genotype":
        size = by_frequency(size)
    return centre, by_share(size ** (1.0 / square), centre)


def by_frequency(mean: Array) -> Array:
    """What counts of an allele are divided by, by their means."""
    return np.sqrt(np.abs(mean * (1.0 - mean / 2.0)))


def by_share(sizes: Array, means: Array) -> Array:
    """What columns are divided by, where those beyond the six are of levels."""
    return np.concatenate([sizes[:6], np.sqrt(means[6:])])


def prepared_by_hand(stage: Any, shards: list[Array], asked: dict[str, Any]) -> Array:
    """The rows of all clients, gaps filled, centered and scaled by hand."""
    there, missing = shards, asked.get("missing", "error")
    if stage.by_medians:
        if missing == "local_mean":
            there = gaps_filled(shards, missing)
        centre, sizes = medians(there, asked)
        return (np.vstack([np.where(np.isnan(X), centre, X) for X in there]) - centre) / sizes
    if missing != "error":
        shards = gaps_filled(shards, missing)
        there = shards if missing == "local_mean" else there
    X, seen = np.vstack(shards), np.vstack(there)
    scale, centre = asked.get("scale"), stage.centers or bool({"scale", "categorical"} & set(asked))
    mean = np.nanmean(seen, axis=0)
    sizes = {
        None: np.ones(X.shape[1]),
        "genotype": by_frequency(mean),
        "std": np.nanstd(seen, axis=0),
        "max_abs": np.nanmax(np.abs(seen), axis=0),
    }
    divisors = by_share(sizes[scale], X.mean(axis=0))  # The scale is computed from the present values.
    return np.asarray((X - (X.mean(axis=0) if centre else 0.0)) / divisors)


@functools.cache
def plainly(stage: Stage[Any], framed: bytes, ends: tuple[int, ...], limit: float | None, d: int) -> Any:
    """What the algorithm finds without any option in rows that were prepared by hand, given as their bytes."""
    F = np.frombuffer(framed).reshape(-1, d)
    return simulate(stage, np.split(F, ends), n_components=K, center=False, max_share=limit)


@functools.cache
def without(stage: Stage[Any]) -> Any:
    """What the algorithm finds in the rows as they are, without any option."""
    return simulate(stage, UNLIKE, n_components=K)


def assert_as_without(found: Any, stage: Any, same: list[float | None]) -> None:
    """The same as without the options, where none of them changes anything that a client has."""
    allowed = [near for near in same if near is not None]
    if len(allowed) == len(same):
        assert sine(found.components_, without(stage).components_) <= max(allowed)


def assert_right(found: Any, stage: Any, shards: list[Array], asked: dict[str, Any], near: float) -> None:
    if "categorical" in asked:
        shards = with_indicators(shards)
    F = prepared_by_hand(stage, shards, asked)
    X = np.vstack(shards)
    ends = np.cumsum([len(S) for S in shards])[:-1]
    if finds_what_lapack_does(stage):
        s, V = np.linalg.svd(F, full_matrices=False)[1:]
        variances = s[:K] ** 2 / (len(X) - 1)
        np.testing.assert_allclose(found.explained_variance_, variances, rtol=10.0 * near)
        if asked.get("partitioned_by") == "columns":
            return
        assert sine(found.components_, V[:K]) <= near
        left = (s[K:] ** 2).sum() / (len(X) - 1)
        assert found.left_out_variance_ == pytest.approx(left, rel=max(100.0 * near, 1e-3))
    else:
        limit = asked.get("max_share") if stage.by_medians else None
        plain = plainly(stage, F.tobytes(), tuple(ends.tolist()), limit, F.shape[1])
        # Rounding decides which entry is an outlier and what is own: see the tests of these algorithms.
        if not stage.measured:
            near = 0.3
        # Shared components cannot be distinguished from own components that all clients have.
        alike = isinstance(found, PersonalResult) and all(np.array_equal(X, shards[0]) for X in shards)
        # If neither run has converged, rounding decides where both are.
        if found.status.ok and plain.status.ok and not alike:
            assert sine(found.components_, plain.components_) <= near
        Q = found.components_ @ found.components_.T
        np.testing.assert_allclose(
            Q if stage.orthonormal else np.diag(Q), np.eye(K) if stage.orthonormal else 1.0, atol=1e-6
        )
    if found.mse_ is not None:
        Q = np.linalg.qr(found.components_.T)[0]
        assert (
            found.mse_ == pytest.approx(np.sum((F - F @ Q @ Q.T) ** 2) / len(F), rel=max(near, 1e-3))
            or not stage.measured
        )
    if found.loading_errors_ is not None:
        assert found.loading_errors_.shape == found.components_.shape
        assert (found.loading_errors_ > 0.0).all()
    if found.histograms_ is not None:
        assert found.histograms_.sum(axis=1).tolist() == [len(F)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_if(registry.ALGORITHMS, "triple_pca", "consensus_rpca"))
@every("option", OPTIONS)
def test_an_algorithm_with_an_option(name: str, option: str, tmp_path: Any) -> None:
    check(name, (option,), tmp_path)


def way(stage: Stage[Any]) -> str:
    """How answers come together."""
    if stage.by_medians:
        return "by medians"
    if not stage.additive:
        return "one by one"
    if stage.remembers:
        return "of what clients keep"
    return "adds up"


def ways() -> list[Any]:
    """The first algorithm of each way in which answers come together."""
    found: dict[str, str] = {}
    for name, kind in registry.ALGORITHMS.items():
        found.setdefault(way(kind()), name)
    return [pytest.param(name, marks=[] if of == "adds up" else pytest.mark.slow) for of, name in found.items()]


@pytest.mark.slow
@pytest.mark.parametrize("one", OPTIONS)
@pytest.mark.parametrize("name", ways())
@every("other", OPTIONS)
def test_two_options(name: str, one: str, other: str, tmp_path: Any) -> None:
    if one < other and not set(OPTIONS[one].asked) & set(OPTIONS[other].asked):
        check(name, (one, other), tmp_path)


STREAMS = [np.vstack([rows_of_two_causes(20, 10 * i + t) for t in range(6)]) for i in range(3)]
STEPS = {
    "mask": {"mask": True},
    "channel": {"channel": "air(noise_std=1e-7)"},
    "init": {"init": np.eye(6)[:K] + 0.1},
    "checkpoint": {"checkpoint": True},
    "fewer steps": {"steps": 4},
    "away": {"away": 1},
}


def follow(name: str, folder: Any, *, checkpoint: bool = False, away: int = 0, **asked: Any) -> Any:
    """The bases of all steps; with a checkpoint, of a run that was stopped and goes on."""
    streams = [X if i >= away else X[:0] for i, X in enumerate(STREAMS)]
    made = registry.tracker(name)
    if not checkpoint:
        return track(made, streams, batch=20, n_components=K, **asked)

    path = folder / f"{len(list(folder.iterdir()))}.npz"
    return gone_on(track, made, streams, path=path, stop=[3], batch=20, n_components=K, **asked)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_if(registry.TRACKERS, "robust_tracking"))
@every("pair", [(one,) for one in STEPS] + list(combinations(STEPS, 2)))
def test_a_tracker_with_options(name: str, pair: tuple[str, ...], tmp_path: Any) -> None:
    asked = {key: value for option in pair for key, value in STEPS[option].items()}
    on = {key: value for key, value in asked.items() if key in ("mask", "channel")}
    lacking = compatible.missing_properties(registry.tracker(name), *on)
    if lacking:
        with pytest.raises(ConfigError, match=SENTENCE):
            follow(name, tmp_path, **asked)
        return
    if len(on) > 1:
        with pytest.raises(ConfigError, match=RULE):
            follow(name, tmp_path, **asked)
        return
    found = follow(name, tmp_path, **asked)
    if "steps" in asked:  # A longer run begins with the same steps.
        steps = asked.pop("steps")
        assert found.steps == steps
        longer = follow(name, tmp_path, **asked)
        assert sine(found.components_[-1], longer.components_[steps - 1]) <= 1e-9
        return
    there = np.vstack(STREAMS[asked.get("away", 0) :])
    assert found.steps == 6
    assert sine(found.components_[-1], np.linalg.svd(there, full_matrices=False)[2][:K]) <= 0.05
