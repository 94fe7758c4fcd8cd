"""Test that no error, log line, warning or `repr` shows rows that were passed in the wrong place."""

import inspect
import io
import logging
import os
import re
import traceback
import warnings

import numpy as np
import pytest
from scipy import sparse

import flower_pca
from flower_pca import Stream, Table, cli, clients, comparison, simulate, strategies, track
from flower_pca.analysis.monitor import Monitor
from flower_pca.analysis.rotation import rotate
from flower_pca.audit import audit
from flower_pca.comparison import ranks
from flower_pca.report import write

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

N, D = 12, 4
# Every cell and every label is a marker of its own, so that a test can count how many of them are shown.
# An address in memory may have the same digits, but behind other letters and digits.
MARKER = re.compile(r"Zzyzx-\d+|Qwxy-\d+|(?<![\w.])735\d\d(?:\.\d+)?|73,5\d\d|7\.35\d+e\+")


def marked_numbers(more=0.0):
    return 73501.25 + more + np.arange(N * D, dtype=float).reshape(N, D)


def frame():
    columns = {f"c{j}": marked_numbers()[:, j] for j in range(D)}
    names = [f"Zzyzx-{i}" for i in range(N)]
    return pd.DataFrame({"name": names, **columns}, index=[f"Qwxy-{i}" for i in range(N)])


TABLES = {
    "an array": marked_numbers,
    "a list of arrays": lambda: [marked_numbers(), marked_numbers(100.0)],
    "a list of rows": lambda: marked_numbers().tolist(),
    "a tuple of rows": lambda: tuple(map(tuple, marked_numbers().tolist())),
    "arrays by site": lambda: {"bonn": marked_numbers(), "jena": marked_numbers(100.0)},
    "columns by name": lambda: {"name": [f"Zzyzx-{i}" for i in range(N)], "c0": marked_numbers()[:, 0].tolist()},
    "records": lambda: frame().to_dict("records"),
    "a record array": lambda: frame().to_records(),
    "an array of objects": lambda: frame().to_numpy(),
    "a frame": frame,
    "a list of frames": lambda: [frame(), frame()],
    "rows with names": lambda: Table(marked_numbers(), tuple("abcd")),
    "sites": lambda: [Table(marked_numbers(), tuple("abcd"), site=site) for site in ("bonn", "jena")],
    "a sparse array": lambda: sparse.csr_array(marked_numbers()),
    "a stream": lambda: Stream(marked_numbers(), batch=4),
    "a generator": lambda: (row for row in marked_numbers().tolist()),
    "the text of a file": lambda: frame().to_csv(),
    "the bytes of a file": lambda: frame().to_csv().encode(),
}
# A setting may be a list of names or numbers, and a message about such a list names the one that is wrong.
LISTS = {
    "a row": lambda: marked_numbers()[0],
    "a list of numbers": lambda: marked_numbers()[0].tolist(),
    "a set of numbers": lambda: set(marked_numbers()[0].tolist()),
    "a list of names": lambda: [f"Zzyzx-{i}" for i in range(N)],
    "a column": lambda: frame()["c0"],
    "a column of text": lambda: frame()["name"],
}
GIVEN = TABLES | LISTS


def sites():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(20, D)), rng.normal(size=(15, D))]


class Seen:
    """What a call shows: its error with causes and notes, or what it returns; and what it logs and warns of."""

    def __init__(self):
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)

    def of(self, call):
        self.stream.seek(0)
        self.stream.truncate()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                shown = self._of_value(call())
            except Exception as error:
                shown = "".join(traceback.format_exception(error, limit=0)) + repr(error)
        return shown + self.stream.getvalue() + "".join(str(one.message) for one in warned)

    def _of_value(self, value):
        """How a value is shown; but numbers and texts that a caller asked for are no messages."""
        if isinstance(value, np.ndarray | float | str | list | tuple | dict):
            return ""
        return repr(value) + str(value)


@pytest.fixture
def seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    seen = Seen()
    log = logging.getLogger("flower_pca")
    level = log.level
    log.addHandler(seen.handler)
    log.setLevel(logging.DEBUG)
    yield seen
    log.removeHandler(seen.handler)
    log.setLevel(level)


