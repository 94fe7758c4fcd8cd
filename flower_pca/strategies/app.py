"""The server side of the app that `flwr run` starts. It runs what the run-config describes, and saves the result.

The app imports this module late, because no node needs it, and a node's process starts with every message.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from itertools import chain, count
from logging import INFO
from pathlib import Path
from typing import Any, Final

from flwr.app import Context
from flwr.serverapp import Grid

from flower_pca import registry, run_config
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.options import Sentence, option, with_advice_written
from flower_pca.base.shown import shown
from flower_pca.hosting import EACH
from flower_pca.report.live import watching
from flower_pca.results import saved
from flower_pca.results.pca import PCAResult
from flower_pca.results.record import StepRecord
from flower_pca.results.steps import TrackingResult
from flower_pca.strategies.exchange import log
from flower_pca.strategies.pca import PCAStrategy, TrackingStrategy

# The settings with the names of the files, in the output folder, to which a tracker's steps are written
_STEP_FILES: Final = ("events", "live")


class _InRunConfigWords(logging.Filter):
    """A logging filter that replaces names of settings in this package's log messages by their run-config names.

    Parameters
    ----------
    algorithm : str
        The algorithm of the run. Its parameters are written in brackets after its name.
    """

    def __init__(self, algorithm: str) -> None:
        super().__init__()
        self._written = run_config.advice_writer(algorithm)

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the settings in the arguments of a log record, and accept the record."""
        if isinstance(record.args, tuple):
            record.args = tuple([self._in_run_config_words(value) for value in record.args])
        return True

    def _in_run_config_words(self, value: object) -> object:
        """Return a sentence with rewritten settings, and any other value unchanged."""
        return with_advice_written(value, self._written) if isinstance(value, Sentence) else value


def run(grid: Grid, context: Context) -> None:
    """Run the strategy that the run-config describes, and save its result as result.npz in the output folder."""
    logger, said = logging.getLogger("flwr"), _InRunConfigWords(str(context.run_config.get("algorithm", "auto")))
    for earlier in [each for each in logger.filters if isinstance(each, _InRunConfigWords)]:
        logger.removeFilter(earlier)
    logger.addFilter(said)
    _run(grid, context)
    # If the run fails, the filter stays, because Flower logs the error after this function has ended.
    logger.removeFilter(said)


def _run(grid: Grid, context: Context) -> None:
    config = run_config.settings_of(context.run_config)
    wanted = Path(str(config["output"])).expanduser()
    folder = _output_folder(wanted)
    settings = _strategy_settings(config)
    folder.mkdir(parents=True, exist_ok=True)
    if settings.get("checkpoint"):
        settings["checkpoint"] = folder / settings["checkpoint"]
    result: PCAResult | TrackingResult
    if registry.is_tracker(str(config.get("algorithm", ""))):
        result = _result_of_tracker(grid, settings, config, folder)
    else:
        for what in _STEP_FILES:
            if config.get(what):
                raise ConfigError(
                    f"{what} shows the steps of a tracker, but {config['algorithm']} has no steps. Leave {what} out.",
                    setting=what,
                    value=config[what],
                )
        result = PCAStrategy(**settings).fit(grid)
    if (folder / "result.npz").exists():  # Another run has saved its result in the meantime.
        folder = _output_folder(wanted)
        folder.mkdir(parents=True, exist_ok=True)
    with saved.saving_on_failure(result):
        log(INFO, "Components saved in %s", result.save(folder / "result.npz"))


def _output_folder(requested: Path) -> Path:
    """Return the output folder. If the folder of a relative path already has a result, a number is appended.

    An absolute path is used unchanged. The folder of an interrupted run has no result, so it is used again, and
    the run continues from its checkpoint.
    """
    if requested.is_absolute():
        return requested.resolve()
    numbered = (requested.with_name(f"{requested.name}-{n}") for n in count(2))
    return next(folder.resolve() for folder in chain([requested], numbered) if not (folder / "result.npz").exists())


def _result_of_tracker(grid: Grid, settings: dict[str, Any], config: Mapping[str, Any], folder: Path) -> TrackingResult:
    """Run a tracker and return its result. Its steps are written to the files that the run-config names."""
    names = {what: str(config[what]) for what in _STEP_FILES}
    paths = {what: folder / name for what, name in names.items() if name}
    resume = bool(settings.get("checkpoint")) and Path(settings["checkpoint"]).exists()
    title = f"Steps of {settings['algorithm']}"
    events, live = paths.get("events"), paths.get("live")
    with watching(events=events, live=live, title=title, resume=resume) as on_step:
        return _tracking_strategy(settings, config, on_step).fit(grid)


def _tracking_strategy(
    settings: dict[str, Any], config: Mapping[str, Any], on_step: Callable[[StepRecord], None]
) -> TrackingStrategy:
    """Return the strategy of a tracker, and refuse settings that only PCAStrategy has."""
    names = inspect.signature(TrackingStrategy).parameters
    plain = inspect.signature(PCAStrategy).parameters
    for name, value in settings.items():
        if name not in names and name != "algorithm" and value not in (None, False, plain[name].default):
            raise ConfigError(
                f"A tracker has no setting {option(name)}, but the run-config sets it to {shown(value)}. Leave it out.",
                setting=name,
                value=value,
            )
    given = {name: value for name, value in settings.items() if name in names}
    steps, interval = int(config["steps"]), float(config["interval"])
    return TrackingStrategy(settings["algorithm"], **given, steps=steps or None, interval=interval, on_step=on_step)


def _strategy_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of PCAStrategy that a run-config sets.

    In a run-config, names of settings have hyphens instead of underscores, and "" means None.
    """
    names = {name.replace("_", "-"): name for name in inspect.signature(PCAStrategy).parameters}
    given = {names[key]: value for key, value in config.items() if key in names}
    settings = {name: None if value == "" else value for name, value in given.items()}
    each = config[EACH]
    checks.integer(EACH, each, least=1, remedy="Use 1 for a client in each node.")
    if int(each) > 1:
        settings["hosted"] = "stacked"
    return settings
