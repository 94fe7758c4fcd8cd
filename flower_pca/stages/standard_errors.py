"""Standard errors of loadings and variances, computed from the influence of every row.

Let C = sum x x' over all rows in the frame, with eigenpairs (theta_l, v_l) and scores y_j = v_j'x. To
first order, a row changes component j by u_j, and changes the variance of the component by the relative
amount w_j:

    u_j = sum_(l != j) v_l y_l y_j / (theta_j - theta_l),    w_j = y_j^2 / theta_j - 1 / n.

Here l runs over all d directions. An error E of C changes v_j along v_l by v_l'E v_j divided by the gap,
and E is a sum over rows (the influence function of Critchley 1985). The variance of an estimate is
therefore the sum of the squares of these changes, for any distribution of the rows. This estimator is the
infinitesimal jackknife (Jaeckel 1972; Efron 1982). For Gaussian rows, it approaches the formula of
Anderson 1963: sum_l v_l v_l' lambda_l lambda_j / (n (lambda_j - lambda_l)^2) for a component, and 2
lambda_j^2 / n for a variance.

If the scale of the frame is the deviation of the same rows, the errors include the effect of the scale.
For a scaled row x, x_i^2 / n is the change of the variance of column i by this row, and the changes become

    u_j - 1/2 sum_(l != j) v_l (theta_j + theta_l) / (theta_j - theta_l) v_l' D v_j,    w_j - v_j' D v_j,

with D = diag(x^2) / n. The terms 1 / n cancel in this case. A column of 0 and 1 made from a text
column is divided by the root of its share p, which a row changes by x_i sqrt(p) / n. For this column, the
entry of D is (x_i / sqrt(p) + 1) / n, which also adds up to 1 over all rows. The effects of other scales
and of filled missing values are ignored, and the result reports this.

There are two kinds of errors. The first kind is for new rows at the same sites. Here the squares of each
site's changes are about the site's own mean, because differences between sites are not random in this
case. A site with a single row has no mean to subtract. The second kind is for new sites. Here the
changes of a site's rows are added up before they are squared, which is the jackknife over sites to first
order. Clients can compute the terms of both sums. The changes of all sites add up to 0. If there are only two
sites, their changes therefore have the same squares, and a masked sum hides nothing.

If an algorithm has summed C, up to 512 leading eigenvalues and directions of C are used. Otherwise, the
Ritz values and vectors of the algorithm's final basis are used, because these vectors have no covariance
with each other. All further eigenvalues are assumed to be equal to their mean, which follows from the
trace. The result reports how many eigenvalues this assumption concerns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, COUNT, MATRIX, ROWS, VALUES, VECTOR, ArrayRule, Kind, Part, number_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage, status_when
from flower_pca.rows.local import LocalData

ERRORS: Final = Kind(
    "standard_errors",
    "for components that the server chooses: sums of squares of each row's influence on them",
    bound=None,
)
# The keys of the errors in the model
LEFT: Final = ("loading_errors", "variance_errors", "site_loading_errors", "site_variance_errors")
_WITHIN: Final = ("loadings", "variances")
_BETWEEN: Final = ("site_loadings", "site_variances")
_TIED: Final = 1e-12  # a gap below this share of the first eigenvalue counts as 0
# Two components can be distinguished if their variances differ by this many standard errors of the difference.
_DISTINCT: Final = 2.0
# Sites differ by more than their rows explain if errors by site are at least this multiple of errors by row.
_UNLIKE: Final = 2.0
_FEWEST_SITES: Final = 3  # the minimum number of sites for comparing errors by site with errors by row
# With fewer rows than _FEW_ROWS, errors are too small even with the quantile of Student's t. With fewer rows than
# _MANY_ROWS, they are slightly too small.
_FEW_ROWS: Final = 30
_MANY_ROWS: Final = 300
_USUAL_KURTOSIS: Final = 4.0  # Up to this kurtosis, 95 % intervals still have a coverage of 93 %.
# The maximum number of directions of C in a message. Messages contain all directions if auto chooses covariance.
# Nodes accept fewer than a thousand.
_WIDEST: Final = 512
# Below this share of the first eigenvalue, the distribution of the remaining eigenvalues does not matter.
_NEGLIGIBLE: Final = 1e-9


@dataclass(frozen=True)
class StandardErrorsState:
    """The server's directions with their eigenvalues and, after the message, the sums over rows and sites.

    `following` is the mean of the other eigenvalues. `share` is the weight of one row in the scale, or
    0 if the scale is not the deviation of these rows. `each` is 1 / n, or 0 if the effect of the scale
    cancels this term. `roots` holds the divisors of columns made from text columns, and 0 for all other
    columns. `roots` is None if there are no such columns, or if the scale is not the deviation of these rows.
    """

    W: Array
    values: Array
    following: float
    k: int
    share: float
    each: float
    roots: Array | None = None
    total: dict[str, Array] | None = None


@dataclass(frozen=True, kw_only=True)
class StandardErrors(Stage[StandardErrorsState]):
    """A stage that sums squares of the first-order changes of loadings and variances by rows and by sites.

    Clients square the influence of single rows, so nodes serve this stage only if their rules name it.

    Cost: a client needs 4 n_i d p k flops, the server sends p columns, and each client sends 2 k columns of d floats.
    """

    name: ClassVar[str] = "standard_errors"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "W": BLOCK,
        "gaps": MATRIX,
        "middles": MATRIX,
        "sizes": VALUES,
        "share": number_rule(0.0, 1.0),
        "each": number_rule(0.0, 1.0),
        "roots": VECTOR,
    }
    by_row: ClassVar[bool] = True

    def start(self, model: Model) -> StandardErrorsState:
        if model.covariance is None:
            assert model.values is not None
            values, W = model.values, model.columns
        else:
            most = max(_WIDEST, model.columns.shape[1])
            values, W = _leading_directions(model, most)
        left = max(model.trace - float(values.sum()), 0.0)
        mean = left / max(model.d - len(values), 1)
        # Ritz values are below eigenvalues, so the mean of the rest may exceed the last Ritz value.
        following = min(mean, float(values[-1]))
        share, each = (1.0 / model.n, 0.0) if _scale_adds_error(model) else (0.0, 1.0 / model.n)
        return StandardErrorsState(W, values, following, model.k, share, each, _column_divisors(model))

    def broadcast(self, state: StandardErrorsState) -> Arrays:
        k, values = state.k, state.values
        least = _TIED * float(values[0]) or 1.0
        own = values[:k, None]
        others = np.append(values, state.following)
        gaps = own - others
        tied = np.abs(gaps) < least
        # Tied components may be rotated arbitrarily, so they get very large errors, and no division by 0 occurs.
        inverse = 1.0 / np.where(tied, np.copysign(least, gaps), gaps)
        inverse[range(k), range(k)] = 0.0
        roots: Arrays = {} if state.roots is None else {"roots": state.roots}
        return {
            **roots,
            "W": state.W,
            "gaps": inverse,
            "middles": 0.5 * (own + others) * inverse,
            # There is one more value than components, because the last component is compared with the next variance.
            "sizes": np.maximum(values[: k + 1], least),
            "share": np.array(state.share),
            "each": np.array(state.each),
        }

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        loadings = Part((len(arrays["W"]), len(arrays["gaps"])), ERRORS)
        variances = Part(arrays["sizes"].shape, ERRORS)
        sums = dict.fromkeys(("loadings", "site_loadings"), loadings)
        return {"n": ROWS, "sites": COUNT, **sums, **dict.fromkeys(("variances", "site_variances"), variances)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        _require_shapes(arrays, data.d)
        sums, squares = _influence_sums(arrays, data)
        up = {"n": np.array(data.n), "sites": np.array(1), **squares}
        for within, between in zip(_WITHIN, _BETWEEN, strict=True):
            up[between] = sums[within] ** 2
            if data.n > 1:  # Subtracting the mean divides by n - 1, so it needs at least two rows.
                spread = np.maximum(up[within] - up[between] / data.n, 0.0)
                up[within] = spread * (data.n / (data.n - 1))
        return up, memory

    def bounds(self, state: StandardErrorsState, model: Model) -> Mapping[str, Array | float]:
        # The sums have no useful bound, because the changes are divided by gaps between eigenvalues.
        usual = super().bounds(state, model)
        return {**usual, "sites": 1.0, **dict.fromkeys((*_WITHIN, *_BETWEEN), 0.0)}

    def inspect(self, state: StandardErrorsState, reply: Arrays) -> None:
        if any((reply[name] < 0.0).any() for name in (*_WITHIN, *_BETWEEN)):
            raise ProtocolError(f"An answer has negative sums of squares. {OTHER_CLIENT}")

    def server(self, state: StandardErrorsState, total: Arrays, answered: frozenset[int]) -> StandardErrorsState:
        return replace(state, total={name: np.asarray(np.maximum(a, 0.0)) for name, a in total.items()})

    def status(self, state: StandardErrorsState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: StandardErrorsState, model: Model) -> Model:
        assert state.total is not None
        total, rows, sites = state.total, float(state.total["n"]), round(float(state.total["sites"]))
        more = model.n / rows  # The number of rows of a site may have changed since the opening.
        sizes = state.values[: state.k + 1] / max(model.n - 1, 1)
        loadings = np.sqrt(more * total["loadings"].T)
        variances = np.sqrt(more * total["variances"]) * sizes
        found = [loadings, variances[: state.k]]
        said = _warnings_of_close_variances(sizes, variances)
        if sites > 1:
            more *= sites / (sites - 1)
            site_loadings = np.sqrt(more * total["site_loadings"].T)
            site_variances = np.sqrt(more * total["site_variances"]) * sizes
            found += [site_loadings, site_variances[: state.k]]
            said += _warnings_of_sites(loadings, site_loadings, sites)
        said += _warnings_of_size(state, model)
        # With a single site, there are no errors by site, so the last keys are not used.
        left = {**model.left, **dict(zip(LEFT, found, strict=False))}
        status = model.status and model.status.with_notes(said)
        decided = model.with_decision("standard_errors", _text_on_errors(state, model))
        return replace(decided, left=left, status=status)


def _leading_directions(model: Model, most: int) -> tuple[Array, Array]:
    """Return up to `most` leading eigenvalues of the covariance, and their directions.

    If eigenvalues of the basis are tied, their eigenvectors are arbitrary. The errors must belong to the components, so
    the directions then begin with the basis, and all other directions are orthogonal to it.
    """
    C, Z, own = model.covariance, model.columns, model.values
    assert C is not None
    assert own is not None
    values, V = linalg.eigh_leading(C, most)
    if not (np.diff(values[: model.k + 1]) > -_TIED * values[0]).any():
        return values[:most], V[:, :most]
    # The directions of Z come last, because their eigenvalues are negative in this matrix.
    others, V = linalg.eigh_descending(C - Z * (own + own[0]) @ Z.T)
    count = min(most, len(C)) - Z.shape[1]
    return np.concatenate([own, others[:count]]), np.hstack([Z, V[:, :count]])


def _scale_adds_error(model: Model) -> bool:
    """Return whether the scale is the deviation of the same rows, so that it adds to the errors."""
    return model.scale == "std" and model.center


def _column_divisors(model: Model) -> Array | None:
    """Return the divisors of columns made from text columns and 0 for other columns, or None if they are not needed."""
    if not (model.shared and _scale_adds_error(model)):
        return None
    assert model.frame.scale is not None
    by_share = [name in model.shared for name in model.feature_names or ()]
    return np.where(by_share, model.frame.scale, 0.0)


def _require_shapes(arrays: Arrays, d: int) -> None:
    """Raise ProtocolError for arrays of wrong shapes, which numpy might broadcast over the rows."""
    W, gaps, middles, sizes = (arrays[name] for name in ("W", "gaps", "middles", "sizes"))
    k, p = len(gaps), W.shape[1]
    alike = gaps.shape == middles.shape == (k, p + 1)
    if len(W) != d or not alike or not k <= len(sizes) <= p:
        raise ProtocolError(
            f"The arrays W, gaps, middles and sizes of a message for standard errors do not fit together or the "
            f"{labels.count(d, 'column')} of the rows: their shapes are {W.shape}, {gaps.shape}, {middles.shape} and "
            f"{sizes.shape}. {OTHER_SERVER}"
        )
    if "roots" in arrays and len(arrays["roots"]) != d:
        raise ProtocolError(
            f"A message for standard errors has {labels.count(len(arrays['roots']), 'root')}, but {d} are needed. "
            f"{OTHER_SERVER}"
        )


def _influence_sums(arrays: Arrays, data: LocalData) -> tuple[Arrays, Arrays]:
    """Return the sums of the influences of a client's rows, and the sums of their squares."""
    W = arrays["W"].astype(np.float64)
    sizes, share, each = arrays["sizes"], float(arrays["share"]), float(arrays["each"])
    shape = (len(W), len(arrays["gaps"]))
    sums = {"loadings": np.zeros(shape), "variances": np.zeros(len(sizes))}
    squares = {"loadings": np.zeros(shape), "variances": np.zeros(len(sizes))}
    measured = W[:, : len(sizes)]
    # A message may contain a variance of 0, by which the client must not divide.
    inverse = np.divide(1.0, sizes, out=np.zeros(len(sizes)), where=sizes > 0.0)
    for block in data.dense():
        X = np.asarray(block, dtype=np.float64)
        T, D = X @ W, _changes_of_scales(X, arrays)
        for j, (gaps, middles) in enumerate(zip(arrays["gaps"], arrays["middles"], strict=True)):
            moved = T[:, j : j + 1] * _scale_along_columns(X, W, gaps)
            if share:
                moved -= share * _scale_along_columns(D * W[:, j], W, middles)
            sums["loadings"][:, j] += moved.sum(axis=0)
            squares["loadings"][:, j] += np.sum(moved**2, axis=0)
        of_scores = T[:, : len(sizes)] ** 2 * inverse
        parts = of_scores - share * (D @ measured**2) - each
        sums["variances"] += parts.sum(axis=0)
        squares["variances"] += np.sum(parts**2, axis=0)
    return sums, squares


