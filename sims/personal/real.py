"""Personalized PCA on pictures, films and texts: Table 4, Table 5, video segmentation and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from flower_pca import DataError, PersonalResult, simulate
from sims.common import data, report
from sims.personal import methods, pictures
from sims.personal.problems import Array
from sims.personal.runs import fit

DRAWN: Final[dict[str, tuple[Callable[[int], pictures.Pictures], str]]] = {
    "textured tiles": (pictures.textured, ".20 .. .40 and .50 .. .54"),
    "textured discs": (pictures.discs, "-"),
    "flat icons": (pictures.icons, "AUC .88 .. .95 and .99"),
}
RANKS: Final = (4, 6)  # of drawn pictures, shared and own
CLIENTS, R1, R2 = 100, 20, 5
TRAIN: Final = (60, 120, 480)  # rows of a client to train on, the last with --paper; its last fifth is to test on
FILM: Final = (30, 5)  # of film frames
TOPICS: Final = (5, 2)
WORDS: Final = 8
MOVES: Final = 25.0  # grey levels from the film's median by which a pixel counts as moving


def table4(opts: report.Options) -> report.Table:
    """Background and foreground of drawn pictures."""
    rows: list[list[object]] = [
        ["pictures", "PerPCA error", "Robust PCA error", "ratio", "PerPCA AUC", "Robust PCA AUC", "expected"]
    ]
    for name, (draw, known) in DRAWN.items():
        found = []
        for seed in range(opts.seeds):
            report.progress(f"table4, {name}, seed {seed}")
            found.append(segmented(draw(seed), seed))
        e, robust_e, a, robust_a = np.mean(found, axis=0)
        cells = [f"{e:.3f}", f"{robust_e:.3f}", f"{e / robust_e:.2f}", f"{a:.3f}", f"{robust_a:.3f}", known]
        rows.append([name, *cells])
    note = "Error of the foreground, relative. PerPCA needs a foreground of low rank; Robust PCA one that is sparse."
    return f"Table 4: drawn pictures, r1={RANKS[0]}, r2={RANKS[1]} (the paper shows pictures only)", rows, note


def segmented(drawn: pictures.Pictures, seed: int) -> tuple[float, float, float, float]:
    """Foreground error of ExactPerPCA and of Robust PCA, and their AUC."""
    _, V = fit(f"exact_per_pca(local_components={RANKS[1]})", drawn.shards, RANKS[0], seed=seed + 500)
    own = np.stack([X @ v @ v.T for X, v in zip(drawn.shards, V, strict=True)])
    robust = methods.robust_pca(drawn.stacked).sparse.T.reshape(own.shape)
    errors = (pictures.foreground_error(drawn, found) for found in (own, robust))
    areas = (pictures.auc(drawn, found) for found in (own, robust))
    return (*errors, *areas)  # type: ignore[return-value]


def table5(opts: report.Options) -> report.Table:
    """Testing error on real pictures, dealt out by writer or by pairs of labels."""
    rows: list[list[object]] = [
        ["data", "clients", "rows", "ExactPerPCA", "indivPCA", "CPCA", "distPCA", "distPCA k=r1"]
    ]
    for name, shards in _sets(opts):
        report.progress(f"table5, {name}")
        for seed in range(opts.seeds):
            dealt = shards(seed)
            for n in TRAIN if opts.paper else TRAIN[:-1]:
                errors = (f"{e:.2f}" for e in tested(dealt, n, seed))
                rows.append([f"{name}, seed {seed}", len(dealt), n, *errors])
    note = "Paper: PerPCA below indivPCA on FEMNIST and CIFAR10; its figures are not at hand. --data takes those files."
    return f"Table 5: mean squared testing error after training on so many rows; r1={R1}, r2={R2}", rows, note


def tested(shards: list[Array], n: int, seed: int) -> list[float]:
    """Testing error: ExactPerPCA, indivPCA, CPCA, distPCA with k = r1 + r2, distPCA with k = r1."""
    last = [round(0.8 * len(X)) for X in shards]
    cut = [min(n, end) for end in last]
    train = [X[:count] for X, count in zip(shards, cut, strict=True)]
    test = [X[end:] for X, end in zip(shards, last, strict=True)]
    S = methods.covariances(train)
    bases = [
        methods.joined(*fit(f"exact_per_pca(local_components={R2}, tol=1e-4)", train, R1, seed=seed + 500)),
        methods.indiv_pca(S, R1 + R2),
        methods.cpca(S, cut, R1 + R2),
        methods.joined(*methods.dist_pca(S, R1, R2, R1 + R2)),
        methods.joined(*methods.dist_pca(S, R1, R2, R1)),
    ]
    return [float(methods.rebuilt(test, basis).mean()) for basis in bases]


def video(opts: report.Options) -> report.Table:
    """A still camera before a moving escalator: each frame a client, its rows the samples."""
    path = opts.data_dir / "escalator_video.npz"
    rows: list[list[object]] = [["method", "AUC", "share of the foreground's energy on moving pixels"]]
    if not path.is_file():
        raise DataError(f"video needs escalator_video.npz in {opts.data_dir}. Got none. Use --data-dir.")
    with np.load(path) as archive:
        frames = archive["frames"].astype(np.float64)[:: 1 if opts.paper else 5]
    report.progress(f"video, {len(frames)} frames")
    moving = np.abs(frames - np.median(frames, axis=0)) > MOVES
    _, V = fit(f"exact_per_pca(local_components={FILM[1]}, tol=1e-4)", list(frames), FILM[0], seed=500)
    own = np.stack([X @ v @ v.T for X, v in zip(frames, V, strict=True)])
    robust = methods.robust_pca(frames.reshape(len(frames), -1).T).sparse.T.reshape(frames.shape)
    drawn = pictures.Pictures(np.zeros(frames.shape[1:]), frames, moving)
    for name, found in (("ExactPerPCA", own), ("Robust PCA", robust)):
        share = float(np.sum(found[moving] ** 2) / np.sum(found**2))
        rows.append([name, f"{pictures.auc(drawn, found):.3f}", f"{share:.2f}"])
    still(opts, "personal_video", frames, {"ExactPerPCA": own, "Robust PCA": robust})
    note = f"Moving: more than {MOVES:g} grey levels from the median of all frames ({moving.mean():.0%} of the pixels)."
    return f"Video: {len(frames)} frames, r1={FILM[0]}, r2={FILM[1]} (the paper shows pictures only)", rows, note


def still(opts: report.Options, name: str, frames: Array, foregrounds: dict[str, Array]) -> None:
    """Draw one frame beside what each method calls its foreground."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        report.progress(f'{name}.png is not drawn: that needs matplotlib. Run: pip install "flower-pca[plot]"')
        return
    middle, figure = len(frames) // 2, Figure(figsize=(12.0, 3.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    shown = {"frame": frames[middle], **{method: np.abs(found[middle]) for method, found in foregrounds.items()}}
    for ax, (label, picture) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
        ax.imshow(picture, cmap="gray")
        ax.set_title(label if label == "frame" else f"|foreground|, {label}", fontsize=9)
        ax.set_axis_off()
    opts.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(opts.out / f"{name}.png")


