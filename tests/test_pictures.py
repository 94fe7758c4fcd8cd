"""Test that the README's badges are up to date. If not, run: python .ci/pictures.py"""

import re
import sys

import numpy as np
import pytest
from pages import ROOT, text

from flower_pca.plots import PICTURES

sys.path.insert(0, str(ROOT / ".ci"))
import pictures  # The script that draws the pictures is not in a package.

NUMBER = r"-?\d+(?:\.\d+)?"


@pytest.fixture(scope="module")
def all_pictures():
    return pictures.drawn()


def stored(name):
    return (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")


def test_every_picture_is_drawn_and_no_other_lies_there(all_pictures):
    assert {path.stem for path in pictures.FOLDER.glob("*.svg")} == set(all_pictures)


@pytest.mark.parametrize("name", ["python", "licence", "pooled"])
def test_a_picture_is_that_of_today(name, all_pictures):
    there, now = stored(name), all_pictures[name]
    assert re.sub(NUMBER, "", there) == re.sub(NUMBER, "", now)
    numbers = [[float(number) for number in re.findall(NUMBER, each)] for each in (there, now)]
    np.testing.assert_allclose(*numbers, atol=0.15)  # a length is rounded to a tenth


def test_the_badge_of_the_papers_claims_what_was_recorded():
    done, items = map(int, re.search(r"(\d+) of (\d+) in full", stored("papers")).groups())
    assert (done, items) == pictures.recorded()


def test_the_readme_shows_them_with_their_titles():
    shown = dict(re.findall(r"!\[([^]]*)\]\(docs/pictures/([\w-]+)\.svg\)", text("README.md")))
    assert len(shown) == 4
    for words, name in shown.items():
        (title,) = re.findall("<title>(.*)</title>", stored(name))
        assert " ".join(words.split()) == title


def test_the_result_of_the_badge_is_that_of_one_table():
    assert pictures.angle() < 1e-12


def test_the_gallery_shows_every_plot_and_every_file():
    shown = re.findall(r"\(pictures/gallery/(\w+)\.png\)", text("docs/gallery.md"))
    assert sorted(shown) == sorted(path.stem for path in pictures.GALLERY.glob("*.png"))
    assert {*PICTURES, "overview", "t2_against_spe", "what_masks_hide", "messages"} == set(shown)


@pytest.mark.slow
def test_the_picture_of_masks_is_of_a_real_run(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    pictures._masks(tmp_path / "masks.png")
    assert (tmp_path / "masks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", pictures.SCHEMES)
def test_the_readme_shows_the_report_on_a_light_and_on_a_dark_page(scheme):
    name = f"docs/pictures/report-{scheme}.png"
    assert text("README.md").count(name) == 1
    head = (ROOT / name).read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert tuple(int.from_bytes(head[i : i + 4]) for i in (16, 20)) == pictures.SIZE
