"""The rows that a node has released: a copy from which the node answers while its file changes.

The difference of two honest sums, one before a person was added and one after, reveals this person's row. A
server can often find the row even if other people change on the same day, by comparing sums over several
versions. A node with the rule `min_change` therefore keeps a copy of the rows from which it first answered:

| the file of the node | what the node does |
|---|---|
| has the same rows, whatever their order, precision, storage or type | It answers from these rows. |
| differs | It answers from the copy, or refuses: see the rule `on_small_change`. |
| has `min_change` or more new people, by their ids, who could be a table of their own | It adds them to the copy. |

People who are added together form a lot. No two lots have a person in common, and a lot never changes.
Therefore, all answers from any number of versions are functions of the statistics of lots, and each lot is a
table from which the node's rules would let it answer.

Under `max_epsilon`, the copy stays the same and nobody is added, because an answer from other rows would
reveal that a person was added. The operator can release the present rows with `flower-pca forget`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from flwr.app import Context

from flower_pca.base import checks, files
from flower_pca.base.errors import FlowerPCAError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.clients.policy import small_cells
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.storage import folders, ledger
from flower_pca.clients.storage.ledger import Ledger, open_ledger
from flower_pca.clients.storage.marks import as_single_precision
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import FrameView, LocalData
from flower_pca.rows.stream import Stream

_KIND: Final = "released rows of a node"
_RUNS: Final = 64  # the maximum number of runs for which the ledger remembers the version
_STREAM: Final = "min_change does not protect a Stream, because the node answers from each batch as it arrives."


@dataclass(frozen=True)
class ReleasedVersion:
    """A version of the released rows.

    Attributes
    ----------
    number : int
        The number of the version, counted from 1.
    key : bytes
        The key of the digests of rows.
    whole : bytes
        The digest of the node's file, as its rows are stored there. It is empty if the rows may differ from the file.
    data : LocalData
        The rows.
    barred : tuple of str
        The columns that revealed few rows before people were added. They stay excluded, because if another column shows
        who was added, a server could still compute the sum over these few rows.
    """

    number: int
    key: bytes
    whole: bytes
    data: LocalData
    barred: tuple[str, ...] = ()

    __repr__ = brief

    @classmethod
    def first(cls, data: LocalData, number: int) -> ReleasedVersion:
        """Return the first version, in which all rows are released together."""
        key = secrets.token_bytes(32)
        return cls(number, key, whole_digest(data, key), data)

    def with_added_rows(self, table: LocalData, positions: Array, rules: Rules) -> ReleasedVersion:
        """Return the next version: the rows of this version, followed by the given rows at these positions."""
        had, new = self.data.stored_array(), table.stored_array()[positions]
        if self.data.sparse:
            from scipy import sparse

            values = sparse.vstack([had, new], format="csr")
        else:
            values = np.concatenate([had, new])
        assert self.data.table.ids is not None
        assert table.table.ids is not None
        ids = (*self.data.table.ids, *(table.table.ids[i] for i in positions.tolist()))
        rows = Table(values, self.data.names, self.data.table.words, ids=ids, coded=self.data.table.coded)
        # The new version has no digest of the node's file, because a row may have changed in the file but not in the
        # copy.
        whole = LocalData(rows, who=checks.NODE, missing=True)
        barred = tuple(sorted({*self.barred, *small_cells.revealing_columns(self.data, rules)}))
        return ReleasedVersion(self.number + 1, self.key, b"", whole, barred)

    def write(self, path: Path) -> None:
        """Write the version to a file that only the node's user can read."""
        data = self.data
        parts = {"values": data.stored_array()}
        if data.sparse:
            stored = data.measured.csr_matrix
            parts = {"values": stored.data, "indices": stored.indices, "indptr": stored.indptr}
        header: dict[str, Any] = {"number": self.number, "shape": [data.n, data.d], "ids": data.table.ids}
        header |= {"names": data.names, "words": dict(data.table.words), "coded": data.table.coded}
        header |= {"key": self.key.hex(), "whole": self.whole.hex(), "barred": self.barred}
        files.write(path, _KIND, header, parts, private=True)


