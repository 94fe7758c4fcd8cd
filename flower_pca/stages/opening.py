"""The opening, a single message from which count, mean, scale, total variance and the first product follow.

A client centers its answer by its own mean, and the server merges the answers one after another.
`finish` computes the frame and the totals from the merged answer. It also returns a first basis, with
its product if the product is still usable after scaling and with missing values. The server checks what
clients report about themselves before it uses the reports.

From the totals, the module also computes the divisors of columns and the values that replace missing
values, and checks whether the rows of all clients allow a PCA. Errors name the columns that make a PCA
impossible.

`ScalingOnly` is the algorithm of a run that consists of an opening alone. It computes only means and
deviations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, DataError, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.algorithm import EmptyStage
from flower_pca.core.claims import check_opening, claim_of_answer
from flower_pca.core.kinds import BLOCK, COUNT, FLAG, NUMBER, ROWS, SEED, WIDTH, ArrayRule, Kind, Part, Shape
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge, Stage, status_when
from flower_pca.names.columns import enumeration
from flower_pca.rows.frame import Frame, Moments, genotype_scale, merge_moments
from flower_pca.rows.local import LocalData
from flower_pca.stages import outlying_sites

_CONSTANT: Final = 8.0  # a deviation up to this multiple of the rounding error of the mean counts as 0
_ALL_CONSTANT: Final = 64.0  # the same multiple for the test whether all rows are equal
_LEAST: Final = 1e-290  # Smaller squares are inaccurate in double precision.
_LEAST_SINGLE: Final = 1e-36  # Smaller squares are inaccurate in single precision.
_SINGLE: Final = 1e-10  # a relative precision between single and double precision
# For each precision, this is the largest sum of squares that is accepted.
LARGEST_SQUARES: Final = {np.dtype(np.float64): 1e139, np.dtype(np.float32): 1e37}
_TOO_SMALL: Final = "below 1e-145, which is too small for"


def require_size(data: Any, moments: Moments) -> None:
    """Raise DataError if a client's rows are so large that their sums of squares overflow.

    The decision depends only on the rows and not on the message, and the error does not report how large
    the rows are. Otherwise, a server could measure the rows by sending larger and larger blocks until the
    error occurs.
    """
    # The squared mean is included, because a single row has no sum of squares about its own mean.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = moments.m2 + moments.n * moments.mean**2
    if float(squares.sum(dtype=np.float64)) <= LARGEST_SQUARES[data.dtype]:  # This comparison is False for NaN.
        return
    # The peaks take another pass over the rows, so they are computed only if the rows are refused.
    peak, names = data.largest_absolute(), getattr(data, "names", None)
    j = int(np.argmax(peak))
    raise DataError(
        f"The data of {data.who} has a number that is too large in column {j if names is None else names[j]}: at most "
        "1e+65 is possible, or 1e+16 in single precision. Scale the column, or correct the number, which may be a code "
        "for a missing value."
    )


def frame_of(total: Arrays, model: Model) -> Frame:
    """Return the common frame that follows from the totals, in which column means replace missing values.

    Raise DataError if a column has no values or cannot be scaled, and ConfigError if too many components are requested.
    """
    mean, names = total["mean"], model.feature_names
    fill = None
    if "count" in total:
        fill, bad = mean, total["count"] == 0
        refuse_columns(f"No client has a value in {COLUMNS}", bad, "Drop ", ".", names)
    checks.components_available(model.n_components, int(total["n"]), len(mean))
    scale = column_divisors(model.scale, total, names, model.shared)
    return Frame(mean if model.center else None, scale, fill, own=model.missing == "local_mean")


def require_variance(squares: Array, mean: Array, n: int, eps: float) -> None:
    """Raise DataError if all rows are equal, or their variance is too small to find components.

    `mean` is the absolute value of the subtracted mean. `eps` is the precision of the least precise client.
    """
    what, least = "The rows of all clients together", _LEAST if eps < _SINGLE else _LEAST_SINGLE
    if (np.sqrt(squares / n) <= _ALL_CONSTANT * np.finfo(np.float64).eps * mean).all():
        got, scale = "are all the same", ""
        if not (mean**2 >= _LEAST).any():
            got = "contain only zeros, or numbers so small that their squares become 0"
            scale = ", or scale them, for example so that most numbers are between 0.001 and 1,000"
        raise DataError(f"{what} {got}, so there are no components. Check the columns of the data{scale}.")
    if squares.sum() < least:
        got = f"their squares add up to only {squares.sum():.1e}"
        raise DataError(
            f"{what} are too small: {got}. Rescale the data so that numbers are at least {np.sqrt(least):.0e} in size."
        )


_STD: Final = option("scale", "std")
_OR_STD: Final = f", or use {_STD}."
_MEAN_ERROR: Final = 1e-6  # the largest rounding error of a mean under masks
COLUMNS: Final = "<columns>"  # a placeholder for the names of columns in an error message


def column_divisors(
    kind: str | None, total: Arrays, names: Sequence[str] | None, shared: Collection[str] = (), who: str = ""
) -> Array | None:
    """Return the divisor of each column, or None if columns are not scaled.

    The divisor is the column's deviation, its largest absolute value, or the deviation that the frequency
    of an allele implies. With "deviation", which computes deviations only, a constant column has the divisor
    1. Columns in `shared` are divided by the root of their mean, which is the share of rows with a 1. Raise
    DataError if a column cannot be scaled. It names the owner `who` of the columns, if only one client has them.
    """
    if shared:
        return _divisors_of_shared(kind, total, list(names or ()), shared)
    match kind:
        case None:
            return None
        case "max_abs":
            small = (total["peak"] > 0.0) & (total["peak"] ** 2 < _LEAST)
            what = f"All values of {COLUMNS} are {_TOO_SMALL} {option('scale', 'max_abs')}"
            refuse_columns(what, small, "Scale ", " first.", names, who)
            return np.where(total["peak"] > 0.0, total["peak"], 1.0)
        case "genotype":
            mean = total["mean"]
            outside = (mean < -_MEAN_ERROR) | (mean > 2.0 + _MEAN_ERROR)
            what = f"{option('scale', 'genotype')} counts an allele, and the mean of {COLUMNS} is not between 0 and 2"
            refuse_columns(what, outside, "Drop ", _OR_STD, names, who)
            return genotype_scale(mean, int(total["n"]))
    deviation = np.sqrt(total["m2"] / total.get("count", total["n"]))
    rounding = _CONSTANT * np.finfo(np.float64).eps
    constant = deviation <= rounding * np.abs(total["mean"])
    small = (deviation > 0.0) & (deviation**2 < _LEAST)
    if kind == "deviation":
        return np.where(constant | small, 1.0, deviation)
    what = f"The deviation of {COLUMNS} is {_TOO_SMALL} {_STD}"
    refuse_columns(what, small, "Scale ", " first.", names, who)
    unscaled = f", or use {option('scale', None)}."
    what = f"All rows have the same value in {COLUMNS}, so {_STD} cannot divide by the deviation"
    refuse_columns(what, constant, "Drop ", unscaled, names, who)
    return np.asarray(deviation)


def _divisors_of_shared(kind: str | None, total: Arrays, names: list[str], shared: Collection[str]) -> Array:
    """Return the divisors if the `shared` columns are divided by the root of their share of rows with a 1.

    A shared column without a 1 has the divisor 1.
    """
    means = total["mean"]
    by_share = np.array([name in shared for name in names])
    # The roots of columns that are not shared may have negative means. They are not used.
    roots = np.sqrt(np.abs(means))
    divisor = np.where(by_share & (means > 0.0), roots, 1.0)
    others = {name: a[~by_share] if np.shape(a) == means.shape else a for name, a in total.items()}
    left = [name for name in names if name not in shared]
    if left and (found := column_divisors(kind, others, left)) is not None:
        divisor[~by_share] = found
    return divisor


def refuse_columns(what: str, bad: Array, advice: str, end: str, names: Sequence[str] | None, who: str = "") -> None:
    """Raise DataError if any column is bad.

    The message is `what`, in which the names or numbers of the bad columns replace `COLUMNS`, and then a remedy:
    `advice`, the word "it" or "them", and `end`. `who` is the owner of the columns, if only one client has them.
    """
    columns = np.flatnonzero(bad).tolist()
    if not columns:
        return
    which = "it" if len(columns) == 1 else "them"
    named = enumeration(str(j) if names is None else names[j] for j in columns)
    noun = labels.pluralize(len(columns), "column")
    where = f"{noun} {named} of {who}" if who else f"{noun} {named}"
    raise DataError(f"{what.replace(COLUMNS, where)}. {advice}{which}{end}")


# The first product is kept if the condition number of the scaled block is at most this number.
_LARGEST_CONDITION: Final = 1e3
# The relative rounding error of single precision, the lowest precision in which products are computed
_COARSEST: Final = float(np.finfo(np.float32).eps)
# The key under which the merged arrays hold the clients' reports about themselves
_REPORTS: Final = "said"
# The keys of the model's statistics of individual clients
SITE_KEYS, SITE_ROWS, SITE_MEANS, SITE_DEVIATIONS = "site_keys", "site_rows", "site_means", "site_deviations"
SITE_SUMS: Final = "site_sums"  # the sums of each client's rows, in the frame
# The key of the model's client with the most rows, and the keys of the merged arrays from which it is found
LARGEST_SITE, _MOST_ROWS = "largest_site", "most_rows"
OUTLYING: Final = "outlying_sites"  # one row for each outlying site: its index, kind, column and distance
# The key of the model's columns that are constant at a site, as pairs of the indices of site and column
CONSTANT: Final = "constant_columns"
COMPARED: Final = 2**15  # the largest number of clients times columns for which the server compares clients by column
SUMMED: Final = 2**20  # the largest number of clients times columns for which the server keeps each client's sums
SAID: Final = ("n", "eps", "mean", "m2", "count")  # the parts of a client's report from which its claim is computed
# The parts of a report that are kept if the server compares clients by column
_TO_COMPARE: Final = (*SAID, "product")
# The parts of a report that are kept if the server needs only the sums of the clients' rows
_TO_SUM: Final = ("n", "mean", "count")


@dataclass(frozen=True)
class OpeningState:
    """The block to multiply, and the merged answers.

    The block is an array, or the seed and width of a Gaussian block. `said` holds the reports of the clients
    about their own rows, with which later answers are compared.
    """

    seed: int
    width: int
    peaks: bool
    gaps: bool = False
    block: Array | None = None
    total: dict[str, Array] | None = None
    said: dict[int, dict[str, Array]] = field(default_factory=dict)

    def block_for(self, d: int) -> Array:
        """Return the block to multiply rows with d columns by."""
        return block_or_drawn(self.block, d, self.width, self.seed)


@dataclass(frozen=True, kw_only=True)
class Opening(Stage[OpeningState]):
    """An opening in one message. Every client answers in its local frame, and the server computes the global frame.

    With its own mean m_i, a client sends n_i, m_i, the sum of squared deviations of each column, and P_i =
    X_i'(X_i B) with its rows centered at m_i. Two answers merge exactly, by the pairwise update: with e
    = m_b - m_a, P = P_a + P_b + (n_a n_b / n) e (e'B). Therefore, memory stays O(d p), no precision is
    lost, and C B in the global frame is known after one message. If columns are divided by a scale D, the
    server uses the block D B, because D^-1 C D^-1 (D B) = D^-1 (C B).

    If values may be missing, a client also sends the number of values of each column, and means and squared
    deviations are those of the present values. In the product, missing values are then 0 relative to the
    client's own mean instead of the global mean. The product therefore serves only as a start, and the next
    message measures it again.

    With `judged`, the server checks each client's report for contradictions, and keeps two columns of the
    report to check later answers. A simulation does not need these checks.

    Cost: a client needs 4 n_i d p flops, and sends p + 2 to p + 4 columns of d floats. The server sends
    a seed or the block.
    """

    name: ClassVar[str] = "opening"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "peaks": FLAG,
        "gaps": FLAG,
        "seed": SEED,
        "width": WIDTH,
        "block": BLOCK,
    }

    width: int
    judged: bool = True
    bits: int = 64  # the number of bits of each entry of a product on the network

    def start(self, model: Model) -> OpeningState:
        gaps = model.missing != "error"
        return OpeningState(model.seed, self.width, model.scale == "max_abs", gaps, model.basis)

    def broadcast(self, state: OpeningState) -> Arrays:
        flags = {"peaks": np.array(state.peaks), **({"gaps": np.array(True)} if state.gaps else {})}
        if state.block is not None:
            return {**flags, "block": state.block}
        return {**flags, "seed": np.array(state.seed), "width": np.array(state.width)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        columns = dict.fromkeys(["mean", "m2"], Part((d,), Kind.COLUMNS))
        if arrays["peaks"]:
            columns["peak"] = Part((d,), Kind.PEAKS)
        if "gaps" in arrays:
            columns |= {"count": Part((d,), Kind.COUNT)}
        product = Part(shapes_of_block(arrays, d), Kind.LOCAL_PRODUCT)
        return {"n": ROWS, "rows": COUNT, "eps": NUMBER, **columns, "product": product}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        block = block_of_message(arrays, data.d)
        if len(block) != data.d:
            raise DataError(text_of_start_mismatch(len(block), data.d))
        if "gaps" not in arrays:
            data.require_complete_rows()
        eps = np.array(np.finfo(data.dtype).eps, dtype=np.float64)
        by_rows = np.array(int(data.answers == "rows"))
        # Overflow is refused by `require_size`, whose error does not reveal sizes.
        with np.errstate(over="ignore", invalid="ignore"):
            m, product = data.local_product(block.astype(data.dtype, copy=False))
        require_size(data, m)
        up = {"n": np.array(m.n), "rows": by_rows, "eps": eps, "mean": m.mean, "m2": m.m2}
        up["product"] = product
        if "gaps" in arrays:
            up["count"] = np.broadcast_to(m.value_counts, data.d)
        if arrays["peaks"]:
            up["peak"] = data.largest_absolute()
        # The client's memory belongs to another frame, and maybe to another set of clients, so it is dropped.
        return up, {}

    def inspect(self, state: OpeningState, reply: Arrays) -> None:
        if not reply["m2"].min(initial=0.0) >= 0.0:
            raise ProtocolError(f"An answer has negative sums of squared deviations. {OTHER_CLIENT}")
        if "count" in reply and not ((reply["count"] >= 0) & (reply["count"] <= reply["n"])).all():
            raise ProtocolError(
                f"An answer counts more values than rows, or has a negative count of values. {OTHER_CLIENT}"
            )
        eps = float(reply["eps"])
        # Bounds on a client's answers grow with eps, so a client must not report a larger eps than its products have.
        if not 0.0 < eps <= _COARSEST:
            raise ProtocolError(
                f"An answer reports a precision of {eps}, but only values above 0 and up to {_COARSEST:g} are "
                f"possible. {OTHER_CLIENT}"
            )
        if self.judged:
            check_opening(reply, state.block_for(len(reply["mean"])), bits=self.bits)

    def merging(self, state: OpeningState) -> Merge:
        def merge(total: dict[str, Any] | None, client: int, reply: Arrays) -> dict[str, Any]:
            said = _add_report((total or {}).get(_REPORTS, {}), client, reply, judged=self.judged)
            largest = _largest_so_far(total, client, reply)
            return {**_merge_answers(state, total, reply), **largest, _REPORTS: said}

        return merge

    def server(self, state: OpeningState, total: dict[str, Any], answered: frozenset[int]) -> OpeningState:
        arrays = dict(total)
        said = {i: own for i, own in (arrays.pop(_REPORTS, None) or {}).items() if i in answered}
        return replace(state, total=arrays, said=said)

    def status(self, state: OpeningState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: OpeningState, model: Model) -> Model:
        assert state.total is not None
        total = state.total
        n, d = int(total["n"]), len(total["mean"])
        frame = frame_of(total, model)
        off = total["mean"] - frame.column_centers  # the mean of the centered rows
        squares = total["m2"] + n * off**2
        require_variance(squares, np.abs(frame.column_centers), n, float(total["eps"]))
        block = state.block_for(d)
        product = total["product"].astype(np.float64)
        if off.any():
            product = product + n * np.outer(off, off @ block)
        if frame.scale is not None:
            block = block * frame.scale[:, None]
            product = frame.unscale(product)
        Q, R = linalg.qr(block)
        whole = np.all(total.get("count", n) == n)
        known = whole and (R.size == 0 or np.linalg.cond(R) <= _LARGEST_CONDITION)
        sites = _site_statistics(state, frame)
        if LARGEST_SITE in total:
            sites[LARGEST_SITE] = total[LARGEST_SITE]
        errors = None
        if known and self.bits < 64:
            errors = linalg.column_norms(product)[:, None] * np.linalg.solve(R, Q.T)
        linalg.forget_block()  # The block would stay in memory for the whole run.
        return after_opening(
            model,
            frame=frame,
            claims={client: claim_of_answer(said, frame) for client, said in state.said.items()} if self.judged else {},
            answers="rows" if total["rows"] > 0 else "fixed",
            n=n,
            d=d,
            sizes=np.sqrt(squares / n),
            eps=float(total["eps"]),
            trace=float(np.sum(squares / frame.column_divisors**2)),
            offset=n * float(np.sum((off / frame.column_divisors) ** 2)),
            sites=sites,
            # If the product is not usable as such, its columns still give a better start, as after a power step.
            basis=Q if known else linalg.orth(product),
            product=np.linalg.solve(R.T, product.T).T if known else None,
            opening_errors=errors,
        )


def _largest_so_far(total: Arrays | None, client: int, reply: Arrays) -> Arrays:
    """Return the client with the most rows among the merged answers and one more answer, and its number of rows.

    Among clients with equally many rows, it is the client with the smallest key, in whichever order they answer.
    """
    if total is not None and (total[_MOST_ROWS], client) > (reply["n"], int(total[LARGEST_SITE])):
        return {LARGEST_SITE: total[LARGEST_SITE], _MOST_ROWS: total[_MOST_ROWS]}
    return {LARGEST_SITE: np.array(client, dtype=np.uint64), _MOST_ROWS: reply["n"]}


def _add_report(
    reports: dict[int, dict[str, Array]] | None, client: int, reply: Arrays, *, judged: bool
) -> dict[int, dict[str, Array]] | None:
    """Return the clients' reports with the useful parts of an answer added, or None if reports are no longer useful.

    The more clients there are, the fewer parts of their reports are kept. Parts that are no longer kept are
    removed from earlier reports, too.
    """
    if reports is None:
        return None
    numbers = (len(reports) + 1) * len(reply["mean"])
    if numbers > SUMMED and not judged:
        return None
    names: tuple[str, ...] = _TO_COMPARE
    if numbers > COMPARED:
        names = SAID if judged else _TO_SUM
        if "product" in next(iter(reports.values()), {}):
            reports = {i: {name: own[name] for name in names if name in own} for i, own in reports.items()}
    reports[client] = {name: reply[name] for name in names if name in reply}
    return reports


def _site_statistics(state: OpeningState, frame: Frame) -> Arrays:
    """Return the statistics by which the server compares individual clients, if clients and columns are few enough.

    They are the number and the sum of each client's rows in the frame. For few clients and columns, they
    also include the means and deviations of each client's columns, and the outlying clients.
    """
    keys = sorted(state.said)
    if len(keys) < 2 or len(keys) * len(state.said[keys[0]]["mean"]) > SUMMED:
        return {}
    sites = [state.said[key] for key in keys]
    rows = np.array([int(site["n"]) for site in sites])
    found = {SITE_KEYS: np.array(keys, dtype=np.uint64), SITE_ROWS: rows, SITE_SUMS: _sums_by_site(sites, rows, frame)}
    # The deviations may be missing although clients are few, because more clients had answered before.
    if found[SITE_SUMS].size > COMPARED or "m2" not in sites[0]:
        return found
    found[SITE_MEANS] = np.array([site["mean"] for site in sites])
    squares = [site["m2"] / np.maximum(site.get("count", site["n"]), 1) for site in sites]
    found[SITE_DEVIATIONS] = np.sqrt(np.array(squares))
    found[OUTLYING] = _outlying_as_array(state, sites, found)
    return found


def _sums_by_site(sites: Sequence[Arrays], rows: Array, frame: Frame) -> Array:
    """Return the sum of each site's rows in the frame, like `Moments.sums_in_frame` for a single site.

    In each column, the sum is the number of values times the centered mean, plus the number of missing values
    times the centered fill value.
    """
    sums = np.array([site["mean"] for site in sites], dtype=np.float64)
    sums -= frame.column_centers
    seen = rows[:, None]
    if "count" in sites[0]:
        seen = np.array([site["count"] for site in sites])
        sums[seen == 0] = 0.0
    sums *= seen
    if frame.fill is not None:
        sums += (rows[:, None] - seen) * (frame.fill - frame.column_centers)
    sums /= frame.column_divisors
    return sums


def _outlying_as_array(state: OpeningState, sites: Sequence[Arrays], outlying: Arrays) -> Array:
    """Return the outlying sites as an array with one row for each outlying site."""
    block, products = None, None
    # All reports have the same parts, because they answer the same message.
    gaps = "count" in sites[0]
    if not gaps and "product" in sites[0] and sites[0]["product"].size:
        # If values were missing, products could not be compared.
        block = state.block_for(outlying[SITE_MEANS].shape[1])
        products = np.array([site["product"] for site in sites], dtype=np.float64)
    means, deviations = outlying[SITE_MEANS], outlying[SITE_DEVIATIONS]
    if gaps:
        values = np.array([site["count"] for site in sites])
        means, deviations = outlying_sites.replace_uncertain(values, means, deviations)
    far = outlying_sites.find_outlying(outlying[SITE_ROWS], means, deviations, block, products)
    return outlying_sites.sites_as_array(far)


def after_opening(model: Model, **known: Any) -> Model:
    """Return the model with the results of an opening. Earlier results, which belong to another frame, are dropped."""
    gone = ("opening_errors", "values", "residuals", "next_value", "beside", "beside_product", "rest")
    return replace(model, **{**dict.fromkeys(gone), "next_residual": 0.0, **known})


def precision_flags(data: LocalData) -> Arrays:
    """Return two flags, which the server adds up over clients.

    The first is 1 if the products are in single precision, and the second is 1 if they are computed from rows.
    """
    single, by_rows = data.dtype == np.float32, data.answers == "rows"
    return {"single": np.array(int(single)), "rows": np.array(int(by_rows))}


def lowest_precision(total: Arrays) -> float:
    """Return the precision of the least precise client, from the sums of the clients' flags."""
    return float(np.finfo(np.float32 if total["single"] > 0 else np.float64).eps)


_OTHER_START: Final = "The run starts from components of "


def blames_start(refusal: str) -> bool:
    """Return whether a client refused an opening because the start components do not match its rows."""
    return refusal.startswith(_OTHER_START)


def text_of_start_mismatch(start: int, d: int) -> str:
    """Return the text of an error about start components and rows with different numbers of columns.

    Either number may be the wrong one.
    """
    return (
        f"{_OTHER_START}{labels.count(start, 'column')}, but the rows have {d}. If {d} is right, "
        f"start from a result of {labels.count(d, 'column')}, or leave the start out."
    )


def block_of_message(arrays: Arrays, d: int) -> Array:
    """Return the block of an opening, from a message that has either the block or its width and seed."""
    if "block" in arrays:
        return arrays["block"]
    return block_or_drawn(None, d, int(arrays["width"]), int(arrays["seed"]))


def block_or_drawn(block: Array | None, d: int, width: int, seed: int) -> Array:
    """Return the block, or if it is None, a Gaussian block with at most as many columns as rows."""
    if block is None:
        return linalg.random_block(d, min(width, d), seed)
    return block


def shapes_of_block(arrays: Arrays, d: int | None) -> Shape:
    """Return the shape of the block and of its product, with None for dimensions that are not known yet."""
    if "block" in arrays:
        return arrays["block"].shape
    return d, None if d is None else min(int(arrays["width"]), d)


def _merge_answers(state: OpeningState, merged: Arrays | None, answer: Arrays) -> Arrays:
    """Return the answers so far, `merged`, merged with one more answer `answer`, and centered at their common mean.

    `merged` and `answer` are centered at their own means. If `merged` is None, `answer` is the first answer.
    """
    if merged is None:
        return dict(answer)
    first = Moments(int(merged["n"]), merged["mean"], merged["m2"], merged.get("count"))
    second = Moments(int(answer["n"]), answer["mean"], answer["m2"], answer.get("count"))
    both = merge_moments(first, second)
    found = {"n": np.array(both.n), "mean": both.mean, "m2": both.m2}
    for name in ("eps", "rows", "peak"):
        if name in merged:
            found[name] = np.asarray(np.maximum(merged[name], answer[name]))
    e = answer["mean"] - merged["mean"]
    if both.count is not None:
        found["count"] = both.count
        # A column without values has no mean.
        seen = (merged["count"] > 0) & (answer["count"] > 0)
        e = np.where(seen, e, 0.0)
    # The row counts are converted to floats, because the product of two row counts may exceed 64 bits.
    weighted = float(merged["n"]) * float(answer["n"]) / both.n * e
    along = e @ state.block_for(len(e))
    between = np.dot(weighted[:, None], along[None])
    product = merged["product"].astype(np.float64)
    product += answer["product"]
    product += between
    found["product"] = product
    return found


@dataclass(frozen=True)
class ScalingOnlyState:
    """The empty state of a stage that has nothing to compute."""


@dataclass(frozen=True, kw_only=True)
class ScalingOnly(EmptyStage[ScalingOnlyState]):
    """The algorithm of a run that consists of an opening only. It sends no message itself.

    Cost: an opening that asks for no product, for which a client needs a few passes over the rows, and sends two
    to four columns of d floats. The opening takes one message, or two messages under masks.
    """

    name: ClassVar[str] = "standardize"

    def start(self, model: Model) -> ScalingOnlyState:
        return ScalingOnlyState()

    def status(self, state: ScalingOnlyState) -> Status:
        return Status(Outcome.DONE, "means and deviations are those of all rows together")

    def finish(self, state: ScalingOnlyState, model: Model) -> Model:
        return replace(model, status=self.status(state))
