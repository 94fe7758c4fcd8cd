"""Look up the sources of rows. Each source is one function, with an entry in `SOURCES`.

A source is named by a spec string such as "npz(path='patients.npz', key='X')", or by a bare path. For a bare path, the
ending of the file name determines the source. A folder is a source with one file per client.

Examples
--------
>>> import numpy as np
>>> from flower_pca.data import sources
>>> np.savez("patients.npz", X=np.eye(3))
>>> len(sources.table("npz(path='patients.npz', key='X')"))
3
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base import spec as specs
from flower_pca.base.errors import ConfigError, DataError, marked_private
from flower_pca.base.options import advice_to_read_apart, option
from flower_pca.base.shown import shown
from flower_pca.data.delimited import csv
from flower_pca.data.files import arrow, mtx, npy, npz, npz_or_sparse, parquet, sparse, svmlight
from flower_pca.data.gaps import GapCodes, with_gaps_as_nan, with_gaps_in_words
from flower_pca.data.plink import bed
from flower_pca.data.reading import (
    file_ending,
    file_stem,
    names_matching,
    no_rows_error,
    not_found_error,
    reading_file,
    require_matches,
    tuple_of_names,
)
from flower_pca.data.sets import arithmetic, geometric, hugging_face, sklearn, synthetic
from flower_pca.data.spreadsheets import excel
from flower_pca.data.stores import h5, h5ad, zarr
from flower_pca.data.surveys import sas, spss, stata
from flower_pca.names.columns import Heading, enumeration, position_of_majority, unusable_columns_error, without_cell
from flower_pca.names.levels import source_of
from flower_pca.names.table import Table, with_variants_of_all_sites

_TEXT: Final = (".csv", ".tsv", ".tab", ".txt")
# A number as text. Codes with a leading zero, such as 007, are words.
_NUMBER: Final = re.compile(r"[-+]?(?!0\d)(\d+([.,]\d*)?|[.,]\d+)(e[-+]?\d+)?|true|false", re.IGNORECASE)
ENDINGS: Final[dict[str, Callable[..., Table]]] = {
    ".npy": npy,
    ".npz": npz_or_sparse,
    **{text + packed: csv for packed in ("", ".gz", ".zip") for text in _TEXT},
    ".parquet": parquet,
    **dict.fromkeys((".arrow", ".feather"), arrow),
    **dict.fromkeys((".h5", ".hdf5"), h5),
    ".zarr": zarr,
    ".h5ad": h5ad,
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), excel),
    **dict.fromkeys((".sav", ".zsav"), spss),
    ".dta": stata,
    **dict.fromkeys((".sas7bdat", ".xpt"), sas),
    **dict.fromkeys((".mtx", ".mtx.gz"), mtx),
    ".bed": bed,
    ".svm": svmlight,
    ".svmlight": svmlight,
    ".libsvm": svmlight,
}


def folder(
    *,
    path: str,
    pattern: str = "*",
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    sep: str | Mapping[str, str] | None = None,
    header: bool | Mapping[str, bool] | None = None,
    decimal: str | Mapping[str, str] | None = None,
    thousands: str | Mapping[str, str] | None = None,
    encoding: str | Mapping[str, str] | None = None,
    gaps: Any = None,
    sheet: str | int | Mapping[str, str | int] | None = None,
    drop: Sequence[str] = (),
    without: Sequence[str] = (),
    layer: str | None = None,
    use_highly_variable: bool | None = None,
    normalize: float | None = None,
    log: bool | None = None,
    people: Mapping[str, str] | None = None,
    variants: str | None = None,
    ambiguous: bool | None = None,
) -> Table:
    """Read a folder with one file per client. The label column "file" tells from which file each row comes.

    The files may be of different kinds. If an option for text files is not given, it is detected for each file, so
    German and English files may be mixed. An option applies to all files, or to the files in a mapping such as
    encoding={"trier": "latin-1"}. If a file may hold a table but cannot be read, an error is raised unless `without`
    names the file.

    Parameters
    ----------
    path : str
        The folder.
    pattern : str, default="*"
        A pattern that selects files, for example "*.csv".
    columns : sequence of str or None, default=None
        Names of the columns to use, for files with named columns.
    beside : sequence of str, default=()
        Names of columns that are not features, for files with label columns.
    sep : str, mapping or None, default=None
        The separator between cells of csv files.
    header : bool, mapping or None, default=None
        Whether the first line of csv files holds the column names: see `csv`.
    decimal : str, mapping or None, default=None
        The decimal mark of csv files: "." or ",".
    thousands : str, mapping or None, default=None
        The thousands separator of csv files.
    encoding : str, mapping or None, default=None
        The encoding of csv files.
    gaps : default=None
        Values that stand for a missing value in all files: see `csv`.
    sheet : str, int, mapping or None, default=None
        The sheet of spreadsheets: see `excel`.
    drop : sequence of str, default=()
        Names of columns to leave out, or patterns such as "lab_*". These columns may hold anything.
    without : sequence of str, default=()
        Names of files to leave out, without their endings, or patterns.
    layer : str or None, default=None
        The layer of .h5ad files to read: see `h5ad`.
    use_highly_variable : bool or None, default=None
        Whether to use only the genes that each .h5ad file marks as highly variable.
    normalize : float or None, default=None
        The sum to which each cell of .h5ad files is scaled.
    log : bool or None, default=None
        Whether each entry x of .h5ad files is replaced by log(1 + x), after `normalize`.
    people : mapping or None, default=None
        Files that list the people to use, by the name of the .bed file: {"ulm": "unrelated-ulm.txt"}. See `bed`.
    variants : str or None, default=None
        A file that lists the variants to use from all .bed files: see `bed`.
    ambiguous : bool or None, default=None
        Whether to keep A/T and C/G variants of .bed files.
    """
    if people is not None and not isinstance(people, Mapping):
        raise ConfigError(
            f"people is {shown(people)}, but each file of a folder has its own people. Write a list for each file: "
            "people={'ulm': 'unrelated-ulm.txt'}.",
            setting="people",
            value=people,
        )
    given: dict[str, Any] = {
        "sep": sep,
        "header": header,
        "decimal": decimal,
        "thousands": thousands,
        "encoding": encoding,
        "gaps": gaps,
        "sheet": sheet,
        "layer": layer,
        "use_highly_variable": use_highly_variable,
        "normalize": normalize,
        "log": log,
        "people": people,
        "variants": variants,
        "ambiguous": ambiguous,
        "columns": columns or None,
        "beside": [name for name in tuple_of_names("beside", beside) if name != "file"] or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    place, files = files_of(path, pattern, tuple_of_names("without", without))
    warn_of_subfolders(place, pattern)
    _require_files(place, files, options)
    tables = _read_tables(files, options, tuple_of_names("drop", drop))
    tables = with_variants_of_all_sites(tables)
    usual = position_of_usual_table(tables)
    first = tables[usual]
    # If the files order their columns differently, all tables take the sorted order.
    if first.names and any(table.names != first.names for table in tables):
        first = first.pick(tuple(sorted(first.names)))
    tables = [with_columns_of(first, table, files[usual], file) for table, file in zip(tables, files, strict=True)]
    names = _names_of_sites(files)
    sizes = [len(table) for table in tables]
    shared = [name for name in tables[0].beside if all(name in table.beside for table in tables)]
    labels_of_rows = {name: np.concatenate([table.beside[name] for table in tables]) for name in shared}
    beside_rows = {**labels_of_rows, "file": np.repeat(np.array(names), sizes)}
    sites = [replace(table, site=name) for table, name in zip(tables, names, strict=True)]
    return Table.together(sites, beside_rows, source=str(place))


def parties(
    spec: str,
    *,
    ids: str | None = None,
    clients: int | None = None,
    drop: Sequence[str] = (),
    without: Sequence[str] = (),
    gaps: Any = None,
) -> list[Any]:
    """Return the tables of clients that hold different columns of the same people.

    Parameters
    ----------
    spec : str
        A folder with one file per client. For a trial, it may also be a single table. Its columns are then split into
        consecutive groups, one per client.
    ids : str or None, default=None
        The name of the column of row identifiers, if there is one.
    clients : int or None, default=None
        The number of clients. By default, it is the number of files in the folder, or 2 for a single table.
    drop : sequence of str, default=()
        Names of columns to leave out, or patterns.
    without : sequence of str, default=()
        Names of files to leave out, or patterns.
    gaps : default=None
        Values that stand for a missing value: see `delimited.csv`.
    """
    with marked_private():
        load = _loader_of(spec)
        if load.func is folder:
            given = {name: value for name, value in load.keywords.items() if value is not None}
            path, pattern = given.pop("path"), given.pop("pattern", "*")
            if gaps is not None:
                given["gaps"] = gaps
            drop = (*given.pop("drop", ()), *drop)
            without = (*given.pop("without", ()), *without)
            found = _parties_of_folder(path, pattern, ids, given, drop, without)
            if clients is not None and clients != len(found):
                raise ConfigError(
                    f"The folder has {len(found)} files, so it has {len(found)} clients, not {clients}. Leave the "
                    "number of clients out."
                )
            return found
        if ids is not None:
            if "ids" not in inspect.signature(load).parameters:
                raise ConfigError(
                    f"{spec} has no column of row identifiers, because {option('ids')} works with csv, parquet and npz "
                    f"files only. Leave {option('ids')} out.",
                    setting="ids",
                    value=ids,
                )
            load = partial(load, ids=ids)
        whole = _load(load, spec, (), None, drop, gaps).whole()
        d = int(whole.rows.shape[1])
        checks.integer("The number of clients", clients or 2, least=1, most=d)
        parts = np.array_split(np.arange(d), clients or 2)
        if whole.names:
            return [whole.pick(whole.names[part[0] : part[-1] + 1]) for part in parts]
        return [replace(whole, values=whole.rows[:, part[0] : part[-1] + 1], parts=()).bare() for part in parts]


DRAWN: Final = (synthetic, geometric, arithmetic)  # These sources draw random rows from a seed and read no file.

_OTHERS: Final = {  # endings of files that cannot be read, with advice for each
    **dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".tar"), "Unpack it first."),
    **dict.fromkeys((".pgen", ".bgen", ".vcf", ".bcf", ".vcf.gz"), "Write it as .bed first: plink2 --make-bed."),
    ".dat": "Rename it to .txt if it is a table of text.",
}
# Files with these endings cannot be read but may hold the table of a site.
_UNREAD: Final = (*_OTHERS, ".orc", ".rds", ".rdata", ".sqlite", ".db", ".json", ".jsonl", ".avro", ".mat", ".por")
# Files with these names hold no table. Windows keeps Thumbs.db in folders with pictures.
_WORDS: Final = ("readme", "license", "licence", "notes", "thumbs")

_OF_FILES: Final = (npy, npz, sparse, csv, parquet, arrow, h5, zarr, h5ad, excel, spss, stata, sas, mtx, bed, svmlight)
SOURCES: Final[dict[str, Callable[..., Table]]] = {
    source.__name__: source for source in (*_OF_FILES, folder, sklearn, hugging_face, *DRAWN)
}


def make(
    spec: str,
    needed: Sequence[str] | None = None,
    *,
    words: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
) -> Any:
    """Read the rows of a source.

    The result is a two-dimensional array, which may be dense, memory-mapped or sparse. If the source has column names,
    text columns or row identifiers, the result is a `Table`.

    Parameters
    ----------
    spec : str
        A spec string or a bare path.
    needed : sequence of str or None, default=None
        Names of the columns that must be usable. Other unusable columns are ignored: see `table_for_columns`.
    words : sequence of str, default=()
        Names of columns to keep as text, so that numeric columns can be made from them.
    ids : str or None, default=None
        The name of the column of row identifiers.
    gaps : default=None
        Values that stand for a missing value: [".", -999], or one list per column.
    """
    if isinstance(spec, str):
        checks.require_path("the data", spec)
    if ids is not None:
        found = table(spec, words=words, beside=(ids,), gaps=gaps).with_ids(ids)
    elif words:
        found = table(spec, words=words, gaps=gaps)
    else:
        found = table_for_columns(spec, needed, gaps=gaps)
    if found.names or found.is_text or found.texts or found.ids is not None:
        return found.joined()
    return found.rows


def is_random(spec: str) -> bool:
    """Return whether a source draws its rows from a seed instead of reading a file."""
    return _loader_of(spec).func in DRAWN


def largest_drawn_size(spec: str) -> int:
    """Return the size of the largest array of random numbers that a spec draws, or an upper bound for it."""
    known = inspect.signature(_loader_of(spec)).parameters
    given = [known[name].default if name in known else 1 for name in ("n", "d", "clients")]
    # A size that is not a whole number counts as 0 here. The source itself refuses it later.
    rows, columns, sites = (size if isinstance(size, int) else 0 for size in given)
    return max(rows * columns, sites * columns**2)


def table(
    spec: str,
    *,
    beside: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    without: Sequence[str] = (),
    words: Sequence[str] = (),
    gaps: Any = None,
) -> Table:
    """Read the rows of a source, with their column names, labels, identifiers and origin.

    Parameters
    ----------
    spec : str
        A spec string or a bare path.
    beside : sequence of str, default=()
        Names of label columns, in addition to the label columns in the spec.
    columns : sequence of str or None, default=None
        Names of the columns to use, unless the spec names columns.
    drop : sequence of str, default=()
        Names of columns to leave out, or patterns such as "lab_*". These columns may hold anything.
    without : sequence of str, default=()
        Names of files of a folder to leave out, or patterns.
    words : sequence of str, default=()
        Names of columns to keep as text, so that numeric columns can be made from them: see `names.levels`.
    gaps : default=None
        Values that stand for a missing value, unless the spec lists such values: see `delimited.csv`.
    """
    if words:
        plain = columns and [name for name in columns if name not in words]
        whole = table(spec, beside=(*beside, *words), columns=plain, drop=drop, without=without, gaps=gaps)
        return with_gaps_in_words(whole.with_words(tuple(words)), _gaps_of(spec, gaps))
    with marked_private():
        load = _loader_of(spec)
        if load.func is folder:
            drop = (*load.keywords.get("drop", ()), *drop)
            without = (*load.keywords.get("without", ()), *without)
            load, drop = partial(load, drop=drop, without=without), ()
        return _load(load, spec, tuple(beside), columns, drop, gaps)


def words_among(
    spec: str, covariates: Sequence[str], *, drop: Sequence[str] = (), without: Sequence[str] = (), gaps: Any = None
) -> tuple[str, ...]:
    """Return the covariates that hold words. The source is read, because only its cells show this.

    Numbers with a missing value among them are no words, although labels with a missing value are read as text.
    """
    if not covariates:
        return ()
    found = table(spec, beside=covariates, drop=drop, without=without, gaps=gaps).beside
    codes = GapCodes.from_option(_gaps_of(spec, gaps))

    def holds_words(name: str) -> bool:
        cells = np.asarray(found[name])
        if cells.dtype.kind in "fiub":
            return False
        texts, own = [str(cell).strip() for cell in cells.tolist() if not labels.is_missing(cell)], codes.words(name)
        there = [text for text in texts if text not in own]
        if not there or not all(map(_NUMBER.fullmatch, there)):
            return True
        try:  # A parquet file may hold numbers as text, which cannot be read as numbers.
            table(spec, columns=(name,), drop=drop, without=without, gaps=gaps)
        except DataError:
            return True
        return False

    return tuple(filter(holds_words, covariates))


def _gaps_of(spec: str, gaps: Any) -> Any:
    """Return what stands for a missing value: what the spec says, or else `gaps`."""
    own = _loader_of(spec).keywords.get("gaps")
    return gaps if own is None else own


def table_for_columns(
    spec: str, needed: Sequence[str] | None, *, beside: Sequence[str] = (), gaps: Any = None
) -> Table:
    """Read the rows of a source. Only the needed columns must hold numbers at all sites.

    If another column is unusable, it is left out without an error, so rows for an earlier run can be read again.
    """
    if needed is None:
        return table(spec, beside=beside, gaps=gaps)
    names = tuple(map(str, needed))
    # A needed column such as ward=surgery is made from the column of words ward.
    words = tuple(dict.fromkeys(filter(None, map(source_of, names))))
    if words:
        # If the file does not have these columns of words, it is read by the full names below.
        with suppress(ConfigError):
            return _all_columns_or(spec, [name for name in names if not source_of(name)], beside, gaps, words)
    return _all_columns_or(spec, names, beside, gaps)


def _all_columns_or(
    spec: str, names: Sequence[str], beside: Sequence[str], gaps: Any, words: Sequence[str] = ()
) -> Table:
    """Read all columns of a table, or only the columns in `names` if other columns are unusable."""
    try:
        return table(spec, beside=beside, words=words, gaps=gaps)
    except DataError:
        if not names:
            raise
        return table(spec, beside=beside, words=words, gaps=gaps, columns=names)


def _load(
    load: partial[Table],
    spec: str,
    beside: tuple[str, ...],
    columns: Sequence[str] | None,
    drop: Sequence[str],
    gaps: Any = None,
) -> Table:
    known = inspect.signature(load).parameters
    if gaps is not None and "gaps" in known and known["gaps"].default is None:
        load, gaps = partial(load, gaps=gaps), None
    if columns is not None and "columns" in known and known["columns"].default is None:
        load = partial(load, columns=tuple(columns))
    if beside and "beside" in known:
        already = known["beside"].default
        if isinstance(already, list | tuple | None):
            already = already or ()
            load = partial(load, beside=(*already, *(name for name in beside if name not in already)))
    loaded = with_gaps_as_nan(load(), gaps)
    if loaded.ndim != 2:
        if fields := np.dtype(loaded.dtype).names:
            raise DataError(
                f"The data of {spec} are records with {labels.count(len(fields), 'field')}, but a table needs numbers "
                "in rows and columns. Save each field as a column."
            )
        raise DataError(
            f"The data of {spec} has {labels.count(loaded.ndim, 'dimension')}, but a table needs 2 (rows and columns). "
            "If it is a vector x, save x[:, None] instead."
        )
    require_matches(DROPPED, loaded.columns, drop)
    loaded = loaded.without(names_matching(loaded.columns, drop))
    if columns is None:
        return loaded
    return loaded.pick(tuple(columns))


def _loader_of(spec: str) -> partial[Table]:
    if isinstance(spec, str):
        end = file_ending(spec)
        if spec not in SOURCES and Path(spec).expanduser().is_dir() and end != ".zarr":
            return partial(folder, path=spec)
        if end in ENDINGS:
            return partial(ENDINGS[end], path=spec)
        if end in _OTHERS:
            raise ConfigError(f"flower_pca cannot read {spec}: it ends in {end}. {_OTHERS[end]}", setting="path")
        if "(" not in spec and spec not in SOURCES and not Path(spec).expanduser().exists():
            raise not_found_error(spec)
        if "(" not in spec and spec not in SOURCES:
            with reading_file(spec, "a table") as file:  # The reader refuses a pipe or a device.
                raise ConfigError(
                    f"The name of {file} does not show which kind of file it is. Rename it to end in {_endings()}."
                )
    rule = f"a name, a folder, a path that ends in {_endings()}, or a spec such as \"npz(path='x.npz', key='X')\""
    return partial(specs.bind(spec, SOURCES, what="The data source", rule=rule))


DROPPED: Final = "column to leave out"


def _parties_of_folder(
    path: str, pattern: str, ids: str | None, options: Mapping[str, Any], drop: Sequence[str], without: Sequence[str]
) -> list[Table]:
    """Return one table per file of a folder in which each file holds different columns of the same people."""
    place, files = files_of(path, pattern, without)
    warn_of_subfolders(place, pattern)
    wanted = dict(options) if ids is None else {"ids": ids, **options}
    pairs = zip(_read_tables(files, wanted, drop, people=ids is None), _names_of_sites(files), strict=True)
    return [replace(table, site=site) for table, site in pairs]


def files_of(path: str, pattern: str, without: Sequence[str] = ()) -> tuple[Path, list[Path]]:
    """Return the folder and its data files, except for the files in `without`, sorted by `natural_sort_key`."""
    with reading_file(path, "a folder with one file per client") as place:
        if not place.is_dir():
            raise (NotADirectoryError if place.exists() else FileNotFoundError)(str(place))
        found = [f for f in place.glob(str(pattern)) if file_ending(f) in ENDINGS or not f.is_dir()]
        tables = sorted(filter(is_table, found), key=natural_sort_key)
    files = [file for file in tables if not _is_no_file(file)]
    others = [*_unreadable_files(found), *filter(_is_no_file, tables)]
    pairs = zip(files, _names_of_sites(files), strict=True)
    names = {file: (file_stem(file), file.stem, file.name, site) for file, site in pairs}
    unread = {file: (file_stem(file), file.stem, file.name) for file in others}
    require_matches("site to leave out", chain.from_iterable([*names.values(), *unread.values()]), without)
    _require_no_unread([file for file, known in unread.items() if not names_matching(known, without)], place)
    files = [file for file, known in names.items() if not names_matching(known, without)]
    if not files:
        remedy, below = "Check the path and the pattern.", f"*/{pattern}"
        if any(file_ending(file) in ENDINGS for file in place.glob(below)):
            remedy = f"To read its subfolders, write folder(path={path!r}, pattern={below!r}), a client for each file."
        raise DataError(
            f"The folder {place} has no files that match {pattern!r} and end in {_endings()}. {remedy}",
            place=str(place),
        )
    return place, files


def warn_of_subfolders(folder: Path, pattern: str) -> None:
    """Warn of subfolders with tables, because the tables are not read. Subfolders with a result are left out."""
    if pattern != "*":
        return
    below = (file for file in folder.glob("*/*") if is_table(file) and _can_see_file(file))
    holding = {file.parent for file in below if not file.parent.name.startswith(".") and file.parent.suffix != ".zarr"}
    if names := sorted(place.name for place in holding if not (place / "result.npz").exists()):
        warnings.warn(
            f"{folder} has {'a subfolder' if len(names) == 1 else 'subfolders'} with tables, which are not read: "
            f"{enumeration(names)}. Move the files of sites into {folder}, or read each file of the subfolders as a "
            f"site with folder(path={str(folder)!r}, pattern='*/*').",
            stacklevel=2,
        )


def _can_see_file(path: Path) -> bool:
    """Return whether a path is a file. False if the folder of the path may not be opened."""
    with suppress(PermissionError):
        return path.is_file()
    return False


def _unreadable_files(files: Sequence[Path]) -> list[Path]:
    """Return the files that may be tables by their ending, but cannot be read."""
    # Skip hidden and temporary files, such as the lock file of an open spreadsheet.
    seen = [file for file in files if not file.name.startswith((".", "~")) and file_ending(file) not in ENDINGS]
    return [file for file in seen if file.suffix.lower() in _UNREAD and file.stem.lower() not in _WORDS]


def _is_no_file(path: Path) -> bool:
    """Return whether a path is a pipe, a device or a folder. A broken link is none of these and fails when read."""
    return path.exists() and not path.is_file() and file_ending(path) != ".zarr"


def _require_no_unread(unread: Sequence[Path], folder: Path) -> None:
    """Raise a DataError if the folder has files that may be sites but cannot be read, so that no site is lost."""
    if names := sorted(path.name for path in filter(_is_no_file, unread)):
        raise DataError(
            f"{folder} has {_possible_sites(names, 'an entry', 'entries')}, but only regular files can be read: "
            f"{enumeration(names)}. Replace pipes, devices and folders by files, or leave them out with "
            f"{option('without', names)}."
        )
    if names := sorted(file.name for file in unread):
        raise DataError(
            f"{folder} has {_possible_sites(names, 'a file', 'files')}, but flower_pca cannot read this kind of file: "
            f"{enumeration(names)}. {_advice_for_unread(unread)} leave {'it' if len(names) == 1 else 'them'} out with "
            f"{option('without', names)}."
        )


def _advice_for_unread(unread: Sequence[Path]) -> str:
    """Return the beginning of the advice for files that cannot be read, up to the "or" before another way."""
    special = {_OTHERS.get(file_ending(file), _OTHERS.get(file.suffix.lower(), "")) for file in unread}
    if len(special) == 1 and len(unread) == 1 and (advice := special.pop()):
        return f"{advice} Or"
    return f"Convert {'it' if len(unread) == 1 else 'them'} to csv or parquet, or"


def _possible_sites(names: Sequence[str], singular: str, plural: str) -> str:
    """Return the phrase for one or several files that may be sites, for a message."""
    return f"{singular} that may be a site" if len(names) == 1 else f"{plural} that may be sites"


def _endings() -> str:
    """List the endings of readable files for a message. The compressed forms of text files are mentioned once."""
    plain = (end for end in ENDINGS if not end.endswith((".gz", ".zip")))
    return f"{', '.join(plain)}; text files also with .gz or .zip at the end"


def _read_tables(
    files: Sequence[Path], options: Mapping[str, Any], drop: Sequence[str], *, people: bool = False
) -> list[Table]:
    """Read the tables of these files, without the columns in `drop`.

    If `people` is true, an error about a column of text suggests using this column as row identifiers.
    """
    tables = [_read_table(file, options) for file in files]
    require_matches(DROPPED, [name for table in tables for name in table.columns], drop)
    tables = [table.without(names_matching(table.columns, drop)) for table in tables]
    for table, file in zip(tables, files, strict=True):
        if table.words and people:
            first = next(iter(table.words))
            raise DataError(
                f"The columns of {file} must hold numbers, but there is "
                f"{enumeration(map(without_cell, table.words.values()))}. If "
                f"column {first} identifies people, use {option('ids', first)}. Otherwise, "
                f"{advice_to_read_apart(list(table.words))}.",
                place=str(file),
            )
        if table.words:
            raise unusable_columns_error(file, table.words)
    for table, file in zip(tables, files, strict=True):
        # A site may have no rows yet, but its file must name its columns.
        if table.ndim == 2 and not len(table) and (not table.columns or not any(map(len, tables))):
            raise no_rows_error(file)
    return tables


def _read_table(file: Path, options: Mapping[str, Any]) -> Table:
    """Read the table of a file, with the options that apply to this kind of file."""
    reader = ENDINGS[file_ending(file)]
    known = inspect.signature(reader).parameters
    of_file = {name: _option_for_file(value, file) if name in _BY_FILE else value for name, value in options.items()}
    given = {name: value for name, value in of_file.items() if value is not None}
    gaps = None if "gaps" in known else given.pop("gaps", None)
    for name in given:
        # Options of text files and of spreadsheets are ignored for other files in the folder.
        if name not in known and name not in (*_OF_TEXT, "sheet"):
            raise ConfigError(
                f"{file} cannot be read with {name}={shown(given[name])}. Leave {name} out, or use "
                f"{next((kind for kind, names in _OF_KIND.items() if name in names), 'files with named columns')}.",
                setting=name,
                value=given[name],
                place=str(file),
            )
    return with_gaps_as_nan(
        reader(path=str(file), **{name: value for name, value in given.items() if name in known}), gaps
    )


_OF_KIND: Final = {
    ".h5ad files": ("layer", "use_highly_variable", "normalize", "log"),
    ".bed files": ("people", "variants", "ambiguous"),
}
_OF_TEXT: Final = ("sep", "header", "decimal", "thousands", "encoding")
_BY_FILE: Final = (*_OF_TEXT, "sheet", "people")


def _option_for_file(value: Any, file: Path) -> Any:
    """Return an option's value for a file. If a mapping has no value for the file, return None."""
    if not isinstance(value, Mapping):
        return value
    return next((value[name] for name in _mapping_keys(file) if name in value), None)


