"""One federation over Flower's own transport for all tests of it, and what it said when one fails."""

import pytest
from builders import shards
from federation import Federation

from deployment.hub import Hub
from flower_pca import keys

SHARDS = shards((90, 80, 70), [9.0, 6.0, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1], seed=1)  # two directions stand out

IMPORTED = ("flower_pca.clients", "flower_pca.strategies")  # modules that the app of these tests imports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Federation):
                report.sections.append((f"logs of {name}", value.logs()))
    return report


@pytest.fixture(scope="session")
def hub():
    """Where SuperLink and nodes ask for signed apps."""
    with Hub() as hub:
        yield hub
        hub.shutdown()


@pytest.fixture(scope="session")
def federation(tmp_path_factory, hub):
    """A SuperLink over TLS that admits three nodes by their keys; none of them is there."""
    folder = tmp_path_factory.mktemp("federation")
    made, asks = keys.write_keys(folder / "keys", nodes=3), {"FLWR_SUPERGRID_API_URL": hub.url}
    with Federation(folder, SHARDS, keys=made, environment=asks, forked=IMPORTED) as federation:
        for public in made.publics:
            federation.register(public)
        yield federation
