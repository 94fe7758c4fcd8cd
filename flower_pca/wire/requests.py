"""Write a message from the server to a node, and read it on the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from flwr.app import RecordDict

from flower_pca.base.errors import ProtocolError, safe_for_log
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Message
from flower_pca.core.layer import flatten_layers, split_layers
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import NAMED, PARTIES
from flower_pca.names.columns import COLUMNS, read_names, write_names
from flower_pca.rows.covariates import NAME as COVARIATES
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import NAME as SPLIT
from flower_pca.rows.split import ColumnPreparation
from flower_pca.wire import packing, pieces, records
from flower_pca.wire.layouts import (
    ARRAYS,
    CLIENT_FN,
    CONFIG,
    MESSAGE_API,
    SERVER_ROUND,
    Config,
    layout_of_request,
    record_names,
)
from flower_pca.wire.layouts import message_kind as kind_of_stage
from flower_pca.wire.records import (
    LAYOUT_KEY,
    SPOKEN,
    VERSION,
    VERSION_KEY,
    arrays_by_name,
    name_in_config,
    read_arrays_in_pieces,
    require_known_version,
    value_of,
)

_PARTS: Final = ("mean", "scale", "fill", "covariate_mean", "slopes", "grand", "sigma")
_FRAME: Final = {f"frame.{part}": part for part in _PARTS}
_OWN: Final = "frame.own"
# The keys for whether the server asks for the names of columns, and for the alternative algorithm
_ASKS, _ALTERNATIVE = "asks_names", "alternative"


@dataclass(frozen=True)
class ServerRequest:
    """A message from the server, as a client reads it."""

    algorithm: str
    stage: str
    run: str
    number: int
    arrays: Arrays
    frame: Frame
    # The arrays of the run's layers, by the layers' names
    layers: Mapping[str, Arrays] = field(default_factory=dict)
    # This is True if the server asks for the names of the columns.
    asks_names: bool = False
    alternative: str = ""  # the algorithm with which the server may continue instead, if all nodes accept it

    @property
    def all_arrays(self) -> Arrays:
        """All arrays of the message. The names of layers' arrays begin with the name of the layer and a dot."""
        if self.layers:
            return {**self.arrays, **flatten_layers(self.layers)}
        return self.arrays


def write_request(
    message: Broadcast,
    client: int,
    *,
    algorithm: str,
    run: str,
    extra: Mapping[str, Any],
    asks_names: bool = False,
    alternative: str = "",
    layouts: Sequence[str] = (MESSAGE_API,),
) -> RecordDict:
    """Return the records of a message for one client, in one or both layouts.

    Parameters
    ----------
    message : Broadcast
        The message for all clients.
    client : int
        The client for which the records are made.
    algorithm : str
        The names of the run's algorithm and of other stages that nodes must serve, joined by "+".
    run : str
        The name of the run.
    extra : mapping
        The caller's own values, which are added to the config.
    asks_names : bool, default=False
        Whether the server asks for the names of the columns.
    alternative : str, default=""
        The algorithm with which the server may continue instead, if all nodes accept it.
    layouts : sequence of str, default=('message API',)
        The layouts in which the message is written.
    """
    arrays = dict(message.arrays_for(client))
    arrays |= {f"frame.{part}": a for part, a in message.frame.arrays.items()}
    if message.layers:
        arrays = {**packing.pack(arrays, message.layers), **flatten_layers(message.layers)}
    if message.frame.own:
        arrays[_OWN] = np.array(True)
    config = {
        # The caller's values come first, so that they cannot replace the values of this package.
        **extra,
        **SPOKEN,
        "algorithm": algorithm,
        "stage": message.stage,
        "run": run,
        "number": message.number,
        SERVER_ROUND: message.number + 1,
        _ASKS: asks_names,
        _ALTERNATIVE: alternative,
    }
    if message.frame.names is not None:
        config[COLUMNS] = write_names(message.frame.names)
    if message.frame.split is not None:
        config.update(message.frame.split.to_text())
    if message.frame.covariates is not None:
        config[COVARIATES] = message.frame.covariates.to_text()
    content, kind = RecordDict(), kind_of_stage(message.stage)
    sent = {name: np.asarray(a) for name, a in arrays.items()}
    in_pieces = tuple(layouts) == (MESSAGE_API,)  # A NumPyClient cannot join pieces.
    serialized = None if in_pieces else records.named_array_record(sent)
    for layout in layouts:
        of_arrays, of_config = record_names(layout, kind)
        if serialized is None:
            pieces.put_in_pieces(content, of_arrays, sent)
        else:
            records.put_record(content, of_arrays, serialized)
        # A NumPyClient gets a list of arrays without names, so the config contains the names.
        names = {"names": ",".join(arrays)} if layout == CLIENT_FN else {}
        records.put_values(content, of_config, records.without_empty({**config, **names}))
    return content


