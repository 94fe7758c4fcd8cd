"""Test that every command in the documents exists, with its options and settings.

What needs no second machine is run: the keys, the example of a trial (tests/deployment), the README's own two commands
(by .ci/run). Of the others, the program is asked what it knows.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from cases import every
from pages import EVERY, ROOT, SHELLS, blocks, languages, text

from flower_pca import PCAResult, cli, registry, run_config
from flower_pca.clients.policy.rules import Rules
from flower_pca.data import partition, sources
from flower_pca.masking.identity import NodeIdentity

BIN = Path(sys.executable).parent
# Options that are checked one by one below
SYSTEM = {
    "cp",
    "gpg",
    "cat",
    "cd",
    "docker",
    "git",
    "kill",
    "openssl",
    "pip",
    "ssh-keygen",
    "systemctl",
    "tar",
    "export",
    ".",
}
FLOWER = {"flower-superlink": (), "flower-supernode": (), "flwr": ("run", "ls", "supernode", "build", "list", "stop")}
PYTHON = {"python", "python3.11", ".venv/bin/python"}
TOOLS = {".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/codespell"}


def commands_of_page(page):
    """The commands of a page, each as its words; those of its systemd unit too."""
    lines = []
    for block in blocks(page, *SHELLS):
        lines += re.sub(r"\\\n\s*", " ", block).replace("&&", "\n").splitlines()
    for block in blocks(page, "ini"):
        lines.append(systemd_unit(block)["Service"]["ExecStart"].replace("\\\n", " "))
    return [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]


def systemd_unit(block):
    """A systemd unit as sections; a line that ends in a backslash goes on."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(re.sub(r"\\\n\s*", " ", block))
    return parser


ALL = [(page, command) for page in EVERY for command in commands_of_page(page)]


def program(command):
    return Path(command[0]).name


def with_program(*names):
    found = [command for _, command in ALL if program(command) in names]
    assert found, f"no page has a command of {names}"
    return found


HELP = """
import importlib.metadata, json, sys
programs = {program.name: program for program in importlib.metadata.entry_points(group="console_scripts")}
for words in json.loads(sys.argv[1]):
    sys.argv = [*words, "--help"]
    try:
        programs[words[0]].load()()
    except SystemExit as end:
        assert not end.code, words
    print(chr(0), flush=True)
"""


def known_options(commands):
    """The options that programs of Flower's know, each by its own help; all in one process."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HELP, json.dumps(commands)],
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    said = run.stdout.split("\0")[:-1]
    found = [set(re.findall(r"--[a-z][a-z0-9-]+", each)) for each in said]
    return dict(zip(map(tuple, commands), found, strict=True))


def options_of(command):
    return {word.split("=")[0] for word in command if word.startswith("--")}


def settings(words):
    """The settings of a --run-config or --node-config: TOML values, one after the other."""
    pairs = re.findall(r"""([A-Za-z0-9_-]+)=("[^"]*"|'[^']*'|\[[^\]]*\]|\S+)""", words)
    return tomllib.loads("\n".join(f"{name} = {value}" for name, value in pairs))


def options_after(command, option):
    return [command[i + 1] for i, word in enumerate(command) if word == option]


@every("page", EVERY)
def test_every_block_is_in_a_language_that_is_checked(page):
    assert set(languages(page)) <= {"python", "toml", "yaml", "ini", "", *SHELLS}
    assert page not in ("README.md", "docs/deployment.md", "docs/pipelines.md") or commands_of_page(page)


@pytest.mark.slow
@every("page", EVERY)
def test_every_block_of_shell_is_well_formed(page):
    for block in blocks(page, *SHELLS):
        check = subprocess.run(["sh", "-n"], input=block, text=True, capture_output=True, check=False)
        assert check.returncode == 0, (block, check.stderr)


