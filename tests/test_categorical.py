"""Columns of words: factor analysis of mixed data, against the pooled table after the same coding."""

import re

import numpy as np
import pandas as pd
import pytest
from builders import sine
from pages import folder_of_sites

from flower_pca import ConfigError, DataError, PCAResult, simulate
from flower_pca.cli import main
from flower_pca.data import sources
from flower_pca.data.partition import deal
from flower_pca.names import levels
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

WARDS = {"north": ["medicine", "surgery"], "south": ["icu", "medicine"], "west": ["eye", "surgery", "medicine"]}
WORDS = ("ward", "sex")


def table_of_site(site, n, seed):
    """Rows of a site, whose wards are not those of the others; age and pressure hang on them."""
    rng = np.random.default_rng([seed, n])
    ward, sex = rng.choice(WARDS[site], n), rng.choice(["f", "m"], n)
    age = 50 + 12 * (ward == "medicine") - 6 * (sex == "f") + rng.normal(0, 8, n)
    pressure = 80 + 0.4 * age + 9 * (ward == "icu") + rng.normal(0, 5, n)
    return pd.DataFrame({"age": age, "ward": ward, "pressure": pressure, "sex": sex, "weight": rng.normal(75, 9, n)})


TABLES = {site: table_of_site(site, n, 3) for site, n in (("north", 60), ("south", 45), ("west", 80))}
ROWS = pd.concat(TABLES.values(), ignore_index=True)
NUMBERS = ["age", "pressure", "weight"]


def coded(rows, found, words=WORDS, numbers=NUMBERS):
    """The reference: standardized numbers, and centered indicators over the roots of their shares (Pages)."""
    parts = [(rows[c] - ROWS[c].mean()) / ROWS[c].std(ddof=0) for c in numbers]
    for word in words:
        for level in found[word]:
            share = np.mean(ROWS[word] == level)
            parts.append(((rows[word] == level) - share) / np.sqrt(share))
    return np.column_stack(parts)


EVERY = {word: sorted(set(ROWS[word])) for word in WORDS}
NAMES_OF_GAPS = [*NUMBERS, "sex=f", "sex=m", *(f"ward={level}" for level in EVERY["ward"])]


def is_pooled_coded(result, Z, tol=1e-12):
    """Whether a result is LAPACK's SVD of the coded rows."""
    k = result.n_components_
    _, s, V = np.linalg.svd(Z, full_matrices=False)
    np.testing.assert_allclose(result.explained_variance_, s[:k] ** 2 / (len(Z) - 1), rtol=tol)
    np.testing.assert_allclose(result.total_variance_, np.sum(s**2) / (len(Z) - 1), rtol=tol)
    assert sine(result.components_, V[:k]) < tol


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "mask", "answers"),
    [
        ("covariance", False, "fixed"),
        ("covariance", True, "rows"),
        ("krylov", False, "rows"),
        ("ssi(tol=1e-13, max_rounds=500)", True, "fixed"),
    ],
)
def test_three_sites_with_unlike_levels_give_the_analysis_of_the_pooled_table(algorithm, mask, answers):
    ask = {"categorical": list(WORDS), "scale": "std", "mask": mask, "answers": answers}
    result = simulate(algorithm, TABLES, n_components=3, **ask)
    is_pooled_coded(result, coded(ROWS, EVERY), 1e-10 if mask else 1e-12)
    wards = ["ward=eye", "ward=icu", "ward=medicine", "ward=surgery"]
    assert result.feature_names_in_.tolist() == [*NUMBERS, *wards, "sex=f", "sex=m"]
    assert result.config["categorical"] == {"ward": EVERY["ward"], "sex": ["f", "m"]}
    assert "ward=" in result.table()


