"""Refusals of rows: of a run, of a tracker's clients, and of requested numbers."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import people
import scipy.sparse as sp
from builders import StopError, deal, rows, shards, stop_after, two_lead

from flower_pca import DataError, FederatedPCA, MaskedSums, client_half, simulate
from flower_pca.clients import PCAClient
from flower_pca.core.model import Model
from flower_pca.layers import noise
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.stages.signal import Signal
from refused import Refused
from refused.runs import by_columns, estimated, ran, tracked_from

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
HUGE = np.where((np.arange(60) == 3)[:, None] & (np.arange(5) == 2), 1e300, GOOD)
GAPPY = np.where((np.arange(60) == 7)[:, None] & (np.arange(5) == 1), np.nan, GOOD)
TENTH = np.where(np.random.default_rng(0).random(people.X.shape) < 0.1, np.nan, people.X)
RANGED = pd.DataFrame(50.0 + GAPPY[:, :3], columns=["age", "weight", "height"])
EMPTY = [np.where(np.arange(8) == 2, np.nan, X) for X in two_lead(5)]
BAD = np.arange(200.0).reshape(50, 4) ** 0.5
BAD[[3, 7, 2], [1, 0, 2]] = np.nan, np.nan, np.inf
CONSTANT = (
    '^All rows have the same value in columns 2, 5, so scale="std" cannot divide by the deviation. Drop them, or use '
    "scale=None.$"
)
FIRST = "The first is in row 2 (from 0 on), column 2. "
STEPS = [[X[:12], X[12:24]] for X in two_lead(3, d=24)]


def constant_columns(value: float) -> list[Any]:
    drawn = np.random.default_rng(4).integers(1, 20, (1000, 6)).astype(float)
    drawn[:, [2, 5]] = value
    return deal(drawn, (700, 299, 1))


def client_of(X: Any) -> None:
    PCAClient(X).get_properties({})


def rows_in_place(use: Callable[[Any], Any], fixed: bool) -> None:
    """Rows with gaps that nothing fills."""
    of = LocalData(np.where(np.eye(9, 8) > 0.0, np.nan, 1.0 + np.arange(8)), missing=True)
    use(FixedData.of_rows(of) if fixed else of)


def gaps_with_noise(**numbers: float) -> None:
    frame = Frame(np.zeros(5), np.ones(5), own=True)
    data = LocalData(GAPPY, missing=True).in_frame(frame)
    client_half.answer("ssi", {"Z": np.eye(5)[:, :1]}, data, {}, layers={"dp": noise.noise_instruction(**numbers)})


def checkpointed(content: str | None) -> None:
    """A run that is to go on from this text, or from a result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        if content is None:
            simulate("krylov", [GOOD], n_components=2).save(path)
        else:
            path.write_text(content, encoding="utf-8")
        simulate("ssi", [GOOD], n_components=2, checkpoint=path)


def going_on(of: Any) -> None:
    """A run of these rows, from a checkpoint of a run of others that was stopped."""

    with tempfile.TemporaryDirectory() as folder:
        asked: dict[str, Any] = {"n_components": 2, "checkpoint": Path(folder) / "run.npz"}
        with contextlib.suppress(StopError):
            simulate("ssi", deal(GOOD[:20], (10, 6, 4)), on_round=stop_after(3), **asked)
        simulate("ssi", of, **asked)


def density(X: Any, use: Callable[[Any, Any], Any]) -> None:
    use(FederatedPCA().fit(X), X)


def signal(columns: int) -> None:
    Signal().start(Model(n_components=1, center=True, scale=None, seed=0, n=100, d=columns))


