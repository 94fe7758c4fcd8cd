"""Names of genetic variants, chromosome:position:allele:allele, the same at all sites whichever allele a file counts.

The alleles are in alphabetical order, and an entry counts copies of the first allele.
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
_LONG: Final = 60  # letters of an allele, after which a digest stands for the rest


def name_of(chromosome: str, position: str, one: str, other: str) -> tuple[str, bool]:
    """Return the name of a variant, and whether its first allele is the `other` one."""
    alleles = one.upper(), other.upper()
    first, second = sorted(map(_short, alleles))
    return f"{_plain(chromosome)}:{position}:{first}:{second}", _short(alleles[0]) != first


def canonical(name: str) -> str:
    """Return the name of a variant in the form that tables use. Other names are unchanged."""
    found = _FORM.fullmatch(name)
    return name if found is None else name_of(*found.groups())[0]


def _plain(chromosome: str) -> str:
    """Return a chromosome in its most common form: 1 for chr1."""
    return chromosome[3:] if chromosome[:3].lower() == "chr" and len(chromosome) > 3 else chromosome


def _short(allele: str) -> str:
    if len(allele) <= _LONG:
        return allele
    return f"{allele[: _LONG // 2]}~{hashlib.sha256(allele.encode()).hexdigest()[:16]}"


def are_variants(names: Sequence[str] | None) -> bool:
    """Return whether columns are variants, judged by the first and the last name."""
    return bool(names) and all(_FORM.fullmatch(name) for name in (names[0], names[-1]))  # type: ignore[index]


def is_ambiguous(name: str) -> bool:
    """Return whether the alleles are A and T, or C and G, so that both strands have the same two alleles."""
    return tuple(name.split(":")[2:]) in _AMBIGUOUS


def ambiguous(names: Iterable[str]) -> Array:
    """Return which variants are ambiguous."""
    return np.array([is_ambiguous(name) for name in names], dtype=bool)


def chromosomes(names: Iterable[str]) -> Array:
    """Return the chromosome of each variant."""
    return np.array([name.partition(":")[0] for name in names])
