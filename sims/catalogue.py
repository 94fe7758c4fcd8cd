"""Every table and figure of the five papers: what runs it, at which size, and whether it comes out as printed."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Final

from sims.common import report

PAPERS: Final = {
    "local_power": (
        "LocalPower",
        'Li, Wang, Chen, Zhang, "Communication-efficient distributed SVD via local power iterations", ICML 2021',
    ),
    "faps": (
        "FAPS",
        'Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022',
    ),
    "personal": ("PerPCA", 'Shi, Kontar, "Personalized PCA: decoupling shared and unique features", JMLR 2024'),
    "robust": ("DCF-PCA", 'Chu, "Distributed robust principal component analysis"'),
    "over_air": (
        "Over-air tracking",
        'Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from incomplete and corrupted '
        'data", 2022',
    ),
}


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes
    ----------
    paper : str
        Key of PAPERS.
    name : str
        Its number there.
    about : str
        What it shows.
    program : str or None
        room/experiment, which is also where its record lies; None where there is nothing to run.
    size : str
        The paper's size.
    minutes : float
        Of one core at that size, about.
    seeds : int or None
        How many at the paper's size, if the paper says; None for as many as the room takes.
    sets : int
        Over how many data sets it goes in the paper, if these are what its rows are of.
    had : int
        How many of them can be had here.
    beside : bool
        Is it no table of the paper's, but what another rests on? It does not count.
    """

    paper: str
    name: str
    about: str
    program: str | None = None
    size: str = ""
    minutes: float = 0.0
    seeds: int | None = None
    sets: int = 0
    had: int = 0
    beside: bool = False

    def experiment(self) -> tuple[report.Experiments, str, int]:
        """The room's experiments, the name among them, and the seeds of the paper's size."""
        assert self.program is not None
        room, name = self.program.split("/")
        single = room in ("faps", "faps_alike", "leak")
        module = importlib.import_module(f"sims.{room}" if single else f"sims.{room}.experiments")
        return module.EXPERIMENTS, name, self.seeds or module.SEEDS[1]


