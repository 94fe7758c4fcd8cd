"""The documents, the code blocks in them, and the command that they call."""

import csv
import re
import textwrap
from pathlib import Path

from flower_pca import cli

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
EVERY = [
    *PAGES,
    "CONTRIBUTING.md",
    "hub/README.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("examples/*/README.md")),
]
SHELLS = ("sh", "shell", "bash", "console")


def text(page):
    """What a page says."""
    return (ROOT / page).read_text(encoding="utf-8")


def every_block(page):
    """All its code blocks in their order, each with its language; those of a list are indented."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text(page), re.DOTALL | re.MULTILINE)
    return [(language, textwrap.dedent(block)) for _, language, block in found]


def blocks(page, *languages):
    """Its code blocks in one of these languages."""
    return [block for language, block in every_block(page) if language in languages]


def languages(page):
    """The languages of all its code blocks."""
    opened = re.findall(r"^ *```(.*)$", text(page), re.MULTILINE)
    assert opened[1::2] == [""] * (len(opened) // 2), f"a block of {page} does not end"
    return opened[::2]


def folder_of_sites(folder, tables):
    """A new folder with a file for each site: of tables by name, or by position."""
    folder.mkdir()
    for site, table in tables.items() if isinstance(tables, dict) else enumerate(tables):
        table.to_csv(folder / f"{site}.csv", index=False)
    return folder


def flower_pca(capsys, *words):
    """The command in this process: its exit code, standard output and standard error."""
    code = cli.main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def table(path):
    """The rows of a CSV file, by the names of its columns."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
