"""A run as one HTML file: what was found, how the run went, and its pictures. It needs nothing from elsewhere."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca import plots
from flower_pca.base import archive, extras
from flower_pca.base.history import Round
from flower_pca.base.version import __version__
from flower_pca.core.result import PCAResult
from flower_pca.plots import clients, overview, style

_SHOWN: Final = 40  # rows of a table; the whole of it is in the result
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")

# Nothing but the data in the file itself may be loaded, whatever a client's name or a title has in it.
_HEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ --ink: #2b303a; --faint: #5d6470; --line: #e6e8ec; --soft: #f6f7f9; --blue: #1f5fa8; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 68rem; color: var(--ink); background: #fff;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
h1 {{ margin: 0 0 .25rem; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }}
h2 {{ margin: 2.2rem 0 .7rem; font-size: 1.15rem; }}
p {{ margin: .3rem 0; overflow-wrap: anywhere; }}
.how {{ color: var(--faint); }}
.ended {{ margin: .8rem 0 0; padding: .5rem .8rem; border-left: .3rem solid #d9772b; background: #fdf4ec; }}
.ended.ok {{ border-color: #2f8f6b; background: #eef7f3; }}
dl {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 0; }}
dl div {{ padding: .55rem .75rem; border-radius: .4rem; background: var(--soft); }}
dt {{ color: var(--faint); font-size: .82rem; }}
dd {{ margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }}
.pictures {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem; }}
figure {{ margin: 0; padding: .5rem; border: 1px solid var(--line); border-radius: .4rem; }}
figure img {{ display: block; width: 100%; height: auto; }}
figcaption {{ padding: .2rem .4rem .3rem; color: var(--faint); font-size: .88rem; }}
.wide {{ overflow-x: auto; }}
table {{ min-width: min(100%, 36rem); border-collapse: collapse; font-size: .88rem;
  font-variant-numeric: tabular-nums; }}
th, td {{ padding: .28rem .5rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th {{ color: var(--faint); font-weight: 500; }}
td.text, th.text {{ text-align: left; }}
td.long {{ white-space: normal; overflow-wrap: anywhere; min-width: 12rem; }}
footer {{ margin-top: 2.5rem; padding-top: .7rem; border-top: 1px solid var(--line); color: var(--faint);
  font-size: .82rem; overflow-wrap: anywhere; }}
@media (max-width: 30rem) {{ table {{ font-size: .8rem; }} th, td {{ padding: .25rem .3rem; }} }}
@media print {{
  @page {{ margin: 14mm; }}
  body {{ padding: 0; max-width: none; font-size: 10pt; }}
  .pictures {{ grid-template-columns: 1fr 1fr; }}
  figure, dl div, tr {{ break-inside: avoid; }}
  h2 {{ break-after: avoid; }}
  dl div, .ended {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
</style>
</head>
"""


def write(result: PCAResult, path: str | os.PathLike[str], *, title: str, shards: Sequence[Any] | None = None) -> Path:
    """Write the report of a run. Without matplotlib it has tables only, and says so.

    Args:
        result: What a run has returned, or `PCAResult.load` has read.
        path: The HTML file. The whole new report is there afterwards, or the old file untouched.
        title: What the report is headed by, such as the name of the data.
        shards: The clients' rows, if they are at hand: then the report shows each client as well.

    Returns:
        The path.
    """
    errors = None if shards is None else clients.measured(result, shards)
    parts = [
        _HEAD.format(title=escape(title)),
        f"<body>\n<h1>{escape(title)}</h1>\n",
        f'<p class="how">{escape(overview.summary(result))}</p>\n',
        f'<p class="ended{" ok" * result.status.ok}">{escape(_sentence(result.status.words))}</p>\n',
        _facts(result),
        _pictures(result, shards),
        _components(result),
        "" if shards is None or errors is None else _clients(errors, clients.rows(shards)),
        _messages(result),
        _failures(result),
        f"<footer>flower_pca {__version__} &middot; {escape(result.algorithm)} &middot; seed {result.seed}</footer>\n",
        "</body>\n</html>\n",
    ]
    with archive.replacing(path) as file:
        file.write("".join(parts).encode())
    return Path(path)


