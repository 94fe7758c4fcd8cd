"""Personalized PCA on pictures, films and texts: Table 4, Table 5, video segmentation and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from flower_pca import DataError, PersonalResult, simulate
from sims.common import data, report
from sims.personal import methods, pictures
from sims.personal.problems import Array
from sims.personal.runs import fit
from sims.personal.words import KEYWORDS, STOP_WORDS

DRAWN: Final[dict[str, Callable[[int], pictures.Pictures]]] = {
    "textured tiles": pictures.textured,
    "textured discs": pictures.discs,
    "flat icons": pictures.icons,
}
RANKS: Final = (4, 6)  # of drawn pictures, shared and own
CLIENTS, R1, R2 = 100, 20, 5
TRAIN: Final = (60, 120, 480)  # rows of a client to train on, the last with --paper; its last fifth is to test on
TABLE5_PAPER: Final = {  # indivPCA, CPCA, distPCA, PerPCA
    "FEMNIST": {"training": ("0.49", "1.72", "1.43", "1.44"), "testing": ("1.97", "1.73", "1.73", "1.70")},
    "CIFAR-10": {
        "training": ("105.68", "114.79", "113.56", "113.69"),
        "testing": ("120.79", "115.44", "115.43", "115.33"),
    },
}
FILM: Final = {False: (30, 5), True: (50, 50)}  # ranks for film frames, in small size and the paper's
FILM_RUNS: Final = {
    "PerPCA, choice 1": "per_pca(local_init='random', max_rounds=500, ",
    "PerPCA, choice 2": "per_pca(local_init='random', choice=2, max_rounds=500, ",
    "ExactPerPCA": "exact_per_pca(",
}
TOPICS: Final = (2, 2)
PERSONAL: Final = "per_pca(local_init='random', max_rounds=500, "  # its step grows, as the paper's does not
# rounds of PerPCA for Table 5: a tol of 1e-3 ends it after 20, far from the optimum
ROUNDS: Final = {False: 30, True: 1000}
_TOPICS: Final = "per_pca(local_components=2, local_init='random', max_rounds=20, tol=0.0"
TOPIC_RUNS: Final = {
    "PerPCA, 20 rounds": f"{_TOPICS})",
    "PerPCA, step 0.5, 20 rounds": f"{_TOPICS}, step=0.5)",
    "PerPCA, step 10, 20 rounds": f"{_TOPICS}, step=10.0)",
    "PerPCA, choice 2, step 10, 20 rounds": f"{_TOPICS}, choice=2, step=10.0)",
    "ExactPerPCA": "exact_per_pca(local_components=2)",
}
LARGEST: Final = 20  # words of a component that count
MOVES: Final = 25.0  # grey levels from the film's median by which a pixel counts as moving


def table4(opts: report.Options) -> report.Found:
    """Background and foreground of drawn pictures."""
    shown = ("PerPCA", "ExactPerPCA", "Robust PCA")
    heads = [f"{method} {what}" for what in ("error", "AUC") for method in shown]
    rows: list[list[object]] = [["pictures", *heads]]
    for name, draw in DRAWN.items():
        found = []
        for seed in opts.each():
            report.progress(f"table4, {name}, seed {seed}")
            found.append(segmented(draw(seed), seed))
        rows.append([name, *(f"{value:.3f}" for value in np.mean(found, axis=0))])
    note = "Error of the foreground, relative. PerPCA needs a foreground of low rank; Robust PCA one that is sparse."
    return report.Found(
        f"Table 4: drawn pictures, r1={RANKS[0]}, r2={RANKS[1]} (the paper shows pictures only)", rows, note
    )


def segmented(drawn: pictures.Pictures, seed: int) -> list[float]:
    """Foreground errors of PerPCA, ExactPerPCA and Robust PCA, and then their AUC."""
    parts = []
    for algorithm in (f"{PERSONAL}local_components={RANKS[1]})", f"exact_per_pca(local_components={RANKS[1]})"):
        _, V = fit(algorithm, drawn.shards, RANKS[0], seed=seed + 500)
        parts.append(np.stack([X @ v @ v.T for X, v in zip(drawn.shards, V, strict=True)]))
    parts.append(methods.robust_pca(drawn.stacked).sparse.T.reshape(parts[0].shape))
    errors = [pictures.foreground_error(drawn, part) for part in parts]
    return [*errors, *(pictures.auc(drawn, part) for part in parts)]


def table5(opts: report.Options) -> report.Found:
    """Training and testing error on real pictures, dealt out by writer or by pairs of labels."""
    rows: list[list[object]] = [
        ["data", "error of", "rows", "indivPCA", "CPCA", "distPCA", "distPCA k=r1", "PerPCA", "ExactPerPCA"]
    ]
    for data_set, kinds in TABLE5_PAPER.items():
        for kind, (indiv, pooled, dist, personal) in kinds.items():
            rows.append([f"{data_set}, paper", kind, "-", indiv, pooled, dist, "-", personal, "-"])
    for name, shards in _sets(opts):
        for n in TRAIN if opts.paper else TRAIN[:-1]:
            run = partial(_dealt, shards, n, ROUNDS[opts.paper])
            found = [opts.once(f"table5, {name}, {n} rows, seed {s}", partial(run, s)) for s in opts.each()]
            for kind, errors in zip(("training", "testing"), np.swapaxes(found, 0, 1), strict=True):
                rows.append([name, kind, n, *(report.mean_std(column, "{:.2f}".format) for column in errors.T)])
    note = f"Mean squared error (and deviation) of {opts.seeds} seed(s). --data takes FEMNIST by writer and CIFAR-10."
    return report.Found(f"Table 5: pictures, r1={R1}, r2={R2}", rows, note, stated=opts.seeds > 1)


def fitted(shards: list[Array], n: int, seed: int, *, rounds: int) -> tuple[list[float], list[float]]:
    """Training and testing error of indivPCA, CPCA, distPCA with k = r1 + r2 and with r1, PerPCA and ExactPerPCA."""
    last = [round(0.8 * len(X)) for X in shards]
    cut = [min(n, end) for end in last]
    train = [X[:count] for X, count in zip(shards, cut, strict=True)]
    test = [X[end:] for X, end in zip(shards, last, strict=True)]
    S = methods.covariances(train)
    per_pca = f"per_pca(local_components={R2}, local_init='random', max_rounds={rounds}, tol=1e-5)"
    bases = [
        methods.indiv_pca(S, R1 + R2),
        methods.cpca(S, cut, R1 + R2),
        methods.joined(*methods.dist_pca(S, R1, R2, R1 + R2)),
        methods.joined(*methods.dist_pca(S, R1, R2, R1)),
        methods.joined(*fit(per_pca, train, R1, seed=seed + 500)),
        methods.joined(*fit(f"exact_per_pca(local_components={R2}, tol=1e-3)", train, R1, seed=seed + 500)),
    ]
    training, testing = ([float(methods.rebuilt(rows, basis).mean()) for basis in bases] for rows in (train, test))
    return training, testing


def _dealt(deal: Callable[[int], list[Array]], n: int, rounds: int, seed: int) -> tuple[list[float], list[float]]:
    """The same of rows dealt by the seed."""
    return fitted(deal(seed), n, seed, rounds=rounds)


def video(opts: report.Options) -> report.Found:
    """A still camera before a moving escalator: each frame a client, its rows the samples."""
    path = opts.data_dir / "escalator_video.npz"
    rows: list[list[object]] = [["method", "AUC", "share of the foreground's energy on moving pixels"]]
    if not path.is_file():
        raise DataError(f"video needs escalator_video.npz in {opts.data_dir}. Got none. Use --data-dir.")
    with np.load(path) as archive:
        frames = archive["frames"].astype(np.float64)[:: 1 if opts.paper else 5]
    r1, r2 = FILM[opts.paper]
    report.progress(f"video, {len(frames)} frames")
    moving = np.abs(frames - np.median(frames, axis=0)) > MOVES
    parts = {}
    for name, algorithm in FILM_RUNS.items():
        _, V = fit(f"{algorithm}local_components={r2}, tol=1e-4)", list(frames), r1, seed=opts.one() + 500)
        parts[name] = np.stack([X @ v @ v.T for X, v in zip(frames, V, strict=True)])
    robust = methods.robust_pca(frames.reshape(len(frames), -1).T).sparse.T.reshape(frames.shape)
    drawn = pictures.Pictures(np.zeros(frames.shape[1:]), frames, moving)
    for name, found in {**parts, "Robust PCA": robust}.items():
        share = float(np.sum(found[moving] ** 2) / np.sum(found**2))
        rows.append([name, f"{pictures.auc(drawn, found):.3f}", f"{share:.2f}"])
    still(opts, "personal_video", frames, {**parts, "Robust PCA": robust})
    note = f"Moving: more than {MOVES:g} grey levels from the median of all frames ({moving.mean():.0%} of the pixels)."
    return report.Found(f"Video: {len(frames)} frames, r1={r1}, r2={r2} (the paper shows pictures only)", rows, note)


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


def topics(opts: report.Options) -> report.Found:
    """Speeches of presidential candidates: an election year a client, counts of words the features."""
    counts, meta = (opts.data_dir / f"debates_{part}.npz" for part in ("counts", "meta"))
    if not (counts.is_file() and meta.is_file()):
        raise DataError(f"topics needs debates_counts.npz and debates_meta.npz in {opts.data_dir}. Use --data-dir.")
    with np.load(meta) as archive:
        years, vocabulary = archive["year"], archive["vocab"]
    X = sparse.csr_array(sparse.load_npz(counts)).astype(np.float64)
    kept = np.array([_plain(str(word)) not in STOP_WORDS for word in vocabulary])
    X, vocabulary = sparse.csr_array(X[:, np.flatnonzero(kept)]), vocabulary[kept]
    named = np.unique(years)
    shards = [X[np.flatnonzero(years == year)] for year in named]
    known = set(map(str, vocabulary))
    there = [[word for word in KEYWORDS[int(float(year))] if word in known] for year in named]
    rows: list[list[object]] = [["run", "year", "of the paper's words", "found", "words with the largest weights"]]
    for label, algorithm in TOPIC_RUNS.items():
        run = partial(_topics, algorithm, shards, there, vocabulary)
        results = [opts.once(f"topics: {label}, seed {seed}", partial(run, seed)) for seed in opts.each()]
        counts_found = np.array([[len(words) for words in found] for found, _ in results])
        for i, year in enumerate(named):
            shown = " ".join(results[0][0][i]) if label == "ExactPerPCA" else report.NONE
            rows.append([label, int(float(year)), len(there[i]), report.span(counts_found[:, i].tolist()), shown])
        total = report.span(counts_found.sum(axis=1).tolist())
        theta = report.span(sorted(theta for _, theta in results), "{:.2f}".format)
        rows.append([label, "all", sum(map(len, there)), total, f"theta {theta}"])
    note = (
        f"Found: how many of the paper's words that this corpus has are among the {LARGEST} largest of one of the two "
        "own components of the year, the least..the most of the starts. Words are those of the first. Counts, not "
        "centred; stop words left out, contractions too."
    )
    return report.Found(f"Table 7: topics, r1={TOPICS[0]}, r2={TOPICS[1]}", rows, note, stated=opts.seeds > 1)


def _topics(
    algorithm: str, shards: Sequence[Any], there: Sequence[Sequence[str]], vocabulary: Array, seed: int
) -> tuple[list[list[str]], float]:
    """Of each year, which of the paper's words are large in its own components; and theta."""
    report.ran(algorithm)
    result = simulate(algorithm, list(shards), n_components=TOPICS[0], seed=seed + 500, center=False)
    assert isinstance(result, PersonalResult)
    found = []
    for i, words in enumerate(there):
        own = {word for v in result.local_components_of(i) for word in _largest(v, vocabulary, LARGEST)}
        found.append([word for word in words if word in own])
    return found, float(result.theta_)


def _plain(word: str) -> str:
    """Without its apostrophe: it's and its are one stop word."""
    return word.replace("'", "").replace("\u2019", "")


def _largest(component: Array, vocabulary: Array, count: int) -> list[str]:
    return list(map(str, vocabulary[np.argsort(-np.abs(component))[:count]]))


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
