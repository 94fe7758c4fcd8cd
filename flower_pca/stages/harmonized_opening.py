"""Openings of runs that harmonize sites by ComBat. Their first message asks for sums about site means.

Each site sends its row count, the sums of its columns and of the covariates to keep, and the sums of
their squares and products about its own means. The server adds up these sums, and estimates slopes,
grand means and deviations within sites from all sites together:

    slopes  = (sum A'A)^+ sum A'X
    grand   = (sum X'1 - slopes' sum A'1) / n
    sigma^2 = (sum of squares - diag(slopes' sum A'X)) / n

With these estimates, each site standardizes its rows and computes how it differs from all sites together
(see `rows.combat`). These differences stay at the site. The second message is the usual opening, of
harmonized rows. If a different set of sites answers the second message, the estimates belong to
other rows, and the opening starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.kinds import ROWS, VECTOR, ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Merge, Stage, add_answer
from flower_pca.names.columns import enumeration
from flower_pca.rows.combat import LEAST_ROWS
from flower_pca.rows.covariates import ADJUSTED, Covariates, pseudo_inverse
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.moves import residual_squares
from flower_pca.stages import outlying_sites
from flower_pca.stages.adjusted_opening import COVARIATES
from flower_pca.stages.opening import (
    CONSTANT,
    OUTLYING,
    SITE_DEVIATIONS,
    SITE_KEYS,
    SITE_MEANS,
    SITE_ROWS,
    SITE_SUMS,
    SUMMED,
    Opening,
    OpeningState,
)
from flower_pca.stages.summed_opening import SummedOpening, SummedState

_MOST: Final = 2**16  # the maximum number of covariates in a message
# A sum of squares up to this share of a column's squares consists only of rounding errors.
_CONSTANT: Final = 1e-12
_LEAST_COLUMNS: Final = 3  # With fewer columns, the distribution of site differences cannot be estimated.
_NUMBERS: Final = ("slopes", "grand", "sigma")  # the estimates that the second message sends to the sites
# Two keys of individual answers that are kept with the sums of the first message: for whole answers, and for the
# parts about columns that may be constant at a site.
_SAID, _STILL = "said", "still"


@dataclass(frozen=True)
class HarmonizedState:
    """The covariates with the estimates for all sites together, and the state of the inner opening.

    `came` lists the clients that answered the first message. `said` holds their answers, which are used to
    find outlying sites, or is empty if there are too many sites. `still` holds the parts of these answers that are
    used to find constant columns, for any number of sites. `over` is True if the inner opening is complete.
    """

    features: OpeningState
    covariates: Covariates
    columns: tuple[str, ...] = ()
    came: tuple[int, ...] = ()
    over: bool = False
    said: dict[int, dict[str, Array]] = field(default_factory=dict)
    still: dict[int, dict[str, Array]] = field(default_factory=dict)


@dataclass(frozen=True)
class HarmonizedSumsState:
    """The state of a harmonized opening under masks, without answers from individual sites."""

    features: SummedState
    covariates: Covariates
    columns: tuple[str, ...] = ()
    came: tuple[int, ...] = ()
    over: bool = False


@dataclass(frozen=True, kw_only=True)
class _Harmonized(Stage[Any]):
    """The base class of both harmonized openings, which implements their first message."""

    Inner: ClassVar[type[Any]]  # the class of the opening of the harmonized rows

    inner: Any

    def start(self, model: Model) -> Any:
        assert model.covariates is not None
        return self.State(self.inner.start(model), model.covariates, model.wanted or ())

    def broadcast(self, state: Any) -> Arrays:
        q = {"covariates": np.array(state.covariates.adjusted)}
        if state.covariates.sigma is None:
            return q
        numbers = {name: getattr(state.covariates, name) for name in _NUMBERS}
        return {**q, **numbers, **self.inner.broadcast(state.features)}

    @classmethod
    def parts(cls, arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "sigma" in arrays:
            found: Mapping[str, Part] = cls.Inner.parts(_inner_arrays(cls.Inner, arrays), len(arrays["sigma"]))
            return found
        q, columns = int(arrays["covariates"]), Part((d,), Kind.COLUMNS)
        first = {"n": ROWS, "sums": columns, "squares": columns}
        if not q:
            return first
        own = {"covariate_sums": (q,), "covariate_products": (d, q), "covariate_squares": (q, q)}
        return first | {name: Part(shape, COVARIATES) for name, shape in own.items()}

    @classmethod
    def client(cls, arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        known, q = data.frame.covariates, int(arrays["covariates"])
        if q != (0 if known is None else known.adjusted) or ("sigma" in arrays and known is None):
            raise ProtocolError(
                f"The server asks for {labels.count(q, 'covariate')}, but its settings name a different number. "
                f"{OTHER_SERVER}"
            )
        _require_whole_rows(data)
        if "sigma" in arrays:
            shapes = {"slopes": (q, data.d), "grand": (data.d,), "sigma": (data.d,)}
            if any(arrays[name].shape != shape for name, shape in shapes.items()) or not (arrays["sigma"] > 0.0).all():
                raise ProtocolError(
                    f"A harmonized opening needs one number for each of {labels.count(data.d, 'column')}, and "
                    f"deviations above 0. {OTHER_SERVER}"
                )
            numbers: dict[str, Any] = {name: arrays[name] for name in _NUMBERS}
            assert known is not None
            harmonized: Any = data.with_covariates(replace(known, **numbers))
            up, _ = cls.Inner.client(_inner_arrays(cls.Inner, arrays), harmonized, {})
            return up, {}
        return _site_sums(data, q), {}

    def bounds(self, state: Any, model: Model) -> Mapping[str, Array | float]:
        if state.covariates.sigma is not None:
            found: Mapping[str, Array | float] = self.inner.bounds(state.features, model)
            return found
        unknown = dict.fromkeys(self.parts(self.broadcast(state), model.d or None), 0.0)
        return {**unknown, "n": MOST_ROWS}

    def inspect(self, state: Any, reply: Arrays) -> None:
        if state.covariates.sigma is not None:
            self.inner.inspect(state.features, reply)
        elif (reply["squares"] < 0.0).any():
            raise ProtocolError(f"An answer has negative sums of squares. {OTHER_CLIENT}")

    def merging(self, state: Any) -> Merge:
        if state.covariates.sigma is None:
            return add_answer
        found: Merge = self.inner.merging(state.features)
        return found

    def server(self, state: Any, total: Any, answered: frozenset[int]) -> Any:
        if state.covariates.sigma is None:
            return replace(state, covariates=_common_estimates(state, total, answered), came=tuple(sorted(answered)))
        if tuple(sorted(answered)) != state.came:  # The estimates were computed from a different set of sites.
            return replace(state, covariates=state.covariates.without_arrays, came=())
        features = self.inner.server(state.features, total, answered)
        return replace(state, features=features, over=self.inner.status(features) is not None)

    def status(self, state: Any) -> Status | None:
        if not state.over:
            return None
        found: Status | None = self.inner.status(state.features)
        return found

    def finish(self, state: Any, model: Model) -> Model:
        found: Model = self.inner.finish(state.features, model)
        # The rows of each site were shifted by their own means, so their sums do not show how sites still differ.
        sites = {name: a for name, a in found.sites.items() if name != SITE_SUMS}
        left = {**found.left, ADJUSTED: np.array(len(state.came) - 1)}
        return replace(found, frame=replace(found.frame, covariates=state.covariates), sites=sites, left=left)


@dataclass(frozen=True, kw_only=True)
class HarmonizedOpening(_Harmonized):
    """An opening of harmonized rows for runs in which the server sees individual answers.

    Cost: in addition to the cost of the opening, a client needs 2 n_i d (q + 1) flops for q covariates, and
    q + 2 columns of d floats travel each way.
    """

    name: ClassVar[str] = "harmonized_opening"
    State: ClassVar[type] = HarmonizedState
    Inner: ClassVar[type[Any]] = Opening
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        **Opening.asks,
        "covariates": index_rule(_MOST),
        "slopes": ArrayRule(dimensions=2),
        "grand": VECTOR,
        "sigma": VECTOR,
    }

    inner: Opening

    def merging(self, state: HarmonizedState) -> Merge:
        if state.covariates.sigma is not None:
            return self.inner.merging(state.features)

        def merge(total: dict[str, Any] | None, client: int, reply: Arrays) -> dict[str, Any]:
            before = None if total is None else {name: a for name, a in total.items() if name not in (_SAID, _STILL)}
            said = {} if total is None else total[_SAID]
            both = add_answer(before, client, reply)
            still = {} if total is None else total[_STILL]
            if (len(said) + 1) * len(reply["sums"]) <= SUMMED:
                said[client] = reply
            still[client] = _possibly_constant_columns(reply)
            return {**both, _SAID: said, _STILL: still}

        return merge

    def server(self, state: HarmonizedState, total: Any, answered: frozenset[int]) -> HarmonizedState:
        new: HarmonizedState = super().server(state, total, answered)
        if state.covariates.sigma is not None:
            return new
        said, still = (
            {client: own for client, own in total[kept].items() if client in answered} for kept in (_SAID, _STILL)
        )
        return replace(new, said=said if len(said) == len(answered) else {}, still=still)

    def finish(self, state: HarmonizedState, model: Model) -> Model:
        found = super().finish(state, model)
        few = [state.still[client] for client in state.came]
        slopes = np.zeros((0, found.d)) if state.covariates.slopes is None else state.covariates.slopes
        constant = [
            (place, int(column))
            for place, own in enumerate(few)
            for column in own["columns"][_residual_squares(own, slopes[:, own["columns"]]) <= 0.0]
        ]
        told = {
            **found.sites,
            SITE_KEYS: np.array(state.came, dtype=np.uint64),
            SITE_ROWS: np.array([int(own["n"]) for own in few]),
            CONSTANT: np.array(constant, dtype=np.int64).reshape(-1, 2),
        }
        if SITE_MEANS in told and state.said:
            told |= _before_harmonizing([state.said[client] for client in state.came], told[OUTLYING])
        return replace(found, sites=told)


@dataclass(frozen=True, kw_only=True)
class HarmonizedSummedOpening(_Harmonized):
    """An opening of harmonized rows for runs in which the server sees only sums.

    Cost: in addition to the cost of the opening under masks, a client needs 2 n_i d (q + 1) flops for q
    covariates, and sends q + 2 columns of d floats.
    """

    name: ClassVar[str] = "harmonized_summed_opening"
    needs_rows: ClassVar[bool] = True
    State: ClassVar[type] = HarmonizedSumsState
    Inner: ClassVar[type[Any]] = SummedOpening
    asks: ClassVar[Mapping[str, ArrayRule]] = {**HarmonizedOpening.asks, **SummedOpening.asks}

    inner: SummedOpening


def _residual_squares(site_sums: Arrays, slopes: Array) -> Array:
    """Return the sums of squares of a site's columns about their means, after removing these slopes."""
    squares, q = np.asarray(site_sums["squares"], dtype=np.float64), len(slopes)
    products = site_sums.get("covariate_products", np.zeros((len(squares), q)))
    return residual_squares(squares, products, site_sums.get("covariate_squares", np.zeros((q, q))), slopes)


