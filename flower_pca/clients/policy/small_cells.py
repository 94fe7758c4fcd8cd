"""Columns, and combinations of columns, that reveal few rows.

The products with a column are sums over the rows weighted by it. If few rows have a value there, or a
value that differs from most, the sum covers only these few rows and reveals them, for example the
carrier of a rare code. The same holds for a combination of columns. If 60 people have diabetes, and 59
of them take insulin, then the difference of the two columns is one person.

    single columns        of any kind: fewer than `least` rows have a value, or another value than most
    pairs                 of columns with few different values: fewer than `least` rows lie off a line
    larger combinations   of such columns, with small whole coefficients, for example a + b - c. The search
                          does not find all of them, and next to none in few rows: see `_larger`

All columns of the table are checked, whichever columns a run asks for. Otherwise, two runs with one
column of a pair each would reveal the person by the difference of their answers. In a pair or a larger
combination, the column whose name comes last is therefore excluded from all runs. All others may be
used.

If the server may choose what replaces missing values (`missing="mean"` of the node), it learns the sum
of the rows with a missing value in a column. The missing values of a column then count as a column of
codes.

Combinations of columns with many different values are not checked, such as a total that is the sum of
its parts in all rows except one. Tables with more than `MOST` columns of codes, such as genotypes, are
not checked for combinations at all.
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
_RUNS: Final = 32  # choices of columns of which the newest are kept
_CHUNK: Final = 64  # columns that are searched at a time
# With more columns of codes, combinations are not searched: 500 rows take 3 s, 20,000 rows take 120 s.
MOST: Final = 2000
CODES: Final = 12  # A column with at most so many different values counts as a column of codes.
_SAMPLE: Final = 256  # Rows that are enough to tell most columns of measurements from codes.
_STARTS: Final = 64  # Rows, or groups of equal rows, from which a search for combinations starts.
_STEPS: Final = 20
LARGEST: Final = 12  # the largest coefficient in a combination
_UNITS: Final = 4  # the most that the smallest coefficient may be
_EXACT: Final = 1e-9  # the rounding error of a share of 1
_TOO_MANY: Final = (
    "This node has %d columns of codes. With more than %d, it does not look at combinations of columns, so a server "
    "can learn the row of a person who differs from all others in a combination. Leave columns out of the file, or use "
    "noise."
)
_FEW_ROWS: Final = (
    "This node has %d columns of codes and only %d rows. In so few rows it finds few combinations of more than two "
    "columns, so a server can learn the row of a person who differs from all others in a combination. Leave columns "
    "out of the file, or use noise."
)
_NEAR: Final = 1e-6  # the rounding error of a whole coefficient


def find(data: LocalData, rules: Rules, kept: Path | None = None) -> dict[str, str]:
    """Return the columns that no run may use because they reveal fewer than min_rows rows, except allowed ones.

    Each column comes with its combination in words. A column that is rare by itself is its own combination.

    Parameters
    ----------
    data : LocalData
        The rows, with all columns that a run may ask for.
    rules : Rules
        The node's rules.
    kept : path or None, default=None
        The file that stores the result, because a SuperNode starts a process for each message.
    """
    if rules.allow_sparse_columns is True or rules.min_rows < 2:
        return {}
    allowed = frozenset(_exceptions(rules))

    def look() -> dict[str, str]:
        names = labels.column_names(data.names, data.d)
        found = {names[i]: names[i] for i in _rare(data, rules.min_rows) if names[i] not in allowed}
        kinds = [_code_columns(data), _with_gaps(data) if rules.missing == "mean" else []]
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
        words = [*(names[i] for i in codes), *(f"the gaps of {names[i]}" for i in gaps)]
        for some in _combined(data, codes, gaps, rules.min_rows):
            found[names[places[some[-1]]]] = " with ".join(words[i] for i in some)
        return found

    def remembered() -> dict[str, str]:
        if kept is None:
            return look()
        about = [__version__, f"{data.fingerprint():x}", data.n, data.d, data.names, rules.min_rows, sorted(allowed)]
        key = hashlib.blake2b(json.dumps(about).encode(), digest_size=16).hexdigest()
        return _kept(kept, key, look)

    return data.measured.once(("small cells", rules.min_rows, allowed), remembered)


def _kept(path: Path, key: str, look: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return what this process or an earlier one has found in rows with this digest."""
    try:
        found = dict(files.read(path, _KIND, private=True)[0]["found"])
    except (FileNotFoundError, FlowerPCAError, KeyError, TypeError, ValueError):
        # If the file is damaged, the search is repeated.
        found = {}
    if key not in found:
        found[key] = look()
        files.make_folder(path.parent)
        files.write(path, _KIND, {"found": dict([*found.items()][-_RUNS:])}, {}, private=True)
    return dict(found[key])