def _mapping_keys(file: Path) -> tuple[str, str, str]:
    """Return the keys under which a mapping may hold a file's value: its name, its name without ending, its folder."""
    return file.name, file_stem(file), file.parent.name


def _require_files(folder: Path, files: Sequence[Path], options: Mapping[str, Any]) -> None:
    """Raise a ConfigError if an option has a value for a file that the folder does not have."""
    known = [name for file in files for name in _mapping_keys(file)]
    for setting, value in options.items():
        if not isinstance(value, Mapping) or setting not in _BY_FILE:
            continue
        if absent := [name for name in value if name not in known]:
            raise ConfigError(
                f"{folder} has no file {shown(absent[0])}, for which {setting} has a value. "
                f"{checks.did_you_mean(absent[0], known, f'Its files are {enumeration(map(file_stem, files))}.')}",
                setting=setting,
                value=value,
            )


def _names_of_sites(files: Sequence[Path]) -> list[str]:
    """Return a name for each client: the name of its file, or of its folder if several files have the same name."""
    parents = [file.parent.name for file in files]
    for names in ([file_stem(file) for file in files], [file.name for file in files], parents):
        if len(set(names)) == len(names):
            return names
    return [f"{parent}/{file.name}" for parent, file in zip(parents, files, strict=True)]


