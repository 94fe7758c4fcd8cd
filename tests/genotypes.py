"""Genotypes for tests: populations drawn from a seed, and files of PLINK written bit by bit."""

import numpy as np

CODES = {2: 0b00, None: 0b01, 1: 0b10, 0: 0b11}


def populations(people=40, variants=60, seed=0, apart=0.2, gaps=0.0):
    """Counts of alleles of three populations (Balding and Nichols), people by variants, and whose each person is."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.1, 0.9, variants)
    scale = (1 - apart) / apart
    own = rng.beta(p * scale, (1 - p) * scale, (3, variants)).clip(0.05, 0.95)
    of = rng.integers(3, size=people)
    counts = rng.binomial(2, own[of]).astype(float)
    counts[rng.random(counts.shape) < gaps] = np.nan
    return counts, of


def write_bed(path, counts, *, alleles=None, swapped=(), chromosomes=None, first=0):
    """A .bed file with .bim and .fam: an entry counts the first allele, but in the `swapped` variants the second."""
    n, d = counts.shape
    alleles = alleles or [("A", "G")] * d
    chromosomes = ["1"] * d if chromosomes is None else chromosomes
    packed = bytearray(b"\x6c\x1b\x01")
    lines = []
    for j in range(d):
        column = 2 - counts[:, j] if j in swapped else counts[:, j]
        for start in range(0, n, 4):
            byte = 0
            for place, value in enumerate(column[start : start + 4]):
                byte |= CODES[None if np.isnan(value) else int(value)] << 2 * place
            packed.append(byte)
        one, other = reversed(alleles[j]) if j in swapped else alleles[j]
        lines.append(f"{chromosomes[j]}\trs{j}\t0\t{1000 + j}\t{one}\t{other}\n")
    path.write_bytes(bytes(packed))
    path.with_suffix(".bim").write_text("".join(lines))
    people = (f"0 p{first + i} 0 0 0 -9\n" for i in range(n))
    path.with_suffix(".fam").write_text("".join(people))
    return path
