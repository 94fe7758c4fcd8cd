"""Test that all outputs say the same about a result, that noise gives bounds, and that faults come first."""

import json
import re

import numpy as np
import pytest
from builders import deal, rows
from test_report import Reader, report_page

from flower_pca import DP, simulate
from flower_pca.base import labels
from flower_pca.cli import main
from flower_pca.plots import course, figure

SHARDS = deal(rows(600, 0.7 ** np.arange(6), seed=4) + 0.2, (300, 200, 100))


@pytest.fixture(scope="module")
def noisy_result():
    dp = DP(epsilon=1.0, delta=1e-7, clip=3.0, noise_seed=1)
    return simulate("ssi(oversample=2, max_rounds=3)", SHARDS, n_components=3, dp=dp)


@pytest.fixture(scope="module")
def short():
    return simulate("ssi", SHARDS, n_components=2, tol=1e-12, max_rounds=1)


def shown(result, tmp_path, capsys, *words):
    """What `flower-pca show` prints."""
    assert main(["show", str(result.save(tmp_path / "r.npz")), *words]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_under_noise_every_table_has_the_same_bounds(noisy_result, tmp_path, capsys):
    known = noisy_result.certainty
    bounds = [
        [labels.share_in_words(each), labels.share_in_words(first)]
        for each, first in zip(known.shares, known.together, strict=True)
    ]
    read = Reader(report_page(noisy_result, tmp_path))
    assert [row[3:5] for row in read.tables["Components"][1:]] == bounds
    every = {
        "table": noisy_result.table(),
        "show": shown(noisy_result, tmp_path, capsys),
        "notebook": re.sub("<[^>]*>", " ", noisy_result._repr_html_()),
    }
    for where, text in every.items():
        for each, first in bounds:
            assert re.search(rf"{each} +{first}", text), where
        assert not re.search(r"\d\.\d\d%", text), where
        assert str(known) in text, where
        assert f"about {noisy_result.n_samples_:,}" in text or where == "table"
    assert str(known) in read.text["p"]
    figures = json.loads(shown(noisy_result, tmp_path, capsys, "--json"))
    assert figures["explained_variance_ratio"] is None
    assert figures["bounds_of_ratio"] == known.shares.tolist()
    assert figures["bounds_together"] == known.together.tolist()
    assert figures["bounds_left_out"] == known.left_out.tolist()
    assert figures["noise_alone"] == known.floor
    assert "of about" in repr(noisy_result)
    assert "of about" in noisy_result.summary().title


@pytest.mark.slow
def test_the_overview_of_a_run_with_noise_shows_bounds_and_no_share(noisy_result):
    drawn = course.overview_figure(noisy_result)
    (bars,) = (container for container in drawn.axes[0].containers if hasattr(container, "has_yerr"))
    ends = np.array([segment[:, 1] for segment in bars[2][0].get_segments()])
    np.testing.assert_allclose(ends, noisy_result.certainty.shares, atol=1e-9)
    assert not drawn.axes[0].texts
    assert "noise" in drawn.axes[0].get_xlabel()
    assert not any("%" in text.get_text() for text in figure(noisy_result, "cumulative").axes[0].texts)


def test_without_noise_shares_are_what_they_are(short, tmp_path, capsys):
    share = f"{short.explained_variance_ratio_[0]:.2%}"
    assert short.certainty is None
    assert all(share in text for text in (short.table(), shown(short, tmp_path, capsys), short._repr_html_()))
    figures = json.loads(shown(short, tmp_path, capsys, "--json"))
    assert figures["explained_variance_ratio"] == short.explained_variance_ratio_.tolist()
    assert figures["bounds_together"] is figures["bounds_left_out"] is figures["noise_alone"] is None


@pytest.mark.slow
def test_a_run_that_fell_short_says_so_first(short, tmp_path, capsys):
    said = f"The run has not reached its goal (max rounds): {short.status.words}."
    assert "after 1 round" in said
    assert short.table().splitlines()[0] == said
    assert shown(short, tmp_path, capsys).splitlines()[0] == said
    assert short._repr_html_().startswith(f"<div><p><b>{said}</b></p>")
    assert Reader(report_page(short, tmp_path)).text["p"][0] == said


def test_one_thing_is_not_several():
    result = simulate("uda", [SHARDS[0][:, :1]], n_components=1)
    assert labels.count(1, "message") == "1 message"
    assert labels.count(2000, "message") == "2,000 messages"
    assert "PCAResult(1 component of 300 rows x 1 column by uda" in repr(result)
    assert "300 rows x 1 column by uda" in result._repr_html_()


@pytest.mark.slow
def test_captions_of_a_run_with_noise_say_what_may_be(noisy_result, tmp_path):
    read = Reader(report_page(noisy_result, tmp_path, shards=SHARDS))
    captions = [image["alt"] for image in read.images]
    assert captions[0].startswith("The share of the total variance that each component may explain")
    assert "The share that the first components may explain together: any value within the band." in captions
    assert not any(
        exact in caption for caption in captions for exact in ("each component explains", "components explain")
    )
    assert any("the privacy budget does not cover them" in words for words in read.text["p"])
    plain = Reader(report_page(noisy_result, tmp_path))
    assert not any("does not cover" in words for words in plain.text["p"])


@pytest.mark.slow
def test_pages_of_one_round_say_so(tmp_path):
    read = Reader(report_page(simulate("uda", SHARDS, n_components=2), tmp_path))
    assert "Approximate (see residuals_)." in read.text["p"]


@pytest.mark.slow
def test_no_residuals_are_reported_for_robust_and_personalized_results(tmp_path):
    result = simulate("exact_per_pca(local_components=1, max_rounds=2)", SHARDS, n_components=1)
    read = Reader(report_page(result, tmp_path))
    assert "residual" not in " ".join([*read.facts, *read.tables["Components"][0], *result.table().splitlines()[1:]])
    assert read.text["p"][0].startswith("The run has not reached its goal (max rounds)")
    assert any(
        words.startswith("All clients share 1 component. In addition, each client has 1 of its own.")
        for words in read.text["p"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["scree", "weights", "overview"])
def test_pictures_in_png_have_one_ground(what, tmp_path):
    from matplotlib.image import imread

    wide = simulate("krylov", deal(rows(60, 0.9 ** np.arange(50), seed=1), (30, 30)), n_components=3)
    seen = imread(wide.plot(what, tmp_path / "p.png"))
    assert seen.shape[2] == 3 or (seen[..., 3] == 1.0).all()
    assert (seen[:3, :, :3] == 1.0).all()