def _possibly_constant_columns(reply: Arrays) -> Arrays:
    """Return the part of an answer about columns that may be constant at the site after slopes are removed.

    The site's own least squares slopes leave the smallest sums of squares, so a column that varies after
    their removal varies after the removal of any slopes. Few columns are left, so this part of the answer
    can be kept for any number of sites.
    """
    slopes = np.zeros((0, len(reply["squares"])))
    if "covariate_products" in reply:
        slopes = pseudo_inverse(np.asarray(reply["covariate_squares"])) @ np.asarray(reply["covariate_products"]).T
    places = np.flatnonzero(_residual_squares(reply, slopes) <= _CONSTANT * reply["squares"])
    found = {"n": reply["n"], "columns": places, "squares": reply["squares"][places]}
    if len(places) and "covariate_products" in reply:
        found["covariate_products"] = reply["covariate_products"][places]
        found["covariate_squares"] = reply["covariate_squares"]
    return found


def _before_harmonizing(sites: list[dict[str, Array]], harmonized: Array) -> Arrays:
    """Return the sites' means and deviations before harmonizing, and the outlying sites.

    Harmonized rows have the same location and scale at all sites, so they show only outlying correlations.
    All other outlying sites are found from the rows before harmonizing.
    """
    rows = np.array([float(own["n"]) for own in sites])
    means = np.array([own["sums"] for own in sites]) / rows[:, None]
    deviations = np.sqrt(np.array([own["squares"] for own in sites]) / rows[:, None])
    far = outlying_sites.sites_as_array(outlying_sites.find_outlying(rows, means, deviations))
    turned = [one for one in harmonized if one[1] == outlying_sites.OutlyingKind.CORRELATIONS]
    new = [one for one in turned if one[0] not in far[:, 0]]
    return {SITE_MEANS: means, SITE_DEVIATIONS: deviations, OUTLYING: np.array([*far, *new]).reshape(-1, 4)}


