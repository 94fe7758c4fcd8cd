"""The same halves over Flower's own transport: same bits, and the right answer whoever comes and goes.

One SuperLink serves all of it, and the other files. The node that is killed without a word comes last: Flower takes a
while to notice.
"""

import shutil
import time

import fake_grid
import numpy as np
import pytest
import test_categorical
from builders import leading, pooled
from federation import wait
from results import assert_same_bits
from test_adjust import assert_components_of, left_of
from test_explain import FEATURES, people_of_sites
from test_harmonize import COVARIATES, assert_of_harmonized, combat_of, features_in, scanners_of_sites

from deployment.asked import AskedThere, remembering
from flower_pca import TrackingResult, keys, simulate, track
from flower_pca.results import site as sites
from flower_pca.strategies import FAPS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]

RUN = {"n_components": 2, "seed": 3}
FIXED = {**RUN, "answers": "fixed"}  # answers as nodes give them


def stages(result):
    return [r.stage for r in result.history]


def assert_pooled(result, shards, within=1e-6):
    """The result is the PCA of these rows in one place."""
    reference = pooled(shards)
    assert result.n_samples_ == reference.n
    np.testing.assert_allclose(result.mean_, reference.mean, rtol=0, atol=1e-10)
    assert result.angle_to(leading(shards)) < within
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:2], rtol=within)


def test_as_in_process_and_the_same_bits_again_after_the_server_was_killed(federation, tmp_path):
    federation.present(0, 1)
    checkpoint, parts = tmp_path / "run.ckpt", federation.shards[:2]
    interrupted = federation.run("Krylov", hold=1, checkpoint=str(checkpoint), **RUN)
    masked = federation.run("Krylov", mask=True, **RUN)

    interrupted.held()
    interrupted.kill()
    assert checkpoint.exists()
    resumed = federation.run("Krylov", checkpoint=str(checkpoint), **RUN)

    krylov = resumed.result()
    assert_same_bits(krylov, simulate("krylov", parts, **FIXED))
    assert stages(krylov) == ["opening", "krylov"]  # one message for each product, and no others
    assert krylov.rounds == 1
    assert_pooled(krylov, parts)

    assert not checkpoint.exists()

    assert_same_bits(masked.result(), simulate("krylov", parts, mask=True, **FIXED))
    assert stages(masked.result())[:4] == ["mask.keys", "mask.shares", "summed_opening", "mask.sum"]
    assert_pooled(masked.result(), parts)
    wait("the masked run to end", lambda: masked.status() == "finished:completed")


def test_levels_of_words_are_agreed_on_by_real_nodes(federation):
    federation.present(0, 1, 2)
    tables = [federation.node(partition).table for partition in range(3)]
    for file, rows in zip(tables, test_categorical.TABLES.values(), strict=True):
        rows.to_csv(file, index=False)
    try:
        asked = {"n_components": 3, "categorical": "ward,sex", "scale": "std", "min_nodes": 3}
        run = federation.run("PCAStrategy", algorithm="covariance", **asked)
        result = run.result()
    finally:
        for file in tables:
            file.unlink()
    assert stages(result)[0] == "names"
    assert result.config["categorical"] == {"ward": test_categorical.EVERY["ward"], "sex": ["f", "m"]}
    coded = test_categorical.coded(test_categorical.ROWS, test_categorical.EVERY)
    test_categorical.is_pooled_coded(result, coded, 1e-10)
    wait("the run to end", lambda: run.status() == "finished:completed")


def test_covariates_are_removed_at_real_nodes(federation):
    """With masks: test_three_files.py."""
    federation.present(0, 1, 2)
    files = [federation.node(partition).table for partition in range(3)]
    tables = people_of_sites(5)
    for file, rows in zip(files, tables, strict=True):
        rows.assign(ward="surgery").to_csv(file, index=False)
    try:
        names = "age,sex=F,sex=M,site"
        asked = {"n_components": 2, "columns": ",".join(FEATURES), "adjust": names, "explain": "sex=F,sex=M"}
        run = federation.run("PCAStrategy", algorithm="krylov(tol=1e-12)", min_nodes=3, **asked)
        result = run.result()
    finally:
        for file in files:
            file.unlink()
    assert_components_of(result, left_of(tables, ("age", "sex", "site")))
    assert list(result.explained_by_) == ["sex"]
    wait("the run to end", lambda: run.status() == "finished:completed")


def restart(federation, *partitions):
    """Sign these nodes off and start them again, beside all others."""
    federation.present(*({0, 1, 2} - {*partitions}))
    federation.present(0, 1, 2)


