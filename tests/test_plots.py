"""Test pictures of every kind of result: complete files with its numbers, and the error without matplotlib."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from builders import leading, pooled, shards
from matplotlib.colors import to_hex, to_rgb
from scipy import sparse
from test_explain import people_of_sites

from flower_pca import ConfigError, simulate
from flower_pca.plots import PICTURES, available, figure, style
from flower_pca.results.pca import PCAResult

pytestmark = pytest.mark.slow

BY_COLUMN = "scores_by_column"  # only for runs with `explain`, `adjust` or `keep`
WHAT = ["overview", *(what for what, picture in PICTURES.items() if picture.of is PCAResult and what != BY_COLUMN)]


def plotted_sites(d=12, sizes=(60, 25)):
    return shards(sizes, 0.8 ** np.arange(d))


def result_of_sites(algorithm="krylov", *, d=12, k=3, **options):
    return simulate(algorithm, plotted_sites(d), n_components=k, **options)


CASES = {
    "curves": lambda: result_of_sites(),
    "one component": lambda: result_of_sites(k=1),
    "one feature": lambda: result_of_sites(d=1, k=1),
    "all components": lambda: result_of_sites(d=5, k=5),
    "heatmap": lambda: result_of_sites(d=20, k=9),
    "more components than rows of a heatmap": lambda: result_of_sites(d=45, k=40),
    "many features": lambda: result_of_sites(d=700, k=2),
    "one shot": lambda: result_of_sites("wda"),
    "faps": lambda: result_of_sites("faps", max_rounds=40),
    "not converged": lambda: result_of_sites("ssi", tol=0.0, max_rounds=7),
    "clients changed": lambda: result_of_sites(
        d=40, k=4, tol=1e-12, fraction=lambda message: [0, 1] if message < 3 else [0]
    ),
}


def size(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert png[-12:] == b"\x00\x00\x00\x00IEND\xaeB`\x82"
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def axes(given, what, shards=None):
    """The axes of a picture, before it is written."""
    return figure(given, what, shards=shards).axes[0]


def assert_is_whole(drawn, what):
    """Nothing of a picture is cut off, and no legend or label covers another part."""
    drawn.draw_without_rendering()
    inches = drawn.get_tightbbox()
    assert min(inches.x0, inches.y0) >= 0.0, what
    assert inches.x1 <= drawn.get_figwidth(), what
    assert inches.y1 <= drawn.get_figheight(), what
    for ax in drawn.axes:
        left, right = ax.get_xlim()
        labels = [tick.label1 for tick in ax.xaxis.get_major_ticks() if left <= tick.get_loc() <= right]
        boxes = [label.get_window_extent() for label in labels if label.get_text() and label.get_visible()]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes)), what
        if ax.get_legend():
            assert not ax.get_legend().get_window_extent().overlaps(ax.title.get_window_extent()), what
    legends = [ax.get_legend() for ax in drawn.axes if ax.get_legend()] + drawn.legends
    covered = [legend.get_window_extent() for legend in legends]
    assert not any(box.overlaps(ax.patch.get_window_extent()) for box in covered for ax in drawn.axes), what


@pytest.mark.parametrize(
    "case", [case for case in CASES if case not in ("heatmap", "faps", "not converged", "one component")]
)
def test_no_picture_has_clipped_or_overlapping_text(case):
    given = CASES[case]()
    drawn_here = available(given, parts := plotted_sites(given.n_features_in_))
    # Pictures of messages do not depend on the number of columns, and the others do not depend on the messages.
    if case != "curves":
        of_messages = {"convergence", "bytes"}
        drawn_here = [what for what in drawn_here if (what in of_messages) == (case in ("one shot", "clients changed"))]
    for what in drawn_here:
        assert_is_whole(figure(given, what, shards=parts), what)


@pytest.mark.parametrize("case", ["one feature", "many features"])
def test_every_kind_of_result_has_an_overview_in_svg(case, tmp_path):
    path = CASES[case]().plot("overview", tmp_path / "overview.svg")
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("what", WHAT)
def test_a_picture_of_pixels_is_sharp_on_paper(what, tmp_path):
    drawn = result_of_sites()
    width, height = size(drawn.plot(what, tmp_path / "picture.PNG", shards=plotted_sites()).read_bytes())
    assert width == (2600 if what == "overview" else 960)
    assert 400 <= height <= 1000


def test_variances_are_those_of_the_pooled_rows():
    variances = pooled(plotted_sites()).variances
    share = variances / variances.sum()
    bars = [bar.get_height() for bar in axes(result_of_sites(), "scree").patches]
    np.testing.assert_allclose(bars, share[:3], rtol=1e-9)
    assert [text.get_text() for text in axes(result_of_sites(), "scree").texts] == [f"{r:.1%}" for r in share[:3]]
    together = axes(result_of_sites(k=12), "cumulative")
    np.testing.assert_allclose(together.lines[0].get_ydata(), share.cumsum(), rtol=1e-9)
    passed = [f"{mark:.0%} with {1 + int(np.sum(share.cumsum() < mark))}" for mark in (0.5, 0.8, 0.9, 0.95, 0.99)]
    assert [words for line in together.get_xlabel().splitlines()[1:] for words in line.split(",  ")] == passed


def test_the_last_threshold_that_a_component_passes_is_named():
    X = np.random.default_rng(0).standard_normal((50, 3)) * [1000.0, 1.0, 0.1]
    ax = axes(simulate("krylov", [X], n_components=2), "cumulative")
    assert ax.get_xlabel().splitlines()[1] == "99% with 1"


def test_convergence_is_that_of_the_history_in_messages_and_in_bytes():
    given = result_of_sites("ssi", tol=1e-5)
    errors = [record.metrics["error"] for record in given.history if "error" in record.metrics]
    curve = axes(given, "convergence").lines[0]
    assert curve.get_ydata().tolist() == errors
    assert curve.get_xdata().tolist() == list(range(2, len(errors) + 2))
    traffic = axes(given, "bytes")
    total = given.history.bytes_up + given.history.bytes_down
    assert traffic.lines[0].get_xdata()[-1] * 1e3 == pytest.approx(total)
    assert traffic.get_xlabel().startswith("kB")


def test_a_run_that_does_not_iterate_shows_residuals_and_messages():
    given = result_of_sites("uda")
    assert axes(given, "convergence").lines[0].get_ydata().tolist() == given.residuals_.tolist()
    bars = axes(given, "bytes").patches
    assert len(bars) == 2 * len(given.history)
    # Each message has a bar at its own number, for the bytes up and for the bytes down.
    middles = [bar.get_x() + bar.get_width() / 2.0 for bar in bars]
    assert middles == pytest.approx(2 * list(range(1, len(given.history) + 1)))
    unit = {"kB": 1e3, "bytes": 1.0}[axes(given, "bytes").get_ylabel().split(",")[0]]
    total = given.history.bytes_up + given.history.bytes_down
    assert sum(bar.get_height() for bar in bars) * unit == pytest.approx(total)
    assert PICTURES["bytes"].words(given) != PICTURES["bytes"].words(result_of_sites())


@pytest.mark.parametrize("kind", [list, sparse.csr_array, sparse.coo_array, np.asarray])
def test_scores_lie_where_the_pooled_pca_puts_them_in_the_color_of_their_client(kind):
    mean, V = pooled(plotted_sites()).mean, leading(plotted_sites(), 3)
    cloud = axes(result_of_sites(tol=1e-12), "scores", [kind(part) for part in plotted_sites()]).collections[0]
    cloud.update_scalarmappable()
    points, colors = cloud.get_offsets(), cloud.get_facecolors()
    for color, part in zip(style.COLORS, plotted_sites(), strict=False):
        ours = points[[to_hex(c[:3]) == color for c in colors]]
        theirs = (part - mean) @ V[:2].T
        assert len(ours) == len(theirs)
        for j in range(2):
            np.testing.assert_allclose(np.sort(np.abs(ours[:, j])), np.sort(np.abs(theirs[:, j])), atol=1e-7)


def test_a_cloud_of_many_rows_is_thinned_and_says_so(tmp_path):
    parts = plotted_sites(3, sizes=(9000, 5000, 2))
    given = simulate("krylov", parts, n_components=2)
    ax = axes(given, "scores", parts)
    assert ax.get_title(loc="left") == "Scores of 4,668 of 14,002 rows"
    assert set(ax.collections[0].get_array()) == {0, 1, 2}
    assert given.plot("scores", tmp_path / "cloud.svg", shards=parts).stat().st_size < 600_000


def test_scores_whose_center_lies_outside_of_the_picture_have_no_arrows(tmp_path):
    """One huge row, which is not among those that are drawn, draws the center away from all others."""
    parts = plotted_sites(5, sizes=(9000, 5000))
    parts[1][1] = 1e7
    given = simulate("covariance", parts, n_components=2)
    assert not axes(given, "scores", parts).texts
    assert given.plot("scores", tmp_path / "cloud.svg", shards=parts).stat().st_size
    assert axes(given, "scores", [part[:2] for part in parts]).texts  # with the huge row in the picture


def test_errors_are_those_of_the_pooled_components():
    mean, V = pooled(plotted_sites()).mean, leading(plotted_sites(), 3)
    left = [np.mean(np.sum(((part - mean) - (part - mean) @ V.T @ V) ** 2, axis=1)) for part in plotted_sites()]
    ax = axes(result_of_sites(tol=1e-12), "errors", plotted_sites())
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], left, rtol=1e-7)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.average(left, weights=[60, 25]), rtol=1e-7)


def test_bars_are_the_shares_between_sites_and_by_columns():
    given = simulate("krylov", people_of_sites(), n_components=2, explain="age,sex")
    ax = axes(given, "explained")
    shares = [given.site_share_, given.explained_by_["age"], given.explained_by_["sex"]]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], np.concatenate(shares))
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["between sites", "by age", "by sex"]


@pytest.mark.parametrize(
    "settings",
    [{"explain": "age,sex"}, {"adjust": "age,site", "explain": "sex"}, {"harmonize": "combat", "keep": "age,sex"}],
    ids=str,
)
def test_scores_have_the_colors_of_columns(settings):
    tables = people_of_sites()
    given = simulate("krylov", tables, n_components=2, **settings)
    by_age, by_sex = figure(given, BY_COLUMN, shards=tables).axes[:2]
    if "adjust" in settings:
        by_age, by_sex = by_sex, by_age
    assert [by_age.get_title(loc="left"), by_sex.get_title(loc="left")] == ["age", "sex"]
    known = [given.at_site(i) if given.is_by_site else given for i in range(3)]
    scores = np.vstack([at_site.transform(table) for at_site, table in zip(known, tables, strict=True)])
    age = np.concatenate([table.age for table in tables])
    sex = np.concatenate([table.sex == "M" for table in tables])
    for ax, values in ((by_age, age), (by_sex, sex)):
        points, drawn = ax.collections[0].get_offsets(), ax.collections[0].get_array()
        order, ours = np.lexsort(points.T), np.lexsort(scores.T)
        np.testing.assert_allclose(points[order], scores[ours])
        np.testing.assert_allclose(drawn[order], values[ours])


def test_a_result_that_does_not_know_all_sites_draws_no_scores(tmp_path):
    tables = people_of_sites()
    given = simulate("krylov", tables, n_components=2, adjust="age,site", explain="sex")
    loaded = PCAResult.load(given.save(tmp_path / "result.npz"))
    assert {"scores", BY_COLUMN, "errors"} <= set(available(given, tables))
    assert not {"scores", BY_COLUMN, "errors"} & set(available(loaded, tables))
    with pytest.raises(ConfigError, match="this result does not have them for all sites"):
        loaded.plot("scores", tmp_path / "scores.svg", shards=tables)


HOSPITALS = dict(enumerate(sorted(f"hospital {j}" for j in range(25))))


def test_with_many_clients_the_furthest_ones_get_their_own_panels():
    parts = [np.random.default_rng(i).standard_normal((6, 4)) for i in range(25)]
    parts[7] += 5.0
    given = replace(simulate("krylov", parts, n_components=2), site_names=HOSPITALS)
    panels = figure(given, "scores", shards=parts).axes
    assert len(panels) == 12
    titles = [ax.get_title(loc="left") for ax in panels]
    assert HOSPITALS[7] in titles
    everybody, own = panels[titles.index(HOSPITALS[7])].collections
    assert (len(everybody.get_offsets()), len(own.get_offsets())) == (150, 6)
    np.testing.assert_allclose(own.get_offsets(), given.transform(parts[7]))


@pytest.mark.parametrize(("what", "k"), [("errors", 1), ("errors", 3), ("scores", 1)])
def test_with_many_clients_some_names_are_drawn_each_at_its_place(what, k):
    parts = [np.random.default_rng(i).standard_normal((6, 4)) for i in range(25)]
    given = replace(simulate("krylov", parts, n_components=k), site_names=HOSPITALS)
    drawn = figure(given, what, shards=parts)
    axis = drawn.axes[0].xaxis if what == "errors" else drawn.axes[-1].yaxis
    told = {
        round(float(place)): text.get_text()
        for place, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    }
    assert len(told) > 5
    assert told == {place: HOSPITALS[place] for place in told}
    plain = figure(replace(given, site_names={}), what, shards=parts)
    axis = plain.axes[0].xaxis if what == "errors" else plain.axes[-1].yaxis
    assert axis.get_label_text() == "client"


def test_loadings_are_bars_of_the_heaviest_columns_largest_first_with_their_names():
    given = replace(result_of_sites(), feature_names_in_=np.array([f"name {j}" for j in range(12)], dtype=object))
    panels = figure(given, "loadings").axes[:3]
    for ax, row in zip(panels, given.components_, strict=True):
        order = np.argsort(-np.abs(row))[:8]
        np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], row[order])
        assert [text.get_text() for text in ax.get_yticklabels()] == [f"name {j}" for j in order]
        assert ax.yaxis_inverted()
    labels = figure(result_of_sites(), "loadings").axes[0].get_yticklabels()
    assert labels[0].get_text() == f"column {np.argmax(np.abs(result_of_sites().components_[0]))}"
    drawn = figure(result_of_sites(), "loadings")
    assert not any(line.get_label().isdigit() for ax in drawn.axes for line in ax.lines)


def test_the_map_of_weights_has_all_of_them_or_the_heaviest_that_have_names():
    for d, k in [(20, 9), (12, 3)]:
        image = axes(result_of_sites(d=d, k=k), "weights").images[0]
        np.testing.assert_array_equal(image.get_array(), result_of_sites(d=d, k=k).components_.T)
    many = result_of_sites(d=300, k=2)
    np.testing.assert_array_equal(axes(many, "weights").images[0].get_array(), many.components_)
    named = replace(many, feature_names_in_=np.array([f"name {j}" for j in range(300)], dtype=object))
    ax = axes(named, "weights")
    heaviest = np.sort(np.argsort(-np.abs(many.components_).max(axis=0), kind="stable")[:40])
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"name {j}" for j in heaviest]
    np.testing.assert_array_equal(ax.images[0].get_array(), many.components_[:, heaviest].T)
    assert "weights" not in available(result_of_sites(d=5, k=3))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Rows without names are matched by position.
def test_names_are_written_as_they_are_however_odd():
    odd = ["price in $ per $", "a" * 60, "line\nbreak", "x^2_i", "", "\u8eab\u9577", "<b>", "\x00", "a", "b", "c", "d"]
    given = replace(result_of_sites(), feature_names_in_=np.array(odd, dtype=object), site_names={0: "$", 1: "b" * 80})
    for what in available(given, plotted_sites()):
        drawn = figure(given, what, shards=plotted_sites())
        drawn.draw_without_rendering()
        inches = drawn.get_tightbbox()
        assert inches.x0 >= 0.0, what
        assert inches.x1 <= drawn.get_figwidth(), what


def test_letters_that_one_font_lacks_come_from_another_and_are_question_marks_where_none_has_them(monkeypatch):
    from matplotlib.font_manager import fontManager

    own = style.font_families("Größe")
    assert style.with_known_letters("Größe") == "Größe"
    (other,) = style.font_families("a\ue000")[len(own) :]  # a private letter, which the fonts of formulas use
    assert other in {entry.name for entry in fontManager.ttflist}
    assert style.with_known_letters("a\ue000") == "a\ue000"
    style._font_with.cache_clear()
    monkeypatch.setattr(fontManager, "ttflist", [])
    assert style.with_known_letters("a\ue000") == "a?"
    assert style.font_families("a\ue000") == own
    style._font_with.cache_clear()


@pytest.mark.parametrize("what", ["convergence", "bytes"])
def test_the_first_and_the_last_marker_of_a_curve_are_whole(what):
    ax = axes(result_of_sites("ssi", tol=1e-5), what)
    assert not any(line.get_clip_on() for line in ax.lines if line.get_marker() == "o")


def test_no_two_curves_have_the_same_color():
    for count in (1, 7, 8, 20):
        assert len({to_hex(color) for color in style.curve_colors(count)}) == count


def test_an_svg_has_colors_for_a_dark_page_and_keeps_those_of_the_data(tmp_path):
    text = result_of_sites().plot("scree", tmp_path / "scree.svg").read_text()
    (sheet,) = re.findall(r"<style.*?</style>", text, re.DOTALL)
    assert "prefers-color-scheme: dark" in sheet
    for light, dark in style.DARK.items():
        assert f'[style*="fill: {light}"] {{ fill: {dark} !important }}' in sheet
        assert f"fill: {light}" in text.replace(sheet, "") or f"stroke: {light}" in text.replace(sheet, "")
    assert not set(style.COLORS) & set(style.DARK)
    drawn = {color for _, color in re.findall(r"(fill|stroke): (#[0-9a-f]{6})", text.replace(sheet, ""))}
    assert drawn <= {*style.DARK, *style.COLORS, style.BAR, style.FAINT}


# What eyes without red or without green cones see of linear RGB: Vienot, Brettel, Mollon 1999.
PROTAN = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])
DEUTAN = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])


@pytest.mark.parametrize("sight", [PROTAN, DEUTAN, np.eye(3)], ids=["no red", "no green", "all"])
def test_colors_are_told_apart_by_color_blind_eyes(sight):
    seen = [sight @ (np.array(to_rgb(color)) ** 2.2) for color in style.COLORS]
    seen = [np.clip(c, 0.0, 1.0) ** (1 / 2.2) for c in seen]
    apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 0.12


def test_the_clients_changed_case_really_opens_twice():
    given = CASES["clients changed"]()
    assert len(given.history.of("opening")) == 2
    assert axes(given, "convergence").get_legend().get_texts()[0].get_text() == "clients changed"


def test_a_picture_replaces_the_old_one_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    assert result_of_sites().plot("scree", str(path)) == path
    size(path.read_bytes())
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_picture(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def fail(self, file, **options):
        file.write(b"half")
        raise OSError("disk full")

    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        result_of_sites().plot("overview", path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_same_result_gives_the_same_pictures(tmp_path, ending):
    given = result_of_sites()
    for what in ("scree", "scores"):
        first = given.plot(what, tmp_path / f"1.{ending}", shards=plotted_sites()).read_bytes()
        assert replace(given).plot(what, tmp_path / f"2.{ending}", shards=plotted_sites()).read_bytes() == first


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r'^matplotlib is needed .* pip install "flower-pca\[plot\]"'):
        result_of_sites().plot("scree", tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def test_neither_the_package_nor_a_picture_touches_pyplot(tmp_path):
    code = (
        "import sys, numpy as np, flower_pca, flower_pca.plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "X = np.random.default_rng(0).standard_normal((30, 5))\n"
        "result = flower_pca.simulate('krylov', [X], n_components=2)\n"
        f"result.plot('scores', {str(tmp_path / 'p.png')!r}, shards=[X])\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
