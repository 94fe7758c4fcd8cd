"""Distribute the rows of a table over the clients of a simulation. Partitions are pure functions of sizes or labels.

Examples
--------
>>> from flower_pca.data import partition
>>> [len(rows) for rows in partition.contiguous(10, 3)]
[4, 3, 3]
>>> [len(rows) for rows in partition.make_parts("by_size(sizes=[3, 1])", 8, 2)]
[6, 2]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base import spec as specs
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean_name, is_missing
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.data.reading import no_rows_error
from flower_pca.hints.owners import require_site
from flower_pca.names.ids import as_text, as_texts
from flower_pca.names.table import Table

CLIENTS: Final = 10  # the default number of clients
_PLAIN: Final = "contiguous"  # the default partition


def make_parts(
    spec: str,
    n_rows: int,
    n_clients: int | None = None,
    *,
    beside: Mapping[str, Array] | None = None,
    place: Callable[[int], str] | None = None,
) -> list[Array]:
    """Return the indices of the rows of each client.

    Every row belongs to exactly one client. Every client has at least one row, unless the spec allows empty clients.

    Parameters
    ----------
    spec : str
        The name of a partition, or a spec such as "iid(seed=1)" or "dirichlet(0.3, column='y')".
    n_rows : int
        The number of rows.
    n_clients : int or None, default=None
        The number of clients. By default, it follows from the spec or the column, or is 10.
    beside : mapping or None, default=None
        Label columns by name, with one value per row. Some partitions depend on a label column.
    place : callable or None, default=None
        A function that describes the place of a row, such as its file and line, for messages.
    """
    deal = _partition_of(spec)
    if deal.func in BY_COLUMN:
        values = _label_values(deal, beside or {})
        if deal.func is by_column:
            require_site(values.tolist(), label_column(spec) or "", place)
    else:
        values = None
    if n_clients is None:
        n_clients = _default_clients(deal, values)
    checks.integer("The number of clients", n_clients, least=1)
    if n_rows < n_clients:
        raise DataError(
            f"Each client needs at least one row, but there {'is' if n_rows == 1 else 'are'} "
            f"{labels.count(n_rows, 'row')} for "
            f"{labels.count(n_clients, 'client')}. Use fewer clients."
        )
    return deal(n_rows if values is None else values, n_clients)


def label_column(spec: str) -> str | None:
    """Return the name of the label column that a partition depends on, or None if it depends on no column."""
    deal = _partition_of(spec)
    if deal.func not in BY_COLUMN:
        return None
    return clean_name(str(_column_of_deal(deal)))


def deal(table: Table, spec: str | None = None, n_clients: int | None = None) -> list[Any]:
    """Return the rows of each client: as a table, or as an array if nothing else is known about the rows.

    Without a spec, each part of the table becomes a client. If the table has no parts, the partition is contiguous.
    """
    if spec is None and len(table.parts) > 1:
        require_clients(len(table.parts), n_clients, files=bool(table.origin))
        return [part.bare() for part in table.parts]
    if table.source and not len(table):
        raise no_rows_error(table.source)
    place = table.origin.place_of_row if table.origin is not None else None
    parts = make_parts(spec or _PLAIN, len(table), n_clients, beside=table.beside, place=place)
    names = site_names(spec, table.beside, parts)
    return [table.take(part, site).bare() for part, site in zip(parts, names, strict=True) if len(part)]


def require_clients(parts: int, n_clients: int | None, *, files: bool) -> None:
    """Raise a ConfigError if the data has several parts, but another number of clients is given."""
    if parts > 1 and n_clients not in (None, parts):
        each = ", one for each file" if files else ""
        raise ConfigError(
            f"The data has {parts} clients{each}, not {n_clients}. Leave the number of clients out, or name a "
            "partition to mix their rows."
        )


def site_names(spec: str | None, beside: Mapping[str, Array], parts: Sequence[Array]) -> list[str]:
    """Return the names of the clients if a column names them. Return "" for each client otherwise."""
    by = _partition_of(spec or _PLAIN)
    if by.func is not by_column:
        return [""] * len(parts)
    values = _label_values(by, beside)
    return [as_text(values[part[0]]) if len(part) and len(np.unique(values[part])) == 1 else "" for part in parts]


def contiguous(n_rows: int, n_clients: int) -> list[Array]:
    """Split the rows, in their order, into consecutive parts of nearly equal size."""
    return np.array_split(np.arange(n_rows), n_clients)


def iid(n_rows: int, n_clients: int, *, seed: int = 0) -> list[Array]:
    """Shuffle the rows, and split them into parts of nearly equal size."""
    checks.integer("seed", seed)
    shuffled = np.random.default_rng(seed).permutation(n_rows)
    return [np.sort(share) for share in np.array_split(shuffled, n_clients)]


def by_size(n_rows: int, n_clients: int, *, sizes: Sequence[float]) -> list[Array]:
    """Split the rows, in their order, into consecutive parts whose sizes are proportional to `sizes`."""
    try:
        weights = np.asarray(sizes, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (n_clients,) or not np.all(np.isfinite(weights)) or weights.min() <= 0.0:
        raise ConfigError(
            f"sizes is {shown(sizes)}, but it must hold {n_clients} positive numbers, one for each client. For "
            "example, write by_size(sizes=[3, 2, 1]) for three clients.",
            setting="sizes",
        )
    return _consecutive(sizes_by_weight(n_rows, weights))


def power_law(n_rows: int, n_clients: int, *, exponent: float = 1.0) -> list[Array]:
    """Split the rows, in their order, into consecutive parts with sizes proportional to (i + 1)^-exponent."""
    checks.number("exponent", exponent, least=0.0, most=20.0, remedy="Use 1; 0 makes all clients equal.")
    weights = np.arange(1, n_clients + 1) ** -float(exponent)
    return _consecutive(sizes_by_weight(n_rows, weights))


def by_label(labels: Array, n_clients: int, *, column: str = "y", per_client: int = 1, seed: int = 0) -> list[Array]:
    """Give each client rows of few labels.

    The rows are sorted by label and cut into equal pieces, and each client gets `per_client` random pieces. This is the
    non-iid partition of McMahan, Moore, Ramage, Hampson, Agueera y Arcas 2017.
    """
    checks.integer("per_client", per_client, least=1, remedy="Use 1 or 2.")
    checks.integer("seed", seed)
    rng, runs = np.random.default_rng(seed), n_clients * per_client
    if len(labels) < runs:
        raise DataError(
            f"by_label needs at least {runs} rows, {per_client} for each client, but there are {len(labels)}. Use "
            "fewer clients."
        )
    # Without the shuffle, rows of one label would be dealt in the order of the file.
    mixed = rng.permutation(len(labels))
    order = mixed[np.argsort(_sorted_positions(labels)[mixed], kind="stable")]
    pieces = np.array_split(order, runs)
    dealt = rng.permutation(runs).reshape(n_clients, per_client)
    joined = [np.concatenate([pieces[i] for i in chosen]) for chosen in dealt]
    return [np.sort(places) for places in joined]


def dirichlet(
    labels: Array, n_clients: int, *, alpha: float, column: str = "y", min_rows: int = 1, seed: int = 0
) -> list[Array]:
    """Split the rows of each label by shares drawn from Dirichlet(alpha, ..., alpha).

    The smaller alpha is, the more the clients differ. A client with fewer than `min_rows` rows takes rows from the
    largest clients. With min_rows=0, a client may stay empty. Reference: Hsu, Qi, Brown 2019.
    """
    checks.number("alpha", alpha, least=1e-3, most=1e6, remedy="Try 0.3.")
    checks.integer("min_rows", min_rows, most=max(len(labels) // n_clients, 0), remedy="Ask for fewer, or use 1.")
    checks.integer("seed", seed)
    rng, codes = np.random.default_rng(seed), _sorted_positions(labels)
    parts: list[list[Array]] = [[] for _ in range(n_clients)]
    for label in range(int(codes.max(initial=-1)) + 1):
        rows = rng.permutation(np.flatnonzero(codes == label))
        shares = rng.dirichlet(np.full(n_clients, float(alpha)))
        ends = np.rint(np.cumsum(shares) * len(rows)).astype(int)
        for part, share in zip(parts, np.split(rows, ends[:-1]), strict=True):
            part.append(share)
    dealt = [np.concatenate(part) for part in parts]
    while min(map(len, dealt)) < min_rows:
        poor = int(np.argmin([len(p) for p in dealt]))
        rich = int(np.argmax([len(p) for p in dealt]))
        dealt[poor], dealt[rich] = np.append(dealt[poor], dealt[rich][-1]), dealt[rich][:-1]
    return [np.sort(part) for part in dealt]


def by_column(ids: Array, n_clients: int, *, column: str) -> list[Array]:
    """Make one client for each value of a column, such as a site, patient or device. Clients are sorted by value."""
    codes = _sorted_positions(ids)
    found = int(codes.max(initial=-1)) + 1
    if found != n_clients:
        raise ConfigError(
            f"by_column makes {found} clients, one for each value of {column}, not {n_clients}. Leave the number of "
            "clients out."
        )
    ends = np.cumsum(np.bincount(codes, minlength=found))
    return np.split(np.argsort(codes, kind="stable"), ends[:-1])


def sizes_by_weight(n_rows: int, weights: Array) -> Array:
    """Split n_rows into whole numbers of at least 1, nearly in proportion to the weights."""
    i = np.arange(len(weights))
    shares = np.cumsum(weights) / np.sum(weights)
    ends = np.rint(shares * n_rows).astype(int)
    ends = np.maximum.accumulate(ends - i) + i
    ends = np.clip(ends, i + 1, n_rows - i[::-1])
    return np.diff(ends, prepend=0)


def _consecutive(sizes: Array) -> list[Array]:
    places = np.arange(sizes.sum())
    return np.split(places, np.cumsum(sizes)[:-1])


def _sorted_positions(values: Array) -> Array:
    """Return the position of each value among the sorted distinct values."""
    return np.asarray(np.unique(values, return_inverse=True)[1]).reshape(-1)


def _partition_of(spec: str) -> partial[list[Array]]:
    return partial(specs.bind(spec, PARTITIONS, what="The partition", rule='a name, or a spec such as "iid(seed=1)"'))


def _column_of_deal(deal: partial[list[Array]]) -> Any:
    """Return the label column that a partition depends on, as given in the spec or by default."""
    return inspect.signature(deal).parameters["column"].default


def _label_values(deal: partial[list[Array]], beside: Mapping[str, Array]) -> Array:
    name, kind = _column_of_deal(deal), deal.func.__name__
    if isinstance(name, str):
        name = clean_name(name)
    if name in beside:
        values = np.asarray(beside[name])
        cells = values.tolist()
        if not any(value is None or isinstance(value, str) for value in cells):
            return values
        # As texts, 7 and "7.0" are the same label. A cell without content is empty, as in files of text. "NA" stays.
        empty = [not isinstance(value, str) and is_missing(value) for value in cells]
        return as_texts(np.where(empty, "", values.astype(object)))
    there, remedy = "has no label columns", "Use data with this column, or use iid."
    if beside:
        there, remedy = (
            f"has only these label columns: {', '.join(beside)}",
            f"For example, set column={next(iter(beside))!r}.",
        )
    raise ConfigError(f"{kind} deals out rows by the column {shown(name)}, but the data {there}. {remedy}")


def _default_clients(deal: partial[list[Array]], values: Array | None) -> int:
    if deal.func is by_column:
        return len(np.unique(np.asarray(values)))
    sizes = deal.keywords.get("sizes")
    if isinstance(sizes, list | tuple):
        return len(sizes)
    return CLIENTS


BY_COLUMN: Final[tuple[Callable[..., list[Array]], ...]] = (by_label, dirichlet, by_column)
_BY_NUMBER: Final[tuple[Callable[..., list[Array]], ...]] = (contiguous, iid, by_size, power_law)
PARTITIONS: Final[dict[str, Callable[..., list[Array]]]] = {deal.__name__: deal for deal in (*_BY_NUMBER, *BY_COLUMN)}
