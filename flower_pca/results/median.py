"""MedianResult: what a run of medians over the clients returns."""

from __future__ import annotations

from typing import ClassVar

from flower_pca.results.pca import PCAResult


class MedianResult(PCAResult):
    """Components near those of most clients, with medians over the clients of centre, scale and
    variances.

    `n_samples_` counts the rows as clients say, of which nothing else hangs.
    """

    variance_of: ClassVar[str] = "the median client's variance"

    @property
    def is_pooled(self) -> bool:
        """Whether components are meant to be those of the covariance of all rows: they are not."""
        return False
