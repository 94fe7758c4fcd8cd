"""Simulate the genotypes of three biobanks with msprime, and write them as files of PLINK.

Run: pip install msprime && python examples/three_biobanks.py examples/genomes

Three populations of 10,000 people split 1,600 and 2,000 generations ago. Ten chromosomes of two million base pairs
recombine and mutate at a rate of 1e-8, so neighboring variants are correlated. Of the variants whose minor allele has a
frequency of at least 3 %, 90 on each chromosome are kept. Of their genotypes, 0.5 % are missing. Bonn counts the other
allele of every fifth variant, as happens if sites use different chips. Everything is seeded: the files in
examples/genomes come from msprime 1.4.4.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

PEOPLE = {  # of each population, by file
    "ulm": (90, 45, 15),
    "bonn": (24, 60, 36),
    "jena": (13, 26, 91),
    "new": (16, 12, 12),
}
CHROMOSOMES, LENGTH, KEPT = 10, 2_000_000, 90
RARE, MISSING = 0.03, 0.005
CODES = np.array([3, 2, 0, 1], dtype=np.uint8)  # PLINK's codes for 0, 1 and 2 copies, and for a missing genotype


def simulate(chromosome: int, sizes: list[int]) -> tuple[Any, Any]:
    """Return the positions of variants of a chromosome, and the copies that each person has, variants x people."""
    import msprime

    history = msprime.Demography()
    for name in ("A", "B", "C", "AB", "ABC"):
        history.add_population(name=name, initial_size=10_000)
    history.add_population_split(time=1600, derived=["A", "B"], ancestral="AB")
    history.add_population_split(time=2000, derived=["AB", "C"], ancestral="ABC")
    ancestry = msprime.sim_ancestry(
        samples=dict(zip("ABC", sizes, strict=True)),
        demography=history,
        sequence_length=LENGTH,
        recombination_rate=1e-8,
        random_seed=chromosome,
    )
    mutated = msprime.sim_mutations(ancestry, rate=1e-8, random_seed=chromosome, model=msprime.BinaryMutationModel())
    haplotypes = mutated.genotype_matrix()
    copies = haplotypes[:, 0::2] + haplotypes[:, 1::2]
    frequency = copies.mean(axis=1) / 2.0
    common = np.flatnonzero(np.minimum(frequency, 1.0 - frequency) >= RARE)
    rng = np.random.default_rng(chromosome)
    kept = np.sort(rng.choice(common, size=KEPT, replace=False))
    return mutated.sites_position[kept].astype(int) + 1, copies[kept]


def write(path: Path, positions: list[Any], counts: Any, flipped: Any) -> None:
    """Write people as .bed, .bim and .fam. The file counts the other allele of the variants that are `flipped`."""
    counts = np.where(flipped[:, None] & (counts < 3), 2 - counts, counts)
    variants, people = counts.shape
    codes = np.pad(CODES[counts], ((0, 0), (0, -people % 4))).reshape(variants, -1, 4)
    packed = np.sum(codes << np.array([0, 2, 4, 6], dtype=np.uint8), axis=2, dtype=np.uint8)
    path.with_suffix(".bed").write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    lines = []
    for j, (chromosome, position) in enumerate(positions):
        alleles = "G\tA" if flipped[j] else "A\tG"
        lines.append(f"{chromosome}\trs{j}\t0\t{position}\t{alleles}\n")
    path.with_suffix(".bim").write_text("".join(lines), encoding="utf-8")
    path.with_suffix(".fam").write_text(
        "".join(f"{path.name} p{i} 0 0 0 -9\n" for i in range(people)), encoding="utf-8"
    )


def main(folder: Path) -> None:
    """Write the files of the three biobanks into the folder `biobanks`, and those of new people beside it."""
    sizes = [sum(people[j] for people in PEOPLE.values()) for j in range(3)]
    positions, counts = [], []
    for chromosome in range(1, CHROMOSOMES + 1):
        places, copies = simulate(chromosome, sizes)
        positions += [(chromosome, place) for place in places]
        counts.append(copies)
    every = np.vstack(counts)
    rng = np.random.default_rng(7)
    every = np.where(rng.random(every.shape) < MISSING, 3, every)
    order = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    taken = [0, 0, 0]
    for name, people in PEOPLE.items():
        mine = [order[j][taken[j] : taken[j] + people[j]] for j in range(3)]
        taken = [taken[j] + people[j] for j in range(3)]
        flipped = np.zeros(len(every), dtype=bool)
        flipped[::5] = name == "bonn"
        path = folder / name if name == "new" else folder / "biobanks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, positions, every[:, np.concatenate(mine)], flipped)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
