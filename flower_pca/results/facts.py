"""The summary of a result, from which texts, JSON, HTML pages, notebooks and pictures are made.

Every result class has a method `summary`. A family of algorithms adds its figures in its own result class.
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

FOUND: Final = 3  # maximum number of components that a summary describes in a sentence each
_WEIGHTS: Final = 10  # maximum number of columns that JSON lists for each component
_MOST: Final = 20  # maximum number of components that a notebook shows
_NAMED: Final = 4  # maximum number of columns named in the sentence about a component
_SHARE: Final = 0.5  # A column is named if its weight is at least this share of the largest weight.
_ALONE: Final = 0.8  # Only one column is named if it has at least this share of the sum of squared weights.
INTERVAL: Final = 1.96  # half-width of a 95 % interval, in standard errors


class Fact(NamedTuple):
    """A figure of a result: its name in JSON, its label, value and text, and whether it is about the run itself.

    A fact without a label appears only in JSON. A fact without a name appears only in texts for readers.
    """

    key: str
    words: str
    value: Any
    text: str
    run: bool = False


class Remark(NamedTuple):
    """A sentence about a result, with its tone: "plain", "good", "warn" for a warning, or "bad" for a failed run."""

    words: str
    tone: Tone = "plain"


class Listing(NamedTuple):
    """A table with column heads and lines of cells. The last cell of each line is text, the others are numbers."""

    heads: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Summary:
    """A description of a result in sentences, figures and a table. `print` shows it as text.

    Attributes
    ----------
    title : str
        The result in one line.
    size : str
        The size of the table, such as "110 rows x 10 columns".
    facts : sequence of Fact
        Figures, each with its name in JSON and its label for readers.
    findings : sequence of str
        Sentences about the components that the run found.
    remarks : sequence of Remark
        Sentences about the reliability of the result, each with a tone.
    components : Listing
        The components as a table.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> summary = simulate("krylov", sites, n_components=2).summary()
    >>> print(summary.size)
    180 rows x 6 columns
    """

    title: str
    size: str
    facts: Sequence[Fact]
    findings: Sequence[str]
    remarks: Sequence[Remark]
    components: Listing

    def __str__(self) -> str:
        table, others = labels.text_table(*self.components), self.of_tone("warn", "good", "plain")
        return "\n".join([self.title, *self.of_tone("bad"), *self.findings, table, *others])

    def of_tone(self, *tones: Tone) -> list[str]:
        """Return the texts of the remarks with these tones."""
        return [remark.words for remark in with_tones(self.remarks, *tones)]


class AnyResult(Protocol):
    """The part of a result's interface that is needed to show the result."""

    def summary(self, *, digits: int = 4) -> Summary:
        """Return a description of the result in sentences, figures and a table."""


def json_only_fact(key: str, value: Any) -> Fact:
    """Return a fact that appears only in JSON, not in texts for readers."""
    return Fact(key, "", value, "")


def remarks_on_status(status: Status) -> list[Remark]:
    """Return remarks on how a run ended: its failure, or warnings about its result followed by its success."""
    if not status.ok:
        kind = status.outcome.value.replace("_", " ")
        return [Remark(Sentence(f"The run has not reached its goal ({kind}): {marks_of(status.words)}."), "bad")]
    words, *doubts = marks_of(status.words).split("; ")
    warnings = [Remark(_as_sentence(doubt), "warn") for doubt in doubts]
    return [*warnings, Remark(_as_sentence(words), "good")]


_ENDS: Final = {
    Outcome.CONVERGED: "converged",
    Outcome.DONE: "done",
    Outcome.BUDGET_SPENT: "ended with its privacy budget spent",
    Outcome.SETTLED: "settled",
}


def ending_in_words(status: Status, rounds: int, left_out: Mapping[int, LeftOut]) -> str:
    """Describe in a few words how a run ended: "converged after 2 rounds". `remarks_on_status` returns the warnings."""
    ended = _ENDS.get(status.outcome, status.outcome.value.replace("_", " "))
    without = f", without {labels.join_with_and([out.name for out in left_out.values()])}" if left_out else ""
    return f"{ended} after {labels.count(rounds, 'round')}{without}"


def remarks_on_left_out(left_out: Mapping[int, LeftOut]) -> list[Remark]:
    """Return a warning about the sites that were left out, so that no reader assumes that their rows are included."""
    return [Remark(words, "warn")] if (words := left_out_in_words(left_out)) else []


def facts_on_messages(history: History) -> list[Fact]:
    """Return the number and the size of the messages of a run."""
    return [
        Fact("messages", "messages", history.count, f"{history.count:,}", run=True),
        Fact("bytes_up", "sent by clients", history.bytes_up, labels.bytes_in_words(history.bytes_up), run=True),
        Fact("bytes_down", "sent to clients", history.bytes_down, labels.bytes_in_words(history.bytes_down), run=True),
        Fact("seconds", "time", float(history.seconds), f"{history.seconds:.3g} s", run=True),
    ]


