"""The experiments of personalized PCA beside this package's numbers: `python -m sims.personal`.

Shi and Kontar, "Personalized PCA: decoupling shared and unique features", JMLR 2024. "Expected" are this project's own
earlier figures, by an independent implementation. Problems and algorithms draw from separate random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flower_pca import DataError
from sims.common import report
from sims.personal import rates, real, tables

TABLES: Final[dict[str, Callable[[report.Options], report.Table]]] = {
    "fig3": rates.fig3,
    "fig4": rates.fig4,
    "weights": rates.weights,
    "fig5": rates.fig5,
    "fig6": rates.fig6,
    "table2": tables.table2,
    "table3": tables.table3,
    "fig8": tables.fig8,
    "fig9": tables.fig9,
    "table4": real.table4,
    "table5": real.table5,
    "video": real.video,
    "topics": real.topics,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of personalized PCA (JMLR 2024) beside this package's numbers."
    opts = report.options(argv, about=about, known=tuple(TABLES), seeds=(2, 10))
    print(f"{opts.seeds} seed(s), means. {report.NONE}: not known.")
    for name in opts.only:
        try:
            report.table(opts.out, f"personal_{name}", TABLES[name](opts))
        except DataError as error:
            report.progress(f"{name} is left out: {error}")
    print(f"\nCSV and PNG are in {opts.out}")
