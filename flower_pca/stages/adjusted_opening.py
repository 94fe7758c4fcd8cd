"""Openings of runs that remove the effect of covariates. They need no additional message.

With the features X and the covariates A of all rows, both centered, the slopes of least squares are
(A'A)^+ A'X. The residuals of the rows have

    squares of the columns    x_j'x_j - (X'A slopes)_jj
    product with a block B    X'X B - X'A slopes B

Therefore, the answers to an opening need only A'X and A'A in addition. The pseudo-inverse ignores covariates
that depend linearly on other covariates. If each site's own means are removed, X and A are centered at
these means, and no mean leaves a site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import COUNT, FLAG, ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Claim, Model
from flower_pca.core.stage import Arrays, Merge, Stage, status_when
from flower_pca.rows.covariates import ADJUSTED, INVERSE, count_independent, pseudo_inverse
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.stages.opening import SITE_ROWS, SITE_SUMS, Opening, OpeningState
from flower_pca.stages.summed_opening import SummedOpening, SummedState, as_opening_state

COVARIATES: Final = Kind(
    "covariates", "how each column changes with covariates that the rules name, as sums over rows", bound=None
)
_MOST: Final = 2**16  # the maximum number of covariates in a message
_EXPLAINED: Final = 1e-12  # below this share of a column's squares, covariates explain all of the column
_SLACK: Final = 1e-3  # the relative amount by which sums may exceed their limits because of rounding
_LEAST: Final = 1e-150  # added to sums of squares, because a bound of 0 means that the bound is unknown
_MEANS, _CROSS, _SQUARES = "covariate_means", "covariate_products", "covariate_squares"
_SEEN: Final = "covariate_sums_where_seen"  # for each column, the sums of the covariates over the rows with a value
_SITES = "sites"  # the number of sites that have rows
_FILLS: Final = "common_fill"  # whether missing values are replaced by the mean of all rows


@dataclass(frozen=True)
class AdjustedState:
    """The state of the features' opening, the sums of the covariates, and each client's contribution to them.

    If `fills` is True, missing values are replaced by the mean of all rows.
    """

    features: OpeningState
    covariates: int
    fills: bool = False
    total: dict[str, Array] | None = None
    said: dict[int, dict[str, Array]] = field(default_factory=dict)
    sites: int = 0


def _covariate_parts(d: int | None, q: int, *, fills: bool) -> dict[str, Part]:
    """Return the parts that q covariates add to an answer."""
    if not q:
        return {}
    found = {_MEANS: Part((q,), COVARIATES), _CROSS: Part((d, q), COVARIATES), _SQUARES: Part((q, q), COVARIATES)}
    return {**found, _SEEN: Part((d, q), COVARIATES)} if fills else found


def _covariate_requests(state: AdjustedState | AdjustedSumsState) -> Arrays:
    """Return the arrays with which a message requests sums of covariates."""
    asked = {"covariates": np.array(state.covariates)}
    return {**asked, _FILLS: np.array(True)} if state.fills else asked


def _client_sums(arrays: Arrays, data: LocalData) -> Arrays:
    """Return a client's covariate means, and the centered products of covariates with features and with each other.

    Raise ProtocolError if the message does not fit the covariates of the frame.
    """
    q, known = int(arrays["covariates"]), data.frame.covariates
    if q != (0 if known is None else known.adjusted):
        raise ProtocolError(
            f"The server asks for {labels.count(q, 'covariate')}, but its settings name a different number. "
            f"{OTHER_SERVER}"
        )
    if not q or known is None:
        return {}
    joint = data.joint_in(Frame(own=data.frame.own))
    units = np.zeros((joint.d, q))
    units[data.d : data.d + q] = np.eye(q)
    moments, product = joint.local_product(units)
    means = np.asarray(moments.mean[data.d : data.d + q], dtype=np.float64)
    if known.within:
        means = np.zeros(q)
    product = product.astype(np.float64)
    own = {_MEANS: means, _CROSS: product[: data.d], _SQUARES: product[data.d : data.d + q]}
    if _FILLS not in arrays:
        return own
    if data.frame.own or known.within or "gaps" not in arrays:
        raise ProtocolError(
            "A message asks to fill missing values both with the means of the node and with the means of all nodes. "
            f"{OTHER_SERVER}"
        )
    return {**own, _SEEN: joint.sums_where_seen(slice(data.d, data.d + q))[: data.d]}


@dataclass(frozen=True, kw_only=True)
class AdjustedOpening(Stage[AdjustedState]):
    """An opening in one message that also requests the products of features and covariates.

    `inner` is the opening of the features alone.

    Cost: in addition to the cost of the opening, a client needs 4 n_i d q flops for q covariates, and sends
    q columns of d floats, or 2 q columns if missing values are replaced by the mean of all rows.
    """

    name: ClassVar[str] = "adjusted_opening"
    asks: ClassVar[Mapping[str, ArrayRule]] = {**Opening.asks, "covariates": index_rule(_MOST), _FILLS: FLAG}

    inner: Opening

    def start(self, model: Model) -> AdjustedState:
        assert model.covariates is not None
        fills = model.missing == "mean"
        return AdjustedState(self.inner.start(model), model.covariates.adjusted, fills)

    def broadcast(self, state: AdjustedState) -> Arrays:
        return {**self.inner.broadcast(state.features), **_covariate_requests(state)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {**Opening.parts(arrays, d), **_covariate_parts(d, int(arrays["covariates"]), fills=_FILLS in arrays)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        up, _ = Opening.client(arrays, data, {})
        if data.frame.covariates is not None and data.frame.covariates.within:
            up["mean"] = np.zeros(data.d)  # After centering, the site's mean consists only of rounding errors.
        return {**up, **_client_sums(arrays, data)}, {}

    def inspect(self, state: AdjustedState, reply: Arrays) -> None:
        self.inner.inspect(state.features, reply)
        if not state.covariates:
            return
        own = np.diagonal(reply[_SQUARES])
        if (own < 0.0).any():
            raise ProtocolError(f"An answer has negative sums of squares of covariates. {OTHER_CLIENT}")
        # The roots are taken first, because a product of two tiny sums of squares would be 0.
        limits = {_CROSS: np.outer(np.sqrt(reply["m2"]), np.sqrt(own))}
        if state.fills:
            limits[_SEEN] = np.outer(np.sqrt(reply["n"] - reply["count"]), np.sqrt(own))
        eps = float(reply["eps"])
        if any(_exceeds_limit(reply[name], most, eps) for name, most in limits.items()):
            raise ProtocolError(
                "An answer contradicts itself: its products with covariates are larger than its squares allow. "
                f"{OTHER_CLIENT}"
            )

    def merging(self, state: AdjustedState) -> Merge:
        of_features = self.inner.merging(state.features)

        def merge(total: dict[str, Any] | None, client: int, reply: Arrays) -> dict[str, Any]:
            both = of_features(None if total is None else total["features"], client, reply)
            said = {} if total is None else total["said"]
            said[client] = {name: reply[name] for name in (_MEANS, _SQUARES) if name in reply}
            names = _covariate_parts(0, state.covariates, fills=state.fills)
            own = {name: np.asarray(reply[name], dtype=np.float64) for name in names}
            if total is not None:
                own = _merge_covariates(total, own, reply, both)
            return {
                **{name: both[name] for name in ("n", "mean", "count") if name in both},
                "features": both,
                "said": said,
                **own,
            }

        return merge

    def server(self, state: AdjustedState, total: dict[str, Any], answered: frozenset[int]) -> AdjustedState:
        features = self.inner.server(state.features, total["features"], answered)
        own = {name: total[name] for name in _covariate_parts(0, state.covariates, fills=state.fills)}
        said = {client: said for client, said in total["said"].items() if client in answered}
        return replace(state, features=features, total=own, said=said, sites=len(answered))

    def status(self, state: AdjustedState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: AdjustedState, model: Model) -> Model:
        return adjusted_model(state, self.inner, model)


def _exceeds_limit(sums: Array, most: Array, eps: float) -> bool:
    """Return whether any of the sums exceeds its limit by more than rounding errors explain."""
    return bool((np.abs(sums) > (1.0 + _SLACK) * most + eps * float(np.max(most, initial=0.0))).any())


def _merge_covariates(total: Arrays, covariate_sums: Arrays, reply: Arrays, merged: Arrays) -> Arrays:
    """Merge the covariate sums of another answer into the total, and return the sums about the common means.

    `covariate_sums` holds the sums of the covariates in the answer `reply`. `merged` holds the statistics of the
    features after this answer, which include the common means.
    """
    before, there = float(total["n"]), float(reply["n"])
    both = before + there
    if not covariate_sums:
        return covariate_sums
    weight = before * there / both
    of_features, of_covariates = reply["mean"] - total["mean"], covariate_sums[_MEANS] - total[_MEANS]
    means = total[_MEANS] + of_covariates * (there / both)
    if _SEEN in covariate_sums:
        moved = [
            _recentered_sums(part, sums, merged["mean"], means)
            for part, sums in ((total, total), (reply, covariate_sums))
        ]
        added = {name: moved[0][name] + moved[1][name] for name in (_CROSS, _SEEN)}
        squares = total[_SQUARES] + covariate_sums[_SQUARES] + weight * np.outer(of_covariates, of_covariates)
        return {_MEANS: means, _SQUARES: squares, **added}
    return {
        _MEANS: means,
        _CROSS: total[_CROSS] + covariate_sums[_CROSS] + weight * np.outer(of_features, of_covariates),
        _SQUARES: total[_SQUARES] + covariate_sums[_SQUARES] + weight * np.outer(of_covariates, of_covariates),
    }


def _recentered_sums(part: Arrays, sums: Arrays, mean: Array, covariate_means: Array) -> Arrays:
    """Return sums over the present values of some rows, recentered from the means of these rows to the given means.

    `part` holds the counts and means of the features, and `sums` holds the sums of the covariates.
    """
    seen = np.asarray(part["count"], dtype=np.float64)
    off, away = np.where(seen > 0.0, part["mean"] - mean, 0.0), sums[_MEANS] - covariate_means
    return {
        _CROSS: sums[_CROSS] + off[:, None] * sums[_SEEN] + np.outer(seen * off, away),
        _SEEN: sums[_SEEN] + np.outer(seen, away),
    }


def adjusted_model(state: AdjustedState, features: Opening, model: Model) -> Model:
    """Return the model after an opening, with the part that covariates explain removed from the rows.

    Raise DataError if there are too few rows for the covariates.
    """
    assert state.total is not None
    assert state.features.total is not None
    assert model.covariates is not None
    total, d = dict(state.features.total), len(state.features.total["mean"])
    q = state.covariates
    means, cross, squares = (state.total.get(name, np.zeros(shape)) for name, shape in _shapes_of_sums(d, q).items())
    slopes = pseudo_inverse(squares) @ cross.T
    block = state.features.block_for(d)
    left = total["m2"] - np.einsum("dq,qd->d", cross, slopes)
    # If covariates explain all of a column, only rounding errors are left, which must not be scaled up.
    total["m2"] = np.where(left > _EXPLAINED * total["m2"], left, 0.0)
    total["product"] = total["product"].astype(np.float64) - cross @ (slopes @ block)
    rows = int(total["n"])
    within = state.sites - 1 if model.covariates.within else 0
    taken = count_independent(squares) + within
    if rows - 1 <= taken:
        raise DataError(
            f"The {rows} rows of all clients are too few to adjust for {taken} covariates and sites. Adjust for fewer "
            "covariates, or use more rows."
        )
    found = features.finish(replace(state.features, total=total), model)
    if features.bits < 64 and found.product is not None:
        # The products were rounded before the part of the covariates was removed, which may be the larger part.
        found = replace(found, basis=linalg.orth(found.product), product=None, opening_errors=None)
    covariates = replace(model.covariates, mean=means, slopes=slopes)
    frame = replace(found.frame, covariates=covariates)
    lengths = np.sqrt(np.sum((slopes / frame.column_divisors) ** 2, axis=1))
    return replace(
        found,
        frame=frame,
        claims={
            client: _claim_of_adjusted(claim, state.said[client], means, lengths)
            for client, claim in found.claims.items()
        },
        sites=_site_statistics(found.sites, state, means, slopes / frame.column_divisors),
        left={**found.left, ADJUSTED: np.array(taken), INVERSE: pseudo_inverse(squares)},
    )


def _shapes_of_sums(d: int, q: int) -> dict[str, tuple[int, ...]]:
    return {_MEANS: (q,), _CROSS: (d, q), _SQUARES: (q, q)}


def _claim_of_adjusted(claim: Claim, answer: Arrays, means: Array, lengths: Array) -> Claim:
    """Return a client's claim with a bound for its adjusted rows.

    The bound follows from the lengths of the original rows and of the subtracted part.
    """
    if not answer:
        return claim
    off = answer[_MEANS] - means
    sizes = np.sqrt(np.maximum(np.diagonal(answer[_SQUARES]), 0.0) + claim.n * off**2)
    return replace(claim, squares=(np.sqrt(claim.squares) + float(sizes @ lengths)) ** 2)


def _site_statistics(sites: Arrays, state: AdjustedState, means: Array, slopes: Array) -> Arrays:
    """Return the statistics of individual clients, with sums of the adjusted rows instead of the original rows."""
    if SITE_SUMS not in sites or not len(means):
        return sites
    off = np.array([state.said[client][_MEANS] for client in sorted(state.said)]) - means
    return {**sites, SITE_SUMS: sites[SITE_SUMS] - sites[SITE_ROWS][:, None] * (off @ slopes)}


@dataclass(frozen=True)
class AdjustedSumsState:
    """The state of the features' opening from sums, and the sums of the covariates.

    If `fills` is True, missing values are replaced by the mean of all rows.
    """

    features: SummedState
    covariates: int
    fills: bool = False
    reference: Array | None = None
    squares: Array | None = None
    total: dict[str, Array] | None = None
    sites: int = 0


@dataclass(frozen=True, kw_only=True)
class AdjustedSums(Stage[AdjustedSumsState]):
    """An opening with covariates for masked runs, in two messages of plain sums.

    The sums of the second message are about the means from the first message.

    Cost: in addition to the cost of the opening under masks, a client needs 4 n_i d q flops for q
    covariates, and sends q columns of d floats, or 2 q columns if missing values are replaced by the mean of
    all rows.
    """

    name: ClassVar[str] = "adjusted_summed_opening"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        **SummedOpening.asks,
        "covariates": index_rule(_MOST),
        _FILLS: FLAG,
        "covariate_reference": ArrayRule(dimensions=1),
    }

    inner: SummedOpening

    def start(self, model: Model) -> AdjustedSumsState:
        assert model.covariates is not None
        fills = model.missing == "mean"
        return AdjustedSumsState(self.inner.start(model), model.covariates.adjusted, fills)

    def broadcast(self, state: AdjustedSumsState) -> Arrays:
        sent = {**self.inner.broadcast(state.features), **_covariate_requests(state)}
        if state.reference is not None and state.covariates:
            sent["covariate_reference"] = state.reference
        return sent

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        q = int(arrays["covariates"])
        found = {**SummedOpening.parts(arrays, d), _SITES: COUNT}
        if q and "covariate_reference" in arrays:
            return {**found, **_covariate_parts(len(arrays["reference"]), q, fills=_FILLS in arrays)}
        if q:
            found |= {_MEANS: Part((q,), COVARIATES), _SQUARES: Part((q,), COVARIATES)}
        return found

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        asked = type(arrays)({name: a for name, a in arrays.items() if name in SummedOpening.asks})
        up, _ = SummedOpening.client(asked, data, {})
        own = _client_sums(arrays, data)
        within = data.frame.covariates is not None and data.frame.covariates.within
        if within:
            up["sums"] = np.zeros(data.d)
        up[_SITES] = np.array(1)
        if not own:
            return up, {}
        n, means = float(data.n), own[_MEANS]
        if "covariate_reference" not in arrays:
            squares = np.maximum(np.diagonal(own[_SQUARES]), 0.0) + n * means**2
            return {**up, _MEANS: n * means, _SQUARES: squares}, {}
        off = means - arrays["covariate_reference"]
        up |= {_MEANS: n * off, _SQUARES: own[_SQUARES] + n * np.outer(off, off)}
        cross = own[_CROSS] + np.outer(up["sums"], off)
        if _SEEN in own:
            cross += (up["sums"] / np.maximum(up["count"], 1))[:, None] * own[_SEEN]
            up[_SEEN] = own[_SEEN] + np.outer(up["count"], off)
        return {**up, _CROSS: cross}, {}

    def bounds(self, state: AdjustedSumsState, model: Model) -> Mapping[str, Array | float]:
        known = {**self.inner.bounds(state.features, model), _SITES: 1.0}
        if not state.covariates:
            return known
        if state.squares is None:
            return known | {_MEANS: 0.0, _SQUARES: 0.0}
        assert state.features.squares is not None
        s, a = 2.0 * (state.features.squares + _LEAST), 2.0 * (state.squares + _LEAST)
        products = {_CROSS: np.sqrt(np.outer(s, a)), _SQUARES: np.sqrt(np.outer(a, a))}
        if state.fills:
            products[_SEEN] = np.outer(np.ones(len(s)), np.sqrt(a * 2.0 * state.features.n))
        return known | {_MEANS: np.sqrt(a * 2.0 * state.features.n), **products}

    def server(self, state: AdjustedSumsState, total: Arrays, answered: frozenset[int]) -> AdjustedSumsState:
        first = state.reference is None
        features = self.inner.server(state.features, total, answered)
        if first:
            if not state.covariates:
                return replace(state, features=features, reference=np.zeros(0))
            means = total[_MEANS] / features.n
            squares = np.maximum(total[_SQUARES] - features.n * means**2, 0.0)
            return replace(state, features=features, reference=means, squares=squares + 1e-13 * total[_SQUARES])
        own: dict[str, Array] = {}
        if state.covariates:
            assert state.reference is not None
            n, of_features = float(np.rint(total["n"])), np.asarray(total["sums"])
            off = total[_MEANS] / n
            less = np.outer(of_features, off)
            if state.fills:
                less = (of_features / np.maximum(np.rint(total["count"]), 1.0))[:, None] * total[_SEEN]
            own = {
                _MEANS: state.reference + off,
                _CROSS: total[_CROSS] - less,
                _SQUARES: total[_SQUARES] - n * np.outer(off, off),
            }
        return replace(state, features=features, total=own, sites=round(float(total[_SITES])))

    def status(self, state: AdjustedSumsState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: AdjustedSumsState, model: Model) -> Model:
        opening = as_opening_state(state.features)
        whole = AdjustedState(opening, state.covariates, state.fills, state.total, sites=state.sites)
        return adjusted_model(whole, Opening(width=self.inner.width), model)
