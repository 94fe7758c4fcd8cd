"""Test files: written whole or not at all, without pickle, and refused in one sentence if unreadable."""

import io
import itertools
import json
import os
import stat
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from flower_pca.base import files
from flower_pca.base.errors import DataError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array

HEADER = {"number": 0.1, "text": "ä", "nested": {"a": [1, None, True]}, "unbounded": float("inf")}
ARRAYS = {
    "float64": np.linspace(0, 1, 7).reshape(7, 1),
    "float32": np.float32([[1.5, np.inf]]),
    "number": np.array(3),
    "flag": np.array(True),
    "empty": np.empty((4, 0)),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def test_header_and_arrays_come_back_as_they_were(tmp_path):
    path = files.write(tmp_path / "file", "thing", HEADER, ARRAYS)
    header, arrays = files.read(str(path), "thing")
    assert header == {"kind": "thing", **HEADER}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_file_has_the_permissions_of_an_ordinary_one(tmp_path, umask):
    before = os.umask(umask)
    try:
        path = files.write(tmp_path / "file", "thing", {}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def half_written(file, array, **options):
    file.write(b"half")
    raise OSError("disk full")


def fail(*_):
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("owner", "name", "failure"),
    [(np.lib.format, "write_array", half_written), (os, "fsync", fail), (os, "replace", fail)],
    ids=["writing", "syncing", "replacing"],
)
def test_a_failing_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, owner, name, failure):
    path = files.write(tmp_path / "file", "thing", {"version": 1}, ARRAYS)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failure)
        with pytest.raises(OSError, match="disk full") as raised:
            files.write(path, "thing", {"version": 2}, ARRAYS)
    assert raised.value.filename == str(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    files.write(path, "thing", {"version": 2}, ARRAYS)
    assert files.read(path, "thing")[0]["version"] == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_an_interruption_in_the_midst_of_writing_is_an_interruption(tmp_path):
    """Wherever Ctrl-C comes: Python's zip files say in its place that they cannot be closed."""
    path = files.write(tmp_path / "a.npz", "x", {}, {"a": np.zeros(3)})
    before, points = path.read_bytes(), 0

    def interrupted_at(line):
        passed = itertools.count(1)

        def look(frame, event, _):
            if event == "line" and "zipfile" in frame.f_code.co_filename and next(passed) == line:
                sys.settrace(None)
                raise KeyboardInterrupt
            return look

        sys.settrace(look)
        try:
            files.write(path, "x", {}, {"a": np.ones(3)})
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while interrupted_at(points + 1):
            points += 1
            assert path.read_bytes() == before
            assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    assert points > 100
    assert path.read_bytes() != before


def test_a_header_that_is_no_json_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match="JSON"):
        files.write(tmp_path / "file", "thing", {"array": np.zeros(2)}, {})
    assert list(tmp_path.iterdir()) == []


def assert_refused(path):
    with pytest.raises(DataError) as caught:
        files.read(path, "thing")
    message = str(caught.value)
    kind = "is a folder." if path.is_dir() else "is not a thing of flower_pca: it cannot be read"
    assert message.startswith(f"{path} {kind}")
    assert message.endswith(". Check the path.")
    assert "\n" not in message


def foreign(path, kind):
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("components")
        case "npy":
            with path.open("wb") as file:
                np.save(file, np.zeros(3))
        case "npz":
            with path.open("wb") as file:
                np.savez(file, a=np.zeros(3))
        case "pickle":
            with path.open("wb") as file:
                np.save(file, np.array([{}]), allow_pickle=True)
        case "folder":
            path.mkdir()
        case _:
            headers = {"json list": b"[1]", "json number": b"3", "no json": b"{", "no text": b"\xff\xfe"}
            with path.open("wb") as file:
                np.savez(file, **{"header.json": np.frombuffer(headers[kind], dtype=np.uint8)})


FOREIGN = ["empty", "text", "npy", "npz", "pickle", "folder", "json list", "json number", "no json", "no text"]


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_in_one_sentence(tmp_path, kind):
    foreign(tmp_path / "file", kind)
    assert_refused(tmp_path / "file")


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "absent", "thing")


@pytest.mark.slow
def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    whole = files.write(tmp_path / "file", "thing", HEADER, ARRAYS).read_bytes()
    path = tmp_path / "cut"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert_refused(path)


