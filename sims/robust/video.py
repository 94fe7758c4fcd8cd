"""A camera above an escalator: the background as the low-rank part, people as the sparse one, over eight clients."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

from flower_pca import DataError, simulate
from sims.common import data, report
from sims.robust import pooled
from sims.robust.pooled import Array

SOURCE: Final = "escalator_video"
ALGORITHM: Final = "consensus_rpca(noise=0.02, tol=1e-3)"
CLIENTS, RANK = 8, 2
NOISE: Final = 0.02  # of the range of a pixel
SHOWN: Final = 5  # frames on the contact sheet


def video(opts: report.Options) -> report.Found:
    """Frames over eight clients, against IALM on all of them; and a contact sheet."""
    path = opts.data_dir / f"{SOURCE}.npz"
    if not path.is_file():
        raise DataError(f"no {SOURCE}.npz in {opts.data_dir}. Use --data-dir.")
    with np.load(path) as archive:
        frames = archive["frames"]
    shape = frames.shape[1:]
    X = data.read(f"{path}:frames") / 255.0
    report.progress(f"video: {ALGORITHM} on {X.shape[0]} frames of {shape[0]} x {shape[1]}")
    begun = perf_counter()
    result = simulate(ALGORITHM, np.array_split(X, CLIENTS), n_components=RANK)
    ours = perf_counter() - begun
    L, S = (np.vstack([result.local[i][name] for i in range(CLIENTS)]) for name in ("L", "S"))
    report.progress("video: IALM")
    begun = perf_counter()
    iterates = deque(enumerate(pooled.ialm(X), start=1), maxlen=1)
    theirs = perf_counter() - begun
    count, (low, sparse) = iterates[0]
    rows: list[list[object]] = [["method", "rank", "far entries", "background apart", "rounds", "seconds", "ratio"]]
    rows.append(
        [
            f"consensus, {CLIENTS} clients",
            RANK,
            f"{_far(S):.1%}",
            report.NONE,
            result.rounds,
            f"{ours:.1f}",
            f"{ours / theirs:.2f}",
        ]
    )
    apart = np.linalg.norm(L - low) / np.linalg.norm(low)
    rank = int(np.linalg.matrix_rank(low, tol=1e-6 * np.linalg.norm(low, 2)))
    rows.append(["IALM, pooled", rank, f"{_far(sparse):.1%}", f"{apart:.3f}", count, f"{theirs:.1f}", "1"])
    note = f"Far: by more than {NOISE:g} of the range of a pixel. Apart: ||L - L_IALM|| / ||L_IALM||."
    _sheet(opts.out, [("frame", X), ("background", L), ("people", np.abs(S)), ("people, IALM", np.abs(sparse))], shape)
    return report.Found("Escalator: background and people", rows, note)


def _far(S: Array) -> float:
    return float(np.mean(np.abs(S) > NOISE))


def _sheet(out: Path, parts: list[tuple[str, Array]], shape: tuple[int, int]) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        report.progress('The contact sheet is not drawn: that needs matplotlib. Run: pip install "flower-pca[plot]"')
        return
    figure = Figure(figsize=(2.2 * SHOWN, 1.9 * len(parts)), dpi=110, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(parts), SHOWN)
    for row, (title, rows) in zip(axes, parts, strict=True):
        top = 1.0 if rows.min() < 0.0 or title in ("frame", "background") else 0.6
        for ax, i in zip(row, np.linspace(0, len(rows) - 1, SHOWN).astype(int), strict=True):
            ax.imshow(rows[i].reshape(shape), cmap="gray", vmin=0.0, vmax=top)
            ax.set_title(f"{title} {i}", fontsize=8)
            ax.set_axis_off()
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "robust_video.png")