def read_version(path: Path) -> ReleasedVersion | None:
    """Return the newest version in the node's folder, or None if there is none.

    Raises
    ------
    RefusalError
        If the file is damaged. If a damaged file counted as missing, all present rows would be released, including
        those that were added since.
    """
    try:
        header, arrays = files.read(path, _KIND, private=True)
        names, ids = header["names"], header["ids"]
        coded = tuple(map(str, header["coded"]))
        rows = Table(
            _values_of(header, arrays),
            None if names is None else tuple(names),
            header["words"],
            ids=None if ids is None else tuple(map(str, ids)),
            coded=coded,
        )
        data = LocalData(rows, who=checks.NODE, missing=True)
        key, whole = bytes.fromhex(header["key"]), bytes.fromhex(header["whole"])
        return ReleasedVersion(int(header["number"]), key, whole, data, tuple(map(str, header["barred"])))
    except FileNotFoundError:
        return None
    except (FlowerPCAError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged_error(path.name, "is damaged, or another program wrote it") from error


def _values_of(header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    if "indptr" not in arrays:
        return arrays["values"]
    from scipy import sparse

    n, d = map(int, header["shape"])
    parts = (arrays["values"], arrays["indices"], arrays["indptr"])
    return sparse.csr_array(parts, shape=(n, d))


def _damaged_error(file: str, fault: str) -> RefusalError:
    return RefusalError(
        f"The file {file} of this node {fault}. Its operator must restore it, or run flower-pca forget --what rows."
    )


class ReleasedRows:
    """The rows from which a node answers: the given rows, or the copy if the node keeps one.

    One object serves all messages of a run in a process, even if different copies of the node's client receive them.

    Parameters
    ----------
    data
        The rows that the app's `load` function has returned.

    Attributes
    ----------
    barred : tuple of str
        The columns that no run gets, because they revealed few rows before people were added.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.barred: tuple[str, ...] = ()
        self._number = 0
        self._place = Path()
        self._unwritten = self._pending = False
        self._runs: set[str] = set()
        self._view: FrameView | None = None

    def in_frame(self, rows: LocalData, frame: Frame) -> LocalData:
        """Return these rows in the frame of a message. The newest view is cached for the next message."""
        view = self._view
        if view is None or view.rows is not rows:
            self._view = view = FrameView(rows)
        return view.in_frame(frame)

    def rows_to_answer_from(self, rules: Rules, context: Context | None) -> LocalData | Stream:
        """Return the rows from which the node answers, after a comparison with the copy if the node keeps one."""
        if rules.keeps_rows and not self._number:
            if isinstance(self.data, Stream):
                self._number = 1
                logging.getLogger("flwr").warning(_STREAM)
            else:
                self._place = _ledger_of(self.data, rules, context)
                with open_ledger(self._place) as entries:
                    self._load_released(rules, entries)
        if self._pending:
            raise RefusalError(
                "The rows of this node have changed since its earlier answers, and its on_small_change is 'refuse'. "
                "Ask the node's operator."
            )
        rows: LocalData | Stream = self.data
        return rows

    def begin_run(self, rules: Rules, run: str) -> None:
        """Release the rows at their first use. Refuse to continue a run that began with another version."""
        if not rules.keeps_rows or run in self._runs or isinstance(self.data, Stream):
            return
        named = hashlib.blake2s(run.encode(), digest_size=8).hexdigest()
        with open_ledger(self._place) as entries:
            if self._unwritten:
                self._release(entries)
            began = entries.runs.pop(named, self._number)
            entries.runs[named] = began  # This moves the newest run to the end.
            entries.runs = dict(list(entries.runs.items())[-_RUNS:])
        if began != self._number:
            raise _other_version_error()
        self._runs.add(run)

    def _load_released(self, rules: Rules, entries: Ledger) -> None:
        """Load the released version, and add the people who may be added. The caller has locked the ledger."""
        given: LocalData = self.data
        version = _released_version(self._place, entries)
        if version is None:
            least = rules.min_change
            if least is not None and given.n < least:
                raise RefusalError(
                    f"This node needs at least {least} rows for its first answer (its min_change), but has fewer. "
                    "Start the run again when the node has more rows."
                )
            self._number, self._unwritten = entries.versions + 1, True
            return
        if whole_digest(given, version.key) == version.whole and version.data.n == given.n:
            version = replace(version, data=given)  # The given rows are the same and may be memory-mapped.
        elif (lot := _addable_positions(rules, given, version)) is not None:
            version = version.with_added_rows(given, lot, rules)
            # The version is written before its number enters the ledger, so that an interruption between the two does
            # no harm.
            version.write(folders.rows_beside(self._place))
            entries.versions, entries.epoch = version.number, entries.epoch + 1
        elif not _has_same_rows(given, version):
            self._warn_of_changes(rules)
        self._number, self.data, self.barred = version.number, version.data, version.barred

    def _release(self, entries: Ledger) -> None:
        """Write the first version before the first answer from it. The caller has locked the ledger."""
        there = _released_version(self._place, entries)
        if there is None:
            # The ledger is written first, because a version without a ledger counts as a sign that somebody has deleted
            # the ledger.
            if not self._place.exists():
                ledger.write(self._place, entries)
            ReleasedVersion.first(self.data, self._number).write(folders.rows_beside(self._place))
            entries.versions, entries.reopened = self._number, False
        elif there.number != self._number or whole_digest(self.data, there.key) != there.whole:
            raise _other_version_error()  # Another process of the node has released other rows in the meantime.
        self._unwritten = False

    def _warn_of_changes(self, rules: Rules) -> None:
        self._pending = rules.on_small_change == "refuse" and rules.max_epsilon is None
        goes = "It answers from the copy."
        if self._pending:
            goes = "It refuses, because its on_small_change is 'refuse'."
        logging.getLogger("flwr").warning(
            "The rows of this node differ from the copy of the rows from which it has answered. %s To release the "
            "present rows, run flower-pca forget --what rows. Whoever has the answers before and after can then work "
            "out what has changed.",
            goes,
        )


def _other_version_error() -> RefusalError:
    return RefusalError("The rows of this node have changed since the run began. Start the run again.")


def _ledger_of(data: LocalData, rules: Rules, context: Context | None) -> Path:
    """Return the path of the ledger whose copy of the rows the node uses.

    This is the node's own ledger, unless only a ledger of the same rows under another partition-id has a copy.
    """
    own = folders.ledger_file(rules.memory_dir, folders.data_name_of(rules.data_name, folders.partition_of(context)))
    others = ledger.ledgers_of_same_rows(own, data)
    if folders.is_named(own) or folders.rows_beside(own).exists():
        return own
    there = [path for path in others if folders.rows_beside(path).exists() and not folders.is_named(path)]
    return there[0] if there else own


def _released_version(place: Path, entries: Ledger) -> ReleasedVersion | None:
    """Return the version in the node's folder, or None if there is none. Refuse it if the ledger has a newer one."""
    file = folders.rows_beside(place)
    version = read_version(file)
    if version is None:
        if entries.versions and not entries.reopened:
            raise _damaged_error(file.name, "is gone")
        return None
    # Answers from an older version, together with the answers since then, would reveal who was added.
    if version.number < entries.versions:
        raise _damaged_error(file.name, "is older than what this node has written last")
    return version


def _addable_positions(rules: Rules, table: LocalData, version: ReleasedVersion) -> Array | None:
    """Return the positions of the given rows that can be added to a version, or None if the rules do not allow this."""
    least, had = rules.min_change, version.data
    if least is None or rules.id_column is None or table.table.ids is None or had.table.ids is None:
        return None
    if _text_of_columns(table) != _text_of_columns(had) or table.sparse != had.sparse or table.dtype != had.dtype:
        return None
    known, there = set(had.table.ids), set(table.table.ids)
    rows = set(row_digests(had, version.key).tolist())
    places = np.array([i for i, name in enumerate(table.table.ids) if name not in known], dtype=np.int64)
    mine = row_digests(table, version.key)
    # A person whose row is already in the copy may have a new id, so this person does not count as new. Each id that
    # has disappeared may also be a person with a new id, so it reduces the count by one.
    new = {table.table.ids[i] for i in places.tolist() if int(mine[i]) not in rows}
    if len(new) - len(known - there) < least:
        return None
    added = Table(table.stored_array()[places], table.names, table.table.words, coded=table.table.coded)
    lot = LocalData(added, who=checks.NODE, missing=True)
    few_gaps = any(small_cells.has_few_gaps(data, rules.min_rows) for data in (had, lot))
    if small_cells.revealing_columns(lot, rules) or (rules.missing == "mean" and few_gaps):
        return None
    if small_cells.has_gaps_in_codes(had, lot):
        return None
    return places


def _has_same_rows(table: LocalData, version: ReleasedVersion) -> bool:
    """Return whether the given rows are the rows of a version, in any order, precision or storage."""
    had = version.data
    if _text_of_columns(table) != _text_of_columns(had):
        return False
    mine, theirs = (np.sort(row_digests(rows, version.key)) for rows in (table, had))
    return bool(np.array_equal(mine, theirs))


def row_digests(data: LocalData, key: bytes) -> Array:
    """Return a digest of each row, independent of its precision and storage."""
    found = bytearray()
    for block in data.blocks():
        for row in as_single_precision(block):
            # Digests have eight bytes, so that numpy can sort and compare them as integers of 64 bits.
            found += hashlib.blake2b(row.data, digest_size=8, key=key).digest()
    return np.frombuffer(bytes(found), dtype=np.uint64)


def whole_digest(data: LocalData, key: bytes) -> bytes:
    """Return a digest of the rows as they are stored."""
    kind = str(data.measured.stored_dtype)
    # The fingerprint covers only the bytes, so the digest adds what gives them a meaning: shape, type, names and ids.
    about = json.dumps([data.n, data.d, kind, data.names, data.table.ids, data.fingerprint()])
    return hashlib.blake2b(about.encode(), digest_size=16, key=key).digest()


def _text_of_columns(data: LocalData) -> str:
    """Return a text that is the same for two tables if and only if their rows can be compared."""
    return json.dumps([data.d, data.names, sorted(data.table.coded)])
