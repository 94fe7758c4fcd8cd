"""What Flower's own programs report to its makers, and how an operator turns it off; nobody is called here."""

import importlib
import json
import logging
import queue
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
import warnings
from importlib.util import find_spec, module_from_spec
from types import SimpleNamespace

import pytest
from deployment.test_compose import dockerfile, said_with
from pages import blocks


class ReportedError(Exception):
    """A report was about to be sent."""


def of_flower(name):
    """One of Flower's modules; late, because no other test needs them."""
    with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
        warnings.simplefilter("ignore")
        return importlib.import_module(f"flwr.{name}")


@pytest.fixture(autouse=True)
def flower_home(monkeypatch, tmp_path):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))


def telemetry_in(monkeypatch, value):
    """Flower's module as a process has it in whose environment the variable has this value, and what it has sent."""
    if value is None:
        monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
    else:
        monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", value)
    monkeypatch.setattr(logging.getLogger("flwr-telemetry"), "handlers", [])  # The module adds one more.
    spec, sent = find_spec("flwr.supercore.telemetry"), []
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def send(request, **_):
        sent.append(request)
        raise urllib.error.URLError("nobody is called here")

    monkeypatch.setattr(urllib.request, "urlopen", send)
    return module, sent


def test_a_report_has_facts_about_the_machine_and_no_rows(monkeypatch):
    module, sent = telemetry_in(monkeypatch, None)
    module.create_event(module.EventType.RUN_SUPERNODE_ENTER, None)
    (request,) = sent
    assert urllib.parse.urlsplit(request.full_url).hostname == "telemetry.flower.ai"
    said = json.loads(request.data)
    assert (said["event_type"], said["event_details"]) == ("RUN_SUPERNODE_ENTER", {})
    assert set(said) == {"event_type", "event_details", "context"}
    assert set(said["context"]) == {"partner", "source", "cluster", "date", "flower", "hw", "platform"}
    again, told = telemetry_in(monkeypatch, "1")
    again.create_event(again.EventType.RUN_SUPERNODE_LEAVE, {"exit_code": 0})
    later = json.loads(told[0].data)
    assert later["event_details"] == {"exit_code": 0}
    assert uuid.UUID(later["context"]["source"]) == uuid.UUID(said["context"]["source"])  # It is kept in a file.


def test_with_the_variable_nothing_is_reported(monkeypatch):
    module, sent = telemetry_in(monkeypatch, "0")
    assert module.create_event(module.EventType.RUN_SUPERNODE_ENTER, None) == "disabled"
    assert sent == []


def test_the_unit_and_the_images_have_both_variables():
    (unit,) = blocks("docs/deployment.md", "ini")
    assert "\nEnvironment=FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1\n" in unit
    for name in ("node", "server"):
        (given,) = said_with(dockerfile(f"docker/{name}.Dockerfile"), "ENV")
        assert {"FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1"} <= set(given.split())


PROGRAMS = {
    "flower-supernode": ("supernode.cli.flower_supernode", "RUN_SUPERNODE_ENTER"),
    "flower-superlink": ("superlink.cli.flower_superlink", "RUN_SUPERLINK_ENTER"),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_report_that_they_start_and_ask_for_a_newer_version(program, monkeypatch):
    place, expected = PROGRAMS[program]
    module, asked = of_flower(place), []

    def report(kind, details=None):
        assert (kind, details) == (expected, None)
        raise ReportedError

    monkeypatch.setattr(module, "event", report)
    monkeypatch.setattr(module, "warn_if_flwr_update_available", lambda process_name: asked.append(process_name))
    monkeypatch.setattr(sys, "argv", [program, "--insecure"])
    with pytest.raises(ReportedError):
        getattr(module, place.rpartition(".")[2])()
    assert asked == [program]


def test_a_node_reports_that_it_ends(monkeypatch):
    def report(kind, details):
        assert (kind, details) == ("RUN_SUPERNODE_LEAVE", {"exit_code": 0})
        raise ReportedError

    module = of_flower("supercore.exit.exit")
    monkeypatch.setattr(module, "event", report)
    monkeypatch.setattr(sys, "argv", ["/opt/pca/bin/flower-supernode"])
    with pytest.raises(ReportedError):
        module.flwr_exit(0)


def test_flower_asks_for_a_newer_version_unless_another_variable_is_set(monkeypatch):
    """The variable against reports does not turn it off: conftest.py has set it."""
    module, posted = of_flower("supercore.update_check"), queue.Queue()

    def post(url, **given):
        posted.put((url, given["json"]))
        return SimpleNamespace(ok=False)

    monkeypatch.delenv("FLWR_DISABLE_UPDATE_CHECK", raising=False)
    monkeypatch.setattr(module.requests, "post", post)
    module.warn_if_flwr_update_available(process_name="flower-supernode")
    url, said = posted.get(timeout=300)
    assert urllib.parse.urlsplit(url).hostname == "api.flower.ai"
    assert set(said) == {"package_name", "flwr_version", "python_version", "os", "os_version", "process_name"}
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    monkeypatch.setattr(module, "_start_flwr_update_check_refresh_thread", lambda *_: pytest.fail("It asks."))
    module.warn_if_flwr_update_available(process_name="flower-supernode")


@pytest.mark.slow
def test_flwr_asks_for_a_newer_version(monkeypatch):
    module, asked = of_flower("cli.app"), []
    monkeypatch.setattr(module, "warn_if_flwr_update_available", lambda process_name: asked.append(process_name))
    monkeypatch.setattr(sys, "argv", ["flwr", "ls"])
    module.main(version=False)
    assert asked == ["flwr"]
