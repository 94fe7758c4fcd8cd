"""Checks of values that users pass. Messages read "<setting> must be <rule>, not <value>. <remedy>"."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.options import OPTIONS, advice_to_fill, option
from flower_pca.base.shown import shown

_LONGEST_PATH: Final = 4095  # maximum number of characters of a path in Linux
NODE: Final = "this node"  # the name of the owner of the rows in messages at a node


def invalid_setting(what: str, rule: str, got: str, remedy: str = "") -> ConfigError:
    """Return a ConfigError with the text "<what> must be <rule>, not <got>. <remedy>".

    If `what` begins with the name of a setting, the error writes this name as the user's interface does.
    """
    head, space, rest = what.partition(" ")
    sentence = f"must be {rule}, not {got}. {remedy}".rstrip()
    if head not in OPTIONS:
        return ConfigError(f"{what} {sentence}")
    return ConfigError(f"{option(head)}{space}{rest} {sentence}", setting=head)


def did_you_mean(word: str, known_names: Iterable[str], otherwise: str = "Choose one of these.") -> str:
    """Return a question that suggests the known name nearest to a misspelled name.

    Return `otherwise` if no known name is similar, and "Leave it out." if no names are known.
    """
    names = list(known_names)
    if not names:
        return "Leave it out."
    close = difflib.get_close_matches(word.lower(), names, n=1)
    if not close:
        return otherwise
    return f"Did you mean {close[0]!r}?"


def integer(what: str, value: object, *, least: int = 0, most: int | None = None, remedy: str = "") -> None:
    """Raise ConfigError unless the value is a whole number from `least` to `most`. None means no maximum."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise invalid_setting(what, f"a whole number {bounds}", shown(value), remedy)


def number(what: str, value: object, *, least: float, most: float = np.inf, remedy: str = "") -> None:
    """Raise ConfigError unless the value is a finite number from `least` to `most`."""
    valid = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (valid and least <= float(value) <= most and np.isfinite(float(value))):  # type: ignore[arg-type]
        rule = f"a number from {least:g} to {most:g}" if most < np.inf else f"a finite number of at least {least:g}"
        raise invalid_setting(what, rule, shown(value), remedy)


def parse_share(value: Any) -> Any:
    """Return the text of a share, such as "95%" or "0.95", as a number. Return all other values unchanged."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", value)
    if match is None:
        return value
    number = float(match[1])
    if match[2]:
        return number / 100.0
    return number


def as_numbers(what: str, value: Any) -> np.ndarray[Any, Any]:
    """Return the value as an array of numbers.

    Raise ConfigError if this is impossible. Unlike numpy's errors, this error does not quote the value.
    """
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{what} must be numbers, not {shown(value)}. Give a list or an array.") from None


def proportion(what: str, value: object) -> None:
    """Raise ConfigError unless the value is above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < value <= 1.0:
        raise invalid_setting(what, "above 0 and at most 1", shown(value))


def use_python_numbers(settings: Any) -> None:
    """Replace numpy numbers in the fields of a dataclass by Python numbers, also within tuples.

    Files store the text of settings. The text of a numpy number is, for example, np.float64(0.1), which cannot be read.
    """
    for field in fields(settings):
        given = getattr(settings, field.name) if field.init else None
        if isinstance(given, np.generic | tuple):
            plain = tuple(map(python_number, given)) if type(given) is tuple else python_number(given)
            object.__setattr__(settings, field.name, plain)


def python_number(value: Any) -> Any:
    """Return a numpy number as a Python number, and any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def choices(settings: object, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ConfigError unless each attribute named in `allowed` has one of the values listed there."""
    for name, values in allowed.items():
        value = getattr(settings, name)
        if not isinstance(value, str | bool | np.bool_ | None) or value not in values:
            choice(name, value, values)


def choice(what: str, value: object, allowed: tuple[Any, ...]) -> None:
    """Raise ConfigError unless the value is one of the allowed values."""
    # `in` alone would compare an array entry by entry, and fail.
    if not isinstance(value, str | bool | np.bool_ | None) or value not in allowed:
        remedy = ""
        if names := [a for a in allowed if isinstance(a, str)]:
            remedy = did_you_mean(str(value), names, otherwise="")
        elif isinstance(value, str):
            remedy = "Write it without quotation marks."
        raise invalid_setting(what, labels.join_with_or([repr(a) for a in allowed]), shown(value), remedy)


def require_path(what: str, value: object) -> None:
    """Raise ConfigError unless the value can be the path of a file.

    Without this check, a system error would quote the rows of a table that was given in place of a path.
    """
    if isinstance(value, os.PathLike):
        return
    if not isinstance(value, str) or "\n" in value or len(value) > _LONGEST_PATH:
        raise ConfigError(f"The path of {what} must be a string on one line, not {shown(value)}.")


