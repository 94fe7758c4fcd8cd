"""`ColumnPreparation`: how each party prepares its columns if parties hold different columns of the same people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from flower_pca.base.errors import OTHER_SERVER, ProtocolError

NAME: Final = "split"  # the key in messages
_LONGEST: Final = 64  # maximum number of characters of a salt


@dataclass(frozen=True)
class ColumnPreparation:
    """The preparation of a party's columns before they are multiplied. It contains no number from a server.

    Attributes
    ----------
    center : bool
        Whether to subtract the mean of each column.
    scale : str or None
        The kind of scaling that follows: None, "std", "max_abs" or "genotype".
    gaps : bool
        Whether NaN stands for a missing value, which is replaced by the mean of its column.
    salt : str
        The salt of the digest of the ids, which differs in every run.
    """

    center: bool = True
    scale: str | None = None
    gaps: bool = False
    salt: str = ""

    def to_text(self) -> dict[str, str]:
        """Return the split as text for a message."""
        return {NAME: json.dumps(asdict(self))}

    @classmethod
    def from_text(cls, plain: Mapping[str, Any]) -> Self | None:
        """Restore a split from the text of `to_text`. Return None if there is no such text.

        Raises
        ------
        ProtocolError
            If the text is not a split.
        """
        if NAME not in plain:
            return None
        try:
            split = cls(**json.loads(plain[NAME]))
        # A malicious sender may nest brackets so deeply that Python raises a RecursionError.
        except (TypeError, ValueError, RecursionError):
            split = cls(scale="none that there is")
        flags = all(isinstance(flag, bool) for flag in (split.center, split.gaps))
        salted = isinstance(split.salt, str) and len(split.salt) <= _LONGEST
        if not flags or not salted or split.scale not in (None, "std", "max_abs", "genotype"):
            raise ProtocolError(f"A message has malformed settings for a run over columns. {OTHER_SERVER}")
        return split
