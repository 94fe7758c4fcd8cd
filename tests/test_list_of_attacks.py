"""The list of attacks names every file of them, and no other."""

import re
from pathlib import Path

HERE = Path(__file__).parent / "attacks"


def test_the_list_of_attacks_names_every_file():
    named = re.findall(r"`((?:\.\./\w+/)?test_\w+\.py)`", (HERE / "README.md").read_text(encoding="utf-8"))
    assert all((HERE / name).is_file() for name in named)
    assert {name for name in named if "/" not in name} == {file.name for file in HERE.glob("test_*.py")}
