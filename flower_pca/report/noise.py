"""What the page of a run with a privacy budget says: noise against signal in words, and shares as bounds."""

from __future__ import annotations

import numpy as np

from flower_pca.analysis.noise import Certainty
from flower_pca.base import labels
from flower_pca.core.result import PCAResult
from flower_pca.report import html


def words(result: PCAResult, known: Certainty) -> str:
    """Which components stand out of the noise."""
    clear = [j for j, times in enumerate(known.signal, 1) if times > 1.0]
    rest = [j for j in range(1, len(known.signal) + 1) if j not in clear]
    said = [
        f"There is noise on what the server has seen. Alone it can give a component a variance of {known.floor:.2g}."
    ]
    if clear:
        times = _listed([_number(known.signal[j - 1]) for j in clear])
        said.append(f"{_components(clear)} {'has' if len(clear) == 1 else 'have'} {times} times as much.")
    if rest:
        said.append(f"{_components(rest)} cannot be told from noise.")
    said.append("So shares of the variance are said as bounds; the number of rows has noise on it as well.")
    return html.paragraph(" ".join(said), "said")


def facts(result: PCAResult, known: Certainty) -> dict[str, str]:
    """The budget, and what is left to say of the variance."""
    spent = result.privacy
    assert spent is not None
    return {
        "variance explained": bounds(known.together[-1]),
        "privacy: epsilon, delta": f"{spent.epsilon:.4g}, {spent.delta:g}",
        "deviation of the noise": f"{spent.noise:.4g}",
        "noise is added": "in shares" if spent.shared else "by each client",
    }


def components(result: PCAResult, known: Certainty) -> str:
    """The components, with bounds on their shares in place of shares."""
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    head = ["component", "variance", "of that, noise up to", "share", "together", "largest weights"]
    rows = [
        [f"{j + 1}", f"{v:.3g}", f"{min(known.floor / v, 1.0):.0%}" if v > 0.0 else "100%", bounds(each), bounds(first)]
        for j, (v, each, first) in enumerate(zip(result.explained_variance_, known.shares, known.together, strict=True))
    ]
    weights = [labels.in_words(row, names) for row in result.components_]
    lines = [[*row, words] for row, words in zip(rows, weights, strict=True)]
    return html.table("Components", head, lines, words=[len(head) - 1])


def bounds(share: np.ndarray) -> str:
    """A share that is known within bounds."""
    low, high = (round(100.0 * float(end)) for end in share)
    if low == 0 and high == 100:
        return "unknown"
    return f"about {low}%" if low == high else f"{low}% to {high}%"


def _components(numbers: list[int]) -> str:
    return f"Component {numbers[0]}" if len(numbers) == 1 else f"Components {_listed([str(j) for j in numbers])}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10.0 else f"{ratio:.1f}"
