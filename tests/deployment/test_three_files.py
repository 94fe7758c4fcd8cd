"""Three hospitals with one table in three orders, one with text beside: SuperNodes, `flwr run`, and the pooled PCA."""

import json
import re

import numpy as np
import pytest
from federation import LONG
from hospitals import NAMES, ORDERS, SITES, SORTED, X, is_pooled, write
from pages import ROOT

from flower_pca import PCAResult, Table, simulate
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


def run_there(federation, name, option):
    """The result of a run of the app of this repository with these nodes, and with this option."""
    out = federation.folder / name
    asked = f"output=\"{out}\" n-components=3 min-nodes=3 options='node-timeout=5, {option}'"
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
    scores, limits = Monitor(result).score(Table(rows, names=SORTED), own=True), Monitor(result).limits(0.9)
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

    present(federation, one, two, both, allow=allow)  # with text beside, which the columns of the run leave out
    is_pooled(run_there(federation, "chosen", chosen), NAMES)
