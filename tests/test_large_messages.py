"""Test the memory of large messages: what is freed goes back to the operating system, and is not held twice."""

import io
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from fake_grid import FakeGrid, in_a_run
from flwr.app import Array as FlowerArray
from flwr.app import ConfigRecord, RecordDict

from flower_pca import SSI, Krylov, simulate, strategies, wire
from flower_pca.base import large
from flower_pca.base.errors import ProtocolError
from flower_pca.cli import main
from flower_pca.clients import client_app
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.wire import pieces

# Blocks of 4 MB with small ones between them, as Flower leaves them behind. What remains of 200 MB is printed in MB.
_BLOCKS = """
import threading
from pathlib import Path
from flower_pca.base import large

def resident():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

def fill_and_free(kept):
    blocks = []
    for _ in range(50):
        blocks.append(b"\\1" * 4_000_000)
        kept.append(bytes(1000))
    del blocks

bytes(30_000_000)  # Its end lets glibc keep all smaller blocks.
before, kept = resident(), []
if FIRST:
    large.release_memory()
for _ in range(2):
    thread = threading.Thread(target=fill_and_free, args=(kept,))
    thread.start()
    thread.join()
if not FIRST:
    large.release_memory()
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the memory of a process on Linux only")
@pytest.mark.parametrize("first", [True, False])
def test_freed_blocks_go_back_to_the_operating_system(first):
    program = f"FIRST = {first}\n{_BLOCKS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no glibc")
def test_limits_of_malloc_in_the_environment_are_kept(monkeypatch):
    library = mock.Mock()
    monkeypatch.setattr(large.ctypes, "CDLL", lambda name: library)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "67108864")
    large.release_memory()
    assert library.mallopt.call_args_list == [mock.call(large._TRIM_THRESHOLD, large._RETURNED)]
    library.malloc_trim.assert_called_once_with(0)


def test_a_message_in_both_layouts_is_serialized_once():
    block = np.arange(12.0).reshape(6, 2)
    message = Broadcast("ssi", 1, {"Z": block}, Frame(), (0,))
    content = wire.write_request(message, 0, algorithm="ssi", run="r", extra={}, layouts=wire.BOTH)
    assert isinstance(content, RecordDict)
    first, second = (list(record.values()) for record in content.array_records.values())
    assert first[0].data is second[0].data
    parameters, config = wire.open_request(content, "train")
    assert np.array_equal(wire.read_request(parameters, config).arrays["Z"], block)


@pytest.mark.parametrize("algorithm", [SSI(max_rounds=3), Krylov(max_rounds=3)])
def test_a_run_does_not_keep_the_product_of_its_opening(algorithm):
    """The state of the algorithm has what it needs of the product, which takes as much memory as a message."""
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((40, 12)) * np.arange(12, 0, -1) for _ in range(2)]
    held = []

    def look(run):
        if run.position.stage.name == algorithm.name:
            held.append(run.position.model.product is not None)

    simulate(algorithm, shards, n_components=2, on_round=look)
    assert len(held) >= 2
    assert not any(held)


@pytest.mark.parametrize("options", [[], ["--components", "3"]])
def test_check_says_the_memory_of_large_messages(options, tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(1)
    for site in ("jena", "trier"):
        np.save(tmp_path / f"{site}.npy", rng.standard_normal((30, 6)))
    words = ["check", str(tmp_path), *options]
    assert main(words) == 0
    assert "memory" not in capsys.readouterr().out
    monkeypatch.setattr(large, "BYTES", 8 * 6 * 4 - 1)
    assert main(words) == 0
    line = "memory in a deployment: A message takes 0 MB. For messages to 2 sites, the ServerApp needs about "
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.uint64])
def test_a_large_array_travels_in_pieces_and_keeps_its_bits(order, kind, monkeypatch):
    monkeypatch.setattr(large, "BYTES", 800)
    monkeypatch.setattr(pieces, "_SIZE", 999)
    block = np.asarray(np.random.default_rng(0).standard_normal((60, 7)) * 1e3, order=order).astype(kind)
    small, row = np.arange(3.0), block[:, ::2]
    content = RecordDict()
    pieces.put_in_pieces(content, "arrays", {"Y": block, "n": small, "part": row})
    assert [len(array.data) < 200 for array in content["arrays"].values()] == [True, True, True]
    read = wire.records.read_arrays_in_pieces(content, "arrays")
    again = wire.records.read_arrays_in_pieces(content, "arrays", release=True)
    for found in (read, again):
        for sent, came in zip((block, small, row), found, strict=True):
            assert came.dtype == sent.dtype
            assert came.tobytes() == sent.tobytes()
            assert came.flags.writeable
        assert found[0].flags.c_contiguous == block.flags.c_contiguous
    with pytest.raises(ProtocolError, match="could not be read"):  # What has been released is gone.
        wire.records.read_arrays_in_pieces(content, "arrays")


def _shorter(content):
    content.config_records["arrays.Y.1"]["bytes"] = content.config_records["arrays.Y.1"]["bytes"][:-8]


def _missing(content):
    del content.config_records["arrays.Y.0"]


def _text(content):
    content.config_records["arrays.Y.1"]["bytes"] = "x" * 1000


def _too_many(content):
    content.config_records["arrays.Y.4"] = ConfigRecord({"bytes": bytes(8)})


def _pickle(content):
    header = io.BytesIO()
    kind = {"descr": "|O", "fortran_order": False, "shape": (60, 7)}
    np.lib.format.write_array_header_1_0(header, kind)
    content["arrays"]["Y"] = FlowerArray("object", (60, 7), pieces.HEADER_ONLY, header.getvalue())


@pytest.mark.parametrize("change", [_shorter, _missing, _text, _too_many, _pickle])
def test_pieces_that_do_not_fit_their_header_are_refused(change, monkeypatch):
    monkeypatch.setattr(large, "BYTES", 1000)
    monkeypatch.setattr(pieces, "_SIZE", 1000)
    content = RecordDict()
    pieces.put_in_pieces(content, "arrays", {"Y": np.ones((60, 7))})
    change(content)
    with pytest.raises(ProtocolError, match="could not be read"):
        wire.records.read_arrays_in_pieces(content, "arrays")


@pytest.mark.parametrize("algorithm", ["SSI", "Krylov"])
def test_a_run_with_pieces_has_the_bits_of_a_run_without(algorithm, monkeypatch):
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((40, 30)) * np.arange(30, 0, -1) for _ in range(3)]

    def components():
        app = client_app(lambda context: shards[context.node_config["partition-id"]], allow=["ssi", "krylov"])
        grid = FakeGrid(app, 3)
        with in_a_run():
            return getattr(strategies, algorithm)(n_components=3, max_rounds=4).fit(grid), grid

    whole, _ = components()
    monkeypatch.setattr(large, "BYTES", 500)
    monkeypatch.setattr(pieces, "_SIZE", 300)
    in_pieces, grid = components()
    assert in_pieces.components_.tobytes() == whole.components_.tobytes()
    assert any(name.endswith(".0") for name in grid.sent[-1].content.config_records)


def test_a_reply_that_a_hook_reads_keeps_its_arrays(monkeypatch):
    monkeypatch.setattr(large, "BYTES", 500)
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((40, 30)) * np.arange(30, 0, -1) for _ in range(2)]
    seen = []

    class Looking(strategies.SSI):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            done = super().aggregate_train(server_round, replies)
            seen.extend(wire.read_reply(reply.content, "train").arrays for reply in replies)
            return done

    app = client_app(lambda context: shards[context.node_config["partition-id"]], allow=["ssi"])
    with in_a_run():
        Looking(n_components=3, max_rounds=4).fit(FakeGrid(app, 2))
    assert sum("Y" in arrays for arrays in seen) >= 2
