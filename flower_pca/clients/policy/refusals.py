"""The refusals of a node. They give the reason, but reveal nothing confidential about rows."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from flower_pca import wire
from flower_pca.base.errors import DataError, FlowerPCAError, ProtocolError, safe_for_log
from flower_pca.layers import NOISE
from flower_pca.masking import messages

OPERATOR: Final = "Ask the node's operator."  # the advice if a rule forbids the answer, as only operators change rules


class RefusalError(FlowerPCAError):
    """The error for a message whose answer the node's own rules forbid."""


def is_confidential(stage: object, names: Iterable[str]) -> bool:
    """Return whether even the number of rows is confidential, as under masks and with noise."""
    return stage == messages.STAGE or any(name.startswith(f"{NOISE}.") for name in names)


def words_for_server(error: Exception, *, hides_reasons: bool) -> str:
    """Return a description of an error that is safe to show to the server, and log the full text on the node.

    The details of an error stay in the node's log if the error is about the node's files and cells, or if Python
    or a library has raised it. If `hides_reasons` is true, the node does not report what was found in its rows.
    """
    text, log = str(error), logging.getLogger("flwr")
    if not isinstance(error, FlowerPCAError):
        log.error(
            "An unexpected error kept this node from answering: %s (%s). The log level DEBUG shows where it failed.",
            safe_for_log(text),
            _place_of_error(error),
        )
        # A server may cause many such errors, so each takes only one line unless the log level is DEBUG.
        log.debug("Where it failed:", exc_info=error)
        return (
            f"This node cannot answer because of an error ({_kind_of_error(error)}), which is in its own log. "
            f"{OPERATOR}"
        )
    if error.private:
        in_one_line = text.replace("\n", " ")
        log.warning("The rows or the rules of this node cannot be used: %s", in_one_line)
        return f"This node cannot read its rows or its rules, and its own log says why. {OPERATOR}"
    text = safe_for_log(text)  # The text may contain names from the server.
    log.warning("This node does not answer: %s", text)
    if isinstance(error, DataError) and hides_reasons:
        return f"This node cannot answer from its rows, and its own log says why. {OPERATOR}"
    return text


def _place_of_error(error: Exception) -> str:
    """Return the type of an error and the place where it was raised, in a few words for one line of a log."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    file = os.path.basename(last.filename)
    return f"{type(error).__name__}, {file}, line {last.lineno}"


def _kind_of_error(error: Exception) -> str:
    """Return the type of an error. For a system error, add the text of its error number, which names no file."""
    # User code may raise an OSError without an error number.
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return f"{type(error).__name__}: {os.strerror(error.errno)}"
    return type(error).__name__


def refusal_reply(
    error: Exception, config: wire.Config, key: int, *, hides_reasons: bool, description: wire.Config | None = None
) -> wire.Config:
    """Return the reply of a node that cannot answer a message.

    `description` has the entries about the node itself, such as its name. Under masks and noise, every node
    hides its reasons.
    """
    number = config.get("number")
    names = str(config.get("names", "")).split(",")
    text = words_for_server(error, hides_reasons=hides_reasons or is_confidential(config.get("stage"), names))
    # After a lasting refusal, the server leaves the node out for the rest of the run. A refusal is lasting if a rule
    # forbids the answer, or if the failed attempt counts against a limit such as max_dropouts. Under masks, protocol
    # errors are lasting, too, because checks of a node's rules about its peers raise them.
    for_good: tuple[type[Exception], ...] = (RefusalError, messages.SpentError)
    if config.get("stage") == messages.STAGE:
        for_good = (*for_good, ProtocolError)
    if not isinstance(number, int):
        number = -1
    return wire.refusal(text, number, key, description, lasting=isinstance(error, for_good))


@contextmanager
def translating_errors(request: wire.ServerRequest) -> Iterator[None]:
    """Replace errors of Python about a malformed message by a ProtocolError that reveals nothing about rows.

    The text of the error may name cells of the rows, so it stays in the node's own log.
    """
    try:
        yield
    # Errors of this package already have a suitable text. The two other types are faults of the machine, not of the
    # message.
    except (FlowerPCAError, OSError, MemoryError):
        raise
    # For an unexpected message, numpy, scipy or Python may raise any error. The error must not stop the node.
    except Exception as error:
        logging.getLogger("flwr").error(
            "This node could not process a message: %s (%s)", safe_for_log(str(error)), _place_of_error(error)
        )
        logging.getLogger("flwr").debug("Where it failed:", exc_info=error)
        raise ProtocolError(
            f"This node could not process a message for {request.stage} ({type(error).__name__}). The sender may have "
            "another version. Install the same flower_pca everywhere."
        ) from error
