"""The selection of genetic variants from the sums of the opening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base import checks, spec
from flower_pca.base.errors import DataError
from flower_pca.base.labels import count
from flower_pca.base.linalg import Array
from flower_pca.names import variants as names_of_variants

_MEAN_ERROR: Final = 1e-6  # maximum rounding error of a mean under masks
_ROUNDING: Final = 1e-9  # tolerance for rounding errors, so that a variant exactly at a limit is kept


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Limits on genetic variants, counted over the people of all sites. "variants()" means the default limits.

    Parameters
    ----------
    maf : float, default=0.01
        The minimum frequency of the rarer allele.
    call : float, default=0.98
        The minimum share of people with a value, the call rate.
    ambiguous : bool, default=True
        Whether to keep A/T and C/G variants, whose strand cannot be determined.
    hwe : float or None, default=None
        The minimum p-value, such as 1e-6, in the exact test of Hardy-Weinberg equilibrium that each site applies to
        its own people. The test takes one more message. None means no test.
    """

    maf: float = 0.01
    call: float = 0.98
    ambiguous: bool = True
    hwe: float | None = None

    def __post_init__(self) -> None:
        checks.use_python_numbers(self)
        if self.hwe is not None:
            checks.number("hwe of variants", self.hwe, least=1e-300, most=1.0, remedy="Use 1e-6.")
        for name, most in (("maf", 0.5), ("call", 1.0)):
            object.__setattr__(self, name, checks.parse_share(getattr(self, name)))
            checks.number(f"{name} of variants", getattr(self, name), least=0.0, most=most)
        checks.choice("ambiguous of variants", self.ambiguous, (True, False))

    @classmethod
    def of(cls, value: object) -> Variants | None:
        """Return the limits from an instance or a string such as "variants(maf=0.05)". Return None for None."""
        rule = 'a Variants, or a string such as "variants(maf=0.01, call=0.98)"'
        return spec.instance(cls, value, "variants", rule)

    def select_variants(
        self, n: int, mean: Array, seen: Array, names: Sequence[str], failed: Array | None = None
    ) -> tuple[tuple[str, ...], str]:
        """Return the variants within the limits, and a sentence with the number of variants that are left out, or "".

        Parameters
        ----------
        n : int
            The number of people at all sites.
        mean : ndarray
            The mean of the present values of each variant.
        seen : ndarray
            The number of present values of each variant.
        names : sequence of str
            The names of the variants.
        failed : ndarray or None, default=None
            The number of sites at which each variant has failed the test of Hardy-Weinberg equilibrium.

        Raises
        ------
        DataError
            If the columns are not counts of alleles, or if no variant is left.
        """
        if (outside := np.flatnonzero((mean < -_MEAN_ERROR) | (mean > 2.0 + _MEAN_ERROR))).size:
            raise DataError(
                f"variants={self} needs counts of alleles from 0 to 2, but {count(outside.size, 'column')} of the data "
                f"{'holds' if outside.size == 1 else 'hold'} other values. The first is {names[outside[0]]}. Drop such "
                "columns, or leave variants out."
            )
        p = mean / 2.0
        rare = np.minimum(p, 1.0 - p) < self.maf - _ROUNDING
        gaps = seen < (self.call - _ROUNDING) * n
        either = np.zeros(len(names), dtype=bool) if self.ambiguous else names_of_variants.is_each_ambiguous(names)
        unequal = np.zeros(len(names), dtype=bool) if failed is None else failed > 0
        left = ~(rare | gaps | either | unequal)
        why = {
            f"with a minor allele frequency below {self.maf:g}": rare,
            f"with values for fewer than {self.call:.4g} of the people": gaps,
            "A/T or C/G": either,
            f"out of Hardy-Weinberg equilibrium (p < {self.hwe or 0.0:g}) at one site or more": unequal,
        }
        said = ", ".join(f"{int(bad.sum()):,} {words}" for words, bad in why.items() if bad.any())
        if not left.any():
            raise DataError(f"variants={self} leaves none of {len(names):,} variants: {said}. Relax these limits.")
        out = len(names) - int(left.sum())
        chosen = tuple(name for name, keep in zip(names, left, strict=True) if keep)
        return chosen, f"{out:,} of {count(len(names), 'variant')} were left out: {said}" if out else ""

    def __str__(self) -> str:
        tested = "" if self.hwe is None else f", hwe={self.hwe:g}"
        return f"variants(maf={self.maf:g}, call={self.call:g}, ambiguous={self.ambiguous}{tested})"
