"""Sites that are harmonized by ComBat before the PCA."""

import contextlib
import io

import numpy as np
import pandas as pd
import pytest
from builders import gone_on, share_between_sites
from fake_grid import grid_of, in_a_run
from pages import folder_of_sites
from test_explain import share_of, shares_by_least_squares

from flower_pca import PCAResult, assembly, cli, simulate
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.estimator.federated import to_sklearn
from flower_pca.results import facts
from flower_pca.results import site as sites
from flower_pca.rows import combat
from flower_pca.stages import harmonized_opening, opening
from flower_pca.strategies import PCAStrategy

COVARIATES = ("age", "sex")
KEPT = [("age", "sex"), ("age",), ()]


def scanners_of_sites(seed=0, *, sizes=(40, 25, 60), columns=12):
    """Sites that differ in location and scale; ages are in quarters, as neuroCombat reads them in single precision."""
    rng = np.random.default_rng(seed)
    slopes = 0.05 * rng.standard_normal(columns)
    tables = []
    for n, off, scale in zip(sizes, (0.0, 0.8, -0.5), (1.0, 1.5, 0.8), strict=False):
        age = np.round(rng.normal(50 + 6 * off, 10, n) * 4) / 4
        X = rng.standard_normal((n, columns)) * np.linspace(3, 1, columns) * scale + off * rng.normal(1, 0.3, columns)
        table = pd.DataFrame(X + np.outer(age, slopes), columns=[f"x{j:02d}" for j in range(columns)])
        tables.append(table.assign(age=age, sex=rng.choice(["F", "M"], n)))
    return tables


def features_in(table):
    return [name for name in table if name not in COVARIATES]


def combat_of(tables, keep, stop=1e-13):
    """ComBat of the pooled rows by the formulas of Johnson, Li and Rabinovic, to a relative change of `stop`."""
    pooled = pd.concat(tables)
    X, n = pooled[features_in(pooled)].to_numpy(), len(pooled)
    sizes = np.array([len(table) for table in tables])
    site = np.repeat(np.eye(len(tables)), sizes, axis=0)
    columns = [pooled.age.to_numpy()] if "age" in keep else []
    if "sex" in keep:
        columns.append((pooled.sex == "M").to_numpy(float))
    C = np.column_stack(columns) if columns else np.zeros((n, 0))
    design = np.column_stack([site, C])
    B = np.linalg.lstsq(design, X, rcond=None)[0]
    grand, sigma = sizes / n @ B[: len(tables)], np.sqrt(((X - design @ B) ** 2).mean(axis=0))
    along = C @ B[len(tables) :]
    Z, found = (X - grand - along) / sigma, []
    for own in site.T == 1:
        rows, m = Z[own], own.sum()
        g, delta = rows.mean(axis=0), rows.var(axis=0, ddof=1)
        mean, variance = delta.mean(), delta.var(ddof=1)
        a, b = (2 * variance + mean**2) / variance, (mean * variance + mean**3) / variance
        location, scale, change = g, delta, 1.0
        while change > stop:
            before = location, scale
            location = (g.var(ddof=1) * m * g + scale * g.mean()) / (g.var(ddof=1) * m + scale)
            scale = (0.5 * ((rows - location) ** 2).sum(axis=0) + b) / (m / 2 + a - 1)
            pairs = zip((location, scale), before, strict=True)
            change = max(float(np.max(np.abs(new - old) / old)) for new, old in pairs)  # the formula of neuroCombat
        found.append((rows - location) / np.sqrt(scale))
    return np.vstack(found) * sigma + grand + along


def only(tables, keep):
    return [table.drop(columns=[name for name in COVARIATES if name not in keep]) for table in tables]


def assert_of_harmonized(result, rows, atol=1e-8):
    """Components and variances are those of LAPACK's SVD of harmonized rows."""
    _, s, V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    k = result.n_components_
    V = V[:k] * np.sign(np.sum(V[:k] * result.components_, axis=1))[:, None]
    np.testing.assert_allclose(result.components_, V, atol=atol)
    np.testing.assert_allclose(result.explained_variance_, s[:k] ** 2 / (len(rows) - 1), rtol=atol)


