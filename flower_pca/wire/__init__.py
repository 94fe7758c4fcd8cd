"""The only code that knows Flower's records: the layout of Flower's NumPyClient, both ways.

A request travels as fitins.parameters (or evaluateins.parameters), a list of arrays, and
fitins.config, which holds the arrays' names; an answer as fitres.parameters, fitres.num_examples,
fitres.metrics and fitres.status. So a server of ours drives Flower's own
`ClientApp(client_fn=...)`, and a client of ours is an ordinary NumPyClient.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from flwr.app import MetricRecord, RecordDict

from flower_pca.base.errors import ProtocolError, harmless
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Message
from flower_pca.core.layer import flat, split
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import EXPONENTS, NAMED, PARTIES, WIRE
from flower_pca.names.columns import COLUMNS, LONGEST, Heading, read_names
from flower_pca.rows.frame import Frame
from flower_pca.vertical.split import NAME as SPLIT
from flower_pca.vertical.split import Split
from flower_pca.wire import records
from flower_pca.wire.records import LAYOUT, LAYOUT_KEY, VERSION, VERSION_KEY, check_spoken, word_of
from flower_pca.wire.records import by_name as by_name
from flower_pca.wire.records import read_arrays as read_arrays
from flower_pca.wire.records import value_of as value_of

Scalar: TypeAlias = bool | bytes | float | int | str
Config: TypeAlias = dict[str, Scalar]

# the stage that travels as Flower's evaluate; all others travel as train
EVALUATE: Final = "evaluate"
NO_KEY: Final = -1  # of a client without a partition-id
SPOKEN: Final[Config] = {LAYOUT_KEY: LAYOUT, VERSION_KEY: VERSION}
_FRAME: Final = {"frame.mean": "mean", "frame.scale": "scale", "frame.fill": "fill"}
_OWN: Final = "frame.own"
# in messages: whether names are asked for; in answers: what a node is called
_ASKS, SITE = "asks_names", "site"
# what may be asked instead later; why the node would not serve it
_ALTERNATIVE, DECLINES = "alternative", "declines"
# in answers: whether a node had kept something of the run; whether it does now
_RECALLS, _KEEPS = "recalls", "keeps"
_LASTING: Final = "lasting"  # whether a refusal is one of all further messages
_ANSWER: Final = "An answer"
_PROPERTIES: Final = "getpropertiesres.properties"


@dataclass(frozen=True)
class Request:
    """A message of the server as a client reads it."""

    algorithm: str
    stage: str
    run: str
    number: int
    arrays: Arrays
    frame: Frame
    # what the layers of the run say, by their names
    layers: Mapping[str, Arrays] = field(default_factory=dict)
    # whether the server wants to know what the columns are called
    asks_names: bool = False
    alternative: str = ""  # the algorithm that the server may go on with instead

    @property
    def every(self) -> Arrays:
        """All arrays of the message, those of layers by the layer's name, a dot, and their own."""
        if self.layers:
            return {**self.arrays, **flat(self.layers)}
        return self.arrays


@dataclass(frozen=True)
class Answer:
    """A client's answer as the server reads it; `refusal` says why there is none, `lasting` whether it stays so."""

    number: int
    key: int
    arrays: Arrays
    num_examples: int
    refusal: str | None = None
    lasting: bool = False
    heading: Heading | None = None
    site: str = ""
    declines: str = ""
    recalls: bool = False  # something that it had kept of the run
    keeps: bool = False  # something for the messages to come


def kind(stage: str) -> str:
    """Flower's type of the messages of a stage: "train" or "evaluate"."""
    if stage == EVALUATE:
        return EVALUATE
    return "train"


def _verb(kind: str) -> str:
    """What Flower calls the work of such a message in the names of its records."""
    if kind == EVALUATE:
        return EVALUATE
    return "fit"


def write_request(
    message: Broadcast,
    client: int,
    *,
    algorithm: str,
    run: str,
    extra: Mapping[str, Any],
    asks_names: bool = False,
    alternative: str = "",
) -> RecordDict:
    """The records of a message for one client; `extra` is the caller's own configuration."""
    arrays = dict(message.arrays_for(client))
    arrays |= {f"frame.{part}": a for part, a in message.frame.arrays.items()}
    if message.layers:
        arrays = {**_pack(arrays, message.layers), **flat(message.layers)}
    if message.frame.own:
        arrays[_OWN] = np.array(True)
    config = {
        # the caller's own come first, so that they take the place of nothing that is ours
        **extra,
        **SPOKEN,
        "algorithm": algorithm,
        "stage": message.stage,
        "run": run,
        "number": message.number,
        "names": ",".join(arrays),
        _ASKS: asks_names,
        _ALTERNATIVE: alternative,
    }
    if message.frame.names is not None:
        config[COLUMNS] = json.dumps(message.frame.names)
    if message.frame.split is not None:
        config.update(message.frame.split.plain())
    verb, content = _verb(message.stage), RecordDict()
    records.put_arrays(content, f"{verb}ins.parameters", arrays.values())
    records.put_values(content, f"{verb}ins.config", records.without_empty(config))
    return content


