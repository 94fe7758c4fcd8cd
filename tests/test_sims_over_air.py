"""The over-air simulations at tiny size: generators, a start under outliers, what is printed, and real video."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pages import table

from sims import escalator
from sims.over_air import experiments as over_air
from sims.over_air import moving, trackers

pytestmark = pytest.mark.slow


def test_generators_make_what_they_say():
    p = moving.piecewise(n=50, r=3, d=240, change=120, rho=0.25, seed=1)
    assert np.isnan(p.Y).mean() == pytest.approx(0.25, abs=0.02)
    seen = ~np.isnan(p.Y)
    assert np.array_equal(p.Y[seen], p.L[seen])
    for j in range(4):
        rows = p.L[60 * j : 60 * j + 60]
        assert np.abs(rows - rows @ p.truth[j].T @ p.truth[j]).max() < 1e-10
    assert moving.se(p.truth[1].T, p.truth[2].T) > 0.5
    largest = np.abs(p.L @ p.truth[0].T)[:120].max(axis=0)
    assert (largest < [10.0, 7.5, 5.0]).all()
    assert (largest > [9.5, 7.0, 4.7]).all()
    c = moving.corrupted(p, seed=1, moving=5)
    assert ((c.Y - p.L)[c.outliers] >= 15.0).all()
    assert np.array_equal(np.unique(c.outliers[:10].any(axis=0).nonzero()[0]), np.arange(5))
    assert np.isnan(moving.block_missing(p, width=7).Y[60:120, 7:14]).all()
    assert moving.se(moving.is_within_cut(p.truth[0].T, 0.1, 0), p.truth[0].T) == pytest.approx(0.1, rel=1e-10)
    q = moving.rotating(n=50, r=3, d=240, rho=0.1, seed=1)
    steps = [moving.se(a.T, b.T) for a, b in zip(q.truth, q.truth[1:], strict=False)]
    assert 0.01 < min(steps) <= max(steps) < 0.1
    X, U = moving.low_rank(n=60, r=4, s=2.0, seed=0)
    np.testing.assert_allclose(np.linalg.svd(X, compute_uv=False)[:6], [2, 2, 2, 2, 1, 0], atol=1e-12)
    assert np.linalg.norm(X @ U, 2) == pytest.approx(2.0)


def test_alternating_projections_start_under_outliers():
    for seed in range(2):
        clean = moving.piecewise(n=120, r=3, d=240, change=240, rho=0.1, seed=seed)
        problem = moving.corrupted(clean, seed=seed)
        assert moving.se(trackers.alt_proj(problem.Y, r=3), clean.truth[0].T) < 1e-6
        zeros = np.linalg.svd(np.nan_to_num(problem.Y), full_matrices=False)[2][:3].T
        assert moving.se(zeros, clean.truth[0].T) > 0.9


def test_the_figures_come_out(tmp_path, capsys, monkeypatch):
    tiny = replace(over_air.SMALL, n=80, r=3, r_fed=3, d=720, change=360, update=4)
    monkeypatch.setattr(over_air, "SMALL", tiny)
    only = "fig1b,stall,fig2a,fig2b,fig3a,fig4b,robust,detect"
    over_air.main(["--out", str(tmp_path), "--only", only])
    printed = capsys.readouterr().out
    assert "Paper: NORST and NoDet far below simple PCA" in printed
    assert "xpected" not in printed
    fig1 = {row["method"]: row for row in table(tmp_path / "over_air_fig1b.csv")}
    assert float(fig1["NoDet"]["b5"]) < 1e-2 < float(fig1["simple PCA"]["b5"])
    stall = {row["method"]: row for row in table(tmp_path / "over_air_stall.csv")}
    assert float(stall["NoDet"]["b10"]) < float(stall["NORST"]["b10"]) / 2
    ends = [float(row["b5"]) for row in table(tmp_path / "over_air_fig2b.csv")]
    assert ends == sorted(ends)
    noise = [float(row["b5"]) for row in table(tmp_path / "over_air_fig2a.csv")]
    assert noise[0] > noise[1] >= noise[3]
    fig4 = {row["case"]: row for row in table(tmp_path / "over_air_fig4b.csv")}
    assert 0.8 < float(fig4["s=1.1, sigma=1e-08, eta=1"]["end / floor"]) < 1.2
    assert float(fig4["s=3.3, sigma=1e-08, eta=1"]["end"]) < float(fig4["s=1.1, sigma=1e-08, eta=1"]["end"])
    assert next(row["wrong"] for row in table(tmp_path / "over_air_robust.csv")) == "0"
    assert {row["declared at, by seed"] for row in table(tmp_path / "over_air_detect.csv")} == {"[6]"}
    for name in ("fig1b", "fig2a", "fig2b", "fig3a", "fig4b"):
        assert (tmp_path / f"over_air_{name}_curves.png").read_bytes().startswith(b"\x89PNG")


def scene(tmp_path):
    """A striped wall that brightens, and a dark box that walks across it."""
    wall = 120 + 60 * np.sin(np.arange(32))[None, :] * np.ones((24, 1))
    frames = wall + 10 * np.sin(np.arange(120) / 9)[:, None, None] * np.linspace(0, 1, 24)[:, None]
    box = np.zeros(frames.shape, dtype=bool)
    for t in range(80):
        box[t, 4:12, t // 4 : t // 4 + 6] = True
    path = tmp_path / "video.npz"
    np.savez(path, frames=np.where(box, 20, frames).round().astype(np.uint8))
    return path, frames[::-1], box[::-1]


def test_a_box_is_taken_off_its_wall(tmp_path, capsys):
    path, frames, box = scene(tmp_path)
    with np.load(path) as file:
        shown = file["frames"][::-1].astype(float)
    _, streams, _ = escalator.separate(shown, rank=2, smallest=30.0, clients=2, start=40)
    background, people = escalator.collected(streams, 2, shown.shape)
    assert np.abs(background - frames[40:]).max() < 5.0
    found = np.abs(people) > 15.0
    assert (found & box[40:]).sum() > 0.8 * (box[40:] & (np.abs(frames[40:] - 20) > 30)).sum()
    assert (found & ~box[40:]).sum() == 0
    escalator.main(["--video", str(path), "--out", str(tmp_path), "--paper", "--components", "2", "--smallest", "30"])
    assert "pixels taken out" in capsys.readouterr().out
    assert (tmp_path / "escalator.png").read_bytes().startswith(b"\x89PNG")


def test_the_real_video_is_read_if_present(tmp_path, capsys, papers_data):
    escalator.main(["--video", str(papers_data("escalator_video")), "--out", str(tmp_path)])
    rows = table(tmp_path / "escalator.csv")
    assert [row["frames"] for row in rows] == ["20"] * 8
    assert float(rows[0]["pixels taken out"][:-1]) < float(rows[6]["pixels taken out"][:-1])  # the hall fills
    error = float(capsys.readouterr().out.split("error of ")[1].split()[0])
    assert error < 8.0
