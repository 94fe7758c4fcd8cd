"""Test that messages name settings in the words of the interface: keywords or options."""

import ast
import pickle
import pkgutil
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import every
from pages import flower_pca

from flower_pca import ConfigError, DataError, Outcome, PCAResult, Status, cli, simulate
from flower_pca.base import checks
from flower_pca.base.options import (
    OPTIONS,
    Sentence,
    advice_to_fill,
    in_run_config,
    marks_of,
    option,
    with_advice_written,
)
from flower_pca.commands import check, common
from flower_pca.names.columns import unusable_columns_error
from flower_pca.simulation import from_frame

# A sentence as it is written; in Python's words; in those of the command line; in those of a run-config.
SAID = [
    (
        f"Impute them, or use {option('missing', 'mean')}.",
        'Impute them, or use missing="mean".',
        "Impute them, or use --missing mean.",
        'Impute them, or use missing="mean".',
    ),
    (
        f"Drop them, or use {option('scale', None)}.",
        "Drop them, or use scale=None.",
        "Drop them, or use no --scale.",
        'Drop them, or use scale="".',
    ),
    (
        f"Run with {option('center', False)}, or {option('mask', False)}",
        "Run with center=False, or mask=False",
        "Run with --no-center, or no --mask",
        "Run with center=false, or mask=false",
    ),
    (f"Run with {option('monitor', True)}.", "Run with monitor=True.", "Run with --monitor.", "Run with monitor=true."),
    (f"Use {option('source', 'theory')}.", 'Use source="theory".', "Use --limits theory.", 'Use source="theory".'),
    (
        f"Start with {option('max_rounds', np.int64(5))}.",
        "Start with max_rounds=5.",
        "Start with --max-rounds 5.",
        "Start with max-rounds=5.",
    ),
    (
        f"Choose other columns with {option('columns', ['...'])}.",
        "Choose other columns with columns=[...].",
        "Choose other columns with --columns a,b.",
        'Choose other columns with columns="a,b".',
    ),
    (
        f"Write {option('categorical', ['ward', 'sex'])}.",
        "Write categorical=['ward', 'sex'].",
        "Write --categorical ward,sex.",
        'Write categorical="ward,sex".',
    ),
    (
        f"Write {option('categorical', {'ward': ['a']})}.",
        "Write categorical={'ward': ['a']}.",
        "Write categorical={'ward': ['a']}.",
        "Write categorical={'ward': ['a']}.",
    ),
    (f"Use {option('penalty', 'paper')}.", *['Use penalty="paper".'] * 3),
    (
        f"Use {advice_to_fill()}.",
        "Use result.with_imputation().",
        "Use --missing mean.",
        "Use result.with_imputation().",
    ),
    (f"{option('n_components')} is 0.", "n_components is 0.", "--components is 0.", "n-components is 0."),
    ('Use scale="std", or ssi(max_rounds=5).', *['Use scale="std", or ssi(max_rounds=5).'] * 3),
    ("The scale of these rows is theirs.", *["The scale of these rows is theirs."] * 3),
]


@every(("written", "python", "command", "config"), SAID)
def test_each_interface_names_a_setting_in_its_own_words(written, python, command, config):
    for sentence in (written, Sentence(written), pickle.loads(pickle.dumps(Sentence(written)))):
        assert str(Sentence(sentence)) == python
        assert common.OptionWording().in_options(sentence) == command
        assert with_advice_written(sentence, in_run_config) == config
    error = ConfigError(written)
    assert (str(error), common.OptionWording().in_options(error.words)) == (python, command)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), common.OptionWording().in_options(again.words)) == (python, command)
    within = f"So: {marks_of(Sentence(written))}!"
    assert common.OptionWording().in_options(within) == f"So: {command}!"
    assert common.OptionWording().in_options(Status(Outcome.STALLED, written).words) == command


def test_an_error_keeps_setting_value_and_place_for_programs():
    error = DataError("x.csv has no column 'b'.", setting="columns", value="b", place="x.csv")
    assert (str(error), error.setting, error.value, error.place) == (
        "x.csv has no column 'b'.",
        "columns",
        "b",
        "x.csv",
    )
    assert ConfigError("It is wrong.").setting == ""
    made = checks.invalid_setting("max_rounds of krylov", "3", "0", "Use 3.")
    assert (str(made), made.setting) == ("max_rounds of krylov must be 3, not 0. Use 3.", "max_rounds")
    assert common.OptionWording().in_options(made.words) == "--max-rounds of krylov must be 3, not 0. Use 3."


