"""covariance: the PCA of all rows in two messages, with every component, plain, masked and over a grid."""

import numpy as np
import pytest
from builders import pooled, unequal
from cases import every

from flower_pca import simulate

SHARDS = unequal()
D = SHARDS[0].shape[1]


@pytest.mark.slow
@every("mask", [False, True])
@every("scale", [None, "std"])
def test_every_component_comes_out_of_one_message(mask, scale):
    found = simulate("covariance", SHARDS, n_components=D, mask=mask, scale=scale)
    truth = pooled(SHARDS, scale=scale)
    assert [record.stage for record in found.history if not record.stage.startswith("mask.")][-1] == "covariance"
    assert found.n_components_ == D
    assert np.abs(found.explained_variance_ - truth.variances).max() < 1e-11 * truth.variances[0]
    assert np.abs(found.components_ @ found.components_.T - np.eye(D)).max() < 1e-12
    again = found.components_.T @ np.diag(found.explained_variance_) @ found.components_
    assert np.abs(again - truth.components.T @ np.diag(truth.variances) @ truth.components).max() < 1e-10


def test_covariance_takes_two_messages_and_knows_the_next_eigenvalue():
    found = simulate("covariance", SHARDS, n_components=3)
    assert [record.stage for record in found.history] == ["opening", "covariance"]
    assert found.angle_to(pooled(SHARDS).components[:3]) < 1e-9
    assert found.sine_estimate_ is not None
    assert found.sine_estimate_ < 1e-9
    private = simulate("covariance", SHARDS, n_components=3, dp="dp(epsilon=1.0, delta=1e-6, clip=50.0)")
    assert private.sine_estimate_ is None  # Residuals do not measure the noise.
