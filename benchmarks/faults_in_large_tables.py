"""Which mistakes do the hints find in tables that are too large to be sorted?

    python -m benchmarks.faults_in_large_tables [cells, default 4194304] [tables, default 20] [seed, default 0]

Three sites share a table of 30 columns: rounded and unrounded measurements, counts, codes, and columns with long tails.
One mistake of each kind is made at one site at a random place, and the hints that a run would give are counted: those
that name the mistake, and all others. Clean tables are counted for each order in memory, and so are clean tables whose
columns all have long tails.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks import table as markdown
from flower_pca.hints import faults
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

D, FACTORS = 30, 6
NAMES = tuple(f"c{j:02d}" for j in range(D))
Sites = list[np.ndarray]

_OF_KIND: tuple[Callable, ...] = (
    lambda rng, z: (60 + 14 * z).clip(18, 99).round(),
    lambda rng, z: (75 + 12 * z).clip(30).round(1),
    lambda rng, z: np.exp(1 + 0.6 * z).round(2),
    lambda rng, z: rng.poisson(3, len(z)),
    lambda rng, z: z > 0.5,
    lambda rng, z: 130 + 15 * z,
    lambda rng, z: z,
    lambda rng, z: (38 + 0.5 * z).round(1),
    lambda rng, z: rng.integers(1, 6, len(z)),
    lambda rng, z: 100 + 10 * z + rng.standard_t(4, len(z)),
)


def measurements(rng: np.random.Generator, n: int) -> np.ndarray:
    """Correlated columns of ten kinds, three times each."""
    Z = rng.standard_normal((n, FACTORS)) @ (0.5 * rng.standard_normal((FACTORS, D))) + rng.standard_normal((n, D))
    return np.column_stack([_OF_KIND[j % 10](rng, Z[:, j]) for j in range(D)]).astype(float)


def long_tails(rng: np.random.Generator, n: int) -> np.ndarray:
    """Positive columns with tails from nearly normal ones to those of a Pareto law."""
    laws = (
        lambda: rng.lognormal(0, 0.3, n), lambda: rng.lognormal(0, 1, n), lambda: rng.lognormal(0, 2, n),
        lambda: 50 + rng.standard_t(3, n) ** 2, lambda: 1 + rng.pareto(1, n), lambda: 1 + rng.pareto(3, n),
        lambda: rng.exponential(2, n) + 0.1, lambda: rng.gamma(4, 2, n), lambda: rng.weibull(0.5, n) + 0.01,
        lambda: rng.chisquare(3, n),
    )  # fmt: skip
    return np.column_stack([laws[j % 10]() for j in range(D)])


def one_of(rng: np.random.Generator, S: Sites) -> int:
    return int(rng.integers(len(S)))


def cells(value: float, count: int = 3) -> Callable:
    def plant(rng: np.random.Generator, S: Sites) -> str:
        i = one_of(rng, S)
        S[i][rng.integers(0, len(S[i]) - 50, count), rng.choice([1, 5, 9, 11, 15, 19])] = value
        return f"holds {value:g} {count} times"

    return plant


def shifted_point(factor: float, columns: tuple[int, ...]) -> Callable:
    def plant(rng: np.random.Generator, S: Sites) -> str:
        i = one_of(rng, S)
        S[i][rng.integers(len(S[i]) - 50), rng.choice(columns)] *= factor
        return "holds a value that looks"

    return plant


def statistics_below(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    X = S[i]
    S[i] = np.r_[X, np.round([X.mean(0), X.std(0, ddof=1), X.min(0), X.max(0)], 2)]
    return "are the mean, standard deviation, minimum and maximum"


def total_below(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    S[i] = np.r_[S[i], S[i].sum(0)[None]]
    return "is the sum of the lines above"


def total_within(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    at = int(rng.integers(100, len(S[i]) - 100))
    S[i] = np.insert(S[i], at, S[i].sum(0), axis=0)
    return "is the sum of other lines"


def one_subtotal(of: int) -> Callable:
    def plant(rng: np.random.Generator, S: Sites) -> str:
        i = one_of(rng, S)
        at = int(rng.integers(100, len(S[i]) - 100))
        S[i] = np.insert(S[i], at, S[i][at - of : at].sum(0), axis=0)
        return "is the sum of other lines"

    return plant


def subtotals(every: int) -> Callable:
    def plant(rng: np.random.Generator, S: Sites) -> str:
        i = one_of(rng, S)
        parts = np.split(S[i], np.arange(every, len(S[i]), every))
        S[i] = np.concatenate([rows for part in parts for rows in (part, part.sum(0)[None])])
        return "is the sum of other lines"

    return plant


def rows_twice(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    S[i] = np.r_[S[i], S[i][rng.permutation(len(S[i]))[: len(S[i]) // 15]]]
    return "repeat earlier rows"


def one_row_often(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    at = rng.permutation(len(S[i]))[:12]
    S[i][at] = S[i][at[0]]
    return "occur in 12 rows"


def rows_of_another_site(rng: np.random.Generator, S: Sites) -> str:
    here, there = rng.permutation(len(S))[:2]
    S[there] = np.r_[S[there], S[here][rng.permutation(len(S[here]))[: len(S[here]) // 12]]]
    return "are also in"


def empty_row(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    S[i][rng.integers(len(S[i]) - 50)] = np.nan
    return "holds no value"


def other_codes(rng: np.random.Generator, S: Sites) -> str:
    S[one_of(rng, S)][:, 4] += 1
    return "is coded by"


def constant(rng: np.random.Generator, S: Sites) -> str:
    S[one_of(rng, S)][:, 15] = 120.0
    return "is 120 in all rows"


def turned_sign(rng: np.random.Generator, S: Sites) -> str:
    S[one_of(rng, S)][:, 5] *= -1
    return "seems to have the opposite sign"


def swapped(rng: np.random.Generator, S: Sites) -> str:
    i = one_of(rng, S)
    S[i][:, [5, 7]] = S[i][:, [7, 5]]
    return "seem to be swapped"


KINDS: dict[str, Callable] = {
    "3 cells of -999": cells(-999.0),
    "3 cells of 9999": cells(9999.0),
    "3 cells of -99": cells(-99.0),
    "3 cells of 1e20": cells(1e20),
    "a cell 10 times too large": shifted_point(10.0, (1, 5, 7, 11)),
    "a cell 100 times too large": shifted_point(100.0, (7, 17, 27)),
    "a cell 10 times too small": shifted_point(0.1, (7, 17, 27)),
    "lines of mean, sd, minimum, maximum": statistics_below,
    "a line of totals at the end": total_below,
    "a line of totals elsewhere": total_within,
    "subtotals of 500 rows": subtotals(500),
    "subtotals of 7 rows": subtotals(7),
    "one subtotal of 12 rows": one_subtotal(12),
    "one subtotal of 4 rows": one_subtotal(4),
    "a fifteenth of the rows twice": rows_twice,
    "one row 12 times": one_row_often,
    "a twelfth of a site's rows also at another": rows_of_another_site,
    "a row without values": empty_row,
    "1 and 2 for 0 and 1 at one site": other_codes,
    "a column constant at one site": constant,
    "a sign turned at one site": turned_sign,
    "two columns swapped at one site": swapped,
}


def hints(S: Sites) -> tuple[str, ...]:
    clients = [LocalData(Table(X, NAMES, site=f"site{i}"), missing=True) for i, X in enumerate(S)]
    return faults.find_hints(clients, most=faults.CHEAP)


def main(cells: int = 2**22, tables: int = 20, seed: int = 0) -> None:
    n, rng = cells // D // 3 + 1, np.random.default_rng(seed)
    lines, clean, seconds = [], [0, 0, 0], []
    found, others = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for _ in range(tables):
        base = [measurements(rng, n + int(rng.integers(100))) for _ in range(3)]
        begin = time.process_time()
        clean[0] += bool(hints(base))
        seconds.append(time.process_time() - begin)
        clean[1] += bool(hints([np.asfortranarray(X) for X in base]))
        clean[2] += bool(hints([long_tails(rng, n) for _ in range(3)]))
        for kind, plant in KINDS.items():
            S = [X.copy() for X in base]
            wanted = plant(rng, S)
            said = hints(S)
            named = sum(wanted in hint for hint in said)
            found[kind] += named > 0
            others[kind] += len(said) > named
    for kind in KINDS:
        lines.append([kind, f"{found[kind]} of {tables}", str(others[kind])])
    for kind, count in zip(("clean, by rows", "clean, by columns", "clean, with long tails"), clean, strict=True):
        lines.append([kind, "", str(count)])
    print(markdown(["mistake", "found", "tables with other hints"], lines))
    print(f"{1e3 * np.median(seconds):.0f} ms of a clean table of {3 * n} x {D}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