def _facts(result: PCAResult) -> str:
    history = result.history
    frame = ("centred" if result.centered else "not centred") + (", scaled" if result.scale_ is not None else "")
    facts = {
        "rows": f"{result.n_samples_:,}",
        "features": f"{result.n_features_in_:,}",
        "clients": f"{max((record.answered for record in history), default=0):,}",
        "components": f"{result.n_components_:,}",
        "variance explained": f"{result.explained_variance_ratio_.sum():.2%}",
        "columns": frame,
        "messages": f"{len(history):,}",
        "sent by clients": _bytes(history.bytes_up),
        "sent to clients": _bytes(history.bytes_down),
        "time": f"{sum(record.seconds for record in history):.3g} s",
        "largest residual": f"{result.residuals_.max():.1e}",
    }
    if result.sine_estimate_ is not None:
        facts["sine of the angle left, about"] = f"{result.sine_estimate_:.1e}"
    if result.mse_ is not None:
        facts["mean squared error"] = f"{result.mse_:.4g}"
    if (spent := result.privacy) is not None:
        facts["privacy: epsilon, delta"] = f"{spent.epsilon:.4g}, {spent.delta:g}"
        facts["deviation of the noise"] = f"{spent.noise:.4g}"
        facts["noise is added"] = "in shares" if spent.shared else "by each client"
    return "<dl>\n" + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>\n" for k, v in facts.items()) + "</dl>\n"


def _pictures(result: PCAResult, shards: Sequence[Any] | None) -> str:
    if not extras.there("matplotlib"):
        return f'<p class="how">{escape(str(extras.lacking("matplotlib", "to draw")), quote=False)}</p>\n'
    parts = []
    for what, picture in plots.PICTURES.items():
        if picture.per_client and shards is None:
            continue
        stream = io.BytesIO()
        style.write(plots.figure(result, what, shards=shards), stream, "svg")
        words, data = escape(picture.words(result)), base64.b64encode(stream.getvalue()).decode()
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{words}">'
        parts.append(f'<figure id="{what}">{image}<figcaption>{words}</figcaption></figure>\n')
    return '<h2>Pictures</h2>\n<div class="pictures">\n' + "".join(parts) + "</div>\n"


def _components(result: PCAResult) -> str:
    ratio = result.explained_variance_ratio_
    columns = zip(result.explained_variance_, ratio, ratio.cumsum(), result.residuals_, strict=True)
    rows = [[f"{j}", f"{v:.4g}", f"{r:.2%}", f"{c:.2%}", f"{e:.1e}"] for j, (v, r, c, e) in enumerate(columns, 1)]
    return _table("Components", ["component", "variance", "share", "together", "residual"], rows)


def _clients(errors: np.ndarray[Any, Any], sizes: Sequence[int]) -> str:
    order = np.argsort(-errors, kind="stable") if len(errors) > _SHOWN else np.arange(len(errors))
    rows = [[f"{i}", f"{sizes[i]:,}", f"{errors[i]:.4g}"] for i in order]
    worst = f", the {_SHOWN} with the largest error" if len(errors) > _SHOWN else ""
    return _table(f"Clients{worst}", ["client", "rows", "mean squared error of a row"], rows[:_SHOWN])


def _messages(result: PCAResult) -> str:
    head = ["message", "stage", "error", "answered", "up", "down", "seconds"]
    return _table("Messages", head, [_message(record) for record in result.history], word=1)


def _message(record: Round) -> list[str]:
    error = f"{record.metrics['error']:.1e}" if "error" in record.metrics else ""
    answered = f"{record.answered:,}/{record.asked:,}"
    sizes = (_bytes(record.bytes_up), _bytes(record.bytes_down))
    return [f"{record.number + 1}", record.stage, error, answered, *sizes, f"{record.seconds:.3g}"]


def _failures(result: PCAResult) -> str:
    rows = [[f"{r.number + 1}", node, why] for r in result.history for node, why in r.failures.items()]
    return _table("Clients that were left out", ["message", "client", "why"], rows, long=2) if rows else ""


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, word: int = -1, long: int = -1) -> str:
    """Rows under a heading; of too many, the first and the last. Two columns may hold a word, or many."""
    half = _SHOWN // 2
    gap = [["&hellip;", *[""] * (len(head) - 1)]] if len(rows) > _SHOWN else []
    cells = [[escape(cell) for cell in row] for row in rows]
    cells = [*cells[:half], *gap, *cells[-half:]] if gap else cells
    special = {word: ' class="text"', long: ' class="text long"'}
    kinds = [special.get(j, "") for j in range(len(head))]
    lines = [_line("th", kinds, map(escape, head))]
    lines += [_line("td", kinds, row) for row in cells]
    body = "\n".join(lines)
    return f'<h2>{escape(title)}</h2>\n<div class="wide"><table>\n{body}\n</table></div>\n'


def _line(tag: str, kinds: Sequence[str], cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}{k}>{cell}</{tag}>" for k, cell in zip(kinds, cells, strict=True)) + "</tr>"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _bytes(count: float) -> str:
    power = 0
    while count >= 1000.0 and power < len(_UNITS) - 1:
        count, power = count / 1000.0, power + 1
    return f"{count:.3g} {_UNITS[power]}"
