"""The experiments of personalized PCA beside this package's numbers: `python -m sims.personal`.

Shi and Kontar, "Personalized PCA: decoupling shared and unique features", JMLR 2024.
Its figures are pictures and its parameters partly unknown: tables show ours, notes what the paper says of its own.
Problems and algorithms draw from separate random streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sims.common import report
from sims.personal import rates, real, small, tables, theory

EXPERIMENTS: Final[report.Experiments] = {
    "fig1": small.fig1,
    "fig3": rates.fig3,
    "fig4": rates.fig4,
    "weights": rates.weights,
    "fig5": rates.fig5,
    "fig6": rates.fig6,
    "deviations": rates.deviations,
    "table2": tables.table2,
    "table3": tables.table3,
    "fig7": tables.fig7,
    "fig8": tables.fig8,
    "fig9": tables.fig9,
    "table4": real.table4,
    "table5": real.table5,
    "video": real.video,
    "topics": real.topics,
    "fig10": small.fig10,
    "fig11": small.fig11,
    "theorem1": theory.bound,
    "theorem2": theory.least,
    "corollary3": theory.consistency,
    "corollary11": theory.rounds,
    "theorem8": theory.stationary,
}
SEEDS: Final = (2, 10)  # in small size, in the paper's


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of personalized PCA (JMLR 2024) beside this package's numbers."
    report.main(argv, room="personal", about=about, experiments=EXPERIMENTS, seeds=SEEDS)
