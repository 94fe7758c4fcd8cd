"""Name genetic variants by chromosome:position:allele:allele, whichever allele a file counts.

The alleles are in alphabetical order, and an entry is the number of copies of the first allele. So names and entries
mean the same at all sites.

A .bim file writes 0 for an allele that nobody at the site has. Such a name is completed if another site or a list names
both alleles.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_FORM: Final = re.compile(r"(?P<chromosome>[^:\s]+):(?P<position>\d+):(?P<first>[^:\s]+):(?P<second>[^:\s]+)")
_AMBIGUOUS: Final = (("A", "T"), ("C", "G"))
_ABSENT: Final = ("0", ".")  # These stand for an allele that nobody at a site has.
_LONG: Final = 60  # A longer allele is shortened to its first letters and a digest.


def name_of_variant(chromosome: str, position: str, allele: str, other_allele: str) -> tuple[str, bool]:
    """Return the name of a variant, and whether the first allele in this name is `other_allele`."""
    alleles, is_other = _sorted_alleles(allele, other_allele)
    return f"{_plain_chromosome(chromosome)}:{position}:{alleles}", is_other


# A file has a million variants, but few pairs of alleles and few chromosomes.
@functools.lru_cache(maxsize=2**10)
def _sorted_alleles(allele: str, other_allele: str) -> tuple[str, bool]:
    """Return both alleles as in the name of a variant, and whether the first of them is `other_allele`."""
    alleles = allele.upper(), other_allele.upper()
    first, second = sorted(map(_shorten_allele, alleles))
    return f"{first}:{second}", _shorten_allele(alleles[0]) != first


def canonical_name(name: str) -> str:
    """Return the name of a variant in the form that tables use. Names of other columns are returned unchanged."""
    found = _FORM.fullmatch(name)
    return name if found is None else name_of_variant(*found.groups())[0]


def lacks_allele(name: str) -> bool:
    """Return whether a name is the name of a variant of which only one allele is known, or none."""
    if ":0:" not in name and ":.:" not in name:
        return False
    found = _FORM.fullmatch(name)
    return found is not None and found["first"] in _ABSENT


def names_in_list(names: Sequence[str], listed: Iterable[str]) -> dict[int, tuple[str, bool]]:
    """Return the listed names of variants of which the list or the file knows only one allele.

    Parameters
    ----------
    names : sequence of str
        The names of the variants of a site.
    listed : iterable of str
        The names to use.

    Returns
    -------
    dict of int to (str, bool)
        The listed name of the variant at each of these positions, and whether its entries must count the other allele.
    """
    own, wanted = {*names}, [*listed]
    among = {*wanted}
    # If only one side has incomplete names, they are compared with all names of the other side at the same position.
    incomplete = {_place_of(name) for name in (*names, *wanted) if lacks_allele(name)}
    if not incomplete:
        return {}
    at_place: dict[str, list[str]] = {}
    for name in wanted:
        if (place := _place_of(name)) in incomplete and name not in own:
            at_place.setdefault(place, []).append(name)
    found: dict[int, tuple[str, bool]] = {}
    for j, name in enumerate(names):
        if name in among or (place := _place_of(name)) not in at_place:
            continue
        fits = [
            (other, turned) for other in at_place[place] if (turned := _counts_other_allele(name, other)) is not None
        ]
        # Two fitting names are two variants at the same position, and nothing shows which of them is meant.
        if len(fits) == 1:
            found[j] = fits[0]
    taken = Counter(name for name, _ in found.values())
    return {j: pair for j, pair in found.items() if taken[pair[0]] == 1}


def complete_names(sites: Sequence[Sequence[str]]) -> list[dict[int, tuple[str, bool]]]:
    """Return for each site the complete names of variants of which it knows only one allele: see `names_in_list`.

    A name is completed if exactly one name with two alleles fits, or if two sites know one allele each. But A and T, or
    C and G, of two sites are not combined, because they may be the same allele on two strands.
    """
    incomplete = {_place_of(name) for names in sites for name in names if lacks_allele(name)}
    if not incomplete:
        return [{} for _ in sites]
    known: dict[str, set[str]] = {place: set() for place in incomplete}
    whole: dict[str, set[str]] = {place: set() for place in incomplete}
    # All other names stay as they are, so they are not compared.
    positions = [[j for j, name in enumerate(names) if _place_of(name) in incomplete] for names in sites]
    compared = [[names[j] for j in some] for names, some in zip(sites, positions, strict=True)]
    for names in compared:
        for name in names:
            place = _place_of(name)
            known[place].update({*name.split(":")[2:]} - {*_ABSENT})
            if not lacks_allele(name):
                whole[place].add(name)
    pairs = {
        f"{place}:{':'.join(sorted(alleles))}"
        for place, alleles in known.items()
        if len(alleles) == 2 and not whole[place]
    }
    pairs = {name for name in pairs if not is_ambiguous(name)}
    listed = sorted(pairs.union(*whole.values()))
    found = [names_in_list(names, listed) for names in compared]
    return [{some[i]: pair for i, pair in own.items()} for some, own in zip(positions, found, strict=True)]


def _place_of(name: str) -> str:
    """Return chromosome:position of the name of a variant."""
    return ":".join(name.split(":", 2)[:2])


def _counts_other_allele(name: str, other: str) -> bool | None:
    """Return whether the second name counts the other allele than the first name, or None if they do not fit.

    At least one of the names lacks an allele, which comes first in the name. A name without alleles fits no other name,
    because it does not say which allele is counted.
    """
    (first, second), (as_first, as_second) = name.split(":")[2:4], other.split(":")[2:4]
    if second in _ABSENT or as_second in _ABSENT:
        return None
    if first in _ABSENT:
        if second == as_second:
            return False
        if as_first in _ABSENT:  # A and T, or C and G, may be the same allele on two strands.
            return None if tuple(sorted((second, as_second))) in _AMBIGUOUS else True
        return True if second == as_first else None
    if as_first not in _ABSENT:
        return None
    if as_second == second:
        return False
    return True if as_second == first else None


@functools.lru_cache(maxsize=2**10)
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
