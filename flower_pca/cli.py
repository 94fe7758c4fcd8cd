"""The `flower-pca` command.

Its exit code is 0 for success, 1 if the run failed or did not reach its goal, 2 for an error in the arguments or the
input, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from flower_pca.base.errors import FlowerPCAError, NotEnoughNodes
from flower_pca.base.options import OPTIONS
from flower_pca.base.version import __version__
from flower_pca.commands import algorithms, check, common, leave, results, rows, run, spent, track, trust

_COMMANDS: Final = (  # in the order of the help text
    check.add_check,
    run.add_run,
    algorithms.add_compare,
    rows.add_transform,
    rows.add_score,
    track.add_track,
    results.add_show,
    results.add_report,
    algorithms.add_listing,
    trust.add_audit,
    trust.add_rules,
    spent.add_spent,
    trust.add_forget,
    leave.add_leave,
    trust.add_keys,
)
_CODES: Final = "exit codes: 0 success; 1 the run failed or did not converge; 2 invalid usage or input; 130 interrupted"
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = _make_parser()
    given, more = parser.parse_known_args(arguments)
    data = getattr(given, "data", None)
    if more and (data is None or any(word.startswith("-") for word in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}{_remedy_for_other_names(more)}")
    wording = common.OptionWording.of_command(given)
    try:
        if more:
            raise common.error_of_several_files(given, more)
        with common.printing_warnings(wording):
            return int(given.run(given))
    except FlowerPCAError as error:
        sys.stderr.write(f"flower-pca: {wording.in_options(common.with_near_match(error).words)}\n")
        # All other errors are about the arguments or the input.
        if isinstance(error, NotEnoughNodes):
            return FAILED
        return USAGE
    except BrokenPipeError:
        # This is an OSError, too, but not about a file. `console` handles it.
        raise
    except MemoryError as error:
        what = f" ({error})" if str(error) else ""  # numpy says how much memory it has asked for.
        remedy = "Use fewer rows or columns, or a machine with more memory."
        sys.stderr.write(f"flower-pca: There is not enough memory{what}. {remedy}\n")
        return FAILED
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or 'no file'}."
        sys.stderr.write(f"flower-pca: {' '.join([reason, *getattr(error, '__notes__', ())])}\n")
        return USAGE
    except KeyboardInterrupt as interrupt:
        words = f" {interrupt}" if str(interrupt) else ""
        sys.stderr.write(f"flower-pca: Interrupted.{words}\n")
        return INTERRUPTED


def console() -> NoReturn:
    """Run the command, and exit the process with its exit code."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # The reader of the output has ended, as in `flower-pca list | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    if code == INTERRUPTED:
        sys.stderr.flush()
        # Threads of Flower's engine may wait forever for nodes that have ended, so the process does not wait for them.
        os._exit(code)
    sys.exit(code)


def _remedy_for_other_names(words: Sequence[str]) -> str:
    """Return a remedy if one of these options is the name of a setting in Python, or ""."""
    for word in words:
        written, _, _ = word.partition("=")
        option = OPTIONS.get(written.removeprefix("--").replace("-", "_"), written)
        if option != written:
            return f". Use {option} instead of {written}."
    return ""


def _make_parser() -> argparse.ArgumentParser:

    parser = argparse.ArgumentParser(prog="flower-pca", description="Federated PCA for Flower.", epilog=_CODES)
    parser.add_argument("--version", action="version", version=f"flower-pca {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for add in _COMMANDS:
        add(commands)
    return parser


if __name__ == "__main__":
    console()
