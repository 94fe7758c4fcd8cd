"""Refusals of runs: simulate, the estimator, tracking, audits, and configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import people
import scipy.sparse
from builders import Array, mixed, rows, three_lead, two_lead
from checks import PLAIN
from sklearn.exceptions import NotFittedError

from flower_pca import (
    DP,
    AirChannel,
    DataError,
    ExactPerPCA,
    FederatedPCA,
    FedOAPM,
    MaskedSums,
    NotEnoughNodes,
    PCAConfig,
    assembly,
    make,
    registry,
    simulate,
    track,
)
from flower_pca.audit import audit
from refused import Refused

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
TABLE = rows(20, [3.0, 2.0, 1.0, 0.5, 0.2], seed=0)
NAMED = dict(zip(("Aachen", "Bonn", "Trier"), two_lead(3), strict=True))
AIR = AirChannel(noise_std=1e-3)
BASIC = ("local_power", "uda", "wda", "dr_svd", "dist_pca")
BUDGET = DP(epsilon=2.0, delta=1e-6, clip=3.0)
HARDLY = DP(epsilon=1e6, delta=1e-6, clip=6.0, noise_seed=3)
COLLUDING = DP(epsilon=2.0, delta=1e-6, clip=3.0, colluding=3)
SEEDED = DP(epsilon=2.0, delta=1e-6, clip=3.0, noise_seed=3)
ALIKE = r"The rows of all clients together are all the same, so there are no components. Check the columns"
SMALL = "too small: their squares add up to only .* at least 1e-145|numbers so small that their squares become 0"
MASKED = "does not support mask, because its answers cannot be summed. "
SHARE = "^max_share must be "
PRODUCTS = "does not support max_share, because its answers are not sums of products. Use krylov, ssi"
WITH_SHARE = "does not support|cannot be combined with"
SAMPLED = (
    "does not support mask together with fraction, "
    "because clients that do not answer still count with their last answer. Use ssi,"
)

FRACTION = "does not support fraction, because the same clients must answer in every round. Use ssi,"
FORGET = "does not support mask together with fraction, because its clients keep a state between rounds. Use ssi,"
RANGES = DP(epsilon=1.0, delta=1e-6, ranges={"age": (20, 80), "size": (150, 200)})
RANGED = [pd.DataFrame(np.array([50.0, 175.0]) + 5.0 * GOOD[:, :2], columns=["age", "size"])] * 2


def ran(algorithm: Any = "krylov", data: Any = None, n_components: Any = 2, **options: Any) -> None:
    simulate(algorithm, two_lead(5) if data is None else data, n_components=n_components, **options)


def estimated(n_components: Any = 2, data: Any = None, sites: Any = None, **options: Any) -> None:
    FederatedPCA(n_components, **options).fit(two_lead(3, rows=30) if data is None else data, sites=sites)


def unfitted(act: str, X: Array) -> None:
    getattr(FederatedPCA(2), act)(X)


def back(X: Array) -> None:
    FederatedPCA(2).fit([GOOD]).inverse_transform(X)


def strangers(**shards: Any) -> dict[str, Any]:
    """Clients that a number of own components is given for, of which there are three."""
    return {"algorithm": ExactPerPCA(local_components=shards.pop("of")), "data": NAMED, "center": False, **shards}


def of_exponent(exponent: int, algorithm: str) -> dict[str, Any]:
    return {"algorithm": algorithm, "data": np.array_split(GOOD * 10.0**exponent, 3)}


def on(*shards: Any, **options: Any) -> dict[str, Any]:
    return {"shards": list(shards), **options}


def one_table(algorithm: Any = "krylov", shards: Any = (TABLE,), n_components: Any = 2, **options: Any) -> None:
    simulate(algorithm, shards, n_components=n_components, **options)


def with_spoilt(*entries: tuple[int, int, float]) -> Array:
    X = TABLE.copy()
    for i, j, value in entries:
        X[i, j] = value
    return X


def with_constant(value: float, *columns: int) -> Array:
    X = TABLE.copy()
    X[:, columns] = value
    return X


def by_columns(algorithm: Any = "krylov", tables: Any = people.PARTS, n_components: Any = 2, **options: Any) -> None:
    simulate(algorithm, tables, **{"n_components": n_components, "partitioned_by": "columns", **options})


def lab(change: Callable[[pd.DataFrame], pd.DataFrame]) -> dict[str, Any]:
    return {"tables": people.changed("lab", change), "scale": "std"}


def config_of_class(**settings: Any) -> None:
    assembly.config(PCAConfig(**{"algorithm": make("krylov"), "n_components": 2, **settings}))


def asked_in_short(algorithm: str, **settings: Any) -> None:
    assembly.config(algorithm, n_components=2, **settings)


def with_budget(
    algorithm: str = "covariance",
    n_components: Any = 2,
    dp: Any = "dp(epsilon=1.0, delta=1e-6, clip=4.0)",
    **settings: Any,
) -> None:
    simulate(algorithm, three_lead(4), n_components=n_components, dp=dp, **settings)


def tracked_from(
    streams: Any = (), tracker: Any = "st_miss", n_components: Any = 2, batch: Any = 60, **settings: Any
) -> None:
    track(tracker, streams, n_components=n_components, batch=batch, **settings)


def audited(algorithm: str = "ssi", shards: Any = None, n_components: Any = 3, **settings: Any) -> None:
    audit(algorithm, two_lead(3) if shards is None else shards, n_components=n_components, **settings)


def transformed(table: pd.DataFrame) -> None:
    FederatedPCA(2).fit(tables_with()["data"]["n"]).transform(table)


def columns_that_are_none(name: str) -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """What is put into a table of this name, settings, and the sentence that names its column."""
    gap = pd.array([*range(59), None], dtype="Int64")
    return [
        (
            {"age": "x"},
            {},
            f"The columns of {name} must hold numbers, but there is a text of 1 letter in column age. "
            f".*hoose other columns with "
            "columns=",
        ),
        (
            {"age": pd.Categorical(["a", "b"] * 30)},
            {},
            "must hold numbers, but there is a text of 1 letter in column age.",
        ),
        (
            {"age": pd.date_range("2020", periods=60)},
            {},
            "must hold numbers, but there is a value of type datetime64.* in column age.",
        ),
        ({"age": 1j}, {}, "must hold numbers, but there is a value of type complex128 in column age."),
        (
            {"age": gap},
            {},
            f"The data of {name} has 1 missing value (NaN). The first is in row 59 (from 0 on), "
            'column age. Impute or drop them before the run, or use missing="mean".',
        ),
        ({"age": np.inf}, {}, f"The data of {name} has 60 infinite values. The first is in .* column age."),
        (
            {"age": np.nan, "hb": [np.inf, *range(59)]},
            {"missing": "mean"},
            "1 infinite value. The first is in row 0 .*, column hb.",
        ),
    ]


def tables_with(**columns: Any) -> dict[str, Any]:
    """A table whose columns have names, in which some are others; and a site that is as it should be beside it."""
    whole = pd.DataFrame(GOOD[:, :4], columns=["pulse", "age", "bmi", "hb"])
    return {"data": {"n": whole, "s": whole.assign(**columns)}}


SIMULATE = [
    *[
        Refused({"algorithm": name, **asked}, f"^{name} does not support {what}. Use krylov, ssi or")
        for name in BASIC
        for what, asked in (
            ("mask", {"mask": True}),
            ("dp", {"dp": BUDGET}),
            ('wire="float32"', {"wire": "float32"}),
            ("monitor", {"monitor": True}),
            ("standard_errors", {"standard_errors": True}),
            ("max_share", {"max_share": 0.5}),
            ('n_components="signal"', {"n_components": "signal"}),
        )
    ],
    *[
        Refused({"algorithm": f"exact_per_pca({given})", "mask": True}, f"{MASKED}Use exact_per_pca.")
        for given in ("init='upload'", "init='qu'", "collect=True")
    ],
    Refused({"algorithm": "per_pca", "mask": True}, f"{MASKED}Use per_pca(eta=0.1)."),
    Refused({"algorithm": "per_pca(eta=0.1, init='upload')", "mask": True}, f"{MASKED}Use per_pca(eta=0.1)."),
    *[
        Refused({"algorithm": name, "mask": True, "fraction": 0.5}, f"^{name} {SAMPLED}")
        for name in ("consensus_rpca", "exact_per_pca")
    ],
    *[
        Refused(
            {"algorithm": name, "channel": AIR},
            f"^{name} does not support channel, because it is not designed for a noisy channel",
        )
        for name in registry.ALGORITHMS
        if name not in ("krylov", "ssi", "fed_oapm")
    ],
    Refused(
        {"scale": "max_abs", "mask": True},
        'scale="max_abs" cannot be combined with mask: other scales do not follow from sums. Use',
    ),
    Refused({"mask": "yes"}, "mask must be True, False, .*, not 'yes'."),
    Refused({"mask": 3}, 'mask must be True, False, a MaskedSums, or a string such as "masks(neigh'),
    Refused({"mask": "masks(neighbours=2)"}, "masks has no parameter .* Did you mean 'neighbors'"),
    Refused(
        {"data": two_lead(1), "mask": True},
        "A masked sum needs at least 2 clients, but 1 of the 1 clients answered. Start more",
        NotEnoughNodes,
    ),
    Refused(
        {"algorithm": "ssi", "data": three_lead(3), "dp": BUDGET, "mask": MaskedSums(bound=9.0)},
        "the noise sets the bound of the masks. Leave bound=9.0 out.",
    ),
    Refused(
        {"algorithm": "ssi", "dp": BUDGET, "mask": True, "scale": "max_abs"},
        'scale="max_abs" cannot be combined with mask: other scales do not follow from sums. Use',
    ),
    Refused(
        {"algorithm": "ssi(max_rounds=2)", "data": three_lead(3), "dp": COLLUDING, "mask": True},
        "needs more clients than may collude, but it has .* and 3 may collude",
        NotEnoughNodes,
    ),
    *[Refused({"max_share": share}, "^max_share is 0.19, but 5 clients need at least 1/5") for share in (0.19, "19%")],
    *[Refused({"max_share": share}, f"{SHARE}above 0 and at most 1, not") for share in (0.0, -0.1, 1.5, "much", True)],
    *[Refused({"algorithm": name, "max_share": 0.6}, PRODUCTS) for name in ("faps", "dcf_pca", "exact_per_pca")],
    *[
        Refused({"max_share": 0.6, **other}, WITH_SHARE)
        for other in ({"mask": True}, {"scale": "max_abs"}, {"monitor": True}, {"partitioned_by": "columns"})
    ],
    Refused(
        {"algorithm": "sparse_pca", "standard_errors": True},
        "sparse_pca does not support standard_errors, because its components are not orthonormal. Use",
    ),
    Refused(
        {"algorithm": "sparse_pca", "n_components": 0.9},
        "n_components of sparse_pca is 0.9, but it must be a whole number. Give a number of components.",
    ),
    Refused(
        {"algorithm": "sparse_pca(cardinality=(3, 3, 3))"},
        "cardinality of sparse_pca has 3 numbers, but n_components is 2. Give one number, or a number for each "
        "component.",
    ),
    Refused(
        {"algorithm": "exact_per_pca", "n_components": 0.9},
        "n_components of exact_per_pca is 0.9, but it must be a whole number. Give a number: "
        "`flower_pca.comparison.ranks.rank_table` helps to choose it.",
    ),
    Refused(
        {**strangers(of={0: 1, "others": 2}), "mask": True},
        "exact_per_pca(local_components={0: 1, 'others': 2}) does not support mask, because its answers",
    ),
    Refused(
        strangers(of={3: 1, "others": 1}),
        "names client 3, but the run has 3 clients, named by position (from 0) or by site.",
    ),
    Refused(strangers(of={"Bon": 1, "others": 1}), "names client 'Bon', .* Did you mean 'Bonn'?"),
    Refused(strangers(of={1: 1, "Bonn": 1, "others": 1}), "local_components .* names client 1 twice."),
    Refused(strangers(of={0: 1, 1: 1}), "has no number for Trier. Add a number for this client, or add 'others' for"),
    Refused(
        {"algorithm": "dcf_pca", "init": "random"},
        "^init takes an earlier result, its file, or components to begin with, but 'random' is a setting of dcf_pca. "
        "Write \"dcf_pca(init='random')\" for the algorithm instead.$",
    ),
    *[
        Refused(
            {"algorithm": "krylov", "init": name},
            f"^init is {name!r}, but there is no file with this name. Give the result of an earlier run, its file, or "
            "an array with one component per row.$",
        )
        for name in ("random", "none.npz")
    ],
    Refused(
        {"algorithm": "uda", "init": np.eye(8)[:2]},
        "uda does not support init, because it does not iterate. Use krylov, ssi or local_power.",
    ),
    Refused(
        {"init": np.full((2, 8), np.nan)},
        "The components to start from have shape (2, 8), but a start needs a matrix of finite numbers. Give one "
        "component per row.",
        ValueError,
    ),
    Refused(
        {"init": np.ones(8)},
        "The components to start from have shape (8,), but a start needs a matrix of finite numbers. Give one "
        "component per row.",
        ValueError,
    ),
    Refused(
        {"init": np.eye(5)},
        "^The run starts from components of 5 columns, but the rows have 8. If 8 is right, start from a result of 8 "
        "columns, or leave the start out.$",
        DataError,
    ),
    Refused({"data": [GOOD[:1]], "n_components": 1}, ALIKE, DataError),
    *[Refused(of_exponent(exponent, "krylov"), SMALL, DataError) for exponent in (-147, -152, -160, -170, -300)],
    *[Refused(of_exponent(-152, name), SMALL, DataError) for name in ("ssi", "faps", "local_power", "uda")],
    Refused(
        {**of_exponent(-100, "krylov"), "mask": True},
        "contain only zeros, or numbers so small that their squares become 0, so there are no components. "
        "Check the columns of the data, or scale them, for example so that most numbers are between 0.001 and 1,000.",
        DataError,
    ),
    Refused(
        {"data": [(GOOD * 1e18).astype(np.float32)]},
        "a number that is too large in column .* 1e+16 in single precision",
        DataError,
    ),
    Refused(
        {"data": [(GOOD * 1e-22).astype(np.float32)]},
        "too small: their squares add up to only .* at least 1e-18",
        DataError,
    ),
    Refused(
        {"algorithm": "covariance", "data": [np.ones((1, 3))], "n_components": 1, "dp": HARDLY},
        "The noisy estimate of the number of rows is",
        ValueError,
    ),
    *[
        Refused({"algorithm": name, "data": mixed(0).shards, "fraction": 0.5}, f"^{name} {FRACTION}")
        for name, algorithm in registry.ALGORITHMS.items()
        if name in PLAIN and algorithm.fixed_set
    ],
    *[
        Refused({"algorithm": name, "mask": True, "fraction": 0.5}, f"^{name} {FORGET}")
        for name in ("faps(max_rounds=3)", "per_pca(eta=0.1)")
    ],
    *[
        Refused(
            {"algorithm": "auto", "dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)", **rounds},
            f"^max_rounds is at most 100 with dp, because every round takes a part of the budget, but it is {got}. "
            "Start with max_rounds=5.",
        )
        for rounds, got in (({}, "1000, the default of auto"), ({"max_rounds": 200}, "200"))
    ],
    *[
        Refused({"algorithm": "auto", "data": RANGED, "dp": RANGES, **more}, sentence)
        for more, sentence in (
            ({"scale": "std"}, "cannot be combined with ranges of dp"),
            ({"center": False}, "^If dp has ranges, the middle of each column's range is subtracted from the column"),
            ({"columns": ["age"]}, "^If dp has ranges, a run uses exactly the columns that have ranges"),
        )
    ],
    *[
        Refused({"data": [np.tile(row, (25, 1)), np.tile(row, (15, 1))], "n_components": 1, **how}, ALIKE, DataError)
        for row in ([5.0, 5.0, 5.0], [0.1, 1e7 / 3, -3.3])
        for how in ({}, {"mask": True}, {"answers": "fixed"}, {"scale": "max_abs"})
    ],
    *[
        Refused(
            {"data": [np.zeros((9, 3))], "n_components": 1, "center": center},
            "contain only zeros, or numbers so small that their squares",
            DataError,
        )
        for center in (True, False)
    ],
    *[
        Refused(
            {"data": [GOOD * [1.0, 1.0, 1e-160, 1.0, 1e-155]], "n_components": 1, "scale": scale},
            "of columns 2, 4 .* below 1e-145, which is too small for .* Scale them first.",
            DataError,
        )
        for scale in ("std", "max_abs")
    ],
    *[
        Refused({"algorithm": name, "data": [np.zeros((4, 6)), np.zeros((1, 6))]}, "contain only zeros", DataError)
        for name in ("consensus_rpca", "dcf_pca")
    ],
    *[
        Refused(
            {"algorithm": name, "n_components": 0.9},
            f"n_components of {name} is 0.9, but it must be a whole number, the rank",
        )
        for name in ("consensus_rpca", "dcf_pca")
    ],
    Refused({"backend": "spark"}, "backend must be 'in_process' or 'ray'"),
    Refused(
        {"backend": "ray", "fraction": lambda number: (0,)}, "On Ray, fraction cannot be a function. Give a number"
    ),
    Refused(
        {"backend": {"num_cpus_per_client": 2}},
        "backend is a dict of length 1, but it must be 'in_process', 'ray' or a Ray(...). ",
    ),
    Refused({"data": [*two_lead(5), np.full((4, 8), np.nan)], "mask": True}, "missing=", DataError),
    Refused(
        {"data": [np.eye(4), np.zeros((60, 4)), np.zeros((60, 4))], "center": False, "max_share": 0.34},
        "Raise max_share",
        DataError,
    ),
    Refused(
        {"algorithm": "median_pca", "data": list(np.random.default_rng(0).standard_normal((6, 1, 5)))},
        "At least half of the clients have a single row.*Combine clients with few rows",
        DataError,
    ),
    Refused(
        {"algorithm": FedOAPM(qr_every=50, tol=0.0), "data": [1e6 * np.diag(np.arange(6.0, 0.0, -1.0))] * 2},
        "With qr_every=50, the sums of fed_oapm grow above 1e+90, too large for eigenvalues. Scale the data, or "
        "lower qr_every.",
    ),
    Refused(
        {"data": {"north": pd.DataFrame(GOOD[:40]), "south": pd.DataFrame(GOOD[40:])[[3, 2, 1, 0, 4]]}},
        "with names",
        DataError,
    ),
    Refused(
        {"data": [pd.DataFrame(GOOD[:, :3], columns=["a", " a", "b"])], "n_components": 1},
        "have the same name: 'a' more than once.",
        DataError,
    ),
]
ONE_TABLE = [
    Refused(
        on(TABLE, TABLE[:, :4]),
        "The columns of client 1 do not fit: there are 4 instead of the 5 of client 0. Give all clients the same "
        "columns.",
        DataError,
    ),
    Refused(
        on(TABLE, with_spoilt((0, 0, np.nan), (3, 2, np.nan), (4, 4, -np.inf))),
        "The data of client 1 has 2 missing values (NaN) and 1 infinite value. The first is in row 0 "
        "(from 0 on), column 0. Impute or drop them before "
        'the run, or use missing="mean".',
        DataError,
    ),
    Refused(on(with_spoilt((0, 0, np.inf), (1, 0, -np.inf))), "The data of client 0 has 2 infinite values.", DataError),
    Refused(
        on(TABLE, TABLE, with_spoilt((1, 1, np.nan)).astype(np.float32)),
        "The data of client 2 has 1 missing value (NaN).",
        DataError,
    ),
    Refused(
        on(TABLE, scipy.sparse.csr_array(with_spoilt((1, 1, np.nan)))),
        "The data of client 1 has 1 missing value (NaN).",
        DataError,
    ),
    Refused(
        on(TABLE, np.ma.masked_greater(TABLE, 1.0)),
        f"The data of client 1 is a masked array in which {int((TABLE > 1.0).sum())} entries are missing",
        DataError,
    ),
    Refused(on(TABLE[:0], TABLE[:0]), "The data of client 0 has no rows. Leave it out.", DataError),
    Refused(
        on(TABLE, TABLE[:, 0]),
        "The data of client 1 must be a two-dimensional array of real numbers with one row per sample. This one has "
        "1 dimension and dtype float64. Convert it first: for example, x[:, None] turns a vector into a column.",
        DataError,
    ),
    Refused(on(), "shards is empty. Give a list with one array for each client, such as [X] for", DataError),
    Refused(
        {"shards": TABLE},
        "shards is an array of shape (20, 5). Give a list with one array for each client, such as [X] for one client.",
        DataError,
    ),
    Refused(
        {"shards": scipy.sparse.csr_array(TABLE)}, "shards is a csr_array of shape (20, 5). Give a list", DataError
    ),
    Refused({"shards": "data.npy"}, "shards is 'data.npy'. Give a list with one array for each client", DataError),
    Refused({"shards": 3}, "shards is 3. Give a list with one array for each client, such as [X] for", DataError),
    Refused(
        on(with_constant(0.0, 3), with_constant(0.0, 3), scale="std"),
        'All rows have the same value in column 3, so scale="std" cannot divide by the deviation. Drop it, or',
        DataError,
    ),
    Refused(
        on(with_constant(1e7 / 3, 0, 4), with_constant(1e7 / 3, 0, 4)[:7], scale="std"),
        'All rows have the same value in columns 0, 4, so scale="std" cannot divide by the deviation.',
        DataError,
    ),
    Refused({"algorithm": "kryov"}, "There is no algorithm named 'kryov'. Did you mean 'krylov'?"),
    Refused({"algorithm": type(make("ssi"))}, "The algorithm must be a name, an instance, or a spec such as"),
    Refused({"tol": -1.0}, "tol of krylov must be a finite number of at least 0, not -1.0."),
    Refused({"n_components": 6}, "^At most 5 components are possible (20 rows, 5 columns), not 6.$"),
    Refused(
        {"n_components": 4, **on(TABLE[:2], TABLE[2:3])},
        "^At most 3 components are possible (3 rows, 5 columns), not 4.$",
    ),
    Refused({"n_components": 0}, "n_components must be a whole number of at least 1, a share"),
    Refused(
        {"n_components": 1.0}, "n_components must be a whole number of at least 1, a share of the variance such as 0.9,"
    ),
    Refused({"n_components": True}, "n_components must be a whole number of at least 1, a share"),
    Refused({"scale": "sd"}, "scale must be None, 'std', 'max_abs' or 'genotype', not 'sd'. Did you mean 'std'?"),
    Refused({"center": "yes"}, "center must be True, False or None, not 'yes'."),
    Refused({"min_nodes": 0}, "min_nodes must be a whole number of at least 1, not 0."),
    Refused({"algorithm": "ssi", "fraction": 0.0}, "fraction must be above 0 and at most 1, not 0.0."),
    Refused({"algorithm": "ssi", "fraction": 1.5}, "fraction must be above 0 and at most 1, not 1.5."),
    Refused({"fraction": lambda m: None}, "The function given as fraction returned None. It must return positions"),
    Refused(
        {"checkpoint": "/none/such/run.ckpt"},
        "The folder of the checkpoint, /none/such, does not exist. Create this folder first.",
    ),
    Refused(
        {"fraction": lambda m: [0, 1]},
        "The function given as fraction returned client 1, but the clients are numbered from 0 to 0. It must return "
        "positions in shards.",
    ),
    Refused(
        on(TABLE, with_spoilt((17, 4, np.nan), (12, 1, np.nan)), n_components=1),
        "2 missing values (NaN). The first is in row 12 (from 0 on), column 1. I",
        DataError,
    ),
]
BY_COLUMNS = [
    Refused(
        {"tables": [people.X[:, :5], people.X[:80, 5:]], "scale": "std"},
        "There are 80 rows at client 1, but 90 at client 0. Keep the rows of the same",
        DataError,
    ),
    Refused(
        lab(lambda t: t.rename(index={"P007": "P999"})),
        "The ids of the rows of client 1 (lab) differ from the ids of client 0 (hospital): 89 of 90 "
        "are the same. Keep the rows of the same people",
        DataError,
    ),
    Refused(
        lab(lambda t: t.rename(index={"P007": "P008"})),
        "The ids of the rows of client 1 (lab) repeat: rows 10 and 14 (from 0 on) have the same id. Keep one",
        DataError,
    ),
    Refused(
        lab(lambda t: t.rename(index={"P007": "P008", "P009": "P010", "P011": "P012"})),
        "have the same id, and 2 more ids repeat. Keep one",
        DataError,
    ),
    Refused(
        lab(lambda t: t.rename(index={"P007": "P008", "P009": "P010"})),
        "have the same id, and 1 more id repeats. Keep one",
        DataError,
    ),
    Refused(lab(lambda t: t.rename(index={t.index[-1]: " "})), "1 row of client 1 (lab) has no id", DataError),
    Refused(
        lab(lambda t: t.reset_index(drop=True)),
        "The rows of client 0 (hospital) have ids, but the rows of client 1 (lab) have none. Give ids",
        DataError,
    ),
    Refused(
        lab(lambda t: t.assign(gene0=1.0)),
        'All rows have the same value in column gene0 of client 1 (lab), so scale="std" cannot divide by the '
        "deviation. Drop it, or use scale=None.",
        DataError,
    ),
    Refused(
        {"tables": [people.X, np.column_stack([people.X[:, 0], np.full(90, np.nan)])], "missing": "mean"},
        "There is no value in column 1 of client 1. Drop it.",
        DataError,
    ),
    Refused(
        {"tables": [np.ones((9, 2)), np.zeros((9, 3))], "n_components": 1},
        "All rows of the joined table are equal, so there are no components. Check the columns of each party.",
        DataError,
    ),
    Refused(
        {"tables": [people.X, people.X * 1e100], "n_components": 1},
        "The data of client 1 has entries that are too large: at most 1e+65 is possible, or 1e+16 in single "
        "precision. Use larger units, or correct the data.",
        DataError,
    ),
    Refused({"n_components": 13}, "^At most 12 components are possible (90 rows, 12 columns), not"),
    Refused(
        {"algorithm": "faps"},
        'faps does not support partitioned_by="columns", because it needs more than products of the',
    ),
    *[Refused({"algorithm": name}, f"{name} does not support partitioned_by") for name in ("dcf_pca", "per_pca")],
    Refused(
        {"algorithm": "ssi", "max_rounds": 5, "dp": "dp(epsilon=1, delta=1e-6, clip=1)"},
        'dp cannot be combined with partitioned_by="columns": hiding one person would need noise on all',
    ),
    Refused(
        {"algorithm": "ssi", "channel": "air(noise_std=1.0)"},
        'channel cannot be combined with partitioned_by="columns": the loadings of each party need the',
    ),
    Refused(
        {"columns": ["a", "b"]},
        'columns cannot be combined with partitioned_by="columns": each party has different columns.',
    ),
    Refused(
        {"algorithm": "ssi", "fraction": 0.5},
        'fraction cannot be combined with partitioned_by="columns": no other party has the columns of',
    ),
    Refused(
        {"reconstruction_error": True},
        'reconstruction_error cannot be combined with partitioned_by="columns": left_out_variance_ of',
    ),
    Refused(
        {"monitor": True}, 'monitor cannot be combined with partitioned_by="columns": T2 and SPE of a person need the'
    ),
    Refused(
        {"wire": "float32", "tol": 1e-6},
        'wire="float32" cannot be combined with partitioned_by="columns": the loadings are computed',
    ),
    Refused(
        {"init": np.eye(12)[:2]},
        'init cannot be combined with partitioned_by="columns": a run over columns starts from scores',
    ),
    Refused(
        {"fraction": lambda number: [0]},
        'With partitioned_by="columns" all clients must be present, because no other client has the columns',
    ),
    Refused({"partitioned_by": "diagonal"}, "partitioned_by must be 'rows' or 'columns'"),
]
QUESTION = [
    Refused(
        {"algorithm": "krylov"}, "^algorithm of a PCAConfig must be an instance of Algorithm, not 'krylov'. To give "
    ),
    Refused({"mask": True}, "^mask of a PCAConfig must be an instance of MaskedSums, not True. To give it as"),
    Refused({"seed": -1}, "^seed must be a whole number from 0 to 4611686018427387904, not -1."),
    Refused({"reconstruction_error": "yes"}, "^reconstruction_error must be True or False, not 'yes'."),
    Refused(
        {"fraction": 0.5}, "^krylov does not support fraction, because the same clients must answer in every round. Use"
    ),
    Refused({"algorithm": make("ssi"), "fraction": "half"}, "fraction must be above 0 and at most 1, not 'half'."),
    Refused({"algorithm": make("median_pca"), "mask": MaskedSums()}, "^median_pca does not support"),
    Refused(
        {"scale": "max_abs", "mask": MaskedSums()},
        '^scale="max_abs" cannot be combined with mask: other scales do not follow from sums. Use',
    ),
    Refused({"dp": DP(epsilon=1.0, delta=1e-6, clip=1.0)}, "^max_rounds is at most 100 with dp, because every"),
    Refused(
        {
            "algorithm": make("ssi", max_rounds=3),
            "dp": DP(epsilon=1.0, delta=1e-6, clip=1.0),
            "mask": MaskedSums(self_masks=False),
        },
        "^With dp, self_masks cannot be False",
    ),
]
BITS = [
    Refused(
        {"algorithm": "krylov(tol=1e-9)", "wire": "float32"},
        '^tol of krylov is 1e-09, which wire="float32" cannot reach: the smallest possible tol is 1e-07.',
    ),
    Refused(
        {"algorithm": "ssi", "wire": "float16"},
        '^tol of ssi is 1e-06, which wire="float16" cannot reach: the smallest possible tol is 0.001. Raise tol, or '
        "use",
    ),
    Refused(
        {"algorithm": "ssi", "wire": "float8"}, "^wire must be 'auto', 'float64', 'float32' or 'float16', not 'float8'."
    ),
    Refused(
        {"algorithm": "ssi(max_rounds=3)", "wire": "float32", "dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"},
        '^wire="float32" cannot be combined with dp: answers with noise are sent in full precision.',
    ),
    Refused(
        {"algorithm": "ssi", "wire": "float32", "channel": AirChannel(noise_std=0.1)},
        '^wire="float32" cannot be combined with channel: answers with noise are sent in full precision.',
    ),
    *[
        Refused(
            {"algorithm": algorithm, "wire": bits},
            "does not support wire=.*, because its rounding errors accumulate. Use",
        )
        for algorithm, bits in (("faps(tol=0.001)", "float16"), ("exact_per_pca(local_components=1)", "float32"))
    ],
]
WITH_BUDGET = [
    Refused(
        {"algorithm": "faps"},
        "faps does not support dp, because the effect of one row on its answers has no bound. Use",
    ),
    Refused(
        {"algorithm": "ssi"},
        "max_rounds is at most 100 with dp, because every round takes a part of the budget, but it is 1000, the "
        "default of ssi. Start with max_rounds=5.",
    ),
    Refused(
        {"n_components": 0.9},
        "n_components=0.9 cannot be combined with dp: noisy variances cannot choose the number. Give a",
    ),
    Refused(
        {"scale": "max_abs"},
        'scale="max_abs" cannot be combined with dp: only standard deviations are computed with noise.',
    ),
    Refused({"scale": "std"}, "With a scale, dp needs reach, a bound on the raw rows."),
    Refused(
        {"reconstruction_error": True},
        "reconstruction_error cannot be combined with dp: an exact error would reveal information about",
    ),
    Refused({"missing": "mean"}, 'missing="mean" cannot be combined with dp: '),
    Refused(
        {"checkpoint": "run.ckpt"},
        "checkpoint cannot be combined with dp: a resumed run would spend more than its budget. Start a",
    ),
    Refused({"dp": "dp(epsilon=1)"}, "dp needs delta."),
    Refused({"dp": 3}, "dp must be a DP, or a string such as"),
    Refused(
        {"dp": "dp(epsilon=1.0, delta=1.5, clip=4.0)"},
        "delta and frame_share of dp must be below 1, but they are delta=1.5 and frame_share=0.1. Try",
    ),
    Refused({"dp": "dp(epsilon=-1.0, delta=1e-6, clip=4.0)"}, "epsilon of dp must be"),
]
TRACKED = [
    Refused(
        {"streams": [np.full((60, 4), np.nan)]},
        "^No client has had a nonzero value. Wait for rows before you start",
        DataError,
    ),
    Refused({"streams": [np.zeros((120, 4))]}, "^No client has had a nonzero value in 2 steps.", DataError),
    Refused(
        {"streams": [np.ones((60, 4))], "n_components": 9},
        "^Client 0 has only 4 columns, too few for n_components=9. Ask",
    ),
    Refused(
        {"streams": [np.ones((60, 4)), np.ones((60, 3))]},
        "^The columns of client 1 do not fit: there are 3 instead of the 4 of the clients before it",
        DataError,
    ),
    Refused(
        {"streams": [np.ones((2, 4))], "n_components": 3},
        "^The first step has .* of .*, too few for n_components=",
        DataError,
    ),
    Refused(
        {"streams": [np.array([[1.0, np.inf]] * 5)], "n_components": 1},
        "^The data of client 0 at step 0 has 5 infinite entries",
        DataError,
    ),
    Refused({"streams": [np.ones(4)]}, "^The stream of client 0 cannot be made from", Exception),
    Refused({}, "^streams is empty. Give a list with one stream for each client", Exception),
    Refused({"streams": [np.ones((60, 4))], "batch": None}, "^Stream(array) needs the number of rows per step"),
    Refused(
        {"streams": [np.ones((60, 4))], "init": np.ones((3, 4))},
        "^The components to start from have shape (3, 4), but a run with n_components=2 needs 2 rows and at least 2 "
        "columns. Give one component per row.",
    ),
    Refused({"streams": [np.ones((60, 4))], "steps": 0}, "^steps must be a whole number of at least 1, not 0"),
    *[
        Refused({"streams": [np.ones((60, 4))], "tracker": spec}, sentence)
        for spec, sentence in (
            ("st_mis", "^There is no tracker named 'st_mis'. Did you mean 'st_miss'?"),
            ("st_miss(reuse=-1)", "^reuse of st_miss must be a whole number of at least 0, not -1."),
            ("st_miss(solver='svd')", "^solver of st_miss must be 'krylov' or 'power', not 'svd'."),
            ("robust_tracking(smallest_outlier=0)", "^smallest_outlier of robust_tracking must be a finite number"),
            (
                "st_miss(rank=3)",
                "^st_miss has no parameter 'rank'. Its parameters are refine, reuse, detect, threshold,",
            ),
        )
    ],
    Refused(
        {"streams": [np.ones((60, 4))] * 3, "channel": AirChannel(noise_std=1.0), "mask": True},
        "channel cannot be combined with mask: the channel adds analog values, and masks need exact",
    ),
    Refused(
        {"streams": [np.ones((60, 4))] * 3, "mask": "yes"},
        "mask must be True, False, a MaskedSums, or a string such as",
    ),
]
AUDITED = [
    Refused(
        {"algorithm": "uda", "masked": True},
        "masked=True works only for algorithms whose server needs only sums of its clients' answers, but uda needs "
        "each answer. Use krylov, ssi or faps.",
    ),
    Refused(
        {"algorithm": "local_power", "masked": True},
        "masked=True works only for algorithms whose server needs only sums of its clients' answers, but local_power "
        "needs each answer. Use krylov, ssi or faps.",
    ),
    Refused(
        {"clients": []},
        "clients is empty, so there is nobody to attack. Name positions in shards, or leave clients out.",
    ),
    Refused({"clients": [3]}, "Every client to attack must be"),
    Refused({"n_components": 0.9}, "n_components of an audit must be"),
    Refused({"masked": "yes"}, "masked must be"),
    Refused(
        {"shards": [np.ones((2, 5001))]},
        "An audit supports at most 5,000 columns, but these rows have 5,001. Use fewer columns.",
        DataError,
    ),
    Refused({"algorithm": "ssii"}, "Did you mean 'ssi'?"),
]
ESTIMATOR = [
    Refused({"n_components": 9}, "At most 8 components are possible (93 rows, 8 columns), not 9"),
    Refused(
        {"sites": [0]},
        "sites is given together with several tables, but each of these tables is a site already. Give one table "
        "with sites, or several tables without sites.",
    ),
    Refused({"data": GOOD, "sites": [0, 1]}, "inconsistent numbers of samples", ValueError),
    Refused({"data": []}, "Expected 2D array", ValueError),
    Refused(
        {"n_components": 1, "data": GOOD[:1]},
        "A centered PCA needs at least 2 rows, but X has 1 sample. Give more rows.",
        DataError,
    ),
    Refused(
        {"n_components": 1, "data": GOOD[:7], "sites": ["a", "b", None, "a", np.nan, "a", "a"]},
        "sites has no name for 2 rows. Name the site of each row, or leave these rows out.",
        DataError,
    ),
    Refused(
        {"n_components": "mlee"}, "n_components must be 'mle', 'signal' or 'shared', not 'mlee'. Did you mean 'mle'?"
    ),
    Refused(
        {"n_components": "mle", "data": GOOD[:4]},
        'n_components="mle" needs at least as many rows as columns, but X has 4 rows and 5 columns. Give a '
        "number of components.",
        DataError,
    ),
    Refused(
        {"n_components": None, "dp": BUDGET},
        "n_components is None, but with dp it must be a whole number. Give a number of components.",
    ),
    Refused(
        {"n_components": "mle", "dp": BUDGET},
        "n_components is 'mle', but with dp it must be a whole number. Give a number of components.",
    ),
    *[Refused({**tables_with(**column), **how}, said, DataError) for column, how, said in columns_that_are_none("s")],
    *[
        Refused({"data": tables_with(**column)["data"]["s"], **how}, said, DataError)
        for column, how, said in columns_that_are_none("X")
    ],
]
TRANSFORMED = [
    Refused({"table": tables_with(**column)["data"]["s"]}, said, DataError)
    for column, how, said in columns_that_are_none("X")
    if not how
]
UNFITTED = [
    Refused({"act": act, "X": np.ones((3, 2))}, "not fitted yet", NotFittedError)
    for act in ("transform", "inverse_transform", "score")
]
FITTED = [
    Refused(
        {"X": np.ones((3, 4))},
        "X has 4 columns, but inverse_transform needs one for each of the 2 components. Give the scores that transform "
        "returns.",
    )
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "simulate": (ran, SIMULATE),
    "simulate, one table": (one_table, ONE_TABLE),
    "simulate, by columns": (by_columns, BY_COLUMNS),
    "simulate, with a budget": (with_budget, WITH_BUDGET),
    "configuration": (config_of_class, QUESTION),
    "configuration, in short": (asked_in_short, BITS),
    "track": (tracked_from, TRACKED),
    "audit": (audited, AUDITED),
    "estimator": (estimated, ESTIMATOR),
    "estimator, of another table": (transformed, TRANSFORMED),
    "estimator, before it is fitted": (unfitted, UNFITTED),
    "estimator, afterwards": (back, FITTED),
}
