"""Test that errors about missing values name file, line, column and remedy."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from pages import flower_pca

from flower_pca import ConfigError, DataError, PCAResult, simulate
from flower_pca.data import partition
from flower_pca.data.sources import make, table, words_among
from flower_pca.names.levels import levels_of_rows
from flower_pca.names.table import Table

RNG = np.random.default_rng(0)
ROWS = np.round(RNG.standard_normal((12, 3)) * [3.0, 2.0, 1.0] + 5.0, 4)
NAMES = ("age", "bmi", "pulse")


def csv(path, rows, *, gap=None, site=None, sep=","):
    """A file with an empty line after its header and within its rows; the line of the gap is told."""
    lines, where = [sep.join([*NAMES, *(["site"] if site else [])]), ""], None
    for i, row in enumerate(rows):
        cells = [repr(float(v)) for v in row] + ([site[i]] if site else [])
        if i == 3:
            lines.append("")
        if gap is not None and gap[0] == i:
            cells[gap[1]] = ""
            where = len(lines) + 1
        lines.append(sep.join(cells))
    path.write_text("\n".join(lines) + "\n")
    return where


def gap_is_named(run, path, line, column):
    place = f"The first is in line {line} of {re.escape(str(path))}, column {column}\\. "
    with pytest.raises(DataError, match=f"^The data of client .* has 1 missing value \\(NaN\\)\\. .*{place}Impute"):
        run()


def test_a_missing_value_of_one_file_is_named(tmp_path):
    line = csv(tmp_path / "x.csv", ROWS, gap=(7, 1))
    assert line == 11
    gap_is_named(
        lambda: simulate("krylov", [make(str(tmp_path / "x.csv"))], n_components=1), tmp_path / "x.csv", line, "bmi"
    )
    chosen = {"n_components": 1, "columns": ["pulse", "bmi"]}
    gap_is_named(lambda: simulate("krylov", [make(str(tmp_path / "x.csv"))], **chosen), tmp_path / "x.csv", line, "bmi")


def test_a_missing_value_of_one_file_of_a_folder_is_named(tmp_path):
    csv(tmp_path / "a.csv", ROWS[:5])
    line = csv(tmp_path / "b.csv", ROWS[5:], gap=(4, 2))
    apart = [make(str(tmp_path / name)) for name in ("a.csv", "b.csv")]
    gap_is_named(lambda: simulate("krylov", apart, n_components=1), tmp_path / "b.csv", line, "pulse")
    folder = table(str(tmp_path))
    gap_is_named(lambda: simulate("krylov", partition.deal(folder), n_components=1), tmp_path / "b.csv", line, "pulse")
    gap_is_named(
        lambda: simulate("krylov", partition.deal(folder, "iid(seed=3)", 3), n_components=1),
        tmp_path / "b.csv",
        line,
        "pulse",
    )
    gap_is_named(lambda: simulate("krylov", [make(str(tmp_path))], n_components=1), tmp_path / "b.csv", line, "pulse")


@pytest.mark.parametrize("deal", ["by_column('site')", "iid(seed=1)", "contiguous"])
def test_a_missing_value_of_dealt_rows_is_named_by_its_line(deal, tmp_path):
    line = csv(tmp_path / "x.csv", ROWS, gap=(8, 0), site=["north", "south"] * 6)
    found = table(str(tmp_path / "x.csv"), beside=["site"])
    gap_is_named(
        lambda: simulate("krylov", partition.deal(found, deal, 2), n_components=1), tmp_path / "x.csv", line, "age"
    )
    part = next(part for part in partition.deal(found, deal, 2) if np.isnan(part.values).any())
    row = int(np.argwhere(np.isnan(part.values))[0][0])
    gap_is_named(lambda: simulate("krylov", [part[row:]], n_components=1), tmp_path / "x.csv", line, "age")
    gap_is_named(
        lambda: simulate("krylov", [part[np.arange(len(part))[::-1]]], n_components=1), tmp_path / "x.csv", line, "age"
    )


def test_a_missing_value_without_a_header_is_named_by_its_position(tmp_path):
    (tmp_path / "x.csv").write_text("1,2,3\n4,5,7\n\n7,,9\n1,0,0\n")
    gap_is_named(
        lambda: simulate("krylov", [make(str(tmp_path / "x.csv"))], n_components=1), tmp_path / "x.csv", 4, "1"
    )


@pytest.mark.usefixtures("lines")
def test_a_message_of_a_node_tells_no_place(tmp_path):
    from fake_grid import grid_of

    from flower_pca import NotEnoughNodes
    from flower_pca.strategies import PCAStrategy

    csv(tmp_path / "x.csv", ROWS, gap=(7, 1))
    with pytest.raises(NotEnoughNodes, match="has 1 missing value") as caught:
        PCAStrategy("krylov", n_components=1, min_nodes=1).fit(grid_of([make(str(tmp_path / "x.csv"))]))
    assert "line" not in str(caught.value)
    assert "x.csv" not in str(caught.value)


@pytest.fixture
def result_file(tmp_path):
    return simulate("krylov", [Table(ROWS, NAMES)], n_components=2).save(tmp_path / "result.npz")


def test_new_rows_with_gaps_can_be_filled(result_file, tmp_path):
    csv(tmp_path / "new.csv", ROWS, gap=(7, 1))
    found, new = PCAResult.load(result_file), str(tmp_path / "new.csv")
    filled = ROWS.copy()
    filled[7, 1] = ROWS[:, 1].mean()
    wanted = (filled - ROWS.mean(axis=0)) @ found.components_.T
    np.testing.assert_allclose(found.with_imputation().transform(new), wanted[:, :], atol=1e-12)


@pytest.mark.parametrize("name", ["transform", "score"])
def test_the_commands_say_so_and_fill(name, result_file, tmp_path, capsys):
    line = csv(tmp_path / "new.csv", ROWS, gap=(7, 1))
    words = [name, result_file, tmp_path / "new.csv", "-o", tmp_path / "out.csv"]
    code, said, err = flower_pca(capsys, *words)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert f"in line {line} of {tmp_path / 'new.csv'}, column bmi. Impute or drop them, or use --missing" in err
    assert err.endswith("or use --missing mean.\n")
    code, said, err = flower_pca(capsys, *words, "--missing", "mean")
    assert (code, err) == (0, "")
    if name == "transform":
        found = PCAResult.load(result_file).with_imputation().transform(str(tmp_path / "new.csv"))
        text = (tmp_path / "out.csv").read_text().splitlines()
        scores = [line.split(",")[-found.shape[1] :] for line in text[1:]]
        np.testing.assert_allclose(np.array(scores, dtype=float), found)


@pytest.mark.parametrize("name", ["transform", "score"])
def test_numbers_and_words_that_stand_for_a_missing_value_are_filled(name, result_file, tmp_path, capsys):
    """A column of sites and one of ids stand beside the rows, which are read again for these."""
    lines = [",".join([*NAMES, "site", "patient_id"])]
    lines += [f"{','.join(map(repr, map(float, row)))},bonn,P{i}" for i, row in enumerate(ROWS)]
    plain, coded = tmp_path / "plain.csv", tmp_path / "coded.csv"
    for file, word, number in ((plain, "", ""), (coded, "?", "-999")):
        cells = [line.split(",") for line in lines]
        cells[3][1], cells[5][0] = word, number
        file.write_text("\n".join(map(",".join, cells)) + "\n")
    found = []
    for file, options in ((plain, []), (coded, ["--gaps", "?", "--gaps", "age=-999"])):
        words = [name, result_file, file, "-o", tmp_path / "out.csv"]
        code, _, err = flower_pca(capsys, *words, *options)
        assert (code, "2 missing values" in err) == (2, True)
        assert flower_pca(capsys, *words, *options, "--missing", "mean")[0] == 0
        found.append((tmp_path / "out.csv").read_text().replace(file.name, "rows.csv"))
    assert "P4" in found[0]
    assert found[0] == found[1]


def test_the_fill_of_a_run_that_allowed_for_gaps_stays():
    gaps = simulate("krylov", [Table(ROWS, NAMES)], n_components=2, center=False, missing="mean")
    assert gaps.with_imputation().fill_ is gaps.fill_


@pytest.mark.slow
def test_gaps_in_new_rows_of_a_robust_result_can_be_filled():
    rows = RNG.standard_normal((60, 2)) @ RNG.standard_normal((2, 6))
    found = simulate("consensus_rpca(gamma=0.7)", [rows], n_components=2)
    holes = rows[:5].copy()
    holes[2, 3] = np.nan
    np.testing.assert_allclose(found.with_imputation().transform(holes)[2], found.transform(rows[:5])[2], atol=1e-6)


def test_track_names_the_file_as_well(tmp_path, capsys):
    for text, message in (("a,b\n", "x.csv has no rows."), ("a,b\n1,x\n", "a text of 1 letter in column b (line 2)")):
        (tmp_path / "x.csv").write_text(text)
        words = ["track", tmp_path / "x.csv", "--batch", 2, "--components", 1, "--out", tmp_path / "out"]
        code, said, err = flower_pca(capsys, *words)
        assert (code, said, err.count("\n"), message in err) == (2, "", 1, True), err


def test_a_missing_value_of_a_table_with_sites_is_named(tmp_path):
    from flower_pca import from_frame

    line = csv(tmp_path / "x.csv", ROWS, gap=(8, 0), site=["1", "2"] * 6)
    sites = from_frame(make(str(tmp_path / "x.csv")), by="site")
    gap_is_named(lambda: simulate("krylov", sites, n_components=1), tmp_path / "x.csv", line, "age")


def test_zeros_of_sparse_rows_cannot_stand_for_missing_values(tmp_path):
    sp.save_npz(tmp_path / "rows.npz", sp.csr_array(np.eye(4) * 7.0))
    spec = f"sparse(path='{tmp_path}/rows.npz')"
    assert np.isnan(make(spec, gaps=[7]).toarray()).sum() == 4
    with pytest.raises(ConfigError, match=r"gaps names 0 .* in column 1, but the rows are sparse"):
        make(spec, gaps=[0])


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "xlsx"])
@pytest.mark.parametrize("gaps", [["?", -9], {"ward": ["?"], "code": [-9]}])
def test_what_stands_for_a_missing_value_is_no_level(tmp_path, ending, gaps):
    """The reference is the same table with empty cells, as a data frame."""
    rng = np.random.default_rng(1)
    wards, codes = rng.choice(["a", "b", "?"], 60), rng.choice([1, 2, -9], 60)
    frame = pd.DataFrame(rng.standard_normal((60, 3)), columns=list(NAMES)).assign(ward=wards, code=codes)
    path = tmp_path / f"sites.{ending}"
    write = {"csv": "to_csv", "parquet": "to_parquet", "feather": "to_feather", "xlsx": "to_excel"}[ending]
    getattr(frame, write)(path, **({"index": False} if ending in ("csv", "xlsx") else {}))
    empty = frame.assign(ward=frame["ward"].replace("?", None), code=frame["code"].where(codes != -9))
    ask = {"n_components": 2, "categorical": ["ward", "code"], "missing": "mean"}
    reference = simulate("covariance", [empty[:40], empty[40:]], **ask)
    reader = {"feather": "arrow", "xlsx": "excel"}.get(ending, ending)
    inside = f"{reader}(path={str(path)!r}, gaps={gaps!r})"
    for rows in (table(str(path), words=["ward", "code"], gaps=gaps), table(inside, words=["ward", "code"])):
        found = simulate("covariance", [rows.take(slice(40)), rows.take(slice(40, 60))], **ask)
        assert found.feature_names_in_.tolist() == [*NAMES, "ward=a", "ward=b", "code=1", "code=2"]
        np.testing.assert_allclose(found.components_, reference.components_, atol=1e-12)


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize(
    ("cells", "gap", "left"), [(["1,5", "10,0"], "10,0", "1,5"), ([True, False], "FALSE", "1"), ([True, False], 0, "1")]
)
def test_what_stands_for_a_missing_value_is_compared_as_a_level(tmp_path, ending, cells, gap, left):
    path = tmp_path / f"a.{ending}"
    frame = pd.DataFrame({"x": RNG.standard_normal(8), "code": np.resize(cells, 8)})
    write = {"csv": "to_csv", "parquet": "to_parquet", "xlsx": "to_excel"}[ending]
    getattr(frame, write)(path, index=False)
    rows = table(str(path), words=["code"], gaps={"code": [gap]})
    assert levels_of_rows(rows, "code") == [left, None] * 4


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize(("gap", "asked"), [(None, []), (".", ["--gaps", "age=."]), (-9, ["--gaps=-9"])])
def test_a_covariate_of_numbers_with_a_gap_is_named_and_none_of_its_cells(tmp_path, capsys, ending, gap, asked):
    """As a column of words, it would be called age=41.5, which is the cell of one person."""
    if ending == "parquet" and gap == ".":
        gap, asked = np.nan, []  # A column of a parquet file has a single type.
    rng = np.random.default_rng(2)
    for site in "ab":
        ages = list(rng.permutation(np.arange(41.5, 81.5)))
        if site == "b":
            ages[5] = gap
        rows = pd.DataFrame(rng.standard_normal((40, 3)), columns=["x", "y", "z"]).assign(age=ages)
        if ending == "parquet" and gap == ".":
            rows["age"] = rows["age"].astype(str)
        write = {"csv": "to_csv", "parquet": "to_parquet", "xlsx": "to_excel"}[ending]
        getattr(rows, write)(tmp_path / f"{site}.{ending}", index=False)
    assert words_among(str(tmp_path), ["age"], gaps={"age": [gap]} if asked else None) == ()
    run = ["run", tmp_path, "--explain", "age", "--missing", "mean", *asked, "--out", tmp_path / "out"]
    code, _, said = flower_pca(capsys, *run)
    assert code == 2
    assert "covariate age of client 1 (b) has missing values" in said


def test_covariates_of_words_and_of_codes_with_zeros_in_front_are_words(tmp_path):
    lines = ["x,sex,code,alive,size", "1.5,f,007,True,1", "2.5,,,,", "3.5,m,041,False,2.5"]
    (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
    found = words_among(str(tmp_path / "a.csv"), ["sex", "code", "alive", "size"])
    assert found == ("sex", "code")
    stored = pd.DataFrame({"x": [1.5, 2.5, 3.5], "code": ["1", "2", "1"], "size": [1.0, None, 2.5]})
    stored.to_parquet(tmp_path / "b.parquet")
    assert words_among(str(tmp_path / "b.parquet"), ["code", "size"]) == ("code",)
