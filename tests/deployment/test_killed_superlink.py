"""A SuperLink with a database that is killed in the middle of a run: the same command goes on, to the same bits."""

import os

import pytest
from federation import Federation, wait
from results import assert_same_bits

from deployment.conftest import IMPORTED, SHARDS
from flower_pca import simulate

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]


def test_power_fails_at_the_server_in_the_middle_of_a_run(tmp_path):
    run = {"n_components": 2, "seed": 3, "checkpoint": str(tmp_path / "run.ckpt")}
    words = ("--database", str(tmp_path / "superlink.db"))
    with Federation(tmp_path, SHARDS[:2], superlink=words, forked=IMPORTED) as federation:
        federation.present(0, 1)
        before = [federation.node(partition).id for partition in range(2)]
        interrupted = federation.run("SSI", hold=3, max_rounds=6, **run)
        interrupted.held()
        server = int((interrupted.folder / "pid").read_text())
        federation.fail_power_of_superlink()
        wait("the end of the ServerApp", lambda: not os.path.exists(f"/proc/{server}"))

        resumed = federation.run("SSI", max_rounds=6, **run)
        result = resumed.result()
        assert [federation.node(partition).id for partition in range(2)] == before
        assert_same_bits(result, simulate("ssi", SHARDS[:2], n_components=2, seed=3, answers="fixed", max_rounds=6))

        def has_said() -> bool:  # lines reach the SuperLink a little later than they are written
            return "after 3 messages" in federation.flwr("log", str(resumed.id), "trial", "--show")

        wait("the line of the checkpoint in the log", has_said)
