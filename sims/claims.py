"""What the papers say of their tables and figures, as checks on a table's rows: at any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

Rows: TypeAlias = list[dict[str, str]]


@dataclass(frozen=True)
class Claim:
    """A sentence, and whether a table bears it out; in small size maybe not, where runs end long before."""

    words: str
    holds: Callable[[Rows], bool]
    small: bool = True


def number(cell: str) -> float:
    """The number that a cell begins with: "4.1e-03 (4.2e-04)", "3..7" or "> 40"; infinity if there is none."""
    start = cell.removeprefix("> ").partition(" ")[0].partition("..")[0].rstrip("%")
    try:
        return float(start)
    except ValueError:
        return float("inf")


def ours(rows: Rows) -> Rows:
    """The rows that are ours."""
    return [row for row in rows if row.get("of", "ours") == "ours"]


def _below(better: str, worse: str) -> Callable[[Rows], bool]:
    return lambda rows: all(number(row[better]) < number(row[worse]) for row in ours(rows))


def _mostly_below(better: str, worse: str) -> Callable[[Rows], bool]:
    return lambda rows: sum(number(row[better]) <= number(row[worse]) for row in ours(rows)) > len(ours(rows)) / 2


def _rising(rows: Rows) -> bool:
    """Along the m columns."""
    found = [[number(v) for k, v in row.items() if k.startswith("m=")] for row in ours(rows)]
    return all(row == sorted(row) for row in found)


def _near_paper(rows: Rows, factor: float = 2.0) -> bool:
    """All our figures within a factor of the paper's of the same set."""
    pairs = [(a, b) for a, b in pairwise(rows) if a["of"] == "paper" and b["of"] == "ours"]
    ratios = [number(b[k]) / number(a[k]) for a, b in pairs for k in a if k not in ("data", "of")]
    return all(1 / factor <= r <= factor for r in ratios)


def _near_columns(*names: str, factor: float = 2.0) -> Callable[[Rows], bool]:
    """Our figures in these columns within a factor of the paper's of the same set."""

    def holds(rows: Rows) -> bool:
        pairs = [(a, b) for a, b in pairwise(rows) if a["of"] == "paper" and b["of"] == "ours"]
        return all(1 / factor <= number(b[k]) / number(a[k]) <= factor for a, b in pairs for k in names)

    return holds


def _ordered_as_paper(first: str, second: str) -> Callable[[Rows], bool]:
    """The two methods rank as in the paper on every set; below one another where there is no paper."""

    def holds(rows: Rows) -> bool:
        paper = {row["data"]: number(row[first]) < number(row[second]) for row in rows if row["of"] == "paper"}
        return all((number(r[first]) < number(r[second])) == paper.get(r["data"], True) for r in ours(rows))

    return holds


def _by_set(rows: Rows, column: str) -> list[list[float]]:
    counted = ours(rows)
    sets = dict.fromkeys(row["data"] for row in counted)
    return [[number(row[column]) for row in counted if row["data"] == name] for name in sets]


def _mostly_fewer(rows: Rows) -> bool:
    """On most sets the error at the end is smaller with the fewest clients than with the most."""
    found = _by_set(rows, "at the end")
    return sum(c[0] < c[-1] for c in found) > len(found) / 2


def _early(rows: Rows) -> bool:
    """More local steps are ahead of none after five messages."""
    return all(min(column[1:]) < column[0] for column in _by_set(rows, "after 5"))


def _errors(rows: Rows, kind: str, few: bool = False) -> list[tuple[float, list[float]]]:
    """Of what is ours: indivPCA's error of this kind, those of CPCA, distPCA, ExactPerPCA; if few, of 60 rows."""
    counted = [row for row in rows if row["rows"] == "60" or not few]
    kept = [row for row in counted if row["error of"] == kind and not row["data"].endswith("paper")]
    return [
        (number(row["indivPCA"]), [number(row[name]) for name in ("CPCA", "distPCA", "ExactPerPCA")]) for row in kept
    ]


def _near_bounded(rows: Rows) -> bool:
    """DCF-PCA's errors of singular values, within a factor of two of the paper's."""
    ratios = [number(row["DCF-PCA, lambda=0.3"]) / number(row["paper"]) for row in rows]
    return all(0.5 <= ratio <= 2.0 for ratio in ratios)


