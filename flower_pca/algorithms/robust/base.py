"""Common code of the robust algorithms, which split rows into a low-rank and a sparse part.

`Robust` holds common parameters and adds caveats to the status of a run. `ConsensusRPCA` and `DCFPCA` share the
functions for the first block, for the message that counts entries to find the size of an ordinary entry,
and for the iteration over blocks of rows with their part of V.

A robust run ignores missing values, and hides a few entries to check the result. A hash of the row and
the seed of the run select the hidden entries: two percent of all entries, or a larger share of small
tables. So the selection does not depend on the distribution of rows over clients, on the order of
messages, or on a node's memory. Without the row, nobody can know which of its entries are hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

import numpy as np

from flower_pca.algorithms.robust import sizes
from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.core.algorithm import Iterating, Iterative
from flower_pca.core.kinds import ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

# A share between _LEAST and _MOST_HIDDEN of all entries is hidden, so that about _WANTED entries are hidden at least.
_LEAST, _MOST_HIDDEN, _WANTED = 0.02, 0.1, 100.0
# The hash of a row rounds its entries to multiples of the row's largest entry divided by this number.
_HASH_STEPS: Final = 2.0**20
_HASH_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NONE: Final = np.zeros(0, dtype=np.int64)
_HASH_INCREMENT: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class UnseenEntries:
    """The flat positions of a client's missing and hidden entries, in ascending order."""

    gaps: Array
    hidden: Array
    d: int

    __repr__ = brief

    def in_rows(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the flat positions of missing and of hidden entries in rows `start` to `stop` - 1.

        Positions are counted from the beginning of row `start`.
        """
        first, last = start * self.d, stop * self.d
        return tuple(a[slice(*np.searchsorted(a, (first, last)))] - first for a in (self.gaps, self.hidden))  # type: ignore[return-value]


def hidden_share(n: int, d: int) -> float:
    """Return the share of all entries that is hidden."""
    return min(_MOST_HIDDEN, max(_LEAST, _WANTED / (n * d)))


def unseen_entries(data: LocalData, *, seed: int, share: float) -> UnseenEntries:
    """Return the positions of missing and hidden entries in a client's rows. The result is cached."""

    def find() -> UnseenEntries:
        gaps, hidden = _missing_positions(data), _hidden_positions(data, seed, share)
        return UnseenEntries(gaps, np.setdiff1d(hidden, gaps, assume_unique=True), data.d)

    return data.measured.cached(("unseen", seed, share), find)


def _missing_positions(data: LocalData) -> Array:
    if not data.missing:
        return _NONE
    gaps, start = [], 0
    for block in data.blocks():
        gaps.append(np.flatnonzero(np.isnan(block)) + start * data.d)
        start += len(block)
    return np.concatenate(gaps)


def _hidden_positions(data: LocalData, seed: int, share: float) -> Array:
    if share <= 0.0:
        return _NONE
    d = data.d
    of_column = np.random.PCG64(seed).random_raw(2 * d).reshape(2, d)
    rows, hidden = [], []
    for block in data.blocks():
        known = np.nan_to_num(block.astype(np.float64), nan=0.0)
        size = np.max(np.abs(known), axis=1, keepdims=True)
        shares = known / np.where(size > 0.0, size, 1.0)
        whole = np.rint(shares * _HASH_STEPS).astype(np.int64).view(np.uint64)
        # Multiplication by an odd number modulo 2^64 loses no information.
        rows.append(_mix_bits(whole @ (of_column[0] | np.uint64(1))))
    row = np.concatenate(rows)
    row = _mix_bits(row + _HASH_INCREMENT * _earlier_equal_rows(row))
    limit = np.uint64(int(min(share, _MOST_HIDDEN) * 2.0**64))
    step = max(1, 2**20 // d)
    for i in range(0, len(row), step):
        mixed = _mix_bits(row[i : i + step, None] ^ of_column[1])
        hidden.append(np.flatnonzero(mixed < limit) + i * d)
    return np.concatenate(hidden)


def _earlier_equal_rows(row: Array) -> Array:
    """Return the number of earlier rows that equal each row, so that equal rows hide different entries."""
    order = np.argsort(row, kind="stable")
    ordered = row[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    place = np.arange(len(row))
    counts = np.empty(len(row), dtype=np.uint64)
    begins = np.maximum.accumulate(np.where(first, place, 0))
    counts[order] = (place - begins).astype(np.uint64)
    return counts


def _mix_bits(x: Array) -> Array:
    """Apply the finalizer of splitmix64, which mixes every bit of x into every bit."""
    x = (x ^ (x >> np.uint64(30))) * _HASH_FACTORS[0]
    x = (x ^ (x >> np.uint64(27))) * _HASH_FACTORS[1]
    return np.asarray(x ^ (x >> np.uint64(31)))


S = TypeVar("S", bound=Iterating)

# This is the standard deviation of a normal variable, divided by the median of its absolute value.
NORMAL: Final = 1.4826
# The first block uses a separate random stream, because with the stream of synthetic data it could equal the true
# factor.
_STREAM: Final = 2**62
_MOST_OUTLIERS: Final = 0.5  # If more than this share of a client's entries are outliers, the status names the client.
# A low-rank part counts as zero if its squares are below this share of the squares of ordinary entries.
_NOTHING: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class Robust(Iterative[S]):
    """The base class of robust algorithms. By default, rows are not centered, because outliers would shift the mean."""

    quantity: ClassVar[str] = "change of the basis in a round relative to its norm"
    centers: ClassVar[bool] = False
    measured: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    tolerant: ClassVar[bool] = False
    caches: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    inner_steps: int = 3
    sigma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer(f"inner_steps of {self.name}", self.inner_steps, least=1)
        if self.sigma is not None:
            checks.number(f"sigma of {self.name}", self.sigma, least=sizes.TINY, remedy="Give the size of an entry.")

    def width(self, n_components: int | float) -> int:
        if not isinstance(n_components, int):
            raise ConfigError(
                f"{option('n_components')} of {self.name} is {shown(n_components)}, but it must be a whole number, "
                "the rank of the low-rank part. Give a whole number.",
                setting="n_components",
                value=n_components,
            )
        return super().width(n_components)

    def verify(self, model: Model) -> Status | None:
        sigma = float(model.left["sigma"])
        if model.trace <= _NOTHING * sigma**2 * model.n * model.d and sigma > 0.0:
            return Status(
                Outcome.STALLED,
                "the low-rank part has collapsed to zero, because the ridge rho exceeds the spectral norm "
                "of the rows clipped at the threshold. Use a smaller ridge",
            )
        if model.status is None:
            return None
        return model.status.with_notes(caveats(model))


def caveats(model: Model) -> list[str]:
    """Return phrases about undetermined rows, and about clients whose entries are mostly outliers.

    Clients are named only if the server has seen their individual answers.
    """
    said = []
    rows, bad = model.left.get("weak", np.zeros(2))
    if rows:
        said.append(f"{labels.count(round(float(rows)), 'row')} with too few clean entries")
        if bad:
            said[-1] += f" ({bad:.0f} completely outlying)"
    if "clients" in model.left:
        entries = model.left["clients"][:, 2]
        keys = model.left["keys"][entries > _MOST_OUTLIERS]
        said += [f"most entries of client {key} are outlying" for key in keys]
    return said


def start_block(model: Model) -> Array:
    """Return the first U: independent N(0, 1) entries, or the present components if the run has restarted."""
    d, p = model.columns.shape
    if model.restarts:
        return np.asarray(model.columns * np.sqrt(d))
    return np.array(linalg.random_block(d, p, model.seed + _STREAM))


def scale_start(U: Array, sigma: float) -> Array:
    """Return the first U, scaled by the square root of sigma / sqrt(p), so that the result does not depend on units.

    sigma is the size of an ordinary entry, and p is the number of columns of U. V grows to the same scale.
    A product of two factors with N(0, 1) entries has sigma near sqrt(p), so in this case U hardly changes.
    """
    each = np.sqrt(sigma / np.sqrt(U.shape[1]))
    return np.asarray(U * each)


def root_mean_square(model: Model) -> float:
    """Return the root mean square of all entries, including outliers."""
    return float(np.sqrt(model.trace / (model.n * model.d)))


# These are the arrays in the message that asks clients to count their entries by size.
COUNTING: Final[Mapping[str, ArrayRule]] = {"top": index_rule(1100, least=-1100)}


def counts_message(rms: float) -> Arrays:
    """Return the message that asks clients to count their entries by size."""
    return {"top": np.array(sizes.top_exponent(rms))}


# These are the arrays in the answer to the message that asks clients to count their entries by size.
COUNTS: Final[Mapping[str, Part]] = {"counts": Part((sizes.FINE_BINS,), Kind.COUNT)}


def counts_reply(arrays: Arrays, data: LocalData) -> Arrays:
    """Return a client's answer to the message that counts entries by size."""
    return {"counts": sizes.count_finely(data, int(arrays["top"]))}


def ordinary_size(counts: Array, rms: float) -> float:
    """Return the size of an ordinary entry: 1.4826 times the median absolute value of all counted entries."""
    sigma = NORMAL * sizes.median_of_counts(counts, sizes.top_exponent(rms))
    if sigma == 0.0 < rms:
        raise DataError(
            "Most entries are 0, or very small compared with the root mean square, so their median does not show the "
            "size of an ordinary entry. Set sigma to the size of an entry of the low-rank part."
        )
    return sigma


def row_blocks_with(V: Array | None, data: LocalData, p: int) -> Iterator[tuple[Array, Array | None]]:
    """Iterate over pairs of a block of rows and its part of V. The part is None if V does not fit the rows."""
    if V is not None and V.shape != (data.n, p):
        V = None
    start = 0
    for X in data.dense():
        end = start + len(X)
        yield X, None if V is None else V[start:end]
        start = end


def in_data_units(L: Array, S: Array, frame: Frame) -> Arrays:
    """Return the low-rank and the sparse part in the units of the data. The low-rank part includes the mean."""
    if frame.scale is not None:
        L = L * frame.scale
        S = S * frame.scale
    if frame.mean is not None:
        L = L + frame.mean
    return {"L": L, "S": S}
