"""`RobustResult`: the principal components of the low-rank part of rows, and the sparse part of rows.

`MedianResult` is the result of algorithms that take medians over the clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from flower_pca.algorithms.robust import base, huber
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.results.facts import Fact
from flower_pca.results.pca import PCAResult


class MedianResult(PCAResult):
    """Components close to the components of most clients, with the clients' median center, scale and variances.

    `n_samples_` is the sum of the row counts that clients report. Nothing else in the result depends on these counts.
    """

    pooled: ClassVar[bool] = False
    variance_of: ClassVar[str] = "the median client's variance"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RobustResult(PCAResult):
    """The PCA of the low-rank part of rows, and the outlying entries that were removed as the sparse part.

    Rows are the sum of a low-rank part and a sparse part. Components, variances and total variance are about the
    low-rank part.

    Unless local results are hidden, `local` has three matrices for each client: L, the low-rank part of its rows, S,
    their sparse part, and V, the coordinates from which L was computed. In each entry, L + S differs from the client's
    rows, in their original units, by at most `threshold_`.

    Attributes
    ----------
    threshold_ : float
        An entry whose distance from the low-rank part, in the frame, is at most the threshold counts as noise, and is
        not part of S.
    spread_ : float
        The typical size of an entry in the frame, 1.4826 times the median absolute value.
    cut_ : float or None
        An entry counts as an outlier if its distance from the low-rank part exceeds `cut_` times `threshold_`. If
        `cut_` is not None, outliers have no influence on the low-rank part.
    outlier_share_ : float
        The share of entries that are outliers.
    outlier_share_by_column_ : ndarray of shape (d,)
        The share of each column's entries that are outliers, over all clients.
    removed_share_ : ndarray of shape (d,)
        The share of each column's entries that are not 0 in S, over all clients.
    clients_ : ndarray of shape (N, 3) or None
        For each client its number of rows, the share of its entries that are not 0 in S, and its share of outliers.
        None if the server has seen only sums.
    client_keys_ : ndarray of shape (N,) or None
        The keys of these clients, as in `site_names`. None if the server has seen only sums.
    noise_ : float or None
        The standard deviation of dense noise, 0 if there is no noise. None if the algorithm does not estimate it.
    rank_ : int or None
        The rank of the low-rank part. None if the algorithm does not estimate it.
    hidden_error_ : float or None
        The error at entries that were hidden from the algorithm, divided by `spread_`. None if the algorithm does not
        estimate it.
    attempts_ : int
        The number of attempts that the run made.
    undetermined_columns_ : ndarray
        Numbers of the columns with too few clean entries to determine their low-rank part. For a client, `local` lists
        the rows with too few clean entries as "undetermined", and the rows that are outlying as a whole as "bad_rows".
        These rows add nothing to the variances, which are scaled as if these rows were like the other rows.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> mixing = rng.standard_normal((2, 6))
    >>> sites = [rng.standard_normal((60, 2)) @ mixing for _ in range(3)]
    >>> sites[0][3, 4] = 100.0  # a typing error
    >>> result = simulate("consensus_rpca(gamma=0.7)", sites, n_components=2)
    >>> print(result.removed_share_.argmax())  # the column of the error
    4
    """

    complete: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    projects: ClassVar[bool] = False
    variance_of: ClassVar[str] = "the variance of the low-rank part"
    share_head: ClassVar[str] = "share of low-rank part"

    threshold_: float
    spread_: float
    outlier_share_: float
    outlier_share_by_column_: Array
    removed_share_: Array
    clients_: Array | None
    client_keys_: Array | None
    cut_: float | None
    noise_: float | None
    rank_: int | None
    hidden_error_: float | None
    attempts_: int
    undetermined_columns_: Array

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        left = model.left
        names = {"threshold_": "lam", "spread_": "sigma", "outlier_share_": "outliers"}
        some = {"cut_": "cut", "noise_": "noise", "hidden_error_": "hidden"}
        return {
            **super()._fields(model),
            **{name: float(left[key]) for name, key in names.items()},
            **{name: float(left[key]) if key in left else None for name, key in some.items()},
            "outlier_share_by_column_": left["far"],
            "removed_share_": left["taken"],
            "clients_": left.get("clients"),
            "client_keys_": left.get("keys"),
            "rank_": int(left["rank"]) if "rank" in left else None,
            "attempts_": int(left.get("attempts", 1)),
            "undetermined_columns_": np.asarray(left.get("columns", np.zeros(0, dtype=np.int64))),
        }

    def _facts(self) -> list[Fact]:
        """Return figures, without the explained share, because components explain the low-rank part completely."""
        plain = [fact for fact in super()._facts() if fact.words != "variance explained"]
        taken, far = float(self.removed_share_.mean()), self.outlier_share_
        return [
            *plain,
            Fact("share_of_entries_taken_out", "entries taken out", taken, f"{taken:.2%}"),
            Fact("share_of_far_entries", "of all entries, far off", far, f"{far:.2%}"),
            Fact("taken_out_beyond", "taken out beyond", self.threshold_, f"{self.threshold_:.4g}"),
            Fact("size_of_an_ordinary_entry", "size of an ordinary entry", self.spread_, f"{self.spread_:.4g}"),
        ]

    def transform(self, X: Any) -> Array:
        """Return coordinates of rows along the components, (n, k). Outlying entries hardly change them.

        The coordinates of X, (n, d), follow from a Huber regression on the entries that are not NaN, and not from a
        projection. The threshold of the regression decreases from `spread_` to `threshold_`.
        """
        Z, data = self.components_.T, self._rows_in_frame(X)
        unseen, start, found = base.unseen_entries(data, seed=0, share=0.0), 0, []
        for block in data.dense():
            gaps = unseen.in_rows(start, start + len(block))[0]
            scores = huber.recover(
                block, Z, start=self.spread_, lam=self.threshold_, rho=0.0, cut=self._cut, left_out=gaps
            )
            found.append(scores)
            start += len(block)
        return np.concatenate(found)

    def with_imputation(self) -> Self:
        """Return a result that allows missing values in new rows, and treats them as unknown, like outlying entries."""
        if self.fill_ is not None:
            return self
        return replace(self, fill_=np.asarray(self.mean_))

    @property
    def _cut(self) -> float:
        return np.inf if self.cut_ is None else self.cut_

    def low_rank_part(self, X: Any) -> Array:
        """Return the rows of X without their sparse part, (n, d), in the original units."""
        return self.inverse_transform(self.transform(X))

    def sparse_part(self, X: Any) -> Array:
        """Return the sparse part of X, (n, d), in the original units: outlying entries, and 0 for all other entries."""
        data = self._rows_in_frame(X)
        low_rank = self.transform(X) @ self.components_
        R = np.concatenate(list(data.dense())) - low_rank
        R.reshape(-1)[base.unseen_entries(data, seed=0, share=0.0).gaps] = 0.0
        return self._in_original_units(huber.sparse_part(R, self.threshold_, self._cut))
