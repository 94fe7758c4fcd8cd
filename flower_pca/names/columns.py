"""Compare the columns of tables by their names, which are unique texts, or by a digest of the sorted names.

Named columns are used in sorted order, whatever their order in a file. If a run names its columns, they are used in the
order of the run. So clients whose files order the columns differently agree without a message, and the server need not
see a name. A client describes its columns to others by a `Heading`, whose digest is enough to compare columns.

All interfaces compare columns with this module, so their errors have the same text. `Heading.mismatch` compares two
tables that must have the same columns, and `missing_columns` checks that a table has certain columns.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, ConfigError, DataError, FlowerPCAError, ProtocolError
from flower_pca.base.labels import (
    INDEX,
    clean_name,
    clean_names,
    describe_difference,
    describe_duplicate,
    join_with_and,
    join_with_or,
)
from flower_pca.base.linalg import Array
from flower_pca.base.options import Sentence, advice_to_read_apart, option, reader_argument
from flower_pca.base.shown import kind_of_cell, shown
from flower_pca.names import ids, variants
from flower_pca.names.identifiers import is_called_identifier

COLUMNS: Final = "columns"  # the key for the names of columns in a message
E = TypeVar("E", bound=FlowerPCAError)

_COUNT, _DIGEST, _PEOPLE = "columns.count", "columns.digest_of_names", "columns.people"
LONGEST: Final = 200  # maximum length of a name that may be sent
_SHORT: Final = 2**12  # Lists of names with at most this many characters are sent without compression.
# A compressed list of names may expand to at most this many times its length, so that a short message cannot fill the
# memory.
_DENSEST: Final = 16
_MOST: Final = 20  # maximum number of names in the list of an error or a hint
_LISTED: Final = option("columns", ["..."])
_AMONG: Final = " among numbers"
# This pattern matches descriptions of unusable columns that quote a word, or that begin with "text" because cells are
# not shown. Numbers with a decimal comma and pandas types do not match.
_TEXT: Final = re.compile(r"(text\b|['\"](?![-+]?\d|datetime|timedelta|period|complex))")
_CELL: Final = re.compile(r"(['\"])([^\d'\"…]+)\1 in column ")  # a description of a bad cell that holds a word
# A description of a bad cell that holds only a number with separators of thousands. "13.543 %" has none.
_THOUSANDS: Final = re.compile(r"['\"][-+]?\d{1,3}([., '])\d{3}\b[\d., ']*['\"] in column ")
# Files whose cells have types, so they are read without a decimal mark or separators of thousands
_TYPED: Final = re.compile(r"\.(xlsx|xlsm|xlsb|xls|ods|sav|zsav|dta|sas7bdat|xpt)$", re.IGNORECASE)
# A description of a bad cell begins with its content, which no message shows.
_QUOTED: Final = re.compile(r"(?P<cell>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(?P<rest> in column .*)", re.DOTALL)
_PLACE: Final = re.compile(rf"\(((?:line|row) [\d,]+)\)(?:{_AMONG})?$")  # the place at the end of a description
# These words stand for missing values, so they say nothing about a person. Nor do signs.
_SAY_NOTHING: Final = {
    "unknown", "missing", "none", "nil", "nd", "n.d.", "n.a.", "not known", "not available", "not done", "pending",
    "unbekannt", "fehlt", "fehlend", "k.a.", "ka", "keine angabe", "nicht bekannt", "nicht gemessen", "ausstehend",
    "inconnu", "desconocido",
}  # fmt: skip
_ALIKE: Final = 3  # If more columns hold the same word for missing values, an error describes only the first.
_MOST_TEXTS: Final = 5  # If more columns hold text, the error does not suggest to use them as categories.
# If at most one cell in this many is a word, words are taken for typing errors. Otherwise, the column holds words.
_RARE: Final = 20


@dataclass(frozen=True)
class ColumnNames:
    """The names of the columns of a table, in their order.

    Parameters
    ----------
    names : tuple of str
        The names, which must be unique texts.
    who : str, default="the rows"
        The owner of the columns, for messages.
    """

    names: tuple[str, ...]
    who: str = "the rows"

    def __post_init__(self) -> None:
        # A table may have a million names, and a loop over them takes far longer than this check.
        if {*map(type, self.names)} != {str} or "" in self.names:
            for name in self.names:
                if not isinstance(name, str) or not name:
                    raise DataError(
                        f"{shown(name)} is not a valid column name of {self.who}, because names must be text. Rename "
                        "the column, or give an array without names."
                    )
        if twice := describe_duplicates(self.names):
            raise DataError(f"The columns of {self.who} have the same name: {twice}. Rename them.")

    @functools.cached_property
    def sorted_names(self) -> tuple[str, ...]:
        """The names sorted by code points, an order that is the same on every machine."""
        return tuple(sorted(self.names))

    @functools.cached_property
    def heading(self) -> Heading:
        """The heading of these columns, with their names."""
        return Heading(len(self.names), digest_of_names(self.names), self.sorted_names)

    def positions_of(self, wanted: Sequence[str], words: Mapping[str, str] | None = None) -> Array:
        """Return the positions of the wanted columns among these columns.

        Parameters
        ----------
        wanted : sequence of str
            The names of the wanted columns.
        words : mapping or None, default=None
            Descriptions of further columns that hold no numbers, by name.

        Raises
        ------
        DataError
            If a wanted column does not exist, or holds no numbers.
        """
        place = dict(zip(self.names, range(len(self.names)), strict=True))
        positions = list(map(place.get, wanted))
        if None in positions:
            absent = [name for name in wanted if name not in place]
            for name in absent:
                if words and name in words:
                    raise unusable_columns_error(self.who, {name: words[name]}, file=False)
            got = f"{enumeration(map(repr, absent))}, only {enumeration(self.names)}"
            remedy = "Add them, or name other columns."
            if near := describe_difference(absent, self.names):
                remedy = f"{near}: rename one of them."
            raise DataError(f"The columns of {self.who} do not include {got}. {remedy}")
        return np.array(positions, dtype=np.int64)


@dataclass(frozen=True)
class ColumnMismatch:
    """The reason why columns do not match (`why`), and the remedy (`then`)."""

    why: str
    then: str

    def __str__(self) -> str:
        return Sentence(f"{self.why} {self.then}")

    def error(self, kind: type[E], remedy: str = "") -> E:
        """Return an error of class `kind` with this reason, and with the remedy if it is given."""
        return kind(f"{self.why} {remedy or self.then}")


@dataclass(frozen=True)
class Heading:
    """A description of a client's columns, which the client sends to the server.

    Attributes
    ----------
    count : int
        The number of columns.
    digest : str
        The digest of the sorted names, or "" if the columns have no names.
    names : tuple of str or None
        The sorted names. None if the columns have no names, or if the client does not send the names.
    people : bool
        Whether the heading describes people instead of columns, in a run whose parties hold different columns. Then
        `count` is the number of people, and `digest` the digest of their ids.
    """

    count: int
    digest: str = ""
    names: tuple[str, ...] | None = None
    people: bool = False

    @classmethod
    def of_names(cls, names: Sequence[str] | None, count: int) -> Heading:
        """Return the heading of columns with these names, or of `count` columns without names."""
        if names is None or not len(names):
            return cls(count)
        return cls(len(names), digest_of_names(names), tuple(sorted(names)))

    def has_same_columns(self, other: Heading) -> bool:
        """Return whether both headings have the same number of columns and the same digest."""
        return self is other or (self.count, self.digest) == (other.count, other.digest)

    def without_names(self) -> Heading:
        """Return the heading without the names."""
        return replace(self, names=None)

    def to_plain(self) -> dict[str, int | str | bytes]:
        """Return the heading as numbers and text, which are sent with a reply."""
        plain: dict[str, int | str | bytes] = {_COUNT: self.count, _DIGEST: self.digest}
        if self.names is not None:
            plain[COLUMNS] = write_names(self.names)
        if self.people:
            plain[_PEOPLE] = True
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Heading | None:
        """Restore a heading from the dictionary that `to_plain` returned. Return None if it contains no heading.

        Raises
        ------
        ProtocolError
            If the heading is invalid, or if the digest is not the digest of the names.
        """
        if _COUNT not in plain:
            return None
        count = plain[_COUNT]
        known = plain.get(_DIGEST, "")
        names = read_names("An answer", plain, OTHER_CLIENT)
        counted = isinstance(count, int) and count >= 0
        right = counted and isinstance(known, str) and len(known) <= LONGEST
        # Headings are compared by digest only, so the names must match the digest.
        if not right or (names is not None and (len(names) != count or digest_of_names(names) != known)):
            raise ProtocolError(f"The columns of an answer do not match its digest. {OTHER_CLIENT}")
        return cls(count, str(known), names, bool(plain.get(_PEOPLE, False)))

    def with_names_from(self, other: Heading | None) -> Heading:
        """Return the other heading if there is one and this heading has no names. Otherwise, return this heading."""
        if self.names is None and other is not None:
            return other
        return self

    def mismatch(self, who: str, others: Heading, whose: str = "the run") -> ColumnMismatch:
        """Describe how these columns differ from the columns that they should match."""
        if self.people:
            why, then = ids.describe_mismatch(who, (self.count, self.digest), (others.count, others.digest))
            return ColumnMismatch(why, then)
        theirs = f"the {others.count} of {whose}"
        if bool(self.digest) != bool(others.digest):
            theirs += ", which have names" if others.digest else ", which have no names"
        return ColumnMismatch(
            f"The columns of {who} do not fit: {self._difference_in_words(others)} instead of {theirs}.",
            self._remedy(others),
        )

    def _difference_in_words(self, others: Heading) -> str:
        here = f"there {'is' if self.count == 1 else 'are'} {self.count}"
        if bool(self.digest) != bool(others.digest):
            return f"{here} {'with' if self.digest else 'without'} names"
        if not self.digest:
            return here
        if self.names is None or others.names is None:
            return f"{here} with other names"
        return f"{here}, {difference(self.names, others.names)},"

    def _remedy(self, others: Heading) -> str:
        if bool(self.digest) != bool(others.digest):
            return "Give column names at all clients, or at none of them."
        if self.names is None or others.names is None:
            return "Give all clients the same columns."
        if set(self.names) > set(others.names):
            return f"Name the columns of the run ({_LISTED}), or give all files the same columns."
        if any(map(variants.lacks_allele, {*self.names} ^ {*others.names})):
            return (
                "A .bim file writes 0 for an allele that nobody at the site has. Give all sites the same list of "
                "variants: bed(path=..., variants=...)."
            )
        if set(self.names).isdisjoint(others.names) and len(self.names) > 1:
            return (
                "If each column is a sample, transpose the files, because a row must be a sample. Otherwise, give all "
                "files the same columns."
            )
        return "Give all files the same columns."


def majority_heading(headings: Iterable[Heading]) -> Heading:
    """Return the most common heading, with names if a client sent them.

    In a tie, return the first of the most common headings. Without any heading, return the heading of no columns.
    """
    every = list(headings)
    if not every:
        return Heading(0)
    usual = every[position_of_majority(every)]
    same = (heading for heading in every if heading.has_same_columns(usual))
    return next((heading for heading in same if heading.names is not None), usual.without_names())


def position_of_majority(headings: Iterable[Heading]) -> int:
    """Return the position at which the most common heading occurs first. There must be at least one heading."""
    kinds = [(heading.count, heading.digest) for heading in headings]
    votes = Counter(kinds)
    return kinds.index(max(votes, key=votes.__getitem__))


def missing_columns(
    who: str, wanted: Iterable[str], names: Sequence[str], other_columns: Iterable[str] = (), needed_by: str = "the run"
) -> ColumnMismatch | None:
    """Describe which wanted columns are missing, or return None if no column is missing.

    Parameters
    ----------
    who : str
        The owner of the columns, for messages.
    wanted : iterable of str
        The names of the wanted columns.
    names : sequence of str
        The names of the existing columns.
    other_columns : iterable of str, default=()
        The names of columns that exist but cannot be used.
    needed_by : str, default="the run"
        A phrase for what needs the columns.
    """
    there = {*names, *other_columns}
    absent = [name for name in wanted if name not in there]
    if not absent:
        return None
    got = enumeration(map(repr, absent))
    if near := describe_difference(absent, there):
        got = f"{got} ({near})"
    return ColumnMismatch(f"The columns of {who} lack {got}, which {needed_by} needs.", "Name other columns.")


def mismatch_without_names(who: str, count: int) -> ColumnMismatch:
    """Return the mismatch of columns without names in a run that names its columns."""
    return ColumnMismatch(
        f"The run names its columns, but the {count} columns of {who} have no names.", "Give data with column names."
    )


def mismatch_of_subset(who: str, wanted: Sequence[str], names: Sequence[str]) -> ColumnMismatch | None:
    """Return the mismatch if a run names only some of the columns of a site that sends no names, else None.

    An answer to this run would confirm that guessed names are right.
    """
    if set(wanted) == set(names):
        return None
    return ColumnMismatch(
        f"{who} does not share its column names, so a run can use either all of its columns by name or none. This run "
        f"names {len(wanted)}, but {who} has {len(names)}.",
        "Name all columns of the site, or leave columns out.",
    )


def digest_of_names(names: Iterable[str]) -> str:
    """Return the SHA-256 digest of the sorted names."""
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()


@functools.lru_cache(maxsize=2)
def write_names(names: tuple[str, ...]) -> str | bytes:
    """Return names of columns in the form in which they are sent: as JSON, compressed with zlib if it is long.

    Each message to each node contains the names. Without compression, the names of 60,000 variants would take a fifth
    of a message. A list is not compressed if a receiver would refuse it because it expands too much.
    """
    text = json.dumps(names)
    if len(text) <= _SHORT:
        return text
    packed = zlib.compress(text.encode())
    return packed if len(text) <= _DENSEST * len(packed) else text


def read_names(who: str, plain: Mapping[str, Any], remedy: str = OTHER_SERVER) -> tuple[str, ...] | None:
    """Return the names of columns in a message from another machine, or None if the message has no names.

    The names were written by `write_names`. `remedy` is the advice in the error.

    Raises
    ------
    ProtocolError
        If the names are invalid.
    """
    if COLUMNS not in plain:
        return None
    try:
        text = plain[COLUMNS]
        if isinstance(text, bytes):
            text = zlib.decompressobj().decompress(text, max(_DENSEST * len(text), 1))
        names = json.loads(text)
    # A malicious sender may nest brackets so deeply that Python raises a RecursionError.
    except (TypeError, ValueError, RecursionError, zlib.error):
        names = None
    texts = isinstance(names, list) and all(isinstance(name, str) and 0 < len(name) <= LONGEST for name in names)
    # Names are cleaned when rows are read, so a name that is not clean cannot belong to a column.
    odd = bool(texts) and any(name != clean_name(name) for name in names)
    if not texts or not names or len(set(names)) < len(names) or odd:
        rule = f"different names of at most {LONGEST} characters"
        if odd:
            rule = f"{rule}, in normal form (NFC) and without control characters"
        raise ProtocolError(f"The columns of {who.lower()} need {rule}. {remedy}")
    return tuple(names)


def difference(names: Sequence[str], others: Sequence[str]) -> str:
    """Describe which names are only in the first list, and which names are only in the second list."""
    here, there = set(names), set(others)
    absent = [name for name in others if name not in here]
    beyond = [name for name in names if name not in there]
    parts = []
    if absent:
        parts.append(f"without {enumeration(map(repr, absent))}")
    if beyond:
        parts.append(f"with {enumeration(map(repr, beyond))} in addition")
    words = " and ".join(parts)
    if near := describe_difference(absent, beyond):
        return f"{words} ({near})"
    return words


def unusable_columns_error(who: object, words: Mapping[str, str], *, file: bool = True) -> DataError:
    """Return the error about unusable columns, with their names and the place of a cell that is not a number.

    A column is unusable if it holds words, has no name, or shares its name with another column. If the rows are from a
    `file`, the error also advises how to declare these columns as label columns.
    """
    what = f"The columns of {who}"
    if odd := [bad for name, bad in words.items() if has_unusable_name(name, bad)]:
        kept = f" {reader_argument('beside', [''])}, or" if "" in words and len(odd) == 1 else ":"
        remedy = f"Give each a different name, or leave them out{kept} name the other columns with {_LISTED}."
        if INDEX in odd:
            without = f"Leave it out {reader_argument('beside', [''])}, name the other columns with {_LISTED}"
            remedy = without + ", or write the file without it."
        return DataError(f"The columns of {who} must have different names, but there is {enumeration(odd)}. {remedy}")
    between = {found[1] for word in words.values() if (found := _THOUSANDS.search(word))}
    coded = _coded(words)
    others = [name for name in words if name not in coded] or list(words)
    remedy = f"Choose other columns with {_LISTED}, or encode them."
    if file:
        remedy = f"Choose other columns with {_LISTED}, {advice_to_read_apart(others)}, or encode them."
    of_words = [name for name in others if _TEXT.match(words[name]) and not words[name].endswith(_AMONG)]
    # An identifier is no category, because every row has a different value.
    texts = [name for name in of_words if not is_called_identifier(name)]
    if texts and not between and len(texts) <= _MOST_TEXTS:
        if len(texts) == len(others) == len(words):
            which = "these are"
        else:
            which = f"columns {join_with_and(texts)} hold" if len(texts) > 1 else f"column {texts[0]} holds"
        remedy = f"If {which} categories, use {option('categorical', texts)}. Otherwise, c{remedy[1:]}"
    if coded and file:
        # The word is not the end of the sentence, because a full stop would look like a part of it.
        often = _recurring(words, coded)
        named = sorted({word if word in often or _says_nothing(word) else "..." for word in coded.values()})
        gaps = f"{reader_argument('gaps', named)} to mark them as missing"
        cells = f"cells with {join_with_or([_shown_cell(word, word in often) for word in sorted({*coded.values()})])}"
        remedy = (
            f"Correct these cells, or empty them if they stand for a missing value, or read the data {gaps}. {remedy}"
        )
        if len(coded) < len(words):
            remedy = remedy.replace("these cells", cells, 1)
    elif all(word.endswith(_AMONG) for word in words.values()):
        remedy = "Correct these cells, or empty them if they stand for a missing value. " + remedy
    shown = [without_cell(word) for word in words.values()]
    lines = {found[1] for word in shown if (found := re.search(r"\(line ([\d,]+)\)", word))}
    if len(words) > 1 and len(lines) == 1 and all(word.endswith(_AMONG) for word in words.values()):
        remedy = f"Remove line {next(iter(lines))} if it holds names or units. {remedy}"
    for sign, signs in (("a unit", "units"), ("a percent sign", "percent signs")):
        if any(word.startswith(f"a number with {sign} ") for word in shown):
            remedy = f"Remove the {signs}, so that the cells hold numbers only. {remedy}"
    commas = any(re.search(r"'[-+]?\d*,\d+'", word) for word in words.values())
    typed = file and _TYPED.search(str(who))
    if any(word.startswith("a number stored as text ") for word in shown) or (typed and (commas or between)):
        program = " in the program that wrote the file" if typed else ""
        remedy = f"Turn these cells from text into numbers{program}. {remedy}"
    if commas and not typed:
        remedy = f"Read decimal commas {reader_argument('decimal', ',')}. {remedy}"
    if between and not typed:
        remedy = f"Read thousands separators {reader_argument('thousands', min(between))}. {remedy}"
    return DataError(f"{what} must hold numbers, but there is {enumeration(_grouped(words, coded))}. {remedy}")


def _coded(words: Mapping[str, str]) -> dict[str, str]:
    """Return the columns in which a single word may stand for missing values, with this word.

    The word is rare among the numbers of at least one column. If there are more than two such words, they are something
    else, such as a second line of names.
    """
    found = {name: match[2] for name, word in words.items() if (match := _CELL.match(word))}
    rare = {word for name, word in found.items() if words[name].endswith(_AMONG)}
    return {name: word for name, word in found.items() if word in rare} if len(rare) <= 2 else {}


def _grouped(words: Mapping[str, str], coded: Mapping[str, str]) -> list[str]:
    """Return the descriptions of bad columns. Of many columns with the same coded word, only the first is described."""
    shown: list[str] = []
    said: set[str] = set()
    number, often = Counter(coded.values()), _recurring(words, coded)
    for name, described in words.items():
        word = coded.get(name)
        if word not in often:
            shown.append(without_cell(described))
        elif word not in said:
            said.add(word)
            shown.append(f"{described.removesuffix(_AMONG)} and in {number[word] - 1} more columns")
    return shown


def _recurring(words: Mapping[str, str], coded: Mapping[str, str]) -> set[str]:
    """Return the words that are codes, because they occur in many columns and not only in the row of one person."""
    number, rows = Counter(coded.values()), set()
    for name, word in coded.items():
        if found := _PLACE.search(words[name]):
            rows.add((word, found[1]))
    several = Counter(word for word, _ in rows)
    return {word for word in number if number[word] > _ALIKE and several[word] > 1}


def without_cell(described: str) -> str:
    """Return the description of a bad column with the kind of its cell in place of the content."""
    found = _QUOTED.fullmatch(described)
    return described if found is None else _shown_cell(ast.literal_eval(found["cell"])) + found["rest"]


def _shown_cell(cell: str, code: bool = False) -> str:
    """Return a cell in quotation marks if it is a code, and otherwise the kind of the cell."""
    return repr(cell) if code or _says_nothing(cell) else kind_of_cell(cell)


def _says_nothing(cell: str) -> bool:
    """Return whether the content of a cell stands for a missing value, and so may be shown."""
    text = cell.strip()
    return text.casefold() in _SAY_NOTHING or (len(text) <= _ALIKE and not any(map(str.isalnum, text)))


def among_numbers(words: str, *, bad: int, total: int) -> str:
    """Add "among numbers" to the description of a bad cell if few cells are bad: at most 1 in 20 (`bad` of `total`)."""
    if bad * _RARE > total:
        return words
    return words + _AMONG


def has_unusable_name(name: str, bad: str) -> bool:
    """Return whether a column is unusable because its name is missing or not unique. `bad` describes the fault."""
    return not name or bad == describe_duplicate(name)


def split_names(columns: Any) -> tuple[str, ...] | None:
    """Return the columns that a run names in a list or in a text with commas, in order. Return None for None.

    Raises
    ------
    ConfigError
        If `columns` is not a list of names, or if a name occurs twice.
    """
    if columns is None:
        return None
    given: Any = columns
    if isinstance(columns, str):
        given = columns.split(",")
    names: tuple[Any, ...] = ()
    if isinstance(given, list | tuple | np.ndarray):
        names = tuple(given)
        if all(isinstance(name, str) for name in names):
            names = clean_names(names)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"{option('columns')} must be a list of column names, not {shown(columns)}. Write "
            f"{option('columns', ['a', 'b'])}.",
            setting="columns",
        )
    if twice := describe_duplicates(names):
        raise ConfigError(f"{option('columns')} has {twice}. Name each column once.", setting="columns")
    return names


def enumeration(words: Iterable[str]) -> str:
    """Return the words as a list for a message. After `_MOST` words, give only the number of further words."""
    every = list(words)
    shown = ", ".join(every[:_MOST])
    if len(every) <= _MOST:
        return shown
    return f"{shown} and {len(every) - _MOST} more"


def describe_duplicates(names: Iterable[str]) -> str:
    """Describe which names occur more than once. Return "" if all names are different."""
    every = list(names)
    if len({*every}) == len(every):  # A table may have a million names, and counting them takes longer.
        return ""
    twice = [name for name, count in Counter(every).items() if count > 1]
    return enumeration(describe_duplicate(name) for name in twice)
