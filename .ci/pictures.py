"""Draw the README's badges and the gallery from results of the package, and take screenshots of the report.

Run: python .ci/pictures.py

The badges show what pyproject.toml allows, how much the first PCA of docs/three-hospitals.md differs from the PCA of
all rows in one table, and how many items of the papers docs/papers/index.md reproduces in full, with the papers' data,
size, algorithm and repetitions. They are written as SVG without a library, so that the same numbers give the same file
everywhere. The pictures of docs/gallery.md come from runs with small data. The screenshots show the report of the three
hospitals in light and dark mode. They need Chromium.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flower_pca import Table, plots, simulate, track
from flower_pca.analysis.monitor import Monitor
from flower_pca.core.run import Run
from flower_pca.masking.run import MaskedRun
from flower_pca.plots import monitored, style

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
GALLERY = FOLDER / "gallery"
SCHEMES = ("light", "dark")
SIZE = (1000, 660)  # The size of a screenshot: the text, and the first two pictures.
COLUMNS = "age,weight,systolic,glucose,hba1c,heart_rate,temperature,crp,creatinine,urea"


def angle() -> float:
    """Return the sine of the angle between the first PCA of the three hospitals and the PCA of one table."""
    sys.path.insert(0, str(ROOT / "examples"))
    import three_hospitals as example

    rng = np.random.default_rng(19)
    tables = {name: example.patients(rng, n, shift) for name, (n, shift, _) in example.HOSPITALS.items()}
    names = [column[0] for column in example.COLUMNS]
    shards = {name: Table(rows, names=names) for name, rows in tables.items()}
    result = simulate("auto", shards, n_components=3, scale="std", columns=names)
    X = np.vstack(list(tables.values()))
    pooled = np.linalg.svd((X - X.mean(axis=0)) / X.std(axis=0), full_matrices=False)[2][:3]
    return result.angle_to(pooled)


def badge(label: str, value: str) -> str:
    """Return a badge with a label and a value, as SVG."""
    left, right = 7 * len(label) + 14, 7 * len(value) + 14
    texts = ((left / 2, label), (left + right / 2, value))
    parts = [
        f'<rect width="{left + right}" height="20" rx="4" fill="#4a505b"/>',
        f'<rect x="{left}" width="{right}" height="20" rx="4" fill="#2f6db3"/>',
        *(f'<text x="{x:g}" y="14" text-anchor="middle" fill="#fff">{words}</text>' for x, words in texts),
    ]
    style = "<style>text{font:12px sans-serif}</style>"
    return _svg(left + right, 20, f"{label}: {value}", [style, *parts])


def badges(angle: float) -> dict[str, str]:
    """Return the text of each badge, by the name of its file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    differs = f"below {10.0 ** np.ceil(np.log10(max(angle, 1e-12))):.0e}"
    done, items = recorded()
    return {
        "python": badge("Python", f"{oldest} or newer"),
        "licence": badge("license", project["license"]),
        "pooled": badge("differs from one table", differs),
        "papers": badge("experiments run again", f"{done} of {items} in full"),
    }


def recorded() -> tuple[int, int]:
    """Return how many items of the papers have been run as the papers say, and how many there are."""
    page = (ROOT / "docs/papers/index.md").read_text(encoding="utf-8")
    found = re.search(r"^We ran (?:all|\d+ of) (\d+) items\. (\d+) runs match the paper", page, re.MULTILINE)
    assert found is not None
    return int(found[2]), int(found[1])


def drawn() -> dict[str, str]:
    """Return all badges, by the names of their files."""
    return badges(angle())


def photographed(folder: Path) -> dict[str, bytes]:
    """Return screenshots of the top of the report of the three hospitals, by color scheme."""
    sys.path.insert(0, str(ROOT / "tests"))
    import browser
    from PIL import Image

    run = f"-m flower_pca run hospitals --missing mean --scale std --components 3 --columns {COLUMNS} --out first"
    for words in ([str(ROOT / "examples/three_hospitals.py"), "--out", "."], shlex.split(run)):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, *words], cwd=folder, env=environment, check=True, capture_output=True)
    found = {}
    with browser.page(folder / "profile") as tab:
        for scheme in SCHEMES:
            page = (folder / "first/report.html").as_uri()
            tab.open(page, width=SIZE[0], height=SIZE[1], scheme=scheme)
            whole = Image.open(io.BytesIO(tab.screenshot((0, 0, *SIZE))))
            shot = io.BytesIO()
            whole.save(shot, "png")
            found[scheme] = small(shot.getvalue())
    return found


