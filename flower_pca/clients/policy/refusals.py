"""The refusals of a node. They say why, but reveal nothing of its rows if they must not."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from flower_pca import wire
from flower_pca.base.errors import DataError, FlowerPCAError, ProtocolError, harmless
from flower_pca.layers import NOISE
from flower_pca.masking import messages

OPERATOR: Final = "Ask the node's operator."  # only the operator can change a rule


class RefusalError(FlowerPCAError):
    """An answer that the node's own rules forbid."""


def is_confidential(stage: object, names: Iterable[str]) -> bool:
    """Return whether even the number of rows is confidential, as under masks and with noise."""
    return stage == messages.STAGE or any(name.startswith(f"{NOISE}.") for name in names)


def words_for_server(error: Exception, *, discreet: bool) -> str:
    """Return what the server may learn about an error.

    Errors about the node's files and their cells stay in its own log. So do errors of Python or a
    library. A node that is `discreet` does not report what was found in its rows.
    """
    text, log = str(error), logging.getLogger("flwr")
    if not isinstance(error, FlowerPCAError):
        log.error("This node cannot answer: %s (%s)", harmless(text), _place(error))
        # A server may cause many of these, so each takes one line of the log, unless the full text is requested.
        log.debug("Where it failed:", exc_info=error)
        return f"This node cannot answer because of an error ({_kind(error)}), which its own log has. {OPERATOR}"
    if error.private:
        in_one_line = text.replace("\n", " ")
        log.warning("The rows or the rules of this node cannot be used: %s", in_one_line)
        return f"This node cannot read its rows or its rules, and its own log says why. {OPERATOR}"
    text = harmless(text)  # The text may contain names from the server.
    log.warning("This node does not answer: %s", text)
    if isinstance(error, DataError) and discreet:
        return f"This node cannot answer from its rows, and its own log says why. {OPERATOR}"
    return text


def _place(error: Exception) -> str:
    """Say briefly where an error was raised. A message may cause many, each on one line of a log."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    file = os.path.basename(last.filename)
    return f"{type(error).__name__}, {file}, line {last.lineno}"


def _kind(error: Exception) -> str:
    """Return the name of an error. For a system error, add the text of its number, which names no file."""
    # User code may have raised it with other contents.
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return f"{type(error).__name__}: {os.strerror(error.errno)}"
    return type(error).__name__


def refusal(
    error: Exception, config: wire.Config, key: int, *, discreet: bool, about: wire.Config | None = None
) -> wire.Config:
    """Return the answer of a node that cannot answer. `about` is what it tells about itself.

    Under masks and under noise, every node is `discreet`.
    """
    number = config.get("number")
    names = str(config.get("names", "")).split(",")
    text = words_for_server(error, discreet=discreet or is_confidential(config.get("stage"), names))
    # Further messages of the run are refused, too, if a rule forbids this one, or if it has cost the node something.
    # Under masks with rules about peers, this includes every refusal of a set-up or its keys.
    for_good: tuple[type[Exception], ...] = (RefusalError, messages.SpentError)
    if config.get("stage") == messages.STAGE:
        for_good = (*for_good, ProtocolError)
    if not isinstance(number, int):
        number = -1
    return wire.refusal(text, number, key, about, lasting=isinstance(error, for_good))


@contextmanager
def naming(request: wire.Request) -> Iterator[None]:
    """Turn Python's errors about a malformed message into a refusal that reveals nothing of rows.

    The text of the error may name cells of the rows, so it stays in the node's own log.
    """
    try:
        yield
    except (FlowerPCAError, OSError, MemoryError):  # These are faults of the machine or its files, not of the message.
        raise
    # numpy, scipy or Python may raise anything for a strange message, but it must not end the node.
    except Exception as error:
        logging.getLogger("flwr").error(
            "This node could not process a message: %s (%s)", harmless(str(error)), _place(error)
        )
        logging.getLogger("flwr").debug("Where it failed:", exc_info=error)
        raise ProtocolError(
            f"This node could not process a message of {request.stage} ({type(error).__name__}). The sender may have "
            "another version. Install the same flower_pca everywhere."
        ) from error
