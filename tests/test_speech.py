"""What the command says of mistakes speaks of options, not of Python."""

import re

import numpy as np
import pytest
from cases import every
from pages import flower_pca

from flower_pca.commands import common

SAID = {
    'Impute or drop these, or use missing="mean".': "Impute or drop these, or use --missing mean.",
    "Drop them, or use scale=None.": "Drop them, or use no --scale.",
    'Use scale="std" if units differ.': "Use --scale std if units differ.",
    "n_components must be a whole number. Got 0.": "--components must be a whole number. Got 0.",
    "max_rounds of krylov must be at least 1.": "--max-rounds of krylov must be at least 1.",
    "scale under masks must be None or 'std'.": "--scale under masks must be None or 'std'.",
    "evaluate with dp must be False. Got True.": "--evaluate with dp must be False. Got True.",
    "Limits must be of a run with monitor=True.": "Limits must be of a run with --monitor.",
    "Run with center=False, or mask=False.": "Run with --no-center, or no --mask.",
    'Use source="theory".': "Use --limits theory.",
    "Use ssi(max_rounds=5), or dp(epsilon=1.0, clip=3).": "Use ssi(max_rounds=5), or dp(epsilon=1.0, clip=3).",
    "Choose others with columns=[...].": "Choose others with --columns a,b.",
    "The scale of these rows is theirs.": "The scale of these rows is theirs.",
}


@every("message", SAID)
def test_keywords_become_options_but_for_those_of_specs(message):
    assert common.spoken(message) == SAID[message]


@pytest.fixture
def folder_of_tables(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((12, 3))
    gaps = rows.copy()
    gaps[5, 1] = np.nan
    for name, table in (("x", rows), ("gaps", gaps), ("still", rows * [1.0, 0.0, 1.0])):
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header="c,b,a", comments="")
    (tmp_path / "words.csv").write_text("a,b\n1,high\n2,low\n")
    (tmp_path / "de.csv").write_text('a,b\n"1,5",0.2\n"2,5",0.3\n')
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/words.csv").write_text("a,b\n1,high\n2,low\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


MISTAKES = {
    "gaps": (["gaps.csv"], "The first is in line 7 of {place}/gaps.csv, column b. Impute or drop these"),
    "a gap's remedy": (["gaps.csv"], "entries before the run, or use --missing mean."),
    "a still column": (["still.csv", "--scale", "std"], "Got constant column b. Drop it, or use no --scale."),
    "words": (["words.csv"], "Got 'high' in column b (line 2). Choose others with --columns a,b, leav"),
    "words apart": (["words.csv"], "leave them out with --drop b, or encode them."),
    "words in a folder": (["sites"], "leave them out with --drop b, or"),
    "words of a spec": (["csv('words.csv', sep=',')"], "leave them out with --drop b, or"),
    "decimals": (["de.csv"], "by a spec, \"csv(path='de.csv', decimal=',')\""),
    "too many": (["x.csv", "--components", "9"], "--components must be at most min(n_samples, n_features) = m"),
    "rounds": (["x.csv", "--max-rounds", "0"], "--max-rounds of krylov must be a whole number of at least 1."),
    "masks": (["x.csv", "--scale", "max_abs", "--mask"], "--scale under masks must be None or 'std', which follow"),
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
    message = "Got 'm' in column sex (line 2), 'x' in column note (line 3). Or keep these apart with beside=[...]."
    for data in ("csv('x.csv', beside=['site'])", "csv('x.csv', beside=['site'], sep=';')"):
        said = common.spoken(message, data)
        assert said.count("beside=") == 1
        assert "beside=['site', 'sex', 'note'])" in said
    assert common.spoken(message, "x.csv", drops=True).endswith("Or leave them out with --drop sex,note.")


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_what_is_warned_of_is_said_in_a_sentence_without_a_place_in_the_code(folder_of_tables, capsys):
    own = ["--algorithm", "exact_per_pca(local_components=1)", "--out", folder_of_tables / "out"]
    code, said, err = flower_pca(capsys, "run", "x.csv", "--clients", 1, "--components", 1, *own)
    assert code == 0
    assert re.fullmatch(r"flower-pca: theta must be at least 0\.05 for shared and own components .*\n", err)
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
