"""The share of each component's variance that covariates and the site of a row explain.

A component may follow age, or be mostly a difference between sites. The share that columns explain
comes from a least squares fit of the scores on these columns over the rows of all sites. It is 1 - RSS
/ TSS, with the residual sum of squares RSS and the total sum of squares TSS. Both follow from sums over
rows, so one message is enough, and masks can hide the answers of single sites. Each site sends the sums
about its own means separately from the sums of these means about 0, because the share of the site
follows from both:

    share of columns                  1 - RSS(columns) / TSS
    share of the site                 1 - (sum of squares about site means) / TSS
    share of the site beyond columns  1 - RSS(columns and sites) / RSS(columns)

Under masks, the server sees no site's mean, only sums over sites.

If sites were harmonized, the shares are computed for two kinds of scores along the same components:
those of the rows before harmonizing, and those of the harmonized rows. Harmonized rows were shifted by
the means of their own site, so the share of the site exists only for the rows before harmonizing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, COUNT, FLAG, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, status_when
from flower_pca.rows import covariates, moves
from flower_pca.rows.covariates import SITE, Covariates
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import RowOperator
from flower_pca.stages.site_share import (
    BY_COLUMNS,
    BY_COLUMNS_BEFORE,
    NOTHING,
    SITE_SHARE,
    SITE_SHARE_BEFORE,
    SITES,
    has_no_site_means,
    positions_by_name,
)

EXPLAINED: Final = Kind(
    "explained", "sums, squares and products of scores and of columns that the rules name", bound=None
)
PLACES: Final = ArrayRule(dimensions=1, least=0, whole=True)
_OF_COLUMNS: Final = ("sums", "products", "scores", "products_between", "scores_between")
_OF_SCORES: Final = ("means", "within", "between", "scores", "scores_between")
_BEFORE: Final = "before_"  # the prefix of sums over the rows before harmonizing


@dataclass(frozen=True)
class ExplainedState:
    """The components with their sums of squares, the columns' positions among the covariates, and sums over rows.

    `total` holds the sums after the message. If `before` is True, the shares of the rows before harmonizing are
    computed, too.
    """

    Z: Array
    places: Array
    values: Array
    before: bool = False
    total: dict[str, Array] | None = None
    sites: int = 0


@dataclass(frozen=True, kw_only=True)
class Explained(Stage[ExplainedState]):
    """A stage that computes explained shares from sums of scores and columns over rows.

    Cost: a client needs 4 n_i d (k + q) flops for q columns, the server sends k columns of d floats,
    and each client sends about (k + q)^2 numbers, once.
    """

    name: ClassVar[str] = "explain"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"Z": BLOCK, "places": PLACES, "before": FLAG}

    def start(self, model: Model) -> ExplainedState:
        assert model.values is not None
        known = () if model.covariates is None else model.covariates.names
        places = np.array([known.index(name) for name in model.explain if name != SITE], dtype=np.float64)
        return ExplainedState(model.columns[:, : model.k], places, model.values[: model.k], _is_harmonized(model))

    def broadcast(self, state: ExplainedState) -> Arrays:
        before = {"before": np.array(True)} if state.before else {}
        return {"Z": state.Z, "places": state.places, **before}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        k, q = arrays["Z"].shape[1], len(arrays["places"])
        found = {"n": ROWS, "sites": COUNT, **dict.fromkeys(("means", "within", "between"), Part((k,), EXPLAINED))}
        if q:
            shapes = ((q,), (q, q), (q, k), (q, q), (q, k))
            found |= {name: Part(shape, EXPLAINED) for name, shape in zip(_OF_COLUMNS, shapes, strict=True)}
        if "before" not in arrays:
            return found
        return found | {f"{_BEFORE}{name}": found[name] for name in _OF_SCORES if name in found}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        Z = arrays["Z"].astype(np.float64)
        places, known = np.asarray(arrays["places"], dtype=np.int64), data.frame.covariates
        up = _site_sums(Z, places, data, known)
        if "before" in arrays:
            if known is None:
                raise ProtocolError(
                    "A message for explain is about harmonized rows, but the rows of this node are not harmonized. "
                    f"{OTHER_SERVER}"
                )
            before = _site_sums(Z, places, data, known.without_arrays)
            up |= {f"{_BEFORE}{name}": before[name] for name in _OF_SCORES if name in before}
        return up, memory

    def bounds(self, state: ExplainedState, model: Model) -> Mapping[str, Array | float]:
        most = 2.0 * np.maximum(state.values, NOTHING * float(state.values[0]))
        known: dict[str, Array | float] = {
            "n": MOST_ROWS,
            "sites": 1.0,
            "means": np.sqrt(most * model.n),
            "within": most,
            "between": most,
        }
        if len(state.places):
            known |= dict.fromkeys(_OF_COLUMNS, 0.0)  # The size of the columns is unknown.
        if state.before:  # The size of the rows before harmonizing is unknown, too.
            known |= {f"{_BEFORE}{name}": 0.0 for name in _OF_SCORES if name in known}
        return known

    def inspect(self, state: ExplainedState, reply: Arrays) -> None:
        squares = [a for name, a in reply.items() if name.removeprefix(_BEFORE) in ("within", "between")]
        if any((a < 0.0).any() for a in squares):
            raise ProtocolError(f"An answer has negative sums of squares. {OTHER_CLIENT}")

    def server(self, state: ExplainedState, total: Arrays, answered: frozenset[int]) -> ExplainedState:
        return replace(state, total=dict(total), sites=round(float(total["sites"])))

    def status(self, state: ExplainedState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: ExplainedState, model: Model) -> Model:
        assert state.total is not None
        total, n, left = state.total, float(state.total["n"]), dict(model.left)
        varies = state.values > NOTHING * float(state.values[0])
        of_site, by_columns = _explained_shares(total, n, varies, model, state.sites)
        if of_site is not None and SITE in model.explain and not has_no_site_means(model):
            left[SITE_SHARE], left[SITES] = of_site, np.array(state.sites)
        if by_columns:
            left[BY_COLUMNS] = np.array(by_columns[:-1] if has_no_site_means(model) else by_columns)
        if state.before:
            total = {**total, **{name: total[f"{_BEFORE}{name}"] for name in _OF_SCORES if name in total}}
            of_site, by_columns = _explained_shares(total, n, np.ones_like(varies), model, state.sites)
            if of_site is not None:
                left[SITE_SHARE_BEFORE] = of_site
            if by_columns:
                left[BY_COLUMNS_BEFORE] = np.array(by_columns)
        return replace(model, left=left)


def _is_harmonized(model: Model) -> bool:
    return model.frame.covariates is not None and model.frame.covariates.sigma is not None


def _explained_shares(
    total: Arrays, n: float, varies: Array, model: Model, sites: int
) -> tuple[Array | None, list[Array]]:
    """Return the shares of the site, and a list of the shares of columns. A component that does not vary has share 0.

    The share of the site is None if there is a single site, or if every site has a single row.
    """
    within = np.maximum(total["within"], 0.0)
    whole = within + total["between"] - total["means"] ** 2 / n
    varies = varies & (whole > 0.0)
    of_site = _explained_share(within, whole, varies) if n > sites > 1 else None
    if "products" not in total:
        return of_site, []
    return of_site, _shares_by_column(total, n, within, whole, varies, positions_by_name(model.explain), sites)


def _site_sums(Z: Array, positions: Array, data: Any, covariates: Covariates | None) -> dict[str, Array]:
    """Return the sums that a site sends about its rows, after adjusting or harmonizing them with `covariates`."""
    k, q = Z.shape[1], len(positions)
    sums, G = _sums_over_rows(Z, positions, data, covariates)
    scores, columns = slice(0, k), slice(k, k + q)
    found = {
        "n": np.array(data.n),
        "sites": np.array(1),
        "means": sums[scores],
        "within": np.maximum(np.diagonal(G)[scores], 0.0),
        "between": sums[scores] ** 2 / data.n,
    }
    if not q:
        return found
    return found | {
        "sums": sums[columns],
        "products": G[columns, columns],
        "scores": G[columns, scores],
        "products_between": np.outer(sums[columns], sums[columns]) / data.n,
        "scores_between": np.outer(sums[columns], sums[scores]) / data.n,
    }


def _sums_over_rows(
    Z: Array, positions: Array, data: RowOperator, covariates: Covariates | None
) -> tuple[Array, Array]:
    """Return the sums of scores and columns over a site's rows, and their products about the site's means.

    Raise ProtocolError if a position is not the position of a covariate.
    """
    frame = data.frame
    if not len(positions) and covariates is frame.covariates:
        sums = data.moments().sums_in_frame(frame)[0] @ Z
        if covariates is not None and covariates.within:
            sums = np.zeros(Z.shape[1])
        G = Z.T @ data.matmat(Z).astype(np.float64)
        return sums, G - np.outer(sums, sums) / data.n
    if covariates is None or int(positions.max(initial=-1)) >= len(covariates.names):
        raise ProtocolError(f"A message for explain names columns that are not among its covariates. {OTHER_SERVER}")
    k, d, q, p = Z.shape[1], data.d, len(positions), len(covariates.names)
    stored = data.joint_in(Frame(own=frame.own))
    move = moves.row_map_of(stored, d, covariates)
    last = d + len(move.slopes)
    W = frame.unscale(Z)
    block = np.zeros((d + p, k + q))
    block[:d, :k] = move.factor[:, None] * W
    block[d:last, :k] = -move.slopes @ W
    block[d + positions, k + np.arange(q)] = 1.0
    mean = np.asarray(stored.moments().mean, dtype=np.float64).copy()
    mean[:d] = move.shift + frame.column_centers / move.factor
    mean[d:last] = move.mean
    fill = None if frame.fill is None else np.concatenate([frame.fill, np.zeros(p)])
    joint = data.joint_in(Frame(mean, None, fill, own=frame.own))
    off = np.zeros(d + p) if covariates.within else joint.moments().sums_in_frame(joint.frame)[0]
    sums = off @ block
    G = block.T @ joint.matmat(block, reuse=1).astype(np.float64) - np.outer(sums, sums) / data.n
    # The sums of the columns are taken about 0, because not all sites know the common mean.
    sums[k:] += data.n * mean[d + positions]
    return sums, G


def _shares_by_column(
    total: Arrays, n: float, within: Array, sums: Array, varies: Array, names: dict[str, list[int]], sites: int
) -> list[Array]:
    """Return the shares of each column, of all columns together if there are several, and of the site beyond them."""
    products = total["products"] + total["products_between"] - np.outer(total["sums"], total["sums"]) / n
    scores = total["scores"] + total["scores_between"] - np.outer(total["sums"], total["means"]) / n
    every = list(range(len(products)))
    together = [every] if len(names) > 1 else []
    found = [
        _explained_share(_residual_squares(products, scores, sums, places), sums, varies)
        for places in (*names.values(), *together)
    ]
    left = _residual_squares(products, scores, sums, every)
    inside = _residual_squares(total["products"], total["scores"], within, every)
    beyond = np.zeros_like(sums)
    if n > sites > 1:
        beyond = _explained_share(inside, left, varies & (left > NOTHING * sums))
    return [*found, beyond]


def _residual_squares(products: Array, scores: Array, sums: Array, positions: list[int]) -> Array:
    """Return the residual sums of squares of the scores after a least squares fit on the columns at `positions`."""
    inverse = covariates.pseudo_inverse(products[np.ix_(positions, positions)])
    along = scores[positions]
    return np.asarray(np.maximum(sums - np.einsum("qk,qr,rk->k", along, inverse, along), 0.0))


def _explained_share(left: Array, sums: Array, varies: Array) -> Array:
    share = 1.0 - left / np.where(varies, sums, 1.0)
    return np.where(varies, np.clip(share, 0.0, 1.0), 0.0)