@pytest.mark.parametrize("keep", KEPT, ids=str)
@pytest.mark.parametrize("settings", [{}, {"mask": True}, {"answers": "fixed"}], ids=str)
def test_rows_are_those_of_combat_on_the_pooled_rows(settings, keep):
    tables = scanners_of_sites(1)
    rows = combat_of(tables, keep)
    given = only(tables, keep)
    result = simulate("krylov", given, n_components=3, harmonize="combat", keep=keep, tol=1e-12, **settings)
    assert_of_harmonized(result, rows, 1e-10)
    scores = np.vstack([result.at_site(i).transform(table) for i, table in enumerate(given)])
    np.testing.assert_allclose(scores, (rows - rows.mean(axis=0)) @ result.components_.T, atol=1e-10)
    assert result.site_share_ is None


def test_rows_are_those_of_neurocombat_with_its_stop_rule(monkeypatch):
    package = pytest.importorskip("neuroCombat", reason="the reference implementation takes what installs neuroCombat")
    tables = scanners_of_sites(2, columns=40)
    pooled = pd.concat(tables)
    covariates = pd.DataFrame({"batch": np.repeat([1, 2, 3], [len(table) for table in tables])})
    covariates = covariates.assign(age=pooled.age.to_numpy(), sex=pooled.sex.to_numpy())
    with contextlib.redirect_stdout(io.StringIO()):
        rows = package.neuroCombat(
            dat=pooled[features_in(pooled)].to_numpy().T,
            covars=covariates, batch_col="batch", continuous_cols=["age"], categorical_cols=["sex"],
        )["data"].T  # fmt: skip
    np.testing.assert_allclose(combat_of(tables, COVARIATES, 1e-4), rows, rtol=1e-10)

    def as_in_the_reference(location, scale, new_location, new_scale):
        moved = np.max(np.abs(new_location - location) / location)
        return max(moved, np.max(np.abs(new_scale - scale) / scale)) <= 1e-4

    monkeypatch.setattr(combat, "has_settled", as_in_the_reference)
    result = simulate("krylov", tables, n_components=3, harmonize="combat", keep=COVARIATES, tol=1e-12)
    assert_of_harmonized(result, rows)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_are_harmonized_alike_and_keep_what_they_find(mask, answers, tmp_path):
    tables = scanners_of_sites(3)
    rows = combat_of(tables, COVARIATES)
    rules = {"covariates": "age,sex", "output_dir": tmp_path, "memory_dir": tmp_path / "memory", "answers": answers}
    with in_a_run():
        strategy = PCAStrategy(
            "krylov", n_components=2, harmonize="combat", keep="age,sex=F,sex=M", tol=1e-12, mask=mask, min_nodes=3
        )
        result = strategy.fit(grid_of(tables, **rules))
    assert_of_harmonized(result, rows)
    own = sites.read_local_result(tmp_path / "flower_pca-local-1.npz")
    scores = result.at_site(own).transform(tables[1])
    expected = (rows - rows.mean(axis=0))[len(tables[0]) :][: len(tables[1])] @ result.components_.T
    np.testing.assert_allclose(scores, expected, atol=1e-8)
    again = result.at_site(sites.read_local_result(tmp_path / "flower_pca-local-1.npz"))
    np.testing.assert_array_equal(again.transform(tables[1]), scores)