@pytest.mark.slow
def test_a_file_with_a_byte_changed_is_refused_or_unharmed(tmp_path):
    whole = files.write(tmp_path / "file", "thing", HEADER, ARRAYS).read_bytes()
    path, rng, refused = tmp_path / "changed", np.random.default_rng(0), 0
    for at in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[at] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            header, arrays = files.read(path, "thing")
        except DataError as error:
            refused += 1
            assert str(error).startswith((f"{path} is not a thing of flower_pca", f"{path} is an"))  # noqa: PT017
        else:
            assert header == {"kind": "thing", **HEADER}
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
            assert set(arrays) == set(ARRAYS)
    assert refused > len(whole) / 6


@dataclass(frozen=True)
class Inner:
    a: Array
    b: Array | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    rate: float | None
    name: str
    inner: Inner
    perhaps: Inner | None
    status: Status | None
    sines: tuple[float, ...]
    parts: dict[int, Array]
    total: dict[str, Array] | None
    n_components: int | float


FULL = Outer(
    count=3,
    rate=float("inf"),
    name="outer.inner.a",  # A string that looks like the name of an array stays a string.
    inner=Inner(np.arange(3.0), np.float32([[1]])),
    perhaps=Inner(np.empty((0, 2))),
    status=Status(Outcome.STALLED, "words"),
    sines=(0.5, 0.25),
    parts={7: np.eye(2), 11: np.zeros(1)},
    total={"n": np.array(4), "mean": np.arange(2.0)},
    n_components=0.5,
)
BARE = Outer(0, None, "", Inner(np.zeros(1)), None, None, (), {}, None, 2)


@pytest.mark.parametrize("value", [FULL, BARE], ids=["full", "bare"])
def test_a_dataclass_of_arrays_and_numbers_survives_json(value):
    arrays = {}
    packed = json.loads(json.dumps(files.pack_value(value, arrays, "outer")))
    back = files.unpack_value(Outer, packed, arrays)

    def same(a, b):
        assert type(a) is type(b)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, strict=True)
        elif isinstance(a, dict):
            assert list(a) == list(b)
            [same(a[key], b[key]) for key in a]
        elif isinstance(a, Inner):
            [same(getattr(a, name), getattr(b, name)) for name in ("a", "b")]
        else:
            assert a == b

    for name in Outer.__dataclass_fields__:
        same(getattr(back, name), getattr(value, name))


def test_numpy_numbers_are_packed_as_plain_ones():
    packed = files.pack_value({"a": np.float64(0.5), "b": np.int64(3), "c": (np.bool_(True),)}, {}, "x")
    assert json.dumps(packed) == '{"a": 0.5, "b": 3, "c": [true]}'


SAVED = {
    "a number": np.array(2.5),
    "none": np.zeros(0),
    "no rows": np.zeros((0, 3)),
    "rows": np.arange(6.0).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "turned": np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
    "words": np.array(["ab", "c"]),
    "another order of bytes": np.arange(5, dtype=">i4"),
    "half": np.arange(3, dtype=np.float16),
}


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize("array", SAVED.values(), ids=SAVED)
def test_bytes_of_an_array_are_read_as_numpy_reads_them(array):
    for _ in range(2):  # The second header is read correctly.
        read, known = files.from_npy(npy(array)), np.load(io.BytesIO(npy(array)))
        assert (read.dtype, read.shape) == (known.dtype, known.shape)
        assert read.flags.f_contiguous == known.flags.f_contiguous
        assert read.tobytes() == known.tobytes()
        assert read.flags.writeable


@pytest.mark.parametrize(
    "start", [b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % n for n in (300, -1)]
)
def test_bytes_that_are_no_array_of_their_length_are_refused(start):
    whole = npy(np.zeros(2))
    head = whole.partition(b"{")[0]
    length = int.from_bytes(head[8:], "little")
    with pytest.raises(ValueError, match=r"more bytes than it has|negative size"):
        files.from_npy(head + start.ljust(length) + whole[10 + length :][:16])
    for cut in (0, 5, 9, 30, len(whole) - 1):
        with pytest.raises(ValueError, match=r"EOF|magic|smaller"):
            files.from_npy(whole[:cut])
    with pytest.raises(ValueError, match="a pickle"):
        files.from_npy(npy(np.array([None], dtype=object)))
    with pytest.raises(ValueError, match=r"version \(2, 0\) of numpy's format"):
        files.from_npy(whole[:6] + b"\x02" + whole[7:])
