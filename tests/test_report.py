"""Test reports: one complete file with the numbers of the result, shown correctly by a real browser."""

import base64
import functools
import importlib.util
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from builders import shards
from pages import folder_of_sites

from flower_pca import PCAResult, report, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.cli import main
from flower_pca.plots import available

pytestmark = pytest.mark.xdist_group("browser")  # One browser serves all pages.


def reported_sites(clients=4, d=10):
    return shards([20 + 5 * i for i in range(clients)], 0.8 ** np.arange(d))


@pytest.fixture(scope="module")
def measured_result():
    return simulate("krylov", reported_sites(), n_components=3, reconstruction_error=True)


def report_page(given, tmp_path, **options):
    path = report.write(given, tmp_path / "report.html", **{"title": "Four sites", **options})
    assert path == tmp_path / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole_page(measured_result):
    """Its page with all pictures, which are drawn once."""
    with TemporaryDirectory() as folder:
        return report_page(measured_result, Path(folder), shards=reported_sites())


def page_of_words(given, tmp_path, **options):
    """A page without its pictures: what is asked of its words needs none."""
    find = importlib.util.find_spec
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
        return report_page(given, tmp_path, **options)


def test_a_run_that_was_asked_to_monitor_says_its_limits(measured_result, tmp_path):
    monitored = simulate("krylov", reported_sites(), n_components=3, monitor=True)
    assert f"Limits: {Monitor(monitored).limits()}." in page_of_words(monitored, tmp_path)
    assert "Limits" not in page_of_words(measured_result, tmp_path)


def sketch(drawn, stream, kind):
    """In place of `style.write`: a picture that was put together and is not drawn, which is most of its time."""
    stream.write(b"<svg/>")


def page_of_sketches(given, tmp_path, **options):
    """A page on which every picture has its place and its words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report.page.style, "write", sketch)
        return report_page(given, tmp_path, **options)


class Reader(HTMLParser):
    """What a page consists of: headings, cells of tables, pictures, and every address it names."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.text, self.tables, self.images, self.addresses = [], {}, {}, [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.addresses += [given[name] for name in ("src", "href") if name in given]
        if tag == "img":
            self.images.append(given)
        if tag not in ("img", "meta", "link"):
            self.stack.append(tag)
            self.text.setdefault(tag, []).append("")
        if tag == "table":
            self.tables[self.text["h2"][-1]] = []
        if tag == "tr":
            self.tables[self.text["h2"][-1]].append([])

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag
        if tag in ("th", "td"):
            self.tables[self.text["h2"][-1]][-1].append(self.text[tag][-1])

    def handle_data(self, data):
        if self.stack:
            self.text[self.stack[-1]][-1] += data

    @property
    def facts(self):
        return dict(zip(self.text["dt"], self.text["dd"], strict=True))


@pytest.mark.slow
def test_the_report_has_the_numbers_of_the_result(measured_result, whole_page):
    read = Reader(whole_page)
    X = np.vstack(reported_sites())
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    assert read.text["h1"] == read.text["title"] == ["Four sites"]
    facts = read.facts
    assert (facts["rows"], facts["features"], facts["clients"], facts["components"]) == ("110", "10", "4", "3")
    assert facts["variance explained"] == f"{values[:3].sum() / values.sum():.2%}"
    assert facts["mean squared error"] == f"{values[3:].sum() * 109 / 110:.4g}"
    assert facts["messages"] == str(len(measured_result.history))
    components = read.tables["Components"]
    assert [row[:3] for row in components[1:]] == [
        [str(j + 1), f"{v:.4g}", f"{v / values.sum():.2%}"] for j, v in enumerate(values[:3])
    ]
    _, _, V = np.linalg.svd(X - X.mean(axis=0))
    heaviest = np.argsort(-np.abs(V[:3]), axis=1)[:, :3]
    assert [re.findall(r"column (\d)", row[-1]) for row in components[1:]] == heaviest.astype(str).tolist()
    rest = [np.mean(np.sum(((part - X.mean(axis=0)) @ V[3:].T) ** 2, axis=1)) for part in reported_sites()]
    assert read.tables["Clients"][1:] == [[f"client {i}", str(20 + 5 * i), f"{e:.4g}"] for i, e in enumerate(rest)]
    assert [row[1] for row in read.tables["Messages"][1:]] == [record.stage for record in measured_result.history]


