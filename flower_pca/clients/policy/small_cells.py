"""Find columns, and combinations of columns, that reveal few rows.

The products with a column are weighted sums over the rows, with the column's values as weights. If only few
rows have a value in the column, or a value that differs from most, the sum covers only these few rows and
reveals them, for example the carrier of a rare code. The same holds for a combination of columns. If 60 people
have diabetes, and 59 of them take insulin, then the difference of the two columns is one person.

    single columns        Fewer than `min_rows` rows have a value, or a value that differs from most rows.
                          This check covers columns of any kind.
    pairs                 The values of two columns with few different values lie on a line, except in fewer
                          than `min_rows` rows.
    larger combinations   A combination of such columns with small whole coefficients, for example a + b - c,
                          is constant except in fewer than `min_rows` rows. The search does not find all
                          combinations, and in tables with few rows it finds hardly any: see `_larger_combinations`.

All columns of the table are checked, whichever columns a run asks for. Otherwise, two runs could each use one
column of a pair, and the difference of their answers would reveal the person. In a pair or a larger
combination, the column whose name comes last is therefore excluded from all runs. All other columns may be
used.

If the server may choose what replaces missing values (the node's rule `missing="mean"`), it learns the sum of
the rows with a missing value in a column. In this case, the check adds a column of codes for each column with
missing values: 1 if the value is missing, else 0.

Combinations of columns with many different values are not checked, such as a total that is the sum of its
parts in all rows except one. Tables with more than `MOST` columns of codes, such as genotypes, are not checked
for combinations at all.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from flower_pca.base import files, labels
from flower_pca.base.errors import FlowerPCAError
from flower_pca.base.linalg import Array
from flower_pca.base.version import __version__
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.names.columns import enumeration
from flower_pca.rows.local import LocalData

_KIND: Final = "small cells of a node's columns"
_RUNS: Final = 32  # the maximum number of results in the file; older results are removed
_CHUNK: Final = 64  # the number of columns that are searched at a time
# With more columns of codes, the node does not search for combinations. With this number of columns, the search
# takes 3 s for 500 rows and 120 s for 20,000 rows.
MOST: Final = 2000
CODES: Final = 12  # the maximum number of different values in a column of codes
_SAMPLE: Final = 256  # Columns with too many values in this number of first rows are not searched further.
_STARTS: Final = 64  # the maximum number of rows from which a search for combinations starts
_STEPS: Final = 20  # the maximum number of steps of a search
LARGEST: Final = 12  # the largest coefficient in a combination
_UNITS: Final = 4  # the largest value that the smallest coefficient of a combination may have
_EXACT: Final = 1e-9  # the relative tolerance for rounding errors
_TOO_MANY: Final = (
    "This node has %d columns of codes. With more than %d, it does not check combinations of columns, so a server "
    "can learn the row of a person who differs from all others in a combination. Leave columns out of the file, or use "
    "noise."
)
_FEW_ROWS: Final = (
    "This node has %d columns of codes and only %d rows. In so few rows it finds few combinations of more than two "
    "columns, so a server can learn the row of a person who differs from all others in a combination. Leave columns "
    "out of the file, or use noise."
)
_NEAR: Final = 1e-6  # the tolerance for rounding errors in whole coefficients


def revealing_columns(data: LocalData, rules: Rules, cache_path: Path | None = None) -> dict[str, str]:
    """Return the columns that no run may use, because they reveal fewer than min_rows rows and no rule allows them.

    Each column is mapped to the names in its combination, as text. If a column reveals few rows alone, this text is
    its own name.

    Parameters
    ----------
    data : LocalData
        The rows, with all columns that a run may ask for.
    rules : Rules
        The node's rules.
    cache_path : path or None, default=None
        The file in which the result is stored, or None to search again. A SuperNode starts a new process for each
        message, which would otherwise repeat the search.
    """
    if rules.allow_sparse_columns is True or rules.min_rows < 2:
        return {}
    allowed = frozenset(_allowed_columns(rules))

    def look() -> dict[str, str]:
        names = labels.column_names(data.names, data.d)
        found = {names[i]: names[i] for i in _rare_columns(data, rules.min_rows) if names[i] not in allowed}
        kinds = [_code_columns(data), _columns_with_gaps(data) if rules.missing == "mean" else []]
        codes, gaps = ([i for i in kind if names[i] not in allowed | found.keys()] for kind in kinds)
        if data.names is not None:
            codes.sort(key=data.names.__getitem__)
            gaps.sort(key=data.names.__getitem__)
        places = [*codes, *gaps]
        if len(places) > MOST:
            logging.getLogger("flwr").warning(_TOO_MANY, len(places), MOST)
            return found
        if 2 * len(places) > data.n:
            logging.getLogger("flwr").warning(_FEW_ROWS, len(places), data.n)
        words = [*(names[i] for i in codes), *(f"the missing values of {names[i]}" for i in gaps)]
        for some in _combinations(data, codes, gaps, rules.min_rows):
            found[names[places[some[-1]]]] = " with ".join(words[i] for i in some)
        return found

    def remembered() -> dict[str, str]:
        if cache_path is None:
            return look()
        about = [__version__, f"{data.fingerprint():x}", data.n, data.d, data.names, rules.min_rows, sorted(allowed)]
        key = hashlib.blake2b(json.dumps(about).encode(), digest_size=16).hexdigest()
        return _cached_result(cache_path, key, look)

    return data.measured.cached(("small cells", rules.min_rows, allowed), remembered)


def _cached_result(path: Path, key: str, look: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the result that the file has for this digest. If it has none, call `look` and store its result."""
    try:
        found = dict(files.read(path, _KIND, private=True)[0]["found"])
    except (FileNotFoundError, FlowerPCAError, KeyError, TypeError, ValueError):
        # If there is no file, or if it is damaged, the search is repeated.
        found = {}
    if key not in found:
        found[key] = look()
        files.make_folder(path.parent)
        files.write(path, _KIND, {"found": dict([*found.items()][-_RUNS:])}, {}, private=True)
    return dict(found[key])


