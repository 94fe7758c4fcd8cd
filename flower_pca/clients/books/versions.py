"""Versions of a node's rows, released in lots: which rows it answers from while they change.

Of two honest sums, one before a person came and one after, the difference is that person's row. So
a node with the rule `min_change` keeps the rows that it has answered from, and holds those that it
is given against them:

| the rows given | the node |
|---|---|
| are the same, whatever their order, precision, storage or type | answers from the version that it has |
| differ in at least `min_change` rows | releases them as the next version |
| differ in fewer | answers from the version that it has, or refuses: its rule `pending` |

Rows are compared as single precision has them, by digests with a key that never leaves the node. Of
those that went and those that came the larger number counts, so that a row which has changed is
one. It is counted over all columns, over those that hardly changed (else a column in new units
would hide a row more), and from every version before: what was released once is compared with for
good. Columns that are made of words do not count: one person more may give a level enough rows, and
all that have it are coded anew then, as if they had come. So words that change by themselves wait
for rows that do in numbers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from flwr.app import Context

from flower_pca.base import checks, files, labels
from flower_pca.base.errors import FlowerPCAError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.clients.books import folders
from flower_pca.clients.books.ledger import Ledger, open_ledger
from flower_pca.clients.policy.refusals import OPERATOR, RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.names import coding
from flower_pca.names.sites import SiteRows
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData, View
from flower_pca.rows.stream import Stream

_KIND: Final = "released rows of a node"
_CHUNK: Final = 64  # columns that are compared at a time
_RUNS: Final = 64  # whose version is remembered
_STREAM: Final = "min_change does not hold for a Stream: what each batch tells is told as it comes."


@dataclass(frozen=True)
class Version:
    """Rows that were released.

    Attributes:
        number: Which version they are, from 1 on.
        key: The key of the node's digests.
        whole: The digest of these very rows, as they are stored.
        before: The digests of the rows of this and of every earlier version with the same columns.
        columns: Which columns these were, for each.
        data: The rows.
    """

    number: int
    key: bytes
    whole: bytes
    before: tuple[Array, ...]
    columns: tuple[str, ...]
    data: LocalData

    __repr__ = brief

    @classmethod
    def first(cls, data: LocalData) -> Version:
        """The first version of a node's rows."""
        key = secrets.token_bytes(32)
        digests = (row_digests(data, key, _counted(data)),)
        return cls(1, key, whole_digest(data, key), digests, (_columns(data),), data)

    def next(self, data: LocalData, digests: Array) -> Version:
        """The version after this one."""
        before = (*self.before, digests)
        columns = (*self.columns, _columns(data))
        digest = whole_digest(data, self.key)
        return Version(self.number + 1, self.key, digest, before, columns, data)

    def write(self, rules: Rules, name: str) -> None:
        """Write it to the node's folder, for the node's own user only."""
        data = self.data
        parts = {"values": data.plain()}
        if data.sparse:
            stored = data.csr
            parts = {"values": stored.data, "indices": stored.indices, "indptr": stored.indptr}
        # Of an earlier version digests are kept only: the newest rows alone may be answered from.
        numbered = enumerate(self.before)
        arrays = {f"before.{i}": digests for i, digests in numbered} | parts
        shape = [data.n, data.d]
        header: dict[str, Any] = {"number": self.number, "columns": self.columns, "shape": shape}
        header |= {"names": data.names, "words": dict(data.words), "coded": data.coded}
        header |= {"key": self.key.hex(), "whole": self.whole.hex()}
        files.write(folders.rows_file(rules.memory_dir, name), _KIND, header, arrays, private=True)


