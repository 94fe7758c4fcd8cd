"""How a node says no: why, by name, and without a word that tells of its rows where it must not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from flower_pca import wire
from flower_pca.base.errors import DataError, FlowerPCAError, ProtocolError, sentence
from flower_pca.dp import noise
from flower_pca.masking import messages


class RefusalError(FlowerPCAError):
    """The node's own rules forbid the answer."""


def quiet(stage: object, names: Iterable[str]) -> bool:
    """Whether not even the number of rows may be told of: under masks, and where noise is asked for."""
    return stage == messages.STAGE or noise.asked(names)


def refusal(
    error: FlowerPCAError, config: wire.Config, key: int, *, discreet: bool, about: wire.Config | None = None
) -> wire.Config:
    """What the server is told of an error; `about` is what the node says of itself.

    What speaks of the node's files and their cells stays in its own log. Under masks, under noise, and always at a node
    that is `discreet`, it is not told what was found in the rows.
    """
    text, number, names = str(error), config.get("number"), str(config.get("names", "")).split(",")
    if error.private:
        logging.getLogger("flwr").warning("The rows of this node cannot be used: %s", text)
        got, remedy = "an error, which its own log has", "Ask the node's operator."
        text = sentence("The rows of this node", "readable, as its operator has named them", got, remedy)
    elif isinstance(error, DataError) and (discreet or quiet(config.get("stage"), names)):
        rule, _, got = text.partition(" Got ")
        text = f"{rule} {got.partition('. ')[2]}"
    return wire.refusal(text, number if isinstance(number, int) else -1, key, about)


@contextmanager
def naming(request: wire.Request) -> Iterator[None]:
    """Turn what a malformed message makes of Python into a refusal; in words that tell of no row where they may not."""
    try:
        yield
    except FlowerPCAError:
        raise
    except Exception as error:  # whatever a message makes of numpy, scipy or Python: it shall not end the node
        kind = type(error).__name__
        told = kind if quiet(request.stage, request.arrays) else f"{kind}: {error}"
        rule = f"one that the stage {request.stage} of this version can work on"
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError("A message", must=rule, got=f"one that fails here ({told})", then=remedy) from error