def refuse_revealing(
    data: LocalData, wanted: LocalData, rules: Rules, cache_path: Path | None = None, *, barred: Collection[str] = ()
) -> None:
    """Refuse a run that asks for columns that reveal fewer than min_rows rows. Only the node's log names them.

    Parameters
    ----------
    data : LocalData
        The rows.
    wanted : LocalData
        The same rows, with only the columns that a run asks for.
    rules : Rules
        The node's rules.
    cache_path : path or None, default=None
        See `revealing_columns`.
    barred : collection of str, default=()
        The columns that revealed few rows in an earlier version of the rows, to which people have been added since.
    """
    allowed = _allowed_columns(rules)
    found = {name: name for name in barred if name not in allowed} | revealing_columns(data, rules, cache_path)
    if wanted is not data and not {*(wanted.names or ())} <= {*(data.names or ())}:
        # The run asks for columns that the node's table does not have, such as levels that occur only at other nodes.
        found = found | revealing_columns(wanted, rules, cache_path)
    if not found:
        return
    names = labels.column_names(wanted.names, wanted.d)
    if refused := [name for name in names if name in found]:
        logging.getLogger("flwr").warning(
            "%s: fewer than min_rows=%d rows of this node have a value, or differ from the other rows. Therefore no "
            "run gets %s. Leave out or merge a column that is named here, or name it in allow_sparse_columns if the "
            "server may learn about the people in these rows.",
            enumeration(found[name] for name in refused),
            rules.min_rows,
            enumeration(refused),
        )
        raise RefusalError(
            "A column of this node reveals fewer rows than its min_rows. The node's log names the column. Run "
            "without this column, or ask the node's operator."
        )


def _allowed_columns(rules: Rules) -> Collection[str]:
    given = rules.allow_sparse_columns
    if isinstance(given, str):
        return [name.strip() for name in given.split(",")]
    if isinstance(given, Collection):
        return given
    return ()


def _columns_at(data: LocalData, positions: list[int]) -> Array:
    """Return the columns at these positions, for all rows."""
    # The rows are read block by block, because they may be memory-mapped and a full copy may not fit in memory.
    return np.concatenate([block[:, positions] for block in data.blocks()])


def _rare_columns(data: LocalData, least: int) -> list[int]:
    """Return the positions of the columns that each reveal fewer than `least` rows."""
    found = []
    for start in range(0, data.d, _CHUNK):
        part = _columns_at(data, [*range(start, min(start + _CHUNK, data.d))])
        found += [start + j for j, column in enumerate(part.T) if _reveals_few(column, least)]
    return found


