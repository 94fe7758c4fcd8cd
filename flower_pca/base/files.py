"""Safe reading, writing and locking of files.

If other users can write to a folder, a file with the intended name may already exist there. It may be
another user's file, or a link to another file, which this process would then read, lock or overwrite.
In such a folder, a file is opened only if it is a regular file of this user without further hard links.
In the user's own folders, links are followed.

Files are npz archives with a JSON header. They contain no pickle and are written atomically. `pack_value`
stores dataclasses of arrays and numbers in a file. `Trail` stores the steps of a tracker's run.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import importlib.util
import json
import math
import os
import secrets
import stat
import tempfile
import types
import typing
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, Literal, Protocol, Self, runtime_checkable

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError, FlowerPCAError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import with_article

# Windows has no module fcntl.
fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

_LOCK: Final = ".lock"  # the suffix of the name of a lock file
# Operating systems report one of these errors if a file must not be opened because it is a link.
_LINK_ERRORS: Final = (errno.ELOOP, errno.EMLINK)
# Files up to this size are read at once, because reading a zip of many arrays seeks back and forth.
_SMALL: Final = 2**20
_HEAD: Final = 2  # number of entries before the step's data in a record: the step's number, and the run's mark


def opener(path: str, flags: int) -> int:
    """Open a file, and return its handle. Use this function as the argument `opener` of `open`.

    A new file can be read only by its owner. In a folder to which other users can write, raise DataError for a link or
    for another user's file.
    """
    exposed = _is_exposed(Path(path).absolute().parent)
    # O_NONBLOCK avoids a wait for the other end of a pipe.
    safely = os.O_NOFOLLOW | os.O_NONBLOCK if exposed else 0
    try:
        handle = os.open(path, flags | safely | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        if exposed and error.errno in _LINK_ERRORS:
            raise _unsafe_file_error(path, "is a link") from error
        raise
    found = os.fstat(handle)
    if exposed and not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink <= 1):
        os.close(handle)
        raise _unsafe_file_error(path, "is not a file that belongs to this user alone")
    return handle


def no_follow_flag(path: Path) -> int:
    """Return the flag for `os.open` that refuses links, or 0 if no other user can create a link in the folder."""
    if _is_exposed(path.absolute().parent):
        return os.O_NOFOLLOW
    return 0


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner can read, unless it exists.

    Raise DataError if the folder is a link that belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() and os.name == "posix" and folder.lstat().st_uid not in (0, os.geteuid()):
        raise _unsafe_file_error(os.fspath(folder), "is a link that belongs to another user")


def is_writable_by_all(folder: Path) -> bool:
    """Return whether all users of the machine may replace the files in a folder."""
    mode = folder.stat().st_mode
    return os.name == "posix" and bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


@contextlib.contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a file within the block. If another process has locked it, wait, or without `wait` raise ConfigError.

    The lock is a second file, because every write replaces the file itself. The lock ends with the process, even if the
    process is killed. With `wait`, the lock file stays for the next process, unless the locked file does not exist.
    Without `wait`, the lock file is removed. On a system without file locks, this function does nothing.
    """
    if fcntl is None:
        yield
        return
    lock = path.with_name(path.name + _LOCK)
    handle = _take_lock(path, lock, wait=wait)
    try:
        yield
    finally:
        if not wait or not path.exists():
            lock.unlink(missing_ok=True)
        os.close(handle)  # Closing the file ends the lock.


