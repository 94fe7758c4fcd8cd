"""Functions that the commands share: arguments, tables, JSON, a progress bar, and messages with command-line options.

For example, messages that advise missing="mean" in Python advise --missing mean here.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

from flower_pca.base import checks, files, labels, spec
from flower_pca.base.errors import ConfigError, DataError, FlowerPCAError
from flower_pca.base.options import ANY, OPTIONS, Advice, in_python, with_advice_written
from flower_pca.base.settings import COUNTED, COUNTING, FLAG, SETTINGS
from flower_pca.base.shown import shown
from flower_pca.core.drive import Driven
from flower_pca.names.columns import enumeration, split_names

if TYPE_CHECKING:
    from flower_pca.analysis.rotation import Rotation
    from flower_pca.results.pca import PCAResult
    from flower_pca.results.steps import TrackingResult

# A suggested name has at least this similarity (by difflib): about one different letter in a short name.
_LEAST_SIMILARITY: Final = 0.75
EVERY = 5.0  # seconds between two progress lines if stderr is not a terminal


def add_command(
    commands: Any, name: str, words: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add the parser of a command, with the option --json, and return it."""
    about = f"{labels.capitalize(words)}."
    added: argparse.ArgumentParser = commands.add_parser(name, help=words, description=about)
    added.add_argument("--json", action="store_true", help="print JSON instead of tables")
    added.set_defaults(run=run)
    return added


def add_settings(parser: argparse.ArgumentParser, *chosen: str, words: str = "") -> None:
    """Add options for these settings, as `SETTINGS` declares them. `words` replaces their help texts if it is given."""
    for setting in map(SETTINGS.__getitem__, chosen):
        kind: dict[str, Any] = {"default": setting.default, "metavar": setting.metavar}
        if setting.choices == FLAG:
            kind = {"action": "store_true"}
        elif True in setting.choices:
            kind = {"action": argparse.BooleanOptionalAction}
        elif setting.choices:
            kind = {"default": setting.default, "choices": [value for value in setting.choices if value]}
        elif setting.metavar == "COLUMNS":
            kind |= {"type": names, "action": "extend", "default": None}
        elif isinstance(setting.default, int):
            kind |= {"type": int}
        text = words or setting.words.replace("%", "%%")
        if text != argparse.SUPPRESS and kind.get("default") is not None:
            text += f" (default: {setting.default})"
        parser.add_argument(setting.option, help=text, **kind)


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """Add DATA, the options that deal its rows to clients, and the options that leave out columns or sites."""
    text = "a path, a folder of one file per client, or a spec such as \"csv(path='x.csv', columns=['a', 'b'])\""
    parser.add_argument("data", metavar="DATA", help=text)
    parser.add_argument(
        "--clients", type=int, metavar="N", help="number of clients (default: as many as the partition has, else 10)"
    )
    text = "who gets which rows: contiguous, \"dirichlet(0.3, column='y')\", \"by_column('site')\", ..."
    parser.add_argument("--partition", metavar="SPEC", help=f"{text} (default: a folder's files, else contiguous)")
    add_column_options(parser)
    text = 'sites to leave out: names or patterns, such as "trier,test_*"'
    parser.add_argument("--without", type=names, action="extend", default=[], metavar="SITES", help=text)


def add_column_options(parser: argparse.ArgumentParser) -> None:
    """Add --columns, --drop and --gaps."""
    text = "names of the columns to use, separated by commas (default: all)"
    parser.add_argument("--columns", metavar="NAMES", help=text)
    _add_gaps_option(parser)
    text = 'columns to leave out: names or patterns, separated by commas, such as "name,lab_*"'
    parser.add_argument("--drop", type=names, action="extend", default=[], metavar="COLUMNS", help=text)


def _add_gaps_option(parser: argparse.ArgumentParser) -> None:
    """Add --gaps."""
    text = (
        'what stands for a missing value in addition to empty cells and NA, such as --gaps=".,?,-999", or in one '
        "column only, such as --gaps age=999"
    )
    parser.add_argument("--gaps", type=names, action="extend", metavar="VALUES", help=text)


