"""The table of refusals: what is given to an entry point, and the sentence of the refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flower_pca import ConfigError


@dataclass(frozen=True)
class Refused:
    """A sentence, with .* for what is of no matter in it."""

    given: dict[str, Any]
    sentence: str
    error: type[Exception] = ConfigError

    def fault(self, door: Callable[..., Any]) -> str | None:
        """What this door does instead, if it does not say so."""
        try:
            door(**self.given)
        except (Exception, SystemExit) as error:
            said = any(re.search(part, str(error)) for part in self.parts())
            return None if said and isinstance(error, self.error) else f"{self.given}: {error!r}, not {self.sentence!r}"
        return f"{self.given}: no refusal, not {self.sentence!r}"

    def parts(self) -> list[str]:
        """One of these is said, from its beginning where it has ^ in front, and to its end where it has $ behind."""
        return [spelt(choice) for choice in self.sentence.split("|")]


def spelt(sentence: str) -> str:
    words = ".*".join(re.escape(part) for part in sentence.removeprefix("^").removesuffix("$").split(".*"))
    return "^" * sentence.startswith("^") + words + "$" * sentence.endswith("$")