def parent_exists(what: str, path: str | os.PathLike[str]) -> None:
    """Raise ConfigError unless the folder of an output file exists, so that a run does not fail at its end."""
    require_path(what, path)
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"The folder of {what}, {folder}, does not exist. Create this folder first.")


def components(n_components: object, *, words: Sequence[str] = ()) -> int | float:
    """Return a number of components as an int of at least 1, or a fraction of the variance as a float in (0, 1).

    Raise ConfigError for all other values. A share such as "95%" is converted. `words` are further values,
    which the caller accepts before it calls this function. The error lists them, too.
    """
    given, n_components = n_components, parse_share(n_components)
    if isinstance(n_components, int | np.integer) and not isinstance(n_components, bool) and n_components >= 1:
        return int(n_components)
    if isinstance(n_components, float | np.floating) and 0.0 < n_components < 1.0:
        return float(n_components)
    rules = ["a whole number of at least 1", "a share of the variance such as 0.9", *(f'"{word}"' for word in words)]
    raise invalid_setting("n_components", labels.join_with_or(rules), shown(given))


def components_available(n_components: int | float | str, n: int, d: int) -> None:
    """Raise ConfigError if n rows with d columns have fewer components than requested."""
    if isinstance(n_components, int) and n_components > min(n, d):
        raise ConfigError(
            f"At most {min(n, d)} components are possible ({n:,} rows, {d:,} columns), not {n_components}.",
            setting="n_components",
            value=n_components,
        )


def finite(
    who: str,
    blocks: Iterable[np.ndarray[Any, Any]],
    *,
    missing: bool = False,
    names: Sequence[str] | None = None,
    place: Callable[[int], str] | None = None,
    new: bool = False,
) -> int:
    """Raise DataError unless all entries are finite. With `missing`, NaN is allowed, too.

    Parameters
    ----------
    who : str
        The owner of the rows.
    blocks : iterable of ndarray
        The rows, in blocks.
    missing : bool
        Whether NaN is allowed.
    names : sequence of str or None
        The names of the columns, for the error about the first entry that is not finite. If several columns with the
        same name are made from one column, the error counts a missing value only once.
    place : callable or None
        A function that returns a description of a row, by its number.
    new : bool
        Whether these are new rows, to which an existing result is applied.

    Returns
    -------
    int
        The number of NaN.
    """
    nan = infinite = start = 0
    first = ""
    for values in blocks:
        # If the sum is finite, all entries are finite. This check is cheap.
        with np.errstate(over="ignore", invalid="ignore"):
            # A sum that is not finite may also be an overflow, so entries are checked one by one below.
            usual = values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64))
        if not usual:
            bad = np.isinf(values) if missing else ~np.isfinite(values)
            nan += int(np.isnan(values).sum()) - _duplicate_gaps(values, () if missing else names or ())
            infinite += int(np.isinf(values).sum())
            if values.ndim == 2 and bad.any() and not first and (place or not missing):
                row, column = map(int, np.argwhere(bad)[0])
                where = f"row {start + row} (from 0 on)" if place is None else place(start + row)
                name = column if names is None else names[column]
                first = f"The first is in {where}, column {name}. "
        start += values.shape[0] if values.ndim else 1
    if infinite or (nan and not missing):
        raise not_finite_error(who, nan, infinite, first, is_new=new)
    return nan


def _duplicate_gaps(values: np.ndarray[Any, Any], names: Sequence[str]) -> int:
    """Return the number of missing values in columns that have the same name as an earlier column."""
    first: dict[str, int] = {}
    numbered = enumerate(names)
    again = [j for j, name in numbered if first.setdefault(name, j) != j]
    if not again or values.ndim != 2:
        return 0
    return int(np.isnan(values[:, again]).sum())


def not_finite_error(who: str, nan: int, infinite: int = 0, first: str = "", *, is_new: bool = False) -> DataError:
    """Return the error for the given numbers of NaN and infinite entries. `first` describes the first such entry."""
    # By default, a node allows only local_mean, so a message at a node must not advise mean.
    by = "local_mean" if who == NODE else "mean"
    when, fill = " before the run", f", or use {option('missing', by)}"
    if is_new:
        when, fill = "", f", or use {advice_to_fill()}"
    if not nan:
        fill = ""
    found = [f"{labels.count(nan, 'missing value')} (NaN)"] if nan else []
    found += [labels.count(infinite, "infinite value")] if infinite else []
    return DataError(f"The data of {who} has {' and '.join(found)}. {first}Impute or drop them{when}{fill}.")


def parameters(owner: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise ConfigError if `given` has a parameter that is not among the `known` parameters of `owner`."""
    names = list(known)
    for name in given:
        if name not in names:
            if not names:
                raise ConfigError(f"{owner} has no parameters, but {shown(name)} is given. Leave it out.")
            remedy = did_you_mean(name, names, otherwise=f"Its parameters are {labels.join_with_and(names)}.")
            raise ConfigError(f"{owner} has no parameter {shown(name)}. {remedy}")
