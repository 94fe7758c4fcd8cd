"""Genetic variants that say nothing, whose strand cannot be told, or that make a component of one chromosome alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flower_pca.base.labels import count
from flower_pca.base.linalg import Array
from flower_pca.names import variants
from flower_pca.names.columns import enumeration

_SHARE: Final = 0.5  # A share of the squares of a component's loadings.
_TIMES: Final = 2.0  # what a chromosome has of them, over its share of the variants
_LISTED: Final = 3
_ONE_COPY: Final = 0.4


def hints_of_constants(scale: str | None, sizes: Array | None, n: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """A hint about variants that are the same in all n people, which a run of genotypes leaves at 0."""
    if scale != "genotype" or sizes is None:
        return ()
    # A single copy of an allele leaves squares of nearly 1, and rounding under masks far less.
    same = np.flatnonzero(n * sizes**2 < _ONE_COPY)
    if not len(same):
        return ()
    which = enumeration([str(j) if names is None else names[j] for j in same[:_LISTED]])
    more = f" and {len(same) - _LISTED:,} more" if len(same) > _LISTED else ""
    their = "its loadings are" if len(same) == 1 else "their loadings are"
    return (f"{count(len(same), 'column')} without variation, {which}{more}, took no part: {their} 0.",)


def hints_of_strands(names: Sequence[str] | None) -> tuple[str, ...]:
    """A hint about variants whose alleles are the same two on either strand."""
    if names is None or not variants.are_variants(names):
        return ()
    some = int(variants.ambiguous(names).sum())
    if not some:
        return ()
    are, their = ("is", "its") if some == 1 else ("are", "their")
    return (
        f"{some:,} of {count(len(names), 'variant')} {are} A/T or C/G, so {their} strand cannot be told from the "
        "alleles. Leave them out with bed(path=..., ambiguous=False), unless all sites have used one chip.",
    )


def hints_of_linkage(components: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Hints about components (k x d) whose loadings lie on one chromosome."""
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
                f"{expected[most]:.0%} of the variants. Suspect linkage disequilibrium first: prune the variants "
                "(plink2 --indep-pairwise at one site), or leave out the region, and give all sites the same list."
            )
    return tuple(said)
