"""Refusals of results: rows, pictures, limits and rotations."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import people
from builders import shards

from flower_pca import DataError, PCAResult, Projection, TrackingResult, simulate, to_sklearn, track
from flower_pca.analysis.groups import distances, embed
from flower_pca.analysis.monitor import Monitor
from flower_pca.analysis.rotation import rotate
from flower_pca.comparison.ranks import alternatives, rank_table
from refused import Refused

TWO = shards((60, 25), 0.8 ** np.arange(12))
NAMED = [pd.DataFrame(X, columns=list("lkjihgfedcba")) for X in TWO]
ALIGNED = {site: table.loc[people.PEOPLE] for site, table in people.frames().items()}
DP = "dp(epsilon=1.0, delta=1e-6, clip=10.0)"


@functools.cache
def result_of(algorithm: str) -> PCAResult:
    spec = algorithm if algorithm == "krylov" else f"{algorithm}(max_rounds=3)"
    return simulate(spec, TWO, n_components=3)


def spoilt(array: str, to: Callable[[Any], Any]) -> None:
    """Read from a file one of whose arrays is another."""
    result = simulate("krylov", NAMED, n_components=3, scale="std")
    with tempfile.TemporaryDirectory() as folder:
        path = result.save(Path(folder) / "r.npz")
        with np.load(path) as there:
            arrays = dict(there)
        np.savez(path, **{**arrays, array: to(arrays[array])})
        PCAResult.load(path)


def picture(what: str, name: str = "p.svg", algorithm: str = "krylov") -> None:
    """Of a result without what only the clients know."""
    of = result_of(algorithm)
    with tempfile.TemporaryDirectory() as folder:
        try:
            (replace(of, local={}) if algorithm != "krylov" else of).plot(what, Path(folder) / name)
        finally:
            assert list(Path(folder).iterdir()) == []


@functools.cache
def result_of_steps() -> TrackingResult:
    return track("st_miss", [np.vstack(TWO)], n_components=2, batch=20)


def picture_of_steps(what: str) -> None:
    result_of_steps().plot(what, "/none/such/p.png")


def told_by(act: str, given: Any, algorithm: str = "krylov", **more: Any) -> None:
    """By a result without what only the clients know."""
    of = result_of(algorithm)
    getattr(replace(of, local={}) if algorithm != "krylov" else of, act)(given, **more)


def projecting_file(content: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.csv"
        path.write_text(content)
        known = pd.DataFrame(TWO[0][:, :3], columns=["age", "bmi", "pulse"])
        simulate("krylov", [known], n_components=2).transform(str(path))


def told_of_steps(act: str, given: Any) -> None:
    getattr(result_of_steps(), act)(given)


@functools.cache
def result_of_parties(named: bool, hide_local: tuple[int, ...]) -> PCAResult:
    tables = ALIGNED if named else people.PARTS
    return simulate("krylov(max_rounds=2)", tables, n_components=2, partitioned_by="columns", hide_local=hide_local)


def of_parties(act: str, given: Any, named: bool = True, hide_local: tuple[int, ...] = ()) -> None:
    getattr(result_of_parties(named, hide_local), act)(*given)


def of_robust(use: Callable[[Any], Any]) -> None:
    use(result_of("consensus_rpca"))


def projecting(rows: Any, data: Any = TWO, *, as_result: bool = False, digest: bool = False) -> None:
    """By a result, or by what travels of it; which may know a digest of the names only."""
    result = simulate("krylov", data, n_components=3)
    if digest:
        result = replace(result, feature_names_in_=None)
    (result if as_result else Projection.from_record(result.to_record())).transform(rows)


def monitored(data: Any = TWO, algorithm: str = "krylov", k: int = 3, only: int | None = None, **asked: Any) -> Monitor:
    return Monitor(simulate(algorithm, data, n_components=k, **asked), n_components=only)


def filled_without(**asked: Any) -> None:
    simulate("krylov", NAMED, n_components=2, **asked).with_imputation()


def limits(asked: dict[str, Any], **given: Any) -> None:
    monitored(**given).limits(**asked)


def monitoring(**given: Any) -> None:
    monitored(**given)


def scored(rows: Any) -> None:
    monitored(NAMED).score(rows)


def rotated(method: str = "varimax", algorithm: str = "krylov", data: Any = TWO, k: int = 2, **asked: Any) -> None:
    rotate(simulate(algorithm, data, n_components=k, **asked), method)


def rotated_parts() -> None:
    result = simulate("krylov", [X.T for X in np.split(TWO[0].T, [5])], n_components=3, partitioned_by="columns")
    rotate(replace(result, spans_={0: [0, 5]}))


def others_than(algorithm: str, data: Any) -> None:
    alternatives(result_of(algorithm), data)


PICTURE = [
    Refused({"what": "scre"}, "The picture must be 'overview', 'scree', .* Did you mean 'scree'"),
    Refused({"what": "scree", "name": "p.pdf"}, "A picture is saved as .svg or .png, not as '.*p.pdf'"),
    Refused({"what": "scores"}, 'The picture "scores" needs the rows of the clients. Add shards=[...].'),
    Refused(
        {"what": "errors"},
        'The picture "errors" needs the rows of the clients, with the same columns at all of them. Add '
        'shards=[...]. After a run with partitioned_by="columns", draw "scores" instead.',
    ),
    Refused(
        {"what": "removed", "algorithm": "consensus_rpca"},
        'The picture "removed" needs the rows of the clients, or the result of a simulation that has just been run. '
        "Add shards=[...].",
    ),
    Refused(
        {"what": "split", "algorithm": "exact_per_pca"},
        'The picture "split" needs the rows and the local components of the clients. '
        "Draw the picture from the result of a simulation, and add shards=[...].",
    ),
    Refused(
        {"what": "local_map", "algorithm": "exact_per_pca"},
        'The picture "local_map" needs the local components of at least two clients. Draw the picture '
        "from the result of a simulation, before the result is saved.",
    ),
]
PICTURE_OF_STEPS = [
    Refused({"what": "scree"}, "The picture must be 'overview', 'subspace_change', 'fit', 'statistic', 'step_sizes',"),
    Refused({"what": "outliers"}, 'The picture "outliers" needs a run with outliers. Draw "subspace_change" instead.'),
]
RESULT = [
    Refused(
        {"act": "transform", "given": TWO[0][:, :5]},
        "^The rows have 5 columns, but the run had 12. Give all columns of the run, in the same order.$",
    ),
    Refused(
        {"act": "angle_to", "given": TWO[0][:12, :3]},
        "^The other components have shape (12, 3), but must be rows of 12 features. Give components of the same "
        "features, one per row.$",
    ),
    Refused({"act": "transform", "given": np.full((1, 12), np.nan)}, "The data of the rows given has ", DataError),
    Refused(
        {"act": "transform", "given": TWO[0], "algorithm": "exact_per_pca", "client": 1},
        "The result has the local components of no client, but not of client 1.",
    ),
    Refused(
        {"act": "transform", "given": TWO[0], "algorithm": "exact_per_pca", "client": np.eye(12)[:, :2]},
        "Local components must be rows of 12 features",
    ),
    Refused(
        {"act": "fit_local", "given": TWO[0], "algorithm": "exact_per_pca", "n_components": 12},
        "n_components of local components must be a whole number from 0 to 9, not 12. Ask for fewer.",
    ),
    Refused(
        {"act": "transform", "given": np.where(np.arange(12) == 3, np.nan, TWO[0][:5]), "algorithm": "consensus_rpca"},
        "in row 0 (from 0 on), column 3. Impute or drop them, or use res",
        DataError,
    ),
]
OF_STEPS = [
    Refused({"act": "transform", "given": np.ones((2, 3))}, "The rows have 3 columns, but the run had 12."),
    Refused({"act": "subspace_error", "given": np.ones((3, 5, 12))}, "The truth must have shape (5, r, 12), or"),
]
OF_PARTIES = [
    Refused(
        {"act": "transform", "given": ({**ALIGNED, "lab": ALIGNED["lab"].rename(index={"P001": "P900"})},)},
        "transform needs one table from each of the 2 parties, with the same people, but the number of tables is 2, "
        "with 90 rows and different ids. Give one such table for each party.",
    ),
    Refused(
        {"act": "transform", "given": ({"lab": ALIGNED["lab"]},)},
        "transform needs one table from each of the 2 parties, with the same people, but the number of tables is 1, "
        "with 90 rows. Give one such table for each party.",
    ),
    Refused(
        {"act": "transform", "given": (people.X,), "named": False, "hide_local": (1,)},
        "Only 2 of 3 parties have shared their loadings, but this method needs the loadings of all parties. Let each "
        "party project its own columns.",
    ),
    Refused(
        {"act": "loadings", "given": (1,), "named": False, "hide_local": (1,)},
        "The loadings of party 1 are not available (only client 0, client 2 shared loadings). Read the file that the "
        "party's node has written, with ColumnsResult.projection_of_party(path).",
    ),
    Refused(
        {"act": "plot", "given": ("loadings", "/none/such/l.svg"), "hide_local": (0, 1)},
        'The picture "loadings" needs a result with loadings. Draw "scree" instead.',
    ),
]
FILLED = [Refused({"center": False}, "^The run was not centered and allowed no missing values")]
OF_ROBUST = [
    Refused({"use": use}, f"{what} needs a result that only projects rows, but a RobustResult does more. {remedy}")
    for use, what, remedy in (
        (to_sklearn, "scikit-learn's PCA", "Use result.transform instead."),
        (lambda result: result.to_record(), "A record", "Save the result"),
    )
]
PROJECTING = [
    Refused({"rows": TWO[0][:, :7]}, "The rows have 7 columns, but the run had 12. Give all columns"),
    Refused({"rows": NAMED[0].drop(columns="c"), "data": NAMED}, "lack 'c', which the result needs"),
    Refused({"rows": NAMED[0].rename(columns={"a": "z"}), "data": NAMED, "digest": True}, "12 with other names"),
    Refused(
        {"rows": NAMED[0].rename(columns={"a": "z"}), "data": NAMED, "digest": True, "as_result": True},
        "do not fit: there are 12 with other names instead of the 12 of the result.",
    ),
]
PROJECTING_FILE = [
    Refused({"content": f"age,bmi,pulse\n\n1,2,3\n{line}\n"}, sentence, DataError)
    for line, sentence in (
        (
            "4,,6",
            "^The data of the rows given has 1 missing value (NaN). .*in line 4 of /.*/new.csv, column bmi. Impute or "
            "drop them, or use result.with_imputation().$",
        ),
        ("4,5,inf", "The first is in line 4 of /.*/new.csv, column pulse."),
    )
]
LIMITS = [
    Refused(
        {"asked": {"source": "clients"}},
        "Limits from the clients need a run with monitor=True, and a Monitor of all its components. Use "
        'source="theory".',
    ),
    Refused(
        {"asked": {"source": "clients"}, "monitor": True, "only": 2},
        "Limits from the clients need a run with monitor=True, and a Monitor of all its components. Use "
        'source="theory".',
    ),
    *[
        Refused({"asked": {"level": level}}, "level must be a number from 1e-06 to 0.999999, not")
        for level in (1.0, "high")
    ],
    Refused(
        {"asked": {"trained": True, "source": "theory"}, "data": [TWO[0][:3]]},
        "Limits from theory need more than 3 rows, but the run had 3. Use fewer components, or limits from the "
        "clients.",
    ),
    Refused(
        {"asked": {"level": 0.99, "source": "theory"}, "algorithm": "sparse_pca", "monitor": True},
        "Limits from theory need orthonormal components, but the components of sparse_pca are not orthonormal.",
    ),
]
MONITORING = [
    Refused({"only": 4}, "n_components of a Monitor must be a whole number from 1 to 3"),
    Refused(
        {"algorithm": "consensus_rpca", "max_rounds": 2},
        "Rows cannot be scored by a RobustResult, because its components alone do not describe a row. Use the",
    ),
    Refused(
        {"algorithm": "ssi", "max_rounds": 3, "dp": DP},
        "Rows cannot be scored by the result of a run with dp, because the variances behind the limits have "
        "noise. Use a result of a run without dp.",
    ),
]
SCORED = [Refused({"rows": NAMED[0].drop(columns="b")}, "lack 'b', which the result needs")]
ROTATED = [
    Refused({"k": 1}, "A rotation needs at least 2 components, but this result has 1. Run with more components."),
    *[
        Refused(
            {"algorithm": name, "max_rounds": 5},
            f"Only orthonormal components of the covariance of all rows can be rotated, but {name}",
        )
        for name in ("sparse_pca", "per_pca", "dcf_pca")
    ],
    Refused(
        {"algorithm": "covariance", "dp": "dp(epsilon=5.0, delta=1e-6, clip=9.0)"},
        "The components of a run with dp cannot be rotated, because their variances have noise. Use the components "
        "without a rotation.",
    ),
    Refused(
        {"algorithm": "covariance", "k": 3, "data": [X[:, :2] @ np.ones((2, 4)) for X in TWO]},
        "Components without variance cannot be rotated, but the smallest variance is .*. Run with fewer components.",
    ),
    *[
        Refused({"method": method, "scale": "std"}, words)
        for method, words in (
            ("oblimin", "The rotation must be varimax or promax, not 'oblimin'."),
            ("promax(power=0)", "power must be"),
            ("varimax(kaiser=2)", "kaiser"),
        )
    ],
]
ROTATED_PARTS = [
    Refused(
        {},
        "Only 1 of 2 parties have shared their loadings, but this method needs the loadings of all parties. Let each "
        "party project its own columns.",
    )
]
DISTANCES = [
    Refused({"own": own}, f"{wrong}. Give the local components of the clients of one run.", DataError)
    for own, wrong in (
        ([], "There are no own components"),
        ([np.eye(3), np.eye(4)], "The own components of clients have different numbers of features, 3 and 4"),
    )
]
EMBEDDED = [
    Refused(
        {"rho": np.triu(np.ones((3, 3)))},
        "rho, of shape (3, 3), is not a symmetric matrix. Pass what `distances` returns.",
    )
]
RANKS = [
    Refused(
        {"shards": TWO, "pairs": [(1, 1)], "test": TWO[:1]},
        "The test rows are from 1 client, but the run has 2 clients.",
        DataError,
    ),
    Refused({"shards": TWO, "pairs": [(1, 1)], "algorithm": "krylov"}, "krylov has no parameter"),
]
OTHERS_THAN = [
    Refused(
        {"algorithm": "exact_per_pca", "data": [*TWO, TWO[0]]},
        "The result has the local components of 2 clients, but shards has the rows of 3 clients",
        DataError,
    ),
    Refused({"algorithm": "krylov", "data": TWO}, "has no local components, because its algorithm is not personalized"),
]
SPOILT = [
    Refused(
        {"array": array, "to": to}, "^The arrays of the result in /.*/r.npz do not match, or are not finite.", DataError
    )
    for array, to in (
        ("components_", lambda Z: Z[:-1]),
        ("components_", lambda Z: Z[:, 1:]),
        ("components_", lambda Z: Z.T),
        ("components_", lambda Z: Z[0]),
        ("components_", lambda Z: np.nan * Z),
        ("explained_variance_", lambda values: np.where(values == values.max(), np.nan, values)),
        ("mean_", lambda mean: mean * np.inf),
        ("scale_", lambda scale: 0.0 * scale),
        ("scale_", lambda scale: scale[1:]),
    )
]
SPOILT += [Refused({"array": "components_", "to": lambda Z: Z.astype(str)}, "r.npz is not a result", DataError)]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "picture": (picture, PICTURE),
    "picture of steps": (picture_of_steps, PICTURE_OF_STEPS),
    "result": (told_by, RESULT),
    "spoilt file of a result": (spoilt, SPOILT),
    "result of steps": (told_of_steps, OF_STEPS),
    "result of parties": (of_parties, OF_PARTIES),
    "result of a robust run": (of_robust, OF_ROBUST),
    "rows for a result": (projecting, PROJECTING),
    "file of rows for a result": (projecting_file, PROJECTING_FILE),
    "result without means": (filled_without, FILLED),
    "limits": (limits, LIMITS),
    "monitor": (monitoring, MONITORING),
    "rows for a monitor": (scored, SCORED),
    "rotation": (rotated, ROTATED),
    "rotation of parts": (rotated_parts, ROTATED_PARTS),
    "distances": (distances, DISTANCES),
    "embedding": (embed, EMBEDDED),
    "ranks": (rank_table, RANKS),
    "alternatives": (others_than, OTHERS_THAN),
}