def _reveals_few(column: Array, least: int) -> bool:
    there = column[column == column]  # This removes NaN.
    if len(there) < least:
        return len(there) > 0
    # If all rows except fewer than `least` have the same value, it is the most frequent value of any 2 least - 1 rows.
    values, counts = np.unique(there[: 2 * least - 1], return_counts=True)
    often = values[np.argmax(counts)]
    if len(there) >= 2 * least - 1 and counts.max() < least:
        return False
    others = int(np.count_nonzero(there != often))
    # The column reveals rows only if its most frequent value occurs more than once.
    return 0 < others < least and len(there) - others > 1


def _code_columns(data: LocalData) -> list[int]:
    """Return the positions of the columns with 2 to `CODES` different values."""
    found = []
    for start in range(0, data.d, _CHUNK):
        part = _columns_at(data, [*range(start, min(start + _CHUNK, data.d))])
        for j, column in enumerate(part.T):
            if len(np.unique(column[:_SAMPLE])) <= CODES and 1 < len(np.unique(column)) <= CODES:
                found.append(start + j)
    return found


def has_few_gaps(data: LocalData, least: int) -> bool:
    """Return whether any column has missing values in at least one row, but in fewer than `least` rows.

    If the server chooses what replaces missing values, it learns the sum of these rows.
    """
    gaps = data.n - np.asarray(data.observed_moments().value_counts)
    return bool(np.any((gaps > 0) & (gaps < least)))


def has_gaps_in_codes(*tables: LocalData) -> bool:
    """Return whether a column with few different values in one of these tables has missing values in any of them.

    The node replaces missing values by its own mean, which changes when rows are added. If a column has the same
    value in all added rows except one, and this one row has no value, the difference of the versions reveals this row.
    """
    gaps = sorted({place for data in tables for place in _columns_with_gaps(data)})
    for data in tables:
        for column in _columns_at(data, gaps).T:
            if 0 < len(np.unique(column[~np.isnan(column)])) <= CODES:
                return True
    return False


def _columns_with_gaps(data: LocalData) -> list[int]:
    """Return the positions of the columns with missing values."""
    if not data.missing:
        return []
    seen = np.broadcast_to(np.asarray(data.observed_moments().value_counts), data.d)
    return np.flatnonzero(seen < data.n).tolist()


def _combinations(data: LocalData, positions: list[int], gaps: list[int], least: int) -> Iterator[tuple[int, ...]]:
    """Yield combinations of columns that have the same value in all but fewer than `least` rows.

    The positions in a combination count `positions` first, and then the missing values of the columns in `gaps`.
    """
    if len(positions) + len(gaps) < 2:
        return
    codes = _columns_at(data, positions).astype(np.float64)
    # All missing values of a column get the same replacement, the column's mean.
    there = np.isnan(codes)
    codes[there] = np.broadcast_to(np.nanmean(codes, axis=0), codes.shape)[there]
    codes = np.column_stack([codes, np.isnan(_columns_at(data, gaps))])
    last: set[int] = set()
    left = [*range(codes.shape[1])]
    missing = np.column_stack([there, np.zeros((len(codes), len(gaps)), dtype=bool)])
    more: list[tuple[int, ...]] = [*_collinear_pairs(codes, least, missing)]
    # After the last column of each combination is removed, the remaining columns may still contain a combination, so
    # the search is repeated.
    while True:
        for some in more:
            if not last & set(some):
                last.add(some[-1])
                yield some
        left = [i for i in left if i not in last]
        more = [tuple(left[i] for i in some) for some in _larger_combinations(codes[:, left], least)]
        if not more:
            return


