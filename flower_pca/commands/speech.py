"""Errors in the words of the command line: what Python calls missing="mean" is --missing mean here."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flower_pca.base.errors import ConfigError
from flower_pca.names.columns import listed

_OPTIONS: Final = {  # what Python names a setting, and the option that is the same
    **{
        name: f"--{name}" for name in ("missing", "scale", "seed", "tol", "center", "mask", "dp", "evaluate", "monitor")
    },
    **{name: f"--{name}" for name in ("backend", "algorithm", "columns", "level", "checkpoint", "influence", "resume")},
    **{name: f"--{name}" for name in ("split", "ids")},
    **{
        "n_components": "--components",
        "max_rounds": "--max-rounds",
        "source": "--limits",
        "algorithms": "--algorithms",
    },
}
_NAMES: Final = "|".join(sorted(_OPTIONS, key=len, reverse=True))
_SPEC: Final = r"\w+\([^()]*\)"  # a spec has its own settings, which stay as they are
_GIVEN: Final = rf"\b({_NAMES})=(\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[\w.+-]*\w)"
_ALONE: Final = r"\b(n_components|max_rounds)\b"
_FIRST: Final = rf"^({_NAMES})(?= )"
_READING: Final = r"\bwith (beside=\[[^\]]*\]|decimal=',')"  # what only the source of the rows takes
_TEXT: Final = r" in column (.+?) \(line "  # the first column that holds text
_LISTED: Final = r"\[.*\]"


def spoken(message: str, data: str | None = None) -> str:
    """The message of an error of a command over `data`, with options in place of Python's keywords."""
    message = message.replace("result.filling_gaps()", "--missing mean")
    named, begun = re.search(_TEXT, message), _begun("x.csv" if data is None else data)
    message = message.replace("beside=[...]", f"beside=[{(named[1] if named else 'a')!r}]")
    message = re.sub(_READING, lambda found: f'by a spec, "{begun}{found[1]})"', message)
    return re.sub(f"{_SPEC}|{_GIVEN}|{_FIRST}|{_ALONE}", _option, message)


def several(given: argparse.Namespace, more: Sequence[str]) -> ConfigError:
    """The error of a command that has been given several files where it takes one name."""
    words = f"flower-pca {given.command} {'RESULT ' if hasattr(given, 'result') else ''}FOLDER"
    remedy = f"Put the files into a folder, one client a file, and write: {words}."
    return ConfigError("DATA", must="one path, folder or spec", got=listed([given.data, *more]), then=remedy)


def _begun(data: str) -> str:
    """The spec of the source that reads this, up to where a setting and the last bracket are to be added."""
    if data.endswith(")"):
        return f"{data[:-1]}, "
    path = Path(data)
    source = "folder" if path.expanduser().is_dir() else path.suffix[1:].lower()
    return f"{source}(path={data!r}, "


def _option(found: re.Match[str]) -> str:
    named, value, first, alone = found.groups()
    if named is None:
        return _OPTIONS.get(first or alone, found[0])
    option, plain = _OPTIONS[named], value.strip("\"'")
    if re.fullmatch(_LISTED, value):
        return f"{option} a,b"
    if plain == "True":
        return option
    if plain == "False":
        return "--no-center" if named == "center" else f"no {option}"
    return f"no {option}" if plain == "None" else f"{option} {plain}"