def assert_shares(found, expected):
    assert list(found) == list(expected)
    for name, share in expected.items():
        np.testing.assert_allclose(found[name], share, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("keep", KEPT, ids=str)
@pytest.mark.parametrize(
    "settings",
    [{}, {"mask": True}, {"answers": "fixed"}, {"scale": "std"}, {"scale": "std", "mask": True, "answers": "fixed"}],
    ids=str,
)
def test_components_are_explained_before_and_after_sites_are_harmonized(settings, keep):
    tables = scanners_of_sites(1)
    rows = combat_of(tables, keep)
    result = simulate(
        "krylov", tables, n_components=3, harmonize="combat", keep=keep, explain=COVARIATES, tol=1e-12, **settings
    )
    assert result.kept_ == tuple(name for name in ("age", "sex=F", "sex=M") if name[:3] in keep)
    weights = (result.components_ / (1.0 if result.scale_ is None else result.scale_)).T
    assert_shares(result.explained_by_, shares_by_least_squares(rows @ weights, tables, sites=False))
    before = pd.concat(tables)[features_in(tables[0])].to_numpy() @ weights
    assert_shares(result.explained_before_, shares_by_least_squares(before, tables))
    assert result.site_share_ is None
    at_site = result.at_site(0).transform(tables[0].drop(columns=[n for n in COVARIATES if n not in keep]))
    np.testing.assert_allclose(at_site, ((rows - rows.mean(axis=0)) @ weights)[: len(tables[0])], atol=1e-10)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_explain_components_before_and_after_they_are_harmonized(mask, answers):
    tables = scanners_of_sites(3)
    with in_a_run():
        strategy = PCAStrategy(
            "krylov", n_components=2, harmonize="combat", keep="age", explain="age,sex=F,sex=M", mask=mask, min_nodes=3
        )
        result = strategy.fit(grid_of(tables, covariates="age,sex", answers=answers))
    rows, weights = combat_of(tables, ("age",)), result.components_.T
    assert_shares(result.explained_by_, shares_by_least_squares(rows @ weights, tables, sites=False))
    before = pd.concat(tables)[features_in(tables[0])].to_numpy() @ weights
    assert_shares(result.explained_before_, shares_by_least_squares(before, tables))


def test_the_site_alone_is_explained_before_it_is_harmonized(tmp_path):
    tables = only(scanners_of_sites(4), ())
    result = simulate("krylov", tables, n_components=2, harmonize="combat", explain="site")
    site = np.repeat(np.eye(len(tables)), [len(table) for table in tables], axis=0)
    scores = pd.concat(tables).to_numpy() @ result.components_.T
    assert_shares(result.explained_before_, {"site": share_of(scores, site)})
    assert result.explained_by_ == {}
    assert "between sites before" in result.table().splitlines()[0]
    assert (
        facts.facts_as_json(result.summary().facts)["explained_before"]["site"]
        == result.explained_before_["site"].tolist()
    )
    again = PCAResult.load(result.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(again.explained_before_["site"], result.explained_before_["site"])


def test_no_message_of_a_site_has_its_own_location_or_scale():
    tables = scanners_of_sites(4)
    result = simulate("krylov", only(tables, ()), n_components=2, harmonize="combat")
    first = result.history[0]
    assert first.stage == "harmonized_opening"
    assert first.bytes_up == len(tables) * 8 * (1 + 2 * 12)  # the count, and two numbers for each column
    assert set(result.local[0]) == {"site_location", "site_scale"}


def test_new_rows_of_a_known_site_and_of_a_new_one(tmp_path):
    tables = scanners_of_sites(5)
    named = dict(zip("abc", tables, strict=True))
    result = simulate("krylov", named, n_components=2, harmonize="combat", keep=COVARIATES)
    with pytest.raises(ConfigError, match=r"Call result\.at_site\(name\) first, or result\.harmonize"):
        result.transform(tables[0])
    at_b = PCAResult.load(result.at_site("b").save(tmp_path / "b.npz"))
    np.testing.assert_array_equal(at_b.transform(tables[1]), result.at_site("b").transform(tables[1]))
    with pytest.raises(ConfigError, match="The rows given have no column age"):
        at_b.transform(tables[1].drop(columns="age"))
    # as if b had had no part: its rows are standardized, and their location and scale found from them alone
    new = result.harmonize(tables[1])
    np.testing.assert_allclose(new.transform(tables[1]), at_b.transform(tables[1]), atol=1e-12)
    with pytest.raises(ConfigError, match="The new site has 19 rows"):
        result.harmonize(tables[1][:19])
    whole = PCAResult.load(result.save(tmp_path / "whole.npz"))
    np.testing.assert_array_equal(
        whole.harmonize(tables[2]).transform(tables[2]), result.harmonize(tables[2]).transform(tables[2])
    )
    with pytest.raises(ConfigError, match="A record has no covariates"):
        result.to_record()
    with pytest.raises(ConfigError, match="cannot harmonize sites"):
        to_sklearn(result)


def test_the_site_is_out_of_new_rows_of_the_same_sites():
    fitted, new = scanners_of_sites(6, sizes=(200, 200, 200)), scanners_of_sites(6, sizes=(200, 200, 200))
    fitted = [table.sample(100, random_state=1) for table in fitted]
    new = [table.sample(100, random_state=2) for table in new]
    plain = simulate("krylov", only(fitted, ()), n_components=2)
    result = simulate("krylov", only(fitted, ()), n_components=2, harmonize="combat")
    before = share_between_sites([plain.transform(table) for table in only(new, ())])
    after = share_between_sites([result.at_site(i).transform(table) for i, table in enumerate(only(new, ()))])
    assert before.max() > 0.1
    assert after.max() < 0.05


def test_a_column_that_is_constant_at_one_site_keeps_its_scale_there():
    tables = only(scanners_of_sites(8), ())
    tables[1]["x03"] = 2.0
    result = simulate("krylov", tables, n_components=2, harmonize="combat")
    own = combat.site_effect(25, *_standardized(tables, 1))
    assert list(np.flatnonzero(own.constant)) == [3]
    assert [hint for hint in result.hints if hint.startswith("Column x03 is constant at client 1, so harmonizing")]
    np.testing.assert_allclose(result.local[1]["site_location"], own.location, atol=1e-12)


def test_a_run_over_flower_tells_of_constant_columns_in_the_same_words(tmp_path):
    tables = only(scanners_of_sites(8), ())
    tables[1]["x03"] = 0.1
    sentence = "Column x03 is constant at {}, so harmonizing shifted the rows there without changing their scale. "
    named = dict(zip(("bonn", "jena", "ulm"), tables, strict=True))
    assert (
        sentence.format("jena") + "Check the file."
        in simulate("krylov", named, n_components=2, harmonize="combat").hints
    )
    masked = simulate("krylov", named, n_components=2, harmonize="combat", mask=True)
    assert [hint for hint in masked.hints if hint.startswith("Column x03 is constant at client 1 (jena), so harm")]
    for mask in (False, True):
        with in_a_run() as lines:
            strategy = PCAStrategy("krylov", n_components=2, harmonize="combat", mask=mask, min_nodes=3)
            result = strategy.fit(grid_of(tables, output_dir=tmp_path / str(mask), memory_dir=tmp_path / f"m{mask}"))
        told = [hint for hint in result.hints if "is constant at" in hint]
        assert [hint.startswith(sentence.partition("{")[0]) for hint in told] == ([] if mask else [True])
        # Under masks only the node itself can know this.
        assert sum(line.startswith("Of this node's rows: Column x03 is constant at this node") for line in lines) == 1


def test_a_constant_column_without_a_name_is_called_by_its_place():
    arrays = [table.to_numpy().copy() for table in only(scanners_of_sites(8), ())]
    arrays[2][:, [3, 5]] = 0.1
    for mask in (False, True):
        result = simulate("krylov", arrays, n_components=2, harmonize="combat", mask=mask)
        assert [hint for hint in result.hints if hint.startswith("Columns 3, 5 are constant at client 2, so harm")]


@pytest.mark.parametrize("keep", [(), ("age",)], ids=str)
def test_constant_columns_and_small_sites_are_named_if_the_server_keeps_no_means(monkeypatch, keep):
    tables = only(scanners_of_sites(8, sizes=(40, 9, 60)), keep)
    tables[1]["x03"], tables[2]["x05"] = 2.0, 1.0
    for table in tables:  # At one site, age explains all of x07.
        if keep:
            table["x07"] = 0.5 * table.age
    if keep:
        half = len(tables[0]) // 2
        signs = np.repeat([1.0, -1.0], half)
        ages = np.tile(tables[0].age.to_numpy()[:half], 2)
        # The column has no slope of its own at this site.
        tables[0] = tables[0].assign(age=ages, x07=0.5 * ages + signs)
    asked = {"n_components": 2, "harmonize": "combat", "keep": keep}
    before = simulate("krylov", tables, **asked)
    for module in (opening, harmonized_opening):
        monkeypatch.setattr(module, "SUMMED", 20)
    result = simulate("krylov", tables, **asked)
    said = [hint for hint in result.hints if "is constant at" in hint or "are constant at" in hint]
    assert said == [hint for hint in before.hints if "is constant at" in hint or "are constant at" in hint]
    if keep:  # x03 and x05 follow age as at the other sites, so they are not constant without it
        assert [hint.partition(",")[0] for hint in said] == [f"Column x07 is constant at client {i}" for i in (1, 2)]
    else:
        expected = ["Column x03 is constant at client 1", "Column x05 is constant at client 2"]
        assert [hint.partition(",")[0] for hint in said] == expected
    assert any(hint.startswith("client 1 has fewer than 10 rows") for hint in result.hints)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
def test_outlying_sites_are_named_by_their_rows_before_they_are_harmonized(answers):
    rng = np.random.default_rng(13)
    W = rng.standard_normal((12, 12))
    tables = [rng.standard_normal((300, 12)) @ W + rng.normal(0.0, 0.3, 12) for _ in range(7)]
    tables[2][:, 4] *= 18.0  # other units
    tables[4][:, 6] *= -1.0
    tables[5][:] = tables[5][0]
    plain = simulate("krylov", tables, n_components=2)
    result = simulate("krylov", tables, n_components=2, harmonize="combat", answers=answers)
    for place, words in ((2, "standard deviation of column 4"), (4, "sign is reversed"), (5, "All rows of client 5")):
        for found in (plain, result):
            assert [hint for hint in found.hints if words in hint and f"client {place}" in hint], (place, found.hints)
    alike = [rng.standard_normal((300, 12)) @ W * (1.0 + 0.2 * i) + 0.5 * i for i in range(5)]
    assert not simulate("krylov", alike, n_components=2, harmonize="combat").hints


def test_a_harmonized_run_over_flower_names_sites_with_other_units():
    rng = np.random.default_rng(14)
    tables = [
        pd.DataFrame(rng.normal([100, 75, 130], [15, 12, 15], size=(80, 3)), columns=["glucose", "weight", "systolic"])
        for _ in range(6)
    ]
    for i in (1, 4):
        tables[i]["glucose"] /= 18.016
    with in_a_run():
        strategy = PCAStrategy("krylov", n_components=2, harmonize="combat", min_nodes=6)
        result = strategy.fit(grid_of(tables))
    assert [hint.partition(" had other")[0] for hint in result.hints if "had other units" in hint] == [
        f"Glucose looks as if client {i}" for i in (1, 4)
    ]


def _standardized(tables, i):
    pooled = np.vstack(tables)
    within = np.vstack([table - table.mean() for table in tables])
    rows = (tables[i].to_numpy() - pooled.mean(axis=0)) / np.sqrt((within**2).mean(axis=0))
    variances = rows.var(axis=0, ddof=1)
    return rows.mean(axis=0), np.where(variances < 1e-25, 0.0, variances)


def test_a_site_that_leaves_begins_the_opening_anew():
    tables = scanners_of_sites(9)
    result = simulate(
        "krylov", only(tables, ()), n_components=2, harmonize="combat", tol=1e-12,
        fraction=lambda message: [0, 1, 2] if message < 1 else [0, 2],
    )  # fmt: skip
    assert_of_harmonized(result, combat_of([tables[0], tables[2]], ()), 1e-10)


def test_a_harmonized_run_repeats_from_its_settings_and_goes_on_from_a_checkpoint(tmp_path):
    tables = only(scanners_of_sites(10), ("age",))
    result = simulate("ssi", tables, n_components=2, harmonize="combat", keep="age")
    np.testing.assert_array_equal(simulate(assembly.config(**result.config), tables).components_, result.components_)
    asked = {"n_components": 2, "harmonize": "combat", "keep": "age"}
    for after in (1, 4):
        resumed = gone_on(simulate, "ssi", tables, path=tmp_path / "state", stop=[after], **asked)
        np.testing.assert_array_equal(resumed.components_, result.components_)


def test_arrays_without_names_are_harmonized_too():
    tables = only(scanners_of_sites(11), ())
    arrays = [table.to_numpy() for table in tables]
    result = simulate("krylov", arrays, n_components=2, harmonize="combat", tol=1e-12)
    assert_of_harmonized(result, combat_of(tables, ()), 1e-10)
    adjusted = simulate("krylov", arrays, n_components=2, adjust="site", tol=1e-12)
    assert_of_harmonized(adjusted, np.vstack([rows - rows.mean(axis=0) for rows in arrays]), 1e-10)


@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_checks_and_harmonizes_a_folder(tmp_path, capsys):
    tables = scanners_of_sites(12)
    folder = folder_of_sites(tmp_path / "sites", tables)
    out, asked = tmp_path / "out", [str(folder), "--harmonize", "combat", "--keep", "age,sex"]
    assert cli.main(["check", *asked]) == 0
    assert cli.main(["run", *asked, "--out", str(out)]) == 0
    capsys.readouterr()
    loaded = PCAResult.load(out / "result.npz")
    expected = simulate("auto", tables, n_components=2, harmonize="combat", keep=COVARIATES)
    np.testing.assert_allclose(loaded.explained_variance_, expected.explained_variance_, rtol=1e-9)
    assert loaded.kept_ == ("age", "sex=F", "sex=M")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dp": "dp(epsilon=50.0, delta=1e-6, clip=20.0)", "max_rounds": 5}, "harmonize.* cannot be combined with dp"),
        ({"channel": "air(noise_std=0.1)"}, "harmonize cannot be combined with channel"),
        ({"max_share": 0.5}, "harmonize.* cannot be combined with max_share"),
        ({"partitioned_by": "columns"}, "harmonize.* cannot be combined with partitioned_by"),
        ({"categorical": "sex"}, "categorical.* cannot be combined with harmonize"),
        ({"adjust": "site"}, "adjust.* cannot be combined with harmonize"),
        ({"missing": "local_mean"}, "missing.* cannot be combined with harmonize"),
        ({"fraction": 0.5}, "fraction.* cannot be combined with harmonize"),
        ({"monitor": True}, "monitor.* cannot be combined with harmonize"),
        ({"scale": "max_abs"}, "scale.* cannot be combined with harmonize"),
        (
            {"scale": "genotype"},
            "scale.* cannot be combined with harmonize: other scales are computed from the values before",
        ),
    ],
)
def test_what_does_not_go_with_harmonize_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        simulate("ssi", scanners_of_sites(), n_components=2, harmonize="combat", **settings)


