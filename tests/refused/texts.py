"""Refusals of text files: their cells, names, marks and lines."""

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
    "but there is column 1 without a name (it looks like the index that pandas writes). Leave it "
    "out with beside=[''], name the other columns with columns=[...], or write the file without it.$"
)
TWICE = "a,b,a,c,\n1,2,3,4,\n5,6,7,8,\n"
ENCODED = ".*hoose other columns with columns=[...], read these columns separately with beside=[...], or encode them."
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
            ("", "^The data file /.*/x.csv has no rows. Correct it, or remove it."),
            ("a,b\n", "The data file /.*/x.csv has no rows. Correct it, or remove it."),
            (
                "# of 2026\na,b\n1,2\n",
                "^Line 2 of /.*/x.csv has 2 cells, but the first line has 1. Correct the line, or remove the lines "
                "above the names.",
            ),
            (
                'a,b\n1,2\n\n3,"4\n5,6\n7",8\n',
                "^Line 4 of /.*/x.csv has 3 cells, but the first line has 2. Close its quotation marks, because the "
                "record continues to line 6.",
            ),
            (f"a,b\n1,{'x' * 99}\n", "there is a long text in column b (line 2)."),
            (
                "a,b\n1,2\n3,\0\n",
                "The data file /.*/x.csv has a zero byte in line 3, so it is not text. Correct the line, or name the "
                "source with a spec that reads this kind of file.",
            ),
            (
                "a,b\n1 234.5,2\n",
                "there is a number with separators of thousands in column a (line 2). Read thousands "
                "separators with thousands=' '.",
            ),
            ("a,b,\n1,2,\n", "but there is column 3 without a name. .* with beside=[''], or name the "),
            (
                LETTERS.encode("latin-1"),
                "^The data file /.*/x.csv is not text in UTF-8: it has the byte 0xf6 in line 1 (byte 3 of the line). "
                "Write csv(path='/.*/x.csv', encoding='latin-1'); for a folder, folder(..., "
                "encoding={'x': 'latin-1'}), or name another encoding.",
            ),
            (
                b"a,b\n1,2\n3,\xe94\n",
                "The data file /.*/x.csv is not text in UTF-8: it has the byte 0xe9 in line 3 (byte 3 of the line). "
                "Write csv(path='/.*/x.csv', encoding='latin-1'); for a folder, folder(..., "
                "encoding={'x': 'latin-1'}), or name another encoding.",
            ),
            (
                LETTERS.encode("utf-16-le"),
                "The data file /.*/x.csv has a zero byte in line 1, so it is not text. Write csv(path='/.*/x.csv', "
                "encoding='utf-16-le'); for a folder, folder(..., encoding={'x': 'utf-16-le'}) if it is in UTF-16.",
            ),
            (
                LETTERS.encode("utf-16") + b"\0",
                "The data file /.*/x.csv is not text in UTF-16: it has bytes that are not text (truncated data). "
                "Write csv(path='/.*/x.csv', encoding='utf-8'); for a folder, folder(..., encoding={'x': 'utf-8'}), "
                "or name another encoding.",
            ),
            (b"\x1f\x8b\x08\x00", "The data file /.*/x.csv is compressed with gzip. Unpack it."),
            (b"PK\x03\x04\x14\x00", "The data file /.*/x.csv is compressed with zip. Unpack it."),
            *(
                (numbered(head), f"may be names or values: it has numbers .*{words}")
                for head, words in (
                    ("1,2,3,5,6", "go up"),
                    ("6,5,3,2,1", "go down"),
                    ("1,3,5,7", "go in equal steps"),
                    ("900,900,-900", "far from the numbers below"),
                )
            ),
        )
    ],
    *[
        Refused(
            {"content": "a,b,c\n1.5,2,3\n", "options": options},
            "/.*/x.csv was read with the separator ';', but its first line uses ','. Write "
            "csv(path='/.*/x.csv', sep=','); for a folder, folder(..., sep={'x': ','}), or leave sep and decimal out.",
            DataError,
        )
        for options in ("sep=';'", "sep=';', decimal=','", "decimal=','")
    ],
    Refused({"content": "a,b\n1,2\n", "options": "header='yes'"}, "^header must be True, False or None, not 'yes'."),
    Refused(
        {"content": "1.5,2.5\n3.5,1\n", "options": "columns=['age']"},
        "/.*/x.csv has no column 'age'. Its columns have no names, only numbers from 1 to 2.",
    ),
    Refused(
        {"content": "a;b\n3,14;2,7\n", "options": "sep=','"},
        "Write csv(path='.*', sep=';', decimal=','); for a folder, .*leave sep out",
        DataError,
    ),
    Refused(
        {"content": "a;b\n3,14;2,7\n", "options": "decimal='.'"},
        "there is a number with a comma in column a (line 2).* Read decimal commas with decimal=','.",
        DataError,
    ),
    Refused(
        {"content": "a;b\n3,14;2,7\n", "options": "decimal=';'"},
        "^decimal is ';', but it must be '.' or ','. For example, write decimal=','.",
    ),
    *[
        Refused(
            {"content": LETTERS, "options": f"encoding={name!r}"},
            "^encoding is .*, but it must be the name of an encoding, such as 'utf-8', .* write encoding='latin-1'",
        )
        for name in ("latin-17", "base64", 3)
    ],
    Refused(
        {"content": LETTERS, "options": "encoding='ascii'"},
        "The data file /.*/x.csv is not text in ascii: it has the byte 0xc3 in line 1 (byte 3 of the line). Write "
        "csv(path='/.*/x.csv', encoding='latin-1'); for a folder, folder(..., encoding={'x': 'latin-1'}), or "
        "name another encoding.",
        DataError,
    ),
    *[
        Refused({"content": content, "options": options}, sentence, DataError)
        for content, options, sentence in (
            (
                "a;b\n1,5;2\n1.234,5;2\n",
                "decimal=',', thousands=''",
                "must hold numbers, but there is a number with separators of thousands in column a (line "
                "3). Read .*='.'",
            ),
            (
                "a;b\n1,5;2\n12.34,5;2\n",
                "decimal=','",
                "must hold numbers, but there is a number in an unknown form in column a (line 3).",
            ),
            (
                "a;b\n1,5;2\n3.5;2\n",
                "decimal=','",
                "must hold numbers, but there is a number in an unknown form in column a (line 3). Choose other ",
            ),
            (INDEXED, None, INDEX),
            (
                pd.DataFrame(NUMBERED).to_csv(),
                None,
                "The first line of /.*/x.csv may be names or values: it has an empty cell and different whole "
                "numbers. Write csv(path='/.*/x.csv', header=True) or header=False, whichever is "
                "right. For a folder, write folder(..., header=True).",
            ),
            (TWICE, "columns=['a']", "but there is 'a' more than once. Give each a different name"),
            (TWICE, "beside=['a']", "but there is 'a' more than once. Give each a different name"),
            *(
                (
                    "a,b,c\n1,2,3\n4,5,6,7\n",
                    options,
                    "^Line 3 of /.*/x.csv has 4 cells, but the first line has 3. Correct the line, or remove the "
                    "lines above the names.",
                )
                for options in (None, "columns=['a']", "beside=['b']")
            ),
            ("a,a\n1,2\n", None, "but there is 'a' more than once."),
            (
                "age,city,sex,size\n1,Bonn,f,2\n3,Jena,m,4\n",
                None,
                "x.csv must hold numbers, but there is a text of 4 letters in column city (line 2), a "
                "text of 1 letter in column sex (line "
                f"2).{ENCODED}",
            ),
            ("1,2\nx,4\n", None, "must hold numbers, but there is a text of 1 letter in column 1 (line 2)."),
            ("a,b\n1,2\n\n3\n", None, "^Line 4 of /.*/x.csv has 1 cell, but the first line has 2. Correct the line."),
            ("a\n1_000\n", None, "must hold numbers, but there is a number in an unknown form in column a (line 2)."),
        )
    ],
    Refused({"content": TWICE, "columns": ["b", "a"]}, "but there is 'a' more than once", DataError),
    *[
        Refused(
            {"content": "a,b\n1,2\n", "options": options},
            "^thousands is '.*', but it must be '.', ',', .* differ from decimal. .* write thousands=' ', or .* out.$",
        )
        for options in ("thousands='_'", "thousands=',', decimal=','")
    ],
    Refused(
        {"content": "a;b\n1;2\n", "options": "sep=';;'"},
        "^sep is ';;', but it must be one character. For example, write sep=';'.",
    ),
    Refused(
        {"content": "who,x\n007,1\n", "options": "ids=3"},
        'ids is 3, but it must be the name of a column. For example, write ids="patient".',
    ),
    *[
        Refused(
            {"content": f"{one},b\n1,2\n", "options": f"columns=[{other!r}]"},
            f"x.csv has no column {other!r}. .*{message}",
        )
        for one, other, message in UNLIKE
    ],
]
ROWS_OF_TEXT = [
    *[
        Refused(given, sentence, DataError)
        for given, sentence in (
            ({"content": "a,b\n1,2\n", "options": "beside=['a', 'b']"}, "has no columns"),
            *(({"content": text}, "^The data of client 0, /.*/x.csv, has no ") for text in ("", "age,bmi,pulse\n")),
            (
                {"content": "age,bmi,pulse\n1,2,3\n4,nan,6\n3,2,1\n4,5,7\n1,2,inf\n", "missing": "mean"},
                "The first is in line 6 of .*/x.csv, column pulse.",
            ),
            (
                {"content": "age,bmi,site\n1,3,a\n2,1,b\n4,2,c\n"},
                "read these columns separately with beside=[...], or encode them.$",
            ),
            ({"content": INDEXED}, INDEX),
        )
    ]
]
ARRAY_OF_TEXT = [
    Refused({"content": INDEXED}, INDEX, DataError),
    Refused(
        {"content": TWICE},
        "but there is 'a' more than once, column 5 without a name. Give each a different name",
        DataError,
    ),
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "file of text": (text_file, TEXT_FILE),
    "rows of a file of text": (rows_of_text, ROWS_OF_TEXT),
    "array of a file of text": (array_of_text, ARRAY_OF_TEXT),
}