def check(
    data: LocalData, wanted: LocalData, rules: Rules, kept: Path | None = None, *, barred: Collection[str] = ()
) -> None:
    """Refuse columns that reveal fewer than min_rows rows. Only the operator learns their names.

    Parameters
    ----------
    data : LocalData
        The rows.
    wanted : LocalData
        The columns of them that a run asks for.
    rules : Rules
        The node's rules.
    kept : path or None, default=None
        See `find`.
    barred : collection of str, default=()
        The columns that revealed few rows before others were added to these.
    """
    allowed = _exceptions(rules)
    found = {name: name for name in barred if name not in allowed} | find(data, rules, kept)
    if not {*(wanted.names or ())} <= {*(data.names or ())}:
        found = found | find(wanted, rules, kept)  # These are levels of a column of words that other nodes have.
    names = labels.column_names(wanted.names, wanted.d)
    if refused := [name for name in names if name in found]:
        logging.getLogger("flwr").warning(
            "Fewer than min_rows=%d rows of this node have a value, or another than most, in %s. So no run gets %s. "
            "Leave one of the columns out of the file, merge columns, or name one of them in allow_sparse_columns if "
            "its carriers may become known.",
            rules.min_rows,
            enumeration(found[name] for name in refused),
            enumeration(refused),
        )
        raise RefusalError(
            "A column of this node reveals fewer rows than its min_rows. The node's log names the column. Run "
            "without it, or ask the node's operator."
        )


def _exceptions(rules: Rules) -> Collection[str]:
    given = rules.allow_sparse_columns
    if isinstance(given, str):
        return [name.strip() for name in given.split(",")]
    if isinstance(given, Collection):
        return given
    return ()


def _columns(data: LocalData, places: list[int]) -> Array:
    """Return some columns of all rows."""
    # All columns at once would copy rows that may be memory-mapped.
    return np.concatenate([block[:, places] for block in data.blocks()])


def _rare(data: LocalData, least: int) -> list[int]:
    """Return the positions of the columns that reveal this few rows."""
    found = []
    for start in range(0, data.d, _CHUNK):
        part = _columns(data, [*range(start, min(start + _CHUNK, data.d))])
        found += [start + j for j, column in enumerate(part.T) if _tells_few(column, least)]
    return found


def _tells_few(column: Array, least: int) -> bool:
    there = column[column == column]  # This removes NaN.
    if len(there) < least:
        return len(there) > 0
    # A value that all but fewer than `least` rows have is the most frequent one among any 2 least - 1 rows.
    values, counts = np.unique(there[: 2 * least - 1], return_counts=True)
    often = values[np.argmax(counts)]
    if len(there) >= 2 * least - 1 and counts.max() < least:
        return False
    others = int(np.count_nonzero(there != often))
    # If no value repeats, none is the most frequent.
    return 0 < others < least and len(there) - others > 1


def _code_columns(data: LocalData) -> list[int]:
    """Return the positions of the columns with few different values, but more than one."""
    found = []
    for start in range(0, data.d, _CHUNK):
        part = _columns(data, [*range(start, min(start + _CHUNK, data.d))])
        for j, column in enumerate(part.T):
            if len(np.unique(column[:_SAMPLE])) <= CODES and 1 < len(np.unique(column)) <= CODES:
                found.append(start + j)
    return found


def has_few_gaps(data: LocalData, least: int) -> bool:
    """Return whether a column has missing values in some rows, but in fewer than this number.

    If the server chooses what replaces missing values, it learns the sum of these rows.
    """
    gaps = data.n - np.asarray(data.observed().seen)
    return bool(np.any((gaps > 0) & (gaps < least)))


def has_gaps_in_codes(*tables: LocalData) -> bool:
    """Return whether a column with few different values in one of these tables has missing values in any of them.

    The node's own mean stands for a missing value, and it moves with the rows that are added. If a column has one
    value in all added rows but one, in which it is missing, the difference of both versions is that row.
    """
    gaps = sorted({place for data in tables for place in _with_gaps(data)})
    for data in tables:
        for column in _columns(data, gaps).T:
            if 0 < len(np.unique(column[~np.isnan(column)])) <= CODES:
                return True
    return False


