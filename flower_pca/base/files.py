"""Files of this process's own: which nobody else has laid there, locked for one process at a time; and `Trail`.

In a folder of another user's, or one that all users of the machine may write to, something may lie already under a name
that is to be ours: a link, by which we would read, lock or write what it leads to, or a file of somebody else's making.
There a file is opened only if it is a regular one of this user's, under one name. In folders of one's own, links are
one's own affair.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array

# none on Windows
fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

# at the end of the name of a file: what stands for it while it is replaced
_LOCK: Final = ".lock"
# what systems say of a link that is not to be followed
_LINK: Final = (errno.ELOOP, errno.EMLINK)
_HEAD: Final = 2  # numbers before a line: the step, and the mark of the run


def opener(path: str, flags: int) -> int:
    """For `open`: a file for its owner only, and in a folder where others may write none but one's own."""
    exposed = _is_exposed(Path(path).absolute().parent)
    # of a pipe nobody waits for the other end
    if exposed:
        safely = os.O_NOFOLLOW | os.O_NONBLOCK
    else:
        safely = 0
    try:
        handle = os.open(path, flags | safely | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        if exposed and error.errno in _LINK:
            raise _strange(path, "a link") from error
        raise
    found = os.fstat(handle)
    if exposed and not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink <= 1):
        os.close(handle)
        raise _strange(path, "another")
    return handle


def not_through_links(path: Path) -> int:
    """The flag for `os.open` with which nothing is written where somebody else's link leads."""
    if _is_exposed(path.absolute().parent):
        return os.O_NOFOLLOW
    return 0


def make_folder(folder: Path) -> None:
    """Make a folder for its owner only, if there is none; DataError if it is a link that somebody else has laid."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() and os.name == "posix" and folder.lstat().st_uid not in (0, os.geteuid()):
        raise _strange(os.fspath(folder), "a link")


def free_for_all(folder: Path) -> bool:
    """Whether all users of the machine may replace what lies in a folder."""
    mode = folder.stat().st_mode
    return os.name == "posix" and bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


@contextlib.contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes from a file until the end; ConfigError if one has it and this one shall not wait.

    The lock lies beside the file, which is itself replaced by every writing; it ends with the process, however that
    ends. Who waits leaves it for the next; who does not has done with the file, and takes it away. Where there is no
    file, no lock is left either.
    """
    lock = path.with_name(path.name + _LOCK)
    handle = _take_lock(path, lock, wait=wait)
    try:
        yield
    finally:
        if not wait or not path.exists():
            lock.unlink(missing_ok=True)
        os.close(handle)  # which ends the lock


def _take_lock(path: Path, lock: Path, *, wait: bool) -> int:
    """The lock, once it is this process's and still lies there: who has had it before may have taken it away."""
    while True:
        handle = opener(os.fspath(lock), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            rule, remedy = "used by one run at a time", "Wait for the other run, or name another file."
            raise ConfigError(str(path), must=rule, got="a file that another run has open", then=remedy) from error
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_exposed(folder: Path) -> bool:
    """Whether somebody else may lay a file in a folder: but for the system's own user, who may do anything."""
    if os.name != "posix":
        return False
    found = folder.stat()
    return found.st_uid not in (0, os.geteuid()) or bool(found.st_mode & stat.S_IWOTH)


def _strange(path: str, got: str) -> DataError:
    rule = "this user's own, as others may write to its folder"
    error = DataError(path, must=rule, got=got, then="Remove it, or name another folder.")
    error.private = True
    return error


@runtime_checkable
class Recorder(Protocol):
    """The state of a stage that keeps a record of its newest steps, as lines of numbers."""

    keep: int
    gone: int
    record: tuple[Any, ...]

    def lines(self, newest: int) -> Array:
        """The newest steps, one by row."""

    def figures(self) -> dict[str, Array]:
        """What a result needs of them, and the totals of all steps."""

    def until(self, steps: int | None) -> Self:
        """With so many steps to take, which may be others than before; None for as many as there is data for."""

    def recall(self, lines: Array) -> Self:
        """With the steps that `lines` has written."""


class Trail:
    """The finished steps of a tracker's run beside its checkpoint, so that a message costs the same at every step.

    A checkpoint is written anew with every message; the bases of all steps that are kept would make it ever longer.
    They lie in a file of lines of equal length beside it, in which a step takes the place of the oldest one. There is
    one line more than are kept: should the machine stop between the line and the checkpoint, none is lacking.

    Args:
        checkpoint: The file that they lie beside, under its name with .steps behind.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint.with_name(f"{checkpoint.name}.steps")
        self._done, self._mark = 0, float(secrets.randbelow(2**52))

    def add(self, state: Any) -> dict[str, Any]:
        """Write the steps that are new, and say what the checkpoint needs to find them."""
        if not isinstance(state, Recorder) or not state.record:
            return {}
        count, slots = state.gone + len(state.record), state.keep + 1
        lines = state.lines(min(count - self._done, len(state.record)))
        if len(lines):
            # what lies there is of another run, or a link that somebody has laid
            if not self._done:
                self.remove()
            with open(self._path, "r+b", opener=_open_for_writing) as file:
                for number, line in enumerate(lines, count - len(lines)):
                    whole = np.concatenate([[number, self._mark], line])
                    file.seek(number % slots * whole.nbytes)
                    file.write(whole.tobytes())
                file.flush()
                os.fsync(file.fileno())
            self._done = count
        width = _HEAD + state.lines(1).shape[1]
        return {"steps": {"count": count, "kept": len(state.record), "width": width, "mark": self._mark}}

    def read(self, header: Mapping[str, Any], keep: int) -> dict[str, Array]:
        """The steps that a checkpoint speaks of."""
        if "steps" not in header:
            return {}
        steps = header["steps"]
        count, width, kept = int(steps["count"]), int(steps["width"]), int(steps["kept"])
        if not (0 <= kept <= min(keep, count) and width > _HEAD):
            raise ValueError("more steps than are kept")
        numbers, lines = range(count - kept, count), []
        if self._path.is_symlink():
            raise self._others("a link")
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb", opener=opener) as file:
            for number in numbers:
                file.seek(number % (keep + 1) * width * 8)
                lines.append(np.frombuffer(file.read(width * 8)))
        if [line[:_HEAD].tolist() for line in lines] != [[number, steps["mark"]] for number in numbers]:
            raise self._others("others")
        self._done, self._mark = count, float(steps["mark"])
        return {"steps": np.stack(lines)[:, _HEAD:]}

    def remove(self) -> None:
        """There is nothing to go on from any more."""
        self._path.unlink(missing_ok=True)

    def _others(self, got: str) -> DataError:
        remedy = "Delete the checkpoint, and start the run again."
        return DataError(f"The steps in {self._path}", must="those of the checkpoint", got=got, then=remedy)


def _open_for_writing(path: str, flags: int) -> int:
    """A file of its owner's, and never one elsewhere that a link leads to."""
    return opener(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0))