def add_data_options(parser: argparse.ArgumentParser, *, counts: bool = True, gaps: bool = True) -> None:
    """Add DATA, and the options that deal its rows to clients, center and scale columns, and control a run.

    Parameters
    ----------
    parser : ArgumentParser
        The parser of a command.
    counts : bool, default=True
        Whether the run may choose the number of components, as with --components signal.
    gaps : bool, default=True
        Whether the command can handle missing values. If not, its help does not show --missing, and the command refuses
        this option.
    """
    add_row_options(parser)
    text = "number of components, or the share of the variance that they must exceed, such as 0.95 or 95%%"
    if counts:
        counted_by = [f' or "{word}", for {what}' for word, what in COUNTED.items()]
        text += ";" + ",".join(counted_by)
    text += " (default: 2)"
    parser.add_argument("--components", type=_parse_n_components, default=2, metavar="K", help=text)
    add_settings(parser, "center", "scale")
    text = 'how NaN and empty cells are handled: as an "error", or filled with the "mean" of their column'
    add_settings(parser, "missing", words=text if gaps else argparse.SUPPRESS)
    add_settings(parser, "seed")
    parser.add_argument(
        "--tol", type=float, metavar="T", help="error at which a run has converged (default: set by the algorithm)"
    )
    parser.add_argument("--max-rounds", type=int, metavar="R", help="largest number of rounds")


def add_missing_options(parser: argparse.ArgumentParser) -> None:
    """Add --missing and --gaps for new rows."""
    text = (
        'how NaN and empty cells are handled: as an "error", or filled with the "mean" of their column in the run '
        "(default: error, unless"
    )
    text += " the run allowed missing values)"
    parser.add_argument("--missing", choices=("error", "mean"), default="error", help=text)
    _add_gaps_option(parser)


def add_rotate_option(parser: argparse.ArgumentParser) -> None:
    """Add --rotate, which takes a method with its settings."""
    text = "rotate the components so that each depends on few columns: varimax or promax, with settings if needed: "
    parser.add_argument("--rotate", metavar="SPEC", help=f'{text}"varimax(kaiser=False)"')


def add_algorithm_option(parser: argparse.ArgumentParser) -> None:
    """Add --algorithm, which takes a single algorithm."""
    text = 'a name, or a spec such as "faps(inner_steps=5)"; see flower-pca list (default: auto, krylov or covariance)'
    parser.add_argument("--algorithm", default="auto", metavar="SPEC", help=text)


def add_mask_option(parser: argparse.ArgumentParser) -> None:
    """Add --mask, which takes optional settings."""
    text = 'hide the answers of single clients, with settings if needed: "masks(neighbors=20)"; write DATA before it'
    parser.add_argument("--mask", nargs="?", const="true", default="false", metavar="SPEC", help=text)


def add_partitioned_by_option(parser: argparse.ArgumentParser) -> None:
    """Add --partitioned-by and --ids."""
    add_settings(parser, "partitioned_by")
    text = "with --partitioned-by columns, the column with the ids of rows (default: rows are matched by position)"
    parser.add_argument("--ids", metavar="NAME", help=text)


def add_out_option(parser: argparse.ArgumentParser) -> None:
    """Add --out, which takes a folder."""
    text = "folder to write to (default: flower-pca-out)"
    parser.add_argument("--out", type=Path, default=Path("flower-pca-out"), metavar="DIR", help=text)


def add_verbose_option(parser: argparse.ArgumentParser) -> None:
    """Add --verbose."""
    text = "also print why the run ended, and why it made its automatic choices"
    parser.add_argument("--verbose", action="store_true", help=text)


def require_two_clients(mask: object, clients: int) -> None:
    """Raise a ConfigError if there are masks but fewer than two clients."""
    if mask is not None and clients < 2:
        remedy = "Deal the rows out to more clients, because a sum over one client hides nothing, or leave --mask out."
        raise ConfigError(f"--mask needs at least 2 clients, but there is {clients}. {remedy}")


