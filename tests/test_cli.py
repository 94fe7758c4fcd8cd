"""Test the command line: its output agrees with the library, mistakes give one sentence, Ctrl-C is clean."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from builders import mixed, pooled, sine, write_to_full_disk
from cases import every
from federation import wait
from pages import flower_pca, table

from flower_pca import PCAResult, registry, simulate
from flower_pca.commands import algorithms, common
from flower_pca.commands.algorithms import specs_in
from flower_pca.data import partition

X = np.vstack(mixed(0).shards)
LABELS = np.arange(150) % 3


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, y=LABELS)
    return str(tmp_path / "x.npz")


# A disk that is slow, and waited for after every message, so that the run lasts; and Ctrl-C as in a terminal: jobs that
# a script puts into the background ignore it.
SLOW_DISK = """
import os, signal, time
from flower_pca.base import checkpoint
from flower_pca.cli import console
signal.signal(signal.SIGINT, signal.default_int_handler)
os.fsync = lambda handle: time.sleep(0.5)
checkpoint._EVERY = 0.0
console()
"""


def started_command(*words, program=("-m", "flower_pca.cli")):
    """The command as a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    command = [sys.executable, *program, *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_run_writes_the_result_its_history_and_a_report(data, tmp_path, capsys):
    out = tmp_path / "new/out"
    words = ["run", data, "--algorithm", "krylov", "--components", 3, "--clients", 4]
    words += ["--partition", "dirichlet(0.3)", "--tol", 1e-10]
    code, said, err = flower_pca(capsys, *words, "--reconstruction-error", "--out", out)
    assert (code, err) == (0, "")
    assert sorted(file.name for file in out.iterdir()) == ["history.csv", "loadings.csv", "report.html", "result.npz"]
    result, reference = PCAResult.load(out / "result.npz"), pooled([X])
    assert sine(result.components_, reference.components[:3]) <= 1e-8
    parts = partition.make_parts("dirichlet(0.3)", 150, 4, beside={"y": LABELS})
    shards = [X[part] for part in parts]
    alone = simulate("krylov", shards, n_components=3, tol=1e-10, reconstruction_error=True)
    assert result.components_.tobytes() == alone.components_.tobytes()
    for variance, share in zip(reference.variances[:3], result.explained_variance_ratio_, strict=True):
        assert f"{variance:.6g}" in said
        assert f"{share:.2%}" in said
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    rows = table(out / "history.csv")
    assert [row["stage"] for row in rows] == [record.stage for record in result.history]
    assert sum(int(row["bytes_up"]) for row in rows) == result.history.bytes_up
    errors = [float(row["error"]) for row in rows if row.get("error")]
    assert errors == [record.metrics["error"] for record in result.history if "error" in record.metrics]


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_run_under_masks_by_a_spec(data, tmp_path, capsys):
    words = ["run", data, "--components", 3, "--clients", 4, "--out", tmp_path, "--mask"]
    assert flower_pca(capsys, *words, "masks(self_masks=False)")[0] == 0
    result = PCAResult.load(tmp_path / "result.npz")
    assert sine(result.components_, pooled([X]).components[:3]) <= 1e-8
    assert [record.stage for record in result.history][:3] == ["mask.keys", "mask.shares", "summed_opening"]
    assert not result.history.of("mask.sum")
    code, _, err = flower_pca(capsys, *words, "masks(neighbours=4)")
    assert code == 2
    assert "Did you mean 'neighbors'?" in err


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_run_for_machines_and_of_a_folder_of_files_with_gaps(tmp_path, capsys):
    shards = [S.copy() for S in mixed(0).shards]
    shards[1][0, 3] = np.nan
    (tmp_path / "sites").mkdir()
    for i, S in enumerate(shards):
        np.savetxt(tmp_path / f"sites/site{i}.csv", S, delimiter=",", header="abcdefghijkl".replace("", ",")[1:-1])
    words = ["run", tmp_path / "sites", "--components", "0.8", "--json", "--out", tmp_path / "out"]
    code, said, err = flower_pca(capsys, *words)
    assert (code, said) == (2, "")
    assert re.search(
        r"^flower-pca: The data of client 1 \(site1\) has \d+ missing values? \(NaN\)\. .* use --missing mean\.\n$", err
    )
    assert not (tmp_path / "out").exists()
    code, said, err = flower_pca(capsys, *words, "--missing", "mean", "--scale", "std")
    figures = json.loads(said)
    result = simulate("krylov", shards, n_components=0.8, missing="mean", scale="std")
    assert (code, err, figures["clients"], figures["outcome"]) == (0, "", 3, "converged")
    np.testing.assert_allclose(figures["explained_variance"], result.explained_variance_, rtol=1e-12)
    assert figures["n_components"] == result.n_components_


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_a_run_that_does_not_converge_says_so_and_still_writes(data, tmp_path, capsys):
    code, said, _ = flower_pca(capsys, "run", data, "--algorithm", "ssi", "--max-rounds", 2, "--out", tmp_path / "out")
    assert code == 1
    assert "max_rounds" in said
    assert PCAResult.load(tmp_path / "out/result.npz").status.outcome == "max_rounds"


@pytest.mark.usefixtures("unillustrated")
def test_a_good_run_ends_in_one_line_and_tells_the_rest_on_request(data, tmp_path, capsys):
    out = tmp_path / "out"
    code, said, _ = flower_pca(capsys, "run", data, "--clients", 3, "--out", out)
    assert code == 0
    result = PCAResult.load(out / "result.npz")
    assert re.search(r"^(?:converged|done) after \d+ rounds?\nWrote ", said, re.M)
    assert result.decisions
    assert not any(choice in said for choice in result.decisions)
    for words in (["show", out / "result.npz", "--verbose"], ["run", data, "--clients", 3, "--out", out, "--verbose"]):
        told = flower_pca(capsys, *words)[1]
        assert str(result.status) in told
        assert all(choice in told for choice in result.decisions)


def test_show_of_a_folder_names_the_result_in_it(tmp_path, capsys):
    (tmp_path / "result.npz").write_bytes(b"")
    code, _, err = flower_pca(capsys, "show", tmp_path)
    assert (code, err) == (2, f"flower-pca: {tmp_path} is a folder. Did you mean {tmp_path}/result.npz?\n")


MISTAKES = {
    "no file": (["none.csv"], r"No file or folder named 'none\.csv'\. The current folder is /.*\.$"),
    "a mistyped file": (["texd.csv"], r"No file or folder named 'texd\.csv'\. Did you mean 'text\.csv'\?$"),
    "a mistyped folder": (["hospital"], r"No file or folder named 'hospital'\. Did you mean 'hospitals'\?$"),
    "a tracker": (
        ["x.npz", "--algorithm", "st_miss"],
        r"st_miss follows rows over time\. Use it with `flower-pca track`, or in Python with track or Trac.*\.$",
    ),
    "a text column": (
        ["text.csv"],
        r"The columns of .*text\.csv must hold numbers, but there is a text of 4 letters in column city \(line 2\)\.",
    ),
    "an unknown source": (["xyz(3)"], r"The data source must be npy, .*, not 'xyz'\."),
    "an unknown partition": (["x.npz", "--partition", "iidd"], r"The partition must be .* Did you mean 'iid'\?"),
    "no such label": (["x.npz", "--partition", "by_column('z')"], r".*/x\.npz has no array named 'z', only X, y\."),
    "too many clients": (
        ["x.npz", "--clients", "151"],
        r"Each client needs at least one row, but there are 150 rows for 151 clients\.",
    ),
    "no clients": (["x.npz", "--clients", "0"], r"The number of clients must be a whole number of at least 1, not 0\."),
    "too many components": (
        ["x.npz", "--components", "13"],
        r"At most 12 components are possible \(150 rows, 12 columns\), not 13\.",
    ),
    "k of nothing": (["x.npz", "--components", "0"], r"--components must be a whole number of at least 1, a share"),
    "k above one": (["x.npz", "--components", "1.5"], r"--components must be a whole number of at least 1, a share"),
    "an algorithm": (
        ["x.npz", "--algorithm", "krylow"],
        r"There is no algorithm named 'krylow'\. Did you mean 'krylov'\?",
    ),
    "a parameter": (["x.npz", "--algorithm", "faps(inner=3)"], r"faps has no parameter 'inner'"),
    "a budget": (["x.npz", "--dp", "dp(epsilon=1)"], r"dp needs delta\. Write"),
    "a budget half said": (["x.npz", "--dp", "dp(delta=1e-6)"], r".* Write dp\(epsilon=\.\.\., delta=\.\.\.\)\."),
    "a budget without a clip": (
        ["x.npz", "--dp", "dp(epsilon=1, delta=1e-6)"],
        r"--dp needs a bound on the length of a row\. Add --ranges FILE, .*, or clip=\.\.\. in the spec",
    ),
    "ranges without a budget": (["x.npz", "--ranges", "a=0..1"], r"--ranges works only with --dp\. Add --dp "),
    "masks of no kind": (["x.npz", "--mask", "yes"], r"--mask must be True, False, a MaskedSums, or a string such as"),
    "masks of one": (["x.npz", "--mask", "--clients", "1"], r"--mask needs at least 2 clients, but there is 1\."),
    "a tolerance": (["x.npz", "--tol", "-1"], r"--tol of krylov must be a finite number of at least 0, not -1.0\."),
    "the output is a file": (["x.npz", "--out", "x.npz"], r"/.*x\.npz is a file, so nothing can be written into it\."),
    "a checkpoint nowhere": (
        ["x.npz", "--checkpoint", "no/run.ckpt"],
        r"The folder of the checkpoint, /.*no, does not exist\.",
    ),
    "a checkpoint of others": (["x.npz", "--checkpoint", "text.csv"], r".*text\.csv is not a checkpoint"),
}


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(case, data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.csv").write_text("age,city\n1,Bonn\n")
    (tmp_path / "hospitals").mkdir()
    before = sorted(tmp_path.iterdir())
    words, message = MISTAKES[case]
    code, said, err = flower_pca(capsys, "run", *words)
    assert (code, said) == (2, "")
    assert re.match(f"flower-pca: {message}", err), err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


SEVERAL = {
    "run": (["run", "a.csv", "b.csv"], "a.csv, b.csv. Put", "one per client, and use: flower-pca run FOLDER"),
    "options": (["run", "a.csv", "--clients", "2", "b.csv"], "a.csv, b.csv. Put", "and use: flower-pca run FOLDER"),
    "many": (["compare", *"abcdefgh"], "a, b, c, d, e, f, g, h. Put", "and use: flower-pca compare FOLDER"),
    "score": (["score", "r.npz", "a.csv", "b.csv"], "a.csv, b.csv. Put", "and use: flower-pca score RESULT FOLDER"),
    "transform": (["transform", "r", "a", "b", "-o", "s.npy"], "a, b. Put", "flower-pca transform RESULT FOLDER"),
    "track": (["track", "a.csv", "b", "--batch", "6"], "a.csv, b. Put", "flower-pca track FOLDER"),
}  # fmt: skip


@pytest.mark.parametrize("case", SEVERAL)
def test_several_files_are_answered_with_what_to_do_instead(case, capsys):
    words, got, remedy = SEVERAL[case]
    code, said, err = flower_pca(capsys, *words)
    assert (code, said) == (2, "")
    assert err.startswith(f"flower-pca: Give one file, folder or spec, not {got}")
    assert err.endswith(f"{remedy}\n")


def test_a_report_that_fails_leaves_nothing_half_written_and_the_result_elsewhere(
    data, tmp_path, tmp_path_factory, capsys, monkeypatch
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.setattr("flower_pca.report.write", write_to_full_disk)
    code, _, err = flower_pca(capsys, "run", data, "--out", tmp_path / "out")
    (kept,) = elsewhere.rglob("*.npz")
    said = f"No space left on device: {tmp_path / 'out'}. The result itself is in {kept}."
    assert (code, err) == (2, f"flower-pca: {said}\n")
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]
    assert PCAResult.load(kept).n_components_ == 2


def test_where_there_is_no_room_anywhere_the_file_is_named_and_nothing_is_left(
    data, tmp_path, tmp_path_factory, capsys, monkeypatch
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.setattr("flower_pca.base.files.os.fsync", write_to_full_disk)
    code, _, err = flower_pca(capsys, "run", data, "--out", tmp_path / "out")
    assert (code, err) == (2, f"flower-pca: No space left on device: {tmp_path / 'out'}.\n")
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]
    assert list(elsewhere.iterdir()) == []


@pytest.mark.usefixtures("unillustrated")
def test_a_checkpoint_that_cannot_be_written_is_named_and_the_last_one_is_there(data, tmp_path, capsys, monkeypatch):
    checkpoint, written, replace = tmp_path / "run.ckpt", [], os.replace

    def second(temporary, target):
        written.append(target)
        if len(written) == 2:
            write_to_full_disk()
        replace(temporary, target)

    words = ["run", data, "--algorithm", "ssi", "--out", tmp_path / "out", "--checkpoint", checkpoint]
    with monkeypatch.context() as patch:
        patch.setattr("flower_pca.base.files.os.replace", second)
        code, _, err = flower_pca(capsys, *words)
    onwards = f"The state of the run is in {checkpoint}; the same command continues from it."
    said = f"No space left on device: {checkpoint}.newest. Correct this error first. {onwards}"
    assert (code, err) == (2, f"flower-pca: {said}\n")
    assert flower_pca(capsys, *words)[0] == 0


@pytest.fixture
def saved_result(data, tmp_path, capsys, unillustrated):
    flower_pca(capsys, "run", data, "--components", 3, "--out", tmp_path / "out")
    return tmp_path / "out/result.npz"


@pytest.mark.parametrize("kind", ["npy", "csv"])
@pytest.mark.slow
def test_transform_writes_the_scores(kind, saved_result, data, tmp_path, capsys):
    path = tmp_path / f"scores.{kind}"
    code, said, _ = flower_pca(capsys, "transform", saved_result, data, "-o", path)
    scores = np.load(path) if kind == "npy" else np.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2, 3))
    reference = pooled([X])
    wanted = (X - reference.mean) @ reference.components[:3].T
    np.testing.assert_allclose(np.abs(scores), np.abs(wanted), atol=1e-6)
    assert (code, "150 x 3 scores" in said) == (0, True)
    _, said, _ = flower_pca(capsys, "transform", saved_result, data, "-o", path, "--json")
    assert json.loads(said) == {"rows": 150, "components": 3, "local_components": 0, "out": str(path)}


