"""Refusals of records and files of results."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from builders import Array
from flwr.app import ConfigRecord

from flower_pca import ColumnsResult, DataError, PCAResult, Projection, ProtocolError, Scaling, TrackingResult
from flower_pca.base import files
from refused import Refused
from refused.results import result_of

SCALES = {"mean_": np.zeros(4), "scale_": np.ones(4)}


UNNAMED: dict[str, Any] = {"feature_names": None, "feature_digest": ""}  # columns that are matched by position


def packed(header: dict[str, Any] | None = None, **arrays: Array) -> bytes:
    return files.to_bytes("projection", {**UNNAMED, **(header or {})}, arrays)


def squeezed() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("header.json.npy", b"0" * 10**6)
    return stream.getvalue()


def projection(content: bytes) -> None:
    Projection.from_record({"flower_pca.projection": content})


def scaling(**parts: Any) -> None:
    Scaling.from_bytes(files.to_bytes("scaling", {**UNNAMED, **parts}, SCALES))


def file_of(kind: str, wanted: str = "thing") -> None:
    with tempfile.TemporaryDirectory() as folder:
        files.read(files.write(Path(folder) / "file", kind, {}, {}), wanted)


def file_of_bytes(content: bytes, read: Callable[[Path], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        read(path)


def file_of_result(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        PCAResult.load(files.write(Path(folder) / "file", kind, {}, {}))


def incomplete_file(without: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = result_of("krylov").save(Path(folder) / "result.npz")
        with np.load(path) as file:
            np.savez(path, **{name: file[name] for name in file if name != without})
        PCAResult.load(path)


def file_of_no_party() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ColumnsResult.projection_of_party(result_of("krylov").save(Path(folder) / "r.npz"))


def of_objects() -> bytes:
    np.savez(file := io.BytesIO(), **{"header.json": np.array([{"kind": "thing"}], dtype=object)})  # type: ignore[arg-type]
    return file.getvalue()


def file_of_sizes(how: str) -> bytes:
    """A file that says another size than it has, or needs more memory than its own."""
    with zipfile.ZipFile(io.BytesIO(files.to_bytes("thing", {}, {"a": np.zeros(4)}))) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    if how == "array":
        parts["a.npy"] = parts["a.npy"].replace(b"(4,), }" + b" " * 9, b"(4" + b"0" * 9 + b",), }")
    if how == "compressed":
        np.save(buffer := io.BytesIO(), np.zeros(10**6))
        parts["a.npy"] = buffer.getvalue()
    if how == "twice":
        parts["a.npy"] = parts["a.npy"][:-8]
    packing = zipfile.ZIP_DEFLATED if how == "compressed" else zipfile.ZIP_STORED
    with zipfile.ZipFile(made := io.BytesIO(), "w", packing) as new:
        for name, content in parts.items():
            new.writestr(name, content)
    return made.getvalue()


def thing(path: Path) -> None:
    files.read(path, "thing")


RECORD = [
    Refused(
        {"record": record},
        "The record contains no projection. It contains: .*. Pass result.to_record() as train_config, or add",
        ProtocolError,
    )
    for record in ({}, {"lr": 0.1}, ConfigRecord({"flower_pca.projection": "text"}))
]
PROJECTION = [
    Refused({"content": content}, sentence, DataError)
    for content, sentence in (
        (b"", "These bytes are not a projection of flower_pca: they cannot be read"),
        (packed(components_=np.eye(2))[:-30], "they cannot be read"),
        (squeezed(), "they cannot be read (ValueError)"),
        (files.to_bytes("result", {}, {"components_": np.eye(2)}), "read (ValueError). Ask the sender to save"),
        (
            packed(components_=np.eye(2), local=np.eye(2)),
            "The arrays of a projection do not match its fields: components_, local. Ask the sender to send "
            "result.to_record() again.",
        ),
        (
            packed(mean_=np.ones(2)),
            "The arrays of a projection do not match its fields: mean_. Ask the sender to send "
            "result.to_record() again.",
        ),
        (
            packed(components_=np.ones(3)),
            "The shapes {'components_': (3,)} do not fit: components_ and weights_ must be (k, d), shrinkage_ (k,), "
            "all "
            "others (d,). Use Projection.from_record(result.to_record()).",
        ),
        (
            packed(components_=np.eye(2), mean_=np.ones(3)),
            "The shapes {'components_': (2, 2), 'mean_': (3,)} do not fit: components_ and weights_ must be (k, d), ",
        ),
        (packed({"feature_names": ["a"]}, components_=np.eye(2)), "'feature_names_in_': (1,)}"),
        (
            files.to_bytes("projection", {}, {"components_": np.eye(2)}),
            "Not all names of a projection are text: [None, None]. Ask the sender to send result.to_record() again.",
        ),
        (
            packed({"feature_names": 3}, components_=np.eye(2)),
            "Not all names of a projection are text: ['', 3]. Ask the sender to send result.to_record() again.",
        ),
        (
            packed(components_=np.eye(2) * np.nan),
            "components_ of a projection has entries that are not finite numbers. Use Projection.from_record(",
        ),
        (
            packed(components_=np.eye(2), scale_=np.zeros(2)),
            "scale_ of a projection has entries that are not finite numbers above 0. Use Projection.from_record(",
        ),
        (
            packed(components_=np.eye(2), fill_=np.arange(2)),
            "fill_ of a projection has entries that are not finite numbers. Use Projection.from_record(",
        ),
    )
]
SCALING_RECORD = [
    Refused({"record": {"lr": 0.1}}, "The record contains no scaling. It contains: lr. ", ProtocolError),
    Refused({"record": {"flower_pca.scaling": b"damaged"}}, "are not a scaling of flower_pca", DataError),
]
SCALING = [
    Refused({"n_samples_": n}, f"n_samples_ of a scaling is {n!r}, which is not a number of rows. Ask", DataError)
    for n in (None, "3", True, 0)
]
SCALING_PARTS = [
    Refused(
        {**SCALES, "n_samples_": 3, **wrong},
        "The arrays of a scaling must have one finite number for each column",
        DataError,
    )
    for wrong in ({"scale_": np.array([1.0, 0.0, 1.0, 1.0])}, {"mean_": np.zeros(3)}, {"scale_": np.full(4, np.nan)})
]
THING = "is not a thing of flower_pca"
FILE_OF = [Refused({"kind": "other"}, "^/.*/file is an other, not a thing. Check the path.$", DataError)]
FILE_OF_BYTES = [
    Refused({"content": content, "read": read}, sentence, DataError)
    for content, read, sentence in (
        (of_objects(), thing, THING),
        *((file_of_sizes(how), thing, THING) for how in ("array", "compressed", "twice")),
        (b"no", TrackingResult.load, "is not a tracking result of flower_pca"),
    )
]
RESULT_FILE = [
    Refused({"kind": "checkpoint"}, "^/.*/file is a checkpoint, not a result. Check the path.$", DataError),
    Refused({"kind": "tracking result"}, "is a tracking result, not a result. Use TrackingResult.load.$", DataError),
]
INCOMPLETE_FILE = [Refused({"without": "components_"}, "is not a result of flower_pca", DataError)]
NO_PARTY = [Refused({}, "is a result, not an own result", DataError)]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "record of a projection": (Projection.from_record, RECORD),
    "projection": (projection, PROJECTION),
    "record of a scaling": (Scaling.from_record, SCALING_RECORD),
    "scaling": (scaling, SCALING),
    "parts of a scaling": (Scaling, SCALING_PARTS),
    "file": (file_of, FILE_OF),
    "bytes of a file": (file_of_bytes, FILE_OF_BYTES),
    "file of a result": (file_of_result, RESULT_FILE),
    "file of part of a result": (incomplete_file, INCOMPLETE_FILE),
    "file of no party": (file_of_no_party, NO_PARTY),
}