def _changes_of_scales(X: Array, arrays: Arrays) -> Array:
    """Return the relative changes of the squared scales by each row, up to a constant factor."""
    D = X**2
    if "roots" in arrays:
        by_share = np.flatnonzero(arrays["roots"] > 0.0)
        roots = arrays["roots"][by_share]
        D[:, by_share] = X[:, by_share] / roots + 1.0
    return np.asarray(D)


def _scale_along_columns(X: Array, W: Array, factors: Array) -> Array:
    """Return rows multiplied by factor l along column l of W, and by the last factor outside the span of W."""
    along = X @ W * (factors[:-1] - factors[-1])
    return np.asarray(factors[-1] * X + along @ W.T)


def _text_on_errors(state: StandardErrorsState, model: Model) -> str:
    """Return a text about what the errors describe and what they ignore."""
    said = ["errors by row are for a run with new rows of the same sites, errors by site for a run with other sites"]
    others = model.d - len(state.values)
    if others > 1 and state.following > _NEGLIGIBLE * float(state.values[0]):
        said.append(f"the {others} eigenvalues after the first {len(state.values)} are assumed to be equal")
    if model.frame.scale is not None and not state.share:
        said.append("errors ignore that the scale comes from the same rows")
    if model.frame.fill is not None or model.missing == "local_mean":
        said.append("filled values count as measured")
    return "; ".join(said)


