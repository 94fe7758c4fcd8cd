"""The one opening message: count, mean, scale, total variance, and the first product.

A client works through its rows block by block, each centred by itself, and merges them (`_merge`); the server merges
clients in the same way, one after another. `finish` turns the merged answer into frame, totals, and a first basis with
its product, where scale and gaps have left that usable. What clients say of themselves is checked before it counts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.asks import BLOCK, FLAG, SEED, WIDTH, Ask
from flower_pca.core.claims import check_opening, claim
from flower_pca.core.kinds import COUNT, NUMBER, ROWS, Kind, Part, Shape
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge, Stage
from flower_pca.rows.frame import Frame, Moments, merge
from flower_pca.rows.local import LocalData
from flower_pca.stages import usable

# condition number of the scaled block up to which the first product is kept
_KEEP: Final = 1e3
# products are never computed in less
_COARSEST: Final = float(np.finfo(np.float32).eps)
# beside the merged arrays: what each client has said of itself
_SAYINGS: Final = "said"
# in the model, of single clients
SITE_KEYS, SITE_ROWS, SITE_MEANS, SITE_DEVIATIONS = "site_keys", "site_rows", "site_means", "site_deviations"
_COMPARED: Final = 2**15  # numbers at most by which clients are compared: a run carries them to its end
SAID: Final = ("n", "eps", "mean", "m2", "count")  # of that


@dataclass(frozen=True)
class OpeningState:
    """The block to multiply (an array, or the seed and width of a Gaussian one) and the merged replies.

    Beside them what each client has said of its own rows, which later answers are held against.
    """

    seed: int
    width: int
    peaks: bool
    gaps: bool = False
    block: Array | None = None
    total: dict[str, Array] | None = None
    said: dict[int, dict[str, Array]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Opening(Stage[OpeningState]):
    """Every client answers once, in its own local frame; the server turns that into the global one.

    With its own mean m_i a client sends n_i, m_i, the squared deviations per column, and P_i = X_i'(X_i B), its rows
    centred locally. Two replies merge exactly, by the pairwise update: with e = m_b - m_a,
    P = P_a + P_b + (n_a n_b / n) e (e'B). So memory stays O(d p), nothing cancels, and C B of the global frame is known
    after one message. A scale D acts on the server: D^-1 C D^-1 (D B) = D^-1 (C B).

    Where values are missing, a client sends the number that each column has, and mean and squared deviations are those
    of the values that are there. The product then has zeros for the others about the client's own mean, which is not
    that of the global frame: it serves as a start, and the next message measures it anew.

    Where clients are `judged`, what they say of themselves is held together, and kept to hold later answers against:
    two columns of each until the opening is over. A simulation needs neither.

    Cost: 4 n_i d p flops; p columns of d floats up, plus two to four columns; a seed down (or the block).
    """

    name: ClassVar[str] = "opening"
    asks: ClassVar[Mapping[str, Ask]] = {"peaks": FLAG, "gaps": FLAG, "seed": SEED, "width": WIDTH, "block": BLOCK}

    width: int
    judged: bool = True
    bits: int = 64  # with which products travel

    def start(self, model: Model) -> OpeningState:
        if model.basis is None:
            width = self.width
        else:
            width = model.basis.shape[1]
        gaps = model.missing != "error"
        return OpeningState(model.seed, width, model.scale == "max_abs", gaps, model.basis)

    def broadcast(self, state: OpeningState) -> Arrays:
        asked = {"peaks": np.array(state.peaks), **({"gaps": np.array(True)} if state.gaps else {})}
        if state.block is not None:
            return {**asked, "block": state.block}
        return {**asked, "seed": np.array(state.seed), "width": np.array(state.width)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        columns = dict.fromkeys(["mean", "m2", *(["peak"] if arrays["peaks"] else [])], Part((d,), Kind.COLUMNS))
        if "gaps" in arrays:
            columns |= {"count": Part((d,), Kind.COUNT)}
        product = Part(shape_of(arrays, d), Kind.LOCAL_PRODUCT)
        return {"n": ROWS, "rows": COUNT, "eps": NUMBER, **columns, "product": product}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        block = block_of(arrays, data.d)
        if len(block) != data.d:
            rule = f"{len(block)}, as in what this run asks"
            raise DataError("The number of columns", must=rule, got=data.d, then="Align the features first.")
        gaps = "gaps" in arrays
        if not gaps:
            data.complete()
        if block.dtype != data.dtype:
            with np.errstate(over="ignore"):
                block = block.astype(data.dtype)
        eps = np.array(np.finfo(data.dtype).eps, dtype=np.float64)
        by_rows = np.array(int(data.answers == "rows"))
        parts = (
            {
                **{"n": np.array(m.n), "rows": by_rows, "eps": eps, "mean": m.mean, "m2": m.m2, "product": product},
                **({"count": np.broadcast_to(m.seen, data.d)} if gaps else {}),
            }
            for m, product in data.products(block)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            up = functools.reduce(functools.partial(_merge, block), parts)
        usable.require_size(data, up["m2"])
        # What the client remembers is of another frame, and maybe of another set of clients: it starts afresh.
        return {**up, "peak": data.peak()} if arrays["peaks"] else up, {}

    def inspect(self, state: OpeningState, reply: Arrays) -> None:
        if odd := _odd(reply):
            what, rule, got = odd
            raise ProtocolError(what, must=rule, got=got, then="Check the client.")
        if self.judged:
            check_opening(reply, _block(state, len(reply["mean"])), bits=self.bits)

    def merging(self, state: OpeningState) -> Merge:
        def merge(total: dict[str, Any] | None, client: int, reply: Arrays) -> dict[str, Any]:
            if total is None:
                said = {}
            else:
                said = total.get(_SAYINGS, {})
            if self.judged:
                said[client] = {name: reply[name] for name in SAID if name in reply}
            return {**(reply if total is None else _both(state, total, reply)), _SAYINGS: said}

        return merge

    def server(self, state: OpeningState, total: dict[str, Any], answered: frozenset[int]) -> OpeningState:
        arrays = {name: a for name, a in total.items() if name != _SAYINGS}
        return replace(
            state, total=arrays, said={i: said for i, said in total.get(_SAYINGS, {}).items() if i in answered}
        )

    def status(self, state: OpeningState) -> Status | None:
        if state.total is not None:
            return Status.done()
        return None

    def finish(self, state: OpeningState, model: Model) -> Model:
        assert state.total is not None
        total, n = state.total, int(state.total["n"])
        mean, squares = total["mean"], total["m2"]
        fill, partial = usable.fill(total, model.feature_names), bool(np.any(total.get("count", n) < n))
        checks.at_most(model.n_components, n, len(mean))
        block, product = _block(state, len(mean)), total["product"].astype(np.float64)
        scale = usable.scale(model.scale, total, model.feature_names, model.shared)
        if not model.center:
            squares = squares + n * mean**2
        usable.require_variance(squares, np.abs(mean) if model.center else np.zeros_like(mean), n, float(total["eps"]))
        if not model.center:
            product = product + n * np.outer(mean, mean @ block)
        sizes = np.sqrt(squares / n)
        if scale is not None:
            squares = squares / scale**2
            block, product = block * scale[:, None], product / scale[:, None]
        offset = 0.0
        if not model.center:
            offset = n * float(np.sum((mean / (1.0 if scale is None else scale)) ** 2))
        Q, R = linalg.qr(block)
        known = not partial and (R.size == 0 or np.linalg.cond(R) <= _KEEP)
        frame = Frame(mean if model.center else None, scale, fill, own=model.missing == "own_mean")
        return after_opening(
            model,
            frame=frame,
            claims={client: claim(said, frame) for client, said in state.said.items()},
            answers="rows" if total["rows"] > 0 else "fixed",
            n=n,
            d=len(mean),
            sizes=sizes,
            eps=float(total["eps"]),
            trace=float(squares.sum()),
            offset=offset,
            left={**model.left, **_sites(state)},
            basis=Q if known else linalg.orth(product),
            product=np.linalg.solve(R.T, product.T).T if known else None,
        )


def _sites(state: OpeningState) -> Arrays:
    """What is seen of single clients, to compare them by: rows, means and deviations; nothing of a great many."""
    said = state.said
    keys = sorted(said)
    if len(keys) < 2 or len(keys) * len(said[keys[0]]["mean"]) > _COMPARED:
        return {}
    rows = [np.maximum(np.asarray(said[key].get("count", said[key]["n"])), 1) for key in keys]
    squares = [said[key]["m2"] / n for key, n in zip(keys, rows, strict=True)]
    return {
        SITE_KEYS: np.array(keys, dtype=np.uint64),
        SITE_ROWS: np.array([int(said[key]["n"]) for key in keys]),
        SITE_MEANS: np.array([said[key]["mean"] for key in keys]),
        SITE_DEVIATIONS: np.sqrt(np.array(squares)),
    }


def after_opening(model: Model, **known: Any) -> Model:
    """The model with what an opening has found, and nothing of what was known in another frame."""
    gone = ("values", "residuals", "next_value", "beside", "beside_product", "rest")
    return replace(model, **{**dict.fromkeys(gone), **known})


def adding(arrays: Arrays) -> Merge:
    """How answers to an opening's message come together before they are sent: those of a virtual node's clients."""
    seed, width = (int(arrays.get(name, 0)) for name in ("seed", "width"))
    state = OpeningState(seed, width, bool(arrays["peaks"]), "gaps" in arrays, arrays.get("block"))
    return lambda total, client, reply: dict(reply) if total is None else _both(state, total, reply)


def block_of(arrays: Arrays, d: int) -> Array:
    """The block that an opening's message asks for: as it is, or by the width and seed of a Gaussian one."""
    if "block" in arrays:
        return arrays["block"]
    return draw(d, int(arrays["width"]), int(arrays["seed"]))


def draw(d: int, width: int, seed: int) -> Array:
    """A Gaussian block, no wider than it is long."""
    return linalg.random_block(d, min(width, d), seed)


def shape_of(arrays: Arrays, d: int | None) -> Shape:
    """The shape of that block, and of its product; open while nobody knows how many columns there are."""
    if "block" in arrays:
        return arrays["block"].shape
    return d, None if d is None else min(int(arrays["width"]), d)


def _odd(reply: Arrays) -> tuple[str, str, object] | None:
    """What is wrong with figures that no rows can have: what, the rule, and what it is; None for nothing."""
    if not reply["m2"].min(initial=0.0) >= 0.0:
        return "Squared deviations", "at least 0", "negative ones"
    if "count" in reply and not ((reply["count"] >= 0) & (reply["count"] <= reply["n"])).all():
        return "The counts", "between 0 and n", "others"
    eps = float(reply["eps"])
    if 0.0 < eps <= _COARSEST:
        return None
    return ("eps", f"above 0 and at most {_COARSEST:g}", eps)


def _block(state: OpeningState, d: int) -> Array:
    if state.block is None:
        return draw(d, state.width, state.seed)
    return state.block


def _both(state: OpeningState, a: Arrays, b: Arrays) -> Arrays:
    both = _merge(_block(state, len(a["mean"])), a, b)
    if state.peaks:
        return {**both, "peak": np.maximum(a["peak"], b["peak"])}
    return both


def _merge(block: Array, a: Arrays, b: Arrays) -> Arrays:
    """Two sets of rows, each centred by its own mean, as one set centred by the mean of both."""
    both = merge(*[Moments(int(part["n"]), part["mean"], part["m2"], part.get("count")) for part in (a, b)])
    e = b["mean"] - a["mean"]
    if both.count is not None:
        # no value has no mean
        e = np.where((a["count"] > 0) & (b["count"] > 0), e, 0.0)
    between = np.dot((float(a["n"]) * float(b["n"]) / both.n * e)[:, None], (e @ block)[None])
    product = a["product"].astype(np.float64) + b["product"] + between
    eps = np.asarray(np.maximum(a["eps"], b["eps"]))
    if both.count is None:
        count = {}
    else:
        count = {"count": both.count}
    rows = np.asarray(np.maximum(a["rows"], b["rows"]))
    said = {"n": np.array(both.n), "eps": eps, "mean": both.mean, "m2": both.m2, **count}
    return {**said, "rows": rows, "product": product}
