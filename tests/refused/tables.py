"""What files, tables, rows, results and keys refuse, each in its own sentence."""

from __future__ import annotations

import functools
import io
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from builders import Array, rows, shards
from flwr.app import ConfigRecord

from flower_pca import DataError, PCAResult, Projection, ProtocolError, SiteRows, from_frame, keys, simulate
from flower_pca.base import files
from flower_pca.masking import fixed
from flower_pca.rows.local import LocalData
from refused import Refused

SITES = ["north"] * 4 + ["east"] * 4 + ["west"]
BARE = pd.DataFrame(rows(9, [3.0, 2.0, 1.0], seed=0), columns=["age", "bmi", "pulse"])
TABLE = BARE.assign(site=SITES)


def local_data(X: Any, who: str = "client 2") -> None:
    LocalData(X, who=who)


def bounded(value: float, bound: float) -> None:
    fixed.encode({"Y": np.array([0.5, value])}, {"Y": np.array(bound)}, 3)


def nothing_is_written(hosts: Any = (), nodes: Any = 1) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            keys.write(Path(folder) / "keys", nodes=nodes, hosts=hosts)
        finally:
            assert list(Path(folder).iterdir()) == []


@functools.cache
def result_of(algorithm: str) -> PCAResult:
    spec = algorithm if algorithm == "krylov" else f"{algorithm}(max_rounds=3)"
    return simulate(spec, shards((60, 25), 0.8 ** np.arange(12)), n_components=3)


def picture(what: str, name: str = "p.svg", algorithm: str = "krylov") -> None:
    """Of a result without what only the clients know."""
    of = result_of(algorithm)
    with tempfile.TemporaryDirectory() as folder:
        try:
            (replace(of, own={}) if algorithm != "krylov" else of).plot(what, Path(folder) / name)
        finally:
            assert list(Path(folder).iterdir()) == []


def packed(header: dict[str, Any] | None = None, **arrays: Array) -> bytes:
    return files.to_bytes("projection", header or {}, arrays)


def squeezed() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("header.json.npy", b"0" * 10**6)
    return stream.getvalue()


def projection(content: bytes) -> None:
    Projection.from_record({"flower_pca.projection": content})


def names_of_rows(ids: Any) -> None:
    SiteRows(np.ones((9, 2)), ids=ids)


