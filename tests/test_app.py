"""Test the app of `flwr run`: a node's node-config decides about its rows and what it serves."""

import inspect
import logging
import sys
import tomllib
import warnings
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from cases import every
from fake_grid import FakeGrid, in_a_run, is_pca_of, logged_by_flower
from pages import text
from people import PEOPLE, frames, parties_written, tables_in_rows
from test_ailing_machines import fill

from flower_pca import (
    ColumnsResult,
    ConfigError,
    NotEnoughNodes,
    PCAConfig,
    PCAResult,
    RobustResult,
    TrackingResult,
    keys,
    registry,
    run_config,
    simulate,
    strategies,
)
from flower_pca.base.options import option, with_advice_written
from flower_pca.blocks import source
from flower_pca.data import reading, sources

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Context, RecordDict

    from flower_pca import app

DATA = "synthetic(n=200, d=6, clients=3)"
SAVED = "Components saved in "


@pytest.fixture
def app_run(tmp_path, monkeypatch):
    """Run the app on nodes with these node-configs; returns the result and what was logged."""

    def start(nodes, *, engine=True, load=PCAResult.load, **config):
        config = {"data": DATA, "partition": "contiguous", "n-components": 2, "output": str(tmp_path / "out"), **config}
        config = {name.replace("_", "-"): value for name, value in config.items()}
        if engine and any("data" not in node and node for node in nodes):
            monkeypatch.setattr(app, "_in_simulation", lambda: True)
        with in_a_run() as lines:
            grid = FakeGrid(app.client_app, len(nodes))
            for context, node_config in zip(grid.nodes.values(), nodes, strict=True):
                context.node_config, context.run_config = node_config, config
            context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
            app.server_app(grid, context)
        (place,) = [line.removeprefix(SAVED) for line in lines if line.startswith(SAVED)]
        return load(place), lines

    return start


def simulated(n):
    return [{"partition-id": i, "num-partitions": n} for i in range(n)]


def deployed(folder, n=3, **node_config):
    """n nodes with a file each."""
    shards = np.array_split(sources.make(DATA), n)
    for i, shard in enumerate(shards):
        np.save(folder / f"{i}.npy", shard)
    return [{"data": str(folder / f"{i}.npy"), **node_config} for i in range(n)], shards


def test_a_simulation_hosts_as_many_clients_in_a_node_as_the_run_config_says(app_run):
    result, lines = app_run(simulated(2), clients_per_node=3, min_nodes=6)
    assert is_pca_of(result, [sources.make(DATA)])
    assert any("6/6 clients" in line for line in lines)
    assert [record.asked for record in result.history] == [6] * len(result.history)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it finds the names of open files in /proc")