@pytest.mark.slow
def test_transform_refuses_in_words(saved_result, data, tmp_path, capsys):
    np.save(tmp_path / "narrow.npy", X[:, :5])
    for words, message in (
        (
            [saved_result, tmp_path / "narrow.npy", "-o", tmp_path / "s.npy"],
            "The rows have 5 columns, but the run had 12.",
        ),
        ([saved_result, data, "-o", tmp_path / "s.txt"], "Scores are written to .npy, .csv or .eigenvec, not"),
        (
            [saved_result, data, "-o", tmp_path / "no/s.npy"],
            f"The folder of the scores, {tmp_path}/no, does not exist.",
        ),
        ([tmp_path / "none.npz", data, "-o", tmp_path / "s.npy"], f"No file named '{tmp_path / 'none.npz'}'."),
        ([data, data, "-o", tmp_path / "s.npy"], f"{data} is not a result of flower_pca: it cannot be read"),
    ):
        code, said, err = flower_pca(capsys, "transform", *words)
        assert (code, said, message in err, err.count("\n")) == (2, "", True, 1), err
    assert not (tmp_path / "s.npy").exists()


@pytest.mark.slow
def test_show_prints_what_is_in_a_result(saved_result, capsys):
    loaded = PCAResult.load(saved_result)
    code, said, _ = flower_pca(capsys, "show", saved_result)
    assert code == 0
    assert all(f"{variance:.6g}" in said for variance in loaded.explained_variance_)
    assert re.search(r"^done after 1 round$", said, re.M)
    assert str(loaded.status) in flower_pca(capsys, "show", saved_result, "--verbose")[1]
    figures = json.loads(flower_pca(capsys, "show", saved_result, "--json")[1])
    assert figures["explained_variance"] == loaded.explained_variance_.tolist()
    assert figures["bytes_up"] == loaded.history.bytes_up


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_noise_and_masks_are_asked_for_and_what_was_spent_is_shown(data, tmp_path, capsys):
    words = ["run", data, "--components", 2, "--clients", 5, "--algorithm", "ssi(max_rounds=2)", "--mask"]
    dp = "dp(epsilon=1000.0, delta=1e-6, clip=20.0)"
    code, said, err = flower_pca(capsys, *words, "--dp", dp, "--out", tmp_path / "out")
    assert (code, len(err.splitlines())) == (0, 1)
    assert "noise alone can give a component a variance of" in err  # This is said before any of the budget is spent.
    spent = PCAResult.load(tmp_path / "out/result.npz").privacy
    assert (spent.epsilon, spent.shared) == (pytest.approx(1000.0, rel=1e-9), True)
    assert f"privacy: epsilon 1000, delta 1e-06; noise of deviation {spent.noise:.4g} on each sum, shared" in said
    shown = flower_pca(capsys, "show", tmp_path / "out/result.npz")[1]
    assert f"privacy: {spent}" in shown
    figures = json.loads(flower_pca(capsys, "show", tmp_path / "out/result.npz", "--json")[1])
    assert figures["privacy"] == dataclasses.asdict(spent)
    report = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "<dt>privacy: epsilon, delta</dt><dd>1000, 1e-06</dd>" in report
    assert "<dt>noise is added</dt><dd>in shares</dd>" in report
    flower_pca(capsys, *words[:-1], "--dp", dp, "--out", tmp_path / "alone")
    assert "<dd>by each client</dd>" in (tmp_path / "alone/report.html").read_text(encoding="utf-8")
    flower_pca(capsys, *words, "--out", tmp_path / "masked")
    assert PCAResult.load(tmp_path / "masked/result.npz").privacy is None
    assert json.loads(flower_pca(capsys, "show", tmp_path / "masked/result.npz", "--json")[1])["privacy"] is None


