"""Names of columns as one value: unique texts in an order, with a digest that does not depend on it.

Columns that have names are worked on in the sorted order of these, wherever a file has them, unless a run names its own
columns: then in the order of the run. So clients whose files differ in order agree without a message, and without the
server having seen a name: `Heading` is what a client says of its columns, and its digest is enough to compare them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ConfigError, DataError, ProtocolError, sentence
from flower_pca.base.linalg import Array
from flower_pca.names import ids
from flower_pca.names.spelling import INDEX, clean, doubled, unlike

COLUMNS: Final = "columns"  # what names are called in messages; and what else is said of columns
_COUNT, _DIGEST, _PEOPLE = "columns.count", "columns.digest", "columns.people"
LONGEST: Final = 200  # characters of a name that is told
_MOST: Final = 20  # names that a message lists
_NAME: Final = "Name the columns of the run (columns=[...]), or align the files."
_OTHERS: Final = "Choose others with columns=[...], or encode them."
_APART: Final = "Choose others with columns=[...], keep these apart with beside=[...], or encode them."  # of files


@dataclass(frozen=True)
class Columns:
    """Names of columns, in an order.

    Args:
        names: The names: texts, each of them once.
        who: Whose columns these are, in messages.
    """

    names: tuple[str, ...]
    who: str = "the rows"

    def __post_init__(self) -> None:
        for name in self.names:
            if not isinstance(name, str) or not name:
                rule, remedy = "text, for all of them or for none", "Rename them, or give an array."
                raise DataError(f"The names of the columns of {self.who}", must=rule, got=repr(name), then=remedy)
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            got = listed(map(doubled, twice))
            raise DataError(f"The columns of {self.who}", must="named differently", got=got, then="Rename them.")

    @functools.cached_property
    def sorted(self) -> tuple[str, ...]:
        """The names in their own order: by code points, the same everywhere."""
        return tuple(sorted(self.names))

    @functools.cached_property
    def heading(self) -> Heading:
        """What tells these columns from others, whatever their order, and their names."""
        return Heading(len(self.names), digest(self.names), self.sorted)

    def places(self, wanted: Sequence[str], words: Mapping[str, str] | None = None) -> Array:
        """Where the wanted columns are among these.

        Args:
            wanted: Their names.
            words: Columns beside these that hold no numbers: what is in each, by name.
        """
        place = {name: j for j, name in enumerate(self.names)}
        lacking = [name for name in wanted if name not in place]
        for name in lacking:
            if words and name in words:
                raise no_numbers(self.who, {name: words[name]}, file=False)
        if lacking:
            got = f"none called {listed(map(repr, lacking))} among {listed(self.names)}"
            rule, near = "there, for all that the run names", unlike(lacking, self.names)
            remedy = f"{near}: rename one of them." if near else "Add them, or name others."
            raise DataError(f"The columns of {self.who}", must=rule, got=got, then=remedy)
        return np.array([place[name] for name in wanted], dtype=np.int64)


@dataclass(frozen=True)
class Heading:
    """What a client says of its columns.

    Attributes:
        count: How many there are.
        digest: Of their sorted names; "" if they have none.
        names: The sorted names; None if there are none, or if the client keeps them to itself.
        people: Whether it is said of people, whose ids the digest is of: of a run whose parties hold different columns.
    """

    count: int
    digest: str = ""
    names: tuple[str, ...] | None = None
    people: bool = False

    def like(self, other: Heading) -> bool:
        """Whether both speak of the same columns, as far as can be told."""
        return self is other or (self.count, self.digest) == (other.count, other.digest)

    def quiet(self) -> Heading:
        """Without the names."""
        return replace(self, names=None)

    def plain(self) -> dict[str, int | str]:
        """As numbers and text, beside an answer."""
        names = {} if self.names is None else {COLUMNS: json.dumps(self.names)}
        return {_COUNT: self.count, _DIGEST: self.digest, **names, **({_PEOPLE: True} if self.people else {})}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Heading | None:
        """What `plain` has made; None where there is none.

        Raises:
            ProtocolError: If it is none, or if the names are not those that the digest is of.
        """
        if _COUNT not in plain:
            return None
        count, known, names = plain[_COUNT], plain.get(_DIGEST, ""), read_names("An answer", plain)
        right = isinstance(count, int) and count >= 0 and isinstance(known, str) and len(known) <= LONGEST
        if not right or (names is not None and (len(names) != count or digest(names) != known)):
            remedy = "Check the sender."
            raise ProtocolError("The columns of an answer", must="those of its digest", got="others", then=remedy)
        return cls(count, str(known), names, bool(plain.get(_PEOPLE, False)))

    def fuller(self, other: Heading | None) -> Heading:
        """Of two headings of the same columns one that has their names, if one has."""
        return other if self.names is None and other is not None else self

    def outvoted(self, who: str, others: Heading) -> str:
        """Why a client with these columns is left out, where those of the run are others."""
        if self.people:
            return ids.outvoted(who, (self.count, self.digest), (others.count, others.digest))
        if self.digest or others.digest:
            rule = f"those of the run, {others.count} by name" if others.digest else f"{others.count} without names"
            return sentence(f"The columns of {who}", rule, self.got(others), self.remedy(others))
        rule = f"{others.count}, as at most clients"
        return sentence(f"The number of columns of {who}", rule, self.count, self.remedy(others))

    def got(self, others: Heading) -> str:
        """In what these columns differ from those of the others."""
        if not self.digest:
            return f"{self.count} without names"
        if not others.digest:
            return f"{self.count} with names"
        if self.names is None or others.names is None:
            return f"{self.count} of other names"
        return f"{self.count}, {difference(self.names, others.names)}"

    def remedy(self, others: Heading) -> str:
        """What to do where these columns are not those of the others."""
        if bool(self.digest) != bool(others.digest):
            return "Give all clients names of columns, or none."
        if self.names is None or others.names is None:
            return "Align the features first."
        return _NAME if set(self.names) > set(others.names) else "Align the files."


def digest(names: Iterable[str]) -> str:
    """SHA-256 of the sorted names."""
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()


def read_names(who: str, plain: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of columns from another machine, which come as JSON; None if there are none.

    Raises:
        ProtocolError: If they are none.
    """
    if COLUMNS not in plain:
        return None
    try:
        names = json.loads(plain[COLUMNS])
    except (TypeError, ValueError, RecursionError):
        names = None
    texts = isinstance(names, list) and all(isinstance(name, str) and 0 < len(name) <= LONGEST for name in names)
    odd = bool(texts) and any(name != clean(name) for name in names)
    if not texts or not names or len(set(names)) < len(names) or odd:
        form = ", in normal form (NFC) and without control characters"
        rule = f"different names of at most {LONGEST} characters{form if odd else ''}"
        raise ProtocolError(f"The columns of {who.lower()}", must=rule, got="others", then="Check the sender.")
    return tuple(names)