def clients_of(args: argparse.Namespace) -> list[Any]:
    """Return the rows of each client, as the options deal them out."""
    from flower_pca.data import partition, sources

    if getattr(args, "partitioned_by", "rows") == "columns":
        if args.partition is not None:
            raise ConfigError(
                "With --partitioned-by columns, each file belongs to one client, so no rows are dealt out. Leave "
                "--partition out."
            )
        return sources.parties(
            args.data,
            ids=args.ids,
            clients=args.clients,
            drop=args.drop,
            without=args.without,
            gaps=gaps_by_column(args),
        )
    require_options_of_rows(args)
    if args.partition is None:
        needed = None
    else:
        needed = partition.label_column(args.partition)
    beside, columns = () if needed is None else (needed,), split_names(args.columns)
    covariates = getattr(args, "covariates", ())
    if columns is not None:
        columns = tuple(dict.fromkeys([*columns, *covariates]))
    more = sources.words_among(args.data, covariates, drop=args.drop, without=args.without, gaps=gaps_by_column(args))
    table = sources.table(
        args.data,
        beside=beside,
        columns=columns,
        words=tuple(dict.fromkeys([*getattr(args, "words", ()), *more])),
        drop=args.drop,
        without=args.without,
        gaps=gaps_by_column(args),
    )
    shards = partition.deal(table.whole(), args.partition, args.clients)
    if len(table.parts) == 1 and args.partition is None and args.clients is None:
        sys.stderr.write(
            f"flower-pca: {args.data} has one file, so its rows are dealt out to {len(shards)} clients. For another "
            "number, add --clients.\n"
        )
    if table.sites:
        return shards
    return _without_sites(shards, args.without)


def require_options_of_rows(given: argparse.Namespace) -> None:
    """Raise a ConfigError if options of a run over rows contradict each other."""
    if getattr(given, "ids", None) is not None:
        raise ConfigError(
            "--ids is for --partitioned-by columns. Write --partitioned-by columns as well, or leave --ids out."
        )
    if both := [name for name in getattr(given, "covariates", ()) if name in given.drop]:
        raise ConfigError(
            f"--drop leaves out {enumeration(both)}, but --explain, --adjust or --keep needs it. Remove it from "
            "--drop: a column of these options is never a feature."
        )


def name_sites_without_rows(shards: Mapping[Any, Any]) -> None:
    """Print to stderr which of these sites have no rows."""
    if empty := [str(site) for site, rows in shards.items() if not rows.shape[0]]:
        sys.stderr.write(f"flower-pca: These sites are not used, because they have no rows: {', '.join(empty)}\n")


def by_site(shards: Sequence[Any]) -> dict[Any, Any]:
    """Return the rows of each client by the name of its site, or by its position if its site has no name."""
    return {getattr(rows, "site", "") or i: rows for i, rows in enumerate(shards)}


def gaps_by_column(args: argparse.Namespace) -> dict[str, list[str]] | None:
    """Return the values of --gaps by column, with "*" for values that apply to all columns."""
    found: dict[str, list[str]] = {}
    for text in getattr(args, "gaps", None) or ():
        column, equals, value = text.rpartition("=")
        found.setdefault(column if equals and column else "*", []).append(value)
    return found or None


def with_near_match(error: FlowerPCAError) -> FlowerPCAError:
    """Return the error, or for a missing path, an error that suggests the most similar name in the same folder."""
    if error.setting != "path" or not isinstance(error.value, str):
        return error
    path = Path(error.value).expanduser()
    beside: list[str] = []
    with suppress(OSError):
        beside = [entry.name for entry in path.absolute().parent.iterdir()]
    close = difflib.get_close_matches(path.name, beside, n=1, cutoff=_LEAST_SIMILARITY)
    if not close:
        return error
    near = str(path.with_name(close[0]))
    return DataError(f"No file or folder named {shown(error.value)}. Did you mean {near!r}?")


def _without_sites(shards: list[Any], patterns: Sequence[str]) -> list[Any]:
    """Return the shards of the sites that match none of these patterns. Raise a ConfigError if a pattern has no match.

    Only sites that a column has named can match.
    """
    from flower_pca.data.reading import names_matching, require_matches

    sites = [getattr(shard, "site", "") for shard in shards]
    require_matches("site to leave out", filter(None, sites), patterns)
    return [shard for shard, site in zip(shards, sites, strict=True) if not names_matching([site], patterns)]


