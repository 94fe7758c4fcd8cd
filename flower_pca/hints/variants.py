"""Find genetic variants without variation, variants of ambiguous strand, and components of a single chromosome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flower_pca.base.labels import count
from flower_pca.base.linalg import Array
from flower_pca.names import variants
from flower_pca.names.columns import enumeration

# A component is suspect if a chromosome has more than _SHARE of its squared loadings, and more than _TIMES as much as
# the chromosome's share of the variants.
_SHARE: Final = 0.5
_TIMES: Final = 2.0
_LISTED: Final = 3  # maximum number of variants that a hint names
_ONE_COPY: Final = 0.4  # A variant with a smaller sum of squares is the same in all people.


def hints_of_variants(names: Sequence[str], components: Array) -> tuple[str, ...]:
    """Return the hints about strands and linkage if the columns are variants, or else an empty tuple."""
    if not variants.are_variants(names):
        return ()
    return (*_hints_of_strands(names), *_hints_of_linkage(components, names))


def hints_of_constants(sizes: Array, n: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return a hint about variants that are the same in all n people. With scale="genotype", their loadings are 0."""
    # A single copy of an allele gives a sum of squares near 1. The rounding of masked sums gives far less.
    same = np.flatnonzero(n * sizes**2 < _ONE_COPY)
    if not len(same):
        return ()
    which = enumeration([str(j) if names is None else names[j] for j in same[:_LISTED]])
    more = f" and {len(same) - _LISTED:,} more" if len(same) > _LISTED else ""
    their = "its loadings are" if len(same) == 1 else "their loadings are"
    return (f"{count(len(same), 'column')} without variation, {which}{more}, took no part: {their} 0.",)


def _hints_of_strands(names: Sequence[str]) -> tuple[str, ...]:
    """Return a hint about variants whose two alleles are the same on both strands (A/T or C/G)."""
    some = int(variants.is_each_ambiguous(names).sum())
    if not some:
        return ()
    are, their = ("is", "its") if some == 1 else ("are", "their")
    return (
        f"{some:,} of {count(len(names), 'variant')} {are} A/T or C/G, so {their} strand cannot be determined from the "
        "alleles. Leave them out with bed(path=..., ambiguous=False), unless all sites used the same chip.",
    )


def _hints_of_linkage(components: Array, names: Sequence[str]) -> tuple[str, ...]:
    """Return hints about components (k x d) that have most of their squared loadings on a single chromosome."""
    kinds, of = np.unique(variants.chromosomes(names), return_inverse=True)
    expected = np.bincount(of) / len(of)
    said = []
    for number, weights in enumerate(components, 1):
        squares = np.bincount(of, weights=weights**2)
        shares = squares / max(float(squares.sum()), np.finfo(np.float64).tiny)
        most = int(np.argmax(shares))
        if shares[most] > _SHARE and shares[most] > _TIMES * expected[most]:
            said.append(
                f"{shares[most]:.0%} of component {number} lie on chromosome {kinds[most]}, which has "
                f"{expected[most]:.0%} of the variants. The likely cause is linkage disequilibrium. Prune the "
                "variants (plink2 --indep-pairwise at one site), or leave out the region, and give all sites the "
                "same list."
            )
    return tuple(said)