_SAMPLED: Final = "rows dealt in order, on the leading 250 columns"
_ALL_SETS: Final = "15 sets, of which 10 can be had"
_MAIN_SETS: Final = "7 sets, mnist not among them, of which 4 can be had; 10 seeds"
_SETS: Final = "15 sets, of which 10 can be had; 10 seeds"
_DRAWN: Final = "15 sets, of which 10 can be had; a seed, {} here"
_FIVE, _TEN = _DRAWN.format("five"), _DRAWN.format("ten")
_LP: Final = (
    Item("local_power", "Fig. 1", "how rows are dealt, and the symbols"),
    Item("local_power", "Table 1", "final errors, p=4", "local_power/table1", _MAIN_SETS, 1, sets=7, had=4),
    Item("local_power", "Table 2", "final errors with decay", "local_power/table2", _MAIN_SETS, 1, sets=7, had=4),
    Item("local_power", "Table 3", "eta by clients", "local_power/table3", _MAIN_SETS, 1, seeds=10, sets=7, had=4),
    Item("local_power", "Table 4", "the sets", "local_power/table4", _ALL_SETS, 1, seeds=1, sets=15, had=10),
    Item("local_power", "Table 5", "eta by clients", "local_power/table5", _FIVE, 3, seeds=5, sets=15, had=10),
    Item("local_power", "Table 6", "final errors, p=4", "local_power/table6", _SETS, 5, sets=15, had=10),
    Item("local_power", "Table 7", "final errors with decay", "local_power/table7", _SETS, 2, sets=15, had=10),
    Item("local_power", "Fig. 2a", "p, on covtype", "local_power/fig2a", "covtype, 582 clients", 2, seeds=10),
    Item("local_power", "Fig. 2b", "stability, on a9a", "local_power/fig2b", "a9a, 33 clients", 1, seeds=10),
    Item("local_power", "Fig. 3a", "decay, on covtype", "local_power/fig3a", "covtype, 582 clients", 1, seeds=10),
    Item("local_power", "Fig. 3b", "the number of clients", "local_power/fig3b", "covtype", 2, seeds=10),
    Item("local_power", "Fig. 3c", "the error by p and m", "local_power/fig3c", "covtype", 3, seeds=5),
    Item("local_power", "Fig. 4", "the spread of Table 6", "local_power/fig4", _SETS, 5, sets=15, had=10),
    *(
        Item("local_power", f"Fig. {number}", about, f"local_power/fig{number}", size, cost, seeds, 15, 10)
        for number, about, size, cost, seeds in (
            (5, "p, OPT", _FIVE, 6, 5),
            (6, "p, sign-fixing", _FIVE, 6, 5),
            (7, "p, vanilla", _FIVE, 6, 5),
            (8, "decay, OPT", _TEN, 3, 10),
            (9, "decay, sign-fixing", _TEN, 3, 10),
            (10, "decay, vanilla", _TEN, 3, 10),
            (11, "the number of clients, OPT", _FIVE, 6, 5),
            (12, "the number of clients, sign-fixing", _FIVE, 6, 5),
            (13, "the error by p and m", _FIVE, 14, 5),
        )
    ),
    Item("local_power", "Lemma 1", "messages by the gap, p=1", "local_power/lemma1", _ALL_SETS, 1, 10, 15, 10),
    Item("local_power", "Lemma 2", "eta by the rows of a client", "local_power/lemma2", _ALL_SETS, 3, 5, 15, 10),
    Item("local_power", "Theorem 1", "messages fall by the factor p", "local_power/theorem1", _ALL_SETS, 5, 5, 15, 10),
    Item(
        "local_power", "Theorem 2", "rho by p, with OPT and without", "local_power/theorem2", _ALL_SETS, 2, 10, 15, 10
    ),
    Item("local_power", "Corollary 1", "the error by sqrt(m / n)", "local_power/corollary1", _ALL_SETS, 14, 5, 15, 10),
    Item("local_power", "Assumption 1", "eta against kappa", "local_power/assumption1", _ALL_SETS, 1, 10, 15, 10),
    Item("local_power", "Appendix C", "more columns than components", "local_power/wider", _ALL_SETS, 11, 5, 15, 10),
    Item(
        "local_power", "Readings", "one exchanged at a time", "local_power/readings", "4 sets", 6, seeds=5, beside=True
    ),
    Item("local_power", "Table 6, packaged", "by this package", "local_power/packaged6", _SETS, 14, None, 15, 10, True),
    Item("local_power", "Table 7, packaged", "by this package", "local_power/packaged7", _SETS, 4, None, 15, 10, True),
    Item("local_power", "Fig. 2b, packaged", "by this package", "local_power/packaged2b", "a9a", 1, beside=True),
)
_FAPS: Final = (
    Item("faps", "Table 1", "SSI and FAPS", "faps_alike/table1", "d=2000, k=20", 3),
    Item("faps", "Fig. 1a", "a client's C_1 from SSI's answers", "leak/fig1a", "d=1000, n=10000, p=100", 50, seeds=5),
    Item("faps", "Fig. 1b", "the same by columns", "leak/fig1b", "d=1000..5000, n=10000, p=100", 59, seeds=5),
    Item("faps", "Fig. 2", "d, n, k and xi varied", "faps_alike/table2", "d up to 5000, k up to 40", 5, seeds=10),
    Item("faps", "Table 2", "errors of Fig. 2", "faps_alike/table2", "d up to 5000, k up to 40", 5, seeds=10),
    Item("faps", "Fig. 3", "four sets of pictures", "faps/table3", "60000 x 784, 16 clients, k=5", 8, seeds=10),
    Item("faps", "Table 3", "errors of Fig. 3", "faps/table3", "60000 x 784, 16 clients, k=5", 8, seeds=10),
    Item("faps", "Fig. 4", "arithmetic spectra", "faps_alike/fig4", "d=1000, k=10", 1, seeds=10),
    Item("faps", "Table 4", "uneven clients", "faps_alike/table4", "d=1000, k=10", 2),
    Item(
        "faps",
        "Fig. 1b, other rows",
        "by distribution and solver",
        "leak/others",
        "d=200 to 600, n=2000, p=20",
        1,
        5,
        beside=True,
    ),
    Item(
        "faps",
        "Fig. 2, inner steps",
        "10, 20 and 40 of them",
        "faps_alike/inner",
        "4 problems of Fig. 2",
        2,
        5,
        beside=True,
    ),
    Item("faps", "Table 1, sampled", "clients differ by sampling", "faps/table1", _SAMPLED, 8, 5, beside=True),
    Item("faps", "Table 2, sampled", "clients differ by sampling", "faps/table2", _SAMPLED, 66, 3, beside=True),
    Item(
        "faps",
        "Fig. 4, sampled",
        "clients differ by sampling",
        "faps/fig4",
        "rows dealt in order, all 1000 columns",
        50,
        1,
        beside=True,
    ),
    Item("faps", "Table 4, sampled", "clients differ by sampling", "faps/table4", _SAMPLED, 1, 10, beside=True),
    Item("faps", "Leading columns", "twice as many", "faps/leading", "250 and 500 columns", 12, seeds=1, beside=True),
    Item(
        "faps",
        "Penalties",
        "the paper's, and measured",
        "faps/penalties",
        "as Tables 1 and 4, Fig. 3",
        20,
        seeds=5,
        beside=True,
    ),
    Item("faps", "Rule (27)", "where it stops", "faps/rule", "d=1000, n_i=1000 i, k=10, 8 clients", 1, seeds=10),
    Item("faps", "Prop. 2", "C_1 from the answers of SSI", "faps/proposition2", "any rows", 0.1, seeds=10),
    Item("faps", "Prop. 3", "low-rank multipliers", "faps/proposition3", "any rows", 0.1, seeds=10),
    Item("faps", "Prop. 5", "what an answer is", "faps/proposition5", "any rows", 0.1, seeds=10),
    Item("faps", "Theorem 8", "violations fall as 1 / N", "faps/theorem8", "any rows", 1, seeds=10),
)
_PERSONAL: Final = (
    Item("personal", "Table 1", "related work"),
    Item("personal", "Fig. 1", "two clients in three dimensions", "personal/fig1", "theta=.127", 0.1),
    Item("personal", "Fig. 2", "a tangent space"),
    Item("personal", "Fig. 3", "rates by theta", "personal/fig3", "d=3, 2 clients, 10 starts", 1),
    Item("personal", "Fig. 4", "error by rows", "personal/fig4", "d=15, 100 clients, 5 seeds", 5, seeds=5),
    Item("personal", "Fig. 5", "error by columns", "personal/fig5", "n=10000, 100 clients", 4),
    Item("personal", "Fig. 6", "error by clients", "personal/fig6", "10 to 1000 clients", 9, seeds=5),
    Item(
        "personal",
        "Figs. 5 and 6, by local deviations",
        "slopes",
        "personal/deviations",
        "d=20 to 60, 10 to 100 clients",
        4,
        5,
        beside=True,
    ),
    Item("personal", "Table 2", "test error", "personal/table2", "100 clients, n=100 and a tenth", 0.5),
    Item("personal", "Fig. 7", "too many local components: curves", "personal/fig7", "d=30, 20 clients", 1, seeds=5),
    Item("personal", "Table 3", "theta with too many local components", "personal/table3", "d=30, 20 clients", 3),
    Item("personal", "Fig. 8", "too large shared ranks", "personal/fig8", "d=30, 20 clients", 1.5),
    Item("personal", "Fig. 9", "clients in ten groups", "personal/fig9", "d=15, r1=2, r2=3", 1.5),
    Item("personal", "Table 4", "icons before a texture", "personal/table4", "4 pictures, not published", 2),
    Item("personal", "Table 5", "FEMNIST and CIFAR-10", "personal/table5", "3550 writers; 20 clients", 42, seeds=5),
    Item("personal", "Table 6", "a film", "personal/video", "r1=r2=50, another film", 4, seeds=1),
    Item(
        "personal", "Table 7", "topics of debates", "personal/topics", "9135 dialogues, 13 years, r1=r2=2", 1, seeds=10
    ),
    Item(
        "personal",
        "Fig. 10",
        "error against 1 / delta^2",
        "personal/fig10",
        "two clients in four dimensions",
        0.1,
        seeds=1,
    ),
    Item(
        "personal",
        "Fig. 11",
        "error against 1 / theta",
        "personal/fig11",
        "two clients in four dimensions",
        0.1,
        seeds=1,
    ),
)
_PERSONAL_SAID: Final = (
    Item("personal", "Theorem 1", "the error and its bound", "personal/theorem1", "any rows", 0.3, seeds=10),
    Item("personal", "Theorem 2", "the least error", "personal/theorem2", "any rows", 0.5, seeds=10),
    Item("personal", "Corollary 4", "rows for an error", "personal/fig4", "d=15, 100 clients, 5 seeds", 5, seeds=5),
    Item("personal", "Theorem 10", "linear, faster for a larger theta", "personal/fig3", "d=3, 2 clients", 1),
    Item("personal", "Corollary 11", "rounds to that error", "personal/corollary11", "any rows", 1, seeds=5),
    Item("personal", "Corollary 3", "the error by rows", "personal/corollary3", "any rows", 0.3, seeds=10),
    Item("personal", "Theorem 8", "violations by rounds", "personal/theorem8", "any rows", 0.3, seeds=10),
)
_ROBUST: Final = (
    Item("robust", "Fig. 1", "error by round and time", "robust/fig1", "n=500, 1000, 3000", 30, seeds=5),
    Item("robust", "Fig. 2", "what can be recovered", "robust/zeros", "n=500, 20 cells", 7, seeds=10),
    Item("robust", "Fig. 2, no entry 0", "what can be recovered", "robust/fig2", "n=500, 20 cells", 5, beside=True),
    Item("robust", "Fig. 3", "the spectrum found", "robust/fig3", "n=200, p=2r", 0.3, seeds=10),
    Item("robust", "Table 1", "error of singular values", "robust/table1", "n=200, 500, 1000, 5000", 6),
    Item("robust", "Fig. 4", "local steps", "robust/fig4", "E=10, eta=.01", 2, seeds=5),
    Item("robust", "Lemma 2", "the gradient of g_i", "robust/lemma2", "any rows", 0.1, seeds=10),
    Item("robust", "Theorem 1", "the mean squared gradient", "robust/theorem1", "any rows", 0.3, seeds=10),
    Item("robust", "Theorem 2", "rho against lambda", "robust/theorem2", "any rows", 1, seeds=10),
)
_OVER_AIR: Final = (
    Item("over_air", "Table 1", "bounds of related work"),
    Item("over_air", "Fig. 1a", "a rotating subspace", "over_air/fig1a", "n=1000, d=3000", 1.5),
    Item("over_air", "Fig. 1b", "a change at once", "over_air/fig1b", "n=1000, d=3000", 1, seeds=10),
    Item(
        "over_air",
        "Fig. 1b, longer",
        "NORST stops, NoDet goes on",
        "over_air/stall",
        "n=1000, d=6000, r=30",
        0.3,
        beside=True,
    ),
    Item("over_air", "Fig. 2a", "noise of the channel", "over_air/fig2a", "n=1000, d=3000", 1, seeds=10),
    Item("over_air", "Fig. 2b", "missing entries", "over_air/fig2b", "n=1000, d=3000", 1, seeds=10),
    Item("over_air", "Fig. 3a", "over the air, rotating", "over_air/fig3a", "n=1000, d=3000", 1, seeds=10),
    Item("over_air", "Fig. 3b", "over the air, a change at once", "over_air/fig3b", "n=1000, d=3000", 1, seeds=10),
    Item("over_air", "Fig. 4a", "QR every eta products", "over_air/fig4a", "n=1000, r=50", 3, seeds=5),
    Item("over_air", "Fig. 4b", "the gap", "over_air/fig4b", "n=1000, r=50", 2, seeds=5),
    Item("over_air", "Lemma 4.1", "the power method", "over_air/lemma41", "any rows", 0.5, seeds=10),
    Item("over_air", "Lemma 4.2", "the largest eigenvalue", "over_air/lemma42", "any rows", 0.5, seeds=10),
    Item("over_air", "Theorem 4.4", "outliers, over the air", "over_air/robust", "n=1000, 3 clients", 3, seeds=5),
    Item("over_air", "Theorem 3.6", "a slow turn; 3.7", "over_air/theorem36", "any rows", 0.5, seeds=10),
    Item("over_air", "Theorem 3.9", "a change at once", "over_air/theorem39", "any rows", 0.3, seeds=10),
)
ITEMS: Final = (*_LP, *_FAPS, *_PERSONAL, *_PERSONAL_SAID, *_ROBUST, *_OVER_AIR)


def minutes() -> dict[str, float]:
    """The programs, with the minutes that each takes."""
    return {item.program: item.minutes for item in ITEMS if item.program}
