"""Test that the code on each page runs as it stands, Python and commands."""

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest
from pages import PAGES, ROOT, SHELLS, blocks, every_block, text

from flower_pca import PCAResult, cli

FLOWER = {"flwr", "flower-superlink", "flower-supernode"}  # tests/deployment runs these, and what follows in a block
OTHERS = {
    "pip",
    "python",
    "python3.11",
    "docker",
    ".",
    "export",
    "kill",
    "cat",
    "git",
    "openssl",
    "systemctl",
    "tar",
    "ssh-keygen",
    ".venv/bin/python",
}  # tests/test_commands.py
# Others run these from top to bottom, and look at what comes out.
LOOKED_INTO = {"docs/adding-an-algorithm.md", "docs/command-line.md", "docs/pipelines.md", "docs/python.md"}
PAGE = "docs/three-hospitals.md"


def commands(block):
    """Its commands, each as its words."""
    lines = re.sub(r"\\\n\s*", " ", block).replace("&&", "\n").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]


def copy(*words):
    """Copy files and folders of the repository, as `cp -r` does in a clone."""
    assert (words[0], words[-1]) == ("-r", ".")
    for path in itertools.chain.from_iterable(ROOT.glob(word) for word in words[1:-1]):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, Path.cwd() / path.name)


def run_page(page, monkeypatch, capsys):
    """Do what a page says; the names that its last Python leaves, and what each command printed.

    A block has the files of the blocks before, and none of their names.
    """
    namespace, said = {}, []
    for kind, block in every_block(page):
        if kind == "python":
            namespace = {"__name__": "page"}
            exec(compile(block, page, "exec"), namespace)
        for program, *words in commands(block) if kind in SHELLS else []:
            if program in FLOWER:
                break
            if program == "cd":
                monkeypatch.chdir(*words)
            elif program == "cp":
                copy(*words)
            elif program == "python" and words[0].endswith(".py"):
                monkeypatch.setattr("sys.argv", words)
                exec(compile((ROOT / words[0]).read_text(), words[0], "exec"), {"__name__": "__main__"})
            elif program == "flower-pca" and words[0] == "leave":
                # `leave` needs the keys of nodes: see tests/attacks/test_leaving.py
                assert page == "docs/remove-a-site.md"
            elif program == "flower-pca":
                words = [word.replace("/var/lib/pca", "kept") for word in words]  # this machine may be a node as well
                if any("kept" in word for word in words):
                    Path("kept/memory").mkdir(parents=True, exist_ok=True)  # as the node of the page has made it
                capsys.readouterr()
                # exit code 1: check has found something
                assert cli.main(words) in ((0, 1) if words[0] == "check" else (0,)), words
                said.append(capsys.readouterr())
            else:
                assert program in OTHERS, program
    return namespace, said


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(set(PAGES) - LOOKED_INTO - {PAGE}))
@pytest.mark.usefixtures("unillustrated")
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(page, monkeypatch, capsys)


# Tutorials whose blocks read files of the steps before, and a guide whose second block uses the class of the first.
IN_ORDER = {
    "docs/adding-an-algorithm.md",
    "docs/cells.md",
    "docs/genomes.md",
    "docs/scanner.md",
    "docs/three-hospitals.md",
}


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(page for page in set(PAGES) - IN_ORDER if blocks(page, "python")))
@pytest.mark.usefixtures("unillustrated")
def test_each_block_runs_alone_in_an_empty_folder(page, tmp_path, monkeypatch):
    for number, block in enumerate(blocks(page, "python")):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        exec(compile(block, f"{page}, block {number}", "exec"), {"__name__": "page"})


def printed_rows(printed):
    """The lines of a table below its rule, as words."""
    lines = printed.splitlines()
    start = next(i for i, line in enumerate(lines) if "───" in line)
    return [line.split() for line in itertools.takewhile(str.strip, lines[start + 1 :])]


def look_at_wards_and_sexes(capsys):
    """What the page of the three hospitals says of its last run, and does not show."""
    result = PCAResult.load("words/result.npz")
    weights = dict(zip(result.feature_names_in_, result.components_.T, strict=True))
    assert f"{weights['ward=infections'][1]:+.2f}" == "+0.36"
    assert f"{weights['sex=m'][0]:+.2f}" == "+0.22"

    kidneys = "+0.89 creatinine, +0.86 urea, +0.61 ward=nephrology"
    assert cli.main(["show", "words/result.npz", "--rotate", "varimax"]) == 0
    assert f"`{kidneys}`" in text(PAGE)
    assert re.search(rf"rc3 .* {re.escape(kidneys)}", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_page_of_the_three_hospitals_shows_what_its_commands_print(tmp_path, monkeypatch, capsys):
    """And what it says that happens without an option."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    names, said = run_page(PAGE, monkeypatch, capsys)
    shown = [printed_rows(block) for kind, block in every_block(PAGE) if not kind]
    tables = [printed_rows(said[i].out) for i in (0, 2, 4, 5)]
    for printed, written in zip(tables, shown, strict=True):
        assert len(printed) == len(written)
        for mine, theirs in zip(printed, written, strict=True):
            assert [w for w in mine if "e-" not in w] == [w for w in theirs if "e-" not in w]
    for quote in ("component 3 has variance 1.72 (noise: 1.26)", "component 4 has variance 0.45 (noise: 0.502)"):
        assert f"`{quote}`" in text(PAGE)
        assert quote in " ".join(PCAResult.load(tmp_path / "three-hospitals/sure/result.npz").decisions)
    look_at_wards_and_sexes(capsys)
    made = tmp_path / "three-hospitals"
    same = PCAResult.load(made / "masked/result.npz")
    assert names["result"].angle_to(same) < 1e-6
    assert {
        "hospitals",
        "with-words",
        "new.csv",
        "ranges.csv",
        "first",
        "masked",
        "sure",
        "words",
        "bonn-scores.csv",
        "new-scored.csv",
        "new.svg",
    } == {path.name for path in made.iterdir()}
    assert cli.main(["run", "hospitals", "--out", "a"]) == 2
    assert re.search(r"line \d+ of \S+bonn\.csv, column \w+\. .*use --missing mean", capsys.readouterr().err)
    assert cli.main(["run", "hospitals", "--missing", "mean", "--out", "b"]) == 0
    assert "Column patient_id alone has all but 0.01% of the variance" in capsys.readouterr().out
