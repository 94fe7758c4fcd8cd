"""Signed apps at nodes that run: what their reviewer has signed is run, and nothing else is, whoever passes it on.

Flower's Hub is played by a server of this process, that of hub.py.
"""

import base64
import shutil
import subprocess
import warnings

import pytest
from builders import leading
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from pages import blocks

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("federation")]

APP = "@tests/trial==1.0.0"
PAGE = "docs/administrator.md"


@pytest.fixture(scope="module")
def signing_folder(tmp_path_factory):
    """A folder with `trusted.yaml` of the page, a key of the reviewer and one of a stranger, made as the page says."""
    folder = tmp_path_factory.mktemp("signed")
    (command,) = [block for block in blocks(PAGE, "sh") if "-t ed25519" in block]
    for name in ("reviewer", "stranger"):
        subprocess.run(command.replace("reviewer", name), shell=True, check=True, cwd=folder)
    (trusted,) = blocks(PAGE, "yaml")
    public = (folder / "reviewer.pub").read_text().strip()
    (folder / "trusted.yaml").write_text(trusted.replace("ssh-ed25519 AAAA...", public))
    return folder


@pytest.fixture(scope="module")
def trusting_federation(federation, signing_folder):
    """Two nodes of trusted entities."""
    federation.present()
    for partition in range(2):
        federation.start_node(partition, options=("--trusted-entities", str(signing_folder / "trusted.yaml")))
    federation.present(0, 1)
    yield federation
    federation.present()


def signature(fab, key, name):
    """What the Hub has after `flwr app review` by the holder of this key, of whom it says that this is the name."""
    with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        from flwr.cli.app_cmd.review import _sign_fab  # late: no other test needs it

    signed, when = _sign_fab(fab, load_ssh_private_key(key.read_bytes(), None))
    return {
        "public_key_id": name,
        "signature": base64.urlsafe_b64encode(signed).decode().rstrip("="),
        "signed_at": when,
    }


@pytest.fixture(scope="module")
def apps(trusting_federation):
    """The app, and a foe's by the same name that leaves a trace wherever it is imported: folder, bundle and trace."""
    bad, trace = trusting_federation.folder / "bad", trusting_federation.folder / "trace"
    shutil.copytree(trusting_federation.app, bad)
    client = bad / "trial/client_app.py"
    client.write_text(f"open({str(trace)!r}, 'w').close()\n{client.read_text()}")
    made = []
    for app in (trusting_federation.app, bad):
        trusting_federation.flwr("build", "--app", str(app))
        (fab,) = trusting_federation.folder.glob("*.fab")
        made.append(fab.read_bytes())
        fab.unlink()
    return *made, bad, trace


def test_an_app_that_the_reviewer_has_signed_is_run(trusting_federation, hub, signing_folder, apps):
    name = blocks(PAGE, "yaml")[0].partition(":")[0].strip()
    hub.fab = apps[0]
    hub.signatures = [signature(hub.fab, signing_folder / "reviewer", name)]
    result = trusting_federation.run("Krylov", app=APP, n_components=2, seed=3).result()
    assert result.n_samples_ == 170
    assert result.angle_to(leading(trusting_federation.shards[:2])) < 1e-6


@pytest.mark.parametrize("how", ["a clone", "not signed", "of another app", "by a stranger", "by a stranger's name"])
def test_an_app_that_the_reviewer_has_not_signed_is_refused_before_any_of_it_runs(
    trusting_federation, hub, signing_folder, apps, how
):
    good, hub.fab, bad, trace = apps
    name = blocks(PAGE, "yaml")[0].partition(":")[0].strip()
    hub.signatures = {
        "of another app": [signature(good, signing_folder / "reviewer", name)],
        "by a stranger": [signature(hub.fab, signing_folder / "stranger", name)],
        "by a stranger's name": [signature(hub.fab, signing_folder / "reviewer", "fpk_other")],
    }.get(how)
    app = APP
    if how == "a clone":
        app = str(bad)
    nodes = [trusting_federation.node(partition) for partition in range(2)]
    before = [node.log.read_text() for node in nodes]
    run = trusting_federation.run("Krylov", app=app, n_components=2, seed=3)
    with pytest.raises(RuntimeError, match="The FAB could not be verified"):
        run.result()
    for node, log in zip(nodes, before, strict=True):
        assert "verif" in node.log.read_text()[len(log) :]
    assert not trace.exists()


def test_a_node_without_trusted_entities_runs_whatever_comes(trusting_federation, hub, apps):
    _, hub.fab, bad, trace = apps
    trusting_federation.present()
    trusting_federation.present(0, 1)
    assert trusting_federation.run("Krylov", app=str(bad), n_components=2, seed=3).result().n_samples_ == 170
    assert trace.exists()
