"""Three hospitals with one table in three orders: the rows, and how a site's file is written."""

import numpy as np
from builders import falling

NAMES = ("weight", "age", "size", "beat")
SORTED = tuple(sorted(NAMES))
X = falling(120, 4, seed=8) + np.array([70.0, 40.0, 1.7, 60.0])
SITES = {"bonn": slice(0, 60), "jena": slice(60, 100), "trier": slice(100, 120)}
ORDERS = ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0))


def write(path, rows, names, note=None, *, between=","):
    """A CSV file of these rows; with a note, a column of it beside. `between` stands between names."""
    head, ends = (",".join(names), "") if note is None else (between.join([*names, "note"]), f",{note}")
    path.write_text("\n".join([head, *(",".join(f"{value:.17g}" for value in row) + ends for row in rows)]))
    return str(path)
