"""Tell peers which columns each client has measured, in sealed letters that clients send with their shares.

A sum hides a client among all clients that have values in a column. If all other clients have no value in the column,
or the same value in all rows, then the products with this column belong to one client alone. A client cannot notice
this from its own rows, and a server may lie about the other clients. Each client therefore sends every peer a letter
with one byte for each column, together with the shares of a set-up. A client answers only if enough clients of a sum
have rows. If its operator relies on masks, the client answers only for columns that enough clients have measured.

| byte      | the client's values in the column                         |
| --------- | --------------------------------------------------------- |
| 0         | differ, so the client has measured the column             |
| 1         | are missing, or fewer than its operator's minimum         |
| 2 to 255  | are all the same; the byte is a digest of this value      |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.masking import messages, primitives
from flower_pca.masking.messages import require_valid_message, rows_as_texts, texts_as_rows
from flower_pca.masking.primitives import KEY
from flower_pca.masking.secrets import SetupSecrets
from flower_pca.names.columns import enumeration
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.vertical.rows import PartyColumns

LETTERS: Final = f"{messages.PREFIX}columns"
MEASURED: Final = 0
_EMPTY: Final = 1
# If the standard deviation of a column is at most this multiple of its mean, it counts as rounding error, and the
# column as constant.
_CONSTANT: Final = 8.0 * np.finfo(np.float64).eps
_NAMES: Final = 8  # the size in bytes of the digest of the column names in a message
_SEAL: Final = 16  # the number of bytes that sealing adds to a text


def letter_size(d: int) -> int:
    """Return the size in bytes of a sealed letter about d columns."""
    return _NAMES + d + _SEAL


def describes_columns(data: LocalData | Stream) -> TypeGuard[LocalData]:
    """Return whether the client describes its columns to its peers.

    A stream may have no rows yet, and in a run over columns, the columns of the data are people.
    """
    return isinstance(data, LocalData) and not isinstance(data, PartyColumns)


def letter_text(data: LocalData, least: int) -> bytes:
    """Return a client's letter: a digest of the column names, and a byte for each column.

    A column with fewer than `least` values counts as empty.
    """
    return digest_of_names(data) + column_states(all_columns_of(data), least).tobytes()


def all_columns_of(data: LocalData) -> LocalData:
    """Return the data with all columns that a message uses: the features, then the covariates if there are any."""
    return data if data.joint is None else data.joint


def names_of(data: LocalData) -> tuple[str, ...] | None:
    """Return the names of the columns that a message uses, or None if the message names no columns."""
    beside = data.frame.covariates
    if beside is not None:
        return all_columns_of(data).names
    return data.frame.names


def digest_of_names(data: LocalData) -> bytes:
    """Return a digest of the names of the columns that a message uses."""
    return hashlib.blake2b(json.dumps(names_of(data)).encode(), digest_size=_NAMES).digest()


def column_states(data: LocalData, least: int) -> Array:
    """Return the byte that describes each column, as in the table at the top of this module."""

    def look() -> Array:
        there = data.measured.observed_moments()
        seen = np.broadcast_to(np.asarray(there.value_counts), data.d)
        found = np.zeros(data.d, dtype=np.uint8)
        # An overflow gives infinity or NaN, so the column counts as measured. Such values are refused elsewhere.
        with np.errstate(over="ignore", invalid="ignore"):
            same = there.m2 <= np.maximum(seen, 1) * (_CONSTANT * there.mean) ** 2
        found[seen < least] = _EMPTY
        constant = np.flatnonzero(same & (seen >= least))
        if constant.size:
            # The mean of a constant column has a rounding error, but its largest absolute value is exact.
            values = np.copysign(data.measured.largest_absolute(), there.mean) + 0.0
            found[constant] = [_digest_of_value(float(value)) for value in values[constant]]
        return found

    return data.measured.cached(("columns", least), look)


def _digest_of_value(value: float) -> int:
    return 2 + hashlib.blake2b(np.float64(value).tobytes(), digest_size=1).digest()[0] % 254


def seal_letters(secrets: SetupSecrets, letter: bytes, peers: list[int]) -> Array:
    """Return the sealed copies of a client's letter, one row for each of these peers."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), rows_as_texts(secrets.common), strict=True))
    sealed = []
    for peer in peers:
        context = messages.context_of_column_letter(setup, position, peer)
        sealed.append(primitives.encrypt(primitives.derive_key(common[peer][:KEY], context), letter, context))
    return texts_as_rows(sealed, len(letter) + _SEAL)