def _collinear_pairs(codes: Array, least: int, missing: Array | None = None) -> Iterator[tuple[int, int]]:
    """Yield pairs of columns whose values lie on a line in all but fewer than `least` rows.

    Rows in which both values are missing do not count, because their replacements lie near the line, or on the line if
    the server chooses them.
    """
    inverse = [np.unique(column, return_inverse=True) for column in codes.T]
    for i, j in np.argwhere(np.triu(_may_lie_on_lines(inverse, least), 1)).tolist():
        (first, a), (others, b) = inverse[i], inverse[j]
        both = slice(None) if missing is None else ~(missing[:, i] & missing[:, j])
        cells, counts = np.unique((a * len(others) + b)[both], return_counts=True)
        points = np.column_stack([first[cells // len(others)], others[cells % len(others)]])
        if _has_few_off_a_line(points, counts, least):
            yield i, j


def _may_lie_on_lines(inverse: list[tuple[Array, Array]], least: int) -> Array:
    """Return a matrix that is True for pairs of columns whose values may lie on a line, except in few rows.

    If they do, the rows with the most frequent value of the first column are also, except for few rows, the rows with
    some value of the second column. If the most frequent value of a column occurs in fewer than `least` rows, all
    pairs of this column are marked.
    """
    marks = np.column_stack([places == k for values, places in inverse for k in range(len(values))])
    sizes = marks.sum(axis=0)
    starts = np.cumsum([0, *(len(values) for values, _ in inverse)])
    often = np.array([a + np.argmax(sizes[a:b]) for a, b in itertools.pairwise(starts)])
    marks = marks.astype(np.float32)
    differ = sizes[often][:, None] + sizes - 2.0 * np.rint(marks[:, often].T @ marks)
    near = np.minimum.reduceat(differ, starts[:-1], axis=1) < least
    near[sizes[often] < least] = True
    return near


def _has_few_off_a_line(points: Array, counts: Array, least: int) -> bool:
    """Return whether at least one row, but fewer than `least` rows, lies off a line through two of the points.

    `points` are the different pairs of values, and `counts` are their numbers of rows.
    """
    # A point with at least `least` rows must lie on the line.
    large = np.flatnonzero(counts >= least)
    if len(large) >= 2:
        pairs = [(int(large[0]), int(large[1]))]
    elif len(large) == 1:
        pairs = [(int(large[0]), k) for k in range(len(points)) if k != large[0]]
    else:
        pairs = [*itertools.combinations(range(len(points)), 2)]
    for i, j in pairs:
        along = points[j] - points[i]
        off = (points - points[i]) @ np.array([-along[1], along[0]])
        missed = int(counts[np.abs(off) > _EXACT * np.abs(off).max(initial=1.0)].sum())
        if 0 < missed < least:
            return True
    return False


def _larger_combinations(codes: Array, least: int) -> list[tuple[int, ...]]:
    """Return combinations of columns that are constant in all but fewer than `least` rows.

    Such a combination minus its constant is a vector in the span of the columns and 1. The entries of this vector are
    0 in all rows except few.

    If such a vector has length 1, the squares of its entries in these few rows add up to 1, so one of these rows
    has a leverage of at least 1 / least. From each row with such a leverage, the search alternates between two
    steps: it takes the least - 1 rows with the largest squares, and then the vector of length 1 in the span with
    the largest sum of squares in these rows.

    The search can end at another vector, and then misses the combination. With nearly as many columns as rows,
    there are vectors that are 0 in all rows except few, but whose coefficients are not whole numbers. In 300 rows,
    planted combinations were found among 200 columns, but not among 250 columns.
    """
    from scipy.linalg import qr, solve_triangular

    whole = np.column_stack([np.ones(len(codes)), codes])
    _, R, order = qr(np.linalg.qr(whole, mode="r"), mode="economic", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > _EXACT * abs(R[0, 0])))
    R, columns = R[:rank, :rank], order[:rank]
    Q = solve_triangular(R.T, whole[:, columns].T, lower=True).T
    leverage = np.einsum("ij,ij->i", Q, Q)
    starts = np.argsort(-leverage)[:_STARTS]
    found = set()
    for start in starts[leverage[starts] * least >= 1.0 - _EXACT].tolist():
        u = Q[start] / np.sqrt(leverage[start])
        for _ in range(_STEPS):
            few = np.argsort(-((Q @ u) ** 2), kind="stable")[: least - 1]
            _, size, V = np.linalg.svd(Q[few], full_matrices=False)
            u = V[0]
            if size[0] > 1.0 - _EXACT:
                used = _if_small_coefficients(solve_triangular(R, u), columns)
                if len(used) > 1:
                    found.add(used)
                break
    return sorted(found)


def _if_small_coefficients(z: Array, columns: Array) -> tuple[int, ...]:
    """Return a combination's columns if its coefficients are proportional to small whole numbers, else an empty tuple.

    The coefficient of the constant, at position 0, may have any value. The number of columns is not limited, because
    if all levels of a text column are columns, a combination of two levels is also a combination of all other levels.
    """
    z = np.where(columns == 0, 0.0, z)
    used = np.flatnonzero(np.abs(z) > _NEAR * np.abs(z).max())
    ratios = z[used] / np.abs(z[used]).min()
    for smallest in range(1, _UNITS + 1):
        whole = np.rint(smallest * ratios)
        if np.abs(whole).max() <= LARGEST and np.abs(smallest * ratios - whole).max() <= smallest * _NEAR:
            return tuple(sorted(int(columns[i]) - 1 for i in used))
    return ()
