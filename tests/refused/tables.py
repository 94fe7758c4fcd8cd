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
from flower_pca.data import partition, sources
from flower_pca.masking import fixed
from flower_pca.rows.local import LocalData
from refused import Refused

SITES = ["north"] * 4 + ["east"] * 4 + ["west"]
BARE = pd.DataFrame(rows(9, [3.0, 2.0, 1.0], seed=0), columns=["age", "bmi", "pulse"])
TABLE = BARE.assign(site=SITES)
LETTERS = "größe,gewicht\n1.5,2\n3,4\n"
FILES = ("npy", "npz", "sparse", "csv", "parquet", "svmlight")


ENDINGS = "^The ending of a data file must be one of .npy, .*"
BY_NAME = "The partition must be a name, or a spec such as .* Give parameters by name"


def numbered(head: str) -> str:
    """Lines of whole numbers below this one."""
    drawn = np.random.default_rng(8).integers(0, 9, (150, head.count(",") + 1))
    return "\n".join([head, *(",".join(map(str, row)) for row in drawn)])


def source(text: Any) -> None:
    sources.make(text)


def text_file(content: str | bytes, options: str | None = None, name: str = "x.csv") -> None:
    """A file of these bytes: read as it is, or with options."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        spec = str(path) if options is None else f"csv(path={str(path)!r}, {options})"
        simulate("krylov", partition.deal(sources.table(spec), "contiguous", 1), n_components=1)


def missing_file(reader: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources.make(f"{reader}(path={str(Path(folder) / 'none')!r})")


def patients_file(ending: str, **options: Any) -> None:
    """A table with a gap and a column of text, in both kinds of file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"patients.{ending}"
        table = pd.DataFrame(
            {"age": [31.0, 45.0, np.nan], "site": ["Bonn", "Jena", "Bonn"], "bmi": [22.5, 30.25, 27.0]}
        )
        table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        sources.make(f"{ending}(path={str(path)!r}{given})")


def partitioned(text: Any, n: int = 10, clients: int = 3, **more: Any) -> None:
    partition.make(text, n, clients, **more)


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