@pytest.mark.slow
def test_the_same_as_of_a_library():
    prince = pytest.importorskip("prince")
    n, words = len(ROWS), {site: rows[list(WORDS)] for site, rows in TABLES.items()}
    result = simulate("covariance", TABLES, n_components=3, categorical="ward,sex", scale="std")
    known = prince.FAMD(n_components=3).fit(ROWS)
    np.testing.assert_allclose(result.explained_variance_ * (n - 1) / n, known.eigenvalues_, rtol=1e-12)
    scores, signs = known.row_coordinates(ROWS).to_numpy(), np.ones(3)
    signs = np.sign(np.sum(scores * result.transform(ROWS), axis=0))
    np.testing.assert_allclose(result.transform(ROWS), scores * signs, atol=1e-12)
    result = simulate("covariance", words, n_components=3, categorical="ward,sex")
    known = prince.MCA(n_components=3).fit(ROWS[list(WORDS)])
    inertias = result.explained_variance_ * (n - 1) / n / len(WORDS)
    np.testing.assert_allclose(inertias, known.eigenvalues_, rtol=1e-12)


def test_words_alone_are_multiple_correspondence_analysis():
    tables = {site: rows[list(WORDS)] for site, rows in TABLES.items()}
    for scale in (None, "std"):
        result = simulate("covariance", tables, n_components=3, categorical=WORDS, scale=scale)
        is_pooled_coded(result, coded(ROWS, EVERY, numbers=[]))
    # Inertias of correspondence analysis of the table of indicators, whose row masses are 1/n.
    Z = pd.get_dummies(ROWS[list(WORDS)]).to_numpy(float)
    P = Z / Z.sum()
    r, c = P.sum(axis=1), P.sum(axis=0)
    s = np.linalg.svd((P - np.outer(r, c)) / np.sqrt(np.outer(r, c)), compute_uv=False)
    n = len(ROWS)
    np.testing.assert_allclose(result.explained_variance_ * (n - 1) / n / len(WORDS), s[:3] ** 2, rtol=1e-12)


def test_without_a_scale_and_by_the_largest_value_levels_count_by_their_shares():
    plain = simulate("covariance", TABLES, n_components=2, categorical="sex", columns="age,pressure")
    largest = simulate("covariance", TABLES, n_components=2, categorical="sex", columns="age,pressure", scale="max_abs")
    rows = ROWS[["age", "pressure"]].to_numpy()
    sexes = coded(ROWS, EVERY, words=["sex"], numbers=[])
    for result, divisor in ((plain, 1.0), (largest, np.abs(rows).max(axis=0))):
        Z = np.hstack([(rows - rows.mean(axis=0)) / divisor, sexes])
        is_pooled_coded(result, Z)


def test_columns_stand_where_the_run_names_them():
    result = simulate(
        "covariance", TABLES, n_components=2, columns="weight,sex,age", categorical="ward,sex", scale="std"
    )
    names = ["weight", "sex=f", "sex=m", "age", "ward=eye", "ward=icu", "ward=medicine", "ward=surgery"]
    assert result.feature_names_in_.tolist() == names


def test_scores_of_new_rows_and_files(tmp_path):
    result = simulate("covariance", TABLES, n_components=3, categorical="ward,sex", scale="std")
    Z = coded(ROWS, EVERY)
    np.testing.assert_allclose(result.transform(ROWS[::-1]), (Z @ result.components_.T)[::-1], atol=1e-11)
    path = result.save(tmp_path / "result.npz")
    again = PCAResult.load(path)
    np.testing.assert_array_equal(again.transform(ROWS), result.transform(ROWS))
    assert again.config["categorical"] == result.config["categorical"]
    error = np.mean(np.sum((Z - Z @ result.components_.T @ result.components_) ** 2, axis=1))
    assert result.reconstruction_error(ROWS) == pytest.approx(error, rel=1e-12)


def test_a_level_that_is_new_counts_as_other():
    new = ROWS.copy()
    new.loc[4, "ward"] = "burns"
    listed = {"ward": ["medicine", "surgery", "other"], "sex": None}
    result = simulate("covariance", TABLES, n_components=2, categorical=listed, scale="std")
    merged = ROWS.assign(ward=ROWS["ward"].where(ROWS["ward"].isin(["medicine", "surgery"]), "other"))
    same = simulate(
        "covariance", [merged.iloc[:100], merged.iloc[100:]], n_components=2, categorical=["ward", "sex"], scale="std"
    )
    assert sine(result.components_[:, :6], same.components_[:, :6]) < 1e-12
    np.testing.assert_allclose(result.explained_variance_, same.explained_variance_, rtol=1e-12)
    new.loc[5, "ward"] = "eye"
    np.testing.assert_allclose(result.transform(new)[4], result.transform(new.replace("burns", "icu"))[4], rtol=1e-12)


