"""The sites of a simulation: their rows with the names that belong to them, checked as a deployment checks them.

One table as the rows of several sites: a column, a level of the index, or a list beside it says
whose a row is.

Columns of words in a simulation: what sites of a deployment tell one another before the run is
looked up here.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flower_pca import hints
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.core.question import Question
from flower_pca.hints import faults
from flower_pca.hints.repeats import without_repeats
from flower_pca.hints.sizes import column_alone, hints_of_largest
from flower_pca.names.coding import Coding
from flower_pca.names.columns import Columns, Heading, enumeration, usual_place
from flower_pca.names.sites import require_site
from flower_pca.names.table import Table
from flower_pca.results.pca import PCAResult
from flower_pca.rows.frame import Frame, merge
from flower_pca.rows.local import LocalData
from flower_pca.stages.site_share import hints_of_sites


def from_frame(frame: Any, *, by: Any) -> list[Table]:
    """The rows of each site of one table, with the names of its columns and of the sites.

    Args:
        frame: A data frame (of pandas, polars, or alike), or other rows.
        by: Whose a row is: the name of the column that says so, or of a level of the index; or a
            site for each row, as a series (maybe a column of the table), an array or a list. The
            other columns are the features.

    Returns:
        What `simulate` takes: the sites in the order of their names.

    Raises:
        ConfigError: If `by` is none of these.
        DataError: If a row has no site, or the table has no row or no other column.
    """
    # a lazy one of polars
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.collect()
    shape = _shape(frame)
    if len(shape) != 2:
        raise DataError(
            "The table",
            must="of rows and columns",
            got=f"a {type(frame).__name__}",
            then="Give a data frame, or an array with by=[...].",
        )
    if _is_column(frame, by):
        by = by.name
    if _is_name(by):
        rest, whose = _column(frame, by)
    else:
        rest, whose = (frame, _each(frame, by, shape[0]))
    require_site(whose.tolist(), str(by) if _is_name(by) else "")
    for side, noun in zip(_shape(rest), ("row", "column beside the sites"), strict=True):
        if not side:
            raise DataError("The table", must=f"of at least one {noun}", got="none", then="Check how it was made.")
    rows = Table.of(rest, who="the table")
    # Labels of several types have no order among themselves.
    found, which = np.unique(whose.astype(str) if whose.dtype == object else whose, return_inverse=True)
    # pandas has whole numbers as floats in a column that had gaps once: site 1.0 is site 1.
    whole = [int(label) if isinstance(label, float) and label.is_integer() else label for label in found.tolist()]
    return [replace(rows[which == i], site=str(site)) for i, site in enumerate(whole)]


class _Others:
    """Some columns of a data frame of whatever package, which are taken by name."""

    def __init__(self, frame: Any, columns: list[Any]) -> None:
        self.frame, self.columns = frame, columns
        self.shape = (_shape(frame)[0], len(columns))

    def __getitem__(self, name: Any) -> Any:
        return self.frame[name]

    def to_numpy(self) -> Array:
        return np.column_stack([self.frame[name].to_numpy() for name in self.columns])


def _shape(table: Any) -> tuple[int, ...]:
    """Rows and columns; of what is no table () or another number of sides."""
    known = getattr(table, "shape", None)
    if known is None and hasattr(table, "columns") and hasattr(table, "to_numpy"):
        known = np.shape(table.to_numpy())
    return tuple(known or ())


def _is_name(by: Any) -> bool:
    """Whether it names one column: a text, a number, or the labels of several levels."""
    return isinstance(by, str | int | np.integer | tuple) or by is None


def _is_column(frame: Any, by: Any) -> bool:
    """Whether it is a column of the table itself, as in by=table["site"]."""
    name, names = getattr(by, "name", None), list(getattr(frame, "columns", ()))
    return hasattr(by, "equals") and name is not None and names.count(name) == 1 and bool(frame[name].equals(by))


def _column(frame: Any, by: Any) -> tuple[Any, Array]:
    """The table without the column of this name, and that; or as it is, with the level's."""
    if isinstance(frame, Table):
        names = list(frame.names or ())
        if by not in names:
            raise _unknown(by, names)
        return frame.without([by]), np.asarray(frame.values)[:, names.index(by)]
    names = list(getattr(frame, "columns", ()))
    if by in names:
        if names.count(by) > 1:
            Columns(tuple(map(str, names)), "the table")  # which says so
        return _Others(frame, [name for name in names if name != by]), np.asarray(frame[by].to_numpy())
    if by is not None and by in getattr(getattr(frame, "index", None), "names", ()):
        return frame, np.asarray(frame.index.get_level_values(by).to_numpy())
    raise _unknown(by, names)