def writable_folder(path: Path, *, data: str) -> Path:
    """Return the folder to write to, or raise an error before the run if nothing can be written to it.

    The folder of the data is refused, because the next run would read the new files as rows of sites.
    """
    place, source = path.expanduser().absolute(), Path(data).expanduser()
    if place.is_dir() and source.is_dir() and place.samefile(source):
        raise ConfigError(f"{place} has the data, so a run does not write to it. Name another folder with --out.")
    if place.exists() and not place.is_dir():
        raise ConfigError(f"{place} is a file, so nothing can be written into it. Name a folder with --out.")
    above = next(parent for parent in (place, *place.parents) if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ConfigError(f"Nothing can be written to {above}. Name another folder with --out.")
    return place


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder. If the block succeeds, the files in the temporary folder are moved to `folder`.

    Errors about files name `folder`, because the temporary folder no longer exists when the user reads them.
    """
    with files.naming_file_in_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # The draft is in the same file system as `place`, because a file cannot be renamed into another file system.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
            draft = Path(name)
            yield draft
            # Other files in the folder, for example files of an earlier run, are not changed.
            folder.mkdir(exist_ok=True)
            for file in sorted(draft.iterdir()):
                os.replace(file, folder / file.name)


@contextmanager
def showing_progress() -> Iterator[Callable[[Driven], None]]:
    """Yield a function to call after every round.

    The function shows the round on stderr. If Python has dropped the exception of a Ctrl-C, the function raises
    KeyboardInterrupt.
    """
    with _showing_rounds() as show, _keeping_interrupts() as require_none:

        def after_round(run: Driven) -> None:
            show(run)
            require_none()

        yield after_round


@contextmanager
def _keeping_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt if Ctrl-C was pressed, in case Python has lost the exception.

    Python drops an exception that is raised while it runs one of its own callbacks, such as a finalizer.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    def require_none() -> None:
        if pressed:
            raise KeyboardInterrupt

    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Only the main thread may set signal handlers.
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield require_none
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield require_none
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _showing_rounds() -> Iterator[Callable[[Driven], None]]:
    """Yield a function that updates a status line on a terminal, or otherwise prints a line every few seconds."""
    if not sys.stderr.isatty():
        yield _printing_rounds()
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda run: bar.update(task, description=str(run.history[-1]))


def _printing_rounds() -> Callable[[Driven], None]:
    """Return a function that prints the newest round every few seconds.

    If the run ends before that, the function prints nothing.
    """
    began = last = time.monotonic()

    def after_round(run: Driven) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            sys.stderr.write(f"flower-pca: after {now - began:.0f} s: {run.history[-1]}\n")
            sys.stderr.flush()

    return after_round


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[int] = ()) -> None:
    """Print a table with rich. The columns in `text` are left-aligned text, and the others are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for j, name in enumerate(head):
        drawn.add_column(name, justify="left" if j in text else "right", no_wrap=j not in text)
    for row in rows:
        drawn.add_row(*row)
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160).print(drawn)


@contextmanager
def printing_warnings(wording: OptionWording) -> Iterator[None]:
    """Print the warnings of the block to stderr, each once, with settings as command-line options."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            lines = dict.fromkeys(map(wording.in_options, texts_of_warnings(said)))
            sys.stderr.write("".join(f"flower-pca: {line}\n" for line in lines))


def texts_of_warnings(messages: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return the texts of these warnings."""
    return [warning.message.args[0] for warning in messages if isinstance(warning.message, Warning)]


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a value as JSON. A number that is not finite is an error, because JSON cannot represent it."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def title_of(data: str) -> str:
    """Return a title for the data: the name of the file or folder, or the spec."""
    if "(" not in data:
        return Path(data).name
    return data


def any_result_of(path: str, *, missing: str = "error") -> PCAResult | TrackingResult:
    """Read the result of a batch run or a tracking run. See `result_of` for `missing`, which only batch runs use."""
    from flower_pca.results.steps import TrackingResult

    with suppress(FileNotFoundError):  # `result_of` reports a missing file.
        if files.kind_of(path) == "tracking result":
            return TrackingResult.load(path)
    return result_of(path, missing=missing)


def result_of(path: str, *, missing: str = "error") -> PCAResult:
    """Read the result of a batch run. With missing="mean", return a result that fills missing values of new rows."""
    from flower_pca.results.pca import PCAResult

    try:
        result = PCAResult.load(path)
        if missing == "mean":
            return result.with_imputation()
        return result
    except FileNotFoundError as error:
        raise DataError(f"No file named {shown(path)}. Give the result.npz that a run has written.") from error
    except DataError as error:
        if files.kind_of(path) != "tracking result":
            raise
        raise DataError(
            f"{path} is the result of a tracker, whose components change from step to step, so it has no scores. Use: "
            f"flower-pca show {shlex.quote(path)}"
        ) from error


def rotation_of(args: argparse.Namespace, result: PCAResult | TrackingResult) -> Rotation | None:
    """Return the rotated components of a result, or None without the option --rotate."""
    from flower_pca.analysis.rotation import rotate

    if args.rotate is None:
        return None
    return rotate(result, args.rotate)


