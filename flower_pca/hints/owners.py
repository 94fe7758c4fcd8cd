"""A check that a column or list of sites names a site for every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flower_pca.base.errors import DataError
from flower_pca.base.labels import count, is_gap


def require_site(sites: Iterable[Any], column: str = "", place: Callable[[int], str] | None = None) -> None:
    """Raise a DataError if `sites`, the values of `column` if given, leave out the site of some rows."""
    bare = [(i, value) for i, value in enumerate(sites) if is_gap(value)]
    if not bare:
        return
    what = "The site of every row"
    if column:
        what = f"The site of every row, {column},"
    got = f"none in {count(len(bare), 'row')}"
    row, value = bare[0]
    # other texts that `is_gap` takes for a gap, such as NA, are quoted in the message
    if str(value).strip() not in ("", "None", "nan", "NaT", "<NA>"):
        got = f"{value.strip()!r}, which stands for a missing value, in {count(len(bare), 'row')}"
    if place is not None:
        got = f"{got}, the first in {place(row)}"
    raise DataError(f"{what} is needed, but there is {got}. Fill it, or drop these rows.")
