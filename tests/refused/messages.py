"""Refusals of messages by a node, and of answers by a server."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import flat
import numpy as np
from builders import Array, shards
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from flower_pca import ProtocolError, client_half, registry, wire
from flower_pca.core.stage import Broadcast
from flower_pca.layers import noise, precision
from flower_pca.masking import fixed, primitives
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from refused import Refused

ROWS = shards((50,), 0.8 ** np.arange(9))[0]
EYE = np.eye(3)
ARRAYS = {"a": np.arange(4), "b": EYE}
NOISED = flat.noise(clip=1.0, std=1.0, budget=9.0)
BOUNDED = {name for name, stage in registry.STAGES.items() if stage.bounded}
PERSONAL = {
    "exact_per_pca": {"U": np.eye(9)[:, :2], "own": 2, "samples": 0, "steps": 0},
    "per_pca": {"U": np.eye(9)[:, :2], "own": 2, "samples": 0, "eta": 0.1, "choice": 1, "polar": 1, "seed": 0},
    "personal": {"U": np.eye(9)[:, :2], "own": 2, "exact": 1, "steps": 0, "collect": 0},
}


def saved(save: Callable[..., None], *arrays: Array) -> bytes:
    save(file := io.BytesIO(), *arrays)
    return file.getvalue()


BYTES = (
    b"\x00\x01garbage",
    b"",
    saved(np.save, np.array([{"a": 1}], dtype=object)),
    saved(np.save, np.arange(5.0))[:-3],
    saved(np.savez, np.arange(5.0)),
)


def noised(stage: str = "ssi", **arrays: Any) -> None:
    flat.answer(stage, {"Z": EYE[:, :1], **NOISED, **arrays}, LocalData(EYE), {})


def incomplete(**arrays: Any) -> None:
    """Of the instruction to draw noise, these parts alone."""
    flat.answer("ssi", {"Z": EYE[:, :1], **arrays}, LocalData(EYE), {})


def private_opening(**arrays: Any) -> None:
    flat.answer("private_opening", arrays, LocalData(EYE), {})


def probe(stage: str, shape: tuple[int, ...]) -> None:
    arrays = {name: np.asarray(a) for name, a in PERSONAL[stage].items()} | {"b": np.ones(shape)}
    client_half.answer(stage, arrays, LocalData(ROWS), {})


def share(clients: int) -> None:
    noise.requested_noise(
        {**noise.noise_instruction(clip=1.0, std=1.0, budget=1.0), **noise.sharing_arrays(clients)}, 2
    )


def of_fewer_bits(arrays: dict[str, Array]) -> None:
    precision.unpack(arrays)


def bits(asked: Array) -> None:
    precision.bits_of_message({"bits": asked})


def agreed(key: bytes) -> None:
    primitives.shared_secret(primitives.private_key(bytes(16)), key)


def decoded(words: Array) -> None:
    fixed.decode(words, {"Y": (40,)}, {"Y": np.array(1.0)}, 5)


def respelt(content: RecordDict, config: dict[str, Any], without: str = "", given: Any = None) -> RecordDict:
    """With other values in the configuration or metrics, None for one to take away; a record less, or another one."""
    record: Any = next(iter(content.config_records.values()))
    for name, value in config.items():
        record.pop(name) if value is None else record.update({name: value})
    if without:
        del content[without]
    content.update(given or {})
    return content


def unreadable(data: bytes, stype: str = "numpy.ndarray") -> ArrayRecord:
    return ArrayRecord({"0": FlowerArray(dtype="float64", shape=(2,), stype=stype, data=data)})


def read_request(without: str = "", given: Any = None, layout: str = wire.CLIENT_FN, **config: Any) -> None:
    message = Broadcast("krylov", 7, ARRAYS, Frame(), (3, 4), {})
    content = wire.write_request(message, 3, algorithm="krylov", run="r", extra={}, layouts=(layout,))
    wire.read_request(*wire.open_request(respelt(content, config, without, given), "train"))


def read_reply(without: str = "", given: Any = None, layout: str = wire.CLIENT_FN, **metrics: Any) -> None:
    content = wire.write_reply("train", *wire.write_fit(ARRAYS, 11, 7, 2), layout=layout)
    wire.read_reply(respelt(content, metrics, without, given), "train")


def evaluation(**metrics: Any) -> None:
    made = wire.write_evaluate({"squares": np.array(22.0), "n": np.array(11)}, 11, 7, 2)
    content = wire.write_reply("evaluate", *made, layout=wire.CLIENT_FN)
    wire.read_reply(respelt(content, metrics), "evaluate")


def foreign_request(content: RecordDict, kind: str) -> None:
    wire.open_request(content, kind)


def foreign_reply(content: RecordDict, kind: str) -> None:
    wire.read_reply(content, kind)


def protocol(given: dict[str, Any], sentence: str) -> Refused:
    return Refused(given, sentence, ProtocolError)


ASK = "flower_pca never sends this. Ask the operator of the machine that sent it"


def misspelt(who: str) -> list[Refused]:
    """What is wrong with a request and with a reply alike."""
    return [
        protocol(given, f"^{who} {sentence}")
        for given, sentence in (
            ({"names": None}, f"has 2 arrays for the names none, but each name needs its own array. {ASK}"),
            ({"names": "a"}, f"has 2 arrays for the names a, but each name needs its own array. {ASK}"),
            ({"names": "a,a"}, f"has .* for the names a,a, but each name needs its own array. {ASK}"),
            ({"names": 3}, f"has names=3, which is not of type str. {ASK}"),
            ({"names": ["a"]}, f"has names=['a'], which is not of type str. {ASK}"),
            ({"number": None}, f"has no number (int). {ASK}"),
            ({"number": "7"}, f"has number='7', which is not of type int. {ASK}"),
            ({"number": 7.0}, f"has number=7.0, which is not of type int. {ASK}"),
            ({"number": True}, f"has number=True, which is not of type int. {ASK}"),
        )
    ]


FOREIGN = ((RecordDict(), "none"), (RecordDict({"x": ConfigRecord({"a": 1})}), "x"))
UNREAD = f"^An array in this message could not be read (ValueError). {ASK}"
EXPONENTS = "a.exponents of the server's message should have one number of 32 or 16 bits"
REQUEST = [
    *misspelt("A message"),
    protocol(
        {"flower_pca": 99},
        "^A message comes from flower_pca .* with layout 99, but this machine has flower_pca .* with layout .*. "
        "Install flower_pca .* everywhere.",
    ),
    protocol(
        {"flower_pca": None},
        "^A message comes from a strategy that does not belong to flower_pca. Install flower_pca .* everywhere, and "
        "use its strategies",
    ),
    protocol({"stage": None}, f"^A message has no stage (str). {ASK}"),
    protocol({"run": 5}, f"^A message has run=5, which is not of type str. {ASK}"),
    protocol({"algorithm": b"x"}, f"^A message has algorithm=b'x', which is not of type str. {ASK}"),
    *[
        protocol(
            {"without": f"fitins.{less}"},
            f"^A message to train lacks the records arrays and config. It has these records: fitins.{left}. Send it "
            "with a strategy of flower_pca.",
        )
        for less, left in (("parameters", "config"), ("config", "parameters"))
    ],
    *[
        protocol(
            {"without": less, "layout": wire.MESSAGE_API},
            f"^A message to train lacks the records arrays and config. It has these records: {left}. Send it with a",
        )
        for less, left in (("arrays", "config"), ("config", "arrays"))
    ],
    *[protocol({"given": {"arrays": unreadable(data)}, "layout": wire.MESSAGE_API}, UNREAD) for data in BYTES],
    protocol(
        {"given": {"arrays": unreadable(saved(np.save, np.ones(2)), "torch.Tensor")}, "layout": wire.MESSAGE_API},
        "^An array in this message could not be read (TypeError).",
    ),
    protocol(
        {"given": {"arrays": ArrayRecord({"a,b": FlowerArray(EYE)})}, "layout": wire.MESSAGE_API},
        f"^A message has 1 array for the names a,b, but each name needs its own array. {ASK}",
    ),
    protocol(
        {"given": {"arrays": ArrayRecord({"a\n": FlowerArray(EYE)})}, "layout": wire.MESSAGE_API},
        "^A message has arrays whose names are not printable or longer than 100 characters: ",
    ),
    protocol(
        {"given": {"arrays": ArrayRecord({"a" * 10_001: FlowerArray(EYE)})}, "layout": wire.MESSAGE_API},
        "^A message has names of arrays with 10,001 characters in total, but at most 10,000 are allowed. ",
    ),
    *[protocol({"given": {"fitins.parameters": unreadable(data)}}, UNREAD) for data in BYTES],
]
REPLY = [
    *misspelt("An answer"),
    protocol({"key": None}, f"^An answer has no key (int). {ASK}"),
    protocol({"key": "a"}, f"^An answer has key='a', which is not of type int. {ASK}"),
    protocol({"refusal": 3}, f"^An answer has refusal=3, which is not of type str. {ASK}"),
    protocol(
        {"without": "fitres.parameters"},
        "^An answer has no record fitres.parameters, in which flower_pca puts its arrays. If the app has a fit ",
    ),
    *[
        protocol(
            {"without": f"fitres.{less}"},
            "^An answer lacks the records arrays, metrics with num-examples, and config. It has these "
            "records: .*fitres.status. Let a client of flower_pca answer. If clients.register",
        )
        for less in ("metrics", "num_examples")
    ],
    *[
        protocol(
            {"without": less, "layout": wire.MESSAGE_API},
            "^An answer lacks the records arrays, metrics with num-examples, and config. It has these records: ",
        )
        for less in ("arrays", "metrics", "config")
    ],
    *[protocol({"given": {"arrays": unreadable(data)}, "layout": wire.MESSAGE_API}, UNREAD) for data in BYTES],
    *[
        protocol(
            {"given": {"metrics": MetricRecord({"num-examples": count})}, "layout": wire.MESSAGE_API},
            f"^An answer has num-examples={count}, which is not of type int. {ASK}",
        )
        for count in (1.5, [1], [])
    ],
    *[
        protocol(
            {"given": {"fitres.num_examples": MetricRecord({"num_examples": count})}},
            f"^An answer has num_examples={count}, which is not of type int. {ASK}",
        )
        for count in (1.5, [1], [])
    ],
    *[protocol({"given": {"fitres.parameters": unreadable(data)}}, UNREAD) for data in BYTES],
]
EVALUATION = [
    protocol(given, f"^An answer has {sentence}")
    for given, sentence in (
        ({"squares": None}, f"no squares (int or float). {ASK}"),
        ({"n": "3"}, f"n='3', which is not of type int or float. {ASK}"),
        ({"squares": "3"}, f"squares='3', which is not of type int or float. {ASK}"),
        ({"names": None}, f"no names (str). {ASK}"),
        ({"names": ""}, ""),
    )
]
FOREIGN_REQUEST = [
    protocol(
        {"content": content, "kind": kind},
        f"^A message to {kind} lacks the records arrays and config. It has these records: {got}. Send it with a "
        "strategy of flower_pca.",
    )
    for kind in ("train", "evaluate")
    for content, got in FOREIGN
]
FOREIGN_REPLY = [
    protocol(
        {"content": content, "kind": kind},
        f"^An answer lacks the records arrays, metrics with num-examples, and config. It has these records: {got}. "
        "Let a client of flower_pca answer. If clients.register",
    )
    for kind in ("train", "evaluate")
    for content, got in FOREIGN
]
WITH_NOISE = [
    *[
        protocol({"stage": name}, f"The answers of {name} have no bound, so noise cannot hide a row")
        for name in sorted(set(registry.STAGES) - set(registry.TRACKERS) - BOUNDED)
    ],
    *[
        protocol(given, sentence)
        for given, sentence in (
            ({"Z": 1.001 * EYE[:, :1]}, "Z of a message with noise has the norm 1.001"),
            ({"Z": np.ones((3, 2))}, "Z of a message with noise has the norm 2.449"),
            ({"Z": 1e12 * EYE[None]}, "Z of a message with noise has 3 dimensions"),
            ({"Z": 1e12 * EYE[0]}, "Z of a message with noise has 1 dimension"),
            ({"dp.noise": np.array(0.0)}, "positive clip, noise and budget, but has 1, 0, 9."),
            ({"dp.noise": np.ones(2)}, "has several numbers in noise instead of one."),
            ({"dp.clip": np.array(-1.0)}, "positive clip, noise and budget, but has -1, 1, 9."),
            ({"dp.budget": np.array(np.inf)}, "positive clip, noise and budget, but has 1, 1, inf."),
        )
    ],
]
INCOMPLETE = [protocol({"dp.clip": np.array(1.0)}, "A message with noise")]
PRIVATE_OPENING = [
    protocol({"sums": np.array(True), "columns": np.array(True)}, "A private opening needs clipped rows")
]
SHARE = [protocol({"clients": 3}, "A message divides its noise among 3 clients")]
PROBE = [
    protocol(
        {"stage": stage, "shape": shape},
        f"^The probe of local components has shape {shape}, but this node needs one vector of 9 numbers. The server",
    )
    for stage in PERSONAL
    for shape in ((9, 9), (9, 2), (9, 0), (9,), (1, 9), (8, 1))
]
PACKED = [
    protocol({"arrays": arrays}, EXPONENTS)
    for arrays in (
        {"a.exponents": np.zeros(2, np.int16)},
        {"a": np.zeros((3, 2)), "a.exponents": np.zeros(2, np.int16)},
        {"a": np.zeros((3, 2), np.float32), "a.exponents": np.zeros(3, np.int16)},
        {"a": np.zeros((3, 2), np.float32), "a.exponents": np.zeros(2)},
        {"a": np.zeros((3, 2, 1), np.float32), "a.exponents": np.zeros((2, 1), np.int16)},
    )
]
BITS = [protocol({"asked": asked}, "A message asks for numbers of") for asked in (np.array(8), np.array([32]))]
KEY = [protocol({"key": bytes(32)}, "A node's public key gives no shared secret, because it is a point of small")]
TOTAL = [protocol({"words": np.random.default_rng(0).integers(0, 2**64, 40, dtype=np.uint64)}, "looks like noise")]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "request": (read_request, REQUEST),
    "reply": (read_reply, REPLY),
    "reply of an evaluation": (evaluation, EVALUATION),
    "request of others": (foreign_request, FOREIGN_REQUEST),
    "reply of others": (foreign_reply, FOREIGN_REPLY),
    "answer with noise": (noised, WITH_NOISE),
    "answer with part of the noise": (incomplete, INCOMPLETE),
    "private opening": (private_opening, PRIVATE_OPENING),
    "share of the noise": (share, SHARE),
    "probe of own components": (probe, PROBE),
    "arrays of fewer bits": (of_fewer_bits, PACKED),
    "bits of a message": (bits, BITS),
    "key of a peer": (agreed, KEY),
    "masked total": (decoded, TOTAL),
}