def difference(names: Sequence[str], others: Sequence[str]) -> str:
    """What one has and the other has not, in words."""
    here, there = set(names), set(others)
    lacking = [name for name in others if name not in here]
    beyond = [name for name in names if name not in there]
    parts = ((lacking, "without"), (beyond, "with, beyond them,"))
    near = unlike(lacking, beyond)
    said = " and ".join(f"{word} {listed(map(repr, found))}" for found, word in parts if found)
    return f"{said} ({near})" if near else said


def not_named(who: str, count: int) -> DataError:
    """The error about columns without names, where the run names its own."""
    rule, remedy = "named, as the run names its columns", "Give data with names of columns."
    return DataError(f"The columns of {who}", must=rule, got=f"{count} without names", then=remedy)


def no_numbers(who: object, words: Mapping[str, str], *, file: bool = True) -> DataError:
    """The error about columns that cannot be used; by name, what is in each, and where.

    They hold no numbers, have no name, or share one with others. Only readers of a `file` can keep columns apart.
    """
    what, got = f"The columns of {who}", listed(words.values())
    if odd := [bad for name, bad in words.items() if unnamed(name, bad)]:
        apart = " with beside=[''], or" if "" in words and len(odd) == 1 else ":"
        remedy = f"Name them, each differently, or leave them out{apart} name the others with columns=[...]."
        if INDEX in odd:
            remedy = "Leave it out with beside=[''], name the others with columns=[...], or write the file without it."
        return DataError(what, must="named differently", got=listed(odd), then=remedy)
    decimal = any(re.search(r"'[-+]?\d*,\d+'", word) for word in words.values())
    between = {found[1] for word in words.values() if (found := re.search(r"['\"][-+]?\d{1,3}([., '])\d{3}\b", word))}
    remedy = _APART if file else _OTHERS
    remedy = f"Read decimal commas with decimal=','. {remedy}" if decimal else remedy
    if between:
        remedy = f"Read what stands between thousands with thousands={min(between)!r}. {remedy}"
    return DataError(what, must="numbers", got=got, then=remedy)


def unnamed(name: str, bad: str) -> bool:
    """Whether a column that cannot be used has no name of its own, rather than no numbers."""
    return not name or bad == doubled(name)


def wanted(columns: Any) -> tuple[str, ...] | None:
    """The columns that a run names, in their order: a list of names, or text with commas between them; None for none.

    Raises:
        ConfigError: If they are no such names, or one is there twice.
    """
    if columns is None:
        return None
    given: Any = columns.split(",") if isinstance(columns, str) else columns
    names = tuple(given) if isinstance(given, list | tuple | np.ndarray) else ()
    names = tuple(clean(name) if isinstance(name, str) else name for name in names)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("columns", must="names of columns", got=repr(columns), then="Write columns=['a', 'b'].")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        got = listed(map(doubled, twice))
        raise ConfigError("columns", must="different names", got=got, then="Name each of them once.")
    return tuple(map(str, names))


def listed(words: Iterable[str]) -> str:
    """A list that stays readable when it is long."""
    every = list(words)
    return ", ".join(every[:_MOST]) + (f" and {len(every) - _MOST} more" if len(every) > _MOST else "")
