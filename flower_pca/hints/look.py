"""Collect the hints of all kinds about the rows of some sites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flower_pca.base.labels import count
from flower_pca.base.options import reader_argument
from flower_pca.hints import faults
from flower_pca.hints.identifiers import find_identifiers, hints_of_identifiers
from flower_pca.rows.local import LocalData


def hints_of(
    tables: Sequence[LocalData],
    names: Sequence[str] | None = None,
    *,
    most: int = faults.MOST,
    sizes: Sequence[str] = (),
    id_column: int | None = None,
) -> tuple[str, ...]:
    """Return hints about the rows of these sites, which have the same columns.

    The hints concern first lines that may be names, columns that number the rows, codes for missing values, totals,
    rows that occur twice, dates, units, and further faults: see `faults.find_hints`.

    Parameters
    ----------
    tables : sequence of LocalData
        The rows of each site.
    names : sequence of str or None, default=None
        Names of the columns. By default, the names at the first site.
    most : int, default=67108864
        The maximum number of entries for which all rows are examined.
    sizes : sequence of str, default=()
        Hints about the sizes of columns, which are inserted into the result.
    id_column : int or None, default=None
        A column that `sizes` already reports as an identifier.
    """
    if not tables:
        return ()
    if names is None:
        names = tables[0].names
    lines = hints_of_first_lines(file for table in tables for file in table.table.headerless)
    found = hints_of_identifiers(find_identifiers(tables, names), names, id_column)
    return (*lines, *sizes, *found, *faults.find_hints(tables, names, most=most))


def hints_of_party(party: LocalData, *, most: int = faults.MOST) -> list[str]:
    """Return hints about the rows of one party whose columns no other party has. Each hint names the party."""
    return [f"At {party.who}: {hint}" for hint in faults.find_hints([party], most=most)]


def hints_of_first_lines(files: Iterable[str]) -> tuple[str, ...]:
    """Return a hint about text files whose first line was read as a row because it holds only numbers."""
    first, *more = dict.fromkeys(files) or ("",)
    if not first:
        return ()
    others = f", and of {count(len(more), 'more file')}," if more else ""
    return (
        f"The first line of {first}{others} was read as a row of numbers. If it holds column names, read the data "
        f"{reader_argument('header', True)}.",
    )
