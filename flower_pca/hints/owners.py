"""Check that a column or list of sites names a site for every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flower_pca.base.errors import DataError
from flower_pca.base.labels import count, is_missing


def require_site(sites: Iterable[Any], column: str = "", place: Callable[[int], str] | None = None) -> None:
    """Raise a DataError if some rows have no site.

    Parameters
    ----------
    sites : iterable
        The site of each row.
    column : str, default=""
        The name of the column that holds the sites, if they are from a column.
    place : callable or None, default=None
        A function that describes the place of a row, for the message.
    """
    bare = [(i, value) for i, value in enumerate(sites) if is_missing(value)]
    if not bare:
        return
    what = f"Column {column}" if column else "The list of sites"
    got = f"no site in {count(len(bare), 'row')}"
    row, value = bare[0]
    # The message quotes other words for a missing value, such as NA.
    if str(value).strip() not in ("", "None", "nan", "NaT", "<NA>"):
        got = f"{value.strip()!r}, which stands for a missing value, in {count(len(bare), 'row')}"
    if place is not None:
        got = f"{got}, the first in {place(row)}"
    raise DataError(f"{what} has {got}. Name the site of every row, or drop these rows.")