def test_every_program_is_one_that_is_checked():
    programs = {command[0] for _, command in ALL}
    known = SYSTEM | set(FLOWER) | PYTHON | TOOLS | {"flower-pca"}
    assert {p for p in programs if p not in known and Path(p).name not in FLOWER} == set()


@pytest.mark.slow
def test_flowers_commands_have_the_options_that_are_used():
    used = []
    for command in with_program(*FLOWER):
        name, words = program(command), []
        while FLOWER[name] and len(words) < 2 and not command[1 + len(words)].startswith(("-", ".")):
            words.append(command[1 + len(words)])
            if words[0] != "supernode":
                break
        assert not words or words[0] in FLOWER[name], command
        used.append(([name, *words], command))
    known = known_options([list(each) for each in {tuple(words) for words, _ in used}])
    for words, command in used:
        assert options_of(command) <= known[tuple(words)], command


def test_the_run_configs_set_what_the_app_has():
    config = tomllib.loads(text("hub/pyproject.toml"))["tool"]["flwr"]["app"]["config"]
    of_examples = [
        tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]
        for path in ROOT.glob("examples/*/pyproject.toml")
    ]
    found = 0
    for page, command in ALL:
        for given in map(settings, options_after(command, "--run-config")):
            found += 1
            homes = of_examples if page.startswith("examples/") else [config]
            assert any(set(given) <= set(home) for home in homes), (page, given)
            given |= run_config.read_options(given.pop("options", ""))
            if "partition" in given:
                partition.make_parts(given["partition"], 10, 2, beside={"site": np.arange(10) % 2})
            if "algorithm" in given:
                registry.make(given["algorithm"])
            for name, value in given.items():
                assert all(type(value) is type(home[name]) for home in homes if name in home), (page, name)
    assert found >= 5


def test_the_node_configs_set_what_the_app_reads():
    source = text("flower_pca/app.py")
    rules = {field.name.replace("_", "-") for field in fields(Rules)}
    read = {*re.findall(r"node(?:\.get\(|\[)\"([a-z-]+)\"", source), *rules}
    assert read == rules | {"data", "data-path", "batch", "partition-id", "num-partitions"}
    found = 0
    for _, command in ALL:
        for given in map(settings, options_after(command, "--node-config")):
            found += 1
            assert set(given) <= read | {"name"}
            (data,) = [given[key] for key in ("data", "data-path") if key in given]
            if Path(data).suffix not in sources.ENDINGS:
                assert data.split("(")[0] in sources.SOURCES
            for name in given.get("allow", "krylov").split(","):
                assert name in registry.ALGORITHMS
    assert found >= 5


def test_the_federation_configs_are_of_whole_numbers():
    for command in with_program("flwr"):
        for given in map(settings, options_after(command, "--federation-config")):
            assert "num-supernodes" in given
            assert all(type(value) is int for value in given.values())


