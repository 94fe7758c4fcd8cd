"""Draw the README's picture and its badges, from what the package computes and what its files say.

Run: python .ci/pictures.py

The picture is the first PCA of docs/three-hospitals.md: what each hospital sends, and what the components are made of.
The badges say what pyproject.toml allows, by how much that PCA differs from the PCA of all rows in one table, and how
many items of the papers sims/reproduction.md has in full: with the papers' data, size, algorithm and repetitions. All
are SVG, written by hand, so that the same numbers give the same file whatever libraries are installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import numpy as np

from flower_pca import SiteRows, simulate

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
COLOURS = ("#2f6db3", "#c8553d", "#3a8f6b")
STYLE = (
    "<style>text{font:13px sans-serif;fill:#2b303a}.faint{fill:#5d6470;font-size:12px}rect.card{fill:#f6f7f9;"
    "stroke:#c9ced6}line{stroke:#8a919c}@media(prefers-color-scheme:dark){text{fill:#e8eaee}.faint{fill:#a9b0bb}"
    "rect.card{fill:#23272f;stroke:#4a505b}}</style>"
)


def first() -> tuple[list[str], np.ndarray, dict[str, int], float]:
    """Columns, components, patients of each hospital, and the sine of the angle to the PCA of all in one table."""
    sys.path.insert(0, str(ROOT / "examples"))
    import three_hospitals as example

    rng = np.random.default_rng(19)
    tables = {name: example.patients(rng, n, shift) for name, (n, shift, _) in example.HOSPITALS.items()}
    names = [column[0] for column in example.COLUMNS]
    shards = {name: SiteRows(rows, names=names) for name, rows in tables.items()}
    result = simulate("auto", shards, n_components=3, scale="std", columns=names)
    X = np.vstack(list(tables.values()))
    pooled = np.linalg.svd((X - X.mean(axis=0)) / X.std(axis=0), full_matrices=False)[2][:3]
    return names, result.components_, {name: len(rows) for name, rows in tables.items()}, result.angle_to(pooled)


def picture(names: list[str], components: np.ndarray, patients: dict[str, int]) -> str:
    """Three hospitals at the left, the server, and the weights of three components at the right."""
    parts = [STYLE]
    for i, (name, n) in enumerate(patients.items()):
        y = 40 + 90 * i
        parts += [
            f'<rect class="card" x="10" y="{y}" width="150" height="60" rx="8"/>',
            f'<text x="24" y="{y + 26}" font-weight="bold">{name.capitalize()}</text>',
            f'<text x="24" y="{y + 46}" class="faint">{n} patients, who stay</text>',
            f'<line x1="160" y1="{y + 30}" x2="262" y2="{118 + 22 * i}" stroke-width="1.5"/>',
        ]
    parts += [
        '<text x="168" y="30" class="faint">small matrices</text>',
        '<rect class="card" x="262" y="104" width="96" height="72" rx="8"/>',
        '<text x="310" y="136" text-anchor="middle" font-weight="bold">server</text>',
        '<text x="310" y="156" text-anchor="middle" class="faint">adds them up</text>',
        '<line x1="358" y1="140" x2="396" y2="140" stroke-width="1.5"/>',
    ]
    for c, (title, row) in enumerate(zip(("first", "second", "third"), components, strict=True)):
        parts.append(f'<text x="{530 + 95 * c}" y="26" text-anchor="middle">{title}</text>')
        parts.append(f'<line x1="{530 + 95 * c}" y1="34" x2="{530 + 95 * c}" y2="306"/>')
        for j, weight in enumerate(row):
            width = round(65 * abs(weight), 1)
            x = 530 + 95 * c - (width if weight < 0 else 0.0)
            parts.append(f'<rect x="{x:.1f}" y="{40 + 27 * j}" width="{width}" height="16" fill="{COLOURS[c]}"/>')
    parts += [f'<text x="482" y="{53 + 27 * j}" text-anchor="end">{name}</text>' for j, name in enumerate(names)]
    return _svg(780, 320, "Three hospitals, one server, and three components of ten measurements", parts)


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
    page = (ROOT / "sims/reproduction.md").read_text(encoding="utf-8")
    found = re.search(r"^(\d+) items to run, (\d+) of them with all four marks", page, re.MULTILINE)
    assert found is not None
    return int(found[2]), int(found[1])


def drawn() -> dict[str, str]:
    """All files, by their names."""
    names, components, patients, angle = first()
    return {"three-hospitals": picture(names, components, patients), **badges(angle)}


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{head} role="img" aria-label="{title}">', f"<title>{title}</title>", *parts, "</svg>", ""])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
