"""The run-config of the app: eight keys that people set, and one text, `options`, for all other settings.

Settings that also exist in Python or on the command line are declared in `base.settings`, and all others here. Tests
compare the app's own pyproject.toml and the documentation page about Flower with these tables. In a user's own app, any
setting may be a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from flower_pca.base import spec
from flower_pca.base.checks import did_you_mean
from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import join_with_and
from flower_pca.base.options import Advice, in_python, in_run_config
from flower_pca.base.settings import SETTINGS, Setting

Value: TypeAlias = str | int | float | bool


_OWN: Final = (
    Setting("data", "synthetic(n=2000, d=30, clients=10, seed=0)", "the rows of a simulation; a real node has its own"),
    Setting("algorithm", "auto(oversample='auto')", 'the algorithm of the run, such as "faps(inner_steps=5)"'),
    Setting("output", "flower-pca-out", "the folder of result.npz, preferably an absolute path"),
    Setting("min_nodes", 2, "how many nodes the run waits for, and needs in every round"),
    Setting("init", None, "result.npz of an earlier run, on the server's machine; the run starts from its components"),
    Setting("ids", None, "with partitioned_by=columns in a simulation: the column with the ids of the rows"),
    Setting("partition", "contiguous", "how a simulation splits the rows among its nodes"),
    Setting("clients_per_node", 1, "how many clients each node of a simulation hosts"),
    Setting("node_timeout", 60.0, "how many seconds the run waits for the nodes"),
    Setting("round_timeout", 600.0, "how many seconds the run waits for their answers"),
    Setting(
        "max_rows",
        None,
        "the maximum number of rows that a node may report; a node with more is left out, or ends a run with masks",
    ),
    Setting("checkpoint", None, "a file in the output folder, from which an interrupted run continues"),
    Setting("batch", 0, "for trackers in a simulation: how many rows a client has in each step"),
    Setting("steps", 0, "for trackers: how many steps to take; 0 to continue until no client has more rows"),
    Setting("interval", 0.0, "for trackers: the minimum number of seconds from one step to the next"),
    Setting("events", None, "for trackers: a file in the output folder that gets a line of JSON for every step"),
    Setting("live", None, "for trackers: a page (.html) in the output folder that shows the progress of the run"),
)
_ALL: Final = {**SETTINGS, **{setting.name: setting for setting in _OWN}}
_KEYS: Final = ("data", "algorithm", "n_components", "output", "min_nodes", "mask", "scale", "missing")
KEYS: Final = tuple(_ALL[name] for name in _KEYS)
OPTIONS: Final = tuple(setting for name, setting in _ALL.items() if name not in _KEYS)
# Settings of earlier versions, with the advice in the error about each of them
REMOVED: Final[Mapping[str, str]] = {
    "shard-answers": "leave it out, because every hosted client's answer now reaches the server separately",
    "influence": "leave it out, and read the hints of the result, which name outlying sites",
}
# Settings of `flower-pca run` that are parameters of the algorithm in a run-config
_OF_ALGORITHM: Final = ("max_rounds", "tol")
_FORM: Final = 'Write options="name=value, name=value", with quotes around a value that contains a comma.'


def settings_of(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a run by name: the defaults, replaced by the keys of its run-config and its options.

    Raises
    ------
    ConfigError
        If the options cannot be read, if an option is unknown, or if a setting was removed.
    """
    given = {name: value for name, value in run_config.items() if name != "options"}
    for name in given:
        _check_removed(name)
    defaults = {setting.key: setting.value for setting in (*KEYS, *OPTIONS)}
    return {**defaults, **given, **read_options(str(run_config.get("options", "")))}


def read_options(text: str) -> dict[str, Value]:
    """Return the settings in a text such as "reconstruction-error=true, partition=iid(seed=1)"."""
    found: dict[str, Value] = {}
    names, keys = [setting.key for setting in OPTIONS], [setting.key for setting in KEYS]
    for part in _split_at_commas(text):
        name, equals, value = part.partition("=")
        name, value = name.strip().replace("_", "-"), value.strip()
        if not equals or not name or not value:
            raise ConfigError(
                f"{part!r} in the options of the run-config ({text!r}) does not have the form name=value. {_FORM}"
            )
        _check_removed(name)
        if name in keys:
            raise ConfigError(f'{name} is not an option but a separate key. Write --run-config "{name}=...".')
        if name not in names:
            remedy = did_you_mean(name, names, otherwise=f"The options are {join_with_and(names)}.")
            if (parameter := name.replace("-", "_")) in _OF_ALGORITHM:
                remedy = f'It is a parameter of the algorithm: write algorithm="krylov({parameter}={value})".'
            raise ConfigError(f"The run-config has the option {name!r}, which does not exist. {remedy}")
        if name in found:
            raise ConfigError(f"The run-config has the option {name} twice. Remove one of them.")
        found[name] = _parse_value(value)
    return found


def _check_removed(name: str) -> None:
    """Raise ConfigError for a setting of an earlier version. The error says what to use instead."""
    if name in REMOVED:
        raise ConfigError(f"The setting {name} of the run-config was removed: {REMOVED[name]}.", setting=name)


def advice_writer(algorithm: str) -> Callable[[Advice], str]:
    """Return a function that writes advice for users of `flwr run` with this algorithm.

    It writes a key as a key, an option as part of the text `options`, a parameter of the algorithm inside the spec
    string, and everything else as in Python.
    """
    keys, options = [setting.key for setting in KEYS], [setting.key for setting in OPTIONS]

    def written(advice: Advice) -> str:
        match advice:
            case ["option", name, *_] if name.replace("_", "-") in keys:
                return in_run_config(advice)
            case ["option", name] if name.replace("_", "-") in options:
                return in_run_config(advice)
            case ["option", name, value] if name.replace("_", "-") in options and not isinstance(value, dict):
                return f'options="{in_run_config(advice).replace(chr(34), chr(39))}"'
            case ["option", name, value] if name in _OF_ALGORITHM:
                return f'algorithm="{spec.with_parameter(algorithm, name, value)}"'
        return in_python(advice)

    return written


def _split_at_commas(text: str) -> Iterator[str]:
    """Yield the parts of a text between its commas. Commas in brackets and quotes do not separate parts."""
    part, depth, quote = "", 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            yield part.strip()
            part = ""
            continue
        part += character
    if quote or depth:
        raise ConfigError(
            f"The run-config has the options {text!r}, in which a bracket or a quote is not closed. {_FORM}"
        )
    if part.strip():
        yield part.strip()


def _parse_value(text: str) -> Value:
    """Return the value of a text by the rules of TOML, except that a string needs no quotes."""
    if text[0] in "\"'" and text[-1] == text[0] and len(text) > 1:
        return text[1:-1]
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
