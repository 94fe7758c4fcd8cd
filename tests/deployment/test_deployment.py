"""The same halves over Flower's own transport: same bits, and the right answer whoever comes and goes."""

import numpy as np
import pytest

from flower_pca import keys

pytestmark = pytest.mark.transport

RUN = {"n_components": 2, "seed": 3}


def same_bits(a, b):
    names = ("components_", "explained_variance_", "mean_", "residuals_")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def stages(result):
    return [r.stage for r in result.history]


def assert_pooled(result, shards, within=1e-6):
    """The result is the PCA of these rows in one place."""
    X = np.vstack(shards)
    _, s, components = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    assert result.n_samples_ == len(X)
    np.testing.assert_allclose(result.mean_, X.mean(axis=0), rtol=0, atol=1e-10)
    assert result.angle_to(components[:2]) < within
    np.testing.assert_allclose(result.explained_variance_, s[:2] ** 2 / (len(X) - 1), rtol=within)


def test_same_bits_as_simulated_and_again_after_the_server_was_killed(pair, tmp_path):
    checkpoint = tmp_path / "run.ckpt"
    interrupted = pair.run("Krylov", hold=2, checkpoint=str(checkpoint), **RUN)
    faps = pair.run("FAPS", max_rounds=3, **RUN)
    whole = pair.run("Krylov", **RUN)

    interrupted.held()
    interrupted.kill()
    assert checkpoint.exists()
    resumed = pair.run("Krylov", checkpoint=str(checkpoint), **RUN)

    krylov = whole.result()
    assert same_bits(krylov, pair.simulated("krylov", [0, 1], **RUN))
    assert stages(krylov) == ["opening", "krylov", "krylov"]  # one message for each product, none beside
    assert krylov.rounds == 2
    assert_pooled(krylov, pair.shards)

    assert same_bits(resumed.result(), krylov)
    assert stages(resumed.result()) == stages(krylov)
    assert not checkpoint.exists()

    simulated = pair.simulated("faps", [0, 1], max_rounds=3, **RUN)
    assert same_bits(faps.result(), simulated)
    assert stages(faps.result()) == ["opening", "faps", "faps", "faps", "ritz"]
    assert whole.status() == "finished:completed"


def test_masked_runs_are_the_same_bits_as_simulated(pair):
    masked = pair.run("Krylov", mask=True, **RUN).result()
    assert same_bits(masked, pair.simulated("krylov", [0, 1], mask=True, **RUN))
    assert stages(masked)[:4] == ["mask.keys", "mask.shares", "summed_opening", "mask.sum"]
    assert_pooled(masked, pair.shards)


def test_a_node_that_signs_off_in_the_middle_of_a_message_is_left_out(trio):
    trio.present(0, 1, 2)
    last = trio.node(2)
    run = trio.run("Krylov", hold=1, **RUN)
    run.held()
    last.stall.touch()
    run.go_on()
    last.stalled()
    last.terminate()
    last.stall.unlink()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, trio.shards[:2])
    (lost,) = [r for r in result.history if r.failures]
    assert (lost.stage, lost.asked, lost.answered) == ("krylov", 3, 2)


def test_a_node_that_comes_late_is_taken_in(trio):
    trio.present(0, 1)
    run = trio.run("Krylov", hold=1, **RUN)
    run.held()
    trio.present(0, 1, 2)
    run.go_on()

    result = run.result()
    assert result.status.ok
    assert_pooled(result, trio.shards)
    asked = [r.asked for r in result.history]
    assert (asked[0], asked[-1]) == (2, 3)


@pytest.mark.usefixtures("bereft")  # whose minute of waiting passes here
def test_over_tls_a_node_that_forgot_everything_goes_on(secure):
    krylov = secure.run("Krylov", **RUN)
    faps = secure.run("FAPS", hold=2, max_rounds=4, **RUN)
    assert same_bits(krylov.result(), secure.simulated("krylov", [0, 1], **RUN))

    faps.held()
    before = secure.node(1).id
    secure.present(0)
    secure.present(0, 1)
    assert secure.node(1).id == before
    faps.go_on()
    assert stages(faps.result()) == ["opening", "faps", "faps", "faps", "faps", "ritz"]
    assert_pooled(faps.result(), secure.shards, within=5e-3)


def test_a_node_with_a_key_that_is_not_registered_is_refused(secure, tmp_path):
    stranger = keys.write(tmp_path / "stranger", nodes=1)
    node = secure.start_node(0, key=stranger.nodes[0])
    assert node.process.wait(60) != 0
    assert node.id is None


def test_a_node_that_was_killed_is_left_out(bereft, trio):
    result = bereft.result()
    assert result.status.ok
    assert_pooled(result, trio.shards[:2])
    assert any("error" in reason for r in result.history for reason in r.failures.values())
