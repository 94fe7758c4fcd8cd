"""The site of the documentation: built without a network, whole, and a browser asks nobody else for anything."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
import warnings
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from federation import wait
from pages import PAGES, ROOT, text

import flower_pca

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flower_pca import clients, strategies

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("zensical", "mkdocstrings")),
        reason='it takes what builds the documentation: pip install --group docs "."',
    ),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]

# Runs before anything else in the process that builds.
NO_NETWORK = """
import socket

def refuse(*arguments, **options):
    raise OSError("no network in this build")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("templates", "theme"):
        shutil.copytree(ROOT / ".ci" / name, folder / ".ci" / name)
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "No issues found" in run.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def address(site):
    """The site at a web server, as its search needs one."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_the_refusal_of_a_network_is_real(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    code = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "no network in this build" in run.stderr


def test_every_page_is_built_and_in_the_menu(site):
    first = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        if page.startswith("docs/"):
            name = page.removeprefix("docs/").replace(".md", ".html")
            assert (site / name).exists()
            assert f'href="{name}"' in first, name


def test_the_reference_has_every_public_name(site):
    page = (site / "reference.html").read_text(encoding="utf-8")
    every = [path.read_text(encoding="utf-8") for path in sorted((site / "api").glob("*.html"))]
    anchors = {anchor for text in every for anchor in re.findall(r'id="(flower_pca\.[\w.]+)"', text)}
    names = {f"flower_pca.{name}" for name in flower_pca.__all__ if name != "__version__"}
    for package in (strategies, clients):
        for name in package.__all__:  # Classes that are made from the registry have a line in its table.
            listed = f"<code>{package.__name__.rpartition('.')[2]}.{name}</code>" in page
            names |= set() if listed else {f"{package.__name__}.{name}"}
    assert {name for name in names if name not in anchors} == set()
    assert "flower_pca.PCAResult.plot" in anchors


def test_the_search_finds_the_api_by_name_and_pages_by_their_text(site):
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    of_class = [item for item in items if item["location"] == "api/flower_pca.PCAResult.html#flower_pca.PCAResult"]
    assert len(of_class) == 1
    assert "explained_variance_" not in of_class[0]["text"]
    assert any("explained_variance_ratio_" in item["text"] for item in items if item["location"][:6] == "python")


def test_the_api_shows_the_defaults_of_the_software(site):
    page = re.sub(r"<[^>]+>", "", (site / "api/flower_pca.PCAConfig.html").read_text(encoding="utf-8"))
    listed = re.search(r"scale\s+\((.*?)\)\s*\u2013", page, re.DOTALL)[1]
    assert re.search(r"default:\s+None", listed), listed


def test_formulas_are_mathml_and_the_header_has_the_version(site):
    assert '<math display="inline"' in (site / "masked-sums.html").read_text(encoding="utf-8")
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    assert f"flower_pca {version}" in (site / "index.html").read_text(encoding="utf-8")


class Sources(HTMLParser):
    """What a page makes a browser fetch by itself."""

    def __init__(self, page):
        super().__init__()
        self.fetched = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video") and "src" in given:
            self.fetched.append(given["src"])
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given["href"])


def test_no_page_fetches_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(PAGES) - 1
    for page in pages:
        fetched = Sources(page.read_text(encoding="utf-8")).fetched
        assert fetched
        assert [address for address in fetched if re.match(r"[a-z]+:|//", address)] == [], page.name


@pytest.mark.parametrize(
    "name", ["index.html", "algorithms.html", "api/flower_pca.Table.html", "deployment.html", "masking-protocol.html"]
)
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_shows_a_page_without_complaint(tab, address, name, width):
    tab.open(address + name, width=width, height=800, mobile=width < 800)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.querySelector('h1').innerText.length") > 3
    assert [url for url in tab.requests if not url.startswith((address, f"blob:{address}", "data:"))] == []
    assert tab.complaints == []


# What readers type, and the section that answers it
SEARCHES = {
    "T2 and SPE": "unusual-rows.html",
    "hotelling t2": "unusual-rows.html",
    "missing values": "missing-values.html",
    "impute NaN": "missing-values.html",
    "how many components?": "choosing.html#how-many-components",
    "number of components": "number-of-components.html",
    "what is a hint?": "glossary.html#hints",
    "hint meaning": "glossary.html#hints",
    "PCA before FedAvg": "pca-before-fedavg.html",
    "which messages, how large": "algorithms.html#which-messages-are-sent-and-how-large-they-are",
    "size of messages": "flower.html#message-sizes",
    "own ClientApp with mods": "mods.html",
    "write my own ClientApp": "mods.html",
    "context.state": "flower.html#what-contextstate-holds",
    "what is stored in context.state?": "flower.html#what-contextstate-holds",
    "add a node": "add-a-node.html",
    "how do I add a hospital?": "add-a-node.html",
    "upgrade": "upgrade.html",
    "install a new version": "upgrade.html",
    "rotate keys": "rotate-keys.html",
    "key rotation": "rotate-keys.html",
    "back up": "back-up.html",
    "how to make a backup": "back-up.html",
    "No file or folder named 'clinics'. Did you mean 'clinic'?": "troubleshooting.html#no-file-or-folder-named",
    "At most 6 components are possible (12 rows, 6 columns), not 8.": "troubleshooting.html#components-are-possible",
    "Only 4 of at least 7 nodes are connected after 90 s.": "troubleshooting.html#nodes-are-connected-after",
    "The data of client 2 (ulm) has 14 missing values (NaN).": "troubleshooting.html#missing-value-nan",
    "what leaves the site": "data-protection.html#what-leaves-a-site",
    "which data leave the hospital": "data-protection.html#what-leaves-a-site",
    "what if the server lies": "masked-sums.html#if-the-server-lies-a-malicious-server",
    "malicious server": "masked-sums.html#if-the-server-lies-a-malicious-server",
    "what to sign": "data-protection.html#a-text-to-sign",
    "agreement between sites": "data-protection.html#a-text-to-sign",
    "erase a patient": "erase-a-person.html",
    "GDPR delete patient": "erase-a-person.html",
    "PCAResult": "api/flower_pca.PCAResult.html#flower_pca.PCAResult",
    "with_imputation": "api/flower_pca.PCAResult.html#flower_pca.PCAResult.with_imputation",
    "mising vlues": "missing-values.html",
}
DIALOG = "[...document.querySelectorAll('body *')].find(e => e.shadowRoot)?.shadowRoot"
RESULTS = f"[...{DIALOG}.querySelectorAll('[role=option]')].map(a => a.href.replace(/[?]h=[^#]*/, ''))"


@pytest.fixture
def searching(tab, address):
    """The tab with the first page of the site, whose search field is open."""
    tab.open(address + "index.html", width=1280, height=800)
    tab.evaluate("document.querySelector('.md-search__button').click()")
    wait("the search field", lambda: tab.evaluate(f"!!{DIALOG}?.querySelector('input')"))
    return tab


def found(tab, query):
    """The addresses that the search field of the page lists for what a reader types."""
    tab.evaluate(f"{DIALOG}.querySelector('input').focus(), document.execCommand('selectAll')")
    tab.evaluate("document.execCommand('delete')")
    # What is listed then is the answer to this query, however long it takes.
    wait("the end of the list before", lambda: tab.evaluate(RESULTS) == [])
    tab.type(query)
    wait(f"an answer to {query!r}", lambda: tab.evaluate(RESULTS))
    return tab.evaluate(RESULTS)


def test_the_search_field_lists_the_section_that_answers_first_or_second(searching, address):
    listed = {query: [url.removeprefix(address) for url in found(searching, query)] for query in SEARCHES}
    assert {query: urls[:2] for query, urls in listed.items() if SEARCHES[query] not in urls[:2]} == {}
    assert [url for url in searching.requests if not url.startswith((address, f"blob:{address}", "data:"))] == []
    assert searching.complaints == []


def test_the_search_field_lists_pages_before_the_api(searching, address):
    for query in ("t2 spe", "hint", "missing values", "masked sums", "n_components"):
        assert not found(searching, query)[0].startswith(address + "api/"), query


def test_ci_builds_the_documentation_as_this_test_does():
    script = [shlex.split(line.replace('"$venv"', "VENV")) for line in text(".ci/run").splitlines() if line[:1] != "#"]
    assert ["VENV/bin/python", "-m", "zensical", "build", "--strict"] in script
    assert ["VENV/bin/python", "-m", "pip", "install", "--quiet", "--group", "docs"] in script
    assert "docs" in tomllib.loads(text("pyproject.toml"))["dependency-groups"]