def _inner_arrays(inner: type[Any], arrays: Arrays) -> Arrays:
    """Return the arrays of a message that belong to the inner opening."""
    return type(arrays)({name: a for name, a in arrays.items() if name in inner.asks})


def _require_whole_rows(data: LocalData) -> None:
    """Raise DataError with the names of columns with missing values, because harmonizing needs complete rows."""
    if data.missing:
        seen = np.broadcast_to(np.asarray(data.moments().value_counts), data.d)
        names = labels.column_names(data.frame.names, data.d)
        columns = enumeration(name for name, count in zip(names, seen, strict=True) if count < data.n)
        raise DataError(
            f"{labels.capitalize(data.who)} has missing values in {columns}, but harmonizing needs complete "
            "rows. Impute missing values before the run, or leave out incomplete rows."
        )


def _site_sums(data: LocalData, q: int) -> Arrays:
    """Return a site's row count and sums, and its squares and products about its own means, before harmonizing.

    Raise DataError if the site has too few rows.
    """
    d, joint = data.d, data if data.frame.covariates is None else data.joint_in(Frame())
    if joint.n < LEAST_ROWS:
        raise DataError(
            f"{labels.capitalize(data.who)} has fewer than {LEAST_ROWS} rows, which are too few to estimate its "
            "variances reliably. Leave this site out, or wait until it has 10 rows."
        )
    units = np.zeros((joint.d, q))
    units[d : d + q] = np.eye(q)
    moments, product = joint.local_product(units)
    n, means = joint.n, np.asarray(moments.mean, dtype=np.float64)
    up = {"n": np.array(n), "sums": n * means[:d], "squares": np.asarray(moments.m2[:d], dtype=np.float64)}
    if not q:
        return up
    product = product.astype(np.float64)
    return up | {
        "covariate_sums": n * means[d : d + q],
        "covariate_products": product[:d],
        "covariate_squares": product[d : d + q],
    }


