"""The summary of a result, from which texts, JSON, pages, notebooks and pictures are made.

Every kind of result has a method `summary`. What a family of algorithms adds stands in its own result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np

from flower_pca.base import labels
from flower_pca.base.history import History, Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import Sentence, marks_of
from flower_pca.results.left_out import LeftOut, left_out_in_words

Tone = Literal["bad", "warn", "good", "plain"]

FOUND: Final = 3  # components that there is a sentence on each of
_WEIGHTS: Final = 10  # columns that JSON has of each component
_MOST: Final = 20  # components that a notebook lists
_NAMED: Final = 4  # columns that a sentence on a component names
_SHARE: Final = 0.5  # A column is named if its weight is at least this share of the largest one.
_ALONE: Final = 0.8  # A column is the component if it has at least this share of its squares.
INTERVAL: Final = 1.96  # errors to either side, which hold 95 % of estimates


class Fact(NamedTuple):
    """One figure: its name in JSON, what a reader calls it, the figure, as it is shown, and whether
    it is of the run.

    One without words is for JSON alone; one without a key for readers.
    """

    key: str
    words: str
    value: Any
    text: str
    run: bool = False


class Remark(NamedTuple):
    """A sentence, and whether it is good news, a warning, or what makes the rest worthless."""

    words: str
    tone: Tone = "plain"


class Listing(NamedTuple):
    """A table: heads, and lines of cells, of which the last holds words."""

    heads: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Summary:
    """What a result says about itself. `print` shows it as text.

    Attributes
    ----------
    title : str
        The result in one line.
    size : str
        The size of the table, such as "110 rows x 10 columns".
    facts : sequence of Fact
        Figures, under the names that JSON has and the words that a reader has.
    findings : sequence of str
        Sentences on what was found.
    remarks : sequence of Remark
        Sentences on how far the result may be relied on, each in a tone.
    components : Listing
        The components as a table.
    """

    title: str
    size: str
    facts: Sequence[Fact]
    findings: Sequence[str]
    remarks: Sequence[Remark]
    components: Listing

    def __str__(self) -> str:
        table, others = labels.in_columns(*self.components), self.of_tone("warn", "good", "plain")
        return "\n".join([self.title, *self.of_tone("bad"), *self.findings, table, *others])

    def of_tone(self, *tones: Tone) -> list[str]:
        """The remarks of these tones, as words."""
        return [remark.words for remark in of_kind(self.remarks, *tones)]


class AnyResult(Protocol):
    """A result, as those who tell of it see it."""

    def summary(self, *, digits: int = 4) -> Summary:
        """What the result says about itself."""


def plain(key: str, value: Any) -> Fact:
    """A figure that JSON has, and no reader is shown."""
    return Fact(key, "", value, "")


def of_status(status: Status) -> list[Remark]:
    """Why a run ended: bad news first, and what there is to doubt apart from the good news."""
    if not status.ok:
        kind = status.outcome.value.replace("_", " ")
        return [Remark(Sentence(f"The run has not reached its goal ({kind}): {marks_of(status.words)}."), "bad")]
    words, *doubts = marks_of(status.words).split("; ")
    warnings = [Remark(_sentence(doubt), "warn") for doubt in doubts]
    return [*warnings, Remark(_sentence(words), "good")]


_ENDS: Final = {
    Outcome.CONVERGED: "converged",
    Outcome.DONE: "done",
    Outcome.BUDGET_SPENT: "ended with its privacy budget spent",
    Outcome.SETTLED: "settled",
}


def ending(status: Status, rounds: int, left_out: Mapping[int, LeftOut]) -> str:
    """How a run ended, in a few words: "converged after 2 rounds"; what there is to doubt is left to `of_status`."""
    ended = _ENDS.get(status.outcome, status.outcome.value.replace("_", " "))
    without = f", without {labels.series([out.name for out in left_out.values()])}" if left_out else ""
    return f"{ended} after {labels.count(rounds, 'round')}{without}"


def of_left_out(left_out: Mapping[int, LeftOut]) -> list[Remark]:
    """Which sites were left out, and why: a reader would take the rows of a site that was named for counted."""
    return [Remark(words, "warn")] if (words := left_out_in_words(left_out)) else []


def of_messages(history: History) -> list[Fact]:
    """What the messages of a run amount to."""
    return [
        Fact("messages", "messages", history.count, f"{history.count:,}", run=True),
        Fact("bytes_up", "sent by clients", history.bytes_up, labels.size(history.bytes_up), run=True),
        Fact("bytes_down", "sent to clients", history.bytes_down, labels.size(history.bytes_down), run=True),
        Fact("seconds", "time", float(history.seconds), f"{history.seconds:.3g} s", run=True),
    ]


def of_answers(*, masked: bool) -> Fact:
    """Who has seen the answer of a single client."""
    text = "seen in sums only" if masked else "seen by the server"
    return Fact("", "answers of a client", None, text, run=True)


def clients(history: History) -> int:
    """How many clients there were: as many as have answered a message together."""
    return max((record.answered for record in history), default=0)


def columns_of(weights: Array, names: Sequence[str]) -> str:
    """What a component is made of: "glucose and weight against age"."""
    if not len(weights) or not np.any(weights):
        return "no column"
    order = labels.leading(weights, _NAMED)
    first = order[0]
    if weights[first] ** 2 >= _ALONE * float(weights @ weights):
        return f"{names[first]}, all but alone"
    least = _SHARE * abs(weights[first])
    strong = [j for j in order if abs(weights[j]) >= least]
    above = [names[j] for j in strong if weights[j] > 0.0]
    below = [names[j] for j in strong if weights[j] < 0.0]
    return " against ".join(labels.series(side) for side in (above, below) if side)


class OfColumns(Protocol):
    """What has columns, by name or by position."""

    @property
    def n_features_in_(self) -> int:
        """How many."""

    @property
    def feature_names_in_(self) -> Array | None:
        """Their names; None where they go by position."""


def names_of(result: OfColumns) -> list[str]:
    """The name of each column of a result."""
    return labels.column_names(result.feature_names_in_, result.n_features_in_)


def plain_names(result: OfColumns) -> list[str] | None:
    """The names of columns as JSON has them; None where they go by position."""
    if result.feature_names_in_ is None:
        return None
    return [str(name) for name in result.feature_names_in_]


def heading(title: str, shown: int, every: int, which: str) -> str:
    """A title; where not all are shown, with how many, and which: "Columns, the 20 with most"."""
    if shown < every:
        return f"{title}, the {shown} {which}"
    return title


def weights(row: Array, names: Sequence[str]) -> list[dict[str, Any]]:
    """The columns that weigh most in a component, largest first, as plain values."""
    largest = labels.leading(row, _WEIGHTS)
    return [{"column": names[j], "weight": float(row[j])} for j in largest]


def in_text(result: AnyResult, *more: str) -> str:
    """The components as plain text; before them the bad news, after them what else to say."""
    summary = result.summary()
    bad = summary.of_tone("bad")
    others = [words for words in more if words not in bad]
    return "\n".join([*bad, labels.in_columns(*summary.components), *others])


def in_html(result: AnyResult) -> str:
    """The components as a notebook shows them, in its own colours, with all remarks."""
    summary = result.summary()
    heads, lines = summary.components
    body = "".join(_row("td", line) for line in lines[:_MOST])
    short = "".join(f"<p><b>{escape(words)}</b></p>" for words in summary.of_tone("bad"))
    others = summary.of_tone("warn", "good", "plain")
    if len(lines) > _MOST:
        others.insert(0, f"and {labels.count(len(lines) - _MOST, 'more component')}")
    title = f"<p><b>{type(result).__name__}</b>: {escape(summary.title)}</p>"
    table = f"<table><thead>{_row('th', heads)}</thead><tbody>{body}</tbody></table>"
    rest = "".join(f"<p>{escape(words)}</p>" for words in others)
    return f"<div>{short}{title}{table}{rest}</div>"


def in_json(facts: Iterable[Fact]) -> dict[str, Any]:
    """The figures under their names."""
    return {fact.key: fact.value for fact in facts if fact.key}


def of_kind(remarks: Iterable[Remark], *tones: Tone) -> list[Remark]:
    """The remarks of these tones."""
    return [remark for remark in remarks if remark.tone in tones]


def _sentence(words: str) -> str:
    return Sentence(f"{words[:1].upper()}{words[1:].rstrip('.')}.")


def _row(tag: str, cells: Sequence[str]) -> str:
    """A line of a table whose last cell is words."""
    sides = ["right"] * (len(cells) - 1) + ["left"]
    sided = zip(sides, cells, strict=True)
    parts = [f'<{tag} style="text-align: {side}">{escape(c)}</{tag}>' for side, c in sided]
    return f"<tr>{''.join(parts)}</tr>"


def weights_with_errors(row: Array, errors: Array, names: Sequence[str], *, most: int = 3) -> str:
    """The largest weights with their errors and columns: "+0.71 ± 0.02 glucose"."""
    heaviest = labels.leading(row, most)
    return ", ".join(f"{row[j]:+.2f} ± {errors[j]:.1g} {names[j]}" for j in heaviest)


def with_errors(figures: Sequence[str], errors: Array) -> list[str]:
    """Figures, each with its error: "3.281 ± 0.15"."""
    return [f"{figure} ± {error:.2g}" for figure, error in zip(figures, errors, strict=True)]