@pytest.mark.slow
def test_compare_measures_and_draws(data, tmp_path, capsys):
    words = ["compare", data, "--algorithms", "krylov,faps(inner_steps=5, tol=1e-4),uda", "--clients", 3]
    words += ["--components", 3]
    code, said, err = flower_pca(capsys, *words, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"comparison.csv", "comparison.json", "comparison.svg"}
    figures = json.loads((tmp_path / "out/comparison.json").read_text())
    assert [one["algorithm"] for one in figures] == ["krylov", "faps(tol=0.0001, inner_steps=5)", "uda"]
    reference = pooled([X]).components[:3]
    for one in figures:
        alone = simulate(one["algorithm"], np.array_split(X, 3), n_components=3)
        np.testing.assert_allclose(np.sin(one["angle"]), sine(alone.components_, reference), atol=1e-12)
        assert f"{one['angle']:.2e}" in said
        assert f"{one['bytes_up']:,}" in said
    compared = [row["algorithm"] for row in table(tmp_path / "out/comparison.csv")]
    assert compared == [one["algorithm"] for one in figures]
    picture = (tmp_path / "out/comparison.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")
    code, said, _ = flower_pca(capsys, *words, "--json", "--out", tmp_path / "out")
    assert [one["messages"] for one in json.loads(said)] == [one["messages"] for one in figures]
    code, _, err = flower_pca(capsys, "compare", data, "--algorithms", "krylov,ssj")
    assert (code, "Did you mean 'ssi'?" in err) == (2, True)