def unseal_letters(secrets: SetupSecrets, arrays: Mapping[str, Array], peers: list[int], d: int) -> Array:
    """Return the letters of all peers of the set-up, one in each row.

    A peer without a letter counts as having measured no column.
    """
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), rows_as_texts(secrets.common), strict=True))
    found = {peer: bytes(_NAMES) + bytes([_EMPTY]) * d for peer in common}
    letters = rows_as_texts(arrays[LETTERS]) if LETTERS in arrays else [b""] * len(peers)
    require_valid_message(
        len(letters) == len(peers), "The message does not contain one letter about columns from each peer."
    )
    for peer, letter in zip(peers, letters, strict=True):
        if any(letter):
            context = messages.context_of_column_letter(setup, peer, position)
            found[peer] = primitives.decrypt(primitives.derive_key(common[peer][KEY:], context), letter, context)
            # A letter about a different number of columns does not describe the requested ones.
            require_valid_message(
                len(found[peer]) == _NAMES + d, f"A peer's letter about its columns does not have {d} columns."
            )
    return texts_as_rows(list(found.values()), _NAMES + d)


def require_rows(letter: Array, letters: Array, others: int) -> None:
    """Refuse a sum in which too few clients have rows to hide each other, according to their letters.

    A client that has sent no letter counts as having rows.
    """
    every = np.concatenate([letter[None], letters])
    without = (every[:, _NAMES:] == _EMPTY).all(axis=1) & every[:, :_NAMES].any(axis=1)
    if len(every) - int(without.sum()) <= others:
        raise ProtocolError(
            f"Fewer than {labels.count(others + 1, 'site')} in this masked sum have rows, so the sum would reveal "
            "the values of a single site. Start the run again when more sites have rows."
        )


def require_measured_columns(letter: Array, letters: Array, others: int, names: Sequence[str] | None = None) -> None:
    """Refuse a sum if too few clients have measured a column, unless the column has the same value at all clients.

    All clients of a sum refuse it, including the clients that have measured the column.

    Parameters
    ----------
    letter : ndarray
        The letter of the client itself.
    letters : ndarray
        The letters of the peers in the sum, one in each row.
    others : int
        The smallest number of other clients that must have measured a column.
    names : sequence of str or None, default=None
        The names of the columns in the message, if there are any.
    """
    require_valid_message(
        letters.shape[1:] == letter.shape, "The columns of this masked sum differ from the columns of its set-up."
    )
    # A letter about columns with other names does not describe the requested columns, so they count as empty.
    about_these = (letters[:, :_NAMES] == letter[:_NAMES]).all(axis=1)
    theirs = np.where(about_these[:, None], letters[:, _NAMES:], _EMPTY)
    every = np.concatenate([letter[None, _NAMES:], theirs])
    measured, there = (every == MEASURED).sum(axis=0), (every != _EMPTY).sum(axis=0)
    # If nobody has measured a column, and its values are constant within sites but differ between sites, the sum
    # reveals the values of single sites.
    constant = every > _EMPTY
    lowest, highest = np.where(constant, every, 255).min(axis=0), np.where(constant, every, 0).max(axis=0)
    apart = (measured == 0) & (highest > lowest)
    alone = ((measured > 0) & (measured <= others)) | ((there > 0) & (there <= others))
    few = np.flatnonzero(alone | apart).tolist()
    if few:
        named = enumeration([f"column {j}" if names is None else names[j] for j in few])
        raise ProtocolError(
            f"Fewer than {labels.count(others + 1, 'site')} in this masked sum have measured {named}, so the sum could "
            f"reveal the values of a single site. Run without {'this column' if len(few) == 1 else 'these columns'}."
        )