def _growing(rows: Rows) -> bool:
    found = [number(row["DCF-PCA, lambda=0.3"]) for row in rows]
    return found == sorted(found)


def _more_clients(rows: Rows) -> bool:
    """With the most clients the error is larger than with the fewest, with four local steps and more."""
    found = [_by_set(rows, f"p={p}") for p in (4, 8, 16)]
    return all(column[-1] > column[0] for columns in found for column in columns)


def _more_steps(rows: Rows) -> bool:
    """With the most clients the error is larger with sixteen local steps than with two."""
    few, many = (_by_set(rows, f"p={p}") for p in (2, 16))
    return all(b[-1] > a[-1] for a, b in zip(few, many, strict=True))


def _limited(rows: Rows) -> bool:
    """DCF-PCA recovers L at the paper's limit, and not where rank and far entries are both beyond it."""
    found = {row["r/n"]: row for row in rows}
    return number(found["0.15"]["s=0.2"]) <= 0.16 < 1.0 < number(found["0.2"]["s=0.3"])


def _slopes(rows: Rows) -> bool:
    equal, *_, larger = rows
    return number(equal["total by d"]) > number(larger["total by d"]) and (
        number(equal["total by clients"]) > number(larger["total by clients"])
    )


def _late(rows: Rows) -> bool:
    """Rule (27) stops at a tenth of the error that the paper prints, or less."""
    printed = number(rows[0]["error"])
    return all(number(row["error"]) <= printed / 10 for row in rows if row["looked at"] == "(27) stops")


def _together(rows: Rows) -> bool:
    """Where the error is the paper's, so is the KKT violation."""
    kkt = number(rows[0]["KKT"])
    return all(kkt / 1.3 <= number(r["KKT"]) <= 1.3 * kkt for r in rows if r["looked at"].startswith("error"))


def _to_rounding(column: str) -> Callable[[Rows], bool]:
    return lambda rows: all(number(row[column]) <= 1e-12 for row in rows)


def _above(column: str, least: float) -> Callable[[Rows], bool]:
    return lambda rows: all(number(row[column]) >= least for row in rows)


def _by_penalty(rows: Rows) -> tuple[Rows, Rows]:
    """Those of the paper's first penalties, and those of penalties as Assumption 6 has them."""
    small = [row for row in rows if row["penalty"].startswith("0.15")]
    return small, [row for row in rows if row not in small]


def _bounded(rows: Rows) -> bool:
    large = _by_penalty(rows)[1]
    return all(number(row["N min, N=3000"]) <= number(row["N min, N=1000"]) for row in large)


def _farther(rows: Rows) -> bool:
    small, large = _by_penalty(rows)
    ends = [[number(row["sine at the end"]) for row in part] for part in (small, large)]
    return max(ends[0]) < min(ends[1])


def _at_most(column: str, most: float) -> Callable[[Rows], bool]:
    return lambda rows: all(number(row[column]) <= most for row in rows)


def _spanned(rows: Rows) -> bool:
    """C_1 to rounding where the blocks have all ranks, and not before."""
    whole = max(number(row["rank of the blocks"]) for row in rows)
    return all((number(row["error of C_1"]) <= 1e-10) == (number(row["rank of the blocks"]) == whole) for row in rows)


def _multiplied(rows: Rows) -> bool:
    ends = [number(row["sum of multipliers Z"]) for row in rows]
    return all(end <= 1e-12 < first for first, end in zip(ends[::2], ends[1::2], strict=True))


def _constant(column: str, factor: float) -> Callable[[Rows], bool]:
    def holds(rows: Rows) -> bool:
        found = [number(row[column]) for row in rows]
        return max(found) <= factor * min(found)

    return holds


def _falling(rows: Rows) -> bool:
    return all(number(row["T min, T=100"]) <= number(row["T min, T=10"]) for row in rows)


def _vanishing(rows: Rows) -> bool:
    """L is nothing where rho is above its limit, and something at the least rho."""
    above = [row for row in rows if number(row["rho / (lambda sqrt(mn))"]) > 1.0]
    return all(number(row["the most"]) <= 1e-3 for row in above) and number(rows[0]["||L|| / ||L_0||, the least"]) > 0.5


