"""Test the track command and its picture."""

import numpy as np
import pytest

from flower_pca import STMiss, TrackingResult, cli, track
from flower_pca.plots.tracking import subspace_change
from sims.over_air import moving

pytestmark = pytest.mark.slow

R = 3
PROBLEM = moving.piecewise(n=40, r=R, d=480, change=240, rho=0.1, seed=2)


def test_the_command_prints_a_table_and_leaves_bases_and_picture(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", PROBLEM.Y)
    words = ["--batch", "60", "--components", "3", "--clients", "2", "--out", str(tmp_path / "out")]
    words += ["--algorithm", "st_miss(update_length=2)", "--detect", "--threshold", "0.5"]
    assert cli.main(["track", str(tmp_path / "rows.npy"), *words]) == 0
    printed = capsys.readouterr().out
    result = TrackingResult.load(tmp_path / "out/tracking.npz")
    reference = track(STMiss(update_length=2, detect=True, threshold=0.5), PROBLEM.batches(2), n_components=R)
    assert np.array_equal(result.components_, reference.components_)
    assert result.table() in printed
    assert "\nchange at step 4\n" in printed
    assert f"picture           {(tmp_path / 'out/tracking.png').resolve()}\n" in printed
    assert (tmp_path / "out/tracking.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("unillustrated")
def test_the_command_masks_if_it_is_told_to(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", PROBLEM.Y[:120])
    words = ["track", str(tmp_path / "rows.npy"), "--batch", "60", "--components", "3", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--clients", "2", "--mask"]) == 0
    result = TrackingResult.load(tmp_path / "out/tracking.npz")
    assert result.history[0].stage == "mask.keys"
    reference = track("st_miss", PROBLEM.batches(2), n_components=R, steps=2)
    assert np.abs(result.components_ - reference.components_).max() < 1e-8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.npy", "--batch", "6", "--components", "2"], "No file or folder named 'none.npy'"),
        (["{}", "--batch", "0", "--components", "2"], "--batch must be a whole number of at least 1"),
        (["{}", "--components", "2"], "Give --batch, the number of rows of a step"),
        (["{}", "--batch", "6", "--components", "99"], "Client 0 has only 40 columns, too few for --components "),
        (["{}", "--batch", "6", "--components", "2", "--clients", "7"], "--clients must be a whole number from 1 to"),
        (
            ["{}", "--batch", "6", "--components", "2", "--algorithm", "pca"],
            "There is no tracker named 'pca'. The trackers are st_miss and",
        ),
        (["{}", "--batch", "6", "--components", "2", "--mask"], "--mask needs at least 2 clients, but there is 1."),
        (
            ["no.npy", "--batch", "6", "--components", "2", "--clients", "2", "--mask", "yes"],
            "--mask must be True, False, a",
        ),
        (["{}", "--batch", "6", "--components", "2", "--out", "{}"], "is a file, so nothing can be written into it."),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line(words, message, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", PROBLEM.Y[:60])
    words = [w.format(tmp_path / "rows.npy") for w in words]
    assert cli.main(["track", "--out", str(tmp_path / "out"), *words]) == 2
    assert not (tmp_path / "out").exists()
    assert message in capsys.readouterr().err


def test_the_picture_shows_the_error_where_the_truth_is_known(tmp_path):
    result = track("st_miss(detect=True, update_length=2)", [PROBLEM.Y], n_components=R, batch=60)
    plain, true = (
        subspace_change(result, tmp_path / "a.png"),
        subspace_change(result, tmp_path / "b.png", truth=PROBLEM.truth),
    )
    assert plain.read_bytes().startswith(b"\x89PNG")
    assert true.read_bytes() != plain.read_bytes()
