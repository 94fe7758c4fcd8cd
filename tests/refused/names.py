"""Refusals about names of columns: in runs, tables, trackers and the estimator."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from builders import rows

from flower_pca import ConfigError, DataError, FederatedPCA, NotEnoughNodes, Table, from_frame, simulate, track
from flower_pca.names.columns import ColumnNames
from flower_pca.rows.local import LocalData
from refused import Refused
from refused.runs import estimated, ran
from refused.texts import UNLIKE
from refused.words import GAP_OF_WARD, TABLES, with_gaps

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
NAMES = ("weight", "age", "size", "beat")
ALIKE_NAMED = [Table(GOOD[part, :4], NAMES) for part in (slice(0, 30), slice(30, 50), slice(50, 60))]
FEW = rows(9, [3.0, 2.0, 1.0], seed=0)
OF_PANDAS = pd.DataFrame(GOOD[:, :4], columns=list(NAMES))
SITES = np.repeat(["north", "east", "west"], [30, 20, 10])
OF_POLARS = pl.DataFrame(GOOD[:, :4], schema=NAMES)
OF_CITY = OF_PANDAS.assign(city="Bonn", day=datetime.date(2026, 1, 1))
LETTERED = pd.DataFrame({"age": [1.0, 2.0, 4.0], "bmi": [3.0, 1.0, 2.0], "site": ["a", "b", "c"]})
BATCHES = [Table(GOOD[i : i + 15, :4], NAMES) for i in range(0, 60, 15)]
OTHERS = [dataclasses.replace(batch, names=(*NAMES[:3], "pulse")) for batch in BATCHES]
AT_0 = "^The columns of client 0 at step 0 "
AT_2 = "^The columns of client 0 at step 2 "


def columns_named(names: Any) -> None:
    ColumnNames(names)


def rows_named(X: Any, names: Any) -> None:
    LocalData(Table(X, names))


def whole_table(table: pd.DataFrame) -> None:
    Table.of(table).whole()


def followed(streams: Any, n_components: int = 2, **asked: Any) -> None:
    track("st_miss", streams, n_components=n_components, **asked)


def projected(rows_given: Any, data: Any, **asked: Any) -> None:
    """Rows for a result of these data."""
    simulate("covariance", data, **{"n_components": 2, **asked}).transform(rows_given)


def compared(columns: Any) -> None:
    """A result with one of these columns only."""
    simulate("krylov", ALIKE_NAMED, n_components=2).angle_to(
        simulate("krylov", ALIKE_NAMED, n_components=2, columns=columns)
    )


def estimated_for(table: pd.DataFrame, data: Any, **asked: Any) -> None:
    FederatedPCA(2, **asked).fit(data).transform(table)


BY_NAME = [
    Refused(
        {"data": [*ALIKE_NAMED[:2], Table(GOOD[50:], (*NAMES, "dose"))]},
        "^The columns of client 2 do not fit: there are 5, with 'dose' in addition, instead of the 4 of client 0. "
        "Name the columns of the run (columns=[...]), or give all files the same columns.",
        DataError,
    ),
    Refused(
        {"data": [*ALIKE_NAMED[:2], Table(GOOD[50:, :3], NAMES[:3])]},
        "^The columns of client 2 do not fit: there are 3, without 'beat', instead of the 4 of client 0. Give all",
        DataError,
    ),
    Refused(
        {"data": [*ALIKE_NAMED[:2], Table(GOOD[50:, :4], (*NAMES[:3], "pulse"))]},
        "there are 4, without 'beat' and with 'pulse' in addition, instead of .* Give all files the same columns.",
        DataError,
    ),
    Refused(
        {"data": [*ALIKE_NAMED[:2], GOOD[50:, :4]]},
        "^The columns of client 2 do not fit: there are 4 without names instead of the 4 of client 0, which have "
        "names. Give column names at all clients, or at none of them.",
        DataError,
    ),
    Refused(
        {"data": [GOOD[:30, :4], *ALIKE_NAMED[1:]]},
        "^The columns of client 0 do not fit: there are 4 without names instead of the 4 of client 1, which",
        DataError,
    ),
    Refused(
        {"data": [*ALIKE_NAMED[:2], Table(GOOD[50:, :4], (*NAMES[:3], "age"))]},
        "^The columns of client 2 have the same name: 'age' more than once. Rename them.",
        DataError,
    ),
    *[
        Refused(
            {"data": ALIKE_NAMED, "columns": columns},
            f"^columns must be a list of column names, not {got}. Write columns=",
        )
        for columns, got in ((3, "3"), ([], "[]"), ("a,,b", "'a,,b'"), (["a", 1], "a list of length 2"))
    ],
    Refused({"data": ALIKE_NAMED, "columns": "a,b,a"}, "^columns has 'a' more than once."),
    *[
        Refused({"data": data, **asked}, sentence, DataError)
        for data, asked, sentence in (
            (
                [*ALIKE_NAMED[:2], Table(GOOD[50:, :3], NAMES[:3])],
                {"columns": NAMES},
                "^The columns of client 2 do not include 'beat', only age",
            ),
            (
                [*ALIKE_NAMED[:2], GOOD[50:, :4]],
                {"columns": NAMES},
                "^The run names its columns, but the 4 columns of client 2 have no names.",
            ),
            (
                {"a": ALIKE_NAMED[0], "b": GOOD[30:, :4]},
                {},
                "^The columns of client 1 (b) do not fit: there are 4 without names instead of the 4 of client 0 (a)",
            ),
            (
                [OF_PANDAS.assign(weight=OF_PANDAS["weight"].where(OF_PANDAS.index != 3)), *ALIKE_NAMED],
                {"columns": "size, weight"},
                "^The data of client 0 has 1 missing value",
            ),
            (
                [OF_PANDAS, OF_PANDAS, OF_CITY],
                {},
                "^The columns of client 2 must hold numbers, but there is a text of 4 letters in column city, ",
            ),
            (
                from_frame(OF_PANDAS.assign(site=SITES, note="x"), by="site"),
                {},
                "^The columns of east must hold numbers, but there is a text of 1 letter in column note.",
            ),
            (
                [OF_POLARS.with_columns(pl.when(pl.col("age") > 0.0).then(pl.col("age")).alias("age"))],
                {},
                "has .* missing value.*column age",
            ),
            (
                [OF_POLARS.with_columns(kind=pl.lit("x"))],
                {},
                "must hold numbers, but there is a text of 1 letter in column kind",
            ),
            (
                [LETTERED],
                {},
                "a text of 1 letter in column site. .*hoose other columns with columns=[...], or encode them.$",
            ),
            (
                [OF_PANDAS.assign(age=OF_PANDAS["age"].astype(str))],
                {},
                "must hold numbers, but there is a number stored as text in column age. Turn these cells from text "
                "into numbers. ",
            ),
            (
                [LETTERED],
                {"columns": ["age", "site"]},
                "column site. .*hoose other columns with columns=[...], or encode them.$",
            ),
            *(
                (
                    [Table(FEW, (name, "b", "c")) for name in (one, other)],
                    {"n_components": 1},
                    "there are 3, without .* and with .* in addition.*only ",
                )
                for one, other, _ in UNLIKE
            ),
            *(
                (
                    [Table(FEW, (one, "b", "c"))],
                    {"n_components": 1, "columns": [other, "b"]},
                    f"only .*{message}: rename one of them",
                )
                for one, other, message in UNLIKE
            ),
        )
    ],
]
COLUMNS_NAMED = [
    Refused({"names": names}, "is not a valid column name of the rows, because names must be text", DataError)
    for names in ((1, "a"), ("", "a"))
]
ROWS_NAMED = [Refused({"X": FEW, "names": ("a", "b")}, "^There are .* names at the client. Name each", DataError)]
WHOLE_TABLE = [
    Refused({"table": table}, sentence, DataError)
    for table, sentence in (
        (pd.DataFrame(FEW[:, :2], columns=["a", 1]), "are text, but others are not: 'a' and 1"),
        (pd.DataFrame(FEW[:, :2], columns=["a", "a"]), "have the same name: 'a' more than once"),
        (pd.DataFrame({"a": ["x"]}), "must hold numbers, but there is a text of 1 letter in column a"),
    )
]
FOLLOWED = [
    *[
        Refused({"streams": streams, **asked}, sentence, DataError)
        for streams, asked, sentence in (
            ([BATCHES], {"n_components": 1, "columns": "dose"}, f"{AT_0}lack "),
            ([GOOD[:, :4]], {"n_components": 1, "batch": 15, "columns": "age"}, "the 4 columns of .* have no names"),
            (
                [
                    [
                        dataclasses.replace(batch, words={"note": "a text of 1 letter in column note"})
                        for batch in BATCHES
                    ]
                ],
                {"n_components": 1, "columns": "note"},
                f"{AT_0}must hold numbers, but there is text in column note",
            ),
            ([BATCHES, OTHERS], {}, "^The columns of client 1 do not fit: there are 4, w"),
            ([[*BATCHES[:2], *OTHERS[2:]]], {}, f"{AT_2}do not fit: .* of the batches before. "),
            ([[*BATCHES[:2], GOOD[:15, :4]]], {}, f"{AT_2}.* there are 4 without names .* Give column"),
            (
                [
                    [
                        dataclasses.replace(
                            BATCHES[0],
                            words={"note": "a text of 6 letters in column note (line 2)"},
                            source="/home/x.csv",
                        )
                    ]
                ],
                {},
                f"{AT_0}must hold numbers, but there is text in column note",
            ),
        )
    ],
    Refused(
        {
            "streams": [lambda t, parts=parts: parts[t] if t < 4 else None for parts in (BATCHES, OTHERS)],
            "min_nodes": 2,
        },
        "client 1 do not fit: there are 4, without 'beat'",
        NotEnoughNodes,
    ),
]
ESTIMATED = [
    *[
        Refused({"data": data, **asked}, f"^{sentence}", error)
        for data, asked, sentence, error in (
            (
                OF_PANDAS.assign(age=1.0),
                {"scale": "std"},
                'All rows have the same value in column age, so scale="std" cannot divide by the deviation.',
                DataError,
            ),
            (
                OF_PANDAS.set_axis(["a", "age", "age", "b"], axis=1),
                {},
                "The columns of X have the same name: 'age' more than once.",
                DataError,
            ),
            (
                OF_PANDAS.set_axis(["a", "b", 3, 4], axis=1),
                {},
                "Some column names of X are text, but others are not: 'a' and 3",
                DataError,
            ),
            (
                OF_PANDAS.astype(pd.SparseDtype(float)),
                {},
                "The sparse columns of X have a fill value other than 0. Use X.sparse.to_dense().",
                DataError,
            ),
            (
                GOOD[:, :4],
                {"columns": NAMES},
                "columns selects columns by name, but X, an array of shape (60, 4), has no column names. Give data",
                ConfigError,
            ),
            (OF_PANDAS, {"columns": ["dose"]}, "The columns of X do not include 'dose', only", DataError),
            (
                OF_PANDAS.assign(site=SITES),
                {"columns": NAMES, "sites": "site"},
                "sites is 'site', but it must contain the site of each row. Give the column itself",
                ConfigError,
            ),
            (OF_PANDAS, {"sites": [None, *SITES[1:]]}, "sites has no name for 1 row. Name the site", DataError),
        )
    ],
    Refused(
        {"data": OF_POLARS.with_columns(site=pl.lit("north"), note=pl.lit("x"))},
        "must hold numbers, but there is a text of 5 letters in column site, a text of 1 letter in column note.",
        DataError,
    ),
    Refused(
        {"data": TABLES, "categorical": "ward"},
        "must hold numbers, but there is a text of 1 letter in column sex|must hold numbers, but there "
        "is a text of 1 letter in column sex",
        DataError,
    ),
    *[
        Refused({"data": data}, sentence, DataError)
        for data, sentence in (
            (
                from_frame(OF_PANDAS.assign(site=SITES, note="x"), by="site"),
                "The columns of east must hold numbers, but there is a text of 1 letter in column note. "
                "If these are categories, use "
                "categorical=['note']. Otherwise, choose other columns",
            ),
            (
                [OF_PANDAS, OF_PANDAS.rename(columns={"age": "z"}), OF_PANDAS],
                "The columns of client 1 do not fit: there are 4, without 'age'",
            ),
            (
                [OF_PANDAS.rename(columns={"age": "z"}), OF_PANDAS, OF_PANDAS],
                "The columns of client 0 do not fit: there are 4, without",
            ),
            (
                {"north": OF_PANDAS, "south": OF_PANDAS.drop(columns="beat")},
                "The columns of south do not fit: there are 3, without 'beat', instead of the 4 of north.",
            ),
        )
    ],
    Refused(
        {"data": dataclasses.replace(ALIKE_NAMED[0], words={"note": "a text of 1 letter in column note"})},
        "^The columns of X must hold numbers, but there is a text of 1 letter in column note",
        DataError,
    ),
    Refused({"data": [GOOD, GOOD[:, :4]]}, "X has 4 features, but FederatedPCA is expecting 5", ValueError),
    Refused(
        {"data": np.eye(4), "categorical": "ward"},
        "categorical names columns, but X, an array of shape (4, 4), has no column names. Give data frames, or leave "
        "categorical out.",
    ),
]
ESTIMATED_FOR = [
    Refused({"table": OF_PANDAS.assign(site=SITES), "data": OF_PANDAS}, "Feature names unseen at fit time", ValueError),
    Refused(
        {"table": TABLES["west"].assign(ward="burns"), "data": TABLES, "categorical": "ward,sex"},
        "are eye, icu, medicine, surgery, but its rows also have a text of 5 letters",
        DataError,
    ),
    Refused(
        {"table": TABLES["west"].assign(ward="12"), "data": TABLES, "categorical": "ward,sex"},
        "are eye, icu, medicine, surgery, but its rows also have a number in row 0",
        DataError,
    ),
]
PROJECTED = [
    Refused({"rows_given": given, "data": data, **asked}, sentence, error)
    for given, data, asked, sentence, error in (
        (
            TABLES["west"].assign(ward="burns"),
            TABLES,
            {"categorical": "ward,sex", "scale": "std"},
            "In this run, the levels of column ward of the rows given are eye, .*a text of 5 letters in row 0",
            DataError,
        ),
        (
            with_gaps(south=([4], "NA"))["south"],
            TABLES,
            {"categorical": "ward,sex"},
            GAP_OF_WARD.format("row 4 (from 0 on)"),
            DataError,
        ),
        (
            Table(GOOD[:, :3], NAMES[:3]),
            ALIKE_NAMED,
            {},
            "^The columns of the rows given lack 'beat', which the result needs. Give all features of the run.$",
            ConfigError,
        ),
        *(
            (Table(FEW, (one, "b", "c")), [Table(FEW, (other, "b", "c"))], {"n_components": 1}, message, ConfigError)
            for one, other, message in UNLIKE
        ),
    )
]
COMPARED = [
    Refused(
        {"columns": NAMES[1:]},
        "The columns of the other result do not fit: there are 3, without 'weight', instead of the 4 of this result.",
    )
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "simulate, by name": (ran, BY_NAME),
    "names of columns": (columns_named, COLUMNS_NAMED),
    "rows with names": (rows_named, ROWS_NAMED),
    "table of pandas": (whole_table, WHOLE_TABLE),
    "track, by name": (followed, FOLLOWED),
    "estimator, of tables": (estimated, ESTIMATED),
    "estimator, of unlike tables": (estimated_for, ESTIMATED_FOR),
    "result, by name": (projected, PROJECTED),
    "other result, by name": (compared, COMPARED),
}
