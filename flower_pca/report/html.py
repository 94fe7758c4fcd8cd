"""The building blocks of a report: the head of the page with its style sheet, facts, tables and pictures.

The page loads no other files and runs no script. It follows the light or dark theme of the reader's system, and is
light in print. It adapts to the width of the window. In a narrow window, tables use smaller type and break long words,
so that no text is cut off.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from flower_pca.results.facts import Fact, Remark, Tone

# This maps the tone of a remark to the CSS classes of its box.
_BOXES: Final = {"bad": "ended bad", "warn": "ended", "good": "ended ok", "plain": "how"}
SHOWN: Final = 40  # maximum number of rows in a table on the page

# The security policy allows only data within the file, even if a client's name or a title should contain HTML.
_HEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
{again}<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ground: #fff; --ink: #2b303a; --faint: #5d6470; --line: #e6e8ec; --soft: #f6f7f9;
  --card: #fff; --good: #eef7f3; --warn: #fdf4ec; --bad: #fceeee; }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --ground: #0f1217; --ink: #e4e7ec; --faint: #a4acb9; --line: #343b47; --soft: #1d222b; --card: #171b22;
    --good: #14281f; --warn: #33210f; --bad: #381719; }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 68rem; color: var(--ink); background: var(--ground);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
h1 {{ margin: 0 0 .25rem; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }}
h2 {{ margin: 2.2rem 0 .7rem; font-size: 1.15rem; }}
p {{ margin: .3rem 0; overflow-wrap: anywhere; }}
.said {{ margin-top: 1rem; }}
.lead {{ margin: .8rem 0 1rem; font-size: 1.08rem; }}
details {{ margin-top: 2.2rem; border-top: 1px solid var(--line); padding-top: .8rem; }}
summary {{ cursor: pointer; font-size: 1.15rem; font-weight: 600; }}
.how {{ color: var(--faint); }}
.ended {{ margin: .8rem 0 0; padding: .5rem .8rem; border-left: .3rem solid #d9772b; background: var(--warn); }}
.ended.bad {{ border-color: #c0392b; background: var(--bad); }}
.ended.ok {{ border-color: #2f8f6b; background: var(--good); }}
dl {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 0; }}
dl div {{ padding: .55rem .75rem; border-radius: .4rem; background: var(--soft); }}
dt {{ color: var(--faint); font-size: .82rem; }}
dd {{ margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }}
.pictures {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem;
  align-items: start; }}
figure {{ margin: 0; padding: .5rem; border: 1px solid var(--line); border-radius: .4rem; background: var(--card); }}
figure img {{ display: block; width: 100%; height: auto; }}
figcaption {{ padding: .2rem .4rem .3rem; color: var(--faint); font-size: .88rem; }}
.wide {{ overflow-x: auto; }}
table {{ min-width: min(100%, 36rem); border-collapse: collapse; font-size: .88rem;
  font-variant-numeric: tabular-nums; }}
th, td {{ padding: .28rem .5rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th {{ color: var(--faint); font-weight: 500; vertical-align: bottom; }}
td.text, th.text {{ text-align: left; white-space: normal; overflow-wrap: anywhere; }}
td.long {{ white-space: normal; overflow-wrap: anywhere; min-width: 12rem; }}
footer {{ margin-top: 2.5rem; padding-top: .7rem; border-top: 1px solid var(--line); color: var(--faint);
  font-size: .82rem; overflow-wrap: anywhere; }}
@media (max-width: 36rem) {{
  dl {{ grid-template-columns: 1fr 1fr; }}
  dd {{ font-size: 1rem; }}
  table {{ width: 100%; min-width: 0; font-size: .66rem; }}
  th, td {{ padding: .25rem .13rem; }}
  th {{ white-space: normal; }}
  td:not(.text) {{ white-space: normal; overflow-wrap: break-word; }}
  td.text {{ min-width: 2.8rem; }}
  td.long {{ min-width: 8rem; }}
}}
@media (max-width: 26rem) {{ th, td {{ white-space: normal; overflow-wrap: anywhere; }} td.text {{ min-width: 0; }} }}
@media print {{
  @page {{ margin: 14mm; }}
  :root {{ font-size: 10pt; }}
  body {{ padding: 0; max-width: none; }}
  summary {{ display: block; }}
  .pictures {{ display: block; columns: 2; }}
  figure {{ margin-bottom: 1rem; }}
  figure, dl div, tr {{ break-inside: avoid; }}
  h2 {{ break-after: avoid; }}
  details::details-content {{ content-visibility: visible; display: block; height: auto; }}
  dl div, .ended {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
</style>
</head>
"""


