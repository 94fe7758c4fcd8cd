"""Refusals of data files, folders, sources and partitions."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flower_pca import DataError, Ray, simulate, track
from flower_pca.data import partition, sources
from flower_pca.data.inbox import Inbox
from refused import Refused

FILES = ("npy", "npz", "sparse", "csv", "parquet", "svmlight")
BY_NAME = "The partition must be a name, or a spec such as .* Give parameters by name"
TOWNS = np.array(["Ulm", "Bonn", "Ulm", "Jena", "Bonn", "Ulm"])
SQUARES = np.arange(12.0).reshape(4, 3) ** 2
OBJECTS = np.array([[object()]])
AGE = {"a.csv": "age,bmi\n1,2\n"}
AGE_AND_ARRAY = {**AGE, "c.npy": np.ones((2, 3))}
NOTED = "age,lab,note\n1,2,well\n"


def source(text: Any) -> None:
    sources.make(text)


def missing_file(reader: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources.make(f"{reader}(path={str(Path(folder) / 'none')!r})")


def patients_file(ending: str, use: Callable[[str], Any] = sources.make, **options: Any) -> None:
    """A table with a gap and a column of text, in both kinds of file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"patients.{ending}"
        table = pd.DataFrame(
            {"age": [31.0, 45.0, np.nan], "site": ["Bonn", "Jena", "Bonn"], "bmi": [22.5, 30.25, 27.0]}
        )
        table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        use(f"{ending}(path={str(path)!r}{given})")


def run_of_patients(ending: str, **options: Any) -> None:
    patients_file(ending, lambda spec: simulate("krylov", [sources.make(spec)], n_components=1), **options)


def array_of_patients(ending: str) -> None:
    patients_file(ending, lambda spec: np.asarray(sources.make(spec)))


def archive(npz: dict[str, Any], options: str = "", columns: Any = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "x.npz", **npz)
        sources.table(f"npz(path={str(Path(folder) / 'x.npz')!r}{options})", columns=columns)