@pytest.mark.slow
def test_our_own_commands_are_understood():
    for command in with_program("flower-pca"):
        cli._make_parser().parse_args(command[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_our_own_commands_do_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page, names = "docs/command-line.md", {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
    ours = [command[1:] for place, command in ALL if place == page and program(command) == "flower-pca"]
    assert len(ours) >= 2
    Path("kept").mkdir()
    ours = [[word.replace("/var/lib/pca", "kept") for word in words] for words in ours]
    printed = {}
    for words in ours:
        # The sites of the page differ, and check says so.
        assert cli.main(words) == (1 if words[0] == "check" else 0), words
        printed[words[0], "--json" in words] = capsys.readouterr().out
        (out,) = options_after(words, "--out") or [None]
        if words[0] == "run" and out is not None:
            wrote = {path.name for path in Path(out).iterdir()}
            own = {f"flower_pca-local-{i}.npz" for i in range(3)} if "--save-local" in words else set()
            assert wrote == {"result.npz", "loadings.csv", "history.csv", "report.html", *own}
        if words[0] == "compare":
            wrote = {path.name for path in Path(out).iterdir()}
            assert wrote == {"comparison.csv", "comparison.json", "comparison.svg"}
    X = np.loadtxt("patients.csv", delimiter=",", skiprows=1, usecols=range(4))
    found = PCAResult.load("patients/result.npz")
    X = X[:, [["age", "pulse", "glucose", "lactate"].index(name) for name in found.feature_names_in_]]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert found.angle_to(np.linalg.svd(Z, full_matrices=False)[2][:2]) < 1e-6
    assert np.load("scores.npy").shape == (1797, 10)
    assert json.loads(printed["show", True])
    assert all(re.search(rf"^{name}$", printed["list", False], re.MULTILINE) for name in registry.ALGORITHMS)


def test_the_keys_are_written_where_the_next_commands_look_for_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (keys,) = [command for page, command in ALL if page == "docs/deployment.md" and command[1:3] == ["keys", "keys"]]
    assert cli.main(keys[1:]) == 0
    printed = capsys.readouterr().out
    places = [
        word for page, command in ALL if page == "docs/deployment.md" for word in command if word.startswith("keys/")
    ]
    assert places
    for place in places:
        assert (tmp_path / place).exists(), place
    for option in ("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile", "--auth-supernode-private-key"):
        assert option in printed


def test_the_list_of_trusted_keys_is_one_that_the_nodes_believe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["keys", "keys", "--nodes", "2"]) == 0
    (block,) = [block for block in blocks("docs/masked-sums.md", "sh") if block.startswith("cat ")]
    publics = re.findall(r"\S+\.pub", block)
    for i, public in enumerate(publics):
        shutil.copy(f"keys/node-{i}.pub", public)
    subprocess.run(["sh", "-ec", block], check=True, timeout=300)
    for i in range(len(publics)):
        identity = NodeIdentity.load(f"keys/node-{i}", "trusted-keys")
        assert len(identity.trusted) == 2
        NodeIdentity(trusted=identity.trusted).check({0: b"text"}, {0: identity.sign(b"text")})


def test_a_key_made_by_hand_is_of_the_kind_that_ours_are(tmp_path):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    commands = {tuple(command) for command in with_program("ssh-keygen") if "ecdsa" in command}
    for command in commands:
        subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    publics = list(tmp_path.glob("*.pub"))
    assert len(publics) == len(commands) > 0
    assert cli.main(["keys", str(tmp_path / "ours"), "--nodes", "1"]) == 0
    ours = load_ssh_public_key((tmp_path / "ours/node-0.pub").read_bytes())
    for public in publics:
        made = load_ssh_public_key(public.read_bytes())
        assert (type(made), made.curve.name) == (type(ours), ours.curve.name)


def test_what_is_installed_is_what_the_project_offers():
    project = tomllib.loads(text("pyproject.toml"))
    installs = [command for _, command in ALL if "install" in command and ("pip" in command[0] or "pip" in command)]
    assert installs
    for command in installs:
        for extra in re.findall(r"\.\[(.*?)\]", " ".join(command)):
            assert set(extra.split(",")) <= set(project["project"]["optional-dependencies"])
        assert set(options_after(command, "--group")) <= set(project["dependency-groups"])


def test_the_python_that_a_command_runs_is_python():
    for command in with_program("python"):
        for code in options_after(command, "-c"):
            compile(code, "a command", "exec")
            for module in re.findall(r"from (\S+) import", code):
                assert module.split(".")[0] == "flower_pca"


def test_the_settings_files_are_well_formed():
    for page in EVERY:
        for block in blocks(page, "toml"):
            for link in tomllib.loads(block).get("superlink", {}).values():
                assert re.fullmatch(r"[a-z0-9.]+:\d+", link["address"])
                assert link.get("insecure") or link["root-certificates"].startswith("/")
    sections = [systemd_unit(block) for block in blocks("docs/deployment.md", "ini")]
    assert [sorted(section.sections()) for section in sections] == [["Install", "Service", "Unit"]]