@pytest.mark.slow
def test_pictures_are_svg_within_the_report_and_nothing_is_fetched(measured_result, whole_page):
    read = Reader(whole_page)
    drawn = available(measured_result, reported_sites())
    assert {"scree", "loadings", "weights", "scores", "errors"} <= set(drawn)
    for image, picture in zip(read.images, drawn.values(), strict=True):
        kind, data = image["src"].split(";base64,")
        assert kind == "data:image/svg+xml"
        assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("}svg")
        assert image["alt"] == picture.words(measured_result)
    assert all(address.startswith("data:") for address in read.addresses)
    assert "script" not in read.text


@pytest.mark.slow
def test_without_shards_it_leaves_the_clients_out(measured_result, tmp_path):
    read = Reader(page_of_sketches(measured_result, tmp_path))
    assert len(read.images) == len(available(measured_result)) == len(available(measured_result, reported_sites())) - 3
    assert "Clients" not in read.tables


def test_without_matplotlib_it_has_its_tables_and_says_what_to_install(measured_result, tmp_path):
    text = page_of_words(measured_result, tmp_path, shards=reported_sites())
    assert Reader(text).images == []
    assert 'matplotlib is needed to draw, but is not installed. Run: pip install "flower-pca[plot]"' in text
    assert {"Components", "Clients", "Messages"} <= set(Reader(text).tables)


def test_how_the_run_ended_is_said_in_words_and_color(measured_result, tmp_path):
    assert f'class="ended ok">L{measured_result.status.words[1:]}.' in page_of_words(measured_result, tmp_path)
    short = simulate("ssi", reported_sites(), n_components=3, tol=1e-12, max_rounds=4)
    text = page_of_words(short, tmp_path)
    assert 'class="ended bad">The run has not reached its goal (max rounds): largest residual' in text
    assert "max rounds after 5 messages" in text


@pytest.mark.slow
def test_long_tables_are_cut_in_the_middle(tmp_path):
    many = reported_sites(60, d=4)
    given = simulate("ssi", many, n_components=2, tol=0.0, max_rounds=70, patience=100)
    read = Reader(page_of_words(given, tmp_path, shards=many))
    numbers = [row[0] for row in read.tables["Messages"][1:]]
    assert numbers == [*map(str, range(1, 21)), "…", *map(str, range(len(given.history) - 19, len(given.history) + 1))]
    errors = [float(row[2]) for row in read.tables["Clients, the 40 with the largest error"][1:]]
    each = [
        np.sum((part - given.mean_ - (part - given.mean_) @ given.components_.T @ given.components_) ** 2)
        for part in many
    ]
    worst = sorted((e / len(part) for e, part in zip(each, many, strict=True)), reverse=True)[:40]
    np.testing.assert_allclose(errors, worst, rtol=1e-3)


def test_clients_that_were_left_out_are_named_with_the_reason_and_nothing_in_it_is_markup(tmp_path, measured_result):
    first = replace(measured_result.history[0], failures={"7": "error 2: <script>alert('x')</script> & more"})
    given = replace(measured_result, history=type(measured_result.history)((first, *measured_result.history[1:])))
    text = page_of_words(given, tmp_path, title="<b>Sites</b> & {co}")
    assert "<script" not in text
    read = Reader(text)
    assert read.text["h1"] == ["<b>Sites</b> & {co}"]
    assert read.tables["Clients that were left out"][1] == ["1", "7", "error 2: <script>alert('x')</script> & more"]


@pytest.mark.slow
def test_a_loaded_result_gives_the_same_report(measured_result, tmp_path):
    loaded = PCAResult.load(measured_result.save(tmp_path / "result.npz"))
    one, other = (page_of_words(given, tmp_path, shards=reported_sites()) for given in (measured_result, loaded))
    assert one == other


