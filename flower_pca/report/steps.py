"""The page of a run of steps: what was followed, where it changed, and the basis that the last step has left."""

from __future__ import annotations

from flower_pca.base import labels
from flower_pca.report import html
from flower_pca.results.steps import TrackingResult


def before(result: TrackingResult) -> list[str]:
    """Facts, and the changes in words."""
    history = result.history
    facts = {
        "steps": f"{result.totals_['steps']:,}",
        "rows": f"{result.totals_['rows']:,}",
        "features": f"{result.n_features_in_:,}",
        "components": f"{result.n_components_:,}",
        "clients": f"{max((record.answered for record in history), default=0):,}",
        "changes": f"{result.totals_['changed']:,}",
        "entries taken for outliers": f"{result.totals_['outliers']:,}",
        "rows with too many gaps": f"{result.totals_['deficient']:,}",
        "messages": f"{history.count:,}",
        "sent by clients": labels.size(history.bytes_up),
        "sent to clients": labels.size(history.bytes_down),
        "time": f"{history.seconds:.3g} s",
        "answers of a client": "seen in sums only" if result.asked.get("mask") else "seen by the server",
    }
    steps = ", ".join(map(str, result.changes_))
    said = f"A change was declared at {'step' if len(result.changes_) == 1 else 'steps'} {steps}." if steps else ""
    return [html.facts(facts), html.paragraph(said, "said") if said else ""]


def after(result: TrackingResult) -> list[str]:
    """The last basis, and a line for each step."""
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    size = result.values_[-1] / max(int(result.rows_[-1]), 1)
    basis = [
        [f"{j}", f"{v:.4g}", labels.in_words(weights, names)]
        for j, (v, weights) in enumerate(zip(size, result.components_[-1], strict=True), 1)
    ]
    changes = set(result.changes_.tolist())
    figures = zip(result.rows_, result.movement_, result.residuals_, result.outliers_, strict=True)
    rows = [
        [f"{j}", f"{n:,}", *_since(j, moved, left), f"{far:,}", "yes" if j in changes else ""]
        for j, (n, moved, left, far) in enumerate(figures, result.first_)
    ]
    return [
        html.table(
            "Basis of the last step", ["component", "mean square of a row", "largest weights"], basis, words=[2]
        ),
        html.table("Steps", ["step", "rows", "movement", "residual", "outliers", "change"], rows),
    ]


def _since(step: int, moved: float, left: float) -> list[str]:
    """How far a step is from the one before it; the first has none."""
    return [f"{moved:.1e}", f"{left:.1e}"] if step else ["", ""]