@pytest.mark.parametrize("algorithm", ["per_pca", "dcf_pca", "median_pca"])
def test_an_algorithm_that_looks_for_what_sites_have_of_their_own_is_not_harmonized(algorithm):
    with pytest.raises(ConfigError, match="does not support harmonize"):
        simulate(algorithm, scanners_of_sites(), n_components=2, harmonize="combat")


def test_sites_of_few_rows_are_named_if_the_server_sees_sites():
    tables = only(scanners_of_sites(15, sizes=(40, 9, 60)), ())
    hint = "jena has fewer than 10 rows, so location and scale are uncertain there"
    named = dict(zip(("bonn", "jena", "ulm"), tables, strict=True))
    result = simulate("krylov", named, n_components=2, harmonize="combat")
    assert [said for said in result.hints if said.startswith(hint)]
    masked = simulate("krylov", named, n_components=2, harmonize="combat", mask=True)
    assert not [said for said in masked.hints if "fewer than 10" in said]


@pytest.mark.parametrize("answers", ["rows", "fixed"])
def test_missing_values_are_named_and_no_setting_that_is_refused_is_advised(answers):
    tables = only(scanners_of_sites(), ("age",))
    tables[1].loc[2, "x03"] = np.nan
    with pytest.raises(DataError, match="Client 1 has missing values in x03, but harmonizing needs complete") as said:
        simulate("krylov", tables, n_components=2, harmonize="combat", keep="age", answers=answers)
    assert "missing=" not in str(said.value)
    tables[1].loc[2, ["x03", "age"]] = 1.0, np.nan
    with pytest.raises(DataError, match="The covariate age of client 1 has missing values"):
        simulate("krylov", tables, n_components=2, harmonize="combat", keep="age", answers=answers)


