"""The list of attacks names files that there are."""

import re
from pathlib import Path

HERE = Path(__file__).parent / "attacks"


def test_the_list_of_attacks_names_files_that_there_are():
    named = re.findall(r"`((?:\.\./\w+/)?test_\w+\.py)`", (HERE / "README.md").read_text(encoding="utf-8"))
    assert named
    assert all((HERE / name).is_file() for name in named)