SOURCE = [
    Refused({"text": "npyy(path='x')"}, "^The data source must be one of npy, npz.* Got 'npyy'. Did you mean 'npy'?"),
    Refused({"text": "npy(pth='x')"}, "^Every parameter of npy must be among path. Got 'pth'. Did you mean 'path'?"),
    Refused({"text": "npy"}, "^The parameters of npy must be complete. Got no path. Write npy(path=...)."),
    Refused({"text": "npy(path=3)"}, "^path must be text. Got 3. Put it in quotes."),
    Refused(
        {"text": "/data/x.doc"}, "^The data source must be a name, a folder, a path that ends in .npy, .*, or a spec"
    ),
    Refused({"text": None}, "^The data source must be .* Got None."),
    Refused({"text": "synthetic(n=0)"}, "^n must be a whole number of at least 1. Got 0."),
    Refused({"text": "synthetic(n=3, clients=4)"}, "^n must be at least 4, one row for each client. Got 3."),
    Refused({"text": "sklearn('iriss')"}, "must be one of 'breast_cancer', .* Got 'iriss'. Did you mean 'iris'?"),
    Refused({"text": "x.csv.gz"}, f"{ENDINGS}Got x.csv.gz. Unpack it first."),
    *[
        Refused({"text": f"x.{ending}"}, f"{ENDINGS}Write csv(path='x.{ending}', sep={sep}) if it is a table of te")
        for ending, sep in (("tsv", "'\\t'"), ("txt", "','"))
    ],
    Refused({"text": "x.xlsx"}, f"{ENDINGS}Save it as csv first."),
]
MISSING_FILE = [
    Refused({"reader": name}, "^The data file /.*/none must be there. Got no such file. Check its path", DataError)
    for name in FILES
]
TEXT_FILE = [
    *[
        Refused({"content": content}, sentence, DataError)
        for content, sentence in (
            ("", "^The data file /.*/x.csv must be one with rows. Got none. Mend it, or"),
            ("a,b\n", "must be one with rows. Got none."),
            ("# of 2026\na,b\n1,2\n", "^Line 2 of .* of 1 cell, .* Mend the line, or take away w"),
            (
                'a,b\n1,2\n\n3,"4\n5,6\n7",8\n',
                "^Line 4 of .* must be of 2 cells, .*. Got 3. Close its quotation marks: it goes on to line 6.",
            ),
            (f"a,b\n1,{'x' * 99}\n", f"Got '{'x' * 26}…{'x' * 13}' in column b (line 2)."),
            ("a,b\n1,2\n3,\0\n", "must be text. Got a zero byte in line 3. Mend the line, or name the "),
            (
                "a,b\n1 234.5,2\n",
                "Got '1 234.5' in column a (line 2). Read what .* with thousands=' '.",
            ),
            ("a,b,\n1,2,\n", "Got column 3 without a name. .* with beside=[''], or name the "),
            (
                LETTERS.encode("latin-1"),
                "^The data file /.*/x.csv must be text in UTF-8. Got the byte 0xf6 in line 1 (byte 3 of it). "
                "Write csv(path='.*', encoding='latin-1'); of a folder, folder(..., encoding='latin-1'), or the enc",
            ),
            (b"a,b\n1,2\n3,\xe94\n", "Got the byte 0xe9 in line 3 (byte 3 of it)."),
            (
                LETTERS.encode("utf-16-le"),
                "must be text. Got a zero byte in line 1. Write csv(.*encoding='utf-16-le').* if it is in UTF-16.",
            ),
            (LETTERS.encode("utf-16") + b"\0", "must be text in UTF-16. Got bytes that are none"),
            (b"\x1f\x8b\x08\x00", "must be plain text. Got one packed by gzip. Unpack it."),
            (b"PK\x03\x04\x14\x00", "must be plain text. Got one packed by zip. Unpack it."),
            *(
                (numbered(head), f"clearly values. Got numbers .*{words}")
                for head, words in (
                    ("1,2,3,5,6", "go up"),
                    ("6,5,3,2,1", "go down"),
                    ("1,3,5,7", "go in equal steps"),
                    ("900,900,-900", "far from those of the lines below"),
                )
            ),
        )
    ],
    *[
        Refused(
            {"content": "a,b,c\n1.5,2,3\n", "options": options},
            "must be ';'. Got 'a,b,c' in the first line. Write csv(path='.*', sep=',')",
            DataError,
        )
        for options in ("sep=';'", "sep=';', decimal=','", "decimal=','")
    ],
    Refused(
        {"content": "a,b\n1,2\n", "options": "header='yes'"},
        "^header must be one of True, False, None. Got 'yes'.",
    ),
    Refused(
        {"content": "1.5,2.5\n3.5,1\n", "options": "columns=['age']"},
        "Got none called 'age'. They have no names: they are 1 to 2.",
    ),
    Refused(
        {"content": "a;b\n3,14;2,7\n", "options": "sep=','"},
        "Write csv(path='.*', sep=';', decimal=','); of a folder, .*leave sep out",
        DataError,
    ),
    Refused(
        {"content": "a;b\n3,14;2,7\n", "options": "decimal='.'"},
        "Got '3,14' in column a (line 2).* Read decimal commas with decimal=','.",
        DataError,
    ),
    Refused(
        {"content": "a;b\n3,14;2,7\n", "options": "decimal=';'"},
        "^decimal must be '.' or ','. Got ';'. Write decimal=','.",
    ),
    *[
        Refused(
            {"content": LETTERS, "options": f"encoding={name!r}"},
            "^encoding must be a name such as 'utf-8', .* Write encoding='latin-1'",
        )
        for name in ("latin-17", "base64", 3)
    ],
    Refused(
        {"content": LETTERS, "options": "encoding='ascii'"},
        "must be text in ascii. Got the byte 0xc3 in line 1",
        DataError,
    ),
]
PATIENTS = [
    Refused({"ending": ending, **options}, sentence)
    for ending in ("csv", "parquet")
    for options, sentence in (
        ({"columns": ["bmj"]}, "Got none called 'bmj'. Did you mean 'bmi'?"),
        (
            {"columns": ["glucose"]},
            "^The columns of .* must be there, for all that are asked for. Got none called 'glucose'. Name others, or "
            "mend the file.",
        ),
        ({"beside": ["sit"]}, "Got none called 'sit'. Did you mean 'site'?"),
        ({"columns": "age"}, "^columns must be a list of names. Got 'age'. Write columns=['a', 'b']."),
        ({"beside": 3}, "^beside must be a list of names. Got 3."),
    )
]
PARTITION = [
    *[
        Refused({"text": text}, f"^{sentence}")
        for text, sentence in (
            ("idd", "The partition must be one of contiguous, iid.* Got 'idd'. Did you mean 'iid'?"),
            ("iid(sed=1)", "Every parameter of iid must be among seed. Got 'sed'. Did you mean 'seed'?"),
            ("iid(1, 2)", BY_NAME),
            ("iid(1, seed=2)", BY_NAME),
            ("contiguous(1)", BY_NAME),
            ("dirichlet(0.3)", "The column of dirichlet must be one that the data has beside its rows. Got 'y'."),
            ("by_column", "The parameters of by_column must be complete. Got no column."),
            ("iid(seed=-1)", "seed must be a whole number of at least 0. Got -1."),
            ("by_size", "The parameters of by_size must be complete. Got no sizes. Write by_size(sizes=...)."),
            ("by_size(sizes=[1, 2])", "sizes must be 3 positive numbers, one for each client. Got [1, 2]."),
            ("by_size(sizes=[1, 0, 2])", "sizes must be 3 positive numbers"),
            ("by_size(sizes='abc')", "sizes must be 3 positive numbers"),
            ("power_law(exponent=-1)", "exponent must be a finite number of at least 0 and at most 20. Got -1."),
        )
    ],
    Refused(
        {"text": "contiguous", "n": 3, "clients": 4},
        "^The number of rows must be at least 4, one for each client. Got 3.",
        DataError,
    ),
    Refused(
        {"text": "contiguous", "n": 3, "clients": 0},
        "^The number of clients must be a whole number of at least 1. Got 0.",
    ),
]
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
    "data source": (source, SOURCE),
    "file that is not there": (missing_file, MISSING_FILE),
    "file of text": (text_file, TEXT_FILE),
    "file of patients": (patients_file, PATIENTS),
    "partition": (partitioned, PARTITION),
    "from_frame": (from_frame, FRAME),
    "rows of a client": (local_data, LOCAL),
    "numbers of a masked sum": (bounded, BOUNDED),
    "keys": (nothing_is_written, KEYS),
    "picture": (picture, PICTURE),
    "record of a projection": (Projection.from_record, RECORD),
    "projection": (projection, PROJECTION),
    "ids of rows": (names_of_rows, IDS),
}