FRAME = [
    Refused(
        {"frame": TABLE, "by": "Site"},
        "^by must be a column of the table, such as age, bmi, pulse, site. Got 'Site'.",
    ),
    Refused(
        {"frame": TABLE, "by": None},
        "^by must be a column of the table, such as .*. Got None. Name the sites' column, or give ",
    ),
    Refused(
        {"frame": TABLE, "by": SITES[:5]},
        "^by must be the name of a column, or the site of each of the 9 rows. Got 5 sites.",
    ),
    Refused(
        {"frame": BARE, "by": TABLE[["site"]]},
        "^by must be the name .* Got a DataFrame of shape (9, 1). Name the sites'",
    ),
    Refused({"frame": BARE.to_numpy(), "by": "site"}, "^by must be a column of the table. Got 'site'."),
    Refused({"frame": BARE, "by": {0: "a"}}, "^by must be the name of a column, .* Got a dict."),
    Refused(
        {"frame": BARE, "by": TABLE["site"][::-1]},
        "^The index of by must be that of the table, in its order. Got another. ",
    ),
    *[
        Refused({"frame": frame, "by": by}, f"^{sentence}", DataError)
        for frame, by, sentence in (
            (
                TABLE.replace("west", None),
                "site",
                "The site of every row, site, must be there. Got none in 1 row.",
            ),
            *(
                (TABLE.assign(site=gap), "site", "The site of every row, site, must be there. Got none in 1 row.")
                for gap in (pd.array([*SITES[:8], None], dtype="string"), [*range(8), np.nan])
            ),
            (
                TABLE.assign(site=["a", "NA", "#N/A", *SITES[:6]]),
                "site",
                "The site of every row, site, .* Got 'NA', which stands for none, in 2 rows. Fill it, or drop these",
            ),
            (BARE, [*SITES[:7], np.nan, " "], "The site of every row must be there. Got none in 2 rows."),
            (TABLE.iloc[:0], "site", "The table must be of at least one row. Got none."),
            (
                TABLE[["site"]],
                "site",
                "The table must be of at least one column beside the sites. Got none.",
            ),
            (
                TABLE.set_axis(["a", "site", "b", "site"], axis=1),
                "site",
                "The columns of the table must be named",
            ),
            (
                TABLE.groupby("site"),
                "site",
                "The table must be of rows and columns. Got a DataFrameGroupBy. Give a",
            ),
        )
    ],
]
LOCAL = [
    *[
        Refused(
            {"X": kind(shape)},
            f"^The data of client 2 must be at least one row and one column. Got {shape}. Leave it out.",
            DataError,
        )
        for kind in (np.zeros, sp.csr_matrix, sp.csr_array)
        for shape in ((0, 3), (3, 0), (0, 0))
    ],
    *[
        Refused(
            {"X": X},
            "^The data of client 2 must be a two-dimensional array of real numbers, one row per sample. "
            f"Got {got}. Convert it first; a vector becomes x[:, None].",
            DataError,
        )
        for X, got in (
            (np.zeros(3), "1 dimension of dtype float64"),
            (np.float64(3.0), "0 dimensions of dtype float64"),
            (np.zeros((2, 3, 4)), "3 dimensions of dtype float64"),
            (np.zeros((2, 2), dtype=complex), "2 dimensions of dtype complex128"),
            (np.array([["a", "b"]]), "2 dimensions of dtype <U1"),
            (np.array([[1, None]]), "2 dimensions of dtype object"),
            (sp.coo_array(np.ones(3)), "1 dimension of dtype float64"),
            (sp.csr_array(np.eye(2) * 1j), "2 dimensions of dtype complex128"),
        )
    ],
    Refused({"X": [[np.inf, 1.0], [-np.inf, 1.0]]}, "Got 0 NaN and 2 infinite entries.", DataError),
]
BOUNDED = [
    Refused(
        {"value": value, "bound": bound},
        "Every entry of Y of this client must be finite and at most .* bound of the",
        DataError,
    )
    for value, bound in ((1.001, 1.0), (-1.001, 1.0), (np.nan, 1.0), (np.inf, 0.0), (1e29, 0.0))
]
KEYS = [
    *[Refused({"nodes": nodes}, "nodes must be a whole number of at least 1") for nodes in (0, -1, 2.0, True, "2")],
    *[
        Refused({"hosts": [host]}, "Every host must be a name such as")
        for host in ("https://a.org", "a.org:8000", "", "-a", "a_b", "a..b", "x" * 64, "a b", "ä.org", "a\n")
    ],
]
PICTURE = [
    Refused({"what": "scre"}, "The picture must be one of 'overview', 'scree', .* Did you mean 'scree'"),
    Refused(
        {"what": "scree", "name": "p.pdf"}, "name of a picture must be one that ends in .svg or .png. Got '.*p.pdf'"
    ),
    Refused({"what": "scores"}, 'The picture "scores" must be given the clients\' rows. Got no shards'),
    Refused({"what": "errors"}, 'The picture "errors" must be given'),
    Refused(
        {"what": "taken", "algorithm": "consensus_rpca"},
        "must be given the clients' rows, or of a simulation that has just been run. Got",
    ),
    Refused(
        {"what": "split", "algorithm": "exact_per_pca"},
        "must be given the clients' rows, of a run that knows their own components.",
    ),
    Refused(
        {"what": "own_map", "algorithm": "exact_per_pca"},
        "must be of a run that knows the own components of two clients. Got one",
    ),
]
RECORD = [
    Refused(
        {"record": record},
        "The record must be one with a projection in it. Got .* Send result.to_record() as a train_config, or in",
        ProtocolError,
    )
    for record in ({}, {"lr": 0.1}, ConfigRecord({"flower_pca.projection": "text"}))
]
PROJECTION = [
    Refused({"content": content}, sentence, DataError)
    for content, sentence in (
        (b"", "a projection that flower_pca has packed. Got bytes that cannot be read as one"),
        (packed(components_=np.eye(2))[:-30], "bytes that cannot be read as one"),
        (squeezed(), "bytes that cannot be read as one (ValueError)"),
        (files.to_bytes("result", {}, {"components_": np.eye(2)}), "read as one (ValueError). Check the sender"),
        (
            packed(components_=np.eye(2), own=np.eye(2)),
            "The arrays of a projection must be .* Got components_, own. Check",
        ),
        (
            packed(mean_=np.ones(2)),
            "The arrays of a projection must be those of its fields. Got mean_. Check the sender",
        ),
        (packed(components_=np.ones(3)), "The shapes of a projection must be (k, d) for components_ and weights_, and"),
        (
            packed(components_=np.eye(2), mean_=np.ones(3)),
            "Got {'components_': (2, 2), 'mean_': (3,)}. Take it of",
        ),
        (packed({"feature_names": ["a"]}, components_=np.eye(2)), "'feature_names_in_': (1,)}"),
        (
            packed({"feature_names": 3}, components_=np.eye(2)),
            "The names of a projection must be texts. Got ['', 3]",
        ),
        (
            packed(components_=np.eye(2) * np.nan),
            "components_ of a projection must be finite numbers. Got others. Take",
        ),
        (
            packed(components_=np.eye(2), scale_=np.zeros(2)),
            "scale_ of a projection must be finite numbers above 0. Got",
        ),
        (packed(components_=np.eye(2), fill_=np.arange(2)), "fill_ of a projection must be finite numbers. Got others"),
    )
]
IDS = [Refused({"ids": ("a", "b")}, "The ids of rows must be one for each row. Got 2 for 9 rows", DataError)]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "from_frame": (from_frame, FRAME),
    "rows of a client": (local_data, LOCAL),
    "numbers of a masked sum": (bounded, BOUNDED),
    "keys": (nothing_is_written, KEYS),
    "picture": (picture, PICTURE),
    "record of a projection": (Projection.from_record, RECORD),
    "projection": (projection, PROJECTION),
    "ids of rows": (names_of_rows, IDS),
}
