"""Put a projection or a scaling into a Flower record, so that users can send it in their own messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flower_pca.base.errors import ProtocolError, safe_for_log
from flower_pca.wire import records


def write_packed(kind: str, packed: bytes) -> records.ConfigRecord:
    """Return a record with a packed result. `kind` is "projection" or "scaling"."""
    return records.ConfigRecord({f"flower_pca.{kind}": packed})


def read_packed(kind: str, record: Mapping[str, Any]) -> bytes:
    """Return the packed "projection" or "scaling" in a record, or in the config of a NumPyClient.

    The record or config may also contain other values.

    Raises
    ------
    ProtocolError
        If there is no packed result of this kind.
    """
    packed = record.get(f"flower_pca.{kind}")
    if not isinstance(packed, bytes):
        got = safe_for_log(", ".join(map(str, record)) or "nothing")
        raise ProtocolError(
            f"The record contains no {kind}. It contains: {got}. Pass result.to_record() as train_config, or add its "
            "entries to your train_config."
        )
    return packed
