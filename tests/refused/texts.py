"""What files of text refuse, each in its own sentence: their cells, names, marks and lines."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flower_pca import DataError, simulate
from flower_pca.data import partition, sources
from refused import Refused

LETTERS = "größe,gewicht\n1.5,2\n3,4\n"
NUMBERED = np.round(np.random.default_rng(0).standard_normal((30, 3)), 4)
INDEXED = pd.DataFrame(NUMBERED, columns=["age", "bmi", "pulse"]).to_csv()
INDEX = (
    "must be named differently. Got column 1 without a name (it looks like the index that pandas writes). "
    "Leave it out with beside=[''], name the others with columns=[...], or write the file without it.$"
)
TWICE = "a,b,a,c,\n1,2,3,4,\n5,6,7,8,\n"
ENCODED = ".* Choose others with columns=[...], keep these apart with beside=[...], or encode them."
UNLIKE = (
    ("Age", "age", "'age' and 'Age' differ only by case"),
    ("\u0430ge", "age", "'age' and '\u0430ge' only look alike: 'age' has U+0061, '\u0430ge' has U+0430"),
    ("\u00b5g", "\u03bcg", "only look alike: '\u03bcg' has U+03BC, '\u00b5g' has U+00B5"),
)


def numbered(head: str) -> str:
    """Lines of whole numbers below this one."""
    drawn = np.random.default_rng(8).integers(0, 9, (150, head.count(",") + 1))
    return "\n".join([head, *(",".join(map(str, row)) for row in drawn)])


@contextlib.contextmanager
def spec_of_text(content: str | bytes, options: str | None, name: str = "x.csv") -> Iterator[str]:
    """Of a file of these bytes: to be read as it is, or with options."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        yield str(path) if options is None else f"csv(path={str(path)!r}, {options})"


def text_file(content: str | bytes, options: str | None = None, **asked: Any) -> None:
    with spec_of_text(content, options) as spec:
        simulate("krylov", partition.deal(sources.table(spec), "contiguous", 1), n_components=1, **asked)


def rows_of_text(content: str | bytes, options: str | None = None, **asked: Any) -> None:
    with spec_of_text(content, options) as spec:
        simulate("krylov", [sources.make(spec)], n_components=1, **asked)


def array_of_text(content: str | bytes, options: str | None = None) -> None:
    with spec_of_text(content, options) as spec:
        np.asarray(sources.make(spec))


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
            ("a,b\n1 234.5,2\n", "Got '1 234.5' in column a (line 2). Read what .* with thousands=' '."),
            ("a,b,\n1,2,\n", "Got column 3 without a name. .* with beside=[''], or name the "),
            (
                LETTERS.encode("latin-1"),
                "^The data file /.*/x.csv must be text in UTF-8. Got the byte 0xf6 in line 1 (byte 3 of it). "
                "Write csv(path='.*', encoding='latin-1'); of a folder, folder(..., encoding={'x': 'latin-1'}), or the",
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
        {"content": "a,b\n1,2\n", "options": "header='yes'"}, "^header must be one of True, False, None. Got 'yes'."
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
    *[
        Refused({"content": content, "options": options}, sentence, DataError)
        for content, options, sentence in (
            (
                "a;b\n1,5;2\n1.234,5;2\n",
                "decimal=',', thousands=''",
                "must be numbers. Got '1.234,5' in column a (line 3). Read .*='.'",
            ),
            ("a;b\n1,5;2\n12.34,5;2\n", "decimal=','", "must be numbers. Got '12.34,5' in column a (line 3)."),
            (INDEXED, None, INDEX),
            (pd.DataFrame(NUMBERED).to_csv(), None, "clearly names, or clearly values. Got an empty cell and whole n"),
            (TWICE, "columns=['a']", "named differently. Got 'a' more than once. Name them, each"),
            (TWICE, "beside=['a']", "named differently. Got 'a' more than once. Name them, each"),
            *(
                ("a,b,c\n1,2,3\n4,5,6,7\n", options, "^Line 3 of .*x.csv must be of 3 cells, as the first one. Got 4.")
                for options in (None, "columns=['a']", "beside=['b']")
            ),
            ("a,a\n1,2\n", None, "must be named differently. Got 'a' more than once."),
            (
                "age,city,sex,size\n1,Bonn,f,2\n3,Jena,m,4\n",
                None,
                f"x.csv must be numbers. Got 'Bonn' in column city (line 2), 'f' in column sex (line 2).{ENCODED}",
            ),
            ("1,2\nx,4\n", None, "must be numbers. Got 'x' in column 1 (line 2)."),
            ("a,b\n1,2\n\n3\n", None, "^Line 4 of .*x.csv must be of 2 cells, as the first one. Got 1."),
            ("a\n1_000\n", None, "must be numbers. Got '1_000' in column a (line 2)."),
        )
    ],
    Refused({"content": TWICE, "columns": ["b", "a"]}, "Got 'a' more than once", DataError),
    *[
        Refused({"content": "a,b\n1,2\n", "options": options}, "^thousands must be '.', ','.* Write thousands='.'.$")
        for options in ("thousands='_'", "thousands=',', decimal=','")
    ],
    Refused({"content": "a;b\n1;2\n", "options": "sep=';;'"}, "^sep must be one character. Got ';;'"),
    Refused({"content": "who,x\n007,1\n", "options": "ids=3"}, "ids must be the name of a column. Got 3"),
    *[
        Refused({"content": f"{one},b\n1,2\n", "options": f"columns=[{other!r}]"}, f"Got .*{message}")
        for one, other, message in UNLIKE
    ],
]
ROWS_OF_TEXT = [
    *[
        Refused(given, sentence, DataError)
        for given, sentence in (
            ({"content": "a,b\n1,2\n", "options": "beside=['a', 'b']"}, "at least one row and one column"),
            *(
                ({"content": text}, "^The data of client 0, /.*/x.csv, must be at least one row and one col")
                for text in ("", "age,bmi,pulse\n")
            ),
            (
                {"content": "age,bmi,pulse\n1,2,3\n4,nan,6\n3,2,1\n4,5,7\n1,2,inf\n", "missing": "mean"},
                "The first is in line 6 of .*/x.csv, column pulse.",
            ),
            (
                {"content": "age,bmi,site\n1,3,a\n2,1,b\n4,2,c\n"},
                "keep these apart with beside=[...], or encode them.$",
            ),
            ({"content": INDEXED}, INDEX),
        )
    ]
]
ARRAY_OF_TEXT = [
    Refused({"content": INDEXED}, INDEX, DataError),
    Refused(
        {"content": TWICE},
        "must be named differently. Got 'a' more than once, column 5 without a name. Name them, each",
        DataError,
    ),
    Refused({"content": "age,site\n1,Bonn\n"}, "must be numbers. Got .* in column site", DataError),
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "file of text": (text_file, TEXT_FILE),
    "rows of a file of text": (rows_of_text, ROWS_OF_TEXT),
    "array of a file of text": (array_of_text, ARRAY_OF_TEXT),
}
