"""Test that a result's projection travels as one record, and projects like the result."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from builders import shards
from flwr.app import ConfigRecord
from scipy import sparse

from flower_pca import Projection, simulate
from flower_pca.names.columns import digest_of_names

SHARDS = shards((60, 25, 7), 0.7 ** np.arange(8), shift=1.0)
SETTINGS = {"plain": {}, "scaled": {"scale": "std"}, "raw": {"center": False}, "holes": {"missing": "mean"}}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array])
def test_a_projection_gives_the_bits_of_the_result(setting, kind):
    result = simulate("krylov", SHARDS, n_components=3, **setting)
    projection = Projection.from_record(result.to_record())
    rows = kind(SHARDS[1].copy())
    if "missing" in setting and kind is np.asarray:
        rows[3, 2] = np.nan
    scores = projection.transform(rows)
    assert scores.tobytes() == result.transform(rows).tobytes()
    np.testing.assert_array_equal(projection.inverse_transform(scores), result.inverse_transform(scores))
    assert (projection.n_components_, projection.n_features_in_) == (3, 8)


def test_the_record_goes_along_with_other_settings():
    result = simulate("krylov", SHARDS, n_components=3)
    record = ConfigRecord({"lr": 0.1, **result.to_record(), "server-round": 3})
    for given in (record, dict(record)):
        np.testing.assert_array_equal(Projection.from_record(given).components_, result.components_)


def test_names_of_columns_go_along():
    frames = [pd.DataFrame(rows, columns=list("hgfedcba")) for rows in SHARDS]
    result = simulate("krylov", frames, n_components=3)
    projection = Projection.from_record(result.to_record())
    np.testing.assert_array_equal(projection.feature_names_in_, result.feature_names_in_)
    expected = result.transform(frames[0])
    np.testing.assert_array_equal(projection.transform(frames[0][list("bdfhaceg")]), expected)
    with pytest.warns(UserWarning, match="matched by position") as caught:
        projection.transform(SHARDS[0])
    assert caught[0].filename == __file__
    known = dataclasses.replace(result, feature_names_in_=None, feature_digest=digest_of_names("abcdefgh"))
    quiet = Projection.from_record(known.to_record())
    assert quiet.feature_names_in_ is None
    assert quiet.feature_digest == digest_of_names("abcdefgh")


@pytest.mark.slow
def test_the_projection_of_a_personalized_result_has_the_shared_components():
    result = simulate("exact_per_pca(local_components=2)", SHARDS, n_components=2, center=True)
    scores = Projection.from_record(result.to_record()).transform(SHARDS[0])
    np.testing.assert_array_equal(scores, result.transform(SHARDS[0]))