def test_what_cannot_be_harmonized_is_named():
    tables = only(scanners_of_sites(), ())
    with pytest.raises(DataError, match="A single site cannot be harmonized"):
        simulate("krylov", tables[:1], n_components=2, harmonize="combat")
    with pytest.raises(DataError, match="Client 1 has fewer than 3 rows"):
        simulate("krylov", [tables[0], tables[1][:2]], n_components=2, harmonize="combat")
    with pytest.raises(DataError, match="There are 2 columns"):
        simulate("krylov", [table[["x00", "x01"]] for table in tables], n_components=1, harmonize="combat")
    fixed = [table.assign(field=float(i)) for i, table in enumerate(tables)]
    with pytest.raises(DataError, match="do not vary within any site: field"):
        simulate("krylov", fixed, n_components=1, harmonize="combat", keep="field")
    with pytest.raises(DataError, match="Within sites, there is no variation in x00"):
        simulate("krylov", [t.assign(x00=float(i)) for i, t in enumerate(tables)], n_components=1, harmonize="combat")
    with pytest.raises(ConfigError, match="keep works only with harmonize"):
        simulate("krylov", tables, n_components=1, keep="age")
    with pytest.raises(ConfigError, match="did not harmonize sites"):
        simulate("krylov", tables, n_components=1).harmonize(tables[0])