def _parted(rows: Rows) -> bool:
    """The parts are found with one to three local components too many."""
    few = [list(row.values()) for row in rows if row["own ranks"] in ("r2+1", "r2+2", "r2+3")]
    return all(_last(row[-1]) <= 1e-3 for row in few)


def _no_worse(rows: Rows) -> bool:
    """Measured penalties take at most 1.3 times the paper's messages, in every draw of the page's problems.

    Where the paper's come to no end in any, measured ones do in all.
    """
    posed = [row for row in rows if row["of"] == "the page"]
    shares = [row["measured / paper's"] for row in posed if row["paper's"] != "-"]
    beyond = [row["measured"] for row in posed if row["paper's"] == "-"]
    return all(number(share.rpartition("..")[2]) <= 1.3 for share in shares) and not any("-" in cell for cell in beyond)


def _followed(rows: Rows) -> bool:
    """NoDet's error is below simple PCA's, the more the slower the turn."""
    shares = [number(row["NoDet"]) / number(row["simple PCA"]) for row in rows]
    return shares == sorted(shares) and shares[-1] < 1.0


def _again(rows: Rows) -> bool:
    """The slowest fall after the change is as fast as the slowest at the start, to a tenth."""
    return number(rows[1]["most"]) <= 1.1 * number(rows[0]["most"]) < 1.0


def _stalled(rows: Rows) -> bool:
    """Somewhere NORST's error stays as it is while NoDet's falls to a tenth."""
    moving, resting = ([number(v) for k, v in row.items() if k != "method"] for row in rows)
    pairs = zip(pairwise(moving), pairwise(resting), strict=True)
    return any(a == b and after <= before / 10 for (before, after), (a, b) in pairs)


def _cured(rows: Rows) -> bool:
    found = [row for row in rows if row["reading"] == "R with a positive diagonal"]
    return all(0.9 <= number(row["vanilla"]) / number(row["sign"]) <= 1.1 for row in found)


def _larger(rows: Rows) -> bool:
    errors = [
        {row["reading"]: number(row["OPT"]) for row in rows if row["data"] == name}
        for name in dict.fromkeys(row["data"] for row in rows)
    ]
    return all(each["all five columns, spectral norm"] > each["the program"] for each in errors)


def _last(cell: str) -> float:
    """The most of a span."""
    return number(cell.rpartition("..")[2])


def _half(rows: Rows) -> bool:
    found = {row["algorithm"]: row["messages"] for row in rows}
    return 2.0 * _last(found["FAPS, 20 inner steps"]) <= _last(found["SSI"])


def _halved(rows: Rows) -> bool:
    found = {row["algorithm"]: row["of starts like the paper's"] for row in rows}
    ssi, local = _last(found["SSI"]), _last(found["LocalPower"])
    return ssi == float("inf") or abs(local / ((ssi - 12.0) / 2.0 + 2.0) - 1.0) <= 0.05


def _ranked(rows: Rows) -> bool:
    return all(
        _last(row["FAPS"]) < number(row["LocalPower"]) <= _last(row["LocalPower"]) < number(row["SSI"]) for row in rows
    )


def _insensitive(rows: Rows) -> bool:
    found = [[_last(row[name]) for row in rows] for name in ("SSI", "LocalPower", "FAPS")]
    return all(max(column) <= 1.1 * min(column) for column in found)


def _unknown(rows: Rows) -> bool:
    """With twenty blocks and more to span everything, C_1 is not known to 1e-5."""
    return all(number(row["error after 100"]) > 1e-5 for row in rows if number(row["d / p"]) >= 20)


def _told(rows: Rows) -> bool:
    """With ten it is, but by the formula as printed."""
    least = [row for row in rows if number(row["d / p"]) == 10 and row["solver"].startswith("least norm")]
    return all(_last(row["error after 100"]) <= 1e-5 for row in least)


def _ahead(rows: Rows) -> bool:
    """FAPS with ten inner steps is ahead of LocalPower from every start but for the fastest spectrum."""
    return all(_last(row["10: FAPS / LocalPower"]) < 1.0 for row in rows if not row["problem"].endswith("xi=1.1"))