def _hospitals() -> tuple[dict[str, Any], list[str]]:
    """Return the tables of the three hospitals, and the names of their columns."""
    sys.path.insert(0, str(ROOT / "examples"))
    import three_hospitals as example

    rng = np.random.default_rng(19)
    names = [column[0] for column in example.COLUMNS]
    rows = {name: example.patients(rng, n, shift) for name, (n, shift, _) in example.HOSPITALS.items()}
    return {name: pd.DataFrame(table, columns=names) for name, table in rows.items()}, names


def _robust() -> tuple[Any, list[Any]]:
    """Return a robust PCA of rows in which one in twenty values is wrong, mostly in two columns, and the rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 18)) + 0.02 * rng.standard_normal((300, 18))
    often = np.where(np.isin(np.arange(18), (7, 12)), 0.2, 0.03)
    shards = np.array_split(np.where(rng.random(rows.shape) < often, rows + 20.0, rows), 4)
    return simulate("consensus_rpca(gamma=0.7)", shards, n_components=3), shards


def _personal() -> tuple[Any, list[Any]]:
    """Return a personalized PCA of six clients, two of which have other directions of their own, and the rows."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    shards = []
    for client in range(6):
        own = Q[:, 2:4] if client < 4 else Q[:, 4:6]
        own = np.linalg.qr(own + 0.15 * rng.standard_normal(own.shape))[0]
        rows = 3.0 * rng.standard_normal((80, 2)) @ Q[:, :2].T + 2.0 * rng.standard_normal((80, 2)) @ own.T
        shards.append(rows + 0.3 * rng.standard_normal((80, 20)))
    return simulate("exact_per_pca(local_components=2)", shards, n_components=2), shards


def _tracked() -> Any:
    """Return the result of a stream whose subspace turns at step 26, with alarms."""
    rng = np.random.default_rng(0)
    before, after = (np.linalg.qr(rng.standard_normal((30, 3)))[0] for _ in range(2))

    def batch(step: int) -> Any:
        basis = before if step < 26 else np.linalg.qr(before + 0.5 * after)[0]
        rows = rng.standard_normal((60, 3)) * [9.0, 8.0, 7.0] @ basis.T + 0.3 * rng.standard_normal((60, 30))
        rows[rng.random(rows.shape) < 0.002] += 60.0
        return np.where(rng.random(rows.shape) < 0.05, np.nan, rows)

    streams = [[batch(step) for step in range(40)] for _ in range(3)]
    return track("robust_tracking(detect=True, update_length=5, smallest_outlier=40)", streams, n_components=3)


@contextmanager
def _noted(kind: type) -> Iterator[list[Any]]:
    """Record the replies to each message of runs of this class."""
    came: list[Any] = []
    advance = kind.advance

    def noted(run: Any, replies: Any) -> Any:
        came.append(list(replies))
        return advance(run, came[-1])

    kind.advance = noted
    try:
        yield came
    finally:
        kind.advance = advance


