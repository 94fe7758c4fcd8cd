"""`TrackingResult`: the result of a run over steps."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from flower_pca.base import checks, files, labels, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import History, Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.results import drawn, facts, saved
from flower_pca.results.facts import Fact, Listing, Summary
from flower_pca.results.left_out import LeftOut, plain_left_out
from flower_pca.results.matching import arrange
from flower_pca.rows import gaps
from flower_pca.tracking import panel
from flower_pca.tracking.columns import NAMED

Cause: TypeAlias = dict[str, list[Any]]  # "reasons", "columns" and "sites"

_REASONS: Final = {
    "SPE": "SPE, because rows have left the subspace",
    "column": "a column whose spread has changed",
    "T2": "T2, because the spread of rows within the subspace has changed",
}
_ARRAYS = ("components_", "values_", "rows_", "residuals_", "deficient_", "outliers_", "missing_", "changes_")
_HEADER = ("statistics_", "levels_", "first_", "totals_", "algorithm", "seed", "causes_")
# A component is a single column if this column has at least this share of its squares.
_ALONE: Final = 0.98
_OUTWEIGHS: Final = 10.0  # A component outweighs the next one if its value is so many times larger.
_MANY: Final = 1e6  # Above this ratio, rounding hides the exact number.
_NEWEST: Final = 20  # newest steps that are looked at
_LEAST: Final = 3
# If a level is so many times the usual statistic, it only catches sudden jumps.
_UNSTEADY: Final = 100.0
# A direction stands out if it has so many times the largest value that noise alone would have.
_STANDS_OUT: Final = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackingResult:
    """The subspace after each step, and the figures of each step.

    Attributes
    ----------
    components_ : ndarray of shape (steps, r, d)
        The basis of each step as rows, orthonormal, largest value first, with fixed signs.
    values_ : ndarray of shape (steps, r)
        Eigenvalues of the sum of l l' over the completed rows l of the step. They are zero if the step had fewer rows
        than components, and so left the basis unchanged.
    rows_ : ndarray of shape (steps,)
        Rows of the step at all clients together.
    residuals_ : ndarray of shape (steps,)
        How badly the basis of the previous step fits: the norm of the residual at observed entries that are no
        outliers, relative to the norm of all observed entries. 1 in a first step without a basis.
    deficient_ : ndarray of shape (steps,)
        Number of rows with fewer independent observed entries than components. Their completion is the one of minimum
        norm.
    outliers_ : ndarray of shape (steps,)
        Number of entries that count as outliers.
    missing_ : ndarray of shape (steps,)
        Number of missing entries.
    changes_ : ndarray
        Kept steps at which a change was declared.
    statistics_ : dict
        The test statistic of a change, by step, where it is known: the largest eigenvalue of the completed rows outside
        the previous basis, divided by the number of rows. If the level is learnt from the stream, it is the smallest of
        four such values, see `tracking.change`.
    levels_ : dict
        The alarm level, by step, for the steps that were tested for a change.
    causes_ : mapping
        With `monitor`, for each change its "reasons", the numbers of the "columns", and the "sites" if single clients
        are seen. Reasons are "SPE" if rows have left the subspace, "column" if a column has another spread than before,
        and "T2" if a direction has. {} without `monitor`.
    first_ : int
        The number of the first step that is kept. Only the newest steps are kept, at most the `keep` of the tracker,
        but steps are numbered from the very first one.
    totals_ : dict
        Totals over all steps, kept or not: "steps", "rows", "deficient", "outliers", and "changed" for changes.
    status : Status
        Why the run ended, with doubts about the result, such as a column that is a component by itself.
    history : History
        What happened in each of the newest thousand messages, and totals of the messages before.
    algorithm : str
        The tracker's spec string.
    seed : int
        The seed of the run.
    config : mapping
        The configuration of the run, as plain values.
    feature_names_in_ : ndarray of shape (d,) or None
        Names of the columns, in order. None if columns are matched by position.
    feature_digest : str
        SHA-256 of the sorted names, if clients keep the names to themselves. "" if columns have no names.
    site_names : mapping
        Names of the contributing clients by key. Clients without a name are not in it.
    left_out : mapping
        Clients whose rows are not in the result, by key, each with its `name` and `why`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import track
    >>> rng = np.random.default_rng(0)
    >>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = track("st_miss", streams, batch=30, n_components=2)
    >>> result.components_.shape, result.rows_.tolist()
    ((3, 2, 6), [90, 90, 90])
    """

    components_: Array
    values_: Array
    rows_: Array
    residuals_: Array
    deficient_: Array
    outliers_: Array
    missing_: Array
    changes_: Array
    statistics_: dict[int, float]
    levels_: dict[int, float]
    first_: int
    totals_: dict[str, int]
    status: Status
    history: History
    algorithm: str
    seed: int
    config: Mapping[str, Any] = field(default_factory=dict)
    feature_names_in_: Array | None = None
    feature_digest: str = ""
    site_names: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    causes_: Mapping[int, Cause] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, *, algorithm: str, history: History, config: Mapping[str, Any]) -> TrackingResult:
        """Return the result of a finished model, from the figures that its tracker has left for all steps."""
        left, names = model.left, labels.array_of(model.feature_names)
        first = int(left["gone"])
        status = model.status or Status(Outcome.DONE, "the run goes on")
        shown = labels.column_names(names, len(left["bases"][-1]))
        advice = [*_stuck(left, shown), *_narrow(left), *_of_watch(left), *_of_season(left)]
        return cls(
            components_=np.stack([np.ascontiguousarray(linalg.fix_signs(P).T) for P in left["bases"]]),
            **{f"{name}_": left[name] for name in ("values", "rows", "deficient", "outliers", "missing")},  # type: ignore[arg-type]
            residuals_=left["residual"],
            changes_=first + np.flatnonzero(left["changed"]),
            statistics_=_by_step(left["statistic"], first),
            levels_=_by_step(left["level"], first),
            first_=first,
            totals_={"steps": first + len(left["bases"]), **_totals(left)},
            status=replace(status, words="; ".join((status.words, *advice))),
            history=history,
            algorithm=algorithm,
            seed=model.seed,
            config=config,
            feature_names_in_=names,
            feature_digest=model.feature_digest,
            causes_=_causes(left, first),
        )

    @property
    def steps(self) -> int:
        """The number of steps that are kept."""
        return len(self.components_)

    @property
    def n_components_(self) -> int:
        """r, the columns of the basis."""
        return int(self.components_.shape[1])

    @property
    def n_features_in_(self) -> int:
        """d, the number of features."""
        return int(self.components_.shape[2])

    @property
    def subspace_change_(self) -> Array:
        """The sine of the largest angle between the bases of a step and the one before, (steps,); 0 for the first."""
        steps = itertools.pairwise(self.components_)
        return np.array([0.0, *(linalg.sin_theta(a.T, b.T) for a, b in steps)])

    def subspace_error(self, truth: Array) -> Array:
        """Return ||(I - PP')U||_2 for each step, the sine of the largest angle to the true subspace U, (steps,).

        Parameters
        ----------
        truth : ndarray of shape (steps, r, d)
            The true components as rows:, or (r, d) for all steps.
        """
        true = checks.numbers("The truth", truth)
        if true.ndim == 2:
            true = np.broadcast_to(true, (self.steps, *true.shape))
        if true.ndim != 3 or len(true) != self.steps or true.shape[2] != self.n_features_in_:
            raise ConfigError(
                f"The truth must have shape ({self.steps}, r, {self.n_features_in_}), or the shape of one step, but "
                f"has {true.shape}. Give components as rows."
            )
        pairs = zip(self.components_, true, strict=True)
        return np.array([linalg.sin_theta(V.T, linalg.orth(U.T)) for V, U in pairs])

    def transform(self, X: Any, *, step: int = -1) -> Array:
        """Return coordinates of the rows of X, (n, d), along the components of a step, (n, r).

        NaN marks missing entries.

        They are the least squares fit to the observed entries. If a row has fewer independent entries than there are
        components, they are the fit of minimum norm.
        """
        return self._scores(self._rows(X), step)

    def inverse_transform(self, scores: Array, *, step: int = -1) -> Array:
        """Return the rows that have these scores and lie in the span."""
        return np.asarray(np.asarray(scores) @ self.components_[step])

    def complete(self, X: Any, *, step: int = -1) -> Array:
        """Return the rows of X, (n, d), with missing entries (NaN) filled in from the subspace of a step."""
        rows = self._rows(X)
        rebuilt = self.inverse_transform(self._scores(rows, step), step=step)
        return np.where(np.isnan(rows), rebuilt, rows)

    def with_keys(self, keys: Mapping[int, int]) -> TrackingResult:
        """Return the result with other keys for the clients that causes name."""
        causes = {
            step: {**cause, "sites": [keys.get(site, site) for site in cause["sites"]]}
            for step, cause in self.causes_.items()
        }
        return replace(self, causes_=causes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to an npz file with a JSON header, and return the path."""
        header = {name: getattr(self, name) for name in _HEADER} | saved.of_run(self)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return files.write(path, "tracking result", header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrackingResult:
        """Read a file of `save`."""
        header, arrays = files.read(path, "tracking result")
        saved.require_whole(path, "tracking result", {*_HEADER, *_ARRAYS}, {*header, *arrays})
        with files.refuse_others(path, "tracking result"):
            return cls(
                **{name: arrays[name] for name in _ARRAYS},  # type: ignore[arg-type]
                statistics_={int(step): value for step, value in header["statistics_"].items()},
                levels_={int(step): value for step, value in header["levels_"].items()},
                first_=header["first_"],
                totals_=header["totals_"],
                algorithm=header["algorithm"],
                seed=header["seed"],
                causes_={int(step): cause for step, cause in header["causes_"].items()},
                **saved.from_run(header),
            )

    def plot(self, what: str, path: str | os.PathLike[str]) -> Path:
        """Draw a picture into an SVG or PNG file. Needs matplotlib.

        Parameters
        ----------
        what : str
            "subspace_change", "fit", "statistic" (of a change), "step_sizes", "outliers", "last_loadings", or
            "overview". `flower_pca.plots.available(result)` says which there are of a result, and what they show.
        path : str or path
            The file, which ends in .svg or .png. The whole new picture is there afterwards, or the old file.

        Returns
        -------
        path
            The path.
        """
        return drawn.draw(self, what, path)

    def summary(self, *, digits: int = 4) -> Summary:
        """Return what was found, in words, figures and a table, and how reliable it is.

        Parameters
        ----------
        digits : int, default=4
            Digits of the mean squares in the table.

        Returns
        -------
        Summary
            `print` shows it. Its `facts`, `findings`, `remarks` and `components` are for programs.
        """
        return Summary(
            self._title,
            f"{self.totals_['rows']:,} rows x {labels.count(self.n_features_in_, 'column')}",
            facts=self._facts(),
            findings=self._findings(),
            remarks=[*facts.of_status(self.status), *facts.of_left_out(self.left_out)],
            components=self._listing(digits),
        )

    @property
    def _title(self) -> str:
        """The result in one line."""
        size = f"{labels.count(self.n_components_, 'component')} of {labels.count(self.n_features_in_, 'column')}"
        return f"{labels.count(self.totals_['steps'], 'step')}, {size} by {self.algorithm}"

    def _facts(self) -> list[Fact]:
        names, totals = facts.names_of(self), self.totals_
        series = ("rows", "subspace_change", "residuals", "deficient", "outliers", "changes")
        return [
            facts.plain("kind", type(self).__name__),
            facts.plain("algorithm", self.algorithm),
            facts.plain("outcome", self.status.outcome.value),
            facts.plain("status", self.status.words),
            Fact("", "steps", None, f"{totals['steps']:,}"),
            Fact("", "rows", None, f"{totals['rows']:,}"),
            Fact("n_features", "features", self.n_features_in_, f"{self.n_features_in_:,}"),
            facts.plain("feature_names", facts.plain_names(self)),
            facts.plain("site_names", {str(key): name for key, name in self.site_names.items()}),
            facts.plain("left_out", plain_left_out(self.left_out)),
            Fact("n_components", "components", self.n_components_, f"{self.n_components_:,}"),
            Fact("", "clients", None, f"{facts.clients(self.history):,}"),
            facts.plain("steps", self.steps),
            *(facts.plain(name, getattr(self, f"{name}_").tolist()) for name in series),
            Fact("", "changes", None, f"{totals['changed']:,}"),
            Fact("", "entries taken for outliers", None, f"{totals['outliers']:,}"),
            Fact("", "rows with too many gaps", None, f"{totals['deficient']:,}"),
            facts.plain("largest_weights", [facts.weights(row, names) for row in self.components_[-1]]),
            *facts.of_messages(self.history),
            facts.of_answers(masked=bool(self.config.get("mask"))),
            facts.plain("seed", self.seed),
        ]

    def _findings(self) -> list[str]:
        """Return where the subspace changed, and which columns the last basis consists of."""
        names, totals = facts.names_of(self), self.totals_
        rows = labels.count(totals["rows"], "row")
        steps = labels.count(totals["steps"], "step")
        said = [f"{rows} in {steps}, at {labels.count(facts.clients(self.history), 'client')}."]
        if changes := [f"{step}" for step in self.changes_]:
            where = labels.noun(len(changes), "step")
            said.append(f"A change was declared at {where} {', '.join(changes)}.")
        for step, cause in self.causes_.items():
            said.append(f"Step {step}: {in_words(cause, names, self.site_names)}")
        for j, row in enumerate(self.components_[-1][: facts.FOUND], 1):
            said.append(f"Component {j} of the last step: {facts.columns_of(row, names)}.")
        return said

    def _listing(self, digits: int) -> Listing:
        """Return the basis of the last step as a table, with a line for each component."""
        checks.integer("digits", digits, least=1, most=17)
        names = facts.names_of(self)
        sizes = self.values_[-1] / max(int(self.rows_[-1]), 1)
        lines = [
            [f"{j}", f"{size:.{digits}g}", labels.in_words(row, names)]
            for j, (size, row) in enumerate(zip(sizes, self.components_[-1], strict=True), 1)
        ]
        return Listing(["component", "mean square of a row", "largest weights"], lines)

    def table(self) -> str:
        """Write the steps as a plain text table, and the heaviest columns in the last basis."""
        head = f"{'step':>6} {'rows':>8} {'movement':>10} {'residual':>10} {'outliers':>10}  change"
        figures = zip(self.rows_, self.subspace_change_, self.residuals_, self.outliers_, strict=True)
        lines = [
            f"{j:>6} {n:>8} {moved:>10.1e} {left:>10.1e} {far:>10}"
            for j, (n, moved, left, far) in enumerate(figures, self.first_)
        ]
        for step in self.changes_:
            lines[step - self.first_] += "  yes"
        shown = self._listing(4).lines
        last = [f"component {j} of the last step: {words}" for j, _, words in shown]
        out = [remark.words for remark in facts.of_left_out(self.left_out)]
        return "\n".join([head, *lines, *last, *out])

    def __repr__(self) -> str:
        return f"TrackingResult({self._title}, {labels.count(self.history.count, 'message')})"

    def _repr_html_(self) -> str:
        return f"<div><pre>{escape(self.table())}</pre><p>{escape(str(self.status))}</p></div>"

    def _scores(self, rows: Array, step: int) -> Array:
        basis = np.ascontiguousarray(self.components_[step].T)
        return gaps.fit(basis, *gaps.without(rows))[0]

    def _rows(self, X: Any) -> Array:
        given = arrange(X, labels.tuple_of(self.feature_names_in_), self.feature_digest)
        rows = gaps.rows_with_gaps(given, "the rows given")
        if rows.shape[1] != self.n_features_in_:
            raise ConfigError(
                f"The rows have {rows.shape[1]} columns, but the run had {self.n_features_in_}. Give all columns of "
                "the run, in the same order."
            )
        return rows


def _by_step(values: Array, first: int) -> dict[int, float]:
    """Return the known values by the number of their step."""
    numbered = enumerate(values, first)
    return {j: float(value) for j, value in numbered if not np.isnan(value)}


def cause_of(kind: int, named: Array, clients: Sequence[int]) -> Cause:
    """Return the cause of a change, from the figures that `tracking.panel` leaves for its step."""
    kinds = [one for one in panel.REASONS if kind & one]
    places = named.reshape(-1, NAMED).astype(int).tolist()
    by_kind = dict(zip(panel.REASONS, places, strict=False))
    columns = dict.fromkeys(column for one in kinds for column in by_kind[one] if column >= 0)
    newest = named[-NAMED:].astype(int)
    sites = [clients[place] for place in newest if place >= 0]
    return {"reasons": [panel.REASONS[one] for one in kinds], "columns": list(columns), "sites": sites}


def in_words(cause: Cause, names: Sequence[str], sites: Mapping[int, str]) -> str:
    """Describe a cause in a sentence."""
    reasons = [_REASONS[str(one)] for one in cause["reasons"]]
    columns = [names[int(column)] for column in cause["columns"]]
    clients = [labels.client_name(sites, int(site)) for site in cause["sites"]]
    said = f"by {labels.series(reasons)}"
    if columns:
        said += f", most in {', '.join(columns)}"
    if clients:
        said += f", at {', '.join(clients)}"
    return f"{said}."


def _causes(left: Mapping[str, Array], first: int) -> dict[int, Cause]:
    if "kinds" not in left:
        return {}
    changed, clients = np.flatnonzero(left["changed"]), left["clients"].tolist()
    causes = ((j, int(left["kinds"][j]), left["named"][j]) for j in changed)
    return {first + int(j): cause_of(kind, named, clients) for j, kind, named in causes}


def _totals(left: Mapping[str, Array]) -> dict[str, int]:
    total = "total."
    return {name.removeprefix(total): int(value) for name, value in left.items() if name.startswith(total)}


def _stuck(left: Mapping[str, Array], names: Sequence[str]) -> list[str]:
    """Report a column with a huge variance that is a component by itself."""
    basis = left["bases"][-1]
    values = left["values"][-1]
    # This total over all rows has the same unit as `values`.
    rest = float(left["beyond"][-1]) * float(left["rows"][-1])
    said = []
    for j, (weights, following) in enumerate(zip(basis.T, [*values[1:], rest], strict=True)):
        column = int(np.argmax(np.abs(weights)))
        by_itself = weights[column] ** 2 > _ALONE and len(values) > 1
        # NaN means unknown, and compares as false.
        if by_itself and values[j] > _OUTWEIGHS * following:
            said.append(
                f"component {j + 1} is {names[column]} alone, {_times(values[j], following)} the next: check for a "
                "stuck sensor or a different unit; robust_tracking removes wrong entries"
            )
    return said


def _times(large: float, small: float) -> str:
    """Write how many times larger a number is, or that it is too many times to count."""
    if small * _MANY <= large:
        return f"more than {_MANY:,.0f} times"
    return f"{large / small:.2g} times"


def _narrow(left: Mapping[str, Array]) -> list[str]:
    """Report if one direction of the residual has more variance than noise would explain."""
    d, r = left["bases"][-1].shape
    figures = (left[name][-_NEWEST:] for name in ("rows", "misfit", "beyond"))
    rows, misfit, beyond = (figure.astype(float) for figure in figures)
    known = np.isfinite(misfit) & np.isfinite(beyond) & (rows > r)
    if d <= r + 1 or known.sum() < _LEAST:
        return []
    # The noise in each of the other directions.
    outside = misfit[known] - beyond[known]
    rest = np.maximum(outside, 0.0) / (d - r - 1)
    spread = 1.0 + np.sqrt((d - r) / rows[known])
    sizes = rest * spread**2, beyond[known]
    noise, found = (float(np.median(size)) for size in sizes)
    mean = float(left["values"][-1].sum() / max(rows[-1], 1.0))
    if found <= max(_STANDS_OUT * noise, 1e-10 * mean):
        return []
    few = f"{labels.count(r, 'component')} may be too few"
    return [f"{few}: one direction of the residuals has {_times(found, noise)} the variance of noise"]


def _of_season(left: Mapping[str, Array]) -> list[str]:
    """Report that alarms recur with a period."""
    if not (period := int(left.get("period", 0))):
        return []
    return [f"alarms come every {period} steps, so each step is also compared with steps of the same phase"]


def _of_watch(left: Mapping[str, Array]) -> list[str]:
    """Report which steps were tested for a change, if not all, and whether only sudden jumps could be seen."""
    judged = np.flatnonzero(np.isfinite(left["level"]))
    if not len(judged):
        return []
    steps = labels.count(len(judged), "step")
    start = int(left["gone"]) + judged[0]
    said = [f"{steps} judged for a change, from {start} on"]
    level = left["level"][judged[-1]]
    usual = float(np.nanmedian(left["statistic"]))
    if level > _UNSTEADY * usual > 0.0:
        said.append(f"too unsteady to monitor: an alarm needs {_times(level, usual)} the usual statistic")
    return said
