"""A "projection" or a "scaling" in a Flower record, for messages of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flower_pca.base.errors import ProtocolError, harmless
from flower_pca.wire import records


def write_packed(kind: str, packed: bytes) -> records.ConfigRecord:
    """Return a record with a "projection" or a "scaling"."""
    return records.ConfigRecord({f"flower_pca.{kind}": packed})


def read_packed(kind: str, record: Mapping[str, Any]) -> bytes:
    """Return the "projection" or "scaling" in a record, or in the config of a NumPyClient, which may have
    other values too.
    """
    packed = record.get(f"flower_pca.{kind}")
    if not isinstance(packed, bytes):
        got = harmless(", ".join(map(str, record)) or "nothing")
        raise ProtocolError(
            f"The record has no {kind}, only: {got}. Pass result.to_record() as train_config, or merge it into yours."
        )
    return packed