def _warnings_of_size(state: StandardErrorsState, model: Model) -> list[str]:
    """Return warnings that the errors are too small, if rows are few or have heavy tails."""
    assert state.total is not None
    said = []
    if model.n < _FEW_ROWS:
        said.append(f"with {model.n} rows, standard errors are too small (at least {_FEW_ROWS} rows are needed)")
    elif model.n < _MANY_ROWS:
        said.append(
            f"with {model.n} rows, standard errors are slightly too small (use analysis.intervals); with heavy tails "
            "they can be much too small"
        )
    rows = float(state.total["n"])
    if state.share or rows < 1.0:
        return said
    # The sum of (y^2 / theta - 1 / n)^2 over a component's scores y is (kurtosis - 1) / n.
    kurtosis = 1.0 + rows * state.total["variances"][: state.k]
    usual = max(_USUAL_KURTOSIS, 3.0 + 3.0 * float(np.sqrt(24.0 / rows)))
    if len(heavy := np.flatnonzero(kurtosis > usual)):
        named = f"{labels.pluralize(len(heavy), 'component')} {', '.join(str(j + 1) for j in heavy)}"
        of = ", ".join(f"{kurtosis[j]:.2g}" for j in heavy)
        said.append(
            f"standard errors are too small, because scores along {named} have heavy tails (kurtosis {of}, but normal "
            "rows have 3)"
        )
    return said


def _warnings_of_close_variances(variances: Array, errors: Array) -> list[str]:
    """Return a warning about neighboring components with variances that are too close to distinguish them."""
    between = _DISTINCT * np.hypot(errors[:-1], errors[1:])
    close = np.flatnonzero(variances[:-1] - variances[1:] < between)
    if not len(close):
        return []
    named = ", ".join(f"{j + 1} and {j + 2}" for j in close)
    return [f"components {named} cannot be distinguished with this many rows, because their variances are too close"]


def _warnings_of_sites(by_row: Array, by_site: Array, sites: int) -> list[str]:
    """Return a warning if sites differ by more than their rows explain, so that errors by site matter."""
    rows = max(np.mean(by_row**2), np.finfo(float).tiny)
    times = float(np.sqrt(np.mean(by_site**2) / rows))
    if sites < _FEWEST_SITES or times < _UNLIKE:
        return []
    words = f"sites differ: errors by site are {times:.2g} times as large as errors by row"
    return [
        f"{words}. For sites outside the run, use the errors by site. They are rough, because they come from "
        f"{labels.count(sites, 'site')}"
    ]