def _each(frame: Any, by: Any, n: int) -> Array:
    """A site for each of n rows."""
    whose = np.empty(())
    if isinstance(by, Iterable) and not isinstance(by, dict | set | bytes):
        whose = np.asarray(by.to_numpy() if hasattr(by, "to_numpy") else list(by))
    if whose.ndim != 1 or len(whose) != n:
        got = f"a {_kind(by)}"
        if whose.ndim == 1:
            got = labels.count(len(whose), "site")
        raise ConfigError(
            "by",
            must=f"the name of a column, or the site of each of the {n:,} rows",
            got=got,
            then="Name the sites' column.",
        )
    each: Any = whose.tolist()
    if any(isinstance(label, Collection) and not isinstance(label, str) for label in each):
        raise ConfigError(f"by must name one site for each row, as text or as a number. Got {shown(by)}.")
    own: Any = getattr(frame, "index", None)
    other: Any = getattr(by, "index", None)
    # Taken by position, rows would get the sites of others, and nobody would see it.
    if hasattr(own, "equals") and hasattr(other, "equals") and not own.equals(other):
        raise ConfigError(
            "The index of by",
            must="that of the table, in its order",
            got="another",
            then="Give by=by.to_numpy() if it is in the order of the rows.",
        )
    return whose


def _kind(given: Any) -> str:
    """What was given in place of rows or sites: its type, and its shape if it has one."""
    return type(given).__name__ + (f" of shape {given.shape}" if hasattr(given, "shape") else "")


def _unknown(by: Any, names: list[Any]) -> ConfigError:
    rule = "a column of the table" + (f", such as {enumeration(map(str, names))}" if names else "")
    return ConfigError("by", must=rule, got=shown(by), then="Name the sites' column, or give the site of each row.")


def sites_of(shards: Any) -> list[Table]:
    """The shards with the names that they have; in a mapping, those of their sites are the keys."""
    if isinstance(shards, Mapping) and shards:
        return [Table.of(X, who=str(site), site=str(site)) for site, X in shards.items()]
    several = isinstance(shards, list | tuple) or (isinstance(shards, np.ndarray) and shards.ndim == 3)
    if not several or len(shards) == 0:
        got = _kind(shards)
        if several:
            got = "none"
        raise DataError("shards", must="a list of arrays, one per client", got=got, then="Use [X] for one client.")
    return [Table.of(X, who=f"client {i}") for i, X in enumerate(shards)]


def common_order(sites: Sequence[Table]) -> tuple[str, ...] | None:
    """The names of the columns in the order that they have at all sites; None where they differ, or are sorted."""
    orders = {(site.names, bool(site.words)) for site in sites}
    names, words = next(iter(orders))
    if len(orders) > 1 or words or names is None or list(names) == sorted(names):
        return None
    return names


def clients_as_run(shards: Any, *, missing: bool) -> list[LocalData]:
    """The shards as the clients of a run see them if it names no columns: in the order that all sites have, if any."""
    sites = sites_of(shards)
    return rows_of(sites, missing=missing, columns=common_order(sites))


def clients_of(shards: Any, *, missing: bool, columns: tuple[str, ...] | None = None) -> list[LocalData]:
    """The shards as the clients see them, all with the same columns: those named, or all."""
    return rows_of(sites_of(shards), missing=missing, columns=columns)