def read(rules: Rules, name: str) -> Version | None:
    """The newest version in the node's folder; None if there is none.

    Raises:
        RefusalError: If the file is damaged: to take it for none would release every row that has
            come since.
    """
    path = folders.rows_file(rules.memory_dir, name)
    try:
        header, arrays = files.read(path, _KIND, private=True)
        columns, names = tuple(map(str, header["columns"])), header["names"]
        before = tuple(arrays[f"before.{i}"] for i in range(len(columns)))
        coded = tuple(map(str, header["coded"]))
        listed = None if names is None else tuple(names)
        rows = SiteRows(_values(header, arrays), listed, header["words"], coded=coded)
        data = LocalData(rows, who=checks.NODE, missing=True)
        key = bytes.fromhex(header["key"])
        whole = bytes.fromhex(header["whole"])
        return Version(int(header["number"]), key, whole, before, columns, data)
    except FileNotFoundError:
        return None
    except (FlowerPCAError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damage(path.name, "another") from error


def _values(header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    if "indptr" not in arrays:
        return arrays["values"]
    from scipy import sparse

    n, d = map(int, header["shape"])
    parts = (arrays["values"], arrays["indices"], arrays["indptr"])
    return sparse.csr_array(parts, shape=(n, d))


def _damage(file: str, got: str) -> RefusalError:
    return RefusalError(
        f"{file} of this node",
        must="the one that this node has written last",
        got=got,
        then="Its operator has to look at it, or to run flower-pca forget.",
    )


class Lots:
    """The rows of a node as it answers from them: as given, or, with `min_change`, as released.

    One for all messages of a run in a process, whichever copy of the node's client they meet.

    Args:
        data: The rows that the node is given, not yet looked at: whatever `load` makes of them.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self._number = 0
        self._pending = False
        self._runs: set[str] = set()
        self._view: View | None = None

    def in_frame(self, rows: LocalData, frame: Frame) -> LocalData:
        """The rows that a message is about, in its frame; the newest view of them is kept for the next message."""
        view = self._view
        if view is None or view.rows is not rows:
            self._view = view = View(rows)
        return view.in_frame(frame)

    def settle(self, rules: Rules, context: Context | None) -> LocalData | Stream:
        """The rows that the node answers from."""
        if rules.min_change is not None and not (self._number or self._pending):
            if isinstance(self.data, Stream):
                self._number = 1
                logging.getLogger("flwr").warning(_STREAM)
            else:
                name = folders.data_of(rules.data_name, folders.partition_of(context))
                with open_ledger(folders.ledger_file(rules.memory_dir, name)) as book:
                    self._settle(rules, rules.min_change, name, book)
        if self._pending:
            raise RefusalError(
                "The rows of this node",
                must=f"those that it has answered from, or at least {rules.min_change} apart: its pending is refuse",
                got="others, but fewer",
                then=OPERATOR,
            )
        rows: LocalData | Stream = self.data
        return rows

    def hold(self, rules: Rules, context: Context | None, run: str) -> None:
        """Refuse a run that began with another version, as its messages would be of both."""
        if rules.min_change is None or run in self._runs or isinstance(self.data, Stream):
            return
        named = hashlib.blake2s(run.encode(), digest_size=8).hexdigest()
        name = folders.data_of(rules.data_name, folders.partition_of(context))
        with open_ledger(folders.ledger_file(rules.memory_dir, name)) as book:
            began = book.runs.pop(named, self._number)
            book.runs[named] = began  # at the end, as the newest
            book.runs = dict(list(book.runs.items())[-_RUNS:])
        if began != self._number:
            raise RefusalError(
                "The rows of this node",
                must="the version that the run began with",
                got="another",
                then="Start the run again.",
            )
        self._runs.add(run)

    def _settle(self, rules: Rules, least: int, name: str, book: Ledger) -> None:
        """Release the rows that are given, or take the version that was; the ledger is locked."""
        given: LocalData = self.data
        version = read(rules, name)
        # The ledger counts versions too: so an older file put back, or one taken away, is seen.
        if (0 if version is None else version.number) < book.versions:
            raise _damage(folders.rows_file(rules.memory_dir, name).name, "an older one, or none")
        # Rows are written before the ledger has their number: a stop between both does no harm.
        if version is None:
            if given.n < least:
                raise RefusalError(
                    "The rows of this node",
                    must=f"at least {least}, its min_change, before they are first answered from",
                    got="fewer",
                    then="Ask again when it has more.",
                )
            version = Version.first(given)
            version.write(rules, name)
        elif whole_digest(given, version.key) == version.whole:  # as it is given: it may be memory-mapped
            version = replace(version, data=given)
        else:
            version = self._change(rules, least, name, version)
        book.versions = version.number
        if not self._pending:
            self._number, self.data = version.number, version.data

    def _change(self, rules: Rules, least: int, name: str, version: Version) -> Version:
        """The next version, if enough has changed; else the one that was."""
        given: LocalData = self.data
        digests = row_digests(given, version.key, _counted(given))
        # The same rows in another order or precision are no change, and nobody is told of one.
        if version.columns[-1] == _columns(given) and difference(digests, version.before[-1]) == 0:
            return version
        few = fewest(given, version, digests)
        if few >= least:
            version = version.next(given, digests)
            version.write(rules, name)
            return version
        self._pending = rules.pending == "refuse"
        goes = "answers from these"
        if self._pending:
            goes = "refuses"
        logging.getLogger("flwr").warning(
            "%s of this node differ from those that it has answered from, fewer than its min_change, %s: it %s.",
            labels.count(few, "row"),
            least,
            goes,
        )
        return version


def fewest(given: LocalData, had: Version, digests: Array) -> int:
    """In how many rows the given ones differ from what was released, where that is fewest: a server can look there."""
    own, pairs = _columns(given), zip(had.before, had.columns, strict=True)
    counts = [difference(digests, before) for before, columns in pairs if columns == own]
    here, there = common(given, had.data)
    if here:
        still = hardly(given, had.data, here, there, least=max(counts, default=given.n))
        mine = row_digests(given, had.key, [here[i] for i in still])
        theirs = row_digests(had.data, had.key, [there[i] for i in still])
        # columns that tell rows apart
        if still and 2 * len(np.unique(mine)) >= len(mine):
            counts.append(difference(mine, theirs))
    # What was released once may be told again; with words, equal numbers do not say that it was.
    if not given.coded:
        counts = [count for count in counts if count]
    return min(counts, default=given.n)


def common(a: LocalData, b: LocalData) -> tuple[list[int], list[int]]:
    """The places in each of the columns that both have: by name, or else by position."""
    if a.names is None or b.names is None:
        both = list(range(min(a.d, b.d)))
        return both, both
    there = {b.names[i]: i for i in _counted(b)}
    here = [i for i in _counted(a) if a.names[i] in there]
    return here, [there[a.names[i]] for i in here]


def hardly(a: LocalData, b: LocalData, here: list[int], there: list[int], *, least: int) -> list[int]:
    """Which of the common columns have changed in fewer values than rows have changed."""
    found = []
    for start in range(0, len(here), _CHUNK):
        part = slice(start, start + _CHUNK)
        mine = _bits(a, here[part])
        theirs = _bits(b, there[part])
        counts = [difference(mine[:, j], theirs[:, j]) for j in range(mine.shape[1])]
        numbered = enumerate(counts)
        found += [start + j for j, count in numbered if count < least]
    return found


def difference(a: Array, b: Array) -> int:
    """How many have come or gone, whichever is more, between two collections, in which one may be several times."""
    size = min(len(a), len(b))
    moved = a[:size] != b[:size]  # what stands where it stood is in both, and most does where rows are added at the end
    a = np.concatenate([a[:size][moved], a[size:]])
    b = np.concatenate([b[:size][moved], b[size:]])
    if not (len(a) and len(b)):
        return max(len(a), len(b))
    mine, times = np.unique(a, return_counts=True)
    theirs, others = np.unique(b, return_counts=True)
    # Without the last one, so that each place is one of theirs, whatever mine is.
    places = np.searchsorted(theirs[:-1], mine)
    both = theirs[places] == mine
    common = int(np.minimum(times, others[places])[both].sum())
    return max(len(a), len(b)) - common


def row_digests(data: LocalData, key: bytes, columns: Any) -> Array:
    """A digest of each row in these columns, whatever their order, precision or storage."""
    places, found = list(columns), bytearray()
    for block in data.blocks():
        for row in _single(block[:, places]):
            # Eight bytes: numpy sorts and compares digests as numbers of 64 bits.
            found += hashlib.blake2b(row.data, digest_size=8, key=key).digest()
    return np.frombuffer(bytes(found), dtype=np.uint64)


def whole_digest(data: LocalData, key: bytes) -> bytes:
    """A digest of the rows as they are stored."""
    kind = str(data.stored_dtype)
    # The fingerprint is of bytes alone: shape, type and names say what these are.
    about = json.dumps([data.n, data.d, kind, data.names, data.fingerprint()])
    return hashlib.blake2b(about.encode(), digest_size=16, key=key).digest()


def _bits(data: LocalData, columns: list[int]) -> Array:
    """The values of some columns as they are compared."""
    blocks = [_single(block[:, columns]) for block in data.blocks()]
    return np.concatenate(blocks).view(np.uint32)


def _single(block: Array) -> Array:
    """Values in single precision, of which each has one pattern of bits."""
    with np.errstate(over="ignore"):
        # no zero is negative
        rows = np.ascontiguousarray(block, dtype=np.float32) + np.float32(0.0)
    # NaN has many patterns, and digests are of bits.
    rows[np.isnan(rows)] = np.nan
    return rows


def _counted(data: LocalData) -> list[int]:
    """The places of the columns in which rows are compared: all but those made of words."""
    if data.names is None:
        return list(range(data.d))
    numbered = enumerate(data.names)
    return [i for i, name in numbered if coding.source_of(name) not in data.coded]


def _columns(data: LocalData) -> str:
    """What tells the columns of a version from others."""
    places = _counted(data)
    names = None if data.names is None else [data.names[i] for i in places]
    return json.dumps([len(places), names])
