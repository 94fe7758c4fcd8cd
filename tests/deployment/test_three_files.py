"""Three hospitals with one table in three orders, one with text beside: SuperNodes, `flwr run`, and the pooled PCA."""

import json
import re

import numpy as np
import pytest
from federation import LONG
from hospitals import NAMES, ORDERS, SITES, SORTED, X, is_pooled, write
from pages import ROOT
from test_adjust import assert_components_of
from test_adjust_missing import people_with_gaps, residuals_of
from test_harmonize import COVARIATES, assert_of_harmonized, combat_of, scanners_of_sites

from flower_pca import PCAResult, Table, cli, simulate
from flower_pca.analysis.monitor import Monitor

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The file of each site, and a table of the third with text and a column more."""
    folder = tmp_path_factory.mktemp("files")
    paths = [
        write(folder / f"{site}.csv", X[part][:, list(order)], [NAMES[j] for j in order], "x" if i == 2 else None)
        for i, ((site, part), order) in enumerate(zip(SITES.items(), ORDERS, strict=True))
    ]
    rows = X[SITES["trier"]]
    return paths, write(folder / "both.csv", np.hstack([rows, rows[:, :1]]), [*NAMES, "dose"], "x")


def present(federation, *data, **config):
    """SuperNodes with this data, and no others; one that has it already stays."""
    for i, (site, spec) in enumerate(zip(SITES, data, strict=True)):
        node = federation.node(i)
        if node is not None and node.config["data"] != spec:
            node.terminate()
            node = None
        if node is None:
            federation.start_node(i, data=spec, name=site, **config)
    for i in range(len(data)):
        federation.node(i).connected()


def run_there(federation, name, option, keys=""):
    """The result of a run of the app of this repository with these nodes, with this option and further keys."""
    out = federation.folder / name
    asked = f"output=\"{out}\" n-components=3 min-nodes=3 {keys} options='node-timeout=5, {option}'"
    said = federation.flwr(
        "run", str(ROOT / "hub"), "trial", "--run-config", asked, "--stream", seconds=LONG
    )  # to its end
    identity = re.search(r"Successfully started run (\d+)", said)[1]
    (found,) = json.loads(federation.flwr("ls", "--run-id", identity, "--format", "json", "trial"))["runs"]
    assert found["status"] == "finished:completed", said
    return PCAResult.load(out / "result.npz")


def is_monitored(result):
    """The counts of the nodes' own rows, and the limits from them, are those of a simulation."""
    here = simulate("krylov", {site: X[part] for site, part in SITES.items()}, n_components=3, monitor=True)
    np.testing.assert_array_equal(result.histograms_.sum(axis=1), [len(X), len(X)])
    for level in (0.5, 0.9, 0.99):
        found, expected = (Monitor(each).limits(level) for each in (result, here))
        np.testing.assert_allclose([found.t2, found.spe], [expected.t2, expected.spe], rtol=1e-9)
        assert found.words == expected.words
    rows = X[:, [NAMES.index(name) for name in SORTED]]
    scores, limits = Monitor(result).score(Table(rows, names=SORTED), in_run=True), Monitor(result).limits(0.9)
    place = int(np.ceil(0.9 * (len(X) + 1))) - 1
    for limit, reached in ((limits.t2, np.sort(scores.t2)[place]), (limits.spe, np.sort(scores.spe)[place])):
        assert 2.0 ** (-1.0 / 16.0) <= limit / reached <= 2.0 ** (1.0 / 16.0)  # a bin


def test_supernodes_match_their_files_by_name(federation, files):
    (one, two, three), both = files
    chosen, allow = f'columns="{",".join(NAMES)}"', "krylov,monitor"

    present(federation, one, two, f"csv(path={three!r}, beside=['note'])", allow=allow)
    result = run_there(federation, "sorted", "monitor=true")
    is_pooled(result, SORTED)
    is_monitored(result)

    present(federation, one, two, both, allow=allow)  # This file has a text column that the run does not use.
    is_pooled(run_there(federation, "chosen", chosen), NAMES)


def folders_of(folder, tables):
    """A folder of two files for each site; the columns of the second are in another order."""
    paths = []
    for site, table in zip(SITES, tables, strict=True):
        path = folder / site
        path.mkdir(parents=True)
        half = len(table) // 2
        table[:half].to_csv(path / "first.csv", index=False)
        table[half:][[*table.columns[::-1]]].to_csv(path / "second.csv", index=False)
        paths.append(str(path))
    return paths


def scores_at(folder, result, rows, *words):
    """The scores of new rows by the command line, from files alone, as at a node."""
    result.save(folder / "result.npz")
    rows.to_csv(folder / "new.csv", index=False)
    given = [str(folder / name) for name in ("result.npz", "new.csv")]
    assert cli.main(["transform", *given, *words, "-o", str(folder / "scores.npy")]) == 0
    return np.load(folder / "scores.npy")


def test_folders_of_sites_are_adjusted_harmonized_and_explained_under_masks_and_score_new_rows(federation, tmp_path):
    """Without masks: test_deployment.py."""
    tables, whole, new = people_with_gaps(21), scanners_of_sites(22), scanners_of_sites(23)
    rules = {"covariates": "age,sex", "missing": "mean", "allow": "krylov", "output-dir": str(tmp_path / "own")}
    asked = 'explain="sex=F,sex=M"'
    masked = 'algorithm="krylov(tol=1e-12)" mask=true'
    present(federation, *folders_of(tmp_path / "gaps", tables), **rules)
    removed, kept = (f'{option}="age,sex=F,sex=M", {asked}' for option in ("adjust", "keep"))
    result = run_there(federation, "adjusted", removed, f'missing="mean" {masked}')
    rows = residuals_of(tables, ("age", "sex"))
    assert_components_of(result, rows, 1e-8)
    assert list(result.explained_by_) == ["sex", "site beyond sex"]
    np.testing.assert_allclose(result.explained_by_["sex"], 0.0, atol=1e-8)
    scores = scores_at(tmp_path, result, tables[1])
    np.testing.assert_allclose(scores, (rows @ result.components_.T)[80:140], atol=1e-8)

    present(federation, *folders_of(tmp_path / "whole", whole), **rules)
    federation.node(1).terminate()
    present(federation, *[str(tmp_path / "whole" / site) for site in SITES], **rules)
    result = run_there(federation, "harmonized", f'harmonize="combat", {kept}', masked)
    rows = combat_of(whole, COVARIATES)
    assert_of_harmonized(result, rows)
    assert list(result.explained_before_) == ["sex", "site beyond sex", "site"]
    federation.node(1).terminate()
    present(federation, *[str(tmp_path / "whole" / site) for site in SITES], **rules)
    own = ["--local", str(tmp_path / "own" / "flower_pca-local-1.npz")]
    expected = simulate("krylov(tol=1e-12)", whole, n_components=3, harmonize="combat", keep=COVARIATES)
    np.testing.assert_allclose(
        scores_at(tmp_path, result, new[1], *own), expected.at_site(1).transform(new[1]), atol=1e-8
    )
    fitted = expected.harmonize(new[2]).transform(new[2])
    np.testing.assert_allclose(scores_at(tmp_path, result, new[2], "--fit-local"), fitted, atol=1e-8)