def test_sites_are_harmonized_at_real_nodes_and_known_after_a_restart(federation):
    """With masks: test_three_files.py."""
    federation.present(0, 1, 2)
    nodes = [federation.node(partition) for partition in range(3)]
    files, own = [node.table for node in nodes], nodes[1].own
    tables, new = scanners_of_sites(13), scanners_of_sites(14)
    own.mkdir()
    for file, rows in zip(files, tables, strict=True):
        rows.assign(ward="surgery").to_csv(file, index=False)
    try:
        asked = {"n_components": 2, "harmonize": "combat", "columns": ",".join(features_in(tables[0])[::-1])}
        asked |= {"algorithm": "krylov(tol=1e-12)", "keep": "age,sex=F,sex=M", "min_nodes": 3}
        run = federation.run("PCAStrategy", hold=1, **asked)  # after the message about sites
        run.held()
        restart(federation, 1)
        run.go_on()
        result = run.result()
        rows = combat_of(tables, COVARIATES)[:, ::-1]
        assert_of_harmonized(result, rows)
        known = result.at_site(sites.read_local_result(own / "flower_pca-local-1.npz"))
        expected = (rows - rows.mean(axis=0)) @ result.components_.T
        scores = known.transform(tables[1])
        np.testing.assert_allclose(scores, expected[len(tables[0]) :][: len(tables[1])], atol=1e-8)
        reference = simulate(
            "krylov(tol=1e-12)", tables, n_components=2, harmonize="combat", keep=COVARIATES, columns=asked["columns"]
        )
        of_new = known.transform(new[1])
        np.testing.assert_allclose(of_new, reference.at_site(1).transform(new[1]), atol=1e-8)
        restart(federation, 1)
        again = result.at_site(sites.read_local_result(own / "flower_pca-local-1.npz"))
        np.testing.assert_array_equal(again.transform(new[1]), of_new)
        np.testing.assert_allclose(
            result.harmonize(new[2]).transform(new[2]), reference.harmonize(new[2]).transform(new[2]), atol=1e-8
        )
    finally:
        for file in files:
            file.unlink()
        shutil.rmtree(own)
    wait("the run to end", lambda: run.status() == "finished:completed")


def test_the_steps_of_a_tracker_are_those_in_process(federation):
    federation.present(0, 1)
    run = federation.run("STMiss", batch=30, n_components=2, steps=2, products=1, first_products=1)
    result = run.result(TrackingResult)
    tracker = "st_miss(products=1, first_products=1)"
    reference = track(tracker, federation.shards[:2], n_components=2, batch=30, steps=2)
    assert np.array_equal(result.components_, reference.components_)
    assert result.rows_.tolist() == [60, 60]
    wait("the run to end", lambda: run.status() == "finished:completed")


def assert_as_alone_all_at_once(federation, group):
    """Runs that are all half done at the same time, at nodes with a folder for what they remember."""
    nodes = [federation.node(partition) for partition in range(3)]
    for node in nodes:
        node.memory.mkdir()
    try:
        runs = [asked.begin(federation) for asked in group]
        for run in runs:
            run.held()
        assert [len(list(node.memory.glob("*-run-*.npz"))) for node in nodes] == [len(group)] * 3
        for run in runs:
            run.go_on()
        for asked, run in zip(group, runs, strict=True):
            asked.assert_as_alone(run)
    finally:
        for node in nodes:
            shutil.rmtree(node.memory)