def parse_share(text: str) -> float:
    """Parse a share in an option: 0.95 or 95%."""
    with suppress(TypeError, ValueError):
        return float(checks.parse_share(text))
    raise argparse.ArgumentTypeError(f"it must be a share such as 0.95 or 95%, not {text!r}")


def names(text: str) -> list[str]:
    """Split the text of an option into names at its commas."""
    return [name.strip() for name in text.split(",")]


def _parse_n_components(text: str) -> int | float | str:
    if text in COUNTING:
        return text
    with suppress(ValueError):
        return int(text)
    with suppress(TypeError, ValueError):
        number = float(checks.parse_share(text))
        return text if "%" in text else number  # The text is kept, so that later errors show it as the user wrote it.
    words = " or ".join(COUNTING)
    what = f"it must be a number, a share such as 0.95 or 95%, or {words}, not {text!r}"
    raise argparse.ArgumentTypeError(what)


@dataclass(frozen=True)
class OptionWording:
    """A translation of the settings in messages into the options of a command.

    Parameters
    ----------
    data : str, default="x.csv"
        The DATA argument of the command.
    options : collection of str
        The options of the command. The default is all options that a message can name, and not --drop.
    """

    data: str = "x.csv"
    options: Collection[str] = frozenset(OPTIONS.values())

    @classmethod
    def of_command(cls, args: argparse.Namespace) -> Self:
        """Return the translation for a command with these arguments."""
        options = frozenset(f"--{name.replace('_', '-')}" for name in vars(args))
        return cls(getattr(args, "data", None) or cls.data, options)

    def in_options(self, sentence: str) -> str:
        """Return the sentence with settings as options of the command."""
        return with_advice_written(sentence, self._option_for)

    def _option_for(self, advice: Advice) -> str:
        match advice:
            case ["option", name]:
                return OPTIONS.get(name, name)
            case ["option", name, value] if name in OPTIONS and not isinstance(value, dict):
                elsewhere = "" if OPTIONS[name] in self.options else " of flower-pca run"
                return f"{_option_text(name, value)}{elsewhere}"
            case ["reading", "gaps", [*codes]] if OPTIONS["gaps"] in self.options:
                return f"with --gaps={','.join(map(str, codes))}"
            case ["reading", "beside", columns] if "--drop" in self.options:
                # Unlike a label column, a column that is left out may be missing in some files of a folder.
                return f"with --drop {shlex.quote(','.join(columns))}"
            case ["reading", name, value]:
                return f'by a spec, "{self._spec_with(name, value)}"'
            case ["apart", columns] if "--drop" in self.options:
                return f"leave them out with --drop {shlex.quote(','.join(columns))}"
            case ["apart", columns]:
                return f"read these columns separately {self._option_for(['reading', 'beside', columns])}"
            case ["filling"]:
                return "--missing mean"
        return in_python(advice)

    def _spec_with(self, name: str, value: Any) -> str:
        """Return the spec of the data source with this additional setting."""
        path = Path(self.data).expanduser()
        if self.data.endswith(")") and not path.exists():
            return spec.with_parameter(self.data, name, value)
        from flower_pca.data import sources
        from flower_pca.data.reading import file_ending

        source = "csv"
        if path.is_dir():
            source = "folder"
        elif (reader := sources.ENDINGS.get(file_ending(path))) is not None:
            source = reader.__name__
        return f"{source}(path={self.data!r}, {name}={value!r})"


def _option_text(name: str, value: object) -> str:
    """Return the command-line option that sets this value."""
    option = OPTIONS[name]
    match value:
        case True:
            return option
        case False if name == "center":
            return "--no-center"
        case False | None:
            return f"no {option}"
        case [first, *_] if first == ANY:
            return f"{option} a,b"
        case [*names]:
            return f"{option} {','.join(map(str, names))}"
    return f"{option} {value}"


def error_of_several_files(args: argparse.Namespace, more: Sequence[str]) -> ConfigError:
    """Return the error to raise if several file names are given to a command that takes one file name."""
    words = f"flower-pca {args.command} FOLDER"
    if hasattr(args, "result"):
        words = f"flower-pca {args.command} RESULT FOLDER"
    remedy = f"Put the files into a folder, one per client, and use: {words}"
    return ConfigError(f"Give one file, folder or spec, not {enumeration([args.data, *more])}. {remedy}")
