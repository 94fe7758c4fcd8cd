"""`TrackingResult`: the result of tracking a subspace over steps."""

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
from flower_pca.results.matching import with_columns_in_order
from flower_pca.rows import gaps
from flower_pca.tracking import panel
from flower_pca.tracking.columns import NAMED

Cause: TypeAlias = dict[str, list[Any]]  # The keys are "reasons", "columns" and "sites".

_REASONS: Final = {
    "SPE": "SPE, because rows have left the subspace",
    "column": "a column whose spread has changed",
    "T2": "T2, because the spread of rows within the subspace has changed",
}
_ARRAYS = ("components_", "values_", "rows_", "residuals_", "deficient_", "outliers_", "missing_", "changes_")
_HEADER = ("statistics_", "levels_", "first_", "totals_", "algorithm", "seed", "causes_")
# A component consists of a single column if this column has more than this share of the sum of squared weights.
_ALONE: Final = 0.98
_OUTWEIGHS: Final = 10.0  # A component is much larger than the next if its value is more than this many times larger.
_MANY: Final = 1e6  # Ratios above this bound are not printed exactly, because they are dominated by rounding errors.
_NEWEST: Final = 20  # A further component is looked for in the residuals of the last 20 steps.
_LEAST: Final = 3  # minimum number of steps with known values for this check
# If the alarm level is more than this many times the usual statistic, only sudden jumps can cause an alarm.
_UNSTEADY: Final = 100.0
# A direction of the residuals stands out if its variance is more than this many times what noise alone would reach.
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
        than components, so that the basis did not change.
    rows_ : ndarray of shape (steps,)
        Number of rows of the step at all clients together.
    residuals_ : ndarray of shape (steps,)
        The norm of the residual of the fit in the basis of the previous step, at observed entries that are no outliers,
        relative to the norm of all observed entries. 1 in the first step if there was no basis before.
    deficient_ : ndarray of shape (steps,)
        Number of rows with fewer independent observed entries than components. These rows are completed with the
        coordinates of minimum norm.
    outliers_ : ndarray of shape (steps,)
        Number of entries that count as outliers.
    missing_ : ndarray of shape (steps,)
        Number of missing entries.
    changes_ : ndarray
        Numbers of the kept steps at which a change was declared.
    statistics_ : dict
        The test statistic of a change, by step, for steps in which it is known: the largest eigenvalue of the completed
        rows outside the previous basis, divided by the number of rows. If the alarm level is learned from the stream,
        the statistic is the smallest of four such values (see `tracking.change`).
    levels_ : dict
        The alarm level, by step, for the steps that were tested for a change.
    causes_ : mapping
        With `monitor`, for each change its "reasons", the numbers of the "columns", and the "sites" if the server sees
        single clients. Reasons are "SPE" if rows have left the subspace, "column" if the spread of a column has
        changed, and "T2" if the spread along a direction of the subspace has changed. {} without `monitor`.
    first_ : int
        The number of the first step that is kept. Only the newest steps are kept, as many as the parameter `keep` of
        the tracker allows, but all steps are numbered.
    totals_ : dict
        Totals over all steps, kept or not: "steps", "rows", "deficient", "outliers", and "changed" for changes.
    status : Status
        Why the run ended, with warnings about the result, for example that a component consists of a single column.
    history : History
        What happened in each of the newest thousand messages, and totals over earlier messages.
    algorithm : str
        The tracker's spec string.
    seed : int
        The seed of the run.
    config : mapping
        The configuration of the run, as plain values.
    feature_names_in_ : ndarray of shape (d,) or None
        Names of the columns, in order. None if columns are matched by position.
    feature_digest : str
        SHA-256 of the sorted names, if clients do not send the names. "" if columns have no names.
    site_names : mapping
        Names of the contributing clients by key. Clients without a name are not listed.
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
        """Return the result of a finished model, from the figures that the tracker stored for all kept steps."""
        left, names = model.left, labels.array_of(model.feature_names)
        first = int(left["gone"])
        status = model.status or Status(Outcome.DONE, "the run goes on")
        shown = labels.column_names(names, len(left["bases"][-1]))
        advice = [
            *_warn_of_single_columns(left, shown),
            *_warn_of_too_few(left),
            *_remark_on_skipped(left),
            *_remark_on_tests(left),
            *_remark_on_period(left),
        ]
        return cls(
            components_=np.stack([np.ascontiguousarray(linalg.fix_signs(P).T) for P in left["bases"]]),
            **{f"{name}_": left[name] for name in ("values", "rows", "deficient", "outliers", "missing")},  # type: ignore[arg-type]
            residuals_=left["residual"],
            changes_=first + np.flatnonzero(left["changed"]),
            statistics_=_known_by_step(left["statistic"], first),
            levels_=_known_by_step(left["level"], first),
            first_=first,
            totals_={"steps": first + len(left["bases"]), **_totals_by_name(left)},
            status=status.with_notes(advice),
            history=history,
            algorithm=algorithm,
            seed=model.seed,
            config=config,
            feature_names_in_=names,
            feature_digest=model.feature_digest,
            causes_=_causes_by_step(left, first),
        )

    @property
    def steps(self) -> int:
        """The number of steps that are kept."""
        return len(self.components_)

    @property
    def n_components_(self) -> int:
        """r, the number of components in the basis of a step."""
        return int(self.components_.shape[1])

    @property
    def n_features_in_(self) -> int:
        """d, the number of features."""
        return int(self.components_.shape[2])

    @property
    def subspace_change_(self) -> Array:
        """The sine of the largest angle between the bases of each step and the previous step, (steps,), first 0."""
        steps = itertools.pairwise(self.components_)
        return np.array([0.0, *(linalg.sin_theta(a.T, b.T) for a, b in steps)])

    def subspace_error(self, truth: Array) -> Array:
        """Return ||(I - PP')U||_2 for each step, the sine of the largest angle to the true subspace U, (steps,).

        Parameters
        ----------
        truth : ndarray of shape (steps, r, d)
            The true components of each step as rows, or an array of shape (r, d) that holds for all steps.
        """
        true = checks.as_numbers("The truth", truth)
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

        The coordinates are the least squares fit to the observed entries. Entries that are NaN count as missing. If a
        row has fewer independent observed entries than components, its coordinates are the fit of minimum norm.
        """
        return self._scores(self._rows(X), step)

    def inverse_transform(self, scores: Array, *, step: int = -1) -> Array:
        """Return the rows that have these scores and are in the span of the components of a step."""
        return np.asarray(np.asarray(scores) @ self.components_[step])

    def complete(self, X: Any, *, step: int = -1) -> Array:
        """Return the rows of X, (n, d), with missing entries (NaN) filled by the fit in the subspace of a step."""
        rows = self._rows(X)
        rebuilt = self.inverse_transform(self._scores(rows, step), step=step)
        return np.where(np.isnan(rows), rebuilt, rows)

    def with_keys(self, keys: Mapping[int, int]) -> TrackingResult:
        """Return the result with new keys for the clients that `causes_` names."""
        causes = {
            step: {**cause, "sites": [keys.get(site, site) for site in cause["sites"]]}
            for step, cause in self.causes_.items()
        }
        return replace(self, causes_=causes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to an npz file with a JSON header, and return the path."""
        header = {name: getattr(self, name) for name in _HEADER} | saved.run_fields_as_plain(self)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return files.write(path, "tracking result", header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrackingResult:
        """Read a result from a file that `save` has written."""
        header, arrays = files.read(path, "tracking result")
        saved.require_entries(path, "tracking result", {*_HEADER, *_ARRAYS}, {*header, *arrays})
        with files.refusing_malformed(path, "tracking result"):
            return cls(
                **{name: arrays[name] for name in _ARRAYS},  # type: ignore[arg-type]
                statistics_={int(step): value for step, value in header["statistics_"].items()},
                levels_={int(step): value for step, value in header["levels_"].items()},
                first_=header["first_"],
                totals_=header["totals_"],
                algorithm=header["algorithm"],
                seed=header["seed"],
                causes_={int(step): cause for step, cause in header["causes_"].items()},
                **saved.run_fields_from_plain(header),
            )

    def plot(self, what: str, path: str | os.PathLike[str]) -> Path:
        """Draw a picture into an SVG or PNG file. Needs matplotlib.

        Parameters
        ----------
        what : str
            "subspace_change", "fit", "statistic" (of a change), "step_sizes", "outliers", "last_loadings", or
            "overview". `flower_pca.plots.available(result)` lists the pictures of this result and what they show.
        path : str or path
            The file, which ends in .svg or .png. An old file is replaced only when the new picture is complete.

        Returns
        -------
        path
            The path of the picture.
        """
        return drawn.draw_result(self, what, path)

    def summary(self, *, digits: int = 4) -> Summary:
        """Return a summary in sentences, figures and a table, with remarks on the reliability of the result.

        Parameters
        ----------
        digits : int, default=4
            Number of significant digits of the mean squares in the table.

        Returns
        -------
        Summary
            The summary, which `print` shows as text. Programs can read its `facts`, `findings`, `remarks` and
            `components`.
        """
        return Summary(
            self._title,
            f"{self.totals_['rows']:,} rows x {labels.count(self.n_features_in_, 'column')}",
            facts=self._facts(),
            findings=self._findings(),
            remarks=[*facts.remarks_on_status(self.status), *facts.remarks_on_left_out(self.left_out)],
            components=self._listing(digits),
        )

    @property
    def _title(self) -> str:
        """The result in one line."""
        size = f"{labels.count(self.n_components_, 'component')} of {labels.count(self.n_features_in_, 'column')}"
        return f"{labels.count(self.totals_['steps'], 'step')}, {size} by {self.algorithm}"

    def _facts(self) -> list[Fact]:
        names, totals = facts.column_names(self), self.totals_
        series = ("rows", "subspace_change", "residuals", "deficient", "outliers", "changes")
        return [
            facts.json_only_fact("kind", type(self).__name__),
            facts.json_only_fact("algorithm", self.algorithm),
            facts.json_only_fact("outcome", self.status.outcome.value),
            facts.json_only_fact("status", self.status.words),
            Fact("", "steps", None, f"{totals['steps']:,}"),
            Fact("", "rows", None, f"{totals['rows']:,}"),
            Fact("n_features", "features", self.n_features_in_, f"{self.n_features_in_:,}"),
            facts.json_only_fact("feature_names", facts.names_for_json(self)),
            facts.json_only_fact("site_names", {str(key): name for key, name in self.site_names.items()}),
            facts.json_only_fact("left_out", plain_left_out(self.left_out)),
            Fact("n_components", "components", self.n_components_, f"{self.n_components_:,}"),
            Fact("", "clients", None, f"{facts.number_of_clients(self.history):,}"),
            facts.json_only_fact("steps", self.steps),
            *(facts.json_only_fact(name, getattr(self, f"{name}_").tolist()) for name in series),
            Fact("", "changes", None, f"{totals['changed']:,}"),
            Fact("", "entries taken for outliers", None, f"{totals['outliers']:,}"),
            Fact("", "rows with too many gaps", None, f"{totals['deficient']:,}"),
            facts.json_only_fact(
                "largest_weights", [facts.weights_for_json(row, names) for row in self.components_[-1]]
            ),
            *facts.facts_on_messages(self.history),
            facts.fact_on_answers(masked=bool(self.config.get("mask"))),
            facts.json_only_fact("seed", self.seed),
        ]

    def _findings(self) -> list[str]:
        """Return sentences about the changes of the subspace, and about the columns in the last step's components."""
        names, totals = facts.column_names(self), self.totals_
        rows = labels.count(totals["rows"], "row")
        steps = labels.count(totals["steps"], "step")
        said = [f"{rows} in {steps}, at {labels.count(facts.number_of_clients(self.history), 'client')}."]
        if changes := [f"{step}" for step in self.changes_]:
            where = labels.pluralize(len(changes), "step")
            said.append(f"A change was declared at {where} {', '.join(changes)}.")
        for step, cause in self.causes_.items():
            said.append(f"Step {step}: {cause_in_words(cause, names, self.site_names)}")
        for j, row in enumerate(self.components_[-1][: facts.FOUND], 1):
            said.append(f"Component {j} of the last step: {facts.component_in_words(row, names)}.")
        return said

    def _listing(self, digits: int) -> Listing:
        """Return the basis of the last step as a table, with a line for each component."""
        checks.integer("digits", digits, least=1, most=17)
        names = facts.column_names(self)
        sizes = self.values_[-1] / max(int(self.rows_[-1]), 1)
        lines = [
            [f"{j}", f"{size:.{digits}g}", labels.weights_in_words(row, names)]
            for j, (size, row) in enumerate(zip(sizes, self.components_[-1], strict=True), 1)
        ]
        return Listing(["component", "mean square of a row", "largest weights"], lines)

    def table(self) -> str:
        """Return a plain text table of the steps, followed by the components of the last step."""
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
        out = [remark.words for remark in facts.remarks_on_left_out(self.left_out)]
        return "\n".join([head, *lines, *last, *out])

    def __repr__(self) -> str:
        return f"TrackingResult({self._title}, {labels.count(self.history.count, 'message')})"

    def _repr_html_(self) -> str:
        return f"<div><pre>{escape(self.table())}</pre><p>{escape(str(self.status))}</p></div>"

    def _scores(self, rows: Array, step: int) -> Array:
        basis = np.ascontiguousarray(self.components_[step].T)
        return gaps.fit_rows(basis, *gaps.without_gaps(rows))[0]

    def _rows(self, X: Any) -> Array:
        given = with_columns_in_order(X, labels.tuple_of(self.feature_names_in_), self.feature_digest)
        rows = gaps.rows_with_gaps(given, "the rows given")
        if rows.shape[1] != self.n_features_in_:
            raise ConfigError(
                f"The rows have {rows.shape[1]} columns, but the run had {self.n_features_in_}. Give all columns of "
                "the run, in the same order."
            )
        return rows


def _known_by_step(values: Array, first: int) -> dict[int, float]:
    """Return the values that are not NaN, by the number of their step."""
    numbered = enumerate(values, first)
    return {j: float(value) for j, value in numbered if not np.isnan(value)}


def cause_of(kind: int, positions: Array, clients: Sequence[int]) -> Cause:
    """Return the cause of a change, from the figures that `tracking.panel` stores for the step of the change."""
    kinds = [reason for reason in panel.REASONS if kind & reason]
    places = positions.reshape(-1, NAMED).astype(int).tolist()
    by_kind = dict(zip(panel.REASONS, places, strict=False))
    columns = dict.fromkeys(column for reason in kinds for column in by_kind[reason] if column >= 0)
    newest = positions[-NAMED:].astype(int)
    sites = [clients[place] for place in newest if place >= 0]
    return {"reasons": [panel.REASONS[reason] for reason in kinds], "columns": list(columns), "sites": sites}


def cause_in_words(cause: Cause, names: Sequence[str], sites: Mapping[int, str]) -> str:
    """Describe the cause of a change in the second half of a sentence: "by ..., most in ..., at ...."."""
    reasons = [_REASONS[str(reason)] for reason in cause["reasons"]]
    columns = [names[int(column)] for column in cause["columns"]]
    clients = [labels.client_name(sites, int(site)) for site in cause["sites"]]
    said = f"by {labels.join_with_and(reasons)}"
    if columns:
        said += f", most in {', '.join(columns)}"
    if clients:
        said += f", at {', '.join(clients)}"
    return f"{said}."


def _causes_by_step(left: Mapping[str, Array], first: int) -> dict[int, Cause]:
    if "kinds" not in left:
        return {}
    changed, clients = np.flatnonzero(left["changed"]), left["clients"].tolist()
    causes = ((j, int(left["kinds"][j]), left["named"][j]) for j in changed)
    return {first + int(j): cause_of(kind, named, clients) for j, kind, named in causes}


def _totals_by_name(left: Mapping[str, Array]) -> dict[str, int]:
    total = "total."
    return {name.removeprefix(total): int(value) for name, value in left.items() if name.startswith(total)}


def _warn_of_single_columns(left: Mapping[str, Array], names: Sequence[str]) -> list[str]:
    """Return a warning for each component that is a single column and has a much larger variance than the next."""
    basis = left["bases"][-1]
    values = left["values"][-1]
    # `beyond` is divided by the number of rows, but `values` are not, so this product is comparable with `values`.
    rest = float(left["beyond"][-1]) * float(left["rows"][-1])
    said = []
    for j, (weights, following) in enumerate(zip(basis.T, [*values[1:], rest], strict=True)):
        column = int(np.argmax(np.abs(weights)))
        is_single = weights[column] ** 2 > _ALONE and len(values) > 1
        # If a value is unknown, it is NaN, and the comparison is false.
        if is_single and values[j] > _OUTWEIGHS * following:
            said.append(
                f"component {j + 1} is {names[column]} alone, {_ratio_in_words(values[j], following)} the next: "
                f"check for a "
                "stuck sensor or a different unit; robust_tracking removes wrong entries"
            )
    return said


def _ratio_in_words(large: float, small: float) -> str:
    """Return a ratio as text: "12 times", or "more than 1,000,000 times" if rounding errors dominate it."""
    if small * _MANY <= large:
        return f"more than {_MANY:,.0f} times"
    return f"{large / small:.2g} times"


def _warn_of_too_few(left: Mapping[str, Array]) -> list[str]:
    """Return a warning if one direction of the residuals has more variance than noise would explain."""
    d, r = left["bases"][-1].shape
    figures = (left[name][-_NEWEST:] for name in ("rows", "misfit", "beyond"))
    rows, misfit, beyond = (figure.astype(float) for figure in figures)
    known = np.isfinite(misfit) & np.isfinite(beyond) & (rows > r)
    if d <= r + 1 or known.sum() < _LEAST:
        return []
    # The noise is estimated from the mean variance of the other directions.
    outside = misfit[known] - beyond[known]
    rest = np.maximum(outside, 0.0) / (d - r - 1)
    spread = 1.0 + np.sqrt((d - r) / rows[known])
    sizes = rest * spread**2, beyond[known]
    noise, found = (float(np.median(size)) for size in sizes)
    mean = float(left["values"][-1].sum() / max(rows[-1], 1.0))
    if found <= max(_STANDS_OUT * noise, 1e-10 * mean):
        return []
    few = f"{labels.count(r, 'component')} may be too few"
    return [f"{few}: one direction of the residuals has {_ratio_in_words(found, noise)} the variance of noise"]


def _remark_on_skipped(left: Mapping[str, Array]) -> list[str]:
    """Return a remark if the first step is not the first batch of the streams."""
    if not left["skipped"]:
        return []
    return [f"step 0 is batch {int(left['skipped'])} of the streams, because earlier batches have too few rows"]


def _remark_on_period(left: Mapping[str, Array]) -> list[str]:
    """Return a remark if alarms recur with a period."""
    if not (period := int(left.get("period", 0))):
        return []
    return [f"alarms come every {period} steps, so each step is also compared with steps of the same phase"]


def _remark_on_tests(left: Mapping[str, Array]) -> list[str]:
    """Return a remark on the steps that were tested for a change, and a warning if only sudden jumps can be detected.

    Return [] if no step was tested.
    """
    tested = np.flatnonzero(np.isfinite(left["level"]))
    if not len(tested):
        return []
    steps = labels.count(len(tested), "step")
    start = int(left["gone"]) + tested[0]
    said = [f"{steps} tested for a change, from step {start} on"]
    level = left["level"][tested[-1]]
    usual = float(np.nanmedian(left["statistic"]))
    if level > _UNSTEADY * usual > 0.0:
        said.append(f"too unsteady to monitor: an alarm needs {_ratio_in_words(level, usual)} the usual statistic")
    return said
