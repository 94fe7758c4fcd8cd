"""Read text files of any encoding, plain or compressed.

The byte-order mark determines how a file is decoded. Without a mark, the given encoding or UTF-8 is used. If a byte
cannot be decoded, the error names its line, its position in the line, and the option that may help.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.shown import shown
from flower_pca.data.reading import file_ending, file_stem

_MARKS: Final = {  # Longer marks come first, because the mark of UTF-32 begins with the mark of UTF-16.
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# If a file cannot be decoded with the first encoding, the error recommends the second one.
_OTHER: Final = {"utf-16": "utf-8", "utf-32": "utf-8", "latin-1": "cp1252"}
_LOOK: Final = 4096  # number of bytes at the start of a file that are examined to determine its kind
_PACKED: Final = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@contextmanager
def open_text(file: Path, encoding: str | None) -> Iterator[TextIO]:
    """Open the file as text. If a byte cannot be decoded, raise a DataError that names its place and a remedy."""
    usual = _codec_name(encoding) if encoding is not None else "utf-8"
    with open_bytes(file) as raw:
        start = raw.read(_LOOK)
    marked = (name for mark, name in _MARKS.items() if start.startswith(mark))
    used = next(marked, usual)
    _require_text(file, start, used, is_given=encoding is not None)
    try:
        # The csv module needs line ends unchanged, because a quoted cell may contain line ends.
        with open_bytes(file) as raw, io.TextIOWrapper(raw, encoding=used, newline="") as lines:
            yield lines
    except UnicodeError as error:
        got = _place_of_bad_byte(file, used) or f"bytes that are not text ({getattr(error, 'reason', error)})"
        remedy = f"{advice_on_options(file, encoding=_OTHER.get(used, 'latin-1'))}, or name another encoding."
        raise DataError(
            f"The data file {file} is not text in {_shown_encoding(used)}: it has {got}. {remedy}", place=str(file)
        ) from error


@contextmanager
def open_bytes(file: Path) -> Iterator[Any]:
    """Open a text file as bytes. A gzip or zip file is decompressed."""
    kind = file_ending(file)
    if kind.endswith(".gz"):
        with gzip.open(file, "rb") as raw:
            yield raw
    elif kind.endswith(".zip"):
        with zipfile.ZipFile(file) as archive:
            # macOS adds the folder __MACOSX to zip files.
            inside = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
            if len(inside) != 1:
                raise DataError(
                    f"{file} holds {labels.count(len(inside), 'file')}, but a zip file must hold one table. Unpack it, "
                    "or make one zip file per table."
                )
            if archive.getinfo(inside[0]).flag_bits & 1:
                raise DataError(f"{file} is encrypted. Unpack it with its password first.")
            with archive.open(inside[0]) as raw:
                yield raw
    else:
        with file.open("rb") as raw:
            yield raw


def advice_on_options(file: Path, **options: Any) -> str:
    """Return advice that shows how to read the file with these options, alone or as part of a folder."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    of_this = ", ".join(f"{name}={ {file_stem(file): value}!r}" for name, value in options.items())
    return f"Write csv(path={str(file)!r}, {given}); for a folder, folder(..., {of_this})"


def _codec_name(encoding: object) -> str:
    try:
        if not isinstance(encoding, str):
            raise LookupError(encoding)
        found = codecs.lookup(encoding)
        # Python also knows codecs such as hex and zip, which do not produce text.
        if not found._is_text_encoding:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"encoding is {shown(encoding)}, but it must be the name of an encoding, such as 'utf-8', 'latin-1' or "
            "'utf-16'. For example, write encoding='latin-1'.",
            setting="encoding",
            value=encoding,
        ) from error
    return {"iso8859-1": "latin-1"}.get(found.name, found.name)


def _require_text(file: Path, start: bytes, encoding: str, *, is_given: bool) -> None:
    """Raise a DataError for a compressed file, or for a file with zero bytes, such as UTF-16 text without a mark."""
    marked = (name for mark, name in _PACKED.items() if start.startswith(mark))
    packed = next(marked, None)
    if packed is not None:
        raise DataError(f"The data file {file} is compressed with {packed}. Unpack it.", place=str(file))
    # In these encodings, zeros are part of letters.
    if "16" in encoding or "32" in encoding or b"\0" not in start:
        return
    remedy = "Correct the line, or name the source with a spec that reads this kind of file."
    # In UTF-16, every other byte of Latin text is zero. If there are only a few zeros, a line is damaged.
    if not is_given and 4 * start.count(0) >= len(start):
        order = "utf-16-be"
        # In little-endian order, the zero is the second byte of a letter.
        if start[1::2].count(0) >= start[::2].count(0):
            order = "utf-16-le"
        remedy = f"{advice_on_options(file, encoding=order)} if it is in UTF-16."
    line = start[: start.index(0)].count(b"\n") + 1
    raise DataError(
        f"The data file {file} has a zero byte in line {line}, so it is not text. {remedy}", place=str(file)
    )


def _place_of_bad_byte(file: Path, encoding: str) -> str:
    """Describe the first byte that is invalid in this encoding, with its line.

    Return "" if there is no such byte, and always for UTF-16 and UTF-32.
    """
    if "16" in encoding or "32" in encoding:
        return ""
    with open_bytes(file) as raw:
        for number, line in enumerate(raw, 1):
            try:
                # Decode without "-sig", because the byte-order mark counts in the position of a byte.
                line.decode(encoding.removesuffix("-sig"))
            except UnicodeError as error:
                at = getattr(error, "start", 0)
                return f"the byte 0x{line[at]:02x} in line {number} (byte {at + 1} of the line)"
    return ""


def _shown_encoding(encoding: str) -> str:
    if encoding.startswith("utf"):
        return encoding.removesuffix("-sig").upper()
    return encoding
