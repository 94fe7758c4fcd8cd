"""The verdict: the result of an attempt's proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flower_pca.base import labels

# A proof fails if the error at hidden entries or the noise exceeds this multiple of an ordinary entry.
MOST_NOISE: Final = 0.4
CLEAN: Final = 0.5  # minimum share of clean entries among the visible entries
# Structure is accepted if the error at hidden entries, relative to an ordinary entry, is at most this. The residuals
# of real rows are small and correlated, and are similar in every attempt. If an attempt has mistaken a block of
# outliers for a low-rank part, residuals are also similar in every attempt, but errors are much larger.
SMALL: Final = 0.1
_MOST_NAMED: Final = 10  # maximum number of columns that a message names


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of an attempt's proof.

    Attributes
    ----------
    rank : int
        The rank of the low-rank part.
    error : float
        The size of the error at hidden entries, relative to an ordinary entry.
    predicted : bool
        Whether hidden entries are predicted as well as visible entries.
    clean : float
        The share of visible entries that lie near the low-rank part.
    structured : bool
        Whether the residuals have a larger variance in one direction than independent entries would have.
    correlated : bool
        Whether the residuals have a slightly larger variance in several directions, which shows that they are
        correlated.
    structure : float
        The share of the squared residuals in the direction of their largest variance.
    columns : tuple of int
        The columns that clean entries do not determine.
    rows : int
        The number of rows that clean entries do not determine.
    bad_rows : int
        The number of undetermined rows in which most entries are outliers.
    few : bool
        Whether so few rows and columns are undetermined that the rest of the low-rank part can be right.
    single : bool
        Whether only a tiny share of all columns is undetermined.
    may_overfit : bool
        Whether the low-rank part may have fitted outliers: it has many degrees of freedom and leaves much noise, or a
        direction of it consists of a single column.
    at_rest : bool
        Whether the basis had settled, or cannot settle because residuals are correlated or a column is undetermined.
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
    may_overfit: bool = False
    at_rest: bool = True

    @property
    def is_determined(self) -> bool:
        """Whether clean entries determine every row and column."""
        return not self.columns and not self.rows

    @property
    def fits_few(self) -> bool:
        """Whether the errors at hidden entries are small, but few entries are clean."""
        return self.error <= MOST_NOISE and self.clean < CLEAN

    @property
    def passes(self) -> bool:
        """Whether the attempt passes all checks."""
        return self.predicted and self.is_determined and not self.misses_component and not self.may_overfit

    @property
    def misses_component(self) -> bool:
        """Whether the residuals have structure that another component could explain."""
        return self.structured and not self.correlated

    @property
    def passes_with_exceptions(self) -> bool:
        """Whether the low-rank part passes all checks except in a few known rows and columns."""
        named = not self.is_determined and self.few
        return self.predicted and named and not self.misses_component and not self.may_overfit

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """A phrase for each check that has failed, although the low-rank part is the answer."""
        said = []
        if self.columns:
            first = self.columns[:_MOST_NAMED]
            more = len(self.columns) > _MOST_NAMED
            shown = ", ".join(str(j) for j in first) + ", ..." * more
            said.append(f"{labels.count(len(self.columns), 'column')} with too few clean entries ({shown})")
        if self.structured:
            said.append(
                f"the residuals still have structure ({self.structure:.1%}): they are correlated, or there are more "
                "components"
            )
        return tuple(said)

    @property
    def sort_key(self) -> tuple[bool, bool, bool, int, int, float]:
        """The key by which attempts are sorted. Better attempts have smaller keys.

        The number of undetermined columns comes before the number of undetermined rows, because a wrong column
        affects all rows, but a wrong row affects only itself.
        """
        return not self.predicted, self.misses_component, self.may_overfit, len(self.columns), self.rows, self.error
