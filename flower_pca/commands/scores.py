"""The scores of a run over columns, in a file that a spreadsheet reads: one line for each person."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

_NAME: Final = "scores.csv"


def write(result: Any, folder: Path) -> list[str]:
    """Write the scores, with the ids of the rows where they are known; the name of the file."""
    ids = result.row_ids_
    with (folder / _NAME).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(["id"] if ids is not None else []), *result.get_feature_names_out()])
        for i, row in enumerate(result.scores_.tolist()):
            writer.writerow([*([ids[i]] if ids is not None else []), *(f"{value:.17g}" for value in row)])
    return [_NAME]
