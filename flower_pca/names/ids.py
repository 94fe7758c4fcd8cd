"""Ids: whose row is whose, where parties hold different columns of the same people.

Ids are texts, each of them once, and rows lie in the order of these: so tables need not have the
same order, and no id has to travel. What travels is a digest of all of them together, salted by the
run, and slow to make: see `digest`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError, private
from flower_pca.base.labels import clean, double
from flower_pca.base.linalg import Array

# The cost of scrypt: 16 MB and about a twentieth of a second for each guess.
_SLOW: Final = 2**14
_LISTED: Final = 5


def texts(values: Iterable[Any]) -> tuple[str, ...]:
    """Ids as they are compared: text without blanks around it, and 7.0, as with gaps, as 7."""
    return tuple(_text(value) for value in values)


def order(ids: Sequence[str], who: str) -> Array:
    """Where each row is that comes next in the order of the ids: by value if all are whole numbers,
    else as text.

    Raises
    ------
    DataError
        If an id is missing, or is there more than once. No other machine is told which.
    """
    with private():
        what = f"The ids of the rows of {who}"
        if empty := sum(not name for name in ids):
            raise DataError(
                f"{labels.count(empty, 'row')} of {who} {'has' if empty == 1 else 'have'} no id. Fill the ids, or "
                "drop these rows."
            )
        twice = [name for name, count in Counter(ids).items() if count > 1]
        if twice:
            got = ", ".join(map(double, twice[:_LISTED]))
            if len(twice) > _LISTED:
                got = f"{got} and {len(twice) - _LISTED} more"
            raise DataError(f"{what} are not different: {got}. Keep one row for each person.")
    keys: Sequence[Any] = ids
    # Python takes other signs for digits too, such as ², of which int makes no number.
    if all(name.isascii() and name.isdigit() for name in ids):
        # 7 and 007 are two ids of one value: their texts say which comes first.
        keys = [(int(name), name) for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def digest(ids: Iterable[str], salt: str) -> str:
    """What a party tells of its sorted ids: scrypt of all of them together, with the salt of the
    run.

    So two parties are known to have the same people, and nothing is known of a single one: whoever
    wants to confirm a guess has to guess all ids at once, anew in every run, and pays for each
    guess.
    """
    # No id has this sign in it, so no two lists of them make the same text.
    whole = hashlib.sha256("\0".join(ids).encode()).digest()
    return hashlib.scrypt(whole, salt=salt.encode(), n=_SLOW, r=8, p=1, dklen=32).hex()


def mismatch(who: str, own: tuple[int, str], others: tuple[int, str]) -> tuple[str, str]:
    """Why a party's people, by number and digest, are not those of the run, and what to do."""
    got = _count(*own)
    if bool(own[1]) != bool(others[1]):
        remedy = "Give all parties ids of their rows, or none."
    elif own[1]:
        if own[0] == others[0]:
            got = f"{own[0]:,} with other ids"
        remedy = "Keep the rows of the same people at every party, with ids that are spelt alike."
    else:
        remedy = "Keep the rows of the same people at every party, in the same order; or give ids."
    return f"The people of {who} are not those of the run: there are {got}, and the run has {_count(*others)}.", remedy


def _count(count: int, digest: str) -> str:
    if digest:
        return f"{count:,} with ids"
    return f"{count:,} without ids"


def as_text(value: Any) -> str:
    """A label as it is printed: a whole number without decimals, which it has in a column with gaps."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _text(value: Any) -> str:
    if type(value) is int:  # Most indices are integers, and runs over rows do not look at them.
        return str(value)
    if value is None or value != value:
        return ""
    text = as_text(value)
    if text.isascii() and text.isalnum():
        return text
    return clean(text)
