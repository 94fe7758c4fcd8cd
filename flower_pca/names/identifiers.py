"""Recognize the names of columns that number rows or people, such as id, patient_nr and MRN."""

from __future__ import annotations

import re
from typing import Final

_LAST_WORDS: Final = {  # words that mark a column as an identifier if its name ends with them
    *("id", "ids", "idx", "index", "key", "mrn", "pid", "uid", "uuid", "identifier", "pseudonym", "unnamed"),
    *("recordid", "patientid", "patid", "patnr", "patientennummer", "fallnr", "fallnummer", "kennung"),
}
_WHOSE: Final = {
    *("patient", "subject", "person", "participant", "case", "encounter"),
    *("record", "row", "sample", "study", "visit"),
}
_NUMBER: Final = {"id", "nr", "no", "num", "number", "nummer", "code", "key", "index"}


def is_called_identifier(name: str) -> bool:
    """Return whether the name of a column looks like the name of an identifier."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words:
        return False
    whose = any(word in _WHOSE for word in words)
    numbers = len(words) == 1 or words[-1] in _NUMBER
    return words[-1] in _LAST_WORDS or (whose and numbers) or words in (["nr"], ["index", "level"])