def test_a_value_that_looks_like_a_setting_stays_as_it_is():
    error = ConfigError("The algorithm must be a name, not 'scale=\"std\"'.")
    assert common.OptionWording().in_options(error.words) == str(error)


def test_every_option_of_the_table_is_one_of_the_command_line(capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    for command in ("score", "track", "compare"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
    known = set(re.findall(r"--(?:no-)?[a-z-]+", capsys.readouterr().out))
    assert set(OPTIONS.values()) <= known


@every("command", ["run", "check", "compare", "audit", "track --batch 1"])
def test_a_command_that_lacks_an_option_names_the_command_that_has_it(command, tmp_path, capsys):
    path = tmp_path / "people.csv"
    path.write_text("sex,age\nf,30\nm,41\nf,52\n")
    assert cli.main([*command.split(), str(path)]) != 0
    printed = "".join(capsys.readouterr())
    has_option = command in ("run", "check")
    assert ("use --categorical sex." in printed) == has_option
    assert ("use --categorical sex of flower-pca run." in printed) != has_option


def test_advice_of_check_names_the_other_command_for_exactly_the_options_that_check_lacks(
    tmp_path, monkeypatch, capsys
):
    with pytest.raises(SystemExit):
        cli.main(["check", "--help"])
    own = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    path = tmp_path / "people.csv"
    path.write_text("age\n30\n41\n52\n")
    wordings = []
    monkeypatch.setattr(check, "run_check", lambda args: wordings.append(common.OptionWording.of_command(args)) or 0)
    assert cli.main(["check", str(path)]) == 0
    for name, written in OPTIONS.items():
        words = wordings[0].in_options(f"Use {option(name, 1)}.")
        assert words.endswith(" of flower-pca run.") == (written not in own), name


def test_words_added_to_a_status_leave_its_settings_marked():
    status = Status(Outcome.CONVERGED, f"Use {option('tol', 0.5)}").followed_by(f", or {option('scale', 'std')}.")
    assert status == Status(Outcome.CONVERGED, 'Use tol=0.5, or scale="std".')
    assert with_advice_written(status.words, lambda advice: advice[1]) == "Use tol, or scale."
    status = status.followed_by(" It is", Outcome.STALLED).with_notes([Sentence(option("missing", "mean")), "late"])
    assert status == Status(Outcome.STALLED, 'Use tol=0.5, or scale="std". It is; missing="mean"; late')
    assert with_advice_written(status.words, lambda advice: advice[1]) == "Use tol, or scale. It is; missing; late"


@every(
    ("algorithm", "more"),
    [
        ("ssi", {}),
        ("ssi", {"standard_errors": True}),
        ("ssi", {"max_share": 0.6}),
        ("faps(penalty='paper')", {}),
        ("faps", {}),
    ],
)
def test_a_status_with_warnings_names_the_options_of_the_command(algorithm, more):
    rng = np.random.default_rng(0)
    sites = [rng.standard_normal((80, 12)) * np.r_[1e4, 1e3, np.full(10, 0.01)] for _ in range(3)]
    status = simulate(algorithm, sites, n_components=4, **more).status
    assert status.outcome is Outcome.STALLED
    assert 'scale="std"' in status.words
    assert "--scale" in with_advice_written(status.words, lambda advice: f"--{advice[1]}")
    assert ": use krylov" not in status.words


@every(("name", "spec"), [("variants", "variants(maf=0.01)"), ("highly_variable", "seurat(20)")])
def test_an_error_knows_each_setting_that_the_command_line_has_an_option_for(name, spec):
    with pytest.raises(ConfigError) as caught:
        simulate("krylov", [np.ones((4, 3))], n_components=1, partitioned_by="columns", **{name: spec})
    assert caught.value.setting == name
    assert (
        common.OptionWording()
        .in_options(caught.value.words)
        .startswith(f"{OPTIONS[name]} cannot be combined with --partitioned-by columns: ")
    )


def test_a_status_that_names_sites_still_knows_its_settings():
    table = np.random.default_rng(0).standard_normal((200, 20)) * np.logspace(7, -7, 20)
    frame = pd.DataFrame(table).add_prefix("c").assign(site=["bonn"] * 120 + ["oslo"] * 80)
    found = simulate("ssi", from_frame(frame, by="site"), n_components=12)
    assert found.site_names == {0: "bonn", 1: "oslo"}
    assert 'use scale="std"' in found.status.words
    assert "use --scale std" in common.OptionWording().in_options(found.status.words)


@pytest.fixture
def folder_of_tables(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((12, 3))
    gaps = rows.copy()
    gaps[5, 1] = np.nan
    for name, table in (("x", rows), ("gaps", gaps), ("still", rows * [1.0, 0.0, 1.0])):
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header="c,b,a", comments="")
    (tmp_path / "words.csv").write_text("a,b\n1,high\n2,low\n")
    (tmp_path / "people.csv").write_text("patient_id,a,ward\np1,1,icu\np2,2,er\n")
    (tmp_path / "ids.csv").write_text("patient_id,a,b\np1,1,3\np2,2,4\n")
    (tmp_path / "de.csv").write_text('a,b\n"1,5",0.2\n"2,5",0.3\n')
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/words.csv").write_text("a,b\n1,high\n2,low\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


MISTAKES = {
    "gaps": (["gaps.csv"], "The first is in line 7 of {place}/gaps.csv, column b. Impute or drop them"),
    "a gap's remedy": (["gaps.csv"], "them before the run, or use --missing mean."),
    "a still column": (["still.csv", "--scale", "std"], "cannot divide by the deviation. Drop it, or use no --scale."),
    "words": (["words.csv"], "there is a text of 4 letters in column b (line 2). If these are "
    "categories, use --categorical b. "
    "Otherwise, c"),
    "words beside ids": (["people.csv"], "(line 2). If column ward holds categories, use --categorical ward. "
    "Otherwise, c"),
    "ids apart": (["people.csv"], "leave them out with --drop patient_id,ward, or encode them."),
    "ids alone": (["ids.csv"], "a text of 2 characters in column patient_id (line 2). Choose other "
    "columns with --columns "),
    "words apart": (["words.csv"], "leave them out with --drop b, or encode them."),
    "words in a folder": (["sites"], "leave them out with --drop b, or"),
    "words of a spec": (["csv('words.csv', sep=',')"], "leave them out with --drop b, or"),
    "decimals": (["de.csv"], "by a spec, \"csv(path='de.csv', decimal=',')\""),
    "too many": (["x.csv", "--components", "9"], "At most 3 components are possible (12 rows, 3 columns), not 9."),
    "rounds": (["x.csv", "--max-rounds", "0"], "--max-rounds of krylov must be a whole number of at least 1, not 0."),
    "masks": (["x.csv", "--scale", "max_abs", "--mask"], "--scale max_abs cannot be combined with --mask"),
}  # fmt: skip


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_explained_in_options(case, folder_of_tables, capsys):
    words, sentence = MISTAKES[case]
    code, _, err = flower_pca(capsys, "run", words[0], "--clients", 3, "--components", 1, *words[1:])
    assert code == 2
    assert sentence.format(place=folder_of_tables) in err
    assert not re.search(r"\b(missing|scale|n_components|max_rounds|columns)=", re.sub(r"\w+\([^()]*\)", "", err))


def test_columns_of_text_are_named_together_in_one_spec():
    error = unusable_columns_error(
        "x.csv",
        {"sex": "a text of 1 letter in column sex (line 2)", "note": "a text of 1 letter in column note (line 3)"},
    )
    for data in ("csv('x.csv', beside=['site'])", "csv('x.csv', beside=['site'], sep=';')"):
        said = common.OptionWording(data).in_options(error.words)
        assert said.count("beside=") == 1
        assert "beside=['site', 'sex', 'note'])" in said
    assert "or leave them out with --drop sex,note, or" not in common.OptionWording("x.csv").in_options(error.words)
    assert ", leave them out with --drop sex,note, or" in common.OptionWording("x.csv", options={"--drop"}).in_options(
        error.words
    )


@pytest.mark.parametrize("name", ["sites (2)", "x (1).csv"])
def test_a_place_may_end_like_a_spec(name, folder_of_tables, capsys):
    place = folder_of_tables / name
    if place.suffix:
        place.write_text((folder_of_tables / "words.csv").read_text())
    else:
        (folder_of_tables / "sites").rename(place)
    assert flower_pca(capsys, "run", name)[0] == 2
    error = unusable_columns_error(name, {"b": "a text of 4 letters in column b (line 2)"})
    source = "csv" if place.suffix else "folder"
    assert f"by a spec, \"{source}(path='{name}', beside=['b'])\"" in common.OptionWording(name).in_options(error.words)


@pytest.mark.usefixtures("unillustrated")
def test_hints_of_a_saved_result_speak_of_options_too(folder_of_tables, capsys):
    rows = np.random.default_rng(1).standard_normal((40, 3)) * [1.0, 1.0, 5000.0]
    np.savetxt("units.csv", rows, delimiter=",", header="a,b,c", comments="")
    code, said, _ = flower_pca(capsys, "run", "units.csv", "--clients", 2, "--components", 1, "--out", "out")
    assert code == 0
    hint = "or use --scale std if its unit differs from the other columns."
    assert hint in said
    assert hint in flower_pca(capsys, "show", "out/result.npz")[1]
    assert 'scale="std"' in PCAResult.load("out/result.npz").hints[0]


@pytest.mark.usefixtures("unillustrated")
def test_why_a_run_has_not_reached_its_goal_is_said_in_options_too(tmp_path, capsys):
    sizes = np.logspace(3, -3, 20)
    file, out = tmp_path / "sizes.csv", tmp_path / "out"
    rows = np.random.default_rng(0).standard_normal((200, 20)) * sizes
    np.savetxt(file, rows, delimiter=",", header=",".join("abcdefghijklmnopqrst"), comments="")
    code, said, _ = flower_pca(capsys, "run", file, "--algorithm", "ssi", "--components", "15", "--out", out)
    assert code == 1
    (line,) = [line for line in said.splitlines() if line.startswith("The run has not reached its goal")]
    assert re.search(r": use --tol 1e-\d\d, or --scale std\.$", line)
    assert line in flower_pca(capsys, "show", out / "result.npz")[1].splitlines()
    assert re.search(r': use tol=1e-\d\d, or scale="std"$', PCAResult.load(out / "result.npz").status.words)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_what_is_warned_of_is_said_in_a_sentence_without_a_place_in_the_code(folder_of_tables, capsys):
    own = ["--algorithm", "exact_per_pca(local_components=1)", "--out", folder_of_tables / "out"]
    code, said, err = flower_pca(capsys, "run", "x.csv", "--clients", 1, "--components", 1, *own)
    assert code == 0
    assert re.fullmatch(r"flower-pca: theta is .* below 0\.05 they cannot be separated.*\n", err)
    figures = re.findall(r"^(?:theta|error with own components): (.*)$", said, re.M)
    assert len(figures) == 2
    assert max(map(len, figures)) <= 11


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_a_percentage_is_a_number_of_components(folder_of_tables, capsys):
    code, said, _ = flower_pca(
        capsys, "run", "x.csv", "--clients", 2, "--components", "95%", "--out", folder_of_tables / "out"
    )
    assert code == 0
    assert "component" in said
    with pytest.raises(SystemExit):
        flower_pca(capsys, "run", "x.csv", "--components", "many")
    said = "it must be a number, a share such as 0.95 or 95%, or signal or shared, not 'many'"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "option"), [("--n-components", "--components"), ("--n_components=3", "--components"), ("--x", "")]
)
def test_a_name_of_python_as_an_option_of_the_command_is_answered_with_the_option(written, option, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "x.csv", written])
    assert ended.value.code == 2
    words = capsys.readouterr().err.splitlines()[-1]
    assert words.startswith(f"flower-pca: error: unrecognized arguments: {written}")
    assert words.endswith(f"Use {option} instead of {written.partition('=')[0]}." if option else written)


def exists(name):
    """Whether a name such as analysis.monitor.Monitor can be imported from the package."""
    module, _, last = f"flower_pca.{name}".rpartition(".")
    try:
        return hasattr(pkgutil.resolve_name(module), last)
    except (AttributeError, ModuleNotFoundError):
        return False


def test_every_function_that_a_message_advises_to_call_exists():
    package = Path(cli.__file__).parent
    strings = [
        node.value
        for file in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    functions = {name for text in strings for name in re.findall(r"\bflower_pca\.([\w.]+)\(", text)}
    methods = {name for text in strings for name in re.findall(r"\b([A-Z]\w+\.[a-z]\w*)\(", text)}
    known = {name for name in methods if exists(name.partition(".")[0])}
    assert len(functions) > 3
    assert known
    assert not {name for name in functions | known if not exists(name)}
