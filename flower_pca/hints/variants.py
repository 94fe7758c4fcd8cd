"""Hints about genetic variants: without variation, of ambiguous strand, or alone on a chromosome in one component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flower_pca.base.labels import count
from flower_pca.base.linalg import Array
from flower_pca.names import variants
from flower_pca.names.columns import enumeration

_SHARE: Final = 0.5  # A component is suspect if more than this share of its squared loadings lies on one chromosome,
_TIMES: Final = 2.0  # and more than this many times the chromosome's share of the variants.
_LISTED: Final = 3
_ONE_COPY: Final = 0.4


def hints_of_constants(scale: str | None, sizes: Array | None, n: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return a hint about variants that are the same in all n people, whose loadings are 0 in a run with
    scale="genotype".
    """
    if scale != "genotype" or sizes is None:
        return ()
    # One copy of an allele gives a sum of squares near 1, and the rounding of masked sums far less.
    same = np.flatnonzero(n * sizes**2 < _ONE_COPY)
    if not len(same):
        return ()
    which = enumeration([str(j) if names is None else names[j] for j in same[:_LISTED]])
    more = f" and {len(same) - _LISTED:,} more" if len(same) > _LISTED else ""
    their = "its loadings are" if len(same) == 1 else "their loadings are"
    return (f"{count(len(same), 'column')} without variation, {which}{more}, took no part: {their} 0.",)


def hints_of_strands(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return a hint about variants whose two alleles are the same on either strand (A/T or C/G)."""
    if names is None or not variants.are_variants(names):
        return ()
    some = int(variants.ambiguous(names).sum())
    if not some:
        return ()
    are, their = ("is", "its") if some == 1 else ("are", "their")
    return (
        f"{some:,} of {count(len(names), 'variant')} {are} A/T or C/G, so {their} strand cannot be determined from the "
        "alleles. Leave them out with bed(path=..., ambiguous=False), unless all sites used the same chip.",
    )


def hints_of_linkage(components: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return hints about components (k x d) whose loadings lie mostly on one chromosome."""
    if names is None or not variants.are_variants(names):
        return ()
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
