"""What a result projects rows by travels as one record, and projects as the result does."""

import dataclasses
import io
import zipfile

import numpy as np
import pandas as pd
import pytest
from builders import shards
from cases import every
from flwr.app import ConfigRecord
from scipy import sparse

from flower_pca import ConfigError, DataError, Projection, ProtocolError, simulate
from flower_pca.base import files
from flower_pca.names.columns import digest

SHARDS = shards((60, 25, 7), 0.7 ** np.arange(8), shift=1.0)
SETTINGS = {"plain": {}, "scaled": {"scale": "std"}, "raw": {"center": False}, "holes": {"missing": "mean"}}


def packed(header=None, **arrays):
    return files.to_bytes("projection", header or {}, arrays)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array])
def test_it_projects_to_the_last_bit_as_the_result_does(setting, kind):
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
    with pytest.raises(ConfigError, match="without 'c'"):
        projection.transform(frames[0].drop(columns="c"))
    with pytest.warns(UserWarning, match="matched by position") as caught:
        projection.transform(SHARDS[0])
    assert caught[0].filename == __file__
    known = dataclasses.replace(result, feature_names_in_=None, feature_digest=digest("abcdefgh"))
    quiet = Projection.from_record(known.to_record())
    assert quiet.feature_names_in_ is None
    assert quiet.feature_digest == digest("abcdefgh")
    with pytest.raises(ConfigError, match="8 of other names"):
        quiet.transform(frames[0].rename(columns={"a": "z"}))


def test_of_a_personalized_result_it_has_the_shared_components():
    result = simulate("exact_per_pca(local_components=2)", SHARDS, n_components=2, center=True)
    scores = Projection.from_record(result.to_record()).transform(SHARDS[0])
    np.testing.assert_array_equal(scores, result.transform(SHARDS[0]))


def test_of_a_robust_result_there_is_none():
    result = simulate("consensus_rpca", SHARDS, n_components=2)
    with pytest.raises(
        ConfigError, match=r"The result for a record must be one that projects rows\. Got RobustResult\."
    ):
        result.to_record()


def test_rows_with_other_columns_are_refused():
    projection = Projection.from_record(simulate("krylov", SHARDS, n_components=3).to_record())
    with pytest.raises(ConfigError, match=r"The number of columns must be 8\. Got 7\. Give the features"):
        projection.transform(SHARDS[0][:, :7])


@every("record", [{}, {"lr": 0.1}, ConfigRecord({"flower_pca.projection": "text"})])
def test_a_record_without_a_projection_says_what_to_send(record):
    rule = (
        r"The record must be one with a projection in it\. Got .* Send result\.to_record\(\) as a train_config, or in"
    )
    with pytest.raises(ProtocolError, match=rule):
        Projection.from_record(record)


def squeezed():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("header.json.npy", b"0" * 10**6)
    return stream.getvalue()


@every(
    ("content", "words"),
    [
        (b"", "a projection that flower_pca has packed. Got bytes that cannot be read as one"),
        (packed(components_=np.eye(2))[:-30], "bytes that cannot be read as one"),
        (squeezed(), r"bytes that cannot be read as one \(ValueError\)"),
        (files.to_bytes("result", {}, {"components_": np.eye(2)}), r"read as one \(ValueError\). Check the sender"),
        (
            packed(components_=np.eye(2), own=np.eye(2)),
            "The arrays of a projection must be .* Got components_, own. Check",
        ),
        (
            packed(mean_=np.ones(2)),
            "The arrays of a projection must be those of its fields. Got mean_. Check the sender",
        ),
        (
            packed(components_=np.ones(3)),
            r"The shapes of a projection must be \(k, d\) for components_ and weights_, and",
        ),
        (
            packed(components_=np.eye(2), mean_=np.ones(3)),
            r"Got {'components_': \(2, 2\), 'mean_': \(3,\)}. Take it of",
        ),
        (packed({"feature_names": ["a"]}, components_=np.eye(2)), r"'feature_names_in_': \(1,\)}"),
        (
            packed({"feature_names": 3}, components_=np.eye(2)),
            r"The names of a projection must be texts\. Got \['', 3\]",
        ),
        (
            packed(components_=np.eye(2) * np.nan),
            "components_ of a projection must be finite numbers. Got others. Take",
        ),
        (
            packed(components_=np.eye(2), scale_=np.zeros(2)),
            "scale_ of a projection must be finite numbers above 0. Got",
        ),
        (packed(components_=np.eye(2), fill_=np.arange(2)), "fill_ of a projection must be finite numbers. Got others"),
    ],
)
def test_damaged_ones_are_refused(content, words):
    with pytest.raises(DataError, match=words):
        Projection.from_record({"flower_pca.projection": content})
