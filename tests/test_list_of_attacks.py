"""The list of attacks names files and tests that there are."""

import re
from pathlib import Path

HERE = Path(__file__).parent / "attacks"
LIST = (HERE / "README.md").read_text(encoding="utf-8")


def test_the_list_of_attacks_names_files_that_there_are():
    named = re.findall(r"`((?:\.\./\w+/)?test_\w+\.py)(?:`|::)", LIST)
    assert named
    assert all((HERE / name).is_file() for name in named)


def test_every_script_has_a_test_that_there_is():
    """One row each: its name, what stops it, how, and the tests that play it."""
    rows = re.findall(r"^\| (\w+\.py(?:, \w+\.py)*) \| (.+) \| (.+) \| (.+) \|$", LIST, flags=re.MULTILINE)
    scripts = [script for names, *_ in rows for script in names.split(", ")]
    assert len(scripts) == len(set(scripts)) == 26
    for names, stopped_by, how, tests in rows:
        played = re.findall(r"`((?:\.\./\w+/)?test_\w+\.py)::(\w+)`", tests)
        assert stopped_by, names
        assert how, names
        assert played, names
        for file, test in played:
            assert f"\ndef {test}(" in (HERE / file).read_text(encoding="utf-8"), (names, file, test)