def test_a_level_of_the_list_that_nobody_has_weighs_nothing():
    ask = {"n_components": 2, "columns": "age,pressure", "scale": "std"}
    more = simulate("covariance", TABLES, categorical={"sex": ["f", "m", "x"]}, **ask)
    less = simulate("covariance", TABLES, categorical="sex", **ask)
    assert np.abs(more.components_[:, -1]).max() == 0.0
    np.testing.assert_allclose(more.explained_variance_, less.explained_variance_, rtol=1e-13)


@pytest.mark.parametrize("mask", [False, True])
def test_gaps_in_columns_of_words_are_gaps(mask):
    tables = {site: rows.copy() for site, rows in TABLES.items()}
    tables["north"].loc[3, "ward"] = None
    tables["west"].loc[[1, 2], "ward"] = np.nan
    ask = {"categorical": "ward,sex", "scale": "std", "missing": "mean", "mask": mask}
    result = simulate("krylov(tol=1e-12)", tables, n_components=2, **ask)
    rows = pd.concat(tables.values(), ignore_index=True)
    there = rows["ward"].notna()
    parts = [coded(rows, EVERY, words=["sex"])]
    for level in EVERY["ward"]:
        share = np.mean(rows.loc[there, "ward"] == level)
        parts.append(np.where(there, ((rows["ward"] == level) - share) / np.sqrt(share), 0.0))
    Z = np.column_stack(parts)
    _, s, V = np.linalg.svd(Z, full_matrices=False)
    places = [result.feature_names_in_.tolist().index(name) for name in NAMES_OF_GAPS]
    np.testing.assert_allclose(result.explained_variance_, s[:2] ** 2 / (len(Z) - 1), rtol=1e-9)
    assert sine(result.components_[:, places], V[:2]) < 1e-9


@pytest.mark.parametrize("word", ["NA", "#N/A", "NULL", "NaN"])
def test_what_r_excel_and_databases_write_for_a_gap_is_no_level(word, tmp_path):
    rows = ROWS.copy()
    rows.loc[[3, 40, 100], "ward"] = None
    one, other = (
        sources.make(
            str(rows.to_csv(tmp_path / f"{i}.csv", na_rep=gap, index=False) or tmp_path / f"{i}.csv"), words=WORDS
        )
        for i, gap in enumerate(("", word))
    )
    ask = {"n_components": 2, "categorical": WORDS, "scale": "std", "missing": "mean"}
    found, reference = (simulate("covariance", [file[:90], file[90:]], **ask) for file in (other, one))
    assert found.feature_names_in_.tolist() == reference.feature_names_in_.tolist()
    np.testing.assert_array_equal(found.components_, reference.components_)


def test_categoricals_and_codes_are_levels_too():
    kinds = {
        site: rows.assign(ward=rows["ward"].astype("category"), sex=np.where(rows["sex"] == "f", 1, 2))
        for site, rows in TABLES.items()
    }
    one = simulate("covariance", kinds, n_components=2, categorical=WORDS, scale="std")
    other = simulate("covariance", TABLES, n_components=2, categorical=WORDS, scale="std")
    assert one.feature_names_in_.tolist()[-2:] == ["sex=1", "sex=2"]
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.transform(kinds["west"]), other.transform(TABLES["west"]))


