"""Federations over Flower's own transport, and what they said when a test fails."""

import numpy as np
import pytest
from federation import Federation

from flower_pca import keys

D = 12


def pytest_configure(config):
    config.addinivalue_line("markers", "transport: runs a SuperLink and SuperNodes, for minutes")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Federation):
                report.sections.append((f"logs of {name}", value.logs()))
    return report


def rows(i):
    """Client i of eight: 100 i rows, with a mean and a spread of its own; two directions stand out."""
    rng = np.random.default_rng(i)
    mixing = np.linalg.qr(np.random.default_rng(99).standard_normal((D, D)))[0]
    spread = np.array([9.0, 6.0, *(0.5 * 0.8 ** np.arange(D - 2))])
    return rng.standard_normal((100 * i, D)) * spread @ mixing + 0.1 * rng.standard_normal(D)


def shards(*groups):
    return [np.vstack([rows(i) for i in group]) for group in groups]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two nodes that stay."""
    with Federation(tmp_path_factory.mktemp("pair"), shards((1, 2, 3, 4), (5, 6, 7, 8))) as federation:
        federation.present(0, 1)
        yield federation


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three nodes, to lose."""
    with Federation(tmp_path_factory.mktemp("trio"), shards((1, 8), (2, 3, 4), (5, 6, 7))) as federation:
        yield federation


@pytest.fixture(scope="module")
def bereft(trio):
    """A run that has lost a node without a word. Flower notices after a minute: other tests go on meanwhile."""
    trio.present(0, 1, 2)
    run = trio.run("Krylov", hold=1, n_components=2)
    run.held()
    trio.node(2).kill()
    run.go_on()
    return run


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    """Two nodes over TLS, which are let in by their keys."""
    folder = tmp_path_factory.mktemp("secure")
    made = keys.write(folder / "keys", nodes=2)
    with Federation(folder, shards((1, 2, 3, 4), (5, 6, 7, 8)), keys=made) as federation:
        for public in made.publics:
            federation.register(public)
        federation.present(0, 1)
        yield federation
