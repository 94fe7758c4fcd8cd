"""Comparison of two results that must be equal, to the bit or nearly."""

import numpy as np


def assert_same_bits(a, b):
    """Whatever carried the messages: the same numbers to the last bit, by the same messages and answers."""
    for name in ("components_", "explained_variance_", "residuals_", "mean_", "scale_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True, err_msg=name)
    assert (a.total_variance_, a.mse_, a.rounds, a.status) == (b.total_variance_, b.mse_, b.rounds, b.status)
    steps = ([(r.number, r.stage, r.asked, r.answered) for r in x.history] for x in (a, b))
    assert next(steps) == next(steps)


def assert_same_own(a, b):
    """The same of what each client keeps for itself."""
    assert sorted(a.local) == sorted(b.local)
    for i, parts in a.local.items():
        assert parts.keys() == b.local[i].keys()
        for name, values in parts.items():
            np.testing.assert_array_equal(values, b.local[i][name], strict=True, err_msg=f"{name} of client {i}")


def assert_close(a, b, within=1e-8):
    """The same run but for rounding, as that of fixed point under masks."""
    apart = a.components_.T @ a.components_ - b.components_.T @ b.components_
    assert np.abs(apart).max() < within
    np.testing.assert_allclose(a.components_, b.components_, rtol=0, atol=within)
    np.testing.assert_allclose(a.explained_variance_, b.explained_variance_, rtol=within)
    np.testing.assert_allclose(a.mean_, b.mean_, rtol=within, atol=within)
    np.testing.assert_allclose(a.total_variance_, b.total_variance_, rtol=within)
    assert (a.n_samples_, a.rounds, a.status.outcome) == (b.n_samples_, b.rounds, b.status.outcome)
    if b.mse_ is not None:
        assert abs(a.mse_ / b.mse_ - 1.0) < within


def assert_close_own(a, b, names, within=1e-8):
    """Nearly the same of what each client keeps for itself, in units of its largest entry."""
    assert sorted(a.local) == sorted(b.local)
    for i, parts in b.local.items():
        for name in names:
            atol = within * max(1.0, np.abs(parts[name]).max())
            np.testing.assert_allclose(a.local[i][name], parts[name], rtol=0, atol=atol)


def assert_same_steps(a, b):
    """Two results of trackers: the same to the last bit."""
    for name in ("components_", "values_", "residuals_", "changes_", "rows_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert [r.stage for r in a.history] == [r.stage for r in b.history]


def own_counts(result):
    """How many components each client has of its own."""
    return [len(result.local_components_of(i)) for i in sorted(result.local)]
