"""What the documents say is so: their code runs, their commands are those of .ci/run, their links lead somewhere."""

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings

import pytest
from fake_grid import FakeGrid, in_a_run
from pages import EVERY, PAGES, ROOT, blocks, text

from flower_pca import PCAResult, registry, simulate
from flower_pca.data import partition, sources
from flower_pca.plots import PICTURES

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Context, RecordDict
    from flwr.cli.config_utils import load_and_validate

sys.path.insert(0, str(ROOT / ".ci"))
import tables  # The script that writes the tables is not in a package.

# Pages that have no Python of their own.
SILENT = {
    "docs/add-a-node.md",
    "docs/back-up.md",
    "docs/masking-protocol.md",
    "docs/node-rules.md",
    "docs/privacy.md",
    "docs/compatibility.md",
    "docs/erase-a-person.md",
    "docs/federation.md",
    "docs/remove-a-site.md",
    "docs/rotate-keys.md",
    "docs/troubleshooting.md",
    "docs/upgrade.md",
    "docs/administrator.md",
    "docs/check.md",
    "docs/data-protection.md",
    "docs/glossary.md",
    "docs/measurements.md",
    "docs/reference.md",
}


def steps_of_block(block):
    """The commands of a shell block, each as its words."""
    return [shlex.split(step) for step in block.replace("&&", "\n").splitlines() if step.strip()]


COMMANDS = [steps_of_block(block) for block in blocks("README.md", "sh")]
STEPS = [step for command in COMMANDS for step in command]


