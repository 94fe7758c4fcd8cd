"""Results as pieces of HTML, which notebooks show in place of their reprs."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from flower_pca.base import labels

_MOST: Final = 20  # components that are listed


def of_result(result: Any) -> str:
    """The variances, with the columns that weigh most, and why the run ended; in the notebook's own colours."""
    heads, lines = labels.listing(result)
    head = _row("th", heads)
    body = "".join(_row("td", line) for line in lines[:_MOST])
    more = f"<p>and {labels.count(len(lines) - _MOST, 'more component')}</p>" if len(lines) > _MOST else ""
    rows = f"{labels.rows(result)} rows x {labels.columns(result)}"
    messages = labels.count(len(result.history), "message")
    short = "".join(f"<p><b>{escape(words)}</b></p>" for words in labels.unfinished(result))
    noise = [] if result.privacy is None else [str(result.certainty)]
    ended = [str(result.status)] if result.status.ok else []
    said = "".join(f"<p>{escape(words)}</p>" for words in (*noise, *ended, *result.choices, *result.hints))
    title = f"<p><b>{type(result).__name__}</b>: {rows} by {escape(result.algorithm)}, {messages}</p>"
    return f"<div>{short}{title}<table><thead>{head}</thead><tbody>{body}</tbody></table>{more}{said}</div>"


def of_steps(result: Any) -> str:
    """The steps of a tracker's run as its table has them, and why it ended."""
    return f"<div><pre>{escape(result.table())}</pre><p>{escape(str(result.status))}</p></div>"


def _row(tag: str, cells: Any) -> str:
    """A line of a table whose last cell is words."""
    sides = ["right"] * (len(cells) - 1) + ["left"]
    parts = [f'<{tag} style="text-align: {side}">{escape(c)}</{tag}>' for side, c in zip(sides, cells, strict=True)]
    return f"<tr>{''.join(parts)}</tr>"
