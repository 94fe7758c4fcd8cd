"""Test rows that were made to match the marks of other rows: a node must not answer from outdated statistics."""

import zlib

import numpy as np
import pytest
from dishonest import Node, RefusedError, error_of

from flower_pca.rows.local import LocalData

pytestmark = pytest.mark.usefixtures("home")

X = np.random.default_rng(0).standard_normal((100, 4))
ALL = np.eye(4)
BITS = 32


def forged():
    """Rows one of which has changed by far, and one in its last digits, so that CRC32 says what it said of X."""
    rows = X.copy()
    rows[50, 2] += 1000.0
    bytes_of = bytearray(rows.tobytes())
    at = len(bytes_of) - 8  # the low half of the last number in the file
    before = zlib.crc32(bytes_of)
    moves = [zlib.crc32(flipped(bytes_of, at, [bit])) ^ before for bit in range(BITS)]
    bits = solution(moves, before ^ zlib.crc32(X.tobytes()))
    return np.frombuffer(bytes(flipped(bytes_of, at, bits)), dtype=np.float64).reshape(X.shape).copy()


def flipped(bytes_of, at, bits):
    changed = bytearray(bytes_of)
    for bit in bits:
        changed[at + bit // 8] ^= 1 << bit % 8
    return changed


def solution(moves, wanted):
    """Which of these, added without carry, give that: CRC32 is linear."""
    pivots = {}
    for i, move in enumerate(moves):
        move, used = reduced(move, 1 << i, pivots)
        if move:
            pivots[move.bit_length()] = move, used
    rest, used = reduced(wanted, 0, pivots)
    assert rest == 0
    return [i for i in range(len(moves)) if used >> i & 1]


def reduced(move, used, pivots):
    for place in sorted(pivots, reverse=True):
        if move.bit_length() == place:
            move, used = move ^ pivots[place][0], used ^ pivots[place][1]
    return move, used


def test_the_forged_rows_have_the_marks_of_the_real_ones():
    rows = forged()
    assert zlib.crc32(rows.tobytes()) == zlib.crc32(X.tobytes())
    assert np.abs(rows[:, 3] - X[:, 3]).max() < 1e-3
    assert LocalData(rows).fingerprint() != LocalData(X).fingerprint()


def test_statistics_that_a_node_has_kept_serve_no_other_rows(tmp_path):
    rows = forged()
    assert error_of(Node(0, X, memory_dir=tmp_path).ask("ssi", {"Z": ALL})["Y"], X.T @ X) < 1e-12
    told = Node(0, rows, memory_dir=tmp_path).ask("ssi", {"Z": ALL}, run="the next")["Y"]
    assert error_of(told, rows.T @ rows) < 1e-12


def test_forged_rows_are_not_taken_for_the_released_version(tmp_path):
    """Whether rows are others is no matter of a mark that lies: they are held like any others."""
    lots = {"memory_dir": tmp_path, "min_change": 20}
    before = Node(0, X, **lots).ask("ssi", {"Z": ALL}, run="a")["Y"]
    np.testing.assert_array_equal(Node(0, forged(), **lots).ask("ssi", {"Z": ALL}, run="b")["Y"], before)
    with pytest.raises(RefusedError, match="its on_small_change is 'refuse'"):
        Node(0, forged(), **lots, on_small_change="refuse").ask("ssi", {"Z": ALL}, run="c")