@every(("text", "specs"), [("a,b", ["a", "b"]), (" a(x=1, y=2) , b ", ["a(x=1, y=2)", "b"]), ("a", ["a"]), (",", [])])
def test_commas_within_brackets_do_not_part_specs(text, specs):
    assert specs_in(text) == specs


def test_list_says_of_every_algorithm_what_its_docstring_says(capsys):
    code, said, _ = flower_pca(capsys, "list")
    every = json.loads(flower_pca(capsys, "list", "--json")[1])
    assert code == 0
    assert [one["algorithm"] for one in every] == [*registry.ALGORITHMS, *registry.TRACKERS]
    takes = {one["algorithm"]: one["takes"] for one in every}
    assert takes["ssi"] == ["mask", "dp", "channel"]
    assert (takes["uda"], takes["consensus_rpca"], takes["st_miss"]) == ([], ["mask"], ["mask", "channel"])
    for one, stage in zip(every, registry.public_classes().values(), strict=True):
        assert one == algorithms.describe(stage)
        text = " ".join((stage.__doc__ or "").split())
        for part in ("what", "cost", "prefer"):
            assert len(one[part]) > 10, one
            assert one[part] in text
            assert one[part] in said
        assert "Parameters" not in one["prefer"]
        assert "Prefer" not in one["cost"]
        (registry.tracker if one["algorithm"] in registry.TRACKERS else registry.make)(
            one["algorithm"], **one["parameters"]
        )


