"""Test that every output names the sites in a result, and the sites left out with the reason."""

import json

import numpy as np
import pytest
from builders import StopError, stop_after
from fake_grid import FakeGrid, arrays_in, config_of, everything, hosts_of, in_a_run, is_pca_of, kill_when

from flower_pca import PCAResult, Stream, Table, TrackingResult, cli, simulate, track
from flower_pca.clients import Rules, client_app
from flower_pca.masking import messages
from flower_pca.report import write
from flower_pca.results import facts
from flower_pca.strategies import PCAStrategy, Standardize, TrackingStrategy

NAMES = ["aachen", "bonn", "coburg", "dessau", "erfurt"]


def rows_of_towns():
    rng = np.random.default_rng(3)
    return [rng.standard_normal((30 + 5 * i, 12)) * np.linspace(4.0, 0.5, 12) + i for i in range(len(NAMES))]


ROWS = rows_of_towns()
TOWNS = [Table(X, tuple("abcdefghijkl"), site=site) for X, site in zip(ROWS, NAMES, strict=True)]


def grid_of_towns(shards=ROWS, refusing=()):
    """Nodes with names, of which some are allowed none of the algorithms here."""

    def rules(context):
        town = context.node_config.get("name")
        return Rules(allow=["covariance"] if town in refusing else everything(), answers="rows", missing="mean")

    app = client_app(lambda context: shards[context.node_config["partition-id"]], rules=rules)
    grid = FakeGrid(app, len(shards))
    for context in grid.nodes.values():
        i = context.node_config["partition-id"]
        context.node_config = {"partition-id": i, "name": NAMES[i]}
    return grid


def fitted_by(grid, strategy=PCAStrategy, **asked):
    with in_a_run():
        return strategy(**{"min_nodes": 2, "node_timeout": 0.0, **asked}).fit(grid)


def steps_of(grid):
    return fitted_by(grid, TrackingStrategy, tracker="st_miss", n_components=2, steps=2)


def is_of_towns(result, towns):
    """Whether it is the PCA of the rows of just these towns, and names just these."""
    shards = [ROWS[NAMES.index(town)] for town in towns]
    assert is_pca_of(result, shards)
    assert result.n_samples_ == sum(map(len, shards))
    return list(result.site_names.values()) == list(towns)


def out_of(result):
    return [out.name for out in result.left_out.values()]


MASK = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("mask", MASK)
def test_nodes_that_refuse_are_left_out_with_their_reason(mask):
    result = fitted_by(grid_of_towns(refusing=("bonn", "dessau")), algorithm="krylov", mask=mask)
    assert is_of_towns(result, ["aachen", "coburg", "erfurt"])
    assert out_of(result) == ["bonn", "dessau"]
    assert all("krylov" in out.why for out in result.left_out.values())
    assert sorted({**result.left_out, **result.site_names}) == list(range(5))


@pytest.mark.parametrize("mask", MASK)
@pytest.mark.parametrize("algorithm", ["krylov", "ssi"])
def test_a_node_that_leaves_in_mid_run_is_left_out(algorithm, mask):
    grid = grid_of_towns()

    def due(message):
        stage = config_of(message)["stage"]
        if stage == messages.STAGE:
            stage = messages.inner_stage(arrays_in(message))
        return stage == algorithm

    kill_when(grid, [grid.node(1)], due)
    result = fitted_by(grid, algorithm=algorithm, mask=mask)
    assert is_of_towns(result, ["aachen", "coburg", "dessau", "erfurt"])
    assert out_of(result) == ["bonn"]
    assert all(out.why for out in result.left_out.values())


def grid_with_another_file(after):
    """Nodes that read their rows at each message, as processes of their own do; those of bonn change after so many."""
    grid, pushed = grid_of_towns(), set()

    def load(context):
        i = context.node_config["partition-id"]
        return ROWS[i][1:] if (i, len(pushed) > after) == (1, True) else ROWS[i]

    def begin(message):
        pushed.add(message.metadata.group_id)
        grid.app = client_app(load, allow=everything())

    grid.on_push = begin
    return grid