@pytest.mark.parametrize(("sep", "decimal"), [(",", "."), (";", ",")])
def test_codes_that_an_empty_cell_turns_into_decimals_are_the_same_levels_in_files(tmp_path, sep, decimal):
    """A program writes 2 at one site, and 2.0 at a site where one code is missing. The reference has whole numbers."""
    codes = {
        site: rows.drop(columns="ward").assign(sex=np.where(rows["sex"] == "f", 1, 2)) for site, rows in TABLES.items()
    }
    codes["south"] = codes["south"].assign(sex=codes["south"]["sex"].where(np.arange(45) != 7))
    for site, rows in codes.items():
        rows.to_csv(tmp_path / f"{site}.csv", sep=sep, decimal=decimal, index=False)
    assert f"2{decimal}0" in (tmp_path / "south.csv").read_text()
    ask = {"n_components": 2, "categorical": ["sex"], "scale": "std", "missing": "mean"}
    files = deal(sources.table(str(tmp_path), words=["sex"]))
    found, reference = (simulate("covariance", data, **ask) for data in (files, codes))
    assert found.feature_names_in_.tolist() == ["age", "pressure", "weight", "sex=1", "sex=2"]
    np.testing.assert_allclose(found.components_, reference.components_, atol=1e-12)


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
def test_true_and_false_are_the_same_levels_whether_or_not_a_cell_is_missing(tmp_path, ending):
    """The reference has the codes 1 and 0."""
    whole = {site: rows.drop(columns="ward").assign(sex=(rows["sex"] == "f")) for site, rows in TABLES.items()}
    whole["south"] = whole["south"].assign(sex=whole["south"]["sex"].astype("boolean").where(np.arange(45) != 7))
    codes = {site: rows.assign(sex=rows["sex"].astype("Float64")) for site, rows in whole.items()}
    if ending == "csv":  # as R writes them
        whole["west"] = whole["west"].assign(sex=np.where(whole["west"]["sex"], "TRUE", "FALSE"))
    write = {"csv": "to_csv", "parquet": "to_parquet", "xlsx": "to_excel"}[ending]
    for site, rows in whole.items():
        getattr(rows, write)(tmp_path / f"{site}.{ending}", index=False)
    ask = {"n_components": 2, "categorical": {"sex": [True, False]}, "scale": "std", "missing": "mean"}
    reference = simulate("covariance", codes, **{**ask, "categorical": {"sex": [1, 0]}})
    found = simulate("covariance", deal(sources.table(str(tmp_path), words=["sex"])), **ask)
    assert found.feature_names_in_.tolist() == ["age", "pressure", "weight", "sex=1", "sex=0"]
    np.testing.assert_allclose(found.components_, reference.components_, atol=1e-12)
    free = simulate("covariance", deal(sources.table(str(tmp_path), words=["sex"])), **{**ask, "categorical": ["sex"]})
    assert free.feature_names_in_.tolist() == ["age", "pressure", "weight", "sex=0", "sex=1"]


@pytest.mark.parametrize("cells", [("True", "False", "maybe"), ("1.0", "1.1", "2,0")])
def test_indicators_may_be_named_as_cells_are_written(cells):
    """An earlier result may name such columns, too. The reference is the indicators as columns of numbers."""
    rng = np.random.default_rng(4)
    tables = [
        pd.DataFrame(rng.standard_normal((40, 2)), columns=["x", "y"]).assign(v=np.resize(cells, 40)) for _ in range(2)
    ]
    columns = ["x", "y", *(f"v={cell}" for cell in cells[:2]), "v=other"]
    numbers = [
        np.column_stack([rows[["x", "y"]], *(rows["v"] == cell for cell in cells)]).astype(float) for rows in tables
    ]
    ask = {"n_components": 2}
    reference = simulate("covariance", numbers, **ask)
    found = simulate("covariance", tables, columns=columns, **ask)
    assert found.feature_names_in_.tolist() == columns
    np.testing.assert_allclose(found.components_, reference.components_, atol=1e-12)
    np.testing.assert_allclose(found.transform(tables[0]), reference.transform(numbers[0]), atol=1e-12)
    named = [*columns[:4], f"v={cells[2]}"]
    coded = simulate("covariance", tables, columns=named, categorical=["v"], **ask)
    words = [rows.assign(v=rows["v"].map(dict(zip(cells, "pqr", strict=True)))) for rows in tables]
    same = simulate("covariance", words, categorical={"v": ["p", "q", "r"]}, **ask)
    np.testing.assert_allclose(coded.components_, same.components_, atol=1e-12)
    node = LocalData(levels.code_columns(Table.of(tables[0], who="a"), ["v"], least=1))
    with pytest.raises(DataError, match="but its rows also have"):  # A node refuses columns by name.
        node.arrange(tuple(named))


