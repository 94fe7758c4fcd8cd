"""Test pictures of special kinds of results: they show all values, and nothing is cut off."""

import numpy as np
import pytest
from test_plots import assert_is_whole
from test_report_kinds import KINDS, SITES, case, noisy, tracked

from flower_pca import TrackingResult
from flower_pca.analysis.groups import distances
from flower_pca.plots import PICTURES, available, figure, style

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]  # in the worker that has already run these kinds


def axes_of_kind(kind, what):
    """The axes of a picture of a kind of run."""
    result, parts = case(kind)
    return figure(result, what, shards=parts).axes[0]


def texts(labels):
    return [label.get_text() for label in labels]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "loaded" not in kind and "masked" not in kind])
def test_nothing_is_cut_covered_or_run_together(kind):
    result, parts = case(kind)
    of_any = {"cumulative", "means", "errors", "bytes"} if kind in ("one shot", "robust", "personal") else ()
    for what in (what for what in available(result, parts) if what not in of_any):  # pictures that a plain run also has
        assert_is_whole(figure(result, what, shards=parts), what)


def test_each_picture_is_of_some_kind_and_drawn_here():
    drawn = {what for kind in KINDS for what in available(*case(kind))}
    assert set(PICTURES) - drawn <= {"outliers", "weights"}


def test_steps_have_whole_numbers_and_each_curve_a_color_of_its_own():
    result, _ = case("steps")
    for what in ("subspace_change", "fit", "statistic", "step_sizes"):
        ax = figure(result, what).axes[0]
        ax.figure.draw_without_rendering()
        assert all(float(tick).is_integer() for tick in ax.get_xticks())
        curves = [line for line in ax.lines if line.get_marker() == "o"]
        assert len({line.get_color() for line in curves}) == len(curves)
        assert not any(line.get_clip_on() for line in curves)
    moved = axes_of_kind("steps", "subspace_change").lines[0]
    np.testing.assert_array_equal(moved.get_xdata(), np.arange(1, result.steps))
    np.testing.assert_array_equal(moved.get_ydata(), result.subspace_change_[1:])
    sizes = axes_of_kind("steps", "step_sizes").lines
    np.testing.assert_allclose(sizes[0].get_ydata(), result.values_[:, 0] / result.rows_)


def test_a_run_of_steps_draws_itself(tmp_path):
    result = tracked()
    for what in ("overview", "subspace_change", "last_loadings"):
        assert result.plot(what, tmp_path / f"{what}.png").read_bytes()[:4] == b"\x89PNG"
    assert isinstance(result, TrackingResult)


def test_what_was_taken_out_is_that_of_the_sparse_parts():
    result, _ = case("robust")
    taken = [result.local[i]["S"] != 0.0 for i in range(3)]
    share = np.vstack(taken).mean(axis=0)
    order = np.argsort(-share, kind="stable")
    ax = axes_of_kind("robust", "removed_by_column")
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], share[order])
    assert texts(ax.get_yticklabels()) == [style.displayable_name(name) for name in result.feature_names_in_[order]]
    ax = axes_of_kind("robust", "taken_by_client")
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [part.mean() for part in taken])
    np.testing.assert_allclose(
        axes_of_kind("robust", "removed").images[0].get_array(), np.stack([p.mean(0) for p in taken]).T
    )
    low, sparse = axes_of_kind("robust", "sizes").containers
    root = [np.sqrt(np.mean(result.local[i]["L"] ** 2)) for i in range(3)]
    np.testing.assert_allclose([bar.get_width() for bar in low], root)
    root = [np.sqrt(np.mean(result.local[i]["S"] ** 2)) for i in range(3)]
    np.testing.assert_allclose([bar.get_width() for bar in sparse], root)


def test_what_is_shared_and_own_adds_up_to_the_rows():
    result, parts = case("personal")
    shared, own, rest = axes_of_kind("personal", "split").containers
    for i, part in enumerate(parts):
        rows = part.values[:, [list(part.names).index(name) for name in result.feature_names_in_]] - result.mean_
        pieces = result.split(part, client=i)
        squares = [np.mean(np.sum(piece**2, axis=1)) for piece in pieces]
        found = [bars[i].get_width() for bars in (shared, own, rest)]
        np.testing.assert_allclose(found, np.array(squares) / np.mean(np.sum(rows**2, axis=1)), rtol=1e-9)
    rho = distances([result.local_components_of(i) for i in range(3)])
    np.testing.assert_array_equal(axes_of_kind("personal", "own_distances").images[0].get_array(), rho)
    points = axes_of_kind("personal", "local_map").collections[0].get_offsets()
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.testing.assert_allclose(apart, rho, atol=1e-6)  # three points lie in a plane
    assert texts(axes_of_kind("personal", "own_distances").get_yticklabels()) == [
        style.displayable_name(n) for n in SITES.values()
    ]


def test_bars_under_noise_lie_within_what_can_be_said():
    for epsilon in (0.1, 20.0):
        result, _ = noisy(epsilon)
        known = result.certainty
        ax = figure(result, "scree").axes[0]
        (lines,) = (container for container in ax.containers if hasattr(container, "has_yerr"))
        ends = np.array([segment[:, 1] for segment in lines[2][0].get_segments()])
        np.testing.assert_allclose(ends, known.shares, atol=1e-9)
        assert ax.get_ylim()[1] <= 1.12 + 1e-12
        assert "with" not in figure(result, "cumulative").axes[0].get_xlabel()