@pytest.mark.usefixtures("unillustrated")
def test_progress_is_shown_on_a_terminal_only(data, tmp_path, capsys, monkeypatch):
    with common.showing_progress() as on_round:
        simulate("krylov", [X], n_components=2, on_round=on_round)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with common.showing_progress() as on_round:
        simulate("krylov", [X], n_components=2, on_round=on_round)
    assert "round" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_says_its_version_and_loads_nothing_heavy_for_help():
    from flower_pca import __version__

    process = started_command("--version", program=("-m", "flower_pca"))
    assert process.communicate(timeout=300) == (f"flower-pca {__version__}\n", "")
    assert process.returncode == 0
    code = "import atexit, sys, flower_pca.cli as command; atexit.register(lambda: print(*sys.modules)); "
    code += "command.main(['-h'])"
    process = started_command(program=("-c", code))
    said, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert "exit codes: 0 success; 1 the run" in said
    loaded = said.splitlines()[-1].split()
    assert {"matplotlib", "sklearn", "pandas", "pyarrow", "flwr", "rich", "ray"}.isdisjoint(loaded)


@pytest.mark.slow
def test_a_reader_that_stops_is_no_traceback():
    process = started_command("list")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=300) == 1


def interrupted(words, checkpoint):
    """Start a run, and press Ctrl-C once its checkpoint is there; mostly in the midst of writing the next one."""
    process = started_command(*words, program=("-c", SLOW_DISK))
    wait("the checkpoint", lambda: checkpoint.exists() or process.poll() is not None, pause=0.002)
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=300)
    return process.returncode, said, err


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_control_c_leaves_a_checkpoint_that_the_same_command_goes_on_from(tmp_path, capsys):
    out, checkpoint = tmp_path / "out", tmp_path / "run.ckpt"
    data = ["run", "geometric(n=200, d=60, xi=1.001)", "--algorithm", "ssi", "--tol", 1e-14, "--components", 5]
    data += ["--clients", 2, "--max-rounds", 60, "--out", out]
    code, said, err = interrupted([*data, "--checkpoint", checkpoint], checkpoint)
    assert (code, said) == (130, ""), err
    assert (
        err
        == f"flower-pca: Interrupted. The state of the run is in {checkpoint}; the same command continues from it.\n"
    )
    assert {file.name for file in tmp_path.iterdir()} <= {"run.ckpt", "out"}  # There is no half-written file.
    # It takes all rounds, but does not reach 1e-14.
    assert flower_pca(capsys, *data, "--checkpoint", checkpoint)[0] == 1
    assert not checkpoint.exists()
    resumed = PCAResult.load(out / "result.npz")
    assert flower_pca(capsys, *data)[0] == 1
    whole = PCAResult.load(out / "result.npz")
    assert resumed.rounds == whole.rounds == 60
    assert resumed.components_.tobytes() == whole.components_.tobytes()


