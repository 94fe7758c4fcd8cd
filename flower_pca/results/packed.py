"""Packed: what is kept as bytes with names of columns beside its arrays, and travels in a record of Flower's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np

from flower_pca.base import archive
from flower_pca.base.errors import DataError, harmless
from flower_pca.base.linalg import Array

_REMEDY: Final = "Check the sender."


class Packed:
    """Arrays, (d,) or (k, d), and names of the d columns.

    Attributes:
        kind: What such a thing is called, in bytes and in errors.
        needed: The arrays that all of its kind have.
        optional: Those that some have.
        counts: Its numbers of rows.
    """

    kind: ClassVar[str]
    needed: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]]
    counts: ClassVar[tuple[str, ...]] = ()

    feature_names_in_: Array | None
    feature_digest: str

    def to_bytes(self) -> bytes:
        """All of it as bytes, from which `from_bytes` makes it again: numpy's format, without pickles."""
        arrays = {name: a for name in (*self.needed, *self.optional) if (a := getattr(self, name)) is not None}
        names = None if self.feature_names_in_ is None else list(self.feature_names_in_)
        counts = {name: getattr(self, name) for name in self.counts}
        header = {**counts, "feature_names": names, "feature_digest": self.feature_digest}
        return archive.to_bytes(self.kind, header, arrays)

    @classmethod
    def from_bytes(cls, packed: bytes) -> Self:
        """What `to_bytes` has packed.

        Raises:
            DataError: If it is none.
        """
        header, arrays = archive.from_bytes(cls.kind, packed)
        names, digest = header.get("feature_names"), header.get("feature_digest", "")
        if not set(cls.needed) <= set(arrays) <= {*cls.needed, *cls.optional}:
            got = harmless(", ".join(sorted(arrays)) or "none")
            raise DataError(f"The arrays of a {cls.kind}", must="those of its fields", got=got, then=_REMEDY)
        texts = [digest, *(names if isinstance(names, list) else [] if names is None else [names])]
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"The names of a {cls.kind}", must="texts", got=harmless(repr(texts)), then=_REMEDY)
        counts = {name: header.get(name) for name in cls.counts}
        for name, count in counts.items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                got = harmless(repr(count))
                raise DataError(f"{name} of a {cls.kind}", must="a number of rows", got=got, then=_REMEDY)
        shown = None if names is None else np.array(names, dtype=object)
        known: dict[str, Any] = {**arrays, **counts, "feature_names_in_": shown, "feature_digest": digest}
        return cls(**known)

    def to_record(self) -> Any:
        """A `ConfigRecord` of Flower's with it: for a message, or beside the rest of a config."""
        from flower_pca import wire

        return wire.write_packed(self.kind, self.to_bytes())

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """What a record has that `to_record` has made: a `ConfigRecord`, or the config of a NumPyClient.

        Raises:
            ProtocolError: If there is none in it.
            DataError: If it is damaged.
        """
        from flower_pca import wire

        return cls.from_bytes(wire.read_packed(cls.kind, record))
