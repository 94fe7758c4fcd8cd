"""People on an escalator, taken off their background frame by frame: `python -m sims.escalator`.

Frames of escalator_video.npz arrive in batches, dealt to cameras' recorders in turn; a row is a frame. RobustTracking
follows the background, and every client keeps, for itself, the completed background and the outliers: the people. A
tenth of the pixels is made missing. The start is the subspace of 40 frames by AltProj, which the paper uses too. The
clip is run backwards: it ends with few people, and a start has to be nearly free of outliers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from flower_pca import DataError, RobustTracking, Stream, TrackingResult, track
from sims.common import data, report
from sims.over_air import trackers
from sims.over_air.moving import Array

VIDEO: Final = "escalator_video.npz"
ALPHA: Final = 20
STEP: Final = {False: 2, True: 1}  # every second pixel in small size


def main(argv: Sequence[str] | None = None) -> None:
    """Separate, print, draw."""
    parser = argparse.ArgumentParser(description="Background and people of a video, over clients.")
    parser.add_argument("--video", type=Path, default=data.folder() / VIDEO, help="npz with frames (t, height, width)")
    parser.add_argument("--paper", action="store_true", help="every pixel instead of every second one")
    parser.add_argument("--components", type=int, default=3, help="columns of the background's basis (default: 3)")
    parser.add_argument("--smallest", type=float, default=40.0, help="smallest outlier in grey levels (default: 40)")
    parser.add_argument("--clients", type=int, default=2, help="clients that the frames are dealt to (default: 2)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for PNG and CSV (default: out)")
    given = parser.parse_args(argv)
    if not given.video.is_file():
        raise DataError(f"The video must be a file. Got none at {given.video}. Name another with --video.")
    with np.load(given.video) as file:
        frames = file["frames"][::-1, :: STEP[given.paper], :: STEP[given.paper]].astype(np.float64)
    result, streams, observed = separate(
        frames, rank=given.components, smallest=given.smallest, clients=given.clients, start=2 * ALPHA
    )
    background, people = collected(streams, given.clients, frames.shape)
    hidden = np.isnan(observed)
    truth, filled = frames[2 * ALPHA :][hidden], background[hidden]
    still = np.abs(truth - np.median(frames, axis=0)[None].repeat(len(hidden), 0)[hidden]) < 10.0
    error = float(np.sqrt(np.mean((truth - filled)[still] ** 2)))
    rows: list[list[object]] = [["step", "frames", "movement", "residual", "pixels taken out"]]
    for j in range(result.steps):
        share = result.outliers_[j] / (result.rows_[j] * frames[0].size)
        rows.append(
            [j, result.rows_[j], f"{result.subspace_change_[j]:.1e}", f"{result.residuals_[j]:.1e}", f"{share:.1%}"]
        )
    note = (
        f"Missing pixels of the still background are filled in with an error of {error:.1f} grey levels of 255 (rms)."
    )
    report.show(given.out, "escalator", report.Found("Escalator", rows, note))
    sheet(given.out / "escalator.png", observed, background, people)
    print(f"\nCSV and PNG are in {given.out}")


def separate(
    frames: Array, *, rank: int, smallest: float, clients: int, start: int
) -> tuple[TrackingResult, list[Stream], Array]:
    """Follow the background of the frames after `start` ones; streams hold what clients keep. Also what they saw."""
    flat = frames.reshape(len(frames), -1)
    P = trackers.alt_proj(flat[:start], r=rank, steps=5)
    observed = np.where(np.random.default_rng(0).random(flat[start:].shape) < 0.1, np.nan, flat[start:])
    cuts = range(0, len(observed), ALPHA)
    streams = [Stream([observed[s : s + ALPHA][k::clients] for s in cuts], keep=True) for k in range(clients)]
    tracker = RobustTracking(smallest_outlier=smallest, refine=True)
    result = track(tracker, streams, n_components=rank, init=P.T)
    return result, streams, observed.reshape(-1, *frames.shape[1:])


def collected(streams: list[Stream], clients: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Background and people in the order of the frames, from what the clients have kept."""
    parts: list[Array] = []
    for step in sorted(streams[0].completed):
        kept = [stream.completed[step] for stream in streams]
        pair = np.empty((2, sum(len(k.rows) for k in kept), kept[0].rows.shape[1]))
        for k, own in enumerate(kept):
            pair[0, k::clients], pair[1, k::clients] = own.rows, own.outliers
        parts.append(pair)
    whole = np.concatenate(parts, axis=1).reshape(2, -1, *shape[1:])
    return whole[0], whole[1]


def sheet(path: Path, observed: Array, background: Array, people: Array, *, shown: int = 8) -> None:
    """Frames as they came, their background, and the people, one column per frame."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        report.progress(f'{path.name} is not drawn: that needs matplotlib. Run: pip install "flower-pca[plot]"')
        return
    times = np.linspace(0, len(observed) - 1, shown).astype(int)
    figure = Figure(figsize=(1.7 * shown, 4.6), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, shown)
    looks = ((observed, "observed", 0, 255), (background, "background", 0, 255), (np.abs(people), "taken out", 0, 150))
    for row, (pictures, label, low, high) in zip(axes, looks, strict=True):
        for ax, t in zip(row, times, strict=True):
            ax.imshow(pictures[t], cmap="gray", vmin=low, vmax=high)
            ax.set(xticks=[], yticks=[])
            ax.set_title(f"{label}, frame {t}", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    report.command(main)
