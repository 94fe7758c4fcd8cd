"""Test means and deviations alone: those of the pooled rows, over nodes, under masks, with missing values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from fake_grid import config_of, grid_of, hosts_of
from flwr.app import ConfigRecord

from flower_pca import Scaling
from flower_pca.audit import served
from flower_pca.audit.sentences import disclosures_of
from flower_pca.clients import Rules
from flower_pca.core.kinds import Kind
from flower_pca.strategies import Standardize, arrays_of

pytestmark = pytest.mark.usefixtures("lines", "home")
NAMES = ["age", "hb", "glucose", "dose"]
SIZES, MEANS = np.array([9.0, 1.5, 30.0, 1e-3]), np.array([60.0, 13.0, 5e3, 2.0])
SHARDS = [np.random.default_rng(i).standard_normal((n, 4)) * SIZES + MEANS for i, n in enumerate((50, 80, 20))]
POOLED = np.vstack(SHARDS)


def is_that_of(scaling, rows, *, rtol=1e-12):
    np.testing.assert_allclose(scaling.mean_, np.nanmean(rows, axis=0), rtol=rtol)
    np.testing.assert_allclose(scaling.scale_, np.nanstd(rows, axis=0), rtol=1e3 * rtol)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True], ids=["plain", "masked"])
def test_means_and_deviations_are_those_of_the_pooled_rows(mask, answers):
    grid = grid_of(SHARDS, answers=answers)
    scaling = Standardize(min_nodes=3, mask=mask).fit(grid)
    is_that_of(scaling, POOLED)
    assert scaling.n_samples_ == len(POOLED)
    stages = [record.stage for record in scaling.history if not record.stage.startswith("mask.")]
    assert stages == (["summed_opening"] * 2 if mask else ["opening"])
    assert scaling.status is not None
    assert scaling.status.ok


def test_virtual_nodes_answer_a_scaling():
    is_that_of(Standardize(hosted="stacked").fit(hosts_of(SHARDS, each=2)), POOLED)


@pytest.mark.parametrize("missing", ["mean", "local_mean"])
def test_gaps_are_left_out_of_mean_and_deviation(missing):
    gappy = [np.where(np.random.default_rng(i).random(X.shape) < 0.2, np.nan, X) for i, X in enumerate(SHARDS)]
    scaling = Standardize(min_nodes=3, missing=missing).fit(grid_of(gappy))
    if missing == "mean":
        is_that_of(scaling, np.vstack(gappy))
        assert np.isfinite(scaling.transform(gappy[0])).all()
        np.testing.assert_array_equal(scaling.transform(gappy[0])[np.isnan(gappy[0])], 0.0)
    else:
        is_that_of(scaling, np.vstack([np.where(np.isnan(X), np.nanmean(X, axis=0), X) for X in gappy]))


def test_columns_are_matched_by_name_and_a_constant_one_is_left_as_wide_as_it_is():
    tables = [pd.DataFrame(X, columns=NAMES).assign(ward=4.0) for X in SHARDS]
    tables[1] = tables[1][["ward", *NAMES[::-1]]]
    scaling = Standardize(min_nodes=3, columns=[*NAMES, "ward"]).fit(grid_of(tables))
    assert list(scaling.feature_names_in_) == [*NAMES, "ward"]
    assert scaling.scale_[-1] == 1.0
    is_that_of(Scaling(mean_=scaling.mean_[:4], scale_=scaling.scale_[:4], n_samples_=1), POOLED)
    found = scaling.transform(tables[1])
    np.testing.assert_allclose(found[:, :4], (SHARDS[1] - POOLED.mean(axis=0)) / POOLED.std(axis=0), atol=1e-9)
    np.testing.assert_array_equal(found[:, 4], 0.0)
    np.testing.assert_allclose(scaling.inverse_transform(found)[:, :4], SHARDS[1], rtol=1e-12)


def test_a_record_carries_it_to_a_node():
    scaling = Standardize(min_nodes=3).fit(grid_of([pd.DataFrame(X, columns=NAMES) for X in SHARDS]))
    config = ConfigRecord({"lr": 0.1, **scaling.to_record()})
    there = Scaling.from_record(config)
    np.testing.assert_array_equal(there.mean_, scaling.mean_)
    table = pd.DataFrame(SHARDS[0], columns=NAMES)
    np.testing.assert_array_equal(there.transform(table), scaling.transform(table))
    assert (there.n_samples_, list(there.feature_names_in_)) == (scaling.n_samples_, sorted(NAMES))


def test_flower_gets_it_as_arrays_and_people_as_a_table():
    outcome = Standardize(min_nodes=3).start(grid_of(SHARDS))
    np.testing.assert_allclose(outcome.arrays["mean"].numpy(), POOLED.mean(axis=0), rtol=1e-12)
    scaling = Standardize(min_nodes=3).fit(grid_of(SHARDS))
    assert set(arrays_of(scaling)) == {"mean", "scale"}
    assert scaling.table().splitlines()[0].split() == ["column", "mean", "deviation"]
    assert len(scaling.table().splitlines()) == 5


@pytest.mark.slow
def test_a_scaling_reveals_no_product_and_may_be_refused():
    grid = grid_of(SHARDS)
    Standardize(min_nodes=3).fit(grid)
    (asked,) = {config_of(m)["stage"] for m in grid.sent}
    assert asked == "opening"
    told = served.kinds_in_run("standardize")
    assert Kind.COLUMNS in {kind for kind, _ in told}
    assert "standardize" in " ".join(disclosures_of(Rules()).served)
    scaling = Standardize(min_nodes=3).fit(grid_of(SHARDS, max_columns=3))
    is_that_of(scaling, POOLED)
    refusing = grid_of(SHARDS, allow=["krylov"])
    with pytest.raises(Exception, match="This node does not serve"):
        Standardize(min_nodes=3, node_timeout=0.1).fit(refusing)
