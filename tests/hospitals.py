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


def is_pooled(result, columns=SORTED):
    rows = X[:, [NAMES.index(name) for name in columns]]
    _, s, V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    signs = np.sign(np.sum(V[:3] * result.components_, axis=1))[:, None]
    assert result.feature_names_in_.tolist() == list(columns)
    assert result.site_names == dict(enumerate(SITES))
    np.testing.assert_allclose(result.explained_variance_, s[:3] ** 2 / (len(X) - 1), rtol=1e-12)
    np.testing.assert_allclose(result.components_, V[:3] * signs, atol=1e-10)
