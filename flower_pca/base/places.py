"""Places: files of this process's own, which nobody else has laid there, locked for one process at a time.

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
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from flower_pca.base.errors import ConfigError, DataError

fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None  # none on Windows

_LOCK: Final = ".lock"  # at the end of the name of a file: what stands for it while it is replaced
_LINK: Final = (errno.ELOOP, errno.EMLINK)  # what systems say of a link that is not to be followed


def opener(path: str, flags: int) -> int:
    """For `open`: a file for its owner only, and in a folder where others may write none but one's own."""
    exposed = _exposed(Path(path).absolute().parent)
    safely = os.O_NOFOLLOW | os.O_NONBLOCK if exposed else 0  # of a pipe nobody waits for the other end
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
    return os.O_NOFOLLOW if _exposed(path.absolute().parent) else 0


def made(folder: Path) -> None:
    """Make a folder for its owner only, if there is none; DataError if it is a link that somebody else has laid."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() and os.name == "posix" and folder.lstat().st_uid not in (0, os.geteuid()):
        raise _strange(os.fspath(folder), "a link")


def free_for_all(folder: Path) -> bool:
    """Whether all users of the machine may replace what lies in a folder."""
    mode = folder.stat().st_mode
    return os.name == "posix" and bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes from a file until the end; ConfigError if one has it and this one shall not wait.

    The lock lies beside the file, which is itself replaced by every writing; it ends with the process, however that
    ends. Who waits leaves it for the next; who does not has done with the file, and takes it away. Where there is no
    file, no lock is left either.
    """
    lock = path.with_name(path.name + _LOCK)
    handle = _taken(path, lock, wait=wait)
    try:
        yield
    finally:
        if not wait or not path.exists():
            lock.unlink(missing_ok=True)
        os.close(handle)  # which ends the lock


def _taken(path: Path, lock: Path, *, wait: bool) -> int:
    """The lock, once it is this process's and still lies there: who has had it before may have taken it away."""
    while True:
        handle = opener(os.fspath(lock), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
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


def _exposed(folder: Path) -> bool:
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