def test_levels_are_read_in_every_form():
    same = (("ward", None), ("sex", None))
    for given in ("ward,sex", ["ward", "sex"], {"ward": None, "sex": None}, same):
        assert levels.read_levels(given) == same
    some = levels.read_levels({"ward": ["b", 2.0]})
    assert some == (("ward", ("b", "2")),)
    assert levels.read_levels(levels.plain_levels(some)) == some


def test_rare_levels_are_one_or_go_with_the_commonest():
    def merged(text, least):
        return "".join(one or "." for one in levels._merge_rare_levels([c if c != "." else None for c in text], least))

    assert merged("aaaabbbcc.", 1) == "aaaabbbcc."
    assert merged("aaaabbbccd", 3) == "aaaabbb" + "other" * 3
    assert merged("aaaabbbc.", 3) == "aaaabbba."
    assert merged("abab", 3) == "other" * 4


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_takes_files_with_columns_of_words(tmp_path, capsys):
    folder = folder_of_sites(tmp_path / "sites", TABLES)
    ask = ["--scale", "std", "--components", "3", "--algorithm", "covariance"]
    assert (
        main(
            ["run", str(folder), "--categorical", "ward", "--categorical", "sex", *ask, "--out", str(tmp_path / "out")]
        )
        == 0
    )
    result = PCAResult.load(tmp_path / "out" / "result.npz")
    is_pooled_coded(result, coded(ROWS, EVERY))
    assert "ward=" in (tmp_path / "out" / "report.html").read_text()
    ROWS.to_csv(tmp_path / "all.csv", index=False)
    scores = tmp_path / "scores.npy"
    assert main(["transform", str(tmp_path / "out" / "result.npz"), str(tmp_path / "all.csv"), "-o", str(scores)]) == 0
    np.testing.assert_allclose(np.load(scores), result.transform(ROWS), atol=1e-12)
    assert main(["score", str(tmp_path / "out" / "result.npz"), str(folder)]) == 0
    ROWS.assign(ward="burns").to_csv(tmp_path / "new.csv", index=False)
    given = [str(tmp_path / "out" / "result.npz"), str(tmp_path / "new.csv"), "-o", str(scores)]
    assert main(["transform", *given]) == 2
    assert "the levels of column ward of" in (said := capsys.readouterr().err)
    assert re.search(r"is.* in line 2 of \S*new\.csv", said)
    assert "burns" not in said


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_command_line_finds_levels_beside_other_columns_of_words(tmp_path, capsys):
    named = {site: rows.assign(patient=[f"{site}-{i}" for i in range(len(rows))]) for site, rows in TABLES.items()}
    folder, out = folder_of_sites(tmp_path / "sites", named), tmp_path / "out"
    numbers = [name for name in ROWS if name not in WORDS]
    ask = ["--columns", ",".join(numbers), "--categorical", "ward,sex", "--scale", "std", "--components", "3"]
    assert main(["run", str(folder), *ask, "--out", str(out)]) == 0
    result, scores = PCAResult.load(out / "result.npz"), tmp_path / "scores.csv"
    assert main(["transform", str(out / "result.npz"), str(folder), "-o", str(scores)]) == 0
    written = pd.read_csv(scores)[["component_1", "component_2", "component_3"]].to_numpy()
    np.testing.assert_allclose(written, result.transform(pd.concat(TABLES.values())), atol=1e-12)
    assert main(["score", str(out / "result.npz"), str(folder)]) == 0
    path = folder / "north.csv"
    pd.read_csv(path, dtype=str).assign(**{numbers[0]: "many"}).to_csv(path, index=False)
    assert main(["transform", str(out / "result.npz"), str(folder), "-o", str(scores)]) == 2
    assert f"a text of 4 letters in column {numbers[0]} (line 2)" in capsys.readouterr().err


def test_a_file_of_words_alone(tmp_path):
    ROWS[list(WORDS)].to_csv(tmp_path / "words.csv", index=False)
    rows = sources.make(str(tmp_path / "words.csv"), words=WORDS)
    result = simulate("covariance", [rows[:90], rows[90:]], n_components=3, categorical=WORDS)
    is_pooled_coded(result, coded(ROWS, EVERY, numbers=[]))
    np.testing.assert_allclose(result.transform(str(tmp_path / "words.csv")), result.transform(ROWS), atol=1e-12)


