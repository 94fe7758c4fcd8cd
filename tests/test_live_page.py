"""The live page of a run of steps: what it says, when it is written, how it ends, and that a browser follows it."""

import json
import re

import numpy as np
import pytest
from federation import wait
from test_report import sketch
from test_watching import R, served_parts, streaming_clients

from flower_pca import DataError, STMiss, cli, strategies, track
from flower_pca.plots import style
from flower_pca.report.live import Live

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("lines")]
REFRESH = re.compile(r'<meta http-equiv="refresh" content="(\d+)">')


def text_of(path):
    return path.read_text(encoding="utf-8")


def facts(page):
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "live.html"


def hurried(live, pages, path):
    """For `on_step`: the page is due at every step, and kept."""

    def after(record):
        live._due = 0.0
        live(record)
        pages.append(text_of(path))

    return after


def test_the_page_can_be_read_by_its_owner_only(path):
    """As reports are, which have the same parts."""
    with Live(path, title="Rows"):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_the_page_exists_from_the_start_and_reports_the_end(path, monkeypatch):
    monkeypatch.setattr(style, "write", sketch)
    pages = []
    parts = streaming_clients(turn=3)
    parts[1][4] = np.full_like(parts[1][4], np.nan)
    with Live(path, title="Three <b>sensors</b>", every=2.0) as live:
        assert "No step is over yet." in text_of(path)
        result = track(
            STMiss(detect=True, threshold=5.0, update_length=1), parts, n_components=R,
            on_step=hurried(live, pages, path),
        )  # fmt: skip
    last = text_of(path)
    for step, page in enumerate(pages):
        assert f"The run continues. Step {step} is over." in page
        assert REFRESH.findall(page) == ["2"]
        assert facts(page)["steps"] == str(step + 1)
        assert ("The subspace has changed at step 3: " in page) == (step >= 3)
        assert "<h2>Clients in step " + str(step) in page
        assert page.count("<img ") >= 4
        assert "Three &lt;b&gt;sensors&lt;/b&gt;" in page
    missing = np.isnan(np.vstack([own[0] for own in parts])).mean()
    assert facts(pages[0])["missing"] == f"{missing:.2%}"
    assert re.search(r"Clients in step 4.*?client 1</td><td>0</td><td>none<", pages[4], re.DOTALL)
    assert f"The run has ended: {result.status.words}." in last
    assert REFRESH.search(last) is None
    assert "loaded again" not in last
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.usefixtures("unillustrated")
def test_writing_the_page_takes_at_most_a_fifth_of_the_time(path, monkeypatch):
    now, written = [1000.0], []
    with Live(path, title="x", every=5.0) as live:
        write = live._write_page

        def slow(*given, **more):
            write(*given, **more)
            written.append(now[0])
            now[0] += cost[0]

        cost = [0.0]
        monkeypatch.setattr(live, "_write_page", slow)
        monkeypatch.setattr("flower_pca.report.live.time.monotonic", lambda: now[0])
        records = []
        track("st_miss", streaming_clients(1), n_components=R, on_step=records.append)
        for second in range(13):
            now[0] = 1000.0 + second
            live(records[-1])
        assert written == [1000.0, 1005.0, 1010.0]
        cost[0], written[:] = 3.0, []
        for second in range(20, 50):
            now[0] = max(now[0], 1000.0 + second)
            live(records[-1])
        assert written == [1020.0, 1035.0]


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "The run has ended after step 2: it was interrupted."),
        (DataError("The data must be finite. Got inf. Mend <it>."), "after step 2. The data must be finite."),
        (ValueError("no"), "The run has ended after step 2: ValueError: no."),
    ],
)
def test_the_page_says_how_a_run_was_interrupted(error, words, path):
    def stop(record):
        live(record)
        if record.step == 2:
            raise error

    with pytest.raises(type(error)), Live(path, title="x") as live:
        track("st_miss", streaming_clients(1), n_components=R, on_step=stop)
    page = text_of(path)
    assert words in page
    assert '<p class="ended">The run has ended' in page
    assert REFRESH.search(page) is None
    assert "<it>" not in page
    with pytest.raises(ValueError, match="early"), Live(path, title="x"):
        raise ValueError("early")
    assert "The run has ended before a step was over: ValueError: early." in text_of(path)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_sites_are_called_by_their_names_and_under_masks_not_at_all(path):
    for mask in (False, True):
        with Live(path, title="x") as live:
            strategy = strategies.STMiss(n_components=R, min_nodes=3, on_step=live, mask=mask, steps=2)
            strategy.fit(served_parts(streaming_clients(), names=("north", "<i>", "west")))
        page = text_of(path)
        for name in ("north", "&lt;i&gt;", "west"):
            assert (f'<td class="text">{name}</td>' in page) == (not mask)
        assert ("The figures of single clients are not known, because only sums are seen." in page) == mask
        assert "client 0" not in page


def test_without_matplotlib_it_has_tables(path, monkeypatch):
    monkeypatch.setattr("flower_pca.base.errors.is_installed", lambda name: False)
    with Live(path, title="x") as live:
        track("st_miss", streaming_clients(1), n_components=R, on_step=live)
    assert "matplotlib" in text_of(path)
    assert "<h2>Steps</h2>" in text_of(path)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_writes_the_page_and_its_end(tmp_path, capsys, path):
    np.save(tmp_path / "rows.npy", np.vstack(streaming_clients(1)[0]))
    words = ["track", tmp_path / "rows.npy", "--batch", 12, "--components", R, "--out", tmp_path / "out", "--live"]
    assert cli.main([str(word) for word in (*words, path)]) == 0
    assert "The run has ended: 6 steps, no client has more rows" in text_of(path)
    assert "<h1>The subspace of rows.npy</h1>" in text_of(path)
    capsys.readouterr()
    assert cli.main([str(word) for word in (*words, tmp_path / "rows.npy")]) == 2
    assert capsys.readouterr().err.startswith(
        "flower-pca: The live page is a web page, so its name must end in .html, but "
    )
    np.save(tmp_path / "rows.npy", np.vstack([*streaming_clients(1)[0][:3], np.full((12, 10), np.inf)]))
    assert cli.main([str(word) for word in (*words, path)]) == 2
    assert "The run has ended after step 2. The data of client 0 at step 3 has " in text_of(path)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1440])
def test_a_browser_follows_it_to_the_end(tab, scheme, width, path):
    records = []
    track(
        STMiss(detect=True, threshold=5.0, update_length=1),
        streaming_clients(turn=3),
        n_components=R,
        on_step=records.append,
    )
    with Live(path, title="Three sensors", every=1.0) as live:
        tab.open(path.as_uri(), width=width, height=900, mobile=width < 800, scheme=scheme)
        seen_on_page(tab, "No step is over yet.")
        live(records[-1])
        ground, wide, drawn = seen_on_page(tab, "The run continues.")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        assert wide <= width
        assert drawn
    seen_on_page(tab, "The run has ended: 6 steps")
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("file://", "data:"))] == []


# One script, as the page loads itself again between two of them
SEEN = """document.readyState === 'complete' && document.body.innerText.includes(WORDS) && [
    getComputedStyle(document.body).backgroundColor,
    document.documentElement.scrollWidth,
    [...document.images].every(i => i.complete && i.naturalWidth > 300),
]"""


def seen_on_page(tab, words):
    """What the page looks like once it is there and says so; it is loaded again by itself."""
    script = SEEN.replace("WORDS", json.dumps(words))
    return wait(f"the page with {words!r}", lambda: tab.evaluate(script), pause=0.1)