def fact_on_answers(*, masked: bool) -> Fact:
    """Return a figure that shows readers whether the server has seen individual clients' answers or only sums."""
    text = "seen in sums only" if masked else "seen by the server"
    return Fact("", "answers of a client", None, text, run=True)


def number_of_clients(history: History) -> int:
    """Return the number of clients, which is the largest number of answers to one message."""
    return max((record.answered for record in history), default=0)


def component_in_words(weights: Array, names: Sequence[str]) -> str:
    """Describe a component by the columns with the largest weights: "glucose and weight against age"."""
    if not len(weights) or not np.any(weights):
        return "no column"
    order = labels.largest_positions(weights, _NAMED)
    first = order[0]
    if weights[first] ** 2 >= _ALONE * float(weights @ weights):
        return f"{names[first]}, all but alone"
    least = _SHARE * abs(weights[first])
    strong = [j for j in order if abs(weights[j]) >= least]
    above = [names[j] for j in strong if weights[j] > 0.0]
    below = [names[j] for j in strong if weights[j] < 0.0]
    return " against ".join(labels.join_with_and(side) for side in (above, below) if side)


class HasColumns(Protocol):
    """An object with columns that are matched by name or by position."""

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""

    @property
    def feature_names_in_(self) -> Array | None:
        """The names of the columns, or None if columns are matched by position."""


def column_names(result: HasColumns) -> list[str]:
    """Return the name of each column of a result. Without names, the columns are named by their positions."""
    return labels.column_names(result.feature_names_in_, result.n_features_in_)


def names_for_json(result: HasColumns) -> list[str] | None:
    """Return the names of columns for JSON, or None if columns are matched by position."""
    if result.feature_names_in_ is None:
        return None
    return [str(name) for name in result.feature_names_in_]


def title_with_count(title: str, shown: int, total: int, addition: str) -> str:
    """Return a title. If only `shown` of `total` entries are shown, add `addition`: "Clients, the 40 furthest off"."""
    if shown < total:
        return f"{title}, the {shown} {addition}"
    return title


def weights_for_json(row: Array, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns with the largest weights in a component, with their weights, largest first, for JSON."""
    largest = labels.largest_positions(row, _WEIGHTS)
    return [{"column": names[j], "weight": float(row[j])} for j in largest]


def result_as_html(result: AnyResult) -> str:
    """Return the components as an HTML table for a notebook, in the notebook's colors, with all remarks."""
    summary = result.summary()
    heads, lines = summary.components
    body = "".join(_html_row("td", line) for line in lines[:_MOST])
    short = "".join(f"<p><b>{escape(words)}</b></p>" for words in summary.of_tone("bad"))
    others = summary.of_tone("warn", "good", "plain")
    if len(lines) > _MOST:
        others.insert(0, f"and {labels.count(len(lines) - _MOST, 'more component')}")
    title = f"<p><b>{type(result).__name__}</b>: {escape(summary.title)}</p>"
    table = f"<table><thead>{_html_row('th', heads)}</thead><tbody>{body}</tbody></table>"
    rest = "".join(f"<p>{escape(words)}</p>" for words in others)
    return f"<div>{short}{title}{table}{rest}</div>"


def facts_as_json(facts: Iterable[Fact]) -> dict[str, Any]:
    """Return the values of the figures by their names in JSON."""
    return {fact.key: fact.value for fact in facts if fact.key}


def with_tones(remarks: Iterable[Remark], *tones: Tone) -> list[Remark]:
    """Return the remarks with these tones."""
    return [remark for remark in remarks if remark.tone in tones]


def _as_sentence(words: str) -> str:
    return Sentence(f"{labels.capitalize(words.rstrip('.'))}.")


def _html_row(tag: str, cells: Sequence[str]) -> str:
    """Return an HTML table row with numbers aligned to the right, and text in its last cell."""
    sides = ["right"] * (len(cells) - 1) + ["left"]
    sided = zip(sides, cells, strict=True)
    parts = [f'<{tag} style="text-align: {side}">{escape(c)}</{tag}>' for side, c in sided]
    return f"<tr>{''.join(parts)}</tr>"


def weights_with_errors(row: Array, errors: Array, names: Sequence[str]) -> str:
    """Return the largest weights with their standard errors and columns, as text: "+0.71 ± 0.02 glucose"."""
    heaviest = labels.largest_positions(row, labels.MOST_WEIGHTS)
    return ", ".join(f"{row[j]:+.2f} ± {errors[j]:.1g} {names[j]}" for j in heaviest)


def with_errors(figures: Sequence[str], errors: Array) -> list[str]:
    """Return figures, each with its standard error, as text: "3.281 ± 0.15"."""
    return [f"{figure} ± {error:.2g}" for figure, error in zip(figures, errors, strict=True)]
