"""A plugin of pytest: which functions of the package each test file enters, and what it costs, as reach.json."""

import cProfile
import json
import time
from collections import defaultdict
from pathlib import Path

import pytest

FILES: dict[str, set[str]] = defaultdict(set)
SECONDS: dict[str, float] = defaultdict(float)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    profile, begun = cProfile.Profile(), time.process_time()
    name = str(item.path.relative_to(item.config.rootpath))
    profile.enable()
    yield
    profile.disable()
    SECONDS[name] += time.process_time() - begun
    package = item.config.rootpath / "flower_pca"
    for entry in profile.getstats():
        if not isinstance(entry.code, str) and entry.code.co_filename.startswith(str(package)):
            file = Path(entry.code.co_filename).relative_to(item.config.rootpath)
            FILES[f"{file}:{entry.code.co_qualname.replace('.<locals>', '')}"].add(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    found = {"files": {key: sorted(names) for key, names in sorted(FILES.items())}, "seconds": dict(SECONDS)}
    (session.config.rootpath / "reach.json").write_text(json.dumps(found))