def _with_gaps(data: LocalData) -> list[int]:
    """Return the positions of the columns with missing values."""
    if not data.missing:
        return []
    seen = np.broadcast_to(np.asarray(data.observed().seen), data.d)
    return np.flatnonzero(seen < data.n).tolist()


def _combined(data: LocalData, places: list[int], gaps: list[int], least: int) -> Iterator[tuple[int, ...]]:
    """Find combinations with one value in all but few rows: first of coded columns, then with missing values."""
    if len(places) + len(gaps) < 2:
        return
    codes = _columns(data, places).astype(np.float64)
    # Missing values all get the same replacement.
    there = np.isnan(codes)
    codes[there] = np.broadcast_to(np.nanmean(codes, axis=0), codes.shape)[there]
    codes = np.column_stack([codes, np.isnan(_columns(data, gaps))])
    last: set[int] = set()
    left = [*range(codes.shape[1])]
    missing = np.column_stack([there, np.zeros((len(codes), len(gaps)), dtype=bool)])
    more: list[tuple[int, ...]] = [*_pairs(codes, least, missing)]
    # Without its last column, a combination may leave another one among the remaining columns.
    while True:
        for some in more:
            if not last & set(some):
                last.add(some[-1])
                yield some
        left = [i for i in left if i not in last]
        more = [tuple(left[i] for i in some) for some in _larger(codes[:, left], least)]
        if not more:
            return


def _pairs(codes: Array, least: int, missing: Array | None = None) -> Iterator[tuple[int, int]]:
    """Find pairs of columns whose values lie on a line in all but few rows.

    Rows in which both values are missing do not count. Their replacements lie near the line, or on it if the
    server chooses them.
    """
    inverse = [np.unique(column, return_inverse=True) for column in codes.T]
    for i, j in np.argwhere(np.triu(_alike(inverse, least), 1)).tolist():
        (first, a), (others, b) = inverse[i], inverse[j]
        both = slice(None) if missing is None else ~(missing[:, i] & missing[:, j])
        cells, counts = np.unique((a * len(others) + b)[both], return_counts=True)
        points = np.column_stack([first[cells // len(others)], others[cells % len(others)]])
        if _off_a_line(points, counts, least):
            yield i, j


def _alike(inverse: list[tuple[Array, Array]], least: int) -> Array:
    """Return which columns can lie on a line with each other in all but few rows.

    The rows with the most frequent value of one column must then coincide, except for few rows, with
    those of some value of the other column. If only few rows have a column's most frequent value, the
    column passes with every other one.
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


def _off_a_line(points: Array, counts: Array, least: int) -> bool:
    """Return whether some rows, but fewer than this number, lie off a line through two of the cells."""
    # Groups of at least this size are on the line.
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


def _larger(codes: Array, least: int) -> list[tuple[int, ...]]:
    """Find combinations of more columns, by vectors of their span that are 0 in all but few rows.

    Such a vector of length 1 has all of its squares in these rows, so one of them has a leverage of at
    least 1 / least. From this row on, two steps alternate: take the rows with the largest squares,
    fewer than `least`, and then the vector of the span with most of its squares there.

    This misses a combination if other vectors lie nearer. With nearly as many columns as rows, there are
    some that are 0 in all but few rows and whose coefficients are no whole numbers: of 300 rows, planted
    combinations of 200 columns were found, and of 250 columns were not.
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
                used = _small_whole(solve_triangular(R, u), columns)
                if len(used) > 1:
                    found.add(used)
                break
    return sorted(found)


def _small_whole(z: Array, columns: Array) -> tuple[int, ...]:
    """Return a combination's columns, if its coefficients are in small whole-number proportions.

    The coefficient of the constant, at position 0, may have any value. There may be many columns: if all levels
    of a column of words are among them, a combination of two levels is also one of all others.
    """
    z = np.where(columns == 0, 0.0, z)
    used = np.flatnonzero(np.abs(z) > _NEAR * np.abs(z).max())
    ratios = z[used] / np.abs(z[used]).min()
    for smallest in range(1, _UNITS + 1):
        whole = np.rint(smallest * ratios)
        if np.abs(whole).max() <= LARGEST and np.abs(smallest * ratios - whole).max() <= smallest * _NEAR:
            return tuple(sorted(int(columns[i]) - 1 for i in used))
    return ()
