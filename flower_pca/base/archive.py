"""Files: an npz with a JSON header. No pickle, written atomically; and dataclasses of arrays and numbers as such."""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import math
import os
import tempfile
import types
import typing
import zipfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np

from flower_pca.base import files
from flower_pca.base.errors import DataError, FlowerPCAError
from flower_pca.base.linalg import Array

_HEADER = "header.json"
# by kind
_LOADERS = {"result": "PCAResult.load", "tracking result": "TrackingResult.load"}
_PLAIN: Final[dict[Any, tuple[type, ...]]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
# in the metadata of a dataclass's field: whoever packs the dataclass packs this by other means
APART = "apart"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[IO[bytes]]:
    """A stream to write the file anew: afterwards the whole new one is there, or the old one untouched.

    A `private` file is readable by its owner only.
    """
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if not private:  # as mkstemp's are; ours are mostly ordinary files
                umask = os.umask(0)  # nobody can ask for it without setting it
                os.umask(umask)
                os.chmod(file.fileno() if os.chmod in os.supports_fd else temporary, 0o666 & ~umask)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(
    path: str | os.PathLike[str],
    kind: str,
    header: dict[str, Any],
    arrays: dict[str, Array],
    *,
    private: bool = False,
) -> Path:
    """Write a file of this kind, whole or not at all."""
    with replacing(path, private=private) as file:
        _save(file, kind, header, arrays)
    return Path(path)


def read(path: str | os.PathLike[str], kind: str, *, private: bool = False) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of a file of this kind; of a `private` one only if nobody else can have laid it there.

    Raises:
        DataError: If it is none. No more memory is taken than the file is long, whatever its headers say.
    """
    if private:
        opener = files.opener
    else:
        opener = None
    with refuse_others(path, kind), open(path, "rb", opener=opener) as stream:
        header, arrays = _load(stream)
    if header.get("kind") != kind:
        rule = f"{_a(kind)} that flower_pca has saved"
        found = str(header.get("kind"))
        remedy = "Check the path."
        if found in _LOADERS and kind in _LOADERS:
            remedy = f"Use {_LOADERS[found]}."
        raise DataError(str(path), must=rule, got=_a(found), then=remedy)
    return header, arrays


def to_bytes(kind: str, header: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """What `write` would write, as bytes for a message."""
    with BytesIO() as stream:
        _save(stream, kind, header, arrays)
        return stream.getvalue()


def from_bytes(kind: str, packed: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays that `to_bytes` has packed.

    Raises:
        DataError: If they are not of this kind, or damaged. No more memory is taken than there are bytes.
    """
    try:
        header, arrays = _load(BytesIO(packed))
        if header.get("kind") != kind:
            raise ValueError("another kind")
    except Exception as error:  # bytes from elsewhere: numpy and zipfile raise nearly anything on them
        rule, got = f"a {kind} that flower_pca has packed", f"bytes that cannot be read as one ({type(error).__name__})"
        raise DataError(f"The bytes of a {kind}", must=rule, got=got, then="Check the sender.") from error
    return header, arrays


def kind(path: str | os.PathLike[str]) -> str:
    """What kind of file it is; "" of one that is none of ours."""
    try:
        with refuse_others(path, "file"), open(path, "rb") as stream:
            return str(_load(stream)[0].get("kind", ""))
    except DataError:
        return ""


@contextlib.contextmanager
def refuse_others(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Turn whatever malformed content makes of Python, numpy or zipfile into the sentence that the file is another."""
    try:
        yield
    except (FileNotFoundError, PermissionError, FlowerPCAError):
        raise
    except Exception as error:
        rule = f"{_a(kind)} that flower_pca has saved"
        got = f"a file that cannot be read as one ({type(error).__name__})"
        raise DataError(str(path), must=rule, got=got, then="Check the path.") from error


def from_npy(packed: bytes) -> Array:
    """The array that bytes in numpy's format are; ValueError if it is a pickle, or longer than they are."""
    stream = BytesIO(packed)
    shape, by_columns, dtype = check_npy(stream, len(packed))
    values = np.frombuffer(packed, dtype, math.prod(shape), stream.tell())
    if by_columns:
        order: Literal["F", "C"] = "F"
    else:
        order = "C"
    return values.reshape(shape, order=order).copy(order="K")


def check_npy(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and kind of an array in numpy's format; ValueError if longer than the `size` bytes it is in."""
    start = stream.read(10)
    shape, by_columns, dtype = _npy_header(start + stream.read(int.from_bytes(start[8:], "little")))
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError("an array longer than its bytes")
    return shape, by_columns, dtype


@functools.lru_cache(maxsize=512)
def _npy_header(start: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """What the first bytes of an array say. Numpy parses Python for it, and the rounds of a run repeat few of them."""
    stream = BytesIO(start)
    # others are for records of many names
    if (version := np.lib.format.read_magic(stream)) != (1, 0):
        raise ValueError(f"numpy's format {version}")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("a pickle, or an array of less than nothing")
    return shape, by_columns, dtype


def _save(stream: IO[bytes], kind: str, header: dict[str, Any], arrays: dict[str, Array]) -> None:
    text = json.dumps({"kind": kind, "arrays": sorted(arrays), **header})
    np.savez(stream, **{_HEADER: np.frombuffer(text.encode(), dtype=np.uint8), **arrays})  # type: ignore[arg-type]


def _load(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Array]]:
    _check_sizes(stream)
    with np.load(stream, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header = dict(json.loads(arrays.pop(_HEADER).tobytes()))
    if sorted(arrays) != header.pop("arrays"):
        raise ValueError("not all arrays are there")
    return header, arrays


def _check_sizes(stream: IO[bytes]) -> None:
    """Nothing in a file of ours is compressed: no part is longer than the whole, and no array than its part."""
    size = stream.seek(0, os.SEEK_END)
    with zipfile.ZipFile(stream) as whole:
        parts = whole.infolist()
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or sum(p.file_size for p in parts) > size:
            raise ValueError("parts that are longer than the file")
        for part in parts:
            with whole.open(part) as opened:
                check_npy(opened, part.file_size)
    stream.seek(0)


def pack(value: Any, arrays: dict[str, Array], name: str) -> Any:
    """A dataclass (or a part of one) as JSON; its arrays go into `arrays` under names that start with `name`."""
    if is_dataclass(value) and not isinstance(value, type):
        names = (f.name for f in fields(value) if APART not in f.metadata)
        return {field: pack(getattr(value, field), arrays, f"{name}.{field}") for field in names}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return name
    if isinstance(value, dict):
        return {str(key): pack(item, arrays, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [pack(item, arrays, f"{name}.{i}") for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    return value


def unpack(kind: Any, value: Any, arrays: dict[str, Array]) -> Any:
    """The value of this type that `pack` took apart."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    # of an alias, as newer NDArrays are
    origin = typing.get_origin(getattr(origin, "__value__", None)) or origin
    if origin in (typing.Union, types.UnionType):
        kinds = [option for option in arguments if option is not types.NoneType]
        if value is None or type(value) in (plain for option in kinds[1:] for plain in _PLAIN.get(option, ())):
            return value
        return unpack(kinds[0], value, arrays)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        names = (f.name for f in fields(kind) if APART not in f.metadata)
        return kind(**{field: unpack(hints[field], value[field], arrays) for field in names})
    if origin is np.ndarray:
        return arrays[value]
    if origin is tuple:
        kinds = list(arguments)
        if arguments[-1] is Ellipsis:
            kinds = [arguments[0]] * len(value)
        return tuple(unpack(option, item, arrays) for option, item in zip(kinds, value, strict=True))
    if origin is dict:
        return {arguments[0](key): unpack(arguments[1], item, arrays) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind in _PLAIN and type(value) not in _PLAIN[kind]:
        raise ValueError(f"{type(value).__name__} for {kind.__name__}")
    return value


def _a(kind: str) -> str:
    if kind[:1] in "aeiou":
        article = "an"
    else:
        article = "a"
    return f"{article} {kind}"
