"""Define `Table`, which holds the rows of a site or a source with their names, labels, ids and origin."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean_name, clean_names, count
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.blocks import adapters
from flower_pca.blocks.adapters import JoinedRows
from flower_pca.blocks.compressed import with_sparse_columns
from flower_pca.blocks.source import is_sparse
from flower_pca.names import annotated, frames, ids, variants
from flower_pca.names.columns import ColumnNames, Heading, enumeration, has_unusable_name, unusable_columns_error
from flower_pca.names.origin import Origin


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a site or a source, with their column names, labels, ids and origin.

    Tables are immutable. Only this class selects, reorders or drops rows and columns.

    Attributes
    ----------
    values
        The rows, n x d, as a dense, memory-mapped or sparse array.
    names : tuple of str or None
        The names of the columns, or None if columns are matched by position.
    words : mapping
        Descriptions of the columns that hold no numbers, by name. A run cannot use these columns.
    source : str
        The file or other source of the rows, for messages.
    site : str
        The name of the site, or "".
    origin : Origin or None
        The file and the place of each row, for messages. None if the rows are not from files.
    ids : tuple of str or None
        The ids of the rows, if known, for runs whose clients hold different columns of the same people.
    texts : mapping
        The cells of the columns of words that can be coded, by name: see `names.levels`.
    coded : tuple of str
        The names of the columns of words that have been coded.
    made : frozenset of str
        The names of the columns that were made from columns of words.
    beside : mapping
        The label columns, by name. These columns, such as the client of each row, are not features.
    parts : tuple of Table
        The tables of the clients, if the source knows its clients. Together, in this order, they hold all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Table
    >>> table = Table(np.eye(3), names=("age", "bmi", "pulse"), site="north")
    >>> table.values.shape, table.names
    ((3, 3), ('age', 'bmi', 'pulse'))
    """

    values: Any
    names: tuple[str, ...] | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    site: str = ""
    origin: Origin | None = None
    ids: tuple[str, ...] | None = None
    texts: Mapping[str, Array] = field(default_factory=dict)
    coded: tuple[str, ...] = ()
    made: frozenset[str] = frozenset()
    beside: Mapping[str, Array] = field(default_factory=dict)
    parts: tuple[Table, ...] = ()

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.names is not None:
            names = tuple(self.names)
            if {*map(type, names)} == {str}:  # A table may have a million names, and a loop takes far longer.
                names = clean_names(names)
            else:
                names = tuple(clean_name(name) if isinstance(name, str) else name for name in names)
            object.__setattr__(self, "names", names)
        if self.site:
            object.__setattr__(self, "site", clean_name(self.site))
        if self.words:
            object.__setattr__(self, "words", {clean_name(name): what for name, what in self.words.items()})
        if self.texts:
            object.__setattr__(self, "texts", {clean_name(name): cells for name, cells in self.texts.items()})
        if self.ids is not None:
            object.__setattr__(self, "ids", ids.texts(self.ids))
            if len(self.ids) != len(self):
                raise DataError(
                    f"There {'is' if len(self.ids) == 1 else 'are'} {count(len(self.ids), 'id')} for "
                    f"{count(len(self), 'row')}. Give one id for each row."
                )

    @classmethod
    def of(cls, X: Any, *, who: str = "the rows", site: str = "") -> Table:
        """Return rows of any kind as a table. A data frame has column names, and an array has none."""
        if isinstance(X, cls):
            if not site:
                return X
            return replace(X, site=site)
        if hasattr(X, "__array_interface__"):  # An array in memory needs none of the checks below.
            return cls(X, site=site)
        # A lazy frame of polars has these attributes.
        if hasattr(X, "collect_schema") and hasattr(X, "collect"):
            X = X.collect()
        # A data frame of pandas, polars or a similar library has these attributes.
        if hasattr(X, "columns") and hasattr(X, "to_numpy"):
            return cls(**frames.fields_of_frame(X, who), site=site)
        if annotated.is_annotated(X):
            return cls(**annotated.fields_of(X, who), site=site)
        if adapters.is_stored(X):
            stored = adapters.as_blocks(X, who)
            return cls(stored, getattr(stored, "names", None), site=site)
        return cls(X, site=site)

    @classmethod
    def of_file(
        cls,
        file: Path,
        rows: Any,
        names: tuple[str, ...] = (),
        beside: Mapping[str, Array] | None = None,
        words: Mapping[str, str] | None = None,
        *,
        origin: Origin | None = None,
        ids: str | None = None,
    ) -> Self:
        """Return the table of all rows of a file. `ids` names the label column that holds the row identifiers."""
        known = origin or Origin.of_file(file, sum(rows.shape[:1]))
        table = cls(rows, names or None, words or {}, str(file), origin=known, beside=beside or {})
        return table.with_ids(ids)

    @classmethod
    def together(cls, parts: Sequence[Table], beside: Mapping[str, Array], *, source: str = "") -> Table:
        """Join the tables of several clients into one table, with label columns for all of their rows."""
        rows = JoinedRows(tuple(adapters.as_blocks(part.values) for part in parts))
        stretches = [stretch for part in parts if part.origin for stretch in part.origin.stretches]
        origin = Origin(tuple(stretches)) if stretches else None
        return cls(rows, parts[0].names, source=source, origin=origin, beside=beside, parts=tuple(parts))

    @property
    def rows(self) -> Any:
        """All rows as one dense, memory-mapped or sparse array."""
        if not self.parts:
            return self.values
        if len(self.parts) == 1:
            return self.parts[0].values
        every = [part.values for part in self.parts]
        if any(map(adapters.is_stored, every)):
            return self.values
        if any(hasattr(values, "tocsr") for values in every):
            from scipy.sparse import vstack

            return vstack(every, format="csr")
        return np.concatenate(every)

    def joined(self) -> Table:
        """Return the table with all rows in one array, and without the tables of the clients."""
        return replace(self, values=self.rows, parts=())

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the clients, if the source knows them."""
        return tuple(part.site for part in self.parts if part.site)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns except label columns, whether or not they hold numbers."""
        return (*(self.names or ()), *self.words)

    @property
    def is_text(self) -> bool:
        """Whether the rows are lines of text files."""
        return self.origin is not None and any(part.line is not None for part in self.origin.stretches)

    def pick(self, names: Sequence[str], who: str = "the data", *, places: Array | None = None) -> Table:
        """Return the table with only these columns, in this order. `places` are their positions, if they are known."""
        wanted = tuple(names)
        if wanted == self.names:
            return replace(self, words={}) if self.words else self
        if not self.names:
            raise ConfigError(
                f"{option('columns')} selects columns by name ({enumeration(wanted)}), but the data has no column "
                "names. Add a first line with column names to the file.",
                setting="columns",
            )
        if places is None:
            places = self.places(wanted, who)
        changed = replace(self, names=wanted, words={})
        if self.parts:
            return changed._with_parts([part.pick(wanted, who) for part in self.parts])
        return replace(changed, values=_columns_of(self.values, places))

    def places(self, names: Sequence[str], who: str = "the data") -> Array:
        """Return the positions of these columns among all numeric columns."""
        return ColumnNames(self.names or (), self.source or who).positions_of(names, self.words)

    def stored(self, who: str, *, empty: bool = False) -> Table:
        """Return the table in the form in which a client holds it: rows in blocks, and named columns in sorted order.

        Raises
        ------
        DataError
            If the table has no columns, if it has no rows (unless `empty` is true), or if names are missing or
            repeated.
        """
        rows, names = adapters.as_blocks(self.values, who), self.names
        if names is not None:
            columns = ColumnNames(names, self.source or who)
            if rows.shape[1] != len(names):
                raise DataError(
                    f"There are {count(rows.shape[1], 'column')} but {count(len(names), 'name')} at {columns.who}. "
                    "Name each column."
                )
            if names != columns.sorted_names:
                rows, names = (
                    adapters.with_columns(rows, columns.positions_of(columns.sorted_names)),
                    columns.sorted_names,
                )
        lacking = ""
        if rows.shape[0] == 0 and not empty:
            lacking = "rows"
        elif rows.shape[1] == 0 and not self.texts:
            lacking = "columns"
        if lacking:
            what = f"The data of {who}"
            if self.source:
                what += f", {self.source},"
            raise DataError(f"{what} has no {lacking}. Leave it out.")
        return replace(self, values=rows, names=names, beside={}, parts=())

    @functools.cached_property
    def heading(self) -> Heading:
        """The heading of the columns, which a client sends to the server."""
        if self.names is None:
            return Heading(self.shape[1])
        return ColumnNames(self.names, self.source or "the rows").heading

    def without(self, columns: Collection[str]) -> Table:
        """Return the table without these columns."""
        if not {*columns} & {*self.columns}:
            return self
        rest = tuple(name for name in self.names or () if name not in columns)
        words = {name: bad for name, bad in self.words.items() if name not in columns}
        return replace(self.pick(rest) if self.names else self, words=words)

    def with_ids(self, ids: str | None) -> Self:
        """Return the table with the label column of this name as the ids of its rows, or unchanged for None."""
        if ids is None:
            return self
        beside = dict(self.beside)
        parts = tuple(part.with_ids(ids) for part in self.parts)
        return replace(self, ids=tuple(beside.pop(ids).tolist()), beside=beside, parts=parts)

    def with_words(self, columns: Collection[str]) -> Table:
        """Return the table with these label columns as columns of words that can be coded."""
        if absent := [name for name in columns if name not in self.beside]:
            raise ConfigError(
                f"{option('categorical')} names {enumeration(absent)}, but the data has no such column. Name the "
                "columns in the file.",
                setting="categorical",
            )
        beside = {name: cells for name, cells in self.beside.items() if name not in columns}
        texts = {name: self.beside[name] for name in columns}
        changed = replace(self, names=self.names or (), beside=beside, texts=texts)
        return changed._with_parts([part.with_words(columns) for part in self.parts])

    def _with_parts(self, parts: Sequence[Table]) -> Table:
        if not parts:
            return self
        return replace(
            self, values=JoinedRows(tuple(adapters.as_blocks(part.values) for part in parts)), parts=tuple(parts)
        )

    def take(self, rows: Any, site: str = "") -> Table:
        """Return a table of the rows that a slice, an array of indices or a mask selects, as the rows of a site.

        Consecutive rows of a memory-mapped file are not copied.
        """
        rows = _as_slice(rows)
        known = self.ids
        if known and isinstance(rows, slice):
            known = ids.Ids(known[rows])
        elif known:  # An object array keeps the ids as Python strings.
            known = ids.Ids(np.array(known, dtype=object)[rows])
        texts = {name: np.asarray(cells, dtype=object)[rows] for name, cells in self.texts.items()}
        beside = {name: np.asarray(cells)[rows] for name, cells in self.beside.items()}
        origin = self.origin and self.origin.of_rows(rows)
        return replace(
            self,
            values=_rows_of(self.rows, rows),
            source=(origin and origin.file) or self.source,
            site=site or self.site,
            origin=origin,
            ids=known,
            texts=texts,
            beside=beside,
            parts=(),
        )

    def bare(self) -> Any:
        """Return the array of rows if nothing else is known about them, else the table.

        A table with names, a site, texts, ids or an origin is returned unchanged.
        """
        if self.names or self.site or self.texts or self.origin is not None or self.ids is not None:
            return self
        return self.rows

    def quiet(self) -> Table:
        """Return the table without the cells, labels and file paths that must not appear in a message."""
        if not (self.words or self.source or self.origin or self.texts or self.beside):
            return self
        words = {
            name: bad if has_unusable_name(name, bad) else f"text in column {name}" for name, bad in self.words.items()
        }
        return replace(self, words=words, source="", origin=None, texts={}, beside={})

    def place(self, row: int) -> str:
        """Describe the place of a row, for messages."""
        if self.origin is not None:
            return self.origin.place_of_row(row)
        if self.source:
            return f"row {row} of {self.source} (from 0 on)"
        return f"row {row} (from 0 on)"

    @property
    def headerless(self) -> tuple[str, ...]:
        """The names of the files whose first line was taken for a row because it holds only numbers."""
        if self.origin is None:
            return ()
        return self.origin.headerless

    def whole(self, who: str = "the rows") -> Table:
        """Return the table itself if all of its columns hold numbers, or else raise a DataError."""
        if self.words:
            raise unusable_columns_error(self.source or self.site or who, self.words, file=bool(self.source))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of rows and columns."""
        return tuple(np.shape(self.values))

    @property
    def ndim(self) -> int:
        """The number of dimensions of the rows, which is 2 for a proper table."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        found: np.dtype[Any] = self.values.dtype
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Table:
        """Return a table of the rows that a slice, an array of indices or a mask selects."""
        return self.take(rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the rows as an array. Raise a DataError if some columns hold no numbers."""
        self.whole()
        if copy:
            return np.array(self.rows, dtype=dtype)
        return np.asarray(self.rows, dtype=dtype)


def cells(
    adata: Any,
    *,
    layer: str | None = None,
    use_highly_variable: bool = False,
    normalize: float | None = None,
    log: bool = False,
) -> Table:
    """Wrap an AnnData object, so that simulate, fit and transform accept its cells as rows.

    The names of genes become the names of the columns, the names of cells become the ids of the rows, and the columns
    of obs become label columns. Each site normalizes its cells without the other sites, because a cell is normalized
    independently of all others. This works like normalize_total and log1p of scanpy.

    Parameters
    ----------
    adata : AnnData
        The AnnData object, in memory or backed by a file.
    layer : str or None, default=None
        The layer with the counts. By default, X is used.
    use_highly_variable : bool, default=False
        Whether to use only the genes that ``adata.var["highly_variable"]`` marks.
    normalize : float or None, default=None
        The sum over all genes to which the counts of each cell are scaled, such as 1e4. By default, counts are not
        scaled.
    log : bool, default=False
        Whether each entry x is replaced by log(1 + x), after `normalize`.

    Returns
    -------
    Table
        The rows, which are sparse if the matrix of ``adata`` is sparse.

    Raises
    ------
    DataError
        If the AnnData object lacks the matrix, if two genes have the same name, or if counts to normalize are negative.

    Examples
    --------
    >>> import anndata, numpy as np
    >>> from flower_pca import cells, simulate
    >>> rng = np.random.default_rng(0)
    >>> labs = [anndata.AnnData(rng.poisson(2.0, (60, 8)).astype(float)) for _ in range(3)]
    >>> result = simulate("krylov", [cells(lab, normalize=1e4, log=True) for lab in labs], n_components=2)
    >>> result.transform(cells(labs[0], normalize=1e4, log=True)).shape
    (60, 2)
    """
    if not annotated.is_annotated(adata):
        raise DataError(
            f"cells takes an AnnData object, but got {shown(adata)}. For a file, write "
            "flower_pca.data.sources.table(\"h5ad(path='cells.h5ad', normalize=1e4, log=True)\")."
        )
    checks.choice("use_highly_variable", use_highly_variable, (True, False))
    who = "these cells"
    table = Table(**annotated.fields_of(adata, who, layer=layer, normalize=normalize, log=log))
    if not use_highly_variable:
        return table
    marks = np.asarray(adata.var[annotated.MARKS]) if annotated.MARKS in adata.var.columns else None
    return table.pick(annotated.highly_variable_genes(table.names or (), marks, f"The AnnData object of {who}"))


def with_variants_of_all_sites(tables: Sequence[Table]) -> list[Table]:
    """Return the tables with complete names of the variants of which a site knows only one allele.

    The entries of a column count the first allele of its new name. See `variants.complete_names`.
    """
    if not all(table.names for table in tables) or len({table.names for table in tables}) == 1:
        return list(tables)
    found = variants.complete_names([table.names or () for table in tables])
    return [_with_names_of_variants(table, some) if some else table for table, some in zip(tables, found, strict=True)]


def _with_names_of_variants(table: Table, found: Mapping[int, tuple[str, bool]]) -> Table:
    """Return the table with these names at these positions, and with counts of the other allele where they differ.

    In an array in memory, all values of such a column must be 0 or NaN, because nobody has the allele that they count.
    Other values are no counts, or stand for missing values, so such a column keeps its name.
    """
    if isinstance(table.values, np.ndarray):
        zero = table.values.dtype.kind in "iuf"
        found = {j: pair for j, pair in found.items() if zero and not np.nan_to_num(table.values[:, j]).any()}
    names = [*(table.names or ())]
    for j, (name, _) in found.items():
        names[j] = name
    turned = np.array([j for j, (_, other) in found.items() if other], dtype=int)
    values = table.values
    if hasattr(values, "count_other_allele"):
        values = values.count_other_allele(turned)
    elif isinstance(values, np.ndarray):
        values = values.copy()
        values[:, turned] = 2 - values[:, turned]
    else:
        return table
    return replace(table, values=values, names=tuple(names))


def _as_slice(rows: Any) -> Any:
    """Return indices of consecutive rows as a slice, which selects rows without a copy. Return others unchanged."""
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iu":
        return rows
    if len(rows) == 0:
        return slice(0)
    first, last = int(rows[0]), int(rows[-1])
    if first >= 0 and last - first + 1 == len(rows) and np.all(np.diff(rows) == 1):
        return slice(first, last + 1)
    return rows


def _rows_of(values: Any, rows: Any) -> Any:
    """Return the rows that a slice, an array of indices or a mask selects."""
    if adapters.is_stored(values):
        if isinstance(rows, slice):
            return adapters.rows_in_any_order(adapters.as_blocks(values), np.arange(*rows.indices(len(values))))
        return adapters.rows_in_any_order(adapters.as_blocks(values), np.arange(len(values))[rows])
    if hasattr(values, "tocsr"):
        return values.tocsr()[rows]
    return np.asanyarray(values)[rows]


def _columns_of(values: Any, positions: Array) -> Any:
    """Return the columns at these positions, in this order. Rows that are contiguous in memory stay contiguous."""
    if adapters.is_stored(values):
        rows = adapters.as_blocks(values)
        return with_sparse_columns(rows, positions) if is_sparse(rows) else adapters.with_columns(rows, positions)
    if hasattr(values, "tocsr"):
        return values.tocsr()[:, positions]
    return adapters.columns_of_block(np.asarray(values), positions)