def open_request(content: RecordDict, kind: str) -> tuple[list[Array], Config]:
    """The parameters and the config that Flower would hand to a NumPyClient's fit or evaluate."""
    ins = f"{_verb(kind)}ins"
    arrays, configs = content.array_records, content.config_records
    if f"{ins}.parameters" not in arrays or f"{ins}.config" not in configs:
        rule, got = f"made of {ins}.parameters and .config", ", ".join(sorted(content)) or "nothing"
        raise ProtocolError(f"A message to {kind}", must=rule, got=got, then="Send it with a strategy of flower_pca.")
    return read_arrays(arrays[f"{ins}.parameters"]), dict(configs[f"{ins}.config"])  # type: ignore[arg-type]


def read_request(parameters: Sequence[Array], config: Mapping[str, Any]) -> Request:
    """The message in what a NumPyClient's fit or evaluate gets."""
    check_spoken("A message", config, "another strategy", newest=str(config.get(VERSION_KEY, VERSION)))
    arrays = _unpack(by_name("A message", parameters, config))
    own = bool(np.any(arrays.pop(_OWN, False)))
    parts = {part: _double(arrays.pop(name)) for name, part in _FRAME.items() if name in arrays}
    names, columns = read_names("A message", config), None
    if SPLIT in config:
        columns = Split.of(config)
    frame = Frame(parts.get("mean"), parts.get("scale"), parts.get("fill"), own=own, names=names, split=columns)
    layers: dict[str, Arrays] = {}
    if "." in "".join(arrays):  # as in the names of layers' arrays alone
        arrays, layers = split(arrays, NAMED)
        # refused now, before anything is done for an answer that could not be sent
        _bits(layers)
    if columns is not None:
        layers[PARTIES] = {}
    algorithm = word_of("A message", config, "algorithm")
    stage = word_of("A message", config, "stage")
    run = value_of("A message", config, "run", str)
    number = value_of("A message", config, "number", int)
    asks = bool(config.get(_ASKS, False))
    instead = str(config.get(_ALTERNATIVE, ""))
    return Request(algorithm, stage, run, number, Message(arrays), frame, layers, asks, instead)


def _pack(arrays: Arrays, layers: Mapping[str, Arrays]) -> Arrays:
    """Arrays as they travel under these layers."""
    if (bits := _bits(layers)) == 64:
        return arrays
    from flower_pca.layers import precision

    return precision.pack(arrays, bits)


def _unpack(arrays: Arrays) -> Arrays:
    if EXPONENTS not in ",".join(arrays):  # which no other name has within it
        return arrays
    from flower_pca.layers import precision

    return precision.unpack(arrays)


def _bits(layers: Mapping[str, Arrays]) -> int:
    """With how many bits numbers travel."""
    if WIRE not in layers:
        return 64
    from flower_pca.layers import precision

    return precision.bits_in(layers[WIRE])


def _double(part: Array) -> Array:
    """A part of a frame in double precision: the same numbers are one frame, of any kind."""
    if part.dtype.kind != "f":
        return part
    return part.astype(np.float64, copy=False)


def write_fit(
    arrays: Arrays,
    num_examples: int,
    number: int,
    key: int,
    about: Config | None = None,
    *,
    layers: Mapping[str, Arrays] | None = None,
) -> tuple[list[Array], int, Config]:
    """What a NumPyClient's fit returns for these arrays; `about` is what the client says of itself.

    `layers` are those of the message.
    """
    if layers:
        arrays = _pack(arrays, layers)
    metrics: Config = {**(about or {}), **SPOKEN, "number": number, "key": key, "names": ",".join(arrays)}
    return [np.asarray(a) for a in arrays.values()], num_examples, records.without_empty(metrics)


def write_memory(before: Arrays, after: Arrays) -> Config:
    """What a client says of its memory: whether it had kept something of the run, and whether it does now."""
    return {name: True for name, arrays in ((_RECALLS, before), (_KEEPS, after)) if arrays}


def write_evaluate(arrays: Arrays, num_examples: int, number: int, key: int) -> tuple[float, int, Config]:
    """What a NumPyClient's evaluate returns: single numbers, which travel as metrics; the loss is a mean."""
    numbers: Config = {name: a.item() for name, a in arrays.items()}
    metrics: Config = {**numbers, **SPOKEN, "number": number, "key": key, "names": ",".join(arrays)}
    return float(arrays["squares"]) / num_examples, num_examples, metrics


def refusal(reason: str, number: int, key: int, about: Config | None = None, *, lasting: bool = True) -> Config:
    """The metrics of a client that gives no answer, and says why; `lasting` if no message of the run gets one."""
    said: Config = {"number": number, "key": key, "names": "", "refusal": reason, _LASTING: lasting}
    return records.without_empty({**(about or {}), **SPOKEN, **said})