def rows_of(sites: Sequence[Table], *, missing: bool, columns: tuple[str, ...] | None = None) -> list[LocalData]:
    """What the clients with these shards see of them, likewise."""
    found = enumerate(sites)
    if columns is None:
        clients = [LocalData(X.whole(f"client {i}"), who=f"client {i}", missing=missing) for i, X in found]
    else:  # values may be missing in columns that are left out
        clients = [LocalData(X, who=f"client {i}", missing=True).arrange(columns) for i, X in found]
        if not missing:
            for client in clients:
                client.require_whole()
    usual = clients[usual_place([client.heading for client in clients])]
    for client in clients:
        if not client.heading.like(usual.heading):
            raise client.heading.mismatch(client.who, usual.heading, usual.who).error(DataError)
    return clients


def handed_over(private: Collection[int], n_clients: int) -> list[int]:
    """The clients whose own results are handed over: all but those in `private`."""
    for client in private:
        checks.integer("Every client in private", client, most=n_clients - 1, remedy="Give positions in shards.")
    return sorted({*range(n_clients)} - {*private})


def looked_at(result: PCAResult, clients: Sequence[LocalData], frame: Frame) -> PCAResult:
    """The result, with hints about what is seen of the rows, under a budget of noise without.

    They are about columns that number the rows, about first lines that may be names, and about
    faults of files.
    """
    if result.privacy is not None:  # nothing else is said of rows then
        return result
    names = labels.tuple_of(result.feature_names_in_)
    most = faults.BARE if names is None else faults.CHEAP
    of_sites = hints_of_sites(result.site_share_, result.sites_, result.n_samples_)
    of_columns = tuple(hint for hint in result.hints if hint not in of_sites)
    alone: int | None = None
    if of_columns:
        m = functools.reduce(merge, (client.in_frame(frame, once=True).moments() for client in clients))
        deviations = np.sqrt(m.m2 / m.seen + (0.0 if result.centered else m.mean**2))
        alone = column_alone(deviations)
        for hint in hints_of_largest(deviations, names, clients):  # it says more of a column than the run could
            column = hint.partition(" alone has ")[0]
            of_columns = (hint, *(other for other in of_columns if not other.startswith(f"{column} alone has ")))
    found = hints.of(clients, names, most=most, sizes=of_columns, but=alone)
    return replace(result, hints=without_repeats((*found, *of_sites)))


def by_agreement(question: Question, coding: Coding, sites: Sequence[Table]) -> tuple[Question, list[Table]]:
    """The question with all its columns by name, and the sites with just these columns."""
    found = coding.union([coding.values_at(site, f"client {i}") for i, site in enumerate(sites)])
    columns = found.spread(question.columns or _others(sites, coding))
    exact = [_exactly(site, columns, f"client {i}") for i, site in enumerate(sites)]
    return question.with_coding(found, columns), exact


def _others(sites: Sequence[Table], coding: Coding) -> tuple[str, ...]:
    """The columns beside those of words, which have to be the same at all sites."""
    plain = [site.without(coding.words) for site in sites]
    for i, site in enumerate(plain):
        site.whole(f"client {i}")
    headings = [Heading.of_names(site.names or (), len(site.names or ())) for site in plain]
    usual = usual_place(headings)
    for i, heading in enumerate(headings):
        if not heading.like(headings[usual]):
            raise heading.mismatch(f"client {i}", headings[usual], f"client {usual}").error(DataError)
    return common_order(plain) or tuple(sorted(plain[0].names or ()))


def _exactly(site: Table, columns: tuple[str, ...], who: str) -> Table:
    """The site with these columns, made of words where it has none of the name."""
    rows = LocalData(site, who=who, missing=True).arrange(columns)
    return replace(site, values=rows.plain(), names=columns, words={}, texts={}, coded=(), made=rows.table.made)
