"""Draw the README's badges, from what the package computes and what its files say, and photograph the report.

Run: python .ci/pictures.py

The badges say what pyproject.toml allows, by how much the first PCA of docs/three-hospitals.md differs from the PCA of
all rows in one table, and how many items of the papers docs/papers/index.md has in full: with the papers' data, size,
algorithm and repetitions. They are SVG, written by hand, so that the same numbers give the same file whatever libraries
are installed. The photographs are of the report that such a PCA leaves, on a light and on a dark system. They take a
Chromium.
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
from pathlib import Path

import numpy as np

from flower_pca import Table, simulate

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
SCHEMES = ("light", "dark")
SIZE = (1000, 660)  # of a photograph: the words, and the first two pictures
COLUMNS = "age,weight,systolic,glucose,hba1c,heart_rate,temperature,crp,creatinine,urea"


def angle() -> float:
    """The sine of the angle between the first PCA of the three hospitals and that of all in one table."""
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
    """Two words on a strip."""
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
    """What each says, by the name of its file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    differs = f"below {10.0 ** np.ceil(np.log10(max(angle, 1e-12))):.0e}"
    done, items = recorded()
    return {
        "python": badge("Python", f"{oldest} or newer"),
        "licence": badge("licence", project["license"]),
        "pooled": badge("differs from one table", differs),
        "papers": badge("papers run again", f"{done} of {items} in full"),
    }


def recorded() -> tuple[int, int]:
    """How many items of the papers have been run as the papers say, and how many there are to run."""
    page = (ROOT / "docs/papers/index.md").read_text(encoding="utf-8")
    found = re.search(r"^(\d+) items to run, (\d+) of them with all four marks", page, re.MULTILINE)
    assert found is not None
    return int(found[2]), int(found[1])


def drawn() -> dict[str, str]:
    """All badges, by their names."""
    return badges(angle())


def photographed(folder: Path) -> dict[str, bytes]:
    """The first screen of the report of the three hospitals, by colour scheme, made in this folder."""
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
            small = io.BytesIO()
            whole.convert("RGB").quantize(64).save(small, "png", optimize=True)
            found[scheme] = small.getvalue()
    return found


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{head} role="img" aria-label="{title}">', f"<title>{title}</title>", *parts, "</svg>", ""])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for scheme, picture in photographed(Path(folder)).items():
            (FOLDER / f"report-{scheme}.png").write_bytes(picture)