def _behind(rows: Rows) -> bool:
    """For the fastest spectrum it is behind, with any number of inner steps."""
    fast = [row for row in rows if row["problem"].endswith("xi=1.1")]
    return all(number(row[f"{steps}: FAPS / LocalPower"]) > 1.0 for row in fast for steps in (10, 20, 40))


def _below_noise(rows: Rows) -> bool:
    return all(_last(row["off over sigma sqrt(n)"]) < 1.0 for row in rows)


_PICTURES: Final = (
    Claim(
        "indivPCA has the lowest training error", lambda rows: all(a <= min(b) for a, b in _errors(rows, "training"))
    ),
    Claim(
        "with 60 rows a client indivPCA's testing error is above those of CPCA, distPCA and ExactPerPCA",
        lambda rows: all(a >= max(b) for a, b in _errors(rows, "testing", few=True)),
    ),
    Claim(
        "with 60 rows a client ExactPerPCA has the lowest testing error",
        lambda rows: all(b[2] <= min(a, *b) for a, b in _errors(rows, "testing", few=True)),
    ),
    Claim(
        "ExactPerPCA's testing error is the lowest with any number of rows",
        lambda rows: all(b[2] <= min(a, *b) for a, b in _errors(rows, "testing")),
    ),
    Claim(
        "ExactPerPCA is at or below CPCA and distPCA in both errors",
        lambda rows: all(b[2] <= min(b) for kind in ("training", "testing") for _, b in _errors(rows, kind)),
    ),
)
_GROWING_STEPS: Final = Claim(
    "PerPCA, whose step grows, is at or below CPCA in testing",
    lambda rows: all(number(r["PerPCA"]) <= number(r["CPCA"]) for r in ours(rows) if r["error of"] == "testing"),
    small=False,
)
_BOUNDED: Final = (
    Claim("DCF-PCA's error is within a factor 2 of the paper's for every n", _near_bounded),
    Claim("DCF-PCA's error grows with n", _growing),
)
_ETA: Final = (
    Claim("the more clients, the larger eta", _rising),
    Claim("every mean within a factor 2 of the paper's", _near_paper),
)
_ONE_SHOT: Final = (
    Claim("OPT ends below UDA and WDA on every set", lambda r: _below("OPT", "UDA")(r) and _below("OPT", "WDA")(r)),
    Claim("OPT and DR-SVD rank as in the paper on every set", _ordered_as_paper("OPT", "DR-SVD")),
    Claim("OPT and sign-fixing are within a factor 2 of the paper's on every set", _near_columns("OPT", "sign")),
    Claim("OPT ends at or below sign-fixing on most sets", _mostly_below("OPT", "sign")),
)
_CURVES: Final = (Claim("with local steps the error is ahead of p=1 after five messages", _early),)
_COUNTS: Final = (
    Claim("more clients, a larger final error", lambda rows: all(c == sorted(c) for c in _by_set(rows, "at the end"))),
)
_FEWER: Final = (Claim("fewer clients, a smaller final error, on most sets", _mostly_fewer),)
CLAIMS: Final[Mapping[str, tuple[Claim, ...]]] = {
    "local_power/table1": _ONE_SHOT,
    "local_power/table3": _ETA,
    "local_power/table5": _ETA,
    "local_power/table6": _ONE_SHOT,
    "local_power/readings": (
        Claim("with a positive diagonal of R, vanilla is within a tenth of sign-fixing", _cured),
        Claim("all five columns have a larger error of OPT than four", _larger),
    ),
    "local_power/lemma1": (
        Claim("messages are at most (3) with 1 for its constant", _at_most("over (3), 1e-06", 1.0)),
    ),
    "local_power/lemma2": (
        Claim(
            "eta is below its bound", lambda rows: all(number(r["eta, m=20"]) < number(r["bound, m=20"]) for r in rows)
        ),
    ),
    "faps_alike/table1": (Claim("FAPS takes at most half of SSI's messages", _half),),
    "faps_alike/table4": (
        Claim("FAPS takes at most half of SSI's messages", _half),
        Claim("LocalPower takes half of SSI's messages, to a twentieth, in starts like the paper's", _halved),
    ),
    "faps_alike/inner": (
        Claim("with 10 inner steps FAPS takes fewer messages than LocalPower, but for xi=1.1", _ahead, small=False),
        Claim("for xi=1.1 it takes more, with any number of inner steps", _behind, small=False),
    ),
    "leak/others": (
        Claim("with d / p of 20 and more C_1 is not known to 1e-5, by any rows and solver", _unknown),
        Claim("with d / p of 10 it is by least norm, for any rows", _told),
    ),
    "faps_alike/fig4": (
        Claim("FAPS is first, then LocalPower, for every condition number", _ranked),
        Claim("messages differ by at most a tenth between condition numbers", _insensitive),
    ),
    "personal/theorem2": (
        Claim("the last column stays above a hundredth", _above("over (1 / theta + 1 / delta^2) too", 0.01)),
    ),
    "over_air/lemma42": (Claim("off by less than sigma sqrt(n)", _below_noise),),
    "personal/table5": (*_PICTURES, _GROWING_STEPS),
    "personal/fig7": (Claim("with up to three local components too many the parts are found", _parted),),
    "personal/deviations": (
        Claim("equal deviations: slower by clients and faster by d than ten times larger", _slopes),
    ),
    "robust/zeros": (Claim("L is recovered at r = 0.15 n, s = 0.2, and not beyond both", _limited, small=False),),
    "robust/table1": _BOUNDED,
    "faps/rule": (
        Claim("where SSI's error is the printed one, its KKT violation is the printed one too", _together),
        Claim("rule (27) stops at a tenth of the printed error, or less", _late),
    ),
    "faps/proposition2": (Claim("C_1 to rounding as soon as the blocks span everything", _spanned),),
    "faps/proposition3": (
        Claim("the sum of multipliers times Z is 0 where FAPS ends, and not before", _multiplied),
        Claim("the clients' equations hold to rounding", _to_rounding("of the clients' equations")),
    ),
    "personal/theorem1": (
        Claim("the error is below its bound", _at_most("share", 1.0)),
        Claim("Lemma 13 holds", _above("Lemma 13", 1.0)),
    ),
    "personal/corollary3": (
        Claim("the error over the mean of 1 / n_i is the same within a fifth", _constant("error / mean", 1.2)),
        Claim("poor clients have less of an error together than alone", _below("shared, of poor clients", "alone")),
    ),
    "personal/theorem8": (Claim("T times the least violation does not grow from T=10 to T=100", _falling),),
    "robust/lemma2": (Claim("to 1e-6", _at_most("off central differences, relative", 1e-6)),),
    "robust/theorem1": (Claim("the mean squared gradient is below the bound", _at_most("share", 1.0)),),
    "robust/theorem2": (Claim("L is 0 above the limit, and not at a hundredth of it", _vanishing),),
    "over_air/lemma41": (
        Claim("the error left is at most sigma sqrt(n) / gap", _at_most("of sigma sqrt(n) / gap", 1.0)),
    ),
    "over_air/theorem36": (Claim("NoDet is below simple PCA, the farther the slower the turn", _followed),),
    "over_air/theorem39": (Claim("after the change the error falls as fast as at the start", _again),),
    "faps/penalties": (
        Claim("on the page's problems measured penalties nowhere take more than 1.3 times the messages", _no_worse),
    ),
    "faps/proposition5": (
        Claim("every answer is what (20) says, to rounding", _to_rounding("of (20), relative")),
        Claim("C_1 does not follow from answers taken for C_1 Z", _above("C_1 from all answers", 0.1)),
    ),
    "faps/theorem8": (
        Claim("by penalties as in Assumption 6 N times the least violation falls from N=1000 to N=3000", _bounded),
        Claim("by such penalties more of the angle is left after 3000 rounds than by 0.15 ||C_i||", _farther),
    ),
    "over_air/stall": (Claim("after its updates NORST stays where it is, while NoDet goes on", _stalled),),
    **{f"local_power/fig{name}": _CURVES for name in ("2a", "3a", "5", "6", "7", "8", "9", "10")},
    "local_power/fig3b": _COUNTS,
    "local_power/fig11": _FEWER,
    "local_power/fig13": (
        Claim("the most clients have a larger error than the fewest, for p=4, 8 and 16", _more_clients, small=False),
        Claim("with the most clients p=16 has a larger error than p=2", _more_steps, small=False),
    ),
    "local_power/fig12": _FEWER,
}
