"""Match the rows of parties that hold different columns of the same people, by the ids of the rows.

Ids are unique texts, and each party sorts its rows by id. So tables may differ in the order of rows, and no id is sent.
Each party sends a single digest of all of its ids, which is salted by the run and slow to compute: see `digest_of_ids`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError, marked_private
from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array

# This is the cost parameter of scrypt. A guess takes 16 MB of memory and about a twentieth of a second.
_SLOW: Final = 2**14
_WHOLE: Final = re.compile(r"\s*(?:-(?=0))?(0|-?[1-9]\d*)[.,]0\s*")  # a whole number as text, with one decimal


class Ids(tuple[str, ...]):
    """Ids in the form in which they are compared: see `texts`."""

    __slots__ = ()


def texts(values: Iterable[Any]) -> Ids:
    """Return ids in the form in which they are compared: as text without surrounding blanks.

    A column with missing values stores 7 as 7.0, so both become "7".
    """
    if isinstance(values, Ids):
        return values
    return Ids(_id_as_text(value) for value in values)


def order_of_ids(ids: Sequence[str], who: str) -> Array:
    """Return the positions of the rows sorted by id: by value if all ids are whole numbers, else as text.

    Raises
    ------
    DataError
        If an id is missing or occurs more than once. The error that other machines see does not name the ids.
    """
    with marked_private():
        what = f"The ids of the rows of {who}"
        if empty := sum(not name for name in ids):
            raise DataError(
                f"{labels.count(empty, 'row')} of {who} {'has' if empty == 1 else 'have'} no id. Fill the ids, or "
                "drop these rows."
            )
        twice = [name for name, count in Counter(ids).items() if count > 1]
        if twice:
            first, second = [i for i, name in enumerate(ids) if name == twice[0]][:2]
            more = ""
            if len(twice) > 1:
                more = f", and {labels.count(len(twice) - 1, 'more id')} {'repeats' if len(twice) == 2 else 'repeat'}"
            raise DataError(
                f"{what} repeat: rows {first} and {second} (from 0 on) have the same id{more}. Keep one row for each "
                "person."
            )
    keys: Sequence[Any] = ids
    # `isdigit` accepts further characters such as ², which int cannot convert.
    if all(name.isascii() and name.isdigit() for name in ids):
        # 7 and 007 are two ids with the same value, so their texts decide which comes first.
        keys = [(int(name), name) for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def digest_of_ids(ids: Iterable[str], salt: str) -> str:
    """Return the digest that a party sends in place of its sorted ids: scrypt of all ids together, salted by the run.

    Parties learn whether they have the same people, and nothing about a single person. An attacker would have to guess
    all ids at once, again in every run, at the cost of scrypt for each guess.
    """
    # No id contains the character \0, so different lists of ids give different texts.
    whole = hashlib.sha256("\0".join(ids).encode()).digest()
    return hashlib.scrypt(whole, salt=salt.encode(), n=_SLOW, r=8, p=1, dklen=32).hex()


def describe_mismatch(who: str, ids: tuple[int, str], others: tuple[int, str]) -> tuple[str, str]:
    """Describe how the people of a party differ from the people of the run, and return the description and a remedy.

    `ids` and `others` hold the number of people and the digest of their ids, at the party and in the run.
    """
    got = _count_and_digest(*ids)
    if bool(ids[1]) != bool(others[1]):
        remedy = "Give all parties ids of their rows, or none."
    elif ids[1]:
        if ids[0] == others[0]:
            got = f"{ids[0]:,} with other ids"
        remedy = "Keep the rows of the same people at every party, with the same spelling of ids."
    else:
        remedy = "Keep the rows of the same people at every party, in the same order, or give row ids."
    return (
        f"The people of {who} differ from the people of the run: there are {got}, but the run has "
        f"{_count_and_digest(*others)}.",
        remedy,
    )


def _count_and_digest(count: int, digest: str) -> str:
    if digest:
        return f"{count:,} with ids"
    return f"{count:,} without ids"


def as_text(value: Any) -> str:
    """Return a label as text. Whole numbers have no decimals: 7.0, from a column with missing values, becomes "7".

    The same holds for the text "7.0" or "7,0", because a file of text has whatever its program has written.
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def as_texts(values: Array) -> Array:
    """Return labels as an array of texts, in which whole numbers have no decimals."""
    return np.array([as_text(value) for value in values.tolist()], dtype=str)


def _id_as_text(value: Any) -> str:
    if type(value) is int:  # This check is a shortcut for integers, which most indices hold.
        return str(value)
    if value is None or value != value:
        return ""
    text = as_text(value)
    if text.isascii() and text.isalnum():
        return text
    return clean_name(text)
