"""Text files of any encoding: with a byte-order mark, with the encoding that is given, or in UTF-8.

What cannot be decoded is named by its line and its byte, with the option that may read it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from flower_pca.base.errors import ConfigError, DataError

_MARKS: Final = {  # the longer ones first: that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LOOK: Final = 4096  # bytes that are looked at for what a file is
_PACKED: Final = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@contextmanager
def text_of(file: Path, encoding: str | None) -> Iterator[TextIO]:
    """The file, opened as text; the error about bytes that are none says where they are, and what to do."""
    known = None if encoding is None else _known(encoding)
    with file.open("rb") as raw:
        start = raw.read(_LOOK)
    used = next((name for mark, name in _MARKS.items() if start.startswith(mark)), known or "utf-8")
    _require_text(file, start, used, given=known is not None)
    try:
        with file.open(encoding=used, newline="") as lines:
            yield lines
    except UnicodeError as error:
        got = _place(file, used) or f"bytes that are none ({getattr(error, 'reason', error)})"
        other = "utf-8" if used in ("utf-16", "utf-32") else "cp1252" if used == "latin-1" else "latin-1"
        remedy = f"{option(file, encoding=other)}, or the encoding that it has."
        raise DataError(f"The data file {file}", must=f"text in {_words(used)}", got=got, then=remedy) from error


def option(file: Path, **options: Any) -> str:
    """How to read the file with these options, alone or in a folder."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"Write csv(path={str(file)!r}, {given}); of a folder, folder(..., {given})"


def _known(encoding: object) -> str:
    try:
        found = codecs.lookup(encoding if isinstance(encoding, str) else "")
        if not found._is_text_encoding:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:
        rule, remedy = "a name such as 'utf-8', 'latin-1' or 'utf-16'", "Write encoding='latin-1'."
        raise ConfigError("encoding", must=rule, got=repr(encoding), then=remedy) from error
    return "latin-1" if found.name == "iso8859-1" else found.name


def _require_text(file: Path, start: bytes, used: str, *, given: bool) -> None:
    """Refuse a file that is packed, or that has zeros between its letters, as UTF-16 without a mark has."""
    packed = next((name for mark, name in _PACKED.items() if start.startswith(mark)), None)
    if packed is not None:
        raise DataError(f"The data file {file}", must="plain text", got=f"one packed by {packed}", then="Unpack it.")
    if "16" in used or "32" in used or b"\0" not in start:
        return
    remedy = "Mend the line, or name the source by a spec that reads this kind of file."
    if not given and 4 * start.count(0) >= len(start):
        low = start[1::2].count(0) >= start[::2].count(0)
        remedy = f"{option(file, encoding='utf-16-le' if low else 'utf-16-be')} if it is in UTF-16."
    line = start[: start.index(0)].count(b"\n") + 1
    raise DataError(f"The data file {file}", must="text", got=f"a zero byte in line {line}", then=remedy)


def _place(file: Path, used: str) -> str:
    """The first byte that is none of this encoding, and its line; "" where lines cannot be told before decoding."""
    if "16" in used or "32" in used:
        return ""
    with file.open("rb") as raw:
        for number, line in enumerate(raw, 1):
            try:
                line.decode("utf-8" if used == "utf-8-sig" else used)
            except UnicodeError as error:
                at = getattr(error, "start", 0)
                return f"the byte 0x{line[at]:02x} in line {number} (byte {at + 1} of it)"
    return ""


def _words(used: str) -> str:
    return "UTF-8" if used in ("utf-8", "utf-8-sig") else used.upper() if used.startswith("utf") else used