def _masks(path: Path) -> None:
    """Draw one client's answer, what the server sees of it under masks, and the sum of all answers."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((8, 24))
    shards = [rng.standard_normal((n, 8)) @ mixing + 0.3 * rng.standard_normal((n, 24)) for n in (80, 60, 40)]
    with _noted(Run) as plain:
        simulate("krylov", shards, n_components=3)
    with _noted(Run) as sums, _noted(MaskedRun) as uploads:
        simulate("krylov", shards, n_components=3, mask=True)
    answer = next(replies[0].arrays["S"] for replies in plain if "S" in replies[0].arrays)
    total = next(replies[0].arrays["S"] for replies in sums if "S" in replies[0].arrays)
    sent = (replies[0].arrays.get("mask.y", np.zeros(0)) for replies in uploads)
    words = next(y for y in sent if y.size == total.size).reshape(total.shape).astype(float) - 2.0**63
    shown = {"answer of one site": answer, "what the server receives from it": words, "sum of all sites": total}
    drawn = style.new_figure((9.0, 4.6))
    for axes, (title, values) in zip(drawn.subplots(1, 3), shown.items(), strict=True):
        reach = float(np.abs(values).max())
        axes.imshow(values, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("column of the block")
        axes.set_ylabel("column of the table")
        axes.grid(visible=False)
    style.save(drawn, path)


def _messages(path: Path) -> None:
    """Draw the messages between the server and three sites, with their sizes."""
    tables, names = _hospitals()
    result = simulate("krylov", tables, n_components=3, scale="std", columns=names)
    drawn = style.new_figure((9.0, 1.6 + 0.9 * len(result.history)))
    axes = drawn.subplots()
    sites = len(tables)
    for i, message in enumerate(result.history):
        for down, size, y in ((True, message.bytes_down, -2 * i), (False, message.bytes_up, -2 * i - 0.8)):
            ends = ((0.0, y), (1.0, y)) if down else ((1.0, y), (0.0, y))
            axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "-|>", "color": style.INK, "lw": 1.1})
            what = f"{i + 1}. {message.stage}: {'request' if down else 'answer'}"
            axes.text(0.5, y + 0.12, f"{what}, {size // sites:,} bytes for each site", ha="center", fontsize=10)
    bottom = -2 * len(result.history) + 0.6
    for x, name in ((0.0, "server"), (1.0, " · ".join(tables))):
        axes.plot([x, x], [0.9, bottom], color=style.INK, lw=2)
        axes.text(x, 1.1, name, ha="center", fontsize=12, fontweight="bold")
    axes.set_xlim(-0.2, 1.2)
    axes.set_ylim(bottom, 1.8)
    axes.set_axis_off()
    style.save(drawn, path)


def _unusual(path: Path) -> None:
    """Draw the rows of one day by T2 and SPE, with two unusual rows."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((3, 12))
    sites = [rng.standard_normal((n, 3)) @ mixing + 0.3 * rng.standard_normal((n, 12)) for n in (400, 250, 150)]
    monitor = Monitor(simulate("krylov", sites, n_components=3, monitor=True))
    today = rng.standard_normal((60, 3)) @ mixing + 0.3 * rng.standard_normal((60, 12))
    today[7, 4] += 5.0
    today[31] *= 3.0
    monitored.spe_against_t2({"today": monitor.score(today)}, monitor.limits(0.99), path)


def gallery(folder: Path) -> None:
    """Draw every picture of docs/gallery.md into this folder."""
    tables, names = _hospitals()
    features = [name for name in names if name != "age"]
    plain = simulate("krylov", tables, n_components="signal", scale="std", columns=features, explain=["age", "site"])
    rows = [*tables.values()]
    slow = simulate("ssi", tables, n_components=3, scale="std", columns=features)
    runs = [(plain, rows), _robust(), _personal(), (_tracked(), None)]
    for what in plots.PICTURES:
        result, shards = next(run for run in runs if what in plots.available(*run))
        if what in ("convergence", "bytes"):  # Krylov takes too few messages for a curve.
            result = slow
        plots.draw(result, what, folder / f"{what}.png", shards=shards)
    plots.draw(plain, "overview", folder / "overview.png")
    _unusual(folder / "t2_against_spe.png")
    _masks(folder / "what_masks_hide.png")
    _messages(folder / "messages.png")


def small(picture: bytes) -> bytes:
    """Return a PNG with 256 colors."""
    from PIL import Image

    stream = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(stream, "png", optimize=True)
    return stream.getvalue()


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{head} role="img" aria-label="{title}">', f"<title>{title}</title>", *parts, "</svg>", ""])


if __name__ == "__main__":
    GALLERY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        gallery(Path(folder))
        for file in sorted(Path(folder).glob("*.png")):
            (GALLERY / file.name).write_bytes(small(file.read_bytes()))
    for name, text in drawn().items():
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for scheme, picture in photographed(Path(folder)).items():
            (FOLDER / f"report-{scheme}.png").write_bytes(picture)