def open_request(content: RecordDict, kind: str) -> tuple[list[Array], Config]:
    """Return the parameters and the config that Flower would pass to a NumPyClient's fit or evaluate.

    For the message API, the names of the arrays are added to the config.

    Raises
    ------
    ProtocolError
        If the content has the records of neither layout.
    """
    layout = layout_of_request(content, kind)
    if layout is None:
        found = ", ".join(sorted(content)) or "none"
        raise ProtocolError(
            safe_for_log(
                f"A message to {kind} lacks the records {ARRAYS} and {CONFIG}. It has these records: {found}. Send it "
                "with a strategy of flower_pca."
            )
        )
    of_arrays, of_config = record_names(layout, kind)
    record = content.array_records[of_arrays]
    config = dict(content.config_records[of_config])
    if layout == MESSAGE_API:
        config = records.without_empty({**config, "names": records.names_in(record)})
    return read_arrays_in_pieces(content, of_arrays), config  # type: ignore[return-value]


def read_request(parameters: Sequence[Array], config: Mapping[str, Any]) -> ServerRequest:
    """Return the server's message, read from the parameters and the config that fit or evaluate has received."""
    require_known_version("A message", config, "a strategy", newest=str(config.get(VERSION_KEY, VERSION)))
    arrays = packing.unpack(arrays_by_name("A message", parameters, config))
    own = bool(np.any(arrays.pop(_OWN, False)))
    parts = {part: _double(arrays.pop(name)) for name, part in _FRAME.items() if name in arrays}
    names, columns = read_names("A message", config), None
    if SPLIT in config:
        columns = ColumnPreparation.from_text(config)
    beside = Covariates.from_text(str(config[COVARIATES]), parts) if COVARIATES in config else None
    frame = Frame(
        parts.get("mean"), parts.get("scale"), parts.get("fill"), own=own, names=names, split=columns, covariates=beside
    )
    layers: dict[str, Arrays] = {}
    if "." in "".join(arrays):  # Only the names of layers' arrays contain a dot.
        arrays, layers = split_layers(arrays, NAMED)
        # This refuses an unknown number of bits before any work is done.
        packing.bits_of_layers(layers)
    if columns is not None:
        layers[PARTIES] = {}
    algorithm = name_in_config(config, "algorithm")
    stage = name_in_config(config, "stage")
    run = value_of("A message", config, "run", str)
    number = value_of("A message", config, "number", int)
    asks = bool(config.get(_ASKS, False))
    instead = str(config.get(_ALTERNATIVE, ""))
    return ServerRequest(algorithm, stage, run, number, Message(arrays), frame, layers, asks, instead)


def is_request(config: Mapping[str, Any]) -> bool:
    """Return whether the config of a NumPyClient's fit or evaluate belongs to a message of this package."""
    return LAYOUT_KEY in config


def _double(part: Array) -> Array:
    """Return a part of a frame in double precision, so that frames with equal numbers of any precision are equal."""
    if part.dtype.kind != "f":
        return part
    return part.astype(np.float64, copy=False)