@pytest.mark.parametrize("whole", [False, True])
def test_the_estimator_takes_columns_of_words(whole):
    pytest.importorskip("sklearn")
    from sklearn.base import clone

    from flower_pca import FederatedPCA

    if whole:
        given, sites = ROWS, np.repeat(list(TABLES), [len(rows) for rows in TABLES.values()])
    else:
        given, sites = TABLES, None
    made = clone(FederatedPCA(3, scale="std", algorithm="covariance", categorical=["ward", "sex"]))
    found = made.fit(given, sites=sites)
    names = ["age", *(f"ward={level}" for level in EVERY["ward"]), "pressure", "sex=f", "sex=m", "weight"]
    assert found.result_.feature_names_in_.tolist() == names
    assert found.feature_names_in_.tolist() == ["age", "ward", "pressure", "sex", "weight"]
    assert found.n_features_in_ == 5
    Z = coded(ROWS, EVERY)
    in_order = [0, 3, 4, 5, 6, 1, 7, 8, 2]
    is_pooled_coded(found.result_, Z[:, in_order])
    np.testing.assert_allclose(found.transform(ROWS), Z[:, in_order] @ found.components_.T, atol=1e-12)
    np.testing.assert_allclose(found.transform(list(TABLES.values())), found.transform(ROWS))
    mixed = ROWS[ROWS.columns[::-1]]
    np.testing.assert_array_equal(found.transform(mixed), found.transform(ROWS))


def test_the_estimator_finds_all_components_of_words_that_there_are():
    pytest.importorskip("sklearn")
    from flower_pca import FederatedPCA

    found = FederatedPCA(categorical="ward,sex", columns="ward,sex").fit(TABLES)
    assert found.n_components_ == 4  # of 4 wards and 2 sexes, of which one each follows from the others
    is_pooled_coded(found.result_, coded(ROWS, EVERY, numbers=[]), 1e-10)
    assert found.result_.left_out_variance_ == pytest.approx(0.0, abs=1e-9)
    listed = FederatedPCA(2, categorical={"ward": ["medicine", "other"]}, columns=NUMBERS).fit(TABLES)
    assert listed.result_.feature_names_in_.tolist() == [*NUMBERS, "ward=medicine", "ward=other"]


def test_levels_that_only_capitals_and_spaces_tell_apart_are_pointed_out():
    tables = {site: rows.copy() for site, rows in TABLES.items()}
    first = next(iter(tables))
    tables[first]["sex"] = tables[first]["sex"].replace({"f": "F "})
    with pytest.warns(UserWarning, match=r"The levels F, f of sex differ only in capitals, spaces or hyphens\."):
        result = simulate("krylov", tables, n_components=2, categorical="ward,sex")
    assert {"sex=F", "sex=f"} < set(result.feature_names_in_)
    simulate("krylov", TABLES, n_components=2, categorical="ward,sex")  # Warnings are errors in tests.
    listed = {"sex": ["F", "f", "m"]}  # as said
    simulate("krylov", tables, n_components=2, categorical=listed, columns=["age", "weight", "sex"])


@pytest.mark.parametrize(
    ("found", "pair"),
    [(["Type-A", "type a", "type_b"], "Type-A, type a"), (["covid 19", "COVID-19"], "COVID-19, covid 19")],
)
def test_spaces_and_hyphens_in_words_tell_no_levels_apart(found, pair):
    with pytest.warns(UserWarning, match=f"The levels {pair} of code differ"):
        levels.Coding((("code", None),)).with_levels_of_sites([{"code": found}])


@pytest.mark.parametrize("found", [["-1", "1"], ["Rh", "Rh-", "Rh+"], ["1-2", "12", "1 2"], ["-", "_"]])
def test_a_minus_and_what_parts_numbers_tell_levels_apart(found):
    made = (
        levels.Coding((("code", None),)).with_levels_of_sites([{"code": found}]).new_columns
    )  # Warnings are errors in tests.
    assert len(made) == len(found)


def test_levels_of_data_without_names_are_refused():
    with pytest.raises(ConfigError, match=r"categorical names ward, but the data has no such column\."):
        sources.table("synthetic(n=100, d=5, clients=3)", words=["ward"])