@pytest.mark.parametrize(
    ("algorithm", "mask", "messages"),
    [
        ("krylov", False, (1, 2)),
        ("ssi", False, (1, 4)),
        ("uda", False, (1, 2)),
        ("covariance", True, (2, 4, 5, 6, 7)),
        ("krylov", True, (5, 7)),
    ],
)
@pytest.mark.slow
def test_a_site_whose_file_is_replaced_in_mid_run_is_in_all_of_the_result_or_in_none_of_it(algorithm, mask, messages):
    """Whichever message is the first that it refuses. Under masks that may be the unmasking of a sum that it is in."""
    outs = set()
    for after in messages:
        result = fitted_by(grid_with_another_file(after), algorithm=algorithm, mask=mask, n_components=2)
        towns = [town for town in NAMES if town not in out_of(result)]
        assert result.n_samples_ == sum(len(ROWS[NAMES.index(town)]) for town in towns)
        np.testing.assert_allclose(result.mean_, np.vstack([ROWS[NAMES.index(town)] for town in towns]).mean(axis=0))
        if algorithm != "uda":
            assert is_of_towns(result, towns)
        outs |= {*out_of(result)}
        assert all(out.why.startswith("The rows of this node changed") for out in result.left_out.values())
        said = facts.ending_in_words(result.status, result.rounds, result.left_out)
        assert said.endswith(", without bonn") == ("bonn" in out_of(result))
    assert outs == {"bonn"}


def test_a_node_that_tells_no_name_is_left_out_by_its_number():
    grid = grid_of_towns(refusing=(None,))
    next(iter(grid.nodes.values())).node_config.pop("name")
    result = fitted_by(grid, algorithm="krylov")
    ((key, out),) = result.left_out.items()
    assert out.name == f"client {key}"
    assert len(result.site_names) == 4


def test_a_scaling_and_a_tracker_name_left_out_sites():
    scaling = fitted_by(grid_of_towns(refusing=("bonn",)), Standardize)
    steps = steps_of(grid_of_towns([Stream(X, batch=10) for X in ROWS], refusing=("bonn",)))
    for result in (scaling, steps):
        assert list(result.site_names.values()) == ["aachen", "coburg", "dessau", "erfurt"]
        assert out_of(result) == ["bonn"]


def test_in_process_clients_that_never_take_part_are_left_out():
    result = simulate("krylov", TOWNS, n_components=2, fraction=lambda number: (0, 2, 3))
    assert is_of_towns(result, ["aachen", "coburg", "dessau"])
    assert {key: out.name for key, out in result.left_out.items()} == {1: "bonn", 4: "erfurt"}
    late = simulate("ssi", TOWNS, n_components=2, fraction=lambda number: range(5 if number > 3 else 4))
    assert is_of_towns(late, NAMES)


def test_nobody_is_left_out_who_has_contributed():
    for result in (
        simulate("krylov", TOWNS, n_components=2),
        simulate("ssi", TOWNS, n_components=2, fraction=0.4, seed=1),
        track("st_miss", ROWS, n_components=2, batch=10),
        fitted_by(grid_of_towns(), algorithm="ssi", fraction=0.4, seed=1),
        fitted_by(hosts_of(ROWS, each=2), algorithm="krylov", hosted="stacked"),
    ):
        assert result.left_out == {}
    assert list(simulate("krylov", TOWNS, n_components=2).site_names.values()) == NAMES


def test_a_run_that_goes_on_from_a_checkpoint_still_knows_who_is_in_it(tmp_path):
    asked = {"n_components": 2, "fraction": lambda number: (0, 2, 3), "checkpoint": tmp_path / "run.ckpt"}
    with pytest.raises(StopError):
        simulate("krylov", TOWNS, on_round=stop_after(1), **asked)
    assert is_of_towns(simulate("krylov", TOWNS, **asked), ["aachen", "coburg", "dessau"])


@pytest.mark.parametrize("kind", [PCAResult, TrackingResult])
def test_table_report_json_and_show_say_who_was_left_out(kind, tmp_path, capsys):
    if kind is PCAResult:
        result = fitted_by(grid_of_towns(refusing=("bonn",)), algorithm="krylov")
    else:
        result = steps_of(grid_of_towns([Stream(X, batch=10) for X in ROWS], refusing=("bonn",)))
    (why,) = {out.why for out in result.left_out.values()}
    sentence = f"The rows of bonn ({why}) are not in this result."
    path = result.save(tmp_path / "result.npz")
    loaded = kind.load(path)
    assert (loaded.site_names, loaded.left_out) == (result.site_names, result.left_out)
    assert sentence in loaded.table()
    assert cli.main(["show", str(path)]) == 0
    said = capsys.readouterr().out
    assert sentence in said
    assert "sites: aachen, coburg, dessau, erfurt" in said.replace(" and ", ", ")
    assert cli.main(["show", str(path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["site_names"].values()) == ["aachen", "coburg", "dessau", "erfurt"]
    assert list(figures["left_out"].values()) == [{"name": "bonn", "why": why}]
    page = write(loaded, tmp_path / "page.html", title="Towns").read_text(encoding="utf-8")
    assert "The rows of bonn (" in page
    assert "The clients: aachen, coburg, dessau, erfurt." in page
