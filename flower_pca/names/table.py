"""`Table`: the rows of a site or a source, with all that is known about them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean, cleaned, count
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.blocks import adapters
from flower_pca.blocks.adapters import Joined
from flower_pca.blocks.compressed import picked_sparse
from flower_pca.blocks.source import is_sparse
from flower_pca.names import annotated, frames, ids
from flower_pca.names.columns import Columns, Heading, enumeration, is_nameless, no_numbers
from flower_pca.names.origin import Origin


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with all that is known about them, such as the names of their columns and their site.

    Tables are immutable. Only this class selects, reorders or drops rows and columns.

    Attributes
    ----------
    values
        The rows, n x d: dense, memory-mapped or sparse.
    names : tuple of str or None
        Names of the columns. None if columns are matched by position.
    words : mapping
        Columns that hold no numbers, by name, with a description of what they hold. No run can use them.
    source : str
        Where the rows come from, for example a file, for messages.
    site : str
        The name of the site, or "".
    origin : Origin or None
        The file and the place of each row, for messages. None if the rows are not from files.
    ids : tuple of str or None
        The id of each row, if known, for runs whose clients hold different columns of the same people.
    texts : mapping
        The cells of columns of words that can be coded, by name: see `names.levels`.
    coded : tuple of str
        The columns of words that have been coded.
    made : frozenset of str
        The names of the columns that were made from columns of words.
    beside : mapping
        Columns that are not features, by name: labels, or the client of each row.
    parts : tuple of Table
        The tables of the clients, if the source knows its clients. Their rows, one table after the other, are the rows
        of this table.

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
            if all(isinstance(name, str) for name in names):
                names = cleaned(names)
            else:
                names = tuple(clean(name) if isinstance(name, str) else name for name in names)
            object.__setattr__(self, "names", names)
        if self.site:
            object.__setattr__(self, "site", clean(self.site))
        if self.words:
            object.__setattr__(self, "words", {clean(name): what for name, what in self.words.items()})
        if self.texts:
            object.__setattr__(self, "texts", {clean(name): cells for name, cells in self.texts.items()})
        if self.ids is not None:
            object.__setattr__(self, "ids", ids.texts(self.ids))
            if len(self.ids) != len(self):
                raise DataError(
                    f"There {'is' if len(self.ids) == 1 else 'are'} {count(len(self.ids), 'id')} for "
                    f"{count(len(self), 'row')}. Give one id for each row."
                )

    @classmethod
    def of(cls, X: Any, *, who: str = "the rows", site: str = "") -> Table:
        """Return rows of any kind as a table. A data frame has names of columns, an array has none."""
        if isinstance(X, cls):
            if not site:
                return X
            return replace(X, site=site)
        # This is a lazy frame of polars.
        if hasattr(X, "collect_schema") and hasattr(X, "collect"):
            X = X.collect()
        # This is a frame of pandas, polars or a similar library.
        if hasattr(X, "columns") and hasattr(X, "to_numpy"):
            return cls(**frames.read(X, who), site=site)
        if annotated.is_annotated(X):
            return cls(**annotated.fields_of(X, who), site=site)
        if adapters.is_stored(X):
            stored = adapters.of(X, who)
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
        """Return the table of all rows of a file. `ids` names the column beside them that says whose they are."""
        known = origin or Origin.of(file, sum(rows.shape[:1]))
        table = cls(rows, names or None, words or {}, str(file), origin=known, beside=beside or {})
        return table.with_ids(ids)

    @classmethod
    def together(cls, parts: Sequence[Table], beside: Mapping[str, Array], *, source: str = "") -> Table:
        """Join the tables of several clients into one, with columns beside all their rows."""
        rows = Joined(tuple(adapters.of(part.values) for part in parts))
        stretches = [stretch for part in parts if part.origin for stretch in part.origin.stretches]
        origin = Origin(tuple(stretches)) if stretches else None
        return cls(rows, parts[0].names, source=source, origin=origin, beside=beside, parts=tuple(parts))

    @property
    def rows(self) -> Any:
        """All rows as one array, dense, memory-mapped or sparse."""
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
        """Return the table with all rows in one array, without the division into clients."""
        return replace(self, values=self.rows, parts=())

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the clients, if the source knows them."""
        return tuple(part.site for part in self.parts if part.site)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns except labels, with or without numbers."""
        return (*(self.names or ()), *self.words)

    @property
    def is_text(self) -> bool:
        """Whether the rows are lines of text files."""
        return self.origin is not None and any(part.line is not None for part in self.origin.stretches)

    def pick(self, names: Sequence[str], who: str = "the data") -> Table:
        """Return the table with only these columns, in this order."""
        wanted = tuple(names)
        if wanted == self.names:
            return replace(self, words={}) if self.words else self
        if not self.names:
            raise ConfigError(
                f"{option('columns')} selects columns by name ({enumeration(wanted)}), but the data has no column "
                "names. Add a line of names to the file.",
                setting="columns",
            )
        places = self.places(wanted, who)
        changed = replace(self, names=wanted, words={})
        if self.parts:
            return changed._with_parts([part.pick(wanted, who) for part in self.parts])
        return replace(changed, values=_columns_of(self.values, places))

    def places(self, names: Sequence[str], who: str = "the data") -> Array:
        """Return the positions of these columns among all numeric columns."""
        return Columns(self.names or (), self.source or who).places(names, self.words)

    def stored(self, who: str, *, empty: bool = False) -> Table:
        """Return the table as a client holds it: rows as blocks, and named columns in sorted order.

        Raises
        ------
        DataError
            If there is no row, unless it may be `empty`, or no column, or if not all columns have a name of their own.
        """
        rows, names = adapters.of(self.values, who), self.names
        if names is not None:
            columns = Columns(names, self.source or who)
            if rows.shape[1] != len(names):
                raise DataError(
                    f"There are {count(rows.shape[1], 'column')} but {count(len(names), 'name')} at {columns.who}. "
                    "Name each column."
                )
            if names != columns.in_order:
                rows, names = adapters.picked(rows, columns.places(columns.in_order)), columns.in_order
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
        """Return the heading of these columns, to be sent to a server."""
        if self.names is None:
            return Heading(self.shape[1])
        return Columns(self.names, self.source or "the rows").heading

    def without(self, columns: Collection[str]) -> Table:
        """Return the table without these columns."""
        if not {*columns} & {*self.columns}:
            return self
        rest = tuple(name for name in self.names or () if name not in columns)
        words = {name: bad for name, bad in self.words.items() if name not in columns}
        return replace(self.pick(rest) if self.names else self, words=words)

    def with_ids(self, ids: str | None) -> Self:
        """Return the table with the column of this name as the ids of its rows."""
        if ids is None:
            return self
        beside = dict(self.beside)
        parts = tuple(part.with_ids(ids) for part in self.parts)
        return replace(self, ids=tuple(beside.pop(ids).tolist()), beside=beside, parts=parts)

    def with_words(self, columns: Collection[str]) -> Table:
        """Return the table with these columns of labels as words that can be coded."""
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
        return replace(self, values=Joined(tuple(adapters.of(part.values) for part in parts)), parts=tuple(parts))

    def take(self, rows: Any, site: str = "") -> Table:
        """Return some of the rows as the rows of a site: a slice, indices, or a mask.

        Consecutive rows stay in a memory-mapped file.
        """
        # An object array keeps ids as Python texts.
        known = self.ids and tuple(np.array(self.ids, dtype=object)[rows])
        texts = {name: np.asarray(cells, dtype=object)[rows] for name, cells in self.texts.items()}
        beside = {name: np.asarray(cells)[rows] for name, cells in self.beside.items()}
        origin = self.origin and self.origin.some(rows)
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
        """Return the rows alone if a client needs nothing else of the table, else the table."""
        if self.names or self.site or self.texts or self.origin is not None or self.ids is not None:
            return self
        return self.rows

    def quiet(self) -> Table:
        """Return the table without what no message may say: words in the columns, and a file's path."""
        if not (self.words or self.source or self.origin or self.texts or self.beside):
            return self
        words = {name: bad if is_nameless(name, bad) else f"text in column {name}" for name, bad in self.words.items()}
        return replace(self, words=words, source="", origin=None, texts={}, beside={})

    def place(self, row: int) -> str:
        """Describe where a row is."""
        if self.origin is not None:
            return self.origin.place(row)
        if self.source:
            return f"row {row} of {self.source} (from 0 on)"
        return f"row {row} (from 0 on)"

    @property
    def headerless(self) -> tuple[str, ...]:
        """The files whose first line counts as a row although nobody said so."""
        if self.origin is None:
            return ()
        return self.origin.headerless

    def whole(self, who: str = "the rows") -> Table:
        """Return the table, and refuse it if some columns hold no numbers."""
        if self.words:
            raise no_numbers(self.source or self.site or who, self.words, file=bool(self.source))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of rows and columns."""
        return tuple(np.shape(self.values))

    @property
    def ndim(self) -> int:
        """2 if the rows are a table."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        found: np.dtype[Any] = self.values.dtype
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Table:
        """Return some of the rows: a slice, indices, or a mask."""
        return self.take(rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the rows alone, by position, if all columns are numeric."""
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
    """Read the cells of an AnnData object as rows that simulate, fit and transform take.

    The names of genes become the names of the columns, the names of cells the ids of the rows, and the columns of obs
    go beside. Each site normalizes alone, because normalizing needs one cell at a time. It works like normalize_total
    and log1p of scanpy.

    Parameters
    ----------
    adata : AnnData
        The AnnData object, in memory or backed by a file.
    layer : str or None, default=None
        The layer with the counts. By default, X.
    use_highly_variable : bool, default=False
        Whether to take only the genes that ``adata.var["highly_variable"]`` marks.
    normalize : float or None, default=None
        The sum over all genes to which the counts of each cell are scaled, such as 1e4. None leaves them unchanged.
    log : bool, default=False
        Whether each entry x then becomes log(1 + x).

    Returns
    -------
    Table
        The rows, sparse if those of ``adata`` are.

    Raises
    ------
    DataError
        If there is no such matrix, or two genes share a name, or counts to normalize are negative.

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
    return table.pick(annotated.marked(table.names or (), marks, f"The AnnData object of {who}"))


def _rows_of(values: Any, rows: Any) -> Any:
    """Return some of the rows: a slice, indices, or a mask."""
    if adapters.is_stored(values):
        return adapters.take(adapters.of(values), np.arange(len(values))[rows])
    if hasattr(values, "tocsr"):
        return values.tocsr()[rows]
    known = np.asanyarray(values)
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "iu":
        if len(rows) == 0:
            return known[:0]
        first, last = int(rows[0]), int(rows[-1])
        if last - first + 1 == len(rows) and np.all(np.diff(rows) == 1):
            return known[first : last + 1]
    return known[rows]


def _columns_of(values: Any, places: Array) -> Any:
    """Return the columns at these positions, in this order. Contiguous rows stay contiguous."""
    if adapters.is_stored(values):
        rows = adapters.of(values)
        return picked_sparse(rows, places) if is_sparse(rows) else adapters.picked(rows, places)
    if hasattr(values, "tocsr"):
        return values.tocsr()[:, places]
    return adapters.pick(np.asarray(values), places)
