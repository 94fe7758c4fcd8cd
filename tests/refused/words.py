"""Refusals of columns of words, and of their levels."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flower_pca import DataError, simulate
from flower_pca.data import sources
from refused import Refused
from refused.runs import ran

WORDS = {"north": ["medicine", "surgery"], "south": ["icu", "medicine"], "west": ["eye", "surgery", "medicine"]}


def table_of_words(site: str, seed: int) -> pd.DataFrame:
    drawn = np.random.default_rng(seed)
    ward, sex = drawn.choice(WORDS[site], 30), drawn.choice(["f", "m"], 30)
    return pd.DataFrame({"age": drawn.normal(50, 9, 30), "ward": ward, "weight": drawn.normal(75, 9, 30), "sex": sex})


TABLES = {site: table_of_words(site, i) for i, site in enumerate(WORDS)}
NAMED_PEOPLE = {site: table.assign(name=[f"P{i}" for i in range(30)]) for site, table in TABLES.items()}


def with_gaps(**places: Any) -> dict[str, pd.DataFrame]:
    """The tables of words, in which these wards of sites are missing."""
    tables = {site: table.copy() for site, table in TABLES.items()}
    for site, (gone, gap) in places.items():
        tables[site].loc[gone, "ward"] = gap
    return tables


def files_of_words(tables: dict[str, pd.DataFrame], **asked: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shards = []
        for site, table in tables.items():
            table.to_csv(Path(folder) / f"{site}.csv", index=False)
            shards.append(sources.make(str(Path(folder) / f"{site}.csv"), words=("ward", "sex")))
        simulate("covariance", shards, n_components=2, **asked)


GAP_OF_WARD = "1 missing value (NaN). The first is in {}, column ward. "
ASKED_LEVELS: Any = (
    "ward,sex",
    {"ward": ["eye", "icu", "medicine", "surgery"], "sex": None},
    {"ward": ["eye", "icu", "medicine", "surgery"], "sex": ["f", "m"]},
)
LEVELS = [
    *[
        Refused({"data": TABLES, "categorical": given}, "ategorical")
        for given in ("", [], 3, {"ward": []}, {"ward": "surgery"}, [1])
    ],
    *[
        Refused(
            {"algorithm": "covariance", "data": TABLES, "categorical": {"ward": ["eye", gap, "other"]}},
            "stands for a missing value, so it cannot be a level of ward. Leave it out",
        )
        for gap in ("NA", "None", "", "null")
    ],
    *[
        Refused({"data": TABLES, "categorical": "ward", **more}, sentence)
        for more, sentence in (
            ({"categorical": "ward,ward"}, "categorical has"),
            ({"center": False}, "always centers its columns"),
            (
                {"dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"},
                "categorical cannot be combined with dp: the names of levels are sent without noise. Leave",
            ),
        )
    ],
    *[
        Refused({"algorithm": "covariance", "data": data, **asked}, sentence, DataError)
        for data, asked, sentence in (
            (TABLES, {"categorical": "floor"}, "There is no column 'floor' in north. Check categorical"),
            (
                NAMED_PEOPLE,
                {"categorical": "name", "columns": "age"},
                "Every row has a different level in column name of north.*identifier",
            ),
            (
                TABLES,
                {"categorical": {"ward": ["medicine", "surgery"]}, "columns": "age"},
                "column ward of client 1 (south) are medicine, surgery, but its rows also have a text of 3 "
                "letters in row .* level "
                "'other'",
            ),
            (
                with_gaps(north=([3], None), west=([1, 2], np.nan)),
                {"categorical": "ward", "columns": "age"},
                GAP_OF_WARD.format("row 3 (from 0 on)"),
            ),
            *(
                (with_gaps(south=([4], "NA")), {"categorical": asked}, GAP_OF_WARD.format("row 4 (from 0 on)"))
                for asked in ASKED_LEVELS
            ),
        )
    ],
]
FILES_OF_WORDS = [
    Refused(
        {"tables": with_gaps(south=([4], "NA")), "categorical": "ward,sex"},
        GAP_OF_WARD.format("line 6 of .*south.csv"),
        DataError,
    )
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "simulate, with levels": (ran, LEVELS),
    "files of words": (files_of_words, FILES_OF_WORDS),
}
