"""Save and load results: convert a result into the header and arrays of a file, and back into its fields."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pkgutil
import re
import sys
import tempfile
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from flower_pca.base import files, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.history import History, Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import marks_of
from flower_pca.dp.spent import Spent
from flower_pca.results.left_out import LeftOut, plain_left_out, unpack_left_out

R = TypeVar("R")

_RESULT_MODULE: Final = re.compile(r"flower_pca\.\w+\.result")
# These fields are stored in another form, or not at all.
_STORED_OTHERWISE: Final = (
    *("status", "history", "config", "local", "feature_names_in_", "feature_digest", "site_names", "left_out"),
    *("decisions", "hints", "privacy"),
)
# Every header has the entries `_RUN` about the run. Headers of batch results also have the entries `_RESULT`.
_RUN: Final = ("config", "status", "history", "feature_names", "feature_digest", "site_names", "left_out")
_RESULT: Final = ("class", "module", "privacy", "decisions", "hints")
# Older files lack these fields, which then have the default values.
_DEFAULTS: Final = {"histograms_of": "rows"}
_FINITE: Final = ("components_", "explained_variance_", "mean_", "scale_", "fill_")


class HasRun(Protocol):
    """A result with the fields about its run, which all kinds of results have."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration of the run, as plain values."""

    @property
    def status(self) -> Status:
        """Why the run ended."""

    @property
    def history(self) -> History:
        """The messages of the run."""

    @property
    def feature_names_in_(self) -> Array | None:
        """The names of the columns, or None if columns have no names."""

    @property
    def feature_digest(self) -> str:
        """The digest of the column names, if clients do not send the names."""

    @property
    def site_names(self) -> Mapping[int, str]:
        """The names of the clients, by key."""

    @property
    def left_out(self) -> Mapping[int, LeftOut]:
        """The clients whose rows are not in the result, by key."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to a file."""


class HasClients(HasRun, Protocol):
    """A result of a batch run, which has more fields than the result of tracking a stream."""

    @property
    def privacy(self) -> Spent | None:
        """The privacy budget that the run has spent, or None without differential privacy."""

    @property
    def decisions(self) -> tuple[str, ...]:
        """The automatic choices of the run, with their reasons."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints about suspicious data."""


@dataclasses.dataclass(frozen=True)
class _StoredFields:
    """The names of the fields of a result that are stored under these names, grouped by type."""

    arrays: tuple[str, ...]
    optional: frozenset[str]  # arrays that may be None
    plain: tuple[str, ...]

    @classmethod
    def of_class(cls, kind: type[Any]) -> _StoredFields:
        """Return the fields of a class of results.

        Raises
        ------
        ConfigError
            If an annotation of the class uses a name that its module does not have at run time.
        """
        try:
            hints = typing.get_type_hints(kind)
        except NameError as error:
            raise ConfigError(
                f"The fields of {kind.__qualname__} cannot be saved, because {kind.__module__} lacks a name that "
                f"their annotations use: {error}. Import it there at run time, not only under TYPE_CHECKING."
            ) from error
        named = [f.name for f in dataclasses.fields(kind) if f.name not in _STORED_OTHERWISE]
        members = {name: _classes_allowed(hints[name]) for name in named}
        arrays = tuple(name for name in named if np.ndarray in members[name])
        return cls(
            arrays,
            frozenset(name for name in arrays if type(None) in members[name]),
            tuple(name for name in named if name not in arrays),
        )


def _classes_allowed(annotation: Any) -> set[Any]:
    """Return the classes that an annotation allows, without type parameters: numpy.ndarray for NDArray[float64]."""
    # With Python 3.12 and later, numpy's NDArray is a type alias, which has the type in `__value__`.
    if hasattr(annotation, "__value__"):
        return _classes_allowed(annotation.__value__)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(_classes_allowed, typing.get_args(annotation)))
    if origin is typing.Annotated:
        return _classes_allowed(annotation.__origin__)
    if origin is None:
        return {annotation}
    return _classes_allowed(origin)


def arrays_of(result: object) -> dict[str, Array]:
    """Return the arrays of a result by name, without arrays that are None."""
    found = {name: getattr(result, name) for name in _StoredFields.of_class(type(result)).arrays}
    return {name: a for name, a in found.items() if a is not None}


def header_of_result(result: HasClients) -> dict[str, Any]:
    """Return the header of a result's file: everything but its arrays, as plain values."""
    return {
        **{name: getattr(result, name) for name in _StoredFields.of_class(type(result)).plain},
        "class": type(result).__name__,
        "module": type(result).__module__,
        "privacy": None if result.privacy is None else dataclasses.asdict(result.privacy),
        "decisions": list(result.decisions),
        "hints": list(map(marks_of, result.hints)),
        **run_fields_as_plain(result),
    }


