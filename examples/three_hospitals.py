"""The files of docs/three-hospitals.md, with drawn patients: python examples/three_hospitals.py."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

# Each column: its name, a usual value, its spread, and how strongly three hidden causes move it:
# metabolism, inflammation, kidneys.
COLUMNS = (
    ("age", 58.0, 9.0, (0.5, 0.0, 0.5)),
    ("weight", 81.0, 13.0, (0.8, 0.0, 0.0)),
    ("systolic", 134.0, 14.0, (0.7, 0.0, 0.4)),
    ("glucose", 118.0, 22.0, (0.9, 0.1, 0.0)),
    ("hba1c", 6.1, 0.7, (0.9, 0.0, 0.0)),
    ("heart_rate", 78.0, 12.0, (0.1, 0.8, 0.0)),
    ("temperature", 37.1, 0.6, (0.0, 0.9, 0.0)),
    ("crp", 60.0, 15.0, (0.0, 0.9, 0.1)),
    ("creatinine", 1.1, 0.2, (0.1, 0.0, 0.9)),
    ("urea", 38.0, 9.0, (0.0, 0.1, 0.9)),
)
# Each hospital: patients, how its patients differ (in spreads of each cause), the order of its columns.
HOSPITALS = {
    "bonn": (600, (0.3, -0.2, 0.0), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)),
    "jena": (250, (-0.4, 0.5, 0.2), (3, 9, 0, 7, 5, 1, 8, 6, 2, 4)),
    "trier": (80, (0.0, 0.0, -0.6), (8, 2, 6, 4, 0, 9, 3, 1, 7, 5)),
}
# Between which values each column lies, as any textbook has it: for a run with noise, which must not look at the rows.
RANGES = {
    "age": (18, 100),
    "weight": (30, 150),
    "systolic": (80, 200),
    "glucose": (40, 220),
    "hba1c": (3.5, 9),
    "heart_rate": (40, 130),
    "temperature": (35, 40),
    "crp": (0, 120),
    "creatinine": (0.3, 2),
    "urea": (5, 75),
}
GAPS = 0.03  # the share of values that nobody has measured
# The wards of each hospital: the last two are for those whom a cause moves far, where there are such wards.
WARDS = {
    "bonn": ("medicine", "surgery", "infections", "nephrology"),
    "jena": ("medicine", "surgery", "infections"),
    "trier": ("medicine", "surgery"),
}


def patients(rng: np.random.Generator, n: int, shift: tuple[float, ...]) -> np.ndarray:
    """One row for each patient, with columns in the order of COLUMNS."""
    causes = rng.standard_normal((n, 3)) + shift
    loads = np.array([weights for *_, weights in COLUMNS])
    own = np.sqrt(np.maximum(1.0 - np.sum(loads**2, axis=1), 0.1))
    usual, spread = np.array([[value, by] for _, value, by, _ in COLUMNS]).T
    return usual + spread * (causes @ loads.T + own * rng.standard_normal((n, len(COLUMNS))))


def words(rows: np.ndarray, wards: tuple[str, ...], rng: np.random.Generator) -> list[tuple[str, str]]:
    """Ward and sex of each patient: the ward goes by CRP and creatinine, and the sex by weight, with some chance."""
    usual, spread = np.array([[value, by] for _, value, by, _ in COLUMNS]).T
    far = (rows - usual) / spread + 0.5 * rng.standard_normal(rows.shape)
    ward = rng.integers(2, size=len(rows))
    for number, column in enumerate(("crp", "creatinine"), 2):
        if number < len(wards):
            ward[far[:, [name for name, *_ in COLUMNS].index(column)] > 1.2] = number
    return [(wards[at], "m" if weight > 0.0 else "f") for at, weight in zip(ward, far[:, 1], strict=True)]


def write(
    path: Path,
    rows: np.ndarray,
    order: tuple[int, ...],
    rng: np.random.Generator,
    more: tuple[Path, list[tuple[str, str]]] | None = None,
) -> None:
    """A CSV file with the columns in this order, a number for each patient, and gaps; `more`: one with words, too."""
    gone = rng.random(rows.shape) < GAPS
    numbers = rng.permutation(90000)[: len(rows)] + 10000
    head = ["patient_id", *(COLUMNS[j][0] for j in order)]
    lines = [
        [number, *("" if empty[j] else f"{row[j]:.2f}" for j in order)]
        for number, row, empty in zip(numbers, rows, gone, strict=True)
    ]
    save(path, [head, *lines])
    if more is not None:
        beside, said = more
        save(beside, [[*head, "ward", "sex"], *([*line, *two] for line, two in zip(lines, said, strict=True))])


def save(path: Path, lines: list[list[object]]) -> None:
    """A CSV file of these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)


def main() -> None:
    """Write a folder with a file of each hospital, and one of new patients beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(), help="folder to write into (default: this one)")
    out = parser.parse_args().out
    rng, chance = np.random.default_rng(19), np.random.default_rng(21)
    for name, (n, shift, order) in HOSPITALS.items():
        rows = patients(rng, n, shift)
        beside = out / "with-words" / f"{name}.csv"
        write(out / "hospitals" / f"{name}.csv", rows, order, rng, (beside, words(rows, WARDS[name], chance)))
    new = patients(rng, 40, HOSPITALS["trier"][1])
    new[17, 3] /= 18.0  # the glucose of one patient in mmol/l, where all others are in mg/dl
    write(out / "new.csv", new, HOSPITALS["trier"][2], np.random.default_rng(20))
    lines = "".join(f"{name},{low},{high}\n" for name, (low, high) in RANGES.items())
    (out / "ranges.csv").write_text(f"column,low,high\n{lines}")
    names = ", ".join(f"{name}.csv" for name in HOSPITALS)
    print(f"{out / 'hospitals'}: {names}; the same with ward and sex in with-words; new.csv and ranges.csv beside them")


if __name__ == "__main__":
    main()