def test_runs_of_all_kinds_that_remember_at_once_are_as_each_alone(federation):
    """Two of them by the same algorithm."""
    federation.present(0, 1, 2)
    every = remembering(tuple(federation.shards))
    groups = -(-(len(every) + 1) // 4)
    every.insert(groups, AskedThere(every[0].name, every[0].shards, seed=every[0].seed + 1))  # beside the first
    for first in range(groups):
        assert_as_alone_all_at_once(federation, every[first::groups])  # Masked runs are the last in every group.


def test_a_node_that_forgot_everything_goes_on_and_the_others_remember(federation):
    federation.present(0, 1)
    faps = federation.run("FAPS", hold=2, max_rounds=2, **RUN)
    faps.held()
    before = federation.node(1).id
    federation.present(0)
    federation.present(0, 1)
    assert federation.node(1).id == before
    faps.go_on()
    result = faps.result()
    assert stages(result) == ["opening", "faps", "faps", "ritz"]
    # The result is the same to the bit: the other node has its memory, and this one starts again.
    with fake_grid.in_a_run():
        grid = fake_grid.grid_of(federation.shards[:2], answers="fixed")
        forgetful = grid.node(1)
        grid.on_push = lambda message: message.metadata.group_id == "2" and grid.forget(forgetful)
        assert_same_bits(result, FAPS(max_rounds=2, **RUN).fit(grid))


def test_a_node_with_a_key_that_is_not_registered_is_refused(federation, tmp_path):
    stranger = keys.write_keys(tmp_path / "stranger", nodes=1)
    node = federation.start_node(0, key=stranger.nodes[0])
    assert node.process.wait(180) != 0
    assert node.id is None


def test_a_node_that_comes_late_is_taken_in(federation):
    federation.present(0, 1)
    run = federation.run("Krylov", hold=1, **RUN)
    run.held()
    federation.present(0, 1, 2)
    run.go_on()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, federation.shards)
    asked = [r.asked for r in result.history]
    assert (asked[0], asked[-1]) == (2, 3)


def test_a_node_that_signs_off_in_the_middle_of_a_message_is_left_out(federation):
    federation.present(0, 1, 2)
    last = federation.node(2)
    run = federation.run("Krylov", hold=1, **RUN)
    run.held()
    last.stall.touch()
    run.go_on()
    last.stalled()
    last.terminate()
    last.stall.unlink()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, federation.shards[:2])
    (lost,) = [r for r in result.history if r.failures]
    assert (lost.stage, lost.asked, lost.answered) == ("krylov", 3, 2)


def test_a_node_that_stands_still_for_a_while_goes_on(federation):
    """As a machine does that sleeps, or has no memory left for a while: all of its processes, in a message."""
    federation.present(0, 1, 2)
    last = federation.node(2)
    run = federation.run("Krylov", hold=1, **RUN)
    run.held()
    last.stall.touch()
    run.go_on()
    last.stalled()
    assert len(last.processes()) >= 3  # processes of Flower and of the ClientApp
    last.stand_still()
    try:
        last.stall.unlink()
        time.sleep(7.0)  # a third of the time after which Flower gives up
    finally:
        last.go_on()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, federation.shards)
    assert not any(record.failures for record in result.history)


def test_a_node_whose_app_dies_is_left_out_after_two_messages_and_counts_again_once_it_is_back(federation):
    federation.present(0, 1, 2)
    last = federation.node(2)
    last.dies.write_text("1")
    run = federation.run("Krylov", hold=4, round_timeout=15.0, **RUN)
    try:
        run.held()
        federation.present(0, 1)
    finally:
        last.dies.unlink()
    federation.present(0, 1, 2)
    run.go_on()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, federation.shards)
    died = [r.failures[str(last.id)] for r in result.history if str(last.id) in r.failures]
    assert died == ["no answer within 15 s: the process of its ClientApp may have died"] * 2
    assert result.history[2].asked == 1
    said = federation.flwr("log", str(run.id), "trial", "--show")
    assert f"node {last.id} (partition-id 2) was left out: {died[0]}" in said


def test_a_node_whose_power_fails_in_the_middle_of_a_message_is_in_the_result_once_it_is_back(federation):
    """All of its processes are killed at once. Flower takes its key again as soon as it has given up the node."""
    federation.present(0, 1, 2)
    slow, last = federation.node(0), federation.node(2)
    run = federation.run("Krylov", hold=1, **RUN)
    run.held()
    slow.stall.touch()  # The message does not end before the other node is back.
    last.stall.touch()
    run.go_on()
    slow.stalled()
    last.stalled()
    assert len(last.processes()) >= 3  # processes of Flower and of the ClientApp
    last.kill()
    last.stall.unlink()

    wait("the end of the minute", lambda: federation.is_offline(last), pause=1.0)
    time.sleep(5.0)  # The server polls several times: a node that is back before a poll is believed to be at work.
    back = federation.start_node(2).connected()
    slow.stall.unlink()
    result = run.result()
    assert back.id == last.id  # by its key
    assert result.status.ok
    assert_pooled(result, federation.shards)
    assert any("error" in record.failures.get(str(last.id), "") for record in result.history)


def test_a_node_that_was_killed_is_left_out(federation):
    federation.present(0, 1, 2)
    run = federation.run("Krylov", hold=1, **RUN)
    run.held()
    federation.node(2).kill()
    run.go_on()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, federation.shards[:2])
    assert any("error" in reason for r in result.history for reason in r.failures.values())
