"""Test what a node reveals about its rows in dr_svd, for any block."""

import numpy as np
from builders import mixed

from flower_pca.algorithms.dr_svd import DRSVD
from flower_pca.rows.local import LocalData


def test_a_block_short_of_rank_singles_out_no_row():
    """QR fills Q up with columns that have nothing to do with the rows: their products would be rows as they are."""
    X, d = LocalData(mixed(0).shards[0]), mixed(0).shards[0].shape[1]
    narrow = np.random.default_rng(0).standard_normal((d, 2)) @ np.ones((2, d))
    for block, rank in ((np.zeros((d, d)), 0), (np.eye(d)[:, :1] @ np.ones((1, d)), 1), (narrow, 1)):
        B = DRSVD.client({"step": np.array(2), "block": block, "part": np.eye(d)}, X, {})[0]["B"]
        assert np.linalg.matrix_rank(B, tol=1e-9) == rank
        told = X.matmat(block)  # The span of an earlier answer contains B.
        left = B - told @ np.linalg.lstsq(told, B, rcond=1e-10)[0]
        assert np.abs(left).max() <= 1e-8 * max(np.abs(B).max(), 1.0)
