"""What `fit` may be given: one table with the site of each row, or a list of tables, one per client."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length


def is_list(X: Any) -> bool:
    """Whether X is a list of two-dimensional tables, not one table written as a list of rows."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(len(getattr(table, "shape", ())) == 2 for table in X)


def dealt(rows: Any, sites: Any) -> tuple[list[Any], dict[int, str]]:
    """The rows of each client, in the order of the sites' names, and these names."""
    if sites is None:
        return [rows], {}
    check_consistent_length(rows, sites)
    names, client = np.unique(np.asarray(sites), return_inverse=True)
    return [rows[client == i] for i in range(len(names))], {i: str(name) for i, name in enumerate(names)}
