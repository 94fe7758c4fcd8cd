"""Name genetic variants by chromosome:position:allele:allele, whichever allele a file counts.

The alleles are in alphabetical order, and an entry is the number of copies of the first allele. So names and entries
mean the same at all sites.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_FORM: Final = re.compile(r"(?P<chromosome>[^:\s]+):(?P<position>\d+):(?P<first>[^:\s]+):(?P<second>[^:\s]+)")
_AMBIGUOUS: Final = (("A", "T"), ("C", "G"))
_LONG: Final = 60  # A longer allele is shortened to its first letters and a digest.


def name_of_variant(chromosome: str, position: str, allele: str, other_allele: str) -> tuple[str, bool]:
    """Return the name of a variant, and whether the first allele in this name is `other_allele`."""
    alleles = allele.upper(), other_allele.upper()
    first, second = sorted(map(_shorten_allele, alleles))
    return f"{_plain_chromosome(chromosome)}:{position}:{first}:{second}", _shorten_allele(alleles[0]) != first


def canonical_name(name: str) -> str:
    """Return the name of a variant in the form that tables use. Names of other columns are returned unchanged."""
    found = _FORM.fullmatch(name)
    return name if found is None else name_of_variant(*found.groups())[0]


def _plain_chromosome(chromosome: str) -> str:
    """Return the name of a chromosome in its most common form, for example 1 for chr1."""
    return chromosome[3:] if chromosome[:3].lower() == "chr" and len(chromosome) > 3 else chromosome


def _shorten_allele(allele: str) -> str:
    if len(allele) <= _LONG:
        return allele
    return f"{allele[: _LONG // 2]}~{hashlib.sha256(allele.encode()).hexdigest()[:16]}"


def are_variants(names: Sequence[str] | None) -> bool:
    """Return whether the columns are variants. Only the first and the last name are checked."""
    return bool(names) and all(_FORM.fullmatch(name) for name in (names[0], names[-1]))  # type: ignore[index]


def is_ambiguous(name: str) -> bool:
    """Return whether the alleles are A and T, or C and G. Then both strands have the same two alleles."""
    return tuple(name.split(":")[2:]) in _AMBIGUOUS


def is_each_ambiguous(names: Iterable[str]) -> Array:
    """Return a mask of the ambiguous variants: see `is_ambiguous`."""
    return np.array([is_ambiguous(name) for name in names], dtype=bool)


def chromosomes(names: Iterable[str]) -> Array:
    """Return the chromosome of each variant."""
    return np.array([name.partition(":")[0] for name in names])