def _common_estimates(state: Any, total: Arrays, answered: frozenset[int]) -> Covariates:
    """Return the covariates with the estimates for all sites: slopes, grand mean and deviations within sites.

    Raise DataError if harmonizing is impossible, for example because there is only one site.
    """
    asked: Covariates = state.covariates
    n, d = float(total["n"]), len(total["sums"])
    if len(answered) < 2:
        raise DataError("A single site cannot be harmonized with others. Leave harmonize out, or wait for more sites.")
    if d < _LEAST_COLUMNS:
        raise DataError(
            f"There are {d} columns, but harmonizing needs at least {_LEAST_COLUMNS}, because it uses the "
            f"distribution of site differences over columns. Run with {option('adjust', ['site'])} instead."
        )
    slopes, along = np.zeros((0, d)), np.zeros(0)
    if asked.adjusted:
        products, squares = total["covariate_products"], total["covariate_squares"]
        sums = np.asarray(total["covariate_sums"])
        own = np.diagonal(squares)
        still = [
            name for name, a, b in zip(asked.adjusted_names, own, sums, strict=True) if not a > _CONSTANT * b**2 / n
        ]
        if still:
            raise DataError(
                f"These covariates of keep do not vary within any site: {enumeration(still)}. They vary only between "
                "sites, so they cannot be kept. Leave them out of keep."
            )
        slopes, along = pseudo_inverse(squares) @ products.T, sums
    grand = (total["sums"] - slopes.T @ along) / n
    left = np.asarray(total["squares"], dtype=np.float64)
    if asked.adjusted:
        left = left - np.einsum("dq,qd->d", total["covariate_products"], slopes)
    constant = np.flatnonzero(~(left > _CONSTANT * total["squares"]))
    if len(constant):
        every = labels.column_names(state.columns or None, d)
        names = [every[j] for j in constant.tolist()]
        raise DataError(
            f"Within sites, there is no variation in {enumeration(names)} beyond what the covariates explain, so there "
            "is no scale to harmonize. Leave such columns out of the run."
        )
    return replace(asked, slopes=slopes, grand=np.asarray(grand), sigma=np.sqrt(left / n))
