"""Errors in the words of the command line: what Python calls missing="mean" is --missing mean here."""

from __future__ import annotations

import re
from typing import Final

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
_BY_SPEC: Final = "by a spec, \"csv(path='x.csv', \\1)\""
_LISTED: Final = r"\[.*\]"


def spoken(message: str) -> str:
    """The message of an error, with options in place of Python's keywords."""
    message = message.replace("result.filling_gaps()", "--missing mean")
    message = re.sub(_READING, _BY_SPEC, message.replace("beside=[...]", "beside=['a']"))
    return re.sub(f"{_SPEC}|{_GIVEN}|{_FIRST}|{_ALONE}", _option, message)


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