def array_file(npy: Any, columns: Any = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", npy)
        sources.table(str(Path(folder) / "x.npy"), columns=columns)


def broken_file(reader: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.bin"
        path.write_bytes(content)
        sources.make(f"{reader}(path={str(path)!r})")


def parquet_file(**columns: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        pd.DataFrame(columns).to_parquet(path)
        sources.make(str(path))


def gap_of_file(ending: str) -> None:
    """A gap in row 6 of a file that has no lines."""
    rows = np.arange(36.0).reshape(12, 3) ** 2
    rows[6, 2] = np.nan
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x.{ending}"
        if ending == "parquet":
            pd.DataFrame(rows, columns=["age", "bmi", "pulse"]).to_parquet(path)
        else:
            np.save(path, rows) if ending == "npy" else np.savez(path, X=rows)
        simulate("krylov", partition.deal(sources.table(str(path)), "iid", 2), n_components=1)


def filled(folder: str, files: dict[str, Any]) -> str:
    """The path of this folder, with files of text and of arrays in it, and folders where there is neither."""
    for name, content in files.items():
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_text(content) if isinstance(content, str) else np.save(path, content)
    return folder


def folder_asked(files: dict[str, Any], spec: str = "{}", **asked: Any) -> None:
    """A folder with these files, or what a spec asks of it."""
    with tempfile.TemporaryDirectory() as folder:
        sources.table(spec.format(filled(folder, files)), **asked)


def dealt_of_folder(
    files: dict[str, Any], by: str | None, spec: str = "{}", clients: int | None = None, **asked: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        partition.deal(sources.table(spec.format(filled(folder, files)), **asked), by, clients)


def followed_inbox(files: dict[str, Any], spec: str = "{}") -> None:
    with tempfile.TemporaryDirectory() as folder:
        streams = Inbox(spec.format(filled(folder, files))).streams()
        track("st_miss", streams, n_components=2, backend=Ray())


def partitioned(text: Any, n: int = 10, clients: int | None = 3, **more: Any) -> None:
    partition.make_parts(text, n, clients, **more)


SOURCE = [
    Refused({"text": "npyy(path='x')"}, "^The data source must be npy, npz.*, not 'npyy'. Did you mean 'npy'?"),
    Refused({"text": "npy(pth='x')"}, "^npy has no parameter 'pth'"),
    Refused({"text": "npy"}, "^npy needs path. Write npy(path=...)."),
    Refused({"text": "npy(path=3)"}, "^path is 3, but it must be text. Put it in quotes."),
    Refused({"text": "/data/x.doc"}, "^No file or folder named '/data/x.doc'.$", DataError),
    Refused({"text": None}, "^The data source must be .*, not None."),
    Refused({"text": "synthetic(n=0)"}, "^n must be a whole number of at least 1, not 0."),
    Refused(
        {"text": "synthetic(n=3, clients=4)"},
        "^n is 3, but each of the 4 clients needs at least one row. Use fewer clients.",
    ),
    Refused({"text": "sklearn('iriss')"}, "must be 'breast_cancer', .*, not 'iriss'. Did you mean 'iris'?"),
    Refused({"text": "x.gz"}, "^flower_pca cannot read x.gz: it ends in .gz. Unpack it first.$"),
    Refused(
        {"text": "x.dat"},
        "^flower_pca cannot read x.dat: it ends in .dat. Rename it to .txt if it is a table of text.$",
    ),
    Refused({"text": "x.rds"}, "^No file or folder named 'x.rds'", DataError),
]
MISSING_FILE = [Refused({"reader": name}, "^No file or folder named '.*none'.", DataError) for name in FILES]
PATIENTS = [
    *[
        Refused({"ending": ending, **options}, sentence.replace("{ending}", ending))
        for ending in ("csv", "parquet")
        for options, sentence in (
            ({"columns": ["bmj"]}, "patients.{ending} has no column 'bmj'. Did you mean 'bmi'?"),
            (
                {"columns": ["glucose"]},
                "^/.*/patients.{ending} has no column 'glucose'. Name other columns, or correct the file.",
            ),
            ({"beside": ["sit"]}, "patients.{ending} has no column 'sit'. Did you mean 'site'?"),
            (
                {"columns": "age"},
                "^columns is 'age', but it must be a list of names. For example, write columns=['a', 'b'].",
            ),
            ({"beside": 3}, "^beside is 3, but it must be a list of names. For example, write beside=['a', 'b']."),
        )
    ],
    *[
        Refused(
            {"ending": ending, "columns": ["age", "site"]},
            "must hold numbers, but there is .* in column site.* .*hoose other columns with",
            DataError,
        )
        for ending in ("csv", "parquet")
    ],
]
RUN_OF_PATIENTS = [
    Refused({"ending": ending, **options}, sentence, DataError)
    for ending in ("csv", "parquet")
    for options, sentence in (
        ({}, "must hold numbers, but there is .* in column site.*. .*hoose other columns with"),
        ({"columns": ["age", "bmi"]}, '1 missing value .* or use missing="mean".'),
    )
]
ARRAY_OF_PATIENTS = [
    Refused({"ending": ending}, "must hold numbers, but there is .* in column site", DataError)
    for ending in ("csv", "parquet")
]
ARCHIVE = [
    Refused(
        {"npz": {"X": SQUARES, "y": SQUARES[:, 0]}, "options": ", key='y'"},
        "^The data of npz(path='/.*/x.npz', key='y') has 1 dimension, but a table needs 2 (rows and columns). If it "
        "is a vector x, save x[:, None] instead.$",
        DataError,
    ),
    Refused(
        {"npz": {"X": SQUARES, "y": SQUARES[:, 0]}, "options": ", key='Z'"},
        "/.*/x.npz has no array named 'Z', only X, y. Write npz(path='/.*/x.npz', key='X').$",
    ),
    Refused(
        {"npz": {"X": OBJECTS}},
        "The data file /.*/x.npz cannot be read as a file saved by numpy.savez, without pickled objects (.*). Check "
        "the file, or name another source.",
        DataError,
    ),
    Refused(
        {"npz": {"X": SQUARES, "columns": np.array(["a", "b"])}},
        "^The array columns of /.*/x.npz has 2 names for 3 columns. Name each column, or remove this array.",
        DataError,
    ),
    Refused(
        {"npz": {"X": SQUARES, "columns": np.array(["a", "b", "c"])}, "columns": ["dose"]},
        "x.npz do not include 'dose', only",
        DataError,
    ),
]
ARRAY_FILE = [
    Refused(
        {"npy": OBJECTS},
        "The data file /.*/x.npy cannot be read as an array saved by numpy.save (.*). Check the file, or name "
        "another source.",
        DataError,
    ),
    Refused(
        {"npy": SQUARES, "columns": ["size"]},
        "^columns selects columns by name (size), but the data has no column names.",
    ),
]
BROKEN_FILE = [
    Refused(
        {"reader": reader, "content": content},
        "^The data file /.*/x.bin cannot be read as |^The data file /.*/x.bin is |^The data file /.*/x.bin has "
        "|^The columns of /.*/x.bin ",
        DataError,
    )
    for reader in FILES
    for content in (b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04 half\n\xff", b"\xff\xfe\x00\x01,2\n")
    if content or reader not in ("csv", "svmlight")  # an empty table
]
PARQUET_FILE = [
    Refused(
        {"day": [datetime.date(2026, 1, 1)]},
        "must hold numbers, but there is a value of the type date32[day] in column day.",
        DataError,
    )
]
GAP_OF_FILE = [
    Refused({"ending": ending}, f"in row 6 of /.*/x.{ending} (from 0 on), column {column}. Imp", DataError)
    for ending, column in (("npy", "2"), ("npz", "2"), ("parquet", "pulse"))
]
FOLDER = [
    *[
        Refused({"files": files, **how}, sentence, DataError)
        for files, how, sentence in (
            (
                {"a.csv": "age,bmi\n1,2\n", "b.csv": "age,size\n1,2\n"},
                {},
                "b.csv do not fit: there are 2, without 'bmi' and with 'size' in addition, instead of",
            ),
            (
                AGE_AND_ARRAY,
                {},
                "c.npy do not fit: there are 3 without names instead of the 2 of a.csv, which have names. Give",
            ),
            (
                {"a.npy": np.ones((2, 2)), "b.csv": "age,bmi\n1,2\n"},
                {},
                "b.csv do not fit: there are 2 with names instead of the 2 of a.npy, which have no names. Give",
            ),
            (
                AGE_AND_ARRAY,
                {"spec": "folder(path='{}', pattern='*.parquet')"},
                "The folder /.* has no files that match '*.parquet' and end in .*. Check the path and the pattern.",
            ),
            ({}, {"spec": "folder(path='{}/none')"}, "^No file or folder named '.*none'."),
            (
                AGE,
                {"spec": "folder(path='{}/a.csv')"},
                "The data file /.*/a.csv cannot be read as a folder with one file per client (.*). Check the file, "
                "or name another source.",
            ),
            (
                {"x.csv": None},
                {"spec": "{}/x.csv"},
                "^The folder /.*/x.csv has no files that match '*' and end in .*. Check the path and the pattern.",
            ),
            (
                {"x.csv": None},
                {"spec": "csv(path='{}/x.csv')"},
                "^/.*/x.csv is a folder, but this source reads a file. Write folder(path='/.*/x.csv').",
            ),
            ({**AGE, "b.csv": ""}, {}, "^The data file /.*/b.csv has no rows. Correct it, or remove it."),
            (
                {"a.csv": "age\n", "b.csv": "age\n"},
                {},
                "^The data file /.*/a.csv has no rows. Correct it, or remove it.",
            ),
            (
                {"bonn.csv": "age,note\n1,x\n", "jena.csv": "age,note\n1,x\n"},
                {},
                "bonn.csv must hold numbers, but there is a text of 1 letter in column note (line 2).",
            ),
        )
    ],
    Refused(
        {"files": AGE_AND_ARRAY, "spec": "folder(path='{}', columns=['age'])"},
        "^/.*/c.npy cannot be read with columns=a list of length 1. Leave columns out, or use files with named "
        "columns.",
    ),
    Refused(
        {
            "files": {"bonn.csv": NOTED, "trier.csv": "age;word\nnothing;is read\n"},
            "drop": ["nots"],
            "without": ["trier"],
        },
        "^No column to leave out matches 'nots'. The names are age, lab, note. Did you mean 'note'?",
    ),
    Refused(
        {"files": {"bonn.csv": NOTED, "jena.csv": NOTED}, "without": ["koeln"]},
        "^No site to leave out matches 'koeln'. The names are bonn, bonn.csv, jena, jena.csv. Leave it out.",
    ),
]
DEALT = [
    *[
        Refused(
            {
                "files": {"a.csv": f"age,bmi,site\n1,2,x\n3,4,{gap}\n5,6,y\n"},
                "spec": "{}/a.csv",
                "by": "by_column('site')",
                "beside": ["site"],
            },
            f"^Column site has {got}, the first in line 3 of .*a.csv. Name the site of every row, or drop these rows.",
            DataError,
        )
        for gap, got in (("", "no site in 1 row"), ("NA", "'NA', which stands for a missing value, in 1 row"))
    ],
    Refused(
        {"files": {f"{i}.npy": np.ones((2, 2)) for i in range(3)}, "by": None, "clients": 2},
        "^The data has 3 clients, one for each file, not 2. Leave the number of clients out, or name a partition to "
        "mix their rows.",
    ),
    Refused(
        {"files": {}, "by": None, "spec": "synthetic(n=20, clients=3)", "clients": 2},
        "The data has 3 clients, not 2. Leave the number of clients out, or name a partition to mix their rows.",
    ),
]
INBOX = [
    Refused({"files": {}}, "The folder /.* is empty. Make a folder for each site in it, or name the sites.", DataError),
    Refused(
        {"files": {}, "spec": "{}/none"},
        "There is no folder /.*/none to follow. Create it first. Files may arrive later.",
        DataError,
    ),
    Refused(
        {"files": {"north": None}},
        "The worker processes of Ray cannot read a stream that is an iterator of this process. Give",
    ),
]
ARRIVALS = [
    Refused(
        {"path": "/none/such"},
        "There is no folder /none/such to read a stream from. Create it first. Files may arrive later.",
        DataError,
    )
]
PARTIES = [
    Refused(
        {"spec": "synthetic(n=9, d=4)", "ids": "who"},
        "^synthetic(n=9, d=4) has no column of row identifiers, because ids works with csv, parquet and npz files "
        "only. Leave ids out.$",
    )
]
PARTITION = [
    *[
        Refused({"text": text}, f"^{sentence}")
        for text, sentence in (
            ("idd", "The partition must be contiguous, iid.*, not 'idd'. Did you mean 'iid'?"),
            ("iid(sed=1)", "iid has no parameter 'sed'. Did you mean 'seed'?"),
            ("iid(1, 2)", BY_NAME),
            ("iid(1, seed=2)", BY_NAME),
            ("contiguous(1)", BY_NAME),
            ("dirichlet(0.3)", "dirichlet deals out rows by the column 'y', but the data has no label columns."),
            ("by_column", "by_column needs column."),
            ("iid(seed=-1)", "seed must be a whole number of at least 0, not -1."),
            ("by_size", "by_size needs sizes. Write by_size(sizes=...)."),
            (
                "by_size(sizes=[1, 2])",
                "sizes is a list of length 2, but it must hold 3 positive numbers, one for each client.",
            ),
            ("by_size(sizes=[1, 0, 2])", "sizes is a list of length 3, but it must hold 3 positive numbers"),
            ("by_size(sizes='abc')", "sizes is 'abc', but it must hold 3 positive numbers"),
            ("power_law(exponent=-1)", "exponent must be a number from 0 to 20, not -1."),
        )
    ],
    Refused(
        {"text": "contiguous", "n": 3, "clients": 4},
        "^Each client needs at least one row, but there are 3 rows for 4 clients. Use fewer clients.",
        DataError,
    ),
    Refused(
        {"text": "contiguous", "n": 3, "clients": 0},
        "^The number of clients must be a whole number of at least 1, not 0.",
    ),
    Refused(
        {"text": "by_column('site')", "n": 6, "clients": 2, "beside": {"site": TOWNS}},
        "^by_column makes 3 clients, one for each value of site, not 2. Leave the number of clients out.",
    ),
    Refused(
        {"text": "by_column('town')", "n": 6, "clients": None, "beside": {"site": TOWNS}},
        "^by_column deals out rows by the column 'town', but the data has only these label columns: site. For "
        "example, set column='site'.",
    ),
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "data source": (source, SOURCE),
    "file that is not there": (missing_file, MISSING_FILE),
    "file of patients": (patients_file, PATIENTS),
    "run of patients": (run_of_patients, RUN_OF_PATIENTS),
    "array of patients": (array_of_patients, ARRAY_OF_PATIENTS),
    "archive of arrays": (archive, ARCHIVE),
    "array in a file": (array_file, ARRAY_FILE),
    "broken file": (broken_file, BROKEN_FILE),
    "file of parquet": (parquet_file, PARQUET_FILE),
    "gap in a file": (gap_of_file, GAP_OF_FILE),
    "folder": (folder_asked, FOLDER),
    "folder that is dealt": (dealt_of_folder, DEALT),
    "folder that is followed": (followed_inbox, INBOX),
    "folder of a stream": (sources.Arrivals, ARRIVALS),
    "files of parties": (sources.parties, PARTIES),
    "partition": (partitioned, PARTITION),
}
