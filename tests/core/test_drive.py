"""Test `drive`: answers are pulled one at a time, files hold run and transport, old files are refused."""

import numpy as np
import pytest
from builders import three_clients
from by_hand import Honest, local_clients, session

from flower_pca import ConfigError
from flower_pca.base import files
from flower_pca.core.drive import OnRound, drive, rounds

SHARDS = three_clients(0).shards


class Kept(Honest):
    """Honest clients, whose memories a checkpoint holds."""

    kind = "checkpoint"

    def __init__(self, nodes):
        super().__init__(nodes, None, {})
        self.asked = 0

    def ask(self, message):
        self.asked += 1
        return super().ask(message)

    def checkpoint_state(self):
        return {"asked": self.asked}, {f"{i}.{n}": a for i, m in self.memories.items() for n, a in m.items()}

    def resume(self, header, arrays):
        self.asked = header["asked"]
        for name, a in arrays.items():
            if name[0].isdigit():
                self.memories.setdefault(int(name[0]), {})[name[2:]] = a


def test_an_answer_is_asked_for_when_the_one_before_is_summed():
    """So that a server holds one of them, however many clients there are."""
    events, run = [], session("ssi(max_rounds=2)")

    class Watched(Kept):
        def ask(self, message):
            for reply in super().ask(message):
                events.append(("answered", reply.client))
                yield reply
                events.append(("taken", reply.client))

    drive(run, Watched(local_clients(SHARDS)))
    assert events[:6] == [(what, client) for client in range(3) for what in ("answered", "taken")]
    assert len(events) == 6 * len(run.history)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["krylov", "faps(max_rounds=6)", "dr_svd"])
def test_a_run_that_is_interrupted_after_any_message_goes_on_from_its_file(algorithm, tmp_path):
    path, whole = tmp_path / "run.ckpt", drive(session(algorithm), Kept(local_clients(SHARDS)))
    seen = []

    def interrupt(run):
        seen.append(len(run.history))
        raise KeyboardInterrupt

    for _ in whole.history:
        with pytest.raises(KeyboardInterrupt):
            drive(session(algorithm), Kept(local_clients(SHARDS)), checkpoint=path, watchers=[OnRound(interrupt)])
    transport = Kept(local_clients(SHARDS))
    result = drive(session(algorithm), transport, checkpoint=path, watchers=[OnRound(interrupt)])
    np.testing.assert_array_equal(result.components_, whole.components_)
    assert seen == list(range(1, len(whole.history) + 1))
    assert transport.asked == len(whole.history)
    assert not path.exists()


def test_rounds_are_the_messages_of_a_run_each_with_the_run_after_it():
    run = session("krylov")
    numbers = [(message.number, len(run.history)) for message in rounds(run, Kept(local_clients(SHARDS)))]
    assert numbers == [(i, i + 1) for i in range(len(run.history))]
    assert run.is_finished


def test_a_run_is_over_with_its_last_answer_whoever_is_there_then():
    for arguments in ({"reconstruction_error": True}, {}):
        run, nodes = session("uda", **arguments), Kept(local_clients(SHARDS))
        for _ in rounds(run, nodes):
            nodes._present = [] if run.is_finished else range(3)
        assert run.result().n_samples_ == sum(map(len, SHARDS))


def test_a_checkpoint_of_an_earlier_version_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "run.ckpt"
    header, arrays = session("krylov").checkpoint()
    for layout in ({}, {"layout": 1}):
        old = {name: value for name, value in header.items() if name != "layout"} | layout
        files.write(path, "checkpoint", {**old, "asked": 0}, arrays)
        with pytest.raises(ConfigError) as caught:
            drive(session("krylov"), Kept(local_clients(SHARDS)), checkpoint=path)
        assert str(caught.value) == (
            "The checkpoint was written by an earlier version. Delete it, and start the run again."
        )
        assert path.exists()
