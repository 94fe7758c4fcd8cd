"""Links within the repository lead somewhere: the file is there, and the heading that is named has that name."""

import re

import pytest
from cases import every
from pages import EVERY, ROOT, text

ALL = [*EVERY, "CHANGELOG.md"]


def prose(page):
    """What a page says, without its code."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text(page), flags=re.DOTALL | re.MULTILINE)


def links(page):
    """The file and the anchor of each link that stays here; the page itself where only an anchor is named."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            file, _, anchor = re.sub("#only-(light|dark)$", "", target).partition("#")
            yield (ROOT / page).parent / file if file else ROOT / page, anchor


def anchors(path):
    """Return the names of a page's headings in links, and of the objects that it documents."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    named = [re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain]
    return named + re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)


def check_links(page):
    for path, anchor in links(page):
        assert path.exists(), path
        if anchor:
            assert path.suffix == ".md", path
            assert anchor in anchors(path), f"{page}: {path.name}#{anchor}"


@pytest.mark.slow
@every("page", ALL)
def test_links_lead_to_files_and_headings(page):
    check_links(page)


@pytest.mark.slow
@every("page", ALL)
def test_no_two_headings_of_a_page_have_one_anchor(page):
    found = anchors(ROOT / page)
    repeated = {anchor for anchor in found if found.count(anchor) > 1}
    assert not {anchor for other in ALL for path, anchor in links(other) if path.samefile(ROOT / page)} & repeated


def test_the_check_finds_what_is_wrong(tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text("# One\n\n[gone](b.md), [no heading](#two), [right](#one), `[code](c.md)`\n")
    monkeypatch.setattr("test_links.text", lambda page: (tmp_path / page).read_text())
    monkeypatch.setattr("test_links.ROOT", tmp_path)
    with pytest.raises(AssertionError, match=r"b\.md"):
        check_links("a.md")
    assert [(path.name, anchor) for path, anchor in links("a.md")] == [("b.md", ""), ("a.md", "two"), ("a.md", "one")]
    assert anchors(tmp_path / "a.md") == ["one"]
