"""One BLAS thread and no telemetry, set before numpy is imported: sums then come out the same on every machine.

Where Python is told to keep no bytecode, as in many images, it is kept in a folder of its own: the tests start some
hundred processes, each of which would compile all of it anew, which is half of their time.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", FLWR_TELEMETRY_ENABLED="0")
if sys.dont_write_bytecode:
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(Path(__file__).parents[1] / ".cache/bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

import gc
import importlib
import subprocess
import tempfile
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("flower_pca", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("flower_pca")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is imported and collected stays: the garbage collector has nothing to look for there, and looks seldom.

    Flower is imported before the tests, since it warns; the process that waits for its workers needs none of it.
    """
    gc.disable()
    try:
        if getattr(session.config.option, "dist", "no") == "no":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module("fake_grid")
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Every second worker collects from the end, so that each compiles half of the files, and reads what the other has.

    pytest_collection_modifyitems puts all into one order again.
    """
    report = yield
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if isinstance(collector, pytest.Directory | pytest.Session) and int(number) % 2:
        report.result.reverse()
    return report


NETWORK = {"cluster", "superlink", "federation", "tab", "address", "terminal", "containers", "images", "ray"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What one worker has to do alone, as it shares a cluster or a SuperLink, begins before all else.

    The tests of any other file are one worker's too, so that what they share is made once. pytest-xdist 3.8 tells a
    group by the end of a test's name, and no longer reaches names since pytest 9.2.
    """
    items.sort(key=lambda item: (item.get_closest_marker("xdist_group") is None, item.path))
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if NETWORK.intersection([*getattr(item, "fixturenames", ()), *(group.args if group else ())]):
            item.add_marker(pytest.mark.network)  # The fixtures of a test say that it needs a network.
    for item in items if getattr(config.option, "loadgroup", False) else ():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if hasattr(item, "_id"):
            name = f"{item._id.rest}@{item.get_closest_marker('xdist_group').args[0]}"
            item._id = type(item._id)(path=item._id.path, names=(name,))


@pytest.fixture(autouse=True)
def drawn_again(monkeypatch):
    """What masks, shares and noise draw from the operating system is the same in every run of a test."""
    monkeypatch.setattr(os, "urandom", np.random.default_rng(0).bytes)


@pytest.fixture(autouse=True)
def not_synced(monkeypatch):
    """Files of tests need not outlast a power cut: nobody waits until they are on the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """A run that takes seconds on a slow machine does what it does elsewhere.

    It says nothing of its rounds on the way, and waits no more often for the disk.
    """
    for seconds in ("flower_pca.commands.common.EVERY", "flower_pca.base.checkpoint._EVERY"):
        monkeypatch.setattr(seconds, float("inf"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The node's user's own place, where a ledger lies without memory_dir."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def unillustrated(monkeypatch):
    """Reports have no pictures, which are most of a command's time: for tests that ask for something else."""
    monkeypatch.setattr("flower_pca.report.page.pictures_as_html", lambda result, shards, chosen=None: "")


@pytest.fixture
def lines():
    """A run of Flower's in this process, for fake grids; what it logs."""
    import fake_grid  # imported late: see pytest_collection

    with fake_grid.in_a_run() as logged:
        yield logged


@pytest.fixture(scope="session")
def papers_data():
    """The path of one of the papers' data sets by its name; without it the test is skipped."""
    from sims.common import data

    def path(name):
        found = data.folder() / f"{name}.npz"
        if not found.is_file():
            pytest.skip(f"{found.name} is not in {data.folder()}; {data.VARIABLE} names another folder")
        return found

    return path


@pytest.fixture(scope="session")
def cluster():
    """The address of one Ray cluster for all tests on Ray, in a process of its own that ends with this one."""
    pytest.importorskip("ray", reason="the extra `simulation` is not installed")
    code = (
        "import ray, sys; print(ray.init(num_cpus=2, include_dashboard=False).address_info['gcs_address'], flush=True);"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "RAY_max_direct_call_object_size": str(2**20)}
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
        address = process.stdout.readline().strip()
        if not address:
            process.communicate(timeout=300)
            complaints.seek(0)
            pytest.fail(f"Ray's cluster has ended with {process.returncode}: {complaints.read()[-4000:]}")
        yield address
        process.communicate(timeout=300)


@pytest.fixture(scope="session")
def tab():
    """A tab of a headless browser."""
    import browser

    if browser.PATH is None:
        pytest.skip(f"no browser is installed: none of {', '.join(browser.NAMES)} is on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browser.page(profile) as opened:
        yield opened
