"""Verdict: what the proof of an attempt has come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flower_pca.base import labels

# The most that hidden entries may be off by, and the noise at most, as a share of an ordinary entry.
MOST_NOISE: Final = 0.4
CLEAN: Final = 0.5  # the least share of clean entries among the visible ones
# Of an ordinary entry: what hidden entries may be off by where structure is let pass. Residuals of
# real rows, small and correlated, look alike in whatever attempt; but so does a block of far
# entries that was taken for low rank, and that leaves much more than this.
SMALL: Final = 0.1
_SHOWN: Final = 10  # columns


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the proof of an attempt has come to.

    Attributes
    ----------
    rank : int
        Of its low-rank part.
    error : float
        What hidden entries are off by, over an ordinary entry.
    predicted : bool
        Whether it says of hidden entries what it says of others.
    clean : float
        The share of entries that lie near it, of those that are not hidden.
    structured : bool
        Whether dense noise leaves more in one direction than independent entries would.
    correlated : bool
        Whether it does so in several directions, by little: residuals that are correlated, not a component that is
        missing.
    structure : float
        The share of the squares of what is left that lies in the first of them.
    columns : tuple of int
        Those that clean entries do not determine; `rows`: how many rows.
    bad_rows : int
        How many of these rows are bad as a whole: most of what there is of them is far.
    few : bool
        Whether these rows and columns are so few that the others can be right without them.
    single : bool
        Whether these columns are single ones among very many.
    free : bool
        Whether it may have fitted far entries, as it leaves much and could fit almost anything.
    rest : bool
        Whether the basis was at rest.
    """

    rank: int
    error: float
    predicted: bool = False
    clean: float = 1.0
    structured: bool = False
    correlated: bool = False
    structure: float = 0.0
    columns: tuple[int, ...] = ()
    rows: int = 0
    bad_rows: int = 0
    few: bool = True
    single: bool = False
    free: bool = False
    rest: bool = True

    @property
    def is_determined(self) -> bool:
        """Whether clean entries determine every row and column."""
        return not self.columns and not self.rows

    @property
    def fits_few(self) -> bool:
        """Whether it is near hidden entries of an ordinary size, but near few entries at all."""
        return self.error <= MOST_NOISE and self.clean < CLEAN

    @property
    def passes(self) -> bool:
        """Whether nothing speaks against the low-rank part."""
        return self.predicted and self.is_determined and not self.lacking and not self.free

    @property
    def lacking(self) -> bool:
        """Whether structure is left that a component may be missing from."""
        return self.structured and not self.correlated

    @property
    def nearly(self) -> bool:
        """Whether nothing speaks against the low-rank part but a few rows and columns, named."""
        named = not self.is_determined and self.few
        return self.predicted and named and not self.lacking and not self.free

    @property
    def exceptions(self) -> tuple[str, ...]:
        """In words, what speaks against the low-rank part although it is the answer."""
        said = []
        if self.columns:
            first = self.columns[:_SHOWN]
            more = len(self.columns) > _SHOWN
            shown = ", ".join(str(j) for j in first) + ", ..." * more
            said.append(f"too few entries are clean of {labels.count(len(self.columns), 'column')} ({shown})")
        if self.structured:
            said.append(
                f"structure of {self.structure:.1%} is left of it, as residuals that are "
                "correlated leave it, or as more components would"
            )
        return tuple(said)

    @property
    def order(self) -> tuple[bool, bool, bool, int, int, float]:
        """The smaller, the better: a row may be bad as a whole, but a column that is taken for such spoils all rows."""
        return not self.predicted, self.lacking, self.free, len(self.columns), self.rows, self.error