def _take_lock(path: Path, lock: Path, *, wait: bool) -> int:
    """Lock the lock file, and return its handle.

    If another process has locked the file, wait, or without `wait` raise ConfigError. If another process has removed
    the file, try again.
    """
    while True:
        handle = opener(os.fspath(lock), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous owner may have removed the file. In this case, other processes lock a new file of this name.
            if os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise ConfigError(f"Another run is using {path}. Wait until it ends, or name another file.") from error
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_exposed(folder: Path) -> bool:
    """Return whether a user other than root and this user may create a file in a folder."""
    if os.name != "posix":
        return False
    found = folder.stat()
    return found.st_uid not in (0, os.geteuid()) or bool(found.st_mode & stat.S_IWOTH)


def _unsafe_file_error(path: str, fault: str) -> DataError:
    error = DataError(
        f"{path} {fault}, and other users may write to its folder, so it is not read. Remove it, or name another "
        "folder."
    )
    error.private = True
    return error


@runtime_checkable
class Recorder(Protocol):
    """The state of a stage that records its latest steps as rows of numbers.

    Attributes
    ----------
    keep : int
        The maximum number of recorded steps.
    gone : int
        The number of earlier steps, which are no longer recorded.
    record : tuple
        The recorded steps.
    """

    keep: int
    gone: int
    record: tuple[Any, ...]

    def lines(self, newest: int) -> Array:
        """Return the latest `newest` steps, one in each row."""

    def figures(self) -> dict[str, Array]:
        """Return the figures of the recorded steps that a result needs, and the totals of all steps."""

    def with_last_step(self, steps: int | None) -> Self:
        """Return the state with another limit on the number of steps, or without a limit if `steps` is None."""

    def with_steps(self, lines: Array) -> Self:
        """Return the state whose recorded steps are the rows of `lines`."""


class Trail:
    """A file with the finished steps of a tracker. With this file, saving takes the same time after every message.

    Every message rewrites the checkpoint, which would grow with the bases of all recorded steps. So the steps
    are in a second file, in records of equal length, and each new step replaces the oldest record. The
    file has one more record than the number of recorded steps. Therefore no step is missing if the machine
    stops after a record was written and before the checkpoint was written.

    Parameters
    ----------
    checkpoint : path
        The file of the checkpoint. The file of steps has the same name followed by .steps.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint.with_name(f"{checkpoint.name}.steps")
        # The mark is below 2^52, because records consist of float64, which represents whole numbers up to 2^53 exactly.
        self._done, self._mark = 0, float(secrets.randbelow(2**52))

    def add(self, state: Any) -> dict[str, Any]:
        """Write the new steps, and return entries for the checkpoint's header, with which `read` finds the steps.

        Return an empty dictionary if the state is not a `Recorder`.
        """
        if not isinstance(state, Recorder):
            return {}
        if not state.record:
            return {"steps": None}
        count = state.gone + len(state.record)
        slots = state.keep + 1
        lines = state.lines(min(count - self._done, len(state.record)))
        if len(lines):
            # An existing file belongs to another run, or is a link that somebody else has created.
            if not self._done:
                self.remove()
            with naming_file_in_errors(self._path), open(self._path, "r+b", opener=open_for_writing) as file:
                for number, line in enumerate(lines, count - len(lines)):
                    whole = np.concatenate([[number, self._mark], line])
                    file.seek(number % slots * whole.nbytes)
                    file.write(whole.tobytes())
                # The steps must be on the disk before the checkpoint that refers to them.
                file.flush()
                os.fsync(file.fileno())
            self._done = count
        width = _HEAD + state.lines(1).shape[1]
        steps = {"count": count, "kept": len(state.record), "width": width, "mark": self._mark}
        return {"steps": steps}

    def read(self, header: Mapping[str, Any], keep: int) -> dict[str, Array]:
        """Return the steps to which a checkpoint refers, as the array "steps", or an empty dictionary without steps.

        Raise DataError if the file does not belong to the checkpoint, and ValueError if the header is not valid.
        """
        steps = header["steps"]
        if steps is None:
            return {}
        count = int(steps["count"])
        width = int(steps["width"])
        recent = int(steps["kept"])
        if not (0 <= recent <= min(keep, count) and width > _HEAD):
            raise ValueError("more steps than are kept")
        numbers, lines = range(count - recent, count), []
        if self._path.is_symlink():
            raise self._other_run_error("are a link")
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb", opener=opener) as file:
            for number in numbers:
                file.seek(number % (keep + 1) * width * 8)
                lines.append(np.frombuffer(file.read(width * 8)))
        heads = [line[:_HEAD].tolist() for line in lines]
        if heads != [[number, steps["mark"]] for number in numbers]:
            raise self._other_run_error("do not belong to the checkpoint")
        self._done, self._mark = count, float(steps["mark"])
        return {"steps": np.stack(lines)[:, _HEAD:]}

    def remove(self) -> None:
        """Remove the file, because the run is over."""
        self._path.unlink(missing_ok=True)

    def _other_run_error(self, fault: str) -> DataError:
        return DataError(f"The steps in {self._path} {fault}. Delete the checkpoint, and start the run again.")


def open_for_writing(path: str, flags: int) -> int:
    """Open a file for writing as `opener` does, but never follow a symbolic link."""
    return opener(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0))


HEADER: Final = "header.json"  # the name of the header in a file
# Errors about the kind of a file recommend one of these functions.
_LOADERS = {"result": "PCAResult.load", "tracking result": "TrackingResult.load"}
_PLAIN_TYPES: Final[dict[Any, tuple[type, ...]]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
# If a dataclass field has this key in its metadata, `pack_value` leaves the field out, because it is saved elsewhere.
APART = "apart"
# If an array field has this key in its metadata, the array only grows by columns. The key is also the suffix of the
# array's packed name.
GROWS: Final = "+"


@contextlib.contextmanager
def naming_file_in_errors(path: Path) -> Iterator[None]:
    """Within the block, add the file's name to errors, because the error about a full disk does not name a file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # If numpy cannot write all bytes, it raises an OSError without a number.
            raise OSError(errno.EIO, str(error), str(path)) from error
        error.filename = str(path)
        raise


@contextlib.contextmanager
def replacing_file(path: str | os.PathLike[str], *, private: bool = False, sync: bool = True) -> Iterator[IO[bytes]]:
    """Yield a stream whose content replaces the file at the end of the block. If the block fails, the old file stays.

    Only its owner can read a `private` file. Without `sync`, the file may be damaged if the machine stops.
    """
    target = Path(path)
    with naming_file_in_errors(target):
        # The temporary file is in the same folder, because a rename is atomic only within a file system.
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                if not private:  # mkstemp creates private files, but most files should have the usual permissions.
                    umask = os.umask(0)  # Reading the umask requires setting it.
                    os.umask(umask)
                    place = file.fileno() if os.chmod in os.supports_fd else temporary
                    os.chmod(place, 0o666 & ~umask)
                # The data must be on the disk before the file is renamed, because the machine may stop in between.
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            # An interruption must not leave a half-written file.
            Path(temporary).unlink(missing_ok=True)
            raise


def write(
    path: str | os.PathLike[str],
    kind: str,
    header: dict[str, Any],
    arrays: dict[str, Array],
    *,
    private: bool = False,
    sync: bool = True,
) -> Path:
    """Write a file of this kind completely or not at all, and return its path."""
    checks.require_path(f"the {kind}", path)
    with replacing_file(path, private=private, sync=sync) as file:
        _save(file, kind, header, arrays)
    return Path(path)


def read(path: str | os.PathLike[str], kind: str, *, private: bool = False) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and arrays of a file.

    Reading takes no more memory than the file's size, whatever sizes the file's headers claim.

    Raises
    ------
    DataError
        If the file is of another kind or damaged, or with `private`, if another user may have written it.
    """
    checks.require_path(f"the {kind}", path)
    if Path(path).is_dir():
        inside = Path(path) / "result.npz"
        remedy = f"Did you mean {inside}?" if inside.is_file() else "Check the path."
        raise DataError(f"{path} is a folder. {remedy}")
    how = opener if private else None
    with refusing_malformed(path, kind), open(path, "rb", opener=how) as stream:
        header, arrays = _load(stream)
    if header.get("kind") != kind:
        found = str(header.get("kind"))
        remedy = "Check the path."
        if found in _LOADERS and kind in _LOADERS:
            remedy = f"Use {_LOADERS[found]}."
        raise DataError(f"{path} is {with_article(found)}, not {with_article(kind)}. {remedy}")
    return header, arrays


def to_bytes(kind: str, header: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """Return the bytes of a file of this kind, for example to send them in a message."""
    with BytesIO() as stream:
        _save(stream, kind, header, arrays)
        return stream.getvalue()


def from_bytes(kind: str, packed: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and arrays that `to_bytes` has packed. This takes no more memory than the bytes themselves.

    Raises
    ------
    DataError
        If the bytes are of another kind or damaged.
    """
    try:
        header, arrays = _load(BytesIO(packed))
        if header.get("kind") != kind:
            raise ValueError("another kind")
    except Exception as error:  # For foreign bytes, numpy and zipfile raise errors of many classes.
        raise DataError(
            f"These bytes are not a {kind} of flower_pca: they cannot be read ({type(error).__name__}). Ask the "
            f"sender to save the {kind} again."
        ) from error
    return header, arrays


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the kind of a file, or "" if this package has not written the file."""
    try:
        with refusing_malformed(path, "file"), open(path, "rb") as stream:
            return str(_load(stream)[0].get("kind", ""))
    except DataError:
        return ""


@contextlib.contextmanager
def refusing_malformed(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Within the block, convert errors about malformed content into a DataError that names the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError, FlowerPCAError):
        raise
    except Exception as error:
        raise DataError(
            f"{path} is not {with_article(kind)} of flower_pca: it cannot be read ({type(error).__name__}). "
            f"Check the path."
        ) from error


def from_npy(packed: bytes) -> Array:
    """Return the array from bytes in numpy's npy format. Raise ValueError for a pickle or a wrong length."""
    stream = BytesIO(packed)
    shape, by_columns, dtype = check_npy(stream, len(packed))
    values = np.frombuffer(packed, dtype, math.prod(shape), stream.tell())
    if by_columns:
        order: Literal["F", "C"] = "F"
    else:
        order = "C"
    # An array that refers to bytes is read-only, so it is copied.
    return values.reshape(shape, order=order).copy(order="K")


def check_npy(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, column order and dtype of an array in numpy's npy format, after reading its header.

    Raise ValueError for a pickle, or if the array would have more than `size` bytes.
    """
    start = stream.read(10)
    shape, by_columns, dtype = _npy_header(start + stream.read(int.from_bytes(start[8:], "little")))
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError("its header describes an array with more bytes than it has")
    return shape, by_columns, dtype


@functools.lru_cache(maxsize=512)
def _npy_header(start: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, column order and dtype from the header of an array. Raise ValueError if they are not valid.

    Results are cached, because headers repeat, and numpy runs Python's parser for each of them.
    """
    stream = BytesIO(start)
    # Only structured arrays with many field names need a later version of the format.
    if (version := np.lib.format.read_magic(stream)) != (1, 0):
        raise ValueError(f"an array in version {version} of numpy's format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("a pickle, or an array of negative size")
    return shape, by_columns, dtype


def _save(stream: IO[bytes], kind: str, header: dict[str, Any], arrays: dict[str, Array]) -> None:
    text = json.dumps({"kind": kind, "arrays": sorted(arrays), **header})
    head = np.frombuffer(text.encode(), dtype=np.uint8)
    whole = _Archive(stream, "w")
    for name, a in {HEADER: head, **arrays}.items():
        # The length of a part is unknown when writing begins, and may exceed 2 GB.
        with whole.open(f"{name}.npy", "w", force_zip64=True) as part:
            np.lib.format.write_array(part, np.asanyarray(a), allow_pickle=False)
    whole.close()


class _Archive(zipfile.ZipFile):
    """A zip file that Python does not close when the object is deleted.

    If an interruption leaves the file half-written, Python's own class reports that the file cannot be
    closed, which hides the interruption.
    """

    def __del__(self) -> None:
        """Do nothing. Python's own method would try to close the file."""


def _load(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Array]]:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    with zipfile.ZipFile(BytesIO(stream.read()) if size <= _SMALL else stream) as whole:
        parts = whole.infolist()
        # This package does not compress files, so no part can be longer than the file.
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or sum(p.file_size for p in parts) > size:
            raise ValueError("parts that are longer than the file")
        arrays = {part.filename.removesuffix(".npy"): from_npy(whole.read(part)) for part in parts}
    header = dict(json.loads(arrays.pop(HEADER).tobytes()))
    if sorted(arrays) != header.pop("arrays"):
        raise ValueError("some arrays are missing")
    return header, arrays


def pack_value(value: Any, arrays: dict[str, Array], name: str) -> Any:
    """Return a value, for example a dataclass, as JSON values, and add its arrays to `arrays`.

    The names of the arrays begin with `name`.
    """
    if is_dataclass(value) and not isinstance(value, type):
        kept = {f.name: GROWS if GROWS in f.metadata else "" for f in fields(value) if APART not in f.metadata}
        return {field: pack_value(getattr(value, field), arrays, f"{name}.{field}{end}") for field, end in kept.items()}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return name
    if isinstance(value, dict):
        return {str(key): pack_value(item, arrays, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        numbered = enumerate(value)
        return [pack_value(item, arrays, f"{name}.{i}") for i, item in numbered]
    if isinstance(value, np.generic):
        return value.item()
    return value


@functools.cache
def _types_of(kind: type) -> dict[str, Any]:
    """Return the types of a class's fields. They are cached, because Python parses the annotations at every call."""
    return typing.get_type_hints(kind)


def unpack_value(kind: Any, value: Any, arrays: dict[str, Array]) -> Any:
    """Return the value of type `kind` that `pack_value` has converted to JSON values and arrays.

    Raise ValueError if a plain value has another type than its field.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    # Newer versions of numpy define NDArray as an alias.
    origin = typing.get_origin(getattr(origin, "__value__", None)) or origin
    if origin in (typing.Union, types.UnionType):
        kinds = [option for option in arguments if option is not types.NoneType]
        if value is None or type(value) in (plain for option in kinds[1:] for plain in _PLAIN_TYPES.get(option, ())):
            return value
        return unpack_value(kinds[0], value, arrays)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _types_of(kind)
        names = (f.name for f in fields(kind) if APART not in f.metadata)
        return kind(**{field: unpack_value(hints[field], value[field], arrays) for field in names})
    if np.ndarray in (kind, origin):
        return arrays[value]
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        return tuple(unpack_value(option, item, arrays) for option, item in zip(kinds, value, strict=True))
    if origin is dict:
        of_key, of_item = arguments
        return {of_key(key): unpack_value(of_item, item, arrays) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    # `isinstance` would accept True as an int.
    if kind in _PLAIN_TYPES and type(value) not in _PLAIN_TYPES[kind]:
        raise ValueError(f"a {type(value).__name__} instead of a {kind.__name__}")
    return value