OF_RUN = [
    *[
        Refused(
            {"data": [GOOD, kind(HUGE)], "n_components": 1, **settings},
            "The data of client 1 has a number that is too large in column 2: at most 1e+65 is possible, or 1e+16 in "
            "single precision.",
            DataError,
        )
        for kind in (np.asarray, sp.csr_array)
        for settings in ({}, {"mask": True}, {"answers": "fixed"})
    ],
    *[
        Refused({"data": [kind(part) for part in constant_columns(value)], "scale": "std"}, CONSTANT, DataError)
        for value in (0.0, 1.0, 0.1, 1e5 + 0.1, -1e-30)
        for kind in (np.asarray, sp.csr_array)
    ],
    *[
        Refused({"data": data, **asked}, sentence, DataError)
        for data, asked, sentence in (
            (
                [np.hstack([GOOD, np.ones((60, 12))])],
                {"scale": "std"},
                "value in columns 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, so",
            ),
            (
                [GOOD * 1e150],
                {"n_components": 1},
                "of client 0 has a number that is too large in column 3: at most 1e+65",
            ),
            (EMPTY, {"missing": "mean", "mask": True}, "No client has a value in"),
            (
                two_lead(5),
                {"algorithm": "ssi", "mask": MaskedSums(bound=1e-3)},
                "Y of this client has an entry that .* exceeds 0.001, the bound of the masks, so this client sent "
                "nothing",
            ),
            (
                [RANGED],
                {
                    "algorithm": "auto",
                    "n_components": 1,
                    "dp": "dp(epsilon=1e6, delta=1e-6, ranges='age=20..80,weight=40..120,height=150..200')",
                },
                "missing value",
            ),
            *(
                (
                    [sp.csr_array(np.diag(np.arange(1.0, 9.0)))],
                    {"algorithm": name},
                    "Most entries are 0, or very small compared with the root mean square, so their median does not "
                    "show the size of an ordinary entry. Set sigma to the size of an entry of the low-rank part.",
                )
                for name in ("consensus_rpca", "dcf_pca")
            ),
            (
                [1e12 * X for X in np.split(GOOD, [20, 40])],
                {"algorithm": "dcf_pca"},
                "A step of dcf_pca with eta=0.05 makes the factor .* times longer, so the run diverges. "
                'Use step="scaled".',
            ),
            (
                [X[:9] for X in shards((9,) * 8, 0.9 ** np.arange(40))],
                {"algorithm": "triple_pca(local_components=2)", "n_components": 3},
                "No client has 2 rows or more for each of its shared and local components. Ask for fewer components, "
                "or combine the rows of small sites.",
            ),
        )
    ],
]
OF_PARTIES = [Refused({"tables": np.split(TENTH, [5, 6], axis=1)}, "The data of client 0 has ", DataError)]
OF_ESTIMATOR = [
    Refused({"data": [GAPPY, GOOD]}, '^The data of client 0 has 1 missing value.* use missing="mean".$', DataError)
]
OF_STEPS = [
    *[
        Refused(
            {"streams": [lambda t: None] * 3, "batch": None, "mask": mask},
            "No client has had a nonzero value",
            DataError,
        )
        for mask in (False, True)
    ],
    Refused(
        {
            "streams": [*STEPS[:2], lambda t: None if t == 0 else STEPS[2][t][:, :20]],
            "batch": None,
            "steps": 2,
            "mask": True,
        },
        "The rows of client 2 have 20 columns, but the run has had 24 so far.",
        DataError,
    ),
    Refused(
        {"streams": STEPS, "batch": None, "mask": MaskedSums(bound=1e-5)},
        "S of this client has an entry that is not finite or exceeds 1e-05, the bound of the masks",
        DataError,
    ),
]
OF_CLIENT = [Refused({"X": np.full((3, 2), np.inf)}, "The data of this node has ", DataError)]
OF_GAPS = [
    Refused({"use": use, "fixed": fixed}, "The data of the client has ", DataError)
    for fixed, uses in (
        (
            True,
            (
                lambda data: data.gram(),
                lambda data: data.root(),
                lambda data: data.matmat(np.eye(8)),
                lambda data: data.leading_eigenpairs(2),
                lambda data: data.norm2(),
            ),
        ),
        (
            False,
            (
                lambda data: data.matmat(np.eye(8)[:, :2]),
                lambda data: data.gram(),
                lambda data: data.leading_eigenpairs(2),
                lambda data: data.scores(np.eye(8)[:, :2]),
                lambda data: data.in_frame(Frame(np.zeros(8))).matmat(np.eye(8)),
            ),
        ),
    )
    for use in uses
]
OF_NOISE = [
    Refused(
        {"clip": 1.0, "std": 1.0, "budget": 1.0}, "A run with noise cannot fill a client's missing values", DataError
    )
]
OF_CLIENT_3 = [
    Refused(
        {"X": kind(BAD), "who": "client 3"},
        f"^The data of client 3 has 2 missing values (NaN) and 1 infinite value. {first}"
        'Impute or drop them before the run, or use missing="mean".$',
        DataError,
    )
    for kind, first in (
        *(
            (kind, "The first is in row 2 (from 0 on), column 2. ")
            for kind in (np.asarray, np.asfortranarray, np.float32)
        ),
        (sp.csr_matrix, ""),
        (sp.coo_array, ""),
    )
]
CHECKPOINT = [
    Refused({"content": "not a checkpoint"}, "is not a checkpoint of flower_pca", DataError),
    Refused({"content": None}, "is a result, not a checkpoint. Check the path.", DataError),
]
GOING_ON = [
    Refused({"of": of}, "The checkpoint belongs to a run with other rows. Give the shards of that run")
    for of in (
        deal(GOOD[:20], (10, 5, 5)),
        deal(GOOD[:20], (10, 10)),
        deal(GOOD[:20, :4], (10, 6, 4)),
        deal(GOOD[:20][::-1] + 1.0, (10, 6, 4)),
    )
]
DENSITY = [
    Refused(
        {"X": X, "use": use},
        f"needs a covariance of full rank, but this one has {X.shape[1]} columns and rank {rank}. Use fewer",
        DataError,
    )
    for X, rank in ((GOOD[:4], 3), (GOOD[:, [0, 1, 1]], 2))
    for use in (lambda pca, X: pca.score(X), lambda pca, X: pca.score_samples(X), lambda pca, X: pca.get_precision())
]
SIGNAL = [Refused({"columns": 30_000}, "is possible for at most 25575 columns here, but there are 30000", DataError)]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "rows of a run": (ran, OF_RUN),
    "rows of parties": (by_columns, OF_PARTIES),
    "rows of the estimator": (estimated, OF_ESTIMATOR),
    "rows of steps": (tracked_from, OF_STEPS),
    "rows of a client of Flower": (client_of, OF_CLIENT),
    "rows with gaps": (rows_in_place, OF_GAPS),
    "rows with gaps, and noise": (gaps_with_noise, OF_NOISE),
    "rows of client 3": (LocalData, OF_CLIENT_3),
    "checkpoint of rows": (checkpointed, CHECKPOINT),
    "checkpoint of other rows": (going_on, GOING_ON),
    "density": (density, DENSITY),
    "signal": (signal, SIGNAL),
}