def page(title: str, parts: Iterable[str], *, reloads: int | None = None) -> bytes:
    """Return the HTML file as bytes. If `reloads` is given, the browser reloads the page after this many seconds."""
    again = "" if reloads is None else f'<meta http-equiv="refresh" content="{reloads}">\n'
    body = f"<body>\n<h1>{escape(title)}</h1>\n{''.join(parts)}</body>\n</html>\n"
    return (_HEAD.format(title=escape(title), again=again) + body).encode()


def paragraph(words: str, kind: str = "") -> str:
    """Return an HTML paragraph, with a class of the style sheet if `kind` is given."""
    attribute = kind and f' class="{kind}"'
    return f"<p{attribute}>{escape(words, quote=False)}</p>\n"


def number_text(value: float | None, form: str, otherwise: str = "") -> str:
    """Return a number as text in the format `form`, or `otherwise` if the number is None."""
    if value is None:
        return otherwise
    return format(value, form)


def remark_paragraphs(remarks: Iterable[Remark], *tones: Tone) -> str:
    """Return a paragraph for each remark with these tones, in a box of the tone's color unless the remark is plain."""
    return "".join(paragraph(remark.words, _BOXES[remark.tone]) for remark in remarks if remark.tone in tones)


def folded_section(title: str, *parts: str) -> str:
    """Return a section that is folded until the reader opens it. In print, the section is open."""
    return f"<details><summary>{escape(title)}</summary>\n{''.join(parts)}</details>\n"


def section(title: str, *parts: str) -> str:
    """Return a section with a heading and these parts, or "" if all parts are empty."""
    if any(parts):
        return f"<h2>{escape(title)}</h2>\n{''.join(parts)}"
    return ""


def facts_table(facts: Iterable[Fact]) -> str:
    """Return the figures with their labels as HTML. Facts without a label are left out."""
    lines = (f"<div><dt>{escape(f.words)}</dt><dd>{escape(f.text)}</dd></div>\n" for f in facts if f.words)
    return "<dl>\n" + "".join(lines) + "</dl>\n"


def embedded_picture(name: str, svg: bytes, caption: str) -> str:
    """Return a figure with its caption as HTML, with the picture embedded in the page."""
    words = escape(caption)
    image = f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" alt="{words}">'
    return f'<figure id="{name}">{image}<figcaption>{words}</figcaption></figure>\n'


def table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, words: Sequence[int] = (), long: int = -1
) -> str:
    """Return an HTML table under a heading. If there are too many rows, only the first and the last rows are shown.

    The columns in `words` are short texts, the column `long` is a sentence, and all other columns are numbers.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    if len(rows) > SHOWN:
        gap = ["&hellip;", *[""] * (len(head) - 1)]
        cells[SHOWN // 2 : -(SHOWN // 2)] = [gap]
    special = {**dict.fromkeys(words, ' class="text"'), long: ' class="text long"'}
    kinds = [special.get(j, "") for j in range(len(head))]
    lines = [_table_row("th", kinds, map(escape, head)), *(_table_row("td", kinds, row) for row in cells)]
    body = "\n".join(lines)
    return f'<h2>{escape(title)}</h2>\n<div class="wide"><table>\n{body}\n</table></div>\n'


def _table_row(tag: str, kinds: Sequence[str], cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}{k}>{cell}</{tag}>" for k, cell in zip(kinds, cells, strict=True)) + "</tr>"
