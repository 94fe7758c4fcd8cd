"""Test that each sentence of the pages on privacy is in tests/promises, with the tests that fail if it is not true.

A list has a line with the beginning of each sentence, without links and bold, and the tests in the lines below it. A
sentence without tests promises nothing: it explains, advises, warns, or says where something is to be found. So whoever
adds a sentence to a page decides which of the two it is.

The answers to an impact assessment in docs/data-protection.md and the page of `flower-pca rules` have tests of their
own: test_impact_assessment.py and attacks/test_pages_of_profiles.py.
"""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from dishonest import Node
from pages import text

from flower_pca.base.errors import ConfigError
from flower_pca.clients.policy.profiles import SETS
from flower_pca.clients.policy.rules import Rules
from flower_pca.masking import coverage

TESTS = Path(__file__).parent
PAGES = sorted(path.stem for path in (TESTS / "promises").glob("*.txt"))


def sentences_of(page):
    """Return the sentences of a page without links and bold. Cells of a table that are none belong to the next one."""
    whole = text(f"docs/{page}.md")
    if page == "data-protection":
        before, _, answers = whole.partition("## For an impact assessment")
        whole = before + answers[answers.index("## A text to sign") :]
    words = re.sub(r"^( *)```.*?^\1```$", "", whole, flags=re.DOTALL | re.MULTILINE)
    words = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", words).replace("**", "")
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-|#]|\d+\.) ?)", words):
        line = re.sub(r"^([->]|\d+\.) ", "", " ".join(block.split()).replace(" > ", " ")).strip("| ")
        if not re.fullmatch(r"#.*|[-: |]*", line):
            yield from re.split(r"(?<=[.?!:]) (?:\| )?(?=[A-Z`$*(\"])", line)


def listed_of(page):
    """Return the tests of each sentence in the list of a page, by its beginning."""
    found, start = {}, ""
    for line in (TESTS / "promises" / f"{page}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[start].append(line.strip())
        else:
            start = line
            found[start] = []
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_sentence_of_a_page_is_listed(page):
    listed = tuple(listed_of(page))
    missing = [sentence for sentence in sentences_of(page) if not sentence.startswith(listed)]
    assert not missing, f"List each of these in tests/promises/{page}.txt, with the tests that fail if it is not true."


@pytest.mark.parametrize("page", PAGES)
def test_each_sentence_that_is_listed_is_on_its_page(page):
    sentences = [*sentences_of(page)]
    assert not [start for start in listed_of(page) if not any(one.startswith(start) for one in sentences)]


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_of_a_sentence_are_there(page):
    for start, tests in listed_of(page).items():
        for test in tests:
            file, _, name = test.partition("::")
            assert f"\ndef {name}(" in (TESTS / file).read_text(encoding="utf-8"), (start, test)


def test_few_values_have_the_same_digest():
    digests = np.array([coverage._digest_of_value(value) for value in np.linspace(-1.0, 1.0, 2000)])
    same = np.mean(digests[:, None] == digests) - 1.0 / 2000
    assert 1 / 300 < same < 1 / 200


def test_a_profile_sets_what_the_page_says():
    page = text("docs/node-rules.md")
    for profile, rules in SETS.items():
        (row,) = re.findall(rf"^\| `{profile}` \| ([^|]*) \|", page, re.MULTILINE)
        said = re.findall(r"`(\w+)(?:=([^`]*))?`", row.partition("You must also set")[0])
        assert {name for name, _ in said} == {name for name in rules if rules[name] != getattr(Rules(), name)}
        for name, value in said:
            assert rules[name] == ast.literal_eval(value or "True"), name


@pytest.mark.parametrize(
    "rule", [{"categorical": "ward"}, {"covariates": "age"}, {"split_columns": True}, {"min_change": 20}], ids=str
)
def test_with_a_budget_a_node_takes_no_rule_by_which_rows_decide(rule, tmp_path):
    with pytest.raises(ConfigError, match="max_epsilon"):
        Node(0, np.eye(5), memory_dir=tmp_path, max_epsilon=1.0, max_delta=1e-6, **rule)