@pytest.mark.slow
def test_a_failure_leaves_the_old_report(measured_result, tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr(report.page.style, "write", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report_page(measured_result, tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


# What reaches beyond the window, or holds more than is seen of it.
CUT = """[...document.querySelectorAll('h1,h2,p,dl div,dt,dd,figure,figcaption,.wide,th,td')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 0.5 || e.scrollWidth > e.clientWidth + 1
).map(e => e.tagName + ': ' + e.textContent.slice(0, 60))"""

HARD = {
    "plain": lambda: (simulate("krylov", reported_sites(), n_components=3, reconstruction_error=True), "Four sites"),
    "wide": lambda: (
        simulate("ssi", reported_sites(45, d=30), n_components=12, tol=0.0, max_rounds=50, patience=100),
        "/data/" + "a_very_long_name_without_a_space" * 4 + ".npz",
    ),
}


@functools.cache
def hard(case):
    """A result, its clients' rows, and the page of both with a reason that is one long word; it is drawn once."""
    given, title = HARD[case]()
    why = "error 2: " + "no_space_in_this_reason_" * 9
    history = type(given.history)((replace(given.history[0], failures={"9" * 19: why}), *given.history[1:]))
    parts = reported_sites() if case == "plain" else reported_sites(45, d=30)
    with TemporaryDirectory() as folder:
        return given, parts, report_page(replace(given, history=history), Path(folder), title=title, shards=parts)


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("width", [320, 390, 820, 1440])
@pytest.mark.slow
def test_a_browser_shows_all_of_it_at_every_width(tab, case, width, tmp_path):
    given, parts, text = hard(case)
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    tab.open((tmp_path / "report.html").as_uri(), width=width, height=800, mobile=width < 800)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("innerWidth") == width
    assert tab.evaluate("[...document.images].filter(i => i.complete && i.naturalWidth > 300).length") == len(
        available(given, parts)
    )
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.evaluate("Math.min(...[...document.images].map(i => i.clientWidth))") >= min(width - 60, 380)
    assert tab.evaluate(CUT) == []
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("file://", "data:"))] == []


@pytest.mark.slow
def test_the_report_prints_on_paper(tab, whole_page, tmp_path):
    (tmp_path / "report.html").write_text(whole_page, encoding="utf-8")
    tab.open((tmp_path / "report.html").as_uri(), width=1200, height=800)
    printed = tab.pdf()
    assert printed.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4
    assert len(tab.screenshot()) > 50_000
    tab.print_styles()
    figures = "[...document.querySelectorAll('dl')].map(l => getComputedStyle(l).gridTemplateColumns.split(' ').length)"
    assert min(tab.evaluate(figures)) > 2  # side by side, within the folded section as well


def test_the_browser_of_these_tests_hears_complaints_and_sees_what_is_too_wide(tab, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<p style='width:900px'>x</p><img src='none.png'><script>console.error(1)</script>"
    )
    tab.open(Path(tmp_path / "bad.html").as_uri(), width=320, height=600)
    assert tab.complaints
    assert tab.evaluate("document.documentElement.scrollWidth") > 320


@pytest.mark.usefixtures("unillustrated")
def test_a_page_is_written_from_a_result_alone_or_with_the_rows_of_its_sites(tmp_path, capsys):
    rng = np.random.default_rng(3)
    tables_of = {name: pd.DataFrame(rng.standard_normal((30, 4)), columns=list("abcd")) for name in ("n", "s", "w")}
    folder_of_sites(tmp_path / "sites", tables_of)
    found = simulate("krylov", tables_of, n_components=2)
    deployed = replace(found, site_names={2**60: "w", 2**61: "n", 2**62: "s"})  # In a deployment, nodes have ids.
    path = deployed.save(tmp_path / "result.npz")
    assert main(["report", str(path)]) == 0
    alone = Reader((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Clients" not in alone.tables
    assert main(["report", str(path), str(tmp_path / "sites"), "-o", str(tmp_path / "clients.html")]) == 0
    read = Reader((tmp_path / "clients.html").read_text(encoding="utf-8"))
    assert [row[0] for row in read.tables["Clients"][1:]] == ["n", "s", "w"]
    assert [row[0] for row in read.tables["Means and spreads"][1:]] == ["all rows", "n", "s", "w"]
    assert "Rows furthest out" in read.text["h2"]
    assert main(["report", str(path), "-o", str(tmp_path / "page.pdf")]) == 2
    assert "its name must end in .html, but page.pdf does not." in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_folded_is_printed(tab, whole_page, tmp_path):
    (tmp_path / "report.html").write_text(whole_page, encoding="utf-8")
    tab.open((tmp_path / "report.html").as_uri(), width=1200, height=800)
    seen = "document.querySelector('details img').checkVisibility()"
    assert not tab.evaluate(seen)
    folded = len(tab.pdf())
    tab.evaluate("document.querySelector('details').open = true")
    assert tab.evaluate(seen)
    assert abs(len(tab.pdf()) - folded) < 0.02 * folded