def topics(opts: report.Options) -> report.Table:
    """Speeches of presidential candidates: an election year a client, words the features."""
    counts, meta = (opts.data_dir / f"debates_{part}.npz" for part in ("counts", "meta"))
    if not (counts.is_file() and meta.is_file()):
        raise DataError(f"topics needs debates_counts.npz and debates_meta.npz in {opts.data_dir}. Use --data-dir.")
    with np.load(meta) as archive:
        years, vocabulary = archive["year"], archive["vocab"]
    X = sparse.csr_array(sparse.load_npz(counts)).astype(np.float64)
    rare = np.log(X.shape[0] / np.maximum(np.bincount(X.indices, minlength=X.shape[1]), 1))
    X = sparse.csr_array(X.multiply(rare[None, :]))
    X = sparse.csr_array(X.multiply(1.0 / np.maximum(sparse.linalg.norm(X, axis=1), 1.0)[:, None]))
    named = np.unique(years)
    shards = [X[np.flatnonzero(years == year)] for year in named]
    run = f"exact_per_pca(local_components={TOPICS[1]})"
    result = simulate(run, shards, n_components=TOPICS[0], center=True, seed=500)
    assert isinstance(result, PersonalResult)
    rows: list[list[object]] = [["of", "component", "words with the largest weights"]]
    for j, component in enumerate(result.components_, start=1):
        rows.append(["all years", j, _words(component, vocabulary)])
    for i, year in enumerate(named):
        rows += [[year, j, _words(v, vocabulary)] for j, v in enumerate(result.own_components(i), start=1)]
    note = f"Counts times log(n / documents), rows of length 1, centred. theta {result.theta_:.2f}. {result.status}"
    return f"Topics: r1={TOPICS[0]}, r2={TOPICS[1]} (the paper: topics of each year, as words)", rows, note


def _words(component: Array, vocabulary: Array) -> str:
    return " ".join(map(str, vocabulary[np.argsort(-np.abs(component))[:WORDS]]))


def _sets(opts: report.Options) -> Iterator[tuple[str, Callable[[int], list[Array]]]]:
    """The user's npz files, or fashion_mnist."""
    sources = opts.data or tuple(str(p) for p in [opts.data_dir / "fashion_mnist.npz"] if p.is_file())
    if not sources:
        raise DataError(f"table5 needs fashion_mnist.npz in {opts.data_dir}, or --data. Got neither. Give a file.")
    for source in sources:
        path, key = data.located(source)
        with np.load(path) as archive:
            X = archive[key].reshape(len(archive[key]), -1)
            owner = archive["client"] if "client" in archive.files else None
            label = archive["y"] if "y" in archive.files else None
        yield path.stem, _dealer(path, X, owner, label)


def _dealer(path: Path, X: Array, owner: Any, label: Any) -> Callable[[int], list[Array]]:
    def deal(seed: int) -> list[Array]:
        rng = np.random.default_rng([31, seed])
        if owner is not None:  # by writer, as FEMNIST
            writers = rng.permutation(np.unique(owner))[:CLIENTS]
            pieces = [rng.permutation(np.flatnonzero(owner == w)) for w in writers]
        elif label is not None:  # by pairs of labels: two pieces of the rows sorted by label
            order = rng.permutation(len(X))
            cut = np.array_split(order[np.argsort(label[order], kind="stable")], 2 * CLIENTS)
            dealt = rng.permutation(2 * CLIENTS).reshape(CLIENTS, 2)
            pieces = [rng.permutation(np.concatenate([cut[a], cut[b]])) for a, b in dealt]
        else:
            raise DataError(f"{path} must have the array client, or y. Got neither. Add one of them.")
        return [X[rows].astype(np.float64) / 255.0 for rows in pieces]

    return deal