def faults(seen, function, good, places=None):
    """Where this function shows cells: of tables more than one, of numbers alone any, of lists more than one."""
    found = []
    for place in places or inspect.signature(function).parameters:
        for kind, make in GIVEN.items():
            shown = seen.of(lambda place=place, make=make: function(**{**good(), place: make()}))
            cells = set(MARKER.findall(shown))
            alone = not any(cell.startswith("735") for cell in cells) or kind in LISTS
            if len(cells) > 1 or not alone or re.search(r"\w\.__init__\(\)", shown):
                found.append(f"{place}={kind}: {shown[:300]}")
    return found


def fitted(**given):
    rows = {name: given.pop(name) for name in ("X", "y", "sites") if name in given}
    return flower_pca.FederatedPCA(**given).fit(**rows)


ESTIMATOR = [*inspect.signature(flower_pca.FederatedPCA).parameters, "X", "y", "sites"]
FUNCTIONS = {
    "simulate": (simulate, lambda: {"algorithm": "krylov", "shards": sites(), "n_components": 2}),
    "simulate, personalized": (simulate, lambda: {"algorithm": "per_pca", "shards": sites(), "n_components": 1}),
    "track": (track, lambda: {"tracker": "st_miss", "streams": sites(), "n_components": 2, "batch": 5}),
    "compare": (comparison.compare, lambda: {"shards": sites(), "algorithms": ["krylov"], "n_components": 2}),
    "slow": (comparison.slow, lambda: {"shards": sites(), "algorithms": ["ssi"], "n_components": 2}),
    "audit": (audit, lambda: {"algorithm": "krylov", "shards": sites(), "n_components": 2}),
    "rank_table": (ranks.rank_table, lambda: {"shards": sites(), "pairs": [(1, 1)]}),
    "from_frame": (flower_pca.from_frame, lambda: {"frame": frame(), "by": ["x", "y"] * (N // 2)}),
    "make": (flower_pca.make, lambda: {"algorithm": "krylov"}),
    "PCAConfig": (flower_pca.PCAConfig, lambda: {"algorithm": flower_pca.Krylov(), "n_components": 2}),
    "Ray": (flower_pca.Ray, dict),
    "DP": (flower_pca.DP, lambda: {"epsilon": 1.0, "delta": 1e-6, "clip": 1.0}),
    "MaskedSums": (flower_pca.MaskedSums, dict),
    "Table": (Table, lambda: {"values": marked_numbers()}),
    "Stream": (Stream, lambda: {"source": sites()[0], "batch": 5}),
    "PCAClient": (clients.PCAClient, lambda: {"data": sites()[0]}),
    "client_app": (clients.client_app, lambda: {"load": lambda context: sites()[0]}),
    "Rules": (clients.Rules, dict),
    "PCAStrategy": (strategies.PCAStrategy, lambda: {"n_components": 2}),
    "Krylov of strategies": (strategies.Krylov, lambda: {"n_components": 2}),
    "TrackingStrategy": (strategies.TrackingStrategy, lambda: {"n_components": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_data_in_the_wrong_place_of_a_function_is_not_shown(name, seen):
    found = faults(seen, *FUNCTIONS[name])
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("place", ESTIMATOR)
def test_data_in_the_wrong_place_of_the_estimator_is_not_shown(place, seen):
    found = faults(seen, fitted, lambda: {"X": sites()[0], "n_components": 2}, [place])
    assert not found, "\n".join(found)


RESULTS = {
    "pca": lambda: simulate("krylov", sites(), n_components=2),
    "personal": lambda: simulate("exact_per_pca(local_components=1)", sites(), n_components=1),
    "robust": lambda: simulate("consensus_rpca", sites(), n_components=1),
    "columns": lambda: simulate("krylov", [X[:15] for X in sites()], n_components=2, partitioned_by="columns"),
    "tracking": lambda: track("st_miss", [np.vstack(sites())], n_components=2, batch=5),
    "monitor": lambda: Monitor(simulate("krylov", sites(), n_components=2)),
    "projection": lambda: flower_pca.Projection.from_record(simulate("krylov", sites(), n_components=2).to_record()),
    "estimator": lambda: fitted(X=sites()[0], n_components=2),
}
TAKES_WORDS = ("require_projecting",)  # These are called by the package itself with the words of an error.
USUAL = {"client": 0, "path": "file.svg", "what": "scree"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_data_in_the_wrong_place_of_a_method_is_not_shown(kind, seen):
    result, found = RESULTS[kind](), []
    for name in dir(result):
        method = getattr(result, name) if not name.startswith(("_", "set_", "get_metadata")) else None
        if not inspect.ismethod(method) or method.__self__ is not result or name in TAKES_WORDS:
            continue
        needed = [p.name for p in inspect.signature(method).parameters.values() if p.default is p.empty]
        good = {place: USUAL.get(place, sites()[0]) for place in needed}
        found += [f"{name}({fault}" for fault in faults(seen, method, lambda good=good: dict(good))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["report", "rotate", "to_sklearn", "alternatives"])
def test_data_in_the_place_of_a_result_is_not_shown(use, seen):
    own = RESULTS["personal"]()
    function, good = {
        "report": (write, {"result": own, "path": "page.html"}),
        "rotate": (rotate, {"result": own}),
        "to_sklearn": (flower_pca.to_sklearn, {"result": own}),
        "alternatives": (ranks.alternatives, {"result": own, "shards": sites()}),
    }[use]
    found = faults(seen, function, lambda: dict(good), ["result"])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", GIVEN)
def test_the_order_of_scikit_learn_is_refused_without_a_row(kind, seen):
    shown = seen.of(lambda: simulate(GIVEN[kind](), "krylov", n_components=2))
    also = seen.of(lambda: track(GIVEN[kind](), "st_miss", n_components=2))
    assert not MARKER.findall(shown + also)
    if kind != "the text of a file":  # By its type, this text could be the name of an algorithm.
        assert 'the data: simulate("krylov", shards, n_components=2).' in shown
        assert 'the data: track("st_miss", streams, n_components=2).' in also


def test_the_number_of_components_is_two_if_nobody_says():
    rows = [marked_numbers(), marked_numbers(50.0)]
    assert simulate("auto", rows).n_components_ == track("st_miss", rows, batch=4).components_.shape[-2] == 2


def test_a_repr_is_short_and_has_no_rows():
    rows = Table(marked_numbers(), tuple("abcd"), site="bonn", ids=tuple(f"Qwxy-{i}" for i in range(N)))
    result = simulate("krylov", [rows, Table(marked_numbers(50.0), tuple("abcd"), site="jena")], n_components=1)
    steps = track("st_miss", [marked_numbers()], n_components=1, batch=3)
    shown = [
        rows, result, result.history, result.history[0], result.status, steps, steps.history,
        comparison.compare(sites(), algorithms=["krylov"], n_components=2)[0],
        Stream(marked_numbers(), batch=4), clients.PCAClient(marked_numbers()), strategies.PCAStrategy(n_components=2),
        flower_pca.FederatedPCA(n_components=2, init=marked_numbers()), clients.Rules(), Monitor(result).score(rows),
    ]  # fmt: skip
    for value in shown:
        text = repr(value)
        assert not MARKER.findall(text), text
        assert len(text) <= 400, text
        assert text.count("\n") < 5


def test_the_log_of_a_run_has_no_rows(seen):
    seen.of(lambda: simulate("krylov", [marked_numbers(), marked_numbers(50.0)], n_components=1))
    assert "round 0" in seen.stream.getvalue()
    assert not MARKER.findall(seen.stream.getvalue())


def test_the_command_shows_no_cell_of_a_file(tmp_path, capsys):
    folder = tmp_path / "sites"
    folder.mkdir()
    table = frame()
    table.to_csv(folder / "bonn.csv", index=False)
    table.to_csv(folder / "jena.csv", index=False)
    assert cli.main(["run", os.fspath(folder), "--out", os.fspath(tmp_path / "out")]) != 0
    out, err = capsys.readouterr()
    assert "but there is a text of 7 characters in column name (line 2)" in err
    assert not MARKER.findall(out + err)