def test_an_interruption_that_python_has_swallowed_ends_the_run_after_the_round():
    run, before = SimpleNamespace(history=["round 1"]), signal.signal(signal.SIGINT, signal.default_int_handler)
    with common.showing_progress() as on_round:
        on_round(run)
        with pytest.raises(KeyboardInterrupt):  # as in a callback of an import, which Python ignores
            signal.getsignal(signal.SIGINT)(signal.SIGINT, None)
        with pytest.raises(KeyboardInterrupt):
            on_round(run)
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


@pytest.mark.usefixtures("unillustrated")
def test_an_interruption_without_a_checkpoint_says_only_that(data, tmp_path, capsys, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("flower_pca.simulation.simulate", interrupt)
    code, said, err = flower_pca(capsys, "run", data, "--out", tmp_path / "out")
    assert (code, said, err) == (130, "", "flower-pca: Interrupted.\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_a_synthetic_set_runs_with_the_clients_that_it_has(tmp_path, capsys):
    words = ["run", "synthetic(n=60, d=4, clients=3)", "--json", "--out", tmp_path / "out"]
    code, said, _ = flower_pca(capsys, *words)
    assert (code, json.loads(said)["clients"]) == (0, 3)
    code, _, err = flower_pca(capsys, *words, "--clients", 4)
    assert (code, err.split(". ")[0]) == (2, "flower-pca: The data has 3 clients, not 4")
