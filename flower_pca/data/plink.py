"""Read genotypes from PLINK files: a .bed file, with a .bim and a .fam file in the same folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import DataError
from flower_pca.base.labels import count
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.blocks.bed import HEAD, Bed, bytes_of_a_variant
from flower_pca.data.gaps import with_gaps_as_nan
from flower_pca.data.reading import reading_file
from flower_pca.names import variants as names_of_variants
from flower_pca.names.table import Table

_WRITE: Final = "Write the files again with plink2 --make-bed."


def bed(
    *,
    path: str,
    people: str | None = None,
    variants: str | None = None,
    ambiguous: bool = True,
    precision: str = "single",
    gaps: Any = None,
) -> Table:
    """Read genotypes from a PLINK .bed file, with its .bim and .fam files in the same folder.

    The table has a row for each person and a column for each variant. A column is called
    chromosome:position:allele:allele, with the alleles in alphabetical order. An entry is the number of copies of the
    first allele in this name, so it means the same at all sites, whichever allele a file counts. A missing genotype is
    NaN. Rows are decoded in pieces, and the whole table is never in memory.

    Parameters
    ----------
    path : str
        The .bed file.
    people : str or None, default=None
        A file that lists the people to use. Each line holds family and person, as for the --keep option of PLINK, or
        the person alone.
    variants : str or None, default=None
        A file that lists the variants to use: one name per line, or a .bim file.
    ambiguous : bool, default=True
        Whether to keep A/T and C/G variants, whose strand is unknown.
    precision : str, default="single"
        The precision of matrix products: "single" or "double".
    gaps : default=None
        Numbers that stand for a missing value, in addition to the missing genotypes of the file.
    """
    checks.choice("ambiguous", ambiguous, (True, False))
    checks.choice("precision", precision, ("single", "double"))
    with reading_file(path, "a .bed file of PLINK") as file:
        _require_head(file)
        families, persons, ids = _read_people(file.with_suffix(".fam"))
        names, other = _read_variants(file.with_suffix(".bim"))
        _require_size(file, len(ids), len(names))
        taken = None if people is None else _positions_of_people(file, ids, people)
        chosen = np.arange(len(names))
        if variants is not None:
            wanted = _listed_variants(variants)
            for j, (name, turned) in names_of_variants.names_in_list(names, wanted).items():
                # A listed name with one allele would hide that the strand is unknown.
                if not ambiguous and names_of_variants.is_ambiguous(names[j]):
                    continue
                names[j] = name
                other[j] ^= turned
            chosen = _positions_of_variants(file, names, wanted, variants)
        if not ambiguous:
            chosen = chosen[~names_of_variants.is_each_ambiguous(names[j] for j in chosen)]
            if not len(chosen):
                raise DataError(
                    f"{file} has only A/T and C/G variants, and ambiguous=False leaves them out, so no variant "
                    "remains. Leave ambiguous=False out."
                )
        dtype = np.float32 if precision == "single" else np.float64
        rows = Bed(file, len(ids), chosen, other[chosen], dtype)
        if taken is not None:
            rows = rows.select_rows(taken)
            families, persons, ids = families[taken], persons[taken], tuple(ids[i] for i in taken)
        beside = {"FID": families, "IID": persons}
        table = Table.of_file(file, rows, tuple(names[j] for j in chosen), beside)
    return with_gaps_as_nan(replace(table, ids=ids), gaps)


def _require_head(file: Path) -> None:
    """Raise a DataError unless the file begins as a .bed file that stores one variant after another."""
    with file.open("rb") as raw:
        head = raw.read(len(HEAD))
    if head == HEAD[:2] + b"\0":
        raise DataError(
            f"{file} stores genotypes person by person (individual-major order), which flower_pca cannot read. {_WRITE}"
        )
    if head != HEAD:
        raise DataError(
            f"{file} is not a .bed file of PLINK, because it does not begin with the bytes 6c 1b 01. {_WRITE}"
        )


def _require_size(file: Path, people: int, variants: int) -> None:
    size, width = file.stat().st_size - len(HEAD), bytes_of_a_variant(people)
    if size == width * variants:
        return
    listed = f"{people:,} people in {file.with_suffix('.fam').name}"
    if size % width == 0:
        raise DataError(
            f"{file} holds {count(size // width, 'variant')} for the {listed}, but {file.with_suffix('.bim').name} "
            f"lists {variants:,}. Put the three files of one data set together."
        )
    raise DataError(
        f"{file} has {size + len(HEAD):,} bytes, but {count(variants, 'variant')} of {listed} take "
        f"{width * variants + len(HEAD):,} bytes. Copy the file again if it is incomplete, or put the three files of "
        "one data set together."
    )


def _fields_of_lines(place: Path, what: str) -> Iterator[list[str]]:
    """Yield the fields of each line of a .bim or .fam file.

    The fields of all lines are never held together, because they would take far more memory than the text.
    """
    bed_file = place.with_suffix(".bed").name
    try:
        text = place.read_text("utf-8")
    except FileNotFoundError:
        raise DataError(
            f"{place}, which lists the {what} of {bed_file}, is missing. Copy it into the same folder."
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{place}, which lists the {what} of {bed_file}, is not in UTF-8. Save it in UTF-8.") from None
    number = 0
    for line in text.splitlines():
        if fields := line.split():
            number += 1
            if len(fields) != 6:
                raise DataError(f"Line {number:,} of {place} has {count(len(fields), 'field')} instead of 6. {_WRITE}")
            yield fields
    if not number:
        raise DataError(f"{place} lists no {what}. {_WRITE}")


def _read_people(place: Path) -> tuple[Array, Array, tuple[str, ...]]:
    """Return the family, the person and the id of each row. The id is family/person, or the person alone."""
    lines = list(_fields_of_lines(place, "people"))
    ids = tuple(_person_id(family, person) for family, person, *_ in lines)
    if twice := _first_duplicate(ids):
        raise DataError(f"Lines {twice[0]:,} and {twice[1]:,} of {place} name the same person. Keep one of them.")
    return np.array([fields[0] for fields in lines]), np.array([fields[1] for fields in lines]), ids


def _person_id(family: str, person: str) -> str:
    return person if family in ("0", person) else f"{family}/{person}"


def _positions_of_people(file: Path, ids: tuple[str, ...], listed: str) -> Array:
    """Return the positions in the file of the people on a list, in the order of the file."""
    with reading_file(listed, "a list of people") as place:
        lines = [line.split() for line in place.read_text("utf-8").splitlines()]
    if lines and lines[0] and lines[0][0] in ("FID", "#FID", "IID", "#IID"):
        lines[0] = []
    wanted = {
        number: fields[0] if len(fields) == 1 else _person_id(*fields[:2])
        for number, fields in enumerate(lines, 1)
        if fields
    }
    if not wanted:
        raise DataError(f"{place} lists no people. Write family and person in each line, as in {file.stem}.fam.")
    place_of = {name: i for i, name in enumerate(ids)}
    # The error must not name people.
    if absent := [number for number, name in wanted.items() if name not in place_of]:
        raise DataError(
            f"{len(absent):,} of the {count(len(wanted), 'line')} of {place} name nobody in {file.stem}.fam. The first "
            f"is line {absent[0]:,}. Remove these lines, or write family and person as in {file.stem}.fam."
        )
    return np.unique([place_of[name] for name in wanted.values()])


def _read_variants(place: Path) -> tuple[list[str], Array]:
    """Return the names of all variants, and whether the file counts the second allele of each name."""
    names: list[str] = []
    others: list[bool] = []
    for line, (chromosome, _, _, position, one, other) in enumerate(_fields_of_lines(place, "variants"), 1):
        if not (position.isascii() and position.isdigit()):
            raise DataError(
                f"Line {line:,} of {place} has the position {shown(position)}, but a position must be a whole number. "
                f"{_WRITE}"
            )
        name, is_other = names_of_variants.name_of_variant(chromosome, position, one, other)
        names.append(name)
        others.append(is_other)
    if twice := _first_duplicate(names):
        raise DataError(
            f"Lines {twice[0]:,} and {twice[1]:,} of {place} are the same variant, {names[twice[0] - 1]}. "
            f"{_keep_one(place, twice)}"
        )
    return names, np.array(others, dtype=bool)


def _keep_one(place: Path, twice: tuple[int, int]) -> str:
    """Return advice about two lines of a .bim file with the same variant."""
    lines = [fields for number, fields in enumerate(_fields_of_lines(place, "variants"), 1) if number in twice]
    if lines[0][3] == "0":
        return "Leave out variants without a position, with plink2 --not-chr 0 --make-bed."
    if lines[0][1] == lines[1][1]:
        return "Keep one of them, for example with plink2 --rm-dup force-first --make-bed."
    # --rm-dup of plink2 compares only the ids of variants.
    return (
        "Keep one of them, for example with plink --list-duplicate-vars ids-only suppress-first, and then plink "
        "--exclude plink.dupvar --make-bed."
    )


def _first_duplicate(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the numbers of the first two lines with the same name, counted from 1. Return None if all differ."""
    if len({*names}) == len(names):
        return None
    first: dict[str, int] = {}
    return next((before, line) for line, name in enumerate(names, 1) if (before := first.setdefault(name, line)) < line)


def _listed_variants(listed: str) -> list[str]:
    """Return the names of the variants in a list."""
    with reading_file(listed, "a list of variants") as panel:
        if panel.suffix.lower() == ".bim" and panel.exists():
            wanted, _ = _read_variants(panel)
        else:
            lines = filter(str.strip, panel.read_text("utf-8").splitlines())
            wanted = [names_of_variants.canonical_name(line.split()[0]) for line in lines]
    if not wanted:
        raise DataError(f"{panel} lists no variants. Write one name, such as 1:12345:A:G, in each line.")
    return list(dict.fromkeys(wanted))


def _positions_of_variants(file: Path, names: list[str], wanted: list[str], panel: str) -> Array:
    """Return the positions of the wanted variants, which the list `panel` names, among the variants of the file."""
    place_of = {name: j for j, name in enumerate(names)}
    if absent := [name for name in wanted if name not in place_of]:
        raise DataError(
            f"{file} lacks {len(absent):,} of the {len(wanted):,} variants that {panel} lists, for example "
            f"{absent[0]}. Remove them from the list, at all sites."
        )
    return np.array([place_of[name] for name in wanted], dtype=np.int64)
