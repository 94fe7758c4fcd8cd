"""The experiments of personalized PCA beside this package's numbers: `python -m sims.personal`.

Shi and Kontar, "Personalized PCA: decoupling shared and unique features", JMLR 2024. "Expected" are this project's own
earlier figures, by an independent implementation. Problems and algorithms draw from separate random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flower_pca import DataError
from sims import personal_data, personal_rates, personal_tables
from sims.common import data, report

TABLES: Final[dict[str, Callable[[report.Options], report.Table]]] = {
    "fig3": personal_rates.fig3,
    "fig4": personal_rates.fig4,
    "weights": personal_rates.weights,
    "fig5": personal_rates.fig5,
    "fig6": personal_rates.fig6,
    "table2": personal_tables.table2,
    "table3": personal_tables.table3,
    "fig8": personal_tables.fig8,
    "fig9": personal_tables.fig9,
    "table4": personal_data.table4,
    "table5": personal_data.table5,
    "video": personal_data.video,
    "topics": personal_data.topics,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    about = "The experiments of personalized PCA (JMLR 2024) beside this package's numbers."
    opts = report.options(argv, about=about, known=tuple(TABLES), seeds=(2, 10), data_dir=data.DATA_DIR)
    print(f"{opts.seeds} seed(s), means. {report.NONE}: not known.")
    for name in opts.only:
        try:
            report.table(opts.out, f"personal_{name}", TABLES[name](opts))
        except DataError as error:
            report.progress(f"{name} is left out: {error}")
    print(f"\nCSV and PNG are in {opts.out}")


if __name__ == "__main__":
    main()
