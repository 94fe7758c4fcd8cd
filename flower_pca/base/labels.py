"""What a reader calls a column or a client, with or without a name of its own; and weights of columns in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def column_names(names: Iterable[Any] | None, count: int) -> list[str]:
    """The name of each of `count` columns; "column 0" and so on where they have none."""
    return [f"column {j}" for j in range(count)] if names is None else [str(name) for name in names]


def client_name(names: Mapping[int, str], key: int) -> str:
    """The name of a client; "client 0" and so on where it has none."""
    return names.get(key, f"client {key}")


def range_of(what: str, numbers: Sequence[int]) -> str:
    """Numbers that follow each other, with what they are of: "component 3", "components 2 to 4"."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"{what} {first}"
    between = "and" if last == first + 1 else "to"
    return f"{what}s {first} {between} {last}"


def leading(weights: Array, most: int) -> Array:
    """The positions of the `most` weights that are largest in size, largest first; those that are zero never."""
    order = np.argsort(-np.abs(weights), kind="stable")[:most]
    return np.asarray(order[np.abs(weights[order]) > 0.0])


def in_words(weights: Array, names: Sequence[str], *, most: int = 3) -> str:
    """The largest weights with their columns: "+0.71 glucose, -0.50 age"."""
    return ", ".join(f"{weights[j]:+.2f} {names[j]}" for j in leading(weights, most))


def shorten(text: str, most: int) -> str:
    """The text on one line, without its middle where it is longer than `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= most:
        return line
    tail = (most - 1) // 3
    return f"{line[: most - 1 - tail]}…{line[len(line) - tail :]}"


def count(number: int, what: str) -> str:
    """So many things: "1 message", "2,000 messages"."""
    return f"{number:,} {noun(number, what)}"


def noun(number: int, what: str) -> str:
    """The word for one of these things, or for several."""
    if number == 1:
        return what
    if what.endswith("ry"):
        return f"{what[:-1]}ies"
    return f"{what}s"


def size(number: float) -> str:
    """So many bytes: "606 B", "35.2 kB"."""
    power = 0
    while float(f"{number:.3g}") >= 1000.0 and power < len(_UNITS) - 1:
        number, power = number / 1000.0, power + 1
    return f"{number:.3g} {_UNITS[power]}"


def rows(result: Any) -> str:
    """How many rows a result is of, "about" where their number has noise on it."""
    return f"{'' if result.privacy is None else 'about '}{result.n_samples_:,}"


def columns(result: Any) -> str:
    """How many columns a result is of, with the word for them."""
    return count(result.n_features_in_, "column") if getattr(result, "whole", True) else width(result)


def width(result: Any) -> str:
    """How many columns a result is of; of a run whose clients keep theirs to themselves, whose they are."""
    if getattr(result, "whole", True):
        return f"{result.n_features_in_:,}"
    return f"the columns of {count(result.parties_, 'client')}"


def unfinished(result: Any) -> list[str]:
    """What is to be said first of a run that ended short of its goal; nothing of others."""
    status = result.status
    kind = status.outcome.value.replace("_", " ")
    return [] if status.ok else [f"The run has not reached its goal ({kind}): {status.words.rstrip('.')}."]


def listing(result: Any, *, digits: int = 4) -> tuple[list[str], list[list[str]]]:
    """Heads, and a line of cells for each component of a result, with so many digits of its variance.

    Where there is noise on the variances, shares are said as bounds, and how much of a variance may be noise. Where
    components are not those of the rows' covariance, nothing is said of what they leave of its eigenvalue equation.
    """
    names, known = column_names(result.feature_names_in_, result.n_features_in_), result.certainty
    weights = [in_words(row, names) for row in result.components_]
    variances, shares = result.explained_variance_, result.explained_variance_ratio_
    if known is None:
        heads = ["component", "variance", "share", "together", "residual", "largest weights"]
        measured = zip(variances, shares, shares.cumsum(), result.residuals_, strict=True)
        cells = [[f"{v:.{digits}g}", f"{r:.2%}", f"{c:.2%}", f"{e:.1e}"] for v, r, c, e in measured]
        if not result.pooled:
            del heads[4]
            cells = [line[:3] for line in cells]
    else:
        heads = ["component", "variance", "of that, noise up to", "share", "together", "largest weights"]
        noise = [min(known.floor / v, 1.0) if v > 0.0 else 1.0 for v in variances]
        each = zip(variances, noise, known.shares, known.together, strict=True)
        cells = [[f"{v:.3g}", f"{part:.0%}", bounds(own), bounds(first)] for v, part, own, first in each]
    return heads, [[f"{j}", *line, words] for j, (line, words) in enumerate(zip(cells, weights, strict=True), 1)]


def bounds(share: Array) -> str:
    """A share that is known within bounds."""
    low, high = (round(100.0 * float(end)) for end in share)
    if low == 0 and high == 100:
        return "unknown"
    return f"about {low}%" if low == high else f"{low}% to {high}%"


def series(words: Sequence[str]) -> str:
    """A list in a sentence: "1, 2 and 3"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def in_columns(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A plain text table, numbers to the right, whose last column is words."""
    widths = [max(10, len(head)) for head in heads[:-1]]
    every = [zip(line[:-1], widths, strict=True) for line in (heads, *lines)]
    texts = [" ".join(f"{cell:>{width}}" for cell, width in cells) for cells in every]
    return "\n".join(f"{text}  {line[-1]}" for text, line in zip(texts, (heads, *lines), strict=True))