def quickstart(arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", *arguments]
    run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def namespace_of_page(page, only=lambda block: True):
    """The names that are there after a page's Python has run from top to bottom."""
    namespace = {"__name__": "page"}
    for block in filter(only, blocks(page, "python")):
        exec(compile(block, page, "exec"), namespace)
    return namespace


def test_all_other_pages_have_python_to_run():
    assert {page for page in PAGES if not blocks(page, "python")} == SILENT
    assert not any(blocks(page, "python") for page in EVERY if page.startswith("examples/"))


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_what_the_comments_of_the_python_page_promise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "docs/python.md"
    result = namespace_of_page(page, lambda block: block == blocks(page, "python")[0])["result"]
    assert result.components_.shape == (3, 20)
    assert result.status.ok
    stopped = namespace_of_page(page, lambda block: "max_rounds=5" in block)["result"]
    assert stopped.status.outcome == "max_rounds"
    assert not stopped.status.ok
    whole = namespace_of_page(page)
    assert whole["fewer"].angle_to(simulate("krylov", whole["shards"], n_components=3)) < 1e-6
    files = ["large.npy", "pca.npz", "report.html", "scores.png", "scree.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_the_gallery_names_every_picture_and_says_which_need_rows():
    lines = re.findall(r"^\*\*`(\w+)`\*\*: (.*(?:\n.+)*)", text("docs/gallery.md"), re.MULTILINE)
    found = {name: "Needs `shards=`" in words for name, words in lines}
    assert found == {"overview": False} | {what: picture.rows for what, picture in PICTURES.items()}


@pytest.mark.slow
def test_the_attack_of_the_page_on_attacks_succeeds_on_ssi_and_fails_on_faps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = namespace_of_page("docs/attacks.md")["found"]
    assert found["ssi"] < 1e-9
    assert found["faps"] > 0.5


def test_the_privacy_page_has_every_algorithm():
    table = re.search(r"^\| algorithm .*?\n\n", text("docs/privacy.md"), re.DOTALL | re.MULTILINE)[0]
    assert set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|[^|]*\|$", "", table, flags=re.MULTILINE))) == set(
        registry.ALGORITHMS
    )


@pytest.mark.slow
def test_the_apps_of_the_pages_find_what_simulate_finds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = namespace_of_page("docs/pipelines.md")
    expected = simulate("krylov", names["shards"], n_components=3, answers="fixed").components_
    with in_a_run():
        for name in ("client_app", "classic_app", "training_app"):
            context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
            names["server_app"](FakeGrid(names[name], 3), context)
            assert PCAResult.load("components.npz").components_.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_the_app_before_fedavg_finds_what_simulate_finds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = namespace_of_page("docs/pca-before-fedavg.md")
    contexts = [
        Context(run_id=1, node_id=0, node_config={"partition-id": i}, state=RecordDict(), run_config={})
        for i in range(3)
    ]
    expected = simulate("krylov", [names["load"](each) for each in contexts], n_components=6, answers="fixed")
    with in_a_run():
        result = names["Krylov"](n_components=6, action="pca").fit(FakeGrid(names["app"], 3))
    assert result.components_.tobytes() == expected.components_.tobytes()


@pytest.mark.slow
def test_the_app_for_flower_users_trains_on_its_components_and_its_strategy_samples():
    names = namespace_of_page("docs/flower.md")
    grid = FakeGrid(names["client_app"], 5)
    with in_a_run() as lines:
        names["server_app"](grid, Context(1, 0, {}, RecordDict(), {}))
        accuracies = re.findall(r"'accuracy': '([0-9.e+-]+)'", "\n".join(lines))
        sampled = names["Sampled"](n_components=3, action="pca", max_rounds=5)
        result = sampled.fit(FakeGrid(names["client_app"], 5))
    assert len(accuracies) == 5
    assert float(accuracies[-1]) > 0.9
    assert result.n_samples_ == 5 * 60
    assert {record.answered for record in result.history if record.stage == "ssi"} == {3}


def test_flwr_run_takes_the_app_for_flower_users_as_it_is_printed(tmp_path):
    (config,) = blocks("docs/flower.md", "toml")
    (tmp_path / "pyproject.toml").write_text(config, encoding="utf-8")
    (tmp_path / "app.py").write_text(blocks("docs/flower.md", "python")[0], encoding="utf-8")
    found, complaints = load_and_validate(tmp_path / "pyproject.toml")  # the checks that `flwr run` makes first
    assert not complaints
    assert found is not None


def test_the_data_page_names_every_source_and_partition():
    for name in [*sources.SOURCES, *partition.PARTITIONS]:
        assert re.search(rf"^\|.*`{name}[(`]", text("docs/data.md"), re.MULTILINE), name


def test_every_page_is_linked_from_the_first_one():
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", text("docs/index.md")))
    assert linked == {page.removeprefix("docs/") for page in PAGES} - {"README.md", "index.md"} | {"papers/index.md"}
    index = text("docs/papers/index.md")
    assert all(f"({page.name})" in index for page in (ROOT / "docs/papers").glob("*.md") if page.name != "index.md")


def test_the_readme_has_two_commands_and_nothing_unknown_in_them():
    assert len(COMMANDS) == 2
    for step in STEPS:
        assert step[:3] == ["python3.11", "-m", "venv"] or step[0] == ".venv/bin/python", step


@pytest.mark.slow
def test_a_virtual_environment_is_made_where_the_next_steps_look_for_it(tmp_path):
    (step,) = [step for step in STEPS if step[0] == "python3.11"]
    subprocess.run([sys.executable, *step[1:], "--without-pip"], cwd=tmp_path, check=True, timeout=600)
    assert (tmp_path / ".venv/bin/python").exists()


@pytest.mark.slow
def test_the_quickstart_leaves_what_it_names(tmp_path):
    (step,) = [step for step in STEPS if step[1].endswith(".py")]
    script = str(ROOT / step[1])
    printed = quickstart([script, *step[2:], "--out", str(tmp_path / "given")], tmp_path)
    saved, picture = tmp_path / "given/quickstart.npz", tmp_path / "given/quickstart.png"
    assert f"components  {saved.resolve()}\n" in printed
    assert f"picture     {picture.resolve()}\n" in printed
    assert PCAResult.load(saved).components_.shape == (3, 24)
    assert picture.read_bytes().startswith(b"\x89PNG")
    krylov, uda, plain = (
        float(re.search(rf"^  {name}.* (\S+)$", printed, re.MULTILINE)[1]) for name in ("krylov", "uda", "plain")
    )
    assert krylov < 1e-4 < 1.0 < uda < plain


@pytest.mark.slow
def test_the_quickstart_writes_to_out_unless_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["quickstart.py"])
    runpy.run_path(str(ROOT / "examples/quickstart.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert (tmp_path / "out/quickstart.npz").exists()
    assert str((tmp_path / "out/quickstart.png").resolve()) in printed


@pytest.mark.slow
def test_ci_runs_the_commands_of_the_readme_and_ends_on_its_tests():
    script = [line for line in text(".ci/run").splitlines() if line.strip() and not line.startswith("#")]
    written = [shlex.split(line.replace('"$venv"', ".venv")) for line in script]
    places = [written.index(step) for step in STEPS]
    assert places == sorted(places)
    assert written[-1] == STEPS[-1] == [".venv/bin/python", "-m", "pytest"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_contributing_sets_up_with_the_same_steps():
    setup = steps_of_block(blocks("CONTRIBUTING.md", "sh")[0])
    assert [step for step in setup if step not in STEPS] == []


def test_the_pages_of_the_api_are_made_from_the_docstrings():
    pages = tables.api()
    for page, said in pages.items():
        assert text(page) == said, page  # else: python .ci/tables.py
    made = {page for page in pages if page.startswith("docs/api/")}
    assert made == {f"docs/api/{path.name}" for path in (ROOT / "docs/api").iterdir()}
    assert len(made) > 80


@pytest.mark.parametrize("page", tables.TABLES)
def test_the_tables_of_algorithms_are_those_of_the_registry(page):
    assert text(page) == tables.written(page)  # else: python .ci/tables.py


def test_every_algorithm_is_in_the_table_and_has_its_half_page():
    names = {*registry.ALGORITHMS, *registry.TRACKERS}
    tables = re.findall(r"^\| algorithm \| finds .*?\n\n", text("docs/choosing.md"), re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^\| `(\w+)`", "".join(tables), re.MULTILINE)) == names
    headings = re.findall(r"^## (.*)$", text("docs/algorithms.md"), re.MULTILINE)
    assert headings.pop(0) == "Common to all"
    assert {name for heading in headings for name in heading.split(", ")} == names


def strings_in(node):
    """The strings of a piece of code, in their order; those of an f-string without what it fills in."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    return [words for child in ast.iter_child_nodes(node) for words in strings_in(child)]


def test_the_errors_of_the_page_of_troubles_are_those_of_the_package():
    texts = set()
    for path in (ROOT / "flower_pca").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                texts.add("".join(strings_in(node)))
    page = text("docs/troubleshooting.md")
    ours = page[page.index("## Errors about data") : page.index("## The run ends")]
    titles = re.findall(r"^### (.*)$", ours, re.MULTILINE)
    assert "No file or folder named" in titles
    parts = [part for title in titles for part in title.split(" ... ")]
    assert [part for part in parts if not any(part in words for words in texts)] == []