@contextlib.contextmanager
def saving_on_failure(result: HasRun) -> Iterator[None]:
    """Save the result in a temporary folder if the block fails to write files, for example because a disk is full.

    Otherwise, the result would be lost, and the run and all its messages would have to be repeated.
    """
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="flower-pca-"))
            try:
                error.add_note(f"The result itself is in {result.save(folder / 'result.npz')}.")
            except OSError:
                # The temporary folder has no space either, so the empty folder is removed.
                folder.rmdir()
        raise


def class_of(path: str | os.PathLike[str], header: Mapping[str, Any], kinds: Mapping[str, type[R]]) -> type[R]:
    """Return the class of the result in a file. If necessary, import the result classes of this package.

    A class of another package must have been imported before, because a file must not choose what is imported.
    """
    require_entries(path, "result", _RESULT, header)
    name, module = header["class"], str(header["module"])
    if name not in kinds:
        _import_results(module)
    if name not in kinds:
        remedy = f"Import {module} first."
        raise DataError(f"The result in {path} is a {name}, a class that is not imported here. {remedy}")
    return kinds[name]


def _import_results(module_name: str) -> None:
    """Import all modules of this subpackage, and the named module if it defines results in another subpackage."""
    room = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(sys.modules[room].__path__):
        importlib.import_module(f"{room}.{module.name}")
    if _RESULT_MODULE.fullmatch(module_name):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module_name)


def run_fields_as_plain(result: HasRun) -> dict[str, Any]:
    """Return the fields of `HasRun` as plain values: configuration, status, history and names."""
    return {
        "config": result.config,
        "status": [result.status.outcome.value, marks_of(result.status.words)],
        "history": result.history.to_json(),
        "feature_names": labels.tuple_of(result.feature_names_in_),
        "feature_digest": result.feature_digest,
        "site_names": {str(key): name for key, name in result.site_names.items()},
        "left_out": plain_left_out(result.left_out),
    }


def run_fields_from_plain(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `HasRun`, restored from the plain values of `run_fields_as_plain`."""
    outcome, words = header["status"]
    return {
        "config": header["config"],
        "status": Status(Outcome(outcome), words),
        "history": History.from_json(header["history"]),
        "feature_names_in_": labels.array_of(header["feature_names"]),
        "feature_digest": header["feature_digest"],
        "site_names": {int(key): name for key, name in header["site_names"].items()},
        "left_out": unpack_left_out(header["left_out"]),
    }


def fields_from_file(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Array], *, kind: type[Any]
) -> dict[str, Any]:
    """Return the fields of a result of this class, from the header and the arrays of its file.

    Raise a DataError if the file lacks a field, or if its arrays do not match.
    """
    header = {**_DEFAULTS, **header}
    own = _StoredFields.of_class(kind)
    needed = {*own.arrays} - own.optional
    require_entries(path, "result", {*own.plain, *_RESULT, *needed}, {*header, *arrays})
    _require_consistent(path, arrays, header["feature_names"])
    spent = header["privacy"]
    return {
        **{name: arrays.get(name) for name in own.arrays},
        **{name: header[name] for name in own.plain},
        "decisions": tuple(header["decisions"]),
        "hints": tuple(map(str, header["hints"])),
        "privacy": None if spent is None else files.unpack_value(Spent, spent, {}),
        **run_fields_from_plain(header),
    }


def require_entries(path: str | os.PathLike[str], kind: str, needed: Iterable[str], entries: Iterable[str]) -> None:
    """Raise a DataError if a file lacks entries that its kind needs, or entries about the run that all results need."""
    if missing := {*needed, *_RUN} - set(entries):
        raise DataError(
            f"{path} is not a complete {kind}: it lacks {', '.join(sorted(missing))}. Save the result again."
        )


def _require_consistent(path: str | os.PathLike[str], arrays: Mapping[str, Array], names: Any) -> None:
    """Raise a DataError if numbers are not finite, scales are not positive, or shapes do not match."""
    Z = arrays["components_"]
    of_columns = {name: a.shape for name, a in arrays.items() if name in ("mean_", "scale_", "fill_")}
    if names is not None:
        of_columns["feature_names"] = (len(names),)
    finite = (arrays[name] for name in _FINITE if name in arrays)
    together = Z.ndim == 2 and set(of_columns.values()) <= {Z.shape[1:]}
    together &= arrays["explained_variance_"].shape == Z.shape[:1]
    scale = arrays.get("scale_", np.ones(1))
    if not (together and all(np.isfinite(a).all() for a in finite) and (scale > 0.0).all()):
        raise DataError(f"The arrays of the result in {path} do not match, or are not finite. Save the result again.")