def test_a_result_for_which_there_is_no_room_is_kept_among_temporary_files(app_run, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    fill(monkeypatch, tmp_path / "out")
    with pytest.raises(OSError, match="No space left on device") as raised:
        app_run(simulated(2))
    (kept,) = elsewhere.rglob("result.npz")
    assert raised.value.filename == str(tmp_path / "out/result.npz")
    assert raised.value.__notes__ == [f"The result itself is in {kept}."]
    assert PCAResult.load(kept).n_samples_ == 200


def test_nodes_with_rows_of_their_own_host_no_others(app_run, tmp_path):
    nodes, _ = deployed(tmp_path)
    with pytest.raises(ConfigError, match=r"is a single client, but hosted=.* Leave out hosted, or clients-per-node"):
        app_run(nodes, clients_per_node=3)


def test_nodes_read_files_by_pieces_as_they_read_arrays(app_run, tmp_path, monkeypatch):
    h5py, pq, pa = (pytest.importorskip(name) for name in ("h5py", "pyarrow.parquet", "pyarrow"))
    nodes, shards = deployed(tmp_path)
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("X", data=shards[0], chunks=(9, 6))
    pq.write_table(pa.table({f"c{j}": shards[1][:, j] for j in range(6)}), tmp_path / "1.parquet", row_group_size=11)
    with h5py.File(tmp_path / "2.h5", "w") as file:
        file["rows"], file["columns"] = shards[2], [f"c{j}" for j in range(6)]
    plain = app_run([nodes[0], nodes[2]])[0]
    monkeypatch.setattr(reading, "HELD", 0)
    monkeypatch.setattr(source, "_PIECE", 7 * 6 * 8)
    read = app_run([{"data": str(tmp_path / "0.h5")}, nodes[2]])[0]
    np.testing.assert_allclose(read.components_, plain.components_, rtol=0, atol=1e-12)
    named = app_run([{"data": str(tmp_path / "1.parquet")}, {"data": str(tmp_path / "2.h5")}])[0]
    assert is_pca_of(named, shards[1:])
    assert named.feature_names_in_.tolist() == [f"c{j}" for j in range(6)]


@pytest.mark.parametrize("partition", ["contiguous", "iid(seed=1)", "power_law", "by_size(sizes=[1, 2, 3])"])
def test_a_simulation_deals_the_rows_of_the_run_config(app_run, partition, tmp_path):
    result, lines = app_run(simulated(3), partition=partition)
    assert is_pca_of(result, [sources.make(DATA)])
    assert lines[-1] == f"Components saved in {tmp_path / 'out/result.npz'}"


@pytest.mark.slow
def test_a_simulation_names_columns_and_sites(app_run, tmp_path):
    X, names = sources.make(DATA), [f"c{j}" for j in range(sources.make(DATA).shape[1])]
    whose = np.arange(len(X)) % 3
    lines = [",".join(map(repr, row.tolist())) + f",{'xyz'[i]}" for row, i in zip(X, whose, strict=True)]
    (tmp_path / "x.csv").write_text("\n".join([",".join([*names, "site"]), *lines]))
    asked = {"data": str(tmp_path / "x.csv"), "partition": "by_column('site')"}
    result, _ = app_run(simulated(3), **asked)
    assert result.feature_names_in_.tolist() == sorted(names)
    assert result.site_names == {0: "x", 1: "y", 2: "z"}
    result, _ = app_run(simulated(3), **asked, columns="c3, c1 ,c2")
    assert is_pca_of(result, [X[:, [3, 1, 2]]])
    assert result.feature_names_in_.tolist() == ["c3", "c1", "c2"]


def test_a_deployment_uses_the_rows_of_the_nodes(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    result, _ = app_run(nodes, data="/of/no/account.npy")
    assert is_pca_of(result, shards)


@pytest.mark.slow
def test_missing_values_become_the_mean_of_all_nodes(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    mean = np.vstack([shards[0], shards[1][1:], shards[2]])[:, 2].mean()
    holes = shards[1].astype(str)
    holes[0, 2] = ""
    np.savetxt(tmp_path / "1.csv", holes, fmt="%s", delimiter=",")
    nodes[1] |= {"data": f"csv(path={str(tmp_path / '1.csv')!r})", "missing": "mean"}
    shards[1][0, 2] = mean
    result, _ = app_run(nodes, missing="mean")
    assert is_pca_of(result, shards)
    del nodes[1]["missing"]
    shards[1][0, 2] = shards[1][1:, 2].mean()
    result, _ = app_run(nodes, missing="local_mean")
    assert is_pca_of(result, shards)
    assert (result.config["missing"], result.answers) == ("local_mean", "fixed")
    result, lines = app_run(nodes, missing="mean")
    assert is_pca_of(result, [shards[0], shards[2]])
    assert any("This node fills missing values with its own means only" in line for line in lines)


def test_a_node_with_data_may_have_a_partition_id(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    result, _ = app_run([{**node, "partition-id": i} for i, node in enumerate(nodes)])
    assert is_pca_of(result, shards)


def test_a_run_cannot_choose_a_file_of_a_node(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    result, lines = app_run([*nodes, {}], data=nodes[0]["data"])
    assert is_pca_of(result, shards)
    assert any("This node has no data. Start the SuperNode with --node-config" in line for line in lines)


def test_a_node_config_takes_every_option_of_a_source(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    for i, shard in enumerate(shards):
        lines = ["größe;b;c;d;e;f", *(";".join(repr(float(v)).replace(".", ",") for v in row) for row in shard)]
        (tmp_path / f"{i}.csv").write_bytes("\n".join(lines).encode("latin-1"))
        nodes[i]["data"] = f"csv(path='{tmp_path}/{i}.csv', decimal=',', encoding='latin-1')"
    result, _ = app_run(nodes)
    assert is_pca_of(result, [shard[:, [1, 2, 3, 4, 5, 0]] for shard in shards])
    assert result.feature_names_in_.tolist() == [*"bcdef", "größe"]


UNREADABLE = {
    "text that its operator has picked": (
        "age,town\n1.5,Geheim\n2.5,Geheim\n",
        "csv(path={!r}, columns=['age', 'town'])",
    ),
    "bytes": ("age,town\n1.5,Geh\udce9im\n", "csv(path={!r})"),
    "another separator": ("age;Geheim\n1;2\n", "csv(path={!r}, sep=',')"),
    "a column that is not there": ("Geheim,b\n1,2\n", "csv(path={!r}, columns=['age'])"),
    "no names": ("2001,2002,Geheim\n", "csv(path={!r}, columns=['age'])"),
    "no file": (None, "csv(path={!r})"),
    "no such source": (None, "cvs(path={!r})"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_a_file_holds_stays_at_its_node(case, app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    text, spec = UNREADABLE[case]
    path = tmp_path / "Geheim.csv"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    result, lines = app_run([*nodes, {"data": spec.format(str(path))}])
    assert is_pca_of(result, shards)
    (reason,) = {why for record in result.history for why in record.failures.values()}  # The node was asked twice.
    assert reason == ("This node cannot read its rows or its rules, and its own log says why. Ask the node's operator.")
    (own,) = {line for line in lines if "The rows or the rules of this node cannot be used: " in line}
    assert "Geheim" in own or case == "no such source"
    assert not any("Geheim" in line for line in lines if line != own)


@pytest.mark.parametrize("imported", [False, True])
def test_a_real_node_with_a_number_plays_drawn_rows_only(app_run, tmp_path, monkeypatch, imported):
    if imported:  # a SuperNode in an environment with Ray, whose engine it does not run in
        ray = ModuleType("ray")
        ray.is_initialized = lambda: False
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setitem(sys.modules, "flwr.simulation.ray_transport.ray_actor", ModuleType("ray_actor"))
    result, lines = app_run(simulated(3), engine=False)
    assert is_pca_of(result, [sources.make(DATA)])
    assert any(f"This node has no data of its own: it draws the rows of client 2 of {DATA}." in line for line in lines)
    nodes, shards = deployed(tmp_path)
    result, lines = app_run([*nodes, *simulated(4)[3:]], engine=False, data=nodes[0]["data"])
    assert is_pca_of(result, shards)
    assert any("draws its rows from a seed, set partition-id" in line for line in lines)


@pytest.mark.parametrize("rule", [{"masked-only": True}, {"sign-key": "/k"}, {"trusted-keys": "/k"}])
def test_a_node_that_others_trust_plays_no_rows_that_the_server_knows(rule, app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    peer = {**simulated(4)[3], **rule}
    result, lines = app_run([*nodes, peer], engine=False)
    assert is_pca_of(result, shards)
    (name,) = rule
    words = f"The node-config of this node has {name}, but no data. Add the node's own data, because whoever"
    assert any(words in line for line in lines)


@pytest.mark.parametrize("spec", ["n=1000000,d=1000", "n=20,d=20000,clients=1", "n=5000,d=2000,clients=5000"])
def test_no_run_makes_a_real_node_draw_rows_without_end(spec, app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    result, lines = app_run([*nodes, simulated(4)[3]], engine=False, data=f"synthetic({spec})")
    assert is_pca_of(result, shards)
    words = "A node draws at most 10,000,000 random entries (n d for the rows, and d d for each client), but this run"
    assert any(words in line for line in lines)


def test_an_actor_of_ray_is_a_virtual_node_and_its_driver_is_not(monkeypatch):
    ray, actor = ModuleType("ray"), None
    ray.is_initialized = lambda: True
    ray.get_runtime_context = lambda: SimpleNamespace(get_actor_id=lambda: actor)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "flwr.simulation.ray_transport.ray_actor", ModuleType("ray_actor"))
    assert not app._in_simulation()
    actor = "a1"
    assert app._in_simulation()
    monkeypatch.delitem(sys.modules, "flwr.simulation.ray_transport.ray_actor")
    assert not app._in_simulation()


def test_data_path_is_another_name_for_data(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    nodes[1]["data-path"] = nodes[1].pop("data")
    nodes[2]["data-path"] = nodes[2]["data"]
    result, _ = app_run(nodes)
    assert is_pca_of(result, shards)
    nodes[2]["data-path"] = nodes[0]["data"]
    result, lines = app_run(nodes)
    assert is_pca_of(result, shards[:2])
    assert any("The node-config names its rows twice: data='" in line for line in lines)


@pytest.mark.slow
def test_a_failed_run_is_logged_as_its_sentence_alone(app_run, tmp_path):
    """Flower logs the exception of a ServerApp with a traceback of its own and of the app."""
    with pytest.raises(NotEnoughNodes) as caught:
        app_run([{"data": str(tmp_path / "none.npy")}] * 2, n_components=2)
    with in_a_run() as lines:
        logger = logging.getLogger("flwr")
        formatter = logging.Formatter("%(message)s")
        logger.handlers[0].emit = lambda record: lines.append(formatter.format(record))
        logger.error("%s raised an exception", "ServerApp", exc_info=caught.value)
        logger.error("%s raised an exception", "ServerApp", exc_info=RuntimeError("of another kind"))
    assert lines[0] == str(caught.value)
    assert lines[1].startswith("ServerApp raised an exception\n")


@every(
    ("config", "remedy", "in_python"),
    [
        (
            {"algorithm": "krylov", "options": "dp=dp(epsilon=1.0, delta=1e-6, clip=10.0)"},
            'Start with algorithm="krylov(max_rounds=5)".',
            "Start with max_rounds=5.",
        ),
        (
            {"algorithm": "ssi(max_rounds=500, oversample=2)", "dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"},
            'Start with algorithm="ssi(oversample=2, max_rounds=5)".',
            "Start with max_rounds=5.",
        ),
    ],
)
def test_a_failed_run_advises_what_one_writes_for_flwr_run(app_run, config, remedy, in_python):
    with pytest.raises(ConfigError) as caught:
        app_run(simulated(2), **config)
    assert in_python in str(caught.value)
    (line,) = logged_by_flower(caught.value)
    assert line.endswith(remedy)


@every(
    ("written", "said"),
    [
        (option("missing", "mean"), 'missing="mean"'),
        (option("n_components"), "n-components"),
        (option("max_share"), "max-share"),
        (option("monitor", True), 'options="monitor=true"'),
        (option("columns", ["a", "b"]), "options=\"columns='a,b'\""),
        (option("categorical", {"ward": ["a"]}), "categorical={'ward': ['a']}"),
        (option("max_rounds"), "max_rounds"),
        (option("tol", 1e-5), 'algorithm="krylov(tol=1e-05)"'),
        (option("source", "theory"), 'source="theory"'),
    ],
)
def test_advice_for_flwr_run_is_a_key_an_option_or_a_parameter(written, said):
    assert with_advice_written(written, run_config.advice_writer("krylov")) == said
    name, equals, value = said.partition("=")
    if name == "options" and equals:
        assert run_config.read_options(value[1:-1])


def test_hints_in_the_log_say_what_one_writes_for_flwr_run(app_run, tmp_path):
    far = tmp_path / "far.npy"
    np.save(far, sources.make(DATA) + 1e3)
    result, lines = app_run(simulated(2), data=str(far), center=False)
    (hint,) = [hint for hint in result.hints if "center=True" in hint]
    assert hint.replace("center=True", 'options="center=true"') in lines
    assert not [each for each in logging.getLogger("flwr").filters if "RunConfig" in type(each).__name__]


@every(
    "config",
    [
        {"shard-answers": "summed"},
        {"shard-answers": "stacked"},
        {"influence": True},
        {"options": "influence=true"},
        {"options": "shard_answers=summed"},
    ],
)
def test_a_setting_that_was_removed_is_refused_with_what_to_use_instead(app_run, config):
    name = next(removed for removed in run_config.REMOVED if removed in str(config).replace("_", "-"))
    with pytest.raises(ConfigError) as caught:
        app_run(simulated(2), **config)
    assert str(caught.value) == f"The setting {name} of the run-config was removed: {run_config.REMOVED[name]}."
    assert caught.value.setting == name


def test_a_relative_output_leaves_earlier_results_alone(app_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, folder in enumerate(["deep/here", "deep/here-2", "deep/here-3"]):
        result, lines = app_run(simulated(2), output="deep/here", seed=seed)
        assert lines[-1] == f"{SAVED}{tmp_path / folder / 'result.npz'}"
        assert PCAResult.load(tmp_path / folder / "result.npz").seed == seed == result.seed
    (tmp_path / "deep/here/result.npz").unlink()
    assert app_run(simulated(2), output="deep/here")[1][-1] == f"{SAVED}{tmp_path / 'deep/here/result.npz'}"
    app_run(simulated(2), seed=7)
    # an absolute path is used as it is
    assert app_run(simulated(2), seed=8)[1][-1] == f"{SAVED}{tmp_path / 'out/result.npz'}"


def test_two_runs_at_once_keep_both_results(app_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit = strategies.PCAStrategy.fit

    def slower(strategy, grid):
        monkeypatch.setattr(strategies.PCAStrategy, "fit", fit)
        app_run(simulated(2), output="here", seed=1)
        return fit(strategy, grid)

    monkeypatch.setattr(strategies.PCAStrategy, "fit", slower)
    assert app_run(simulated(2), output="here", seed=2)[0].seed == 2
    assert [PCAResult.load(f"{place}/result.npz").seed for place in ("here", "here-2")] == [1, 2]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"allow": "faps, ssi"}, "This node does not serve krylov. It serves faps, ssi."),
        ({"allow": "krylow"}, "Did you mean 'krylov'?"),
        ({"min-rows": 1000}, "This node has fewer rows than its min_rows, 1000."),
        ({"max-messages": 1}, "This node answers at most 1 message in a run (its rule max-messages)."),
        ({"masked-only": True}, "This node answers masked messages only, because its rule masked-only is set."),
        ({"max-dropouts": 5}, "max_groups and max_dropouts need trusted_keys."),
        ({"min-rows": "many"}, "min_rows must be a whole number of at least 1, not 'many'."),
        ({"masked_only": True}, "The node-config has masked_only, which is not a rule. Did you mean masked-only?"),
        ({"trusted-key": "/k"}, "The node-config has trusted-key, which is not a rule. Did you mean trusted-keys?"),
        ({"masked-only": "true"}, "must be True or False, not 'true'. Write it without quotation marks."),
        ({"share-local": "false"}, "share_local must be True or False, not 'false'."),
        ({"data": "/none.csv"}, "No file or folder named"),
        ({"data": "cvs(path='x')"}, "Did you mean 'csv'?"),
    ],
)
def test_a_node_refuses_under_its_own_rules_and_the_others_go_on(app_run, rule, reason, tmp_path):
    nodes, shards = deployed(tmp_path)
    nodes[1].update(rule)
    result, lines = app_run(nodes)
    assert is_pca_of(result, [shards[0], shards[2]])
    assert any(reason in line for line in lines), lines


def test_a_node_serves_what_it_allows(app_run, tmp_path):
    nodes, shards = deployed(tmp_path, allow="krylov,faps", **{"min-rows": 10})
    result, _ = app_run(nodes)
    assert is_pca_of(result, shards)


@pytest.mark.slow
def test_noise_and_masks_together_by_keys_of_the_run_config(app_run, tmp_path):
    nodes, _ = deployed(tmp_path, **{"masked-only": True, "min-noise": 1e-3})
    dp = "dp(epsilon=100.0, delta=1e-6, clip=20.0)"
    result, _ = app_run(nodes, algorithm="ssi(max_rounds=2)", mask=True, dp=dp)
    assert result.privacy.shared
    assert result.privacy.epsilon == pytest.approx(100.0, rel=1e-9)


def test_a_tracker_runs_by_the_run_config_that_the_app_comes_with(app_run, tmp_path):
    config = tomllib.loads(text("hub/pyproject.toml"))["tool"]["flwr"]["app"]["config"] | {
        "data": DATA,
        "output": str(tmp_path / "out"),
    }
    config |= {"algorithm": "st_miss", "n-components": 2, "options": "batch=20, steps=3"}
    result, lines = app_run(simulated(2), load=TrackingResult.load, **config)
    assert len(result.rows_) == 3
    assert any("st_miss: 2/2 clients, step 1, error " in line for line in lines)


@pytest.mark.slow
def test_masks_by_a_key_of_the_run_config(app_run, tmp_path):
    nodes, shards = deployed(tmp_path, **{"masked-only": True})
    result, _ = app_run(nodes, mask=True)
    assert is_pca_of(result, shards)
    assert result.history[0].stage == "mask.keys"


@pytest.mark.slow
def test_masks_by_a_spec_of_the_run_config(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    nodes[0]["single-masks"] = nodes[2]["single-masks"] = True
    result, lines = app_run(nodes, mask="masks(neighbors=2, self_masks=False)")
    assert is_pca_of(result, [shards[0], shards[2]])
    refused = "This node does not take part in masked sums without self-masks, because its single_masks is not set."
    assert any(refused in line for line in lines)
    plain, _ = app_run(nodes, mask="false")
    assert plain.history[0].stage == "opening"


@pytest.mark.slow
def test_nodes_that_sign_by_keys_of_their_node_config(app_run, tmp_path):
    nodes, shards = deployed(tmp_path)
    made = keys.write_keys(tmp_path / "keys", nodes=3)
    for node, key in zip(nodes, made.nodes, strict=True):
        node |= {"sign-key": str(key), "trusted-keys": str(tmp_path / "keys")}
    result, _ = app_run(nodes, mask=True)
    assert is_pca_of(result, shards)
    del nodes[1]["trusted-keys"]
    nodes[1]["sign-key"] = str(tmp_path / "none")
    result, lines = app_run(nodes, mask=True)
    assert is_pca_of(result, [shards[0], shards[2]])
    assert any("(sign_key) cannot be read (" in line for line in lines)


@pytest.mark.slow
def test_a_node_keeps_its_memory_where_it_is_told(app_run, tmp_path):
    nodes, _ = deployed(tmp_path, **{"memory-dir": str(tmp_path / "memory")})
    app_run(nodes, algorithm="faps(max_rounds=3)")
    names = sorted(path.name for path in (tmp_path / "memory").glob("*.npz"))
    assert len(names) == 9
    assert sum("began" in name for name in names) == 3  # marks of the rows that the run began with
    assert sum("fixed" in name for name in names) == 3  # the statistics of their rows


@pytest.mark.slow
def test_a_node_keeps_its_own_result_where_it_is_told_and_robust_runs_are_not_centered(app_run, tmp_path):
    rules = {"output-dir": str(tmp_path / "own"), "allow": "consensus_rpca,krylov"}
    nodes, shards = deployed(tmp_path, **rules)
    result, _ = app_run(nodes, algorithm="consensus_rpca(gamma=0.5, max_rounds=9)", center="")
    assert isinstance(result, RobustResult)
    assert not result.centered
    written = [np.load(place) for place in (tmp_path / "own").glob("*.npz")]
    assert sorted(len(file["L"]) for file in written) == sorted(map(len, shards))
    assert all(np.abs(file["L"] + file["S"]).max() > 0.0 for file in written)
    krylov, _ = app_run(nodes, center="")
    assert krylov.centered
    assert len(list((tmp_path / "own").glob("*.npz"))) == 3  # A plain PCA has no local result.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")  # These rows have no own components.
@pytest.mark.parametrize("name", {entry.result: name for name, entry in registry.TABLE.items()}.values())
def test_an_algorithm_of_each_kind_of_result_runs_by_its_name(app_run, name):
    few = "(max_rounds=2)" if name in ("per_pca", "exact_per_pca", "triple_pca", "consensus_rpca") else ""
    result, _ = app_run(simulated(2), algorithm=name + few, center=False)
    assert result.algorithm.startswith(name)
    assert not result.centered


def test_the_keys_of_the_app_are_those_that_are_declared():
    config = tomllib.loads(text("hub/pyproject.toml"))["tool"]["flwr"]["app"]["config"]
    assert config == {**{setting.key: setting.value for setting in run_config.KEYS}, "options": ""}
    assert "app" not in tomllib.loads(text("pyproject.toml")).get("tool", {}).get("flwr", {})


def test_all_settings_of_a_strategy_can_be_set():
    known = {setting.key for setting in (*run_config.KEYS, *run_config.OPTIONS)}
    here = set(inspect.signature(strategies.PCAStrategy).parameters)
    apart = {"algorithm", "action", "hosted", "fraction", "fraction_train", "min_available_nodes", "min_train_nodes"}
    apart |= {"min_evaluate_nodes", "channel"}  # An app has no use for these, or cannot write them as text.
    assert {name.replace("_", "-") for name in here - apart} <= known


@every(
    ("given", "found"),
    [
        ("", {}),
        ("reconstruction-error=true, seed=3", {"reconstruction-error": True, "seed": 3}),
        ("round_timeout=7.5,init=/tmp/a b.npz", {"round-timeout": 7.5, "init": "/tmp/a b.npz"}),
        (
            "columns='age,pulse', partition=by_column(\"site, x\")",
            {"columns": "age,pulse", "partition": 'by_column("site, x")'},
        ),
        ("dp=dp(epsilon=1.0, delta=1e-6, clip=10.0)", {"dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"}),
        ("seed=1,", {"seed": 1}),
    ],
)
def test_options_of_the_run_config_are_read(given, found):
    assert run_config.read_options(given) == found
    assert run_config.settings_of({"options": given}).items() >= found.items()


@every(
    ("given", "sentence"),
    [
        ("evaluate", "'evaluate' in the options of the run-config"),
        ("evaluat=true", "option 'evaluat', which does not exist. The options are"),
        ("max-rounds=5", r'which does not exist. .* write algorithm="krylov\(max_rounds=5\)"'),
        ("mask=true", "mask is not an option but a separate key"),
        ("seed=1, seed=2", "the option seed twice"),
        ("dp=dp(epsilon=1.0", "a bracket or a quote is not closed"),
    ],
)
def test_options_that_cannot_be_read_are_refused(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        run_config.read_options(given)


def test_options_reach_nodes_and_server(app_run, tmp_path):
    result, lines = app_run(
        simulated(2), options="clients-per-node=3, reconstruction-error=true, seed=4, partition=iid(seed=1)"
    )
    assert any("6/6 clients" in line for line in lines)
    assert result.mse_ is not None
    assert result.seed == 4


def test_standard_errors_by_an_option(app_run):
    result, _ = app_run(simulated(3), options="standard-errors=true")
    assert result.loading_errors_.shape == (2, 6)
    assert result.variance_errors_.shape == (2,)


def test_empty_text_means_none(app_run):
    result, _ = app_run(simulated(2), scale="", checkpoint="", seed=4, reconstruction_error=True)
    assert result.scale_ is None
    assert result.seed == 4
    assert result.mse_ is not None


def test_a_checkpoint_lies_in_the_output_folder_and_is_gone_at_the_end(app_run, tmp_path):
    refused, _ = deployed(tmp_path, allow="krylov")
    with pytest.raises(NotEnoughNodes, match=r"This node does not serve ssi\. It serves krylov"):
        app_run(refused, algorithm="ssi", checkpoint="run.ckpt")
    assert [place.name for place in (tmp_path / "out").iterdir()] == ["run.ckpt"]
    app_run(simulated(2), algorithm="krylov", checkpoint=str(tmp_path / "elsewhere.ckpt"))
    assert not (tmp_path / "elsewhere.ckpt").exists()


@pytest.mark.slow
def test_the_app_deals_the_columns_of_the_run_config_to_in_simulation_nodes(app_run, tmp_path):
    tables = parties_written(tmp_path / "tables")
    nodes = [{"partition-id": i, "num-partitions": 2} for i in range(2)]
    result, _ = app_run(nodes, data=str(tables), partitioned_by="columns", ids="patient", wire="auto", algorithm="auto")
    pooled = simulate("auto", tables_in_rows(), n_components=2, partitioned_by="columns")
    np.testing.assert_array_equal(result.scores_, pooled.scores_)


@pytest.mark.slow
def test_the_app_runs_over_nodes_that_have_their_own_tables(app_run, tmp_path):
    tables = parties_written(tmp_path / "tables")
    nodes = [
        {
            "data": f"csv(path='{tables / site}.csv', ids='patient')",
            "split-columns": "std",
            "output-dir": str(tmp_path / site),
        }
        for site in frames()
    ]
    result, _ = app_run(nodes, partitioned_by="columns", scale="std", mask=True)
    assert isinstance(result, ColumnsResult)
    assert result.components_.shape == (2, 0)
    np.testing.assert_allclose(
        result.scores_,
        simulate("auto", frames(), n_components=2, partitioned_by="columns", scale="std").scores_,
        atol=1e-8,
    )
    parts = [ColumnsResult.projection_of_party(*(tmp_path / site).glob("*local*.npz")) for site in frames()]
    together = sum(part.transform(frames()[site].loc[PEOPLE]) for part, site in zip(parts, frames(), strict=True))
    np.testing.assert_allclose(together, result.scores_, atol=1e-8)


def test_what_a_run_config_leaves_as_it_is_is_asked_as_by_simulate():
    """So a run with the defaults has the bits of `simulate` with the defaults."""
    config = run_config.settings_of(tomllib.loads(text("hub/pyproject.toml"))["tool"]["flwr"]["app"]["config"])
    shared = [f for f in fields(PCAConfig) if f.default is not MISSING and f.name.replace("_", "-") in config]
    shared = [f for f in shared if f.name != "min_nodes"]  # a run of nodes waits for two
    assert {"wire", "seed", "scale", "missing"} <= {f.name for f in shared}
    asked = {f.name: config[f.name.replace("_", "-")] or f.default for f in shared}
    assert asked == {f.name: f.default for f in shared}