def position_of_usual_table(tables: Sequence[Table]) -> int:
    """Return the position of the first table that has the most common set of columns."""
    headings = (Heading.of_names(table.names or (), table.shape[-1]) for table in tables)
    return position_of_majority(headings)


def with_columns_of(first: Table, table: Table, first_name: Path, table_name: Path) -> Table:
    """Return a table with its columns in the order of the first table. Raise a DataError if the columns differ."""
    if table.names == first.names and table.shape[-1] == first.shape[-1]:
        return table
    if table.names and first.names and sorted(table.names) == sorted(first.names):
        return table.pick(first.names)
    heading = Heading.of_names(table.names or (), table.shape[-1])
    expected = Heading.of_names(first.names or (), first.shape[-1])
    raise heading.mismatch(str(table_name), expected, first_name.name).error(DataError)


def is_table(file: Path) -> bool:
    """Return whether a file is a table, according to its name."""
    is_text = file_ending(file) == ".txt"
    return (
        file_ending(file) in ENDINGS
        and not file.name.startswith((".", "~"))
        and not (is_text and file.stem.lower() in _WORDS)
    )


def natural_sort_key(file: Path) -> list[Any]:
    """Return a sort key that puts client2 before client10. Files with the same name are sorted by folder."""
    return [
        # Python cannot compare a number with a word, so 0 marks numbers and 1 marks words.
        [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in re.split(r"(\d+)", part)]
        for part in (file.name, *file.parent.parts)
    ]


class Arrivals:
    """A stream that reads each file of a folder as a batch, in the order of the names. Files may arrive during the run.

    A file is read once its name ends in one of `ENDINGS`. Write it under another name and then rename it, so that it is
    never read half-written. Names must increase, like dates or numbers with leading zeros, because a file is never read
    if its name comes before the name of the newest batch.

    Parameters
    ----------
    path : str or path
        The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser().absolute()
        if not self._path.is_dir():
            raise DataError(
                f"There is no folder {self._path} to read a stream from. Create it first. Files may arrive later.",
                place=str(self._path),
            )

    def after(self, cursor: bytes) -> tuple[Any, bytes, int]:
        """Return the rows of the first file after the cursor, the name of this file, and the number of later files.

        If there is no such file, return None, the same cursor and 0.
        """
        tables = filter(is_table, self._path.iterdir())
        names = sorted(path.name.encode() for path in tables)
        waiting = [name for name in names if name > cursor]
        if not waiting:
            return None, cursor, 0
        newest = waiting[0]
        return make(str(self._path / newest.decode())), newest, len(waiting) - 1
