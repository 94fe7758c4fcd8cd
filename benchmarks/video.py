"""Videos by consensus_rpca with its defaults over eight clients, against IALM on all frames: times and foregrounds.

`python -m benchmarks.video FOLDER [SEED]`: the folder holds escalator_video.npz. The other is drawn, as a camera before
water sees it: a background under moving light, waves that are correlated in place and time, and somebody who walks
through the last third. Times are processor times; AUC is of sizes of far entries, where who walks is known.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks import table
from flower_pca import RobustResult, simulate
from flower_pca.base.linalg import Array
from sims.robust.pooled import ialm

CLIENTS, RANK, SHAPE, FRAMES = 8, 2, (64, 80), 120


def water(seed: int) -> tuple[Array, Array]:
    """Frames as rows, and where somebody is."""
    rng = np.random.default_rng([77, seed])
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    t = np.arange(FRAMES)[:, None, None]
    background = 0.5 + 0.2 * np.sin(x / 17.0 + 1.0) * np.cos(y / 11.0)
    frames = background * (1.0 + 0.1 * np.sin(t / 19.0))
    for _ in range(40):
        kx, ky, speed, phase = rng.normal(0.0, 0.35), rng.normal(0.0, 0.8), rng.uniform(0.2, 0.9), rng.uniform(0.0, 6.3)
        frames = frames + 0.012 * np.sin(kx * x + ky * y + speed * t + phase) * (y > SHAPE[0] // 3)
    far = np.zeros(frames.shape, dtype=bool)
    for i in range(2 * FRAMES // 3, FRAMES):
        left = min((i - 2 * FRAMES // 3) * 2, SHAPE[1] // 2)
        far[i, 15:55, left : left + 12] = True
    frames = np.where(far, 0.15 + 0.05 * rng.random(frames.shape), frames) + 0.005 * rng.standard_normal(frames.shape)
    return frames.reshape(FRAMES, -1), far.reshape(FRAMES, -1)


def auc(sizes: Array, far: Array) -> float:
    """How likely a far entry is larger than another one."""
    order = np.argsort(sizes, axis=None, kind="stable")
    ranks = np.empty(sizes.size)
    ranks[order] = np.arange(1, sizes.size + 1)
    positive = far.ravel()
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (sizes.size - count)))


def row(name: str, X: Array, far: Array | None) -> list[object]:
    """Both ways once."""
    began = process_time()
    result = simulate("consensus_rpca", np.array_split(X, CLIENTS), n_components=RANK)
    ours, began = process_time() - began, process_time()
    _, sparse = deque(ialm(X), maxlen=1)[0]
    theirs = process_time() - began
    assert isinstance(result, RobustResult)
    low = np.vstack([result.local[i]["L"] for i in range(CLIENTS)])
    found = np.vstack([result.local[i]["S"] for i in range(CLIENTS)])
    cells: list[object] = [name, result.status.outcome.value, len(result.history), f"{ours:.1f}", f"{theirs:.1f}"]
    cells += [f"{ours / theirs:.2f}", f"{np.mean(found != 0.0):.1%}"]
    if far is None:
        return [*cells, "", ""]
    return [*cells, f"{auc(np.abs(X - low), far):.4f}", f"{auc(np.abs(sparse), far):.4f}"]


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with np.load(Path(sys.argv[1]) / "escalator_video.npz") as archive:
        frames = archive["frames"].reshape(len(archive["frames"]), -1) / 255.0
    rows = [row("water", *water(seed)), row("escalator", frames, None)]
    rows += [row("escalator, single precision", frames.astype(np.float32), None)]
    heads = ["video", "status", "messages", "seconds", "IALM's", "ratio", "far entries", "AUC", "IALM's AUC"]
    print(table(heads, rows))
