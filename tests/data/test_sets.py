"""Test data sets of scikit-learn, and Hugging Face's loader on a small local set."""

import json
import sys
import types
import warnings

import numpy as np
import pytest

from flower_pca import ConfigError, DataError
from flower_pca.data import partition
from flower_pca.data.sources import make, table


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"])
def test_sets_of_scikit_learn_are_loaded_whole(name):
    bunch = getattr(pytest.importorskip("sklearn.datasets"), f"load_{name}")()
    found = table(f"sklearn({name!r})")
    assert np.array_equal(found.rows, bunch.data)
    assert found.names == tuple(bunch.feature_names)
    if name != "linnerud":  # linnerud has three targets
        assert np.array_equal(found.beside["y"], bunch.target)


@pytest.fixture
def local_set(tmp_path, monkeypatch):
    """A data set as the loader finds it in a folder; it is imported here, as it warns."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        datasets = pytest.importorskip("datasets")
        pytest.importorskip("flwr_datasets")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        # older versions call it differently
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True, raising=False)
        records = [{"x": 0.5 * i, "v": [i, i + 1], "site": f"s{i % 2}", "z": i} for i in range(6)]
        (tmp_path / "set").mkdir()
        (tmp_path / "set/train.jsonl").write_text("\n".join(map(json.dumps, records)))
        yield str(tmp_path / "set")


@pytest.mark.slow
def test_a_local_set_of_hugging_face(local_set):
    wanted = np.array([[0.5 * i, i, i + 1, i] for i in range(6)])
    found = table(f"hugging_face({local_set!r})", beside=["site"])
    assert np.array_equal(found.rows, wanted)
    assert [len(part) for part in partition.deal(found, "by_column('site')")] == [3, 3]
    chosen = table(f"hugging_face(name={local_set!r}, columns=['z', 'x'])")
    assert chosen.names == ("z", "x")
    assert np.array_equal(chosen.rows, wanted[:, [3, 0]])
    with pytest.raises(DataError, match=r"must hold numbers, but there is a text of 2 characters in column site\."):
        make(f"hugging_face(name={local_set!r})")
    with pytest.raises(ConfigError, match=r"/set has no column 'w'\."):
        make(f"hugging_face(name={local_set!r}, columns=['w'])")


def test_two_columns_of_one_name_are_refused(monkeypatch):
    loaded = types.SimpleNamespace(column_names=["x", "y", " x"])
    federated = types.SimpleNamespace(load_split=lambda split: loaded)
    monkeypatch.setitem(sys.modules, "flwr_datasets", types.SimpleNamespace(FederatedDataset=lambda **given: federated))
    with pytest.raises(DataError, match="must have different names, but there is 'x' more than once"):
        make("hugging_face('set')")


@pytest.mark.slow
def test_what_cannot_be_loaded_is_named(local_set):
    for text in (f"hugging_face({local_set + '-none'!r})", f"hugging_face({local_set!r}, split='test')"):
        with pytest.raises(DataError, match=r"^The data set .* cannot be loaded \("):
            make(text)
