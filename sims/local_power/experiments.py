"""The experiments of LocalPower beside this package's numbers: `python -m sims.local_power`.

Li, Wang, Chen, Zhang, "Communication-efficient distributed SVD via local power iterations", ICML 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sims.common import report
from sims.local_power import figures, readings, tables, theory

SEEDS: Final = (3, 10)  # in small size, in the paper's
EXPERIMENTS: Final[report.Experiments] = {
    **{f"table{i}": getattr(tables, f"table{i}") for i in range(1, 8)},
    **figures.FIGURES,
    "theorem1": theory.rounds,
    "theorem2": theory.drift,
    "assumption1": theory.smallness,
    "wider": theory.wider,
    "rounds": tables.rounds,
    "readings": readings.readings,
    "lemma1": theory.power,
    "lemma2": theory.sampled,
    "corollary1": theory.dependence,
    "packaged6": tables.packaged6,
    "packaged7": tables.packaged7,
    "packaged2b": figures.packaged2b,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of LocalPower (ICML 2021) beside this package's numbers."
    report.main(argv, room="local_power", about=about, experiments=EXPERIMENTS, seeds=SEEDS)
