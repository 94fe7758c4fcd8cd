"""What a reader calls a column or a client, with or without a name of its own; and weights of columns in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array


def column_names(names: Iterable[Any] | None, count: int) -> list[str]:
    """The name of each of `count` columns; "column 0" and so on where they have none."""
    return [f"column {j}" for j in range(count)] if names is None else [str(name) for name in names]


def client_name(names: Mapping[int, str], key: int) -> str:
    """The name of a client; "client 0" and so on where it has none."""
    return names.get(key, f"client {key}")


def numbered(what: str, numbers: Sequence[int]) -> str:
    """Numbers that follow each other, with what they are of: "component 3", "components 2 to 4"."""
    first, last = numbers[0], numbers[-1]
    return f"{what} {first}" if first == last else f"{what}s {first} {'and' if last == first + 1 else 'to'} {last}"


def leading(weights: Array, most: int) -> Array:
    """The positions of the `most` weights that are largest in size, largest first; those that are zero never."""
    order = np.argsort(-np.abs(weights), kind="stable")[:most]
    return np.asarray(order[np.abs(weights[order]) > 0.0])


HEADS: Final = ("component", "variance", "share", "together", "residual", "largest weights")  # of `variances`


def in_words(weights: Array, names: Sequence[str], *, most: int = 3) -> str:
    """The largest weights with their columns: "+0.71 glucose, -0.50 age"."""
    return ", ".join(f"{weights[j]:+.2f} {names[j]}" for j in leading(weights, most))


def elided(text: str, most: int) -> str:
    """The text on one line, without its middle where it is longer than `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= most:
        return line
    tail = (most - 1) // 3
    return f"{line[: most - 1 - tail]}…{line[len(line) - tail :]}"


def variances(result: Any, *, digits: int = 4) -> list[list[str]]:
    """A line of cells for each component of a result, as HEADS names them, with so many digits of its variance."""
    names, shares = column_names(result.feature_names_in_, result.n_features_in_), result.explained_variance_ratio_
    measured = (result.explained_variance_, shares, shares.cumsum(), result.residuals_, result.components_)
    return [
        [f"{j}", f"{v:.{digits}g}", f"{r:.2%}", f"{c:.2%}", f"{e:.1e}", in_words(weights, names)]
        for j, (v, r, c, e, weights) in enumerate(zip(*measured, strict=True), 1)
    ]


def in_columns(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A plain text table, numbers to the right, whose last column is words."""
    return "\n".join(" ".join(f"{cell:>10}" for cell in line[:-1]) + f"  {line[-1]}" for line in (heads, *lines))