def write_reply(kind: str, first: Any, num_examples: int, metrics: Config) -> RecordDict:
    """The records that Flower would make of what fit or evaluate returned."""
    res, content = f"{_verb(kind)}res", RecordDict()
    records.put_values(content, f"{res}.metrics", metrics)
    content.metric_records[f"{res}.num_examples"] = MetricRecord({"num_examples": num_examples})
    if kind == EVALUATE:
        content.metric_records[f"{res}.loss"] = MetricRecord({"loss": first})
    else:
        records.put_arrays(content, f"{res}.parameters", first)
    records.put_values(content, f"{res}.status", {"code": 0, "message": "Success"})
    return content


def is_reply(content: RecordDict, kind: str) -> bool:
    """Whether it holds what a single client answers, or says."""
    return f"{_verb(kind)}res.metrics" in content.config_records


def as_config(values: object) -> Config:
    """Values that came otherwise than in a record, if a record could hold them."""
    try:
        return dict(records.ConfigRecord(values))  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError) as error:
        raise ProtocolError(
            _ANSWER, must="one whose figures are plain values", got="others", then="Check the sender."
        ) from error


def write_properties(properties: Mapping[str, Any]) -> RecordDict:
    """The records of what a node says of itself before a run."""
    return records.content({_PROPERTIES: properties})


def read_properties(content: RecordDict) -> Mapping[str, Any]:
    """What a node says of itself; nothing if it does not."""
    return records.values_in(content, _PROPERTIES)


def write_query() -> RecordDict:
    """What a node is asked for its properties."""
    return records.content({"getpropertiesins.config": {}})


def read_reply(content: RecordDict, kind: str) -> Answer:
    """A client's answer in the records of its reply."""
    res = f"{_verb(kind)}res"
    if f"{res}.metrics" not in content.config_records or f"{res}.num_examples" not in content.metric_records:
        got = ", ".join(sorted(content)) or "nothing"
        raise ProtocolError(
            _ANSWER,
            must=f"made of {res}.metrics and {res}.num_examples",
            got=got,
            then="Serve it with a client of flower_pca.",
        )
    examples = value_of(_ANSWER, content.metric_records[f"{res}.num_examples"], "num_examples", int)
    metrics = content.config_records[f"{res}.metrics"]
    return read_answer(kind, metrics, examples, lambda: read_arrays(content.array_records.get(f"{res}.parameters")))


def read_answer(
    kind: str, metrics: Mapping[str, Any], num_examples: int, parameters: Callable[[], Sequence[Array]]
) -> Answer:
    """A client's answer in what its fit or evaluate has returned."""
    # of a refusal too: it may be why
    check_spoken(_ANSWER, metrics, "another client", newest=VERSION)
    number = value_of(_ANSWER, metrics, "number", int)
    key = value_of(_ANSWER, metrics, "key", int)
    site = ""
    if SITE in metrics:
        site = harmless(value_of(_ANSWER, metrics, SITE, str))[:LONGEST]
    if "refusal" in metrics:
        why = harmless(value_of(_ANSWER, metrics, "refusal", str))
        return Answer(number, key, {}, num_examples, why, bool(metrics.get(_LASTING, True)), site=site)
    if kind == EVALUATE:
        names = value_of(_ANSWER, metrics, "names", str).split(",")
        return Answer(
            number, key, {n: np.array(value_of(_ANSWER, metrics, n, int, float)) for n in names}, num_examples
        )
    # read only now, as a refusal has none
    arrays = _unpack(by_name(_ANSWER, parameters(), metrics))
    declines = ""
    if DECLINES in metrics:
        declines = harmless(value_of(_ANSWER, metrics, DECLINES, str))
    recalls = bool(metrics.get(_RECALLS, False))
    keeps = bool(metrics.get(_KEEPS, False))
    heading = Heading.of(metrics)
    return Answer(
        number, key, arrays, num_examples, heading=heading, site=site, declines=declines, recalls=recalls, keeps=keeps
    )


def write_packed(kind: str, packed: bytes) -> records.ConfigRecord:
    """The record that carries a "projection" or a "scaling"."""
    return records.ConfigRecord({f"flower_pca.{kind}": packed})


def read_packed(kind: str, record: Mapping[str, Any]) -> bytes:
    """The one in a record, or in the config of a NumPyClient, that has it beside whatever else."""
    packed = record.get(f"flower_pca.{kind}")
    if not isinstance(packed, bytes):
        got = harmless(", ".join(map(str, record)) or "nothing")
        raise ProtocolError(
            "The record",
            must=f"one with a {kind} in it",
            got=got,
            then="Send result.to_record() as a train_config, or in one.",
        )
    return packed


def is_request(config: Mapping[str, Any]) -> bool:
    """Whether the config of a NumPyClient's fit or evaluate is a message of this package."""
    return LAYOUT_KEY in config
